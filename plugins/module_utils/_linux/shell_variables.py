# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of a shell script, each with all the values that it takes."""

from __future__ import annotations

from itertools import islice
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

from .._core.regex import regex
from .shell_words import UNKNOWN

MOST_TEXTS, MOST_LENGTH = 1024, 4096
"""So many texts are made of a word by its variables, and of so many characters; beyond these it is not known."""
MOST_IN_ALL = 16 * MOST_TEXTS
"""So many texts are made of all words of a script; beyond these, a variable with several values is not known."""
VARIABLE = regex(r"\$(?:\{(\w+)\}|(\w+))")
_COUNTED = regex(r"([A-Za-z_]\w*)\s*(?:[-+*/%]?=(?!=)|\+\+|--)")


class Variables:
    """Begins with those that the script is started with, its arguments (``1``) among them."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values: Dict[str, Tuple[str, ...]] = {name: (value,) for name, value in given.items()}
        # Those that the script has not set itself.
        self._given = dict(given)
        self._made = 0
        self.are_of_function = False
        """Whether the arguments are those of a function, which are not known."""

    def copy(self) -> Variables:
        """The same for a script within this one."""
        made = Variables(self._given)
        made._values, made._made = dict(self._values), self._made
        return made

    def set(self, name: str, values: Iterable[str]) -> None:
        taken = tuple(islice(values, MOST_TEXTS + 1))
        self._values[name] = taken if len(taken) <= MOST_TEXTS else (UNKNOWN,)
        self._given.pop(name, None)

    def assign(self, name: str, text: str) -> None:
        """``name=text``. Of a loop that adds all its values to one text, this is not known."""
        values = self.expand(text)
        has_several = max(len(values), len(self._values.get(name, ()))) > 1
        refers = any(name in match.groups() for match in VARIABLE.finditer(text))
        self.set(name, (UNKNOWN,) if has_several and refers else values)

    def count(self, arithmetic: str) -> None:
        """Those that arithmetic sets are not known."""
        for name in _COUNTED.findall(arithmetic):
            self.set(name, (UNKNOWN,))

    def drop_arguments(self) -> None:
        self._given = {name: value for name, value in self._given.items() if not name.isdecimal()}
        self._values = {name: values for name, values in self._values.items() if not name.isdecimal()}

    def expand(self, text: str) -> Tuple[str, ...]:
        """A word with its variables replaced: one for each value of those that have several. A variable of which these
        would be too many is not known, and neither is a text that would be too long.
        """
        if "$" not in text:
            return (text,)
        found: List[Dict[str, str]] = [{}]
        for name in dict.fromkeys(match[1] or match[2] for match in VARIABLE.finditer(text)):
            values = () if name.isdecimal() and self.are_of_function else self._values.get(name, ())
            if len(values) > 1 and len(values) * len(found) > (MOST_TEXTS if self._made < MOST_IN_ALL else 1):
                values = (UNKNOWN,)
            if values:
                found = [{**known, name: value} for known in found for value in values]
        self._made += len(found)
        return tuple(_replaced(text, known) for known in found)

    def given_text(self, text: str) -> Optional[str]:
        """A word that only has variables which the script was given; None for another."""
        names = [match[1] or match[2] for match in VARIABLE.finditer(text)]
        if any(name not in self._given or (name.isdecimal() and self.are_of_function) for name in names):
            return None
        found = self.expand(text)[0]
        return None if "$" in found or "`" in found else found


def _replaced(text: str, known: Mapping[str, str]) -> str:
    made = VARIABLE.sub(lambda match: known.get(match[1] or match[2], match[0]), text)
    return made if len(made) <= MOST_LENGTH else UNKNOWN
