# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as JUnit XML: a suite a node and a case a concern, for whoever shows runs of tests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator, List, Optional, Tuple
from xml.sax.saxutils import escape, quoteattr

from ...module_utils._core.setting import ACCEPTED, DRIFTED, IN_SYNC, INVALID, PENDING, UNKNOWN
from ...module_utils._core.wording import counted
from ...module_utils._node.table import UNMANAGED, table
from .installed import NOT_INSTALLED
from .model import FACTS

if TYPE_CHECKING:
    from .model import Concern, Report, ReportNode
    from .skew import Component

# What XML 1.0 cannot hold, not even escaped.
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FAILURE, ERROR, SKIPPED = "failure", "error", "skipped"
# What only waits is no failure, as in the exit status of the audit.
VERDICTS = {NOT_INSTALLED: FAILURE, DRIFTED: FAILURE, UNKNOWN: ERROR, INVALID: ERROR, PENDING: SKIPPED}


class Case:
    """A test case; ``verdict`` is None if all is in sync."""

    def __init__(self, name: str, verdict: Optional[str] = None, message: str = "", text: str = "") -> None:
        self.name = name
        self.verdict = verdict
        self.message = message
        self.text = text


def render(report: Report) -> str:
    suites = [(node.name, _cases_of(node), _unmanaged(node)) for node in report.nodes]
    for group in report.skew:
        suites.append((f"versions of {group.name}", [_component(part) for part in group.components], 0))
    cases = [case for _name, those, _count in suites for case in those]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites name={_attribute(report.title)} {_counts(cases)}>"]
    for name, those, unmanaged in suites:
        lines += _suite(name, those, report.generated, unmanaged=unmanaged)
    return "\n".join([*lines, "</testsuites>", ""])


def _cases_of(node: ReportNode) -> List[Case]:
    cases = [Case("answer", ERROR, node.message) if node.message is not None else Case("answer")]
    cases += [_concern(node, concern) for concern in node.concerns]
    if FACTS in node.unreadable:
        cases.append(Case("facts", ERROR, node.facts_missing or ""))
    if node.facts and node.facts.gpus:
        problems = [f"GPU {gpu.index} ({gpu.pci_address}): {', '.join(gpu.problems)}" for gpu in node.sick]
        message = counted(len(problems), "sick GPU")
        cases.append(Case("health", FAILURE, message, "\n".join(problems)) if problems else Case("health"))
    if node.facts and node.facts.ports:
        problems = [f"port {port.name}: {', '.join(port.problems)}" for port in node.sick_ports]
        message = counted(len(problems), "sick port")
        cases.append(Case("ports", FAILURE, message, "\n".join(problems)) if problems else Case("ports"))
    return cases


def _unmanaged(node: ReportNode) -> int:
    """How many settings cannot be set there, which is not a fault and so has no case."""
    return sum(concern.unmanaged_total for concern in node.concerns)


def _concern(node: ReportNode, concern: Concern) -> Case:
    rows = [
        # That it was never converged is said for all of them.
        {"node": node.name, **row, "status": DRIFTED if row["status"] == NOT_INSTALLED else row["status"]}
        for row in concern.settings
        if row["status"] not in (IN_SYNC, ACCEPTED)
    ]
    waits = f"waits for {', '.join(concern.needs)}" if concern.status == PENDING and concern.needs else ""
    settings = counted(len(rows), "setting")
    absent = f"not installed: declared, and never converged ({settings})" if concern.status == NOT_INSTALLED else ""
    message = concern.message or waits or absent or f"{settings} not in sync"
    verdict = VERDICTS.get(concern.status)
    return (
        Case(concern.name, verdict, message, "\n".join(table(rows)) if rows else "") if verdict else Case(concern.name)
    )


def _component(part: Component) -> Case:
    name = f"{part.component} {part.of}".strip()
    if not part.skewed:
        return Case(name)
    lines = [f"{version.version}: {counted(len(version.nodes), 'node')}" for version in part.versions]
    return Case(name, FAILURE, counted(len(part.versions), "version"), "\n".join(lines))


def _suite(name: str, cases: List[Case], generated: str, *, unmanaged: int) -> Iterator[str]:
    moment = generated.rstrip("Z")
    yield f'  <testsuite name={_attribute(name)} timestamp="{moment}" {_counts(cases)}>'
    if unmanaged:
        yield f'    <properties><property name="{UNMANAGED}" value="{unmanaged}"/></properties>'
    for case in cases:
        head = f'    <testcase classname={_attribute(name)} name={_attribute(case.name)} time="0"'
        if case.verdict is None:
            yield f"{head}/>"
            continue
        yield f"{head}>"
        yield f"      <{case.verdict} message={_attribute(case.message)}>{escape(_legal(case.text))}</{case.verdict}>"
        yield "    </testcase>"
    yield "  </testsuite>"


def _counts(cases: List[Case]) -> str:
    verdicts = [case.verdict for case in cases]
    pairs: Tuple[Tuple[str, int], ...] = (
        ("tests", len(cases)),
        ("failures", verdicts.count(FAILURE)),
        ("errors", verdicts.count(ERROR)),
        ("skipped", verdicts.count(SKIPPED)),
    )
    return " ".join(f'{name}="{count}"' for name, count in pairs) + ' time="0"'


def _attribute(text: str) -> str:
    return quoteattr(_legal(text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _legal(text: str) -> str:
    return FORBIDDEN.sub("\ufffd", text)
