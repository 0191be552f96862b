# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of ours in a JSON file of others that may have comments, each with a comment of what was there before it.

Without them the file is again as it was, byte for byte, and nothing has to be remembered elsewhere: the value that was
replaced stands in the comment as it was written. Whoever reads the file sees which values are ours.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .._core.errors import GpuFleetError
from .._core.regex import regex
from .._core.value import frozen
from . import json_edit
from .json_comments import blanked, comments
from .json_edit import Member

Path = Tuple[str, ...]
# What a mark says after its beginning.
_SAYS = regex(r'(?:added ("(?:[^"\\]|\\.)*")|("(?:[^"\\]|\\.)*") was (.*)) \*/', re.DOTALL)


@frozen
class Place:
    """The object that has a member, by its keys and where it begins, its members, and which of them it is."""

    path: Path
    start: int
    members: Tuple[Member, ...]
    index: int

    @property
    def member(self) -> Member:
        return self.members[self.index]


@frozen
class Mark:
    """A comment of ours, and the member that it is about; None where somebody took that away.

    ``before`` is the text of the value that was replaced, None where the member was added.
    """

    start: int
    end: int
    place: Optional[Place]
    before: Optional[str]

    @property
    def path(self) -> Path:
        return (*self.place.path, self.place.member.key) if self.place else ()


@frozen
class Marks:
    """The comments of one ``concern``, whose name is in them."""

    concern: str

    def made(self) -> str:
        """A file that was not there before."""
        return f"// Made by gpufleet.node.{self.concern}: there was no such file before.\n{{\n}}\n"

    def is_ours(self, text: str) -> bool:
        """Whether the file was not there before."""
        return text.startswith(self.made().partition("\n")[0])

    @property
    def _sign(self) -> str:
        return f"/* gpufleet.node.{self.concern}: "

    def any_in(self, text: str) -> bool:
        """Whether anything may be ours in a text, also in one that cannot be parsed."""
        return self._sign in text or self.is_ours(text)

    def find(self, text: str) -> List[Mark]:
        """All marks, in their order."""
        if self._sign not in text:
            return []
        bare = blanked(text)
        found = []
        for start, end in comments(text):
            match = _SAYS.fullmatch(text[start + len(self._sign) : end]) if text.startswith(self._sign, start) else None
            if match:
                place = _before(bare, start)
                if place is not None and place.member.key != json.loads(match[1] or match[2]):
                    place = None
                found.append(Mark(start, end, place, None if match[1] else _restored(match[3])))
        return found

    def without(self, text: str) -> Optional[str]:
        """The file without what is ours; None where it was not there and nobody wrote to it since."""
        while True:
            found = self.find(text)
            if not found:
                return None if text == self.made() else text
            text = _without(text, found[-1])

    def with_values(self, text: Optional[str], values: Mapping[str, Any]) -> str:
        """The file, which has no marks, with these values, as nested tables; what is so already is not touched.

        Raises ``DeclarationError`` where something else than an object is in the way of a key.
        """
        original = self.made() if text is None else text
        table = json.loads(blanked(original))
        made = self._with(original, (), table, values)
        wanted = _merged(table, values)
        # What no edit may ever do is worth a second parse: to lose what it was not asked for, for good.
        if json.loads(blanked(made)) != wanted or self.without(made) != text:
            raise GpuFleetError("edit the configuration", cause="the new text would not mean what was intended")
        return made

    def _with(self, text: str, path: Path, table: Mapping[str, Any], values: Mapping[str, Any]) -> str:
        """``table`` is what the file has at this path without us."""
        for key, value in values.items():
            here = (*path, key)
            found = table.get(key)
            if isinstance(value, dict) and isinstance(found, dict):
                text = self._with(text, here, found, value)
            elif key not in table or found != value or isinstance(found, bool) != isinstance(value, bool):
                text = self._edited(text, here, value)
        return text

    def _edited(self, text: str, path: Path, value: Any) -> str:
        edit = json_edit.edit_of(blanked(text), path, value)
        # As JSON may write it too, and without the end of a comment.
        key = json.dumps(edit.key, ensure_ascii=False).replace("*/", "*\\/")
        if not edit.added:
            mark = f" {self._sign}{key} was {_kept(text[edit.start : edit.end])} */"
            return f"{text[: edit.start]}{edit.new}{mark}{text[edit.end :]}"
        at = edit.start
        if text.startswith(f" {self._sign}", at):
            # The mark of the member before it stays with that.
            at = text.index("*/", at) + len("*/")
        return f"{text[:at]}{edit.new} {self._sign}added {key} */{text[at:]}"


def _kept(value: str) -> str:
    """The text of a value as it can stand in a comment."""
    return value.replace("\\", "\\\\").replace("*/", "*\\/")


def _restored(kept: str) -> str:
    return re.sub(r"\\([\\/])", r"\1", kept)


def _merged(table: Dict[str, Any], values: Mapping[str, Any]) -> Dict[str, Any]:
    made = dict(table)
    for key, value in values.items():
        inner = made.get(key)
        made[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return made


def _before(bare: str, at: int) -> Optional[Place]:
    """The member whose value ends before this place, with nothing but blanks between."""
    start = bare.find("{")
    path: Path = ()
    while start >= 0:
        members = json_edit.members_of(bare, start)
        index = next((number for number, one in reversed(list(enumerate(members))) if one.start < at), None)
        if index is None:
            return None
        member = members[index]
        if member.end <= at:
            return Place(path, start, members, index) if not bare[member.end : at].strip() else None
        if bare[member.start] != "{":
            return None
        start, path = member.start, (*path, member.key)
    return None


def _without(text: str, mark: Mark) -> str:
    if mark.place is None:
        # What it was about is gone, or another member has come between: there is only the comment to remove.
        start = mark.start - 1 if text[mark.start - 1 : mark.start] == " " else mark.start
        return text[:start] + text[mark.end :]
    members, index = mark.place.members, mark.place.index
    member = members[index]
    if mark.before is not None:
        return text[: member.start] + mark.before + text[mark.end :]
    if index:
        first = members[index - 1].end
        # Others may have commented what stands above it.
        above = text[first : member.key_start]
        comma = blanked(text)[first : member.key_start].find(",")
        left = above[:comma] + above[comma + 1 :].rstrip()
        return text[:first] + left.rstrip() + text[mark.end :] if left.strip() else text[:first] + text[mark.end :]
    if len(members) > 1:
        return text[: member.key_start] + text[members[1].key_start :]
    return text[: mark.place.start + 1] + text[mark.end :]
