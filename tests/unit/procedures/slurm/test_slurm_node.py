# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any, FrozenSet, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._machine.slurm_answers import (
    parse_configuration,
    parse_jobs,
    parse_marked,
    parse_node,
    parse_state,
)
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.slurm.procedure import drained_nodes
from ansible_collections.gpufleet.node.tests.unit.procedures.slurm.slurm_machine import NODE, UNREACHABLE, Cluster
from ansible_collections.gpufleet.node.tests.unit.support import Killed

DATA = Path(__file__).parent / "data"
# Recorded with scontrol --oneliner show nodes of Debian: 22.05.8 (bookworm), 24.11.5 (trixie) and 26.05.5-1 (sid).
RELEASES = ("22.05", "24.11", "26.05")
OURS = "gpufleet: maintenance"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(tmp_path, monkeypatch)


def recorded(release: str) -> List[str]:
    return (DATA / f"{release}-nodes.txt").read_text(encoding="utf-8").splitlines()


# --- what Slurm says --------------------------------------------------------------------------------------------------

STATES = [
    ("IDLE", "IDLE", ""),
    ("ALLOCATED+DRAIN", "ALLOCATED", "DRAIN"),
    ("MIXED+DRAIN", "MIXED", "DRAIN"),
    ("IDLE+COMPLETING+DRAIN", "IDLE", "COMPLETING DRAIN"),
    ("DOWN+DRAIN+NOT_RESPONDING", "DOWN", "DRAIN NOT_RESPONDING"),
    ("DOWN+CLOUD+DRAIN+INVALID_REG", "DOWN", "CLOUD DRAIN INVALID_REG"),
    ("IDLE+CLOUD+POWERED_DOWN", "IDLE", "CLOUD POWERED_DOWN"),
    ("IDLE+DRAIN+MAINTENANCE+RESERVED", "IDLE", "DRAIN MAINTENANCE RESERVED"),
    ("IDLE+DRAIN+REBOOT_REQUESTED", "IDLE", "DRAIN REBOOT_REQUESTED"),
    ("MIXED+DYNAMIC_NORM+PLANNED", "MIXED", "DYNAMIC_NORM PLANNED"),
    # Before Slurm 21.08, and what sinfo makes of a state.
    ("IDLE*+CLOUD+DRAIN", "IDLE", "CLOUD DRAIN NOT_RESPONDING"),
    ("DOWN*", "DOWN", "NOT_RESPONDING"),
    ("IDLE~", "IDLE", "POWERED_DOWN"),
    ("ALLOCATED#", "ALLOCATED", "POWERING_UP"),
    ("IDLE!", "IDLE", "POWER_DOWN"),
    ("IDLE%", "IDLE", "POWERING_DOWN"),
    ("draining$", "ALLOCATED", "DRAIN MAINTENANCE"),
    ("drained@", "IDLE", "DRAIN REBOOT_REQUESTED"),
    ("drained^*", "IDLE", "DRAIN NOT_RESPONDING REBOOT_ISSUED"),
    ("mixed-", "MIXED", "PLANNED"),
    ("maint", "IDLE", "MAINTENANCE"),
    ("REBOOT", "IDLE", "REBOOT_ISSUED"),
    ("inval", "IDLE", "INVALID_REG"),
    ("failing", "ALLOCATED", "FAIL"),
    ("COMPLETING", "IDLE", "COMPLETING"),
    ("IDLE+SOMETHING_NEW", "IDLE", "SOMETHING_NEW"),
]


@pytest.mark.parametrize(("text", "base", "flags"), STATES)
def test_a_state_is_a_base_and_flags_in_every_way_to_write_it(text: str, base: str, flags: str) -> None:
    expected: Tuple[str, FrozenSet[str]] = (base, frozenset(flags.split()))
    assert parse_state(text) == expected


@pytest.mark.parametrize("text", ["", "*", "SOMETHING_NEW", "IDLE+DOWN", "null"])
def test_a_state_that_nobody_knows_is_not_guessed(text: str) -> None:
    with pytest.raises(CannotLook, match="the state is not known"):
        parse_state(text)


@pytest.mark.parametrize("release", RELEASES)
def test_every_recorded_answer_is_understood(release: str) -> None:
    for line in recorded(release):
        name = line.split(" ", 1)[0].partition("=")[2]
        assert parse_node(line + "\n", name).name == name


@pytest.mark.parametrize("release", RELEASES)
def test_a_reason_is_told_from_who_gave_it_and_when(release: str) -> None:
    node = next(parse_node(line, NODE) for line in recorded(release) if "DRAIN" in line)
    assert (node.state, node.owner, node.user) == ("ALLOCATED+DRAIN", "ours", "root")
    assert node.reason == 'gpufleet: test [x] "q" é'
    assert node.since.startswith("2026-11-29T15:" if release == "26.05" else "2026-11-22T04:3")


@pytest.mark.parametrize("release", RELEASES)
def test_a_comment_that_looks_like_a_reason_is_none(release: str) -> None:
    line = next(line for line in recorded(release) if "Comment=" in line)
    assert parse_node(line, NODE).reason == ""
    drained = line.replace("State=IDLE ", "State=IDLE+DRAIN ").replace(
        "Comment=", "Reason=bad DIMM [ada@then] Comment="
    )
    assert (parse_node(drained, NODE).owner, parse_node(drained, NODE).reason) == ("theirs", "bad DIMM")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("user", ["root", "jo@corp.example", "CORP\\jo smith", "jo smith@corp.example", "4294967294"])
@pytest.mark.parametrize(
    "reason", ["gpufleet: x", "ask [ops@corp.example] first", "bad [ada@2020-01-01T00:00:00]", "a=b ]"]
)
@pytest.mark.parametrize("after", ["", " Extra=ee", " Extra=e [e@f]", " second line of it"])
def test_a_reason_is_what_slurm_prints_it_as(release: str, user: str, reason: str, after: str) -> None:
    line = next(line for line in recorded(release) if "+DRAIN" in line).partition(" Reason=")[0]
    node = parse_node(f"{line} Reason={reason} [{user}@2026-11-22T04:33:41]{after}\n", NODE)
    told = (node.reason, node.user, node.since)
    # Of a second line only a reason without brackets can be told from it.
    if after != " second line of it" or "[" not in reason:
        assert told == (reason, user, "2026-11-22T04:33:41")


@pytest.mark.parametrize("release", RELEASES)
def test_of_all_nodes_those_with_our_mark_are_told(release: str) -> None:
    lines = [line for line in recorded(release) if not line.startswith("NodeName=n1 ")]
    ours = next(line for line in recorded(release) if " Reason=gpufleet: " in line and "+DRAIN" in line)
    others = ["NodeName=n8 State=SOMETHING_NEW", "NodeName=n9 State=IDLE Reason=gpufleet: left over [root@x]"]
    assert [node.name for node in parse_marked("\n".join([*lines, ours, *others]) + "\n")] == ["n1"]


def test_a_cluster_without_nodes_has_none_with_our_mark() -> None:
    assert parse_marked("No nodes in the system\n") == ()


def test_a_line_of_another_form_is_not_taken_for_a_node() -> None:
    with pytest.raises(CannotLook, match="scontrol returned an unexpected format"):
        parse_marked("NODELIST STATE\n")


def test_the_configuration_of_slurmctld_is_read_by_the_names_of_slurm_conf() -> None:
    said = "Configuration data as of 2026-11-26\nSchedulerParameters     = a=1,b\nTopologyPlugin          = \n\n"
    assert parse_configuration(said) == {"SchedulerParameters": "a=1,b", "TopologyPlugin": ""}
    with pytest.raises(CannotLook, match="unexpected format"):
        parse_configuration("Slurmctld(primary) at ctl is UP\n")


def test_the_state_after_a_reboot_is_not_the_state_of_now() -> None:
    line = recorded("24.11")[0].replace("State=IDLE ", "State=IDLE+DRAIN+REBOOT_REQUESTED ")
    assert parse_node(line.replace("Partitions=", "NextState=UNDRAIN Partitions="), NODE).rebooting
    moved = line.replace("Arch=x86_64", "NextState=RESUME Arch=x86_64")
    assert parse_node(moved, NODE).state == "IDLE+DRAIN+REBOOT_REQUESTED"


@pytest.mark.parametrize(
    "text", ["", "Node n1 not found\n", "NodeName=n10 State=IDLE x\n", "NodeName=n1 Arch=x86_64\n"]
)
def test_an_answer_about_anything_else_is_refused(text: str) -> None:
    with pytest.raises(CannotLook, match="did not return exactly one line about it"):
        parse_node(text, NODE)


def test_a_job_that_waits_is_not_on_the_node() -> None:
    jobs = parse_jobs("1|RUNNING|ada|gpu|9:57\n2|PENDING|ada|gpu|10:00\n3_7|SUSPENDED|bob|gpu|UNLIMITED\n")
    assert [job.job for job in jobs] == ["1", "3_7"]


def test_a_line_of_another_form_is_not_taken_for_a_job() -> None:
    with pytest.raises(CannotLook, match="an unexpected format"):
        parse_jobs("1 gpu wrap root R 0:03 1 n1\n")


# --- drained ----------------------------------------------------------------------------------------------------------


def test_a_node_that_nobody_uses_is_drained_with_our_mark(cluster: Cluster) -> None:
    result = cluster.run(reason="new layout")
    assert (cluster.state, cluster.reason) == ("IDLE+DRAIN", "gpufleet: new layout")
    assert (result["changed"], result["owner"], result["idle"], result["left"]) == (True, "ours", True, "")
    assert result["diff"]["after"] == "n1 state: drained\nn1 reason: gpufleet: new layout\n"
    assert cluster.now == 0.0


def test_a_second_run_changes_nothing_and_keeps_the_reason(cluster: Cluster) -> None:
    cluster.run(reason="new layout")
    result = cluster.run(reason="something else")
    assert (result["changed"], cluster.orders, cluster.reason) == (False, ["DRAIN"], "gpufleet: new layout")


def test_a_node_of_ours_gets_another_reason_where_that_is_asked_for(cluster: Cluster) -> None:
    cluster.drained(OURS)
    predicted = cluster.run(reason="check nccl: 212 is below 370", update_reason=True, timeout=0, check_mode=True)
    result = cluster.run(reason="check nccl: 212 is below 370", update_reason=True, timeout=0)
    assert [(change["setting"], change["before"]) for change in result["changes"]] == [("reason", OURS)]
    assert predicted["changes"] == result["changes"]
    assert (cluster.reason, cluster.flags) == ("gpufleet: check nccl: 212 is below 370", {"DRAIN"})
    assert cluster.run(reason="check nccl: 212 is below 370", update_reason=True, timeout=0)["changed"] is False
    # It is still ours.
    assert cluster.run(state="in_service")["changed"] is True


def test_a_node_of_somebody_else_keeps_its_reason_whatever_is_asked_for(cluster: Cluster) -> None:
    cluster.drained("bad DIMM", "ada")
    result = cluster.run(reason="check nccl", update_reason=True, timeout=0)
    assert (result["changed"], cluster.reason) == (False, "bad DIMM")


def test_it_waits_until_the_last_job_has_gone(cluster: Cluster) -> None:
    cluster.add_job(1)
    cluster.then = lambda there: there.end_jobs() if there.now > 100 else None
    result = cluster.run()
    assert (result.get("failed"), result["idle"], result["jobs"]) == (None, True, [])
    assert 100 < cluster.now < 130


def test_a_job_that_is_being_completed_is_still_there(cluster: Cluster) -> None:
    cluster.flags.add("COMPLETING")
    cluster.then = lambda there: there.flags.discard("COMPLETING") if there.now > 20 else None
    assert cluster.run()["idle"]
    assert cluster.now > 20


def test_a_suspended_job_holds_a_node_that_slurmctld_calls_idle(cluster: Cluster) -> None:
    cluster.add_job(7, "SUSPENDED")
    result = cluster.run(timeout=60)
    assert cluster.base == "IDLE"
    assert result["failure"]["code"] == "in_use"
    assert "job 7 of ada (suspended in gpu, 9:57 left)" in result["msg"]


def test_at_the_end_of_its_patience_it_names_the_jobs_and_leaves_the_node_drained(cluster: Cluster) -> None:
    cluster.add_job(1)
    cluster.add_job(2, user="bob")
    result = cluster.run(timeout=60)
    assert (result["changed"], result["failure"]["code"], result["owner"]) == (True, "in_use", "ours")
    assert "jobs 1 of ada (running in gpu, 9:57 left), 2 of bob (running in gpu, 9:57 left)" in result["msg"]
    assert "It stays drained" in result["msg"]
    assert cluster.state == "MIXED+DRAIN"
    assert cluster.now == 60


def test_of_many_jobs_it_names_the_first_few(cluster: Cluster) -> None:
    for number in range(20):
        cluster.add_job(number)
    assert "and 15 more" in cluster.run(timeout=1)["msg"]


def test_jobs_that_it_may_not_see_are_waited_for_all_the_same(cluster: Cluster) -> None:
    cluster.base = "ALLOCATED"
    assert "jobs that squeue does not show to this user" in cluster.run(timeout=30)["msg"]


def test_without_waiting_it_says_what_is_still_there(cluster: Cluster) -> None:
    cluster.add_job(1)
    result = cluster.run(timeout=0)
    assert (result.get("failed"), result["idle"], result["owner"]) == (None, False, "ours")
    assert result["jobs"] == [{"job": "1", "state": "RUNNING", "user": "ada", "partition": "gpu", "time_left": "9:57"}]
    assert cluster.now == 0


def test_the_jobs_of_the_cluster_are_asked_for_only_when_the_node_is_idle(cluster: Cluster) -> None:
    cluster.add_job(1)
    cluster.then = lambda there: there.end_jobs() if there.now > 1800 else None
    cluster.run()
    assert cluster.asked["scontrol"] > 100
    assert cluster.asked["squeue"] == 1


def test_looks_begin_close_to_each_other_and_are_never_further_apart_than_poll(cluster: Cluster) -> None:
    cluster.add_job(1)
    times: List[float] = []
    cluster.then = lambda there: times.append(there.now)
    cluster.run(timeout=60, poll=10)
    assert times == [1, 3, 7, 15, 25, 35, 45, 55, 60]


@pytest.mark.parametrize("reason", ["bad DIMM", "gpufleet", "Gpufleet: x", "not gpufleet: x"])
def test_what_somebody_else_has_drained_keeps_his_reason_and_is_waited_for(cluster: Cluster, reason: str) -> None:
    cluster.drained(reason, "ada")
    cluster.add_job(1)
    cluster.then = lambda there: there.end_jobs() if there.now > 50 else None
    result = cluster.run()
    assert (result["changed"], result["owner"], result["idle"]) == (False, "theirs", True)
    assert result["left"] == f"it is drained by ada since 2026-11-22T04:33:41: {reason}"
    assert (cluster.orders, cluster.reason, cluster.now > 50) == ([], reason, True)


def test_who_takes_the_node_over_while_we_wait_has_it(cluster: Cluster) -> None:
    cluster.add_job(1)

    def take_over(there: Cluster) -> None:
        there.drained("bad DIMM", "ada")
        there.end_jobs()

    cluster.then = take_over
    result = cluster.run()
    assert (result["owner"], result["reason"], result["idle"]) == ("theirs", "bad DIMM", True)
    assert cluster.run(state="in_service")["changed"] is False
    assert cluster.orders == ["DRAIN"]


def test_a_node_that_is_returned_to_service_while_we_wait_is_an_error(cluster: Cluster) -> None:
    cluster.add_job(1)
    cluster.then = lambda there: there.flags.discard("DRAIN")
    result = cluster.run()
    assert (result["failure"]["code"], cluster.orders) == ("conflict", ["DRAIN"])


@pytest.mark.parametrize(
    ("base", "flags", "reason", "message"),
    [
        ("DOWN", "", "fan", "it is DOWN: fan"),
        ("DOWN", "NOT_RESPONDING", "", "it is DOWN+NOT_RESPONDING"),
        ("IDLE", "FAIL", "x", "it is IDLE+FAIL: x"),
        ("UNKNOWN", "", "", "it is UNKNOWN"),
        ("FUTURE", "", "", "it is FUTURE"),
        ("IDLE", "DRAIN REBOOT_REQUESTED", "Reboot ASAP", "a reboot is requested in Slurm"),
        ("IDLE", "REBOOT_ISSUED", "", "a reboot is requested in Slurm"),
        ("IDLE", "DRAIN REBOOT_REQUESTED", OURS, "a reboot is requested in Slurm"),
    ],
)
def test_a_node_with_another_trouble_is_refused_and_not_touched(
    cluster: Cluster, base: str, flags: str, reason: str, message: str
) -> None:
    cluster.base, cluster.flags, cluster.reason = base, set(flags.split()), reason
    result = cluster.run()
    assert result["failure"]["code"] == "refused"
    assert message in result["msg"]
    assert cluster.orders == []


def test_a_node_of_ours_that_went_down_is_still_drained(cluster: Cluster) -> None:
    cluster.drained(OURS)
    cluster.base = "DOWN"
    result = cluster.run()
    assert (result["changed"], result["owner"], result["idle"]) == (False, "ours", True)


def test_a_powered_down_node_and_one_that_does_not_answer_can_be_drained(cluster: Cluster) -> None:
    cluster.flags = {"CLOUD", "POWERED_DOWN", "NOT_RESPONDING"}
    assert cluster.run()["owner"] == "ours"


def test_an_order_that_slurmctld_forgets_is_an_error(cluster: Cluster) -> None:
    cluster.deaf = True
    assert cluster.run()["failure"]["code"] == "not_in_effect"


def test_what_a_killed_run_has_drained_the_next_one_waits_for_and_resumes(cluster: Cluster) -> None:
    cluster.add_job(1)

    def kill(there: Cluster) -> None:
        raise Killed

    cluster.then = kill
    with pytest.raises(Killed):
        cluster.run()
    cluster.then = lambda there: there.end_jobs()
    assert (cluster.run()["idle"], cluster.orders) == (True, ["DRAIN"])
    assert cluster.run(state="in_service")["changed"]


def test_slurmctld_may_be_restarted_while_we_wait(cluster: Cluster) -> None:
    cluster.add_job(1)

    def restart(there: Cluster) -> None:
        there.broken = UNREACHABLE if 10 < there.now < 60 else ""
        if there.now > 120:
            there.end_jobs()

    cluster.then = restart
    assert cluster.run()["idle"]


def test_a_list_of_jobs_that_cannot_be_had_is_asked_for_again(cluster: Cluster) -> None:
    answers = [Completed(1, "", UNREACHABLE), Completed(0, "", "")]
    cluster.host.commands.programs["squeue"] = lambda argv: answers.pop(0)
    assert cluster.run()["idle"]
    assert (answers, cluster.now) == ([], 1)


def test_slurmctld_that_stays_away_is_the_error_at_the_end(cluster: Cluster) -> None:
    cluster.add_job(1)
    cluster.then = lambda there: setattr(there, "broken", UNREACHABLE)
    result = cluster.run(timeout=60)
    assert (result["failure"]["code"], result["changed"]) == ("cannot_look", True)
    assert "Unable to contact slurm controller" in result["msg"]


# --- in service -------------------------------------------------------------------------------------------------------


def test_what_we_drained_is_resumed_once(cluster: Cluster) -> None:
    cluster.run()
    result = cluster.run(state="in_service")
    assert (result["changed"], result["owner"], cluster.state) == (True, "nobody", "IDLE")
    assert result["diff"]["before"] == f"n1 state: drained\nn1 reason: {OURS}\n"
    assert cluster.run(state="in_service")["changed"] is False
    assert cluster.orders == ["DRAIN", "RESUME"]


def test_what_somebody_else_has_drained_stays_drained_and_is_told(cluster: Cluster) -> None:
    cluster.drained("bad DIMM", "ada")
    result = cluster.run(state="in_service")
    assert (result.get("failed"), result["changed"], result["owner"]) == (None, False, "theirs")
    assert result["left"] == "it is drained by ada since 2026-11-22T04:33:41: bad DIMM"
    assert (cluster.orders, cluster.state) == ([], "IDLE+DRAIN")


def test_a_node_that_is_down_and_not_ours_stays_down(cluster: Cluster) -> None:
    cluster.base, cluster.reason = "DOWN", "fan"
    result = cluster.run(state="in_service")
    assert (result["left"], cluster.orders) == ("it is DOWN: fan", [])


def test_a_node_of_ours_that_a_reboot_brought_down_is_resumed(cluster: Cluster) -> None:
    cluster.drained(OURS)
    cluster.base = "DOWN"
    assert cluster.run(state="in_service")["node_state"] == "IDLE"


@pytest.mark.parametrize(
    ("flag", "cause"),
    [
        ("NOT_RESPONDING", "its slurmd does not respond"),
        ("INVALID_REG", "its slurmd registers with less than slurm.conf defines: gpufleet: maintenance"),
        ("POWERING_UP", "it is still starting"),
    ],
)
def test_a_node_that_cannot_take_jobs_is_waited_for_and_stays_drained(cluster: Cluster, flag: str, cause: str) -> None:
    cluster.drained(OURS)
    cluster.flags.add(flag)
    result = cluster.run(state="in_service", timeout=120)
    assert (result["failure"]["code"], cluster.orders, cluster.now) == ("refused", [], 120)
    assert cause in result["msg"]
    cluster.then = lambda there: there.flags.discard(flag)
    assert cluster.run(state="in_service", timeout=120)["node_state"] == "IDLE"


def test_it_is_in_service_when_slurmd_has_answered_once_more(cluster: Cluster) -> None:
    cluster.drained(OURS)

    def resume(argv: Any) -> Completed:
        answer = Cluster.scontrol(cluster, argv)
        if argv[1] == "update":
            cluster.flags.add("NOT_RESPONDING")
        return answer

    cluster.host.commands.programs["scontrol"] = resume
    cluster.then = lambda there: there.flags.discard("NOT_RESPONDING") if there.now > 10 else None
    result = cluster.run(state="in_service", timeout=60)
    assert (result.get("failed"), result["node_state"]) == (None, "IDLE")
    assert cluster.now > 10


def test_no_mark_stays_on_a_node_that_slurm_keeps_the_reason_of(cluster: Cluster) -> None:
    cluster.keeps_reason = True
    cluster.run()
    assert cluster.run(state="in_service", timeout=0)["changed"]
    assert (cluster.orders, cluster.reason) == (["DRAIN", "RESUME", "REASON"], "resumed by gpufleet")
    # So that what Slurm adds, when it drains the node itself, does not look like ours.
    cluster.drained(f"{cluster.reason} : Kill task failed", "slurm")
    assert cluster.run(state="in_service")["owner"] == "theirs"


def test_a_mark_that_a_killed_run_left_behind_is_taken_by_the_next(cluster: Cluster) -> None:
    cluster.keeps_reason = True
    cluster.drained(OURS)
    cluster.kill_at = 2
    with pytest.raises(Killed):
        cluster.run(state="in_service")
    assert (cluster.state, cluster.reason) == ("IDLE", OURS)
    cluster.kill_at = None
    predicted = cluster.run(state="in_service", check_mode=True)
    done = cluster.run(state="in_service")
    assert predicted["changes"] == done["changes"] != []
    assert cluster.reason == "resumed by gpufleet"
    assert cluster.run(state="in_service")["changed"] is False


def test_a_node_that_is_drained_again_at_once_is_an_error_that_says_by_whom(cluster: Cluster) -> None:
    cluster.drained(OURS)

    def health_check(argv: Any) -> Completed:
        answer = Cluster.scontrol(cluster, argv)
        if argv[1] == "update":
            cluster.drained("gres/gpu count reported lower than configured (0 < 8)", "slurm")
        return answer

    cluster.host.commands.programs["scontrol"] = health_check
    result = cluster.run(state="in_service")
    assert (result["failure"]["code"], result["owner"]) == ("not_in_effect", "theirs")
    assert "drained by slurm" in result["msg"]
    assert "count reported lower" in result["msg"]


def test_a_node_that_slurm_is_about_to_reboot_is_not_resumed(cluster: Cluster) -> None:
    cluster.drained(OURS)
    cluster.flags.add("REBOOT_REQUESTED")
    result = cluster.run(state="in_service")
    assert (result["failure"]["code"], cluster.orders) == ("refused", [])


# --- check mode and bad input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["drained", "in_service"])
def test_check_mode_predicts_what_a_run_does_and_neither_does_it_nor_waits(cluster: Cluster, state: str) -> None:
    if state == "in_service":
        cluster.drained(OURS)
    cluster.add_job(1)
    predicted = cluster.run(state=state, check_mode=True)
    assert (cluster.orders, cluster.now) == ([], 0)
    done = cluster.run(state=state, timeout=1)
    assert predicted["changed"]
    assert predicted["changes"] == done["changes"]
    assert predicted["diff"] == done["diff"]


@pytest.mark.parametrize("state", ["drained", "in_service"])
def test_check_mode_predicts_nothing_for_what_somebody_else_has_drained(cluster: Cluster, state: str) -> None:
    cluster.drained("bad DIMM", "ada")
    cluster.flags.add("NOT_RESPONDING")
    result = cluster.run(state=state, check_mode=True)
    assert (result["changed"], result["changes"], result["owner"]) == (False, [], "theirs")


BROKEN = [
    (UNREACHABLE, "cannot_look", "Unable to contact slurm controller", "Check slurmctld: scontrol ping"),
    (
        'scontrol: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file\n'
        "scontrol: error: slurm_send_node_msg: auth_g_create: REQUEST_NODE_INFO has authentication error\n"
        "slurm_load_node error: Protocol authentication error\n",
        "cannot_look",
        "Munge encode failed",
        "Check munge",
    ),
    ("slurm_update error: Invalid user id\n", "not_permitted", "Invalid user id", "Run it as root"),
    (
        "scontrol: fatal: Could not establish a configuration source\n",
        "cannot_look",
        "configuration source",
        "Run it on a host where scontrol works",
    ),
    ("", "cannot_look", "exit status 1, without output", ""),
]


@pytest.mark.parametrize(("said", "code", "cause", "hint"), BROKEN)
@pytest.mark.parametrize("state", ["drained", "in_service"])
def test_a_cluster_that_does_not_answer_is_named_and_nothing_is_touched(
    cluster: Cluster, state: str, said: str, code: str, cause: str, hint: str
) -> None:
    cluster.drained(OURS)
    cluster.broken = said
    if not said:
        cluster.host.commands.programs["scontrol"] = lambda argv: Completed(1, "", "")
    result = cluster.run(state=state)
    assert (result["failure"]["code"], result["changed"], cluster.orders) == (code, False, [])
    assert cause in result["msg"]
    assert hint in result["msg"]


def test_slurmctld_that_takes_too_long_is_named(cluster: Cluster) -> None:
    cluster.host.commands.programs["scontrol"] = lambda argv: Completed(124, "", "")
    assert "no response within 60 seconds" in cluster.run()["msg"]


def test_a_host_without_slurm_is_named(cluster: Cluster) -> None:
    del cluster.host.commands.programs["scontrol"]
    assert cluster.run()["msg"].startswith("Cannot ask slurmctld on scontrol: it is not on the path.")


def test_a_node_that_slurm_does_not_know_is_named(cluster: Cluster) -> None:
    result = cluster.run(name="n2")
    assert result["failure"]["code"] == "declaration"
    assert "Slurm has no node of this name" in result["msg"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "ALL"}, "it must be the name of one node (found ALL)"),
        ({"name": "n[1-9]"}, "it must be the name of one node (found n[1-9])"),
        ({"name": "n1,n2"}, "it must be the name of one node (found n1,n2)"),
        ({"name": ""}, "it must be the name of one node (found )"),
        ({"name": "-h"}, "it must be the name of one node (found -h)"),
        ({"reason": " "}, "it must be one line of text without double quotes"),
        ({"reason": "a\nb"}, "it must be one line of text without double quotes"),
        ({"reason": 'say "x"'}, "it must be one line of text without double quotes"),
        ({"timeout": -1}, "it must be at least 0 s (found -1)"),
        ({"poll": 0}, "it must be at least 1 s (found 0)"),
    ],
)
def test_a_senseless_option_is_refused_before_slurm_is_asked(cluster: Cluster, given: Any, message: str) -> None:
    result = cluster.run(**given)
    assert result["failure"]["code"] == "declaration"
    assert message in result["msg"]
    assert cluster.asked == {"scontrol": 0, "squeue": 0}


def test_filters_of_whoever_runs_it_hide_no_job(cluster: Cluster) -> None:
    cluster.run(timeout=0)
    asked = next(call for call in cluster.host.commands.calls if call[0] == "env")
    assert ("-u", "SQUEUE_USERS") in list(zip(asked, asked[1:]))


# --- the fleet --------------------------------------------------------------------------------------------------------


def test_the_nodes_that_are_still_drained_are_one_question(cluster: Cluster) -> None:
    assert drained_nodes(cluster.host) == {"changed": False, "nodes": []}
    cluster.drained(OURS)
    nodes = drained_nodes(cluster.host)["nodes"]
    assert [(node["name"], node["node_state"], node["reason"]) for node in nodes] == [(NODE, "IDLE+DRAIN", OURS)]
    assert cluster.asked == {"scontrol": 2, "squeue": 0}
    cluster.drained("bad DIMM")
    assert drained_nodes(cluster.host)["nodes"] == []


def test_a_cluster_that_does_not_say_which_nodes_are_drained_is_an_error(cluster: Cluster) -> None:
    cluster.broken = UNREACHABLE
    with pytest.raises(CannotLook, match=r"Cannot ask slurmctld for its nodes: .*Unable to contact"):
        drained_nodes(cluster.host)
