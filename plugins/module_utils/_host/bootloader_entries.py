# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Boot loaders that read one file an entry (Boot Loader Specification, type 1). Imported only where there are some."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, List, Mapping, Optional, Tuple

from .bootloader import ENTRY_FOLDERS, GRUBBY, KERNEL_COMMAND_LINE, OSTREE, SYSTEMD, BootLoader

if TYPE_CHECKING:
    from .protocols import Files


@dataclass(frozen=True)
class Entries:
    """The Linux entries, path to text, and the loader that each kind of machine makes of them."""

    texts: Mapping[str, str]

    def rpm_ostree(self) -> BootLoader:
        return BootLoader(OSTREE, self._default_options({}, ""))

    def grub(self, config: str, variables: Mapping[str, str]) -> BootLoader:
        """GRUB whose ``config`` has no menu of its own; ``variables`` are those of grubenv."""
        set_here = dict(re.findall(r'^\s*set (\w+)="?([^"\n]*)"?$', config, re.MULTILINE))
        chosen = variables.get("saved_entry", "")
        return BootLoader(GRUBBY, self._default_options({**set_here, **variables}, chosen))

    def systemd_boot(self, files: Files) -> BootLoader:
        chosen = _default_path(self.texts, _loader_default(files))
        ordered = sorted(self.texts.items(), key=lambda entry: entry[0] == chosen)
        kernel = files.read_optional(KERNEL_COMMAND_LINE)
        future = () if kernel is None else ((KERNEL_COMMAND_LINE, kernel),)
        return BootLoader(SYSTEMD, _options(self.texts[chosen], {}), texts=dict((*future, *ordered)))

    def _default_options(self, variables: Mapping[str, str], default: str) -> str:
        return _options(self.texts[_default_path(self.texts, default)], variables)


def read_entries(files: Files) -> Optional[Entries]:
    """The entries of the first folder that has some for Linux."""
    for folder in ENTRY_FOLDERS:
        paths = [f"{folder}/{name}" for name in files.names(folder) if name.endswith(".conf") and name[0] != "."]
        texts = ((path, files.read_optional(path) or "") for path in paths)
        entries = {path: text for path, text in texts if re.search(r"^linux\s", text, re.MULTILINE)}
        if entries:
            return Entries(entries)
    return None


def _loader_default(files: Files) -> str:
    for folder in ENTRY_FOLDERS:
        text = files.read_optional(f"{folder[: -len('/entries')]}/loader.conf")
        found = re.search(r"^default\s+(\S+)", text or "", re.MULTILINE)
        if found:
            return found[1]
    return ""


def _default_path(entries: Mapping[str, str], default: str) -> str:
    """The entry that boots: the one whose name the default names, else the newest version."""

    def newest(path: str) -> List[Tuple[int, int, str]]:
        version = re.search(r"^version\s+(\S+)", entries[path], re.MULTILINE)
        parts = re.findall(r"\d+|[^\d]+", version[1] if version else path.rpartition("/")[2])
        return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]

    ordered = sorted(entries, key=newest, reverse=True)
    pattern = default[: -len(".conf")] if default.endswith(".conf") else default
    named = [path for path in ordered if fnmatch.fnmatch(path.rpartition("/")[2][: -len(".conf")], pattern)]
    return (named or ordered)[0]


def _options(text: str, variables: Mapping[str, str]) -> str:
    line = " ".join(re.findall(r"^options[ \t]+(.*)$", text, re.MULTILINE))
    return re.sub(r"\$\{?(\w+)\}?", lambda match: variables.get(match[1], ""), line).strip()
