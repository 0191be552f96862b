# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container engines as values: where one is, what its configuration says, what its daemon says, and what is wanted.

A configuration is a few files that an engine reads together. What they mean is a mapping of settings, by the names
that the module's results use (``runtime nvidia``, ``default_runtime``, ``cdi``); what is not in it the engine decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Protocol, Tuple

from .._core.errors import CannotLook, Scalar
from .._host.protocols import Files, Host

DOCKER, CONTAINERD, CRIO, PODMAN, APPTAINER = "docker", "containerd", "crio", "podman", "apptainer"
ENGINES = (DOCKER, CONTAINERD, CRIO, PODMAN, APPTAINER)

NOTHING, RELOAD, RESTART = "", "reload", "restart"
# What a daemon may need, as ``needs`` names it. The role has a handler for each.
NEEDS = ("restart_containerd", "restart_crio", "reload_docker", "restart_docker")
# The value of a setting that a daemon does not tell, and that its files may have had otherwise when it read them.
NOT_KNOWN = "not known"

Settings = Mapping[str, Scalar]

# The settings that more than one engine has; behind the first one is the name of the runtime.
RUNTIME, DEFAULT_RUNTIME, CDI = "runtime ", "default_runtime", "cdi"
# What the library of CDI reads where nobody says otherwise, the last one with the last word (pkg/cdi/spec-dirs.go).
SPEC_DIRS = ("/etc/cdi", "/var/run/cdi")


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Document:
    """A file of a configuration; ``text`` is None where it is not there. ``path`` has its links resolved."""

    path: str
    text: Optional[str]


@dataclass(frozen=True)
class Configuration:
    """What an engine reads, in its order of precedence, and what it means together.

    ``settings`` has what the next start of the daemon brings; ``parsed`` is the kind's own, for ``edit``.
    """

    installation: Installation
    documents: Tuple[Document, ...]
    settings: Settings
    parsed: Any = None


@dataclass(frozen=True)
class Edit:
    """A file before and after; None is a file that is not there."""

    path: str
    before: Optional[str]
    after: Optional[str]


@dataclass(frozen=True)
class Running:
    """What the daemon has: its settings, its version and how many containers run in it, None where it does not say.

    ``stale`` is the path of a file of the configuration that is newer than the daemon, where only that can be known of
    it (containerd); empty otherwise. It then has no settings.
    """

    settings: Settings
    version: str = ""
    containers: Optional[int] = None
    stale: str = ""


@dataclass(frozen=True)
class Takes:
    """What brings an edited configuration into effect (``NOTHING``, ``RELOAD`` or ``RESTART``), and why."""

    action: str
    why: str = ""


def shown(value: Scalar) -> Scalar:
    """A value as the results have it: what is true or false in a file is a word there."""
    return ("true" if value else "false") if isinstance(value, bool) else value


def not_understood(path: str, cause: str) -> CannotLook:
    """The error for a file that its engine would not take either; ``cause`` has the place in it where there is one."""
    return CannotLook(
        "understand the configuration",
        object=path,
        cause=cause,
        hint="correct the file, then run again; nothing was written",
    )


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

    def give_back(self, configuration: Configuration, found: Settings) -> Tuple[Edit, ...]:
        """The files with ``found`` in them, by the names of ``settings``; None for what shall not be in any of them.

        For ``state: absent`` where somebody else has edited a file since: what was found comes back, theirs stays, and
        what we brought beside the settings (a drop-in with nothing in it, a line that imports it) goes.
        """

    def running(self, host: Host, configuration: Configuration) -> Optional[Running]:
        """What the daemon says of itself, or None where none runs or the engine has no daemon."""

    def takes(self, before: Settings, after: Settings) -> Takes:
        """What a daemon that runs with ``before`` needs to have ``after``. Pure."""

    def check(self, host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
        """Let the engine's own program judge the candidate, where it is there. Raises ``Refused``."""


class WithoutDaemon:
    """The part of ``Kind`` that is alike where no daemon runs: what the files say is in effect at once."""

    def running(self, host: Host, configuration: Configuration) -> Optional[Running]:
        return None

    def takes(self, before: Settings, after: Settings) -> Takes:
        return Takes(NOTHING)
