# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connections to NVMe subsystems: what is refused, whose they are, what may end, and what the next boot makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    DeclarationError,
    GpuFleetError,
    InUse,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node, waiting
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils._node.order import in_order
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.tests.unit.concerns.nvme_of.nvme_of_machine import (
    DATA,
    OTHER,
    UNIT,
    UUID,
    WANTS,
    Machine,
)

ONE = {"nqn": DATA, "paths": [{"address": "10.10.0.5"}]}
BOTH = {"nqn": DATA, "paths": [{"address": "10.10.0.5"}, {"address": "10.11.0.5"}]}
PREFIX = "nqn.2014-08.org.nvmexpress:uuid:"
NQN = f"{PREFIX}{UUID}"
NUMBER = "2b7e1516-28ae-42a6-abf7-158809cf4f3c"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def refusal(machine: Machine, *subsystems: Mapping[str, Any], **more: Any) -> GpuFleetError:
    machine.host.files.log.clear()
    with pytest.raises(GpuFleetError) as caught:
        machine.run(*subsystems, **more)
    assert machine.host.files.log == []
    return caught.value


@pytest.mark.parametrize(
    ("subsystem", "cause"),
    [
        ({"nqn": "data", "paths": [{"address": "10.0.0.1"}]}, "it is not the name of a subsystem"),
        ({"nqn": f"{DATA},hostid=1", "paths": [{"address": "10.0.0.1"}]}, "it is not the name of a subsystem"),
        ({"nqn": f'{DATA}" >/etc/passwd', "paths": [{"address": "10.0.0.1"}]}, "it is not the name of a subsystem"),
        ({"nqn": f"nqn.2024-01.com.{'x' * 220}", "paths": [{"address": "10.0.0.1"}]}, "it is not the name"),
        ({"nqn": DATA}, "no path is declared"),
        ({"nqn": DATA, "paths": [{"address": "storage1"}]}, "it is not an IP address"),
        ({"nqn": DATA, "paths": [{"address": "10.0.0.1", "port": 70000}]}, "it is not a port"),
        ({"nqn": DATA, "paths": [{"address": "10.0.0.1"}, {"address": "10.0.0.1"}]}, "10.0.0.1:4420 is declared twice"),
        ({"nqn": DATA, "transport": "loop", "paths": [{"address": "10.0.0.1"}]}, "loop is on this machine"),
        ({"nqn": "nqn.2014-08.org.nvmexpress.discovery", "paths": [{"address": "10.0.0.1"}]}, "has no disk"),
        (
            {"nqn": DATA, "paths": [{"address": "FD00:0::5"}, {"address": "fd00::5"}]},
            "fd00::5:4420 is declared twice",
        ),
        ({**ONE, "io_queues": 0}, "it must be from 1 to 65535"),
        ({**ONE, "queue_size": 8}, "it must be from 16 to 1024"),
        ({**ONE, "loss_seconds": -2}, "it must be from -1 to 86400"),
    ],
)
def test_what_no_machine_could_have_is_refused_with_the_reason(
    machine: Machine, subsystem: Mapping[str, Any], cause: str
) -> None:
    error = refusal(machine, subsystem)
    assert isinstance(error, DeclarationError)
    assert cause in str(error)


def test_a_subsystem_is_declared_once(machine: Machine) -> None:
    assert f"{DATA} is declared twice" in str(refusal(machine, ONE, {**BOTH, "io_policy": "numa"}))


def test_a_transport_for_which_the_kernel_has_no_module_is_refused(machine: Machine) -> None:
    error = refusal(machine, {**ONE, "transport": "rdma"}, {"nqn": OTHER, "paths": [{"address": "10.0.0.9"}]})
    assert "this kernel has no nvme-rdma" in str(error)


def test_all_paths_are_connected_with_what_is_declared_and_a_second_run_changes_nothing(machine: Machine) -> None:
    declared = {
        **BOTH,
        "io_queues": 4,
        "queue_size": 64,
        "loss_seconds": -1,
        "fail_seconds": 5,
        "io_policy": "round-robin",
    }
    outcome = machine.run(declared)
    assert machine.connected == ["10.10.0.5", "10.11.0.5"]
    assert machine.policy(DATA) == "round-robin"
    found = outcome.effective["connections"][f"{DATA} over tcp 10.10.0.5:4420"]
    assert (found["state"], found["io_queues"], found["queue_size"], found["loss_seconds"]) == ("live", 4, 64, -1)
    assert outcome.remaining.status == "in_sync"
    assert not machine.run(declared).changes


def test_the_next_boot_connects_them_in_the_same_way_and_needs_nothing_of_ours(machine: Machine) -> None:
    machine.run({**BOTH, "io_queues": 4, "io_policy": "round-robin"})
    unit = machine.host.files.read(UNIT)
    words = f"nqn={DATA},transport=tcp,traddr=10.11.0.5,trsvcid=4420,hostnqn={NQN},hostid={UUID},nr_io_queues=4"
    assert f"ExecStart=-/bin/sh -c 'printf %%s \"{words}\" >/dev/nvme-fabrics'\n" in unit
    assert f'!= "{DATA}" ] || echo round-robin >$$one/iopolicy' in unit
    assert "After=network-online.target\nBefore=remote-fs-pre.target\n" in unit
    assert machine.host.files.link(WANTS) == UNIT


def test_a_target_that_does_not_answer_does_not_keep_the_other_from_being_connected(machine: Machine) -> None:
    machine.dead = ["10.10.0.5"]
    with pytest.raises(Refused, match=r"10\.10\.0\.5:4420: the kernel returned Connection refused"):
        machine.run(BOTH)
    assert machine.connected == ["10.11.0.5"]
    machine.dead = []
    machine.run(BOTH)
    assert machine.connected == ["10.10.0.5", "10.11.0.5"]


def test_a_target_that_was_lost_is_pending_until_the_kernel_reaches_it(machine: Machine) -> None:
    machine.run(BOTH)
    machine.lose("nvme1")
    outcome = machine.run(BOTH)
    assert (outcome.changes, outcome.status, outcome.remaining.needs) == ((), "pending", ("target",))


def test_what_is_agreed_on_when_it_is_connected_is_pending_and_the_rest_is_changed(machine: Machine) -> None:
    machine.run(ONE)
    outcome = machine.run({**ONE, "io_queues": 8, "reconnect_seconds": 3})
    assert outcome.remaining.needs == ("reconnect",)
    assert (machine.root / "sys/class/nvme/nvme1/reconnect_delay").read_text() == "3\n"
    assert (machine.root / "sys/class/nvme/nvme1/queue_count").read_text() == "5\n"


def test_connections_of_others_are_left_alone_and_stay_when_they_were_declared_too(machine: Machine) -> None:
    machine.connect({"nqn": DATA, "transport": "tcp", "traddr": "10.10.0.5", "trsvcid": "4420"})
    machine.connect({"nqn": OTHER, "transport": "tcp", "traddr": "10.12.0.5", "trsvcid": "4420"})
    machine.run({**BOTH, "reconnect_seconds": 3})
    machine.run({"nqn": DATA, "paths": [{"address": "10.11.0.5"}]})
    assert machine.connected == ["10.10.0.5", "10.11.0.5", "10.12.0.5"]
    machine.run(state="absent")
    assert machine.connected == ["10.10.0.5", "10.12.0.5"]
    assert (machine.root / "sys/class/nvme/nvme1/reconnect_delay").read_text() == "10\n"


def test_a_connection_by_another_name_of_this_host_is_not_the_declared_one(machine: Machine) -> None:
    theirs = {"nqn": DATA, "transport": "tcp", "traddr": "10.10.0.5", "trsvcid": "4420"}
    machine.connect({**theirs, "hostnqn": f"{PREFIX}{NUMBER}", "hostid": NUMBER})
    assert machine.run(ONE).status == "drifted"
    assert machine.connected == ["10.10.0.5"] * 2
    assert machine.run(ONE).changes == ()
    machine.run(state="absent")
    assert machine.connected == ["10.10.0.5"]
    assert (machine.root / "sys/class/nvme/nvme1/hostid").read_text().strip() == NUMBER


def test_our_connection_is_ended_also_where_the_host_got_another_name_since(machine: Machine) -> None:
    machine.run(ONE)
    machine.host.files.replace("/etc/nvme/hostnqn", f"{PREFIX}{NUMBER}\n")
    machine.host.files.replace("/etc/nvme/hostid", f"{NUMBER}\n")
    machine.run(state="absent")
    assert machine.connected == []


def test_a_connection_by_the_name_of_this_host_with_another_number_keeps_it_from_its_own(machine: Machine) -> None:
    theirs = {"nqn": DATA, "transport": "tcp", "traddr": "10.10.0.5", "trsvcid": "4420"}
    machine.connect({**theirs, "hostnqn": NQN, "hostid": NUMBER})
    with pytest.raises(Refused, match="the kernel returned Invalid argument"):
        machine.run(ONE)
    assert machine.connected == ["10.10.0.5"]


def test_what_is_not_declared_any_more_ends_but_not_the_last_way_to_a_disk_in_use(machine: Machine) -> None:
    machine.run(BOTH)
    machine.mount("nvme1n1")
    machine.run(ONE)
    assert machine.connected == ["10.10.0.5"]
    for declared, more in (({"nqn": OTHER, "paths": [{"address": "10.12.0.5"}]}, {}), (None, {"state": "absent"})):
        error = refusal(machine, *([declared] if declared else []), **more)
        assert isinstance(error, InUse)
        assert (
            f"Cannot end {DATA} over tcp 10.10.0.5:4420: it is the last path to what is in use: /data (nvme1n1)"
            in str(error)
        )
    # A path that is lost leads nowhere.
    machine.run(BOTH)
    machine.lose("nvme2")
    assert isinstance(refusal(machine, {"nqn": DATA, "paths": [{"address": "10.11.0.5"}]}), InUse)


@pytest.mark.parametrize(
    ("files", "nqn", "number"),
    [
        ({}, NQN, UUID),
        ({"/etc/nvme/hostnqn": "nqn.1988-11.com.example:h1\n", "/etc/nvme/hostid": f"{NUMBER}\n"}, None, None),
        ({"/etc/nvme/hostnqn": f"{PREFIX}{NUMBER}\n"}, f"{PREFIX}{NUMBER}", NUMBER),
        ({"/etc/nvme/hostnqn": "nqn.1988-11.com.example:h1\n"}, "nqn.1988-11.com.example:h1", UUID),
        ({"/etc/nvme/hostid": f"{NUMBER}\n"}, f"{PREFIX}{NUMBER}", NUMBER),
    ],
    ids=["neither", "both", "name-of-uuid", "name", "number"],
)
def test_the_identity_that_is_there_stays_and_what_is_missing_fits_it(
    tmp_path: Path, files: Mapping[str, str], nqn: Any, number: Any
) -> None:
    machine = Machine(tmp_path, files)
    machine.run(ONE)
    for path, wanted in (("/etc/nvme/hostnqn", nqn), ("/etc/nvme/hostid", number)):
        assert machine.host.files.read(path) == files.get(path, f"{wanted}\n")
    machine.run(state="absent")
    for path in ("/etc/nvme/hostnqn", "/etc/nvme/hostid"):
        assert machine.host.files.read_optional(path) == files.get(path)


def test_the_identity_is_told_because_no_other_node_may_have_it(machine: Machine) -> None:
    def told(**more: Any) -> Any:
        result = assess_node({"nvme_of": more}, machine.host, validate=validated, full=False)["concerns"]["nvme_of"]
        return result["status"], result["unique"]

    declared = {"subsystems": [ONE]}
    identity = {"host NQN": NQN, "host ID": UUID}
    # What it would be counts too: the UUIDs of machines are not always unique either.
    assert told(**declared) == ("drifted", identity)
    machine.run(ONE)
    assert told(**declared) == ("in_sync", identity)
    assert told(state="absent")[1] == {}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/nvme/hostnqn", f"{NQN},hostid={NUMBER}\n"),
        ("/etc/nvme/hostnqn", f'{NQN}" >/etc/passwd; "\n'),
        ("/etc/nvme/hostnqn", "nqn.2024-01.com.example:100%n\n"),
        ("/etc/nvme/hostnqn", f"nqn.2024-01.com.example:{'x' * 220}\n"),
        ("/etc/nvme/hostnqn", "\x00\x00\x00\x00\n"),
        ("/etc/nvme/hostid", "bb\n"),
    ],
    ids=["two-options", "quote", "percent", "long", "zeros", "number"],
)
def test_a_damaged_identity_is_refused_by_its_file_and_is_not_in_the_way_of_absent(
    machine: Machine, path: str, text: str
) -> None:
    machine.run(ONE)
    machine.host.files.store(path, text)
    error = refusal(machine, BOTH)
    assert isinstance(error, DeclarationError)
    assert f"{path} does not hold" in str(error)
    assert "\x00" not in str(error)
    machine.run(state="absent")
    assert machine.connected == []


def test_of_a_file_of_the_identity_all_tools_read_the_first_line(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"/etc/nvme/hostnqn": f"{PREFIX}{NUMBER}\n{NQN}\n", "/etc/nvme/hostid": f"{NUMBER}\n"})
    machine.run(ONE)
    assert f"hostnqn={PREFIX}{NUMBER},hostid={NUMBER}" in machine.host.files.read(UNIT)
    assert machine.host.files.read("/etc/nvme/hostnqn") == f"{PREFIX}{NUMBER}\n{NQN}\n"


def test_an_address_is_the_same_however_it_is_written(machine: Machine) -> None:
    machine.connect({"nqn": DATA, "transport": "tcp", "traddr": "fd00:0:0::5", "trsvcid": "4420"})
    assert machine.run({"nqn": DATA, "paths": [{"address": "FD00::5"}]}).remaining.status == "in_sync"
    assert machine.connected == ["fd00:0:0::5"]


def test_of_two_connections_to_one_place_the_living_one_counts(machine: Machine) -> None:
    machine.run(ONE)
    machine.connect({"nqn": DATA, "transport": "tcp", "traddr": "10.10.0.5", "trsvcid": "4420"})
    for lost in ("nvme2", "nvme1"):
        machine.lose(lost)
        assert machine.run(ONE).status == ("in_sync" if lost == "nvme2" else "pending")


def test_how_long_the_kernel_tries_is_a_number_of_attempts_and_no_drift_where_it_rounds_up(machine: Machine) -> None:
    declared = {**ONE, "reconnect_seconds": 7, "loss_seconds": 600}
    machine.run(declared)
    assert (machine.root / "sys/class/nvme/nvme1/ctrl_loss_tmo").read_text() == "602\n"
    assert not machine.run(declared).changes
    machine.run({**ONE, "reconnect_seconds": 5, "loss_seconds": 600})
    assert (machine.root / "sys/class/nvme/nvme1/ctrl_loss_tmo").read_text().strip() == "600"


def test_how_long_it_waits_between_attempts_does_not_change_how_long_it_tries(machine: Machine) -> None:
    machine.connect({"nqn": DATA, "transport": "tcp", "traddr": "10.10.0.5", "trsvcid": "4420"})
    shown = machine.root / "sys/class/nvme/nvme1/ctrl_loss_tmo"
    for delay, loss in ((5, "600"), (7, "602")):
        outcome = machine.run({**ONE, "reconnect_seconds": delay})
        assert (shown.read_text().strip(), outcome.remaining.status) == (loss, "in_sync")
        assert not machine.run({**ONE, "reconnect_seconds": delay}).changes
    machine.run(state="absent")
    assert shown.read_text().strip() == "600"


def test_without_multipath_another_connection_is_no_way_to_a_disk(machine: Machine) -> None:
    machine.multipath = False
    machine.run(BOTH)
    machine.mount("nvme1n1")
    error = refusal(machine, {"nqn": DATA, "paths": [{"address": "10.11.0.5"}]})
    assert "it is the last path to what is in use: /data (nvme1n1)" in str(error)
    machine.run(ONE)
    assert machine.connected == ["10.10.0.5"]


def test_a_mount_waits_in_check_mode_for_the_disk_that_is_about_to_be_connected() -> None:
    missing = {"status": "unknown", "failure": {"code": "no_disk"}}
    results: Mapping[str, Mapping[str, Any]] = {"nvme_of": {"status": "drifted"}, "filesystems": missing}
    assert waiting(results) == ["filesystems"]
    assert waiting({**results, "nvme_of": {"status": "in_sync"}}) == []
    order = [entry.name for entry in in_order(REGISTRY)]
    assert order.index("nvme_of") < order.index("filesystems")
    assert order.index("nvme_of") < order.index("nvme_scheduler")


def test_a_process_that_has_the_disk_open_uses_it(machine: Machine) -> None:
    machine.run(ONE)
    process = machine.root / "proc/4711"
    (process / "fd").mkdir(parents=True)
    (process / "comm").write_text("postgres\n")
    (process / "fd/3").symlink_to("/dev/nvme1n1")
    error = refusal(machine, state="absent")
    assert "it is the last path to what is in use: postgres (nvme1n1, pid 4711)" in str(error)
    (process / "fd/3").unlink()
    machine.run(state="absent")
    assert machine.connected == []


@pytest.mark.parametrize("uuid", ["", "00000000-0000-0000-0000-000000000000\n", "Not Settable\n"])
def test_a_machine_without_a_number_needs_a_name_first(tmp_path: Path, uuid: str) -> None:
    machine = Machine(tmp_path, {"/sys/class/dmi/id/product_uuid": uuid})
    assert "the machine has no UUID to make them of" in str(refusal(machine, ONE))


def test_a_policy_that_this_kernel_does_not_have_is_refused_by_it_and_named(machine: Machine) -> None:
    with pytest.raises(Refused, match=r"policy; queue-depth needs Linux 6\.11"):
        machine.run({**BOTH, "io_policy": "queue-depth"})
    assert machine.connected == ["10.10.0.5", "10.11.0.5"]


def test_without_multipath_a_policy_is_unmanaged(machine: Machine) -> None:
    machine.run(ONE)
    subsystem = machine.subsystem(DATA)
    assert subsystem is not None
    (subsystem / "iopolicy").unlink()
    outcome = machine.run({**ONE, "io_policy": "numa"})
    assert [entry.reason for entry in outcome.remaining.unmanaged] == [
        "native multipath of NVMe is off, so there is no choice of paths"
    ]
