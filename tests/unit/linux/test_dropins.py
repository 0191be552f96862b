# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which drop-in files count, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux import dropins
from ansible_collections.gpufleet.node.plugins.module_utils._linux.dropins import walk_files
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedFiles
from ansible_collections.gpufleet.node.tests.unit.support import KernelFiles


def drop_ins(root: Path, names: Dict[str, Optional[str]]) -> RecordedFiles:
    """Files (None: a link to /dev/null) below a recorded root."""
    for name, text in names.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            target.symlink_to("/dev/null")
        else:
            target.write_text(text)
    return RecordedFiles(str(root))


FOLDERS = ("/etc/x.d", "/run/x.d", "/usr/lib/x.d")


def test_drop_ins_are_read_by_name_across_all_folders(tmp_path: Path) -> None:
    files = drop_ins(tmp_path, {"usr/lib/x.d/20-b.conf": "", "etc/x.d/30-c.conf": "", "run/x.d/10-a.conf": ""})
    assert list(walk_files(files, FOLDERS, ".conf")) == [
        "/run/x.d/10-a.conf",
        "/usr/lib/x.d/20-b.conf",
        "/etc/x.d/30-c.conf",
    ]


def test_of_equal_names_the_strongest_folder_counts(tmp_path: Path) -> None:
    files = drop_ins(tmp_path, {"usr/lib/x.d/a.conf": "", "run/x.d/a.conf": "", "etc/x.d/a.conf": ""})
    assert list(walk_files(files, FOLDERS, ".conf")) == ["/etc/x.d/a.conf"]


def test_a_link_to_dev_null_switches_a_name_off(tmp_path: Path) -> None:
    files = drop_ins(tmp_path, {"etc/x.d/a.conf": None, "usr/lib/x.d/a.conf": "", "usr/lib/x.d/b.conf": ""})
    assert list(walk_files(files, FOLDERS, ".conf")) == ["/usr/lib/x.d/b.conf"]


def test_a_link_to_dev_null_in_a_weaker_folder_switches_nothing_off(tmp_path: Path) -> None:
    files = drop_ins(tmp_path, {"etc/x.d/a.conf": "", "usr/lib/x.d/a.conf": None})
    assert list(walk_files(files, FOLDERS, ".conf")) == ["/etc/x.d/a.conf"]


def test_a_link_that_leads_nowhere_hides_no_weaker_file(tmp_path: Path) -> None:
    files = drop_ins(tmp_path, {"usr/lib/x.d/a.conf": "", "etc/x.d/b.conf": ""})
    (tmp_path / "etc/x.d/a.conf").symlink_to("/nowhere")
    (tmp_path / "etc/x.d/c.conf").symlink_to("/nowhere")
    assert list(walk_files(files, FOLDERS, ".conf")) == ["/usr/lib/x.d/a.conf", "/etc/x.d/b.conf"]


def test_files_with_another_ending_are_no_drop_ins(tmp_path: Path) -> None:
    files = drop_ins(tmp_path, {"etc/x.d/a.conf.rpmsave": "", "etc/x.d/.gpufleet-abc": "", "etc/x.d/b.conf": ""})
    assert list(walk_files(files, FOLDERS, ".conf")) == ["/etc/x.d/b.conf"]


@pytest.mark.parametrize("kind", ["sysctl.d", "tmpfiles.d", "udev/rules.d"])
def test_every_root_is_stronger_than_those_behind_it(tmp_path: Path, kind: str) -> None:
    roots = ("etc", "run", "usr/local/lib", "usr/lib", "lib")
    for strongest in range(len(roots)):
        files = drop_ins(tmp_path / str(strongest), {f"{root}/{kind}/a.conf": root for root in roots[strongest:]})
        path = f"/{roots[strongest]}/{kind}/a.conf"
        assert dropins.read_texts(files, kind, ".conf") == {path: roots[strongest]}


def test_where_usr_is_merged_a_file_is_read_once(tmp_path: Path) -> None:
    drop_ins(tmp_path, {"usr/lib/x.d/a.conf": "a"})
    (tmp_path / "lib").symlink_to("usr/lib")
    files = KernelFiles(tmp_path)
    assert dropins.read_texts(files, "x.d", ".conf") == {"/usr/lib/x.d/a.conf": "a"}
    assert files.reads == ["/usr/lib/x.d/a.conf"]


def test_a_text_that_mentions_something_is_found_and_an_empty_one_says_nothing(tmp_path: Path) -> None:
    files = drop_ins(tmp_path, {"etc/x.d/b.conf": "one two", "run/x.d/a.conf": "two", "run/x.d/c.conf": ""})
    assert list(dropins.read_texts(files, "x.d", ".conf")) == ["/run/x.d/a.conf", "/etc/x.d/b.conf"]
    assert list(dropins.read_texts(files, "x.d", ".conf", "one")) == ["/etc/x.d/b.conf"]
