# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Python binding of NVML as it is and as declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from ..._core.exposure import BINDING_FOLDER, exposed
from ..._core.value import frozen
from . import recognise
from .recognise import FILE, InstalledBinding

if TYPE_CHECKING:
    from ..._core.protocols import Files

OURS = f"{BINDING_FOLDER}/{FILE}"


@frozen
class BindingState:
    """What was seen: the file that we bring, and with another source what the declaration is about.

    ``release`` is the text of /etc/os-release, read where a package is declared that is not there. ``folder_fault`` is
    why users other than root can replace our file, whatever is in it.
    """

    ours: Optional[InstalledBinding]
    elsewhere: Optional[InstalledBinding] = None
    release: str = ""
    folder_fault: str = ""


@frozen
class BindingDesired:
    """What the machine shall have. ``sha256`` is that of our file, None for: no file of ours.

    ``wanted`` is what a person calls it, ``text`` the file where the declaration itself says what is in it.
    """

    wanted: Optional[str] = None
    sha256: Optional[str] = None
    text: Optional[str] = None


def ours(files: Files) -> Optional[InstalledBinding]:
    """The file in our folder. What is in it is compared by its sum, so only who may change it is of interest."""
    text = files.read_optional(OURS)
    if text is None:
        return None
    return InstalledBinding(OURS, recognise.digest(text), fault=exposed(files, OURS))
