# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mounts of parallel file systems: whose client has to be there, what can be read back of them, and what cannot."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    OwnedByAnother,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux import mounts
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.filesystems import sources, values
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems.filesystems_machine import (
    HOT,
    MOUNTINFO,
    ROOT,
    mounted,
    pending,
    programs,
    run,
    started,
    unmanaged,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems.parallel_machine import (
    ALL,
    ANEW,
    BEEGFS,
    CEPH,
    FSID,
    LUSTRE,
    MODULES,
    RELEASE,
    TUNED,
    UNIT,
    WEKA,
    clients,
    machine,
    mount_by_unit,
    with_options,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, snapshot


def boot(tmp_path: Path, host: FakeHost) -> None:
    """What systemd mounts by our unit after /run is cleared."""
    (tmp_path / "run/gpufleet/filesystems.json").unlink()
    programs(host).put([ROOT])
    mount_by_unit(host)


# --- what was mounted, and is at boot ---


@pytest.mark.parametrize("kind", ALL)
def test_each_type_is_mounted_now_and_at_boot_and_leaves_nothing_after_absent(tmp_path: Path, kind: str) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    predicted = run(host, ALL[kind], check=True)
    assert snapshot(tmp_path) == before
    outcome = run(host, ALL[kind])
    assert (outcome.error, outcome.changes) == (None, predicted.changes)
    found = mounted(host, "/data")
    assert found is not None
    assert found.fstype == kind
    assert host.files.link("/etc/systemd/system/remote-fs.target.wants/data.mount") == UNIT
    again = run(host, ALL[kind])
    assert (again.status, again.changes, unmanaged(again)) == ("in_sync", (), [])
    boot(tmp_path, host)
    booted = run(host, ALL[kind])
    assert (booted.status, booted.changes, unmanaged(booted)) == ("in_sync", (), [])
    assert run(host, state="absent").error is None
    assert snapshot(tmp_path) == before


def test_the_new_syntax_of_ceph_is_completed_by_its_helper_and_still_the_same(tmp_path: Path) -> None:
    host = machine(tmp_path)
    entry = {**CEPH, "source": "gpu@.cephfs=/sets", "options": ["mon_addr=10.0.2.1/10.0.2.2", "ms_mode=prefer-crc"]}
    assert run(host, entry).error is None
    found = mounted(host, "/data")
    assert found is not None
    assert (found.source, found.values["mon_addr"]) == (f"gpu@{FSID}.cephfs=/sets", "10.0.2.1:3300/10.0.2.2:3300")
    again = run(host, entry)
    assert (again.status, unmanaged(again)) == ("in_sync", [])
    boot(tmp_path, host)
    booted = run(host, entry)
    assert (booted.status, booted.boot["mounts"]["/data"]["source"]) == ("in_sync", "gpu@.cephfs=/sets")


@pytest.mark.once
@pytest.mark.parametrize(
    ("kind", "after", "source"),
    [
        ("beegfs", ["After=beegfs-helperd.service"], "beegfs_nodev"),
        ("ceph", [], "mon1,mon2:/sets"),
        ("lustre", ["After=lnet.service"], "mgs1@o2ib:mgs2@o2ib:/fs1/sets"),
        ("wekafs", ["After=weka-agent.service"], "backend1,backend2/default"),
    ],
)
def test_units_wait_for_the_network_and_for_the_service_of_the_client(
    tmp_path: Path, kind: str, after: List[str], source: str
) -> None:
    host = machine(tmp_path)
    run(host, ALL[kind])
    options = ",".join([*ALL[kind]["options"], "_netdev"])
    assert host.files.read(UNIT).splitlines()[1:] == [
        "[Unit]",
        "Description=/data as declared by gpufleet.node",
        *after,
        "",
        "[Mount]",
        f"What={source}",
        "Where=/data",
        f"Type={kind}",
        # Without it, systemd takes types that it does not know for local ones: a cycle with the network.
        f"Options={options}",
        "TimeoutSec=60",
        "",
        "[Install]",
        "WantedBy=remote-fs.target",
    ]


def test_nothing_in_a_mount_is_asked_for_by_a_look_or_a_run(tmp_path: Path) -> None:
    line = "61 25 0:61 / /data rw,relatime - lustre 10.0.1.1@o2ib:/fs1/sets rw,flock,lazystatfs\n"
    host = machine(tmp_path, {MOUNTINFO: ROOT + line})
    asked: List[str] = []
    for name in ("exists", "names", "is_folder", "resolve", "status", "read_optional", "free", "locate"):
        method = getattr(host.files, name)
        setattr(host.files, name, lambda path, method=method: asked.append(path) or method(path))
    run(host, with_options(LUSTRE, "flock", "nodev"))
    run(host, state="absent")
    assert len(asked) > 20
    assert [path for path in asked if mounts.is_below(path, "/data")] == []


# --- the client ---


def no_module(host: FakeHost, root: Path) -> None:
    (root / MODULES.lstrip("/")).write_text("kernel/fs/xfs/xfs.ko:\n")


def no_ceph_helper(host: FakeHost, root: Path) -> None:
    del host.commands.programs["mount.ceph"]


def no_lustre_helper(host: FakeHost, root: Path) -> None:
    del host.commands.programs["mount.lustre"]


def no_weka_helper(host: FakeHost, root: Path) -> None:
    del host.commands.programs["mount.wekafs"]


@pytest.mark.parametrize(
    ("entry", "without", "message"),
    [
        (
            LUSTRE,
            no_module,
            f"the client of Lustre is not installed. There is no module lustre for the kernel {RELEASE}: ",
        ),
        (LUSTRE, no_lustre_helper, "the client of Lustre is not installed. There is no mount.lustre: install lustre-"),
        (CEPH, no_module, f"the client of CephFS is not installed. There is no module ceph for the kernel {RELEASE}: "),
        (CEPH, no_ceph_helper, "the client of CephFS is not installed. There is no mount.ceph: install ceph-common"),
        (
            BEEGFS,
            no_module,
            f"the client of BeeGFS is not installed. There is no module beegfs for the kernel {RELEASE}",
        ),
        (WEKA, no_weka_helper, "the client of WekaFS is not installed. There is no mount.wekafs: install the agent"),
    ],
)
def test_a_client_that_is_not_installed_is_refused_before_anything_changes(
    tmp_path: Path, entry: Mapping[str, Any], without: Any, message: str
) -> None:
    host = machine(tmp_path)
    without(host, tmp_path)
    before = snapshot(tmp_path)
    with pytest.raises(DeclarationError) as caught:
        run(host, HOT, entry)
    assert f"Cannot mount /data: {message}" in str(caught.value)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("kind", ["beegfs", "ceph", "lustre"])
def test_a_type_that_the_kernel_has_needs_no_module_on_disk(tmp_path: Path, kind: str) -> None:
    host = machine(tmp_path, {MODULES: "", "/proc/filesystems": f"nodev\ttmpfs\nnodev\t{kind}\n"})
    assert run(host, ALL[kind]).error is None


def test_the_client_is_only_looked_for_where_something_is_to_be_mounted(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, LUSTRE)
    no_module(host, tmp_path)
    no_lustre_helper(host, tmp_path)
    host.files.reads.clear()
    assert run(host, LUSTRE).status == "in_sync"
    assert [path for path in host.files.reads if "modules" in path or path == "/proc/filesystems"] == []


# --- what the kernel took ---


def shown(kind: str, option: str, options: str) -> Optional[str]:
    mount = mounts.parse(f"61 25 0:61 / /data rw,relatime - {kind} x rw,{options}\n")[0]
    asked = values.option_of(option, kind)
    assert asked is not None
    return values.read_back(asked, mount, 0)


OLD_LUSTRE = "flock,lazystatfs"
NEW_LUSTRE = "checksum,localflock,nouser_xattr,lruresize,lazystatfs,nouser_fid2path,verbose,encrypt"
OF_WEKA = "readcache,inode_bits=auto,readahead_kb=32768,dentry_max_age_positive=1000,dentry_max_age_negative=0"
OF_CEPH = "name=admin,secret=<hidden>,ms_mode=prefer-crc,acl,mds_namespace=fs2,rasize=67108864"


@pytest.mark.once
@pytest.mark.parametrize(
    ("kind", "option", "options", "found"),
    [
        ("lustre", "flock", OLD_LUSTRE, "flock"),
        ("lustre", "flock", NEW_LUSTRE, "localflock"),
        ("lustre", "noflock", "lazystatfs", "noflock"),
        ("lustre", "noflock", OLD_LUSTRE, "flock"),
        ("lustre", "user_xattr", NEW_LUSTRE, None),
        ("lustre", "user_xattr", OLD_LUSTRE, "set"),
        ("lustre", "nouser_xattr", NEW_LUSTRE, "set"),
        ("lustre", "checksum", OLD_LUSTRE, "set"),
        ("lustre", "nochecksum", NEW_LUSTRE, None),
        ("lustre", "user_fid2path", NEW_LUSTRE, None),
        ("ceph", "rsize=67108864", OF_CEPH, "67108864"),
        ("ceph", "rsize=16777216", OF_CEPH, "67108864"),
        ("ceph", "rasize=67108864", OF_CEPH, "67108864"),
        ("ceph", "rasize=8388608", "acl", "8388608"),
        ("ceph", "ms_mode=prefer-crc", OF_CEPH, "prefer-crc"),
        ("ceph", "ms_mode=legacy", "acl", "legacy"),
        ("ceph", "ms_mode=secure", OF_CEPH, "prefer-crc"),
        ("ceph", "recover_session=clean", OF_CEPH, "no"),
        ("ceph", "recover_session=clean", "recover_session=clean", "clean"),
        ("ceph", "fs=fs2", OF_CEPH, "fs2"),
        ("ceph", "mds_namespace=fs3", OF_CEPH, "fs2"),
        ("ceph", "name=gpu", OF_CEPH, "admin"),
        ("ceph", "noacl", OF_CEPH, None),
        ("ceph", "norbytes", OF_CEPH, "set"),
        ("ceph", "norbytes", "rbytes", None),
        ("ceph", "nowsync", "wsync", "wsync"),
        ("ceph", "nowsync", "acl", None),
        ("ceph", "secretfile=/x", OF_CEPH, None),
        ("beegfs", "cfgFile=/etc/beegfs/a.conf", "cfgFile=/etc/beegfs/b.conf", "/etc/beegfs/b.conf"),
        ("wekafs", "writecache", OF_WEKA, "readcache"),
        ("wekafs", "writecache", "inode_bits=auto", "writecache"),
        ("wekafs", "forcedirect", OF_WEKA, "readcache"),
        ("wekafs", "readahead_kb=65536", OF_WEKA, "32768"),
        ("wekafs", "dentry_max_age_negative=0", "writecache", "0"),
        ("wekafs", "num_cores=4", OF_WEKA, None),
    ],
)
def test_options_are_compared_by_what_they_mean(kind: str, option: str, options: str, found: Optional[str]) -> None:
    assert shown(kind, option, options) == found


@pytest.mark.once
@pytest.mark.parametrize(
    ("kind", "source", "shown", "options", "same"),
    [
        ("lustre", "mgs1@o2ib:mgs2@o2ib:/fs1", "10.0.1.1@o2ib:10.0.1.2@o2ib:/fs1", "", True),
        ("lustre", "mgs1@o2ib:/fs1", "10.0.1.1@o2ib:/fs2", "", False),
        ("lustre", "10.0.1.1@tcp0:/fs1/", "10.0.1.1@tcp:/fs1", "", True),
        ("lustre", "10.0.1.1:/fs1", "10.0.1.1@tcp:/fs1", "", True),
        ("lustre", "10.0.1.1@o2ib10:/fs1", "10.0.1.1@o2ib1:/fs1", "", False),
        ("lustre", "10.0.1.1@tcp:/fs1", "10.9.9.9@tcp:/fs1", "", False),
        ("lustre", "10.0.1.2@o2ib:/ai200", "10.0.1.1@o2ib,10.0.1.2@o2ib:10.0.1.3@o2ib:/ai200", "", True),
        ("lustre", "mgs1@tcp:/fs1/a", "10.0.1.1@tcp:/fs1/b", "", False),
        ("ceph", "mon1,mon2:/", "10.0.2.1:6789,10.0.2.2:6789:/", "", True),
        ("ceph", "10.0.2.1:/a/", "10.0.2.1:6789,10.0.2.2:6789:/a", "", True),
        ("ceph", "10.0.2.9:/a", "10.0.2.1:6789,10.0.2.2:6789:/a", "", False),
        ("ceph", "mon1:/a", "10.0.2.1:6789:/b", "", False),
        ("ceph", "gpu@.cephfs=/a", f"gpu@{FSID}.cephfs=/a", "", True),
        ("ceph", f"gpu@{FSID}.cephfs=/a", "gpu@00000000-0000-0000-0000-000000000000.cephfs=/a", "", False),
        ("ceph", f"gpu@{FSID}.fs2=/a", f"gpu@{FSID}.cephfs=/a", "", False),
        # An older kernel gets what it knows from the helper.
        ("ceph", f"gpu@{FSID}.cephfs=/a", "10.0.2.1:6789:/a", f"name=gpu,fsid={FSID},mds_namespace=cephfs", True),
        ("ceph", f"gpu@{FSID}.cephfs=/a", "10.0.2.1:6789:/a", "name=admin,mds_namespace=cephfs", False),
        ("ceph", f"gpu@{FSID}.cephfs=/a", "10.0.2.1:6789:/a", "name=gpu", False),
        ("beegfs", "beegfs_nodev", "beegfs_nodev", "", True),
        ("wekafs", "backend1,backend2/default", "10.0.3.1/default", "", True),
        ("wekafs", "backend1/default", "default", "", True),
        ("wekafs", "backend1/default", "backend1/other", "", False),
        ("wekafs", "10.0.3.1/default", "10.9.9.9/default", "", False),
    ],
)
def test_servers_are_the_same_by_name_and_by_address(
    kind: str, source: str, shown: str, options: str, same: bool
) -> None:
    mount = mounts.parse(f"61 25 0:61 / /data rw - {kind} {shown} rw{',' if options else ''}{options}\n")[0]
    assert sources.is_source(kind, source, mount) is same


@pytest.mark.parametrize(
    ("entry", "options", "drifted"),
    [
        (LUSTRE, ["localflock", "noatime", "lazystatfs"], ["flock"]),
        (CEPH, ["name=gpu", "rasize=16777216", "fs=cephfs"], ["rasize"]),
        (BEEGFS, ["cfgFile=/etc/beegfs/other.conf"], ["cfgFile"]),
        (WEKA, ["num_cores=4", "net=ib0", "net=ib1", "forcedirect", "readahead_kb=32768"], ["cache", "readahead_kb"]),
        # What is not shown is known from the run that mounted it.
        (CEPH, ["name=gpu", "secretfile=/etc/ceph/other.secret", "fs=cephfs"], ["secretfile"]),
        (WEKA, ["num_cores=2", "net=ib0", "readcache", "readahead_kb=65536"], ["num_cores", "net"]),
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
    assert f"Options={','.join(options)},_netdev\n" in host.files.read(UNIT)
    again = run(host, changed)
    assert (again.status, again.changes, list(pending(again))) == ("pending", (), drifted)
    assert (started(host, "umount"), len(started(host, "mount"))) == ([], 1)
    boot(tmp_path, host)
    booted = run(host, changed)
    assert (booted.status, pending(booted), unmanaged(booted)) == ("in_sync", {}, [])


def test_flags_change_by_a_remount_that_asks_no_server_and_come_back(tmp_path: Path) -> None:
    line = "61 25 0:61 / /data rw,nosuid,relatime - lustre 10.0.1.1@o2ib:/fs1/sets rw,flock,lazystatfs\n"
    host = machine(tmp_path, {MOUNTINFO: ROOT + line})
    before = snapshot(tmp_path)
    outcome = run(host, with_options(LUSTRE, "noatime", "flock"))
    assert (outcome.error, pending(outcome), unmanaged(outcome)) == (None, {}, [])
    (command,) = started(host, "mount")
    assert command[:3] == ("mount", "--internal-only", "--no-canonicalize")
    assert set(command[4].split(",")) == {"remount", "bind", "rw", "noatime", "nosuid"}
    found = mounted(host, "/data")
    assert found is not None
    assert set(found.flags) == {"rw", "nosuid", "noatime"}
    assert run(host, state="absent").error is None
    found = mounted(host, "/data")
    assert found is not None
    assert set(found.flags) == {"rw", "nosuid", "relatime"}
    after = snapshot(tmp_path)
    del before["proc/self/mountinfo"], after["proc/self/mountinfo"]
    assert after == before


def test_what_cannot_be_read_back_of_a_mount_of_others_is_named_and_right_after_a_boot(tmp_path: Path) -> None:
    line = "61 25 0:61 / /data rw,relatime - ceph 10.0.2.1:6789:/sets rw,name=gpu,secret=<hidden>,acl\n"
    host = machine(tmp_path, {MOUNTINFO: ROOT + line})
    entry = with_options(CEPH, "name=gpu", "secretfile=/etc/ceph/gpu.secret")
    why = "the kernel does not show it, and this module did not make the mount"
    for _again in range(2):
        outcome = run(host, entry)
        assert (outcome.error, pending(outcome)) == (None, {})
        assert unmanaged(outcome) == [("/data", "secretfile", why)]
    assert started(host, "mount") == []
    with pytest.raises(DeclarationError, match="Cannot set secretfile in /data: the kernel does not show it"):
        run(host, entry, strict=True)
    boot(tmp_path, host)
    booted = run(host, entry)
    assert (booted.status, unmanaged(booted), booted.changes) == ("in_sync", [], ())


def test_only_the_first_mount_of_wekafs_starts_the_client(tmp_path: Path) -> None:
    host = machine(tmp_path)
    more = {**WEKA, "path": "/more", "source": "backend1/more", "options": ["num_cores=8", "readcache"]}
    outcome = run(host, WEKA, more)
    assert outcome.error is None
    why = "only the first mount starts the client, and /data was mounted before"
    assert unmanaged(outcome) == [("/more", "num_cores", why)]
    again = run(host, WEKA, more)
    assert (again.status, again.changes, unmanaged(again)) == ("in_sync", (), [("/more", "num_cores", why)])


def test_another_file_system_waits_until_the_old_one_is_unmounted(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, LUSTRE)
    outcome = run(host, {**LUSTRE, "source": "mgs1@o2ib:/fs2"})
    assert outcome.error is None
    assert pending(outcome) == {"mount": "it stays mounted until you unmount /data, or until the next boot"}
    assert "What=mgs1@o2ib:/fs2\n" in host.files.read(UNIT)


def test_another_file_system_of_others_is_refused(tmp_path: Path) -> None:
    line = "61 25 0:61 / /data rw,relatime - lustre 10.0.1.1@o2ib:/fs9 rw,flock\n"
    host = machine(tmp_path, {MOUNTINFO: ROOT + line})
    with pytest.raises(OwnedByAnother, match=r"found lustre 10\.0\.1\.1@o2ib:/fs9, wanted lustre mgs1@o2ib"):
        run(host, LUSTRE)


def test_a_server_that_does_not_respond_costs_a_deadline_and_leaves_nothing(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    programs(host).dead = [WEKA["source"]]
    assert "Cannot mount /data: mount did not end within 60 seconds." in str(run(host, WEKA).error)
    assert snapshot(tmp_path) == before


# --- tunables of Lustre ---

TUNABLES = "/etc/systemd/system/gpufleet-lustre-data.service"
THERE = "61 25 0:61 / /data rw,noatime - lustre 10.0.1.1@o2ib:/fs1/sets rw,flock,lazystatfs\n"


def has(host: FakeHost, name: str) -> List[str]:
    """What the instances of the file system have."""
    subsystem, _dot, parameter = name.rpartition(".")
    found = clients(host).parameters.items()
    return [
        text
        for key, text in found
        if key.startswith(f"{subsystem}.fs1-") and key.endswith(f".{parameter}") and "fs1-x" not in key
    ]


def there_before(tmp_path: Path, **parameters: str) -> FakeHost:
    host = machine(tmp_path, {MOUNTINFO: ROOT + THERE})
    clients(host).connect()
    clients(host).parameters.update({key.replace("__", "."): text for key, text in parameters.items()})
    return host


def tuned(**values: Any) -> Dict[str, Any]:
    return {**LUSTRE, "tunables": {name.replace("__", "."): value for name, value in values.items()}}


def test_tunables_are_set_with_the_mount_and_read_back_by_what_they_mean(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    predicted = run(host, TUNED, check=True)
    outcome = run(host, TUNED)
    assert (outcome.error, outcome.changes) == (None, predicted.changes)
    assert has(host, "osc.max_pages_per_rpc") == ["4096", "4096"]
    assert has(host, "osc.max_rpcs_in_flight") == ["64", "64"]
    assert has(host, "osc.checksum_type") == ["crc32 [adler] crc32c"] * 2
    # The limit that has to be lower comes after the other one.
    assert (has(host, "mdc.max_mod_rpcs_in_flight"), has(host, "mdc.max_rpcs_in_flight")) == (["31"], ["32"])
    again = run(host, TUNED)
    assert (again.status, again.changes) == ("in_sync", ())
    assert again.effective["mounts"]["/data"]["tunables"]["osc.max_pages_per_rpc"] == "4096"
    assert again.boot["mounts"]["/data"]["tunables"] == {name: str(value) for name, value in TUNED["tunables"].items()}
    assert run(host, state="absent").error is None
    assert snapshot(tmp_path) == before


def test_other_file_systems_and_the_cluster_keep_what_they_have(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, TUNED)
    others = {key: text for key, text in clients(host).parameters.items() if ".fs2-" in key or ".fs1-x-" in key}
    assert sorted(others.values()) == ["64", "8", "8"]
    # The machine refuses -P.
    assert len(started(host, "lctl")) > 5


def test_the_unit_sets_them_at_boot_as_a_run_does(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, TUNED)
    text = host.files.read(TUNABLES)
    assert "Requisite=data.mount\nAfter=data.mount\n" in text
    assert "Wants=gpufleet-lustre-data.service\n" in host.files.read(UNIT)
    boot(tmp_path, host)
    assert has(host, "osc.max_rpcs_in_flight") == ["8", "8"]
    (tmp_path / "lctl").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "udevadm").write_text("#!/bin/sh\n")
    for name in ("lctl", "udevadm"):
        (tmp_path / name).chmod(0o755)
    line = next(line for line in text.splitlines() if line.startswith("ExecStart=/bin/sh -c '"))
    path = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
    said = subprocess.run(
        ["sh", "-c", line.partition("'")[2][:-1]], check=True, env={"PATH": path}, stdout=subprocess.PIPE, text=True
    )
    words = said.stdout.splitlines()
    assert (words[:3], words[-1]) == (
        ["set_param", "llite.fs1-*.max_cached_mb=64000", "llite.fs1-*.max_read_ahead_mb=1024"],
        # It has to be lower than the other limit by then.
        "mdc.fs1-MDT*.max_mod_rpcs_in_flight=31",
    )
    assert clients(host).lctl(["lctl", *words]).status == 0
    assert [text for key, text in clients(host).parameters.items() if "-x-OST" in key or "fs2" in key] == ["8", "8"]
    for name in ("lctl", "udevadm"):
        (tmp_path / name).unlink()
    booted = run(host, TUNED)
    assert (booted.status, booted.changes) == ("in_sync", ())


def test_what_one_instance_has_otherwise_is_named_and_only_that_is_set(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, TUNED)
    client = clients(host)
    key = next(key for key in client.parameters if key.startswith("osc.fs1-OST0001") and "max_rpcs" in key)
    client.parameters[key] = "8"
    host.commands.calls.clear()
    outcome = run(host, TUNED)
    assert [(change.setting, change.before, change.after) for change in outcome.changes] == [
        ("osc.max_rpcs_in_flight", "64 (OST0001 8)", "64")
    ]
    assert [argv for argv in started(host, "lctl") if argv[1] == "set_param"] == [("lctl", "set_param", f"{key}=64")]
    assert has(host, "osc.max_rpcs_in_flight") == ["64", "64"]


def test_pages_are_those_of_the_machine(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/proc/self/smaps": "aaaa-bbbb r--p 00000000 00:00 0\nKernelPageSize:       64 kB\n"})
    run(host, LUSTRE)
    client = clients(host)
    for key in client.parameters:
        if key.startswith("osc.fs1-OST") and key.endswith("max_pages_per_rpc"):
            client.parameters[key] = "256"
    host.commands.calls.clear()
    assert run(host, tuned(osc__max_pages_per_rpc="16M")).error is None
    assert [argv for argv in started(host, "lctl") if argv[1] == "set_param"] == []


def test_what_lctl_refuses_is_said_in_its_words_and_keeps_no_mount_from_being_made(tmp_path: Path) -> None:
    host = machine(tmp_path)
    more = {**tuned(osc__max_rpcs_in_flight=999), "path": "/adata"}
    for _again in range(2):
        outcome = run(host, more, HOT)
        assert isinstance(outcome.error, Refused)
        assert str(outcome.error).startswith(
            "Cannot set osc.max_rpcs_in_flight in /adata: error: set_param: setting osc.fs1-OST0000-osc-ffff9b2c1000"
        )
        assert "Numerical result out of range" in str(outcome.error)
        assert mounted(host, "/hot") is not None


def test_what_the_client_does_not_have_is_named(tmp_path: Path) -> None:
    host = there_before(tmp_path)
    outcome = run(host, tuned(osc__max_rpcs_in_flight=16, osc__idle_timeout=0))
    assert outcome.error is None
    assert has(host, "osc.max_rpcs_in_flight") == ["16", "16"]
    assert unmanaged(outcome) == [("/data", "osc.idle_timeout", "the client has no such parameter")]
    del host.commands.programs["lctl"]
    assert ("/data", "osc.max_rpcs_in_flight", "lctl is not installed") in unmanaged(
        run(host, tuned(osc__max_rpcs_in_flight=16))
    )


@pytest.mark.parametrize("way", [{"state": "absent"}, {"mounts": [HOT]}], ids=["absent", "orphaned"])
def test_a_mount_from_before_us_gets_its_tunables_back(tmp_path: Path, way: Mapping[str, Any]) -> None:
    host = there_before(tmp_path, **{"osc__fs1-OST0001-osc-ffff9b2c1000__max_rpcs_in_flight": "32"})
    before = dict(clients(host).parameters)
    assert run(host, TUNED, HOT).error is None
    assert clients(host).parameters != before
    assert run(host, **way).error is None
    # Of those that are printed with what is possible only the value counts.
    assert {key: text for key, text in clients(host).parameters.items() if "checksum_type" not in key} == {
        key: text for key, text in before.items() if "checksum_type" not in key
    }
    assert has(host, "osc.checksum_type") == ["crc32 [crc32c] crc32c"] * 2
    assert not host.files.exists(TUNABLES)
    again = run(host, **way)
    assert (again.status, again.changes) == ("in_sync", ())


def test_a_value_that_no_client_had_is_a_damaged_record(tmp_path: Path) -> None:
    host = there_before(tmp_path)
    run(host, tuned(osc__max_rpcs_in_flight=16))
    path = tmp_path / "var/lib/gpufleet/baseline/filesystems.json"
    path.write_text(path.read_text().replace('"8"', '"8; reboot"'))
    with pytest.raises(CannotLook, match="the file is damaged"):
        run(host, state="absent")


@pytest.mark.once
def test_lctl_that_does_not_end_is_said(tmp_path: Path) -> None:
    host = there_before(tmp_path)
    host.commands.programs["lctl"] = lambda argv: Completed(124, "", "")
    with pytest.raises(CannotLook, match=r"Cannot read osc\.fs1-OST\*\.max_rpcs_in_flight: lctl did not end within 10"):
        run(host, tuned(osc__max_rpcs_in_flight=16))


# --- secrets ---

KEY = "AQATSKdNGBnwLhAAnNDKnH65FmVKpXZJVasUeQ=="


@pytest.mark.parametrize("option", [f"secret={KEY}", f"name=gpu,secret={KEY}"])
def test_a_secret_is_refused_and_in_no_message(tmp_path: Path, option: str) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    with pytest.raises(DeclarationError) as caught:
        run(host, with_options(CEPH, option))
    assert str(caught.value) == (
        "Cannot declare mounts[0].options: secret would be in a unit that everybody can read, and in the list of"
        " processes. Set secretfile=...."
    )
    assert KEY not in json.dumps(caught.value.failure())
    assert snapshot(tmp_path) == before


@pytest.mark.once
def test_a_file_with_a_secret_may_be_named(tmp_path: Path) -> None:
    host = machine(tmp_path)
    assert run(host, with_options(WEKA, "auth_token_path=/root/.weka/auth-token.json")).error is None
    with pytest.raises(DeclarationError, match=r"join_secret would be in a unit"):
        run(host, with_options(WEKA, "join_secret=abc"))


# --- bad input ---


@pytest.mark.once
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({**LUSTRE, "source": "mgs1@o2ib"}, "it is not the servers of a file system of Lustre and its name"),
        ({**LUSTRE, "source": "mgs1@o2ib:/longer-than-8"}, "it is not the servers of a file system of Lustre and its"),
        ({**LUSTRE, "source": ""}, "Cannot declare mounts[0].source: it is empty, or has blanks or quotes"),
        ({**CEPH, "source": "mon1,mon2"}, "it is neither monitors and a path, nor a user, a file system and a path"),
        (
            {**CEPH, "source": "gpu@cephfs=/a"},
            "it is neither monitors and a path, nor a user, a file system and a path",
        ),
        ({**BEEGFS, "source": "mgmt1"}, "BeeGFS takes its servers from its client configuration (cfgFile)"),
        ({**WEKA, "source": "backend1/fs/sub"}, "it is not the backends of a cluster and a file system"),
        (
            with_options(CEPH, "rasize=64m"),
            "the kernel takes a number of bytes without a unit (wanted rasize=64m). Set for",
        ),
        (with_options(CEPH, "rsize=1000"), "the kernel rounds what is not a multiple of 4096 bytes"),
        (with_options(LUSTRE, "flock", "localflock"), "flock and localflock set the same thing."),
        (with_options(WEKA, "num_cores=4", "num_cores=2"), "num_cores=4 and num_cores=2 set the same thing."),
        (with_options(WEKA, "core=0"), "WEKA does not take core 0"),
        ({**CEPH, "read_ahead_kb": 4096}, "the read-ahead of Ceph is an option of the mount"),
        ({**LUSTRE, "read_ahead_kb": 4096}, "Lustre has a read-ahead of its own"),
        ({**CEPH, "tunables": {"llite.checksums": 0}}, "Cannot declare mounts[0].tunables: ceph has none."),
        (
            tuned(max_rpcs_in_flight=8),
            "it must be llite, lmv, lov, mdc, osc or ldlm.namespaces and a parameter, without instance or *",
        ),
        (
            {**LUSTRE, "tunables": {"osc.fs1-OST0000-osc-ffff.max_rpcs_in_flight": 8}},
            "it must be llite, lmv, lov, mdc, osc or ldlm.namespaces and a parameter, without instance or *",
        ),
        ({**LUSTRE, "tunables": {"osc.*.checksums": 0}}, "it must be llite, lmv, lov, mdc, osc or ldlm.namespaces"),
        ({**LUSTRE, "tunables": {"osc/checksums": 0}}, "it must be llite, lmv, lov, mdc, osc or ldlm.namespaces"),
        ({**LUSTRE, "tunables": {"ost.threads_max": 8}}, "it must be llite, lmv, lov, mdc, osc or ldlm.namespaces"),
        (
            tuned(osc__checksums="1; reboot"),
            "Cannot declare mounts[0].tunables.osc.checksums: it is not a whole number",
        ),
        (tuned(osc__checksums=None), "it is not a whole number or a word"),
        (tuned(ldlm__namespaces__lru_size=0), "it reads back as the number of locks, so that nothing can be compared"),
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


@pytest.mark.once
def test_two_mounts_of_one_file_system_have_one_value(tmp_path: Path) -> None:
    host = machine(tmp_path)
    other = {**tuned(osc__checksums=0), "path": "/more", "source": "mgs2@o2ib:/fs1"}
    with pytest.raises(DeclarationError, match=r"/data is a mount of fs1 too, with osc\.checksums: 1"):
        run(host, tuned(osc__checksums=True), other)
