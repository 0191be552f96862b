# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any, Dict, Tuple

import machine


def test_no_file_of_ours_is_left(host: Any) -> None:
    assert host.check_output("find /etc /var/lib /boot /usr/local -name '*gpufleet*'") == ""
    assert "hugepages=" not in machine.text(host, "/boot/grub/grub.cfg")


def test_the_kernel_has_the_values_from_before(host: Any) -> None:
    before = host.check_output("cat /root/before")
    assert host.check_output("sh /root/settings") == before


def test_every_configuration_file_is_as_it_was(host: Any) -> None:
    assert host.run("sha256sum --quiet --check /root/before.sums").stdout == ""


def test_interrupts_and_queues_are_where_they_were(host: Any) -> None:
    """By name, which some change at a reboot. Where irqbalance runs again, it has its own mind about interrupts."""
    balanced = host.service("irqbalance").is_running
    before, after = (
        _places(host.check_output(command))
        for command in ("cat /root/before.interrupts", "python3 /root/interrupts.py before")
    )
    common = {key for key in before.keys() & after.keys() if not (balanced and "interrupt" in key)}
    assert [key for key in common if "queue" in key]
    assert {key: after[key] for key in common} == {key: before[key] for key in common}


def test_irqbalance_is_as_it_was(host: Any) -> None:
    service = host.service("irqbalance")
    has_it = host.backend.get_hostname() == "trixie"
    assert (service.is_enabled, service.is_running) == (has_it, has_it)
    assert "policyscript" not in host.check_output("systemctl show -P ExecStart irqbalance")
    assert "policyscript" not in host.run("ps -C irqbalance -o args=").stdout
    assert not host.file("/run/gpufleet/irqbalance/devices").exists


def _places(text: str) -> Dict[Tuple[str, str, str], Any]:
    """The CPUs by device, kind and name."""
    entries = [json.loads(line) for line in text.splitlines()]
    kinds = ["interrupt" if "interrupt" in entry else "queue" for entry in entries]
    return {(entry["device"], kind, entry[kind]): entry["cpus"] for entry, kind in zip(entries, kinds)}


def test_no_gpu_is_divided(host: Any) -> None:
    assert "MIG" not in host.check_output("nvidia-smi -L")
    modes = host.check_output("nvidia-smi --query-gpu=mig.mode.current,mig.mode.pending --format=csv,noheader")
    assert modes.splitlines() == ["Disabled, Disabled"] * 8
