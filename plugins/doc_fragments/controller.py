# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The attributes of what runs on the controller, once for all hosts. One that does more than read says so."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    support: full
    details: Only reads variables.
  diff_mode:
    support: none
    details: There is nothing to change.
  idempotent:
    support: full
  action:
    description: Has an action plugin, so that part of it runs on the controller.
    support: full
    details: All of it runs on the controller.
  bypass_host_loop:
    description: Runs once for all hosts, not once per host.
    support: full
"""
