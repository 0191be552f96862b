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
from ansible_collections.gpufleet.node.plugins.module_utils._text.nested import get, put
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.containerd.keys import KEYS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.containerd.keys import (
    settings_of as settings_of_keys,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.containerd.meaning import (
    leaves,
    settings_of,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.crio.crio import Crio
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.merged_toml import Layer
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    RUNTIME,
    Document,
    SettingName,
    shown,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.restore import typed
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
KINDS = ("io.containerd.runc.v2", "io.containerd.runc.v1", "io.containerd.kata.v2", "/opt/shim", "")
# As Bottlerocket has it (a name, which containerd looks up in PATH), and what else a file may say.
PROGRAMS = ("", "/opt/nv", "nvidia-container-runtime", "/opt/two words", "two words", "io.containerd.kata.v2")


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
    if "nvidia" in runtimes:
        options = {"BinaryName": draw(st.sampled_from(PROGRAMS)), "Root": "/r"}
        runtimes["nvidia"] = {"runtime_type": draw(st.sampled_from(KINDS[:-1])), "options": options}
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


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_runtime_of_containerd_is_written_back_as_it_was_read(kind: str, program: str) -> None:
    runtime = SettingName(RUNTIME, "nvidia")
    options = {"options": {"BinaryName": program}} if program else {}
    meant = {**({"runtime_type": kind} if kind else {}), **options}
    found = settings_of({"containerd": {"runtimes": {"nvidia": meant}}}, 0)[runtime]
    written: Dict[str, Any] = {}
    for keys, value in leaves(runtime, found):
        put(written, keys, value)
    assert get(written, ("containerd", "runtimes", "nvidia")) == (meant or None)


@pytest.mark.parametrize(
    "entry",
    [
        {"runtime_path": "/opt/nv"},
        {"runtime_path": "kata"},
        {"runtime_path": "/opt/kata", "runtime_type": "vm"},
        {"runtime_path": "/opt/kata (vm)", "runtime_type": "oci"},
        {"inherit_default_runtime": True},
    ],
)
def test_a_runtime_of_crio_is_written_back_as_it_was_read(entry: Mapping[str, Any]) -> None:
    def layer(runtime: Mapping[str, Any]) -> Layer:
        return Layer("", Document("", ""), {"crio": {"runtime": {"runtimes": {"nvidia": runtime}}}})

    text = Crio().program(layer(entry), "nvidia")
    written = Crio().entry("nvidia", text, [])
    assert {"runtime_type": "oci", **entry}.items() >= written.items()
    assert Crio().program(layer(written), "nvidia") == text


@given(st.data())
def test_a_key_of_a_runtime_is_written_back_as_it_was_read(data: st.DataObject) -> None:
    option = data.draw(st.sampled_from(sorted(KEYS)))
    path, kind = KEYS[option]
    words = st.sampled_from(["x", "true", "a b", "/opt/\\ x", "", "*"])
    values = {str: words, bool: st.just(True), int: st.integers(1, 9), list: st.lists(words, min_size=1, max_size=3)}
    runtime: Dict[str, Any] = {}
    put(runtime, path, data.draw(values[kind]))
    ((setting, found),) = [*settings_of_keys("nvidia", runtime)] or [(SettingName(option, "nvidia"), None)]
    ((keys, value),) = leaves(setting, typed(setting, shown(found)))
    assert keys[3:] == path
    assert value == get(runtime, path) or (found is None and get(runtime, path) == "")


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
