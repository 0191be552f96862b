# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""tmpfiles.d as systemd-tmpfiles reads it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux import tmpfiles_d
from ansible_collections.gpufleet.node.tests.unit.support import build

ETC, RUN, LIB = "/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/lib/tmpfiles.d"
# The release from which on w+ counts only behind another w+.
STRICT_RELEASE = 251


def lines_of(text: str, kinds: str = "wfdz") -> Tuple[tmpfiles_d.TmpfilesLine, ...]:
    return tuple(tmpfiles_d.parse("a.conf", text, kinds))


# Lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("w /sys/a - - - - 1", ("w", "", "/sys/a", "1")),
        ("\tw!\t/sys/a  -\t-  - -   never \r", ("w", "!", "/sys/a", "never")),
        ("w+!- /sys/a - - - - 1", ("w", "+!-", "/sys/a", "1")),
        ("w /sys/a - - - - one two  three", ("w", "", "/sys/a", "one two  three")),
        ("w /sys/a - - - - 1 # one", ("w", "", "/sys/a", "1 # one")),
        # An argument has escapes and no quotes, the other fields have both.
        ('w /sys/a - - - - "1"', ("w", "", "/sys/a", '"1"')),
        (r"w /sys/a - - - - 1\x41\102\n\s", ("w", "", "/sys/a", "1AB\n ")),
        (r"w /sys/a - - - - caf\xc3\xa9\u00e9", ("w", "", "/sys/a", "caféé")),
        (r'w "/sys/a b"/\x63 - - - - 1', ("w", "", "/sys/a b/c", "1")),
        ("w '/sys/\"a' - - - - 1", ("w", "", '/sys/"a', "1")),
        ("w /sys/a%%b - - - - 5%%", ("w", "", "/sys/a%b", "5%")),
        ("w %t/a - - - - %S", ("w", "", "/run/a", "/var/lib")),
        # What depends on the machine stays.
        ("w /sys/a - - - - %b%", ("w", "", "/sys/a", "%b%")),
        ("w~ /sys/a - - - - MQ==", ("w", "~", "/sys/a", "MQ==")),
        ("w /sys//a/./b/ - - - - 1", ("w", "", "/sys/a/b", "1")),
        ("w /var/run/a - - - - 1", ("w", "", "/run/a", "1")),
        ("f /run/a", ("f", "", "/run/a", None)),
        ("d /run/a 0755 root root 10d -", ("d", "", "/run/a", None)),
        # Refused.
        ("w /sys/a - - - - -", None),
        ("w /sys/a", None),
        ("w", None),
        ("w sys/a - - - - 1", None),
        ('w "" - - - - 1', None),
        ("w* /sys/a - - - - 1", None),
        ("w++ /sys/a - - - - 1", None),
        (r"w /sys/a - - - - \q", None),
        (r"w /sys/a - - - - \x00", None),
        ('w "/sys/a - - - - 1', None),
        # Not one of ours.
        ("# w /sys/a - - - - 1", None),
        ("; w /sys/a - - - - 1", None),
        ("L /sys/a - - - - /b", None),
        ("", None),
    ],
)
def test_a_line_has_a_kind_a_path_and_an_argument(text: str, expected: Optional[Tuple[str, ...]]) -> None:
    found = [(line.kind, line.modifiers, line.target, line.argument) for line in lines_of(text)]
    assert found == ([expected] if expected else [])


def test_the_other_fields_are_as_they_are_written() -> None:
    found = lines_of("d /run/a 0755 root - 10d\nd /run/b\n")
    assert [line.attributes for line in found] == [("0755", "root", "-", "10d"), ("-", "-", "-", "-")]


def test_lines_have_their_numbers_and_none_goes_on_in_the_next() -> None:
    found = lines_of("# \x0c\u2028w /sys/x - - - - 1\n\nw /sys/a \\\n - - - - 1\nw /sys/b - - - - 2\n")
    assert [(line.number, line.target) for line in found] == [(5, "/sys/b")]


# Which line counts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("w /a - - - - 1\nw /a - - - - 2\n", [1], id="the first for a path"),
        pytest.param("w //a/ - - - - 1\nw /a - - - - 2\n", [1], id="in whatever form it is written"),
        pytest.param("w /a - - - - 1\nw /a - - - - 1\n", [1, 2], id="equal ones are no conflict"),
        pytest.param("w /a 0644 - - - 1\nw /a - - - - 1\n", [1], id="equal in everything"),
        pytest.param("w /a - - - - 1\nw /* - - - - 2\n", [1, 2], id="a glob is another path"),
        pytest.param("w! /a - - - - 1\nw /a - - - - 2\n", [1], id="at boot, one for the boot is the first"),
        pytest.param("w+ /a - - - - 1\nw!+ /a - - - - 2\n", [1, 2], id="those that append all count"),
        pytest.param("w+ /a - - - - 1\nw /a - - - - 2\n", [1], id="but none behind them that does not"),
        pytest.param("w /a - - - - 1\nf /a - - - - 2\n", [2, 1], id="what takes globs comes later"),
        pytest.param("f /a - - - - 1\nd /a\n", [1], id="one path is one thing"),
        pytest.param("z /a 0600\nw /a - - - - 1\n", [2, 1], id="writing before adjusting"),
        pytest.param(
            "w /a - - - - 1\nw /b - - - - 2\nw+ /a - - - - 3\n", [1, 3, 2], id="those for one path are together"
        ),
    ],
)
def test_what_is_carried_out_and_in_which_order(text: str, expected: Sequence[int]) -> None:
    assert [line.number for line in tmpfiles_d.in_effect(lines_of(text))] == expected


def test_a_later_run_knows_nothing_of_lines_for_the_boot() -> None:
    lines = lines_of("w! /a - - - - 1\nw /a - - - - 2\n")
    assert [line.boot_only for line in lines] == [True, False]
    later = tmpfiles_d.in_effect(line for line in lines if not line.boot_only)
    assert [line.argument for line in later] == ["2"]


# Files


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            {f"{ETC}/20-b.conf": "w /a - - - - 2\n", f"{LIB}/10-a.conf": "w /a - - - - 1\n"},
            "1",
            id="the earliest name, whatever the folder",
        ),
        pytest.param(
            {f"{ETC}/10-a.conf": "w /a - - - - 2\n", f"{LIB}/10-a.conf": "w /a - - - - 1\n"},
            "2",
            id="of equal names the stronger folder",
        ),
        pytest.param(
            {f"{RUN}/10-a.conf": "# nothing\n", f"{LIB}/10-a.conf": "w /a - - - - 1\n"}, None, id="also to say nothing"
        ),
        pytest.param(
            {f"{LIB}/b.conf": "w /a - - - - 1\n", f"{LIB}/B.conf": "w /a - - - - 2\n"}, "2", id="in the order of bytes"
        ),
    ],
)
def test_of_several_files_one_counts(tmp_path: Path, files: Dict[str, str], expected: Optional[str]) -> None:
    texts = tmpfiles_d.read_texts(build(tmp_path, files).files)
    lines = [line for path, text in texts.items() for line in tmpfiles_d.parse(path, text, tmpfiles_d.WRITE)]
    assert [line.argument for line in tmpfiles_d.in_effect(lines)] == ([expected] if expected else [])


def test_a_link_to_dev_null_masks_a_file(tmp_path: Path) -> None:
    host = build(tmp_path, {f"{LIB}/a.conf": "w /a - - - - 1\n"}, {f"{ETC}/a.conf": "/dev/null"})
    assert tmpfiles_d.read_texts(host.files) == {}


def real_release(program: str) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"systemd (\d+)", said)
    return int(found[1]) if found else 0


def test_the_systemd_of_this_machine_comes_to_the_same(tmp_path: Path) -> None:
    program = shutil.which("systemd-tmpfiles")
    if program is None or real_release(program) < STRICT_RELEASE:
        pytest.skip(f"no systemd-tmpfiles of release {STRICT_RELEASE} or later here")
    names = "abcdefghijklmno"
    files = {
        f"{LIB}/20-x.conf": "w /t/a - - - - lib\nw /t/b - - - - one\nw /t/b - - - - two\nw! /t/c - - - - boot\n"
        'w /t/d - - - - "q" # x\nw /t/e - - - - \\q\nw "/t/f" - - - - \\x41%%b\nw /t/g - - - - -\nw /t/h\n'
        "w* /t/i - - - - 1\nw /t/j \\\n - - - - 1\nw /t//k/ - - - - 1\nw /t/[l] - - - - 0\nw /t/l - - - - 1\n"
        "w /t/m - - - - 1\n",
        f"{ETC}/30-y.conf": "w /t/a - - - - etc\nw /t/c - - - - later\n",
        f"{ETC}/10-z.conf": "w /t/n - - - - etc\nf /t/n - - - - created\n",
        f"{LIB}/10-z.conf": "w /t/o - - - - hidden\n",
        # Empty, since what is written over a longer text leaves the end of that.
        **{f"/t/{name}": "" for name in names},
    }
    host = build(tmp_path, files)
    expected = dict.fromkeys(names, "")
    lines: List[tmpfiles_d.TmpfilesLine] = []
    for path, text in tmpfiles_d.read_texts(host.files).items():
        lines.extend(tmpfiles_d.parse(path, text, "wf"))
    for line in tmpfiles_d.in_effect(lines):
        if line.kind == "w":
            expected[line.target[3:].strip("[]")] = line.argument or ""
    subprocess.run([program, f"--root={tmp_path}", "--create", "--boot"], capture_output=True, check=False)
    assert {name: (tmp_path / "t" / name).read_text() for name in names} == expected
