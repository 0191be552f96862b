# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who has the GPUs open now."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, List

from ..._nvidia.holders import Holder, find
from .fields import Facts, Fields

if TYPE_CHECKING:
    from ..._core.protocols import Files

GPUS = "/proc/driver/nvidia/gpus"


def gather(files: Files) -> Facts:
    """Asked before we open the driver ourselves, so that we are not among them."""
    found = find(files)
    minors = _minors(files)
    return {"processes": [_process(holder, minors) for holder in found.holders], "hidden_processes": found.hidden}


def _minors(files: Files) -> Dict[str, str]:
    """The PCI address of each GPU by its device file."""
    found = {}
    for address in files.names(GPUS):
        minor = re.search(r"^Device Minor:\s*(\d+)", files.read_optional(f"{GPUS}/{address}/information") or "", re.M)
        if minor:
            found[f"/dev/nvidia{minor[1]}"] = address.lower()
    return found


def _process(holder: Holder, minors: Dict[str, str]) -> Facts:
    gpus: List[str] = [minors[device] for device in holder.devices if device in minors]
    fields = Fields(pid=holder.pid, command=holder.command, gpus=gpus, devices=list(holder.devices))
    fields.add("unit", holder.unit or None, "it belongs to no systemd unit")
    fields.add("container", holder.container or None, "it is in no container")
    return fields.facts
