#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_manager_restart
short_description: Restart the Fabric Manager or IMEX while no job uses a GPU, so that it reads its files
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Restarts C(nv-fabricmanager) or C(nvidia-imex) if the running daemon has not read its present files, and starts it
    if its unit is enabled but not running. Otherwise nothing is done.
  - A restart ends every CUDA job of the node by default. So nothing is restarted while a process has a GPU open. The
    daemons of the node, such as C(nvidia-persistenced) and DCGM, do not count. O(when_busy) says what happens instead.
  - A server of MPS would end too, and stays after its last client. So services of M(gpufleet.node.mps) that have a GPU
    open and no client are stopped before the restart and started again after it. An MPS control daemon of somebody
    else counts like a job, and the message says how to end it.
  - A daemon whose version is not that of the loaded driver is not restarted, because it would not start again. That is
    an error.
  - The run fails unless afterwards the daemon runs and has read its files, within O(start_timeout).
  - The handlers of the role P(gpufleet.node.fabric_manager#role) call this module.
options:
  daemon:
    description:
      - The daemon to restart.
    type: str
    choices: [fabric_manager, imex]
    required: true
  when_busy:
    description:
      - What happens if a process uses a GPU.
      - V(fail) fails before anything is done, and names the processes.
      - V(wait) waits for up to O(busy_timeout) until none does. After that it is like V(fail).
      - V(skip) does nothing, and the restart stays in RV(needs).
    type: str
    choices: [fail, wait, skip]
    default: skip
  busy_timeout:
    description:
      - How long O(when_busy=wait) waits, in seconds.
    type: int
    default: 600
  start_timeout:
    description:
      - How many seconds the daemon may take to start.
    type: int
    default: 120
extends_documentation_fragment:
  - gpufleet.node.contract.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
requirements:
  - systemd
seealso:
  - module: gpufleet.node.fabric_manager
"""

EXAMPLES = r"""
- name: Restart the Fabric Manager once no job runs
  gpufleet.node.fabric_manager_restart:
    daemon: fabric_manager
    when_busy: wait
    busy_timeout: 3600

- name: Restart IMEX if no job runs, and otherwise leave it for a later run
  gpufleet.node.fabric_manager_restart:
    daemon: imex
    when_busy: skip
"""

RETURN = r"""
unit:
  description: The unit of systemd that runs the daemon.
  returned: always, unless the state could not be read
  type: str
  sample: nvidia-fabricmanager.service
done:
  description: What was done, or in check mode would be done. C(restart), C(start), or null for nothing.
  returned: always, unless the state could not be read
  type: str
  sample: restart
why:
  description: Why it was needed, null if nothing was.
  returned: always, unless the state could not be read
  type: str
  sample: /usr/share/nvidia/nvswitch/fabricmanager.cfg has changed since it started
clients:
  description: The processes that use a GPU.
  returned: always, unless the state could not be read
  type: list
  elements: str
  sample: []
stopped_services:
  description: The services of this collection that were stopped meanwhile, or in check mode would be.
  returned: always, unless the state could not be read
  type: list
  elements: str
  sample: [gpufleet-mps.service]
needs:
  description: What is needed but was not done.
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
        - C(declaration), C(in_use), C(refused), C(not_in_effect), C(not_permitted) or C(cannot_look).
      type: str
      sample: in_use
    object:
      description: What it was about.
      type: str
      sample: nvidia-fabricmanager.service
    found:
      description: The value that was found.
      type: raw
    wanted:
      description: The value that was wanted.
      type: raw
    hint:
      description: The next step.
      type: str
      sample: wait until they end, or set when_busy to wait
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run_procedure
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.fabric_restart.procedure import PROCEDURE


def main() -> None:
    run_procedure(PROCEDURE)


if __name__ == "__main__":
    main()
