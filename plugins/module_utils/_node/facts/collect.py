# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One read of a whole node as facts, each part by itself: what cannot be read is null with a reason."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Callable, Collection, Dict, Mapping, Tuple

from ..._core.errors import GpuFleetError
from ..._linux import cpulist, os_release
from ..._machine.boot_id import BOOT_ID
from ..._nvidia.errors import NoBinding
from ..footprint import reboot_noted
from ..sent_binding import LACKS, offer
from .fields import Facts, Fields, read, read_as, why

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from .pci import PciDevice

NO_ANSWER = "the NVIDIA driver did not respond"
DEFECT = "this is a defect of the collection, report it"
ALL = "all"
CONTAINER_MARKS = ("/run/.containerenv", "/.dockerenv", "/run/systemd/container")


class FactsNode:
    """What several parts need, read when the first of them asks for it."""

    def __init__(self, host: Host, parts: Collection[str]) -> None:
        self.host = host
        self.files: Files = host.files
        self._parts = tuple(sorted(parts))
        self.lacks_binding = False

    @cached_property
    def devices(self) -> Tuple[PciDevice, ...]:
        from .pci import read_devices

        return read_devices(self.files)

    @cached_property
    def driver(self) -> Tuple[Facts, str]:
        """The answer of the NVIDIA driver; where there is none an empty one, and the reason."""
        from .nvml import ask

        try:
            return self.host.nvml.ask(ask, self._parts), ""
        except GpuFleetError as error:
            self.lacks_binding = isinstance(error, NoBinding)
            return {"driver": {}, "gpus": []}, str(error)

    @property
    def lacking(self) -> str:
        """Why a field of the driver is null, in short: the reason itself is written down once."""
        return NO_ANSWER if self.driver[1] else ""

    @cached_property
    def gpus(self) -> Mapping[str, Facts]:
        """What the driver says of each GPU, by PCI address."""
        from .gpus import by_address

        return by_address(self.driver[0]["gpus"], self.devices)

    @cached_property
    def nic_links(self) -> Mapping[str, Facts]:
        """The link of each network card, by PCI address."""
        from .pci import NIC, read_link

        return {device.address: read_link(self.files, device) for device in self.devices if device.kind == NIC}

    @cached_property
    def links(self) -> Mapping[str, Facts]:
        """The link of each device, by PCI address. A GPU that the driver does not know may have its clocks down."""
        from .pci import GPU, read_link

        others = [device for device in self.devices if device.address not in self.nic_links]
        idle = {device: self.gpus.get(device.address, {}).get("idle", device.kind == GPU) for device in others}
        links = {device.address: read_link(self.files, device, idle=idle[device]) for device in others}
        return {**self.nic_links, **links}


def gather(host: Host, parts: Collection[str]) -> Facts:
    """The facts of the ``parts``, which are names of ``PARTS``, and of ``system`` always. Never raises."""
    return _gather(FactsNode(host, parts), parts)


def _gather(node: FactsNode, parts: Collection[str]) -> Facts:
    fields = Fields()
    fields.add("system", *_try(_system, node))
    for name, part in PARTS.items():
        if name == AFTER_HOLDERS and not WITH_DRIVER.isdisjoint(parts):
            # From here on we hold the GPUs open too. The driver's library loads while the files are read.
            node.host.nvml.begin()
        if name in parts:
            fields.add(name, *_try(part, node))
    if not WITH_DRIVER.isdisjoint(parts):
        answer, trouble = node.driver
        fields.add("nvml_gpus", None if trouble else len(answer["gpus"]), trouble)
    return fields.facts


def _try(part: Callable[[FactsNode], Any], node: FactsNode) -> Tuple[Any, str]:
    try:
        return part(node), ""
    except GpuFleetError as error:
        return None, str(error)
    except OSError as error:
        return None, why(error, error.filename or "a file")
    except Exception as error:
        return None, f"{type(error).__name__}: {error}; {DEFECT}"


def _system(node: FactsNode) -> Facts:
    files, fields = node.files, Fields(root=node.host.may_change)
    text, reason = read(files, os_release.PATH)
    release = os_release.parse(text or "")
    fields.add("distribution", release.get("ID"), reason or f"{os_release.PATH} has no ID")
    fields.add("distribution_version", release.get("VERSION_ID"), reason or f"{os_release.PATH} has no VERSION_ID")
    fields.add("kernel", *read(files, "/proc/sys/kernel/osrelease"))
    fields.add("command_line", *read(files, "/proc/cmdline"))
    fields.add("boot_id", *read(files, BOOT_ID))
    fields.add("reboot_reasons", [reason for reasons in reboot_noted(files).values() for reason in reasons])
    online, reason = read_as(files, "/sys/devices/system/cpu/online", cpulist.parse)
    fields.add("cpus", None if online is None else len(online), reason)
    fields.add("container", any(files.exists(path) for path in CONTAINER_MARKS))
    return fields.facts


# A part is imported when it is asked for: Ansible compiles what a module imports, on every run.


def _holders(node: FactsNode) -> Any:
    from . import holders

    return holders.gather(node.files)


def _block(node: FactsNode) -> Any:
    from . import block

    return block.gather(node.files)


def _memory(node: FactsNode) -> Any:
    from . import memory

    return memory.gather(node.files)


def _interrupts(node: FactsNode) -> Any:
    from . import interrupts

    return interrupts.gather(node.files, node.devices)


def _network(node: FactsNode) -> Any:
    from . import ports

    return ports.gather(node.files, node.devices, node.nic_links)


def _firmware(node: FactsNode) -> Any:
    from . import firmware

    return firmware.gather(node.files, node.devices)


def _gds(node: FactsNode) -> Any:
    from . import gds

    return gds.gather(node.host, node.devices)


def _engines(node: FactsNode) -> Any:
    from . import engines

    return engines.gather(node.host)


def _cdi(node: FactsNode) -> Any:
    from . import engines

    return engines.gather_cdi(node.files)


def _orchestrator(node: FactsNode) -> Any:
    from . import services

    return services.orchestrators(node.files)


def _owners(node: FactsNode) -> Any:
    from . import owners

    return owners.gather(node.files)


def _gpus(node: FactsNode) -> Any:
    from . import gpus

    return gpus.gather(node.files, node.devices, node.links, node.gpus, node.lacking)


def _topology(node: FactsNode) -> Any:
    from . import topology

    return topology.gather(node.files, node.devices, node.links, node.gpus)


def _driver(node: FactsNode) -> Any:
    from . import driver

    answer = node.driver[0]
    return driver.gather(node.files, answer["driver"], answer["gpus"], node.lacking)


def _health(node: FactsNode) -> Any:
    from . import health

    host = node.host
    return health.gather(host.commands, node.files, node.devices, node.gpus, node.lacking, root=host.may_change)


# In the order of reading: what asks the driver comes last, so that its library has had time to load.
PARTS: Mapping[str, Callable[[FactsNode], Any]] = {
    "holders": _holders,
    "block": _block,
    "memory": _memory,
    "interrupts": _interrupts,
    "network": _network,
    "firmware": _firmware,
    "gds": _gds,
    "engines": _engines,
    "cdi": _cdi,
    "orchestrator": _orchestrator,
    "owners": _owners,
    "gpus": _gpus,
    "topology": _topology,
    "driver": _driver,
    "health": _health,
}
AFTER_HOLDERS = "block"
WITH_DRIVER = frozenset(("gpus", "topology", "driver", "health"))
# These ask every process, or a program of NVIDIA that takes seconds.
ON_REQUEST = ("holders", "gds")
DEFAULT_PARTS = tuple(name for name in PARTS if name not in ON_REQUEST)


def answer_for(request: Mapping[str, Any], host: Host) -> Dict[str, Any]:
    """The result of ``gpu_node_info`` with these options. Raises ``DeclarationError``."""
    if request["binding"]:
        offer(host, request["binding"])
    return {"changed": False, **facts_answer(host, request["gather"], compressed=request["compress"])}


def facts_answer(host: Host, parts: Collection[str] = DEFAULT_PARTS, *, compressed: bool) -> Mapping[str, Any]:
    """The facts as ``gpu_node_info`` returns them; ``all`` among the parts stands for all."""
    parts = PARTS if ALL in parts else parts
    node = FactsNode(host, parts)
    facts = _gather(node, parts)
    lacking: Facts = {LACKS: []} if node.lacks_binding else {}
    if not compressed:
        return {"node": facts, **lacking}
    from ..compressed import compress

    return {"compressed": compress(facts), **lacking}
