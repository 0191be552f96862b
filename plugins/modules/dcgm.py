#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dcgm
short_description: The host engine of NVIDIA DCGM and its exporter for Prometheus
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Lets the host engine (C(nvidia-dcgm.service), C(dcgm.service) of old releases) and the exporter
    (C(nvidia-dcgm-exporter.service), C(dcgm-exporter.service)) run now and start at boot, or neither. Generation 3 of
    DCGM (C(datacenter-gpu-manager)) and generation 4 (C(datacenter-gpu-manager-4-core)) are told apart by their
    library.
  - The exporter gets a file of counters of its own, C(/etc/dcgm-exporter/gpufleet-counters.csv). It has the metrics of
    the file that is there without this module, those that the alert rules of this collection need, most of which are
    off by default, and O(metrics). The file of the package stays as it is. Where no unit of the exporter is installed,
    but the program is, the unit comes with it.
  - The exporter is told to use the host engine (C(-r)). By default it has one of its own, and two of them hold the
    GPUs.
  - In effect is what the exporter shows on its C(/metrics), and that its process was started after the file was
    written. It is restarted where it has read another file, and has to answer again. The host engine is never
    restarted for a change, only started or stopped.
  - The exporter ends when it starts if its file names a field that its release does not have. So a name that no
    generation has is refused with the nearest, and so is one that the installed generation lacks.
  - A metric of which the exporter shows no value two minutes after its start is one that the GPUs do not have. It is
    listed in RV(unmanaged).
  - Health watches are in the memory of the host engine, and end with it. C(gpufleet-dcgm-health.service) sets them each
    time that it starts. In effect is what C(dcgmi health --fetch) says of the group of all GPUs.
  - Where a host engine or an exporter is in the way, as those of the GPU Operator in containers are, or something else
    listens at the exporter's port, the start is refused, and the process is named. It is looked for only where one of
    the two is to be started.
  - DCGM holds the GPUs. M(gpufleet.node.mig_layout) stops the units in its option
    O(gpufleet.node.mig_layout#module:stop_services) for the reset of a GPU and starts those again that ran. Its role
    restarts both, once, after any other change of instances, since they only know the previous ones.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  host_engine:
    description:
      - Whether the host engine runs and starts at boot. Without this option it is left alone.
    type: bool
  exporter:
    description:
      - Whether the exporter runs and starts at boot. Without this option it is left alone, and loses what this module
        gave it.
    type: bool
  metrics:
    description:
      - Metrics that the exporter shows beside the others, or in place of those of the same name.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - The field, as the exporter knows it, such as V(DCGM_FI_DEV_SM_CLOCK). The metric has the same name.
          - DCGM 4.6 renamed many fields. The exporter takes the old names too, and the metric is called as it is
            written here.
        type: str
        required: true
      type:
        description:
          - V(counter) or V(gauge), or V(label) for a field whose value becomes a label of all others.
        type: str
        choices: [counter, gauge, label]
        default: gauge
      help:
        description:
          - The text for people. Without one it is the name.
        type: str
        default: ""
  shipped_metrics:
    description:
      - Whether the exporter shows what it does without this module, that is the metrics of the file that its unit
        names, which is most often C(/etc/dcgm-exporter/default-counters.csv).
    type: bool
    default: true
  alert_metrics:
    description:
      - Whether it shows the metrics that the alert rules of the role need.
    type: bool
    default: true
  exclude_metrics:
    description:
      - Metrics that it does not show, as shell globs such as V(DCGM_FI_PROF_*), of those of O(shipped_metrics) and
        O(alert_metrics). Rules that need one of them never fire then.
      - On GPUs before Hopper the metrics C(DCGM_FI_PROF_*) hold the hardware that profilers need.
    type: list
    elements: str
    default: []
  health_watches:
    description:
      - What the host engine watches on all GPUs, V(all) or some of V(inforom), V(memory), V(nvlink), V(pcie) and
        V(thermal), which is power as well. With an empty list, the watches are left alone.
    type: list
    elements: str
    default: []
  packages:
    description:
      - The packages that the role installs first, such as V(datacenter-gpu-manager-4-core) and
        V(datacenter-gpu-manager-exporter). The module itself installs nothing.
    type: list
    elements: str
    default: []
  optional:
    description:
      - Whether a machine may lack the host engine and the exporter. What is not there is listed in RV(unmanaged) then.
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
- name: Watch the GPUs, with all that the alert rules need
  gpufleet.node.dcgm:
    host_engine: true
    exporter: true
    health_watches: [all]

- name: Show the activity of the tensor cores too, and leave the clocks out
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
unmanaged:
  description: What was declared and this machine does not have, with the reason.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: What the setting was declared for.
      type: str
    setting:
      description: The setting that it does not have, or that is not restored.
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
    setting:
      description: Always C(ExecStart).
      type: str
    value:
      description: The command line that it sets.
      type: str
    wins:
      description: Always C(us). One that is read after ours is refused.
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
      description: The health watches that are on, as O(health_watches) has them, V(null) where nobody asked.
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
