# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the controller asks of a node in one look, and the answer: the same by the module and by the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Dict

from .._core import arguments
from .._core.contract import AnyConcern
from .._core.errors import DeclarationError
from .._core.nearest import did_you_mean
from .._core.setting import ACCEPTED, IN_SYNC, worded
from .._core.shared_options import SHARED_OPTIONS
from .assessment import assess_node, node_diff
from .registry import REGISTRY

if TYPE_CHECKING:
    from .._core.protocols import Host


def look(
    request: Mapping[str, Any],
    host: Host,
) -> Dict[str, Any]:
    """The result of ``node_state``, with ``failed`` and ``msg`` where what was found is not what ``expect`` says.

    ``request`` has the options of ``node_state``, and ``check_mode`` and ``diff`` of the task. Raises
    ``DeclarationError`` for what is no concern.
    """
    declared, excluded = request["declared"], request["excluded"]
    _refuse_unknown(declared)
    if request["binding"]:
        from .sent_binding import offer

        offer(host, request["binding"])
    answer = assess_node(
        {name: declaration for name, declaration in declared.items() if name not in excluded},
        host,
        validate=validated,
        full=request["detail"] == "full",
        devices=request["detail"] == "devices",
        excluded=[*declared, *excluded],
        no_diff=request["no_diff"] if request["diff"] else None,
    )
    answer["changed"] = False
    if request["facts"]:
        from .facts.collect import facts_answer

        answer.update(facts_answer(host, compressed=True))
    _say_what_lacks_the_binding(answer)
    if request["diff"]:
        answer["diff"] = node_diff(answer)
    unexpected = objections(answer, expect=request["expect"], check_mode=request["check_mode"])
    if unexpected:
        answer["failed"] = True
        answer["msg"] = "\n".join(f"{name}: {text}" for name, text in unexpected.items())
    if request["detail"] != "full":
        # Ansible handles every value of the answers of all hosts, and of a converged node nearly all are empty.
        listed = request["facts"]
        answer["concerns"] = {name: in_brief(result, listed=listed) for name, result in answer["concerns"].items()}
    return answer


def validated(concern: AnyConcern, declaration: Any) -> Dict[str, Any]:
    """A declaration made complete and checked as the concern's own module would. Raises ``DeclarationError``."""
    goal = f"read the declaration of {concern.name}"
    return arguments.validated({**SHARED_OPTIONS, **concern.options}, declaration, goal=goal)


def in_brief(result: Mapping[str, Any], *, listed: bool) -> Dict[str, Any]:
    """What somebody reads of a result. Where all is in sync, what nobody can set is only counted, unless ``listed``."""
    counted = () if listed or result["status"] != IN_SYNC else ("unmanaged",)
    return {name: value for name, value in result.items() if value and name not in counted}


def _say_what_lacks_the_binding(answer: Dict[str, Any]) -> None:
    """Name the concerns that could not be read for want of it, where there are any or the facts want it too."""
    codes = {name: result["failure"]["code"] for name, result in answer["concerns"].items() if "failure" in result}
    if codes:
        from .._nvidia.errors import NoBinding
        from .sent_binding import LACKS

        lacking = [name for name, code in codes.items() if code == NoBinding.code]
        if lacking:
            answer[LACKS] = lacking


def _refuse_unknown(declared: Mapping[str, Any]) -> None:
    names = [entry.name for entry in REGISTRY]
    for name in declared:
        if name not in names:
            hint = did_you_mean(name, names, otherwise=f"the concerns are {', '.join(names)}")
            raise DeclarationError("look", object=name, cause="there is no such concern", hint=hint)


def objections(answer: Mapping[str, Any], *, expect: str, check_mode: bool) -> Dict[str, str]:
    """The answers that the caller did not expect, by concern. The whole answer may be one ``in_brief``."""
    if expect == "nothing":
        return {}
    names = list(answer["invalid"])
    if expect == "in_sync":
        wrong = [*answer["drifted"], *answer["unknown"], *answer["invalid"]]
        if check_mode:
            # Nothing was changed, so a difference is as expected, and what waits for it too; what will fail fails now.
            failing = [name for name in wrong if "failure" in answer["concerns"][name]]
            wrong = [name for name in failing if name not in answer["waiting"]]
        names += [name for name in wrong if name not in names]
    texts = {}
    for name in names:
        result = answer["concerns"][name]
        differences = [
            _difference(row) for row in result.get("settings", ()) if row["status"] not in (IN_SYNC, ACCEPTED)
        ]
        texts[name] = result.get("msg") or "; ".join(differences)
    return texts


def _difference(row: Mapping[str, Any]) -> str:
    wanted, effective, boot = (worded(row[name]) for name in ("wanted", "effective", "boot"))
    about = f"{row['object']} {row['setting']}"
    if row.get("note"):
        return f"{about}: {row['note']}"
    if effective == wanted:
        return f"{about} is {wanted}, as wanted, but would be {boot} after a reboot"
    later = "" if boot == effective else f" (at boot {boot})"
    return f"{about} is {effective}{later}, wanted {wanted}"
