# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the topology that slurmctld has to the one that is wanted: its files, and one restart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from ..._core.change import THEM, US, Change, Conflict, Plan, ReplaceFile, RoomAction, Step
from ..._core.declared import WANTED
from ..._core.planning import boot_change, effective_change, file_action
from ..._core.setting import IN_SYNC, Scalar, Setting
from ..._core.value import frozen
from ..._kinds.own_files import OTHERS
from ..._kinds.units import RUNNING, SERVICE
from ..._text.slurm_conf import with_value
from . import topology_yaml
from .state import FAILED, NOTE, PLUGIN, SLURMCTLD, TopologyDesired, known_as
from .topology import BLOCK, NODES, TREE, Topologies, Topology, names_in, sizes_made
from .topology_conf import theirs_in

if TYPE_CHECKING:
    from typing import FrozenSet

    from ..._core.contract import Scope
    from .state import TopologyState
TOPOLOGY, DEFAULT = "topology", "cluster_default"
ORDER, BLOCK_SIZES, LINES = "order of blocks", "BlockSizes", "lines"


@frozen
class ChangeTopology(RoomAction):
    """Give ``texts`` to the files that it ``writes``, and restart slurmctld. Where it does not come up, the ``former``
    texts of files come back, and it.

    ``log`` is the file in which it says why, empty for the journal alone.
    """

    programs = ("systemctl",)
    restarts = (SLURMCTLD,)
    texts: Tuple[Optional[str], ...]
    former: Mapping[str, Optional[str]]
    writes: Tuple[str, ...] = ()
    log: str = ""

    @property
    def written(self) -> Tuple[Tuple[str, Optional[str]], ...]:
        return tuple(zip(self.writes, self.texts))


def plan(state: TopologyState, desired: TopologyDesired, scope: Scope) -> Plan:
    if not desired.managed:
        return Plan(unmanaged=desired.unmanaged)
    rows = (*_rows(state, desired, scope), *_yaml_rows(state, desired, scope), *_daemon_rows(state, scope))
    conflicts = () if scope.restoring else _conflicts(state, desired)
    wrong = [row for row in rows if row.status != IN_SYNC]
    steps = _steps(state, desired, wrong) if wrong else ()
    return Plan(rows, steps, desired.unmanaged, conflicts)


# --- settings ---------------------------------------------------------------------------------------------------------


def _rows(state: TopologyState, desired: TopologyDesired, scope: Scope) -> List[Setting]:
    ignored = state.ignores_conf(desired.yaml)
    if ignored and not scope.restoring:
        return []
    # What slurmctld ignores is restored all the same, and no restart takes it up.
    counts = scope.immediate and state.live is not None and not ignored
    found, live = state.at_start, state.live
    wanted = desired.topology
    now = found if live is None else live

    def row(object: str, setting: str, want: Scalar, effective: Scalar, boot: Scalar, identity: str = "") -> Setting:
        return Setting(object, setting, want, effective, boot, identity or object, effective_matters=counts)

    rows = []
    if desired.sets_plugin or counts:
        running = desired.plugin if known_as(now.plugin) == known_as(desired.plugin) else now.plugin
        rows.append(row(state.slurm_path, PLUGIN, desired.plugin, running, state.plugin))
    for key in dict.fromkeys((*wanted.members, *found.members, *now.members)):
        want, running, boot = (one.members.get(key) for one in (wanted, now, found))
        if key[1] == NODES and _alike(want, running, state.registered):
            running = want
        rows.append(row(*key, want, running, boot, identity=f"{state.path}:{key[0]}"))
    if BLOCK in (wanted.plugin, now.plugin, found.plugin):
        want, running, boot = (",".join(one.order) or None for one in (wanted, now, found))
        rows.append(row(state.path, ORDER, want, running, boot))
        want, boot = _sizes(wanted), _sizes(found)
        # Of the sizes slurmctld tells those that it has made blocks of.
        same = live is None or (live.plugin == wanted.plugin and live.sizes == _made(wanted))
        running = boot if live is None else want if same else ",".join(map(str, live.sizes)) or None
        rows.append(row(state.path, BLOCK_SIZES, want, running, boot))
    if desired.text != state.text and all(one.boot == one.wanted for one in rows):
        rows.append(Setting(state.path, LINES, WANTED, OTHERS, OTHERS, state.path, effective_matters=False))
    return rows


def _yaml_rows(state: TopologyState, desired: TopologyDesired, scope: Scope) -> List[Setting]:
    """The topologies of topology.yaml, each by its name, and what is in it as ``name/switch``."""
    path, counts = state.yaml_path, scope.immediate and state.live_topologies is not None
    wanted, found = desired.topologies or Topologies(), state.topologies_at_start
    now = found if state.live_topologies is None else state.live_topologies
    rows = []

    def row(object: str, setting: str, want: Scalar, effective: Scalar, boot: Scalar) -> None:
        rows.append(Setting(object, setting, want, effective, boot, f"{path}:{object}", effective_matters=counts))

    # Without topology.yaml slurmctld may tell of a topology all the same: that of topology.conf.
    for name in dict.fromkeys((*wanted.by_name, *found.by_name, *(now.by_name if desired.topologies else ()))):
        want, live, boot = (one.by_name.get(name, Topology()) for one in (wanted, now, found))
        row(name, TOPOLOGY, want.plugin, live.plugin, boot.plugin)
        for key in dict.fromkeys((*want.members, *live.members, *boot.members)):
            values = [one.members.get(key) for one in (want, live, boot)]
            if key[1] == NODES and _alike(values[0], values[1], state.registered):
                values[1] = values[0]
            row(f"{name}/{key[0]}", key[1], *values)
        if BLOCK in (want.plugin, live.plugin, boot.plugin):
            row(name, ORDER, *(",".join(one.order) or None for one in (want, live, boot)))
            row(name, BLOCK_SIZES, *map(_sizes, (want, live, boot)))
    if rows:
        default = now.default if desired.topologies or now.default in found.by_name else None
        row(path, DEFAULT, wanted.default, default, found.default)
    if desired.yaml != state.yaml and all(one.boot == one.wanted for one in rows):
        rows.append(Setting(path, LINES, WANTED, OTHERS, OTHERS, path, effective_matters=False))
    return rows


def _daemon_rows(state: TopologyState, scope: Scope) -> List[Setting]:
    if scope.immediate and not scope.restoring and state.daemon.failed:
        return [Setting(SLURMCTLD, SERVICE, RUNNING, FAILED, None, SLURMCTLD, boot_matters=False)]
    return []


def _alike(wanted: Optional[str], running: Optional[str], registered: Optional[FrozenSet[str]]) -> bool:
    """Whether two lists have the same nodes but for those that slurmctld does not have yet."""
    if registered is None or wanted is None or running is None:
        return False
    return registered.intersection(names_in(wanted)) == registered.intersection(names_in(running))


def _sizes(topology: Topology) -> Optional[str]:
    return ",".join(map(str, topology.sizes)) or None


def _made(topology: Topology) -> Tuple[int, ...]:
    return sizes_made(topology) if topology.plugin == BLOCK else ()


def _conflicts(state: TopologyState, desired: TopologyDesired) -> Tuple[Conflict, ...]:
    """Lines that we take out of use, and who will write a file again."""
    found = []
    if desired.text != state.text:
        found = [
            Conflict("topology.conf", state.path, number, state.path, raw, "set", US)
            for number, raw in theirs_in(state.text)
        ]
    if desired.topologies is not None and desired.yaml != state.yaml:
        theirs = topology_yaml.theirs_in(state.yaml)
        found += [
            Conflict("topology.yaml", state.yaml_path, number, state.yaml_path, raw, "set", US)
            for number, raw in theirs
        ]
    for path, text in ((state.path, state.text), (state.yaml_path, state.yaml), *state.confs.items()):
        for number, raw in enumerate((text or "").splitlines(), 1):
            if raw.startswith("#") and "ansible managed" in raw.lower():
                owner = "an Ansible template (DeepOps, openhpc)"
                found.append(Conflict(owner, path, number, path, "content", "written again at its next run", THEM))
    if desired.yaml is not None and not state.ignores_conf(desired.yaml):
        value = "read by Slurm 25.05 and newer in place of topology.conf"
        found.append(Conflict("topology.yaml", state.yaml_path, None, state.yaml_path, "content", value, US))
    return tuple(found)


# --- steps ------------------------------------------------------------------------------------------------------------


def _steps(state: TopologyState, desired: TopologyDesired, wrong: List[Setting]) -> Tuple[Step, ...]:
    late = [row for row in wrong if row.boot_matters and row.boot != row.wanted]
    due = [row for row in wrong if row.effective_matters and row.effective != row.wanted]
    texts = _texts(state, desired)
    if not due:
        return tuple(_write(state, path, text, late) for path, text in texts.items())
    former: Dict[str, Optional[str]] = {state.path: state.text, state.slurm_path: state.slurm}
    if desired.yaml != state.yaml:
        former[state.yaml_path] = state.yaml
    former.update(state.former)
    action = ChangeTopology(
        texts=tuple(texts.values()),
        former=former,
        writes=tuple(texts),
        log=state.value("SlurmctldLogFile") or "",
    )
    changes = (*map(boot_change, late), *map(effective_change, due))
    step = Step(action, changes, probes=action.writes)
    process = state.daemon.process
    # What a run that was killed has noted is still what slurmctld last ran with.
    if process is None or state.former:
        return (step,)
    note = json.dumps({"process": process.identity, "texts": former}, sort_keys=True) + "\n"
    return (Step(ReplaceFile(NOTE, note), notes=(NOTE,)), step)


def _texts(state: TopologyState, desired: TopologyDesired) -> Mapping[str, Optional[str]]:
    """The files that change, in an order in which slurmctld could be started at any time."""
    found: Dict[str, Optional[str]] = {}
    if desired.text != state.text:
        found[state.path] = desired.text
    if desired.sets_plugin and desired.plugin != state.plugin and state.slurm is not None:
        found[state.slurm_path] = with_value(state.slurm, PLUGIN, desired.plugin)
    if desired.plugin not in (TREE, BLOCK):
        found = dict(reversed(tuple(found.items())))
    if desired.yaml != state.yaml:
        found[state.yaml_path] = desired.yaml
    return found


def _write(state: TopologyState, path: str, text: Optional[str], late: List[Setting]) -> Step:
    changes: Tuple[Change, ...] = tuple(boot_change(row) for row in late if _file_of(row, state) == path)
    return Step(file_action(path, text), changes, probes=(path,))


def _file_of(row: Setting, state: TopologyState) -> str:
    if row.setting == PLUGIN:
        return state.slurm_path
    return state.yaml_path if row.identity.partition(":")[0] == state.yaml_path else state.path
