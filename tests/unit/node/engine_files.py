# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of a node whose container engine runs."""

from __future__ import annotations

import json

from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT

INFO = {
    "ServerVersion": "26.1.5",
    "Runtimes": {"runc": {"path": "runc"}, "old": {"path": "/opt/old"}},
    "DefaultRuntime": "runc",
    "ContainersRunning": 2,
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
    "DockerRootDir": "/var/lib/docker",
}
STAT = f"812 (dockerd) S 1 {' '.join(['0'] * 17)} 500 0\n"
RUNNING = {
    "/run/docker.pid": "812",
    "/proc/812/comm": "dockerd\n",
    "/proc/812/status": STATUS_OF_ROOT,
    "/proc/812/stat": STAT,
    "/proc/812/cmdline": "/usr/bin/dockerd\0",
    "/run/docker.sock.http/info": json.dumps(INFO),
}
SPECIFICATION = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
}
