# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the DRA driver of NVIDIA hands out in a cluster, beside the device plugin.

Both offer the same GPUs, and neither knows of the other: a node that has both gives a GPU away twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ..._core.errors import NotPermitted
from ..._core.value import frozen
from .cluster import not_understood
from .configuration import PREFIX

if TYPE_CHECKING:
    from .cluster import ApiServer, Node

GROUP = "/apis/resource.k8s.io"
GOAL = "find what the DRA driver hands out"
# The newest first: 1.34 and newer, 1.33, 1.32.
VERSIONS = ("v1", "v1beta2", "v1beta1")
DRIVER = "gpu.nvidia.com"
CLASSES = frozenset((DRIVER, "mig.nvidia.com", "vfio.gpu.nvidia.com"))
RIGHT = "list deviceclasses and resourceslices of resource.k8s.io"
# A slice has up to 128 devices, each with its attributes.
PAGE = "100"


@frozen
class Dra:
    """``devices`` are those published for each node. ``unknown`` says why it could not be seen, empty if it was."""

    classes: Tuple[str, ...]
    devices: Mapping[str, Tuple[str, ...]]
    unknown: str = ""

    def report(self, nodes: Mapping[str, Node], names: Tuple[str, ...]) -> Dict[str, Any]:
        devices = {name: list(self.devices[name]) for name in names if name in self.devices}
        return {
            "classes": list(self.classes),
            "devices": devices,
            "twice": [name for name in devices if name in nodes and _has_plugin(nodes[name])],
            "unknown": self.unknown,
        }


def _has_plugin(node: Node) -> bool:
    return any(number for name, number in node.allocatable.items() if name.startswith(PREFIX))


def look(server: ApiServer) -> Dra:
    """Who may not list them can still share GPUs, so a missing right is told, and is no failure."""
    try:
        # Without the right to list, a path that is not served is forbidden too. Every user may read the group.
        version = parse_group(server.get(GOAL, GROUP, {}, f"get {GROUP}"))
        if version is None:
            return Dra((), {})
        classes = list(server.items(GOAL, f"{GROUP}/{version}/deviceclasses", {"limit": PAGE}, RIGHT))
        of_driver = {"limit": PAGE, "fieldSelector": f"spec.driver={DRIVER}"}
        slices = list(server.items(GOAL, f"{GROUP}/{version}/resourceslices", of_driver, RIGHT))
        return Dra(parse_classes(classes), parse_slices(slices))
    except NotPermitted as error:
        return Dra((), {}, unknown=str(error))


def parse_group(answer: Optional[Mapping[str, Any]]) -> Optional[str]:
    """The version to speak of an APIGroup; None without the group. Raises ``CannotLook`` on anything else."""
    if answer is None:
        return None
    try:
        served = {one["version"] for one in answer["versions"]}
        return next((version for version in VERSIONS if version in served), None)
    except (KeyError, TypeError):
        raise not_understood("an APIGroup", answer) from None


def parse_classes(items: List[Mapping[str, Any]]) -> Tuple[str, ...]:
    """Those of the driver. Raises ``CannotLook`` on what is no DeviceClass."""
    try:
        return tuple(sorted(CLASSES & {one["metadata"]["name"] for one in items}))
    except (KeyError, TypeError):
        raise not_understood("DeviceClasses", items) from None


def parse_slices(items: List[Mapping[str, Any]]) -> Dict[str, Tuple[str, ...]]:
    """The devices of each node. Raises ``CannotLook`` on what is no ResourceSlice."""
    try:
        found: Dict[str, List[str]] = {}
        for spec in _current([one["spec"] for one in items]):
            # A slice without a node is of devices that many nodes reach, and the GPU driver makes none.
            if spec.get("nodeName"):
                found.setdefault(spec["nodeName"], []).extend(str(one["name"]) for one in spec.get("devices") or ())
        return {node: tuple(sorted(names)) for node, names in found.items() if names}
    except (AttributeError, KeyError, TypeError):
        raise not_understood("ResourceSlices", items) from None


def _current(specs: List[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """While a driver replaces the slices of a pool, those of an older generation are still there, and do not count."""
    newest: Dict[str, int] = {}
    for spec in specs:
        pool = spec["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), pool["generation"])
    return (spec for spec in specs if spec["pool"]["generation"] == newest[spec["pool"]["name"]])
