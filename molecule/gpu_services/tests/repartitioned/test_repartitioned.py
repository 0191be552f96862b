# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any, List

# Of systemd's messages (sd-messages.h), which it writes for each unit.
STARTED, STOPPED = "39f53479d3a045ac8e11786248231fbf", "9d1aaa27d60140bd96365438aad20286"
VERBS = {STARTED: "started", STOPPED: "stopped"}
PAGE = 'import urllib.request as web; print(web.urlopen("http://127.0.0.1:9400/metrics").read().decode())'


def journal(host: Any, unit: str) -> List[List[str]]:
    """What systemd did with a unit since the marks of mig.yml: around the reset, and after that."""
    found: List[List[str]] = []
    for line in host.check_output("journalctl --quiet --output=json").splitlines():
        entry = json.loads(line)
        if entry.get("SYSLOG_IDENTIFIER") == "bed":
            found.append([])
        elif found and entry.get("UNIT") == unit and entry.get("MESSAGE_ID") in VERBS:
            found[-1].append(VERBS[entry["MESSAGE_ID"]])
    return found


def test_dcgm_was_stopped_and_started_once_by_each_change(host: Any) -> None:
    for unit in ("nvidia-dcgm.service", "nvidia-dcgm-exporter.service", "gpufleet-dcgm-health.service"):
        began = journal(host, unit)
        assert began == [["stopped", "started"], ["stopped", "started"]], unit


def test_dcgm_is_as_it_was_and_knows_the_new_instances(host: Any) -> None:
    assert host.check_output("systemctl is-active nvidia-dcgm nvidia-dcgm-exporter").split() == ["active"] * 2
    watched = host.check_output("dcgmi health --fetch").splitlines()
    assert sum("| On " in line for line in watched) == 6
    page = host.check_output(f"python3 -c '{PAGE}'").splitlines()
    shown = [line for line in page if line.startswith("DCGM_FI_DEV_GPU_TEMP{")]
    assert (len(shown), sum('GPU_I_PROFILE="1g.10gb"' in line for line in shown)) == (14, 7)


def test_one_gpu_was_reset(host: Any) -> None:
    gpus = json.loads(host.check_output("nvml-sim describe --json"))["gpus"]
    first, *others = [gpu["generation"] for gpu in gpus]
    assert (first, set(others)) == (others[0] + 1, {others[0]})
