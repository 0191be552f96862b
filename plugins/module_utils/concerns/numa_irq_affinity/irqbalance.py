# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""irqbalance: whether it runs, what it is told, and what it leaves alone.

It asks its policy scripts about an interrupt once, when it meets it: all of them at its start, others when they appear
(irqbalance(1), ``add_new_irq`` of its classify.c). A script gets the folder of the device in sysfs and the number of
the interrupt. In a folder of scripts the first one that ends with 0 decides, and 1 leaves it to the next. What is
banned is neither balanced nor written. SIGHUP makes it ask anew, but is lost on one that has not scanned yet: only a
new start is sure to let it see another list.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import THEM, Conflict
from ..._core.regex import regex
from ..._core.setting import Setting
from ..._core.value import field, frozen
from ..._kinds import units
from ..._kinds.own_files import OwnFile
from ..._kinds.units import RUNNING, SERVICE, START, STOPPED, UnitFile
from ..._linux import systemd, unit_command
from ..._linux.boot_service import UNIT as BOOT_SERVICE
from ..._machine import processes
from .refusals import policy_script
from .spec import COOPERATE, DISABLE, IGNORE, NAME

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.protocols import Files, Host

PROGRAM = "irqbalance"
UNIT = f"{PROGRAM}.service"
# Drop-ins count in the order of their names: the last ExecStart is ours, made of the one that all others leave.
DROP_IN = f"{systemd.ETC}/{UNIT}.d/zz-gpufleet.conf"
FOLDER = "/etc/gpufleet/irqbalance.d"
SCRIPT_NAME = f"gpufleet-{NAME}"
DEVICES = "/run/gpufleet/irqbalance/devices"
# There while irqbalance may not know the list, so that a run that is killed does not lose that.
UNTOLD = "/run/gpufleet/irqbalance/untold"
PCI_DEVICES = "/sys/bus/pci/devices"
# Among the options of one letter, those that take no value may stand before it in one word.
SHORT_POLICY = regex(r"-[dfjoV]*l(.*)", re.DOTALL)
BANNED_CPUS = ("IRQBALANCE_BANNED_CPULIST", "IRQBALANCE_BANNED_CPUS")

SCRIPT = "policy script"
TEXT = "drop-in"
POLICY = "policy"
LEFT_ALONE = "devices left alone"
NONE = "none"
NOT_TOLD = "another list"
HEADER = f"# Written by gpufleet.node, module {NAME}. A change made here is overwritten by the next run."

SCRIPT_TEXT = f"""\
#!/bin/sh
{HEADER}
#
# irqbalance asks it once for every interrupt: those of the listed devices, one PCI address a line, are left alone.
[ -r {DEVICES} ] || exit 1
while read -r address; do
    if [ "$address" = "${{1##*/}}" ]; then
        echo "ban=true"
        exit 0
    fi
done < {DEVICES}
exit 1
"""


@frozen
class IrqbalanceProcess:
    """The one that runs: its command line, and whether the unit started it."""

    pid: int
    command: Tuple[str, ...]
    by_unit: bool


@frozen
class IrqbalanceDaemon:
    """irqbalance as it is. ``status`` is that of ``systemd.enabled``.

    ``line`` is the ExecStart of its unit without our drop-in, empty where there is not exactly one. ``policy`` is what
    others say where its scripts are, empty where they do not; with ``one_script`` that is a file and no folder.
    ``banned_cpus`` are those that it uses for nothing, as its environment says it. ``scripts`` are our texts by path.
    ``devices`` are the listed ones that are there, None without a list, and ``untold`` says that it may not know them.
    """

    status: str
    process: Optional[IrqbalanceProcess] = None
    line: str = ""
    policy: str = ""
    one_script: bool = False
    banned_cpus: str = ""
    drop_in: UnitFile = UnitFile(DROP_IN, TEXT, None, UNIT)
    scripts: Mapping[str, str] = field(default_factory=dict)
    devices: Optional[Tuple[str, ...]] = None
    untold: bool = False

    @property
    def startable(self) -> bool:
        """Whether its unit is there and not masked."""
        return self.status not in (systemd.NOT_FOUND, systemd.MASKED)

    @property
    def by_unit(self) -> bool:
        return self.process is not None and self.process.by_unit

    @property
    def folder(self) -> str:
        """Where our script belongs: the folder that others named already, or ours."""
        return self.policy or FOLDER

    @property
    def loaded(self) -> str:
        """The scripts that the running process asks; empty where it asks none, or does not run."""
        return policy_of(self.process.command) if self.process else ""


@frozen
class WantedIrqbalance:
    """What it shall be. None for a text or the list means: no such file; ``script`` is a path.

    ``start`` and ``service`` are None where they may be as they are, and so is ``policy``, what a process asks.
    """

    script: Optional[str] = None
    drop_in: Optional[str] = None
    policy: Optional[str] = None
    devices: Optional[Tuple[str, ...]] = None
    start: Optional[str] = None
    service: Optional[str] = None


def observe(host: Host) -> IrqbalanceDaemon:
    files = host.files
    status = systemd.enabled(files, UNIT)
    lines = systemd.unit_lines(files, UNIT, without=DROP_IN)
    environment = unit_command.environment_of(files, UNIT, lines)
    commands = lines.get("Service.ExecStart", ())
    line = commands[0] if len(commands) == 1 else ""
    policy = policy_of([word for word, _place in unit_command.words_of(line, environment, UNIT)])
    scripts = {path: files.read_optional(path) for path in (_script(FOLDER), _script(policy or FOLDER))}
    return IrqbalanceDaemon(
        status=status,
        process=process(files),
        line=line,
        policy=policy,
        one_script=bool(policy) and _is_file(files, policy),
        banned_cpus=next((environment[name][0] for name in BANNED_CPUS if name in environment), ""),
        drop_in=units.unit_file(host, UNIT, DROP_IN, TEXT, files.read_optional(DROP_IN)),
        scripts={path: text for path, text in scripts.items() if text is not None},
        devices=_listed(files),
        untold=files.exists(UNTOLD),
    )


def refuse_impossible(daemon: IrqbalanceDaemon, mode: str) -> None:
    """Raises ``OwnedByAnother`` where it cannot be made to ask our script without taking a script of others away."""
    if mode != COOPERATE or not daemon.startable or (daemon.line and not daemon.one_script):
        return
    raise policy_script(UNIT, daemon.policy if daemon.line else None)


def wanted(
    daemon: IrqbalanceDaemon, mode: str, devices: Sequence[str], baseline: Optional[Baseline]
) -> WantedIrqbalance:
    """What a declaration asks for. ``devices`` are the PCI addresses of those whose interrupts we place.

    What an earlier declaration disabled comes back by ``baseline``, the values from before the first change.
    """
    if mode == DISABLE:
        return WantedIrqbalance(start=systemd.DISABLED, service=STOPPED)
    restored = restore(daemon, baseline)
    if mode == IGNORE or not daemon.startable:
        return restored
    return WantedIrqbalance(
        script=_script(daemon.folder),
        drop_in=_drop_in(daemon),
        policy=daemon.folder,
        devices=tuple(sorted(set(devices))),
        start=restored.start,
        service=restored.service,
    )


def restore(daemon: IrqbalanceDaemon, baseline: Optional[Baseline]) -> WantedIrqbalance:
    """What ``state: absent`` asks for: no file of ours, started as it was before."""
    known = baseline.values if baseline else {}
    start, service = (known.get((UNIT, setting)) for setting in (START, SERVICE))
    return WantedIrqbalance(
        policy=_without_ours(daemon),
        start=systemd.ENABLED if start is not None and start.boot == systemd.ENABLED else None,
        service=RUNNING if service is not None and service.effective == RUNNING else None,
    )


def settings(
    daemon: IrqbalanceDaemon, want: WantedIrqbalance, *, immediate: bool, permanent: bool
) -> Tuple[Setting, ...]:
    """The settings of irqbalance, each where it is there or wanted; none on a machine that has nothing of it."""
    made: List[Setting] = []
    if permanent:
        made += _file_settings(daemon, want, immediate=immediate)
        if daemon.startable:
            start = systemd.ENABLED if daemon.status == systemd.ENABLED else systemd.DISABLED
            made += units.start_row(UNIT, want.start, start)
    if immediate:
        made += _running_settings(daemon, want, comes=permanent)
    return tuple(made)


def conflicts(daemon: IrqbalanceDaemon, mode: str, made: Sequence[Setting]) -> Tuple[Conflict, ...]:
    """A process that writes affinities of its own, and that the settings ``made`` do not bring to reason."""
    running = daemon.process
    if running is None:
        return ()
    changed = {setting.setting for setting in made}
    if mode == COOPERATE and running.by_unit:
        asks = daemon.loaded == daemon.folder or TEXT in changed
        if asks and (_script(daemon.folder) in daemon.scripts or SCRIPT in changed):
            return ()
    if mode == DISABLE and running.by_unit and changed & {SERVICE, START}:
        return ()
    return (Conflict(PROGRAM, f"/proc/{running.pid}", None, PROGRAM, "smp_affinity", " ".join(running.command), THEM),)


def balances(daemon: IrqbalanceDaemon) -> bool:
    """Whether one runs that does not ask our script, and may move every interrupt at any time."""
    return daemon.process is not None and not (daemon.loaded and _script(daemon.loaded) in daemon.scripts)


def report(daemon: IrqbalanceDaemon) -> Dict[str, object]:
    """It in the module's own words."""
    return {
        "running": daemon.process is not None,
        "start_at_boot": daemon.status,
        "policy": daemon.loaded or None,
        "banned_cpus": daemon.banned_cpus or None,
        "devices_left_alone": list(daemon.devices or ()),
    }


def policy_of(words: Sequence[str]) -> str:
    """The script or folder that a command line names; the last one counts, as getopt_long(3) reads it.

    The daemon runs in the root folder.
    """
    found = ""
    for word, following in zip(words, (*words[1:], "")):
        name, equals, value = word.partition("=")
        short = SHORT_POLICY.fullmatch(word)
        if short:
            found = short[1] or following
        elif _is_policy(name):
            found = value if equals else following
    if found and not found.startswith("/"):
        found = f"/{found}"
    return found.rstrip("/") if found != "/" else found


def _is_policy(option: str) -> bool:
    # An option may be cut short; --po could be two.
    return option.startswith("--pol") and "--policyscript".startswith(option)


def _script(folder: str) -> str:
    return f"{folder}/{SCRIPT_NAME}"


def _is_file(files: Files, path: str) -> bool:
    """A folder that is not there yet counts as one: it is made for the script that is put in it."""
    try:
        return files.read_optional(path) is not None
    except IsADirectoryError:
        return False


def _drop_in(daemon: IrqbalanceDaemon) -> str:
    """Started after the boot service, which writes the list first, and again as often as the list changes."""
    lines = [HEADER, "[Unit]", f"After={BOOT_SERVICE}", "StartLimitIntervalSec=0"]
    if not daemon.policy:
        lines += ["[Service]", "ExecStart=", f"ExecStart={daemon.line} --policyscript={FOLDER}"]
    return "".join(f"{line}\n" for line in lines)


def _without_ours(daemon: IrqbalanceDaemon) -> Optional[str]:
    """What a process shall ask that asks ours now; None for one that does not."""
    return (daemon.policy or NONE) if daemon.loaded == FOLDER else None


def _file_settings(daemon: IrqbalanceDaemon, want: WantedIrqbalance, *, immediate: bool) -> List[Setting]:
    made: List[Setting] = []
    for path in sorted({*daemon.scripts, *filter(None, [want.script])}):
        made += OwnFile(path, SCRIPT, daemon.scripts.get(path)).rows(SCRIPT_TEXT if path == want.script else None)
    return [*made, *daemon.drop_in.rows_in(want.drop_in, immediate=immediate, what="its drop-in")]


def _running_settings(daemon: IrqbalanceDaemon, want: WantedIrqbalance, *, comes: bool) -> List[Setting]:
    """``comes``: the files of the next boot come with this run; without them a new start changes no argument."""
    made = []
    service = RUNNING if daemon.process else STOPPED
    if want.service is not None and daemon.startable and (daemon.by_unit or not daemon.process):
        made.append(units.service_row(UNIT, want.service, service))
    arrives = comes or (daemon.drop_in.text is not None and daemon.drop_in.text == want.drop_in)
    if want.policy is not None and daemon.by_unit and want.service != STOPPED and arrives:
        made.append(
            Setting(
                object=UNIT,
                setting=POLICY,
                wanted=want.policy,
                effective=daemon.loaded or NONE,
                boot=None,
                identity=UNIT,
                boot_matters=False,
                pending=daemon.drop_in.pending("its drop-in"),
                needs=systemd.DAEMON_RELOAD,
            )
        )
    if want.devices is not None or daemon.devices is not None or daemon.untold:
        found = NOT_TOLD if daemon.untold else _listing(daemon.devices)
        made.append(Setting(UNIT, LEFT_ALONE, _listing(want.devices), found, None, UNIT, boot_matters=False))
    return made


def _listing(devices: Optional[Sequence[str]]) -> Optional[str]:
    return None if devices is None else " ".join(devices) or NONE


def _listed(files: Files) -> Optional[Tuple[str, ...]]:
    """A device that went away does no harm in the list."""
    text = files.read_optional(DEVICES)
    if text is None:
        return None
    return tuple(address for address in text.split() if files.exists(f"{PCI_DEVICES}/{address}"))


def process(files: Files) -> Optional[IrqbalanceProcess]:
    """The process of the unit, or else the first one of root with this name; its child processes have other names."""
    for pid in processes.of_service(files, UNIT):
        if processes.name_of(files, pid) == PROGRAM:
            return _read_process(files, pid)
    for pid in _user_processes(files):
        if processes.name_of(files, pid) == PROGRAM and processes.is_of_root(files, pid):
            return _read_process(files, pid)
    return None


def _user_processes(files: Files) -> Iterator[str]:
    """Without the threads of the kernel, of which there are a dozen for every CPU."""
    is_kthreadd = processes.name_of(files, "2") == "kthreadd"
    known = frozenset(processes.text_of(files, "2", "task/2/children").split() if is_kthreadd else ())
    return (pid for pid in processes.ids(files) if pid not in known)


def _read_process(files: Files, pid: str) -> IrqbalanceProcess:
    command = processes.text_of(files, pid, "cmdline").rstrip("\0").split("\0")
    return IrqbalanceProcess(int(pid), tuple(command), processes.unit_of(files, pid) == UNIT)
