# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mounts: what the kernel took, what is refused, and whose mounts are left alone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    InUse,
    OwnedByAnother,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import EFFECTIVE
from ansible_collections.gpufleet.node.plugins.module_utils._linux import mounts
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.filesystems import spec, unit_files, values
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems.filesystems_machine import (
    DISK,
    FILES,
    HOT,
    MOUNTINFO,
    NFS_MOUNT,
    OTHERS,
    ROOT,
    SCRATCH,
    machine,
    mounted,
    pending,
    programs,
    run,
    started,
    unmanaged,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, Killed, snapshot

UNIT = "/etc/systemd/system/data.mount"
READ_AHEAD = "/etc/systemd/system/gpufleet-read-ahead-data.service"


def data(**more: Any) -> Dict[str, Any]:
    return {"path": "/data", "source": "nfs1:/export/data", "fstype": "nfs", **more}


def nfs_line(
    options: str, *, flags: str = "rw,relatime", path: str = "/data", source: str = "nfs1:/export/data"
) -> str:
    return f"61 25 0:61 / {path} {flags} shared:9 - nfs4 {source} rw,{options},hard,proto=tcp,sec=sys,addr=10.0.0.1\n"


# --- what was mounted, and is at boot ---


def test_mounts_are_made_now_and_at_boot_and_nothing_of_them_is_left_after_absent(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    outcome = run(host, NFS_MOUNT, SCRATCH, HOT)
    assert outcome.error is None
    assert host.files.read(UNIT).splitlines()[1:] == [
        "[Unit]",
        "Description=/data as declared by gpufleet.node",
        "Wants=gpufleet-read-ahead-data.service",
        "",
        "[Mount]",
        "What=nfs1:/export/data",
        "Where=/data",
        "Type=nfs",
        "Options=vers=4.2,rsize=1048576,nconnect=8,actimeo=60,noatime,_netdev",
        "TimeoutSec=60",
        "",
        "[Install]",
        "WantedBy=remote-fs.target",
    ]
    assert host.files.link("/etc/systemd/system/remote-fs.target.wants/data.mount") == UNIT
    assert host.files.exists("/etc/systemd/system/local-fs.target.wants/srv-scratch.mount")
    # A name that stays the same, and not the one that the kernel shows.
    assert f"What={DISK}\n" in host.files.read("/etc/systemd/system/srv-scratch.mount")
    found = {path: mounted(host, path) for path in ("/data", "/srv/scratch", "/hot")}
    assert {path: (mount.fstype, mount.source) for path, mount in found.items() if mount is not None} == {
        "/data": ("nfs4", "nfs1:/export/data"),
        "/srv/scratch": ("xfs", "/dev/nvme0n1p1"),
        "/hot": ("tmpfs", "tmpfs"),
    }
    assert found["/data"] is not None
    assert host.files.read(f"/sys/class/bdi/{found['/data'].number}/read_ahead_kb").strip() == "15360"
    again = run(host, NFS_MOUNT, SCRATCH, HOT)
    assert (again.status, again.changes) == ("in_sync", ())
    assert again.boot["mounts"]["/data"]["read_ahead_kb"] == 15360
    assert run(host, state="absent").error is None
    assert snapshot(tmp_path) == before
    assert [argv for argv in started(host, "umount") if {"-l", "-f", "--lazy", "--force"} & set(argv)] == []


@pytest.mark.once
def test_no_program_of_ours_could_format_a_disk(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, NFS_MOUNT, SCRATCH, HOT)
    run(host, state="absent")
    names = {os.path.basename(argv[0]) for argv in host.commands.calls}
    assert names == {"mkdir", "mount", "umount", "udevadm", "systemctl"}


def test_the_read_ahead_at_boot_is_written_to_the_device_that_the_mount_got(tmp_path: Path) -> None:
    entry = spec.parse({"mounts": [{**NFS_MOUNT, "made_of": None}]}).mounts["/data"]
    text = unit_files.read_ahead_text(entry)
    assert text is not None
    (tmp_path / "0:61").mkdir()
    for name, body in (("findmnt", 'test "$8" = /data && echo 0:61'), ("udevadm", "exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    line = next(line for line in text.splitlines() if line.startswith("ExecStart=/bin/sh -c '"))
    # As systemd reads it: two dollars are one.
    script = line.partition("'")[2][:-1].replace("$$", "$").replace("/sys/class/bdi", str(tmp_path))
    path = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
    subprocess.run(["sh", "-c", script], check=True, env={"PATH": path})
    assert (tmp_path / "0:61" / "read_ahead_kb").read_text() == "15360\n"
    assert unit_files.read_ahead_at_boot(text) == 15360


def test_a_mount_that_is_there_is_taken_over_without_being_touched(tmp_path: Path) -> None:
    line = nfs_line("vers=4.2,rsize=1048576,nconnect=8,acregmin=60,acdirmin=60", flags="rw,noatime")
    bdi = "/sys/class/bdi/0:61/read_ahead_kb"
    host = machine(tmp_path, {MOUNTINFO: ROOT + line, bdi: "15360\n"})
    before = snapshot(tmp_path)
    outcome = run(host, NFS_MOUNT)
    assert outcome.error is None
    assert started(host, "mount") == started(host, "umount") == []
    assert {change.scope for change in outcome.changes} == {"boot"}
    # It was there before us, and stays.
    assert run(host, state="absent").error is None
    assert snapshot(tmp_path) == before


def test_flags_and_read_ahead_change_while_it_is_mounted_and_come_back(tmp_path: Path) -> None:
    line = nfs_line("vers=4.2", flags="rw,nosuid,relatime,nosymfollow")
    host = machine(tmp_path, {MOUNTINFO: ROOT + line, "/sys/class/bdi/0:61/read_ahead_kb": "128\n"})
    before = snapshot(tmp_path)
    outcome = run(host, data(options=["noatime", "nodev", "ro"], read_ahead_kb=4096))
    assert outcome.error is None
    found = mounted(host, "/data")
    assert found is not None
    # nosuid was not declared, and stays. Neither server nor helper is asked.
    assert set(started(host, "mount")[0][4].split(",")) == {
        *("remount", "bind", "ro", "noatime", "nosuid", "nodev", "nosymfollow")
    }
    assert "--internal-only" in started(host, "mount")[0]
    assert host.files.read("/sys/class/bdi/0:61/read_ahead_kb") == "4096\n"
    assert run(host, state="absent").error is None
    after = snapshot(tmp_path)
    assert set(mounted_flags(host)) == {"rw", "nosuid", "relatime"}
    del before["proc/self/mountinfo"], after["proc/self/mountinfo"]
    assert after == before


def mounted_flags(host: FakeHost) -> Sequence[str]:
    found = mounted(host, "/data")
    assert found is not None
    return found.flags


def test_the_size_of_tmpfs_changes_while_it_is_mounted(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, HOT)
    outcome = run(host, {**HOT, "options": ["size=32g", "nosuid"]})
    assert [(change.setting, change.before, change.after) for change in outcome.changes if change.object == "/hot"] == [
        ("size", "67108864k", "32g")
    ]
    assert started(host, "umount") == []
    found = mounted(host, "/hot")
    assert found is not None
    assert found.values["size"] == "33554432k"


# --- what the kernel took ---

MEMORY_KB = 16_000_000


def shown(option: str, options: str, *, flags: str = "rw,relatime", kind: str = "nfs4") -> Any:
    """What is read back for an option, and what would be in sync."""
    mount = mounts.parse(f"61 25 0:61 / /data {flags} - {kind} nfs1:/x {options}\n")[0]
    asked = values.option_of(option, values.kind_of(mount))
    assert asked is not None
    return values.read_back(asked, mount, MEMORY_KB), asked.wanted


@pytest.mark.once
@pytest.mark.parametrize(
    ("option", "options", "found"),
    [
        ("rsize=1048576", "rw,rsize=524288", "524288"),
        ("rsize=1m", "rw,rsize=1048576", "1m"),
        ("vers=4", "rw,vers=4.2", "4"),
        ("nfsvers=4.1", "rw,vers=4.2", "4.2"),
        ("nconnect=8", "rw", "1"),
        ("nconnect=1", "rw", "1"),
        ("actimeo=60", "rw,acregmin=60,acdirmin=60", "60"),
        ("actimeo=60", "rw", "3,60,30,60"),
        ("acregmax=60", "rw", "60"),
        ("lookupcache=positive", "rw,lookupcache=pos", "pos"),
        ("lookupcache=all", "rw", "all"),
        ("async", "rw", "set"),
        ("async", "rw,sync", None),
        ("fsc", "rw", None),
        ("fsc", "rw,fsc", "set"),
        ("cto", "rw,nocto", None),
        ("proto=rdma", "rw,proto=tcp", "tcp"),
        ("rw", "ro", "ro"),
        ("intr", "rw", None),
    ],
)
def test_options_of_nfs_are_compared_by_what_they_mean(option: str, options: str, found: Optional[str]) -> None:
    assert shown(option, options)[0] == found


@pytest.mark.once
@pytest.mark.parametrize(
    ("kind", "option", "options", "found"),
    [
        # As recorded of Linux 6.18.
        ("xfs", "allocsize=64m", "rw,inode64,allocsize=65536k,logbufs=8,logbsize=256k,noquota", "64m"),
        ("xfs", "logbsize=256k", "rw,inode64,allocsize=65536k,logbufs=8,logbsize=256k,noquota", "256k"),
        ("xfs", "nodiscard", "rw,inode64,logbufs=8,logbsize=32k,noquota", "set"),
        ("xfs", "discard", "rw,inode64,logbufs=8,logbsize=32k,noquota", None),
        ("ext4", "data=ordered", "rw,stripe=512,data=ordered", "ordered"),
        ("tmpfs", "size=64m", "rw,size=65536k", "64m"),
        ("tmpfs", "size=50%", "rw", "50%"),
        ("tmpfs", "size=25%", "rw", "8000000k"),
        ("tmpfs", "size=8000000k", "rw", "8000000k"),
        ("tmpfs", "mode=0755", "rw,mode=755", "0755"),
        ("tmpfs", "mode=1777", "rw", "1777"),
        ("tmpfs", "huge=always", "rw", "never"),
        ("tmpfs", "nr_inodes=10k", "rw,nr_inodes=10240", "10k"),
    ],
)
def test_units_and_defaults_of_the_kernel_are_what_was_asked(
    kind: str, option: str, options: str, found: Optional[str]
) -> None:
    assert shown(option, options, kind=kind)[0] == found


@pytest.mark.once
@pytest.mark.parametrize(
    ("option", "flags", "found"),
    [
        ("noatime", "rw,noatime", "noatime"),
        ("relatime", "rw,noatime", "noatime"),
        ("strictatime", "rw", "strictatime"),
        ("dev", "rw,relatime", "dev"),
        ("nodev", "rw,relatime", "dev"),
        ("ro", "ro,relatime", "ro"),
        ("diratime", "rw,nodiratime", "nodiratime"),
    ],
)
def test_flags_are_read_from_the_mount_and_not_from_its_file_system(option: str, flags: str, found: str) -> None:
    assert shown(option, "rw", flags=flags)[0] == found


def test_what_a_remount_cannot_change_is_pending_until_it_is_mounted_anew(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, data(options=["vers=4.2", "nconnect=4"]))
    outcome = run(host, data(options=["vers=4.2", "nconnect=8", "rsize=65536"]))
    why = "a remount cannot change it: unmount /data and run again, or reboot"
    assert (outcome.error, pending(outcome)) == (None, {"nconnect": why, "rsize": why})
    assert outcome.remaining.needs == ("reboot",)
    assert started(host, "umount") == []
    # The next boot has it.
    assert "Options=vers=4.2,nconnect=8,rsize=65536\n" in host.files.read(UNIT)
    again = run(host, data(options=["vers=4.2", "nconnect=8", "rsize=65536"]))
    assert (again.status, again.changes, pending(again)) == ("pending", (), {"nconnect": why, "rsize": why})
    programs(host).umount(["umount", "/data"])
    done = run(host, data(options=["vers=4.2", "nconnect=8", "rsize=65536"]))
    assert (done.error, pending(done), unmanaged(done)) == (None, {}, [])


def test_a_mount_that_others_made_otherwise_is_right_after_the_next_boot(tmp_path: Path) -> None:
    host = machine(tmp_path, {MOUNTINFO: ROOT + nfs_line("vers=4.2,rsize=524288")})
    programs(host).allows = 524288
    entry = data(options=["vers=4.2", "rsize=1048576", "nconnect=8"])
    for _again in range(2):
        outcome = run(host, entry)
        assert (outcome.error, set(pending(outcome)), unmanaged(outcome)) == (None, {"rsize", "nconnect"}, [])
    # The next boot clears /run, and systemd mounts what our unit says.
    (tmp_path / "run/gpufleet/filesystems.json").unlink()
    boot = unit_files.at_boot(host.files.read(UNIT))
    assert boot is not None
    programs(host).put([ROOT])
    programs(host).mount(["mount", "-t", boot.fstype, "-o", boot.options, boot.source, "/data"])
    booted = run(host, entry)
    assert (booted.status, booted.changes, pending(booted)) == ("in_sync", (), {})
    assert unmanaged(booted) == [("/data", "rsize", "the server allows 524288")]
    # Something was mounted there before us, and so it stays.
    assert run(host, state="absent").error is None
    assert mounted(host, "/data") is not None


def test_the_root_of_a_server_is_an_export_like_any_other(tmp_path: Path) -> None:
    host = machine(tmp_path)
    assert run(host, data(source="nfs1:/")).error is None
    assert run(host, data(source="nfs1:/")).status == "in_sync"
    assert run(host, state="absent").error is None
    assert mounted(host, "/data") is None


def test_another_source_waits_until_the_old_one_is_unmounted(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, data())
    for _again in range(2):
        outcome = run(host, data(source="nfs2:/export/data"))
        assert outcome.error is None
        assert pending(outcome) == {
            "mount": "it stays mounted until you unmount /data, or until the next boot",
        }
        assert "What=nfs2:/export/data\n" in host.files.read(UNIT)
    # It is still known to be ours.
    assert run(host, state="absent").error is None
    assert mounted(host, "/data") is None


def test_connections_of_a_mount_that_was_first_are_named_with_it(tmp_path: Path) -> None:
    host = machine(tmp_path, {MOUNTINFO: ROOT + OTHERS})
    outcome = run(host, data(options=["vers=4.2", "nconnect=8"]))
    assert outcome.error is None
    assert pending(outcome) == {
        "nconnect": "all mounts from a server share the connections of the first: unmount /home too, then run again"
    }
    assert outcome.remaining.needs == ("remount",)
    assert outcome.effective["mounts"]["/data"]["options"].count("nconnect=8") == 0


def test_what_the_server_does_not_allow_is_said_and_is_an_error_where_it_must_not_be(tmp_path: Path) -> None:
    host = machine(tmp_path)
    programs(host).allows = 524288
    programs(host).drops = ["intr"]
    entry = data(options=["rsize=1048576", "intr"])
    outcome = run(host, entry)
    assert outcome.error is None
    assert unmanaged(outcome) == [
        ("/data", "rsize", "the server allows 524288"),
        ("/data", "intr", "the kernel was told intr, and does not show it"),
    ]
    assert ("rsize", 524288) in [(change.setting, int(change.after or 0)) for change in outcome.changes[1:2]]
    again = run(host, entry)
    assert (again.status, len(unmanaged(again))) == ("in_sync", 2)
    with pytest.raises(DeclarationError, match=r"Cannot set rsize in /data: the server allows 524288\."):
        run(host, entry, strict=True)


def test_a_cache_that_is_not_there_is_said(tmp_path: Path) -> None:
    heading = "CACHE    REF   VOLS  OBJS  ACCES S NAME\n======== ===== ===== ===== ===== = ===============\n"
    host = machine(tmp_path, {"/proc/fs/fscache/caches": heading})
    outcome = run(host, data(options=["fsc"]))
    assert [entry[1] for entry in unmanaged(outcome)] == ["fsc"]
    (tmp_path / "proc/fs/fscache/caches").write_text(f"{heading}00000001     2     1     1     0 A mycache\n")
    assert unmanaged(run(host, data(options=["fsc"]))) == []


# --- bad input ---


@pytest.mark.once
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"path": "data"}, "Cannot declare mounts[0].path: it is not the absolute path of a mount point,"),
        ({"path": "/da ta"}, "Cannot declare mounts[0].path: it is not the absolute path of a mount point,"),
        ({"path": "/data/../etc"}, "Cannot declare mounts[0].path: it is not the absolute path of a mount point,"),
        ({"path": "/"}, "Cannot declare mounts[0].path: it is not the absolute path of a mount point,"),
        ({"path": "/dev/shm"}, "Cannot declare /dev/shm: /dev belongs to the operating system."),
        ({"source": ""}, "Cannot declare mounts[0].source: it is empty, or has blanks or quotes"),
        ({"source": "/export"}, "Cannot declare mounts[0].source: it is not a server and the path that it exports"),
        ({"source": "-o:/export"}, "Cannot declare mounts[0].source: it is not a server and the path that it exports"),
        ({"source": "nfs1:/a'; rm"}, "Cannot declare mounts[0].source: it is empty, or has blanks or quotes"),
        (
            {"fstype": "xfs", "source": "/dev/nvme0n1"},
            "Cannot declare mounts[0].source: the kernel gives such names in",
        ),
        ({"fstype": "xfs", "source": "/dev/sdb1"}, "Cannot declare mounts[0].source: the kernel gives such names in"),
        ({"fstype": "ext4", "source": "LABEL=x"}, "Cannot declare mounts[0].source: it is not a device"),
        ({"fstype": "tmpfs"}, "Cannot declare mounts[0].source: tmpfs has no source"),
        ({"options": ["ro,noatime"]}, "Cannot declare mounts[0].options: it is not one option"),
        ({"options": ["ro", "rw"]}, "Cannot declare mounts[0].options: ro and rw set the same thing."),
        ({"options": ["x-systemd.makefs"]}, "x-systemd.makefs is not supported: systemd reads it only in fstab"),
        ({"options": ["noauto"]}, "noauto is not supported: the mount is always made at boot."),
        ({"options": ["bind"]}, "bind is not supported: that mounts a folder, not a file system."),
        ({"options": ["rsize=1000000"]}, "the kernel rounds what is not a multiple of 4096 bytes"),
        (
            {"options": ["nconnect=65"]},
            "Cannot declare mounts[0].options: the kernel takes 1 to 16, and the client of VAST 1 to 64",
        ),
        ({"options": ["timeo="]}, "Cannot declare mounts[0].options: it has no value"),
        ({"fstype": "tmpfs", "source": "", "options": ["size=lots"]}, "it is not a size"),
        ({"read_ahead_kb": 127}, "mounts[0].read_ahead_kb: the kernel rounds what is not a multiple of 4 KiB"),
        (
            {"fstype": "xfs", "source": "UUID=1", "read_ahead_kb": 128},
            "Cannot declare mounts[0].read_ahead_kb: the read-ahead of a disk is that of its queue.",
        ),
    ],
)
def test_what_no_machine_could_have_is_refused_with_the_reason(
    tmp_path: Path, entry: Mapping[str, Any], message: str
) -> None:
    host = machine(tmp_path)
    with pytest.raises(DeclarationError) as caught:
        run(host, data(**entry))
    assert message in str(caught.value)
    assert host.files.reads == []


@pytest.mark.once
def test_mount_points_that_hide_each_other_are_refused(tmp_path: Path) -> None:
    host = machine(tmp_path)
    with pytest.raises(DeclarationError, match="/data is declared too, and one would hide the other"):
        run(host, data(), {**HOT, "path": "/data/hot"})
    with pytest.raises(DeclarationError, match="no mount is declared"):
        run(host, mounts=[])


REFUSED: Mapping[str, Any] = {
    "not empty": (
        {"/data/results": ""},
        DeclarationError,
        "Cannot mount /data: it is not empty, and a mount would hide its content (found results).",
    ),
    "a file": ({"/data": ""}, DeclarationError, "Cannot mount /data: it is not a folder."),
    "another mount": (
        {MOUNTINFO: ROOT + nfs_line("vers=4.2", source="nfs9:/other")},
        OwnedByAnother,
        "Cannot mount /data: something else is mounted there (found nfs nfs9:/other, wanted nfs nfs1:/export/data).",
    ),
    "a folder of it": (
        {MOUNTINFO: ROOT + nfs_line("vers=4.2", source="nfs1:/export/data/sub").replace(" / /data", " /sub /data")},
        OwnedByAnother,
        "something else is mounted there (found nfs nfs1:/export/data/sub,",
    ),
    "autofs": (
        {MOUNTINFO: f"{ROOT}61 25 0:61 / /data rw,relatime - autofs systemd-1 rw,fd=43\n"},
        OwnedByAnother,
        "something else is mounted there (found autofs systemd-1,",
    ),
    "a unit of others": (
        {UNIT: "[Mount]\nWhat=nfs9:/x\nWhere=/data\n"},
        OwnedByAnother,
        f"Cannot write {UNIT}: the unit is a file of someone else.",
    ),
    "masked": ({UNIT: ""}, OwnedByAnother, f"Cannot write {UNIT}: it is masked."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mount_point_that_belongs_to_others_is_refused_before_anything_changes(tmp_path: Path, case: str) -> None:
    files, error, message = REFUSED[case]
    host = machine(tmp_path, files)
    before = snapshot(tmp_path)
    with pytest.raises(error) as caught:
        run(host, data())
    assert message in str(caught.value)
    assert snapshot(tmp_path) == before


def test_a_folder_of_a_disk_that_is_mounted_there_is_not_the_disk(tmp_path: Path) -> None:
    table = f"{ROOT}61 25 259:1 /sub /srv/scratch rw,noatime - xfs /dev/nvme0n1p1 rw\n"
    host = machine(tmp_path, {MOUNTINFO: table})
    with pytest.raises(OwnedByAnother, match=r"\(found /sub of xfs /dev/nvme0n1p1,"):
        run(host, SCRATCH)


def test_what_the_kernel_calls_the_root_of_an_export_does_not_count(tmp_path: Path) -> None:
    line = nfs_line("vers=4.2").replace(" / /data", " /data /data")
    host = machine(tmp_path, {MOUNTINFO: ROOT + line})
    outcome = run(host, data())
    assert (outcome.error, outcome.effective["mounts"]["/data"]["source"]) == (None, "nfs1:/export/data")


def test_a_mount_point_in_a_mount_of_the_network_is_refused_without_asking_for_it(tmp_path: Path) -> None:
    host = machine(tmp_path, {MOUNTINFO: ROOT + OTHERS})
    asked: List[str] = []
    for name in ("exists", "names", "is_folder", "resolve", "status"):
        method = getattr(host.files, name)
        setattr(host.files, name, lambda path, method=method: asked.append(path) or method(path))
    with pytest.raises(DeclarationError, match="it is inside the mount /home, and would hang whenever the server"):
        run(host, {**HOT, "path": "/home/hot"})
    assert [path for path in asked if path.startswith("/home")] == []


def test_nothing_in_a_mount_is_asked_for_by_a_look_or_a_run(tmp_path: Path) -> None:
    """Its server may be gone: what asks for a path would hang."""
    line = nfs_line("vers=4.2", flags="rw,relatime")
    host = machine(tmp_path, {MOUNTINFO: ROOT + line, "/sys/class/bdi/0:61/read_ahead_kb": "128\n"})
    asked: List[str] = []
    for name in ("exists", "names", "is_folder", "resolve", "status", "read_optional", "free", "locate"):
        method = getattr(host.files, name)
        setattr(host.files, name, lambda path, method=method: asked.append(path) or method(path))
    run(host, data(options=["noatime"], read_ahead_kb=4096))
    run(host, state="absent")
    assert len(asked) > 20
    assert [path for path in asked if mounts.is_below(path, "/data")] == []


def test_a_link_is_no_mount_point(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/srv/data/.keep": ""}, {"/data": "/srv/data"})
    with pytest.raises(DeclarationError, match=r"it is a symbolic link or lies behind one.*\(found /srv/data\)"):
        run(host, data())


def test_what_this_machine_lacks_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path)
    with pytest.raises(DeclarationError, match="this machine has no /dev/disk/by-uuid/77aa"):
        run(host, {**SCRATCH, "source": "UUID=77aa"})
    # One that is reached over a network may still come, so that this is not known to be wrong.
    with pytest.raises(CannotLook, match=r"no /dev/disk/by-uuid/77aa\. Connect the disk, with nvme_of") as caught:
        run(host, {**SCRATCH, "source": "UUID=77aa", "options": ["_netdev"]})
    assert caught.value.failure()["code"] == "no_disk"
    del host.commands.programs["mount.nfs"]
    with pytest.raises(
        DeclarationError, match=r"the client of NFS is not installed\. There is no mount\.nfs: install nfs-common"
    ):
        run(host, data())


def test_a_server_that_does_not_respond_costs_a_deadline_and_leaves_nothing(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    programs(host).dead = ["nfs1:/export/data"]
    outcome = run(host, data())
    assert str(outcome.error) == (
        "Cannot mount /data: mount did not end within 60 seconds."
        " Check whether its server responds, and the network between them."
    )
    assert snapshot(tmp_path) == before


def test_a_server_that_is_gone_does_not_keep_the_other_mounts(tmp_path: Path) -> None:
    host = machine(tmp_path)
    programs(host).dead = ["nfs1:/export/data", "nfs1:/export/more"]
    more = {**data(), "path": "/more", "source": "nfs1:/export/more"}
    outcome = run(host, data(), more, HOT)
    assert "did not end within 60 seconds; 1 other mount failed too." in str(outcome.error)
    assert mounted(host, "/hot") is not None
    # The next run gives that one its unit before it asks the server again.
    assert run(host, data(), more, HOT).error is not None
    assert host.files.exists("/etc/systemd/system/local-fs.target.wants/hot.mount")
    assert not host.files.exists(UNIT)


def test_what_the_server_said_is_in_the_message(tmp_path: Path) -> None:
    host = machine(tmp_path)
    programs(host).says = "mount.nfs: access denied by server while mounting nfs1:/export/data\nmore\n"
    assert str(run(host, data()).error) == (
        "Cannot mount /data: mount.nfs: access denied by server while mounting nfs1:/export/data."
    )


def test_two_read_aheads_of_one_file_system_are_refused(tmp_path: Path) -> None:
    host = machine(tmp_path, {MOUNTINFO: ROOT + nfs_line("vers=4.2") + nfs_line("vers=4.2", path="/more")})
    with pytest.raises(DeclarationError, match="/data is the same file system, and the two share one read-ahead"):
        run(host, data(read_ahead_kb=4096), {**data(read_ahead_kb=128), "path": "/more"})


# --- what goes ---


def test_what_is_no_longer_declared_is_unmounted(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, NFS_MOUNT, HOT)
    outcome = run(host, HOT)
    assert outcome.error is None
    assert mounted(host, "/data") is None
    assert not host.files.exists(UNIT)
    assert not host.files.exists(READ_AHEAD)
    assert not host.files.exists("/etc/systemd/system/remote-fs.target.wants/data.mount")


def there_before(tmp_path: Path, **files: str) -> FakeHost:
    line = nfs_line("vers=4.2", flags="rw,nosuid,relatime")
    return machine(tmp_path, {MOUNTINFO: ROOT + line, "/sys/class/bdi/0:61/read_ahead_kb": "128\n", **files})


# What is left once /data, which was there before us, is wanted no more.
NO_MORE: Mapping[str, Any] = {"absent": {"state": "absent"}, "orphaned": {"mounts": [HOT]}}
CHANGED = data(options=["noatime", "nodev"], read_ahead_kb=4096)


@pytest.mark.parametrize("way", NO_MORE)
@pytest.mark.parametrize("rebooted", [False, True])
def test_a_mount_from_before_us_is_as_it_was_once_it_is_wanted_no_more(
    tmp_path: Path, way: str, rebooted: bool
) -> None:
    host = there_before(tmp_path)
    assert run(host, CHANGED, HOT).error is None
    assert set(mounted_flags(host)) == {"rw", "nosuid", "nodev", "noatime"}
    if rebooted:
        (tmp_path / "run/gpufleet/filesystems.json").unlink()
    predicted = run(host, check=True, **NO_MORE[way])
    outcome = run(host, **NO_MORE[way])
    assert (outcome.error, outcome.changes) == (None, predicted.changes)
    assert [argv[-1] for argv in started(host, "umount")] == ([] if way == "orphaned" else ["/hot"])
    assert set(mounted_flags(host)) == {"rw", "nosuid", "relatime"}
    assert host.files.read("/sys/class/bdi/0:61/read_ahead_kb") == "128\n"
    assert not host.files.exists(UNIT)
    assert not host.files.exists(READ_AHEAD)
    again = run(host, **NO_MORE[way])
    assert (again.status, again.changes) == ("in_sync", ())


@pytest.mark.parametrize("way", NO_MORE)
def test_a_mount_from_before_us_may_be_in_use_once_it_is_wanted_no_more(tmp_path: Path, way: str) -> None:
    host = there_before(tmp_path, **{"/proc/4711/comm": "python3\n", "/proc/4711/maps": ""})
    run(host, CHANGED)
    (tmp_path / "proc/4711/cwd").symlink_to("/data/set")
    assert run(host, **NO_MORE[way]).error is None
    assert mounted(host, "/data") is not None


@pytest.mark.parametrize("way", NO_MORE)
def test_a_mount_from_before_us_that_we_made_again_stays_too(tmp_path: Path, way: str) -> None:
    host = there_before(tmp_path)
    run(host, NFS_MOUNT)
    programs(host).umount(["umount", "/data"])
    assert run(host, NFS_MOUNT).error is None
    for _again in range(2):
        assert run(host, **NO_MORE[way]).error is None
        assert mounted(host, "/data") is not None
        assert not host.files.exists(UNIT)


@pytest.mark.parametrize("way", NO_MORE)
def test_what_fstab_brings_gets_its_flags_back_once_it_is_wanted_no_more(tmp_path: Path, way: str) -> None:
    host = there_before(tmp_path, **{"/etc/fstab": "nfs1:/export/data /data nfs nosuid 0 0\n"})
    run(host, CHANGED)
    assert run(host, **NO_MORE[way]).error is None
    assert set(mounted_flags(host)) == {"rw", "nosuid", "relatime"}


@pytest.mark.parametrize("way", NO_MORE)
def test_a_run_that_is_killed_while_a_mount_goes_back_to_others_is_completed_by_the_next(
    tmp_path: Path, way: str
) -> None:
    kills, found, at = 0, None, 0
    while kills == at:
        at += 1
        folder = tmp_path / str(at)
        host = there_before(folder)
        run(host, CHANGED, HOT)
        kill_before(host, at)
        try:
            run(host, **NO_MORE[way])
        except Killed:
            kills += 1
        host.files.kill_at = None
        assert run(host, **NO_MORE[way]).error is None, at
        now = (snapshot(folder / "etc"), mounted_flags(host), host.files.read("/sys/class/bdi/0:61/read_ahead_kb"))
        found = found or now
        assert now == found, at
    assert kills > 8
    assert found is not None
    assert (set(found[1]), found[2]) == ({"rw", "nosuid", "relatime"}, "128\n")


def kill_before(host: FakeHost, at: int) -> None:
    """Before the n-th thing that a run does, whether it writes or starts a program."""
    host.files.log.clear()
    host.files.kill_at = at
    work = host.commands.run

    def counted(argv: Sequence[str], **more: Any) -> Any:
        host.files.effect("run", " ".join(argv), "")
        return work(argv, **more)

    host.commands.run = counted  # type: ignore[method-assign]


def test_flags_of_what_is_managed_no_more_are_left_to_whoever_changes_them(tmp_path: Path) -> None:
    host = there_before(tmp_path)
    run(host, CHANGED, HOT)
    run(host, HOT)
    programs(host).remount("/data", ["remount", "bind", "ro", "noatime"])
    again = run(host, HOT)
    assert (again.status, again.changes) == ("in_sync", ())
    assert set(mounted_flags(host)) == {"ro", "noatime"}


def test_a_mount_of_which_no_record_is_left_stays_without_its_unit(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, data(), HOT)
    (tmp_path / "var/lib/gpufleet/baseline/filesystems.json").unlink()
    assert run(host, HOT).error is None
    assert mounted(host, "/data") is not None
    assert not host.files.exists(UNIT)


@pytest.mark.parametrize("link", ["cwd", "root", "exe", "fd/7"])
def test_a_mount_that_is_in_use_is_not_unmounted_and_its_users_are_named(tmp_path: Path, link: str) -> None:
    users = {"/proc/4711/comm": "python3\n", "/proc/4711/maps": "", "/proc/4711/fd/.keep": ""}
    host = machine(tmp_path, users)
    run(host, data())
    (tmp_path / "proc/4711" / link).symlink_to("/data/set/1.tar")
    before = snapshot(tmp_path)
    message = r"Cannot unmount /data: in use by python3 \(4711\)\."
    with pytest.raises(InUse, match=message):
        run(host, state="absent")
    with pytest.raises(InUse, match=message):
        run(host, HOT)
    assert snapshot(tmp_path) == before


def test_a_library_that_is_mapped_from_a_mount_is_in_use(tmp_path: Path) -> None:
    maps = "7f00-7f01 r-xp 00000000 00:3d 12 /data/lib/a b.so\n7f02-7f03 rw-p 00000000 00:00 0\n"
    host = machine(tmp_path, {"/proc/4711/comm": "python3\n", "/proc/4711/maps": maps})
    run(host, data())
    with pytest.raises(InUse, match=r"in use by python3 \(4711\)"):
        run(host, state="absent")


def test_a_mount_with_another_one_in_it_is_in_use(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, data())
    programs(host).put([*programs(host).lines, "88 61 0:88 / /data/x rw - tmpfs x rw\n"])
    with pytest.raises(InUse, match="Cannot unmount /data: /data/x is mounted in it"):
        run(host, state="absent")


def test_what_became_busy_since_the_look_is_an_error_that_says_so(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, data())
    programs(host).says = "umount: /data: target is busy.\n"
    assert str(run(host, state="absent").error) == "Cannot unmount /data: umount: /data: target is busy."
    assert mounted(host, "/data") is not None
    assert host.files.exists(UNIT)


def test_what_somebody_else_mounted_there_meanwhile_stays(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, data())
    programs(host).umount(["umount", "/data"])
    other = nfs_line("vers=4.2", source="nfs9:/other").replace("61 25 0:61", "77 25 0:77")
    programs(host).put([*programs(host).lines, other])
    assert run(host, state="absent").error is None
    found = mounted(host, "/data")
    assert found is not None
    assert found.source == "nfs9:/other"
    assert not host.files.exists(UNIT)


def test_lines_of_fstab_are_named_and_kept_and_decide_again_without_us(tmp_path: Path) -> None:
    text = f"{FILES['/etc/fstab']}nfs1:/export/data /data nfs ro 0 0\n"
    host = machine(tmp_path, {"/etc/fstab": text})
    outcome = run(host, data(), HOT)
    assert [vars(entry) for entry in outcome.remaining.conflicts] == [
        {
            "owner": "fstab",
            "path": "/etc/fstab",
            "line": 4,
            "object": "/data",
            "setting": "mount",
            "value": "nfs nfs1:/export/data",
            "wins": "us",
            "accepted": "",
        }
    ]
    assert host.files.read("/etc/fstab") == text
    # Not declared any more it is theirs, so that it stays mounted.
    assert run(host, HOT).error is None
    assert not host.files.exists(UNIT)
    assert mounted(host, "/data") is not None


def test_what_fstab_brings_at_boot_is_as_it_was_found_after_absent(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/etc/fstab": "nfs9:/old /data nfs defaults 0 0\n"})
    before = snapshot(tmp_path)
    assert run(host, data()).error is None
    assert [change.before for change in run(host, data(), check=True).changes] == []
    assert run(host, state="absent").error is None
    assert snapshot(tmp_path) == before
    assert run(host, state="absent").changes == ()


def test_only_now_or_only_at_boot(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, data(), permanent=False)
    assert (mounted(host, "/data") is not None, host.files.exists(UNIT)) == (True, False)
    # Without a unit it is known by the note.
    run(host, state="absent")
    assert mounted(host, "/data") is None
    run(host, data(), immediate=False)
    assert (mounted(host, "/data") is not None, host.files.exists(UNIT)) == (False, True)


@pytest.mark.once
@pytest.mark.parametrize(
    ("setting", "value"), [("mount", 7), ("read_ahead_kb", "much"), ("atime", "rw"), ("size", "; reboot")]
)
def test_values_that_no_mount_had_are_a_damaged_record(tmp_path: Path, setting: str, value: Any) -> None:
    host = machine(tmp_path, {MOUNTINFO: ROOT + nfs_line("vers=4.2")})
    run(host, data(options=["noatime"]))
    path = tmp_path / "var/lib/gpufleet/baseline/filesystems.json"
    document = json.loads(path.read_text())
    others = [entry for entry in document["values"] if (entry["identity"], entry["setting"]) != ("/data", setting)]
    found = {"identity": "/data", "setting": setting, "effective": value, "boot": None}
    path.write_text(json.dumps({**document, "values": [*others, found]}))
    with pytest.raises(CannotLook, match="the file is damaged"):
        run(host, state="absent")
    with pytest.raises(CannotLook, match="the file is damaged"):
        run(host, HOT)


# --- automounts ---

# As Linux 6.12 and systemd 257 show them, before the first access to the path and after it.
AUTOMOUNT = (
    "58 25 0:55 / /data rw,relatime shared:28 - autofs systemd-1 rw,fd=75,pgrp=1,timeout=0,minproto=5,maxproto=5,"
    "direct,pipe_ino=9317\n"
)
# What systemd-fstab-generator makes of a line with x-systemd.automount.
GENERATED = """\
# Automatically generated by systemd-fstab-generator

[Unit]
SourcePath=/etc/fstab

[Mount]
What=nfs1:/export/data
Where=/data
Type=nfs4
Options=vers=4.2,hard,x-systemd.automount,_netdev
"""
GENERATED_UNIT = "/run/systemd/generator/data.mount"
AUTOMOUNTED = data(options=["vers=4.2", "hard", "_netdev"])


def waiting(tmp_path: Path, more: str = "", *, unit: Optional[str] = GENERATED) -> FakeHost:
    """A machine on which systemd waits for the first access to /data, which must not be a look."""
    host = machine(tmp_path, {MOUNTINFO: ROOT + AUTOMOUNT + more, GENERATED_UNIT: unit})
    for name in ("exists", "is_folder", "names", "resolve", "link", "status", "modified", "mode", "read_optional"):
        setattr(host.files, name, without_access(getattr(host.files, name)))
    return host


def without_access(ask: Callable[[str], Any]) -> Callable[[str], Any]:
    def asked(path: str) -> Any:
        assert not mounts.is_below(path, "/data")
        return ask(path)

    return asked


@pytest.mark.parametrize("accessed", [False, True])
def test_an_automount_of_what_is_declared_is_the_declared_mount_before_and_after_its_first_access(
    tmp_path: Path, accessed: bool
) -> None:
    host = waiting(tmp_path, nfs_line("vers=4.2") if accessed else "")
    outcome = run(host, AUTOMOUNTED)
    assert outcome.error is None
    assert [change.setting for change in outcome.changes if (change.object, change.scope) == ("/data", EFFECTIVE)] == []
    assert [started(host, program) for program in ("mount", "umount", "mkdir")] == [[], [], []]
    again = run(host, AUTOMOUNTED)
    assert (again.status, again.changes) == ("in_sync", ())
    assert again.effective["mounts"]["/data"]["source"] == "nfs1:/export/data"


def test_what_we_mount_behind_an_automount_of_others_stays_in_sync_when_it_expires(tmp_path: Path) -> None:
    host = waiting(tmp_path, nfs_line("vers=4.2"))
    run(host, AUTOMOUNTED)
    programs(host).put([ROOT, AUTOMOUNT])
    assert run(host, AUTOMOUNTED).status == "in_sync"
    outcome = run(host, state="absent")
    assert outcome.error is None
    # Who made the automount ends it.
    assert started(host, "umount") == []
    assert host.files.read(MOUNTINFO) == ROOT + AUTOMOUNT


def test_an_option_that_the_first_access_lacks_comes_with_our_unit_and_without_an_access(tmp_path: Path) -> None:
    host = waiting(tmp_path)
    wanted = data(options=["vers=4.2", "hard", "_netdev", "noatime"], read_ahead_kb=15360)
    planned = run(host, wanted, check=True)
    assert pending(planned) == {"atime": "the first access to /data mounts it with the options of its unit"}
    outcome = run(host, wanted)
    assert outcome.error is None
    assert pending(outcome) == {}
    assert started(host, "mount") == []
    assert run(host, wanted).status == "in_sync"


@pytest.mark.parametrize(
    ("unit", "found"),
    [
        (GENERATED.replace("/export/data", "/export/other"), "an automount of nfs nfs1:/export/other"),
        (GENERATED.replace("Type=nfs4", "Type=cifs"), "an automount of cifs nfs1:/export/data"),
        (None, "autofs systemd-1"),
    ],
)
def test_an_automount_of_something_else_is_a_conflict(tmp_path: Path, unit: Optional[str], found: str) -> None:
    host = waiting(tmp_path, unit=unit)
    before = snapshot(tmp_path)
    with pytest.raises(OwnedByAnother) as refused:
        run(host, AUTOMOUNTED)
    assert refused.value.found == found
    assert snapshot(tmp_path) == before


def test_a_map_of_automount_8_is_not_a_unit_of_systemd(tmp_path: Path) -> None:
    line = AUTOMOUNT.replace("systemd-1", "/etc/auto.direct")
    host = machine(tmp_path, {MOUNTINFO: ROOT + line, GENERATED_UNIT: GENERATED})
    with pytest.raises(OwnedByAnother) as refused:
        run(host, AUTOMOUNTED)
    assert refused.value.found == "autofs /etc/auto.direct"


def test_a_new_source_of_our_own_unit_behind_an_automount_counts_from_the_next_access(tmp_path: Path) -> None:
    host = waiting(tmp_path)
    run(host, AUTOMOUNTED)
    other = {**AUTOMOUNTED, "source": "nfs1:/export/new"}
    assert run(host, other).error is None
    assert "What=nfs1:/export/new\n" in host.files.read(UNIT)
    assert run(host, other).status == "in_sync"
    assert started(host, "mount") == []


SCRATCH_AUTOMOUNT = {
    MOUNTINFO: ROOT + AUTOMOUNT.replace("/data", "/srv/scratch"),
    "/run/systemd/generator/srv-scratch.mount": "[Mount]\nWhat=/dev/nvme0n1p1\nWhere=/srv/scratch\nType=xfs\n"
    "Options=noatime,allocsize=64m\n",
}


def test_an_automount_of_a_device_is_the_declared_one_by_any_of_its_names(tmp_path: Path) -> None:
    host = machine(tmp_path, SCRATCH_AUTOMOUNT)
    assert run(host, SCRATCH).error is None
    assert run(host, SCRATCH).status == "in_sync"
    assert started(host, "mount") == []


def test_an_automount_of_a_device_that_is_missing_is_refused(tmp_path: Path) -> None:
    host = machine(tmp_path, {**SCRATCH_AUTOMOUNT, "/sys/devices/virtual/block/nvme0n1p1/dev": None})
    with pytest.raises(DeclarationError, match=f"this machine has no {DISK}"):
        run(host, SCRATCH)


def test_an_automount_of_memory_is_the_declared_one(tmp_path: Path) -> None:
    unit = "[Mount]\nWhat=tmpfs\nWhere=/hot\nType=tmpfs\nOptions=size=64g,nosuid\n"
    files = {MOUNTINFO: ROOT + AUTOMOUNT.replace("/data", "/hot"), "/run/systemd/generator/hot.mount": unit}
    host = machine(tmp_path, files)
    assert run(host, HOT).error is None
    assert run(host, HOT).status == "in_sync"
    assert started(host, "mount") == []
