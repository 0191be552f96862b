# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A module that does nothing: what one remote execution costs before any work."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    AnsibleModule(argument_spec={}, supports_check_mode=True).exit_json(changed=False)


if __name__ == "__main__":
    main()
