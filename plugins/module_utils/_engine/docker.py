# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker: ``daemon.json``, the command line of dockerd, and what the daemon says of itself.

The names of the settings: ``runtime NAME`` (its path, with its arguments), ``default_runtime``, ``cdi``,
``live_restore``, ``data_root``, ``exec_opts``, ``default_shm_size`` and ``default_ulimits NAME`` (``soft:hard``). What
is declared is in the file afterwards, also where dockerd would decide the same. runc as the default runtime is what
dockerd does without a word, and has no value.

GET /info has all of them but the size of /dev/shm and the limits, which no question to dockerd answers. Of these it has
what the file said when it started (its pid file tells when), or what ``docker_check`` noted before a later change.

The daemon of the machine is meant. A rootless one belongs to a user, reads a file in his home and is left alone.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from .._core.errors import CannotLook, OwnedByAnother, Scalar
from .._host import processes, unit_command
from . import json_text
from .model import (
    DOCKER,
    NOT_KNOWN,
    NOTHING,
    RELOAD,
    RESTART,
    Configuration,
    Document,
    Edit,
    Installation,
    Running,
    Settings,
    Takes,
    WantedEngine,
    not_understood,
    shown,
)

if TYPE_CHECKING:
    from .._host.protocols import Files, Host

RUNC = "runc"
# What dockerd brings itself (config.StockRuntimeName, and the shims of containerd since 23.0).
STOCK = (RUNC, "io.containerd.runc.v2", "io.containerd.runtime.v1.linux")
SOCKET = "/run/docker.sock"
PID_FILE = "/run/docker.pid"
SNAP = "snap"
SNAP_PID_FILE = "/run/snap.docker/docker.pid"
SNAP_PROGRAM = "/snap/docker/current/bin/dockerd"
PROGRAMS = ("/usr/bin/dockerd", "/usr/sbin/dockerd", "/usr/local/bin/dockerd")
LOADED = "/run/gpufleet/docker.loaded.json"

# The key of daemon.json of each setting; that of a setting with a name is an object by such names.
KEYS: Mapping[str, Tuple[str, ...]] = {
    "runtime": ("runtimes",),
    "default_runtime": ("default-runtime",),
    "cdi": ("features", "cdi"),
    "live_restore": ("live-restore",),
    "data_root": ("data-root",),
    "exec_opts": ("exec-opts",),
    "default_shm_size": ("default-shm-size",),
    "default_ulimits": ("default-ulimits",),
}
UNTOLD = ("default_shm_size", "default_ulimits")
# Options of dockerd by another name than their keys.
OPTIONS = {
    "add-runtime": "runtimes",
    "feature": "features",
    "exec-opt": "exec-opts",
    "default-ulimit": "default-ulimits",
    "host": "hosts",
    "H": "hosts",
    "p": "pidfile",
}
# Of its answer to GET /info (types/system/info.go of moby).
ANSWER: Mapping[str, type] = {
    "Runtimes": dict,
    "DefaultRuntime": str,
    "LiveRestoreEnabled": bool,
    "CDISpecDirs": list,
    "DockerRootDir": str,
    "CgroupDriver": str,
    "ServerVersion": str,
    "ContainersRunning": int,
    "Swarm": dict,
}
# What dockerd does without a word.
DECIDED: Settings = {"live_restore": False, "data_root": "/var/lib/docker", "default_shm_size": "64M"}
UNITS = "BKMGTP"


@dataclass(frozen=True)
class Parsed:
    """``values`` is the object that daemon.json holds. ``options`` are those of dockerd's command line by their keys,
    as daemon.json would have them, with the place that they come from. ``process`` is the daemon, where it runs.
    """

    values: Mapping[str, Any]
    options: Mapping[str, Tuple[Any, str]] = field(default_factory=dict)
    process: Optional[processes.Process] = None
    pid_file: str = PID_FILE


class Docker:
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
            socket=_socket(options.get("hosts", ((), ""))[0]),
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
        parsed = Parsed(values, {**running, **unit}, process, pid_file)
        return Configuration(installation, (Document(path, text),), settings, parsed)

    def wanted(self, wanted: WantedEngine, configuration: Configuration) -> Settings:
        from . import docker_wanted

        made = docker_wanted.settings(wanted, configuration)
        refuse_twice(configuration, made)
        return made

    def edit(self, configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
        from . import docker_edit

        return docker_edit.edit(configuration, wanted, self.wanted(wanted, configuration))

    def give_back(self, configuration: Configuration, found: Settings) -> Tuple[Edit, ...]:
        from . import docker_edit

        return docker_edit.edits(configuration, found)

    def running(self, host: Host, configuration: Configuration) -> Optional[Running]:
        parsed: Parsed = configuration.parsed
        if parsed.process is None:
            # A question would start a daemon for which systemd listens.
            return None
        info = ask(host, socket_of(configuration))
        settings = {**reported(host.files, info, configuration.settings), **untold(host.files, configuration)}
        return Running(settings, info["ServerVersion"], info.get("ContainersRunning") or 0)

    def takes(self, before: Settings, after: Settings) -> Takes:
        changed = sorted(name for name in {*before, *after} if _meant(name, before) != _meant(name, after))
        takes = [_takes(name, after) for name in changed]
        return next((made for action in (RESTART, RELOAD) for made in takes if made.action == action), Takes(NOTHING))

    def check(self, host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
        from . import docker_check

        docker_check.check(host, self.read(host.files, installation), edits)


def options_of(words: Tuple[unit_command.Word, ...]) -> Dict[str, Tuple[Any, str]]:
    """The options of a command line of dockerd by the keys of daemon.json, with the values of that.

    ``config-file``, which is no key, by its name. pflag takes ``--name=value`` and ``--name value``, and a boolean
    without a value for true.
    """
    given: Dict[str, List[str]] = {}
    places: Dict[str, str] = {}
    for (word, place), (following, _place) in zip(words, (*words[1:], ("", ""))):
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not name:
            continue
        if not equals and not following.startswith("-"):
            value = following
        key = OPTIONS.get(name, name)
        given.setdefault(key, []).append(value)
        places[key] = place
    return {key: (_value(key, values), places[key]) for key, values in given.items()}


def _value(key: str, values: List[str]) -> Any:
    if key in ("exec-opts", "hosts"):
        return values
    pairs = [value.partition("=")[::2] for value in values]
    if key == "runtimes":
        return {name: {"path": path} for name, path in pairs}
    if key == "features":
        return {name: value != "false" for name, value in pairs}
    if key == "default-ulimits":
        limits = {name: value.partition(":")[::2] for name, value in pairs}
        return {name: {"Name": name, "Soft": soft, "Hard": hard or soft} for name, (soft, hard) in limits.items()}
    return values[-1].lower() not in ("false", "0", "f") if key == "live-restore" else values[-1]


def settings_of(values: Mapping[str, Any], path: str) -> Dict[str, Scalar]:
    """What an object of daemon.json says, by the names of the settings.

    Raises ``CannotLook`` for a value of a kind that dockerd would not take either.
    """
    made: Dict[str, Scalar] = {}
    runtimes = _object(values, "runtimes", path)
    for name in runtimes:
        if name not in STOCK:
            try:
                made[f"runtime {name}"] = runtime_text(runtimes[name] or {})
            except ValueError as error:
                raise _wrong(path, f"runtimes.{name}", str(error)) from error
    if values.get("default-runtime") not in (None, "", RUNC):
        made["default_runtime"] = _text(values, "default-runtime", path)
    limits = _object(values, "default-ulimits", path)
    for name in limits:
        soft, hard = (_get(_object(limits, name, path), which) or 0 for which in ("soft", "hard"))
        if not re.fullmatch(r"-?\d+:-?\d+", f"{soft}:{hard}", re.ASCII):
            raise _wrong(path, f"default-ulimits.{name}", "has no number")
        made[f"default_ulimits {name}"] = f"{soft}:{hard}"
    features = _object(values, "features", path)
    for name, found in (("cdi", features.get("cdi")), ("live_restore", values.get("live-restore"))):
        if isinstance(found, bool):
            made[name] = found
        elif found is not None:
            raise _wrong(path, ".".join(KEYS[name]), "is neither true nor false")
    if values.get("data-root"):
        made["data_root"] = _text(values, "data-root", path)
    if values.get("exec-opts"):
        options = values["exec-opts"]
        if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
            raise _wrong(path, "exec-opts", "is no list of texts")
        made["exec_opts"] = " ".join(options)
    if values.get("default-shm-size") is not None:
        size = bytes_of(_text(values, "default-shm-size", path))
        if size is None:
            raise _wrong(path, "default-shm-size", "is no size such as 8G")
        made["default_shm_size"] = size_text(size)
    return made


def runtime_text(runtime: Any) -> str:
    """A runtime as one text: its path, or the shim that containerd shall start (since 23.0), and its arguments.

    With the quotes of a shell, so that what has a blank in it stays one word. Raises ``ValueError`` for what is none.
    """
    if not isinstance(runtime, dict):
        raise ValueError("is no object")
    arguments = _get(runtime, "args") or _get(runtime, "runtimeArgs") or []
    program = _get(runtime, "path") or _get(runtime, "runtimeType") or ""
    if not isinstance(arguments, list) or not all(isinstance(word, str) for word in (program, *arguments)):
        raise ValueError("has a path that is no text, or args that are no list of texts")
    return shlex.join([program, *arguments]) if program or arguments else ""


def bytes_of(text: str) -> Optional[int]:
    """A size as dockerd reads it (go-units, RAMInBytes): ``64m``, ``1.5 GiB``, ``4096``; None for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgtp]?)(?:i?b)?", text.lower())
    return int(float(found[1]) * (1 << (10 * UNITS.lower().index(found[2] or "b")))) if found else None


def size_text(size: int) -> str:
    """The same size in the largest unit that it is a whole number of."""
    power = 0
    while size and size % 1024 == 0 and power < len(UNITS) - 1:
        size //= 1024
        power += 1
    return f"{size}{UNITS[power]}"


def refuse_twice(configuration: Configuration, made: Settings) -> None:
    """Raises ``OwnedByAnother`` for a setting that would be, or is, in the file and on the command line too.

    dockerd then does not start ("specified both as a flag and in the configuration file"). Of runtimes it takes both
    (``skipDuplicates`` of its config.go), and the file counts.
    """
    parsed: Parsed = configuration.parsed
    for name, value in made.items():
        key = KEYS[name.partition(" ")[0]][0]
        if key not in parsed.options:
            continue
        differs = value != configuration.settings.get(name)
        if key == "runtimes" and not (differs and value is None and name[len("runtime ") :] in parsed.options[key][0]):
            continue
        if differs or key in parsed.values:
            path, place = configuration.documents[0].path, parsed.options[key][1]
            raise OwnedByAnother(
                f"set {name}",
                object=DOCKER,
                cause=f"the command line of dockerd has it too, from {place}, and with {key} in {path} as well "
                "dockerd would not start",
                found=shown(configuration.settings.get(name)),
                wanted=shown(value),
                hint="restart docker, so that it runs as its unit says, or stop what starts it with the option"
                if place.startswith("/proc/")
                else f"take the option out of {place}, or the setting out of the declaration",
            )


def socket_of(configuration: Configuration) -> str:
    """Where the daemon listens: what the file says of it, or else the command line."""
    hosts = configuration.parsed.values.get("hosts")
    return _socket(hosts) if hosts else configuration.installation.socket


def ask(host: Host, socket: str) -> Dict[str, Any]:
    """What a daemon that runs says of itself. Raises ``CannotLook`` with what went wrong."""
    try:
        info = json.loads(host.http_get(socket, "/info"))
        if not isinstance(info, dict):
            raise ValueError("it answers no object")
        for key, kind in ANSWER.items():
            if not isinstance(info.get(key), (kind, type(None))):
                raise ValueError(f"it answers {info[key]!r} as {key}")
        if not info.get("ServerVersion"):
            raise ValueError("its answer has no version of a server")
        for name, runtime in (info.get("Runtimes") or {}).items():
            if not isinstance(runtime, dict):
                raise ValueError(f"it answers {runtime!r} as the runtime {name}")
            runtime_text(runtime)
    except OSError as error:
        raise _silent(socket, error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise _silent(socket, str(error)) from error
    return info


def _silent(socket: str, cause: str) -> CannotLook:
    return CannotLook("ask dockerd what it has", object=socket, cause=cause, hint="see journalctl -u docker")


def reported(files: Files, info: Mapping[str, Any], boot: Settings) -> Dict[str, Scalar]:
    """What GET /info says, in the words of the file where both mean the same."""
    said: Dict[str, Scalar] = {}
    for name, runtime in (info.get("Runtimes") or {}).items():
        if name not in STOCK:
            said[f"runtime {name}"] = runtime_text(runtime)
    if info.get("DefaultRuntime") not in (None, "", RUNC):
        said["default_runtime"] = info["DefaultRuntime"]
    said["live_restore"] = bool(info.get("LiveRestoreEnabled"))
    # The folders are those of the start, and none where CDI was off then; daemons before 25.0 do not have the word.
    said["cdi"] = bool(info.get("CDISpecDirs"))
    # With user namespaces the last part is the range of ids.
    root = re.sub(r"/\d+\.\d+$", "", str(info.get("DockerRootDir", "")))
    named = boot.get("data_root")
    said["data_root"] = named if isinstance(named, str) and files.resolve(named) == files.resolve(root) else root
    driver = f"native.cgroupdriver={info.get('CgroupDriver', '')}"
    said["exec_opts"] = boot["exec_opts"] if driver in str(boot.get("exec_opts")) else driver
    return said


def untold(files: Files, configuration: Configuration) -> Dict[str, Scalar]:
    """What the daemon has of what it does not tell; ``NOT_KNOWN`` where the file was written after it had read it."""
    parsed: Parsed = configuration.parsed
    now = untold_of(configuration.settings)
    noted = noted_of(files)
    if parsed.process is not None and noted.get("daemon") == parsed.process.identity:
        return dict(noted["settings"])
    # dockerd reads its file just before it writes its number.
    late = files.modified(configuration.documents[0].path) > files.modified(parsed.pid_file) > 0
    return dict.fromkeys(now, NOT_KNOWN) if late else now


def untold_of(settings: Settings) -> Dict[str, Scalar]:
    return {name: value for name, value in settings.items() if name.partition(" ")[0] in UNTOLD}


def noted_of(files: Files) -> Dict[str, Any]:
    """The daemon that ``docker_check`` noted something of, and its settings; nothing where there is no such note."""
    try:
        noted = json.loads(files.read_optional(LOADED) or "{}")
    except (ValueError, RecursionError):
        return {}
    return noted if isinstance(noted, dict) and isinstance(noted.get("settings"), dict) else {}


def _meant(name: str, settings: Settings) -> Scalar:
    value = settings.get(name)
    return DECIDED.get(name) if value is None else value


def _takes(name: str, after: Settings) -> Takes:
    """What dockerd needs for one setting (``Reload`` of moby's daemon/reload.go and reload_unix.go, 20.10 to 29)."""
    kind, _blank, which = name.partition(" ")
    gone = after.get(name) is None
    if kind == "cdi":
        return Takes(RESTART, "dockerd turns CDI on or off only when it starts")
    if kind in ("data_root", "exec_opts", "default_ulimits"):
        return Takes(RESTART, f"dockerd reads {KEYS[kind][0]} only when it starts")
    if kind == "runtime":
        # A reload takes the whole table of the file, and none where the file has none.
        others = any(other.startswith("runtime ") and after[other] is not None for other in after)
        if gone and not others:
            return Takes(RESTART, f"dockerd forgets its last runtime {which} only when it starts")
        return Takes(RELOAD, f"dockerd reads runtime {which} when it reloads")
    if gone:
        return Takes(RESTART, f"a reload does not undo {KEYS[kind][0]}")
    return Takes(RELOAD, f"dockerd reads {KEYS[kind][0]} when it reloads")


def _process(files: Files, pid_file: str) -> Optional[processes.Process]:
    number = (files.read_optional(pid_file) or "").strip()
    if not number.isdigit() or (files.read_optional(f"/proc/{number}/comm") or "").strip() != "dockerd":
        return None
    return processes.read(files, int(number))


def _words(files: Files, process: Optional[processes.Process]) -> Tuple[unit_command.Word, ...]:
    if process is None:
        return ()
    place = f"/proc/{process.pid}/cmdline"
    return tuple((word, place) for word in (files.read_optional(place) or "").split("\0"))


def _socket(hosts: Any) -> str:
    """The socket among the addresses that the daemon is told to listen on; ``fd://`` is the one of docker.socket."""
    hosts = hosts if isinstance(hosts, (list, tuple)) else ()
    named = [host[len("unix://") :] for host in hosts if isinstance(host, str) and host.startswith("unix://")]
    return next((path for path in named if path), SOCKET)


def _get(values: Mapping[str, Any], name: str) -> Any:
    """A key of a structure of dockerd, which takes it in capitals as well."""
    return next((value for key, value in values.items() if key.lower() == name.lower()), None)


def _object(values: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    found = values.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _wrong(path, key, "is no object")
    return found


def _text(values: Mapping[str, Any], key: str, path: str) -> str:
    found = values[key]
    if not isinstance(found, str):
        raise _wrong(path, key, "is no text")
    return found


def _wrong(path: str, key: str, cause: str) -> CannotLook:
    return not_understood(path, f"{key} {cause}")


KIND = Docker()
