# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configurations that CRI-O is found with."""

from __future__ import annotations

from typing import Dict, List, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.crio.crio import FOLDER, MAIN

# What the packages of CRI-O bring from 1.27 on: a conmon that is on no path.
PACKAGED = """\
[crio.image]
signature_policy = "/etc/crio/policy.json"

[crio.runtime]
default_runtime = "crun"

[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
runtime_root = "/run/crun"
monitor_path = "/usr/libexec/crio/conmon"
allowed_annotations = [
    "io.containers.trace-syscall",
]

[crio.runtime.runtimes.runc]
runtime_path = "/usr/libexec/crio/runc"
runtime_root = "/run/runc"
monitor_path = "/usr/libexec/crio/conmon"
"""
CORPUS: List[Tuple[str, Dict[str, str]]] = [
    ("no file at all", {}),
    ("an empty main file", {MAIN: ""}),
    ("comments alone", {MAIN: "# [crio.runtime]\n# default_runtime = 'x'\n"}),
    ("the files of the package", {MAIN: "", f"{FOLDER}/10-crio.conf": PACKAGED}),
    ("everything in the main file", {MAIN: PACKAGED}),
    ("Windows line ends", {f"{FOLDER}/10-crio.conf": PACKAGED.replace("\n", "\r\n")}),
    ("a byte-order mark", {f"{FOLDER}/10-crio.conf": "\ufeff" + PACKAGED}),
    ("no line end at the end", {f"{FOLDER}/10-crio.conf": PACKAGED.rstrip("\n")}),
    ("a folder in the folder", {f"{FOLDER}/20-site/registries.toml": '[crio.image]\npause_image = "p"\n'}),
    ("another runtime", {f"{FOLDER}/10-kata.conf": '[crio.runtime.runtimes.kata]\nruntime_path = "/k"\n'}),
    ("the runtime of that name elsewhere", {MAIN: '[crio.runtime.runtimes.nvidia]\nruntime_path = "/old"\n'}),
    ("the runtime as a dotted key", {MAIN: 'crio.runtime.runtimes.nvidia.runtime_path = "/old"\n'}),
    ("a default of its own", {MAIN: '[crio.runtime]\ndefault_runtime = "runc"\n'}),
    ("an empty default", {MAIN: '[crio.runtime]\ndefault_runtime = ""\n'}),
    ("other folders of CDI", {MAIN: '[crio.runtime]\ncdi_spec_dirs = ["/srv/cdi/"]\n'}),
]
