# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convergence of ``container_runtime`` with the real kinds together: there, nothing to do, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.kinds import kind_of
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    CDI,
    DEFAULT_RUNTIME,
    Settings,
    setting_of,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.spec import RUNTIME_PATH
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.containerd_machine import NEW, Containerd
from ansible_collections.gpufleet.node.tests.unit.node.engine_files import INFO, RUNNING, SPECIFICATION
from ansible_collections.gpufleet.node.tests.unit.support import PATIENCE, FakeHost, Killed, build, quickest, snapshot

NVIDIA = "runtime nvidia"
TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
FILES = {
    RUNTIME_PATH: "",
    "/var/lib/.keep": "",
    "/usr/bin/dockerd": "",
    "/usr/bin/containerd": "",
    "/etc/docker/daemon.json": '{\r\n\t"log-driver": "journald",\r\n\t"x": [1,\r\n2]\r\n}',
    "/etc/containerd/config.toml": "version = 3 # of the site\n[plugins]\n[plugins.'io.containerd.cri.v1.images']\n",
    "/etc/apptainer/apptainer.conf": "# of the site\nalways use nv = no\n",
    TOOLKIT: "#swarm-resource = 1\ndisable-require = false\n[nvidia-container-cli]\nload-kmods = true",
    "/etc/cdi/nvidia.json": json.dumps(SPECIFICATION),
    "/var/run/cdi/nvidia.json": json.dumps(SPECIFICATION),
}
DECLARED: Dict[str, Any] = {
    "engines": [
        {
            "engine": "docker",
            "default": True,
            "cdi": False,
            "live_restore": True,
            "data_root": "/data/docker",
            "default_shm_size": "8g",
            "default_ulimits": {"memlock": -1},
            "exec_opts": ["native.cgroupdriver=systemd"],
        },
        {"engine": "containerd", "default": True, "systemd_cgroup": True},
        {"engine": "apptainer", "default": True, "bind_paths": ["/data"]},
    ],
    "toolkit": {"nvidia-container-cli.no-cgroups": True, "features": {"disable-imex-channel-creation": True}},
    "cdi": {"remove_duplicates": True},
}
# What has two files, one that is edited and one that goes.
FEW: Dict[str, Any] = {"engines": [{"engine": "containerd", "default": True}], "cdi": {"remove_duplicates": True}}
LIMIT_SECONDS = 0.04


def machine(root: Path, files: Optional[Mapping[str, str]] = None) -> FakeHost:
    host = build(root, FILES if files is None else files)
    (root / RUNTIME_PATH[1:]).chmod(0o755)
    for name in ("apptainer", "nvidia-ctk"):
        host.commands.programs[name] = lambda _argv: Completed(0, "", "")
    return host


def run(host: FakeHost, **declared: Any) -> Outcome:
    outcome = converge(CONCERN, validated(CONCERN, declared), host, check_mode=False)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def settings(host: FakeHost, engine: str) -> Settings:
    """What the files of an engine mean. Raises ``CannotLook`` for what the engine would not understand."""
    kind = kind_of(engine)
    installation = kind.find(host)
    assert installation is not None
    return kind.read(host.files, installation).settings


def test_all_engines_are_converged_in_one_call_and_restored_byte_for_byte(tmp_path: Path) -> None:
    host = machine(tmp_path)
    found = snapshot(tmp_path)
    run(host, **DECLARED)
    assert settings(host, "docker")[DEFAULT_RUNTIME] == "nvidia"
    assert settings(host, "containerd")[setting_of("systemd_cgroup nvidia")] is True
    assert settings(host, "apptainer")[setting_of("always use nv")] is True
    assert settings(host, "toolkit")[setting_of("nvidia-container-cli.no-cgroups")] is True
    assert settings(host, "cdi")[setting_of("duplicates")] == "none"
    host.files.log.clear()
    again = run(host, **DECLARED)
    assert (again.status, again.changes, host.files.log) == ("in_sync", (), [])
    run(host, state="absent")
    assert snapshot(tmp_path) == found


def test_a_look_that_finds_nothing_to_do_is_fast_and_starts_no_program(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, **DECLARED)
    host.commands.calls.clear()
    params = validated(CONCERN, DECLARED)
    assert quickest(lambda: converge(CONCERN, params, host, check_mode=False)) < LIMIT_SECONDS * PATIENCE
    assert host.commands.calls == []


@pytest.mark.parametrize("absent", [False, True], ids=["there", "back"])
def test_a_run_that_is_killed_anywhere_leaves_files_that_every_engine_understands(tmp_path: Path, absent: bool) -> None:
    declared = {"state": "absent"} if absent else FEW
    for number in range(1, 80):
        root = tmp_path / str(number)
        host = machine(root)
        found = snapshot(root)
        if absent:
            run(host, **FEW)
            host.files.log.clear()
        host.files.kill_at = number
        try:
            run(host, **declared)
        except Killed:
            for engine in ("containerd", "cdi"):
                settings(host, engine)
            host.files.kill_at = None
            run(host, **declared)
            run(host, state="absent")
            assert snapshot(root) == found
        else:
            assert number > 10
            return
    pytest.fail("it never ended")


def test_what_others_add_in_the_meantime_stays_and_what_was_found_comes_back(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = {engine: settings(host, engine) for engine in ("docker", "containerd", "apptainer", "toolkit")}
    run(host, **DECLARED)
    for path, text in (
        ("/etc/containerd/config.toml", "[plugins.'io.containerd.internal.v1.opt']\npath = '/opt'\n"),
        ("/etc/apptainer/apptainer.conf", "mount home = yes\n"),
        (TOOLKIT, "\n[nvidia-ctk]\npath = 'nvidia-ctk'\n"),
    ):
        target = tmp_path / path[1:]
        target.write_bytes(target.read_bytes() + text.encode())
    docker = tmp_path / "etc/docker/daemon.json"
    docker.write_bytes(docker.read_bytes().replace(b"{", b'{"debug": true,', 1))
    run(host, state="absent")
    after = {engine: settings(host, engine) for engine in before}
    assert after.pop("toolkit") == {**before.pop("toolkit"), setting_of("nvidia-ctk.path"): "nvidia-ctk"}
    assert after == before
    assert json.loads(docker.read_text()) == {"debug": True, "log-driver": "journald", "x": [1, 2]}
    assert "internal.v1.opt" in (tmp_path / "etc/containerd/config.toml").read_text()


@pytest.mark.parametrize("text", [None, "", "# of the site\n", "version = 3\n", "version = 2\n"])
def test_cdi_that_came_with_our_file_alone_goes_with_it(tmp_path: Path, text: Optional[str]) -> None:
    main = {} if text is None else {"/etc/containerd/config.toml": text}
    host = machine(tmp_path, {RUNTIME_PATH: "", "/var/lib/.keep": "", "/usr/bin/containerd": "", **main})
    Containerd(host, NEW)
    found = snapshot(tmp_path)
    run(host, engines=[{"engine": "containerd"}])
    for cdi in (False, True):
        run(host, engines=[{"engine": "containerd", "cdi": cdi}])
        assert settings(host, "containerd")[CDI] is cdi
    run(host, state="absent")
    assert snapshot(tmp_path) == found


def test_docker_is_pending_until_it_says_itself_that_it_has_the_runtime(tmp_path: Path) -> None:
    host = machine(tmp_path, {**FILES, **RUNNING})
    declared = {"engines": [{"engine": "docker"}]}
    outcome = run(host, **declared)
    assert (outcome.remaining.status, outcome.remaining.needs) == ("pending", ("reload_docker",))
    info = {**INFO, "Runtimes": {"nvidia": {"path": RUNTIME_PATH}}}
    (tmp_path / "run/docker.sock.http/info").write_text(json.dumps(info))
    assert run(host, **declared).status == "in_sync"


def generate(root: Path) -> Any:
    """``nvidia-ctk``, as far as it writes a specification."""

    def program(argv: Sequence[str]) -> Completed:
        (output,) = [word.partition("=")[2] for word in argv if word.startswith("--output=")]
        target = root / output[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(SPECIFICATION))
        return Completed(0, "", "")

    return program


def test_a_specification_that_is_missing_is_made_once(tmp_path: Path) -> None:
    host = machine(tmp_path, {RUNTIME_PATH: "", "/sys/module/nvidia/version": "580.95.05\n"})
    host.commands.programs["nvidia-ctk"] = generate(tmp_path)
    declared = {"cdi": {"refresh": True}}
    outcome = run(host, **declared)
    made = [(c.object, c.setting, c.before, c.after, c.scope) for c in outcome.changes if c.object == "cdi"]
    assert made == [("cdi", "specification", "missing", "current", "effective")]
    host.commands.calls.clear()
    assert run(host, **declared).status == "in_sync"
    assert host.commands.calls == []


def test_a_specification_is_unmanaged_where_no_driver_is_loaded_or_no_toolkit_is_there(tmp_path: Path) -> None:
    host = machine(tmp_path, {RUNTIME_PATH: ""})
    declared = {"cdi": {"refresh": True}}
    (entry,) = run(host, **declared).remaining.unmanaged
    assert entry.reason.startswith("no driver is loaded")
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("580.95.05\n")
    del host.commands.programs["nvidia-ctk"]
    (entry,) = run(host, **declared).remaining.unmanaged
    assert (entry.object, entry.setting, entry.reason) == ("cdi", "specification", "it is not installed")


def test_a_toolkit_that_is_not_installed_is_unmanaged_key_by_key(tmp_path: Path) -> None:
    host = machine(tmp_path, {RUNTIME_PATH: ""})
    del host.commands.programs["nvidia-ctk"]
    outcome = run(host, toolkit={"nvidia-container-runtime": {"mode": "cdi"}})
    assert [(entry.object, entry.setting) for entry in outcome.remaining.unmanaged] == [
        ("toolkit", "nvidia-container-runtime.mode")
    ]
