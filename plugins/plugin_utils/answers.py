# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The answer of a node to a look, read once: what everybody else may rely on.

A node whose answer is not what ``node_state`` gives has a broken disk, another's Python or an intruder. What it says in
other places is not believed either, and what the other nodes say is not touched by it.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from ..module_utils._core.setting import ACCEPTED, DRIFTED, IN_SYNC, INVALID, PENDING, UNKNOWN
from ..module_utils._node.registry import REGISTRY
from .shapes import (
    LONGEST,
    Malformed,
    by_name,
    count,
    listed,
    mapping,
    needed,
    one_of,
    optional,
    rows,
    scalar,
    text,
    whole,
)

Look = Mapping[str, Any]

# In the result of a look whose answer could not be read: the place in it, and what is wrong there.
UNREADABLE = "unreadable"
STATUSES = (IN_SYNC, PENDING, DRIFTED, UNKNOWN, INVALID)
NAMES = frozenset(entry.name for entry in REGISTRY)

_text = needed(text)
_status = needed(one_of(STATUSES))
_texts = needed(listed(_text))
_devices = rows(
    device=_text,
    pci_address=_text,
    numa_node=whole,
    interrupts=needed(whole),
    wanted=text,
    effective=text,
    elsewhere=needed(whole),
    unmanaged=needed(by_name(needed(whole))),
)
_settings = rows(
    object=_text,
    setting=_text,
    wanted=scalar,
    effective=scalar,
    boot=scalar,
    status=needed(one_of((*STATUSES, ACCEPTED))),
    note=text,
)
_conflicts = rows(
    owner=_text,
    path=_text,
    line=whole,
    object=_text,
    setting=_text,
    value=needed(scalar),
    wins=_text,
    accepted=_text,
)
_result = mapping(
    status=_status,
    # What is empty is left out.
    settings=_settings,
    settings_in_sync=count,
    changes=rows(object=text, scope=_text, takes_effect=_text),
    files=rows(path=_text, diff=_text),
    refusals=rows(code=_text, msg=_text),
    needs=listed(_text),
    restarts=listed(_text),
    unmanaged=rows(object=_text, setting=_text, reason=_text),
    unmanaged_total=count,
    conflicts=_conflicts,
    reboot_reasons=listed(_text),
    msg=text,
    failure=optional(mapping(code=text)),
    devices=optional(_devices),
    summary=text,
    unique=optional(by_name(_text)),
)


def concern_in(value: Any) -> Dict[str, Any]:
    """What a look says of one concern, with all of its fields. Raises ``Malformed``.

    What is not there says something too: of a concern that could be looked at there is no failure.
    """
    found: Dict[str, Any] = _result(value)
    if found["msg"] is None and (found["failure"] or found["status"] in (UNKNOWN, INVALID)):
        raise Malformed("is missing").within(".msg")
    return {name: entry for name, entry in found.items() if entry is not None}


_lists = (
    *("drifted", "pending", "unknown", "unknown_at_boot", "in_sync", "waiting", "read_with_binding", "invalid"),
    *("to_converge", "managed"),
)
_look = mapping(
    concerns=needed(by_name(needed(concern_in), names=NAMES)),
    orphaned=_texts,
    # Only a run that changes something asks for these.
    reboot_noted=optional(by_name(listed(_text))),
    facts=mapping(distribution=text, distribution_version=text, package_manager=text, kernel=text),
    **{name: listed(_text) for name in _lists},
)


def answered(look: Look) -> bool:
    """Whether the host said anything: of one that is out of reach, or broke down, the result has no concerns."""
    return "concerns" in look


def look_in(result: Look) -> Dict[str, Any]:
    """What the registered result of ``node_state`` says, with all of its fields and those of its concerns.

    Of a host that said nothing it is the reason alone (``msg``). Where the answer is malformed there are no concerns,
    and ``unreadable`` says why.
    """
    if isinstance(result.get(UNREADABLE), str):
        return _unreadable(result[UNREADABLE])
    if not answered(result):
        message = result.get("msg")
        return {"msg": message.strip()[:LONGEST]} if isinstance(message, str) else {}
    try:
        found: Dict[str, Any] = _look(dict(result))
    except Malformed as error:
        return _unreadable(str(error))
    return found


def why_unreadable(look: Look) -> Optional[str]:
    """The sentence about an answer that ``look_in`` could not read; None for others."""
    return f"its answer is malformed: {look[UNREADABLE]}" if UNREADABLE in look else None


def _unreadable(why: str) -> Dict[str, Any]:
    return {"concerns": {}, "orphaned": (), UNREADABLE: why}
