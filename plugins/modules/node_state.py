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
      - V(devices) adds RV(concerns.devices) of concerns that are in sync.
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
      only with O(detail=full), without it, RV(concerns.settings) lists only what is not in sync.
  returned: always
  type: dict
  contains:
    status:
      description:
        - V(in_sync), V(drifted), V(pending) (written, and waits for what RV(concerns.needs) names), V(unknown) (could
          not be read) or V(invalid) (the declaration is wrong, or impossible on this node).
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
    needs:
      description: What must still happen after a converge, by name, such as V(reboot).
      type: list
      elements: str
    unmanaged:
      description: What matched but cannot be set, with the reason. At most 8 entries without O(detail=full).
      type: list
      elements: dict
    unmanaged_total:
      description: The number of entries that RV(concerns.unmanaged) has with O(detail=full).
      type: int
    conflicts:
      description: Other owners of the same settings.
      type: list
      elements: dict
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
unknown:
  description: The concerns whose state could not be read.
  returned: always
  type: list
  elements: str
waiting:
  description:
    - The concerns that cannot be read until another one is in place, such as those of GPUs until V(nvml) has installed
      the binding; they are in RV(unknown) too. In check mode nothing more can be said about them, and they do not fail.
  returned: always
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

import os
from importlib import import_module
from typing import Any, Dict, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

UTILS = "ansible_collections.gpufleet.node.plugins.module_utils"
# Where the concern node_tools keeps the same sources compiled, by the sum of the archive they came in.
COMPILED = f"/usr/local/lib/gpufleet/compiled/%s/{UTILS.replace('.', '/')}"

# Made by `make docs` from the options above: change them there.
OPTIONS: Mapping[str, Any] = {
    "declared": {"type": "dict", "required": True},
    "excluded": {"type": "list", "elements": "str", "default": []},
    "detail": {"type": "str", "choices": ["brief", "devices", "full"], "default": "brief"},
    "expect": {"type": "str", "choices": ["nothing", "valid", "in_sync"], "default": "nothing"},
}
# End of what is made.


def prefer_what_is_compiled(declared: Mapping[str, Any]) -> None:
    """Take the rooms from the node where it has these very ones: compiling them is most of what a look costs."""
    tools = declared.get("node_tools")
    digest = str(tools.get("archive_sha256")) if isinstance(tools, dict) else ""
    if not digest.isalnum() or not os.path.isdir(COMPILED % digest):
        return
    folder = (COMPILED % digest).partition(digest)[0].rstrip("/")
    for place in map(os.stat, (f"{folder}/{digest}", folder, os.path.dirname(folder))):
        if place.st_uid not in (0, os.geteuid()) or place.st_mode & 0o022:
            return
    utils = import_module(UTILS)
    sent = list(utils.__path__)
    utils.__path__.insert(0, COMPILED % digest)
    # What stands on Ansible is only among what was sent.
    import_module(f"{UTILS}._node").__path__.extend(f"{path}/_node" for path in sent)


def validated(concern: Any, declaration: Any) -> Dict[str, Any]:
    """A declaration made complete and checked as the concern's own module would. Raises ``DeclarationError``."""
    from ..module_utils._core.errors import DeclarationError
    from ..module_utils._core.shared_options import SHARED_OPTIONS

    goal = f"read the declaration of {concern.name}"
    if not isinstance(declaration, Mapping):
        raise DeclarationError(goal, cause=f"it must be a dictionary of options, not {declaration!r}")
    checked = ArgumentSpecValidator({**SHARED_OPTIONS, **concern.options}).validate(dict(declaration))
    if checked.error_messages:
        messages = [
            f"unsupported option {message}" if "Supported parameters" in message else message
            for message in checked.error_messages
        ]
        raise DeclarationError(goal, cause="; ".join(message.rstrip(".") for message in messages))
    parameters: Dict[str, Any] = checked.validated_parameters
    return parameters


def unknown_concern(declared: Mapping[str, Any], names: Sequence[str]) -> Dict[str, str]:
    """The first name that is no concern, and the next step; empty where all are."""
    from ..module_utils._core.nearest import did_you_mean

    for name in declared:
        if name not in names:
            hint = did_you_mean(name, names, otherwise=f"the concerns are {', '.join(names)}")
            return {"object": name, "hint": hint}
    return {}


def objections(answer: Mapping[str, Any], *, expect: str, check_mode: bool) -> Dict[str, str]:
    """What the caller did not expect, by concern."""
    if expect == "nothing":
        return {}
    names = list(answer["invalid"])
    if expect == "in_sync":
        wrong = [*answer["drifted"], *answer["unknown"], *answer["invalid"]]
        if check_mode:
            # Nothing was changed, so a difference is as expected, and what waits for it too; what will fail fails now.
            failing = [name for name in wrong if "failure" in answer["concerns"][name]]
            wrong = [name for name in failing if name not in answer["waiting"]]
        names += [name for name in wrong if name not in names]
    texts = {}
    for name in names:
        result = answer["concerns"][name]
        differences = [
            f"{row['object']} {row['setting']} is {row['effective']} (at boot {row['boot']}), wanted {row['wanted']}"
            for row in result["settings"]
        ]
        texts[name] = result.get("msg") or "; ".join(differences)
    return texts


def main() -> None:
    module = AnsibleModule(
        argument_spec=OPTIONS,
        supports_check_mode=True,
    )
    declared, excluded = module.params["declared"], module.params["excluded"]
    prefer_what_is_compiled(declared)
    from ..module_utils._core.importing import importing

    with importing():
        from ..module_utils._core.errors import DeclarationError, GpuFleetError
        from ..module_utils._node.assessment import assess_node, node_diff
        from ..module_utils._node.module import host_of
        from ..module_utils._node.registry import REGISTRY

    try:
        unknown = unknown_concern(declared, [entry.name for entry in REGISTRY])
        if unknown:
            raise DeclarationError("look", cause="there is no such concern", **unknown)
        host = host_of(module)
    except GpuFleetError as error:
        module.fail_json(msg=str(error), failure=error.failure())
    answer = assess_node(
        {name: declaration for name, declaration in declared.items() if name not in excluded},
        host,
        validate=validated,
        full=module.params["detail"] == "full",
        devices=module.params["detail"] == "devices",
        excluded=[*declared, *excluded],
    )
    answer["changed"] = False
    if module._diff:
        answer["diff"] = node_diff(answer)
    unexpected = objections(answer, expect=module.params["expect"], check_mode=module.check_mode)
    if unexpected:
        module.fail_json(msg="\n".join(f"{name}: {text}" for name, text in unexpected.items()), **answer)
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
