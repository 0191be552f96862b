#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_settings
short_description: Clocks, power limit, ECC, compute mode and time slice of NVIDIA GPUs
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Converges the settings of all NVIDIA GPUs of a machine to the declaration, in one call, through NVML, and reads them
    back through a new connection to the driver.
  - Every value is checked against what its GPU allows before any GPU is changed. If the driver refuses a value anyway,
    all others are set, and one error at the end names every value that was refused. The declaration for the next boot
    then stays as it was.
  - The driver forgets clocks, power limit, compute mode and time slice when its kernel module is loaded again, when the
    GPU is reset, and, without persistence mode, when its last client exits. So a value other than V(default) requires
    persistence mode, which M(gpufleet.node.nvidia_persistence) enables, and, unless O(permanent=false), the boot
    service of the role P(gpufleet.node.node_tools#role), which applies the declaration at every boot. If one of them is
    missing, nothing is changed and the error names the role.
  - ECC is kept in the GPU. A new mode is pending until the GPU is reset or the machine reboots; until then
    RV(needs) has C(gpu_reset), on every run.
  - NVML locks clocks and has no function that reads the lock back. What this module set is therefore recorded in
    C(/run/gpufleet/gpu_settings.json), and trusted as long as persistence mode is on, the kernel module was not loaded
    again, the same C(nvidia-persistenced) runs, the energy counter of the GPU was not reset, and the current clock is
    one that the lock allows. A clock below the lock counts as allowed while the driver names a reason for it, such as
    idleness, heat or the power limit. A lock that is not trusted is C(unknown), and set again. A lock that was never
    set by this module is null, whatever it is; V(default) then resets it with one call. NVML does not show when someone
    else changes a lock to another one that the clock happens to meet.
  - A lost GPU does not stop the others from being converged; the run then fails and names it.
  - With O(state=absent), power limit, compute mode, time slice and ECC are what they were before the first change, and
    locks that this module set are reset. What was changed on a GPU that is not present is listed in RV(unmanaged);
    while one is lost, it is not known whether it is that one, so the run fails and what was found is kept. Without the
    driver everything else is restored, and what only the driver could restore is listed there.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  gpus:
    description:
      - The entries, tried in order for each GPU. The first that matches wins the GPU, and no later one adds to it. An
        entry without settings leaves its GPUs alone.
      - A setting that is not given is left alone. V(default) resets a setting to the driver's own value.
    type: list
    elements: dict
    default: []
    suboptions:
      match:
        description:
          - Which GPUs the entry is for. All keys must agree; each has one value or a list of alternatives, as shell
            globs. Without keys the entry is for all GPUs.
          - The keys are C(index) (the driver's order), C(uuid) (such as C(GPU-4f0c...)), C(pci_address) (such as
            C(0000:17:00.0)), C(pci_id) (vendor and device, such as C(10de:2330), also with those of the board) and
            C(model) (such as C(NVIDIA H100*)).
          - A MIG device is not a GPU, and its UUID is an error; the settings of its GPU apply to all its instances.
        type: dict
        default: {}
      locked_graphics_clocks:
        description:
          - The range that the graphics clock may be in, C(MIN-MAX) in MHz, or one number for both, or V(default) for
            the driver's own boost. It must be within what the GPU supports.
        type: str
      locked_memory_clocks:
        description:
          - The same for the memory clock. Each number must be one of the few clocks that the memory has; the error
            for another one names the nearest.
        type: str
      power_limit_watts:
        description:
          - The power limit, a whole number of watts within the constraints of the GPU, or V(default) for that of
            the driver.
        type: str
      ecc:
        description:
          - Whether memory errors are corrected. V(default) is the mode that the GPU was made with.
          - V(enabled) on a GPU without ECC is an error; V(disabled) and V(default) are listed in RV(unmanaged) there.
        type: str
        choices: [enabled, disabled, default]
      compute_mode:
        description:
          - How many processes may compute on the GPU. V(default) is any number, V(exclusive_process) one, as MPS and
            some schedulers need it, V(prohibited) none.
        type: str
        choices: [default, exclusive_process, prohibited]
      time_slice:
        description:
          - How long one process computes before the next one that shares the GPU has its turn. Short slices lower
            latency, and lose more time to context switches, for which NVIDIA publishes no figures. V(default) is what
            the driver does by itself.
          - NVML has no function for it. It is set and read back with C(nvidia-smi compute-policy), of drivers from 455
            on. Where that program is not installed, or lists no time slice for the GPU, V(short), V(medium) and V(long)
            are refused, and V(default) is listed in RV(unmanaged).
        type: str
        choices: [default, short, medium, long]
      optional:
        description:
          - Whether the entry may win no GPU. Otherwise that is an error. With this in every entry a machine without
            GPUs and without a driver is as declared.
        type: bool
        default: false
requirements:
  - nvidia-ml-py on the node, which the role P(gpufleet.node.nvml#role) installs
  - nvidia-smi on the node, for time slices
seealso:
  - module: gpufleet.node.nvidia_persistence
  - name: NVML API reference
    description: What can be set and read through the driver.
    link: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceCommands.html
  - name: nvidia-smi
    description: The same settings on the command line (-lgc, -lmc, -pl, -e, -c).
    link: https://docs.nvidia.com/deploy/nvidia-smi/index.html
"""

EXAMPLES = r"""
- name: Cap the power of all GPUs, with ECC
  gpufleet.node.gpu_settings:
    gpus:
      - power_limit_watts: 500
        ecc: enabled

- name: Fixed clocks for benchmarks on one GPU, and the driver's own on all others
  gpufleet.node.gpu_settings:
    gpus:
      - match:
          pci_address: "0000:17:00.0"
        locked_graphics_clocks: "1410"
        locked_memory_clocks: "1593"
      - locked_graphics_clocks: default
        locked_memory_clocks: default

- name: By model, also for machines that have none of them
  gpufleet.node.gpu_settings:
    gpus:
      - match:
          model: "NVIDIA H100*"
        optional: true
        locked_graphics_clocks: 1200-1755
        compute_mode: exclusive_process
      - match:
          model: ["NVIDIA A100*", "NVIDIA A30*"]
        optional: true
        power_limit_watts: default
        compute_mode: default

- name: Restore what was there before
  gpufleet.node.gpu_settings:
    state: absent
"""

RETURN = r"""
# What the modules of all concerns return. `make docs` keeps the keys, not the sentences and samples.
status:
  description:
    - What was found before the run, one of C(in_sync), C(drifted), C(pending), C(unknown) and C(invalid).
  returned: success
  type: str
  sample: drifted
changes:
  description: The plan, which check mode and real mode share.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The GPU by the driver's index, or the file.
      type: str
      sample: gpu0
    setting:
      description: What is set on it.
      type: str
      sample: power_limit_watts
    before:
      description: The value that was found.
      type: raw
      sample: 700
    after:
      description: The value that was declared.
      type: raw
      sample: 500
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
      sample: effective
    takes_effect:
      description: C(now), or C(gpu_reset) for ECC.
      type: str
      sample: now
needs:
  description:
    - What must still happen. C(gpu_reset) while an ECC mode is pending, and C(readback) if O(state=absent)
      could not read back the time slice, because C(nvidia-smi) is missing, fails or does not list it.
      The value from before the first change stays recorded until then; run O(state=absent) again.
  returned: always, unless the declaration was refused
  type: list
  elements: str
  sample: [gpu_reset]
pending_reasons:
  description:
    - For each setting that waits for what RV(needs) says, one sentence with the value that is in effect,
      the declared one, and why it waits.
  returned: always, unless the declaration was refused
  type: list
  elements: str
unmanaged:
  description:
    - What was declared and the GPU does not have, with the reason.
    - With O(state=absent) what was changed on GPUs that are not present.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The GPU, or the UUID of one that is not present.
      type: str
      sample: gpu0
    setting:
      description: The setting that it does not have, or that is not restored.
      type: str
      sample: power_limit_watts
    reason:
      description: Why.
      type: str
      sample: not supported by this GPU
conflicts:
  description:
    - The services, timers and scripts that set another value at boot with C(nvidia-smi). The driver does
      not report who set a value, so other programs are not found.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: The unit, or C(rc.local).
      type: str
      sample: gpu-tuning.service
    path:
      description: The unit file or the script.
      type: str
      sample: /usr/local/sbin/gpu-tuning
    line:
      description: The line in it.
      type: int
      sample: 4
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: What it sets.
      type: str
      sample: power_limit_watts
    value:
      description: The value it sets, empty if it is unknown.
      type: str
      sample: '300'
    wins:
      description:
        - C(us) if it runs before C(gpufleet-boot.service), and C(them) if it runs after it or a timer
          repeats it, and then the module fails unless O(permanent=false).
        - C(unknown) if systemd starts both at once, or the line depends on a condition.
      type: str
      sample: unknown
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
  sample: []
reboot_required:
  description: Always false, for a reset of the GPU is enough.
  returned: always, unless the declaration was refused
  type: bool
  sample: false
reboot_reasons:
  description: Why; always empty.
  returned: always, unless the declaration was refused
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
        - C(declaration), C(not_permitted), C(refused), C(not_in_effect), C(cannot_look), C(no_driver),
          C(no_binding) or C(driver_hangs).
      type: str
      sample: declaration
    object:
      description: What it was about.
      type: str
      sample: gpu0
    found:
      description: The value that was found.
      type: raw
      sample: 700
    wanted:
      description: The value that was wanted.
      type: raw
      sample: 900
    hint:
      description: The next step.
      type: str
# End of what all return.
effective:
  description: The settings in effect, as the driver reports them, and locks as described above.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    gpus:
      description: By GPU the settings that the declaration is about.
      type: dict
      sample: {"gpu0": {"power_limit_watts": 500, "locked_graphics_clocks": "1200-1755", "ecc": "enabled"}}
boot:
  description:
    - What the next boot brings. That is the declaration where it is on the node and the boot service applies it, the
      driver's default otherwise, and for ECC the mode that is pending. Null where another declaration is on the node.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    gpus:
      description: By GPU the settings that the declaration is about.
      type: dict
      sample: {"gpu0": {"power_limit_watts": 500, "locked_graphics_clocks": "1200-1755", "ecc": "enabled"}}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_settings.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
