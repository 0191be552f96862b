# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Versions of CUDA, and the drivers that run them."""

from __future__ import annotations

import re
from typing import Optional

from ..module_utils._node.facts.driver import CUDA_BRANCHES

BRANCHES = {major: branch for branch, major in CUDA_BRANCHES}
RIGHT = f"a version of CUDA {', '.join(str(major) for major in sorted(BRANCHES))}"


def branch_for(cuda: str) -> Optional[int]:
    """The first branch of the driver that runs a version of CUDA, or None for what is none or is not known.

    All minor versions of one run on the same: https://docs.nvidia.com/deploy/cuda-compatibility/
    """
    version = re.fullmatch(r"(\d+)(\.\d+)*", cuda.strip())
    return BRANCHES.get(int(version[1])) if version else None
