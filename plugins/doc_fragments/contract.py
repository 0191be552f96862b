# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the documentation of every concern module shares: ``gpufleet.node.contract`` and ``.contract.attributes``."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  state:
    description:
      - Whether the machine is converged to the declaration, or restored to what was found before the first change.
      - With V(absent), it is restored in effect and for the next boot, and the files of this module are removed. The
        options that describe the settings are ignored.
    type: str
    choices: [present, absent]
    default: present
  immediate:
    description:
      - Whether the declaration is about the running system.
    type: bool
    default: true
  permanent:
    description:
      - Whether the declaration is about the next boot. The values then also go to the file that the operating system
        itself applies at boot, and the declaration is kept in C(/etc/gpufleet/declared.d/).
    type: bool
    default: true
  strict:
    description:
      - Whether a setting that this machine does not have is an error. Otherwise it is listed in RV(unmanaged)
        with the reason.
    type: bool
    default: false
  accepted:
    description:
      - Other owners of settings that you accept. An entry applies to each entry of RV(conflicts) that it matches and
        whose C(wins) is V(them) or V(unknown).
      - If another owner may set a setting at boot, RV(status) is V(unknown). If an entry matches, the setting is
        counted as accepted instead. A setting that differs stays V(drifted).
      - An entry changes nothing on the machine, and does not prevent a refusal.
    type: list
    elements: dict
    default: []
    suboptions:
      object:
        description: The object in RV(conflicts), as a shell glob.
        type: str
        default: "*"
      setting:
        description: The setting in RV(conflicts), as a shell glob.
        type: str
        default: "*"
      owner:
        description: The owner in RV(conflicts), such as C(tuned) or C(tune.service), as a shell glob.
        type: str
        required: true
      reason:
        description: Why it is accepted. It is shown with the setting.
        type: str
        required: true
      until:
        description: The last day of the entry, in UTC, such as V(2027-03-31). Without it, the entry never expires.
        type: str
requirements:
  - Python 3.9 or newer on the node
notes:
  - Every value is read back from the kernel after it was written. A value that did not take effect is a failure that
    names both values.
  - RV(status) is what was found before the run. Trigger handlers by RV(ignore:needs), which stays until they have run,
    and not by C(changed).
"""

    ATTRIBUTES = r"""
attributes:
  check_mode:
    support: full
    description: Predicts the changes of a real run, and makes none.
  diff_mode:
    support: full
    description:
      - Shows each setting that changes, one per line, before and after.
      - For files of other software it shows the lines around each change too, in which passwords, tokens and the like
        are masked. The keyword C(diff) of the task, set to C(false), hides them.
  idempotent:
    support: full
    description: A second run with the same declaration changes nothing.
  platform:
    support: full
    platforms: linux
    description: The systems that the module works on.
"""
