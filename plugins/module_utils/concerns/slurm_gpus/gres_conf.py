# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""gres.conf: our lines in a block, and those of others for the same GPUs commented out. Pure.

Slurm adds all lines up, so a second one for a GPU would count it twice. Without our block and our comments the file is
again as it was, byte for byte.
"""

from __future__ import annotations

from typing import Dict, Iterator, Mapping, Optional, Sequence, Tuple

from ..._core.value import frozen
from ..._text.block import Block
from ..._text.slurm_conf import NODE, SHARES, ConfLine, lines_of, names_node
from .spec import NAME

BLOCK = Block(NAME)
GPU = "gpu"
NAMES = (GPU, *SHARES)
AUTO_DETECT = "AutoDetect"
OFF = "off"


@frozen
class GresLine:
    """A line of ours: ``files`` are the device files, ``rest`` what it says besides, as it is written."""

    name: str
    files: Tuple[str, ...]
    rest: str = ""

    @property
    def device(self) -> str:
        """What it allocates: of a MIG instance the device file of its compute instance."""
        return self.files[-1]

    @property
    def value(self) -> str:
        """What it says of the device."""
        return " ".join(filter(None, (self.rest, f"of {self.files[0]}" if len(self.files) > 1 else ""))) or "whole"

    @property
    def text(self) -> str:
        key = "File" if len(self.files) == 1 else "MultipleFiles"
        return " ".join(filter(None, (f"Name={self.name}", f"{key}={','.join(self.files)}", self.rest)))


def text_with(text: Optional[str], node: str, auto: str, lines: Sequence[GresLine]) -> str:
    """The file with these lines of ours."""
    theirs = BLOCK.without_lines(text)
    ours = "".join(f"{line}\n" for line in (f"{AUTO_DETECT}={auto}", *(line.text for line in lines)))
    return BLOCK.with_lines(None if theirs is None else _muted(theirs, node), ours, first=False)


def text_without(text: Optional[str]) -> Optional[str]:
    """The file as it was before us."""
    theirs = BLOCK.without_lines(text)
    return None if theirs is None else BLOCK.unmuted(theirs)


def ours_in(text: Optional[str]) -> Tuple[Optional[str], Tuple[GresLine, ...]]:
    """What our block says: AutoDetect, None where there is no block, and the lines."""
    found = []
    auto: Optional[str] = None
    block = BLOCK.split(text or "")
    for raw in block.ours.splitlines():
        words: Dict[str, str] = {}
        for word in raw.split():
            key, _equals, value = word.partition("=")
            words[key] = value
        if AUTO_DETECT in words:
            auto = words[AUTO_DETECT]
        elif "Name" in words:
            files = words.get("File") or words.get("MultipleFiles") or ""
            rest = " ".join(word for word in raw.split() if not word.startswith(("Name=", "File=", "MultipleFiles=")))
            found.append(GresLine(words["Name"], tuple(files.split(",")), rest))
    return auto, tuple(found)


def theirs_in(text: Optional[str], node: str) -> Tuple[ConfLine, ...]:
    """The lines of others that count for the GPUs of this node, without those that we commented out."""
    start, stop = BLOCK.numbers(text or "")
    return tuple(line for line in _about_gpus(text or "", node) if not start <= line.first < stop)


def muted_in(text: Optional[str]) -> int:
    """How many lines of others are commented out."""
    return BLOCK.count_muted(text or "")


def _muted(text: str, node: str) -> str:
    return BLOCK.muted(
        text, {number for line in _about_gpus(text, node) for number in range(line.first, line.last + 1)}
    )


def _about_gpus(text: str, node: str) -> Iterator[ConfLine]:
    for line in lines_of(text):
        if _is_for(line.pairs, node) and (
            line.pairs.get("name", "").lower() in NAMES or ("name" not in line.pairs and "autodetect" in line.pairs)
        ):
            yield line


def _is_for(pairs: Mapping[str, str], node: str) -> bool:
    names = pairs.get(NODE)
    return names is None or names_node(names, node)
