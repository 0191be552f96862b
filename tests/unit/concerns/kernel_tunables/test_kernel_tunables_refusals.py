# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input to ``kernel_tunables``: what was given, the message, and that nothing changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_tunables.kernel_tunables_machine import machine
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_tunables.kernel_tunables_runs import run
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

TABLE: List[Tuple[Mapping[str, Any], str]] = [
    (
        {},
        "read the declaration: no key is declared in sysctl. Set at least one, such as sysctl:"
        " {vm.swappiness: 10}, or state: absent.",
    ),
    (
        {"vm.*": 1},
        "set sysctl vm.*: a pattern is not a key. Declare each key by its name.",
    ),
    (
        {"-vm.swappiness": 1},
        "read the declaration: '-vm.swappiness' is not the name of a sysctl key.",
    ),
    (
        {"vm/../kernel/panic": 1},
        "read the declaration: 'vm/../kernel/panic' is not the name of a sysctl key.",
    ),
    (
        {"vm.swappiness": True},
        "set sysctl vm.swappiness: true is not a value of sysctl. Write 1 or 0.",
    ),
    (
        {"vm.swappiness": 1.5},
        "set sysctl vm.swappiness: the value is neither a whole number nor a string. Write several numbers"
        " as one string.",
    ),
    (
        {"net.ipv4.tcp_rmem": [1, 2, 3]},
        "set sysctl net.ipv4.tcp_rmem: the value is neither a whole number nor a string. Write several"
        " numbers as one string.",
    ),
    (
        {"kernel.core_pattern": " "},
        "set sysctl kernel.core_pattern: the value is empty or too long. Leave the key out where it is to"
        " stay as it is.",
    ),
    (
        {"kernel.core_pattern": "a\nvm.swappiness = 3"},
        "set sysctl kernel.core_pattern: the value has more than one line.",
    ),
    (
        {"vm.swappiness": 1, "vm/swappiness": 2},
        "set sysctl vm.swappiness: the key is declared twice. Leave one of the two out.",
    ),
    (
        {"fs.aio-max-nr": "64K"},
        "set sysctl fs.aio-max-nr: 64K is not a whole number. Write the number in full, such as 1048576.",
    ),
    (
        {"fs.aio-max-nr": "1e6"},
        "set sysctl fs.aio-max-nr: 1e6 is not a whole number. Write the number in full, such as 1048576.",
    ),
    (
        {"fs.aio-max-nr": "010"},
        "set sysctl fs.aio-max-nr: the kernel reads 010 as an octal number. Leave the leading zeros out.",
    ),
    (
        {"fs.aio-max-nr": "0x40"},
        "set sysctl fs.aio-max-nr: 0x40 is a hexadecimal number. Write it in decimal: 64.",
    ),
    (
        {"fs.aio-max-nr": "many"},
        "set sysctl fs.aio-max-nr: the key takes a number (wanted many).",
    ),
    (
        {"fs.aio-max-nr": "1 2"},
        "set sysctl fs.aio-max-nr: the key takes one number (wanted 1 2). Declare all of them: the kernel"
        " would leave the others as they are, or drop what is too many.",
    ),
    (
        {"net.ipv4.tcp_rmem": "4096 87380"},
        "set sysctl net.ipv4.tcp_rmem: the key takes 3 numbers (wanted 4096 87380). Declare all of them:"
        " the kernel would leave the others as they are, or drop what is too many.",
    ),
    (
        {"net.ipv4.tcp_rmem": "4096 87380 16384"},
        "set sysctl net.ipv4.tcp_rmem: the numbers must not fall (wanted 4096 87380 16384).",
    ),
    (
        {"vm.swappiness": 201},
        "set sysctl vm.swappiness: the kernel takes 0 to 200 (wanted 201).",
    ),
    (
        {"vm.dirty_bytes": 0},
        "set sysctl vm.dirty_bytes: the kernel takes 8192 to 9223372036854775807 (wanted 0). Declare"
        " vm.dirty_ratio instead.",
    ),
    (
        {"vm.dirty_ratio": 10, "vm.dirty_bytes": 8192},
        "set sysctl vm.dirty_ratio: vm.dirty_bytes is declared too, and setting one sets the other to 0."
        " Leave one of the two out.",
    ),
    (
        {"net.ipv4.ip_forward": 1, "net.ipv4.conf.all.forwarding": 0},
        "set sysctl net.ipv4.ip_forward: net.ipv4.conf.all.forwarding is declared too, and both are the"
        " same setting. Leave one of the two out.",
    ),
    (
        {"net.ipv4.ip_local_reserved_ports": "20-10"},
        "set sysctl net.ipv4.ip_local_reserved_ports: the value is not a list of ports and ranges (wanted"
        " 20-10). Write it like 8080,9000-9010.",
    ),
    (
        {"kernel.sched_rt_runtime_us": 1000001},
        "set sysctl kernel.sched_rt_runtime_us: it exceeds kernel.sched_rt_period_us, which is 1000000"
        " (wanted 1000001). Set at most the period, or -1 for no limit.",
    ),
    (
        {"kernel.sched_rt_runtime_us": 9, "kernel.sched_rt_period_us": 8},
        "set sysctl kernel.sched_rt_runtime_us: it exceeds kernel.sched_rt_period_us, which is 8 (wanted"
        " 9). Set at most the period, or -1 for no limit.",
    ),
    # What this machine cannot have.
    (
        {"vm.swapiness": 1},
        "set sysctl vm.swapiness: this kernel does not have the key. Did you mean vm.swappiness?",
    ),
    (
        {"vm": 1},
        "set sysctl vm: it is a folder of keys. Declare a key in it.",
    ),
    (
        {"net.ipv4.conf.eth0.5.rp_filter": 1},
        "set sysctl net.ipv4.conf.eth0.5.rp_filter: this kernel does not have the key. For an interface"
        " with a dot in its name, declare net/ipv4/conf/eth0.5/rp_filter.",
    ),
    (
        {"net.ipv4.conf.eth0.rp_filtre": 1},
        "set sysctl net.ipv4.conf.eth0.rp_filtre: this kernel does not have the key. Did you mean"
        " net.ipv4.conf.eth0.rp_filter?",
    ),
    (
        {"kernel.sched_latency_ns": 1},
        "set sysctl kernel.sched_latency_ns: Linux 5.13 moved it to /sys/kernel/debug/sched. Leave the key out.",
    ),
    (
        {"net.ipv4.tcp_available_congestion_control": "bbr"},
        "set sysctl net.ipv4.tcp_available_congestion_control: the kernel lets nobody write it (wanted"
        " bbr). Leave the key out.",
    ),
    (
        {"net.ipv4.tcp_congestion_control": "bbr3"},
        "set sysctl net.ipv4.tcp_congestion_control: this kernel has no module tcp_bbr3 (wanted bbr3).",
    ),
    (
        {"net.core.default_qdisc": "cake"},
        "set sysctl net.core.default_qdisc: this kernel has no module sch_cake (wanted cake).",
    ),
]


@pytest.mark.parametrize(("sysctl", "message"), TABLE, ids=[str(given) for given, _message in TABLE])
def test_what_cannot_be_is_refused_before_anything_changes(
    tmp_path: Path, sysctl: Mapping[str, Any], message: str
) -> None:
    host = machine(tmp_path)
    Path(host.files.locate("/proc/sys/net/ipv4/tcp_available_congestion_control")).chmod(0o444)
    before = snapshot(tmp_path, leave_out=())
    with pytest.raises(GpuFleetError) as caught:
        run(host, sysctl)
    assert str(caught.value) == f"Cannot {message}"
    assert snapshot(tmp_path, leave_out=()) == before


def test_a_module_that_the_kernel_loads_by_itself_is_enough(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {"net.ipv4.tcp_congestion_control": "bbr", "net.core.default_qdisc": "fq"})
    assert host.files.read("/proc/sys/net/ipv4/tcp_congestion_control") == "bbr\n"


def test_a_command_keeps_no_value(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/proc/sys/vm/compact_memory": ""})
    Path(host.files.locate("/proc/sys/vm/compact_memory")).chmod(0o200)
    host.files.unreadable = ("/proc/sys/vm/compact_memory",)
    with pytest.raises(GpuFleetError, match=r"sysctl vm\.compact_memory: it is a command and keeps no value"):
        run(host, {"vm.compact_memory": 1})


def test_in_a_container_that_may_not_write_it_says_so(tmp_path: Path) -> None:
    host = machine(tmp_path)
    host.files.read_only.append("/proc/sys")
    with pytest.raises(GpuFleetError, match=r"Cannot set vm\.swappiness on sysctl: /proc/sys/vm is read-only here"):
        run(host, {"vm.swappiness": 0})
    # Its files are its own.
    assert run(host, {"vm.swappiness": 0}, immediate=False).boot == {"sysctl": {"vm.swappiness": 0}}
