# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole road of ``container_runtime`` from configurations as people leave them: there, nothing to do, and back."""

from __future__ import annotations

import json
import os
import re
from copy import deepcopy
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.road import Outcome, converge
from ansible_collections.gpufleet.node.plugins.module_utils._engine.containerd_places import K0S_MARK
from ansible_collections.gpufleet.node.plugins.module_utils._engine.containerd_template import mask
from ansible_collections.gpufleet.node.plugins.module_utils._engine.look import CONCERN
from ansible_collections.gpufleet.node.plugins.modules.node_state import validated
from engine_corpus import BOM, DECLARED, STARTS, Start, machine, toml_meaning
from support import FakeHost, snapshot
from test_engine_containerd import V2, V3
from toml_corpus import plain

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
TOUCHED = {
    "docker": r"nvidia|cdi|default-|live-restore|data-root|exec-opts|null",
    "containerd": r"default_runtime_name|enable_cdi|imports|SystemdCgroup|/old|/opt/nv|gpufleet",
    "apptainer": r"always use nv",
    "toolkit": r"no-cgroups|mode|runc|crun",
}


def run(host: FakeHost, declared: Mapping[str, Any]) -> Outcome:
    outcome = converge(CONCERN, validated(CONCERN, declared), host, check_mode=False)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def text_of(host: FakeHost, path: str) -> Optional[str]:
    return host.files.read_optional(path)


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


def lost(before: str, after: str, *, json_lines: bool) -> List[str]:
    """The lines that went, or that not all is left of; of one of JSON a part may be on the next line."""
    there = {line.rstrip(" \t,") for line in after.splitlines()}
    gone = [line for line in before.splitlines() if line.rstrip(" \t,") not in there]
    wholes = [after] if json_lines else after.splitlines()
    return [line for line in gone if not any(is_in_order(line, whole) for whole in wholes)]


def is_in_order(part: str, whole: str) -> bool:
    characters = iter(whole)
    return all(character in characters for character in part)


@pytest.mark.parametrize("name", STARTS)
def test_a_configuration_is_converged_once_and_given_back_byte_for_byte(tmp_path: Path, name: str) -> None:
    start = STARTS[name]
    host = machine(tmp_path, start)
    declared = DECLARED[start.declared]
    found = snapshot(tmp_path)

    assert run(host, declared).changes

    for path, text in start.files.items():
        after = text_of(host, path)
        if after == text or path.endswith("99-gpufleet.toml"):
            continue
        assert meaning(start, after) == meaning(start, text)
        gone = lost(text, after or "", json_lines=start.engine == "docker")
        assert [line for line in gone if not re.search(TOUCHED[start.engine], line)] == []
    host.files.log.clear()
    again = run(host, declared)
    assert (again.status, again.changes, host.files.log) == ("right", (), [])

    run(host, {"state": "absent"})

    assert snapshot(tmp_path) == found


def files_of(root: Path) -> Dict[str, str]:
    """What is in /etc, /var and /srv."""
    paths = [path for folder in ("etc", "var", "srv") for path in (root / folder).rglob("*") if path.is_file()]
    return {str(path): path.read_bytes().decode("utf-8", "surrogateescape") for path in paths}


def marked(files: Mapping[str, str]) -> bool:
    """Whether a file has our name, or is called so."""
    return any("gpufleet" in os.path.basename(path) or "gpufleet" in text for path, text in files.items())


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


# Where nobody can tell what was there from what we brought: the empty things of others, a value that says what would be
# without it, the way in which a value was written. What it means is the same.
SAME_MEANING = (
    *(
        "docker: no file",
        "docker: empty",
        "docker: blank",
        "docker: an empty object",
        "docker: an empty object and a line",
    ),
    *("docker: ours in capitals", "docker: nulls", "docker: limits", "docker: an empty object of ours"),
    *("docker: ours with another value each", "docker: a link to nothing", "docker: the snap without a file"),
    *("containerd: missing", "containerd: missing 2.x", "containerd: missing, no program", "containerd: empty"),
    *("containerd: empty 2.x", "containerd: comments", "containerd: comments 2.x", "containerd: blanks"),
    *("containerd: inline tables", "containerd: all plugins inline", "containerd: imports, empty"),
    *("containerd: a block of an earlier run", "k3s: no template", "k3s: no template, version 3"),
    *("apptainer: nothing", "apptainer: only comments", "apptainer: a list"),
    # A table of the toolkit that we made stays, empty: there may be comments of others in it.
    *(name for name in STARTS if name.startswith("toolkit: ")),
)


@pytest.mark.parametrize("name", [name for name in STARTS if "long" not in name and "5,000" not in name])
def test_what_others_add_in_the_meantime_is_all_that_is_left(tmp_path: Path, name: str) -> None:
    start = STARTS[name]
    host = machine(tmp_path, start)
    path = host.files.resolve(start.main)
    before = text_of(host, path)
    expected = edited(start, before)
    run(host, DECLARED[start.declared])
    target = Path(host.files.locate(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(edited(start, text_of(host, path)).encode("utf-8", "surrogateescape"))

    run(host, {"state": "absent"})

    after = text_of(host, path)
    assert meaning(start, after) == meaning(start, expected)
    assert name in SAME_MEANING or after == expected
    assert marked(start.files) or not marked(files_of(tmp_path))
