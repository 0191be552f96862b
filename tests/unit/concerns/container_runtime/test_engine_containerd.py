# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd: its files brought to a runtime and back, judged by a model of how 1.7 and 2.1 read them, and by the real
program where the machine has one."""

from __future__ import annotations

import os
import shutil
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    GpuFleetError,
    OwnedByAnother,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_text import parse
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.containerd import check
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.containerd import (
    template as containerd_template,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.containerd.containerd import KIND
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.containerd.meaning import matches
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    CDI,
    CONTAINERD,
    DEFAULT_RUNTIME,
    NOTHING,
    RESTART,
    RUNTIME,
    SYSTEMD_CGROUP,
    Edit,
    SettingName,
    WantedEngine,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.containerd_machine import (
    BEGIN,
    CORPUS,
    DEBIAN,
    DROP_IN,
    END,
    FOLDER,
    FULL_TEMPLATE,
    GENERATED_2,
    GENERATED_3,
    KUBEADM,
    MAIN,
    NEW,
    NVIDIA,
    OLD,
    OUR_CGROUP,
    OUR_RUNTIME,
    PROGRAM,
    RANCHER,
    RUNC_BLOCK,
    V2,
    V3,
    V3_TEXT,
    Machine,
    runtime_text,
)
from ansible_collections.gpufleet.node.tests.unit.support import build

pytestmark = pytest.mark.once

PATTERN = f"{FOLDER}/99-gpufleet*.toml"
SOCKET = "/run/containerd/containerd.sock"
HEADER = "# Written by gpufleet.node, module container_runtime. A change made here is overwritten by the next run.\n"


# Where a version or an empty list is left that nobody can tell from one that was there; the record of texts does that.
NOT_BYTE_FOR_BYTE = ("empty", "empty 2.x", "comments", "comments 2.x", "blanks", "imports, empty", "inline tables")


@pytest.mark.parametrize(
    ("name", "default"),
    # Once is enough of 5,000 lines, each edit of which is checked by reading them all again.
    [(name, default) for name in CORPUS for default in (None, True) if default or "long" not in name],
)
def test_every_configuration_gets_the_runtime_keeps_all_else_and_comes_back_byte_for_byte(
    tmp_path: Path, name: str, default: Optional[bool]
) -> None:
    version, files = CORPUS[name]
    machine = Machine(tmp_path, files, version)
    wanted = replace(NVIDIA, default=default, cdi=default)
    names = KIND.wanted(wanted, machine.configuration)
    found = {setting: machine.configuration.settings.get(setting) for setting in names}
    before = machine.means() if machine.model else {}

    machine.converge(wanted)

    assert machine.converge(wanted) == ()
    for path, text in files.items():
        now = set((machine.text(path) or "").splitlines())
        kept = [line for line in text.splitlines() if "default_runtime" not in line and "enable_cdi" not in line]
        kept = [line for line in kept if "/opt/nv" not in line and "Systemd" not in line and "imports" not in line]
        kept = [line for line in kept if "snapshotter" not in line]
        assert [line for line in kept if line not in now] == []
    if machine.model:
        means = machine.means()
        ours = means["containerd"]["runtimes"].pop("nvidia")
        assert ours["options"]["BinaryName"] == PROGRAM
        assert ours["options"]["SystemdCgroup"] == names[OUR_CGROUP]
        assert means["containerd"]["default_runtime_name"] == ("nvidia" if default else "runc")
        if default:
            assert means["enable_cdi"] is True
        assert rest_of(means) == rest_of(before)

    machine.restore(found)

    for path, text in files.items():
        assert name in NOT_BYTE_FOR_BYTE or machine.text(path) == text
    assert machine.text(DROP_IN) is None
    assert MAIN in files or machine.text() is None
    if machine.model:
        assert machine.means() == before


def rest_of(means: Mapping[str, Any]) -> Dict[str, Any]:
    """All but what the declaration is about."""
    made = deepcopy(dict(means))
    made.pop("enable_cdi")
    made["containerd"].pop("default_runtime_name")
    made["containerd"]["runtimes"].pop("nvidia", None)
    return made


def test_2_x_gets_a_drop_in_and_one_line_in_its_main_file(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {MAIN: KUBEADM}, NEW)
    machine.converge(replace(NVIDIA, default=True))
    assert machine.text() == KUBEADM.replace("version = 2\n", f'version = 2\nimports = ["{PATTERN}"]\n')
    assert machine.text(DROP_IN) == (
        f'{HEADER}version = 2\n\n[plugins."{V2}".containerd]\ndefault_runtime_name = "nvidia"\n\n'
        + runtime_text(systemd="true")
    )


def test_1_x_gets_a_block_at_the_end_and_its_keys_in_their_places(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {MAIN: KUBEADM}, OLD)
    machine.converge(replace(NVIDIA, default=True, cdi=True, systemd_cgroup=False))
    text = KUBEADM.replace("enable_cdi = false", "enable_cdi = true")
    text = text.replace('default_runtime_name = "runc"', 'default_runtime_name = "nvidia"')
    assert machine.text() == f"{text}\n{BEGIN}{runtime_text()}{END}"
    assert machine.text(DROP_IN) is None


def test_1_x_gets_runc_as_well_where_no_file_names_a_runtime(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {MAIN: DEBIAN}, OLD)
    machine.converge()
    assert machine.text() == f"{DEBIAN}\n{BEGIN}{runtime_text()}\n{RUNC_BLOCK}{END}"


def test_a_main_file_that_is_not_there_is_made_for_the_version_that_runs(tmp_path: Path) -> None:
    new, old = Machine(tmp_path / "new", {}, NEW), Machine(tmp_path / "old", {}, OLD)
    new.converge()
    old.converge()
    assert new.text() == f'{HEADER}version = 3\nimports = ["{PATTERN}"]\n'
    assert new.text(DROP_IN) == f"{HEADER}version = 3\n\n" + runtime_text(f'"{V3}"')
    assert old.text() == f"{HEADER}version = 2\n\n{BEGIN}{runtime_text()}\n{RUNC_BLOCK}{END}"


def test_what_is_not_declared_any_more_stays_and_a_second_runtime_comes_beside_it(tmp_path: Path) -> None:
    for number, version in enumerate((OLD, NEW)):
        machine = Machine(tmp_path / str(number), {MAIN: KUBEADM}, version)
        machine.converge(replace(NVIDIA, default=True))
        machine.converge(replace(NVIDIA, runtime_name="nvidia-cdi", runtime_path="/usr/bin/other"))
        means = machine.means()["containerd"]
        assert sorted(means["runtimes"]) == ["nvidia", "nvidia-cdi", "runc"]
        assert means["default_runtime_name"] == "nvidia"


def test_an_entry_that_is_absent_takes_the_runtime_out_and_the_default_where_it_is_ours(tmp_path: Path) -> None:
    for number, version in enumerate((OLD, NEW)):
        machine = Machine(tmp_path / str(number), {MAIN: DEBIAN}, version)
        machine.converge(replace(NVIDIA, default=True))
        machine.converge(replace(NVIDIA, present=False))
        assert machine.text() == DEBIAN
        assert machine.text(DROP_IN) is None


def test_what_another_hand_wrote_into_the_main_file_is_taken_out_of_it(tmp_path: Path) -> None:
    for number, version in enumerate((OLD, NEW)):
        machine = Machine(tmp_path / str(number), {MAIN: KUBEADM + "\n" + runtime_text(systemd="true")}, version)
        machine.converge(replace(NVIDIA, present=False))
        assert machine.text() == KUBEADM


def test_default_false_leaves_the_default_of_others_and_takes_ours(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {MAIN: KUBEADM}, OLD)
    assert KIND.wanted(replace(NVIDIA, default=False), machine.configuration)[DEFAULT_RUNTIME] == "runc"
    machine.converge(replace(NVIDIA, default=True))
    machine.converge(replace(NVIDIA, default=False))
    assert "default_runtime_name" not in (machine.text() or "")


def test_a_runtime_has_the_cgroups_of_the_default_one_unless_it_is_declared(tmp_path: Path) -> None:
    configuration = Machine(tmp_path, {MAIN: KUBEADM}, OLD).configuration
    assert KIND.wanted(NVIDIA, configuration)[OUR_CGROUP] is True
    assert KIND.wanted(replace(NVIDIA, systemd_cgroup=False), configuration)[OUR_CGROUP] is False


def test_the_program_is_not_started_as_long_as_nothing_differs(tmp_path: Path) -> None:
    for number, version in enumerate((OLD, NEW)):
        machine = Machine(tmp_path / str(number), {MAIN: KUBEADM}, version)
        machine.converge()
        assert machine.model is not None
        machine.model.calls = 0
        configuration = machine.configuration
        assert {**configuration.settings, **KIND.wanted(NVIDIA, configuration)} == configuration.settings
        assert KIND.running(machine.host, configuration) is None
        assert machine.model.calls == 0


def test_the_main_file_may_be_a_link_and_another_one_than_usual(tmp_path: Path) -> None:
    files = {
        "/usr/lib/systemd/system/containerd.service": "[Service]\nExecStart=/usr/bin/containerd -c /opt/c/main.toml\n",
        "/srv/real.toml": KUBEADM,
    }
    machine = Machine(tmp_path, files, NEW)
    (tmp_path / "opt/c").mkdir(parents=True)
    (tmp_path / "opt/c/main.toml").symlink_to("/srv/real.toml")
    edits = machine.converge()
    assert [edit.path for edit in edits] == ["/opt/c/conf.d/99-gpufleet.toml", "/srv/real.toml"]
    assert (tmp_path / "opt/c/main.toml").is_symlink()


def test_without_a_program_or_a_unit_there_is_no_containerd(tmp_path: Path) -> None:
    assert KIND.find(build(tmp_path, {"/etc/hostname": ""})) is None


# --- Bad input

DISABLED = 'disabled_plugins = ["cri"]\n'
OPERATOR = runtime_text(program="/usr/local/nvidia/toolkit/nvidia-container-runtime")
REFUSALS: Mapping[str, Tuple[Tuple[int, ...], Mapping[str, str], type, str]] = {
    "no TOML": (
        OLD,
        {MAIN: "version = 2\n[plugins\n"},
        CannotLook,
        "Cannot parse /etc/containerd/config.toml: line 2, column 9: "
        "the header of a table goes on with a dot or ends with ]. Correct the file, then run again; nothing was "
        "written.",
    ),
    "no TOML in an import": (
        NEW,
        {MAIN: 'version = 3\nimports = ["a.toml"]\n', "/etc/containerd/a.toml": "x = \n"},
        CannotLook,
        "Cannot parse /etc/containerd/a.toml: line 1, column 5: "
        "the value is missing. Correct the file, then run again; nothing was written.",
    ),
    "a version of the configuration that is not known": (
        NEW,
        {MAIN: "version = 5\n"},
        CannotLook,
        "Cannot parse /etc/containerd/config.toml: its version is 5, and the versions known "
        "here are 1 to 4. Correct the file, then run again; nothing was written.",
    ),
    "a version that is no number": (
        NEW,
        {MAIN: 'version = "2"\n'},
        CannotLook,
        "Cannot parse /etc/containerd/config.toml: its version is '2', and the versions "
        "known here are 1 to 4. Correct the file, then run again; nothing was written.",
    ),
    "a containerd that is not known": (
        (3, 0, 0),
        {MAIN: DEBIAN},
        CannotLook,
        "Cannot tell how /usr/bin/containerd reads its files: its version is not known here: containerd "
        "github.com/containerd/containerd/v2 3.0.0 0123abc. 1.x and 2.x are known.",
    ),
    "an import cycle": (
        NEW,
        {
            MAIN: 'version = 3\nimports = ["a.toml"]\n',
            "/etc/containerd/a.toml": f'version = 3\nimports = ["{MAIN}"]\n',
        },
        CannotLook,
        "Cannot parse /etc/containerd/a.toml: it imports /etc/containerd/config.toml, which "
        "imports it in turn. Correct the file, then run again; nothing was written.",
    ),
    "an import that is not there": (
        NEW,
        {MAIN: 'version = 3\nimports = ["/etc/more.toml"]\n'},
        CannotLook,
        "Cannot parse /etc/containerd/config.toml: it imports /etc/more.toml, which does not exist. Correct the "
        "file, then run again; nothing was written.",
    ),
    "a table that is none": (
        OLD,
        {MAIN: f'version = 2\nplugins."{V2}".containerd.runtimes.runc = 1\n'},
        CannotLook,
        "Cannot parse /etc/containerd/config.toml: runc is not a table. "
        "Correct the file, then run again; nothing was written.",
    ),
    "a switch that is a text": (
        OLD,
        {MAIN: f'version = 2\nplugins."{V2}".containerd.runtimes.runc.options.SystemdCgroup = "false"\n'},
        CannotLook,
        "Cannot parse /etc/containerd/config.toml: SystemdCgroup is neither true nor false. "
        "Correct the file, then run again; nothing was written.",
    ),
    "a default that is a list": (
        NEW,
        {MAIN: f'version = 3\nplugins."{V3}".containerd.default_runtime_name = ["runc"]\n'},
        CannotLook,
        "Cannot parse /etc/containerd/config.toml: default_runtime_name is not a string. "
        "Correct the file, then run again; nothing was written.",
    ),
    "a containerd for Docker alone": (
        OLD,
        {MAIN: DISABLED},
        DeclarationError,
        "Cannot add a runtime to containerd in /etc/containerd/config.toml: disabled_plugins has the CRI plugin, the "
        "only one that uses runtimes; such a containerd serves only Docker, which has its own runtimes. "
        "Declare docker instead of containerd, or remove the plugin from disabled_plugins.",
    ),
    "the GPU Operator in the main file": (
        OLD,
        {MAIN: DEBIAN + OPERATOR},
        OwnedByAnother,
        "Cannot configure containerd in /etc/containerd/config.toml: the toolkit container of the GPU Operator owns "
        "it, and rewrites it at every start (found /usr/local/nvidia/toolkit/nvidia-container-runtime, wanted "
        "/usr/bin/nvidia-container-runtime). Remove containerd from the declaration, or set toolkit.enabled=false in "
        "the GPU Operator and remove its runtimes from this file.",
    ),
    "the GPU Operator in a drop-in": (
        NEW,
        {MAIN: f'imports = ["{FOLDER}/*.toml"]\n{DEBIAN}', f"{FOLDER}/99-nvidia.toml": f"version = 2\n{OPERATOR}"},
        OwnedByAnother,
        "Cannot set runtime nvidia in /etc/containerd/conf.d/99-nvidia.toml: this file sets it too, and is read after "
        "ours (found /usr/local/nvidia/toolkit/nvidia-container-runtime, wanted /usr/bin/nvidia-container-runtime). "
        "Remove it from that file.",
    ),
    "a file that is read after ours": (
        NEW,
        {
            MAIN: f'imports = ["{FOLDER}/*.toml"]\n{V3_TEXT}',
            f"{FOLDER}/zz.toml": f'version = 3\n[plugins."{V3}".containerd]\ndefault_runtime_name = "kata"\n',
        },
        OwnedByAnother,
        "Cannot set default_runtime in /etc/containerd/conf.d/zz.toml: this file sets it too, and is read after ours "
        "(found kata, wanted nvidia). Remove it from that file.",
    ),
    "an import that has the plugin, in 1.x": (
        OLD,
        {
            MAIN: f'imports = ["x.toml"]\n{KUBEADM}',
            "/etc/containerd/x.toml": f'version = 2\n[plugins."{V2}"]\nenable_selinux = true\n',
        },
        OwnedByAnother,
        "Cannot configure containerd in /etc/containerd/x.toml: this file has the table of the CRI plugin too, and "
        "containerd 1.x reads all of it from there, and nothing from /etc/containerd/config.toml. Move its plugin "
        "settings into the main file.",
    ),
    "a version that this containerd does not take": (
        OLD,
        {MAIN: V3_TEXT},
        Refused,
        f"Cannot configure containerd in {MAIN}: containerd 1.7 reads files up to version 2, and this one has 3. "
        "Correct the file, then run again.",
    ),
    "a byte-order mark in 2.x": (
        NEW,
        {MAIN: "\ufeff" + V3_TEXT},
        Refused,
        f"Cannot configure containerd in {MAIN}: containerd 2.1 cannot read a file with a byte-order mark. Correct the "
        "file, then run again.",
    ),
}


@pytest.mark.parametrize("name", list(REFUSALS))
def test_what_cannot_be_is_refused_with_its_reason_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    version, files, kind, message = REFUSALS[name]
    machine = Machine(tmp_path, files, version)
    with pytest.raises(kind) as caught:
        machine.converge(replace(NVIDIA, default=True))
    assert str(caught.value) == message
    assert {path: machine.text(path) for path in files} == dict(files)
    assert machine.host.files.names("/run/gpufleet") == ()
    assert machine.text(DROP_IN) is None


def test_a_setting_that_containerd_ignores_in_silence_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {MAIN: DEBIAN}, (1, 6, 20))
    with pytest.raises(Refused) as caught:
        machine.converge(replace(NVIDIA, cdi=True))
    assert str(caught.value) == (
        "Cannot validate the new configuration of containerd on cdi: containerd config dump reports something else "
        "than the files (found false, wanted true). This version reads them differently, or does not know the setting."
    )
    assert machine.text() == DEBIAN


# --- Other products


@pytest.mark.parametrize("product", ["k3s", "rke2"])
@pytest.mark.parametrize(
    ("name", "plugin", "generated", "template"),
    [
        ("config.toml.tmpl", V2, GENERATED_2, None),
        ("config-v3.toml.tmpl", V3, GENERATED_3, None),
        ("config-v3.toml.tmpl", V3, GENERATED_3, '{{ template "base" . }}\n# mine\n'),
        ("config.toml.tmpl", V2, GENERATED_2, FULL_TEMPLATE),
        ("config.toml.tmpl", V2, GENERATED_2, FULL_TEMPLATE.replace("\n", "\r\n")),
    ],
)
def test_a_template_gets_a_block_and_keeps_its_actions(
    tmp_path: Path, product: str, name: str, plugin: str, generated: str, template: Optional[str]
) -> None:
    folder = RANCHER.format(product)
    path = f"{folder}/{name}"
    files = {f"{folder}/config.toml": generated, **({path: template} if template is not None else {})}
    machine = Machine(tmp_path, files, NEW)
    wanted = WantedEngine(CONTAINERD, True, "fast", "/opt/fast", systemd_cgroup=True)
    assert machine.configuration.installation.flavour == product

    machine.converge(wanted)

    text = template if template is not None else '{{ template "base" . }}\n'
    block = f"\n{BEGIN}{runtime_text(chr(34) + plugin + chr(34), 'fast', '/opt/fast', 'true')}{END}"
    assert machine.text(path) == text + (block.replace("\n", "\r\n") if "\r" in text else block)
    assert machine.converge(wanted) == ()
    assert machine.text(f"{folder}/config.toml") == generated
    machine.restore({SettingName(RUNTIME, "fast"): None, SettingName(SYSTEMD_CGROUP, "fast"): None})
    assert machine.text(path) == template


def test_what_k3s_finds_itself_is_right_without_a_template_and_is_not_written_twice(tmp_path: Path) -> None:
    folder = RANCHER.format("k3s")
    machine = Machine(tmp_path, {f"{folder}/config.toml": GENERATED_3}, NEW)
    assert machine.converge(replace(NVIDIA, systemd_cgroup=True)) == ()
    with pytest.raises(OwnedByAnother, match="Give the runtime another name"):
        machine.converge(replace(NVIDIA, runtime_path="/opt/other"))
    with pytest.raises(OwnedByAnother, match="Set default-runtime"):
        machine.converge(replace(NVIDIA, default=True))
    assert machine.text(f"{folder}/config-v3.toml.tmpl") is None


def test_k3s_that_imports_drop_ins_gets_one_and_nothing_else(tmp_path: Path) -> None:
    folder = RANCHER.format("k3s")
    imports = f'imports = ["{folder}/config-v3.toml.d/*.toml"]\n'
    machine = Machine(tmp_path, {f"{folder}/config.toml": imports + GENERATED_3}, None)
    edits = machine.converge(replace(NVIDIA, default=True, systemd_cgroup=True))
    assert [edit.path for edit in edits] == [f"{folder}/config-v3.toml.d/99-gpufleet.toml"]
    assert machine.converge(replace(NVIDIA, default=True, systemd_cgroup=True)) == ()
    machine.restore({OUR_RUNTIME: None, OUR_CGROUP: None, DEFAULT_RUNTIME: None})
    assert machine.text(f"{folder}/config-v3.toml.d/99-gpufleet.toml") is None


def test_k0s_gets_a_drop_in_that_it_merges_itself(tmp_path: Path) -> None:
    main = '# k0s_managed=true\nversion = 2\nimports = ["/run/k0s/containerd-cri.toml"]\n'
    machine = Machine(tmp_path, {"/etc/k0s/containerd.toml": main}, None)
    edits = machine.converge(replace(NVIDIA, default=True))
    assert [edit.path for edit in edits] == ["/etc/k0s/containerd.d/99-gpufleet.toml"]
    assert (machine.text("/etc/k0s/containerd.d/99-gpufleet.toml") or "").startswith(f"{HEADER}version = 2\n")
    assert machine.converge(replace(NVIDIA, default=True)) == ()


def test_microk8s_gets_a_block_in_its_template(tmp_path: Path) -> None:
    path = "/var/snap/microk8s/current/args/containerd-template.toml"
    text = KUBEADM.replace('"overlayfs"', '"${SNAPSHOTTER}"')
    machine = Machine(tmp_path, {path: text}, None)
    machine.converge()
    assert machine.text(path) == f"{text}\n{BEGIN}{runtime_text(systemd='true')}{END}"
    machine.restore({OUR_RUNTIME: None, OUR_CGROUP: None})
    assert machine.text(path) == text


def test_an_action_of_a_template_is_not_lost_wherever_it_is() -> None:
    masked, actions = containerd_template.mask(FULL_TEMPLATE)
    assert "{{" not in masked
    assert parse(masked).data["version"] == 2
    assert containerd_template.unmask(masked, actions) == FULL_TEMPLATE


# --- The daemon


def started(machine: Machine, root: Path, seconds: int) -> None:
    """A daemon that made its socket so long after the files of the configuration."""
    files = machine.host.files
    for path, text in {
        SOCKET: "",
        "/sys/fs/cgroup/system.slice/containerd.service/cgroup.procs": "7\n8\n",
        "/proc/7/comm": "containerd-shim\n",
        "/proc/8/comm": "containerd\n",
    }.items():
        files.replace(path, text)
    os.utime(root / SOCKET.lstrip("/"), ns=(0, files.modified(MAIN) + seconds * 10**9))


def test_a_daemon_has_what_the_files_say_until_one_is_newer_than_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {MAIN: KUBEADM}, NEW)
    started(machine, tmp_path, 5)
    for task in ("k8s.io/a", "k8s.io/b", "moby/c"):
        (tmp_path / "run/containerd/io.containerd.runtime.v2.task" / task).mkdir(parents=True)
    running = KIND.running(machine.host, machine.configuration)
    assert running is not None
    assert (running.stale, running.containers, running.settings[DEFAULT_RUNTIME]) == ("", 3, "runc")

    started(machine, tmp_path, -5)

    running = KIND.running(machine.host, machine.configuration)
    assert running is not None
    assert (running.stale, running.settings) == (MAIN, {})


def test_a_drop_in_that_went_is_seen_by_its_folder(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {MAIN: KUBEADM, f"{FOLDER}/gone.toml": ""}, NEW)
    started(machine, tmp_path, 5)
    (tmp_path / FOLDER.lstrip("/") / "gone.toml").unlink()
    os.utime(tmp_path / FOLDER.lstrip("/"), ns=(0, machine.host.files.modified(SOCKET) + 1))
    running = KIND.running(machine.host, machine.configuration)
    assert running is not None
    assert running.stale == FOLDER


def test_a_socket_that_a_killed_daemon_left_is_no_daemon(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {MAIN: KUBEADM}, NEW)
    started(machine, tmp_path, 5)
    machine.host.files.replace("/sys/fs/cgroup/system.slice/containerd.service/cgroup.procs", "7\n")
    assert KIND.running(machine.host, machine.configuration) is None


def test_every_change_takes_a_restart_and_what_means_the_same_takes_nothing() -> None:
    assert KIND.required_action({}, {OUR_RUNTIME: PROGRAM}).action == RESTART
    assert KIND.required_action({CDI: True}, {CDI: False}).action == RESTART
    assert KIND.required_action({DEFAULT_RUNTIME: "runc"}, {DEFAULT_RUNTIME: None}).action == NOTHING
    assert KIND.required_action({OUR_RUNTIME: PROGRAM}, {OUR_RUNTIME: PROGRAM}).action == NOTHING


def test_a_pattern_means_what_it_means_to_containerd() -> None:
    for pattern, path, expected in [
        ("/a/*.toml", "/a/b.toml", True),
        ("/a/*.toml", "/a/.b.toml", True),
        ("/a/*.toml", "/a/b/c.toml", False),
        ("/a/b?.toml", "/a/b1.toml", True),
        ("/*/b.toml", "/a/b.toml", True),
        ("/a/[^b].toml", "/a/b.toml", False),
        ("/a/b.toml", "/a/b.toml", True),
    ]:
        assert matches(pattern, path) is expected, pattern


# --- The real program

# Another version than the one of the machine may be named.
REAL = os.environ.get("GPUFLEET_TEST_CONTAINERD") or shutil.which("containerd")


@pytest.mark.skipif(REAL is None, reason="needs a containerd")
@pytest.mark.parametrize("name", [name for name in CORPUS if "long" not in name])
def test_the_real_program_reads_what_we_write_as_we_do(tmp_path: Path, name: str) -> None:
    _version, files = CORPUS[name]
    machine = Machine(tmp_path, files, None)

    scratch = check.FOLDER

    def run(argv: Sequence[str]) -> Completed:
        for copy in (tmp_path / scratch.lstrip("/")).glob("*.toml"):
            copy.write_bytes(copy.read_bytes().replace(scratch.encode(), f"{tmp_path}{scratch}".encode()))
        words = [f"{tmp_path}{word}" if word.startswith(scratch) else word for word in argv[1:]]
        done = subprocess.run([str(REAL), *words], capture_output=True, text=True, check=False, timeout=30)
        return Completed(done.returncode, done.stdout, done.stderr)

    machine.host.commands.programs["containerd"] = run
    installation = machine.configuration.installation
    if check.version(machine.host, installation.program) < (2,) and "version = 3" in files.get(MAIN, ""):
        pytest.skip("1.x knows no version 3")
    try:
        KIND.check(machine.host, installation, (Edit(MAIN, files.get(MAIN), files.get(MAIN, "version = 2\n")),))
    except GpuFleetError as error:
        pytest.skip(f"this containerd does not take it as it is: {error}")
    try:
        edits = machine.converge(replace(NVIDIA, default=True))
    except OwnedByAnother as error:
        pytest.skip(str(error))
    assert edits or name == "ours by another hand"
