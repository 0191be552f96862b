# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for ``nvidia-ctk runtime configure``, after its release 1.20 (and 1.17, which has no drop-ins).

``test_nvidia_ctk`` compares it with what the program itself wrote.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any, Dict, Mapping

from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_edit import dump
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_text import parse
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.spec import RUNTIME_PATH
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

MAINS = {
    "containerd": "/etc/containerd/config.toml",
    "crio": "/etc/crio/crio.conf",
    "docker": "/etc/docker/daemon.json",
}
DROP_INS = {"containerd": "/etc/containerd/conf.d/99-nvidia.toml", "crio": "/etc/crio/crio.conf.d/99-nvidia.toml"}
PLUGINS = {1: "cri", 2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}

Tree = Dict[str, Any]


def configure(host: FakeHost, engine: str, *, everything: bool = False, in_place: bool = False) -> None:
    """``everything`` is with the runtime as the default, and CDI; ``in_place`` as before 1.18, without drop-ins."""
    if engine == "docker":
        _docker(host, everything)
    elif engine == "crio":
        _crio(host, everything)
    else:
        _containerd(host, everything, in_place)


def _docker(host: FakeHost, everything: bool) -> None:
    text = host.files.read_optional(MAINS["docker"])
    values = json.loads(text) if text else {}
    values.setdefault("runtimes", {})["nvidia"] = {"path": "nvidia-container-runtime", "args": []}
    if everything:
        values["default-runtime"] = "nvidia"
        # Of the features of others nothing is left.
        values["features"] = {"cdi": True}
    _write(host, MAINS["docker"], json.dumps(values, indent=4, sort_keys=True))


def _crio(host: FakeHost, everything: bool) -> None:
    runtime = _table(parse(host.files.read_optional(MAINS["crio"]) or "").data, "crio", "runtime")
    table = _low_level(runtime.get("runtimes", {}), runtime.get("default_runtime", ""))
    table.update(runtime_path=RUNTIME_PATH, runtime_type="oci")
    made: Tree = {"runtimes": {"nvidia": table}}
    if everything:
        made["default_runtime"] = "nvidia"
    _write(host, DROP_INS["crio"], dump({"crio": {"runtime": made}}))


def _containerd(host: FakeHost, everything: bool, in_place: bool) -> None:
    data = deepcopy(dict(parse(host.files.read_optional(MAINS["containerd"]) or "").data))
    version = data.get("version", 1) if data else 2
    cri = deepcopy(_table(data, "plugins", PLUGINS[version]))
    containerd = cri.setdefault("containerd", {})
    runtimes = containerd.setdefault("runtimes", {})
    table = _low_level(runtimes, containerd.get("default_runtime_name", ""))
    if not table:
        table = {"runtime_root": "", "runtime_engine": "", "privileged_without_host_devices": False}
    table["runtime_type"] = table.get("runtime_type") or "io.containerd.runc.v2"
    options = table.setdefault("options", {})
    options["BinaryName"] = RUNTIME_PATH
    if version == 1:
        options["Runtime"] = RUNTIME_PATH
    runtimes["nvidia"] = table
    if everything:
        containerd["default_runtime_name"] = "nvidia"
        # At a place of a file of version 1 where nobody looks for it.
        (containerd if version == 1 else cri)["enable_cdi"] = True
    elif containerd.get("default_runtime_name") == "nvidia":
        del containerd["default_runtime_name"]
    if in_place:
        data.setdefault("plugins", {})[PLUGINS[version]] = cri
        _write(host, MAINS["containerd"], dump({"version": version, **data}))
        return
    _write(host, DROP_INS["containerd"], dump({"version": version, "plugins": {PLUGINS[version]: cri}}))
    if version > 1:
        pattern = "/etc/containerd/conf.d/*.toml"
        imports = [*data.get("imports", []), *([] if pattern in data.get("imports", []) else [pattern])]
        _write(host, MAINS["containerd"], dump({**data, "version": version, "imports": imports}))


def _low_level(runtimes: Mapping[str, Any], default: str) -> Tree:
    """The runtime whose options are copied: the default one, runc or crun, and none of NVIDIA's."""
    names = [name for name in (default, "runc", "crun") if name in runtimes and "nvidia" not in name]
    return deepcopy(dict(runtimes[names[0]])) if names else {}


def _table(data: Mapping[str, Any], *keys: str) -> Tree:
    found: Any = data
    for key in keys:
        found = found.get(key, {})
    return dict(found)


def _write(host: FakeHost, path: str, text: str) -> None:
    target = Path(host.files.locate(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
