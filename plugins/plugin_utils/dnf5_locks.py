# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of dnf 5 that holds packages, ``/etc/dnf/versionlock.toml``, with entries of ours.

An entry of ours is known by its key ``comment``. Comments of TOML would not do: dnf drops them when it writes the file.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from ..module_utils._kinds import versionlock
from ..module_utils._kinds.versionlock import VERSION
from ..module_utils._text.toml_text import parse


def with_locks(text: str, packages: Sequence[str], version: str, comment: str) -> str:
    """The file with these packages locked to ``version``, with its epoch; with an empty one, none of ours is left.

    It stays as it is where that is in it. Raises ``CannotLook`` on what dnf would not read either.
    """
    # Raises on it.
    versionlock.names_of(text)
    found: Dict[str, Any] = parse(text).data
    entries: List[Mapping[str, Any]] = found.get("packages", [])
    ours = [_entry(name, version, comment) for name in packages] if version else []
    if [entry for entry in entries if entry.get("comment") == comment] == ours and (
        not ours or found.get("version") == VERSION
    ):
        return text
    others = [entry for entry in entries if entry.get("comment") != comment]
    return "".join(_lines([*others, *ours]))


def _entry(name: str, version: str, comment: str) -> Dict[str, Any]:
    return {
        "name": name,
        "comment": comment,
        "conditions": [{"key": "evr", "comparator": "=", "value": version}],
    }


def _lines(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"version = {json.dumps(VERSION)}\n"
    for entry in entries:
        yield "\n[[packages]]\n"
        yield from (f"{key} = {json.dumps(value)}\n" for key, value in entry.items() if key != "conditions")
        for condition in entry.get("conditions", []):
            yield "[[packages.conditions]]\n"
            yield from (f"{key} = {json.dumps(value)}\n" for key, value in condition.items())
