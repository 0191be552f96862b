# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: narrow
short_description: The declarations that a run is about
version_added: 0.1.0
description:
  - Leaves out the concerns that declare nothing on a host, and those that the run was told to leave out.
positional: _input
options:
  _input:
    description: The declarations of a host, by concern.
    type: dict
    required: true
  only:
    description: The only concerns to keep, as in C(gpufleet_concerns). All when empty.
    type: list
    elements: str
    default: []
  skip:
    description: The concerns to leave out, as in C(gpufleet_skip).
    type: list
    elements: str
    default: []
  tags:
    description:
      - The tags of the run, that is P(ansible.builtin.ansible_run_tags#var). When one of them is the name of a concern,
        only concerns that are named so are kept.
    type: list
    elements: str
    default: [all]
  skip_tags:
    description: The tags to skip; those that are names of concerns are left out.
    type: list
    elements: str
    default: []
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Look only at what the run is about
  gpufleet.node.node_state:
    declared: "{{ declarations | gpufleet.node.narrow(only=['hugepages'], tags=ansible_run_tags) }}"
"""

RETURN = r"""
_value:
  description: The declarations that remain.
  type: dict
"""

from difflib import get_close_matches
from typing import Any, Callable, Dict, Mapping, Sequence

from ansible.errors import AnsibleFilterError


def declares_something(declaration: Mapping[str, Any]) -> bool:
    """Whether a role was given anything to do: an entry in one of its lists, or the wish to be taken back."""
    if declaration.get("state") == "absent":
        return True
    return any(isinstance(value, (list, dict)) and len(value) > 0 for value in declaration.values())


def narrow(
    declarations: Mapping[str, Mapping[str, Any]],
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    tags: Sequence[str] = ("all",),
    skip_tags: Sequence[str] = (),
) -> Dict[str, Mapping[str, Any]]:
    for variable, names in (("gpufleet_concerns", only), ("gpufleet_skip", skip)):
        for name in names:
            if name not in declarations:
                near = get_close_matches(name, list(declarations), n=1)
                hint = f"did you mean {near[0]}?" if near else f"The concerns are {', '.join(declarations)}."
                raise AnsibleFilterError(f"Cannot narrow the run by {variable}: there is no concern {name}; {hint}")
    tagged = [name for name in declarations if name in tags]
    return {
        name: declaration
        for name, declaration in declarations.items()
        if (not only or name in only)
        and (not tagged or name in tagged)
        and name not in skip
        and name not in skip_tags
        and declares_something(declaration)
    }


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"narrow": narrow}
