# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is saved before the first change, and how a machine is restored."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import baseline
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, NotPermitted
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import temporary_of
from ansible_collections.gpufleet.node.tests.unit.core.tunables_concern import ABSENT, CONF, PRESENT, TUNABLES, run
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, KernelFiles, Killed, build, snapshot

RECORD = baseline.path_of("tunables")


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return build(tmp_path, {TUNABLES[0]: "1\n", TUNABLES[1]: "2\n", "/etc/keep": "", "/var/lib/keep": ""})


def test_the_values_found_are_written_before_the_first_change(host: FakeHost) -> None:
    run(host)
    kinds = [(kind, path) for kind, path, _value in host.files.log]
    assert kinds[:2] == [("replace", RECORD), ("move", host.files.locate(RECORD))]
    assert kinds[2] == ("replace", CONF)


def test_the_values_found_are_on_disk_before_the_first_change(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: List[str] = []
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    at_first_change: List[List[str]] = []

    def note_synced(files: KernelFiles, match: re.Match[str], value: str) -> None:
        at_first_change.append(list(synced))
        files.store(match[0], value)

    host.files.rules.append((TUNABLES[0], note_synced))
    monkeypatch.setattr(os, "fsync", watch)
    run(host)
    folder = host.files.locate(baseline.FOLDER)
    file, directory = at_first_change[0][:2]
    assert os.path.dirname(file) == folder
    assert directory == folder


def test_the_record_names_identity_setting_and_both_values_and_is_for_root_only(host: FakeHost) -> None:
    run(host)
    document = json.loads(host.files.read(RECORD))
    assert document["schema"] == 1
    assert {"identity": TUNABLES[0], "setting": "value", "effective": "1", "boot": None} in document["values"]
    assert os.stat(host.files.locate(RECORD)).st_mode & 0o777 == 0o600


def test_what_was_found_first_is_never_overwritten(host: FakeHost) -> None:
    run(host)
    first = host.files.read(RECORD)
    run(host, {**PRESENT, "value": "8"})
    host.files.store(TUNABLES[0], "5")
    run(host, {**PRESENT, "value": "9"})
    assert host.files.read(RECORD) == first
    run(host, ABSENT)
    assert [host.files.read(path) for path in TUNABLES] == ["1\n", "2\n"]


def test_a_setting_that_was_right_is_saved_when_it_is_first_changed(host: FakeHost) -> None:
    host.files.store(TUNABLES[0], "7")
    run(host, {**PRESENT, "permanent": False})
    assert set(baseline.load(host.files, "tunables").values) == {(TUNABLES[1], "value")}
    run(host, {**PRESENT, "permanent": False, "value": "8"})
    found = baseline.load(host.files, "tunables").values
    assert {path: found[(path, "value")].effective for path in TUNABLES} == {TUNABLES[0]: "7", TUNABLES[1]: "2"}


def test_a_run_that_changes_nothing_leaves_no_record(host: FakeHost) -> None:
    for path in TUNABLES:
        host.files.store(path, "7")
    run(host, {**PRESENT, "permanent": False})
    assert not host.files.exists(baseline.FOLDER)


def refuse(files: KernelFiles, match: re.Match[str], value: str) -> None:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), match[0])


def test_a_run_that_failed_before_its_first_change_leaves_to_others_what_they_change_later(host: FakeHost) -> None:
    host.files.rules.append((TUNABLES[0], refuse))
    assert run(host, {**PRESENT, "permanent": False}).error is not None
    assert not host.files.exists("/var/lib/gpufleet")
    host.files.rules.clear()
    host.files.store(TUNABLES[0], "5")
    assert run(host, ABSENT).as_dict()["changed"] is False
    assert host.files.read(TUNABLES[0]) == "5\n"


def test_a_run_that_failed_in_the_middle_keeps_what_it_changed_alone(host: FakeHost) -> None:
    host.files.rules.append((TUNABLES[1], refuse))
    assert run(host, {**PRESENT, "permanent": False}).error is not None
    assert set(baseline.load(host.files, "tunables").values) == {(TUNABLES[0], "value")}
    host.files.store(TUNABLES[1], "6")
    run(host, ABSENT)
    assert [host.files.read(path) for path in TUNABLES] == ["1\n", "6\n"]


def test_what_a_killed_run_had_begun_is_known_as_such_until_a_run_ends(host: FakeHost) -> None:
    host.files.kill_at = 3
    with pytest.raises(Killed):
        run(host, {**PRESENT, "permanent": False})
    host.files.kill_at = None
    known = baseline.load(host.files, "tunables")
    assert known.begun == known.values.keys() == {(TUNABLES[0], "value"), (TUNABLES[1], "value")}
    host.files.rules.append((TUNABLES[1], refuse))
    assert run(host, {**PRESENT, "permanent": False}).error is not None
    known = baseline.load(host.files, "tunables")
    assert (set(known.values), known.begun) == ({(TUNABLES[0], "value")}, frozenset())


def test_where_nobody_can_look_after_a_failure_all_that_was_tried_is_kept(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(files: KernelFiles, match: re.Match[str], value: str) -> None:
        Path(files.locate(TUNABLES[0])).unlink()
        raise OSError(errno.EIO, os.strerror(errno.EIO), match[0])

    host.files.rules.append((TUNABLES[0], unreadable))
    assert run(host, {**PRESENT, "permanent": False}).error is not None
    assert set(baseline.load(host.files, "tunables").values) == {(TUNABLES[0], "value")}


def test_what_a_killed_run_left_of_its_first_record_goes_with_absent(host: FakeHost, tmp_path: Path) -> None:
    found = snapshot(tmp_path)
    build(tmp_path, {temporary_of(RECORD): '{"sche'})
    run(host, ABSENT)
    assert snapshot(tmp_path) == found


def test_absent_gives_everything_back_and_leaves_nothing_of_ours(host: FakeHost, tmp_path: Path) -> None:
    found = snapshot(tmp_path)
    run(host)
    assert snapshot(tmp_path) != found
    result = run(host, ABSENT).as_dict()
    assert result["changed"] is True
    assert snapshot(tmp_path) == found


def test_absent_twice_changes_nothing_the_second_time(host: FakeHost, tmp_path: Path) -> None:
    run(host)
    run(host, ABSENT)
    found = snapshot(tmp_path)
    result = run(host, ABSENT).as_dict()
    assert (result["changed"], result["status"]) == (False, "in_sync")
    assert snapshot(tmp_path) == found


def test_absent_on_a_machine_that_never_was_ours_changes_nothing(host: FakeHost, tmp_path: Path) -> None:
    found = snapshot(tmp_path)
    assert run(host, ABSENT).as_dict()["changed"] is False
    assert snapshot(tmp_path) == found


def test_absent_in_check_mode_keeps_the_record(host: FakeHost, tmp_path: Path) -> None:
    run(host)
    found = snapshot(tmp_path, leave_out=())
    assert run(host, ABSENT, check_mode=True).as_dict()["changed"] is True
    assert snapshot(tmp_path, leave_out=()) == found


def test_a_folder_that_somebody_else_uses_by_now_stays(host: FakeHost, tmp_path: Path) -> None:
    run(host)
    host.files.replace("/etc/tunables.d/50-other.conf", "theirs\n")
    run(host, ABSENT)
    assert host.files.names("/etc/tunables.d") == ("50-other.conf",)
    assert not host.files.exists("/etc/gpufleet")
    assert not host.files.exists("/var/lib/gpufleet")


def test_the_record_of_another_concern_stays(host: FakeHost) -> None:
    run(host)
    host.files.replace(baseline.path_of("other"), '{"schema": 1, "values": [], "folders": []}\n')
    run(host, ABSENT)
    assert host.files.names(baseline.FOLDER) == ("other.json",)


def test_a_value_that_could_not_be_restored_keeps_the_record(host: FakeHost) -> None:
    run(host)

    def ignore(files: KernelFiles, match: re.Match[str], value: str) -> None:
        return None

    host.files.rules.append((TUNABLES[1], ignore))
    first = run(host, ABSENT).as_dict()
    assert first["failure"]["code"] == "not_in_effect"
    assert host.files.exists(RECORD)
    host.files.rules.clear()
    assert "failed" not in run(host, ABSENT).as_dict()
    assert host.files.read(TUNABLES[1]) == "2\n"
    assert not host.files.exists(RECORD)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": 1}',
        '{"values": [{}], "folders": []}',
        '{"values": 3, "folders": []}',
        '{"schema": 1, "values": [], "folders": [5]}',
        '{"schema": 1, "values": [{"identity": 5, "setting": "a", "effective": 1, "boot": 1}], "folders": []}',
        '{"schema": 1, "values": [{"identity": "a", "setting": null, "effective": 1, "boot": 1}], "folders": []}',
    ],
)
@pytest.mark.parametrize("params", [PRESENT, ABSENT])
def test_a_damaged_record_stops_the_run_before_any_change(
    host: FakeHost, tmp_path: Path, text: str, params: dict[str, object]
) -> None:
    build(tmp_path, {RECORD: text})
    found = snapshot(tmp_path)
    with pytest.raises(CannotLook, match=re.escape(RECORD)) as caught:
        run(host, params)
    assert "the file is damaged" in str(caught.value)
    assert "Restore it from a backup, or remove it to give up restoring." in str(caught.value)
    assert snapshot(tmp_path) == found


def test_a_record_that_cannot_be_written_stops_the_run_before_any_change(host: FakeHost, tmp_path: Path) -> None:
    host.files.read_only.append("/var")
    found = snapshot(tmp_path)
    with pytest.raises(NotPermitted, match=r"Cannot write .*tunables.json: .* is on a read-only file system"):
        run(host)
    assert snapshot(tmp_path) == found


def test_the_folders_of_others_are_removed_while_the_record_still_knows_them(host: FakeHost) -> None:
    run(host)
    host.files.remove(CONF)
    order: List[str] = []
    remove, remove_folder = host.files.remove, host.files.remove_folder

    def watch_remove(path: str) -> None:
        order.append(path)
        remove(path)

    def watch_folder(path: str) -> None:
        order.append(path)
        remove_folder(path)

    host.files.remove = watch_remove  # type: ignore[method-assign]
    host.files.remove_folder = watch_folder  # type: ignore[method-assign]
    baseline.drop(host.files, "tunables")
    assert order.index("/etc/tunables.d") < order.index(RECORD)
