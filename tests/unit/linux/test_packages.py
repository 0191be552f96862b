# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux.packages import DPKG, DebPackage, declared, of_dpkg
from ansible_collections.gpufleet.node.tests.unit.support import build

# As dpkg 1.21 of Debian 12 writes it, shortened.
STATUS = """\
Package: adduser
Status: install ok installed
Architecture: all
Version: 3.134
Description: add and remove users and groups
 Version: of nothing

Package: docker.io
Status: deinstall ok config-files
Architecture: amd64
Version: 20.10.24+dfsg1-1

Package: libnvidia-cfg1-570
Status: hold ok installed
Architecture: i386
Multi-Arch: same
Version: 570.158.01-1

Package: podman
Status: install reinstreq half-installed
Version: 4.3.1+ds1-8
"""


def test_only_what_is_installed_counts_and_what_is_said_of_it() -> None:
    held = DebPackage("libnvidia-cfg1-570", "570.158.01-1", "i386", "hold")
    assert list(of_dpkg(STATUS, ("adduser", "docker.io", "podman", "add"))) == [
        DebPackage("adduser", "3.134", "all", "install")
    ]
    assert list(of_dpkg(STATUS, (), ("libnvidia-", "docker"))) == [held]
    assert list(of_dpkg(STATUS)) == list(of_dpkg("", ("adduser",))) == []


def test_a_name_that_an_installed_package_provides_is_there(tmp_path: Path) -> None:
    text = STATUS.replace("Architecture: all\n", "Architecture: all\nProvides: users (= 3), groups, groups-tools\n")
    host = build(tmp_path, {DPKG: text.replace("20.10", "20.10\nProvides: engine")})
    names = ("users", "groups", "groups-tools", "group", "tools", "engine", "users=3")
    found = {one.name + one.version: one.found is not None for one in declared(host, names)}
    assert [name for name, there in found.items() if there] == ["users", "groups", "groups-tools"]


class Rpm:
    """rpm of a machine with two packages."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, argv: Sequence[str]) -> Completed:
        self.calls += 1
        assert argv[:2] == ["rpm", "-q"]
        words = list(argv[2:])
        if words[0] == "--whatprovides":
            there = words[1] == "virtual"
            return Completed(0 if there else 1, "" if there else f"no package provides {words[1]}\n", "")
        lacking = [one for one in words if one not in ("dcgm-core", "dcgm-core-4.5.3-1", "exporter")]
        return Completed(len(lacking), "".join(f"package {one} is not installed\n" for one in lacking), "")


def test_rpm_is_asked_once_where_all_is_there_and_for_each_where_not(tmp_path: Path) -> None:
    host, rpm = build(tmp_path, {}), Rpm()
    host.commands.programs["rpm"] = rpm
    assert [one.found for one in declared(host, ["dcgm-core", "dcgm-core-1:4.5.3-1", "@group", "x-*"])] == [
        "installed"
    ] * 2
    assert rpm.calls == 1
    found = {one.name: one.found for one in declared(host, ["exporter", "virtual", "dcgm-core-4.6.0"])}
    assert found == {"exporter": "installed", "virtual": "installed", "dcgm-core-4.6.0": None}


def test_an_rpm_that_fails_is_not_taken_for_a_package_that_is_missing(tmp_path: Path) -> None:
    host = build(tmp_path, {})
    host.commands.programs["rpm"] = lambda _argv: Completed(1, "", "error: cannot open Packages database\n")
    with pytest.raises(CannotLook, match="Cannot ask rpm for packages: error: cannot open Packages database"):
        declared(host, ["dcgm-core"])


def test_without_a_package_manager_nothing_is_compared(tmp_path: Path) -> None:
    assert declared(build(tmp_path, {}), ["dcgm-core"]) == ()
