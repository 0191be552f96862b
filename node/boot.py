# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``gpufleet boot``: apply the declarations that nothing else carries across a reboot."""

from __future__ import annotations

import time
import traceback
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.gpufleet.node.node.declarations import Declarations, complete_params, load, require
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Scope
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.declared import names, path_of
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Host
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import frozen
from ansible_collections.gpufleet.node.plugins.module_utils._core.wording import printable
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import ORPHANED
from ansible_collections.gpufleet.node.plugins.module_utils._node.deadline import DeadlineExceeded, deadline
from ansible_collections.gpufleet.node.plugins.module_utils._node.order import RegisteredConcern, in_order
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY

TIMEOUT_SECONDS = 300.0
# What the steps of one concern may take, besides the four looks of a run: the first, the same again while no other run
# changes anything, that before the steps and that after them.
STEPS_SECONDS = 60.0
LOOKS = 4
SETTLE_SECONDS = 30.0

OK, FAILED, SUPERSEDED = "ok", "failed", "superseded"
NOTICE, ERROR = "5", "3"


@frozen
class BootResult:
    """What became of one concern, and how many changes that took."""

    result: str
    message: str
    changes: int = 0


def boot(
    host: Host,
    *,
    timeout: float = TIMEOUT_SECONDS,
    concerns: Sequence[str] = (),
    again: float = 0.0,
    registry: Sequence[RegisteredConcern] = REGISTRY,
) -> int:
    """Apply them in order, all within ``timeout`` seconds, and return 1 when any of them failed.

    A change that was interrupted is finished, or undone where nothing is declared. No concern stops another. What it
    does is about the running system alone: files, declarations included, stay. ``concerns`` are those that are applied,
    also where it is a unit of their own that does so at boot; where it is empty, all that nothing else carries. With
    ``again`` it is done again after so many seconds, until nothing was left: what came meanwhile is seen. What another
    run declares meanwhile is seen in any case. Raises ``DeclarationError`` for a wrong name.
    """
    end = time.monotonic() + timeout
    failures = rounds = broken = 0
    while True:
        texts = {name: _text_of(host, name) for name in names(host.files)}
        declarations = load(host.files, registry)
        if not rounds:
            require(declarations, concerns, goal="apply")
            broken = _tell_broken(host, declarations, concerns)
        chosen = [
            (_Unless(entry, texts.get(entry.name)), options)
            for entry in in_order(registry)
            if not concerns or entry.name in concerns
            for options in _options_of(entry, declarations, host, named=entry.name in concerns)
        ]
        if not chosen:
            failures = 0
            break
        _wait_for_devices(host, max(min(SETTLE_SECONDS, end - time.monotonic()), 0))
        results = [(one.entry, _apply(one, options, host, end - time.monotonic())) for one, options in chosen]
        failures = sum(_tell(host, entry.name, result) for entry, result in results)
        rounds += 1
        changes = sum(result.changes for _entry, result in results)
        superseded = any(result.result == SUPERSEDED for _entry, result in results)
        waits = (again and (rounds == 1 or changes)) or superseded
        if not waits or time.monotonic() + again >= end:
            break
        time.sleep(again)
    return 1 if broken + failures else 0


def _tell_broken(host: Host, declarations: Declarations, concerns: Sequence[str]) -> int:
    return sum(
        _tell(host, name, BootResult(FAILED, str(error)))
        for name, error in declarations.broken.items()
        if not concerns or name in concerns
    )


def _text_of(host: Host, name: str) -> Optional[str]:
    """The declaration as it lies on the node, None where it cannot be read, which ``load`` tells."""
    try:
        return host.files.read_optional(path_of(name))
    except OSError:
        return None


class _Superseded(Exception):
    """What is being applied is not declared any more."""


class _Unless:
    """A concern that looks only while the declaration is the one of which it was told.

    Another run may have had the lock and declared something else, and the event that started this one may be of that.
    """

    def __init__(self, entry: RegisteredConcern, text: Optional[str]) -> None:
        self.entry = entry
        self._text = text

    def __getattr__(self, name: str) -> Any:
        return getattr(self.entry.concern, name)

    def observe(self, host: Host, declaration: Any, scope: Scope) -> Any:
        if _text_of(host, self.entry.name) != self._text:
            raise _Superseded
        return self.entry.concern.observe(host, declaration, scope)


def limit_of(entry: RegisteredConcern) -> float:
    """How many seconds one concern may take at boot."""
    return LOOKS * entry.registration.deadline + STEPS_SECONDS


def _options_of(
    entry: RegisteredConcern, declarations: Declarations, host: Host, *, named: bool
) -> Sequence[Mapping[str, Any]]:
    """What of a concern is applied: one declaration at the most."""
    declaration = declarations.usable.get(entry.name)
    if declaration is not None and (declaration.apply_at_boot or named):
        return [declaration.options]
    return [ORPHANED] if entry.registration.interrupted and host.files.exists(entry.registration.interrupted) else []


def _apply(concern: _Unless, options: Mapping[str, Any], host: Host, left: float) -> BootResult:
    seconds = min(limit_of(concern.entry), left)
    if seconds <= 0:
        return BootResult(FAILED, "the time of the boot service was used up")
    try:
        with deadline(seconds):
            # This is the boot that the files are for: they are in place, or not for this service to change.
            params = {**complete_params(concern.entry.concern, options), "immediate": True, "permanent": False}
            # Waiting would take the time of the others, and delay what starts after the service.
            outcome = converge(concern, params, host, check_mode=False, may_wait=False)
    except DeadlineExceeded:
        return BootResult(FAILED, f"it took longer than {seconds:.3g} s")
    except GpuFleetError as error:
        return BootResult(FAILED, str(error))
    except _Superseded:
        return BootResult(SUPERSEDED, "another declaration has taken its place")
    except Exception as error:
        # A defect of ours in one concern is no reason to leave the others out.
        return BootResult(FAILED, f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    if outcome.error is not None:
        return BootResult(FAILED, str(outcome.error), len(outcome.changes))
    needs = f", needs {', '.join(outcome.remaining.needs)}" if outcome.remaining.needs else ""
    return BootResult(OK, f"{outcome.status} before, {len(outcome.changes)} changed{needs}", len(outcome.changes))


def _tell(host: Host, concern: str, result: BootResult) -> int:
    """One line in the journal and one for a caller on the command line; 1 for a failure."""
    failed = result.result == FAILED
    text = f"boot: {concern}: {'failed: ' if failed else ''}{result.message}"
    # The traceback of a defect has lines.
    line = "\n".join(map(printable, text.split("\n")))
    priority = ERROR if failed else NOTICE
    host.journal(line, {"PRIORITY": priority, "GPUFLEET_CONCERN": concern, "GPUFLEET_BOOT": result.result})
    print(line)
    return int(failed)


def _wait_for_devices(host: Host, seconds: float) -> Optional[int]:
    """The driver is loaded by udev, and its devices are there when udev has nothing left to do."""
    try:
        return host.commands.run(["udevadm", "settle", f"--timeout={seconds:.0f}"], timeout=seconds + 5).status
    except OSError:
        return None
