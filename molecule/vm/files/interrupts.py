# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interrupts as the kernel has them, and what happens to them. Read from /proc and sysfs, without the collection.

interrupts.py settled DEVICES  waits until so many devices are there and all is where it belongs, else ends with 1
interrupts.py queues           changes the queues of the NIC on NUMA node 1 as an administrator does, then the same
interrupts.py rebind DEVICES   gives the driver of that NIC, and of a drive there that is part of no array, anew
interrupts.py scans            lets irqbalance look at them three times
interrupts.py before           prints every interrupt, with its CPUs, and every queue, with its masks

What belongs where: ``numa_irq_affinity_*`` in inventory/fleet.yml.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Callable, Dict, FrozenSet, Iterator, List, NamedTuple, Tuple

PCI = Path("/sys/bus/pci/devices")
IRQ = Path("/proc/irq")
LEFT_OUT = {0}
# Seconds where a processor is a processor. An emulated one on a busy host has taken a minute for the service alone.
SECONDS = 180.0
SCANS = 3
ATTEMPTS = 3
BALANCE_SECONDS = 2
ARGUMENTS = Path("/etc/default/irqbalance")
# With --debug it draws this line at the begin of every scan.
SCAN_LINE = "-" * 60
UNIT = "gpufleet-interrupts.service"
# There while it works. A look at it costs nothing; systemctl takes the emulated processor that the unit waits for.
GROUP = Path("/sys/fs/cgroup/system.slice") / UNIT
# What an NVMe drive is part of.
HOLDERS = "nvme/nvme*/nvme*n*/holders/*"

Cpus = FrozenSet[int]


class Interrupt(NamedTuple):
    """``ours`` to say where it goes; the kernel places the queues of NVMe drives."""

    address: str
    name: str
    cpus: Cpus
    ours: bool


def output(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def output_of_any(*command: str) -> str:
    """The same whatever the exit status."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()


def cpus_of(text: str) -> Cpus:
    """From the kernel's list format."""
    ranges = [part.partition("-") for part in text.strip().split(",") if part]
    return frozenset(cpu for first, _dash, last in ranges for cpu in range(int(first), int(last or first) + 1))


def mask(path: Path) -> Cpus:
    number = int(path.read_text().replace(",", ""), 16)
    return frozenset(cpu for cpu in range(number.bit_length()) if number >> cpu & 1)


def declared() -> List[Path]:
    """The NICs and NVMe drives of both NUMA nodes; not the NIC that we come in by, which has none."""
    return [
        folder
        for folder in sorted(PCI.iterdir())
        if (folder / "class").read_text().startswith(("0x0200", "0x010802"))
        and int((folder / "numa_node").read_text()) >= 0
    ]


def belong(folder: Path) -> Cpus:
    return cpus_of((folder / "local_cpulist").read_text()) - LEFT_OUT


def interrupts_of(folder: Path) -> Iterator[Interrupt]:
    for number in sorted(int(entry.name) for entry in folder.glob("msi_irqs/*")):
        for handler in (IRQ / str(number)).glob("*/"):
            ours = not re.fullmatch(r"nvme\d+q[1-9]\d*", handler.name)
            cpus = cpus_of((IRQ / str(number) / "smp_affinity_list").read_text())
            yield Interrupt(folder.name, handler.name, cpus, ours)


def queues_of(folder: Path, kind: str) -> List[Path]:
    return sorted(folder.glob(f"virtio*/net/*/queues/{kind}-*"), key=lambda path: int(path.name[3:]))


def is_nic(folder: Path) -> bool:
    return (folder / "class").read_text().startswith("0x02")


def on_node(number: int, *, nic: bool) -> Path:
    """The first of them that can lose its driver: an array would stay without a drive that did."""
    found = [folder for folder in declared() if int((folder / "numa_node").read_text()) == number]
    return next(folder for folder in found if is_nic(folder) == nic and not list(folder.glob(HOLDERS)))


def wrong(devices: int) -> List[str]:
    """What is not where it belongs."""
    there = declared()
    found = [] if len(there) == devices else [f"{len(there)} devices"]
    users: Counter[int] = Counter()
    for folder in there:
        cpus = belong(folder)
        users.update(dict.fromkeys(cpus, 0))
        own = list(interrupts_of(folder))
        if not own:
            found.append(f"{folder.name}: no interrupts")
        for interrupt in own:
            if interrupt.ours:
                users.update(interrupt.cpus)
                if len(interrupt.cpus) != 1 or not interrupt.cpus <= cpus:
                    found.append(f"{folder.name} {interrupt.name}: {sorted(interrupt.cpus)}")
        if is_nic(folder) and int((folder / "numa_node").read_text()) == 1:
            found += wrong_queues(folder, cpus)
    second = {cpu: count for cpu, count in users.items() if cpu >= 2}
    if not found and max(second.values()) - min(second.values()) > 1:
        found.append(f"unevenly on the CPUs of NUMA node 1: {second}")
    return found


def wrong_queues(folder: Path, cpus: Cpus) -> List[str]:
    """Receive queues that do not hand packets to all CPUs, and transmit queues to which not each CPU is dealt once."""
    found = []
    receive, transmit = queues_of(folder, "rx"), queues_of(folder, "tx")
    for queue in receive:
        if mask(queue / "rps_cpus") != cpus:
            found.append(f"{folder.name} {queue.name}: {sorted(mask(queue / 'rps_cpus'))}")
    # The only queue of an interface has no mask.
    if len(transmit) > 1:
        dealt = [cpu for queue in transmit for cpu in mask(queue / "xps_cpus")]
        if sorted(dealt) != sorted(cpus):
            found.append(f"{folder.name} tx: {dealt}")
    return found


def wait_until_settled(devices: int) -> float:
    """How long it took, in seconds; until the service has nothing more to do."""
    began = time.monotonic()
    while True:
        found = [f"{UNIT} runs"] if GROUP.exists() else wrong_now(devices)
        # Its exit status is the same for a unit that is starting, as this one is while it works, and for one at rest.
        if not found and output_of_any("systemctl", "is-active", UNIT) in ("inactive", "failed"):
            return round(time.monotonic() - began, 1)
        if time.monotonic() >= began + SECONDS:
            sys.exit("\n".join(found or [f"{UNIT} runs"]))
        time.sleep(0.5)


def wrong_now(devices: int) -> List[str]:
    """The same where a device may go meanwhile."""
    try:
        return wrong(devices)
    except OSError as error:
        return [str(error)]


def disturbed(goal: str, devices: int, disturb: Callable[[], None]) -> Dict[str, object]:
    """What was wrong at once, without which nothing would be proven, and how long that lasted.

    It is done again where the service was faster than the look, or udev gave an interface its name meanwhile.
    """
    for _attempt in range(ATTEMPTS):
        disturb()
        try:
            found = wrong(devices)
        except OSError:
            found = []
        seconds = wait_until_settled(devices)
        if found:
            return {"what": goal, "wrong": len(found), "seconds": seconds}
    sys.exit(f"{goal}: everything is still where it belongs")


def queues() -> Iterator[Dict[str, object]]:
    folder = on_node(1, nic=True)
    interface = queues_of(folder, "rx")[0].parent.parent.name
    all_queues = len(queues_of(folder, "rx"))
    if all_queues == 1:
        yield {"what": "ethtool -L", "not run": "the NIC has one queue, as this host lets nobody create taps"}
        return

    def give(number: int) -> None:
        output("ethtool", "-L", interface, "combined", str(number))
        if len(queues_of(folder, "rx")) != number:
            sys.exit(f"{interface} has not {number} queues")

    def take_them_and_give(number: int) -> None:
        give(1 + all_queues - number)
        wait_until_settled(4)
        give(number)

    for number in (1, all_queues):
        yield disturbed(f"ethtool -L {interface} combined {number}", 4, partial(take_them_and_give, number))


def rebind(devices: int) -> Iterator[Dict[str, object]]:
    for nic in (True, False):
        folder = on_node(1, nic=nic)
        driver = (folder / "driver").resolve()
        before = {interrupt.name for interrupt in interrupts_of(folder)}
        disturb = partial(bind_anew, folder, driver, len(before))
        yield disturbed(f"bind {folder.name} to {driver.name}", devices, disturb)


def bind_anew(folder: Path, driver: Path, interrupts: int) -> None:
    (driver / "unbind").write_text(folder.name)
    if list(interrupts_of(folder)):
        sys.exit(f"{folder.name} has interrupts without a driver")
    (driver / "bind").write_text(folder.name)
    while len(list(interrupts_of(folder))) < interrupts:
        time.sleep(0.1)


def places() -> Dict[Tuple[str, str], Cpus]:
    """Those that we place, by address and name."""
    return {(one.address, one.name): one.cpus for folder in declared() for one in interrupts_of(folder) if one.ours}


def said_since(start: float) -> Iterator[str]:
    """What irqbalance tells the journal, as it comes, for ``SECONDS``."""
    command = ["timeout", f"{SECONDS:.0f}", "journalctl", "--follow", "--no-tail", "--unit=irqbalance", "--output=cat"]
    with subprocess.Popen([*command, f"--since=@{start:.3f}"], stdout=subprocess.PIPE, text=True) as journal:
        try:
            yield from journal.stdout or ()
        finally:
            journal.terminate()


def scans() -> Iterator[Dict[str, object]]:
    """Interrupts of the other NIC may go everywhere when it starts, which irqbalance leaves none that it balances."""
    others = [
        Path("/proc/irq", entry.name, "smp_affinity_list")
        for folder in sorted(PCI.iterdir())
        if folder not in declared() and (folder / "class").read_text().startswith("0x0200")
        for entry in folder.glob("msi_irqs/*")
    ]
    ours = places()
    text = ARGUMENTS.read_text()
    try:
        ARGUMENTS.write_text(f'{text}\nIRQBALANCE_ARGS="--foreground --debug --interval={BALANCE_SECONDS}"\n')
        output("systemctl", "stop", "irqbalance")
        for path in others:
            path.write_text("0-3")
        start, began = time.time(), time.monotonic()
        output("systemctl", "start", "irqbalance")
        count = 0
        moved: Dict[str, str] = {}
        # The first one only places what it met. Where it moves something is up to it, so that it is given its time.
        for line in said_since(start):
            if line.startswith(SCAN_LINE):
                count += 1
                if places() != ours:
                    sys.exit(f"moved: {sorted(set(places().items()) - set(ours.items()))}")
                found = {path.parent.name: path.read_text().strip() for path in others}
                moved = {number: cpus for number, cpus in found.items() if cpus != "0-3"}
                if count > SCANS and moved:
                    break
        else:
            sys.exit(f"irqbalance moved {moved or 'nothing at all'} in {count} scans")
        if places() != ours:
            sys.exit(f"moved: {sorted(set(places().items()) - set(ours.items()))}")
        yield {"scans": count, "seconds": round(time.monotonic() - began, 1), "ours": len(ours), "moved": moved}
    finally:
        ARGUMENTS.write_text(text)
        output("systemctl", "restart", "irqbalance")


def before() -> Iterator[Dict[str, object]]:
    """A line for each that is ours to say where it goes."""
    for folder in declared():
        for one in interrupts_of(folder):
            if one.ours:
                yield {"device": folder.name, "interrupt": one.name, "cpus": sorted(one.cpus)}
        for kind, name in (("rx", "rps_cpus"), ("tx", "xps_cpus")):
            for queue in queues_of(folder, kind):
                yield {"device": folder.name, "queue": queue.name, "cpus": sorted(mask(queue / name))}


def main(action: str, *words: str) -> None:
    if action == "settled":
        print(wait_until_settled(int(words[0])))
        return
    if action == "rebind":
        results = rebind(int(words[0]))
    else:
        results = {"queues": queues, "scans": scans, "before": before}[action]()
    for result in results:
        print(json.dumps(result), flush=True)


main(*sys.argv[1:])
