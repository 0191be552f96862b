# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Time for which logind lets the kubelet delay a shutdown of the node.

The kubelet raises ``InhibitDelayMaxSec=`` to its ``shutdownGracePeriod`` by a drop-in of its own (pkg/kubelet/
nodeshutdown of Kubernetes). If a drop-in that logind reads later sets a shorter time, the kubelet runs without graceful
node shutdown, and only its log reports that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Optional

from ..._linux import dropins, systemd
from .state import Delay

if TYPE_CHECKING:
    from ..._core.protocols import Files

OF_KUBELET = "99-kubelet.conf"
SETTING = "InhibitDelayMaxSec"
# systemd.time(7); a number alone is of seconds.
_UNITS = {
    **dict.fromkeys(("usec", "us", "µs", "μs"), 0.000001),
    **dict.fromkeys(("msec", "ms"), 0.001),
    **dict.fromkeys(("seconds", "second", "sec", "s", ""), 1.0),
    **dict.fromkeys(("minutes", "minute", "min", "m"), 60.0),
    **dict.fromkeys(("hours", "hour", "hr", "h"), 3600.0),
    **dict.fromkeys(("days", "day", "d"), 86400.0),
    **dict.fromkeys(("weeks", "week", "w"), 604800.0),
}


def delay_after_kubelet(files: Files) -> Delay:
    """The limit from a drop-in that logind reads after the kubelet's own; infinite without one."""
    found = Delay()
    for path in dropins.walk_kind(files, "systemd/logind.conf.d", ".conf"):
        text = files.read_optional(path) or ""
        for key, value in systemd.assignments(text) if SETTING in text else ():
            seconds = seconds_of(value)
            if key == f"Login.{SETTING}" and seconds is not None:
                found = Delay(path, value, seconds) if path.rpartition("/")[2] > OF_KUBELET else Delay()
    return found


def seconds_of(text: str) -> Optional[float]:
    """A systemd time span such as ``1min 30s`` in seconds; None if systemd would reject it."""
    if text == "infinity":
        return float("inf")
    parts = re.findall(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zµμ]*)", text)
    whole = re.fullmatch(r"(?:\s*[0-9]+(?:\.[0-9]+)?\s*[a-zµμ]*)+\s*", text)
    if not whole or any(unit not in _UNITS for _number, unit in parts):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
