# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import random
import time
from collections import Counter
from ctypes import byref
from itertools import combinations
from pathlib import Path
from typing import Any, Dict, FrozenSet, List, Set, Tuple

import pynvml as nvml
import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.model import (
    Compute,
    Geometry,
    Instance,
    Layout,
    Profile,
    WantedCompute,
    WantedInstance,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.satisfied import satisfied
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.solver import (
    Impossible,
    compute_starts,
    left,
    moves,
    solve,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_cases import (
    Case,
    Places,
    allowed,
    every_compute,
    every_division,
    every_target,
    instance,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_tables import compute_placements, geometries
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import (
    Machines,
    gpu,
    in_another_process,
    load,
)
from ansible_collections.gpufleet.node.tests.unit.support import PATIENCE
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)

H100 = geometries()["h100-80"]
RTX = geometries()["rtx-pro-6000"]
# Every way to be divided that the table knows is that of one of these.
KINDS = ("h100-80", "a30", "rtx-pro-6000", "rtx-pro-5000")
CASES = 200


# --- the same rules and the same order of merit, written as plainly as they can be ------------------------------------


def fits(geometry: Geometry, layout: Layout) -> bool:
    """Whether a GPU can be divided so."""
    return allowed(geometry, [(one.start, one.profile) for one in layout]) and all(
        one.compute in every_compute(slices_of(geometry, one.profile)) for one in layout
    )


# --- what is drawn ----------------------------------------------------------------------------------------------------


seeds = st.integers(0, 2**32)
drawn = settings(max_examples=CASES, derandomize=True, database=None)


def whole(geometry: Geometry, number: int, start: Any = None) -> WantedInstance:
    profile = geometry.profile(number)
    assert profile is not None
    return WantedInstance(number, start, (WantedCompute(profile.slices),))


def parts(number: int, *slices: int) -> WantedInstance:
    return WantedInstance(number, None, tuple(WantedCompute(one) for one in slices))


ONE, ONE_ME, DOUBLE, TWO, THREE, FOUR, SEVEN = 19, 20, 15, 14, 9, 5, 0


# --- against all layouts there are ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@drawn
@given(seed=seeds)
def test_no_layout_is_better_than_the_target(kind: str, seed: int) -> None:
    case = Case(geometries()[kind], seed)
    wanted = case.wanted()
    target = case.solve(wanted)
    assert target == min(every_target(case.geometry, wanted), key=case.merit)
    assert satisfied(target, wanted)
    assert fits(case.geometry, target)


@pytest.mark.parametrize("kind", KINDS)
@drawn
@given(seed=seeds)
def test_the_nearest_layout_has_as_many_as_can_be_and_is_the_best_of_those(kind: str, seed: int) -> None:
    case = Case(geometries()[kind], seed)
    wanted = case.too_much()
    possible: Set[Layout] = set()
    count = len(wanted) + 1
    while not possible:
        count -= 1
        possible = {target for some in set(combinations(wanted, count)) for target in every_target(case.geometry, some)}
    best = min(possible, key=case.merit)
    if count == len(wanted):
        assert case.solve(wanted) == best
        return
    with pytest.raises(Impossible) as caught:
        case.solve(wanted)
    assert caught.value.nearest == best
    assert len(caught.value.missing) == len(wanted) - count
    assert satisfied(best, tuple((Counter(wanted) - Counter(caught.value.missing)).elements()))


@pytest.mark.parametrize("kind", KINDS)
@drawn
@given(seed=seeds)
def test_the_order_of_what_is_wanted_does_not_matter(kind: str, seed: int) -> None:
    case = Case(geometries()[kind], seed)
    wanted = case.wanted()
    for _time in range(3):
        other = tuple(case.random.sample(wanted, len(wanted)))
        assert case.solve(other) == case.solve(wanted)


@pytest.mark.parametrize("kind", KINDS)
@drawn
@given(seed=seeds)
def test_the_moves_lead_to_the_target_and_every_state_between_fits(kind: str, seed: int) -> None:
    case = Case(geometries()[kind], seed)
    target = case.solve(case.wanted())
    found = moves(case.present, target)
    state = dict.fromkeys(case.present)
    for old, _gone, _new in found.compute:
        assert old in state
    for gone in found.destroy:
        del state[gone]
    assert fits(case.geometry, tuple(state))
    for old, destroyed, created in found.compute:
        del state[old]
        kept = [one for one in old.compute if one not in destroyed]
        state[replace(old, compute=tuple(sorted([*kept, *created])))] = None
        assert len(kept) == len(old.compute) - len(destroyed)
        assert destroyed or created
    for new in found.create:
        state[new] = None
        assert fits(case.geometry, tuple(state))
    assert tuple(sorted(state)) == target
    assert not {(i.start, i.profile) for i in found.destroy} & {(i.start, i.profile) for i in target}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_there_as_declared_stays_as_it_is(kind: str) -> None:
    geometry = geometries()[kind]
    for divisions in every_division(geometry).values():
        for places in divisions:
            present = tuple(Instance(start, n, (Compute(0, slices_of(geometry, n)),)) for start, n in places)
            wanted = tuple(whole(geometry, number) for _start, number in places)
            assert satisfied(present, wanted)
            assert moves(present, solve(geometry, present, wanted)) == moves((), ())


def slices_of(geometry: Geometry, number: int) -> int:
    return next(profile.slices for profile in geometry.profiles if profile.number == number)


# --- by example -------------------------------------------------------------------------------------------------------


def test_a_fresh_gpu_gets_the_layout_that_the_usual_order_of_creation_cannot_reach() -> None:
    """Two of 1g before the 2g and the 3g: the driver's own placement fails with these."""
    wanted = tuple(whole(H100, number) for number in (ONE, ONE, TWO, THREE))
    assert solve(H100, (), wanted) == (
        instance(0, TWO, (0, 2)),
        instance(2, ONE, (0, 1)),
        instance(3, ONE, (0, 1)),
        instance(4, THREE, (0, 3)),
    )


def test_one_more_instance_moves_none_where_there_is_room() -> None:
    present = (instance(2, ONE, (0, 1)), instance(4, THREE, (0, 3)))
    wanted = (whole(H100, ONE), whole(H100, TWO), whole(H100, THREE))
    assert solve(H100, present, wanted) == (instance(0, TWO, (0, 2)), *present)


def test_an_idle_instance_makes_room_before_a_busy_one() -> None:
    present = (instance(0, ONE, (0, 1)), instance(4, ONE, (0, 1)))
    wanted = (whole(H100, THREE), whole(H100, ONE))
    for busy, target in (
        (0, (instance(0, ONE, (0, 1)), instance(4, THREE, (0, 3)))),
        (4, (instance(0, THREE, (0, 3)), instance(4, ONE, (0, 1)))),
    ):
        assert solve(H100, present, wanted, busy={busy: frozenset({0})}) == target


def test_one_busy_instance_is_worth_more_than_two_idle_ones() -> None:
    present = (instance(0, ONE, (0, 1)), instance(4, ONE, (0, 1)), instance(5, ONE, (0, 1)))
    wanted = (whole(H100, THREE), whole(H100, ONE), whole(H100, ONE))
    target = solve(H100, present, wanted, busy={0: frozenset()})
    assert (target[0], target[-1].profile) == (present[0], THREE)
    assert solve(H100, present, wanted)[0].profile == THREE


def test_a_declared_placement_moves_what_lies_there() -> None:
    present = (instance(0, TWO, (0, 2)),)
    target = solve(H100, present, (whole(H100, TWO), whole(H100, TWO, 0), whole(H100, ONE, 2)))
    assert [(one.start, one.profile) for one in target] == [(0, TWO), (2, ONE), (4, TWO)]
    assert [(one.start, one.profile) for one in solve(H100, present, (whole(H100, TWO, 4),))] == [(4, TWO)]


def test_instances_come_back_where_they_were_last() -> None:
    last = (instance(2, TWO, (0, 2)), instance(5, ONE, (0, 1)))
    wanted = (whole(H100, ONE), whole(H100, TWO))
    assert solve(H100, (), wanted, preferred=last) == last
    assert solve(H100, (), wanted) == (instance(0, TWO, (0, 2)), instance(2, ONE, (0, 1)))


def test_an_orphan_gets_its_compute_instance_and_stays() -> None:
    present = (instance(4, THREE),)
    target = solve(H100, present, (whole(H100, THREE),))
    assert target == (instance(4, THREE, (0, 3)),)
    assert moves(present, target).compute == ((present[0], (), (Compute(0, 3),)),)
    assert moves(present, target).destroy == moves(present, target).create == ()


def test_only_the_compute_instances_that_differ_change() -> None:
    present = (instance(0, FOUR, (0, 1), (1, 1), (2, 2)),)
    target = solve(H100, present, (parts(FOUR, 1, 1, 1),), busy={0: frozenset({1})})
    assert target == (instance(0, FOUR, (0, 1), (1, 1), (2, 1)),)
    assert moves(present, target).compute == ((present[0], (Compute(2, 2),), (Compute(2, 1),)),)


def test_the_busy_compute_instance_stays_where_one_of_two_must_go() -> None:
    present = (instance(0, THREE, (0, 1), (1, 1), (2, 1)),)
    target = solve(H100, present, (parts(THREE, 1),), busy={0: frozenset({2})})
    assert target == (instance(0, THREE, (2, 1)),)


def test_the_division_goes_to_the_instance_that_has_it() -> None:
    present = (instance(0, THREE, (0, 3)), instance(4, THREE, (0, 2), (2, 1)))
    assert solve(H100, present, (parts(THREE, 1, 2), whole(H100, THREE))) == present


def test_a_declared_place_of_a_compute_instance_is_kept_free_by_the_others() -> None:
    wanted = WantedInstance(FOUR, None, (WantedCompute(1), WantedCompute(2, 0)))
    assert solve(H100, (), (wanted,)) == (instance(0, FOUR, (0, 2), (2, 1)),)


def test_nothing_wanted_is_an_empty_gpu() -> None:
    present = (instance(0, SEVEN, (0, 7)),)
    assert solve(H100, present, ()) == ()
    assert moves(present, ()).destroy == present


NOT_TOGETHER: Dict[str, Tuple[Geometry, Tuple[WantedInstance, ...], str]] = {
    "too many compute slices": (
        H100,
        tuple(whole(H100, number) for number in (FOUR, TWO, TWO)),
        "1 x 4g.40gb, 2 x 2g.20gb take 8 compute slices, and the GPU has 7",
    ),
    "too many of one": (
        H100,
        (whole(H100, DOUBLE),) * 5,
        "5 x 1g.20gb are declared, and the GPU has room for 4",
    ),
    "one set of media extensions": (
        geometries()["a30"],
        (whole(geometries()["a30"], 21), whole(geometries()["a30"], 6)),
        "2g.12gb+me and 1g.6gb+me need the same media engines",
    ),
    "all media engines": (
        RTX,
        (whole(RTX, 65), whole(RTX, 14)),
        "1g.24gb and 1g.24gb+me.all need the same media engines",
    ),
    "an old driver": (
        replace(H100, three_beside_four=False),
        (whole(H100, THREE), whole(H100, FOUR)),
        "this driver does not create 4g.40gb beside 3g.40gb",
    ),
    "declared placements": (
        H100,
        (whole(H100, ONE, 5), whole(H100, TWO, 4)),
        "2g.20gb at memory slice 4 and 1g.10gb at 5 overlap",
    ),
    "a placement that does not exist": (H100, (whole(H100, TWO, 6),), "2g.20gb cannot begin at memory slice 6"),
    "compute instances": (H100, (parts(THREE, 2, 2),), "the compute instances do not fit into 3g.40gb"),
    "no room": (
        H100,
        (*[whole(H100, DOUBLE)] * 3, whole(H100, THREE)),
        "no placement has room for all of them",
    ),
}


@pytest.mark.parametrize("case", NOT_TOGETHER)
def test_what_cannot_be_says_why_and_how_far_it_could(case: str) -> None:
    geometry, wanted, reason = NOT_TOGETHER[case]
    with pytest.raises(Impossible) as caught:
        solve(geometry, (), wanted)
    assert caught.value.reason == str(caught.value) == reason
    assert len(caught.value.missing) == 1
    assert len(caught.value.nearest) == len(wanted) - 1
    assert fits(geometry, caught.value.nearest)


def test_me_all_goes_with_those_that_need_no_media_engines() -> None:
    wanted = tuple(whole(RTX, number) for number in (64, 67, 67))
    assert satisfied(solve(RTX, (), wanted), wanted)


def test_what_is_left_beside_a_layout_is_what_one_more_can_be() -> None:
    layout = (instance(2, ONE, (0, 1)), instance(4, THREE, (0, 3)))
    assert [(profile.name, count) for profile, count in left(H100, layout)] == [
        ("1g.10gb", 3),
        ("1g.10gb+me", 1),
        ("1g.20gb", 1),
        ("2g.20gb", 1),
    ]
    assert left(H100, (instance(0, SEVEN, (0, 7)),)) == ()
    assert [count for _profile, count in left(H100, ())] == [profile.most for profile in H100.profiles]


@pytest.mark.parametrize("kind", KINDS)
def test_so_many_are_left_as_the_divisions_of_the_gpu_say(kind: str) -> None:
    geometry = geometries()[kind]
    choice = random.Random(1)
    divisions = every_division(geometry)
    for _time in range(40):
        places = choice.choice(divisions[choice.choice(list(divisions))])
        layout = tuple(Instance(start, number) for start, number in places)
        found = dict(left(geometry, layout))
        for profile in geometry.profiles:
            assert found.get(profile, 0) == most_of(geometry, places, profile), (places, profile.name)


def most_of(geometry: Geometry, places: Places, profile: Profile) -> int:
    counts = range(len(profile.starts) + 1)
    ways = ((*places, *((s, profile.number) for s in some)) for n in counts for some in combinations(profile.starts, n))
    return max(len(way) - len(places) for way in ways if allowed(geometry, way))


# --- the rules are those of the machine -------------------------------------------------------------------------------


def test_the_kinds_of_these_tests_are_all_that_the_table_has() -> None:
    def shape(geometry: Geometry) -> FrozenSet[Profile]:
        return frozenset(replace(profile, name="", memory_mib=0) for profile in geometry.profiles)

    assert {shape(geometries()[kind]) for kind in KINDS} == {shape(geometry) for geometry in geometries().values()}


def test_compute_instances_begin_where_the_published_table_says() -> None:
    for of, table in compute_placements().items():
        assert {(slices, start) for slices in range(10) for start in compute_starts(of, slices)} == set(table)


MACHINES = {
    "h100": ("h100-80", "h100-sxm5-80gb", "550.54.15"),
    "a100 with an old driver": ("a100-80", "a100-sxm4-80gb", "470.82.01"),
    "a30": ("a30", "a30-24gb", "550.54.15"),
    "rtx pro 6000": ("rtx-pro-6000", "rtx-pro-6000-96gb", "595.58.03"),
}
COMPUTE_PROFILES = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}


@pytest.mark.parametrize("name", MACHINES)
def test_a_layout_fits_where_the_machine_takes_it(name: str, machines: Machines, tmp_path: Path) -> None:
    kind, model, driver = MACHINES[name]
    geometry = geometries()[kind]
    if name.endswith("old driver"):
        known = tuple(profile for profile in geometry.profiles if profile.number != DOUBLE)
        geometry = Geometry(known, three_beside_four=False)
    description = tmp_path / "machine.json"
    gpus = [{"model": model, "pci": "0000:17:00.0", "node": 0, "switch": 0, "root": 0}]
    description.write_text(
        json.dumps({"description": name, "driver": driver, "nodes": {"0": "0-7"}, "sockets": [[0]], "gpus": gpus})
    )
    machine = machines.copy(tmp_path / "machine", str(description))

    def compare() -> None:
        load(machine)
        nvml.nvmlInit()
        assert nvml.nvmlDeviceSetMigMode(gpu(), 1) == 0
        choice = random.Random(2)
        answers = set()
        for _time in range(300):
            layout = any_instances(geometry, choice, divided=driver != "470.82.01")
            taken = is_taken(geometry, layout)
            assert fits(geometry, layout) == taken, layout
            answers.add(taken)
        assert answers == {True, False}

    in_another_process(compare)


def any_instances(geometry: Geometry, choice: random.Random, *, divided: bool) -> Layout:
    """A few instances, with compute instances where ``divided``, that may or may not be possible together."""
    found = set()
    for profile in choice.choices(geometry.profiles, k=choice.randint(1, 4)):
        compute = [Compute(choice.randrange(4), choice.choice((1, 2, 3, 4))) for _each in range(choice.randint(0, 2))]
        if not divided or choice.random() < 0.7:
            compute = []
        found.add(Instance(choice.choice((*profile.starts, 0)), profile.number, tuple(sorted(set(compute)))))
    return tuple(sorted(found))


def is_taken(geometry: Geometry, layout: Layout) -> bool:
    """Whether the driver creates all of it; the GPU is empty afterwards."""
    sizes = {profile.number: profile.size for profile in geometry.profiles}
    made: List[Tuple[Any, Any]] = []
    try:
        for one in layout:
            place = nvml.c_nvmlGpuInstancePlacement_t(one.start, sizes[one.profile])
            parent = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu(), one.profile, byref(place))
            made.append((nvml.nvmlGpuInstanceDestroy, parent))
            for part in one.compute:
                place = nvml.c_nvmlComputeInstancePlacement_t(part.start, part.slices)
                create = nvml.nvmlGpuInstanceCreateComputeInstanceWithPlacement
                made.append(
                    (nvml.nvmlComputeInstanceDestroy, create(parent, COMPUTE_PROFILES[part.slices], byref(place)))
                )
    except (nvml.NVMLError_InsufficientResources, nvml.NVMLError_InvalidArgument):
        return False
    finally:
        for destroy, handle in reversed(made):
            destroy(handle)
    return True


# --- whether it is as declared ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@drawn
@given(seed=seeds)
def test_a_layout_is_as_declared_where_it_is_one_of_the_targets(kind: str, seed: int) -> None:
    case = Case(geometries()[kind], seed)
    layout = case.layout()
    declarations = [tuple(case.declaration(one) for one in layout), case.wanted()]
    for wanted in declarations:
        assert satisfied(layout, wanted) == (layout in every_target(case.geometry, wanted))
    assert satisfied(layout, declarations[0])


THIRDS = ((0, 1), (1, 1))
AS_DECLARED: Dict[str, Tuple[Layout, Tuple[WantedInstance, ...], bool]] = {
    "nothing": ((), (), True),
    "one too many": ((instance(0, ONE, (0, 1)),), (), False),
    "one too few": ((instance(0, ONE, (0, 1)),), (whole(H100, ONE),) * 2, False),
    "another profile": ((instance(0, ONE, (0, 1)),), (whole(H100, ONE_ME),), False),
    "another placement": ((instance(0, ONE, (0, 1)),), (whole(H100, ONE, 1),), False),
    "an orphan": ((instance(0, ONE),), (whole(H100, ONE),), False),
    "the same placement twice": (
        (instance(0, ONE, (0, 1)), instance(1, ONE, (0, 1))),
        (whole(H100, ONE, 0), whole(H100, ONE, 0)),
        False,
    ),
    "a placed one and one anywhere": (
        (instance(0, ONE, (0, 1)), instance(1, ONE, (0, 1))),
        (whole(H100, ONE), whole(H100, ONE, 0)),
        True,
    ),
    "what one may have and another needs": (
        (instance(0, THREE, *THIRDS), instance(4, THREE, (0, 1), (2, 1))),
        (parts(THREE, 1, 1), WantedInstance(THREE, None, (WantedCompute(1), WantedCompute(1, 1)))),
        True,
    ),
    "a declared compute instance elsewhere": (
        (instance(0, THREE, *THIRDS),),
        (WantedInstance(THREE, None, (WantedCompute(1), WantedCompute(1, 2))),),
        False,
    ),
}


@pytest.mark.parametrize("case", AS_DECLARED)
def test_a_gpu_is_as_declared_only_exactly(case: str) -> None:
    layout, wanted, expected = AS_DECLARED[case]
    assert satisfied(layout, wanted) is expected
    assert satisfied(layout, wanted[::-1]) is expected


def test_seven_that_are_alike_are_compared_at_once() -> None:
    layout = (*[instance(start, ONE, (0, 1)) for start in range(6)], instance(6, ONE))
    begin = time.process_time()
    for _time in range(100):
        assert not satisfied(layout, (whole(H100, ONE),) * 7)
    assert time.process_time() - begin < 0.1 * PATIENCE


# --- fast enough for every node ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_any_division_of_the_gpu_takes_a_moment(kind: str) -> None:
    geometry = geometries()[kind]
    present = Case(geometry, 5).layout()
    slowest = 0.0
    for numbers in every_division(geometry):
        wanted = tuple(whole(geometry, number) for number in numbers)
        begin = time.process_time()
        target = solve(geometry, present, wanted)
        slowest = max(slowest, time.process_time() - begin)
        assert satisfied(target, wanted)
    assert slowest < 0.05 * PATIENCE


def test_absurd_declarations_are_refused_in_a_moment() -> None:
    everything = tuple(whole(H100, profile.number) for profile in H100.profiles for _each in range(profile.most))
    placed = tuple(whole(H100, profile.number, start) for profile in H100.profiles for start in profile.starts)
    divided = tuple(parts(THREE, *sizes) for sizes in ((1,), (2,), (1, 1), (2, 1), (1, 1, 1)))
    for wanted in ((whole(H100, ONE),) * 500, everything + placed + divided, (parts(SEVEN, *[1] * 500),)):
        begin = time.process_time()
        with pytest.raises(Impossible) as caught:
            solve(H100, (), wanted)
        assert time.process_time() - begin < 0.1 * PATIENCE
        assert len(caught.value.missing) + len(caught.value.nearest) == len(wanted)
