# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is known of single keys of sysctl: modules that bring them, what goes together, and what the kernel takes.

Sources: Documentation/admin-guide/sysctl and Documentation/networking/ip-sysctl.rst of Linux.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Tuple

# What a key begins with, and the module that brings it.
MODULES: Tuple[Tuple[str, str], ...] = (
    ("net/netfilter/nf_conntrack_", "nf_conntrack"),
    ("net/nf_conntrack_max", "nf_conntrack"),
    ("net/bridge/", "br_netfilter"),
    ("sunrpc/", "sunrpc"),
    ("fs/nfs/nlm_", "lockd"),
    ("fs/nfs/", "nfs"),
    ("net/ipv4/vs/", "ip_vs"),
    ("net/sctp/", "sctp"),
    ("net/rds/", "rds"),
    ("net/smc/", "smc"),
    ("net/iw_cm/", "iw_cm"),
    ("net/rdma_ucm/", "rdma_ucm"),
)
# Keys that a kernel may lack: it is older, was built without them, or shows them only outside of containers.
OPTIONAL = frozenset(
    (
        "kernel/hung_task_timeout_secs",
        "kernel/io_uring_disabled",
        "kernel/nmi_watchdog",
        "kernel/numa_balancing",
        "kernel/perf_event_paranoid",
        "kernel/sched_rt_period_us",
        "kernel/sched_rt_runtime_us",
        "kernel/timer_migration",
        "net/core/busy_poll",
        "net/core/busy_read",
        "net/core/default_qdisc",
        "net/core/netdev_max_backlog",
        "net/core/rmem_default",
        "net/core/rmem_max",
        "net/core/wmem_default",
        "net/core/wmem_max",
        "vm/compaction_proactiveness",
        "vm/nr_hugepages",
        "vm/zone_reclaim_mode",
    )
)
GONE: Mapping[str, str] = dict.fromkeys(
    (
        "kernel/sched_latency_ns",
        "kernel/sched_migration_cost_ns",
        "kernel/sched_min_granularity_ns",
        "kernel/sched_wakeup_granularity_ns",
    ),
    "Linux 5.13 moved it to /sys/kernel/debug/sched",
)
# Of these two, setting one sets the other to 0.
ZEROED: Mapping[str, str] = {
    "vm/dirty_ratio": "vm/dirty_bytes",
    "vm/dirty_bytes": "vm/dirty_ratio",
    "vm/dirty_background_ratio": "vm/dirty_background_bytes",
    "vm/dirty_background_bytes": "vm/dirty_background_ratio",
}
NR_OPEN = "fs/nr_open"
IP_FORWARD, ALL_FORWARDING = "net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding"
RT_RUNTIME, RT_PERIOD = "kernel/sched_rt_runtime_us", "kernel/sched_rt_period_us"
DEFAULT_RT_PERIOD = 1000000
CONGESTION, AVAILABLE_CONGESTION = "net/ipv4/tcp_congestion_control", "net/ipv4/tcp_available_congestion_control"
QDISC = "net/core/default_qdisc"
RESERVED_PORTS = "net/ipv4/ip_local_reserved_ports"
# khugepaged raises it, and never lowers it.
AT_LEAST = frozenset(("vm/min_free_kbytes",))
# Two pages.
LEAST_DIRTY_BYTES = 8192
# The least and the most that the kernel takes, where it is the same on every machine.
LIMITS: Mapping[str, Tuple[int, int]] = {
    "kernel/io_uring_disabled": (0, 2),
    "kernel/numa_balancing": (0, 3),
    "kernel/pid_max": (301, 4194304),
    "kernel/randomize_va_space": (0, 2),
    "kernel/sched_rt_period_us": (1, 2**31 - 1),
    "kernel/sched_rt_runtime_us": (-1, 2**31 - 1),
    "vm/compaction_proactiveness": (0, 100),
    "vm/dirty_background_bytes": (1, 2**63 - 1),
    "vm/dirty_background_ratio": (0, 100),
    "vm/dirty_bytes": (LEAST_DIRTY_BYTES, 2**63 - 1),
    "vm/dirty_ratio": (0, 100),
    "vm/overcommit_memory": (0, 2),
    "vm/panic_on_oom": (0, 2),
    "vm/swappiness": (0, 200),
    "vm/zone_reclaim_mode": (0, 7),
}
# How many numbers a key takes. The kernel takes fewer, and leaves the others as they were.
COUNTS: Mapping[str, int] = {
    "kernel/printk": 4,
    "kernel/sem": 4,
    "net/ipv4/ip_local_port_range": 2,
    "net/ipv4/ping_group_range": 2,
    "net/ipv4/tcp_mem": 3,
    "net/ipv4/tcp_rmem": 3,
    "net/ipv4/tcp_wmem": 3,
    "net/ipv4/udp_mem": 3,
}
# Of these the numbers must not fall.
RISING = frozenset(
    (
        "net/ipv4/ip_local_port_range",
        "net/ipv4/tcp_mem",
        "net/ipv4/tcp_rmem",
        "net/ipv4/tcp_wmem",
        "net/ipv4/udp_mem",
    )
)
# What a kubelet sets when it starts, or with protectKernelDefaults wants to find.
KUBELET: Mapping[str, int] = {
    "kernel/keys/root_maxbytes": 25000000,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
}
_OF_INTERFACE = re.compile(r"net/ipv[46]/(?:conf|neigh)/([^/]+)/[^/]+")
_DECIMAL = re.compile(r"-?[0-9]+")
_NUMBER_OF_C = re.compile(r"(-?)(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*))")


def dotted(key: str) -> str:
    """A key as sysctl(8) writes it: the dots in the name of an interface are slashes."""
    return key.translate(str.maketrans("./", "/."))


def module_of(key: str) -> str:
    """The module that brings a key, empty for the kernel itself."""
    return next((module for prefix, module in MODULES if key.startswith(prefix)), "")


def interface_of(key: str) -> str:
    """The network interface that a key is about; empty for none, and for all of them."""
    found = _OF_INTERFACE.fullmatch(key)
    return found[1] if found and found[1] not in ("all", "default") else ""


def decimals(text: str) -> Tuple[int, ...]:
    """The numbers of a text of the kernel; none where anything else is in it."""
    words = text.split()
    return tuple(map(int, words)) if all(map(_DECIMAL.fullmatch, words)) else ()


def read_by_kernel(key: str, text: str, like: Optional[str]) -> Optional[str]:
    """What a key has after this text was written into it, as ``found`` has it; None where the kernel refuses it.

    ``like`` is what it has now. Numbers are those of C, so that 010 is 8, and those beyond what the key takes are not
    read.
    """
    words = text.split()
    if key == RESERVED_PORTS:
        return merged_ports(text)
    count = len(words) if like is None else len(decimals(like))
    numbers = [_number_of_c(word) for word in words[:count]]
    if None not in numbers and numbers:
        return " ".join(map(str, numbers))
    return " ".join(words) if like is None or not count else None


def found(text: str) -> str:
    """A value as the kernel shows it, in one form: no tabs, and numbers without zeros before them."""
    numbers = decimals(text)
    return " ".join(map(str, numbers) if numbers else text.split())


def merged_ports(text: str) -> Optional[str]:
    """A list of ports and ranges as the kernel shows it: ``30,10-12,11-20`` is ``10-20,30``."""
    ports: List[Tuple[int, int]] = []
    for part in text.replace(" ", "").split(",") if text.strip() else ():
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        if not match or not int(match[1]) <= int(match[2] or match[1]) <= 65535:
            return None
        ports.append((int(match[1]), int(match[2] or match[1])))
    merged: List[List[int]] = []
    for first, last in sorted(ports):
        if merged and first <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in merged)


def in_order(values: Mapping[str, str], period: int) -> Dict[str, str]:
    """Values in the order in which they can be written, where the real-time period is ``period`` now.

    The runtime must not exceed the period at any time. ``ip_forward`` resets parameters of interfaces, so it is first.
    """
    keys = sorted(values, key=lambda key: key != IP_FORWARD)
    if RT_RUNTIME in values and RT_PERIOD in values:
        pair = [RT_PERIOD, RT_RUNTIME] if int(values[RT_PERIOD]) >= period else [RT_RUNTIME, RT_PERIOD]
        keys = [*(key for key in keys if key not in pair), *pair]
    return {key: values[key] for key in keys}


def _number_of_c(word: str) -> Optional[int]:
    match = _NUMBER_OF_C.fullmatch(word)
    if not match:
        return None
    number = int(match[2], 16) if match[2] else int(match[3], 8) if match[3] else int(match[4])
    return -number if match[1] else number
