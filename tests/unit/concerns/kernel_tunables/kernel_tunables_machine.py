# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine whose /proc/sys follows the kernel's rules."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Mapping, Optional

from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, KernelFiles, build

RELEASE = "6.8.0-45-generic"
FILES = {
    "/proc/cmdline": "root=/dev/sda1\n",
    "/proc/sys/fs/aio-max-nr": "65536\n",
    "/proc/sys/kernel/core_pattern": "core\n",
    "/proc/sys/kernel/numa_balancing": "1\n",
    "/proc/sys/kernel/osrelease": f"{RELEASE}\n",
    "/proc/sys/kernel/perf_event_paranoid": "4\n",
    "/proc/sys/kernel/sched_rt_period_us": "1000000\n",
    "/proc/sys/kernel/sched_rt_runtime_us": "950000\n",
    "/proc/sys/net/core/default_qdisc": "fq_codel\n",
    "/proc/sys/net/core/rmem_max": "212992\n",
    "/proc/sys/net/ipv4/conf/all/rp_filter": "0\n",
    "/proc/sys/net/ipv4/conf/eth0/rp_filter": "2\n",
    "/proc/sys/net/ipv4/conf/eth0.5/rp_filter": "2\n",
    "/proc/sys/net/ipv4/ip_local_reserved_ports": "\n",
    "/proc/sys/net/ipv4/tcp_available_congestion_control": "reno cubic\n",
    "/proc/sys/net/ipv4/tcp_congestion_control": "cubic\n",
    "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
    "/proc/sys/vm/dirty_background_bytes": "0\n",
    "/proc/sys/vm/dirty_background_ratio": "10\n",
    "/proc/sys/vm/dirty_bytes": "0\n",
    "/proc/sys/vm/dirty_ratio": "20\n",
    "/proc/sys/vm/max_map_count": "65530\n",
    "/proc/sys/vm/min_free_kbytes": "67584\n",
    "/proc/sys/vm/swappiness": "60\n",
    "/usr/lib/sysctl.d/50-default.conf": "net.ipv4.conf.*.rp_filter = 2\n-net.ipv4.conf.all.rp_filter\n",
    f"/lib/modules/{RELEASE}/modules.dep": "kernel/net/ipv4/tcp_bbr.ko:\nkernel/net/sched/sch_fq.ko:\n",
    f"/lib/modules/{RELEASE}/modules.builtin": "kernel/net/sched/sch_fq_codel.ko\n",
    "/var/lib/dpkg/status": "",
}


def machine(root: Path, files: Optional[Mapping[str, str]] = None) -> FakeHost:
    for folder in ("etc/sysctl.d", "etc/udev/rules.d", "run"):
        (root / folder).mkdir(parents=True)
    host = build(root, {**FILES, **(files or {})})
    host.files.rules += [
        (r"/proc/sys/vm/(dirty(?:_background)?)_(ratio|bytes)", _write_pair),
        (r"/proc/sys/.*", _write),
    ]
    return host


def _store(files: KernelFiles, path: str, text: str) -> None:
    Path(files.locate(path)).write_text(f"{text}\n")


def _write_pair(files: KernelFiles, match: re.Match[str], value: str) -> None:
    """As dirty_ratio_handler and the like of mm/page-writeback.c."""
    name, kind = match[1], match[2]
    if kind == "bytes" and int(value) < 8192:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), match.group())
    _store(files, match.group(), value)
    _store(files, f"/proc/sys/vm/{name}_{'bytes' if kind == 'ratio' else 'ratio'}", "0")


def _write(files: KernelFiles, match: re.Match[str], value: str) -> None:
    """Numbers as proc_dointvec takes and shows them."""
    found = files.read(match.group()).split()
    if not all(re.fullmatch(r"-?[0-9]+", word) for word in found) or not found:
        _store(files, match.group(), value)
        return
    numbers = value.split()
    if not re.fullmatch(r"-?[0-9]+( -?[0-9]+)*", value):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), match.group())
    _store(files, match.group(), "\t".join((*numbers[: len(found)], *found[len(numbers) :])))
