#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubernetes_node
short_description: Drain a Kubernetes node, or return it to service
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Cordons a node, evicts its pods and waits until they have gone, or uncordons the node. It runs on any host that can
    reach the API server.
  - What this module cordons has the annotation C(gpufleet.node/drained-by). A node that is cordoned without it is
    someone else's. None of its pods is evicted, and it is never uncordoned. To take over a node that this module has
    cordoned, remove the annotation.
  - Cordon and annotation are set and removed in one request, which the API server refuses if the node has changed since
    it was read; then it is read again.
  - A run that was interrupted leaves the node cordoned. The next one continues the drain, or uncordons the node.
options:
  name:
    description:
      - The name of the node in Kubernetes.
    type: str
    required: true
  state:
    description:
      - With V(drained) the node gets no new pods, and its pods are evicted and waited for. Pods of DaemonSets, static
        pods, and pods that have ended, stay.
      - With V(in_service) the node is uncordoned if this module has cordoned it.
    type: str
    choices: [drained, in_service]
    required: true
  reason:
    description:
      - Why the node is drained, one line. It is the value of the annotation, behind C(gpufleet:) and a space.
    type: str
    default: maintenance
  update_reason:
    description:
      - Whether O(reason) replaces the reason of a node that this module has drained before, for example to say why it
        is not resumed. A node that someone else has drained keeps its reason.
    type: bool
    default: false
  timeout:
    description:
      - How many seconds to wait for pods to terminate. An eviction that a PodDisruptionBudget refuses is retried until
        then. After that the module fails and names the pods, and the node stays cordoned.
      - With V(0) it requests each eviction once and does not wait. The pods that remain are in RV(pods).
    type: int
    default: 3600
  poll:
    description:
      - The maximum number of seconds between two polls. The first ones are closer together.
    type: int
    default: 15
  pod_selectors:
    description:
      - Label selectors of the pods to evict, such as V(app!=dcgm-exporter). Others stay, and are not waited for.
    type: list
    elements: str
    default: []
  force:
    description:
      - Whether pods without a controller are deleted. Otherwise they are an error, and no pod is evicted.
    type: bool
    default: false
  ignore_daemonsets:
    description:
      - Whether pods of DaemonSets stay. Otherwise they are an error, and no pod is evicted.
    type: bool
    default: true
  delete_emptydir_data:
    description:
      - Whether pods with emptyDir data are deleted, with the data. Otherwise they are an error, and no pod is evicted.
    type: bool
    default: false
  disable_eviction:
    description:
      - Whether pods are deleted without asking PodDisruptionBudgets.
    type: bool
    default: false
  grace_period:
    description:
      - How many seconds each pod has to terminate. With V(-1), the grace period of the pod applies.
    type: int
    default: -1
extends_documentation_fragment:
  - gpufleet.node.kubernetes
  - gpufleet.node.contract.attributes
attributes:
  check_mode:
    support: full
    description: Predicts the cordon, by a dry run of the API server, and the evictions, and does not wait.
  diff_mode:
    support: full
  idempotent:
    support: full
notes:
  - The user must be allowed to get, list and patch nodes, to list pods, and to create C(pods/eviction).
seealso:
  - module: gpufleet.node.kubernetes_drained_info
  - name: Safely drain a node
    description: Drains and PodDisruptionBudgets in the Kubernetes documentation.
    link: https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/
"""

EXAMPLES = r"""
- name: Drain the node, and wait two hours at most
  gpufleet.node.kubernetes_node:
    name: "{{ inventory_hostname }}"
    state: drained
    reason: new MIG layout
    timeout: 7200
  delegate_to: localhost

- name: Put it back, if it was drained by us
  gpufleet.node.kubernetes_node:
    name: "{{ inventory_hostname }}"
    state: in_service
  delegate_to: localhost
"""

RETURN = r"""
name:
  description: The node.
  returned: always, unless the state could not be read
  type: str
  sample: h100-007
owner:
  description: Whose the cordon is after the run, C(ours), C(theirs), or C(nobody) if the node is not cordoned.
  returned: always, unless the state could not be read
  type: str
  sample: ours
reason:
  description: The annotation, whole; empty where there is none.
  returned: always, unless the state could not be read
  type: str
  sample: 'gpufleet: new MIG layout'
idle:
  description: Whether no pod that must be evicted is on the node.
  returned: always, unless the state could not be read
  type: bool
  sample: true
pods:
  description: The pods that must be evicted and are still on the node.
  returned: always, unless the state could not be read
  type: list
  elements: dict
  contains:
    namespace:
      description: The namespace of the pod.
      type: str
      sample: default
    name:
      description: Its name.
      type: str
      sample: web-1
    phase:
      description: Its phase.
      type: str
      sample: Running
    owners:
      description: What it belongs to, kind and name of each.
      type: list
      elements: str
      sample: [ReplicaSet web]
    ending:
      description: Whether it was told to end.
      type: bool
      sample: true
left:
  description: What was left alone because someone else set it, in words; empty if nothing was.
  returned: always, unless the state could not be read
  type: str
  sample: it was not cordoned by this collection
changes:
  description: What changed, or in check mode would.
  returned: always, unless the state could not be read
  type: list
  elements: dict
  contains:
    object:
      description: The node, or a pod as C(NAMESPACE/NAME).
      type: str
      sample: h100-007
    setting:
      description: C(state) or C(reason).
      type: str
      sample: state
    before:
      description: The value that was found.
      type: str
      sample: in_service
    after:
      description: The new value.
      type: str
      sample: drained
    scope:
      description: Always C(effective); Kubernetes keeps it.
      type: str
      sample: effective
    takes_effect:
      description: Always C(now).
      type: str
      sample: now
failure:
  description: What went wrong, for programs.
  returned: failure
  type: dict
  contains:
    code:
      description:
        - C(declaration), C(in_use), C(refused), C(not_in_effect), C(not_permitted), C(conflict) or C(cannot_look).
      type: str
      sample: in_use
    object:
      description: What it was about.
      type: str
    found:
      description: The value that was found.
      type: raw
    wanted:
      description: The value that was wanted.
      type: raw
    hint:
      description: The next step.
      type: str
      sample: 'It stays cordoned: wait on with another run, or end them'
"""

from ansible.module_utils.basic import env_fallback
from ansible_collections.gpufleet.node.plugins.module_utils._machine.kubernetes_client import access_arguments
from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run_procedure
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.kubernetes.procedure import PROCEDURE


def main() -> None:
    run_procedure(PROCEDURE, {**PROCEDURE.options, **access_arguments(env_fallback)})


if __name__ == "__main__":
    main()
