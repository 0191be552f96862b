# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker: ``daemon.json``, the command line of dockerd, and what the daemon says of itself.

The names of the settings: ``runtime NAME`` (its path, with its arguments), ``default_runtime``, ``cdi``,
``live_restore``, ``data_root``, ``exec_opts``, ``default_shm_size`` and ``default_ulimits NAME`` (``soft:hard``). What
is declared is in the file afterwards, also where dockerd would decide the same.

GET /info has all of them but the size of /dev/shm and the limits, which no question to dockerd answers. Of these it has
what the file said when it started (its pid file tells when), or what ``docker_check`` noted before a later change.

The daemon of the machine is meant. A rootless one belongs to a user, reads a file in his home and is left alone.
"""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ...._core.errors import DeclarationError
from ...._core.value import replace
from ...._linux import unit_command
from ...._machine import processes
from ...._text import json_text
from ..gpu_operator import refuse
from ..model import (
    CDI,
    DEFAULT_RUNTIME,
    DEFAULT_ULIMITS,
    DOCKER,
    LIVE_RESTORE,
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
    SingleFile,
    WantedEngine,
)
from .meaning import (
    DATA_ROOT,
    EXEC_OPTS,
    KEYS,
    KNOWS_CDI,
    PID_FILE,
    RUNC,
    SHM_SIZE,
    SNAP,
    ParsedDocker,
    ask,
    bytes_of,
    dotted,
    is_newer,
    numbers,
    options_of,
    refuse_twice,
    reported,
    settings_of,
    size_text,
    socket_among,
    socket_of,
    untold,
)

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host
    from ...._core.setting import Scalar
    from ..model import Kind

SNAP_PID_FILE = "/run/snap.docker/docker.pid"
SNAP_PROGRAM = "/snap/docker/current/bin/dockerd"
PROGRAMS = ("/usr/bin/dockerd", "/usr/sbin/dockerd", "/usr/local/bin/dockerd")
# The keys of a runtime (``Runtime`` of moby's api/types), which dockerd takes in any case; the last one counts. Others,
# such as the ``args`` that nvidia-ctk writes, it ignores.
RUNTIME_KEYS = ("path", "runtimeArgs", "runtimeType")
LOWER = tuple(key.lower() for key in RUNTIME_KEYS)
# What dockerd does without a word.
DECIDED: Settings = {DEFAULT_RUNTIME: RUNC, LIVE_RESTORE: False, DATA_ROOT: "/var/lib/docker", SHM_SIZE: "64M"}


class Docker(SingleFile):
    """``model.Kind`` for Docker."""

    engine = DOCKER

    def find(self, host: Host) -> Optional[Installation]:
        files = host.files
        program = next((path for path in (*PROGRAMS, SNAP_PROGRAM) if files.exists(path)), "")
        if not program:
            return None
        snap = program == SNAP_PROGRAM
        unit = "snap.docker.dockerd.service" if snap else "docker.service"
        main = "/var/snap/docker/current/config/daemon.json" if snap else "/etc/docker/daemon.json"
        words = unit_command.read(files, unit)
        process = _process(files, SNAP_PID_FILE if snap else PID_FILE)
        options = {**options_of(_words(files, process)), **options_of(words)}
        return Installation(
            DOCKER,
            main=str(options.get("config-file", (main, ""))[0]),
            flavour=SNAP if snap else "",
            program=program,
            socket=socket_among(options.get("hosts", ((), ""))[0]),
            unit=unit if words else "",
        )

    def read(self, files: Files, installation: Installation) -> Configuration:
        path = files.resolve(installation.main)
        text = files.read_optional(path)
        values = json_text.parse(text, path)
        unit = options_of(unit_command.read(files, installation.unit)) if installation.unit else {}
        default = SNAP_PID_FILE if installation.flavour == SNAP else PID_FILE
        pid_file = str(unit.get("pidfile", (values.get("pidfile") or default, ""))[0])
        process = _process(files, pid_file)
        running = options_of(_words(files, process))
        next_start = {key: value for key, (value, _place) in (unit or running).items()}
        settings = settings_of({**next_start, **values}, path)
        # Of runtimes alone dockerd takes what both say.
        settings = {**settings_of({"runtimes": next_start.get("runtimes")}, path), **settings}
        parsed = ParsedDocker(values, {**running, **unit}, process, pid_file)
        return Configuration(installation, (Document(path, text),), settings, parsed)

    def wanted(self, wanted: WantedEngine, configuration: Configuration) -> Settings:
        """What is declared; None is a setting that must not be in the file. ``spec`` has looked at the values."""
        if wanted.cdi:
            _refuse_without_cdi(configuration.installation.version)
        made = _wanted(wanted, configuration)
        refuse_twice(configuration, made)
        return made

    def edit(self, configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
        """Raises ``OwnedByAnother`` where the GPU Operator writes the file, and what ``foresee`` found against it."""
        settings = self.wanted(wanted, configuration)
        made = self.restore(configuration, settings)
        for setting, program in configuration.settings.items() if made and wanted.present else ():
            if setting.kind == RUNTIME:
                refuse(DOCKER, configuration.documents[0].path, str(program), settings.get(setting))
        if made and configuration.parsed.refused is not None:
            raise configuration.parsed.refused
        return made

    def changed(self, text: str, setting: SettingName, value: Scalar, path: str) -> str:
        from ...._text import json_edit

        for keys, wanted in _places(setting, value, json_text.parse(text, path)):
            text = json_edit.remove(text, keys) if wanted is None else json_edit.set_value(text, keys, wanted)
        # An object that we leave without a key would say less than nothing.
        outer = KEYS[setting.kind][:1]
        emptied = value is None and json_text.parse(text, path).get(outer[0]) == {}
        return json_edit.remove(text, outer) if emptied else text

    def running(self, host: Host, configuration: Configuration) -> Optional[RunningDaemon]:
        parsed: ParsedDocker = configuration.parsed
        if parsed.process is None:
            # A question would start a daemon for which systemd listens.
            return None
        info = ask(host, socket_of(configuration))
        settings = {**reported(host.files, info, configuration.settings), **untold(host.files, configuration)}
        return RunningDaemon(settings, info["ServerVersion"], info.get("ContainersRunning") or 0)

    def foresee(
        self, host: Host, configuration: Configuration, running: Optional[RunningDaemon], wanted: WantedEngine
    ) -> Configuration:
        if wanted.cdi:
            configuration = _with_version(host, configuration, running)
        if not wanted.present or not host.may_change:
            return configuration
        edits = self.restore(configuration, self.wanted(wanted, configuration))
        if not edits:
            return _with_next_start(host, configuration)
        from . import check

        refused = check.refused(host, configuration, edits)
        return replace(configuration, parsed=replace(configuration.parsed, refused=refused))

    def required_action(self, before: Settings, after: Settings) -> RequiredAction:
        changed = sorted(name for name in {*before, *after} if _meant(name, before) != _meant(name, after))
        required_action = [_required_action(name, after) for name in changed]
        return next(
            (made for action in (RESTART, RELOAD) for made in required_action if made.action == action),
            RequiredAction(NOTHING),
        )

    def check(self, host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
        from . import check

        check.check(host, self.read(host.files, installation), edits)


def _with_next_start(host: Host, configuration: Configuration) -> Configuration:
    """The configuration with the reason why dockerd would not start with the file as it is.

    The program is asked only about a file with which some release does not start, and this one has not yet.
    """
    parsed: ParsedDocker = configuration.parsed
    text = configuration.documents[0].text
    if text is None or _has_started(host.files, configuration):
        return configuration
    from . import directives

    if not directives.in_doubt(text, parsed.values, parsed.options):
        return configuration
    from . import check

    return replace(configuration, refused=check.unstartable(host, configuration, text))


def _has_started(files: Files, configuration: Configuration) -> bool:
    """Whether the dockerd that is installed runs, and has started with the file as it is."""
    parsed: ParsedDocker = configuration.parsed
    if parsed.process is None or is_newer(files, configuration):
        return False
    # So the kernel says that the program is not this file any more (proc(5)).
    with contextlib.suppress(OSError):
        return not files.link(f"/proc/{parsed.process.pid}/exe").endswith(" (deleted)")
    return True


def _with_version(host: Host, configuration: Configuration, running: Optional[RunningDaemon]) -> Configuration:
    """The configuration with the version of dockerd that reads it next, where that may be one without CDI.

    The program is asked beside an older daemon, and where none runs and the file is about to change. Empty for unknown.
    """
    is_right = configuration.settings.get(CDI) is True
    if is_right if running is None else not () < numbers(running.version) < KNOWS_CDI:
        return configuration
    from .check import version_of

    installation = configuration.installation
    return replace(configuration, installation=replace(installation, version=version_of(host, installation)))


def _refuse_without_cdi(version: Tuple[int, ...]) -> None:
    if () < version < KNOWS_CDI:
        raise DeclarationError(
            "enable CDI",
            object=DOCKER,
            cause=f"dockerd {dotted(version)} does not support CDI (25.0 and newer do), and ignores features.cdi",
            hint="upgrade Docker, or remove cdi from this entry",
        )


def _places(setting: SettingName, value: Scalar, values: Mapping[str, Any]) -> List[Tuple[Sequence[str], Any]]:
    """What to set where; None removes."""
    kind, name = setting.kind, setting.name
    path = (*KEYS[kind], name) if name else KEYS[kind]
    if value is None:
        return [(path, None)]
    if kind == RUNTIME:
        return _runtime(path, str(value), (values.get("runtimes") or {}).get(name))
    if setting == EXEC_OPTS:
        return [(path, str(value).split(" "))]
    if kind == DEFAULT_ULIMITS:
        soft, _colon, hard = str(value).partition(":")
        return [(path, {"Name": name, "Soft": int(soft), "Hard": int(hard)})]
    return [(path, value)]


def _runtime(path: Sequence[str], value: str, found: Any) -> List[Tuple[Sequence[str], Any]]:
    """A runtime of ours beside what others said of it; with ``runtimeType`` dockerd takes no path."""
    program, *arguments = shlex.split(value) or [""]
    if program.startswith("io.containerd."):
        return [(path, {"runtimeType": program})]
    is_plain = isinstance(found, dict) and all(key in RUNTIME_KEYS or key.lower() not in LOWER for key in found)
    if not is_plain or "path" not in found or "runtimeType" in found:
        return [(path, {"path": program, "runtimeArgs": arguments} if arguments else {"path": program})]
    made: List[Tuple[Sequence[str], Any]] = [((*path, "path"), program)]
    if (found.get("runtimeArgs") or []) != arguments:
        made.append(((*path, "runtimeArgs"), arguments))
    return made


def _wanted(wanted: WantedEngine, configuration: Configuration) -> Settings:
    name, found = wanted.runtime_name, configuration.settings
    runtime, default = SettingName(RUNTIME, name), found.get(DEFAULT_RUNTIME)
    if not wanted.present:
        gone: Dict[SettingName, Scalar] = {runtime: None}
        return {**gone, DEFAULT_RUNTIME: None} if default == name else gone
    made: Dict[SettingName, Scalar] = {runtime: _with_arguments(wanted, found.get(runtime))}
    if wanted.default is not None:
        made[DEFAULT_RUNTIME] = name if wanted.default else (None if default == name else default)
    if wanted.cdi is not None:
        made[CDI] = wanted.cdi
    made.update(_options(wanted.options))
    return made


def _with_arguments(wanted: WantedEngine, found: Scalar) -> str:
    """The path; arguments that others gave the runtime are none of ours and stay."""
    words = shlex.split(str(found or ""))
    return shlex.join([wanted.runtime_path, *words[1:]])


def _options(options: Mapping[str, Any]) -> Dict[SettingName, Scalar]:
    made: Dict[SettingName, Scalar] = {}
    for setting in (LIVE_RESTORE, DATA_ROOT):
        if setting.kind in options:
            made[setting] = options[setting.kind]
    if "exec_opts" in options:
        made[EXEC_OPTS] = " ".join(_exec_option(option) for option in options["exec_opts"]) or None
    if "default_shm_size" in options:
        made[SHM_SIZE] = size_text(bytes_of(options["default_shm_size"]) or 0)
    for name, limit in options.get("default_ulimits", {}).items():
        made[SettingName(DEFAULT_ULIMITS, name)] = f"{limit['soft']}:{limit['hard']}"
    return made


def _exec_option(option: str) -> str:
    # validatePlatformExecOpt and verifyCgroupDriver of moby know no other.
    if option in ("native.cgroupdriver=systemd", "native.cgroupdriver=cgroupfs"):
        return option
    raise DeclarationError(
        "set exec_opts",
        object=DOCKER,
        cause="dockerd knows native.cgroupdriver=systemd and native.cgroupdriver=cgroupfs",
        found=option,
    )


def _meant(name: SettingName, settings: Settings) -> Scalar:
    value = settings.get(name)
    return DECIDED.get(name) if value is None else value


def _required_action(setting: SettingName, after: Settings) -> RequiredAction:
    """What dockerd needs for one setting (``Reload`` of moby's daemon/reload.go and reload_unix.go, 20.10 to 29)."""
    gone = after.get(setting) is None
    key = KEYS[setting.kind][0]
    if setting == CDI:
        return RequiredAction(RESTART, "dockerd turns CDI on or off only when it starts")
    if setting.kind in (DATA_ROOT.kind, EXEC_OPTS.kind, DEFAULT_ULIMITS):
        return RequiredAction(RESTART, f"dockerd reads {key} only when it starts")
    if setting.kind == RUNTIME:
        # A reload takes the whole table of the file, and none where the file has none.
        others = any(other.kind == RUNTIME and after[other] is not None for other in after)
        if gone and not others:
            return RequiredAction(RESTART, f"dockerd drops its last {setting} only when it starts")
        return RequiredAction(RELOAD, f"dockerd reads {setting} when it reloads")
    if gone:
        return RequiredAction(RESTART, f"a reload does not undo {key}")
    return RequiredAction(RELOAD, f"dockerd reads {key} when it reloads")


def _process(files: Files, pid_file: str) -> Optional[processes.Process]:
    number = (files.read_optional(pid_file) or "").strip()
    if (
        not number.isdecimal()
        or processes.name_of(files, number) != "dockerd"
        or not processes.is_of_root(files, number)
    ):
        return None
    return processes.read(files, int(number))


def _words(files: Files, process: Optional[processes.Process]) -> Tuple[unit_command.Word, ...]:
    if process is None:
        return ()
    place = f"/proc/{process.pid}/cmdline"
    return tuple((word, place) for word in (files.read_optional(place) or "").split("\0"))


KIND: Kind = Docker()
