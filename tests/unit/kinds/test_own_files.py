# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of ours among files of others, by a concern that nobody has: lines ``object setting=value`` in a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import OwnedByAnother
from ansible_collections.gpufleet.node.plugins.module_utils._kinds.own_files import (
    FilesDeclaration,
    Key,
    Line,
    OwnFile,
    OwnFilesConcern,
)
from ansible_collections.gpufleet.node.plugins.module_utils._linux.dropins import read_texts
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

OURS = "/etc/made.d/50-ours.conf"


class MadeUp(OwnFilesConcern):
    name = "made_up"
    options: Mapping[str, Any] = {"values": {"type": "dict"}}
    path = OURS
    setting = "values"
    owner = "made.d"

    def parse(self, params: Mapping[str, Any]) -> FilesDeclaration:
        return FilesDeclaration({("all", name): value for name, value in params["values"].items()})

    def read(self, files: Any) -> Mapping[str, str]:
        return read_texts(files, "made.d", ".conf")

    def place(self, path: str) -> str:
        return os.path.basename(path)

    def lines(self, path: str, text: str) -> Iterator[Line]:
        for number, line in enumerate(text.splitlines(), 1):
            object_, _blank, assignment = line.partition(" ")
            name, equals, value = assignment.partition("=")
            if equals:
                yield Line(path, number, object_, name, value)

    def render(self, values: Mapping[Key, Optional[str]]) -> str:
        return "".join(f"{object_} {name}={value}\n" for (object_, name), value in values.items())

    def exceptions(self, lines: Sequence[Line], values: Mapping[Key, Optional[str]]) -> Iterator[Line]:
        return (line for line in lines if line.object != "all" and ("all", line.setting) in values)


def machine(root: Path, **files: str) -> FakeHost:
    placed = {f"/etc/made.d/{name.replace('_', '-')}.conf": text for name, text in files.items()}
    return build(root, {"/var/lib/dpkg/status": "", **placed})


def run(host: FakeHost, values: Optional[Dict[str, str]] = None, *, check: bool = False, **more: Any) -> Outcome:
    params = {
        "state": "present",
        "immediate": True,
        "permanent": True,
        "strict": False,
        "accepted": [],
        "values": values or {},
    }
    return converge(MadeUp(), {**params, **more}, host, check_mode=check)


def test_a_value_that_no_file_has_is_written_and_said_three_ways(tmp_path: Path) -> None:
    host = machine(tmp_path, **{"10": "all other=1\n"})
    outcome = run(host, {"size": "8"})
    made = {(change.setting, change.scope, change.before, change.after) for change in outcome.changes}
    assert {("size", "effective", None, "8"), ("size", "boot", None, "8")} <= made
    assert host.files.read(OURS) == "all size=8\n"
    assert (outcome.effective, outcome.boot) == ({"values": {"all": {"size": "8"}}},) * 2
    assert run(host, {"size": "8"}).changes == ()


def test_what_others_set_already_is_no_change_but_the_file_is_written_for_when_they_go(tmp_path: Path) -> None:
    host = machine(tmp_path, **{"10": "all size=8\n"})
    assert {change.setting for change in run(host, {"size": "8"}).changes} == {"values", "declaration"}
    assert run(host, {"size": "8"}).as_dict()["conflicts"] == []


def test_what_is_no_longer_declared_is_as_the_others_have_it(tmp_path: Path) -> None:
    host = machine(tmp_path, **{"10": "all size=4\n"})
    run(host, {"size": "8", "depth": "1"})
    outcome = run(host, {"depth": "1"})
    given_up = {(change.scope, change.before, change.after) for change in outcome.changes if change.setting == "size"}
    assert given_up == {("effective", "8", "4"), ("boot", "8", "4")}
    assert host.files.read(OURS) == "all depth=1\n"
    assert run(host, {"size": "4"}, check=True).effective == {"values": {"all": {"size": "4", "depth": "1"}}}


def test_an_earlier_file_loses_a_later_one_is_refused_and_an_exception_wins(tmp_path: Path) -> None:
    host = machine(tmp_path, **{"10": "all size=4\nsome size=2\n"})
    conflicts = run(host, {"size": "8"}).as_dict()["conflicts"]
    assert [(entry["object"], entry["path"], entry["line"], entry["wins"]) for entry in conflicts] == [
        ("all", "/etc/made.d/10.conf", 1, "us"),
        ("some", "/etc/made.d/10.conf", 2, "them"),
    ]
    Path(host.files.locate("/etc/made.d/60.conf")).write_text("\nall size=16\n")
    with pytest.raises(OwnedByAnother, match=r"/etc/made\.d/60\.conf line 2 overrules"):
        run(host, {"size": "8"})


def test_a_later_file_that_says_the_same_is_no_conflict(tmp_path: Path) -> None:
    host = machine(tmp_path, **{"60": "all size=8\n"})
    assert run(host, {"size": "8"}).as_dict()["conflicts"] == []


@pytest.mark.parametrize("scope", ["immediate", "permanent"])
def test_the_file_counts_now_and_at_boot_whichever_is_meant(tmp_path: Path, scope: str) -> None:
    host = machine(tmp_path)
    run(host, {"size": "8"}, **{scope: False})
    assert host.files.read(OURS) == "all size=8\n"


def test_what_is_meant_neither_now_nor_at_boot_is_left_alone(tmp_path: Path) -> None:
    host = machine(tmp_path)
    assert run(host, {"size": "8"}, immediate=False, permanent=False).changes == ()
    assert not host.files.exists(OURS)


def test_absent_says_what_comes_back(tmp_path: Path) -> None:
    host = machine(tmp_path, **{"10": "all size=4\n"})
    run(host, {"size": "8", "depth": "1"})
    outcome = run(host, state="absent")
    restored = {change.setting: change.after for change in outcome.changes if change.scope == "effective"}
    assert restored == {"size": "4", "depth": None}
    assert outcome.effective == {"values": {"all": {"size": "4", "depth": None}}}
    assert not host.files.exists(OURS)


def test_a_file_is_described_by_what_it_holds() -> None:
    assert OwnFile(OURS, "values", None).rows(None) == []
    assert OwnFile(OURS, "values", "a").described("a") == ("as declared", "as declared")
    assert OwnFile(OURS, "values", "b").described("a", others="another") == ("as declared", "another")
    assert OwnFile(OURS, "values", "b").described(None) == (None, "as declared")
