# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The spread of interrupts over the places of a set that moves the fewest of them. It is exact.

The interrupts flow from their devices through the cells (a device at a place) to the places. The shares of a device
bound what goes into its cells, the shares of all what comes out of the places. An interrupt that stays in its cell is
cheap, and one that moves is dearer. One beyond the share of its device is dearer than all moves, and still dearer when
it is the CPUs of the device that it makes uneven, not only the cores. That happens only where the cores have different
numbers of threads, or others that came before lie unevenly: then the devices cannot always be spread as well as all
together are. Every interrupt takes the cheapest way that there is, and pushes others aside where that is cheapest
(successive shortest paths, see Ahuja, Magnanti and Orlin, "Network Flows", chapter 9).
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from .shares import Shares

Path = Tuple[int, ...]


class _Network:
    """A network of numbered nodes. Arc ``i ^ 1`` is arc ``i`` in the other direction."""

    def __init__(self) -> None:
        self._head: List[int] = []
        self._room: List[int] = []
        self._cost: List[int] = []
        self._arcs: List[List[int]] = []

    def node(self) -> int:
        self._arcs.append([])
        return len(self._arcs) - 1

    def arc(self, tail: int, head: int, *, room: int, cost: int = 0) -> int:
        number = len(self._head)
        self._head += [head, tail]
        self._room += [room, 0]
        self._cost += [cost, -cost]
        self._arcs[tail].append(number)
        self._arcs[head].append(number + 1)
        return number

    def flow(self, arc: int) -> int:
        return self._room[arc ^ 1]

    def free(self, path: Path) -> bool:
        return all(self._room[arc] for arc in path)

    def push(self, path: Path) -> None:
        for arc in path:
            self._room[arc] -= 1
            self._room[arc ^ 1] += 1

    def fill(self, source: int, sink: int) -> None:
        """Push as much as can be, the cheapest ways first. There is no cycle of a negative cost."""
        cost = self._costs(source)
        while sink in cost:
            dead: Set[int] = set()
            path = self._way(source, sink, cost, dead)
            while path is not None:
                self.push(path)
                path = self._way(source, sink, cost, dead)
            cost = self._costs(source)

    def _costs(self, source: int) -> Dict[int, int]:
        """The cost of the cheapest way to every node that there is a way to."""
        cost = {source: 0}
        waiting: Deque[int] = deque([source])
        queued = {source}
        while waiting:
            tail = waiting.popleft()
            queued.discard(tail)
            for arc in self._arcs[tail]:
                if self._room[arc]:
                    head, there = self._head[arc], cost[tail] + self._cost[arc]
                    if head not in cost or there < cost[head]:
                        cost[head] = there
                        if head not in queued:
                            queued.add(head)
                            waiting.append(head)
        return cost

    def _way(self, source: int, sink: int, cost: Mapping[int, int], dead: Set[int]) -> Optional[Path]:
        """A cheapest way that has room, or None. ``dead`` grows by the nodes where the search had to turn back."""
        path: List[int] = []
        node = source
        on_path = {source}
        arcs = {source: iter(self._arcs[source])}
        while node != sink:
            for arc in arcs[node]:
                head = self._head[arc]
                if (
                    self._room[arc]
                    and cost[head] == cost[node] + self._cost[arc]
                    and not (head in dead or head in on_path)
                ):
                    path.append(arc)
                    node = head
                    on_path.add(node)
                    arcs[node] = iter(self._arcs[node])
                    break
            else:
                dead.add(node)
                if not path:
                    return None
                on_path.discard(node)
                node = self._head[path.pop() ^ 1]
        return tuple(path)


class _Ways:
    """The arcs that shares allow between one node and the places, and the paths along them, to the places or back."""

    def __init__(self, network: _Network, shares: Shares, end: int, *, outward: bool) -> None:
        self._network = network
        self._shares = shares
        self._end = end
        self._outward = outward
        self._extra, rest = network.node(), network.node()
        self._to_extra = self._arc(end, self._extra, room=sum(shares.core_sure) + shares.rest)
        self._to_rest = self._arc(self._extra, rest, room=shares.rest)
        self._cores = [network.node() for _core in shares.core_sure]
        self._sure = [self._arc(self._extra, node, room=room) for node, room in zip(self._cores, shares.core_sure)]
        self._more = [self._arc(rest, node, room=int(more)) for node, more in zip(self._cores, shares.core_more)]

    def connect(self, place: int, node: int) -> Tuple[Path, ...]:
        """Arcs to the node of a place; the paths to it, those first that are of no use to other places."""
        core = self._shares.core_of[place]
        sure = self._arc(self._end, node, room=self._shares.sure[place])
        more = self._arc(self._cores[core], node, room=int(self._shares.more[place]))
        paths = (
            (sure,),
            (self._to_extra, self._sure[core], more),
            (self._to_extra, self._to_rest, self._more[core], more),
        )
        return paths if self._outward else tuple(path[::-1] for path in paths)

    def loosen(self, cost: int) -> None:
        """From now on a core may have more than its share, at this cost each."""
        for node in self._cores:
            self._network.arc(self._extra, node, room=len(self._shares.core_of), cost=cost)

    def _arc(self, near: int, far: int, *, room: int) -> int:
        tail, head = (near, far) if self._outward else (far, near)
        return self._network.arc(tail, head, room=room)


class _Exchange:
    def __init__(self, total: Shares, own: Sequence[Shares], owners: Sequence[int]) -> None:
        self._length = len(total.core_of)
        self._count = len(owners)
        self._network = network = _Network()
        self._source, self._sink = network.node(), network.node()
        self._devices = [network.node() for _shares in own]
        self._supply = [
            network.arc(self._source, node, room=owners.count(owner)) for owner, node in enumerate(self._devices)
        ]
        self._own = [_Ways(network, shares, node, outward=True) for shares, node in zip(own, self._devices)]
        self._places = [network.node() for _place in range(self._length)]
        all_ways = _Ways(network, total, self._sink, outward=False)
        self._out = [all_ways.connect(place, node) for place, node in enumerate(self._places)]
        self._cells: Dict[Tuple[int, int], int] = {}
        self._into: Dict[Tuple[int, int], Tuple[Path, ...]] = {}
        self._leave: Dict[Tuple[int, int], List[int]] = {}

    def keep(self, present: Dict[Tuple[int, int], int]) -> None:
        """As many as can be stay in their cells, where ``present`` are now."""
        for cell, count in present.items():
            self._cell(cell)
            stay = self._network.arc(self._cells[cell], self._places[cell[1]], room=count, cost=-1)
            self._leave[cell].append(stay)
            while self._push(cell, stay):
                pass
        self._network.fill(self._source, self._sink)

    def move(self) -> None:
        """All others come into any cell. Whoever has to make room for them moves as well."""
        dearer = self._count + 1
        for owner, device in enumerate(self._devices):
            self._own[owner].loosen(dearer)
            for place in range(self._length):
                cell = (owner, place)
                self._cell(cell)
                self._network.arc(device, self._cells[cell], room=self._count, cost=dearer**2)
                anyone = self._network.arc(self._cells[cell], self._places[place], room=self._count)
                self._leave[cell].append(anyone)
                while self._push(cell, anyone):
                    pass
        self._network.fill(self._source, self._sink)

    def counts(self) -> Dict[Tuple[int, int], int]:
        """How many interrupts each cell has."""
        return {cell: sum(self._network.flow(arc) for arc in arcs) for cell, arcs in self._leave.items()}

    def _cell(self, cell: Tuple[int, int]) -> None:
        if cell not in self._cells:
            owner, place = cell
            self._cells[cell] = node = self._network.node()
            self._into[cell] = self._own[owner].connect(place, node)
            self._leave[cell] = []

    def _push(self, cell: Tuple[int, int], arc: int) -> bool:
        """One more interrupt through a cell, when nobody has to make room for it."""
        owner, place = cell
        free = self._network.free
        into = next((path for path in self._into[cell] if free(path)), None)
        out = next((path for path in self._out[place] if free(path)), None)
        if into is None or out is None or not free((self._supply[owner], arc)):
            return False
        self._network.push((self._supply[owner], *into, arc, *out))
        return True


def exchange(
    *, total: Shares, own: Sequence[Shares], owners: Sequence[int], present: Sequence[Optional[int]]
) -> Sequence[int]:
    """The place of every interrupt, from the shares of all, those of each device, and where the interrupts are.

    ``owners`` has the device of every interrupt, an index of ``own``; ``present`` its place, None where it has none.
    """
    now: Dict[Tuple[int, int], int] = {}
    for owner, place in zip(owners, present):
        if place is not None:
            now[owner, place] = now.get((owner, place), 0) + 1
    solver = _Exchange(total, own, owners)
    solver.keep(now)
    solver.move()
    return _named(solver.counts(), owners, present)


def _named(
    counts: Dict[Tuple[int, int], int], owners: Sequence[int], present: Sequence[Optional[int]]
) -> Sequence[int]:
    """Which interrupt has which place: those that can stay first, then the others in order."""
    places: List[Optional[int]] = []
    for owner, place in zip(owners, present):
        stays = place is not None and counts[owner, place] > 0
        if place is not None and stays:
            counts[owner, place] -= 1
        places.append(place if stays else None)
    left: Dict[int, List[int]] = {}
    for (owner, place), count in sorted(counts.items()):
        left.setdefault(owner, []).extend([place] * count)
    return [left[owner].pop(0) if place is None else place for owner, place in zip(owners, places)]
