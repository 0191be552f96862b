# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Sequence

from ansible.utils.display import Display

from ..module_utils._core.wording import printable
from ..plugin_utils.arguments import ARGUMENTS
from ..plugin_utils.fleet_action import FleetAction
from ..plugin_utils.fleet_text import on


def texts_of(variables: Mapping[str, Any], paths: Sequence[str]) -> Iterator[str]:
    """The first of the variables that a host has, also a part of one such as ``look.refused``: a text or a list."""
    for path in paths:
        value: Any = variables
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        texts = [" ".join(str(text or "").split()) for text in (value if isinstance(value, (list, tuple)) else [value])]
        if any(texts):
            yield from filter(None, texts)
            return


class ActionModule(FleetAction):
    """Prints by the display, as all that is told of a fleet: Ansible would print a message of each host."""

    OPTIONS = ARGUMENTS["fold_messages"]

    def act(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        hosts: Dict[str, List[str]] = {}
        # Of a play in batches those of this one: the others were told of, or will be.
        everyone = variables["ansible_play_hosts_all"] if arguments["include_failed"] else ()
        for host in everyone or variables["ansible_play_batch"]:
            # As they are: what a host answered is no template.
            for text in dict.fromkeys(texts_of(variables["hostvars"].raw_get(host), arguments["variables"])):
                hosts.setdefault(text, []).append(host)
        told = [
            text for text in sorted(hosts, key=lambda text: -len(hosts[text])) if len(hosts[text]) >= arguments["least"]
        ]
        if told and arguments["title"]:
            display = Display()
            for line in ("", arguments["title"], *(f"  {on(hosts[text])}: {text}" for text in told)):
                display.display(printable(line))
        return {"told": told}
