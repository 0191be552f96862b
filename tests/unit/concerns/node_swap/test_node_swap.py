# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Swap: who brings it at boot, what may be switched off, and what is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    GpuFleetError,
    InUse,
    OwnedByAnother,
)
from ansible_collections.gpufleet.node.plugins.module_utils._linux import fstab
from ansible_collections.gpufleet.node.plugins.module_utils._linux.escapes import unit_of_path
from ansible_collections.gpufleet.node.tests.unit.concerns.node_swap.node_swap_machine import (
    DISK,
    FSTAB,
    GPT_SWAP,
    HEADER,
    MEMINFO,
    VENDOR,
    machine,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, snapshot

ZRAM_GENERATOR = "/usr/lib/systemd/system-generators/zram-generator"
ZRAM_UNIT = "/etc/systemd/system/dev-zram0.swap"
OFF = {"enabled": False}
NO_SWAP: Mapping[str, Optional[str]] = {
    "/proc/swaps": HEADER,
    "/etc/fstab": "UUID=11aa / ext4 defaults 0 1\n",
    "/run/systemd/generator/dev-disk-by\\x2duuid-22bb.swap": None,
    "/run/systemd/generator/swap\\x20file.swap": None,
    "/run/udev/data/b8:2": "E:ID_FS_UUID=22bb\n",
}


def active(host: FakeHost) -> Dict[str, str]:
    """The areas in use, with their priority."""
    lines = host.files.read("/proc/swaps").splitlines()[1:]
    return {line.split()[0]: line.split()[4] for line in lines}


def conflicts(outcome: Outcome) -> Any:
    return [(entry.owner, entry.path, entry.line, entry.value, entry.wins) for entry in outcome.remaining.conflicts]


def test_swap_goes_off_now_and_at_boot_and_comes_back_as_it_was(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    outcome = run(host, **OFF)
    assert outcome.error is None
    assert active(host) == {}
    assert host.files.read("/etc/fstab").splitlines() == [
        "# /etc/fstab: static file system information.",
        "UUID=11aa / ext4 errors=remount-ro 0 1",
        "# gpufleet.node.node_swap: UUID=22bb none\tswap sw,pri=5 0 0",
        "/dev/sdz1 none swap noauto 0 0",
        "",
        "# gpufleet.node.node_swap: /swap\\040file none swap defaults 0 0",
    ]
    # Without a line of swap in fstab, systemd would take the partition.
    assert host.files.read("/etc/systemd/system/dev-sda2.swap") == ""
    again = run(host, **OFF)
    assert (again.status, again.changes, again.boot) == ("in_sync", (), {"swap": "off", "sources": []})
    assert run(host, state="absent").error is None
    assert host.files.read("/etc/fstab") == FSTAB
    assert active(host) == {"/dev/sda2": "5", "/swap\\040file": "-2"}
    assert snapshot(tmp_path) == before


def test_the_configuration_changes_first_then_systemd_reads_it_then_the_areas_go(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, **OFF)
    assert [call[:2] for call in host.commands.calls] == [
        ("systemctl", "daemon-reload"),
        ("swapoff", "/dev/sda2"),
        ("swapoff", "/swap file"),
    ]
    log = [path for _kind, path, _value in host.files.log]
    assert "/etc/fstab" in log


def test_an_earlier_area_is_found_by_its_uuid_when_the_disk_has_another_name(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, **OFF)
    host.commands.calls.clear()
    run(host, state="absent")
    assert ("swapon", "-p", "5", "/dev/disk/by-uuid/22bb") in host.commands.calls
    assert ("swapon", "/swap file") in host.commands.calls


def test_only_the_next_boot_or_only_the_running_system(tmp_path: Path) -> None:
    host = machine(tmp_path / "boot")
    assert run(host, **OFF, immediate=False).error is None
    assert len(active(host)) == 2
    assert host.files.read("/etc/fstab").count("# gpufleet.node.node_swap: ") == 2
    host = machine(tmp_path / "now")
    assert run(host, **OFF, permanent=False).error is None
    assert (active(host), host.files.read("/etc/fstab")) == ({}, FSTAB)


@pytest.mark.parametrize(
    ("files", "source", "left"),
    [
        pytest.param(
            {"/run/udev/data/b8:2": f"E:ID_PART_ENTRY_TYPE={GPT_SWAP}\nE:ID_PART_ENTRY_FLAGS=0x1\n"},
            "dev-sda2.swap",
            "/etc/systemd/system/dev-sda2.swap",
            id="a GPT partition",
        ),
        pytest.param(
            {"/run/udev/data/b8:2": (f"E:ID_PART_ENTRY_TYPE={GPT_SWAP}\nE:ID_PART_ENTRY_FLAGS=0x8000000000000000\n")},
            None,
            None,
            id="a GPT partition with the flag no-auto",
        ),
        pytest.param(
            {
                "/run/udev/data/b8:2": f"E:ID_PART_ENTRY_TYPE={GPT_SWAP}\n",
                "/etc/systemd/system/dev-sda2.swap": "",
            },
            None,
            None,
            id="a masked one",
        ),
        pytest.param(
            {ZRAM_GENERATOR: "", "/usr/lib/systemd/zram-generator.conf": "[zram0]\nzram-size = ram / 2\n"},
            "dev-zram0.swap",
            ZRAM_UNIT,
            id="zram-generator",
        ),
        pytest.param(
            {
                ZRAM_GENERATOR: "",
                "/usr/lib/systemd/zram-generator.conf": "[zram0]\n",
                "/etc/systemd/zram-generator.conf": "",
            },
            None,
            None,
            id="zram-generator switched off by an empty file",
        ),
        pytest.param(
            {
                ZRAM_GENERATOR: "",
                "/etc/systemd/zram-generator.conf": "",
                "/etc/systemd/zram-generator.conf.d/10.conf": "[zram0]\n",
            },
            "dev-zram0.swap",
            ZRAM_UNIT,
            id="a drop-in of zram-generator",
        ),
        pytest.param(
            {ZRAM_GENERATOR: "", "/etc/systemd/zram-generator.conf": "[zram1]\nmount-point = /var/tmp\n"},
            None,
            None,
            id="zram that is no swap",
        ),
        pytest.param(
            {ZRAM_GENERATOR: "", "/proc/cmdline": "ro systemd.zram quiet\n"},
            "dev-zram0.swap",
            ZRAM_UNIT,
            id="zram-generator by the command line",
        ),
        pytest.param(
            {ZRAM_GENERATOR: "", "/proc/cmdline": "ro systemd.zram=0 systemd.zramx=1\n"},
            None,
            None,
            id="zram-generator that the command line does not ask",
        ),
        pytest.param(
            {
                f"{VENDOR}/zramswap.service": "[Service]\nExecStart=/usr/sbin/zramswap start\n",
                "/etc/systemd/system/multi-user.target.wants/zramswap.service": "",
            },
            "zramswap.service",
            "/etc/systemd/system/zramswap.service",
            id="zram-tools",
        ),
    ],
)
def test_what_a_boot_brings_beside_fstab_is_masked_and_given_back(
    tmp_path: Path, files: Mapping[str, str], source: Optional[str], left: Optional[str]
) -> None:
    host = machine(tmp_path, {**NO_SWAP, **files})
    before = snapshot(tmp_path)
    assert run(host, **OFF, check=True).boot["sources"] == ([source] if source else [])
    outcome = run(host, **OFF)
    assert (outcome.error, bool(outcome.changes)) == (None, True)
    if left:
        assert host.files.read(left) == ""
    assert run(host, **OFF).status == "in_sync"
    run(host, state="absent")
    assert snapshot(tmp_path) == before


def test_a_unit_of_the_administrator_is_disabled_and_enabled_again(tmp_path: Path) -> None:
    unit = "/etc/systemd/system/mnt-swap.swap"
    link = "/etc/systemd/system/swap.target.wants/mnt-swap.swap"
    files = {**NO_SWAP, unit: "[Swap]\nWhat=/mnt/swap\n[Install]\nWantedBy=swap.target\n"}
    host = machine(tmp_path, files, {link: unit})
    before = snapshot(tmp_path)
    assert run(host, **OFF).error is None
    assert not host.files.exists(link)
    assert run(host, **OFF).status == "in_sync"
    run(host, state="absent")
    assert snapshot(tmp_path) == before


def test_a_partition_that_udev_does_not_know_is_unknown(tmp_path: Path) -> None:
    host = machine(tmp_path, {**NO_SWAP, "/run/udev/data/b8:2": None})
    with pytest.raises(CannotLook, match="Cannot tell whether /dev/sda2 is swap at the next boot: udev has no record"):
        run(host, **OFF)


def test_the_root_disk_is_found_below_a_device_of_the_mapper(tmp_path: Path) -> None:
    files = {
        **NO_SWAP,
        "/proc/self/mountinfo": "25 1 252:0 / / rw - ext4 /dev/mapper/vg-root rw\n",
        "/sys/devices/virtual/block/dm-0/slaves/sda1": "",
        "/run/udev/data/b8:2": f"E:ID_PART_ENTRY_TYPE={GPT_SWAP}\n",
    }
    links = {"/sys/dev/block/252:0": "/sys/devices/virtual/block/dm-0", "/sys/class/block/sda1": f"{DISK}/sda1"}
    host = machine(tmp_path, files, links)
    assert run(host, **OFF, check=True).boot["sources"] == ["dev-sda2.swap"]


def test_a_container_shows_the_swap_of_its_host_which_is_unknown(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/run/systemd/container": "docker\n"})
    with pytest.raises(CannotLook, match="this is a container, and the kernel shows the swap of its host"):
        run(host, **OFF)
    assert run(host, **OFF, immediate=False).error is None


USED = f"{HEADER}/dev/sda2 partition 4194300 2097152 5\n/swap\\040file file 1048572 1048572 -2\n"


@pytest.mark.parametrize(
    ("files", "cause"),
    [
        pytest.param(
            {"/proc/swaps": USED, "/proc/meminfo": MEMINFO.replace(" 8000000", " 3500000")},
            "3071 MiB are swapped, and of 3417 MiB of available memory 781 MiB are to stay free",
            id="does not fit",
        ),
        pytest.param(
            {
                "/proc/sys/vm/overcommit_memory": "2\n",
                "/proc/meminfo": MEMINFO.replace("      1000", "   6000000"),
            },
            "with vm.overcommit_memory=2 the kernel charges all 4095 MiB of /dev/sda2, and of the limit of 8789 MiB "
            "there are 5859 MiB committed",
            id="is charged",
        ),
        pytest.param(
            {
                "/proc/sys/vm/overcommit_memory": "2\n",
                "/proc/meminfo": MEMINFO.replace("      1000", "   4500000"),
                "/proc/swaps": f"{HEADER}/dev/sda2 partition 4194300 0 5\n/swap\\040file file 1048572 0 -2\n",
            },
            "with vm.overcommit_memory=2 the kernel charges all 1023 MiB of /swap file, and of the limit of 4693 MiB "
            "there are 4394 MiB committed",
            id="the limit falls with each area",
        ),
    ],
)
def test_what_would_not_fit_into_memory_is_refused_before_anything_changes(
    tmp_path: Path, files: Mapping[str, str], cause: str
) -> None:
    host = machine(tmp_path, files)
    before = snapshot(tmp_path)
    with pytest.raises(InUse, match=re.escape(f"Cannot switch swap off: {cause}.")):
        run(host, **OFF)
    assert (snapshot(tmp_path), host.commands.calls) == (before, [])


def test_memory_that_went_meanwhile_stops_the_area_and_leaves_it_on(tmp_path: Path) -> None:
    host = machine(tmp_path)
    reload = host.commands.programs["systemctl"]

    def less(argv: Any) -> Any:
        Path(tmp_path, "proc/swaps").write_text(USED)
        Path(tmp_path, "proc/meminfo").write_text(MEMINFO.replace(" 8000000", " 1500000"))
        return reload(argv)

    host.commands.programs["systemctl"] = less
    outcome = run(host, **OFF)
    assert isinstance(outcome.error, InUse)
    assert "Cannot switch /dev/sda2 off: 2048 MiB are swapped" in str(outcome.error)
    assert len(active(host)) == 2


def test_an_area_whose_file_was_deleted_waits_for_the_reboot(tmp_path: Path) -> None:
    host = machine(tmp_path, {**NO_SWAP, "/proc/swaps": f"{HEADER}/old\\040(deleted) file 1024 0 -2\n"})
    outcome = run(host, **OFF)
    assert (outcome.error, outcome.as_dict()["needs"]) == (None, ["reboot"])
    assert [call for call in host.commands.calls if call[0] == "swapoff"] == []


def test_a_zram_device_that_is_gone_is_not_switched_on_again(tmp_path: Path) -> None:
    host = machine(tmp_path, {**NO_SWAP, "/proc/swaps": f"{HEADER}/dev/zram0 partition 1024 0 100\n", "/dev/zram0": ""})
    assert run(host, **OFF).error is None
    Path(tmp_path, "dev/zram0").unlink()
    unmanaged = run(host, state="absent", check=True).remaining.unmanaged
    reason = "it is not there; where the next boot makes it, it is on again"
    assert [(entry.object, entry.setting, entry.reason) for entry in unmanaged] == [("/dev/zram0", "swap", reason)]
    assert run(host, state="absent").error is None
    assert active(host) == {}


AGENT = {
    "/etc/waagent.conf": "ResourceDisk.Format=y\nResourceDisk.EnableSwap=y\nResourceDisk.SwapSizeMB=2048\n",
    f"{VENDOR}/walinuxagent.service": "[Service]\n",
    "/etc/systemd/system/multi-user.target.wants/walinuxagent.service": "",
}
CLOUD = {"/etc/cloud/cloud.cfg.d/90-swap.cfg": "#cloud-config\nswap:\n  filename: /swap.img\n  size: 2G\n"}
MOUNTS = {"/etc/cloud/cloud.cfg": "mounts:\n  - [/dev/sdb, none, swap, sw, '0', '0']\n"}


def daemon(name: str) -> Dict[str, str]:
    text = f"[Service]\nExecStart=/usr/sbin/{name}\n"
    return {f"{VENDOR}/{name}.service": text, f"/etc/systemd/system/multi-user.target.wants/{name}.service": text}


def by_script(text: str) -> Dict[str, str]:
    unit = "[Service]\nExecStart=/opt/zram\n"
    link = "/etc/systemd/system/multi-user.target.wants/zram-swap.service"
    return {"/etc/systemd/system/zram-swap.service": unit, link: unit, "/opt/zram": f"#!/bin/sh\n{text}\n"}


DONE = {"/var/lib/cloud/instance/sem/config_mounts": ""}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        pytest.param(
            AGENT, "/etc/waagent.conf line 2 lets WALinuxAgent make it (found ResourceDisk.EnableSwap y)", id="agent"
        ),
        pytest.param(
            CLOUD, "/etc/cloud/cloud.cfg.d/90-swap.cfg line 4 lets cloud-init make it (found swap 2G)", id="cloud-init"
        ),
        pytest.param(
            daemon("swapspace"),
            f"{VENDOR}/swapspace.service lets swapspace.service make it (found swap as needed)",
            id="a daemon",
        ),
        pytest.param(
            daemon("systemd-swap"),
            f"{VENDOR}/systemd-swap.service lets systemd-swap.service make it",
            id="another daemon",
        ),
        pytest.param(
            by_script('DEV=/dev/zram0\nmodprobe zram\nmkswap "$DEV"\nswapon -p 100 "$DEV"'),
            "/opt/zram line 5 lets zram-swap.service make it (found swap -p 100 /dev/zram0)",
            id="a script for zram",
        ),
        pytest.param(MOUNTS, "/etc/cloud/cloud.cfg line 2 lets cloud-init make it", id="a mount of cloud-init"),
        pytest.param(
            {"/var/lib/cloud/instance/vendor-cloud-config.txt": "#cloud-config\nswap: {size: 4G}\n"},
            "/var/lib/cloud/instance/vendor-cloud-config.txt line 2 lets cloud-init make it (found swap 4G)",
            id="the vendor of the cloud",
        ),
    ],
)
def test_who_makes_swap_at_the_next_boot_is_refused_with_file_and_line(
    tmp_path: Path, files: Mapping[str, str], found: str
) -> None:
    host = machine(tmp_path, files)
    before = snapshot(tmp_path)
    with pytest.raises(OwnedByAnother, match=re.escape(f"Cannot keep swap off across a reboot: {found}")):
        run(host, **OFF)
    assert snapshot(tmp_path) == before
    assert run(host, **OFF, permanent=False).error is None


def test_cloud_init_that_has_set_up_this_instance_is_named_and_loses(tmp_path: Path) -> None:
    host = machine(tmp_path, {**CLOUD, **DONE})
    assert run(host, **OFF).error is None
    assert conflicts(run(host, **OFF)) == [("cloud-init", "/etc/cloud/cloud.cfg.d/90-swap.cfg", 4, "2G", "us")]
    for _time in range(2):
        assert run(host, **OFF).changes == ()


def test_swap_that_cloud_init_makes_for_another_instance_is_switched_off_again_and_given_back(tmp_path: Path) -> None:
    # As cc_mounts of 22.4.2 writes it. For another instance it drops every line that has its comment, ours too.
    line = "/swap.img\tnone\tswap\tsw,comment=cloudconfig\t0\t0\n"
    host = machine(tmp_path, {**CLOUD, **DONE, "/etc/fstab": line})
    run(host, **OFF)
    assert host.files.read("/etc/fstab") == f"# gpufleet.node.node_swap: {line}"
    (tmp_path / "etc/fstab").write_text(line)
    assert run(host, **OFF).status == "drifted"
    assert run(host, **OFF).changes == ()
    run(host, state="absent")
    assert host.files.read("/etc/fstab") == line


@pytest.mark.parametrize(
    "files",
    [
        {**AGENT, "/etc/waagent.conf": "ResourceDisk.EnableSwap=n\n"},
        {**AGENT, "/etc/waagent.conf": "ResourceDisk.EnableSwap=y\nResourceDisk.SwapSizeMB=0\n"},
        {**CLOUD, "/etc/cloud/cloud-init.disabled": ""},
        {"/etc/cloud/cloud.cfg": "swap:\n  size: 0\n"},
        {f"{VENDOR}/swapspace.service": "[Service]\nExecStart=/usr/sbin/swapspace\n"},
        by_script("zramctl --find --size 1G\nswapoff -a\nswapon --show"),
    ],
)
def test_who_makes_no_swap_is_not_named(tmp_path: Path, files: Mapping[str, str]) -> None:
    assert conflicts(run(machine(tmp_path, files), **OFF)) == []


def test_a_swap_file_of_ours_is_made_used_made_anew_and_removed(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    assert run(host, enabled=True, size="1M").error is None
    status = host.files.status("/swapfile_gpufleet")
    assert status is not None
    assert (status.st_size, oct(status.st_mode & 0o777)) == (1024**2, "0o600")
    assert sorted(active(host)) == ["/dev/sda2", "/swap\\040file", "/swapfile_gpufleet"]
    assert run(host, enabled=True, size="1M").status == "in_sync"
    host.commands.calls.clear()
    assert run(host, enabled=True, size="2M").error is None
    assert [call[0] for call in host.commands.calls] == ["swapoff", "install", "fallocate", "mkswap", "mv", "swapon"]
    assert run(host, **OFF).error is None
    assert (active(host), host.files.exists("/swapfile_gpufleet")) == ({}, False)
    assert run(host, state="absent").error is None
    assert snapshot(tmp_path) == before


def test_a_swap_file_that_the_file_system_cannot_have_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    root = "25 1 0:30 / / rw - btrfs /dev/sda1 rw\n"
    host = machine(tmp_path / "btrfs", {"/proc/self/mountinfo": root})
    with pytest.raises(DeclarationError, match="file without holes on btrfs"):
        run(host, enabled=True, size="1M")
    host = machine(tmp_path / "full")
    monkeypatch.setattr(host.files, "free", lambda path: 600 * 1024**2)
    before = snapshot(tmp_path)
    with pytest.raises(DeclarationError, match=r"less than 256 MiB .* \(found 600 MiB free, wanted 1024 MiB\)"):
        run(host, enabled=True, size="1G")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("text", "named"),
    [("failSwapOn: true\n", 1), ("kind: KubeletConfiguration\n", None), ("failSwapOn: false\n", 0)],
)
def test_a_kubelet_that_would_not_start_is_named(tmp_path: Path, text: str, named: Optional[int]) -> None:
    host = machine(tmp_path, {"/var/lib/kubelet/config.yaml": text})
    expected = [("kubelet", "/var/lib/kubelet/config.yaml", named, "true", "them")] if named != 0 else []
    assert conflicts(run(host, enabled=True, size="1M", check=True)) == expected


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({}, "Cannot read the declaration: nothing is declared."),
        ({"enabled": False, "size": "1G"}, "Cannot read the declaration: size is that of a swap file"),
        ({"enabled": True}, "Cannot enable swap: the swap file has no size."),
        ({"enabled": True, "size": "lots"}, "Cannot set size on the swap file: it is not a number with a unit"),
        ({"enabled": True, "size": "0G"}, "Cannot set size on the swap file: it is not a number with a unit"),
        ({"enabled": True, "size": "1024"}, "Cannot set size on the swap file: it is not a number with a unit"),
    ],
)
def test_what_no_machine_could_have_is_refused(tmp_path: Path, declaration: Dict[str, Any], message: str) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    with pytest.raises(GpuFleetError, match=re.escape(message)):
        run(host, **declaration)
    assert snapshot(tmp_path) == before


def test_switching_lines_off_and_on_keeps_every_byte() -> None:
    text = "a\tb swap\n#c d swap x\n e f  swap , 0\r\ng h ext4\nno end of swap"
    mark = "# off: "
    off = fstab.switch(text, mark, off=lambda line: line.kind == "swap")
    assert [line.marked for line in fstab.parse(off, mark)] == [True, True, False, False]
    assert fstab.switch(off, mark, off=lambda line: False) == text


@pytest.mark.skipif(shutil.which("systemd-escape") is None, reason="needs systemd")
@pytest.mark.parametrize("path", ["/dev/sda3", "/dev/disk/by-uuid/a-b", "/.x/ö", "/swap file", "//a//b/", "/a.b:c_d"])
def test_a_path_is_escaped_as_systemd_does(path: str) -> None:
    said = subprocess.run(
        ["systemd-escape", "--path", "--suffix=swap", path], capture_output=True, text=True, check=True
    )
    assert unit_of_path(path, "swap") == said.stdout.strip()


GENERATOR = "/usr/lib/systemd/system-generators/systemd-fstab-generator"


@pytest.mark.skipif(not Path(GENERATOR).exists(), reason="needs systemd")
def test_the_lines_that_count_are_those_of_which_systemd_makes_units(tmp_path: Path) -> None:
    (tmp_path / "fstab").write_text(FSTAB)
    folders = [str(tmp_path / name) for name in ("normal", "early", "late")]
    for folder in folders:
        Path(folder).mkdir()
    # In a container it makes no units of swap, but says what it has read.
    environment = {
        "SYSTEMD_FSTAB": str(tmp_path / "fstab"),
        "SYSTEMD_PROC_CMDLINE": "",
        "SYSTEMD_LOG_LEVEL": "debug",
        "SYSTEMD_LOG_TARGET": "console",
    }
    said = subprocess.run([GENERATOR, *folders], env=environment, check=True, capture_output=True, text=True).stderr
    read = re.findall(r"Found entry what=(.*) where=\S+ type=swap .*noauto=(\w+)", said)
    assert read == [("/dev/disk/by-uuid/22bb", "no"), ("/dev/sdz1", "yes"), ("/swap file", "no")]
    lines = [line for line in fstab.parse(FSTAB, "# off: ") if line.kind == "swap"]
    assert [(line.spec, "noauto" in line.options) for line in lines] == [
        ("UUID=22bb", False),
        ("/dev/sdz1", True),
        ("/swap file", False),
    ]
