# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is its own of ``slurm_gpus``. The contract of all concerns is in tests/unit/contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    GpuFleetError,
    InUse,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace
from ansible_collections.gpufleet.node.plugins.module_utils._machine import processes
from ansible_collections.gpufleet.node.plugins.module_utils._text.slurm_conf import counts_of
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_gpus.gres_conf import BLOCK
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_gpus.plan import ELSEWHERE
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_gpus.spec import parse
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_gpus.state import NOTE
from ansible_collections.gpufleet.node.tests.unit.concerns.slurm_gpus.gres_recordings import (
    ENDED,
    LARGE,
    REGISTERED,
    TOO_FEW,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.slurm_gpus.slurm_gpus_machine import (
    ADDRESSES,
    CGROUP_CONF,
    GRES_CONF,
    GRES_TEXT,
    NODE,
    PID,
    SLURM_CONF,
    SLURM_TEXT,
    SlurmMachine,
    gpu,
)
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

H100 = {"types": [{"type": "h100"}]}
# C0, DEL, C1 and what ends a line elsewhere.
CONTROLS = [*map(chr, (*range(1, 32), *range(127, 160))), "\u2028", "\u2029"]
SEVEN = ("1g.10gb",) * 7


@pytest.fixture
def machine(tmp_path: Path) -> SlurmMachine:
    return SlurmMachine(tmp_path)


def record(machine: SlurmMachine, gres: str, lines: str) -> None:
    """The machine after both daemons have started with these."""
    machine.edit(SLURM_CONF, "gpu:old:1,nic:4", gres)
    machine.write(GRES_CONF, f"AutoDetect=off\n{lines}")
    machine.daemons.update(flags=(), reason="")
    machine.stop_slurmd()
    machine.restart("slurmctld", "slurmd")


def test_a_new_node_gets_its_gpus_and_slurmctld_has_them(machine: SlurmMachine) -> None:
    outcome = machine.run(**H100)
    assert machine.lines() == [
        "Name=nic Count=4",
        "NodeName=x1 Name=gpu Count=1",
        "AutoDetect=off",
        "Name=gpu File=/dev/nvidia0 Type=h100 Cores=0-1",
        "Name=gpu File=/dev/nvidia1 Type=h100 Cores=2-3",
    ]
    assert machine.read(SLURM_CONF) == "GresTypes=gpu,nic\n" + SLURM_TEXT.replace(
        "Gres=gpu:old:1,nic:4", "Gres=gpu:h100:2,nic:4"
    )
    assert machine.read(CGROUP_CONF).endswith("\nConstrainDevices=yes\n")
    assert (machine.state, machine.daemons["gres"]) == ("IDLE", "gpu:h100:2,nic:4")
    assert machine.restarts == ["slurmctld.service", "slurmd.service"]
    assert outcome.effective == {"node": NODE, "slurmd": "running", "state": "IDLE", "gres": "gpu:h100:2(S:0-1),nic:4"}
    again = machine.run(**H100)
    assert (again.status, again.changes, len(machine.restarts)) == ("in_sync", (), 2)


@pytest.mark.parametrize("lost", [BLOCK.begin, BLOCK.end])
def test_gpus_are_not_counted_twice_where_a_comment_of_our_lines_is_gone(machine: SlurmMachine, lost: str) -> None:
    machine.run(**H100)
    text = machine.read(GRES_CONF)
    kept = [line for line in text.splitlines(keepends=True) if not line.startswith(lost)]
    machine.write(GRES_CONF, "".join(kept))
    line = next(number for number, one in enumerate(kept, 1) if one.startswith((BLOCK.begin, BLOCK.end)))
    before = (snapshot(machine.root), machine.restarts)
    for declaration in (H100, {"types": [{"type": "other"}]}, {"state": "absent"}):
        with pytest.raises(CannotLook, match=f"Cannot parse {GRES_CONF}: line {line} (begins|ends) the lines of"):
            machine.run(**declaration)
        assert (snapshot(machine.root), machine.restarts) == before
    machine.write(GRES_CONF, text)
    machine.run(state="absent")
    assert machine.read(GRES_CONF) == GRES_TEXT


def test_an_own_type_is_the_name_that_slurm_itself_gives_the_model(machine: SlurmMachine) -> None:
    machine.run()
    assert machine.daemons["gres"] == "gpu:nvidia_h100_80gb_hbm3:2,nic:4"


def test_a_new_layout_ends_with_an_idle_node_that_has_its_instances(machine: SlurmMachine) -> None:
    machine.run(**H100)
    machine.divide(0, *SEVEN)
    machine.run(**H100)
    assert machine.lines()[3] == (
        "Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap10,/dev/nvidia-caps/nvidia-cap11 "
        "Type=h100_1g.10gb Cores=0-1"
    )
    assert (machine.state, machine.daemons["gres"]) == ("IDLE", "gpu:h100_1g.10gb:7,gpu:h100:1,nic:4")
    machine.divide(0)
    machine.run(**H100)
    assert (machine.state, machine.daemons["gres"]) == ("IDLE", "gpu:h100:2,nic:4")


def test_a_slurmd_that_others_restarted_first_is_drained_by_slurm_and_comes_back(machine: SlurmMachine) -> None:
    """As after a layout whose consumers were notified before gres.conf was written."""
    machine.run(**H100)
    machine.edit(GRES_CONF, "Name=gpu File=/dev/nvidia1 Type=h100 Cores=2-3\n", "")
    machine.restart("slurmd")
    assert machine.state == "IDLE+DRAIN+INVALID_REG"
    look = machine.run(check_mode=True, **H100)
    assert [(change.setting, change.after) for change in look.changes if change.object == NODE] == [
        ("registration", "valid"),
        ("drained by Slurm", None),
    ]
    outcome = machine.run(**H100)
    assert (outcome.effective["state"], machine.daemons["reason"]) == ("IDLE", "")


def test_a_drain_that_was_left_over_is_ended(machine: SlurmMachine) -> None:
    """An administrator corrected the file, and slurmd registers all: slurmctld never ends the drain itself."""
    machine.run(**H100)
    machine.daemons.update(flags=("DRAIN",), reason="gres/gpu count reported lower than configured (1 < 2)")
    machine.run(**H100)
    assert machine.state == "IDLE"


@pytest.mark.parametrize("reason", ["bad DIMM", "gpufleet: new layout", "gres/gpu count reported lower, says Ann"])
def test_a_drain_of_anybody_else_stays(machine: SlurmMachine, reason: str) -> None:
    machine.daemons.update(flags=("DRAIN",), reason=reason)
    machine.run(**H100)
    assert (machine.state, machine.daemons["reason"]) == ("IDLE+DRAIN", reason)


def test_gpus_do_not_change_under_jobs(machine: SlurmMachine) -> None:
    machine.daemons["base"] = "MIXED"
    with pytest.raises(InUse, match="jobs are on it"):
        machine.run(**H100)
    assert (machine.read(GRES_CONF), machine.restarts) == (GRES_TEXT, [])
    machine.daemons["base"] = "IDLE"
    machine.run(constrain_devices=False, **H100)
    machine.daemons["base"] = "MIXED"
    # Which devices jobs may open is a matter of those that start later.
    machine.run(**H100)
    assert machine.restarts[2:] == ["slurmd.service"]


def test_a_job_that_is_suspended_leaves_a_node_idle_and_keeps_its_gpus(machine: SlurmMachine) -> None:
    machine.jobs = "77|SUSPENDED|ann|gpu|1:00:00\n"
    for check_mode in (True, False):
        with pytest.raises(InUse, match=r"found job 77 of ann \(suspended in gpu, 1:00:00 left\)"):
            machine.run(check_mode=check_mode, **H100)
    assert (machine.read(GRES_CONF), machine.restarts) == (GRES_TEXT, [])
    machine.jobs = ""
    machine.run(**H100)
    machine.jobs = "77|SUSPENDED|ann|gpu|1:00:00\n"
    assert machine.run(**H100).changes == ()
    with pytest.raises(InUse, match="job 77 of ann"):
        machine.run(state="absent")


def test_gpus_in_mig_mode_without_instances_are_none(machine: SlurmMachine) -> None:
    """Slurm takes no key without a value, and would read the next line into it."""
    machine.edit(SLURM_CONF, ",nic:4", "")
    machine.restart("slurmctld", "slurmd")
    without = machine.read(SLURM_CONF)
    machine.driver.gpus = tuple(replace(one, mig=True) for one in machine.driver.gpus)
    machine.run(**H100)
    assert machine.read(SLURM_CONF) == without.replace(" Gres=gpu:old:1", "")
    assert machine.run(**H100).changes == ()
    machine.run(state="absent")
    assert sorted(machine.read(SLURM_CONF).split()) == sorted(without.split())


@pytest.mark.parametrize("damaged", ["5", "[1]", '{"/etc/slurm/gres.conf": 5}', "null"])
def test_a_note_that_is_damaged_is_none(machine: SlurmMachine, damaged: str) -> None:
    machine.run(**H100)
    process = processes.read(machine.host.files, PID)
    assert process is not None
    machine.write(NOTE, f'{{"process": "{process.identity}", "texts": {damaged}}}')
    assert machine.run(**H100).changes == ()


def test_a_slurmctld_elsewhere_is_waited_for(tmp_path: Path) -> None:
    machine = SlurmMachine(tmp_path, controller=False)
    outcome = machine.run(**H100)
    assert (outcome.remaining.status, outcome.remaining.needs) == ("pending", ("restart_slurmctld",))
    assert machine.restarts == ["slurmd.service"]
    # What its host does once slurm.conf is there.
    machine.restart("slurmctld", "slurmd")
    outcome = machine.run(**H100)
    assert (outcome.status, outcome.remaining.needs) == ("in_sync", ())


def test_a_node_that_cannot_be_valid_before_slurmctld_has_the_count_waits_too(tmp_path: Path) -> None:
    machine = SlurmMachine(tmp_path, controller=False)
    machine.edit(SLURM_CONF, "gpu:old:1", "gpu:h100:3")
    machine.restart("slurmctld", "slurmd")
    outcome = machine.run(**H100)
    assert (machine.state, outcome.remaining.status) == ("IDLE+DRAIN+INVALID_REG", "pending")
    machine.restart("slurmctld", "slurmd")
    assert machine.state == "IDLE+DRAIN"
    machine.run(**H100)
    assert machine.state == "IDLE"


def test_a_slurmd_that_failed_is_started_and_one_that_is_stopped_is_left(machine: SlurmMachine) -> None:
    for name in ("stat", "cmdline"):
        machine.path(f"/proc/{PID}/{name}").unlink()
    outcome = machine.run(**H100)
    assert (outcome.remaining.status, machine.restarts) == ("in_sync", [])
    assert "Type=h100" in machine.read(GRES_CONF)
    machine.failed = True
    outcome = machine.run(**H100)
    assert [(change.object, change.setting) for change in outcome.changes] == [
        (NODE, "Gres"),
        ("slurmd.service", "service"),
    ]
    assert machine.restarts == ["slurmctld.service", "slurmd.service"]


def test_a_file_that_slurmd_has_not_read_is_not_in_effect(machine: SlurmMachine) -> None:
    machine.run(**H100)
    text = machine.read(GRES_CONF)
    stat = machine.read(f"/proc/{PID}/stat")
    # As if it had been written long after the start of slurmd.
    machine.write(f"/proc/{PID}/stat", stat.replace(stat.split()[-3], "100"))
    outcome = machine.run(check_mode=True, **H100)
    assert {change.before for change in outcome.changes} == {"an older version"}
    machine.run(**H100)
    assert (machine.restarts[-1], machine.read(GRES_CONF)) == ("slurmd.service", text)


def test_shards_and_mps_are_counted_for_each_gpu(machine: SlurmMachine) -> None:
    outcome = machine.run(shards=4, **H100)
    assert outcome.effective["gres"] == "gpu:h100:2(S:0-1),shard:h100:8(S:0-1),nic:4"
    again = machine.run(shards=4, **H100)
    assert (again.status, again.changes, len(machine.restarts)) == ("in_sync", (), 2)
    assert machine.lines()[-2:] == [
        "Name=shard File=/dev/nvidia0 Count=4",
        "Name=shard File=/dev/nvidia1 Count=4",
    ]
    assert machine.daemons["gres"] == "gpu:h100:2,shard:8,nic:4"
    machine.run(mps=100, **H100)
    assert (machine.state, machine.daemons["gres"]) == ("IDLE", "gpu:h100:2,mps:200,nic:4")
    assert (machine.run(mps=100, **H100).status, len(machine.restarts)) == ("in_sync", 4)


@pytest.mark.parametrize("character", CONTROLS)
def test_no_control_character_gets_into_a_file(machine: SlurmMachine, character: str) -> None:
    for text in (f"{character}a", f"a{character}b", f"a{character}"):
        for declaration in ({"folder": f"/{text}"}, {"node_name": text}, {"types": [{"type": text}]}):
            with pytest.raises(DeclarationError):
                parse(machine.params(**declaration))


def test_shares_of_gpus_of_two_types_are_one_count(machine: SlurmMachine) -> None:
    mixed = {"types": [{"match": {"index": 0}, "type": "h100"}, {"type": "a100"}]}
    outcome = machine.run(mps=100, cores=False, **mixed)
    assert machine.daemons["gres"] == "gpu:h100:1,gpu:a100:1,mps:200,nic:4"
    assert outcome.effective["gres"] == "gpu:h100:1,gpu:a100:1,mps:h100:100,mps:a100:100,nic:4"
    assert machine.run(mps=100, cores=False, **mixed).status == "in_sync"
    machine.edit(SLURM_CONF, "mps:200", "mps:100")
    machine.restart("slurmctld", "slurmd")
    look = machine.run(check_mode=True, mps=100, cores=False, **mixed)
    assert ("Gres", "effective") in {(change.setting, change.scope) for change in look.changes}
    machine.run(mps=100, cores=False, **mixed)
    assert machine.state == "IDLE"


@pytest.mark.parametrize(("gres", "lines", "shown"), [*REGISTERED, LARGE])
def test_slurmctld_has_what_slurm_conf_has_by_its_own_count(
    machine: SlurmMachine, gres: str, lines: str, shown: str
) -> None:
    """What the real daemons said is equal to what slurm.conf has, and is what the machine of the tests says."""
    assert counts_of(shown) == counts_of(gres)
    record(machine, gres, lines)
    assert (machine.shown, machine.state) == (shown, "IDLE")


@pytest.mark.parametrize("other", ["gpu:h100:2,shard:7", "gpu:h100:2,mps:8", "gpu:a100:2,shard:8", "gpu:h100:2", ""])
def test_other_counts_are_not_equal(other: str) -> None:
    assert counts_of("gpu:h100:2(S:0-1),shard:h100:4,shard:a100:4") != counts_of(other)
    assert counts_of("gpu:h100:2(S:0-1),shard:h100:4,shard:a100:4") == counts_of("shard:8,gpu:H100:2")


@pytest.mark.parametrize(("gres", "lines", "shown", "reason"), TOO_FEW)
def test_slurmctld_drains_a_node_with_too_few_as_recorded(
    machine: SlurmMachine, gres: str, lines: str, shown: str, reason: str
) -> None:
    record(machine, gres, lines)
    assert (machine.shown, machine.daemons["reason"]) == (shown, reason)
    assert machine.state == "IDLE+DRAIN+INVALID_REG"


@pytest.mark.parametrize(("gres", "lines", "words"), ENDED)
def test_slurmd_ends_without_its_shares_and_a_run_starts_it(
    machine: SlurmMachine, gres: str, lines: str, words: str
) -> None:
    record(machine, gres, lines)
    assert (machine.failed, machine.shown) == (True, gres)
    machine.run(shards=4, **H100)
    assert (machine.failed, machine.state) == (False, "IDLE")


def test_a_drain_for_a_type_that_slurmctld_has_from_its_own_slurm_conf_is_ended(tmp_path: Path) -> None:
    """Recorded: slurmctld with gpu:old:1 shows gpu:h100:2 of a slurmd with another slurm.conf, and calls it invalid."""
    machine = SlurmMachine(tmp_path, controller=False)
    machine.run(**H100)
    machine.restart("slurmctld", "slurmd")
    reason = "gres/gpu:old count too low (0 < 1)"
    machine.daemons.update(flags=("DRAIN", "INVALID_REG"), reason=reason)
    restarts = len(machine.restarts)
    outcome = machine.run(**H100)
    assert (outcome.remaining.status, len(machine.restarts)) == ("pending", restarts)
    assert ELSEWHERE in " ".join(outcome.remaining.pending_reasons)
    machine.restart("slurmctld", "slurmd")
    assert (machine.state, machine.daemons["reason"]) == ("IDLE+DRAIN", reason)
    machine.run(**H100)
    assert machine.state == "IDLE"


def test_links_are_those_to_other_gpus(machine: SlurmMachine) -> None:
    first, second = ADDRESSES
    machine.driver.gpus = (gpu(0, links={second: 4, "0000:99:00.0": 2}), gpu(1, links={first: 4}))
    machine.run(**H100)
    assert [line.rpartition(" ")[2] for line in machine.lines()[-2:]] == ["Links=-1,4", "Links=4,-1"]
    # To a switch they are to no GPU.
    machine.driver.gpus = (gpu(0, links={"0000:99:00.0": 18}), gpu(1, links={"0000:99:00.0": 18}))
    machine.run(**H100)
    assert "Links" not in machine.read(GRES_CONF)


def test_cores_are_left_out_where_slurm_has_other_sockets(machine: SlurmMachine) -> None:
    machine.edit(SLURM_CONF, "Sockets=2 CoresPerSocket=2", "CPUs=4")
    outcome = machine.run(**H100)
    assert "Cores=" not in machine.read(GRES_CONF)
    assert [entry.reason for entry in outcome.remaining.unmanaged] == [
        "slurm.conf must have Sockets=2 CoresPerSocket=2 for it, as slurmd -C prints"
    ]
    with pytest.raises(GpuFleetError, match="Sockets=2"):
        machine.run(strict=True, **H100)


def test_a_numa_node_is_a_socket_where_slurmd_is_told_so(machine: SlurmMachine) -> None:
    for number in range(4):
        machine.write(f"/sys/devices/system/node/node{number}/cpulist", f"{number}\n")
    machine.edit(SLURM_CONF, "Sockets=2 CoresPerSocket=2", "SocketsPerBoard=4 Boards=1 CoresPerSocket=1")
    machine.edit(SLURM_CONF, "ClusterName", "SlurmdParameters=numa_node_as_socket\nClusterName")
    machine.write(f"/sys/bus/pci/devices/{ADDRESSES[0]}/local_cpulist", "3\n")
    machine.run(**H100)
    assert [line.rpartition(" ")[2] for line in machine.lines()[-2:]] == ["Cores=3", "Cores=1,3"]


def test_slurm_detects_the_gpus_itself_where_it_was_built_for_it(machine: SlurmMachine) -> None:
    assert "built without NVML" in machine.refused(devices="nvml")
    machine.write("/usr/lib64/slurm/gpu_nvml.so", "")
    machine.run(devices="nvml", **H100)
    assert machine.lines()[2:] == ["AutoDetect=nvml"]
    assert (machine.state, machine.daemons["gres"]) == ("IDLE", "gpu:h100:2,nic:4")


@pytest.mark.parametrize("how", ["option", "fetched"])
def test_a_slurmd_without_files_of_its_own_is_not_managed(tmp_path: Path, how: str) -> None:
    machine = SlurmMachine(tmp_path)
    if how == "option":
        machine.write(f"/proc/{PID}/cmdline", "/usr/sbin/slurmd\0--conf-server=ctl:6817\0")
    else:
        machine.path(SLURM_CONF).rename(machine.path("/run") / "slurm.conf")
        machine.write("/run/slurm/conf/slurm.conf", SLURM_TEXT)
    outcome = machine.run(**H100)
    (entry,) = outcome.remaining.unmanaged
    assert "configuration from the controller" in entry.reason
    assert entry.reason.endswith("the controller needs Gres=gpu:h100:2")
    assert (machine.restarts, machine.read(GRES_CONF)) == ([], GRES_TEXT)
    with pytest.raises(GpuFleetError, match="configuration from the controller"):
        machine.run(strict=True, **H100)


def test_a_machine_that_is_no_compute_node_has_nothing_to_manage(machine: SlurmMachine) -> None:
    machine.path("/usr/lib/systemd/system/slurmd.service").unlink()
    outcome = machine.run(**H100)
    assert [entry.reason for entry in outcome.remaining.unmanaged] == [
        "there is no slurmd.service, so this is no compute node of Slurm"
    ]


def test_lines_of_others_are_named_and_come_back(machine: SlurmMachine) -> None:
    machine.write(GRES_CONF, f"# Ansible managed\nAutoDetect=nvml\n{GRES_TEXT}")
    before = {path: machine.read(path) for path in (GRES_CONF, SLURM_CONF)}
    outcome = machine.run(check_mode=True, **H100)
    assert [(entry.owner, entry.line, entry.wins) for entry in outcome.remaining.conflicts] == [
        ("gres.conf", 2, "us"),
        ("gres.conf", 4, "us"),
        ("a template of Ansible (DeepOps, openhpc)", 1, "them"),
    ]
    machine.run(**H100)
    assert "#slurm_gpus: AutoDetect=nvml\n" in machine.read(GRES_CONF)
    machine.run(state="absent")
    assert {path: machine.read(path) for path in before} == before
    assert not machine.path(CGROUP_CONF).exists()
    assert machine.daemons["gres"] == "gpu:old:1,nic:4"


def test_what_slurmctld_cannot_tell_is_unknown(machine: SlurmMachine) -> None:
    machine.broken = "slurm_load_node error: Unable to contact slurm controller (connect failure)\n"
    assert "Unable to contact slurm controller" in machine.refused(**H100)


SHARES = "Cannot use mps: shards is set too"


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({"shards": 0}, "Cannot use shards: a GPU is divided into 1 to 10000 (found 0)"),
        ({"mps": -1}, "Cannot use mps: a GPU is divided into"),
        ({"shards": 2, "mps": 100}, SHARES),
        ({"types": [{"type": "h100:2"}]}, "Cannot use types[0].type: a type in Slurm has letters"),
        ({"types": [{"type": "two words"}]}, "(found 'two words')"),
        ({"types": [{"type": "8"}]}, "Slurm takes it for a count, as in gpu:2"),
        ({"types": [{"type": "4k"}]}, "Slurm takes it for a count"),
        ({"types": [{"type": "a", "match": {"index": 7}}]}, "it matches no device; there is gpu0, gpu1"),
        ({"types": [{"type": "a", "match": {"serial": 7}}]}, "serial"),
        ({"folder": "etc/slurm"}, "it is not an absolute path"),
        ({"folder": "/etc/slurm\n"}, "it has a blank, a control character or a quotation mark"),
        ({"folder": "/etc/my slurm"}, "(found '/etc/my slurm')"),
        ({"folder": "/etc/\x1bslurm"}, r"(found '/etc/\x1bslurm')"),
        ({"node_name": "h[1-2]"}, "it is not the name of one node"),
        ({"node_name": "h2"}, "Slurm has no node of this name"),
        ({"permanent": False}, "Slurm has its GPUs from files"),
        ({"devices": None}, "devices is not set"),
    ],
)
def test_what_is_declared_wrong_is_refused_with_the_reason(
    machine: SlurmMachine, declaration: Dict[str, Any], message: str
) -> None:
    assert message in machine.refused(**declaration)


def no_device(machine: SlurmMachine) -> None:
    machine.devices.remove("/dev/nvidia1")


def regular_file(machine: SlurmMachine) -> None:
    machine.devices.remove("/dev/nvidia1")
    machine.write("/dev/nvidia1", "")


def divided(machine: SlurmMachine) -> None:
    machine.divide(0, *SEVEN)


def no_capability(machine: SlurmMachine) -> None:
    machine.divide(0, "7g.80gb")
    machine.path("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access").unlink()


def lost(machine: SlurmMachine) -> None:
    one = machine.driver.gpus[1]
    identity = type(one.identity)(1, lost="the GPU has fallen off the bus")
    machine.driver.gpus = (machine.driver.gpus[0], type(one)(identity))


def shared_line(machine: SlurmMachine) -> None:
    machine.edit(SLURM_CONF, "NodeName=h1 ", "NodeName=h[01-20],h[1-9] ")


def other_name(machine: SlurmMachine) -> None:
    machine.edit(SLURM_CONF, "NodeName=h1 ", "NodeName=h[01-20],x1 ")


def other_file(machine: SlurmMachine) -> None:
    machine.write(f"/proc/{PID}/cmdline", "/usr/sbin/slurmd\0-f\0/opt/slurm/etc/slurm.conf\0")


def other_select(machine: SlurmMachine) -> None:
    machine.edit(SLURM_CONF, "select/cons_tres", "select/linear")


def include(machine: SlurmMachine) -> None:
    machine.write(GRES_CONF, "Include /shared/gres.conf\n")


def includes(machine: SlurmMachine) -> None:
    machine.write(GRES_CONF, "Include /shared/gres.conf\n\ninclude more.conf\n")


def no_devices(machine: SlurmMachine) -> None:
    machine.devices.remove("/dev/nvidia0")
    machine.devices.remove("/dev/nvidia1")


def stand_in(machine: SlurmMachine) -> None:
    machine.write("/etc/slurm/fake_gpus.conf", "a100|4|(null)|(null)|/dev/nvidia0\n")


@pytest.mark.parametrize(
    ("made", "declaration", "message"),
    [
        (no_device, {}, "Cannot allocate /dev/nvidia1: it is not there, and slurmd would wait for it and then end"),
        (regular_file, {}, "it is not a device file, and Slurm would count it without guarding it"),
        (divided, {"shards": 2}, "Cannot allocate shard of gpu0: it is in MIG mode"),
        (no_capability, {}, "the kernel module does not tell the device files of instance 1/0"),
        (lost, {}, "the GPU has fallen off the bus"),
        (shared_line, {}, "line 7 of /etc/slurm/slurm.conf is for h[01-20],h[1-9], so its value is that of all"),
        (other_name, {}, "no NodeName in /etc/slurm/slurm.conf has it"),
        (other_file, {}, "slurmd reads /opt/slurm/etc/slurm.conf (found /etc/slurm). Set folder: /opt/slurm/etc."),
        (other_select, {"mps": 100}, "SelectType=select/linear, which knows no shares"),
        (no_devices, {}, "Cannot allocate /dev/nvidia0: it is not there, and slurmd would wait for it"),
        (no_devices, {}, "then run again. Also cannot allocate /dev/nvidia1: it is not there, and slurmd would wait"),
        (include, {}, "its line 1 includes another file, whose lines"),
        (includes, {}, "its lines 1, 3 include other files, whose lines would count as well"),
        (stand_in, {}, "it stands in for GPUs in tests of Slurm"),
    ],
)
def test_what_this_node_cannot_have_is_refused_before_anything_changes(
    machine: SlurmMachine, made: Any, declaration: Dict[str, Any], message: str
) -> None:
    made(machine)
    assert message in machine.refused(**declaration)


def test_a_line_for_several_nodes_is_fine_where_it_is_right(machine: SlurmMachine) -> None:
    machine.edit(SLURM_CONF, "NodeName=h1 ", "NodeName=h[1-9] ")
    machine.edit(SLURM_CONF, "gpu:old:1", "gpu:h100:2")
    machine.edit(SLURM_CONF, "task/affinity,task/cgroup", "task/none")
    machine.daemons["gres"] = "gpu:h100:2,nic:4"
    outcome = machine.run(**H100)
    assert machine.read(SLURM_CONF).count("GresTypes") == 1
    assert [entry.reason for entry in outcome.remaining.unmanaged] == [
        "TaskPlugin in /etc/slurm/slurm.conf is task/none, and only task/cgroup constrains jobs"
    ]
    assert not machine.path(CGROUP_CONF).exists()
    assert machine.restarts == ["slurmd.service"]


def told(machine: SlurmMachine) -> List[str]:
    return [" ".join(argv) for argv in machine.host.commands.calls]


def test_a_look_asks_systemd_and_slurmctld_once(machine: SlurmMachine) -> None:
    machine.run(**H100)
    machine.host.commands.calls.clear()
    machine.run(check_mode=True, **H100)
    assert told(machine) == [
        "systemctl show --property=Id,MainPID,ActiveState -- slurmd.service slurmctld.service",
        f"scontrol --oneliner show node {NODE}",
    ]
