# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a file pynvml.py is. The same on the node and on the controller; nothing of it is imported or run."""

from __future__ import annotations

import os
import re
from binascii import b2a_base64
from hashlib import sha256
from typing import TYPE_CHECKING, Optional, Sequence

from ..._core.exposure import exposed
from ..._core.regex import regex
from ..._core.value import frozen, replace

if TYPE_CHECKING:
    from ..._core.protocols import Files

FILE = "pynvml.py"
OLDEST = "11.515"
# Since 11.515 it takes the version of the structure; older ones cannot ask for the names of MIG profiles.
WITH_VERSION = regex(r"^def nvmlDeviceGetGpuInstanceProfileInfo\([^)]*version", re.MULTILINE)
DISCONTINUED = "it is the discontinued package pynvml, which hides nvidia-ml-py"


@frozen
class InstalledBinding:
    """A binding: ``version`` is empty where nothing beside the file tells it, ``fault`` says why it will not do."""

    path: str
    sha256: str = ""
    version: str = ""
    fault: str = ""


def digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def binding_fault(text: str) -> str:
    """Why this text is no binding that will do; empty when it is one."""
    if "def nvmlInit(" not in text:
        return "it is not nvidia-ml-py"
    return "" if WITH_VERSION.search(text) else f"it is older than {OLDEST}, and lacks calls that MIG needs"


def inspect(files: Files, path: str) -> Optional[InstalledBinding]:
    """The binding in this pynvml.py, None where there is no such file."""
    text = files.read_optional(path)
    if text is None:
        return None
    total = digest(text)
    version = version_beside(files, os.path.dirname(path), total)
    return InstalledBinding(path, total, version, binding_fault(text))


def search(files: Files, folders: Sequence[str]) -> Optional[InstalledBinding]:
    """What ``import pynvml`` finds in these folders: a package comes before a file in the same folder."""
    for folder in folders:
        if files.exists(f"{folder}/pynvml/__init__.py"):
            return InstalledBinding(f"{folder}/pynvml", fault=DISCONTINUED)
        found = inspect(files, f"{folder}/{FILE}")
        if found is not None:
            return found
    return None


def version_beside(files: Files, folder: str, total: str) -> str:
    """The release that the metadata in the same folder claims this file for; the file itself does not say."""
    for name in files.names(folder):
        match = re.fullmatch(r"nvidia_ml_py-([^-]+)\.(?:dist|egg)-info", name)
        if match:
            record = files.read_optional(f"{folder}/{name}/RECORD")
            if record is None or record_line(total) in record:
                return match[1]
    return ""


def record_line(total: str) -> str:
    """How the RECORD of a wheel names the file with this sum (Python packaging guide, recording installed projects)."""
    encoded = b2a_base64(bytes.fromhex(total), newline=False).decode().rstrip("=")
    return f"{FILE},sha256={encoded.replace('+', '-').replace('/', '_')},"


def guarded(files: Files, found: Optional[InstalledBinding]) -> Optional[InstalledBinding]:
    """The same, with the fault that others than root may change it."""
    return found if found is None or found.fault else replace(found, fault=exposed(files, found.path))
