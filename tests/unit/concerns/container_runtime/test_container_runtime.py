# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convergence of ``container_runtime``, with engines of the simplest kind. Each real one has tests of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import BOOT, EFFECTIVE
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime import last_good
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import NOT_KNOWN, Edit
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.spec import RUNTIME_PATH
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.engine_machine import (
    BEFORE,
    DECLARED,
    PREVIOUS,
    RECORD,
    EngineMachine,
    changes_of,
    drop_in_of,
    entry,
    main_of,
    params,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.support import Killed, snapshot

MAIN, DROP_IN = main_of("docker"), drop_in_of("docker")
MINE = "# of the site\nlog=json\n"
NVIDIA = "runtime nvidia"
DEFAULT: Dict[str, Any] = {"default": True}


def absent(machine: EngineMachine, **options: Any) -> Any:
    return run(machine, state="absent", **options)


# --- converging -------------------------------------------------------------------------------------------------------


def test_the_files_say_what_is_declared_and_all_that_others_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: MINE})
    outcome = run(machine, entry(default=True, cdi=False))
    assert outcome.status == "drifted"
    assert machine.settings() == {"log": "json", NVIDIA: RUNTIME_PATH, "default_runtime": "nvidia", "cdi": False}
    assert (machine.text(MAIN) or "").startswith(MINE)


def test_check_mode_writes_nothing_and_predicts_what_a_run_then_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: MINE}, engines=("docker", "podman"), running=("docker",))
    found = snapshot(tmp_path, leave_out=())
    entries = (entry(default=True), entry("podman", cdi=True))
    predicted = run(machine, *entries, check_mode=True)
    assert snapshot(tmp_path, leave_out=()) == found
    made = run(machine, *entries)
    assert predicted.changes == made.changes != ()
    assert predicted.remaining.needs == made.remaining.needs == ("reload_docker",)


def test_what_is_declared_is_compared_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: f"{NVIDIA}={RUNTIME_PATH}\ncdi=true\n"})
    outcome = run(machine, entry())
    assert [change.setting for change in outcome.changes] == ["declaration"]
    assert machine.text(MAIN) == f"{NVIDIA}={RUNTIME_PATH}\ncdi=true\n"


def test_an_engine_that_runs_nothing_has_at_once_what_its_files_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, engines=("podman",))
    outcome = run(machine, entry("podman"))
    assert changes_of(outcome) == [
        ("podman", NVIDIA, None, RUNTIME_PATH, BOOT),
        ("podman", NVIDIA, None, RUNTIME_PATH, EFFECTIVE),
    ]
    assert outcome.remaining.status == "in_sync"


def test_an_entry_with_state_absent_takes_the_runtime_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: f"{NVIDIA}=/opt/nvidia\nlog=json\n"})
    (tmp_path / RUNTIME_PATH[1:]).unlink()
    run(machine, entry(state="absent"))
    assert machine.settings() == {"log": "json"}
    assert run(machine, entry(state="absent")).changes == ()


# --- daemons ----------------------------------------------------------------------------------------------------------


def test_what_a_daemon_has_not_taken_up_is_pending_on_every_run_until_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, running=("docker",))
    outcome = run(machine, entry(default=True))
    assert changes_of(outcome) == [
        ("docker", NVIDIA, None, RUNTIME_PATH, BOOT),
        ("docker", "default_runtime", None, "nvidia", BOOT),
    ]
    assert (outcome.remaining.status, outcome.remaining.needs) == ("pending", ("reload_docker",))
    again = run(machine, entry(default=True))
    assert (again.status, again.changes, again.remaining.needs) == ("pending", (), ("reload_docker",))
    machine.restart()
    assert run(machine, entry(default=True)).status == "in_sync"


def test_what_only_a_restart_takes_away_needs_a_restart_and_the_report_says_why_and_what_it_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: f"{NVIDIA}={RUNTIME_PATH}\n"})
    machine.restart(containers=3)
    outcome = run(machine, entry(state="absent"))
    assert outcome.remaining.needs == ("restart_docker",)
    told = outcome.effective["engines"]["docker"]
    assert (told["takes"], told["why"], told["containers"], told["stops_containers"]) == (
        "restart",
        f"{NVIDIA} must go",
        3,
        3,
    )
    # What counts is the file: a daemon that starts without live restore ends what it finds.
    machine.tell("docker", {**machine.settings(), NVIDIA: RUNTIME_PATH, "live_restore": True}, containers=3)
    assert run(machine, entry(state="absent")).effective["engines"]["docker"]["stops_containers"] == 3
    machine.write(MAIN, "live_restore=true\n")
    assert run(machine, entry(state="absent")).effective["engines"]["docker"]["stops_containers"] == 0


def test_what_is_not_known_of_a_daemon_is_pending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: f"{NVIDIA}={RUNTIME_PATH}\n"}, engines=("containerd",))
    machine.write(main_of("containerd"), f"{NVIDIA}={RUNTIME_PATH}\n")
    machine.tell("containerd", {}, stale=main_of("containerd"))
    outcome = run(machine, entry("containerd"))
    assert outcome.remaining.needs == ("reload_containerd",)
    (row,) = [setting for setting in outcome.remaining.settings if setting.object == "containerd"]
    assert (row.effective, row.status) == (NOT_KNOWN, "pending")


def test_a_default_that_the_daemon_names_itself_is_as_good_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, running=("docker",))
    run(machine, entry(default=False))
    machine.restart()
    assert run(machine, entry(default=False)).status == "in_sync"


def test_a_look_at_the_next_boot_alone_asks_nothing_of_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, running=("docker",))
    outcome = run(machine, entry(), immediate=False)
    assert (outcome.remaining.status, outcome.remaining.needs) == ("in_sync", ())


def test_the_report_says_what_the_daemon_has_and_what_the_files_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: MINE}, engines=("docker", "podman"), running=("docker",))
    outcome = run(machine, entry(), entry("podman"))
    engines = outcome.effective["engines"]
    assert engines["docker"] == {
        "flavour": None,
        "version": "1.2.3",
        "running": True,
        "containers": 0,
        "settings": {"log": "json", "default_runtime": "runc"},
        "takes": "reload",
        "why": f"{NVIDIA} is new",
        "stops_containers": 0,
    }
    assert engines["podman"]["running"] is False
    assert engines["podman"]["settings"] == {NVIDIA: RUNTIME_PATH}
    assert outcome.boot["engines"]["docker"] == {
        "files": [MAIN, DROP_IN],
        "settings": {"log": "json", NVIDIA: RUNTIME_PATH},
    }


# --- what is not there ------------------------------------------------------------------------------------------------


def test_an_engine_that_is_not_installed_is_unmanaged_and_the_others_are_converged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch)
    outcome = run(machine, entry("crio"), entry())
    assert [one.as_dict() for one in outcome.remaining.unmanaged] == [
        {"object": "crio", "setting": NVIDIA, "reason": "it is not installed"}
    ]
    assert machine.settings()[NVIDIA] == RUNTIME_PATH


def test_a_runtime_whose_package_is_still_to_come_is_predicted_and_refused_before_any_file_of_an_engine_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, engines=("docker", "podman"))
    (tmp_path / RUNTIME_PATH[1:]).unlink()
    entries = (entry(), entry("podman", state="absent"))
    predicted = run(machine, *entries, check_mode=True)
    assert predicted.error is None
    assert ("docker", NVIDIA, None, RUNTIME_PATH, BOOT) in changes_of(predicted)
    with pytest.raises(Refused) as caught:
        run(machine, *entries)
    assert str(caught.value) == (
        f"Cannot add the runtime {RUNTIME_PATH} to docker: it does not exist. "
        "Install the package nvidia-container-toolkit, as the role container_toolkit does."
    )
    assert (machine.text(MAIN), machine.text(RECORD), machine.text(DECLARED)) == (None, None, None)


def test_a_runtime_that_went_away_is_no_longer_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = EngineMachine(tmp_path, monkeypatch)
    run(machine, entry())
    (tmp_path / RUNTIME_PATH[1:]).unlink()
    outcome = run(machine, entry(), check_mode=True)
    assert outcome.status == "drifted"
    gone = f"{RUNTIME_PATH}, which does not exist"
    assert changes_of(outcome) == [
        ("docker", NVIDIA, gone, RUNTIME_PATH, BOOT),
        ("docker", NVIDIA, gone, RUNTIME_PATH, EFFECTIVE),
    ]
    with pytest.raises(Refused, match=r"add the runtime /.* to docker"):
        run(machine, entry())


# --- before it counts -------------------------------------------------------------------------------------------------


def test_what_one_engine_refuses_keeps_every_file_of_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: MINE}, engines=("docker", "podman"))
    machine.kinds["podman"].refuses = "it says no"
    found = snapshot(tmp_path, leave_out=("run", "var"))
    with pytest.raises(Refused, match=r"Cannot configure podman in /etc/podman/main.conf: it says no\."):
        run(machine, entry(), entry("podman"))
    assert snapshot(tmp_path, leave_out=("run", "var")) == found
    assert len(machine.kinds["docker"].checked) == 1


def test_what_another_file_would_overrule_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The exclamation mark makes a value of this kind of engine count more than any other.
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: "!default_runtime=crun\n"})
    with pytest.raises(Refused) as caught:
        run(machine, entry(default=True))
    assert str(caught.value) == (
        "Cannot set default_runtime on docker: another file or line takes precedence over ours (found crun, wanted "
        f"nvidia). Look for it in {MAIN}, {DROP_IN}."
    )
    assert (machine.text(MAIN), machine.text(DROP_IN)) == ("!default_runtime=crun\n", None)


def test_what_somebody_else_writes_while_the_new_file_is_judged_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: MINE})
    theirs = "# of the package\nlog=journald\n"
    monkeypatch.setattr(machine.kinds["docker"], "check", lambda *_arguments: machine.write(MAIN, theirs))
    with pytest.raises(Refused) as caught:
        run(machine, entry())
    assert str(caught.value) == (
        f"Cannot change {MAIN}: something else changed it while the new version was checked. Run again."
    )
    assert (machine.text(MAIN), machine.text(DROP_IN)) == (theirs, None)
    monkeypatch.undo()
    again = EngineMachine(tmp_path, monkeypatch)
    run(again, entry())
    assert again.settings() == {"log": "journald", NVIDIA: RUNTIME_PATH}


def test_a_run_that_is_killed_anywhere_leaves_files_that_the_engine_accepts_and_the_next_run_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 40):
        root = tmp_path / str(number)
        machine = EngineMachine(root, monkeypatch, {MAIN: MINE})
        found = snapshot(root)
        machine.host.files.kill_at = number
        try:
            run(machine, entry(default=True))
        except Killed:
            assert machine.settings()["log"] == "json"
            machine.host.files.kill_at = None
            assert run(machine, entry(default=True)).remaining.status == "in_sync"
            assert machine.settings()["default_runtime"] == "nvidia"
            absent(machine)
            assert snapshot(root) == found
        else:
            assert number > 8
            break
    else:
        pytest.fail("it never ended")


def test_a_way_back_that_is_killed_anywhere_leaves_files_that_the_engine_accepts_and_the_next_run_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 40):
        root = tmp_path / str(number)
        machine = EngineMachine(root, monkeypatch, {MAIN: MINE})
        found = snapshot(root)
        run(machine, entry(default=True))
        machine.writes()
        machine.host.files.kill_at = number
        try:
            absent(machine)
        except Killed:
            assert machine.settings()["log"] == "json"
            machine.host.files.kill_at = None
            absent(machine)
            assert snapshot(root) == found
        else:
            assert number > 5
            break
    else:
        pytest.fail("it never ended")


# --- the way back -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [None, "", MINE, "log=json", f"{NVIDIA}=/opt/other\ndefault_runtime=crun\ncdi=true\n"],
    ids=["missing", "empty", "of the site", "no last newline", "with values of its own"],
)
def test_absent_gives_every_file_back_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: Any) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {} if text is None else {MAIN: text})
    found = snapshot(tmp_path)
    run(machine, entry(default=True))
    run(machine, entry(default=True, cdi=False))
    assert absent(machine).status == "drifted"
    assert snapshot(tmp_path) == found
    machine.writes()
    again = absent(machine)
    assert (again.status, again.changes, machine.writes()) == ("in_sync", (), [])


def test_a_link_stays_a_link_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {"/srv/site.conf": MINE, "/etc/docker/.keep": ""})
    (tmp_path / MAIN[1:]).symlink_to("/srv/site.conf")
    found = snapshot(tmp_path)
    run(machine, entry())
    assert (tmp_path / MAIN[1:]).is_symlink()
    assert "import=" in (machine.text("/srv/site.conf") or "")
    absent(machine)
    assert snapshot(tmp_path) == found


def test_what_somebody_edited_since_stays_and_the_meaning_from_before_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: "default_runtime=crun\ncdi=false\n"})
    run(machine, entry(default=True, cdi=True))
    machine.write(MAIN, f"{machine.text(MAIN)}log=json\n")
    absent(machine)
    assert machine.settings() == {"default_runtime": "crun", "cdi": False, "log": "json"}
    assert machine.text(DROP_IN) is None
    assert not machine.host.files.exists("/var/lib/gpufleet")


def test_what_somebody_edited_between_two_runs_of_ours_stays_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: "default_runtime=crun\n"})
    run(machine, entry())
    machine.write(MAIN, f"{machine.text(MAIN)}log=json\ncdi=false\n")
    run(machine, entry(default=True, cdi=True))
    # One more, which finds the file as the run before it left it.
    run(machine, entry(default=False, cdi=True))
    absent(machine)
    assert machine.settings() == {"default_runtime": "crun", "log": "json", "cdi": False}


def test_what_was_taken_away_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: f"{NVIDIA}=/opt/other\n"})
    run(machine, entry(state="absent"))
    absent(machine)
    assert machine.text(MAIN) == f"{NVIDIA}=/opt/other\n"


def test_a_daemon_that_still_has_it_is_pending_and_the_record_stays_until_it_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: MINE}, running=("docker",))
    run(machine, entry(default=True))
    machine.restart()
    outcome = absent(machine)
    assert machine.text(MAIN) == MINE
    assert (outcome.remaining.status, outcome.remaining.needs) == ("pending", ("restart_docker",))
    assert machine.text(BEFORE) is not None
    assert absent(machine).remaining.needs == ("restart_docker",)
    machine.restart()
    assert absent(machine).remaining.status == "in_sync"
    assert not machine.host.files.exists("/var/lib/gpufleet")


def test_the_files_of_an_engine_that_is_gone_go_as_far_as_they_are_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: MINE}, engines=("docker", "crio"))
    run(machine, entry(), entry("crio"))
    machine.write(drop_in_of("crio"), "log=plain\n")
    for engine in ("docker", "crio"):
        machine.uninstall(engine)
    outcome = absent(machine)
    assert (machine.text(MAIN), machine.text(DROP_IN)) == (MINE, None)
    assert machine.text(drop_in_of("crio")) == "log=plain\n"
    assert machine.text(main_of("crio")) is None
    reasons = {(one.object, one.setting): one.reason for one in outcome.remaining.unmanaged}
    assert reasons[("docker", NVIDIA)] == "it is not installed"
    assert (machine.text(RECORD), machine.text(BEFORE)) == (None, None)


def test_an_engine_that_is_no_longer_declared_is_left_as_it_is_until_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, engines=("docker", "podman"))
    run(machine, entry(), entry("podman"))
    run(machine, entry("podman"))
    assert machine.settings()[NVIDIA] == RUNTIME_PATH
    absent(machine)
    assert machine.settings() == machine.settings("podman") == {}


# --- the previous configuration ---------------------------------------------------------------------------------------


def test_what_the_daemon_was_well_with_is_kept_until_it_has_taken_up_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: MINE}, running=("docker",))
    run(machine, entry())
    first = machine.text(MAIN)
    run(machine, entry(default=True))
    kept = {edit.path: edit for edit in last_good.load(machine.host.files, "docker")}
    assert kept[MAIN] == Edit(MAIN, MINE, first)
    assert kept[DROP_IN] == Edit(DROP_IN, None, machine.text(DROP_IN))
    machine.restart()
    run(machine, entry(default=False))
    (only,) = last_good.load(machine.host.files, "docker")
    assert only.before == f"{NVIDIA}={RUNTIME_PATH}\ndefault_runtime=nvidia\n"


def test_the_previous_configuration_is_for_root_alone_and_goes_when_it_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, {MAIN: MINE})
    run(machine, entry())
    for path in (f"{PREVIOUS}/docker.json", RECORD):
        assert machine.host.files.mode(path) == 0o600
    last_good.drop(machine.host.files, "docker")
    assert last_good.load(machine.host.files, "docker") == ()
    assert not machine.host.files.exists(PREVIOUS)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"schema": 2, "files": []}',
        '{"schema": 1, "files": [{"path": "/x"}]}',
        '{"schema": 1, "files": [{"path": 5, "before": null, "after": ""}]}',
        '{"schema": 1, "files": [{"path": "x", "before": null, "after": ""}]}',
        '{"schema": 1, "files": [{"path": "/x", "before": [], "after": ""}]}',
    ],
)
def test_a_damaged_record_of_the_previous_configuration_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch)
    machine.write(f"{PREVIOUS}/docker.json", text)
    with pytest.raises(CannotLook, match=f"previous configuration in {PREVIOUS}/docker.json: the file is damaged"):
        last_good.load(machine.host.files, "docker")


# --- records ----------------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_text_come_back_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = EngineMachine(tmp_path, monkeypatch)
    target = tmp_path / MAIN[1:]
    target.parent.mkdir(parents=True)
    target.write_bytes(b"log=\xff\xfe\n")
    run(machine, entry())
    absent(machine)
    assert target.read_bytes() == b"log=\xff\xfe\n"


def test_the_declaration_on_the_node_is_what_is_no_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = EngineMachine(tmp_path, monkeypatch)
    run(machine, entry(default=True))
    declared = json.loads(machine.text(DECLARED) or "")
    assert declared["apply_at_boot"] is False
    assert declared["declaration"]["engines"] == [
        {
            "engine": "docker",
            "state": "present",
            "runtime_name": "nvidia",
            "runtime_path": RUNTIME_PATH,
            "default": True,
        }
    ]


def test_a_failure_in_the_middle_says_what_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, engines=("docker", "podman"))
    machine.host.files.full.append("/etc/podman")
    outcome = converge(CONCERN, params(entry(), entry("podman")), machine.host, check_mode=False)
    assert str(outcome.error) == "Cannot write /etc/podman/conf.d/99-gpufleet.conf: No space left on device."
    assert {change.object for change in outcome.changes} == {"docker"}
    assert machine.settings("podman") == {}
