# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other software that connects or disconnects a declared subsystem at boot: nvme-cli, nvme-stas, writes into sysfs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import OwnedByAnother
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_of import foreign
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_of.spec import Connection
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.concerns.nvme_of.nvme_of_machine import DATA, OTHER, Machine

SERVICE = "/etc/systemd/system/storage.service"
LINK = "/etc/systemd/system/multi-user.target.wants/storage.service"
SCRIPT = "/opt/storage"
STACD = "/etc/systemd/system/multi-user.target.wants/stacd.service"
STAFD = "/etc/systemd/system/multi-user.target.wants/stafd.service"
AUTOCONNECT = "/etc/systemd/system/default.target.wants/nvmf-autoconnect.service"
CONNECTION, NAME = "connection", f"{DATA} over tcp 10.10.0.5:4420"
DECLARED = {
    "nqn": DATA,
    "paths": [{"address": "10.10.0.5"}],
    "io_queues": 4,
    "loss_seconds": -1,
    "reconnect_seconds": 10,
    "io_policy": "round-robin",
}
AUDIT = "[I/O controller connection management]\ndisconnect-scope=all-connections-matching-disconnect-trtypes\n"
STOCK = sorted((Path(nodetree.__file__).parent / "stock").glob("*.tree"))

Finding = Tuple[str, str, str, str]
"""The object, the setting, the value and whose stays."""


def service(script: str, order: str = "After=gpufleet-nvme-of.service") -> Dict[str, str]:
    unit = f"[Unit]\n{order}\n[Service]\nType=oneshot\nExecStart={SCRIPT}\n[Install]\nWantedBy=multi-user.target\n"
    return {SERVICE: unit, LINK: unit, SCRIPT: f"#!/bin/sh\n{script}\n"}


def stas(conf: str, *, finds_more: bool = False) -> Dict[str, str]:
    unit = "[Service]\nExecStart=/usr/bin/python3 -u /usr/sbin/stacd --syslog\n"
    files = {STACD: unit, "/usr/lib/systemd/system/stacd.service": unit, "/etc/stas/stacd.conf": conf}
    return {**files, **({STAFD: unit, "/usr/lib/systemd/system/stafd.service": unit} if finds_more else {})}


def autoconnect(**files: str) -> Dict[str, str]:
    unit = "[Unit]\nConditionPathExists=/etc/nvme/discovery.conf\n[Service]\nExecStart=/usr/sbin/nvme connect-all\n"
    unit += "[Install]\nWantedBy=default.target\n"
    names = {"conf": "/etc/nvme/discovery.conf", "json": "/etc/nvme/config.json"}
    return {
        AUTOCONNECT: unit,
        "/usr/lib/systemd/system/nvmf-autoconnect.service": unit,
        **{names[name]: text for name, text in files.items()},
    }


def with_files(tmp_path: Path, files: Mapping[str, str]) -> Machine:
    """A machine on which our unit connects at boot, and then other software comes."""
    machine = Machine(tmp_path)
    machine.run(DECLARED)
    for path, text in files.items():
        place = tmp_path / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return machine


def found(tmp_path: Path, files: Mapping[str, str], **options: Any) -> List[Finding]:
    outcome = with_files(tmp_path, files).run(DECLARED, **options)
    assert outcome.changes == ()
    return [(one.object, one.setting, one.value, one.wins) for one in outcome.remaining.conflicts]


ENDS: Dict[str, str] = {
    "by its name": f"nvme disconnect -n {DATA}",
    "by its long name": f"/usr/sbin/nvme disconnect --nqn={DATA}",
    "all": "nvme disconnect-all",
    "all of a transport": "nvme disconnect-all -r tcp",
    "through sysfs": "for c in /sys/class/nvme/nvme*; do echo 1 > $c/delete_controller; done",
}
CONNECT = f"nvme connect -t tcp -n {DATA} -a 10.10.0.5"


@pytest.mark.parametrize("name", ENDS)
def test_what_ends_a_declared_connection_behind_our_unit_is_refused(tmp_path: Path, name: str) -> None:
    machine = with_files(tmp_path, service(ENDS[name]))
    with pytest.raises(OwnedByAnother, match=f"Cannot set connection on {NAME}: storage.service") as caught:
        machine.run(DECLARED)
    assert f"{SCRIPT}:2" in str(caught.value)
    assert machine.connected == ["10.10.0.5"]


def test_a_timer_that_ends_it_is_refused_before_the_first_run_changes_anything(tmp_path: Path) -> None:
    timer = "[Timer]\nOnCalendar=hourly\nUnit=storage.service\n[Install]\nWantedBy=timers.target\n"
    link = "/etc/systemd/system/timers.target.wants/storage.timer"
    files = {**service("nvme disconnect-all", ""), "/etc/systemd/system/storage.timer": timer, link: timer}
    machine = Machine(tmp_path, {path: text for path, text in files.items() if path != LINK})
    with pytest.raises(OwnedByAnother, match="Cannot set connection"):
        machine.run(DECLARED)
    assert machine.connected == []


@pytest.mark.parametrize(
    ("script", "order", "expected"),
    [
        pytest.param("nvme disconnect-all", "", [(NAME, CONNECTION, "disconnected", "unknown")], id="without an order"),
        pytest.param(
            f"[ -x /opt/x ] && nvme disconnect -n {DATA}",
            "After=gpufleet-nvme-of.service",
            [(NAME, CONNECTION, "disconnected", "unknown")],
            id="on a condition",
        ),
        pytest.param(
            "nvme disconnect -d nvme1",
            "After=gpufleet-nvme-of.service",
            [(NAME, CONNECTION, "disconnected", "unknown")],
            id="by a device",
        ),
        pytest.param(
            "nvme disconnect-all",
            "Before=gpufleet-nvme-of.service",
            [(NAME, CONNECTION, "disconnected", "us")],
            id="before",
        ),
        pytest.param(f"{CONNECT} -i 4 --ctrl-loss-tmo=-1", "", [], id="the declared numbers"),
        pytest.param(f"{CONNECT} -i4 -l -1 -c 10 -s 4420", "", [], id="with all options"),
        pytest.param(
            f"{CONNECT} --nr-io-queues 8 -l -1", "", [(NAME, "io_queues", "8", "unknown")], id="another number"
        ),
        pytest.param(
            f"{CONNECT} -i 8 -l -1",
            "After=gpufleet-nvme-of.service",
            [(NAME, "io_queues", "8", "us")],
            id="behind our unit the kernel has it already",
        ),
        pytest.param(
            CONNECT,
            "",
            [(NAME, "io_queues", "", "unknown"), (NAME, "loss_seconds", "600", "unknown")],
            id="what it leaves to the kernel",
        ),
        pytest.param(
            f"nvme connect -t tcp -n {DATA} -a target.example -i 8 -l -1",
            "",
            [(NAME, "io_queues", "8", "unknown")],
            id="a name that may be the address",
        ),
        pytest.param(f"nvme disconnect -n {OTHER}", "After=gpufleet-nvme-of.service", [], id="another subsystem"),
        pytest.param("nvme disconnect-all -r rdma", "After=gpufleet-nvme-of.service", [], id="another transport"),
        pytest.param(f"{CONNECT} -s 4421 -i 8", "", [], id="another port"),
        pytest.param(f"nvme connect -t tcp -n {DATA} -a 10.10.0.6 -i 8", "", [], id="another address"),
        pytest.param("nvme list; nvme disconnect", "After=gpufleet-nvme-of.service", [], id="what does nothing"),
        pytest.param(
            f"nvme disconnect-all\n{CONNECT} -i 4 -l -1", "After=gpufleet-nvme-of.service", [], id="connected again"
        ),
        pytest.param(
            f'logger "nvme disconnect -n {DATA}"', "After=gpufleet-nvme-of.service", [], id="what is only mentioned"
        ),
        pytest.param(
            "for s in /sys/class/nvme-subsystem/nvme-subsys*; do echo numa > $s/iopolicy; done",
            "",
            [(DATA, "io_policy", "numa", "unknown")],
            id="another policy",
        ),
        pytest.param(
            "for s in /sys/class/nvme-subsystem/nvme-subsys*; do echo round-robin > $s/iopolicy; done",
            "",
            [],
            id="the same policy",
        ),
    ],
)
def test_what_else_services_do(tmp_path: Path, script: str, order: str, expected: List[Finding]) -> None:
    assert found(tmp_path, service(script, order)) == expected


def test_for_now_alone_it_is_named_as_what_wins(tmp_path: Path) -> None:
    machine = Machine(tmp_path, service("nvme disconnect-all", ""))
    outcome = machine.run(DECLARED, permanent=False)
    assert [(one.object, one.setting, one.wins) for one in outcome.remaining.conflicts] == [(NAME, CONNECTION, "them")]


def test_absent_has_nothing_to_say_of_it(tmp_path: Path) -> None:
    machine = with_files(tmp_path, service("nvme disconnect-all"))
    outcome = machine.run(state="absent", check_mode=True)
    assert (bool(outcome.changes), outcome.remaining.conflicts) == (True, ())


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(autoconnect(conf="# --transport=tcp --traddr=10.10.0.9\n\n"), [], id="as it is installed"),
        pytest.param(
            autoconnect(conf="-t tcp -a 10.10.0.9 -i 8 -l -1\n"),
            [(NAME, "io_queues", "8", "unknown")],
            id="other numbers",
        ),
        pytest.param(
            autoconnect(conf="--transport=tcp --traddr=10.10.0.9 -i 4 -l -1\n"), [], id="the declared numbers"
        ),
        pytest.param(
            autoconnect(json='{"hosts": [{"subsystems": [{"ports": [{"traddr": "10.10.0.9"}]}]}]}'),
            [(NAME, name, "", "unknown") for name in ("io_queues", "loss_seconds", "reconnect_seconds")],
            id="a file of libnvme",
        ),
        pytest.param(autoconnect(json='{"hosts": []}'), [], id="a file of libnvme without a target"),
    ],
)
def test_what_nvme_cli_connects_by_its_files(tmp_path: Path, files: Mapping[str, str], expected: List[Finding]) -> None:
    assert sorted(found(tmp_path, files)) == sorted(expected)


CONTROLLER = f"[Controllers]\ncontroller = transport=tcp;traddr=10.10.0.5;trsvcid=4420;nqn={DATA}"


@pytest.mark.parametrize(
    ("conf", "finds_more", "expected"),
    [
        pytest.param("[Global]\n#kato=120\n", False, [], id="as it is installed"),
        pytest.param(f"{CONTROLLER};nr-io-queues=4;ctrl-loss-tmo=-1\n", False, [], id="the declared numbers"),
        pytest.param(
            f"[Global]\nctrl-loss-tmo=-1\n{CONTROLLER};nr-io-queues=8\n",
            False,
            [(NAME, "io_queues", "8", "unknown")],
            id="other numbers",
        ),
        pytest.param(
            "[Global]\nnr-io-queues=4\nctrl-loss-tmo=30\n",
            True,
            [(NAME, "loss_seconds", "30", "unknown")],
            id="what a discovery controller may tell of",
        ),
        pytest.param(f"{AUDIT}{CONTROLLER};nr-io-queues=4;ctrl-loss-tmo=-1\n", False, [], id="it keeps its own"),
        pytest.param(f"{AUDIT}disconnect-trtypes=rdma+fc\n", False, [], id="it ends those of other transports"),
        pytest.param(
            f"[Global]\nnr-io-queues=4\nctrl-loss-tmo=-1\n{AUDIT}",
            True,
            [(NAME, CONNECTION, "disconnected", "unknown")],
            id="it may end what no discovery controller reports",
        ),
        pytest.param(
            AUDIT.replace("all-connections-matching-disconnect-trtypes", "no-disconnect"), False, [], id="none"
        ),
    ],
)
def test_what_nvme_stas_does(tmp_path: Path, conf: str, finds_more: bool, expected: List[Finding]) -> None:
    assert found(tmp_path, stas(conf, finds_more=finds_more)) == expected


def test_a_stacd_that_ends_what_it_does_not_know_is_refused(tmp_path: Path) -> None:
    """``_audit_all_connections`` of staslib/service.py: whenever a controller is added, and when it starts."""
    machine = with_files(tmp_path, stas(f"{AUDIT}disconnect-trtypes=tcp+rdma\n"))
    with pytest.raises(OwnedByAnother, match=f"Cannot set connection on {NAME}: stacd.service") as caught:
        machine.run(DECLARED)
    assert "/etc/stas/stacd.conf:2" in str(caught.value)
    (tmp_path / STACD.lstrip("/")).unlink()
    assert machine.run(DECLARED).remaining.conflicts == ()


@pytest.mark.parametrize("tree", STOCK, ids=lambda tree: str(tree.stem))
def test_a_stock_system_does_nothing_with_connections(tree: Path, tmp_path: Path) -> None:
    root = nodetree.expand(nodetree.parse(tree.read_text(encoding="utf-8")), tmp_path / "root")
    connection = Connection((DATA, "tcp", "10.10.0.5", "4420", "", ""), {"io_queues": 4})
    files = RecordedHost(str(root)).files
    assert foreign.find(files, [connection], {DATA: "round-robin"}, carrier="gpufleet-nvme-of.service") == ()
