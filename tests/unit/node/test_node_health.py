# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``gpufleet health``: its exit statuses and its one line, and the examples for those who ask it often."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List

import pytest
from ansible_collections.gpufleet.node.node import command
from ansible_collections.gpufleet.node.node.health import HEALTHY_EXIT, LONGEST_LINE, SICK_EXIT, UNKNOWN_EXIT, one_line
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import ON_PATH
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import port_record
from ansible_collections.gpufleet.node.tests.unit.node.facts_machine import Trees, gpu_host, quiet_host

if TYPE_CHECKING:
    from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import MakeMachine
    from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
XID = "NVRM: Xid (PCI:0000:43:00): 79, pid=1234, GPU has fallen off the bus.\n"


@pytest.fixture
def node(gpu_machine: MakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    machine = gpu_host(gpu_machine, Trees(tmp_path)("hgx-2socket"))
    monkeypatch.setattr(command, "this_host", lambda: machine.host)
    return machine.host


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = command.main(["health", *arguments])
    return status, capsys.readouterr().out


def test_a_node_that_is_well_says_so_and_its_counters_are_kept(node: FakeHost, capsys: Any) -> None:
    assert run(capsys, "--line") == (HEALTHY_EXIT, "8 GPUs and 12 ports are healthy\n")
    assert [path for kind, path, _text in node.files.log if kind == "replace"] == [port_record.PATH]
    node.files.log.clear()
    assert run(capsys)[0] == HEALTHY_EXIT
    # Not again within the hour.
    assert node.files.log == []


def test_a_sick_gpu_and_a_port_that_is_not_there_are_named(node: FakeHost, capsys: Any) -> None:
    node.commands.programs["dmesg"] = lambda _argv: Completed(0, XID, "")
    status, text = run(capsys, "--port", "mlx5_99", "--gpus", "8")
    assert status == SICK_EXIT
    assert text == "GPU 0000:43:00.0: Xid 79 since boot, 1 time\nport mlx5_99: there is no such port\n"
    status, text = run(capsys, "--port", "mlx5_99", "--line")
    assert (status, text) == (SICK_EXIT, "GPU 0000:43:00.0: Xid 79 since boot, 1 time (and 1 more)\n")
    status, text = run(capsys, "--json")
    assert json.loads(text)["sick"] == ["GPU 0000:43:00.0: Xid 79 since boot, 1 time"]


def test_a_driver_that_does_not_respond_is_not_known_to_be_sick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    host = quiet_host(Trees(tmp_path)("hgx-2socket"))
    monkeypatch.setattr(command, "this_host", lambda: host)
    status, text = run(capsys, "--line")
    assert status == UNKNOWN_EXIT
    assert text.startswith("not known: ")
    # What is sick counts more.
    host.commands.programs["dmesg"] = lambda _argv: Completed(0, XID, "")
    assert run(capsys)[0] == SICK_EXIT


def test_a_node_without_gpus_of_nvidia_can_be_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(command, "this_host", lambda: quiet_host(Trees(tmp_path)("vm-without-numa")))
    assert run(capsys, "--line") == (HEALTHY_EXIT, "0 GPUs and 1 port are healthy\n")


def test_without_the_kernel_s_log_it_is_not_known_whether_gpus_are_well(node: FakeHost, capsys: Any) -> None:
    node.commands.programs["dmesg"] = lambda _argv: Completed(1, "", "dmesg: read kernel buffer failed\n")
    status, text = run(capsys)
    assert (status, text) == (
        UNKNOWN_EXIT,
        "not known: the errors of GPUs in the kernel log: dmesg failed with status 1\n",
    )


def test_another_user_than_root_gets_an_answer_and_keeps_nothing(node: FakeHost, capsys: Any) -> None:
    node.may_change = False
    node.commands.programs["dmesg"] = lambda _argv: Completed(1, "", "dmesg: read kernel buffer failed\n")
    assert run(capsys)[0] == HEALTHY_EXIT
    assert node.files.log == []


def test_a_full_disk_costs_no_answer(node: FakeHost, capsys: Any) -> None:
    node.files.fail_at = 1
    assert run(capsys)[0] == HEALTHY_EXIT


def test_a_boot_keeps_the_counters_and_is_well_without_them(node: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command.main(["boot"]) == 0
    kept = json.loads(node.files.read(port_record.PATH))
    assert len(kept["samples"]) == 1

    def defect(*_arguments: Any) -> None:
        raise ValueError("ours")

    monkeypatch.setattr(port_record, "keep", defect)
    assert command.main(["boot"]) == 0


@pytest.mark.parametrize("arguments", [["--gpus", "eight"], ["--gbps", "-1"], ["--ports"]])
def test_wrong_usage_is_no_answer(arguments: List[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(["health", *arguments])
    assert stopped.value.code == command.USAGE_EXIT
    assert capsys.readouterr().out == ""


def test_a_line_is_never_longer_than_what_is_shown_of_it() -> None:
    for count in (1, 2, 1234):
        line = one_line(["port \u00e9" + "\u00e9" * 100] * count, [], {})
        assert len(line.encode()) <= LONGEST_LINE
        assert line.endswith("..." if count == 1 else f" (and {count - 1} more)")
    assert one_line(["two\nlines"], [], {}) == "two lines"


# --- node-problem-detector --------------------------------------------------------------------------------------------

# pkg/custompluginmonitor/types/config.go and types.go, and pkg/types/types.go.
CONFIG = {"plugin", "pluginConfig", "source", "conditions", "rules", "metricsReporting"}
PLUGIN = {
    *("invoke_interval", "timeout", "max_output_length", "concurrency"),
    *("enable_message_change_based_condition_update", "skip_initial_status"),
}
CONDITION = {"type", "reason", "message"}
RULE = {"type", "condition", "reason", "path", "args", "timeout", "invoke_interval"}
DURATION = re.compile(r"(\d+)(s|m|h)")
SECONDS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> int:
    match = DURATION.fullmatch(text)
    assert match, text
    return int(match[1]) * SECONDS[match[2]]


def test_node_problem_detector_would_take_its_example() -> None:
    document: Dict[str, Any] = json.loads((EXAMPLES / "node-problem-detector.json").read_text(encoding="utf-8"))
    assert set(document) <= CONFIG
    assert document["plugin"] == "custom"
    assert document["source"]
    plugin = document["pluginConfig"]
    assert set(plugin) <= PLUGIN
    assert plugin["max_output_length"] == LONGEST_LINE
    assert seconds(plugin["timeout"]) < seconds(plugin["invoke_interval"])
    assert [set(condition) for condition in document["conditions"]] == [CONDITION]
    for rule in document["rules"]:
        assert set(rule) <= RULE
        assert rule["type"] in ("temporary", "permanent")
        assert seconds(rule["timeout"]) <= seconds(plugin["timeout"])
        assert rule["type"] != "permanent" or rule["condition"] in [one["type"] for one in document["conditions"]]
        assert rule["path"] == ON_PATH
        # CamelCase, as Kubernetes has the reasons of conditions.
        assert re.fullmatch(r"[A-Z][A-Za-z]+", rule["reason"])


def test_the_program_takes_the_arguments_of_the_example(node: FakeHost, capsys: Any) -> None:
    document = json.loads((EXAMPLES / "node-problem-detector.json").read_text(encoding="utf-8"))
    (rule,) = document["rules"]
    assert command.main(rule["args"]) == 0
    assert len(capsys.readouterr().out.strip().encode()) <= LONGEST_LINE


# --- Slurm ------------------------------------------------------------------------------------------------------------

SHOWN = "NodeName=n1 Arch=x86_64 State={state} ThreadsPerCore=1 Partitions=gpu"


@pytest.mark.parametrize(
    ("status", "state", "ordered"),
    [
        (0, "IDLE", None),
        (1, "IDLE", "update NodeName=n1 State=DRAIN Reason=health: port mlx5_3/1: it is sick"),
        (1, "MIXED+DRAIN", None),
        (1, "DOWN*", "update NodeName=n1 State=DRAIN Reason=health: port mlx5_3/1: it is sick"),
        (2, "IDLE", None),
        (64, "IDLE", None),
        (127, "IDLE", None),
    ],
)
def test_the_health_check_of_slurm_drains_a_sick_node_once_and_nothing_else(
    tmp_path: Path, status: int, state: str, ordered: str | None
) -> None:
    orders = tmp_path / "orders"
    (tmp_path / "gpufleet").write_text(f"#!/bin/sh\necho 'port mlx5_3/1: it is \"sick\"'\nexit {status}\n")
    (tmp_path / "scontrol").write_text(
        f'#!/bin/sh\nif [ "$1" = update ]; then echo "$@" >> {orders}; else echo "{SHOWN.format(state=state)}"; fi\n'
    )
    script = (EXAMPLES / "slurm-health-check").read_text(encoding="utf-8")
    changed = script.replace(ON_PATH, str(tmp_path / "gpufleet")).replace("PATH=/usr", f"PATH={tmp_path}:/usr", 1)
    assert changed.count(str(tmp_path)) == 2
    (tmp_path / "check").write_text(changed)
    for name in ("gpufleet", "scontrol", "check"):
        (tmp_path / name).chmod(0o755)
    environment = {"SLURMD_NODENAME": "n1", "PATH": os.environ["PATH"]}
    done = subprocess.run([str(tmp_path / "check")], env=environment, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (orders.read_text().strip() if orders.exists() else None) == ordered
