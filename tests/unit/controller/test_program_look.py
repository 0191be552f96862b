# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the controller runs on a node for a look, and what it takes for an answer."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux import program
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import DAMAGED, OTHER_PYTHON
from ansible_collections.gpufleet.node.plugins.module_utils._node.look_frame import ANSWERED, MARK, framed
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.plugin_utils import program_look
from ansible_collections.gpufleet.node.plugins.plugin_utils.program_look import (
    LINKED,
    NO_PROGRAM,
    NOT_WHOLE,
    command_line,
    understood,
)

DIGEST = "0123456789abcdef" * 4
REQUEST = '{"declared": {}}'
# More than fits into a pipe that nobody reads.
LONG_REQUEST = "x" * 1_000_000

# As stat(1) would answer were the folder at / and all in it of root: whoever runs the tests may be anybody, and
# the folder may be below one that everybody writes to.
STAT = """#!/bin/sh
shift 2
for place; do
    case $place in
    {folder}|{folder}/*|look|bytecode) /usr/bin/stat -c %u%A -- "$place" | sed "s/^$(id -u)\\([-dl]\\)/0\\1/" ;;
    *) echo 0drwxr-xr-x ;;
    esac
done
"""


class Node:
    """A node with a program that prints what it was asked, at a place of its own."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # As pytest names it there may be a link on the way.
        self.ours = root.resolve() / "lib" / "gpufleet"
        compiled = self.ours / "program" / "compiled"
        monkeypatch.setattr(program, "COMPILED", str(compiled))
        self.folder = compiled / DIGEST
        self.folder.mkdir(parents=True)
        self.tools = root / "tools"
        self.tools.mkdir()
        self.write(self.tools / "stat", STAT.format(folder=root.resolve()))
        self.look, self.bytecode = self.folder / "look", self.folder / "bytecode"
        self.says(f'printf "{framed("{}").strip()}\\n"; cat >&2; exit {ANSWERED}')
        self.bytecode.write_text("")
        for place in (self.ours, self.ours / "program", compiled, self.folder):
            place.chmod(0o755)
        self.bytecode.chmod(0o644)

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def says(self, script: str) -> None:
        self.write(self.look, f"#!/bin/sh\n{script}\n")
        # It is started by what its first line names, for /var may be where no file may be executed.
        self.look.chmod(0o644)

    def run(self, request: str = REQUEST) -> Tuple[int, str, str]:
        done = subprocess.run(
            ["/bin/sh", "-c", command_line(DIGEST)],
            input=request,
            env={"PATH": f"{self.tools}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def why_not(self, request: str = REQUEST) -> str:
        status, output, errors = self.run(request)
        answer, why = understood({"rc": status, "stdout": output, "stderr": errors})
        assert (answer is None) == bool(why)
        return why


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


NOT_ROOTS = program_look.WHY_NOT[NO_PROGRAM]


# --- who is believed --------------------------------------------------------------------------------------------------


def test_the_program_is_given_the_request_and_its_answer_is_handed_on(node: Node) -> None:
    assert node.run() == (ANSWERED, framed("{}"), REQUEST)
    assert node.why_not() == ""


def test_a_long_request_is_read_to_its_end_in_any_case(node: Node) -> None:
    assert node.why_not(LONG_REQUEST) == ""
    node.says("exit 91")
    assert node.why_not(LONG_REQUEST) == program_look.WHY_NOT[OTHER_PYTHON]
    node.look.unlink()
    assert node.why_not(LONG_REQUEST) == NOT_ROOTS


def test_a_node_without_the_program_of_this_release_has_none(node: Node) -> None:
    node.folder.rename(node.folder.parent / ("f" * 64))
    assert node.run() == (NO_PROGRAM, "", "")
    assert node.why_not() == NOT_ROOTS


@pytest.mark.parametrize("missing", ["look", "bytecode"])
def test_a_program_of_which_a_file_is_missing_is_none(node: Node, missing: str) -> None:
    (node.folder / missing).unlink()
    assert node.why_not() == NOT_ROOTS


WRITABLE: List[Tuple[str, int]] = [
    (place, 0o755 | bit)
    for place in ("", "program", "program/compiled", f"program/compiled/{DIGEST}")
    for bit in (0o020, 0o002)
]
WRITABLE += [
    (f"program/compiled/{DIGEST}/{file}", 0o644 | bit) for file in ("look", "bytecode") for bit in (0o020, 0o002)
]


@pytest.mark.parametrize(("place", "mode"), WRITABLE)
def test_what_others_may_write_is_not_run(node: Node, place: str, mode: int) -> None:
    (node.ours / place).chmod(mode)
    assert node.run() == (NO_PROGRAM, "", "")


def test_what_belongs_to_somebody_else_is_not_run(node: Node) -> None:
    text = (node.tools / "stat").read_text()
    for place in ("look", "bytecode", str(node.folder), str(node.ours), str(node.ours.parent)):
        other = f"do\n    case $place in {place}) echo 1000drwxr-xr-x; continue ;; esac\n"
        node.write(node.tools / "stat", text.replace("do\n", other, 1))
        assert node.run() == (NO_PROGRAM, "", ""), place


def test_a_group_may_write_on_the_way_to_ours_and_nobody_else(node: Node) -> None:
    node.ours.parent.chmod(0o2775)
    assert node.why_not() == ""
    node.ours.parent.chmod(0o777)
    assert node.why_not() == NOT_ROOTS
    # In a folder with the sticky bit, others may still make a folder before we do.
    node.ours.parent.chmod(0o1777)
    assert node.why_not() == NOT_ROOTS


@pytest.mark.parametrize("place", ["", "program", "program/compiled", f"program/compiled/{DIGEST}"])
def test_a_link_is_not_followed_to_where_nobody_asked_who_owns_it(node: Node, place: str) -> None:
    path = node.ours / place
    elsewhere = node.ours.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert node.run() == (LINKED, "", "")
    assert node.why_not(LONG_REQUEST) == "the folder of the program is reached through a link"


@pytest.mark.parametrize("file", ["look", "bytecode"])
def test_a_file_that_is_a_link_is_not_run(node: Node, file: str) -> None:
    path = node.folder / file
    path.rename(node.ours / "elsewhere")
    path.symlink_to(node.ours / "elsewhere")
    assert node.run() == (NO_PROGRAM, "", "")


def test_a_node_without_stat_or_timeout_is_looked_at_by_the_module(node: Node) -> None:
    node.write(node.tools / "stat", "#!/bin/sh\nexit 127\n")
    assert node.why_not() == NOT_ROOTS


# --- what is an answer ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 0", "the program failed with exit status 0"),
        ("echo KeyError: 1 >&2; echo >&2; exit 1", "the program failed with exit status 1: KeyError: 1"),
        ("printf '\\033[2Jnone' >&2; exit 1", "the program failed with exit status 1: \\x1b[2Jnone"),
        ("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 3", f"the program failed with exit status 3: {'x' * 200}"),
        (f"exit {OTHER_PYTHON}", "the program was compiled for another Python than the one this task uses"),
        (f"exit {DAMAGED}", "the program on the node is damaged"),
        (f"exit {ANSWERED}", NOT_WHOLE),
        (f"echo gpufleet-look:; exit {ANSWERED}", NOT_WHOLE),
        (f"echo 'gpufleet-look:9:{{}}'; exit {ANSWERED}", NOT_WHOLE),
        (f"echo 'gpufleet-look:2:[]'; exit {ANSWERED}", NOT_WHOLE),
        (f"echo 'gpufleet-look:-2:{{}}'; exit {ANSWERED}", NOT_WHOLE),
        (
            f"printf 'gpufleet-look:20:{{\"changed\": fal'; exit {ANSWERED}",
            NOT_WHOLE,
        ),
        (f"printf 'gpufleet-look:{'9' * 5000}:'; exit {ANSWERED}", NOT_WHOLE),
        # Whole, and of a program that then failed.
        ("echo 'gpufleet-look:2:{}'; exit 1", "the program failed with exit status 1"),
        ("echo 'gpufleet-look:2:{}'; kill -9 $$", program_look.WHY_NOT[137]),
    ],
)
def test_what_is_no_whole_answer_is_none(node: Node, script: str, why: str) -> None:
    node.says(f"cat >/dev/null; {script}")
    assert node.why_not() == why


def test_what_a_login_prints_around_the_answer_is_none_of_it() -> None:
    text = '{"changed":false,"msg":"gpufleet-look:2:{} it said: gpufleet-look:2:{}"}'
    for before in (
        "",
        "Welcome to node7\n",
        "gpufleet-look:2:{} no newline before the answer ",
        "gpufleet-look:\u00b2:",
    ):
        for after in ("", "logout\n", "gpufleet-look:9:{}", "gpufleet-look:2:{}\n"):
            answer, why = understood({"rc": ANSWERED, "stdout": f"{before}{framed(text)}{after}"})
            assert (answer, why) == (json.loads(text), "")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_an_answer_ends_with_is_no_answer(end: str) -> None:
    for text in ('{"msg":"gpufleet-look:2:"}', '{"msg":"gpufleet-look:1:"}', '{"msg":"gpufleet-look:0:"}'):
        answer, why = understood({"rc": ANSWERED, "stdout": framed(text).strip() + end})
        assert (answer, why) == (json.loads(text), "")


def test_whatever_is_printed_is_an_answer_or_none() -> None:
    chosen = random.Random(1)
    parts = [MARK, "2", "11", "\u00b2", "\u0663", "-", "_", " ", ":", "{}", "\n", "\r\n", '{"a":"', '"}', framed("{}")]
    answered = 0
    for _number in range(5000):
        output = "".join(chosen.choices(parts, k=chosen.randrange(1, 9)))
        answer, why = understood({"rc": ANSWERED, "stdout": output})
        assert (answer is None) == bool(why)
        answered += answer is not None
    assert answered >= 100


def test_a_program_that_hangs_is_ended(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = program_look.SECONDS
    monkeypatch.setattr(program_look, "SECONDS", 0.2)
    monkeypatch.setattr(program_look, "KILL_SECONDS", 0.2)
    for script in ("exec sleep 60", "trap '' TERM; while :; do sleep 0.1; done"):
        node.says(script)
        status, output, _errors = node.run()
        assert (status in (124, 137), output) == (True, "")
        assert f"within {waited} s" in node.why_not()


def test_a_look_may_take_as_long_as_all_concerns_together() -> None:
    assert sum(entry.registration.deadline for entry in REGISTRY) + 60 == program_look.SECONDS


def test_a_program_whose_python_is_gone_or_that_may_not_be_executed_says_so(node: Node) -> None:
    node.write(node.look, "#!/nonexistent/python3 -IBS\n")
    assert node.why_not() == "the Python in the first line of the program, or timeout(1), is missing"
    node.write(node.look, f"#!{node.bytecode}\n")
    assert node.why_not() == (
        "the Python in the first line of the program may not be executed: look for SELinux and fapolicyd"
    )


@pytest.mark.parametrize("status", [0, 1, 2, 255])
def test_only_the_status_of_an_answer_counts(status: int) -> None:
    done: Any = {"rc": status, "stdout": framed("{}"), "stderr": ""}
    assert understood(done) == (None, f"the program failed with exit status {status}")
