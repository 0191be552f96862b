# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values, held against the frozen dataclasses that they stand in for."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from functools import cached_property
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, Tuple, TypeVar

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import field, frozen, frozen_ordered, replace
from hypothesis import given
from hypothesis import strategies as st

T = TypeVar("T")
NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")


@frozen
class Point:
    """Two numbers, and what is found out about them."""

    x: int
    y: int = 0
    notes: List[str] = field(default_factory=list)
    asked: Optional[Callable[[], int]] = field(default=None, compare=False)

    @cached_property
    def total(self) -> int:
        return self.x + self.y


@frozen
class Named(Point):
    name: str = ""


@frozen
class Nothing:
    pass


@frozen
class Box(Generic[T]):
    inside: T


@frozen_ordered
class Release:
    major: int
    minor: int = 0


# --- beside a dataclass -----------------------------------------------------------------------------------------------


def twins(plain: int, defaults: int, made: int, unheeded: int) -> Tuple[Any, Any]:
    """A value and a frozen dataclass of the same fields; the last have defaults or are made for each object."""

    def body(specify: Any) -> Dict[str, Any]:
        names = NAMES[: plain + defaults + made]
        attributes: Dict[str, Any] = {"__annotations__": dict.fromkeys(names, "Any"), "__module__": __name__}
        attributes.update((name, number) for number, name in enumerate(names[plain : plain + defaults]))
        attributes.update((name, specify(default_factory=list)) for name in names[plain + defaults :])
        if unheeded < min(plain, len(names)):
            attributes[names[plain - 1]] = specify(compare=False)
        return attributes

    return frozen(type("Twin", (), body(field))), dataclasses.dataclass(frozen=True)(
        type("Twin", (), body(dataclasses.field))
    )


def outcome(make: Callable[[], Any]) -> Any:
    """What a call gives, in words and fields, or that it is refused."""
    try:
        made = make()
    except TypeError:
        return "refused"
    return repr(made), dict(vars(made)), list(vars(made))


SHAPES = st.tuples(*(st.integers(0, 2) for _field in range(2)), st.integers(0, 1), st.integers(0, 5))
# Few, so that many are equal.
CONTENTS = st.one_of(st.integers(0, 1), st.just("text"), st.just(()))
ARGUMENTS = st.tuples(st.lists(CONTENTS, max_size=6), st.dictionaries(st.sampled_from((*NAMES, "self")), CONTENTS))


@given(SHAPES, ARGUMENTS)
def test_a_value_takes_and_refuses_the_arguments_that_a_dataclass_does(shape: Any, given_: Any) -> None:
    ours, theirs = twins(*shape)
    args, kwargs = given_
    assert outcome(lambda: ours(*args, **kwargs)) == outcome(lambda: theirs(*args, **kwargs))


@given(SHAPES, st.lists(CONTENTS, min_size=10, max_size=10))
def test_values_are_equal_and_hash_alike_where_dataclasses_do(shape: Any, contents: List[Any]) -> None:
    ours, theirs = twins(*shape)
    plain = shape[0] + shape[1]
    one, other = ours(*contents[:plain]), ours(*contents[5 : 5 + plain])
    assert (one == other) is (theirs(*contents[:plain]) == theirs(*contents[5 : 5 + plain]))
    assert (one != other) is not (one == other)
    if shape[2]:
        with pytest.raises(TypeError, match="unhashable"):
            hash(one)
    elif one == other:
        assert hash(one) == hash(other)


@given(SHAPES, st.lists(CONTENTS, min_size=4, max_size=4), st.dictionaries(st.sampled_from((*NAMES, "zeta")), CONTENTS))
def test_replace_changes_and_refuses_what_that_of_dataclasses_does(
    shape: Any, contents: List[Any], changes: Mapping[str, Any]
) -> None:
    ours, theirs = twins(*shape)
    plain = shape[0] + shape[1]
    one, same = ours(*contents[:plain]), theirs(*contents[:plain])
    assert outcome(lambda: replace(one, **changes)) == outcome(lambda: dataclasses.replace(same, **changes))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2))
def test_ordered_values_sort_as_their_fields(numbers: List[Tuple[int, int]]) -> None:
    ordered = sorted(Release(*pair) for pair in numbers)
    assert [(release.major, release.minor) for release in ordered] == sorted(numbers)
    one, other = Release(*numbers[0]), Release(*numbers[1])
    assert ((one < other), (one <= other), (one > other), (one >= other)) == (
        numbers[0] < numbers[1],
        numbers[0] <= numbers[1],
        numbers[0] > numbers[1],
        numbers[0] >= numbers[1],
    )


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "Point() is missing required arguments: 'x'"),
        ((), {"y": 1}, "Point() is missing required arguments: 'x'"),
        ((1, 2, [], None, 5), {}, "Point() takes 4 positional arguments but 5 were given"),
        ((1, 2, [], None, 5), {"x": 1}, "Point() takes 4 positional arguments but 5 were given"),
        ((1,), {"x": 1}, "Point() got multiple values for argument 'x'"),
        ((1,), {"z": 1}, "Point() got an unexpected keyword argument 'z'"),
        ((), {"z": 1}, "Point() got an unexpected keyword argument 'z'"),
    ],
)
def test_wrong_arguments_are_named(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        Point(*args, **kwargs)
    assert str(caught.value) == message


def test_every_required_field_that_is_missing_is_named() -> None:
    ours, _theirs = twins(2, 0, 0, 5)
    with pytest.raises(TypeError, match=r"^Twin\(\) is missing required arguments: 'alpha', 'beta'$"):
        ours()


def test_replace_refuses_a_name_that_is_no_field() -> None:
    with pytest.raises(TypeError, match=r"^Point\(\) got an unexpected keyword argument 'z'$"):
        replace(Point(1), z=2)  # type: ignore[call-arg]


def test_nothing_of_a_value_can_be_set_or_deleted() -> None:
    point = Point(1)
    with pytest.raises(AttributeError, match=r"^cannot assign to field 'x'$"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError, match=r"^cannot assign to field 'other'$"):
        point.other = 2  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"^cannot delete field 'x'$"):
        del point.x
    assert point == Point(1)


def test_a_default_that_could_be_changed_by_all_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^the default of .*Shared\.rows could be changed by all: use default_factory$"
    ):

        @frozen
        class Shared:
            rows: List[str] = []  # noqa: RUF012


def test_a_field_without_a_default_does_not_follow_one_that_has_one() -> None:
    with pytest.raises(TypeError, match=r"Late\.name has no default and follows a field that has one$"):

        @frozen
        class Late(Point):
            name: str  # type: ignore[misc]


# --- what they are used for -------------------------------------------------------------------------------------------


def test_what_is_made_for_one_object_is_no_other_objects() -> None:
    one, other = Point(1), Point(1)
    one.notes.append("mine")
    assert other.notes == []
    assert Point(1, notes=one.notes).notes is one.notes


def test_a_field_that_does_not_count_makes_no_difference() -> None:
    assert Point(1, asked=lambda: 2) == Point(1)


def test_values_of_two_classes_are_never_equal() -> None:
    assert Point(1) != Named(1)
    assert Box(1) != 1
    assert Nothing() == Nothing()
    assert len({Nothing(), Nothing()}) == 1
    with pytest.raises(TypeError):
        sorted([Release(1), Box(1)])  # type: ignore[type-var]


def test_a_subclass_has_the_fields_of_its_base_first() -> None:
    named = Named(1, 2, name="here")
    assert repr(named) == "Named(x=1, y=2, notes=[], asked=None, name='here')"
    assert replace(named, y=3).total == 4
    assert Named(**vars(Point(1, 2))) == Named(1, 2)


def test_what_is_worked_out_once_is_no_field() -> None:
    point = Point(1, 2)
    assert point.total == 3
    assert point == Point(1, 2)
    assert replace(point, y=5).total == 6
    assert "total" not in repr(point)


def test_a_value_has_its_own_methods_where_it_defines_them() -> None:
    @frozen
    class Told:
        text: str

        def __repr__(self) -> str:
            return f"<{self.text}>"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Told)

    assert repr(Told("here")) == "<here>"
    assert Told("here") == Told("there")


@pytest.mark.parametrize("value", [Point(1, 2, ["note"]), Named(1, name="here"), Box(Release(1)), Nothing()], ids=repr)
def test_a_value_goes_to_another_process_and_back(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == copy.copy(value) == value
