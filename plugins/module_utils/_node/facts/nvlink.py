# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVLinks of a GPU: how many it has, which are down, and their errors. Asked in the driver's process.

How many there are the driver says (``NVML_FI_DEV_NVLINK_LINK_COUNT``): its calls for a link may answer for more than
the GPU has, as links that are down. Errors are totals, by field of a link or by counter of a link, depending on the
architecture and the driver; the first that answers for all links counts. The numbers are those of nvml.h.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, NamedTuple, Optional, Sequence, Tuple

from .fields import Facts, Fields

if TYPE_CHECKING:
    from ..._nvidia.driver import Gpu

LINK_COUNT = 91
# NVML_NVLINK_MAX_LINKS, where the driver does not count.
MAX_LINKS = 36
NO_LINKS = "this GPU has no NVLinks"


class Errors(NamedTuple):
    """Who tells how many errors of a kind there are: the field of all links, that of one link, the counter of one."""

    total: int
    field: int
    counter: int


# NVML_FI_DEV_NVLINK_*_COUNT_TOTAL, NVML_FI_DEV_NVLINK_ERROR_DL_*, nvmlNvLinkErrorCounter_t
ERRORS = {"crc": Errors(38, 163, 2), "replay": Errors(52, 161, 0), "recovery": Errors(59, 162, 1)}


def gather(gpu: Gpu) -> Tuple[Optional[Facts], str]:
    """``total``, ``inactive`` and the sums of errors, or why there are none."""
    counted = gpu.fields([LINK_COUNT])[0][0]
    states: Dict[int, bool] = {}
    reason = NO_LINKS if counted == 0 else ""
    for number in range(MAX_LINKS if counted is None else counted):
        answer = gpu.read("nvmlDeviceGetNvLinkState", number)
        if answer.value is None:
            reason = reason or answer.lacking
            break
        states[number] = bool(answer.value)
    if not states:
        return None, reason
    fields = Fields(total=len(states), inactive=[number for number, active in states.items() if not active])
    totals, _reason = gpu.fields([kind.total for kind in ERRORS.values()])
    for (name, kind), total in zip(ERRORS.items(), totals):
        if total is None:
            fields.add(f"{name}_errors", *_sum(gpu, kind, list(states)))
        else:
            fields.add(f"{name}_errors", total)
    return fields.facts, ""


def _sum(gpu: Gpu, kind: Errors, links: Sequence[int]) -> Tuple[Optional[int], str]:
    """The errors of all links, one by one: by their fields, or else by their counters."""
    values, reason = gpu.fields([(kind.field, link) for link in links])
    if None in values:
        answers = [gpu.read("nvmlDeviceGetNvLinkErrorCounter", link, kind.counter) for link in links]
        values, reason = [answer.value for answer in answers], next((one.lacking for one in answers if one.lacking), "")
    known = [value for value in values if value is not None]
    return (sum(known), "") if len(known) == len(links) else (None, reason)
