# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of a network interface, and what is wrong whatever the machine."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NoReturn, Tuple

from ..._core import match
from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._core.setting import Scalar
from ..._core.value import field, frozen

NAME = "nic_settings"
MATCH_KEYS = ("name", "driver", "pci_address", "mac_address", "link_layer")
# Of ``type`` in sysfs, by include/uapi/linux/if_arp.h, in the words of ``link_layer`` in /sys/class/infiniband.
LINK_LAYERS = {"1": "ethernet", "32": "infiniband"}
MTU = "mtu"
FUNCTIONS = "virtual_functions"
OFFLOADS = "offloads"
MAXIMUM = "max"
ON, OFF = "on", "off"
# Below it the kernel removes IPv6 from the interface, and its addresses do not come back: IPV6_MIN_MTU.
SMALLEST_MTU = 1280
# That of the loopback interface; no other takes more.
LARGEST_MTU = 65536
SHORTEST_SECONDS, LONGEST_SECONDS = 30, 3600


@frozen
class EthtoolSetting:
    """A value that ethtool sets: by which option, after which word, and on which line of its output it stands.

    ``form`` says what it takes: ``size`` for a number or ``max``, ``number``, or ``switch`` for on and off.
    """

    group: str
    word: str
    line: str
    form: str


RINGS, CHANNELS, COALESCING, PAUSE, FEATURES = "ring", "channel", "coalescing", "pause", "offload"
# In the order of setting: new channels begin with rings and coalescing of their own.
GROUPS = (CHANNELS, RINGS, COALESCING, PAUSE, FEATURES)
# The options of ethtool(8) that set a group; the same in lower case show it.
SET_OPTIONS = {RINGS: "-G", CHANNELS: "-L", COALESCING: "-C", PAUSE: "-A", FEATURES: "-K"}
ETHTOOL: Mapping[str, EthtoolSetting] = {
    "combined_channels": EthtoolSetting(CHANNELS, "combined", "Combined", "size"),
    "rx_channels": EthtoolSetting(CHANNELS, "rx", "RX", "size"),
    "tx_channels": EthtoolSetting(CHANNELS, "tx", "TX", "size"),
    "rx_ring": EthtoolSetting(RINGS, "rx", "RX", "size"),
    "tx_ring": EthtoolSetting(RINGS, "tx", "TX", "size"),
    "adaptive_rx": EthtoolSetting(COALESCING, "adaptive-rx", "Adaptive RX", "switch"),
    "adaptive_tx": EthtoolSetting(COALESCING, "adaptive-tx", "Adaptive TX", "switch"),
    "rx_usecs": EthtoolSetting(COALESCING, "rx-usecs", "rx-usecs", "number"),
    "tx_usecs": EthtoolSetting(COALESCING, "tx-usecs", "tx-usecs", "number"),
    "rx_frames": EthtoolSetting(COALESCING, "rx-frames", "rx-frames", "number"),
    "tx_frames": EthtoolSetting(COALESCING, "tx-frames", "tx-frames", "number"),
    "pause_autonegotiation": EthtoolSetting(PAUSE, "autoneg", "Autonegotiate", "switch"),
    "rx_pause": EthtoolSetting(PAUSE, "rx", "RX", "switch"),
    "tx_pause": EthtoolSetting(PAUSE, "tx", "TX", "switch"),
}
SETTINGS = (MTU, *ETHTOOL, FUNCTIONS)
# The names of ethtool(8) for features that it shows by longer ones.
SHORT_FEATURES = {
    "rx": "rx-checksumming",
    "tx": "tx-checksumming",
    "sg": "scatter-gather",
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "lro": "large-receive-offload",
    "rxvlan": "rx-vlan-offload",
    "txvlan": "tx-vlan-offload",
    "ntuple": "ntuple-filters",
    "rxhash": "receive-hashing",
}
_FEATURE = regex(r"[a-z0-9][a-z0-9_-]{0,63}")
_NAME = regex(r"[^\s/:\"\\]+")
_SIZE = regex(r"[0-9]{1,9}")


@frozen
class InterfaceEntry:
    """One entry of ``interfaces``: what it matches, the declared settings, and the addresses that are to be reached.

    A setting is one of ``SETTINGS``, or the name of a feature as ``ethtool -k`` shows it. Numbers are int, switches
    ``on`` or ``off``.
    """

    entry: match.MatchEntry
    settings: Mapping[str, Scalar]
    peers: Tuple[str, ...] = ()


@frozen
class NicSettingsDeclaration:
    """What is declared. For ``state: absent``, ``before`` are the values from before us, by the identity of an
    interface.
    """

    entries: Tuple[InterfaceEntry, ...] = ()
    confirm_timeout: int = SHORTEST_SECONDS
    before: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)


def parse(params: Mapping[str, Any]) -> NicSettingsDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    interfaces, seconds = params["interfaces"], params["confirm_timeout"]
    if not interfaces:
        raise DeclarationError(
            "read the declaration", cause="no interface is declared", hint="set interfaces, or state: absent"
        )
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        cause = f"it must be from {SHORTEST_SECONDS} to {LONGEST_SECONDS} seconds"
        _refuse("confirm_timeout", cause, "set for example 120", seconds)
    parsed = match.parse("interfaces", interfaces, MATCH_KEYS)
    entries = tuple(_entry(item, entry) for item, entry in zip(interfaces, parsed))
    return NicSettingsDeclaration(entries, seconds)


def _entry(item: Mapping[str, Any], entry: match.MatchEntry) -> InterfaceEntry:
    where = entry.where
    lowered = {key: _lower(texts) if key in MATCH_KEYS[2:] else texts for key, texts in entry.match.items()}
    for name in entry.match.get("name", ()):
        # dev_valid_name() of the kernel, and what would end the text in a rule of udev.
        if not _NAME.fullmatch(name):
            _refuse(f"{where}.match.name", f"{name!r} is not the name of an interface", "write it as ip link shows it")
    for layer in lowered.get("link_layer", ()):
        if layer not in LINK_LAYERS.values():
            hint = f"write {' or '.join(LINK_LAYERS.values())}"
            _refuse(f"{where}.match.link_layer", f"{layer!r} is not a link layer", hint)
    settings: Dict[str, Scalar] = {}
    if item[MTU] is not None:
        settings[MTU] = _mtu(where, item[MTU])
    for setting, known in ETHTOOL.items():
        if item[setting] is not None:
            settings[setting] = _value(f"{where}.{setting}", known, item[setting])
    settings.update(_features(f"{where}.{OFFLOADS}", item[OFFLOADS] or {}))
    if item[FUNCTIONS] is not None:
        if item[FUNCTIONS] < 0:
            _refuse(f"{where}.{FUNCTIONS}", "it must be 0 or more", "set 0 for none", item[FUNCTIONS])
        settings[FUNCTIONS] = item[FUNCTIONS]
    peers = tuple(dict.fromkeys(item["peers"]))
    for peer in peers:
        _check_peer(f"{where}.peers", peer)
    if not settings and not peers:
        _refuse(where, "it declares nothing", "set for example mtu: 9000")
    return InterfaceEntry(match.MatchEntry(where, lowered, entry.optional), settings, peers)


def _lower(texts: Tuple[str, ...]) -> Tuple[str, ...]:
    return tuple(text.lower() for text in texts)


def _mtu(where: str, value: int) -> int:
    if value < SMALLEST_MTU:
        cause = f"below {SMALLEST_MTU} the kernel removes IPv6 from the interface, with its addresses and routes"
        _refuse(f"{where}.{MTU}", cause, "set for example 1500 or 9000", value)
    if value > LARGEST_MTU:
        _refuse(f"{where}.{MTU}", f"no interface takes more than {LARGEST_MTU}", "set for example 9000", value)
    return value


def _value(where: str, known: EthtoolSetting, value: Any) -> Scalar:
    if known.form == "switch":
        return ON if value else OFF
    if known.form == "number":
        if value < 0:
            _refuse(where, "it must not be negative", "set 0 or more", value)
        return int(value)
    if value == MAXIMUM:
        return MAXIMUM
    if isinstance(value, bool) or not _SIZE.fullmatch(str(value)) or not int(value):
        _refuse(where, "it must be a number of at least 1, or max", "set for example 4096, or max", str(value))
    return int(value)


def _features(where: str, given: Mapping[str, Any]) -> Mapping[str, Scalar]:
    found: Dict[str, Scalar] = {}
    written: Dict[str, str] = {}
    for text, value in given.items():
        if not isinstance(text, str) or not _FEATURE.fullmatch(text):
            _refuse(where, f"{text!r} is not the name of a feature", "write it as ethtool -k shows it")
        if not isinstance(value, bool):
            _refuse(f"{where}.{text}", "it is neither true nor false", "set true or false", str(value))
        name = SHORT_FEATURES.get(text, text)
        if name in SETTINGS:
            _refuse(where, f"{text} is not the name of a feature", "write it as ethtool -k shows it")
        if name in found:
            _refuse(where, f"{written[name]} and {text} are the same feature", "leave one of them out")
        found[name], written[name] = ON if value else OFF, text
    return found


def _check_peer(where: str, peer: str) -> None:
    import socket

    families: List[int] = [socket.AF_INET, socket.AF_INET6]
    for family in families:
        try:
            socket.inet_pton(family, peer)
        except (OSError, ValueError):
            continue
        return
    _refuse(where, "it is not an IP address", "set the address, because a name would have to be looked up", peer)


def _refuse(object: str, cause: str, hint: str, wanted: Scalar = None) -> NoReturn:
    raise DeclarationError("declare {}", object=object, cause=cause, wanted=wanted, hint=hint)
