# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entries of the Boot Loader Specification, and which of them boots by default.

systemd-boot orders and chooses them as boot_entry_compare() and boot_entries_select_default() of systemd's bootspec.c.
GRUB's blscfg takes the name of a file for that of a package: split_package_string() and rpmvercmp().
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from .._core.regex import regex
from .._core.value import frozen

if TYPE_CHECKING:
    from .._core.protocols import Files

FILE_SYSTEMS = ("/boot", "/efi", "/boot/efi")
EFI_VARIABLES = "/sys/firmware/efi/efivars"
# That of the Boot Loader Interface.
VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
# As line_get_key_value() of systemd's util.c reads lines: a carriage return ends one too, and blanks may begin it.
_LINE = r"^[ \t]*{}[ \t]+([^\r\n]*)"
OPTIONS = regex(_LINE.format("options"), re.MULTILINE)
_TRIES = regex(r"\+([0-9]+)(?:-[0-9]+)?(?=\.conf$)")
_LOWER = {"~": -1, "-": 1, "^": 2, ".": 3}
# A number is the count of its digits and these: Python refuses to convert some thousand of them.
_Key = List[Tuple[int, int, str]]


@frozen
class Entries:
    """The Linux entries, path to text."""

    texts: Mapping[str, str]

    def grub_default(self, chosen: str) -> str:
        """The entry that GRUB boots; ``chosen`` is the name, title or number that its environment has."""

        def newest(path: str) -> List[_Key]:
            return [_order(part, "~^") for part in _name_of(path).rsplit("-", 2)]

        ordered = sorted(self.texts, key=newest, reverse=True)
        if re.fullmatch("[0-9]{1,9}", chosen) and int(chosen) < len(ordered):
            return ordered[int(chosen)]
        named = [path for path in ordered if chosen in (_name_of(path), f"{_name_of(path)}.conf")]
        titled = [path for path in ordered if chosen and self._field(path, "title") == chosen]
        return (named or titled or ordered)[0]

    def systemd_default(self, files: Files) -> str:
        """The entry that systemd-boot boots, once those are over that are chosen for a single boot."""
        ordered = sorted(self.texts, key=lambda path: _order(_identifier(path), "-.~^"), reverse=True)
        ordered.sort(key=self._newest_of_its_kind, reverse=True)
        ordered.sort(key=self._kind)
        conf = read_loader_conf(files)
        for pattern in (
            read_variable(files, "LoaderEntryPreferred"),
            read_variable(files, "LoaderEntryDefault"),
            conf.get("preferred", ""),
            conf.get("default", ""),
        ):
            if pattern.lower() == "@saved":
                pattern = read_variable(files, "LoaderEntryLastBooted")
            for path in ordered:
                identifier = _identifier(path).lower()
                if fnmatchcase(identifier, pattern.lower()) or fnmatchcase(identifier, f"{pattern.lower()}.conf"):
                    return path
        return ordered[0]

    def options(self, path: str, variables: Mapping[str, str]) -> str:
        """The command line of an entry, with the variables of GRUB in it replaced."""
        return options_of(self.texts[path], variables)

    def _kind(self, path: str) -> Tuple[bool, bool, str, str]:
        tries = _TRIES.search(path)
        key = self._field(path, "sort-key")
        machine = self._field(path, "machine-id") if key else ""
        return bool(tries and not int(tries[1])), not key, key, machine

    def _newest_of_its_kind(self, path: str) -> _Key:
        return _order(self._field(path, "version"), "-.~^") if self._field(path, "sort-key") else []

    def _field(self, path: str, name: str) -> str:
        found = re.search(_LINE.format(name), self.texts[path], re.MULTILINE)
        return found[1].rstrip() if found else ""


def read_entries(files: Files) -> Optional[Entries]:
    """The entries of the first file system that has some for Linux."""
    for root in FILE_SYSTEMS:
        folder = f"{root}/loader/entries"
        paths = [f"{folder}/{name}" for name in files.names(folder) if name.endswith(".conf") and name[0] != "."]
        texts = ((path, files.read_optional(path) or "") for path in paths)
        entries = {path: text for path, text in texts if re.search(r"^[ \t]*linux\s", text, re.MULTILINE)}
        if entries:
            return Entries(entries)
    return None


def read_loader_conf(files: Files) -> Dict[str, str]:
    """The values of the first loader.conf, by the names of its lines."""
    for root in FILE_SYSTEMS:
        text = files.read_optional(f"{root}/loader/loader.conf")
        if text is not None:
            return dict(re.findall(r"^[ \t]*([\w-]+)[ \t]+(\S+)", text, re.MULTILINE))
    return {}


def read_variable(files: Files, name: str) -> str:
    """A text that the boot loader has in a variable of the firmware; empty where there is none."""
    try:
        # In front are the attributes of the variable.
        value = files.read_part(f"{EFI_VARIABLES}/{name}-{VENDOR}", 0, 4096)[4:]
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return value.decode("utf-16-le", "replace").rstrip("\0")


def options_of(text: str, variables: Mapping[str, str]) -> str:
    """The command line that the text of an entry gives the kernel, with the variables of GRUB in it replaced."""
    line = " ".join(OPTIONS.findall(text))
    return re.sub(r"\$\{?(\w+)\}?", lambda match: variables.get(match[1], ""), line).strip()


def images_of(texts: Mapping[str, Optional[str]]) -> Tuple[str, ...]:
    """The initramfs images of these entries, path to text. Each is on the file system of its entry."""
    found: Dict[str, None] = {}
    for path, text in texts.items():
        root, folder, _name = path.partition("/loader/entries/")
        names = re.findall(_LINE.format("initrd"), text or "", re.MULTILINE) if folder else ()
        found.update(dict.fromkeys(f"{root}/{name.strip().lstrip('/')}" for name in names))
    return tuple(found)


def _identifier(path: str) -> str:
    """The name of the file without the count of tries."""
    return _TRIES.sub("", path.rpartition("/")[2])


def _name_of(path: str) -> str:
    return path.rpartition("/")[2][: -len(".conf")]


def _order(text: str, separators: str) -> _Key:
    """A version as strverscmp_improved() of systemd, or with the separators of rpmvercmp(), compares it."""
    found: _Key = []
    for part in re.findall(rf"[0-9]+|[A-Za-z]+|[{re.escape(separators)}]", text):
        if part in _LOWER:
            found.append((_LOWER[part], 0, ""))
        else:
            number = part.lstrip("0")
            found.append((5, len(number), number) if part.isdecimal() else (4, 0, part))
    # Behind the end only ~ is lower.
    return [*found, (0, 0, "")]
