# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd: what pods get from the default runtime they get from ours as well, in the forms that files have."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, GpuFleetError, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime import spec
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.containerd.containerd import KIND
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.containerd.keys import (
    KEYS,
    settings_of,
    wrong_kind,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.entries import OF_CONTAINERD
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    RUNTIME,
    SYSTEMD_CGROUP,
    SettingName,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.containerd_machine import (
    DROP_IN,
    EKS,
    MAIN,
    NEW,
    NVIDIA,
    OLD,
    OUR_CGROUP,
    PROGRAM,
    V2,
    V3,
    Machine,
    runtime_text,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

pytestmark = pytest.mark.once

OLDEST = (1, 6, 20)
VERSIONS = {"1.6": (OLDEST, V2, 2), "1.7": (OLD, V2, 2), "2.1": (NEW, V3, 3), "2.1, version 2": (NEW, V2, 2)}
SPEC = "/etc/containerd/base-runtime-spec.json"

# Every key with a value that is not what containerd has anyway.
VALUES: Mapping[str, Any] = {
    "base_runtime_spec": SPEC,
    "privileged_without_host_devices": True,
    "privileged_without_host_devices_all_devices_allowed": True,
    "cgroup_writable": True,
    "pod_annotations": ["io.example.*", "one"],
    "container_annotations": ["cdi.k8s.io/*"],
    "cni_conf_dir": "/etc/cni/gpu.d",
    "cni_max_conf_num": 2,
    "snapshotter": "devmapper",
    "sandboxer": "podsandbox",
    "io_type": "streaming",
    "runc_root": "/run/runc",
    "no_pivot_root": True,
    "no_new_keyring": True,
    "shim_cgroup": "/shims",
    "io_uid": 7,
    "io_gid": 8,
    "criu_path": "/opt/criu",
    "criu_image_path": "/srv/criu",
    "criu_work_path": "/srv/work",
}


def main_text(plugin: str, version: int, keys: Mapping[str, Any], *, name: str = "runc", typed: bool = True) -> str:
    """A main file with these keys, by option, in the table of a runtime that is the default one."""
    tables: Dict[str, List[str]] = {"": ['runtime_type = "io.containerd.runc.v2"'] if typed else [], "options": []}
    for option, value in keys.items():
        *way, key = KEYS[option][0]
        tables["".join(way)].append(f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}")
    head = f'[plugins."{plugin}".containerd.runtimes.{name}'
    return f"version = {version}\n[plugins.\"{plugin}\".containerd]\ndefault_runtime_name = '{name}'\n" + "\n".join(
        [f"{head}]", *tables[""], f"{head}.options]", *tables["options"], ""]
    )


def outcome_of(host: FakeHost, declared: Mapping[str, Any], *, check_mode: bool = False) -> Outcome:
    outcome = converge(CONCERN, declared, host, check_mode=check_mode)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def table_of(machine: Machine, name: str = "nvidia") -> Dict[str, Any]:
    found: Dict[str, Any] = machine.means()["containerd"]["runtimes"][name]
    return found


def in_effect(machine: Machine, name: str = "nvidia") -> Dict[str, Any]:
    """The keys of a runtime by option, as containerd says it."""
    return {setting.kind: value for setting, value in settings_of(name, table_of(machine, name))}


# --- The short form


@pytest.mark.parametrize("program", [NEW, None], ids=["2.1", "no program"])
@pytest.mark.parametrize(("plugin", "version"), [(V3, 3), (V2, 2)])
def test_runc_without_a_type_is_the_runc_of_2_x_with_its_control_groups(
    tmp_path: Path, program: Optional[Tuple[int, ...]], plugin: str, version: int
) -> None:
    text = f"version = {version}\n[plugins.'{plugin}'.containerd.runtimes.runc.options]\nSystemdCgroup = true\n"
    machine = Machine(tmp_path, {MAIN: text}, program)
    assert machine.configuration.settings[SettingName(RUNTIME, "runc")] == "io.containerd.runc.v2"
    assert machine.configuration.settings[SettingName(SYSTEMD_CGROUP, "runc")] is True
    machine.converge()
    assert machine.configuration.settings[OUR_CGROUP] is True
    assert machine.converge() == ()
    if program:
        assert table_of(machine, "runc")["options"]["SystemdCgroup"] is True
        assert table_of(machine)["options"] == {"BinaryName": PROGRAM, "SystemdCgroup": True}


def test_the_short_form_works_where_k0s_merges_it_and_nobody_can_be_asked(tmp_path: Path) -> None:
    main = f"# k0s_managed=true\nversion = 3\n[plugins.'{V3}'.containerd.runtimes.runc.options]\nSystemdCgroup = true\n"
    machine = Machine(tmp_path, {"/etc/k0s/containerd.toml": main}, None)
    machine.converge()
    assert "SystemdCgroup = true" in (machine.text("/etc/k0s/containerd.d/99-gpufleet.toml") or "")


def test_the_short_form_in_a_drop_in_of_k0s_counts_as_well(tmp_path: Path) -> None:
    files = {
        "/etc/k0s/containerd.toml": "# k0s_managed=true\nversion = 3\n",
        "/etc/k0s/containerd.d/cgroup.toml": (
            f"version = 3\n[plugins.'{V3}'.containerd.runtimes.runc.options]\nSystemdCgroup = true\n"
        ),
    }
    machine = Machine(tmp_path, files, None)
    assert KIND.wanted(NVIDIA, machine.configuration)[OUR_CGROUP] is True


def test_1_x_has_no_type_for_a_runc_without_one(tmp_path: Path) -> None:
    text = f'version = 2\n[plugins."{V2}".containerd.runtimes.runc.options]\nSystemdCgroup = true\n'
    machine = Machine(tmp_path, {MAIN: text}, OLD)
    assert machine.configuration.settings[SettingName(RUNTIME, "runc")] == ""


def test_check_mode_predicts_what_the_short_form_gets(tmp_path: Path) -> None:
    text = f"version = 3\n[plugins.'{V3}'.containerd.runtimes.runc.options]\nSystemdCgroup = true\n"
    machine = Machine(tmp_path, {MAIN: text, PROGRAM: ""}, NEW)
    (tmp_path / PROGRAM[1:]).chmod(0o755)
    declared = validated(CONCERN, {"engines": [{"engine": "containerd"}]})
    predicted = outcome_of(machine.host, declared, check_mode=True)
    done = outcome_of(machine.host, declared)
    assert predicted.changes == done.changes
    assert ("systemd_cgroup nvidia", "true") in [(change.setting, change.after) for change in done.changes]
    again = outcome_of(machine.host, declared)
    assert again.changes == ()


# --- The keys of the default runtime


@pytest.mark.parametrize("name", list(VERSIONS))
def test_pods_of_eks_keep_the_limits_of_their_base_specification(tmp_path: Path, name: str) -> None:
    version, plugin, number = VERSIONS[name]
    text = EKS.format(version=number, plugin=plugin)
    machine = Machine(tmp_path, {MAIN: text}, version)
    machine.converge(replace(NVIDIA, default=True))
    assert table_of(machine)["base_runtime_spec"] == SPEC
    assert table_of(machine)["options"]["SystemdCgroup"] is True
    assert machine.configuration.settings[SettingName("base_runtime_spec", "nvidia")] == SPEC
    assert machine.converge(replace(NVIDIA, default=True)) == ()


@pytest.mark.parametrize("name", list(VERSIONS))
def test_absent_restores_the_configuration_of_eks_also_where_somebody_edited_it_since(
    tmp_path: Path, name: str
) -> None:
    version, plugin, number = VERSIONS[name]
    text = EKS.format(version=number, plugin=plugin)
    machine = Machine(tmp_path, {MAIN: text, PROGRAM: "", "/var/lib/.keep": ""}, version)
    (tmp_path / PROGRAM[1:]).chmod(0o755)
    declared = validated(CONCERN, {"engines": [{"engine": "containerd", "default": True}]})
    gone = validated(CONCERN, {"state": "absent"})
    outcome_of(machine.host, declared)
    outcome_of(machine.host, gone)
    assert machine.text() == text
    outcome_of(machine.host, declared)
    assert table_of(machine)["base_runtime_spec"] == SPEC
    machine.host.files.replace(MAIN, f"# edited\n{machine.text()}")
    outcome_of(machine.host, gone)
    assert machine.text() == f"# edited\n{text}"
    assert machine.text(DROP_IN) is None


@pytest.mark.parametrize(
    ("name", "option"),
    [
        (name, option)
        for option, (_way, kind) in KEYS.items()
        for name in ("1.7", "2.1")
        if kind in (bool, int) and (name, option) != ("1.7", "cgroup_writable")
    ],
)
def test_what_a_file_says_of_a_key_is_shown_also_where_containerd_would_do_the_same_without_it(
    tmp_path: Path, name: str, option: str
) -> None:
    version, plugin, number = VERSIONS[name]
    kind = KEYS[option][1]
    needed = {"privileged_without_host_devices": True} if option.endswith("allowed") else {}
    way = KEYS[option][0]
    lines = "".join(f"{key} = true\n" for key in needed) + f"{way[-1]} = {str(kind()).lower()}\n"
    ours = runtime_text(f'"{plugin}"')
    ours = f"{ours}{lines}" if len(way) > 1 else ours.replace("\n\n", f"\n{lines}\n")
    machine = Machine(tmp_path, {MAIN: main_text(plugin, number, {}) + ours, PROGRAM: ""}, version)
    (tmp_path / PROGRAM[1:]).chmod(0o755)

    def changes(**declared: Any) -> List[Tuple[str, Any]]:
        params = validated(CONCERN, {"engines": [{"engine": "containerd", **needed, **declared}]})
        outcome = outcome_of(machine.host, params, check_mode=True)
        return [(one.scope, one.before) for one in outcome.changes if one.setting == f"{option} nvidia"]

    # What means the same as the file is in sync with it.
    assert changes() == changes(**{option: kind()}) == []
    shown = "false" if kind is bool else 0
    assert changes(**{option: VALUES[option]}) == [("boot", shown), ("effective", shown)]
    declared = validated(CONCERN, {"engines": [{"engine": "containerd", **needed, option: VALUES[option]}]})
    outcome_of(machine.host, declared)
    assert machine.configuration.settings[SettingName(option, "nvidia")] == VALUES[option]
    # Edited since, so that the values come back one by one.
    machine.host.files.replace(MAIN, f"# edited\n{machine.text()}")
    outcome_of(machine.host, validated(CONCERN, {"state": "absent"}))
    assert machine.configuration.settings[SettingName(option, "nvidia")] == kind()


@pytest.mark.parametrize("option", list(KEYS))
@pytest.mark.parametrize("name", ["1.7", "2.1"])
def test_every_key_of_the_default_runtime_is_copied_and_what_is_declared_counts_more(
    tmp_path: Path, name: str, option: str
) -> None:
    version, plugin, number = VERSIONS[name]
    keys = {
        key: value for key, value in VALUES.items() if key == option or ("privileged" in option and "privileged" in key)
    }
    machine = Machine(tmp_path, {MAIN: main_text(plugin, number, keys)}, version)
    machine.converge()
    assert in_effect(machine) == in_effect(machine, "runc")
    assert option in in_effect(machine) or version == OLD
    assert machine.converge() == ()

    nothing = type(VALUES[option])()
    if option == "privileged_without_host_devices":
        # What needs it goes with it.
        assert machine.converge(replace(NVIDIA, options={option: nothing}))
        assert in_effect(machine) == {}
    else:
        machine.converge(replace(NVIDIA, options={option: nothing}))
        assert option not in in_effect(machine)
    assert machine.converge(replace(NVIDIA, options={option: nothing})) == ()
    assert KEYS[option][0][-1] in (machine.text() or "")


@pytest.mark.parametrize("name", list(VERSIONS))
def test_all_keys_at_once_are_copied_from_a_default_runtime_that_is_not_runc(tmp_path: Path, name: str) -> None:
    version, plugin, number = VERSIONS[name]
    text = main_text(plugin, number, VALUES, name="crun")
    text += f'[plugins."{plugin}".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
    machine = Machine(tmp_path, {MAIN: text}, version)
    machine.converge(replace(NVIDIA, default=True))
    assert in_effect(machine) == in_effect(machine, "crun") != {}
    # The name of the default runtime was overwritten in its place by 1.x.
    assert machine.converge(replace(NVIDIA, default=True)) == ()


@pytest.mark.parametrize("name", list(VERSIONS))
def test_a_key_of_the_default_runtime_that_changes_later_is_drift_and_so_is_one_that_goes(
    tmp_path: Path, name: str
) -> None:
    version, plugin, number = VERSIONS[name]
    machine = Machine(tmp_path, {MAIN: EKS.format(version=number, plugin=plugin)}, version)
    machine.converge()
    cni = f'\n\n[plugins."{plugin}".cni]'
    for before, after in [
        ("base-runtime-spec.json", "other.json"),
        (f"SystemdCgroup = true{cni}", f"SystemdCgroup = false{cni}"),
        ('base_runtime_spec = "/etc/containerd/other.json"\n\n', "\n"),
    ]:
        text = machine.text() or ""
        assert before in text
        machine.host.files.replace(MAIN, text.replace(before, after, 1))
        wanted = KIND.wanted(NVIDIA, machine.configuration)
        assert {name: machine.configuration.settings.get(name) for name in wanted} != wanted
        machine.converge()
        assert in_effect(machine) == in_effect(machine, "runc")
        assert table_of(machine)["options"]["SystemdCgroup"] == table_of(machine, "runc")["options"]["SystemdCgroup"]
    assert "base_runtime_spec" not in table_of(machine)


@pytest.mark.parametrize("name", ["1.7", "2.1"])
def test_a_runtime_that_another_hand_wrote_keeps_its_keys(tmp_path: Path, name: str) -> None:
    version, plugin, number = VERSIONS[name]
    theirs = runtime_text(f'"{plugin}"', systemd="true")
    machine = Machine(tmp_path, {MAIN: EKS.format(version=number, plugin=plugin) + theirs}, version)
    assert machine.converge() == ()
    machine.converge(replace(NVIDIA, options={"base_runtime_spec": SPEC}))
    assert in_effect(machine) == {"base_runtime_spec": SPEC}


def test_the_keys_of_kata_are_not_those_of_a_runc(tmp_path: Path) -> None:
    text = main_text(V3, 3, {"snapshotter": "devmapper"}, name="kata").replace("runc.v2", "kata.v2")
    text += f"[plugins.'{V3}'.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n"
    text += "container_annotations = ['cdi.k8s.io/*']\n"
    machine = Machine(tmp_path, {MAIN: text}, NEW)
    machine.converge()
    assert in_effect(machine) == {"container_annotations": "cdi.k8s.io/*"}


def test_a_key_that_this_containerd_ignores_is_refused_where_it_is_declared_and_no_matter_where_it_is_copied(
    tmp_path: Path,
) -> None:
    text = main_text(V2, 2, {"snapshotter": "devmapper"})
    machine = Machine(tmp_path / "copied", {MAIN: text}, OLDEST)
    machine.converge()
    assert "snapshotter" not in table_of(machine)
    other = Machine(tmp_path / "declared", {MAIN: main_text(V2, 2, {})}, OLDEST)
    with pytest.raises(Refused) as caught:
        other.converge(replace(NVIDIA, options={"snapshotter": "devmapper"}))
    assert str(caught.value) == (
        "Cannot validate the new configuration of containerd on snapshotter nvidia: containerd config dump reports "
        "something else than the files (wanted devmapper). This version reads them differently, or does not know the "
        "setting."
    )


@pytest.mark.parametrize("option", list(KEYS))
def test_a_key_of_another_kind_is_refused_as_containerd_would(tmp_path: Path, option: str) -> None:
    path, kind = KEYS[option]
    wrong = "1" if kind is str else "'1'"
    head = ".".join(["containerd.runtimes.runc", *path])
    machine = Machine(tmp_path, {MAIN: f'version = 2\nplugins."{V2}".{head} = {wrong}\n'}, OLD)
    with pytest.raises(
        CannotLook, match=rf"{path[-1]} is (not a string|neither true nor false|not a number|not a list of strings)"
    ):
        machine.converge()
    assert wrong_kind(int, True)


def test_every_option_has_a_value_in_these_tests() -> None:
    assert VALUES.keys() == KEYS.keys() == OF_CONTAINERD.keys()


READ = "Cannot use engines[0] (containerd)"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"base_runtime_spec": "base.json"}, f"{READ}: base_runtime_spec is base.json, and must be an absolute path."),
        ({"runc_root": "run/runc"}, f"{READ}: runc_root is run/runc, and must be an absolute path."),
        (
            {"shim_cgroup": "/a\nb"},
            f"{READ}: shim_cgroup is '/a\\nb', and must have no control character.",
        ),
        ({"io_uid": -1}, f"{READ}: io_uid is -1, and must be a number from 0 to 4294967295."),
        (
            {"cni_max_conf_num": 1 << 40},
            f"{READ}: cni_max_conf_num is 1099511627776, and must be a number from 0 to 2147483647.",
        ),
        (
            {"pod_annotations": ["a b"]},
            f"{READ}: in pod_annotations 'a b' is not the key of an annotation. Write one per item.",
        ),
        (
            {
                "privileged_without_host_devices_all_devices_allowed": True,
                "privileged_without_host_devices": False,
            },
            f"{READ}: privileged_without_host_devices_all_devices_allowed is true and privileged_without_host_devices "
            "is false. Containerd would not start with that.",
        ),
        ({"engine": "docker", "snapshotter": "x"}, None),
        (
            {"state": "absent", "snapshotter": "x"},
            f"{READ}: snapshotter is set, but the runtime is absent. Leave snapshotter out.",
        ),
    ],
)
def test_what_no_containerd_could_have_is_refused(given: Mapping[str, Any], message: Optional[str]) -> None:
    declared = validated(CONCERN, {"engines": [{"engine": "containerd", **given}]})
    with pytest.raises(GpuFleetError) as caught:
        spec.parse(declared)
    docker = "Cannot use engines[0] (docker): snapshotter is an option of containerd. Leave it out."
    assert str(caught.value) == (message or docker)


def test_a_base_specification_that_is_not_there_is_refused_before_anything_changes(tmp_path: Path) -> None:
    text = EKS.format(version=3, plugin=V3)
    machine = Machine(tmp_path, {MAIN: text, PROGRAM: ""}, NEW)
    (tmp_path / PROGRAM[1:]).chmod(0o755)
    declared = validated(CONCERN, {"engines": [{"engine": "containerd", "base_runtime_spec": "/etc/no.json"}]})
    with pytest.raises(GpuFleetError) as caught:
        outcome_of(machine.host, declared, check_mode=True)
    assert str(caught.value) == (
        "Cannot set base_runtime_spec in containerd in /etc/no.json: it does not exist. Correct "
        "base_runtime_spec, or put the file there first."
    )
    assert machine.text() == text
