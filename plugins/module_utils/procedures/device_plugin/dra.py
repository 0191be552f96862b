# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the DRA driver of NVIDIA offers in a cluster, beside the device plugin, and the classes that are declared.

Both offer the same GPUs, and neither knows of the other: a node that has both gives a GPU away twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, AbstractSet, Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ..._core.change import Change
from ..._core.errors import DeclarationError, NotPermitted, OwnedByAnother
from ..._core.setting import EFFECTIVE
from ..._core.value import frozen, replace
from .cluster import MANAGED_BY, US, not_understood
from .configuration import PREFIX
from .declaration import CLASS_GOAL
from .device_classes import CLASSES, DRIVER, DeclaredClass
from .order import Order

if TYPE_CHECKING:
    from .cluster import ApiServer, Node

GROUP = "/apis/resource.k8s.io"
GOAL = "find what the DRA driver offers"
# The newest first: 1.34 and newer, 1.33, 1.32.
VERSIONS = ("v1", "v1beta2", "v1beta1")
RIGHT = "list deviceclasses and resourceslices of resource.k8s.io"
# A slice has up to 128 devices, each with its attributes.
PAGE = "100"


@frozen
class DeviceClass:
    """One of the cluster, with its expressions in CEL. ``ours``: we made it. ``owner`` is who else says so."""

    selectors: Tuple[str, ...]
    ours: bool
    owner: str


@frozen
class Dra:
    """``version`` is that of the API, None where it is not served. ``found`` are all classes by their names.

    ``devices`` are those that the driver has published for each node. ``unknown`` says why some of it could not be
    seen, empty if it was.
    """

    version: Optional[str]
    found: Mapping[str, DeviceClass]
    devices: Mapping[str, Tuple[str, ...]]
    unknown: str = ""

    def report(self, nodes: Mapping[str, Node], names: Tuple[str, ...]) -> Dict[str, Any]:
        devices = {name: list(self.devices[name]) for name in names if name in self.devices}
        return {
            "classes": sorted(CLASSES & self.found.keys()),
            "declared": sorted(name for name, one in self.found.items() if one.ours),
            "devices": devices,
            "twice": [name for name in devices if name in nodes and _has_plugin(nodes[name])],
            "unknown": self.unknown,
        }


def _has_plugin(node: Node) -> bool:
    return any(number for name, number in node.allocatable.items() if name.startswith(PREFIX))


def look(server: ApiServer, *, needed: bool) -> Dra:
    """``needed``: a node of this run declares classes, or has noted some. Who may not list them can still share GPUs:
    otherwise a missing right is told, and is no failure."""
    found = Dra(None, {}, {})
    try:
        # Without the right to list, a path that is not served is forbidden too. Every user may read the group.
        version = parse_group(server.get(GOAL, GROUP, {}, f"get {GROUP}"))
        if version is None:
            return found
        found = look_again(server, Dra(version, {}, {}))
    except NotPermitted as error:
        if needed:
            raise
        return replace(found, unknown=str(error))
    try:
        of_driver = {"limit": PAGE, "fieldSelector": f"spec.driver={DRIVER}"}
        slices = list(server.items(GOAL, f"{GROUP}/{version}/resourceslices", of_driver, RIGHT))
        return replace(found, devices=parse_slices(slices))
    except NotPermitted as error:
        return replace(found, unknown=str(error))


def look_again(server: ApiServer, dra: Dra) -> Dra:
    """With the classes as they are now. The devices of thousands of nodes are only read once."""
    if dra.version is None:
        return dra
    return replace(dra, found=parse_classes(list(server.items(GOAL, _path(dra), {"limit": PAGE}, RIGHT))))


def _path(dra: Dra) -> str:
    return f"{GROUP}/{dra.version}/deviceclasses"


def orders(
    dra: Dra, wanted: Mapping[str, DeclaredClass], used: AbstractSet[str], nodes: str
) -> Tuple[List[Order], List[Order]]:
    """For classes that are declared, and for those of ours that no node uses any more. ``nodes`` is for messages."""
    if wanted and dra.version is None:
        cause = f"the API server does not serve resource.k8s.io in any of {', '.join(VERSIONS)}"
        hint = "use Kubernetes 1.34 or newer, or enable the API group resource.k8s.io in 1.32 or 1.33"
        raise DeclarationError(CLASS_GOAL, object=nodes, cause=cause, hint=hint)
    written = [_written(dra, one, nodes) for _name, one in sorted(wanted.items())]
    stale = [name for name, one in sorted(dra.found.items()) if one.ours and name not in used]
    return [order for order in written if order is not None], [_deletion(dra, name) for name in stale]


def _written(dra: Dra, wanted: DeclaredClass, nodes: str) -> Optional[Order]:
    found = dra.found.get(wanted.name)
    if found is not None and found.selectors == wanted.selectors:
        return None
    if found is not None and not found.ours:
        cause = f"the DeviceClass {wanted.name} is there already, and {found.owner or 'someone else'} has made it"
        hint = "choose another name, or remove it"
        selectors = " && ".join(found.selectors)
        raise OwnedByAnother(CLASS_GOAL, object=nodes, cause=cause, found=selectors, hint=hint)
    spec = {"selectors": [{"cel": {"expression": one}} for one in wanted.selectors]}
    before = " && ".join(found.selectors) if found is not None else None
    change = Change(f"DeviceClass {wanted.name}", "selectors", before, " && ".join(wanted.selectors), EFFECTIVE)
    if found is not None:
        path = f"{_path(dra)}/{wanted.name}"
        return Order("PATCH", path, {"spec": spec}, (change,), "patch deviceclasses", judged_there=True)
    body = {
        "apiVersion": f"resource.k8s.io/{dra.version}",
        "kind": "DeviceClass",
        "metadata": {"name": wanted.name, "labels": {MANAGED_BY: US}},
        "spec": spec,
    }
    return Order("POST", _path(dra), body, (change,), "create deviceclasses", judged_there=True)


def _deletion(dra: Dra, name: str) -> Order:
    before = " && ".join(dra.found[name].selectors)
    change = Change(f"DeviceClass {name}", "selectors", before, None, EFFECTIVE)
    return Order("DELETE", f"{_path(dra)}/{name}", None, (change,), "delete deviceclasses")


def parse_group(answer: Optional[Mapping[str, Any]]) -> Optional[str]:
    """The version to speak of an APIGroup; None without the group. Raises ``CannotLook`` on anything else."""
    if answer is None:
        return None
    try:
        served = {one["version"] for one in answer["versions"]}
        return next((version for version in VERSIONS if version in served), None)
    except (KeyError, TypeError):
        raise not_understood("an APIGroup", answer) from None


def parse_classes(items: List[Mapping[str, Any]]) -> Dict[str, DeviceClass]:
    """All of the cluster, by their names. Raises ``CannotLook`` on what is no DeviceClass."""
    try:
        return {one["metadata"]["name"]: _class(one) for one in items}
    except (AttributeError, KeyError, TypeError):
        raise not_understood("DeviceClasses", items) from None


def _class(item: Mapping[str, Any]) -> DeviceClass:
    labels, selectors = item["metadata"].get("labels") or {}, item["spec"].get("selectors") or ()
    manager = str(labels.get(MANAGED_BY, ""))
    # Another kind of selector than CEL may come with another version of the API.
    expressions = (str((one.get("cel") or {}).get("expression", one)) for one in selectors)
    return DeviceClass(tuple(expressions), manager == US, manager if manager != US else "")


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
