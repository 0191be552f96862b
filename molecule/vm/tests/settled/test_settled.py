# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import machine


def test_the_kernel_says_what_is_declared(host: Any) -> None:
    machine.assert_as_declared(host)
    machine.assert_interrupts_as_declared(host)


def test_other_clients_of_the_driver_see_the_declared_layout(host: Any) -> None:
    machine.assert_divided_as_declared(host)


def test_the_gpus_have_their_settings(host: Any) -> None:
    machine.assert_gpus_as_declared(host, ecc=True)


def test_no_change_is_left_unfinished(host: Any) -> None:
    assert not host.file("/var/lib/gpufleet/mig_layout.transaction").exists
    status = host.run("gpufleet status")
    assert status.rc == 0, status.stdout + status.stderr
