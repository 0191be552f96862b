# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where interrupts are placed, on machines as they are sold and against all that could be done on small ones."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random
from typing import Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.model import (
    ALL,
    Cpus,
    Interrupt,
    IrqDevice,
    IrqTarget,
    Placement,
    Processors,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.planner import plan_interrupts
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity import irq_topologies as machines
from ansible_collections.gpufleet.node.tests.unit.support import PATIENCE, quickest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.once

MACHINES = sorted(machines.EVERY)
# Their cores have different numbers of threads. A device that is added there can make a better spread possible.
UNEVEN = ("four threads", "sparse")

Loads = Tuple[int, ...]
Key = Tuple[str, str]


# --- what plans say ---------------------------------------------------------------------------------------------------


def local(devices: Sequence[IrqDevice]) -> List[IrqTarget]:
    return [IrqTarget(device=device, eligible=device.local) for device in devices]


def reserving(machine: Processors, devices: Sequence[IrqDevice], reserved: Cpus) -> List[IrqTarget]:
    return [IrqTarget(device=device, eligible=device.local - reserved) for device in devices]


def by_name(placements: Sequence[Placement]) -> Dict[Key, Cpus]:
    return {(placement.device.address, placement.interrupt.name): placement.cpus for placement in placements}


def only(cpus: Cpus) -> int:
    (cpu,) = cpus
    return cpu


def loads_of(placements: Sequence[Placement]) -> Mapping[int, int]:
    return Counter(only(placement.cpus) for placement in placements)


def numbers(placements: Sequence[Placement]) -> List[int]:
    return [only(placement.cpus) for placement in placements]


def as_placed(devices: Sequence[IrqDevice], placements: Sequence[Placement]) -> List[IrqDevice]:
    """The devices after the kernel did what the plan says."""
    cpus = {placement.interrupt.number: placement.cpus for placement in placements}
    return [
        replace(
            device,
            interrupts=tuple(replace(one, cpus=cpus.get(one.number, one.cpus)) for one in device.interrupts),
        )
        for device in devices
    ]


def on(machine: Processors, *present: Iterable[int], index: int = 0) -> IrqDevice:
    """A NIC, and the CPUs that each of its interrupts may be delivered to."""
    return machines.device(machine, index, node=0, queues=len(present), present=[frozenset(cpus) for cpus in present])


def moved(placements: Sequence[Placement]) -> List[Key]:
    """Interrupts that leave the one CPU they have."""
    return [
        (placement.device.address, placement.interrupt.name)
        for placement in placements
        if len(placement.interrupt.cpus) == 1 and placement.cpus != placement.interrupt.cpus
    ]


def scattered(devices: Sequence[IrqDevice], random: Random) -> List[IrqDevice]:
    """The devices as a daemon leaves them that knows nothing of this: some on one CPU, some on several, some astray."""

    def somewhere(device: IrqDevice, interrupt: Interrupt) -> Cpus:
        kind = random.randrange(8)
        if kind == 0:
            return interrupt.cpus
        if kind == 1:
            return frozenset(random.sample(sorted(interrupt.cpus), min(2, len(interrupt.cpus))))
        return frozenset((random.choice(sorted(interrupt.cpus if kind == 2 else device.local)),))

    return [
        replace(device, interrupts=tuple(replace(one, cpus=somewhere(device, one)) for one in device.interrupts))
        for device in devices
    ]


# --- on every machine -------------------------------------------------------------------------------------------------


def some_devices(machine: Processors, random: Random) -> List[IrqDevice]:
    count = random.randint(1, 2 * len([cpus for _node, cpus in machine.nodes if cpus]) + 1)
    return [
        machines.device(
            machine,
            index,
            node=random.randrange(len(machine.nodes)),
            queues=random.choice((1, 2, 3, 8, 17, 33, 64)),
            managed=random.choice((0, 0, 1)),
            kind=random.choice(("network", "network", "nvme", "gpu")),
        )
        for index in range(count)
    ]


def assert_even(machine: Processors, placements: Sequence[Placement], eligible: Cpus, *, cores: bool) -> None:
    """Over the CPUs; and over the cores, wherever one of them could take it off another."""
    found = loads_of(placements)
    loads = {cpu: found.get(cpu, 0) for cpu in eligible}
    assert sum(loads.values()) == len(placements)
    assert max(loads.values()) - min(loads.values()) <= 1
    high = [core for core in machine.siblings if any(loads.get(cpu) == max(loads.values()) for cpu in core)]
    low = [core for core in machine.siblings if any(loads.get(cpu) == min(loads.values()) for cpu in core)]
    if cores and max(loads.values()) > min(loads.values()):
        most = max(sum(loads.get(cpu, 0) for cpu in core) for core in high)
        least = min(sum(loads.get(cpu, 0) for cpu in core) for core in low)
        assert most - least <= 1


def alike(machine: Processors, eligible: Cpus) -> bool:
    """Whether all cores have as many threads. Otherwise a device may not be spread over them as all together are."""
    return len({len(core & eligible) for core in machine.siblings} - {0}) == 1


def assert_good(machine: Processors, targets: Sequence[IrqTarget], placements: Sequence[Placement]) -> None:
    """Every movable interrupt is on one CPU that it may use, all of a set are spread, and those of each device."""
    movable = [(target, one) for target in targets for one in target.device.interrupts if not one.managed]
    assert set(by_name(placements)) == {(target.device.address, one.name) for target, one in movable}
    assert len(placements) == len(movable)
    eligible = {target.device.address: target.eligible for target in targets}
    for placement in placements:
        assert only(placement.cpus) in eligible[placement.device.address]
    for cpus in set(eligible.values()):
        together = [placement for placement in placements if eligible[placement.device.address] == cpus]
        assert_even(machine, together, cpus, cores=True)
        for address in {placement.device.address for placement in together}:
            own = [one for one in together if one.device.address == address]
            assert_even(machine, own, cpus, cores=alike(machine, cpus))


@pytest.mark.parametrize("name", MACHINES)
@settings(derandomize=True, max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_interrupt_is_local_and_all_are_spread(name: str, seed: int) -> None:
    machine, random = machines.EVERY[name], Random(seed)
    devices = some_devices(machine, random)
    for found in (devices, scattered(devices, random)):
        targets = local(found)
        assert_good(machine, targets, plan_interrupts(machine, targets))


@pytest.mark.parametrize("name", MACHINES)
@settings(derandomize=True, max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_order_in_which_things_are_found_is_of_no_account(name: str, seed: int) -> None:
    machine, random = machines.EVERY[name], Random(seed)
    devices = scattered(some_devices(machine, random), random)
    mixed = [
        replace(device, interrupts=tuple(random.sample(device.interrupts, len(device.interrupts))))
        for device in random.sample(devices, len(devices))
    ]
    turned = replace(machine, siblings=machine.siblings[::-1], nodes=machine.nodes[::-1])
    assert by_name(plan_interrupts(turned, local(mixed))) == by_name(plan_interrupts(machine, local(devices)))
    ordered = [(one.device.address, one.interrupt.number) for one in plan_interrupts(turned, local(mixed))]
    assert ordered == sorted(ordered)


@pytest.mark.parametrize("name", MACHINES)
def test_numbers_of_interrupts_are_of_no_account(name: str) -> None:
    machine = machines.EVERY[name]
    devices = machines.full(machine)
    rebooted = [
        replace(
            device,
            interrupts=tuple(replace(one, number=10**6 - one.number) for one in device.interrupts),
        )
        for device in devices
    ]
    assert by_name(plan_interrupts(machine, local(rebooted))) == by_name(plan_interrupts(machine, local(devices)))


@pytest.mark.parametrize("name", MACHINES)
@settings(derandomize=True, max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_was_planned_stays(name: str, seed: int) -> None:
    machine, random = machines.EVERY[name], Random(seed)
    devices = scattered(some_devices(machine, random), random)
    first = plan_interrupts(machine, local(devices))
    again = plan_interrupts(machine, local(as_placed(devices, first)))
    assert moved(again) == []
    assert by_name(again) == by_name(first)


@pytest.mark.parametrize("name", [name for name in MACHINES if name not in UNEVEN])
@settings(derandomize=True, max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_device_that_is_added_moves_nobody(name: str, seed: int) -> None:
    machine, random = machines.EVERY[name], Random(seed)
    devices = some_devices(machine, random)
    placed = as_placed(devices, plan_interrupts(machine, local(devices)))
    for index in (100, 101):
        # Its address may be before or behind those of the others.
        node = random.randrange(len(machine.nodes))
        new = machines.device(machine, index, node=node, queues=random.choice((1, 5, 16, 40)))
        new = replace(new, address=random.choice(("0000:00:01.0", "ffff:00:01.0"))[:-1] + str(index - 100))
        found = [*placed, new]
        plan = plan_interrupts(machine, local(found))
        assert moved(plan) == []
        placed = as_placed(found, plan)


@pytest.mark.parametrize("name", [name for name in MACHINES if name != "one cpu"])
@settings(derandomize=True, max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_when_a_device_is_removed_no_more_moves_than_the_loads_demand(name: str, seed: int) -> None:
    machine, random = machines.EVERY[name], Random(seed)
    devices = some_devices(machine, random)
    placed = as_placed(devices, plan_interrupts(machine, local(devices)))
    placed.remove(random.choice(placed))
    plan = plan_interrupts(machine, local(placed))
    assert_good(machine, local(placed), plan)
    for cpus in {device.local for device in placed}:
        together = [one for one in plan if one.device.local == cpus]
        before = Counter(only(one.interrupt.cpus) for one in together)
        after = loads_of(together)
        # Nobody leaves a CPU that another comes to: then a chain of moves would be shorter by one.
        assert len(moved(together)) == sum((before - Counter(after)).values())


# --- against everything that could be done ----------------------------------------------------------------------------


def ways(count: int, length: int) -> Iterator[Loads]:
    """Every way to lay so many over so many CPUs."""
    if length == 1:
        yield (count,)
        return
    for first in range(count + 1):
        for others in ways(count - first, length - 1):
            yield (first, *others)


class Small:
    """A set of CPUs with cores, and devices with what they have on each CPU now. Another device may come first, that
    has a smaller set: some of these CPUs, or a last one, which is a thread of the last core that is not in the set.
    """

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.cpus = random.choice((2, 3, 4, 4, 5, 6))
        self.threads = random.choice((1, 2, 2, 3))
        cores = [list(range(self.cpus))[first : first + self.threads] for first in range(0, self.cpus, self.threads)]
        cores[-1].append(self.cpus)
        self.machine = machines.processors([cores])
        count = random.choice((1, 2, 2, 3))
        most = {2: 6, 3: 4, 4: 3, 5: 2, 6: 2}[self.cpus] + 2 * (count < 3) + (count < 2)
        self.devices = [
            on(self.machine, *(self.somewhere(random) for _queue in range(random.randint(1, most))), index=index)
            for index in range(count)
        ]
        self.before: List[IrqTarget] = []
        if random.randrange(2) == 0:
            smaller = frozenset(random.sample(range(self.cpus + 1), random.randint(1, self.cpus - 1)))
            first = machines.device(self.machine, 9, node=0, queues=random.randint(1, 5))
            self.before = [IrqTarget(device=first, eligible=smaller)]

    def targets(self) -> List[IrqTarget]:
        cpus = frozenset(range(self.cpus))
        return [*self.before, *(IrqTarget(device=device, eligible=cpus) for device in self.devices)]

    def somewhere(self, random: Random) -> Cpus:
        every = range(self.cpus)
        return frozenset(every) if random.randrange(4) == 0 else frozenset((random.choice(every),))

    def unevenness(self, loads: Loads) -> Tuple[int, int]:
        """Over the CPUs, and over the cores. The last load may be that of the thread that is not in the set."""
        inside = loads[: self.cpus]
        cores = [sum(inside[first : first + self.threads]) for first in range(0, self.cpus, self.threads)]
        cores[-1] += sum(loads[self.cpus :])
        return sum(load**2 for load in inside), sum(load**2 for load in cores)

    def laid(self, placements: Sequence[Placement]) -> Loads:
        """The loads of the CPUs, and of the thread that is not in the set."""
        found = loads_of(placements)
        return tuple(found.get(cpu, 0) for cpu in range(self.cpus + 1))

    def present(self, device: IrqDevice) -> Loads:
        found = Counter(only(one.cpus) for one in device.interrupts if len(one.cpus) == 1)
        return tuple(found.get(cpu, 0) for cpu in range(self.cpus))

    def merit(self, base: Sequence[int], layout: Sequence[Loads]) -> Tuple[int, ...]:
        """What a plan makes as small as it can be, the first number first."""
        stay = sum(shared(way, self.present(device)) for way, device in zip(layout, self.devices))
        return (
            *self.unevenness(self.total(base, layout)),
            *together((0, 0), [self.beyond(way) for way in layout]),
            -stay,
        )

    def total(self, base: Sequence[int], layout: Sequence[Loads]) -> Loads:
        return together(base, [(*way, 0) for way in layout])

    def beyond(self, way: Loads) -> Tuple[int, int]:
        """Interrupts of a device that no way has which is even over the CPUs, and which is so over the cores too."""
        every = [(self.unevenness(one), shared(way, one)) for one in ways(sum(way), self.cpus)]
        (least_cpus, least_cores), _stay = min(every)
        over_cpus = max(stay for (cpus, _cores), stay in every if cpus == least_cpus)
        over_cores = max(stay for merit, stay in every if merit == (least_cpus, least_cores))
        return sum(way) - over_cpus, sum(way) - over_cores

    def best(self, base: Sequence[int]) -> Tuple[int, ...]:
        """The merit of the best of all layouts."""
        even: Dict[Tuple[int, int], List[Tuple[Loads, ...]]] = {}
        for layout in product(*(ways(len(device.interrupts), self.cpus) for device in self.devices)):
            even.setdefault(self.unevenness(self.total(base, layout)), []).append(layout)
        return min(self.merit(base, layout) for layout in even[min(even)])


def together(base: Sequence[int], others: Sequence[Sequence[int]]) -> Loads:
    return tuple(sum(column) for column in zip(base, *others))


def shared(one: Loads, other: Loads) -> int:
    return sum(min(pair) for pair in zip(one, other))


def test_no_other_plan_is_as_even_and_hardly_one_moves_fewer() -> None:
    moves = least = 0
    for seed in range(250):
        case = Small(seed)
        plan = plan_interrupts(case.machine, case.targets())
        base = case.laid([placement for placement in plan if placement.device not in case.devices])
        layout = [case.laid([one for one in plan if one.device == device])[:-1] for device in case.devices]
        *even, stay = case.merit(base, layout)
        *evenest, most = case.best(base)
        assert even == evenest, seed
        interrupts = sum(sum(case.present(device)) for device in case.devices)
        assert interrupts + stay <= interrupts + most + 2, seed
        moves += interrupts + stay
        least += interrupts + most
    assert moves <= 1.1 * least


@pytest.mark.parametrize("seed", range(40))
def test_what_was_planned_in_a_small_set_stays_too(seed: int) -> None:
    case = Small(seed)
    targets = case.targets()
    devices = as_placed([target.device for target in targets], plan_interrupts(case.machine, targets))
    after = [replace(target, device=device) for target, device in zip(targets, devices)]
    assert moved(plan_interrupts(case.machine, after)) == []


# --- on cores of several kinds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in MACHINES if name != "one cpu"])
@settings(derandomize=True, max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_beside_reserved_cpus_every_device_is_spread_over_the_cpus(name: str, seed: int) -> None:
    machine, random = machines.EVERY[name], Random(seed)
    devices = scattered(some_devices(machine, random), random)
    reserved = frozenset(random.sample(sorted(machine.online), random.randint(1, min(6, len(machine.online) // 4 + 1))))
    targets = [target for target in reserving(machine, devices, reserved) if target.eligible]
    plan = plan_interrupts(machine, targets)
    assert_good(machine, targets, plan)
    after = reserving(machine, as_placed([target.device for target in targets], plan), reserved)
    assert by_name(plan_interrupts(machine, after)) == by_name(plan)


# --- with many interrupts ---------------------------------------------------------------------------------------------

# As a machine that says it has one node: all interrupts are of one set of CPUs.
ONE_SET = machines.processors(machines.numbered(nodes=1, cores=128, threads=2))


@pytest.mark.parametrize(
    ("count", "queues", "seed", "least"),
    [(64, 8, 0, 69), (64, 8, 1, 72), (64, 8, 2, 70), (8, 64, 0, 85), (8, 64, 1, 97), (8, 64, 2, 88)],
)
def test_with_many_interrupts_hardly_more_move_than_must(count: int, queues: int, seed: int, least: int) -> None:
    """``least``: what an exact search came to (a flow of the least cost through devices, CPUs and cores)."""
    devices = [machines.device(ONE_SET, index, node=0, queues=queues) for index in range(count)]
    targets = local(scattered(devices, Random(seed)))
    plan = plan_interrupts(ONE_SET, targets)
    assert_good(ONE_SET, targets, plan)
    assert least <= len(moved(plan)) <= 1.1 * least


@pytest.mark.parametrize("seed", range(40))
def test_with_many_interrupts_on_any_cores_all_are_even_and_what_was_planned_stays(seed: int) -> None:
    random = Random(seed)
    cores, threads = random.choice((16, 16, 60, 128)), random.choice((1, 2, 2, 4))
    offline = set(random.sample(range(cores * threads), random.choice((0, 1, 10, 10))))
    machine = machines.processors(machines.numbered(nodes=1, cores=cores, threads=threads), offline=offline)
    some = frozenset(random.sample(sorted(machine.online), len(machine.online) // 3))
    devices = scattered(
        [
            machines.device(machine, index, node=0, queues=random.choice((1, 2, 8, 9, 33)))
            for index in range(random.randint(14, 30))
        ],
        random,
    )
    sets = [some if seed % 3 == 0 and random.random() < 0.3 else device.local for device in devices]
    targets = [IrqTarget(device=device, eligible=cpus) for device, cpus in zip(devices, sets)]
    plan = plan_interrupts(machine, targets)
    if some not in sets:
        assert_even(machine, plan, machine.online, cores=True)
        for device in devices:
            own = [one for one in plan if one.device == device]
            assert_even(machine, own, machine.online, cores=alike(machine, machine.online))
    after = [
        replace(target, device=device)
        for target, device in zip(targets, as_placed([one.device for one in targets], plan))
    ]
    assert by_name(plan_interrupts(machine, after)) == by_name(plan)


# --- what it comes to -------------------------------------------------------------------------------------------------


def test_two_nics_with_a_queue_for_every_cpu_have_one_each_on_every_cpu() -> None:
    machine = machines.one_node()
    nics = [machines.device(machine, index, node=0, queues=16) for index in range(2)]
    plan = plan_interrupts(machine, local(nics))
    for nic in nics:
        assert sorted(numbers([one for one in plan if one.device == nic])) == list(range(16))


def test_physical_cores_come_first() -> None:
    machine = machines.one_node()
    plan = plan_interrupts(machine, local([machines.device(machine, 0, node=0, queues=11)]))
    assert numbers(plan) == [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5]


def test_the_next_device_goes_on_where_the_last_one_ended() -> None:
    machine = machines.one_node()
    plan = plan_interrupts(machine, local([machines.device(machine, index, node=0, queues=12) for index in range(2)]))
    assert numbers(plan)[12:] == [9, 11, 13, 15, 0, 2, 4, 6, 8, 10, 12, 14]


def test_names_are_counted_as_people_count() -> None:
    machine = machines.grace()
    nic = machines.device(machine, 0, node=0, queues=12)
    plan = plan_interrupts(machine, local([nic]))
    assert [one.interrupt.name.split("@")[0] for one in plan] == [f"network_comp{queue}" for queue in range(12)]
    assert numbers(plan) == list(range(12))


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (("b10", "b9", "a"), ("a", "b9", "b10")),
        (("1a", "a1", "01a"), ("01a", "1a", "a1")),
        (("x-2-10", "x-2-9", "x-10-1"), ("x-2-9", "x-2-10", "x-10-1")),
        (("²", "2", "3"), ("2", "3", "²")),
        (("same", "same"), ("same", "same")),
    ],
)
def test_names_of_any_kind_have_an_order(names: Sequence[str], order: Sequence[str]) -> None:
    machine = machines.one_node()
    interrupts = tuple(Interrupt(name=name, number=40 + n, cpus=machine.online) for n, name in enumerate(names))
    nic = replace(machines.device(machine, 0, node=0, queues=0), interrupts=interrupts[::-1])
    plan = plan_interrupts(machine, local([nic]))
    assert [one.interrupt.name for one in plan] == list(order)
    assert [one.interrupt.number for one in plan if names[0] == names[1]] in ([], [40, 41])


def test_interrupts_that_the_kernel_places_are_left_out() -> None:
    machine = machines.one_node()
    drive = machines.device(machine, 0, node=0, queues=9, managed=8, kind="nvme")
    plan = plan_interrupts(machine, local([drive]))
    assert [(one.interrupt.name, only(one.cpus)) for one in plan] == [("nvme_comp0@pci:0000:00:00.0", 0)]


def test_a_device_that_has_nothing_to_place_needs_no_cpus() -> None:
    machine = machines.one_node()
    drive = machines.device(machine, 0, node=0, queues=2, managed=2, kind="nvme")
    none = machines.device(machine, 1, node=0, queues=0)
    assert plan_interrupts(machine, [IrqTarget(device=one, eligible=frozenset()) for one in (drive, none)]) == ()
    assert plan_interrupts(machine, []) == ()


def test_with_spread_all_every_interrupt_has_all_cpus_and_takes_nobodys_place() -> None:
    machine = machines.one_node()
    wide, nic = (machines.device(machine, index, node=0, queues=4) for index in range(2))
    plan = plan_interrupts(machine, [IrqTarget(device=wide, eligible=wide.local, spread=ALL), *local([nic])])
    assert [one.cpus for one in plan[:4]] == [wide.local] * 4
    assert numbers(plan[4:]) == [0, 2, 4, 6]


def test_a_set_that_overlaps_a_smaller_one_fills_up_where_less_lies() -> None:
    machine = machines.one_node()
    first = IrqTarget(device=machines.device(machine, 5, node=0, queues=4), eligible=frozenset((0, 2, 4, 6)))
    second = IrqTarget(device=machines.device(machine, 1, node=0, queues=12), eligible=machine.online)
    plan = by_name(plan_interrupts(machine, [second, first]))
    loads = Counter(only(cpus) for cpus in plan.values())
    assert loads == Counter(range(16))


def test_a_sibling_of_a_busy_core_is_the_last_choice_for_another_set_too() -> None:
    machine = machines.one_node()
    first = IrqTarget(device=machines.device(machine, 0, node=0, queues=1), eligible=frozenset((0,)))
    second = IrqTarget(device=machines.device(machine, 1, node=0, queues=7), eligible=machine.online - {0})
    plan = plan_interrupts(machine, [first, second])
    assert numbers(plan) == [0, 2, 4, 6, 8, 10, 12, 14]


@pytest.mark.parametrize(
    ("present", "planned"),
    [
        # All is well, on whatever thread of a core.
        (([3], [0], [4], [6]), [3, 0, 4, 6]),
        # Two on one CPU, and two on one core: the first stays.
        (([2], [2], [4], [6]), [2, 0, 4, 6]),
        (([2], [3], [4], [6]), [2, 0, 4, 6]),
        # What may go to several CPUs, or is on a CPU of another node, goes where nobody is.
        (([0, 1], [0], [20], [2]), [4, 0, 6, 2]),
    ],
)
def test_what_is_good_stays_and_the_rest_goes_where_nobody_is(
    present: Sequence[Sequence[int]], planned: Sequence[int]
) -> None:
    machine = machines.processors([[[0, 1], [2, 3], [4, 5], [6, 7]], [[20, 21]]])
    assert sorted(numbers(plan_interrupts(machine, local([on(machine, *present)])))) == sorted(planned)
    assert numbers(plan_interrupts(machine, local([on(machine, *present)]))) == planned


def test_the_first_stays_where_two_others_could_if_it_moved() -> None:
    # It is in the way of the second one of its device, which are to be on two cores, and of that of the other device on
    # its CPU. What moves one more is as even.
    machine = machines.processors([[[0, 1], [2, 3]]])
    plan = plan_interrupts(machine, local([on(machine, [0], [1]), on(machine, [0], index=1)]))
    assert numbers(plan) == [0, 2, 1]


def test_when_a_thread_goes_offline_only_its_interrupts_move() -> None:
    machine = machines.one_node()
    devices = [machines.device(machine, index, node=0, queues=8) for index in range(2)]
    placed = as_placed(devices, plan_interrupts(machine, local(devices)))
    left = machine.online - {5}
    smaller = replace(
        machine, online=left, siblings=tuple(core & left for core in machine.siblings), nodes=((0, left),)
    )
    plan = plan_interrupts(smaller, [IrqTarget(device=device, eligible=left) for device in placed])
    assert [only(one.interrupt.cpus) for one in plan if one.cpus != one.interrupt.cpus] == [5]


def test_with_one_cpu_there_is_no_choice() -> None:
    machine = machines.one_cpu()
    devices = [machines.device(machine, index, node=0, queues=40) for index in range(3)]
    assert set(numbers(plan_interrupts(machine, local(devices)))) == {0}


# --- time -------------------------------------------------------------------------------------------------------------


def milliseconds(machine: Processors, targets: Sequence[IrqTarget]) -> float:
    """The processor time of the best of some runs."""
    return quickest(lambda: plan_interrupts(machine, targets)) * 1000


@pytest.mark.parametrize(("count", "queues"), [(64, 8), (16, 32), (8, 64), (512, 1)])
@pytest.mark.parametrize("reserved", [frozenset(), frozenset((0, 1, 2, 5))], ids=["all", "reserved"])
@pytest.mark.parametrize("name", ["nps4", "one set"])
def test_512_interrupts_over_256_cpus_are_planned_in_10_to_20_ms(
    name: str, reserved: Cpus, count: int, queues: int
) -> None:
    machine = machines.nps4() if name == "nps4" else ONE_SET
    nodes = len(machine.nodes)
    devices = [machines.device(machine, index, node=index % nodes, queues=queues) for index in range(count)]
    placed = as_placed(devices, plan_interrupts(machine, reserving(machine, devices, reserved)))
    # Siblings of reserved CPUs are cores of their own kind, over which a device cannot always be spread.
    limit = 20 if reserved else 10
    for found in (devices, placed, placed[1:], scattered(devices, Random(1))):
        assert milliseconds(machine, reserving(machine, found, reserved)) < limit * PATIENCE


def test_48_scattered_devices_on_eight_nodes_are_planned_in_10_ms() -> None:
    machine = machines.nps4()
    devices = [machines.device(machine, index, node=index % 8, queues=10) for index in range(48)]
    assert milliseconds(machine, local(scattered(devices, Random(1)))) < 10 * PATIENCE
