# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container engines as values: where one is, what its configuration says, what its daemon says, and what is wanted.

A configuration is a few files that an engine reads together. What they mean is a mapping of settings, whose texts are
the names that the module's results use (``runtime nvidia``, ``default_runtime``, ``cdi``); what is not in it the engine
decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Protocol, Sequence, Tuple

from ..._core.setting import Scalar
from ..._core.value import field, frozen, frozen_ordered
from .entries import OF_CONTAINERD

if TYPE_CHECKING:
    from ..._core.errors import Refused
    from ..._core.protocols import Files, Host

NAME = "container_runtime"
DOCKER, CONTAINERD, CRIO, PODMAN, APPTAINER = "docker", "containerd", "crio", "podman", "apptainer"
ENGINES = (DOCKER, CONTAINERD, CRIO, PODMAN, APPTAINER)

NOTHING, RELOAD, RESTART = "", "reload", "restart"
# What a daemon may need, as ``needs`` names it. The role has a handler for each.
NEEDS = ("restart_containerd", "restart_crio", "reload_docker", "restart_docker")
# The value of a setting that a daemon does not tell, and that its files may have had otherwise when it read them.
NOT_KNOWN = "not known"

# The kinds of settings that are there once for each name: of a runtime, of a limit, and a path that is bound.
RUNTIME, SYSTEMD_CGROUP, DEFAULT_ULIMITS, BIND_PATH = "runtime", "systemd_cgroup", "default_ulimits", "bind path"
NAMED = (RUNTIME, SYSTEMD_CGROUP, *OF_CONTAINERD, DEFAULT_ULIMITS, BIND_PATH)


@frozen_ordered
class SettingName:
    """A setting of an engine: its kind, and the name of what it is about, empty where there is one of the kind.

    Its text is what results and records have: ``runtime nvidia``, ``default_runtime``.
    """

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name or self.kind in NAMED else self.kind


Settings = Mapping[SettingName, Scalar]

# The settings that more than one engine has, and what decides how many containers a restart ends.
DEFAULT_RUNTIME, CDI, LIVE_RESTORE = SettingName("default_runtime"), SettingName("cdi"), SettingName("live_restore")
# What the library of CDI reads where nobody says otherwise, the last one with the last word (pkg/cdi/spec-dirs.go).
SPEC_DIRS = ("/etc/cdi", "/var/run/cdi")


@frozen
class WantedEngine:
    """One entry of ``engines``. None is what the entry does not say, and what is left as it is.

    ``options`` are the keys that only this engine has (``live_restore``, ``default_ulimits``), as they were declared.
    """

    engine: str
    present: bool
    runtime_name: str
    runtime_path: str
    default: Optional[bool] = None
    cdi: Optional[bool] = None
    systemd_cgroup: Optional[bool] = None
    options: Mapping[str, Any] = field(default_factory=dict)


@frozen
class Installation:
    """An engine on this machine.

    ``flavour`` is the product that brings the engine and has places of its own (``k3s``, ``rke2``, ``k0s``,
    ``microk8s``, ``snap``), empty for the distribution's. ``main`` is the file that the engine reads first, ``drop_in``
    the one that is ours, empty where the engine has none. ``program``, ``socket`` and ``unit`` are empty where there
    is none; ``version`` is empty where no program says it without being started.
    """

    engine: str
    main: str
    drop_in: str = ""
    flavour: str = ""
    program: str = ""
    socket: str = ""
    unit: str = ""
    version: Tuple[int, ...] = ()


@frozen
class Document:
    """A file of a configuration; ``text`` is None where it is not there. ``path`` has its links resolved."""

    path: str
    text: Optional[str]


@frozen
class Configuration:
    """What an engine reads, in its order of precedence, and what it means together.

    ``settings`` has what the next start of the daemon brings; ``parsed`` is the kind's own, for ``edit``. ``refused``
    is why the daemon does not start again with the files as they are, where that was asked.
    """

    installation: Installation
    documents: Tuple[Document, ...]
    settings: Settings
    parsed: Any = None
    refused: Optional[Refused] = field(default=None, compare=False)


@frozen
class Edit:
    """A file before and after; None is a file that is not there."""

    path: str
    before: Optional[str]
    after: Optional[str]


@frozen
class RunningDaemon:
    """What the daemon has: its settings, its version and how many containers run in it, None where it does not say.

    ``stale`` is the path of a file of the configuration that is newer than the daemon, where only that can be known of
    it (containerd); empty otherwise. It then has no settings.
    """

    settings: Settings
    version: str = ""
    containers: Optional[int] = None
    stale: str = ""


@frozen
class RequiredAction:
    """What brings an edited configuration into effect (``NOTHING``, ``RELOAD`` or ``RESTART``), and why."""

    action: str
    why: str = ""


def setting_of(text: str) -> SettingName:
    """The setting that a record has as this text."""
    # Some kinds are more than one word.
    kind = next((kind for kind in NAMED if text.startswith(f"{kind} ")), text)
    return SettingName(kind, text[len(kind) + 1 :])


def by_text(settings: Settings) -> Dict[str, Scalar]:
    """The settings as results and records have them."""
    return {str(setting): value for setting, value in settings.items()}


def shown(value: Scalar) -> Scalar:
    """A value as the results have it: what is true or false in a file is a word there."""
    return ("true" if value else "false") if isinstance(value, bool) else value


class Kind(Protocol):
    """How one engine is configured. All methods only read."""

    engine: str

    def find(self, host: Host) -> Optional[Installation]:
        """The engine on this machine, or None. Starts no program."""

    def read(self, files: Files, installation: Installation) -> Configuration:
        """Raises ``CannotLook`` for a file that the engine would not understand, with its line and column."""

    def wanted(self, wanted: WantedEngine, configuration: Configuration) -> Settings:
        """What is declared in the names of the settings, and no other. Raises ``DeclarationError`` for what makes no
        sense here.
        """

    def edit(self, configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
        """The files as they have to be; none where the meaning is right."""

    def restore(self, configuration: Configuration, baseline: Settings) -> Tuple[Edit, ...]:
        """The files with ``found`` in them, by the names of ``settings``; None for what shall not be in any of them.

        For ``state: absent`` where somebody else has edited a file since: what was found comes back, theirs stays, and
        what we brought beside the settings (a drop-in with nothing in it, a line that imports it) goes.
        """

    def running(self, host: Host, configuration: Configuration) -> Optional[RunningDaemon]:
        """What the daemon says of itself, or None where none runs or the engine has no daemon."""

    def foresee(
        self, host: Host, configuration: Configuration, running: Optional[RunningDaemon], wanted: WantedEngine
    ) -> Configuration:
        """The configuration with what the engine's own program says to an entry, so that ``edit`` can refuse it in
        check mode too, or to files that no daemon has started with yet. For what a program can judge without a file on
        the machine.
        """
        return configuration

    def required_action(self, before: Settings, after: Settings) -> RequiredAction:
        """What a daemon that runs with ``before`` needs to have ``after``. Pure."""

    def check(self, host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
        """Let the engine's own program judge the candidate, where it is there. Raises ``Refused``."""


class WithoutDaemon(Kind, Protocol):
    """The part of ``Kind`` that is alike where no daemon runs: what the files say is in effect at once.

    What is wanted is edited as what was found is restored, and no program judges it, unless a kind says otherwise.
    """

    def edit(self, configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
        return self.restore(configuration, self.wanted(wanted, configuration))

    def check(self, host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
        return None

    def running(self, host: Host, configuration: Configuration) -> Optional[RunningDaemon]:
        return None

    def required_action(self, before: Settings, after: Settings) -> RequiredAction:
        return RequiredAction(NOTHING)


class SingleFile(Kind, Protocol):
    """The part of ``Kind`` that is alike where one file has all settings, and each is changed in its text by itself."""

    def changed(self, text: str, setting: SettingName, value: Scalar, path: str) -> str:
        """The text of the file at ``path`` with a setting, None for one that goes; every other character stays."""

    def restore(self, configuration: Configuration, baseline: Settings) -> Tuple[Edit, ...]:
        (document,) = configuration.documents
        text = before = document.text or ""
        for setting, value in baseline.items():
            if configuration.settings.get(setting) != value:
                text = self.changed(text, setting, value, document.path)
        return () if text == before else (Edit(document.path, document.text, text),)


def restart_for(engine: str, changed: Sequence[SettingName]) -> RequiredAction:
    """A restart where something changed, of an engine whose containers outlive it; ``engine`` says what it does."""
    if not changed:
        return RequiredAction(NOTHING)
    names = ", ".join(map(str, changed))
    return RequiredAction(RESTART, f"{engine} {names} only when it starts; containers keep running")
