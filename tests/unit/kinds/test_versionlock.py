# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages dnf keeps in their versions, by what dnf5-versionlock(8) says of its file."""

from __future__ import annotations

from typing import List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook
from ansible_collections.gpufleet.node.plugins.module_utils._kinds.versionlock import names_of


def entry(name: str, *conditions: str) -> str:
    """An entry; a condition is a key, a comparator and a value."""
    made = (condition.split() for condition in conditions)
    return f'[[packages]]\nname = "{name}" # as dnf adds it\ncomment = "x"\n' + "".join(
        f'[[packages.conditions]]\nkey = "{key}"\ncomparator = "{comparator}"\nvalue = "{value}"\n'
        for key, comparator, value in made
    )


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("", []),
        ('version = "1.0"\n', []),
        (entry("bash", "evr = 0:5.2.15-5.fc39"), ["bash"]),
        (entry("*nvidia*", "evr >= 3:570", "evr < 3:571"), ["*nvidia*"]),
        (entry("a", "evr = 1", "arch = x86_64"), ["a"]),
        # What excludes one version, or none, lets others come.
        (entry("iftop", "evr != 0:1.0-0.31"), []),
        (entry("acpi", "evr >= 3"), []),
        (entry("acpi", "arch = x86_64"), []),
        (entry("acpi"), []),
        (entry("acpi") + entry("acpi", "evr = 3"), ["acpi"]),
        (entry("a", "evr == 1"), ["a"]),
        # What dnf does not understand keeps nothing out.
        (entry("a", "evr ~ 1"), []),
        (entry("a", "version = 1"), []),
        (entry("a", "version = 1", "evr < 2"), ["a"]),
        ('[[packages]]\nname = "a"\n[[packages.conditions]]\nkey = "evr"\ncomparator = "="\n', []),
        ('[[packages]]\nname = "a"\n[[packages.conditions]]\nvalue = "1"\n', []),
        # And so a file without a version, or with another.
        (f'version = "2.0"\n{entry("a", "evr = 1")}', []),
        # One of two entries has to be met.
        (entry("a", "evr = 1") + entry("a", "evr = 2"), ["a"]),
        (entry("a", "evr = 1") + entry("a", "evr != 2"), []),
    ],
)
def test_a_package_is_held_where_no_entry_leaves_its_version_open(text: str, held: List[str]) -> None:
    assert names_of(text if text.startswith("version") else f'version = "1.0"\n{text}') == held


def test_a_file_without_a_version_holds_nothing() -> None:
    assert names_of(entry("a", "evr = 1")) == []


@pytest.mark.parametrize("text", ["= 1", "packages = 3", "packages = [1]", '[[packages]]\ncomment = "x"\n'])
def test_a_file_that_dnf_would_not_read_either_is_refused(text: str) -> None:
    with pytest.raises(CannotLook, match=r"Cannot parse /etc/dnf/versionlock\.toml"):
        names_of(text)
