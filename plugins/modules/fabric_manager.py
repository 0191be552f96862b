#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_manager
short_description: Run the Fabric Manager or IMEX on machines whose GPUs are connected by NVSwitches
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Converges the daemon that sets up the NVLink fabric of a machine, now and for the next boot. Without this daemon
    CUDA fails on every GPU of such a machine (error 802).
  - The module reads from sysfs which daemon a machine needs. It is C(nv-fabricmanager) if an NVSwitch is on the PCI bus
    (HGX A100, H100, H200), or a ConnectX whose vital product data says that it manages switches (HGX B200, B300). It is
    IMEX on the compute nodes of GB200 and GB300 racks, which are known by the PCI ID of their GPUs, and where no Fabric
    Manager may run. IMEX is left alone there as long as neither O(imex_nodes) nor O(imex_config) is given. Any other
    machine needs neither; a daemon that is enabled or runs there is disabled and stopped.
  - The program must have exactly the version of the driver. It is compared with the loaded kernel module and with the
    installed driver. If they differ, after an upgrade for example, the node is drifted. The message has the versions,
    and says whether the next restart and the next boot will work. The module installs no packages.
  - Where the NVSwitches are reached through ports of a ConnectX (HGX B200 and newer), the Fabric Manager starts only
    with the subnet manager C(nvlsm), C(ibstat) and the kernel module C(ib_umad). If it does not run and one of them is
    missing, that is an error before anything changes, in check mode too. The module loads no kernel modules;
    M(gpufleet.node.kernel_modules) does.
  - A restart of either daemon ends every CUDA job of the node by default (C(ABORT_CUDA_JOBS_ON_FM_EXIT)). So the
    module never restarts one. A value that a running daemon has not read is pending, and C(restart_fabric_manager) or
    C(restart_imex) is in RV(needs). The handlers of the role then call M(gpufleet.node.fabric_manager_restart). While a
    process uses a GPU, a stopped daemon is not started either.
  - The daemons do not report which values they have read. So this is worked out from the time at which the daemon
    started, the times of its files, and a note of this module in C(/run/gpufleet/fabric_manager.json).
  - On Hopper and later, where a Fabric Manager is needed, the driver is asked for the state of the fabric of each GPU.
    A fabric that is not complete or not healthy is pending, with the reason in words. For A100 the driver does not
    report it.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  service:
    description:
      - V(if_needed) runs what the hardware needs. On a machine that needs no daemon this is listed in RV(unmanaged), so
        that one inventory serves a mixed fleet. V(required) refuses such a machine.
      - If it is not set and another option is, V(if_needed) is assumed.
    type: str
  config:
    description:
      - Values in the configuration file of the Fabric Manager, by key, such as C(FABRIC_MODE). They are changed in
        place, and everything else in the file stays. A line that already means the same is left as it is, and none is
        added for a value that is the daemon's default.
      - The file is the one that the running daemon was started with, or else the one that its unit names. By default
        this is C(/usr/share/nvidia/nvswitch/fabricmanager.cfg).
      - C(FM_SM_MGMT_PORT_GUID) is refused. The daemon's start script fills it in.
    type: dict
    default: {}
  hold:
    description:
      - Whether packages are held in their versions, by C(apt-mark hold) or in C(versionlock.list) of dnf. These are the
        packages of the daemon that the hardware needs, and with apt also those of the driver in the same version. An
        upgrade of one without the other would leave the node without a fabric.
      - Of dnf 5 C(/etc/dnf/versionlock.toml) is only read. A package that it does not lock is listed in RV(unmanaged).
      - With V(false), existing holds are left as they are.
    type: bool
    default: true
  imex_nodes:
    description:
      - The IP addresses of all compute nodes of the IMEX domain, in the order of the nodes file. It must be the same on
        every node of the domain. One of the addresses must belong to this node.
    type: list
    elements: str
    default: []
  imex_config:
    description:
      - Values in the configuration file of IMEX, by key, as with O(config). The state of the domain can be read only if
        C(IMEX_CMD_ENABLED) is 1.
    type: dict
    default: {}
  imex_channel:
    description:
      - Whether IMEX channel 0 (C(/dev/nvidia-caps-imex-channels/channel0)) must exist, now and after the next boot. The
        driver creates it when it is loaded with C(NVreg_CreateImexChannel0=1), which M(gpufleet.node.kernel_modules)
        sets. This module only checks it.
    type: bool
    default: false
requirements:
  - nvidia-ml-py, which the role P(gpufleet.node.nvml#role) installs
notes:
  - The daemons need the hardware. So the tests of this module run stand-ins, which behave and fail as NVIDIA documents
    it.
seealso:
  - module: gpufleet.node.fabric_manager_restart
  - module: gpufleet.node.kernel_modules
  - name: Fabric Manager user guide
    description: The daemon and its file.
    link: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
  - name: IMEX guide
    description: The daemon of multi-node NVLink, its files and its command.
    link: https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/
"""

EXAMPLES = r"""
- name: Run what the hardware needs, on a mixed fleet
  gpufleet.node.fabric_manager:
    service: if_needed

- name: Keep jobs running when the daemon ends, and log to the journal
  gpufleet.node.fabric_manager:
    service: required
    config:
      ABORT_CUDA_JOBS_ON_FM_EXIT: 0
      LOG_USE_SYSLOG: 1

- name: Run IMEX in a domain of four nodes
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
    - What must still happen. C(restart_fabric_manager) or C(restart_imex) if a daemon has not read its
      files, C(fabric) while the fabric of a GPU is not complete or not healthy, C(imex_peers) while the
      domain is not up, C(idle_gpu) if a daemon cannot be stopped yet, C(reboot) after an upgrade of the
      driver.
  returned: always, unless the declaration was refused
  type: list
  elements: str
  sample: [restart_fabric_manager]
pending_reasons:
  description:
    - For each setting that waits for what RV(needs) says, one sentence with the value that is in effect,
      the declared one, and why it waits.
  returned: always, unless the declaration was refused
  type: list
  elements: str
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
  description: A driver container that runs the daemon itself, which is an error.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: Always C(GPU Operator).
      type: str
      sample: GPU Operator
    path:
      description: Where the driver of that container is.
      type: str
      sample: /run/nvidia/driver
    line:
      description: Always null.
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
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
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
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
          C(no_driver), C(no_binding), C(driver_hangs), or C(no_ib_umad) where the kernel module C(ib_umad)
          is not loaded.
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
      description: By program, whether it runs, its version on disk, and the values that it has read.
      type: dict
      sample: {"nv-fabricmanager": {"service": "running", "version": "570.158.01", "config": {"LOG_LEVEL": "4"}}}
    fabric:
      description: By GPU, the state of its fabric, and what is wrong with its health, in words.
      type: dict
      sample: {"gpu0": {"state": "completed", "health": []}}
    imex_domain:
      description: The state of the IMEX domain as C(nvidia-imex-ctl) reports it, with the nodes that are not ready.
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
      description: By program, whether its unit is enabled, and the values in its file.
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
