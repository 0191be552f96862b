# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The actions and changes that the plans of all rooms are made of."""

from __future__ import annotations

from typing import Optional, Union

from .change import Change, RemoveFile, ReplaceFile
from .setting import BOOT, EFFECTIVE, Scalar, Setting

READBACK = "readback"
UNREAD = "not readable"


def file_action(path: str, text: Optional[str], mode: int = 0o644) -> Union[ReplaceFile, RemoveFile]:
    """Write a file of ours, or remove it where it has no text."""
    return RemoveFile(path) if text is None else ReplaceFile(path, text, mode)


def effective_change(setting: Setting) -> Change:
    """From what counts now to what is wanted."""
    return Change(setting.object, setting.setting, setting.effective, setting.wanted, EFFECTIVE)


def boot_change(setting: Setting) -> Change:
    """From what the next boot would bring to what is wanted."""
    return Change(setting.object, setting.setting, setting.boot, setting.wanted, BOOT)


def unread(object: str, setting: str, wanted: Scalar, *, identity: str, reason: str, immediate: bool) -> Setting:
    """A setting that ``state: absent`` could not read back, so that its record is kept; ``reason`` says why."""
    return Setting(
        object=object,
        setting=setting,
        wanted=wanted,
        effective=UNREAD,
        boot=None,
        identity=identity,
        effective_matters=immediate,
        boot_matters=False,
        pending=reason,
        needs=READBACK,
    )
