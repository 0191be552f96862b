# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with a stand-in of DCGM, since DCGM itself is not to be had where the tests run.

It behaves as the sources of DCGM 3.3.9 and 4.6.0 and of dcgm-exporter 3.3.9-3.6.1 and 4.5.3-4.8.2 say: the watches are
in the memory of the host engine, the exporter reads its file once and ends at a name that its generation does not know,
and shows nothing of what its GPUs do not have. systemd starts a unit as it has read it.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd, unit_command
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.dcgm import command_line, metrics, names
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.dcgm.concern import CONCERN
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedFiles
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, FakeHost, build

DATA = Path(__file__).parent / "data"
ETC, LIB = "/etc/systemd/system", "/usr/lib/systemd/system"
ENGINE, TWIN, EXPORTER = "nvidia-dcgm.service", "dcgm.service", "nvidia-dcgm-exporter.service"
HEALTH = "gpufleet-dcgm-health.service"
HEALTH_FILE = f"{ETC}/{HEALTH}"
DROP_IN = f"{ETC}/{EXPORTER}.d/99-gpufleet-dcgm.conf"
COUNTERS = "/etc/dcgm-exporter/gpufleet-counters.csv"
SHIPPED = "/etc/dcgm-exporter/default-counters.csv"
HOST_ENGINE = "/usr/bin/nv-hostengine -n --service-account nvidia-dcgm"
PORT = "127.0.0.1:9400"
# As their packages have them.
ENGINE_UNIT = (
    "[Unit]\nDescription=NVIDIA DCGM service\n{more}After=nvidia-gpu-reset.target\nWants=nvidia-gpu-reset.target\n"
    f"[Service]\nUser=root\nExecStart={HOST_ENGINE}\nRestart=on-abort\n"
    "[Install]\n{alias}WantedBy=multi-user.target\n"
)
EXPORTER_UNIT = (
    f"[Unit]\nDescription=NVIDIA DCGM-exporter service\nWants={ENGINE}\nAfter={ENGINE}\n"
    f"[Service]\nUser=root\nExecStart=/usr/bin/dcgm-exporter -f {SHIPPED}\nRestart=on-abort\n"
    "[Install]\nWantedBy=multi-user.target\n"
)
# The order and the names of dcgmi health --fetch.
TAGS = ("PCIe", "NVLINK", "Memory", "SM", "InfoROM", "Thermal", "Power", "Driver", "NvSwitch NF", "NvSwitch F")
FLAGS = {"p": ("PCIe",), "m": ("Memory",), "i": ("InfoROM",), "t": ("Thermal", "Power"), "n": ("NVLINK",)}
PIDS = {ENGINE: 4100, TWIN: 4150, EXPORTER: 4200, "dcgm-exporter.service": 4250}
# A PCIe board: no NVLink.
NOT_HAD = ("NVLINK",)


def counters_of(generation: int) -> str:
    return (DATA / f"default-counters-{generation}.csv").read_text()


def files_of(generation: int = 4) -> Dict[str, str]:
    """A machine with the host engine and the exporter, as their packages leave it: neither runs, nor will at boot."""
    release = {3: "3.3.9", 4: "4.5.3"}[generation]
    files = {
        f"{LIB}/{ENGINE}": ENGINE_UNIT.format(
            more="Conflicts=dcgm.service\n" if generation == 3 else "",
            alias="" if generation == 3 else "Alias=dcgm.service\n",
        ),
        f"{LIB}/{EXPORTER}": EXPORTER_UNIT,
        f"/usr/lib/x86_64-linux-gnu/libdcgm.so.{release}": "",
        SHIPPED: counters_of(generation),
        "/usr/bin/dcgm-exporter": "",
        "/run/systemd/system/.keep": "",
        f"{ETC}/.keep": "",
        "/run/proc/net/tcp": "  sl  local_address rem_address   st\n",
        "/var/lib/dpkg/status": "",
    }
    if generation == 3:
        files[f"{LIB}/{TWIN}"] = ENGINE_UNIT.format(more=f"Conflicts={ENGINE}\n", alias="")
    return files


class Dcgm:
    """systemd, dcgmi, the host engine and the exporter of a machine, and what each of them has in its memory.

    ``asks`` lets the exporter ask for a password, and ``gpus_lack`` are words of metrics that it has no value of.
    """

    def __init__(self, host: FakeHost, generation: int = 4, proc: str = "/run/proc") -> None:
        # What the machine may read, whatever we may.
        self._files = RecordedFiles(host.files.root)
        self.generation = generation
        self._proc = proc
        self.active: Set[str] = set()
        self.failed: Set[str] = set()
        self.loaded: Dict[str, Tuple[Tuple[str, str], ...]] = {}
        self.watches: Set[str] = set()
        self.served: Dict[str, str] = {}
        self.started: Dict[str, float] = {}
        self.starts: List[str] = []
        self.stops: List[str] = []
        self.asks = False
        self.mute = False
        self.gpus_lack: Sequence[str] = NOT_HAD
        self._boot = time.time() - 100_000.0
        host.commands.programs["systemctl"] = self
        host.commands.programs["dcgmi"] = self._dcgmi
        host.http_get = self.http_get  # type: ignore[method-assign]
        self._read = host.files.read
        host.files.read = self._with_uptime  # type: ignore[method-assign]

    # --- systemd ---

    def __call__(self, argv: Sequence[str]) -> Completed:
        words = [word for word in argv[1:] if not word.startswith("--")]
        verb, units = words[0], words[1:]
        if verb == "show":
            return Completed(0, "\n".join(self._shown(unit) for unit in units), "")
        if verb == "daemon-reload":
            self.loaded = {unit: self._sources(unit) for unit in self.loaded}
            return Completed(0, "", "")
        for unit in units:
            said = getattr(self, f"_{verb.replace('-', '_')}")(unit)
            if said:
                return Completed(1, "", f"{said}\n")
        return Completed(0, "", "")

    def _sources(self, unit: str) -> Tuple[Tuple[str, str], ...]:
        paths = systemd.sources(self._files, unit)
        return tuple((path, self._files.read_optional(path) or "") for path in paths)

    def _load(self, unit: str) -> Tuple[Tuple[str, str], ...]:
        if not self.loaded.get(unit):
            self.loaded[unit] = self._sources(unit)
        return self.loaded[unit]

    def _shown(self, unit: str) -> str:
        name = self._real(unit)
        known = self.loaded.get(name)
        stale = bool(known) and known != self._sources(name)
        drop_ins = " ".join(path for path, _text in known or () if path.endswith(".conf"))
        if not known:
            drop_ins = " ".join(path for path in systemd.sources(self._files, name) if path.endswith(".conf"))
        state = "active" if name in self.active else "failed" if name in self.failed else "inactive"
        pid = PIDS.get(name, 0) if name in self.active else 0
        load = "loaded" if systemd.sources(self._files, name) else "not-found"
        return (
            f"Id={name}\nLoadState={load}\nActiveState={state}\nMainPID={pid}\n"
            f"NeedDaemonReload={'yes' if stale else 'no'}\nDropInPaths={drop_ins}\n"
        )

    def _real(self, unit: str) -> str:
        return systemd.UnitFiles(self._files).real_name(unit)

    def _values(self, unit: str, key: str) -> List[str]:
        found: List[str] = []
        for _path, text in self._load(unit):
            for name, value in systemd.assignments(text):
                if name == key:
                    found = [*found, value] if value else []
        return found

    def _enable(self, unit: str) -> str:
        for target in self._values(unit, "Install.WantedBy"):
            folder = self._place(f"{ETC}/{target}.wants")
            folder.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(folder / unit):
                (folder / unit).symlink_to(systemd.sources(self._files, unit)[0])
        return ""

    def _disable(self, unit: str) -> str:
        if not systemd.sources(self._files, unit):
            return f"Unit {unit} does not exist"
        for folder in self._place(ETC).glob("*.wants"):
            if os.path.lexists(folder / unit):
                (folder / unit).unlink()
            if not list(folder.iterdir()):
                folder.rmdir()
        return ""

    def _start(self, unit: str) -> str:
        if unit in self.active:
            return ""
        lines = self._values(unit, "Service.ExecStart")
        if not lines:
            return f"Failed to start {unit}: Unit {unit} not found."
        self.starts.append(unit)
        for other in [name for value in self._values(unit, "Unit.Conflicts") for name in value.split()]:
            self._stop(other)
        self.failed.discard(unit)
        words = unit_command.split(lines[-1])
        program = os.path.basename(words[0])
        if program == "sh":
            return self._run_health(unit, words[-1])
        self.started[unit] = time.time()
        self.active.add(unit)
        self._process(unit, program, words)
        if program == "dcgm-exporter" and not self._read_counters(unit, words):
            self._end(unit)
            self.failed.add(unit)
        for wanted in self._files.names(f"{ETC}/{unit}.wants"):
            self._start(wanted)
        return ""

    def _reset_failed(self, unit: str) -> str:
        self.failed.discard(unit)
        return ""

    def _stop(self, unit: str) -> str:
        if unit in self.active:
            self.stops.append(unit)
            for other in [name for name in self.active if unit in self._values(name, "Unit.PartOf")]:
                self.active.discard(other)
            self._end(unit)
        return ""

    def _restart(self, unit: str) -> str:
        parts = [name for name in self.active if unit in self._values(name, "Unit.PartOf")]
        self._stop(unit)
        said = self._start(unit)
        for name in parts:
            self._start(name)
        return said

    def _end(self, unit: str) -> None:
        self.active.discard(unit)
        if unit in (ENGINE, TWIN):
            self.watches.clear()
        if unit in PIDS:
            shutil.rmtree(self._place(f"{self._proc}/{PIDS[unit]}"), ignore_errors=True)

    # --- processes ---

    def _place(self, path: str) -> Path:
        return Path(f"{self._files.root}{path}")

    def _with_uptime(self, path: str) -> str:
        return f"{time.time() - self._boot:.2f} 0.00\n" if path == "/proc/uptime" else self._read(path)

    def _process(self, unit: str, program: str, words: Sequence[str]) -> None:
        folder = self._place(f"{self._proc}/{PIDS[unit]}")
        folder.mkdir(parents=True, exist_ok=True)
        ticks = int((self.started[unit] - self._boot) * 100)
        (folder / "comm").write_text(f"{program[:15]}\n")
        (folder / "status").write_text(STATUS_OF_ROOT)
        (folder / "cmdline").write_text("".join(f"{word}\0" for word in words))
        (folder / "cgroup").write_text(f"0::/system.slice/{unit}\n")
        (folder / "stat").write_text(f"{PIDS[unit]} ({program[:15]}) S 1 {' '.join(['0'] * 17)} {ticks} 0 0\n")

    # --- DCGM ---

    def _run_health(self, unit: str, loop: str) -> str:
        flags = loop.partition("health -s ")[2].partition(";")[0]
        said = self._dcgmi(["dcgmi", "health", "-s", flags])
        if said.status:
            self.failed.add(unit)
            return f"Job for {unit} failed because the control process exited with error code."
        self.active.add(unit)
        return ""

    def _dcgmi(self, argv: Sequence[str]) -> Completed:
        if not self.active & {ENGINE, TWIN}:
            said = "Error: unable to establish a connection to the specified host: localhost\n"
            return Completed(255, said, "")
        words = list(argv[2:])
        if words[0] in ("-f", "--fetch"):
            if self.mute:
                return Completed(255, "Error: Unable to get health watches. Return: Timeout\n", "")
            line = "+-----------------+--------------------------------------------------------------------+\n"
            rows = "".join(f"| {tag:<15} | {'On' if tag in self.watches else 'Off':<66} |\n" for tag in TAGS)
            return Completed(0, f"Health monitor systems report\n{line}{rows}{line}", "")
        self.watches.clear()
        if words[0] in ("-s", "--set"):
            wanted = "pmint" if words[1] == "a" else words[1]
            for flag in wanted:
                if flag not in FLAGS:
                    return Completed(255, "", "PARSE ERROR: Argument: set\nInvalid flags detected\n")
                self.watches.update(FLAGS[flag])
        return Completed(0, "Health monitor systems set successfully.\n", "")

    def _read_counters(self, unit: str, words: Sequence[str]) -> bool:
        """Whether the exporter goes on after its file: it ends at two forms of an option, and at unknown fields."""
        forms = [word.partition("=")[0].lstrip("-") for word in words if word.startswith("-")]
        if "f" in forms and "collectors" in forms:
            return False
        path = command_line.option(words, "counters") or SHIPPED
        text = self._files.read_optional(path)
        if text is None:
            return False
        found = metrics.parse(text)
        for name in found:
            if str(self.generation) not in names.generations(name).partition(".")[0]:
                return False
        self.served = {
            name: metric.type
            for name, metric in found.items()
            if metric.type != "label"
            and not name.startswith("DCGM_EXP_")
            and not any(word in name for word in self.gpus_lack)
        }
        return True

    def http_get(self, socket: str, target: str) -> str:
        assert target == "/metrics", target
        if not self.active & {EXPORTER, "dcgm-exporter.service"} or socket != PORT:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED), socket)
        if self.asks:
            raise OSError(errno.EPROTO, "status 401 Unauthorized: Unauthorized", socket)
        return "".join(_shown_metric(name, kind) for name, kind in self.served.items())

    # --- for tests ---

    def run(self, *units: str, age: float = 60.0) -> None:
        """Let units run since then."""
        for unit in units:
            self._start(unit)
            if unit in PIDS:
                self.grow_old(unit, age)
        self.starts.clear()

    def grow_old(self, unit: str, age: float) -> None:
        self.started[unit] = time.time() - age
        words = (self._place(f"{self._proc}/{PIDS[unit]}/cmdline")).read_text().split("\0")[:-1]
        self._process(unit, os.path.basename(words[0]), words)

    def state(self) -> Any:
        """What of it lies outside of the tree, and is to be as it was."""
        return sorted(self.active - {HEALTH}), sorted(self.watches), sorted(self.served)

    def memory(self) -> Any:
        """All of it, for ``remember``."""
        return (
            *(set(one) for one in (self.active, self.failed, self.watches)),
            *(dict(one) for one in (self.loaded, self.served, self.started)),
        )

    def remember(self, state: Any) -> None:
        active, failed, watches, loaded, served, started = state
        self.active, self.failed, self.watches = set(active), set(failed), set(watches)
        self.loaded, self.served, self.started = dict(loaded), dict(served), dict(started)


def _shown_metric(name: str, kind: str) -> str:
    return f'# HELP {name} Help.\n# TYPE {name} {kind}\n{name}{{gpu="0",UUID="GPU-0"}} 1\n'


def links_of(generation: int) -> Dict[str, str]:
    release = {3: "3.3.9", 4: "4.5.3"}[generation]
    return {
        f"/usr/lib/x86_64-linux-gnu/libdcgm.so.{generation}": f"libdcgm.so.{release}",
        "/proc": "/run/proc",
    }


def machine(root: Path, generation: int = 4, extra: Optional[Mapping[str, Optional[str]]] = None) -> FakeHost:
    files = {**files_of(generation), **(extra or {})}
    host = build(root, {path: text for path, text in files.items() if text is not None}, links_of(generation))
    Dcgm(host, generation)
    return host


def dcgm_of(host: FakeHost) -> Dcgm:
    found = host.commands.programs["systemctl"]
    assert isinstance(found, Dcgm)
    return found


ALL: Mapping[str, Any] = {"host_engine": True, "exporter": True, "health_watches": ["all"]}


def params(declared: Mapping[str, Any]) -> Dict[str, Any]:
    """Complete parameters, as argument validation would hand them over."""
    validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate(dict(declared))
    assert validated.error_messages == []
    found: Dict[str, Any] = validated.validated_parameters
    return found


def run(host: FakeHost, declared: Optional[Mapping[str, Any]] = None, *, check: bool = False, **more: Any) -> Outcome:
    """One run of the module. Raises ``GpuFleetError``, also what went wrong in the middle of it."""
    outcome = converge(CONCERN, params({**(ALL if declared is None else declared), **more}), host, check_mode=check)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def absent(host: FakeHost) -> Outcome:
    return run(host, {"state": "absent"})


def names_in(host: FakeHost) -> Iterator[str]:
    """The metrics in our file."""
    return iter(metrics.parse(host.files.read(COUNTERS)))
