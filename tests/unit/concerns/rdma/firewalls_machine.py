# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Firewalls of a machine: firewalld and ufw with what they keep, and chains of others as nft and iptables show them.

They answer and write as firewalld 2.3.0 and ufw 0.36.2 of Debian 13 did, and nft 1.1.3 and iptables 1.8.11 there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import BusCall, Completed
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
# What firewalld has, and the chains of ufw in the kernel: here they are in files, so that a test sees them in the tree.
FIREWALLD = "/sys/firewalld"
CHAINS = {"iptables": "/sys/ufw/ufw-user-input", "ip6tables": "/sys/ufw/ufw6-user-input"}
RULES = {"iptables": "/etc/ufw/user.rules", "ip6tables": "/etc/ufw/user6.rules"}
SERVICE = "org.fedoraproject.FirewallD1"
SSH = "### tuple ### allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in\n-A ufw-user-input -p tcp --dport 22 -j ACCEPT\n"
UFW_FILES = {
    "/etc/ufw/ufw.conf": "# Set to yes to start on boot.\nENABLED=yes\n\nLOGLEVEL=low\n",
    "/etc/default/ufw": 'IPV6=yes\nDEFAULT_INPUT_POLICY="DROP"\n',
    RULES["iptables"]: f"*filter\n:ufw-user-input - [0:0]\n### RULES ###\n\n{SSH}\n### END RULES ###\nCOMMIT\n",
    RULES["ip6tables"]: "*filter\n:ufw6-user-input - [0:0]\n### RULES ###\n\n### END RULES ###\nCOMMIT\n",
    CHAINS["iptables"]: "-N ufw-user-input\n-A ufw-user-input -p tcp -m tcp --dport 22 -j ACCEPT\n",
    CHAINS["ip6tables"]: "-N ufw6-user-input\n",
}


def zone(target: str = "default", *, rules: Sequence[str] = (), active: bool = False) -> Dict[str, Any]:
    return {"target": target, "active": active, "runtime": list(rules), "permanent": list(rules)}


def firewalld_file(*, runs: bool = True, default: str = "public", **zones: Mapping[str, Any]) -> Dict[str, str]:
    known = {"public": zone(), **zones}
    document = {"runs": runs, "default": default, "zones": known}
    return {"/etc/firewalld/firewalld.conf": "", FIREWALLD: json.dumps(document)}


class Firewalls:
    """Those of which the tree has the files. ``chains`` is what nft lists, ``own_chains`` the rules of iptables."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host
        self.root = Path(host.files.root)
        self.chains: List[Mapping[str, Any]] = []
        self.own_chains: Dict[str, str] = {}
        self.sets: Dict[Tuple[str, ...], Mapping[str, Any]] = {}
        programs = host.commands.programs
        if host.files.exists(FIREWALLD):
            programs.update({"firewall-cmd": self.firewall_cmd, "firewall-offline-cmd": self.firewall_offline_cmd})
            host.ask_service = self.ask_service  # type: ignore[method-assign]
        if host.files.exists("/etc/ufw/ufw.conf"):
            programs.update({"ufw": self.ufw, "iptables": self.iptables, "ip6tables": self.iptables})

    def _path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    # --- firewalld ---

    @property
    def firewalld(self) -> Dict[str, Any]:
        known: Dict[str, Any] = json.loads(self._path(FIREWALLD).read_text())
        return known

    def keep(self, known: Mapping[str, Any]) -> None:
        self._path(FIREWALLD).write_text(json.dumps(known))

    def ask_service(self, service: str, calls: Sequence[BusCall]) -> List[Optional[Tuple[Any, ...]]]:
        assert service == SERVICE
        return [self._answer(call) if self.firewalld["runs"] else None for call in calls]

    def _answer(self, call: BusCall) -> Optional[Tuple[Any, ...]]:
        known, of_files = self.firewalld, call.path.startswith("/org/fedoraproject/FirewallD1/config")
        zones = known["zones"]
        if call.member == "getDefaultZone":
            return (known["default"],)
        if call.member == "getActiveZones":
            return ([(name, []) for name, one in zones.items() if one["active"] or name == known["default"]],)
        if call.member == "getZoneByName":
            name = str(call.arguments[0])
            return (f"{call.path}/zone/{list(zones).index(name)}",) if name in zones else None
        name = list(zones)[int(call.path.rpartition("/")[2])] if of_files else str(call.arguments[0])
        if name not in zones:
            return None
        if call.member == "getTarget":
            return (zones[name]["target"],)
        assert call.member == "getRichRules"
        return (zones[name]["permanent" if of_files else "runtime"],)

    def firewall_cmd(self, argv: Sequence[str]) -> Completed:
        assert self.firewalld["runs"]
        words = [word for word in argv[1:] if word != "--permanent"]
        return self._change("permanent" if "--permanent" in argv else "runtime", words)

    def firewall_offline_cmd(self, argv: Sequence[str]) -> Completed:
        known = self.firewalld
        if argv[1] == "--get-default-zone":
            return Completed(0, f"{known['default']}\n", "")
        if argv[1] == "--get-zones":
            return Completed(0, " ".join(known["zones"]) + "\n", "")
        name = argv[1].partition("=")[2]
        if argv[2] == "--list-rich-rules":
            return Completed(0, "".join(f"{rule}\n" for rule in known["zones"][name]["permanent"]), "")
        return self._change("permanent", argv[1:])

    def _change(self, kind: str, words: Sequence[str]) -> Completed:
        self.host.files.effect("run", words[0], words[1])
        known = self.firewalld
        rules = known["zones"][words[0].partition("=")[2]][kind]
        verb, _equals, rule = words[1].partition("=")
        if verb == "--add-rich-rule":
            rules.append(rule)
        else:
            assert verb == "--remove-rich-rule"
            rules.remove(rule)
        self.keep(known)
        return Completed(0, "success\n", "")

    # --- ufw ---

    def iptables(self, argv: Sequence[str]) -> Completed:
        program, wait, chain = argv[0], argv[1:3], argv[-1]
        assert (tuple(wait), argv[-2]) == (("-w", "5"), "-S")
        if chain == "INPUT":
            return Completed(0, self.own_chains.get(program, "-P INPUT ACCEPT\n"), "")
        if chain in self.own_chains:
            return Completed(0, self.own_chains[chain], "")
        path = self._path(CHAINS.get(program, "/nowhere"))
        if not path.exists():
            return Completed(1, "", f"{program}: No chain/target/match by that name.\n")
        return Completed(0, path.read_text(), "")

    def ufw(self, argv: Sequence[str]) -> Completed:
        self.host.files.effect("run", "ufw", " ".join(argv[1:]))
        enabled = "ENABLED=yes" in self._path("/etc/ufw/ufw.conf").read_text()
        if argv[1] == "reload":
            for program, path in RULES.items():
                chain = CHAINS[program].rpartition("/")[2]
                kept = [line for line in self._path(path).read_text().splitlines() if line.startswith("### tuple")]
                text = "".join(self._shown(chain, line.split()) for line in kept)
                self._path(CHAINS[program]).write_text(f"-N {chain}\n{text}")
            return Completed(0, "Firewall reloaded\n", "")
        verb, (network, ports) = argv[1], (argv[6], argv[10])
        assert list(argv[2:6]) == ["allow", "proto", "tcp", "from"]
        program = "ip6tables" if ":" in network else "iptables"
        anywhere, single = ("::/0", "/128") if ":" in network else ("0.0.0.0/0", "/32")
        short = network[: -len(single)] if network.endswith(single) else network
        kept = f"### tuple ### allow tcp {ports} {anywhere} any {short} in"
        chain = CHAINS[program].rpartition("/")[2]
        shown, rules = self._shown(chain, kept.split()), self._path(RULES[program])
        lines = rules.read_text().splitlines()
        if verb == "prepend":
            at = lines.index("### RULES ###") + 2
            lines[at:at] = [f"{kept} comment={argv[12].encode().hex()}", shown.strip(), ""]
        else:
            at = next(n for n, line in enumerate(lines) if line.split(" comment=")[0] == kept)
            del lines[at : at + 3]
        rules.write_text("".join(f"{line}\n" for line in lines))
        if enabled:
            text = self._path(CHAINS[program]).read_text()
            head, _newline, others = text.partition("\n")
            now = f"{head}\n{shown}{others}" if verb == "prepend" else text.replace(shown, "")
            self._path(CHAINS[program]).write_text(now)
        return Completed(0, "Rule inserted\n", "")

    @staticmethod
    def _shown(chain: str, words: Sequence[str]) -> str:
        ports, network = words[5], words[8]
        if network in ("0.0.0.0/0", "::/0"):
            return f"-A {chain} -p tcp -m tcp --dport {ports} -j ACCEPT\n"
        source = network if "/" in network else f"{network}/{128 if ':' in network else 32}"
        match = f"multiport --dports {ports}" if ":" in ports else f"tcp --dport {ports}"
        return f"-A {chain} -s {source} -p tcp -m {match} -j ACCEPT\n"

    # --- others ---

    def has_nft(self, *chains: Mapping[str, Any]) -> None:
        """Install nft, which lists these chains with their rules under ``rules``."""
        self.chains = list(chains)
        self.host.commands.programs["nft"] = self.nft

    def nft(self, argv: Sequence[str]) -> Completed:
        assert list(argv[1:3]) == ["-j", "list"]
        listed: List[Mapping[str, Any]] = [{"metainfo": {"version": "1.1.3", "json_schema_version": 1}}]
        if argv[3] in ("set", "map"):
            found = self.sets[tuple(argv[4:7])]
            assert (argv[3] == "map") == ("map" in found)
            return Completed(0, json.dumps({"nftables": [*listed, {argv[3]: found}]}), "")
        for chain in self.chains:
            place = {key: chain[key] for key in ("family", "table", "name")}
            if argv[3] == "chains" or tuple(argv[4:7]) == tuple(place.values()):
                listed.append({"chain": {key: value for key, value in chain.items() if key != "rules"}})
            if argv[3] == "chain" and tuple(argv[4:7]) == tuple(place.values()):
                listed += [{"rule": {**place, "handle": 7, "expr": rule}} for rule in chain["rules"]]
        return Completed(0, json.dumps({"nftables": listed}), "")
