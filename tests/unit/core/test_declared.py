# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Another declaration that lies on a node is shown where it differs from the one of the inventory."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Mapping, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import declared
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import DRIFTED, IN_SYNC, Scalar
from ansible_collections.gpufleet.node.plugins.module_utils._node.table import WIDEST
from ansible_collections.gpufleet.node.tests.unit.support import build
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SECRET = "S3cr3tS3cr3t"
OPTIONS = ("queues", "sysctl", "state")
PATH = declared.path_of("x")
LEAVES = st.booleans() | st.integers() | st.text(max_size=80)
DECLARATIONS = st.dictionaries(
    st.sampled_from(OPTIONS),
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)),
)


def look(folder: Path, there: str, wanted: Mapping[str, Any]) -> Tuple[Scalar, str]:
    """What is shown of a file with this text, and its status."""
    concern: Any = SimpleNamespace(name="x", apply_at_boot=False, options={name: {} for name in OPTIONS})
    setting, _steps = declared.plan_present(build(folder, {PATH: there}).files, concern, wanted, {})
    return setting.boot, setting.status


def text_of(declaration: Mapping[str, Any], **others: Any) -> str:
    known = {"schema": declared.SCHEMA, "concern": "x", "apply_at_boot": False, "collection_version": "0.0.1"}
    return json.dumps({**known, "declaration": declaration, **others})


@pytest.mark.parametrize(
    ("there", "wanted", "shown"),
    [
        ({"sysctl": {"vm.a": 1, "vm.b": 2}}, {"sysctl": {"vm.a": 1, "vm.b": 3}}, "sysctl.vm.b: 2"),
        ({"sysctl": {"vm.a": 1}}, {"sysctl": {"vm.a": 1, "vm.b": 3}}, "sysctl.vm.b: not set"),
        (
            {"state": "present", "sysctl": {"a": True}},
            {"state": "on", "sysctl": {"a": False}},
            "state: present; sysctl.a: true",
        ),
        ({"queues": [{"n": 1}, {"n": 2}]}, {"queues": [{"n": 1}, {"n": 3}]}, "queues[1].n: 2"),
        ({"queues": [{"n": 1}]}, {"queues": [{"n": 1}, {"n": 3}]}, 'queues: [{"n": 1}]'),
        ({"queues": ["x" * 100]}, {"queues": []}, f'queues: ["{"x" * 47}...'),
        ({}, {"queues": [1]}, "queues: not set"),
        (
            {"sysctl": {"db_password": SECRET, "z": 1}},
            {"sysctl": {"z": 2}},
            "sysctl.db_password: ********; sysctl.z: 1",
        ),
        ({"sysctl": {"x": "gh" + f"p_{SECRET * 3}"}}, {}, 'sysctl: {"x": "********"}'),
    ],
)
def test_what_it_says_otherwise_is_shown_within_the_width_of_the_table(
    tmp_path: Path, there: Mapping[str, Any], wanted: Mapping[str, Any], shown: str
) -> None:
    assert look(tmp_path, text_of(there), wanted) == (shown, DRIFTED)


def test_one_for_another_boot_says_so(tmp_path: Path) -> None:
    assert look(tmp_path, text_of({}, apply_at_boot=True), {}) == ("apply_at_boot: true", DRIFTED)


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}', "", json.dumps({"declaration": [1]})])
def test_a_damaged_one_is_called_so(tmp_path: Path, text: str) -> None:
    assert look(tmp_path, text, {}) == ("damaged", DRIFTED)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(DECLARATIONS, DECLARATIONS)
def test_any_that_differs_is_a_line_that_no_table_cuts_and_is_not_as_declared(
    tmp_path: Path, there: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    shown, status = look(tmp_path, text_of(there), wanted)
    assert (shown == declared.WANTED) == (status == IN_SYNC) == (there == wanted)
    assert 0 < len(str(shown)) <= WIDEST
    assert str(shown).isprintable()
