# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The text of apptainer.conf with other values; every other character of it stays."""

from __future__ import annotations

import re
from typing import List, Tuple

from ..model import BIND_PATH, Configuration, Edit, Settings
from .meaning import DIRECTIVE, WORDS

WORD_OF = {value: word for word, value in WORDS.items()}


def edit(configuration: Configuration, target: Settings) -> Tuple[Edit, ...]:
    """The edit after which the settings in ``target`` have its values; None for a bind path is: not there."""
    (document,) = configuration.documents
    text = before = document.text or ""
    for setting, value in target.items():
        if configuration.settings.get(setting) == value:
            continue
        if setting.kind != BIND_PATH:
            # A switch that no line says is off, as one that is switched off.
            text = _switched(text, setting.kind, WORD_OF[bool(value)])
        elif value:
            text = _added(text, BIND_PATH, setting.name)
        else:
            text = _unbound(text, setting.name)
    return () if text == before else (Edit(document.path, before, text),)


def _switched(text: str, name: str, word: str) -> str:
    for match in _lines(text, name):
        return text[: match.start(2)] + word + text[match.start(2) + len(match[2].rstrip()) :]
    return _added(text, name, word)


def _added(text: str, name: str, value: str) -> str:
    """A new line: after the last one of the same directive, else at the end."""
    ending = "\r\n" if "\r\n" in text else "\n"
    line = f"{name} = {value}"
    matches = _lines(text, name)
    # A match ends before the line feed, a carriage return is still in it.
    position = matches[-1].end() + 1 if matches else len(text)
    if position > len(text) or (position == len(text) and text and not text.endswith("\n")):
        return f"{text}{ending}{line}"
    return f"{text[:position]}{line}{ending}{text[position:]}"


def _unbound(text: str, bind: str) -> str:
    """Without this path, wherever it is among the values of its lines."""
    for match in reversed(_lines(text, BIND_PATH)):
        kept = [part for part in match[2].split(",") if part.strip() != bind]
        if len(kept) == len(match[2].split(",")):
            continue
        if kept:
            tail = match[2][len(match[2].rstrip()) :]
            text = text[: match.start(2)] + ",".join(kept).rstrip() + tail + text[match.end(2) :]
        else:
            start = text.rfind("\n", 0, match.start(2)) + 1
            text = text[:start] + text[match.end() + 1 :]
    return text


def _lines(text: str, name: str) -> List[re.Match[str]]:
    """The lines that give the directive a value."""
    return [match for match in DIRECTIVE.finditer(text) if match[1].strip() == name and match[2].strip()]
