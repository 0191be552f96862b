# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Holds by the real dpkg, on packages of the names and versions that NVIDIA and Ubuntu give them, made here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Dict, List, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.fabric_manager import holds
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.fabric_manager.daemons import FABRIC_MANAGER, IMEX

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="this system has no dpkg")

OLD, NEW = "570.158.01", "570.172.08"
LIBRARIES = "libnvidia-compute-570"
# The repository of CUDA has no epoch, Ubuntu's driver has revisions of its own, and 580 has no branch in the name.
PACKAGES = {
    "nvidia-fabricmanager-570": f"{OLD}-1",
    "nvlsm": "2025.03.1-1",
    "libnvidia-compute-570-server": f"{OLD}-0ubuntu0.24.04.1",
    "nvidia-kernel-common-570-server": f"1:{OLD}-0ubuntu0.24.04.1",
    "nvidia-container-toolkit": "1.17.8-1",
}


class Dpkg:
    """A database of its own, with packages that are made and installed in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("info", "updates"):
            (root / "var/lib/dpkg" / name).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()

    def install(self, packages: Dict[str, str]) -> None:
        files: List[str] = []
        for name, version in packages.items():
            control = self.root / "build" / f"{name}-{version.replace(':', '.')}" / "DEBIAN" / "control"
            control.parent.mkdir(parents=True)
            control.write_text(
                f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: a <a@example.org>\n"
                f"Description: {name}\n of a test\n"
            )
            files.append(f"{control.parent.parent}.deb")
            subprocess.run(["dpkg-deb", "-Znone", "--build", str(control.parent.parent), files[-1]], check=True)
        self._dpkg("--install", *files)

    def hold(self, names: Sequence[str]) -> None:
        """What ``apt-mark hold`` has dpkg do."""
        self._dpkg("--set-selections", text="".join(f"{name} hold\n" for name in names))

    def _dpkg(self, *arguments: str, text: str = "") -> None:
        command = ["dpkg", f"--root={self.root}", "--force-not-root", "--force-bad-path", *arguments]
        subprocess.run(command, input=text, encoding="utf-8", check=True, stdout=subprocess.DEVNULL)

    def found(self, names: Sequence[str], driver: Sequence[str]) -> Dict[str, bool]:
        status = (self.root / "var/lib/dpkg/status").read_text()
        return {one.name: one.held for one in holds.of_dpkg(status, names, driver)}


def test_the_daemons_packages_and_those_of_the_drivers_version_are_found_with_their_holds(tmp_path: Path) -> None:
    dpkg = Dpkg(tmp_path)
    dpkg.install(PACKAGES)
    names = FABRIC_MANAGER.packages
    loose = {name: False for name in sorted(PACKAGES) if name != "nvidia-container-toolkit"}
    assert dpkg.found(names, [OLD]) == loose
    dpkg.hold(["nvidia-fabricmanager-570", "nvlsm", "nvidia-container-toolkit"])
    assert dpkg.found(names, [OLD]) == {**loose, "nvidia-fabricmanager-570": True, "nvlsm": True}
    # Skew: the driver was upgraded alone. Its packages are of another version than the one that is held.
    dpkg.install({"libnvidia-compute-570-server": f"{NEW}-0ubuntu0.24.04.1"})
    assert "libnvidia-compute-570-server" not in dpkg.found(names, [OLD])
    assert "libnvidia-compute-570-server" in dpkg.found(names, [OLD, NEW])
    assert dpkg.found(IMEX.packages, []) == {}


def test_a_package_of_another_architecture_is_held_on_its_own() -> None:
    # As Ubuntu has them, whose driver recommends its libraries for i386 too.
    described = [("dpkg", "amd64"), (LIBRARIES, "amd64"), (LIBRARIES, "i386"), ("nvidia-firmware-570", "all")]
    status = "\n".join(
        f"Package: {name}\nStatus: install ok installed\nArchitecture: {architecture}\nVersion: {OLD}-1\n"
        for name, architecture in described
    )
    found = [one.name for one in holds.of_dpkg(status, FABRIC_MANAGER.packages, [OLD])]
    assert found == [LIBRARIES, f"{LIBRARIES}:i386", "nvidia-firmware-570"]


@pytest.mark.parametrize(
    ("version", "bare"),
    [
        ("570.158.01-1", OLD),
        ("1:570.158.01-0ubuntu0.24.04.1", OLD),
        ("570.158.01", OLD),
        ("2025.03.1-1", "2025.03.1"),
    ],
)
def test_a_version_is_compared_without_epoch_and_revision(version: str, bare: str) -> None:
    assert holds.upstream(version) == bare
