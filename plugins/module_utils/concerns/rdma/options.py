# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/rdma.py: change it there.

"""The options of ``rdma``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {"setting": {"type": "str"}}
