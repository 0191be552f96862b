# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``slurm_topology`` with topology.yaml, which Slurm 25.05 and newer prefer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    GpuFleetError,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._text.yaml_subset import YamlError
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_topology import topology_conf, topology_yaml
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_topology.options import OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_topology.spec import parse
from ansible_collections.gpufleet.node.tests.unit.concerns.slurm_topology.topology_machine import (
    BLOCKS,
    NODES_TEXT,
    SLURM_CONF,
    SLURM_TEXT,
    TOPOLOGIES,
    TOPOLOGY_CONF,
    TOPOLOGY_TEXT,
    TOPOLOGY_YAML,
    TREE,
    YAML_PLUGIN,
    TopologyMachine,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.slurm_topology.topology_recordings import (
    SHOWN_BLOCKS,
    SHOWN_THREE,
    SHOWN_TREE,
    TOPOCONF,
    TOPOCONF_OF_CONF,
)
from hypothesis import given
from hypothesis import strategies as st

RESTART = ["slurmctld.service"]
# As topology.yaml(5) writes it.
THEIRS = """\
---
# ours
- topology: topo1
  cluster_default: true
  tree:
    switches:
      - switch: sw_root
        children: s[1-2]
      - switch: s1
        nodes: h[01-04]
      - switch: s2
        nodes: h[05-08],login1
- topology: topo2
  cluster_default: false
  flat: true
"""
SAME: List[Dict[str, Any]] = [
    {"name": "topo2", "flat": True},
    {
        "name": "topo1",
        "cluster_default": True,
        "switches": [
            {"name": "s2", "nodes": "h05,h[06-08],login1"},
            {"name": "s1", "nodes": "h[01-04]"},
            {"name": "sw_root", "switches": "s1,s2"},
        ],
    },
]


@pytest.fixture
def machine(tmp_path: Path) -> TopologyMachine:
    return TopologyMachine(tmp_path, version="25.05.3")


def one(name: str = "a", **entry: Any) -> Dict[str, Any]:
    return {"name": name, **entry}


def several(*entries: Dict[str, Any]) -> Dict[str, Any]:
    return {"topologies": list(entries)}


def read(machine: TopologyMachine) -> Any:
    return yaml.safe_load(machine.read(TOPOLOGY_YAML))


def files(machine: TopologyMachine) -> List[str]:
    return [machine.read(path) for path in (SLURM_CONF, TOPOLOGY_CONF)]


# --- what it does -----------------------------------------------------------------------------------------------------


def test_slurmctld_has_the_topologies_after_one_restart(machine: TopologyMachine) -> None:
    outcome = machine.run(**TOPOLOGIES)
    assert read(machine) == [
        {
            "topology": "racks",
            "cluster_default": True,
            "tree": {
                "switches": [
                    {"switch": "root", "children": "leaf[1-2]"},
                    {"switch": "leaf1", "nodes": "h[01-04]"},
                    {"switch": "leaf2", "nodes": "h[05-08],login1"},
                ]
            },
        },
        {
            "topology": "nvl",
            "cluster_default": False,
            "block": {
                "block_sizes": [4, 8],
                "blocks": [{"block": "b1", "nodes": "h[01-04],login1"}, {"block": "b2", "nodes": "h[05-08]"}],
            },
        },
        {"topology": "all", "cluster_default": False, "flat": True},
    ]
    assert (machine.restarts, files(machine)) == (RESTART, [SLURM_TEXT, TOPOLOGY_TEXT])
    assert outcome.effective["plugin"] == "topology/tree"
    assert outcome.effective["topologies"] == outcome.boot["topologies"]
    assert outcome.effective["topologies"]["nvl"] == {
        "plugin": "topology/block",
        "cluster_default": False,
        "lines": ["BlockName=b1 Nodes=h[01-04],login1", "BlockName=b2 Nodes=h[05-08]", "BlockSizes=4,8"],
    }
    again = machine.run(**TOPOLOGIES)
    assert (again.status, again.changes, machine.restarts) == ("in_sync", (), RESTART)


def test_check_mode_says_what_the_run_then_changes(machine: TopologyMachine) -> None:
    predicted = machine.run(check_mode=True, **TOPOLOGIES)
    assert not machine.path(TOPOLOGY_YAML).exists()
    found = {(change.object, change.setting): change.after for change in predicted.changes}
    assert found["racks", "topology"] == "topology/tree"
    assert found["racks/leaf1", "nodes"] == "h[01-04]"
    assert found["nvl", "BlockSizes"] == "4,8"
    assert found[TOPOLOGY_YAML, "cluster_default"] == "racks"
    assert machine.run(**TOPOLOGIES).changes == predicted.changes


def test_the_smallest_change_is_that_of_one_switch(machine: TopologyMachine) -> None:
    machine.run(**TOPOLOGIES)
    changed = json.loads(json.dumps(TOPOLOGIES))
    changed["topologies"][0]["switches"][1]["nodes"] = "h[01-03]"
    look = machine.run(check_mode=True, **changed)
    found = {(one.object, one.setting, one.before, one.after) for one in look.changes if "json" not in one.object}
    assert found == {("racks/leaf1", "nodes", "h[01-04]", "h[01-03]")}
    changed["topologies"][0]["cluster_default"], changed["topologies"][1]["cluster_default"] = False, True
    machine.run(**changed)
    assert [entry["topology"] for entry in read(machine) if entry["cluster_default"]] == ["nvl"]
    assert machine.run(**changed).status == "in_sync"


def test_a_file_that_means_the_same_is_left_as_it_is(machine: TopologyMachine) -> None:
    machine.write(TOPOLOGY_YAML, THEIRS)
    machine.restart()
    outcome = machine.run(topologies=SAME)
    assert (machine.read(TOPOLOGY_YAML), machine.restarts) == (THEIRS, RESTART)
    assert all("declared.d" in change.object for change in outcome.changes)
    machine.run(state="absent")
    assert machine.read(TOPOLOGY_YAML) == THEIRS


def test_the_file_of_others_is_out_of_use_and_comes_back(machine: TopologyMachine) -> None:
    machine.write(TOPOLOGY_YAML, THEIRS)
    machine.restart()
    look = machine.run(check_mode=True, **TOPOLOGIES)
    assert [(one.line, one.value, one.wins) for one in look.remaining.conflicts] == [
        (3, "set", "us"),
        (13, "set", "us"),
    ]
    machine.run(**TOPOLOGIES)
    assert [entry["topology"] for entry in read(machine)] == ["racks", "nvl", "all"]
    assert "#slurm_topology: - topology: topo1\n" in machine.read(TOPOLOGY_YAML)
    assert machine.run(**TOPOLOGIES).remaining.conflicts == ()
    machine.run(state="absent")
    assert machine.read(TOPOLOGY_YAML) == THEIRS
    assert "topo2" in machine.daemon["topologies"]


def test_what_slurmctld_has_counts_and_not_the_file(machine: TopologyMachine) -> None:
    machine.run(**TOPOLOGIES)
    ours = machine.read(TOPOLOGY_YAML)
    machine.write(TOPOLOGY_YAML, ours.replace("h[05-08],login1", "h[05-08]"))
    machine.restart()
    machine.write(TOPOLOGY_YAML, ours)
    look = machine.run(check_mode=True, **TOPOLOGIES)
    assert [(change.object, change.before, change.scope) for change in look.changes] == [
        ("racks/leaf2", "h[05-08]", "effective")
    ]
    machine.run(**TOPOLOGIES)
    assert machine.run(**TOPOLOGIES).status == "in_sync"


def test_one_that_is_not_running_reads_it_when_it_starts(tmp_path: Path) -> None:
    machine = TopologyMachine(tmp_path, running=False, version="25.11.2")
    machine.run(**TOPOLOGIES)
    assert machine.restarts == []
    machine.restart()
    assert machine.run(**TOPOLOGIES).status == "in_sync"


def test_one_topology_needs_no_default(machine: TopologyMachine) -> None:
    machine.run(**several(one("racks", **TREE)))
    assert [entry["cluster_default"] for entry in read(machine)] == [True]


@pytest.mark.parametrize("first", [TREE, TOPOLOGIES])
def test_from_one_file_to_the_other_and_back(machine: TopologyMachine, first: Dict[str, Any]) -> None:
    """Each is in effect alone, and absent restores what was there before either."""
    second = TOPOLOGIES if first is TREE else TREE
    for declaration in (first, second, first):
        outcome = machine.run(**declaration)
        assert machine.path(TOPOLOGY_YAML).exists() is (declaration is TOPOLOGIES)
        assert bool(outcome.effective["topologies"]) is (declaration is TOPOLOGIES)
        assert machine.run(**declaration).status == "in_sync"
    machine.run(state="absent")
    assert files(machine) == [SLURM_TEXT, TOPOLOGY_TEXT]
    assert not machine.path(TOPOLOGY_YAML).exists()
    assert machine.daemon["plugin"] == "topology/default"


# --- what the real scontrol shows -------------------------------------------------------------------------------------


def test_what_the_real_slurmctld_shows_of_the_file_is_what_was_declared(machine: TopologyMachine) -> None:
    assert topology_yaml.parse(TOPOCONF) == parse(machine.params(**TOPOLOGIES)).topologies
    assert topology_yaml.parse(TOPOCONF_OF_CONF).by_name == {}
    assert machine.daemon["topologies"] == TOPOCONF_OF_CONF
    machine.run(**TOPOLOGIES)
    assert machine.daemon["topologies"] == TOPOCONF


@pytest.mark.parametrize("before", ["", "# ours\n\n", "  \n"])
def test_a_file_may_begin_with_the_version_of_yaml(machine: TopologyMachine, before: str) -> None:
    text = f"{before}%YAML 1.1\n{THEIRS}"
    assert topology_yaml.parse(text) == topology_yaml.parse(THEIRS)
    machine.write(TOPOLOGY_YAML, text)
    machine.restart()
    machine.run(topologies=SAME)
    assert (machine.read(TOPOLOGY_YAML), machine.restarts) == (text, RESTART)
    machine.run(**TOPOLOGIES)
    machine.run(state="absent")
    assert machine.read(TOPOLOGY_YAML) == text


@pytest.mark.parametrize(
    "other", ["%YAML 2.0\n---\n- topology: a\n", "%TAG ! a:\n---\n- topology: a\n", "%YAML 1.1\n- a: b\n"]
)
def test_other_directives_are_not_understood(other: str) -> None:
    with pytest.raises(YamlError):
        topology_yaml.parse(other)


@pytest.mark.parametrize("link_speed", ["1", "0"])
def test_what_the_real_slurmctld_shows_of_switches_and_blocks_is_what_was_declared(
    machine: TopologyMachine, link_speed: str
) -> None:
    tree, blocks = (parse(machine.params(**one)).topology for one in (TREE, BLOCKS))
    shown = SHOWN_TREE.replace("LinkSpeed=1", f"LinkSpeed={link_speed}")
    assert topology_conf.parse_shown(shown, "topology/tree") == tree
    assert topology_conf.parse_shown(SHOWN_BLOCKS, "topology/block") == blocks
    assert topology_conf.parse_shown(SHOWN_THREE, "topology/block").sizes == (2, 4, 8)


@pytest.mark.parametrize("declaration", [TREE, TOPOLOGIES])
def test_no_answer_about_topologies_is_unknown_though_scontrol_ends_with_0(
    machine: TopologyMachine, declaration: Dict[str, Any]
) -> None:
    machine.run(**declaration)
    real = machine.host.commands.programs["scontrol"]

    def scontrol(argv: Any) -> Any:
        # slurmctld goes between two questions.
        answer = real(argv)
        machine.silent = True
        return answer

    machine.host.commands.programs["scontrol"] = scontrol
    with pytest.raises(CannotLook, match=r"Cannot ask slurmctld for its topolog(y|ies)"):
        machine.run(check_mode=True, **declaration)


# --- the way back -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", [None, THEIRS])
def test_topologies_that_slurmctld_does_not_take_are_rolled_back(machine: TopologyMachine, theirs: Any) -> None:
    if theirs is not None:
        machine.write(TOPOLOGY_YAML, theirs)
        machine.restart()
    machine.dislikes = "h[01-04],login1"
    with pytest.raises(Refused, match=r"fatal: Invalid node name .*its former files were restored, and with them it"):
        machine.run(**TOPOLOGIES)
    path = machine.path(TOPOLOGY_YAML)
    assert (path.read_text() if path.exists() else None) == theirs
    assert machine.daemon["state"] == "active"


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({**several(one(**TREE)), **TREE}, "switches or blocks are set too. Declare them as one of the topologies."),
        (several(one()), "topologies[0] in the topology of Slurm: it has neither switches nor blocks nor flat: true"),
        (several(one(**TREE, flat=True)), "it has switches and flat, and a topology is of one kind"),
        (several(one(**TREE, **BLOCKS)), "it has switches and blocks, and a topology is of one kind"),
        (several(one(**TREE, block_sizes=[4])), "topologies[0].block_sizes in the topology of Slurm: it has no blocks"),
        (
            several(one("a:b", flat=True)),
            "topologies[0].name in the topology of Slurm: a name must be up to 64 letters",
        ),
        (
            several(one("a", cluster_default=True, flat=True), one("a", flat=True)),
            "topologies[1].name in the topology of Slurm: the name is used twice",
        ),
        (
            several(one("a", flat=True), one("b", flat=True)),
            "cluster_default in the topology of Slurm: no topology would be that of partitions that name none. "
            "Set cluster_default: true in exactly one of the topologies.",
        ),
        (
            several(one("a", flat=True, cluster_default=True), one("b", flat=True, cluster_default=True)),
            "a and b would be that of partitions",
        ),
        (several(one(blocks=[{"name": "b1", "nodes": "h[01-04]"}], block_sizes=[4, 6])), "6 is not 4 times a power of"),
        (several(one(switches=[{"name": "s", "nodes": "h01,h[01-02]"}])), None),
        (
            several(one("null", flat=True)),
            "topologies[0] in the topology of Slurm: slurmctld reads this name in topology.yaml as no value",
        ),
        (several(one("False", flat=True)), "slurmctld reads this name in topology.yaml as no value (found False)"),
        (
            several(one(switches=[{"name": "NULL", "nodes": "h01"}])),
            "slurmctld reads this name in topology.yaml as no value",
        ),
        (
            several(one(blocks=[{"name": "null", "nodes": "h01"}])),
            "slurmctld reads this name in topology.yaml as no value",
        ),
        (
            several(one(switches=[{"name": "s", "nodes": "null"}])),
            "slurmctld reads this name in topology.yaml as no value",
        ),
        (
            several(one(switches=[{"name": "s", "nodes": "h01"}, {"name": "t", "nodes": "h01"}])),
            "use h01 in the topology of Slurm: it is in both s and t",
        ),
        (
            several(one(switches=[{"name": "s", "nodes": "h[01-09]"}])),
            "Cannot give h09 a place in the topology of Slurm: no NodeName in /etc/slurm/slurm.conf has it",
        ),
    ],
)
def test_what_is_declared_wrong_is_refused_with_the_reason(
    machine: TopologyMachine, declaration: Dict[str, Any], message: Any
) -> None:
    if message is None:
        machine.run(check_mode=True, **declaration)
        return
    assert message in machine.refused(**declaration)
    assert not machine.path(TOPOLOGY_YAML).exists()


@pytest.mark.parametrize("character", [*map(chr, (*range(1, 32), *range(127, 160))), "\u2028", "\u2029"])
def test_no_control_character_gets_into_a_file(machine: TopologyMachine, character: str) -> None:
    for text in (f"{character}a", f"a{character}b", f"a{character}"):
        switch, block = {"name": "s", "nodes": "h01"}, {"name": "b", "nodes": "h01"}
        for declaration in (
            {**TREE, "folder": f"/{text}"},
            *({"switches": [{**switch, key: text}]} for key in ("name", "nodes")),
            {"switches": [switch, {"name": "t", "switches": text}]},
            *({"blocks": [{**block, key: text}]} for key in ("name", "nodes")),
            several(one(text, flat=True)),
        ):
            with pytest.raises(DeclarationError):
                parse(machine.params(**declaration))


def old(machine: TopologyMachine) -> None:
    machine.version = "24.11.5"


def without_yaml(machine: TopologyMachine) -> None:
    machine.write(str(Path(YAML_PLUGIN).with_name("serializer_json.so")), "")


def linear(machine: TopologyMachine) -> None:
    machine.edit(SLURM_CONF, "cons_tres", "linear")


def partition(machine: TopologyMachine) -> None:
    machine.edit(SLURM_CONF, "Nodes=ALL", "Topology=fast Nodes=ALL")


def node(machine: TopologyMachine) -> None:
    machine.write("/etc/slurm/nodes.conf", NODES_TEXT.replace("CPUs", "Topology=racks:leaf1,fast:b1 CPUs"))


def strange(machine: TopologyMachine) -> None:
    machine.write(TOPOLOGY_YAML, "- topology: a\n  tree: {switches: [{switch: s, nodes: h01}]}\n")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (old, "Cannot use topologies: topology.yaml came with Slurm 25.05 (found 24.11). Declare switches or blocks"),
        (without_yaml, "this Slurm was built without YAML (there is no serializer_yaml.so)"),
        (linear, "has SelectType=select/linear, with which slurmctld 25.05 would not start"),
        (partition, "Cannot leave out topology fast: partition gpu in /etc/slurm/slurm.conf names it with Topology="),
        (node, "Cannot leave out topology fast: h[01-08] in /etc/slurm/nodes.conf names it with Topology="),
        (strange, "Cannot parse /etc/slurm/topology.yaml: line 2"),
    ],
)
def test_what_this_slurm_cannot_have_is_refused_before_anything_changes(
    machine: TopologyMachine, made: Callable[[TopologyMachine], None], message: str
) -> None:
    made(machine)
    assert message in machine.refused(**TOPOLOGIES)


def test_with_its_reader_of_yaml_slurm_takes_them(machine: TopologyMachine) -> None:
    without_yaml(machine)
    machine.write(YAML_PLUGIN, "")
    assert machine.run(**TOPOLOGIES).status == "drifted"


def test_switches_are_refused_beside_the_topologies_of_others(machine: TopologyMachine) -> None:
    machine.write(TOPOLOGY_YAML, THEIRS)
    message = machine.refused(**TREE)
    assert "/etc/slurm/topology.yaml: it exists, and Slurm then ignores topology.conf" in message
    assert "Declare what it has in topologies, or remove it." in message
    # Ours in front of theirs changes nothing about that.
    machine.run(**TOPOLOGIES)
    assert message == machine.refused(**TREE)


def test_nodes_in_no_topology_are_told_unless_one_is_flat(machine: TopologyMachine) -> None:
    switches = [{"name": "s", "nodes": "h[01-04]"}]
    outcome = machine.run(**several(one(switches=switches)))
    assert [(found.object, found.setting) for found in outcome.remaining.unmanaged] == [("h[05-08],login1", "topology")]
    with pytest.raises(GpuFleetError, match=r"h\[05-08\],login1"):
        machine.run(strict=True, **several(one(switches=switches)))
    flat = several(one(switches=switches, cluster_default=True), one("b", flat=True))
    assert machine.run(strict=True, **flat).remaining.unmanaged == ()


# --- the text ---------------------------------------------------------------------------------------------------------


def test_it_reads_what_it_writes(machine: TopologyMachine) -> None:
    wanted = parse(machine.params(**TOPOLOGIES)).topologies
    assert wanted is not None
    assert topology_yaml.parse(topology_yaml.text_of(wanted)) == wanted


@pytest.mark.parametrize(
    ("text", "plugins", "default"),
    [
        ("", {}, None),
        # One topology needs no list, and one switch or block none either.
        (
            "topology: a\nblock:\n  block_sizes: 4\n  blocks:\n    block: b1\n    nodes: h[01-04]\n",
            {"a": "topology/block"},
            "a",
        ),
        # Without a default it is the first, and of several the first as well.
        (
            "- topology: b\n  flat: true\n- topology: a\n  flat: true\n",
            {"b": "topology/flat", "a": "topology/flat"},
            "b",
        ),
        (
            "- topology: b\n  flat: true\n- topology: a\n  cluster_default: TRUE\n  flat: true\n",
            {"b": "topology/flat", "a": "topology/flat"},
            "a",
        ),
        # What is not declared here shows as such.
        ("- topology: a\n  ring:\n    rings:\n      - ring: r\n        nodes: h[01-04]\n", {"a": "topology/ring"}, "a"),
        ("- topology: a\n  flat:\n    alpha_step_rank: true\n", {"a": "topology/flat"}, "a"),
        # As slurmctld tells it: what is not there is null, and topology.conf a topology of no kind.
        (
            "- topology: default\n  cluster_default: false\n  block: {}\n  flat: false\n  tree: {}\n",
            {},
            None,
        ),
        (
            "- topology: a\n  cluster_default: true\n  block: {}\n  flat: false\n  tree:\n    switches:\n"
            "    - switch: s\n      children: null\n      nodes: h[01-04]\n",
            {"a": "topology/tree"},
            "a",
        ),
    ],
)
def test_it_reads_what_slurm_reads(text: str, plugins: Dict[str, str], default: Any) -> None:
    found = topology_yaml.parse(text)
    assert ({name: topology.plugin for name, topology in found.by_name.items()}, found.default) == (plugins, default)


def test_options_of_a_kind_that_are_not_declared_are_a_difference() -> None:
    plain, ranked = (
        topology_yaml.parse(f"- topology: a\n  flat: {flat}\n") for flat in ("true", "\n    alpha_step_rank: true")
    )
    assert plain != ranked


NAMES = st.sampled_from(["a", "null", "false", "true", "yes", "no", "1", "1e3", "0x1", "a.b", "NULL", "nan"])


@given(names=st.lists(NAMES, min_size=3, max_size=3, unique=True), nodes=NAMES)
def test_what_is_declared_is_read_back(names: List[str], nodes: str) -> None:
    first, switch, block = names
    entries = [
        one(first, switches=[{"name": switch, "nodes": nodes}]),
        one(block, blocks=[{"name": block, "nodes": nodes}]),
    ]
    entries[0]["cluster_default"] = True
    validated = ArgumentSpecValidator({**SHARED_OPTIONS, **OPTIONS}).validate(several(*entries))
    try:
        declared = parse(validated.validated_parameters).topologies
    except DeclarationError:
        assert {"null", "false"} & {word.lower() for word in (*names, nodes)}
        return
    assert declared is not None
    for theirs in (None, "# said\n- topology: old\n  flat: true\n"):
        text = topology_yaml.text_with(theirs, declared)
        assert topology_yaml.parse(text) == declared
        assert topology_conf.text_without(text) == theirs


@pytest.mark.parametrize("strange", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\r"])
def test_a_line_that_readers_end_at_different_places_is_not_read(strange: str) -> None:
    with pytest.raises(YamlError, match="line 2: parsers disagree on whether"):
        topology_yaml.parse(f"# said\n# a{strange}- topology: x\n- topology: a\n  flat: true\n")
