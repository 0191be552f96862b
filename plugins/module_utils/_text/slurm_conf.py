# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of Slurm: lines of ``Key=Value`` pairs, read by meaning and changed in place. Pure.

A line ends at a ``#``, and the next goes on right where a backslash is its last character (``_get_next_line`` and
``_strip_comments`` in src/common/parse_config.c). Keys are the same in capitals and small letters.
"""

from __future__ import annotations

import os
import re
from typing import Dict, Iterator, Mapping, Optional, Sequence, Tuple

from .._core.errors import DeclarationError, OwnedByAnother
from .._core.regex import regex
from .._core.value import field, frozen
from .._core.wording import lines_named
from .host_ranges import terms
from .whole_lines import whole_lines

# A value goes on behind a backslash at the end of a line if the next one begins with no blank.
_VALUE = r"(?:[^\s\\]|\\(?![^\S\n]*\n)|\\[^\S\n]*\n(?=\S))*"
# What is a blank is so in the C locale.
PAIR = regex(rf'(?<!\S)([A-Za-z0-9_.]+)([^\S\n]*=[^\S\n]*)("[^"]*"|{_VALUE})', re.ASCII)
COMMENT = regex(r"(?<!\\)#.*")
BLANKS = " \t\r\v\f"
INCLUDE = regex(r"\s*include\s", re.IGNORECASE)
INCLUDED = regex(r"\s*include\s+(\S+)", re.IGNORECASE)
PATH = regex(r"[^\s\x00-\x1f\x7f-\x9f\"'#\\]+")
DEFAULT = "default"
# The option of slurmd and slurmctld with a configuration of its own.
CONFIG_OPTION = "-f"
# Where slurmd looks for its configuration. Without a file of its own, it gets it from the controller.
CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/var/spool/slurmd/conf-cache/slurm.conf")
# Where packages of Slurm have its plugins, if PluginDir says nothing else.
PLUGIN_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "/usr/lib/aarch64-linux-gnu/slurm-wlm",
    "/usr/lib64/slurm",
    "/usr/lib/slurm",
    "/usr/local/lib/slurm",
)
NODE, GRES = "nodename", "gres"
# Resources that divide GPUs.
SHARES = ("shard", "mps")
_COUNT = regex(r"([0-9]+)([kmgtp]?)")
_MULTIPLES = ("", "k", "m", "g", "t", "p")


@frozen
class ConfLine:
    """A line with those that continue it. ``first`` and ``last`` count from 1, ``start`` and ``end`` are places in the
    text. ``pairs`` have their keys in small letters.
    """

    first: int
    last: int
    start: int
    end: int
    pairs: Mapping[str, str]
    includes: bool = False


@frozen
class NodeLine:
    """What slurm.conf has of a node: its own line, with what a line for ``DEFAULT`` above it brings.

    ``inherited`` is the Gres= of that, None where it has none.
    """

    line: ConfLine
    pairs: Mapping[str, str] = field(default_factory=dict)
    inherited: Optional[str] = None

    @property
    def names(self) -> str:
        return self.line.pairs[NODE]

    @property
    def gres(self) -> Optional[str]:
        return self.pairs.get(GRES)


def folder_of(path: str) -> str:
    """The folder of slurm.conf as it is declared, without a slash at its end.

    Raises ``DeclarationError`` on one that no command line and no file of Slurm could name.
    """
    if not path.startswith("/"):
        cause = "it is not an absolute path"
    elif not PATH.fullmatch(path):
        cause = "it has a blank, a control character or a quotation mark, with which Slurm would not find it"
    else:
        return path.rstrip("/") or "/"
    raise DeclarationError("use {}", object="folder", cause=cause, found=repr(path))


def told_to_read(words: Sequence[str]) -> Tuple[str, ...]:
    """The files that a daemon of Slurm reads in place of its usual one; ``words`` are those of its command line."""
    return tuple(after for word, after in zip(words, words[1:]) if word == CONFIG_OPTION)


def refuse_another_folder(folder: str, *, daemon: str, words: Sequence[str]) -> None:
    """Raises ``DeclarationError`` where the daemon is told to read a configuration that is elsewhere."""
    told = next(iter(told_to_read(words)), "")
    place = os.path.dirname(told)
    if told and place != folder:
        cause = f"{daemon} reads {told}"
        raise DeclarationError("use {}", object="folder", cause=cause, found=folder, hint=f"set folder: {place}")


def refuse_includes(path: str, text: Optional[str], *, goal: str, concern: str) -> None:
    """Raises ``OwnedByAnother`` for a file with lines of ours that includes others."""
    numbers = [line.first for line in lines_of(text or "") if line.includes]
    if numbers:
        includes = "include other files" if numbers[1:] else "includes another file"
        raise OwnedByAnother(
            goal,
            object=path,
            cause=f"its {lines_named(numbers)} {includes}, whose lines would count as well",
            hint=f"move those lines into it, or leave {concern} out of the declaration",
        )


def plugin_folders(told: Optional[str]) -> Tuple[str, ...]:
    """Where plugins are; ``told`` is PluginDir."""
    return tuple(told.split(":")) if told else PLUGIN_FOLDERS


def lines_of(text: str) -> Iterator[ConfLine]:
    """Those that say something."""
    start, first, number, joined = 0, 1, 0, ""
    at = 0
    for raw in whole_lines(text):
        number += 1
        at += len(raw)
        said = COMMENT.sub("", raw.rstrip("\r\n"))
        stripped = said.rstrip(BLANKS)
        joined += stripped[:-1] if stripped.endswith("\\") else said
        if stripped.endswith("\\"):
            continue
        pairs = {key.lower(): value.strip('"') for key, _equals, value in PAIR.findall(joined)}
        if pairs or INCLUDE.match(joined):
            yield ConfLine(first, number, start, at, pairs, bool(INCLUDE.match(joined)))
        start, first, joined = at, number + 1, ""


def included(text: str, folder: str, cluster: str) -> Iterator[str]:
    """The files that a file of Slurm in this folder includes; ``%c`` in their names is the cluster."""
    for line in lines_of(text):
        match = INCLUDED.match(text, line.start) if line.includes else None
        if match is not None:
            path = match[1].replace("%c", cluster)
            yield path if path.startswith("/") else f"{folder.rstrip('/')}/{path}"


def value_of(text: str, key: str) -> Optional[str]:
    """The value of a key that stands for itself; of several the last. None where it is not there."""
    found = None
    for line in lines_of(text):
        if NODE not in line.pairs and key.lower() in line.pairs:
            found = line.pairs[key.lower()]
    return found


def node_line(text: str, name: str) -> Optional[NodeLine]:
    """What is said of a node, None where no line names it."""
    defaults: Dict[str, str] = {}
    for line in lines_of(text):
        names = line.pairs.get(NODE)
        if names is None:
            continue
        if names.lower() == DEFAULT:
            defaults.update(line.pairs)
        elif names_node(names, name):
            return NodeLine(line, {**defaults, **line.pairs}, defaults.get(GRES))
    return None


def names_node(names: str, name: str) -> bool:
    """Whether a list such as ``h[001-200],login1`` has this node."""
    return any(_has(term, name) for term in terms(names))


def is_for_one(names: str) -> bool:
    """Whether a list is of one node."""
    return not re.search(r"[,\[]", names)


def _has(item: str, name: str) -> bool:
    parts = re.split(r"\[([^\]]*)\]", item)
    pattern = "".join(r"([0-9]+)" if number % 2 else re.escape(part) for number, part in enumerate(parts))
    match = re.fullmatch(pattern, name)
    return match is not None and all(_in_ranges(ranges, digits) for ranges, digits in zip(parts[1::2], match.groups()))


def _in_ranges(ranges: str, digits: str) -> bool:
    """Whether digits are in such as ``001-200,7``: a number as wide as the first of its range."""
    for one in ranges.split(","):
        low, _dash, high = one.partition("-")
        if not low.isdecimal() or not (high or low).isdecimal():
            continue
        # Without zeros in front a range may grow in width: 9-10.
        padded = low.startswith("0") and len(low) > 1
        wide = len(digits) == len(low) if padded else not digits.startswith("0") or digits == "0"
        if wide and int(low) <= int(digits) <= int(high or low):
            return True
    return False


def with_value(text: str, key: str, value: Optional[str]) -> str:
    """The text with another value of a key that stands for itself; None takes its lines away. A new one comes first."""
    lines = [line for line in lines_of(text) if key.lower() in line.pairs and NODE not in line.pairs]
    if not lines:
        return text if value is None else f"{key}={value}\n{text}"
    if value is None:
        for line in reversed(lines):
            alone = len(line.pairs) == 1
            text = text[: line.start] + text[line.end :] if alone else without_pair(text, _pair_in(text, line, key))
        return text
    return with_pair(text, _pair_in(text, lines[-1], key), value)


def with_pair(text: str, pair: re.Match[str], value: str) -> str:
    """The text with another value of a pair, in quotes where that was in quotes."""
    quote = '"' if pair[3].startswith('"') else ""
    return f"{text[: pair.start(3)]}{quote}{value}{quote}{text[pair.end(3) :]}"


def without_pair(text: str, pair: re.Match[str]) -> str:
    """The text without a pair, and without the blank in front of it."""
    before = text[: pair.start()]
    return (before[:-1] if before.endswith((" ", "\t")) else before) + text[pair.end() :]


def _pair_in(text: str, line: ConfLine, key: str) -> re.Match[str]:
    # Of several the last counts.
    return [pair for pair in pairs_in(text, line.start, line.end) if pair[1].lower() == key.lower()][-1]


def pairs_in(text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """The pairs in a part of a text, but those in comments."""
    bare = COMMENT.sub(lambda comment: " " * len(comment[0]), text[start:end])
    yield from PAIR.finditer(f"{text[:start]}{bare}{text[end:]}", start, end)


def resources(gres: Optional[str]) -> Tuple[str, ...]:
    """The parts of a Gres=, sorted and without the sockets that slurmctld adds, as in ``gpu:h100:8(S:0-1)``."""
    plain = re.sub(r"\([^)]*\)", "", gres or "")
    return tuple(sorted(part.strip().lower() for part in plain.split(",") if part.strip()))


def counts_of(gres: Optional[str]) -> Tuple[str, ...]:
    """The resources of a node in the one form in which the Gres= of slurm.conf and of slurmctld are equal.

    Once slurmd has registered, slurmctld has ``shard:h100:4,shard:a100:4`` for ``shard:8``, and always ``2K`` for 2048
    (recorded of 22.05, 24.11 and 26.05).
    """
    found: Dict[str, int] = {}
    for part in resources(gres):
        kind, _colon, last = part.rpartition(":")
        match = _COUNT.fullmatch(last) if kind else None
        if match is None:
            kind, count = part, 1
        else:
            count = int(match[1]) * 1024 ** _MULTIPLES.index(match[2])
        name = resource_name(kind)
        kind = name if name in SHARES else kind
        found[kind] = found.get(kind, 0) + count
    return tuple(sorted(f"{kind}:{count}" for kind, count in found.items()))


def resource_name(part: str) -> str:
    """The name of one resource, such as ``gpu``."""
    return part.partition(":")[0].strip().lower()
