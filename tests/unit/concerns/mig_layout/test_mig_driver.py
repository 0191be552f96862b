# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a look learns from the driver about MIG: profiles, placements, instances and modes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Answer, Driver
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.errors import LOST, NoDriver
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout import links
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.driver import (
    ATTRIBUTES,
    NOT_TOLD,
    TOO_OLD,
    MigReading,
    read,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.model import (
    PLAIN,
    Compute,
    Instance,
    Layout,
    Profile,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_machine import (
    A100,
    ALL_SMALL,
    H100,
    LINKED_A100,
    MIXED,
    ONE,
    THREE,
    divided,
    layout_of,
    numbers_of,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_tables import document, geometries
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import PATIENCE, quickest

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

# The profiles of each machine that ships, by the key of its table; the first GPU of each.
BOARDS = {
    "a30-4": "a30",
    A100: "a100-80",
    H100: "h100-80",
    "hgx-h200-141gb-8": "h200-141",
    "hgx-b200-8": "b200-180",
    "gb200-4": "gb200",
}
BUDGET_SECONDS = 0.015


def ask(machine: GpuMachine) -> Tuple[MigReading, ...]:
    machine.connect()
    return machine.host.nvml.ask(read)


@pytest.mark.parametrize("kind", BOARDS)
def test_profiles_are_those_that_nvidia_publishes(gpu_machine: MakeMachine, kind: str) -> None:
    first, *others = ask(gpu_machine(kind))
    assert first.geometry is not None
    published = geometries()[BOARDS[kind]].profiles
    assert sorted(first.geometry.profiles, key=number) == sorted(published, key=number)
    assert all(other.geometry == first.geometry for other in others)
    assert first.lacking == ""


def number(profile: Profile) -> int:
    return profile.number


def test_what_a_profile_has_besides_its_slices_follows_from_its_constant() -> None:
    for gpu in document()["gpus"]:
        for entry in gpu["profiles"]:
            assert ATTRIBUTES.get(entry["nvml_enum"], PLAIN) == "".join(entry["attributes"]), entry["name"]


def test_a_reading_has_what_a_plan_needs_to_know_of_a_gpu(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, "mixed", layouts={2: MIXED}, persistence=True)
    machine.sim("set", 1, "mig_pending=1", "persistence=0")
    ampere, pending, hopper, _other = ask(machine)
    assert [reading.gpu.name for reading in (ampere, pending, hopper)] == ["gpu0", "gpu1", "gpu2"]
    assert (ampere.mode, pending.mode, hopper.mode) == ((False, False), (False, True), (True, True))
    assert (ampere.resetless, hopper.resetless) == (False, True)
    assert (ampere.device_id, hopper.device_id) == (0x20B2, 0x2330)
    assert (ampere.minor, hopper.minor) == (0, 2)
    assert (ampere.persistence, pending.persistence) == (True, False)
    assert (ampere.layout, hopper.layout) == ((), MIXED)


def test_a_driver_that_does_not_know_the_field_is_told_by_the_architecture(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine("mixed")
    machine.sim("hide", "nvmlDeviceGetFieldValues")
    assert [reading.resetless for reading in ask(machine)] == [False, False, True, True]


@pytest.mark.parametrize(
    "layout",
    [
        (),
        ALL_SMALL,
        MIXED,
        (Instance(0, THREE, (Compute(0, 2), Compute(2, 1))), Instance(4, THREE, (Compute(1, 1),))),
        (Instance(2, ONE, ()), Instance(4, THREE, ())),
    ],
    ids=["none", "small", "mixed", "shared", "orphans"],
)
def test_instances_are_seen_with_and_without_compute_instances(gpu_machine: MakeMachine, layout: Layout) -> None:
    machine = divided(gpu_machine, layouts={0: tuple(reversed(layout))})
    first = ask(machine)[0]
    assert first.layout == layout == layout_of(machine)
    assert {(one.instance.start, one.instance.profile): one.number for one in first.instances} == numbers_of(machine)
    assert [len(one.compute_numbers) for one in first.instances] == [len(one.compute) for one in layout]


def test_compute_numbers_stand_in_the_order_of_the_compute_instances(gpu_machine: MakeMachine) -> None:
    # The driver numbers them in the order in which they were made.
    machine = divided(gpu_machine, layouts={0: (Instance(0, THREE, (Compute(2, 1), Compute(0, 2))),)})
    (only,) = ask(machine)[0].instances
    assert (only.instance.compute, only.compute_numbers) == ((Compute(0, 2), Compute(2, 1)), (1, 0))


def test_halves_that_are_numbered_the_other_way_round_are_the_same_layout(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, layouts={0: MIXED, 1: MIXED})
    first, second = ask(machine)[:2]
    assert first.layout == second.layout == MIXED
    assert [one.number for one in first.instances] != [one.number for one in second.instances]


# --- what is not there ------------------------------------------------------------------------------------------------


def test_a_gpu_without_mig_says_so(gpu_machine: MakeMachine) -> None:
    (only,) = ask(gpu_machine("l40s-1"))
    assert (only.mode, only.geometry, only.layout) == (None, None, ())
    assert only.lacking == "not supported by this GPU"
    assert only.gpu.lost == ""
    assert only.minor == 0


@pytest.mark.parametrize(
    ("code", "words"), [("NVML_ERROR_UNKNOWN", "unknown error (999)"), (16, "gpu requires restart (16)")]
)
def test_a_gpu_that_does_not_tell_its_mode_may_have_mig(gpu_machine: MakeMachine, code: object, words: str) -> None:
    machine = divided(gpu_machine, layouts={0: MIXED, 1: MIXED})
    machine.sim("fail", "nvmlDeviceGetMigMode", code)
    first, second, *_others = ask(machine)
    assert first.gpu.lost == first.lacking == f"the GPU does not respond: the driver returned {words}"
    assert (second.gpu.lost, second.layout) == ("", MIXED)


def test_a_driver_that_does_not_know_mig_has_none(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine()
    machine.sim("hide", "nvmlDeviceGetMigMode")
    first = ask(machine)[0]
    assert (first.mode, first.lacking, first.gpu.lost) == (None, "this driver is too old for it", "")


def test_an_instance_that_goes_while_it_is_read_makes_no_gpu_lost(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, layouts={0: MIXED})
    machine.sim("fail", "nvmlGpuInstanceGetInfo", "NVML_ERROR_NOT_FOUND", 1)
    assert (ask(machine)[0].gpu.lost, ask(machine)[0].layout) == ("", MIXED)
    machine.sim("fail", "nvmlGpuInstanceGetInfo", "NVML_ERROR_NOT_FOUND", 2)
    assert ask(machine)[0].gpu.lost == "the GPU does not respond: the driver returned not found (6)"


def test_a_driver_that_tells_profiles_only_while_mig_is_on_is_read_all_the_same(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, H100, "--driver", "535.54.03", layouts={0: ALL_SMALL})
    on, off = ask(machine)[:2]
    assert (on.layout, on.lacking) == (ALL_SMALL, "")
    assert (off.mode, off.geometry, off.lacking) == ((False, False), None, NOT_TOLD)


def test_profiles_without_a_name_get_the_one_of_newer_drivers(gpu_machine: MakeMachine) -> None:
    for kind, key, count in ((A100, "a100-80", 6), ("a30-4", "a30", 4)):
        machine = divided(gpu_machine, kind, "--driver", "470.57.02", layouts={0: ()})
        first = ask(machine)[0]
        assert first.geometry is not None
        published = {profile.number: profile.name for profile in geometries()[key].profiles}
        named = {profile.number: profile.name for profile in first.geometry.profiles}
        assert named == {number: published[number] for number in named}
        assert len(named) == count


def test_an_old_driver_names_its_profiles_itself(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, "--driver", "515.43.04", layouts={0: ()})
    geometry = ask(machine)[0].geometry
    assert geometry is not None
    assert {profile.name for profile in geometry.profiles if profile.number in (0, 9)} == {"7g.79gb", "3g.39gb"}


@pytest.mark.parametrize(("driver", "beside"), [("470.57.02", False), ("510.39.01", True)])
def test_the_driver_says_whether_a_3g_goes_beside_a_4g(gpu_machine: MakeMachine, driver: str, beside: bool) -> None:
    machine = divided(gpu_machine, A100, "--driver", driver, layouts={0: ()})
    geometry = ask(machine)[0].geometry
    assert geometry is not None
    assert geometry.three_beside_four is beside


def test_a_driver_too_old_to_tell_placements_tells_instances(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, "--driver", "460.27.04")
    machine.sim("set", 0, "mig=1", "mig_pending=1")
    machine.host.nvml.ask(create_anywhere, ONE)
    first = ask(machine)[0]
    assert (first.geometry, first.lacking) == (None, TOO_OLD)
    assert [(one.profile, one.compute) for one in first.layout] == [(ONE, (Compute(0, 1),))]


def create_anywhere(driver: Driver, profile: int) -> None:
    nvml, gpu = driver.nvml, driver.gpus()[0].handle
    nvml.nvmlGpuInstanceCreateComputeInstance(nvml.nvmlDeviceCreateGpuInstance(gpu, profile), 0)


@pytest.mark.parametrize(
    "symbol",
    [
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetGpuInstanceProfileInfoV",
        "nvmlGpuInstanceGetInfo",
        "nvmlDeviceGetPciInfo_v3",
    ],
)
def test_a_gpu_that_is_lost_in_the_middle_is_lost_and_the_others_are_read(
    gpu_machine: MakeMachine, symbol: str
) -> None:
    machine = divided(gpu_machine, layouts={0: MIXED, 1: MIXED})
    identified = symbol == "nvmlDeviceGetPciInfo_v3"
    machine.sim("fail", symbol, "NVML_ERROR_GPU_IS_LOST", 1, "--after", 8 if identified else 0)
    first, second, *_others = ask(machine)
    assert (first.gpu.lost, first.lacking, first.mode, first.layout) == (LOST, LOST, None, ())
    assert first.gpu.uuid == machine.gpu(0)["uuid"]
    assert (second.gpu.lost, second.layout) == ("", MIXED)


def test_a_gpu_that_was_lost_before_is_among_them(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine()
    machine.sim("lose", 3)
    readings = ask(machine)
    assert [reading.gpu.lost for reading in readings] == [LOST if index == 3 else "" for index in range(8)]
    assert readings[3] == MigReading(readings[3].gpu, lacking=LOST)


def test_a_gpu_that_answers_an_unknown_error_does_not_answer(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, layouts={0: MIXED, 1: MIXED})
    machine.sim("fail", "nvmlGpuInstanceGetInfo", "NVML_ERROR_UNKNOWN", 1)
    first, second, *_others = ask(machine)
    assert first.gpu.lost == "the GPU does not respond: the driver returned unknown error (999)"
    assert second.layout == MIXED


@pytest.mark.parametrize("layouts", [{}, {0: MIXED}], ids=["off", "on"])
def test_who_is_not_root_does_not_know(
    gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch, layouts: Dict[int, Layout]
) -> None:
    machine = divided(gpu_machine, layouts=layouts)
    monkeypatch.setenv("NVML_SIM_EUID", "1000")
    with pytest.raises(CannotLook, match=r"the driver allows this only for root.*become: true"):
        ask(machine)


def test_a_driver_that_goes_in_the_middle_is_no_driver(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine()
    machine.sim("fail", "nvmlDeviceGetGpuInstanceProfileInfoV", "NVML_ERROR_DRIVER_NOT_LOADED")
    with pytest.raises(NoDriver):
        ask(machine)


# --- which GPUs are reset together ------------------------------------------------------------------------------------


def test_gpus_that_are_linked_are_known_also_where_the_driver_does_not_tell_what_is_at_the_other_end(
    gpu_machine: MakeMachine,
) -> None:
    machine = gpu_machine(LINKED_A100)
    told = links.read_links(machine.host).together
    machine.sim("hide", "nvmlDeviceGetNvLinkRemoteDeviceType")
    machine.connect()
    assert links.read_links(machine.host).together == told
    assert {len(group) for group in told.values()} == {4}


class Linked:
    """A GPU with one link, of which the driver says this."""

    def __init__(self, kind: Optional[int], address: str) -> None:
        self.kind, self.address = kind, address

    def read(self, function: str, link: int) -> Answer[Any]:
        answers = {
            "nvmlDeviceGetNvLinkState": int(link == 0),
            "nvmlDeviceGetNvLinkRemoteDeviceType": self.kind,
            "nvmlDeviceGetNvLinkRemotePciInfo": SimpleNamespace(busId=self.address),
        }
        return Answer(answers[function])


@pytest.mark.parametrize("kind", [None, 255])
@pytest.mark.parametrize(("address", "ends"), [("00000000:17:00.0", ["0000:17:00.0"]), ("00000000:E0:00.0", [])])
def test_an_unknown_other_end_is_a_neighbour_where_it_is_one_of_our_gpus(
    kind: Optional[int], address: str, ends: List[str]
) -> None:
    gpu: Any = Linked(kind, address)
    assert links._ends(gpu, ["0000:16:00.0", "0000:17:00.0"]) == ends


# --- cost -------------------------------------------------------------------------------------------------------------


def test_eight_gpus_of_seven_instances_are_read_within_the_budget(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, layouts=dict.fromkeys(range(8), ALL_SMALL))
    seconds, readings = machine.host.nvml.ask(timed)
    assert [reading.layout for reading in readings] == [ALL_SMALL] * 8
    assert seconds < BUDGET_SECONDS * PATIENCE
    assert machine.log() == []


def timed(driver: Driver) -> Tuple[float, Tuple[MigReading, ...]]:
    """A question: how much of the processor the reading takes, and what it is."""
    return quickest(lambda: read(driver)), read(driver)
