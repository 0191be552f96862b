# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: preflight
short_description: What would certainly fail on a node, before anything changes there
version_added: 0.1.0
description:
  - Compares the results of M(gpufleet.node.gpu_node_info) and M(gpufleet.node.node_state) of a node with what a fleet
    requires of its nodes, and returns all reasons at once.
  - What cannot be known, as with a driver that is not loaded yet, is a warning.
positional: _input
options:
  _input:
    description: The facts of the node, with V(driver), V(gpus), V(health), V(network) and V(owners).
    type: dict
    required: true
  look:
    description:
      - A result of M(gpufleet.node.node_state), for conflicts, and for a Fabric Manager or an IMEX whose version is not
        that of the driver.
    type: dict
    default: {}
  cuda:
    description: The CUDA that programs on the node are built with, such as V(12.4). If empty, any driver is accepted.
    type: str
    default: ""
  gpus:
    description: How many GPUs the driver must know; 0 is any number.
    type: int
    default: 0
  allow_sick:
    description: Whether sick GPUs and ports are only a warning.
    type: bool
    default: false
  ports:
    description: The options of the filter P(gpufleet.node.sick_ports#filter).
    type: dict
    default: {}
  sharing:
    description: How GPUs are to be shared, as in C(preflight_sharing) of the role P(gpufleet.node.preflight#role).
    type: list
    elements: dict
    default: []
  conflicts:
    description: How to treat other owners of declared settings whose values win.
    type: str
    choices: [refuse, warn, ignore]
    default: warn
  held:
    description: The packages that must be held in their versions, also as shell globs.
    type: list
    elements: str
    default: []
  not_held:
    description: How to treat a package that is not held.
    type: str
    choices: [refuse, warn]
    default: warn
  apt:
    description: What C(apt-mark showhold) prints.
    type: str
    default: ""
  dnf:
    description: The text of C(versionlock.list) of dnf 4.
    type: str
    default: ""
  dnf5:
    description: The text of C(versionlock.toml) of dnf 5.
    type: str
    default: ""
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Refuse a driver that does not fit
  ansible.builtin.assert:
    that: (info.node | gpufleet.node.preflight(cuda='13.0')).refused | length == 0
"""

RETURN = r"""
_value:
  description: C(refused) and C(warned), each a list of sentences.
  type: dict
"""

from fnmatch import fnmatch
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ansible.errors import AnsibleFilterError

from ..module_utils._core.change import THEM
from ..module_utils._core.errors import GpuFleetError
from ..module_utils._kinds import versionlock
from ..module_utils._node.verdict import other_number, sick_gpus
from ..module_utils._nvidia.sharing import TIME_SLICING, misfits
from ..plugin_utils import cuda as versions
from .sick_ports import sick_ports

REFUSE = "refuse"
WARN = "warn"
Finding = Tuple[str, str]

# Programs that manage GPUs by themselves, by what gpu_node_info says that they set, and the concerns that set it too.
# Of other owners the look knows whether they set the very same.
MANAGED: Mapping[str, Tuple[str, ...]] = {
    "driver and its settings": ("nvidia_persistence", "gpu_settings", "mig_layout"),
    "container runtime": ("container_runtime",),
}

# What fabric_manager names where the version is wrong; a unit where nothing is installed.
FABRIC_DAEMONS = ("nv-fabricmanager", "nvidia-imex")


def preflight(
    node: Mapping[str, Any],
    look: Optional[Mapping[str, Any]] = None,
    cuda: str = "",
    gpus: int = 0,
    allow_sick: bool = False,
    conflicts: str = WARN,
    held: Sequence[str] = (),
    not_held: str = WARN,
    apt: str = "",
    dnf: str = "",
    dnf5: str = "",
    ports: Optional[Mapping[str, Any]] = None,
    sharing: Sequence[Mapping[str, Any]] = (),
) -> Dict[str, List[str]]:
    found = [
        *_driver(node.get("driver") or {}, str(cuda)),
        *_count(node, int(gpus)),
        *((WARN if allow_sick else REFUSE, text) for text in (*sick_gpus(node), *sick_ports(node, **(ports or {})))),
        *(finding for entry in sharing for finding in _sharing(node.get("gpus") or (), entry)),
        *((REFUSE, text) for text in _skew((look or {}).get("concerns", {}))),
        *((conflicts, text) for text in _conflicts(node.get("owners") or (), (look or {}).get("concerns", {}))),
        *((not_held, f"package {name} is not held in its version") for name in _loose(held, held_by(apt, dnf, dnf5))),
    ]
    return {
        "refused": [text for kind, text in found if kind == REFUSE],
        "warned": [text for kind, text in found if kind == WARN],
    }


def held_by(apt: str, dnf: str, dnf5: str = "") -> List[str]:
    """The names of held packages, of dnf also as shell globs."""
    try:
        locked = versionlock.names_of(dnf5)
    except GpuFleetError as error:
        raise AnsibleFilterError(str(error)) from error
    return [*(line.partition(":")[0] for line in apt.split()), *versionlock.lines_of(dnf), *locked]


def _driver(driver: Mapping[str, Any], cuda: str) -> Iterator[Finding]:
    if not cuda.strip():
        return
    needed, branch = versions.branch_for(cuda), driver.get("branch")
    if needed is None:
        raise AnsibleFilterError(f"Cannot use preflight_cuda: it is {cuda}, and must be {versions.RIGHT}.")
    if branch is None:
        yield WARN, f"CUDA {cuda} needs a driver from R{needed}, and no driver reports its version yet"
    elif branch < needed:
        yield (
            REFUSE,
            f"CUDA {cuda} needs a driver from R{needed}, but this one is {driver.get('version') or f'R{branch}'}",
        )


def _count(node: Mapping[str, Any], wanted: int) -> Iterator[Finding]:
    cause = other_number(node, wanted)
    if cause:
        yield (WARN if node.get("nvml_gpus") is None else REFUSE), cause


def _sharing(gpus: Sequence[Mapping[str, Any]], entry: Mapping[str, Any]) -> Iterator[Finding]:
    """Why GPUs cannot be shared as it is said. What the driver does not tell of one is no reason."""
    model = str(entry.get("model") or "*")
    chosen = [gpu for gpu in gpus if gpu.get("model") and fnmatch(gpu["model"], model)]
    if gpus and not chosen:
        yield WARN, f"preflight_sharing: no GPU of this node matches {model}"
    replicas, each = int(entry["replicas"]), int(entry.get("memory_mib") or 0)
    strategy = entry.get("strategy", TIME_SLICING)
    for cause in misfits(chosen, strategy=strategy, replicas=replicas, memory_mib=each):
        yield REFUSE, cause


def _skew(concerns: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The daemons of the NVLink fabric whose version is not the driver's: jobs would lose it at a restart or a boot."""
    result = concerns.get("fabric_manager") or {}
    if result.get("status") == "drifted" and (result.get("failure") or {}).get("object") in FABRIC_DAEMONS:
        yield str(result["msg"])


def _conflicts(owners: Sequence[Mapping[str, Any]], concerns: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, result in concerns.items():
        for entry in result.get("conflicts", ()):
            if entry["wins"] == THEM and not entry["accepted"]:
                what = f"{entry['object']} {entry['setting']}"
                place = f"{entry['path']}:{entry['line']}" if entry["line"] else entry["path"]
                yield f"{name}: {entry['owner']} sets {what} to {entry['value']} in {place}"
    for owner in owners:
        both = [name for name in MANAGED.get(owner["setting"], ()) if name in concerns]
        if both:
            yield f"{', '.join(both)}: {owner['owner']} manages the {owner['setting']} ({owner['path']})"


def _loose(wanted: Sequence[str], held: Sequence[str]) -> List[str]:
    return [name for name in wanted if not any(fnmatch(one, name) or fnmatch(name, one) for one in held)]


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"preflight": preflight}
