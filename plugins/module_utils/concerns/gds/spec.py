# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of cuFile, and what is wrong whatever the machine."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Tuple

from ..._core.errors import DeclarationError
from ..._core.nearest import QUESTION, nearest
from ..._core.value import field, frozen
from . import schema

NAME = "gds"
CUFILE = "cufile"
# Below it a key is another one, which a newer release may have.
NEARLY = 0.8


@frozen
class GdsDeclaration:
    """The values by their keys with dots, such as ``execution.max_io_threads``."""

    values: Mapping[str, Any] = field(default_factory=dict)


def parse(params: Mapping[str, Any]) -> GdsDeclaration:
    """Raises ``DeclarationError`` on a key that is nearly a known one, and on a value that all releases refuse."""
    values = dict(sorted(_flat(params[CUFILE] or {}, ())))
    if not values:
        raise DeclarationError(
            "read the declaration",
            cause="no key of cufile.json is declared",
            hint="set one, such as cufile: {properties: {allow_compat_mode: false}}, or state: absent",
        )
    for name, value in values.items():
        cause = schema.unwritable(value) or schema.unwritable(name)
        if cause:
            found = None if isinstance(value, int) else repr(value)
            hint = "write a string, a number, true, false, a list or a mapping"
            raise DeclarationError("set {}", object=f"{CUFILE}.{name!r}", cause=cause, found=found, hint=hint)
        key = schema.KEYS.get(name)
        if key is None:
            # A release that is newer than the table may have it.
            continue
        if key.kind in (schema.NUMBER, schema.NUMBERS):
            _refuse_fractions(name, value)
        reasons = [schema.refusal(name, value, release) for release in schema.RELEASES if schema.knows(name, release)]
        if all(cause for cause, _hint in reasons):
            # The newest takes most.
            raise wrong(name, value, *reasons[-1])
    for release in schema.RELEASES:
        name, cause = schema.contradiction(values, release)
        # What is not declared may be in the file as well.
        if name and cause and _is_whole(values, name):
            raise wrong(name, values[name], cause, "")
    return GdsDeclaration(values)


def wrong(name: str, value: Any, cause: str, hint: str) -> DeclarationError:
    return DeclarationError("set {}", object=f"{CUFILE}.{name}", cause=cause, found=schema.shown(value), hint=hint)


def _is_whole(values: Mapping[str, Any], name: str) -> bool:
    """Whether all that a contradiction is about is declared."""
    for one, other in (
        (schema.MAX_IO, schema.PER_BUFFER),
        (schema.POOL_SIZES, schema.POOL_COUNTS),
        (schema.GPU_SIZES, schema.GPU_COUNTS),
    ):
        if name in (one, other):
            return one in values and other in values
    return False


def _flat(table: Mapping[Any, Any], above: Tuple[str, ...]) -> Iterator[Tuple[str, Any]]:
    for key, value in table.items():
        path = (*above, str(key))
        name = ".".join(path)
        if not all(name.split(".")):
            raise wrong(name, value, "a part of its name is empty", "remove the empty key or the extra dot")
        # null leaves alone what another level of the inventory may set.
        if value is None:
            continue
        if name in schema.KEYS:
            yield name, value
        elif isinstance(value, dict):
            yield from _flat(value, path)
        elif name in schema.OBJECTS:
            raise wrong(name, value, "it is not a mapping", "write its keys below it")
        else:
            _refuse_misspelt(name, value)
            yield name, value


def _refuse_misspelt(name: str, value: Any) -> None:
    """A key in the wrong section, of before, or with a mistake in it would be ignored without a word."""
    section, _dot, last = name.rpartition(".")
    # Its name in the first releases.
    meant = [name.replace("blacklist", "denylist", 1)] if section == "blacklist" else []
    meant += [key for key in schema.KEYS if key.rpartition(".")[2] == last]
    near = meant[0] if meant else nearest(name, schema.KEYS, cutoff=NEARLY)
    if near:
        cause = f"no release of cuFile up to 1.{schema.NEWEST} has this key, and it would be ignored without a word"
        raise wrong(name, value, cause, f"{QUESTION} {near}")


def _refuse_fractions(name: str, value: Any) -> None:
    """What is a number to Python, and to cuFile is another one, or none."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, (bool, float)):
            expected, hint = schema.EXPECTED[schema.KEYS[name].kind]
            raise wrong(name, value, f"it is not {expected}", hint)
