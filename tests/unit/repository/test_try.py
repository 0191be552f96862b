# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What strangers run first: `make try`, on one node of its fleet, and the chapters of `make demo` by their names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.gpufleet.node.tests.unit.repository.scripts import siblings

with siblings("tests/try"):
    import fleet

TESTS = Path(__file__).resolve().parents[2]


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.once
def test_the_fleet_to_try_is_converged_and_a_changed_value_is_named(tmp_path: Path) -> None:
    pytest.importorskip("ansible.plugins.action", reason="playbooks need Ansible's controller, Python 3.11")
    done = run(TESTS / "try" / "fleet.py", "--nodes", "l40s-01", "--folder", str(tmp_path / "fleet"))
    assert done.returncode == 0, done.stdout
    assert "simulated" in done.stdout
    assert (tmp_path / "fleet" / "report" / "gpufleet-report.html").exists()


def test_without_a_compiler_the_fleet_to_try_has_no_gpus_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "no-compiler"))
    made = fleet.Fleet(tmp_path, ["l40s-01"], library=fleet.simulated_driver(tmp_path))
    said = "There is no C compiler (gcc, libc6-dev) to build the simulated GPUs: continuing without GPUs."
    assert said in capsys.readouterr().out
    assert '"with_gpus": {"hosts": {}}' in (made.folder / "hosts.yml").read_text(encoding="utf-8")


def test_a_chapter_that_the_demonstration_does_not_have_is_refused_with_those_that_it_has() -> None:
    done = run(TESTS / "vm" / "demo.py", "--chapter", "contaniers")
    assert done.returncode == 2
    # With quotes or without them, by the release of Python.
    names = re.findall(r"\w+", done.stdout.partition("choose from")[2])
    assert names == ["containers", "mig", "reboot", "batches", "remove", "all"], done.stdout
