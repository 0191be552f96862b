# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node as the API server has it, and the patch that cordons it with our mark or takes both. Pure."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from ..._core.errors import CannotLook
from ..._core.procedure import NOBODYS, OURS, THEIRS
from ..._core.value import frozen

# A cordon is ours when it came with this annotation; an annotation without one is left over.
ANNOTATION = "gpufleet.node/drained-by"


@frozen
class Node:
    """``version`` is the resourceVersion; ``mark`` what our annotation says, None where there is none."""

    name: str
    version: str
    cordoned: bool
    mark: Optional[str]

    @property
    def owner(self) -> str:
        """Whose the cordon is: ``ours``, ``theirs``, or ``nobody`` where there is none."""
        if not self.cordoned:
            return NOBODYS
        return THEIRS if self.mark is None else OURS


def parse_node(answer: Mapping[str, Any]) -> Node:
    """A node of core/v1. Raises ``CannotLook`` on anything else."""
    try:
        metadata = answer["metadata"]
        return Node(
            name=metadata["name"],
            version=metadata["resourceVersion"],
            cordoned=bool((answer.get("spec") or {}).get("unschedulable")),
            mark=(metadata.get("annotations") or {}).get(ANNOTATION),
        )
    except (AttributeError, KeyError, TypeError):
        raise CannotLook(
            "ask the API server for a node", cause="it returned something else", found=str(answer)[:200]
        ) from None


def patch(node: Node, mark: Optional[str]) -> Dict[str, Any]:
    """A merge patch that brings cordon and mark, or takes them both where ``mark`` is None.

    The API server refuses it when somebody has changed the node since it was looked at.
    """
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "resourceVersion": node.version, "annotations": {ANNOTATION: mark}},
        "spec": {"unschedulable": mark is not None},
    }
