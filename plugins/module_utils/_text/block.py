# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines of ours in a file of others, between two comments; without them the file is again as it was, byte for byte.

The first comment notes what had to be done to the file besides, so that it can be undone.
"""

from __future__ import annotations

from typing import Optional, Tuple

from .._core.value import frozen

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
        return f"# End of gpufleet.node.{self.concern}.\n"

    def split(self, text: str) -> Parts:
        """A file whose last comment somebody removed has lines of ours no more, but for the first comment."""
        first, last = self.begin, self.end
        at = 0 if text.startswith(first) else text.find(f"\n{first}") + 1
        if not text.startswith(first, at):
            return Parts(text, None, "", "")
        begin, _newline, rest = text[at:].partition("\n")
        stop = 0 if rest.startswith(last) else rest.find(f"\n{last}") + 1
        if not rest.startswith(last, stop):
            return Parts(text[:at], begin, "", rest)
        return Parts(text[:at], begin, rest[:stop], rest[stop + len(last) :])

    def with_lines(self, text: Optional[str], lines: str, *, first: bool) -> str:
        """The file with these lines: where ours are, or else before all others (``first``) or after them."""
        parts = self.split(text or "")
        if parts.begin is not None:
            return "".join((parts.before, parts.begin, "\n", lines, self.end, parts.after))
        begin = self.begin + (MADE if text is None else "")
        before, after = ("", parts.before) if first else (parts.before, "")
        if before and not before.endswith("\n"):
            before, begin = f"{before}\n", f"{begin}{ENDED}"
        return "".join((before, begin, "\n", lines, self.end, after))

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

    def numbers(self, text: str) -> Tuple[int, int]:
        """The numbers of the first line of ours and of the one after the last; equal where there are none."""
        parts = self.split(text)
        start = parts.before.count("\n") + 2
        return start, start + (parts.ours.count("\n") if parts.begin is not None else 0)
