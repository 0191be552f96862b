# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The main job on a virtual machine with simulated GPUs: check, converge, look again, meddle, heal, reboot.

Boots the first node of ``inventories/demo`` by ``tests/vm/bed.py`` and runs the playbooks by name, as an operator
would. Every step ends with a check of what the machine says, and the first that does not hold ends the demonstration.
What takes a second model of GPU, container engines or a scheduler is in chapters, each by its name (demo_chapters.py).
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Sequence

from demo_chapters import ALL, CHAPTERS, run_chapters
from demo_nodes import (
    FIRST,
    HUGE_PAGES,
    REPORT,
    counted_boots,
    driver,
    expect_in_report,
    expect_local,
    files_of_ours,
    page,
    persistent,
    placed,
    plugged,
    show_gpus,
)
from demo_tools import BED, ROOT, TOLD, Bed, chapter, elapsed, expect, indented

CONCERNS = 9
MEDDLE = """echo 128 > /sys/block/nvme0n1/queue/read_ahead_kb
echo never > /sys/kernel/mm/transparent_hugepage/enabled
echo 0 > /proc/irq/{irq}/smp_affinity_list
nvml-sim set 2 power_limit=400000"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="leave the nodes running at the end")
    parser.add_argument("--list", action="store_true", help="print the names of the chapters, and end")
    parser.add_argument("--chapter", choices=(*CHAPTERS, ALL), help="this one, and not the main job")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join((*CHAPTERS, ALL)))
        return 0
    lifetime = () if arguments.keep else ("--owner-pid", str(os.getpid()))
    if arguments.chapter in (None, ALL):
        heart(Bed("demo", [FIRST]), lifetime, keep=arguments.keep)
    if arguments.chapter:
        run_chapters(arguments.chapter, lifetime, keep=arguments.keep)
    print(f"\nWhere the time went:\n{TOLD.profile()}")
    print(f"\nEverything held, in {elapsed() / 60:.1f} minutes.")
    if arguments.chapter in (None, ALL):
        print(f"The page of the audit that found the drift: {page()}")
    if arguments.keep:
        print(f"What ran last is still up: {' '.join(BED)} status")
    return 0


def heart(bed: Bed, lifetime: Sequence[str], *, keep: bool) -> None:
    """The main job on one node. Ends with the node off, unless somebody wants to keep it."""
    try:
        boot(bed, lifetime)
        converge(bed)
        meddle(bed)
        print(f"\n   So far {elapsed() / 60:.1f} minutes. The page of the audit is {page().relative_to(ROOT)}")
        restart(bed)
    finally:
        if not keep:
            bed.call("down")


def boot(bed: Bed, lifetime: Sequence[str]) -> None:
    """A node as its distribution left it, with the driver."""
    chapter("A bare node boots its own kernel: two NUMA nodes, NVMe drives, NICs, and eight simulated H100")
    bed.call("up", *plugged(FIRST), "--replace", *lifetime)
    held = [persistent(gpu) for gpu in driver(bed, FIRST)["gpus"]]
    expect(held == [False] * 8, "the driver has eight GPUs, persistence mode off on all")


def converge(bed: Bed) -> None:
    """Once to change, and once more to change nothing."""
    chapter("site --check: what would change, and nothing does")
    predicted = bed.playbook("site", "--check")
    expect(predicted.status == 0, "the check succeeds on a bare node")
    expect(files_of_ours(bed, FIRST) == "", "no file of ours is on the node")

    chapter("site: the first run")
    first = bed.playbook("site")
    expect(first.status == 0 and first.total("changed") > 0, f"converged, with {first.total('changed')} changed tasks")
    declared = bed.on(FIRST, "ls /etc/gpufleet/declared.d").split()
    expect(len(declared) == CONCERNS, f"{len(declared)} concerns: {', '.join(name[:-5] for name in declared)}")
    show_gpus(bed)
    expect_local(bed, FIRST)

    chapter("site again: nothing to do")
    second = bed.playbook("site")
    expect(second.status == 0 and second.total("changed") == 0, "nothing changed")
    expect(
        second.executions == second.by_program == {FIRST: 1},
        "one remote execution: the look, by the program on the node",
    )


def meddle(bed: Bed) -> None:
    """What others change is named, in the table and in the page, and put back."""
    chapter("Somebody changes four values by hand: audit names them, and writes the page")
    moved = placed(bed, FIRST)[0]
    bed.on(FIRST, MEDDLE.format(irq=moved.number))
    audit = bed.playbook("audit", "-e", "audit_fail_on_drift=true", "-e", f"gpufleet_report_dest={REPORT}")
    expect(audit.status != 0, "the audit fails")
    for words in (
        ("read_ahead_kb", "4096", "128"),
        ("enabled", "always", "never"),
        ("power_limit_watts", "600", "400"),
    ):
        row = audit.row(*words, "drifted")
        expect(row != "", f"it says: {row}")
    row = audit.row("interrupt", moved.handler, moved.cpus, "0", "drifted")
    expect(row != "", f"it says: {row}")
    expect_in_report("read_ahead_kb", FIRST, 128)
    expect_in_report("power_limit_watts", FIRST, 400)

    chapter("site heals it")
    healed = bed.playbook("site")
    expect(healed.status == 0, "converged")
    read = "cat /sys/block/nvme0n1/queue/read_ahead_kb /sys/kernel/mm/transparent_hugepage/enabled"
    expect(
        bed.on(FIRST, read).splitlines() == ["4096", "[always] madvise never"], "the kernel says the declared values"
    )
    expect_limits(bed)
    expect_local(bed, FIRST)


def restart(bed: Bed) -> None:
    """What waits for the next boot, and what that brings back."""
    expect(bed.on(FIRST, HUGE_PAGES).split() == ["0", "0"], "the 1 GiB pages wait until somebody runs reboot")
    chapter("reboot: the node waits for one, gets it, and is right")
    boots = counted_boots(bed)
    expect(bed.playbook("reboot").status == 0, "rebooted, and seen to be right")
    boots[FIRST] += 1
    expect(counted_boots(bed) == boots, "it booted exactly once")

    chapter("audit: still right, from the boot loader's command line, tmpfiles.d, udev and the boot service")
    expect(bed.playbook("audit", "-e", "audit_fail_on_drift=true").status == 0, "no drift")
    expect(bed.on(FIRST, HUGE_PAGES).split() == ["1", "1"], "the kernel has one 1 GiB page on each NUMA node")
    expect_limits(bed)
    gpus = driver(bed, FIRST)["gpus"]
    expect([len(gpu["instances"]) for gpu in gpus] == [0] * 6 + [7, 7], "GPU 6 and 7 have their seven instances again")
    expect(all(persistent(gpu) for gpu in gpus), "all GPUs keep their state")
    expect_local(bed, FIRST)
    print(indented(bed.on(FIRST, "gpufleet status")))


def expect_limits(bed: Bed) -> None:
    limits = {gpu["power_limit"] for gpu in driver(bed, FIRST)["gpus"]}
    expect(limits == {600_000}, "and the driver: 600 W on all eight GPUs")


if __name__ == "__main__":
    sys.exit(main())
