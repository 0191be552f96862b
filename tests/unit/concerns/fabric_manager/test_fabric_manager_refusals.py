# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``fabric_manager`` refuses, with the message that comes back, and that nothing was changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, NotInEffect
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.fabric_manager.spec import parse
from ansible_collections.gpufleet.node.tests.unit.concerns.fabric_manager.fabric_machine import (
    B200,
    CFG,
    DRIVER,
    FM_UNIT,
    GB200,
    H100,
    IB_UMAD,
    IMEX_UNIT,
    NVLSM,
    PCIE,
    FabricMachine,
)

DEFAULTS: Dict[str, Any] = {
    "service": None,
    "config": {},
    "hold": True,
    "imex_nodes": [],
    "imex_config": {},
    "imex_channel": False,
    "permanent": True,
}
SAID_BY_FILE = "a line of the file cannot hold a line break, a control character or blanks around the value"

WRONG = {
    "nothing": ({}, "Cannot read the declaration: nothing is declared. Set service: if_needed, or a config."),
    "service": (
        {"service": "always"},
        "Cannot use service: it cannot be 'always'. Set if_needed, which fits every node of a mixed fleet, or "
        "required.",
    ),
    "a file that is not permanent": (
        {"config": {"LOG_LEVEL": 3}, "permanent": False},
        "Cannot use config: it is written to a file, which counts at the next boot too. Leave it out, or set "
        "permanent: true.",
    ),
    "a foreign key": (
        {"config": {"FM_SM_MGMT_PORT_GUID": "0x1"}},
        "Cannot use config.FM_SM_MGMT_PORT_GUID: the start script of the Fabric Manager fills it in at each start. "
        "Leave it out.",
    ),
    "an unknown key": (
        {"config": {"FABRIC_MOD": 1}},
        "Cannot use config.FABRIC_MOD: there is no such key. Did you mean FABRIC_MODE?",
    ),
    "a mode": ({"config": {"FABRIC_MODE": 3}}, "Cannot use config.FABRIC_MODE: it must be one of 0, 1, 2 (found 3)."),
    "a flag": (
        {"config": {"LOG_USE_SYSLOG": "yes"}},
        "Cannot use config.LOG_USE_SYSLOG: it must be one of 0, 1 (found yes).",
    ),
    "a port": (
        {"config": {"FM_CMD_PORT_NUMBER": 70000}},
        "Cannot use config.FM_CMD_PORT_NUMBER: it must be a number from 1 to 65535 (found 70000).",
    ),
    "a level of two signs": (
        {"config": {"LOG_LEVEL": "--4"}},
        "Cannot use config.LOG_LEVEL: it must be a number from 0 to 4 (found --4).",
    ),
    "a digit that is none": (
        {"config": {"LOG_LEVEL": "²"}},
        "Cannot use config.LOG_LEVEL: it must be a number from 0 to 4 (found ²).",
    ),
    "a list": (
        {"config": {"LOG_FILE_NAME": ["a"]}},
        "Cannot use config.LOG_FILE_NAME: it is not a string or a number (found ['a']).",
    ),
    "a line break": (
        {"config": {"LOG_FILE_NAME": "/a\nFABRIC_MODE=1"}},
        f"Cannot use config.LOG_FILE_NAME: {SAID_BY_FILE} (found /a\\nFABRIC_MODE=1).",
    ),
    "the nodes file of IMEX": (
        {"imex_config": {"IMEX_NODE_CONFIG_FILE": "/a"}},
        "Cannot use imex_config.IMEX_NODE_CONFIG_FILE: it names the file that imex_nodes writes. Leave it out.",
    ),
    "a name of a node": (
        {"imex_nodes": ["192.0.2.1", "node-2"]},
        "Cannot use imex_nodes: 'node-2' is not an IP address. Give the management address of each compute node, in "
        "the same order on all of them.",
    ),
    "an address that is none": (
        {"imex_nodes": ["192.0.2.256"]},
        "Cannot use imex_nodes: '192.0.2.256' is not an IP address. Give the management address of each compute node, "
        "in the same order on all of them.",
    ),
    "a node twice": (
        {"imex_nodes": ["2001:db8::1", "2001:0db8:0:0:0:0:0:1"]},
        "Cannot use imex_nodes: 2001:db8::1 is listed twice. Remove one.",
    ),
}


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_what_no_machine_could_have_is_refused_before_the_machine_is_asked(given: Any, message: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        parse({**DEFAULTS, **given})
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("config", "found"),
    [({"LOG_LEVEL": 4, "DAEMONIZE": True}, {"LOG_LEVEL": "4", "DAEMONIZE": "1"}), ({"UNIX_SOCKET_PATH": ""}, None)],
)
def test_numbers_and_booleans_are_what_the_file_has(config: Any, found: Any) -> None:
    assert parse({**DEFAULTS, "config": config}).config == (found or config)


def test_a_fabric_manager_that_is_required_where_there_is_no_switch_is_refused(tmp_path: Path) -> None:
    assert FabricMachine(tmp_path, PCIE, running=False, enabled=False).refused(service="required") == (
        "Cannot run the Fabric Manager: this machine has no NVSwitch, and the daemon exits at once without one. Set "
        "service: if_needed, which leaves it out on such a node."
    )


def test_one_that_is_not_installed_is_drift_that_says_what_to_install(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, installed=(), running=False)
    assert machine.refused(service="if_needed") == (
        "Cannot run the Fabric Manager (nvidia-fabricmanager.service): nv-fabricmanager is not installed, and this "
        f"machine has 4 NVSwitches. Install nvidia-fabricmanager-570 or nvidia-fabricmanager in version {DRIVER}, "
        "that of the driver."
    )


def test_a_masked_unit_is_refused(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, running=False, enabled=False)
    machine.path(f"/etc/systemd/system/{FM_UNIT}").symlink_to("/dev/null")
    assert machine.refused(service="if_needed") == (
        f"Cannot run the Fabric Manager ({FM_UNIT}): it is masked. Run systemctl unmask {FM_UNIT}, or leave "
        "fabric_manager out of the declaration of this node."
    )


def test_the_driver_of_a_container_has_its_own_and_is_refused(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, running=False, enabled=False)
    machine.path("/run/nvidia/driver/usr/bin").mkdir(parents=True)
    assert machine.refused(service="if_needed") == (
        f"Cannot run the Fabric Manager ({FM_UNIT}): a driver container (/run/nvidia/driver) runs "
        "nv-fabricmanager itself. Leave fabric_manager out of the declaration of nodes of the GPU Operator."
    )


def test_a_daemon_that_runs_outside_of_its_unit_is_refused_with_its_container(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, GB200, running=False, enabled=False)
    machine.client(77, "nvidia-imex")
    machine.write("/proc/77/cgroup", f"0::/kubepods.slice/cri-containerd-{'ab' * 32}.scope\n")
    assert machine.refused(imex_nodes=["192.0.2.12"]) == (
        f"Cannot run IMEX ({IMEX_UNIT}): nvidia-imex (pid 77, container abababababab) already runs, outside "
        "of this unit. End that process, or leave fabric_manager out of the declaration of this node."
    )


def test_a_file_that_says_two_things_is_not_changed(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    machine.edit(CFG, "LOG_LEVEL=4\n", "LOG_LEVEL=4\nLOG_LEVEL=2\n")
    assert machine.refused(config={"LOG_LEVEL": 4}) == (
        f"Cannot read the value of LOG_LEVEL in {CFG}: lines 2, 3 set it to different values. Keep one of these lines."
    )


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    machine.path(CFG).unlink()
    assert machine.refused(config={"LOG_LEVEL": 4}) == (
        f"Cannot set LOG_LEVEL: {CFG} does not exist. Reinstall the package of the daemon, which ships the file."
    )


def test_nodes_without_this_one_are_refused(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, GB200)
    assert machine.refused(imex_nodes=["192.0.2.11", "192.0.2.13"]) == (
        "Cannot use imex_nodes: none of these addresses belongs to this node (found 127.0.0.1, 192.0.2.12, "
        "2001:db8::12, ::1). Add the management address of this node, at the same place on all nodes of the domain."
    )


LACKING: Dict[str, Any] = {
    "nvlsm": (
        ["nvlsm"],
        "nvlsm is not installed",
        "Install the package nvlsm from NVIDIA's repository, whose version is not that of the driver.",
        "not_in_effect",
    ),
    "ibstat": (["ibstat"], "ibstat is not installed", "Install ibstat (infiniband-diags).", "not_in_effect"),
    "ib_umad": (
        ["ib_umad"],
        "the module ib_umad is not loaded",
        "Load ib_umad, also at boot, as kernel_modules does.",
        "no_ib_umad",
    ),
    "both": (
        ["ibstat", "ib_umad"],
        "ibstat is not installed and the module ib_umad is not loaded",
        "Install ibstat (infiniband-diags), and load ib_umad, also at boot, as kernel_modules does.",
        "not_in_effect",
    ),
}


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(("names", "cause", "hint", "code"), LACKING.values(), ids=LACKING)
def test_what_the_fabric_manager_lacks_behind_management_ports_is_said_before_it_is_started(
    tmp_path: Path, names: List[str], cause: str, hint: str, code: str, check_mode: bool
) -> None:
    machine = FabricMachine(tmp_path, B200, running=False, enabled=False)
    take_away(machine, names)
    with pytest.raises(NotInEffect) as refused:
        machine.run(service="if_needed", check_mode=check_mode)
    assert str(refused.value) == (
        f"Cannot run the Fabric Manager (nvidia-fabricmanager.service): {cause}, and this machine has 2 management"
        f" ports of NVSwitches. {hint}"
    )
    assert (refused.value.code, machine.systemd.started) == (code, [])


def test_with_all_of_it_the_fabric_manager_is_started(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, B200, running=False, enabled=False)
    machine.run(service="if_needed")
    assert machine.systemd.running(FM_UNIT)


@pytest.mark.parametrize("kind", [H100, B200], ids=["h100", "b200, running"])
def test_nothing_of_it_is_asked_where_it_is_not_needed(tmp_path: Path, kind: str) -> None:
    machine = FabricMachine(tmp_path, kind, running=kind == B200)
    take_away(machine, ["nvlsm", "ibstat", "ib_umad"])
    machine.run(service="if_needed")


def take_away(machine: FabricMachine, names: List[str]) -> None:
    machine.host.commands.programs.pop("ibstat" if "ibstat" in names else "", None)
    for name, path in (("nvlsm", NVLSM), ("ib_umad", f"{IB_UMAD}/refcnt")):
        if name in names:
            machine.path(path).unlink(missing_ok=True)
    if "ib_umad" in names and machine.path(IB_UMAD).exists():
        machine.path(IB_UMAD).rmdir()
