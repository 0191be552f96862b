# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker: its file, its command line, and its daemon, which is a recorded answer to GET /info."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    OwnedByAnother,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.docker import (
    check,
    directives,
    reload,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.docker.docker import (
    KIND,
    SNAP_PROGRAM,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.docker.meaning import (
    DATA_ROOT,
    EXEC_OPTS,
    LOADED,
    SHM_SIZE,
    UNTOLD,
    bytes_of,
    size_text,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    CDI,
    DEFAULT_RUNTIME,
    DEFAULT_ULIMITS,
    LIVE_RESTORE,
    NOT_KNOWN,
    NOTHING,
    RELOAD,
    RESTART,
    RUNTIME,
    Configuration,
    Edit,
    Installation,
    RunningDaemon,
    SettingName,
    Settings,
    WantedEngine,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.resolve import resolve
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.spec import (
    ContainerRuntimeDeclaration,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.state import observe
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.docker_corpus import (
    CORPUS,
    MAIN,
    NVIDIA,
    UNKNOWN,
    VERDICTS,
)
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, FakeHost, build, snapshot

UNIT = "/usr/lib/systemd/system/docker.service"
SOCKET = "/run/docker.sock"
OUR_RUNTIME, MEMLOCK = SettingName(RUNTIME, "nvidia"), SettingName(DEFAULT_ULIMITS, "memlock")
# Debian's unit, which upstream's is too but for $DOCKER_OPTS.
DEBIAN = """\
[Service]
Type=notify
EnvironmentFile=-/etc/default/docker
ExecStart=/usr/sbin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock $DOCKER_OPTS
ExecReload=/bin/kill -s HUP $MAINPID
"""
# As the daemon of Debian 13 answers, without what we do not read.
INFO: Mapping[str, Any] = {
    "ContainersRunning": 2,
    "CgroupDriver": "systemd",
    "DockerRootDir": "/var/lib/docker",
    "Swarm": {"LocalNodeState": "inactive"},
    "ServerVersion": "26.1.5+dfsg1",
    "Runtimes": {"io.containerd.runc.v2": {"path": "runc"}, "runc": {"path": "runc"}},
    "DefaultRuntime": "runc",
    "LiveRestoreEnabled": False,
    "CDISpecDirs": [],
}


class Machine:
    """A host with Docker: ``text`` is its file. ``info`` is what its daemon says, None for one that does not run."""

    def __init__(
        self,
        root: Path,
        text: Optional[str] = None,
        *,
        info: Optional[Mapping[str, Any]] = None,
        unit: str = DEBIAN,
        files: Optional[Mapping[str, str]] = None,
        links: Optional[Mapping[str, str]] = None,
        command: str = "/usr/sbin/dockerd\0-H\0fd://\0",
        version: str = "26.1.5+dfsg1",
    ) -> None:
        self.root = root
        tree = {"/usr/sbin/dockerd": "", **({UNIT: unit} if unit else {}), **(files or {})}
        if info is not None:
            tree.update(
                {
                    "/run/docker.pid": "4711",
                    "/proc/4711/comm": "dockerd\n",
                    "/proc/4711/status": STATUS_OF_ROOT,
                    "/proc/4711/cmdline": command,
                    "/proc/4711/stat": "4711 (dockerd) S 1 " + "0 " * 17 + "555 0\n",
                    f"{SOCKET}.http/info": json.dumps({**INFO, **info}),
                }
            )
        self.host: FakeHost = build(root, tree, links)
        self.validated: List[Tuple[Sequence[str], str]] = []
        self.verdict = Completed(0, "configuration OK\n", "")
        self.version = version
        self.host.commands.programs["dockerd"] = self.dockerd
        if text is not None:
            self.write(text)

    def dockerd(self, argv: Sequence[str]) -> Completed:
        if "--version" in argv:
            return Completed(0, f"Docker version {self.version}, build 5d6db84\n", "")
        self.validated.append((argv, self.host.commands.data))
        return self.verdict

    def write(self, text: str, *, after_start: bool = False) -> None:
        """Somebody writes the file, an hour before or after the daemon started."""
        target = self.root / MAIN.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode("utf-8", "surrogateescape"))
        pid = self.root / "run/docker.pid"
        if pid.exists():
            started = pid.stat().st_mtime
            os.utime(target, (started, started + (3600 if after_start else -3600)))

    @property
    def installation(self) -> Installation:
        found = KIND.find(self.host)
        assert found is not None
        return found

    def read(self) -> Configuration:
        return KIND.read(self.host.files, self.installation)

    def running(self) -> RunningDaemon:
        found = KIND.running(self.host, self.read())
        assert found is not None
        return found

    def edit(self, **declared: Any) -> Tuple[Edit, ...]:
        return KIND.edit(self.read(), entry(**declared))

    def run(self, **declared: Any) -> str:
        """Edit, write, and see that a second run has nothing to do; the new text."""
        (edit,) = self.edit(**declared)
        assert edit.after is not None
        self.write(edit.after)
        assert self.edit(**declared) == ()
        configuration = self.read()
        wanted = KIND.wanted(entry(**declared), configuration)
        assert {name: configuration.settings.get(name) for name in wanted} == dict(wanted)
        return edit.after


def entry(**declared: Any) -> WantedEngine:
    common = {"present": True, "runtime_name": "nvidia", "runtime_path": NVIDIA}
    fields = ("present", "runtime_name", "runtime_path", "default", "cdi")
    options = {name: value for name, value in declared.items() if name not in fields}
    chosen = {name: value for name, value in declared.items() if name in fields}
    return WantedEngine(engine="docker", **{**common, **chosen}, options=options)


ALL = {
    "default": True,
    "cdi": True,
    "live_restore": True,
    "data_root": "/nvme/docker",
    "exec_opts": ["native.cgroupdriver=cgroupfs"],
    "default_shm_size": "8g",
    "default_ulimits": {"memlock": {"soft": -1, "hard": -1}, "nofile": {"soft": 1024, "hard": 4096}},
}

# The file

OURS = ("runtimes", "features", "default-ulimits", *("default-runtime", "live-restore", "data-root", "exec-opts"))


def meaning(text: Optional[str]) -> Dict[str, Any]:
    body = (text or "").lstrip("\ufeff").strip()
    found: Dict[str, Any] = json.loads(body) if body else {}
    # dockerd does not tell a null from a key that is not there, nor an empty object.
    return {key: value for key, value in found.items() if value not in (None, {})}


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_any_file_gets_all_that_is_declared_and_keeps_all_else(tmp_path: Path, name: str) -> None:
    text = CORPUS[name]
    found = meaning(Machine(tmp_path, text).run(**ALL))
    before = meaning(text)
    for key, value in before.items():
        if key in ("runtimes", "features", "default-ulimits"):
            for inner, theirs in value.items():
                if inner not in ("nvidia", "cdi", "memlock", "nofile"):
                    assert found[key][inner] == theirs
        elif key not in (*OURS, "default-shm-size"):
            assert found[key] == value
    assert found["runtimes"]["nvidia"]["path"] == NVIDIA
    assert found["default-runtime"] == "nvidia"
    assert found["features"]["cdi"] is True
    assert found["live-restore"] is True
    assert found["data-root"] == "/nvme/docker"
    assert found["exec-opts"] == ["native.cgroupdriver=cgroupfs"]
    assert found["default-shm-size"] in ("8G", "8192m")
    assert found["default-ulimits"]["nofile"] == {"Name": "nofile", "Soft": 1024, "Hard": 4096}


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_what_was_found_comes_back_into_a_file_that_others_have_edited(tmp_path: Path, name: str) -> None:
    text = CORPUS[name]
    machine = Machine(tmp_path, text)
    before = machine.read().settings
    after = machine.run(**ALL)
    names = KIND.wanted(entry(**ALL), machine.read())
    (edit,) = KIND.restore(machine.read(), {setting: before.get(setting) for setting in names})
    assert edit.before == after
    assert edit.after is not None
    machine.write(edit.after)
    assert dict(machine.read().settings) == dict(before)
    theirs = {key: value for key, value in meaning(text).items() if key not in (*OURS, "default-shm-size")}
    assert {key: value for key, value in meaning(edit.after).items() if key in theirs} == theirs
    if text and before.keys().isdisjoint(names) and meaning(text) and "null" not in text:
        assert edit.after == text


def test_a_file_that_means_it_already_is_not_touched(tmp_path: Path) -> None:
    declared = {**ALL, "default_ulimits": {"memlock": {"soft": -1, "hard": -1}}}
    assert Machine(tmp_path, CORPUS["all of it already"]).edit(**declared) == ()


def test_the_file_that_is_made_where_none_was_is_readable(tmp_path: Path) -> None:
    assert Machine(tmp_path).run(default=True, cdi=True) == (
        "{\n"
        '    "runtimes": {\n'
        '        "nvidia": {\n'
        f'            "path": "{NVIDIA}"\n'
        "        }\n"
        "    },\n"
        '    "default-runtime": "nvidia",\n'
        '    "features": {\n'
        '        "cdi": true\n'
        "    }\n"
        "}\n"
    )


def test_other_features_and_arguments_of_the_runtime_stay(tmp_path: Path) -> None:
    text = '{"features": {"buildkit": false}, "runtimes": {"nvidia": {"path": "a", "args": ["-v"]}}}'
    found = meaning(Machine(tmp_path, text).run(cdi=True))
    assert found["features"] == {"buildkit": False, "cdi": True}
    assert found["runtimes"] == {"nvidia": {"path": NVIDIA, "args": ["-v"]}}


def test_of_two_spellings_of_a_key_of_a_runtime_the_last_counts(tmp_path: Path) -> None:
    # encoding/json goes through the keys in their order, and null leaves a string as it is.
    text = '{"runtimes": {"nvidia": {"path": "/opt/one", "Path": "/opt/two", "PATH": null}}}'
    machine = Machine(tmp_path, text)
    assert machine.read().settings[SettingName(RUNTIME, "nvidia")] == "/opt/two"
    assert meaning(machine.run())["runtimes"] == {"nvidia": {"path": NVIDIA}}


@pytest.mark.parametrize("arguments", ['["-v"]', '"-v"', "5", "null"])
def test_the_args_of_a_runtime_are_not_its_arguments(tmp_path: Path, arguments: str) -> None:
    # dockerd 20.10.24, 26.1.5 and 28.5.2 take any value of this key, and of runtimeArgs nothing but a list of strings.
    text = f'{{"runtimes": {{"nvidia": {{"path": "{NVIDIA}", "args": {arguments}}}}}}}'
    machine = Machine(tmp_path, text)
    assert machine.read().settings[OUR_RUNTIME] == NVIDIA
    assert machine.edit() == ()
    machine.write(text.replace(NVIDIA, "/opt/nvidia"))
    assert machine.run() == text


def test_arguments_that_were_found_come_back_where_dockerd_reads_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "{}")
    (edit,) = KIND.restore(machine.read(), {OUR_RUNTIME: "/opt/a -v"})
    assert meaning(edit.after) == {"runtimes": {"nvidia": {"path": "/opt/a", "runtimeArgs": ["-v"]}}}
    machine.write('{"runtimes": {"nvidia": {"path": "/opt/a", "args": ["-x"], "runtimeArgs": ["-y"]}}}')
    (edit,) = KIND.restore(machine.read(), {OUR_RUNTIME: "/opt/a -v"})
    assert meaning(edit.after)["runtimes"]["nvidia"] == {"path": "/opt/a", "args": ["-x"], "runtimeArgs": ["-v"]}


def test_arguments_with_blanks_stay_words_there_and_back(tmp_path: Path) -> None:
    text = '{"runtimes": {"nvidia": {"path": "/opt/a b", "runtimeArgs": ["-v", "c d"]}}}'
    machine = Machine(tmp_path, text)
    found = machine.read().settings
    changed = meaning(machine.run())
    assert changed["runtimes"] == {"nvidia": {"path": NVIDIA, "runtimeArgs": ["-v", "c d"]}}
    (edit,) = KIND.restore(machine.read(), found)
    assert meaning(edit.after) == meaning(text)


@pytest.mark.parametrize(
    ("default", "wanted"), [("nvidia", None), ("crun", "crun"), ("runc", "runc"), (None, None)], ids=str
)
def test_no_default_means_not_ours(tmp_path: Path, default: Optional[str], wanted: Optional[str]) -> None:
    runtimes = {"nvidia": {"path": NVIDIA}, "crun": {"path": "/usr/bin/crun"}}
    machine = Machine(tmp_path, json.dumps({"runtimes": runtimes, "default-runtime": default}))
    assert KIND.wanted(entry(default=False), machine.read())[DEFAULT_RUNTIME] == wanted
    assert DEFAULT_RUNTIME not in KIND.wanted(entry(), machine.read())
    if default == "nvidia":
        assert meaning(machine.run(default=False)) == {"runtimes": runtimes}
    else:
        assert machine.edit(default=False) == ()


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("written", [None, "runc"])
def test_runc_as_the_default_is_shown_where_the_file_or_the_daemon_names_it_and_comes_back(
    tmp_path: Path, written: Optional[str], runs: bool
) -> None:
    text = json.dumps({"default-runtime": written, "log-driver": "x"} if written else {"log-driver": "x"})
    machine = Machine(tmp_path, text, info={} if runs else None, files={NVIDIA: ""})
    (tmp_path / NVIDIA[1:]).chmod(0o755)
    params = validated(CONCERN, {"engines": [{"engine": "docker", "default": True}]})
    plan = assess(CONCERN, params, machine.host)[1]
    row = next(one for one in plan.settings if one.setting == str(DEFAULT_RUNTIME))
    assert (row.wanted, row.effective, row.boot) == ("nvidia", "runc" if runs else written, written)
    # Without ours as the default it is in sync, whatever the file says of it.
    params = validated(CONCERN, {"engines": [{"engine": "docker", "default": False}]})
    plan = assess(CONCERN, params, machine.host)[1]
    assert [one.status for one in plan.settings if one.setting == str(DEFAULT_RUNTIME)] == ["in_sync"]
    changed, *_others = KIND.restore(machine.read(), {DEFAULT_RUNTIME: "nvidia"})
    machine.write(changed.after or "")
    (restored,) = KIND.restore(machine.read(), {DEFAULT_RUNTIME: written})
    assert meaning(restored.after) == meaning(text)


def test_an_absent_runtime_takes_its_default_along(tmp_path: Path) -> None:
    text = '{"a": 1, "runtimes": {"nvidia": {"path": "x"}}, "default-runtime": "nvidia", "b": 2}'
    assert Machine(tmp_path, text).run(present=False) == '{"a": 1, "b": 2}'
    other = '{"runtimes": {"nvidia": {"path": "x"}, "crun": {"path": "y"}}, "default-runtime": "crun"}'
    assert Machine(tmp_path / "other", other).run(present=False) == (
        '{"runtimes": {"crun": {"path": "y"}}, "default-runtime": "crun"}'
    )


@pytest.mark.parametrize(
    ("text", "size", "shown"),
    [
        ("64M", 64 << 20, "64M"),
        ("8g", 8 << 30, "8G"),
        ("8192mb", 8 << 30, "8G"),
        ("1.5 GiB", 3 << 29, "1536M"),
        ("1000", 1000, "1000B"),
        ("0", 0, "0B"),
        ("8 parsecs", None, ""),
        ("", None, ""),
        ("-1", None, ""),
    ],
)
def test_sizes_are_compared_by_what_they_are(text: str, size: Optional[int], shown: str) -> None:
    assert bytes_of(text) == size
    if size is not None:
        assert size_text(size) == shown
        assert bytes_of(shown) == size


def test_a_shim_that_was_found_comes_back_as_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path, CORPUS["ours as a shim"])
    before = machine.read().settings
    machine.run()
    (edit,) = KIND.restore(machine.read(), before)
    assert meaning(edit.after) == meaning(CORPUS["ours as a shim"])


# Where it is


def test_where_there_is_no_docker_none_is_found(tmp_path: Path) -> None:
    assert KIND.find(build(tmp_path, {"/etc/docker/daemon.json": "{}"})) is None


def test_the_snap_has_its_own_places(tmp_path: Path) -> None:
    host = build(tmp_path, {SNAP_PROGRAM: ""})
    found = KIND.find(host)
    assert found is not None
    assert (found.flavour, found.main) == ("snap", "/var/snap/docker/current/config/daemon.json")


def test_the_file_that_the_command_line_names_is_the_one(tmp_path: Path) -> None:
    unit = DEBIAN.replace("$DOCKER_OPTS", "--config-file /srv/docker.json -H unix:///srv/d.sock")
    found = Machine(tmp_path, unit=unit).installation
    assert (found.main, found.socket, found.unit) == ("/srv/docker.json", "/srv/d.sock", "docker.service")


def test_a_daemon_without_a_unit_is_asked_for_its_file_by_its_command_line(tmp_path: Path) -> None:
    command = "dockerd\0--config-file=/srv/docker.json\0"
    found = Machine(tmp_path, info={}, unit="", command=command).installation
    assert (found.main, found.socket, found.unit) == ("/srv/docker.json", SOCKET, "")


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    machine = Machine(tmp_path, files={"/srv/docker.json": "{}"}, links={MAIN: "/srv/docker.json"})
    (edit,) = machine.edit()
    assert edit.path == "/srv/docker.json"


# The command line


@pytest.mark.parametrize("options", ["--default-runtime=nvidia", "--default-runtime nvidia"])
def test_what_the_command_line_has_already_is_right_and_needs_no_file(tmp_path: Path, options: str) -> None:
    machine = Machine(
        tmp_path,
        json.dumps({"runtimes": {"nvidia": {"path": NVIDIA}}}),
        files={"/etc/default/docker": f'# DOCKER_OPTS="--nothing"\nDOCKER_OPTS="--live-restore {options}"\n'},
    )
    assert machine.read().settings[DEFAULT_RUNTIME] == "nvidia"
    assert machine.read().settings[LIVE_RESTORE] is True
    assert machine.edit(default=True, live_restore=True) == ()


def test_a_runtime_of_the_command_line_may_be_in_the_file_too(tmp_path: Path) -> None:
    unit = DEBIAN.replace("$DOCKER_OPTS", "--add-runtime nvidia=/opt/nvidia --add-runtime=crun=/usr/bin/crun")
    machine = Machine(tmp_path, unit=unit)
    assert machine.read().settings == {OUR_RUNTIME: "/opt/nvidia", SettingName(RUNTIME, "crun"): "/usr/bin/crun"}
    assert meaning(machine.run()) == {"runtimes": {"nvidia": {"path": NVIDIA}}}
    assert machine.read().settings[SettingName(RUNTIME, "crun")] == "/usr/bin/crun"


TWICE: Dict[str, Tuple[str, Dict[str, Any], str]] = {
    "data_root": ("--data-root=/srv", {"data_root": "/nvme"}, "data-root"),
    "exec_opts": (
        "--exec-opt native.cgroupdriver=systemd",
        {"exec_opts": ["native.cgroupdriver=cgroupfs"]},
        "exec-opts",
    ),
    "live_restore": ("--live-restore=false", {"live_restore": True}, "live-restore"),
    "default_runtime": ("--default-runtime=crun", {"default": True}, "default-runtime"),
    "default_shm_size": ("--default-shm-size 1g", {"default_shm_size": "8g"}, "default-shm-size"),
    "cdi": ("--feature cdi=false", {"cdi": True}, "features"),
    "default_ulimits nofile": (
        "--default-ulimit nofile=1024:2048",
        {"default_ulimits": {"nofile": {"soft": 1, "hard": 2}}},
        "default-ulimits",
    ),
    "runtime nvidia": ("--add-runtime=nvidia=/opt/nvidia", {"present": False}, "runtimes"),
}


@pytest.mark.parametrize("setting", sorted(TWICE))
def test_a_key_that_the_command_line_has_otherwise_is_refused_with_both_places(tmp_path: Path, setting: str) -> None:
    option, declared, key = TWICE[setting]
    machine = Machine(tmp_path, "{}", files={"/etc/default/docker": f"DOCKER_OPTS='{option}'\n"})
    before = snapshot(tmp_path)
    with pytest.raises(OwnedByAnother) as caught:
        machine.edit(**declared)
    assert str(caught.value).startswith(
        f"Cannot set {setting} on docker: the command line of dockerd sets it too, from /etc/default/docker, "
        f"and with {key} in {MAIN} as well dockerd would not start (found "
    )
    assert not {"True", "False"} & set(re.findall(r"\w+", str(caught.value)))
    assert snapshot(tmp_path) == before


def test_a_key_that_is_in_both_is_refused_also_where_they_agree(tmp_path: Path) -> None:
    unit = DEBIAN.replace("$DOCKER_OPTS", "--live-restore")
    with pytest.raises(OwnedByAnother, match=r"from docker\.service, and with live-restore"):
        Machine(tmp_path, '{"live-restore": true}', unit=unit).edit(live_restore=True)


def test_an_option_that_only_the_process_has_is_refused_and_a_restart_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "{}", info={}, command="/usr/sbin/dockerd\0--data-root=/old\0")
    with pytest.raises(OwnedByAnother, match=r"from /proc/4711/cmdline") as caught:
        machine.edit(data_root="/new")
    assert caught.value.hint.startswith("restart docker")


# What is wrong


BAD: Dict[str, Tuple[str, str]] = {
    "no JSON": ('{\n  "a": 1,\n  b\n}', "line 3, column 3: Expecting property name enclosed in double quotes"),
    "runtimes a list": ('{"runtimes": []}', "runtimes is not a mapping"),
    "a runtime that is a number": ('{"runtimes": {"x": 5}}', "runtimes.x is not a mapping"),
    "arguments that are a text": (
        '{"runtimes": {"x": {"path": "/x", "runtimeArgs": "-v"}}}',
        "runtimes.x has a path that is not a string, or runtimeArgs that are not a list of strings",
    ),
    "a path that is a number": (
        '{"runtimes": {"x": {"path": 5}}}',
        "runtimes.x has a path that is not a string, or runtimeArgs that are not a list of strings",
    ),
    "a limit that is a number": ('{"default-ulimits": {"nofile": 5}}', "nofile is not a mapping"),
    "a limit of a text": (
        '{"default-ulimits": {"nofile": {"Soft": "many"}}}',
        "default-ulimits.nofile has no number",
    ),
    "features a text": ('{"features": "cdi"}', "features is not a mapping"),
    "cdi a text": ('{"features": {"cdi": "true"}}', "features.cdi is neither true nor false"),
    "live-restore a number": ('{"live-restore": 1}', "live-restore is neither true nor false"),
    "exec-opts a text": ('{"exec-opts": "native.cgroupdriver=systemd"}', "exec-opts is not a list of strings"),
    "default-runtime a list": ('{"default-runtime": ["x"]}', "default-runtime is not a string"),
    "a size that is a number": ('{"default-shm-size": 64}', "default-shm-size is not a string"),
    "a size that is none": ('{"default-shm-size": "big"}', "default-shm-size is not a size such as 8G"),
    "ulimits a list": ('{"default-ulimits": []}', "default-ulimits is not a mapping"),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_file_that_dockerd_would_not_take_is_not_understood(tmp_path: Path, name: str) -> None:
    text, cause = BAD[name]
    machine = Machine(tmp_path, text)
    before = snapshot(tmp_path)
    with pytest.raises(CannotLook) as caught:
        machine.read()
    assert str(caught.value) == (
        f"Cannot parse {MAIN}: {cause}. Correct the file, then run again; nothing was written."
    )
    assert snapshot(tmp_path) == before


def test_a_file_that_the_gpu_operator_writes_is_refused_until_nothing_is_left_to_change(tmp_path: Path) -> None:
    program = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
    machine = Machine(tmp_path, json.dumps({"runtimes": {"nvidia": {"path": program}}}))
    with pytest.raises(OwnedByAnother) as caught:
        machine.edit()
    assert str(caught.value) == (
        f"Cannot configure docker in {MAIN}: the toolkit container of the GPU Operator owns it, and rewrites it at "
        f"every start (found {program}, wanted {NVIDIA}). Remove docker from the declaration, or set "
        "toolkit.enabled=false in the GPU Operator and remove its runtimes from this file."
    )
    assert machine.edit(runtime_path=program) == ()
    (edit,) = machine.edit(present=False)
    assert meaning(edit.after) == {}


def test_an_option_that_dockerd_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError) as caught:
        Machine(tmp_path).edit(exec_opts=["isolation=process"])
    assert str(caught.value) == (
        "Cannot set exec_opts on docker: dockerd knows native.cgroupdriver=systemd and native.cgroupdriver=cgroupfs "
        "(found isolation=process)."
    )


# The daemon


def test_a_daemon_that_does_not_run_is_not_asked(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "{}", files={f"{SOCKET}.http/info": "{}"})
    assert KIND.running(machine.host, machine.read()) is None
    assert f"{SOCKET}.http/info" not in machine.host.files.reads


@pytest.mark.parametrize("comm", ["nginx\n", None])
def test_a_number_that_another_process_has_now_is_no_daemon(tmp_path: Path, comm: Optional[str]) -> None:
    machine = Machine(tmp_path, "{}", info={})
    target = tmp_path / "proc/4711/comm"
    target.unlink()
    if comm is not None:
        target.write_text(comm)
    assert KIND.running(machine.host, machine.read()) is None


def test_the_daemon_says_what_it_has(tmp_path: Path) -> None:
    info = {
        "Runtimes": {**INFO["Runtimes"], "nvidia": {"path": NVIDIA}, "kata": {"path": "/k", "runtimeArgs": ["-x"]}},
        "DefaultRuntime": "nvidia",
        "LiveRestoreEnabled": True,
        "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
        "DockerRootDir": "/nvme/docker/165536.165536",
        "CgroupDriver": "cgroupfs",
    }
    assert Machine(tmp_path, "{}", info=info).running() == RunningDaemon(
        settings={
            OUR_RUNTIME: NVIDIA,
            SettingName(RUNTIME, "kata"): "/k -x",
            DEFAULT_RUNTIME: "nvidia",
            LIVE_RESTORE: True,
            CDI: True,
            DATA_ROOT: "/nvme/docker",
            EXEC_OPTS: "native.cgroupdriver=cgroupfs",
        },
        version="26.1.5+dfsg1",
        containers=2,
    )


def test_a_daemon_of_20_10_has_no_word_for_cdi(tmp_path: Path) -> None:
    machine = Machine(
        tmp_path, '{"features": {"cdi": true}}', info={"ServerVersion": "20.10.24+dfsg1", "CDISpecDirs": None}
    )
    assert machine.running().settings[CDI] is False


def declared(machine: Machine, **keys: Any) -> Settings:
    """The declaration as resolved after a look at the machine."""
    declaration = ContainerRuntimeDeclaration((entry(**keys),))
    return resolve(declaration, observe(machine.host, declaration)).engines["docker"].wanted


def folder(path: Path, name: str) -> Path:
    (path / name).mkdir()
    return path / name


OLD_DAEMON = {"ServerVersion": "24.0.9", "CDISpecDirs": None}


@pytest.mark.parametrize(
    ("text", "info"), [("{}", None), ("{}", OLD_DAEMON), ('{"features": {"cdi": true}}', OLD_DAEMON)]
)
def test_cdi_is_refused_where_dockerd_is_older_than_it_whatever_its_file_says(
    tmp_path: Path, text: str, info: Optional[Mapping[str, Any]]
) -> None:
    machine = Machine(tmp_path, text, info=info, version="24.0.9")
    with pytest.raises(DeclarationError) as refused:
        declared(machine, cdi=True)
    assert str(refused.value) == (
        "Cannot enable CDI on docker: dockerd 24.0 does not support CDI (25.0 and newer do), and ignores features.cdi. "
        "Upgrade Docker, or remove cdi from this entry."
    )
    assert declared(machine, cdi=False)[CDI] is False
    assert CDI not in declared(machine)


def test_cdi_is_not_refused_where_a_restart_starts_a_newer_dockerd_or_no_program_tells(tmp_path: Path) -> None:
    newer = Machine(folder(tmp_path, "newer"), "{}", info=OLD_DAEMON, version="27.5.1")
    assert declared(newer, cdi=True)[CDI] is True
    unknown = Machine(folder(tmp_path, "unknown"), "{}", info=OLD_DAEMON)
    del unknown.host.commands.programs["dockerd"]
    assert declared(unknown, cdi=True)[CDI] is True


def asking(asked: List[str], name: str) -> Callable[[Sequence[str]], Completed]:
    def answer(argv: Sequence[str]) -> Completed:
        asked.append(name)
        return Completed(1, "", "")

    return answer


def test_the_program_is_asked_only_where_the_file_changes_or_cdi_may_be_missing(tmp_path: Path) -> None:
    asked: List[str] = []
    runtime = f'"runtimes": {{"nvidia": {{"path": "{NVIDIA}"}}}}'
    there, says = f"{{{runtime}}}", f'{{{runtime}, "features": {{"cdi": true}}}}'
    cases: Sequence[Tuple[str, str, Optional[Mapping[str, Any]], Mapping[str, Any]]] = (
        ("other", there, OLD_DAEMON, {}),
        ("gone", there, OLD_DAEMON, {"present": False}),
        ("new", says, {"ServerVersion": "25.0.0"}, {"cdi": True}),
        ("none runs and nothing changes", says, None, {"cdi": True}),
        ("none runs", there, None, {"cdi": True}),
        ("old", says, OLD_DAEMON, {"cdi": True}),
        ("changes", "{}", OLD_DAEMON, {}),
    )
    for name, text, info, keys in cases:
        machine = Machine(folder(tmp_path, name), text, info=info)
        machine.host.commands.programs["dockerd"] = asking(asked, name)
        declared(machine, **keys)
    assert list(dict.fromkeys(asked)) == ["none runs", "old", "changes"]


def test_a_data_root_behind_a_link_is_the_same(tmp_path: Path) -> None:
    text = '{"data-root": "/docker"}'
    machine = Machine(
        tmp_path, text, info={"DockerRootDir": "/nvme/d"}, files={"/nvme/d/x": ""}, links={"/docker": "/nvme/d"}
    )
    assert machine.running().settings[DATA_ROOT] == "/docker"


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (None, "Connection refused"),
        ("[]", "its answer is not a mapping"),
        ("no", "Expecting value: line 1 column 1 (char 0)"),
        ("{}", "its answer has no server version"),
        ('{"Runtimes": 5}', "it answers 5 as Runtimes"),
        ('{"ContainersRunning": "2"}', "it answers '2' as ContainersRunning"),
        ('{"Swarm": []}', "it answers [] as Swarm"),
        ('{"ServerVersion": "26", "Runtimes": {"x": null}}', "it answers None as the runtime x"),
    ],
)
def test_a_daemon_that_runs_and_does_not_answer_is_unknown_with_the_reason(
    tmp_path: Path, answer: Optional[str], cause: str
) -> None:
    machine = Machine(tmp_path, "{}", info={})
    target = tmp_path / f"{SOCKET.lstrip('/')}.http/info"
    target.unlink()
    if answer is not None:
        target.write_text(answer)
    with pytest.raises(CannotLook) as caught:
        machine.running()
    assert str(caught.value) == f"Cannot query dockerd in {SOCKET}: {cause}. See journalctl -u docker."


HIDDEN = '{"default-shm-size": "8G", "default-ulimits": {"memlock": {"Name": "memlock", "Soft": -1, "Hard": -1}}}'
HIDDEN_SETTINGS = {SHM_SIZE: "8G", MEMLOCK: "-1:-1"}


def untold(machine: Machine) -> Dict[SettingName, object]:
    return {name: value for name, value in machine.running().settings.items() if name.kind in UNTOLD}


def test_what_the_daemon_does_not_tell_is_what_its_file_said_when_it_started(tmp_path: Path) -> None:
    machine = Machine(tmp_path, HIDDEN, info={})
    assert untold(machine) == HIDDEN_SETTINGS
    machine.write(HIDDEN, after_start=True)
    assert untold(machine) == dict.fromkeys(HIDDEN_SETTINGS, NOT_KNOWN)


def test_a_change_of_ours_leaves_known_what_the_daemon_has(tmp_path: Path) -> None:
    machine = Machine(tmp_path, HIDDEN, info={})
    (edit,) = machine.edit(default_shm_size="16g", live_restore=True)
    assert edit.after is not None
    KIND.check(machine.host, machine.installation, (edit,))
    machine.write(edit.after, after_start=True)
    assert untold(machine) == HIDDEN_SETTINGS
    reload.reloaded(machine.host, machine.installation)
    assert untold(machine) == {**HIDDEN_SETTINGS, SHM_SIZE: "16G"}
    # A second change before any restart does not take the file for what the daemon has.
    (edit,) = machine.edit(default_ulimits={"memlock": {"soft": 1, "hard": 1}})
    KIND.check(machine.host, machine.installation, (edit,))
    machine.write(edit.after or "", after_start=True)
    assert untold(machine)[MEMLOCK] == "-1:-1"


def test_what_was_noted_of_another_daemon_does_not_count(tmp_path: Path) -> None:
    note = {"daemon": "4711:1", "settings": {"default_shm_size": "1G"}}
    machine = Machine(tmp_path, HIDDEN, info={}, files={LOADED: json.dumps(note)})
    assert untold(machine) == HIDDEN_SETTINGS


@pytest.mark.parametrize("note", ["", "[", "[]", "[" * 5000, '{"daemon": "4711:555"}'])
def test_a_note_that_is_damaged_counts_as_none(tmp_path: Path, note: str) -> None:
    assert untold(Machine(tmp_path, HIDDEN, info={}, files={LOADED: note})) == HIDDEN_SETTINGS


# Reload or restart

TAKES: Dict[str, Tuple[Settings, Settings, str]] = {
    "nothing": ({CDI: True}, {CDI: True}, NOTHING),
    "a new runtime": ({}, {OUR_RUNTIME: NVIDIA}, RELOAD),
    "another path": ({OUR_RUNTIME: "a"}, {OUR_RUNTIME: "b"}, RELOAD),
    "the last runtime goes": ({OUR_RUNTIME: NVIDIA}, {}, RESTART),
    "one of two runtimes goes": (
        {OUR_RUNTIME: "a", SettingName(RUNTIME, "b"): "b"},
        {SettingName(RUNTIME, "b"): "b"},
        RELOAD,
    ),
    "a new default": ({}, {DEFAULT_RUNTIME: "nvidia"}, RELOAD),
    "the default goes": ({DEFAULT_RUNTIME: "nvidia"}, {DEFAULT_RUNTIME: None}, RESTART),
    "CDI on": ({CDI: False}, {CDI: True}, RESTART),
    "CDI off": ({CDI: True}, {CDI: False}, RESTART),
    "live restore on": ({LIVE_RESTORE: False}, {LIVE_RESTORE: True}, RELOAD),
    "live restore off": ({LIVE_RESTORE: True}, {LIVE_RESTORE: False}, RELOAD),
    "live restore goes": ({LIVE_RESTORE: True}, {}, RESTART),
    "live restore was off anyway": ({LIVE_RESTORE: False}, {LIVE_RESTORE: None}, NOTHING),
    "data root": ({DATA_ROOT: "/var/lib/docker"}, {DATA_ROOT: "/nvme"}, RESTART),
    "data root as it is by itself": ({DATA_ROOT: "/var/lib/docker"}, {DATA_ROOT: None}, NOTHING),
    "exec options": ({}, {EXEC_OPTS: "native.cgroupdriver=systemd"}, RESTART),
    "the size of /dev/shm": ({}, {SHM_SIZE: "8G"}, RELOAD),
    "the size of /dev/shm goes": ({SHM_SIZE: "8G"}, {}, RESTART),
    "a limit": ({}, {MEMLOCK: "-1:-1"}, RESTART),
    "both": ({}, {OUR_RUNTIME: NVIDIA, CDI: True}, RESTART),
}


@pytest.mark.parametrize("name", sorted(TAKES))
def test_a_reload_is_enough_or_a_restart_is_needed(name: str) -> None:
    before, after, action = TAKES[name]
    required_action = KIND.required_action(before, after)
    assert required_action.action == action
    assert bool(required_action.why) == bool(action)


# The candidate


def checked(machine: Machine, text: str) -> str:
    """What is said of the candidate; empty where it is good."""
    before = snapshot(machine.root)
    try:
        KIND.check(machine.host, machine.installation, (Edit(MAIN, None, text),))
        said = ""
    except Refused as error:
        said = str(error)
    assert snapshot(machine.root) == before
    return said


def test_the_daemon_program_judges_the_candidate_with_the_options_of_its_unit(tmp_path: Path) -> None:
    unit = DEBIAN.replace("$DOCKER_OPTS", "--config-file /etc/docker/daemon.json --debug")
    machine = Machine(tmp_path, unit=unit)
    assert checked(machine, '{"runtimes": {}}') == ""
    assert machine.validated == [
        (
            (
                "/usr/sbin/dockerd",
                "-H",
                "fd://",
                "--containerd=/run/containerd/containerd.sock",
                "--debug",
                "--validate",
                f"--config-file={check.CANDIDATE}",
            ),
            '{"runtimes": {}}',
        )
    ]


def test_a_candidate_that_it_refuses_is_refused_with_its_words(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "{}")
    words = f"unable to configure the Docker daemon with file {check.CANDIDATE}: the following directives"
    machine.verdict = Completed(1, "", f"{words} don't match any configuration option: bogus\n")
    assert checked(machine, '{"bogus": 1}') == (
        f"Cannot configure docker in {MAIN}: dockerd --validate reports: unable to configure the Docker daemon with "
        f"file {MAIN}: the following directives don't match any configuration option: bogus (line 1). The file was "
        "left as it is."
    )


def refusal_of(text: str, options: Sequence[str], root: Path, version: str, verdict: str = "") -> str:
    """The refusal of a candidate for a dockerd of this release, whose own verdict is this one."""
    machine = Machine(root, "{}", unit=DEBIAN.replace("$DOCKER_OPTS", " ".join(options)), version=version)
    if verdict:
        line = f"unable to configure the Docker daemon with file {check.CANDIDATE}: {verdict}\n"
        machine.verdict = Completed(1, "", line)
    return checked(machine, text)


@pytest.mark.parametrize(("text", "options", "verdict", "_newer"), VERDICTS)
def test_what_a_dockerd_without_validate_refuses_is_refused(
    tmp_path: Path, text: str, options: Sequence[str], verdict: str, _newer: str
) -> None:
    said = refusal_of(text, options, tmp_path, "20.10.24+dfsg1")
    assert bool(said) == bool(verdict)
    # Each key that it names.
    for name in re.sub(r" \(from flag: .*?\)", "", verdict.partition("option: ")[2]).split(", "):
        assert name in said


@pytest.mark.parametrize(
    ("text", "options", "version", "said"),
    [
        (
            '{\n  "debug": true,\n  "feautres": {"cdi": true, "x": 1},\n  "y": 1\n}',
            (),
            "20.10.24",
            "dockerd 20.10 does not know feautres.cdi (line 3) and feautres.x (line 3) and y (line 4), so it would not "
            "start",
        ),
        (
            '{\n\n  "\\u0068osts": []}',
            (),
            "20.10.24",
            "docker.service sets hosts (line 3) on the command line of dockerd too, so it would not start",
        ),
        (
            '{"graph": "/a",\n"data-root": "/b"}',
            (),
            "19.03.15",
            "dockerd 19.03 takes only one of graph (line 1) and data-root (line 2), so it would not start",
        ),
        (
            '{"ip6tables": false}',
            (),
            "19.03.15",
            "dockerd 19.03 does not know ip6tables (line 1), so it would not start",
        ),
    ],
)
def test_a_key_that_an_old_dockerd_does_not_take_is_named_with_its_line(
    tmp_path: Path, text: str, options: Sequence[str], version: str, said: str
) -> None:
    assert (
        refusal_of(text, options, tmp_path, version)
        == f"Cannot configure docker in {MAIN}: {said}. The file was left as it is."
    )


@pytest.mark.parametrize("version", ["18.09.9", "17.03.2-ce", "nonsense"])
def test_of_the_keys_of_a_release_that_is_not_known_nothing_is_said(tmp_path: Path, version: str) -> None:
    assert refusal_of('{"feautres": true}', (), tmp_path, version) == ""


def test_a_key_in_an_object_that_dockerd_does_not_know_is_named_with_its_line(tmp_path: Path) -> None:
    text = '\ufeff{\n  "debug": true,\n  "feautres": {"cdi": true}\n}'
    assert "option: feautres.cdi (line 3). The file" in refusal_of(text, (), tmp_path, "28.5.2", f"{UNKNOWN}cdi")
    assert "option: cdi and feautres.x (line 1)." in refusal_of(
        '{"feautres": {"x": 1}}', (), tmp_path / "other", "28.5.2", f"{UNKNOWN}cdi, x"
    )


# By version: what dockerd is recorded to say of ``SPELLED``.
SPELLED = '{\n  "feautres": {"cdi": true}\n}\n'
VALIDATE = f"dockerd --validate reports: unable to configure the Docker daemon with file {MAIN}: {UNKNOWN}"
REFUSALS = {
    "20.10.24+dfsg1": "dockerd 20.10 does not know feautres.cdi (line 2), so it would not start",
    "28.5.2+dfsg4": f"{VALIDATE}feautres.cdi (line 2)",
}


@pytest.mark.parametrize("version", REFUSALS)
@pytest.mark.parametrize("check_mode", [True, False])
def test_a_file_with_which_dockerd_would_not_start_is_refused_in_check_mode_too(
    tmp_path: Path, version: str, check_mode: bool
) -> None:
    machine = Machine(tmp_path, SPELLED, version=version, files={NVIDIA: ""})
    (tmp_path / NVIDIA[1:]).chmod(0o755)
    line = f"unable to configure the Docker daemon with file {check.CANDIDATE}: {UNKNOWN}cdi\n"
    machine.verdict = Completed(1, "", line)
    before = snapshot(tmp_path)
    params = validated(CONCERN, {"engines": [{"engine": "docker"}]})
    with pytest.raises(Refused) as caught:
        converge(CONCERN, params, machine.host, check_mode=check_mode)
    said = f"Cannot configure docker in {MAIN}: {REFUSALS[version]}. The file was left as it is."
    assert str(caught.value) == said
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("version", REFUSALS)
@pytest.mark.parametrize("check_mode", [True, False])
def test_a_runtime_goes_from_a_file_with_which_dockerd_would_not_start(
    tmp_path: Path, version: str, check_mode: bool
) -> None:
    text = f'{{"runtimes": {{"nvidia": {{"path": "{NVIDIA}"}}}}, "feautres": {{"cdi": true}}}}'
    machine = Machine(tmp_path, text, version=version)
    line = f"unable to configure the Docker daemon with file {check.CANDIDATE}: {UNKNOWN}cdi\n"
    machine.verdict = Completed(1, "", line)
    params = validated(CONCERN, {"engines": [{"engine": "docker", "state": "absent"}]})
    outcome = converge(CONCERN, params, machine.host, check_mode=check_mode)
    assert outcome.error is None
    assert machine.host.files.read(MAIN) == (text if check_mode else '{"feautres": {"cdi": true}}')


KNOWN = f'{{"runtimes": {{"nvidia": {{"path": "{NVIDIA}"}}}}, "log-opts": {{"max-size": "1m"}}}}'
STRANGE = KNOWN.replace("}}", '}},\n "feautres": {"cdi": true}', 1)


def look_at(machine: Machine) -> Outcome:
    """A look at what is declared and in the file already."""
    return converge(CONCERN, validated(CONCERN, {"engines": [{"engine": "docker"}]}), machine.host, check_mode=True)


@pytest.mark.parametrize("version", REFUSALS)
@pytest.mark.parametrize("info", [None, {}, {"Runtimes": {"nvidia": {"path": NVIDIA}}}])
def test_a_file_that_is_as_declared_and_with_which_dockerd_does_not_start_again_is_reported(
    tmp_path: Path, version: str, info: Optional[Mapping[str, Any]]
) -> None:
    machine = Machine(tmp_path, version=version, info=info, files={NVIDIA: ""})
    (tmp_path / NVIDIA[1:]).chmod(0o755)
    machine.write(STRANGE, after_start=True)
    line = f"unable to configure the Docker daemon with file {check.CANDIDATE}: {UNKNOWN}cdi\n"
    machine.verdict = Completed(1, "", line)
    before = snapshot(tmp_path)
    outcome = look_at(machine)
    said = f"Cannot start docker with {MAIN}: {REFUSALS[version]}. Correct the file before dockerd starts again."
    assert (outcome.status, str(outcome.error)) == ("drifted", said)
    row = next(row for row in outcome.remaining.settings if row.setting == "next start")
    assert (row.object, row.wanted, row.boot, row.status) == ("docker", "possible", "refused", "drifted")
    assert outcome.changes == ()
    assert snapshot(tmp_path) == before
    # What is not of the next boot does not matter then.
    params = {**validated(CONCERN, {"engines": [{"engine": "docker"}]}), "permanent": False, "immediate": False}
    assert converge(CONCERN, params, machine.host, check_mode=True).error is None
    # Without it the daemon is fine again.
    machine.write(KNOWN, after_start=True)
    assert look_at(machine).error is None


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_the_installed_dockerd_has_started_with_is_not_judged(tmp_path: Path, replaced: bool) -> None:
    program = "/usr/sbin/dockerd (deleted)" if replaced else "/usr/sbin/dockerd"
    machine = Machine(tmp_path, STRANGE, info={}, files={NVIDIA: ""}, links={"/proc/4711/exe": program})
    (tmp_path / NVIDIA[1:]).chmod(0o755)
    machine.verdict = Completed(1, "", f"{UNKNOWN}cdi\n")
    assert (look_at(machine).error is None) == (not replaced)
    assert bool(machine.validated) == replaced


@pytest.mark.parametrize(("text", "options", "verdict", "newer"), VERDICTS)
def test_what_any_release_refuses_for_its_keys_is_in_doubt(
    tmp_path: Path, text: str, options: Sequence[str], verdict: str, newer: str
) -> None:
    machine = Machine(tmp_path, text, unit=DEBIAN.replace("$DOCKER_OPTS", " ".join(options)))
    parsed = machine.read().parsed
    assert directives.in_doubt(text, parsed.values, parsed.options) or not (verdict or newer)


def test_a_look_without_root_lets_no_program_judge(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SPELLED)
    machine.host.may_change = False
    declared(machine)
    machine.write(STRANGE)
    declared(machine)
    assert machine.validated == []


def test_a_daemon_that_cannot_validate_is_not_asked_to(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "{}", version="20.10.24+dfsg1")
    assert checked(machine, "{}") == ""
    assert machine.validated == []
    assert checked(machine, "\ufeff{}") == (
        f"Cannot configure docker in {MAIN}: dockerd 20.10 cannot read a file with a byte-order mark. "
        "The file was left as it is."
    )
    assert "dockerd 20.10 does not support CDI (25.0 and newer do)" in checked(machine, '{"features": {"cdi": true}}')


def test_live_restore_in_a_swarm_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "{}", info={"Swarm": {"LocalNodeState": "active"}})
    assert "live-restore is incompatible" in checked(machine, '{"live-restore": true}')


def test_a_daemon_is_asked_for_its_swarm_where_its_file_says_that_it_listens(tmp_path: Path) -> None:
    told = json.dumps({**INFO, "Swarm": {"LocalNodeState": "active"}})
    text = '{"hosts": ["unix:///srv/d.sock"]}'
    machine = Machine(tmp_path, text, info={}, files={"/srv/d.sock.http/info": told})
    assert "live-restore is incompatible" in checked(machine, '{"live-restore": true}')


def test_without_its_program_a_candidate_is_not_validated(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "{}")
    del machine.host.commands.programs["dockerd"]
    assert checked(machine, "{}") == ""
