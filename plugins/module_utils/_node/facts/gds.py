# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether GPUDirect Storage is possible on a node, what stands in its way, and what NVIDIA's own check says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from ..._core.exposure import exposed_way
from ..._linux import iommu
from ..._linux.pci_config import read_config, redirects_of
from ..._nvidia.gds import read_ways
from .fields import ROOT_ONLY, Facts, Fields, why

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from .pci import PciDevice

IOMMU = "/sys/class/iommu"
OFF, PASSTHROUGH, TRANSLATED = "off", "passthrough", "translated"
TOOLS = ("gdscheck", "gdscheck.py")
SECONDS = 30.0
NO_TOOL = "there is no gdscheck below /usr/local/cuda*/gds/tools"


def gather(host: Host, devices: Sequence[PciDevice]) -> Facts:
    files, fields = host.files, Fields()
    ways = read_ways(files)
    fields.add("nvidia_fs", ways.nvidia_fs or None, "the module nvidia_fs is not loaded")
    fields.add("p2pdma_lacks", list(ways.p2pdma_lacks))
    fields.add("iommu", *_iommu(files))
    fields.add("redirecting_bridges", *_redirecting(files, devices))
    fields.add("gdscheck", *_check(host))
    return fields.facts


def _iommu(files: Files) -> Tuple[Optional[str], str]:
    kinds = set(iommu.types(files))
    if not files.names(IOMMU) and not kinds:
        return OFF, ""
    if not kinds:
        return None, f"{iommu.GROUPS} has no types"
    return PASSTHROUGH if kinds == {iommu.IDENTITY} else TRANSLATED, ""


def _redirecting(files: Files, devices: Sequence[PciDevice]) -> Tuple[Optional[List[Facts]], str]:
    """The bridges above GPUs, network cards and drives that send what peers say to each other to the CPU."""
    found: List[Facts] = []
    seen = set()
    for device in devices:
        for bridge in device.chain[1:-1]:
            if bridge in seen:
                continue
            seen.add(bridge)
            path = f"{device.path.partition(bridge)[0]}{bridge}"
            try:
                redirects = redirects_of(read_config(files, path))
            except OSError as error:
                return None, why(error, f"{path}/config")
            if redirects is None:
                return None, ROOT_ONLY
            if redirects:
                found.append({"pci_address": bridge, "redirects": redirects})
    return found, ""


def _check(host: Host) -> Tuple[Optional[Facts], str]:
    """What ``gdscheck -p`` says. It asks the driver, which may hang: so it has a deadline."""
    program = _tool(host.files)
    if not program:
        return None, NO_TOOL
    if not host.may_change:
        return None, ROOT_ONLY
    fault = exposed_way(host.files, program)
    if fault:
        return None, fault
    try:
        completed = host.commands.run([program, "-p"], timeout=SECONDS)
    except OSError as error:
        return None, why(error, program)
    if completed.timed_out:
        return None, f"{program} did not end within {SECONDS:.0f} seconds"
    return {"program": program, **parse_check(completed.output)}, ""


def _tool(files: Files) -> str:
    """That of the newest CUDA; what ``cuda`` leads to comes first, since the administrator chose it."""
    names = [name for name in files.names("/usr/local") if re.fullmatch(r"cuda(-[0-9.]+)?", name)]
    names.sort(key=lambda name: (name == "cuda", [int(part) for part in re.findall("[0-9]+", name)]), reverse=True)
    paths = [f"/usr/local/{name}/gds/tools/{tool}" for name in names for tool in TOOLS]
    return next((path for path in paths if files.exists(path)), "")


def parse_check(text: str) -> Facts:
    """The sections of the output, each with its pairs and with the lines that are none.

    A section begins with a line of capitals. Its exit status says nothing, ``platform`` what it comes to in the end.
    """
    sections: Dict[str, Dict[str, Any]] = {}
    current: Dict[str, Any] = {}
    release = platform = None
    for raw in text.splitlines():
        line = raw.strip()
        if not line or not line.strip("="):
            continue
        found = re.match(r"GDS release version: (\S+)", line)
        release = found[1] if found else release
        ended = re.fullmatch(r"Platform verification (succeeded|failed)", line)
        platform = ended[1] if ended else platform
        if re.fullmatch(r"[A-Z ]+:", line):
            current = sections.setdefault(line[:-1].lower(), {"values": {}, "lines": []})
        elif " : " in line and current:
            name, _colon, value = line.partition(" : ")
            current["values"][name.strip("- ")] = value.strip()
        elif current:
            current["lines"].append(line)
    return {"release": release, "platform": platform, "sections": sections}
