# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Discovery controllers: what they tell of, what of it is connected and ends, and what happens without an answer."""

from __future__ import annotations

import struct
from base64 import b64decode
from pathlib import Path
from typing import Any, Dict, List, Mapping

import pytest
from ansible_collections.gpufleet.node.node.boot import boot
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    DeclarationError,
    GpuFleetError,
    InUse,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import EXEC_START, PROGRAM
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_of import log_page
from ansible_collections.gpufleet.node.tests.unit.concerns.nvme_of.nvme_of_machine import (
    DATA,
    DISCOVERY,
    LATER,
    OTHER,
    REFERRAL,
    RULES,
    UNIT,
    Machine,
    entry,
)

TELLER = "10.10.0.9"
ONE: Mapping[str, Any] = {"address": TELLER}
RECORDING = Path(__file__).parent / "discovery_log_linux_6.12.b64"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path, program=True)
    machine.tells = {TELLER: [entry(nqn=DATA), entry(nqn=DATA, address="10.11.0.5"), entry(nqn=OTHER)]}
    return machine


def discover(machine: Machine, *discovery: Mapping[str, Any], **more: Any) -> Any:
    return machine.run(*more.pop("subsystems", ()), discovery=[dict(one) for one in discovery or (ONE,)], **more)


def connections(machine: Machine) -> List[str]:
    """What is connected, but for discovery controllers."""
    found = []
    for folder in (machine.root / "sys/class/nvme").glob("nvme[1-9]*"):
        words = dict(word.partition("=")[::2] for word in (folder / "address").read_text().strip().split(","))
        if (folder / "cntrltype").read_text() != "discovery\n":
            nqn = (folder / "subsysnqn").read_text().strip().rpartition(":")[2]
            found.append(f"{nqn} {words['traddr']}")
    return sorted(found)


def controller_of(machine: Machine, address: str) -> Path:
    folders = (machine.root / "sys/class/nvme").glob("nvme[1-9]*")
    return next(folder for folder in folders if f"traddr={address}," in (folder / "address").read_text())


def refusal(machine: Machine, *discovery: Mapping[str, Any], **more: Any) -> GpuFleetError:
    machine.host.files.log.clear()
    with pytest.raises(GpuFleetError) as caught:
        discover(machine, *discovery, **more)
    assert machine.host.files.log == []
    return caught.value


@pytest.mark.parametrize(
    ("discovery", "cause"),
    [
        ([{"address": "storage1"}], "it is not an IP address"),
        ([{"address": TELLER, "port": 0}], "it is not a port"),
        ([ONE, {"address": TELLER}], f"{TELLER}:8009 is declared twice"),
        ([{**ONE, "io_queues": 0}], "it must be from 1 to 65535"),
        ([{**ONE, "match": {"serial": "x"}}], "serial"),
        ([{**ONE, "match": {"nqn": [{}]}}], "discovery[0]"),
        ([{**ONE, "host_address": "fd00::7"}], f"one of it and {TELLER} is IPv6"),
        ([{**ONE, "host_address": "rail0"}], "it is not an IP address"),
        ([{**ONE, "host_interface": "ens1,hostid=1"}], "it is not the name of an interface"),
        ([{**ONE, "host_interface": "ens1", "transport": "rdma"}], "the kernel takes none for rdma"),
    ],
)
def test_what_no_machine_could_have_is_refused_with_the_reason(
    machine: Machine, discovery: List[Mapping[str, Any]], cause: str
) -> None:
    error = refusal(machine, *discovery)
    assert isinstance(error, DeclarationError)
    assert cause in str(error)


def test_an_interface_that_the_machine_does_not_have_is_refused(machine: Machine) -> None:
    assert "this machine has no interface ens9" in str(refusal(machine, {**ONE, "host_interface": "ens9"}))


def test_without_the_program_that_asks_at_boot_nothing_is_declared(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with pytest.raises(Refused, match=r"is not installed\. Run the role node_tools first, or set permanent: false"):
        discover(machine)
    assert (machine.connected, machine.host.files.read_optional(UNIT)) == ([], None)
    discover(machine, permanent=False)
    assert machine.connected == [TELLER]


def test_a_node_on_which_the_program_is_gone_is_drifted_at_the_next_boot(machine: Machine) -> None:
    discover(machine)
    machine.host.files.remove(PROGRAM)
    outcome = discover(machine, check_mode=True)
    drifted = [setting for setting in outcome.remaining.settings if setting.status == "drifted"]
    assert [(setting.object, setting.effective, setting.boot) for setting in drifted] == [
        (f"discovery controller over tcp {TELLER}:8009", "connected", None)
    ]
    with pytest.raises(Refused, match="is not installed"):
        discover(machine)


def test_a_log_of_linux_is_read_as_it_was_written() -> None:
    found = [
        (one.kind, one.transport, one.address, one.port, one.nqn, one.secure, one.duplicate)
        for one in log_page.entries_of(b64decode(RECORDING.read_text()))
    ]
    assert found == [
        (3, "tcp", "127.0.0.1", "4420", DISCOVERY, False, False),
        (2, "tcp", "127.0.0.1", "4420", DATA, False, False),
        (1, "tcp", "127.0.0.2", "4420", DISCOVERY, False, False),
    ]


def test_the_program_that_reads_a_log_is_python_and_has_the_size_of_the_command_of_the_kernel() -> None:
    compile(log_page.SCRIPT, "log", "exec")
    form = log_page.SCRIPT.split('"<BB')[1].split('"')[0]
    # sizeof(struct nvme_passthru_cmd), which is in the number of the ioctl as well.
    assert struct.calcsize(f"<BB{form}") == 72 == 0xC0484E41 >> 16 & 0x3FFF


def test_what_it_tells_of_is_connected_in_the_first_run_with_what_is_declared_and_a_second_changes_nothing(
    machine: Machine,
) -> None:
    declared = {**ONE, "io_queues": 2, "reconnect_seconds": 7, "io_policy": "round-robin"}
    outcome = discover(machine, declared)
    assert connections(machine) == ["data 10.10.0.5", "data 10.11.0.5", "other 10.10.0.5"]
    assert {machine.policy(DATA), machine.policy(OTHER)} == {"round-robin"}
    assert (controller_of(machine, "10.11.0.5") / "queue_count").read_text() == "3\n"
    # Each is a change, and was none that check mode could have known of.
    made = [change.object for change in outcome.changes if change.setting == "connection"]
    assert made == [
        f"discovery controller over tcp {TELLER}:8009",
        f"{DATA} over tcp 10.10.0.5:4420",
        f"{DATA} over tcp 10.11.0.5:4420",
        f"{OTHER} over tcp 10.10.0.5:4420",
    ]
    assert [line for line in machine.host.journal_lines if f"{OTHER} over tcp 10.10.0.5:4420 connection" in line]
    told = outcome.effective["discovery"][f"discovery controller over tcp {TELLER}:8009"]
    assert [(one["nqn"], one["address"]) for one in told["tells_of"]][1:] == [
        (DATA, "10.10.0.5"),
        (DATA, "10.11.0.5"),
        (OTHER, "10.10.0.5"),
    ]
    again = discover(machine, declared)
    assert (again.changes, again.status, again.remaining.status) == ((), "in_sync", "in_sync")


def test_only_what_matches_is_connected(machine: Machine) -> None:
    discover(machine, {**ONE, "match": {"nqn": "*:data", "address": ["10.11.*", "10.12.*"]}})
    assert connections(machine) == ["data 10.11.0.5"]


def test_what_is_declared_as_well_is_one_connection_with_the_values_from_there(machine: Machine) -> None:
    far = {"nqn": DATA, "paths": [{"address": "10.10.0.5"}], "reconnect_seconds": 3, "io_policy": "numa"}
    discover(machine, {**ONE, "reconnect_seconds": 9, "io_policy": "round-robin"}, subsystems=[far])
    assert connections(machine) == ["data 10.10.0.5", "data 10.11.0.5", "other 10.10.0.5"]
    # Over a path of which it was told only, too.
    assert (controller_of(machine, "10.11.0.5") / "reconnect_delay").read_text() == "3\n"
    assert (machine.policy(DATA), machine.policy(OTHER)) == ("numa", "round-robin")


def test_the_first_that_tells_of_it_decides_how(machine: Machine) -> None:
    machine.tells["10.11.0.9"] = [entry(nqn=DATA)]
    discover(machine, {**ONE, "reconnect_seconds": 9}, {"address": "10.11.0.9", "reconnect_seconds": 4})
    assert (controller_of(machine, "10.10.0.5") / "reconnect_delay").read_text() == "9\n"


def test_it_goes_by_the_way_of_the_discovery_controller_that_tells_of_it(machine: Machine) -> None:
    (machine.root / "sys/class/net/ens1").mkdir(parents=True)
    machine.tells = {TELLER: [entry(nqn=DATA), entry(nqn=OTHER, address="fd00::5")]}
    discover(machine, {**ONE, "host_address": "10.10.0.7", "host_interface": "ens1"})
    shown = [path.read_text() for path in (machine.root / "sys/class/nvme").glob("nvme[1-9]*/address")]
    assert sorted(text.partition(",src")[0] for text in shown) == [
        "traddr=10.10.0.5,trsvcid=4420,host_traddr=10.10.0.7,host_iface=ens1",
        "traddr=10.10.0.9,trsvcid=8009,host_traddr=10.10.0.7,host_iface=ens1",
        # An address of the other kind is none to come from.
        "traddr=fd00::5,trsvcid=4420,host_iface=ens1",
    ]
    assert not discover(machine, {**ONE, "host_address": "10.10.0.7", "host_interface": "ens1"}).changes


def test_a_referral_is_followed_and_one_that_leads_back_ends(machine: Machine) -> None:
    machine.tells = {
        TELLER: [entry(REFERRAL, address="10.11.0.9", port="8009"), entry(REFERRAL, address="10.9.0.9", flags=1)],
        "10.11.0.9": [entry(nqn=DATA), entry(REFERRAL, address=TELLER, port="8009")],
    }
    discover(machine)
    assert machine.connected == ["10.10.0.5", TELLER, "10.11.0.9"]
    assert not discover(machine).changes
    machine.tells[TELLER] = []
    discover(machine)
    assert machine.connected == [TELLER]


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (entry(nqn=OTHER, transport=2), "its transport is fc"),
        (entry(nqn=OTHER, transport=9), "its transport is type 9"),
        (entry(nqn=OTHER, treq=1), "it requires TLS, which is not managed"),
        (entry(nqn=f'{OTHER}" >/etc/passwd'), "it is neither a name and an address"),
        (entry(nqn=OTHER, address="10.0.0.5,hostid=1"), "it is neither a name and an address"),
        (entry(nqn=OTHER, port="4420,tls"), "it is neither a name and an address"),
        (entry(nqn=f"{OTHER}\n.x"), "an entry: it is neither"),
        (entry(REFERRAL, transport=2), "its transport is fc"),
        (entry(nqn=OTHER, transport=1), "this kernel has no nvme-rdma"),
    ],
    ids=["fc", "unknown", "tls", "shell", "option", "port", "control", "referral", "module"],
)
def test_what_cannot_be_connected_is_named_and_the_rest_is_connected(machine: Machine, odd: bytes, reason: str) -> None:
    machine.tells = {TELLER: [odd, entry(nqn=DATA)]}
    outcome = discover(machine)
    assert connections(machine) == ["data 10.10.0.5"]
    (named,) = outcome.remaining.unmanaged
    assert reason in named.reason
    assert named.setting == "discovered"
    error = refusal(machine, strict=True)
    assert isinstance(error, DeclarationError)
    assert reason in str(error)


def test_what_it_tells_of_later_is_connected_by_the_unit_that_the_event_starts(machine: Machine) -> None:
    discover(machine)
    rules = machine.host.files.read(RULES)
    assert 'ENV{NVME_AEN}=="0x70f002", RUN+="/bin/systemctl --no-block start gpufleet-nvme-discovery.service"' in rules
    assert 'ENV{NVME_EVENT}=="connected|rediscover", ATTR{cntrltype}=="discovery", RUN+=' in rules
    unit = machine.host.files.read(LATER)
    assert f"ExecStart={EXEC_START} boot --concern nvme_of --again 2 --timeout 240\n" in unit
    machine.tells[TELLER].append(entry(nqn=OTHER, address="10.12.0.5"))
    # As the unit does.
    assert boot(machine.host, concerns=["nvme_of"]) == 0
    assert connections(machine)[-1] == "other 10.12.0.5"
    machine.run(state="absent")
    assert machine.connected == []


def test_the_next_boot_asks_them_before_anything_is_mounted_and_the_boot_service_does_not(machine: Machine) -> None:
    discover(machine, {**ONE, "host_address": "10.10.0.7"})
    unit = machine.host.files.read(UNIT)
    words = f"nqn={DISCOVERY},transport=tcp,traddr={TELLER},trsvcid=8009,host_traddr=10.10.0.7,hostnqn="
    assert words in unit
    assert ',keep_alive_tmo=30,ctrl_loss_tmo=-1"' in unit
    assert "Before=remote-fs-pre.target\n" in unit
    lines = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert lines[-1] == f"ExecStart=-{EXEC_START} boot --concern nvme_of --timeout 120"
    # What it tells of is no line: the target may tell of something else by then.
    assert DATA not in unit
    machine.tells[TELLER].append(entry(nqn=OTHER, address="10.12.0.5"))
    assert boot(machine.host) == 0
    assert "other 10.12.0.5" not in connections(machine)


def test_what_it_does_not_tell_of_any_more_ends_unless_it_is_in_use(machine: Machine) -> None:
    discover(machine)
    disk = next(path.name for path in (machine.subsystem(DATA) or machine.root).glob("nvme*n1"))
    machine.mount(disk)
    machine.tells[TELLER] = [entry(nqn=DATA)]
    outcome = discover(machine)
    # Of what is in use every path stays.
    assert connections(machine) == ["data 10.10.0.5", "data 10.11.0.5"]
    (named,) = outcome.remaining.unmanaged
    assert named.object == f"{DATA} over tcp 10.11.0.5:4420"
    assert f"stays connected while it is in use by: /data ({disk})" in named.reason
    assert discover(machine, strict=True).remaining.status == "in_sync"
    machine.host.files.store("/proc/self/mountinfo", "")
    discover(machine)
    assert connections(machine) == ["data 10.10.0.5"]


def test_what_others_have_connected_stays_when_it_is_not_told_of_any_more(machine: Machine) -> None:
    machine.connect({"nqn": DATA, "transport": "tcp", "traddr": "10.10.0.5", "trsvcid": "4420"})
    discover(machine, {**ONE, "reconnect_seconds": 3})
    assert (controller_of(machine, "10.10.0.5") / "reconnect_delay").read_text() == "3\n"
    machine.tells[TELLER] = []
    discover(machine)
    assert connections(machine) == ["data 10.10.0.5"]


def test_a_discovery_controller_that_is_lost_is_pending_and_nothing_ends_meanwhile(machine: Machine) -> None:
    discover(machine)
    (controller_of(machine, TELLER) / "state").write_text("connecting\n")
    machine.asked.clear()
    outcome = discover(machine)
    assert (outcome.changes, outcome.status, outcome.remaining.needs) == ((), "pending", ("target",))
    # One that the kernel cannot reach is not asked: it would have to be waited for.
    assert machine.asked == []
    assert connections(machine) == ["data 10.10.0.5", "data 10.11.0.5", "other 10.10.0.5"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Completed(124, "", ""), "it did not respond within 10 seconds"),
        (Completed(1, "", "OSError: [Errno 4] Interrupted system call\n"), "Interrupted system call"),
        (Completed(1, "", "it returned the status 0x2\n"), "it returned the status 0x2"),
        (Completed(0, "AwEDBA==", ""), "its log cannot be read"),
        (Completed(0, "A", ""), "its log cannot be read"),
    ],
    ids=["hangs", "lost", "refused", "short", "garbled"],
)
def test_a_log_that_cannot_be_read_is_pending_with_the_reason_and_nothing_ends(
    machine: Machine, answer: Completed, reason: str
) -> None:
    discover(machine)
    machine.tells[TELLER] = answer
    outcome = discover(machine)
    assert (outcome.changes, outcome.status, outcome.remaining.needs) == ((), "pending", ("target",))
    assert reason in outcome.as_dict()["pending_reasons"][0]
    assert reason in outcome.effective["discovery"][f"discovery controller over tcp {TELLER}:8009"]["error"]
    assert connections(machine) == ["data 10.10.0.5", "data 10.11.0.5", "other 10.10.0.5"]


def test_a_target_that_is_told_of_and_does_not_answer_does_not_keep_the_others_from_being_connected(
    machine: Machine,
) -> None:
    machine.dead = ["10.11.0.5"]
    with pytest.raises(Refused, match=r"10\.11\.0\.5:4420: the kernel returned Connection refused"):
        discover(machine)
    assert connections(machine) == ["data 10.10.0.5", "other 10.10.0.5"]
    machine.run(state="absent")
    assert machine.connected == []


def test_a_discovery_controller_that_does_not_answer_is_refused_by_name(machine: Machine) -> None:
    machine.dead = [TELLER]
    with pytest.raises(Refused, match=rf"Cannot connect to discovery controller over tcp {TELLER}:8009"):
        discover(machine)


def test_that_of_others_is_asked_and_stays_also_under_a_name_of_its_own(machine: Machine) -> None:
    words: Dict[str, str] = {"nqn": DISCOVERY, "transport": "tcp", "traddr": TELLER, "trsvcid": "8009"}
    machine.connect({**words, "unique": "nqn.2024-01.com.example:discovery"})
    outcome = discover(machine)
    assert not [change for change in outcome.changes if TELLER in change.object]
    assert connections(machine) == ["data 10.10.0.5", "data 10.11.0.5", "other 10.10.0.5"]
    machine.run(state="absent")
    assert machine.connected == [TELLER]


def test_with_the_declaration_all_ends_that_came_of_it_but_not_the_last_way_to_a_disk_in_use(
    machine: Machine,
) -> None:
    discover(machine)
    disk = next(path.name for path in (machine.subsystem(DATA) or machine.root).glob("nvme*n1"))
    before = machine.host.files.read("/proc/self/mountinfo")
    machine.mount(disk)
    declared = {"nqn": "nqn.2024-01.com.example:third", "paths": [{"address": "10.13.0.5"}]}
    for more in ({"subsystems": [declared]}, {"state": "absent"}):
        machine.host.files.log.clear()
        with pytest.raises(InUse, match=rf"it is the last path to what is in use: /data \({disk}\)"):
            machine.run(**more) if "state" in more else machine.run(declared)
        assert machine.host.files.log == []
    machine.host.files.store("/proc/self/mountinfo", before)
    machine.run(declared)
    assert machine.connected == ["10.13.0.5"]
    assert [machine.host.files.read_optional(path) for path in (RULES, LATER)] == [None, None]
    assert DISCOVERY not in machine.host.files.read(UNIT)


def test_a_path_goes_from_the_address_and_over_the_interface_that_are_declared(machine: Machine) -> None:
    for name in ("ens1", "ens2"):
        (machine.root / "sys/class/net" / name).mkdir(parents=True)
    paths = [{"address": "10.10.0.5", "host_interface": name} for name in ("ens1", "ens2")]
    declared = {"nqn": DATA, "paths": [*paths, {"address": "10.10.0.5", "host_address": "10.10.0.7"}]}
    machine.run(declared)
    shown = [path.read_text() for path in (machine.root / "sys/class/nvme").glob("nvme[1-9]*/address")]
    assert sorted(text.split(",")[2] for text in shown) == [
        "host_iface=ens1",
        "host_iface=ens2",
        "host_traddr=10.10.0.7",
    ]
    assert not machine.run(declared).changes
    machine.run({"nqn": DATA, "paths": paths[1:]})
    assert [
        path.read_text().split(",")[2] for path in (machine.root / "sys/class/nvme").glob("nvme[1-9]*/address")
    ] == ["host_iface=ens2"]
    machine.run(state="absent")
    assert machine.connected == []


def test_where_it_is_left_open_any_way_to_the_place_counts(machine: Machine) -> None:
    words = {"nqn": DATA, "transport": "tcp", "traddr": "10.10.0.5", "trsvcid": "4420", "host_traddr": "10.10.0.7"}
    machine.connect(words)
    assert machine.run({"nqn": DATA, "paths": [{"address": "10.10.0.5"}], "reconnect_seconds": 3}).status == "drifted"
    assert connections(machine) == ["data 10.10.0.5"]
    assert (controller_of(machine, "10.10.0.5") / "reconnect_delay").read_text() == "3\n"
    machine.run(state="absent")
    assert (controller_of(machine, "10.10.0.5") / "reconnect_delay").read_text() == "10\n"


def test_who_discovers_nothing_starts_no_program(machine: Machine) -> None:
    declared = {"nqn": DATA, "paths": [{"address": "10.10.0.5"}]}
    machine.run(declared)
    machine.host.commands.calls.clear()
    machine.host.files.reads.clear()
    assert machine.run(declared).status == "in_sync"
    assert machine.host.commands.calls == []
    assert not {RULES, LATER} & set(machine.host.files.reads)
