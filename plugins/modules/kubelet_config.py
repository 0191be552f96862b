#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubelet_config
short_description: CPUs, memory, reservations, eviction and swap of a kubelet
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Sets the CPU, topology and memory managers of a kubelet, what it reserves, when it evicts pods, what pods may swap,
    and how long a shutdown waits for them. The kubelet is the service C(kubelet.service), as with kubeadm and on EKS,
    or a part of k3s or RKE2.
  - The settings are written where this kubelet reads them. If it has a folder of drop-ins (its flag C(--config-dir), or
    k3s and RKE2 from 1.32 on), that is C(99-gpufleet.conf) in this folder. Otherwise it is a section between two
    comments in the file of C(--config), most often C(/var/lib/kubelet/config.yaml); lines that it replaces stay there
    as comments. C(kubeadm upgrade) rewrites that file, and the next run of this module corrects it. k3s and RKE2 before
    1.32 get C(kubelet-arg+) in C(config.yaml.d/99-gpufleet-kubelet.yaml).
  - C(/configz) of the kubelet says what is in effect, not the file. The kubelet is asked on this node with
    O(client_certificate), or with the certificate of the API server if that is on the node (a control plane of kubeadm,
    a server of k3s or RKE2). Other nodes have no certificate that may ask it. Then RV(unmanaged) says so, and its files
    count as in effect if the process was started after they were written.
  - A field or a policy option that is newer than this kubelet is refused, because the kubelet ignores what it does not
    know. So is everything that would make it exit, such as a static policy without reserved CPUs, reserved memory that
    does not add up, enabled swap, a threshold of 0, options that exclude each other, and what is behind a feature
    gate that is off. What a kubelet accepts but does not use with its other values is in RV(unmanaged). CPUs that
    M(gpufleet.node.cpu_isolation) keeps for the system but that are not reserved here are refused as well, and so are
    reserved CPUs that the kernel isolates.
  - The kubelet records which pods have which CPUs and memory in C(cpu_manager_state) and C(memory_manager_state). It
    exits at its start if these files are from another policy, other CPUs or other memory, even after a plain reboot.
    Such a file has drifted, and the reason is given. Then, and when a policy or a reservation changes, the kubelet is
    stopped, the file removed, the configuration written, and the kubelet started. If it is not healthy within
    O(start_timeout), all these files are restored, it is started with them, and the run fails with what its log says.
  - The kubelet counts huge pages when it starts. If their number has changed since, it is restarted. While pods of the
    class Guaranteed run, the change is pending instead, with C(idle_node) in RV(needs).
  - Feature gates, the API server's certificates, taints and labels are not managed, nor are the many other fields of
    KubeletConfiguration.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  cpu_manager_policy:
    description:
      - Whether containers of pods of the class Guaranteed get exclusive CPUs (V(static)).
      - V(none) or V(static).
    type: str
  cpu_manager_policy_options:
    description:
      - Options of V(static), such as V(full-pcpus-only) and V(strict-cpu-reservation), each with V(true) or V(false).
      - An option is refused if the feature gate for its stage is off, as that for alpha options is by default. Gates
        are set in the kubelet's own configuration.
    type: dict
    default: {}
  reserved_system_cpus:
    description:
      - CPUs that no pod gets exclusively, as a list such as V(0-1,64-65). This neither keeps other pods and the daemons
        of the system off these CPUs nor binds them to these. M(gpufleet.node.cpu_isolation) binds the daemons.
    type: str
  topology_manager_policy:
    description:
      - Whether CPUs, devices and memory of a pod come from the same NUMA node.
      - V(none), V(best-effort), V(restricted) or V(single-numa-node).
    type: str
  topology_manager_scope:
    description:
      - Whether the topology manager decides for each container or for the whole pod.
      - V(container) or V(pod).
    type: str
  topology_manager_policy_options:
    description:
      - V(prefer-closest-numa-nodes) with V(true) or V(false), and V(max-allowable-numa-nodes) with a number from 8 up.
    type: dict
    default: {}
  memory_manager_policy:
    description:
      - Whether the memory and huge pages of a pod of the class Guaranteed are reserved on as few NUMA nodes as possible
        (V(static)). The kubelet spells these V(None) and V(Static). V(static) needs O(reserved_memory).
      - V(none) or V(static).
    type: str
  reserved_memory:
    description:
      - What is reserved on each NUMA node. The memory of all nodes must add up to C(memory) of O(kube_reserved) and
        O(system_reserved) plus C(memory.available) of O(eviction_hard), which is 100Mi by default. Huge pages
        cannot be reserved. A kubelet with O(memory_manager_policy=static) exits if they are listed here.
    type: list
    elements: dict
    default: []
    suboptions:
      numa_node:
        description:
          - The number of the NUMA node.
        type: int
        required: true
      limits:
        description:
          - The quantity of C(memory).
        type: dict
        required: true
  system_reserved:
    description:
      - What is reserved for the daemons of the system, as quantities of C(cpu), C(memory), C(ephemeral-storage) and
        C(pid). Resources that are not named keep what others have set. With O(reserved_system_cpus), the number of
        these CPUs takes the place of C(cpu) here and in O(kube_reserved).
    type: dict
    default: {}
  kube_reserved:
    description:
      - The same for the kubelet and the container runtime.
    type: dict
    default: {}
  eviction_hard:
    description:
      - Thresholds at which pods are evicted at once, such as C(memory.available) with V(500Mi) or V(5%). V(0%) disables
        a threshold.
      - Thresholds that are set nowhere keep the kubelet's defaults. The kubelet itself would set them to 0, unless its
        file has C(mergeDefaultEvictionSettings), which 1.33 and newer support.
    type: dict
    default: {}
  eviction_soft:
    description:
      - Thresholds at which pods are evicted after O(eviction_soft_grace_period), which each of them needs.
    type: dict
    default: {}
  eviction_soft_grace_period:
    description:
      - For each threshold of O(eviction_soft), how long it has to be crossed, such as V(1m30s).
    type: dict
    default: {}
  eviction_minimum_reclaim:
    description:
      - The least that an eviction frees, by signal, such as C(nodefs.available) with V(1Gi).
    type: dict
    default: {}
  fail_swap_on:
    description:
      - Whether the kubelet exits at its start if swap is on.
    type: bool
  swap_behavior:
    description:
      - How much swap pods may use, with O(fail_swap_on=false).
      - V(NoSwap) or V(LimitedSwap).
    type: str
  shutdown_grace_period:
    description:
      - How long a shutdown of the node waits for pods, such as V(2m). The kubelet itself asks systemd-logind for it.
    type: str
  shutdown_grace_period_critical_pods:
    description:
      - The part of O(shutdown_grace_period) that is for critical pods alone, which end last.
    type: str
  client_certificate:
    description:
      - The file on the node with a client certificate that may read C(/configz) of the kubelet. With O(strict=true) it
        is an error if the kubelet cannot be asked with it.
    type: path
  client_key:
    description:
      - The file with the key of O(client_certificate).
    type: path
  when_busy:
    description:
      - What happens if a policy or a reservation has to change, or a state file has to be removed, while pods of the
        class Guaranteed run. When the kubelet starts it admits all pods again, and rejects those that no longer fit.
      - V(fail) ends the run before anything is changed and names them.
      - V(wait) polls for up to O(busy_timeout) until none runs, and then plans again. After that it is like V(fail).
      - V(skip) leaves everything as it is, with C(idle_node) in RV(needs).
      - V(ignore) makes the change all the same, for nodes on which such pods belong to a DaemonSet, which a drain does
        not evict.
    type: str
    choices: [fail, wait, skip, ignore]
    default: fail
  busy_timeout:
    description:
      - How long O(when_busy=wait) waits, in seconds.
    type: int
    default: 600
  start_timeout:
    description:
      - How long the kubelet may take until it is healthy, in seconds.
    type: int
    default: 120
  optional:
    description:
      - Whether a machine may have no kubelet, or not have joined a cluster yet. RV(unmanaged) then says so. Otherwise
        that is an error.
    type: bool
    default: false
seealso:
  - module: gpufleet.node.cpu_isolation
  - module: gpufleet.node.hugepages
  - name: KubeletConfiguration
    description: All fields, in the documentation of Kubernetes.
    link: https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
  - name: Control CPU management policies on the node
    description: The order in which a policy is changed.
    link: https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/
"""

EXAMPLES = r"""
- name: Give pods with GPUs the CPUs and the memory beside them
  gpufleet.node.kubelet_config:
    cpu_manager_policy: static
    cpu_manager_policy_options: {full-pcpus-only: true}
    reserved_system_cpus: 0-1,64-65
    topology_manager_policy: restricted
    system_reserved: {memory: 4Gi}
    kube_reserved: {memory: 2Gi}
    eviction_hard: {memory.available: 1Gi}
    memory_manager_policy: static
    reserved_memory:
      - numa_node: 0
        limits: {memory: 4Gi}
      - numa_node: 1
        limits: {memory: 3Gi}

- name: Let pods end before the node does
  gpufleet.node.kubelet_config:
    shutdown_grace_period: 2m
    shutdown_grace_period_critical_pods: 30s

- name: Restore what was there before
  gpufleet.node.kubelet_config:
    state: absent
"""

RETURN = r"""
# What the modules of all concerns return. `make docs` keeps the keys, not the sentences and samples.
status:
  description: What was found before the run, one of C(in_sync), C(drifted) and C(pending).
  returned: success
  type: str
changes:
  description: The plan, which check mode and real mode share.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: C(kubelet), its unit, a file, or huge pages of one size.
      type: str
    setting:
      description:
        - A field of KubeletConfiguration, C(configuration) and C(state) for files, C(service) or C(capacity).
      type: str
    before:
      description: The value that was found.
      type: raw
    after:
      description: The value that was declared.
      type: raw
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
    takes_effect:
      description: Always C(now).
      type: str
needs:
  description:
    - C(idle_node) while a change waits until no pods of the class Guaranteed run; otherwise nothing.
  returned: always, unless the declaration was refused
  type: list
  elements: str
pending_reasons:
  description:
    - For each setting that waits for what RV(needs) says, one sentence with the value that is in effect,
      the declared one, and why it waits.
  returned: always, unless the declaration was refused
  type: list
  elements: str
unmanaged:
  description: What was declared and this machine does not have, with the reason.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: What the setting was declared for.
      type: str
    setting:
      description: The setting that it does not have, or that is not restored.
      type: str
    reason:
      description: Why.
      type: str
conflicts:
  description: Always empty. A setting of others that overrides ours is refused.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: Who it is.
      type: str
    path:
      description: The file.
      type: str
    line:
      description: The line in it, where there is one.
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: What it sets.
      type: str
    value:
      description: The value it sets.
      type: str
    wins:
      description: Whose value stays in the end. One of C(us), C(them) and C(unknown).
      type: str
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
reboot_required:
  description: Always false.
  returned: always, unless the declaration was refused
  type: bool
reboot_reasons:
  description: Always empty.
  returned: always, unless the declaration was refused
  type: list
  elements: str
failure:
  description: What went wrong, for programs.
  returned: failure
  type: dict
  contains:
    code:
      description:
        - C(declaration), C(conflict), C(in_use), C(not_permitted), C(refused), C(not_in_effect) or C(cannot_look).
      type: str
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
# End of what all return.
effective:
  description: The configuration of the running kubelet.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    service:
      description: C(healthy), C(not healthy) or C(stopped), V(null) where systemd does not run.
      type: str
      sample: healthy
    asked:
      description: Whether the kubelet itself reported this.
      type: bool
      sample: true
    fields:
      description: The fields by name, each in the form of its flag; V(null) if unknown.
      type: dict
      sample: {"cpuManagerPolicy": "static"}
boot:
  description: The configuration after its next start.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    file:
      description: The file with our settings; V(null) without a kubelet.
      type: str
      sample: /var/lib/kubelet/config.yaml
    fields:
      description: The fields that its files and flags set, in the same form.
      type: dict
      sample: {"cpuManagerPolicy": "static"}
"""


from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kubelet_config.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
