# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others have in the files of an engine beside us: before, and by the time that we go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Mapping, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._host.command import Completed
from engine_corpus import DAEMON_JSON, Start, machine
from support import FakeHost
from test_engine_containerd import BEGIN, END, KUBEADM, MAIN, NEW, OLD, V2, V3, Containerd
from test_engine_corpus import run, write

pytestmark = pytest.mark.once

OLDEST = (1, 6, 20)
VERSIONS = (OLDEST, OLD, NEW)
NVIDIA: Mapping[str, Any] = {"engines": [{"engine": "containerd"}]}
GONE: Mapping[str, Any] = {"engines": [{"engine": "containerd", "state": "absent"}]}
AWAY: Mapping[str, Any] = {"state": "absent"}


def containerd(root: Path, version: Tuple[int, ...], files: Mapping[str, str]) -> FakeHost:
    return machine(root, Start("containerd", MAIN, files, "containerd", version))


def means(host: FakeHost, version: Tuple[int, ...]) -> Mapping[str, Any]:
    plugins = Containerd(host, version).dump()["plugins"]
    found: Mapping[str, Any] = plugins[V3 if version >= (2,) else V2]["containerd"]
    return found


# --- The runc that 1.x brings where the files name no runtime

KATA = f"""\
version = 2

[plugins."{V2}".containerd]
default_runtime_name = "kata"

[plugins."{V2}".containerd.runtimes.kata]
runtime_type = "io.containerd.kata.v2"
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_no_runc_is_added_where_another_runtime_is_the_default(tmp_path: Path, version: Tuple[int, ...]) -> None:
    host = containerd(tmp_path, version, {MAIN: KATA})
    before = means(host, version)["runtimes"]
    run(host, NVIDIA)
    assert sorted(means(host, version)["runtimes"]) == sorted([*before, "nvidia"])


@pytest.mark.parametrize("declared", [AWAY, GONE])
@pytest.mark.parametrize("version", VERSIONS)
def test_no_runc_of_ours_is_left_beside_a_runtime_of_others(
    tmp_path: Path, version: Tuple[int, ...], declared: Mapping[str, Any]
) -> None:
    host = containerd(tmp_path, version, {MAIN: f'version = 2\n\n[plugins."{V2}"]\nsandbox_image = "p"\n'})
    run(host, NVIDIA)
    kata = KATA.partition("\n\n")[2]
    write(host, MAIN, f"{host.files.read(MAIN)}\n{kata}")
    run(host, declared)
    assert host.files.read(MAIN) == f'version = 2\n\n[plugins."{V2}"]\nsandbox_image = "p"\n\n{kata}'


# --- A feature of Docker that another declared


def old_dockerd(host: FakeHost, argv: Sequence[str]) -> Completed:
    return Completed(0, "Docker version 20.10.24, build 297e128\n", "")


def docker(root: Path, text: str) -> FakeHost:
    host = machine(root, Start("docker", DAEMON_JSON, {DAEMON_JSON: text}, "docker"))
    host.commands.programs["dockerd"] = lambda argv: old_dockerd(host, argv)
    return host


CDI_OF_OTHERS = '{\n  "features": {\n    "cdi": true\n  }\n}\n'


def test_a_feature_of_others_that_an_old_dockerd_ignores_is_no_reason_to_refuse_a_runtime(tmp_path: Path) -> None:
    host = docker(tmp_path, CDI_OF_OTHERS)
    run(host, {"engines": [{"engine": "docker"}]})
    values = json.loads(host.files.read(DAEMON_JSON))
    assert values["features"] == {"cdi": True}
    assert values["runtimes"]["nvidia"]["path"] == "/usr/bin/nvidia-container-runtime"


def test_cdi_of_a_declaration_is_refused_to_an_old_dockerd(tmp_path: Path) -> None:
    host = docker(tmp_path, "{}\n")
    with pytest.raises(Refused, match=r"dockerd 20\.10 has no CDI, which came with 25\.0"):
        run(host, {"engines": [{"engine": "docker", "cdi": True}]})
    assert host.files.read(DAEMON_JSON) == "{}\n"


# --- Imports

IMPORTED = f'version = 2\n[plugins."{V2}"]\nenable_selinux = true\n'


@pytest.mark.parametrize("version", [OLDEST, (1, 6, 28), (1, 7, 15)])
def test_a_relative_pattern_that_an_old_containerd_looks_up_from_its_root_is_not_followed_from_the_file(
    tmp_path: Path, version: Tuple[int, ...]
) -> None:
    host = containerd(
        tmp_path, version, {MAIN: f'imports = ["more/*.toml"]\n{KUBEADM}', "/etc/containerd/more/a.toml": IMPORTED}
    )
    run(host, NVIDIA)
    assert "nvidia" in means(host, version)["runtimes"]
    assert run(host, NVIDIA).changes == ()


@pytest.mark.parametrize("version", [OLDEST, (1, 6, 28), (1, 7, 15)])
def test_a_relative_pattern_of_an_old_containerd_means_files_below_its_root(
    tmp_path: Path, version: Tuple[int, ...]
) -> None:
    host = containerd(tmp_path, version, {MAIN: f'imports = ["srv/*.toml"]\n{KUBEADM}', "/srv/a.toml": IMPORTED})
    with pytest.raises(GpuFleetError, match=r"/srv/a\.toml: this file has the table of the CRI plugin too"):
        run(host, NVIDIA)


@pytest.mark.parametrize("version", [(1, 6, 29), (1, 7, 16)])
def test_a_relative_pattern_of_a_newer_containerd_starts_at_the_file_that_has_it(
    tmp_path: Path, version: Tuple[int, ...]
) -> None:
    host = containerd(
        tmp_path, version, {MAIN: f'imports = ["more/*.toml"]\n{KUBEADM}', "/etc/containerd/more/a.toml": IMPORTED}
    )
    with pytest.raises(
        GpuFleetError, match=r"/etc/containerd/more/a\.toml: this file has the table of the CRI plugin too"
    ):
        run(host, NVIDIA)


# --- What looks like ours and is a text of others


@pytest.mark.parametrize("body", ["x = \n", "", "[plugins\n", f"{BEGIN}{END}"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_block_inside_a_text_is_no_block(tmp_path: Path, version: Tuple[int, ...], body: str) -> None:
    text = f'version = 2\nnote = """\n{BEGIN}{body}{END}"""\n{KUBEADM.partition("version = 2")[2]}'
    host = containerd(tmp_path, version, {MAIN: text})
    run(host, NVIDIA)
    assert means(host, version)["runtimes"]["nvidia"]["options"]["SystemdCgroup"] is True
    assert run(host, {"engines": [{"engine": "containerd", "default": True}]}).changes
    run(host, AWAY)
    assert host.files.read(MAIN) == text


# --- A file whose tables of plugins its containerd does not read

OF_VERSION_1 = """\
[plugins.cri.containerd]
default_runtime_name = "kata"
[plugins.cri.containerd.runtimes.kata]
runtime_type = "io.containerd.kata.v2"
"""


@pytest.mark.parametrize("text", [OF_VERSION_1, f"version = 1\n{OF_VERSION_1}"])
def test_a_file_of_version_1_is_refused_because_2_x_ignores_its_plugins(tmp_path: Path, text: str) -> None:
    host = containerd(tmp_path, NEW, {MAIN: text})
    with pytest.raises(Refused) as caught:
        run(host, NVIDIA)
    assert str(caught.value) == (
        "Cannot let containerd read the new configuration on /etc/containerd/config.toml: this file is of version 1, "
        "whose tables of plugins this containerd ignores, so that its default_runtime, runtime kata would not be in "
        "effect. Write the file as version 2 or newer, or take these tables out, then run again."
    )
    assert host.files.read(MAIN) == text
