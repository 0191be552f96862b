# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the VM bed decides before a machine runs. The machines are the matter of `make vm-test` and `make demo`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm"))

import bed_host

# A QEMU that answers on its monitor, and whose guest does what a test says with the firmware it gets.
QEMU = """#!{python}
import json, sys, time
arguments = sys.argv[1:]
if "-bios" not in arguments:
    for line in sys.stdin:
        if json.loads(line)["execute"] == "quit":
            sys.exit(0)
assert open(arguments[arguments.index("-bios") + 1], "rb").read()[-16:-11] == bytes([0xEA, 0, 0, 0, 0xF0])
{guest}
"""


@pytest.mark.parametrize(
    ("guest", "expected"),
    [
        pytest.param("sys.exit(3)", "kvm", id="guest_counts_at_once"),
        pytest.param("time.sleep(60)", "tcg", id="guest_is_interpreted"),
        pytest.param("sys.exit(1)", "tcg", id="no_processor_can_be_made"),
        pytest.param("sys.exit(0)", "tcg", id="guest_ends_without_counting"),
    ],
)
def test_kvm_counts_only_where_a_guest_runs_on_the_processor_itself(
    guest: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "qemu-system-x86_64"
    program.write_text(QEMU.format(python=sys.executable, guest=guest))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    monkeypatch.setattr(bed_host, "COUNTING_SECONDS", 1.5, raising=False)
    assert bed_host.accelerator() == expected
