# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run is about."""

from __future__ import annotations

from typing import Iterator, List, Sequence, Union

from ansible.errors import AnsibleError

from ..module_utils._core.nearest import nearest
from ..module_utils._node.registry import REGISTRY
from .clusters import ROLE
from .playbooks import parse_list

CONCERNS = tuple(entry.name for entry in REGISTRY)
# What a run can be limited to: the concerns, and what is declared of clusters.
PARTS = (*CONCERNS, ROLE)

# The tags of a run that was not limited.
EVERYTHING = ("all", "always", "tagged", "untagged")

# As near as this to a concern is a typo.
NEARLY = 0.6


def names_of(value: Union[str, Sequence[str]]) -> List[str]:
    """A list of names, also from a text, as it comes from the command line or a survey."""
    return [str(name).strip() for name in parse_list(value) if str(name).strip()]


def unknown_concerns(what: str, names: Sequence[str], *, cutoff: float = 0.0) -> Iterator[str]:
    """A sentence for each name that is no concern; with a ``cutoff`` only where it is as near to one as that."""
    for name in names:
        near = nearest(name, PARTS, cutoff=cutoff)
        if name not in PARTS and (near or not cutoff):
            hint = f"did you mean {near}?" if near else f"the concerns are {', '.join(PARTS)}."
            yield f"Cannot limit the run by {what}: there is no concern {name}; {hint}"


def names_in(tags: Sequence[str]) -> List[str]:
    """The tags that limit a run, without those that say no more than everything."""
    return [tag for tag in tags if tag not in EVERYTHING]


def mistyped_tags(tags: Sequence[str], skip_tags: Sequence[str]) -> Iterator[str]:
    """A sentence for each tag that is nearly a concern. Any other tag belongs to others, and runs nothing of ours."""
    yield from unknown_concerns("tags", names_in(tags), cutoff=NEARLY)
    yield from unknown_concerns("skip-tags", skip_tags, cutoff=NEARLY)


def excluded(
    only: Union[str, Sequence[str]],
    skip: Union[str, Sequence[str]] = (),
    tags: Sequence[str] = ("all",),
    skip_tags: Sequence[str] = (),
) -> List[str]:
    """The concerns that a run is not about, by ``gpufleet_concerns``, ``gpufleet_skip`` and the tags of the run.

    Raises ``AnsibleError`` for what is no concern, or a tag that is nearly one.
    """
    only, skip = names_of(only), names_of(skip)
    wrong = [
        *unknown_concerns("gpufleet_concerns", only),
        *unknown_concerns("gpufleet_skip", skip),
        *mistyped_tags(tags, skip_tags),
    ]
    if wrong:
        raise AnsibleError("\n".join(wrong))
    return left_out(CONCERNS, only, skip, tags, skip_tags)


def left_out(
    parts: Sequence[str],
    only: Union[str, Sequence[str]],
    skip: Union[str, Sequence[str]],
    tags: Sequence[str],
    skip_tags: Sequence[str],
) -> List[str]:
    """Those of some ``PARTS`` that a run is not about."""
    only, skip, named = names_of(only), names_of(skip), names_in(tags)
    tagged = named if len(named) == len(tags) else parts
    return [
        name for name in parts if (only and name not in only) or name not in tagged or name in skip or name in skip_tags
    ]
