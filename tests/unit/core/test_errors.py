# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Messages: whatever they are composed of, they are sentences."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Iterator, Optional, Tuple, Union

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.nearest import did_you_mean
from hypothesis import given
from hypothesis import strategies as st

PLUGINS = Path(__file__).parents[3] / "plugins"
MALFORMED = re.compile(r"[?!.]\.|\{\}|\bNone\b|[^.?!]\Z|  ")
SCALARS = st.sampled_from([None, 0, 7, True, "on", ""])
NAMES = st.sampled_from(["", "eth0", "/etc/x.conf", "GPU 0"])


@given(
    goal=st.sampled_from(["set mtu", "set mtu of {}", "{} is used"]),
    name=NAMES,
    cause=st.sampled_from(["it is", "it is.", "it is unknown. Did you mean one?", "permission denied!"]),
    found=SCALARS,
    wanted=SCALARS,
    hint=st.sampled_from(
        [
            "",
            "use one",
            "Use one.",
            "Did you mean one?",
            "did you mean one?",
            "did you mean one? Otherwise leave it out",
            did_you_mean("ones", ["one"]),
            did_you_mean("ones", [], otherwise="the names are one, two"),
            did_you_mean("ones", []),
        ]
    ),
)
def test_a_message_is_a_sentence_whatever_it_is_composed_of(
    goal: str, name: str, cause: str, found: Optional[str], wanted: Optional[str], hint: str
) -> None:
    message = str(GpuFleetError(goal, object=name, cause=cause, found=found, wanted=wanted, hint=hint))
    assert not MALFORMED.search(message), message


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            GpuFleetError("use {}", object="folder", cause="it must not lead back by .."),
            "Cannot use folder: it must not lead back by ...",
        ),
        (
            GpuFleetError("find {}", object="", cause="it is not a name"),
            "Cannot find '': it is not a name.",
        ),
        (
            GpuFleetError("use flags", cause="a.b is unknown. Did you mean c?"),
            "Cannot use flags: a.b is unknown. Did you mean c?",
        ),
        (
            GpuFleetError("use flags", cause="it is unknown", hint="Did you mean c?"),
            "Cannot use flags: it is unknown. Did you mean c?",
        ),
    ],
)
def test_such_messages(error: GpuFleetError, expected: str) -> None:
    assert str(error) == expected


def test_every_goal_with_a_place_for_its_object_is_given_one() -> None:
    assert list(_without_object()) == []


def _without_object() -> Iterator[Tuple[str, int]]:
    """The errors that are made with ``{}`` in their goal, and no object."""
    for path in sorted(PLUGINS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args or not _has_place(node.args[0]):
                continue
            names = {keyword.arg for keyword in node.keywords}
            if "cause" in names and "object" not in names:
                yield str(path.relative_to(PLUGINS)), node.lineno


def _has_place(goal: Union[ast.expr, ast.Starred]) -> bool:
    parts = goal.values if isinstance(goal, ast.JoinedStr) else [goal]
    return any(isinstance(part, ast.Constant) and "{}" in str(part.value) for part in parts)
