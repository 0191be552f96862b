# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the VM bed decides before a machine runs. The machines are the matter of `make vm-test` and `make demo`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Optional

import pytest
from ansible_collections.gpufleet.node.tests.unit.repository.scripts import siblings

with siblings("tests/vm"):
    import bed
    import bed_host
    import bed_qemu

# A QEMU that answers on its monitor, and whose guest does what a test says with the firmware it gets.
QEMU = """#!{python}
import json, sys, time
arguments = sys.argv[1:]
if arguments == ["--version"]:
    print("QEMU emulator version {version} (Debian 1:{version}+dfsg-1)")
    sys.exit(0)
if "-bios" not in arguments:
    for line in sys.stdin:
        if json.loads(line)["execute"] == "quit":
            sys.exit(0)
assert open(arguments[arguments.index("-bios") + 1], "rb").read()[-16:-11] == bytes([0xEA, 0, 0, 0, 0xF0])
{guest}
"""


def have_qemu(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, version: str = "10.0.13", guest: str = "sys.exit(0)"
) -> Path:
    """Put a QEMU of this version before all others on PATH."""
    program = folder / "qemu-system-x86_64"
    program.write_text(QEMU.format(python=sys.executable, version=version, guest=guest))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return program


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
    have_qemu(tmp_path, monkeypatch, guest=guest)
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    monkeypatch.setattr(bed_qemu, "COUNTING_SECONDS", 1.5)
    assert bed_qemu.accelerator() == expected


@pytest.mark.parametrize(("version", "own"), [("10.0.13", True), ("11.1.0", True), ("9.2.4", False), ("7.2.22", False)])
def test_the_qemu_of_the_host_is_used_where_it_is_new_enough(
    version: str, own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = have_qemu(tmp_path, monkeypatch, version=version)
    monkeypatch.setattr(bed_qemu, "CACHE", tmp_path)
    if own:
        bed_qemu.ensure(mirror="http://nowhere.invalid")
        assert bed_qemu.words() == [str(program)]
    else:
        with pytest.raises(bed_host.BedError, match="Cannot find QEMU 10 or newer"):
            bed_qemu.words()


# Instead of mmdebstrap: an archive with what counts of the packages, or a mirror that is away. Instead of the loader,
# which is to start patchelf: what it was given.
MMDEBSTRAP = """#!{python}
import io, sys, tarfile
if "{mirror}" not in sys.argv:
    sys.exit("E: cannot reach the mirror")
loader = b'#!/bin/sh\\necho "$@" >>{given}\\n'
libraries = "usr/lib/x86_64-linux-gnu/"
with tarfile.open(sys.argv[-2], "w") as archive:
    files = dict.fromkeys(("usr/bin/patchelf", "usr/bin/qemu-system-x86_64", "usr/bin/qemu-system-i386"), b"")
    for name, content in {{libraries + "ld-linux-x86-64.so.2": loader, **files}}.items():
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), 0o755
        archive.addfile(member, io.BytesIO(content))
"""


def test_else_it_is_unpacked_once_and_started_by_its_own_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "given"
    have_qemu(tmp_path, monkeypatch, version="7.2.22")
    stand_in = MMDEBSTRAP.format(python=sys.executable, mirror="http://mirror.invalid", given=given)
    (tmp_path / "mmdebstrap").write_text(stand_in)
    (tmp_path / "mmdebstrap").chmod(0o755)
    monkeypatch.setattr(bed_qemu, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(bed_qemu, "require", lambda names: None)
    with pytest.raises(bed_host.BedError, match=r"(?s)Cannot take QEMU .*cannot reach the mirror"):
        bed_qemu.ensure(mirror="http://away.invalid")
    bed_qemu.ensure(mirror="http://mirror.invalid")
    program, *_firmware = bed_qemu.words()
    tree = Path(program).parents[2]
    assert Path(program).is_file()
    # It is told where its loader and its libraries are to be, before the tree is there.
    words = [line.split() for line in given.read_text().splitlines()]
    assert [line[3:5] for line in words] == [
        ["--force-rpath", "--set-rpath"],
        ["--set-interpreter", f"{tree}/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"],
    ]
    assert words[0][5] == f"{tree}/usr/lib/x86_64-linux-gnu:{tree}/lib/x86_64-linux-gnu"
    assert [line[-1] for line in words] == [f"{tree}.part/usr/bin/qemu-system-x86_64"] * 2
    # Another program of the packages would start with the libraries of this machine.
    assert [path.name for path in (tree / "usr" / "bin").iterdir()] == ["qemu-system-x86_64"]
    (tmp_path / "mmdebstrap").write_text("#!/bin/false\n")
    bed_qemu.ensure(mirror="http://mirror.invalid")


# --- whom a bed ends with ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kept_for", "ends"),
    [
        pytest.param(None, True, id="not_kept"),
        pytest.param("no_process", False, id="kept_by_itself"),
        pytest.param("another_process", False, id="kept_for_another_process"),
    ],
)
def test_a_bed_that_is_kept_outlives_the_process_that_it_was_to_end_with(
    kept_for: Optional[str], ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bed, "RUNS", tmp_path)
    monkeypatch.setattr(bed, "read_state", lambda name: None)
    down = []
    monkeypatch.setattr(bed, "down", lambda args: down.append(args.name))
    with subprocess.Popen(["true"]) as owner:
        pass
    watchers = []
    monkeypatch.setattr(bed.subprocess, "Popen", lambda command, **_options: watchers.append(command))
    (tmp_path / "node").mkdir()
    bed._follow("node", owner=owner.pid)
    if kept_for == "no_process":
        bed.main(["keep", "--name=node"])
    elif kept_for == "another_process":
        bed.main(["keep", "--name=node", f"--owner-pid={os.getpid()}"])
    # What was started for the first owner learns that it has ended.
    bed.main(watchers[0][2:])
    assert down == (["node"] if ends else [])
