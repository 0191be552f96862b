# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Mapping, Set

import peers
import pytest
import runs

ANEW = {
    "fast0": "nmcli --wait 20 connection up storage",
    "old0": "ifdown old0; ifup old0",
}


def mtu(host: Any, interface: str) -> str:
    return str(host.file(f"/sys/class/net/{interface}/mtu").content_string.strip())


def others(host: Any) -> Set[int]:
    """The ports that somebody had opened before, now and not permanently."""
    return {7000} if host.backend.get_hostname() == "trixie" else set()


def is_confirmation(change: Mapping[str, Any]) -> bool:
    return change["setting"] == "connection"


def test_check_mode_predicted_what_was_done(host: Any) -> None:
    predicted, done = runs.predicted_and_done("converge.yml", host.backend.get_hostname())
    assert any(predicted.values())
    without = {task: [one for one in changes if not is_confirmation(one)] for task, changes in done.items()}
    assert predicted == without


def test_both_changes_had_a_way_back_and_were_confirmed(host: Any) -> None:
    # Nothing tells which card this connection passes.
    _predicted, done = runs.predicted_and_done("converge.yml", host.backend.get_hostname())
    confirmed = [one["object"] for changes in done.values() for one in changes if is_confirmation(one)]
    assert sorted(confirmed) == ["fast0", "old0"]
    assert host.check_output("systemctl list-units --plain --no-legend 'gpufleet-nic-settings-*'") == ""


@pytest.mark.parametrize("interface", sorted(ANEW))
def test_it_stays_where_its_owner_brings_it_up_anew(host: Any, interface: str) -> None:
    assert mtu(host, interface) == "9000"
    host.run_expect([0], ANEW[interface])
    assert mtu(host, interface) == "9000"


def test_it_stays_where_networkmanager_starts_anew(host: Any) -> None:
    host.run_expect([0], "systemctl restart NetworkManager.service && nm-online --quiet --timeout=20")
    assert "storage" in host.check_output("nmcli --terse --fields NAME connection show --active").splitlines()
    assert mtu(host, "fast0") == "9000"


def test_large_packets_reach_the_peer(host: Any) -> None:
    host.run_expect([0], "ping -c 1 -W 5 -M do -s 8972 10.1.0.2")


def test_the_files_of_the_owners_are_as_they_were(host: Any) -> None:
    files = "grep -E ' /etc/(network|NetworkManager)/' /root/before.sums"
    compared = host.run(f"{files} | sha256sum --quiet --check")
    assert (compared.rc, compared.stdout) == (0, "")


def test_jobs_connect_from_the_network_of_the_cluster_and_nobody_from_another(host: Any) -> None:
    # ufw has a rule that denies 40000, and ours comes before it.
    assert peers.reached(host, peers.OF_CLUSTER) == {29500, 40000} | others(host)
    assert peers.reached(host, peers.OF_OTHERS) == others(host)


def test_the_rules_stay_where_the_firewall_starts_anew(host: Any) -> None:
    unit = "firewalld" if host.backend.get_hostname() == "trixie" else "ufw"
    host.run_expect([0], f"systemctl restart {unit}.service")
    assert peers.reached(host, peers.OF_CLUSTER) == {29500, 40000}
    # Which takes what was not permanent along.
    if others(host):
        host.run_expect([0], "firewall-cmd --add-port=7000/tcp")
