# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Orders of services at boot, by systemd.unit(5) and systemd.target(5) of systemd 252 (Debian 12)."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Mapping, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._kinds.boot_order import last_word
from ansible_collections.gpufleet.node.plugins.module_utils._linux.boot_service import UNIT
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost

FOLDER = "/etc/systemd/system"
OURS = "[Unit]\nAfter=nvidia-persistenced.service\nBefore=kubelet.service\n[Service]\nType=oneshot\nExecStart=/x boot\n"


def unit(name: str, text: str, *, target: Optional[str] = "multi-user.target") -> Dict[str, str]:
    links = {f"{FOLDER}/{target}.wants/{name}": text} if target else {}
    return {f"{FOLDER}/{name}": text, **links}


def word(root: Path, *units: Mapping[str, str], owner: str = "tune.service", carrier: str = UNIT) -> str:
    files = {path: text for one in (unit(UNIT, OURS), *units) for path, text in one.items()}
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return last_word(RecordedHost(str(root)).files, owner, carrier)


def tune(order: str, *, kind: str = "oneshot", target: Optional[str] = "multi-user.target") -> Dict[str, str]:
    return unit("tune.service", f"[Unit]\n{order}\n[Service]\nType={kind}\nExecStart=/opt/tune\n", target=target)


@pytest.mark.parametrize(
    ("order", "target"),
    [
        (f"After={UNIT}", "multi-user.target"),
        (f"After=network.target {UNIT}", "graphical.target"),
        ("After=multi-user.target", "multi-user.target"),
        ("After=graphical.target", "graphical.target"),
    ],
)
def test_a_service_that_is_ordered_behind_ours_has_the_last_word(order: str, target: str, tmp_path: Path) -> None:
    graphical = {"/usr/lib/systemd/system/graphical.target": "[Unit]\nAfter=multi-user.target\n"}
    assert word(tmp_path, tune(order, target=target), graphical) == "them"


@pytest.mark.parametrize("order", ["", "After=nvidia-persistenced.service", "After=network-online.target"])
def test_services_without_an_order_are_not_known(order: str, tmp_path: Path) -> None:
    assert word(tmp_path, tune(order)) == "unknown"


@pytest.mark.parametrize(("enabled", "expected"), [(True, "them"), (False, "unknown")])
def test_an_order_by_a_third_service_holds_if_that_is_started(enabled: bool, expected: str, tmp_path: Path) -> None:
    kubelet = unit("kubelet.service", "[Service]\nExecStart=/k\n", target="multi-user.target" if enabled else None)
    assert word(tmp_path, tune("After=kubelet.service"), kubelet) == expected


@pytest.mark.parametrize(
    ("kind", "expected"), [("oneshot", "us"), ("forking", "us"), ("simple", "unknown"), ("idle", "unknown")]
)
def test_a_service_before_ours_loses_if_it_has_run_by_then(kind: str, expected: str, tmp_path: Path) -> None:
    assert word(tmp_path, tune(f"Before={UNIT}", kind=kind)) == expected


def test_a_drop_in_of_the_daemon_that_ours_waits_for_runs_before_ours(tmp_path: Path) -> None:
    daemon = unit("nvidia-persistenced.service", "[Service]\nType=forking\nExecStart=/usr/bin/nvidia-persistenced\n")
    assert word(tmp_path, daemon, owner="nvidia-persistenced.service") == "us"
    # Against the daemon itself it is the later one.
    assert word(tmp_path, owner="nvidia-persistenced.service", carrier="nvidia-persistenced.service") == "them"


@pytest.mark.parametrize(
    ("timer", "expected"),
    [
        ("OnCalendar=daily", "them"),
        ("OnBootSec=1min\nOnUnitActiveSec=1h", "them"),
        ("OnBootSec=5min", "unknown"),
        ("OnCalendar=daily\nUnit=other.service", "unknown"),
    ],
)
def test_a_timer_that_repeats_has_the_last_word_and_one_that_counts_from_boot_may(
    timer: str, expected: str, tmp_path: Path
) -> None:
    text = f"[Timer]\n{timer}\n"
    assert word(tmp_path, tune("", target=None), unit("tune.timer", text, target="timers.target")) == expected


def test_what_has_no_unit_is_not_ordered_and_wins_where_nothing_sets_the_declared_value(tmp_path: Path) -> None:
    assert word(tmp_path, owner="rc.local") == "unknown"
    assert word(tmp_path, owner="rc.local", carrier="") == "them"


def test_what_udev_starts_is_not_in_the_order_of_the_boot(tmp_path: Path) -> None:
    daemon = unit("nvidia-persistenced.service", "[Service]\nExecStart=/usr/bin/nvidia-persistenced\n", target=None)
    after = tune("After=nvidia-persistenced.service")
    assert word(tmp_path, after, daemon, carrier="nvidia-persistenced.service") == "unknown"
