# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: survey
short_description: The AWX survey of a playbook
version_added: 0.1.0
description:
  - Makes a survey of AWX from the specification of one of the playbooks of this collection.
  - A boolean is a choice of V(true) and V(false), a list or a mapping is YAML text; the playbook accepts them.
  - There is no question for a secret. AWX passes it to the playbook from a credential.
  - A variable that a role has too gets no default. An answer applies to all hosts and overrides the inventory, which
    may have another value for a single host.
positional: _input
options:
  _input:
    description: The name of the playbook, such as V(site).
    type: str
    required: true
  only:
    description: The only variables to ask for. All if it is empty.
    type: list
    elements: str
    default: []
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: A template for the playbook audit
  awx.awx.job_template:
    name: audit
    playbook: awx/project/audit.yml
    survey_enabled: true
    survey_spec: "{{ 'audit' | gpufleet.node.survey }}"
"""

RETURN = r"""
_value:
  description: The survey, with C(name), C(description) and the list of questions in C(spec).
  type: dict
"""

import json
from typing import Any, Callable, Dict, List, Sequence, Union

from ansible.errors import AnsibleFilterError

from ..plugin_utils.playbooks import Option, limits_of, specifications, variables_of_roles

# The question for a type. What has choices is another one.
QUESTIONS = {"int": "integer", "float": "float", "list": "textarea", "dict": "textarea"}

# How an answer is written that is not a string of its own.
WRITTEN = {"list": " A list, as YAML or with commas.", "dict": " A mapping, as YAML."}


def survey(playbook: str, only: Sequence[str] = ()) -> Dict[str, Any]:
    known = specifications()
    if playbook not in known:
        raise AnsibleFilterError(
            f"Cannot make a survey of the playbook {playbook}: there is none. The playbooks are {', '.join(known)}."
        )
    specification = known[playbook]
    of_roles = variables_of_roles()
    options = {
        name: {**option, "default": None} if name in of_roles else option
        for name, option in specification["options"].items()
        if not option.get("no_log")
    }
    missing = [name for name in only if name not in options]
    if missing:
        raise AnsibleFilterError(
            f"Cannot ask for {', '.join(missing)} in a survey of {playbook}: it can ask for {', '.join(options)}."
        )
    return {
        "name": specification["short_description"],
        "description": prose(specification["description"]),
        "spec": [question(name, option) for name, option in options.items() if name in only or not only],
    }


def question(name: str, option: Option) -> Dict[str, Any]:
    """One question. Without an answer and without a default AWX does not set the variable."""
    choices = choices_of(option)
    asked: Dict[str, Any] = {
        "question_name": name,
        "question_description": prose(option["description"]) + ("" if choices else WRITTEN.get(option["type"], "")),
        "variable": name,
        "required": bool(option.get("required", False)),
        "type": QUESTIONS.get(option["type"], "text"),
    }
    if choices:
        asked.update(type="multiselect" if option["type"] == "list" else "multiplechoice", choices=choices)
    limits = limits_of(option)
    if limits:
        asked["min"], asked["max"] = limits
    if given_by_default(option):
        asked["default"] = answer(option["default"], asked["type"])
    return asked


def choices_of(option: Option) -> List[str]:
    choices = [True, False] if option["type"] == "bool" else option.get("choices", [])
    return [text_of(choice) for choice in choices]


def given_by_default(option: Option) -> bool:
    """Whether there is a default that AWX can give: nothing is no answer, and it takes no template for one."""
    default = option.get("default")
    return default not in (None, "", [], {}) and "{{" not in str(default)


def answer(value: Any, kind: str) -> Union[str, float]:
    """A value as the answer to a question of this kind."""
    if kind in ("integer", "float"):
        number: float = value
        return number
    # Several choices are lines to AWX, in a default.
    return "\n".join(text_of(entry) for entry in value) if kind == "multiselect" else text_of(value)


def text_of(value: Any) -> str:
    """A value in YAML, of which JSON is a part."""
    return value if isinstance(value, str) else json.dumps(value)


def prose(description: Union[str, Sequence[str]]) -> str:
    return description if isinstance(description, str) else " ".join(description)


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"survey": survey}
