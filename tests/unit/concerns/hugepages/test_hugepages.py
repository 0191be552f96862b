# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``hugepages`` does on a machine that follows the kernel's rules."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any, Dict

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, InUse
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.hugepages.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.hugepages.hugepages_machine import (
    DROP_IN,
    NODES,
    RECORD,
    THP,
    TMPFILES,
    kernel_rules,
    machine,
    pages,
    params,
    pool_path,
    set_pool,
)
from ansible_collections.gpufleet.node.tests.unit.support import PATIENCE, FakeHost, Killed, quickest, snapshot

EVEN = {"pools": [{"size": "2M", "pages": 1024}]}
UNEVEN = {"pools": [{"size": "2M", "per_node": {"0": 512, "1": 128}}]}
GIGANTIC = {"pools": [{"size": "1G", "per_node": {"0": 1, "1": 2}}]}
REASONS = "/run/gpufleet/reboot-required.d/hugepages"


def run(host: FakeHost, *, check_mode: bool = False, **declared: Any) -> Outcome:
    return converge(CONCERN, params(**declared), host, check_mode=check_mode)


def rows(outcome: Outcome) -> Dict[str, Any]:
    return {
        f"{change.object} {change.setting} {change.scope}": (change.before, change.after) for change in outcome.changes
    }


def test_a_total_is_spread_over_the_nodes_now_and_at_boot(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host, **EVEN)
    assert outcome.error is None
    assert (pages(host, 0), pages(host, 1), pages(host, None)) == (512, 512, 1024)
    text = host.files.read(TMPFILES)
    assert f"w! {pool_path(0)} - - - - 512\n" in text
    assert f"w! {pool_path(1)} - - - - 512\n" in text
    assert outcome.status == "drifted"
    assert rows(outcome) == {
        "node0 hugepages_2M boot": (0, 512),
        "node1 hugepages_2M boot": (0, 512),
        "node0 hugepages_2M effective": (0, 512),
        "node1 hugepages_2M effective": (0, 512),
        "/etc/gpufleet/declared.d/hugepages.json declaration boot": (None, "as declared"),
    }


def test_what_does_not_divide_goes_to_the_first_nodes(tmp_path: Path) -> None:
    host = machine(tmp_path, nodes=(0, 1, 2))
    run(host, pools=[{"size": "2M", "pages": 8}])
    assert [pages(host, node) for node in (0, 1, 2)] == [3, 3, 2]


@pytest.mark.parametrize(
    "declared",
    [EVEN, UNEVEN, GIGANTIC, {"transparent": {"enabled": "madvise", "khugepaged": {"defrag": False}}}],
    ids=["even", "uneven", "gigantic", "transparent"],
)
def test_the_second_run_finds_nothing_to_do(tmp_path: Path, declared: Dict[str, Any]) -> None:
    host = machine(tmp_path)
    run(host, **declared)
    before = snapshot(tmp_path, leave_out=())
    outcome = run(host, **declared)
    assert outcome.changes == ()
    assert snapshot(tmp_path, leave_out=()) == before


def test_the_global_number_is_never_written_where_nodes_are(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, **UNEVEN)
    assert [path for kind, path, _value in host.files.log if kind == "set"] == [pool_path(0), pool_path(1)]


def test_a_machine_without_node_folders_uses_the_global_number(tmp_path: Path) -> None:
    host = machine(tmp_path, nodes=())
    outcome = run(host, pools=[{"size": "2M", "pages": 64}])
    assert pages(host, None) == 64
    assert f"w! {pool_path(None)} - - - - 64\n" in host.files.read(TMPFILES)
    assert outcome.effective["pools"]["2M"] == {"memory": {"pages": 64, "free": 64, "in_use": 0, "surplus": 0}}


def test_a_node_without_cpus_gets_pages_only_when_it_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path, nodes=(0, 1, 2), cpuless=(2,))
    run(host, **EVEN)
    assert [pages(host, node) for node in (0, 1, 2)] == [512, 512, 0]
    run(host, pools=[{"size": "2M", "per_node": {"2": 64}}])
    assert pages(host, 2) == 64


def test_shrinking_comes_before_growing_and_the_boot_file_before_both(tmp_path: Path) -> None:
    host = machine(tmp_path)
    set_pool(host, 1, total=512, free=512)
    run(host, pools=[{"size": "2M", "per_node": {"0": 512, "1": 0}}])
    order = [path for kind, path, _value in host.files.log if kind != "move" and "gpufleet/" not in path]
    assert order == [TMPFILES, pool_path(1), pool_path(0)]


def test_surplus_pages_do_not_count_as_declared_ones(tmp_path: Path) -> None:
    host = machine(tmp_path)
    set_pool(host, 0, total=10, free=0, surplus=2)
    outcome = run(host, permanent=False, pools=[{"size": "2M", "per_node": {"0": 8}}])
    assert outcome.changes == ()


def test_pages_in_use_are_not_torn_away(tmp_path: Path) -> None:
    status = "Name:\tqemu-kvm\nHugetlbPages:\t  614400 kB\n"
    host = machine(tmp_path, extra={"/proc/4242/status": status})
    set_pool(host, 0, total=512, free=212)
    before = snapshot(tmp_path)
    with pytest.raises(InUse) as caught:
        run(host, pools=[{"size": "2M", "per_node": {"0": 100}}])
    assert str(caught.value) == (
        "Cannot shrink hugepages_2M on node0: 300 of 512 pages are in use, by qemu-kvm (pid 4242, 600 MiB) "
        "(found 512, wanted 100). Stop what uses them, or declare at least 300 pages there."
    )
    assert snapshot(tmp_path) == before


def test_reserved_pages_are_not_torn_away(tmp_path: Path) -> None:
    host = machine(tmp_path, extra={pool_path(None, name="resv"): "50\n"})
    set_pool(host, 0, total=100, free=90)
    with pytest.raises(InUse, match="60 pages on all nodes are in use or reserved"):
        run(host, pools=[{"size": "2M", "per_node": {"0": 59}}])
    run(host, pools=[{"size": "2M", "per_node": {"0": 60}}])
    assert pages(host, 0) == 60


def test_a_shortage_says_how_many_where_and_what_was_free(tmp_path: Path) -> None:
    host = machine(tmp_path, limits={0: 300})
    outcome = run(host, **EVEN)
    assert outcome.error is not None
    assert outcome.error.failure()["code"] == "shortage"
    assert str(outcome.error) == (
        "Cannot allocate hugepages_2M on node0: "
        "the kernel found too little contiguous memory, even after compaction: "
        "node0 got 300 of 512 with 32768 MiB free (found 300, wanted 512). The numbers for the next boot are written: "
        "reboot, or set on_shortage: reboot, or stop what uses the memory there, or declare fewer pages, "
        "or set drop_caches: true."
    )
    assert f"w! {pool_path(0)} - - - - 512\n" in host.files.read(TMPFILES)
    assert pages(host, 1) == 512


def test_a_shortage_on_two_nodes_names_both(tmp_path: Path) -> None:
    host = machine(tmp_path, limits={0: 300, 1: 7})
    outcome = run(host, **EVEN)
    assert "node0 got 300 of 512 with 32768 MiB free; node1 got 7 of 512 with 32768 MiB free" in str(outcome.error)


def test_compaction_is_tried_before_giving_up(tmp_path: Path) -> None:
    limits = {0: 300}
    host = machine(tmp_path)

    def compact(files: Any, match: Any, value: str) -> None:
        limits[0] += 150

    host.files.rules[:] = [(r"/proc/sys/vm/compact_memory", compact), *kernel_rules(limits)]
    outcome = run(host, **EVEN)
    assert outcome.error is None
    assert pages(host, 0) == 512
    assert not any("drop_caches" in path for _kind, path, _value in host.files.log)


@pytest.mark.parametrize("tunable", ["compact_memory", "drop_caches", "compact"])
def test_help_that_the_kernel_refuses_does_not_hide_the_shortage(tmp_path: Path, tunable: str) -> None:
    host = machine(tmp_path, limits={0: 300, 1: 7})

    def refuse(files: Any, match: Any, value: str) -> None:
        raise OSError(errno.EIO, "Input/output error", match[0])

    host.files.rules.insert(0, (rf"/.*/{tunable}", refuse))
    outcome = run(host, drop_caches=True, **EVEN)
    assert outcome.error is not None
    assert outcome.error.code == "shortage"
    assert "node0 got 300 of 512" in str(outcome.error)
    assert "node1 got 7 of 512" in str(outcome.error)


def test_a_pool_that_the_kernel_refuses_does_not_keep_the_others_from_their_pages(tmp_path: Path) -> None:
    host = machine(tmp_path)

    def refuse(files: Any, match: Any, value: str) -> None:
        raise OSError(errno.EINVAL, "Invalid argument", match[0])

    host.files.rules.insert(0, (pool_path(0), refuse))
    outcome = run(host, **EVEN)
    assert "the kernel refused the number" in str(outcome.error)
    assert pages(host, 1) == 512


def test_a_shortage_reports_what_really_changed(tmp_path: Path) -> None:
    host = machine(tmp_path, limits={0: 300})
    outcome = run(host, **EVEN)
    assert outcome.error is not None
    found = {name: values for name, values in rows(outcome).items() if name.endswith("effective")}
    assert found == {"node0 hugepages_2M effective": (0, 300), "node1 hugepages_2M effective": (0, 512)}


@pytest.mark.parametrize("allowed", [True, False])
def test_caches_are_dropped_only_when_allowed(tmp_path: Path, allowed: bool) -> None:
    host = machine(tmp_path, limits={0: 300})
    run(host, drop_caches=allowed, **EVEN)
    assert any("drop_caches" in path for _kind, path, _value in host.files.log) is allowed


def test_on_shortage_reboot_waits_and_does_not_try_again_until_then(tmp_path: Path) -> None:
    host = machine(tmp_path, limits={0: 300})
    first = run(host, on_shortage="reboot", **EVEN)
    assert first.error is None
    assert first.remaining.needs == ("reboot",)
    reason = "node0 hugepages_2M is 300, wanted 512: the kernel found too little contiguous memory"
    assert host.files.read(REASONS) == f"{reason}\n"
    host.files.log.clear()
    second = run(host, on_shortage="reboot", **EVEN)
    assert second.changes == ()
    assert second.status == "pending"
    assert second.as_dict()["reboot_reasons"] == [reason]
    assert host.files.log == []


def test_after_the_reboot_it_is_tried_again(tmp_path: Path) -> None:
    host = machine(tmp_path, limits={0: 300})
    run(host, on_shortage="reboot", **EVEN)
    host.files.remove(REASONS)
    assert "node0 hugepages_2M effective" in rows(run(host, check_mode=True, on_shortage="reboot", **EVEN))


def test_gigantic_pages_go_to_the_command_line_and_wait_for_the_reboot(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host, **GIGANTIC)
    assert outcome.error is None
    assert "hugepagesz=1G hugepages=0:1,1:2" in host.files.read("/boot/grub/grub.cfg")
    assert host.commands.calls == [("update-grub",)]
    assert pages(host, 0, 1048576) == 0
    assert outcome.remaining.status == "pending"
    assert outcome.remaining.needs == ("reboot",)
    assert not host.files.exists(TMPFILES)
    assert {change.takes_effect for change in outcome.changes if change.setting == "hugepages_1G"} == {"reboot"}


@pytest.mark.parametrize(
    ("shape", "total", "shares"),
    [
        ({}, 5, {0: 3, 1: 2}),
        (
            {"nodes": (0, 1, 2), "cpuless": (2,), "extra": {f"{NODES}/node2/meminfo": "Node 2 MemTotal: 0 kB\n"}},
            4,
            None,
        ),
    ],
    ids=["a remainder", "a node without memory"],
)
def test_a_total_that_the_kernel_was_booted_with_asks_for_no_other_reboot(
    tmp_path: Path, shape: Dict[str, Any], total: int, shares: Any
) -> None:
    line = f"hugepagesz=1G hugepages={total}"
    extra = {"/etc/default/grub": f'GRUB_CMDLINE_LINUX_DEFAULT=""\nGRUB_CMDLINE_LINUX="{line}"\n'}
    host = machine(tmp_path, command_line=f"ro {line}", **{**shape, "extra": {**shape.get("extra", {}), **extra}})
    # One page got lost after the boot: an attempt is due, and no reboot would bring more than the last one did.
    for node, count in (shares or {0: 2, 1: 2}).items():
        set_pool(host, node, total=count - (node == 0), free=count - (node == 0), size_kb=1048576)
    declared = {"pools": [{"size": "1G", "per_node": {str(n): count for n, count in (shares or {0: 2, 1: 2}).items()}}]}
    assert run(host, check_mode=True, **declared).remaining.needs == ()
    outcome = run(host, **declared)
    assert outcome.error is None
    assert outcome.remaining.status == "in_sync"


def test_gigantic_pages_are_right_after_the_reboot(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, **GIGANTIC)
    (tmp_path / "proc/cmdline").write_text("ro hugepagesz=1G hugepages=0:1,1:2\n")
    set_pool(host, 0, total=1, free=1, size_kb=1048576)
    set_pool(host, 1, total=2, free=2, size_kb=1048576)
    outcome = run(host, **GIGANTIC)
    assert (outcome.status, outcome.changes) == ("in_sync", ())


def test_a_reboot_that_gave_fewer_gigantic_pages_is_no_reason_for_another(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, **GIGANTIC)
    (tmp_path / "proc/cmdline").write_text("ro hugepagesz=1G hugepages=0:1,1:2\n")
    set_pool(host, 0, total=1, free=1, size_kb=1048576)
    assert rows(run(host, check_mode=True, **GIGANTIC)) == {"node1 hugepages_1G effective": (0, 2)}


def test_without_permanent_gigantic_pages_are_tried_at_run_time(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host, permanent=False, **GIGANTIC)
    assert rows(outcome) == {"node0 hugepages_1G effective": (0, 1), "node1 hugepages_1G effective": (0, 2)}
    assert (pages(host, 0, 1048576), pages(host, 1, 1048576)) == (1, 2)


def test_gigantic_pages_are_given_up_now(tmp_path: Path) -> None:
    host = machine(tmp_path)
    set_pool(host, 0, total=3, free=3, size_kb=1048576)
    run(host, pools=[{"size": "1G", "per_node": {"0": 1, "1": 0}}])
    assert pages(host, 0, 1048576) == 1


def test_an_old_kernel_gets_the_total_where_it_comes_to_the_same(tmp_path: Path) -> None:
    host = machine(tmp_path, kernel="5.15.0-100-generic")
    run(host, pools=[{"size": "1G", "pages": 4}])
    assert "hugepagesz=1G hugepages=4 " in host.files.read("/boot/grub/grub.cfg")


def test_a_failing_boot_loader_gets_its_old_files_back(tmp_path: Path) -> None:
    host = machine(tmp_path)
    host.commands.programs["update-grub"] = lambda argv: Completed(1, "", "no space left\n")
    outcome = run(host, **GIGANTIC)
    assert not host.files.exists(DROP_IN)
    assert outcome.changes == ()
    assert str(outcome.error) == (
        "Cannot generate the boot menu with update-grub: exit status 1: no space left. "
        f"{DROP_IN} is again as it was before this step."
    )


def test_a_menu_that_ignores_the_drop_in_is_a_failure(tmp_path: Path) -> None:
    host = machine(tmp_path)
    host.commands.programs["update-grub"] = lambda argv: Completed(0, "", "")
    outcome = run(host, **GIGANTIC)
    assert outcome.error is not None
    assert "the entry that boots by default lacks hugepagesz=1G hugepages=0:1,1:2" in str(outcome.error)
    assert not host.files.exists(DROP_IN)


def test_undeclared_sizes_leave_our_files_but_not_the_running_system(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, transparent={"enabled": "never"}, **EVEN)
    outcome = run(host, transparent={"enabled": "never"})
    assert rows(outcome)["node0 hugepages_2M boot"] == (512, 0)
    assert "nr_hugepages" not in host.files.read(TMPFILES)
    assert pages(host, 0) == 512


def test_transparent_hugepages_are_set_now_and_at_boot(tmp_path: Path) -> None:
    host = machine(tmp_path)
    declared = {
        "enabled": "madvise",
        "defrag": "defer+madvise",
        "khugepaged": {"max_ptes_none": 0, "defrag": False},
        "sizes": [{"size": "64K", "enabled": "inherit"}],
    }
    outcome = run(host, transparent=declared)
    assert outcome.error is None
    assert host.files.read(f"{THP}/enabled") == "always [madvise] never\n"
    assert host.files.read(f"{THP}/hugepages-64kB/enabled") == "always [inherit] madvise never\n"
    assert host.files.read(f"{THP}/khugepaged/defrag") == "0\n"
    text = host.files.read(TMPFILES)
    for path, value in (
        ("enabled", "madvise"),
        ("khugepaged/max_ptes_none", "0"),
        ("hugepages-64kB/enabled", "inherit"),
    ):
        assert f"w! {THP}/{path} - - - - {value}\n" in text
    assert outcome.effective["transparent"]["transparent_hugepages"]["enabled"] == "madvise"
    assert outcome.boot["transparent"]["transparent_hugepages_64K"]["enabled"] == "inherit"


@pytest.mark.parametrize(
    ("shape", "declared", "reason"),
    [
        ({"thp": False}, {"enabled": "never"}, "this kernel was built without them"),
        ({"mthp": ()}, {"sizes": [{"size": "64K", "enabled": "never"}]}, "this kernel does not have the setting"),
    ],
)
def test_a_setting_that_is_not_there_is_unmanaged(
    tmp_path: Path, shape: Dict[str, Any], declared: Dict[str, Any], reason: str
) -> None:
    host = machine(tmp_path, **shape)
    outcome = run(host, transparent=declared)
    assert [entry.reason for entry in outcome.remaining.unmanaged] == [reason]
    with pytest.raises(DeclarationError, match=reason):
        run(host, strict=True, transparent=declared)


def test_without_immediate_the_running_system_stays_as_it_is(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, immediate=False, **EVEN)
    assert pages(host, 0) == 0
    assert host.files.exists(TMPFILES)


def test_without_permanent_no_file_is_written_outside_our_record(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, permanent=False, **EVEN)
    assert pages(host, 0) == 512
    assert not host.files.exists(TMPFILES)
    assert not host.files.exists("/etc/gpufleet")


@pytest.mark.parametrize(
    "declared",
    [{**UNEVEN, "transparent": {"enabled": "never"}}, GIGANTIC, {"pools": [*EVEN["pools"], *GIGANTIC["pools"]]}],
    ids=["pools and policy", "gigantic", "both"],
)
@pytest.mark.parametrize("verb", ["present", "absent"])
def test_a_run_that_is_killed_anywhere_is_finished_by_the_next(
    tmp_path: Path, declared: Dict[str, Any], verb: str
) -> None:
    def fresh(name: str) -> FakeHost:
        (tmp_path / name).mkdir()
        host = machine(tmp_path / name)
        if verb == "absent":
            run(host, **declared)
            host.files.log.clear()
        return host

    def end_of(name: str) -> Dict[str, Any]:
        end: Dict[str, Any] = dict(snapshot(tmp_path / name))
        record = end.pop(RECORD.lstrip("/"), None)
        # Which of our own folders were missing depends on where the first run ended; they go in any case.
        return {**end, "values": record and json.loads(record[2])["values"]}

    reference = fresh("reference")
    run(reference, state=verb, **declared)
    effects = len(reference.files.log)
    goal = end_of("reference")
    assert effects > 3
    for point in range(1, effects + 1):
        host = fresh(str(point))
        known = host.files.read_optional(TMPFILES), host.files.read_optional(DROP_IN)
        host.files.kill_at = point
        with pytest.raises(Killed):
            run(host, state=verb, **declared)
        host.files.kill_at = None
        for path, before in zip((TMPFILES, DROP_IN), known):
            assert host.files.read_optional(path) in (before, reference.files.read_optional(path))
        outcome = run(host, state=verb, **declared)
        assert outcome.error is None
        assert end_of(str(point)) == goal, point


def test_eight_nodes_are_looked_at_quickly_and_each_file_once(tmp_path: Path) -> None:
    host = machine(tmp_path, nodes=range(8), memory_mib=262144)
    declared = {
        "pools": [{"size": "2M", "pages": 8192}, {"size": "1G", "pages": 64}],
        "transparent": {"enabled": "madvise", "defrag": "madvise", "sizes": [{"size": "64K", "enabled": "never"}]},
    }
    run(host, **declared)
    host.files.reads.clear()
    assess(CONCERN, params(**declared), host)
    assert sorted(host.files.reads) == sorted(set(host.files.reads))
    _state, plan = assess(CONCERN, params(**declared), host)
    assert plan.steps == ()
    assert quickest(lambda: assess(CONCERN, params(**declared), host)) < 0.05 * PATIENCE


def test_the_record_holds_what_was_there_first(tmp_path: Path) -> None:
    host = machine(tmp_path)
    set_pool(host, 0, total=5, free=5)
    run(host, **EVEN)
    run(host, pools=[{"size": "2M", "pages": 8}])
    found = json.loads(host.files.read(RECORD))["values"]
    assert {"identity": pool_path(0), "setting": "hugepages_2M", "effective": 5, "boot": 0} in found
