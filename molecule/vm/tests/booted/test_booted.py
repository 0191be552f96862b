# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""After the first boot since the node was converged: one node was rebooted, the other one had its power cut."""

from __future__ import annotations

import json
from typing import Any

import machine
import pytest


def test_the_kernel_still_says_what_is_declared(said: machine.Said) -> None:
    machine.assert_as_declared(said)


def test_interrupts_are_on_cpus_next_to_their_devices(host: Any) -> None:
    machine.assert_interrupts_as_declared(host)


def test_the_boot_service_gave_the_gpus_their_settings_again(host: Any, said: machine.Said) -> None:
    machine.assert_gpus_as_declared(said, ecc=True)
    assert host.check_output("systemctl show -P Result gpufleet-boot") == "success"


def test_the_instances_are_at_the_places_of_before(host: Any, said: machine.Said) -> None:
    cut = host.backend.get_hostname() == "bookworm"
    machine.assert_divided(said, machine.OTHER_MIG_DEVICES if cut else machine.MIG_DEVICES)


def test_the_node_itself_says_that_all_is_right_and_who_else_sets_it_and_loses(host: Any) -> None:
    status = host.run("gpufleet status --json")
    assert status.rc == 0, status.stdout + status.stderr
    concerns = json.loads(status.stdout)["concerns"]
    said = {
        (entry["owner"], entry["object"], entry["setting"], entry["value"], entry["wins"])
        for name in ("kernel_tunables", "node_swap")
        for entry in concerns[name]["conflicts"]
    }
    assert said == machine.OTHERS[host.backend.get_hostname()]


def test_modules_are_loaded_and_blocked_again(host: Any, said: machine.Said) -> None:
    assert "dummy" in said["modules"]
    assert host.run("modprobe pcspkr").rc != 0
    assert host.check_output("cat /sys/module/overlay/parameters/metacopy") == "Y"


def test_the_boot_loader_brought_the_pages_of_1_gib(host: Any, said: machine.Said) -> None:
    assert "hugepages=0:1,1:1" in host.check_output("cat /proc/cmdline")
    assert said["pages"]["1048576"] == {"0": 1, "1": 1}


def test_the_boot_loader_brought_the_arguments_and_the_kernel_took_them(host: Any) -> None:
    assert "rcu_nocbs=3 skew_tick=1" in host.check_output("cat /proc/cmdline")
    assert "Offload RCU callbacks from CPUs: 3." in host.check_output("journalctl --dmesg --boot --no-pager")


def test_the_boot_cleared_the_reasons_for_a_reboot(host: Any) -> None:
    assert (
        host.run("ls /run/gpufleet/reboot-required.d/hugepages /run/gpufleet/reboot-required.d/kernel_cmdline").rc == 2
    )


def test_a_scratch_and_what_is_on_it_survives_a_reboot(host: Any) -> None:
    if host.backend.get_hostname() == "bookworm":
        pytest.skip("this node has none")
    machine.assert_has_scratch(host)
    assert host.check_output("cat /scratch/kept") == "data"


def test_the_boot_lent_the_gpu_before_another_driver_could_have_it(host: Any) -> None:
    if host.backend.get_hostname() != "trixie":
        pytest.skip("this node lends none")
    machine.assert_is_lent(host)
    lent = host.check_output("systemctl show -P ExecMainExitTimestampMonotonic gpufleet-passthrough.service")
    asked = host.check_output("systemctl show -P ExecMainStartTimestampMonotonic systemd-udev-trigger.service")
    assert 0 < int(lent) <= int(asked)


def test_the_boot_connected_a_disk_of_another_machine(host: Any) -> None:
    if host.backend.get_hostname() != "bookworm":
        pytest.skip("this node has none")
    machine.assert_is_connected(host)
    machine.assert_is_told(host)


def test_a_drive_that_appears_gets_its_settings_from_udev(host: Any) -> None:
    if host.backend.get_hostname() == "trixie":
        pytest.skip("both drives of this node are in an array")
    serial = host.check_output("grep -l -- '-1 *$' /sys/class/nvme/nvme*/serial")
    controller = host.check_output(f"readlink -f $(dirname {serial})/device")
    host.run_expect([0], f"echo 1 > {controller}/remove && echo 1 > /sys/bus/pci/rescan && udevadm settle")
    machine.assert_as_declared(machine.ask(host))
    machine.assert_interrupts_as_declared(host)


def test_a_quiet_timer_is_still_off_and_sshd_has_the_declared_limit(host: Any) -> None:
    machine.assert_quiet(host)
    assert machine.memlock_of_sshd(host) == machine.MEMLOCK


def test_a_daemon_has_the_cpus_of_the_system_and_what_is_beside_jobs_has_all(host: Any) -> None:
    assert machine.cpus_of(host, "dbus.service") == ["/housekeeping.slice/dbus.service", "0,2"]
    # Where Slurm has the steps of its jobs.
    assert machine.cpus_of(host, "systemd-logind.service") == ["/system.slice/systemd-logind.service", "0-3"]


def test_a_command_still_runs_next_to_its_gpu(host: Any) -> None:
    machine.assert_runs_next_to_its_gpu(host)


def test_users_of_the_group_run_commands_there_too(host: Any) -> None:
    if host.backend.get_hostname() == "bookworm":
        pytest.skip("this node has no polkit")
    machine.assert_the_group_may_launch_and_nobody_else(host)
