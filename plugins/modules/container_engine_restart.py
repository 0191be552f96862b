#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_engine_restart
short_description: Let the daemon of a container engine take up its configuration, and go back if it fails
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Reloads or restarts Docker, containerd or CRI-O where the daemon says that it does not have what its files say of
    the settings of M(gpufleet.node.container_runtime), and does nothing where it has. Settings that are not declared
    there count only where nothing is declared for the engine.
  - First the engine's own program judges the files that are there, so that a daemon that runs is not stopped for files
    with which it would not start. With Docker, live restore that is new is brought by a reload before the restart, so
    that the containers outlive it.
  - Then the daemon must be well. Its unit is active; dockerd answers, and says of a reload that it was done; containerd
    listens and has loaded the plugin for Kubernetes; CRI-O answers. What was pending must be in effect.
  - When it is not well within O(health_timeout), the files get the texts that the daemon was last well with, the daemon
    is started on them, and the module fails with the last errors in the daemon's log. Files that somebody else has
    edited since are left as they are, and the failure says so.
  - A restart that was cut off, because the run was killed or the daemon was well with neither configuration, is
    finished by the next call. Until then RV(gpufleet.node.container_runtime#module:needs) has it.
  - Where it brings the last daemon back to what O(gpufleet.node.container_runtime#module:state=absent) gave back, it
    also drops what was kept for that.
  - The role P(gpufleet.node.container_runtime#role) calls it by its handlers.
options:
  engine:
    description:
      - The engine. With V(containerd) the one that runs pods is meant; for k3s, RKE2 and k0s the unit of these is
        restarted.
    type: str
    choices: [docker, containerd, crio]
    required: true
  action:
    description:
      - What may be done. V(reload) is enough for some settings of Docker, and refused where it is not.
    type: str
    choices: [reload, restart]
    default: restart
  health_timeout:
    description:
      - How many seconds the daemon has to be well again, and as many with the previous configuration.
    type: int
    default: 60
  when_containers_run:
    description:
      - What happens when containers would end with a restart. Those of containerd and CRI-O never do, and those of
        Docker not with live restore in its file. With containerd those of Docker end where its unit is bound to that
        of containerd, by C(Requires=), C(BindsTo=) or C(PartOf=).
      - With V(fail) the module fails before anything is done, and says how many they are.
      - With V(skip) nothing is done, and RV(needs) has the restart.
      - With V(restart) they end.
    type: str
    choices: [fail, skip, restart]
    default: fail
extends_documentation_fragment:
  - gpufleet.node.contract.attributes
attributes:
  check_mode:
    support: partial
    details: Predicts from the files that are there. What the same run would write first is not in them yet.
  diff_mode:
    support: full
  idempotent:
    support: full
requirements:
  - Python 3.9 or newer on the node
  - systemd
seealso:
  - module: gpufleet.node.container_runtime
  - name: Live restore
    description: How the containers of Docker outlive its daemon.
    link: https://docs.docker.com/engine/daemon/live-restore/
"""

EXAMPLES = r"""
- name: Let dockerd read its file again
  gpufleet.node.container_engine_restart:
    engine: docker
    action: reload

- name: Restart Docker in a maintenance window, whatever runs in it
  gpufleet.node.container_engine_restart:
    engine: docker
    when_containers_run: restart

- name: Restart containerd, and give it two minutes
  gpufleet.node.container_engine_restart:
    engine: containerd
    health_timeout: 120
"""

RETURN = r"""
engine:
  description: The engine.
  returned: always, unless nothing could be looked at
  type: str
  sample: docker
unit:
  description: The unit of systemd that runs the daemon.
  returned: always, unless nothing could be looked at
  type: str
  sample: docker.service
done:
  description: What was done, or in check mode would be, C(reload), C(restart), or null for nothing.
  returned: always, unless nothing could be looked at
  type: str
  sample: restart
why:
  description: Why it is needed; null where nothing is.
  returned: always, unless nothing could be looked at
  type: str
  sample: dockerd turns CDI on or off only when it starts
settings:
  description: What the daemon did not have as its files say.
  returned: always, unless nothing could be looked at
  type: list
  elements: dict
  contains:
    setting:
      description: The setting, by the name that M(gpufleet.node.container_runtime) has for it.
      type: str
      sample: cdi
    before:
      description: The value that the daemon had.
      type: raw
      sample: "false"
    after:
      description: The value of its files.
      type: raw
      sample: "true"
needs:
  description: What is needed and was not done, as C(reload_ENGINE) or C(restart_ENGINE).
  returned: always, unless nothing could be looked at
  type: list
  elements: str
  sample: []
stopped_containers:
  description: How many containers ended, or in check mode would end.
  returned: always, unless nothing could be looked at
  type: int
  sample: 0
restored:
  description: The files that have their previous text again, because the daemon was not well with the new one.
  returned: always, unless nothing could be looked at
  type: list
  elements: str
  sample: []
log:
  description: The last lines that the daemon wrote to its output, where it was not well.
  returned: always, unless nothing could be looked at
  type: list
  elements: str
  sample: []
failure:
  description: What went wrong, for programs.
  returned: failure
  type: dict
  contains:
    code:
      description:
        - C(declaration), C(in_use), C(refused), C(not_in_effect), C(not_permitted), C(conflict) or C(cannot_look).
      type: str
      sample: refused
    object:
      description: What it was about.
      type: str
      sample: docker.service
    found:
      description: The value that was found.
      type: raw
    wanted:
      description: The value that was wanted.
      type: raw
    hint:
      description: The next step.
      type: str
      sample: correct what is declared, then run again
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.node.plugins.module_utils._core.converge import as_asked, host_of
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._engine.restart import ARGUMENTS, run


def main() -> None:
    module = AnsibleModule(argument_spec=dict(ARGUMENTS), supports_check_mode=True)
    try:
        result = as_asked(module, run(module.params, host_of(module), check_mode=module.check_mode))
    except GpuFleetError as error:
        result = {"failed": True, "changed": False, "msg": str(error), "failure": error.failure()}
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
