# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Without root, and on file systems that are read-only: what can be said is said, and nothing is half done."""

from __future__ import annotations

import functools
import os
import stat
from typing import Set

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import baseline
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import (
    ABSENT,
    CONCERNS,
    OTHER,
    PRESENT,
    Node,
    Nodes,
    difference,
    failure_of,
)

pytestmark = pytest.mark.once
pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)

BECOME = "run the task with become: true"


class RootsAlone:
    """The files of a tree that nobody but root may read."""

    def __init__(self, node: Node) -> None:
        self._files = node.host.files

    def __contains__(self, path: object) -> bool:
        found = self._files.status(str(path))
        return found is not None and not stat.S_IMODE(found.st_mode) & stat.S_IROTH


@pytest.mark.parametrize("concern", CONCERNS)
def test_who_is_not_root_may_look_and_is_refused_before_anything_changes(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    for verb in (PRESENT, ABSENT):
        predicted = node.check(verb)
        before = node.everything()
        node.host.may_change = False
        node.host.files.unreadable = RootsAlone(node)
        node.effects.clear()
        look, outcome = node.look(verb), node.outcome(verb)
        node.host.may_change, node.host.files.unreadable = True, ()
        assert outcome.error is not None
        assert outcome.changes == ()
        assert node.effects == []
        assert node.everything() == before
        if verb == PRESENT:
            assert (outcome.error.code, outcome.error.hint) == ("not_permitted", BECOME)
            assert look["changes"] == [change.as_dict() for change in predicted.changes]
            node.present()
        else:
            # What was here before us is for root alone to read.
            assert look["status"] == "unknown"
            assert look["failure"]["object"] == outcome.error.object == baseline.path_of(concern)
            assert look["failure"]["hint"] == "run as root, or with become: true"
    node.absent()


@pytest.mark.parametrize("concern", CONCERNS)
def test_a_look_names_the_file_that_it_may_not_read_or_does_without_it(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    node.present()
    for verb in (OTHER, ABSENT):
        node.host.files.reads.clear()
        usual = node.look(verb)["status"]
        for path in sorted(set(node.host.files.reads)):
            node.host.files.unreadable = {path}
            look = node.look(verb)
            node.host.files.unreadable = ()
            if look["status"] in ("unknown", "invalid"):
                assert path in look["msg"], path
                assert "Permission denied" in look["msg"], path
            else:
                assert look["status"] == usual, path
            assert "exception" not in look, look.get("exception")
    node.absent()


def written(node: Node) -> Set[str]:
    """The folders at the top that a run writes below."""
    root = f"{node.host.files.root}/"
    paths = [path for kind, path, _value in node.effects if kind in ("set", "replace", "remove")]
    return {f"/{path.split('/')[1]}" for path in paths if not path.startswith(root)}


@pytest.mark.parametrize("concern", CONCERNS)
def test_a_read_only_file_system_is_named_and_what_was_changed_can_be_given_back(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    untouched = node.found()
    node.effects.clear()
    node.present()
    folders = written(node)
    node.absent()
    assert {"/var", "/etc"} <= folders
    for folder in ("/", *sorted(folders)):
        node.host.files.read_only = [folder]
        node.effects.clear()
        outcome = node.outcome(PRESENT)
        node.host.files.read_only = []
        if outcome.error is None:
            # Only what is noted for others until the next boot may be missing, and the command of the program.
            assert folder == "/run" or (concern, folder) == ("node_tools", "/usr"), folder
        else:
            told = f"{outcome.error} {outcome.error.object}"
            programs = {path for kind, path, _value in node.effects if kind == "run"}
            # A program says itself what it could not write.
            assert f" {folder}" in told or outcome.error.object.split()[0] in programs, told
            assert "ead-only file system" in told or "read-only" in told, told
        if folder in ("/", "/var"):
            # Without the record of what was there, nothing is touched.
            assert outcome.changes == ()
            assert node.differs_from(untouched) == []
        node.absent()
        assert node.differs_from(untouched) == [], folder


READ_ONLY = ("/etc", "/usr", "/var/lib", "/run")


@pytest.mark.parametrize("concern", CONCERNS)
def test_what_cannot_be_written_is_refused_before_the_first_step_and_in_check_mode(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    # Not every tree has it before the first run.
    os.makedirs(f"{node.host.files.root}/run", exist_ok=True)
    for verb in (PRESENT, OTHER, ABSENT):
        ready = node.everything()
        promised = []
        for folder in READ_ONLY:
            node.host.files.read_only = [folder]
            node.effects.clear()
            predicted = failure_of(functools.partial(node.check, verb))
            outcome = None if predicted is None else node.outcome(verb)
            node.host.files.read_only = []
            if outcome is None:
                promised.append(f"{folder}/")
                continue
            assert str(outcome.error) == str(predicted)
            assert f": {folder}" in str(predicted)
            assert "is on a read-only file system" in str(predicted)
            assert node.effects == []
            assert difference(node.everything()[0], ready[0]) == []
        node.effects.clear()
        # What check mode promises comes true, also of node_tools, which has no command then.
        node.host.files.read_only = [folder.rstrip("/") for folder in promised]
        node.converge(verb)
        node.host.files.read_only = []
        written = [path for kind, path, _value in node.effects if kind in ("replace", "remove", "move")]
        assert [path for path in written if path.startswith(tuple(promised))] == []
