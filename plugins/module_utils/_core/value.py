# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values: classes of named fields that never change, equal where their fields are.

They are to their users what frozen dataclasses are, and mypy takes them for such. A dataclass writes source for each
class and compiles it, a millisecond for each at every look; here all classes share functions that are compiled already.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, NoReturn, Tuple, Type, TypeVar

__all__ = ["field", "frozen", "frozen_ordered", "replace"]

T = TypeVar("T")

_MISSING: Any = object()
# The attribute of a class that holds its fields by name, in order, those of its bases first.
_FIELDS = "__frozen_fields__"


class _Field:
    """What is known of a field beside its name."""

    __slots__ = ("compare", "default", "factory")

    def __init__(self, default: Any, factory: Any, compare: bool) -> None:
        self.default = default
        self.factory = factory
        self.compare = compare


def _field(*, default: Any = _MISSING, default_factory: Any = _MISSING, compare: bool = True) -> Any:
    """A field with more to it than a default: a default that each object gets anew, or no say in what is equal."""
    return _Field(default, default_factory, compare)


def _replace(instance: Any, /, **changes: Any) -> Any:
    """The same value with other fields. Raises ``TypeError`` on a name that is no field."""
    values = instance.__dict__
    # Not all of __dict__: a cached property is kept there too.
    return instance.__class__(**{**{name: values[name] for name in getattr(instance, _FIELDS)}, **changes})


if TYPE_CHECKING:
    # To mypy these are what they stand for, so that it checks the arguments of `replace` against the fields.
    from dataclasses import field, replace

    from typing_extensions import dataclass_transform
else:
    field = _field
    replace = _replace

    def dataclass_transform(**_arguments):
        return lambda decorator: decorator


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: Type[T]) -> Type[T]:
    """Make a class a value: every annotation in it is a field, what it is set to is the default."""
    fields = _fields_of(cls)
    _set_methods(cls, {"__init__": _init(cls.__qualname__, fields), **_comparisons(_key(fields)), **_SHARED})
    return cls


@dataclass_transform(frozen_default=True, order_default=True, field_specifiers=(field,))
def frozen_ordered(cls: Type[T]) -> Type[T]:
    """The same, with an order: that of the fields."""
    frozen(cls)
    _set_methods(cls, _orders(_key(getattr(cls, _FIELDS))))
    return cls


def _fields_of(cls: type) -> Mapping[str, _Field]:
    """The fields of a class, which keeps them for its subclasses."""
    fields: Dict[str, _Field] = {}
    for base in reversed(cls.__mro__[1:]):
        fields.update(vars(base).get(_FIELDS, {}))
    for name in vars(cls).get("__annotations__", {}):
        declared = getattr(cls, name, _MISSING)
        one = declared if isinstance(declared, _Field) else _Field(declared, _MISSING, compare=True)
        if one.default.__class__.__hash__ is None:
            raise ValueError(f"the default of {cls.__qualname__}.{name} could be changed by all: use default_factory")
        if declared is one:
            # As without `field`: the class has the default, and nothing where there is none.
            if one.default is _MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, one.default)
        fields[name] = one
    setattr(cls, _FIELDS, fields)
    return fields


def _set_methods(cls: type, methods: Mapping[str, Callable[..., Any]]) -> None:
    """Give a class what it does not define itself."""
    for name, method in methods.items():
        if vars(cls).get(name) is None:
            setattr(cls, name, method)


def _init(title: str, fields: Mapping[str, _Field]) -> Callable[..., None]:
    """The ``__init__`` of a class. What a value of many costs is spent here: tests/bench has its measure."""
    names = tuple(fields)
    count = len(names)
    # What each object gets that is given nothing else; where that is made anew, or must be given, a stand-in.
    blank = {name: one.default for name, one in fields.items()}
    factories = tuple((name, one.factory) for name, one in fields.items() if one.factory is not _MISSING)
    needed = [name for name, one in fields.items() if one.default is _MISSING and one.factory is _MISSING]
    required = len(needed)
    if needed != list(names[:required]):
        late = next(name for name, expected in zip(needed, names) if name != expected)
        raise TypeError(f"{title}.{late} has no default and follows a field that has one")
    defaults = tuple(blank.values())
    put = object.__setattr__

    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:
        given = len(args)
        if kwargs:
            values = blank.copy()
            if given:
                values.update(zip(names, args))
            values.update(kwargs)
            if len(values) != count or given + len(kwargs) > count:
                _refuse(title, names, required, args, kwargs)
            for name in names[:given]:
                if name in kwargs:
                    _refuse(title, names, required, args, kwargs)
            for name in names[given:required]:
                if name not in kwargs:
                    _refuse(title, names, required, args, kwargs)
            put(self, "__dict__", values)
        else:
            if given != count:
                if given < required or given > count:
                    _refuse(title, names, required, args, kwargs)
                args += defaults[given:]
            values = self.__dict__
            values.update(zip(names, args))
        for name, make in factories:
            if values[name] is _MISSING:
                values[name] = make()

    return __init__


def _refuse(
    title: str, names: Tuple[str, ...], required: int, args: Tuple[Any, ...], kwargs: Mapping[str, Any]
) -> NoReturn:
    """Say what is wrong with the arguments, as Python does of a function."""
    given = len(args)
    if given > len(names):
        raise TypeError(f"{title}() takes {len(names)} positional arguments but {given} were given")
    for name in kwargs:
        if name not in names:
            raise TypeError(f"{title}() got an unexpected keyword argument {name!r}")
    for name in names[:given]:
        if name in kwargs:
            raise TypeError(f"{title}() got multiple values for argument {name!r}")
    missing = ", ".join(repr(name) for name in names[given:required] if name not in kwargs)
    raise TypeError(f"{title}() is missing required arguments: {missing}")


def _key(fields: Mapping[str, _Field]) -> Callable[[Any], Any]:
    """What two values of a class are compared by."""
    names = [name for name, one in fields.items() if one.compare]
    return attrgetter(*names) if names else lambda _instance: ()


def _comparisons(key: Callable[[Any], Any]) -> Dict[str, Callable[..., Any]]:
    def __eq__(self: Any, other: object) -> Any:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(key(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _orders(key: Callable[[Any], Any]) -> Dict[str, Callable[..., Any]]:
    def __lt__(self: Any, other: Any) -> Any:
        return key(self) < key(other) if other.__class__ is self.__class__ else NotImplemented

    def __le__(self: Any, other: Any) -> Any:
        return key(self) <= key(other) if other.__class__ is self.__class__ else NotImplemented

    def __gt__(self: Any, other: Any) -> Any:
        return key(self) > key(other) if other.__class__ is self.__class__ else NotImplemented

    def __ge__(self: Any, other: Any) -> Any:
        return key(self) >= key(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__lt__": __lt__, "__le__": __le__, "__gt__": __gt__, "__ge__": __ge__}


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in getattr(self, _FIELDS))
    return f"{self.__class__.__qualname__}({shown})"


def _refuse_to_set(self: Any, name: str, value: Any) -> NoReturn:
    raise AttributeError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> NoReturn:
    raise AttributeError(f"cannot delete field {name!r}")


_SHARED: Mapping[str, Callable[..., Any]] = {
    "__repr__": _repr,
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
}
