# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concerns in the order in which they run, and which of them must run."""

from __future__ import annotations

from typing import Any, Callable, Container, Iterable, List, Sequence, Tuple

from .._core.contract import AnyConcern
from .._core.registration import Registration
from .._core.value import frozen


@frozen
class RegisteredConcern:
    """A concern by its name, with its registration. Nothing of it is imported before ``load`` is called.

    ``names_knobs`` says whether its declaration names knobs one by one.
    """

    name: str
    load: Callable[[], AnyConcern]
    registration: Registration = Registration()
    names_knobs: bool = False

    @classmethod
    def of(cls, concern: AnyConcern, **registration: Any) -> RegisteredConcern:
        """A concern that is there already."""
        return cls(concern.name, lambda: concern, Registration(**registration), hasattr(concern, "knobs"))

    @property
    def concern(self) -> AnyConcern:
        return self.load()


def in_order(entries: Iterable[RegisteredConcern]) -> Tuple[RegisteredConcern, ...]:
    """Each entry behind all that it comes ``after``, else as given. Raises ``ValueError`` on a ring."""
    waiting: List[RegisteredConcern] = list(entries)
    known = {entry.name for entry in waiting}
    done: List[RegisteredConcern] = []
    while waiting:
        placed = {entry.name for entry in done}
        ready = [
            entry for entry in waiting if all(name in placed for name in entry.registration.after if name in known)
        ]
        if not ready:
            raise ValueError(f"{', '.join(entry.name for entry in waiting)} come after each other")
        done.append(ready[0])
        waiting.remove(ready[0])
    return tuple(done)


def to_converge(
    wants_work: Iterable[str], *, declared: Container[str], registry: Sequence[RegisteredConcern]
) -> Tuple[str, ...]:
    """The concerns that must run, in order: those that want work, and the declared ones that these disturb in turn."""
    chosen = set(wants_work)
    ordered = in_order(registry)
    # A disturbed concern may come earlier in the order, and may disturb others itself: until nothing is added.
    waiting = list(chosen)
    disturbs = {entry.name: entry.registration.disturbs for entry in ordered}
    while waiting:
        for name in disturbs[waiting.pop()]:
            if name in declared and name not in chosen:
                chosen.add(name)
                waiting.append(name)
    return tuple(entry.name for entry in ordered if entry.name in chosen)
