# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of Slurm as it reads them, and that nothing but the value changes in them."""

from __future__ import annotations

from typing import Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._text import slurm_conf
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_gpus import edits, gres_conf
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_gpus.gres_conf import GresLine
from hypothesis import given, settings
from hypothesis import strategies as st

LINES = (GresLine("gpu", ("/dev/nvidia0",), "Type=h100"),)


@pytest.mark.parametrize(
    ("names", "name", "there"),
    [
        ("h1", "h1", True),
        ("h1", "h11", False),
        ("a,h1,b", "h1", True),
        ("h[1-9]", "h7", True),
        ("h[1-9]", "h07", False),
        ("h[001-200]", "h042", True),
        ("h[001-200]", "h42", False),
        ("h[001-200]", "h201", False),
        ("h[8-12]", "h10", True),
        ("h[1,3-5]", "h2", False),
        ("r[1-2]n[01-10]-ib,x", "r2n10-ib", True),
        ("r[1-2]n[01-10]-ib,x", "r3n10-ib", False),
        ("h.[1-2]", "hx1", False),
    ],
)
def test_a_node_is_in_the_lists_that_slurm_has_it_in(names: str, name: str, there: bool) -> None:
    assert slurm_conf.names_node(names, name) is there


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("NodeName=h1 CPUs=4\n", "NodeName=h1 Gres=gpu:2 CPUs=4\n"),
        ("nodename = h1 gres=gpu:1 # Gres=gpu:9\n", "nodename = h1 gres=gpu:2 # Gres=gpu:9\n"),
        ("NodeName=h1 \\\n  Gres=gpu:1 \\\n  CPUs=4", "NodeName=h1 \\\n  Gres=gpu:2 \\\n  CPUs=4"),
        ("#NodeName=h1 Gres=gpu:1\r\nNodeName=h1\r\n", "#NodeName=h1 Gres=gpu:1\r\nNodeName=h1 Gres=gpu:2\r\n"),
        ('NodeName=h0 Gres=gpu:1\nNodeName="h1"\n', 'NodeName=h0 Gres=gpu:1\nNodeName="h1" Gres=gpu:2\n'),
        ("NodeName=h1 Gres=gpu:1\\\n  CPUs=4\n", "NodeName=h1 Gres=gpu:2\\\n  CPUs=4\n"),
        (
            "NodeName=DEFAULT Gres=gpu:1\nNodeName=h1 CPUs=4\n",
            "NodeName=DEFAULT Gres=gpu:1\nNodeName=h1 Gres=gpu:2 CPUs=4\n",
        ),
    ],
)
def test_only_the_gres_of_the_node_changes_and_it_goes_back(text: str, after: str) -> None:
    node = slurm_conf.node_line(text, "h1")
    assert node is not None
    before = node.gres
    changed = edits.with_gres(text, node, "gpu:2")
    assert changed == after
    again = slurm_conf.node_line(changed, "h1")
    assert again is not None
    assert again.gres == "gpu:2"
    assert edits.with_gres(changed, again, before) == text


def test_a_value_goes_on_in_the_next_line() -> None:
    text = "NodeName=h1 Gres=gpu:1,\\\nnic:4 CPUs=4\nNodeName=h2\n"
    node = slurm_conf.node_line(text, "h1")
    assert node is not None
    assert (node.gres, node.pairs["cpus"]) == ("gpu:1,nic:4", "4")
    assert edits.with_gres(text, node, "gpu:2,nic:4") == "NodeName=h1 Gres=gpu:2,nic:4 CPUs=4\nNodeName=h2\n"


def test_a_key_without_a_value_does_not_take_the_next_line() -> None:
    text = "NodeName=h1 Gres=\nNodeName=h2\n"
    node = slurm_conf.node_line(text, "h1")
    assert node is not None
    assert edits.with_gres(text, node, "gpu:2") == "NodeName=h1 Gres=gpu:2\nNodeName=h2\n"


def test_what_stands_beside_a_value_in_its_line_stays() -> None:
    text = "ClusterName=a GresTypes=gpu\nGresTypes=gpu\n"
    assert slurm_conf.with_value(text, "GresTypes", None) == "ClusterName=a\n"


def test_a_default_counts_for_the_nodes_after_it() -> None:
    text = "NodeName=h1\nNodeName=DEFAULT Gres=gpu:4 Sockets=2\nNodeName=h2 Sockets=1\n"
    first, second = slurm_conf.node_line(text, "h1"), slurm_conf.node_line(text, "h2")
    assert first is not None
    assert second is not None
    assert (first.gres, second.gres, second.pairs["sockets"]) == (None, "gpu:4", "1")


@pytest.mark.parametrize("before", ["", "GresTypes=gpu\n", "ClusterName=a\ngrestypes = gpu # these\n"])
def test_a_value_changes_in_its_place_and_goes_back(before: str) -> None:
    found: Optional[str] = slurm_conf.value_of(before, "GresTypes")
    after = slurm_conf.with_value(before, "GresTypes", "gpu,shard")
    assert slurm_conf.value_of(after, "GresTypes") == "gpu,shard"
    assert slurm_conf.with_value(after, "GresTypes", found) == before


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "# nothing",
        "Name=gpu File=/dev/nvidia[0-7]",
        "AutoDetect=nvml\nName=gpu \\\n File=/dev/nvidia0\nName=nic Count=2\n",
        "NodeName=h1 AutoDetect=nvml\nNodeName=h2 Name=gpu Count=2\n\n",
    ],
)
def test_gres_conf_has_our_lines_alone_for_the_gpus_and_goes_back(text: Optional[str]) -> None:
    once = gres_conf.text_with(text, "h1", "off", LINES)
    assert gres_conf.ours_in(once) == ("off", LINES)
    assert gres_conf.theirs_in(once, "h1") == ()
    assert "NodeName=h2 Name=gpu" not in (text or "") or "\nNodeName=h2 Name=gpu" in once
    assert gres_conf.text_with(once, "h1", "off", LINES) == once
    assert gres_conf.text_without(gres_conf.text_with(once, "h1", "nvml", ())) == text


def test_a_line_that_others_add_is_taken_out_of_use_too() -> None:
    once = gres_conf.text_with("Name=nic Count=1\n", "h1", "off", LINES)
    again = gres_conf.text_with(f"{once}Name=gpu Count=2\n", "h1", "off", LINES)
    assert gres_conf.theirs_in(again, "h1") == ()
    assert gres_conf.text_without(again) == "Name=nic Count=1\nName=gpu Count=2\n"


def test_resources_are_compared_without_their_sockets_and_order() -> None:
    assert slurm_conf.resources("gpu:h100:8(S:0-1),nic:2") == slurm_conf.resources("nic:2,gpu:h100:8")
    assert slurm_conf.resources("gpu:h100:8") != slurm_conf.resources("gpu:h100:7")


# --- any file: what is written is read back, and what was there comes back byte for byte ------------------------------

BLANKS = st.sampled_from([" ", "\t", "  ", " \\\n  "])
# Other readers end a line at some of these; Slurm does not.
COMMENTS = st.sampled_from(
    ["", "", " # said", "# Gres=gpu:9 \x0c NodeName=h1 Gres=gpu:8", " # a\x85Name=gpu\u2028Name=gpu"]
)
QUOTED = st.sampled_from(["{}", "{}", '"{}"'])


@st.composite
def configurations(draw: st.DrawFn) -> str:
    """A slurm.conf, or a gres.conf, in any dress."""
    pairs = {
        "NodeName": st.sampled_from(["h1", "h2", "DEFAULT", "h[1-3]"]),
        "Gres": st.sampled_from(["gpu:1", "gpu:h100:4,nic:2"]),
        "GresTypes": st.sampled_from(["gpu", "gpu,nic"]),
        "Name": st.sampled_from(["gpu", "nic"]),
        "File": st.just("/dev/nvidia0"),
        "CPUs": st.just("4"),
    }
    lines = []
    for _line in range(draw(st.integers(0, 4))):
        names = draw(st.lists(st.sampled_from(list(pairs)), max_size=3))
        equals = draw(st.sampled_from(["=", " = "]))
        words = [
            f"{draw(st.sampled_from([name, name.lower()]))}{equals}{draw(QUOTED).format(draw(pairs[name]))}"
            for name in names
        ]
        lines.append(draw(st.sampled_from(["", " "])) + draw(BLANKS).join(words) + draw(COMMENTS))
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines) + draw(st.sampled_from(["", "\n"]))


@settings(max_examples=60)
@given(text=configurations(), value=st.sampled_from(["gpu:2", "gpu:h100:8,nic:2"]))
def test_any_slurm_conf_is_read_back_and_restored(text: str, value: str) -> None:
    before = slurm_conf.value_of(text, "GresTypes")
    made = slurm_conf.with_value(text, "GresTypes", value)
    assert slurm_conf.value_of(made, "GresTypes") == value
    assert slurm_conf.with_value(made, "GresTypes", before) == text
    node = slurm_conf.node_line(text, "h1")
    if node is None:
        return
    made = edits.with_gres(text, node, value)
    after = slurm_conf.node_line(made, "h1")
    assert after is not None
    assert after.gres == value
    # What a line for DEFAULT brings is not said twice, so what said it twice is said once.
    if value != node.inherited and node.gres != node.inherited:
        assert edits.with_gres(made, after, node.gres) == text


@settings(max_examples=60)
@given(text=st.none() | configurations())
def test_any_gres_conf_is_read_back_and_restored(text: Optional[str]) -> None:
    made = gres_conf.text_with(text, "h1", "off", LINES)
    assert gres_conf.ours_in(made) == ("off", LINES)
    assert gres_conf.theirs_in(made, "h1") == ()
    assert gres_conf.text_with(made, "h1", "off", LINES) == made
    assert gres_conf.text_without(made) == text
