# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ansible.utils.display import Display

from ..filter.is_disruptive import is_disruptive
from ..filter.needs_convergence import needs_convergence
from ..filter.needs_reboot import needs_reboot
from ..filter.needs_repartition import needs_repartition
from ..module_utils._core.setting import DRIFTED, INVALID, UNKNOWN
from ..module_utils._core.wording import agreeing, counted, printable
from ..plugin_utils.answers import Look, answered
from ..plugin_utils.arguments import ARGUMENTS
from ..plugin_utils.failures import WOULD_FAIL, Failure, failures_in, one_line
from ..plugin_utils.fleet_action import FleetAction
from ..plugin_utils.fleet_text import drift, file_differences, forecast, on, verdict, where
from ..plugin_utils.playbooks import DRAINED, FAILURE, FAILURES, NO_REPORT, OF_CLUSTER
from ..plugin_utils.summary import REFUSED, UNREACHABLE, registered, stopped, summarise, went_away

NO_BACKEND = "none"
FAIL = "fail"
# Codes of refusals for want of packages that a role installs before it runs its module, with what declares them.
PACKAGES = {"no_package": "", "no_runtime": "container_toolkit_version"}
NOT_STARTED = "not started: {}, because too many nodes failed: {}. Fix the cause, then run it again"
NOT_RIGHT = (DRIFTED, UNKNOWN, INVALID, UNREACHABLE)
# What a playbook says in check mode where it would do nothing.
NOTHING = {
    "site": "Nothing: every node is in sync, or waits for something that a run cannot do.",
    "mig_repartition": "Nothing: no GPU needs repartitioning.",
    "reboot": "Nothing: no node waits for a reboot.",
    "remove": "Nothing: these nodes have nothing of this collection.",
}


class ActionModule(FleetAction):
    """Prints by the display, line by line: a table inside a JSON string cannot be read."""

    OPTIONS = ARGUMENTS["drift_report"]

    def act(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        found = registered(variables["hostvars"], variables["ansible_play_hosts_all"], arguments["register"])
        looks: Dict[str, Look] = {host: look or {} for host, look in found.items()}
        summary = summarise(looks, arguments["clusters"])
        answering = set(variables["ansible_play_hosts"])
        gone = {
            host: bool(variables["hostvars"].raw_get(host).get(DRAINED))
            for host, look in found.items()
            if went_away(look, in_play=host in answering)
        }
        folds = arguments["detail"] == "brief" and (summary.total > 1 or _hides_files(summary.looks))
        failing: Dict[str, Failure] = {}
        if arguments["forecast"]:
            lines, failing = self._forecast(arguments, found, summary.looks, variables)
        else:
            not_started, failed = stopped(variables["hostvars"], found)
            lines = list(drift(summary, gone, detail=arguments["detail"], whole=bool(self._task.diff)))
            lines[-1:-1] = [NOT_STARTED.format(on(not_started), where(failed))] if not_started else []
            # Ansible shows the difference of a task only where it changed something, and a look changes nothing.
            lines += file_differences(summary.looks) if arguments["files"] and folds else ()
        display = Display()
        for line in ("", arguments["title"], *(f"  {line}" for line in lines)):
            display.display(printable(line))
        result: Dict[str, Any] = {
            "rows": [row for rows in summary.rows.values() for row in rows],
            "devices": [device for devices in summary.devices.values() for device in devices],
            "counts": summary.counts,
            "nodes": summary.nodes,
            "reboot_reasons": summary.reboot_reasons,
            "differences_folded": folds,
            "unforeseen": {
                host: names for host, look in summary.looks.items() for names in (_unforeseen(look),) if names
            },
            "failing": {host: {"how": one.how, "causes": list(one.causes)} for host, one in failing.items()},
        }
        bad = [(name, status) for status in NOT_RIGHT for name in summary.nodes[status]]
        result["verdicts"] = {
            name: {"status": status, "sentence": verdict(name, status, summary.looks[name], summary.rows.get(name, ()))}
            for name, status in bad
        }
        if arguments["fail_on_drift"] and bad:
            are = agreeing(len(bad), "is", "are")
            result.update(failed=True, msg=f"{len(bad)} of {counted(summary.total, 'node')} {are} not in sync")
        return result

    @staticmethod
    def _forecast(
        arguments: Mapping[str, Any],
        found: Mapping[str, Optional[Look]],
        read: Mapping[str, Look],
        variables: Mapping[str, Any],
    ) -> Tuple[List[str], Dict[str, Failure]]:
        """What would be done, and where the run would fail. The looks are as they were registered, and read."""
        playbook, register, clusters = arguments["forecast"], arguments["register"], arguments["clusters"]
        hostvars = variables["hostvars"]
        known = {host: hostvars.raw_get(host) for host in found}
        looks: Dict[str, Look] = {host: look or {} for host, look in found.items()}
        left = set(variables.get("groups", {}).get("gpufleet_left_drained", ()))
        chosen, reasons = _begun(playbook, [host for host in looks if answered(looks[host])], hostvars, register, left)
        in_part = {
            host
            for host, look in looks.items()
            if playbook == "site" and answered(look) and _fails_in_part(known[host], look)
        }
        chosen |= in_part
        drained = {host for host in chosen if host in left or playbook != "site" or is_disruptive(looks[host])}
        failing = {
            host: _with_other_concerns(failure, read[host]) if looks[host].get(REFUSED) else failure
            for host, failure in failures_in(known, found, variables["ansible_play_hosts"]).items()
        }
        # Where nothing is done because a declaration is wrong, the other concerns may be refused all the same.
        asked = [host for host in looks if host in chosen or looks[host].get(REFUSED)] if reasons is None else ()
        refusals = [
            (host, verb, text)
            for host, verb, text in _refusals({host: read[host] for host in asked}, hostvars)
            if host not in failing or (text not in failing[host].causes if verb == FAIL else host in in_part)
        ]
        lines = forecast(
            {host: looks[host] for host in looks if host in chosen or host in failing},
            clusters={host: len(its["changes"]) for host, its in clusters.items() if host in looks},
            drained={host for host in drained if _backend(hostvars[host]) != NO_BACKEND},
            undrained={
                host for host in drained if _backend(hostvars[host]) == NO_BACKEND and _ends(playbook, looks[host])
            },
            failing={host: failure.text for host, failure in failing.items()},
            in_part=in_part,
            refusals=refusals,
            reasons=reasons,
            detail=arguments["detail"],
        )
        for host, verb, text in refusals:
            if verb == FAIL:
                failing[host] = failing.get(host, Failure(WOULD_FAIL)).also(text)
        lines = lines or [NOTHING[playbook]]
        lines += file_differences({host: read[host] for host in chosen}) if reasons is None else ()
        return lines, failing


def _hides_files(looks: Mapping[str, Look]) -> bool:
    """Whether one of the files that would change is not to be shown, which only a look knows."""
    results = [result for look in looks.values() for result in look.get("concerns", {}).values()]
    return any(not one["diff"] for result in results for one in result.get("files", ()))


def _unforeseen(look: Look) -> List[str]:
    """The concerns that a run would converge, and of which this look cannot say what would change."""
    results = look.get("concerns", {})
    return [name for name in look.get("to_converge", ()) if name not in results or "failure" in results[name]]


def _with_other_concerns(failure: Failure, look: Look) -> Failure:
    """The failure of a host to which nothing is done, with what other concerns of it would fail with."""
    for name, result in look.get("concerns", {}).items():
        if "failure" in result and name not in look["waiting"]:
            failure = failure.also(one_line(f"{name}: {result['msg']}"))
    return failure


def _refusals(looks: Mapping[str, Look], hostvars: Any) -> List[Tuple[str, str, str]]:
    """The failures of a run on its way, as host, verb and text; where it installs packages first, these instead."""
    found = []
    for host, look in looks.items():
        results = look.get("concerns", {})
        for name in (name for name in look.get("to_converge", ()) if name in results):
            for one in results[name]["refusals"]:
                declares = PACKAGES.get(one["code"])
                installs = declares is not None and (not declares or hostvars[host].get(declares))
                text = f"packages, for {name}" if installs else one_line(f"{name}: {one['msg']}")
                found.append((host, "install" if installs else FAIL, text))
    return found


def _fails_in_part(variables: Mapping[str, Any], look: Look) -> bool:
    """Whether the run does on a node what it can, and then fails for one of its concerns, its cluster or the report."""
    if look.get(REFUSED):
        # That of the second look, which objects to concerns. Where a declaration is wrong, nothing is done.
        return not look.get("invalid")
    if FAILURE in variables:
        return FAILURES in variables or str(variables[FAILURE]).startswith(OF_CLUSTER)
    return NO_REPORT in variables


def _begun(
    playbook: str, hosts: Sequence[str], hostvars: Any, register: str, left: Set[str]
) -> Tuple[Set[str], Optional[Mapping[str, Sequence[str]]]]:
    """The hosts that a playbook would begin with, and why it would reboot them where that is what it is for."""
    drained = sorted(left)
    if playbook == "reboot":
        reasons = needs_reboot(hosts, hostvars, register, drained=drained)
        return set(reasons), reasons
    if playbook == "remove":
        looks = registered(hostvars, hosts, register)
        return {host for host in hosts if (looks[host] or {}).get("managed") or host in left}, None
    choose = needs_repartition if playbook == "mig_repartition" else needs_convergence
    return set(choose(hosts, hostvars, register, drained=drained)), None


def _ends(playbook: str, look: Look) -> bool:
    """Whether jobs would end, or what is to be done waits for their end. A restore may be anything."""
    return playbook == "reboot" or (playbook != "remove" and is_disruptive(look))


def _backend(variables: Mapping[str, Any]) -> str:
    return str(variables.get("drain_backend", NO_BACKEND))
