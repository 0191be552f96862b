# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Loader entries that sdbootutil makes, as on openSUSE: how arguments get into them and out again."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux import bootloader
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_cmdline.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.hugepages.hugepages_machine import grub_files
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_cmdline.cmdline_machine import cpus, params
from ansible_collections.gpufleet.node.tests.unit.linux.sdbootutil_machine import (
    COMMAND_LINE,
    ENTRIES,
    OLDER,
    ROOT,
    RUNNING,
    SEEN,
    SNAPPER,
    entry,
    machine,
    tree,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, Killed, snapshot

APART = ("run", "var")
DECLARED = {"iommu": "pt", "skew_tick": 1}


def run(host: FakeHost, arguments: Optional[Mapping[str, Any]] = None, *, check: bool = False, **declared: Any) -> Any:
    return converge(CONCERN, params(arguments=arguments, **declared), host, check_mode=check)


def suse(root: Path, files: Optional[Mapping[str, str]] = None, **shape: Any) -> FakeHost:
    return machine(root, {**(tree() if files is None else files), **cpus()}, **shape)


@pytest.mark.parametrize("kind", ["grub2-bls", "systemd-boot"])
@pytest.mark.parametrize("is_named", [True, False], ids=["named in sysconfig", "known by its mark"])
def test_arguments_go_into_the_entries_of_the_running_snapshot_and_out_again(
    tmp_path: Path, kind: str, is_named: bool
) -> None:
    files = tree(kind)
    if kind == "systemd-boot":
        files["/boot/efi/loader/loader.conf"] = f"default {RUNNING.rpartition('/')[2]}\n"
    if not is_named:
        del files["/etc/sysconfig/bootloader"]
    host = suse(tmp_path, files)
    before = snapshot(tmp_path, APART)
    assert run(host, DECLARED, check=True).changes
    assert snapshot(tmp_path, APART) == before
    outcome = run(host, DECLARED)
    assert outcome.error is None
    assert host.commands.calls == [("sdbootutil", "update-all-entries")]
    assert host.files.read(COMMAND_LINE) == f"{ROOT} quiet iommu=pt skew_tick=1\n"
    for path in (RUNNING, OLDER):
        assert "quiet iommu=pt skew_tick=1 rootflags" in host.files.read(path)
    assert "iommu" not in host.files.read(SNAPPER)
    assert not run(host, DECLARED).changes
    assert run(host, {"iommu": "pt"}).error is None
    assert host.files.read(COMMAND_LINE) == f"{ROOT} quiet iommu=pt\n"
    assert run(host, state="absent").error is None
    assert snapshot(tmp_path, APART) == before


def test_the_running_system_is_above_the_snapshots_with_a_higher_number(tmp_path: Path) -> None:
    files = {**tree(), SNAPPER: entry("6.17.8-1-default", 2, f"{ROOT} other")}
    assert bootloader.detect(suse(tmp_path, files), "x", "").config == RUNNING


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({"/boot/efi/EFI/opensuse/grubenv": f"default={OLDER.rpartition('/')[2]}\n"}, "older"),
        ({}, "newest"),
    ],
)
def test_what_is_set_for_grub_boots(tmp_path: Path, files: Dict[str, str], line: str) -> None:
    entries = {
        RUNNING: entry("6.17.8-1-default", 1, f"{ROOT} newest"),
        OLDER: entry("6.17.7-1-default", 1, f"{ROOT} older"),
    }
    assert line in bootloader.detect(suse(tmp_path, {**tree(), **entries, **files}), "x", "").command_line


def test_without_snapshots_the_entries_of_this_root_are_updated(tmp_path: Path) -> None:
    plain = {path: text.split(" rootflags")[0] + "\nlinux /a\n" for path, text in tree().items() if path == RUNNING}
    other = {
        SNAPPER: "options root=UUID=cccc\nlinux /b\n",
        "/proc/self/mountinfo": "25 1 8:2 / / rw - ext4 /dev/a rw\n",
    }
    files = {path: text for path, text in tree().items() if path != OLDER}
    loader = bootloader.detect(suse(tmp_path, {**files, **plain, **other}), "x", "")
    assert (loader.reason, list(loader.texts)) == ("", [COMMAND_LINE, RUNNING])


def test_the_mark_of_another_system_on_the_same_partition_says_nothing(tmp_path: Path) -> None:
    host = suse(tmp_path, {path: text for path, text in {**tree(), **grub_files()}.items() if "sysconfig" not in path})
    host.commands.programs = {"update-grub": lambda argv: Completed(0, "", "")}
    assert bootloader.detect(host, "x", "").name == bootloader.GRUB


REFUSED: Dict[str, Any] = {
    "the program is not installed": (
        {},
        {},
        "sdbootutil is not installed (wanted iommu=pt). Install sdbootutil, or leave them out.",
    ),
    "the file is not there": (
        {COMMAND_LINE: None},
        {"program": True},
        f"sdbootutil makes entries from {COMMAND_LINE}, which does not exist (wanted iommu=pt). Write the command line"
        f" of {RUNNING} to it, or leave them out.",
    ),
    "another snapshot boots by default": (
        {"/boot/efi/EFI/opensuse/grubenv": f"default={SNAPPER.rpartition('/')[2]}\n"},
        {"program": True},
        f"sdbootutil updates only the entries of the running snapshot, and {SNAPPER} boots by default (wanted"
        " iommu=pt). Boot the default entry first, or leave them out.",
    ),
    "an argument is in the entry alone": (
        {RUNNING: entry("6.17.8-1-default", 1, f"{ROOT} quiet console=ttyS0")},
        {"program": True},
        f"{RUNNING} has console=ttyS0, which {COMMAND_LINE} lacks, and sdbootutil would remove it (wanted iommu=pt)."
        f" Add it to {COMMAND_LINE}, or remove it from the entry, or leave them out.",
    ),
    "/etc is an overlay": (
        {SEEN: f"{ROOT} quiet\n"},
        {"program": True, "is_overlay": True},
        f"sdbootutil reads {SEEN}, which is a different file from {COMMAND_LINE} (wanted iommu=pt). Set them with"
        " transactional-update, or leave them out.",
    ),
    "the system partition is not mounted": (
        {RUNNING: None, OLDER: None, SNAPPER: None},
        {"program": True},
        "grub2-bls has no entries in /boot/loader/entries or /efi/loader/entries or /boot/efi/loader/entries (wanted"
        " iommu=pt). Mount the EFI system partition, or leave them out.",
    ),
}


@pytest.mark.parametrize(("changed", "shape", "cause"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("check", [True, False])
def test_what_it_cannot_do_is_refused_before_anything_changes(
    tmp_path: Path, changed: Mapping[str, Optional[str]], shape: Dict[str, Any], cause: str, check: bool
) -> None:
    files = {path: text for path, text in {**tree(), **changed}.items() if text is not None}
    is_installed = shape.get("program", False)
    host = suse(tmp_path, files, is_overlay=shape.get("is_overlay", False))
    if not is_installed:
        host.commands.programs.clear()
    before = snapshot(tmp_path)
    with pytest.raises(GpuFleetError) as caught:
        run(host, {"iommu": "pt"}, check=check)
    assert str(caught.value) == f"Cannot set kernel arguments for the next boot: {cause}"
    assert (snapshot(tmp_path), host.commands.calls) == (before, [])


def test_what_had_no_effect_is_taken_back(tmp_path: Path) -> None:
    host = suse(tmp_path)
    # Where it could not find out how much space is left, it ended with 0 and had changed nothing.
    host.commands.programs["sdbootutil"] = lambda argv: Completed(0, "", "")
    before = snapshot(tmp_path, APART)
    outcome = run(host, DECLARED)
    assert outcome.error is not None
    assert f"{COMMAND_LINE} is again as it was before this step" in str(outcome.error)
    assert snapshot(tmp_path, APART) == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{ROOT} quiet", f"{ROOT} quiet iommu=pt"),
        (f"# ours\n{ROOT}\nquiet\n# end\n", f"# ours\n{ROOT}\nquiet iommu=pt\n# end\n"),
        ("", "iommu=pt\n"),
    ],
)
def test_the_file_keeps_its_comments_and_lines(tmp_path: Path, text: str, expected: str) -> None:
    host = suse(tmp_path, {**tree(line=f"{ROOT} quiet" if text else ROOT), COMMAND_LINE: text})
    assert run(host, {"iommu": "pt"}).error is None
    assert host.files.read(COMMAND_LINE) == expected
    assert run(host, state="absent").error is None
    assert host.files.read(COMMAND_LINE).rstrip("\n") == text.rstrip("\n")


def test_a_drop_in_comes_after_ours(tmp_path: Path) -> None:
    line = f"{ROOT} quiet mitigations=auto"
    drop_in = {"/etc/kernel/cmdline.d/10-x.conf": "mitigations=auto\n", RUNNING: entry("6.17.8-1-default", 1, line)}
    with pytest.raises(GpuFleetError) as caught:
        run(suse(tmp_path, {**tree(), **drop_in}), {"mitigations": "off"}, check=True)
    assert "/etc/kernel/cmdline.d/10-x.conf line 1 sets it too, and comes after ours" in str(caught.value)


def test_a_run_that_is_killed_leaves_no_argument_behind(tmp_path: Path) -> None:
    after: Sequence[Any] = ({"iommu": "pt", "skew_tick": 2}, None)
    for number, declared in enumerate(after):
        for point in range(1, 12):
            (tmp_path / f"{number}-{point}").mkdir()
            host = suse(tmp_path / f"{number}-{point}")
            before = snapshot(tmp_path / f"{number}-{point}", APART)
            if declared is None:
                # Killed while it sets them, and then they are no longer wanted.
                host.files.kill_at = point
                with contextlib.suppress(Killed):
                    run(host, DECLARED)
            else:
                run(host, DECLARED)
                host.files.kill_at = point
                with contextlib.suppress(Killed):
                    run(host, declared)
            host.files.kill_at = None
            if declared is not None:
                assert run(host, declared).error is None
                assert host.files.read(COMMAND_LINE) == f"{ROOT} quiet iommu=pt skew_tick=2\n", point
            assert run(host, state="absent").error is None
            assert snapshot(tmp_path / f"{number}-{point}", APART) == before, point
            assert "iommu" not in "".join(host.files.read(f"{ENTRIES}/{name}") for name in host.files.names(ENTRIES))
