# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a file pynvml.py is. The same on the node and on the controller; nothing of it is imported or run."""

from __future__ import annotations

import os
import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Optional, Sequence

from .._host.exposure import exposed

if TYPE_CHECKING:
    from .._host.protocols import Files

FILE = "pynvml.py"
OLDEST = "11.515"
# Since 11.515 it takes the version of the structure; older ones cannot ask for the names of MIG profiles.
WITH_VERSION = re.compile(r"^def nvmlDeviceGetGpuInstanceProfileInfo\([^)]*version", re.MULTILINE)
DISCONTINUED = "it is the discontinued package pynvml, which hides nvidia-ml-py"


@dataclass(frozen=True)
class Found:
    """A binding: ``version`` is empty where nothing beside the file tells it, ``fault`` says why it will not do."""

    path: str
    sha256: str = ""
    version: str = ""
    fault: str = ""


def digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def fault_of(text: str) -> str:
    """Why this text is no binding that will do; empty when it is one."""
    if "def nvmlInit(" not in text:
        return "it is not nvidia-ml-py"
    return "" if WITH_VERSION.search(text) else f"it is older than {OLDEST}, and lacks calls that MIG needs"


def inspect(files: Files, path: str) -> Optional[Found]:
    """The binding in this pynvml.py, None where there is no such file."""
    text = files.read_optional(path)
    if text is None:
        return None
    total = digest(text)
    version = version_beside(files, os.path.dirname(path), total)
    return Found(path, total, version, fault_of(text))


def search(files: Files, folders: Sequence[str]) -> Optional[Found]:
    """What ``import pynvml`` finds in these folders: a package comes before a file in the same folder."""
    for folder in folders:
        if files.exists(f"{folder}/pynvml/__init__.py"):
            return Found(f"{folder}/pynvml", fault=DISCONTINUED)
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
    return f"{FILE},sha256={urlsafe_b64encode(bytes.fromhex(total)).decode().rstrip('=')},"


def guarded(files: Files, found: Optional[Found]) -> Optional[Found]:
    """The same, with the fault that others than root may change it."""
    return found if found is None or found.fault else replace(found, fault=exposed(files, found.path))
