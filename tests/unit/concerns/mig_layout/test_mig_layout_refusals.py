# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input: what was given, the exact message that comes back, and that nothing changed."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome, refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.records import INTERRUPTED_RUN, NOTIFIED
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_layout_machine import (
    RECORD,
    declared,
    devices,
    params,
    ready,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_machine import (
    A100,
    ALL_SMALL,
    H100,
    LINKED_A100,
    MIXED,
    ONE,
    THREE,
    TWO,
    divide,
    layout_of,
    mode_of,
    whole,
)
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import FABRIC_MANAGER, GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

H100_HAS = "1g.10gb (19), 2g.20gb (14), 3g.40gb (9), 4g.40gb (5), 7g.80gb (0), 1g.10gb+me (20), 1g.20gb (15)"
ELEMENT = "Cannot use gpus[0].instances[0]: "
MAKE = "Cannot create gpus[0].instances[0] on gpu0: "
DIVIDE = "Cannot partition gpu0: "
NUMBER = "and must be a whole number from"
THE_H100 = "this NVIDIA H100 80GB HBM3"
BESIDE_3G = (
    "The nearest possible layout is 3g.40gb@4, and it leaves room for 4 x 1g.10gb or 2 x 2g.20gb or 1 x 3g.40gb or "
    "1 x 4g.40gb or 1 x 1g.10gb+me or 2 x 1g.20gb."
)
LOST = (
    "Cannot converge on gpu0: the GPU is lost: it has fallen off the bus or does not respond. Check the kernel log "
    "for its Xid; a reset, a reboot or a power cycle may bring it back."
)
HANGS = (
    "Cannot query the NVIDIA driver: it did not respond within 0.5 s. Check the kernel log for NVRM, and for "
    "processes in state D; the node may need a reboot."
)
ROOT_ONLY = (
    "Cannot query the NVIDIA driver: the driver allows this only for root. Run the task with become: true; in a "
    "container this also needs CAP_SYS_ADMIN."
)
TOO_OLD = f"{DIVIDE}the driver is older than R470, and does not report where an instance may lie. Update it."
PASSED_ON = "/sys/bus/pci/devices/0000:c1:00.0"
PASSED_ON_FILES = {f"{PASSED_ON}/vendor": "0x10de\n", f"{PASSED_ON}/class": "0x030200\n"}
IN_A_VIRTUAL_MACHINE = (
    "Cannot partition 0000:c1:00.0: gpus[0] (pci_address: 0000:c1:00.0) names it, and it is bound to vfio-pci: a "
    "virtual machine has it. Declare it inside that machine, or remove it from the match."
)


def unprepared(machine: GpuMachine) -> None:
    pass


def bind_to_vfio(machine: GpuMachine) -> None:
    """A GPU of this machine is one that a virtual machine has."""
    (machine.root / PASSED_ON.lstrip("/") / "driver").symlink_to("../../../../bus/pci/drivers/vfio-pci")


def unload_driver(machine: GpuMachine) -> None:
    bind_to_vfio(machine)
    machine.sim("unload-driver")


def not_root(machine: GpuMachine) -> None:
    machine.host.may_change = False


def first(**entry: Any) -> Dict[str, Any]:
    """An entry for the first GPU."""
    return {"match": {"index": 0}, **entry}


def one(profile: Any, **more: Any) -> Dict[str, Any]:
    """An entry for the first GPU with one element of ``instances``."""
    return first(instances=[{"profile": profile, **more} if more else profile])


def case(
    name: str,
    message: str,
    *gpus: Mapping[str, Any],
    kind: Sequence[str] = (H100,),
    files: Optional[Mapping[str, str]] = None,
    prepare: Callable[[GpuMachine], None] = unprepared,
    **options: Any,
) -> Any:
    return pytest.param(list(gpus), message, kind, files, prepare, options, id=name)


@pytest.mark.parametrize(
    ("gpus", "message", "kind", "files", "prepare", "options"),
    [
        # Profiles that there are not.
        case(
            "a profile that this GPU does not have",
            f"{MAKE}{THE_H100} has no profile 5g.40gb; it has {H100_HAS}.",
            one("5g.40gb"),
        ),
        case(
            "a typo",
            f"{MAKE}{THE_H100} has no profile 3g.40b; it has {H100_HAS}. Did you mean 3g.40gb?",
            one("3g.40b"),
        ),
        case(
            "the profile of another model",
            f"{MAKE}{THE_H100} has no profile 3g.71gb; it has {H100_HAS}. Did you mean 3g.40gb?",
            one("3g.71gb"),
        ),
        case("a number that is no profile's", f"{MAKE}{THE_H100} has no profile 77; it has {H100_HAS}.", one(77)),
        case(
            "a shorthand that only some GPUs have",
            "Cannot create gpus[0].instances[0] on gpu0: this NVIDIA A30 has no profile 7g; it has 1g.6gb (14), "
            "2g.12gb (5), 4g.24gb (0), 1g.6gb+me (21), 2g.12gb+me (6).",
            {"instances": ["7g"]},
            kind=("a30-4",),
        ),
        case(
            "a profile that is none",
            f"{ELEMENT}True is neither the name of a profile, such as 3g.40gb, nor its number.",
            one(True),
        ),
        case(
            "a profile that is a fraction",
            f"{ELEMENT}1.5 is neither the name of a profile, such as 3g.40gb, nor its number.",
            one(1.5),
        ),
        case(
            "a profile that is a list",
            f"{ELEMENT}['1g'] is neither the name of a profile, such as 3g.40gb, nor its number.",
            one(["1g"]),
        ),
        case(
            "a profile below zero",
            f"{ELEMENT}-1 is neither the name of a profile, such as 3g.40gb, nor its number.",
            one(-1),
        ),
        case(
            "a profile that was left empty",
            f"{ELEMENT}None is neither the name of a profile, such as 3g.40gb, nor its number.",
            one(None),
        ),
        case("no profile at all", f"{ELEMENT}it has no profile.", first(instances=[{"count": 2}])),
        case(
            "a placement in the name",
            f"{ELEMENT}a name has no placement, and this is '3g.40gb@4'. Write a dict, such as {{profile: 3g.40gb, "
            "placement: 4}.",
            one("3g.40gb@4"),
        ),
        case(
            "a typo in a key of an instance",
            f"{ELEMENT}there is no key placements. Did you mean placement?",
            one("1g", placements=2),
        ),
        # Counts.
        case("a count of zero", f"{ELEMENT}count is 0, {NUMBER} 1 to 64.", one("1g", count=0)),
        case("a count below zero", f"{ELEMENT}count is -1, {NUMBER} 1 to 64.", one("1g", count=-1)),
        case("a count in words", f"{ELEMENT}count is 'many', {NUMBER} 1 to 64.", one("1g", count="many")),
        case("a count that is a fraction", f"{ELEMENT}count is 1.5, {NUMBER} 1 to 64.", one("1g", count=1.5)),
        case("a count that is a truth", f"{ELEMENT}count is True, {NUMBER} 1 to 64.", one("1g", count=True)),
        case("a count that is a list", f"{ELEMENT}count is [1], {NUMBER} 1 to 64.", one("1g", count=[1])),
        case("a count in other digits", f"{ELEMENT}count is '²', {NUMBER} 1 to 64.", one("1g", count="²")),
        case(
            "a count beyond all measure",
            f"{ELEMENT}count is 1000000000000000000000, {NUMBER} 1 to 64.",
            one("1g", count=10**21),
        ),
        # Placements.
        case(
            "a placement that is not allowed",
            f"{MAKE}a 3g.40gb of {THE_H100} begins at memory slice 0 or 4 (wanted 2).",
            one("3g", placement=2),
        ),
        case("a placement below zero", f"{ELEMENT}placement is -4, {NUMBER} 0 to 64.", one("3g", placement=-4)),
        case(
            "a placement that is a truth", f"{ELEMENT}placement is True, {NUMBER} 0 to 64.", one("3g", placement=True)
        ),
        case("a placement in words", f"{ELEMENT}placement is 'left', {NUMBER} 0 to 64.", one("3g", placement="left")),
        case(
            "one placement for two",
            f"{ELEMENT}2 instances cannot begin at one placement. Write an element for each placement.",
            one("1g", placement=2, count=2),
        ),
        case(
            "placements that overlap",
            f"{DIVIDE}3g.40gb at memory slice 4 and 1g.10gb at 5 overlap; on {THE_H100} there is no room for 1 x "
            f"1g.10gb. {BESIDE_3G}",
            first(instances=[{"profile": "3g", "placement": 4}, {"profile": "1g", "placement": 5}]),
        ),
        case(
            "the same placement twice",
            f"{DIVIDE}3g.40gb at memory slice 4 and 3g.40gb at 4 overlap; on {THE_H100} there is no room for 1 x "
            f"3g.40gb. {BESIDE_3G}",
            first(instances=[{"profile": "3g", "placement": 4}] * 2),
        ),
        # Compute instances.
        case(
            "more compute instances than slices",
            f"{MAKE}a 3g.40gb has 3 compute slices, and its compute instances take 4.",
            one("3g", compute_instances=["1c"] * 4),
        ),
        case(
            "a compute instance that is too big", f"{MAKE}a 3g.40gb has 3 compute slices (wanted 4).", one("4c.3g.40gb")
        ),
        case(
            "a compute instance that there is not",
            f"{MAKE}a compute instance in a 7g.80gb takes 1, 2, 3, 4 or 7 slices (wanted 5).",
            one("5c.7g.80gb"),
        ),
        case(
            "a compute instance where none begins",
            "Cannot create gpus[0].instances[0].compute_instances[0] on gpu0: a compute instance of 2 compute slices "
            "in a 3g.40gb begins at 0 (wanted 1).",
            one("3g", compute_instances=[{"profile": "2c", "placement": 1}]),
        ),
        case(
            "compute instances that overlap",
            f"{DIVIDE}the compute instances do not fit into 3g.40gb; on {THE_H100} there is no room for 1 x 3g.40gb. "
            "The nearest possible layout is none, and it leaves room for 7 x 1g.10gb or 3 x 2g.20gb or 2 x 3g.40gb "
            "or 1 x 4g.40gb or 1 x 7g.80gb or 1 x 1g.10gb+me or 4 x 1g.20gb.",
            one("3g", compute_instances=[{"profile": "2c", "placement": 0}, {"profile": "1c", "placement": 1}]),
        ),
        case(
            "the compute instance of another profile",
            "Cannot create gpus[0].instances[0].compute_instances[0] on gpu0: 1c.2g.20gb cannot be in a 3g.40gb.",
            one("3g", compute_instances=["1c.2g.20gb"]),
        ),
        case(
            "compute instances in two ways",
            f"{ELEMENT}its profile names a compute instance, and compute_instances others. Remove one.",
            one("1c.3g.40gb", compute_instances=["1c"]),
        ),
        case(
            "a compute instance of nothing",
            f"{ELEMENT}'1c' does not name its GPU instance. Write it as 1c.3g.40gb.",
            one("1c"),
        ),
        case(
            "a compute instance that is none",
            "Cannot use gpus[0].instances[0].compute_instances[0]: '3g' is not a compute instance. Write "
            "it as 1c or 1c.3g.40gb.",
            one("3g", compute_instances=["3g"]),
        ),
        case(
            "compute instances that are no list",
            f"{ELEMENT}compute_instances is '1c', and must be a list.",
            one("3g", compute_instances="1c"),
        ),
        # Layouts that do not fit.
        case(
            "too many slices",
            f"{DIVIDE}2 x 4g.40gb take 8 compute slices, and the GPU has 7; on {THE_H100} there is no room for 1 x "
            "4g.40gb. The nearest possible layout is 4g.40gb@0, and it leaves room for 3 x 1g.10gb or 1 x 2g.20gb or 1 "
            "x 3g.40gb or 1 x 1g.10gb+me or 2 x 1g.20gb.",
            first(instances=["4g", "4g"]),
        ),
        case(
            "too many of all",
            f"{DIVIDE}128 x 1g.10gb take 128 compute slices, and the GPU has 7; on {THE_H100} there is no room for 121 "
            "x 1g.10gb. The nearest possible layout is 1g.10gb@0-6.",
            first(instances=[{"profile": "1g", "count": 64}] * 2),
        ),
        case(
            "enough slices, and no place",
            f"{DIVIDE}no placement has room for all of them; on {THE_H100} there is no room for 1 x 1g.10gb. The "
            "nearest possible layout is 3g.40gb@0,4.",
            first(instances=["3g", "3g", "1g"]),
        ),
        case(
            "a profile that there can be once",
            f"{DIVIDE}2 x 1g.10gb+me are declared, and the GPU has room for 1; on {THE_H100} there is no room for 1 x "
            "1g.10gb+me. The nearest possible layout is 1g.10gb+me@0, and it leaves room for 6 x 1g.10gb or 2 x "
            "2g.20gb or 1 x 3g.40gb or 3 x 1g.20gb.",
            one("1g+me", count=2),
        ),
        # Named layouts, and what excludes what.
        case(
            "a layout that there is not",
            f"Cannot create gpus[0] on gpu0: {THE_H100} has no layout all-1, but all-1g, all-2g, all-3g, all-4g, "
            "all-7g, whole, balanced. Did you mean all-1g?",
            first(layout="all-1"),
        ),
        case(
            "a layout that only some GPUs have",
            "Cannot create gpus[0] on gpu0: this NVIDIA A30 has no layout all-3g, but all-1g, all-2g, all-4g, whole, "
            "balanced.",
            {"layout": "all-3g"},
            kind=("a30-4",),
        ),
        case(
            "an empty layout",
            "Cannot use gpus[0] (index: 0): layout is empty. Name one, such as all-1g, or leave it out.",
            first(layout=" "),
        ),
        case(
            "both layout and instances",
            "Cannot use gpus[0] (index: 0): layout and instances are mutually exclusive. Remove one of them.",
            first(layout="all-1g", instances=[]),
        ),
        case(
            "instances without MIG",
            "Cannot use gpus[0] (index: 0): it declares instances, and with mig: disabled there are none. "
            "Remove that, or set mig: enabled.",
            first(mig="disabled", instances=[]),
        ),
        case(
            "a layout without MIG",
            "Cannot use gpus[0] (index: 0): it declares layout, and with mig: disabled there are none. "
            "Remove that, or set mig: enabled.",
            first(mig="disabled", layout="all-1g"),
        ),
        case(
            "a mode as YAML mangles it",
            "Cannot read the declaration of mig_layout: value of mig must be one of: enabled, disabled, got: True "
            "found in gpus.",
            first(mig=True),
        ),
        # GPUs.
        case(
            "an entry that is shadowed by an earlier one",
            "Cannot apply gpus[1] (index: 0): gpu0 matched earlier gpus[0] (which matches everything). Put "
            "the entry before them, or set optional: true.",
            {"layout": "all-1g"},
            first(layout="whole"),
        ),
        case(
            "a GPU that there is not",
            "Cannot apply gpus[0] (index: 9): it matches no device; there is gpu0, gpu1, gpu2, gpu3, gpu4, "
            "gpu5, gpu6, gpu7. Correct the match, or set optional: true.",
            {"match": {"index": 9}, "layout": "all-1g"},
        ),
        case(
            "the UUID of a MIG device",
            "Cannot use gpus[0]: MIG-5ab4b5d4-1234-5678-9abc-def012345678 is a MIG device, and the setting "
            "belongs to a whole GPU. Write the UUID of its GPU, which begins with GPU-.",
            {"match": {"uuid": "MIG-5ab4b5d4-1234-5678-9abc-def012345678"}},
        ),
        case(
            "a GPU without MIG",
            f"{DIVIDE}gpus[0] (which matches everything) sets mig: enabled, and a NVIDIA L40S has no MIG (not "
            "supported by this GPU). Remove it from the match, or give it an entry of its own with mig: disabled.",
            {},
            kind=("l40s-1",),
        ),
        case(
            "a GPU that a virtual machine has",
            IN_A_VIRTUAL_MACHINE,
            {"match": {"pci_address": "0000:C1:00.0"}, "layout": "all-1g"},
            files=PASSED_ON_FILES,
            prepare=bind_to_vfio,
        ),
        case(
            "a GPU that a virtual machine has, on a machine that has no other",
            IN_A_VIRTUAL_MACHINE,
            {"match": {"pci_address": "c1:00.0"}, "layout": "all-1g"},
            files=PASSED_ON_FILES,
            prepare=unload_driver,
        ),
        case(
            "another entry that wins nothing, where a virtual machine has a GPU",
            "Cannot apply gpus[2] (index: 9): it matches no device; there is gpu0, gpu1, gpu2, gpu3, gpu4, "
            "gpu5, gpu6, gpu7. Correct the match, or set optional: true.",
            {"match": {"pci_address": "0000:c1:*"}, "optional": True},
            {"match": {"pci_address": "0000:*:00.0"}},
            {"match": {"index": 9}},
            files=PASSED_ON_FILES,
            prepare=bind_to_vfio,
        ),
        # Drivers of the past.
        case(
            "a profile that there is not, while the driver tells none",
            f"{MAKE}{THE_H100} has no profile 3g.90gb; it has 1g.10gb (19), 1g.10gb+me (20), 1g.20gb (15), "
            "2g.20gb (14), 3g.40gb (9), 4g.40gb (5), 7g.80gb (0). Did you mean 3g.40gb?",
            one("3g.90gb"),
            kind=(H100, "--driver", "535.104.05"),
        ),
        case(
            "too much, while the driver tells no profiles",
            f"{DIVIDE}no placement has room for all of them; on {THE_H100} there is no room for 1 x 1g.10gb. The "
            "nearest possible layout is 3g.40gb@0,4.",
            first(instances=["3g", "3g", "1g"]),
            kind=(H100, "--driver", "535.104.05"),
        ),
        case(
            "a 3g beside a 4g, with a driver that does not allow it",
            f"{DIVIDE}this driver does not create 4g.40gb beside 3g.40gb; on this NVIDIA A100-SXM4-80GB there is no "
            "room for 1 x 3g.40gb. The nearest possible layout is 4g.40gb@0, and it leaves room for 3 x 1g.10gb "
            "or 1 x 1g.10gb+me or 2 x 1g.20gb or 1 x 2g.20gb.",
            first(instances=["3g", "4g"]),
            kind=(A100, "--driver", "470.57.02"),
            files=FABRIC_MANAGER,
        ),
        case(
            "a driver that does not know the GPU's MIG",
            f"{DIVIDE}gpus[0] (index: 0) sets mig: enabled, and a NVIDIA H100 80GB HBM3 has no MIG (not supported by "
            "this GPU). Remove it from the match, or give it an entry of its own with mig: disabled.",
            first(),
            kind=(H100, "--driver", "470.57.02"),
        ),
        case(
            "a driver that tells no places",
            TOO_OLD,
            one("3g"),
            kind=(A100, "--driver", "450.80.02"),
            files=FABRIC_MANAGER,
        ),
        case(
            "a driver that tells no places, with MIG on",
            TOO_OLD,
            first(layout="all-1g"),
            kind=(A100, "--driver", "460.27.04"),
            files=FABRIC_MANAGER,
            prepare=lambda machine: divide(machine, 0, ()),
        ),
        # The other options, and who asks.
        case(
            "a service that is none",
            "Cannot use stop_services: 'dcgm' is not the name of a service. Write it as systemctl shows it, "
            "such as nvidia-dcgm.service.",
            first(),
            stop_services=["dcgm"],
        ),
        case(
            "a time below zero",
            "Cannot use busy_timeout: it is below zero (wanted -1).",
            first(),
            when_busy="wait",
            busy_timeout=-1,
        ),
        case(
            "another way to go on",
            "Cannot read the declaration of mig_layout: value of when_busy must be one of: fail, wait, skip, got: "
            "kill.",
            first(),
            when_busy="kill",
        ),
        case(
            "an option that there is not",
            "Cannot read the declaration of mig_layout: unsupported option gpus.profiles. Supported parameters "
            "include: instances, layout, match, mig, optional.",
            first(profiles=["1g"]),
        ),
        case(
            "somebody who is not root",
            "Cannot change mig_layout: not running as root. Run the task with become: true.",
            first(layout="all-1g"),
            prepare=not_root,
        ),
    ],
)
def test_a_declaration_is_refused_before_anything_changes(
    gpu_machine: MakeMachine,
    gpus: Any,
    message: str,
    kind: Sequence[str],
    files: Optional[Mapping[str, str]],
    prepare: Callable[[GpuMachine], None],
    options: Dict[str, Any],
) -> None:
    machine = ready(gpu_machine, *kind, files=files)
    prepare(machine)
    machine.host.nvml.close()
    machine.clear_logs()
    before = snapshot(machine.root, leave_out=())
    with pytest.raises(GpuFleetError) as caught:
        run(machine, *gpus, **options)
    assert str(caught.value) == message
    assert (snapshot(machine.root, leave_out=()), machine.log()) == (before, [])


def test_gpus_that_have_to_be_reset_together_are_left_alone_where_nothing_resets_them(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, LINKED_A100)
    del machine.host.commands.programs["nvidia-smi"]
    before = snapshot(machine.root)
    predicted = run(machine, first(layout="all-1g"), check_mode=True)
    with pytest.raises(GpuFleetError) as caught:
        run(machine, first(layout="all-1g"))
    assert str(predicted.error) == str(caught.value)
    assert str(caught.value) == (
        "Cannot reset gpu0: NVLink connects it with others that have to be reset with it, which nvidia-smi "
        "does, and there is none on this node. Install the driver package that has it."
    )
    assert (snapshot(machine.root), machine.log()) == (before, [])


# --- drivers of the past ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [H100, A100])
def test_what_is_predicted_while_the_driver_tells_no_profiles_comes_true(gpu_machine: MakeMachine, kind: str) -> None:
    machine = ready(gpu_machine, kind, "--driver", "535.104.05", files=FABRIC_MANAGER)
    entry = first(instances=["2g.20gb", "1c.3g.40gb", "1g"])
    predicted = run(machine, entry, check_mode=True)
    outcome = run(machine, entry)
    assert (outcome.error, outcome.changes) == (None, predicted.changes)
    assert devices(machine)[0] == ["1c.3g.40gb", "1g.10gb", "2g.20gb"]
    assert run(machine, entry).status == "in_sync"


@pytest.mark.parametrize("driver", ["470.57.02", "510.39.01"])
def test_a_driver_that_has_other_names_divides_as_predicted(gpu_machine: MakeMachine, driver: str) -> None:
    machine = ready(gpu_machine, A100, "--driver", driver, files=FABRIC_MANAGER)
    entry = first(instances=["2g.20gb", "3g.40gb", "1g"])
    predicted = run(machine, entry, check_mode=True)
    assert run(machine, entry).error is None
    texts = [change.after for change in predicted.changes if change.setting == "instances"]
    assert texts == ["3g.40gb@0 2g.20gb@4 1g.10gb@6"] * 2
    assert layout_of(machine) == (whole(0, THREE), whole(4, TWO), whole(6, ONE))
    assert run(machine, entry).status == "in_sync"


def test_mode_alone_can_be_declared_with_a_driver_that_tells_no_places(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, A100, "--driver", "450.80.02", files=FABRIC_MANAGER)
    for entry, expected in ((first(), True), (first(instances=[]), True), (first(mig="disabled"), False)):
        assert run(machine, entry).error is None
        assert mode_of(machine) == (expected, expected)


# --- a driver that does not respond -----------------------------------------------------------------------------------


def look(machine: GpuMachine, *gpus: Mapping[str, Any], check_mode: bool = False, **connection: Any) -> Outcome:
    machine.connect(**connection)
    try:
        return converge(CONCERN, params(*gpus), machine.host, check_mode=check_mode)
    finally:
        machine.host.nvml.close()


@pytest.mark.parametrize(
    "symbol",
    ["nvmlDeviceGetMigMode", "nvmlDeviceGetVirtualizationMode", "nvmlDeviceGetComputeRunningProcesses_v3"],
)
def test_a_driver_that_hangs_during_the_look_leaves_the_machine_unknown(gpu_machine: MakeMachine, symbol: str) -> None:
    machine = ready(gpu_machine)
    machine.sim("hang", symbol)
    before = snapshot(machine.root, leave_out=())
    with pytest.raises(GpuFleetError) as caught:
        look(machine, first(layout="all-1g"), deadline=0.5)
    assert (str(caught.value), refused(caught.value).status) == (HANGS, "unknown")
    assert (snapshot(machine.root, leave_out=()), machine.log()) == (before, [])
    machine.sim("heal")


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_look_takes_root_and_says_so(
    gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch, check_mode: bool
) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL})
    monkeypatch.setenv("NVML_SIM_EUID", "1000")
    before = snapshot(machine.root, leave_out=())
    with pytest.raises(GpuFleetError) as caught:
        look(machine, first(layout="all-1g"), check_mode=check_mode)
    assert (str(caught.value), refused(caught.value).status) == (ROOT_ONLY, "unknown")
    assert (snapshot(machine.root, leave_out=()), machine.log()) == (before, [])


def test_a_lost_gpu_fails_the_run_after_the_others_have_their_layout(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "a30-4", layouts={})
    machine.sim("lose", 1)
    for expected in ("drifted", "drifted"):
        outcome = run(machine, {"layout": "all-2g"})
        assert (str(outcome.error), outcome.status) == (LOST.replace("gpu0", "gpu1"), expected)
    machine.sim("find", 1)
    assert [gpu["mig"] for gpu in machine.describe()["gpus"]] == [1, 0, 1, 1]
    assert run(machine, {"layout": "all-2g"}).error is None
    assert devices(machine) == [["2g.12gb"] * 2] * 4


def test_a_gpu_that_is_lost_in_the_middle_is_named_and_others_are_not_touched(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL, 1: ALL_SMALL})
    machine.sim("fail", "nvmlGpuInstanceDestroy", "NVML_ERROR_GPU_IS_LOST", 1)
    outcome = run(machine, {"match": {"index": [0, 1]}, "instances": ["7g"]})
    assert "gpu0" in str(outcome.error)
    assert "gpu0 has its previous layout again: 1g.10gb@0-6" in str(outcome.error)
    assert (layout_of(machine), layout_of(machine, 1)) == (ALL_SMALL, ALL_SMALL)
    assert declared(machine) is None


# --- records that are damaged -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 9}', '{"schema": 1, "gpus": {"GPU-1": 7}}', "\0"])
@pytest.mark.parametrize("path", [RECORD, NOTIFIED])
def test_a_damaged_record_of_layouts_or_of_who_must_hear_is_written_anew(
    gpu_machine: MakeMachine, path: str, text: str
) -> None:
    machine = ready(gpu_machine, "a30-4", layouts={}, files={path: text})
    outcome = run(machine, first(layout="all-2g"))
    assert outcome.error is None, outcome.error
    assert devices(machine)[0] == ["2g.12gb"] * 2
    assert json.loads(machine.host.files.read(RECORD))["gpus"][machine.gpu(0)["uuid"]] == "2g.12gb@0,2"
    again = run(machine, first(layout="all-2g"))
    assert (again.status, again.changes) == ("in_sync", ())


def test_a_recorded_layout_that_this_gpu_cannot_have_is_no_guide(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    for text in ("9g.99gb@0", "3g.40gb@0-99", "7g.80gb@0 7g.80gb@0", ""):
        record = json.dumps({"schema": 1, "gpus": {machine.gpu(0)["uuid"]: text}})
        machine.host.files.replace(RECORD, record)
        assert run(machine, first(layout="balanced")).error is None
        assert devices(machine)[0] == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
        assert json.loads(machine.host.files.read(RECORD))["gpus"] != json.loads(record)["gpus"]
        assert run(machine, first(mig="disabled")).error is None


@pytest.mark.parametrize("entry", [first(layout="all-1g"), first(layout="balanced")], ids=["in_sync", "drifted"])
def test_a_damaged_transaction_is_named_and_no_gpu_is_touched(
    gpu_machine: MakeMachine, entry: Mapping[str, Any]
) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL}, files={INTERRUPTED_RUN: "{"})
    for check_mode in (True, False):
        with pytest.raises(CannotLook) as caught:
            run(machine, entry, check_mode=check_mode)
        assert str(caught.value) == (
            "Cannot read what an interrupted run left in /var/lib/gpufleet/mig_layout.transaction: "
            "the file is damaged: it is not JSON. Start the services that it may have stopped, look at MIG mode, "
            "instances and persistence mode of the GPUs, and remove it."
        )
    assert (layout_of(machine), machine.log(), machine.host.files.read(INTERRUPTED_RUN)) == (ALL_SMALL, [], "{")
    assert declared(machine) is None
    machine.host.files.remove(INTERRUPTED_RUN)
    assert run(machine, entry).error is None


# --- folders that nobody may write ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        (
            "/var",
            "Cannot write /var/lib/gpufleet/mig_layout.json: /var/lib/gpufleet is on a read-only file"
            " system, or is immutable (see lsattr -d). Make it writable: the original values and the program gpufleet"
            " are kept there.",
        ),
        (
            "/run",
            "Cannot write /run/gpufleet/lock: /run is on a read-only file system, or is immutable (see lsattr -d)."
            " Make it writable.",
        ),
    ],
)
def test_a_folder_that_nobody_may_write_keeps_every_gpu_as_it_is(
    gpu_machine: MakeMachine, folder: str, message: str
) -> None:
    machine = ready(gpu_machine, layouts={0: MIXED})
    machine.host.files.read_only = [folder]
    try:
        error = run(machine, first(layout="all-1g")).error
    except GpuFleetError as refusal:
        error = refusal
    assert str(error) == message
    assert (layout_of(machine), machine.log(), declared(machine)) == (MIXED, [], None)
    machine.host.files.read_only = []
    assert run(machine, first(layout="all-1g")).error is None


def test_a_record_for_the_boot_that_cannot_be_written_is_written_by_the_next_run(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: MIXED})
    machine.host.files.full = [RECORD]
    outcome = run(machine, first(layout="all-1g"))
    assert str(outcome.error) == f"Cannot write {RECORD}: No space left on device."
    # What is declared for the boot is written only after that.
    assert (layout_of(machine), declared(machine)) == (ALL_SMALL, None)
    machine.host.files.full = []
    machine.clear_logs()
    assert run(machine, first(layout="all-1g")).error is None
    assert (machine.log(), declared(machine) is None) == ([], False)
