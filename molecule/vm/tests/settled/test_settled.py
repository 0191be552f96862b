# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import machine
import runs


def test_the_kernel_says_what_is_declared(said: machine.Said) -> None:
    machine.assert_as_declared(said)


def test_interrupts_are_on_cpus_next_to_their_devices(host: Any) -> None:
    machine.assert_interrupts_as_declared(host)


def test_other_clients_of_the_driver_see_the_declared_layout(said: machine.Said) -> None:
    machine.assert_divided(said, machine.MIG_DEVICES)


def test_the_gpus_have_their_settings(said: machine.Said) -> None:
    machine.assert_gpus_as_declared(said, ecc=True)


def test_the_boot_kept_the_program_that_looks(host: Any) -> None:
    assert set(runs.lookers("converge.yml", str(host.backend.get_hostname()))[-1]) == {"program"}


def test_against_other_owners_no_run_but_the_first_has_changed_anything(host: Any) -> None:
    name = str(host.backend.get_hostname())
    _first, *later = [run for run in runs.read() if run.playbook == "converge.yml" and not run.check]
    assert later
    tasks = [task for run in later for (_host, task), changes in run.of(name).items() if changes]
    assert not [task for task in tasks if "kernel_tunables" in task or "node_swap" in task]


def test_no_change_is_left_unfinished_and_the_node_itself_says_that_all_is_right(host: Any) -> None:
    status = host.run("ls /var/lib/gpufleet/mig_layout.transaction; gpufleet status")
    assert "No such file" in status.stderr
    assert status.rc == 0, status.stdout + status.stderr
