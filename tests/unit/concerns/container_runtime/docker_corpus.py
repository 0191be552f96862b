# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configurations that Docker is found with."""

from __future__ import annotations

import json
from typing import Dict, Optional

MAIN = "/etc/docker/daemon.json"
NVIDIA = "/usr/bin/nvidia-container-runtime"
CORPUS: Dict[str, Optional[str]] = {
    "no file": None,
    "empty": "",
    "blank": "\n\n",
    "an empty object": "{}",
    "an empty object and a line": "{}\n",
    "an empty object over lines": "{\n}\n",
    "two blanks": '{\n  "log-driver": "json-file",\n  "log-opts": {"max-size": "10m"}\n}\n',
    "four blanks": '{\n    "debug": true\n}\n',
    "tabulators": '{\n\t"debug": true,\n\t"labels": ["a=b"]\n}\n',
    "one line": '{"debug": true, "dns": ["10.0.0.2"]}',
    "one line without blanks": '{"debug":true,"dns":["10.0.0.2"]}\n',
    "no line at the end": '{\n  "debug": true\n}',
    "lines of Windows": '{\r\n  "debug": true,\r\n  "mtu": 9000\r\n}\r\n',
    "a byte-order mark": '\ufeff{\n  "debug": true\n}\n',
    "a mark and lines of Windows": '\ufeff{\r\n\t"debug": true\r\n}\r\n',
    "mirrors": '{"registry-mirrors": ["https://mirror.example"], "insecure-registries": ["r.example:5000"]}\n',
    "another runtime": '{\n  "runtimes": {\n    "kata": {\n      "path": "/usr/bin/kata-runtime"\n    }\n  }\n}\n',
    "another default": '{\n  "runtimes": {"crun": {"path": "/usr/bin/crun"}},\n  "default-runtime": "crun"\n}\n',
    "a runtime of containerd": '{"runtimes": {"wasm": {"runtimeType": "io.containerd.wasmtime.v1", "options": {}}}}',
    "as nvidia-ctk leaves it": '{\n    "runtimes": {\n        "nvidia": {\n            "args": [],\n'
    '            "path": "nvidia-container-runtime"\n        }\n    }\n}',
    "ours with arguments": '{"runtimes": {"nvidia": {"path": "/opt/nvidia", "runtimeArgs": ["--debug", "--x=y"]}}}',
    "ours as a shim": '{"runtimes": {"nvidia": {"runtimeType": "io.containerd.nvidia.v1"}}}',
    "ours in capitals": '{"runtimes": {"nvidia": {"Path": "/opt/nvidia"}}}',
    "nulls": '{"runtimes": null, "features": null, "default-ulimits": null, "exec-opts": null}',
    "features": '{\n  "features": {\n    "buildkit": true,\n    "containerd-snapshotter": false\n  }\n}\n',
    "CDI off": '{"features": {"cdi": false}}',
    "limits": '{"default-ulimits": {"nofile": {"Name": "nofile", "Hard": 64000, "Soft": 64000}}}',
    "limits in small letters": '{"default-ulimits": {"memlock": {"name": "memlock", "hard": -1, "soft": -1}}}',
    "proxies": '{"proxies": {"http-proxy": "http://u:p@proxy:3128", "no-proxy": "*.example"}}',
    "a socket": '{\n "hosts": ["unix:///run/other.sock", "tcp://127.0.0.1:2375"],\n "tls": true\n}',
    "keys that nobody knows": '{\n  "zz": {"b": [1, {"c": null}]},\n  "aa": 1e3\n}\n',
    "letters of the world": '{\n  "labels": ["ort=Köln", "\\u540d=\u524d"]\n}\n',
    "all of it already": json.dumps(
        {
            "data-root": "/nvme/docker",
            "default-runtime": "nvidia",
            "default-shm-size": "8192m",
            "default-ulimits": {"memlock": {"Name": "memlock", "Soft": -1, "Hard": -1}},
            "exec-opts": ["native.cgroupdriver=cgroupfs"],
            "features": {"cdi": True},
            "live-restore": True,
            "runtimes": {"nvidia": {"path": NVIDIA}},
        },
        indent=3,
    ),
    "5,000 lines": json.dumps({"labels": [f"label-{number}=x" for number in range(5000)]}, indent=2),
}
