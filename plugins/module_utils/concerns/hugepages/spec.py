# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of ``hugepages``, as data, and what a declaration means on a machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Unmanaged
from ..._core.errors import DeclarationError
from ..._core.setting import Scalar
from ..._core.value import field, frozen
from ..._kinds.tunables import Tunable
from ..._linux import numa
from .owners import THP
from .state import GIGANTIC_KB, HugepagesState, Pool, format_size, thp_object

if TYPE_CHECKING:
    from ..._core.baseline import Baseline

FAIL = "fail"
REBOOT = "reboot"


@frozen
class WantedTunable:
    """One tunable and the value it shall have, now and at boot alike."""

    tunable: str
    value: Scalar


@frozen
class DeclaredPool:
    """One entry of ``pools``: ``size`` as it was written, and either a total or numbers by node."""

    size: str
    size_kb: int
    pages: Optional[int]
    per_node: Optional[Mapping[str, int]]


@frozen
class DeclaredThp:
    """One setting of transparent huge pages, of all sizes or of one."""

    path: str
    object: str
    setting: str
    value: Scalar


@frozen
class HugepagesDeclaration:
    """What is declared. ``sizes`` are those of transparent huge pages, in kB. ``changed`` is for ``state: absent``."""

    pools: Tuple[DeclaredPool, ...] = ()
    transparent: Tuple[DeclaredThp, ...] = ()
    sizes: Mapping[int, str] = field(default_factory=dict)
    on_shortage: str = FAIL
    drop_caches: bool = False
    changed: Optional[Baseline] = None


@frozen
class HugepagesDesired:
    """What is wanted of this machine."""

    wants: Tuple[WantedTunable, ...]
    unmanaged: Tuple[Unmanaged, ...] = ()
    on_shortage: str = FAIL
    drop_caches: bool = False


def parse(params: Mapping[str, Any]) -> HugepagesDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    if params["on_shortage"] == REBOOT and not params["permanent"]:
        raise DeclarationError(
            "declare huge pages",
            cause="on_shortage: reboot waits for the next boot, and permanent: false leaves that as it is",
            hint="set permanent: true, or on_shortage: fail",
        )
    pools: Dict[int, DeclaredPool] = {}
    for entry in params["pools"] or ():
        pool = _pool(entry)
        if pool.size_kb in pools:
            raise _wrong(entry["size"], "the size is declared twice")
        pools[pool.size_kb] = pool
    transparent = params["transparent"] or {}
    sizes = _thp_sizes(transparent.get("sizes") or ())
    rows = [*_rows_of_all(transparent), *_rows_of_sizes(transparent.get("sizes") or ())]
    return HugepagesDeclaration(
        tuple(pools.values()),
        tuple(row for row in rows if row.value is not None),
        sizes,
        params["on_shortage"],
        params["drop_caches"],
    )


def resolve(declaration: HugepagesDeclaration, state: HugepagesState) -> HugepagesDesired:
    """The declaration on this machine. Raises ``DeclarationError`` on what it cannot have."""
    pools = {pool.size_kb: _counts(pool, state) for pool in declaration.pools}
    wants = [
        WantedTunable(state.pool(size_kb, number).tunable, count)
        for size_kb, counts in pools.items()
        for number, count in counts.items()
    ]
    if any(want.value != state.pools[want.tunable].lasting for want in wants):
        check_memory(pools, state)
    for size_kb, size in declaration.sizes.items():
        if state.thp_sizes and size_kb not in state.thp_sizes:
            known = ", ".join(format_size(size) for size in state.thp_sizes)
            raise _wrong_thp(size, "this kernel does not have the size", found=known)
    unmanaged: List[Unmanaged] = []
    for row in declaration.transparent:
        tunable = state.tunables.get(row.path)
        if tunable is None:
            reason = "this kernel does not have the setting" if state.tunables else "this kernel was built without them"
            unmanaged.append(Unmanaged(row.object, row.setting, reason))
        else:
            if row.value != tunable.value:
                check_tunable(tunable, row.value, state)
            wants.append(WantedTunable(row.path, row.value))
    return HugepagesDesired(tuple(wants), tuple(unmanaged), declaration.on_shortage, declaration.drop_caches)


def parse_size(text: str) -> Optional[int]:
    """A page size in kB, from ``2M``, ``1G``, ``64K`` or the like; None when it is none."""
    match = re.fullmatch(r"([0-9]{1,9})\s*([KMG])(?:i?B)?", text.strip(), re.IGNORECASE)
    return int(match[1]) * {"K": 1, "M": 1024, "G": 1024 * 1024}[match[2].upper()] if match else None


def _wrong(size: str, cause: str, **values: Any) -> DeclarationError:
    return DeclarationError(f"declare pages of {size}", cause=cause, **values)


def _wrong_thp(size: str, cause: str, **values: Any) -> DeclarationError:
    return DeclarationError(f"declare transparent hugepages of {size}", cause=cause, **values)


def _pool(entry: Mapping[str, Any]) -> DeclaredPool:
    size, pages, per_node = entry["size"], entry.get("pages"), entry.get("per_node")
    size_kb = parse_size(size)
    if size_kb is None:
        raise _wrong(size, "this is not a page size", hint="write it like 2M or 1G")
    if pages is not None and per_node is not None:
        raise _wrong(size, "both pages and per_node are given", hint="pages is the total, per_node is by node")
    if pages is None and per_node is None:
        raise _wrong(size, "neither pages nor per_node is given", hint="pages is the total, per_node is by node")
    if per_node is not None:
        counts = {str(name): _count(value, size) for name, value in per_node.items()}
        return DeclaredPool(size, size_kb, None, counts)
    return DeclaredPool(size, size_kb, _count(pages, size), None)


def _counts(declared: DeclaredPool, state: HugepagesState) -> Mapping[Optional[int], int]:
    size = declared.size
    if declared.size_kb not in state.sizes:
        sizes = ", ".join(format_size(one) for one in state.sizes)
        raise _wrong(size, "this kernel does not have the size", found=sizes or "no huge pages at all")
    known = {pool.node.number for pool in state.of_size(declared.size_kb)}
    if declared.per_node is not None:
        counts: Dict[Optional[int], int] = {}
        for name, value in declared.per_node.items():
            number = int(name) if re.fullmatch(r"0|[1-9][0-9]{0,5}", name) else None
            if number is None or number not in known:
                there = ", ".join(node.name for node in state.nodes if node.number in known and node.number is not None)
                raise _wrong(
                    size, f"there is no NUMA node {name} with huge pages", found=there or "a machine without NUMA nodes"
                )
            counts[number] = value
        return counts
    total = declared.pages or 0
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


def is_gigantic(pool: Pool) -> bool:
    """Whether the kernel can hardly find such pages once it runs, so that they belong on its command line."""
    return pool.size_kb >= GIGANTIC_KB


def _thp_sizes(entries: Sequence[Mapping[str, Any]]) -> Dict[int, str]:
    sizes: Dict[int, str] = {}
    for entry in entries:
        size_kb = parse_size(entry["size"])
        if size_kb is None:
            raise _wrong_thp(entry["size"], "this is not a page size", hint="write it like 64K or 2M")
        if size_kb in sizes:
            raise _wrong_thp(entry["size"], "the size is declared twice")
        sizes[size_kb] = entry["size"]
    return sizes


def _rows_of_all(declared: Mapping[str, Any]) -> Iterator[DeclaredThp]:
    for setting in ("enabled", "defrag", "shmem_enabled"):
        yield DeclaredThp(f"{THP}/{setting}", thp_object(None), setting, declared.get(setting))
    for setting, value in (declared.get("khugepaged") or {}).items():
        if isinstance(value, bool) and setting != "defrag":
            raise DeclarationError(f"set {setting}", object="khugepaged", cause="it is a number", wanted=str(value))
        number = None if value is None else int(value)
        yield DeclaredThp(f"{THP}/khugepaged/{setting}", "khugepaged", setting, number)


def _rows_of_sizes(entries: Sequence[Mapping[str, Any]]) -> Iterator[DeclaredThp]:
    for entry in entries:
        size_kb = parse_size(entry["size"])
        for setting in ("enabled", "shmem_enabled"):
            path = f"{THP}/hugepages-{size_kb}kB/{setting}"
            yield DeclaredThp(path, thp_object(size_kb), setting, entry.get(setting))


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


def check_tunable(tunable: Tunable, value: Scalar, state: HugepagesState) -> None:
    problem = tunable.refusal(value)
    if isinstance(value, int) and value < 0:
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
