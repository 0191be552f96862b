#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gds
short_description: Set what programs with GPUDirect Storage read from cufile.json
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Sets keys of C(/etc/cufile.json), the file of NVIDIA's library cuFile, which reads from NVMe drives and file systems
    directly into the memory of GPUs.
  - The file belongs to the package, and others may set keys in it. Only the declared keys are changed, where their
    value differs. Everything else, including comments, stays as it is. Behind each value of this module stands a
    comment with the value from before. With O(state=absent) the file is again as it was, byte for byte.
  - cuFile fails in every program of the node if one value in the file is wrong (a number in quotes, a number out of
    range, a folder that does not exist), and ignores a key that it does not know. So this module refuses wrong values
    and misspelt keys before anything changes. Types and ranges of each release were taken from the libraries themselves
    (1.11 to 1.20), and those of the libraries on the machine count. A file that cuFile cannot parse is not touched.
  - A program reads the file once, at its start. Programs that run keep what they have read. Those that can be seen in
    C(/proc/PID/maps) are listed in RV(unmanaged).
  - Variables in the environment of a program take precedence over the file, such as C(CUFILE_ENV_PATH_JSON), which
    names another file. Those that C(/etc/environment), the profiles of shells and systemd give to all programs are
    listed in RV(conflicts).
  - With C(allow_compat_mode) set to V(false), cuFile opens nothing where there is neither the kernel module
    C(nvidia_fs) nor P2PDMA. So that is an error with the reason (kernel, driver, parameters of C(nvme_core)). What
    P2PDMA lacks is listed in RV(unmanaged) where C(use_pci_p2pdma) is V(true). The module
    M(gpufleet.node.kernel_modules) loads C(nvidia_fs) and sets parameters.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  cufile:
    description:
      - The keys with their values, in the sections of the file.
      - A value of C(null) leaves the key alone.
    type: dict
seealso:
  - name: GPUDirect Storage configuration
    description: What the keys of the file do.
    link: https://docs.nvidia.com/gpudirect-storage/troubleshooting-guide/index.html
  - name: GPUDirect Storage design guide
    description: The two ways to the memory of a GPU, and what they need.
    link: https://docs.nvidia.com/gpudirect-storage/design-guide/index.html
  - module: gpufleet.node.kernel_modules
  - module: gpufleet.node.gpu_node_info
"""

EXAMPLES = r"""
- name: Let cuFile use more threads, and fail where it would read through the memory of the CPU
  gpufleet.node.gds:
    cufile:
      execution:
        max_io_threads: 8
        max_request_parallelism: 8
      properties:
        allow_compat_mode: false

- name: Use P2PDMA of the kernel in the place of nvidia_fs
  gpufleet.node.gds:
    cufile:
      properties:
        use_pci_p2pdma: true

- name: Restore what was there before
  gpufleet.node.gds:
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
      description: C(/etc/cufile.json).
      type: str
      sample: /etc/cufile.json
    setting:
      description: The key, or C(configuration) for a file that was not there.
      type: str
      sample: execution.max_io_threads
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
      description: C(now), or C(reboot) when it has to wait for that.
      type: str
needs:
  description: What must still happen, C(reboot) or nothing. It stays until it was done.
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
      description: What the setting was declared for.
      type: str
    setting:
      description: The setting that it does not have, or that is not restored.
      type: str
    reason:
      description: Why.
      type: str
conflicts:
  description: Who else sets what is declared.
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
  description: Whether RV(needs) has a reboot.
  returned: always, unless the declaration was refused
  type: bool
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
  description: What a program that starts now gets from the file.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    cufile:
      description: All keys of the file that have a value, as C(section.key).
      type: dict
      sample: {execution.max_io_threads: "8", properties.allow_compat_mode: "false"}
    releases:
      description: The libraries of the machine. Those in containers and in environments of Python are not among them.
      type: list
      elements: str
      sample: [/usr/local/cuda-12.8/targets/x86_64-linux/lib/libcufile.so.1.13.1]
    programs:
      description: The programs with cuFile that were started before the file was written last.
      type: list
      elements: dict
      contains:
        pid:
          description: The number of the process.
          type: int
        name:
          description: Its name.
          type: str
        file:
          description: The file that it has read, by its environment.
          type: str
boot:
  description: The same at the next boot.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    cufile:
      description: As in RV(effective).
      type: dict
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gds.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
