# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What daemon.json, the command line of dockerd and its answers mean."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from ...._core.errors import CannotLook, OwnedByAnother, Refused, not_understood
from ...._core.record import read_note, texts_of
from ...._core.setting import Scalar
from ...._core.value import field, frozen
from ...._linux import unit_command
from ...._machine import processes
from ..model import (
    CDI,
    DEFAULT_RUNTIME,
    DEFAULT_ULIMITS,
    DOCKER,
    LIVE_RESTORE,
    NOT_KNOWN,
    RUNTIME,
    Configuration,
    SettingName,
    Settings,
    by_text,
    setting_of,
    shown,
)

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host

RUNC = "runc"
# What dockerd brings itself (config.StockRuntimeName, and the shims of containerd since 23.0).
STOCK = (RUNC, "io.containerd.runc.v2", "io.containerd.runtime.v1.linux")
SOCKET = "/run/docker.sock"
PID_FILE = "/run/docker.pid"
SNAP = "snap"
LOADED = "/run/gpufleet/docker.loaded.json"
DATA_ROOT, EXEC_OPTS, SHM_SIZE = SettingName("data_root"), SettingName("exec_opts"), SettingName("default_shm_size")
# The key of daemon.json of each kind of setting; that of a setting with a name is an object by such names.
KEYS: Mapping[str, Tuple[str, ...]] = {
    RUNTIME: ("runtimes",),
    DEFAULT_RUNTIME.kind: ("default-runtime",),
    CDI.kind: ("features", "cdi"),
    LIVE_RESTORE.kind: ("live-restore",),
    DATA_ROOT.kind: ("data-root",),
    EXEC_OPTS.kind: ("exec-opts",),
    SHM_SIZE.kind: ("default-shm-size",),
    DEFAULT_ULIMITS: ("default-ulimits",),
}
# The first version with CDI (``RegisterCDIDriver`` of moby's cmd/dockerd/daemon.go); from 28.2 on it is on by default.
# Earlier ones take any name of a feature, and do nothing about those that they lack.
KNOWS_CDI = (25,)
UNTOLD = (SHM_SIZE.kind, DEFAULT_ULIMITS)
# Options of dockerd by another name than their keys (cmd/dockerd of moby, v19.03.15 to v28.5.2).
OPTIONS = {
    "add-runtime": "runtimes",
    "authorization-plugin": "authorization-plugins",
    "cdi-spec-dir": "cdi-spec-dirs",
    "cluster-store-opt": "cluster-store-opts",
    "default-address-pool": "default-address-pools",
    "default-network-opt": "default-network-opts",
    "default-ulimit": "default-ulimits",
    "dns-opt": "dns-opts",
    "exec-opt": "exec-opts",
    "feature": "features",
    "host": "hosts",
    "insecure-registry": "insecure-registries",
    "label": "labels",
    "log-opt": "log-opts",
    "node-generic-resource": "node-generic-resources",
    "registry-mirror": "registry-mirrors",
    "storage-opt": "storage-opts",
    "b": "bridge",
    "D": "debug",
    "G": "group",
    "g": "graph",
    "H": "hosts",
    "l": "log-level",
    "p": "pidfile",
    "r": "restart",
    "s": "storage-driver",
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
UNITS = "BKMGTP"


@frozen
class ParsedDocker:
    """``values`` is the object that daemon.json holds. ``options`` are those of dockerd's command line by their keys,
    as daemon.json would have them, with the place that they come from. ``process`` is the daemon, where it runs.
    ``refused`` is why dockerd would not start with the file as an entry would change it, where that was asked.
    """

    values: Mapping[str, Any]
    options: Mapping[str, Tuple[Any, str]] = field(default_factory=dict)
    process: Optional[processes.Process] = None
    pid_file: str = PID_FILE
    refused: Optional[Refused] = field(default=None, compare=False)


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


def settings_of(values: Mapping[str, Any], path: str) -> Dict[SettingName, Scalar]:
    """What an object of daemon.json says, by the names of the settings.

    Raises ``CannotLook`` for a value of a kind that dockerd would not take either.
    """
    made: Dict[SettingName, Scalar] = {}
    runtimes = _object(values, "runtimes", path)
    for name in runtimes:
        if name not in STOCK:
            try:
                made[SettingName(RUNTIME, name)] = runtime_text(runtimes[name] or {})
            except ValueError as error:
                raise _wrong(path, f"runtimes.{name}", str(error)) from error
    if values.get("default-runtime") not in (None, ""):
        made[DEFAULT_RUNTIME] = _text(values, "default-runtime", path)
    limits = _object(values, "default-ulimits", path)
    for name in limits:
        soft, hard = (_get(_object(limits, name, path), which) or 0 for which in ("soft", "hard"))
        if not re.fullmatch(r"-?\d+:-?\d+", f"{soft}:{hard}", re.ASCII):
            raise _wrong(path, f"default-ulimits.{name}", "has no number")
        made[SettingName(DEFAULT_ULIMITS, name)] = f"{soft}:{hard}"
    features = _object(values, "features", path)
    for setting, found in ((CDI, features.get("cdi")), (LIVE_RESTORE, values.get("live-restore"))):
        if isinstance(found, bool):
            made[setting] = found
        elif found is not None:
            raise _wrong(path, ".".join(KEYS[setting.kind]), "is neither true nor false")
    if values.get("data-root"):
        made[DATA_ROOT] = _text(values, "data-root", path)
    if values.get("exec-opts"):
        options = values["exec-opts"]
        if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
            raise _wrong(path, "exec-opts", "is not a list of strings")
        made[EXEC_OPTS] = " ".join(options)
    if values.get("default-shm-size") is not None:
        size = bytes_of(_text(values, "default-shm-size", path))
        if size is None:
            raise _wrong(path, "default-shm-size", "is not a size such as 8G")
        made[SHM_SIZE] = size_text(size)
    return made


def runtime_text(runtime: Any) -> str:
    """A runtime as one text: its path, or the shim that containerd shall start (since 23.0), and its arguments.

    With the quotes of a shell, so that what has a blank in it stays one word. Raises ``ValueError`` for what is none.
    """
    if not isinstance(runtime, dict):
        raise ValueError("is not a mapping")
    arguments = _get(runtime, "runtimeArgs") or []
    program = _get(runtime, "path") or _get(runtime, "runtimeType") or ""
    if not isinstance(arguments, list) or not all(isinstance(word, str) for word in (program, *arguments)):
        raise ValueError("has a path that is not a string, or runtimeArgs that are not a list of strings")
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
    parsed: ParsedDocker = configuration.parsed
    for setting, value in made.items():
        key = KEYS[setting.kind][0]
        if key not in parsed.options:
            continue
        differs = value != configuration.settings.get(setting)
        if setting.kind == RUNTIME and not (differs and value is None and setting.name in parsed.options[key][0]):
            continue
        if differs or key in parsed.values:
            path, place = configuration.documents[0].path, parsed.options[key][1]
            raise OwnedByAnother(
                f"set {setting}",
                object=DOCKER,
                cause=f"the command line of dockerd sets it too, from {place}, and with {key} in {path} as well "
                "dockerd would not start",
                found=shown(configuration.settings.get(setting)),
                wanted=shown(value),
                hint="restart docker so that it runs as its unit defines, or stop what starts it with the option"
                if place.startswith("/proc/")
                else f"remove the option from {place}, or the setting from the declaration",
            )


def socket_of(configuration: Configuration) -> str:
    """Where the daemon listens: what the file says of it, or else the command line."""
    hosts = configuration.parsed.values.get("hosts")
    return socket_among(hosts) if hosts else configuration.installation.socket


def ask(host: Host, socket: str) -> Dict[str, Any]:
    """What a daemon that runs says of itself. Raises ``CannotLook`` with what went wrong."""
    try:
        info = json.loads(host.http_get(socket, "/info"))
        if not isinstance(info, dict):
            raise ValueError("its answer is not a mapping")
        for key, kind in ANSWER.items():
            if not isinstance(info.get(key), (kind, type(None))):
                raise ValueError(f"it answers {info[key]!r} as {key}")
        if not info.get("ServerVersion"):
            raise ValueError("its answer has no server version")
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
    return CannotLook("query dockerd", object=socket, cause=cause, hint="see journalctl -u docker")


def reported(files: Files, info: Mapping[str, Any], boot: Settings) -> Dict[SettingName, Scalar]:
    """What GET /info says, in the words of the file where both mean the same."""
    said: Dict[SettingName, Scalar] = {}
    for name, runtime in (info.get("Runtimes") or {}).items():
        if name not in STOCK:
            said[SettingName(RUNTIME, name)] = runtime_text(runtime)
    if info.get("DefaultRuntime"):
        said[DEFAULT_RUNTIME] = info["DefaultRuntime"]
    said[LIVE_RESTORE] = bool(info.get("LiveRestoreEnabled"))
    # The folders are those of the start, and none where CDI was off then; daemons before 25.0 do not have the word.
    said[CDI] = bool(info.get("CDISpecDirs"))
    # With user namespaces the last part is the range of ids.
    root = re.sub(r"/\d+\.\d+$", "", str(info.get("DockerRootDir", "")))
    named = boot.get(DATA_ROOT)
    said[DATA_ROOT] = named if isinstance(named, str) and files.resolve(named) == files.resolve(root) else root
    driver = f"native.cgroupdriver={info.get('CgroupDriver', '')}"
    said[EXEC_OPTS] = boot[EXEC_OPTS] if driver in str(boot.get(EXEC_OPTS)) else driver
    return said


def numbers(version: str) -> Tuple[int, ...]:
    """The first two numbers of a version such as ``20.10.24+dfsg1``, empty for another text."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else ()


def dotted(version: Tuple[int, ...]) -> str:
    """As Docker writes it: until 19.03 a year and its month."""
    return f"{version[0]}.{version[1]:02}" if version < (20,) else f"{version[0]}.{version[1]}"


def untold(files: Files, configuration: Configuration) -> Dict[SettingName, Scalar]:
    """What the daemon has of what it does not tell; ``NOT_KNOWN`` where the file was written after it had read it."""
    parsed: ParsedDocker = configuration.parsed
    now = untold_of(configuration.settings)
    noted = noted_of(files)
    if parsed.process is not None and noted.get("daemon") == parsed.process.identity:
        settings: Dict[SettingName, Scalar] = noted["settings"]
        return settings
    return dict.fromkeys(now, NOT_KNOWN) if is_newer(files, configuration) else now


def is_newer(files: Files, configuration: Configuration) -> bool:
    """Whether the file was written after the daemon had started: dockerd reads it just before it writes its number."""
    return files.modified(configuration.documents[0].path) > files.modified(configuration.parsed.pid_file) > 0


def untold_of(settings: Settings) -> Dict[SettingName, Scalar]:
    return {setting: value for setting, value in settings.items() if setting.kind in UNTOLD}


def note(files: Files, process: processes.Process, settings: Settings) -> None:
    """Note what a daemon has of what it does not tell."""
    document = {"daemon": process.identity, "settings": by_text(settings)}
    files.replace(LOADED, json.dumps(document) + "\n")


def noted_of(files: Files) -> Dict[str, Any]:
    """The daemon that something was noted of, and its settings; nothing where there is no such note."""
    return read_note(files, LOADED, _noted) or {}


def _noted(document: Any) -> Dict[str, Any]:
    settings = texts_of(document["settings"])
    return {"daemon": document["daemon"], "settings": {setting_of(text): value for text, value in settings.items()}}


def socket_among(hosts: Any) -> str:
    """The socket among the addresses that the daemon is told to listen on; ``fd://`` is the one of docker.socket."""
    hosts = hosts if isinstance(hosts, (list, tuple)) else ()
    named = [host[len("unix://") :] for host in hosts if isinstance(host, str) and host.startswith("unix://")]
    return next((path for path in named if path), SOCKET)


def _get(values: Mapping[str, Any], name: str) -> Any:
    """A key of a structure of dockerd, which takes it in any case; of two the last counts, and null is no value.

    So Go decodes JSON (encoding/json). The keys of daemon.json itself are looked up as they are written, and dockerd
    does not start with one that it does not know (``findConfigurationConflicts`` of moby's daemon/config/config.go).
    """
    found = [value for key, value in values.items() if key.lower() == name.lower() and value is not None]
    return found[-1] if found else None


def _object(values: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    found = values.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _wrong(path, key, "is not a mapping")
    return found


def _text(values: Mapping[str, Any], key: str, path: str) -> str:
    found = values[key]
    if not isinstance(found, str):
        raise _wrong(path, key, "is not a string")
    return found


def _wrong(path: str, key: str, cause: str) -> CannotLook:
    return not_understood(path, f"{key} {cause}")
