# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import machine


def test_the_kernel_still_says_what_is_declared(host: Any) -> None:
    machine.assert_as_declared(host)


def test_interrupts_are_on_cpus_next_to_their_devices(host: Any) -> None:
    machine.assert_interrupts_as_declared(host)


def test_the_boot_service_gave_the_gpus_their_settings_again(host: Any) -> None:
    machine.assert_gpus_as_declared(host, ecc=True)
    assert host.check_output("systemctl show -P Result gpufleet-boot") == "success"


def test_the_instances_are_at_the_places_of_before(host: Any) -> None:
    machine.assert_divided_as_declared(host)


def test_the_node_itself_says_that_all_is_right(host: Any) -> None:
    status = host.run("gpufleet status")
    assert status.rc == 0, status.stdout + status.stderr


def test_modules_are_loaded_and_blocked_again(host: Any) -> None:
    assert "dummy" in host.check_output("cut -d' ' -f1 /proc/modules").split()
    assert host.run("modprobe pcspkr").rc != 0


def test_the_boot_loader_brought_the_pages_of_1_gib(host: Any) -> None:
    assert "hugepages=0:1,1:1" in machine.text(host, "/proc/cmdline")
    assert machine.pages(host, 1048576) == {0: 1, 1: 1}


def test_the_boot_cleared_the_reasons_for_a_reboot(host: Any) -> None:
    assert not host.file("/run/gpufleet/reboot-required.d/hugepages").exists


def test_a_drive_that_appears_gets_its_settings_from_udev(host: Any) -> None:
    folder = machine.drive(host, 1)
    controller = host.check_output("readlink -f %s/../device/device", folder)
    host.run_expect([0], f"echo 1 > {controller}/remove && echo 1 > /sys/bus/pci/rescan && udevadm settle")
    machine.assert_as_declared(host)
    machine.assert_interrupts_as_declared(host)
