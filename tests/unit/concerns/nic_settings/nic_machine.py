# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with network interfaces: what sysfs and ethtool say of them, and what the kernel makes of a write.

Two cards of two ports and one with virtual functions, a bond over two ports with a VLAN on it, and a bridge. What the
kernel does with an MTU is from net/core/dev.c, net/8021q/vlan.c and drivers/net/bonding/bond_main.c; what ethtool
prints is as release 6.1 of Debian 12 does, recorded of virtio-net and veth.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nic_settings.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_settings.gpu_settings_machine import (
    BOOT_SERVICE,
    ENABLED,
)
from ansible_collections.gpufleet.node.tests.unit.support import KernelFiles, build, shown_by_systemctl

NET = "/sys/class/net"
# What ethtool keeps is in no file of sysfs; here it is, so that a test sees all of the machine in one tree.
HARDWARE = "/sys/ethtool"
TIMERS = "/run/timers"
CARDS = {
    "eth0": ("0000:17:00.0", "mlx5_core"),
    "eth1": ("0000:17:00.1", "mlx5_core"),
    "eth2": ("0000:3b:00.0", "ice"),
    "eth3": ("0000:3b:00.1", "ice"),
}
VIRTUAL = {"bond0": "bond", "bond0.100": "vlan", "br0": "bridge", "lo": ""}
ON_TOP = (("eth2", "bond0"), ("eth3", "bond0"), ("bond0", "bond0.100"), ("eth1", "br0"))
ADDRESSES = {"eth0": ("10.0.0.7", "fe80::7"), "bond0.100": ("10.1.0.7",)}
LARGEST = 9978
CLIENT, SERVER = "10.0.0.1", "10.0.0.7"
HARDWARE_STATE: Dict[str, Dict[str, Any]] = {
    "ring": {"RX": [1024, 8192], "TX": [1024, 8192]},
    "channel": {"RX": [None, None], "TX": [None, None], "Combined": [16, 63]},
    "coalescing": {"Adaptive RX": "on", "Adaptive TX": "on", "rx-usecs": 8, "rx-frames": 128, "tx-usecs": 16},
    "pause": {"Autonegotiate": "off", "RX": "on", "TX": "on"},
    "offload": {
        "rx-checksumming": "on",
        "generic-receive-offload": "on",
        "large-receive-offload": "off",
        "highdma": "on [fixed]",
    },
}
GROUPS = {"g": "ring", "l": "channel", "c": "coalescing", "a": "pause", "k": "offload"}
WORDS = {
    "rx": "RX",
    "tx": "TX",
    "combined": "Combined",
    "autoneg": "Autonegotiate",
    "adaptive-rx": "Adaptive RX",
    "adaptive-tx": "Adaptive TX",
}


def files() -> Dict[str, str]:
    found = {"/run/systemd/system/.keep": "", "/run/udev/control": "", "/etc/systemd/system/.keep": "", **BOOT_SERVICE}
    for number, name in enumerate((*CARDS, *VIRTUAL)):
        folder = place(name)
        kind = VIRTUAL.get(name, "")
        found.update(
            {
                f"{folder}/mtu": "65536\n" if name == "lo" else "1500\n",
                f"{folder}/ifindex": f"{number + 1}\n",
                f"{folder}/address": f"02:00:00:00:00:0{number}\n",
                f"{folder}/flags": "0x1003\n",
                f"{folder}/uevent": f"DEVTYPE={kind}\nINTERFACE={name}\n" if kind else f"INTERFACE={name}\n",
            }
        )
        if name in CARDS:
            found[f"{HARDWARE}/{name}"] = json.dumps(HARDWARE_STATE)
    device = os.path.dirname(os.path.dirname(place("eth2")))
    found[f"{device}/sriov_totalvfs"] = "8\n"
    found[f"{device}/sriov_numvfs"] = "0\n"
    return found


def links() -> Dict[str, str]:
    found = {f"{NET}/{name}": place(name) for name in (*CARDS, *VIRTUAL)}
    for name, (address, driver) in CARDS.items():
        found[f"{place(name)}/device"] = f"../../../{address}"
        found[f"{os.path.dirname(os.path.dirname(place(name)))}/driver"] = f"/sys/bus/pci/drivers/{driver}"
    for lower, upper in ON_TOP:
        found[f"{place(upper)}/lower_{lower}"] = place(lower)
        found[f"{place(lower)}/upper_{upper}"] = place(upper)
        if VIRTUAL[upper] in ("bond", "bridge"):
            found[f"{place(lower)}/master"] = place(upper)
    return {**found, **ENABLED}


def place(name: str) -> str:
    if name in CARDS:
        return f"/sys/devices/pci0000:15/{CARDS[name][0]}/net/{name}"
    return f"/sys/devices/virtual/net/{name}"


class Machine:
    """``peers`` are those that answer, with the largest packets that reach them."""

    def __init__(self, root: Path, more: Optional[Mapping[str, str]] = None) -> None:
        self.host = build(root, {**files(), **(more or {})}, links())
        self.peers: Dict[str, int] = {}
        self.refuses_timers = False
        # Hundredths of a second since the boot.
        self.clock = 100_000
        self.routes = True
        self.route = "eth0"
        self.addresses: Mapping[str, Sequence[str]] = ADDRESSES
        for name in ("ethtool", "ip", "ping", "systemctl", "udevadm"):
            self.host.commands.programs[name] = getattr(self, name)
        self.host.commands.programs["systemd-run"] = self.systemd_run
        self.host.files.rules += [
            (r"/sys/devices/.*/net/([^/]+)/mtu", self._write_mtu),
            (r"/sys/devices/.*/sriov_numvfs", self._write_functions),
        ]

    @property
    def root(self) -> Path:
        return Path(self.host.files.root)

    def over(self, port: Optional[int], server: str = SERVER, *, client: str = CLIENT, since: int = 0) -> Machine:
        """The next runs come over a connection from this port of the client, which was made just now, or ``since``
        then; None for over none. sudo, a shell and the sshd of the connection lie between them and that of the machine.
        """
        self.later()
        variable = "" if port is None else f"SSH_CONNECTION={client} {port} {server} 22\0"
        for process, name, above, variables, started in (
            ("self", "python3", 0 if port is None else 814, "PATH=/usr/bin\0", self.clock + 3),
            ("814", "sudo", 813, f"HOME=/home/ops\0{variable}", self.clock + 2),
            ("813", "sh", 812, variable, self.clock + 1),
            ("812", "sshd: ops) S 1 (", 77, "\0\0", since or self.clock),
            ("77", "sshd", 0, "SSH_CONNECTION=10.0.0.1 3 10.0.0.7 22\0", 12),
        ):
            folder = self.root / "proc" / process
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "status").write_text(f"Name:\t{name}\nPPid:\t{above}\n")
            (folder / "environ").write_text(variables)
            numbers = " ".join(map(str, range(4, 22)))
            (folder / "stat").write_text(f"812 ({name}) S {numbers} {started} 0 0\n")
        return self.later()

    def later(self) -> Machine:
        """A second passes."""
        self.clock += 100
        (self.root / "proc/uptime").parent.mkdir(exist_ok=True)
        (self.root / "proc/uptime").write_text(f"{self.clock / 100:.2f} 5.00\n")
        return self

    # --- what the kernel does ---

    def mtu(self, name: str) -> int:
        return int(self.host.files.read(f"{NET}/{name}/mtu"))

    def put_mtu(self, name: str, mtu: int) -> None:
        (self.root / place(name).lstrip("/") / "mtu").write_text(f"{mtu}\n")

    def _write_mtu(self, kernel: KernelFiles, path: re.Match[str], value: str) -> None:
        name, mtu = path[1], int(value)
        if not 68 <= mtu <= LARGEST:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path[0])
        for lower, upper in ON_TOP:
            if upper == name and VIRTUAL[upper] == "vlan" and mtu > self.mtu(lower):
                raise OSError(errno.ERANGE, os.strerror(errno.ERANGE), path[0])
        if mtu == self.mtu(name):
            return
        self.put_mtu(name, mtu)
        for lower, upper in ON_TOP:
            if upper == name and VIRTUAL[upper] == "bond":
                self.put_mtu(lower, mtu)
            if lower == name and VIRTUAL[upper] == "vlan" and mtu < self.mtu(upper):
                self.put_mtu(upper, mtu)

    def _write_functions(self, kernel: KernelFiles, path: re.Match[str], value: str) -> None:
        found = int(kernel.read(path[0]))
        if found and int(value):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path[0])
        kernel.store(path[0], value)

    # --- programs ---

    def hardware(self, name: str) -> Dict[str, Dict[str, Any]]:
        text = self.host.files.read_optional(f"{HARDWARE}/{name}")
        found: Dict[str, Dict[str, Any]] = json.loads(text) if text else {}
        return found

    def ethtool(self, argv: Sequence[str]) -> Completed:
        option, name, words = argv[1][1], argv[2], argv[3:]
        if not self.host.files.exists(f"{NET}/{name}"):
            return Completed(
                1, "", "netlink error: no device matches name (offset 24)\nnetlink error: No such device\n"
            )
        group, state = GROUPS[option.lower()], self.hardware(name)
        if group not in state:
            return Completed(1, "", "netlink error: Operation not supported\n")
        if option.islower():
            return Completed(0, _SHOW[group](name, state[group]), "")
        for word, value in zip(words[::2], words[1::2]):
            self._set(state[group], WORDS.get(word, word), value)
        (self.root / HARDWARE.lstrip("/") / name).write_text(json.dumps(state))
        return Completed(0, "", "")

    def _set(self, values: Dict[str, Any], line: str, value: str) -> None:
        if isinstance(values[line], list):
            values[line][0] = int(value)
        else:
            values[line] = int(value) if value.isdecimal() else value

    def ip(self, argv: Sequence[str]) -> Completed:
        found: List[Dict[str, Any]] = []
        if argv[2:4] == ("addr", "show"):
            found = [
                {"ifname": name, "addr_info": [{"local": address} for address in addresses]}
                for name, addresses in self.addresses.items()
            ]
        elif argv[2:4] == ("route", "get") and self.routes:
            found = [{"dst": argv[4], "dev": self.route, "prefsrc": SERVER}]
        elif "-details" in argv:
            found = [{"ifname": argv[-1], "min_mtu": 68, "max_mtu": LARGEST}]
        return Completed(0, json.dumps(found), "")

    def ping(self, argv: Sequence[str]) -> Completed:
        size = next(int(word[2:]) for word in argv if word.startswith("-s")) + (48 if "-6" in argv else 28)
        if size <= self.peers.get(argv[-1], 0):
            return Completed(0, "1 packets transmitted, 1 received", "")
        return Completed(1, "1 packets transmitted, 0 received, 100% packet loss", "")

    def systemd_run(self, argv: Sequence[str]) -> Completed:
        if self.refuses_timers:
            return Completed(1, "", "Failed to start transient timer unit: Connection timed out\n")
        unit = argv[1].partition("=")[2]
        folder = self.root / TIMERS.lstrip("/")
        folder.mkdir(exist_ok=True)
        if (folder / unit).exists():
            return Completed(1, "", f"Failed to start transient timer unit: Unit {unit}.timer was already loaded\n")
        (folder / unit).write_text(json.dumps(list(argv)))
        return Completed(0, "", f"Running timer as unit: {unit}.timer\n")

    def systemctl(self, argv: Sequence[str]) -> Completed:
        if argv[1] == "list-units" and argv[-1].startswith("gpufleet-nic"):
            timers = self.host.files.names(TIMERS)
            return Completed(0, "".join(f"{name}.timer loaded active waiting Undo it\n" for name in timers), "")
        if argv[1] == "stop" and "way-back" in argv[2]:
            name, _dot, kind = argv[2].rpartition(".")
            place = self.root / TIMERS.lstrip("/") / name
            if kind == "service" or not place.exists():
                return Completed(5, "", f"Failed to stop {argv[2]}: Unit {argv[2]} not loaded.\n")
            place.unlink()
        return shown_by_systemctl(argv) if argv[1] == "show" else Completed(0, "", "")

    def udevadm(self, argv: Sequence[str]) -> Completed:
        return Completed(0, "", "")

    @property
    def timer(self) -> List[str]:
        """What runs when its time is up; empty for no timer."""
        found = self.timers
        assert len(found) < 2
        return found[0] if found else []

    @property
    def timers(self) -> List[List[str]]:
        return [json.loads(self.host.files.read(f"{TIMERS}/{name}")) for name in self.host.files.names(TIMERS)]

    @property
    def undoing(self) -> Sequence[str]:
        """The commands of the timer."""
        return commands_of(self.timer)

    def lose_timers(self) -> None:
        """What a boot does."""
        for name in self.host.files.names(TIMERS):
            (self.root / TIMERS.lstrip("/") / name).unlink()

    def elapse(self) -> None:
        """The time of the timers is up. What the kernel refuses, the next command is not kept from."""
        scripts = self.timers
        self.lose_timers()
        for script in scripts:
            for command in commands_of(script):
                words = shlex.split(command)
                if words[0] == "echo":
                    with contextlib.suppress(OSError):
                        self.host.files.write_attribute(words[3], words[1])
                else:
                    self.ethtool(words)

    def run(self, *interfaces: Mapping[str, Any], check_mode: bool = False, **more: Any) -> Outcome:
        params = {"interfaces": [dict(interface) for interface in interfaces], **more}
        validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate(params)
        assert validated.error_messages == []
        outcome = converge(CONCERN, validated.validated_parameters, self.host, check_mode=check_mode)
        if outcome.error is not None:
            raise outcome.error
        return outcome


def commands_of(argv: Sequence[str]) -> Sequence[str]:
    """Those that undo, of a timer."""
    found = re.match(r"undo\(\) \{ (.*?); \}; ", argv[-1])
    assert found is not None
    return found[1].split("; ")


def _maximums(title: str, name: str, lines: Sequence[str], values: Mapping[str, Sequence[Optional[int]]]) -> str:
    text = f"{title} parameters for {name}:\n"
    for heading, at in (("Pre-set maximums:", 1), ("Current hardware settings:", 0)):
        shown = [f"{line}:\t\t{_or_none(values.get(line, (None, None))[at])}\n" for line in lines]
        text += f"{heading}\n{''.join(shown)}"
    return text


def _or_none(value: Optional[int]) -> str:
    return "n/a" if value is None else str(value)


def _rings(name: str, values: Dict[str, Any]) -> str:
    return _maximums("Ring", name, ("RX", "RX Mini", "RX Jumbo", "TX"), values) + "TX Push:\toff\n"


def _channels(name: str, values: Dict[str, Any]) -> str:
    return _maximums("Channel", name, ("RX", "TX", "Other", "Combined"), values)


def _coalescing(name: str, values: Dict[str, Any]) -> str:
    text = f"Coalesce parameters for {name}:\n"
    text += f"Adaptive RX: {values['Adaptive RX']}  TX: {values['Adaptive TX']}\nstats-block-usecs: n/a\n\n"
    lines = ("rx-usecs", "rx-frames", "rx-usecs-irq", "tx-usecs", "tx-frames")
    return text + "".join(f"{line}: {values.get(line, 'n/a')}\n" for line in lines)


def _pause(name: str, values: Dict[str, Any]) -> str:
    return f"Pause parameters for {name}:\n" + "".join(f"{line}:\t{value}\n" for line, value in values.items())


def _features(name: str, values: Dict[str, Any]) -> str:
    return f"Features for {name}:\n" + "".join(f"{line}: {value}\n" for line, value in values.items())


_SHOW = {"ring": _rings, "channel": _channels, "coalescing": _coalescing, "pause": _pause, "offload": _features}
