# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others have in the files of an engine beside us: before, and by the time that we go."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from pathlib import Path
from typing import Any, Mapping, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, GpuFleetError, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_text import parse
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.spec import RUNTIME_PATH
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime import nvidia_ctk
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.containerd_machine import (
    BEGIN,
    END,
    FOLDER,
    KUBEADM,
    MAIN,
    NEW,
    OLD,
    V2,
    V3,
    Containerd,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.corpus_runs import run, write
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.engine_corpus import (
    DAEMON_JSON,
    Start,
    machine,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, snapshot

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
    with pytest.raises(DeclarationError, match=r"dockerd 20\.10 does not support CDI"):
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
        "Cannot validate the new configuration of containerd in /etc/containerd/config.toml: the file has version 1, "
        "and this containerd ignores the plugin tables of version 1, so default_runtime, runtime kata would not take "
        "effect. Write the file as version 2 or newer, or remove these tables, then run again."
    )
    assert host.files.read(MAIN) == text


# --- Going back beside nvidia-ctk

CTK_FILE, OUR_FILE = f"{FOLDER}/99-nvidia.toml", f"{FOLDER}/99-gpufleet.toml"


def everything(version: Tuple[int, ...]) -> Mapping[str, Any]:
    # 1.6 knows no CDI.
    return {"engines": [{"engine": "containerd", "default": True, **({"cdi": True} if version >= (1, 7) else {})}]}


def outcome_of(host: FakeHost, declared: Mapping[str, Any], *, check_mode: bool = False) -> Mapping[str, Any]:
    return converge(CONCERN, validated(CONCERN, declared), host, check_mode=check_mode).as_dict()


def conflicts_of(result: Mapping[str, Any]) -> Mapping[str, Tuple[Any, ...]]:
    return {
        entry["setting"]: (entry["owner"], entry["path"], entry["line"], entry["value"], entry["wins"])
        for entry in result["conflicts"]
    }


def line_of(host: FakeHost, path: str, ending: str) -> int:
    (number,) = [at for at, line in enumerate(host.files.read(path).splitlines(), 1) if line.endswith(ending)]
    return number


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_ours_goes_and_what_nvidia_ctk_wrote_after_us_stays_and_is_named(
    tmp_path: Path, version: Tuple[int, ...], default: bool
) -> None:
    host = containerd(tmp_path, version, {MAIN: KUBEADM})
    run(host, everything(version) if default else NVIDIA)
    nvidia_ctk.configure(host, "containerd", everything=default)
    theirs = host.files.read(CTK_FILE)
    for check_mode in (True, False):
        result = outcome_of(host, AWAY, check_mode=check_mode)
        assert "failed" not in result, result["msg"]
    main_file = parse(host.files.read(MAIN)).data
    assert main_file.pop("imports") == [f"{FOLDER}/*.toml"]
    assert main_file == parse(KUBEADM).data
    assert host.files.read(CTK_FILE) == theirs
    assert not host.files.exists(OUR_FILE)
    found = conflicts_of(result)
    line = line_of(host, CTK_FILE, "containerd.runtimes.nvidia]")
    assert found["runtime nvidia"] == ("nvidia-ctk", CTK_FILE, line, RUNTIME_PATH, "them")
    assert ("default_runtime" in found) is default
    (named,) = [entry["reason"] for entry in result["unmanaged"] if entry["setting"] == "runtime nvidia"]
    assert named == f"{CTK_FILE} sets it in line {line}, and that file belongs to nvidia-ctk: remove it there"
    again = outcome_of(host, AWAY)
    assert (again["changed"], again["status"], "failed" in again) == (False, "in_sync", False)
    assert not host.files.exists("/var/lib/gpufleet")


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_what_an_older_nvidia_ctk_wrote_over_ours_goes_with_it(
    tmp_path: Path, version: Tuple[int, ...], default: bool
) -> None:
    host = containerd(tmp_path, version, {MAIN: KUBEADM})
    run(host, everything(version) if default else NVIDIA)
    nvidia_ctk.configure(host, "containerd", everything=default, in_place=True)
    result = outcome_of(host, AWAY)
    assert "failed" not in result, result["msg"]
    expected = deepcopy(dict(parse(KUBEADM).data))
    # Only nvidia-ctk wrote that to 1.6, which ignores it.
    expected["plugins"][V2]["enable_cdi"] = default and version == OLDEST
    assert parse(host.files.read(MAIN)).data == expected
    assert (result["conflicts"], result["unmanaged"]) == ([], [])
    assert not host.files.exists(OUR_FILE)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_absent_runtime_that_only_nvidia_ctk_has_is_named_and_nothing_changes(
    tmp_path: Path, version: Tuple[int, ...]
) -> None:
    host = containerd(tmp_path, version, {MAIN: KUBEADM})
    nvidia_ctk.configure(host, "containerd", everything=True)
    found = snapshot(tmp_path)
    assert parse(host.files.read(MAIN)).data["plugins"][V2]["containerd"]["default_runtime_name"] == "runc"
    for check_mode in (True, False):
        result = outcome_of(host, GONE, check_mode=check_mode)
        assert (result["changed"], result["changes"], result["status"]) == (False, [], "drifted")
        assert set(conflicts_of(result)) == {"runtime nvidia", "systemd_cgroup nvidia", "default_runtime"}
    line = line_of(host, CTK_FILE, "containerd.runtimes.nvidia]")
    assert result["failed"] is True
    assert result["msg"] == (
        f"Cannot remove runtime nvidia on containerd: {CTK_FILE} sets it in line {line}, and that file belongs to "
        f"nvidia-ctk (found {RUNTIME_PATH}). Remove it there, then run again."
    )
    assert conflicts_of(result)["runtime nvidia"] == ("nvidia-ctk", CTK_FILE, line, RUNTIME_PATH, "them")
    assert snapshot(tmp_path) == found


@pytest.mark.parametrize("version", VERSIONS)
def test_an_absent_runtime_goes_where_it_is_ours_and_is_named_where_nvidia_ctk_has_it(
    tmp_path: Path, version: Tuple[int, ...]
) -> None:
    host = containerd(tmp_path, version, {MAIN: KUBEADM})
    run(host, NVIDIA)
    nvidia_ctk.configure(host, "containerd")
    theirs = host.files.read(CTK_FILE)
    result = outcome_of(host, GONE)
    assert CTK_FILE in result["msg"]
    assert "nvidia" not in parse(host.files.read(MAIN)).data["plugins"][V2]["containerd"]["runtimes"]
    assert host.files.read(CTK_FILE) == theirs
    assert not host.files.exists(OUR_FILE)


@pytest.mark.parametrize("default", [False, True])
def test_cri_o_loses_ours_and_keeps_what_nvidia_ctk_wrote(tmp_path: Path, default: bool) -> None:
    main_file, ctk_file, text = (
        nvidia_ctk.MAINS["crio"],
        nvidia_ctk.DROP_INS["crio"],
        "[crio.runtime]\nselinux = true\n",
    )
    host = machine(tmp_path, Start("crio", main_file, {main_file: text}, "crio"))
    run(host, {"engines": [{"engine": "crio", "default": default or None}]})
    nvidia_ctk.configure(host, "crio", everything=default)
    theirs = host.files.read(ctk_file)
    result = outcome_of(host, AWAY)
    assert "failed" not in result, result["msg"]
    assert host.files.read(main_file) == text
    assert host.files.read(ctk_file) == theirs
    assert host.files.names("/etc/crio/crio.conf.d") == ("99-nvidia.toml",)
    assert conflicts_of(result)["runtime nvidia"][:2] == ("nvidia-ctk", ctk_file)
    assert ("default_runtime" in conflicts_of(result)) is default
    assert outcome_of(host, AWAY)["changed"] is False


def test_docker_loses_what_nvidia_ctk_wrote_over_ours(tmp_path: Path) -> None:
    host = machine(tmp_path, Start("docker", DAEMON_JSON, {DAEMON_JSON: '{"mtu": 9000}\n'}, "docker"))
    run(host, {"engines": [{"engine": "docker", "default": True, "cdi": True}]})
    nvidia_ctk.configure(host, "docker", everything=True)
    result = outcome_of(host, AWAY)
    assert "failed" not in result, result["msg"]
    assert json.loads(host.files.read(DAEMON_JSON)) == {"mtu": 9000}
    assert (result["conflicts"], result["unmanaged"]) == ([], [])


# --- Going back to what would not pass

EMPTY_TABLE = f'version = 2\n[plugins."{V2}".containerd.runtimes]\n'
OF_VERSION_3 = f"version = 3\n[plugins.'{V3}'.containerd]\ndefault_runtime_name = 'runc'\n"
WITH_KATA = KUBEADM + KATA.partition("\n\n")[2].partition("\n\n")[2]


@pytest.mark.parametrize("declared", [AWAY, GONE])
@pytest.mark.parametrize("version", [OLDEST, OLD])
def test_a_file_that_leaves_1_x_without_a_runtime_comes_back_as_it_was_and_that_is_said(
    tmp_path: Path, version: Tuple[int, ...], declared: Mapping[str, Any]
) -> None:
    host = containerd(tmp_path, version, {MAIN: EMPTY_TABLE})
    run(host, NVIDIA)
    result = outcome_of(host, declared)
    assert "failed" not in result, result["msg"]
    assert host.files.read(MAIN) == EMPTY_TABLE
    (said,) = [change["after"] for change in result["changes"] if change["object"] == MAIN]
    assert said == "as it was found, although there is no runtime runc, and no pod would start"


@pytest.mark.parametrize("declared", [AWAY, GONE])
@pytest.mark.parametrize("first", [True, False])
def test_a_main_file_that_a_drop_in_of_a_newer_version_overrules_comes_back_as_it_was_and_that_is_said(
    tmp_path: Path, first: bool, declared: Mapping[str, Any]
) -> None:
    text = f'imports = ["{FOLDER}/*.toml"]\n{WITH_KATA}'
    other = {f"{FOLDER}/50-other.toml": OF_VERSION_3}
    host = containerd(tmp_path, NEW, {MAIN: text, **(other if first else {})})
    run(host, NVIDIA)
    if not first:
        write(host, f"{FOLDER}/50-other.toml", OF_VERSION_3)
    result = outcome_of(host, declared)
    assert "failed" not in result, result["msg"]
    assert host.files.read(MAIN) == text
    assert host.files.names(FOLDER) == ("50-other.toml",)
    (said,) = [change["after"] for change in result["changes"] if change["setting"] == "text"]
    assert said.startswith(
        f"as it was found, although {FOLDER}/50-other.toml is read last and has version 3, and this containerd ignores "
        "the plugin tables of version 2, so "
    )


def test_a_drop_in_of_another_version_that_is_read_last_is_named(tmp_path: Path) -> None:
    # containerd 2.1.9 of Debian prints the runc that is built in for such files, without systemd's control groups.
    text = f'imports = ["{FOLDER}/*.toml"]\n{KUBEADM}'
    host = containerd(tmp_path, NEW, {MAIN: text, CTK_FILE: OF_VERSION_3})
    assert outcome_of(host, NVIDIA)["msg"] == (
        f"Cannot validate the new configuration of containerd in {MAIN}: {CTK_FILE} is read last and has version 3, "
        "and this containerd ignores the plugin tables of version 2, so cdi, systemd_cgroup runc would not take "
        "effect. Write both files in the same version, then run again."
    )
    assert host.files.read(MAIN) == text


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("systemd", [True, False])
def test_a_runtime_has_the_cgroups_of_a_runc_that_has_no_type(
    tmp_path: Path, version: Tuple[int, ...], systemd: bool
) -> None:
    # containerd 1.6.20 and 1.7.24 of Debian print it with an empty runtime_type and this option.
    option = f'[plugins."{V2}".containerd.runtimes.runc.options]\nSystemdCgroup = {str(systemd).lower()}\n'
    host = containerd(tmp_path, version, {MAIN: f"version = 2\n{option}"})
    run(host, NVIDIA)
    assert means(host, version)["runtimes"]["nvidia"]["options"]["SystemdCgroup"] is systemd
    run(host, GONE)
    assert host.files.read(MAIN) == f"version = 2\n{option}"


def test_files_that_others_broke_are_no_reason_to_keep_ours(tmp_path: Path) -> None:
    host = containerd(tmp_path, NEW, {MAIN: f'imports = ["{FOLDER}/*.toml"]\n{WITH_KATA}'})
    run(host, NVIDIA)
    write(host, f"{FOLDER}/zz-other.toml", OF_VERSION_3)
    write(host, MAIN, f"# theirs\n{host.files.read(MAIN)}")
    result = outcome_of(host, AWAY)
    assert "failed" not in result, result["msg"]
    assert host.files.read(MAIN) == f'# theirs\nimports = ["{FOLDER}/*.toml"]\n{WITH_KATA}'
    assert not host.files.exists(OUR_FILE)


def broken(argv: Sequence[str]) -> Completed:
    """Any engine's program, to which somebody else has given something that it does not take."""
    if "--version" in argv:
        return Completed(0, "Docker version 28.5.2, build ecc6942\n", "")
    return Completed(1, "", "it is wrong\n")


def strict_dockerd(host: FakeHost, argv: Sequence[str]) -> Completed:
    """``dockerd --validate``, which takes no key that it does not know."""
    takes = "--validate" in argv and "bogus" not in host.commands.data
    return Completed(0, "configuration OK\n", "") if takes else broken(argv)


def test_docker_loses_ours_also_where_others_wrote_what_dockerd_does_not_take(tmp_path: Path) -> None:
    host = machine(tmp_path, Start("docker", DAEMON_JSON, {DAEMON_JSON: '{"mtu": 9000}\n'}, "docker"))
    host.commands.programs["dockerd"] = lambda argv: strict_dockerd(host, argv)
    run(host, {"engines": [{"engine": "docker"}]})
    values = {**json.loads(host.files.read(DAEMON_JSON)), "bogus": 1}
    write(host, DAEMON_JSON, json.dumps(values))
    result = outcome_of(host, AWAY)
    assert "failed" not in result, result["msg"]
    assert json.loads(host.files.read(DAEMON_JSON)) == {"mtu": 9000, "bogus": 1}
    (said,) = [change["after"] for change in result["changes"] if change["object"] == DAEMON_JSON]
    assert said == "without what this collection added, although dockerd --validate reports: it is wrong"


@pytest.mark.parametrize("edited", [False, True])
def test_cri_o_loses_ours_also_where_it_does_not_take_its_files(tmp_path: Path, edited: bool) -> None:
    main_file, text = nvidia_ctk.MAINS["crio"], "[crio.runtime]\nselinux = true\n"
    host = machine(tmp_path, Start("crio", main_file, {main_file: text}, "crio"))
    run(host, {"engines": [{"engine": "crio"}]})
    host.commands.programs["crio"] = broken
    if edited:
        (path,) = (f"/etc/crio/crio.conf.d/{name}" for name in host.files.names("/etc/crio/crio.conf.d"))
        write(host, path, f"{host.files.read(path)}# theirs\n")
    result = outcome_of(host, AWAY)
    assert "failed" not in result, result["msg"]
    assert (host.files.read(main_file), host.files.names("/etc/crio/crio.conf.d")) == (text, ())
    (said,) = [change["after"] for change in result["changes"] if change["object"] == main_file]
    assert said == "as it was found, although exit status 1: it is wrong"


def test_a_declaration_is_refused_where_the_engine_does_not_take_its_files(tmp_path: Path) -> None:
    host = machine(tmp_path, Start("docker", DAEMON_JSON, {DAEMON_JSON: '{"bogus": 1}\n'}, "docker"))
    host.commands.programs["dockerd"] = lambda argv: strict_dockerd(host, argv)
    with pytest.raises(Refused, match="dockerd --validate reports: it is wrong"):
        run(host, {"engines": [{"engine": "docker"}]})
    assert host.files.read(DAEMON_JSON) == '{"bogus": 1}\n'


# --- What containerd does not start with

OF_CRI = f'[plugins."{V2}"]\nsandbox_image = "p"\n'
# By version of containerd: what Debian's 1.6.20, 1.7.24 and 2.1.9 say to a file (``config dump``), empty where they
# take it. 1.6 takes version 3, and has nothing of the tables of its plugins.
TAKEN: Mapping[str, Tuple[str, Sequence[str]]] = {
    "an unknown key": (f"version = 2\nbogus = 1\n{OF_CRI}bogus = 1\n", ("", "", "")),
    "an unknown plugin": ('version = 2\n[plugins."io.containerd.v1.x"]\n', ("", "", "")),
    "version 3": (
        "version = 3\n",
        (
            "containerd 1.6 reads files up to version 2, and this one has 3",
            "containerd 1.7 reads files up to version 2, and this one has 3",
            "",
        ),
    ),
    "version 4": (
        "version = 4\n",
        (
            "containerd 1.6 reads files up to version 2, and this one has 4",
            "containerd 1.7 reads files up to version 2, and this one has 4",
            "containerd 2.1 reads files up to version 3, and this one has 4",
        ),
    ),
    "a plugin of version 1": (
        "version = 2\n[plugins.linux]\n",
        (
            "containerd 1.6 would not start because of linux in plugins",
            "containerd 1.7 would not start because of linux in plugins",
            "",
        ),
    ),
    "a plugin of another program": (
        'version = 2\n[plugins."xio.containerd.grpc.v1.cri"]\n',
        ("", "containerd 1.7 would not start because of xio.containerd.grpc.v1.cri in plugins", ""),
    ),
    "a short name": (
        'version = 2\nrequired_plugins = ["nope"]\n',
        (
            "containerd 1.6 would not start because of nope in required_plugins",
            "containerd 1.7 would not start because of nope in required_plugins",
            "containerd 2.1 would not start because of nope in required_plugins",
        ),
    ),
    "short names in version 1": ('version = 1\ndisabled_plugins = ["aufs"]\n[plugins.linux]\n', ("", "", "")),
}


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("number", range(len(VERSIONS)))
@pytest.mark.parametrize("name", TAKEN)
def test_a_file_that_containerd_does_not_start_with_is_refused_in_check_mode_too(
    tmp_path: Path, name: str, number: int, check_mode: bool
) -> None:
    text, said = TAKEN[name]
    host = containerd(tmp_path, VERSIONS[number], {MAIN: text})
    before = snapshot(tmp_path)
    if not said[number]:
        assert "failed" not in outcome_of(host, NVIDIA, check_mode=check_mode)
        return
    with pytest.raises(Refused) as caught:
        outcome_of(host, NVIDIA, check_mode=check_mode)
    assert str(caught.value) == (
        f"Cannot configure containerd in {MAIN}: {said[number]}. Correct the file, then run again."
    )
    assert snapshot(tmp_path) == before


def test_a_file_with_which_a_containerd_that_is_older_does_not_start_again_is_reported(
    tmp_path: Path,
) -> None:
    host = containerd(tmp_path, OLD, {MAIN: KUBEADM})
    outcome_of(host, NVIDIA)
    host.files.replace(MAIN, host.files.read(MAIN).replace("version = 2", 'version = 2\nrequired_plugins = ["nope"]'))
    # Of one that does not run, and of one that has started with it, nobody asks the program.
    assert outcome_of(host, NVIDIA, check_mode=True)["status"] == "in_sync"
    socket = tmp_path / "run/containerd/containerd.sock"
    tree = {
        socket: "",
        tmp_path / "proc/7/comm": "containerd\n",
        tmp_path / "sys/fs/cgroup/system.slice/containerd.service/cgroup.procs": "7\n",
    }
    for place, text in tree.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    written = (tmp_path / MAIN[1:]).stat().st_mtime
    os.utime(socket, (written + 60, written + 60))
    assert outcome_of(host, NVIDIA, check_mode=True)["status"] == "in_sync"
    os.utime(socket, (written - 60, written - 60))
    result = outcome_of(host, NVIDIA, check_mode=True)
    assert (result["status"], result["msg"]) == (
        "drifted",
        f"Cannot configure containerd in {MAIN}: containerd 1.7 would not start because of nope in required_plugins. "
        "Correct the file, then run again.",
    )
