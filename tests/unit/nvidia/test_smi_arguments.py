# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Command lines of nvidia-smi. Options and values are those of nvidia-smi(1) 550.163.01 of Debian 13."""

from __future__ import annotations

import shlex
from typing import List, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Identity
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.smi_arguments import parse, selects, switch

GPU = Identity(1, "GPU-f75f537c-e037-5b72-99d8-8f9a498c4324", "0000:17:00.0", "NVIDIA A30")


def said(line: str) -> List[Tuple[str, str]]:
    return [(one.setting, one.value) for one in parse(shlex.split(line))]


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("-pm 1", [("persistence mode", "1")]),
        ("--persistence-mode=DISABLED", [("persistence mode", "DISABLED")]),
        ("-pl 300", [("power limit", "300")]),
        ("--power-limit 300.5 --scope=GPU", [("power limit", "300.5")]),
        ("-c EXCLUSIVE_PROCESS", [("compute mode", "EXCLUSIVE_PROCESS")]),
        ("--compute-mode=3", [("compute mode", "3")]),
        ("-e 0", [("ECC", "0")]),
        ("--ecc-config=ENABLED", [("ECC", "ENABLED")]),
        ("-lgc 1200,1500 --mode=1", [("graphics clocks", "1200,1500")]),
        ("--lock-gpu-clocks=1200", [("graphics clocks", "1200")]),
        ("-i 0 -rgc", [("graphics clocks", "default")]),
        ("--reset-gpu-clocks", [("graphics clocks", "default")]),
        ("-lmc 1593,1593", [("memory clocks", "1593,1593")]),
        ("-rmc", [("memory clocks", "default")]),
        ("-mig 1", [("MIG mode", "1")]),
        ("--multi-instance-gpu=DISABLED", [("MIG mode", "DISABLED")]),
        ("compute-policy -i 0 --set-timeslice=2", [("time slice", "2")]),
        (
            "mig -cgi 19,14:4 -C",
            [("create GPU instances", "19,14:4"), ("create compute instances", "whole")],
        ),
        ("mig -i 0 --create-gpu-instance 1g.10gb", [("create GPU instances", "1g.10gb")]),
        ("mig -cci", [("create compute instances", "whole")]),
        ("mig -cci 0,1 -gi 2", [("create compute instances", "0,1")]),
        ("mig -dci", [("destroy compute instances", "")]),
        ("mig --destroy-gpu-instance", [("destroy GPU instances", "")]),
    ],
)
def test_what_a_line_sets(line: str, settings: List[Tuple[str, str]]) -> None:
    assert said(line) == settings
    assert not any(one.in_doubt for one in parse(shlex.split(line)) if "-gi" not in line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "-q",
        "-q -d POWER -i 0",
        "-L",
        "-h",
        "--query-gpu=persistence_mode,power.limit --format=csv",
        "--query-gpu persistence_mode --format=csv",
        "topo -m",
        "dmon -i 0 -pm 1",
        "mig -lgip",
        "mig -lgi",
        "mig -h",
        "compute-policy --list",
        "-am 1",
        "-ac 2500,745",
        "-r -i 0",
        "-pl 1000 --scope=1",
        "-pl 1000 -sc TOTAL_MODULE",
    ],
)
def test_a_query_and_what_is_not_managed_set_nothing(line: str) -> None:
    assert said(line) == []


@pytest.mark.parametrize(
    "line", ["-pm 1 -pl 300", "-ac 2500,745 -pl 300", "-lmcd 1593", "-rmcd", "mig -dgi -gi 1", "mig -dci -ci 0"]
)
def test_what_may_be_refused_or_takes_effect_later_is_in_doubt(line: str) -> None:
    assert [one.in_doubt for one in parse(shlex.split(line))] in ([True], [True, True])


def test_the_value_of_a_short_option_with_an_equals_sign_is_not_known() -> None:
    assert said("-pm=1") == [("persistence mode", "=1")]
    assert [switch(value) for value in ("=1", "enabled", "1", "ENABLED", "0", "DISABLED")] == [
        None,
        None,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("ids", "answer"),
    [
        ("", True),
        ("-i 1", True),
        ("-i 0,1", True),
        ("--id=1", True),
        ("-i 0", False),
        ("-i gpu-F75F537C-e037-5b72-99d8-8f9a498c4324", True),
        ("-i GPU-00000000-e037-5b72-99d8-8f9a498c4324", False),
        ("-i 00000000:17:00.0", True),
        ("-i 0000:31:00.0", False),
        ("-i '*'", None),
        ("-i 0,'*'", None),
        # The serial number of a board.
        ("-i 1320021012345", None),
    ],
)
def test_ids_select_gpus_by_index_uuid_and_bus_id(ids: str, answer: Optional[bool]) -> None:
    (one,) = parse(shlex.split(f"{ids} -pm 1"))
    assert selects(one.ids, GPU) is answer
