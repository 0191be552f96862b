# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the package manager of a node says of the NVIDIA Container Toolkit. The nodes are named after their managers."""

from __future__ import annotations

from typing import Any, Dict

NAMES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
# Installed ones as NAME VERSION-RELEASE.
LISTS = {
    "apt": "dpkg-query --show --showformat '${db:Status-Abbrev} ${Package} ${Version}\\n' | sed -n 's/^.i *//p'",
    "dnf": "rpm --query --all --queryformat '%{NAME} %{VERSION}-%{RELEASE}\\n'",
}
UPGRADES = {"apt": "apt-get --yes upgrade", "dnf": "dnf --assumeyes upgrade"}


def versions(host: Any) -> Dict[str, str]:
    """The versions of its packages that are installed, by name."""
    listed = host.check_output(LISTS[host.backend.get_hostname()])
    found = dict(line.split() for line in listed.splitlines())
    return {name: found[name] for name in NAMES if name in found}


def all_in(version: str) -> Dict[str, str]:
    """What ``versions`` answers where all of them have this one."""
    return dict.fromkeys(NAMES, version)


def upgrade(host: Any) -> None:
    """Bring everything on the node to the newest version that is not held."""
    host.check_output(UPGRADES[host.backend.get_hostname()])
