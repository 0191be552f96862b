# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tool of the NVML simulator: creates a machine, does to it what NVML cannot, shows its state.

The state's layout, its lock and every rule are in the library beside this file; this is words in and words out.
Usable as a command (``nvml-sim``) and as a module (:class:`Simulator`).
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import os
import re
import signal
import sys
import uuid
import zlib
from pathlib import Path
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Sequence, Tuple

HOME = Path(__file__).resolve().parent
DEFAULT_STATE = "/var/lib/nvml_simulator/state"
MOST_GPUS = 16
RACK_DEVICES = ("0x294110DE", "0x31C210DE", "0x31C310DE")  # GB200 and GB300, whose switches serve many machines
HOPPER = 9  # the architecture's number in NVML
LARGEST = 2**32 - 2  # the library keeps numbers of 32 bits; the next one means "none"
KINDS = ("monitor", "compute", "graphics", "mps")
SWITCH = 2  # what a GPU's NVLinks lead to, as NVML says it
FAULTS = ("fail", "hang", "hide", "kill")
# Faults of no single function: they meet every call of one that changes something.
ANY_CHANGE = "any-change"
KILL_AT_CHANGE = "kill-at-change"
# The reset of GPUs that nvidia-smi makes: no function of NVML, but it fails and is logged as one.
GPU_RESET = "gpu-reset"
# What is met under a name of its own.
NAMES = (ANY_CHANGE, KILL_AT_CHANGE, GPU_RESET)
DEVICES = "/dev"
# Bytes of the description of a machine with eight GPUs, twice.
ROOM_OF_MOST = 1 << 18
# Lines of a state that name a GPU.
IDENTITY = re.compile(r"^gpu\.\d+\.(?:uuid|pci_domain|pci_bus|pci_device)=.*$", re.MULTILINE)
ERRORS = (
    "SUCCESS",
    "UNINITIALIZED",
    "INVALID_ARGUMENT",
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "ALREADY_INITIALIZED",
    "NOT_FOUND",
    "INSUFFICIENT_SIZE",
    "INSUFFICIENT_POWER",
    "DRIVER_NOT_LOADED",
    "TIMEOUT",
    "IRQ_ISSUE",
    "LIBRARY_NOT_FOUND",
    "FUNCTION_NOT_FOUND",
    "CORRUPTED_INFOROM",
    "GPU_IS_LOST",
    "RESET_REQUIRED",
    "OPERATING_SYSTEM",
    "LIB_RM_VERSION_MISMATCH",
    "IN_USE",
    "MEMORY",
    "NO_DATA",
    "VGPU_ECC_NOT_SUPPORTED",
    "INSUFFICIENT_RESOURCES",
    "FREQ_NOT_SUPPORTED",
    "ARGUMENT_VERSION_MISMATCH",
    "DEPRECATED",
    "NOT_READY",
    "GPU_NOT_FOUND",
    "INVALID_STATE",
    "RESET_TYPE_NOT_SUPPORTED",
)
# Exported names that only call another one, which is where a fault is met and what the log shows.
ALIASES = {
    "nvmlInit": "nvmlInitWithFlags",
    "nvmlInit_v2": "nvmlInitWithFlags",
    "nvmlDeviceGetCount": "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex": "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByPciBusId": "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetNvLinkRemotePciInfo": "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetAttributes": "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetGpuInstancePossiblePlacements": "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlComputeInstanceGetInfo": "nvmlComputeInstanceGetInfo_v2",
    "nvmlEventSetWait": "nvmlEventSetWait_v2",
}
Tree = Dict[str, Any]


class SimulatorError(Exception):
    """A request that was refused; its text says why."""


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(HOME / "libnvidia-ml.so.1"))
    library.nvml_sim_control.argtypes = [
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.POINTER(ctypes.c_char_p),
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    library.nvml_sim_create.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    return library


class Simulator:
    """One simulated machine: the state file at ``state`` (``NVML_SIM_STATE``, else the library's default)."""

    def __init__(self, state: Optional[str] = None) -> None:
        self.state = state or os.environ.get("NVML_SIM_STATE") or DEFAULT_STATE

    def control(self, *words: object, room: int = 65536) -> str:
        """Ask the library for something in words; its answer. Raises :class:`SimulatorError` with its reason."""
        texts = [_plain(str(word)).encode() for word in words]
        answer = ctypes.create_string_buffer(room)
        request = (ctypes.c_char_p * len(texts))(*texts)
        code = _library().nvml_sim_control(self.state.encode(), len(texts), request, answer, room)
        text = answer.value.decode(errors="replace")
        if code:
            raise SimulatorError(text)
        return text

    def _dump(self) -> str:
        """The whole state in lines. Those of the largest machine need much room, which takes longer to make than all
        else, and most machines do without.
        """
        try:
            return self.control("dump", room=ROOM_OF_MOST)
        except SimulatorError:
            return self.control("dump", room=4 << 20)

    def create(self, machine: str, *, driver: Optional[str] = None, force: bool = False) -> None:
        """Make the state file from a machine description (a shipped name, or the path of a .json file)."""
        path = Path(self.state)
        if path.exists() and not force:
            raise SimulatorError(f"{path} exists: add --force to replace it")
        lines = "\n".join(machine_lines(load_machine(machine), driver))
        path.parent.mkdir(parents=True, exist_ok=True)
        answer = ctypes.create_string_buffer(1024)
        text = ctypes.create_string_buffer(lines.encode())
        if _library().nvml_sim_create(str(path).encode(), text, answer, len(answer)):
            raise SimulatorError(answer.value.decode(errors="replace"))

    def describe(self) -> Tree:
        """The whole state: ``system``, ``gpus`` (each with ``profiles`` and ``instances``), ``clients``, ``faults``.

        ``missing_functions`` are those which the library of this driver version does not export.
        """
        tree = _tree(self._dump())
        gpus = [_gpu(gpu, tree) for gpu in _elements(tree, "gpu")]
        clients = [dict(client, kind=KINDS[client["kind"]]) for client in _elements(tree, "client")]
        faults = [dict(fault, kind=FAULTS[fault["kind"]]) for fault in _elements(tree, "fault")]
        return {
            "system": tree["system"],
            "gpus": gpus,
            "clients": clients,
            "faults": faults,
            "missing_functions": list(missing_functions(str(tree["system"]["driver_version"]))),
        }

    def gpu(self, wanted: str) -> int:
        """The index of the GPU with this index, UUID or PCI bus id."""
        gpus = self._identities()
        for gpu in gpus:
            if wanted.lower() in (str(gpu["index"]), gpu["uuid"].lower()) or _bus(wanted) == _bus(_bus_id(gpu)):
                return int(gpu["index"])
        raise SimulatorError(f"there is no GPU {wanted}: the machine has {len(gpus)}")

    def _identities(self) -> List[Tree]:
        """Of each GPU what names it."""
        return _elements(_tree("\n".join(IDENTITY.findall(self._dump()))), "gpu")

    def set(self, gpu: str, changes: Sequence[str]) -> None:
        """Change state fields (``KEY=VALUE``) of one GPU, of ``all``, or of the ``system``; all of them or none."""
        if gpu == "system":
            places = ["system"]
        elif gpu == "all":
            places = [f"gpu.{gpu['index']}" for gpu in self._identities()]
        else:
            places = [f"gpu.{self.gpu(gpu)}"]
        for change in changes:
            if "=" not in change:
                raise SimulatorError(f"{change}: a change is KEY=VALUE")
        self.control("set", *(f"{place}.{change}" for place in places for change in changes))

    def reset(self, *gpus: str) -> None:
        """Reset these GPUs, or all. Refused while a client holds one."""
        indices = [self.gpu(gpu) for gpu in gpus] or range(len(self._identities()))
        self.control("reset", *indices)

    def user_reset(self, gpus: Sequence[int]) -> Dict[int, Tuple[int, List[int]]]:
        """Reset these GPUs as a program does, all of them or none: of each its NVML result, and what else it takes.

        That is the GPUs linked to it which are not among these.
        """
        answer = self.control("user-reset", *gpus)
        lines = [[int(word) for word in line.split()] for line in answer.splitlines()]
        return {gpu: (result, missing) for gpu, result, *missing in lines}

    def add_client(
        self,
        gpu: str,
        *,
        gi: Optional[int] = None,
        ci: Optional[int] = None,
        name: str = "client",
        pid: Optional[int] = None,
        kind: str = "compute",
        memory: int = 0,
    ) -> int:
        """A process on a GPU, or on an instance of it. With the pid of a living process it ends with that process."""
        if ci is not None and gi is None:
            raise SimulatorError("--ci needs --gi")
        words = ["none" if word is None else str(word) for word in (gi, ci)]
        process = "none" if pid is None else str(pid)
        return int(self.control("add-client", self.gpu(gpu), *words, kind, memory, process, name))

    def pci_bus_ids(self) -> List[str]:
        """Of the GPUs, as NVML writes them (00000000:07:00.0)."""
        return [_bus_id(gpu) for gpu in self._identities()]

    def daemon_hold(self, gpu: str, pid: int) -> None:
        """Persistence on, by the daemon with this process id, for as long as it lives."""
        self.control("hold", self.gpu(gpu), pid)

    def daemon_release(self, gpu: str) -> None:
        """Persistence off, as far as the daemon holds it."""
        self.control("release", self.gpu(gpu))

    def fault(
        self, kind: str, symbol: str, *, code: int = 0, after: int = 0, count: int = 0, seconds: float = 0
    ) -> None:
        """Make ``symbol`` fail with ``code``, hang, or be missing.

        ``after`` calls pass first, then so many fail as ``count`` says (0: all).
        """
        met = symbol if kind == "fail" and symbol in NAMES else known_symbol(symbol)
        self.control("fault", kind, met, code, after, count, round(seconds * 1000), 0, 0)

    def kill_at_change(self, number: int, *, after_it: bool = False, group: bool = False) -> None:
        """Kill the process (or its group) that makes the change of this number, from 1: before it, or after it."""
        self.control("fault", "kill", KILL_AT_CHANGE, 0, number - 1, 1, 0, int(after_it), int(group))

    def heal(self, symbol: Optional[str] = None) -> None:
        """Remove the fault of ``symbol``, or every one."""
        self.control("heal", *([symbol if symbol in NAMES else known_symbol(symbol)] if symbol else []))

    def log(self, *, changes: bool = False) -> List[Tree]:
        """The calls so far, oldest first; with ``changes`` only those that change state, successful or not."""
        entries = []
        for line in self.control("log", *(["changes"] if changes else []), room=4 << 20).splitlines():
            sequence, pid, gpu, result, mark, symbol = line.split(" ", 5)
            entry = {"sequence": int(sequence), "pid": int(pid), "symbol": symbol, "result": int(result)}
            entries.append({**entry, "gpu": None if gpu == "-1" else int(gpu), "change": mark == "c"})
        return sorted(entries, key=lambda entry: int(entry["sequence"]))


def _plain(text: str) -> str:
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise SimulatorError("a text cannot hold control characters")
    return text


def known_symbol(symbol: str) -> str:
    """The name under which the library meets calls of ``symbol``."""
    if not _library().nvml_sim_has(symbol.encode()):
        raise SimulatorError(f"the library has no function {symbol}")
    return ALIASES.get(symbol, symbol)


@functools.cache
def missing_functions(version: str) -> Tuple[str, ...]:
    """The functions of the simulator that a driver of this version does not export."""
    branch, known = int(version.split(".")[0]), _data("symbols.json")
    lacking = [name for since, names in known["since"].items() if branch < int(since) for name in names]
    lacking += [name for name, gone in known["gone"].items() if branch >= gone]
    return tuple(sorted(name for name in lacking if _library().nvml_sim_has(name.encode())))


def error_code(word: str) -> int:
    """The number of an error: ``19``, ``IN_USE`` or ``NVML_ERROR_IN_USE``."""
    name = word.upper()
    name = name[len("NVML_ERROR_") :] if name.startswith("NVML_ERROR_") else name
    if name == "UNKNOWN":
        return 999
    if name in ERRORS[1:]:
        return ERRORS.index(name)
    if word.isdecimal() and 0 < int(word) <= LARGEST:
        return int(word)
    raise SimulatorError(f"{word} is no NVML error: a number above 0 or a name such as NVML_ERROR_IN_USE")


# ---- from a machine description to the lines of a state


def load_machine(machine: str) -> Tree:
    """A machine description, with its ``name``.

    ``gpus``: a list of ``model`` (a key of gpus.json), ``pci`` (0000:07:00.0), and where known ``node`` (NUMA node),
    ``switch`` and ``root`` (numbers: the same one is the same PCIe switch or host bridge), ``nvlink`` (a number: GPUs
    with the same one are linked), ``gpu_node`` (the node that is the GPU's memory), ``swap_halves``, ``set`` (any field
    of the state). ``nodes``: the CPUs of each node as a list (0-31,64-95); ``sockets``: the nodes of each socket;
    ``fabric``: whether there is an NVLink fabric to be ready; ``driver``: its version; ``set``: fields of the system;
    ``description``.
    """
    path = Path(machine) if machine.endswith(".json") else HOME / "machines" / f"{machine}.json"
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SimulatorError(f"there is no machine {machine}: one of {', '.join(machine_names())}, or a file") from None
    except ValueError as error:
        raise SimulatorError(f"{path} is not JSON: {error}") from None
    if not isinstance(description, dict) or not isinstance(description.get("gpus"), list):
        raise SimulatorError(f"{path} is not a machine description: it has no list of gpus")
    return {"name": path.stem, **description}


def machine_names() -> List[str]:
    """The machines that ship."""
    return sorted(path.stem for path in (HOME / "machines").glob("*.json"))


def open_device(name: str) -> Optional[int]:
    """A descriptor of the device file with this name (``nvidia0``), as a client of the driver has it; None without one.

    The files are in /dev, or in the folder that NVML_SIM_DEV names.
    """
    try:
        return os.open(os.path.join(os.environ.get("NVML_SIM_DEV") or DEVICES, name), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None


def _data(name: str) -> Tree:
    tree: Tree = json.loads((HOME / name).read_text(encoding="utf-8"))
    return tree


def _since(table: Dict[str, int], branch: int) -> int:
    """The entry of the newest branch that is not after this one."""
    known = [int(since) for since in table if int(since) <= branch]
    if not known:
        raise SimulatorError(f"driver branch {branch} is too old: the first known one is {min(map(int, table))}")
    return table[str(max(known))]


def machine_lines(machine: Tree, driver: Optional[str] = None) -> Iterator[str]:
    """The state of a machine after its first boot, as the lines the library reads."""
    drivers, models, tables = _data("drivers.json"), _data("gpus.json"), _data("mig_profiles.json")
    if not 1 <= len(machine["gpus"]) <= MOST_GPUS:
        raise SimulatorError(f"a machine has 1 to {MOST_GPUS} GPUs, this one {len(machine['gpus'])}")
    version = driver or machine.get("driver") or drivers["default"]
    if not re.fullmatch(r"\d{3}(\.\d+){1,2}", version):
        raise SimulatorError(f"{version} is not a driver version such as {drivers['default']}")
    branch = int(version.split(".")[0])
    for index, place in enumerate(machine["gpus"]):
        name = place.get("model") if isinstance(place, dict) else None
        if name not in models:
            raise SimulatorError(f"GPU {index} has model {name}: one of {', '.join(models)}")
    placed = [models[place["model"]] for place in machine["gpus"]]
    yield from _lines("system", _system(machine, version, branch, drivers, placed, tables))
    for index, entry in enumerate(_compute_profiles(tables)):
        yield from _lines(f"compute_profile.{index}", entry)
    for index, place in enumerate(machine["gpus"]):
        model = models[place["model"]]
        table: Tree = next((table for table in tables["gpus"] if table["key"] == model["mig"]), {})
        if table and _version(version) < _version(table["min_driver"]):
            table = {}  # to this driver the product is one without MIG
        profiles = _profiles(tables, table, branch, drivers["mig"]) if table else []
        gpu = _gpu_fields(machine, index, place, model)
        gpu.update(
            mig=0 if table else None,
            mig_pending=0 if table else None,
            mig_needs_reset=int(model["architecture"] == 7),
            memory_slices=table.get("memory_slices", 1),
            compute_slices=table.get("compute_slices", 0),
            profile_count=len(profiles),
            # GPUs of different products are not linked.
            nvlink_group=place.get("nvlink", list(models).index(place["model"])),
        )
        gpu.update(model.get("set", {}))
        gpu.update(place.get("set", {}))
        yield from _lines(f"gpu.{index}", gpu)
        for number, profile in enumerate(profiles):
            yield from _lines(f"gpu.{index}.profile.{number}", profile)


def _lines(path: str, fields: Tree) -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, (list, tuple)):
            text = ",".join(map(str, value))
        else:
            text = "none" if value is None else _plain(str(value))
        yield f"{path}.{name}={text}"


def _gpu_instance_ids(tables: Tree, others: List[int]) -> List[int]:
    """Of the profiles that any GPU has."""
    known = {profile["profile_id"] for table in tables["gpus"] for profile in table["profiles"]}
    return sorted(known.union(others))


def _system(machine: Tree, version: str, branch: int, drivers: Tree, models: List[Tree], tables: Tree) -> Tree:
    cuda = _since(drivers["cuda"], branch)
    mig = drivers["mig"]
    return {
        "machine": machine["name"],
        "driver_version": version,
        "driver_branch": drivers["names"].get(version, f"r{branch}_00"),
        "nvml_version": f"{cuda // 1000}.{version}",
        "gsp_firmware_version": version if branch >= 510 else "",
        "cuda_version": cuda,
        "gpu_count": len(machine["gpus"]),
        "driver_loaded": 1,
        "epoch": 1,
        "gpu_instance_ids": _gpu_instance_ids(tables, mig["other_gpu_instance_ids"]),
        "gpu_instance_enums": _since(mig["gpu_instance_enums"], branch),
        "compute_instance_enums": _since(mig["compute_instance_enums"], branch),
        "mig_query_needs_mode": int(branch < mig["query_without_mode"]),
        "mig_3g_beside_4g": int(branch >= mig["three_beside_four"]),
        "mig_uuid_names_parent": int(branch < mig["own_uuids"]),
        "cc_gpu_capabilities": int(any(model["architecture"] >= HOPPER for model in models)),
        **machine.get("set", {}),
    }


def _gpu_fields(machine: Tree, index: int, place: Tree, model: Tree) -> Tree:
    seed = f"{machine['name']}/{index}"
    try:
        domain, bus, device = (int(part, 16) for part in place["pci"].split(".")[0].split(":"))
    except (KeyError, ValueError):
        raise SimulatorError(f"GPU {index} has no pci address such as 0000:07:00.0") from None
    node = place.get("node")
    cpus = machine.get("nodes", {})
    socket: List[int] = next((nodes for nodes in machine.get("sockets", []) if node in nodes), [])
    watts, clocks, pcie, links = model["power_watts"], model["graphics_clocks"], model["pcie"], model["nvlinks"]
    active = model.get("nvlinks_active", 1)
    fabric = bool(machine.get("fabric"))
    rack = model["pci_device_id"] in RACK_DEVICES
    major, minor = model["compute"].split(".")
    shutdown, slowdown, memory_max, gpu_max = model["temperatures"]
    same = ("name", "cores", "architecture", "pci_device_id", "pci_subsystem_id", "vbios_version", "inforom_image")
    also = ("inforom_ecc", "board_part_number", "memory_mib", "memory_bus_width", "bar1_mib")
    return {
        **{name: model[name] for name in (*same, *also)},
        "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, 'gpu/' + seed)}",
        "serial": f"165{zlib.crc32(seed.encode()):010d}",
        "inforom_oem": "2.1",
        "inforom_power": "",
        "inforom_checksum": zlib.crc32(f"inforom/{seed}".encode()),
        "minor_number": index,
        "module_id": index + 1,
        "board_id": domain << 16 | bus << 8 | device,
        "brand": 14,
        "compute_major": major,
        "compute_minor": minor,
        "memory_reserved_kib": model["memory_reserved_mib"] * 1024,
        "memory_used_mib": 4,
        "bar1_used_kib": 1024,
        "pci_domain": domain,
        "pci_bus": bus,
        "pci_device": device,
        "pci_base_class": 3,
        "pci_sub_class": 2,
        "pci_switch": place.get("switch"),
        "pci_root": place.get("root"),
        "irq": 120 + index,
        "pcie_generation": pcie[0],
        "pcie_generation_max": pcie[0],
        "pcie_generation_gpu_max": pcie[2],
        "pcie_width": pcie[1],
        "pcie_width_max": pcie[1],
        "cpu_node": node,
        "cpu_nodes_of_socket": ",".join(map(str, socket)),
        "cpus": cpus.get(str(node), ""),
        "cpus_of_socket": ",".join(cpus.get(str(near), "") for near in socket),
        "gpu_node": place.get("gpu_node"),
        "addressing_mode": 0,
        "c2c_enabled": 0 if model["architecture"] >= HOPPER else None,
        "generation": 1,
        "ecc": 1,
        "ecc_pending": 1,
        "ecc_default": 1,
        "power_limit": watts[1] * 1000,
        "power_limit_default": watts[1] * 1000,
        "power_limit_min": watts[0] * 1000,
        "power_limit_max": watts[2] * 1000,
        "power_usage": model["idle_watts"] * 1000 + index * 137,
        "energy": 86400 * model["idle_watts"] * 1000,
        "graphics_clock_min": clocks[0],
        "graphics_clock_max": clocks[1],
        "graphics_clock_step": 15,
        "video_clock_min": None,
        "video_clock_max": model["video_clock_max"],
        "memory_clocks": model["memory_clocks"],
        "locked_graphics_min": None,
        "locked_graphics_max": None,
        "locked_memory_min": None,
        "locked_memory_max": None,
        "clocks_event_reasons_supported": 0x1FF,
        "temperature": 28 + index,
        "temperature_memory": 36 + index,
        "temperature_shutdown": shutdown,
        "temperature_slowdown": slowdown,
        "temperature_memory_max": memory_max,
        "temperature_gpu_max": gpu_max,
        "remap_banks_max": model["remap_banks"],
        # Row remapping took the place of page retirement with Ampere.
        "retired_single": None,
        "retired_double": None,
        "retired_pending": None,
        "nvlink_version": links[1],
        "nvlink_speed": links[2],
        "nvlink_remote": links[3],
        "nvlink_count": links[0],
        "nvlink_state": [active] * links[0],
        "nvlink_replay_errors": [0] * links[0],
        "nvlink_recovery_errors": [0] * links[0],
        "nvlink_crc_errors": [0] * links[0],
        "fabric_state": 3 if fabric else 0,
        "fabric_clique": 0,
        "fabric_health_mask": 0x1AA if fabric else 0,
        "fabric_health_summary": int(fabric),
        # One machine has a fabric of its own, and no cluster: there the UUID is all zero.
        "fabric_cluster_uuid": uuid.uuid5(uuid.NAMESPACE_OID, "fabric/" + machine["name"]) if fabric and rack else "",
        "swap_halves": int(bool(place.get("swap_halves"))),
    }


def _compute_profiles(tables: Tree) -> List[Tree]:
    profiles = []
    for of_slices, entries in sorted(tables["ci_profiles_by_gi_compute_slices"].items()):
        for entry in entries:
            profiles.append(
                {
                    "slices": entry["compute_slices"],
                    "of_slices": int(of_slices),
                    "id": entry["profile_id"],
                    "nvml_enum": entry["nvml_enum"],
                    "max_instances": entry["max_instances"],
                    "starts": [placement["start"] for placement in entry["placements"]],
                }
            )
    return profiles


def _version(text: str) -> Tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _profiles(tables: Tree, table: Tree, branch: int, rules: Tree) -> List[Tree]:
    """The GPU instance profiles which this driver offers, with the names and sizes it gives them."""
    first, last = rules["other_names"].get(table["key"], [0, 0])
    renamed = table.get("names_other_drivers", {}) if first <= branch < last else {}
    profiles = []
    for entry in table["profiles"]:
        double = entry["nvml_enum"] == 9
        if branch < rules["media_extensions"] and "me" in entry["attributes"]:
            continue
        if branch < rules["double_memory"] and (double or entry["nvml_enum"] == 8):
            continue
        name = renamed.get(entry["name"], [entry["name"]])[0]
        memory = entry["memory_mib"]
        if renamed and entry.get("memory_mib_other_drivers"):
            memory = entry["memory_mib_other_drivers"][0]
        profiles.append(
            {
                "name": name,
                "attributes": "".join(entry["attributes"]),
                "id": entry["profile_id"],
                "nvml_enum": entry["nvml_enum"],
                "compute_slices": entry["compute_slices"],
                "memory_slices": entry["memory_slices"],
                "max_instances": entry["max_instances"],
                "memory_mib": memory,
                "multiprocessors": entry["multiprocessors"],
                "copy_engines": entry["copy_engines"],
                "decoders": entry["decoders"],
                "encoders": entry["encoders"],
                "jpeg": entry["jpeg"],
                "ofa": entry["ofa"],
                "p2p": entry["p2p"],
                "starts": [placement["start"] for placement in entry["placements"]],
                "default_order": _default_order(tables["gi_default_allocation"], table, entry),
            }
        )
    return profiles


def _default_order(rules: Tree, table: Tree, entry: Tree) -> List[int]:
    """The starts in the order in which the driver tries them (seen on 8 memory slices; ascending on 4)."""
    starts = [placement["start"] for placement in entry["placements"]]
    if table["memory_slices"] != 8:
        return starts
    if entry["memory_slices"] == 1:
        order: List[int] = rules["one_slice_start_order"]
        return order
    if entry["compute_slices"] == 1:  # twice the memory: the same order, where it can start
        return [start for start in rules["one_slice_start_order"] if start in starts]
    first = {2: rules["first_2g_start"], 4: rules["first_3g_start"]}.get(entry["memory_slices"], 0)
    return sorted(starts, key=lambda start: (start != first, start))


# ---- from the lines of a state to a description


def _tree(text: str) -> Tree:
    tree: Tree = {}
    before, place = "", tree
    for line in text.splitlines():
        path, value = line.split("=", 1)
        parents, _dot, name = path.rpartition(".")
        if parents != before:  # most lines are of the same thing as the one before
            before, place = parents, tree
            for parent in parents.split("."):
                place = place.setdefault(parent, {})
        place[name] = int(value) if value.isdecimal() else _value(value)
    return tree


def _value(text: str) -> Any:
    if text.startswith("["):
        return [_value(item) for item in text[1:-1].split(",") if item]
    if text.startswith('"'):
        return text[1:-1]
    return None if text == "none" else int(text)


def _elements(tree: Tree, name: str) -> List[Tree]:
    return [{**element, "index": int(index)} for index, element in tree.get(name, {}).items()]


def _gpu(gpu: Tree, tree: Tree) -> Tree:
    profiles = _elements(gpu, "profile")
    instances = [_instance(instance, profiles, tree) for instance in _elements(gpu, "instance")]
    flat = {name: value for name, value in gpu.items() if name not in ("profile", "instance")}
    return {**flat, "pci_bus_id": _bus_id(gpu), "profiles": profiles, "instances": instances}


def _instance(instance: Tree, profiles: List[Tree], tree: Tree) -> Tree:
    profile = profiles[instance["profile"]]
    computes = []
    for compute in _elements(instance, "compute"):
        kind = tree["compute_profile"][str(compute["profile"])]
        spans = kind["slices"] == profile["compute_slices"]
        computes.append(
            {
                "id": compute["index"],
                "profile": profile["name"] if spans else f"{kind['slices']}c.{profile['name']}",
                "profile_id": kind["id"],
                "placement": {"start": compute["start"], "size": kind["slices"]},
                "mig_index": compute["mig_index"],
                "uuid": compute["uuid"],
            }
        )
    return {
        "id": instance["index"],
        "profile": profile["name"],
        "profile_id": profile["id"],
        "placement": {"start": instance["start"], "size": profile["memory_slices"]},
        "compute_instances": computes,
    }


def _bus_id(gpu: Tree) -> str:
    """As NVML writes it."""
    return f"{gpu['pci_domain']:08X}:{gpu['pci_bus']:02X}:{gpu['pci_device']:02X}.0"


def _bus(text: str) -> Optional[Tuple[int, ...]]:
    found = re.fullmatch(r"(?:([0-9a-fA-F]+):)?([0-9a-fA-F]+):([0-9a-fA-F]+)\.([0-9a-fA-F]+)", text)
    return tuple(int(part or "0", 16) for part in found.groups()) if found else None


# ---- the command line


def _mode(value: Optional[int]) -> str:
    return {None: "none", 0: "off", 1: "on"}[value]


def _print_description(state: Tree) -> None:
    system = state["system"]
    loaded = "" if system["driver_loaded"] else ", not loaded"
    print(f"{system['machine']}: driver {system['driver_version']}{loaded}, CUDA {system['cuda_version']}")
    for gpu in state["gpus"]:
        print(f"GPU {gpu['index']}: {gpu['name']} {gpu['pci_bus_id']} {gpu['uuid']}{' (lost)' if gpu['lost'] else ''}")
        held = f" (daemon {gpu['daemon_pid']})" if gpu["daemon_pid"] else ""
        limit = f"{gpu['power_limit'] / 1000:g} of {gpu['power_limit_max'] / 1000:g} W"
        persistence = f"persistence {_mode(gpu['persistence'])}{held}"
        print(f"  {persistence}, power limit {limit}, compute mode {gpu['compute_mode']}")
        for name in ("graphics", "memory"):
            if gpu[f"locked_{name}_min"] is not None:
                print(f"  {name} clocks locked to {gpu[f'locked_{name}_min']}-{gpu[f'locked_{name}_max']} MHz")
        for name, label in (("ecc", "ECC"), ("mig", "MIG")):
            pending = f", pending {_mode(gpu[name + '_pending'])}" if gpu[name] != gpu[name + "_pending"] else ""
            print(f"  {label} {_mode(gpu[name])}{pending}")
        for instance in gpu["instances"]:
            place = instance["placement"]
            print(f"  GPU instance {instance['id']}: {instance['profile']} at {place['start']}:{place['size']}")
            for compute in instance["compute_instances"]:
                place = compute["placement"]
                where = f"at {place['start']}:{place['size']}, MIG device {compute['mig_index']} {compute['uuid']}"
                print(f"    compute instance {compute['id']}: {compute['profile']} {where}")
    for client in state["clients"]:
        places = [f"GPU {'all' if client['gpu'] is None else client['gpu']}"]
        places += [f"{name} {client[key]}" for name, key in _INSTANCE_KEYS if client[key] is not None]
        print(f"client {client['id']}: {client['name']} (pid {client['pid']}, {client['kind']}) on {', '.join(places)}")
    for fault in state["faults"]:
        print(f"fault: {fault['symbol']} {fault['kind']}s {_extent(fault)}")


def _extent(fault: Tree) -> str:
    if fault["kind"] == "hang":
        return f"for {fault['milliseconds'] / 1000:g} s" if fault["milliseconds"] else "for ever"
    if fault["kind"] == "kill":
        who = "the group of who makes it" if fault["group"] else "who makes it"
        return f"{who}, {'after' if fault['late'] else 'before'} the change, after {fault['skip']} others"
    extent = f"with {fault['code']}"
    if fault["skip"]:
        extent += f", after {fault['skip']} calls"
    return f"{extent}, {fault['remaining']} times more" if fault["remaining"] else extent


_INSTANCE_KEYS = (("GPU instance", "gpu_instance"), ("compute instance", "compute_instance"))


class _Parser(argparse.ArgumentParser):
    """Wrong use ends with 1, as every other refusal."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"{self.prog}: {message}\n")


def _number(text: str) -> int:
    if not re.fullmatch(r"\d+", text) or int(text) > LARGEST:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to {LARGEST}")
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) * 1000 > LARGEST:
        raise argparse.ArgumentTypeError(f"{text} is not a time from 0 to {LARGEST // 1000}")
    return float(text)


FAIL_WORDS = "an NVML function, any-change or gpu-reset; a number or NVML_ERROR_ name; calls, 0: for ever (default 1)"


@functools.cache
def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="nvml-sim", description="Drive the simulated machine that libnvidia-ml.so.1 shows.")
    parser.add_argument("--state", help=f"the state file (default: NVML_SIM_STATE, else {DEFAULT_STATE})")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, help: str, *arguments: Tuple[str, Tree], usage: Optional[str] = None) -> None:
        one = verbs.add_parser(name, help=help, description=help, usage=usage)
        for argument, options in arguments:
            one.add_argument(argument, **options)

    gpu: Tuple[str, Tree] = ("gpu", {"metavar": "GPU", "help": "index, UUID or PCI bus id"})
    symbol: Tuple[str, Tree] = ("symbol", {"metavar": "SYMBOL", "help": "an NVML function"})
    number: Tree = {"type": _number}
    place: Tuple[Tuple[str, Tree], ...] = (
        ("--gi", {**number, "help": "GPU instance id"}),
        ("--ci", {**number, "help": "compute instance id"}),
    )
    verb(
        "create",
        "make the state file",
        ("machine", {"metavar": "MACHINE", "help": "a shipped name (see machines) or a .json file"}),
        ("--driver", {"help": "another driver version, such as 550.54.15"}),
        ("--force", {"action": "store_true", "help": "replace a state that exists"}),
    )
    verb("describe", "show the state", ("--json", {"action": "store_true"}))
    verb("reset", "reset GPUs (all when none is named)", ("gpus", {"nargs": "*", "metavar": "GPU"}))
    for name, help in (
        ("reload-driver", "unload and load the driver"),
        ("unload-driver", "unload the driver"),
        ("load-driver", "load the driver"),
        ("reboot", "restart the machine: every client ends"),
        ("machines", "list the shipped machines"),
    ):
        verb(name, help)
    verb(
        "add-client",
        "put a process on a GPU; prints the client's id",
        gpu,
        *place,
        ("--name", {"default": "client"}),
        ("--pid", {**number, "help": "of a living process: the client ends with it"}),
        ("--kind", {"choices": KINDS, "default": "compute"}),
        ("--memory", {**number, "default": 0, "metavar": "MIB"}),
    )
    verb(
        "remove-client",
        "end a client",
        ("id", {"nargs": "?", "type": _number, "metavar": "ID"}),
        ("--all", {"action": "store_true", "help": "every one that was added"}),
    )
    verb(
        "fail",
        "let a function fail, or the N-th change from now, whatever makes it",
        ("words", {"nargs": "+", "metavar": "WORD", "help": FAIL_WORDS}),
        ("--after", {**number, "default": 0, "metavar": "N", "help": "calls that pass first (default 0)"}),
        ("--nth-change", {**number, "metavar": "N", "help": "in the place of a symbol and a count: once, from 1"}),
        usage="nvml-sim fail [--after N] SYMBOL CODE [COUNT]\n       nvml-sim fail --nth-change N CODE",
    )
    verb(
        "kill-at-change",
        "kill the process that makes the N-th change from now",
        ("number", {**number, "metavar": "N", "help": "from 1"}),
        ("--after-it", {"action": "store_true", "help": "after the change (default: before it)"}),
        ("--group", {"action": "store_true", "help": "its process group (default: that process)"}),
    )
    verb(
        "hold",
        "be a job on a GPU, until a signal",
        gpu,
        *place,
        ("--name", {"default": "job"}),
        ("--kind", {"choices": KINDS, "default": "compute"}),
        ("--memory", {**number, "default": 0, "metavar": "MIB"}),
    )
    verb(
        "hang",
        "let a function hang",
        symbol,
        (
            "seconds",
            {"nargs": "?", "type": _seconds, "default": 0.0, "metavar": "SECONDS", "help": "default: for ever"},
        ),
    )
    verb("heal", "remove faults", ("symbol", {"nargs": "?", "metavar": "SYMBOL"}))
    verb("hide", "let a function be missing, as in an older driver's library", symbol)
    verb("lose", "let a GPU fall off the bus", gpu)
    verb("find", "bring a lost GPU back", gpu)
    verb(
        "mismatch",
        "let the library be newer than the driver",
        ("mode", {"nargs": "?", "choices": ("on", "off"), "default": "on"}),
    )
    verb(
        "set",
        "change readings and other fields (see describe --json)",
        ("gpu", {"metavar": "GPU", "help": "index, UUID, PCI bus id, all, or system"}),
        ("changes", {"nargs": "+", "metavar": "KEY=VALUE"}),
    )
    verb(
        "daemon-hold",
        "let the persistence daemon hold a GPU",
        gpu,
        ("--pid", {**number, "required": True, "help": "of the daemon"}),
    )
    verb("daemon-release", "let the persistence daemon release a GPU", gpu)
    verb(
        "log",
        "show the calls",
        ("--clear", {"action": "store_true", "help": "forget them"}),
        ("--json", {"action": "store_true"}),
        ("--changes", {"action": "store_true", "help": "only those that change state"}),
    )
    return parser


def _run(simulator: Simulator, options: argparse.Namespace) -> None:
    verb = options.verb
    if verb == "create":
        simulator.create(options.machine, driver=options.driver, force=options.force)
    elif verb == "machines":
        for name in machine_names():
            print(f"{name:20} {load_machine(name).get('description', '')}")
    elif verb == "describe":
        state = simulator.describe()
        if options.json:
            print(json.dumps(state, indent=2))
        else:
            _print_description(state)
    elif verb == "reset":
        simulator.reset(*options.gpus)
    elif verb == "add-client":
        print(
            simulator.add_client(
                options.gpu,
                gi=options.gi,
                ci=options.ci,
                name=options.name,
                pid=options.pid,
                kind=options.kind,
                memory=options.memory,
            )
        )
    elif verb == "remove-client":
        if (options.id is None) != options.all:
            raise SimulatorError("remove-client takes an ID or --all")
        simulator.control("remove-client", "all" if options.all else options.id)
    elif verb == "fail":
        _fail(simulator, options.words, after=options.after, change=options.nth_change)
    elif verb == "kill-at-change":
        number = _change_number(options.number)
        simulator.kill_at_change(number, after_it=options.after_it, group=options.group)
    elif verb == "hold":
        _hold(simulator, options)
    elif verb == "hang":
        simulator.fault("hang", options.symbol, seconds=options.seconds)
    elif verb == "hide":
        simulator.fault("hide", options.symbol, code=ERRORS.index("FUNCTION_NOT_FOUND"))
    elif verb == "heal":
        simulator.heal(options.symbol)
    elif verb in ("lose", "find"):
        simulator.set(options.gpu, [f"lost={int(verb == 'lose')}"])
    elif verb == "mismatch":
        simulator.set("system", [f"version_mismatch={int(options.mode == 'on')}"])
    elif verb == "set":
        simulator.set(options.gpu, options.changes)
    elif verb == "daemon-hold":
        simulator.daemon_hold(options.gpu, options.pid)
    elif verb == "daemon-release":
        simulator.daemon_release(options.gpu)
    elif verb == "log":
        _log(simulator, options)
    else:
        simulator.control(verb)


def _change_number(number: int) -> int:
    if number < 1:
        raise SimulatorError("changes are counted from 1")
    return number


def _fail(simulator: Simulator, words: List[str], *, after: int, change: Optional[int]) -> None:
    if change is not None:
        if len(words) != 1 or after:
            raise SimulatorError("fail --nth-change N takes a CODE and nothing else")
        simulator.fault("fail", ANY_CHANGE, code=error_code(words[0]), after=_change_number(change) - 1, count=1)
        return
    if not 2 <= len(words) <= 3:
        raise SimulatorError("fail takes a SYMBOL, a CODE and perhaps a COUNT")
    try:
        count = _number(words[2]) if len(words) == 3 else 1
    except argparse.ArgumentTypeError as error:
        raise SimulatorError(f"argument COUNT: {error}") from None
    simulator.fault("fail", words[0], code=error_code(words[1]), after=after, count=count)


def _hold(simulator: Simulator, options: argparse.Namespace) -> None:
    """Be a client of the driver, with its device files open, until a signal."""
    ends = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    client = simulator.add_client(
        options.gpu,
        gi=options.gi,
        ci=options.ci,
        name=options.name,
        pid=os.getpid(),
        kind=options.kind,
        memory=options.memory,
    )
    minor = simulator.describe()["gpus"][simulator.gpu(options.gpu)]["minor_number"]
    for name in ("nvidiactl", "nvidia-uvm", f"nvidia{minor}"):
        open_device(name)
    print(client, flush=True)
    signal.sigwait(ends)
    simulator.control("remove-client", client)


def _log(simulator: Simulator, options: argparse.Namespace) -> None:
    if options.clear:
        simulator.control("clear-log")
        return
    entries = simulator.log(changes=options.changes)
    if options.json:
        print(json.dumps(entries, indent=2))
        return
    for entry in entries:
        gpu = "-" if entry["gpu"] is None else entry["gpu"]
        print(f"{entry['sequence']:>8} {entry['pid']:>8} {gpu:>2} {entry['result']:>3} {entry['symbol']}")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The exit code: 0, or 1 with the reason on stderr."""
    options = _parser().parse_args(arguments)
    try:
        _run(Simulator(options.state), options)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (SimulatorError, OSError) as error:
        print(f"nvml-sim: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
