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
from .state import GIGANTIC_KB, Knob, Pool, State, format_size, thp_object

FAIL = "fail"
REBOOT = "reboot"
KHUGEPAGED = (
    "pages_to_scan",
    "scan_sleep_millisecs",
    "alloc_sleep_millisecs",
    "max_ptes_none",
    "max_ptes_swap",
    "max_ptes_shared",
)
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
    _check_memory(pools, state)
    wants = [
        Want(state.pool(size_kb, number).knob, count)
        for size_kb, counts in pools.items()
        for number, count in counts.items()
    ]
    unmanaged: List[Unmanaged] = []
    for path, object_, setting, value in _transparent(params["transparent"] or {}, state):
        knob = state.knobs.get(path)
        if knob is None:
            reason = "this kernel does not have the setting" if state.knobs else "this kernel was built without them"
            if params["strict"]:
                raise DeclarationError(f"set {setting}", object=object_, cause=reason, wanted=value)
            unmanaged.append(Unmanaged(object_, setting, reason))
        else:
            _check_knob(knob, value, state)
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
    match = re.fullmatch(r"(\d+)\s*([KMG])(?:i?B)?", text.strip(), re.IGNORECASE)
    return int(match[1]) * {"K": 1, "M": 1024, "G": 1024 * 1024}[match[2].upper()] if match else None


def command_line_arguments(counts: Mapping[Pool, int], state: State) -> Tuple[str, ...]:
    """The kernel arguments that reserve these pages of one size at boot, none for no pages.

    The form with nodes came with Linux 5.16 (Documentation/admin-guide/kernel-parameters.txt, ``hugepages=``).
    """
    total = sum(counts.values())
    if not total:
        return ()
    size = format_size(next(iter(counts)).size_kb)
    memory = [node.number for node in state.nodes if node.number is not None and node.total_kb]
    by_node = {pool.node.number: count for pool, count in counts.items() if pool.node.number is not None and count}
    even = {number: count for number, count in numa.spread(total, memory).items() if count} if memory else {}
    if len(memory) < 2 or (state.kernel < (5, 16) and by_node == even):
        return (f"hugepagesz={size}", f"hugepages={total}")
    if state.kernel < (5, 16):
        raise DeclarationError(
            f"reserve {size} pages at boot",
            cause="before Linux 5.16 the command line takes only a total, which goes evenly to all nodes with memory",
            found=",".join(f"{number}:{count}" for number, count in sorted(even.items())),
            wanted=",".join(f"{number}:{count}" for number, count in sorted(by_node.items())),
            hint="declare that distribution, or permanent: false",
        )
    return (f"hugepagesz={size}", "hugepages=" + ",".join(f"{node}:{count}" for node, count in sorted(by_node.items())))


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
            number = int(name) if str(name).isdigit() else None
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
    usable = [node.number for node in state.nodes if node.cpus and node.total_kb and node.number in known]
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
    if isinstance(value, bool) or not re.fullmatch(r"-?\d+", str(value)):
        raise _wrong(size, "the number of pages is not a whole number", found=str(value))
    if int(value) < 0:
        raise _wrong(size, "the number of pages is negative", found=int(value))
    return int(value)


def _check_memory(pools: Mapping[int, Mapping[Optional[int], int]], state: State) -> None:
    for node in state.nodes:
        needed = sum(size_kb * counts.get(node.number, 0) for size_kb, counts in pools.items())
        if needed > node.total_kb:
            sizes = ", ".join(format_size(size_kb) for size_kb, counts in pools.items() if counts.get(node.number))
            raise DeclarationError(
                f"declare pages of {sizes}",
                object=node.name,
                cause="they need more memory than there is",
                found=f"{node.total_kb // 1024} MiB",
                wanted=f"{needed // 1024} MiB",
            )


def _transparent(declared: Mapping[str, Any], state: State) -> List[Tuple[str, str, str, Scalar]]:
    """What is declared about transparent huge pages, as (path, object, setting, value)."""
    found: List[Tuple[str, str, str, Scalar]] = []
    for setting in ("enabled", "defrag", "shmem_enabled"):
        found.append((f"{THP}/{setting}", thp_object(None), setting, declared.get(setting)))
    for setting, value in (declared.get("khugepaged") or {}).items():
        number = None if value is None else int(value)
        found.append((f"{THP}/khugepaged/{setting}", "khugepaged", setting, number))
    seen = set()
    for entry in declared.get("sizes") or ():
        size_kb = parse_size(entry["size"])
        goal = f"declare transparent hugepages of {entry['size']}"
        if size_kb is None:
            raise DeclarationError(goal, cause="this is not a page size", hint="write it like 64K or 2M")
        if size_kb in seen:
            raise DeclarationError(goal, cause="the size is declared twice")
        seen.add(size_kb)
        if state.thp_sizes and size_kb not in state.thp_sizes:
            known = ", ".join(format_size(size) for size in state.thp_sizes)
            raise DeclarationError(goal, cause="this kernel does not have the size", found=known)
        for setting in ("enabled", "shmem_enabled"):
            path = f"{THP}/hugepages-{size_kb}kB/{setting}"
            found.append((path, thp_object(size_kb), setting, entry.get(setting)))
    return [row for row in found if row[3] is not None]


def _check_knob(knob: Knob, value: Scalar, state: State) -> None:
    problem = ""
    if knob.choices and value not in knob.choices:
        problem = f"this kernel knows only {', '.join(knob.choices)}"
    elif isinstance(value, int) and value < 0:
        problem = "the value is negative"
    elif knob.setting == "pages_to_scan" and value == 0:
        problem = "the kernel takes no 0 here"
    elif knob.setting.startswith("max_ptes") and isinstance(value, int) and state.thp_kb and value >= state.thp_kb // 4:
        problem = f"the kernel takes at most {state.thp_kb // 4 - 1} here"
    if problem:
        raise DeclarationError(f"set {knob.setting}", object=knob.object, cause=problem, wanted=value)


def is_gigantic(pool: Pool) -> bool:
    """Whether the kernel can hardly find such pages once it runs, so that they belong on its command line."""
    return pool.size_kb >= GIGANTIC_KB
