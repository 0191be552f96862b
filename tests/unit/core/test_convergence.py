# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convergence of a concern of two tunables and a file: what a run does, says and leaves behind."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any, List, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import baseline, contract, convergence, declared
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import (
    Blocker,
    Change,
    Plan,
    Step,
    WriteAttribute,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Scope
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    InUse,
    NotInEffect,
    NotPermitted,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Host
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import BOOT, EFFECTIVE
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace
from ansible_collections.gpufleet.node.tests.unit.core.tunables_concern import (
    ABSENT,
    CONF,
    LATER,
    PRESENT,
    TUNABLES,
    Desired,
    Elsewhere,
    State,
    Tunables,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, KernelFiles, Killed, build, snapshot


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return build(tmp_path, {TUNABLES[0]: "1\n", TUNABLES[1]: "2\n", "/etc/keep": "", "/var/lib/keep": ""})


def test_check_mode_writes_nothing_at_all(host: FakeHost, tmp_path: Path) -> None:
    found = snapshot(tmp_path, leave_out=())
    outcome = run(host, check_mode=True)
    assert outcome.as_dict()["changed"] is True
    assert host.files.log == []
    assert host.journal_lines == []
    assert snapshot(tmp_path, leave_out=()) == found


@pytest.mark.parametrize("params", [PRESENT, {**PRESENT, "permanent": False}, {**PRESENT, "immediate": False}])
def test_what_check_mode_predicts_is_what_a_run_does(host: FakeHost, params: Mapping[str, Any]) -> None:
    predicted = run(host, params, check_mode=True).as_dict()
    done = run(host, params).as_dict()
    for key in ("changed", "changes", "diff", "status", "needs"):
        assert done[key] == predicted[key]
    assert predicted["changed"] is True


def test_a_run_brings_the_machine_to_what_is_declared(host: FakeHost) -> None:
    result = run(host).as_dict()
    assert "failed" not in result
    assert [host.files.read(path) for path in TUNABLES] == ["7\n", "7\n"]
    assert host.files.read(CONF) == "/sys/kernel/fan = 7\n/sys/kernel/lamp = 7\n"
    assert (result["status"], result["effective"]) == ("drifted", {"tunables": ["7", "7"]})


def test_a_second_run_changes_and_writes_nothing(host: FakeHost, tmp_path: Path) -> None:
    run(host)
    found = snapshot(tmp_path, leave_out=())
    host.files.log.clear()
    host.journal_lines.clear()
    result = run(host).as_dict()
    assert (result["changed"], result["changes"], result["status"]) == (False, [], "in_sync")
    assert result["diff"] == {"before": "", "after": ""}
    assert host.files.log == []
    assert host.journal_lines == []
    assert snapshot(tmp_path, leave_out=()) == found


def test_the_diff_has_one_line_for_each_change_and_says_what_is_for_the_next_boot(host: FakeHost) -> None:
    assert run(host, check_mode=True).as_dict()["diff"] == {
        "before": (
            "/sys/kernel/fan value (boot): -\n"
            "/sys/kernel/lamp value (boot): -\n"
            "/etc/gpufleet/declared.d/tunables.json declaration (boot): -\n"
            "/sys/kernel/fan value: 1\n"
            "/sys/kernel/lamp value: 2\n"
        ),
        "after": (
            "/sys/kernel/fan value (boot): 7\n"
            "/sys/kernel/lamp value (boot): 7\n"
            "/etc/gpufleet/declared.d/tunables.json declaration (boot): as declared\n"
            "/sys/kernel/fan value: 7\n"
            "/sys/kernel/lamp value: 7\n"
        ),
    }


def test_diff_mode_shows_what_changes_in_foreign_files_before_a_run_and_after_it(host: FakeHost) -> None:
    host.files.replace("/etc/last", "7\n")
    shown = "--- /etc/first\n+++ /etc/first\n@@ -0,0 +1 @@\n+7\n"
    assert "prepared" not in convergence.converge(Elsewhere(), PRESENT, host, check_mode=True).as_dict()["diff"]
    for check_mode in (True, False):
        outcome = convergence.converge(Elsewhere(), PRESENT, host, check_mode=check_mode, diff=True)
        assert outcome.as_dict()["diff"]["prepared"] == shown


def test_a_foreign_file_that_a_run_did_not_get_to_is_not_shown_as_changed(host: FakeHost) -> None:
    host.files.full.append("/etc/last")
    result = convergence.converge(Elsewhere(), PRESENT, host, check_mode=False, diff=True).as_dict()
    assert result["failed"] is True
    assert "/etc/first" in result["diff"]["prepared"]
    assert "/etc/last" not in result["diff"]["prepared"]


def test_a_foreign_file_that_came_into_use_during_the_run_is_not_shown_as_changed(host: FakeHost) -> None:
    class Late(Elsewhere):
        """After the first step, its users no longer let anything change."""

        options: Mapping[str, Any] = {**Tunables.options, "when_busy": {"type": "str"}}
        in_use = False

        def plan(self, state: State, desired: Desired, scope: Scope) -> Plan:
            plan = super().plan(state, desired, scope)
            return replace(plan, settings=(), steps=plan.steps[:1]) if self.in_use else plan

        def perform(self, step: Step, host: Host) -> None:
            if isinstance(step.action, WriteAttribute):
                self.in_use = True
                error = InUse("set {}", object=step.action.path, cause="it is in use")
                error.late = True
                raise error
            super().perform(step, host)

    result = convergence.converge(
        Late(), {**PRESENT, "when_busy": "skip", "permanent": False}, host, check_mode=False, diff=True
    ).as_dict()
    assert "failed" not in result
    assert "/etc/first" in result["diff"]["prepared"]
    assert "/etc/last" not in result["diff"]["prepared"]


def test_each_change_is_one_line_in_the_journal(host: FakeHost) -> None:
    changes = run(host).changes
    assert len(host.journal_lines) == len(changes)
    assert host.journal_lines[-1] == "tunables: /sys/kernel/lamp value: 2 -> 7 (effective)"


def test_a_step_that_made_other_changes_than_its_own_says_so_and_they_are_what_is_reported(host: FakeHost) -> None:
    class Choosy(Tunables):
        """It leaves the fan alone, as if the machine did not let anybody set it."""

        def plan(self, state: State, desired: Desired, scope: Scope) -> Plan:
            plan = super().plan(state, desired, scope)
            return replace(plan, settings=tuple(s for s in plan.settings if s.object != TUNABLES[0]))

        def perform(self, step: Step, host: Host) -> Tuple[Change, ...]:  # type: ignore[override]
            if isinstance(step.action, WriteAttribute) and step.action.path == TUNABLES[0]:
                return ()
            super().perform(step, host)
            return step.changes

    left = {**PRESENT, "permanent": False}
    changes = convergence.converge(Choosy(), left, host, check_mode=False).changes
    assert [change.object for change in changes] == [TUNABLES[1]]
    assert host.journal_lines == ["tunables: /sys/kernel/lamp value: 2 -> 7 (effective)"]


def test_a_value_that_does_not_take_is_a_failure_that_names_both(host: FakeHost) -> None:
    def clamp(files: KernelFiles, match: re.Match[str], value: str) -> None:
        files.store(match[0], str(min(int(value), 4)))

    host.files.rules.append((TUNABLES[0], clamp))
    outcome = run(host)
    result = outcome.as_dict()
    assert isinstance(outcome.error, NotInEffect)
    assert result["failed"] is True
    assert result["failure"]["code"] == "not_in_effect"
    assert (result["failure"]["object"], result["failure"]["found"], result["failure"]["wanted"]) == (
        TUNABLES[0],
        "4",
        "7",
    )
    assert "found 4, wanted 7" in result["msg"]
    assert result["changed"] is True
    assert result["effective"] == {"tunables": ["4", "7"]}


def test_a_step_that_fails_ends_the_run_and_what_was_done_is_reported(host: FakeHost) -> None:
    def refuse(files: KernelFiles, match: re.Match[str], value: str) -> None:
        raise OSError(22, "Invalid argument", match[0])

    host.files.rules.append((TUNABLES[1], refuse))
    outcome = run(host)
    result = outcome.as_dict()
    assert isinstance(outcome.error, Refused)
    assert [(c["object"], c["scope"]) for c in result["changes"]] == [
        (TUNABLES[0], "boot"),
        (TUNABLES[1], "boot"),
        ("/etc/gpufleet/declared.d/tunables.json", "boot"),
        (TUNABLES[0], "effective"),
    ]
    assert (result["changed"], result["failed"]) == (True, True)
    assert result["failure"] == {"code": "refused", "object": TUNABLES[1], "found": "2", "wanted": "7", "hint": ""}
    assert result["msg"] == (
        "Cannot set value in /sys/kernel/lamp: the kernel refused the value at /sys/kernel/lamp: Invalid argument"
        " (found 2, wanted 7)."
    )
    assert len(host.journal_lines) == 4


def test_what_a_failed_step_did_all_the_same_is_reported_with_the_value_that_is_there(host: FakeHost) -> None:
    def half(files: KernelFiles, match: re.Match[str], value: str) -> None:
        files.store(match[0], "4")
        raise OSError(22, "Invalid argument", match[0])

    host.files.rules.append((TUNABLES[1], half))
    result = run(host, {**PRESENT, "permanent": False}).as_dict()
    assert [(change["object"], change["after"]) for change in result["changes"]] == [
        (TUNABLES[0], "7"),
        (TUNABLES[1], "4"),
    ]
    assert host.journal_lines[-1] == "tunables: /sys/kernel/lamp value: 2 -> 4 (effective)"


def test_a_folder_that_refuses_writes_is_reported_with_what_was_done(host: FakeHost) -> None:
    path = "/etc/gpufleet/declared.d/tunables.json"
    host.files.full.append("/etc/gpufleet")
    outcome = run(host)
    assert isinstance(outcome.error, NotPermitted)
    assert str(outcome.error) == f"Cannot write {path}: No space left on device."
    assert [(change.object, change.scope) for change in outcome.changes] == [(tunable, BOOT) for tunable in TUNABLES]


def test_a_look_that_fails_after_the_changes_still_reports_them(host: FakeHost) -> None:
    def vanish(files: KernelFiles, match: re.Match[str], value: str) -> None:
        os.unlink(files.locate(match[0]))

    host.files.rules.append((TUNABLES[1], vanish))
    outcome = run(host, {**PRESENT, "permanent": False})
    assert isinstance(outcome.error, CannotLook)
    assert outcome.as_dict()["changed"] is True
    assert [change.object for change in outcome.changes] == list(TUNABLES)


def test_wrong_input_fails_before_anything_changes(host: FakeHost, tmp_path: Path) -> None:
    found = snapshot(tmp_path)
    with pytest.raises(DeclarationError, match="the value is not a number"):
        run(host, {**PRESENT, "value": "fast"})
    assert host.files.log == []
    assert snapshot(tmp_path) == found


def test_a_machine_that_cannot_be_read_is_unknown_and_unchanged(host: FakeHost, tmp_path: Path) -> None:
    (tmp_path / TUNABLES[1][1:]).unlink()
    with pytest.raises(CannotLook, match=r"Cannot look at tunables in .*lamp: No such file or directory"):
        run(host)
    assert host.files.log == []


def test_without_root_a_difference_is_refused_and_nothing_is_written(host: FakeHost, tmp_path: Path) -> None:
    host.may_change = False
    found = snapshot(tmp_path, leave_out=())
    with pytest.raises(NotPermitted, match=r"not running as root.* Run the task with become: true"):
        run(host)
    assert snapshot(tmp_path, leave_out=()) == found


def test_without_root_a_machine_that_is_right_is_right(host: FakeHost, tmp_path: Path) -> None:
    run(host)
    host.may_change = False
    found = snapshot(tmp_path, leave_out=())
    assert run(host).as_dict()["status"] == "in_sync"
    assert snapshot(tmp_path, leave_out=()) == found


def test_another_run_that_holds_the_lock_is_waited_for_and_then_named(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convergence, "LOCK_TIMEOUT_SECONDS", 0.2)
    with (
        host.files.lock(contract.LOCK, 0.0),
        pytest.raises(NotPermitted, match=r"held by another run.* Wait until the other run has ended"),
    ):
        run(host)
    assert host.files.log == []
    assert run(host).as_dict()["changed"] is True


def test_a_lock_that_cannot_be_made_is_no_lock_that_is_held(host: FakeHost, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("not a folder")
    with pytest.raises(NotPermitted, match="Cannot change tunables") as caught:
        run(host)
    assert "another run" not in str(caught.value)
    assert host.files.log == []


# Boot and the declaration


@pytest.mark.parametrize("seen", ["unreadable", "not in effect"])
def test_what_another_run_was_in_the_middle_of_is_looked_at_again_when_that_has_ended(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, seen: str
) -> None:
    run(host)
    if seen == "unreadable":
        host.files.store(TUNABLES[0], "1")
        os.rename(host.files.locate(TUNABLES[0]), host.files.locate(f"{TUNABLES[0]}.away"))
    else:
        # The plan has no step for it.
        plan = Tunables.plan

        def without_steps(self: Tunables, state: State, desired: Desired, scope: Scope) -> Plan:
            return replace(plan(self, state, desired, scope), steps=())

        monkeypatch.setattr(Tunables, "plan", without_steps)
        host.files.store(TUNABLES[0], "1")

    def other_run_ends() -> None:
        host.files.before_lock = lambda: None
        if seen == "unreadable":
            os.rename(host.files.locate(f"{TUNABLES[0]}.away"), host.files.locate(TUNABLES[0]))
        host.files.store(TUNABLES[0], "7")

    host.files.before_lock = other_run_ends
    outcome = run(host)
    assert (outcome.error, outcome.status, outcome.changes) == (None, "in_sync", ())


def test_what_is_wrong_is_said_as_it_is_where_the_lock_cannot_be_had(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only() -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/run/gpufleet")

    host.files.before_lock = read_only
    with pytest.raises(DeclarationError, match="the value is not a number"):
        run(host, {**PRESENT, "value": "x"})


def test_a_setting_that_waits_for_a_reboot_is_pending_until_then(host: FakeHost) -> None:
    reason = f"/sys/kernel/lamp value is 2, wanted 7: {LATER}"
    first = run(host, lamp_at_boot=True).as_dict()
    assert (first["needs"], first["reboot_required"], first["reboot_reasons"]) == (["reboot"], True, [reason])
    assert first["pending_reasons"] == [reason]
    assert "failed" not in first
    assert host.files.read(f"{contract.REBOOT_FOLDER}/tunables") == f"{reason}\n"
    second = run(host, lamp_at_boot=True).as_dict()
    assert (second["changed"], second["status"], second["needs"]) == (False, "pending", ["reboot"])
    # What the boot does.
    host.files.store(TUNABLES[1], "7")
    third = run(host, lamp_at_boot=True).as_dict()
    assert (third["status"], third["needs"], third["reboot_required"]) == ("in_sync", [], False)
    assert not host.files.exists(f"{contract.REBOOT_FOLDER}/tunables")


def test_the_declaration_is_left_on_the_node_only_when_it_is_permanent(host: FakeHost) -> None:
    run(host, {**PRESENT, "permanent": False})
    assert declared.names(host.files) == ()
    run(host)
    assert declared.names(host.files) == ("tunables",)
    document = json.loads(host.files.read(declared.path_of("tunables")))
    # Only what is no default: an option that a later release adds changes no declaration.
    assert (document["concern"], document["declaration"]) == ("tunables", {"value": "7"})


def test_the_same_declaration_by_another_release_is_no_change(host: FakeHost) -> None:
    run(host)
    path = declared.path_of("tunables")
    older = {**json.loads(host.files.read(path)), "collection_version": "0.0.1"}
    host.files.replace(path, json.dumps(older))
    assert run(host).as_dict()["changed"] is False
    assert json.loads(host.files.read(path))["collection_version"] == "0.0.1"


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}', ""])
def test_a_damaged_declaration_is_written_again(host: FakeHost, text: str) -> None:
    run(host)
    host.files.replace(declared.path_of("tunables"), text)
    result = run(host).as_dict()
    assert [(c["setting"], c["before"], c["after"]) for c in result["changes"]] == [
        ("declaration", "damaged", "as declared")
    ]
    assert run(host).as_dict()["changed"] is False


# Killed


def sequence(tmp_path: Path, name: str, kill_at: Optional[int]) -> Tuple[FakeHost, bool]:
    host = build(tmp_path / name, {TUNABLES[0]: "1\n", TUNABLES[1]: "2\n", "/etc/keep": "", "/var/lib/keep": ""})
    host.files.kill_at = kill_at
    try:
        run(host)
    except Killed:
        host.files.kill_at = None
        return host, True
    return host, False


def test_a_run_killed_at_any_side_effect_is_finished_by_the_next_and_forgets_nothing(tmp_path: Path) -> None:
    number = 0
    killed = True
    while killed:
        number += 1
        host, killed = sequence(tmp_path, f"run{number}", number)
        found = snapshot(tmp_path / f"run{number}")
        if not killed:
            break
        result = run(host).as_dict()
        assert "failed" not in result
        assert run(host).as_dict()["changed"] is False
        assert [host.files.read(path) for path in TUNABLES] == ["7\n", "7\n"], found
        values = baseline.load(host.files, "tunables").values
        assert [values[(path, "value")].effective for path in TUNABLES] == ["1", "2"]
        run(host, ABSENT)
        assert [host.files.read(path) for path in TUNABLES] == ["1\n", "2\n"]
        assert not host.files.exists("/etc/gpufleet")
        assert not host.files.exists("/etc/tunables.d")
    # The record of the values, two tunables, the file, the declaration; each file is written and then moved.
    assert number == 11


def test_restoring_killed_at_any_side_effect_is_finished_by_the_next_run(tmp_path: Path) -> None:
    number = 0
    killed = True
    while killed:
        number += 1
        host, _path = sequence(tmp_path, f"run{number}", None)
        host.files.log.clear()
        host.files.kill_at = number
        try:
            run(host, ABSENT)
            killed = False
        except Killed:
            host.files.kill_at = None
            run(host, ABSENT)
        host.files.kill_at = None
        assert [host.files.read(path) for path in TUNABLES] == ["1\n", "2\n"]
        assert host.files.names("/etc") == ("keep",)
        assert host.files.names("/var/lib") == ("keep",)
    assert number > 4


# --- what is in the way -----------------------------------------------------------------------------------------------


class Guarded(Tunables):
    """Somebody stands at the tunables, and leaves after so many looks."""

    def __init__(self, *, timeout: float = 0.0, leaves_after: int = 1000) -> None:
        super().__init__()
        self.timeout = timeout
        self.looks_left = leaves_after

    def observe(self, host: Host, declaration: str, scope: Scope) -> State:
        self.looks_left -= 1
        return super().observe(host, declaration, scope)

    def plan(self, state: State, desired: Desired, scope: Scope) -> Plan:
        plan = super().plan(state, desired, scope)
        somebody = InUse("turn the tunables", object="fan", cause="somebody stands there")
        there = plan.steps and self.looks_left > 0
        return replace(plan, blocker=Blocker(somebody, self.timeout) if there else None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> List[float]:
    """Sleeping passes the time at once; the list is what was slept."""
    slept: List[float] = []
    monkeypatch.setattr(convergence.time, "sleep", slept.append)
    monkeypatch.setattr(convergence.time, "monotonic", lambda: sum(slept))
    return slept


def test_what_is_in_the_way_fails_the_run_before_its_first_step(host: FakeHost, tmp_path: Path) -> None:
    found = snapshot(tmp_path)
    with pytest.raises(InUse, match="somebody stands there"):
        convergence.converge(Guarded(), PRESENT, host, check_mode=False)
    assert snapshot(tmp_path) == found


def test_check_mode_shows_what_is_in_the_way_and_what_it_keeps_from_being_made(host: FakeHost) -> None:
    result = convergence.converge(Guarded(), PRESENT, host, check_mode=True).as_dict()
    assert (result["failed"], result["failure"]["code"]) == (True, "in_use")
    assert [change["after"] for change in result["changes"] if change["scope"] == EFFECTIVE] == ["7", "7"]


def test_who_may_not_wait_fails_at_once(host: FakeHost, clock: List[float]) -> None:
    with pytest.raises(InUse):
        convergence.converge(Guarded(timeout=60.0), PRESENT, host, check_mode=False, may_wait=False)
    assert clock == []


def test_a_run_that_waits_makes_a_new_plan_when_the_way_is_free(host: FakeHost, clock: List[float]) -> None:
    outcome = convergence.converge(Guarded(timeout=60.0, leaves_after=4), PRESENT, host, check_mode=False)
    assert outcome.error is None
    assert [host.files.read(path).strip() for path in TUNABLES] == ["7", "7"]
    assert clock == [convergence.POLL_SECONDS, convergence.POLL_SECONDS]


def test_a_run_that_waits_leaves_the_lock_to_others_meanwhile(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    free: List[bool] = []

    def sleep(seconds: float) -> None:
        with host.files.lock(contract.LOCK, 0.1):
            free.append(True)

    monkeypatch.setattr(convergence.time, "sleep", sleep)
    convergence.converge(Guarded(timeout=60.0, leaves_after=3), PRESENT, host, check_mode=False)
    assert free == [True]


def test_a_run_that_waited_long_enough_fails_and_changes_nothing(
    host: FakeHost, tmp_path: Path, clock: List[float]
) -> None:
    found = snapshot(tmp_path)
    with pytest.raises(InUse, match="somebody stands there"):
        convergence.converge(Guarded(timeout=12.0), PRESENT, host, check_mode=False)
    assert clock == [5.0, 5.0, 2.0]
    assert snapshot(tmp_path) == found


def test_check_mode_predicts_what_a_run_that_waits_will_do(host: FakeHost) -> None:
    outcome = convergence.converge(Guarded(timeout=60.0), PRESENT, host, check_mode=True)
    assert outcome.error is None
    assert {change.after for change in outcome.changes if change.scope == EFFECTIVE} == {"7"}
