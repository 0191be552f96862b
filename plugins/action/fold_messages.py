# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..plugin_utils.arguments import ARGUMENTS
from ..plugin_utils.fleet_text import on


def texts_of(variables: Mapping[str, Any], paths: Sequence[str]) -> Iterator[str]:
    """What a host has to say: variables, also parts of them such as ``look.refused``, that hold a text or a list."""
    for path in paths:
        value: Any = variables
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        for text in value if isinstance(value, (list, tuple)) else [value]:
            words = " ".join(str(text or "").split())
            if words:
                yield words


class ActionModule(ActionBase):
    """Prints by the display, as all that is told of a fleet: Ansible would print a message of each host."""

    BYPASS_HOST_LOOP = True
    _requires_connection = False
    _VALID_ARGS = frozenset(("variables", "title", "least"))

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        _validated, arguments = self.validate_argument_spec(ARGUMENTS["fold_messages"])
        hosts: Dict[str, List[str]] = {}
        # Of a play in batches those of this one: the others were told of, or will be.
        for host in variables["ansible_play_batch"]:
            # As they are: what a host answered is no template.
            for text in dict.fromkeys(texts_of(variables["hostvars"].raw_get(host), arguments["variables"])):
                hosts.setdefault(text, []).append(host)
        told = [
            text for text in sorted(hosts, key=lambda text: -len(hosts[text])) if len(hosts[text]) >= arguments["least"]
        ]
        display = Display()
        if told:
            display.display("")
            display.display(arguments["title"])
        for text in told:
            display.display(f"  {on(hosts[text])}: {text}")
        return {**result, "changed": False, "told": told}
