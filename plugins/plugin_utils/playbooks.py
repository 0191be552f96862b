# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbooks take: their specification, and what is wrong with a value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Set, Tuple

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.yaml import yaml_load

from ..module_utils._core.errors import DeclarationError
from . import active_checks, cuda, destination

COLLECTION = Path(__file__).resolve().parents[2]
PLAYBOOKS = COLLECTION / "playbooks"

Option = Dict[str, Any]

BATCHES = "gpufleet_batches"
BATCH = re.compile(r"[1-9][0-9]*|([1-9][0-9]?|100)%")

# What a run notes of a node that it took out of service: true, or perhaps; and why it could not finish one.
DRAINED = "gpufleet_drained"
FAILURE = "gpufleet_failure"
# The concerns that failed, with their causes; and how the failure of a cluster begins, which is not one of the node.
FAILURES = "__gpufleet_failures"
OF_CLUSTER = "failed in Kubernetes, not on the node"
# What else a run notes: the hosts that an earlier one left drained, what the gate between batches says, and the report,
# or on one host why there is none.
LEFT_DRAINED = "gpufleet_left_drained"
GATE = "gpufleet_gate"
REPORT = "gpufleet_report"
NO_REPORT = "gpufleet_no_report"

# How much a look answers, and how much is printed of it.
# Ansible reads these before a play has hosts, so their values in the inventory would be silently ignored.
BEFORE_HOSTS = ("gpufleet_hosts", BATCHES)

# The least and the greatest value of a whole number, as the description says them: specifications of Ansible have no
# word for them, and people read the description.
LIMITS = re.compile(r"\bfrom (\d+) to (\d+)\b")

# Where files are written to, and whether it may be empty: then none are.
DESTINATIONS: Mapping[str, bool] = {"gpufleet_report_dest": True, "collect_dest": False}
# What is sent with them there. They may be secrets, and are never shown.
HEADERS = ("gpufleet_report_headers", "collect_headers")

# The roles without a concern that a playbook takes nodes through. Their variables too are right before it begins.
PROCEDURES: Mapping[str, Tuple[str, ...]] = {
    "site": ("drain", "preflight", "device_plugin"),
    "audit": ("device_plugin",),
    "mig_repartition": ("drain", "preflight"),
    "reboot": ("drain", "reboot", "preflight"),
    "remove": ("drain", "reboot", "container_toolkit", "device_plugin"),
    "verify": ("preflight",),
    "device_plugin": ("device_plugin",),
}

# A version, or empty for any.
CUDA = "preflight_cuda"

# How much of a wrong value is shown, in characters.
SHOWN = 100

# What a value is called that has the type.
CALLED = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "a mapping",
}


def specifications() -> Dict[str, Dict[str, Any]]:
    """The specification of each playbook by its name, with ``short_description``, ``description`` and ``options``."""
    text = (PLAYBOOKS / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    found: Dict[str, Dict[str, Any]] = yaml.safe_load(text)["argument_specs"]
    return found


def options_of(role: str) -> Dict[str, Option]:
    """The public variables of a role, from its argument specification."""
    text = (COLLECTION / "roles" / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    found: Dict[str, Option] = yaml_load(text)["argument_specs"]["main"]["options"]
    return found


def variables_of_roles() -> Set[str]:
    """The public variables of all roles, which the inventory may set for a single host."""
    roles = (path.parents[1].name for path in COLLECTION.glob("roles/*/meta/argument_specs.yml"))
    return {name for role in roles for name in options_of(role)}


def parse_list(value: Any) -> Any:
    """A list or a mapping that came as a text, from a survey or the command line; anything else as it is.

    The text is YAML, or a list with commas, such as ``1, 10%``.
    """
    if not isinstance(value, str):
        return value
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError:
        parsed = None
    if isinstance(parsed, (list, dict)):
        return parsed
    return [part.strip() for part in value.split(",") if part.strip()]


def cause_against(name: str, option: Option, value: Any) -> Optional[str]:
    """Why a variable cannot have a value, with what is right; None when it can."""
    if option["type"] in ("list", "dict"):
        value = parse_list(value)
    checked = ArgumentSpecValidator({name: option}).validate({name: value})
    if name == active_checks.CHECKS and not checked.error_messages:
        faults = [(check["name"], active_checks.fault_of(check)) for check in checked.validated_parameters[name]]
        return next((f"of the check {one}, {fault}." for one, fault in faults if fault), None)
    if not checked.error_messages and _within(name, option, checked.validated_parameters[name]):
        return None
    said = "" if option.get("no_log") else f"is {_shown(name, value)}, and "
    return f"it {said}must be {right_value(name, option)}."


def right_value(name: str, option: Option) -> str:
    """In a few words, what a variable may be."""
    if name == BATCHES:
        return "a list of numbers of nodes from 1, or percentages from 1% to 100%, such as [1, 10%]"
    limits = limits_of(option)
    if limits:
        return f"a whole number from {limits[0]} to {limits[1]}"
    if name == CUDA:
        return cuda.RIGHT
    if name in DESTINATIONS:
        return "a folder on the controller, or an http or https address that ends in / and has no query"
    if name in HEADERS:
        return "a mapping of headers to values, without line breaks"
    called = CALLED[option["type"]]
    if "choices" in option:
        choices = ", ".join(option["choices"])
        return f"{called} of {choices}" if option["type"] == "list" else f"one of {choices}"
    return called


def limits_of(option: Option) -> Optional[Tuple[int, int]]:
    """The least and the greatest value of a whole number; None where it has no limits, and for anything else."""
    said = LIMITS.search(str(option.get("description", ""))) if option["type"] == "int" else None
    return (int(said[1]), int(said[2])) if said else None


def _within(name: str, option: Option, value: Any) -> bool:
    """What the type lets pass and the variable does not."""
    if name == BATCHES:
        # The last entry is repeated, so that every list covers all nodes, except the one without any.
        return bool(value) and all(BATCH.fullmatch(batch) for batch in value)
    limits = limits_of(option)
    if limits:
        # Nothing is only right where it is what there is without the variable.
        return bool(limits[0] <= value <= limits[1]) if value is not None else option.get("default", 0) is None
    if name == CUDA:
        return not value.strip() or cuda.branch_for(value) is not None
    try:
        if name in DESTINATIONS and (value or not DESTINATIONS[name]):
            destination.check(value, goal=f"use {name}")
        if name in HEADERS:
            destination.check_headers(value, goal=f"use {name}")
    except DeclarationError:
        return False
    return True


def _shown(name: str, value: Any) -> str:
    text = str(value)
    return (destination.shown(text) if name in DESTINATIONS else text)[:SHOWN] or "empty"
