# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print as JSON where this process is, and where a child of it has its memory.

``cgroup``: of this process. ``visible``: CUDA_VISIBLE_DEVICES. ``cpus``: those that a child may use. ``pages``: the
NUMA nodes of the memory that a child has just written, as numa_maps says.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import subprocess
import sys
from pathlib import Path

SIZE = 8 * 1024**2

if sys.argv[1:] == ["child"]:
    memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(0, SIZE, mmap.PAGESIZE):
        memory[page] = 1
    maps = Path("/proc/self/numa_maps").read_text().splitlines()
    # Of the mappings without a file.
    nodes = {int(node) for line in maps if "file=" not in line for node in re.findall(r" N(\d+)=", line)}
    print(json.dumps({"cpus": sorted(os.sched_getaffinity(0)), "pages": sorted(nodes)}))
else:
    child = subprocess.run([sys.executable, __file__, "child"], stdout=subprocess.PIPE, check=True)
    cgroup = Path("/proc/self/cgroup").read_text().strip()
    print(json.dumps({"cgroup": cgroup, "visible": os.environ["CUDA_VISIBLE_DEVICES"], **json.loads(child.stdout)}))
