# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import NotInEffect
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import BOOT, EFFECTIVE
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_scheduler.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.nvme_scheduler.nvme_machine import (
    MODULES,
    RULES,
    Drive,
    machine,
    params,
    run,
    tunables_written,
    value,
)
from ansible_collections.gpufleet.node.tests.unit.support import PATIENCE, Killed, quickest, snapshot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ALL: Dict[str, Any] = {
    "scheduler": "mq-deadline",
    "nr_requests": 512,
    "read_ahead_kb": 4096,
    "rq_affinity": 2,
    "nomerges": 2,
    "wbt_lat_usec": 0,
    "io_timeout_ms": 60000,
    "max_sectors_kb": 512,
}
FILES = {"io_timeout_ms": "io_timeout"}


def test_one_call_converges_every_disk_and_every_setting(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0), Drive(1), Drive(10)])
    outcome = run(host, ALL)
    assert outcome.status == "drifted"
    for device in ("nvme0n1", "nvme1n1", "nvme10n1"):
        for setting, wanted in ALL.items():
            assert value(host, device, FILES.get(setting, setting)) == str(wanted), (device, setting)
    assert {change.scope for change in outcome.changes} == {EFFECTIVE, BOOT}


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0), Drive(1, paths=2)])
    run(host, ALL)
    host.files.log.clear()
    outcome = run(host, ALL)
    assert (outcome.status, outcome.changes, host.files.log) == ("in_sync", (), [])


def test_check_mode_predicts_what_a_run_then_does(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0, nr_requests=700), Drive(1, paths=2)])
    before = snapshot(tmp_path)
    predicted = run(host, {"scheduler": "mq-deadline"}, check_mode=True)
    assert snapshot(tmp_path) == before
    assert predicted.changes == run(host, {"scheduler": "mq-deadline"}).changes


def test_the_first_entry_that_matches_wins_and_the_rest_goes_to_the_others(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0, serial="SPECIAL"), Drive(1), Drive(2, model="INTEL SSDPE2KX"), Drive(3)])
    run(
        host,
        {"match": {"serial": "SPECIAL"}},
        {"match": {"model": "INTEL*"}, "read_ahead_kb": 256},
        {"match": {"pci_address": "0000:43:00.0"}, "read_ahead_kb": 512},
        {"read_ahead_kb": 1024},
    )
    assert [value(host, f"nvme{number}n1", "read_ahead_kb") for number in range(4)] == ["128", "1024", "256", "512"]


def test_the_scheduler_comes_before_nr_requests_which_is_written_again_though_it_was_right(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0, nr_requests=512)])
    outcome = run(host, {"nr_requests": 512, "scheduler": "mq-deadline"})
    assert tunables_written(host) == [("nvme0n1", "scheduler", "mq-deadline"), ("nvme0n1", "nr_requests", "512")]
    assert value(host, "nvme0n1", "nr_requests") == "512"
    assert [change.setting for change in outcome.changes if change.scope == EFFECTIVE] == ["scheduler"]


def test_what_a_new_scheduler_resets_is_shown_as_a_change(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0, nr_requests=700, scheduler="[none] bfq")])
    outcome = run(host, {"scheduler": "bfq"})
    made = {change.setting: change.after for change in outcome.changes if change.scope == EFFECTIVE}
    assert made == {"scheduler": "bfq", "nr_requests": 256, "wbt_lat_usec": 0}
    assert (value(host, "nvme0n1", "nr_requests"), value(host, "nvme0n1", "wbt_lat_usec")) == ("256", "0")


def test_a_scheduler_that_is_a_module_is_loaded_now_and_at_boot(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0)])
    run(host, {"scheduler": "kyber"})
    assert value(host, "nvme0n1", "scheduler") == "kyber"
    assert host.files.read(MODULES).splitlines()[1:] == ["kyber-iosched"]
    run(host, {"scheduler": "bfq"})
    assert host.files.read(MODULES).splitlines()[1:] == ["bfq"]
    run(host, {"scheduler": "none"})
    assert not host.files.exists(MODULES)


def test_a_scheduler_that_is_built_in_needs_no_module_at_boot(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0)])
    run(host, {"scheduler": "mq-deadline"})
    assert not host.files.exists(MODULES)


def test_a_native_multipath_disk_gets_its_read_ahead_and_its_hidden_paths_get_the_queue_settings(
    tmp_path: Path,
) -> None:
    host = machine(tmp_path, [Drive(0, paths=2)])
    outcome = run(host, {"scheduler": "mq-deadline", "nr_requests": 64, "read_ahead_kb": 512, "max_sectors_kb": 1024})
    assert outcome.remaining.unmanaged == ()
    for hidden in ("nvme0c0n1", "nvme0c100n1"):
        assert (value(host, hidden, "scheduler"), value(host, hidden, "nr_requests")) == ("mq-deadline", "64")
        assert (value(host, hidden, "read_ahead_kb"), value(host, hidden, "max_sectors_kb")) == ("128", "1024")
    assert (value(host, "nvme0n1", "read_ahead_kb"), value(host, "nvme0n1", "max_sectors_kb")) == ("512", "1024")
    assert value(host, "nvme0n1", "scheduler") == "none"


@pytest.mark.parametrize(
    "match",
    [
        {"name": "nvme0n1"},
        {"name": "nvme0c100n1"},
        {"name": "nvme0c*n1"},
        {"serial": "S0000"},
        {"pci_address": "0000:40:01.0"},
    ],
)
def test_a_multipath_disk_and_its_paths_are_won_together_by_any_of_their_keys(
    tmp_path: Path, match: Dict[str, str]
) -> None:
    host = machine(tmp_path, [Drive(0, paths=2), Drive(1)])
    run(host, {"match": match, "scheduler": "mq-deadline", "read_ahead_kb": 4})
    assert [value(host, name, "scheduler") for name in ("nvme0c0n1", "nvme0c100n1")] == ["mq-deadline"] * 2
    assert value(host, "nvme0n1", "read_ahead_kb") == "4"
    assert value(host, "nvme1n1", "scheduler") == "none"
    assert run(host, {"match": match, "scheduler": "mq-deadline", "read_ahead_kb": 4}).changes == ()


def stacked(name: str, **more: str) -> Dict[str, str]:
    files = {
        f"/sys/block/{name}/queue/scheduler": "none\n",
        f"/sys/block/{name}/queue/read_ahead_kb": "128\n",
        f"/sys/block/{name}/queue/max_sectors_kb": "128\n",
        f"/sys/block/{name}/queue/max_hw_sectors_kb": "2048\n",
    }
    return {**files, **{f"/sys/block/{name}/{path.replace('__', '/')}": text for path, text in more.items()}}


def test_md_and_dm_devices_are_left_alone_unless_a_name_says_them(tmp_path: Path) -> None:
    more = {**stacked("md127"), **stacked("dm-0", dm__name="vg-data\n", dm__uuid="LVM-x\n"), **stacked("sda")}
    host = machine(tmp_path, [Drive(0)], more)
    run(host, {"match": {"name": "*"}, "read_ahead_kb": 256})
    assert [value(host, name, "read_ahead_kb") for name in ("nvme0n1", "md127", "dm-0")] == ["256", "128", "128"]
    run(host, {"match": {"name": ["md*", "vg-data", "sda"]}, "read_ahead_kb": 512})
    assert [value(host, name, "read_ahead_kb") for name in ("nvme0n1", "md127", "dm-0", "sda")] == [
        "256",
        "512",
        "512",
        "128",
    ]
    assert run(host, {"match": {"name": ["md*", "vg-data"]}, "read_ahead_kb": 512}, check_mode=True).status == "drifted"


def test_what_a_device_without_a_request_queue_cannot_have_is_listed_with_the_reason(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0, wbt=None)], stacked("md0"))
    outcome = run(
        host, {"match": {"name": ["md0", "nvme*"]}, "scheduler": "mq-deadline", "wbt_lat_usec": 0, "read_ahead_kb": 256}
    )
    assert [entry.as_dict() for entry in outcome.remaining.unmanaged] == [
        {
            "object": "md0",
            "setting": "scheduler",
            "reason": "it has no request queue of its own; declare it for the disks below it",
        },
        {
            "object": "md0",
            "setting": "wbt_lat_usec",
            "reason": "it has no request queue of its own; declare it for the disks below it",
        },
        {"object": "nvme0n1", "setting": "wbt_lat_usec", "reason": "this kernel has no queue/wbt_lat_usec for it"},
    ]
    assert value(host, "md0", "read_ahead_kb") == "256"


def test_immediate_alone_leaves_no_file_and_permanent_alone_changes_no_queue(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0)])
    run(host, {"read_ahead_kb": 256}, permanent=False)
    assert value(host, "nvme0n1", "read_ahead_kb") == "256"
    assert not host.files.exists(RULES)
    run(host, {"read_ahead_kb": 512}, immediate=False)
    assert value(host, "nvme0n1", "read_ahead_kb") == "256"
    assert 'ATTR{queue/read_ahead_kb}="512"' in host.files.read(RULES)


def test_the_result_tells_each_queue_in_effect_and_at_boot(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0)])
    outcome = run(host, {"read_ahead_kb": 256, "nomerges": 2})
    assert outcome.effective == {"queues": {"nvme0n1": {"read_ahead_kb": 256, "nomerges": 2}}}
    assert outcome.boot == {"queues": {"nvme0n1": {"read_ahead_kb": 256, "nomerges": 2}}}


def test_disks_that_share_a_serial_are_told_apart(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0, serial="SAME"), Drive(1, serial="SAME", read_ahead_kb=64)])
    before = snapshot(tmp_path)
    run(host, {"read_ahead_kb": 256})
    run(host, state="absent")
    assert snapshot(tmp_path) == before


def test_write_back_throttling_that_was_never_set_up_can_be_declared(tmp_path: Path, monkeypatch: Any) -> None:
    host = machine(tmp_path, [Drive(0, wbt="")])
    outcome = run(host, {"wbt_lat_usec": 75000})
    assert [(c.before, c.after) for c in outcome.changes if c.setting == "wbt_lat_usec" and c.scope == EFFECTIVE] == [
        (None, 75000)
    ]
    assert value(host, "nvme0n1", "wbt_lat_usec") == "75000"


def test_a_value_that_the_kernel_rounds_is_a_failure_that_names_both(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0)])
    host.files.rules.append((r".*/read_ahead_kb", lambda files, path, _text: files.store(path.group(), "64")))
    with pytest.raises(NotInEffect) as caught:
        run(host, {"read_ahead_kb": 100})
    assert (caught.value.object, caught.value.found, caught.value.wanted) == ("nvme0n1", 64, 100)


DRIVES = [
    Drive(0, nr_requests=700, scheduler="[none] mq-deadline kyber bfq"),
    Drive(1, paths=2, scheduler="none [mq-deadline] kyber bfq", nr_requests=99, wbt="75"),
    Drive(2, scheduler="none mq-deadline kyber [bfq]", nr_requests=31, tags=127, wbt="0"),
    Drive(3, wbt=None, tags=31, nr_requests=31, read_ahead_kb=0),
]
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "scheduler": st.sampled_from(["none", "mq-deadline"]),
        "nr_requests": st.sampled_from([4, 31]),
        "read_ahead_kb": st.sampled_from([0, 128, 4096]),
        "rq_affinity": st.sampled_from([0, 1, 2]),
        "nomerges": st.sampled_from([0, 1, 2]),
        "wbt_lat_usec": st.sampled_from([0, 2000, 75]),
        "io_timeout_ms": st.sampled_from([20, 30000, 60000]),
        "max_sectors_kb": st.sampled_from([4, 128, 2048]),
        "match": st.sampled_from([{}, {"name": "nvme[01]n*"}, {"serial": "S0002"}, {"model": "SAMSUNG*"}]),
    },
).map(lambda entry: {**entry, "optional": True})
RUNS = st.lists(
    st.tuples(st.lists(ENTRY, max_size=3), st.booleans(), st.booleans()),
    min_size=1,
    max_size=3,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(runs=RUNS)
def test_absent_after_present_gives_the_tree_back_byte_for_byte(runs: List[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        host = machine(root, DRIVES, stacked("md0"))
        before = snapshot(root)
        for entries, immediate, permanent in runs:
            run(host, *entries, immediate=immediate, permanent=permanent)
        run(host, state="absent")
        assert snapshot(root) == before
        assert run(host, state="absent").changes == ()


def test_absent_names_disks_that_have_gone_and_restores_the_others(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0), Drive(1)])
    run(host, {"read_ahead_kb": 256})
    (tmp_path / "sys/block/nvme1n1").unlink()
    outcome = run(host, state="absent")
    assert value(host, "nvme0n1", "read_ahead_kb") == "128"
    assert not host.files.exists(RULES)
    assert [entry.as_dict() for entry in outcome.remaining.unmanaged] == [
        {
            "object": "serial:S0001/ns1",
            "setting": "read_ahead_kb",
            "reason": "the drive is missing, and its running values with it",
        }
    ]
    assert run(host, state="absent").remaining.unmanaged == ()


def test_absent_without_immediate_leaves_the_running_queues_alone(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0)])
    run(host, {"read_ahead_kb": 256, "scheduler": "kyber"})
    run(host, state="absent", immediate=False)
    assert (value(host, "nvme0n1", "read_ahead_kb"), value(host, "nvme0n1", "scheduler")) == ("256", "kyber")
    assert not host.files.exists(RULES)
    assert not host.files.exists(MODULES)
    run(host, state="absent")
    assert (value(host, "nvme0n1", "read_ahead_kb"), value(host, "nvme0n1", "scheduler")) == ("128", "none")


def test_absent_without_permanent_leaves_our_files_alone(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0)])
    run(host, {"read_ahead_kb": 256, "scheduler": "kyber"})
    files = {path: host.files.read(path) for path in (RULES, MODULES)}
    run(host, state="absent", permanent=False)
    assert (value(host, "nvme0n1", "read_ahead_kb"), value(host, "nvme0n1", "scheduler")) == ("128", "none")
    assert {path: host.files.read(path) for path in (RULES, MODULES)} == files


@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_run_that_is_killed_anywhere_leaves_whole_files_and_the_next_one_converges(
    tmp_path: Path, state: str
) -> None:
    modules = "[none] mq-deadline kyber"
    drives = [Drive(0, scheduler=modules, nr_requests=700), Drive(1, scheduler=modules, paths=2)]
    first = {"scheduler": "none", "read_ahead_kb": 256}
    second = {"scheduler": "kyber", "nr_requests": 64, "read_ahead_kb": 512}
    texts = set()
    reference = machine(tmp_path / "reference", drives)
    for queue in (first, second):
        run(reference, queue)
        texts.add(reference.files.read(RULES))
    ends = 0
    for point in range(1, 60):
        root = tmp_path / f"killed{point}"
        host = machine(root, drives)
        original = snapshot(root)
        run(host, first)
        host.files.log.clear()
        host.files.kill_at = point
        try:
            run(host, second, state=state)
        except Killed:
            ends += 1
        else:
            shutil.rmtree(root)
            break
        host.files.kill_at = None
        text = host.files.read_optional(RULES)
        assert text in texts or (text is None and state == "absent")
        run(host, second, state=state)
        if state == "absent":
            assert snapshot(root) == original
        else:
            assert run(host, second).changes == ()
            assert host.files.read(RULES) == reference.files.read(RULES)
            run(host, state="absent")
            assert snapshot(root) == original
        shutil.rmtree(root)
    assert ends >= 5


def test_a_look_at_64_disks_is_quick_and_reads_little(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(number) for number in range(64)])
    every = {**ALL, "match": {"model": "SAMSUNG*", "pci_address": "0000:*"}}
    run(host, every)
    host.files.reads.clear()
    wanted = params(every)
    _state, plan = assess(CONCERN, wanted, host)
    assert plan.steps == ()
    of_disks = [path for path in host.files.reads if path.startswith("/sys/")]
    assert len(of_disks) <= 12 * 64
    assert quickest(lambda: assess(CONCERN, wanted, host)) < 0.05 * PATIENCE
