# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVML through nvidia-ml-py, typed: every optional value is a value or the reason why there is none.

Runs in the process that ``nvml.LocalNvml`` starts. The meaning of the calls and codes is that of nvml.h
(https://docs.nvidia.com/deploy/nvml-api/).
"""

from __future__ import annotations

import sys
from typing import Any, Generic, List, Optional, Sequence, Tuple, Type, TypeVar

from .._core.errors import CannotLook, GpuFleetError, NotPermitted, Refused
from .._core.exposure import BINDING_FOLDER
from .._core.value import frozen
from .errors import GOAL, LOST, LOST_HINT, DriverMismatch, NoBinding, NoDriver

LIBRARY = "libnvidia-ml.so.1"
RUN_NVML = "run the role nvml, which installs it"
TOO_OLD = "the nvidia-ml-py of this Python is older than 11.515, and lacks calls that MIG needs"

T = TypeVar("T")

# nvmlReturn_t
NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
LIB_RM_VERSION_MISMATCH = 18
# nvmlValueType_t
DOUBLE, UNSIGNED_INT, UNSIGNED_LONG, UNSIGNED_LONG_LONG, SIGNED_LONG_LONG, SIGNED_INT, UNSIGNED_SHORT = range(7)
# Why there is no value, by what the driver returns in its place.
LACKING = {
    NOT_SUPPORTED: "not supported by this GPU",
    FUNCTION_NOT_FOUND: "this driver is too old for it",
    NO_PERMISSION: "root only",
    GPU_IS_LOST: LOST,
}


@frozen
class Answer(Generic[T]):
    """A value, or the reason why this GPU and this driver have none."""

    value: Optional[T]
    lacking: str = ""


@frozen
class Identity:
    """Who a GPU is. ``index`` is the driver's order, ``pci_address`` as sysfs writes it (``0000:17:00.0``).

    ``pci_ids`` are vendor and device (``10de:2330``), and the same with those of its board (``10de:2330:10de:16c1``).
    Of a GPU that is lost only the index is known, and ``lost`` says why.
    """

    index: int
    uuid: str = ""
    pci_address: str = ""
    model: str = ""
    lost: str = ""
    pci_ids: Tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"gpu{self.index}"


class Gpu:
    """One GPU and its handle, which is good until the GPU is reset or the driver reloaded."""

    def __init__(self, driver: Driver, identity: Identity, handle: Any) -> None:
        self.driver = driver
        self.identity = identity
        self.handle = handle

    def read(self, function: str, *arguments: Any) -> Answer[Any]:
        """A value that this GPU may not have, by the name of the function in nvidia-ml-py, as that returns it."""
        return self.driver.read(function, self.handle, *arguments)

    def change(self, goal: str, function: str, *arguments: Any) -> Any:
        """Call a function that must succeed. Raises ``Refused`` or ``NotPermitted`` with what the driver said."""
        try:
            return getattr(self.driver.nvml, function)(self.handle, *arguments)
        except Exception as error:
            raise explain(error, goal, self.identity.name) from error

    def fields(self, wanted: Sequence[Any]) -> Tuple[List[Optional[int]], str]:
        """The values of these fields (``NVML_FI_*``), each a number or a pair of it and its scope, such as a link.

        None for each that this GPU does not have; and the reason where it has not a single one.
        """
        answer = self.read("nvmlDeviceGetFieldValues", list(wanted))
        if answer.value is None:
            return [None] * len(wanted), answer.lacking
        return [number_of(field) if field.nvmlReturn == 0 else None for field in answer.value], ""

    def persistence_mode(self) -> Answer[bool]:
        return _as(bool, self.read("nvmlDeviceGetPersistenceMode"))

    def mig_mode(self) -> Answer[Tuple[int, int]]:
        """Current and pending: 1 is on."""
        return _as(_pair, self.read("nvmlDeviceGetMigMode"))


class Driver:
    """An initialised NVML. ``nvml`` is the module of nvidia-ml-py, for calls that are not optional."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self._gpus: Optional[Tuple[Gpu, ...]] = None

    def gpus(self) -> Tuple[Gpu, ...]:
        """Every GPU in the driver's order, those that are lost too."""
        if self._gpus is None:
            self._gpus = tuple(self._gpu(index) for index in range(self.nvml.nvmlDeviceGetCount()))
        return self._gpus

    def gpu(self, uuid: str) -> Gpu:
        """The GPU with this UUID. Raises ``CannotLook`` when it is gone or lost."""
        for gpu in self.gpus():
            if gpu.identity.uuid == uuid:
                return gpu
        raise CannotLook(GOAL, object=uuid, cause="the GPU is gone or lost", hint=LOST_HINT)

    def read(self, function: str, *arguments: Any) -> Answer[Any]:
        """A value that may not be there, by the name of the function in nvidia-ml-py."""
        call = getattr(self.nvml, function, None)
        if call is None:
            return Answer(None, "this nvidia-ml-py is too old for it")
        try:
            return Answer(call(*arguments))
        except self.nvml.NVMLError as error:
            return Answer(None, why_lacking(error))
        except getattr(self.nvml, "NVMLLibraryMismatchError", ()) as error:
            return Answer(None, f"the driver is too old or too new for this nvidia-ml-py: {error}")

    def close(self) -> None:
        self._gpus = None
        self.nvml.nvmlShutdown()

    def _gpu(self, index: int) -> Gpu:
        nvml = self.nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            pci = nvml.nvmlDeviceGetPciInfo(handle)
            product, board = pci_id(pci.pciDeviceId), pci_id(pci.pciSubSystemId)
            identity = Identity(
                index=index,
                uuid=nvml.nvmlDeviceGetUUID(handle),
                pci_address=pci_address(pci.busId),
                model=nvml.nvmlDeviceGetName(handle),
                pci_ids=(product, f"{product}:{board}"),
            )
        except nvml.NVMLError as error:
            if error.value in (DRIVER_NOT_LOADED, NO_PERMISSION):
                raise
            return Gpu(self, Identity(index=index, lost=why_lost(error)), None)
        return Gpu(self, identity, handle)


def pci_address(text: str) -> str:
    """An address as NVML writes it (``00000000:17:00.0``, in capitals) as sysfs writes it (``0000:17:00.0``)."""
    domain, colon, rest = text.lower().partition(":")
    return f"{domain[-4:]}{colon}{rest}" if len(domain) == 8 and domain.startswith("0000") else text.lower()


def pci_id(word: int) -> str:
    """Vendor and device as sysfs and lspci have them (``10de:2330``), from NVML's word with the vendor below."""
    return f"{word & 0xFFFF:04x}:{word >> 16:04x}"


def open_driver(library: str, offered: str = "") -> Driver:
    """Load the library and the binding, and initialise NVML. Raises ``NoDriver``, ``NoBinding`` or ``CannotLook``.

    ``offered`` is the text of a binding, for where this Python has none, or one that will not do.
    """
    # Only the process that asks the driver does this; others import the file for its types, and ctypes costs more.
    import ctypes

    try:
        # The binding loads the library by its plain name, which from here on means this one.
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise NoDriver(
            GOAL,
            cause=f"there is no {LIBRARY} ({error})",
            hint="install the NVIDIA driver, or declare no GPU settings for this node",
            state=f"no {LIBRARY}",
        ) from error
    binding = _binding(offered)
    try:
        binding.nvmlInit()
    except Exception as error:
        raise explain(error) from error
    return Driver(binding)


def is_current(binding: Any) -> bool:
    """Whether it is from 11.515 on: older ones cannot list the profiles of MIG (``concerns.nvml.recognise``)."""
    ask = getattr(binding, "nvmlDeviceGetGpuInstanceProfileInfo", None)
    code = getattr(ask, "__code__", None)
    return code is not None and "version" in code.co_varnames


def _binding(offered: str) -> Any:
    """The machine's own binding, unless it is missing, damaged, or older than the one that is offered."""
    if BINDING_FOLDER not in sys.path:
        sys.path.insert(0, BINDING_FOLDER)
    state, cause = "damaged", f"the nvidia-ml-py of {sys.executable} cannot be imported"
    try:
        import pynvml

        if hasattr(pynvml, "nvmlInit") and (not offered or is_current(pynvml)):
            return pynvml
        reason = f"{getattr(pynvml, '__file__', None) or 'a folder'} is not nvidia-ml-py"
    except ImportError as error:
        state, cause, reason = "not installed", f"{sys.executable} has no nvidia-ml-py", str(error)
    except (Exception, SystemExit) as error:
        # It is whatever lies there, such as half a file, or a script.
        reason = f"{type(error).__name__}: {error}"
    if offered:
        return _imported(offered)
    raise NoBinding(GOAL, cause=f"{cause}: {reason}", hint=RUN_NVML, state=state)


def _imported(text: str) -> Any:
    """The module of this text, which no file has."""
    from types import ModuleType

    name = "pynvml"
    # It looks itself up there.
    module = sys.modules[name] = ModuleType(name)
    try:
        exec(compile(text.encode("utf-8", "surrogateescape"), f"<{name}>", "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        cause = f"{sys.executable} cannot import the controller's nvidia-ml-py: {type(error).__name__}: {error}"
        raise NoBinding(GOAL, cause=cause, hint="install another release of nvidia-ml-py on the controller") from error
    return module


def explain(error: Exception, goal: str = GOAL, object_name: str = "") -> GpuFleetError:
    """Any error of the other process as one of ours, with the next step."""
    if isinstance(error, GpuFleetError):
        return error
    code = getattr(error, "value", None)
    if not isinstance(code, int):
        return CannotLook(goal, object=object_name, cause=f"{type(error).__name__}: {error}")
    # Who may not even look does not know what differs.
    looks = goal == GOAL
    kind: Type[GpuFleetError] = CannotLook if looks else Refused
    cause = f"the driver returned {_said(error)} ({code})"
    hint = "check the kernel log for NVRM" if looks else ""
    if code in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND):
        kind, cause = NoDriver, "the kernel module nvidia is not loaded"
        hint = "load it with modprobe nvidia, or declare it in kernel_modules_load, and check the kernel log"
    elif code == LIB_RM_VERSION_MISMATCH:
        kind = DriverMismatch
        cause = (
            "the driver's library and the loaded kernel module have different versions: the driver was upgraded but "
            "not reloaded"
        )
        hint = "reload the driver while no GPU is in use, or reboot the node"
    elif code == NO_PERMISSION:
        kind = CannotLook if looks else NotPermitted
        cause = "the driver allows this only for root"
        hint = "run the task with become: true; in a container this also needs CAP_SYS_ADMIN"
    elif code == GPU_IS_LOST:
        kind, cause, hint = CannotLook, LOST, LOST_HINT
    return kind(goal, object=object_name, cause=cause, hint=hint)


def why_lost(error: Any) -> str:
    """Of a GPU that answers with this error: one that fell off the bus may say so, say nothing, or ask for a reset."""
    return LOST if error.value == GPU_IS_LOST else f"the GPU does not respond: {why_lacking(error)}"


def why_lacking(error: Any) -> str:
    """Why there is no value, of an error in its place."""
    return LACKING.get(error.value) or f"the driver returned {_said(error)} ({error.value})"


def number_of(field: Any) -> int:
    """The value of a field (nvmlFieldValue_t) as its type says; a number with a fraction is cut.

    Drivers give the same field in other types: R580 the count of links to switches as a double, temperatures below a
    limit as a signed int. Older releases of nvidia-ml-py have no member for the newest types.
    """
    value, kind = field.value, field.valueType
    if kind == DOUBLE:
        return int(value.dVal)
    if kind in (UNSIGNED_LONG, UNSIGNED_LONG_LONG):
        return int(value.ullVal)
    if kind == SIGNED_LONG_LONG:
        return int(value.sllVal)
    number = int(value.uiVal)
    if kind == SIGNED_INT:
        return number - 2**32 if number >= 2**31 else number
    return number & 0xFFFF if kind == UNSIGNED_SHORT else number


def _said(error: Exception) -> str:
    return str(error).rstrip(".").lower()


def _as(kind: Any, answer: Answer[Any]) -> Answer[Any]:
    return answer if answer.value is None else Answer(kind(answer.value))


def _pair(values: List[int]) -> Tuple[int, int]:
    current, pending = values
    return current, pending
