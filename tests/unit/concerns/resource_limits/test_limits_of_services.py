# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limits of services: which file counts, what systemd has read, and what only a restart brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, OwnedByAnother
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.resource_limits.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.resource_limits.limits_machine import (
    FILES,
    LIB,
    OURS,
    Systemd,
    proc_limits,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build, snapshot

ETC = "/etc/systemd/system"
SYSTEM = f"/etc/systemd/system.conf.d/{OURS}"
SLURMD = f"{ETC}/slurmd.service.d/{OURS}"
SCOPE = "docker-a.scope"


def machine(root: Path, files: Optional[Mapping[str, str]] = None) -> FakeHost:
    host = build(root, {**FILES, "/var/lib/dpkg/status": "", **(files or {})})
    Systemd(host)
    return host


def systemd_of(host: FakeHost) -> Systemd:
    found = host.commands.programs["systemctl"]
    assert isinstance(found, Systemd)
    return found


def run(host: FakeHost, *units: Mapping[str, Any], check: bool = False, **more: Any) -> Outcome:
    validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate({"units": [*units], **more})
    assert validated.error_messages == []
    outcome = converge(CONCERN, validated.validated_parameters, host, check_mode=check)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def slurmd(**limits: Any) -> Dict[str, Any]:
    return {"name": "slurmd.service", **limits}


def hold_gpus(host: FakeHost, root: Path) -> None:
    """A container that would lose its GPUs by a reload."""
    build(root, {"/proc/71/cgroup": f"0::/system.slice/{SCOPE}\n", "/proc/71/root/dev/nvidiactl": ""})
    systemd_of(host).scopes[SCOPE] = "DevicePolicy=strict"


def test_systemd_is_executed_anew_for_its_defaults_and_asked_once_when_they_are_right(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, services={"memlock": "8G:unlimited", "nofile": "65536"})
    assert host.files.read(SYSTEM).splitlines()[1:] == [
        "[Manager]",
        "DefaultLimitMEMLOCK=8589934592:infinity",
        "DefaultLimitNOFILE=65536:65536",
    ]
    systemd = systemd_of(host)
    assert (systemd.calls["daemon-reexec"], systemd.calls["daemon-reload"]) == (1, 0)
    systemd.calls["show"] = 0
    again = run(host, services={"memlock": "8G:unlimited", "nofile": "65536"})
    assert (again.status, again.changes, systemd.calls["show"]) == ("in_sync", (), 1)
    assert again.effective["services"] == {"services": {"memlock": "8589934592:infinity", "nofile": "65536:65536"}}


def test_a_unit_that_does_not_run_gets_its_limits_by_a_reload(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host, slurmd(memlock="unlimited"))
    assert host.files.read(SLURMD).splitlines()[1:] == ["[Service]", "LimitMEMLOCK=infinity:infinity"]
    assert outcome.remaining.status == "in_sync"
    assert (systemd_of(host).calls["daemon-reload"], systemd_of(host).calls["daemon-reexec"]) == (1, 0)


def test_one_that_runs_keeps_what_it_was_started_with_until_somebody_restarts_it(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/proc/812/limits": proc_limits("8388608", "131072")})
    systemd_of(host).pids["slurmd.service"] = 812
    outcome = run(host, slurmd(memlock="unlimited", nofile="131072"))
    assert outcome.remaining.status == "pending"
    assert outcome.as_dict()["needs"] == ["restart of slurmd.service"]
    [waiting] = outcome.remaining.pending
    assert (waiting.object, waiting.setting, waiting.effective, waiting.boot) == (
        "slurmd.service",
        "memlock",
        "8388608:8388608",
        "infinity:infinity",
    )
    assert "restart slurmd.service" in waiting.pending
    assert all("restart" not in call for call in host.commands.calls)
    build(tmp_path, {"/proc/812/limits": proc_limits("unlimited", "131072")})
    assert run(host, slurmd(memlock="unlimited", nofile="131072")).status == "in_sync"


def test_what_would_take_gpus_from_containers_waits_and_is_found_again(tmp_path: Path) -> None:
    host = machine(tmp_path)
    hold_gpus(host, tmp_path)
    outcome = run(host, slurmd(memlock="unlimited"), services={"memlock": "unlimited"})
    assert sorted(outcome.as_dict()["needs"]) == ["daemon-reexec", "daemon-reload"]
    assert (outcome.remaining.status, systemd_of(host).calls["daemon-reexec"]) == ("pending", 0)
    host.files.remove("/proc/71/cgroup")
    assert run(host, slurmd(memlock="unlimited"), services={"memlock": "unlimited"}).remaining.status == "in_sync"
    assert systemd_of(host).calls["daemon-reexec"] == 1


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {"slurmd.service": "131072:131072", "services": None}),
        ({"/etc/systemd/system.conf": "[Manager]\nDefaultLimitNOFILE=10:20\n"}, {"services": "10:20"}),
        (
            {
                "/etc/systemd/system.conf": "[Manager]\nDefaultLimitNOFILE=10\n",
                "/usr/lib/systemd/system.conf.d/50-a.conf": "[Manager]\nDefaultLimitNOFILE=30\n",
            },
            {"services": "30:30"},
        ),
        ({f"{ETC}/slurmd.service.d/10-a.conf": "[Service]\nLimitNOFILE=\n"}, {"slurmd.service": None}),
        ({f"{ETC}/slurmd.service.d/10-a.conf": "[Service]\nLimitNOFILE=64K\n"}, {"slurmd.service": "131072:131072"}),
        (
            {f"{ETC}/slurmd.service.d/10-a.conf": "[Service]\nLimitNOFILE=infinity\n"},
            {"slurmd.service": "infinity:infinity"},
        ),
        ({f"{ETC}/slurmd.service.d/10-a.conf": "[Manager]\nLimitNOFILE=7\n"}, {"slurmd.service": "131072:131072"}),
    ],
)
def test_the_next_start_has_what_the_last_file_says(
    tmp_path: Path, files: Mapping[str, str], expected: Mapping[str, Optional[str]]
) -> None:
    outcome = run(machine(tmp_path, files), slurmd(nofile="5"), services={"nofile": "5"}, check=True)
    found = {unit: limits["nofile"] for unit, limits in outcome.boot["services"].items()}
    assert {unit: found[unit] for unit in expected} == expected


def test_a_later_file_of_another_is_refused_and_an_earlier_one_is_named(tmp_path: Path) -> None:
    later = f"{ETC}/slurmd.service.d/99-site.conf"
    host = machine(tmp_path, {later: "[Service]\nLimitMEMLOCK=64M\n"})
    before = snapshot(tmp_path)
    with pytest.raises(OwnedByAnother, match=r"Cannot set memlock on slurmd\.service: .*99-site\.conf overrules"):
        run(host, slurmd(memlock="unlimited"))
    assert snapshot(tmp_path) == before
    host.files.remove(later)
    [conflict] = run(host, slurmd(nofile="1048576")).as_dict()["conflicts"]
    assert (conflict["path"], conflict["value"], conflict["wins"]) == (
        f"{LIB}/slurmd.service",
        "131072:131072",
        "us",
    )


def test_what_is_declared_no_more_is_given_up_and_absent_leaves_nothing(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    run(host, slurmd(memlock="unlimited", nofile="1000"), services={"nproc": "unlimited"})
    outcome = run(host, slurmd(memlock="1G"))
    assert not host.files.exists(SYSTEM)
    assert ("slurmd.service", "nofile", "131072:131072") in {
        (change.object, change.setting, change.after) for change in outcome.changes
    }
    run(host, state="absent")
    assert snapshot(tmp_path) == before
    assert not any(systemd_of(host).read.values())


def test_where_systemd_does_not_run_only_files_are_written(tmp_path: Path) -> None:
    host = build(tmp_path, {path: text for path, text in FILES.items() if not path.startswith("/run/")})
    outcome = run(host, slurmd(memlock="unlimited"), services={"memlock": "unlimited"})
    assert outcome.remaining.status == "in_sync"
    assert host.commands.calls == []
    assert not host.files.exists("/run/gpufleet/daemon-reexec")


def test_a_unit_that_a_machine_may_lack_is_skipped(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host, slurmd(memlock="1G"), {"name": "crio.service", "memlock": "1G", "optional": True})
    assert outcome.remaining.status == "in_sync"
    assert not host.files.exists(f"{ETC}/crio.service.d")


@pytest.mark.parametrize(
    ("units", "services", "message"),
    [
        (
            [slurmd(nofile="2000000")],
            {},
            "Cannot set nofile on slurmd.service: it is above /proc/sys/fs/nr_open, which is 1048576, so no service"
            " would get it (wanted 2000000:2000000). Raise fs.nr_open first, as kernel_tunables does, or lower nofile.",
        ),
        (
            [],
            {"nofile": "1:1048577"},
            "Cannot set nofile on services: it is above /proc/sys/fs/nr_open, which is 1048576, so no service would"
            " get it (wanted 1:1048577). Raise fs.nr_open first, as kernel_tunables does, or lower nofile.",
        ),
        (
            [{"name": "crio.service", "memlock": "1G"}],
            {},
            "Cannot set limits of crio.service: this machine has no such unit. Leave it out, or set optional: true for"
            " it.",
        ),
        (
            [{"name": "slurmd", "memlock": "1G"}],
            {},
            "Cannot use units[0]: 'slurmd' is not the name of a service. Write it as slurmd.service.",
        ),
        ([slurmd()], {}, "Cannot use units[0]: no limit of slurmd.service is set. Set one."),
        (
            [slurmd(memlock="1G"), slurmd(memlock="2G")],
            {},
            "Cannot use units[1]: memlock of slurmd.service is set twice.",
        ),
        (
            [slurmd(memlock="1024")],
            {},
            "Cannot set units[0].memlock: the limit is not a size with a unit (K, M, G or T), or unlimited (wanted"
            " 1024). Set a size with a unit (K, M, G or T), or unlimited.",
        ),
        (
            [],
            {"nproc": "9:3"},
            "Cannot set services.nproc: the soft limit is above the hard one (wanted 9:3). Lower the soft limit, or"
            " raise the hard one.",
        ),
        (
            [],
            {},
            "Cannot read the declaration: no limit is set in sessions, services or units. Set at least one limit, such"
            " as sessions: {memlock: unlimited}, or state: absent.",
        ),
    ],
)
def test_what_no_service_could_have_is_refused_before_anything_changes(
    tmp_path: Path, units: List[Any], services: Dict[str, str], message: str
) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    with pytest.raises(DeclarationError) as caught:
        run(host, *units, services=services, sessions={"memlock": "1G"} if services or units else None)
    assert str(caught.value) == message
    assert snapshot(tmp_path) == before
