# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``container_runtime`` converges random configurations in random dress: there, nothing to do, back."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Dict, Mapping, Tuple

import pytest
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.containerd_machine import (
    MAIN,
    NEW,
    OLD,
    V2,
    V3,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.corpus_runs import edited, meaning, run
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.engine_corpus import (
    BOM,
    DAEMON_JSON,
    DECLARED,
    TOOLKIT,
    Start,
    machine,
    toml_meaning,
)
from ansible_collections.gpufleet.node.tests.unit.support import snapshot
from ansible_collections.gpufleet.node.tests.unit.text.json_texts import texts as json_texts
from ansible_collections.gpufleet.node.tests.unit.text.toml_corpus import documents, dressed, plain
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.once

# What pods may have; containerd does not start with a default that is not there.
RUNTIMES: Mapping[str, Any] = {
    "runc": {"runtime_type": "io.containerd.runc.v2", "options": {"SystemdCgroup": True}},
    "kata": {"runtime_type": "io.containerd.kata.v2", "privileged_without_host_devices": True},
    "nvidia": {"runtime_type": "io.containerd.runc.v2", "options": {"BinaryName": "/opt/nv", "Root": "/r"}},
}


@st.composite
def configurations(draw: st.DrawFn) -> Tuple[Tuple[int, ...], Dict[str, Any]]:
    """A containerd and a configuration of a version that it takes."""
    version = draw(st.sampled_from([OLD, NEW]))
    of_files = draw(st.sampled_from([2, 3])) if version == NEW else 2
    cri: Dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "sandbox_image": st.just("registry.k8s.io/pause:3.8"),
                "enable_cdi": st.booleans(),
                "registry": st.just({"mirrors": {"docker.io": {"endpoint": ["https://a", "https://b"]}}}),
                "rules": st.just([{"a": 1}, {"a": [2, "three"], "b": {}}]),
            },
        )
    )
    names = draw(st.sampled_from([[], ["runc"], ["kata", "runc"], ["runc", "nvidia"], ["nvidia", "kata", "runc"]]))
    runtimes = {name: RUNTIMES[name] for name in names}
    containerd: Dict[str, Any] = {"runtimes": runtimes} if runtimes or draw(st.booleans()) else {}
    if "runc" in runtimes and draw(st.booleans()):
        containerd["default_runtime_name"] = "runc"
    if draw(st.booleans()):
        containerd["snapshotter"] = "native"
    plugins: Dict[str, Any] = (
        {"io.containerd.internal.v1.opt": {"path": "/opt/containerd"}} if draw(st.booleans()) else {}
    )
    if containerd or cri or draw(st.booleans()):
        plugins[V2 if of_files == 2 else V3] = {**cri, **({"containerd": containerd} if containerd else {})}
    data: Dict[str, Any] = {"version": of_files}
    if version == NEW and draw(st.booleans()):
        data["imports"] = draw(st.lists(st.sampled_from(["/etc/containerd/x/*.toml", "y*.toml"]), unique=True))
    if plugins:
        data["plugins"] = plugins
    if draw(st.booleans()):
        data["debug"] = {"level": "info"}
    return version, data


def there_and_back(root: Path, start: Start) -> None:
    host = machine(root, start)
    found = snapshot(root)
    run(host, DECLARED[start.declared])
    host.files.log.clear()
    again = run(host, DECLARED[start.declared])
    assert (again.status, again.changes, host.files.log) == ("in_sync", (), [])
    assert meaning(start, host.files.read(start.main)) == meaning(start, start.files[start.main])
    run(host, {"state": "absent"})
    assert snapshot(root) == found


def with_others(root: Path, start: Start) -> None:
    """Somebody else edits the file in the meantime: what it meant before and that edit are what is left."""
    host = machine(root, start)
    run(host, DECLARED[start.declared])
    text = edited(start, host.files.read(start.main))
    (root / start.main[1:]).write_bytes(text.encode("utf-8", "surrogateescape"))
    run(host, {"state": "absent"})
    expected = edited(start, start.files[start.main])
    assert meaning(start, host.files.read(start.main)) == meaning(start, expected)


@pytest.mark.parametrize("scenario", [there_and_back, with_others])
@given(st.data())
@settings(max_examples=25)
def test_any_dress_of_a_configuration_of_containerd(scenario: Any, data: st.DataObject) -> None:
    version, meant = data.draw(configurations())
    text = data.draw(dressed(meant))
    assert plain(toml_meaning(text)) == plain(meant)
    if version == NEW:
        # 2.x does not read one.
        text = text.lstrip(BOM)
    with tempfile.TemporaryDirectory() as root:
        scenario(Path(root), Start("containerd", MAIN, {MAIN: text}, "containerd", version))


@pytest.mark.parametrize("scenario", [there_and_back, with_others])
@given(documents())
@settings(max_examples=25)
def test_any_file_of_the_toolkit(scenario: Any, text: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        scenario(Path(root), Start("toolkit", TOOLKIT, {TOOLKIT: text}, "toolkit"))


@pytest.mark.parametrize("scenario", [there_and_back, with_others])
@given(json_texts())
@settings(max_examples=25)
def test_any_file_of_docker(scenario: Any, text: str) -> None:
    # dockerd refuses another runtime than an object, and so do we.
    runtimes = json.loads(text.lstrip(BOM)).get("runtimes", {})
    assume(isinstance(runtimes, dict) and all(isinstance(runtime, dict) for runtime in runtimes.values()))
    with tempfile.TemporaryDirectory() as root:
        scenario(Path(root), Start("docker", DAEMON_JSON, {DAEMON_JSON: text}, "docker"))
