# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of sysctl, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, Optional, Tuple

from ..._core.errors import DeclarationError
from ..._core.value import field, frozen
from ..._linux import sysctl_d
from .keys import (
    ALL_FORWARDING,
    COUNTS,
    IP_FORWARD,
    LIMITS,
    RESERVED_PORTS,
    RISING,
    RT_PERIOD,
    RT_RUNTIME,
    ZEROED,
    dotted,
    merged_ports,
)

OBJECT = "sysctl"
LONGEST = 4096
EXCLUSIVE: Mapping[str, str] = {**ZEROED, IP_FORWARD: ALL_FORWARDING}


@frozen
class KernelTunablesDeclaration:
    """The values by key, a path below /proc/sys. ``looked_at`` are keys that ``state: absent`` restores."""

    values: Mapping[str, str] = field(default_factory=dict)
    looked_at: Tuple[str, ...] = ()


def parse(params: Mapping[str, Any]) -> KernelTunablesDeclaration:
    """Raises ``DeclarationError`` on what no kernel has."""
    values: Dict[str, str] = {}
    for name, value in (params["sysctl"] or {}).items():
        key = _key(str(name))
        if key in values:
            raise wrong(key, "the key is declared twice", hint="leave one of the two out")
        values[key] = _value(key, value)
    if not values:
        raise DeclarationError(
            "read the declaration",
            cause="no key is declared in sysctl",
            hint="set at least one, such as sysctl: {vm.swappiness: 10}, or state: absent",
        )
    for key, other in EXCLUSIVE.items():
        if key in values and other in values:
            cause = "setting one sets the other to 0" if key in ZEROED else "both are the same setting"
            raise wrong(key, f"{dotted(other)} is declared too, and {cause}", hint="leave one of the two out")
    if {RT_RUNTIME, RT_PERIOD} <= values.keys() and int(values[RT_RUNTIME]) > int(values[RT_PERIOD]):
        raise wrong(
            RT_RUNTIME,
            f"it exceeds {dotted(RT_PERIOD)}, which is {values[RT_PERIOD]}",
            wanted=values[RT_RUNTIME],
            hint="set at most the period, or -1 for no limit",
        )
    # In one order: what is kept on the node has another than the inventory, and the file would differ.
    return KernelTunablesDeclaration({key: values[key] for key in sorted(values)})


def wrong(key: str, cause: str, **values: Any) -> DeclarationError:
    return DeclarationError("set {}", object=f"{OBJECT} {dotted(key)}", cause=cause, **values)


def check_numbers(key: str, text: str, count: Optional[int]) -> None:
    """Refuse what the kernel would read in another way than a person. ``count`` is how many numbers the key takes; None
    where it is not known whether it takes numbers.
    """
    words = text.split()
    for word in words:
        if re.fullmatch(r"[0-9]+(\.[0-9]+)?[KMGTkmgt](i?[Bb])?|[0-9]+\.[0-9]+|[0-9]+[eE][0-9]+", word):
            raise wrong(key, f"{word} is not a whole number", hint="write the number in full, such as 1048576")
        if re.fullmatch(r"-?0[0-9]+", word):
            raise wrong(key, f"the kernel reads {word} as an octal number", hint="leave the leading zeros out")
        if re.fullmatch(r"-?0[xX][0-9a-fA-F]+", word):
            raise wrong(key, f"{word} is a hexadecimal number", hint=f"write it in decimal: {int(word, 16)}")
    if count is None:
        return
    if not all(re.fullmatch(r"-?[0-9]+", word) for word in words):
        raise wrong(key, "the key takes " + ("a number" if count == 1 else f"{count} numbers"), wanted=text)
    if len(words) != count:
        raise wrong(
            key,
            "the key takes " + ("one number" if count == 1 else f"{count} numbers"),
            wanted=text,
            hint="declare all of them: the kernel would leave the others as they are, or drop what is too many",
        )


def _key(name: str) -> str:
    key = sysctl_d.normal(name.strip())
    if any(sign in name for sign in "*?["):
        raise wrong(key, "a pattern is not a key", hint="declare each key by its name")
    if not re.fullmatch(r"[A-Za-z0-9_][^\s=#;\0]*", name.strip()) or ".." in key.split("/") or not key:
        raise DeclarationError("read the declaration", cause=f"{name!r} is not the name of a sysctl key")
    return key


def _value(key: str, value: Any) -> str:
    if isinstance(value, bool):
        raise wrong(key, f"{str(value).lower()} is not a value of sysctl", hint="write 1 or 0")
    if not isinstance(value, (int, str)):
        raise wrong(key, "the value is neither a whole number nor a string", hint="write several numbers as one string")
    text = str(value).strip()
    if not text or len(text) > LONGEST:
        raise wrong(key, "the value is empty or too long", hint="leave the key out where it is to stay as it is")
    if any(sign < " " and sign != "\t" for sign in text):
        raise wrong(key, "the value has more than one line")
    known = COUNTS.get(key, 1 if key in LIMITS else None)
    check_numbers(key, text, known)
    if key in LIMITS:
        least, most = LIMITS[key]
        if not least <= int(text) <= most:
            raise wrong(key, f"the kernel takes {least} to {most}", wanted=int(text), hint=_hint(key))
    if key in RISING:
        numbers = [int(word) for word in text.split()]
        if numbers != sorted(numbers):
            raise wrong(key, "the numbers must not fall", wanted=text)
    if key == RESERVED_PORTS:
        ports = merged_ports(text)
        if ports is None:
            raise wrong(
                key, "the value is not a list of ports and ranges", wanted=text, hint="write it like 8080,9000-9010"
            )
        return ports
    return " ".join(text.split())


def _hint(key: str) -> str:
    return f"declare {dotted(ZEROED[key])} instead" if key.endswith("_bytes") and key in ZEROED else ""
