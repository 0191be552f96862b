# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configurations that Podman is found with."""

from __future__ import annotations

from typing import Dict, List, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.podman.podman import (
    FOLDER,
    MAIN,
    VENDOR,
)

# The lines of Debian's and Fedora's file of the vendor that say something, and some that do not.
VENDOR_TEXT = """\
# The containers configuration file specifies all of the available configuration
# options and command-line flags for container engine tools like Podman & Buildah
[containers]
#annotations = []
log_driver = "journald"

[secrets]

[network]
firewall_driver = "nftables"

[engine]
#cdi_spec_dirs = [
#  "/etc/cdi",
#]
#runtime = "crun"
runtime_supports_json = ["crun", "runc"]

[engine.runtimes]
crun = [
  "/usr/bin/crun",
  "/usr/sbin/crun",
]
#runc = ["/usr/bin/runc"]

[engine.volume_plugins]

[machine]
#
"""
CORPUS: List[Tuple[str, Dict[str, str]]] = [
    ("no file at all", {}),
    ("an empty file", {MAIN: ""}),
    ("the file of the vendor", {VENDOR: VENDOR_TEXT}),
    ("the file of the vendor in its place", {MAIN: VENDOR_TEXT}),
    ("Windows line ends", {MAIN: VENDOR_TEXT.replace("\n", "\r\n")}),
    ("a byte-order mark", {MAIN: "\ufeff" + VENDOR_TEXT}),
    ("no line end at the end", {MAIN: VENDOR_TEXT.rstrip("#\n")}),
    ("other drop-ins", {VENDOR: VENDOR_TEXT, f"{FOLDER}/10-site.conf": '[containers]\nshm_size = "8g"\n'}),
    ("the runtime at another place", {MAIN: '[engine.runtimes]\nnvidia = ["/opt/n", "/usr/local/bin/n"]\n'}),
    ("the runtime as a dotted key", {MAIN: '[engine]\nruntimes.nvidia = ["/opt/n"]\n'}),
    ("another default", {MAIN: '[engine]\nruntime = "runc"\n'}),
    ("a default that is a path", {MAIN: '[engine]\nruntime = "/usr/bin/crun"\n'}),
    ("what is no drop-in", {f"{FOLDER}/README": "[[[\n", f"{FOLDER}/sub.conf/x.conf": "[[[\n"}),
    ("a list that files add to", {MAIN: '[engine]\ncdi_spec_dirs = ["/srv/cdi", {append=true}]\n'}),
]
