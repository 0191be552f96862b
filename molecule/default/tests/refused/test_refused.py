# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any


def test_a_refused_run_changed_no_file(host: Any) -> None:
    compared = host.run("sha256sum --quiet --check /root/converged.sums")
    assert (compared.rc, compared.stdout) == (0, "")


def test_a_refused_run_added_no_file(host: Any) -> None:
    known = host.check_output("cut -c67- /root/converged.sums | sort")
    assert host.check_output("find /etc /var/lib/gpufleet -type f | sort") == known


def test_a_refused_run_leaves_no_reason_for_a_reboot(host: Any) -> None:
    assert host.run("ls /run/gpufleet/reboot-required.d").stdout == ""
