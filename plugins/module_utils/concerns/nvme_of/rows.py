# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of connections: whether there is one, what it has agreed on, and how paths are chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional

from ..._core.setting import Scalar, Setting
from . import targets
from .spec import (
    DELAY,
    DISCOVERY,
    LOSS,
    MARK,
    NUMBERS,
    POLICY,
    Connection,
    Key,
    identity_of,
    name_of,
    shown_loss,
)
from .state import NvmeOfDesired, NvmeOfState

if TYPE_CHECKING:
    from ..._core.contract import Scope

CONNECTION, CONNECTED = "connection", "connected"
IDENTITY = "host identity"
# What a discovery controller tells of, where that could not be read.
LOG, READ = "discovery log", "read"
RECONNECT, TARGET = "reconnect", "target"
FIXED = "it stays as it is until the connection is made anew, and the target may allow less"
AUTHENTICATION = "authentication"
UNPROVED = "it keeps the secrets that it was made with, or none, until the connection is made anew"
LOST = "the target does not respond, and the kernel tries to reconnect"


def rows_of(state: NvmeOfState, desired: NvmeOfDesired, scope: Scope) -> List[Setting]:
    immediate = scope.immediate
    rows = [
        Setting(
            object=path,
            setting=IDENTITY,
            wanted=wanted,
            effective=found,
            boot=found,
            identity=path,
            effective_matters=immediate,
        )
        for path, wanted in desired.identity.items()
        for found in (state.identity_files[path],)
    ]
    for key in (*(one.key for one in desired.connections), *desired.end):
        rows.append(_connection(state, key, scope, wanted=None if key in desired.end else CONNECTED))
    rows += [_log(key, log.error, immediate=immediate) for key, log in state.discovered.logs.items() if log.error]
    rows += [_authentication(state, one, immediate=immediate) for one in desired.connections if one.secrets]
    for key, numbers in desired.numbers.items():
        # In the order in which they are written: what is shown as LOSS changes with DELAY.
        names = [name for name in NUMBERS if name in numbers]
        rows += [_number(state, key, name, numbers[name], immediate=immediate) for name in names]
    for nqn, policy in desired.policies.items():
        subsystem = state.subsystems.get(nqn)
        found = subsystem.policy if subsystem is not None else None
        row = Setting(nqn, POLICY, policy, found, None, f"{MARK} {nqn}", immediate, boot_matters=False)
        rows.append(row)
    return rows


def _connection(state: NvmeOfState, key: Key, scope: Scope, *, wanted: Optional[str]) -> Setting:
    controller = state.controllers.get(key)
    found = None if controller is None else CONNECTED if controller.state == targets.LIVE else controller.state
    # The kernel tries again by itself, until the time is over after which it gives up.
    waits = wanted == CONNECTED and found not in (None, CONNECTED)
    # What it tells of is asked of it at boot, by the program on the node.
    asked = key[0] == DISCOVERY and any(key == one.key for one in state.declaration.discovery)
    return Setting(
        object=name_of(key),
        setting=CONNECTION,
        wanted=wanted,
        effective=found,
        boot=CONNECTED if asked and not state.discovered.missing else None,
        identity=identity_of(key),
        effective_matters=scope.immediate,
        boot_matters=asked and scope.carries,
        pending=LOST if waits else "",
        needs=TARGET,
    )


def _log(key: Key, error: str, *, immediate: bool) -> Setting:
    pending = f"{error}, so what it tells of is not known, and nothing that it told of before ends"
    return _row(key, LOG, READ, None, pending=pending, needs=TARGET, immediate=immediate)


def _authentication(state: NvmeOfState, one: Connection, *, immediate: bool) -> Setting:
    found = state.authentication[one.key]
    pending = "" if found is None else UNPROVED
    return _row(
        one.key, AUTHENTICATION, one.authentication, found, pending=pending, needs=RECONNECT, immediate=immediate
    )


def _number(state: NvmeOfState, key: Key, name: str, wanted: int, *, immediate: bool) -> Setting:
    controller = state.controllers.get(key)
    found = None if controller is None else controller.numbers[name]
    if controller is not None and name == LOSS and found == shown_loss(wanted, controller.numbers[DELAY]):
        found = wanted
    fixed = controller is not None and not NUMBERS[name].written
    return _row(key, name, wanted, found, pending=FIXED if fixed else "", needs=RECONNECT, immediate=immediate)


def _row(
    key: Key, setting: str, wanted: Scalar, effective: Scalar, *, pending: str, needs: str, immediate: bool
) -> Setting:
    """A setting that a connection has only while there is one."""
    return Setting(
        object=name_of(key),
        setting=setting,
        wanted=wanted,
        effective=effective,
        boot=None,
        identity=identity_of(key),
        effective_matters=immediate,
        boot_matters=False,
        pending=pending,
        needs=needs,
    )
