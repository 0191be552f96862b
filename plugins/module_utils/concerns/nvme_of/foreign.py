# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other owners that connect, disconnect or set declared subsystems at boot: nvme-cli, nvme-stas, and writes to sysfs.

The options of nvme-cli are those of its fabrics.c (2.13), those of nvme-stas of its staslib/conf.py (2.4). The kernel
refuses to connect what is connected already (nvmf_ctlr_matches_baseopts of drivers/nvme/host/fabrics.h), so of two who
connect the same, the numbers of the first stay.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import THEM, US, WINNER_UNKNOWN
from ..._core.value import frozen
from ..._kinds.boot_order import last_word
from ..._kinds.foreign_values import ForeignValue
from ..._linux import boot_writers, systemd
from .rows import CONNECTED, CONNECTION
from .spec import DISCOVERY, NUMBERS, POLICY, name_of, one_form

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._linux.boot_writers import BootWrite
    from .spec import Connection, Key

PROGRAM = "nvme"
STACD, STAFD = "stacd.service", "stafd.service"
STACD_CONF = "/etc/stas/stacd.conf"
DISCOVERY_CONF, CONFIG_JSON = "/etc/nvme/discovery.conf", "/etc/nvme/config.json"
DISCONNECTED = "disconnected"
# What ends in these are files of controllers and of subsystems.
DELETE, IO_POLICY = "/delete_controller", "/iopolicy"
_SHORT = {
    "t": "transport",
    "n": "nqn",
    "a": "traddr",
    "s": "trsvcid",
    "w": "host_traddr",
    "f": "host_iface",
    "q": "hostnqn",
    "I": "hostid",
    "i": "nr_io_queues",
    "Q": "queue_size",
    "k": "keep_alive_tmo",
    "c": "reconnect_delay",
    "l": "ctrl_loss_tmo",
    "F": "fast_io_fail_tmo",
}
_SHORT_OF = {"disconnect": {"n": "nqn", "d": "device"}, "disconnect-all": {"r": "transport"}}
# drivers/nvme/host/fabrics.h, and NVME_DEFAULT_KATO of nvme.h. The number of queues goes by the CPUs.
_DEFAULTS = {"queue_size": "128", "keep_alive_seconds": "5", "reconnect_seconds": "10", "loss_seconds": "600"}
_PORT, _DISCOVERY_PORT = "4420", "8009"
_SCOPE, _ALL = "disconnect-scope", "all-connections-matching-disconnect-trtypes"


@frozen
class _Effect:
    """An effect on a connection. ``numbers`` are those that it is made with, None where they are not known."""

    key: Key
    value: str
    in_doubt: bool
    numbers: Optional[Mapping[str, str]] = None


@frozen
class _Line:
    owner: str
    path: str
    line: Optional[int]


def find(
    files: Files, connections: Sequence[Connection], policies: Mapping[str, str], *, carrier: str
) -> Tuple[ForeignValue, ...]:
    """All of it, without what a later line of the same owner undoes for certain.

    ``carrier`` is the unit that connects at boot what is declared, empty where none does.
    """
    found = _Found(files, connections, carrier)
    for one in boot_writers.read(files):
        if one.target == PROGRAM:
            for effect in _of_command(files, one, [known.key for known in connections]):
                found.add(_Line(one.owner, one.path, one.line), effect)
        elif one.target.endswith(DELETE):
            for effect in _of_delete(one, [known.key for known in connections]):
                found.add(_Line(one.owner, one.path, one.line), effect)
        elif one.target.endswith(IO_POLICY):
            found.add_policy(one, policies)
    if systemd.enabled(files, STACD) == systemd.ENABLED:
        _Stacd(files).add_to(found)
    return tuple(found.values)


class _Found:
    def __init__(self, files: Files, connections: Sequence[Connection], carrier: str) -> None:
        self._files = files
        self.connections = connections
        self._carrier = carrier
        self._order: Dict[str, str] = {}
        self.values: List[ForeignValue] = []

    def add(self, line: _Line, effect: _Effect, *, wins: str = "") -> None:
        """``wins`` is given where the order of the units does not matter."""
        name = name_of(effect.key)
        order = wins or self._wins(line.owner)
        connected = effect.value == CONNECTED
        self._put(line, name, CONNECTION, effect.value, WINNER_UNKNOWN if effect.in_doubt else order)
        numbers = next(one.numbers for one in self.connections if one.key == effect.key)
        first = {THEM: US, US: THEM}.get(order, order) if self._carrier else order
        for setting in numbers if connected else ():
            value = None if effect.numbers is None else effect.numbers.get(setting, _DEFAULTS.get(setting))
            unknown = effect.in_doubt or effect.numbers is None or "*" in (value or "")
            self._put(line, name, setting, value, WINNER_UNKNOWN if unknown else first)

    def add_policy(self, one: BootWrite, policies: Mapping[str, str]) -> None:
        # Their numbers go by the order in which they are found.
        is_any = fnmatchcase("nvme-subsys", one.target.split("/")[-2])
        wins = self._wins(one.owner) if is_any and not one.in_doubt and one.value else WINNER_UNKNOWN
        for nqn in policies:
            self._put(_Line(one.owner, one.path, one.line), nqn, POLICY, one.value, wins)

    def _put(self, line: _Line, name: str, setting: str, value: Optional[str], wins: str) -> None:
        about = (line.owner, name, setting)
        if wins != WINNER_UNKNOWN:
            self.values = [one for one in self.values if (one.owner, one.object, one.setting) != about]
        self.values.append(ForeignValue(line.owner, line.path, line.line, name, setting, value, wins))

    def _wins(self, owner: str) -> str:
        if owner not in self._order:
            self._order[owner] = last_word(self._files, owner, self._carrier)
        return self._order[owner]


def _of_command(files: Files, one: BootWrite, keys: Sequence[Key]) -> Iterator[_Effect]:
    if not one.arguments:
        return
    command = one.arguments[0]
    options = _options(one.arguments[1:], _SHORT_OF.get(command, _SHORT))
    if command == "connect":
        numbers = _numbers(options)
        for key in keys:
            same = _same(key, options)
            if same is not False:
                yield _Effect(key, CONNECTED, one.in_doubt or same is None, numbers)
    elif command == "connect-all":
        for discovered in _discovers(files, options):
            # What they tell of is only known to the target.
            yield from (_Effect(key, CONNECTED, True, discovered) for key in keys if key[0] != DISCOVERY)
    elif command in _SHORT_OF:
        yield from _disconnected(options, keys, in_doubt=one.in_doubt, is_all=command == "disconnect-all")


def _disconnected(
    options: Mapping[str, str], keys: Sequence[Key], *, in_doubt: bool, is_all: bool
) -> Iterator[_Effect]:
    names = ("transport", 1) if is_all else ("nqn", 0)
    said = options.get(names[0])
    if said is None and not is_all and "device" not in options:
        return
    for key in keys:
        # nvme disconnect-all leaves what is connected through a loop or PCIe (fabrics.c).
        if said is not None and fnmatchcase(key[names[1]], said):
            yield _Effect(key, DISCONNECTED, in_doubt or "*" in said)
        elif said is None:
            # The number of a device goes by the order in which it is found.
            yield _Effect(key, DISCONNECTED, in_doubt or not is_all)


def _discovers(files: Files, options: Mapping[str, str]) -> Iterator[Optional[Mapping[str, str]]]:
    """The numbers of what ``nvme connect-all`` connects, by discovery controller."""
    if options.get("transport") or options.get("traddr"):
        yield _numbers(options)
        return
    if '"traddr"' in (files.read_optional(CONFIG_JSON) or ""):
        yield None
    for line in (files.read_optional(DISCOVERY_CONF) or "").splitlines():
        if line and line[0] != "#":
            said = {**options, **_options(re.split(r"[ =]", line), _SHORT)}
            if said.get("transport") or said.get("traddr"):
                yield _numbers(said)


def _of_delete(one: BootWrite, keys: Sequence[Key]) -> Iterator[_Effect]:
    device = one.target.split("/")[-2]
    if one.target.startswith("/sys/") and one.value != "":
        for key in keys:
            yield _Effect(key, DISCONNECTED, one.in_doubt or device not in ("*", "nvme*"))


def _options(words: Sequence[str], short: Mapping[str, str]) -> Dict[str, str]:
    """The options by their long names, as the kernel writes these."""
    found: Dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
        elif word[:1] == "-" and len(word) > 1:
            name, equals, value = short.get(word[1], word[1]), word[2:], word[2:].lstrip("=")
        else:
            continue
        if not equals and rest and (rest[0][:1] != "-" or rest[0][1:].isdecimal()):
            value = rest.pop(0)
        found[name] = value
    return found


def _numbers(options: Mapping[str, str]) -> Dict[str, str]:
    return {name: options[known.name] for name, known in NUMBERS.items() if options.get(known.name)}


def _same(key: Key, options: Mapping[str, str]) -> Optional[bool]:
    """Whether these options mean a connection; None where that is not known here."""
    default = _DISCOVERY_PORT if key[0] == DISCOVERY and key[1] == "tcp" else _PORT
    said = (
        (key[0], options.get("nqn", "")),
        (key[1], options.get("transport", "")),
        (key[2], options.get("traddr", "")),
        (key[3], options.get("trsvcid") or (default if key[2] else "")),
        (key[4], options.get("host_traddr") or key[4]),
        (key[5], options.get("host_iface") or key[5]),
    )
    verdict: Optional[bool] = True
    for number, (known, text) in enumerate(said):
        if known == text or (number in (2, 4) and one_form(text) == known):
            continue
        is_name = number == 2 and text and not one_form(text)
        if not (is_name or ("*" in text and fnmatchcase(known, text))):
            return False
        verdict = None
    return verdict


class _Stacd:
    """stacd of nvme-stas: it connects what its file has and what stafd finds, and may end what is not among these."""

    def __init__(self, files: Files) -> None:
        self._finds_more = systemd.enabled(files, STAFD) == systemd.ENABLED
        self._numbers: Dict[str, str] = {}
        self._scope = self._transports = ""
        self._scope_line: Optional[int] = None
        self._controllers: List[Tuple[int, Dict[str, str]]] = []
        for number, text in enumerate((files.read_optional(STACD_CONF) or "").splitlines(), 1):
            name, equals, value = (part.strip() for part in text.partition("="))
            if equals and not name.startswith(("#", ";")):
                self._take(number, name, value.partition(" #")[0].strip())

    def _take(self, number: int, name: str, value: str) -> None:
        if name == "controller":
            pairs = (pair.partition("=") for pair in re.split(r"[;,]", value))
            self._controllers.append((number, {_by_kernel(key): text.strip() for key, _equals, text in pairs}))
        elif name == _SCOPE:
            self._scope, self._scope_line = value, number
        elif name == "disconnect-trtypes":
            self._transports = value
        else:
            self._numbers[_by_kernel(name)] = value

    def add_to(self, found: _Found) -> None:
        transports = (self._transports or "tcp").split("+")
        for one in found.connections:
            if one.key[0] == DISCOVERY:
                continue
            known = [(line, said) for line, said in self._controllers if _same(one.key, said) is not False]
            for line, said in known:
                numbers = _numbers({**self._numbers, **said})
                in_doubt = _same(one.key, said) is None
                found.add(_Line(STACD, STACD_CONF, line), _Effect(one.key, CONNECTED, in_doubt, numbers))
            if known:
                continue
            if self._finds_more:
                effect = _Effect(one.key, CONNECTED, True, _numbers(self._numbers))
                found.add(_Line(STACD, STACD_CONF, None), effect)
            if self._scope == _ALL and one.key[1] in transports:
                # It looks again whenever something is connected, and keeps what a discovery controller reports.
                effect = _Effect(one.key, DISCONNECTED, self._finds_more)
                found.add(_Line(STACD, STACD_CONF, self._scope_line), effect, wins=THEM)


def _by_kernel(name: str) -> str:
    """An option of nvme-stas, as the kernel writes it."""
    name = name.strip().replace("-", "_")
    return "keep_alive_tmo" if name == "kato" else name
