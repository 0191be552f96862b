# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configurations that Docker is found with."""

from __future__ import annotations

import json
from typing import Dict, Optional, Sequence, Tuple

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
UNKNOWN = "the following directives don't match any configuration option: "
TWICE = "the following directives are specified both as a flag and in the configuration file: "
# What dockerd answers to a file beside the options "-H fd://" and these, after "unable to configure the Docker daemon
# with file PATH: "; empty where it takes it. First Debian's 20.10.24, whose start goes as far as a log level that there
# is not, then --validate of Debian's 26.1.5 and 28.5.2, which say the same.
VERDICTS: Sequence[Tuple[str, Sequence[str], str, str]] = (
    ("{}", (), "", ""),
    ('{"feautres": {"cdi": true}}', (), UNKNOWN + "cdi", UNKNOWN + "cdi"),
    ('{"feautres": {}}', (), "", ""),
    ('{"feautres": null}', (), UNKNOWN + "feautres", UNKNOWN + "feautres"),
    ('{"zz": {"debug": true}}', (), "", ""),
    (
        '{"zz": {"hosts": []}}',
        (),
        TWICE + "hosts: (from flag: [fd://], from file: [])",
        TWICE + "hosts: (from flag: [fd://], from file: [])",
    ),
    ('{"zz": {"b": {"c": 1}}}', (), UNKNOWN + "b", UNKNOWN + "b"),
    ('{"Features": {"cdi": true}}', (), UNKNOWN + "cdi", UNKNOWN + "cdi"),
    ('{"Debug": true}', (), UNKNOWN + "Debug", UNKNOWN + "Debug"),
    ('{"D": true}', (), UNKNOWN + "D", UNKNOWN + "D"),
    ('{"label": ["a=b"]}', (), "", ""),
    ('{"labels": ["a=b"], "features": {"zz": true}}', (), "", ""),
    ('{"graph": "/y"}', (), "", UNKNOWN + "graph"),
    (
        '{"data-root": "/x", "graph": "/y"}',
        (),
        'cannot specify both "graph" and "data-root" config file options',
        UNKNOWN + "graph",
    ),
    ('{"data-root": "/x", "graph": ""}', (), "", UNKNOWN + "graph"),
    (
        '{"hosts": ["fd://"]}',
        (),
        TWICE + "hosts: (from flag: [fd://], from file: [fd://])",
        TWICE + "hosts: (from flag: [fd://], from file: [fd://])",
    ),
    (
        '{"hosts": null}',
        (),
        TWICE + "hosts: (from flag: [fd://], from file: <nil>)",
        TWICE + "hosts: (from flag: [fd://], from file: <nil>)",
    ),
    ('{"cluster-store": "x"}', (), "", UNKNOWN + "cluster-store"),
    ('{"proxies": {"http-proxy": "http://x:1"}}', (), UNKNOWN + "http-proxy", ""),
    ('{"builder": {"gc": {"enabled": true}}}', (), "", ""),
    ('{"ip6tables": false, "default-cgroupns-mode": "host"}', (), "", ""),
    ('{"cdi-spec-dirs": ["/etc/cdi"]}', (), UNKNOWN + "cdi-spec-dirs", ""),
    ('{"default-network-opts": {}}', (), "", ""),
    ('{"default-address-pools": [{"base": "10.0.0.0/8", "size": 24}]}', (), "", ""),
    ('{"runtimes": {"a": {"path": "/a", "zz": 1}}}', (), "", ""),
    ('{"log-opts": {"zz": "1"}}', (), "", ""),
    ('{"": 1}', (), UNKNOWN + "", UNKNOWN + ""),
    ('{"runtimes": {"x": {"path": "/x"}}}', ("--add-runtime", "y=/y"), "", ""),
    (
        '{"labels": ["a=b"]}',
        ("--label", "c=d"),
        TWICE + "labels: (from flag: [c=d], from file: [a=b])",
        TWICE + "labels: (from flag: [c=d], from file: [a=b])",
    ),
    ('{"label": ["a=b"]}', ("--label", "c=d"), "", ""),
    (
        '{"debug": true}',
        ("--debug=false",),
        TWICE + "debug: (from flag: false, from file: true)",
        TWICE + "debug: (from flag: false, from file: true)",
    ),
    (
        '{"zz": {"debug": true}}',
        ("-D",),
        TWICE + "debug: (from flag: true, from file: true)",
        TWICE + "debug: (from flag: true, from file: true)",
    ),
    (
        '{"storage-driver": "overlay2"}',
        ("-s", "overlay2"),
        TWICE + "storage-driver: (from flag: overlay2, from file: overlay2)",
        TWICE + "storage-driver: (from flag: overlay2, from file: overlay2)",
    ),
    (
        '{"log-driver": "local"}',
        ("--log-driver", "local"),
        TWICE + "log-driver: (from flag: local, from file: local)",
        TWICE + "log-driver: (from flag: local, from file: local)",
    ),
)
