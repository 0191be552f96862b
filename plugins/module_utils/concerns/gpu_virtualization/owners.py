# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else says which driver a GPU has: driverctl, the IDs of vfio-pci, libvirt and the GPU Operator."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Iterator, Mapping, Sequence

from ..._core.change import THEM, Conflict
from ..._core.regex import regex
from ..._linux import kernel_modules, modprobe, module_options
from ..._nvidia.gpus import VFIO
from .state import DRIVER, Claim

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from .state import Function

DRIVERCTL = "/etc/driverctl.d"
DOMAINS = "/etc/libvirt/qemu"
COMMAND_LINE = "/proc/cmdline"
# What the validator of the GPU Operator leaves once its VFIO manager has bound all GPUs (cmd/nvidia-validator).
OPERATOR = "/run/nvidia/validations/vfio-pci-ready"
_HOSTDEV = regex(r"<hostdev\b[^>]*\btype=['\"]pci['\"][^>]*>.*?</hostdev>", re.DOTALL)
_MANAGED = regex(r"<hostdev\b[^>]*\bmanaged=['\"]yes['\"]")
_SOURCE = regex(r"<source\b.*?</source>", re.DOTALL)
_PART = {part: regex(rf"\b{part}=['\"]0x([0-9a-fA-F]+)['\"]") for part in ("domain", "bus", "slot", "function")}


def claims(files: Files, functions: Sequence[Function]) -> Dict[str, Claim]:
    """What binds these functions at boot, by address: driverctl, which comes late, before the IDs of vfio-pci."""
    found: Dict[str, Claim] = {}
    ids = list(_ids(files))
    there = set(files.names(DRIVERCTL))
    for function in functions:
        for claim in ids:
            if function.ids in claim.value.lower().split(","):
                found[function.address] = claim
        if function.address in there:
            path = f"{DRIVERCTL}/{function.address}"
            driver = (files.read_optional(path) or "").strip()
            found[function.address] = Claim("driverctl", path, 1, driver, driver)
    return found


def conflicts(files: Files, wanted: Mapping[str, str], claimed: Mapping[str, Claim]) -> Iterator[Conflict]:
    """The settings of other software that bind a GPU to another driver than is declared."""
    for address, claim in claimed.items():
        if address in wanted and claim.driver != wanted[address]:
            yield Conflict(claim.owner, claim.path, claim.line, address, DRIVER, claim.value, THEM)
    yield from _domains(files, wanted)
    if any(driver != VFIO for driver in wanted.values()) and files.exists(OPERATOR):
        yield Conflict("GPU Operator", OPERATOR, None, "GPUs", DRIVER, VFIO, THEM)


def _ids(files: Files) -> Iterator[Claim]:
    """The lists of IDs that vfio-pci takes, from the weakest. What is built in takes no file of modprobe.d."""
    texts = modprobe.read_modprobe(files)
    lines = [line for path, text in texts.items() for line in module_options.parse_options(path, text)]
    mine = [line for line in lines if (line.module, line.parameter) == ("vfio_pci", "ids")]
    if mine and kernel_modules.read_installed(files).has_built_in(VFIO):
        mine = []
    arguments = module_options.parse_command_line(COMMAND_LINE, files.read_optional(COMMAND_LINE) or "")
    mine += [line for line in arguments if (line.module, line.parameter) == ("vfio_pci", "ids")]
    for line in mine:
        # Board and class may follow the vendor and the device.
        value = ",".join(":".join(one.split(":")[:2]) for one in line.value.split(","))
        yield Claim(line.owner, line.path, line.number, VFIO, value)


def _domains(files: Files, wanted: Mapping[str, str]) -> Iterator[Conflict]:
    """Virtual machines of libvirt that bind a GPU when they start, and give it back to the host when they end."""
    for name in files.names(DOMAINS):
        path = f"{DOMAINS}/{name}"
        text = (files.read_optional(path) or "") if name.endswith(".xml") else ""
        for device in _HOSTDEV.finditer(text):
            source = _SOURCE.search(device[0])
            parts = {part: shape.search(source[0]) for part, shape in _PART.items()} if source else {}
            numbers = {part: int(found[1], 16) for part, found in parts.items() if found}
            if len(numbers) == len(_PART) and _MANAGED.match(device[0]):
                address = "{domain:04x}:{bus:02x}:{slot:02x}.{function:x}".format(**numbers)
                if address in wanted:
                    line = text.count("\n", 0, device.start()) + 1
                    yield Conflict("libvirt", path, line, address, DRIVER, "managed='yes'", THEM)
