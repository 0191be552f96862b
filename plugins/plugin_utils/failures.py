# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a host failed, in the same words wherever it is said: in forecasts, at the end of a run, and in its result."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..module_utils._node.registry import REGISTRY
from .answers import UNREADABLE, Look, answered
from .playbooks import DRAINED, FAILURE, NO_REPORT, OF_CLUSTER
from .summary import REFUSED, went_away

FAILED = "failed"
# In check mode, of what was foreseen.
WOULD_FAIL = "would fail"
SILENT = "did not respond"
GONE = "stopped responding"
UNSAID = "see the output of the run"
# A message has a line for each of its causes where these are of concerns.
OF_A_CONCERN = re.compile(rf"^(?=(?:{'|'.join(entry.name for entry in REGISTRY)}): )", re.MULTILINE)


class Failure(NamedTuple):
    """``how`` is said of the host, as in "h1 failed" or "h1 is left alone until h2 has booted", and has the causes."""

    how: str
    causes: Tuple[str, ...] = ()

    def also(self, cause: str) -> Failure:
        """With one more cause. What is said without any, such as who is waited for, is all there is to say."""
        if cause in self.causes or self.how not in (FAILED, WOULD_FAIL):
            return self
        return Failure(self.how, (*self.causes, cause))

    @property
    def lines(self) -> List[str]:
        """What is said of the host, by cause, so that hosts with one cause in common can be one line."""
        return [f"{self.how}: {cause}" for cause in self.causes] or [self.how]

    @property
    def text(self) -> str:
        """All of it in one line, without the words that everything here would begin with."""
        if not self.causes:
            return self.how
        causes = " ".join(self.causes)
        return causes if self.how in (FAILED, WOULD_FAIL) else f"{self.how}: {causes}"


def parsed(text: str) -> Failure:
    """The failure that a run has noted of a host, such as ``failed, and stays drained: hugepages: ...``."""
    how, colon, message = text.partition(": ")
    if not (colon and how.startswith(FAILED)):
        return Failure(one_line(text))
    return Failure(how, causes_in(message))


def causes_in(message: str) -> Tuple[str, ...]:
    """The causes that a message has, each in one line."""
    return tuple(filter(None, map(one_line, OF_A_CONCERN.split(message))))


def one_line(text: str) -> str:
    return " ".join(text.split())


def failures_in(
    known: Mapping[str, Mapping[str, Any]], looks: Mapping[str, Optional[Look]], in_play: Sequence[str]
) -> Dict[str, Failure]:
    """The hosts that have failed so far, or will at the end of the run.

    ``known`` are the variables of each host, which are no templates, and ``looks`` the last ones as they were
    registered, None where there was none. ``in_play`` are the hosts that Ansible goes on with.
    """
    answering = set(in_play)
    found = {host: _failure_of(known[host], look, answering=host in answering) for host, look in looks.items()}
    return {host: failure for host, failure in found.items() if failure is not None}


def _failure_of(variables: Mapping[str, Any], look: Optional[Look], *, answering: bool) -> Optional[Failure]:
    noted = parsed(str(variables[FAILURE])) if FAILURE in variables else None
    if noted is not None and noted.how != OF_CLUSTER:
        return noted
    own = _of_the_node(variables, look, answering=answering)
    if noted is None or own is None:
        return noted or own
    # Neither of the two hides the other, but of a node out of reach that is all there is to say.
    for line in noted.lines:
        own = own.also(line.removeprefix(f"{FAILED} "))
    return own


def _of_the_node(variables: Mapping[str, Any], look: Optional[Look], *, answering: bool) -> Optional[Failure]:
    found: Look = look or {}
    if look is not None and not answered(found):
        return Failure(FAILED if UNREADABLE in found else SILENT, causes_in(str(found.get("msg") or "")))
    if REFUSED in found:
        return Failure(FAILED, causes_in(str(found[REFUSED])))
    if not answering:
        drained = ", and was drained before" if variables.get(DRAINED) else ""
        return Failure(f"{GONE}{drained}") if went_away(look, in_play=False) else Failure(FAILED, (UNSAID,))
    return Failure(FAILED, causes_in(str(variables[NO_REPORT]))) if NO_REPORT in variables else None


def sentences(failures: Mapping[str, Failure]) -> Dict[str, str]:
    """What each of the hosts fails with: its own causes. Those of several hosts stand below, once."""
    hosts_with = Counter(line for failure in failures.values() for line in set(failure.lines))
    return {host: f"{host} {_said_alone(failure, hosts_with)}" for host, failure in failures.items()}


def _said_alone(failure: Failure, hosts_with: Mapping[str, int]) -> str:
    own = [line for line in failure.lines if hosts_with[line] == 1]
    if not own:
        return f"{failure.how if failure.causes else FAILED}, see below."
    text = " ".join([own[0], *(line.removeprefix(f"{failure.how}: ") for line in own[1:])])
    return text if len(own) == len(failure.lines) else f"{text} There is more below."
