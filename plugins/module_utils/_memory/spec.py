# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of ``hugepages``, as data, and what a declaration means on a machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .._core.change import Unmanaged
from .._core.errors import DeclarationError, Scalar
from .._topology import numa
from .owners import THP
from .state import GIGANTIC_KB, KHUGEPAGED, Pool, State, format_size, thp_object

FAIL = "fail"
REBOOT = "reboot"
SHMEM = ["always", "within_size", "advise", "never", "deny", "force"]
SHMEM_OF_SIZE = ["always", "inherit", "within_size", "advise", "never"]

OPTIONS: Mapping[str, Any] = {
    "pools": {
        "type": "list",
        "elements": "dict",
        "options": {
            "size": {"type": "str", "required": True},
            "pages": {"type": "int"},
            "per_node": {"type": "dict"},
        },
    },
    "transparent": {
        "type": "dict",
        "options": {
            "enabled": {"type": "str", "choices": ["always", "madvise", "never"]},
            "defrag": {"type": "str", "choices": ["always", "defer", "defer+madvise", "madvise", "never"]},
            "shmem_enabled": {"type": "str", "choices": SHMEM},
            "khugepaged": {
                "type": "dict",
                "options": {"defrag": {"type": "bool"}, **{name: {"type": "int"} for name in KHUGEPAGED}},
            },
            "sizes": {
                "type": "list",
                "elements": "dict",
                "options": {
                    "size": {"type": "str", "required": True},
                    "enabled": {"type": "str", "choices": ["always", "inherit", "madvise", "never"]},
                    "shmem_enabled": {"type": "str", "choices": SHMEM_OF_SIZE},
                },
            },
        },
    },
    "on_shortage": {"type": "str", "choices": [FAIL, REBOOT], "default": FAIL},
    "drop_caches": {"type": "bool", "default": False},
}


@dataclass(frozen=True)
class Want:
    """One knob and the value it shall have, now and at boot alike."""

    knob: str
    value: Scalar


@dataclass(frozen=True)
class Desired:
    """The declaration on this machine. ``giving_back`` is ``state: absent``: no file of ours at the next boot."""

    wants: Tuple[Want, ...]
    unmanaged: Tuple[Unmanaged, ...] = ()
    immediate: bool = True
    permanent: bool = True
    on_shortage: str = FAIL
    drop_caches: bool = False
    giving_back: bool = False


def normalise(params: Mapping[str, Any], state: State) -> Desired:
    """The declaration resolved. Raises ``DeclarationError`` on what this machine cannot have."""
    if params["on_shortage"] == REBOOT and not params["permanent"]:
        raise DeclarationError(
            "declare huge pages",
            cause="on_shortage: reboot waits for the next boot, and permanent: false leaves that as it is",
            hint="declare permanent: true, or on_shortage: fail",
        )
    pools: Dict[int, Mapping[Optional[int], int]] = {}
    for entry in params["pools"] or ():
        size_kb = _pool_size(entry["size"], state)
        if size_kb in pools:
            raise _wrong(entry["size"], "the size is declared twice")
        pools[size_kb] = _counts(entry, size_kb, state)
    wants = [
        Want(state.pool(size_kb, number).knob, count)
        for size_kb, counts in pools.items()
        for number, count in counts.items()
    ]
    if any(want.value != state.pools[want.knob].lasting for want in wants):
        from .limits import check_memory

        check_memory(pools, state)
    unmanaged: List[Unmanaged] = []
    for path, object_, setting, value in _transparent(params["transparent"] or {}, state):
        knob = state.knobs.get(path)
        if knob is None:
            reason = "this kernel does not have the setting" if state.knobs else "this kernel was built without them"
            if params["strict"]:
                raise DeclarationError(f"set {setting}", object=object_, cause=reason, wanted=value)
            unmanaged.append(Unmanaged(object_, setting, reason))
        else:
            if value != knob.value:
                from .limits import check_knob

                check_knob(knob, value, state)
            wants.append(Want(path, value))
    return Desired(
        tuple(wants),
        tuple(unmanaged),
        immediate=params["immediate"],
        permanent=params["permanent"],
        on_shortage=params["on_shortage"],
        drop_caches=params["drop_caches"],
    )


def parse_size(text: str) -> Optional[int]:
    """A page size in kB, from ``2M``, ``1G``, ``64K`` or the like; None when it is none."""
    match = re.fullmatch(r"([0-9]{1,9})\s*([KMG])(?:i?B)?", text.strip(), re.IGNORECASE)
    return int(match[1]) * {"K": 1, "M": 1024, "G": 1024 * 1024}[match[2].upper()] if match else None


def _wrong(size: str, cause: str, **values: Any) -> DeclarationError:
    return DeclarationError(f"declare pages of {size}", cause=cause, **values)


def _pool_size(text: str, state: State) -> int:
    size_kb = parse_size(text)
    if size_kb is None:
        raise _wrong(text, "this is not a page size", hint="write it like 2M or 1G")
    if size_kb not in state.sizes:
        known = ", ".join(format_size(size) for size in state.sizes)
        raise _wrong(text, "this kernel does not have the size", found=known or "no huge pages at all")
    return size_kb


def _counts(entry: Mapping[str, Any], size_kb: int, state: State) -> Mapping[Optional[int], int]:
    size, pages, per_node = entry["size"], entry.get("pages"), entry.get("per_node")
    if pages is not None and per_node is not None:
        raise _wrong(size, "both pages and per_node are given", hint="pages is the total, per_node says where")
    if pages is None and per_node is None:
        raise _wrong(size, "neither pages nor per_node is given", hint="pages is the total, per_node says where")
    known = {pool.node.number for pool in state.of_size(size_kb)}
    if per_node is not None:
        counts: Dict[Optional[int], int] = {}
        for name, value in per_node.items():
            number = int(name) if re.fullmatch(r"0|[1-9][0-9]{0,5}", str(name)) else None
            if number is None or number not in known:
                there = ", ".join(node.name for node in state.nodes if node.number in known and node.number is not None)
                raise _wrong(
                    size, f"there is no NUMA node {name} with huge pages", found=there or "a machine without NUMA nodes"
                )
            counts[number] = _count(value, size)
        return counts
    total = _count(pages, size)
    if known == {None}:
        return {None: total}
    usable = [node.number for node in state.nodes if node.has_cpus and node.total_kb and node.number in known]
    numbers = [number for number in usable if number is not None]
    if not numbers:
        raise _wrong(
            size,
            "no NUMA node has both CPUs and memory",
            hint="name the nodes in per_node: memory without CPUs gets pages only that way",
        )
    shares = numa.spread(total, numbers)
    return {number: shares.get(number, 0) for number in sorted(number for number in known if number is not None)}


def _count(value: Any, size: str) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]{1,15}", str(value)):
        raise _wrong(size, "the number of pages is not a whole number", found=str(value))
    if int(value) < 0:
        raise _wrong(size, "the number of pages is negative", found=int(value))
    return int(value)


def _transparent(declared: Mapping[str, Any], state: State) -> List[Tuple[str, str, str, Scalar]]:
    """What is declared about transparent huge pages, as (path, object, setting, value)."""
    found: List[Tuple[str, str, str, Scalar]] = []
    for setting in ("enabled", "defrag", "shmem_enabled"):
        found.append((f"{THP}/{setting}", thp_object(None), setting, declared.get(setting)))
    for setting, value in (declared.get("khugepaged") or {}).items():
        if isinstance(value, bool) and setting != "defrag":
            raise DeclarationError(f"set {setting}", object="khugepaged", cause="it is a number", wanted=str(value))
        number = None if value is None else int(value)
        found.append((f"{THP}/khugepaged/{setting}", "khugepaged", setting, number))
    if declared.get("sizes"):
        from .thp_sizes import settings_of_sizes

        found.extend(settings_of_sizes(declared["sizes"], state))
    return [row for row in found if row[3] is not None]


def is_gigantic(pool: Pool) -> bool:
    """Whether the kernel can hardly find such pages once it runs, so that they belong on its command line."""
    return pool.size_kb >= GIGANTIC_KB
