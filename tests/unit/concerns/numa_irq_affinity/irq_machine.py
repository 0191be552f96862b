# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``numa_irq_affinity`` on machines whose interrupts follow the rules of the kernel, at any release of it.

The rules are those of kernel/irq/proc.c, kernel/irq/manage.c and net/core/net-sysfs.c.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._linux import cpulist
from ansible_collections.gpufleet.node.plugins.module_utils._linux.masks import parse_mask, render_mask
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.concern import CONCERN
from ansible_collections.gpufleet.node.tests.nodes.nodetree import FILE, LINK, Entry, Tree
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_settings.gpu_settings_machine import (
    BOOT_SERVICE,
    ENABLED,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity.irq_trees import (
    CPU,
    PCI,
    cpus,
    two_sockets,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity.irq_trees import machine as host_of
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity.irqbalance_machine import (
    LINK as BALANCED_AT_BOOT,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity.irqbalance_machine import (
    TRIXIE,
    VENDOR,
    Irqbalance,
)
from ansible_collections.gpufleet.node.tests.unit.support import KernelFiles

NOTE = "/run/gpufleet/numa_irq_affinity.json"
DECLARED = "/etc/gpufleet/declared.d/numa_irq_affinity.json"
BEFORE = "/var/lib/gpufleet/baseline/numa_irq_affinity.json"
ETH0, ETH1, DRIVE0, GPU0 = "0000:04:00.0", "0001:04:00.0", "0000:05:00.0", "0000:02:00.0"
LOCAL = {"match": {"class": ["gpu", "infiniband", "network", "nvme"]}}
HOME = [set(cpulist.parse("0-3,8-11")), set(cpulist.parse("4-7,12-15"))]


class IrqMachine:
    """``refuses`` are errors by the number of the interrupt or the path of the queue, which the kernel answers to every
    write; ``busy`` are how often one is busy yet.
    """

    def __init__(self, root: Path, *trees: Tree, boot_service: bool = True) -> None:
        self.root = root
        own: Tree = {"/proc/irq/default_smp_affinity": Entry(FILE, "ffff\n")}
        if boot_service:
            own.update({path: Entry(FILE, text) for path, text in BOOT_SERVICE.items()})
            own.update({path: Entry(LINK, target) for path, target in ENABLED.items()})
        self.host = host_of(root, own, *(trees or (two_sockets(),)))
        self.refuses: Dict[object, int] = {}
        self.busy: Dict[int, int] = {}
        self.host.files.rules.extend(
            [
                (r"/proc/irq/(\d+)/smp_affinity_list", self._set_affinity),
                (r".*/queues/[rt]x-\d+/([rx]ps)_cpus", self._set_steering),
            ]
        )

    # what the machine says

    def cpus(self, number: int) -> str:
        return self.host.files.read(f"/proc/irq/{number}/smp_affinity_list").strip()

    def of(self, address: str) -> Dict[str, str]:
        """The CPUs of every interrupt of a device, by the name of its handler."""
        found = {}
        for name in sorted(self.host.files.names(f"{PCI}/{address}/msi_irqs"), key=int):
            folder = self.root / "proc/irq" / name
            found.update({path.name: self.cpus(int(name)) for path in folder.iterdir() if path.is_dir()})
        return found

    def queue(self, interface: str, queue: str) -> str:
        """The CPUs that a queue is steered to, as a list."""
        file = "rps_cpus" if queue.startswith("rx") else "xps_cpus"
        text = self.host.files.read(f"/sys/class/net/{interface}/queues/{queue}/{file}")
        return cpulist.render(parse_mask(text))

    def writes(self) -> List[Tuple[str, str]]:
        """The writes into interrupts and queues since the last call, in order."""
        made = [(path, text) for kind, path, text in self.host.files.log if kind == "set"]
        self.host.files.log.clear()
        return made

    # what happens to it

    def renumber(self, address: str, *, by: int = 500, without: Sequence[str] = ()) -> None:
        """The driver gives its interrupts back and requests them again: other numbers, and the default CPUs."""
        folder = self.root / os.path.relpath(self.host.files.resolve(f"{PCI}/{address}/msi_irqs"), "/")
        for vector in sorted(folder.iterdir()):
            irq = self.root / "proc/irq" / vector.name
            handlers = [path.name for path in irq.iterdir() if path.is_dir()]
            vector.rename(folder / str(int(vector.name) + by))
            (irq / "smp_affinity_list").write_text("0-15\n")
            irq.rename(irq.with_name(str(int(vector.name) + by)))
            if set(handlers) & set(without):
                shutil.rmtree(irq.with_name(str(int(vector.name) + by)))
                (folder / str(int(vector.name) + by)).unlink()

    def reboot(self) -> None:
        """Everything that is not on disk is gone, and every driver has requested its interrupts anew."""
        shutil.rmtree(self.root / "run", ignore_errors=True)
        for number in self.host.files.names("/proc/irq"):
            if number.isdecimal():
                (self.root / "proc/irq" / number / "smp_affinity_list").write_text("0-15\n")

    def add(self, *trees: Tree) -> None:
        """Plug these in."""
        with TemporaryDirectory() as folder:
            host_of(Path(folder), *trees)
            shutil.copytree(folder, self.root, symlinks=True, dirs_exist_ok=True)

    # the kernel

    def _set_affinity(self, files: KernelFiles, path: re.Match[str], value: str) -> None:
        number = int(path[1])
        if self.busy.get(number):
            self.busy[number] -= 1
            raise refusal(errno.EBUSY, path[0])
        if number in self.refuses:
            raise refusal(self.refuses[number], path[0])
        wanted = cpulist.parse(value)
        if wanted - self._list("possible"):
            raise refusal(errno.ERANGE, path[0])
        if not wanted & self._list("online"):
            raise refusal(errno.EINVAL, path[0])
        files.store(path[0], cpulist.render(wanted))

    def _set_steering(self, files: KernelFiles, path: re.Match[str], value: str) -> None:
        if path[0] in self.refuses:
            raise refusal(self.refuses[path[0]], path[0])
        wanted = parse_mask(value)
        if path[1] == "rps" and wanted:
            # The masks of all kernels since 5.9: housekeeping CPUs alone.
            wanted -= self._list("isolated")
            if not wanted:
                raise refusal(errno.EINVAL, path[0])
        width = len(files.read(path[0]).strip().split(","))
        groups = render_mask(wanted).split(",")
        files.store(path[0], ",".join(["00000000"] * (width - len(groups)) + [group.zfill(8) for group in groups]))

    def _list(self, name: str) -> frozenset[int]:
        return cpulist.parse(self.host.files.read(f"{CPU}/{name}").strip())


class Balancing(Irqbalance):
    """irqbalance on an ``IrqMachine``: it sends to CPU 15 whatever its scripts do not keep from it, when it starts and
    at every ``scan``.
    """

    def __init__(self, machine: IrqMachine) -> None:
        super().__init__(machine.host, machine.root)
        self.machine = machine
        self.start()

    def run(self, words: Sequence[str], pid: int = 4711, cgroup: str = "/system.slice/irqbalance.service") -> None:
        super().run(words, pid, cgroup)
        policies = [word.partition("=")[2] for word in words if word.startswith("--policyscript=")]
        devices = self.host.files.names(PCI)
        self.banned = {address for address in devices if policies and self._asks(policies[-1], address)}
        self.scan()

    def scan(self) -> None:
        for address in self.host.files.names(PCI) if self.pid else ():
            for number in self.host.files.names(f"{PCI}/{address}/msi_irqs") if address not in self.banned else ():
                (self.root / f"proc/irq/{number}/smp_affinity_list").write_text("15\n")


def with_irqbalance() -> Tree:
    """What a distribution installs, on a machine that systemd runs."""
    return {
        VENDOR: Entry(FILE, TRIXIE),
        BALANCED_AT_BOOT: Entry(LINK, VENDOR),
        "/run/systemd/system/.keep": Entry(FILE),
        "/proc/2/comm": Entry(FILE, "kthreadd\n"),
        "/etc/udev/rules.d/README": Entry(FILE),
    }


def refusal(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def queues(address: str, interface: str, *, rx: int, tx: int, under: str, groups: int = 1) -> Tree:
    """The queues of an interface, steered to no CPU. A transmit queue that is the only one cannot be asked."""
    folder = f"/sys/devices/{under}/{address}/net/{interface}/queues"
    nobody = Entry(FILE, ",".join(["00000000"] * groups) + "\n")
    tree = {f"{folder}/rx-{number}/rps_cpus": nobody for number in range(rx)}
    tree.update({f"{folder}/tx-{number}/xps_cpus": nobody for number in range(tx) if tx > 1})
    tree.update({f"{folder}/tx-{number}/byte_queue_limits/limit": Entry(FILE, "0\n") for number in range(tx)})
    return tree


def of_eth0(*, rx: int = 2, tx: int = 2) -> Tree:
    """The queues of eth0 of ``two_sockets``."""
    return queues(ETH0, "eth0", rx=rx, tx=tx, under="pci0000:00/0000:00:02.0")


def isolating(text: str) -> Tree:
    """The CPUs of ``two_sockets`` with these isolated."""
    return cpus(
        "0-15",
        nodes={0: "0-3,8-11", 1: "4-7,12-15"},
        distances={0: "10 21", 1: "21 10"},
        siblings=[(core, core + 8) for core in range(8)],
        isolated=text,
    )


def params(*entries: Mapping[str, Any], **options: Any) -> Dict[str, Any]:
    return validated(CONCERN, {"interrupts": list(entries), **options})


def run(machine: IrqMachine, *entries: Mapping[str, Any], check_mode: bool = False, **options: Any) -> Outcome:
    """One run of the module; its error is raised."""
    outcome = converge(CONCERN, params(*entries, **options), machine.host, check_mode=check_mode)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def changes_of(outcome: Outcome, scope: Optional[str] = "effective") -> List[Tuple[str, str, Any, Any]]:
    """The changes of interrupts and queues."""
    return [
        (c.object, c.setting, c.before, c.after)
        for c in outcome.changes
        if c.scope == scope and not c.object.startswith("/")
    ]


def unmanaged_of(outcome: Outcome) -> Dict[Tuple[str, str], str]:
    return {(entry.object, entry.setting): entry.reason for entry in outcome.remaining.unmanaged}
