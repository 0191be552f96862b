# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with RDMA devices: sysfs, the configfs of rdma_cm, and the modules for the memory of GPUs.

Two RoCE cards with the driver of MLNX_OFED, of which somebody has made a folder in configfs for one, an InfiniBand card
whose link is down, and a device of rdma_rxe. rdma_cm does as drivers/infiniband/core/cma_configfs.c, which was tried
with rdma_rxe of Debian 12, and the traffic class as traffic_class_store of mlx5 in MLNX_OFED. dcb prints as dcb_pfc.c,
dcb_app.c and dcb_dcbx.c of iproute2 do.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.rdma.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_settings.gpu_settings_machine import (
    BOOT_SERVICE,
    ENABLED,
)
from ansible_collections.gpufleet.node.tests.unit.support import KernelFiles, build, shown_by_systemctl

CLASS = "/sys/class/infiniband"
CONFIGFS = "/sys/kernel/config/rdma_cm"
# What the kernel has for a port is in no file while the device has no folder in configfs. Here it is, so that a test
# sees all of the machine in one tree.
KERNEL = "/sys/rdma_cm"
# What drivers have for dcb(8): the priorities with PFC, and pairs of DSCP and priority.
DCB = "/sys/dcb"
RELEASE = "6.8.0"
V1, V2 = "IB/RoCE v1", "RoCE v2"
CARDS = {
    "mlx5_0": ("0000:17:00.0", "eth0", "0"),
    "mlx5_1": ("0000:3b:00.0", "eth1", "1"),
    "mlx5_2": ("0000:5e:00.0", "ib0", "1"),
}
BRIDGE = "0000:16:01.0"
MODULES = f"/lib/modules/{RELEASE}/modules.dep"
PEERMEM = "/sys/module/nvidia_peermem"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Tue Dec 10 2024\n"


def config(*, relaxed: bool = False, redirects: bool = False) -> str:
    """A configuration space with the capability of PCI Express behind another one, and ACS."""
    space = bytearray(4096)
    space[0x06], space[0x34] = 0x10, 0x40
    space[0x40:0x42] = bytes((0x01, 0x60))
    space[0x60:0x62] = bytes((0x10, 0x00))
    space[0x68] = 0x10 if relaxed else 0x00
    space[0x100:0x104] = (0x000D | 1 << 16).to_bytes(4, "little")
    space[0x106] = 0b1100 if redirects else 0
    return space.decode("utf-8", "surrogateescape")


def place(name: str) -> str:
    if name in CARDS:
        return f"/sys/devices/pci0000:15/{BRIDGE}/{CARDS[name][0]}/infiniband/{name}"
    return f"/sys/devices/virtual/infiniband/{name}"


def files() -> Dict[str, str]:
    found = {
        "/run/systemd/system/.keep": "",
        "/run/udev/control": "",
        "/etc/systemd/system/.keep": "",
        **BOOT_SERVICE,
        "/proc/sys/kernel/osrelease": f"{RELEASE}\n",
        MODULES: "updates/dkms/nvidia-peermem.ko.zst:\nkernel/drivers/infiniband/core/rdma_cm.ko.zst:\n",
        "/sys/module/rdma_cm/refcnt": "1\n",
        f"{CONFIGFS}/.keep": "",
        "/proc/driver/nvidia/version": PROPRIETARY,
        f"/sys/devices/pci0000:15/{BRIDGE}/config": config(redirects=True),
    }
    for name in (*CARDS, "rxe0"):
        folder, infiniband = place(name), name == "mlx5_2"
        port = f"{folder}/ports/1"
        found.update(
            {
                f"{folder}/node_type": "1: CA\n",
                f"{port}/state": "1: DOWN\n" if infiniband else "4: ACTIVE\n",
                f"{port}/phys_state": "2: Polling\n" if infiniband else "5: LinkUp\n",
                f"{port}/rate": "400 Gb/sec (4X NDR)\n",
                f"{port}/link_layer": "InfiniBand\n" if infiniband else "Ethernet\n",
            }
        )
        if name in CARDS:
            device = os.path.dirname(os.path.dirname(folder))
            found[f"{device}/numa_node"] = f"{CARDS[name][2]}\n"
            found[f"{device}/net/{CARDS[name][1]}/mtu"] = "9000\n"
            found[f"{device}/config"] = config(relaxed=name == "mlx5_0")
        else:
            found[f"{port}/gid_attrs/ndevs/0"] = "eth2\n"
        if not infiniband:
            modes = (V1, V2) if name in CARDS else (V2,)
            found.update({f"{port}/gid_attrs/types/{index}": f"{mode}\n" for index, mode in enumerate(modes)})
            found[f"{KERNEL}/{name}"] = json.dumps({"default_roce_mode": V2, "default_roce_tos": "0"})
        if name in ("mlx5_0", "mlx5_1"):
            found[f"{folder}/tc/1/traffic_class"] = ""
            netdev = CARDS[name][1]
            found[f"{DCB}/{netdev}"] = json.dumps({"pfc": [], "dscp": [[48, 6]]})
            for point in ("np", "rp"):
                found.update({f"/sys/class/net/{netdev}/ecn/roce_{point}/enable/{n}": "0\n" for n in range(8)})
    found[f"{KERNEL}/mlx5_1"] = json.dumps({"default_roce_mode": V1, "default_roce_tos": "0"})
    found[f"{CONFIGFS}/mlx5_1/ports/1/default_roce_mode"] = f"{V1}\n"
    found[f"{CONFIGFS}/mlx5_1/ports/1/default_roce_tos"] = "0\n"
    return found


def links() -> Dict[str, str]:
    found = {f"{CLASS}/{name}": place(name) for name in (*CARDS, "rxe0")}
    for name, (address, _netdev, _node) in CARDS.items():
        found[f"{place(name)}/device"] = f"../../../{address}"
        found[f"{os.path.dirname(os.path.dirname(place(name)))}/driver"] = "/sys/bus/pci/drivers/mlx5_core"
    return {**found, **ENABLED}


class Machine:
    """``peermem_says`` is what modprobe says of nvidia_peermem; empty where it loads. ``dcbx`` are flags of DCBX."""

    def __init__(self, root: Path, more: Optional[Mapping[str, str]] = None) -> None:
        self.host = build(root, {**files(), **(more or {})}, links())
        self.peermem_says = ""
        self.dcbx = {"host": True, "ieee": True}
        for name in ("dcb", "mkdir", "modprobe", "rmdir", "rmmod", "systemctl", "udevadm"):
            self.host.commands.programs[name] = getattr(self, name)
        self.host.files.rules += [
            (rf"{CONFIGFS}/([^/]+)/ports/1/(default_roce_mode|default_roce_tos)", self._write_configfs),
            (r"/sys/devices/.*/tc/1/traffic_class", self._write_class),
        ]

    @property
    def root(self) -> Path:
        return Path(self.host.files.root)

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    # --- what the kernel does ---

    def kernel(self, device: str) -> Dict[str, str]:
        """What rdma_cm has for the port of a device, shown or not."""
        found: Dict[str, str] = json.loads(self.path(f"{KERNEL}/{device}").read_text())
        return found

    def traffic_class(self, device: str) -> str:
        return self.path(f"{place(device)}/tc/1/traffic_class").read_text().strip()

    def _write_configfs(self, kernel: KernelFiles, path: re.Match[str], value: str) -> None:
        device, name = path[1], path[2]
        types = self.path(f"{place(device)}/ports/1/gid_attrs/types").iterdir()
        if name == "default_roce_mode" and value not in {one.read_text().strip() for one in types}:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path[0])
        self.path(f"{KERNEL}/{device}").write_text(json.dumps({**self.kernel(device), name: value}))
        kernel.store(path[0], value)

    def _write_class(self, kernel: KernelFiles, path: re.Match[str], value: str) -> None:
        # Rules for single addresses are shown below the class that all have.
        rules = [line for line in kernel.read(path[0]).splitlines() if not line.startswith("Global")]
        lines = ([f"Global tclass={value}"] if int(value) >= 0 else []) + rules
        self.path(kernel.resolve(path[0])).write_text("".join(f"{line}\n" for line in lines))

    # --- programs ---

    def dcb(self, argv: Sequence[str]) -> Completed:
        words = [word for word in argv[1:] if word != "-j"]
        (about, verb, _dev, netdev), rest = words[:4], words[4:]
        path = self.path(f"{DCB}/{netdev}")
        if not path.exists():
            return Completed(255, "", "Attribute read: Operation not supported\n")
        state = json.loads(path.read_text())
        if verb == "show":
            shown = {
                "pfc": {"pfc_cap": 8, "macsec_bypass": False, "delay": 0},
                "app": {"dscp_prio": state["dscp"]} if state["dscp"] else {},
                "dcbx": self.dcbx,
            }[about]
            if about == "pfc":
                shown["prio_pfc"] = [priority in state["pfc"] for priority in range(8)]
            return Completed(0, json.dumps(shown) + "\n", "")
        mappings = [word.split(":") for word in rest[1:]]
        if about == "pfc":
            assert mappings[0] == ["all", "off"]
            state["pfc"] = [int(priority) for priority, _on in mappings[1:]]
        else:
            pairs = [[int(code), int(priority)] for code, priority in mappings]
            codes = {code for code, _priority in pairs}
            left = [pair for pair in state["dscp"] if (pair not in pairs if verb == "del" else pair[0] not in codes)]
            state["dscp"] = sorted(left + ([] if verb == "del" else pairs))
        path.write_text(json.dumps(state))
        return Completed(0, "", "")

    def lossless(self, netdev: str) -> Dict[str, Any]:
        """What dcb has for an interface, and the priorities with ECN."""
        found: Dict[str, Any] = json.loads(self.path(f"{DCB}/{netdev}").read_text())
        for point in ("np", "rp"):
            folder = self.path(f"/sys/class/net/{netdev}/ecn/roce_{point}/enable")
            found[point] = [n for n in range(8) if (folder / str(n)).read_text() == "1\n"]
        return found

    def mkdir(self, argv: Sequence[str]) -> Completed:
        device = argv[-1].rpartition("/")[2]
        if not self.path(CONFIGFS).is_dir() or not self.path(place(device)).is_dir():
            return Completed(1, "", f"mkdir: cannot create directory {argv[-1]}: No such device\n")
        port = self.path(f"{argv[-1]}/ports/1")
        port.mkdir(parents=True)
        for name, value in self.kernel(device).items():
            (port / name).write_text(f"{value}\n")
        return Completed(0, "", "")

    def rmdir(self, argv: Sequence[str]) -> Completed:
        shutil.rmtree(self.path(argv[1]))
        return Completed(0, "", "")

    def modprobe(self, argv: Sequence[str]) -> Completed:
        if argv[1] == "nvidia_peermem":
            if self.peermem_says:
                return Completed(1, "", self.peermem_says)
            self.path(PEERMEM).mkdir()
            self.path(f"{PEERMEM}/refcnt").write_text("0\n")
        else:
            assert argv[1] == "rdma_cm"
            self.path(CONFIGFS).mkdir(parents=True)
        return Completed(0, "", "")

    def rmmod(self, argv: Sequence[str]) -> Completed:
        shutil.rmtree(self.path(PEERMEM))
        return Completed(0, "", "")

    def systemctl(self, argv: Sequence[str]) -> Completed:
        return shown_by_systemctl(argv) if argv[1] == "show" else Completed(0, "", "")

    def udevadm(self, argv: Sequence[str]) -> Completed:
        return Completed(0, "", "")

    def reboot(self) -> None:
        """What is in the kernel is gone, and the devices are as at first."""
        shutil.rmtree(self.path(CONFIGFS))
        shutil.rmtree(self.path(PEERMEM), ignore_errors=True)
        self.path(CONFIGFS).mkdir()
        for device in ("mlx5_0", "mlx5_1", "rxe0"):
            state = {"default_roce_mode": V2, "default_roce_tos": "0"}
            self.path(f"{KERNEL}/{device}").write_text(json.dumps(state))
        for device in ("mlx5_0", "mlx5_1"):
            self.path(f"{place(device)}/tc/1/traffic_class").write_text("")

    def run(self, *devices: Mapping[str, Any], check_mode: bool = False, **more: Any) -> Outcome:
        params = {"devices": [dict(device) for device in devices], **more}
        validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate(params)
        assert validated.error_messages == []
        outcome = converge(CONCERN, validated.validated_parameters, self.host, check_mode=check_mode)
        if outcome.error is not None:
            raise outcome.error
        return outcome
