# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is its own of ``slurm_topology``. The contract of all concerns is in tests/unit/contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, Refused
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_topology.state import NOTE
from ansible_collections.gpufleet.node.tests.unit.concerns.slurm_topology.topology_machine import (
    BLOCKS,
    LOG,
    NODES_TEXT,
    PID,
    SLURM_CONF,
    SLURM_TEXT,
    TOPOLOGY_CONF,
    TOPOLOGY_TEXT,
    TREE,
    TopologyMachine,
    started,
)

RESTART = ["slurmctld.service"]
DECLARED = "/etc/gpufleet/declared.d/slurm_topology.json"


@pytest.fixture
def machine(tmp_path: Path) -> TopologyMachine:
    return TopologyMachine(tmp_path)


def tree(*switches: Dict[str, str]) -> Dict[str, Any]:
    return {"switches": list(switches)}


def leaf(name: str, nodes: str) -> Dict[str, str]:
    return {"name": name, "nodes": nodes}


def above(name: str, switches: str) -> Dict[str, str]:
    return {"name": name, "switches": switches}


def blocks(*nodes: str, sizes: Any = ()) -> Dict[str, Any]:
    return {"blocks": [leaf(f"b{at}", names) for at, names in enumerate(nodes, 1)], "block_sizes": list(sizes)}


# --- what it does -----------------------------------------------------------------------------------------------------


def test_slurmctld_has_the_switches_after_one_restart(machine: TopologyMachine) -> None:
    outcome = machine.run(**TREE)
    assert machine.lines() == [
        "SwitchName=root Switches=leaf[1-2]",
        "SwitchName=leaf1 Nodes=h[01-04]",
        "SwitchName=leaf2 Nodes=h[05-08],login1",
    ]
    assert machine.read(SLURM_CONF) == f"TopologyPlugin=topology/tree\n{SLURM_TEXT}"
    assert (started(machine), machine.restarts) == ("topology/tree", RESTART)
    assert outcome.effective == {
        "slurmctld": "running",
        "plugin": "topology/tree",
        "lines": machine.lines(),
        "topologies": {},
    }
    again = machine.run(**TREE)
    assert (again.status, again.changes, machine.restarts) == ("in_sync", (), RESTART)


def test_slurmctld_has_the_blocks_in_their_order(machine: TopologyMachine) -> None:
    machine.run(**BLOCKS)
    assert machine.lines() == ["BlockName=b1 Nodes=h[01-04],login1", "BlockName=b2 Nodes=h[05-08]", "BlockSizes=4,8"]
    assert started(machine) == "topology/block"
    machine.run(blocks=list(reversed(BLOCKS["blocks"])), block_sizes=[4, 8])
    assert [line.partition(" ")[0] for line in machine.lines()] == ["BlockName=b2", "BlockName=b1", "BlockSizes=4,8"]
    assert len(machine.restarts) == 2


@pytest.mark.parametrize("sizes", [(), (1,), (1, 2), (1, 4), (1, 2, 4, 8)])
def test_sizes_of_blocks_are_compared_by_what_slurmctld_makes_of_them(machine: TopologyMachine, sizes: Any) -> None:
    """Of sizes that are beyond all blocks it tells nothing."""
    declaration = blocks("h01,h02", "h[03-04]", "h05,h06", sizes=sizes)
    machine.run(**declaration)
    again = machine.run(**declaration)
    assert (again.status, machine.restarts) == ("in_sync", RESTART)


def test_a_tree_becomes_blocks_and_a_tree_again(machine: TopologyMachine) -> None:
    for declaration in (TREE, BLOCKS, TREE):
        machine.run(**declaration)
        assert machine.run(**declaration).status == "in_sync"
    assert len(machine.restarts) == 3
    machine.run(state="absent")
    assert (machine.read(SLURM_CONF), machine.read(TOPOLOGY_CONF)) == (SLURM_TEXT, TOPOLOGY_TEXT)


def test_the_smallest_change_is_that_of_one_switch(machine: TopologyMachine) -> None:
    machine.run(**TREE)
    look = machine.run(**tree(*TREE["switches"][:2], leaf("leaf2", "h[05-08]")), check_mode=True)
    switches = [(one.object, one.setting, one.before, one.after) for one in look.changes if one.object == "leaf2"]
    assert switches == [("leaf2", "nodes", "h[05-08],login1", "h[05-08]")] * 2
    assert {change.object for change in look.changes} == {"leaf2", DECLARED}


@pytest.mark.parametrize(
    "text",
    [
        "SwitchName=leaf1 Nodes=h01,h02,h03,h04\nSwitchName=leaf2 nodes=h[05-07],login1,h08\n"
        "SwitchName=root Switches=leaf2,leaf1\n",
        "# ours\nswitchname=root switches=leaf[1-2] LinkSpeed=9\nSwitchName=leaf1 Nodes=h[01-02,03-04]\n"
        "SwitchName=leaf2 \\\n  Nodes=login1,h0[5-8] # the others\n",
    ],
)
def test_a_file_that_means_the_same_is_left_as_it_is(machine: TopologyMachine, text: str) -> None:
    machine.write(TOPOLOGY_CONF, text)
    machine.run(**TREE)
    assert machine.read(TOPOLOGY_CONF) == text
    machine.run(state="absent")
    assert (machine.read(TOPOLOGY_CONF), machine.read(SLURM_CONF)) == (text, SLURM_TEXT)


def test_where_all_is_as_declared_nothing_is_ours(machine: TopologyMachine) -> None:
    machine.write(TOPOLOGY_CONF, "SwitchName=all Nodes=h[01-08],login1\n")
    machine.edit(SLURM_CONF, "ClusterName", "TopologyPlugin=topology/tree\nClusterName")
    machine.restart()
    outcome = machine.run(**tree(leaf("all", "login1,h[01-08]")))
    assert ({change.object for change in outcome.changes}, machine.restarts) == ({DECLARED}, RESTART)


def test_what_slurmctld_has_counts_and_not_the_file(machine: TopologyMachine) -> None:
    machine.run(**TREE)
    ours = machine.read(TOPOLOGY_CONF)
    machine.edit(TOPOLOGY_CONF, "h[05-08],login1", "h[05-08]")
    machine.restart()
    machine.write(TOPOLOGY_CONF, ours)
    look = machine.run(check_mode=True, **TREE)
    assert [(change.object, change.before, change.scope) for change in look.changes] == [
        ("leaf2", "h[05-08]", "effective")
    ]
    machine.run(**TREE)
    assert machine.run(**TREE).status == "in_sync"


def test_a_line_that_somebody_adds_is_taken_out_of_use(machine: TopologyMachine) -> None:
    machine.run(**TREE)
    machine.write(TOPOLOGY_CONF, f"{machine.read(TOPOLOGY_CONF)}SwitchName=leaf1 Nodes=h09\n")
    ours = machine.lines()[:3]
    machine.run(**TREE)
    assert "#slurm_topology: SwitchName=leaf1 Nodes=h09\n" in machine.read(TOPOLOGY_CONF)
    assert (machine.lines(), machine.restarts) == (ours, RESTART)
    machine.run(state="absent")
    assert machine.read(TOPOLOGY_CONF) == f"{TOPOLOGY_TEXT}\nSwitchName=leaf1 Nodes=h09\n"


def test_the_lines_of_others_are_named_before_they_are_taken_out_of_use(machine: TopologyMachine) -> None:
    look = machine.run(check_mode=True, **TREE)
    assert [(one.path, one.line, one.value, one.wins) for one in look.remaining.conflicts] == [
        (TOPOLOGY_CONF, 2, "set", "us")
    ]


def test_a_template_of_ansible_that_writes_the_file_again_is_named(machine: TopologyMachine) -> None:
    machine.write("/etc/slurm/nodes.conf", f"# Ansible managed\n{NODES_TEXT}")
    assert [one.path for one in machine.run(**TREE).remaining.conflicts] == ["/etc/slurm/nodes.conf"]


def test_a_slurmctld_that_somebody_stopped_is_left_alone(tmp_path: Path) -> None:
    machine = TopologyMachine(tmp_path, running=False)
    outcome = machine.run(**TREE)
    assert (machine.restarts, outcome.effective["slurmctld"]) == ([], "stopped")
    machine.restart()
    assert machine.run(**TREE).status == "in_sync"


def test_one_that_failed_is_started(machine: TopologyMachine) -> None:
    """It could not read the topology of somebody else."""
    machine.edit(SLURM_CONF, "ClusterName", "TopologyPlugin=topology/tree\nClusterName")
    machine.write(TOPOLOGY_CONF, "SwitchName=root Switches=nowhere\n")
    machine.restart()
    assert machine.daemon["state"] == "failed"
    outcome = machine.run(**TREE)
    assert (started(machine), outcome.effective["slurmctld"]) == ("topology/tree", "running")


def test_for_the_next_start_alone_nothing_is_restarted(machine: TopologyMachine) -> None:
    machine.run(immediate=False, **TREE)
    assert (machine.restarts, len(machine.lines())) == ([], 3)
    machine.restart()
    machine.run(**TREE)
    assert (started(machine), machine.restarts) == ("topology/tree", RESTART)


# --- the way back -----------------------------------------------------------------------------------------------------


def test_a_topology_that_slurmctld_does_not_take_is_rolled_back(machine: TopologyMachine) -> None:
    machine.run(**tree(leaf("all", "h[01-08],login1")))
    before = machine.read(SLURM_CONF), machine.read(TOPOLOGY_CONF)
    machine.dislikes = "leaf1"
    with pytest.raises(Refused) as caught:
        machine.run(**TREE)
    assert str(caught.value) == (
        "Cannot restart slurmctld.service with this topology: Job for slurmctld.service failed because the control "
        "process exited; it said: fatal: Invalid node name (leaf1) in switch config; its former files were restored, "
        "and with them it runs. See journalctl -u slurmctld.service and its log file."
    )
    assert (machine.read(SLURM_CONF), machine.read(TOPOLOGY_CONF)) == before
    assert (started(machine), len(machine.restarts)) == ("topology/tree", 3)
    assert not machine.path(NOTE).exists()
    # What is refused leaves nothing to restore.
    machine.run(state="absent")
    assert (machine.read(SLURM_CONF), machine.read(TOPOLOGY_CONF)) == (SLURM_TEXT, TOPOLOGY_TEXT)


def test_one_that_ends_after_systemd_called_it_started_is_found(machine: TopologyMachine) -> None:
    """Up to Slurm 23.11 the unit is of the type simple."""
    machine.dislikes = "leaf1"
    systemctl = machine.host.commands.programs["systemctl"]

    def simple(argv: Any) -> Any:
        answer = systemctl(argv)
        return answer if argv[1] == "show" else type(answer)(0, "", "")

    machine.host.commands.programs["systemctl"] = simple
    with pytest.raises(Refused, match="it ended; it said: fatal: Invalid node name"):
        machine.run(**TREE)
    assert (started(machine), machine.read(TOPOLOGY_CONF)) == ("topology/default", TOPOLOGY_TEXT)


def test_a_file_that_was_not_there_is_gone_again(machine: TopologyMachine) -> None:
    machine.path(TOPOLOGY_CONF).unlink()
    machine.dislikes = "leaf1"
    with pytest.raises(Refused):
        machine.run(**TREE)
    assert not machine.path(TOPOLOGY_CONF).exists()
    assert machine.read(SLURM_CONF) == SLURM_TEXT


def test_a_run_that_was_killed_after_it_wrote_has_its_way_back_too(machine: TopologyMachine) -> None:
    """The files are those of the declaration, and slurmctld still runs with the former ones, or ended with these."""
    texts = {TOPOLOGY_CONF: TOPOLOGY_TEXT, SLURM_CONF: SLURM_TEXT}
    machine.dislikes = "leaf1"
    identity = _identity(machine)
    for ends in (False, True):
        machine.write(NOTE, json.dumps({"process": identity, "texts": texts}))
        machine.write(SLURM_CONF, f"TopologyPlugin=topology/tree\n{SLURM_TEXT}")
        machine.write(TOPOLOGY_CONF, "SwitchName=leaf1 Nodes=h[01-08],login1\n")
        if ends:
            machine.restart()
        with pytest.raises(Refused, match="with them it runs"):
            machine.run(**tree(leaf("leaf1", "h[01-08],login1")))
        assert (machine.read(SLURM_CONF), machine.read(TOPOLOGY_CONF)) == (SLURM_TEXT, TOPOLOGY_TEXT)
        assert started(machine) == "topology/default"


@pytest.mark.parametrize("note", ["5", "[1]", '{"process": "of before", "texts": {"/etc/slurm/topology.conf": "x"}}'])
def test_a_note_of_another_slurmctld_or_a_damaged_one_is_none(machine: TopologyMachine, note: str) -> None:
    machine.write(NOTE, note)
    machine.dislikes = "leaf1"
    with pytest.raises(Refused, match="with them it runs"):
        machine.run(**TREE)
    assert machine.read(TOPOLOGY_CONF) == TOPOLOGY_TEXT


def test_a_way_back_that_fails_too_is_said(machine: TopologyMachine) -> None:
    machine.write("/etc/slurm/nodes.conf", NODES_TEXT)
    machine.run(**tree(leaf("all", "h[01-08],login1")))
    machine.dislikes = "Nodes="
    with pytest.raises(Refused, match=r"files were restored, and with them Job for slurmctld\.service failed .* too"):
        machine.run(**TREE)


def _identity(machine: TopologyMachine) -> str:
    from ansible_collections.gpufleet.node.plugins.module_utils._machine import processes

    process = processes.read(machine.host.files, PID)
    assert process is not None
    return str(process.identity)


# --- absent -----------------------------------------------------------------------------------------------------------


def test_absent_restores_the_plugin_and_the_switches_of_others(machine: TopologyMachine) -> None:
    theirs = SLURM_TEXT.replace("ClusterName", "TopologyPlugin=topology/tree # ours\nClusterName")
    machine.write(SLURM_CONF, theirs)
    machine.restart()
    machine.run(**BLOCKS)
    assert machine.read(SLURM_CONF) == theirs.replace("topology/tree", "topology/block")
    machine.run(state="absent")
    assert (machine.read(SLURM_CONF), machine.read(TOPOLOGY_CONF)) == (theirs, TOPOLOGY_TEXT)
    assert machine.daemon["lines"][0].startswith("SwitchName=all ")
    assert len(machine.restarts) == 3


def test_absent_knows_its_folder(tmp_path: Path) -> None:
    machine = TopologyMachine(tmp_path, running=False)
    machine.write("/opt/slurm/etc/slurm.conf", SLURM_TEXT.replace("Include nodes", "Include /etc/slurm/nodes"))
    machine.run(folder="/opt/slurm/etc/", **TREE)
    assert machine.path("/opt/slurm/etc/topology.conf").exists()
    machine.run(state="absent")
    assert not machine.path("/opt/slurm/etc/topology.conf").exists()


def test_absent_without_a_slurmctld_restores_the_files(machine: TopologyMachine) -> None:
    machine.run(**TREE)
    for path in (machine.path("/usr/lib/systemd/system/slurmctld.service"), machine.path(f"/proc/{PID}/stat")):
        path.unlink()
    machine.run(state="absent")
    assert (machine.read(SLURM_CONF), machine.read(TOPOLOGY_CONF)) == (SLURM_TEXT, TOPOLOGY_TEXT)


# --- refused ----------------------------------------------------------------------------------------------------------

CHAIN = [above(f"s{at}", f"s{at + 1}") for at in range(22)]


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({}, "neither switches, blocks nor topologies are set. Declare switches for topology/tree, blocks for"),
        ({**TREE, **BLOCKS}, "switches are set too, and topology.conf holds one topology. Leave one of the two out"),
        ({**TREE, "block_sizes": [4]}, "no blocks are set, and a tree has none"),
        (tree({"name": "a"}), "Cannot use a in the topology of Slurm: it has neither nodes nor switches below it"),
        (tree({"name": "a", "nodes": "h01", "switches": "b"}), "it has both nodes and switches"),
        (
            tree(leaf("a", "h01"), leaf("a", "h02")),
            "switches[1].name in the topology of Slurm: the name is used twice",
        ),
        (tree(leaf("a,b", "h01")), "begin with a letter or digit (found 'a,b')"),
        (tree(leaf("a\nSwitchName=b", "h01")), "(found 'a\\nSwitchName=b')"),
        (tree(leaf("a" * 65, "h01")), "a name must be up to 64 letters"),
        (tree(leaf("a", "")), "switches[0].nodes in the topology of Slurm: a name is missing in it (found '')"),
        (
            tree(leaf("a", "h[01-")),
            "a bracket in it does not end (found 'h[01-'). Write a list such as h[001-016],h031.",
        ),
        (tree(leaf("a", "h01\nSwitchName=b Nodes=h02")), "a name has letters, digits, dots, hyphens"),
        (tree(leaf("a", "h[04-01]")), "[04-01] counts down"),
        (
            tree(leaf("a", "h[01-04]"), leaf("b", "h04")),
            "use h04 in the topology of Slurm: it is in both a and b",
        ),
        (tree(above("r", "a,b"), leaf("a", "h01")), "Cannot use r in the topology of Slurm: there is no switch b"),
        (tree(above("r", "r")), "it is below itself: r below r"),
        (tree(above("r", "a"), above("a", "b"), above("b", "r")), "it is below itself: "),
        (
            tree(above("r", "a"), above("q", "a"), leaf("a", "h01")),
            "it is below r and q, and a switch must be below one only",
        ),
        (tree(*CHAIN, leaf("s22", "h01")), "it has more than 20 switches above it"),
        (blocks("h[01-04]", "h[04-08]"), "it is in both b1 and b2"),
        (blocks("h[01-04]", sizes=[0]), "a block must have at least one node, not 0 (found 0)"),
        (blocks("h[01-04]", sizes=[4, 6]), "6 is not 4 times a power of two"),
        (blocks("h[01-04]", sizes=[4, 12]), "12 is not 4 times a power of two"),
        (blocks("h[01-04]", sizes=[8, 4]), "4 does not come after 8: the smallest comes first"),
        (blocks("h[01-04]", sizes=[1, 65536]), "65536 is more than 32768 times 1"),
        ({**TREE, "folder": "etc/slurm"}, "it is not an absolute path"),
        ({**TREE, "folder": "/etc/slurm\n"}, "a control character"),
        ({**TREE, "permanent": False}, "slurmctld reads it from a file"),
        (
            tree(leaf("a", "h[01-09]")),
            "Cannot give h09 a place in the topology of Slurm: no NodeName in /etc/slurm/slurm.conf",
        ),
    ],
)
def test_what_is_declared_wrong_is_refused_with_the_reason(
    machine: TopologyMachine, declaration: Dict[str, Any], message: str
) -> None:
    assert message in machine.refused(**declaration)


def yaml_there(machine: TopologyMachine) -> None:
    machine.version = "25.05.0"
    machine.write("/etc/slurm/topology.yaml", "---\n")


def include(machine: TopologyMachine) -> None:
    machine.write(TOPOLOGY_CONF, "Include more.conf\n")


def includes(machine: TopologyMachine) -> None:
    machine.write(TOPOLOGY_CONF, "Include more.conf\n# none\nInclude most.conf\n")


def other_plugin(machine: TopologyMachine) -> None:
    machine.write("/etc/slurm/nodes.conf", f"{NODES_TEXT}TopologyPlugin=topology/3d_torus\n")


def linear(machine: TopologyMachine) -> None:
    machine.edit(SLURM_CONF, "cons_tres", "linear")


def old(machine: TopologyMachine) -> None:
    machine.version = "22.05.8"


def other_file(machine: TopologyMachine) -> None:
    machine.write(f"/proc/{PID}/cmdline", "/usr/sbin/slurmctld\0-f\0/opt/slurm/etc/slurm.conf\0")


def no_version(machine: TopologyMachine) -> None:
    machine.version = "unknown"


def silent(machine: TopologyMachine) -> None:
    machine.silent = True


@pytest.mark.parametrize(
    ("made", "declaration", "message"),
    [
        (yaml_there, TREE, "/etc/slurm/topology.yaml: it exists, and Slurm then ignores topology.conf"),
        (include, TREE, "its line 1 includes another file"),
        (includes, TREE, "its lines 1, 3 include other files"),
        (other_plugin, TREE, "Cannot set TopologyPlugin in /etc/slurm/nodes.conf: /etc/slurm/slurm.conf includes it"),
        (linear, TREE, "SelectType=select/linear, with which slurmctld 24.11 would not start"),
        (old, BLOCKS, "topology/block with BlockSizes came with Slurm 24.05 (found 22.05). Declare switches"),
        (other_file, TREE, "slurmctld reads /opt/slurm/etc/slurm.conf (found /etc/slurm). Set folder: /opt/slurm/etc."),
        (no_version, BLOCKS, "slurmctld -V printed no version"),
        (silent, TREE, "Unable to contact slurm controller"),
        (
            lambda _machine: None,
            blocks("h[01-04]", "h[05-07]"),
            "(found 3, wanted 4). Set block_sizes so that the first number",
        ),
    ],
)
def test_what_this_slurm_cannot_have_is_refused_before_anything_changes(
    machine: TopologyMachine, made: Callable[[TopologyMachine], None], declaration: Dict[str, Any], message: str
) -> None:
    made(machine)
    assert message in machine.refused(**declaration)


def test_what_newer_and_older_releases_take_is_not_refused(machine: TopologyMachine) -> None:
    # Before 25.05 nobody reads it.
    machine.write("/etc/slurm/topology.yaml", "---\n")
    assert machine.run(check_mode=True, **TREE).status == "drifted"
    machine.path("/etc/slurm/topology.yaml").unlink()
    machine.version = "25.05.1"
    assert machine.run(check_mode=True, **blocks("h[01-04]", "h[05-07]")).status == "drifted"
    machine.version = "22.05.8"
    linear(machine)
    assert machine.run(check_mode=True, **TREE).status == "drifted"


def test_a_topology_yaml_that_only_a_newer_release_reads_is_named(machine: TopologyMachine) -> None:
    machine.write("/etc/slurm/topology.yaml", "---\n")
    look = machine.run(check_mode=True, **TREE)
    found = [(one.path, one.value, one.wins) for one in look.remaining.conflicts if one.owner == "topology.yaml"]
    assert found == [
        ("/etc/slurm/topology.yaml", "read by Slurm 25.05 and newer in place of topology.conf", "us"),
    ]


def test_absent_restores_a_topology_conf_that_slurmctld_ignores_by_now(machine: TopologyMachine) -> None:
    """Nothing that is written there takes effect, so nothing is waited for."""
    machine.version = "25.05.3"
    machine.run(**TREE)
    machine.write("/etc/slurm/topology.yaml", "---\n")
    machine.run(state="absent")
    assert (machine.read(SLURM_CONF), machine.read(TOPOLOGY_CONF)) == (SLURM_TEXT, TOPOLOGY_TEXT)
    assert machine.restarts == RESTART


def test_an_included_file_may_have_the_same_plugin(machine: TopologyMachine) -> None:
    machine.write("/etc/slurm/nodes.conf", f"{NODES_TEXT}TopologyPlugin=topology/tree\n")
    machine.run(immediate=False, **TREE)
    assert machine.read(SLURM_CONF) == SLURM_TEXT


def test_nodes_without_a_place_are_told_and_an_error_where_that_is_strict(machine: TopologyMachine) -> None:
    declaration = tree(leaf("a", "h[01-05]"))
    outcome = machine.run(**declaration)
    assert [(one.object, one.setting) for one in outcome.remaining.unmanaged] == [("h[06-08],login1", "switch")]
    with pytest.raises(GpuFleetError, match=r"h\[06-08\],login1.*no switch does"):
        machine.run(strict=True, **declaration)


@pytest.mark.parametrize("shows_registered", [False, True])
def test_nodes_that_come_by_themselves_may_be_missing(machine: TopologyMachine, shows_registered: bool) -> None:
    """Of a switch 24.11 tells the nodes that its file has, and 25.11 those that there are."""
    machine.edit(SLURM_CONF, "SelectType", "MaxNodeCount=100\nSelectType")
    machine.shows_registered = shows_registered
    declaration = tree(leaf("a", "h[01-08],cloud[1-9]"))
    machine.run(**declaration)
    assert started(machine) == "topology/tree"
    assert machine.run(**declaration).status == "in_sync"
    look = machine.run(check_mode=True, **tree(leaf("a", "h[01-07],cloud[1-9]")))
    assert "effective" in [change.scope for change in look.changes if change.object == "a"]


@pytest.mark.parametrize("lacks", ["slurmctld", "slurm.conf"])
def test_a_host_that_is_no_controller_is_not_managed(machine: TopologyMachine, lacks: str) -> None:
    path = "/usr/lib/systemd/system/slurmctld.service" if lacks == "slurmctld" else SLURM_CONF
    machine.path(path).unlink()
    outcome = machine.run(**TREE)
    reasons: List[str] = [one.reason for one in outcome.remaining.unmanaged]
    assert ({change.object for change in outcome.changes}, machine.restarts) == ({DECLARED}, [])
    assert len(reasons) == 1
    assert reasons[0].startswith(f"there is no {'slurmctld.service' if lacks == 'slurmctld' else SLURM_CONF}, so")


def test_the_log_of_slurmctld_is_the_one_that_it_has(machine: TopologyMachine) -> None:
    assert LOG in SLURM_TEXT
    machine.edit(SLURM_CONF, f"SlurmctldLogFile={LOG}\n", "")
    machine.dislikes = "leaf1"
    # The journal alone has only the words of systemd.
    with pytest.raises(Refused, match="process exited; its former files were restored"):
        machine.run(**TREE)
