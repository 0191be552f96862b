# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A candidate for ``daemon.json`` before it counts, and what a daemon has that it does not tell. For a change only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Tuple

from ...._core.errors import Refused
from ...._linux import unit_command
from ...._text import json_text
from ..model import CDI, Edit
from . import directives
from .meaning import (
    KNOWS_CDI,
    SNAP,
    ParsedDocker,
    ask,
    dotted,
    is_newer,
    note,
    noted_of,
    numbers,
    options_of,
    settings_of,
    socket_of,
    untold_of,
)

if TYPE_CHECKING:
    from ...._core.protocols import Host
    from ..model import Configuration, Installation

# The first versions that have ``--validate``, and that read a file with a byte-order mark.
VALIDATES = (23,)
READS_MARKS = (23,)
TIMEOUT_SECONDS = 30.0
# The candidate comes from there, so that it can be judged before anything is written, and in check mode.
CANDIDATE = "/dev/stdin"
# Of what dockerd says to a file (``findConfigurationConflicts`` of moby's daemon/config/config.go).
UNKNOWN = "the following directives don't match any configuration option: "


def check(host: Host, configuration: Configuration, edits: Tuple[Edit, ...]) -> None:
    """Raises ``Refused`` for a file with which dockerd would not start, or would not do what it says.

    To be called just before the write: it also notes what the daemon has of the old file (``docker.LOADED``).
    """
    error = refused(host, configuration, edits)
    if error is not None:
        raise error
    _note(host, configuration)


def refused(host: Host, configuration: Configuration, edits: Tuple[Edit, ...]) -> Optional[Refused]:
    """Why dockerd would not start with the files, or would not do what they say; None where it would.

    dockerd itself says so from 23.0 on, with the options of its unit. Nothing is written.
    """
    for edit in edits:
        cause = _fault(host, configuration, edit)
        if cause:
            return Refused("configure docker", object=edit.path, cause=cause, hint="the file was left as it is")
    return None


def unstartable(host: Host, configuration: Configuration, text: str) -> Optional[Refused]:
    """The same of the file as it is, which has this text."""
    path = configuration.documents[0].path
    cause = _fault(host, configuration, Edit(path, text, text))
    hint = "correct the file before dockerd starts again"
    return Refused("start docker with {}", object=path, cause=cause, hint=hint) if cause else None


def _fault(host: Host, configuration: Configuration, edit: Edit) -> str:
    installation = configuration.installation
    version = installation.version or version_of(host, installation)
    text = edit.after or ""
    values = json_text.parse(text, edit.path)
    if version and version < READS_MARKS and text.startswith(json_text.BOM):
        return f"dockerd {dotted(version)} cannot read a file with a byte-order mark"
    if version and version < KNOWS_CDI and _has_cdi(values, edit.path) and not _had_cdi(edit):
        return f"dockerd {dotted(version)} does not support CDI (25.0 and newer do)"
    if values.get("live-restore") and _in_swarm(host, configuration):
        return "dockerd is in a swarm, and live-restore is incompatible with that"
    if version < VALIDATES:
        return directives.refusal(text, values, options_of(_command(host, installation)), version)
    # The program of the snap runs only inside of it.
    return "" if installation.flavour == SNAP else _validate(host, installation, edit.path, text)


def _has_cdi(values: Mapping[str, Any], path: str) -> bool:
    return bool(settings_of(values, path).get(CDI))


def _had_cdi(edit: Edit) -> bool:
    """Whether it was there before: an old dockerd takes any name of a feature, and ignores those that it lacks."""
    return _has_cdi(json_text.parse(edit.before, edit.path), edit.path)


def _note(host: Host, configuration: Configuration) -> None:
    parsed: ParsedDocker = configuration.parsed
    if parsed.process is None:
        return
    noted = noted_of(host.files)
    known = noted.get("daemon") == parsed.process.identity
    if known or is_newer(host.files, configuration):
        return
    note(host.files, parsed.process, untold_of(configuration.settings))


def version_of(host: Host, installation: Installation) -> Tuple[int, ...]:
    """Empty where no program says it."""
    if host.commands.find(installation.program) is None:
        return ()
    said = host.commands.run((installation.program, "--version"), timeout=TIMEOUT_SECONDS).output
    return numbers(said.partition("version ")[2])


def _validate(host: Host, installation: Installation, path: str, text: str) -> str:
    words = [word for word, _place in _command(host, installation)][1:]
    argv = (installation.program, *_without_file(words), "--validate", f"--config-file={CANDIDATE}")
    completed = host.commands.run(argv, timeout=TIMEOUT_SECONDS, data=text)
    if completed.status == 0:
        return ""
    said = (completed.errors or completed.output).strip().splitlines()
    cause = said[-1].replace(CANDIDATE, path) if said else f"exit status {completed.status}"
    before, _unknown, names = cause.partition(UNKNOWN)
    if names:
        # An object that it does not know it names by the keys in it.
        cause = f"{before}{UNKNOWN}{directives.located(text, json_text.parse(text, path), names.split(', '))}"
    return f"dockerd --validate reports: {cause}"


def _command(host: Host, installation: Installation) -> Tuple[unit_command.Word, ...]:
    return unit_command.read(host.files, installation.unit) if installation.unit else ()


def _without_file(words: List[str]) -> List[str]:
    kept: List[str] = []
    for before, word in zip(["", *words], words):
        if word.partition("=")[0] != "--config-file" and before != "--config-file":
            kept.append(word)
    return kept


def _in_swarm(host: Host, configuration: Configuration) -> bool:
    if configuration.parsed.process is None:
        return False
    swarm = ask(host, socket_of(configuration)).get("Swarm") or {}
    return swarm.get("LocalNodeState", "inactive") not in ("", "inactive")
