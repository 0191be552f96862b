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
  - Provides nvidia-ml-py to the GPU modules of this collection and to the boot service. It is one Python file,
    C(pynvml.py), through which they query the NVIDIA driver.
  - The controller's file is copied to C(/var/lib/gpufleet/python/), which only this collection searches, and
    searches first. So a node needs neither internet nor pip, and what others installed stays as it is.
  - Files are compared by their SHA-256 sum. The file is sent only if the node has a different one, and is compiled
    there once. A file that others than root may change, or that is a link, is replaced.
  - The file is in effect at once, and persists across a reboot. It is written when O(immediate) or O(permanent) is
    true. O(permanent) also keeps the declaration. O(strict) has no meaning here.
  - nvidia-ml-py is published by NVIDIA under a BSD licence and is not part of this collection.
  - It must be 11.515 or newer. Older ones lack calls that MIG needs; so does the package of Ubuntu 22.04 (7.352). The
    package C(pynvml) of PyPI up to 11.5 is a different one, and is not accepted.
  - A node without an NVIDIA driver does not need the binding, which does no harm there.
  - With O(state=absent) what this module installed is removed. A package of the distribution stays.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
attributes:
  action:
    description: Has an action plugin, so that part of it runs on the controller.
    support: full
    details: It finds the binding on the controller, and sends it to the nodes that need it.
options:
  source:
    description:
      - Where the binding comes from.
      - With V(controller) it is that of the controller.
      - With V(package) it is that of the distribution. The package must be installed already, as the role C(nvml) does;
        this module checks that the Python that runs it finds a suitable binding, and removes its own.
      - With V(folder) it is one that is on the node already, such as in a virtual environment. The folder of this
        collection then has a few lines that load it.
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
      - The folder that holds C(pynvml.py), for O(source=folder), such as C(/opt/venv/lib/python3.11/site-packages).
        Only root may be able to change the file, because root runs it.
    type: str
    default: ""
  pynvml_sha256:
    description:
      - The SHA-256 sum of the file that the node must have, for O(source=controller). The action plugin fills it in. It
        is for M(gpufleet.node.node_state), which gets it from the lookup P(gpufleet.node.nvml_binding#lookup), like
        O(version) and O(lacking).
    type: str
    default: ""
  version:
    description:
      - The release of that file, for messages. Empty if it is not known.
    type: str
    default: ""
  lacking:
    description:
      - Why the controller has no binding, for the message; empty if it has one.
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
    description: The binding on the Python Package Index.
    link: https://pypi.org/project/nvidia-ml-py/
  - name: NVML API Reference
    description: The API that the binding calls.
    link: https://docs.nvidia.com/deploy/nvml-api/
"""

EXAMPLES = r"""
- name: Install the controller's binding
  gpufleet.node.nvml:

- name: Install the one in a wheel on the controller
  gpufleet.node.nvml:
    file: /srv/wheels/nvidia_ml_py-13.615.71-py3-none-any.whl

- name: Use the one of a virtual environment on the node
  gpufleet.node.nvml:
    source: folder
    folder: /opt/monitoring/lib/python3.11/site-packages

- name: Remove what was installed
  gpufleet.node.nvml:
    state: absent
"""

RETURN = r"""
# What the modules of all concerns return. `make docs` keeps the keys, not the sentences and samples.
status:
  description: What was found before the run, C(in_sync) or C(drifted).
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
pending_reasons:
  description:
    - For each setting that waits for what RV(needs) says, one sentence with the value that is in effect,
      the declared one, and why it waits.
  returned: always, unless the declaration was refused
  type: list
  elements: str
unmanaged:
  description: Always empty.
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
  description: Always empty.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: Who it is, such as C(sysctl.d), C(tuned) or C(kernel command line).
      type: str
    path:
      description: The file.
      type: str
    line:
      description: The line in it, where there is one.
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: What it sets.
      type: str
    value:
      description: The value it sets.
      type: str
    wins:
      description: Whose value stays in the end. One of C(us), C(them) and C(unknown).
      type: str
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
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
# End of what all return.
effective:
  description: The binding that this collection uses; empty if there is none.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    path:
      description: Where it is.
      type: str
      sample: /var/lib/gpufleet/python/pynvml.py
    sha256:
      description: Its sum.
      type: str
    version:
      description: Its release; null if nothing on the node tells it.
      type: str
      sample: 12.535.133
boot:
  description: The same, because a file persists across a reboot.
  returned: always, unless the declaration was refused
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.node.plugins.module_utils._node.module import answer
from ansible_collections.gpufleet.node.plugins.module_utils._node.sent_file import (
    arguments_with,
    ask_where_lacking,
    finish_or_ask,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvml.concern import (
    CONCERN,
    NvmlBinding,
    lacks_file,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvml.options import SENT


def main() -> None:
    module = AnsibleModule(**arguments_with(CONCERN, SENT))
    # Where the file lies, here and there, is no part of what is declared.
    sent = module.params.pop("pynvml")
    del module.params["file"]
    if sent is None:
        ask_where_lacking(module, lacks_file)
    finish_or_ask(module, answer(module, NvmlBinding(sent)))


if __name__ == "__main__":
    main()
