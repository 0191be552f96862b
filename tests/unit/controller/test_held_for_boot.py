# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""New kernel arguments go to a canary, and to the nodes that declare the same once that one has booted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

import pytest

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible_collections.gpufleet.node.plugins.filter.held_for_boot import held_for_boot
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import ansible_playbook, replaying
from ansible_collections.gpufleet.node.tests.unit.support import HostVars

ARGUMENT = {"object": "command line", "setting": "iommu", "wanted": "iommu=pt"}
FILE = {"object": "/etc/gpufleet/declared.d/kernel_cmdline.json", "setting": "declaration", "wanted": "as declared"}
BOOTED: Sequence[Mapping[str, Any]] = ()
WRITTEN = [{**ARGUMENT, "effective": None, "boot": "iommu=pt", "status": "pending"}]
OLD = [{**ARGUMENT, "effective": None, "boot": None, "status": "drifted"}]
WAITS = (
    "is left alone until a has booted with the same new kernel arguments. Run gpufleet.node.reboot, and then "
    "gpufleet.node.site again."
)
NO_FILE = [{**FILE, "effective": None, "boot": None, "status": "drifted"}]


def host(
    settings: Sequence[Mapping[str, Any]], *, version: str = "12", status: Optional[str] = None, **variables: Any
) -> Dict[str, Any]:
    """The variables of a host with a look at it. It declares iommu=pt, unless ``variables`` have other arguments."""
    statuses = [row["status"] for row in settings]
    worst = "drifted" if "drifted" in statuses else "pending" if statuses else "in_sync"
    concern = {"status": status or worst, **({"settings": settings} if settings else {})}
    look = {
        "concerns": {"kernel_cmdline": concern},
        "facts": {"distribution": "Debian", "distribution_version": version},
    }
    return {"look": look, "kernel_cmdline_arguments": {"iommu": "pt"}, **variables}


def held(hosts: Mapping[str, Any], **more: Any) -> Dict[str, str]:
    return held_for_boot(list(hosts), HostVars(hosts), "look", **more)


def test_the_first_host_is_the_canary() -> None:
    assert held({"b": host(OLD), "a": host(OLD), "c": host(OLD)}) == {"a": "b", "c": "b"}


def test_one_that_an_earlier_run_has_left_drained_is_the_canary() -> None:
    assert held({"a": host(OLD), "b": host(OLD)}, drained=["b"]) == {"a": "b"}


def test_one_that_has_not_booted_yet_stays_the_canary() -> None:
    assert held({"a": host(OLD), "b": host(WRITTEN), "c": host(WRITTEN)}) == {"a": "b"}


def test_none_waits_when_one_has_booted() -> None:
    assert held({"a": host(OLD), "b": host(BOOTED), "c": host(WRITTEN), "d": host(OLD)}) == {}


def test_a_boot_with_other_arguments_shows_nothing() -> None:
    other = {"kernel_cmdline_arguments": {"iommu": "off"}}
    hosts = {"a": host(OLD), "b": host(BOOTED, **other), "c": host(OLD), "d": host(OLD, **other)}
    assert held(hosts) == {"c": "a"}


def test_a_boot_of_another_release_shows_nothing() -> None:
    assert held({"a": host(OLD), "b": host(BOOTED, version="13"), "c": host(OLD)}) == {"c": "a"}


def test_what_is_no_argument_takes_no_boot() -> None:
    assert held({"a": host(NO_FILE), "b": host(NO_FILE)}) == {}
    # Its arguments are in effect, so it has booted with them.
    assert held({"a": host(NO_FILE), "b": host(OLD), "c": host(OLD)}) == {}


@pytest.mark.parametrize(
    "silent",
    [
        {},
        {"look": {"msg": "unreachable"}},
        {"look": {"concerns": {}}},
        {"look": {**host(OLD)["look"], "refused": "wrong"}},
        host(OLD, status="unknown"),
    ],
)
def test_one_to_which_nothing_is_done_is_no_canary(silent: Dict[str, Any]) -> None:
    assert held({"a": silent, "b": host(OLD), "c": host(OLD)}) == {"c": "b"}


@pytest.mark.parametrize(("arguments", "converged"), [([], "a"), (["-e", "gpufleet_boot_canary=false"], "abc")])
def test_site_leaves_the_others_alone(arguments: Sequence[str], converged: str, tmp_path: Path) -> None:
    concern = {"status": "drifted", "settings": OLD, "settings_in_sync": 0}
    lists: Dict[str, Any] = {"drifted": ["kernel_cmdline"], "to_converge": ["kernel_cmdline"]}
    look = {"changed": False, "concerns": {"kernel_cmdline": concern}, "orphaned": [], "reboot_noted": {}, **lists}
    facts = {"changed": False, "node": {"nvml_gpus": 0, "gpus": [], "health": None, "owners": [], "driver": None}}
    answers = {"node_state": look, "gpu_node_info": facts, "kernel_cmdline": {"changed": False}}
    inventory = {
        "hosts": {name: replaying(tmp_path / name, answers) for name in "abc"},
        "vars": {"kernel_cmdline_arguments": {"iommu": "pt"}, "gpufleet_max_failed": 3},
    }
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", *arguments, forks="1")
    said = re.sub(r"\s+", " ", output)
    tasks = re.findall(
        r"^TASK \[gpufleet\.node\.kernel_cmdline : .*?(?=^TASK|^PLAY)", output, flags=re.DOTALL | re.MULTILINE
    )
    assert set(re.findall(r"^ok: \[(\w)\]", "".join(tasks), flags=re.MULTILINE)) == set(converged), output
    assert (WAITS in said) == (converged == "a"), output
    assert output.endswith(f"ends with {2 if converged == 'a' else 0}")
