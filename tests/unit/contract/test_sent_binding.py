# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first look at a node: it has GPUs and a driver, and nothing of ours, not even the binding."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

import pytest
from ansible_collections.gpufleet.node.node.look import OF_THE_TASK
from ansible_collections.gpufleet.node.plugins.module_utils._core import arguments
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._node import options
from ansible_collections.gpufleet.node.plugins.module_utils._node.compressed import compress
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import options as facts_options
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts.collect import answer_for
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import look
from ansible_collections.gpufleet.node.plugins.module_utils._node.sent_binding import LACKS
from ansible_collections.gpufleet.node.plugins.plugin_utils.binding import packed
from ansible_collections.gpufleet.node.tests.nodes import nodetree, recorded_bed
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_machine import H100, divided
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import ansible_playbook
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import LIBRARY, Machines
from ansible_collections.gpufleet.node.tests.unit.support import build

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

BUS = "/sys/bus/pci/devices/0000:17:00.0"
GPU = {f"{BUS}/vendor": "0x10de\n", f"{BUS}/class": "0x030200\n"}
NVML = {"pynvml_sha256": "0" * 64, "version": "13"}
DECLARED: Mapping[str, Mapping[str, Any]] = {
    "nvml": NVML,
    "nvidia_persistence": {"enabled": True},
    "mig_layout": {"gpus": [{"match": {"index": 0}, "instances": [{"profile": "1g.10gb", "count": 7}]}]},
    "gpu_settings": {"gpus": [{"power_limit_watts": 500}]},
}
OF_GPUS = [name for name in DECLARED if name != "nvml"]


@pytest.fixture
def bare(gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch) -> GpuMachine:
    """A machine whose Python has no pynvml; the process that asks the driver is a child of this one."""
    machine = divided(gpu_machine, H100, files=GPU)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    machine.connect(patched=True)
    return machine


def ask(machine: GpuMachine, declared: Optional[Mapping[str, Any]] = None, **more: Any) -> Dict[str, Any]:
    request = arguments.validated(
        {**options.OPTIONS, **OF_THE_TASK}, {"declared": DECLARED if declared is None else declared, **more}
    )
    machine.host.nvml.close()
    return look(request, machine.host)


def tree(root: Path) -> Dict[str, Any]:
    """Every file, folder and link, with what it holds and when it was written."""
    return {
        str(path): (path.lstat().st_mode, path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in root.rglob("*")
    }


def test_a_node_without_the_binding_names_what_it_cannot_read(bare: GpuMachine) -> None:
    answer = ask(bare, facts=True)
    assert sorted(answer[LACKS]) == sorted(OF_GPUS)
    assert sorted(answer["waiting"]) == sorted(OF_GPUS)


def test_with_the_controllers_the_first_look_plans_what_a_run_would_change_and_writes_nothing(bare: GpuMachine) -> None:
    before = tree(bare.root)
    answer = ask(bare, binding=packed(""), facts=True, expect="in_sync", check_mode=True)
    assert LACKS not in answer
    assert (answer["waiting"], answer["unknown"], answer["invalid"], "failed" in answer) == ([], [], [], False)
    assert answer["drifted"] == answer["to_converge"]
    changes = {
        name: {(change["object"], change["before"], change["after"]) for change in result["changes"]}
        for name, result in answer["concerns"].items()
    }
    uuid = bare.gpu(0)["uuid"]
    assert all("msg" not in answer["concerns"][name] for name in OF_GPUS)
    assert len(changes["nvidia_persistence"]) >= 8
    assert any(uuid in str(change) or "gpu0" in str(change) for change in changes["mig_layout"])
    assert {after for _object, _before, after in changes["gpu_settings"]} >= {500}
    assert tree(bare.root) == before
    assert bare.log() == []


def test_the_controllers_leaves_no_trace_beside_the_process_that_asks(bare: GpuMachine) -> None:
    ask(bare, binding=packed(""))
    assert sys.modules["pynvml"] is None
    bare.connect(patched=True)
    assert LACKS in ask(bare)


def test_a_wrong_declaration_is_refused_in_the_first_look(bare: GpuMachine) -> None:
    """It used to wait for the binding, as nothing could be held against the GPU."""
    impossible = {"nvml": NVML, "mig_layout": {"gpus": [{"instances": [{"profile": "1g.10gb", "count": 8}]}]}}
    answer = ask(bare, impossible, binding=packed(""), expect="in_sync", check_mode=True)
    assert (answer["invalid"], answer["failed"]) == (["mig_layout"], True)


def test_where_the_node_has_its_own_the_controllers_is_not_even_looked_at(
    gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = divided(gpu_machine, H100, files=GPU)
    machine.connect(patched=True)
    assert LACKS not in ask(machine)
    answer = ask(machine, binding=compress("raise SystemExit"))
    assert (LACKS in answer, answer["unknown"]) == (False, [])


def test_a_binding_too_old_for_mig_is_lacking_for_mig_alone_and_takes_second_place(
    gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pynvml

    machine = divided(gpu_machine, H100, files=GPU)
    machine.connect(patched=True)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetGpuInstanceProfileInfo", lambda device, profile: None)
    answer = ask(machine)
    assert answer[LACKS] == answer["waiting"] == ["mig_layout"]
    assert "older than 11.515" in answer["concerns"]["mig_layout"]["msg"]
    (row,) = answer["concerns"]["mig_layout"]["settings"]
    assert row["effective"] == "too old"
    assert facts(machine)["node"]["nvml_gpus"] == 8
    machine.connect(patched=True)
    assert LACKS not in ask(machine, binding=packed(""))


@pytest.mark.parametrize("sent", ["nonsense", compress("x")[:-6]])
def test_what_is_no_binding_is_refused(bare: GpuMachine, sent: str) -> None:
    with pytest.raises(DeclarationError, match=r"^Cannot read the request on binding: it is damaged: "):
        ask(bare, binding=sent)


def facts(machine: GpuMachine, **more: Any) -> Dict[str, Any]:
    machine.host.nvml.close()
    return answer_for(arguments.validated(facts_options.OPTIONS, {"gather": ["gpus", "driver"], **more}), machine.host)


def test_the_facts_of_a_bare_node_have_its_gpus(bare: GpuMachine) -> None:
    without = facts(bare)
    assert (without[LACKS], without["node"]["nvml_gpus"]) == ([], None)
    found = facts(bare, binding=packed(""))
    assert (LACKS in found, found["node"]["nvml_gpus"]) == (False, 8)


def test_facts_alone_make_a_look_say_that_it_lacks_the_binding(bare: GpuMachine) -> None:
    assert ask(bare, {}, facts=True)[LACKS] == []
    assert LACKS not in ask(bare, {})


def test_a_tree_without_a_driver_takes_no_binding(tmp_path: Path) -> None:
    request = arguments.validated(facts_options.OPTIONS, {"gather": ["gpus"], "binding": packed("")})
    assert LACKS not in answer_for(request, RecordedHost(str(tmp_path)))


@pytest.mark.parametrize("known", [options.OPTIONS, facts_options.OPTIONS], ids=["look", "facts"])
def test_what_is_sent_is_neither_logged_nor_returned_and_fits_into_a_request(known: Mapping[str, Any]) -> None:
    assert known["binding"] == {"type": "str", "default": "", "no_log": True}
    assert len(packed("")) < 100_000


@pytest.mark.once
def test_the_first_check_of_a_bare_node_by_ansible_plans_its_gpus_and_writes_nothing(
    machines: Machines, tmp_path: Path
) -> None:
    """The whole playbook, on a tree: the module that it sends, and the modules of the roles."""
    simulated = machines.copy(tmp_path / "simulated", H100)
    root = tmp_path / "root"
    nodetree.expand(nodetree.load("single-socket"), root)
    build(root, GPU)
    library = str(simulated.built / LIBRARY)
    bed = tmp_path / "bed"
    python = recorded_bed.interpreter(bed, root=root, library=library, variables=simulated.variables)
    # The Python behind it has a binding of its own.
    (bed / "pynvml.py").write_text("raise ImportError('No module named pynvml')\n")
    here = {"ansible_connection": "local", "ansible_pipelining": True, "ansible_python_interpreter": str(python)}
    declared = {f"{name}_{option}": value for name in OF_GPUS for option, value in DECLARED[name].items()}
    before = tree(root)
    output = ansible_playbook(
        tmp_path, {"hosts": {"bare": here}, "vars": declared}, "gpufleet.node.site", "--check", "--diff"
    )
    assert tree(root) == before
    forecast = output[output.index("What would be done\n") :]
    # A recorded machine has no programs, and nothing else would fail on it.
    assert output.endswith("ends with 2"), output
    assert re.findall(r"bare would fail: .*", output)[-1].count("Cannot ") == 1
    assert "Cannot run systemctl: it is not installed" in forecast
    assert re.search(r"bare: \d+ changes: .*nvidia_persistence \d+, mig_layout \d+, gpu_settings \d+\n", forecast)
    assert '"unknown": []' in forecast
    # The roles of these would find no binding.
    assert re.search(r"bare +: .* changed=2 .* failed=1 .* rescued=0 ", output)
