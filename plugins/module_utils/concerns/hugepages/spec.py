# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of ``hugepages``, as data, and what a declaration means on a machine."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Unmanaged
from ..._core.errors import DeclarationError
from ..._core.setting import Scalar
from ..._core.value import frozen
from ..._linux import numa
from .owners import THP
from .state import GIGANTIC_KB, HugepagesState, Pool, ThpTunable, format_size, thp_object

FAIL = "fail"
REBOOT = "reboot"


@frozen
class WantedTunable:
    """One tunable and the value it shall have, now and at boot alike."""

    tunable: str
    value: Scalar


@frozen
class HugepagesDesired:
    """The declaration on this machine. ``restoring`` is ``state: absent``: no file of ours at the next boot."""

    wants: Tuple[WantedTunable, ...]
    unmanaged: Tuple[Unmanaged, ...] = ()
    immediate: bool = True
    permanent: bool = True
    on_shortage: str = FAIL
    drop_caches: bool = False
    restoring: bool = False


def normalise(params: Mapping[str, Any], state: HugepagesState) -> HugepagesDesired:
    """The declaration resolved. Raises ``DeclarationError`` on what this machine cannot have."""
    if params["on_shortage"] == REBOOT and not params["permanent"]:
        raise DeclarationError(
            "declare huge pages",
            cause="on_shortage: reboot waits for the next boot, and permanent: false leaves that as it is",
            hint="set permanent: true, or on_shortage: fail",
        )
    pools: Dict[int, Mapping[Optional[int], int]] = {}
    for entry in params["pools"] or ():
        size_kb = _pool_size(entry["size"], state)
        if size_kb in pools:
            raise _wrong(entry["size"], "the size is declared twice")
        pools[size_kb] = _counts(entry, size_kb, state)
    wants = [
        WantedTunable(state.pool(size_kb, number).tunable, count)
        for size_kb, counts in pools.items()
        for number, count in counts.items()
    ]
    if any(want.value != state.pools[want.tunable].lasting for want in wants):
        check_memory(pools, state)
    unmanaged: List[Unmanaged] = []
    for path, object_, setting, value in _transparent(params["transparent"] or {}, state):
        tunable = state.tunables.get(path)
        if tunable is None:
            reason = "this kernel does not have the setting" if state.tunables else "this kernel was built without them"
            if params["strict"]:
                raise DeclarationError(f"set {setting}", object=object_, cause=reason, wanted=value)
            unmanaged.append(Unmanaged(object_, setting, reason))
        else:
            if value != tunable.value:
                check_tunable(tunable, value, state)
            wants.append(WantedTunable(path, value))
    return HugepagesDesired(
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


def _pool_size(text: str, state: HugepagesState) -> int:
    size_kb = parse_size(text)
    if size_kb is None:
        raise _wrong(text, "this is not a page size", hint="write it like 2M or 1G")
    if size_kb not in state.sizes:
        known = ", ".join(format_size(size) for size in state.sizes)
        raise _wrong(text, "this kernel does not have the size", found=known or "no huge pages at all")
    return size_kb


def _counts(entry: Mapping[str, Any], size_kb: int, state: HugepagesState) -> Mapping[Optional[int], int]:
    size, pages, per_node = entry["size"], entry.get("pages"), entry.get("per_node")
    if pages is not None and per_node is not None:
        raise _wrong(size, "both pages and per_node are given", hint="pages is the total, per_node is by node")
    if pages is None and per_node is None:
        raise _wrong(size, "neither pages nor per_node is given", hint="pages is the total, per_node is by node")
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


def _transparent(declared: Mapping[str, Any], state: HugepagesState) -> List[Tuple[str, str, str, Scalar]]:
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
        found.extend(settings_of_sizes(declared["sizes"], state))
    return [row for row in found if row[3] is not None]


def is_gigantic(pool: Pool) -> bool:
    """Whether the kernel can hardly find such pages once it runs, so that they belong on its command line."""
    return pool.size_kb >= GIGANTIC_KB


def settings_of_sizes(
    entries: Sequence[Mapping[str, Any]], state: HugepagesState
) -> List[Tuple[str, str, str, Scalar]]:
    """What is declared, as (path, object, setting, value). Raises ``DeclarationError`` on a size that is not there."""
    found: List[Tuple[str, str, str, Scalar]] = []
    seen = set()
    for entry in entries:
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
    return found


def check_memory(pools: Mapping[int, Mapping[Optional[int], int]], state: HugepagesState) -> None:
    for node in state.nodes:
        needed = sum(size_kb * counts.get(node.number, 0) for size_kb, counts in pools.items())
        if needed > node.total_kb:
            sizes = ", ".join(format_size(size_kb) for size_kb, counts in pools.items() if counts.get(node.number))
            raise DeclarationError(
                f"declare pages of {sizes}",
                object=node.name,
                cause="they need more memory than the node has",
                found=f"{node.total_kb // 1024} MiB",
                wanted=f"{needed // 1024} MiB",
            )


def check_tunable(tunable: ThpTunable, value: Scalar, state: HugepagesState) -> None:
    problem = ""
    if tunable.choices and value not in tunable.choices:
        problem = f"this kernel knows only {', '.join(tunable.choices)}"
    elif isinstance(value, int) and value < 0:
        problem = "the value is negative"
    elif isinstance(value, int) and value >= 2**32:
        problem = f"the kernel accepts at most {2**32 - 1} here"
    elif tunable.setting == "pages_to_scan" and value == 0:
        problem = "the kernel does not accept 0 here"
    elif (
        tunable.setting.startswith("max_ptes")
        and isinstance(value, int)
        and state.thp_kb
        and value >= state.thp_kb // 4
    ):
        problem = f"the kernel accepts at most {state.thp_kb // 4 - 1} here"
    if problem:
        raise DeclarationError(f"set {tunable.setting}", object=tunable.object, cause=problem, wanted=value)
