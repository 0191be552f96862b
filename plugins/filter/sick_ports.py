# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: sick_ports
short_description: What is wrong with the ports of network cards of a node
version_added: 0.1.0
description:
  - Takes what M(gpufleet.node.gpu_node_info) read with V(network), and says for each InfiniBand, RoCE or Ethernet port
    what is wrong with it, by the default limits or those of the fleet.
positional: _input
options:
  _input:
    description: The facts of a node.
    type: dict
    required: true
  limits:
    description:
      - By how much an error counter may grow in an hour, by its name. With V(-1) it has no limit. Counters that are not
        named keep the default of C(preflight_port_limits) of the role P(gpufleet.node.preflight#role).
    type: dict
    default: {}
  required:
    description: Ports that must be active, as shell globs of names, RDMA devices, interfaces or PCI addresses.
    type: list
    elements: str
    default: []
  ignored:
    description: Ports that are not checked, as shell globs of the same names.
    type: list
    elements: str
    default: []
  rate_gbps:
    description: The rate that each required port must have, in Gb/s, or each active port if O(required) is empty.
    type: float
    default: 0
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Stop where a port is sick
  ansible.builtin.assert:
    that: info.node | gpufleet.node.sick_ports(ignored=['eno*']) | length == 0
"""

RETURN = r"""
_value:
  description: One sentence per problem, with the name of the port.
  type: list
  elements: str
"""

import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ansible.errors import AnsibleFilterError

from ..module_utils._core.nearest import did_you_mean
from ..module_utils._node import verdict
from ..module_utils._node.port_health import LIMITS, UNLIMITED, limits_with

NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


def sick_ports(
    node: Mapping[str, Any],
    limits: Optional[Mapping[str, Any]] = None,
    required: Sequence[str] = (),
    ignored: Sequence[str] = (),
    rate_gbps: float = 0,
) -> List[str]:
    return verdict.sick_ports(
        node, limits=_limits(limits or {}), required=required, ignored=ignored, rate_gbps=float(rate_gbps)
    )


def _limits(changes: Mapping[str, Any]) -> Dict[str, int]:
    """All limits, or an error that says which of the changes is none."""
    for name, value in changes.items():
        if name not in LIMITS:
            hint = did_you_mean(name, LIMITS, otherwise=f"the counters are {', '.join(LIMITS)}")
            raise AnsibleFilterError(f"Cannot use the limit of {name}: there is no such counter. {hint}.")
        if isinstance(value, bool) or not NUMBER.fullmatch(str(value)) or int(value) < UNLIMITED:
            raise AnsibleFilterError(
                f"Cannot use the limit of {name}: it is {value}, and must be a whole number, or {UNLIMITED} for no "
                "limit."
            )
    return limits_with({name: int(value) for name, value in changes.items()})


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"sick_ports": sick_ports}
