# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the initramfs images have our files of modprobe.d, by a note of what was listed in them.

An image is loaded from before the root file system is there. A module in it that finds no line of modprobe.d there is
loaded for its device, with its own defaults, whatever /etc says. initramfs-tools copies all of /etc/modprobe.d
(mkinitramfs), dracut only with ``hostonly`` (modules.d/90kernel-modules, in dracut-ng modules.d/80base).

A run lists the files of the images after it has built them, and keeps a note with size, time and inode of each. A look
only compares these with the note. Where they differ, or there is no note yet:

- An image of initramfs-tools that is not older than our files has them, as long as the note does not say that its
  predecessor lacked them. So a node that is in sync stays so without a note, and after each update of its kernel.
- Of any other image it is not known what the next boot takes from it, until the next run lists its files. Nothing is
  built for that.

An image that has a module without our file is drift. The next run builds it again, as the configuration of the tool may
have been corrected, and fails with the cause where it was not. Without a program that lists files, or without an image
where the tools put them, the images are not checked: a container and an image inside a UEFI executable are such.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import RoomAction
from ..._core.record import listed, read_note
from ..._core.value import field, frozen
from ..._linux.bootloader import SDBOOTUTIL
from ..._linux.loader_entries import images_of
from ..._linux.modprobe import BLACKLIST, INSTALL, MODPROBE, REFUSE, ModprobeLine, ModprobeLines
from ..._linux.module_options import is_same
from .state import BLOCK_FILE, INITRAMFS_NOTE, OPTIONS_FILE, InitramfsState, KernelModulesState, Key

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from ..._linux.bootloader import BootLoader
    from .spec import KernelModulesDeclaration

SCHEMA = 1
INITRAMFS_TOOLS = "update-initramfs"
# The programs that list an image, by the one that builds it.
LISTERS: Mapping[str, Sequence[str]] = {
    INITRAMFS_TOOLS: ("lsinitramfs", "lsinitrd"),
    "dracut": ("lsinitrd",),
    SDBOOTUTIL: ("lsinitrd",),
}
# dracut's modules.d/80base/parse-kernel.sh; it counts in the initramfs alone.
EARLY_BLACKLIST = "rd.driver.blacklist"


@frozen
class Need:
    """An image with one of these modules must have one of these files. ``name`` is the module as it is declared."""

    name: str
    modules: Tuple[str, ...]
    files: Tuple[str, ...]


@frozen
class Image:
    """The list of an image: its files of modprobe.d, and which of the modules that were asked for it has.

    ``stat`` is its size in bytes, when it was written in nanoseconds since 1970, and its inode.
    """

    stat: Tuple[int, ...]
    files: Tuple[str, ...]
    modules: Tuple[str, ...]

    def lacks(self, needs: Sequence[Need]) -> Tuple[Need, ...]:
        return tuple(
            need
            for need in needs
            if not set(self.modules).isdisjoint(need.modules)
            and set(self.files).isdisjoint(map(without_usr, need.files))
        )


@frozen
class Note:
    """The images by path, and the modules that were asked for."""

    asked: Tuple[str, ...] = ()
    images: Mapping[str, Image] = field(default_factory=dict)


@frozen
class ListInitramfs(RoomAction):
    """List the files of all images with this program, note them, and refuse an image that lacks what it needs."""

    lister: str
    needs: Tuple[Need, ...]


def observe(
    host: Host, declaration: KernelModulesDeclaration, state: KernelModulesState, loader: BootLoader
) -> Optional[InitramfsState]:
    """None where nothing can list an image. What our files do not have yet is not looked for: it gets a new image."""
    lister = next((name for name in LISTERS[state.rebuild[0]] if host.commands.find(name)), "")
    if not lister:
        return None
    early = _early(loader.command_line)
    blocked = {line.name for line in state.lines if line.path == BLOCK_FILE}
    given = {state.name_of(line) for line in _option_lines(state) if line.path == OPTIONS_FILE}
    needs = needs_of(
        state,
        [name for name in declaration.block if name in blocked],
        {key: value for key, value in declaration.parameters.items() if key[0] in given},
        state.lines,
        early,
    )
    if not needs:
        return InitramfsState(lister, early)
    note = read_note(host.files, INITRAMFS_NOTE, _note) or Note()
    copies_all = state.rebuild[0] == INITRAMFS_TOOLS and not host.commands.find("dracut")
    faults: Dict[str, str] = {}
    unread = ""
    for path in find_images(host.files, loader):
        image = note.images.get(path)
        lacking = image.lacks(needs) if image is not None else ()
        if image is not None and image.stat == stat_of(host.files, path) and _has_asked(note, needs):
            faults.update((need.name, path) for need in lacking)
        elif lacking or not (copies_all and _is_newer(host.files, path)):
            unread = unread or path
    return InitramfsState(lister, early, faults, unread)


def needs_of(
    state: KernelModulesState,
    block: Sequence[str],
    parameters: Mapping[Key, Optional[str]],
    lines: Sequence[ModprobeLine],
    early: Sequence[str],
) -> Tuple[Need, ...]:
    """``lines`` are those of files, and ``early`` the modules that the command line blacklists in the initramfs.

    A module that the kernel command line blocks, or whose parameters it has, needs no file.
    """
    of_files, coming = ModprobeLines(lines), ModprobeLines(state.coming)
    needs: List[Need] = []
    for name in block:
        stopped = name in early or any(line.word in (BLACKLIST, REFUSE) for line in coming.of(name))
        files = [line.path for line in of_files.of(name) if _stops(line)]
        if state.installed.dependencies(name) is not None and not stopped:
            needs.append(Need(name, (name,), tuple(dict.fromkeys(files))))
    arguments = {(state.name_of(line), line.parameter): line.value for line in _option_lines(state, coming=True)}
    left = {
        module
        for (module, parameter), value in parameters.items()
        if value is not None and not is_same(arguments.get((module, parameter), ""), value)
    }
    for module in sorted(left):
        names = (module, *state.real_names(module))
        on_disk = tuple(name for name in names if state.installed.dependencies(name) is not None)
        if on_disk:
            needs.append(Need(module, on_disk, (OPTIONS_FILE,)))
    return tuple(needs)


def find_images(files: Files, loader: BootLoader) -> Tuple[str, ...]:
    """The image of each kernel that has modules, where Debian's tools put it, or else where lsinitrd looks for it.

    Those of sdbootutil are what the loader entries of the running snapshot name.
    """
    if loader.name == SDBOOTUTIL:
        return tuple(path for path in images_of(loader.texts) if files.exists(path))
    releases = [name for name in files.names("/lib/modules") if files.exists(f"/lib/modules/{name}/modules.dep")]
    found = (next((path for path in _candidates(files, name) if files.exists(path)), "") for name in releases)
    return tuple(path for path in found if path)


def stat_of(files: Files, path: str) -> Tuple[int, ...]:
    status = files.status(path)
    return () if status is None else (status.st_size, status.st_mtime_ns, status.st_ino)


def text_of(note: Note) -> str:
    images = {path: {key: list(value) for key, value in vars(image).items()} for path, image in note.images.items()}
    return json.dumps({"schema": SCHEMA, "asked": list(note.asked), "images": images}, indent=1, sort_keys=True) + "\n"


def without_usr(path: str) -> str:
    """A path of one name, where /lib may be a link to /usr/lib."""
    return path[len("/usr") :] if path.startswith("/usr/") else path


def _note(document: Any) -> Note:
    if document["schema"] != SCHEMA:
        return Note()
    return Note(
        asked=tuple(map(str, listed(document["asked"]))),
        images={
            str(path): Image(
                stat=tuple(map(int, listed(one["stat"]))),
                files=tuple(map(str, listed(one["files"]))),
                modules=tuple(map(str, listed(one["modules"]))),
            )
            for path, one in document["images"].items()
        },
    )


def _has_asked(note: Note, needs: Sequence[Need]) -> bool:
    return all(set(need.modules).issubset(note.asked) for need in needs)


def _is_newer(files: Files, path: str) -> bool:
    return files.modified(path) >= max(files.modified(BLOCK_FILE), files.modified(OPTIONS_FILE))


def _candidates(files: Files, release: str) -> Iterator[str]:
    yield f"/boot/initrd.img-{release}"
    machine = (files.read_optional("/etc/machine-id") or "").strip()
    # lsinitrd of dracut 059 and 106 takes a folder Default before that of the machine.
    for name in dict.fromkeys(("Default", machine or "Default")):
        for folder in ("/efi", "/boot", "/boot/efi"):
            yield f"{folder}/{name}/{release}/initrd"
    yield f"/lib/modules/{release}/initrd"
    yield f"/lib/modules/{release}/initramfs.img"
    yield f"/boot/initramfs-{release}.img"
    yield f"/boot/initrd-{release}"


def _stops(line: ModprobeLine) -> bool:
    if line.owner != MODPROBE:
        return False
    return line.word == BLACKLIST or (line.word == INSTALL and line.stops)


def _option_lines(state: KernelModulesState, *, coming: bool = False) -> Sequence[Any]:
    if state.parameters is None:
        return ()
    return state.parameters.coming if coming else state.parameters.lines


def _early(command_line: str) -> Tuple[str, ...]:
    arguments = (argument.partition("=") for argument in command_line.split())
    return tuple(name for key, _equals, value in arguments if key == EARLY_BLACKLIST for name in value.split(","))
