# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host with slurmctld, which reads its topology as 22.05 and 24.11 do (molecule has real ones).

With topology.yaml it does as ``topology_g_init`` of 25.05 (src/interfaces/topology.c), and shows it as 26.05 does
(topology_recordings.py).
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_topology.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.slurm_topology.topology_recordings import NO_TOPOLOGY
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

SLURM_CONF, TOPOLOGY_CONF = "/etc/slurm/slurm.conf", "/etc/slurm/topology.conf"
TOPOLOGY_YAML = "/etc/slurm/topology.yaml"
YAML_PLUGIN = "/usr/lib/x86_64-linux-gnu/slurm-wlm/serializer_yaml.so"
UNIT = "/usr/lib/systemd/system/slurmctld.service"
LOG = "/var/log/slurm/slurmctld.log"
PID = 4000
KEYS = {key.lower(): key for key in ("SwitchName", "Nodes", "Switches", "BlockName", "BlockSizes")}
SLURM_TEXT = f"""\
ClusterName=Test
SlurmctldHost=ctl
SlurmctldLogFile={LOG}
SelectType=select/cons_tres
Include nodes.conf
NodeName=login1
PartitionName=gpu Nodes=ALL Default=YES
"""
NODES_TEXT = "NodeName=DEFAULT Sockets=2\nNodeName=h[01-08] CPUs=4\n"
TOPOLOGY_TEXT = "# of our own\nSwitchName=all Nodes=h[01-08] \\\n  LinkSpeed=4"
TREE: Dict[str, Any] = {
    "switches": [
        {"name": "root", "switches": "leaf[1-2]"},
        {"name": "leaf1", "nodes": "h[01-04]"},
        {"name": "leaf2", "nodes": "h[05-08],login1"},
    ]
}
BLOCKS: Dict[str, Any] = {
    "blocks": [{"name": "b1", "nodes": "h[01-04],login1"}, {"name": "b2", "nodes": "h[05-08]"}],
    "block_sizes": [4, 8],
}


TOPOLOGIES: Dict[str, Any] = {
    "topologies": [
        {"name": "racks", "cluster_default": True, **TREE},
        {"name": "nvl", **BLOCKS},
        {"name": "all", "flat": True},
    ]
}


def hosts(names: str) -> List[str]:
    """What Slurm makes of a list."""
    found = []
    for term in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", names):
        head, _open, rest = term.partition("[")
        ranges = rest.rstrip("]")
        for one in ranges.split(",") if ranges else [""]:
            low, _dash, high = one.partition("-")
            numbers = [str(n).zfill(len(low)) for n in range(int(low), int(high or low) + 1)] if low else [""]
            found += [head + number for number in numbers]
    return found


NODES = hosts("h[01-08],login1")


class _Dumper(yaml.SafeDumper):
    """As the serializer of Slurm has it."""


_Dumper.add_representer(type(None), lambda dumper, _value: dumper.represent_scalar("tag:yaml.org,2002:null", ""))


def dumped(topologies: List[Dict[str, Any]]) -> str:
    """They as ``scontrol show topoconf`` shows them."""
    for one in topologies:
        if one["block"].get("block_sizes"):
            one["block"] = {**one["block"], "block_sizes": [int(size) for size in one["block"]["block_sizes"]]}
    text = yaml.dump(
        topologies, Dumper=_Dumper, sort_keys=False, version=(1, 1), explicit_start=True, explicit_end=True
    )
    return str(text)


class Ended(Exception):
    """slurmctld ended with these words."""


class TopologyMachine:
    """``daemon`` is what slurmctld has in memory: its plugin, and the lines that scontrol shows."""

    def __init__(self, root: Path, *, running: bool = True, version: str = "24.11.5") -> None:
        self.root = root
        for name in ("etc", "run", "var/lib", "var/log/slurm"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self.version = version
        files = {
            "/run/systemd/system/.keep": "",
            SLURM_CONF: SLURM_TEXT,
            "/etc/slurm/nodes.conf": NODES_TEXT,
            TOPOLOGY_CONF: TOPOLOGY_TEXT,
            UNIT: "[Service]\nExecStart=/usr/sbin/slurmctld --systemd $SLURMCTLD_OPTIONS\n",
        }
        self.host: FakeHost = build(root, files)
        self.calls: List[Tuple[str, ...]] = []
        self.daemon: Dict[str, Any] = {"state": "inactive", "plugin": "", "lines": (), "starts": 0, "log": ""}
        self.daemon["topologies"] = ""
        # What slurmctld does not like about the topology, whatever it is.
        self.dislikes = ""
        self.silent = False
        self.shows_registered = False
        programs = self.host.commands.programs
        programs.update(
            systemctl=self._systemctl,
            scontrol=self._scontrol,
            squeue=self._scontrol,
            env=lambda argv: self._scontrol(argv[3:]),
            slurmctld=lambda argv: Completed(0, f"slurm-wlm {self.version}\n", ""),
            journalctl=lambda argv: Completed(0, "slurmctld.service: Failed with result 'exit-code'.\n", ""),
            tail=lambda argv: Completed(0, self.daemon["log"] if argv[-1] == LOG else "", ""),
        )
        if running:
            self._start()

    # --- what a test does ---

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str:
        return self.path(path).read_text()

    def write(self, path: str, text: str) -> None:
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).write_text(text)

    def edit(self, path: str, old: str, new: str) -> None:
        text = self.read(path)
        assert old in text
        self.write(path, text.replace(old, new))

    def restart(self) -> None:
        """What an administrator does, or a reboot."""
        self._systemctl(["systemctl", "restart", "slurmctld.service"])

    def run(self, *, check_mode: bool = False, **declaration: Any) -> Outcome:
        """One run of the module; its error is raised."""
        outcome = converge(CONCERN, self.params(**declaration), self.host, check_mode=check_mode)
        if outcome.error is not None:
            raise outcome.error
        return outcome

    def params(self, **declaration: Any) -> Dict[str, Any]:
        validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate(declaration)
        assert validated.error_messages == []
        found: Dict[str, Any] = validated.validated_parameters
        return found

    def refused(self, **declaration: Any) -> str:
        """The message of a run that must fail, and change nothing."""
        before = len(self.host.files.log)
        told = len(self.restarts)
        try:
            self.run(**declaration)
        except GpuFleetError as error:
            assert (len(self.host.files.log), len(self.restarts)) == (before, told)
            return str(error)
        raise AssertionError("it was not refused")

    def lines(self) -> List[str]:
        """The lines of topology.conf that count."""
        return [line for line in self.read(TOPOLOGY_CONF).splitlines() if line and not line.startswith("#")]

    @property
    def restarts(self) -> List[str]:
        return [argv[2] for argv in self.calls if argv[1] == "restart"]

    # --- what the contract suite does ---

    def seen(self) -> Dict[str, Any]:
        return {name: value for name, value in self.daemon.items() if name not in ("starts", "log")}

    def remember(self, daemon: Mapping[str, Any]) -> None:
        self.daemon = dict(daemon)

    # --- Slurm ---

    def _systemctl(self, argv: Sequence[str]) -> Completed:
        self.calls.append(tuple(argv))
        if argv[1] == "show":
            pid = PID if self.daemon["state"] == "active" else 0
            return Completed(0, f"Id=slurmctld.service\nMainPID={pid}\nActiveState={self.daemon['state']}\n", "")
        if argv[1] == "restart" and not self._start():
            return Completed(1, "", "Job for slurmctld.service failed because the control process exited.\nSee ...\n")
        return Completed(0, "", "")

    def _start(self) -> bool:
        self.daemon["starts"] += 1
        log = f"[t] slurmctld version {self.version} started on cluster test\n"
        stat = self.path(f"/proc/{PID}/stat")
        try:
            plugin, lines = self._read()
            shown = self._read_yaml()
        except Ended as why:
            self.daemon.update(
                state="failed",
                plugin="",
                lines=(),
                topologies="",
                log=f"[t] fatal: of before\n{log}[t] fatal: {why}\n",
            )
            if stat.exists():
                stat.unlink()
            return False
        self.daemon.update(state="active", plugin=plugin, lines=lines, log=log, topologies=shown)
        stat.parent.mkdir(parents=True, exist_ok=True)
        # One that has read the same is the same.
        ticks = 20_000_000 + sum(map(ord, repr((plugin, lines, shown)))) % 1000
        stat.write_text(f"{PID} (slurmctld) S 1 {' '.join(['0'] * 17)} {ticks} 0 0\n")
        self.write(f"/proc/{PID}/cmdline", "/usr/sbin/slurmctld\0--systemd\0")
        return True

    @property
    def _has_yaml(self) -> bool:
        return self.version >= "25.05" and self.path(TOPOLOGY_YAML).exists()

    def _read_yaml(self) -> str:
        """What it tells of its topologies: a key of each kind, and null for what is not there."""

        def nothing() -> Dict[str, Any]:
            return {kind: {} for kind in ("block", "flat", "ring", "torus3d", "tree")}

        if not self._has_yaml:
            return dumped([{"topology": "default", "cluster_default": False, **nothing()}])
        shown = []
        for entry in yaml.load(self.read(TOPOLOGY_YAML), Loader=yaml.BaseLoader) or []:
            is_default = entry.get("cluster_default", "false") == "true"
            one = {"topology": entry["topology"], "cluster_default": is_default, **nothing()}
            given = [kind for kind in nothing() if kind in entry]
            if len(given) != 1:
                raise Ended("Something wrong with reading topology.yaml")
            one[given[0]] = True if given == ["flat"] else entry[given[0]]
            for switch in entry.get("tree", {}).get("switches", []):
                switch.update({key: switch.pop(key, None) for key in ("children", "nodes")})
                self._check(switch["nodes"])
            for block in entry.get("block", {}).get("blocks", []):
                self._check(block["nodes"])
            shown.append(one)
        shown.sort(key=lambda one: not one["cluster_default"])
        return dumped(shown)

    def _check(self, nodes: Optional[str]) -> None:
        if nodes and self.dislikes and self.dislikes in nodes:
            raise Ended(f"Invalid node name ({nodes}) in switch config")

    def _read(self) -> Tuple[str, Tuple[str, ...]]:
        found = re.findall(r"^TopologyPlugin=(\S+)", self.read(SLURM_CONF), re.MULTILINE)
        plugin = found[-1] if found else "topology/default"
        if plugin in ("topology/default", "topology/none") or self._has_yaml:
            return plugin, ()
        path = self.path(TOPOLOGY_CONF)
        if not path.exists():
            raise Ended(f"something wrong with opening/reading {TOPOLOGY_CONF}: No such file or directory")
        text = re.sub(r" #.*", "", path.read_text()).replace("\\\n", "")
        if self.dislikes and self.dislikes in text:
            raise Ended(f"Invalid node name ({self.dislikes}) in switch config")
        said = [[word.split("=") for word in line.split()] for line in text.splitlines() if not line.startswith("#")]
        pairs = [{KEYS.get(key.lower(), key): value for key, value in words} for words in said if words]
        return plugin, tuple(self._blocks(pairs) if plugin == "topology/block" else self._switches(pairs))

    def _switches(self, pairs: List[Dict[str, str]]) -> List[str]:
        known = {pair["SwitchName"]: pair for pair in pairs}

        def below(name: str) -> List[str]:
            if name not in known:
                raise Ended(f"Switch configuration has invalid child ({name})")
            if "Nodes" in known[name]:
                return hosts(known[name]["Nodes"])
            return [node for child in hosts(known[name]["Switches"]) for node in below(child)]

        lines = []
        for name, pair in known.items():
            above = f" Switches={pair['Switches']}" if "Switches" in pair else ""
            # 24.11 folds them anew, and 22.05 has what is written.
            nodes = [node for node in reversed(below(name)) if not self.shows_registered or node in NODES]
            lines.append(f"SwitchName={name} Level=0 LinkSpeed=1 Nodes={','.join(nodes)}{above}")
        return lines

    def _blocks(self, pairs: List[Dict[str, str]]) -> List[str]:
        """As ``block_record_validate`` of 24.11."""
        blocks = {pair["BlockName"]: hosts(pair["Nodes"]) for pair in pairs if "BlockName" in pair}
        sizes = [int(one) for pair in pairs for one in pair.get("BlockSizes", "").split(",") if one]
        base = sizes[0] if sizes else len(next(iter(blocks.values())))
        if any(size % base or not math.log2(size / base).is_integer() for size in sizes):
            raise Ended("Invalid BlockSizes value")
        if any(len(nodes) < base for nodes in blocks.values()):
            raise Ended("Block configuration (b) children count lower than bblock_node_cnt")
        names = list(blocks)
        lines = [
            f"BlockName={n} BlockIndex={i} Nodes={','.join(blocks[n])} BlockSize={base}" for i, n in enumerate(names)
        ]
        for factor in sorted({size // base for size in sizes} if sizes else {1, 2, 4, 8, 16}):
            if factor > 1:
                lines.append(f"AggregatedBlock={','.join(names[:factor])} BlockIndex=9 BlockSize={base * factor}")
            if factor >= len(names):
                break
        return lines

    def _scontrol(self, argv: Sequence[str]) -> Completed:
        if self.daemon["state"] != "active" or self.silent:
            if argv[:3] in (["scontrol", "show", "topology"], ["scontrol", "show", "topoconf"]):
                return Completed(0, "", NO_TOPOLOGY if argv[2] == "topology" else "")
            return Completed(1, "", "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n")
        if argv[:3] == ["scontrol", "show", "config"]:
            return Completed(
                0,
                f"Configuration data as of 2026-11-26T06:00:00\nSLURM_VERSION           = {self.version}\n"
                f"TopologyParam           = (null)\nTopologyPlugin          = {self.daemon['plugin']}\n",
                "",
            )
        if argv == ["scontrol", "--all", "--oneliner", "show", "nodes"]:
            return Completed(0, "".join(f"NodeName={node} CPUAlloc=0 State=IDLE \n" for node in NODES), "")
        if argv == ["scontrol", "show", "topoconf"]:
            assert self.version >= "25.05"
            return Completed(0, self.daemon["topologies"], "")
        assert argv == ["scontrol", "show", "topology"]
        return Completed(0, "".join(f"{line}\n" for line in self.daemon["lines"]), "")


def started(machine: TopologyMachine) -> Optional[str]:
    """The plugin that slurmctld runs with, None where it does not run."""
    return str(machine.daemon["plugin"]) if machine.daemon["state"] == "active" else None
