# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any, Dict, List

import peers


def test_the_rules_follow_what_the_kernel_hands_out(host: Any) -> None:
    # 29500 is among them now.
    others = {7000} if host.backend.get_hostname() == "trixie" else set()
    assert peers.reached(host, peers.OF_CLUSTER) == {25000, 29500} | others


def test_another_firewall_that_drops_them_is_named_with_the_rule_that_it_needs(host: Any) -> None:
    rule = "ip saddr 10.1.0.0/24 tcp dport 20000-29999 accept"
    host.run_expect([0], "nft add table inet mine")
    host.run_expect([0], "nft add chain inet mine input '{ type filter hook input priority 5; policy drop; }'")
    host.run_expect([0], "nft add rule inet mine input ct state established accept")
    try:
        assert peers.reached(host, peers.OF_CLUSTER) == set()
        assert [(one["object"], one["reason"].endswith(f": {rule}")) for one in unmanaged(host)] == [
            ("chain inet mine input", True)
        ]
        host.run_expect([0], f"nft add rule inet mine input {rule}")
        assert peers.reached(host, peers.OF_CLUSTER) == {25000, 29500}
        assert unmanaged(host) == []
    finally:
        host.run_expect([0], "nft delete table inet mine")


def unmanaged(host: Any) -> List[Dict[str, str]]:
    answer = json.loads(host.check_output("gpufleet status --json --concern rdma"))
    found: List[Dict[str, str]] = answer["concerns"]["rdma"]["unmanaged"]
    return found
