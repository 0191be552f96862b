# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One owner for each knob: what two concerns declare is refused before anything is read.

A knob is named as people know it, its kind first: ``sysctl vm.nr_hugepages``, ``kernel argument hugepages``,
``LimitNOFILE of docker.service``.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Dict, Mapping, Sequence

from .errors import DeclarationError


def contested(owned: Mapping[str, Sequence[str]], knobs: Mapping[str, Sequence[str]]) -> Dict[str, DeclarationError]:
    """The concerns that declare a knob of another, with the refusal of each.

    ``owned`` are the knobs of each declared concern as patterns, ``knobs`` those that a declaration names one by one.
    """
    found: Dict[str, DeclarationError] = {}
    named: Dict[str, str] = {}
    for concern, names in knobs.items():
        for knob in names:
            owner = next(
                (
                    other
                    for other, patterns in owned.items()
                    if other != concern and any(_matches(knob, pattern) for pattern in patterns)
                ),
                named.get(knob, ""),
            )
            if owner and concern not in found:
                found[concern] = DeclarationError(
                    "declare {}",
                    object=knob,
                    cause=f"{owner} is declared too, and sets it",
                    hint=f"leave it to {owner}, or remove the declaration of {owner}",
                )
            named.setdefault(knob, concern)
    return found


def _matches(knob: str, pattern: str) -> bool:
    """As ``fnmatchcase``, which compiles each pattern, where the beginning of the pattern does not answer it."""
    begin, star, rest = pattern.partition("*")
    if not star:
        return knob == pattern
    return knob.startswith(begin) and (not rest or fnmatchcase(knob, pattern))
