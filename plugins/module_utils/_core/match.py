# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which entry of a declaration wins which device: the selection that every concern with a ``match`` shares.

Entries are tried in order and the first that matches a device wins it. All keys of a ``match`` must agree; each has one
value or a list of alternatives, as shell globs. An empty ``match`` agrees with everything.
"""

from __future__ import annotations

import re
from fnmatch import translate
from typing import Any, Dict, Mapping, Optional, Pattern, Sequence, Tuple

from .errors import DeclarationError
from .nearest import did_you_mean
from .value import frozen
from .wording import first_of

WILDCARDS = frozenset("*?[")


@frozen
class MatchEntry:
    """One entry: ``where`` is how messages call it (``queues[0]``), ``match`` its alternatives by key."""

    where: str
    match: Mapping[str, Tuple[str, ...]]
    optional: bool = False

    def __str__(self) -> str:
        if not self.match:
            return f"{self.where} (which matches everything)"
        return f"{self.where} ({', '.join(f'{key}: {first_of(self.match[key], 4)}' for key in self.match)})"


@frozen
class Candidate:
    """A device that can be won, with its values by key; one may have several (a disk reached by two controllers).

    ``named_by`` is the key that must name it: no entry wins it without this key, nor by a pattern that begins with a
    wildcard.
    """

    name: str
    values: Mapping[str, Tuple[str, ...]]
    named_by: Optional[str] = None


def names_explicitly(pattern: str) -> bool:
    """Whether a pattern says more than "anything"."""
    return pattern[:1] not in WILDCARDS


def parse(option: str, entries: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Tuple[MatchEntry, ...]:
    """The entries of an option. Raises ``DeclarationError`` on a key that is not one of ``keys``, or on no text."""
    return tuple(
        MatchEntry(
            where=f"{option}[{index}]",
            match={
                key: _alternatives(f"{option}[{index}]", key, value, keys)
                for key, value in (entry.get("match") or {}).items()
            },
            optional=bool(entry.get("optional")),
        )
        for index, entry in enumerate(entries)
    )


def select(entries: Sequence[MatchEntry], candidates: Sequence[Candidate]) -> Tuple[Optional[int], ...]:
    """The index of the entry that wins each candidate, None where none does.

    Raises ``DeclarationError`` for an entry that wins nothing and is not optional: it names what took its devices.
    """
    tests = [_Test(entry) for entry in entries]
    matching = [[index for index, test in enumerate(tests) if test.agrees(candidate)] for candidate in candidates]
    winners = tuple(indexes[0] if indexes else None for indexes in matching)
    for index, entry in enumerate(entries):
        if entry.optional or index in winners:
            continue
        lost = [position for position, indexes in enumerate(matching) if index in indexes]
        if not lost:
            there = ", ".join(candidate.name for candidate in candidates) or "nothing"
            raise DeclarationError(
                "apply {}",
                object=str(entry),
                cause=f"it matches no device; there is {there}",
                hint="correct the match, or set optional: true",
            )
        takers = sorted({winner for position in lost for winner in [winners[position]] if winner is not None})
        raise DeclarationError(
            "apply {}",
            object=str(entry),
            cause=(
                f"{first_of([candidates[position].name for position in lost], 4)} matched earlier "
                f"{' and '.join(str(entries[taker]) for taker in takers)}"
            ),
            hint="put the entry before them, or set optional: true",
        )
    return winners


class Glob:
    """Alternatives as shell globs, all at once; none at all agree with nothing.

    Most are plain text, and there may be thousands: these are looked up, and only the others are compiled, when asked.
    """

    __slots__ = ("_ignore_case", "_pattern", "_plain", "_wild")

    def __init__(self, alternatives: Sequence[str], *, ignore_case: bool = False) -> None:
        self._ignore_case = ignore_case
        self._wild = tuple(text for text in alternatives if ignore_case or not WILDCARDS.isdisjoint(text))
        self._plain = alternatives if len(alternatives) < 2 else frozenset(alternatives)
        self._pattern: Optional[Pattern[str]] = None

    def match(self, value: str) -> bool:
        if not self._wild:
            return value in self._plain
        if self._pattern is None:
            texts = "|".join(translate(text) for text in self._wild)
            self._pattern = re.compile(texts, re.IGNORECASE if self._ignore_case else 0)
        return self._pattern.match(value) is not None or (not self._ignore_case and self._is_plain(value))

    def _is_plain(self, value: str) -> bool:
        return value in self._plain and WILDCARDS.isdisjoint(value)


class _Test:
    """An entry with its globs."""

    def __init__(self, entry: MatchEntry) -> None:
        self._entry = entry
        self._globs = [(key, Glob(alternatives)) for key, alternatives in entry.match.items()]
        self._explicit: Dict[str, Glob] = {}

    def agrees(self, candidate: Candidate) -> bool:
        for key, glob in self._globs:
            if not _any(glob, candidate.values.get(key, ())):
                return False
        named_by = candidate.named_by
        return named_by is None or _any(self._naming(named_by), candidate.values.get(named_by, ()))

    def _naming(self, key: str) -> Glob:
        if key not in self._explicit:
            self._explicit[key] = Glob([text for text in self._entry.match.get(key, ()) if names_explicitly(text)])
        return self._explicit[key]


def _any(glob: Glob, values: Sequence[str]) -> bool:
    return any(map(glob.match, values))


def _alternatives(where: str, key: str, value: Any, keys: Sequence[str]) -> Tuple[str, ...]:
    if key not in keys:
        raise DeclarationError(
            "use {}",
            object=where,
            cause=f"there is no key {key}",
            hint=did_you_mean(key, keys, otherwise=f"the keys are {', '.join(keys)}"),
        )
    texts = value if isinstance(value, (list, tuple)) else [value]
    if not texts or any(isinstance(text, bool) or not isinstance(text, (str, int)) or text == "" for text in texts):
        raise DeclarationError(
            "use {}",
            object=where,
            cause=f"{key} is {value!r}, and must be a string or a list of strings",
            # YAML 1.1 reads digits and colons as a number to the base of 60: 0000:17:00.0 is 1020.0.
            hint="put it in quotes, or YAML reads a number" if any(isinstance(one, float) for one in texts) else "",
        )
    return tuple(str(text) for text in texts)
