# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Profiles: what they say is right on every machine of their kind, and what is wrong with one is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional, Sequence, Tuple

import pytest
import yaml

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils._node.order import RegisteredConcern
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.plugin_utils.declarations import declaration_of, declaring
from ansible_collections.gpufleet.node.plugins.plugin_utils.profiles import (
    ProfileError,
    asked,
    faults,
    names,
    value_of,
    variables_of,
)
from ansible_collections.gpufleet.node.tests.unit.node.facts_machine import MACHINES, Trees, gpu_host, quiet_host
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import MakeMachine

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = variables_of(entry.name for entry in REGISTRY)
# What the role adds to these comes from the controller and not from a variable.
OF_THE_CONTROLLER = ("node_tools", "nvml")
GPU_CONCERNS = ("nvidia_persistence", "gpu_slices", "mig_layout", "gpu_settings")
# Its GPU is an L40S.
WITHOUT_MIG = "single-socket"
WITH_GPUS = {tree: kind for tree, kind in MACHINES.items() if kind}


def declarations(profile: str) -> Dict[str, Dict[str, Any]]:
    """What the roles declare of a host that has a profile and says nothing else."""
    found: Dict[str, Dict[str, Any]] = {}
    for entry in REGISTRY:
        variables = {option: f"{entry.name}_{option}" for option in ("state", *entry.concern.options)}
        found[entry.name] = {
            option: value_of(profile, name, OPTIONS[name].get("default"))
            for option, name in variables.items()
            if name in OPTIONS
        }
    return {name: found[name] for name in declaring(found) if name not in OF_THE_CONTROLLER}


@pytest.mark.once
@pytest.mark.parametrize("profile", ["", *names()])
@pytest.mark.parametrize("entry", REGISTRY, ids=lambda entry: str(entry.name))
def test_a_role_by_itself_declares_what_the_look_does(entry: RegisteredConcern, profile: str) -> None:
    role = ROOT / "roles" / entry.name
    (variable,) = yaml.safe_load((role / "vars" / "main.yml").read_text()).items()
    assert variable[1] == f"{{{{ lookup('gpufleet.node.declaration', '{entry.name}') }}}}"
    tasks = yaml.safe_load((role / "tasks" / "main.yml").read_text())
    (arguments,) = (task[f"gpufleet.node.{entry.name}"] for task in tasks if f"gpufleet.node.{entry.name}" in task)
    # Beside the role its defaults are variables of the host, and ask the profile themselves.
    loader = DataLoader()
    defaults = loader.load_from_file(str(role / "defaults" / "main.yml"), trusted_as_template=True)
    template = Templar(loader=loader, variables={"gpufleet_profile": profile}).template
    alone = declaration_of(entry.name, {"gpufleet_profile": profile, **defaults}, template)
    looked_at = declaration_of(entry.name, {"gpufleet_profile": profile}, template)
    assert alone == looked_at
    given = {name: text for name, text in arguments.items() if variable[0] in text}
    assert given == {name: f"{{{{ {variable[0]}.{name} }}}}" for name in given}
    # What the controller finds out is no variable.
    assert {name for name in looked_at if f"{entry.name}_{name}" in OPTIONS} <= given.keys()


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    return Trees(tmp_path_factory.mktemp("trees"))


@pytest.mark.once
@pytest.mark.parametrize("tree", WITH_GPUS)
def test_nothing_of_a_profile_is_refused_on_a_machine_with_gpus(
    tree: str, gpu_machine: MakeMachine, trees: Trees
) -> None:
    host = gpu_host(gpu_machine, trees(tree), WITH_GPUS[tree]).host
    looks = {profile: assess_node(declarations(profile), host, validate=validated, full=False) for profile in names()}
    assert {profile: look["unknown"] for profile, look in looks.items()} == {profile: [] for profile in names()}
    # Tenants that shall be kept apart are not left together on a GPU that cannot do it.
    apart = ["mig_layout"] if tree == WITHOUT_MIG else []
    invalid = {profile: look["invalid"] for profile, look in looks.items()}
    assert invalid == {profile: apart if profile == "shared" else [] for profile in names()}


@pytest.mark.parametrize("kind", ["a30-4", "gb200-4"])
def test_the_gpus_of_tenants_can_be_divided_whatever_their_model(kind: str, gpu_machine: MakeMachine) -> None:
    gpus = {name: declarations("shared")[name] for name in ("nvidia_persistence", "mig_layout", "gpu_settings")}
    look = assess_node(gpus, gpu_machine(kind).host, validate=validated, full=True)
    assert look["unknown"] == look["invalid"] == []
    divided = [row["wanted"] for row in look["concerns"]["mig_layout"]["settings"] if row["setting"] == "instances"]
    assert len(divided) == 4
    assert all("2g." in wanted and "1g." in wanted for wanted in divided)


@pytest.mark.parametrize(("tree", "asking"), [("vm-without-numa", GPU_CONCERNS), ("rhel9-bls", ())])
def test_without_a_driver_only_a_gpu_that_is_there_differs(tree: str, asking: Sequence[str], trees: Trees) -> None:
    host = quiet_host(trees(tree))
    for profile in names():
        declared = declarations(profile)
        look = assess_node(declared, host, validate=validated, full=True)
        assert look["unknown"] == [], profile
        lacking = [
            name
            for name, found in look["concerns"].items()
            if any(row["setting"] == "driver" for row in found["settings"])
        ]
        assert lacking == [name for name in asking if name in declared], profile


def test_the_profiles_are_those_that_are_documented_and_nothing_is_wrong_with_them() -> None:
    assert names() == ["benchmark", "inference", "shared", "timesliced", "training", "virtualization"]
    assert {profile: list(faults(profile, OPTIONS)) for profile in names()} == {profile: [] for profile in names()}


def test_a_profile_takes_the_place_of_a_default_and_nothing_else_does() -> None:
    assert value_of("training", "kernel_modules_block", []) == ["nouveau"]
    assert value_of("training", "hugepages_strict", False) is False
    for none in ("", None):
        assert value_of(none, "kernel_modules_block", ["a"]) == ["a"]


WRONG: Dict[str, Tuple[str, str]] = {
    "a typo": ("kernel_modules_lod: []", "no concern has such a variable. Did you mean kernel_modules_load?"),
    "the variable of a playbook": ("gpufleet_batches: [1]", "no concern has such a variable."),
    "a word for true or false": (
        "hugepages_strict: perhaps",
        "it is perhaps, and must be true or false.",
    ),
    "no choice": ("hugepages_on_shortage: never", "it is never, and must be one of fail, reboot."),
    "a text for a list of mappings": ("hugepages_pools: 2M", "it is ['2M'], and must be a list."),
    "a typo in an entry": (
        "hugepages_pools: [{size: 2M, pags: 3}]",
        "unsupported option hugepages_pools.pags. Supported parameters include: pages, per_node, size.",
    ),
    "a wrong value in an entry": (
        "gpu_settings_gpus: [{ecc: maybe}]",
        "value of ecc must be one of: enabled, disabled, default, got: maybe found in gpu_settings_gpus.",
    ),
    "a template": (
        "mig_layout_gpus: [{layout: '{{ layout }}'}]",
        "a profile holds values, and no templates. Set it in the inventory.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_in_a_profile_is_said_with_file_variable_and_what_is_right(name: str, tmp_path: Path) -> None:
    text, cause = WRONG[name]
    file = tmp_path / "own.yml"
    file.write_text(f"kernel_modules_block: [nouveau]\n{text}\n")
    variable = text.partition(":")[0]
    assert list(faults(str(file), OPTIONS)) == [(f"{variable} in the profile {file}", cause)]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (None, "No such file or directory. Name a file on the controller."),
        ("- a\n", "it is not a mapping. Write a line for each variable, such as kernel_modules_block: [nouveau]."),
        ("", "it is not a mapping. Write a line for each variable, such as kernel_modules_block: [nouveau]."),
        ("a: [", "it is not valid YAML: "),
    ],
)
def test_a_file_that_is_no_profile_is_refused(text: Optional[str], cause: str, tmp_path: Path) -> None:
    file = tmp_path / "own.yml"
    if text is not None:
        file.write_text(text)
    ((what, found),) = faults(str(file), OPTIONS)
    assert what == f"the profile {file}"
    assert found.startswith(cause)
    with pytest.raises(ProfileError, match=f"^Cannot use the profile {file}: "):
        value_of(str(file), "kernel_modules_load", [])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("trainig", "Did you mean training?"),
        ("gaming", "The profiles are benchmark, inference, shared, timesliced, training, virtualization."),
        ("../training", "Did you mean training?"),
    ],
)
def test_a_profile_that_is_not_there_is_refused_with_those_that_are(name: str, hint: str) -> None:
    cause = f"there is no such profile. {hint} One of your own is named by its absolute path."
    assert list(faults(name, OPTIONS)) == [(f"the profile {name}", cause)]


def test_only_the_default_of_a_role_is_taken_for_one() -> None:
    default = yaml.safe_load((ROOT / "roles" / "hugepages" / "defaults" / "main.yml").read_text())["hugepages_pools"]
    assert asked(default) == ("hugepages_pools", [])
    for value in (True, None, [], "always", "{{ gpufleet_profile }}", default.replace("default('')", "default('x')")):
        assert asked(value) is None
