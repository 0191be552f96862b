# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this machine would not take of a declaration, or what it would not come to: refused or named before a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Mapping, Tuple

from ..._core.change import Unmanaged
from ..._core.wording import first_of
from . import schema
from .observation import PATH, wants_p2pdma
from .spec import wrong

if TYPE_CHECKING:
    from .observation import GdsState

SHOWN = 3
BREAKS = "every program with cuFile fails to start"


def check(state: GdsState, values: Mapping[str, Any]) -> Tuple[Unmanaged, ...]:
    """What is named; raises ``DeclarationError`` on what would break the programs of the node."""
    _refuse_values(state, values)
    _refuse_no_way(state, values)
    return (
        *_ignored(state, values),
        *_of_others(state, values),
        *_p2pdma(state, values),
        *_running(state),
    )


def _refuse_values(state: GdsState, values: Mapping[str, Any]) -> None:
    for name, path in state.missing.items():
        kind = schema.KEYS[name].exists
        cause = f"this machine has no {kind} {path}, and {BREAKS} where one is missing"
        raise wrong(name, values[name], cause, "make it first, or leave it out")
    merged = {**state.values, **values}
    for release, library in state.releases.items():
        nearest = schema.nearest_known(release)
        for name, value in values.items():
            cause, hint = schema.refusal(name, value, nearest)
            if cause:
                raise wrong(name, value, f"{cause}, and {library} is on this machine", hint)
        known = {name: value for name, value in merged.items() if _is_good(name, value, nearest)}
        name, cause = schema.contradiction(known, nearest)
        if name in values or (name and {schema.MAX_IO, schema.PER_BUFFER, schema.POOL_SIZES} & values.keys()):
            raise wrong(name, merged.get(name), f"{cause} ({library})", f"declare both, or correct {PATH}")


def _is_good(name: str, value: Any, release: int) -> bool:
    return value is not None and schema.knows(name, release) and not schema.refusal(name, value, release)[0]


def _ignored(state: GdsState, values: Mapping[str, Any]) -> Iterator[Unmanaged]:
    """Keys that a library of this machine does not read; those in containers and of Python may."""
    for name in values:
        if name not in schema.KEYS:
            reason = f"no release of cuFile up to 1.{schema.NEWEST} reads it, and newer ones are not known here"
            yield Unmanaged(PATH, name, reason, goal=f"set {name} in {{}}", cause=reason)
            continue
        without = [f"1.{one}" for one in state.releases if one < schema.KEYS[name].since]
        if without:
            reason = (
                f"cuFile has it from 1.{schema.KEYS[name].since} on, and this machine has {first_of(without, SHOWN)}"
            )
            yield Unmanaged(PATH, name, reason, excused=True)
        elif schema.KEYS[name].until < min(state.releases or (schema.FIRST,)):
            reason = f"cuFile reads it up to 1.{schema.KEYS[name].until}"
            yield Unmanaged(PATH, name, reason, excused=True)
        if not state.releases:
            cause, _hint = schema.refusal(name, values[name], schema.FIRST)
            if cause and schema.knows(name, schema.FIRST):
                reason = f"{cause}, newer ones more, and this machine has no cuFile whose release would tell"
                yield Unmanaged(PATH, name, reason, excused=True)


def _of_others(state: GdsState, values: Mapping[str, Any]) -> Iterator[Unmanaged]:
    """What others wrote into the file and cuFile refuses: then what is declared helps nobody."""
    for name, value in state.values.items():
        if name in values:
            continue
        releases = list(map(schema.nearest_known, state.releases)) or list(schema.RELEASES)
        causes = [schema.refusal(name, value, release)[0] for release in releases]
        if any(causes) if state.releases else all(causes):
            shown = schema.shown(value)
            reason = f"others set it to {shown}: {next(filter(None, causes), '')}, so {BREAKS}"
            yield Unmanaged(
                PATH,
                name,
                reason,
                goal=f"use {{}} with {name} of others",
                cause=reason,
                hint="correct it there, declare it, or set strict: false",
            )


def _refuse_no_way(state: GdsState, values: Mapping[str, Any]) -> None:
    """Without the compatible mode cuFile opens nothing where there is neither nvidia_fs nor P2PDMA."""
    ways = state.ways
    if ways is None or values.get(schema.ALLOW_COMPAT) is not False or ways.nvidia_fs:
        return
    uses = any(wants_p2pdma(*one) for one in {**state.values, **values}.items())
    lacks = "; ".join(ways.p2pdma_lacks)
    if lacks or not uses:
        cause = f"nvidia_fs is not loaded, and P2PDMA is {f'not possible ({lacks})' if lacks else 'not declared'}, so"
        hint = "load nvidia_fs with kernel_modules_load, or leave it out"
        raise wrong(schema.ALLOW_COMPAT, False, f"{cause} {BREAKS}", hint)


def _p2pdma(state: GdsState, values: Mapping[str, Any]) -> Iterator[Unmanaged]:
    lacks = "; ".join(state.ways.p2pdma_lacks) if state.ways else ""
    for name, value in values.items():
        if wants_p2pdma(name, value) and lacks:
            reason = f"P2PDMA is not possible here: {lacks}"
            hint = "correct that, leave it out, or set strict: false"
            yield Unmanaged(PATH, name, reason, goal=f"use {name} of {{}}", cause=reason, hint=hint)


def _running(state: GdsState) -> Iterator[Unmanaged]:
    for one in state.programs:
        yield Unmanaged(
            f"{one.name} ({one.pid})",
            PATH,
            "it was started before the file was written, and keeps what it read",
            excused=True,
        )
