# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller of a cluster: its files, slurmctld, and the topology that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, FrozenSet, Mapping, Optional, Tuple

from ..._core.errors import CannotLook
from ..._core.record import read_note, texts_of
from ..._core.regex import regex
from ..._core.value import replace
from ..._linux import systemd, unit_command
from ..._machine import processes
from ..._text.host_ranges import expand
from ..._text.slurm_conf import DEFAULT, NODE, included, lines_of, value_of
from .resolve import LINEAR
from .state import FAILED, NOTE, PLUGIN, SLURMCTLD, Daemon, TopologyState, known_as
from .topology import BLOCK, TREE, Topology
from .topology_conf import LINES, parse_shown

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from .spec import TopologyDeclaration

# With these, nodes register that no file names.
DYNAMIC = "MaxNodeCount"
VERSION = regex(r"\b([0-9]+)\.([0-9]+)\.[0-9]+")
VERSION_SECONDS = 20.0


def observe(host: Host, declaration: TopologyDeclaration, scope: Scope) -> TopologyState:
    files = host.files
    state = TopologyState(declaration.folder, _daemon(host))
    state = replace(
        state,
        text=files.read_optional(state.path),
        confs=_confs(files, state),
        former=_former(files, state.daemon),
        has_yaml=files.exists(state.yaml_path),
    )
    LINES.check(state.path, state.text)
    state = _with_confs(state)
    if state.daemon.process is not None and scope.immediate:
        state = _with_live(host, state)
    matters = declaration.topology.plugin == BLOCK or state.value("SelectType") == LINEAR
    if (state.has_yaml or (matters and not scope.restoring)) and state.daemon.installed:
        state = replace(state, version=_version(host))
    return state


def _with_confs(state: TopologyState) -> TopologyState:
    plugin: Optional[str] = None
    elsewhere = ""
    for path, text in state.confs.items():
        found = value_of(text, PLUGIN)
        if found is not None:
            plugin, elsewhere = found, "" if path == state.slurm_path else path
    dynamic = state.value(DYNAMIC) is not None
    return replace(state, plugin=plugin, elsewhere=elsewhere, known=None if dynamic else _nodes(state.confs))


def _nodes(confs: Mapping[str, str]) -> FrozenSet[str]:
    found: Dict[str, None] = {}
    for text in confs.values():
        for line in lines_of(text):
            names = line.pairs.get(NODE, DEFAULT)
            try:
                found.update(dict.fromkeys(() if names.lower() == DEFAULT else expand(names)))
            except ValueError:
                # Slurm itself refuses it, and says why.
                continue
    return frozenset(found)


def _confs(files: Files, state: TopologyState) -> Mapping[str, str]:
    """slurm.conf and the files that it includes, each once."""
    found: Dict[str, str] = {}
    waiting = [state.slurm_path]
    while waiting:
        path = waiting.pop(0)
        text = None if path in found else files.read_optional(path)
        if text is not None:
            found[path] = text
            waiting = [*included(text, state.folder, value_of(found[state.slurm_path], "ClusterName") or ""), *waiting]
    return found


def _daemon(host: Host) -> Daemon:
    files = host.files
    if systemd.enabled(files, SLURMCTLD) == systemd.NOT_FOUND:
        return Daemon(installed=False)
    words = tuple(word for word, _place in unit_command.read(files, SLURMCTLD))
    if not systemd.running(files):
        return Daemon(installed=True, words=words)
    pid, active = 0, ""
    for block in systemd.show(host, ("MainPID", "ActiveState"), (SLURMCTLD,)):
        pid = int("".join(block.get("MainPID", [])) or 0)
        active = "".join(block.get("ActiveState", []))
    process = processes.read(files, pid) if pid else None
    if process is not None:
        words = tuple(processes.text_of(files, str(pid), "cmdline").split("\0"))
    return Daemon(True, process, process is None and active == FAILED, words)


def _former(files: Files, daemon: Daemon) -> Mapping[str, Optional[str]]:
    """What a run noted of a slurmctld that still runs with it, or does not run since."""
    noted = read_note(files, NOTE, lambda document: (str(document["process"]), texts_of(document["texts"])))
    if noted is None or (daemon.process is not None and daemon.process.identity != noted[0]):
        return {}
    return noted[1]


def _with_live(host: Host, state: TopologyState) -> TopologyState:
    """Raises ``GpuFleetError`` where slurmctld does not answer."""
    from ..._machine.slurmctld import Controller

    controller = Controller(host.commands)
    plugin = known_as(controller.configuration().get(PLUGIN))
    # scontrol reads the answer with the plugin of slurm.conf, and understands none of another one.
    if plugin not in (TREE, BLOCK) or plugin != state.plugin:
        return replace(state, live=Topology(plugin))
    state = replace(state, live=parse_shown(controller.topology(), plugin))
    return state if state.known is not None else replace(state, registered=frozenset(controller.names()))


def _version(host: Host) -> Tuple[int, int]:
    goal = "find the version of Slurm"
    if host.commands.find("slurmctld") is None:
        raise CannotLook(goal, cause="slurmctld is not on the path", hint="set PATH with environment")
    said = host.commands.run(["slurmctld", "-V"], timeout=VERSION_SECONDS).output.strip()
    match = VERSION.search(said)
    if match is None:
        raise CannotLook(goal, cause="slurmctld -V does not say it", found=said[:200] or "nothing")
    return int(match[1]), int(match[2])
