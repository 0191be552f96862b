# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input: what was given, the exact message that comes back, and that nothing changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_settings.gpu_settings_machine import (
    DECLARED,
    H100,
    ready,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

NO_LIBRARY = (
    "Cannot query the NVIDIA driver: there is no libnvidia-ml.so.1 ({why}). Install the NVIDIA driver, or declare no "
    "GPU settings for this node."
)
ALL_EIGHT = "gpu0, gpu1, gpu2, gpu3, gpu4, gpu5, gpu6, gpu7"


def unpatched(machine: GpuMachine) -> None:
    pass


def without_ecc(machine: GpuMachine) -> None:
    # The getter of a GPU that has none.
    machine.sim("fail", "nvmlDeviceGetEccMode", "NVML_ERROR_NOT_SUPPORTED", 0)


def without_power_limit(machine: GpuMachine) -> None:
    machine.sim("fail", "nvmlDeviceGetPowerManagementLimit", "NVML_ERROR_NOT_SUPPORTED", 0)


def not_root(machine: GpuMachine) -> None:
    machine.host.may_change = False


def case(
    name: str,
    message: str,
    *gpus: Dict[str, Any],
    kind: str = H100,
    prepare: Callable[[GpuMachine], None] = unpatched,
    **shared: Any,
) -> Any:
    return pytest.param(list(gpus), message, kind, prepare, shared, id=name)


@pytest.mark.parametrize(
    ("gpus", "message", "kind", "prepare", "shared"),
    [
        case(
            "an index that there is not",
            "Cannot apply gpus[0] (index: 8): it matches no device; there is gpu0, gpu1, gpu2, gpu3, gpu4, "
            "gpu5, gpu6, gpu7. Correct the match, or set optional: true.",
            {"match": {"index": 8}, "power_limit_watts": 500},
        ),
        case(
            "a UUID that there is not",
            "Cannot apply gpus[0] (uuid: GPU-00000000-0000-0000-0000-000000000000): it matches no device; "
            "there is gpu0. Correct the match, or set optional: true.",
            {"match": {"uuid": "GPU-00000000-0000-0000-0000-000000000000"}, "power_limit_watts": 300},
            kind="l40s-1",
        ),
        case(
            "the UUID of a MIG device",
            "Cannot use gpus[0]: MIG-5ab4b5d4-1234-5678-9abc-def012345678 is a MIG device, and the setting "
            "belongs to a whole GPU. Write the UUID of its GPU, which begins with GPU-.",
            {"match": {"uuid": "MIG-5ab4b5d4-1234-5678-9abc-def012345678"}, "ecc": "enabled"},
        ),
        case(
            "an entry whose GPUs were taken",
            "Cannot apply gpus[1] (index: 1): gpu1 matched earlier gpus[0] (which matches everything). Put "
            "the entry before them, or set optional: true.",
            {"power_limit_watts": 500},
            {"match": {"index": 1}, "power_limit_watts": 600},
        ),
        case(
            "a typo in a key",
            "Cannot use gpus[0]: there is no key modell. Did you mean model?",
            {"match": {"modell": "NVIDIA*"}},
        ),
        case(
            "more watts than the GPU takes, after GPUs for which all is well",
            "Cannot set power_limit_watts on gpu7: this NVIDIA H100 80GB HBM3 takes 200 to 700 W (found 700, wanted "
            "701).",
            {"match": {"index": 7}, "power_limit_watts": 701},
            {"power_limit_watts": 500},
        ),
        case(
            "fewer watts than the GPU takes",
            "Cannot set power_limit_watts on gpu0: this NVIDIA L40S takes 100 to 350 W (found 350, wanted 99).",
            {"power_limit_watts": 99},
            kind="l40s-1",
        ),
        case(
            "a limit that only some GPUs take",
            "Cannot set power_limit_watts on gpu0: this NVIDIA A100-SXM4-80GB takes 100 to 400 W (found 400, wanted "
            "500).",
            {"power_limit_watts": 500},
            kind="mixed",
        ),
        case(
            "watts with a unit",
            "Cannot set power_limit_watts on gpus[0]: '500W' is neither a whole number of watts nor default.",
            {"power_limit_watts": "500W"},
        ),
        case(
            "watts that YAML took for a truth",
            "Cannot set power_limit_watts on gpus[0]: 'False' is neither a whole number of watts nor default.",
            {"power_limit_watts": False},
        ),
        case(
            "a graphics clock above the highest",
            "Cannot set locked_graphics_clocks on gpu0: this NVIDIA H100 80GB HBM3 runs at 345 to 1980 MHz (wanted "
            "1200-2000).",
            {"locked_graphics_clocks": "1200-2000"},
        ),
        case(
            "a graphics clock below the lowest",
            "Cannot set locked_graphics_clocks on gpu0: this NVIDIA H100 80GB HBM3 runs at 345 to 1980 MHz (wanted "
            "0-1980).",
            {"locked_graphics_clocks": "0-1980"},
        ),
        case(
            "a memory clock between two",
            "Cannot set locked_memory_clocks on gpu0: the memory of this NVIDIA H100 80GB HBM3 runs at 1593, 2619 MHz "
            "(wanted 1600-2619). Take 1593 instead of 1600.",
            {"locked_memory_clocks": "1600-2619"},
        ),
        case(
            "clocks the wrong way round",
            "Cannot set locked_graphics_clocks on gpus[0]: in '1500-1200' the first clock is above the second.",
            {"locked_graphics_clocks": "1500-1200"},
        ),
        case(
            "clocks that are none",
            "Cannot set locked_graphics_clocks on gpus[0]: '1.5 GHz' is neither MIN-MAX in MHz, nor one number, nor "
            "default.",
            {"locked_graphics_clocks": "1.5 GHz"},
        ),
        case(
            "clocks that YAML took for a truth",
            "Cannot set locked_memory_clocks on gpus[0]: 'True' is neither MIN-MAX in MHz, nor one number, nor "
            "default.",
            {"locked_memory_clocks": True},
        ),
        case(
            "ECC as YAML mangles it",
            "Cannot read the declaration of gpu_settings: value of ecc must be one of: enabled, disabled, default, "
            "got: True found in gpus.",
            {"ecc": True},
        ),
        case(
            "a compute mode of the past",
            "Cannot read the declaration of gpu_settings: value of compute_mode must be one of: default, "
            "exclusive_process, prohibited, got: exclusive_thread found in gpus.",
            {"compute_mode": "exclusive_thread"},
        ),
        case(
            "ECC on a GPU without it",
            "Cannot set ecc on gpu0: NVIDIA L40S has none: not supported by this GPU (wanted enabled). Give this GPU "
            "an entry of its own without it.",
            {"ecc": "enabled"},
            kind="l40s-1",
            prepare=without_ecc,
        ),
        case(
            "strictly no ECC on a GPU that cannot have it",
            "Cannot set ecc on gpu0: not supported by this GPU. Leave it out, or set strict: false.",
            {"ecc": "disabled"},
            kind="l40s-1",
            prepare=without_ecc,
            strict=True,
        ),
        case(
            "strictly a power limit on a GPU without one",
            "Cannot set power_limit_watts on gpu0: not supported by this GPU. Leave it out, or set strict: false.",
            {"power_limit_watts": 300},
            kind="l40s-1",
            prepare=without_power_limit,
            strict=True,
        ),
        case(
            "somebody who is not root",
            "Cannot change gpu_settings: not running as root. Run the task with become: true.",
            {"power_limit_watts": 500},
            prepare=not_root,
        ),
    ],
)
def test_a_declaration_is_refused_before_anything_changes(
    gpu_machine: MakeMachine,
    gpus: Any,
    message: str,
    kind: str,
    prepare: Callable[[GpuMachine], None],
    shared: Dict[str, Any],
) -> None:
    machine = ready(gpu_machine, kind)
    prepare(machine)
    before = snapshot(machine.root, leave_out=())
    with pytest.raises(GpuFleetError) as caught:
        run(machine, *gpus, **shared)
    assert str(caught.value) == message
    assert (snapshot(machine.root, leave_out=()), machine.log()) == (before, [])


@pytest.mark.parametrize("value", ["disabled", "default"])
def test_what_a_gpu_does_not_have_is_unmanaged_with_the_reason(gpu_machine: MakeMachine, value: str) -> None:
    machine = ready(gpu_machine, "l40s-1")
    without_ecc(machine)
    without_power_limit(machine)
    outcome = run(machine, {"ecc": value, "power_limit_watts": 300, "compute_mode": "prohibited"})
    assert outcome.error is None
    assert [(entry["setting"], entry["reason"]) for entry in outcome.as_dict()["unmanaged"]] == [
        ("power_limit_watts", "not supported by this GPU"),
        ("ecc", "not supported by this GPU"),
    ]
    assert [symbol for symbol, _result in machine.log()] == ["nvmlDeviceSetComputeMode"]


@pytest.mark.parametrize(
    ("ready_for", "message"),
    [
        pytest.param(
            {"persistence": False},
            f"Cannot keep what is declared on {ALL_EIGHT}: persistence mode is off, and the driver drops clocks, "
            "power limit and compute mode when its last client exits. Run the role nvidia_persistence first, or "
            "declare default.",
            id="without persistence mode",
        ),
        pytest.param(
            {"boot_service": False},
            "Cannot keep what is declared across a reboot: the boot service is not installed. Run the role node_tools "
            "first, or set permanent: false.",
            id="without the boot service",
        ),
    ],
)
def test_a_value_that_would_not_last_is_not_set_though_check_mode_shows_the_plan(
    gpu_machine: MakeMachine, ready_for: Dict[str, Any], message: str
) -> None:
    machine = ready(gpu_machine, **ready_for)
    predicted = run(machine, {"power_limit_watts": 500}, check_mode=True)
    assert (predicted.error, predicted.changes[0].after) == (None, 500)
    assert [str(error) for error in predicted.remaining.refusals] == [message]
    outcome = run(machine, {"power_limit_watts": 500})
    assert (str(outcome.error), outcome.changes) == (message, ())
    assert (machine.log(), machine.host.files.exists(DECLARED)) == ([], False)


def test_a_value_that_is_there_and_would_be_lost_at_boot_is_refused_too(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1", boot_service=False)
    machine.sim("set", 0, "power_limit=300000")
    assert "the boot service is not installed" in str(run(machine, {"power_limit_watts": 300}).error)
    assert not machine.host.files.exists(DECLARED)


@pytest.mark.parametrize(
    ("files", "gpus", "status"),
    [
        pytest.param(
            {},
            [{"power_limit_watts": 500}],
            "unknown",
            id="settings are declared",
        ),
        pytest.param(
            {"vendor": "0x10de\n", "class": "0x030200\n"},
            [{"power_limit_watts": 500, "optional": True}],
            "drifted",
            id="every entry is optional, and the bus has a GPU",
        ),
    ],
)
def test_a_machine_without_the_driver_is_not_right(
    gpu_machine: MakeMachine, tmp_path: Path, files: Dict[str, str], gpus: Any, status: str
) -> None:
    machine = ready(
        gpu_machine,
        "l40s-1",
        files={f"/sys/bus/pci/devices/0000:17:00.0/{name}": text for name, text in files.items()},
    )
    before = snapshot(machine.root)
    library = str(tmp_path / "none.so")
    with pytest.raises(GpuFleetError) as caught:
        run(machine, *gpus, connection={"library": library})
    why = f"{library}: cannot open shared object file: No such file or directory"
    assert str(caught.value) == NO_LIBRARY.format(why=why)
    assert (refused(caught.value).status, snapshot(machine.root)) == (status, before)


def test_a_machine_without_driver_and_gpus_is_as_declared_when_every_entry_is_optional(
    gpu_machine: MakeMachine, tmp_path: Path
) -> None:
    machine = ready(gpu_machine, "l40s-1")
    outcome = run(
        machine, {"power_limit_watts": 500, "optional": True}, connection={"library": str(tmp_path / "none.so")}
    )
    assert (outcome.error, outcome.remaining.status, outcome.effective) == (None, "in_sync", {"gpus": {}})


def test_a_driver_that_hangs_is_left_behind_and_the_machine_is_unknown(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    machine.sim("hang", "nvmlDeviceGetPowerManagementLimit")
    with pytest.raises(GpuFleetError) as caught:
        run(machine, {"power_limit_watts": 300}, connection={"deadline": 0.5})
    assert str(caught.value) == (
        "Cannot query the NVIDIA driver: it did not respond within 0.5 s. Check the kernel log for NVRM, and for "
        "processes in state D; the node may need a reboot."
    )
    assert refused(caught.value).status == "unknown"
    machine.sim("heal")


def test_a_driver_that_hangs_while_it_sets_a_lock_leaves_no_lock_that_is_believed(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    run(machine, {"locked_graphics_clocks": "1200-1500"})
    machine.sim("hang", "nvmlDeviceSetGpuLockedClocks")
    outcome = run(machine, {"locked_graphics_clocks": "1300-1400"}, connection={"deadline": 2.0})
    assert outcome.error is not None
    assert "it did not respond within 2 s" in str(outcome.error)
    machine.sim("heal")
    assert run(machine, {"locked_graphics_clocks": "1200-1500"}).status == "drifted"
    assert run(machine, {"locked_graphics_clocks": "1200-1500"}).status == "in_sync"
