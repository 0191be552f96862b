# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run says before it changes something, what a second one finds, and what is left when all is given back."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.file_diff import file_diffs, is_foreign
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd, systemd_apply
from ansible_collections.gpufleet.node.tests.unit.contract.announced import run_traced, unannounced, units_run
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import (
    ABSENT,
    CONCERNS,
    OTHER,
    PRESENT,
    Nodes,
    difference,
)
from ansible_collections.gpufleet.node.tests.unit.foresight import UNLISTED

pytestmark = pytest.mark.once
pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)

# From nothing of ours to nothing of ours, by every way there is.
JOURNEY = (PRESENT, OTHER, ABSENT, OTHER, PRESENT, ABSENT)
# What every run leaves until the next boot.
LOCK = "/run/gpufleet/lock"


@pytest.mark.parametrize("concern", CONCERNS)
def test_check_mode_and_the_look_say_what_the_run_then_does_and_change_nothing(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    for verb in JOURNEY:
        before = node.everything()
        node.effects.clear()
        node.host.journal_lines.clear()
        look = node.look(verb)
        predicted = node.attempt(verb, check_mode=True)
        assert (node.effects, node.host.journal_lines) == ([], [])
        assert node.everything() == before
        announced = {one["path"] for one in file_diffs(predicted.remaining.steps, node.host.files)}
        traced, made = run_traced(node, verb)
        written = {path for kind, path, _text in node.effects if kind in ("replace", "remove")}
        # The stand-in of update-initramfs writes what no plan has the text of.
        assert {path for path in written if is_foreign(path) and not path.startswith("/boot/initrd")} == announced
        assert predicted.error is None
        assert [taken.step for taken in traced.taken] == list(predicted.remaining.steps)
        if concern not in UNLISTED:
            assert list(unannounced(traced, node, before[0])) == []
            named = {change.object for change in predicted.changes} | set(look.get("restarts", ()))
            assert {unit for unit in units_run(node.effects) if not any(unit in name for name in named)} == set()
        assert made.changes == predicted.changes != ()
        assert "msg" not in look, look.get("exception", look.get("msg"))
        assert look["changes"] == [change.as_dict() for change in made.changes]
        assert look["status"] == predicted.status == made.status == "drifted"
        assert predicted.as_dict()["diff"] == made.as_dict()["diff"]
        assert set(predicted.remaining.needs) <= set(made.remaining.needs) == set(look["needs"])
        reasons = made.as_dict()["pending_reasons"]
        assert reasons == predicted.as_dict()["pending_reasons"]
        assert bool(reasons) == bool(look["needs"])
        assert predicted.remaining.reboot_reasons == made.remaining.reboot_reasons == tuple(look["reboot_reasons"])


@pytest.mark.parametrize("concern", CONCERNS)
def test_a_look_says_what_waits_while_containers_would_lose_their_gpus_by_a_reload(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, concern: str
) -> None:
    node = nodes(concern)
    for module in (systemd, systemd_apply):
        monkeypatch.setattr(module, "containers_that_lose_gpus", lambda host: "s.scope would lose its GPUs")
    for verb in (PRESENT, OTHER, ABSENT):
        announced = node.look(verb)["needs"]
        # A unit that systemd lets go of meanwhile needs no reload.
        assert set(node.outcome(verb).remaining.needs) <= set(announced), verb


@pytest.mark.parametrize("concern", CONCERNS)
def test_a_second_run_changes_nothing_and_takes_no_step(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    for verb in (PRESENT, OTHER, ABSENT):
        first = node.converge(verb)
        before = node.everything()
        node.effects.clear()
        node.host.journal_lines.clear()
        outcome = node.converge(verb)
        assert outcome.changes == ()
        assert outcome.status in ("in_sync", "pending")
        assert outcome.remaining.needs == first.remaining.needs
        assert (node.effects, node.host.journal_lines) == ([], [])
        assert node.everything() == before
        look = node.look(verb)
        assert (look["status"], look["changes"]) == (outcome.status, [])


@pytest.mark.parametrize("concern", CONCERNS)
def test_absent_gives_everything_back_and_leaves_no_file_of_ours(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    untouched = {path: entry for path, entry in node.everything()[0].items() if entry != ("folder",)}
    outside = node.found()
    for verbs in ((PRESENT,), (OTHER, PRESENT), (ABSENT,)):
        for verb in verbs:
            node.converge(verb)
        node.absent()
        assert node.differs_from(outside) == []
        tree = {path: entry for path, entry in node.everything()[0].items() if entry != ("folder",)}
        extra = [f"/{path}" for path, _then, _now in difference(tree, untouched)]
        assert [path for path in extra if path != LOCK and path not in node.left] == []
