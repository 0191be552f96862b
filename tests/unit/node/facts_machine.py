# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of recorded machines: what is expected of each, as files that a person has read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Sequence, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

if TYPE_CHECKING:
    from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine

EXPECTED = nodetree.FOLDER / "expected"
DESCRIPTIONS = nodetree.FOLDER / "machines"
# What the simulator plays on each tree: a machine that it ships, or one described beside the trees; none has no driver.
MACHINES: Dict[str, Optional[str]] = {
    "hgx-2socket": "hgx-h100-80gb-8",
    "single-socket": str(DESCRIPTIONS / "single-socket.json"),
    "vm-without-numa": None,
    "grace": str(DESCRIPTIONS / "grace.json"),
    "rhel9-bls": None,
}
LINE = 120
LARGE = "large"
LARGE_CPUS = 256
LARGE_IRQS = 512


class Trees:
    """Recorded trees, each expanded once: nobody writes to them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: Dict[str, Path] = {}

    def __call__(self, name: str) -> Path:
        if name not in self._made:
            tree = large_tree() if name == LARGE else nodetree.load(name)
            self._made[name] = nodetree.expand(tree, self._folder / name)
        return self._made[name]


def quiet_host(root: Path) -> FakeHost:
    """A machine of these files without a driver, whose kernel has nothing to say."""
    host = FakeHost(root)
    host.commands.programs["dmesg"] = lambda _argv: Completed(0, "", "")
    return host


def gpu_host(gpu_machine: MakeMachine, root: Path, kind: str = "hgx-h100-80gb-8") -> GpuMachine:
    """The same with the simulator as its driver."""
    machine = gpu_machine(kind)
    machine.host.nvml.close()
    machine.host = quiet_host(root)
    machine.connect()
    return machine


def render(value: Any, indent: int = 0) -> str:
    """JSON in which whatever is short has one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= LINE or not isinstance(value, (dict, list)) or not value:
        return line
    space = " " * (indent + 1)
    if isinstance(value, dict):
        lines = [f"{space}{json.dumps(key)}: {render(entry, indent + 1)}" for key, entry in value.items()]
    else:
        lines = [f"{space}{render(entry, indent + 1)}" for entry in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n" + ",\n".join(lines) + f"\n{' ' * indent}{end}"


def large_tree() -> nodetree.Tree:
    """The HGX node with 256 CPUs, 16 NVMe drives and 512 interrupts, counted for every CPU."""
    tree = dict(nodetree.load("hgx-2socket"))
    tree["/sys/devices/system/cpu/online"] = nodetree.Entry(nodetree.FILE, f"0-{LARGE_CPUS - 1}\n")
    tree.update(list(_copies_of_drives(tree)))
    lines = tree["/proc/interrupts"].text.splitlines()
    numbered = [line.partition(":") for line in lines if line.partition(":")[0].strip().isdecimal()]
    other = "          7  IR-PCI-MSIX-0000:00:11.0    0-edge      other"
    numbered += [(str(number), ":", other) for number in _free(tree)]
    tree["/proc/interrupts"] = nodetree.Entry(nodetree.FILE, "".join(_interrupt_lines(numbered[:LARGE_IRQS])))
    return tree


def _free(tree: nodetree.Tree) -> Iterator[int]:
    """Numbers that no interrupt of the tree has, with their places in /proc/irq."""
    for number in range(1000, 1000 + LARGE_IRQS):
        tree[f"/proc/irq/{number}/smp_affinity_list"] = nodetree.Entry(nodetree.FILE, f"0-{LARGE_CPUS - 1}\n")
        yield number


def _interrupt_lines(numbered: Sequence[Tuple[str, str, str]]) -> Iterator[str]:
    yield "      " + "".join(f"{f'CPU{cpu}':>11}" for cpu in range(LARGE_CPUS)) + "\n"
    for number, _colon, rest in numbered:
        count, _blank, handler = rest.strip().partition(" ")
        yield f"{number.strip():>5}: {count:>10}" + f"{0:>11}" * (LARGE_CPUS - 1) + f" {handler}\n"
    yield "  NMI:" + f"{3:>11}" * LARGE_CPUS + "   Non-maskable interrupts\n"


def _copies_of_drives(tree: nodetree.Tree) -> Iterator[Tuple[str, nodetree.Entry]]:
    """Every drive once more, as the next device on its bus and with a number that nobody has yet."""
    links = {path.rpartition("/")[2]: entry.text for path, entry in tree.items() if path.startswith("/sys/class/nvme/")}
    for name, link in links.items():
        address = link.split("/")[-3]
        renaming = {
            address: address.replace(":00.0", ":01.0"),
            f"{name}n1": f"nvme{int(name[4:]) + len(links)}n1",
            f"/{name}": f"/nvme{int(name[4:]) + len(links)}",
        }
        for path, entry in tree.items():
            copy, text = path, entry.text
            for old, new in renaming.items():
                copy = copy.replace(old, new)
                text = text.replace(old, new) if entry.kind == nodetree.LINK else text
            if copy != path and not path.startswith("/proc/"):
                yield copy, nodetree.Entry(entry.kind, text, entry.mode)
