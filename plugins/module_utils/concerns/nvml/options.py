# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/nvml.py: change it there.

"""The options of ``nvml``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "source": {"type": "str", "choices": ["controller", "package", "folder"], "default": "controller"},
    "package": {"type": "str", "default": "python3-pynvml"},
    "folder": {"type": "str", "default": ""},
    "pynvml_sha256": {"type": "str", "default": ""},
    "version": {"type": "str", "default": ""},
    "lacking": {"type": "str", "default": ""},
}
# What the controller hands over, which nobody declares.
SENT: Mapping[str, Any] = {"file": {"type": "path"}, "pynvml": {"type": "path"}}
