# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``node_tools``: the command ``gpufleet`` on the node, and the service that runs it at boot."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from ..._core.change import THEM, Conflict, Plan, Step
from ..._core.contract import brings
from ..._core.registration import ALL, Registration
from ..._core.setting import IN_SYNC, Setting
from ..._core.targets import read_only_folder
from ..._kinds import units
from ..._kinds.own_files import OwnFile
from ..._linux import program, systemd
from ..._linux.boot_service import NO_BOOT_SERVICE, UNIT
from ..._linux.program import ARCHIVE, COMPILED, ON_PATH, PROGRAM
from .options import OPTIONS
from .owners import distrust, unsafe, wrong
from .spec import COMMAND_TEXT, NAME, TARGET, NodeToolsDeclaration, interpreter_of, launcher_text, parse
from .state import BYTECODE, COMMAND, INTACT, LAUNCHER, MODE, UNIT_FILE, UNIT_PATH, NodeToolsDesired, NodeToolsState

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from .owners import Exposed


class NodeTools:
    """``convergence.Concern`` for what of us stays on the node. ``sent`` is the archive that came with the
    task, if any.
    """

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    registration = Registration(
        serves=ALL,
        cures=(NO_BOOT_SERVICE, "exposed"),
    )

    def __init__(self, sent: Optional[bytes] = None) -> None:
        self._sent = sent

    def parse(self, params: Mapping[str, Any]) -> NodeToolsDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> NodeToolsDeclaration:
        return NodeToolsDeclaration()

    def observe(self, host: Host, declaration: NodeToolsDeclaration, scope: Scope) -> NodeToolsState:
        files = host.files
        launcher = OwnFile(PROGRAM, LAUNCHER, files.read_optional(PROGRAM))
        interpreter = interpreter_of(launcher.text or "")
        unit = units.unit_file(host, UNIT, UNIT_PATH, UNIT_FILE, files.read_optional(UNIT_PATH))
        early: Tuple[str, ...] = ()
        if scope.carries and unit.text != declaration.unit:
            from .plan import early_units

            early = early_units(files, declaration.before)
        exposed = () if scope.restoring else tuple(wrong(files))
        archive, bytecode = _program(files, declaration.archive, exposed)
        return NodeToolsState(
            archive=archive,
            bytecode=bytecode,
            launcher=launcher,
            command=_command(host, restoring=scope.restoring),
            # Two runs with different interpreters agree on the first one that still is there.
            interpreter=interpreter if interpreter and files.exists(interpreter) else sys.executable,
            unit=unit,
            masked=files.resolve(UNIT_PATH) == "/dev/null",
            links=systemd.links(files, UNIT, [systemd.ETC]),
            early=early,
            drop_ins=_drop_ins(files),
            exposed=exposed,
            unsafe="" if scope.restoring else unsafe(files),
        )

    def resolve(self, declaration: NodeToolsDeclaration, state: NodeToolsState) -> NodeToolsDesired:
        launcher = launcher_text(state.interpreter)
        return NodeToolsDesired(declaration.archive, launcher, COMMAND_TEXT, declaration.unit, declaration.links)

    def restore(self, baseline: Baseline, state: NodeToolsState) -> NodeToolsDesired:
        return NodeToolsDesired()

    def plan(self, state: NodeToolsState, desired: NodeToolsDesired, scope: Scope) -> Plan:
        if state.unsafe or (scope.carries and (state.masked or state.early)):
            from .plan import refuse_impossible

            refuse_impossible(state)
        settings: Tuple[Setting, ...] = ()
        if scope.immediate or scope.permanent:
            settings += tuple(_setting(place.path, MODE, place.wanted, place.found) for place in state.exposed)
            settings += (
                _setting(ARCHIVE, "archive", _short(desired.archive), _short(state.archive)),
                _setting(PROGRAM, LAUNCHER, *state.launcher.described(desired.launcher)),
            )
            if state.command is not None:
                settings += (_setting(ON_PATH, COMMAND, *state.command.described(desired.command)),)
            if desired.archive is not None:
                settings += (_setting(COMPILED, BYTECODE, INTACT, state.bytecode),)
        if scope.permanent and not state.masked:
            settings += (*state.unit.rows_in(desired.unit, immediate=scope.immediate), _links_setting(state, desired))
        steps: Tuple[Step, ...] = ()
        if any(setting.status != IN_SYNC for setting in settings):
            from .plan import steps_of

            steps = steps_of(state, desired, settings, sent=self._sent)
        return Plan(settings=settings, steps=steps, conflicts=state.drop_ins if desired.unit else ())

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: NodeToolsState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        return (
            {"archive_sha256": state.archive, "interpreter": interpreter_of(state.launcher.text or "") or None},
            {"service": systemd.MASKED if state.masked else _describe_links(state.links)},
        )


CONCERN = NodeTools()


def _command(host: Host, *, restoring: bool) -> Optional[OwnFile]:
    """The command on PATH, or None on a read-only file system, where one that came with the image stays as it is."""
    text = host.files.read_optional(ON_PATH)
    if read_only_folder(host.files, ON_PATH) and not (restoring and text == COMMAND_TEXT):
        return None
    return OwnFile(ON_PATH, COMMAND, text)


def _program(files: Files, digest: Optional[str], exposed: Tuple[Exposed, ...]) -> Tuple[Optional[str], str]:
    """The sum of the archive that is there, and what is to be said of the bytecode of the one with this sum."""
    if digest is None:
        return archive_sum(files), ""
    distrusted = distrust(exposed)
    if distrusted:
        return archive_sum(files), distrusted
    entry = program.entry_of(files, digest)
    # What it was when it was compiled is told by a checksum, at a small part of the cost of the sum.
    same = entry is not None and entry.archive == files.checksum(ARCHIVE)
    return digest if same else archive_sum(files), program.fault_of(files, digest, entry) or INTACT


def archive_sum(files: Files) -> Optional[str]:
    """The SHA-256 sum of the installed archive."""
    from hashlib import sha256

    text = files.read_optional(ARCHIVE)
    return None if text is None else sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def lacks_archive(files: Files, params: Mapping[str, Any]) -> bool:
    """Whether a run with these parameters would have to write the archive."""
    return brings(params) and archive_sum(files) != params["archive_sha256"]


def _setting(path: str, setting: str, wanted: Optional[str], found: Optional[str]) -> Setting:
    return Setting(path, setting, wanted, found, found, path, boot_matters=False)


def _links_setting(state: NodeToolsState, desired: NodeToolsDesired) -> Setting:
    wanted, found = _describe_links(desired.links), _describe_links(state.links)
    return Setting(UNIT, "enabled", wanted, found, found, UNIT, effective_matters=False)


def _describe_links(links: Tuple[str, ...]) -> str:
    more = [name for name in links if name != f"{TARGET}.wants"]
    if len(more) == len(links):
        return ", ".join(["disabled", *more])
    return ", ".join(["enabled", *more])


def _short(digest: Optional[str]) -> Optional[str]:
    return None if digest is None else digest[:12]


def _drop_ins(files: Files) -> Tuple[Conflict, ...]:
    """What others changed of our unit; drop-ins for all services are none of ours."""
    paths = [path for path in systemd.drop_ins(files, UNIT) if f"/{UNIT}.d/" in path]
    return tuple(
        Conflict("systemd drop-in", path, None, UNIT, key, value, THEM)
        for path in paths
        for key, value in systemd.assignments(files.read_optional(path) or "")
    )
