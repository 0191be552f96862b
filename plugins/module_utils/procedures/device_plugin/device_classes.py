# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Classes of devices for claims of DRA, as they are declared. Pure.

The attributes are those that cmd/gpu-kubelet-plugin of the DRA driver of NVIDIA publishes, and the limits those of
resource.k8s.io. Only the API server can say whether an expression is valid.
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence, Tuple

from ..._core.regex import regex
from ..._core.value import frozen

DRIVER = "gpu.nvidia.com"
# The classes that come with the driver, of GPUs and of others.
CLASSES = frozenset((DRIVER, "mig.nvidia.com", "vfio.gpu.nvidia.com"))
OF_THE_DRIVER = CLASSES | {"compute-domain-daemon.nvidia.com", "compute-domain-default-channel.nvidia.com"}
CLASS_NAME = regex(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
MOST_SELECTORS, LONGEST_SELECTOR = 32, 10 << 10


@frozen
class DeclaredClass:
    """A device of the class is one for which all ``selectors`` are true, expressions in CEL."""

    name: str
    selectors: Tuple[str, ...]


def parse_class(declared: Mapping[str, Any]) -> DeclaredClass:
    # The others are asked only where this is true: an attribute that a device of another driver does not have is an
    # error, which would end the allocation.
    kind = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{declared['type']}'"
    return DeclaredClass(declared["name"], (kind, *(str(one).strip() for one in declared["selectors"])))


def faults_of_classes(classes: Sequence[DeclaredClass]) -> Iterator[str]:
    """What the API server would refuse, and what belongs to others."""
    names = [one.name for one in classes]
    for one in classes:
        if one.name in OF_THE_DRIVER:
            yield f"the class {one.name} comes with the DRA driver: choose another name"
        elif not CLASS_NAME.fullmatch(one.name):
            yield f"{one.name} is not the name of a device class: it must be a domain, such as h100.example.com"
        if names.count(one.name) > 1:
            yield f"the class {one.name} is named twice"
        if len(one.selectors) == 1:
            yield f"the class {one.name} has no selectors, and would be the same as that of the driver"
        if len(one.selectors) > MOST_SELECTORS:
            yield f"the class {one.name} has more than {MOST_SELECTORS - 1} selectors"
        if "" in one.selectors:
            yield f"a selector of the class {one.name} is empty"
        if any(len(selector.encode()) > LONGEST_SELECTOR for selector in one.selectors):
            yield f"a selector of the class {one.name} is longer than {LONGEST_SELECTOR} bytes"
