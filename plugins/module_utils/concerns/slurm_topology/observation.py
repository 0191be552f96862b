# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller of a cluster: its files, slurmctld, and the topology that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, FrozenSet, Mapping, Optional, Tuple

from ..._core.errors import CannotLook, not_understood
from ..._core.record import read_note, texts_of
from ..._core.regex import regex
from ..._core.value import replace
from ..._linux import systemd, unit_command
from ..._machine import processes
from ..._text.host_ranges import expand
from ..._text.slurm_conf import DEFAULT, NODE, included, lines_of, plugin_folders, value_of
from ..._text.yaml_subset import YamlError
from . import topology_yaml
from .resolve import LINEAR
from .state import FAILED, HAS_YAML, NOTE, PLUGIN, SLURMCTLD, Daemon, TopologyState, known_as
from .topology import BLOCK, TREE, Topology
from .topology_conf import LINES, parse_shown, text_without

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from .spec import TopologyDeclaration

# With these, nodes register that no file names.
DYNAMIC = "MaxNodeCount"
YAML_PLUGIN = "serializer_yaml.so"
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
        yaml=files.read_optional(state.yaml_path),
    )
    for path, text in ((state.path, state.text), (state.yaml_path, state.yaml)):
        LINES.check(path, text)
    state = _with_confs(state)
    has_yaml = state.yaml is not None or state.former.get(state.yaml_path) is not None
    matters = declaration.topology.plugin == BLOCK or state.value("SelectType") == LINEAR
    wants_yaml = declaration.topologies is not None
    if (has_yaml or wants_yaml or (matters and not scope.restoring)) and state.daemon.installed:
        state = replace(state, version=_version(host))
    if wants_yaml:
        state = replace(state, lacks_yaml=_lacks_yaml(files, state))
    if (wants_yaml or scope.restoring) and state.yaml is not None:
        _check_yaml(state)
    if state.daemon.process is not None and scope.immediate:
        state = _with_live(host, state, asks_yaml=(has_yaml or wants_yaml) and state.version >= HAS_YAML)
    return state


def _check_yaml(state: TopologyState) -> None:
    """Raises ``CannotLook`` on YAML that is not read here."""
    for text in (state.yaml, text_without(state.yaml)):
        try:
            topology_yaml.parse(text)
        except YamlError as error:
            raise not_understood(state.yaml_path, str(error)) from error


def _lacks_yaml(files: Files, state: TopologyState) -> bool:
    """Whether the plugins of Slurm are found, and its reader of YAML is not among them."""
    folders = [folder for folder in plugin_folders(state.value("PluginDir")) if files.names(folder)]
    return bool(folders) and not any(files.exists(f"{folder}/{YAML_PLUGIN}") for folder in folders)


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


def _with_live(host: Host, state: TopologyState, *, asks_yaml: bool) -> TopologyState:
    """Raises ``GpuFleetError`` where slurmctld does not answer."""
    from ..._machine.slurmctld import Controller

    controller = Controller(host.commands)
    plugin = known_as(controller.configuration().get(PLUGIN))
    if asks_yaml:
        shown = controller.topologies()
        try:
            state = replace(state, live_topologies=topology_yaml.parse(shown))
        except YamlError as error:
            goal = "read the topologies of slurmctld"
            raise CannotLook(goal, cause=f"scontrol show topoconf: {error}", found=shown[:200]) from error
        if state.known is None:
            state = replace(state, registered=frozenset(controller.names()))
    # scontrol reads the answer with the plugin of slurm.conf, and understands none of another one.
    if plugin not in (TREE, BLOCK) or plugin != state.plugin or state.ignores_conf(state.yaml):
        return replace(state, live=Topology(plugin))
    state = replace(state, live=parse_shown(controller.topology(), plugin))
    return state if state.known is not None else replace(state, registered=frozenset(controller.names()))


def _version(host: Host) -> Tuple[int, int]:
    goal = "find the version of Slurm"
    if host.commands.find("slurmctld") is None:
        raise CannotLook(goal, cause="slurmctld is not in PATH", hint="set PATH with environment")
    said = host.commands.run(["slurmctld", "-V"], timeout=VERSION_SECONDS).output.strip()
    match = VERSION.search(said)
    if match is None:
        raise CannotLook(goal, cause="slurmctld -V printed no version", found=said[:200] or "nothing")
    return int(match[1]), int(match[2])
