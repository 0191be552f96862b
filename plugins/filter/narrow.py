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
  - A concern that serves others, such as C(nvml), is kept where one of them declares something.
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
      - The tags of the run, that is C(ansible_run_tags). Unless they stand for everything, only the concerns that they
        name are kept; a tag that is nearly the name of a concern is refused.
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
from typing import Any, Callable, Dict, List, Mapping, Sequence, Set, Union

from ansible.errors import AnsibleFilterError

from ..module_utils._node.registry import REGISTRY
from ..plugin_utils.playbooks import from_text

ENTRIES = {entry.name: entry for entry in REGISTRY}

# The tags of a run that was not told to run less.
EVERYTHING = ("all", "always", "tagged", "untagged")


def declares_something(concern: str, declaration: Mapping[str, Any]) -> bool:
    """Whether a role was given anything to do: by an option that is empty without it, or by another state.

    What is there and of the wrong type counts, so that the look refuses it.
    """
    entry = ENTRIES[concern]
    empty = [name for name, option in entry.concern.options.items() if option.get("default") in (None, [], {})]
    given = not entry.serves and any(declaration.get(name) not in (None, [], {}) for name in empty)
    return given or declaration.get("state", "present") != "present"


def declaring(declarations: Mapping[str, Mapping[str, Any]]) -> Set[str]:
    """The concerns that declare something, and those that serve them."""
    names = {name for name, declaration in declarations.items() if declares_something(name, declaration)}
    return names | {name for name in declarations if names.intersection(ENTRIES[name].serves)}


def names_of(value: Union[str, Sequence[str]]) -> List[str]:
    """A list of names, also from a text, as it comes from the command line or a survey."""
    return [name.strip() for name in from_text(value) if name.strip()]


def refuse_unknown(what: str, names: Sequence[str], known: Sequence[str], *, cutoff: float) -> None:
    for name in names:
        near = get_close_matches(name, known, n=1, cutoff=cutoff)
        if name not in known and (near or not cutoff):
            hint = f"did you mean {near[0]}?" if near else f"the concerns are {', '.join(known)}."
            raise AnsibleFilterError(f"Cannot narrow the run by {what}: there is no concern {name}; {hint}")


def narrow(
    declarations: Mapping[str, Mapping[str, Any]],
    only: Union[str, Sequence[str]] = (),
    skip: Union[str, Sequence[str]] = (),
    tags: Sequence[str] = ("all",),
    skip_tags: Sequence[str] = (),
) -> Dict[str, Mapping[str, Any]]:
    known = list(declarations)
    only, skip = names_of(only), names_of(skip)
    refuse_unknown("gpufleet_concerns", only, known, cutoff=0.0)
    refuse_unknown("gpufleet_skip", skip, known, cutoff=0.0)
    named = [tag for tag in tags if tag not in EVERYTHING]
    if named and not any(tag in known for tag in named):
        # A tag of somebody else's runs nothing of ours; one that is nearly a concern is a typo.
        refuse_unknown("tags", named, known, cutoff=0.6)
    tagged = named if len(named) == len(tags) else known
    given = declaring(declarations)
    return {
        name: declaration
        for name, declaration in declarations.items()
        if (not only or name in only)
        and name in tagged
        and name not in skip
        and name not in skip_tags
        and name in given
    }


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"narrow": narrow}
