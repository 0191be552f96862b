# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hold of the container toolkit with dnf 5: its file, as libdnf5/rpm/versionlock_config.cpp reads and writes it."""

from __future__ import annotations

from typing import Dict, List, Sequence

import pytest

pytest.importorskip("ansible.plugins.action", reason="the controller's Ansible is not here")

from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.node.plugins.filter.dnf5_locks import dnf5_locks
from ansible_collections.gpufleet.node.plugins.module_utils._kinds.versionlock import names_of
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_text import parse

OURS = "gpufleet container_toolkit"
TOOLKIT = ("nvidia-container-toolkit", "libnvidia-container1")
# As ``dnf versionlock add`` writes it.
OTHERS = """version = "1.0"

[[packages]]
name = "bash"
comment = "Added by 'versionlock add' command on 2026-01-01 10:00:00"
[[packages.conditions]]
key = "evr"
comparator = "="
value = "0:5.2.15-5.fc39"
"""


def held(text: str, version: str = "0:1.18.1-1", packages: Sequence[str] = TOOLKIT) -> str:
    return dnf5_locks(text, list(packages), version, OURS)


def versions(text: str) -> Dict[str, List[str]]:
    """The versions to which dnf locks each package."""
    data = parse(text).data
    # Without it dnf passes over the file.
    assert data["version"] == "1.0"
    found: Dict[str, List[str]] = {}
    for entry in data["packages"]:
        (condition,) = entry["conditions"]
        assert (condition["key"], condition["comparator"]) == ("evr", "=")
        found.setdefault(entry["name"], []).append(condition["value"])
    return found


@pytest.mark.parametrize("before", ["", 'version = "1.0"\n', OTHERS, "# Nothing is read without a version.\n"])
def test_the_packages_are_held_in_that_version_beside_those_of_others(before: str) -> None:
    text = held(before)
    assert names_of(text) == [*names_of(before), *TOOLKIT]
    assert {name: versions(text)[name] for name in TOOLKIT} == {name: ["0:1.18.1-1"] for name in TOOLKIT}
    assert held(text) == text


def test_another_version_takes_the_place_of_the_former_one() -> None:
    after = versions(held(held(OTHERS), "0:1.19.0-1"))
    assert after == {"bash": ["0:5.2.15-5.fc39"], **{name: ["0:1.19.0-1"] for name in TOOLKIT}}


def test_what_is_released_leaves_the_file_of_others_as_it_was() -> None:
    assert held(held(OTHERS), "") == OTHERS
    assert held(OTHERS, "") == OTHERS
    # A lock of somebody else for the same package is theirs.
    theirs = OTHERS.replace("bash", TOOLKIT[0])
    assert versions(held(theirs))[TOOLKIT[0]] == ["0:5.2.15-5.fc39", "0:1.18.1-1"]
    assert held(held(theirs), "") == theirs


def test_a_file_that_dnf_cannot_read_either_is_named() -> None:
    with pytest.raises(AnsibleFilterError, match=r"Cannot parse /etc/dnf/versionlock\.toml"):
        held("= 1")
