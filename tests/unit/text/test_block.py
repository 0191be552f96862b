# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines of ours in a file of others, and what becomes of them when somebody edits the file."""

from __future__ import annotations

import re
from typing import Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook
from ansible_collections.gpufleet.node.plugins.module_utils._text.block import Block

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
    ],
)
def test_a_file_that_lacks_one_of_our_comments_is_refused_with_the_line(text: str, cause: str) -> None:
    with pytest.raises(CannotLook, match=f"Cannot parse /etc/x: .*{re.escape(cause).replace(re.escape('.*'), '.*')}"):
        BLOCK.check("/etc/x", text)
