#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: device_plugin
short_description: How Kubernetes allocates GPUs
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Declares for the nodes of a cluster how the NVIDIA device plugin offers their GPUs (shared by time slicing or MPS,
    whole, or by MIG profile), and sets labels and taints of the nodes. It is called once for all nodes of a cluster, on
    any host that can reach the API server. It works with the device plugin alone and with the GPU Operator.
  - Each different configuration is a key in a ConfigMap, and the label C(nvidia.com/device-plugin.config) of a node
    names its key. The name of a key contains a digest of its content, because the plugin reloads when the label
    changes, not when the content does. Keys that no node names any more are removed.
  - What was there before is noted in the annotation C(gpufleet.node/device-plugin) of each node. O(state=absent)
    restores it. Labels, taints and keys of others stay.
  - With the GPU Operator, the ConfigMap is named in the ClusterPolicy if none is named there yet. With the device
    plugin alone, its Helm values must have C(config.name); they are not changed, and without it the module fails and
    says so.
  - The DRA driver of NVIDIA and the device plugin do not know of each other, and can allocate the same GPU twice. What
    the DRA driver offers is in RV(dra), and is not changed.
  - "RDMA devices are shared by the RDMA shared device plugin (k8s-rdma-shared-dev-plugin), whose one file serves all
    nodes. Each node declares what it has to offer, and all of it together is the file. Entries of others in it stay."
  - DeviceClasses for claims of DRA are declared by nodes as well. An RDMA resource or a class is removed once no node
    of the cluster declares it, whichever run the nodes were in, because each node's annotation notes what it declares.
  - Wrong or impossible declarations are refused before anything changes.
options:
  state:
    description:
      - Whether the nodes are changed to what is declared, or restored to what was found. With V(absent), only the names
        of the nodes count.
      - The ConfigMap is deleted with the last node that uses it, if this module has created it, nobody has added a key
        to it, and no DaemonSet reads it any more.
    type: str
    choices: [present, absent]
    default: present
  nodes:
    description:
      - The nodes. Others are not touched.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - The name of the node in Kubernetes.
        type: str
        required: true
      strategy:
        description:
          - How GPUs are shared, if O(nodes[].replicas) or O(nodes[].resources) say that they are. Neither isolates
            faults, and only MPS limits memory. Time slicing needs Pascal or newer. MPS is limited to 48 replicas (16
            before Turing), needs a root folder (C(MPS_ROOT) in the DaemonSet, or the flag C(mpsRoot)), and the plugin
            does not support it with MIG.
        type: str
        choices: [time_slicing, mps]
        default: time_slicing
      replicas:
        description:
          - How many pods share each GPU, or each MIG device. With V(1), they are not shared.
        type: int
        default: 1
      resources:
        description:
          - Instead of O(nodes[].replicas), the replicas of individual resources. Other resources are not shared.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description:
              - The resource, such as V(gpu) or V(mig-1g.10gb), with or without C(nvidia.com/).
            type: str
            required: true
          replicas:
            description:
              - How many pods share each of them, at least 2.
            type: int
            required: true
      memory_mib:
        description:
          - The memory that each pod needs, in MiB. The memory of all replicas together must fit into a GPU, or into its
            smallest GPU instance. With V(0), that is not checked. The limit is not enforced, except that MPS gives each
            replica an equal share.
        type: int
        default: 0
      rename:
        description:
          - Whether shared resources are called C(nvidia.com/gpu.shared), so that a pod cannot get a share by mistake.
        type: bool
        default: false
      fail_requests_greater_than_one:
        description:
          - Whether a pod that requests more than one share is refused. Two shares are not twice the compute time, and
            may belong to one GPU.
        type: bool
        default: true
      mig_strategy:
        description:
          - How the plugin offers MIG devices. With V(none), it does not. With V(single), as C(nvidia.com/gpu), if all
            MIG devices of the node are alike. With V(mixed), by their profiles. Since release 0.20 of the plugin, that
            only works if no GPU instance has several compute instances. With V(unset), the plugin decides.
        type: str
        choices: [unset, none, single, mixed]
        default: unset
      flags:
        description:
          - "Other flags of the plugin as its file has them, such as V({plugin: {passDeviceSpecs: true}}). The plugin
            ignores a key that it does not know, so such a key is refused. Null is the same as leaving the key out."
          - A variable of the DaemonSet overrides the file, so a flag is refused where its variable has another value.
            For the flags of GPU feature discovery, its own DaemonSet counts.
          - A flag that the release of the plugin in the cluster does not have yet is listed in RV(ignored).
        type: dict
        default: {}
      labels:
        description:
          - Labels of the node. Labels that make the GPU Operator change the node, such as C(nvidia.com/mig.config), are
            refused.
        type: dict
        default: {}
      fact_labels:
        description:
          - "Whether the node is labelled with what O(nodes[].gpus) say, each behind C(gpufleet.node/): C(mig)
            (C(enabled), C(disabled), C(mixed)), the number of MIG devices by profile as C(mig-1g.10gb), C(sharing),
            C(replicas), C(gpu-numa-nodes) and C(nvlink-domain)."
        type: bool
        default: true
      taints:
        description:
          - Taints of the node, such as one that keeps pods without GPUs away. NoExecute is refused, because it would
            evict running pods.
        type: list
        elements: dict
        default: []
        suboptions:
          key:
            description:
              - The key.
            type: str
            required: true
          value:
            description:
              - The value.
            type: str
            default: ""
          effect:
            description:
              - The effect, V(NoSchedule) or V(PreferNoSchedule).
            type: str
            default: NoSchedule
      rdma_resources:
        description:
          - What the RDMA shared device plugin offers on the node. A resource that other nodes declare too must be
            alike on all of them.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description:
              - The name, up to 63 letters, digits and underscores, with a letter or digit at both ends, such as
                V(hca_shared_devices_a). It must be unique, whatever the prefix.
            type: str
            required: true
          prefix:
            description:
              - The part before the slash, V(rdma) for C(rdma/hca_shared_devices_a).
            type: str
            default: rdma
          hca_max:
            description:
              - How many pods on the node can use the resource at once, from 1 to 209715. All of them share all of its
                devices.
            type: int
            required: true
          selectors:
            description:
              - Which devices of the node belong to the resource. A device is chosen if, for each selector that is set,
                one of the values matches. At least one selector must be set.
            type: dict
            required: true
            suboptions:
              vendors:
                description:
                  - IDs of PCI vendors, such as V(15b3).
                type: list
                elements: str
                default: []
              device_ids:
                description:
                  - IDs of PCI devices, such as V(1021).
                type: list
                elements: str
                default: []
              drivers:
                description:
                  - Drivers, such as V(mlx5_core).
                type: list
                elements: str
                default: []
              if_names:
                description:
                  - Names of network interfaces, such as V(ibp24s0).
                type: list
                elements: str
                default: []
              link_types:
                description:
                  - Link types of network interfaces.
                type: list
                elements: str
                choices: [ether, infiniband]
                default: []
      rdma_update_interval:
        description:
          - After how many seconds the plugin looks for devices again, up to 86400. With V(0) it never does. It has an
            effect only with O(nodes[].rdma_resources), and must be the same on all nodes that have them.
          - If not set, it is left alone. If its file sets none, the plugin uses 60.
        type: int
      device_classes:
        description:
          - DeviceClasses of C(resource.k8s.io) for the GPUs of NVIDIA's DRA driver, beside those that come with it.
            DeviceClasses belong to the cluster, so all nodes that declare a name must declare the same.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description:
              - The name, a domain such as V(h100.example.com). Those of the driver are refused.
            type: str
            required: true
          type:
            description:
              - Whether the class has whole GPUs, MIG devices, or GPUs for virtual machines. This becomes the first
                selector of the class.
            type: str
            choices: [gpu, mig, vfio]
            default: gpu
          selectors:
            description:
              - Expressions in CEL, all of which must be true for a device, such as
                V(device.attributes["gpu.nvidia.com"].architecture == "Hopper"). The API server checks them before
                anything changes.
            type: list
            elements: str
            required: true
      gpus:
        description:
          - The GPUs of the node, from P(gpufleet.node.plugin_gpus#filter). Without them, it cannot be checked whether
            the replicas fit and what the kubelet should offer.
        type: list
        elements: dict
        default: []
  namespace:
    description:
      - The namespace of the device plugin, C(gpu-operator) for the GPU Operator.
    type: str
    default: nvidia-device-plugin
  config_map:
    description:
      - The ConfigMap that the plugin reads. It is created if it does not exist. In a ConfigMap of someone else, only
        keys of this module are changed.
    type: str
    default: gpufleet-device-plugin
  rdma_namespace:
    description:
      - The namespace of the RDMA shared device plugin.
    type: str
    default: kube-system
  rdma_config_map:
    description:
      - The ConfigMap of the RDMA shared device plugin, which has its file as C(config.json). It is created if it does
        not exist. One that the NVIDIA Network Operator makes from the C(rdmaSharedDevicePlugin) of its
        NicClusterPolicy, usually C(rdma-devices) in its own namespace, is refused.
    type: str
    default: rdma-devices
  rdma_restart:
    description:
      - Whether the pods of the RDMA shared device plugin are replaced when its file has changed, because the plugin
        reads it only at its start. An annotation in its DaemonSet does that. Pods that use RDMA devices keep running.
        If V(false), nodes are pending until someone else replaces the pods.
    type: bool
    default: true
  timeout:
    description:
      - How many seconds to wait until the kubelets offer what is declared. Nodes that do not by then are in
        RV(pending). The kubelet takes up to two minutes to bring a new key into the pod of the plugin.
    type: int
    default: 300
  poll:
    description:
      - The maximum number of seconds between two polls. The first ones are closer together.
    type: int
    default: 15
extends_documentation_fragment:
  - gpufleet.node.kubernetes
  - gpufleet.node.contract.attributes
attributes:
  check_mode:
    support: full
    description: Predicts the changes, has the API server check each by a dry run, and does not wait.
  diff_mode:
    support: full
  idempotent:
    support: full
notes:
  - The user must be allowed to get, list and patch nodes, and to list daemonsets and to get, create, patch and delete
    configmaps in the namespace of the plugin. With the GPU Operator, also to get and patch
    C(clusterpolicies.nvidia.com). To see the DRA driver, also to list C(deviceclasses) and C(resourceslices) of
    C(resource.k8s.io).
  - For O(nodes[].rdma_resources), it must also be allowed to get, create, patch and delete configmaps and to list and
    patch daemonsets in O(rdma_namespace). For O(nodes[].device_classes), to list, create, patch and delete
    C(deviceclasses).
seealso:
  - module: gpufleet.node.mig_layout
  - name: NVIDIA device plugin
    description: Its configuration, sharing and MIG strategies.
    link: https://github.com/NVIDIA/k8s-device-plugin
  - name: RDMA shared device plugin
    description: Its configuration.
    link: https://github.com/Mellanox/k8s-rdma-shared-dev-plugin
  - name: Dynamic Resource Allocation
    description: What a DeviceClass is, and how a pod claims a device of it.
    link: https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

EXAMPLES = r"""
- name: Read the GPUs
  gpufleet.node.gpu_node_info:
    gather: [gpus, health, topology]
  register: info

- name: Let three pods share each GPU
  gpufleet.node.device_plugin:
    nodes:
      - name: "{{ inventory_hostname }}"
        replicas: 3
        memory_mib: 20000
        gpus: "{{ info.node | gpufleet.node.plugin_gpus }}"
  delegate_to: localhost

- name: MIG devices by their profiles, on nodes reserved for pods that request GPUs
  gpufleet.node.device_plugin:
    namespace: gpu-operator
    nodes:
      - name: h100-007
        mig_strategy: mixed
        taints:
          - key: nvidia.com/gpu
            value: present
  delegate_to: localhost
  run_once: true

- name: Let up to 64 pods share the ConnectX-7 of a node
  gpufleet.node.device_plugin:
    nodes:
      - name: h100-007
        rdma_resources:
          - name: hca_shared_devices_a
            hca_max: 64
            selectors:
              vendors: [15b3]
              device_ids: ["1021"]
  delegate_to: localhost
  run_once: true

- name: Let pods claim a whole H100, whatever else the cluster has
  gpufleet.node.device_plugin:
    nodes:
      - name: h100-007
        device_classes:
          - name: h100.example.com
            selectors:
              - device.attributes["gpu.nvidia.com"].productName.contains("H100")
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
config_map:
  description: The ConfigMap, as C(NAMESPACE/NAME).
  returned: always, unless the state could not be read
  type: str
  sample: nvidia-device-plugin/gpufleet-device-plugin
configs:
  description: How many of the nodes have each key of the ConfigMap.
  returned: always, unless the state could not be read
  type: dict
  sample: {gpufleet-timesliced-3-0a1b2c3d4e: 12}
pending:
  description: The nodes whose kubelet does not offer what is declared. In check mode, as it is before the run.
  returned: always, unless the state could not be read
  type: list
  elements: dict
  contains:
    name:
      description: The node.
      type: str
      sample: h100-007
    config:
      description: Its key of the ConfigMap; empty if nothing is said to the device plugin.
      type: str
      sample: gpufleet-timesliced-3-0a1b2c3d4e
    expected:
      description: What it should offer, by resource.
      type: dict
      sample: {nvidia.com/gpu: 12, rdma/hca_shared_devices_a: 64}
    allocatable:
      description: What it offers of these resources, and of others of the device plugin.
      type: dict
      sample: {nvidia.com/gpu: 4}
ignored:
  description: Declared values that the device plugin of the cluster ignores, such as a flag that its release lacks.
  returned: always, unless the state could not be read
  type: list
  elements: dict
  contains:
    name:
      description: The node.
      type: str
      sample: h100-007
    what:
      description: What is ignored, and why.
      type: str
      sample: flags.gdrcopyEnabled, which only release 0.18 and newer have
unverified:
  description: The nodes whose GPUs are not known, so that what they offer cannot be checked.
  returned: always, unless the state could not be read
  type: list
  elements: str
  sample: []
owner:
  description: Who else manages the ConfigMap, such as C(Helm) or an annotation of Argo CD; empty if nobody does.
  returned: always, unless the state could not be read
  type: str
  sample: ""
left:
  description: Why the ConfigMap is left, with O(state=absent); empty if it is not.
  returned: always, unless the state could not be read
  type: str
  sample: the ConfigMap nvidia-device-plugin/gpufleet-device-plugin is read by nvdp-nvidia-device-plugin
rdma:
  description: The file of the RDMA shared device plugin.
  returned: always, unless the state could not be read
  type: dict
  contains:
    config_map:
      description: Its ConfigMap, as C(NAMESPACE/NAME).
      type: str
      sample: kube-system/rdma-devices
    resources:
      description: The resources in it that this module has written. In check mode, before the run.
      type: list
      elements: str
      sample: [hca_shared_devices_a]
    owner:
      description: Who else manages the ConfigMap; empty if nobody does, or if nothing of ours is in it.
      type: str
      sample: ""
    left:
      description: Why the ConfigMap is left when no node declares a resource any more; empty if it is not.
      type: str
      sample: the ConfigMap kube-system/rdma-devices is read by rdma-shared-dp-ds
dra:
  description: What the DRA driver of NVIDIA offers, as it was before the run.
  returned: always, unless the state could not be read
  type: dict
  contains:
    classes:
      description: Its DeviceClasses for GPUs in the cluster.
      type: list
      elements: str
      sample: [gpu.nvidia.com, mig.nvidia.com]
    declared:
      description: The DeviceClasses that this module has made. In check mode, before the run.
      type: list
      elements: str
      sample: [h100.example.com]
    devices:
      description: The devices that it has published in ResourceSlices, by the nodes in O(nodes) that have any.
      type: dict
      sample: {h100-008: [gpu-0, gpu-1]}
    twice:
      description: Those of them whose kubelet also offers GPUs of the device plugin. A GPU may be allocated twice.
      type: list
      elements: str
      sample: []
    unknown:
      description: Why it could not be seen; empty if it was.
      type: str
      sample: ""
changes:
  description: What changed, or in check mode would.
  returned: always, unless the state could not be read
  type: list
  elements: dict
  contains:
    object:
      description: The node, a ConfigMap as C(NAMESPACE/NAME), the ClusterPolicy, a DaemonSet, or a DeviceClass.
      type: str
      sample: h100-007
    setting:
      description: The label, the taint, the key, or the resource.
      type: str
      sample: label nvidia.com/device-plugin.config
    before:
      description: The value that was found; null for none.
      type: str
    after:
      description: The new value; null for none.
      type: str
      sample: gpufleet-timesliced-3-0a1b2c3d4e
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
        - C(declaration), C(conflict), C(refused), C(not_in_effect), C(not_permitted) or C(cannot_look).
      type: str
      sample: declaration
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
      sample: set config_map to time-slicing-config
"""

from ansible.module_utils.basic import env_fallback
from ansible_collections.gpufleet.node.plugins.module_utils._machine.kubernetes_client import access_arguments
from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run_procedure
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.procedure import PROCEDURE


def main() -> None:
    run_procedure(PROCEDURE, {**PROCEDURE.options, **access_arguments(env_fallback)})


if __name__ == "__main__":
    main()
