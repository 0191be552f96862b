# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes are rebooted, why, and under whose work not."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

import pytest

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible_collections.gpufleet.node.plugins.filter.gpu_users import gpu_users
from ansible_collections.gpufleet.node.plugins.filter.needs_reboot import needs_reboot
from ansible_collections.gpufleet.node.plugins.filter.reboot_reasons import reboot_reasons
from ansible_collections.gpufleet.node.tests.unit.support import HostVars


def looked(status: str, *reasons: str, noted: Optional[Mapping[str, List[str]]] = None) -> Dict[str, Any]:
    return {"concerns": {"hugepages": {"status": status, "reboot_reasons": list(reasons)}}, "reboot_noted": noted or {}}


@pytest.mark.parametrize(
    ("look", "reasons"),
    [
        (looked("in_sync"), []),
        (looked("pending", "a"), ["a"]),
        (looked("pending", "a", noted={"hugepages": ["a"]}), ["a"]),
        # What was noted of a concern that is right by now holds no longer.
        (looked("in_sync", noted={"hugepages": ["a"]}), []),
        # Nothing was written for the next boot yet, so a boot brings nothing.
        (looked("drifted", "a"), []),
        # One part waits for the reboot, another one was changed by hand since.
        (looked("drifted", "a", "b", noted={"hugepages": ["a"]}), ["a"]),
        # Nobody could look, as where the driver hangs.
        (looked("unknown", noted={"hugepages": ["a"]}), ["a"]),
        (looked("invalid", noted={"hugepages": ["a"]}), ["a"]),
        # It was given back, and is not declared any more.
        (looked("in_sync", noted={"kernel_modules": ["b", "c"]}), ["b", "c"]),
        ({"msg": "unreachable", "unreachable": True}, []),
        ({}, []),
    ],
)
def test_a_reason_for_a_reboot_is_what_a_reboot_ends(look: Dict[str, Any], reasons: List[str]) -> None:
    assert reboot_reasons(look) == reasons


def test_hosts_are_rebooted_that_wait_for_it_and_may_be() -> None:
    waits = looked("pending", "a")
    hostvars = HostVars(
        {
            "c": {"look": waits},
            "b": {"look": looked("in_sync")},
            "a": {"look": waits, "reboot_allowed": True},
            "forbidden": {"look": waits, "reboot_allowed": False},
            "forbidden_by_text": {"look": waits, "reboot_allowed": "no"},
            "no_answer": {},
            "kernel": {"look": looked("in_sync"), "reboot_reasons": ["a new kernel"]},
        }
    )
    assert needs_reboot(list(hostvars), hostvars, "look") == {"c": ["a"], "a": ["a"], "kernel": ["a new kernel"]}
    # What an earlier run has left drained is finished first, and may only have to be resumed.
    first = needs_reboot(list(hostvars), hostvars, "look", drained=["b", "a", "elsewhere"])
    assert list(first.items())[:3] == [("b", []), ("a", ["a"]), ("c", ["a"])]


def test_a_reason_may_come_as_the_text_of_a_survey_or_of_the_command_line() -> None:
    given = HostVars({"a": {"reboot_reasons": "- a new kernel\n- and more"}, "b": {"reboot_reasons": "firmware"}})
    assert needs_reboot(["a", "b"], given, "look") == {"a": ["a new kernel", "and more"], "b": ["firmware"]}
    assert needs_reboot(["a"], HostVars({"a": {"reboot_reasons": ""}}), "look") == {}


def test_a_program_is_at_work_on_a_gpu_when_it_computes_there() -> None:
    job = {"pid": 7, "name": "python3", "types": ["compute"]}
    desktop = {"pid": 1, "name": "Xorg", "types": ["graphics"]}
    gpus = [
        {"index": 0, "processes": [job, desktop]},
        {"index": 1, "processes": [job, {"pid": 9, "name": None, "types": ["mps"]}]},
        {"index": 2, "processes": None},
        {"index": None},
    ]
    assert gpu_users(gpus) == ["process 7 (python3) on GPU 0, 1", "process 9 (unnamed) on GPU 1"]
    assert gpu_users(None) == []
