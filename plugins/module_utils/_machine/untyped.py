# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is compiled has this in the place of ``typing``, which only a type checker reads and every look would import.

A module that takes more of it than is here has the real one.
"""

from __future__ import annotations

TYPE_CHECKING = False


class _Subscripted:
    """The base of a class that may be followed by types in brackets."""

    def __class_getitem__(cls, _arguments: object) -> type:
        return cls


class _Type:
    """Stands for any type: in brackets, in an alias, and among the bases of a class."""

    def __getitem__(self, _arguments: object) -> _Type:
        return self

    def __mro_entries__(self, _bases: object) -> tuple[type]:
        return (_Subscripted,)


ANY_TYPE = _Type()
AbstractSet = Any = Callable = ClassVar = Collection = Container = Dict = FrozenSet = Generic = Iterable = ANY_TYPE
Iterator = List = Mapping = NoReturn = Optional = Pattern = Protocol = Sequence = Set = Tuple = Type = Union = ANY_TYPE


def TypeVar(_name: str, *_constraints: object, **_more: object) -> _Type:
    return ANY_TYPE


def cast(_type: object, value: object) -> object:
    return value
