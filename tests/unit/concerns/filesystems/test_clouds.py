# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mounts of which the kernel shows something else than what was mounted, and those that are only compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    OwnedByAnother,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux import mounts
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.filesystems import scale, sources, values
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems.clouds_machine import (
    BLOBFUSE,
    BUNDLE,
    EFS,
    GCSFUSE,
    GPFS,
    HF3FS,
    HF3FS_MOUNT,
    JUICEFS,
    MADE,
    MOUNTPOINT,
    RCLONE,
    S3FS,
    SCALE_MOUNT,
    VAST,
    begun,
    clouds,
    machine,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems.filesystems_machine import (
    HOT,
    MOUNTINFO,
    ROOT,
    mounted,
    pending,
    programs,
    run,
    unmanaged,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems.parallel_machine import (
    ANEW,
    MODULES,
    RELEASE,
    UNIT,
    mount_by_unit,
    with_options,
)
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_USER, FakeHost, snapshot

PROXIED = (
    "61 25 0:61 / /data rw,noatime shared:9 - nfs4 127.0.0.1:{}"
    " rw,vers=4.1,rsize=1048576,proto=tcp,port={},addr=127.0.0.1\n"
)
FUSE = "61 25 0:61 / /data rw,nosuid,nodev,relatime shared:9 - {} {} rw,user_id=0,group_id=0,allow_other\n"


def boot(tmp_path: Path, host: FakeHost) -> None:
    """What systemd mounts by our units after /run is cleared, by other proxies and processes than before."""
    programs(host).umount(["umount", "/data"])
    (tmp_path / "run/gpufleet/filesystems.json").unlink()
    clouds(host).port += 1
    mount_by_unit(host)


# --- what was mounted, and is at boot ---


@pytest.mark.parametrize("kind", MADE)
def test_each_type_is_mounted_now_and_at_boot_and_leaves_nothing_after_absent(tmp_path: Path, kind: str) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    entry = {key: value for key, value in MADE[kind].items() if key != "read_ahead_kb"}
    predicted = run(host, entry, check=True)
    assert snapshot(tmp_path) == before
    outcome = run(host, entry)
    assert (outcome.error, outcome.changes) == (None, predicted.changes)
    found = outcome.effective["mounts"]["/data"]
    assert (found["fstype"] in (kind, f"fuse.{kind}", "fuse")) is True
    assert host.files.link("/etc/systemd/system/remote-fs.target.wants/data.mount") == UNIT
    again = run(host, entry)
    assert (again.status, again.changes, unmanaged(again)) == ("in_sync", (), [])
    boot(tmp_path, host)
    booted = run(host, entry)
    assert (booted.status, booted.changes, unmanaged(booted)) == ("in_sync", (), [])
    assert booted.boot["mounts"]["/data"]["fstype"] == kind
    # Also what a boot mounted is known to be ours.
    assert run(host, state="absent").error is None
    assert snapshot(tmp_path) == before


@pytest.mark.once
@pytest.mark.parametrize(
    ("entry", "what", "fstype", "options"),
    [
        (EFS, "fs-0123456789abcdef0:/sets", "efs", [*EFS["options"], "_netdev"]),
        (BLOBFUSE, "blobfuse2", "fuse3", [*BLOBFUSE["options"], "_netdev"]),
        (MOUNTPOINT, "s3://sets/2026/", "mount-s3", [*MOUNTPOINT["options"], "_netdev", "nosuid", "nodev"]),
        (with_options(MOUNTPOINT, "suid"), "s3://sets/2026/", "mount-s3", ["suid", "_netdev", "nodev"]),
        (RCLONE, "s3:sets/2026", "rclone", [*RCLONE["options"], "_netdev"]),
        (S3FS, "sets:/2026", "fuse.s3fs", [*S3FS["options"], "_netdev"]),
    ],
)
def test_units_have_the_names_that_mount_knows(
    tmp_path: Path, entry: Mapping[str, Any], what: str, fstype: str, options: List[str]
) -> None:
    host = machine(tmp_path)
    run(host, entry)
    lines = host.files.read(UNIT).splitlines()
    assert [line for line in lines if line.startswith(("What", "Type", "Options", "WantedBy"))] == [
        f"What={what}",
        f"Type={fstype}",
        f"Options={','.join(options)}",
        "WantedBy=remote-fs.target",
    ]


@pytest.mark.parametrize("kind", MADE)
def test_the_process_that_serves_a_mount_outlives_the_run_and_has_what_it_has_at_boot(
    tmp_path: Path, kind: str
) -> None:
    host = machine(tmp_path)
    run(host, MADE[kind])
    (command,) = begun(host)
    at = command.index("mount")
    scope = ("systemd-run", "--scope", "--quiet", "--collect", "--property=Before=data.mount", "--")
    assert command[: len(scope)] == scope
    # What is in the home of root is not found at boot either.
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert command[len(scope) : at] == ("env", "--ignore-environment", "LANG=C", path)


@pytest.mark.once
def test_the_name_of_its_unit_is_written_as_systemd_run_reads_it(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {**RCLONE, "path": "/srv/my-sets"})
    # As recorded of systemd 252 and 257, which leave out a backslash that is alone.
    assert "--property=Before=srv-my\\\\x2dsets.mount" in begun(host)[0]


def test_a_mount_without_a_process_is_made_as_ever(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, VAST, HOT)
    assert [argv[0] for argv in begun(host)] == ["mount", "mount"]


def test_what_the_program_said_is_in_the_message_and_nothing_is_left(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    programs(host).says = "Error: unknown flag: --noatime\nUsage:\n  rclone mount remote:path\n"
    outcome = run(host, RCLONE)
    assert str(outcome.error) == (
        "Cannot mount /data: Error: unknown flag: --noatime. Check its options; they must name its files,"
        " because it starts without HOME, as at boot."
    )
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("kind", MADE)
def test_a_server_that_does_not_respond_costs_a_deadline_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    programs(host).dead = [MADE[kind].get("source", "blobfuse2")]
    assert "Cannot mount /data: mount did not end within 60 seconds." in str(run(host, MADE[kind]).error)
    assert snapshot(tmp_path) == before


# --- the read-ahead ---


@pytest.mark.parametrize("entry", [EFS, RCLONE], ids=["efs", "rclone"])
def test_the_read_ahead_is_set_and_read_back(tmp_path: Path, entry: Mapping[str, Any]) -> None:
    host = machine(tmp_path)
    assert run(host, entry).error is None
    assert (clouds(host).bdi("/data") / "read_ahead_kb").read_text().strip() == "4096"
    again = run(host, entry)
    assert (again.status, again.effective["mounts"]["/data"]["read_ahead_kb"]) == ("in_sync", 4096)


def test_the_read_ahead_waits_for_the_first_answer_of_a_program_behind_fuse(tmp_path: Path) -> None:
    host = machine(tmp_path)
    file = "read_ahead_kb"

    def answered(argv: Any) -> Completed:
        # fuse_process_init_reply of the kernel: the lower of both.
        (clouds(host).bdi(argv[-1]) / file).write_text("128\n")
        return Completed(0, "", "")

    host.commands.programs["stat"] = answered
    assert run(host, RCLONE).error is None
    assert (clouds(host).bdi("/data") / file).read_text().strip() == "4096"
    service = host.files.read("/etc/systemd/system/gpufleet-read-ahead-data.service")
    assert "settle --timeout=10; stat /data >/dev/null; echo 4096 >" in service
    run(host, {**EFS, "path": "/home"})
    assert "stat /home" not in host.files.read("/etc/systemd/system/gpufleet-read-ahead-home.service")


GONE = "stat: cannot statx '/data': Software caused connection abort\n"


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize(
    ("done", "said"),
    [
        # As s3fs 1.90 leaves it without its bucket, after it said that all went well.
        (Completed(1, "", GONE), "s3fs made the mount, but does not serve it: stat: cannot statx '/data': Software"),
        (Completed(124, "", ""), "s3fs made the mount, but does not serve it: stat did not end within 60 seconds"),
    ],
)
def test_a_program_that_does_not_answer_after_the_mount_leaves_none(
    tmp_path: Path, done: Completed, said: str, stays: bool
) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)

    def answered(argv: Any) -> Completed:
        if not stays:
            clouds(host).umount(["umount", argv[-1]])
        return done

    host.commands.programs["stat"] = answered
    outcome = run(host, S3FS)
    assert isinstance(outcome.error, Refused)
    assert f"Cannot mount /data: {said}" in str(outcome.error)
    assert "Check the journal for messages of s3fs" in str(outcome.error)
    assert snapshot(tmp_path) == before


# --- what is mounted ---


@pytest.mark.once
@pytest.mark.parametrize(
    ("kind", "source", "shown", "same"),
    [
        ("efs", "fs-0123456789abcdef0", "fs-0123456789abcdef0:/", True),
        ("efs", "fs-0123456789abcdef0:/a/", "fs-0123456789abcdef0:/a", True),
        ("efs", "fs-0123456789abcdef0:/a", "fs-0123456789abcdef0:/b", False),
        ("efs", "fs-0123456789abcdef0:/", "fs-0123456789abcdef1:/", False),
        ("efs", "fs-0123456789abcdef0:/a", "us-east-1a.fs-0123456789abcdef0.efs.us-east-1.amazonaws.com:/a", True),
        ("gpfs", "gpfs0", "/dev/gpfs0", True),
        ("gpfs", "gpfs0", "gpfs1", False),
        ("hf3fs", "hf3fs.stage", "hf3fs.prod", False),
        ("rclone", "s3:sets/", "s3:sets", True),
        ("rclone", "s3:sets", "s3{dCJ5F}:sets", True),
        ("rclone", "s3:sets", "gcs{dCJ5F}:sets", False),
        ("rclone", ":local:/srv/sets", ":local:/srv/sets", True),
        ("gcsfuse", "sets", "others", False),
        ("s3fs", "sets:/a", "sets:/a/", True),
        ("s3fs", "sets", "sets:/", True),
        ("s3fs", "sets", "sets:/a", False),
        ("s3fs", "sets", "others", False),
        ("s3fs", "sets", "s3fs", True),
        ("mountpoint-s3", "s3://sets", "sets", True),
        ("mountpoint-s3", "s3://sets/a/", "s3://sets/a/", True),
        ("mountpoint-s3", "s3://sets/a/", "s3://sets/", False),
        ("mountpoint-s3", "s3://sets/a/", "mountpoint-s3", True),
        ("juicefs", "redis://redis1:6379/1", "redis://redis1:6379/1", True),
        ("juicefs", "redis://redis1:6379/1", "redis://redis1:6379/2", False),
        ("juicefs", "redis://redis1:6379/1", "JuiceFS:sets", True),
        ("juicefs", "sets", "JuiceFS:sets", True),
        ("juicefs", "sets", "JuiceFS:others", False),
    ],
)
def test_what_is_mounted_is_known_in_each_of_its_forms(kind: str, source: str, shown: str, same: bool) -> None:
    mount = mounts.parse(f"61 25 0:61 / /data rw - {kind} {shown} rw\n")[0]
    assert sources.is_source(kind, source, mount) is same


PROCESSES: Mapping[str, Tuple[Dict[str, Any], str, str, List[str], List[str]]] = {
    "s3fs": (S3FS, "fuse.s3fs", "s3fs", ["s3fs", "sets", "/2026", "/data"], ["s3fs", "others", "/2026", "/data"]),
    "whole": (
        {**S3FS, "source": "sets"},
        "fuse.s3fs",
        "s3fs",
        ["/usr/bin/s3fs", "sets", "/data", "-o", "rw"],
        ["/usr/bin/s3fs", "others", "/data"],
    ),
    "mountpoint-s3": (
        MOUNTPOINT,
        "fuse",
        "mountpoint-s3",
        ["/sbin/mount.mount-s3", "s3://sets/2026/", "/data", "-o", "rw"],
        ["mount-s3", "--read-only", "sets", "/data"],
    ),
    "juicefs": (
        JUICEFS,
        "fuse.juicefs",
        "JuiceFS:sets",
        ["/usr/local/bin/juicefs", "mount", "-d", "redis://redis1:6379/1", "/data"],
        ["juicefs", "mount", "redis://redis1:6379/2", "/data", "-d"],
    ),
}


@pytest.mark.parametrize("case", PROCESSES)
def test_what_the_kernel_does_not_say_is_known_from_the_process_that_serves_it(tmp_path: Path, case: str) -> None:
    entry, fstype, shown, same, other = PROCESSES[case]
    host = machine(tmp_path, {MOUNTINFO: ROOT + FUSE.format(fstype, shown)})
    clouds(host).process(*same)
    bare = with_options(entry, "allow_other", "nosuid", "nodev")
    outcome = run(host, bare)
    assert (outcome.error, unmanaged(outcome), begun(host)) == (None, [], [])
    assert (outcome.effective["mounts"]["/data"]["fstype"], run(host, bare).status) == (entry["fstype"], "in_sync")
    run(host, state="absent")
    clouds(host).process(*other)
    with pytest.raises(OwnedByAnother, match="something else is mounted there"):
        run(host, bare)
    # One that serves another mount point does not count.
    clouds(host).process(*(word.replace("/data", "/data2") for word in other))
    why = f"only the process of {TITLES[entry['fstype']]} that serves it knows its source, and was not found"
    assert ("/data", "mount", why) in unmanaged(run(host, bare))
    with pytest.raises(DeclarationError, match="Cannot set mount in /data: only the process of"):
        run(host, bare, strict=True)


def test_a_user_cannot_say_what_serves_a_mount_of_root(tmp_path: Path) -> None:
    entry, fstype, shown, _same, other = PROCESSES["s3fs"]
    host = machine(tmp_path, {MOUNTINFO: ROOT + FUSE.format(fstype, shown)})
    bare = with_options(entry, "allow_other", "nosuid", "nodev")
    clouds(host).process(*other, status=STATUS_OF_USER)
    why = f"only the process of {TITLES[entry['fstype']]} that serves it knows its source, and was not found"
    assert ("/data", "mount", why) in unmanaged(run(host, bare))


TITLES = {"s3fs": "s3fs", "mountpoint-s3": "Mountpoint for Amazon S3", "juicefs": "JuiceFS"}


def test_a_password_of_another_program_is_shown_to_nobody(tmp_path: Path) -> None:
    host = machine(tmp_path, {MOUNTINFO: ROOT + FUSE.format("fuse.juicefs", "JuiceFS:sets")})
    clouds(host).process("juicefs", "mount", "redis://gpu:hunter2@redis1:6379/9", "/data")
    with pytest.raises(OwnedByAnother) as caught:
        run(host, JUICEFS)
    assert "found juicefs redis://gpu@redis1:6379/9" in str(caught.value)
    assert "hunter2" not in json.dumps(caught.value.failure())


def test_processes_are_only_searched_where_the_kernel_does_not_say_enough(tmp_path: Path) -> None:
    host = machine(tmp_path)
    clouds(host).process("s3fs", "x", "/elsewhere")
    run(host, RCLONE, {**HOT}, {**VAST, "path": "/vast"})
    host.files.reads.clear()
    assert run(host, RCLONE, {**HOT}, {**VAST, "path": "/vast"}).status == "in_sync"
    assert [path for path in host.files.reads if "cmdline" in path or path.startswith("/run/efs")] == []


def test_a_proxy_of_efs_is_what_it_leads_to_whatever_its_port(tmp_path: Path) -> None:
    state = "/run/efs/fs-0123456789abcdef0.data.20049"
    host = machine(tmp_path, {MOUNTINFO: ROOT + PROXIED.format("/sets", 20049), state: "{}"})
    entry = with_options(EFS, "rsize=1048576", "noatime", "proto=tcp")
    entry["read_ahead_kb"] = None
    outcome = run(host, entry)
    assert (outcome.error, begun(host), unmanaged(outcome)) == (None, [], [])
    found = outcome.effective["mounts"]["/data"]
    assert (found["source"], found["fstype"]) == ("fs-0123456789abcdef0:/sets", "efs")
    # The port of RDMA proves nothing.
    rdma = run(host, with_options(entry, "proto=rdma"))
    assert pending(rdma) == {"proto": ANEW}
    other = machine(tmp_path / "other", {MOUNTINFO: ROOT + PROXIED.format("/sets", 20049), state: "{}"})
    with pytest.raises(OwnedByAnother, match="found efs fs-0123456789abcdef0:/sets, wanted efs fs-0123456789abcdef9"):
        run(other, {**entry, "source": "fs-0123456789abcdef9:/sets"})


def test_a_proxy_that_our_unit_mounted_at_boot_is_ours_whatever_the_kernel_calls_its_root(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, EFS)
    boot(tmp_path, host)
    programs(host).put([line.replace(" / /data ", " /sets /data ") for line in programs(host).lines])
    assert run(host, EFS).error is None
    assert run(host, state="absent").error is None
    assert mounted(host, "/data") is None


def test_connections_are_shared_with_mounts_of_the_same_port_alone(tmp_path: Path) -> None:
    other = (
        PROXIED.format("/", 20049).replace("61 25 0:61 / /data", "60 25 0:60 / /home").replace("127.0.0.1", "10.0.0.1")
    )
    for port, shared in (("port=20049,", False), ("", True)):
        host = machine(tmp_path / str(shared), {MOUNTINFO: ROOT + other.replace("port=20049,", port)})
        programs(host).drops = ["nconnect=8"]
        entry = {"path": "/data", "source": "10.0.0.1:/x", "fstype": "nfs", "options": ["vers=4.1", "nconnect=8"]}
        outcome = run(host, entry)
        assert ("/home" in pending(outcome).get("nconnect", "")) is shared
        assert (unmanaged(outcome) != []) is not shared


@pytest.mark.parametrize(
    "name",
    [
        "fs-0123456789abcdef0.data.20050",
        "fs-0123456789abcdef0.more.20049",
        "fs-0123456789abcdef0.mnt.data.20049",
        "~fs-0123456789abcdef0.data.20049",
        "stunnel-config.fs-0123456789abcdef0.data.20049",
    ],
)
def test_a_proxy_of_another_mount_is_not_that_of_this_one(tmp_path: Path, name: str) -> None:
    host = machine(tmp_path, {MOUNTINFO: ROOT + PROXIED.format("/sets", 20049), f"/run/efs/{name}": "{}"})
    with pytest.raises(OwnedByAnother, match=r"found nfs 127\.0\.0\.1:/sets"):
        run(host, EFS)


def test_efs_by_its_name_is_what_is_declared_with_either_type(tmp_path: Path) -> None:
    name = "fs-0123456789abcdef0.efs.us-east-1.amazonaws.com"
    line = PROXIED.format("/sets", 2049).replace("127.0.0.1:/", f"{name}:/")
    host = machine(tmp_path, {MOUNTINFO: ROOT + line})
    outcome = run(host, {**with_options(EFS, "noatime"), "read_ahead_kb": None})
    assert (outcome.error, begun(host)) == (None, [])
    other = machine(tmp_path / "nfs", {MOUNTINFO: ROOT + line})
    assert run(other, {"path": "/data", "source": f"{name}:/sets", "fstype": "nfs"}).error is None


# --- what only whoever made it knows ---


@pytest.mark.parametrize(
    ("entry", "options", "drifted"),
    [
        (EFS, ["tls", "rsize=1048576", "region=us-east-1", "noatime"], ["region"]),
        (RCLONE, ["config=/etc/rclone.conf", "vfs-cache-mode=writes", "allow_other"], ["vfs_cache_mode"]),
        (S3FS, ["passwd_file=/etc/other", "use_cache=/scratch/s3fs", "allow_other"], ["passwd_file"]),
        (MOUNTPOINT, ["allow-other", "cache=/scratch/s3", "max-threads=16"], ["max_threads"]),
        (BLOBFUSE, ["--config-file=/etc/other.yaml", "allow_other"], ["config_file"]),
    ],
)
def test_what_only_a_new_mount_changes_is_pending_with_the_reason(
    tmp_path: Path, entry: Mapping[str, Any], options: List[str], drifted: List[str]
) -> None:
    host = machine(tmp_path)
    run(host, entry)
    changed = with_options(entry, *options)
    outcome = run(host, changed)
    assert (outcome.error, pending(outcome)) == (None, dict.fromkeys(drifted, ANEW))
    boot(tmp_path, host)
    booted = run(host, changed)
    assert (booted.error, pending(booted), unmanaged(booted)) == (None, {}, [])
    assert run(host, changed).status == "in_sync"


def test_what_a_mount_of_others_was_made_with_is_named_as_unknown(tmp_path: Path) -> None:
    host = machine(tmp_path, {MOUNTINFO: ROOT + FUSE.format("fuse.rclone", "s3:sets/2026")})
    entry = {**RCLONE, "read_ahead_kb": None}
    why = "the kernel does not show it, and this module did not make the mount"
    outcome = run(host, entry)
    assert unmanaged(outcome) == [("/data", "config", why), ("/data", "vfs_cache_mode", why)]
    assert pending(outcome) == {}


def test_what_the_kernel_shows_of_fuse_is_compared(tmp_path: Path) -> None:
    line = FUSE.format("fuse.rclone", "s3:sets/2026").replace(",allow_other", "")
    host = machine(tmp_path, {MOUNTINFO: ROOT + line})
    outcome = run(host, {**with_options(RCLONE, "allow-other", "nodev", "nosuid"), "read_ahead_kb": None})
    assert pending(outcome) == {"allow_other": ANEW}


# --- the client ---


@pytest.mark.parametrize(
    ("entry", "without", "message"),
    [
        (
            EFS,
            "mount.efs",
            "the client of Amazon EFS is not installed. There is no mount.efs: install amazon-efs-utils",
        ),
        (RCLONE, "mount.rclone", "the client of rclone is not installed. There is no mount.rclone: install rclone and"),
        (
            RCLONE,
            "fusermount",
            "the client of rclone is not installed. There is no fusermount3: install rclone and fuse3",
        ),
        (GCSFUSE, "fusermount", "the client of Cloud Storage FUSE is not installed. There is no fusermount3: install"),
        (S3FS, "mount.fuse", "the client of s3fs is not installed. There is no mount.fuse: install s3fs and fuse3"),
        (S3FS, "s3fs", "the client of s3fs is not installed. There is no s3fs: install s3fs and fuse3"),
        (GCSFUSE, "mount.gcsfuse", "the client of Cloud Storage FUSE is not installed. There is no mount.gcsfuse"),
        (JUICEFS, "mount.juicefs", "the client of JuiceFS is not installed. There is no mount.juicefs"),
        (MOUNTPOINT, "mount.mount-s3", "the client of Mountpoint for Amazon S3 is not installed. There is no mount.mo"),
        (BLOBFUSE, "blobfuse2", "the client of BlobFuse2 is not installed. There is no blobfuse2"),
        (GPFS, "/usr/lpp/mmfs/bin/mmdiag", "the client of IBM Storage Scale is not installed. There is no /usr/lpp"),
        (HF3FS, "/opt/3fs/bin/hf3fs_fuse_main", "the client of 3FS is not installed. There is no /opt/3fs/bin/hf3fs_f"),
    ],
)
def test_a_client_that_is_not_installed_is_refused_before_anything_changes(
    tmp_path: Path, entry: Mapping[str, Any], without: str, message: str
) -> None:
    host = machine(tmp_path, {without: None} if without.startswith("/") else {})
    host.commands.programs.pop(without, None)
    before = snapshot(tmp_path)
    with pytest.raises(DeclarationError) as caught:
        run(host, HOT, entry)
    assert f"Cannot mount /data: {message}" in str(caught.value)
    assert snapshot(tmp_path) == before


# --- VAST ---


@pytest.mark.once
@pytest.mark.parametrize(
    ("option", "options", "found"),
    [
        # As a public listing of mounts has it.
        ("nconnect=64", "forcerdirplus,proto=tcp,nconnect=64,localports_failover", "64"),
        ("remoteports=10.0.0.1-10.0.0.9", "nconnect=64,remoteports=10.0.0.1-10.0.0.9", "10.0.0.1-10.0.0.9"),
        ("remoteports=10.0.0.1-10.0.0.9", "nconnect=64,remoteports=10.0.0.1-10.0.0.4", "10.0.0.1-10.0.0.4"),
        ("remoteports=10.0.0.1-10.0.0.9", "nconnect=64", None),
        ("remoteports=dns", "remoteports=10.0.0.1~10.0.0.7", "dns"),
        ("remoteports=dns", "nconnect=64", None),
        ("localports=ib0~ib1", "localports=10.0.0.1~10.0.1.1", "ib0~ib1"),
        ("forcerdirplus", "forcerdirplus", "set"),
        ("spread_reads", "nconnect=8", None),
    ],
)
def test_options_of_vast_are_compared_by_what_they_mean(option: str, options: str, found: Optional[str]) -> None:
    mount = mounts.parse(f"61 25 0:61 / /data rw - nfs 10.0.0.1:/x rw,vers=3,{options}\n")[0]
    asked = values.option_of(option, "nfs")
    assert asked is not None
    assert values.read_back(asked, mount, 0) == found


def test_vast_is_nfs_with_its_own_options(tmp_path: Path) -> None:
    host = machine(tmp_path)
    clouds(host).drops = []
    outcome = run(host, VAST)
    assert outcome.error is None
    assert "nconnect=32,remoteports=10.0.0.1-10.0.0.16,localports=ib0~ib1" in host.files.read(UNIT)


ONLY_VAST = [
    "remoteports=dns",
    "localports=ib0",
    "spread_writes",
    "noextend",
    "mdconnect=2",
    "noidlexprt",
    "nconnect=17",
]


@pytest.mark.parametrize("option", ONLY_VAST)
def test_what_only_vast_takes_is_refused_without_it(tmp_path: Path, option: str) -> None:
    entry = with_options(VAST, "vers=3", option)
    host = machine(tmp_path, {BUNDLE: None, "/sys/module/sunrpc/parameters/.keep": ""})
    before = snapshot(tmp_path)
    with pytest.raises(DeclarationError) as caught:
        run(host, HOT, entry)
    assert str(caught.value) == (
        f"Cannot mount /data: the client of VAST NFS is not installed. There is no {BUNDLE}, so the modules of the"
        " kernel itself are loaded: install the package vastnfs for this kernel, and load its modules with vastnfs-ctl"
        " reload."
    )
    assert snapshot(tmp_path) == before
    assert run(host, with_options(VAST, "vers=3", "nconnect=16")).error is None


@pytest.mark.parametrize(("folder", "there"), [("updates/bundle", True), ("extra", True), ("kernel", False)])
def test_the_modules_that_would_be_loaded_decide_where_none_is(tmp_path: Path, folder: str, there: bool) -> None:
    depends = f"kernel/fs/nfs/nfs.ko.zst: x.ko\n{folder}/net/sunrpc/sunrpc.ko.zst:\n"
    host = machine(tmp_path, {BUNDLE: None, MODULES: depends})
    if there:
        assert run(host, VAST).error is None
        return
    with pytest.raises(DeclarationError, match=f"There is no module sunrpc of VAST for the kernel {RELEASE}"):
        run(host, VAST)


def test_a_mount_that_is_there_gets_no_unit_that_would_fail_without_vast(tmp_path: Path) -> None:
    line = "61 25 0:61 / /data rw,relatime - nfs 10.0.0.1:/sets rw,vers=3,proto=tcp,addr=10.0.0.1\n"
    host = machine(tmp_path, {MOUNTINFO: ROOT + line, BUNDLE: None, "/sys/module/sunrpc/parameters/.keep": ""})
    with pytest.raises(DeclarationError, match="the client of VAST NFS is not installed"):
        run(host, VAST)
    assert not host.files.exists(UNIT)


# --- Storage Scale and 3FS ---

MMFS = "/usr/lpp/mmfs/bin"


@pytest.mark.parametrize(("entry", "line"), [(GPFS, SCALE_MOUNT), (HF3FS, HF3FS_MOUNT)], ids=["gpfs", "hf3fs"])
def test_what_a_service_of_its_own_mounts_is_compared_and_never_touched(
    tmp_path: Path, entry: Mapping[str, Any], line: str
) -> None:
    host = machine(tmp_path, {MOUNTINFO: ROOT + line})
    before = snapshot(tmp_path)
    for status in ("drifted", "in_sync"):
        outcome = run(host, entry)
        # Only the declaration itself is written.
        assert (outcome.error, outcome.status, unmanaged(outcome)) == (None, status, [])
        assert {change.setting for change in outcome.changes} <= {"declaration"}
        assert outcome.effective["mounts"]["/data"]["source"] == entry["source"]
        assert outcome.boot == {"mounts": {}}
    assert run(host, state="absent").error is None
    assert (host.commands.calls, snapshot(tmp_path)) == ([], before)
    with pytest.raises(OwnedByAnother, match="something else is mounted there"):
        run(host, {**entry, "source": f"{entry['source']}x"})


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        (GPFS, "IBM Storage Scale mounts it, and not this module: run mmmount gpfs0 here, or, for every start"),
        (HF3FS, "3FS mounts it, and not this module: enable and start hf3fs_fuse_main.service"),
    ],
    ids=["gpfs", "hf3fs"],
)
def test_what_its_service_has_not_mounted_waits_for_it_while_others_are_made(
    tmp_path: Path, entry: Mapping[str, Any], hint: str
) -> None:
    host = machine(tmp_path)
    outcome = run(host, entry, HOT)
    assert outcome.error is None
    assert pending(outcome)["mount"].startswith(hint)
    assert outcome.remaining.needs == ("mount of /data",)
    assert mounted(host, "/hot") is not None
    assert not host.files.exists("/data")
    assert [argv for argv in begun(host) if "/data" in argv] == []
    again = run(host, entry, HOT)
    assert (again.status, again.changes) == ("pending", ())
    programs(host).put([*programs(host).lines, SCALE_MOUNT if entry is GPFS else HF3FS_MOUNT])
    assert run(host, entry, HOT).status == "in_sync"
    assert run(host, state="absent").error is None
    assert mounted(host, "/data") is not None


def test_what_lies_where_a_service_mounts_is_its_own_matter(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/data/.snapshots/readme": ""})
    outcome = run(host, GPFS)
    assert (outcome.error, list(pending(outcome))) == (None, ["mount"])


def scale_with(tmp_path: Path, **values: Any) -> Any:
    host = machine(tmp_path, {MOUNTINFO: ROOT + SCALE_MOUNT})
    run(host, {**GPFS, "tunables": values})
    host.commands.calls.clear()
    return host, {**GPFS, "tunables": values}


def test_attributes_of_storage_scale_are_compared_with_what_is_in_effect(tmp_path: Path) -> None:
    host, entry = scale_with(tmp_path, pagepool="16G", verbsRdma="enable", verbsRdmaSend=True)
    before = snapshot(tmp_path)
    outcome = run(host, entry)
    assert (outcome.status, outcome.changes, unmanaged(outcome)) == ("in_sync", (), [])
    assert outcome.effective["mounts"]["/data"]["tunables"]["pagepool"] == "17179869184"
    # What the cluster is configured to matters only where something is in effect that is not wanted.
    assert set(host.commands.calls) == {(f"{MMFS}/mmdiag", "--config", "-Y")}
    assert snapshot(tmp_path) == before


def test_an_attribute_that_differs_is_named_with_what_an_administrator_would_run(tmp_path: Path) -> None:
    host, entry = scale_with(tmp_path, pagepool="32G", workerThreads=512)
    before = snapshot(tmp_path)
    outcome = run(host, entry)
    assert (outcome.error, outcome.changes) == (None, ())
    assert unmanaged(outcome) == [
        (
            "/data",
            "pagepool",
            "17179869184 is in effect (mmlsconfig has 16G), and this module does not change the configuration of a"
            " cluster: run mmchconfig pagepool=32G -N NODE on an administration node",
        ),
        ("/data", "workerThreads", "the client has no such attribute"),
    ]
    with pytest.raises(DeclarationError, match="Cannot set pagepool in /data: 17179869184 is in effect"):
        run(host, entry, strict=True)
    assert {argv[0] for argv in host.commands.calls} == {f"{MMFS}/mmdiag", f"{MMFS}/mmlsconfig"}
    assert snapshot(tmp_path) == before


def test_an_attribute_that_is_configured_waits_for_the_daemon(tmp_path: Path) -> None:
    host, entry = scale_with(tmp_path, maxMBpS=20000)
    outcome = run(host, entry)
    assert pending(outcome) == {
        "maxMBpS": "the cluster is configured to it, but not this daemon: restart it with mmshutdown and mmstartup"
    }
    assert (outcome.remaining.needs, outcome.error) == (("restart of mmfsd",), None)
    assert run(host, entry).status == "pending"


def test_a_client_of_storage_scale_that_does_not_run_is_said(tmp_path: Path) -> None:
    host = machine(tmp_path)
    host.commands.programs["mmdiag"] = lambda argv: Completed(1, "", "mmdiag: mmfsd is not running\n")
    outcome = run(host, {**GPFS, "tunables": {"pagepool": "16G"}}, HOT)
    why = "mmdiag shows no configuration; check whether mmfsd runs on this node"
    assert (outcome.error, unmanaged(outcome)) == (None, [("/data", "pagepool", why)])
    host.commands.programs["mmdiag"] = lambda argv: Completed(124, "", "")
    with pytest.raises(CannotLook, match="Cannot read mmdiag: it did not end within 10 seconds"):
        run(host, {**GPFS, "tunables": {"pagepool": "16G"}})


@pytest.mark.once
def test_values_with_colons_are_read_as_they_are(tmp_path: Path) -> None:
    found = scale.read(machine(tmp_path), ["opensslLibName", "nothing"])
    assert found == {"opensslLibName": {"mmfsd": "/usr/lib64/libssl.so.10:/usr/lib64/libssl.so.6"}}


@pytest.mark.once
def test_values_for_some_nodes_are_named_with_them(tmp_path: Path) -> None:
    host = machine(tmp_path)
    assert scale.configured(host, ["workerThreads"]) == {"workerThreads": ("512", "1024 for nsdNodes")}


@pytest.mark.once
@pytest.mark.parametrize(
    ("wanted", "found", "same"),
    [
        ("16G", "17179869184", True),
        ("yes", "1", True),
        ("no", "1", False),
        ("Enable", "enable", True),
        ("8", "9", False),
    ],
)
def test_values_mean_what_mmchconfig_means_by_them(wanted: str, found: str, same: bool) -> None:
    assert scale.is_same(wanted, found) is same


def test_two_mounts_of_storage_scale_have_one_client(tmp_path: Path) -> None:
    host = machine(tmp_path)
    first, second = {**GPFS, "tunables": {"pagepool": "16G"}}, {**GPFS, "path": "/more", "source": "gpfs1"}
    with pytest.raises(DeclarationError, match=r"/data is a mount of Storage Scale too, with pagepool: 16G"):
        run(host, first, {**second, "tunables": {"pagepool": "32G"}})


def test_what_was_ours_goes_where_a_service_mounts_from_now_on(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {**VAST, "options": ["vers=3"]})
    programs(host).umount(["umount", "/data"])
    programs(host).put([*programs(host).lines, SCALE_MOUNT])
    assert run(host, GPFS).error is None
    assert not host.files.exists(UNIT)
    assert run(host, GPFS).status == "in_sync"
    assert run(host, state="absent").error is None
    assert mounted(host, "/data") is not None


# --- secrets ---


@pytest.mark.once
@pytest.mark.parametrize(
    ("entry", "option"),
    [
        (RCLONE, "s3_secret_access_key=hunter2"),
        (RCLONE, "s3-secret-access-key=hunter2"),
        (RCLONE, "webdav_pass=hunter2"),
        (RCLONE, "env.AWS_SECRET_ACCESS_KEY=hunter2"),
        (RCLONE, "env.TOKEN=hunter2"),
        (RCLONE, "s3_session_token=hunter2"),
        (RCLONE, "s3_sse_customer_key_base64=hunter2"),
        (RCLONE, "allow_other,sftp_pass=hunter2"),
        (JUICEFS, "secret-key=hunter2"),
        (BLOBFUSE, "--account-key=hunter2"),
        (BLOBFUSE, "--sas=hunter2"),
    ],
)
def test_a_secret_is_refused_and_in_no_message(tmp_path: Path, entry: Mapping[str, Any], option: str) -> None:
    host = machine(tmp_path)
    with pytest.raises(DeclarationError) as caught:
        run(host, with_options(entry, *entry["options"], option))
    assert "would be in a unit that everybody can read, and in the list of processes" in str(caught.value)
    assert "hunter2" not in json.dumps(caught.value.failure()) + str(caught.value)
    assert host.files.reads == []


@pytest.mark.once
@pytest.mark.parametrize("source", ["redis://:hunter2@redis1:6379/1", "mysql://gpu:hunter2@(db:3306)/jfs"])
def test_a_password_in_an_address_is_refused_and_in_no_message(tmp_path: Path, source: str) -> None:
    host = machine(tmp_path)
    with pytest.raises(DeclarationError) as caught:
        run(host, {**JUICEFS, "source": source})
    assert "the password would be in a unit" in str(caught.value)
    assert "hunter2" not in json.dumps(caught.value.failure()) + str(caught.value)


@pytest.mark.once
@pytest.mark.parametrize(
    ("entry", "option"),
    [
        (RCLONE, "sftp_key_file=/etc/key"),
        (RCLONE, "password_command=/usr/bin/pw"),
        (S3FS, "use_session_token"),
        (MOUNTPOINT, "sse-kms-key-id=alias/x"),
        (GCSFUSE, "token_url=http://127.0.0.1/t"),
    ],
)
def test_what_only_names_a_secret_is_taken(tmp_path: Path, entry: Mapping[str, Any], option: str) -> None:
    assert run(machine(tmp_path), with_options(entry, *entry["options"][:1], option)).error is None


# --- bad input ---


@pytest.mark.once
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({**EFS, "source": "nfs1:/x"}, "it is not the identifier of a file system of EFS with a path"),
        (with_options(EFS, "iam"), "Cannot declare mounts[0].options: mount.efs takes iam only with tls. Add tls."),
        (with_options(EFS, "accesspoint=fsap-0123456789abcdef0"), "mount.efs takes accesspoint only with tls"),
        (with_options(EFS, "tls", "awsprofile=gpu"), "mount.efs takes awsprofile only with iam"),
        (with_options(EFS, "tls", "port=2049"), "tls and port exclude each other"),
        (with_options(EFS, "tls", "notls"), "notls and tls exclude each other"),
        (with_options(EFS, "tls", "accesspoint=fsap-1"), "it is not the identifier of an access point"),
        (with_options(EFS, "nconnect=8"), "EFS does not support nconnect (wanted nconnect=8). Leave it out."),
        (with_options(EFS, "rsize=1000"), "the kernel rounds what is not a multiple of 4096 bytes"),
        (with_options(VAST, "nconnect=65"), "the kernel takes 1 to 16, and the client of VAST 1 to 64"),
        (with_options(VAST, "max_connect=17"), "the kernel takes 1 to 16 (wanted max_connect=17)"),
        (with_options(VAST, "mdconnect=9"), "the client of VAST takes 1 to 8"),
        ({**GPFS, "source": "gpfs0:/x"}, "it is not the device of a file system of Storage Scale"),
        (with_options(GPFS, "noatime"), "are in the cluster database of Storage Scale, and are not set here"),
        (with_options(HF3FS, "allow_other"), "the options of the mount are in the launcher of 3FS"),
        ({**HF3FS, "source": "stage"}, "it is not the source of a mount of 3FS"),
        ({**HF3FS, "tunables": {"a": 1}}, "hf3fs has none. Leave it out; only Lustre and Storage Scale have tunables."),
        ({**GPFS, "read_ahead_kb": 4096}, "Storage Scale has a prefetch of its own"),
        ({**HF3FS, "read_ahead_kb": 4096}, "the client of 3FS has a read-ahead of its own"),
        ({**GPFS, "tunables": {"Page Pool": 1}}, "it is not an attribute of mmchconfig"),
        ({**GPFS, "tunables": {"pagepool": "1; reboot"}}, "it is not a value of mmchconfig"),
        ({**GPFS, "tunables": {"pagepool": None}}, "it is not a value of mmchconfig"),
        ({**RCLONE, "source": "sets"}, "it is not a remote of rclone and a path, or it has connection parameters"),
        ({**RCLONE, "source": ":s3,env_auth=true:sets"}, "it is not a remote of rclone and a path, or it has conn"),
        ({**S3FS, "source": "sets/2026"}, "it is not a bucket and a path"),
        ({**MOUNTPOINT, "source": "s3://"}, "it is not a bucket of S3 with a prefix"),
        ({**GCSFUSE, "source": "gs://sets"}, "it is not a bucket of Cloud Storage"),
        ({**BLOBFUSE, "source": "container"}, "blobfuse2 takes the container from its configuration (--config-file)"),
        (with_options(BLOBFUSE, "allow_other"), "without it, blobfuse2 looks for its configuration in the folder"),
        (with_options(RCLONE, "--vfs-cache-mode=full"), "it is not one option"),
        (with_options(RCLONE, "devname=x"), "devname is not supported: that hides what is mounted. Leave it out."),
        (with_options(S3FS, "fsname=x"), "fsname is not supported: that hides what is mounted"),
        (with_options(RCLONE, "vfs_cache_mode=full", "vfs-cache-mode=off"), "set the same thing"),
        ({**RCLONE, "read_ahead_kb": 127}, "the kernel rounds what is not a multiple of 4 KiB"),
    ],
)
def test_what_no_machine_could_have_is_refused_with_the_reason(
    tmp_path: Path, entry: Mapping[str, Any], message: str
) -> None:
    host = machine(tmp_path)
    with pytest.raises(DeclarationError) as caught:
        run(host, entry)
    assert message in str(caught.value)
    assert host.files.reads == []
