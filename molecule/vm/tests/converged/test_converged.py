# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any

import machine
import pytest
import runs


def name_of(host: Any) -> str:
    return str(host.backend.get_hostname())


def test_what_check_mode_predicted_is_what_converge_did(host: Any) -> None:
    predicted, done = runs.predicted_and_done("converge.yml", name_of(host))
    assert done
    assert predicted == done


def test_the_second_run_changed_nothing(host: Any) -> None:
    assert not any(runs.repeated("converge.yml", name_of(host)).values())


def test_once_the_program_is_on_the_node_no_look_sends_a_module(host: Any) -> None:
    in_check_mode, first, second = runs.lookers("converge.yml", name_of(host))
    # A look, the facts for preflight, and another look behind the roles. Check mode leaves nothing on the node.
    assert in_check_mode == ["module", "module", "module"]
    assert first == ["module", "module", "program"]
    assert second == ["program"]


def test_the_kernel_says_what_is_declared(said: machine.Said) -> None:
    machine.assert_as_declared(said)


def test_interrupts_are_on_cpus_next_to_their_devices(host: Any) -> None:
    machine.assert_interrupts_as_declared(host)


def test_the_driver_says_what_is_declared(said: machine.Said) -> None:
    machine.assert_gpus_as_declared(said, ecc=False)


def test_other_clients_of_the_driver_see_the_declared_layout(said: machine.Said) -> None:
    machine.assert_divided(said, machine.MIG_DEVICES)


def test_the_second_look_calls_nothing_that_changes_a_gpu(host: Any) -> None:
    looked = host.run(
        "nvml-sim log --clear && gpufleet status >/dev/null; test $? = 2 && nvml-sim log --json --changes"
    )
    assert looked.rc == 0, looked.stderr
    assert json.loads(looked.stdout) == []


def test_modules_are_loaded_and_blocked(host: Any, said: machine.Said) -> None:
    assert "dummy" in said["modules"]
    assert "pcspkr" not in said["modules"]
    assert host.run("modprobe pcspkr").rc != 0


def test_a_module_has_the_declared_parameter_and_modprobe_gives_it_again(host: Any) -> None:
    assert host.check_output("cat /sys/module/overlay/parameters/metacopy") == "Y"
    assert host.check_output("modprobe --show-depends overlay").split()[-1] == "metacopy=1"
    assert "zz-gpufleet-kernel_modules.conf" in host.check_output("lsinitramfs /boot/initrd.img-$(uname -r)")


def test_systemd_accepts_our_units(host: Any) -> None:
    units = "gpufleet-boot.service gpufleet-interrupts.service nvidia-persistenced.service"
    known = host.check_output(
        f"systemd-analyze verify {units} && systemctl show -P NeedDaemonReload {units} irqbalance.service"
    )
    assert known.split() == ["no"] * 4


def test_pages_of_1_gib_wait_for_the_reboot_and_say_so(host: Any, said: machine.Said) -> None:
    assert said["pages"]["1048576"] == {"0": 0, "1": 0}
    assert "hugepages_1G" in host.check_output("cat /run/gpufleet/reboot-required.d/hugepages")
    assert "hugepages=0:1,1:1" in host.check_output("cat /boot/grub/grub.cfg")


def test_kernel_arguments_wait_for_the_reboot_in_all_entries_but_those_for_recovery(host: Any) -> None:
    assert "kernel command line rcu_nocbs" in host.check_output("cat /run/gpufleet/reboot-required.d/kernel_cmdline")
    lines = host.check_output(r"grep -P '^\s*linux\s' /boot/grub/grub.cfg").splitlines()
    assert "rcu_nocbs=3 skew_tick=1" in lines[0]
    assert [line for line in lines if "skew_tick" not in line] == [line for line in lines if " single " in f"{line} "]


def test_udev_accepts_the_rules(host: Any) -> None:
    rules = "/etc/udev/rules.d/99-gpufleet-"
    if "verify" in host.run("udevadm --help").stdout:
        assert host.run(f"udevadm verify {rules}*").rc == 0
    tested = host.run("udevadm test --action=add $(echo /sys/block/nvme*n* | cut -d' ' -f1)")
    assert "99-gpufleet-" in tested.stderr
    assert not [line for line in tested.stderr.splitlines() if rules in line and ("nvalid" in line or "nknown" in line)]


def test_every_change_is_a_line_in_the_journal(host: Any) -> None:
    lines = host.check_output("journalctl --output=json SYSLOG_IDENTIFIER=gpufleet").splitlines()
    # The binding came with the preparation.
    entries = [entry for entry in map(json.loads, lines) if entry["GPUFLEET_CONCERN"] != "nvml"]
    # A reset, and what surrounds it, is no change of a setting.
    entries = [entry for entry in entries if "GPUFLEET_SCOPE" in entry]
    _predicted, done = runs.predicted_and_done("converge.yml", name_of(host))
    made = [(change["object"], change["setting"], change["scope"]) for changes in done.values() for change in changes]
    logged = [(entry["GPUFLEET_OBJECT"], entry["GPUFLEET_SETTING"], entry["GPUFLEET_SCOPE"]) for entry in entries]
    assert sorted(logged) == sorted(made)


def test_a_scratch_is_made_of_both_drives(host: Any) -> None:
    if name_of(host) != "trixie":
        pytest.skip("this node has none")
    machine.assert_has_scratch(host)
    # What is here after the reboot was not made anew.
    host.run_expect([0], "echo data > /scratch/kept && sync /scratch/kept")


def test_a_gpu_is_lent_to_virtual_machines(host: Any) -> None:
    if host.backend.get_hostname() != "trixie":
        pytest.skip("this node lends none")
    machine.assert_is_lent(host)


def test_a_disk_of_another_machine_is_connected_over_both_paths(host: Any) -> None:
    if name_of(host) != "bookworm":
        pytest.skip("this node has none")
    machine.assert_is_connected(host)
    assert host.run("systemd-analyze verify gpufleet-nvme-of.service").rc == 0


def test_what_a_discovery_controller_tells_of_later_is_connected_by_itself(host: Any) -> None:
    if name_of(host) != "bookworm":
        pytest.skip("this node has none")
    assert "told" not in host.check_output("cat /sys/class/nvme/*/subsysnqn")
    wait = "until grep -q told /sys/class/nvme/*/subsysnqn; do sleep 0.2; done"
    host.run_expect([0], f"sh /root/nvme_target.sh tell && timeout 60 sh -c '{wait}'")
    # It sets what is declared for it, and looks again until nothing is left.
    host.run_expect(
        [0], "timeout 60 sh -c 'while systemctl is-active gpufleet-nvme-discovery | grep -q ^a; do :; done'"
    )
    machine.assert_is_told(host)
    assert host.run("gpufleet status --concern nvme_of").rc == 0
    assert host.run("systemd-analyze verify gpufleet-nvme-discovery.service").rc == 0


def test_a_quiet_timer_is_off_and_sshd_keeps_its_limit_until_it_is_restarted(host: Any) -> None:
    machine.assert_quiet(host)
    assert machine.memlock_of_sshd(host) != machine.MEMLOCK
    assert host.check_output("systemctl show -P LimitMEMLOCK ssh.service") == machine.MEMLOCK


def test_a_command_runs_next_to_its_gpu_and_so_does_its_memory(host: Any) -> None:
    machine.assert_runs_next_to_its_gpu(host)
    # It was refused for a GPU without a slice, and nothing ran.
    refused = host.run("gpufleet run --gpu 1 -- touch /run/ran")
    assert (refused.rc, host.run("ls /run/ran").rc) == (64, 2)
    assert "Cannot run on gpu1" in refused.stderr
