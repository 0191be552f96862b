# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of kernel modules, of which one lists initramfs images with the program of their tool.

lsinitramfs lists one path in a line. lsinitrd lists as ``ls -l`` does, first what dracut was called with, and after the
image the file system in it, below a folder of its own (lsinitrd.sh of dracut 059 and dracut-ng). Where it cannot find
the program that skips the microcode it lists only that, and exits with 0: so a list without /init, which the kernel
starts in every initramfs, is not that of a whole image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence, Set

from ..._core import steps
from ..._core.change import RunCommand, Step
from ..._core.errors import CannotLook, GpuFleetError, Refused
from ..._core.regex import regex
from ..._linux import bootloader
from ..._linux.kernel_modules import normal
from .initramfs import Image, ListInitramfs, Need, Note, find_images, stat_of, text_of, without_usr
from .spec import NAME
from .state import INITRAMFS_NOTE

if TYPE_CHECKING:
    from ..._core.protocols import Host

LIST_SECONDS = 300.0
PERMISSIONS = regex(r"(?:^|\s)[-dlcbps][-rwxsStT]{9}\s")
INNER_FOLDERS = ("squashfs-root/", "erofs-root/")
INNER_IMAGES = ("squash-root.img", "squashfs-root.img", "erofs-root.img")
MODULE = regex(r"/lib/modules/.*/([^/]+)\.ko(?:\.\w+)?")
CONFIGURATION = regex(r"/(?:etc|lib|run)/modprobe\.d/[^/]+\.conf")
HINTS = {
    "lsinitrd": 'add install_items+=" {files} " to a file in /etc/dracut.conf.d, or set hostonly="yes" there, '
    "then run again",
    "lsinitramfs": "check that /etc/initramfs-tools/update-initramfs.conf has update_initramfs=yes, and that nothing "
    "in /etc/initramfs-tools/hooks removes the file, then run again",
}


def perform(step: Step, host: Host) -> None:
    """Take one step of the concern. Raises ``GpuFleetError`` with what the system said."""
    if isinstance(step.action, ListInitramfs):
        _list_images(step.action, host)
    else:
        steps.perform(step, host)


def _list_images(action: ListInitramfs, host: Host) -> None:
    """Raises ``CannotLook`` for an image that cannot be listed, and ``Refused`` for one that lacks what it needs."""
    asked = sorted({module for need in action.needs for module in need.modules})
    found = find_images(host.files, bootloader.detect(host, NAME, ""))
    images = {path: _list(path, action.lister, asked, host) for path in found}
    host.files.replace(INITRAMFS_NOTE, text_of(Note(tuple(asked), images)))
    for path, image in images.items():
        lacking = image.lacks(action.needs)
        if lacking:
            raise _refused(path, lacking, action.lister)


def paths_of(text: str) -> Set[str]:
    """The absolute paths in a list, those of /usr/lib below /lib."""
    found = set()
    for line in text.splitlines():
        path = line.strip().partition(" -> ")[0]
        if PERMISSIONS.search(line):
            path = path.rpartition(" ")[2]
        if path and " " not in path:
            path = path[2:] if path.startswith("./") else path
            inner = next((folder for folder in INNER_FOLDERS if path.startswith(folder)), "")
            found.add(without_usr(f"/{path[len(inner) :].lstrip('/')}"))
    return found


def _list(path: str, lister: str, asked: Sequence[str], host: Host) -> Image:
    stat = stat_of(host.files, path)
    try:
        text = steps.run(RunCommand((lister, path), "list the initramfs", LIST_SECONDS), host)
    except GpuFleetError as error:
        raise _not_listed(path, f"{lister} ended with {error.cause}") from error
    except OSError as error:
        raise _not_listed(path, error.strerror or str(error)) from error
    paths = paths_of(text)
    if "/init" not in paths:
        raise _not_listed(path, f"{lister} lists no /init, so the list is not complete")
    inner = {entry.rpartition("/")[2] for entry in paths}.intersection(INNER_IMAGES)
    if inner and not any(folder in text for folder in INNER_FOLDERS):
        raise _not_listed(path, f"{lister} does not list what is in {min(inner)}")
    modules = {normal(match[1]) for match in map(MODULE.fullmatch, paths) if match}
    return Image(
        stat, tuple(sorted(filter(CONFIGURATION.fullmatch, paths))), tuple(sorted(modules.intersection(asked)))
    )


def _not_listed(path: str, cause: str) -> CannotLook:
    hint = (
        "correct what keeps it from being listed, then run again; until then it is unknown which modules a boot loads"
    )
    return CannotLook("list the files in {}", object=path, cause=cause, hint=hint)


def _refused(path: str, lacking: Sequence[Need], lister: str) -> Refused:
    names = ", ".join(need.name for need in lacking)
    them = "it" if len(lacking) == 1 else "them"
    files = tuple(dict.fromkeys(need.files[0] for need in lacking))
    return Refused(
        "apply the settings of modules in {}",
        object=path,
        cause=f"it has {names}, but not {' and '.join(files)}, so the next boot may load {them} without these settings",
        hint=HINTS[lister].format(files=" ".join(files)),
    )
