# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``state: absent`` gives back what was found, byte for byte."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any, Dict, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import InUse
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.hugepages.concern import CONCERN
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.concerns.hugepages.hugepages_machine import (
    DROP_IN,
    RECORD,
    TMPFILES,
    machine,
    pages,
    params,
    pool_path,
    set_pool,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, Killed, snapshot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.once

counts = st.integers(min_value=0, max_value=2000)
few = st.integers(min_value=0, max_value=8)


def pool(size: str, numbers: Any) -> Any:
    return st.one_of(
        st.builds(lambda total: {"size": size, "pages": total}, numbers),
        st.builds(lambda first, second: {"size": size, "per_node": {"0": first, "1": second}}, numbers, numbers),
        st.builds(lambda second: {"size": size, "per_node": {"1": second}}, numbers),
    )


policies = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.sampled_from(["always", "madvise", "never"]),
        "defrag": st.sampled_from(["always", "defer", "madvise", "never"]),
        "khugepaged": st.fixed_dictionaries(
            {}, optional={"defrag": st.booleans(), "max_ptes_none": st.integers(min_value=0, max_value=511)}
        ),
        "sizes": st.just([{"size": "64K", "enabled": "inherit"}]),
    },
)
declarations = st.fixed_dictionaries(
    {"pools": st.tuples(st.none() | pool("2M", counts), st.none() | pool("1G", few)), "transparent": policies},
    optional={"immediate": st.booleans()},
)


def run(host: FakeHost, **declared: Any) -> Any:
    return converge(CONCERN, params(**declared), host, check_mode=False)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    first=declarations,
    second=st.none() | declarations,
    there=st.tuples(counts, few),
    drop_ins=st.booleans(),
    folder=st.booleans(),
)
def test_absent_after_present_gives_the_tree_back_byte_for_byte(
    first: Dict[str, Any], second: Any, there: Any, drop_ins: bool, folder: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        extra = {"/etc/default/grub.d/kdump.cfg": 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX crashkernel=1G"\n'}
        host = machine(root, extra=extra if drop_ins else {})
        if folder:
            (root / "etc/tmpfiles.d").mkdir()
        set_pool(host, 0, total=there[0], free=there[0])
        set_pool(host, 1, total=there[1], free=there[1], size_kb=1048576)
        before = snapshot(root)
        for declared in (first, second):
            if declared:
                entries = [entry for entry in declared["pools"] if entry]
                outcome = run(host, **{**declared, "pools": entries})
                assert outcome.error is None, str(outcome.error)
        outcome = run(host, state="absent")
        assert outcome.error is None, str(outcome.error)
        assert outcome.remaining.status == "in_sync"
        assert snapshot(root) == before
        assert run(host, state="absent").changes == ()


def test_absent_without_a_record_removes_our_files_only(tmp_path: Path) -> None:
    host = machine(tmp_path)
    set_pool(host, 0, total=5, free=5)
    run(host, pools=[{"size": "2M", "pages": 8}, {"size": "1G", "pages": 2}])
    host.files.remove(RECORD)
    run(host, state="absent")
    assert not host.files.exists(TMPFILES)
    assert not host.files.exists(DROP_IN)
    assert "hugepages=" not in host.files.read("/boot/grub/grub.cfg")
    assert pages(host, 0) == 4


def test_absent_does_not_tear_pages_away_either(tmp_path: Path) -> None:
    host = machine(tmp_path, extra={"/proc/77/status": "Name:\tpostgres\nHugetlbPages:\t 16 kB\n"})
    run(host, pools=[{"size": "2M", "pages": 8}])
    host.files.store("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "1")
    with pytest.raises(InUse, match=r"3 of 4 pages are in use, by postgres \(pid 77, 0 MiB\)"):
        run(host, state="absent")
    assert host.files.exists(TMPFILES)


def test_gigantic_pages_that_came_at_boot_go_now_and_at_the_next_boot(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, pools=[{"size": "1G", "pages": 2}])
    (tmp_path / "proc/cmdline").write_text("ro hugepagesz=1G hugepages=0:1,1:1\n")
    for node in (0, 1):
        set_pool(host, node, total=1, free=1, size_kb=1048576)
    outcome = run(host, state="absent")
    assert outcome.error is None
    assert [pages(host, node, 1048576) for node in (0, 1)] == [0, 0]
    assert "hugepages=" not in host.files.read("/boot/grub/grub.cfg")
    assert not host.files.exists(RECORD)


def test_the_declaration_is_left_for_the_boot_service_and_goes_with_absent(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, pools=[{"size": "2M", "pages": 8}])
    document = json.loads(host.files.read("/etc/gpufleet/declared.d/hugepages.json"))
    assert document["declaration"]["pools"] == [{"size": "2M", "pages": 8}]
    run(host, state="absent")
    assert not host.files.exists("/etc/gpufleet")


@pytest.mark.parametrize(
    "declared",
    [
        {"permanent": False, "pools": [{"size": "2M", "pages": 64}, {"size": "1G", "per_node": {"0": 1, "1": 2}}]},
        {"pools": [{"size": "2M", "per_node": {"0": 24, "1": 40}}], "transparent": {"enabled": "never"}},
    ],
    ids=["now only", "at boot too"],
)
def test_a_recorded_machine_is_restored_byte_for_byte_too(tmp_path: Path, declared: Dict[str, Any]) -> None:
    # A plain recorded tree, where no command runs, so no 1G pages for the next boot.
    host = RecordedHost(str(nodetree.expand("hgx-2socket", tmp_path / "node")))
    before = snapshot(tmp_path / "node")
    outcome = converge(CONCERN, params(**declared), host, check_mode=False)
    assert outcome.error is None, str(outcome.error)
    assert (outcome.status, outcome.remaining.status) == ("drifted", "in_sync")
    found = [
        sum(int(host.files.read(pool_path(node, name=name))) for node in nodes)
        for nodes in ((0, 1), (None,))
        for name in ("nr", "free")
    ]
    assert found == [64, 64, 64, 64]
    assert host.files.exists(RECORD)
    assert converge(CONCERN, params(**declared), host, check_mode=False).changes == ()
    outcome = converge(CONCERN, params(state="absent"), host, check_mode=False)
    assert outcome.error is None, str(outcome.error)
    assert snapshot(tmp_path / "node") == before
    assert converge(CONCERN, params(state="absent"), host, check_mode=False).changes == ()


def test_absent_that_is_not_immediate_takes_nothing_from_the_running_system(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, pools=[{"size": "2M", "pages": 8}], transparent={"enabled": "never"})
    host.files.store(pool_path(0, name="free"), "1")
    outcome = run(host, state="absent", immediate=False)
    assert outcome.error is None
    assert [change.scope for change in outcome.changes].count("effective") == 0
    assert (pages(host, 0), pages(host, 1)) == (4, 4)
    assert "[never]" in host.files.read("/sys/kernel/mm/transparent_hugepage/enabled")
    assert not host.files.exists(TMPFILES)


def test_absent_that_is_not_permanent_leaves_our_files(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, pools=[{"size": "2M", "pages": 8}, {"size": "1G", "pages": 2}])
    files = [host.files.read(path) for path in (TMPFILES, DROP_IN)]
    outcome = run(host, state="absent", permanent=False)
    assert outcome.error is None
    assert (pages(host, 0), pages(host, 1)) == (0, 0)
    assert [host.files.read(path) for path in (TMPFILES, DROP_IN)] == files
    assert host.files.exists(RECORD)
    run(host, state="absent")
    assert not host.files.exists("/var/lib/gpufleet")


@pytest.mark.parametrize("permanent", [True, False])
def test_absent_does_not_touch_arguments_that_somebody_else_added_later(tmp_path: Path, permanent: bool) -> None:
    host = machine(tmp_path)
    run(host, permanent=False, pools=[{"size": "1G", "per_node": {"0": 1}}])
    grub = host.files.read("/etc/default/grub").replace('LINUX=""', 'LINUX="hugepagesz=1G hugepages=8"')
    host.files.replace("/etc/default/grub", grub)
    host.commands.run(["update-grub"])
    host.commands.calls.clear()
    outcome = run(host, state="absent", permanent=permanent)
    assert outcome.error is None
    assert host.commands.calls == []
    assert "hugepagesz=1G hugepages=8" in host.files.read("/boot/grub/grub.cfg")


ENTRY = "/boot/loader/entries/a.conf"


def machine_with_grubby(root: Path, options: str) -> FakeHost:
    """GRUB with loader entries, and a grubby that edits the only one as the real one does."""
    extra = {"/boot/grub2/grub.cfg": "blscfg\n", ENTRY: f"version 5\nlinux /vmlinuz\noptions {options}\n"}
    host = machine(root, grub=False, extra=extra)

    def grubby(argv: Sequence[str]) -> Completed:
        words = host.files.read(ENTRY).rpartition("options ")[2].split()
        for option, _equals, value in (word.partition("=") for word in argv[2:]):
            for word in value.split():
                words = [other for other in words if other != word]
            words += value.split() if option == "--args" else []
        host.files.replace(ENTRY, f"version 5\nlinux /vmlinuz\noptions {' '.join(words)}\n")
        return Completed(0, "", "")

    host.commands.programs["grubby"] = grubby
    return host


def test_arguments_that_no_file_of_ours_carries_are_recorded_and_restored(tmp_path: Path) -> None:
    host = machine_with_grubby(tmp_path, "ro quiet")
    before = snapshot(tmp_path)
    for total in (4, 6):
        outcome = run(host, immediate=False, pools=[{"size": "1G", "pages": total}])
        assert outcome.error is None
        assert f"hugepages=0:{total // 2},1:{total // 2}\n" in host.files.read(ENTRY)
        assert host.files.read(ENTRY).count("hugepagesz") == 1
    assert run(host, immediate=False, pools=[{"size": "1G", "pages": 6}]).changes == ()
    assert run(host, state="absent").error is None
    assert snapshot(tmp_path) == before


def test_arguments_that_were_there_first_are_not_ours_where_no_file_is(tmp_path: Path) -> None:
    host = machine_with_grubby(tmp_path, "ro hugepagesz=1G hugepages=4 quiet")
    outcome = run(host, immediate=False, pools=[{"size": "1G", "pages": 4}, {"size": "2M", "pages": 4}])
    assert outcome.error is None
    run(host, state="absent")
    assert host.commands.calls == []


def test_a_note_whose_arguments_somebody_took_away_goes_with_absent(tmp_path: Path) -> None:
    host = machine_with_grubby(tmp_path, "ro quiet")
    before = snapshot(tmp_path)
    run(host, immediate=False, pools=[{"size": "1G", "pages": 4}])
    host.files.replace(ENTRY, "version 5\nlinux /vmlinuz\noptions ro quiet\n")
    host.commands.calls.clear()
    assert run(host, state="absent").error is None
    assert host.commands.calls == []
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("verb", ["present", "absent"])
def test_arguments_that_no_file_of_ours_carries_survive_a_kill_anywhere(tmp_path: Path, verb: str) -> None:
    declared = {"immediate": False, "pools": [{"size": "1G", "pages": 6}]}
    for point in range(1, 20):
        (tmp_path / str(point)).mkdir()
        host = machine_with_grubby(tmp_path / str(point), "ro quiet")
        before = snapshot(tmp_path / str(point))
        run(host, immediate=False, pools=[{"size": "1G", "pages": 4}])
        host.files.log.clear()
        host.files.kill_at = point
        with contextlib.suppress(Killed):
            run(host, **(declared if verb == "present" else {"state": "absent"}))
        host.files.kill_at = None
        if verb == "present":
            assert run(host, **declared).error is None
            assert host.files.read(ENTRY).endswith("options ro quiet hugepagesz=1G hugepages=0:3,1:3\n")
        assert run(host, state="absent").error is None
        assert snapshot(tmp_path / str(point)) == before, point
