# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Feature gates that decide whether a kubelet takes a field or a policy option, by release.

After pkg/features of Kubernetes 1.26 to 1.36. ``AllAlpha`` and ``AllBeta`` are for the gates of their stage that are
not named (SetFromMap of k8s.io/component-base/featuregate).
"""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from .schema import CPU_OPTIONS, CRITICAL, GRACE, MEMORY_POLICY, SWAP_FIELD, TOPOLOGY_OPTIONS, TOPOLOGY_POLICY, is_on

# The releases from which a gate is on by default, beta, and general; 0 for not yet.
_GATES: Mapping[str, Tuple[int, int, int]] = {
    "CPUManagerPolicyAlphaOptions": (0, 0, 0),
    "CPUManagerPolicyBetaOptions": (23, 23, 0),
    "CPUManagerPolicyOptions": (23, 23, 33),
    "GracefulNodeShutdown": (21, 21, 0),
    "MemoryManager": (22, 22, 32),
    "NodeSwap": (30, 28, 34),
    "TopologyManager": (18, 18, 27),
    "TopologyManagerPolicyAlphaOptions": (0, 0, 0),
    "TopologyManagerPolicyBetaOptions": (28, 26, 0),
    "TopologyManagerPolicyOptions": (28, 28, 32),
}
# The gate of a field, without which a kubelet exits at any value but this one, if any, or ignores it.
FIELD_GATES: Mapping[str, Tuple[str, Optional[str]]] = {
    CPU_OPTIONS: ("CPUManagerPolicyOptions", None),
    TOPOLOGY_OPTIONS: ("TopologyManagerPolicyOptions", None),
    TOPOLOGY_POLICY: ("TopologyManager", "none"),
    MEMORY_POLICY: ("MemoryManager", "None"),
    SWAP_FIELD: ("NodeSwap", None),
    GRACE: ("GracefulNodeShutdown", "0s"),
    CRITICAL: ("GracefulNodeShutdown", "0s"),
}
OPTION_GATES = {CPU_OPTIONS: "CPUManagerPolicy{}Options", TOPOLOGY_OPTIONS: "TopologyManagerPolicy{}Options"}


def enabled(gate: str, gates: Mapping[str, str], release: int) -> bool:
    """Whether a gate is on in a release, given those that are set."""
    on, beta, general = _GATES[gate]
    if gate in gates:
        return is_on(gates[gate])
    if general and release >= general:
        return True
    stage = "AllBeta" if beta and release >= beta else "AllAlpha"
    return is_on(gates[stage]) if stage in gates else bool(on and release >= on)
