# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts as one text: what comes out of it is what went in, and what is none says so."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.node.plugins.filter.decompress import decompress
from ansible_collections.gpufleet.node.plugins.module_utils._node import compressed
from ansible_collections.gpufleet.node.plugins.module_utils._node.compressed import compress
from ansible_collections.gpufleet.node.plugins.plugin_utils.fleet_facts import document
from ansible_collections.gpufleet.node.plugins.plugin_utils.report.model import Host, build
from ansible_collections.gpufleet.node.tests.unit.node.facts_machine import EXPECTED

NOW = "2026-11-22T10:00:00Z"


def packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode("ascii")


@pytest.fixture(params=sorted(path.stem for path in EXPECTED.glob("*.json")))
def facts(request: pytest.FixtureRequest) -> Any:
    return json.loads((EXPECTED / f"{request.param}.json").read_text(encoding="utf-8"))


def test_facts_are_the_same_again_and_half_their_size_on_the_way(facts: Any) -> None:
    text = compress(facts)
    assert decompress({"compressed": text, "changed": False}) == facts
    assert len(text) < len(json.dumps(facts, separators=(",", ":"))) / 2
    assert text.isascii()
    assert text.isprintable()


def test_report_and_document_do_not_tell_whether_facts_were_compressed(facts: Any) -> None:
    answers = [{"node": facts}, {"compressed": compress(facts)}]
    plain, short = (build({"n": Host({}, answer)}, title="T", generated=NOW) for answer in answers)
    assert plain == short
    assert plain.nodes[0].facts is not None
    documents = [document({"n": answer}, {"n": []}, generated=NOW) for answer in answers]
    assert documents[0] == documents[1]


@pytest.mark.parametrize(
    "text",
    [
        "no base64",
        "AAAA",
        "",
        compress({"gpus": []})[:-8],
        packed(b"{"),
        packed(b"\xff"),
        packed(b"[]"),
        packed(b"null"),
        "\u00e9",
    ],
)
def test_a_text_that_holds_no_facts_is_facts_that_are_missing(text: str) -> None:
    answer = {"compressed": text, "changed": False}
    (node,) = build({"n": Host({}, answer)}, title="T", generated=NOW).nodes
    assert node.facts is None
    assert node.facts_missing
    assert document({"n": answer}, {"n": []}, generated=NOW)["missing"] == ["n"]
    with pytest.raises(AnsibleFilterError, match=r"^Cannot read the facts of the node: "):
        decompress(answer)


def test_a_text_that_grows_without_end_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "MOST_BYTES", 1000)
    with pytest.raises(AnsibleFilterError, match="more than 1000 bytes"):
        decompress({"compressed": packed(b" " * 2000 + b"{}")})


def test_what_is_no_result_of_the_module_is_told(facts: Any) -> None:
    assert decompress({"node": facts}) == facts
    with pytest.raises(AnsibleFilterError, match="gpu_node_info has no answer"):
        decompress({"changed": False})
