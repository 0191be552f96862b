# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of the RDMA shared device plugin: what is declared for it, and what it means. Pure.

The keys and rules are those of pkg/types and pkg/resources of Mellanox/k8s-rdma-shared-dev-plugin, release 1.5. One
file serves all nodes: on each, a resource is of the network devices that its selectors choose there.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from ..._core.errors import CannotLook
from ..._core.regex import regex
from ..._core.value import frozen

KEY = "config.json"
ENTRIES, INTERVAL = "configList", "periodicUpdateInterval"
NAME, PREFIX, MOST = "resourceName", "resourcePrefix", "rdmaHcaMax"
# What the plugin takes where the file says nothing, the interval in seconds.
DEFAULT_PREFIX, DEFAULT_INTERVAL = "rdma", 60
# A day. The plugin has no limit of its own; beyond this it is a slip of the pen.
LONGEST_INTERVAL = 86400
# A selector in the file, by the option that it is made from.
SELECTORS = {
    "vendors": "vendors",
    "device_ids": "deviceIDs",
    "drivers": "drivers",
    "if_names": "ifNames",
    "link_types": "linkTypes",
}
# The plugin takes letters, digits and _, and the kubelet only names that neither begin nor end with _.
RESOURCE_NAME = regex(r"[A-Za-z0-9]([A-Za-z0-9_]{0,61}[A-Za-z0-9])?")
DOMAIN = regex(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
OF_KUBERNETES = "kubernetes.io"
# As sysfs has them, which is what the plugin compares with: an ID with 0x or in capitals would choose nothing.
PCI_ID = regex(r"[0-9a-f]{4}")
LONGEST_INTERFACE = 15
# The plugin sends the kubelet all of a resource in one message, which gRPC takes up to 4 MiB. Each of them is a number
# and its health.
LARGEST_MESSAGE, ENTRY = 4 << 20, 20
MOST_OF_ALL = LARGEST_MESSAGE // ENTRY


@frozen
class Resource:
    """``most`` pods of a node can have it at once. ``selectors`` are by their keys in the file, those that are set."""

    name: str
    prefix: str
    most: int
    selectors: Mapping[str, Tuple[str, ...]]

    @property
    def full_name(self) -> str:
        """As the kubelet offers it."""
        return f"{self.prefix}/{self.name}"

    def entry(self) -> Dict[str, Any]:
        """As the file has it."""
        selectors = {key: list(chosen) for key, chosen in self.selectors.items()}
        return {NAME: self.name, PREFIX: self.prefix, MOST: self.most, "selectors": selectors}


def parse_resource(declared: Mapping[str, Any]) -> Resource:
    chosen = declared["selectors"]
    return Resource(
        name=declared["name"],
        prefix=declared["prefix"],
        most=declared["hca_max"],
        selectors={key: tuple(map(str, chosen[option])) for option, key in SELECTORS.items() if chosen[option]},
    )


def faults_of_rdma(resources: Sequence[Resource]) -> Iterator[str]:
    """What the plugin or the kubelet would refuse, and what would choose nothing."""
    names = [one.name for one in resources]
    for one in resources:
        if not RESOURCE_NAME.fullmatch(one.name):
            right = "up to 63 letters, digits and _, with a letter or a digit at both ends"
            yield f"{one.name} is not the name of an RDMA resource: it must be {right}"
        if names.count(one.name) > 1:
            yield f"the RDMA resource {one.name} is named twice, which the plugin refuses whatever their prefixes"
        if not DOMAIN.fullmatch(one.prefix):
            yield f"{one.prefix} is not the prefix of a resource: it must be a domain, such as {DEFAULT_PREFIX}"
        elif one.prefix == OF_KUBERNETES or one.prefix.endswith(f".{OF_KUBERNETES}"):
            yield f"the prefix {one.prefix} belongs to Kubernetes"
        if not 1 <= one.most <= MOST_OF_ALL:
            yield f"hca_max of {one.name} is {one.most}, and must be from 1 to {MOST_OF_ALL}"
        if not one.selectors:
            yield f"the RDMA resource {one.name} has no selectors, and would be of no device"
        yield from _faults_of_selectors(one)


def _faults_of_selectors(resource: Resource) -> Iterator[str]:
    for option in ("vendors", "device_ids"):
        for value in resource.selectors.get(SELECTORS[option], ()):
            if not PCI_ID.fullmatch(value):
                said = "it must be four hexadecimal digits in lower case, such as 15b3"
                yield f"{option} of {resource.name} has {value!r}, which matches no device: {said}"
    for value in resource.selectors.get(SELECTORS["if_names"], ()):
        if not 0 < len(value) <= LONGEST_INTERFACE or "/" in value or value.split() != [value]:
            yield f"if_names of {resource.name} has {value!r}, which is not the name of a network interface"
    if "" in resource.selectors.get("drivers", ()):
        yield f"drivers of {resource.name} has an empty string, which matches no device"


def meaning(entry: Mapping[str, Any]) -> Tuple[Any, ...]:
    """What two entries of the file have alike that are the same to the plugin. ``devices`` are an old word."""
    given = entry.get("selectors") or {}
    chosen = {key: frozenset(given.get(key) or ()) for key in SELECTORS.values()}
    if not any(chosen.values()):
        chosen["ifNames"] = frozenset(entry.get("devices") or ())
    return (entry.get(PREFIX) or DEFAULT_PREFIX, entry.get(MOST), chosen)


def entries_of(document: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    return list(document.get(ENTRIES) or ())


def parse_document(text: str, where: str) -> Dict[str, Any]:
    """The file. Raises ``CannotLook`` on one that the plugin would not start with either."""
    try:
        document: Dict[str, Any] = json.loads(text)
        if all(isinstance(entry[NAME], str) and meaning(entry) for entry in entries_of(document)):
            return document
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    hint = "correct it there; nothing was written"
    raise CannotLook("read {}", object=where, cause="it is not a file of the RDMA plugin", found=text[:200], hint=hint)


def text_of(document: Mapping[str, Any]) -> str:
    """As the file is written: in the order in which others have it."""
    return json.dumps(document, indent=2) + "\n"
