# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any


def test_every_file_is_as_it_was(host: Any) -> None:
    compared = host.run("sha256sum --quiet --check /root/converged.sums")
    assert (compared.rc, compared.stdout) == (0, "")


def test_containers_run(host: Any) -> None:
    assert (
        host.check_output("podman run --rm --network none --cgroup-parent $(cat /root/control-group) tiny echo here")
        == "here"
    )
