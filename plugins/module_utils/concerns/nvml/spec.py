# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of the Python binding of NVML, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import Any, Mapping

from ..._core.errors import DeclarationError
from ..._core.paths import path_fault
from ..._core.value import frozen

NAME = "nvml"
CONTROLLER = "controller"
PACKAGE = "package"
FOLDER = "folder"
# What Debian and Ubuntu call it; it is in contrib and in multiverse.
DEBIAN_PACKAGE = "python3-pynvml"


@frozen
class BindingDeclaration:
    """Where the binding comes from; with no ``source`` there is none of ours."""

    source: str = ""
    package: str = ""
    folder: str = ""
    version: str = ""
    sha256: str = ""


def parse(params: Mapping[str, Any]) -> BindingDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    source, folder = params["source"], params["folder"]
    if source == CONTROLLER and params["lacking"]:
        raise not_on_the_controller(params["lacking"])
    if source == CONTROLLER and not re.fullmatch(r"[0-9a-f]{64}", params["pynvml_sha256"]):
        raise DeclarationError(
            "install nvidia-ml-py",
            object="pynvml_sha256",
            cause=f"{params['pynvml_sha256']!r} is not a SHA-256 checksum",
            hint="use the role nvml, or the lookup gpufleet.node.nvml_binding",
        )
    if source == PACKAGE and not re.fullmatch(r"\S+", params["package"]):
        raise DeclarationError(
            "use nvidia-ml-py from {}",
            object="package",
            cause=f"{params['package']!r} is not a package name",
            hint=f"leave package out for {DEBIAN_PACKAGE}",
        )
    fault, hint = path_fault(folder) if source == FOLDER else ("", "")
    if fault:
        raise DeclarationError("use nvidia-ml-py from {}", object="folder", cause=f"it {fault}", hint=hint)
    if source != FOLDER and folder:
        raise DeclarationError(
            "use nvidia-ml-py from {}",
            object="folder",
            cause=f"it is for source: {FOLDER} only",
            found=source,
            hint=f"set source: {FOLDER}, or leave folder out",
        )
    return BindingDeclaration(source, params["package"], folder, params["version"], params["pynvml_sha256"])


def not_on_the_controller(cause: str) -> DeclarationError:
    """The controller has no binding to bring."""
    return DeclarationError(
        "find nvidia-ml-py",
        object="the controller",
        cause=cause,
        hint="run pip install nvidia-ml-py there, or set nvml_file, or nvml_source: package",
    )
