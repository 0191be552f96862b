# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tunables: what a file of the kernel says, and which line of whom counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._kinds import tunables
from ansible_collections.gpufleet.node.tests.unit.support import build

SWAPPINESS = "/proc/sys/vm/swappiness"


@pytest.mark.parametrize(
    ("text", "value", "choices"),
    [
        ("always [madvise] never\n", "madvise", ("always", "madvise", "never")),
        ("[none]\n", "none", ("none",)),
        ("60\n", 60, ()),
        ("-1\n", -1, ()),
        ("none\n", "none", ()),
        ("\n", "", ()),
    ],
)
def test_a_file_of_the_kernel_is_a_number_or_a_word_of_several(text: str, value: Any, choices: Any) -> None:
    assert tunables.parse_value(text) == (value, choices)


def test_a_word_that_the_kernel_does_not_offer_is_refused_and_a_number_is_not_known_to_be_wrong(tmp_path: Path) -> None:
    host = build(tmp_path, {"/sys/kernel/mm/one": "a [b]\n", SWAPPINESS: "60\n"})
    one, swappiness = (tunables.read(host.files, path, "vm") for path in ("/sys/kernel/mm/one", SWAPPINESS))
    assert one is not None
    assert swappiness is not None
    assert one.setting == "one"
    assert one.refusal("a") == ""
    assert one.refusal("c") == "this kernel knows only a, b"
    assert swappiness.refusal(10) == ""
    assert tunables.read(host.files, "/proc/sys/vm/none", "vm") is None


def test_of_sysctl_the_last_file_counts_at_boot_and_that_of_procps_only_later(tmp_path: Path) -> None:
    host = build(
        tmp_path,
        {
            "/etc/sysctl.d/90-b.conf": "vm.swappiness = 10\n",
            "/usr/lib/sysctl.d/99-a.conf": "# vendor\nvm/swappiness=30\n",
            "/etc/sysctl.conf": "vm.swappiness=1\n",
        },
    )
    found = tunables.read_sysctl(host.files, {"vm/swappiness": SWAPPINESS})
    assert [(line.owner, line.path, line.line, line.value, line.at_boot) for line in found] == [
        ("sysctl.d", "/usr/lib/sysctl.d/99-a.conf", 2, "30", True),
        ("sysctl.conf", "/etc/sysctl.conf", 1, "1", False),
    ]


def test_of_keys_that_are_one_tunable_the_last_line_counts(tmp_path: Path) -> None:
    host = build(tmp_path, {"/etc/sysctl.d/1.conf": "vm.a=1\nvm.b=2\n", "/etc/sysctl.d/2.conf": "vm.a=3\n"})
    assert [line.value for line in tunables.read_sysctl(host.files, {"vm/a": "/p", "vm/b": "/p"})] == ["3"]


def test_our_lines_for_tmpfiles_are_read_as_they_are_written() -> None:
    lines = [tunables.tmpfiles_line("/etc/tmpfiles.d/x.conf", SWAPPINESS, 10)]
    text = tunables.tmpfiles_text("# ours\n", lines)
    assert text == f"# ours\nw! {SWAPPINESS} - - - - 10\n"
    assert tunables.of_tmpfiles(lines[0]).value == "10"
    assert not tunables.of_tmpfiles(lines[0]).later
    assert tunables.tmpfiles_text("# ours\n", []) is None
