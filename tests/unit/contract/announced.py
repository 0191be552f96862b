# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs of which is kept what each step did, and what differs on the machine that none of them lists."""

from __future__ import annotations

import os
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Iterator, List, Mapping, Set, Tuple, cast

from ansible_collections.gpufleet.node.plugins.module_utils._core import baseline
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome, reboot_note
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Node, difference
from ansible_collections.gpufleet.node.tests.unit.foresight import Effect, Traced, files_of, programs_of, unlisted

# The verbs of systemctl after which a unit does something else.
RUNS = ("start", "stop", "restart")
# The files that programs of the machines write, which no step has the text of.
WRITTEN_BY: Mapping[str, Tuple[str, ...]] = {
    "apt-mark": ("/var/lib/dpkg/status",),
    "mv": ("/swapfile_gpufleet",),
    "systemctl": ("/etc/systemd/system/*",),
    "ufw": ("/etc/ufw/user*.rules",),
    "update-grub": ("/boot/grub/grub.cfg",),
    "update-initramfs": ("/boot/initrd.img-*",),
}
# What the kernel and the next boot clear, and what only this collection has a use for.
BESIDES = ("/proc/", "/sys/", "/dev/", "/run/", "/etc/gpufleet/", "/var/lib/gpufleet/")


def run_traced(node: Node, verb: str) -> Tuple[Traced, Outcome]:
    """A run of this kind. The effects of the node are then those of this run."""
    node.effects.clear()
    concern = Traced(node.concern)
    return concern, replace(node, concern=cast("Any", concern)).converge(verb)


def unannounced(concern: Traced, node: Node, before: Mapping[str, Any]) -> Iterator[str]:
    """What a run did to a machine that had this tree ``before``, and no step of it lists."""
    # What every run keeps: the values from before it, and why the machine must be rebooted.
    kept = (baseline.path_of(node.name), reboot_note(node.name))
    beside = list(node.effects)
    for taken in concern.taken:
        yield from unlisted(taken)
        for effect in taken.effects:
            beside.remove(effect)
    yield from (f"{kind} {path}" for kind, path, _value in beside if not path.endswith(kept))
    steps = [taken.step for taken in concern.taken]
    files = {path for step in steps for path in files_of(step)}
    products = [one for step in steps for program in programs_of(step) for one in WRITTEN_BY.get(program, ())]
    for name, then, now in difference(node.everything()[0], before):
        path = f"/{name}"
        is_listed = path in files or path.startswith(BESIDES) or any(fnmatchcase(path, one) for one in products)
        if not is_listed and ("folder",) not in (then, now):
            yield f"{path} differs"


def units_run(effects: List[Effect]) -> Set[str]:
    """The units that systemctl started, stopped or restarted."""
    calls = [value.split() for kind, path, value in effects if kind == "run" and os.path.basename(path) == "systemctl"]
    return {unit for words in calls for verb in RUNS if verb in words for unit in words[words.index(verb) + 1 :]}
