# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IMEX on the compute nodes of a rack, and the files of both daemons as text. Daemon and tool are stand-ins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.fabric_manager import imex, key_values
from ansible_collections.gpufleet.node.tests.unit.concerns.fabric_manager.fabric_machine import (
    FM_UNIT,
    GB200,
    IMEX_CFG,
    IMEX_TEXT,
    IMEX_UNIT,
    NODES_CFG,
    PCIE,
    WANTS,
    FabricMachine,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

NODES = ["192.0.2.11", "192.0.2.12", "192.0.2.13"]
DECLARED: Dict[str, Any] = {"imex_nodes": NODES, "imex_config": {"IMEX_CMD_ENABLED": True}}
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"


def test_a_rack_gets_its_nodes_and_no_fabric_manager_and_gives_all_back(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, GB200, running=False, enabled=False)
    before = machine.read(NODES_CFG)
    machine.run(**DECLARED)
    assert machine.read(NODES_CFG) == "192.0.2.11\n192.0.2.12\n192.0.2.13\n"
    assert machine.read(IMEX_CFG) == IMEX_TEXT.replace("CMD_ENABLED=0", "CMD_ENABLED=1")
    assert machine.path(f"{WANTS}/{IMEX_UNIT}").is_symlink()
    assert not machine.path(f"{WANTS}/{FM_UNIT}").is_symlink()
    assert machine.run(**DECLARED).status == "in_sync"
    machine.run(state="absent")
    assert (machine.read(NODES_CFG), machine.read(IMEX_CFG)) == (before, IMEX_TEXT)
    assert machine.systemd.running(IMEX_UNIT) is None


def test_other_nodes_are_pending_until_it_is_started_anew(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, GB200)
    machine.run(**DECLARED)
    outcome = machine.run(**DECLARED)
    assert (outcome.status, outcome.remaining.needs) == ("pending", ("restart_imex",))
    machine.systemd._restart(IMEX_UNIT)
    assert machine.run(**DECLARED).status == "in_sync"


def test_the_same_nodes_with_comments_are_no_difference_and_another_order_is(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, GB200, running=False)
    commented = "# rack 7\n192.0.2.11\n\n192.0.2.12  # us\n192.0.2.13\n"
    machine.write(NODES_CFG, commented)
    machine.run(**DECLARED)
    assert machine.read(NODES_CFG) == commented
    machine.run(**{**DECLARED, "imex_nodes": NODES[::-1]})
    assert machine.read(NODES_CFG) == "192.0.2.13\n192.0.2.12\n192.0.2.11\n"
    machine.run(state="absent")
    assert machine.read(NODES_CFG) == commented


def test_it_is_left_alone_where_no_nodes_are_declared(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, GB200)
    outcome = machine.run(service="required")
    assert machine.systemd.running(IMEX_UNIT)
    assert machine.path(f"{WANTS}/{IMEX_UNIT}").is_symlink()
    assert [entry.reason for entry in outcome.remaining.unmanaged] == ["imex_nodes is not declared"]


def test_it_is_out_of_the_way_on_a_machine_that_is_in_no_rack(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, PCIE, running=False, enabled=False)
    machine.systemd._enable(IMEX_UNIT)
    machine.run(**DECLARED, service="if_needed")
    assert not machine.path(f"{WANTS}/{IMEX_UNIT}").is_symlink()
    assert machine.read(NODES_CFG) == "# one address a line\n"


def answer(status: str, *nodes: str) -> Completed:
    listed = {str(n): {"status": state, "host": f"192.0.2.{11 + n}"} for n, state in enumerate(nodes)}
    return Completed(0, json.dumps({"status": status, "nodes": listed}), "")


DOMAINS: Dict[str, Tuple[Completed, Optional[str], str]] = {
    "up": (answer("UP", "READY", "READY"), "UP", ""),
    "degraded": (answer("DEGRADED", "READY", "UNAVAILABLE"), "DEGRADED (192.0.2.12 is UNAVAILABLE)", ""),
    "hangs": (
        Completed(124, "", ""),
        None,
        "nvidia-imex-ctl did not respond within 10 s; another node may not be responding",
    ),
    "fails": (Completed(1, "", "Error: no daemon\n"), None, "nvidia-imex-ctl exited with 1: Error: no daemon"),
    "garbage": (Completed(0, "[]", ""), None, "nvidia-imex-ctl exited with 0: []"),
}


@pytest.mark.parametrize(("said", "words", "unknown"), DOMAINS.values(), ids=DOMAINS)
def test_the_domain_is_what_its_tool_says(tmp_path: Path, said: Completed, words: Optional[str], unknown: str) -> None:
    machine = FabricMachine(tmp_path, GB200, running=False)
    machine.run(**DECLARED)
    machine.domain = said
    outcome = machine.run(**DECLARED)
    assert outcome.effective["imex_domain"] == words
    assert [entry.reason for entry in outcome.remaining.unmanaged] == ([unknown] if unknown else [])
    assert outcome.remaining.needs == (("imex_peers",) if words and words != "UP" else ())


def test_a_domain_that_nobody_may_ask_for_is_not_asked_for(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, GB200, running=False)
    machine.run(imex_nodes=NODES)
    outcome = machine.run(imex_nodes=NODES)
    assert machine.asked("nvidia-imex-ctl") == 0
    assert "set IMEX_CMD_ENABLED: 1 in imex_config" in outcome.remaining.unmanaged[0].reason


def test_the_channel_is_checked_and_names_the_parameter_that_makes_it(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, GB200, running=False)
    with pytest.raises(GpuFleetError) as refused:
        machine.run(**DECLARED, imex_channel=True)
    assert str(refused.value) == (
        f"Cannot keep {CHANNEL} across a reboot: nothing loads the driver with NVreg_CreateImexChannel0=1. Set "
        "NVreg_CreateImexChannel0 to 1 for nvidia in kernel_modules_parameters, or set imex_channel: false."
    )
    # All else was done.
    assert machine.systemd.running(IMEX_UNIT)
    machine.write("/etc/modprobe.d/gpufleet.conf", "options nvidia NVreg_CreateImexChannel0=1\n")
    outcome = machine.run(**DECLARED, imex_channel=True)
    assert (outcome.remaining.status, outcome.remaining.needs) == ("pending", ("reboot",))
    machine.write(CHANNEL, "")
    assert machine.run(**DECLARED, imex_channel=True).status == "in_sync"


def test_the_version_of_imex_is_held_against_that_of_the_driver(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, GB200)
    machine.install_daemon("570.86.15", "nvidia-imex")
    message = machine.refused(**DECLARED)
    assert "Cannot run IMEX (nvidia-imex): its version is 570.86.15" in message


# --- the files as text ---


LINES = st.lists(
    st.one_of(
        st.builds(
            lambda key, gap, value: f"{key}{gap}={gap}{value}",
            st.sampled_from("ABC"),
            st.sampled_from(["", " "]),
            st.sampled_from(["", "1", "x y", "/a=b"]),
        ),
        st.sampled_from(["", "# A=5", "[section]", "  "]),
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(LINES, st.booleans(), st.dictionaries(st.sampled_from("ABCD"), st.sampled_from(["1", "2", "x"]), max_size=3))
def test_what_was_changed_and_changed_back_is_the_same_byte_for_byte(
    lines: List[str], ended: bool, values: Dict[str, str]
) -> None:
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    if key_values.contradictions(text):
        return
    before = key_values.values_of(text)
    new = key_values.changed(text, values)
    assert key_values.values_of(new) == {**before, **values}
    assert key_values.changed(new, {key: before.get(key) for key in values}) == text


@pytest.mark.parametrize("text", ["A = ", "A=\t\n", "A= 2 \nB=1", "A=2\r\nB=1\r\n"])
def test_blanks_around_a_value_stay_when_it_comes_and_goes(text: str) -> None:
    before = key_values.values_of(text)
    new = key_values.changed(text, {"A": "1"})
    assert key_values.values_of(new) == {**before, "A": "1"}
    assert key_values.changed(new, {"A": before["A"]}) == text


@example('"\n')
@example("1, 9\n")
@given(st.text(alphabet='19.:#\n" ,a', max_size=20))
def test_a_file_of_nodes_is_the_same_after_it_was_described(text: str) -> None:
    assert imex.text_of(imex.describe(text)) == text
