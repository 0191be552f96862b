# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``container_runtime`` on machines with engines of the simplest kind: a main file of ``name=value`` lines
that imports one drop-in, and a daemon that reads both when it starts and tells what it has in a file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Files, Host
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime import state
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.kinds import kind_of
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    CDI,
    DEFAULT_RUNTIME,
    NOTHING,
    RELOAD,
    RESTART,
    RUNTIME,
    Configuration,
    Document,
    Edit,
    Installation,
    RequiredAction,
    RunningDaemon,
    SettingName,
    Settings,
    WantedEngine,
    by_text,
    setting_of,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.spec import RUNTIME_PATH
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

BEFORE = "/var/lib/gpufleet/baseline/container_runtime.json"
RECORD = "/var/lib/gpufleet/container_runtime.json"
DECLARED = "/etc/gpufleet/declared.d/container_runtime.json"
PREVIOUS = "/run/gpufleet/container_runtime.previous"
# What a running daemon adds of its own.
BUILT_IN = {"default_runtime": "runc"}
BOOLEANS = ("cdi", "live_restore")
DAEMONS = ("docker", "containerd", "crio")


def main_of(engine: str) -> str:
    return f"/etc/{engine}/main.conf"


def drop_in_of(engine: str) -> str:
    return f"/etc/{engine}/conf.d/99-gpufleet.conf"


def daemon_of(engine: str) -> str:
    return f"/run/{engine}/daemon.json"


class SimpleKind:
    """``model.Kind`` with a main file, a drop-in and, where the machine has started one, a daemon.

    ``refuses`` is what the engine's own program says to every candidate.
    """

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.refuses = ""
        self.checked: List[Tuple[Edit, ...]] = []

    def find(self, host: Host) -> Optional[Installation]:
        if not host.files.exists(f"/usr/bin/{self.engine}"):
            return None
        unit = f"{self.engine}.service" if self.engine in DAEMONS else ""
        return Installation(self.engine, main_of(self.engine), drop_in_of(self.engine), program=self.engine, unit=unit)

    def read(self, files: Files, installation: Installation) -> Configuration:
        main = files.resolve(installation.main)
        text = files.read_optional(main)
        documents = [Document(main, text)]
        settings: Dict[str, Any] = {}
        lines = text.splitlines() if text is not None else []
        # As the real engines: what is imported counts more, and what comes last most.
        for number, line in enumerate(lines, 1):
            name, equals, value = line.partition("=")
            if not equals and line and not line.startswith("#"):
                raise CannotLook("read the configuration", object=main, cause=f"line {number}, column 1: no assignment")
            if equals and name != "import":
                settings[name] = _value(name, value)
        for line in lines:
            name, _equals, path = line.partition("=")
            if name == "import":
                imported = files.read_optional(path)
                if imported is None:
                    raise CannotLook("read the configuration", object=path, cause="it is imported and not there")
                documents.append(Document(path, imported))
                pairs = [entry.partition("=") for entry in imported.splitlines() if not entry.startswith("#")]
                settings.update({name: _value(name, value) for name, _equals, value in pairs})
        settings.update({name[1:]: settings.pop(name) for name in list(settings) if name.startswith("!")})
        # What a killed run left there is not imported yet.
        left = files.read_optional(installation.drop_in)
        return Configuration(installation, tuple(documents), _by_name(settings), parsed=left)

    def wanted(self, wanted: WantedEngine, configuration: Configuration) -> Settings:
        settings: Dict[SettingName, Any] = {
            SettingName(RUNTIME, wanted.runtime_name): wanted.runtime_path if wanted.present else None,
        }
        if wanted.default is not None:
            settings[DEFAULT_RUNTIME] = wanted.runtime_name if wanted.default else None
        if wanted.cdi is not None:
            settings[CDI] = wanted.cdi
        settings.update(_by_name(wanted.options))
        return settings

    def edit(self, configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
        return self._edits(configuration, self.wanted(wanted, configuration))

    def restore(self, configuration: Configuration, baseline: Settings) -> Tuple[Edit, ...]:
        return self._edits(configuration, baseline)

    def running(self, host: Host, configuration: Configuration) -> Optional[RunningDaemon]:
        text = host.files.read_optional(daemon_of(self.engine))
        if text is None:
            return None
        told = json.loads(text)
        settings = _by_name(told["settings"])
        return RunningDaemon(settings, version="1.2.3", containers=told["containers"], stale=told["stale"])

    def foresee(
        self, host: Host, configuration: Configuration, running: Optional[RunningDaemon], wanted: WantedEngine
    ) -> Configuration:
        return configuration

    def required_action(self, before: Settings, after: Settings) -> RequiredAction:
        changed = [name for name, value in after.items() if before.get(name) != value]
        removed = [name for name in changed if after[name] is None and before.get(name) != BUILT_IN.get(str(name))]
        if removed:
            return RequiredAction(RESTART, f"{', '.join(map(str, removed))} must go")
        changed = [name for name in changed if after[name] is not None]
        return RequiredAction(RELOAD, f"{', '.join(map(str, changed))} is new") if changed else RequiredAction(NOTHING)

    def check(self, host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
        self.checked.append(edits)
        if self.refuses:
            raise Refused(f"configure {self.engine}", object=installation.main, cause=self.refuses)

    def _edits(self, configuration: Configuration, settings: Settings) -> Tuple[Edit, ...]:
        """What differs goes into the drop-in, what shall be nowhere out of the main file too."""
        target = by_text(settings)
        drop_in = configuration.installation.drop_in
        texts = {document.path: document.text for document in configuration.documents}
        main = configuration.documents[0].path
        lines = [line for line in (texts[main] or "").splitlines() if line != f"import={drop_in}"]
        lines = [line for line in lines if target.get(line.partition("=")[0], "") is not None]
        elsewhere = dict(line.partition("=")[::2] for line in lines)
        kept = [line for line in (texts.get(drop_in) or "").splitlines() if line.partition("=")[0] not in target]
        ours = [f"{name}={_text(value)}" for name, value in target.items() if value is not None]
        mine = [line for line in (*kept, *ours) if elsewhere.get(line.partition("=")[0]) != line.partition("=")[2]]
        after = "".join(f"{line}\n" for line in [*lines, *([f"import={drop_in}"] if mine else [])])
        found = [
            Edit(main, texts[main], after if after or texts[main] is not None else None),
            Edit(drop_in, configuration.parsed, "".join(f"{line}\n" for line in mine) or None),
        ]
        # The worst order: the plan puts it right.
        return tuple(edit for edit in found if edit.before != edit.after)


class EngineMachine:
    """A machine with these engines. Those of ``running`` have a daemon that was started on the files that are there."""

    def __init__(
        self,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
        files: Optional[Mapping[str, str]] = None,
        *,
        engines: Tuple[str, ...] = ("docker",),
        running: Tuple[str, ...] = (),
    ) -> None:
        self.root = root
        self.kinds = {name: SimpleKind(name) for name in ("docker", "containerd", "crio", "podman", "apptainer")}
        # The toolkit and CDI are no engines.
        monkeypatch.setattr(state, "kind_of", lambda name: self.kinds.get(name) or kind_of(name))
        programs = {f"/usr/bin/{engine}": "" for engine in engines}
        self.host: FakeHost = build(root, {RUNTIME_PATH: "", "/var/lib/.keep": "", **programs, **(files or {})})
        (root / RUNTIME_PATH[1:]).chmod(0o755)
        for engine in running:
            self.restart(engine)

    def text(self, path: str) -> Optional[str]:
        return self.host.files.read_optional(path)

    def write(self, path: str, text: str) -> None:
        """As somebody else does it."""
        target = self.root / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def settings(self, engine: str = "docker") -> Mapping[str, Any]:
        """What the engine would have after its next start, by text. Raises ``CannotLook`` where it would not start."""
        kind = self.kinds[engine]
        installation = Installation(engine, main_of(engine), drop_in_of(engine))
        return by_text(kind.read(self.host.files, installation).settings)

    def restart(self, engine: str = "docker", *, containers: int = 0) -> None:
        settings = {**BUILT_IN, **self.settings(engine)}
        self.tell(engine, settings, containers=containers)

    def tell(self, engine: str, settings: Mapping[str, Any], *, containers: int = 0, stale: str = "") -> None:
        """What the daemon says of itself."""
        told = {"settings": dict(settings), "containers": containers, "stale": stale}
        self.write(daemon_of(engine), json.dumps(told))

    def uninstall(self, engine: str) -> None:
        (self.root / f"usr/bin/{engine}").unlink()

    def reboot(self) -> None:
        import shutil

        running = [path.parent.name for path in self.root.glob("run/*/daemon.json")]
        shutil.rmtree(self.root / "run", ignore_errors=True)
        for engine in running:
            self.restart(engine)

    def writes(self) -> List[Tuple[str, str]]:
        """What was done to files since the last call, in order."""
        made = [(kind, path) for kind, path, _text in self.host.files.log if kind != "move"]
        self.host.files.log.clear()
        return made


def params(*entries: Mapping[str, Any], **options: Any) -> Dict[str, Any]:
    return validated(CONCERN, {"engines": list(entries), **options})


def run(machine: EngineMachine, *entries: Mapping[str, Any], check_mode: bool = False, **options: Any) -> Outcome:
    """One run of the module; its error is raised."""
    outcome = converge(CONCERN, params(*entries, **options), machine.host, check_mode=check_mode)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def changes_of(outcome: Outcome) -> List[Tuple[str, str, Any, Any, str]]:
    """The changes of engines."""
    return [
        (change.object, change.setting, change.before, change.after, change.scope)
        for change in outcome.changes
        if change.setting != "declaration"
    ]


def entry(engine: str = "docker", **options: Any) -> Dict[str, Any]:
    return {"engine": engine, **options}


def wanted_engine(engine: str, **options: Any) -> WantedEngine:
    return replace(WantedEngine(engine, True, "nvidia", RUNTIME_PATH), **options)


def _by_name(settings: Mapping[str, Any]) -> Settings:
    return {setting_of(text): value for text, value in settings.items()}


def _value(name: str, value: str) -> Any:
    return value == "true" if name.lstrip("!") in BOOLEANS else value


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
