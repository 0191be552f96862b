# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every file that a concern writes for another program is judged by it in a test that tools/written_files.yml names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Dict, List

import pytest
import yaml
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import CONCERNS, OTHER, PRESENT, Nodes
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)

ROOT = Path(__file__).resolve().parents[3]
ROWS: List[Dict[str, Any]] = yaml.safe_load((ROOT / "tools" / "written_files.yml").read_text(encoding="utf-8"))
# Files that only this collection reads, what the kernel has, and what the programs of a machine write there.
OURS = ("/etc/gpufleet/*", "/var/lib/gpufleet/*", "/run/*", "/proc/*", "/sys/*", "/dev/*", "/var/lib/dpkg/status")
# What programs of the machines write, and the engine that is made up for what all engines keep.
OTHERS = ("/var/lib/kubelet/cpu_manager_state", "/etc/docker/main.conf", "/etc/docker/conf.d/99-gpufleet.conf")
UNITS = "/etc/systemd/system/"
# The runs are the same for every judge.
WRITTEN: Dict[str, Dict[str, str]] = {}


def written(nodes: Nodes, concern: str) -> Dict[str, str]:
    """The regular files that two declarations one after the other write, with their texts."""
    if concern in WRITTEN:
        return WRITTEN[concern]
    node = nodes(concern)
    root = Path(node.host.files.root)
    before = snapshot(root, leave_out=("proc", "sys", "dev", "run"))
    found: Dict[str, str] = {}
    for verb in (PRESENT, OTHER):
        node.converge(verb)
        for path, entry in snapshot(root, leave_out=("proc", "sys", "dev", "run")).items():
            if entry[0] == "file" and before.get(path) != entry:
                found[f"/{path}"] = entry[2]
    WRITTEN[concern] = {path: text for path, text in found.items() if not any(fnmatchcase(path, ours) for ours in OURS)}
    return WRITTEN[concern]


def test_each_kind_of_file_names_a_judge_that_is_there_or_why_there_is_none() -> None:
    for row in ROWS:
        assert row["reader"], row
        assert bool(row.get("judges")) != bool(row.get("unjudged")), row["files"]
        for judge in row.get("judges", ()):
            path, _colons, test = judge.partition("::")
            assert not test or f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), judge
            assert (ROOT / path).exists(), judge
            # A test on machines without the program needs to say what its parser was made from.
            real = path.startswith("molecule/") or path == f"tests/unit/contract/{Path(__file__).name}"
            assert real or row.get("source"), f"{judge}: name the source"


@pytest.mark.parametrize("concern", CONCERNS)
def test_every_file_that_a_concern_writes_has_a_judge(nodes: Nodes, concern: str) -> None:
    patterns = [pattern for row in ROWS for pattern in row["files"]]
    paths = written(nodes, concern).keys() - set(OTHERS)
    assert [path for path in sorted(paths) if not any(fnmatchcase(path, pattern) for pattern in patterns)] == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
@pytest.mark.parametrize("concern", CONCERNS)
def test_systemd_accepts_every_unit_and_drop_in(nodes: Nodes, concern: str, tmp_path: Path) -> None:
    """A program of a unit may be missing here, and what a drop-in belongs to is a unit without lines."""
    units = []
    for path, text in written(nodes, concern).items():
        name = path[len(UNITS) :] if path.startswith(UNITS) and text else ""
        place = tmp_path / "units" / name
        unit = place.parent.with_suffix("") if "/" in name else place
        if not name:
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="latin-1")
        if not unit.exists():
            unit.write_text("[Service]\nExecStart=/bin/true\n" if unit.suffix == ".service" else "[Unit]\n")
        units.append(str(unit))
    if not units:
        return
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *dict.fromkeys(units)],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path / 'units'}:", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    assert [line for line in said.splitlines() if "is not executable" not in line] == []


@pytest.mark.skipif(shutil.which("findmnt") is None, reason="findmnt is not here")
@pytest.mark.parametrize("concern", ["node_swap"])
def test_findmnt_accepts_fstab(nodes: Nodes, concern: str, tmp_path: Path) -> None:
    place = tmp_path / "fstab"
    place.write_text(written(nodes, concern)["/etc/fstab"])
    said = subprocess.run(
        ["findmnt", "--verify", "--tab-file", str(place)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    ).stdout
    # The devices of its lines are not here.
    assert re.search(r"^0 parse errors", said, re.MULTILINE), said


@pytest.mark.parametrize("concern", ["job_environment"])
def test_the_shell_prints_for_slurm_what_is_declared(nodes: Nodes, concern: str, tmp_path: Path) -> None:
    """Slurm takes the lines ``export NAME=value`` that a task prolog prints."""
    script = tmp_path / "prolog.sh"
    script.write_text(written(nodes, concern)["/etc/slurm/gpufleet-task_prolog.sh"])
    said = subprocess.run(["sh", "-eu", str(script)], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.splitlines() != []
    assert all(line.startswith("export ") for line in said.stdout.splitlines())
