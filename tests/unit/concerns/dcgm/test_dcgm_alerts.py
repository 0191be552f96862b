# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The alert rules and the dashboard: they fire on a sick node, are silent on a well one, and need what is exported.

Prometheus' own promtool judges them where it is; CI has it (tools/needs.py).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set, Tuple

import pytest
import yaml
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.dcgm import metrics, names
from ansible_collections.gpufleet.node.plugins.plugin_utils.report import as_prometheus

# promtool takes long where the machine is slow, and says the same for every Python.
pytestmark = pytest.mark.once
ROOT = Path(__file__).resolve().parents[4]
FILES = ROOT / "roles" / "dcgm" / "files"
RULES = FILES / "prometheus" / "gpufleet.rules.yml"
DASHBOARD = FILES / "grafana" / "gpufleet.json"
DATA = Path(__file__).parent / "data"
SAMPLE = re.compile(r"^(\w+)(\{.*\}) (\S+)$", re.MULTILINE)
# Nobody has the profiling metrics for the sake of alerts, since they hold the hardware of older GPUs.
IF_THERE = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE"}
Series = Dict[str, str]


def promtool() -> Optional[str]:
    return os.environ.get("GPUFLEET_PROMTOOL") or shutil.which("promtool")


needs_promtool = pytest.mark.skipif(promtool() is None, reason="promtool is not here (Debian package prometheus)")


def rules() -> Iterator[Mapping[str, Any]]:
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        yield from group["rules"]


def alerts() -> List[str]:
    return [rule["alert"] for rule in rules() if "alert" in rule]


def used(text: str) -> Set[str]:
    return set(re.findall(r"DCGM_\w+", text))


def expressions() -> Set[str]:
    found: Set[str] = set()
    for rule in rules():
        found |= used(rule["expr"])
    return found


def samples(name: str) -> Iterator[Tuple[str, str]]:
    for metric, labels, value in SAMPLE.findall((DATA / name).read_text(encoding="utf-8")):
        yield f'{metric}{labels[:-1]},instance="h001:9400",job="dcgm"}}', value


def series(*parts: Tuple[str, int]) -> Series:
    """Each series of these scrapes in turn, each for so many minutes; between two, a counter grows evenly."""
    found: Series = {}
    for number, (name, minutes) in enumerate(parts):
        following = dict(samples(parts[number + 1][0])) if number + 1 < len(parts) else {}
        for key, value in samples(name):
            end = following.get(key, value)
            step = (float(end) - float(value)) / minutes if "_TOTAL{" in key or "COUNTER{" in key else 0.0
            found[key] = f"{found.get(key, '')} {value}{step:+.6f}x{minutes - 1}".strip()
        for key in found:
            if key not in dict(samples(name)):
                found[key] += f" _x{minutes}"
        for key in following.keys() - found.keys():
            found[key] = f"_x{sum(length for _name, length in parts[: number + 1])}"
    return found


def verdict(tmp_path: Path, given: Series, at: str, wanted: List[Dict[str, Any]]) -> str:
    """What promtool says to rules that are to fire like this on these series; empty where they do."""
    tool = promtool()
    assert tool is not None
    # Days of a fleet in hours, and hours of a GPU with fewer evaluations, which are what takes time.
    interval = "1h" if at.endswith("d") else "1m"
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "10m" if len(at) > 3 else interval,
        "tests": [
            {
                "interval": interval,
                "input_series": [{"series": key, "values": values} for key, values in given.items()],
                "promql_expr_test": [
                    {"expr": 'count by (alertname, severity) (ALERTS{alertstate="firing"})', "eval_time": at}
                    | {"exp_samples": wanted}
                ],
            }
        ],
    }
    path = tmp_path / "test.yml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    done = subprocess.run([tool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{done.stdout}{done.stderr}"


def firing(*names: str) -> List[Dict[str, Any]]:
    severity = {rule["alert"]: rule["labels"]["severity"] for rule in rules() if "alert" in rule}
    return [
        {"labels": f'{{alertname="{name}", severity="{severity[name]}"}}', "value": 1} for name in sorted(set(names))
    ]


WELL = (("well.prom", 600),)
SICK = (("well.prom", 60), ("sick.prom", 480), ("sick-later.prom", 30))
# Ten minutes after it became sick: what is seen at once, or within minutes.
SOON = (
    *("GpuUncorrectableMemoryErrors", "GpuRowRemapFailed", "GpuRowRemapPending", "GpuRowsRemapped"),
    *("GpuXidOfHardware", "GpuXid", "GpuHealth", "GpuNearSlowdownTemperature", "GpuMemoryTooHot"),
    *("GpuThrottledByHeat", "GpuPowerBrake", "GpuPowerAboveLimit", "GpuNvlinkRecovered", "GpuNvlinkRecoveryFailed"),
)
# Hours later: what needs time, and no more that its NVLink failed then. It counts errors all the time.
LATER = (
    *(name for name in SOON if name != "GpuNvlinkRecoveryFailed"),
    *("GpuNvlinkErrors", "GpuPcieReplays", "GpuPowerLimitLowered", "GpuUtilisationBelowTarget"),
)
GPU = 'gpu="0",UUID="GPU-0",instance="h001:9400"'
LOOKS = "gpufleet_node_look_timestamp_seconds"


SCENARIOS: Dict[str, Tuple[Series, str, Tuple[str, ...]]] = {
    "a well node, for ten hours": (series(*WELL), "590m", ()),
    "a sick node, after ten minutes": (series(*SICK), "70m", SOON),
    "a sick node, after hours": (series(*SICK), "530m", LATER),
    "a GPU that is slowed down, and nobody knows why": (
        {f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{GPU}}}": "8x30"},
        "20m",
        ("GpuThrottledByHardware",),
    ),
    "a GPU that is too hot, by generation 3": (
        {f"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{{GPU}}}": "32x30"},
        "20m",
        ("GpuThrottledByHeat",),
    ),
    "a GPU that only has no work or a power cap": (
        {
            f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{GPU}}}": "5x30",
            f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}}": "0x600",
            f"DCGM_FI_DEV_FB_USED{{{GPU}}}": "4x600",
        },
        "590m",
        (),
    ),
    "a GPU that falls off the bus": (
        {f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}}": "50x30 _x30"},
        "45m",
        ("GpuMetricsMissing",),
    ),
    "a fleet that is looked at each day": (
        {f'{LOOKS}{{node="h1"}}': "0+3600x336", "gpufleet_report_timestamp_seconds": "0+3600x336"},
        "14d",
        (),
    ),
    "a node that does not respond any more, and one that is no longer in the inventory": (
        {
            f'{LOOKS}{{node="h1"}}': "0+3600x240",
            f'{LOOKS}{{node="h2"}}': "0+3600x24 _x216",
            "gpufleet_report_timestamp_seconds": "0+3600x240",
            'gpufleet_node_sick_gpus{node="h1"}': "0x240",
            'gpufleet_node_sick_ports{node="h1"}': "0x240",
        },
        "9d",
        ("GpuFleetNodeNotLookedAt",),
    ),
    "a fleet that nobody looks at": (
        {f'{LOOKS}{{node="h1"}}': "0x240", "gpufleet_report_timestamp_seconds": "0x240"},
        "8d",
        ("GpuFleetNodeNotLookedAt", "GpuFleetNotLookedAt"),
    ),
    "a node with a sick GPU": ({'gpufleet_node_sick_gpus{node="h1"}': "1x10"}, "5m", ("GpuFleetNodeSick",)),
    "a node with a sick port": ({'gpufleet_node_sick_ports{node="h1"}': "2x10"}, "5m", ("GpuFleetNodeSickPorts",)),
}


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    tool = promtool()
    assert tool is not None
    done = subprocess.run([tool, "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_promtool
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_alerts_fire_on_what_is_sick_and_are_silent_on_what_is_well(tmp_path: Path, name: str) -> None:
    given, at, wanted = SCENARIOS[name]
    assert verdict(tmp_path, given, at, firing(*wanted)) == ""


@needs_promtool
def test_the_judge_of_the_alerts_can_say_no(tmp_path: Path) -> None:
    given, at, _none = SCENARIOS["a well node, for ten hours"]
    assert "GpuXid" in verdict(tmp_path, given, at, firing("GpuXid"))


def test_every_alert_is_seen_to_fire() -> None:
    assert {name for _given, _at, wanted in SCENARIOS.values() for name in wanted} == set(alerts())


@pytest.mark.parametrize("generation", [3, 4])
def test_what_the_rules_need_is_what_the_role_switches_on(generation: int) -> None:
    """Each generation has every metric of a rule, by the name that it has there or by the other one."""
    switched_on = set(metrics.of_alerts(3)) | set(metrics.of_alerts(4))
    assert expressions() - IF_THERE <= switched_on
    # Nothing is switched on that nobody needs; of Xids and rows people want to see the others too.
    assert switched_on - expressions() == {"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_XID_ERRORS"}
    for name in metrics.of_alerts(generation):
        assert str(generation) in names.generations(name), name


@pytest.mark.parametrize("generation", [3, 4])
def test_without_the_role_most_of_the_alerts_would_never_fire(generation: int) -> None:
    """The reason for which it is there: the file that NVIDIA ships has these switched off."""
    shipped = metrics.parse((DATA / f"default-counters-{generation}.csv").read_text(encoding="utf-8"))
    missing = set(metrics.of_alerts(generation)) - set(shipped)
    assert {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ROW_REMAP_PENDING", "DCGM_EXP_XID_ERRORS_COUNT"} <= missing


def test_the_fleet_has_the_metrics_of_its_rules() -> None:
    used_of_fleet = {name for rule in rules() for name in re.findall(r"\bgpufleet_\w+", rule["expr"])}
    source = Path(as_prometheus.__file__).read_text(encoding="utf-8")
    assert [name for name in sorted(used_of_fleet) if f'"{name}"' not in source] == []


def test_every_alert_says_how_bad_it_is_where_and_what_to_do() -> None:
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
            assert "{{ $labels." in rule["annotations"]["summary"] or rule["alert"] == "GpuFleetNotLookedAt"
            assert rule["annotations"]["description"].endswith("."), rule["alert"]
    assert len(alerts()) == len(set(alerts()))


def test_the_dashboard_shows_what_is_exported() -> None:
    document = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panels = [panel for panel in document["panels"] if panel["type"] != "row"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    known = set(metrics.of_alerts(3)) | set(metrics.of_alerts(4)) | IF_THERE
    assert used(" ".join(queries)) <= known
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert set(re.findall(r"gpufleet:\w+(?::\w+)?", " ".join(queries))) <= recorded
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
    assert document["uid"]
    assert document["title"]
    # No two panels lie on each other.
    taken: Set[Tuple[int, int]] = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@needs_promtool
def test_prometheus_understands_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    document = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
    plain = [query.replace("$node", "h001.*").replace("$__rate_interval", "5m") for query in queries]
    rules_of = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(plain)]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules_of}]}), encoding="utf-8")
    tool = promtool()
    assert tool is not None
    done = subprocess.run([tool, "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
