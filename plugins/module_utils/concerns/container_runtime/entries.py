# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the entries of a declaration have in common, and what is wrong in one whatever its engine."""

from __future__ import annotations

from typing import Any, Mapping

from ..._core.errors import DeclarationError
from ..._core.paths import path_fault
from .options import OPTIONS

# What is no engine and has settings in files as they do. Of CDI a program also makes a file.
TOOLKIT, CDI = "toolkit", "cdi"
PRIVILEGED = ("privileged_without_host_devices", "privileged_without_host_devices_all_devices_allowed")
# The options of an entry that are keys of a runtime of containerd beside its program (``containerd.keys``).
OF_CONTAINERD: Mapping[str, Mapping[str, Any]] = {
    name: OPTIONS["engines"]["options"][name]
    for name in (
        "base_runtime_spec",
        *PRIVILEGED,
        "cgroup_writable",
        "pod_annotations",
        "container_annotations",
        "cni_conf_dir",
        "cni_max_conf_num",
        "snapshotter",
        "sandboxer",
        "io_type",
        "runc_root",
        "no_pivot_root",
        "no_new_keyring",
        "shim_cgroup",
        "io_uid",
        "io_gid",
        "criu_path",
        "criu_image_path",
        "criu_work_path",
    )
}


def refuse_relative(where: str, option: str, path: str) -> None:
    fault, hint = path_fault(path)
    if fault:
        raise wrong(where, f"{option} {fault}", hint)


def wrong(where: str, cause: str, hint: str = "") -> DeclarationError:
    return DeclarationError("use {}", object=where, cause=cause, hint=hint)
