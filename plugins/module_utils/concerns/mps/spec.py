# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of MPS, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from ..._core import match
from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._core.value import field, frozen
from ..._nvidia import gpus

if TYPE_CHECKING:
    from ..._core.baseline import Baseline

NAME = "mps"
FAIL, WAIT, SKIP = "fail", "wait", "skip"
ALL = "100"
# One decimal: the daemon answers no more, so that more could not be compared.
PERCENTAGE = regex(r"[0-9]{1,3}(\.[0-9])?", re.ASCII)
# The daemon takes an integer with G or M. Of "1.5G" it makes 1M, without a word (tried with 535.261.03).
MEMORY = regex(r"([1-9][0-9]{0,8})([GM])", re.ASCII)


@frozen
class MpsDeclaration:
    """What is declared. ``entries`` are those of ``gpus``, each with its limit of memory in MiB, None for none.

    ``exclusive``: nothing is to go past MPS. ``changed`` is the baseline, for ``state: absent``.
    """

    entries: Tuple[match.MatchEntry, ...] = ()
    limits: Tuple[Optional[int], ...] = ()
    percentage: str = ALL
    multi_user: bool = False
    exclusive: bool = True
    when_busy: str = FAIL
    busy_timeout: float = 0.0
    changed: Optional[Baseline] = field(default=None)


def parse(params: Mapping[str, Any]) -> MpsDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    if not params["gpus"]:
        raise DeclarationError(
            "read the declaration",
            cause="no GPU is declared",
            hint="set gpus: [{}] for all GPUs, or state: absent",
        )
    entries = gpus.parse("gpus", params["gpus"])
    return MpsDeclaration(
        entries=entries,
        limits=tuple(_memory(entry.where, item.get("memory_limit")) for entry, item in zip(entries, params["gpus"])),
        percentage=_percentage(params["active_thread_percentage"]),
        multi_user=params["multi_user"],
        exclusive=params["exclusive"],
        **patience(params),
    )


def patience(params: Mapping[str, Any]) -> Dict[str, Any]:
    """What happens to daemons that are in use: the part that ``state: absent`` has too."""
    if params["busy_timeout"] < 0:
        raise DeclarationError(
            "set {}", object="busy_timeout", cause="it is below 0", wanted=params["busy_timeout"], hint="set 0 or more"
        )
    return {"when_busy": params["when_busy"], "busy_timeout": float(params["busy_timeout"])}


def percent(text: str) -> str:
    """A percentage in one form: the daemon answers ``40.0`` for 40."""
    return f"{float(text):g}"


def memory_text(mib: Optional[int]) -> Optional[str]:
    """A limit as the daemon answers it: in G where that is a whole number, else in M."""
    if mib is None:
        return None
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"


def memory_of(text: str) -> Optional[int]:
    """A limit in MiB, None for what is none."""
    found = MEMORY.fullmatch(text)
    return int(found[1]) * (1024 if found[2] == "G" else 1) if found else None


def _percentage(text: str) -> str:
    if not PERCENTAGE.fullmatch(text) or not 0 < float(text) <= 100:
        raise DeclarationError(
            "set {}",
            object="active_thread_percentage",
            cause="it must be above 0 and at most 100, with one decimal at most; the daemon ignores any other",
            wanted=text,
            hint="set a number such as 50; 100 limits nothing",
        )
    return percent(text)


def _memory(where: str, text: Optional[str]) -> Optional[int]:
    if text is None:
        return None
    mib = memory_of(text)
    if mib is None:
        raise DeclarationError(
            "set {}",
            object=f"{where}.memory_limit",
            cause="it must be a whole number above 0 followed by G or M; the daemon would read 1.5G as 1M",
            wanted=text,
            hint="set a limit such as 10G or 1536M, or leave it out for none",
        )
    return mib
