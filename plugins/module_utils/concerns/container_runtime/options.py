# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/container_runtime.py: change it there.

"""The options of ``container_runtime``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "engines": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "engine": {
                "type": "str",
                "choices": ["docker", "containerd", "crio", "podman", "apptainer"],
                "required": True,
            },
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "runtime_name": {"type": "str", "default": "nvidia"},
            "runtime_path": {"type": "path", "default": "/usr/bin/nvidia-container-runtime"},
            "default": {"type": "bool"},
            "cdi": {"type": "bool"},
            "systemd_cgroup": {"type": "bool"},
            "base_runtime_spec": {"type": "path"},
            "privileged_without_host_devices": {"type": "bool"},
            "privileged_without_host_devices_all_devices_allowed": {"type": "bool"},
            "cgroup_writable": {"type": "bool"},
            "pod_annotations": {"type": "list", "elements": "str"},
            "container_annotations": {"type": "list", "elements": "str"},
            "cni_conf_dir": {"type": "path"},
            "cni_max_conf_num": {"type": "int"},
            "snapshotter": {"type": "str"},
            "sandboxer": {"type": "str"},
            "io_type": {"type": "str", "choices": ["fifo", "streaming"]},
            "runc_root": {"type": "path"},
            "no_pivot_root": {"type": "bool"},
            "no_new_keyring": {"type": "bool"},
            "shim_cgroup": {"type": "str"},
            "io_uid": {"type": "int"},
            "io_gid": {"type": "int"},
            "criu_path": {"type": "path"},
            "criu_image_path": {"type": "path"},
            "criu_work_path": {"type": "path"},
            "default_ulimits": {"type": "dict"},
            "default_shm_size": {"type": "str"},
            "live_restore": {"type": "bool"},
            "data_root": {"type": "path"},
            "exec_opts": {"type": "list", "elements": "str"},
            "use_nvidia_container_cli": {"type": "bool"},
            "bind_paths": {"type": "list", "elements": "str"},
        },
    },
    "toolkit": {"type": "dict", "default": {}},
    "cdi": {
        "type": "dict",
        "options": {
            "refresh": {"type": "bool", "default": False},
            "remove_duplicates": {"type": "bool", "default": False},
            "remove_oci_hooks": {"type": "bool", "default": False},
        },
    },
}
