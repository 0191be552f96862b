# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs of ``container_runtime`` on a configuration, and comparisons of its meaning before and after."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.containerd.places import K0S_MARK
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.containerd.template import mask
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.containerd_machine import V2, V3
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.engine_corpus import (
    BOM,
    Start,
    toml_meaning,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost
from ansible_collections.gpufleet.node.tests.unit.text.toml_corpus import plain

# What the declarations are about, in the words of each engine, and where a line goes or is written otherwise for it.
OURS: Mapping[str, Sequence[str]] = {
    "docker": (
        *("runtimes/nvidia", "features/cdi", "default-ulimits/memlock", "default-ulimits/nofile"),
        *("default-runtime", "live-restore", "data-root", "exec-opts", "default-shm-size"),
    ),
    "containerd": (
        "containerd/runtimes/nvidia",
        "containerd/runtimes/fast",
        "containerd/default_runtime_name",
        "enable_cdi",
    ),
    "toolkit": (
        *("nvidia-container-cli/no-cgroups", "nvidia-container-runtime/mode", "nvidia-container-runtime/runtimes"),
        "features/disable-imex-channel-creation",
    ),
}


def run(host: FakeHost, declared: Mapping[str, Any]) -> Outcome:
    outcome = converge(CONCERN, validated(CONCERN, declared), host, check_mode=False)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def meaning(start: Start, text: Optional[str]) -> Any:
    """What a file says by a reader that is not ours, without what the declaration is about."""
    if text is None:
        return {}
    if start.engine == "apptainer":
        lines = [line.strip() for line in text.splitlines()]
        return [line for line in lines if line and not line.startswith(("#", "always use nv", "bind path = /data"))]
    if start.engine == "docker":
        body = text.lstrip(BOM).strip()
        return without(json.loads(body) if body else {}, OURS["docker"])
    if start.main.endswith(".tmpl"):
        text = mask(text)[0]
    found = toml_meaning(text)
    if start.engine != "containerd":
        return without(found, OURS.get(start.engine, ()))
    found["imports"] = [item for item in found.get("imports", ()) if "gpufleet" not in item]
    for plugin in ("cri", V2, V3):
        table = found.get("plugins", {}).get(plugin, {})
        runtimes = table.get("containerd", {}).get("runtimes", {})
        if runtimes.get("runc") == {"runtime_type": "io.containerd.runc.v2"}:
            # 1.x has it without a word, as long as there is no other.
            del runtimes["runc"]
        found.get("plugins", {})[plugin] = without(table, OURS["containerd"])
    # A file without a version means what the version of its engine means.
    found.pop("version", None)
    return without(found, ())


def without(data: Any, paths: Sequence[str]) -> Any:
    """The data without what is at these paths, nor what is empty. dockerd does not tell a null from a missing key."""
    made = deepcopy(data)
    for path in paths:
        table = made
        *parents, last = path.split("/")
        for key in parents:
            table = table.get(key) or {}
        table.pop(last, None)
    return plain(pruned(made))


def pruned(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    kept = {key: pruned(value) for key, value in data.items()}
    return {key: value for key, value in kept.items() if value not in (None, {}, [])}


def edited(start: Start, text: Optional[str]) -> str:
    """The file after somebody else was at it: a comment at the beginning and a table at the end, or a key of JSON."""
    mark, body = (BOM, text[1:]) if text and text.startswith(BOM) else ("", text or "")
    if start.engine == "docker":
        opening, brace, rest = (body if body.strip() else "{}\n").partition("{")
        comma = "" if rest.lstrip().startswith("}") else ","
        return f'{mark}{opening}{brace} "theirs": [1, {{"a": null}}]{comma}{rest}'
    end = "\r\n" if body[: body.find("\n") + 1].endswith("\r\n") else "\n"
    own = "mount home = yes" if start.engine == "apptainer" else f"[theirs]{end}key = 'x'"
    first = "" if body.startswith(K0S_MARK) else f"# theirs{end}"
    return f"{mark}{first}{body}{end if body and not body.endswith(end) else ''}{own}{end}"


def write(host: FakeHost, path: str, text: str) -> None:
    Path(host.files.locate(path)).write_text(text)
