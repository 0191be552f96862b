# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPUs of the system: what slices and services have now, at the next boot, and after the declaration is gone."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, Mapping

import pytest
from ansible_collections.gpufleet.node.node.status import describe
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import AnyConcern, Params
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._linux import cpusets
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.cpu_isolation.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.cpu_isolation.cpu_isolation_machine import (
    ALL,
    CPU,
    CPUS,
    ETC,
    GROUP,
    HOUSEKEEPING,
    OURS,
    SYSTEM,
    effective,
    group,
    machine,
    params,
    run,
    systemd_of,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, Killed, build, snapshot

CHRONY = {"daemons": [{"name": "chrony.service"}]}
VLLM = {
    "/proc/71/comm": "vllm\n",
    "/proc/71/cgroup": "0::/system.slice/vllm.service\n",
}


def with_gpu(root: Path, files: Dict[str, str]) -> Any:
    host = machine(root, files)
    build(root, {}, {"/proc/71/fd/3": "/dev/nvidia0"})
    return host


def test_the_system_has_these_cpus_now_and_at_the_next_boot(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host)
    assert host.files.read(SYSTEM).splitlines()[1:] == ["[Slice]", "AllowedCPUs=", f"AllowedCPUs={CPUS}"]
    assert effective(host) == CPUS
    assert (outcome.remaining.status, systemd_of(host).reloads) == ("in_sync", 1)
    assert outcome.effective["cpus"] == {"system": CPUS, "jobs": "2-7,10-15", "isolated": {}, "online": ALL}
    host.files.reads.clear()
    assert (run(host).status, run(host).changes) == ("in_sync", ())
    assert not [path for path in host.files.reads if "topology" in path or path.startswith("/proc/")]


def hotplug(host: FakeHost, offline: str, *, left: str, all_left: str) -> None:
    """CPUs go offline or come back: what a group asked for stays, and of that it has what is online."""
    host.files.store(f"{CPU}/offline", offline)
    host.files.store(f"{CPU}/online", all_left)
    host.files.store(f"{GROUP}/cpuset.cpus.effective", all_left)
    host.files.store(f"{GROUP}/system.slice/cpuset.cpus.effective", left)


@pytest.mark.parametrize(
    ("offline", "left", "all_left"),
    [
        # One of the system, one of the jobs, and all of the jobs.
        ("9", "0-1,8", "0-8,10-15"),
        ("12", CPUS, "0-11,13-15"),
        ("2-7,10-15", CPUS, CPUS),
    ],
)
def test_cpus_that_go_offline_and_come_back_change_nothing(
    tmp_path: Path, offline: str, left: str, all_left: str
) -> None:
    host = machine(tmp_path)
    run(host)
    hotplug(host, offline, left=left, all_left=all_left)
    gone = run(host)
    assert (gone.status, gone.changes, gone.effective["cpus"]["system"]) == ("in_sync", (), CPUS)
    hotplug(host, "", left=CPUS, all_left=ALL)
    assert (run(host).status, systemd_of(host).reloads) == ("in_sync", 1)


def test_a_slice_whose_cpus_are_all_offline_is_not_confined(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    # The kernel gives it those of its parent, for as long.
    hotplug(host, CPUS, left="2-7,10-15", all_left="2-7,10-15")
    with pytest.raises(DeclarationError, match="CPUs 0-1,8-9 are offline"):
        run(host)


def test_what_is_gone_is_as_it_was_byte_for_byte(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    run(host)
    run(host, None, state="absent")
    assert snapshot(tmp_path) == before


def test_a_list_that_the_kernel_does_not_forget_becomes_that_of_all_cpus(tmp_path: Path) -> None:
    host = machine(tmp_path, {f"{CPU}/possible": "0-31\n"})
    systemd_of(host).keeps = True
    run(host)
    outcome = run(host, None, state="absent")
    assert host.files.read(f"{GROUP}/system.slice/cpuset.cpus").strip() == "0-31"
    assert outcome.remaining.status == "in_sync"
    assert run(host, None, state="absent").changes == ()


@pytest.mark.parametrize("keeps", [False, True])
def test_processes_have_all_cpus_before_systemd_switches_the_controller_off(tmp_path: Path, keeps: bool) -> None:
    """With it goes all that tells of their CPUs, and they would keep those of the system until they end."""
    host = machine(tmp_path)
    systemd = systemd_of(host)
    systemd.keeps, systemd.switches = keeps, True
    run(host)
    assert systemd.processes == {"system.slice": CPUS}
    outcome = run(host, None, state="absent")
    assert not host.files.exists(f"{GROUP}/system.slice/cpuset.cpus")
    assert (systemd.processes, outcome.remaining.status) == ({"system.slice": ALL}, "in_sync")


def test_so_they_have_after_a_run_that_was_killed_and_a_reload_by_somebody_else(tmp_path: Path) -> None:
    number, killed = 0, True
    while killed:
        number += 1
        host = machine(tmp_path / str(number))
        systemd = systemd_of(host)
        systemd.keeps = systemd.switches = True
        run(host)
        host.files.log.clear()
        host.files.kill_at = number
        try:
            run(host, None, state="absent")
            killed = False
        except Killed:
            host.files.kill_at = None
            host.commands.run(["systemctl", "daemon-reload"])
            host.commands.run(["systemd-run", "--slice=system.slice", "true"])
            run(host, None, state="absent")
        assert (number, systemd.processes) == (number, {"system.slice": ALL})
    assert number > 3


def test_a_limit_without_a_file_is_found_and_ended(tmp_path: Path) -> None:
    """As ``systemctl set-property`` leaves it, or an AllowedCPUs= that somebody removed."""
    host = machine(tmp_path, group("system.slice", "2-3", "2-3"))
    systemd_of(host).keeps = True
    host.files.store(f"{GROUP}/system.slice/cpuset.cpus.effective", "2-3")
    outcome = run(host, **CHRONY)
    change = next(change for change in outcome.changes if change.object == "system.slice")
    assert (change.setting, change.before, change.after, change.scope) == ("CPUs", "2-3", None, "effective")
    assert host.files.read(f"{GROUP}/system.slice/cpuset.cpus").strip() == ALL


def test_from_the_whole_slice_to_single_services(tmp_path: Path) -> None:
    host = machine(tmp_path)
    systemd_of(host).keeps = True
    run(host)
    outcome = run(host, **CHRONY)
    assert not host.files.exists(SYSTEM)
    assert host.files.read(f"{GROUP}/system.slice/cpuset.cpus").strip() == ALL
    assert host.files.read(HOUSEKEEPING).splitlines()[1:] == ["[Slice]", "AllowedCPUs=", f"AllowedCPUs={CPUS}"]
    assert outcome.as_dict()["needs"] == ["restart of chrony.service"]


def test_a_service_moves_with_its_next_start(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host, **CHRONY)
    drop_in = f"{ETC}/chrony.service.d/{OURS}"
    assert host.files.read(drop_in).splitlines()[1:] == ["[Service]", "Slice=housekeeping.slice"]
    assert (outcome.remaining.status, effective(host)) == ("pending", ALL)
    [waiting] = outcome.remaining.pending
    assert (waiting.object, waiting.setting, waiting.effective, waiting.boot) == (
        "chrony.service",
        "slice",
        "system.slice",
        "housekeeping.slice",
    )
    assert all("restart" not in call for call in host.commands.calls)
    # Somebody restarts it.
    (tmp_path / f"{GROUP}/system.slice/chrony.service/cgroup.procs".lstrip("/")).unlink()
    (tmp_path / f"{GROUP}/system.slice/chrony.service".lstrip("/")).rmdir()
    restarted = {f"{GROUP}/housekeeping.slice/chrony.service/cgroup.procs": "901\n"}
    build(tmp_path, {**group("housekeeping.slice", CPUS, CPUS), **restarted})
    done = run(host, **CHRONY)
    assert (done.status, done.effective["daemons"]) == ("in_sync", {"chrony.service": "housekeeping.slice"})
    systemd_of(host).keeps = True
    run(host, None, state="absent")
    assert not host.files.exists(drop_in)
    assert effective(host, "housekeeping.slice") == ALL


def test_a_service_that_is_not_there_may_be_optional(tmp_path: Path) -> None:
    outcome = run(machine(tmp_path), daemons=[{"name": "cron.service"}, {"name": "ntpd.service", "optional": True}])
    assert (outcome.remaining.status, list(outcome.boot["daemons"])) == ("in_sync", ["cron.service"])


def test_lines_of_others_before_ours_do_not_add_up(tmp_path: Path) -> None:
    host = machine(tmp_path, {f"{ETC}/system.slice.d/50-AllowedCPUs.conf": "[Slice]\nAllowedCPUs=4-5\n"})
    outcome = run(host)
    assert (effective(host), outcome.remaining.status) == (CPUS, "in_sync")
    [conflict] = outcome.remaining.conflicts
    assert (conflict.object, conflict.setting, conflict.value, conflict.wins) == (
        "system.slice",
        "AllowedCPUs",
        "4-5",
        "us",
    )


@pytest.mark.parametrize("what", ["a GPU", "a container"])
def test_work_below_a_slice_is_in_the_way_until_it_ends(tmp_path: Path, what: str) -> None:
    scope = f"{GROUP}/system.slice/docker-{'0123456789ab' * 5}0123.scope/cgroup.events"
    container = {scope: "populated 1\n"}
    host = with_gpu(tmp_path, VLLM) if what == "a GPU" else machine(tmp_path, container)
    who = "vllm.service uses a GPU" if what == "a GPU" else "docker-0123456789ab.scope is a container"
    before = snapshot(tmp_path, leave_out=("run",))
    with pytest.raises(GpuFleetError) as caught:
        run(host)
    assert (caught.value.code, str(caught.value)) == (
        "in_use",
        f"Cannot confine system.slice: {who} and would lose CPUs. Nothing was changed; drain the node, or list the "
        "services to confine in daemons instead, or set when_busy: wait or skip.",
    )
    assert snapshot(tmp_path, leave_out=("run",)) == before
    skipped = run(host, when_busy="skip")
    assert (skipped.remaining.status, effective(host)) == ("pending", ALL)
    assert skipped.as_dict()["needs"] == [f"end of {who.split()[0]}"]
    assert not host.files.exists(SYSTEM)
    host.files.remove("/proc/71/fd/3") if what == "a GPU" else host.files.store(scope, "populated 0")
    assert run(host, when_busy="skip").remaining.status == "in_sync"


def test_a_container_that_came_later_is_shown_beside_the_cpus_that_it_lacks(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    build(tmp_path, {f"{GROUP}/system.slice/nerdctl-web.scope/cgroup.events": "populated 1\n"})
    outcome = run(host)
    [conflict] = outcome.remaining.conflicts
    assert (outcome.status, conflict.owner, conflict.value) == ("in_sync", "nerdctl-web.scope", "is a container")
    # It loses nothing where the system gets more CPUs.
    assert run(host, "0-3,8-11").remaining.status == "in_sync"
    with pytest.raises(GpuFleetError, match="is a container and would lose CPUs"):
        run(host, CPUS)


def test_a_run_waits_for_work_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = with_gpu(tmp_path, VLLM)
    monkeypatch.setattr("time.sleep", lambda seconds: host.files.remove("/proc/71/fd/3"))
    assert run(host, when_busy="wait", busy_timeout=60).remaining.status == "in_sync"
    assert effective(host) == CPUS


def test_daemons_of_the_gpus_are_confined_with_the_others(tmp_path: Path) -> None:
    host = with_gpu(tmp_path, {**VLLM, "/proc/71/cgroup": "0::/system.slice/nvidia-persistenced.service\n"})
    assert run(host).remaining.status == "in_sync"


def test_what_would_take_gpus_from_containers_waits(tmp_path: Path) -> None:
    files = {"/proc/71/cgroup": "0::/user.slice/job-a.scope\n", "/proc/71/root/dev/nvidiactl": ""}
    host = machine(tmp_path, files)
    systemd_of(host).scopes["job-a.scope"] = "DevicePolicy=strict"
    outcome = run(host)
    assert (outcome.remaining.status, outcome.as_dict()["needs"], effective(host)) == (
        "pending",
        ["daemon-reload"],
        ALL,
    )
    host.files.remove("/proc/71/cgroup")
    assert (run(host).remaining.status, effective(host)) == ("in_sync", CPUS)


def test_a_limit_ends_also_while_systemd_may_not_read_that_it_is_gone(tmp_path: Path) -> None:
    """Whoever reads it later has nothing to end, and the processes do not depend on how he does."""
    files = {"/proc/71/cgroup": "0::/user.slice/job-a.scope\n"}
    host = machine(tmp_path, files)
    systemd = systemd_of(host)
    systemd.keeps = systemd.switches = True
    run(host)
    systemd.scopes["job-a.scope"] = "DevicePolicy=strict"
    build(tmp_path, {"/proc/71/root/dev/nvidiactl": ""})
    outcome = run(host, None, state="absent")
    assert (outcome.remaining.status, outcome.as_dict()["needs"]) == ("pending", ["daemon-reload"])
    assert (systemd.processes, systemd.read["system.slice"] != "") == ({"system.slice": ALL}, True)
    host.commands.run(["systemctl", "daemon-reload"])
    host.commands.run(["systemd-run", "--slice=system.slice", "true"])
    assert (run(host, None, state="absent").remaining.status, systemd.processes) == ("in_sync", {"system.slice": ALL})


def test_without_a_controller_the_slices_are_unmanaged(tmp_path: Path) -> None:
    host = machine(tmp_path, {f"{GROUP}/cgroup.controllers": "cpu memory\n"})
    outcome = run(host)
    [entry] = outcome.remaining.unmanaged
    assert (entry.object, entry.reason) == ("system.slice", "its control groups have no cpuset controller")
    assert not host.files.exists(SYSTEM)
    host.files.remove(f"{GROUP}/cgroup.controllers")
    assert run(host).remaining.unmanaged[0].reason.startswith("it has version 1 of control groups")


def test_what_the_running_kernel_isolates_is_not_for_the_system(tmp_path: Path) -> None:
    host = machine(tmp_path, {f"{CPU}/isolated": "8-15\n"})
    with pytest.raises(GpuFleetError) as caught:
        run(host)
    assert (caught.value.code, str(caught.value)) == (
        "conflict",
        "Cannot give CPUs 8-9 to the system: the running kernel isolates them by isolcpus (found isolcpus=8-15, "
        "wanted housekeeping_cpus 0-1,8-9). Take them out of one of the two lists; housekeeping_cpus are those for the "
        "system.",
    )
    # What the next boot isolates counts more.
    declared = {"schema": 1, "declaration": {"arguments": {"isolcpus": "managed_irq,2-7,10-15"}}}
    host.files.replace("/etc/gpufleet/declared.d/kernel_cmdline.json", json.dumps(declared))
    assert run(host).effective["cpus"]["isolated"] == {"isolcpus": "managed_irq,2-7,10-15"}


def test_the_node_says_in_a_line_which_cpus_are_whose(tmp_path: Path) -> None:
    host = machine(tmp_path, {f"{CPU}/nohz_full": "2-7,10-15\n"})
    declarations = {"cpu_isolation": {"housekeeping_cpus": CPUS}}

    def lines() -> Any:
        answer = assess_node(
            declarations, host, validate=lambda _concern, declared: params(declared), full=False, devices=True
        )
        return describe({**answer, "node": "a", "other_releases": {}})

    assert "cpu_isolation: no CPU is for the system alone" in lines()
    run(host)
    expected = "cpu_isolation: 0-1,8-9 for the system, 2-7,10-15 for jobs, 2-7,10-15 isolated by nohz_full"
    assert expected in lines()


@pytest.mark.parametrize("isolated", ["2-9", "N-N,8-9", "managed_irq,domain,8-9"])
def test_one_look_refuses_both_lists_with_who_declares_the_other(tmp_path: Path, isolated: str) -> None:
    host = machine(tmp_path)
    declarations = {
        "cpu_isolation": {"housekeeping_cpus": CPUS},
        "kernel_cmdline": {"arguments": {"isolcpus": isolated}},
    }

    def validate(concern: AnyConcern, declared: Mapping[str, Any]) -> Params:
        return params(declared, concern)

    answer = assess_node(declarations, host, validate=validate, full=False)
    assert answer["invalid"] == ["kernel_cmdline", "cpu_isolation"]
    assert answer["concerns"]["cpu_isolation"]["msg"] == (
        "Cannot declare housekeeping_cpus: a CPU is either for the system or isolated from it, and 8-9 are in kernel "
        f"argument isolcpus of kernel_cmdline too (found kernel argument isolcpus {isolated}, wanted {CPUS}). Take "
        "these CPUs out of one of the two lists; housekeeping_cpus are those for the system."
    )
    assert "of cpu_isolation too" in answer["concerns"]["kernel_cmdline"]["msg"]


@pytest.mark.parametrize(
    ("lines", "cpus"),
    [
        (["0-3"], {0, 1, 2, 3}),
        (["0 2", "4"], {0, 2, 4}),
        (["0-3", "", "5"], {5}),
        (["0-3", ""], set()),
        (["1,3-1"], {1}),
        (["0-N"], set()),
        (["all"], set()),
        (["0-7:1/2", "1"], {1}),
    ],
)
def test_a_list_counts_as_systemd_reads_it(tmp_path: Path, lines: Any, cpus: Any) -> None:
    text = "".join(f"AllowedCPUs={line}\n" for line in lines)
    host = machine(tmp_path, {f"{ETC}/a-b.slice.d/1.conf": f"[Slice]\n{text}"})
    assert cpusets.allowed(host.files, "a-b.slice") == cpus


@pytest.mark.parametrize("line", ["0-3", "0 2", "1,3-1", "0-N", "all", "0-7:1/2", "ours"])
def test_systemd_itself_ignores_the_lists_that_do_not_count(tmp_path: Path, line: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    text = f"[Slice]\nAllowedCPUs={line}\n"
    if line == "ours":
        host = machine(tmp_path)
        run(host)
        line, text = CPUS, host.files.read(SYSTEM)
    unit = tmp_path / "tried.slice"
    unit.write_text(text)
    said = subprocess.run(["systemd-analyze", "verify", str(unit)], stderr=subprocess.PIPE, text=True, check=False)
    assert ("Failed to parse" in said.stderr) == (cpusets.parse_allowed(line) is None), said.stderr


def test_a_dash_in_the_name_of_a_slice_is_a_parent() -> None:
    assert cpusets.folder_of("a-b-c.slice") == f"{GROUP}/a.slice/a-b.slice/a-b-c.slice"


def test_all_that_is_declared_has_one_owner() -> None:
    declaration = CONCERN.parse(params({"housekeeping_cpus": CPUS, **CHRONY}))
    assert CONCERN.knobs(declaration) == ("AllowedCPUs of housekeeping.slice", "Slice of chrony.service")
