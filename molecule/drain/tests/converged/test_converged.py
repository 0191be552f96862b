# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import runs


def test_check_mode_predicted_what_was_done(host: Any) -> None:
    predicted, done = runs.predicted_and_done("converge.yml", host.backend.get_hostname())
    assert predicted
    assert predicted == done


def test_a_second_run_changed_nothing(host: Any) -> None:
    assert not any(runs.repeated("converge.yml", host.backend.get_hostname()).values())


def test_slurm_says_that_the_node_is_drained_and_why(host: Any) -> None:
    assert host.check_output("sinfo --noheader --format='%T|%E'") == "drained|gpufleet: new layout"


def test_the_journal_tells_of_it(host: Any) -> None:
    lines = host.check_output("journalctl --quiet --output=cat GPUFLEET_CONCERN=slurm_node").splitlines()
    name = host.backend.get_hostname()
    assert f"slurm_node: {name} state: in_service -> drained (effective)" in lines


def test_slurmctld_has_the_gpus_of_the_driver_with_their_links(host: Any) -> None:
    assert " Gres=gpu:a100:4 " in host.check_output("scontrol --oneliner show node")
    lines = host.file("/etc/slurm/gres.conf").content_string.splitlines()
    assert "Name=gpu File=/dev/nvidia0 Type=a100 Links=-1,4,4,4" in lines
    # slurmd tells on its standard error what it makes of the file.
    told = host.run("slurmd -G").stderr
    assert told.count("Type=a100") == 4
    assert "Links=-1,4,4,4" in told


def test_slurmctld_has_the_switches_of_the_inventory(host: Any) -> None:
    shown = host.check_output("scontrol show topology").splitlines()
    assert [line.partition(" LinkSpeed=")[0] for line in shown] == ["SwitchName=r1 Level=0", "SwitchName=spine Level=1"]
    assert shown[0].endswith(f" Nodes={host.backend.get_hostname()}")
    assert shown[1].endswith(" Switches=r1")
