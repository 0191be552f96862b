# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What container engines have as their daemons say it, what these have not taken up of their files, and CDI devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Tuple

from ..._core.errors import GpuFleetError
from ...concerns.container_runtime.cdi import cdi
from ...concerns.container_runtime.model import CDI, DEFAULT_RUNTIME, ENGINES, RUNTIME
from ...concerns.container_runtime.resolve import EngineDesired, not_taken_up
from ...concerns.container_runtime.spec import ITS_OWN
from ...concerns.container_runtime.state import inspect
from .fields import UNAVAILABLE, Facts, Fields
from .services import engines

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from ...concerns.container_runtime.model import Configuration, RunningDaemon, Settings

NAMES = ("files", "runtimes", "default_runtime", "cdi", "daemon_version", "containers", "not_taken_up")
OWN_DEFAULT = "no other is named, so it is the engine's own"
NO_DAEMON = "it has no running daemon to query"
UNSAID_BY_DAEMON = "its daemon does not report it"
UNSAID = "neither the engine nor its files report it"


def gather(host: Host) -> List[Facts]:
    """What is installed, each engine among it with its configuration."""
    found = engines(host.files)
    reports: Dict[str, Facts] = {}
    names = {facts["name"] for facts in found}
    for engine in ENGINES:
        name, facts = _inspect(host, engine)
        reports[name if name in names else engine] = facts
    return [_merged(facts, reports[facts["name"]]) if facts["name"] in reports else facts for facts in found]


def gather_cdi(files: Files) -> Facts:
    """The CDI specifications and the devices that engines find in them."""
    seen = cdi.read_specifications(files)
    fields = Fields()
    fields.add("state", cdi.state_of(files, seen) or None, "no driver is loaded, or a specification cannot be read")
    fields.add("devices", list(seen.devices))
    fields.add("unresolvable", list(seen.unresolvable))
    fields.add("duplicates", [one.path for one in seen.duplicates])
    fields.add("oci_hooks", [hook.path for hook in seen.hooks])
    fields.add("specifications", [_specification(one) for one in seen.files])
    return fields.facts


def _inspect(host: Host, engine: str) -> Tuple[str, Facts]:
    """The name of the product that brings an engine, and what is known of it."""
    try:
        seen = inspect(host, engine)
    except GpuFleetError as error:
        return engine, _lacking(str(error))
    except OSError as error:
        return engine, _lacking(f"{error.filename or engine}: {(error.strerror or str(error)).lower()}")
    if seen is None:
        return engine, _lacking("its program was not found")
    configuration, running = seen.configuration, seen.running
    said = configuration.settings if running is None else {**configuration.settings, **running.settings}
    fields = Fields()
    fields.add("files", [document.path for document in configuration.documents if document.text is not None])
    fields.add("runtimes", _runtimes(said if running is None else running.settings or said))
    fields.add("default_runtime", said.get(DEFAULT_RUNTIME) or None, OWN_DEFAULT)
    fields.add("cdi", said.get(CDI) if isinstance(said.get(CDI), bool) else None, UNSAID)
    if running is None:
        fields.lack(NO_DAEMON, "daemon_version", "containers", "not_taken_up")
    else:
        fields.add("daemon_version", running.version or None, UNSAID_BY_DAEMON)
        fields.add("containers", running.containers, UNSAID_BY_DAEMON)
        late = not_taken_up(seen, EngineDesired(_of_files(configuration, running)))
        fields.add("not_taken_up", [str(name) for name in sorted(late)])
    return configuration.installation.flavour or engine, fields.facts


def _of_files(configuration: Configuration, running: RunningDaemon) -> Settings:
    """What the daemon should have: all that the files say, and no runtime that they do not have."""
    gone = [setting for setting in running.settings if setting.kind == RUNTIME and setting.name not in ITS_OWN]
    return {**dict.fromkeys(gone), **configuration.settings}


def _runtimes(settings: Settings) -> List[Facts]:
    return [
        {"name": setting.name, "path": str(settings[setting])}
        for setting in sorted(settings)
        if setting.kind == RUNTIME
    ]


def _lacking(reason: str) -> Facts:
    fields = Fields()
    fields.lack(reason, *NAMES)
    return fields.facts


def _merged(first: Facts, second: Facts) -> Facts:
    reasons = {**first[UNAVAILABLE], **second[UNAVAILABLE]}
    known = {name: value for facts in (first, second) for name, value in facts.items() if name != UNAVAILABLE}
    return {**known, UNAVAILABLE: reasons}


def _specification(one: cdi.Specification) -> Facts:
    fields = Fields(path=one.path, devices=list(one.devices))
    fields.add("kind", one.kind or None, one.error or UNSAID)
    return fields.facts
