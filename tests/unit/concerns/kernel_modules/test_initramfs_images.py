# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_modules.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_modules.initramfs_apply import paths_of
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_modules.state import INITRAMFS_NOTE
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_modules.kernel_modules_machine import (
    BLOCK_FILE,
    INITRAMFS,
    NOUVEAU_LOADED,
    NVME_LOADED,
    OPTIONS_FILE,
    OUTDATED,
    RELEASE,
    Kernel,
    machine,
    params,
    programs_run,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.linux import sdbootutil_machine
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, Killed, snapshot

IMAGE = f"/boot/initramfs-{RELEASE}.img"
# What lsinitrd of dracut 106-6 (Debian 13) lists of an image with microcode, most lines left out. Debian's image says
# no version. Where these lists have nouveau, which Debian leaves out of its images, there was xhci-pci.
EARLY = f"""\
Image: {IMAGE}: 14M
========================================================================
Early CPIO image
========================================================================
drwxr-xr-x   3 root     root            0 Nov 29 10:21 .
-rw-r--r--   1 root     root            2 Nov 29 10:21 early_cpio
drwxr-xr-x   3 root     root            0 Nov 29 10:21 kernel
drwxr-xr-x   3 root     root            0 Nov 29 10:21 kernel/x86
drwxr-xr-x   2 root     root            0 Nov 29 10:21 kernel/x86/microcode
-rw-r--r--   1 root     root       100684 Nov 29 10:21 kernel/x86/microcode/AuthenticAMD.bin
========================================================================
"""
LSINITRD = f"""\
{EARLY}Version:{" "}

Arguments:  --kver '6.12.117+deb13-amd64' --force

dracut modules:
dash
systemd
========================================================================
drwxr-xr-x  12 root     root            0 Nov 29 10:20 .
-rw-r--r--   1 root     root           82 Nov 29 10:02 etc/modprobe.d/gpufleet-kernel_modules.conf
lrwxrwxrwx   1 root     root           23 Nov 29 10:20 init -> usr/lib/systemd/systemd
-rw-r--r--   1 root     root          326 Apr 25  2025 usr/lib/modprobe.d/aliases.conf
-rw-r--r--   1 root     root        11820 Nov 12 09:30 usr/lib/modules/6.12.117+deb13-amd64/kernel/drivers/nouveau.ko.xz
========================================================================
dracut cmdline:
"""
# The same where it does not find skipcpio: it exits with 0 all the same.
LSINITRD_EARLY = f"{EARLY}\n\n"
# lsinitramfs of initramfs-tools 0.148.4 (Debian 13): the microcode, then modules, then the rest. nouveau as above.
LSINITRAMFS = """\
.
kernel
kernel/x86
kernel/x86/microcode
kernel/x86/microcode/AuthenticAMD.bin
.
usr
usr/lib
usr/lib/modules/6.12.117+deb13-amd64/kernel/drivers/nouveau.ko.xz
.
etc/modprobe.d
etc/modprobe.d/gpufleet-kernel_modules.conf
init
usr/lib/modprobe.d
usr/lib/modprobe.d/aliases.conf
"""
# unsquashfs -ll of squashfs-tools 4.6.1, which lsinitrd adds for what it finds as squashfs-root.img.
INNER = (
    "-rw-r--r-- root/root                82 2026-11-29 10:02 "
    "squashfs-root/etc/modprobe.d/gpufleet-kernel_modules.conf\n"
)
NOUVEAU_HELD = NOUVEAU_LOADED.replace("nouveau 16384 0", "nouveau 16384 1")
QUEUES: Dict[str, Any] = {"nvme": {"poll_queues": 4}}
BUILD = "dracut --force --regenerate-all"
LIST = f"lsinitrd {IMAGE}"


class Tool:
    """A tool that builds images with these modules, and with /etc/modprobe.d where it is ``hostonly``."""

    def __init__(self, host: FakeHost, kernel: Kernel, modules: Sequence[str], *, hostonly: bool) -> None:
        self.host = host
        self.kernel = kernel
        self.modules = modules
        self.hostonly = hostonly
        self.image = IMAGE

    def build(self, _argv: Sequence[str] = ()) -> Completed:
        folders = ["usr/lib/modprobe.d", *(["etc/modprobe.d"] if self.hostonly else [])]
        paths = [f"{folder}/{name}" for folder in folders for name in self.host.files.names(f"/{folder}")]
        paths += [f"usr/lib/modules/{RELEASE}/kernel/{name}.ko.zst" for name in self.modules]
        self.host.files.replace(self.image, "".join(f"{path}\n" for path in ("init", *paths)))
        return Completed(0, "", "")

    def list(self, argv: Sequence[str]) -> Completed:
        paths = self.host.files.read(argv[1]).splitlines()
        if argv[0] == "lsinitramfs":
            return Completed(0, "".join(f"{path}\n" for path in paths), "")
        line = "-rw-r--r--   1 root     root            0 Nov 29 06:14 {}\n"
        return Completed(0, "Arguments: \n" + "".join(map(line.format, paths)), "")


def dracut_machine(
    root: Path,
    *,
    hostonly: bool,
    modules: Sequence[str] = ("nouveau", "nvme"),
    loaded: str = "",
    more: Optional[Mapping[str, str]] = None,
) -> Tuple[FakeHost, Tool]:
    host, kernel = machine(root, more, loaded=loaded)
    tool = Tool(host, kernel, modules, hostonly=hostonly)
    tool.build()
    host.commands.programs.update({"dracut": tool.build, "lsinitrd": tool.list})
    host.files.log.clear()
    return host, tool


def debian_machine(root: Path, modules: Sequence[str] = ("nouveau", "nvme")) -> Tuple[FakeHost, Tool]:
    """One of initramfs-tools, which copies all of /etc/modprobe.d."""
    host, kernel = machine(root)
    tool = Tool(host, kernel, modules, hostonly=True)
    tool.image = INITRAMFS
    tool.build()
    host.commands.programs.update({"update-initramfs": tool.build, "lsinitramfs": tool.list})
    host.files.log.clear()
    return host, tool


def look(host: FakeHost, **declared: Any) -> Tuple[str, List[Tuple[Any, ...]], List[str]]:
    """The status, the rows that are not in sync, and the programs that this look ran."""
    host.commands.calls.clear()
    _state, plan = assess(CONCERN, params(**declared), host)
    wrong = [(row.object, row.setting, row.boot) for row in plan.settings if row.status == "drifted"]
    return plan.status, wrong, programs_run(host)


def update(host: FakeHost, path: str) -> None:
    """The image is built again, by a package."""
    text = host.files.read(path)
    host.files.replace(path, f"{text}usr/bin/new\n")


@pytest.mark.parametrize("text", [LSINITRD, LSINITRAMFS])
def test_what_the_programs_list_is_read_without_their_own_words(text: str) -> None:
    paths = paths_of(text)
    assert {path for path in paths if path.endswith(".conf")} == {
        "/etc/modprobe.d/gpufleet-kernel_modules.conf",
        "/lib/modprobe.d/aliases.conf",
    }
    assert {"/init", "/lib/modules/6.12.117+deb13-amd64/kernel/drivers/nouveau.ko.xz"} <= paths


def test_a_file_system_in_the_image_is_part_of_it() -> None:
    assert paths_of(INNER) == {"/etc/modprobe.d/gpufleet-kernel_modules.conf"}


def test_after_a_build_the_image_is_listed_once_and_a_look_only_compares_it(tmp_path: Path) -> None:
    host, _tool = dracut_machine(tmp_path, hostonly=True)
    run(host, block=["nouveau"])
    assert programs_run(host) == [BUILD, LIST]
    assert look(host, block=["nouveau"]) == ("in_sync", [], [])
    host.commands.calls.clear()
    assert run(host, block=["nouveau"]).changes == ()
    assert programs_run(host) == []


def test_an_image_with_a_blocked_module_and_without_our_file_fails_the_run_with_the_cause(tmp_path: Path) -> None:
    host, tool = dracut_machine(tmp_path, hostonly=False)
    with pytest.raises(Refused) as caught:
        run(host, block=["nouveau"])
    assert str(caught.value).startswith(
        f"Cannot apply the settings of modules in {IMAGE}: it has nouveau, but not {BLOCK_FILE}, so the next boot may "
        "load it without these settings"
    )
    assert f'add install_items+=" {BLOCK_FILE} " to a file in /etc/dracut.conf.d' in caught.value.hint
    status, wrong, ran = look(host, block=["nouveau"])
    assert (status, ran) == ("drifted", [])
    assert ("nouveau", "state", "on demand") in wrong
    assert ("initramfs", "copy of modprobe.d", f"missing: for nouveau in {IMAGE}") in wrong
    tool.hostonly = True
    outcome = run(host, block=["nouveau"])
    assert (outcome.remaining.status, outcome.boot) == ("in_sync", {"modules": {"nouveau": "blocked"}})
    assert [(c.object, c.after) for c in outcome.changes if c.object == "nouveau"] == [("nouveau", "blocked")]
    assert not host.files.exists(OUTDATED)


def test_an_image_that_does_not_have_the_module_needs_no_file(tmp_path: Path) -> None:
    host, _tool = dracut_machine(tmp_path, hostonly=False, modules=["nvme"])
    assert run(host, block=["nouveau"]).remaining.status == "in_sync"


@pytest.mark.parametrize(
    "more",
    [
        {"/usr/lib/modprobe.d/nvidia.conf": "blacklist nouveau\n"},
        {
            "/proc/cmdline": "ro rd.driver.blacklist=nouveau",
            "/boot/grub/grub.cfg": "menuentry 'Linux' {\n\tlinux /vmlinuz ro rd.driver.blacklist=nouveau\n}\n",
        },
        {
            "/proc/cmdline": "ro modprobe.blacklist=nouveau",
            "/boot/grub/grub.cfg": "menuentry 'Linux' {\n\tlinux /vmlinuz ro modprobe.blacklist=nouveau\n}\n",
        },
    ],
)
def test_what_else_blocks_the_module_in_the_image_is_as_good(tmp_path: Path, more: Mapping[str, str]) -> None:
    host, _tool = dracut_machine(tmp_path, hostonly=False, more=more)
    assert run(host, block=["nouveau"]).remaining.status == "in_sync"


def test_a_parameter_that_no_boot_brings_is_a_finding_and_does_not_wait_for_the_next(tmp_path: Path) -> None:
    host, tool = dracut_machine(tmp_path, hostonly=False, loaded=NVME_LOADED)
    with pytest.raises(Refused, match=f"it has nvme, but not {OPTIONS_FILE}"):
        run(host, parameters=QUEUES)
    _state, plan = assess(CONCERN, params(parameters=QUEUES), host)
    assert (plan.status, plan.needs) == ("drifted", ())
    tool.hostonly = True
    outcome = run(host, parameters=QUEUES)
    assert (outcome.remaining.status, outcome.remaining.needs) == ("pending", ("reboot",))
    assert outcome.boot["parameters"] == {"nvme": {"poll_queues": "4"}}


def test_a_parameter_of_the_kernel_command_line_needs_no_file_in_the_image(tmp_path: Path) -> None:
    line = "ro nvme.poll_queues=4"
    more = {"/proc/cmdline": line, "/boot/grub/grub.cfg": f"menuentry 'Linux' {{\n\tlinux /vmlinuz {line}\n}}\n"}
    host, _tool = dracut_machine(tmp_path, hostonly=False, more=more)
    assert run(host, parameters=QUEUES).remaining.status == "in_sync"


def test_a_module_in_use_does_not_wait_for_a_boot_that_loads_it_again(tmp_path: Path) -> None:
    host, _tool = dracut_machine(tmp_path, hostonly=False, loaded=NOUVEAU_HELD)
    with pytest.raises(Refused):
        run(host, block=["nouveau"])
    _state, plan = assess(CONCERN, params(block=["nouveau"]), host)
    assert (plan.status, plan.needs) == ("drifted", ())


def test_an_image_that_another_built_is_not_known_until_a_run_has_listed_it(tmp_path: Path) -> None:
    host, tool = dracut_machine(tmp_path, hostonly=True)
    run(host, block=["nouveau"])
    update(host, IMAGE)
    words = f"unknown: {IMAGE} was built since its files were listed"
    assert look(host, block=["nouveau"]) == ("drifted", [("initramfs", "copy of modprobe.d", words)], [])
    outcome = run(host, block=["nouveau"])
    assert programs_run(host) == [LIST]
    assert [(c.object, c.before) for c in outcome.changes] == [("initramfs", words)]
    assert look(host, block=["nouveau"]) == ("in_sync", [], [])
    tool.hostonly = False
    tool.build()
    with pytest.raises(Refused):
        run(host, block=["nouveau"])
    assert look(host, block=["nouveau"])[0] == "drifted"


def test_the_image_of_a_new_kernel_is_listed_too(tmp_path: Path) -> None:
    host, tool = dracut_machine(tmp_path, hostonly=True)
    run(host, block=["nouveau"])
    host.files.replace("/lib/modules/6.9.0/modules.dep", "")
    host.files.replace("/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    tool.image = "/boot/0123456789abcdef0123456789abcdef/6.9.0/initrd"
    tool.build()
    assert look(host, block=["nouveau"])[0] == "drifted"
    run(host, block=["nouveau"])
    assert programs_run(host) == [LIST, f"lsinitrd {tool.image}"]
    assert look(host, block=["nouveau"]) == ("in_sync", [], [])


def test_an_image_in_a_folder_named_default_is_listed(tmp_path: Path) -> None:
    host, tool = dracut_machine(tmp_path, hostonly=False)
    host.files.replace("/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    host.files.remove(IMAGE)
    tool.image = f"/boot/Default/{RELEASE}/initrd"
    with pytest.raises(Refused, match=f"in {tool.image}: it has nouveau"):
        run(host, block=["nouveau"])


def test_dracut_without_a_note_is_listed_and_not_built(tmp_path: Path) -> None:
    host, _tool = dracut_machine(tmp_path, hostonly=True)
    run(host, block=["nouveau"])
    host.files.remove(INITRAMFS_NOTE)
    assert look(host, block=["nouveau"])[0] == "drifted"
    run(host, block=["nouveau"])
    assert programs_run(host) == [LIST]


def test_initramfs_tools_needs_no_note_where_the_image_is_newer_than_our_files(tmp_path: Path) -> None:
    host, _tool = debian_machine(tmp_path)
    run(host, block=["nouveau"])
    assert programs_run(host) == ["update-initramfs -u -k all", f"lsinitramfs {INITRAMFS}"]
    host.files.remove(INITRAMFS_NOTE)
    assert look(host, block=["nouveau"]) == ("in_sync", [], [])
    run(host, block=["nouveau"])
    update(host, INITRAMFS)
    assert look(host, block=["nouveau"]) == ("in_sync", [], [])
    os.utime(host.files.locate(INITRAMFS), ns=(0, 0))
    assert look(host, block=["nouveau"])[0] == "drifted"


def test_an_update_initramfs_that_builds_nothing_is_found_out(tmp_path: Path) -> None:
    host, tool = debian_machine(tmp_path)
    host.commands.programs["update-initramfs"] = lambda argv: Completed(0, "Not updating initramfs.\n", "")
    with pytest.raises(Refused) as caught:
        run(host, block=["nouveau"])
    assert "update_initramfs=yes" in caught.value.hint
    update(host, INITRAMFS)
    assert look(host, block=["nouveau"])[0] == "drifted"
    host.commands.programs["update-initramfs"] = tool.build
    assert run(host, block=["nouveau"]).remaining.status == "in_sync"


def test_without_a_program_that_lists_or_without_an_image_nothing_more_is_asked(tmp_path: Path) -> None:
    host, _tool = dracut_machine(tmp_path / "a", hostonly=False)
    del host.commands.programs["lsinitrd"]
    assert run(host, block=["nouveau"]).remaining.status == "in_sync"
    host, _tool = dracut_machine(tmp_path / "b", hostonly=False)
    host.files.remove(IMAGE)
    host.commands.programs["dracut"] = lambda argv: Completed(0, "", "")
    assert run(host, block=["nouveau"]).remaining.status == "in_sync"


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (
            Completed(1, "", "cpio: premature end of file\n"),
            "lsinitrd ended with exit status 1: cpio: premature end of file",
        ),
        (Completed(0, LSINITRD_EARLY, ""), "lsinitrd lists no /init, so the list is not complete"),
        (
            Completed(0, LSINITRD + LSINITRAMFS + "squash-root.img\n", ""),
            "lsinitrd does not list what is in squash-root.img",
        ),
        (
            # That of dracut 106, without unsquashfs.
            Completed(127, LSINITRD, "/usr/bin/lsinitrd: line 284: unsquashfs: command not found\n"),
            "lsinitrd ended with exit status 127: /usr/bin/lsinitrd: line 284",
        ),
    ],
)
def test_an_image_that_cannot_be_listed_is_not_known(tmp_path: Path, answer: Completed, cause: str) -> None:
    host, tool = dracut_machine(tmp_path, hostonly=True)
    host.commands.programs["lsinitrd"] = lambda argv: answer
    with pytest.raises(CannotLook) as caught:
        run(host, block=["nouveau"])
    assert str(caught.value).startswith(f"Cannot list the files in {IMAGE}: {cause}")
    assert look(host, block=["nouveau"])[0] == "drifted"
    host.commands.programs["lsinitrd"] = tool.list
    assert run(host, block=["nouveau"]).remaining.status == "in_sync"


def test_a_damaged_note_is_no_note(tmp_path: Path) -> None:
    host, _tool = dracut_machine(tmp_path, hostonly=True)
    run(host, block=["nouveau"])
    for text in ("{", "[]", '{"schema": 2}', '{"schema": 1, "asked": [], "images": {"/boot/x": {"stat": ["?"]}}}'):
        host.files.replace(INITRAMFS_NOTE, text)
        assert look(host, block=["nouveau"])[0] == "drifted"
    run(host, block=["nouveau"])
    assert look(host, block=["nouveau"])[0] == "in_sync"


def test_absent_leaves_no_note_and_what_lists_nothing_reads_nothing(tmp_path: Path) -> None:
    host, _tool = dracut_machine(tmp_path, hostonly=True, loaded=NVME_LOADED)
    before = snapshot(tmp_path)
    run(host, block=["nouveau"], parameters=QUEUES)
    assert host.files.exists(INITRAMFS_NOTE)
    host.commands.calls.clear()
    run(host, state="absent")
    assert programs_run(host) == [BUILD]
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_run_that_is_killed_anywhere_is_completed_by_the_next(tmp_path: Path, state: str) -> None:
    ends = 0
    for point in range(1, 60):
        root = tmp_path / f"killed{point}"
        host, _tool = dracut_machine(root, hostonly=True)
        original = snapshot(root)
        if state == "absent":
            run(host, block=["nouveau"])
        host.files.log.clear()
        host.files.kill_at = point
        try:
            run(host, block=["nouveau"], state=state)
        except Killed:
            ends += 1
        else:
            break
        host.files.kill_at = None
        run(host, block=["nouveau"], state=state)
        assert not host.files.exists(OUTDATED)
        if state == "present":
            assert run(host, block=["nouveau"]).changes == ()
            run(host, state="absent")
        assert snapshot(root) == original
        shutil.rmtree(root)
    assert ends >= 5


def suse_machine(root: Path, *, hostonly: bool) -> Tuple[FakeHost, Tool]:
    """A machine whose images sdbootutil has dracut build, with those of a snapshot that does not run."""
    entries = {path: text.replace("6.17.8-1-default", RELEASE) for path, text in sdbootutil_machine.tree().items()}
    host, kernel = machine(root, {**entries, f"/usr/lib/modules/{RELEASE}/vmlinuz": ""})
    tool = Tool(host, kernel, ["nouveau"], hostonly=hostonly)

    def dracut(_version: str) -> str:
        tool.image = "/var/tmp/initrd-0"
        tool.build()
        text = host.files.read(tool.image)
        host.files.remove(tool.image)
        return text

    host.commands.programs.update(
        {
            "dracut": tool.build,
            "lsinitrd": tool.list,
            "sdbootutil": sdbootutil_machine.sdbootutil(host, dracut),
        }
    )
    host.commands.programs["sdbootutil"](("sdbootutil", "mkinitrd"))
    host.files.log.clear()
    return host, tool


def images_of_suse(host: FakeHost) -> List[str]:
    folder = f"/boot/efi/opensuse/{RELEASE}"
    return [f"{folder}/{name}" for name in host.files.names(folder)]


def test_sdbootutil_builds_the_images_that_its_loader_entries_name(tmp_path: Path) -> None:
    host, _tool = suse_machine(tmp_path, hostonly=True)
    (before,) = images_of_suse(host)
    outcome = run(host, block=["nouveau"])
    (image,) = [path for path in images_of_suse(host) if path != before]
    assert programs_run(host) == ["sdbootutil mkinitrd", f"lsinitrd {image}"]
    assert BLOCK_FILE[1:] in host.files.read(image)
    assert outcome.error is None
    assert run(host, block=["nouveau"]).status == "in_sync"
    # What another run of sdbootutil builds is listed, and not built again.
    host.files.replace(f"{image}1", host.files.read(image))
    named = image[len("/boot/efi") :]
    entry = host.files.read(sdbootutil_machine.RUNNING).replace(named, f"{named}1")
    host.files.replace(sdbootutil_machine.RUNNING, entry)
    host.commands.calls.clear()
    assert run(host, block=["nouveau"]).status == "drifted"
    assert programs_run(host) == [f"lsinitrd {image}1"]


def test_an_image_of_sdbootutil_that_lacks_the_file_is_refused_by_its_name(tmp_path: Path) -> None:
    host, _tool = suse_machine(tmp_path, hostonly=False)
    with pytest.raises(Refused) as caught:
        run(host, block=["nouveau"])
    assert caught.value.object in images_of_suse(host)
    assert str(caught.value).startswith("Cannot apply the settings of modules in /boot/efi/opensuse/")


@pytest.mark.parametrize("program", ["sdbootutil", "lsinitrd"])
def test_nothing_is_built_or_listed_without_the_program_for_it(tmp_path: Path, program: str) -> None:
    host, _tool = suse_machine(tmp_path, hostonly=True)
    del host.commands.programs[program]
    run(host, block=["nouveau"])
    assert programs_run(host) == ([] if program == "sdbootutil" else ["sdbootutil mkinitrd"])
