#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_manager
short_description: Fabric Manager and IMEX of machines whose GPUs are joined by NVSwitches
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Converges the daemon that sets up the NVLink fabric of a machine, now and for the next boot. Without it CUDA starts
    on no GPU of such a machine (error 802).
  - Which daemon a machine needs is read from sysfs. C(nv-fabricmanager) where an NVSwitch is on its PCI bus (HGX A100,
    H100, H200), or a ConnectX whose vital product data names the management of switches (HGX B200, B300). IMEX on the
    compute nodes of GB200 and GB300 racks, by the device of their GPUs, where a Fabric Manager must not run. Neither on
    any other machine; one that is enabled or runs there is disabled and stopped. IMEX on such a rack is left alone as
    long as neither O(imex_nodes) nor O(imex_config) is given.
  - The program must have the very version of the driver. It is compared with the kernel module that is loaded and with
    the driver that is installed. After an upgrade of one of the two the node is drifted, and the message has the
    versions, and whether the next restart and the next boot work. The module installs no packages.
  - A restart of either daemon ends every CUDA job of the node by default (C(ABORT_CUDA_JOBS_ON_FM_EXIT)). So the
    module never restarts one. A value that a running daemon has not read is pending, and C(restart_fabric_manager) or
    C(restart_imex) is in RV(needs), for which the role's handlers call M(gpufleet.node.fabric_manager_restart). Neither
    is one started that does not run while a process uses a GPU.
  - What a running daemon has read is known from the time at which it started, the times of its files, and a note of
    this module in C(/run/gpufleet/fabric_manager.json), because the daemons do not tell.
  - On Hopper and later the driver is asked for the fabric of each GPU. One that is not complete, or not healthy, is
    pending with the reason in words. The driver tells nothing of it for A100.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  service:
    description:
      - V(if_needed) runs what the hardware needs, and lists a machine that needs nothing in RV(unmanaged), so that one
        inventory serves a mixed fleet. V(required) refuses a machine that needs nothing.
      - Without it V(if_needed) is meant where something else is declared.
    type: str
  config:
    description:
      - Values in the file of the Fabric Manager, by key, such as C(FABRIC_MODE). They are changed in their place, all
        else in the file stays. A value that means the same, or that the daemon has without a line, is left as it is.
      - The file is the one that the running daemon was started with, or its unit has, which is mostly
        C(/usr/share/nvidia/nvswitch/fabricmanager.cfg).
      - C(FM_SM_MGMT_PORT_GUID) is refused. The daemon's start script fills it in.
    type: dict
    default: {}
  hold:
    description:
      - Whether packages are held in their versions, by C(apt-mark hold) or in C(versionlock.list) of dnf. These are the
        packages of the daemon that the hardware needs, and with apt those of the driver in the same version, as an
        upgrade of one without the other leaves a node without a fabric.
      - With V(false) holds are left as they are.
    type: bool
    default: true
  imex_nodes:
    description:
      - The IP addresses of all compute nodes of the IMEX domain, in the order in which they stand in the nodes file,
        which must be the same on each. One of them must be an address of this node.
    type: list
    elements: str
    default: []
  imex_config:
    description:
      - Values in the file of IMEX, by key, as with O(config). The state of the domain is known only with
        C(IMEX_CMD_ENABLED) set to 1.
    type: dict
    default: {}
  imex_channel:
    description:
      - Whether channel 0 must be there, C(/dev/nvidia-caps-imex-channels/channel0), now and after the next boot. The
        driver makes it when it is loaded with C(NVreg_CreateImexChannel0=1), which M(gpufleet.node.kernel_modules)
        sets. This module only checks.
    type: bool
    default: false
requirements:
  - nvidia-ml-py, which the role P(gpufleet.node.nvml#role) installs
notes:
  - The daemons themselves are NVIDIA's, and need the hardware. The tests of this module run with stand-ins that fail as
    NVIDIA documents it.
seealso:
  - module: gpufleet.node.fabric_manager_restart
  - module: gpufleet.node.kernel_modules
  - name: Fabric Manager user guide
    description: The daemon and its file.
    link: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
  - name: IMEX guide
    description: The daemon of multi-node NVLink, its files and its tool.
    link: https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/
"""

EXAMPLES = r"""
- name: Run what the hardware needs, on a fleet of many kinds
  gpufleet.node.fabric_manager:
    service: if_needed

- name: Keep jobs when the daemon ends, and log to the journal
  gpufleet.node.fabric_manager:
    service: required
    config:
      ABORT_CUDA_JOBS_ON_FM_EXIT: 0
      LOG_USE_SYSLOG: 1

- name: A rack with an IMEX domain of four nodes
  gpufleet.node.fabric_manager:
    imex_nodes: [10.1.0.1, 10.1.0.2, 10.1.0.3, 10.1.0.4]
    imex_config:
      IMEX_CMD_ENABLED: 1
    imex_channel: true

- name: Restore what was there before
  gpufleet.node.fabric_manager:
    state: absent
"""

RETURN = r"""
# What the modules of all concerns return. `make docs` keeps the keys, not the sentences and samples.
status:
  description: What was found before the run, one of C(in_sync), C(drifted) and C(pending).
  returned: success
  type: str
  sample: pending
changes:
  description: The plan, which check mode and real mode share.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The file, the unit or the package.
      type: str
      sample: /usr/share/nvidia/nvswitch/fabricmanager.cfg
    setting:
      description: What is set on it, such as a key of the file.
      type: str
      sample: LOG_LEVEL
    before:
      description: The value that was found.
      type: raw
      sample: '4'
    after:
      description: The value that was declared.
      type: raw
      sample: '3'
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
      sample: boot
    takes_effect:
      description: Always C(now).
      type: str
      sample: now
needs:
  description:
    - What must still happen. C(restart_fabric_manager) or C(restart_imex) for a daemon that has not read
      its files, C(fabric) while that of a GPU is not complete or not healthy, C(imex_peers) while the
      domain is not up, C(idle_gpu) where a daemon cannot be stopped, C(reboot) after an upgrade of the
      driver.
  returned: always, unless the declaration was refused
  type: list
  elements: str
  sample: [restart_fabric_manager]
unmanaged:
  description: A machine that needs no daemon, and what cannot be known or held, with the reason.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: What it is about.
      type: str
      sample: NVSwitch
    setting:
      description: What is not set.
      type: str
      sample: Fabric Manager
    reason:
      description: Why.
      type: str
      sample: this machine has no NVSwitch
conflicts:
  description: A driver that a container brought with its own daemon, which is an error.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: Always C(GPU Operator).
      type: str
      sample: GPU Operator
    path:
      description: Where that driver is.
      type: str
      sample: /run/nvidia/driver
    line:
      description: Always null.
      type: int
    setting:
      description: The unit.
      type: str
      sample: nvidia-fabricmanager.service
    value:
      description: Always C(running).
      type: str
      sample: running
    wins:
      description: Always C(them).
      type: str
      sample: them
reboot_required:
  description: Whether RV(needs) has a reboot.
  returned: always, unless the declaration was refused
  type: bool
  sample: false
reboot_reasons:
  description: Why.
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
        - C(declaration), C(conflict), C(not_permitted), C(refused), C(not_in_effect), C(cannot_look),
          C(no_driver), C(no_binding) or C(driver_hangs).
      type: str
      sample: not_in_effect
    object:
      description: What it was about.
      type: str
      sample: nv-fabricmanager
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
  description: The running system.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    hardware:
      description: What was found on the PCI bus.
      type: str
      sample: 4 NVSwitches
    driver:
      description: The version of the loaded driver.
      type: str
      sample: 570.158.01
    daemons:
      description: By name of the program, whether it runs, its version on disk, and the values that it has read.
      type: dict
      sample: {"nv-fabricmanager": {"service": "running", "version": "570.158.01", "config": {"LOG_LEVEL": "4"}}}
    fabric:
      description: By GPU the state of its fabric, and in words what is wrong with its health.
      type: dict
      sample: {"gpu0": {"state": "completed", "health": []}}
    imex_domain:
      description: The state of the IMEX domain as its own tool has it, with the nodes that are not ready.
      type: str
boot:
  description: What the next boot brings.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    driver:
      description: The version of the driver that is installed.
      type: str
      sample: 570.158.01
    daemons:
      description: By name of the program, whether its unit is enabled, and the values in its file.
      type: dict
      sample: {"nv-fabricmanager": {"start": "enabled", "config": {"LOG_LEVEL": "4"}}}
    held:
      description: The packages that are held in their versions.
      type: list
      elements: str
      sample: [nvidia-fabricmanager-570]
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.fabric_manager.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
