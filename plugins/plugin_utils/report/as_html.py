# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report for people: one file that asks the network for nothing.

Its data are packed, for a thousand nodes are megabytes: base64 of gzip of lines. The first line is what all nodes are
shown with, the second what several nodes have alike, and each other one a node: what it can be searched for by, a tab,
and JSON that is read when the node is opened. The page shows what it has from hosts as text alone, and its policy
forbids everything that is not the script and the style written here.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections import Counter
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence

from ...module_utils._core.setting import ACCEPTED, IN_SYNC
from ...module_utils._core.version import VERSION
from ...module_utils._node.table import NOTHING, is_ours
from .as_json import compact
from .installed import STATUSES
from .model import SCHEMA

if TYPE_CHECKING:
    from ..summary import Row
    from .cpu_divisions import CpuDivision
    from .facts import GpuFacts
    from .findings import Finding
    from .model import Concern, Report, ReportNode
    from .skew import VersionGroup

FOLDER = Path(__file__).parent / "page"
# In this order one script; each part stands on those before it.
SCRIPTS = ("start.js", "fleet.js", "lists.js", "drawing.js", "node.js", "main.js")
# A node shows so many rows of a concern; the others are in gpufleet-report.json.
ROWS_SHOWN = 400
# What many nodes have alike, and is long.
ALIKE = ("numa", "devices", "ports", "near", "concerns", "versions", "interrupts", "cpu_owners")
NOT_DECLARED = "."


def render(report: Report) -> str:
    """The page."""
    script = "".join(_part(name) for name in SCRIPTS)
    style = _part("page.css")
    values = {
        "TITLE": escape(report.title),
        "POLICY": f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        "SENTENCE": escape(_sentence(report)),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": pack(data(report)),
    }
    pieces = _part("page.html").split("@@")
    # Every second piece is a name: what came from hosts is not looked through for others.
    return "".join(values[piece] if number % 2 else piece for number, piece in enumerate(pieces))


def pack(text: str) -> str:
    """The same text gives the same bytes."""
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 9, mtime=0)).decode()


def data(report: Report) -> str:
    """The lines of the data."""
    details = [{name: compact(value) for name, value in _detail(node).items()} for node in report.nodes]
    uses = Counter(detail[name] for detail in details for name in ALIKE)
    numbers = {text: number for number, text in enumerate(text for text, count in uses.items() if count > 1)}
    lines = [compact(_fleet(report)), f"[{','.join(numbers)}]"]
    for node, detail in zip(report.nodes, details):
        alike = {name: numbers[detail[name]] for name in ALIKE if detail[name] in numbers}
        own = [f'"{name}":{text}' for name, text in detail.items() if name not in alike]
        lines.append(f'{_wanted_by(node)}\t{{{",".join(own)},"alike":{compact(alike)}}}')
    return "\n".join(lines)


def _fleet(report: Report) -> Dict[str, Any]:
    """What the views of the whole fleet have. A node is a number there, its place among the lines."""
    place = {node.name: number for number, node in enumerate(report.nodes)}
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "title": report.title,
        "generated": report.generated,
        "concerns": report.concerns,
        "settings": report.totals.counts,
        "nodes": [_line(node, report.concerns) for node in report.nodes],
        "findings": [_finding(finding, place) for finding in report.findings],
        "skew": [_group(group, place) for group in report.skew],
        "divisions": [_division(division, place) for division in report.cpu_divisions],
    }


def _finding(finding: Finding, place: Mapping[str, int]) -> Dict[str, Any]:
    return {**vars(finding), "nodes": [place[name] for name in finding.nodes]}


def _division(division: CpuDivision, place: Mapping[str, int]) -> Dict[str, Any]:
    numbers = {name: [place[node] for node in getattr(division, name)] for name in ("nodes", "stray")}
    return {**vars(division), **numbers}


def _group(group: VersionGroup, place: Mapping[str, int]) -> Dict[str, Any]:
    components = [
        {
            "component": part.component,
            "of": part.of,
            "missing": len(part.missing),
            "versions": [
                {"version": version.version, "nodes": [place[name] for name in version.nodes]}
                for version in part.versions
            ],
        }
        for part in group.components
    ]
    return {"name": group.name, "nodes": len(group.nodes), "components": components}


def _line(node: ReportNode, concerns: Sequence[str]) -> Dict[str, Any]:
    """What the table of the fleet has of a node. ``cells`` has the place of a status among all for each concern."""
    facts = node.facts
    wrong = sum(row["status"] not in (IN_SYNC, ACCEPTED) for concern in node.concerns for row in concern.settings)
    said = _worst(node)
    statuses = {concern.name: str(STATUSES.index(concern.status)) for concern in node.concerns}
    return {
        "name": node.name,
        "groups": node.groups,
        "status": node.status,
        "cells": "".join(statuses.get(name, NOT_DECLARED) for name in concerns),
        "reboot": bool(node.reboot_reasons),
        "sick": _sick(node),
        "ports": node.sick_ports,
        "degraded": node.degraded,
        "gpus": facts.models if facts else "",
        "versions": {name: facts.version(name) for name in ("driver", "CUDA", "kernel")} if facts else {},
        "first": node.message if node.message is not None else "; ".join(said),
        "wrong": wrong,
        "more": wrong - len(said) if said else 0,
    }


def _sick(node: ReportNode) -> List[Dict[str, Any]]:
    names = ("index", "model", "pci_address", "serial", "uuid", "problems", "xids", "counters")
    return [{name: getattr(gpu, name) for name in names} for gpu in node.sick]


def _worst(node: ReportNode) -> List[str]:
    """The worst that there is to say of a node, in a line; both where there are two."""
    rows = [row for concern in node.concerns for row in concern.settings if row["status"] in STATUSES[1:]]
    # That a file of ours is not on the node yet says less than what it is for.
    rows.sort(key=lambda row: (STATUSES.index(row["status"]), not is_ours(row)), reverse=True)
    return [_line_of(row) for row in (rows if len(rows) == 2 else rows[:1])]


def _line_of(row: Row) -> str:
    name = f"{row['object']} {row['setting']}" if row["setting"] != NOTHING else row["object"]
    if row.get("note"):
        return f"{name}: {row['note']}"
    # What is in effect is in sync, so it is the next boot that is not.
    when, value = ("at boot ", row["boot"]) if row["effective"] == row["wanted"] else ("", row["effective"])
    return f"{name} {when}is {'not there' if value is None else value}, wanted {row['wanted']}"


def _detail(node: ReportNode) -> Dict[str, Any]:
    """What the page of a node has besides its line."""
    facts = node.facts
    known: Dict[str, Any] = dict.fromkeys(("gpus", "numa", "near", "versions", "ports", "cpu_owners"), ())
    if facts:
        known = {**vars(facts), "gpus": [_gpu(gpu) for gpu in facts.gpus]}
    devices = facts.devices if facts else ()
    return {
        **known,
        "message": node.message,
        "reasons": node.reboot_reasons,
        "concerns": [_concern(concern) for concern in node.concerns],
        "elsewhere": {device["pci_address"]: device["elsewhere"] for device in node.interrupts if device["elsewhere"]},
        "missing": node.facts_missing,
        "devices": [
            {name: value for name, value in vars(device).items() if name != "interrupts"} for device in devices
        ],
        "interrupts": {device.pci_address: device.interrupts for device in devices},
    }


def _gpu(gpu: GpuFacts) -> Dict[str, Any]:
    return {**vars(gpu), "counters": {name: count for name, count in gpu.counters.items() if count}}


def _concern(concern: Concern) -> Dict[str, Any]:
    rows = concern.settings
    return {**vars(concern), "settings": rows[:ROWS_SHOWN], "omitted": max(0, len(rows) - ROWS_SHOWN)}


def _wanted_by(node: ReportNode) -> str:
    """What people look for when they hold a part in their hands."""
    facts = node.facts
    if not facts:
        return ""
    texts = [facts.serial, facts.product, *(text for gpu in facts.gpus for text in (gpu.serial, gpu.uuid))]
    # No line and no tab may come from a host.
    return " ".join(" ".join(text.split()) for text in texts if text).lower()


def _sentence(report: Report) -> str:
    counts = ", ".join(f"{len(names)} {status}" for status, names in report.totals.nodes.items())
    return f"{report.totals.total} nodes on {report.generated}: {counts}."


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _part(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
