# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd: the spellings of a key. It reads ``systemdcgroup`` as ``SystemdCgroup``, and of two spellings one counts.

1.x (``valueFromTree`` of go-toml 1.9.5, marshal.go) looks for four spellings of a field and takes the first that is
there: as it is called, in lower case, in upper case, and with its first letter in lower case. 2.x
(``structFieldPath`` of go-toml 2.2.3 to 2.4.3, unmarshaler.go) takes any case, and the last one counts. Before that it
has sorted the keys (``sortEntriesByKey`` of marshaler.go), for it writes the table of a plugin as TOML and reads that
again (``Config.Decode``), and so the options of a runtime (``GenerateRuntimeOptions``). The names of runtimes are keys
of a map, and have one spelling. Until the options are read, both have them as they are written, so 2.x merges them by
their spellings (``mergeConfig``), also with those that runc has built in (``DefaultRuntimeConfig``, config_unix.go).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Tuple

from ...._text import nested
from . import keys

Table = Mapping[str, Any]
Keys = Tuple[str, ...]
# By the field's name in lower case: its name, and the fields of the table that it is, nothing for any other value.
Fields = Mapping[str, Tuple[str, Any]]
RUNTIMES = ("containerd", "runtimes")
RUNC = "runc"
# The options that runc has in 2.x where no file gives it any, empty, false or zero.
BUILT_IN = (
    *("NoNewKeyring", "ShimCgroup", "IoUid", "IoGid", "BinaryName"),
    *("Root", "SystemdCgroup", "CriuImagePath", "CriuWorkPath"),
)
# For the table of every runtime, whose keys are names.
EVERY = ""


def _fields(names: Iterable[str], tables: Mapping[str, Fields]) -> Fields:
    return {name.lower(): (name, tables.get(name, {})) for name in (*names, *tables)}


OPTIONS = _fields(("BinaryName", "SystemdCgroup", *keys.OPTIONS.values()), {})
RUNTIME = _fields(("runtime_type", "options", *(way[0] for way, _kind in keys.KEYS.values() if len(way) == 1)), {})
CONTAINERD = _fields(("default_runtime_name",), {"runtimes": {EVERY: (EVERY, RUNTIME)}})
CRI = _fields(("enable_cdi",), {"containerd": CONTAINERD})


def odd_keys(cri: Table) -> Iterator[Keys]:
    """The ways to the keys that matter here and are spelled otherwise than containerd calls them."""
    yield from _odd(cri, CRI, ())
    for name, options in _options(cri):
        yield from _odd(options, OPTIONS, (*RUNTIMES, name, "options"))


def by_name(cri: Table, *, newer: bool) -> Table:
    """The table of the CRI plugin with the names that containerd has for its keys. ``newer``: as 2.x reads it."""
    if not any(odd_keys(cri)):
        return cri
    named: Dict[str, Any] = _by_name(cri, CRI, newer)
    for name, options in _options(named):
        if newer and name == RUNC:
            options = {key: value for key, value in options.items() if not _is_hidden(key)}
        nested.put(named, (*RUNTIMES, name, "options"), _by_name(options, OPTIONS, newer))
    return named


def spellings(cri: Table, way: Keys) -> List[Keys]:
    """The ways to a key of the CRI plugin's table as they are written there. With a value at all of them it counts.

    The one with the names of containerd is among them where no other is read by 1.x as well.
    """
    found: List[Tuple[Keys, Any]] = [((), cri)]
    for depth, key in enumerate(way):
        is_name = way[:depth] == RUNTIMES
        found = [
            ((*before, one), table.get(one) if isinstance(table, dict) else None)
            for before, table in found
            for one in ([key] if is_name else _spelled(table, key))
        ]
    return [one for one, _table in found]


def last_spelled(tree: Table, others: Table) -> Dict[str, Any]:
    """Our table for 2.x, with each option of a runtime in the spelling that counts beside those of ``others``.

    All other keys are called in lower case, which counts more than any other spelling.
    """
    made: Dict[str, Any] = deepcopy(dict(tree))
    beside = dict(_options(_by_name(others, CRI, newer=True)))
    for name, options in _options(made):
        spelled = {max([key, *_matches(beside.get(name, {}), key)]): value for key, value in options.items()}
        nested.put(made, (*RUNTIMES, name, "options"), spelled)
    return made


def _options(cri: Table) -> List[Tuple[str, Table]]:
    """The tables of options by the names of their runtimes; what is no table is found to be wrong elsewhere."""
    runtimes = nested.get(cri, RUNTIMES)
    found = (
        (name, nested.get(runtimes, (name, "options"))) for name in (runtimes if isinstance(runtimes, dict) else ())
    )
    return [(name, options) for name, options in found if isinstance(options, dict)]


def _odd(table: Any, fields: Fields, way: Keys) -> Iterator[Keys]:
    if not fields or not isinstance(table, dict):
        return
    for key, value in table.items():
        name, inside = fields.get(EVERY) or fields.get(key.lower(), (key, {}))
        if name not in (key, EVERY):
            yield (*way, key)
        yield from _odd(value, inside, (*way, key))


def _by_name(table: Any, fields: Fields, newer: bool) -> Any:
    if not fields or not isinstance(table, dict):
        return table
    if EVERY in fields:
        return {key: _by_name(value, fields[EVERY][1], newer) for key, value in table.items()}
    made = {key: value for key, value in table.items() if key.lower() not in fields}
    for name, inside in fields.values():
        found = sorted(_matches(table, name)) if newer else [key for key in _older(name) if key in table][:1]
        for key in found:
            # The last one counts, and of tables what both have.
            made = nested.merged(made, {name: _by_name(table[key], inside, newer)})
    return made


def _is_hidden(key: str) -> bool:
    """Whether a built-in option of runc counts more than this spelling of it."""
    return any(key < name and key.lower() == name.lower() for name in BUILT_IN)


def _spelled(table: Any, name: str) -> List[str]:
    """The spellings of a key in a table, with its name where 1.x reads none of them."""
    found = _matches(table, name)
    return found if any(key in _older(name) for key in found) else [*found, name]


def _matches(table: Any, name: str) -> List[str]:
    return [key for key in table if key.lower() == name.lower()] if isinstance(table, dict) else []


def _older(name: str) -> Tuple[str, ...]:
    """The spellings that 1.x reads, the one that counts first."""
    return name, name.lower(), name.upper(), name[0].lower() + name[1:]
