# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The flags in the file of the NVIDIA device plugin: types, releases, and the variables that override them. Pure.

Keys, values and variables are those of api/config/v1, cmd/nvidia-device-plugin and cmd/gpu-feature-discovery of the
plugin, releases 0.14 to 0.20. The plugin reads its file without strictness: it ignores the case of a key, null, and
a key that it does not know, and so a misspelt one. It exits at a value of another type.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from ..._core.nearest import nearest
from ..._core.regex import regex

# The first two numbers of a release.
Release = Tuple[int, int]

MIG_STRATEGY = "migStrategy"
NONE, SINGLE, MIXED = "none", "single", "mixed"
DISCOVERY, TEGRA = "deviceDiscoveryStrategy", "tegra"
MPS_ROOT, SLEEP = "mpsRoot", "gfd.sleepInterval"
# What a value of a flag may be: one of a choice, a list of a choice, a duration, a type, or a section of flags.
LISTS = (("envvar", "volume-mounts", "cdi-annotations", "cdi-cri"),)
DURATION = "duration"
FLAGS: Mapping[str, Any] = {
    MIG_STRATEGY: (NONE, SINGLE, MIXED),
    "failOnInitError": bool,
    MPS_ROOT: str,
    "nvidiaDriverRoot": str,
    "nvidiaDevRoot": str,
    "gdrcopyEnabled": bool,
    "gdsEnabled": bool,
    "mofedEnabled": bool,
    "useNodeFeatureAPI": bool,
    DISCOVERY: ("auto", "nvml", TEGRA),
    "plugin": {
        "passDeviceSpecs": bool,
        "deviceListStrategy": LISTS,
        "deviceIDStrategy": ("uuid", "index"),
        "cdiAnnotationPrefix": str,
        "nvidiaCTKPath": str,
        "containerDriverRoot": str,
        "sharedDevicesAllocationPolicy": ("distributed", "packed"),
    },
    "gfd": {
        "oneshot": bool,
        "noTimestamp": bool,
        "sleepInterval": DURATION,
        "outputFile": str,
        "machineTypeFile": str,
    },
}
# Flags that an older plugin ignores, and values at which it exits.
SINCE: Mapping[str, Release] = {
    MPS_ROOT: (0, 15),
    "useNodeFeatureAPI": (0, 15),
    "nvidiaDevRoot": (0, 16),
    DISCOVERY: (0, 16),
    "gdrcopyEnabled": (0, 18),
    "plugin.sharedDevicesAllocationPolicy": (0, 20),
}
VALUES_SINCE: Mapping[Tuple[str, str], Release] = {
    ("plugin.deviceListStrategy", "cdi-cri"): (0, 15),
    (SLEEP, "infinite"): (0, 19),
}
# A variable in the DaemonSet, which values of Helm set, beats the file, even if it is empty. The first one set counts.
VARIABLES: Mapping[str, Tuple[str, ...]] = {
    MIG_STRATEGY: ("MIG_STRATEGY",),
    "failOnInitError": ("FAIL_ON_INIT_ERROR",),
    MPS_ROOT: ("MPS_ROOT",),
    "nvidiaDriverRoot": ("NVIDIA_DRIVER_ROOT",),
    "nvidiaDevRoot": ("NVIDIA_DEV_ROOT",),
    "gdrcopyEnabled": ("GDRCOPY_ENABLED",),
    "gdsEnabled": ("GDS_ENABLED",),
    "mofedEnabled": ("MOFED_ENABLED",),
    DISCOVERY: ("DEVICE_DISCOVERY_STRATEGY",),
    "plugin.passDeviceSpecs": ("PASS_DEVICE_SPECS",),
    "plugin.deviceListStrategy": ("DEVICE_LIST_STRATEGY",),
    "plugin.deviceIDStrategy": ("DEVICE_ID_STRATEGY",),
    "plugin.cdiAnnotationPrefix": ("CDI_ANNOTATION_PREFIX",),
    "plugin.nvidiaCTKPath": ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
    "plugin.containerDriverRoot": ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
    "plugin.sharedDevicesAllocationPolicy": ("SHARED_DEVICES_ALLOCATION_POLICY",),
}
# Those of GPU feature discovery, for the flags that only it uses.
DISCOVERY_VARIABLES: Mapping[str, Tuple[str, ...]] = {
    "useNodeFeatureAPI": ("GFD_USE_NODE_FEATURE_API", "USE_NODE_FEATURE_API"),
    "gfd.oneshot": ("GFD_ONESHOT",),
    "gfd.noTimestamp": ("GFD_NO_TIMESTAMP",),
    SLEEP: ("GFD_SLEEP_INTERVAL",),
    "gfd.outputFile": ("GFD_OUTPUT_FILE",),
    "gfd.machineTypeFile": ("GFD_MACHINE_TYPE_FILE",),
}
VARIABLES_SINCE: Mapping[str, Release] = {"NVIDIA_CDI_HOOK_PATH": (0, 16), "DRIVER_ROOT_CTR_PATH": (0, 16)}
# What is no flag, by the option that sets it.
ELSEWHERE = {
    "renameByDefault": "rename",
    "failRequestsGreaterThanOne": "fail_requests_greater_than_one",
    "replicas": "replicas",
    "resources": "resources",
    "timeSlicing": "strategy and replicas",
    "mps": "strategy and replicas",
    "sharing": "strategy and replicas",
}
# strconv.ParseBool. The command line takes an empty variable for false.
BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False", ""), False),
}
NANOSECONDS = {
    "ns": 1,
    "us": 1000,
    "\u00b5s": 1000,
    "\u03bcs": 1000,
    "ms": 1_000_000,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = regex(r"([0-9]*)(?:\.([0-9]*))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_DURATION = regex(r"([+-]?)(0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)")
INFINITE, LONGEST, DIGITS = "infinite", 1 << 63, 20


def duration(text: str) -> Optional[int]:
    """The nanoseconds of what ``time.ParseDuration`` takes, None of anything else."""
    if text == INFINITE:
        return LONGEST - 1
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    total = 0
    for whole, part, unit in _PART.findall(match[2]):
        # Digits beyond these change nothing: Python refuses to read thousands of them.
        whole, part = whole.lstrip("0"), part[:DIGITS]
        if len(whole) > DIGITS:
            return None
        total += int(whole or 0) * NANOSECONDS[unit] + int(part or 0) * NANOSECONDS[unit] // 10 ** len(part)
    total = -total if match[1] == "-" else total
    return total if -LONGEST <= total < LONGEST else None


def faults_of_flags(flags: Any) -> Iterator[str]:
    """The flags that the plugin would ignore or refuse, whichever release it is."""
    return _faults(flags, FLAGS, "flags")


def _faults(flags: Any, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    if not isinstance(flags, dict):
        yield f"{where} is not a mapping"
        return
    seen: Dict[str, str] = {}
    for name, value in flags.items():
        key = _key(str(name), schema)
        if not key:
            yield _unknown(str(name), schema, where)
            continue
        if seen.setdefault(key, name) != name:
            yield f"{where}.{seen[key]} and {where}.{name} are the same flag, because the plugin ignores case"
        kind = schema[key]
        if value is None:
            continue
        if isinstance(kind, dict):
            yield from _faults(value, kind, f"{where}.{name}")
            continue
        said = _wanted_instead(value, kind)
        if said:
            yield f"{where}.{name} is {json.dumps(value, ensure_ascii=False)}, and must be {said}"


def _key(name: str, schema: Mapping[str, Any]) -> str:
    """How the plugin spells a key, which it takes in any case; empty where it does not know it."""
    return next((key for key in schema if key.casefold() == name.casefold()), "")


def _unknown(name: str, schema: Mapping[str, Any], where: str) -> str:
    if name in ELSEWHERE:
        return f"{where}.{name} is not a flag of the plugin: set {ELSEWHERE[name]} instead"
    sections = {"flags": FLAGS, "flags.plugin": FLAGS["plugin"], "flags.gfd": FLAGS["gfd"]}
    home = next((section for section, keys in sections.items() if _key(name, keys)), "")
    if home:
        return f"{where}.{name} belongs to {home}, and the plugin would not find it here"
    near = nearest(name, schema)
    return f"{where}.{name} is unknown to the plugin, which would ignore it" + (
        f". Did you mean {near}?" if near else ""
    )


def _wanted_instead(value: Any, kind: Any) -> str:
    """The description of a right value; empty where this one is right."""
    if kind is LISTS:
        (choices,) = LISTS
        values = value if isinstance(value, list) else [value]
        right = bool(values) and all(isinstance(one, str) and one in choices for one in values)
        return "" if right else f"a list of {', '.join(choices)}"
    if isinstance(kind, tuple):
        return "" if isinstance(value, str) and value in kind else f"one of {', '.join(kind)}"
    if kind is bool:
        return "" if isinstance(value, bool) else "true or false"
    if kind is DURATION:
        return _instead_of_duration(value)
    return "" if isinstance(value, str) else "a string"


def _instead_of_duration(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # Fewer than a second of them are seconds to whoever wrote them.
        right = NANOSECONDS["s"] <= value < LONGEST
        return "" if right else "a duration such as 60s, because the plugin reads a number as nanoseconds"
    return "" if isinstance(value, str) and duration(value) is not None else "a duration such as 60s or 1h30m"


def settled(flags: Mapping[str, Any]) -> Dict[str, Any]:
    """Flags without faults in the spelling of the plugin, without what is null. A list is one in every release."""
    return _settled(flags, FLAGS)


def _settled(flags: Mapping[str, Any], schema: Mapping[str, Any]) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for name, value in flags.items():
        key = _key(str(name), schema)
        if value is None:
            continue
        kind = schema[key]
        if isinstance(kind, dict):
            value = _settled(value, kind)
        elif kind is LISTS and not isinstance(value, list):
            value = [value]
        found[key] = value
    return found


def by_path(flags: Mapping[str, Any], where: str = "") -> Dict[str, Any]:
    """Settled flags by their paths, such as ``plugin.passDeviceSpecs``."""
    found: Dict[str, Any] = {}
    for key, value in flags.items():
        found.update(by_path(value, f"{key}.") if isinstance(value, dict) else {f"{where}{key}": value})
    return found


def faults_of_release(flags: Mapping[str, Any], release: Optional[Release]) -> Iterator[str]:
    """Values of settled flags at which a plugin of this release exits; None is an unknown release."""
    if release is None:
        return
    declared = by_path(flags)
    for (path, value), since in VALUES_SINCE.items():
        found = declared.get(path)
        if release < since and (value in found if isinstance(found, list) else value == found):
            yield f"flags.{path} can be {value} only since release {named_release(since)} of the plugin"


def ignored_flags(flags: Mapping[str, Any], release: Optional[Release]) -> Iterator[str]:
    for path in by_path(flags):
        if release is not None and release < SINCE.get(path, release):
            yield f"flags.{path}, which only release {named_release(SINCE[path])} and newer have"


def named_release(release: Release) -> str:
    return ".".join(map(str, release))


def variable_of(
    path: str, variables: Mapping[str, Tuple[str, ...]], environment: Mapping[str, Any], release: Optional[Release]
) -> str:
    """The variable that overrides a flag in a DaemonSet; empty where none is set."""
    if release is not None and release < SINCE.get(path, release):
        return ""
    return next(
        (
            name
            for name in variables.get(path, ())
            if name in environment and (release is None or release >= VARIABLES_SINCE.get(name, release))
        ),
        "",
    )


def meaning(text: str, path: str) -> Any:
    """The value of a flag by its variable, as the file has it; the text itself where the plugin would not take it."""
    kind = _kind(path)
    if kind is LISTS:
        return [one.strip() for one in text.split(",")]
    if kind is bool:
        return BOOLEANS.get(text, text)
    return text


def faults_of_variables(environment: Mapping[str, Optional[str]], release: Optional[Release]) -> Iterator[str]:
    """Values in a DaemonSet at which the plugin exits, whatever its file is."""
    for path in VARIABLES:
        variable = variable_of(path, VARIABLES, environment, release)
        text = environment[variable] if variable else None
        said = "" if text is None else _wanted_instead(meaning(text, path), _kind(path))
        if said:
            yield f"{variable} is {json.dumps(text, ensure_ascii=False)}, and must be {said}"


def _kind(path: str) -> Any:
    kind: Any = FLAGS
    for key in path.split("."):
        kind = kind[key]
    return kind


def same(path: str, found: Any, wanted: Any) -> bool:
    if path == SLEEP and isinstance(found, str):
        return duration(found) == (duration(wanted) if isinstance(wanted, str) else wanted)
    if isinstance(found, list) and isinstance(wanted, list):
        return set(found) == set(wanted)
    return bool(found == wanted) and isinstance(found, bool) == isinstance(wanted, bool)
