# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What AWX asks for: the specifications of the playbooks, in its kinds of questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import pytest
import yaml

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.node.plugins.filter.survey import question, survey
from ansible_collections.gpufleet.node.plugins.plugin_utils.playbooks import (
    cause_against,
    limits_of,
    parse_list,
    specifications,
)

ROOT = Path(__file__).resolve().parents[3]
SPECIFICATIONS = specifications()
OF_ROLES = {
    name
    for path in (ROOT / "roles").glob("*/meta/argument_specs.yml")
    for name in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]["main"]["options"]
}


def asked() -> Iterator[Tuple[str, Dict[str, Any], Dict[str, Any]]]:
    """Every question with the option that it is about, and the name of the playbook."""
    for playbook, specification in SPECIFICATIONS.items():
        for entry in survey(playbook)["spec"]:
            yield playbook, specification["options"][entry["variable"]], entry


@pytest.mark.parametrize(
    ("option", "question_of_it"),
    [
        ({"type": "str"}, {"type": "text"}),
        ({"type": "str", "default": "all"}, {"type": "text", "default": "all"}),
        ({"type": "str", "default": ""}, {"type": "text"}),
        ({"type": "str", "required": True}, {"type": "text", "required": True}),
        # AWX refuses a template in an answer.
        ({"type": "str", "default": "{{ inventory_hostname }}"}, {"type": "text"}),
        (
            {"type": "str", "choices": ["a", "b"], "default": "b"},
            {"type": "multiplechoice", "choices": ["a", "b"], "default": "b"},
        ),
        (
            {"type": "bool", "default": False},
            {"type": "multiplechoice", "choices": ["true", "false"], "default": "false"},
        ),
        ({"type": "int", "default": 0}, {"type": "integer", "default": 0}),
        ({"type": "float", "default": 0.5}, {"type": "float", "default": 0.5}),
        ({"type": "list", "elements": "str", "default": [1, "10%"]}, {"type": "textarea", "default": '[1, "10%"]'}),
        ({"type": "list", "elements": "str", "default": []}, {"type": "textarea"}),
        ({"type": "dict", "default": {"a": [1]}}, {"type": "textarea", "default": '{"a": [1]}'}),
        (
            {"type": "list", "elements": "str", "choices": ["a", "b", "c"], "default": ["a", "c"]},
            {"type": "multiselect", "choices": ["a", "b", "c"], "default": "a\nc"},
        ),
    ],
)
def test_a_type_has_its_kind_of_question(option: Dict[str, Any], question_of_it: Dict[str, Any]) -> None:
    made = question("x_y", {"description": "What it is.", **option})
    assert made.pop("question_description").startswith("What it is.")
    assert made == {"question_name": "x_y", "variable": "x_y", "required": False, **question_of_it}


def test_a_survey_asks_for_what_its_playbook_takes_except_for_secrets() -> None:
    for playbook, specification in SPECIFICATIONS.items():
        secrets = {name for name, option in specification["options"].items() if option.get("no_log")}
        names = [entry["variable"] for entry in survey(playbook)["spec"]]
        assert names == [name for name in specification["options"] if name not in secrets]
    assert "gpufleet_report_headers" not in {entry["variable"] for _playbook, _option, entry in asked()}


def test_whole_numbers_have_the_limits_that_the_playbook_holds_them_against() -> None:
    whole = [(option, entry) for _playbook, option, entry in asked() if option["type"] == "int"]
    assert len(whole) > 3
    assert [(entry["min"], entry["max"]) for _option, entry in whole] == [limits_of(option) for option, _entry in whole]


def test_a_default_is_an_answer_that_the_playbook_takes_for_its_own_default() -> None:
    for playbook, option, entry in asked():
        if "default" in entry:
            given = entry["default"].splitlines() if entry["type"] == "multiselect" else entry["default"]
            assert cause_against(entry["variable"], option, given) is None, (playbook, entry)
            if option["type"] in ("list", "dict"):
                assert parse_list(given) == option["default"]


def test_no_answer_stands_above_what_the_inventory_says_of_a_single_host() -> None:
    # An answer counts for all hosts, and more than anything in the inventory.
    assert {entry["variable"] for _playbook, _option, entry in asked() if "default" in entry} & OF_ROLES == set()


def test_a_survey_can_ask_for_some_of_it() -> None:
    assert [entry["variable"] for entry in survey("site", only=["gpufleet_skip"])["spec"]] == ["gpufleet_skip"]
    with pytest.raises(AnsibleFilterError, match="Cannot ask for gpufleet_skp in a survey of site: it can ask for"):
        survey("site", only=["gpufleet_skp"])
    with pytest.raises(AnsibleFilterError, match="Cannot make a survey of the playbook sites: there is none"):
        survey("sites")
