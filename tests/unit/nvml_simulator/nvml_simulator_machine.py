# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines of the NVML simulator for tests: built once a session, a state file for each test, clients as processes.

The fixtures are in ``nvml_simulator_fixtures``, which a test module names in ``pytest_plugins``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from ctypes import byref, c_uint
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import pynvml as nvml
import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.nvml import LocalNvml
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.fork_server import (
    ForkServers,
    ServedNvml,
    answer_of,
    module_of,
    output_of,
    tool_of,
)

if TYPE_CHECKING:
    from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Commands

SOURCES = Path(__file__).resolve().parents[2] / "nvml_simulator"
LIBRARY = "libnvidia-ml.so.1"
SECONDS_OF_A_TEST = 300

Placement = Tuple[int, int]


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def forked(work: Callable[[], str]) -> Tuple[int, str]:
    """Call ``work`` in a child of this process: 0 and what it returned, or how the child ended and its traceback."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        gc.disable()  # it would copy every page of this process
        code, answer = 1, ""
        try:
            os.close(reader)
            signal.alarm(SECONDS_OF_A_TEST)
            code, answer = 0, work()
        except BaseException:
            answer = traceback.format_exc()
        finally:
            with os.fdopen(writer, "w") as stream:
                stream.write(answer)
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
        answer = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), answer


class Machine:
    """One simulated machine: its state file, the command line on it, and what its clients need to find it."""

    def __init__(self, built: Path, folder: Path, servers: Optional[ForkServers] = None) -> None:
        self.built = built
        self.state = folder / "state"
        self._servers = servers
        self.variables: Dict[str, str] = {
            "NVML_SIM_STATE": str(self.state),
            "NVML_SIM_PERSISTENCED": str(folder / "nvidia-persistenced" / "socket"),
            "NVML_SIM_EUID": "0",
            "NVML_SIM_DEV": str(folder / "dev"),
        }

    def environment(self, **more: str) -> Dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": str(self.built), **self.variables, **more}

    def run(self, *arguments: object) -> Done:
        """``nvml-sim ARGUMENTS`` as a process of its own, without the start of Python that costs more than all else."""
        return self._main("nvml_sim", arguments, {})

    def _main(self, module: str, arguments: Sequence[object], variables: Dict[str, str]) -> Done:
        words, variables = list(map(str, arguments)), {**self.variables, **variables}
        servers = self._servers_here()
        if servers is not None and (module != "nvml_sim" or "hold" in words):
            return Done(*servers.drivers.output_of_child(self.built, module, words, variables))
        if servers is not None:
            return Done(*servers.tool.output_of(self.built, module, words, variables))

        def work() -> str:
            os.environ.update(variables)
            return json.dumps(output_of(self.built, module, words))

        status, answer = forked(work)
        return Done(*json.loads(answer)) if status == 0 else Done(status, "", answer)

    def _servers_here(self) -> Optional[ForkServers]:
        """The fork servers, but in a child of the process that they serve."""
        return self._servers if self._servers is not None and self._servers.owner == os.getpid() else None

    def nvml(self, commands: Commands, *, patched: bool = False, **options: Any) -> LocalNvml:
        """The driver as a run of a module has it, by a process of its own. ``options`` are those of LocalNvml.

        patched: a test replaced code that runs in that process, which a child of a fork server does not have.
        """
        options = {"library": str(self.built / LIBRARY), **options}
        servers = None if patched else self._servers_here()
        return LocalNvml(commands, **options) if servers is None else ServedNvml(servers.drivers, commands, **options)

    def smi(self, *arguments: object, **variables: str) -> Done:
        """``nvidia-smi ARGUMENTS``, the simulator's stand-in for it, in the same way."""
        return self._main("nvidia_smi", arguments, variables)

    @contextlib.contextmanager
    def job(self, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """``nvml-sim hold ARGUMENTS`` meanwhile: a process that works on a GPU or an instance of it."""
        command = [sys.executable, "-S", str(self.built / "nvml_sim.py"), "hold", *map(str, arguments)]
        with subprocess.Popen(command, env=self.environment(), text=True, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline().strip().isdecimal(), "it holds the GPU"
            try:
                yield process
            finally:
                process.terminate()

    def tool(self, *arguments: object) -> str:
        """What the command printed."""
        done = self.run(*arguments)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout.strip()

    def refusal(self, *arguments: object) -> str:
        """Why the command refused."""
        done = self.run(*arguments)
        assert done.returncode == 1, (arguments, done.returncode, done.stdout, done.stderr)
        assert done.stdout == ""
        return done.stderr.strip()

    def describe(self) -> Dict[str, Any]:
        """What ``nvml-sim describe --json`` prints."""
        return dict(self._answer_of("describe"))

    def calls(self, *, changes: bool) -> List[Dict[str, Any]]:
        """What ``nvml-sim log --json`` prints, or with ``--changes`` besides."""
        return list(self._answer_of("log", changes=changes))

    def log(self) -> List[Dict[str, Any]]:
        return list(json.loads(self.tool("log", "--json")))

    def changes(self) -> List[Tuple[str, int]]:
        """The calls that change state: symbol and result, in order."""
        return [(call["symbol"], call["result"]) for call in json.loads(self.tool("log", "--changes", "--json"))]

    def _answer_of(self, question: str, **options: Any) -> Any:
        servers = self._servers_here()
        if servers is not None:
            return servers.tool.answer_of(self.built, str(self.state), question, **options)
        code, answer = forked(lambda: json.dumps(answer_of(self.built, str(self.state), question, **options)))
        assert code == 0, answer
        return json.loads(answer)

    def client(self, script: str, **variables: str) -> subprocess.Popen[str]:
        """Another program that begins with ``import pynvml`` and finds the library as every program does."""
        command = [sys.executable, "-c", f"from pynvml import *\nnvmlInit()\n{script}"]
        environment = {**self.environment(**variables), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def elsewhere(self, expression: str, **variables: str) -> Any:
        """The value of an expression of pynvml in another process; handles are ``gpu[0]``, ``gpu[1]``, ..."""

        def work() -> str:
            load(self)
            os.environ.update(variables)
            nvml.nvmlInit()
            handles = [gpu(index) for index in range(nvml.nvmlDeviceGetCount())]
            return json.dumps(eval(expression, {**vars(nvml), "gpu": handles}))

        code, answer = forked(work)
        assert code == 0, (expression, answer)
        return json.loads(answer)

    @contextlib.contextmanager
    def held(self) -> Iterator[subprocess.Popen[str]]:
        """Another process is an NVML client of every GPU meanwhile."""
        with self.client("print('ready', flush=True)\ninput()\nnvmlShutdown()") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.communicate("\n", timeout=120)


class Machines:
    """Makes machines from shipped descriptions or from those of a test; the work is done once for each kind."""

    def __init__(self, built: Path, folder: Path, servers: ForkServers) -> None:
        self.built = built
        self.folder = folder
        self.servers = servers
        self.made: Dict[Tuple[str, ...], Path] = {}
        tool_of(built)._parser()  # here once, instead of in every child
        module_of(built, "nvidia_smi")

    def names(self) -> List[str]:
        """The machines that ship with the simulator."""
        return sorted(path.stem for path in (self.built / "machines").glob("*.json"))

    def copy(self, folder: Path, *arguments: str) -> Machine:
        """A fresh machine in ``folder``, as ``nvml-sim create ARGUMENTS`` leaves it."""
        if arguments not in self.made:
            place = self.folder / f"{len(self.made)}"
            place.mkdir()
            Machine(self.built, place, self.servers).tool("create", *arguments)
            self.made[arguments] = place / "state"
        folder.mkdir(exist_ok=True)
        machine = Machine(self.built, folder, self.servers)
        shutil.copy(self.made[arguments], machine.state)
        return machine


def kind(*arguments: str) -> Any:
    """The machine of a test: the arguments of ``nvml-sim create``."""
    return pytest.mark.parametrize("machine", [arguments], indirect=True, ids=[" ".join(arguments)])


# Clients


def in_another_process(work: Callable[[], None]) -> None:
    """Call ``work`` in a child of this process, and fail here as it failed there."""

    def quietly() -> str:
        work()
        return ""

    code, report = forked(quietly)
    assert code >= 0, f"the client ended by signal {-code}"
    if code:
        pytest.fail(report, pytrace=False)


def as_client(test: Callable[..., None]) -> Callable[..., None]:
    """The test runs in a process that finds the simulator as libnvidia-ml.so.1 and is an initialised client of it.

    The library stays out of the process of pytest, where other tests may need that there is none.
    """

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        def work() -> None:
            load(kwargs["machine"])
            nvml.nvmlInit()
            test(*args, **kwargs)

        in_another_process(work)

    return run


def load(machine: Machine) -> ctypes.CDLL:
    """The library, in this process: whoever asks for its soname from now on gets it."""
    os.environ.update(machine.variables)
    return ctypes.CDLL(str(machine.built / LIBRARY), ctypes.RTLD_GLOBAL)


@contextlib.contextmanager
def refused(code: int) -> Iterator[None]:
    """NVML answers this error."""
    with pytest.raises(nvml.NVMLError) as caught:
        yield
    assert caught.value.value == code, f"{name_of(caught.value.value)}, expected {name_of(code)}"


def answer(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or the number of the error it raises."""
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        return error.value


def name_of(code: int) -> str:
    names = [name for name, value in vars(nvml).items() if name.startswith("NVML_ERROR_") and value == code]
    return names[0] if names else str(code)


def gpu(index: int = 0) -> Any:
    return nvml.nvmlDeviceGetHandleByIndex(index)


def as_user(number: int = 1000) -> None:
    """From the next nvmlInit on this process is that user."""
    nvml.nvmlShutdown()
    os.environ["NVML_SIM_EUID"] = str(number)
    nvml.nvmlInit()


def again() -> None:
    """Shut NVML down and begin anew: handles of before are stale."""
    nvml.nvmlShutdown()
    nvml.nvmlInit()


# MIG, in words


def fields(struct: ctypes.Structure) -> Dict[str, Any]:
    return {field[0]: getattr(struct, field[0]) for field in struct._fields_}


def profiles(device: Any, count: int = 64) -> Dict[int, Dict[str, Any]]:
    """The GPU instance profiles of a GPU by id. An enum that it lacks is NOT_SUPPORTED, the end INVALID_ARGUMENT."""
    found = {}
    for number in range(count):
        try:
            info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(device, number, version=2)
        except nvml.NVMLError_NotSupported:
            continue
        except nvml.NVMLError_InvalidArgument:
            break
        found[info.id] = {**fields(info), "enum": number}
    return found


def placements(device: Any, profile: int) -> List[Placement]:
    room = (nvml.c_nvmlGpuInstancePlacement_t * 32)()
    count = c_uint(32)
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile, room, byref(count))
    return [(place.start, place.size) for place in room[: count.value]]


def compute_placements(instance: Any, profile: int) -> List[Placement]:
    room = (nvml.c_nvmlComputeInstancePlacement_t * 32)()
    count = c_uint(32)
    nvml.nvmlGpuInstanceGetComputeInstancePossiblePlacements(instance, profile, room, byref(count))
    return [(place.start, place.size) for place in room[: count.value]]


def instances(device: Any, profile: int) -> List[Any]:
    room = (nvml.c_nvmlGpuInstance_t * 32)()
    count = c_uint(32)
    nvml.nvmlDeviceGetGpuInstances(device, profile, room, byref(count))
    return list(room[: count.value])


def compute_instances(instance: Any, profile: int) -> List[Any]:
    room = (nvml.c_nvmlComputeInstance_t * 32)()
    count = c_uint(32)
    nvml.nvmlGpuInstanceGetComputeInstances(instance, profile, room, byref(count))
    return list(room[: count.value])


def create(device: Any, profile: int, placement: Optional[Placement] = None) -> Any:
    if placement is None:
        return nvml.nvmlDeviceCreateGpuInstance(device, profile)
    place = nvml.c_nvmlGpuInstancePlacement_t(*placement)
    return nvml.nvmlDeviceCreateGpuInstanceWithPlacement(device, profile, byref(place))


def place_of(instance: Any) -> Placement:
    placement = nvml.nvmlGpuInstanceGetInfo(instance).placement
    return placement.start, placement.size


def layout(device: Any) -> List[Tuple[int, int, int]]:
    """(profile, start, size) of every GPU instance, sorted."""
    found = [(profile, *place_of(instance)) for profile in profiles(device) for instance in instances(device, profile)]
    return sorted(found)


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
