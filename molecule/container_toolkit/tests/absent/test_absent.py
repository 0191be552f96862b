# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import packages

# The repository goes, whoever declared it.
BEFORE = "grep -v /nvidia-container-toolkit.list /root/before.sums"


def test_no_package_is_left(host: Any) -> None:
    assert packages.versions(host) == {}


def test_no_version_is_held(host: Any) -> None:
    held = {"apt": "apt-mark showhold", "dnf": "grep -v '^#' /etc/dnf/plugins/versionlock.list || true"}
    assert host.check_output(held[host.backend.get_hostname()]).strip() == ""


def test_every_configuration_file_of_others_is_as_it_was(host: Any) -> None:
    compared = host.run(f"{BEFORE} | sha256sum --quiet --check")
    assert (compared.rc, compared.stdout) == (0, "")


def test_no_configuration_file_was_added(host: Any) -> None:
    known = host.check_output(f"{BEFORE} | cut -c67- | sort")
    assert host.check_output("find /etc -type f | sort") == known
