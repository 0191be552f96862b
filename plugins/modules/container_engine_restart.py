#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_engine_restart
short_description: Reload or restart a container engine so that it loads its configuration, and roll back if it fails
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Reloads or restarts Docker, containerd or CRI-O if the daemon reports other values than its files have for the
    settings of M(gpufleet.node.container_runtime), and does nothing otherwise. Settings that are not declared there
    count only where nothing is declared for the engine.
  - First the engine's own program validates the files, so that a running daemon is not stopped for files with which it
    would not start. With Docker, live restore that was just enabled is loaded by a reload before the restart, so that
    the containers survive it.
  - Then the daemon must be healthy. Its unit is active; dockerd answers, and confirms a reload; containerd listens and
    has loaded the plugin for Kubernetes; CRI-O answers. What was pending must be in effect.
  - If it is not healthy within O(health_timeout), the files with which the daemon was last healthy are restored, the
    daemon is started with them, and the module fails with the last errors in the daemon's log. Files that someone else
    has edited since are left as they are, and the failure says so.
  - A restart that was interrupted, because the run was killed or the daemon was healthy with neither configuration, is
    finished by the next call. Until then it is listed in RV(gpufleet.node.container_runtime#module:needs).
  - When the last daemon has loaded what O(gpufleet.node.container_runtime#module:state=absent) restored, the records
    that were kept for that are removed.
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
      - What may be done. V(reload) is enough for some settings of Docker, and is refused if it is not enough.
    type: str
    choices: [reload, restart]
    default: restart
  health_timeout:
    description:
      - How many seconds the daemon has to become healthy, and as many again with the previous configuration.
    type: int
    default: 60
  when_containers_run:
    description:
      - What happens if a restart would end containers. Containers of containerd and CRI-O survive it, and so do those
        of Docker with live restore in its file. A restart of containerd ends Docker's containers if Docker's unit is
        bound to that of containerd by C(Requires=), C(BindsTo=) or C(PartOf=).
      - With V(fail) the module fails before anything is done, and says how many there are.
      - With V(skip) nothing is done, and the restart is listed in RV(needs).
      - With V(restart) they end.
    type: str
    choices: [fail, skip, restart]
    default: fail
extends_documentation_fragment:
  - gpufleet.node.contract.attributes
attributes:
  check_mode:
    support: partial
    details: Predicts from the current files, without what the same run would write to them first.
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
    description: How Docker's containers survive a restart of the daemon.
    link: https://docs.docker.com/engine/daemon/live-restore/
"""

EXAMPLES = r"""
- name: Let dockerd read its file again
  gpufleet.node.container_engine_restart:
    engine: docker
    action: reload

- name: Restart Docker in a maintenance window, whatever containers run
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
  returned: always, unless the state could not be read
  type: str
  sample: docker
unit:
  description: The unit of systemd that runs the daemon.
  returned: always, unless the state could not be read
  type: str
  sample: docker.service
done:
  description: What was done, or in check mode would be, C(reload), C(restart), or null for nothing.
  returned: always, unless the state could not be read
  type: str
  sample: restart
why:
  description: Why it is needed; null where nothing is.
  returned: always, unless the state could not be read
  type: str
  sample: dockerd turns CDI on or off only when it starts
settings:
  description: The settings whose value in the daemon differed from the one in its files.
  returned: always, unless the state could not be read
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
  returned: always, unless the state could not be read
  type: list
  elements: str
  sample: []
stopped_containers:
  description: How many containers ended, or in check mode would end.
  returned: always, unless the state could not be read
  type: int
  sample: 0
restored:
  description: The files that were restored because the daemon was not healthy with the new ones.
  returned: always, unless the state could not be read
  type: list
  elements: str
  sample: []
log:
  description: The last lines of the daemon's log, if it was not healthy.
  returned: always, unless the state could not be read
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

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run_procedure
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.engine_restart.procedure import PROCEDURE


def main() -> None:
    run_procedure(PROCEDURE)


if __name__ == "__main__":
    main()
