# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Set

import yaml
from ansible.plugins.action import ActionBase

from ..module_utils._node.registry import REGISTRY

ROLES = Path(__file__).resolve().parents[2] / "roles"


# What the playbooks themselves read or register.
OF_THE_PLAYBOOKS = {
    *("gpufleet_hosts", "gpufleet_concerns", "gpufleet_skip", "gpufleet_batches", "gpufleet_detail"),
    *("gpufleet_expect", "gpufleet_look", "gpufleet_concern", "audit_fail_on_drift"),
    *("gpufleet_report_dest", "gpufleet_report_formats", "gpufleet_report_headers", "gpufleet_report_title"),
    *("gpufleet_info", "gpufleet_report"),
    *("mig_relayout_drain_tasks", "mig_relayout_resume_tasks"),
}


def options_of(role: str) -> Set[str]:
    """The public variables of a role, from its argument specification."""
    document = yaml.safe_load((ROLES / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    return set(document["argument_specs"]["main"]["options"])


def unknown_variables(names: Iterable[str], known: Mapping[str, Set[str]]) -> Dict[str, Optional[str]]:
    """The names that begin with a concern and are no variable of its role, with the nearest one that is."""
    everything = sorted({*OF_THE_PLAYBOOKS, *(name for options in known.values() for name in options)})
    ours = tuple(f"{prefix}_" for prefix in (*known, "gpufleet", "mig_relayout"))
    found: Dict[str, Optional[str]] = {}
    for name in names:
        if name in everything:
            continue
        near = get_close_matches(name, everything, n=1, cutoff=0.5)
        # Others may have variables for audits of their own, so there only what is nearly ours counts.
        if name.startswith(ours) or (name.startswith("audit_") and get_close_matches(name, everything, cutoff=0.85)):
            found[name] = near[0] if near else None
    return found


class ActionModule(ActionBase):
    """Looks at the names only: no value is templated, so that two thousand hosts take seconds."""

    BYPASS_HOST_LOOP = True
    _requires_connection = False
    _VALID_ARGS: FrozenSet[str] = frozenset()

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        known = {entry.name: options_of(entry.name) for entry in REGISTRY}
        hosts_of: Dict[str, List[str]] = {}
        nearest: Dict[str, Optional[str]] = {}
        hosts = variables["ansible_play_hosts_all"]
        for host in hosts:
            for name, near in unknown_variables(variables["hostvars"].raw_get(host), known).items():
                hosts_of.setdefault(name, []).append(host)
                nearest[name] = near
        result.update(
            changed=False,
            checked=len(hosts),
            unknown=[{"name": name, "nearest": nearest[name], "hosts": hosts_of[name]} for name in sorted(nearest)],
        )
        if nearest:
            result.update(failed=True, msg="\n".join(self._sentence(entry) for entry in result["unknown"]))
        return result

    @staticmethod
    def _sentence(entry: Mapping[str, Any]) -> str:
        hosts = entry["hosts"]
        where = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
        hint = f" Did you mean {entry['nearest']}?" if entry["nearest"] else ""
        return f"Cannot use the variable {entry['name']} (on {where}): no role knows it.{hint}"
