# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The binding that the controller has, for the nodes that lack it. It is read, and never imported."""

from __future__ import annotations

import re
import sys
import zipfile
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Dict

from ..module_utils._machine.files import LocalFiles
from ..module_utils._node.compressed import compress
from ..module_utils.concerns.nvml.recognise import FILE, binding_fault, inspect, search


class NoBinding(ValueError):
    """There is no suitable one here; the text says why."""


@dataclass(frozen=True)
class Binding:
    """A pynvml.py; ``version`` is empty where nothing tells it."""

    content: bytes
    version: str

    @property
    def sha256(self) -> str:
        return sha256(self.content).hexdigest()


@cache
def binding_of(file: str = "") -> Binding:
    """The binding in ``file``, a pynvml.py or a wheel of nvidia-ml-py; without it the one this Python would import.

    Raises ``NoBinding`` with the reason why there is none.
    """
    if file.endswith(".whl"):
        return _from_wheel(file)
    try:
        found = inspect(LocalFiles(), file) if file else search(LocalFiles(), sys.path)
    except OSError as error:
        raise NoBinding(f"{file or error.filename} cannot be read: {error.strerror or error}") from error
    if found is None:
        raise NoBinding(f"there is no {file}" if file else f"its Python {sys.executable} does not find it")
    if found.fault:
        raise NoBinding(f"{found.path} cannot be used: {found.fault}")
    with open(found.path, "rb") as stream:
        return Binding(stream.read(), found.version)


@cache
def packed(file: str) -> str:
    """The text of the binding in ``file``, as a look takes it along. Raises ``NoBinding``."""
    return compress(binding_of(file).content.decode("utf-8", "surrogateescape"))


def options_for(file: str) -> Dict[str, str]:
    """What the module is told of the binding that the controller has for the nodes, or lacks."""
    try:
        binding = binding_of(file)
    except NoBinding as error:
        return {"pynvml_sha256": "", "version": "", "lacking": str(error)}
    return {"pynvml_sha256": binding.sha256, "version": binding.version, "lacking": ""}


def _from_wheel(file: str) -> Binding:
    try:
        with zipfile.ZipFile(file) as archive:
            content = archive.read(FILE)
            releases = [re.match(r"nvidia_ml_py-([^-/]+)\.dist-info/", name) for name in archive.namelist()]
    except KeyError:
        raise NoBinding(f"{file} holds no {FILE}") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise NoBinding(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    fault = binding_fault(content.decode("utf-8", "surrogateescape"))
    if fault:
        raise NoBinding(f"{file} cannot be used: {fault}")
    return Binding(content, next((release[1] for release in releases if release), ""))
