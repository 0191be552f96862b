# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The look at a whole node, with small concerns of the tests' own in place of real ones."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.baseline import Baseline
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import (
    Blocker,
    Change,
    Conflict,
    Plan,
    Refuse,
    ReplaceFile,
    Step,
    Unmanaged,
    WriteAttribute,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import AnyConcern, Params, Scope
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    InUse,
    OwnedByAnother,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Host
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import EFFECTIVE, Setting
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node
from ansible_collections.gpufleet.node.plugins.module_utils._node.order import RegisteredConcern, in_order, to_converge
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.tests.unit.support import AT_ONCE_SECONDS, FakeHost, build


class Tunable:
    """A concern of one tunable; ``trouble`` is what happens instead of a plan."""

    def __init__(self, name: str, trouble: Any = None) -> None:
        self.name = name
        self.options: Mapping[str, Any] = {"value": {"type": "str"}}
        self.apply_at_boot = False
        self.trouble = trouble

    def parse(self, params: Params) -> str:
        return str(params["value"])

    def everything(self, params: Params, baseline: Baseline) -> str:
        return ""

    def observe(self, host: Host, declaration: str, scope: Scope) -> str:
        if callable(self.trouble):
            self.trouble()
        return host.files.read(f"/sys/{self.name}").strip()

    def resolve(self, declaration: str, state: str) -> str:
        if isinstance(self.trouble, Exception):
            raise self.trouble
        return declaration

    def restore(self, baseline: Baseline, state: str) -> str:
        return str(baseline.values[(self.name, "value")].effective)

    def plan(self, state: str, desired: str, scope: Scope) -> Plan:
        setting = Setting(self.name, "value", desired, state, None, self.name, boot_matters=False)
        change = Change(self.name, "value", state, desired, EFFECTIVE)
        steps = () if state == desired else (Step(WriteAttribute(f"/sys/{self.name}", desired), (change,)),)
        unmanaged = tuple(Unmanaged(f"device{number}", "value", "there is none") for number in range(64))
        return Plan(settings=(setting,), steps=steps, unmanaged=unmanaged)

    def perform(self, step: Step, host: Host) -> None:
        raise AssertionError("a look performs nothing")

    def report(self, state: str) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        return {"value": state}, {}


def validate(concern: AnyConcern, declaration: Mapping[str, Any]) -> Params:
    return {"state": "present", "immediate": True, "permanent": False, "strict": False, "accepted": [], **declaration}


def look(
    host: FakeHost, declared: Mapping[str, Any], *entries: RegisteredConcern, full: bool = False
) -> Dict[str, Any]:
    return assess_node(declared, host, validate=validate, full=full, registry=entries)


def declaration_of(entry: RegisteredConcern, declared: Mapping[str, Any]) -> str:
    """The document on the node once it was converged."""
    document = {
        "schema": 1,
        "concern": entry.name,
        "collection_version": "1",
        "apply_at_boot": entry.concern.apply_at_boot,
        "declaration": {"value": declared["value"]},
    }
    return json.dumps(document)


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return build(tmp_path, {"/sys/one": "1\n", "/sys/two": "2\n", "/etc/os-release": 'ID=debian\nVERSION_ID="13"\n'})


def test_concerns_that_are_right_differ_and_cannot_be_looked_at_are_told_apart(host: FakeHost) -> None:
    answer = look(
        host,
        {"one": {"value": "1"}, "two": {"value": "3"}, "gone": {"value": "4"}},
        RegisteredConcern.of(Tunable("one")),
        RegisteredConcern.of(Tunable("two")),
        RegisteredConcern.of(Tunable("gone")),
    )
    assert (answer["in_sync"], answer["drifted"], answer["unknown"]) == (["one"], ["two"], ["gone"])
    assert answer["to_converge"] == ["two", "gone"]
    assert answer["concerns"]["gone"]["failure"]["code"] == "cannot_look"
    assert answer["concerns"]["two"]["changes"][0]["after"] == "3"


class Waits(Tunable):
    """A concern whose value comes into effect when somebody hears of it, or with the next boot."""

    def __init__(self, name: str, *, needs: str) -> None:
        super().__init__(name)
        self.needs = needs

    def plan(self, state: str, desired: str, scope: Scope) -> Plan:
        setting = Setting(
            self.name, "value", desired, state, desired, self.name, pending="nobody was told", needs=self.needs
        )
        return Plan(settings=(setting,))


@pytest.mark.parametrize(("needs", "to_converge"), [("listener", ["one"]), ("reboot", [])])
def test_what_waits_for_somebody_to_be_told_is_run_again_until_he_was(
    host: FakeHost, needs: str, to_converge: List[str]
) -> None:
    answer = look(host, {"one": {"value": "2"}}, RegisteredConcern.of(Waits("one", needs=needs), tells=("listener",)))
    assert (answer["pending"], answer["to_converge"]) == (["one"], to_converge)


class Doubted(Waits):
    """A concern that another owner may set at boot."""

    def plan(self, state: str, desired: str, scope: Scope) -> Plan:
        conflict = Conflict("tune.service", "/opt/tune", 3, self.name, "value", "9", "unknown")
        return replace(super().plan(state, desired, scope), conflicts=(conflict,))


def test_what_another_may_set_at_boot_needs_no_run_and_what_waits_still_waits(host: FakeHost) -> None:
    entries = [RegisteredConcern.of(Doubted(name, needs="reboot")) for name in ("one", "two")]
    declared = {"one": {"value": "1", "permanent": True}, "two": {"value": "3", "permanent": True}}
    for entry in entries:
        host.files.replace(f"/etc/gpufleet/declared.d/{entry.name}.json", declaration_of(entry, declared[entry.name]))
    answer = look(host, declared, *entries)
    assert (answer["unknown_at_boot"], answer["unknown"], answer["in_sync"]) == (["one", "two"], [], [])
    assert (answer["pending"], answer["to_converge"]) == (["two"], [])
    assert answer["concerns"]["one"]["msg"].startswith(
        "The next boot may change one value: tune.service may set it to 9"
    )


class Occupied(Tunable):
    """A concern whose change somebody is in the way of."""

    def plan(self, state: str, desired: str, scope: Scope) -> Plan:
        return replace(super().plan(state, desired, scope), blocker=Blocker(InUse("turn it", cause="somebody uses it")))


def test_what_is_in_the_way_is_named_beside_the_changes_that_it_keeps_from_being_made(host: FakeHost) -> None:
    answer = look(host, {"one": {"value": "2"}}, RegisteredConcern.of(Occupied("one")))
    assert (answer["drifted"], answer["to_converge"]) == (["one"], ["one"])
    assert answer["concerns"]["one"]["failure"]["code"] == "in_use"
    assert answer["concerns"]["one"]["changes"][0]["after"] == "2"


def test_what_cannot_be_looked_at_until_another_concern_is_there_waits_for_it(host: FakeHost) -> None:
    declared = {"one": {"value": "2"}, "two": {"value": "2"}, "gone": {"value": "4"}}
    entries = (
        RegisteredConcern.of(Tunable("one"), cures=("cannot_look",)),
        RegisteredConcern.of(Tunable("two")),
        RegisteredConcern.of(Tunable("gone"), after=("one",)),
    )
    answer = look(host, declared, *entries)
    assert (answer["unknown"], answer["waiting"], answer["to_converge"]) == (["gone"], ["gone"], ["one", "gone"])
    host.files.write_attribute("/sys/one", "2")
    assert look(host, declared, *entries)["waiting"] == []


@pytest.mark.parametrize(
    ("trouble", "status", "listed"),
    [
        (CannotLook("look", cause="it is dark"), "unknown", []),
        (DeclarationError("look", cause="there is no such thing"), "invalid", ["one"]),
        (OwnedByAnother("set it", cause="tuned owns it"), "drifted", []),
    ],
)
def test_a_concern_in_trouble_does_not_stop_the_next(host: FakeHost, trouble: Any, status: str, listed: Any) -> None:
    answer = look(
        host,
        {"one": {"value": "1"}, "two": {"value": "2"}},
        RegisteredConcern.of(Tunable("one", trouble)),
        RegisteredConcern.of(Tunable("two")),
    )
    assert answer["concerns"]["one"]["status"] == status
    assert answer["concerns"]["one"]["msg"] == str(trouble)
    assert answer["invalid"] == listed
    assert answer["unknown"] == (["one"] if status == "unknown" else [])
    assert answer["in_sync"] == ["two"]


def test_a_concern_that_hangs_is_unknown_after_its_deadline(host: FakeHost) -> None:
    entry = RegisteredConcern.of(Tunable("one", lambda: time.sleep(30)), deadline=0.05)
    started = time.monotonic()
    answer = look(host, {"one": {"value": "1"}, "two": {"value": "2"}}, entry, RegisteredConcern.of(Tunable("two")))
    assert time.monotonic() - started < AT_ONCE_SECONDS
    assert answer["unknown"] == ["one"]
    assert "took longer than 0.05 s" in answer["concerns"]["one"]["msg"]
    assert answer["in_sync"] == ["two"]


def test_a_look_changes_nothing(host: FakeHost) -> None:
    look(host, {"one": {"value": "9"}}, RegisteredConcern.of(Tunable("one")))
    assert host.files.log == []
    assert host.commands.calls == []


def test_the_answer_of_a_converged_node_is_below_8_kib(host: FakeHost) -> None:
    answer = look(
        host,
        {"one": {"value": "1"}, "two": {"value": "2"}},
        RegisteredConcern.of(Tunable("one")),
        RegisteredConcern.of(Tunable("two")),
    )
    assert answer["concerns"]["one"]["unmanaged_total"] == 64
    assert len(json.dumps(answer)) < 8192


def test_full_detail_has_every_setting_and_the_state(host: FakeHost) -> None:
    result = look(host, {"one": {"value": "1"}}, RegisteredConcern.of(Tunable("one")), full=True)["concerns"]["one"]
    assert [row["status"] for row in result["settings"]] == ["in_sync"]
    assert result["effective"] == {"value": "1"}
    assert len(result["unmanaged"]) == 64


class Refusing(Tunable):
    """Its run sets the value and then fails."""

    def plan(self, state: str, desired: str, scope: Scope) -> Plan:
        plan = super().plan(state, desired, scope)
        missing = Refused("keep {}", object=self.name, cause="x is missing", hint="install x")
        missing.code = "no_x"
        return replace(plan, steps=(*plan.steps, Step(Refuse(missing)), Step(Refuse(None))))


def test_what_a_run_would_fail_with_is_foreseen_unless_another_concern_brings_it(host: FakeHost) -> None:
    declared = {"one": {"value": "2"}, "two": {"value": "3"}}
    one = RegisteredConcern.of(Refusing("one"))
    refusals = [{"code": "no_x", "msg": "Cannot keep one: x is missing. Install x."}]
    for two, expected in ((("no_y",), refusals), (("no_x",), [])):
        answer = look(host, declared, one, RegisteredConcern.of(Tunable("two"), cures=two))
        assert answer["concerns"]["one"]["refusals"] == expected
        assert "refusals" not in answer["concerns"]["two"]


class InAFile(Tunable):
    """It keeps its value in a foreign file too."""

    def plan(self, state: str, desired: str, scope: Scope) -> Plan:
        plan = super().plan(state, desired, scope)
        return replace(plan, steps=(*plan.steps, Step(ReplaceFile("/etc/one", f"{desired}\n"))))


def test_only_a_look_in_diff_mode_says_how_foreign_files_would_change(host: FakeHost) -> None:
    declared, entry = {"one": {"value": "2"}}, RegisteredConcern.of(InAFile("one"))
    assert "files" not in look(host, declared, entry)["concerns"]["one"]
    shown = "--- /etc/one\n+++ /etc/one\n@@ -0,0 +1 @@\n+2\n"
    for no_diff, difference in (([], shown), (["/etc/o*"], "")):
        found = assess_node(declared, host, validate=validate, full=False, no_diff=no_diff, registry=[entry])
        assert found["concerns"]["one"]["files"] == [{"path": "/etc/one", "diff": difference}]


def test_a_declaration_on_the_node_that_nobody_makes_is_named(host: FakeHost, tmp_path: Path) -> None:
    build(tmp_path, {"/etc/gpufleet/declared.d/two.json": "{}"})
    assert look(
        host, {"one": {"value": "1"}}, RegisteredConcern.of(Tunable("one")), RegisteredConcern.of(Tunable("two"))
    )["orphaned"] == ["two"]


def test_a_declaration_that_this_look_is_not_about_is_not_reported(host: FakeHost, tmp_path: Path) -> None:
    build(tmp_path, {"/etc/gpufleet/declared.d/two.json": "{}", "/etc/gpufleet/declared.d/.x.json": "{}"})
    answer = assess_node({}, host, validate=validate, full=False, excluded=["two"], registry=())
    assert answer["orphaned"] == []


def test_what_runs_left_on_the_node_is_named_whatever_is_declared(host: FakeHost, tmp_path: Path) -> None:
    assert (look(host, {})["managed"], look(host, {})["reboot_noted"]) == ([], {})
    build(
        tmp_path,
        {
            "/etc/gpufleet/declared.d/two.json": "{}",
            "/var/lib/gpufleet/baseline/gone.json": "{}",
            "/var/lib/gpufleet/baseline/two.json": "{}",
            "/run/gpufleet/reboot-required.d/gone": "pages are 4: the kernel took them at boot\nand more\n",
            "/run/gpufleet/reboot-required.d/.two.tmp": "half",
        },
    )
    answer = look(host, {})
    assert answer["managed"] == ["gone", "two"]
    assert answer["reboot_noted"] == {"gone": ["pages are 4: the kernel took them at boot", "and more"]}


def test_a_defect_in_one_concern_is_unknown_with_its_traceback(host: FakeHost) -> None:
    def crash() -> None:
        raise ZeroDivisionError("odd text in sysfs")

    answer = look(
        host,
        {"one": {"value": "1"}, "two": {"value": "2"}},
        RegisteredConcern.of(Tunable("one", crash)),
        RegisteredConcern.of(Tunable("two")),
    )
    assert answer["unknown"] == ["one"]
    assert "ZeroDivisionError: odd text in sysfs" in answer["concerns"]["one"]["msg"]
    assert "in crash" in answer["concerns"]["one"]["exception"]
    assert answer["in_sync"] == ["two"]


def test_facts_name_the_distribution(host: FakeHost) -> None:
    facts = look(host, {}, RegisteredConcern.of(Tunable("one")))["facts"]
    assert (facts["distribution"], facts["distribution_version"], facts["package_manager"]) == ("debian", "13", None)


def test_a_concern_runs_behind_those_it_comes_after() -> None:
    entries = (
        RegisteredConcern.of(Tunable("a"), after=("c",)),
        RegisteredConcern.of(Tunable("b")),
        RegisteredConcern.of(Tunable("c"), after=("b",)),
    )
    assert [entry.name for entry in in_order(entries)] == ["b", "c", "a"]


def test_concerns_that_come_after_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="come after each other"):
        in_order((RegisteredConcern.of(Tunable("a"), after=("b",)), RegisteredConcern.of(Tunable("b"), after=("a",))))


def test_what_a_change_disturbs_runs_too_where_it_is_declared() -> None:
    entries = (
        RegisteredConcern.of(Tunable("early")),
        RegisteredConcern.of(Tunable("reset"), disturbs=("late", "early", "absent")),
        RegisteredConcern.of(Tunable("late"), disturbs=("last",)),
        RegisteredConcern.of(Tunable("last")),
        RegisteredConcern.of(Tunable("absent")),
    )
    declared = ("early", "reset", "late", "last")
    assert to_converge(["reset"], declared=declared, registry=entries) == declared
    assert to_converge(["last"], declared=declared, registry=entries) == ("last",)


def test_the_registry_has_an_order_and_each_name_once() -> None:
    names = [entry.name for entry in REGISTRY]
    assert names == [entry.name for entry in in_order(REGISTRY)]
    assert len(names) == len(set(names))
