#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cpu_power
short_description: Frequency, idle states and threads of CPUs
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Converges governor, energy preferences, frequencies, turbo, idle states and SMT of all CPUs that are online to the
    declaration, in one call, and reads the result back from each CPU.
  - It knows the drivers C(intel_pstate) (active and passive), C(amd-pstate) (active, passive and guided),
    C(acpi-cpufreq) and C(cppc_cpufreq) (NVIDIA Grace and other arm64). A machine without one, as most virtual machines
    are, has nothing to set; what is declared is listed in RV(unmanaged). The mode of a driver is left as it is, for a
    change of it resets all values.
  - Nothing in /sys survives a reboot. The boot service (P(gpufleet.node.node_tools#role)) applies the declaration
    before the services that run jobs start. CPUs that come online later are set by C(gpufleet-cpus.service), which the
    rule C(/etc/udev/rules.d/99-gpufleet-cpu_power.rules) starts.
  - A governor, a preference or a frequency that the driver does not have is refused before anything changes, with those
    that it has.
  - An enabled tuned, TLP, auto-cpufreq, power-profiles-daemon or C(ondemand.service) that would set another value is an
    error which names the file and the line, unless O(permanent=false). C(cpupower.service), C(cpufrequtils), thermald
    and intel_lpmd are listed in RV(conflicts).
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  governor:
    description:
      - What chooses the frequency. V(performance) is the highest at any load. With C(intel_pstate) and C(amd-pstate) in
        active mode there are only V(performance) and V(powersave), and V(powersave) goes by the load too. Other drivers
        also have V(schedutil), V(ondemand) and V(conservative), as far as their modules are there.
      - One that the driver does not have is refused, with those that it has.
    type: str
  energy_performance_preference:
    description:
      - What the hardware prefers where it chooses the frequency (EPP). V(performance), V(balance_performance),
        V(balance_power) or V(power), or a number from 0 to 255. V(0) is V(performance), and V(255) is V(power). Another
        number that the kernel shows as a name on this CPU is refused, and the message has that name.
      - Under the governor V(performance) a driver in active mode takes only V(performance), and sets it by itself.
    type: str
  energy_performance_bias:
    description:
      - The older hint of Intel CPUs (EPB). V(performance), V(balance-performance), V(normal), V(balance-power) or
        V(power), or a number from 0 to 15.
    type: str
  min_frequency:
    description:
      - The lowest frequency, such as V(2400MHz) or V(2.4GHz). V(lowest) and V(highest) are those of each CPU.
    type: str
  max_frequency:
    description:
      - The highest frequency, likewise. Without turbo V(highest) is the nominal one, where the driver says it.
    type: str
  turbo:
    description:
      - Whether CPUs may run above their nominal frequency.
    type: bool
  max_idle_latency_us:
    description:
      - Idle states that take longer to leave than so many microseconds are off, on every CPU. The others are as the
        driver had them at boot. A number that leaves no idle state but polling is refused.
    type: int
  smt:
    description:
      - Whether cores run more than one thread. V(false) takes the second threads offline.
      - slurmd and kubelet read the CPUs when they start, and must be restarted, with a configuration that fits, after a
        change.
    type: bool
  when_busy:
    description:
      - What happens if O(smt=false) is to take CPUs away while a job runs. A job is one of Slurm, a pod of the class
        Guaranteed, a virtual machine of libvirt, or a process that has a GPU open.
      - V(fail) ends the run before anything is changed and names who is in the way.
      - V(wait) polls for up to O(busy_timeout) until nobody is, and then plans again. After that it is like V(fail).
        The boot service does not wait.
      - V(skip) leaves SMT as it is until the next run or boot, and sets the rest. C(idle_node) is then in RV(needs).
    type: str
    choices: [fail, wait, skip]
    default: fail
  busy_timeout:
    description:
      - How long O(when_busy=wait) waits, in seconds.
    type: int
    default: 600
seealso:
  - name: CPU performance scaling
    description: Governors, and frequencies of CPUs, in the documentation of the kernel.
    link: https://docs.kernel.org/admin-guide/pm/cpufreq.html
  - name: intel_pstate
    description: The driver of Intel CPUs, its modes and the energy preference.
    link: https://docs.kernel.org/admin-guide/pm/intel_pstate.html
  - name: amd-pstate
    description: The driver of AMD CPUs.
    link: https://docs.kernel.org/admin-guide/pm/amd-pstate.html
  - name: CPU idle time management
    description: Idle states in the documentation of the kernel.
    link: https://docs.kernel.org/admin-guide/pm/cpuidle.html
"""

EXAMPLES = r"""
- name: Run at the highest frequency, and wake up fast
  gpufleet.node.cpu_power:
    governor: performance
    max_idle_latency_us: 10

- name: Repeatable frequencies, one thread for each core
  gpufleet.node.cpu_power:
    governor: performance
    turbo: false
    smt: false
    when_busy: wait

- name: Restore what was there before
  gpufleet.node.cpu_power:
    state: absent
"""

RETURN = r"""
# What the modules of all concerns return. `make docs` keeps the keys, not the sentences and samples.
status:
  description: What was found before the run, one of C(in_sync), C(drifted) and C(pending).
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
      description: C(CPUs), or a file for CPUs that come later.
      type: str
      sample: CPUs
    setting:
      description: What is set on it.
      type: str
      sample: governor
    before:
      description: The value that was found. Where CPUs differ, each value with its CPUs.
      type: raw
      sample: powersave on 0-3; schedutil on 4-7
    after:
      description: The value that was declared, or that comes with another.
      type: raw
      sample: performance
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
      sample: effective
    takes_effect:
      description: Always C(now).
      type: str
      sample: now
needs:
  description:
    - What must still happen. C(idle_node) where O(when_busy=skip) left SMT on, C(daemon-reload) for the
      unit.
  returned: always, unless the declaration was refused
  type: list
  elements: str
  sample: []
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
      description: C(CPUs).
      type: str
      sample: CPUs
    setting:
      description: The setting that they do not have.
      type: str
      sample: governor
    reason:
      description: Why.
      type: str
      sample: no driver scales the frequency of these CPUs, as in most virtual machines, where the host
        does
conflicts:
  description: Who else sets what is declared.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: The program, such as C(tuned), C(cpupower) or C(thermald).
      type: str
      sample: cpupower
    path:
      description: The file.
      type: str
      sample: /etc/sysconfig/cpupower
    line:
      description: The line in it.
      type: int
      sample: 3
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: What it sets.
      type: str
      sample: governor
    value:
      description: The value it sets, empty where it decides by itself.
      type: str
      sample: ondemand
    wins:
      description: Whose value stays in the end. One of C(us), C(them) and C(unknown).
      type: str
      sample: us
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
reboot_required:
  description: Whether RV(needs) has a reboot; always false.
  returned: always, unless the declaration was refused
  type: bool
  sample: false
reboot_reasons:
  description: Why; always empty.
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
      sample: declaration
    object:
      description: What it was about.
      type: str
      sample: CPUs
    found:
      description: The value that was found.
      type: raw
      sample: powersave
    wanted:
      description: The value that was wanted.
      type: raw
      sample: schedutil
    hint:
      description: The next step.
      type: str
# End of what all return.
effective:
  description: The CPUs of the running kernel, as read back.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    driver:
      description: The driver of the frequency; null for none.
      type: str
      sample: intel_pstate
    cpus:
      description: The settings that the declaration is about, frequencies in kHz. Where CPUs differ, each value with
        its CPUs.
      type: dict
      sample: {"governor": "performance", "idle state C6": "off"}
boot:
  description: What the boot service applies at the next boot; null where it applies nothing.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    cpus:
      description: The settings that the declaration is about.
      type: dict
      sample: {"governor": "performance", "idle state C6": "off"}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.cpu_power.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
