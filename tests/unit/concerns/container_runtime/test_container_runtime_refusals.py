# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``container_runtime`` refuses: what was given, the exact message, and that nothing changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime import last_good, spec
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.spec import RUNTIME_PATH
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.engine_machine import (
    BEFORE,
    RECORD,
    EngineMachine,
    entry,
    main_of,
    params,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

MAIN = main_of("docker")
PREVIOUS = last_good.path_of("docker")
READ = "Cannot use engines[0]"


def untouched(machine: EngineMachine) -> None:
    pass


def not_root(machine: EngineMachine) -> None:
    machine.host.may_change = False


def not_executable(machine: EngineMachine) -> None:
    (machine.root / RUNTIME_PATH[1:]).chmod(0o644)


def malformed(machine: EngineMachine) -> None:
    machine.write(MAIN, "log=json\nfoo\n")


def folder(machine: EngineMachine) -> None:
    (machine.root / "opt/nvidia").mkdir(parents=True)


def damaged(path: str, text: str) -> Callable[[EngineMachine], None]:
    return lambda machine: machine.write(path, text)


def case(
    name: str,
    message: str,
    *entries: Dict[str, Any],
    prepare: Callable[[EngineMachine], None] = untouched,
    **options: Any,
) -> Any:
    return pytest.param(list(entries), message, prepare, options, id=name)


@pytest.mark.parametrize(
    ("entries", "message", "prepare", "options"),
    [
        case(
            "two entries for one engine",
            "Cannot use engines[2] (docker): engines[0] is for the same engine. Merge them into one entry.",
            entry(),
            entry("podman"),
            entry(runtime_name="other"),
        ),
        case(
            "an engine that there is not",
            "Cannot read the declaration of container_runtime: value of engine must be one of: docker, containerd, "
            "crio, podman, apptainer, got: moby found in engines.",
            entry("moby"),
        ),
        case(
            "a key that there is not",
            "Cannot read the declaration of container_runtime: unsupported option engines.runtime. Supported "
            "parameters include: base_runtime_spec, bind_paths, cdi, cgroup_writable, cni_conf_dir, cni_max_conf_num, "
            "container_annotations, criu_image_path, criu_path, criu_work_path, data_root, default, default_shm_size, "
            "default_ulimits, engine, exec_opts, io_gid, io_type, io_uid, live_restore, no_new_keyring, "
            "no_pivot_root, pod_annotations, privileged_without_host_devices, "
            "privileged_without_host_devices_all_devices_allowed, runc_root, runtime_name, runtime_path, sandboxer, "
            "shim_cgroup, snapshotter, state, systemd_cgroup, use_nvidia_container_cli. Did you mean runtime_path?",
            entry(runtime="nvidia"),
        ),
        case(
            "an option of another engine",
            f"{READ} (containerd): live_restore is an option of docker. Leave it out.",
            entry("containerd", live_restore=True),
        ),
        case(
            "systemd_cgroup where the engine has it elsewhere",
            f"{READ} (docker): systemd_cgroup is an option of containerd. Leave it out.",
            entry(systemd_cgroup=False),
        ),
        case(
            "bind paths of an engine without",
            f"{READ} (podman): bind_paths is an option of apptainer. Leave it out.",
            entry("podman", bind_paths=["/data"]),
        ),
        case(
            "a name that is none",
            f"{READ} (docker): runtime_name is 'nvidia runtime', and must be letters, digits, dots, dashes and "
            "underscores.",
            entry(runtime_name="nvidia runtime"),
        ),
        case(
            "the name of the engine's own runtime",
            f"{READ} (docker): runtime_name is runc, which is built into the engine. Rename it, for example to nvidia.",
            entry(runtime_name="runc"),
        ),
        case(
            "a path that is not absolute",
            f"{READ} (docker): runtime_path is nvidia-container-runtime, and must be an absolute path.",
            entry(runtime_path="nvidia-container-runtime"),
        ),
        case(
            "the name of a shim of containerd",
            f"{READ} (docker): runtime_name is io.containerd.runc.v1, which is built into the engine. Rename it, for "
            "example to nvidia.",
            entry(runtime_name="io.containerd.runc.v1"),
        ),
        case(
            "a path that dockerd would take for one with an argument",
            f"{READ} (docker): runtime_path is '/opt/my runtime', and must have no blank, comma or control character.",
            entry(runtime_path="/opt/my runtime"),
        ),
        case(
            "a path that Podman would take for two",
            f"{READ} (podman): runtime_path is '/opt/a,/opt/b', and must have no blank, comma or control character.",
            entry("podman", runtime_path="/opt/a,/opt/b"),
        ),
        case(
            "what an absent runtime leaves undone",
            f"{READ} (docker): live_restore is set, but the runtime is absent. Leave live_restore out.",
            entry(state="absent", live_restore=True),
        ),
        case(
            "CDI beside an absent runtime",
            f"{READ} (containerd): cdi is set, but the runtime is absent. Leave cdi out.",
            entry("containerd", state="absent", cdi=False),
        ),
        case(
            "an absent runtime as the default one",
            f"{READ} (docker): default is set, but the runtime is absent. Leave default out.",
            entry(state="absent", default=True),
        ),
        case(
            "a limit that there is not",
            f"{READ} (docker): in default_ulimits there is no limit memlok. Did you mean memlock?",
            entry(default_ulimits={"memlok": -1}),
        ),
        case(
            "a limit that resembles none",
            f"{READ} (docker): in default_ulimits there is no limit x. The limits are core, cpu, data, fsize, locks, "
            "memlock, msgqueue, nice, nofile, nproc, rss, rtprio, rttime, sigpending, stack.",
            entry(default_ulimits={"x": 1}),
        ),
        case(
            "a limit that is no number",
            f"{READ} (docker): in default_ulimits memlock is 'unlimited', and must be a number, or soft and hard with "
            "one each. -1 is unlimited.",
            entry(default_ulimits={"memlock": "unlimited"}),
        ),
        case(
            "half a limit",
            f"{READ} (docker): in default_ulimits nofile is {{'soft': 5}}, and must be a number, or soft and hard with "
            "one each. -1 is unlimited.",
            entry(default_ulimits={"nofile": {"soft": 5}}),
        ),
        case(
            "a limit below the lowest",
            f"{READ} (docker): in default_ulimits nofile is -2, and must be a number, or soft and hard with one each. "
            "-1 is unlimited.",
            entry(default_ulimits={"nofile": -2}),
        ),
        case(
            "a soft limit above the hard one",
            f"{READ} (docker): in default_ulimits nofile has a soft limit of -1, above the hard one of 1024.",
            entry(default_ulimits={"nofile": {"soft": -1, "hard": 1024}}),
        ),
        case(
            "a size that is none",
            f"{READ} (docker): default_shm_size is '8 gigabytes', and must be a number with a unit. Write it as 8g.",
            entry(default_shm_size="8 gigabytes"),
        ),
        case(
            "a size beyond all",
            f"{READ} (docker): default_shm_size is '9999999p', and must be a number with a unit. Write it as 8g.",
            entry(default_shm_size="9999999p"),
        ),
        case(
            "a limit beyond all",
            f"{READ} (docker): in default_ulimits nofile is 9223372036854775808, and must be a number, or soft and "
            "hard with one each. -1 is unlimited.",
            entry(default_ulimits={"nofile": 1 << 63}),
        ),
        case(
            "the root folder",
            f"{READ} (docker): data_root is the root folder, which dockerd would fill with its own files. Use "
            "a folder in it.",
            entry(data_root="//"),
        ),
        case(
            "a folder with a line end",
            f"{READ} (docker): data_root is '/data\\n', and must have no control character.",
            entry(data_root="/data\n"),
        ),
        case(
            "a folder with half a character",
            f"{READ} (docker): data_root is '/data\\ud800', and must have no control character.",
            entry(data_root="/data\ud800"),
        ),
        case(
            "both drivers of control groups",
            f"{READ} (docker): exec_opts has native.cgroupdriver twice.",
            entry(exec_opts=["native.cgroupdriver=systemd", "native.cgroupdriver=cgroupfs"]),
        ),
        case(
            "a folder in the kernel's own tree",
            f"{READ} (docker): data_root is '/proc/x', where nothing can be stored. Name a folder or file on a disk.",
            entry(data_root="/proc/x"),
        ),
        case(
            "a folder that leads back",
            f"{READ} (docker): data_root is /srv/../etc, and must not lead back by ... Name the folder itself.",
            entry(data_root="/srv/../etc"),
        ),
        case(
            "a folder that is not absolute",
            f"{READ} (docker): data_root is data, and must be an absolute path.",
            entry(data_root="data"),
        ),
        case(
            "an option of dockerd without a value",
            f"{READ} (docker): in exec_opts 'systemd' is not key=value. Write it as native.cgroupdriver=systemd.",
            entry(exec_opts=["systemd"]),
        ),
        case(
            "a key of the toolkit that looks like another",
            "Cannot use nvidia-container-runtime.mod in the option toolkit: the toolkit has no such key. "
            "Did you mean nvidia-container-runtime.mode?",
            toolkit={"nvidia-container-runtime": {"mod": "cdi"}},
        ),
        case(
            "the running system alone",
            "Cannot configure container engines on permanent: it is false, but an engine only has what its files "
            "say, which the next boot uses too. Set permanent: true, or immediate: false as well.",
            entry(),
            permanent=False,
        ),
        case(
            "a runtime that is not there",
            "Cannot use /opt/nvidia/runtime as the runtime nvidia of docker: it does not exist. Correct runtime_path; "
            "the package nvidia-container-toolkit has it as /usr/bin/nvidia-container-runtime.",
            entry(runtime_path="/opt/nvidia/runtime"),
        ),
        case(
            "a runtime that cannot be executed",
            "Cannot use /usr/bin/nvidia-container-runtime as the runtime nvidia of docker: it cannot be executed. "
            "Correct runtime_path; the package nvidia-container-toolkit has it as /usr/bin/nvidia-container-runtime.",
            entry(),
            prepare=not_executable,
        ),
        case(
            "a folder as the runtime",
            "Cannot use /opt/nvidia as the runtime nvidia of docker: it cannot be executed. Correct runtime_path; the "
            "package nvidia-container-toolkit has it as /usr/bin/nvidia-container-runtime.",
            entry(runtime_path="/opt/nvidia"),
            prepare=folder,
        ),
        case(
            "an engine that is not installed, where everything declared must be set",
            "Cannot set runtime nvidia on crio: it is not installed. Leave it out, or set strict: false.",
            entry(),
            entry("crio"),
            strict=True,
        ),
        case(
            "a file that the engine would not understand",
            "Cannot read the configuration in /etc/docker/main.conf: line 2, column 1: no assignment.",
            entry(),
            prepare=malformed,
        ),
        case(
            "somebody who is not root",
            "Cannot change container_runtime: not running as root. Run the task with become: true.",
            entry(),
            prepare=not_root,
        ),
        case(
            "a damaged record of the files from before",
            f"Cannot read the original files in {RECORD}: the file is damaged: it is not JSON. Restore it from a "
            "backup, or remove it to give up restoring it byte for byte.",
            state="absent",
            prepare=damaged(RECORD, "nothing"),
        ),
        case(
            "a damaged record of the files from before, of which no change is left",
            f"Cannot read the original files in {RECORD}: the file is damaged: it is empty. Restore it from a backup, "
            "or remove it to give up restoring it byte for byte.",
            entry(),
            prepare=damaged(RECORD, ""),
        ),
        case(
            "a damaged record of the configuration with which the daemon was well",
            f"Cannot read the previous configuration in {PREVIOUS}: the file is damaged: '' is not a list. Remove it "
            "to give up restoring.",
            entry(),
            prepare=damaged(PREVIOUS, '{"schema": 1, "files": ""}'),
        ),
        case(
            "a record of another release",
            f"Cannot read the original files in {RECORD}: the file is damaged: "
            "it has schema 2, and this release 1. Restore it from a backup, or remove it to give up restoring it byte "
            "for byte.",
            state="absent",
            prepare=damaged(RECORD, '{"schema": 2}'),
        ),
        *(
            case(
                f"a record of the files from before with {what}",
                f"Cannot read the original files in {RECORD}: the file is damaged: '{path}' is not a file that was "
                "saved. Restore it from a backup, or remove it to give up restoring it byte for byte.",
                state="absent",
                prepare=damaged(RECORD, json.dumps({"schema": 1, "files": {path: kept}})),
            )
            for what, path, kept in (
                ("a number as a text", MAIN, {"engine": "docker", "text": 5, "sums": []}),
                ("a list as an engine", MAIN, {"engine": [], "text": None, "sums": []}),
                ("a text as sums", MAIN, {"engine": "docker", "text": None, "sums": "ab"}),
                ("a path that is none", "etc", {"engine": "docker", "text": None, "sums": []}),
            )
        ),
        case(
            "a damaged record of the values from before",
            f"Cannot read the original values in {BEFORE}: the file is damaged: "
            "schema is missing. Restore it from a backup, or remove it to give up restoring.",
            state="absent",
            prepare=damaged(BEFORE, "{}"),
        ),
    ],
)
def test_what_is_refused_says_why_and_changes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entries: List[Dict[str, Any]],
    message: str,
    prepare: Callable[[EngineMachine], None],
    options: Dict[str, Any],
) -> None:
    machine = EngineMachine(tmp_path, monkeypatch, engines=("docker", "podman"))
    prepare(machine)
    found = snapshot(tmp_path)
    with pytest.raises(GpuFleetError) as caught:
        run(machine, *entries, **options)
    assert str(caught.value) == message
    assert snapshot(tmp_path) == found


@pytest.mark.parametrize(
    ("given", "soft", "hard"),
    [(-1, -1, -1), ("65536", 65536, 65536), ({"soft": 0, "hard": -1}, 0, -1), ({"soft": "5", "hard": 5}, 5, 5)],
)
def test_a_limit_is_one_number_or_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any, soft: int, hard: int
) -> None:
    (made,) = spec.parse(params(entry(default_ulimits={"memlock": given}))).entries
    assert made.options == {"default_ulimits": {"memlock": {"soft": soft, "hard": hard}}}


@pytest.mark.parametrize("text", ["8g", "64M", "1024", "512MiB", "2tb", "7b"])
def test_a_size_is_a_number_with_a_unit(text: str) -> None:
    (made,) = spec.parse(params(entry(default_shm_size=text))).entries
    assert made.options == {"default_shm_size": text}
