# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of hosts folded into ranges, as ClusterShell's ``nodeset`` writes and reads them: ``gpu[01-03,07]-ib``."""

from __future__ import annotations

from typing import Dict, FrozenSet, Iterable, Iterator, List, Sequence, Set, Tuple, Union

from .._core.regex import regex

NUMBERS = regex("([0-9]+)")
TERM = regex(r"(?:[^,\[]|\[[^\]]*\])+")
BRACKETS = regex(r"\[([^\]]*)\]")
TEXT = regex(r"[A-Za-z0-9._-]*")
SPAN = regex(r"([0-9]+)(?:-([0-9]+))?")
# The most that Slurm takes in one range, and in a list no slip of a finger either.
MOST = 65_536

# A number in a name: how many digits zeros fill it up to, 0 for none, and its value.
Number = Tuple[int, int]
# The numbers that each numeric part of a name may have: every combination of them is a host.
Block = Tuple[FrozenSet[Number], ...]


def fold(hosts: Iterable[str]) -> List[str]:
    """The hosts as terms such as ``h[001-020]``, in natural order whatever theirs was.

    Together the terms name each of these hosts once and no other: ``h1`` and ``h01`` stay two.
    """
    by_text: Dict[Tuple[str, ...], List[Tuple[str, ...]]] = {}
    for host in sorted(set(hosts), key=natural):
        parts = NUMBERS.split(host)
        by_text.setdefault(tuple(parts[::2]), []).append(tuple(parts[1::2]))
    found = [(text, block) for text, names in by_text.items() for block in _blocks(names)]
    return [_term(text, block) for text, block in sorted(found, key=lambda one: natural(_first(*one)))]


def folded(hosts: Iterable[str], *, widest: int = 0) -> str:
    """The terms with commas between them: ``h[001-020],login1``.

    With ``widest`` as many of the hosts as fit into so many characters, at least one, and how many others there are.
    """
    names = sorted(set(hosts), key=natural)
    text = ",".join(fold(names))
    if not widest or len(text) <= widest or len(names) == 1:
        return text
    fits, beyond = 1, len(names)
    while beyond - fits > 1:
        middle = (fits + beyond) // 2
        if len(",".join(fold(names[:middle]))) <= widest:
            fits = middle
        else:
            beyond = middle
    return f"{','.join(fold(names[:fits]))} and {len(names) - fits} more"


def terms(names: str) -> List[str]:
    """The parts of a list such as ``h[001-020,31],login1`` between the commas that are in no bracket."""
    return TERM.findall(names)


def expand(names: str) -> Tuple[str, ...]:
    """The hosts of such a list, in its order. Raises ``ValueError`` with what is wrong with it."""
    if ",," in f",{names},":
        raise ValueError("a name is missing in it")
    if ",".join(terms(names)) != names:
        raise ValueError("a bracket in it does not end")
    found: List[str] = []
    for term in terms(names):
        hosts = [""]
        for number, part in enumerate(BRACKETS.split(term)):
            if not number % 2 and not TEXT.fullmatch(part):
                raise ValueError("a name has letters, digits, dots, hyphens and underscores, and ranges in brackets")
            texts = list(_expanded(part)) if number % 2 else [part]
            if len(found) + len(hosts) * len(texts) > MOST:
                raise ValueError(f"it has more than {MOST} names")
            hosts = [host + text for host in hosts for text in texts]
        found += hosts
    return tuple(found)


def _expanded(ranges: str) -> Iterator[str]:
    for one in ranges.split(","):
        span = SPAN.fullmatch(one)
        if span is None:
            raise ValueError(f"[{ranges}] is not a range such as [01-16,20]")
        low, high = int(span[1]), int(span[2] or span[1])
        if low > high:
            raise ValueError(f"[{ranges}] counts down")
        if high - low >= MOST:
            raise ValueError(f"it has more than {MOST} names")
        yield from (str(value).zfill(len(span[1])) for value in range(low, high + 1))


def natural(name: str) -> List[Union[str, Tuple[int, int]]]:
    """What names are sorted by, so that ``h9`` comes before ``h10``."""
    parts: List[str] = NUMBERS.split(name)
    return [(int(part), len(part)) if number % 2 else part for number, part in enumerate(parts)]


def _blocks(names: Sequence[Tuple[str, ...]]) -> List[Block]:
    """Names of one text, as blocks that have each of them once: numeric part after numeric part, from the last."""
    width = len(names[0])
    columns = [_numbers({name[part] for name in names}) for part in range(width)]
    blocks: Set[Block] = {
        tuple(frozenset([columns[part][digits]]) for part, digits in enumerate(name)) for name in names
    }
    for part in reversed(range(width)):
        alike: Dict[Tuple[Block, FrozenSet[int]], FrozenSet[Number]] = {}
        for block in blocks:
            others = block[:part] + block[part + 1 :]
            fill = frozenset(filled for filled, _value in block[part])
            alike[others, fill] = alike.get((others, fill), frozenset()) | block[part]
        blocks = {(*others[:part], numbers, *others[part:]) for (others, _fill), numbers in alike.items()}
    return list(blocks)


def _numbers(texts: Iterable[str]) -> Dict[str, Number]:
    """The texts of one numeric part as numbers. ``10`` is filled up to two digits beside ``09``, and to none beside
    ``9``: both write it so.
    """
    padded = sorted({len(text) for text in texts if text.startswith("0") and text != "0"})
    found = {}
    for text in texts:
        fills = [len(text)] if text.startswith("0") and text != "0" else [fill for fill in padded if fill <= len(text)]
        found[text] = (fills[-1] if fills else 0, int(text))
    return found


def _first(text: Sequence[str], block: Block) -> str:
    """The host of a term that comes first."""
    return _term(text, [frozenset([min(numbers, key=lambda number: number[::-1])]) for numbers in block])


def _term(text: Sequence[str], block: Sequence[FrozenSet[Number]]) -> str:
    parts = [text[0]]
    for numbers, following in zip(block, text[1:]):
        ranges = _ranges(sorted(numbers))
        parts += [ranges if len(numbers) == 1 else f"[{ranges}]", following]
    return "".join(parts)


def _ranges(numbers: Sequence[Number]) -> str:
    spans: List[List[Number]] = []
    for fill, value in numbers:
        if spans and spans[-1][-1] == (fill, value - 1):
            spans[-1][1:] = [(fill, value)]
        else:
            spans.append([(fill, value)])
    return ",".join("-".join(str(value).zfill(fill) for fill, value in span) for span in spans)
