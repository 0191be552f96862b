# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What makes a class of traffic lossless on the network interface of a port: PFC, priorities by DSCP, and ECN.

PFC and priorities are those of dcb(8), which asks the driver by dcbnl. A driver that is given a priority for a DSCP
trusts DSCP from then on (mlx5e_dcbnl_ieee_setapp). ECN is in files that only drivers of MLNX_OFED and DOCA have.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Tuple

from ..._core.change import RunCommand
from ..._core.errors import CannotLook
from ..._core.regex import regex
from ..._core.setting import Scalar
from ..._core.value import frozen

if TYPE_CHECKING:
    from ..._core.protocols import Host

PROGRAM = "dcb"
SECONDS = 10.0
PFC, DSCP, ECN = "pfc", "dscp", "ecn"
NONE = "none"
ON, OFF = "on", "off"
# Releases differ in how their JSON has a priority.
_SWITCH = (True, False, ON, OFF)
PRIORITIES, LARGEST_DSCP = 8, 63
# The point that marks congestion and the one that slows down for it, as the kernel names their folders.
POINTS = ("np", "rp")
LLDPAD = "/run/lldpad.pid"
NOT_INSTALLED = "dcb is not installed; install iproute2 5.11 or newer"
NO_DCB = "its driver does not have it"
_LACKING = ("Operation not supported", "not supported")
_PFC = regex(r"none|[0-7](?:,[0-7])*")
_DSCP = regex(r"dscp (?:[0-9]|[1-5][0-9]|6[0-3])")
_SEVERAL = regex(r"[0-7](?:,[0-7])+")
_ECN = regex(r"ecn [0-7] (?:np|rp)")


@frozen
class Shown:
    """What dcb says of an interface. ``lacking`` is why it says nothing, and ``managed`` whether the firmware of the
    card sets all of it.
    """

    values: Mapping[str, Scalar]
    lacking: str = ""
    managed: bool = False


def settings_of(
    pfc: Iterable[int], dscp: Mapping[int, int], ecn: Iterable[int], *, declares_pfc: bool
) -> Dict[str, Scalar]:
    """What is declared, as settings with their values."""
    found: Dict[str, Scalar] = {PFC: _joined(pfc)} if declares_pfc else {}
    found.update({f"{DSCP} {code}": priority for code, priority in sorted(dscp.items())})
    found.update({f"{ECN} {priority} {point}": ON for priority in sorted({*ecn}) for point in POINTS})
    return found


def is_about(setting: str) -> bool:
    return setting.partition(" ")[0] in (PFC, DSCP, ECN)


def is_value(setting: str, value: Scalar) -> bool:
    """Whether an interface can ever have had this value of a setting."""
    if setting == PFC:
        return isinstance(value, str) and _PFC.fullmatch(value) is not None
    if _ECN.fullmatch(setting):
        return value in (ON, OFF)
    if not _DSCP.fullmatch(setting):
        return False
    if isinstance(value, int):
        return 0 <= value < PRIORITIES
    return value is None or _SEVERAL.fullmatch(value) is not None


def read(host: Host, netdev: str, settings: Iterable[str]) -> Shown:
    """What dcb says of these. Raises ``CannotLook`` where it fails for another reason than that there is nothing."""
    codes = [setting for setting in settings if setting.startswith(f"{DSCP} ")]
    values: Dict[str, Scalar] = {}
    if PFC in settings:
        shown, lacking = _ask(host, netdev, PFC)
        if lacking:
            return Shown({}, lacking)
        enabled = shown.get("prio_pfc")
        if not isinstance(enabled, list) or len(enabled) != PRIORITIES or not all(one in _SWITCH for one in enabled):
            cause = f"its prio_pfc is not a list of {PRIORITIES} priorities that are on or off"
            raise _not_understood(netdev, PFC, cause)
        values[PFC] = _joined(priority for priority, is_on in enumerate(enabled) if is_on in (True, ON))
    if codes:
        shown, lacking = _ask(host, netdev, "app")
        if lacking:
            return Shown({}, lacking)
        there: Dict[int, List[int]] = {}
        # There is no list where no DSCP has a priority.
        try:
            for code, priority in shown.get("dscp_prio", []):
                there.setdefault(int(code), []).append(int(priority))
        except (TypeError, ValueError) as error:
            raise _not_understood(netdev, "app", "its dscp_prio is not a list of pairs") from error
        for setting in codes:
            priorities = sorted(there.get(int(setting.split()[1]), ()))
            values[setting] = priorities[0] if len(priorities) == 1 else _joined(priorities) if priorities else None
    if not values:
        return Shown({})
    shown, lacking = _ask(host, netdev, "dcbx")
    return Shown(values, managed=not lacking and bool(shown.get("lld_managed")))


def ecn_path(netdev: str, setting: str) -> str:
    _ecn, priority, point = setting.split()
    return f"/sys/class/net/{netdev}/ecn/roce_{point}/enable/{priority}"


def command(netdev: str, setting: str, wanted: Scalar, found: Scalar) -> RunCommand:
    """What gives PFC or a DSCP of an interface a value; None takes the priorities of a DSCP away."""
    goal = f"set {setting} of {netdev}"
    if setting == PFC:
        on = [] if wanted == NONE else [f"{priority}:{ON}" for priority in str(wanted).split(",")]
        return RunCommand((PROGRAM, PFC, "set", "dev", netdev, "prio-pfc", f"all:{OFF}", *on), goal)
    code = setting.split()[1]
    verb, value = ("del", found) if wanted is None else ("replace", wanted)
    mappings = [f"{code}:{priority}" for priority in str(value).split(",")]
    return RunCommand((PROGRAM, "app", verb, "dev", netdev, "dscp-prio", *mappings), goal)


def _joined(priorities: Iterable[int]) -> str:
    return ",".join(map(str, sorted({*priorities}))) or NONE


def _ask(host: Host, netdev: str, about: str) -> Tuple[Mapping[str, Any], str]:
    """What is shown, or why nothing is."""
    try:
        completed = host.commands.run((PROGRAM, "-j", about, "show", "dev", netdev), timeout=SECONDS)
    except FileNotFoundError:
        return {}, NOT_INSTALLED
    said = (completed.errors or completed.output).strip()
    if completed.status != 0 and any(words in said for words in _LACKING):
        return {}, NO_DCB
    try:
        document = json.loads(completed.output) if completed.status == 0 else None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        cause = "it took too long" if completed.timed_out else said or f"exit status {completed.status}, and no output"
        raise _not_understood(netdev, about, cause)
    return document, ""


def _not_understood(netdev: str, about: str, cause: str) -> CannotLook:
    return CannotLook(f"ask dcb about {about} of {{}}", object=netdev, cause=cause)
