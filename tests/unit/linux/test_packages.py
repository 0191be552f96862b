# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages are installed."""

from __future__ import annotations

from ansible_collections.gpufleet.node.plugins.module_utils._linux.packages import DebPackage, of_dpkg

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
