# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A service or script that sets a declared value at boot: to another one, to the same, maybe, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import Outcome, converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import OwnedByAnother
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.hugepages.concern import CONCERN as HUGEPAGES
from ansible_collections.gpufleet.node.tests.unit.concerns.cpu_power import cpu_machine
from ansible_collections.gpufleet.node.tests.unit.concerns.hugepages import hugepages_machine
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_tunables import kernel_tunables_machine
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_tunables.kernel_tunables_runs import run as run_sysctl
from ansible_collections.gpufleet.node.tests.unit.concerns.nvme_scheduler import nvme_machine
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

UNIT = "/etc/systemd/system/tune.service"
LINK = "/etc/systemd/system/multi-user.target.wants/tune.service"
SCRIPT = "/opt/tune"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
GOVERNORS = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"

Runner = Callable[[], Outcome]
Bed = Callable[[Path, Mapping[str, str], bool], Runner]


def kernel_tunables(root: Path, files: Mapping[str, str], permanent: bool) -> Runner:
    host = kernel_tunables_machine.machine(root, files)
    return lambda: run_sysctl(host, {"vm.swappiness": 0}, permanent=permanent)


def hugepages(root: Path, files: Mapping[str, str], permanent: bool) -> Runner:
    host = hugepages_machine.machine(root, extra=files)
    params = hugepages_machine.params(transparent={"enabled": "madvise"}, permanent=permanent)

    def run() -> Outcome:
        outcome = converge(HUGEPAGES, params, host, check_mode=False)
        if outcome.error is not None:
            raise outcome.error
        return outcome

    return run


def cpu_power(root: Path, files: Mapping[str, str], permanent: bool) -> Runner:
    machine = cpu_machine.CpuMachine(root, cpu_machine.intel_active(), dict(files), {})
    return lambda: cpu_machine.run(machine, governor="performance", permanent=permanent)


def nvme_scheduler(root: Path, files: Mapping[str, str], permanent: bool) -> Runner:
    host = nvme_machine.machine(root, [nvme_machine.Drive(0)], dict(files))
    return lambda: nvme_machine.run(host, {"read_ahead_kb": 512}, permanent=permanent)


# By concern: its machine, the command that sets another value and the same one, and how the error begins.
CASES: Dict[str, Tuple[Bed, str, str, str]] = {
    "kernel_tunables by sysctl": (
        kernel_tunables,
        "sysctl -w vm.swappiness=60",
        "sysctl -w vm.swappiness=0",
        "Cannot set sysctl vm.swappiness",
    ),
    "kernel_tunables by its path": (
        kernel_tunables,
        "echo 60 > /proc/sys/vm/swappiness",
        "echo 0 > /proc/sys/vm/swappiness",
        "Cannot set sysctl vm.swappiness",
    ),
    "hugepages": (hugepages, f"echo always > {THP}", f"echo madvise | tee {THP}", "Cannot set enabled on"),
    "cpu_power by its path": (
        cpu_power,
        f"for f in {GOVERNORS}; do echo powersave > $f; done",
        f"for f in {GOVERNORS}; do echo performance > $f; done",
        "Cannot set governor on CPUs",
    ),
    "cpu_power by cpupower": (
        cpu_power,
        "cpupower frequency-set -g powersave",
        "cpupower frequency-set -g performance",
        "Cannot set governor on CPUs",
    ),
    "nvme_scheduler by its path": (
        nvme_scheduler,
        "echo 64 > /sys/block/nvme0n1/queue/read_ahead_kb",
        "echo 512 > /sys/block/nvme*n1/queue/read_ahead_kb",
        "Cannot keep read_ahead_kb on nvme0n1",
    ),
    "nvme_scheduler by blockdev": (
        nvme_scheduler,
        "blockdev --setra 128 /dev/nvme0n1",
        "blockdev --setra 1024 /dev/nvme0n1",
        "Cannot keep read_ahead_kb on nvme0n1",
    ),
}
NAMES = tuple(CASES)


def service(script: str, *, enabled: bool = True) -> Dict[str, str]:
    unit = f"[Service]\nType=oneshot\nExecStart={SCRIPT}\n[Install]\nWantedBy=multi-user.target\n"
    files = {UNIT: unit, SCRIPT: f"#!/bin/sh\n{script}\n"}
    return {**files, LINK: unit} if enabled else files


def foreign(outcome: Outcome) -> List[Tuple[str, str, Optional[int], str]]:
    return [(one.owner, one.path, one.line, one.wins) for one in outcome.remaining.conflicts]


@pytest.mark.parametrize("name", NAMES)
def test_another_value_is_refused_with_the_line_and_nothing_changes(name: str, tmp_path: Path) -> None:
    bed, other, _same, message = CASES[name]
    run = bed(tmp_path, service(other), True)
    before = snapshot(tmp_path)
    with pytest.raises(OwnedByAnother) as caught:
        run()
    assert str(caught.value).startswith(message)
    assert "tune.service" in str(caught.value)
    assert SCRIPT in str(caught.value)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", NAMES)
def test_for_now_alone_it_is_named_as_what_wins(name: str, tmp_path: Path) -> None:
    bed, other, _same, _message = CASES[name]
    assert foreign(bed(tmp_path, service(other), False)())[:1] == [("tune.service", SCRIPT, 2, "them")]


def in_sync_without_findings(run: Runner) -> None:
    assert foreign(run()) == []
    again = run()
    assert (again.status, again.changes, foreign(again)) == ("in_sync", (), [])


@pytest.mark.parametrize("name", NAMES)
def test_the_declared_value_is_no_finding(name: str, tmp_path: Path) -> None:
    bed, _other, same, _message = CASES[name]
    in_sync_without_findings(bed(tmp_path, service(same), True))


@pytest.mark.parametrize("name", NAMES)
def test_what_does_not_run_at_boot_is_no_finding(name: str, tmp_path: Path) -> None:
    bed, other, _same, _message = CASES[name]
    in_sync_without_findings(bed(tmp_path, service(other, enabled=False), True))


@pytest.mark.parametrize("name", NAMES)
def test_what_only_mentions_it_is_no_finding(name: str, tmp_path: Path) -> None:
    bed, other, _same, _message = CASES[name]
    in_sync_without_findings(bed(tmp_path, service(f"# {other}\nlogger '{other}'"), True))


@pytest.mark.parametrize("name", NAMES)
def test_what_may_set_it_is_named_and_does_not_fail_the_run(name: str, tmp_path: Path) -> None:
    bed, other, _same, _message = CASES[name]
    run = bed(tmp_path, service(f"if grep -q tuned /etc/tune.conf; then\n{other}\nfi"), True)
    run()
    again: Any = run()
    assert (again.status, again.changes) == ("in_sync", ())
    assert foreign(again) == [("tune.service", SCRIPT, 3, "unknown")]
