# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any, Dict, List, Tuple

import machine
import pytest

# What of a GPU is a setting.
SETTINGS = (
    "uuid",
    "power_limit",
    "compute_mode",
    "time_slice",
    "ecc_pending",
    "locked_graphics_min",
    "mig",
    "mig_pending",
    "instances",
)


def test_no_file_of_ours_is_left(host: Any) -> None:
    assert host.check_output("find /etc /var/lib /boot /usr/local -name '*gpufleet*'") == ""
    menu = host.check_output("cat /boot/grub/grub.cfg")
    assert "hugepages=" not in menu
    assert "skew_tick=" not in menu
    assert "gpufleet-kernel_modules" not in host.check_output("lsinitramfs /boot/initrd.img-$(uname -r)")


def test_the_kernel_and_the_driver_have_the_values_from_before(host: Any, said: machine.Said) -> None:
    before = json.loads(host.check_output("cat /root/before.said"))
    for part in ("pages", "transparent_hugepages", "queues", "swap", "sysctl", "mtu"):
        assert said[part] == before[part]
    # What a CPU does at this moment is for its governor to say.
    assert {cpu: values[:3] for cpu, values in said["cpus"].items()} == {
        cpu: values[:3] for cpu, values in before["cpus"].items()
    }
    assert _settings(said) == _settings(before)


def _settings(said: machine.Said) -> List[Dict[str, Any]]:
    """A GPU keeps its state by the daemon, or by the driver's own flag."""
    return [
        {"persistence": bool(gpu["daemon_pid"] or gpu["persistence"]), **{name: gpu[name] for name in SETTINGS}}
        for gpu in said["gpus"]
    ]


def test_a_scratch_is_unmounted_and_what_is_on_it_is_still_there(host: Any) -> None:
    if host.backend.get_hostname() != "trixie":
        pytest.skip("this node has none")
    assert " /scratch " not in host.check_output("cat /proc/self/mountinfo")
    assert not host.file("/scratch").exists
    host.run_expect([0], "mount -o ro /dev/md/scratch /mnt")
    assert host.check_output("cat /mnt/kept && umount /mnt") == "data"


def test_the_gpu_that_was_lent_has_its_driver_again(host: Any) -> None:
    if host.backend.get_hostname() == "trixie":
        assert machine.driver_of_lent(host) == machine.BEFORE_VFIO


def test_no_disk_of_another_machine_is_connected(host: Any) -> None:
    assert set(host.check_output("cat /sys/class/nvme/*/transport").split()) == {"pcie"}
    # The target is still there: nothing connects to it at the next boot either.
    if host.backend.get_hostname() == "bookworm":
        assert host.check_output("systemctl is-active nvme-target") == "active"
        assert host.run("systemctl cat gpufleet-nvme-of.service").rc != 0


def test_every_configuration_file_is_as_it_was(host: Any) -> None:
    assert host.run("sha256sum --quiet --check /root/before.sums").stdout == ""


def test_interrupts_and_queues_are_where_they_were(host: Any) -> None:
    """By name, which some change at a reboot. Where irqbalance runs again, it has its own mind about interrupts."""
    before, after = (
        _places(host.check_output(command))
        for command in ("cat /root/before.interrupts", "python3 /root/interrupts.py before")
    )
    common = {key for key in before.keys() & after.keys() if not (_balances(host) and "interrupt" in key)}
    assert [key for key in common if "queue" in key]
    assert {key: after[key] for key in common} == {key: before[key] for key in common}


def test_irqbalance_is_as_it_was(host: Any) -> None:
    state = host.run("systemctl is-enabled irqbalance; systemctl is-active irqbalance").stdout.split()
    assert state == (["enabled", "active"] if _balances(host) else ["disabled", "inactive"])
    traces = ("systemctl show -P ExecStart irqbalance", "ps -C irqbalance -o args=", "ls /run/gpufleet/irqbalance")
    left = host.run("; ".join(traces)).stdout
    assert "policyscript" not in left
    assert "devices" not in left


def _balances(host: Any) -> bool:
    """Whether the node had irqbalance before us."""
    return bool(host.backend.get_hostname() == "trixie")


def _places(text: str) -> Dict[Tuple[str, str, str], Any]:
    """The CPUs by device, kind and name."""
    entries = [json.loads(line) for line in text.splitlines()]
    kinds = ["interrupt" if "interrupt" in entry else "queue" for entry in entries]
    return {(entry["device"], kind, entry[kind]): entry["cpus"] for entry, kind in zip(entries, kinds)}


def test_no_gpu_is_divided(said: machine.Said) -> None:
    assert said["nvidia_smi"] == {}
    assert said["modes"] == ["Disabled, Disabled"] * 8


def test_the_timer_is_enabled_and_runs_as_before(host: Any) -> None:
    assert host.check_output("systemctl is-enabled demo-index.timer") == "enabled"
    assert host.check_output("systemctl is-active demo-index.timer") == "active"
    assert host.check_output("systemctl show -P LimitMEMLOCK ssh.service") != machine.MEMLOCK


def test_a_daemon_has_all_cpus_without_being_started_anew(host: Any) -> None:
    assert machine.cpus_of(host, "dbus.service")[1] == "0-3"


def test_no_slice_is_left(host: Any) -> None:
    assert host.run("ls -d /sys/fs/cgroup/gpu.slice").rc == 2
    assert host.check_output("systemctl show -P AllowedCPUs gpu-7.slice") == ""
    assert host.check_output("systemctl show -P OOMScoreAdjust nvidia-persistenced.service") == "0"
