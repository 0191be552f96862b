# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of MIG, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Collection, Dict, Mapping, Optional, Sequence, Tuple, Union

from ..._core import match
from ..._core.errors import DeclarationError
from ..._core.nearest import did_you_mean
from ..._core.regex import regex
from ..._core.value import field, frozen
from ..._linux.systemd import is_service, is_template
from ..._nvidia import gpus

if TYPE_CHECKING:
    from ..._core.baseline import BaselineValue, Key

NAME = "mig_layout"
MIG = "mig"
LAYOUT = "layout"
INSTANCES = "instances"
ENABLED = "enabled"
DISABLED = "disabled"
FAIL, WAIT, SKIP = "fail", "wait", "skip"
# More than any GPU has slices: a bound for what is written, not for what fits.
MOST = 64

# nvidia-smi calls a compute instance of one slice in a 3g.40gb "1c.3g.40gb".
COMPUTE = regex(r"(\d{1,2})c(?:\.(.+))?", re.ASCII)
NUMBER = regex(r"\d{1,5}", re.ASCII)

Name = Union[str, int]
"""A profile as it was declared: its name in small letters without "MIG ", or its number."""


@frozen
class ItemCompute:
    """A compute instance that is declared. ``profile`` is the GPU instance's where the name tells it, else None."""

    where: str
    slices: int
    profile: Optional[Name]
    placement: Optional[int]


@frozen
class InstanceItem:
    """An element of ``instances``. ``placement`` is the first memory slice; ``compute`` is None where not declared."""

    where: str
    profile: Name
    count: int
    placement: Optional[int]
    compute: Optional[Tuple[ItemCompute, ...]]


@frozen
class MigEntry:
    """One entry of ``gpus``. ``layout`` is empty and ``instances`` None where not declared; without both, they stay."""

    entry: match.MatchEntry
    mig: bool
    layout: str
    instances: Optional[Tuple[InstanceItem, ...]]


@frozen
class MigLayoutDeclaration:
    """What is declared. ``changed`` are the values from before the first change, for ``state: absent``."""

    entries: Tuple[MigEntry, ...] = ()
    when_busy: str = FAIL
    busy_timeout: float = 0.0
    stop_services: Tuple[str, ...] = ()
    changed: Mapping[Key, BaselineValue] = field(default_factory=dict)


def check(params: Mapping[str, Any]) -> None:
    """Raises ``DeclarationError`` on what no machine could have, apart from the entries of ``gpus``."""
    if params["busy_timeout"] < 0:
        raise DeclarationError("use {}", object="busy_timeout", cause="it is below zero", wanted=params["busy_timeout"])
    for unit in params["stop_services"]:
        if not is_service(unit) or is_template(unit):
            hint = "write it as systemctl shows it, such as nvidia-dcgm.service"
            raise _wrong("stop_services", f"{unit!r} is not the name of a service", hint)


def parse(entries: Sequence[Mapping[str, Any]]) -> Tuple[MigEntry, ...]:
    """Raises ``DeclarationError`` on what no machine could have."""
    return tuple(_entry(given, entry) for given, entry in zip(entries, gpus.parse("gpus", entries)))


def _entry(given: Mapping[str, Any], entry: match.MatchEntry) -> MigEntry:
    mig = given.get(MIG) != DISABLED
    layout, instances = given.get(LAYOUT), given.get(INSTANCES)
    cause = hint = ""
    if layout is not None and instances is not None:
        cause, hint = "layout and instances are mutually exclusive", "remove one of them"
    elif not mig and (layout is not None or instances is not None):
        cause = f"it declares {INSTANCES if layout is None else LAYOUT}, and with mig: disabled there are none"
        hint = "remove that, or set mig: enabled"
    elif layout is not None and not layout.strip():
        cause, hint = "layout is empty", "name one, such as all-1g, or leave it out"
    if cause:
        raise _wrong(str(entry), cause, hint)
    return MigEntry(
        entry,
        mig,
        layout.strip().lower() if layout else "",
        None
        if instances is None
        else tuple(_item(f"{entry.where}.{INSTANCES}[{index}]", raw) for index, raw in enumerate(instances)),
    )


def _item(where: str, raw: Any) -> InstanceItem:
    fields = _fields(where, raw, ("profile", "count", "placement", "compute_instances"))
    profile, compute = _profile(where, fields["profile"])
    declared = fields.get("compute_instances")
    if declared is not None:
        if compute is not None:
            raise _wrong(where, "its profile names a compute instance, and compute_instances others", "remove one")
        if not isinstance(declared, (list, tuple)):
            raise _wrong(where, f"compute_instances is {declared!r}, and must be a list")
        compute = tuple(_compute(f"{where}.compute_instances[{index}]", one) for index, one in enumerate(declared))
    count = _number(where, "count", fields.get("count", 1), lowest=1)
    placement = _placement(where, fields)
    if placement is not None and count > 1:
        raise _wrong(where, f"{count} instances cannot begin at one placement", "write an element for each placement")
    return InstanceItem(where, profile, count, placement, compute)


def _compute(where: str, raw: Any) -> ItemCompute:
    fields = _fields(where, raw, ("profile", "placement"))
    found = COMPUTE.fullmatch(_name(where, fields["profile"]))
    if not found:
        raise _wrong(where, f"{fields['profile']!r} is not a compute instance", "write it as 1c or 1c.3g.40gb")
    profile = None if found[2] is None else _number_or_name(found[2])
    return ItemCompute(where, int(found[1]), profile, _placement(where, fields))


def _fields(where: str, raw: Any, keys: Collection[str]) -> Dict[str, Any]:
    """What an element says: a text or a number is its profile."""
    fields = {key: value for key, value in raw.items() if value is not None} if isinstance(raw, dict) else {}
    if not isinstance(raw, dict):
        fields["profile"] = raw
    for key in fields:
        if key not in keys:
            hint = did_you_mean(key, keys, otherwise=f"the keys are {', '.join(keys)}")
            raise _wrong(where, f"there is no key {key}", hint)
    if "profile" not in fields:
        raise _wrong(where, "it has no profile")
    return fields


def _profile(where: str, value: Any) -> Tuple[Name, Optional[Tuple[ItemCompute, ...]]]:
    """A GPU instance's profile, with the compute instance in the name where there is one."""
    text = _name(where, value)
    if "@" in text:
        hint = "write a dict, such as {profile: 3g.40gb, placement: 4}"
        raise _wrong(where, f"a name has no placement, and this is {value!r}", hint)
    found = COMPUTE.fullmatch(text)
    if not found:
        return _number_or_name(text), None
    if found[2] is None:
        raise _wrong(where, f"{value!r} does not name its GPU instance", f"write it as {text}.3g.40gb")
    return _number_or_name(found[2]), (ItemCompute(where, int(found[1]), None, None),)


def _name(where: str, value: Any) -> str:
    text = str(value).strip().lower() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    name = text[len("mig ") :].strip() if text.startswith("mig ") else text
    if not name or name.startswith("-"):
        raise _wrong(where, f"{value!r} is neither the name of a profile, such as 3g.40gb, nor its number")
    return name


def _number_or_name(text: str) -> Name:
    return int(text) if NUMBER.fullmatch(text) else text


def _placement(where: str, fields: Mapping[str, Any]) -> Optional[int]:
    return _number(where, "placement", fields["placement"], lowest=0) if "placement" in fields else None


def _number(where: str, key: str, value: Any, *, lowest: int) -> int:
    """A whole number; a template makes a text of it."""
    text = str(value).strip() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not NUMBER.fullmatch(text) or not lowest <= int(text) <= MOST:
        raise _wrong(where, f"{key} is {value!r}, and must be a whole number from {lowest} to {MOST}")
    return int(text)


def _wrong(where: str, cause: str, hint: str = "") -> DeclarationError:
    return DeclarationError("use {}", object=where, cause=cause, hint=hint)
