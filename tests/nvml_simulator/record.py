# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records what NVML answers about a GPU, the first one or another: ``python3 record.py [INDEX] > recording.json``.

Needs nvidia-ml-py, and root for the questions about MIG. It only asks: no function is called that changes anything.
What identifies a board or a machine (UUID, serial number, PDI, host name) is left out.

The answers are an object, from a question to one of

- ``{"value": ...}``: structs as objects, what cannot be written as JSON as the name of its type;
- ``{"error": code}``, whose text is in ``errors``;
- ``{"field": [code, type, value]}`` of ``nvmlDeviceGetFieldValues``, with null for the value of an error.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import pynvml as nvml

HOME = Path(__file__).resolve().parent
Question = Tuple[str, Callable[..., Any], Sequence[Any]]

# Functions whose names begin like this only read.
READ_ONLY = ("nvmlDeviceGet", "nvmlDeviceIs", "nvmlDeviceValidate", "nvmlSystemGet", "nvmlUnitGet")
ALSO_READ_ONLY = ("nvmlGetExcluded", "nvmlGetVgpu")
# Their values say which board or machine it is.
IDENTITY = ("nvmlDeviceGetUUID", "nvmlDeviceGetSerial", "nvmlDeviceGetPdi", "nvmlDeviceGetHostname_v1")
# Their binding wants room for the answer.
WITH_ROOM = ("nvmlDeviceGetGpuInstancePossiblePlacements", "nvmlDeviceGetGpuInstances")
LONGEST_LIST = 64
DEEPEST = 6
FIELD_VALUES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
UNKNOWN_UUIDS = ("GPU-00000000-0000-0000-0000-000000000000", "MIG-00000000-0000-0000-0000-000000000000", "x")
LINKS = (0, 17, 18)


def constants(prefix: str, *but: str) -> Dict[str, int]:
    """The numbers of the binding whose names begin so, without those that contain one of ``but``."""
    named = {name: value for name, value in vars(nvml).items() if name.startswith(prefix) and isinstance(value, int)}
    return {name: named[name] for name in sorted(named) if not any(part in name for part in but)}


def enum(prefix: str, *but: str) -> Dict[str, int]:
    """Those of an enum, whose end the binding calls ..._COUNT."""
    return constants(prefix, "COUNT", *but)


def numbers(values: Sequence[int]) -> Dict[str, int]:
    return {str(value): value for value in values}


def one_argument() -> Dict[str, Dict[str, int]]:
    """Of functions that take one argument after the GPU: the arguments that are asked about, by their names."""
    clocks = enum("NVML_CLOCK_", "_ID_", "LIMIT", "OFFSET")
    retirements = enum("NVML_PAGE_RETIREMENT_CAUSE_")
    profiles = enum("NVML_GPU_INSTANCE_PROFILE_")
    return {
        **{f"nvmlDeviceGet{name}": clocks for name in ("ClockInfo", "MaxClockInfo", "MaxCustomerBoostClock")},
        **{f"nvmlDeviceGet{name}": clocks for name in ("ApplicationsClock", "DefaultApplicationsClock")},
        "nvmlDeviceGetTemperature": {"GPU": 0},
        "nvmlDeviceGetTemperatureThreshold": enum("NVML_TEMPERATURE_THRESHOLD_"),
        "nvmlDeviceGetInforomVersion": enum("NVML_INFOROM_"),
        "nvmlDeviceGetAPIRestriction": enum("NVML_RESTRICTED_API_"),
        "nvmlDeviceGetFanSpeed_v2": numbers([0]),
        "nvmlDeviceGetPcieThroughput": {"tx": 0, "rx": 1},
        "nvmlDeviceGetNvLinkState": numbers(range(19)),
        **{f"nvmlDeviceGetNvLink{name}": numbers(LINKS) for name in ("Version", "RemotePciInfo", "RemoteDeviceType")},
        "nvmlDeviceGetRetiredPages": retirements,
        "nvmlDeviceGetRetiredPages_v2": retirements,
        "nvmlDeviceGetViolationStatus": enum("NVML_PERF_POLICY_"),
        "nvmlDeviceGetEncoderCapacity": numbers([0, 1]),
        # The numbers of profiles' enum, which the second function takes for profile ids.
        "nvmlDeviceGetGpuInstanceProfileInfo": profiles,
        "nvmlDeviceGetGpuInstanceProfileInfoV": profiles,
        "nvmlDeviceGetGpuInstanceRemainingCapacity": profiles,
        "nvmlDeviceGetMigDeviceHandleByIndex": numbers(range(8)),
        "nvmlDeviceGetGpuInstanceById": numbers([0, 1]),
        "nvmlDeviceGetVgpuCapabilities": enum("NVML_DEVICE_VGPU_CAP_"),
    }


def functions() -> Iterator[Tuple[str, Callable[..., Any], List[str]]]:
    """The read-only functions of the binding, with the names of the arguments that they need."""
    for name, function in sorted(vars(nvml).items()):
        if name.startswith((*READ_ONLY, *ALSO_READ_ONLY)) and inspect.isfunction(function) and name not in WITH_ROOM:
            parameters = inspect.signature(function).parameters.values()
            yield name, function, [one.name for one in parameters if one.default is one.empty]


def questions(gpu: Any) -> Iterator[Question]:
    """The questions: a name, a function and its arguments for each."""
    arguments = one_argument()
    for name, function, needed in functions():
        if name in arguments:
            yield from ((f"{name}({word})", function, (gpu, value)) for word, value in arguments[name].items())
        elif not needed:
            yield name, function, ()
        elif needed in (["handle"], ["device"]):
            yield name, function, (gpu,)
    yield from questions_about_clocks(gpu)
    yield from questions_about_errors(gpu)
    yield from questions_about_places(gpu)
    for number, name in sorted((value, name) for name, value in constants("NVML_FI_", "NVML_FI_MAX").items()):
        yield f"field {number} {name}", field_value, (gpu, number)


def questions_about_clocks(gpu: Any) -> Iterator[Question]:
    try:
        memory_clocks = nvml.nvmlDeviceGetSupportedMemoryClocks(gpu)
    except nvml.NVMLError:
        memory_clocks = []
    for clock in memory_clocks:
        name = "nvmlDeviceGetSupportedGraphicsClocks"
        yield f"{name}({clock})", nvml.nvmlDeviceGetSupportedGraphicsClocks, (gpu, clock)
    # These and those of instances and counters below are not in the first recording.
    for word, number in enum("NVML_CLOCK_", "_ID_", "LIMIT", "OFFSET").items():
        for name, which in enum("NVML_CLOCK_ID_").items():
            yield f"nvmlDeviceGetClock({word},{name})", nvml.nvmlDeviceGetClock, (gpu, number, which)
        for state in (0, 2, 5, 8):
            name = f"nvmlDeviceGetMinMaxClockOfPState({word},{state})"
            yield name, nvml.nvmlDeviceGetMinMaxClockOfPState, (gpu, number, state)
    yield "nvmlDeviceGetThermalSettings(0)", nvml.nvmlDeviceGetThermalSettings, (gpu, 0)


def questions_about_errors(gpu: Any) -> Iterator[Question]:
    for kind, number in enum("NVML_MEMORY_ERROR_TYPE_").items():
        for counter, word in enumerate(("volatile", "aggregate")):
            total = nvml.nvmlDeviceGetTotalEccErrors
            yield f"nvmlDeviceGetTotalEccErrors({kind},{word})", total, (gpu, number, counter)
            for place in range(8):
                name = f"nvmlDeviceGetMemoryErrorCounter({kind},{word},{place})"
                yield name, nvml.nvmlDeviceGetMemoryErrorCounter, (gpu, number, counter, place)


def questions_about_places(gpu: Any) -> Iterator[Question]:
    for word, profile in enum("NVML_GPU_INSTANCE_PROFILE_").items():
        yield f"nvmlDeviceGetGpuInstancePossiblePlacements({word})", possible_placements, (gpu, profile)
        yield f"nvmlDeviceGetGpuInstances({word})", instances, (gpu, profile)
    for link in LINKS:
        for counter in range(5):
            name = f"nvmlDeviceGetNvLinkErrorCounter({link},{counter})"
            yield name, nvml.nvmlDeviceGetNvLinkErrorCounter, (gpu, link, counter)
    for capability in range(6):
        for link in LINKS:
            name = f"nvmlDeviceGetNvLinkCapability({link},{capability})"
            yield name, nvml.nvmlDeviceGetNvLinkCapability, (gpu, link, capability)
    yield "nvmlDeviceGetTopologyCommonAncestor(self)", nvml.nvmlDeviceGetTopologyCommonAncestor, (gpu, gpu)
    yield "nvmlDeviceGetP2PStatus(self)", nvml.nvmlDeviceGetP2PStatus, (gpu, gpu, 0)
    yield "nvmlDeviceGetMemoryAffinity", nvml.nvmlDeviceGetMemoryAffinity, (gpu, 4, 0)
    yield "nvmlDeviceGetCpuAffinity", nvml.nvmlDeviceGetCpuAffinity, (gpu, 4)
    yield "nvmlDeviceGetCpuAffinityWithinScope", nvml.nvmlDeviceGetCpuAffinityWithinScope, (gpu, 4, 0)
    yield "nvmlDeviceGetMemoryInfo v2", nvml.nvmlDeviceGetMemoryInfo, (gpu, nvml.nvmlMemory_v2)
    for uuid in UNKNOWN_UUIDS:
        yield f"nvmlDeviceGetHandleByUUID({uuid})", nvml.nvmlDeviceGetHandleByUUID, (uuid,)
    address = "0000:ff:00.0"
    yield f"nvmlDeviceGetHandleByPciBusId({address})", nvml.nvmlDeviceGetHandleByPciBusId, (address,)
    yield "nvmlDeviceGetHandleByIndex(64)", nvml.nvmlDeviceGetHandleByIndex, (64,)


def possible_placements(gpu: Any, profile: int) -> List[Tuple[int, int]]:
    """The places where an instance with this profile id may lie: start and size."""
    count = ctypes.c_uint(0)
    ask = nvml._nvmlGetFunctionPointer("nvmlDeviceGetGpuInstancePossiblePlacements_v2")
    nvml._nvmlCheckReturn(ask(gpu, profile, None, ctypes.byref(count)))
    room = (nvml.c_nvmlGpuInstancePlacement_t * max(1, count.value))()
    nvml._nvmlCheckReturn(ask(gpu, profile, room, ctypes.byref(count)))
    return [(place.start, place.size) for place in room[: count.value]]


def instances(gpu: Any, profile: int) -> int:
    """How many instances there are with this profile id."""
    room, count = (nvml.c_nvmlGpuInstance_t * LONGEST_LIST)(), ctypes.c_uint(LONGEST_LIST)
    nvml.nvmlDeviceGetGpuInstances(gpu, profile, room, ctypes.byref(count))
    return count.value


class Field(List[Any]):
    """A field value: its code, its type, its value."""


def field_value(gpu: Any, number: int) -> Field:
    found = nvml.nvmlDeviceGetFieldValues(gpu, [number])[0]
    value = getattr(found.value, FIELD_VALUES.get(found.valueType, ""), None) if found.nvmlReturn == 0 else None
    return Field([found.nvmlReturn, found.valueType, value])


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON can have it, with long lists cut: numbers, texts, what is made of them, else the type's name."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple, ctypes.Array)) and depth < DEEPEST:
        return [plain(item, depth + 1) for item in list(value)[:LONGEST_LIST]]
    if isinstance(value, (ctypes.Structure, ctypes.Union)) and depth < DEEPEST:
        return {field[0]: plain(getattr(value, field[0]), depth + 1) for field in value._fields_}
    if isinstance(value, ctypes._SimpleCData):
        return plain(value.value, depth)
    return type(value).__name__


def answers(gpu: Any) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """The answer to each question, and the text of each error among them."""
    found: Dict[str, Any] = {}
    errors: Dict[str, str] = {}
    for name, function, arguments in questions(gpu):
        try:
            value = function(*arguments)
        except nvml.NVMLError as error:
            code = int(error.value)
            found[name] = {"error": code}
            errors[str(code)] = str(error)
            continue
        if isinstance(value, Field):
            found[name] = {"field": list(value)}
        else:
            found[name] = {"value": type(value).__name__ if name in IDENTITY else plain(value)}
    return found, errors


def not_exported() -> List[str]:
    """The functions of symbols.json, whatever their release, that the library does not export."""
    since = json.loads((HOME / "symbols.json").read_text(encoding="utf-8"))["since"]
    return sorted(name for names in since.values() for name in names if not hasattr(nvml.nvmlLib, name))


def recording(index: int = 0) -> Dict[str, Any]:
    """All that there is to record of the GPU with this index."""
    nvml.nvmlInit()
    try:
        found, errors = answers(nvml.nvmlDeviceGetHandleByIndex(index))
        return {"errors": errors, "not_exported": not_exported(), "answers": found}
    finally:
        nvml.nvmlShutdown()


def text_of(tree: Dict[str, Any]) -> str:
    """The recording with a line for each answer, so that two of them can be compared."""
    parts = []
    for key, value in tree.items():
        if isinstance(value, dict):
            lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value[name])}" for name in sorted(value))
            parts.append(f" {json.dumps(key)}: {{\n{lines}\n }}")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> int:
    sys.stdout.write(text_of(recording(*map(int, sys.argv[1:2]))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
