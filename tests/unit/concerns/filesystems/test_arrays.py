# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arrays and file systems that are made: of which drives, what is refused, and what a run that is killed leaves."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    DeclarationError,
    GpuFleetError,
    InUse,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.filesystems import made, spec, superblocks
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems.arrays_machine import (
    BY_ID,
    DATA,
    EPHEMERAL,
    MD,
    ONE,
    SCRATCH,
    drives_of,
    ext4_head,
    machine,
    made_of,
    md_head,
    with_boot_service,
    xfs_head,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems.filesystems_machine import mounted, run, started
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, Killed, snapshot

CONF = "/etc/mdadm/mdadm.conf.d/gpufleet.conf"
UNIT = "/etc/systemd/system/scratch.mount"
JOURNAL = "/var/lib/gpufleet/filesystems.making"
STRANGE = "0f0e0d0c-0b0a-4908-8706-050403020100"
NAMED, UNNAMED = ("/dev/nvme1n1", "/dev/nvme2n1"), "/dev/nvme3n1"
EXT4 = {**SCRATCH, "fstype": "ext4"}


def content(host: FakeHost) -> Dict[str, bytes]:
    return {node: drives_of(host).head(node) for node in (*NAMED, UNNAMED)}


def is_made(host: FakeHost, fstype: str = "xfs") -> bool:
    """Whether it runs, is mounted, and has a whole file system with the geometry of the array."""
    found = superblocks.superblock_of(drives_of(host).head("/dev/md127"))
    mount = mounted(host, "/scratch")
    return (
        found is not None
        and (found.fstype, found.complete, found.stripe) == (fstype, True, (512, 2))
        and mount is not None
        and (mount.number, mount.source) == ("9:127", "/dev/md127")
    )


# --- what is made ---


@pytest.mark.parametrize(("entry", "fstype"), [(SCRATCH, "xfs"), (EXT4, "ext4")])
def test_an_array_and_its_file_system_are_made_of_empty_drives(
    tmp_path: Path, entry: Mapping[str, Any], fstype: str
) -> None:
    host = machine(tmp_path)
    predicted = run(host, entry, check=True)
    assert content(host) == dict.fromkeys((*NAMED, UNNAMED), b"")
    assert [(one.setting, one.before, one.after) for one in predicted.changes if one.object == "/scratch"][:3] == [
        ("array", None, "raid0 of 2 drives, chunk 512 KiB"),
        ("filesystem", None, fstype),
        ("stripe", None, "512 KiB x 2"),
    ]
    outcome = run(host, entry)
    assert (outcome.error, outcome.changes) == (None, predicted.changes)
    assert is_made(host, fstype)
    member = drives_of(host).member("/dev/nvme1n1")
    assert member is not None
    assert member.name == "any:scratch"
    uuid = member.array.replace("-", "")
    uuid = ":".join(uuid[at : at + 8] for at in range(0, 32, 8))
    assert f"What={BY_ID}/md-uuid-{uuid}\n" in host.files.read(UNIT)
    assert host.files.read(CONF).splitlines()[1:] == [f"ARRAY /dev/md/scratch metadata=1.2 UUID={uuid}"]
    assert not host.files.exists(JOURNAL)
    again = run(host, entry)
    assert (again.status, again.changes) == ("in_sync", ())
    assert again.effective["mounts"]["/scratch"]["array"] == {
        "device": "/dev/md127",
        "level": "raid0",
        "chunk_kb": 512,
        "drives": [f"{BY_ID}/nvme-DRIVE_S1", f"{BY_ID}/nvme-DRIVE_S2"],
    }


def test_a_drive_that_is_not_named_is_not_even_opened(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, SCRATCH)
    run(host, SCRATCH)
    run(host, state="absent")
    assert UNNAMED not in drives_of(host).opened
    assert not any(UNNAMED in argv for argv in host.commands.calls)


def test_absent_unmounts_and_forgets_and_leaves_what_is_on_the_drives(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    run(host, SCRATCH)
    made_content = content(host)
    assert run(host, state="absent").error is None
    after = snapshot(tmp_path)
    drives = {path for path in {*before, *after} if path.startswith(("dev/", "sys/")) or path == "dev"}
    assert {path: one for path, one in after.items() if path not in drives} == {
        path: one for path, one in before.items() if path not in drives
    }
    assert content(host) == made_content
    # Taken over again as it is.
    assert run(host, SCRATCH).error is None
    assert is_made(host)
    assert len(started(host, "mkfs.xfs")) == 1
    assert content(host) == made_content


def test_one_drive_has_the_file_system_without_an_array(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host, made_of(ONE, label="fast"))
    assert outcome.error is None
    assert started(host, "mdadm") == []
    found = superblocks.superblock_of(drives_of(host).head("/dev/nvme1n1"))
    assert found is not None
    assert (found.complete, found.label, found.stripe) == (True, "fast", None)
    assert f"What={BY_ID}/nvme-DRIVE_S1\n" in host.files.read(UNIT)
    assert not host.files.exists(CONF)
    again = run(host, made_of(ONE, label="fast"))
    assert (again.status, again.changes) == ("in_sync", ())


def test_drives_may_be_named_by_a_glob_and_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    host = machine(tmp_path)
    (tmp_path / "dev/disk/by-id/nvme-DRIVE_S1_1").symlink_to("/dev/nvme1n1")
    outcome = run(host, made_of(drives=[f"{BY_ID}/nvme-DRIVE_S[21]*"]))
    assert outcome.error is None
    assert started(host, "mdadm")[0][-2:] == NAMED


def test_nothing_is_forced_on_drives_that_a_look_found_empty(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, SCRATCH)
    run(host, ONE, state="absent")
    words = {word for argv in host.commands.calls for word in argv}
    assert words & {"--run", "--force", "-f", "-F", "--zero-superblock", "--assume-clean"} == set()


# --- what is refused, before anything changes ---


def with_file(path: str, text: str) -> Callable[[FakeHost], None]:
    def change(host: FakeHost) -> None:
        target = Path(host.files.root) / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    return change


def holding(head: bytes) -> Callable[[FakeHost], None]:
    return lambda host: drives_of(host).put_bytes("/dev/nvme2n1", head)


def finding(output: str, status: int = 0) -> Callable[[FakeHost], None]:
    return lambda host: drives_of(host).finds.update({"/dev/nvme2n1": Completed(status, output, "")})


def claiming(host: FakeHost) -> None:
    drives_of(host).claimed.append("/dev/nvme2n1")


def opening(host: FakeHost) -> None:
    with_file("/proc/4711/comm", "qemu-system-x86\n")(host)
    (Path(host.files.root) / "proc/4711/fd").mkdir()
    (Path(host.files.root) / "proc/4711/fd/9").symlink_to("/dev/nvme2n1")


SECOND = r"Cannot make /scratch: /dev/disk/by-id/nvme-DRIVE_S2 \(nvme2n1\): "
SYS = "/sys/class/block/nvme2n1"
IN_USE: Mapping[str, Tuple[Callable[[FakeHost], None], str]] = {
    "lvm": (finding("TYPE=LVM2_member\n"), f"{SECOND}it holds LVM2_member"),
    "luks": (finding("TYPE=crypto_LUKS\n"), f"{SECOND}it holds crypto_LUKS"),
    "zfs": (finding("LABEL=tank\nTYPE=zfs_member\n"), f"{SECOND}it holds zfs_member tank"),
    "swap signature": (finding("TYPE=swap\n"), f"{SECOND}it holds swap"),
    "partition table": (finding("PTTYPE=gpt\n"), rf"{SECOND}it holds a partition table \(gpt\)"),
    "several": (finding("", 8), f"{SECOND}it holds signatures of several kinds"),
    "xfs": (holding(xfs_head(STRANGE)), f"{SECOND}it holds xfs"),
    "xfs of a mkfs that ended early": (holding(xfs_head(STRANGE, making=True)), f"{SECOND}it holds xfs"),
    "ext4": (holding(ext4_head(STRANGE)), f"{SECOND}it holds ext4"),
    "unknown data": (holding(b"\0" * 9000 + b"raw database"), f"{SECOND}it has data that no tool recognises"),
    "other array": (holding(md_head(STRANGE, "other:data", role=1)), f"{SECOND}it is a drive of the array other:data"),
    "partition": (with_file(f"{SYS}/nvme2n1p1/partition", "1\n"), rf"{SECOND}it is partitioned \(nvme2n1p1\)"),
    "device mapper": (with_file(f"{SYS}/holders/dm-0", ""), f"{SECOND}it is held by dm-0"),
    "claimed": (claiming, f"{SECOND}the kernel uses it"),
    "swap": (
        with_file("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/nvme2n1 partition 1048572 0 -2\n"),
        f"{SECOND}it is swap",
    ),
    "read-only": (with_file(f"{SYS}/ro", "1\n"), f"{SECOND}it is read-only"),
    "open": (opening, r"Cannot make /scratch: /dev/nvme2n1: in use by qemu-system-x86 \(4711\)"),
    "mounted by another name space": (
        with_file("/proc/1/mountinfo", "90 25 259:11 / /mnt rw - btrfs /dev/nvme2n1 rw\n"),
        f"{SECOND}it is mounted at /mnt",
    ),
    "is a partition": (with_file(f"{SYS}/partition", "2\n"), f"{SECOND}it is a partition"),
    "same serial": (with_file(f"{SYS}/wwid", "eui.S1\n"), "another drive has the same serial number"),
}


@pytest.mark.parametrize("kind", IN_USE)
def test_a_drive_that_is_in_use_or_not_empty_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    change, message = IN_USE[kind]
    for check in (True, False):
        host = machine(tmp_path / str(check))
        change(host)
        before = snapshot(tmp_path / str(check))
        with pytest.raises(DeclarationError, match=message):
            run(host, SCRATCH, check=check)
        assert snapshot(tmp_path / str(check)) == before
        assert drives_of(host).written == []
        assert {argv[0] for argv in host.commands.calls} <= {"blkid"}


def test_without_blkid_nobody_knows_what_is_on_a_drive(tmp_path: Path) -> None:
    host = machine(tmp_path)
    del host.commands.programs["blkid"]
    with pytest.raises(GpuFleetError, match="Cannot look what is on /dev/nvme1n1: blkid: No such file"):
        run(host, SCRATCH)


@pytest.mark.parametrize(("program", "package"), [("mdadm", "install mdadm"), ("mkfs.xfs", "install xfsprogs")])
def test_a_program_that_is_missing_is_named_before_anything_changes(tmp_path: Path, program: str, package: str) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    del host.commands.programs[program]
    with pytest.raises(DeclarationError, match=f"{program} is not installed.*{package}".replace("install ", "nstall ")):
        run(host, SCRATCH)
    assert snapshot(tmp_path) == before


def test_a_drive_that_is_not_there_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path)
    with pytest.raises(DeclarationError, match="this machine has no /dev/disk/by-id/nvme-DRIVE_S9"):
        run(host, made_of(drives=[f"{BY_ID}/nvme-DRIVE_S1", f"{BY_ID}/nvme-DRIVE_S9"]))


def test_drives_that_are_too_small_for_xfs_are_refused(tmp_path: Path) -> None:
    host = machine(tmp_path, {f"/sys/class/block/nvme{n}n1/size": "204800\n" for n in (1, 2)})
    with pytest.raises(DeclarationError, match="XFS takes no less than 1 GiB"):
        run(host, SCRATCH)


def test_two_names_of_one_drive_in_two_file_systems_are_refused(tmp_path: Path) -> None:
    host = machine(tmp_path)
    (tmp_path / "dev/disk/by-id/wwn-1").symlink_to("/dev/nvme1n1")
    other = {**ONE, "path": "/fast", "made_of": {"drives": [f"{BY_ID}/wwn-1"]}}
    with pytest.raises(DeclarationError, match=r"Cannot make /fast: .*wwn-1 \(nvme1n1\) is a drive of /scratch too"):
        run(host, SCRATCH, other)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({**SCRATCH, "fstype": "nfs"}, "nfs cannot be made on drives"),
        ({**SCRATCH, "source": "UUID=1"}, "a file system that is made on drives has no other source"),
        (made_of(drives=[]), "there is none"),
        (made_of(drives=["/dev/nvme1n1"]), "the kernel gives such names in the order"),
        (made_of(drives=["/dev/mapper/x"]), "it is not the name of a whole drive"),
        (made_of(drives=[f"{BY_ID}/nvme-A-part1"]), "it is not the name of a whole drive"),
        (made_of(drives=[f"{BY_ID}/a", f"{BY_ID}/a"]), "it is named twice"),
        (made_of(drives=[f"{BY_ID}/../../nvme1n1"]), "it is not the name of a whole drive"),
        (made_of(name="a/b"), "it is not the name of an array"),
        (made_of(chunk_kb=500), "it is not a power of 2 from 4 to 16384"),
        (made_of(label="longer than it may be"), "xfs cannot have this label"),
    ],
)
def test_what_no_machine_could_make_is_refused(tmp_path: Path, entry: Mapping[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        run(machine(tmp_path), entry)


# --- what is there already ---


def array_of_others(host: FakeHost, *, name: str = "any:scratch", runs: bool = True, **shape: Any) -> None:
    """An array with a file system in which somebody has data."""
    drives = drives_of(host)
    for role, node in enumerate(NAMED):
        drives.put_bytes(node, md_head(STRANGE, name, role=role, **shape))
    drives.put_bytes(NAMED[0], xfs_head(STRANGE, unit=128, width=256), DATA)
    if runs:
        drives.run_array("/dev/md/scratch", NAMED)


@pytest.mark.parametrize("runs", [True, False])
def test_an_array_that_fits_is_taken_over_as_it_is(tmp_path: Path, runs: bool) -> None:
    host = machine(tmp_path)
    array_of_others(host, name="old-host:scratch", runs=runs)
    before = content(host)
    outcome = run(host, SCRATCH)
    assert outcome.error is None
    assert is_made(host)
    assert content(host) == before
    assert started(host, "mkfs.xfs") == []
    assert [argv[1] for argv in started(host, "mdadm")] == ([] if runs else ["--assemble"])
    uuid = STRANGE.replace("-", "")
    uuid = ":".join(uuid[at : at + 8] for at in range(0, 32, 8))
    assert f"ARRAY /dev/md/scratch metadata=1.2 UUID={uuid}\n" in host.files.read(CONF)
    assert run(host, SCRATCH).status == "in_sync"


@pytest.mark.parametrize(
    ("shape", "entry", "message"),
    [
        ({"chunk_kb": 64}, SCRATCH, "it is raid0 of 2 drives in chunks of 64 KiB, and raid0 of 2 drives"),
        ({"level": 1}, SCRATCH, "it is raid1 of 2 drives"),
        ({"disks": 3}, SCRATCH, "raid0 of 3 drives"),
        ({"name": "any:other"}, SCRATCH, "scratch is declared of its drives"),
        ({}, EXT4, "it holds xfs, and ext4 is declared"),
        ({}, made_of(drives=[*SCRATCH["made_of"]["drives"], f"{BY_ID}/nvme-DRIVE_S3"]), "with other drives than these"),
    ],
)
@pytest.mark.parametrize("base", ["kept", "ephemeral"])
def test_an_array_that_differs_is_refused_and_never_made_anew(
    tmp_path: Path, shape: Mapping[str, Any], entry: Mapping[str, Any], message: str, base: str
) -> None:
    host = with_boot_service(machine(tmp_path))
    array_of_others(host, **shape)
    before = snapshot(tmp_path)
    with pytest.raises(DeclarationError, match=message):
        run(host, made_of(entry, ephemeral=base == "ephemeral"))
    assert snapshot(tmp_path) == before


def test_an_array_that_is_in_use_otherwise_is_refused(tmp_path: Path) -> None:
    host = machine(tmp_path)
    array_of_others(host)
    (tmp_path / MD.lstrip("/") / "holders/dm-3").write_text("")
    with pytest.raises(DeclarationError, match="/dev/md127: it is held by dm-3"):
        run(host, SCRATCH)


@pytest.mark.parametrize("kind", ["renamed", "renamed, before Linux 5.4", "under its name"])
def test_an_array_of_which_a_drive_went_away_says_so(tmp_path: Path, kind: str) -> None:
    host = machine(tmp_path)
    array_of_others(host)
    slaves = tmp_path / MD.lstrip("/") / "slaves"
    if kind.startswith("renamed"):
        (slaves / "nvme2n1").rename(slaves / "nvme9n1")
    if "5.4" not in kind:
        (tmp_path / MD.lstrip("/") / "md/array_state").write_text("broken\n")
    (tmp_path / "sys/class/block/nvme2n1/holders/md127").unlink()
    before = snapshot(tmp_path)
    with pytest.raises(DeclarationError, match=r"/dev/md127: one of its drives went away.*mdadm --stop /dev/md127"):
        run(host, SCRATCH)
    assert snapshot(tmp_path) == before


def test_an_array_that_is_mounted_elsewhere_is_refused(tmp_path: Path) -> None:
    host = machine(tmp_path)
    array_of_others(host)
    drives_of(host).put([*drives_of(host).lines, "70 25 9:127 / /mnt rw - xfs /dev/md127 rw\n"])
    with pytest.raises(DeclarationError, match="/dev/md127: it is mounted at /mnt"):
        run(host, SCRATCH)


def test_an_array_without_a_file_system_is_not_ours_to_format(tmp_path: Path) -> None:
    host = machine(tmp_path)
    for role, node in enumerate(NAMED):
        drives_of(host).put_bytes(node, md_head(STRANGE, "any:scratch", role=role))
    drives_of(host).run_array("/dev/md/scratch", NAMED)
    with pytest.raises(DeclarationError, match="/dev/md127: it holds no file system"):
        run(host, SCRATCH)


def test_a_file_system_that_was_made_otherwise_is_taken_over_and_said_to_be_so(tmp_path: Path) -> None:
    host = machine(tmp_path)
    array_of_others(host)
    drives_of(host).put_bytes(NAMED[0], xfs_head(STRANGE), DATA)
    drives_of(host).put_bytes("/dev/md127", xfs_head(STRANGE))
    outcome = run(host, made_of(label="mine"))
    assert outcome.error is None
    assert [(one.setting, one.reason) for one in outcome.remaining.unmanaged] == [
        ("stripe", "the file system was made with none"),
        ("label", "the file system was made with none"),
    ]


# --- kills and faults ---


def at_each_effect(host: FakeHost, at: int) -> None:
    """Count the starts of programs among the effects; what a program writes to a drive is one by itself."""
    host.files.log.clear()
    work = host.commands.run

    def counted(argv: Any, **more: Any) -> Any:
        host.files.effect("run", " ".join(argv), "")
        return work(argv, **more)

    host.commands.run = counted  # type: ignore[method-assign]
    host.files.kill_at = at


KINDS = {
    "two drives": SCRATCH,
    "two drives with ext4": EXT4,
    "one drive": ONE,
    "one drive with ext4": {**ONE, "fstype": "ext4"},
}


def error_of(host: FakeHost, entry: Mapping[str, Any]) -> Optional[GpuFleetError]:
    try:
        return run(host, entry).error
    except GpuFleetError as error:
        return error


def is_whole(host: FakeHost, entry: Mapping[str, Any]) -> bool:
    if len(entry["made_of"]["drives"]) > 1:
        return is_made(host, entry["fstype"])
    found = superblocks.superblock_of(drives_of(host).head("/dev/nvme1n1"))
    return found is not None and found.complete and mounted(host, "/scratch") is not None


@pytest.mark.parametrize("between", ["nothing", "reboot"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_killed_anywhere_is_finished_by_the_next(tmp_path: Path, kind: str, between: str) -> None:
    entry, at, kills = KINDS[kind], 0, 0
    while kills == at:
        at += 1
        host = machine(tmp_path / str(at))
        run_before = host.commands.run
        at_each_effect(host, at)
        try:
            run(host, entry)
        except Killed:
            kills += 1
        host.files.kill_at = None
        host.commands.run = run_before  # type: ignore[method-assign]
        if between == "reboot":
            drives_of(host).reboot()
        outcome = run(host, entry)
        assert (at, outcome.error) == (at, None)
        assert is_whole(host, entry), at
        assert not host.files.exists(JOURNAL)
        assert run(host, entry).status == "in_sync"
        assert drives_of(host).head(UNNAMED) == b""
        assert UNNAMED not in drives_of(host).opened
    assert kills > 20


@pytest.mark.once
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_anywhere_is_an_error_and_the_next_run_finishes(tmp_path: Path, kind: str) -> None:
    entry, at, faults = KINDS[kind], 0, 0
    while faults == at:
        at += 1
        host = machine(tmp_path / str(at))
        host.files.log.clear()
        host.files.fail_at = at
        try:
            outcome = run(host, entry)
            faults += outcome.error is not None
        except GpuFleetError:
            faults += 1
        host.files.fail_at = None
        assert run(host, entry).error is None, at
        assert is_whole(host, entry), at
        assert run(host, entry).status == "in_sync"
        assert drives_of(host).head(UNNAMED) == b""
    assert faults > 10


@pytest.mark.once
@pytest.mark.parametrize("damage", ["gone", "damaged"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_half_made_without_its_note_is_adopted_if_whole_and_else_refused(
    tmp_path: Path, kind: str, damage: str
) -> None:
    entry, at, kills, refused = KINDS[kind], 0, 0, 0
    while kills == at:
        at += 1
        host = machine(tmp_path / str(at))
        run_before = host.commands.run
        at_each_effect(host, at)
        try:
            run(host, entry)
        except Killed:
            kills += 1
        host.files.kill_at = None
        host.commands.run = run_before  # type: ignore[method-assign]
        note = tmp_path / str(at) / JOURNAL.lstrip("/")
        if note.exists():
            note.unlink() if damage == "gone" else note.write_text("{")
        before = content(host)
        blank = not any(any(one) for one in before.values())
        error = error_of(host, entry)
        if error is not None:
            # What is on an array is known once it runs.
            refused += 1
            assert re.search("holds (no file system|xfs|something|data)|is a drive of the array", str(error))
            assert not blank
            assert content(host) == before
            continue
        assert is_whole(host, entry), at
        if not blank:
            assert content(host) == before
    assert refused > 0


def test_a_note_about_other_drives_is_no_leave_to_write_over_these(tmp_path: Path) -> None:
    host = machine(tmp_path)
    drives = drives_of(host)
    at_each_effect(host, 10_000)
    drives.fails["mkfs.xfs"] = "mkfs.xfs: no memory"
    assert run(host, SCRATCH).error is not None
    assert host.files.exists(JOURNAL)
    # One of the two was replaced since.
    (tmp_path / "dev/nvme2n1").write_bytes(b"")
    (tmp_path / "sys/class/block/nvme2n1/wwid").write_text("eui.S4\n")
    drives.forget_array("md127")
    drives.fails.clear()
    before = content(host)
    with pytest.raises(DeclarationError, match="it is a drive of the array any:scratch, with other drives than these"):
        run(host, SCRATCH)
    assert content(host) == before


def test_what_udev_made_of_half_an_array_is_stopped_and_the_array_finished(tmp_path: Path) -> None:
    host = machine(tmp_path)
    drives = drives_of(host)
    host.files.before_effect = lambda: kill_when(host)
    with pytest.raises(Killed):
        run(host, SCRATCH)
    host.files.before_effect = lambda: None
    drives.run_array("", ["/dev/nvme1n1"], state="inactive")
    assert run(host, SCRATCH).error is None
    assert is_made(host)
    assert [argv[1] for argv in started(host, "mdadm")] == ["--create", "--stop", "--create"]
    assert "--run" in started(host, "mdadm")[-1]


def kill_when(host: FakeHost) -> None:
    """Between the superblocks of the two drives."""
    if drives_of(host).written == ["/dev/nvme1n1"]:
        raise Killed


def test_absent_forgets_what_was_half_made_and_destroys_nothing(tmp_path: Path) -> None:
    host = machine(tmp_path)
    drives_of(host).fails["mkfs.xfs"] = "mkfs.xfs: no memory"
    outcome = run(host, SCRATCH)
    assert str(outcome.error).endswith("exit status 1: mkfs.xfs: no memory.")
    assert isinstance(outcome.error, Refused)
    before = content(host)
    assert run(host, state="absent").error is None
    assert content(host) == before
    assert not host.files.exists(JOURNAL)
    drives_of(host).fails.clear()
    with pytest.raises(DeclarationError, match="it holds no file system"):
        run(host, SCRATCH)


def test_a_drive_that_has_another_name_by_the_time_of_the_step_is_not_touched(tmp_path: Path) -> None:
    host = machine(tmp_path)

    def swapped() -> None:
        (tmp_path / "sys/class/block/nvme2n1/wwid").write_text("eui.S9\n")

    host.files.before_effect = swapped
    assert "/dev/nvme2n1 is a different drive now" in str(error_of(host, SCRATCH))
    assert drives_of(host).written == []


# --- ephemeral drives ---


def test_an_ephemeral_file_system_is_mounted_by_the_boot_service_and_has_no_unit(tmp_path: Path) -> None:
    host = with_boot_service(machine(tmp_path))
    outcome = run(host, EPHEMERAL)
    assert outcome.error is None
    assert is_made(host)
    assert not host.files.exists(UNIT)
    assert not host.files.exists(CONF)
    assert '"apply_at_boot": true' in host.files.read("/etc/gpufleet/declared.d/filesystems.json")
    again = run(host, EPHEMERAL)
    assert (again.status, again.changes) == ("in_sync", ())
    boot = again.boot["mounts"]["/scratch"]
    assert (boot["source"].partition("md-uuid-")[0], boot["fstype"], boot["options"]) == (
        f"{BY_ID}/",
        "xfs",
        ["noatime"],
    )


def test_what_is_not_ephemeral_is_not_applied_by_the_boot_service(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, SCRATCH)
    assert '"apply_at_boot": false' in host.files.read("/etc/gpufleet/declared.d/filesystems.json")


@pytest.mark.parametrize("stopped", [True, False])
def test_a_boot_makes_it_anew_where_all_drives_are_empty_and_else_mounts_it(tmp_path: Path, stopped: bool) -> None:
    host = with_boot_service(machine(tmp_path))
    run(host, EPHEMERAL)
    before = content(host)
    drives_of(host).reboot(stopped=stopped)
    # As the boot service runs it.
    outcome = run(host, EPHEMERAL, permanent=False)
    assert outcome.error is None
    assert is_made(host)
    assert content(host) == before
    assert len(started(host, "mkfs.xfs")) == 1 + stopped
    assert run(host, EPHEMERAL).status == "in_sync"


def test_a_boot_leaves_drives_alone_of_which_one_is_not_empty(tmp_path: Path) -> None:
    host = with_boot_service(machine(tmp_path))
    run(host, EPHEMERAL)
    drives_of(host).reboot(stopped=True)
    drives_of(host).put_bytes("/dev/nvme2n1", ext4_head(STRANGE))
    with pytest.raises(DeclarationError, match="it holds ext4"):
        run(host, EPHEMERAL, permanent=False)


def test_without_the_boot_service_nothing_is_made_that_a_stop_would_take(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host, EPHEMERAL)
    assert "the boot service is not installed. Run the role node_tools first" in str(outcome.error)
    assert drives_of(host).written == []
    # For now it can be had.
    assert run(host, EPHEMERAL, permanent=False).error is None
    assert is_made(host)


def test_an_ephemeral_mount_goes_like_any_other(tmp_path: Path) -> None:
    host = with_boot_service(machine(tmp_path))
    run(host, EPHEMERAL)
    with_file("/proc/4711/comm", "python3\n")(host)
    with_file("/proc/4711/maps", "")(host)
    (tmp_path / "proc/4711/cwd").symlink_to("/scratch/x")
    with pytest.raises(InUse, match=r"in use by python3 \(4711\)"):
        run(host, state="absent")
    (tmp_path / "proc/4711/cwd").unlink()
    assert run(host, state="absent").error is None
    assert mounted(host, "/scratch") is None


# The first 8 KiB of a drive and of its array, as mdadm 4.4 and mkfs.xfs 6.13 made them of two drives of 1 GiB.
OF_MDADM = (
    "eNpjYBgFo2AUjIJRMApGwSgYBaNgFIyCUTAKRsFwB3/8tFcyghgCED7fFMljjkf6OSYtvTj5Sd2qR4l5lVbFyUWJJckZWPVz32HPhrEZkSVYGBiYiHEA"
    "1F6GD/JgigOHMvk5Ni935G5oCJD8J1V+cttTkEoONPtB4D8UhO+qP91AVAgwwvWMRDCaA0bBKBgFo2AUjIJRMApGwSgYBaNgZAAAKSIhqA=="
)
OF_MKFS_XFS = (
    "eNqLcAt2YmAQYAAD9j8M6KDa4vBD4atd8xvrnzarvzaMAAuyMHAwQBlQmhFKMwEJIPt/A5CGqnFg2LqUiQEowVGcXJRYkpwBFuXh5GQG2irJAFMEAbYQ"
    "d+w+wIAfgMxuAFsFBiDrGLsgGAz4gVgbxKiqTPyK5NBRgAYiHN3dGOABCY43EBsUj6xQNjJmg+D/2QwM/37gSB/IahkHyl9J9c0TRmOXqPj3RIt/UF5k"
    "horZgrLO/1HwHz2dm70I24MWlCxoeWWIxL+bD85yHgjCFohYgPwPKpWh5S4nEHMBMTeoGB9NGUMbjJaAo2AUjIJRMApGwcgDjk7GTqD+Hlp7gANf/3+T"
    "nUs7kOIF4mIg7oD1BUfBKBgFo2AUjIJRMApGwSgYBaNgFIyCUTA4AQBK/By8"
)


def recorded(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


@pytest.mark.once
def test_superblocks_are_read_as_the_programs_write_them() -> None:
    assert superblocks.member_of(recorded(OF_MDADM)) == superblocks.Member(
        array="0e9419c6-41c4-8f08-92a5-d193e47eaae2", name="any:scratch", level=0, chunk_kb=512, disks=2, role=0
    )
    assert superblocks.superblock_of(recorded(OF_MKFS_XFS)) == superblocks.Superblock(
        fstype="xfs", uuid="7b38c3e1-13d5-8a9f-817f-e58327eb3158", label="scratch", complete=True, stripe=(512, 2)
    )
    assert (superblocks.member_of(b""), superblocks.superblock_of(b"")) == (None, None)


@pytest.mark.once
@pytest.mark.parametrize("kind", ["ext4", "ext3"])
def test_a_file_system_of_mke2fs_is_read_as_it_writes_it(tmp_path: Path, kind: str) -> None:
    image = tmp_path / "image"
    with image.open("wb") as handle:
        handle.truncate(64 << 20)
    extended = ("-b", "4096", "-L", "fast", "-U", STRANGE, "-E", "nodiscard,stride=16,stripe_width=32")
    program = shutil.which(f"mkfs.{kind}", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        pytest.skip(f"this machine has no mkfs.{kind}")
    subprocess.run([program, "-q", *extended, str(image)], check=True)
    with image.open("rb") as handle:
        found = superblocks.superblock_of(handle.read(superblocks.HEAD))
    assert found == superblocks.Superblock(kind, STRANGE, "fast", complete=True, stripe=(64, 2))


@pytest.mark.once
def test_numbers_follow_from_the_name_and_the_drives(tmp_path: Path) -> None:
    one = made.number_of("array", "scratch", "eui.S1", "eui.S2")
    assert one == made.number_of("array", "scratch", "eui.S1", "eui.S2")
    assert len({one, made.number_of("array", "fast", "eui.S1", "eui.S2"), made.number_of("array", "scratch", "x")}) == 3
    assert spec.SOURCE.fullmatch(one)
    assert (one[14], one[19] in "89ab") == ("8", True)
