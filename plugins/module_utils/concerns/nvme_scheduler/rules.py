# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Our rules for udev as text, and the texts of all rules that mention a queue."""

from __future__ import annotations

import re
from itertools import chain, product
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Tuple

from ..._core.match import names_explicitly
from ..._core.regex import regex
from ..._core.setting import Scalar
from ..._linux import udev_rules
from .spec import READ_AHEAD, TUNABLES, QueueEntry, in_lines

if TYPE_CHECKING:
    from ..._core.protocols import Files

# After the rules of the distributions, which are numbered 60.
OUR_RULES = "/etc/udev/rules.d/99-gpufleet-nvme_scheduler.rules"
PCI_PROPERTY = "GPUFLEET_PCI_ADDRESS"

OURS = "gpufleet"
# It fails for whatever is not on NFS (tools/nfsrahead/main.c of nfs-utils), and disks never are. Most nodes have it.
OF_NFS = "/nfsrahead"
_MENTIONS = ("queue/", "{*/", "read_ahead_kb", "--setra", "--setfra")
_SITE = ("/etc/", "/run/")
_RUNS = regex(
    r'^[^#\n]*\bRUN(?:\{\w+\})?\s*(?::?=|\+=\s*"(?:\S*/(?:ba)?sh\s+)?/(?:opt|usr/local|etc|root|srv|home|var)/)', re.M
)
_RUNS_ANY = regex(r"^[^#\n]*\bRUN(?:\{program\})?\s*\+=", re.M)

_LABEL = "gpufleet_nvme_scheduler"
_HEADER = """\
# Written by gpufleet.node, module nvme_scheduler. A change made here is overwritten by the next run.
#
# Not "add" alone: many rules of others answer to "change" too, and would have the last word at every close after a
# write; md and dm devices are complete only at "change". Each such event writes all values, also those that are there.
# Scheduler first: a new one resets nr_requests.
# The paths below a native multipath disk are hidden and have no events of their own: they follow their disk.
"""


def read_texts(files: Files) -> Tuple[Tuple[str, str], ...]:
    """Path and text of every rule file that may bear on a queue, in udev's order."""
    return tuple((path, text) for path, text in udev_rules.read_texts(files).items() if _bears(path, text))


def _bears(path: str, text: str) -> bool:
    """A file that mentions a queue, runs a program of the site, or takes away the programs of rules before it."""
    if any(word in text for word in _MENTIONS):
        return OF_NFS not in text or any(word in _without_nfs(text) for word in _MENTIONS)
    if "RUN" not in text or OURS in path:
        return False
    return _RUNS.search(text) is not None or (path.startswith(_SITE) and _RUNS_ANY.search(text) is not None)


def _without_nfs(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if OF_NFS not in line)


def render(entries: Sequence[QueueEntry]) -> Optional[str]:
    """Our rules: the entries in their order by their own keys, then what each writes. None where none writes."""
    if not any(entry.settings for entry in entries):
        return None
    end = f"{_LABEL}_end"
    lines = [
        f'ACTION!="add|change", GOTO="{end}"',
        f'SUBSYSTEM!="block", GOTO="{end}"',
        f'ENV{{DEVTYPE}}!="disk", GOTO="{end}"',
    ]
    if any("pci_address" in entry.entry.match for entry in entries):
        # A multipath disk has no address of its own: that of a controller of its subsystem counts.
        lines.append(
            'KERNEL=="nvme*", TEST!="mq", '
            "PROGRAM==\"/bin/sh -c 'echo $$(cat /sys%p/../nvme*/address)'\", "
            f'ENV{{{PCI_PROPERTY}}}="%c"'
        )
    lines.append("")
    sections = []
    # Entries that say the same share what they write: udev looks for the end of each jump when it reads the file.
    labels: Dict[Tuple[Tuple[str, Scalar], ...], str] = {(): end}
    for index, entry in enumerate(entries):
        says = tuple(entry.settings.items())
        if says not in labels:
            labels[says] = f"{_LABEL}_{index}"
            sections.append(_section(labels[says], end, entry))
        lines.extend(f'{test}, GOTO="{labels[says]}"' for test in _tests(entry))
    return "\n".join([_HEADER + lines[0], *lines[1:], f'GOTO="{end}"', "", *sections, f'LABEL="{end}"', ""])


def _tests(entry: QueueEntry) -> List[str]:
    """The conditions of an entry: a line for NVMe disks and, where it names them, lines for md and dm."""
    match = entry.entry.match
    names = match.get("name", ())
    # A line for each way to take a part of every list: udev reads no longer ones.
    disk = ['KERNEL=="nvme*"'] if not all(text.startswith("nvme") for text in names or ("",)) else []
    lists = [[disk], _conditions("KERNEL", names)]
    # All ATTRS of a rule must agree at one parent: these three are attributes of the controller.
    lists += [_conditions(f"ATTRS{{{key}}}", match.get(key, ())) for key in ("serial", "model")]
    addresses = match.get("pci_address", ())
    inside = [f"*{text}*" for text in addresses]
    lists.append(
        _conditions("ATTRS{address}", addresses) + (_conditions(f"ENV{{{PCI_PROPERTY}}}", inside) if inside else [])
    )
    tests = [", ".join(chain.from_iterable(line)) for line in product(*lists)]
    explicit = [text for text in names if names_explicitly(text)]
    if explicit and set(match) == {"name"}:
        # A device of dm goes by either name. Kernel names begin in one of two ways: the others need no line.
        kernel = [text for text in explicit if _may_begin(text, ("md", "dm-"))]
        if kernel:
            tests += [f'KERNEL=="md*|dm-*", {condition}' for [condition] in _conditions("KERNEL", kernel)]
        tests += [f'KERNEL=="dm-*", {condition}' for [condition] in _conditions("ATTR{dm/name}", explicit)]
    return tests


def _conditions(key: str, alternatives: Sequence[str]) -> List[List[str]]:
    """The condition that ``key`` is one of these, in as many lines as it takes; none at all takes one, without it."""
    return [[f'{key}=="{"|".join(part)}"'] for part in in_lines(alternatives)] or [[]]


def _may_begin(pattern: str, beginnings: Sequence[str]) -> bool:
    """Whether a text that agrees with this glob can begin in one of these ways."""
    fixed = re.split(r"[*?[]", pattern)[0]
    return any(fixed.startswith(beginning) or beginning.startswith(fixed) for beginning in beginnings)


def _section(label: str, end: str, entry: QueueEntry) -> str:
    lines = [f"# {entry.entry.where}", f'LABEL="{label}"']
    lines.append(f'TEST!="mq", GOTO="{label}_bio"')
    lines.extend(_write(setting, value) for setting, value in entry.settings.items())
    lines.append(f'GOTO="{end}"')
    lines.append(f'LABEL="{label}_bio"')
    lines.extend(_write(setting, value) for setting, value in entry.settings.items() if TUNABLES[setting].bio)
    below = [
        f"echo {value} > $$q/{TUNABLES[setting].file};"
        for setting, value in entry.settings.items()
        if setting != READ_AHEAD
    ]
    if below:
        loop = f"for q in /sys%p/../nvme*/nvme*c*n%n/queue; do {' '.join(below)} done"
        lines.append(f'KERNEL=="nvme*", RUN+="/bin/sh -c \'{loop}\'"')
    lines.append(f'GOTO="{end}"')
    return "\n".join([*lines, ""])


def _write(setting: str, value: object) -> str:
    file = f"queue/{TUNABLES[setting].file}"
    return f'TEST=="{file}", ATTR{{{file}}}="{value}"'
