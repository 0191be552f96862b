# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs there are, and which of them an entry of a declaration is about: the same for every concern of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Tuple

from .._core import match
from .._core.errors import DeclarationError
from .._core.value import replace

if TYPE_CHECKING:
    from .._core.protocols import Files
    from .driver import Identity

MATCH_KEYS = ("index", "uuid", "pci_address", "pci_id", "model")
PCI = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
VFIO = "vfio-pci"
# nvmlComputeMode_t; nothing sets exclusive_thread any more.
COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
# Why something stays that was changed on a GPU, when it is restored.
NOT_THERE = "the GPU is missing"
UNSERVED = "no driver is loaded that could restore it"
# 0x0300 is a VGA controller, 0x0302 a 3D controller: what a data centre GPU calls itself.
DISPLAY_CLASSES = ("0x0300", "0x0302")


def parse(
    option: str, entries: Sequence[Mapping[str, Any]], keys: Sequence[str] = MATCH_KEYS
) -> Tuple[match.MatchEntry, ...]:
    """The entries of an option, with PCI addresses as sysfs writes them.

    Raises ``DeclarationError`` on a key that there is not, and on the UUID of a MIG device.
    """
    return tuple(_normal(entry) for entry in match.parse(option, entries, keys))


def select(entries: Sequence[match.MatchEntry], gpus: Sequence[Identity]) -> Tuple[Optional[int], ...]:
    """The index of the entry that wins each GPU, None where none does. Nobody wins a GPU that is lost.

    Raises ``DeclarationError`` for an entry that wins none and is not optional, unless it may be for one that is lost.
    """
    present = [gpu for gpu in gpus if not gpu.lost]
    if len(present) < len(gpus):
        entries = [replace(entry, optional=True) for entry in entries]
    winners = dict(zip(present, match.select(entries, [_candidate(gpu) for gpu in present])))
    return tuple(winners.get(gpu) for gpu in gpus)


def on_the_bus(files: Files) -> Tuple[str, ...]:
    """The PCI addresses of NVIDIA's GPUs, whether a driver has them or not."""
    return tuple(
        name
        for name in files.names(PCI)
        if (files.read_optional(f"{PCI}/{name}/vendor") or "").strip() == NVIDIA
        and (files.read_optional(f"{PCI}/{name}/class") or "").startswith(DISPLAY_CLASSES)
    )


def ids_of(files: Files, address: str) -> str:
    """Vendor and device of a PCI function (``10de:2330``)."""
    words = ((files.read_optional(f"{PCI}/{address}/{name}") or "").strip()[2:] for name in ("vendor", "device"))
    return ":".join(words)


def candidate_on_bus(address: str, ids: str) -> match.Candidate:
    """A GPU as the bus alone knows it, which is all of one that no driver of NVIDIA has."""
    return match.Candidate(address, {"pci_address": (address,), "pci_id": (ids,)})


def is_passed_through(files: Files, address: str) -> bool:
    """Whether a GPU belongs to a virtual machine, or waits for one."""
    return files.resolve(f"{PCI}/{address}/driver").rpartition("/")[2] == VFIO


def pci_pattern(text: str) -> str:
    """A pattern as somebody copies it: NVML and nvidia-smi write eight digits of domain, in capitals."""
    lower = text.lower()
    if lower.count(":") == 2:
        domain, _colon, rest = lower.partition(":")
        return f"{domain[4:] if len(domain) == 8 and domain.startswith('0000') else domain}:{rest}"
    # lspci leaves the domain out, and a bus has two digits.
    short = lower.count(":") == 1 and lower.find(":") == 2 and lower[:1] not in match.WILDCARDS
    return f"0000:{lower}" if short else lower


def _normal(entry: match.MatchEntry) -> match.MatchEntry:
    for text in entry.match.get("uuid", ()):
        if text.upper().startswith("MIG-"):
            raise DeclarationError(
                "use {}",
                object=entry.where,
                cause=f"{text} is a MIG device, and the setting belongs to a whole GPU",
                hint="write the UUID of its GPU, which begins with GPU-",
            )
    normal = {"pci_address": pci_pattern, "pci_id": str.lower}
    found = {key: tuple(map(of, entry.match[key])) for key, of in normal.items() if key in entry.match}
    return replace(entry, match={**entry.match, **found}) if found else entry


def _candidate(gpu: Identity) -> match.Candidate:
    values = {
        "index": (str(gpu.index),),
        "uuid": (gpu.uuid,),
        "pci_address": (gpu.pci_address,),
        "pci_id": gpu.pci_ids,
        "model": (gpu.model,),
    }
    return match.Candidate(gpu.name, values)
