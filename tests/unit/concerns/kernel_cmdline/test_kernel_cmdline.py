# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments of the kernel: which one counts, what the next boot brings, and what the kernel made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Tuple

import hugepages_machine
import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import NotInEffect
from ansible_collections.gpufleet.node.plugins.module_utils._core.knobs import contested
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.hugepages.concern import CONCERN as HUGEPAGES
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_cmdline.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_cmdline.grammar import value_of
from cmdline_machine import CPU, DROP_IN, MENU, machine, params, reboot, run
from recorded import recorded_host
from support import FakeHost, build, snapshot

ONE_GIB = {"pools": [{"size": "1G", "per_node": {"0": 1, "1": 1}}]}
