# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a declaration makes of the configurations that distributions write, beside what ``nvidia-ctk`` makes of them.

``data/nvidia_ctk`` has both; its README says how the expected results were made. Where ours means something else, it is
in ``ON_PURPOSE`` by its key, with the reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_text import parse
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime import nvidia_ctk
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.containerd_machine import (
    MAIN,
    NEW,
    OLD,
    V2,
    V3,
    Containerd,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.corpus_runs import run
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.engine_corpus import (
    DAEMON_JSON,
    Start,
    machine,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

pytestmark = pytest.mark.once

DATA = Path(__file__).parent / "data" / "nvidia_ctk"
CASES: Mapping[str, Mapping[str, Any]] = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))["cases"]
MAINS = {"containerd": MAIN, "crio": "/etc/crio/crio.conf", "docker": DAEMON_JSON}
DECLARED: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "everything": {"default": True, "cdi": True},
}


def input_of(name: str) -> Optional[str]:
    engine, _slash, stem = name.partition("/")
    if stem == "none":
        return None
    folders = (DATA / engine, DATA.parent / engine)
    (path,) = [found for folder in folders for found in folder.glob(f"{stem}.*") if found.stem == stem]
    return path.read_text(encoding="utf-8")


def version_of(name: str, text: Optional[str]) -> Tuple[int, ...]:
    """The release of containerd that such a file is written for."""
    if "1.6" in name:
        return (1, 6, 20)
    return NEW if parse(text or "").data.get("version") == 3 else OLD


def converged(root: Path, name: str, options: Mapping[str, Any]) -> Dict[str, Any]:
    """What the engine has of the runtime ``nvidia`` after a run, flat, without what says nothing."""
    engine, text = name.partition("/")[0], input_of(name)
    main_file = MAINS[engine]
    files = {} if text is None else {main_file: text}
    version = version_of(name, text) if engine == "containerd" else None
    host = machine(root, Start(engine, main_file, files, engine, version))
    if engine != "containerd" or (version or OLD) < (1, 7):
        # CRI-O always has it, and 1.6 does not know it.
        options = {key: value for key, value in options.items() if engine == "docker" or key != "cdi"}
    run(host, {"engines": [{"engine": engine, **options}]})
    return READ[engine](host, version)


def read_containerd(host: FakeHost, version: Optional[Tuple[int, ...]]) -> Dict[str, Any]:
    model = Containerd(host, version or OLD)
    cri = model.dump()["plugins"][V3 if model.version >= (2,) else V2]
    containerd = cri["containerd"]
    return meaning(containerd["runtimes"]["nvidia"], containerd["default_runtime_name"], cri.get("enable_cdi"))


def read_crio(host: FakeHost, _version: Optional[Tuple[int, ...]]) -> Dict[str, Any]:
    paths = [MAINS["crio"], *(f"/etc/crio/crio.conf.d/{name}" for name in host.files.names("/etc/crio/crio.conf.d"))]
    default, table = None, {}
    for path in paths:
        runtime = parse(host.files.read_optional(path) or "").data.get("crio", {}).get("runtime", {})
        default = runtime.get("default_runtime", default)
        table = runtime.get("runtimes", {}).get("nvidia", table)
    return meaning(table, default, None)


def read_docker(host: FakeHost, _version: Optional[Tuple[int, ...]]) -> Dict[str, Any]:
    values = json.loads(host.files.read(DAEMON_JSON))
    return {
        **meaning(values["runtimes"]["nvidia"], values.get("default-runtime"), None),
        **{f"features.{key}": value for key, value in values.get("features", {}).items()},
    }


READ = {"containerd": read_containerd, "crio": read_crio, "docker": read_docker}


def expected(name: str, kind: str) -> Dict[str, Any]:
    """The same of what ``nvidia-ctk`` wrote, over what is there; nothing where the engine does not read it."""
    case, text = CASES[name][kind], input_of(name)
    if not case.get("read", True):
        return {}
    default, cdi = case["default"], case.get("cdi")
    if name.startswith("crio/") and default is None:
        # Its drop-in has the runtime alone.
        default = parse(text or "").data.get("crio", {}).get("runtime", {}).get("default_runtime")
    if name.startswith("containerd/") and cdi is None:
        # On without a word in 2.x, and off in 1.7.
        cdi = version_of(name, text) >= (2,)
    features = {f"features.{key}": value for key, value in (case.get("features") or {}).items()}
    return {**meaning(case["runtime"], default, cdi), **features}


def meaning(table: Mapping[str, Any], default: Optional[str], cdi: Optional[bool]) -> Dict[str, Any]:
    """What is as it would be without a word is left out."""
    silent = ("", [], 0, False, None, "podsandbox")
    made = {key: value for key, value in flat(table) if value not in silent}
    return {**made, **({"default": default} if default not in (None, "runc") else {}), **({"cdi": True} if cdi else {})}


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[Tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Dict[str, Tuple[Any, Any]]:
    keys = {*ours, *theirs}
    return {key: (ours.get(key), theirs.get(key)) for key in sorted(keys) if ours.get(key) != theirs.get(key)}


# Where ours means something else than the result that nvidia-ctk leaves, by key, and why.
KATA = "a runtime that starts runc is no place for what kata wants: with its type, nothing of it would start"
UNREAD = "beside a file of version 1 nvidia-ctk writes a drop-in that nothing imports: it has no effect"
CGROUPS = "the default runtime has systemd control groups, and nvidia-ctk copies nothing from a name with nvidia"
BARE = "dockerd may have another PATH than the shell; the path is the one that is looked at before it is written"
DROPPED = "nvidia-ctk takes away the features of others (EnableCDI in its pkg/config/engine/docker)"
NO_CDI = "1.6 ignores enable_cdi: a declaration that has it is refused, and this one has none"
ON_PURPOSE: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "containerd/aks-gpu": {"plain": {"options.SystemdCgroup": CGROUPS}},
    "containerd/config-default-1.6": {"plain": {}, "everything": {"cdi": NO_CDI}},
    "containerd/fedora-version-1": {
        "plain": {"runtime_type": UNREAD, "options.BinaryName": UNREAD},
        "everything": {"cdi": UNREAD, "default": UNREAD},
    },
    "containerd/kata-default": {
        "plain": {
            "options.ConfigPath": KATA,
            "pod_annotations": KATA,
            "privileged_without_host_devices": KATA,
            "runtime_type": KATA,
        }
    },
    "containerd/kubernetes-version-1": {
        "plain": {"runtime_type": UNREAD, "options.BinaryName": UNREAD, "options.SystemdCgroup": UNREAD},
        "everything": {"cdi": UNREAD, "default": UNREAD},
    },
    "docker": {"plain": {"path": BARE}},
    "docker/containerd-image-store": {"plain": {}, "everything": {"features.containerd-snapshotter": DROPPED}},
    "docker/docker-desktop": {"plain": {}, "everything": {"features.buildkit": DROPPED}},
}
REFUSED = {"containerd/docker-ce-containerd.io": "disabled_plugins has the CRI plugin, the only one that uses runtimes"}


def on_purpose(name: str, kind: str) -> Dict[str, str]:
    """Of a case and of its whole engine. What differs without an option differs with all of them too."""
    kinds = ("plain",) if kind == "plain" else ("plain", "everything")
    places = (name.partition("/")[0], name)
    return {key: why for at in places for one in kinds for key, why in ON_PURPOSE.get(at, {}).get(one, {}).items()}


@pytest.mark.parametrize("kind", DECLARED)
@pytest.mark.parametrize("name", [name for name in CASES if name not in REFUSED])
def test_a_runtime_means_what_nvidia_ctk_makes_of_it_or_differs_with_a_reason(
    tmp_path: Path, name: str, kind: str
) -> None:
    found = differences(converged(tmp_path, name, DECLARED[kind]), expected(name, kind))
    assert sorted(found) == sorted(on_purpose(name, kind)), found


@pytest.mark.parametrize("kind", DECLARED)
@pytest.mark.parametrize("name", REFUSED)
def test_what_could_never_use_a_runtime_is_refused_where_nvidia_ctk_writes_it(
    tmp_path: Path, name: str, kind: str
) -> None:
    with pytest.raises(DeclarationError, match=REFUSED[name]):
        converged(tmp_path, name, DECLARED[kind])


def test_there_are_enough_of_them_and_none_is_kept_for_nothing() -> None:
    assert len(CASES) >= 50
    assert not [name for name in (*ON_PURPOSE, *REFUSED) if "/" in name and name not in CASES]
    inputs = {f"{path.parent.name}/{path.stem}" for engine in MAINS for path in (DATA / engine).iterdir()}
    assert inputs <= CASES.keys()


@pytest.mark.parametrize("kind", DECLARED)
@pytest.mark.parametrize("name", CASES)
def test_the_stand_in_writes_what_the_program_itself_wrote(tmp_path: Path, name: str, kind: str) -> None:
    engine, text = name.partition("/")[0], input_of(name)
    host = build(tmp_path, {} if text is None else {MAINS[engine]: text})
    nvidia_ctk.configure(host, engine, everything=kind == "everything")
    assert STAND_IN[engine](host) == {"default": None, **CASES[name][kind]}


def stand_in_docker(host: FakeHost) -> Dict[str, Any]:
    values = json.loads(host.files.read(MAINS["docker"]))
    return {
        "runtime": values["runtimes"]["nvidia"],
        "default": values.get("default-runtime"),
        "features": values.get("features"),
    }


def stand_in_crio(host: FakeHost) -> Dict[str, Any]:
    runtime = parse(host.files.read(nvidia_ctk.DROP_INS["crio"])).data["crio"]["runtime"]
    return {"runtime": runtime["runtimes"]["nvidia"], "default": runtime.get("default_runtime")}


def stand_in_containerd(host: FakeHost) -> Dict[str, Any]:
    data = parse(host.files.read(nvidia_ctk.DROP_INS["containerd"])).data
    top = parse(host.files.read_optional(MAIN) or "").data
    cri = data["plugins"][nvidia_ctk.PLUGINS[data["version"]]]
    return {
        "version": data["version"],
        "runtime": cri["containerd"]["runtimes"]["nvidia"],
        "default": cri["containerd"].get("default_runtime_name"),
        "cdi": cri.get("enable_cdi"),
        "read": "/etc/containerd/conf.d/*.toml" in top.get("imports", ()),
    }


STAND_IN = {"containerd": stand_in_containerd, "crio": stand_in_crio, "docker": stand_in_docker}
