#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma
short_description: TODO, in a few words
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - TODO. What it sets, where what is in effect is read from, and which file brings it at the next boot.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  setting:
    description:
      - TODO. The one place in which an option stands. Without a default it is left alone where it is not given.
    type: str
"""

EXAMPLES = r"""
- name: TODO
  gpufleet.node.rdma:
    setting: TODO

- name: Restore what was there before
  gpufleet.node.rdma:
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
      description: What it is set on.
      type: str
    setting:
      description: What is set on it.
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
      description: C(now), or C(reboot) when it has to wait for that.
      type: str
needs:
  description: What must still happen, C(reboot) or nothing. It stays until it was done.
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
    setting:
      description: What it sets.
      type: str
    value:
      description: The value it sets.
      type: str
    wins:
      description: Whose value stays in the end, C(us) or C(them).
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
  description: TODO. What is in effect, in the words of the module.
  returned: always, unless the declaration was refused
  type: dict
boot:
  description: TODO. The same at the next boot.
  returned: always, unless the declaration was refused
  type: dict
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.rdma.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
