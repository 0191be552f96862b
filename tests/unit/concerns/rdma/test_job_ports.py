# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports on which jobs of other nodes connect: rules of firewalld and ufw, and chains of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, DeclarationError, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.tests.unit.concerns.rdma.firewalls_machine import (
    CHAINS,
    RANGE,
    RULES,
    UFW_FILES,
    Firewalls,
    firewalld_file,
    zone,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.rdma.rdma_machine import Machine

NETWORK, NETWORK6 = "10.20.0.0/16", "fd00:20::/64"
HANDED_OUT = f"tcp 32768-60999 from {NETWORK}"
RICH = f'rule family="ipv4" source address="{NETWORK}" port port="32768-60999" protocol="tcp" accept'
RECORD = "/var/lib/gpufleet/baseline/rdma.json"
ENABLED = {
    "/usr/lib/systemd/system/firewalld.service": "[Install]\nWantedBy=multi-user.target\n",
    "/etc/systemd/system/multi-user.target.wants/firewalld.service": "[Install]\nWantedBy=multi-user.target\n",
}
Make = Callable[..., Firewalls]


class Node(Firewalls):
    """A machine with RDMA devices behind these firewalls."""

    def __init__(self, root: Path, files: Mapping[str, str]) -> None:
        self.machine = Machine(root, {RANGE: "32768\t60999\n", **files})
        super().__init__(self.machine.host)

    def run(self, *networks: str, ports: Optional[List[str]] = None, **more: Any) -> Outcome:
        return self.machine.run(job_ports={"networks": list(networks), "ports": ports or []}, **more)

    def absent(self) -> Outcome:
        return self.machine.run(state="absent")

    def text(self, path: str) -> str:
        return self.machine.path(path).read_text()

    def write(self, path: str, text: str) -> None:
        self.machine.path(path).write_text(text)

    def rules(self, kind: str) -> Dict[str, List[str]]:
        return {name: one[kind] for name, one in self.firewalld["zones"].items() if one[kind]}


@pytest.fixture(name="make")
def _make(tmp_path: Path) -> Callable[[Mapping[str, str]], Node]:
    return lambda files: Node(tmp_path, files)


def changed(outcome: Outcome) -> List[tuple[object, ...]]:
    rows = outcome.as_dict()["changes"]
    return [(row["object"], row["setting"], row["scope"], row["after"]) for row in rows if "/" not in row["object"]]


def closed(outcome: Outcome) -> List[tuple[str, str]]:
    return [(one["object"], one["setting"]) for one in outcome.as_dict()["unmanaged"]]


# --- what is declared -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("networks", "ports", "message"),
    [
        (
            [],
            ["29500"],
            "Cannot declare job_ports.networks: no network is declared. Set the networks of the other nodes.",
        ),
        (
            ["10.20.0.0/33"],
            [],
            "Cannot declare job_ports.networks[0]: it is not a network (wanted 10.20.0.0/33). "
            "Set for example 10.20.0.0/16 or fd00:20::/64.",
        ),
        (["gpu-01"], [], "Cannot declare job_ports.networks[0]: it is not a network (wanted gpu-01)."),
        (
            ["0.0.0.0/0"],
            [],
            "Cannot declare job_ports.networks[0]: any machine could connect (wanted 0.0.0.0/0). "
            "Set the networks of the other nodes.",
        ),
        (["::/0"], [], "Cannot declare job_ports.networks[0]: any machine could connect (wanted ::/0)."),
        (
            [NETWORK, "10.20.3.4/16"],
            [],
            "Cannot declare job_ports.networks[1]: it has host bits set (wanted 10.20.3.4/16). "
            "Set 10.20.0.0/16, or the address alone.",
        ),
        (
            [NETWORK, NETWORK],
            [],
            "Cannot declare job_ports.networks[1]: 10.20.0.0/16 is declared twice. Leave one of them out.",
        ),
        (["fe80::1%eth0"], [], "Cannot declare job_ports.networks[0]: it is not a network (wanted fe80::1%eth0)."),
        (
            ["::ffff:10.20.0.0/112"],
            [],
            "Cannot declare job_ports.networks[0]: no other node connects from there (wanted ::ffff:10.20.0.0/112). "
            "Set the networks of the other nodes.",
        ),
        (["127.0.0.0/8"], [], "Cannot declare job_ports.networks[0]: no other node connects from there"),
        (["239.1.0.0/16"], [], "Cannot declare job_ports.networks[0]: no other node connects from there"),
        (["ff02::/16"], [], "Cannot declare job_ports.networks[0]: no other node connects from there"),
        (["0.0.0.0"], [], "Cannot declare job_ports.networks[0]: no other node connects from there"),
        (
            ["0.0.0.0/1", "10.20.0.0/16", "128.0.0.0/1"],
            [],
            "Cannot declare job_ports.networks: together they are all addresses, so that any machine could connect. "
            "Set the networks of the other nodes.",
        ),
        (["8000::/1", "::/1"], [], "Cannot declare job_ports.networks: together they are all addresses"),
        (
            [NETWORK],
            ["ssh"],
            "Cannot declare job_ports.ports[0]: it is neither a port nor a range of ports (wanted ssh). "
            "Set for example 29500 or 29500-29599.",
        ),
        ([NETWORK], ["²"], "Cannot declare job_ports.ports[0]: it is neither a port nor a range of ports (wanted ²)."),
        (
            [NETWORK],
            ["0"],
            "Cannot declare job_ports.ports[0]: ports are from 1 to 65535, and a range begins with the lower one "
            "(wanted 0).",
        ),
        ([NETWORK], ["65536"], "Cannot declare job_ports.ports[0]: ports are from 1 to 65535"),
        ([NETWORK], ["300-200"], "Cannot declare job_ports.ports[0]: ports are from 1 to 65535, and a range begins"),
        (
            [NETWORK],
            ["443", "0443"],
            "Cannot declare job_ports.ports[1]: 443 is declared twice. Leave one of them out.",
        ),
    ],
)
def test_what_nobody_should_let_in_is_refused_with_the_reason(
    make: Make, networks: List[str], ports: List[str], message: str
) -> None:
    node = make(UFW_FILES)
    with pytest.raises(DeclarationError) as caught:
        node.run(*networks, ports=ports)
    assert str(caught.value).startswith(message)
    assert node.host.files.log == []


def test_a_range_that_the_kernel_does_not_say_is_unknown(make: Make) -> None:
    node = make({**UFW_FILES, RANGE: "\n"})
    with pytest.raises(CannotLook) as caught:
        node.run(NETWORK)
    assert str(caught.value) == f"Cannot read {RANGE}: it does not contain the first and the last port."


def test_without_a_firewall_there_is_nothing_to_do(make: Make) -> None:
    outcome = make({}).run(NETWORK).as_dict()
    assert [row for row in outcome["changes"] if not row["object"].startswith("/")] == []
    assert outcome["effective"]["job_ports"] == {"range": "32768-60999", "accepted": {}}


def test_who_does_not_declare_it_asks_no_firewall(make: Make) -> None:
    node = make({**UFW_FILES, **firewalld_file()})
    node.machine.run({"match": {"name": "mlx5_0"}, "roce_tos": 106})
    assert not {call[0] for call in node.host.commands.calls} & {"ufw", "iptables", "firewall-cmd"}
    assert RANGE not in node.host.files.reads


# --- ufw --------------------------------------------------------------------------------------------------------------


def test_ufw_has_the_rules_in_its_files_and_in_the_kernel_and_a_second_run_changes_nothing(make: Make) -> None:
    node = make(UFW_FILES)
    predicted = node.run(NETWORK, NETWORK6, ports=["29500", "40000"], check_mode=True)
    done = node.run(NETWORK, NETWORK6, ports=["29500", "40000"])
    settings = [f"tcp {ports} from {network}" for network in (NETWORK, NETWORK6) for ports in ("32768-60999", "29500")]
    both = [("ufw", setting, scope, "accept") for setting in settings for scope in ("boot", "effective")]
    # 40000 is one that the kernel hands out.
    assert changed(predicted) == changed(done) == both
    assert f"-s {NETWORK} -p tcp -m multiport --dports 32768:60999" in node.text(CHAINS["iptables"])
    assert f"### tuple ### allow tcp 29500 ::/0 any {NETWORK6} in comment=" in node.text(RULES["ip6tables"])
    assert node.text(CHAINS["iptables"]).splitlines()[-1].endswith("--dport 22 -j ACCEPT")
    node.host.files.log.clear()
    again = node.run(NETWORK, NETWORK6, ports=["29500", "40000"]).as_dict()
    assert (again["changed"], node.host.files.log) == (False, [])
    assert again["effective"]["job_ports"]["accepted"] == {"ufw": settings}


def test_an_address_alone_is_written_as_ufw_does(make: Make) -> None:
    node = make(UFW_FILES)
    node.run("10.20.0.7", "fd00:20::7", ports=["29500-29599"])
    assert "any 10.20.0.7 in comment" in node.text(RULES["iptables"])
    assert changed(node.run("10.20.0.7/32", "fd00:20::7/128", ports=["29500-29599"])) == []


def test_rules_that_somebody_flushed_are_put_in_effect_again(make: Make) -> None:
    node = make(UFW_FILES)
    node.run(NETWORK)
    kept = node.text(RULES["iptables"])
    node.write(CHAINS["iptables"], "-N ufw-user-input\n")
    assert changed(node.run(NETWORK)) == [("ufw", HANDED_OUT, "effective", "accept")]
    assert (node.text(RULES["iptables"]), HANDED_OUT[4:15].replace("-", ":") in node.text(CHAINS["iptables"])) == (
        kept,
        True,
    )


def test_a_chain_that_is_gone_has_none_of_the_rules(make: Make) -> None:
    node = make(UFW_FILES)
    node.run(NETWORK)
    node.machine.path(CHAINS["iptables"]).unlink()
    assert changed(node.run(NETWORK, check_mode=True)) == [("ufw", HANDED_OUT, "effective", "accept")]


@pytest.mark.parametrize("off", ["", "ENABLED=no\n", "# ENABLED=yes\n"])
def test_ufw_that_is_not_enabled_is_left_alone(make: Make, off: str) -> None:
    node = make({**UFW_FILES, "/etc/ufw/ufw.conf": off})
    assert changed(node.run(NETWORK)) == []


def test_where_ufw_leaves_ipv6_out_nothing_comes_in_by_it(make: Make) -> None:
    node = make({**UFW_FILES, "/etc/default/ufw": "IPV6=no\n"})
    outcome = node.run(NETWORK, NETWORK6).as_dict()
    assert outcome["unmanaged"] == [
        {
            "object": "ufw",
            "setting": f"tcp 32768-60999 from {NETWORK6}",
            "reason": "ufw has no rules for IPv6 while IPV6=no; set IPV6=yes in /etc/default/ufw, and run ufw reload",
        }
    ]
    assert not node.run(NETWORK, NETWORK6).as_dict()["changed"]


@pytest.mark.parametrize("scope", [{"permanent": False}, {"immediate": False}])
def test_ufw_does_not_change_only_now_or_only_the_next_boot(make: Make, scope: Mapping[str, bool]) -> None:
    node = make(UFW_FILES)
    outcome = node.run(NETWORK, **scope)
    assert [one["reason"] for one in outcome.as_dict()["unmanaged"]] == [
        "ufw changes the running system and the next boot together; set both immediate and permanent"
    ]
    assert "10.20" not in node.text(RULES["iptables"])


def test_what_ufw_says_when_it_fails_is_said(make: Make) -> None:
    node = make(UFW_FILES)
    node.host.commands.programs["ufw"] = lambda argv: Completed(1, "", "ERROR: Bad destination address\n")
    with pytest.raises(Refused) as caught:
        node.run(NETWORK)
    assert str(caught.value).startswith(
        f"Cannot add the rule that accepts {HANDED_OUT} with ufw prepend allow proto tcp"
    )
    assert "ERROR: Bad destination address" in str(caught.value)


# --- firewalld --------------------------------------------------------------------------------------------------------


def test_each_zone_that_connections_may_come_through_gets_the_rule_now_and_permanently(make: Make) -> None:
    zones = {
        "internal": zone(active=True),
        "docker": zone("ACCEPT", active=True),
        "work": zone(),
        "drop": zone("DROP", active=True, rules=['rule family="ipv4" source address="10.9.0.0/16" accept']),
    }
    node = make(firewalld_file(**zones))
    predicted, done = node.run(NETWORK, check_mode=True), node.run(NETWORK)
    assert changed(predicted) == changed(done)
    assert {row[0] for row in changed(done)} == {f"firewalld zone {name}" for name in ("public", "internal", "drop")}
    others = zones["drop"]["runtime"]
    rules = {"public": [RICH], "internal": [RICH], "drop": [*others, RICH]}
    assert (node.rules("runtime"), node.rules("permanent")) == (rules, rules)
    node.host.files.log.clear()
    assert not node.run(NETWORK).as_dict()["changed"]
    assert node.host.files.log == []


def test_a_zone_that_is_not_active_any_more_keeps_the_rule_until_it_is_not_declared(make: Make) -> None:
    node = make(firewalld_file(internal=zone(active=True)))
    node.run(NETWORK)
    known = node.firewalld
    known["zones"]["internal"]["active"] = False
    node.keep(known)
    assert not node.run(NETWORK).as_dict()["changed"]
    node.run(NETWORK6)
    assert set(node.rules("runtime")) == {"public"}
    assert RICH not in node.rules("permanent")["public"]


def test_a_rule_that_is_lost_in_one_of_both_is_added_there_alone(make: Make) -> None:
    node = make(firewalld_file())
    node.run(NETWORK)
    for kind, scope in (("runtime", "effective"), ("permanent", "boot")):
        known = node.firewalld
        known["zones"]["public"][kind] = []
        node.keep(known)
        assert changed(node.run(NETWORK)) == [("firewalld zone public", HANDED_OUT, scope, "accept")]


@pytest.mark.parametrize(("scope", "kind"), [({"permanent": False}, "runtime"), ({"immediate": False}, "permanent")])
def test_firewalld_can_do_one_without_the_other(make: Make, scope: Mapping[str, bool], kind: str) -> None:
    node = make(firewalld_file())
    node.run(NETWORK, **scope)
    assert {one: bool(node.rules(one)) for one in ("runtime", "permanent")} == {
        "runtime": kind == "runtime",
        "permanent": kind == "permanent",
    }


def test_firewalld_that_does_not_run_gets_the_rule_for_when_it_does(make: Make) -> None:
    node = make({**firewalld_file(runs=False, default="work", work=zone()), **ENABLED})
    assert changed(node.run(NETWORK)) == [("firewalld zone work", HANDED_OUT, "boot", "accept")]
    assert (node.rules("permanent"), node.rules("runtime")) == ({"work": [RICH]}, {})
    assert not node.run(NETWORK).as_dict()["changed"]
    # At boot it may come after us, and has the rule itself.
    node.host.commands.calls.clear()
    node.run(NETWORK, permanent=False)
    assert node.host.commands.calls == []


def test_firewalld_that_neither_runs_nor_will_is_left_alone(make: Make) -> None:
    node = make(firewalld_file(runs=False))
    assert changed(node.run(NETWORK)) == []


def test_firewalld_that_does_not_answer_is_unknown(make: Make) -> None:
    node = make(firewalld_file())

    def silent(*_args: object) -> List[None]:
        raise TimeoutError(110, "no response within 6 seconds", "/run/dbus/system_bus_socket")

    node.host.ask_service = silent  # type: ignore[assignment, method-assign]
    with pytest.raises(CannotLook) as caught:
        node.run(NETWORK)
    assert str(caught.value) == "Cannot ask firewalld: no response within 6 seconds."


# --- what is not declared any more, and absent ------------------------------------------------------------------------


@pytest.mark.parametrize("files", [UFW_FILES, firewalld_file()], ids=["ufw", "firewalld"])
def test_when_the_kernel_hands_out_others_the_rules_follow(make: Make, files: Mapping[str, str]) -> None:
    node = make(files)
    node.run(NETWORK, ports=["29500"])
    node.write(RANGE, "20000\t40000\n")
    after = {(setting, value) for _object, setting, _scope, value in changed(node.run(NETWORK, ports=["29500"]))}
    # 29500 is among those that are handed out now.
    assert after == {
        (f"tcp 20000-40000 from {NETWORK}", "accept"),
        (HANDED_OUT, None),
        (f"tcp 29500 from {NETWORK}", None),
    }
    assert not node.run(NETWORK, ports=["29500"]).as_dict()["changed"]


@pytest.mark.parametrize("files", [UFW_FILES, firewalld_file()], ids=["ufw", "firewalld"])
def test_rules_go_when_they_are_not_declared_any_more_though_devices_are(make: Make, files: Mapping[str, str]) -> None:
    node = make(files)
    before = {path: node.text(path) for path in files}
    node.run(NETWORK, NETWORK6)
    node.machine.run({"match": {"name": "mlx5_0"}, "roce_tos": 106})
    assert {path: node.text(path) for path in files} == before


@pytest.mark.parametrize("files", [UFW_FILES, firewalld_file()], ids=["ufw", "firewalld"])
def test_absent_takes_away_what_was_added_and_nothing_else(make: Make, files: Mapping[str, str]) -> None:
    node = make(files)
    before = {path: node.text(path) for path in files}
    node.run(NETWORK, ports=["29500"])
    node.absent()
    assert {path: node.text(path) for path in files} == before
    assert not node.machine.path(RECORD).exists()


def test_a_rule_that_was_there_before_stays(make: Make) -> None:
    node = make(firewalld_file(public={**zone(), "runtime": [RICH]}))
    assert changed(node.run(NETWORK)) == [("firewalld zone public", HANDED_OUT, "boot", "accept")]
    node.absent()
    assert (node.rules("runtime"), node.rules("permanent")) == ({"public": [RICH]}, {})


def test_absent_reaches_ufw_that_was_disabled_and_firewalld_that_was_stopped(make: Make) -> None:
    node = make({**UFW_FILES, **firewalld_file()})
    node.run(NETWORK)
    node.write("/etc/ufw/ufw.conf", "ENABLED=no\n")
    node.keep({**node.firewalld, "runs": False})
    node.absent()
    assert NETWORK not in node.text(RULES["iptables"])
    assert node.rules("permanent") == {}


def test_rules_of_ufw_that_was_removed_are_waited_for_while_its_file_has_them(make: Make) -> None:
    node = make(UFW_FILES)
    node.run(NETWORK)
    del node.machine.host.commands.programs["ufw"]
    outcome = node.absent().as_dict()
    assert outcome["needs"] == ["readback"]
    reason = "ufw is not installed, but its rules are still in /etc/ufw/user.rules; remove them there, or install it"
    assert outcome["pending_reasons"][0].endswith(reason)
    node.write(RULES["iptables"], "*filter\nCOMMIT\n")
    assert node.absent().as_dict()["needs"] == []
    assert not node.machine.host.files.exists(RECORD)


def test_absent_names_what_went_with_its_zone(make: Make) -> None:
    node = make(firewalld_file(internal=zone(active=True)))
    node.run(NETWORK)
    known = node.firewalld
    del known["zones"]["internal"]
    node.keep(known)
    outcome = node.absent().as_dict()
    assert [(one["object"], one["reason"]) for one in outcome["unmanaged"]] == [
        ("firewalld zone internal", "it no longer exists, and neither do its rules")
    ]
    assert node.rules("permanent") == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [("setting", "tcp 1-2"), ("setting", "udp 1 from 10.0.0.0/8"), ("effective", "drop"), ("boot", 1)],
)
def test_a_record_of_what_no_rule_was_is_damaged(make: Make, field: str, value: object) -> None:
    node = make(UFW_FILES)
    node.run(NETWORK)
    document = json.loads(node.text(RECORD))
    entry = next(one for one in document["values"] if one["identity"] == "ufw")
    entry[field] = value
    node.write(RECORD, json.dumps(document))
    with pytest.raises(CannotLook) as caught:
        node.absent()
    assert f"{RECORD}: the file is damaged" in str(caught.value)
    assert NETWORK in node.text(RULES["iptables"])


# --- chains of others -------------------------------------------------------------------------------------------------


def match(protocol: str, field: str, right: object, op: str = "==") -> Dict[str, Any]:
    return {"match": {"op": op, "left": {"payload": {"protocol": protocol, "field": field}}, "right": right}}


def key(name: str, value: str, right: object, op: str = "==") -> Dict[str, Any]:
    return {"match": {"op": op, "left": {name: {"key": value}}, "right": right}}


def prefix(address: str, length: int) -> Dict[str, Any]:
    return {"prefix": {"addr": address, "len": length}}


ACCEPT, DROP, COUNTER = {"accept": None}, {"drop": None}, {"counter": {"packets": 0, "bytes": 0}}
REJECT = {"reject": {"type": "icmpx", "expr": "admin-prohibited"}}
FROM = match("ip", "saddr", prefix("10.20.0.0", 16))
PORTS = match("tcp", "dport", {"range": [32768, 60999]})
KNOWN = [key("ct", "state", ["established", "related"], "in"), ACCEPT]


def chain(
    *rules: object, policy: str = "drop", family: str = "inet", table: str = "filter", name: str = "input"
) -> Any:
    place = {"family": family, "table": table, "name": name, "handle": 1}
    return {**place, "type": "filter", "hook": "input", "prio": 0, "policy": policy, "rules": list(rules)}


@pytest.mark.parametrize(
    "rule",
    [
        [FROM, PORTS, ACCEPT],
        [FROM, PORTS, COUNTER, ACCEPT],
        [FROM, ACCEPT],
        [PORTS, ACCEPT],
        [match("ip", "saddr", {"set": [prefix("10.16.0.0", 12), "10.99.0.1"]}), PORTS, ACCEPT],
        [FROM, match("tcp", "dport", {"set": [22, {"range": [1024, 65535]}]}), ACCEPT],
        [FROM, match("ip", "protocol", "tcp"), key("ct", "state", {"set": ["established", "new"]}), ACCEPT],
        [FROM, key("meta", "l4proto", {"set": ["tcp", "udp"]}), key("ct", "state", ["new", "related"], "in"), ACCEPT],
        [key("meta", "nfproto", "ipv4"), PORTS, ACCEPT],
    ],
)
def test_a_chain_with_a_rule_for_all_of_it_lets_jobs_in(make: Make, rule: object) -> None:
    node = make({})
    node.has_nft(chain([key("meta", "iifname", "lo"), ACCEPT], KNOWN, rule, [COUNTER, REJECT]))
    assert closed(node.run(NETWORK)) == []


@pytest.mark.parametrize(
    "rule",
    [
        [FROM, match("tcp", "dport", {"range": [40000, 60999]}), ACCEPT],
        [FROM, match("udp", "dport", {"range": [32768, 60999]}), match("ip", "protocol", "udp"), ACCEPT],
        [match("ip", "saddr", prefix("10.20.0.0", 17)), PORTS, ACCEPT],
        [match("ip", "saddr", "@cluster"), PORTS, ACCEPT],
        [match("ip6", "saddr", prefix("fd00::", 8)), PORTS, ACCEPT],
        [match("ip", "saddr", prefix("10.20.0.0", 16), "!="), PORTS, ACCEPT],
        [key("meta", "iifname", "eth0"), FROM, PORTS, ACCEPT],
        [FROM, key("ct", "state", {"set": ["established", "related"]}), ACCEPT],
        [FROM, PORTS, {"limit": {"rate": 3, "per": "minute"}}, ACCEPT],
        [FROM, PORTS, {"jump": {"target": "jobs"}}],
        [FROM, PORTS, DROP],
    ],
)
@pytest.mark.parametrize("end", ["policy", "rule"])
def test_a_chain_that_drops_them_is_named_with_the_rule_that_it_needs(make: Make, rule: object, end: str) -> None:
    node = make({})
    rules = [rule] if end == "policy" else [rule, [COUNTER, REJECT]]
    node.has_nft(chain(*rules, policy="drop" if end == "policy" else "accept"))
    node.sets = {("inet", "filter", "cluster"): {"elem": ["10.20.0.1", {"elem": {"val": "10.20.0.2", "timeout": 9}}]}}
    assert node.run(NETWORK).as_dict()["unmanaged"] == [
        {
            "object": "chain inet filter input",
            "setting": HANDED_OUT,
            "reason": "it may drop these connections, and neither firewalld nor ufw manages it; put at its top: "
            f"ip saddr {NETWORK} tcp dport 32768-60999 accept",
        }
    ]


FLAGS = {"payload": {"protocol": "tcp", "field": "flags"}}
NEW = key("ct", "state", "new", "in")


def flags(mask: List[str], right: object, op: str = "==") -> Dict[str, Any]:
    return {"match": {"op": op, "left": {"&": [FLAGS, {"|": mask}]}, "right": right}}


def vmap(asked: Mapping[str, Any], *pairs: object, data: object = None) -> Dict[str, Any]:
    return {"vmap": {"key": asked["match"]["left"], "data": data or {"set": list(pairs)}}}


# Each comes before a rule that lets all of it in, in a chain that lets in what is left.
@pytest.mark.parametrize(
    ("rule", "is_open"),
    [
        ([key("ct", "state", "invalid", "in"), DROP], True),
        ([vmap(key("ct", "state", ""), ["invalid", DROP], ["established", ACCEPT], ["related", ACCEPT])], True),
        ([vmap(key("ct", "state", ""), ["new", DROP], ["established", ACCEPT])], False),
        ([key("ct", "state", "established", "in"), DROP], False),
        ([flags(["fin", "syn", "rst", "ack"], "syn", "!="), NEW, DROP], True),
        ([flags(["fin", "syn"], {"|": ["fin", "syn"]}), DROP], True),
        ([{"match": {"op": "==", "left": FLAGS, "right": 0}}, DROP], True),
        ([{"match": {"op": "in", "left": FLAGS, "right": "syn"}}, DROP], False),
        ([flags(["syn"], "syn", "!="), DROP], False),
        ([match("tcp", "dport", 33000), DROP], False),
        ([match("tcp", "dport", 22, "!="), DROP], False),
        ([match("tcp", "dport", {"set": [22, {"range": [80, 443]}]}), REJECT], True),
        ([match("tcp", "dport", 1024, ">="), DROP], False),
        ([match("udp", "dport", 33000), DROP], True),
        ([match("udp", "dport", 22, "!="), DROP], True),
        ([match("tcp", "sport", {"range": [1, 1023]}), DROP], False),
        ([match("ip", "saddr", prefix("10.20.5.0", 24)), DROP], False),
        ([match("ip", "saddr", {"range": ["10.19.0.0", "10.20.0.9"]}), DROP], False),
        ([match("ip", "saddr", {"range": ["10.19.0.0", "10.19.255.255"]}), DROP], True),
        ([match("ip", "saddr", prefix("10.0.0.0", 8), "!="), DROP], True),
        ([match("ip6", "saddr", prefix("fd00::", 8), "!="), DROP], True),
        ([match("ip", "saddr", "@banned"), DROP], True),
        ([match("ip", "saddr", "@cluster"), DROP], False),
        ([match("ip", "daddr", prefix("224.0.0.0", 4)), DROP], True),
        ([match("ip", "daddr", "10.20.0.5"), DROP], False),
        ([key("meta", "iifname", "lo"), DROP], True),
        ([key("meta", "iifname", "lo", "!="), match("ip", "saddr", prefix("127.0.0.0", 8)), DROP], True),
        ([key("meta", "iifname", "eth0"), DROP], False),
        ([key("meta", "iifname", "eth0", "!="), DROP], False),
        ([key("meta", "pkttype", "multicast"), DROP], True),
        ([key("meta", "nfproto", "ipv6"), DROP], True),
        ([match("ip", "protocol", "tcp", "!="), DROP], True),
        ([match("icmp", "type", "echo-request"), DROP], True),
        (
            [
                {"match": {"op": "==", "left": {"fib": {"result": "type", "flags": "daddr"}}, "right": "broadcast"}},
                DROP,
            ],
            True,
        ),
        (
            [{"match": {"op": "==", "left": {"fib": {"result": "oif", "flags": ["saddr"]}}, "right": False}}, DROP],
            False,
        ),
        ([{"match": {"op": "==", "left": {"numgen": {"mode": "inc", "mod": 2}}, "right": 0}}, DROP], False),
        ([{"limit": {"rate": 5, "per": "second", "inv": True}}, DROP], False),
        ([{"ct count": {"val": 5, "inv": True}}, DROP], False),
        ([{"queue": {"num": 3}}], False),
        ([vmap(match("tcp", "dport", 0), data="@ports")], False),
        ([vmap(match("tcp", "dport", 0), [22, DROP], [{"range": [80, 443]}, {"jump": {"target": "all"}}])], True),
        ([{"jump": {"target": "all"}}], False),
        ([match("tcp", "dport", 22), {"jump": {"target": "all"}}], True),
        ([{"jump": {"target": "one"}}], False),
        ([{"goto": {"target": "none"}}], True),
        ([{"xt": {"type": "match", "name": "recent"}}, DROP], False),
        ([{"xt": {"type": "target", "name": "REJECT"}}], False),
        ([{"xt": {"type": "target", "name": "LOG"}}], True),
    ],
)
def test_what_a_rule_before_drops_does_not_come_in(make: Make, rule: object, is_open: bool) -> None:
    node = make({})
    regular = {"family": "inet", "table": "filter", "handle": 9}
    node.has_nft(
        chain(rule, [FROM, PORTS, ACCEPT], policy="accept"),
        {**regular, "name": "all", "rules": [[DROP]]},
        {
            **regular,
            "name": "one",
            "rules": [[match("tcp", "dport", 22), ACCEPT], [match("tcp", "dport", 33000), DROP]],
        },
        {**regular, "name": "none", "rules": [[match("tcp", "dport", 22), DROP]]},
    )
    node.sets = {
        ("inet", "filter", "cluster"): {"elem": ["1.2.3.4", {"elem": {"val": "10.20.0.2", "timeout": 9}}]},
        ("inet", "filter", "banned"): {"elem": ["1.2.3.4", {"elem": {"val": prefix("9.0.0.0", 8), "timeout": 9}}]},
        ("inet", "filter", "ports"): {"map": "verdict", "elem": [[22, ACCEPT], [33000, DROP]]},
    }
    assert closed(node.run(NETWORK)) == ([] if is_open else [("chain inet filter input", HANDED_OUT)])


@pytest.mark.parametrize(
    ("rule", "there", "is_open"),
    [
        ({"jump": {"target": "jobs"}}, [[FROM, PORTS, ACCEPT]], True),
        ({"goto": {"target": "jobs"}}, [[match("tcp", "dport", 22), {"return": None}], [PORTS, ACCEPT]], True),
        ({"jump": {"target": "jobs"}}, [[match("tcp", "dport", 33000), {"return": None}], [PORTS, ACCEPT]], False),
        ({"jump": {"target": "jobs"}}, [[{"return": None}], [PORTS, ACCEPT]], False),
        ({"goto": {"target": "jobs"}}, [], False),
        ({"jump": {"target": "jobs"}}, [[match("udp", "dport", {"range": [1, 65535]}), ACCEPT]], False),
        ({"jump": {"target": "jobs"}}, [[match("th", "dport", {"range": [1, 65535]}), ACCEPT]], True),
        ({"jump": {"target": "jobs"}}, [[match("ip", "saddr", "@cluster"), PORTS, ACCEPT]], True),
        # The first packet comes in, and no other.
        ({"jump": {"target": "jobs"}}, [[NEW, FROM, PORTS, ACCEPT]], False),
        ({"jump": {"target": "jobs"}}, [[NEW, FROM, PORTS, ACCEPT], KNOWN], True),
    ],
)
def test_where_a_chain_sends_them_they_come_in_or_not(
    make: Make, rule: object, there: List[object], is_open: bool
) -> None:
    node = make({})
    regular = {"family": "inet", "table": "filter", "name": "jobs", "handle": 9, "rules": there}
    accepts_after = [] if is_open or rule != {"goto": {"target": "jobs"}} else [[FROM, PORTS, ACCEPT]]
    node.has_nft(chain([rule], *accepts_after), regular)
    node.sets = {("inet", "filter", "cluster"): {"elem": [prefix("10.16.0.0", 12)]}}
    assert closed(node.run(NETWORK)) == ([] if is_open else [("chain inet filter input", HANDED_OUT)])


@pytest.mark.parametrize(
    ("line", "is_open"),
    [
        ("-p tcp -j DROP", False),
        ("-p udp -j DROP", True),
        ("! -p udp -j DROP", False),
        ("! -s 10.0.0.0/8 -j DROP", True),
        ("-s 10.20.5.0/24 -j REJECT --reject-with icmp-port-unreachable", False),
        ("-p tcp -m tcp --dport 22 -j DROP", True),
        ("-p tcp -m tcp ! --dport 22 -j DROP", False),
        ("-p tcp -m multiport --dports 22,33000:33010 -j DROP", False),
        ("-m conntrack --ctstate INVALID -j DROP", True),
        ("-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP", False),
        ("-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -m conntrack --ctstate NEW -j DROP", True),
        ("-p tcp -m tcp --tcp-flags FIN,SYN,RST,PSH,ACK,URG NONE -j DROP", True),
        ("-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j DROP", False),
        ("-s 127.0.0.0/8 ! -i lo -j DROP", True),
        ("! -i lo -j DROP", False),
        ("-i eth0 -j DROP", False),
        ("-m addrtype --dst-type BROADCAST -j DROP", True),
        ("-m pkttype --pkt-type multicast -j DROP", True),
        ("-m iprange --src-range 1.1.1.1-1.1.1.9 -j DROP", True),
        ("-m iprange --src-range 10.20.1.1-10.20.1.9 -j DROP", False),
        ("-p tcp -m connlimit --connlimit-above 10 --connlimit-mask 32 --connlimit-saddr -j REJECT", False),
        ("-m mark --mark 0x8000/0x8000 -j DROP", False),
        # By itself it matches who has a socket.
        ("-m socket -j DROP", False),
        ('-p udp -m comment --comment "-p tcp ! -j" -j DROP', True),
        ("-m limit --limit 5/min -j LOG --log-prefix dropped", True),
        ("-j NFQUEUE --queue-num 0", False),
        # As kubelet puts it there.
        ("-j KUBE-FIREWALL", True),
        ("-m conntrack --ctstate NEW -j ALL", False),
        ("-p tcp -m multiport --dports 22 -j ALL", True),
        ("-g ALL", False),
        ("-g KUBE-FIREWALL", True),
    ],
)
def test_what_a_rule_of_iptables_before_drops_does_not_come_in(make: Make, line: str, is_open: bool) -> None:
    node = make({})
    kubelet = (
        '-N KUBE-FIREWALL\n-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming '
        'localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n'
    )
    node.own_chains = {
        "iptables": f"-P INPUT ACCEPT\n-N ALL\n-A INPUT {line}\n-A INPUT -s {NETWORK} -p tcp -j ACCEPT\n",
        "KUBE-FIREWALL": kubelet,
        "ALL": "-N ALL\n-A ALL -j DROP\n",
    }
    node.host.commands.programs["iptables"] = node.iptables
    assert closed(node.run(NETWORK)) == ([] if is_open else [("chain INPUT of iptables", HANDED_OUT)])


@pytest.mark.parametrize("program", [None, "fails"])
def test_what_iptables_does_not_show_is_as_nft_shows_it(make: Make, program: Optional[str]) -> None:
    """iptables 1.8.11: chain `INPUT' in table `filter' is incompatible, use 'nft' tool."""
    node = make({})
    if program is not None:
        node.host.commands.programs["iptables"] = lambda argv: Completed(1, "", "chain `INPUT' is incompatible\n")
    unknown = [{"xt": {"type": "match", "name": "conntrack"}}, DROP]
    node.has_nft(chain(unknown, policy="accept", family="ip", name="INPUT"))
    assert closed(node.run(NETWORK)) == [("chain ip filter INPUT", HANDED_OUT)]


def test_the_table_of_a_chain_of_iptables_is_the_one_that_is_asked(make: Make) -> None:
    node = make({})
    node.own_chains = {"iptables": "-P INPUT DROP\n"}
    node.host.commands.programs["iptables"] = node.iptables
    node.has_nft(chain([{"xt": {"type": "match"}}, ACCEPT], family="ip", table="mangle", name="INPUT"))
    (one,) = node.run(NETWORK).as_dict()["unmanaged"]
    assert (one["object"], "run iptables -t mangle -I INPUT" in one["reason"]) == (
        "chain INPUT of iptables -t mangle",
        True,
    )
    assert ["iptables", "-w", "5", "-t", "mangle", "-S", "INPUT"] in [list(call) for call in node.host.commands.calls]


def test_a_rule_that_comes_after_all_was_dropped_lets_nobody_in(make: Make) -> None:
    node = make({})
    node.has_nft(chain([DROP], [FROM, PORTS, ACCEPT], policy="accept"))
    assert closed(node.run(NETWORK)) == [("chain inet filter input", HANDED_OUT)]


def test_only_chains_of_their_family_that_connections_come_through_count(make: Make) -> None:
    node = make({})
    forward = {**chain(name="forward"), "hook": "forward"}
    regular = {"family": "inet", "table": "filter", "name": "jobs", "handle": 9, "rules": [[DROP]]}
    node.has_nft(
        forward, regular, chain(family="ip6", table="six"), {**chain(name="nat"), "type": "nat"}, chain(policy="accept")
    )
    assert closed(node.run(NETWORK)) == []
    assert closed(node.run(NETWORK6)) == [("chain ip6 six input", f"tcp 32768-60999 from {NETWORK6}")]


def test_strict_makes_it_an_error(make: Make) -> None:
    node = make({})
    node.has_nft(chain())
    with pytest.raises(DeclarationError, match="chain inet filter input"):
        node.run(NETWORK, strict=True)


@pytest.mark.parametrize(
    ("files", "its_own"),
    [
        (UFW_FILES, chain(family="ip", name="INPUT")),
        (firewalld_file(), chain(table="firewalld", name="filter_INPUT")),
        (
            firewalld_file(),
            chain([{"jump": {"target": "INPUT_ZONES"}}, {"xt": {"type": "match"}}], family="ip", name="INPUT"),
        ),
    ],
)
def test_who_manages_a_firewall_answers_for_its_own_chains_alone(
    make: Make, files: Mapping[str, str], its_own: Any
) -> None:
    node = make(files)
    node.host.commands.programs["iptables"] = node.iptables
    node.own_chains = {"iptables": "-P INPUT ACCEPT\n-A INPUT -j INPUT_ZONES\n-A INPUT -j REJECT\n"}
    node.has_nft(its_own, chain(table="mine"))
    assert closed(node.run(NETWORK)) == [("chain inet mine input", HANDED_OUT)]


# As iptables-save writes what images of Oracle Cloud have.
ORACLE = """-P INPUT ACCEPT
-A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p icmp -j ACCEPT
-A INPUT -i lo -j ACCEPT
-A INPUT -p tcp -m state --state NEW -m tcp --dport 22 -j ACCEPT
{}-A INPUT -j REJECT --reject-with icmp-host-prohibited
"""


@pytest.mark.parametrize(
    ("line", "is_open"),
    [
        ("", False),
        (f"-A INPUT -s {NETWORK} -j ACCEPT\n", True),
        (f"-A INPUT -s {NETWORK} -p tcp -m tcp --dport 32768:60999 -j ACCEPT\n", True),
        (
            f'-A INPUT -s {NETWORK} -p tcp -m multiport --dports 443,1024:65535 -m comment --comment "a b" -j ACCEPT\n',
            True,
        ),
        ("-A INPUT -s 10.0.0.0/8 -p tcp -m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT\n", True),
        ("-A INPUT -s 10.0.0.0/8 -p tcp -m conntrack --ctstate ESTABLISHED -j ACCEPT\n", False),
        (f"-A INPUT ! -s {NETWORK} -p tcp -j ACCEPT\n", False),
        (f"-A INPUT -s {NETWORK} -i eth1 -p tcp -j ACCEPT\n", False),
        (f"-A INPUT -s {NETWORK} -p udp -j ACCEPT\n", False),
        (f"-A INPUT -s {NETWORK} -p tcp -m tcp --dport 32768:50000 -j ACCEPT\n", False),
        (f"-A INPUT -s {NETWORK} -p tcp -m tcp --dport 32768:60999 -j jobs\n", False),
    ],
)
@pytest.mark.parametrize("way", ["nft", "no nft", "apart"])
def test_chains_of_iptables_are_read_from_it(make: Make, line: str, is_open: bool, way: str) -> None:
    node = make({"/proc/net/ip_tables_names": "filter\n"} if way == "apart" else {})
    node.own_chains = dict.fromkeys(("iptables", "iptables-legacy"), ORACLE.format(line))
    node.host.commands.programs["iptables-legacy" if way == "apart" else "iptables"] = node.iptables
    if way != "no nft":
        rules = [
            [{"xt": {"type": "match", "name": "conntrack"}}, ACCEPT],
            [{"xt": {"type": "target", "name": "REJECT"}}],
        ]
        node.has_nft(*([chain(*rules, policy="accept", family="ip", name="INPUT")] if way == "nft" else []))
    outcome = node.run(NETWORK).as_dict()
    program = "iptables-legacy" if way == "apart" else "iptables"
    assert (
        outcome["unmanaged"] == []
        if is_open
        else [
            {
                "object": f"chain INPUT of {program}",
                "setting": HANDED_OUT,
                "reason": "it may drop these connections, and neither firewalld nor ufw manages it; "
                f"run {program} -I INPUT -s {NETWORK} -p tcp --dport 32768:60999 -j ACCEPT, and save the rules",
            }
        ]
    )


def test_a_policy_of_iptables_that_drops_is_one(make: Make) -> None:
    node = make({})
    node.own_chains = {"iptables": "-P INPUT DROP\n"}
    node.host.commands.programs["iptables"] = node.iptables
    assert closed(node.run(NETWORK)) == [("chain INPUT of iptables", HANDED_OUT)]


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (Completed(1, "", "netlink: Error: cache initialization failed: Operation not permitted\n"), "netlink: Error"),
        (Completed(0, "table inet filter {\n", ""), "it did not print JSON"),
        (Completed(0, "[]", ""), "it did not print JSON"),
    ],
)
def test_what_nft_does_not_say_is_unknown(make: Make, answer: Completed, cause: str) -> None:
    node = make({})
    node.host.commands.programs["nft"] = lambda argv: answer
    with pytest.raises(CannotLook) as caught:
        node.run(NETWORK)
    assert str(caught.value).startswith(f"Cannot read the firewall with nft -j list chains: {cause}")
