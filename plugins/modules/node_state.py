#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_state
short_description: Look at everything that is declared for a node, in one call
version_added: 0.1.0
description:
  - Takes the declarations of all concerns, reads the state from the kernel, the driver and the daemons, and returns
    what has drifted.
  - It changes nothing. The playbooks C(gpufleet.node.site) and C(gpufleet.node.audit) are built on it.
  - A concern whose state cannot be read is C(unknown), one whose declaration is wrong is C(invalid), and neither stops
    the others.
author:
  - gpufleet contributors (@gpufleet)
options:
  declared:
    description:
      - What is declared, by concern. The keys are names of modules of this collection, such as V(hugepages), and the
        values are the options of that module.
      - The result follows the order of the registry, whatever the order here.
    type: dict
    required: true
  excluded:
    description:
      - Concerns to leave out, whatever O(declared) says of them. Their declarations on the node are not RV(orphaned).
    type: list
    elements: str
    default: []
  detail:
    description:
      - V(brief) returns only what is not in sync, in a few KiB for a converged node.
      - V(devices) adds RV(concerns.devices) and RV(concerns.summary) of concerns that are in sync.
      - V(full) adds every setting, and the state of each concern in effect and at boot.
    type: str
    choices: [brief, devices, full]
    default: brief
  expect:
    description:
      - V(nothing) reports and never fails because of what it found.
      - V(valid) fails when a declaration is wrong for this node, with all the reasons, so that nothing is changed on a
        node whose inventory is wrong.
      - V(in_sync) also fails when a setting has drifted or cannot be read. What only waits (for a reboot, the reset of
        a GPU or a reload of systemd) does not fail. In check mode drift is expected, and only what would make a
        converge fail is a failure.
    type: str
    choices: [nothing, valid, in_sync]
    default: nothing
  facts:
    description:
      - Whether to return the facts of the node too, RV(compressed), so that it is asked once for both.
    type: bool
    default: false
  no_diff:
    description:
      - Shell globs of files of other software whose changes are not shown in diff mode, such as
        C(/etc/docker/daemon.json).
    type: list
    elements: str
    default: []
  binding:
    description:
      - The text of a C(pynvml.py), as the controller packs it. It is used in memory where the node has no suitable
        nvidia-ml-py.
      - M(gpufleet.node.assess_node) sets it, when the node answered that it has none. There is no need to set it
        elsewhere.
    type: str
    default: ""
extends_documentation_fragment:
  - gpufleet.node.contract.attributes
attributes:
  check_mode:
    support: full
    details: The module only ever looks.
  diff_mode:
    support: full
    details: Shows what a converge would change.
  idempotent:
    support: full
seealso:
  - module: gpufleet.node.hugepages
  - module: gpufleet.node.nvme_scheduler
"""

EXAMPLES = r"""
- name: Look at the node
  gpufleet.node.node_state:
    declared:
      hugepages:
        pools:
          - size: 2M
            per_node: {0: 512, 1: 512}
      nvme_scheduler:
        queues:
          - scheduler: none
            read_ahead_kb: 4096
  register: look

- name: Fail when the node is not as declared
  gpufleet.node.node_state:
    declared: "{{ declarations }}"
    expect: in_sync
"""

RETURN = r"""
concerns:
  description:
    - The result of each declared concern, in the order of the registry.
    - The keys are those that the concern's own module returns. RV(concerns.effective) and RV(concerns.boot) are there
      only with O(detail=full). Without it, RV(concerns.settings) lists only what is not in sync, and what is empty,
      false or zero is left out.
  returned: always
  type: dict
  contains:
    status:
      description:
        - V(in_sync), V(drifted), V(pending) (written, and waits for what RV(concerns.needs) names), V(unknown) (could
          not be read, or another owner may set it at boot) or V(invalid) (the declaration is wrong, or impossible on
          this node).
      type: str
    settings:
      description: One entry per setting, with what is wanted, what is in effect and what the next boot will bring.
      type: list
      elements: dict
    settings_in_sync:
      description: The number of settings that are in sync.
      type: int
    changes:
      description: What a converge would change.
      type: list
      elements: dict
    refusals:
      description:
        - The errors at which a converge would stop after it has made other changes, each with C(code) and C(msg).
      returned: when there is something
      type: list
      elements: dict
    restarts:
      description:
        - The units that a converge itself would restart, or stop for a while. What is restarted later is in
          RV(concerns.needs).
      returned: when there is something
      type: list
      elements: str
    files:
      description:
        - The files of other software that a converge would change, each with its C(path) and the hunks of a unified
          C(diff), in which passwords, tokens and the like are masked. The difference is empty for a path of
          O(no_diff).
      returned: in diff mode, where there is something to do
      type: list
      elements: dict
    needs:
      description: What must still happen after a converge, by name, such as V(reboot).
      type: list
      elements: str
    unmanaged:
      description:
        - What matched but cannot be set, with the reason.
        - Without O(detail=full) at most 8 entries, and none for a concern that is in sync, unless O(facts) is set.
      type: list
      elements: dict
    unmanaged_total:
      description: The number of entries that RV(concerns.unmanaged) has with O(detail=full).
      type: int
    conflicts:
      description: Other owners of the same settings.
      type: list
      elements: dict
    summary:
      description:
        - For M(gpufleet.node.cpu_isolation), which CPUs are for the system and which for jobs, and which are isolated.
        - Only if the concern is not in sync, or with O(detail=devices) or O(detail=full).
      type: str
      sample: 0-3 for the system, 4-63 for jobs, 4-63 isolated by nohz_full
    unique:
      description:
        - For M(gpufleet.node.nvme_of), the host NQN and the host ID by which targets know this node. No other node of
          the fleet may have them too; the audit names those that do.
        - Only if it has connections declared.
      type: dict
      sample:
        host NQN: nqn.2014-08.org.nvmexpress:uuid:4c4c4544-0042-3510-8052-b4c04f303233
        host ID: 4c4c4544-0042-3510-8052-b4c04f303233
    devices:
      description:
        - For M(gpufleet.node.numa_irq_affinity), a summary of the interrupts of each declared device. Each interrupt is
          in RV(concerns.effective).
        - Only if the concern is not in sync, or with O(detail=devices) or O(detail=full).
      type: list
      elements: dict
      contains:
        device:
          description: Its interface, or its PCI address.
          type: str
          sample: ens1f0np0
        pci_address:
          description: Its PCI address.
          type: str
          sample: "0000:17:00.0"
        numa_node:
          description: Its NUMA node, null where it is not known.
          type: int
          sample: 0
        interrupts:
          description: How many interrupts it has.
          type: int
          sample: 17
        wanted:
          description: The CPUs that those of them which can be moved belong on, together; null without such.
          type: str
          sample: 0-15
        effective:
          description: The CPUs that they may be delivered to, together.
          type: str
          sample: 0-15,32
        elsewhere:
          description: How many of them are elsewhere than they belong.
          type: int
          sample: 1
        unmanaged:
          description: How many cannot be moved, by the reason.
          type: dict
          sample: {"the kernel places the interrupts of NVMe queues itself": 16}
    reboot_required:
      description: Whether something waits for a reboot.
      type: bool
    reboot_reasons:
      description: What waits for the reboot, and why.
      type: list
      elements: str
    effective:
      description: The state in effect.
      type: dict
    boot:
      description: The state that the next boot will bring.
      type: dict
    msg:
      description: Why the concern could not be read or planned.
      type: str
    failure:
      description: The same in parts.
      type: dict
in_sync:
  description: The concerns that are as declared.
  returned: always
  type: list
  elements: str
drifted:
  description: The concerns that are not as declared.
  returned: always
  type: list
  elements: str
pending:
  description: The concerns that wait for what their RV(concerns.needs) name.
  returned: always
  type: list
  elements: str
unknown_at_boot:
  description:
    - The concerns that another owner may change at boot, and that are otherwise in sync or pending. Their status is
      V(unknown), but they are not in RV(unknown), because no run can correct them. C(gpufleet_accepted) accepts such
      owners.
  returned: always
  type: list
  elements: str
unknown:
  description: The concerns whose state could not be read.
  returned: always
  type: list
  elements: str
waiting:
  description:
    - The concerns that cannot be read until another one is in place, such as those of GPUs until V(nvml) has installed
      the binding, unless O(binding) provides it; they are in RV(unknown) too. In check mode nothing more can be said
      about them, and they do not fail.
  returned: always
  type: list
  elements: str
lacks_binding:
  description:
    - The concerns that could not be read because the node has no suitable nvidia-ml-py, and O(binding) did not provide
      one. It is empty where only the facts lack it.
  returned: when something could not be read for that reason
  type: list
  elements: str
invalid:
  description: The concerns whose declaration is wrong for this node.
  returned: always
  type: list
  elements: str
to_converge:
  description: The concerns whose role must run, in order, with those that a planned change would disturb.
  returned: always
  type: list
  elements: str
interrupted:
  description:
    - The concerns that are not declared, and of which a run was interrupted in the middle of a change. They are in
      RV(concerns) and RV(to_converge) too. A look names such a change and leaves it as it is.
  returned: always
  type: list
  elements: str
orphaned:
  description: The concerns that have a declaration on the node and none in O(declared).
  returned: always
  type: list
  elements: str
managed:
  description: >-
    The concerns that have files of this collection on the node, a declaration or the record of what was found.
  returned: always
  type: list
  elements: str
reboot_noted:
  description:
    - The reasons for a reboot in C(/run/gpufleet/reboot-required.d/), by concern.
    - Also of concerns that are not in O(declared), such as one that was restored.
  returned: always
  type: dict
  sample: {"hugepages": ["node0 1G pages is 0, wanted 16: the boot reserves them"]}
compressed:
  description:
    - What M(gpufleet.node.gpu_node_info) returns by its defaults, as its O(gpufleet.node.gpu_node_info#module:compress)
      makes it. The filter P(gpufleet.node.decompress#filter) reads it.
  returned: with O(facts)
  type: str
facts:
  description: Facts that roles branch on.
  returned: always
  type: dict
  contains:
    distribution:
      description: The C(ID) of os-release.
      type: str
    distribution_version:
      description: The C(VERSION_ID) of os-release.
      type: str
    package_manager:
      description: The program that installs packages, such as V(apt-get).
      type: str
    kernel:
      description: The release of the running kernel.
      type: str
"""

from typing import Any, Mapping

from ansible.module_utils.basic import AnsibleModule

# Made by `make docs` from the options above: change them there.
OPTIONS: Mapping[str, Any] = {
    "declared": {"type": "dict", "required": True},
    "excluded": {"type": "list", "elements": "str", "default": []},
    "detail": {"type": "str", "choices": ["brief", "devices", "full"], "default": "brief"},
    "expect": {"type": "str", "choices": ["nothing", "valid", "in_sync"], "default": "nothing"},
    "facts": {"type": "bool", "default": False},
    "no_diff": {"type": "list", "elements": "str", "default": []},
    "binding": {"type": "str", "default": "", "no_log": True},
}
# End of what is made.


def main() -> None:
    module = AnsibleModule(
        argument_spec=OPTIONS,
        supports_check_mode=True,
    )
    from ..module_utils._linux.program import prefer
    from ..module_utils._machine.files import LocalFiles

    tools = module.params["declared"].get("node_tools")
    # What was sent is the same, and has to be compiled first: most of what a look costs.
    prefer(LocalFiles(), str(tools.get("archive_sha256")) if isinstance(tools, dict) else "", packages=False)
    from ..module_utils._core.importing import importing

    with importing():
        from ..module_utils._core.errors import GpuFleetError
        from ..module_utils._node.look import look
        from ..module_utils._node.module import finish, host_of

    try:
        host = host_of(module)
        answer = look({**module.params, "check_mode": module.check_mode, "diff": module._diff}, host)
    except GpuFleetError as error:
        module.fail_json(msg=str(error), failure=error.failure())
    finish(module, answer)


if __name__ == "__main__":
    main()
