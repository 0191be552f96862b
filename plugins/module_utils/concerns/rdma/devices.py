# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RDMA devices and their ports, as sysfs and the configfs of rdma_cm have them.

Documentation/ABI/stable/sysfs-class-infiniband and Documentation/ABI/testing/configfs-rdma_cm. The traffic class of a
port is of the drivers of MLNX_OFED and DOCA alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from ..._core.errors import CannotLook
from ..._core.match import Candidate
from ..._core.regex import regex
from ..._core.setting import Scalar
from ..._core.value import field, frozen, replace
from ..._linux import pci_config
from ..._linux.kernel_modules import read_installed
from ..._linux.pci import chain
from . import lossless
from .spec import IN_CONFIGFS, ROCE_MODE, ROCE_TOS, SETTINGS, TRAFFIC_CLASS

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host

FOLDER = "/sys/class/infiniband"
RDMA_CM = "rdma_cm"
CONFIGFS = f"/sys/kernel/config/{RDMA_CM}"
ACTIVE = "ACTIVE"
# IB_NODE_CA of include/rdma/ib_verbs.h: the others speak iWARP, or no language that rdma_cm sets anything of.
CHANNEL_ADAPTER = "1"
ETHERNET = "Ethernet"
# As drivers/infiniband/core/cma_configfs.c reads and writes them.
MODES: Mapping[str, str] = {"v1": "IB/RoCE v1", "v2": "RoCE v2"}
FILES: Mapping[str, str] = {ROCE_MODE: "default_roce_mode", ROCE_TOS: "default_roce_tos"}
# A port has an address for each RoCE mode that it speaks, the first of them in the first places.
GIDS_READ = 8
# What takes the traffic class away again: traffic_class_store of mlx5.
NO_CLASS = "-1"
NO_CONFIGFS = f"{RDMA_CM} has no configfs in this kernel, or it is not mounted"
OF_OFED = "its driver does not have it, only those of MLNX_OFED and DOCA do"
_CLASS = regex(r"Global tclass=([0-9]+)")


@frozen
class Device:
    """One RDMA device. ``identity`` is its PCI address where it has one.

    ``relaxed_ordering`` is None, and ``redirecting`` empty, where the system does not show it to us.
    """

    name: str
    identity: str
    path: str
    driver: str
    netdevs: Tuple[str, ...] = ()
    numa_node: str = ""
    ports: Tuple[str, ...] = ()
    relaxed_ordering: Optional[bool] = None
    redirecting: Tuple[str, ...] = ()

    @property
    def configfs(self) -> str:
        return f"{CONFIGFS}/{self.name}"


@frozen
class Port:
    """One port of a device that is declared, or that was changed.

    ``declared`` are its settings. ``values`` has those that it has, None for one never set. ``lacking`` has the
    reasons why it does not have others, and ``unread`` those why others could not be read. ``modes`` are the RoCE modes
    that it has addresses for, ``netdev`` is its network interface, and ``managed`` whether the firmware sets the
    priorities of that.
    """

    device: Device
    number: str
    state: str
    rate: str
    link_layer: str
    declared: Mapping[str, Scalar]
    values: Mapping[str, Scalar]
    lacking: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    modes: Tuple[str, ...] = ()
    ready: bool = False
    netdev: str = ""
    managed: bool = False

    @property
    def name(self) -> str:
        """As NCCL_IB_HCA has it."""
        return f"{self.device.name}:{self.number}"

    @property
    def identity(self) -> str:
        return f"{self.device.identity}:{self.number}"

    @property
    def starts_with(self) -> Mapping[str, Scalar]:
        """What rdma_cm has for a port that nobody set anything of: cma_add_one of drivers/infiniband/core/cma.c."""
        return {ROCE_MODE: "v1" if self.modes == ("v1",) else "v2", ROCE_TOS: 0}

    def path_of(self, setting: str) -> str:
        if setting == TRAFFIC_CLASS:
            return f"{FOLDER}/{self.device.name}/tc/{self.number}/traffic_class"
        if setting.startswith(lossless.ECN):
            return lossless.ecn_path(self.netdev, setting)
        return f"{self.device.configfs}/ports/{self.number}/{FILES[setting]}"


def text_of(setting: str, value: Scalar) -> str:
    """A value as the kernel takes it."""
    if setting == ROCE_MODE:
        return MODES[str(value)]
    if setting.startswith(lossless.ECN):
        return "1" if value == lossless.ON else "0"
    return NO_CLASS if value is None else str(value)


def names(files: Files) -> Tuple[str, ...]:
    return tuple(name for name in files.names(FOLDER) if files.is_folder(f"{FOLDER}/{name}"))


def read(files: Files, name: str) -> Device:
    path = files.resolve(f"{FOLDER}/{name}")
    addresses = chain(path)
    ports = files.names(f"{path}/ports")
    found = dict.fromkeys(_read(files, f"{path}/ports/{port}/gid_attrs/ndevs/0") for port in ports)
    found.update(dict.fromkeys(files.names(f"{path}/device/net")))
    node = _read(files, f"{path}/device/numa_node")
    return Device(
        name=name,
        identity=addresses[-1] if addresses else name,
        path=path,
        driver=files.link(f"{path}/device/driver").rpartition("/")[2],
        netdevs=tuple(netdev for netdev in found if netdev),
        numa_node="" if node.startswith("-") else node,
        ports=ports,
    )


def candidate(device: Device) -> Candidate:
    """What a device can be matched by. One that software made must be named, by its own name."""
    if device.identity == device.name:
        return Candidate(device.name, {"name": (device.name,), "netdev": device.netdevs}, named_by="name")
    values: Dict[str, Tuple[str, ...]] = {
        "name": (device.name,),
        "driver": (device.driver,),
        "pci_address": (device.identity,),
        "netdev": device.netdevs,
        "numa_node": (device.numa_node,),
    }
    return Candidate(device.name, {key: texts for key, texts in values.items() if any(texts)})


def with_ordering(files: Files, device: Device) -> Device:
    """With what of PCI decides how fast it reaches GPUs; only root is shown that."""
    addresses = chain(device.path)
    relaxed: Optional[bool] = None
    redirecting: List[str] = []
    try:
        for address in addresses[1:]:
            config = pci_config.read_config(files, f"{device.path.partition(address)[0]}{address}")
            if address == addresses[-1]:
                relaxed = pci_config.relaxed_ordering(config)
            elif pci_config.redirects_of(config):
                redirecting.append(address)
    except OSError:
        return device
    return replace(device, relaxed_ordering=relaxed, redirecting=tuple(redirecting))


def read_port(host: Host, device: Device, number: str, declared: Mapping[str, Scalar], *, ready: bool = False) -> Port:
    files = host.files
    folder = f"{device.path}/ports/{number}"
    netdev = _read(files, f"{folder}/gid_attrs/ndevs/0")
    state, physical = _named(_read(files, f"{folder}/state")), _named(_read(files, f"{folder}/phys_state"))
    link_layer = _read(files, f"{folder}/link_layer")
    port = Port(
        device=device,
        number=number,
        state=state if state == ACTIVE else f"{state or 'unknown'}, {physical or 'unknown'}",
        rate=_read(files, f"{folder}/rate"),
        link_layer=link_layer,
        declared=declared,
        values={},
        modes=_modes(files, folder) if ROCE_MODE in declared else (),
        ready=ready,
        netdev=netdev or (device.netdevs[0] if len(device.netdevs) == 1 else ""),
    )
    values: Dict[str, Scalar] = {}
    lacking: Dict[str, str] = {}
    unread: Dict[str, str] = {}
    for setting in SETTINGS:
        if setting not in declared:
            continue
        reason = _why_lacking(files, port, setting)
        if reason == NO_CONFIGFS:
            unread[setting] = reason
        elif reason:
            lacking[setting] = reason
        else:
            values[setting] = _value(setting, port.path_of(setting), _read(files, port.path_of(setting)))
    managed = False
    by_netdev = [setting for setting in declared if lossless.is_about(setting)]
    no_netdev = _why_no_priorities(files, port)
    if by_netdev and no_netdev:
        # An interface that is away, such as in a pod, comes back with its values.
        is_away = not port.netdev and port.link_layer == ETHERNET
        (unread if is_away else lacking).update(dict.fromkeys(by_netdev, no_netdev))
    elif by_netdev:
        shown = lossless.read(host, port.netdev, by_netdev)
        managed = shown.managed
        values.update(shown.values)
        for setting in by_netdev:
            if setting.startswith(lossless.ECN):
                enabled = _read(files, port.path_of(setting))
                if enabled:
                    values[setting] = lossless.ON if enabled == "1" else lossless.OFF
                else:
                    lacking[setting] = OF_OFED
            elif shown.lacking == lossless.NOT_INSTALLED:
                unread[setting] = shown.lacking
            elif setting not in values:
                lacking[setting] = shown.lacking
    return replace(port, values=values, lacking=lacking, unread=unread, managed=managed)


def _why_no_priorities(files: Files, port: Port) -> str:
    """Why dcb can say nothing of a port's interface; empty where it can."""
    if not port.netdev:
        return "it has no network interface"
    if files.is_folder(f"/sys/class/net/{port.netdev}/bonding"):
        return f"it is over the bond {port.netdev}, whose ports have priorities of their own"
    return ""


def is_loaded(files: Files) -> bool:
    """Whether rdma_cm is there, with its configfs."""
    return files.is_folder(CONFIGFS)


def _why_lacking(files: Files, port: Port, setting: str) -> str:
    """Why a port does not have a setting; empty where it has it."""
    if setting not in IN_CONFIGFS:
        there = files.exists(port.path_of(setting))
        return "" if there else OF_OFED
    if port.link_layer != ETHERNET:
        return f"its link layer is {port.link_layer or 'unknown'}, and RoCE needs Ethernet"
    if not _read(files, f"{port.device.path}/node_type").startswith(CHANNEL_ADAPTER):
        return "it does not speak RoCE"
    if is_loaded(files):
        return ""
    if files.exists(f"/sys/module/{RDMA_CM}"):
        return NO_CONFIGFS
    installed = read_installed(files)
    return "" if installed.dependencies(RDMA_CM) is not None else f"this kernel has no {RDMA_CM}"


def _modes(files: Files, folder: str) -> Tuple[str, ...]:
    texts = {_read(files, f"{folder}/gid_attrs/types/{index}") for index in range(GIDS_READ)}
    return tuple(mode for mode, text in MODES.items() if text in texts)


def _value(setting: str, path: str, text: str) -> Scalar:
    """None where nothing is set. Raises ``CannotLook`` for what these files never say."""
    if setting == TRAFFIC_CLASS:
        found = _CLASS.match(text)
        return int(found[1]) if found else None
    if not text:
        return None
    if setting == ROCE_TOS and text.isdecimal():
        return int(text)
    modes = [mode for mode, words in MODES.items() if setting == ROCE_MODE and words == text]
    if not modes:
        raise CannotLook(f"read {setting} in {{}}", object=path, cause=f"{text!r} is not a known value of {setting}")
    return modes[0]


def _read(files: Files, path: str) -> str:
    """What a file of the kernel says. One of an address that is not set refuses to be read."""
    try:
        return (files.read_optional(path) or "").strip()
    except OSError:
        return ""


def _named(text: str) -> str:
    """The name of a state that is shown as ``4: ACTIVE``."""
    return text.partition(": ")[2]
