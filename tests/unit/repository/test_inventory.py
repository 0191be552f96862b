# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The list of all tests with their assertions: what counts as one, and what a comparison of two lists finds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from ansible_collections.gpufleet.node.tests.unit.repository import scripts

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / "tools"


@pytest.fixture
def tools() -> Iterator[Any]:
    with scripts.tools("assertions", "inventory") as found:
        yield found


# --- assertions in Python ---------------------------------------------------------------------------------------------

HELPERS = """
import pytest

class Machine:
    def holds(self):
        assert self.a and self.b
        assert self.c

def stays(machine):
    assert machine
    machine.holds()
"""


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("pass", 0),
        ("assert a", 1),
        ("assert a and b and (c or d)", 3),
        ("with pytest.raises(ValueError): f()", 1),
        ("pytest.raises(ValueError, f)", 1),
        ("with pytest.warns(UserWarning), pytest.raises(ValueError): f()", 2),
        ("pytest.fail('x')", 1),
        ("raise AssertionError('x')", 1),
        ("raise ValueError('x')", 0),
        ("for case in cases: assert case", 1),
        ("def inner():\n        assert a\n    inner()", 1),
        ("near()\n    near()", 4),
        ("stays(machine)", 4),
        ("machines.stays(machine)", 4),
        ("other_name(machine)", 4),
        ("machine.holds()", 3),
        ("elsewhere.stays(machine)", 0),
        ("endless()", 1),
    ],
)
def test_conditions_expected_errors_and_those_of_helpers_count(
    tools: Any, tmp_path: Path, body: str, count: int
) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "machines.py").write_text(HELPERS)
    text = (
        "import elsewhere, machines, pytest\nfrom machines import stays, stays as other_name\n"
        "def near():\n    assert a\n    assert b\n"
        "def endless():\n    assert a\n    endless()\n"
        f"@pytest.mark.parametrize('x', [1])\ndef test_it(machine):\n    {body}\n"
    )
    (folder / "test_it.py").write_text(text)
    line = text.splitlines().index("@pytest.mark.parametrize('x', [1])") + 1
    sources = tools.assertions.Sources(tmp_path)
    assert sources.at(folder / "test_it.py", line) == count
    assert sources.at(tmp_path / "plugins" / "x.py", 1) == 0


def test_the_tests_of_a_verify_have_the_assertions_of_their_cases_and_fixtures(tools: Any, tmp_path: Path) -> None:
    folder = tmp_path / "molecule" / "x" / "tests"
    folder.mkdir(parents=True)
    (folder / "test_it.py").write_text(
        "import pytest\n@pytest.fixture\ndef unit(host):\n    assert host\n"
        "@pytest.mark.parametrize('a', ['x', 'y'])\ndef test_a(unit, a):\n    assert a\n    assert unit\n"
        "def test_b(host):\n    assert host\n"
    )
    sources = tools.assertions.Sources(tmp_path)
    assert list(sources.tests_in(folder)) == [("test_it.py::test_a", 6), ("test_it.py::test_b", 1)]


# --- conditions in scenarios ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (None, 0),
        (False, 0),
        ([], 0),
        ("a.rc == 0", 1),
        ("a.rc == 0 and b.rc == 0", 2),
        (["a", "b and c", "d or e"], 4),
        ("'standing' in a.msg", 1),
        (True, 1),
    ],
)
def test_conditions_in_a_list_or_joined_by_and_count(tools: Any, value: Any, count: int) -> None:
    assert tools.assertions.conditions(value) == count


def test_a_scenario_has_an_entry_for_each_task_that_can_fail_by_a_condition(tools: Any, tmp_path: Path) -> None:
    refused = [{"name": "Try it", "ansible.builtin.command": "x", "register": "x", "failed_when": "x.rc == 0"}]
    refused.append({"name": "Check it", "ansible.builtin.assert": {"that": ["a", "b"]}})
    tasks: List[Dict[str, Any]] = [
        {"name": "Do it", "ansible.builtin.command": "x", "failed_when": False},
        {"ansible.builtin.include_tasks": "tasks/refused.yml"},
        {
            "block": [{"name": "Wait", "until": "x is succeeded"}],
            "rescue": [{"name": "Stop", "ansible.builtin.fail": {}}],
        },
        {"name": "Wait", "until": "y"},
    ]
    documents = {
        "molecule/x/molecule.yml": {
            "provisioner": {"playbooks": {"converge": "../y/converge.yml"}},
            "scenario": {"test_sequence": ["create", "check", "converge", "verify", "side_effect a.yml b.yml"]},
        },
        "molecule/y/converge.yml": [{"hosts": "all", "tasks": tasks}],
        "molecule/y/tasks/refused.yml": refused,
        "molecule/x/a.yml": [{"import_playbook": "../y/converge.yml"}],
        "molecule/x/b.yml": [{"hosts": "all", "tasks": refused}],
    }
    rows = list(tools.assertions.scenario("molecule/x", documents, tools.assertions.Sources(tmp_path), tmp_path))
    converge = [
        ("molecule/y/tasks/refused.yml: Try it", 1),
        ("molecule/y/tasks/refused.yml: Check it", 2),
        ("molecule/y/converge.yml: Wait", 1),
        ("molecule/y/converge.yml: Stop", 1),
        ("molecule/y/converge.yml: Wait #2", 1),
    ]
    assert rows == [
        ("check", "check of molecule/x", 1),
        *(("check", *row) for row in converge),
        *(("converge", *row) for row in converge),
        *(("side_effect", *row) for row in converge),
        ("side_effect", "molecule/x/b.yml: Try it", 1),
        ("side_effect", "molecule/x/b.yml: Check it", 2),
    ]


# --- a checkout -------------------------------------------------------------------------------------------------------


def test_the_tests_of_a_stage_are_those_that_its_own_command_collects_and_no_marker_skips(
    tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(
        "import pytest\n@pytest.fixture\ndef unit():\n    assert True\n"
        "@pytest.mark.parametrize('a', [1, 2])\ndef test_a(a, unit):\n    assert a\n"
        "@pytest.mark.skipif(True, reason='x')\ndef test_b():\n    assert False\n"
        "@pytest.mark.skip(reason='x')\ndef test_c():\n    assert False\n"
        "def test_d():\n    assert False\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--deselect",
        "tests/test_it.py::test_d",
        "tests",
    ]

    class Job:
        """As the checkout has it, so much as is needed."""

        def __init__(self, _board: Any, name: str, environment: Dict[str, str], root: Path) -> None:
            self.name, self.environment, self.root, self.scratch = name, environment, root, Path(environment["TMPDIR"])

        def run(self, *_words: Any, **_options: Any) -> List[str]:
            raise AssertionError("run")

    checkout = tools.inventory.Checkout(tmp_path)
    job = Job(None, "unit-3.13", {"TMPDIR": str(tmp_path)}, tmp_path)
    with tools.inventory._listing(checkout, job):
        assert job.run(command) == []
        with pytest.raises(tools.inventory.CannotList, match="a command that is not known: sh -c x"):
            job.run(["sh", "-c", "x"])
    python = "{}.{}".format(*sys.version_info[:2])
    rows = [tools.inventory.Row("unit-3.13", python, "", f"tests/test_it.py::test_a[{case}]", 2) for case in (1, 2)]
    assert checkout.rows == rows


# --- two lists --------------------------------------------------------------------------------------------------------


def row(tools: Any, test: str, stage: str = "unit-3.13", assertions: int = 2, part: str = "") -> Any:
    return tools.inventory.Row(stage, stage.rpartition("-")[2], part, test, assertions)


def found(tools: Any, before: List[Any], after: List[Any]) -> Any:
    lines, status = tools.inventory.compare(before, after)
    titles = ("missing", "in fewer places", "with fewer assertions", "moved", "new")
    parts: Dict[str, List[str]] = {}
    title = ""
    for line in lines:
        if line.startswith("  "):
            parts[title].append(line.strip())
        elif line.partition(":")[0] in titles:
            title = line.partition(":")[0]
            parts[title] = []
    return {name: entries for name, entries in parts.items() if entries}, status


def test_what_is_missing_in_fewer_places_or_asserts_less_is_named_and_ends_badly(tools: Any) -> None:
    a, b = row(tools, "a.py::test_a"), row(tools, "a.py::test_b", assertions=5)
    assert found(tools, [a, b], [a, b]) == ({}, 0)
    assert found(tools, [a, b], [b]) == ({"missing": ["a.py::test_a (unit-3.13 on Python 3.13)"]}, 1)
    older = row(tools, "a.py::test_a", stage="unit-3.9")
    fewer = ["a.py::test_a: no longer in unit-3.9 on Python 3.9"]
    assert found(tools, [a, older], [a]) == ({"in fewer places": fewer}, 1)
    less = row(tools, "a.py::test_b", assertions=4)
    assert found(tools, [b], [less]) == ({"with fewer assertions": ["a.py::test_b: 5 before, 4 now"]}, 1)
    assert found(tools, [less], [b, a]) == ({"new": ["a.py::test_a"]}, 0)


def test_what_runs_elsewhere_or_has_another_file_is_named_and_ends_well(tools: Any) -> None:
    before, after = row(tools, "a.py::test_a"), row(tools, "a.py::test_a", stage="contract-3.13")
    to = "a.py::test_a: from unit-3.13 on Python 3.13 to contract-3.13 on Python 3.13"
    assert found(tools, [before], [after]) == ({"moved": [to]}, 0)
    before, after = (row(tools, f"molecule/{name}.yml: Look", part=f"{name} > prepare") for name in ("a", "b"))
    assert found(tools, [before], [after]) == (
        {
            "moved": [
                "molecule/a.yml: Look: from unit-3.13 on Python 3.13 (a > prepare) "
                "to unit-3.13 on Python 3.13 (b > prepare)",
                "molecule/a.yml: Look: is now molecule/b.yml: Look",
            ]
        },
        0,
    )
    # Which of two it is cannot be known.
    twice = [row(tools, f"{name}.py::test_a") for name in ("b", "c")]
    assert found(tools, [row(tools, "a.py::test_a")], twice)[1] == 1


def test_a_list_is_read_as_it_was_written(tools: Any, tmp_path: Path) -> None:
    rows = [row(tools, "b.py::test_b"), row(tools, "a.py::test_a", part="x > converge")]
    tools.inventory.write(rows, tmp_path / "list.json")
    assert sorted(tools.inventory.read(tmp_path / "list.json"), key=str) == sorted(rows, key=str)
    assert len(json.loads((tmp_path / "list.json").read_text())) == 2
