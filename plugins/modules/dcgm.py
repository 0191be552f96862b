#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dcgm
short_description: Run the host engine of NVIDIA DCGM and its exporter for Prometheus
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Starts the host engine (C(nvidia-dcgm.service), C(dcgm.service) of old releases) and the exporter
    (C(nvidia-dcgm-exporter.service), C(dcgm-exporter.service)) and enables them at boot, or stops and disables them.
    Generation 3 of DCGM (C(datacenter-gpu-manager)) and generation 4 (C(datacenter-gpu-manager-4-core)) are told apart
    by their library.
  - The exporter gets its own file of counters, C(/etc/dcgm-exporter/gpufleet-counters.csv). It has the metrics of the
    file that the exporter uses without this module, those that the alert rules of this collection need, most of which
    are off by default, and O(metrics). The file of the package is not changed. If the exporter is installed without a
    unit, the module writes one.
  - The exporter is told to use the host engine of the machine (C(-r)). By default it runs one of its own, and then two
    host engines hold the GPUs.
  - A metric is in effect if the exporter shows it on its C(/metrics), and if its process was started after the file was
    written. An exporter that has read another file is restarted, and must answer again. The host engine is never
    restarted for a change, only started or stopped.
  - The exporter exits at its start if its file names a field that its release does not have. So a name that no
    generation has is refused, with the nearest one that exists, and so is a name that the installed release lacks.
  - If the exporter shows no value for a metric two minutes after its start, the GPUs do not support it. Such a metric
    is listed in RV(unmanaged).
  - Health watches are in the memory of the host engine, and end with it. C(gpufleet-dcgm-health.service) sets them each
    time the host engine starts. In effect is what C(dcgmi health --fetch) reports for the group of all GPUs.
  - If another host engine or exporter runs, such as those of the GPU Operator in containers, or if another program
    listens on the port of the exporter, the start is refused and the process is named. The module searches for them
    only if it has to start one of the two.
  - DCGM holds the GPUs. M(gpufleet.node.mig_layout) stops the units in its option
    O(gpufleet.node.mig_layout#module:stop_services) for the reset of a GPU and then starts those that ran before. After
    any other change of instances its role restarts both services once, because they know only the previous instances.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  host_engine:
    description:
      - Whether the host engine runs and starts at boot. If this is not set, it is left alone.
    type: bool
  exporter:
    description:
      - Whether the exporter runs and starts at boot. If this is not set, it is left alone, and what an earlier
        declaration gave it is removed.
    type: bool
  metrics:
    description:
      - Metrics that the exporter shows in addition to the others, or in place of those of the same name.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - The field, as the exporter knows it, such as V(DCGM_FI_DEV_SM_CLOCK). The metric has the same name.
          - DCGM 4.6 renamed many fields. The exporter still accepts the old names, and the metric has the name that is
            written here.
        type: str
        required: true
      type:
        description:
          - V(counter) or V(gauge), or V(label) for a field whose value becomes a label of all other metrics.
        type: str
        choices: [counter, gauge, label]
        default: gauge
      help:
        description:
          - The help text of the metric, a single line. If this is empty, the name is used.
        type: str
        default: ""
  shipped_metrics:
    description:
      - Whether the exporter still shows what it shows without this module. These are the metrics of the file that its
        unit names, by default C(/etc/dcgm-exporter/default-counters.csv).
    type: bool
    default: true
  alert_metrics:
    description:
      - Whether the exporter shows the metrics that the alert rules of the role need.
    type: bool
    default: true
  exclude_metrics:
    description:
      - Which metrics of O(shipped_metrics) and O(alert_metrics) the exporter does not show, as shell globs such as
        V(DCGM_FI_PROF_*). Alert rules that need one of them then never fire.
      - On GPUs before Hopper, the metrics C(DCGM_FI_PROF_*) occupy the hardware that profilers need.
    type: list
    elements: str
    default: []
  health_watches:
    description:
      - What the host engine watches on all GPUs. This is V(all), or some of V(inforom), V(memory), V(nvlink), V(pcie)
        and V(thermal), which includes power. If the list is empty, the watches are left alone.
    type: list
    elements: str
    default: []
  packages:
    description:
      - The packages that the role installs first, such as V(datacenter-gpu-manager-4-core) and
        V(datacenter-gpu-manager-exporter). The module itself installs nothing.
      - A machine that lacks one of them has drifted, and so has one that lacks the host engine or the exporter, so that
        C(site) runs the role there, whatever O(optional) says.
      - With apt, a version can be named as in V(datacenter-gpu-manager-4-core=1:4.5.*), with dnf as in
        V(datacenter-gpu-manager-4-core-4.5.3). Another version is drift. Globs in names, groups, files, addresses and
        comparisons are installed, but not compared with what is there.
    type: list
    elements: str
    default: []
  optional:
    description:
      - Whether a machine may lack the host engine and the exporter. What is missing is then listed in RV(unmanaged).
        Otherwise it is an error.
    type: bool
    default: false
seealso:
  - module: gpufleet.node.mig_layout
  - name: dcgm-exporter
    description: Its file of counters.
    link: https://github.com/NVIDIA/dcgm-exporter
  - name: DCGM
    description: The host engine, its fields and health watches.
    link: https://docs.nvidia.com/datacenter/dcgm/latest/
"""

EXAMPLES = r"""
- name: Watch the GPUs, with all metrics that the alert rules need
  gpufleet.node.dcgm:
    host_engine: true
    exporter: true
    health_watches: [all]

- name: Show the activity of the tensor cores too, but not the clocks
  gpufleet.node.dcgm:
    host_engine: true
    exporter: true
    metrics:
      - name: DCGM_FI_PROF_PIPE_TENSOR_ACTIVE
        help: Ratio of cycles in which the tensor cores are active.
    exclude_metrics: [DCGM_FI_DEV_*_CLOCK]

- name: Leave the exporter to the GPU Operator, which connects to the host engine
  gpufleet.node.dcgm:
    host_engine: true

- name: Restore what was there before
  gpufleet.node.dcgm:
    state: absent
"""

RETURN = r"""
# What the modules of all concerns return. `make docs` keeps the keys, not the sentences and samples.
status:
  description: What was found before the run, one of C(in_sync), C(drifted) and C(pending).
  returned: success
  type: str
changes:
  description: The plan, which check mode and real mode share.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The unit, the file or the metric.
      type: str
    setting:
      description:
        - C(service), C(start at boot), C(health watches), C(metrics), C(metric), C(drop-in) or C(unit).
      type: str
    before:
      description: The value that was found.
      type: raw
    after:
      description: The value that was declared.
      type: raw
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
    takes_effect:
      description: Always C(now).
      type: str
needs:
  description: C(daemon-reload) while systemd must not read the exporter's unit again, or nothing.
  returned: always, unless the declaration was refused
  type: list
  elements: str
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
      description: The unit or the metric.
      type: str
    setting:
      description: The setting that the machine does not have, or that is not restored.
      type: str
    reason:
      description: Why.
      type: str
conflicts:
  description: Drop-ins of others that set the command line of the exporter.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: Always C(systemd drop-in).
      type: str
    path:
      description: The file.
      type: str
    line:
      description: Always V(null).
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: Always C(ExecStart).
      type: str
    value:
      description: The command line that it sets.
      type: str
    wins:
      description: Always C(us). One that is read after ours is refused.
      type: str
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
reboot_required:
  description: Always false.
  returned: always, unless the declaration was refused
  type: bool
reboot_reasons:
  description: Always empty.
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
        - C(declaration), C(conflict), C(not_permitted), C(refused), C(not_in_effect) or C(cannot_look).
      type: str
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
# End of what all return.
effective:
  description: What runs, and what it says.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    release:
      description: The release of DCGM, V(null) where its library is not found.
      type: str
      sample: "4.5"
    host_engine:
      description: C(running) or C(stopped), V(null) where systemd does not run.
      type: str
      sample: running
    exporter:
      description: The same of the exporter.
      type: str
      sample: running
    health_watches:
      description: The health watches that are on, as in O(health_watches), V(null) if they were not read.
      type: str
      sample: all
    metrics:
      description: The metrics on C(/metrics) with their types, V(null) where it does not answer.
      type: dict
      sample: {"DCGM_FI_DEV_GPU_TEMP": "gauge"}
boot:
  description: What the next boot makes of both.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    host_engine:
      description: C(enabled), C(disabled), C(static), C(masked) or C(not-found).
      type: str
      sample: enabled
    exporter:
      description: The same of the exporter.
      type: str
      sample: enabled
    metrics:
      description: The metrics of the file that the exporter reads when it starts, with their types.
      type: dict
      sample: {"DCGM_FI_DEV_GPU_TEMP": "gauge"}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.dcgm.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
