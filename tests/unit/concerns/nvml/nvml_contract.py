# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``nvml`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvml.concern import NvmlBinding
from ansible_collections.gpufleet.node.tests.unit.concerns.nvml import binding_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node


def contract_node(make: Make) -> Node:
    root = make.folder()
    kept = {f"{folder}/.keep": "" for folder in ("/usr/local/sbin", "/var/lib", "/etc/systemd/system")}
    host = binding_machine.machine(root, {**kept, "/opt/pynvml.py": binding_machine.CURRENT})
    sent = root / "pynvml.py"
    sent.write_text(binding_machine.CURRENT)
    declaration = {"pynvml_sha256": binding_machine.total(binding_machine.CURRENT)}
    return Node(NvmlBinding(str(sent)), host, declaration, {"source": "folder", "folder": "/opt"})
