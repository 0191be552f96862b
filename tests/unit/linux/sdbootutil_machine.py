# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An openSUSE machine whose loader entries sdbootutil makes, with its root in the first snapshot of a btrfs.

The entries are as install_kernel() of github.com/openSUSE/sdbootutil at 12630b2 (2026-08-21) writes them. The stand-in
does what its update-all-entries did in a tree: create_boot_options() and update_entry_conf(), without output. Of
mkinitrd it does what install_kernel() does for the initrd of each kernel of the running snapshot: what dracut builds is
named by its checksum, which the entry then names.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

COMMAND_LINE = "/etc/kernel/cmdline"
ENTRIES = "/boot/efi/loader/entries"
SUBVOLUME = "@/.snapshots/1/snapshot"
SEEN = "/.snapshots/1/snapshot/etc/kernel/cmdline"
ROOT = "root=UUID=aaaa-bbbb"
# A snapshot that is read-only has the prefix "snapper" with grub2-bls, so that the running system is above it.
RUNNING, OLDER = (
    f"{ENTRIES}/system-opensuse-6.17.8-1-default-1.conf",
    f"{ENTRIES}/system-opensuse-6.17.7-1-default-1.conf",
)
SNAPPER = f"{ENTRIES}/snapper-opensuse-6.17.8-1-default-2.conf"


def entry(version: str, snapshot: int, options: str) -> str:
    return (
        "# Boot Loader Specification type#1 entry\n"
        f"title      openSUSE Tumbleweed\nversion    {snapshot}@{version}\nsort-key   opensuse-tumbleweed\n"
        f"options    {options} rootflags=subvol=@/.snapshots/{snapshot}/snapshot\n"
        f"linux      /opensuse/{version}/linux-b021b508\ninitrd     /opensuse/{version}/initrd-7b200fad\n"
    )


def tree(kind: str = "grub2-bls", line: str = f"{ROOT} quiet") -> Dict[str, str]:
    """The files of such a machine; ``line`` is its command line."""
    name = "systemd" if kind == "systemd-boot" else "opensuse"
    return {
        "/etc/sysconfig/bootloader": f'LOADER_TYPE="{kind}"\n',
        f"/boot/efi/EFI/{name}/installed_by_sdbootutil": "opensuse\n",
        # The package of GRUB leaves these there, and no menu is made of them.
        "/boot/grub2/fonts/unicode.pf2": "",
        "/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet mitigations=auto"\n',
        "/proc/self/mountinfo": f"25 1 0:22 /{SUBVOLUME} / rw,relatime shared:1 - btrfs /dev/vda2 rw,subvolid=266\n",
        COMMAND_LINE: f"{line}\n",
        RUNNING: entry("6.17.8-1-default", 1, line),
        OLDER: entry("6.17.7-1-default", 1, line),
        SNAPPER: entry("6.17.8-1-default", 2, line),
    }


def machine(root: Path, files: Optional[Mapping[str, str]] = None, *, is_overlay: bool = False) -> FakeHost:
    """``is_overlay``: what is written to /etc does not reach the snapshot."""
    links = {} if is_overlay else {SEEN: COMMAND_LINE}
    host = build(root, {"/etc/os-release": "ID=opensuse-tumbleweed\n", **(tree() if files is None else files)}, links)
    host.commands.programs["sdbootutil"] = sdbootutil(host)
    return host


def sdbootutil(host: FakeHost, dracut: Optional[Callable[[str], str]] = None) -> Any:
    """The program; ``dracut`` makes the content of an image for a kernel, whose version it is given."""

    def make_images() -> Completed:
        files = host.files
        for name in files.names(ENTRIES):
            path = f"{ENTRIES}/{name}"
            text = files.read(path)
            version = re.search(r"(?m)^version +1@(.+)$", text)
            if version is None or not files.exists(f"/usr/lib/modules/{version[1]}/vmlinuz"):
                continue
            assert dracut is not None
            content = dracut(version[1])
            image = f"/opensuse/{version[1]}/initrd-{hashlib.sha1(content.encode()).hexdigest()}"
            place = Path(files.root, f"boot/efi{image}")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)
            (Path(files.root) / path[1:]).write_text(re.sub(r"(?m)^initrd .*$", f"initrd     {image}", text))
        return Completed(0, "", "")

    def run(argv: Sequence[str]) -> Completed:
        if list(argv[1:]) == ["mkinitrd"]:
            return make_images()
        assert list(argv[1:]) == ["update-all-entries"]
        files = host.files
        first = next(path for path in (SEEN, COMMAND_LINE, "/proc/cmdline") if files.exists(path))
        folders = [folder for folder in ("/usr/kernel/cmdline.d", "/etc/kernel/cmdline.d") if files.exists(folder)]
        sources = [first, *(f"{folder}/{name}" for folder in folders for name in files.names(folder))]
        lines = [line for path in sources for line in files.read(path).splitlines() if not line.startswith("#")]
        options = re.sub(r"[ \t]+", " ", " ".join(lines))
        options += "" if ROOT in options else f" {ROOT}"
        for name in files.names(ENTRIES):
            path = f"{ENTRIES}/{name}"
            text = files.read(path)
            if ROOT in text and f"rootflags=subvol={SUBVOLUME}\n" in text:
                made = f"options    {options} rootflags=subvol={SUBVOLUME}"
                (Path(files.root) / path[1:]).write_text(re.sub(r"(?m)^options[ ].*$", made, text))
        return Completed(0, "", "")

    return run
