#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvml
short_description: The Python binding of NVML on the node
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Sees to it that the modules of this collection that are about GPUs, and the boot service, find nvidia-ml-py on the
    node. That is one file of Python, C(pynvml.py), by which they ask the NVIDIA driver.
  - The file of the controller goes to C(/usr/local/lib/gpufleet/python/), where nothing but this collection looks, and
    before all other places. So a node needs neither internet nor pip, and what others installed stays as it is.
  - What is compared is the SHA-256 sum. The file goes to the node only where the node has another one, and is compiled
    there once. A file that others than root may change, or that is a link, is replaced.
  - This file is in effect as soon as it is there, and stays across a reboot. It is written when O(immediate) or
    O(permanent) is true. O(permanent) also keeps the declaration. O(strict) has no meaning here.
  - nvidia-ml-py is a work of NVIDIA under a BSD licence and no part of this collection.
  - It must be 11.515 or newer. Older ones lack calls that MIG needs; so does the package of Ubuntu 22.04 (7.352). The
    package C(pynvml) of PyPI up to 11.5 is another one, and is not taken.
  - A node without an NVIDIA driver needs no binding, and is not harmed by one.
  - With O(state=absent) what this module brought goes. A package of the distribution stays.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
attributes:
  action:
    description: Has an action plugin, so that part of it runs on the controller.
    support: full
    details: It finds the binding of the controller, and sends it where it is needed.
options:
  source:
    description:
      - Where the binding comes from.
      - With V(controller) the node gets the one of the controller.
      - With V(package) it is that of the distribution. The package must be installed already, as the role C(nvml) does;
        this module checks that the Python that runs it finds a binding that will do, and takes its own out of the way.
      - With V(folder) it is one that is on the node already, such as in a virtual environment. What is then put in our
        folder are a few lines that load it.
    type: str
    choices: [controller, package, folder]
    default: controller
  file:
    description:
      - A C(pynvml.py), or a wheel of nvidia-ml-py, on the controller, for O(source=controller). Without it, the one
        that the controller's own Python would import.
    type: path
  package:
    description:
      - The name of the package, for O(source=package). Debian (in contrib) and Ubuntu (in multiverse) have the one that
        is the default; others need a package of their own, whose name must be given.
    type: str
    default: python3-pynvml
  folder:
    description:
      - The folder that holds C(pynvml.py), for O(source=folder), such as
        C(/opt/venv/lib/python3.11/site-packages). Nobody but root may be able to change the file, for root runs it.
    type: str
    default: ""
  pynvml_sha256:
    description:
      - The SHA-256 sum of the file that the node shall have, for O(source=controller). The action plugin fills it in.
        It is for the look at the whole node, which gets it from the lookup P(gpufleet.node.nvml_binding#lookup), as
        O(version) and O(lacking).
    type: str
    default: ""
  version:
    description:
      - The release of that file, as it is shown. Empty where it is not known.
    type: str
    default: ""
  lacking:
    description:
      - Why the controller has no binding, for the message; empty when it has one.
    type: str
    default: ""
  pynvml:
    description:
      - Where the file was put on the node. Only the action plugin sets it.
    type: path
seealso:
  - plugin: gpufleet.node.nvml_binding
    plugin_type: lookup
  - name: nvidia-ml-py
    description: The binding at the Python Package Index.
    link: https://pypi.org/project/nvidia-ml-py/
  - name: NVML API Reference
    description: What the binding is a binding of.
    link: https://docs.nvidia.com/deploy/nvml-api/
"""

EXAMPLES = r"""
- name: Bring the binding of the controller
  gpufleet.node.nvml:

- name: Bring the one in a wheel that lies on the controller
  gpufleet.node.nvml:
    file: /srv/wheels/nvidia_ml_py-13.615.71-py3-none-any.whl

- name: Use the one of a virtual environment on the node
  gpufleet.node.nvml:
    source: folder
    folder: /opt/monitoring/lib/python3.11/site-packages

- name: Take away what was brought
  gpufleet.node.nvml:
    state: absent
"""

RETURN = r"""
status:
  description: What was found before the run, C(right) or C(differs).
  returned: success
  type: str
  sample: differs
changes:
  description: The plan, which check mode and real mode share.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: C(nvidia-ml-py), or the file of the declaration.
      type: str
      sample: nvidia-ml-py
    setting:
      description: What is set on it.
      type: str
      sample: binding
    before:
      description: What was found.
      type: raw
      sample: null
    after:
      description: What was declared.
      type: raw
      sample: 13.615.71 (sha256 2828e36b483b)
    scope:
      description: C(effective); C(boot) for the declaration.
      type: str
      sample: effective
    takes_effect:
      description: Always C(now).
      type: str
      sample: now
needs:
  description: What must still happen; always empty.
  returned: always, unless the declaration was refused
  type: list
  elements: str
  sample: []
unmanaged:
  description: Always empty.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
conflicts:
  description: Always empty.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
reboot_required:
  description: Always false.
  returned: always, unless the declaration was refused
  type: bool
  sample: false
reboot_reasons:
  description: Always empty.
  returned: always, unless the declaration was refused
  type: list
  elements: str
effective:
  description: The binding that this collection would use; empty when there is none.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    path:
      description: Where it is.
      type: str
      sample: /usr/local/lib/gpufleet/python/pynvml.py
    sha256:
      description: Its sum.
      type: str
    version:
      description: Its release; null where nothing on the node tells it.
      type: str
      sample: 12.535.133
boot:
  description: The same, for a file stays across a reboot.
  returned: always, unless the declaration was refused
  type: dict
failure:
  description: What went wrong, for programs.
  returned: failure
  type: dict
  contains:
    code:
      description: C(declaration), C(not_permitted), C(refused), C(not_in_effect) or C(cannot_look).
      type: str
      sample: declaration
    object:
      description: What it was about.
      type: str
      sample: /usr/lib/python3/dist-packages/pynvml.py
    found:
      description: What was found.
      type: raw
      sample: 7.352.0
    wanted:
      description: What was wanted.
      type: raw
    hint:
      description: The next step.
      type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.node.plugins.module_utils._binding.look import CONCERN, Nvml, lacks_file
from ansible_collections.gpufleet.node.plugins.module_utils._core.converge import answer, arguments_of, host_of
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, NotSent


def wants_file(module: AnsibleModule) -> bool:
    """Whether this run would have to write the file; not when it would fail anyhow, and then says why itself."""
    try:
        return not module.check_mode and lacks_file(host_of(module).files, module.params)
    except (GpuFleetError, OSError):
        return False


def main() -> None:
    arguments = arguments_of(CONCERN)
    arguments["argument_spec"].update(file={"type": "path"}, pynvml={"type": "path"})
    module = AnsibleModule(**arguments)
    # Where the file lies, here and there, is no part of what is declared.
    staged = module.params.pop("pynvml")
    del module.params["file"]
    if staged is None and wants_file(module):
        module.exit_json(changed=False, wants_file=True)
    result = answer(module, Nvml(staged))
    if result.get("failed"):
        if result["failure"]["code"] == NotSent.code and not result["changed"]:
            # Another run has taken away since what was there.
            module.exit_json(changed=False, wants_file=True)
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
