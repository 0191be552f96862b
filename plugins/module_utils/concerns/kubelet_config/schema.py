# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fields of KubeletConfiguration that are ours: what each takes, since when, and what it means.

After staging/src/k8s.io/kubelet/config/v1beta1/types.go, pkg/kubelet/cm/{cpumanager,topologymanager}/policy_options.go,
pkg/kubelet/eviction/api/types.go, parseResourceList of cmd/kubelet/app/server.go and the change logs of Kubernetes. A
release is its minor number: 31 is v1.31.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Tuple

from ..._core.regex import regex
from ..._core.value import frozen
from ..._linux import cpulist

TEXT, CPUS, BOOL, DURATION, SWAP = "text", "cpus", "bool", "duration", "swap"
OPTIONS_MAP, QUANTITIES, THRESHOLDS, DURATIONS, RESERVED = (
    "options",
    "quantities",
    "thresholds",
    "durations",
    "reserved",
)
MAPS = (OPTIONS_MAP, QUANTITIES, THRESHOLDS, DURATIONS)
CPU, MEMORY = "cpu", "memory"


@frozen
class Field:
    """``since`` is the release that it came in, ``flag`` the one of the command line, empty where it has none.

    ``default`` is what counts where nobody sets it. ``state`` are the state files that know it, and ``drains`` says
    that pods which run may not be admitted again when it changes.
    """

    kind: str
    since: int
    flag: str = ""
    default: Any = ""
    state: Tuple[str, ...] = ()
    drains: bool = True
    names: Tuple[str, ...] = ()


RESOURCES = ("cpu", "memory", "ephemeral-storage", "pid")
SIGNALS = (
    "allocatableMemory.available",
    "containerfs.available",
    "containerfs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "pid.available",
)
# The release in which the kubelet began to know these signals.
SIGNALS_SINCE = {"containerfs.available": 29, "containerfs.inodesFree": 29}
# A map in the file of --config takes all of these away, unless that file has mergeDefaultEvictionSettings: true too.
EVICTION_HARD = {
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
}
CPU_POLICY, CPU_OPTIONS, RESERVED_CPUS = "cpuManagerPolicy", "cpuManagerPolicyOptions", "reservedSystemCPUs"
TOPOLOGY_POLICY, TOPOLOGY_OPTIONS = "topologyManagerPolicy", "topologyManagerPolicyOptions"
TOPOLOGY_SCOPE, MERGE_DEFAULTS, MERGES_SINCE = "topologyManagerScope", "mergeDefaultEvictionSettings", 33
MEMORY_POLICY, RESERVED_MEMORY = "memoryManagerPolicy", "reservedMemory"
SYSTEM_RESERVED, KUBE_RESERVED, HARD = "systemReserved", "kubeReserved", "evictionHard"
SOFT, SOFT_GRACE, RECLAIM = "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim"
# A foreign field that grace periods cannot stand beside.
BY_PRIORITY = "shutdownGracePeriodByPodPriority"
FAIL_SWAP, SWAP_FIELD = "failSwapOn", "memorySwap"
GRACE, CRITICAL = "shutdownGracePeriod", "shutdownGracePeriodCriticalPods"

FIELDS: Mapping[str, Field] = {
    CPU_POLICY: Field(TEXT, 10, "cpu-manager-policy", "none", (CPU,)),
    CPU_OPTIONS: Field(OPTIONS_MAP, 22, "cpu-manager-policy-options", {}, (CPU,)),
    RESERVED_CPUS: Field(CPUS, 17, "reserved-cpus", "", (CPU,)),
    TOPOLOGY_POLICY: Field(TEXT, 16, "topology-manager-policy", "none"),
    TOPOLOGY_SCOPE: Field(TEXT, 20, "topology-manager-scope", "container"),
    TOPOLOGY_OPTIONS: Field(OPTIONS_MAP, 26, "topology-manager-policy-options", {}),
    MEMORY_POLICY: Field(TEXT, 21, "memory-manager-policy", "None", (MEMORY,)),
    RESERVED_MEMORY: Field(RESERVED, 21, "reserved-memory", [], (MEMORY,)),
    SYSTEM_RESERVED: Field(QUANTITIES, 10, "system-reserved", {}, names=RESOURCES),
    KUBE_RESERVED: Field(QUANTITIES, 10, "kube-reserved", {}, names=RESOURCES),
    HARD: Field(THRESHOLDS, 10, "eviction-hard", EVICTION_HARD, names=SIGNALS),
    SOFT: Field(THRESHOLDS, 10, "eviction-soft", {}, drains=False, names=SIGNALS),
    SOFT_GRACE: Field(DURATIONS, 10, "eviction-soft-grace-period", {}, drains=False, names=SIGNALS),
    RECLAIM: Field(THRESHOLDS, 10, "eviction-minimum-reclaim", {}, drains=False, names=SIGNALS),
    FAIL_SWAP: Field(BOOL, 10, "fail-swap-on", True, drains=False),
    SWAP_FIELD: Field(SWAP, 22, "", "NoSwap", drains=False),
    GRACE: Field(DURATION, 20, "", "0s", drains=False),
    CRITICAL: Field(DURATION, 20, "", "0s", drains=False),
}
SWAP_KEY, LIMITED, NO_SWAP = "swapBehavior", "LimitedSwap", "NoSwap"
NO_SWAP_SINCE = 30
# Values of a field that say nothing.
NOTHING: Tuple[object, ...] = (None, "", {}, [])
# The one policy option that is a number, and the least that it may be.
ALLOWABLE, MOST_NODES = "max-allowable-numa-nodes", 8
ACROSS_CORES, ACROSS_NUMA = "distribute-cpus-across-cores", "distribute-cpus-across-numa"
FULL_CORES, BY_CACHE = "full-pcpus-only", "prefer-align-cpus-by-uncorecache"
# The releases in which an option came, became beta, and became general (0: not yet).
POLICY_OPTIONS: Mapping[str, Mapping[str, Tuple[int, int, int]]] = {
    CPU_OPTIONS: {
        "align-by-socket": (25, 0, 0),
        ACROSS_CORES: (31, 0, 0),
        ACROSS_NUMA: (23, 33, 0),
        FULL_CORES: (22, 23, 33),
        BY_CACHE: (32, 34, 36),
        "strict-cpu-reservation": (32, 33, 35),
    },
    TOPOLOGY_OPTIONS: {ALLOWABLE: (31, 31, 35), "prefer-closest-numa-nodes": (26, 28, 32)},
}
# Options of the CPU manager that the kubelet refuses together.
EXCLUSIVE = (
    (FULL_CORES, ACROSS_CORES),
    (ACROSS_NUMA, ACROSS_CORES),
    (BY_CACHE, ACROSS_CORES),
    (BY_CACHE, ACROSS_NUMA),
)
# What Go's strconv.ParseBool takes.
_ON, _OFF = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")
# What a parser of YAML 1.1 takes for a boolean, and for nothing.
_YAML_ON = ("true", "True", "TRUE", "yes", "Yes", "YES", "y", "Y", "on", "On", "ON")
_YAML_NULL = ("null", "Null", "NULL", "~")

_QUANTITY = regex(
    r"\+?(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(n|u|m|k|[KMGTPE]i|[MGTPE]|[eE](?:\+?[0-9]{1,2}|-[0-9]))?",
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_PERCENT = regex(r"\+?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)%")
_NUMBER = regex(r"\+?[0-9]+")
_PART = regex(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|us|\u00b5s|\u03bcs|ns|m|s)")
_DURATION = regex(rf"(?:{_PART.pattern})+|0")
_MILLISECONDS = {
    "h": 3600_000,
    "m": 60_000,
    "s": 1000,
    "ms": 1,
    "us": 1e-3,
    "\u00b5s": 1e-3,
    "\u03bcs": 1e-3,
    "ns": 1e-6,
}
# Go counts nanoseconds in 63 bits.
_LONGEST = (1 << 63) // 1_000_000
BILLION = 1_000_000_000


def quantity(text: str) -> int:
    """A quantity of Kubernetes such as ``1.5Gi`` or ``500m``, in billionths. Raises ``ValueError``."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity, such as 500m or 2Gi")
    whole, part, unit = match[1], match[2] or "", match[3] or ""
    number, scale = int(whole + part), int("1" + "0" * len(part))
    if unit[-1:] == "i":
        return (number << 10 * ("KMGTPE".index(unit[0]) + 1)) * BILLION // scale
    power = int(unit[1:]) if unit[:1] in ("e", "E") and unit != "E" else _DECIMAL[unit]
    return number * int("1" + "0" * (9 + power)) // scale


def amount(text: str) -> int:
    """The same in whole units, such as bytes."""
    return quantity(text) // BILLION


def percent(text: str) -> float:
    """A threshold in percent, -1 for one that is a quantity."""
    match = _PERCENT.fullmatch(text)
    return float(match[1]) if match else -1.0


def duration(text: str) -> int:
    """A duration of Go such as ``1m30s``, in milliseconds. Raises ``ValueError``."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration, such as 30s or 1m30s")
    total = round(sum(float(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text)))
    if total > _LONGEST:
        raise ValueError(f"{text!r} is longer than the 292 years that a duration can have")
    return total


def threshold(text: str) -> Tuple[str, float]:
    """What a threshold of an eviction means. Raises ``ValueError``."""
    share = percent(text)
    return ("%", share) if share >= 0 else ("", float(quantity(text)))


def refuse_threshold(text: str, *, reclaim: bool) -> None:
    """Raise ``ValueError`` on a threshold or a minimum ``reclaim`` at which a kubelet exits (eviction/helpers.go)."""
    unit, number = threshold(text)
    if unit and reclaim and not number:
        raise ValueError(f"{text!r} frees nothing, which the kubelet refuses: leave it out")
    if unit and not reclaim and number > 100:
        raise ValueError(f"{text!r} is more than 100%")
    if not unit and not reclaim and not number:
        raise ValueError(f"a threshold of {text!r} is refused by the kubelet: write 0% for none")


def has_threshold(text: str) -> bool:
    """Whether a kubelet makes a threshold of a text: it leaves out these two."""
    return text not in ("0%", "100%")


def is_on(text: str) -> bool:
    """Whether a policy option or a feature gate is on."""
    return text in _ON


def number(text: str) -> int:
    """The number that a policy option is, -1 for none."""
    return int(text) if _NUMBER.fullmatch(text) else -1


def refuse_option(name: str, text: str) -> None:
    """Raise ``ValueError`` on a value at which a kubelet exits."""
    if name == ALLOWABLE and number(text) < MOST_NODES:
        raise ValueError(f"{name} is a number of at least {MOST_NODES}, not {text!r}")
    if name != ALLOWABLE and text not in (*_ON, *_OFF):
        raise ValueError(f"{name} is true or false, not {text!r}")


def says(raw: Any) -> bool:
    """Whether a document has a value there."""
    return raw not in NOTHING and raw not in _YAML_NULL


def is_true(raw: Any) -> bool:
    """Whether a boolean of a document is on."""
    return _scalar(raw) in _YAML_ON


def of_document(key: str, raw: Any) -> Any:
    """The value of a field as a document has it, in which scalars may be texts; None where it has none.

    Raises ``ValueError`` where it is of another form.
    """
    value = _of_document(key, raw)
    if value is not None:
        meaning(key, value)
    return value


def _of_document(key: str, raw: Any) -> Any:
    kind = FIELDS[key].kind
    if kind == SWAP:
        raw = raw.get(SWAP_KEY) if isinstance(raw, dict) else raw
    if not says(raw):
        return None
    if kind in MAPS:
        if not isinstance(raw, dict):
            raise ValueError(f"{key} is not a mapping")
        return {str(name): _scalar(value) for name, value in raw.items()}
    if kind == RESERVED:
        if not isinstance(raw, list):
            raise ValueError(f"{key} is not a list")
        return [
            {
                "numaNode": int(one["numaNode"]),
                "limits": {name: _scalar(value) for name, value in one["limits"].items()},
            }
            for one in raw
        ]
    if kind == BOOL:
        return is_true(raw)
    return _scalar(raw)


def to_document(key: str, value: Any) -> Any:
    """A value as KubeletConfiguration has it."""
    return {SWAP_KEY: value} if FIELDS[key].kind == SWAP else value


def shown(key: str, value: Any) -> str:
    """A value in the form of its flag, which is one line."""
    kind = FIELDS[key].kind
    if kind == BOOL:
        return "true" if value else "false"
    if kind == RESERVED:
        return ";".join(f"{one['numaNode']}:{_pairs(one['limits'], '=')}" for one in value) or "none"
    if kind in MAPS:
        return _pairs(value, "<" if key in (HARD, SOFT) else "=") or "none"
    return str(value) or "none"


def of_flag(key: str, text: str) -> Any:
    """The value that a flag sets; the inverse of ``shown``. Raises ``ValueError`` where it is of another form."""
    kind = FIELDS[key].kind
    value: Any = _of_pairs(text) if kind in MAPS else text
    if kind == BOOL:
        value = not text or is_on(text)
    if kind == RESERVED:
        value = []
        for part in filter(None, text.split(";")):
            node, _colon, limits = part.partition(":")
            if not node.isdecimal():
                raise ValueError(f"{node!r} is not the number of a NUMA node")
            value.append({"numaNode": int(node), "limits": _of_pairs(limits)})
    meaning(key, value)
    return value


def meaning(key: str, value: Any) -> Any:
    """What two values of a field are compared by. Raises ``ValueError`` where it is not of its form."""
    kind = FIELDS[key].kind
    if kind == CPUS:
        return cpulist.parse(value)
    if kind == DURATION:
        return duration(value)
    if kind == QUANTITIES:
        return {name: quantity(text) for name, text in value.items()}
    if kind == THRESHOLDS:
        return {name: threshold(text) for name, text in value.items()}
    if kind == DURATIONS:
        return {name: duration(text) for name, text in value.items()}
    if kind == RESERVED:
        return {one["numaNode"]: {name: quantity(text) for name, text in one["limits"].items()} for one in value}
    return value


# Of a flag that comes more than once all count, joined by this, and of others the last.
JOINED: Mapping[str, str] = {
    "feature-gates": ",",
    **{one.flag: "," for one in FIELDS.values() if one.kind in MAPS},
    **{one.flag: ";" for one in FIELDS.values() if one.kind == RESERVED},
}


def _scalar(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _pairs(values: Mapping[str, str], sign: str) -> str:
    return ",".join(f"{name}{sign}{value}" for name, value in sorted(values.items()))


def _of_pairs(text: str) -> Dict[str, str]:
    parts: List[List[str]] = [re.split("[=<]", part, maxsplit=1) for part in text.split(",") if part]
    return {part[0]: part[1] if len(part) == 2 else "" for part in parts}
