# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node for the tests of the binding, and bindings that hold nothing of NVIDIA's."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Optional

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvml.concern import CONCERN, NvmlBinding
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvml.state import OURS
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

# What a look can tell of a binding, without NVIDIA's file: the functions by which it is known.
BINDING = (
    "# Copyright (c) NVIDIA Corporation\n"
    "def nvmlInit():\n    return {answer!r}\n"
    "def nvmlDeviceGetGpuInstanceProfileInfo(device, profile, version=2):\n    pass\n"
)
CURRENT = BINDING.format(answer="current")
OLD = CURRENT.replace(", version=2", "")
SITE = "/usr/lib/python3/dist-packages"
DEBIAN = {"/etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nID=ubuntu\nID_LIKE=debian\n'}


def total(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def describe(text: str, version: str = "13.615.71") -> str:
    return f"{version} (sha256 {total(text)[:12]})"


def params(**options: Any) -> Dict[str, Any]:
    """Parameters as Ansible would hand them over. The controller's file is ``CURRENT`` unless they say otherwise."""
    if options.get("source", "controller") == "controller":
        options = {"pynvml_sha256": total(CURRENT), "version": "13.615.71", **options}
    result = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate(options)
    if result.error_messages:
        raise ValueError("; ".join(result.error_messages))
    validated: Dict[str, Any] = result.validated_parameters
    return validated


def run(host: FakeHost, sent: Optional[str] = CURRENT, *, check_mode: bool = False, **options: Any) -> Outcome:
    """One run of the module, with a file that was sent along."""
    path = None
    if sent is not None:
        path = f"{host.files.root}/../sent-pynvml.py"
        Path(path).write_text(sent)
    outcome = converge(NvmlBinding(path), params(**options), host, check_mode=check_mode)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def machine(root: Path, files: Optional[Dict[str, str]] = None) -> FakeHost:
    """A node with these files. Its Python compiles what it is told to, as the one that runs this."""
    (root / "node").mkdir()
    host = build(root / "node", {"/etc/hostname": "n1\n", "/var/lib/dbus/machine-id": "", **(files or {})})

    def compiles(argv: Any) -> Completed:
        real = host.files.locate(argv[-1])
        done = subprocess.run([sys.executable, *argv[1:-1], real], capture_output=True, text=True, check=False)
        return Completed(done.returncode, done.stdout, done.stderr)

    host.commands.programs[os.path.basename(sys.executable)] = compiles
    return host


def imported(host: FakeHost) -> str:
    """What ``import pynvml`` gives on the node when our folder comes first, as nvml_driver has it."""
    folder = host.files.locate(os.path.dirname(OURS))
    program = f"import sys; sys.path.insert(0, {folder!r}); import pynvml; print(pynvml.nvmlInit())"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def search_first(monkeypatch: pytest.MonkeyPatch, *folders: str) -> None:
    """Python on the node searches these folders for modules, before those of the Python that runs the tests."""
    monkeypatch.setattr(sys, "path", ["", "/usr/lib/python39.zip", *folders, *sys.path])
