# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``gpufleet_accepted``: what the inventory accepts, from the variable to the modules and the report."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, Dict

import pytest

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.gpufleet.node.plugins.action.validate_run import known_names
from ansible_collections.gpufleet.node.plugins.module_utils._node.table import (
    counts_of,
    describe_counts,
    rows_of,
    table,
)
from ansible_collections.gpufleet.node.plugins.plugin_utils.acceptances import VARIABLE, fault_of
from ansible_collections.gpufleet.node.plugins.plugin_utils.answers import concern_in
from ansible_collections.gpufleet.node.plugins.plugin_utils.declarations import declaration_of, declarations
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import ansible_playbook

ENTRY = {"concern": "hugepages", "owner": "tuned", "reason": "SRE-12", "until": datetime.date(2027, 3, 31)}
OF_ANOTHER = {"concern": "cpu_power", "owner": "tlp", "reason": "laptop"}
CONCERNS = ("cpu_power", "hugepages")


def template(value: Any) -> Any:
    return Templar(loader=DataLoader(), variables={}).template(value)


def test_each_concern_gets_its_own_entries_and_a_day_as_text() -> None:
    variables = {VARIABLE: [ENTRY, OF_ANOTHER]}
    assert declaration_of("hugepages", variables, template)["accepted"] == [
        {"owner": "tuned", "reason": "SRE-12", "until": "2027-03-31"}
    ]
    assert declaration_of("node_swap", variables, template)["accepted"] == []
    assert declaration_of("hugepages", {}, template)["accepted"] == []


def test_an_entry_alone_declares_nothing() -> None:
    assert declarations({VARIABLE: [ENTRY]}, template) == {}


def test_the_variable_is_known() -> None:
    assert VARIABLE in known_names()


def test_the_right_entries_have_no_fault() -> None:
    assert fault_of([ENTRY, OF_ANOTHER], CONCERNS) is None
    assert fault_of([], CONCERNS) is None


@pytest.mark.parametrize(
    ("entry", "cause"),
    [
        ({"owner": "x", "reason": "y"}, "missing required arguments: concern"),
        ({**OF_ANOTHER, "concern": "hugepage"}, "value of concern must be one of: cpu_power, hugepages"),
        ({**OF_ANOTHER, "untill": "2027-01-01"}, "untill"),
        (
            {**OF_ANOTHER, "until": "soon"},
            "gpufleet_accepted[1]: until is soon, but must be a date such as 2027-03-31.",
        ),
        ({**OF_ANOTHER, "reason": ""}, "gpufleet_accepted[1]: reason is empty."),
        ("tuned", "Elements value for option 'gpufleet_accepted' is of type"),
    ],
)
def test_a_wrong_entry_is_named(entry: Any, cause: str) -> None:
    assert cause in str(fault_of([ENTRY, entry], CONCERNS))


def test_a_wrong_entry_stops_the_run_before_it_looks_at_a_node(tmp_path: Path) -> None:
    hosts = {name: {"ansible_connection": "local"} for name in ("h1", "h2")}
    wrong = [{"concern": "hugepages", "owner": "tuned", "reason": "x", "until": "31.3.2027"}]
    output = ansible_playbook(tmp_path, {"hosts": hosts, "vars": {VARIABLE: wrong}}, "gpufleet.node.audit")
    assert f"Cannot use the variable {VARIABLE} (on h[1-2]): {VARIABLE}[0]: until is 31.3.2027" in output
    assert "Look at the fleet" not in output.partition("fatal: ")[2]


def setting(status: str, note: str) -> Dict[str, Any]:
    values = {"object": "sysctl", "wanted": "0", "effective": "0", "boot": "0"}
    return {**values, "setting": f"vm.{status}", "status": status, "note": note}


def test_what_is_accepted_is_counted_apart_and_shown_with_its_reason() -> None:
    rows = [setting("unknown", "tune.service may set it"), setting("accepted", "tuned sets it; accepted: SRE-12")]
    result = concern_in({"status": "unknown", "msg": "It is not known.", "settings": rows, "settings_in_sync": 3})
    look = {"concerns": {"kernel_tunables": result}, "orphaned": ()}
    found = rows_of("n1", look)
    counts = counts_of(look, found)
    assert describe_counts(counts) == "3 in sync, 1 unknown, 1 accepted"
    text = "\n".join(table(found))
    assert "tune.service may set it" in text
    assert "tuned sets it; accepted: SRE-12" in text
    assert text.index("tune.service") < text.index("SRE-12")
