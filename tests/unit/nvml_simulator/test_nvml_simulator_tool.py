# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command ``nvml-sim``: what it refuses and why, what it shows, machines that a user describes."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import (
    SOURCES,
    Machine,
    Machines,
    in_another_process,
)

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)

SHIPPED = (
    "a100-sxm4-40gb-4",
    "a30-4",
    "gb200-4",
    "h200-141gb-vm-1",
    "hgx-a100-80gb-8",
    "hgx-b200-8",
    "hgx-h100-80gb-8",
    "hgx-h200-141gb-8",
    "l40s-1",
    "mixed",
)

# What is asked, and the exact reason of the refusal; {state} is the path of the state file.
REFUSALS = [
    ("", "the following arguments are required: VERB"),
    ("destroy", "argument VERB: invalid choice: 'destroy' (choose from "),
    ("create l40s-1", "nvml-sim: {state} exists: add --force to replace it"),
    ("create dgx-1 --force", f"nvml-sim: there is no machine dgx-1: one of {', '.join(SHIPPED)}, or a file"),
    ("create l40s-1 --force --driver new", "nvml-sim: new is not a driver version such as "),
    ("create l40s-1 --force --driver 390.10", "nvml-sim: driver branch 390 is too old: the first known one is 450"),
    ("--state /nowhere/state describe", "nvml-sim: cannot open /nowhere/state: No such file or directory"),
    ("reset 8", "nvml-sim: there is no GPU 8: the machine has 8"),
    ("reset 0 GPU-00000000", "nvml-sim: there is no GPU GPU-00000000: the machine has 8"),
    ("add-client 0 --gi 3", "nvml-sim: GPU 0 has no GPU instance 3"),
    ("add-client 0 --ci 0", "nvml-sim: --ci needs --gi"),
    ("add-client 0 --kind display", "argument --kind: invalid choice: 'display' (choose from "),
    ("add-client 0 --memory -1", "argument --memory: -1 is not a number from 0"),
    ("add-client 0 --pid none", "argument --pid: none is not a number from 0 to 4294967294"),
    ("add-client 0 --memory 4294967296", "argument --memory: 4294967296 is not a number from 0 to 4294967294"),
    ("remove-client", "nvml-sim: remove-client takes an ID or --all"),
    ("remove-client 4711", "nvml-sim: there is no client 4711"),
    ("fail nvmlDeviceGetNames 3", "nvml-sim: the library has no function nvmlDeviceGetNames"),
    ("fail nvml_sim_control 3", "nvml-sim: the library has no function nvml_sim_control"),
    (
        "fail nvmlDeviceGetName BROKEN",
        "nvml-sim: BROKEN is no NVML error: a number above 0 or a name such as NVML_ERROR_IN_USE",
    ),
    ("fail nvmlDeviceGetName 0", "nvml-sim: 0 is no NVML error: "),
    ("fail nvmlDeviceGetName 3 -1", "argument COUNT: -1 is not a number from 0"),
    ("fail nvmlDeviceGetName 99999999999", "nvml-sim: 99999999999 is no NVML error: "),
    ("fail nvmlDeviceGetName", "nvml-sim: fail takes a SYMBOL, a CODE and perhaps a COUNT"),
    ("fail nvmlDeviceGetName 3 1 1", "nvml-sim: fail takes a SYMBOL, a CODE and perhaps a COUNT"),
    ("fail nvmlDeviceGetName 3 --after -1", "argument --after: -1 is not a number from 0"),
    ("fail --nth-change 0 3", "nvml-sim: changes are counted from 1"),
    ("fail --nth-change 1 nvmlDeviceSetMigMode 3", "nvml-sim: fail --nth-change N takes a CODE and nothing else"),
    ("fail --nth-change 1 3 --after 2", "nvml-sim: fail --nth-change N takes a CODE and nothing else"),
    ("fail --nth-change 1 BROKEN", "nvml-sim: BROKEN is no NVML error: "),
    ("kill-at-change 0", "nvml-sim: changes are counted from 1"),
    ("kill-at-change one", "argument N: one is not a number from 0"),
    ("hang gpu-reset", "nvml-sim: the library has no function gpu-reset"),
    ("hide any-change", "nvml-sim: the library has no function any-change"),
    ("hold 8", "nvml-sim: there is no GPU 8: the machine has 8"),
    ("hold 0 --gi 3", "nvml-sim: GPU 0 has no GPU instance 3"),
    ("hold 0 --ci 0", "nvml-sim: --ci needs --gi"),
    ("hang nvmlDeviceGetName -1", "argument SECONDS: -1 is not a time from 0 to 4294967"),
    ("hang nvmlDeviceGetName 4294968", "argument SECONDS: 4294968 is not a time from 0 to 4294967"),
    ("heal nvmlDeviceGetName", "nvml-sim: nvmlDeviceGetName has no fault"),
    ("heal any-change", "nvml-sim: any-change has no fault"),
    ("lose 9", "nvml-sim: there is no GPU 9: the machine has 8"),
    ("mismatch maybe", "argument mode: invalid choice: 'maybe' (choose from "),
    ("set 0 temperature", "nvml-sim: temperature: a change is KEY=VALUE"),
    ("set 0 temperature=50 warmth=1", "nvml-sim: there is no warmth"),
    ("set 0 temperature=50 fans=many", "nvml-sim: fans cannot be many"),
    ("set system cuda_version=", "nvml-sim: cuda_version cannot be"),
    (f"set 0 name={'x' * 96}", "nvml-sim: name cannot be xxx"),
    ("set 0 graphics_clock_step=0", "nvml-sim: gpu.0.graphics_clock_step would not fit the rest of the machine"),
    ("set 0 graphics_clock_max=0", "nvml-sim: gpu.0.graphics_clock_max would not fit the rest of the machine"),
    ("set 0 memory_slices=0", "nvml-sim: gpu.0.memory_slices would not fit the rest of the machine"),
    ("set 0 compute_slices=none", "nvml-sim: gpu.0.compute_slices would not fit the rest of the machine"),
    ("set 0 cpus=0-99999999999999", "nvml-sim: gpu.0.cpus would not fit the rest of the machine"),
    ("set 0 cpus_of_socket=7-3", "nvml-sim: gpu.0.cpus_of_socket would not fit the rest of the machine"),
    ("set 0 cpu_nodes_of_socket=x", "nvml-sim: gpu.0.cpu_nodes_of_socket would not fit the rest of the machine"),
    ("set 0 mig=7", "nvml-sim: gpu.0.mig would not fit the rest of the machine"),
    ("set 0 mig_pending=2", "nvml-sim: gpu.0.mig_pending would not fit the rest of the machine"),
    ("set 0 profile_count=21", "nvml-sim: gpu.0.profile_count would not fit the rest of the machine"),
    ("set 0 profile.1.memory_slices=0", "nvml-sim: gpu.0.profile would not fit the rest of the machine"),
    (
        "set 0 instance.3.birth=1 instance.3.profile=50",
        "nvml-sim: gpu.0.instance would not fit the rest of the machine",
    ),
    ("set system gpu_count=99", "nvml-sim: system.gpu_count would not fit the rest of the machine"),
    ("set system gpu_count=0", "nvml-sim: system.gpu_count would not fit the rest of the machine"),
    ("daemon-hold 0 --pid 4194304", "nvml-sim: there is no process 4194304"),
]


@pytest.mark.parametrize(
    ("arguments", "reason"), REFUSALS, ids=[arguments or "nothing" for arguments, reason in REFUSALS]
)
def test_wrong_use_says_why_and_changes_nothing(machine: Machine, arguments: str, reason: str) -> None:
    before = machine.state.read_bytes()
    message = machine.refusal(*arguments.split())
    assert reason.format(state=machine.state) in message
    assert machine.state.read_bytes() == before


def test_a_text_of_more_than_a_line_is_refused(machine: Machine, tmp_path: Path) -> None:
    mine = described(tmp_path, gpus=[{**ONE_GPU["gpus"][0], "set": {"name": "two\nlines"}}])
    for arguments in (
        ("add-client", 0, "--name", "two\nlines"),
        ("set", 0, "name=two\nlines"),
        ("create", mine, "--force"),
    ):
        assert machine.refusal(*arguments) == "nvml-sim: a text cannot hold control characters"
    assert len(machine.describe()["gpus"]) == 8


def test_the_machines_that_ship_are_listed_with_a_description(machine: Machine) -> None:
    lines = [line.split(maxsplit=1) for line in machine.tool("machines").splitlines()]
    assert [line[0] for line in lines] == list(SHIPPED)
    assert all(len(line) == 2 for line in lines)


def test_help_names_every_command(machine: Machine) -> None:
    text = machine.tool("--help")
    for verb in ("create", "describe", "reset", "reboot", "add-client", "hold", "fail", "kill-at-change", "set", "log"):
        assert re.search(rf"^    {verb}\b", text, re.MULTILINE), verb


def test_the_option_for_the_state_beats_the_variable(machine: Machine, tmp_path: Path) -> None:
    other = tmp_path / "other" / "state"
    machine.tool("--state", other, "create", "l40s-1")
    assert len(json.loads(machine.tool("--state", other, "describe", "--json"))["gpus"]) == 1
    assert len(machine.describe()["gpus"]) == 8


def test_the_launcher_works_from_any_folder(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "nvml-sim").symlink_to(machine.built / "nvml-sim")
    done = subprocess.run(
        ["nvml-sim", "machines"],
        env=machine.environment(PATH=f"{tmp_path}:{os.environ['PATH']}"),
        check=False,
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr, done.stdout.split()[0]) == (0, "", SHIPPED[0])


def test_the_built_folder_works_where_it_is_copied(machine: Machine, tmp_path: Path) -> None:
    shutil.copytree(machine.built, tmp_path / "copy")
    copy = Machine(tmp_path / "copy", tmp_path)
    copy.tool("create", "l40s-1")
    assert copy.elsewhere("nvmlDeviceGetName(gpu[0])") == "NVIDIA L40S"


def test_who_reads_only_the_beginning_of_an_answer_sees_no_error(machine: Machine) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [str(machine.built / "nvml-sim"), "machines"]
    with os.fdopen(writer, "wb") as nobody:
        done = subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_full_disk_is_the_reason_and_leaves_no_file(machine: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "full"
    before = machine.state.read_bytes()

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        reason = machine.refusal("--state", folder / "state", "create", "l40s-1")
        assert reason == f"nvml-sim: cannot write {folder / 'state'}: No space left on device"
        machine.refusal("create", "l40s-1", "--force")

    in_another_process(work)
    assert list(folder.iterdir()) == []
    assert [path.name for path in machine.state.parent.iterdir()] == ["state"]
    assert machine.state.read_bytes() == before


def test_a_build_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "built"
    folder.mkdir()
    (folder / "nvml-sim").write_text("old")
    done = subprocess.run(
        [sys.executable, str(SOURCES / "build.py"), str(folder)],
        env={**os.environ, "CC": "false"},
        check=False,
        text=True,
        capture_output=True,
        timeout=240,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("build.py: ")
    assert [path.name for path in tmp_path.rglob("*")] == ["built", "nvml-sim"]
    assert (folder / "nvml-sim").read_text() == "old"


def test_a_gpu_is_named_by_index_uuid_or_pci_address(machine: Machine) -> None:
    gpu = machine.describe()["gpus"][3]
    for name, celsius in ((3, 41), (gpu["uuid"], 42), (gpu["pci_bus_id"], 43), (gpu["pci_bus_id"].lower()[4:], 44)):
        machine.tool("set", name, f"temperature={celsius}")
        assert [one["temperature"] == celsius for one in machine.describe()["gpus"]].index(True) == 3


def test_a_description_shows_modes_instances_clients_settings_and_faults(machine: Machine) -> None:
    machine.tool("set", 1, "swap_halves=0")
    machine.elsewhere(
        "[nvmlDeviceSetMigMode(gpu[1], 1), nvmlDeviceSetPersistenceMode(gpu[0], 1),"
        " nvmlDeviceSetGpuLockedClocks(gpu[0], 1200, 1500), nvmlDeviceSetEccMode(gpu[2], 0)]"
    )
    instance = "nvmlDeviceCreateGpuInstance(gpu[1], 9)"
    machine.elsewhere(f"[nvmlGpuInstanceCreateComputeInstance({instance}, 1), None][1]")
    client = machine.tool("add-client", 1, "--gi", 2, "--ci", 0, "--name", "trainer", "--pid", os.getpid())
    machine.tool("fail", "nvmlDeviceGetName", "NVML_ERROR_TIMEOUT", 3)
    state = machine.describe()
    first, second, third = state["gpus"][:3]
    assert (first["persistence"], first["locked_graphics_min"], first["locked_graphics_max"]) == (1, 1200, 1500)
    assert (third["ecc"], third["ecc_pending"]) == (1, 0)
    assert (second["mig"], second["mig_pending"]) == (1, 1)
    uuid = machine.elsewhere("nvmlDeviceGetUUID(nvmlDeviceGetMigDeviceHandleByIndex(gpu[1], 0))")
    assert second["instances"] == [
        {
            "id": 2,
            "profile": "3g.40gb",
            "profile_id": 9,
            "placement": {"start": 4, "size": 4},
            "compute_instances": [
                {
                    "id": 0,
                    "profile": "2c.3g.40gb",
                    "profile_id": 1,
                    "placement": {"start": 0, "size": 2},
                    "mig_index": 0,
                    "uuid": uuid,
                }
            ],
        }
    ]
    (found,) = state["clients"]
    assert {name: found[name] for name in ("id", "pid", "name", "kind", "gpu", "gpu_instance", "compute_instance")} == {
        "id": int(client),
        "pid": os.getpid(),
        "name": "trainer",
        "kind": "compute",
        "gpu": 1,
        "gpu_instance": 2,
        "compute_instance": 0,
    }
    faults = [fault for fault in state["faults"] if fault["kind"] == "fail"]
    assert [(fault["symbol"], fault["kind"], fault["code"], fault["remaining"]) for fault in faults] == [
        ("nvmlDeviceGetName", "fail", 10, 3)
    ]
    text = machine.tool("describe")
    for line in (
        "graphics clocks locked to 1200-1500 MHz",
        "ECC on, pending off",
        "GPU instance 2: 3g.40gb at 4:4",
        "compute instance 0: 2c.3g.40gb at 0:2, MIG device 0",
        "trainer (pid",
        "nvmlDeviceGetName",
    ):
        assert line in text


# Machines of a user's own

ONE_GPU: Dict[str, Any] = {
    "description": "one",
    "nodes": {"0": "0-7"},
    "sockets": [[0]],
    "gpus": [{"model": "h100-sxm5-80gb", "pci": "0000:41:00.0", "node": 0}],
}


def described(folder: Path, **changes: Any) -> str:
    path = folder / "mine.json"
    path.write_text(json.dumps({**ONE_GPU, **changes}))
    return str(path)


def test_a_machine_of_ones_own_is_made_from_its_file(machines: Machines, tmp_path: Path) -> None:
    place = {"model": "a100-sxm4-80gb", "pci": "0001:02:00.0", "node": 0, "set": {"temperature": 77}}
    machine = machines.copy(tmp_path / "machine", described(tmp_path, gpus=[*ONE_GPU["gpus"], place]))
    names = machine.elsewhere("[[nvmlDeviceGetName(one), nvmlDeviceGetPciInfo(one).busId] for one in gpu]")
    assert names == [["NVIDIA H100 80GB HBM3", "00000000:41:00.0"], ["NVIDIA A100-SXM4-80GB", "00000001:02:00.0"]]
    assert machine.elsewhere("nvmlDeviceGetTemperature(gpu[1], NVML_TEMPERATURE_GPU)") == 77


WRONG_MACHINES: List[Any] = [
    ("{", "is not JSON: "),
    ("[]", "is not a machine description: it has no list of gpus"),
    ('{"gpus": 8}', "is not a machine description: it has no list of gpus"),
    ('{"gpus": [{"model": "voodoo2", "pci": "0000:41:00.0"}]}', "GPU 0 has model voodoo2: one of "),
    ('{"gpus": [{"model": "h100-sxm5-80gb"}]}', "GPU 0 has no pci address such as 0000:07:00.0"),
    ('{"gpus": [{"model": "h100-sxm5-80gb", "pci": "0:1.0"}]}', "GPU 0 has no pci address such as 0000:07:00.0"),
    (
        '{"gpus": [{"model": "h100-sxm5-80gb", "pci": "0000:41:00.0", "set": {"warmth": 1}}]}',
        "there is no warmth",
    ),
    (
        '{"gpus": [{"model": "h100-sxm5-80gb", "pci": "0000:41:00.0", "set": {"graphics_clock_step": 0}}]}',
        "gpu.0.graphics_clock_step does not fit the rest of the machine",
    ),
    (json.dumps({"gpus": ONE_GPU["gpus"] * 17}), "a machine has 1 to 16 GPUs, this one 17"),
    ('{"gpus": []}', "a machine has 1 to 16 GPUs, this one 0"),
]


@pytest.mark.parametrize(("text", "reason"), WRONG_MACHINES, ids=[reason for text, reason in WRONG_MACHINES])
def test_a_description_that_makes_no_sense_makes_no_machine(
    machine: Machine, tmp_path: Path, text: str, reason: str
) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    before = machine.state.read_bytes()
    assert reason in machine.refusal("create", path, "--force")
    assert machine.state.read_bytes() == before
