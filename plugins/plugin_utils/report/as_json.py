# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report for programs: docs/report.md says what is in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Mapping

from .model import document

if TYPE_CHECKING:
    from .model import Report


def compact(value: Any) -> str:
    """A value on one line; one of the model is an object with its fields."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=vars)


def by_lines(found: Mapping[str, Any]) -> str:
    """A document with a line for each node, so that a difference of two can be read."""
    parts = []
    for name, value in found.items():
        if isinstance(value, (list, tuple)) and value:
            entries = ",\n".join(compact(entry) for entry in value)
            parts.append(f"{compact(name)}: [\n{entries}\n]")
        else:
            parts.append(f"{compact(name)}: {compact(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def render(report: Report) -> str:
    return by_lines(document(report))
