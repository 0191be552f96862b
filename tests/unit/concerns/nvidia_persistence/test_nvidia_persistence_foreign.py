# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services and scripts that switch persistence mode at boot, beside the daemon and the boot service."""

from __future__ import annotations

from typing import Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import OwnedByAnother
from ansible_collections.gpufleet.node.tests.unit.concerns.nvidia_persistence.persistence_machine import (
    BOOT_SERVICE,
    UPSTREAM,
    MakePersistenceMachine,
)

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.concerns.nvidia_persistence.persistence_machine",)

UNIT = "/etc/systemd/system/tune.service"
LINK = "/etc/systemd/system/multi-user.target.wants/tune.service"
BEHIND = "After=gpufleet-boot.service"
BEHIND_DAEMON = "After=nvidia-persistenced.service"


def service(line: str, order: str) -> Dict[str, str]:
    unit = f"[Unit]\n{order}\n[Service]\nType=oneshot\nExecStart=/usr/bin/nvidia-smi {line}\n"
    return {UNIT: unit, LINK: unit}


def found(outcome: Outcome) -> List[Tuple[str, str, str, str]]:
    return [(one.object, one.setting, one.value, one.wins) for one in outcome.remaining.conflicts]


@pytest.mark.parametrize(("line", "gpu"), [("-pm 0", "gpu0"), ("-i 3 --persistence-mode=DISABLED", "gpu3")])
def test_another_mode_behind_the_boot_service_is_refused(
    persistence_machine: MakePersistenceMachine, line: str, gpu: str
) -> None:
    files = {**BOOT_SERVICE, **service(line, f"{BEHIND} nvidia-persistenced.service")}
    machine = persistence_machine(unit=UPSTREAM, enabled=True, files=files)
    with pytest.raises(OwnedByAnother) as caught:
        machine.run(enabled=True)
    assert str(caught.value) == (
        f"Cannot set persistence_mode on {gpu}: tune.service sets another value after gpufleet at each boot "
        f"({UNIT}:5) (found off, wanted on). Delete that line, declare its value, or set permanent: false."
    )
    assert found(machine.run(enabled=True, permanent=False))[0] == (gpu, "persistence_mode", "off", "them")


@pytest.mark.parametrize(
    "line", ["-pm 1", "--persistence-mode=ENABLED", "--query-gpu=persistence_mode --format=csv", "-q", "-L", "-pl 300"]
)
def test_the_declared_mode_a_query_and_other_settings_are_no_finding(
    persistence_machine: MakePersistenceMachine, line: str
) -> None:
    machine = persistence_machine(files={**BOOT_SERVICE, **service(line, BEHIND)})
    assert found(machine.run(enabled=True)) == []
    assert machine.run(enabled=True).status == "in_sync"


@pytest.mark.parametrize(
    ("order", "boot_service", "wins"),
    [
        ("", True, "unknown"),
        # The daemon runs first, and the boot service may be either.
        (BEHIND_DAEMON, True, "unknown"),
        ("Before=gpufleet-boot.service", True, "us"),
        ("", False, "unknown"),
        ("Before=nvidia-persistenced.service", False, "us"),
    ],
)
def test_what_may_win_or_loses_is_named_and_the_run_goes_on(
    persistence_machine: MakePersistenceMachine, order: str, wins: str, *, boot_service: bool
) -> None:
    files = {**(BOOT_SERVICE if boot_service else {}), **service("-i 0 -pm 0", order)}
    machine = persistence_machine(unit=UPSTREAM, enabled=True, files=files)
    assert found(machine.run(enabled=True)) == [("gpu0", "persistence_mode", "off", wins)]
    again = machine.run(enabled=True)
    assert (again.changes, found(again)) == ((), [("gpu0", "persistence_mode", "off", wins)])


def test_without_the_boot_service_the_daemon_is_what_it_must_come_behind(
    persistence_machine: MakePersistenceMachine,
) -> None:
    files = service("-i 0 -pm 0", BEHIND_DAEMON)
    machine = persistence_machine(unit=UPSTREAM, enabled=True, files=files)
    with pytest.raises(OwnedByAnother):
        machine.run(enabled=True)


def test_a_daemon_that_udev_starts_has_no_order_with_services(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(files=service("-i 0 -pm 0", BEHIND_DAEMON))
    assert found(machine.run(enabled=True)) == [("gpu0", "persistence_mode", "off", "unknown")]
