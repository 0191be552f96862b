# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fleets for tests of the report: recorded machines, looked at once each, and as many nodes like them as wanted.

A file of tests has this module in ``pytest_plugins``; a test takes the fixture ``kinds``, and calls ``fleet``.
"""

from __future__ import annotations

import json
import pickle
import random
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import (
    DRIFTED,
    IN_SYNC,
    INVALID,
    PENDING,
    UNKNOWN,
)
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.plugin_utils.report.model import Host
from ansible_collections.gpufleet.node.tests.unit.node.facts_machine import (
    EXPECTED,
    MACHINES,
    Trees,
    gpu_host,
    quiet_host,
)
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import Machines
from ansible_collections.gpufleet.node.tests.unit.support import build

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)

GENERATED = "2026-01-02T03:04:05Z"
TREES = ("hgx-2socket", "single-socket", "grace", "vm-without-numa")
WITHOUT_GPUS: Dict[str, Dict[str, Any]] = {
    "hugepages": {"transparent": {"enabled": "always"}},
    "nvme_scheduler": {"queues": [{"scheduler": "none", "read_ahead_kb": 4096, "optional": True}]},
    "kernel_modules": {"load": ["nvidia", "nvidia_uvm"], "block": ["nouveau"]},
    "numa_irq_affinity": {"interrupts": [{"match": {"class": ["network", "nvme"]}, "optional": True}]},
}
DECLARED: Dict[str, Dict[str, Any]] = {
    **WITHOUT_GPUS,
    "nvidia_persistence": {"enabled": True},
    "gpu_settings": {"gpus": [{"power_limit_watts": 600, "match": {"model": "*H100*"}, "optional": True}]},
    "mig_layout": {"gpus": [{"match": {"index": 7, "model": "*H100*"}, "mig": "enabled", "optional": True}]},
}


@dataclass(frozen=True)
class Kind:
    """A recorded machine: ``in_sync`` is the look at it with everything as declared, ``found`` the one as it was."""

    info: Dict[str, Any]
    found: Dict[str, Any]
    in_sync: Dict[str, Any]


@pytest.fixture(scope="session")
def kinds(machines: Machines, tmp_path_factory: pytest.TempPathFactory) -> Tuple[Kind, ...]:
    """The recorded machines, the HGX first."""
    folder = tmp_path_factory.mktemp("kinds")
    trees = Trees(folder / "trees")
    with pytest.MonkeyPatch.context() as patch:

        def make(kind: str = "hgx-h100-80gb-8", *arguments: str, **_nothing: Any) -> GpuMachine:
            place = folder / Path(kind).stem
            place.mkdir()
            simulated = machines.copy(place / "simulated", kind, *arguments)
            for name, value in simulated.variables.items():
                patch.setenv(name, value)
            machine = GpuMachine(place, build(place, {}), simulated)
            machine.connect()
            return machine

        return tuple(record(tree, make, trees) for tree in TREES)


@pytest.fixture(scope="session")
def thousand(kinds: Tuple[Kind, ...]) -> Dict[str, Host]:
    """A thousand nodes, of which most have eight GPUs. Nobody changes them."""
    return fleet(kinds, 1000)


SYSTEM_CPUS, JOB_CPUS = "0-1,56-57,112-113,168-169", "2-55,58-111,114-167,170-223"


def divided(kinds: Sequence[Kind]) -> Dict[str, Host]:
    """Four nodes with eight GPUs that divide their CPUs, three of them alike, one of which sends a network card's
    interrupts to isolated CPUs; one that isolates CPUs and has no NUMA nodes; and one that divides none.
    """
    owners = [
        {"kind": "system", "name": "system.slice", "cpus": SYSTEM_CPUS},
        {"kind": "isolated", "name": "isolcpus", "cpus": JOB_CPUS},
        {"kind": "isolated", "name": "nohz_full", "cpus": JOB_CPUS},
        {"kind": "gpu", "name": "gpu-0.slice", "cpus": "2-55"},
        {"kind": "gpu", "name": "gpu-1.slice", "cpus": "2-55"},
        {"kind": "gpu", "name": "gpu-7.slice", "cpus": "58-111"},
    ]
    own: Dict[str, Any] = {"n1": owners, "n2": owners, "n3": owners, "n4": owners[:1], "n6": []}
    hosts = {name: _divided(kinds[0], those) for name, those in own.items()}
    for interrupt in _of_cards(hosts["n3"]):
        interrupt["cpus"] = "3"
    hosts["n5"] = _divided(kinds[3], [{"kind": "isolated", "name": "nohz_full", "cpus": "2-3"}])
    return hosts


def _divided(kind: Kind, owners: Sequence[Mapping[str, str]]) -> Host:
    info = copied(kind.info)
    info["node"]["topology"]["cpu_owners"] = list(owners)
    host = Host(kind.in_sync, info)
    for device in info["node"]["interrupts"]["devices"]:
        for interrupt in device["irqs"]:
            if not interrupt["managed"]:
                interrupt["cpus"] = "0"
    return host


def _of_cards(host: Host) -> List[Dict[str, Any]]:
    """The interrupts of network cards that can be moved."""
    devices = (host.info or {})["node"]["interrupts"]["devices"]
    return [one for device in devices if device["kind"] == "nic" for one in device["irqs"] if not one["managed"]]


def record(tree: str, gpu_machine: MakeMachine, trees: Trees) -> Kind:
    """Look at a machine of ``tests/nodes`` with the simulator as its driver, where it has one."""
    kind = MACHINES[tree]
    host = gpu_host(gpu_machine, trees(tree), kind).host if kind else quiet_host(trees(tree))
    found = assess_node(DECLARED if kind else WITHOUT_GPUS, host, validate=validated, full=False)
    host.nvml.close()
    facts = json.loads((EXPECTED / f"{tree}.json").read_text(encoding="utf-8"))
    return Kind({"node": facts}, found, as_declared(found))


def copied(value: Mapping[str, Any]) -> Dict[str, Any]:
    """The same for somebody who changes it; much faster than ``copy.deepcopy``."""
    found: Dict[str, Any] = pickle.loads(pickle.dumps(dict(value)))
    return found


def as_declared(look: Mapping[str, Any]) -> Dict[str, Any]:
    """The look with everything right that can be looked at."""
    right: Dict[str, Any] = copied(look)
    for entry in right["concerns"].values():
        entry.update(status=IN_SYNC, settings_in_sync=entry["settings_in_sync"] + len(entry["settings"]))
        entry.pop("refusals", None)
        entry.update(settings=[], changes=[], needs=[], conflicts=[], reboot_required=False, reboot_reasons=[])
        for name in ("msg", "failure", "devices"):
            entry.pop(name, None)
    right["orphaned"] = []
    return right


def fleet(kinds: Sequence[Kind], count: int, *, seed: int = 1) -> Dict[str, Host]:
    """``count`` hosts, most of them right. The same arguments give the same hosts."""
    chance = random.Random(seed)
    hosts: Dict[str, Host] = {}
    for number in range(count):
        kind = kinds[0] if chance.random() < 0.8 else chance.choice(kinds)
        rack, place = divmod(number, 16)
        name = f"gpu-r{rack:02}-n{place:02}"
        hosts[name] = _host(kind, chance, ["training" if kind is kinds[0] else "inference", f"rack{rack:02}"])
    return hosts


def _host(kind: Kind, chance: random.Random, groups: List[str]) -> Host:
    look, info = copied(kind.in_sync), copied(kind.info)
    _personal(info["node"], chance)
    trouble = chance.random()
    if trouble < 0.01:
        unreachable = {"unreachable": True, "msg": "Failed to connect to the host via ssh: Connection timed out"}
        return Host(unreachable, None, groups)
    if trouble < 0.10:
        _drift(look, kind, chance)
    elif trouble < 0.14:
        _wait_for_reboot(look)
    elif trouble < 0.155:
        _hide(look, chance)
    elif trouble < 0.16:
        _declare_wrongly(look, chance)
    if chance.random() < 0.02:
        _sicken(info["node"], chance)
    if chance.random() < 0.03:
        _outdate(info["node"])
    if chance.random() < 0.3:
        _divide(info["node"], chance)
    return Host(look, info, groups)


def _personal(facts: Dict[str, Any], chance: random.Random) -> None:
    """What no two machines share: serial numbers, UUIDs, temperatures, and where irqbalance has put interrupts."""
    for gpu in (gpu for gpu in facts["gpus"] if gpu["uuid"]):
        gpu["uuid"] = f"GPU-{uuid.UUID(int=chance.getrandbits(128))}"
        gpu["serial"] = str(chance.randrange(10**12, 10**13))
        gpu["temperature_celsius"] = chance.randrange(27, 34)
        gpu["power"]["draw_watts"] = round(chance.uniform(68, 76), 3)
        gpu["memory"]["used_mib"] = chance.randrange(1, 20)
    for drive in [*facts["block"], *facts["firmware"]["nvme"]]:
        drive["serial"] = f"S{chance.randrange(10**12, 10**13)}"
    if facts["firmware"]["machine"]:
        facts["firmware"]["machine"]["serial"] = f"A{chance.randrange(10**8, 10**9)}"
    for device in facts["topology"]["devices"]:
        if device["link"] and device["link"]["degraded"] and chance.random() < 0.97:
            link = device["link"]
            link.update(degraded=False, causes=[], speed_gts=link["max_speed_gts"], width=link["max_width"])
    for device in facts["interrupts"]["devices"]:
        for interrupt in device["irqs"]:
            if not interrupt["managed"]:
                interrupt["cpus"] = str(chance.randrange(facts["system"]["cpus"]))


def _drift(look: Dict[str, Any], kind: Kind, chance: random.Random) -> None:
    """One to three concerns as they were found before the first converge, or some rows of them."""
    differing = [name for name, entry in kind.found["concerns"].items() if entry["status"] == DRIFTED]
    for name in chance.sample(differing, min(len(differing), chance.choice((1, 1, 1, 2, 3)))):
        found = copied(kind.found["concerns"][name])
        first = chance.randrange(max(1, len(found["settings"])))
        found["settings"] = found["settings"][first : first + chance.choice((1, 2, 4, 40))]
        look["concerns"][name] = found


def _wait_for_reboot(look: Dict[str, Any]) -> None:
    entry = look["concerns"]["hugepages"]
    row = {"object": "node0", "setting": "1G pages", "wanted": 64, "effective": 0, "boot": 64, "status": PENDING}
    reason = "node0 1G pages is 0, wanted 64: only the boot loader makes pages of 1 GiB"
    entry.update(status=PENDING, settings=[row], needs=["reboot"], reboot_required=True, reboot_reasons=[reason])


def _hide(look: Dict[str, Any], chance: random.Random) -> None:
    name = chance.choice(list(look["concerns"]))
    message = f"Cannot look at {name}: it took longer than 10 s. Check the load of the node."
    failure = {"code": "cannot_look", "object": "", "found": None, "wanted": None, "hint": ""}
    look["concerns"][name].update(status=UNKNOWN, settings_in_sync=0, msg=message, failure=failure)


def _declare_wrongly(look: Dict[str, Any], chance: random.Random) -> None:
    name = chance.choice(list(look["concerns"]))
    failure = {"code": "declaration", "object": "", "found": None, "wanted": None, "hint": ""}
    message = f"Cannot use the declaration of {name}: this node has none of what it is for."
    look["concerns"][name].update(status=INVALID, settings_in_sync=0, msg=message, failure=failure)


def _sicken(facts: Dict[str, Any], chance: random.Random) -> None:
    if facts["health"]["gpus"]:
        sick = chance.choice(facts["health"]["gpus"])
        sick.update(healthy=False, problems=["Xid 79 since boot, 1 time", "NVLinks 4, 7 are inactive"])
        sick.update(ecc_volatile_uncorrected=3, pcie_replays=12)
        facts["health"]["xids"] = [
            {"pci_address": sick["pci_address"], "xid": 79, "count": 1, "last": "GPU has fallen off the bus."}
        ]
    for port in facts["network"]["ports"][-1:]:
        errors = [
            {"counter": "link_downed", "total": 12, "growth": 9},
            {"counter": "symbol_error", "total": None, "growth": None},
        ]
        port.update(healthy=False, problems=["it has lost its link (polling)"], state="down", errors=errors)


def _divide(facts: Dict[str, Any], chance: random.Random) -> None:
    """MIG on the last GPU of an HGX, in one of a few layouts, and huge pages on its NUMA nodes."""
    if len(facts["gpus"]) == 8:
        layout = chance.choice(("3g.40gb 0 4, 2g.20gb 4 2, 1g.10gb 6 1", "1g.10gb 0 1, 1g.10gb 1 1, 4g.40gb 4 4", ""))
        instances = [part.rsplit(" ", 2) for part in layout.split(", ") if part]
        facts["gpus"][7]["mig"] = {
            "current": True,
            "pending": True,
            "instances": [
                {"profile": profile, "start": int(start), "size": int(size), "compute_instances": [{}]}
                for profile, start, size in instances
            ],
        }
        for pool in facts["memory"]["hugepages"]:
            pool.update(pages=8192, free=8000)


def _outdate(facts: Dict[str, Any]) -> None:
    facts["driver"]["version"] = "550.54.14"
    for card in facts["firmware"]["nics"][:1]:
        card["firmware"] = "28.39.1002"
