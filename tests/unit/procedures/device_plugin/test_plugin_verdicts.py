# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the device plugin was recorded to make of a file, by release, is what ``device_plugin`` says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.cluster import (
    Cluster,
    parse_plugin,
)
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.decision import (
    ignored,
    in_effect,
    refuse_impossible,
)
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.declaration import (
    Entry,
    parse_entries,
)
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.flags import duration
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.order import Place
from ansible_collections.gpufleet.node.tests.kubernetes.plugin_cluster import daemonset
from ansible_collections.gpufleet.node.tests.unit.procedures.device_plugin.plugin_machine import (
    Machine,
    divided,
    gpu,
    instance,
)

RECORDED = json.loads((Path(__file__).parent / "data" / "verdicts.json").read_text(encoding="utf-8"))
CASES: List[Dict[str, Any]] = RECORDED["cases"]
RELEASES = ("0.14", "0.15", "0.16", "0.17", "0.18", "0.19", "0.20")
PLACE = Place("nvidia-device-plugin", "gpufleet-device-plugin")
SMALL, SMALL_MEDIA, THIRD = instance("1g.10gb", 9856), instance("1g.10gb+me", 9856), "3g.40gb"
# The two GPUs of each node, as nvidia-smi -L had them.
NODES = {
    "whole": [gpu(0), gpu(1)],
    "parts": [gpu(0), divided(1, SMALL, SMALL, instance(THIRD, 40448))],
    "alike": [divided(0, *[SMALL] * 7), divided(1, *[SMALL] * 7)],
    "unlike": [divided(0, *[SMALL] * 7), divided(1, SMALL, instance("2g.20gb", 19968))],
    "compute": [gpu(0), divided(1, instance(THIRD, 40448, 2, 1))],
    "computealike": [divided(0, instance(THIRD, 40448, 1, 1, 1)), divided(1, instance(THIRD, 40448, 1, 1, 1))],
    "media": [gpu(0), divided(1, SMALL, SMALL_MEDIA)],
    "empty": [divided(0, SMALL), divided(1)],
    "wide": [gpu(0), divided(1, instance("1g.20gb", 19968), instance("4g.40gb", 40448))],
}


def verdicts(case: Dict[str, Any]) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """For every release."""
    found: Dict[str, Any] = {}
    for release in RELEASES:
        found = case["verdicts"].get(release, found)
        yield release, found


def cluster_of(case: Dict[str, Any], release: str) -> Cluster:
    made = daemonset(PLACE.config_map)
    container = made["spec"]["template"]["spec"]["containers"][-1]
    container["image"] = f"nvcr.io/nvidia/k8s-device-plugin:v{release}.0"
    if "environment" in case:
        container["env"] = [{"name": name, "value": value} for name, value in case["environment"].items()]
    plugin = parse_plugin(made)
    assert plugin is not None
    return Cluster({}, (plugin,), (), None, None)


def said_of(machine: Machine, case: Dict[str, Any]) -> Tuple[str, Tuple[Entry, ...]]:
    """The refusal before the cluster is asked, or what was parsed."""
    node = {"name": "h100-1", "gpus": NODES[case["node"]], **case["declared"]}
    try:
        return "", parse_entries(machine.params(node)["nodes"])
    except GpuFleetError as error:
        return str(error), ()


def refusal_of(cluster: Cluster, entries: Tuple[Entry, ...]) -> str:
    told = [entry for entry in entries if entry.config is not None]
    try:
        refuse_impossible(cluster, told, PLACE)
    except GpuFleetError as error:
        return str(error)
    return ""


def disagreements(machine: Machine, case: Dict[str, Any]) -> Iterator[str]:
    early, entries = said_of(machine, case)
    ends_somewhere = any("refused" in verdict for _release, verdict in verdicts(case))
    for release, verdict in verdicts(case):
        cluster = cluster_of(case, release)
        refused = early or refusal_of(cluster, entries)
        wrong = "refused" in verdict or verdict.get("overridden")
        if wrong and not refused:
            yield f"{release}: {verdict}, and we accept it"
        elif refused and not wrong:
            # One inventory serves clusters of several releases, so what one of them ends at needs no other reason.
            if not case.get("stricter") and not (early and ends_somewhere):
                yield f"{release}: {verdict}, and we refuse it: {refused}"
        elif not wrong:
            (entry,) = entries
            left = [one for one in ignored(cluster, entry) if one.startswith("strategy mps")]
            offers = {f"nvidia.com/{name}": number for name, number in verdict["offers"].items()}
            expected = entry.expected(*in_effect(cluster.plugins[0], entry))
            if expected != offers and not left:
                yield f"{release}: {offers}, and we expect {expected}"
    if case.get("stricter") and not early and not refusal_of(cluster_of(case, RELEASES[-1]), entries):
        yield "it is not refused"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("text", "taken"), [("9" * 5000 + "s", False), ("0." + "9" * 5000 + "s", True), ("0" * 5000 + "1s", True)]
)
def test_a_duration_may_have_more_digits_than_python_reads(text: str, taken: bool) -> None:
    """As all of these releases took them, or did not."""
    assert (duration(text) is not None) is taken


def test_every_recorded_configuration_is_judged_as_the_plugin_does(machine: Machine) -> None:
    found = [
        f"{json.dumps({key: value for key, value in case.items() if key != 'verdicts'})}: {one}"
        for case in CASES
        for one in disagreements(machine, case)
    ]
    assert not found, "\n".join(found)
