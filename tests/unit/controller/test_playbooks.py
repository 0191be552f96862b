# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbooks take: that their specification is theirs, and that it refuses what is wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

import pytest
import yaml

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible_collections.gpufleet.node.plugins.action.validate_run import OF_THE_PLAYBOOKS
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.plugin_utils.playbooks import (
    BEFORE_HOSTS,
    DESTINATIONS,
    HEADERS,
    PROCEDURES,
    cause_against,
    limits_of,
    options_of,
    parse_list,
    specifications,
)
from jinja2 import Environment, nodes

ROOT = Path(__file__).resolve().parents[3]
SPECIFICATIONS = specifications()
PATHS = {path.stem: path for path in (ROOT / "playbooks").glob("*.yml")}
PLAYBOOKS = sorted(PATHS)
PREFIXES = ("gpufleet_", *(f"{name}_" for name in PLAYBOOKS))
# What the action of the look takes from the variables of a host.
READ_BY_THE_LOOK = {"gpufleet_concerns", "gpufleet_skip", "gpufleet_detail", "gpufleet_no_diff"}
# Each playbook asks nodes, some of them in a role.
READ_BY_ALL = {"gpufleet_look_by"}


def texts(value: Any, key: str = "") -> Iterator[str]:
    """The templates in a document; what a task says when, until or failed_when is one without braces."""
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from texts(entry, name)
    elif isinstance(value, list):
        for entry in value:
            yield from texts(entry, key)
    elif isinstance(value, str):
        yield f"{{{{ {value} }}}}" if key in ("when", "until", "failed_when", "that") else value


def files_of(path: Path) -> Iterator[Path]:
    """A playbook and the files of plays and tasks that it takes."""
    yield path
    for kind, name in re.findall(r"_(tasks|playbook): (?:\w+/)?(\w+)\.yml", path.read_text(encoding="utf-8")):
        yield from files_of(ROOT / "playbooks" / ("tasks" if kind == "tasks" else "plays") / f"{name}.yml")


def plays_of(path: Path) -> Iterator[Dict[str, Any]]:
    """The plays of a playbook, in order, with the variables that it gives to those it imports."""
    for play in yaml.safe_load(path.read_text(encoding="utf-8")):
        imported = play.get("ansible.builtin.import_playbook")
        if imported is None:
            yield play
        else:
            for other in plays_of(path.parent / imported):
                yield {**other, "vars": {**other.get("vars", {}), **play.get("vars", {})}}


def templates_of(playbook: str) -> List[nodes.Template]:
    jinja = Environment()
    return [
        # Filters and tests have dots in their names, and jinja looks for them only when it compiles.
        jinja.parse(text)
        for path in files_of(PATHS[playbook])
        for text in texts(yaml.safe_load(path.read_text(encoding="utf-8")))
        if "{{" in text
    ]


def read_by(playbook: str) -> Set[str]:
    names = {name.name for template in templates_of(playbook) for name in template.find_all(nodes.Name)}
    if any("gpufleet.node.assess_node:" in path.read_text(encoding="utf-8") for path in files_of(PATHS[playbook])):
        names |= READ_BY_THE_LOOK
    return {name for name in names if name.startswith(PREFIXES)} - OF_THE_PLAYBOOKS | READ_BY_ALL


def defaults_in(playbook: str) -> Dict[str, List[Any]]:
    """The values that a playbook gives its variables by the filter default; what has none stands for itself."""
    found: Dict[str, List[Any]] = {}
    for template in templates_of(playbook):
        for applied in template.find_all(nodes.Filter):
            name = applied.node.name if isinstance(applied.node, nodes.Name) else ""
            if applied.name == "default" and applied.args and name.startswith(PREFIXES):
                found.setdefault(name, []).append(applied.args[0].as_const())
    return found


def test_every_playbook_has_a_specification_and_every_specification_a_playbook() -> None:
    assert sorted(SPECIFICATIONS) == PLAYBOOKS


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_what_a_playbook_reads_is_what_its_specification_has(playbook: str) -> None:
    assert read_by(playbook) == set(SPECIFICATIONS[playbook]["options"])


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_the_defaults_of_a_playbook_are_those_of_its_specification(playbook: str) -> None:
    options = SPECIFICATIONS[playbook]["options"]
    set_by_plays = {name: value for play in plays_of(PATHS[playbook]) for name, value in play.get("vars", {}).items()}
    for name, values in {**defaults_in(playbook), **{name: [set_by_plays[name]] for name in set_by_plays}}.items():
        if name in options:
            assert values == [options[name].get("default")] * len(values), name


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_playbook_takes_the_text_false_for_what_it_says(playbook: str) -> None:
    truth = {name for name, option in SPECIFICATIONS[playbook]["options"].items() if option["type"] == "bool"}
    for template in templates_of(playbook):
        read = [name for name in template.find_all(nodes.Name) if name.name in truth]
        converted = [
            name
            for applied in template.find_all(nodes.Filter)
            if applied.name == "bool" and applied.node is not None
            for name in (applied.node, *applied.node.find_all(nodes.Name))
            if isinstance(name, nodes.Name) and name.name in truth
        ]
        assert len(converted) == len(read), [name.name for name in read]


@pytest.mark.parametrize("role", sorted({role for roles in PROCEDURES.values() for role in roles}))
def test_a_procedure_takes_the_text_false_for_what_it_says(role: str) -> None:
    """A value that is handed on alone, Ansible converts where it arrives."""
    truth = "|".join(name for name, option in options_of(role).items() if option["type"] == "bool") or "-"
    folder = ROOT / "roles" / role
    paths = [*folder.glob("tasks/*.yml"), *folder.glob("vars/*.yml")]
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    read = [line.strip() for line in lines if re.search(rf"\b({truth})\b", line.partition(" # ")[0])]
    right = re.compile(rf"\b({truth}) \| bool\b|[:-] \"{{{{ ({truth}) }}}}\"$")
    assert [line for line in read if not right.search(line)] == []


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_playbook_holds_its_own_variables_against_its_specification_before_anything_else(playbook: str) -> None:
    play = next(plays_of(PATHS[playbook]))
    said = play["tasks"][0]["gpufleet.node.validate_run"]["playbook"]
    assert said.replace("{{ __gpufleet_playbook }}", play.get("vars", {}).get("__gpufleet_playbook", "")) == playbook


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_the_variables_of_the_roles_that_a_playbook_takes_nodes_through_are_checked_with_its_own(playbook: str) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in set(files_of(ROOT / "playbooks" / f"{playbook}.yml")))
    concerns = {entry.name for entry in REGISTRY}
    roles = set(re.findall(r"name: gpufleet\.node\.([a-z_]+)$", text, flags=re.MULTILINE)) - concerns
    assert set(PROCEDURES.get(playbook, ())) == roles


def options_by_name() -> Dict[str, Dict[str, Any]]:
    roles = {role for found in PROCEDURES.values() for role in found}
    found = [options_of(role) for role in roles] + [found["options"] for found in SPECIFICATIONS.values()]
    return {name: option for options in found for name, option in options.items()}


def test_a_default_is_a_value_that_the_variable_may_have() -> None:
    options = options_by_name()
    wrong = {
        name: cause_against(name, option, option["default"]) for name, option in options.items() if "default" in option
    }
    assert {name: cause for name, cause in wrong.items() if cause} == {}


def test_limits_and_what_is_read_before_hosts_are_of_variables_that_are_there() -> None:
    options = options_by_name()
    assert {*BEFORE_HOSTS, *DESTINATIONS, *HEADERS} <= set(options)
    limits = {name: limits_of(option) for name, option in options.items() if option["type"] == "int"}
    # It goes to the API server as it is, which has the say about it.
    assert limits.pop("drain_kubernetes_grace_period") is None
    assert len(limits) > 8
    assert [name for name, found in limits.items() if found is None or found[0] >= found[1]] == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1, 10%", ["1", "10%"]),
        ("10%", ["10%"]),
        ("- 1\n- 10%\n", [1, "10%"]),
        ('[1, "10%"]', [1, "10%"]),
        ("Authorization: Bearer x", {"Authorization": "Bearer x"}),
        ("", []),
        ("[1, ", ["[1"]),
        ([1], [1]),
        ({}, {}),
    ],
)
def test_a_list_may_come_as_the_text_of_a_survey_or_of_the_command_line(text: Any, value: Any) -> None:
    assert parse_list(text) == value


PLACE = "must be a folder on the controller, or an http or https address that ends in / and has no query."
MAPPING = "a mapping of headers to values, without line breaks."
CHECK = {"name": "nccl", "command": ["all_reduce_perf"]}
BATCHES = "must be a list of numbers of nodes from 1, or percentages from 1% to 100%, such as [1, 10%]."


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpufleet_batches", [1, "10%", "100%"]),
        ("gpufleet_batches", "1,10%"),
        ("gpufleet_batches", "10"),
        ("gpufleet_batches", 10),
        ("gpufleet_concerns", "- hugepages\n- mig_layout"),
        ("gpufleet_report_formats", "json, html"),
        ("gpufleet_report_headers", "Authorization: Bearer x"),
        ("audit_fail_on_drift", "yes"),
        ("collect_dest", "facts"),
        ("collect_headers", {"Authorization": "Bearer x", "X-Count": 1}),
        ("drain_timeout", "0"),
        ("preflight_cuda", 12.4),
        ("preflight_cuda", ""),
        ("preflight_checks", [{**CHECK, "pattern": r"(\d+)", "floor": "370"}, {**CHECK, "timeout": 1}]),
        ("gpufleet_report_dest", "https://u:secret@reports.example.com/gpufleet/"),
        # A survey that nobody filled in.
        ("gpufleet_report_dest", ""),
    ],
)
def test_a_text_that_means_a_right_value_is_taken(name: str, value: Any) -> None:
    assert cause_against(name, options_by_name()[name], value) is None


@pytest.mark.parametrize(
    ("name", "value", "cause"),
    [
        ("gpufleet_batches", [0, "10%"], f"it is [0, '10%'], and {BATCHES}"),
        ("gpufleet_batches", "1,150%", f"it is ['1', '150%'], and {BATCHES}"),
        ("gpufleet_batches", [1, "0%"], f"it is [1, '0%'], and {BATCHES}"),
        ("gpufleet_batches", [-1], f"it is [-1], and {BATCHES}"),
        ("gpufleet_batches", [1.5, True], f"it is [1.5, True], and {BATCHES}"),
        ("gpufleet_batches", "ten", f"it is ['ten'], and {BATCHES}"),
        ("gpufleet_batches", "", f"it is [], and {BATCHES}"),
        ("gpufleet_batches", {"first": 1}, f"it is {{'first': 1}}, and {BATCHES}"),
        ("gpufleet_detail", "breif", "it is breif, and must be one of brief, devices, full."),
        ("gpufleet_concerns", {"hugepages": True}, "it is {'hugepages': True}, and must be a list."),
        ("gpufleet_report_formats", "pdf", "it is ['pdf'], and must be a list of json, html, junit, prometheus."),
        # It may be a secret.
        ("gpufleet_report_headers", "Bearer x", f"it must be {MAPPING}"),
        ("gpufleet_report_headers", {"Authorization": "Bearer x\n"}, f"it must be {MAPPING}"),
        ("gpufleet_report_headers", {"Authorization:": "x"}, f"it must be {MAPPING}"),
        ("gpufleet_report_dest", "http://[::1/x/", f"it is no address, and {PLACE}"),
        ("preflight_cuda", "9.2", "it is 9.2, and must be a version of CUDA 10, 11, 12, 13."),
        ("preflight_cuda", "twelve", "it is twelve, and must be a version of CUDA 10, 11, 12, 13."),
        ("preflight_checks", [{**CHECK, "timeout": 0}], "of the check nccl, its timeout must be at least 1 second."),
        ("preflight_checks", [{**CHECK, "command": []}], "of the check nccl, its command is empty."),
        (
            "preflight_checks",
            [CHECK, {**CHECK, "floor": 370}],
            "of the check nccl, its floor is compared with nothing without a pattern.",
        ),
        (
            "preflight_checks",
            [{**CHECK, "pattern": r"bandwidth: [\d.]+"}],
            "of the check nccl, its pattern has no group around the number.",
        ),
        (
            "preflight_checks",
            [{**CHECK, "pattern": "("}],
            "of the check nccl, its pattern is not a regular expression (missing ), unterminated subpattern at position"
            " 0).",
        ),
        ("reboot_poll", 0, "it is 0, and must be a whole number from 1 to 86400."),
        ("drain_resume_timeout", None, "it is None, and must be a whole number from 0 to 10000000."),
        ("drain_resume_timeout", -1, "it is -1, and must be a whole number from 0 to 10000000."),
        ("gpufleet_report_dest", "https://u:secret@r.example.com/g", f"it is https://r.example.com/g, and {PLACE}"),
        ("gpufleet_report_dest", "s3://bucket/", f"it is s3://bucket/, and {PLACE}"),
        ("collect_dest", "", f"it is empty, and {PLACE}"),
        ("audit_fail_on_drift", "maybe", "it is maybe, and must be true or false."),
    ],
)
def test_a_value_that_a_variable_cannot_have_is_refused_with_what_is_right(name: str, value: Any, cause: str) -> None:
    assert cause_against(name, options_by_name()[name], value) == cause
