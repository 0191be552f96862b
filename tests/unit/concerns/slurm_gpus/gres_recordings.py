# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Gres= of a node as slurmctld has it, by what slurm.conf and gres.conf say: recordings of the real daemons.

Recorded of slurmctld and slurmd of Debian: 22.05.8 (bookworm), 24.11.5-4+deb13u1 (trixie) and 26.05.5-1 (sid), which
say the same. A cluster of one node with select/cons_tres and 2 sockets, /dev/nvidia0 to 3 with the numbers of
/dev/null, and an empty StateSaveLocation; ``scontrol --oneliner show node`` after slurmd had registered, or had ended.
"""

from __future__ import annotations

from typing import Tuple

H100 = "Name=gpu Type=h100 File=/dev/nvidia0\nName=gpu Type=h100 File=/dev/nvidia1\n"
MIXED = "Name=gpu Type=h100 File=/dev/nvidia0\nName=gpu Type=a100 File=/dev/nvidia1\n"
NEAR = "Name=gpu Type=h100 File=/dev/nvidia0 Cores=0\nName=gpu Type=h100 File=/dev/nvidia1 Cores=1\n"
INSTANCES = (
    "Name=gpu Type=a100_1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia2\n"
    "Name=gpu Type=a100_1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia3\n"
    "Name=gpu Type=a100 File=/dev/nvidia1\nName=nic Count=4\n"
)


def shares(name: str, count: int) -> str:
    return "".join(f"Name={name} File=/dev/nvidia{number} Count={count}\n" for number in (0, 1))


# Gres= in slurm.conf, gres.conf without its AutoDetect=off, and Gres= of scontrol.
REGISTERED: Tuple[Tuple[str, str, str], ...] = (
    ("gpu:h100:2,shard:8", H100 + shares("shard", 4), "gpu:h100:2,shard:h100:8"),
    ("gpu:h100:2,mps:200", H100 + shares("mps", 100), "gpu:h100:2,mps:h100:200"),
    ("gpu:h100:1,gpu:a100:1,shard:8", MIXED + shares("shard", 4), "gpu:h100:1,gpu:a100:1,shard:h100:4,shard:a100:4"),
    ("gpu:h100:1,gpu:a100:1,mps:200", MIXED + shares("mps", 100), "gpu:h100:1,gpu:a100:1,mps:h100:100,mps:a100:100"),
    ("gpu:2,shard:8", (H100 + shares("shard", 4)).replace(" Type=h100", ""), "gpu:2,shard:8"),
    ("gpu:h100:2,shard:8,nic:4", f"{H100}{shares('shard', 4)}Name=nic Count=4\n", "gpu:h100:2,shard:h100:8,nic:4"),
    ("gpu:h100:2,shard:8", NEAR + shares("shard", 4), "gpu:h100:2(S:0-1),shard:h100:8(S:0-1)"),
    ("gpu:h100:2,shard:2048", H100 + shares("shard", 1024), "gpu:h100:2,shard:h100:2K"),
    ("gpu:h100:2,shard:20000", H100 + shares("shard", 10000), "gpu:h100:2,shard:h100:20000"),
    ("gpu:h100:2,shard:h100:8", H100 + shares("shard", 4), "gpu:h100:2,shard:h100:8"),
    ("gpu:h100:2,shard:8", H100, "gpu:h100:2,shard:h100:8"),
    ("gpu:h100:2,mps:200", f"{H100}Name=mps Count=200\n", "gpu:h100:2,mps:h100:200"),
    ("gpu:h100:2,shard:8", H100 + shares("shard", 8), "gpu:h100:2,shard:h100:8"),
    ("gpu:a100_1g.5gb:2,gpu:a100:1,nic:4", INSTANCES, "gpu:a100_1g.5gb:2,gpu:a100:1,nic:4"),
)
# Of 24.11 and 26.05: the same of a resource that has no device.
LARGE = ("gpu:h100:2,nic:4096", f"{H100}Name=nic Count=4096\n", "gpu:h100:2,nic:4K")
# The same with what slurmctld then gives as the reason of a drain (UNKNOWN+DRAIN+INVALID_REG).
TOO_FEW: Tuple[Tuple[str, str, str, str], ...] = (
    (
        "gpu:h100:2,gpu:a100:2",
        f"{H100}Name=gpu Type=h100 File=/dev/nvidia2\nName=gpu Type=a100 File=/dev/nvidia3\n",
        "gpu:h100:2,gpu:a100:1",
        "gres/gpu count reported lower than configured (3 < 4)",
    ),
    ("gpu:old:1", H100, "gpu:old:1", "gres/gpu count reported lower than configured (0 < 1)"),
)
# Gres= and gres.conf with which slurmd ends, and its last words. Of the node slurmctld keeps what slurm.conf has.
ENDED: Tuple[Tuple[str, str, str], ...] = (
    (
        "gpu:h100:2,shard:8",
        f"{H100}Name=shard File=/dev/nvidia0 Count=4\n",
        'fatal: _build_shared_list: multiple configurations with and without "File"',
    ),
    (
        "gpu:h100:2,mps:200",
        H100 + shares("mps", 50),
        'fatal: _build_shared_list: multiple configurations with and without "File"',
    ),
    (
        "gpu:h100:1,gpu:a100:1,shard:h100:4,shard:a100:4",
        MIXED + shares("shard", 4),
        'fatal: _build_shared_list: bad configuration, multiple configurations without "File"',
    ),
)
