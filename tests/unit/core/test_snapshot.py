# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine as one look finds it: what is installed and configured is read once, what runs each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Files
from ansible_collections.gpufleet.node.plugins.module_utils._core.snapshot import once, snapshot
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.support import build

READS: Dict[str, Callable[[Files, str], Any]] = {
    "read": lambda files, path: files.read(path),
    "read_optional": lambda files, path: files.read_optional(path),
    "read_part": lambda files, path: files.read_part(path, 0, 9),
    "exists": lambda files, path: files.exists(path),
    "names": lambda files, path: files.names(path.rpartition("/")[0]),
    "modified": lambda files, path: files.modified(path),
    "resolve": lambda files, path: files.resolve(path),
}


@pytest.fixture
def host(tmp_path: Path) -> RecordedHost:
    build(tmp_path / "root", {"/etc/a/b": "first", "/proc/a/b": "first"})
    return RecordedHost(str(tmp_path / "root"))


def change(tmp_path: Path, path: str) -> None:
    there = tmp_path / "root" / path.lstrip("/")
    there.unlink()
    there.with_name("c").symlink_to("nowhere")
    there.symlink_to("c")


def answer(read: Callable[[Files, str], Any], files: Files, path: str) -> object:
    try:
        return read(files, path)
    except OSError as error:
        return error.errno


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_is_configured_is_read_once(host: RecordedHost, tmp_path: Path, read: Callable[[Files, str], Any]) -> None:
    files = snapshot(host).files
    first = answer(read, files, "/etc/a/b")
    change(tmp_path, "/etc/a/b")
    assert answer(read, files, "/etc/a/b") == first
    assert answer(read, snapshot(host).files, "/etc/a/b") == answer(read, host.files, "/etc/a/b") != first


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_the_kernel_says_is_asked_each_time(
    host: RecordedHost, tmp_path: Path, read: Callable[[Files, str], Any]
) -> None:
    files = snapshot(host).files
    first = answer(read, files, "/proc/a/b")
    change(tmp_path, "/proc/a/b")
    assert answer(read, files, "/proc/a/b") == answer(read, host.files, "/proc/a/b") != first


def test_what_is_missing_stays_missing(host: RecordedHost, tmp_path: Path) -> None:
    files = snapshot(host).files
    for _time in range(2):
        with pytest.raises(FileNotFoundError):
            files.read("/etc/a/new")
        assert (files.read_optional("/etc/a/new"), files.exists("/etc/a/new")) == (None, False)
        (tmp_path / "root/etc/a/new").write_text("new")


def test_a_snapshot_of_a_snapshot_is_the_same_and_the_rest_is_the_machine(host: RecordedHost) -> None:
    taken = snapshot(host)
    assert snapshot(taken) is taken
    assert taken.commands is host.commands
    assert taken.files.mode("/etc/a/b") == host.files.mode("/etc/a/b")


def test_what_is_made_of_files_is_made_once_in_a_look_or_fails_once(host: RecordedHost) -> None:
    made: List[Files] = []

    def make(files: Files) -> List[str]:
        made.append(files)
        return [files.read("/etc/a/b")]

    def fail(files: Files) -> None:
        made.append(files)
        raise PermissionError(13, "Permission denied", "/etc/a/b")

    taken = snapshot(host).files
    assert once(taken, make) is once(taken, make)
    for _time in range(2):
        with pytest.raises(PermissionError):
            once(taken, fail)
    assert made == [taken, taken]
    assert once(host.files, make) is not once(host.files, make)
