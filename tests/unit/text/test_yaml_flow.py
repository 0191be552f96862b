# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Flow collections of YAML that are not JSON, held against PyYAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.gpufleet.node.plugins.module_utils._text.yaml_subset import YamlError, parse


@pytest.mark.parametrize(
    "text",
    [
        "a: {cpu: '1', memory: 4Gi}\n",
        "a: {cpu: '1', memory: 4Gi,}  # what the site reserves\nb: c\n",
        "a: {cpu, memory: }\n",
        "a: {}\nb: []\n",
        "a: [10.96.0.10, fd00::10]\n",
        "a: [x y, 'it''s, so', \"b: {c}\"]\n",
        "a: {b: {c: [d, {e: f}]}, g: h}\n",
        "a: {\n  b: c,  # one\n  d: e\n}\nf: g\n",
        "- {numaNode: '0', limits: {memory: 1Gi}}\n- {numaNode: '1', limits: {memory: 1Gi}}\n",
        "a: {url: http://host:80/x, b: -c}\n",
        'a: {"b":c, "d": e}\n',
        "{kind: KubeletConfiguration, a: {b: c}}\n",
        "a:\n- [b, c]\n- d\n",
    ],
)
def test_a_flow_collection_means_what_pyyaml_says(text: str) -> None:
    assert parse(text, flow=True) == _none(yaml.load(text, Loader=yaml.BaseLoader))


def _none(value: Any) -> Any:
    """The value as PyYAML reads it, with None for an empty scalar."""
    if isinstance(value, dict):
        return {key: _none(one) for key, one in value.items()}
    return None if value == "" else value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {b: c\nd: e\n", r"line 2: 'd: e' cannot be read as part of a flow collection"),
        ("a: {b: [c, d}\n", r"line 1: '}' cannot be read as part of"),
        ("a: {b: &c d}\n", r"line 1: '&c d}' cannot be read as part of"),
        ("a: {b: c} d\n", r"line 1: 'd' cannot be read as part of"),
        ("a: {b: c, b: d}\n", r"line 1: b is already defined"),
        ("a: [b, [c]\n", r"line 1: '\[b, \[c\]' begins a flow collection that does not end"),
        ("a: [b, ]c]\n", r"line 1: 'c\]' cannot be read as part of"),
    ],
)
def test_what_is_not_read_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(YamlError, match=said):
        parse(text, flow=True)


def test_without_flow_only_json_is_read() -> None:
    assert parse('a: {"b": 1}\n') == {"a": {"b": 1}}
    with pytest.raises(YamlError, match="is a flow collection that is not JSON"):
        parse("a: {b: 1}\n")
    with pytest.raises(YamlError):
        parse("{a: b}\n")
