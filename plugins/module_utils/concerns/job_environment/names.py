# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is known of names and values: which release reads a name, what replaced it, which values would be misread.

A name that nobody reads does no harm, and a newer release than this table may read it: it is named, and set all the
same. A value that the program would take for another, or that makes it end, is refused.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

from ..._core.change import Unmanaged
from ..._core.errors import DeclarationError
from ..._core.nearest import nearest
from .known_names import NCCL_NUMBERS, NCCL_RELEASE, NCCL_TEXTS, OBSOLETE, OPENMP, OTHERS, PYTORCH_OPTIONS

Value = Tuple[str, str, str]
"""A place, and the name and value that it gets."""

ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# What plugins and PyTorch read, of which there is no complete list.
FOREIGN = ("NCCL_FASTRAK_", "NCCL_GPUDIRECTTCPX_", "NCCL_DCQCN_", "NCCL_TUNER_", "NCCL_PROFILER_", "NCCL_SHIMNET_")
# Names of families of which not all are known are told only where they are nearly one that is.
NEARLY = 0.85
WARP = 32


def check(values: Iterable[Value]) -> None:
    """Raise ``DeclarationError`` on a value that the program would take for another."""
    allocator: Dict[str, str] = {}
    for place, name, value in values:
        if name in NCCL_NUMBERS and not re.fullmatch(r"[+-]?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,19})", value):
            cause = "NCCL expects a number, and would read this as 0, or as the digits that it begins with"
            raise _wrong(place, name, cause, value, "write a number")
        if name in NCCL_NUMBERS and re.fullmatch(r"[+-]?0[0-9]+", value):
            cause = "it begins with 0, and NCCL would read its digits as octal"
            raise _wrong(place, name, cause, value, f"write {int(value)}")
        if name == "NCCL_NTHREADS" and not (64 <= int(value, 0) <= 512 and int(value, 0) % WARP == 0):
            cause = "it is the number of CUDA threads of a block, not of CPU threads: a multiple of 32 from 64 to 512"
            raise _wrong(place, name, cause, value, "leave it out, or set it to 256")
        if name in ALLOCATOR:
            _check_allocator(place, name, value)
            if allocator.setdefault(place, value) != value:
                cause = f"{' and '.join(ALLOCATOR)} are one setting, and releases differ in which of them they read"
                raise _wrong(place, name, cause, value, "give both the same value")


def _check_allocator(place: str, name: str, value: str) -> None:
    """PyTorch ends the process on what it cannot parse ("Unrecognized CachingAllocator option")."""
    # A value may be a list of its own, in brackets.
    for option in re.split(r",(?![^\[]*\])", value):
        # Blanks are ignored.
        key, colon, setting = re.sub(r"\s", "", option).partition(":")
        if not colon or not key or not setting:
            cause = f"{option!r} is not option:value, and PyTorch would fail in every process that uses a GPU"
            raise _wrong(place, name, cause, value, "write it as expandable_segments:True,max_split_size_mb:512")
        if setting.lower() in ("true", "false") and setting not in ("True", "False"):
            cause = (
                f"PyTorch accepts only the spellings True and False for {key}, and would fail in every process that "
                "uses a GPU"
            )
            raise _wrong(place, name, cause, value, f"write {key}:{setting.capitalize()}")
        if key == "max_split_size_mb" and not (re.fullmatch("[0-9]{1,18}", setting) and int(setting) >= 20):
            cause = "max_split_size_mb is less than 20, and PyTorch would fail in every process that uses a GPU"
            raise _wrong(place, name, cause, value, "set at least 20")


def refuse_interfaces(nccl: Mapping[str, str], interfaces: Sequence[str]) -> None:
    """Raise ``DeclarationError`` where no interface of this machine matches: every job of several nodes would fail."""
    for name in ("NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME"):
        value = nccl.get(name, "")
        if value and not value.startswith("^") and not matching(value, interfaces):
            raise DeclarationError(
                f"set {name} for {{}}",
                object="nccl",
                cause="no network interface of this machine matches, and jobs with NCCL would fail",
                found=", ".join(interfaces),
                wanted=value,
                hint="name one of these interfaces, or exclude others with ^",
            )


def lacking_devices(nccl: Mapping[str, str], devices: Sequence[str]) -> Iterator[Unmanaged]:
    """NCCL falls back to sockets where no RDMA device matches, without a word."""
    value = nccl.get("NCCL_IB_HCA", "")
    ports = ",".join(part.partition(":")[0] for part in value.split(","))
    if value and not value.startswith("^") and not matching(ports, devices):
        there = f"it has {', '.join(devices)}" if devices else "it has none"
        reason = f"no RDMA device of this machine matches {value} ({there}), so NCCL would use sockets"
        yield Unmanaged("nccl", "NCCL_IB_HCA", reason)


def too_new(nccl: Mapping[str, str], library: str) -> Iterator[Unmanaged]:
    """The names that the NCCL of the machine does not read yet; jobs may bring a newer one."""
    release = re.search(r"\.so\.2\.([0-9]+)", library)
    for name in nccl if release else ():
        first = NCCL_NUMBERS.get(name) or NCCL_TEXTS.get(name) or 0
        if release and first > int(release[1]):
            reason = f"NCCL reads it from 2.{first} on, and this machine has {library}; jobs may bring a newer one"
            yield Unmanaged("nccl", name, reason, excused=True)


def matching(value: str, names: Sequence[str]) -> List[str]:
    """The names that NCCL would choose: prefixes, or whole names behind ``=`` (``matchIfList`` of utils.cc)."""
    exact = value.startswith("=")
    wanted = [part for part in value.lstrip("=").split(",") if part]
    return [name for name in names if any(name == part if exact else name.startswith(part) for part in wanted)]


def remarks(values: Iterable[Value]) -> Iterator[Unmanaged]:
    """The names that are set and that nobody reads, or not for long, once for each place."""
    values = tuple(values)
    both = {place for place, name, _value in values if name == ALLOCATOR[0]}
    for place, name, value in values:
        reason = remark(name)
        # The old name beside the new one is for releases that know only that.
        if reason and not (name == ALLOCATOR[1] and place in both):
            yield Unmanaged(place, name, reason, hint="leave it out, or set strict: false")
        if name in ALLOCATOR:
            for option in re.split(r",(?![^\[]*\])", value):
                key = option.partition(":")[0].strip()
                if key not in PYTORCH_OPTIONS:
                    near = _near(key, PYTORCH_OPTIONS, 0.6)
                    reason = (
                        f"{key} is not a known option of PyTorch{near}, and PyTorch fails on one that it does not know"
                    )
                    yield Unmanaged(place, name, reason, hint="correct it, or set strict: false")


def remark(name: str) -> str:
    """Why a name does nothing, or what to use in its place; empty for one that is right or nobody's."""
    if name in OBSOLETE:
        return OBSOLETE[name]
    if name in NCCL_NUMBERS or name in NCCL_TEXTS or name in OPENMP or name in OTHERS or name.startswith(FOREIGN):
        return ""
    family = name.partition("_")[0] + "_"
    if family == "NCCL_":
        return f"no release of NCCL up to {NCCL_RELEASE} reads it{_near(name, (*NCCL_NUMBERS, *NCCL_TEXTS), 0.6)}"
    if family == "OMP_":
        return f"OpenMP 6.0 has no such variable{_near(name, OPENMP, 0.6)}"
    # Of what is in no family of these, such as the variables of a site, nothing is known and nothing compared.
    relatives = [other for other in OTHERS if other.startswith(family)]
    near = nearest(name, relatives, cutoff=NEARLY) if relatives else ""
    return f"no known program reads it (did you mean {near})" if near else ""


def _near(name: str, names: Iterable[str], cutoff: float) -> str:
    near = nearest(name, names, cutoff=cutoff)
    return f" (did you mean {near})" if near else ""


def _wrong(place: str, name: str, cause: str, wanted: str, hint: str) -> DeclarationError:
    return DeclarationError(f"set {name} for {{}}", object=place, cause=cause, wanted=wanted, hint=hint)
