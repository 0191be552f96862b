# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines of ours in a file of others, between two comments, and lines of others that are commented out in their favour.

Without both the file is again as it was, byte for byte. The first comment notes what was done to it besides.
"""

from __future__ import annotations

import re
from typing import Container, List, Match, Optional, Tuple

from .._core.errors import not_understood
from .._core.value import frozen
from .._core.wording import lines_named
from .whole_lines import whole_lines

# The file was not there, or its last line did not end.
MADE = " The file did not exist before."
ENDED = " The line above had no newline before."


@frozen
class Parts:
    """A file as it is: what stands before our lines, these with the first comment (None: there are none), the rest."""

    before: str
    begin: Optional[str]
    ours: str
    after: str


@frozen
class Block:
    """The lines of one ``concern``, whose name is in the comments."""

    concern: str

    @property
    def begin(self) -> str:
        return f"# Begin of gpufleet.node.{self.concern}. The next run overwrites changes to its lines."

    @property
    def end(self) -> str:
        return f"# End of gpufleet.node.{self.concern}."

    def check(self, path: str, text: Optional[str]) -> None:
        """Raise ``CannotLook`` where the two comments are not there once each: nobody knows which lines are ours then.

        So it is where an editor indented one or commented it out. All other methods take the text of a file that was
        checked.
        """
        begins, ends = self._comments(text or "")
        of = f"gpufleet.node.{self.concern}"
        altered = [number for number in self._mentions(text or "") if number not in (*begins, *ends)]
        if (len(begins), len(ends)) in ((0, 0), (1, 1)) and begins <= ends and not altered:
            return
        if altered:
            look, are = ("look like the comments", "are") if altered[1:] else ("looks like one of the comments", "is")
            cause = (
                f"{lines_named(altered)} {look} around the lines of {of}, but {are} neither {self.begin!r} nor "
                f"{self.end!r}"
            )
        elif not ends:
            cause = f"line {begins[0]} begins the lines of {of}, and the comment after them is missing: {self.end!r}"
        elif not begins:
            cause = f"line {ends[0]} ends the lines of {of}, and the comment before them is missing: {self.begin!r}"
        else:
            numbers = ", ".join(map(str, sorted((*begins, *ends))))
            cause = f"the two comments around the lines of {of} must be there once each, and are lines {numbers}"
        raise not_understood(path, cause)

    def split(self, text: str) -> Parts:
        begin, end = _find(text, self.begin), _find(text, self.end)
        if begin is None or end is None:
            return Parts(text, None, "", "")
        return Parts(text[: begin.start()], begin[0], text[begin.end() + 1 : end.start()], text[end.end() + 1 :])

    def with_lines(self, text: Optional[str], lines: str, *, first: bool) -> str:
        """The file with these lines: where ours are, or else before all others (``first``) or after them."""
        parts = self.split(text or "")
        if parts.begin is not None:
            return "".join((parts.before, parts.begin, "\n", lines, self.end, "\n", parts.after))
        begin = self.begin + (MADE if text is None else "")
        before, after = ("", parts.before) if first else (parts.before, "")
        if before and not before.endswith("\n"):
            before, begin = f"{before}\n", f"{begin}{ENDED}"
        return "".join((before, begin, "\n", lines, self.end, "\n", after))

    def without_lines(self, text: Optional[str]) -> Optional[str]:
        """The file as it was before; None where it was not there and nobody wrote to it since."""
        parts = self.split(text or "")
        if parts.begin is None:
            return text
        rest = parts.before + parts.after
        if MADE in parts.begin and not rest:
            return None
        if ENDED in parts.begin and not parts.after:
            return rest[:-1]
        return rest

    @property
    def _mute(self) -> str:
        return f"#{self.concern}: "

    def muted(self, text: str, numbers: Container[int]) -> str:
        """The file with the lines of these numbers, which are of others, commented out."""
        return "".join(
            f"{self._mute}{raw}" if number in numbers else raw for number, raw in enumerate(whole_lines(text), 1)
        )

    def unmuted(self, text: str) -> str:
        """The file with the lines that we commented out in use again."""
        mute = self._mute
        return "".join(raw[len(mute) :] if raw.startswith(mute) else raw for raw in whole_lines(text))

    def count_muted(self, text: str) -> int:
        return sum(raw.startswith(self._mute) for raw in whole_lines(text))

    def numbers(self, text: str) -> Tuple[int, int]:
        """The numbers of the first line of ours and of the one after the last; equal where there are none."""
        parts = self.split(text)
        start = parts.before.count("\n") + 2
        return start, start + (parts.ours.count("\n") if parts.begin is not None else 0)

    def _comments(self, text: str) -> Tuple[List[int], List[int]]:
        """The numbers of the lines that are the first comment, and of those that are the last."""
        lines = text.split("\n")
        # With more behind it, the line may be one of others that was joined to it.
        begins, ends = (
            [number for number, line in enumerate(lines, 1) if line.rstrip() in comments]
            for comments in ([self.begin, f"{self.begin}{MADE}", f"{self.begin}{ENDED}"], [self.end])
        )
        return begins, ends

    def _mentions(self, text: str) -> List[int]:
        """The numbers of the lines that are one of the comments but for their end and what stands before its words."""
        words = re.compile(rf"\W*(?:Begin|End) of gpufleet\.node\.{re.escape(self.concern)}\.")
        return [number for number, line in enumerate(text.split("\n"), 1) if words.match(line)]


def _find(text: str, comment: str) -> Optional[Match[str]]:
    """The line that begins with this comment. The last of a file may lack its newline."""
    return re.search(f"^{re.escape(comment)}.*$", text, re.MULTILINE)
