# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings that a command line of nvidia-smi gives to GPUs, from the words behind the program.

Options and values are those of nvidia-smi(1) of release 550.163.01 (Debian 13, package nvidia-smi), section DEVICE
MODIFICATION OPTIONS, and for ``mig`` and ``compute-policy`` of the help in the program of that release. What they do
not document, such as another spelling of a value, is not known here, and so in doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from .._core.value import frozen
from .gpus import pci_pattern

if TYPE_CHECKING:
    from .driver import Identity

PERSISTENCE, COMPUTE_MODE, ECC, MIG = "persistence mode", "compute mode", "ECC", "MIG mode"
POWER, GRAPHICS_CLOCKS, MEMORY_CLOCKS = "power limit", "graphics clocks", "memory clocks"
TIME_SLICE = "time slice"
CREATE, DESTROY = "create GPU instances", "destroy GPU instances"
CREATE_COMPUTE, DESTROY_COMPUTE = "create compute instances", "destroy compute instances"
DEFAULT = "default"
WHOLE = "whole"
"""The value of ``CREATE_COMPUTE`` for the default compute instance of each GPU instance."""

# By option: the setting, and the value of an option that takes none.
_SETTINGS: Mapping[str, Tuple[str, str]] = {
    "-pm": (PERSISTENCE, ""),
    "--persistence-mode": (PERSISTENCE, ""),
    "-c": (COMPUTE_MODE, ""),
    "--compute-mode": (COMPUTE_MODE, ""),
    "-e": (ECC, ""),
    "--ecc-config": (ECC, ""),
    "-mig": (MIG, ""),
    "--multi-instance-gpu": (MIG, ""),
    "-pl": (POWER, ""),
    "--power-limit": (POWER, ""),
    "-lgc": (GRAPHICS_CLOCKS, ""),
    "--lock-gpu-clocks": (GRAPHICS_CLOCKS, ""),
    "-rgc": (GRAPHICS_CLOCKS, DEFAULT),
    "--reset-gpu-clocks": (GRAPHICS_CLOCKS, DEFAULT),
    "-lmc": (MEMORY_CLOCKS, ""),
    "--lock-memory-clocks": (MEMORY_CLOCKS, ""),
    "-rmc": (MEMORY_CLOCKS, DEFAULT),
    "--reset-memory-clocks": (MEMORY_CLOCKS, DEFAULT),
    "-lmcd": (MEMORY_CLOCKS, ""),
    "--lock-memory-clocks-deferred": (MEMORY_CLOCKS, ""),
    "-rmcd": (MEMORY_CLOCKS, DEFAULT),
    "--reset-memory-clocks-deferred": (MEMORY_CLOCKS, DEFAULT),
}
# In effect only when the driver initialises the GPU again.
_DEFERRED = ("-lmcd", "--lock-memory-clocks-deferred", "-rmcd", "--reset-memory-clocks-deferred")
# What stands beside the one modification that a line may have ("any one of").
_ADDITIONS = ("-i", "--id", "-sc", "--scope", "-m", "--mode", "-eow", "--error-on-warning")
_QUERIES = ("-h", "--help", "--version", "-L", "--list-gpus", "-B", "--list-excluded-gpus", "-q", "--query", "--dtd")
_ID = ("-i", "--id")
_SCOPE = ("-sc", "--scope")
_GPU_SCOPE = ("0", "GPU")
_MIG: Mapping[str, str] = {
    "-cgi": CREATE,
    "--create-gpu-instance": CREATE,
    "-dgi": DESTROY,
    "--destroy-gpu-instance": DESTROY,
    "-cci": CREATE_COMPUTE,
    "--create-compute-instance": CREATE_COMPUTE,
    "-dci": DESTROY_COMPUTE,
    "--destroy-compute-instance": DESTROY_COMPUTE,
}
_WITH_COMPUTE = ("-C", "--default-compute-instance")
_INSTANCE_IDS = ("-gi", "--gpu-instance-id", "-ci", "--compute-instance-id")
_SWITCH: Mapping[str, bool] = {"0": False, "DISABLED": False, "1": True, "ENABLED": True}

_Options = List[Tuple[str, str]]


@frozen
class SmiSetting:
    """A setting that gets ``value``, as it is written, on the GPUs that ``ids`` name, on all where there are none.

    ``in_doubt``: nvidia-smi may refuse the line, or it takes effect later.
    """

    setting: str
    value: str
    ids: Tuple[str, ...] = ()
    in_doubt: bool = False


def parse(arguments: Sequence[str]) -> Tuple[SmiSetting, ...]:
    """The settings in the order of the line; none for a query and for settings that are not known here."""
    if not arguments:
        return ()
    if arguments[0].startswith("-"):
        return tuple(_modifications(_options(arguments)))
    reader = {"mig": _instances, "compute-policy": _policies}.get(arguments[0])
    options = _options(arguments[1:])
    return tuple(reader(options)) if reader and not _is_query(options) else ()


def selects(ids: Sequence[str], gpu: Identity) -> Optional[bool]:
    """Whether the ids name this GPU, by index, UUID or PCI bus id; None where that is not known.

    A board's serial number is not among what is known of a GPU.
    """
    answers = [_is(one, gpu) for one in ids]
    if not ids or True in answers:
        return True
    return None if None in answers else False


def switch(value: str) -> Optional[bool]:
    """``0/DISABLED`` and ``1/ENABLED``; None for another text."""
    return _SWITCH.get(value)


def _is(text: str, gpu: Identity) -> Optional[bool]:
    if text.upper().startswith(("GPU-", "MIG-")) and "*" not in text:
        return text.lower() == gpu.uuid.lower()
    if ":" in text and "*" not in text:
        return pci_pattern(text) == gpu.pci_address
    # An index has few digits, a serial number more than ten.
    return int(text) == gpu.index if text.isdecimal() and len(text) < 4 else None


def _options(words: Sequence[str]) -> _Options:
    """Each option with its value, empty where it has none.

    Only long options are documented with ``=``: behind a short one it stays in the value, which is then not known.
    """
    found: _Options = []
    for word in words:
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            found.append((name, value if name.startswith("--") else equals + value))
        elif found and not found[-1][1]:
            found[-1] = (found[-1][0], word)
    return found


def _is_query(options: _Options) -> bool:
    return any(name in _QUERIES or name.startswith(("--query-", "--help-")) for name, _value in options)


def _ids(options: _Options) -> Tuple[str, ...]:
    return tuple(one for name, value in options if name in _ID for one in value.split(",") if one)


def _modifications(options: _Options) -> List[SmiSetting]:
    if _is_query(options):
        return []
    # The limit of a whole module is another setting than that of its GPU.
    if any(name in _SCOPE and value not in _GPU_SCOPE for name, value in options):
        return []
    # nvidia-smi has an error for more than one at a time, and does not document when.
    several = sum(name not in _ADDITIONS for name, _value in options) > 1
    ids = _ids(options)
    return [
        SmiSetting(_SETTINGS[name][0], _SETTINGS[name][1] or value, ids, several or name in _DEFERRED)
        for name, value in options
        if name in _SETTINGS
    ]


def _policies(options: _Options) -> List[SmiSetting]:
    ids = _ids(options)
    return [SmiSetting(TIME_SLICE, value, ids) for name, value in options if name == "--set-timeslice"]


def _instances(options: _Options) -> List[SmiSetting]:
    given: Dict[str, str] = dict(options)
    ids = _ids(options)
    partly = any(name in given for name in _INSTANCE_IDS)
    found = []
    for name, value in options:
        if name not in _MIG:
            continue
        found.append(SmiSetting(_MIG[name], value, ids, partly))
        if _MIG[name] == CREATE_COMPUTE and not value:
            found[-1] = SmiSetting(CREATE_COMPUTE, WHOLE, ids, partly)
        if _MIG[name] == CREATE and any(option in given for option in _WITH_COMPUTE):
            found.append(SmiSetting(CREATE_COMPUTE, WHOLE, ids))
    return found
