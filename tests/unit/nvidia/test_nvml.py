# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The process that asks the driver: what it answers, how it fails, and what is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Set

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    GpuFleetError,
    NotPermitted,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia import gpus
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Driver, Identity
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.errors import DriverHangs, NoDriver
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.nvml import LocalNvml
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import AT_ONCE_SECONDS, ScriptedCommands, build

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

# Any library of the system will do where the binding is one of ours.
SOME_LIBRARY = "libc.so.6"
LOST = "the GPU is lost: it has fallen off the bus or does not respond"
DMESG = """\
[    3.1] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  550.54.15
[ 9071.4] NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[ 9072.0] NVRM: Xid (PCI:0000:65:00): 119, pid=2214, name=nvidia-smi, Timeout after 6s of waiting for RPC response
"""


class Binding(types.ModuleType):
    """A ``pynvml`` that knows nothing but to begin and to end."""

    class NVMLError(Exception):
        def __init__(self, value: int = 999) -> None:
            super().__init__("Unknown Error")
            self.value = value

    def __init__(self, ended: str = "", slow_end: float = 0.0) -> None:
        super().__init__("pynvml")
        self.ended = ended
        self.slow_end = slow_end

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        time.sleep(self.slow_end)
        if self.ended:
            Path(self.ended).touch()


def nothing(driver: Driver) -> str:
    return "answer"


def echo(driver: Driver, value: Any) -> Any:
    return value


def pid_of(driver: Driver) -> int:
    return os.getpid()


def sleep(driver: Driver, seconds: float) -> str:
    time.sleep(seconds)
    return "late"


def die(driver: Driver) -> None:
    os._exit(7)


def fail(driver: Driver) -> None:
    raise Refused("set a clock", object="gpu0", cause="no", found=1, wanted=2, hint="look")


def stumble(driver: Driver) -> None:
    raise KeyError("wrong")


def descriptors(driver: Driver) -> List[str]:
    return [os.readlink(f"/proc/self/fd/{name}") for name in ("0", "1", "2")]


def children() -> Set[int]:
    """The processes that are children of this one, zombies too."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(pid))
        except OSError:
            continue
    return found


def open_descriptors() -> Set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.fixture
def binding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Binding:
    """The processes of this test find it as pynvml, for they are forks of this one."""
    made = Binding(str(tmp_path / "ended"))
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


@pytest.fixture
def commands() -> ScriptedCommands:
    return ScriptedCommands()


@pytest.fixture
def nvml(binding: Binding, commands: ScriptedCommands) -> Iterator[LocalNvml]:
    made = LocalNvml(commands, library=SOME_LIBRARY, deadline=10.0)
    yield made
    made.close()


def hanging(commands: ScriptedCommands, deadline: float = 0.2) -> LocalNvml:
    return LocalNvml(commands, library=SOME_LIBRARY, deadline=deadline)


# --- questions and answers --------------------------------------------------------------------------------------------


def test_a_question_is_asked_in_another_process_which_serves_all_questions(nvml: LocalNvml) -> None:
    first = nvml.ask(pid_of)
    assert first != os.getpid()
    assert nvml.ask(pid_of) == first


@pytest.mark.parametrize("size", [0, 1, 4096, 65536, 65537, 5_000_000])
def test_an_answer_may_have_any_size(nvml: LocalNvml, size: int) -> None:
    text = "x" * size
    assert nvml.ask(echo, text) == text
    assert nvml.ask(echo, size) == size


def test_an_error_of_the_question_is_raised_as_it_was(nvml: LocalNvml) -> None:
    with pytest.raises(Refused) as caught:
        nvml.ask(fail)
    assert str(caught.value) == "Cannot set a clock on gpu0: no (found 1, wanted 2). Look."
    assert caught.value.failure() == {"code": "refused", "object": "gpu0", "found": 1, "wanted": 2, "hint": "look"}
    assert nvml.ask(nothing) == "answer"


def test_a_mistake_of_the_question_is_an_error_of_ours_that_names_it(nvml: LocalNvml) -> None:
    with pytest.raises(CannotLook, match=r"^Cannot query the NVIDIA driver: KeyError: 'wrong'\.$"):
        nvml.ask(stumble)


def test_to_begin_does_not_wait(binding: Binding, commands: ScriptedCommands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "nvmlInit", lambda: time.sleep(3.0))
    nvml = LocalNvml(commands, library=SOME_LIBRARY, deadline=60.0)
    started = time.monotonic()
    nvml.begin()
    nvml.begin()
    assert time.monotonic() - started < 3.0
    assert nvml.ask(nothing) == "answer"
    nvml.close()


def test_to_close_lets_go_of_the_driver_and_the_next_question_opens_it_again(nvml: LocalNvml, binding: Binding) -> None:
    first = nvml.ask(pid_of)
    nvml.close()
    assert Path(binding.ended).exists()
    assert first not in children()
    assert nvml.ask(pid_of) != first


def test_to_close_what_was_never_opened_is_fine(commands: ScriptedCommands) -> None:
    LocalNvml(commands, library=SOME_LIBRARY).close()


def test_after_each_end_no_child_and_no_descriptor_is_left(binding: Binding, commands: ScriptedCommands) -> None:
    before = (children(), open_descriptors())
    nvml = LocalNvml(commands, library=SOME_LIBRARY, deadline=10.0)
    for _round in range(3):
        nvml.ask(nothing)
        nvml.close()
        with pytest.raises(CannotLook):
            nvml.ask(die)
    assert (children(), open_descriptors()) == before


def test_the_process_has_none_of_our_descriptors(nvml: LocalNvml) -> None:
    assert nvml.ask(descriptors) == ["/dev/null"] * 3


# --- without ----------------------------------------------------------------------------------------------------------


def message(nvml: LocalNvml) -> str:
    with pytest.raises(GpuFleetError) as caught:
        nvml.ask(nothing)
    nvml.close()
    return f"{type(caught.value).__name__}: {caught.value}"


def test_without_the_library_the_driver_is_to_be_installed(binding: Binding, commands: ScriptedCommands) -> None:
    assert message(LocalNvml(commands, library="/no/libnvidia-ml.so.1")) == (
        "NoDriver: Cannot query the NVIDIA driver: there is no libnvidia-ml.so.1 (/no/libnvidia-ml.so.1: cannot open "
        "shared object file: No such file or directory). Install the NVIDIA driver, or declare no GPU settings for "
        "this node."
    )


def test_without_the_binding_the_role_nvml_is_to_be_run(
    commands: ScriptedCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert message(LocalNvml(commands, library=SOME_LIBRARY)) == (
        f"NoBinding: Cannot query the NVIDIA driver: {sys.executable} has no nvidia-ml-py: import of pynvml halted; "
        "None in sys.modules. Run the role nvml, which installs it."
    )


OFFERED = """
import sys
me = sys.modules[__name__]
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetGpuInstanceProfileInfo(device, profile, version=2): pass
def whose(): return "the controller's", __file__ if "__file__" in globals() else "no file", me.__name__
"""


def whose(driver: Driver) -> Any:
    return driver.nvml.whose()


def lent(commands: ScriptedCommands, text: str = OFFERED) -> LocalNvml:
    nvml = LocalNvml(commands, library=SOME_LIBRARY)
    nvml.offered = text
    return nvml


# What a Python finds as its own, with what is the matter with it; the process that queries the driver has this folder
# on its path. A folder without anything in it is a package to Python.
UNUSABLE = {
    "half a file": ("pynvml.py", "def nvmlInit(:", "SyntaxError: "),
    "something else": ("pynvml.py", "raise RuntimeError('no')", "RuntimeError: no"),
    "a script": ("pynvml.py", "raise SystemExit(3)", "SystemExit: 3"),
    "another module": ("pynvml.py", "", "/pynvml.py is not nvidia-ml-py"),
    "an empty folder": ("pynvml/.keep", "", "a folder is not nvidia-ml-py"),
}


@pytest.fixture(params=UNUSABLE)
def unusable(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Python with such a binding, and how the message ends that says so."""
    name, text, why = UNUSABLE[request.param]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(path for path in sys.path if "site-packages" not in path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return why


def test_a_binding_that_cannot_be_imported_counts_as_none(unusable: str, commands: ScriptedCommands) -> None:
    said = message(LocalNvml(commands, library=SOME_LIBRARY))
    begin = f"NoBinding: Cannot query the NVIDIA driver: the nvidia-ml-py of {sys.executable} cannot be imported: "
    assert said.startswith(begin)
    assert unusable in said
    assert said.endswith(". Run the role nvml, which installs it.")


def test_in_place_of_one_that_cannot_be_imported_the_controllers_is_used(
    unusable: str, commands: ScriptedCommands
) -> None:
    nvml = lent(commands)
    assert nvml.ask(whose) == ("the controller's", "no file", "pynvml")
    nvml.close()


def test_without_a_binding_the_controllers_is_used(commands: ScriptedCommands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml = lent(commands)
    assert nvml.ask(whose) == ("the controller's", "no file", "pynvml")
    # After a reset of a GPU it is still there.
    nvml.close()
    assert nvml.ask(whose)[0] == "the controller's"
    nvml.close()


def test_an_own_binding_that_will_do_is_used(
    commands: ScriptedCommands, monkeypatch: pytest.MonkeyPatch, binding: Binding
) -> None:
    def current(device: Any, profile: Any, version: int = 2) -> None:
        pass

    monkeypatch.setattr(binding, "nvmlDeviceGetGpuInstanceProfileInfo", current, raising=False)
    nvml = lent(commands, "raise SystemExit")
    assert nvml.ask(nothing) == "answer"
    nvml.close()


@pytest.mark.parametrize("error", ["ValueError", "SystemExit"])
def test_the_controllers_that_this_python_cannot_import_is_named(
    error: str, commands: ScriptedCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert message(lent(commands, f"raise {error}('too new')")) == (
        f"NoBinding: Cannot query the NVIDIA driver: {sys.executable} cannot import the controller's nvidia-ml-py: "
        f"{error}: too new. Install another release of nvidia-ml-py on the controller."
    )


def test_a_recorded_tree_has_no_driver_unless_a_library_comes_with_it(tmp_path: Path, binding: Binding) -> None:
    with pytest.raises(NoDriver, match=r"a recorded tree has none\. Hand in a library with the tree\.$"):
        RecordedHost(str(tmp_path)).nvml.ask(nothing)
    host = RecordedHost(str(tmp_path), library=SOME_LIBRARY)
    assert host.nvml.ask(nothing) == "answer"
    host.nvml.close()


# --- a driver that hangs ----------------------------------------------------------------------------------------------


def test_a_driver_that_hangs_is_left_when_the_deadline_has_passed(binding: Binding, commands: ScriptedCommands) -> None:
    nvml = hanging(commands)
    started = time.monotonic()
    with pytest.raises(DriverHangs) as caught:
        nvml.ask(sleep, 30.0)
    assert 0.2 <= time.monotonic() - started < AT_ONCE_SECONDS
    assert str(caught.value) == (
        "Cannot query the NVIDIA driver: it did not respond within 0.2 s. Check the kernel log for NVRM, and for "
        "processes in state D; the node may need a reboot."
    )


def test_after_it_hung_every_question_is_refused_at_once(binding: Binding, commands: ScriptedCommands) -> None:
    nvml = hanging(commands, deadline=2.0)
    with pytest.raises(DriverHangs):
        nvml.ask(sleep, 60.0)
    started = time.monotonic()
    nvml.begin()
    for _round in range(3):
        with pytest.raises(DriverHangs, match=r"did not respond within 2 s"):
            nvml.ask(nothing)
    assert time.monotonic() - started < 2.0


def test_the_last_xid_of_the_kernel_log_says_why_it_hangs(binding: Binding, commands: ScriptedCommands) -> None:
    commands.programs["dmesg"] = lambda argv: Completed(0, DMESG, "")
    with pytest.raises(DriverHangs) as caught:
        hanging(commands).ask(sleep, 30.0)
    assert str(caught.value) == (
        "Cannot query the NVIDIA driver: it did not respond within 0.2 s; the kernel log says: NVRM: Xid "
        "(PCI:0000:65:00): 119, pid=2214, name=nvidia-smi, Timeout after 6s of waiting for RPC response. Look up the "
        "Xid in NVIDIA's list; the node may need a reboot."
    )


def test_what_hangs_is_ended_and_keeps_no_descriptor_of_ours(binding: Binding, commands: ScriptedCommands) -> None:
    descriptors_before, children_before = open_descriptors(), children()
    nvml = hanging(commands)
    with pytest.raises(DriverHangs):
        nvml.ask(sleep, 30.0)
    assert open_descriptors() == descriptors_before
    started = time.monotonic()
    for child in children() - children_before:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert time.monotonic() - started < AT_ONCE_SECONDS


PARENT = """
import os, sys, time, types
pynvml = types.ModuleType("pynvml")
pynvml.nvmlInit = lambda: None
sys.modules["pynvml"] = pynvml
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.nvml import DriverHangs, LocalNvml
from ansible_collections.gpufleet.node.tests.unit.support import ScriptedCommands

def sleep(driver):
    time.sleep(600)

# A process that sleeps in the kernel is not ended by a signal.
os.kill = lambda pid, number: None
nvml = LocalNvml(ScriptedCommands(), library="libc.so.6", deadline=0.2)
nvml.begin()
child = nvml._child
try:
    nvml.ask(sleep)
except DriverHangs:
    print(child)
"""


def test_who_waits_for_our_output_need_not_wait_for_a_process_that_cannot_be_ended() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PARENT], env=environment, capture_output=True, text=True, timeout=240, check=True
    )
    child = int(done.stdout)
    try:
        os.kill(child, 0)
        assert time.monotonic() - started < 60
    finally:
        os.kill(child, signal.SIGKILL)


def test_to_close_a_driver_that_hangs_takes_no_longer_than_the_deadline(
    binding: Binding, commands: ScriptedCommands
) -> None:
    binding.slow_end = 60.0
    nvml = hanging(commands, deadline=2.0)
    nvml.ask(nothing)
    before = open_descriptors()
    started = time.monotonic()
    nvml.close()
    assert time.monotonic() - started < AT_ONCE_SECONDS
    assert len(open_descriptors()) == len(before) - 2


class Interrupted(Exception):
    """The deadline of a look."""


def test_an_alarm_in_the_middle_ends_the_question_and_no_answer_is_taken_for_that_of_another(
    binding: Binding, commands: ScriptedCommands
) -> None:
    def interrupt(number: int, frame: Any) -> None:
        raise Interrupted

    nvml = LocalNvml(commands, library=SOME_LIBRARY, deadline=10.0)
    assert nvml.ask(nothing) == "answer"
    former = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Interrupted):
            nvml.ask(sleep, 0.5)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    with pytest.raises(DriverHangs, match="it was still busy with another query"):
        nvml.ask(nothing)


def test_an_alarm_of_ours_is_none_of_the_process(binding: Binding, commands: ScriptedCommands) -> None:
    rang: List[int] = []
    former = signal.signal(signal.SIGALRM, lambda number, frame: rang.append(number))
    nvml = LocalNvml(commands, library=SOME_LIBRARY, deadline=10.0)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        assert nvml.ask(sleep, 0.3) == "late"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
        nvml.close()
    assert rang == [signal.SIGALRM]


def test_a_process_that_dies_is_an_error_and_the_next_question_gets_another(nvml: LocalNvml) -> None:
    with pytest.raises(CannotLook, match=r"the process that queried it died\. Check the kernel log\.$"):
        nvml.ask(die)
    assert nvml.ask(nothing) == "answer"


def test_a_process_that_was_killed_between_two_questions_is_replaced(nvml: LocalNvml) -> None:
    os.kill(nvml.ask(pid_of), signal.SIGKILL)
    with pytest.raises(CannotLook, match="the process that queried it died"):
        nvml.ask(nothing)
    assert nvml.ask(nothing) == "answer"


# --- the driver, simulated --------------------------------------------------------------------------------------------


def switch_on(driver: Driver, index: int) -> None:
    driver.gpus()[index].change("switch it on", "nvmlDeviceSetPersistenceMode", 1)


def identities(driver: Driver) -> List[Identity]:
    return [gpu.identity for gpu in driver.gpus()]


def readings(driver: Driver, function: str) -> List[Any]:
    return [(answer.value, answer.lacking) for answer in (gpu.read(function) for gpu in driver.gpus())]


def modes(driver: Driver) -> List[Any]:
    return [(gpu.persistence_mode().value, gpu.mig_mode().value) for gpu in driver.gpus()]


def named(driver: Driver, uuid: str) -> str:
    return driver.gpu(uuid).identity.name


def test_every_gpu_has_its_names(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine("a30-4")
    found = machine.host.nvml.ask(identities)
    assert [(gpu.index, gpu.name, gpu.model, gpu.lost) for gpu in found] == [
        (index, f"gpu{index}", "NVIDIA A30", "") for index in range(4)
    ]
    assert [gpu.uuid for gpu in found] == [gpu["uuid"] for gpu in machine.describe()["gpus"]]
    address = machine.gpu(0)["pci_bus_id"]
    assert found[0].pci_address == f"0000:{address.lower().split(':', 1)[1]}"


def test_values_that_a_gpu_has_and_such_that_it_has_not(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine("l40s-1")
    assert machine.host.nvml.ask(modes) == [(False, None)]
    assert machine.host.nvml.ask(readings, "nvmlDeviceGetMigMode") == [(None, "not supported by this GPU")]
    assert machine.host.nvml.ask(readings, "nvmlDeviceGetSomething") == [(None, "this nvidia-ml-py is too old for it")]
    machine.sim("hide", "nvmlDeviceGetAddressingMode")
    assert machine.host.nvml.ask(readings, "nvmlDeviceGetAddressingMode") == [(None, "this driver is too old for it")]
    machine.sim("fail", "nvmlDeviceGetTemperature", "NVML_ERROR_NO_PERMISSION", 1)
    assert machine.host.nvml.ask(readings, "nvmlDeviceGetPowerUsage")[0][0] > 0


def test_a_mig_mode_is_current_and_pending(gpu_machine: MakeMachine) -> None:
    assert gpu_machine("a30-4").host.nvml.ask(modes) == [(False, (0, 0))] * 4


def test_a_driver_that_is_not_loaded(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine("a30-4")
    machine.sim("unload-driver")
    assert message(machine.host.nvml) == (
        "NoDriver: Cannot query the NVIDIA driver: the kernel module nvidia is not loaded. Load it with modprobe "
        "nvidia, or declare it in kernel_modules_load, and check the kernel log."
    )
    machine.sim("load-driver")
    assert len(machine.host.nvml.ask(identities)) == 4


def test_a_library_that_is_newer_than_the_driver(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine("a30-4")
    machine.sim("mismatch", "on")
    assert message(machine.host.nvml) == (
        "DriverMismatch: Cannot query the NVIDIA driver: the driver's library and the loaded kernel module have "
        "different versions: the driver was upgraded but not reloaded. Reload the driver while no GPU is in use, or "
        "reboot the node."
    )


def test_a_user_who_may_not(gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = gpu_machine("a30-4")
    monkeypatch.setenv("NVML_SIM_EUID", "1000")
    with pytest.raises(NotPermitted) as caught:
        machine.host.nvml.ask(switch_on, 0)
    assert str(caught.value) == (
        "Cannot switch it on on gpu0: the driver allows this only for root. Run the task with become: true; in a "
        "container this also needs CAP_SYS_ADMIN."
    )


def test_what_the_driver_refuses(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine("a30-4")
    machine.sim("fail", "nvmlDeviceSetPersistenceMode", "NVML_ERROR_IN_USE")
    with pytest.raises(Refused, match=r"^Cannot switch it on on gpu1: the driver returned .* \(19\)\.$"):
        machine.host.nvml.ask(switch_on, 1)


@pytest.mark.parametrize("code", ["NVML_ERROR_UNKNOWN", "NVML_ERROR_RESET_REQUIRED"])
def test_a_gpu_that_is_sick_in_another_way_does_not_either(gpu_machine: MakeMachine, code: str) -> None:
    machine = gpu_machine("a30-4")
    machine.sim("fail", "nvmlDeviceGetHandleByIndex_v2", code, 1)
    found = machine.host.nvml.ask(identities)
    assert [bool(gpu.lost) for gpu in found] == [True, False, False, False]
    assert found[0].lost.startswith("the GPU does not respond: the driver returned ")


def test_a_gpu_that_is_lost_does_not_take_the_others_with_it(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine("a30-4")
    uuids = [gpu["uuid"] for gpu in machine.describe()["gpus"]]
    machine.sim("lose", 2)
    found = machine.host.nvml.ask(identities)
    assert [gpu.lost for gpu in found] == ["", "", LOST, ""]
    assert (found[2].name, found[2].uuid) == ("gpu2", "")
    assert machine.host.nvml.ask(named, uuids[3]) == "gpu3"
    with pytest.raises(CannotLook) as caught:
        machine.host.nvml.ask(named, uuids[2])
    assert str(caught.value) == (
        f"Cannot query the NVIDIA driver on {uuids[2]}: the GPU is gone or lost. Check the kernel log for its Xid; a "
        "reset, a reboot or a power cycle may bring it back."
    )


def test_a_gpu_that_is_lost_after_it_was_found(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine("a30-4")
    machine.host.nvml.ask(identities)
    machine.sim("lose", 0)
    assert machine.host.nvml.ask(readings, "nvmlDeviceGetPersistenceMode")[0] == (None, LOST)
    with pytest.raises(CannotLook, match=rf"^Cannot switch it on on gpu0: {LOST}\."):
        machine.host.nvml.ask(switch_on, 0)


def test_a_driver_that_hangs_in_the_kernel(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine("a30-4")
    machine.host.commands.programs["dmesg"] = lambda argv: Completed(0, DMESG, "")
    machine.sim("hang", "nvmlDeviceGetName")
    machine.connect(deadline=0.3)
    with pytest.raises(DriverHangs, match=r"within 0\.3 s; the kernel log says: NVRM: Xid \(PCI:0000:65:00\): 119"):
        machine.host.nvml.ask(identities)
    machine.sim("heal")
    machine.connect()
    assert len(machine.host.nvml.ask(identities)) == 4


def clients(machine: GpuMachine) -> List[Dict[str, Any]]:
    return list(machine.describe()["clients"])


def test_to_close_makes_us_no_client_of_any_gpu(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine("a30-4")
    machine.host.nvml.ask(identities)
    assert clients(machine)
    machine.host.nvml.close()
    assert clients(machine) == []
    machine.sim("reset")
    assert len(machine.host.nvml.ask(identities)) == 4


# --- which GPUs -------------------------------------------------------------------------------------------------------

TWO = (
    Identity(0, "GPU-aaaa", "0000:17:00.0", "NVIDIA H100 80GB HBM3", pci_ids=("10de:2330", "10de:2330:10de:16c1")),
    Identity(1, "GPU-bbbb", "0001:65:00.0", "NVIDIA A100-SXM4-80GB", pci_ids=("10de:20b2", "10de:20b2:10de:147f")),
)


@pytest.mark.parametrize(
    ("match", "winners"),
    [
        ({}, (0, 0)),
        ({"index": 1}, (None, 0)),
        ({"uuid": "GPU-a*"}, (0, None)),
        ({"model": ["*A100*", "*H200*"]}, (None, 0)),
        ({"pci_address": "00000000:17:00.0"}, (0, None)),
        ({"pci_address": "17:00.0"}, (0, None)),
        ({"pci_address": "0001:65:00.0"}, (None, 0)),
        ({"pci_address": "*:65:00.0"}, (None, 0)),
        ({"pci_id": "10DE:20B2"}, (None, 0)),
        ({"pci_id": ["10de:2330:10de:16c1", "10de:2901"]}, (0, None)),
    ],
)
def test_a_match_is_written_as_people_copy_it(match: Dict[str, Any], winners: Sequence[Any]) -> None:
    assert gpus.select(gpus.parse("gpus", [{"match": match}]), TWO) == winners


def test_nobody_wins_a_gpu_that_is_lost_and_an_entry_may_be_for_it() -> None:
    lost = (TWO[0], Identity(1, lost=LOST))
    assert gpus.select(gpus.parse("gpus", [{"match": {"uuid": "GPU-bbbb"}}, {}]), lost) == (1, None)


def test_the_bus_tells_gpus_from_other_devices_of_nvidia(tmp_path: Path) -> None:
    bus = "/sys/bus/pci/devices"
    bridge = {f"{bus}/0000:00:00.0/vendor": "0x10de\n", f"{bus}/0000:00:00.0/class": "0x068000\n"}
    with_gpu = {f"{bus}/0000:17:00.0/vendor": "0x10de\n", f"{bus}/0000:17:00.0/class": "0x030200\n"}
    files = build(tmp_path, {**bridge, **with_gpu}).files
    assert gpus.on_the_bus(files) == ("0000:17:00.0",)
