# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of network interfaces in the files of those that bring interfaces up, as the commands that they amount
to: the arguments that ethtool(8) or ip-link(8) would get.

- udev: systemd.link(5), as soon as the interface appears. udev notes which file it took.
- systemd-networkd: systemd.network(5). NetworkManager: nm-settings-keyfile(5), and ifcfg files of its plugin ifcfg-rh.
  Both note in /run which file they took for each interface.
- ifupdown: interfaces(5), with the options of /etc/network/if-up.d/ethtool of Debian's package ethtool.
- The scripts of RHEL (sysconfig.txt of initscripts) and wicked (ifcfg(5)).
- tuned: its plugin net.
- Scripts that NetworkManager (NetworkManager-dispatcher(8)) and ifupdown run for each interface.

What one of them would do only under conditions that these files do not answer is in doubt.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .._core.regex import regex
from .._core.value import replace
from . import systemd, tuned
from .dropins import walk_files
from .shell_writes import ShellWrite, read_script
from .systemd import NETWORK_FOLDERS

if TYPE_CHECKING:
    from .._core.protocols import Files

UDEV, NETWORKD, NETWORK_MANAGER = "systemd.link", "systemd-networkd", "NetworkManager"
IFUPDOWN, NETWORK_SCRIPTS, WICKED, TUNED = "ifupdown", "network-scripts", "wicked", "tuned"
LASTING = (NETWORKD, NETWORK_MANAGER, IFUPDOWN, NETWORK_SCRIPTS, WICKED, TUNED)
"""Those that set it again whenever they bring the interface up, or start."""
ETHTOOL, IP = "ethtool", "ip"
NET = "/sys/class/net"

NETWORKD_LINKS = "/run/systemd/netif/links"
UDEV_DATA = "/run/udev/data"
MANAGER_RUNS, MANAGER_DEVICES = "/run/NetworkManager", "/run/NetworkManager/devices"
MANAGER_PROFILES = tuple(f"{top}/NetworkManager/system-connections" for top in ("/etc", "/run", "/usr/lib"))
# NetworkManager.conf(5); what is read later counts.
MANAGER_MAIN = "/etc/NetworkManager/NetworkManager.conf"
MANAGER_FOLDERS = tuple(f"{top}/NetworkManager/conf.d" for top in ("/etc", "/run", "/usr/lib"))
# What is in pre-down.d runs when an interface goes down.
MANAGER_HOOKS = tuple(
    tuple(f"{top}/NetworkManager/dispatcher.d{below}" for top in ("/etc", "/usr/lib"))
    for below in ("", "/pre-up.d", "/no-wait.d")
)
# Of Debian's package network-manager: it runs the scripts of ifupdown for the interfaces of NetworkManager too.
MANAGER_RUNS_HOOKS = "/etc/NetworkManager/dispatcher.d/01-ifupdown"
WICKED_UNITS, WICKED_RUNS = ("wicked.service", "wickedd.service"), "/run/wicked"
SCRIPTS_FOLDER, WICKED_FOLDER = "/etc/sysconfig/network-scripts", "/etc/sysconfig/network"
IFUPDOWN_STATE = "/run/network/ifstate"
IFUPDOWN_FILES, IFUPDOWN_FOLDER = "/etc/network/interfaces", "/etc/network/interfaces.d"
IFUPDOWN_ETHTOOL = "/etc/network/if-up.d/ethtool"
IFUPDOWN_PRE_UP, IFUPDOWN_UP = "/etc/network/if-pre-up.d", "/etc/network/if-up.d"
# Of Debian's packages bridge-utils, ethtool, ifenslave and vlan (which has ip): they do what options in interfaces(5)
# say, and nothing without.
_HOOKS_OF_PACKAGES = ("bridge", "ethtool", "ifenslave", "ip", "vlan")

# The prefixes of options of the profiles of NetworkManager and of ifupdown, with the option of ethtool.
_OF_PROFILE = {"ring-": "-G", "channels-": "-L", "coalesce-": "-C", "pause-": "-A", "feature-": "-K"}
_OF_IFUPDOWN = {
    "hardware-dma-ring-": "-G",
    "hardware-irq-coalesce-": "-C",
    "ethernet-pause-": "-A",
    "offload-": "-K",
}
# tuned/plugins/plugin_net.py: context2opt.
_OF_TUNED = {"ring": "-G", "channels": "-L", "coalesce": "-C", "pause": "-A", "features": "-K"}
# Of ETHTOOL_OPTS NetworkManager takes these: _get_ethtool_type_by_name of nms-ifcfg-rh-reader.c.
_MANAGER_TAKES = ("-A", "-C", "-G", "-K", "--pause", "--coalesce", "--set-ring", "--features", "--offload")
# systemd.link(5), and the features by netdev_feature_table of src/shared/ethtool-util.c.
_OF_LINK: Mapping[str, Tuple[str, str]] = {
    "RxBufferSize": ("-G", "rx"),
    "TxBufferSize": ("-G", "tx"),
    "RxChannels": ("-L", "rx"),
    "TxChannels": ("-L", "tx"),
    "CombinedChannels": ("-L", "combined"),
    "UseAdaptiveRxCoalesce": ("-C", "adaptive-rx"),
    "UseAdaptiveTxCoalesce": ("-C", "adaptive-tx"),
    "RxCoalesceSec": ("-C", "rx-usecs"),
    "TxCoalesceSec": ("-C", "tx-usecs"),
    "RxMaxCoalescedFrames": ("-C", "rx-frames"),
    "TxMaxCoalescedFrames": ("-C", "tx-frames"),
    "RxFlowControl": ("-A", "rx"),
    "TxFlowControl": ("-A", "tx"),
    "AutoNegotiationFlowControl": ("-A", "autoneg"),
    "ReceiveChecksumOffload": ("-K", "rx"),
    "TransmitChecksumOffload": ("-K", "tx"),
    "TCPSegmentationOffload": ("-K", "tx-tcp-segmentation"),
    "TCP6SegmentationOffload": ("-K", "tx-tcp6-segmentation"),
    "GenericSegmentationOffload": ("-K", "gso"),
    "GenericReceiveOffload": ("-K", "gro"),
    "GenericReceiveOffloadHardware": ("-K", "rx-gro-hw"),
    "LargeReceiveOffload": ("-K", "lro"),
    "ReceiveVLANCTAGHardwareAcceleration": ("-K", "rxvlan"),
    "TransmitVLANCTAGHardwareAcceleration": ("-K", "txvlan"),
    "ReceiveVLANCTAGFilter": ("-K", "rx-vlan-filter"),
    "TransmitVLANSTAGHardwareAcceleration": ("-K", "tx-vlan-stag-hw-insert"),
    "NTupleFilter": ("-K", "ntuple"),
}
# What these take is on or off.
_SWITCHES = ("-A", "-K")
_MTU_OF_PROFILE = (("ethernet", "mtu"), ("802-3-ethernet", "mtu"), ("infiniband", "mtu"))
_BYTES = regex(r"([0-9]{1,9})([KMG]?)")
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
# systemd.time(7); a number alone counts seconds. Python makes no number of thousands of digits.
_SPAN = regex(r"([0-9]{1,18}) ?(us|ms|s|)")
_MICROSECONDS = {"us": 1, "ms": 1000, "s": 1000000, "": 1000000}
_ASSIGNMENT = regex(r"\s*([A-Za-z0-9_.-]+)\s*=\s*[\"']?([^\"']*?)[\"']?\s*")
# functions of initscripts: __sed_discard_ignored_files.
_IGNORED = (".bak", ".old", ".orig", ".rpmnew", ".rpmorig", ".rpmsave", "~")
_STANZAS = ("iface", "auto", "mapping", "source", "source-directory", "rename", "no-auto-down", "no-scripts")

Found = Iterator[Tuple[str, str, ShellWrite]]
"""Owner, file, and the command by its line."""
Line = Tuple[int, str, str, str]
"""Of an assignment: number, section, key and value."""
Active = Sequence[Tuple[str, str]]
"""The profiles that NetworkManager took, each with the name of the interface. One may be in effect on several."""


class NetworkReader:
    def __init__(self, files: Files, units: systemd.UnitFiles) -> None:
        self._files, self._units = files, units
        self._by_index: Optional[Dict[str, str]] = None

    def read(self) -> Found:
        yield from self._of_udev()
        yield from self._of_networkd()
        yield from self._of_ifupdown()
        if self._runs(f"{NETWORK_MANAGER}.service") or self._files.is_folder(MANAGER_RUNS):
            yield from self._of_manager()
        yield from self._of_ifcfg()
        yield from self._of_tuned()

    def _text(self, path: str) -> str:
        return self._files.read_optional(path) or ""

    def _runs(self, unit: str) -> bool:
        return self._units.status(unit) == systemd.ENABLED

    @property
    def _indices(self) -> Mapping[str, str]:
        """The interfaces by their index."""
        if self._by_index is None:
            paths = {name: f"{NET}/{name}/ifindex" for name in self._files.names(NET)}
            found = {(self._files.read_optional(path) or "").strip(): name for name, path in paths.items()}
            self._by_index = {index: name for index, name in found.items() if index}
        return self._by_index

    def _of_udev(self) -> Found:
        by_path = {}
        for path in walk_files(self._files, NETWORK_FOLDERS, ".link"):
            lines = [(place, *line) for place in self._with_drop_ins(path) for line in sections(self._text(place))]
            by_path[path] = [one for one in lines if one[2] == "Link" and (one[3] in _OF_LINK or one[3] == "MTUBytes")]
        if not any(by_path.values()):
            return
        for index, name in self._indices.items():
            said = dict(line.partition("=")[::2] for line in self._text(f"{UDEV_DATA}/n{index}").splitlines())
            # Where /lib is a link, udev calls it as it found it.
            taken = said.get("E:ID_NET_LINK_FILE", "")
            for path in (taken, f"/usr{taken}"):
                for place, number, _section, key, value in by_path.get(path, ()):
                    yield from ((UDEV, place, one) for one in _of_link_key(name, number, key, value))

    def _with_drop_ins(self, path: str) -> Tuple[str, ...]:
        """A file of systemd.link(5) or systemd.network(5), and its drop-ins."""
        base = path.rpartition("/")[2]
        folders = [f"{folder}/{base}.d" for folder in NETWORK_FOLDERS if f"{base}.d" in self._files.names(folder)]
        return (path, *walk_files(self._files, folders, ".conf"))

    def _of_networkd(self) -> Found:
        by_path = {}
        for path in walk_files(self._files, NETWORK_FOLDERS, ".network"):
            lines = [(place, *line) for place in self._with_drop_ins(path) for line in sections(self._text(place))]
            by_path[path] = [one for one in lines if one[2:4] == ("Link", "MTUBytes")]
        if not any(by_path.values()):
            return
        for index in self._files.names(NETWORKD_LINKS):
            said = dict(assignments(self._text(f"{NETWORKD_LINKS}/{index}")))
            name = self._indices.get(index)
            if name is None or said.get("ADMIN_STATE") == "unmanaged":
                continue
            for place, number, _section, _key, value in by_path.get(said.get("NETWORK_FILE", ""), ()):
                yield from ((NETWORKD, place, one) for one in _mtu(name, number, value))

    def _of_manager(self) -> Found:
        active = self._active()
        for path in (MANAGER_MAIN, *self._files_in(MANAGER_FOLDERS, ".conf")):
            lines = tuple(sections(self._text(path)))
            if any((section, key) == ("connection", "match-device") for _number, section, key, _value in lines):
                continue
            for number, section, key, value in lines:
                if (section, key) == ("connection", "ethernet.mtu"):
                    commands = (one for _uuid, name in active for one in _mtu(name, number, value))
                    yield from ((NETWORK_MANAGER, path, one) for one in commands)
        for folder in MANAGER_PROFILES:
            for entry in self._files.names(folder):
                yield from self._of_profile(f"{folder}/{entry}", active)
        yield from self._of_manager_hooks(active)

    def _of_manager_hooks(self, active: Active) -> Found:
        # A script in no-wait.d has a link to it beside that folder.
        by_place: Dict[str, str] = {}
        for folders in MANAGER_HOOKS:
            for path in self._files_in(folders, ""):
                by_place.setdefault(self._files.resolve(path), path)
        for path in by_place.values():
            yield from _hook(NETWORK_MANAGER, path, self._text(path))
        if MANAGER_RUNS_HOOKS in by_place.values():
            yield from self._of_hooks(NETWORK_MANAGER, IFUPDOWN_UP, [name for _uuid, name in active])

    def _active(self) -> Active:
        found = []
        for index in self._files.names(MANAGER_DEVICES):
            uuid = dict(assignments(self._text(f"{MANAGER_DEVICES}/{index}"))).get("connection-uuid", "")
            if uuid and index in self._indices:
                found.append((uuid, self._indices[index]))
        return found

    def _of_profile(self, path: str, active: Active) -> Found:
        lines = tuple(sections(self._text(path)))
        commands = [line for line in lines if line[1] == "ethtool" or line[1:3] in _MTU_OF_PROFILE]
        if not commands:
            return
        said = {(section, key): value for _number, section, key, value in lines}
        names = [name for uuid, name in active if uuid == said.get(("connection", "uuid"))]
        in_doubt = not names
        if in_doubt:
            named = said.get(("connection", "interface-name"), "")
            names = [named] if named and said.get(("connection", "autoconnect")) != "false" else []
        for number, _section, key, value in commands:
            for name in names:
                found = _of_profile_key(name, number, key, value, in_doubt=in_doubt)
                yield from ((NETWORK_MANAGER, path, one) for one in found)

    def _of_ifupdown(self) -> Found:
        state = self._text(IFUPDOWN_STATE)
        if not state and not self._runs("networking.service"):
            return
        up = [line.partition("=")[0] for line in state.splitlines() if line]
        paths = (IFUPDOWN_FILES, *(f"{IFUPDOWN_FOLDER}/{name}" for name in self._files.names(IFUPDOWN_FOLDER)))
        texts = {path: self._text(path) for path in paths}
        automatic = [
            name
            for text in texts.values()
            for words in map(str.split, text.splitlines())
            if words and (words[0] == "auto" or words[0].startswith("allow-"))
            for name in words[1:]
        ]
        has_options = bool(self._text(IFUPDOWN_ETHTOOL))
        for path, text in texts.items():
            for name, command in _stanzas(text, has_options=has_options):
                if name in up or name in automatic:
                    in_doubt = command.in_doubt or name not in up
                    yield IFUPDOWN, path, _doubted(command) if in_doubt else command
        for folder in (IFUPDOWN_PRE_UP, IFUPDOWN_UP):
            yield from self._of_hooks(IFUPDOWN, folder, (*up, *automatic))

    def _of_hooks(self, owner: str, folder: str, interfaces: Sequence[str]) -> Found:
        """The scripts of ifupdown, which run for these interfaces alone."""
        for entry in self._files.names(folder) if interfaces else ():
            if entry not in _HOOKS_OF_PACKAGES:
                path = f"{folder}/{entry}"
                text = self._text(path)
                found = (one for name in interfaces for one in _hook(owner, path, text, {"IFACE": name}))
                # What it does whatever the interface is, it does once.
                yield from dict.fromkeys(found)

    def _of_ifcfg(self) -> Found:
        entries = [entry for entry in self._files.names(SCRIPTS_FOLDER) if _is_ifcfg(entry)]
        if entries:
            by_manager = self._files.is_folder(MANAGER_RUNS) or self._runs(f"{NETWORK_MANAGER}.service")
            by_scripts = self._runs("network.service") or any(
                name.startswith("S") and name.endswith("network") for name in self._files.names("/etc/rc.d/rc3.d")
            )
            active = self._active() if by_manager else ()
            for entry in entries:
                path = f"{SCRIPTS_FOLDER}/{entry}"
                lines = tuple(sections(self._text(path)))
                if by_manager:
                    yield from _of_manager_ifcfg(path, lines, active)
                if by_scripts:
                    yield from _of_network_scripts(path, lines)
        entries = [entry for entry in self._files.names(WICKED_FOLDER) if _is_ifcfg(entry)]
        if entries and (self._files.is_folder(WICKED_RUNS) or any(map(self._runs, WICKED_UNITS))):
            for entry in entries:
                path = f"{WICKED_FOLDER}/{entry}"
                yield from _of_wicked(path, entry[len("ifcfg-") :], tuple(sections(self._text(path))))

    def _of_tuned(self) -> Found:
        options = [option for option in tuned.read_active(self._files) if option.plugin == "net"]
        filtered = {option.section for option in options if option.key == "devices_udev_regex"}
        for option in options:
            if option.key not in _OF_TUNED and option.key != "mtu":
                continue
            for name in self._cards(option.devices):
                in_doubt = option.section in filtered or "$" in option.value
                for command in _of_tuned_key(name, option.line, option.key, option.value):
                    yield TUNED, option.path, _doubted(command) if in_doubt else command

    def _cards(self, devices: str) -> List[str]:
        """The interfaces that a section of tuned is for. The plugin leaves out those that software makes."""
        patterns = devices.replace(",", " ").split()
        without = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
        named = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
        return [
            name
            for name in self._files.names(NET)
            if "/virtual/" not in self._files.resolve(f"{NET}/{name}")
            and any(fnmatchcase(name, pattern) for pattern in named)
            and not any(fnmatchcase(name, pattern) for pattern in without)
        ]

    def _files_in(self, folders: Sequence[str], suffix: str) -> Iterator[str]:
        return walk_files(self._files, folders, suffix)


Commands = Iterator[ShellWrite]


def _mtu(name: str, number: int, value: str, *, in_doubt: bool = False) -> Commands:
    """None where it is left to the network (``0``, ``auto``)."""
    size = _BYTES.fullmatch(value)
    mtu = int(size[1]) * _UNITS[size[2]] if size else 0
    if mtu:
        yield ShellWrite(number, IP, None, in_doubt, ("link", "set", "dev", name, "mtu", str(mtu)))


def _ethtool(number: int, *arguments: str, in_doubt: bool = False) -> ShellWrite:
    return ShellWrite(number, ETHTOOL, None, in_doubt, arguments)


def _doubted(command: ShellWrite) -> ShellWrite:
    return replace(command, in_doubt=True)


def _of_link_key(name: str, number: int, key: str, value: str) -> Commands:
    if key == "MTUBytes":
        yield from _mtu(name, number, value)
        return
    option, word = _OF_LINK[key]
    if _is_switch(option, word):
        value = _switch(value)
    elif key.endswith("Sec"):
        span = _SPAN.fullmatch(value)
        value = str(int(span[1]) * _MICROSECONDS[span[2]]) if span else "*"
    yield _ethtool(number, option, name, word, value)


def _of_profile_key(name: str, number: int, key: str, value: str, *, in_doubt: bool) -> Commands:
    if key == "mtu":
        yield from _mtu(name, number, value, in_doubt=in_doubt)
    for prefix, option in _OF_PROFILE.items():
        if key.startswith(prefix):
            word = key[len(prefix) :]
            said = _switch(value) if _is_switch(option, word) else value
            yield _ethtool(number, option, name, word, said, in_doubt=in_doubt)


def _of_tuned_key(name: str, number: int, key: str, value: str) -> Commands:
    """_parse_config_parameters of tuned: blanks, colons, commas and semicolons divide."""
    if key == "mtu":
        yield from _mtu(name, number, value)
    else:
        words = value.replace(":", " ").replace(";", " ").replace(",", " ").split()
        yield _ethtool(number, _OF_TUNED[key], name, *words)


def _is_switch(option: str, word: str) -> bool:
    return option in _SWITCHES or word.startswith("adaptive-")


def _switch(value: str) -> str:
    return "on" if value.lower() in systemd.TRUE else "off"


def _stanzas(text: str, *, has_options: bool) -> Iterator[Tuple[str, ShellWrite]]:
    """The commands for the interfaces of interfaces(5). ``has_options``: the package ethtool adds its own."""
    name = ""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] in _STANZAS or words[0].startswith("allow-"):
            name = words[1] if words[0] == "iface" and len(words) > 1 else ""
            continue
        key, rest = words[0].replace("_", "-"), " ".join(words[1:])
        if not name:
            continue
        if key == "mtu":
            yield from ((name, one) for one in _mtu(name, number, rest))
        elif key in ("up", "pre-up", "post-up"):
            for found in read_script(rest, {"IFACE": name}):
                yield name, replace(found, number=number)
        elif has_options:
            for prefix, option in _OF_IFUPDOWN.items():
                if key.startswith(prefix):
                    yield name, _ethtool(number, option, name, key[len(prefix) :], rest)


def _hook(owner: str, path: str, text: str, variables: Optional[Mapping[str, str]] = None) -> Found:
    """A script that is run for each interface, which it gets as an argument or in its environment."""
    if text.startswith("#!"):
        yield from ((owner, path, _doubted(found)) for found in read_script(text, variables))


def _is_ifcfg(entry: str) -> bool:
    return entry.startswith("ifcfg-") and not entry.endswith(_IGNORED)


def _device(path: str, said: Mapping[str, str]) -> str:
    return said.get("DEVICE") or path.rpartition("/ifcfg-")[2]


def _of_manager_ifcfg(path: str, lines: Sequence[Line], active: Active) -> Found:
    said = {key: value for _number, _section, key, value in lines}
    if said.get("NM_CONTROLLED", "").lower() == "no":
        return
    names = [name for uuid, name in active if uuid == said.get("UUID")]
    in_doubt = not names
    if in_doubt:
        # A file without an identity gets one that nothing here knows.
        names = [_device(path, said)] if said.get("ONBOOT", "yes").lower() != "no" else []
    for number, _section, key, value in lines:
        for name in names:
            if key == "MTU":
                yield from ((NETWORK_MANAGER, path, one) for one in _mtu(name, number, value, in_doubt=in_doubt))
            for words in _options(value, name) if key == "ETHTOOL_OPTS" else ():
                if words[0] in _MANAGER_TAKES:
                    yield NETWORK_MANAGER, path, _ethtool(number, words[0], name, *words[2:], in_doubt=in_doubt)


def _of_network_scripts(path: str, lines: Sequence[Line]) -> Found:
    """ifup-eth and ethtool_set of network-functions."""
    said = {key: value for _number, _section, key, value in lines}
    name = _device(path, said)
    in_doubt = said.get("ONBOOT", "yes").lower() == "no"
    for number, _section, key, value in lines:
        if key == "MTU":
            yield from ((NETWORK_SCRIPTS, path, one) for one in _mtu(name, number, value, in_doubt=in_doubt))
        for words in _options(value, name) if key == "ETHTOOL_OPTS" else ():
            yield NETWORK_SCRIPTS, path, _ethtool(number, *words, in_doubt=in_doubt)


def _options(value: str, name: str) -> Iterator[List[str]]:
    """The calls of ethtool in ETHTOOL_OPTS that have an option; the others are about speed and wake-on-LAN."""
    for variable in ("${DEVICE}", "$DEVICE", "${REALDEVICE}", "$REALDEVICE"):
        value = value.replace(variable, name)
    yield from (words for words in map(str.split, value.split(";")) if len(words) > 2 and words[0].startswith("-"))


def _of_wicked(path: str, name: str, lines: Sequence[Line]) -> Found:
    """``ETHTOOL_OPTIONS`` with any suffix; the second word stands for the interface: try_add_ethtool_vars."""
    said = {key: value for _number, _section, key, value in lines}
    in_doubt = said.get("STARTMODE", "auto") in ("off", "manual")
    for number, _section, key, value in lines:
        words = value.split()
        if key == "MTU":
            yield from ((WICKED, path, one) for one in _mtu(name, number, value, in_doubt=in_doubt))
        elif key.startswith("ETHTOOL_OPTIONS") and len(words) > 2 and words[0].startswith("-"):
            yield WICKED, path, _ethtool(number, words[0], name, *words[2:], in_doubt=in_doubt)


def assignments(text: str) -> Iterator[Tuple[str, str]]:
    for line in text.splitlines():
        found = _ASSIGNMENT.fullmatch(line)
        if found:
            yield found[1], found[2]


def sections(text: str) -> Iterator[Line]:
    """The assignments of a file by line."""
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare.startswith("[") and bare.endswith("]"):
            section = bare[1:-1]
            continue
        found = None if bare.startswith(("#", ";")) else _ASSIGNMENT.fullmatch(bare)
        if found:
            yield number, section, found[1], found[2]
