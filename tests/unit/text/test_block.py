# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines of ours in a file of others, and what becomes of them when somebody edits the file."""

from __future__ import annotations

import re
from typing import Callable, Dict, List, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook
from ansible_collections.gpufleet.node.plugins.module_utils._text.block import Block
from hypothesis import example, given
from hypothesis import strategies as st

BLOCK = Block("one")
BEGIN, END = BLOCK.begin, BLOCK.end


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("text", [None, "", "A=1\n", "A=1", "\n\n", "# Begin\nA=1\r\n"])
def test_a_file_is_again_as_it_was_when_our_lines_go(text: Optional[str], *, first: bool) -> None:
    once = BLOCK.with_lines(text, "B=2\n", first=first)
    again = BLOCK.with_lines(once, "B=3\nC=4\n", first=first)
    assert "B=2\n" in once
    assert "B=2\n" not in again
    assert BLOCK.without_lines(again) == text


def test_what_others_write_around_our_lines_stays() -> None:
    ours = BLOCK.with_lines("A=1", "B=2\n", first=False)
    text = f"Z=0\n{ours}C=3\n"
    assert BLOCK.without_lines(text) == "Z=0\nA=1\nC=3\n"
    made = BLOCK.with_lines(None, "B=2\n", first=True)
    assert BLOCK.without_lines(f"{made}C=3\n") == "C=3\n"


@pytest.mark.parametrize("first", [True, False])
def test_the_last_comment_may_have_lost_its_newline_or_got_blanks(*, first: bool) -> None:
    once = BLOCK.with_lines(None, "B=2\n", first=first)
    for text in (once[:-1], once.replace(END, f"{END} \r")):
        BLOCK.check("/etc/x", text)
        assert BLOCK.split(text).ours == "B=2\n"
        assert BLOCK.with_lines(text, "B=3\n", first=first) == once.replace("B=2", "B=3")
        assert BLOCK.without_lines(text) is None


@pytest.mark.parametrize("text", [None, "", "A=1", "# End of gpufleet.node.oneself.\n", f"A=1 {BEGIN}\n"])
def test_a_file_without_our_comments_is_sound(text: Optional[str]) -> None:
    BLOCK.check("/etc/x", text)
    BLOCK.check("/etc/x", BLOCK.with_lines(text, "B=2\n", first=False))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"A=1\n{BEGIN}\nB=2\n", f"line 2 begins the lines of gpufleet.node.one, and the comment after .*: '{END}'"),
        (f"A=1\nB=2\n{END}\n", f"line 3 ends the lines of gpufleet.node.one, and the comment before .*: '{BEGIN}'"),
        (f"{END}\nB=2\n{BEGIN}\n", "must be there once each, and are lines 1, 3"),
        (f"{BEGIN}\nB=2\n{BEGIN}\nB=2\n{END}\n", "must be there once each, and are lines 1, 3, 5"),
        (f"{BEGIN}\nB=2\n{END}\nB=2\n{END}\n", "must be there once each, and are lines 1, 3, 5"),
        (f"  {BEGIN}\n  B=2\n  {END}\n", "lines 1, 3 look like the comments around the lines of"),
        (f"#{BEGIN}\n#B=2\n#{END}\n", "lines 1, 3 look like the comments around the lines of"),
        (f"{BEGIN[:-3]}\nB=2\n{END}\n", "line 1 looks like one of the comments around the lines of"),
    ],
)
def test_a_file_that_lacks_one_of_our_comments_is_refused_with_the_line(text: str, cause: str) -> None:
    with pytest.raises(CannotLook, match=f"Cannot parse /etc/x: .*{re.escape(cause).replace(re.escape('.*'), '.*')}"):
        BLOCK.check("/etc/x", text)


Damage = Callable[[str, int], str]
DAMAGES: Dict[str, Damage] = {
    "cut off after a character": lambda text, at: text[:at],
    "cut off before a character": lambda text, at: text[at:],
    "without a character": lambda text, at: text[:at] + text[at + 1 :],
    "with another character": lambda text, at: f"{text[:at]}x{text[at + 1 :]}",
    "with one more character": lambda text, at: f"{text[:at]}x{text[at:]}",
    "without a line": lambda text, at: _changed(text, at, lambda line: ""),
    "with a line twice": lambda text, at: _changed(text, at, lambda line: line * 2),
    "with a line indented": lambda text, at: _changed(text, at, lambda line: f"  {line}"),
    "with a line commented out": lambda text, at: _changed(text, at, lambda line: f"#{line}"),
    "all indented": lambda text, _at: "".join(f"\t{line}" for line in text.splitlines(keepends=True)),
    "all commented out": lambda text, _at: "".join(f"# {line}" for line in text.splitlines(keepends=True)),
    "with other line ends": lambda text, _at: text.replace("\n", "\r\n"),
    "with a byte order mark": lambda text, _at: f"\ufeff{text}",
}


def _changed(text: str, at: int, change: Callable[[str], str]) -> str:
    lines = text.splitlines(keepends=True)
    number = text.count("\n", 0, at)
    return "".join(change(line) if number == index else line for index, line in enumerate(lines))


@given(damage=st.sampled_from(sorted(DAMAGES)), at=st.integers(0, 250), first=st.booleans())
@example(damage="without a line", at=0, first=True)
@example(damage="all indented", at=0, first=False)
@example(damage="with another character", at=125, first=False)
def test_no_damage_doubles_our_lines_or_takes_a_line_of_others(*, damage: str, at: int, first: bool) -> None:
    """What is not refused has our lines once after the next run, and keeps all that stood outside of the block."""
    theirs = ["A=1", "C=3", "D=4"]
    ours = BLOCK.with_lines("A=1\nC=3\n", "OURS=1\nMINE=2\n", first=first)
    text = DAMAGES[damage](f"{ours}D=4\n", at)
    refusal = _refusal(text)
    if refusal:
        assert re.search(r"Cannot parse /etc/x: .*\blines? \d", refusal)
        return
    written = BLOCK.with_lines(text, "OURS=1\nMINE=2\n", first=first)
    restored = BLOCK.without_lines(written) or ""
    for name in ("OURS", "MINE"):
        assert len(_setting(written, name)) == 1, written
        assert _setting(restored, name) == [], restored
    for line in theirs:
        assert text.count(line) == written.count(line) == restored.count(line)


def _refusal(text: str) -> str:
    try:
        BLOCK.check("/etc/x", text)
    except CannotLook as error:
        return str(error)
    return ""


def _setting(text: str, name: str) -> List[str]:
    return [line for line in text.splitlines() if line.strip().startswith(f"{name}=")]
