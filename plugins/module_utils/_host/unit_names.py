# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of units, as systemd.unit(5) allows them."""

from __future__ import annotations

import re

_SERVICE = re.compile(r"[A-Za-z0-9:_.\\@-]+\.service", re.ASCII)
# UNIT_NAME_MAX of systemd, without its closing zero.
LONGEST = 255


def is_service(name: str) -> bool:
    """Whether a service can have this name, or a template of services."""
    return len(name) <= LONGEST and _SERVICE.fullmatch(name) is not None


def is_template(name: str) -> bool:
    """Of these only the instances start."""
    return name.endswith("@.service")
