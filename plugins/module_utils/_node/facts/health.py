# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs are sick: the errors that the driver and the kernel's log have counted, and what follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.setting import Scalar
from ..._core.wording import counted
from ..._linux.module_options import read_nvidia
from ..._nvidia.nvml import XID
from ..verdict import NOT_ROOT
from .fields import Facts, Fields
from .pci import GPU, PciDevice

if TYPE_CHECKING:
    from ..._core.protocols import Commands, Files

COUNTERS = (
    *("ecc_volatile_corrected", "ecc_volatile_uncorrected", "ecc_aggregate_corrected", "ecc_aggregate_uncorrected"),
    *("remapped_rows", "retired_pages_pending", "pcie_replays", "throttle_reasons", "nvlinks", "fabric"),
)
# What a program brings about by itself, or the GPU has dealt with (https://docs.nvidia.com/deploy/xid-errors/).
HARMLESS_XIDS = frozenset({13, 31, 43, 45, 63, 68, 69, 94})
# Another number than 0 switches all links off, on every GPU (nv-reg.h of NVIDIA's open kernel modules).
LINKS_OFF = "NVreg_NvLinkDisable"
HARMFUL_THROTTLING = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")


def gather(
    commands: Commands,
    files: Files,
    devices: Sequence[PciDevice],
    answers: Mapping[str, Facts],
    trouble: str,
    *,
    root: bool,
) -> Facts:
    """The Xid errors since boot and, for each GPU, its counters and the ``problems`` that they mean."""
    fields = Fields()
    xids, reason = _xids(commands, root=root)
    fields.add("xids", xids, reason)
    addresses = [device.address for device in devices if device.kind == GPU]
    addresses += [address for address in answers if address not in addresses]
    off = read_nvidia(files).get(LINKS_OFF, "0") if any(_lacks_links(answer) for answer in answers.values()) else "0"
    links_off = "" if off == "0" else f"the kernel module nvidia was loaded with {LINKS_OFF}={off}"
    gpus = [_gpu(address, answers.get(address, {}), xids or [], trouble, links_off) for address in addresses]
    fields.add("gpus", gpus)
    return fields.facts


def _xids(commands: Commands, *, root: bool) -> Tuple[Optional[List[Facts]], str]:
    """The Xid errors in the ring buffer of the kernel, those of one kind and GPU together."""
    try:
        log = commands.run(["dmesg"], timeout=5.0)
    except OSError as error:
        return None, f"dmesg: {(error.strerror or str(error)).lower()}"
    if log.status != 0:
        return None, f"dmesg failed with status {log.status}" if root else NOT_ROOT
    found: Dict[Tuple[str, int], Facts] = {}
    for match in XID.finditer(log.output):
        # The log leaves the function out.
        address, number = match[1].lower(), int(match[2])
        known = found.setdefault((address, number), {"pci_address": f"{address}.0", "xid": number, "count": 0})
        known["count"] += 1
        known["last"] = match[3].strip(" ,")
    return list(found.values()), ""


def _lacks_links(answer: Facts) -> bool:
    """Whether the driver was asked for the links of this GPU, and has none."""
    return "health" in answer and answer["health"].get("nvlinks") is None


def _gpu(address: str, answer: Facts, xids: Sequence[Facts], trouble: str, links_off: str) -> Facts:
    health: Facts = answer.get("health", {})
    fields = Fields(pci_address=address)
    reason = answer.get("lost") or trouble or "the NVIDIA driver does not know this GPU"
    fields.take(health, COUNTERS, reason)
    if links_off and _lacks_links(answer):
        fields.lack(links_off, "nvlinks")
    problems = [answer["lost"]] if answer.get("lost") else _problems(health)
    problems += [
        f"Xid {xid['xid']} since boot, {counted(xid['count'], 'time')}"
        for xid in xids
        if xid["pci_address"] == address and xid["xid"] not in HARMLESS_XIDS
    ]
    fields.add("problems", problems)
    fields.add("healthy", not problems if answer or problems else None, reason)
    return fields.facts


def _problems(health: Facts) -> List[str]:
    problems = []

    def note(sick: Scalar, text: str) -> None:
        if sick:
            problems.append(text)

    rows = health.get("remapped_rows") or {}
    links = health.get("nvlinks") or {}
    fabric = health.get("fabric") or {}
    errors = health.get("ecc_volatile_uncorrected")
    inactive = links.get("inactive", [])
    note(errors, f"{errors} uncorrected memory errors since the driver was loaded")
    note(rows.get("failure"), "a row of its memory could not be remapped")
    note(rows.get("pending"), "a row of its memory is remapped at the next reset")
    note(health.get("retired_pages_pending"), "pages of its memory are retired at the next reset")
    # MIG switches them off; and a GPU that has never had a peer has none that is active.
    some = 0 < len(inactive) < links.get("total", 0)
    note(some and not health.get("mig"), f"NVLinks {', '.join(map(str, inactive))} are inactive")
    weak = ", ".join(fabric.get("health") or ())
    note(
        bool(fabric) and (bool(weak) or not fabric.get("ready")),
        f"its fabric is {fabric.get('state')}, status {fabric.get('status')}{f', with {weak}' if weak else ''}",
    )
    harmful = [word for word in health.get("throttle_reasons") or () if word in HARMFUL_THROTTLING]
    note(len(harmful), f"its clocks are throttled: {', '.join(harmful)}")
    return problems
