# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of RDMA devices and of GPU memory, and what is wrong whatever the machine."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NoReturn, Optional, Tuple

from ..._core import match
from ..._core.errors import DeclarationError
from ..._core.setting import Scalar
from ..._core.value import field, frozen
from . import job_ports, lossless

NAME = "rdma"
MATCH_KEYS = ("name", "driver", "pci_address", "netdev", "numa_node")
ROCE_MODE, ROCE_TOS, TRAFFIC_CLASS = "roce_mode", "roce_tos", "traffic_class"
# In the order of setting.
SETTINGS = (ROCE_MODE, ROCE_TOS, TRAFFIC_CLASS)
# Those that rdma_cm has for each port, in a folder of configfs that must be made first.
IN_CONFIGFS = (ROCE_MODE, ROCE_TOS)
LARGEST_BYTE = 255
AUTO, DMA_BUF, PEERMEM, IGNORE = "auto", "dma_buf", "peermem", "ignore"


@frozen
class DeviceEntry:
    """One entry of ``devices``: what it matches, the declared settings, and whether its ports have to be active."""

    entry: match.MatchEntry
    settings: Mapping[str, Scalar]
    ready: bool = False


@frozen
class RdmaDeclaration:
    """What is declared. For ``state: absent``, ``before`` are the values from before us, by the identity of a port, and
    ``unload`` says that nvidia_peermem was not loaded.
    """

    entries: Tuple[DeviceEntry, ...] = ()
    gpudirect: str = IGNORE
    job_ports: Optional[job_ports.JobPorts] = None
    before: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    unload: bool = False


def parse(params: Mapping[str, Any]) -> RdmaDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    devices, gpudirect = params["devices"], params["gpudirect"]
    ports = job_ports.parse(params[job_ports.OPTION])
    if not devices and gpudirect == IGNORE and ports is None:
        raise DeclarationError(
            "read the declaration",
            cause="nothing is declared",
            hint="set devices, gpudirect or job_ports, or state: absent",
        )
    parsed = match.parse("devices", devices, MATCH_KEYS)
    return RdmaDeclaration(tuple(_entry(item, entry) for item, entry in zip(devices, parsed)), gpudirect, ports)


def _entry(item: Mapping[str, Any], entry: match.MatchEntry) -> DeviceEntry:
    where = entry.where
    lowered = {key: _lower(texts) if key == "pci_address" else texts for key, texts in entry.match.items()}
    settings: Dict[str, Scalar] = {}
    for setting in SETTINGS:
        value = item[setting]
        if value is None:
            continue
        if isinstance(value, int) and not 0 <= value <= LARGEST_BYTE:
            _refuse(f"{where}.{setting}", f"it is a byte, from 0 to {LARGEST_BYTE}", value)
        settings[setting] = value
    settings.update(_lossless(where, item))
    if not settings and not item["ready"]:
        _refuse(where, "it declares nothing")
    return DeviceEntry(match.MatchEntry(where, lowered, entry.optional), settings, item["ready"])


def _lossless(where: str, item: Mapping[str, Any]) -> Mapping[str, Scalar]:
    dscp: Dict[int, int] = {}
    given, place = item["dscp_priorities"] or {}, f"{where}.dscp_priorities"
    if len({isinstance(code, str) for code in given}) > 1:
        _refuse(place, "some DSCPs are numbers, and some are strings")
    for code, priority in given.items():
        dscp[_number(place, code, lossless.LARGEST_DSCP, "a DSCP")] = _number(
            place, priority, lossless.PRIORITIES - 1, "a priority"
        )
    pfc = _priorities(f"{where}.pfc", item["pfc"] or [])
    ecn = _priorities(f"{where}.ecn", item["ecn"] or [])
    return lossless.settings_of(pfc, dscp, ecn, declares_pfc=item["pfc"] is not None)


def _priorities(where: str, given: List[int]) -> List[int]:
    return [_number(where, priority, lossless.PRIORITIES - 1, "a priority") for priority in given]


def _number(where: str, value: Any, largest: int, what: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or int(text) > largest:
        _refuse(where, f"{what} is a number from 0 to {largest}", text)
    return int(text)


def _lower(texts: Tuple[str, ...]) -> Tuple[str, ...]:
    return tuple(text.lower() for text in texts)


def _refuse(object: str, cause: str, wanted: Scalar = None) -> NoReturn:
    hint = "set such as roce_tos: 106, which is DSCP 26 with ECN, or ready: true"
    raise DeclarationError("declare {}", object=object, cause=cause, wanted=wanted, hint=hint)
