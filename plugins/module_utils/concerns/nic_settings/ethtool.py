# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ethtool(8) says of an interface: rings, channels, coalescing, flow control and features.

Its text is read, for the releases of Debian 12, Ubuntu 22.04 and RHEL 9 have JSON for few of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, Optional, Tuple

from ..._core.errors import CannotLook, DeclarationError
from ..._core.regex import regex
from ..._core.setting import Scalar
from ..._core.value import frozen
from .spec import CHANNELS, COALESCING, ETHTOOL, FEATURES, MAXIMUM, OFF, ON, PAUSE, RINGS, SET_OPTIONS

if TYPE_CHECKING:
    from ..._core.protocols import Host

PROGRAM = "ethtool"
SECONDS = 10.0
# The first line of what it shows of a group, which every release and driver has.
HEADINGS = {
    RINGS: "Ring parameters for ",
    CHANNELS: "Channel parameters for ",
    COALESCING: "Coalesce parameters for ",
    PAUSE: "Pause parameters for ",
    FEATURES: "Features for ",
}
# The heading over the values that are set now; above it are the largest.
NOW = "Current hardware settings:"
_ADAPTIVE = regex(r"Adaptive RX: (on|off|n/a)\s+TX: (on|off|n/a)")
_FEATURE = regex(r"\s*([a-z0-9_-]+): (on|off)(?: \[(fixed|requested (?:on|off))\])?")
# Before 5.8 it says what it cannot get in front of that.
_LACKING = "not supported"


@frozen
class Shown:
    """What is set, by setting; ``largest`` are the limits of the driver, ``fixed`` the features that nobody can set."""

    now: Dict[str, Scalar]
    largest: Dict[str, int]
    fixed: Tuple[str, ...] = ()


def group_of(setting: str) -> str:
    return ETHTOOL[setting].group if setting in ETHTOOL else FEATURES


def read(host: Host, name: str, settings: Iterable[str]) -> Shown:
    """What is asked of an interface; what its driver does not have is not in it.

    Raises ``CannotLook`` where ethtool does not answer or its answer is not understood, and ``DeclarationError`` where
    it is not installed.
    """
    found = Shown({}, {})
    for group in dict.fromkeys(map(group_of, settings)):
        option = SET_OPTIONS[group].lower()
        text = _ask(host, name, option)
        if text is None:
            continue
        shown = _parse(group, text)
        if shown is None:
            raise CannotLook(
                f"ask ethtool {option} about {{}}",
                object=name,
                cause=f"its output is not understood: {text.strip().partition(chr(10))[0] or 'it is empty'}",
            )
        found = Shown({**found.now, **shown.now}, {**found.largest, **shown.largest}, (*found.fixed, *shown.fixed))
    return found


def command(name: str, group: str, values: Iterable[Tuple[str, Scalar]]) -> Tuple[str, ...]:
    """The arguments that give an interface these values of one group."""
    words = [word for setting, value in values for word in (_word(setting), str(value))]
    return (PROGRAM, SET_OPTIONS[group], name, *words)


def _word(setting: str) -> str:
    return ETHTOOL[setting].word if setting in ETHTOOL else setting


def _ask(host: Host, name: str, option: str) -> Optional[str]:
    """The text that ethtool prints; None where the driver does not have what is asked."""
    try:
        completed = host.commands.run((PROGRAM, option, name), timeout=SECONDS)
    except FileNotFoundError as error:
        raise DeclarationError(
            "read the settings of {}", object=name, cause="ethtool is not installed", hint="install the package ethtool"
        ) from error
    if completed.status == 0:
        return completed.output
    said = (completed.errors or completed.output).strip()
    if completed.timed_out or _LACKING not in said:
        cause = "it did not respond in time" if completed.timed_out else said or f"exit status {completed.status}"
        raise CannotLook(f"ask ethtool {option} about {{}}", object=name, cause=cause)
    return None


def _parse(group: str, text: str) -> Optional[Shown]:
    """The values shown for a group; None where a line is missing that every release prints."""
    if not text.startswith(HEADINGS[group]) or not text.endswith("\n"):
        return None
    if group == FEATURES:
        shown = _features(text)
        return shown if shown.now else None
    largest_text, heading, now_text = text.partition(NOW)
    if not heading:
        largest_text, now_text = "", text
    now = _lines(now_text)
    largest = _lines(largest_text)
    wanted = {setting: known for setting, known in ETHTOOL.items() if known.group == group}
    values: Dict[str, Scalar] = {}
    limits: Dict[str, int] = {}
    if any(known.line not in now for known in wanted.values()):
        return None
    for setting, known in wanted.items():
        value = now[known.line]
        if known.form == "switch" and value in (ON, OFF):
            values[setting] = value
        elif known.form != "switch" and value.isdecimal():
            limit = largest.get(known.line, "")
            # A driver without channels of this kind says 0 for the largest number too.
            if known.form != "size" or int(limit or 0):
                values[setting] = int(value)
            if limit.isdecimal():
                limits[setting] = int(limit)
    return Shown(values, limits)


def _lines(text: str) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for line in text.splitlines():
        adaptive = _ADAPTIVE.match(line)
        if adaptive:
            found["Adaptive RX"], found["Adaptive TX"] = adaptive.groups()
            continue
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def _features(text: str) -> Shown:
    now: Dict[str, Scalar] = {}
    fixed = []
    for line in text.splitlines():
        found = _FEATURE.fullmatch(line)
        if found:
            now[found[1]] = found[2]
            if found[3] == "fixed":
                fixed.append(found[1])
    return Shown(now, {}, tuple(fixed))


def resolved(value: Scalar, setting: str, shown: Shown) -> Scalar:
    """A declared value with ``max`` as the number that it is here."""
    return shown.largest.get(setting, shown.now.get(setting)) if value == MAXIMUM else value
