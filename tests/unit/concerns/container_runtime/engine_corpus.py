# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configurations of engines as people leave them, each on a machine with stand-ins for the engines' programs."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_edit import dump
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_text import parse
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.spec import RUNTIME_PATH
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.apptainer_corpus import CORPUS as APPTAINER
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.containerd_machine import (
    CORPUS as CONTAINERD,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.containerd_machine import (
    DEBIAN,
    FOLDER,
    FULL_TEMPLATE,
    GENERATED_2,
    GENERATED_3,
    KUBEADM,
    MAIN,
    NEW,
    OLD,
    OTHER,
    RANCHER,
    RUNC_BLOCK,
    V2,
    V3,
    V3_TEXT,
    Containerd,
    runtime_text,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.crio_corpus import CORPUS as CRIO
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.crio_corpus import PACKAGED
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.docker_corpus import CORPUS as DOCKER
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.docker_corpus import MAIN as DAEMON_JSON
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.podman_corpus import CORPUS as PODMAN
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.podman_corpus import VENDOR_TEXT
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build
from ansible_collections.gpufleet.node.tests.unit.text.toml_corpus import TEXTS, plain

BOM = "\ufeff"
TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
SNAP_JSON = "/var/snap/docker/current/config/daemon.json"
UNITS = {
    "/usr/lib/systemd/system/containerd.service": "[Service]\nExecStart=/usr/bin/containerd\n",
    "/usr/lib/systemd/system/docker.service": "[Service]\nExecStart=/usr/sbin/dockerd -H fd://\n",
}
DECLARED: Mapping[str, Mapping[str, Any]] = {
    "docker": {
        "engines": [
            {
                "engine": "docker",
                "default": True,
                "cdi": True,
                "live_restore": True,
                "data_root": "/nvme/docker",
                "exec_opts": ["native.cgroupdriver=cgroupfs"],
                "default_shm_size": "8g",
                "default_ulimits": {"memlock": -1, "nofile": {"soft": 1024, "hard": 4096}},
            }
        ]
    },
    "containerd": {"engines": [{"engine": "containerd", "default": True, "cdi": True}]},
    # What the base of a template has nobody else can set.
    "template": {
        "engines": [
            {"engine": "containerd", "runtime_name": "fast", "runtime_path": "/opt/fast", "systemd_cgroup": True}
        ]
    },
    "crio": {"engines": [{"engine": "crio", "default": True, "cdi": True}]},
    "podman": {"engines": [{"engine": "podman", "default": True, "cdi": True}]},
    "apptainer": {"engines": [{"engine": "apptainer", "default": True, "bind_paths": ["/data"]}]},
    "toolkit": {
        "toolkit": {
            "nvidia-container-cli.no-cgroups": True,
            "nvidia-container-runtime": {"mode": "cdi", "runtimes": ["crun", "runc"]},
            "features.disable-imex-channel-creation": True,
        }
    },
}


@dataclass(frozen=True)
class Start:
    """One engine and its files. ``main`` is the one that people edit.

    ``declared`` is a key of ``DECLARED``. ``version`` is that of containerd, None where its program is not there.
    ``links`` are paths that are symbolic links, with what they point to.
    """

    engine: str
    main: str
    files: Mapping[str, str]
    declared: str
    version: Optional[Tuple[int, ...]] = None
    links: Mapping[str, str] = field(default_factory=dict)


def starts() -> Dict[str, Start]:
    """All of them, by a name that begins with that of the engine."""
    found: Dict[str, Start] = {}
    for name, text in {**DOCKER, **MORE_DOCKER}.items():
        found[f"docker: {name}"] = Start("docker", DAEMON_JSON, _of(DAEMON_JSON, text), "docker")
    for name, (version, files) in {**CONTAINERD, **MORE_CONTAINERD}.items():
        found[f"containerd: {name}"] = Start("containerd", MAIN, files, "containerd", version)
    for name, files in [*CRIO, *MORE_CRIO.items()]:
        main = next((path for path in reversed(list(files))), "/etc/crio/crio.conf")
        found[f"crio: {name}"] = Start("crio", main, files, "crio")
    for name, files in [*PODMAN, *MORE_PODMAN.items()]:
        main = next((path for path in files if path.endswith("containers.conf")), "/etc/containers/containers.conf")
        found[f"podman: {name}"] = Start("podman", main, files, "podman")
    conf = "/etc/apptainer/apptainer.conf"
    for name, text in APPTAINER:
        found[f"apptainer: {name}"] = Start("apptainer", conf, {conf: text}, "apptainer")
    for name, text in MORE_TOOLKIT.items():
        found[f"toolkit: {name}"] = Start("toolkit", TOOLKIT, _of(TOOLKIT, text), "toolkit")
    return {**found, **ELSEWHERE}


def machine(root: Path, start: Start) -> FakeHost:
    """A host with the files of a start, byte for byte."""
    programs = {RUNTIME_PATH: "", "/opt/fast": "", "/var/lib/.keep": ""}
    if start.engine == "docker":
        programs["/snap/docker/current/bin/dockerd" if "/snap/" in start.main else "/usr/sbin/dockerd"] = ""
    if start.declared == "containerd":
        programs["/usr/bin/containerd"] = ""
    host = build(root, {**UNITS, **programs}, start.links)
    for path in (RUNTIME_PATH, "/opt/fast"):
        (root / path[1:]).chmod(0o755)
    for path, text in start.files.items():
        target = Path(host.files.locate(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode("utf-8", "surrogateescape"))
    installed = {"docker": dockerd, "crio": crio, "podman": podman, "apptainer": silent, "toolkit": silent}
    if start.engine in installed:
        name = {"docker": "dockerd", "podman": "env", "toolkit": "nvidia-ctk"}.get(start.engine, start.engine)
        host.commands.programs[name] = lambda argv: installed[start.engine](host, argv)
        host.commands.programs.setdefault(start.engine, lambda argv: Completed(0, "", ""))
    if start.version is not None:
        Containerd(host, start.version)
    return host


def dockerd(host: FakeHost, argv: Sequence[str]) -> Completed:
    if "--version" in argv:
        return Completed(0, "Docker version 28.5.2, build ecc6942\n", "")
    assert "--config-file=/dev/stdin" in argv
    json.loads(host.commands.data.lstrip(BOM).strip() or "{}")
    return Completed(0, "configuration OK\n", "")


def crio(host: FakeHost, argv: Sequence[str]) -> Completed:
    """``crio config``: what the files of the folder say together."""
    folder = argv[argv.index("--config-dir") + 1]
    runtime: Dict[str, Any] = {}
    for name in host.files.names(folder):
        found = parse(host.files.read(f"{folder}/{name}")).data.get("crio", {}).get("runtime", {})
        runtimes = {**runtime.get("runtimes", {}), **found.get("runtimes", {})}
        runtime = {**runtime, **found, "runtimes": runtimes}
    return Completed(0, dump({"crio": {"runtime": runtime}}), "")


def podman(host: FakeHost, argv: Sequence[str]) -> Completed:
    """``env CONTAINERS_CONF=FILE podman --runtime NAME info --format json``."""
    text = host.files.read(argv[1].partition("=")[2])
    name = argv[argv.index("--runtime") + 1]
    path = parse(text).data["engine"]["runtimes"][name][0]
    return Completed(0, json.dumps({"host": {"ociRuntime": {"name": name, "path": path}}}), "")


def silent(host: FakeHost, argv: Sequence[str]) -> Completed:
    return Completed(0, "", "")


def toml_meaning(text: str) -> Dict[str, Any]:
    """As another reader has it, where this Python brings one."""
    found = parse(text).data
    if sys.version_info >= (3, 11):
        import tomllib

        judged = tomllib.loads(text.lstrip(BOM))
        assert plain(judged) == plain(found)
    return found


def _of(path: str, text: Optional[str]) -> Dict[str, str]:
    return {} if text is None else {path: text}


def nested(depth: int) -> str:
    return '{"a": [' * depth + "1" + "]}" * depth


MORE_DOCKER: Dict[str, Optional[str]] = {
    "deep": f'{{\n  "zz": {nested(120)},\n  "debug": true\n}}\n',
    "huge numbers": '{"a": 123456789012345678901234567890, "b": 1e400, "c": -0.0, "d": 1E-7}\n',
    "escapes of letters": '{\n  "\\u006cabels": ["\\ud83d\\ude00\\u0000\\/"]\n}\n',
    "a key of ours written with escapes": '{\n  "\\u0072untimes": {"k": {"path": "/k"}}\n}\n',
    "half a pair": '{"labels": ["\\ud83d"]}\n',
    "braces in texts": '{\n  "labels": ["}\\"{", "runtimes"],\n  "x": "\\\\"\n}\n',
    "blanks everywhere": '\n\n{ "debug" :\ttrue ,\n\n"mtu" : 9000 }\n\n\n',
    "a comma first": '{\n    "debug": true\n  , "mtu": 9000\n  }\n',
    "tabulators without a line at the end": '{\n\t"runtimes": {\n\t\t"k": {\n\t\t\t"path": "/k"\n\t\t}\n\t}\n}',
    "an empty object of ours": '{"runtimes": {}, "features": {}, "exec-opts": []}\n',
    "lines of Windows in one of ours": '{\r\n  "runtimes": {\r\n    "k": {"path": "/k"}\r\n  }\r\n}\r\n',
    "all of one line and 5,000 keys": json.dumps({"log-opts": {f"k{number}": "x" for number in range(5000)}}),
    "ours with another value each": '{"data-root": "/x", "live-restore": false, "default-shm-size": "64M", '
    '"exec-opts": ["native.cgroupdriver=systemd"], "default-runtime": "runc"}\n',
    "a letter beyond the first plane": '{"labels": ["\U0001f600"]}\n',
}

# What looks like our block and is a text.
IN_A_TEXT = '"""\n# BEGIN gpufleet container_runtime\n[plugins]\n# END gpufleet container_runtime\n"""'
CRI = f'plugins."{V2}"'
MORE_CONTAINERD: Mapping[str, Tuple[Optional[Tuple[int, ...]], Mapping[str, str]]] = {
    "tabulators": (OLD, {MAIN: KUBEADM.replace("  ", "\t")}),
    "tabulators 2.x": (NEW, {MAIN: V3_TEXT.replace("  ", "\t")}),
    "comments at the end": (OLD, {MAIN: DEBIAN + "# the last word\n\n\n"}),
    "comments at the end 2.x": (NEW, {MAIN: V3_TEXT + "# the last word\n\n\n"}),
    "a byte-order mark and lines of Windows": (OLD, {MAIN: BOM + KUBEADM.replace("\n", "\r\n")}),
    "literal keys": (OLD, {MAIN: KUBEADM.replace(f'"{V2}"', f"'{V2}'")}),
    "keys with escapes": (OLD, {MAIN: KUBEADM.replace(f'"{V2}"', '"io.containerd.grpc.v1.\\u0063ri"')}),
    "blanks in headers": (OLD, {MAIN: KUBEADM.replace("plugins.", " plugins . ")}),
    "blanks in headers 2.x": (NEW, {MAIN: V3_TEXT.replace("plugins.", " plugins . ")}),
    "inline options": (
        OLD,
        {
            MAIN: f"version = 2\n[{CRI}.containerd.runtimes.runc]\n"
            'runtime_type = "io.containerd.runc.v2"\noptions = { SystemdCgroup = true, Root = "/r" }\n'
        },
    ),
    "inline runtimes": (
        OLD,
        {
            MAIN: f"version = 2\n[{CRI}.containerd]\n"
            'runtimes = { runc = { runtime_type = "io.containerd.runc.v2", options = {} } }\n[debug]\nlevel = "info"\n'
        },
    ),
    "inline runtimes 2.x": (
        NEW,
        {
            MAIN: f"version = 3\n[plugins.'{V3}'.containerd]\n"
            'runtimes = { runc = { runtime_type = "io.containerd.runc.v2" } }\n'
        },
    ),
    "all plugins inline": (OLD, {MAIN: f'version = 2\nplugins = {{ "{V2}" = {{ sandbox_image = "p" }} }}\n'}),
    "all plugins inline 2.x": (NEW, {MAIN: f"version = 3\nplugins = {{ '{V3}' = {{ enable_cdi = false }} }}\n"}),
    "all by dotted keys": (
        OLD,
        {
            MAIN: f'version = 2\n{CRI}.sandbox_image = "p"\n{CRI}.containerd.snapshotter = "native"\n'
            f'{CRI}.containerd.runtimes.runc.runtime_type = "io.containerd.runc.v2"\n'
        },
    ),
    "dotted keys of a runtime alone": (
        OLD,
        {MAIN: f'version = 2\n{CRI}.containerd.runtimes.runc = {{ runtime_type = "io.containerd.runc.v2" }}\n'},
    ),
    "all by dotted keys 2.x": (
        NEW,
        {MAIN: f'version = 3\nplugins.\'{V3}\'.containerd.default_runtime_name = "runc" # as is\n'},
    ),
    "tables out of order": (
        OLD,
        {
            MAIN: f'[{CRI}.registry]\nconfig_path = "/etc/containerd/certs.d"\n[debug]\nlevel = "info"\n'
            f"[{CRI}.containerd]\n{OTHER}{RUNC_BLOCK}[metrics]\naddress = '127.0.0.1:1338'\n"
        },
    ),
    "the version at the end of the top": (OLD, {MAIN: f'root = "/r"\nversion = 2\n\n[grpc]\ngid = 0\n\n{RUNC_BLOCK}'}),
    "arrays of tables": (
        OLD,
        {
            MAIN: "version = 2\n[[stream_processors]]\nid = 1\n[[stream_processors]]\nid = 2\n"
            f"[stream_processors.deep]\nx = 1\n[{CRI}]\n[[{CRI}.rules]]\na = 1\n[[{CRI}.rules]]\na = 2\n"
        },
    ),
    "arrays of tables 2.x": (
        NEW, {MAIN: "version = 3\n[[x]]\nid = 1\n[[x]]\nid = 2\n[x.y]\nz = 1\n"}
    ),
    "our block in a text": (OLD, {MAIN: f"version = 2\nx = {IN_A_TEXT}\n{RUNC_BLOCK}"}),
    "our block in a text 2.x": (NEW, {MAIN: f"version = 3\nx = {IN_A_TEXT}\n"}),
    "our marker in a comment with more": (OLD, {MAIN: DEBIAN + "# see BEGIN gpufleet container_runtime\n"}),
    "an empty table of runtimes": (OLD, {MAIN: f"version = 2\n[{CRI}.containerd.runtimes]\n"}),
    "an empty options table": (OLD, {MAIN: KUBEADM + OTHER + f"[{CRI}.containerd.runtimes.kata.options]\n"}),
    "texts of many lines": (
        OLD, {MAIN: f'version = 2\n[{CRI}]\nx = """\na\n[b]\nc = 1 \\\n  d"""\ny = \'\'\'\n#\'\'\'\n'}
    ),
    "numbers and dates": (
        OLD, {MAIN: f"version = 2\n[x]\na = 0x7fff_ffff_ffff_ffff\nb = -inf\nc = 1979-05-27T07:32:00Z\n{RUNC_BLOCK}"}
    ),
    "imports with a comment": (
        NEW, {MAIN: 'version = 3\nimports = [ "x*.toml" # theirs\n]\n', "/etc/containerd/x1.toml": "version = 3\n"}
    ),
    "imports with a comma at the end": (NEW, {MAIN: "version = 3\nimports = ['/etc/containerd/y/*.toml', ]\n"}),
    "imports on many lines": (
        NEW, {MAIN: 'version = 3\nimports = [\n\t"a*.toml",\n\n\t# the last\n\t"b*.toml"\n]\n[debug]\n'}
    ),
    "imports with versions of their own": (
        NEW,
        {
            MAIN: 'version = 3\nimports = ["two.toml", "three.toml"]\n',
            "/etc/containerd/two.toml": f"version = 2\n{RUNC_BLOCK}",
            "/etc/containerd/three.toml": "version = 3\n[debug]\nlevel = 'info'\n",
        },
    ),
    "imports twice": (
        NEW,
        {
            MAIN: 'version = 3\nimports = ["one.toml", "./one.toml", "*.d/*.toml"]\n',
            "/etc/containerd/one.toml": "version = 3\n",
        },
    ),
    "imports at the end of the top": (NEW, {MAIN: "version = 3\nroot = '/r'\nimports = ['z/*.toml']\n\n[debug]\n"}),
    "our drop-in of an earlier run": (
        NEW,
        {
            MAIN: f'version = 3\nimports = ["{FOLDER}/99-gpufleet*.toml"]\n',
            f"{FOLDER}/99-gpufleet.toml": f"version = 3\n{runtime_text(repr(V3), program='/old')}",
        },
    ),
    "a block of an earlier run": (
        OLD,
        {
            MAIN: f"{DEBIAN}\n# BEGIN gpufleet container_runtime\n{runtime_text(program='/old')}\n{RUNC_BLOCK}"
            "# END gpufleet container_runtime\n[debug]\nlevel = 'info'\n"
        },
    ),
}  # fmt: skip

MORE_CRIO: Mapping[str, Mapping[str, str]] = {
    "tabulators": {"/etc/crio/crio.conf.d/10-crio.conf": "\t" + PACKAGED.replace("\n", "\n\t")},
    "an inline runtime": {
        "/etc/crio/crio.conf": '[crio.runtime]\nruntimes = { crun = { runtime_path = "/c", monitor_path = "/m" } }\n'
    },
    "5,000 lines": {
        "/etc/crio/crio.conf": PACKAGED
        + "".join(f'[crio.runtime.runtimes.r{n}]\nruntime_path = "/r{n}"\nx = """\n[y]"""\n' for n in range(1250))
    },
    "all that crio config prints": {"/etc/crio/crio.conf": TEXTS["crio"]},
}
MORE_PODMAN: Mapping[str, Mapping[str, str]] = {
    "5,000 lines": {
        "/etc/containers/containers.conf": VENDOR_TEXT.replace(
            "[engine.runtimes]\n", "[engine.runtimes]\n" + "".join(f"r{n} = ['/r{n}', '/s{n}']\n" for n in range(5000))
        )
    },
    "an inline table of runtimes": {"/etc/containers/containers.conf": "engine = { runtimes = { crun = ['/c'] } }\n"},
}
CTK = TEXTS["nvidia-container-runtime"]
MORE_TOOLKIT: Mapping[str, Optional[str]] = {
    "missing": None,
    "empty": "",
    "comments": "#swarm-resource = 1\n# [nvidia-container-cli]\n",
    "as the package brings it": CTK,
    "Windows line ends": CTK.replace("\n", "\r\n"),
    "a byte-order mark": BOM + CTK,
    "no last line end": CTK.rstrip("\n"),
    "tabulators": CTK.replace("\n", "\n\t"),
    "everything that TOML has": TEXTS["everything"],
    "dotted": 'nvidia-container-cli.load-kmods = true\nnvidia-container-runtime.mode = "auto"\n',
    "inline": "nvidia-container-runtime = { mode = 'auto', runtimes = ['runc'] } # all\n[features]\n",
    "another list": '[nvidia-container-runtime]\nruntimes = [\n  "docker-runc", # old\n  "runc",\n  "crun", # end\n]\n',
    "keys that nobody knows": "a.b = 1\n[[x]]\ny = 1\n[nvidia-container-cli]\nzz = 1979-05-27\n",
    "5,000 lines": CTK + "".join(f"[t{number}]\nkey = '{number}'\n" for number in range(2500)),
}

K3S, RKE2 = RANCHER.format("k3s"), RANCHER.format("rke2")
MICROK8S = "/var/snap/microk8s/current/args/containerd-template.toml"
K0S = '# k0s_managed=true\nversion = 2\nimports = ["/run/k0s/containerd-cri.toml"]\n'
ELSEWHERE: Mapping[str, Start] = {
    "docker: a link": Start(
        "docker", DAEMON_JSON, {"/srv/daemon.json": '{\n  "debug": true\n}\n'}, "docker",
        links={DAEMON_JSON: "/srv/daemon.json"},
    ),
    "docker: a link to nothing": Start(
        "docker", DAEMON_JSON, {"/srv/.keep": ""}, "docker",
        links={DAEMON_JSON: "../../srv/daemon.json"},
    ),
    "docker: a folder that is a link": Start(
        "docker", DAEMON_JSON, {"/srv/docker/daemon.json": '{"mtu": 9000}'}, "docker",
        links={"/etc/docker": "../srv/docker"},
    ),
    "docker: the snap": Start(
        "docker", SNAP_JSON, {"/var/snap/docker/2963/config/daemon.json": '{\n    "log-level": "error"\n}\n'}, "docker",
        links={"/var/snap/docker/current": "2963"},
    ),
    "docker: the snap without a file": Start(
        "docker", SNAP_JSON, {"/var/snap/docker/current/config/.keep": ""}, "docker"
    ),
    "containerd: a link": Start(
        "containerd", MAIN, {"/srv/c.toml": KUBEADM}, "containerd", OLD, links={MAIN: "/srv/c.toml"}
    ),
    "containerd: a link 2.x": Start(
        "containerd", MAIN, {"/srv/c.toml": V3_TEXT}, "containerd", NEW, links={MAIN: "../../srv/c.toml"}
    ),
    "containerd: a folder of drop-ins that is a link": Start(
        "containerd", MAIN, {MAIN: V3_TEXT, "/srv/conf.d/site.toml": "version = 3\n"}, "containerd", NEW,
        links={FOLDER: "/srv/conf.d"},
    ),
    "containerd: links all the way": Start(
        "containerd", MAIN,
        {"/srv/etc/main.toml": f'version = 3\nimports = ["{FOLDER}/*.toml"]\n', "/srv/d/site.toml": "version = 3\n"},
        "containerd", NEW,
        links={"/etc/containerd": "/srv/etc", "/srv/etc/config.toml": "main.toml", "/srv/etc/conf.d": "../d"},
    ),
    "crio: a folder of drop-ins that is a link": Start(
        "crio", "/srv/crio/10.conf", {"/srv/crio/10.conf": PACKAGED}, "crio",
        links={"/etc/crio/crio.conf.d": "/srv/crio"},
    ),
    "podman: a link": Start(
        "podman", "/srv/containers.conf", {"/srv/containers.conf": VENDOR_TEXT}, "podman",
        links={"/etc/containers/containers.conf": "/srv/containers.conf"},
    ),
    "toolkit: a link": Start(
        "toolkit", TOOLKIT, {"/opt/toolkit/config.toml": CTK}, "toolkit", links={TOOLKIT: "/opt/toolkit/config.toml"}
    ),
    "k3s: no template": Start("containerd", f"{K3S}/config.toml.tmpl", {f"{K3S}/config.toml": GENERATED_2}, "template"),
    "k3s: no template, version 3": Start(
        "containerd", f"{K3S}/config-v3.toml.tmpl", {f"{K3S}/config.toml": GENERATED_3}, "template"
    ),
    "k3s: a template of the base": Start(
        "containerd", f"{K3S}/config-v3.toml.tmpl",
        {f"{K3S}/config.toml": GENERATED_3, f"{K3S}/config-v3.toml.tmpl": '{{ template "base" . }}\n\n# mine\n'},
        "template",
    ),
    "k3s: a whole template": Start(
        "containerd", f"{K3S}/config.toml.tmpl",
        {f"{K3S}/config.toml": GENERATED_2, f"{K3S}/config.toml.tmpl": FULL_TEMPLATE}, "template",
    ),
    "k3s: a template that is a link, with lines of Windows": Start(
        "containerd", f"{K3S}/config.toml.tmpl",
        {f"{K3S}/config.toml": GENERATED_2, "/srv/t": FULL_TEMPLATE.replace("\n", "\r\n")}, "template",
        links={f"{K3S}/config.toml.tmpl": "/srv/t"},
    ),
    "k3s: a folder of drop-ins": Start(
        "containerd", f"{K3S}/config.toml",
        {f"{K3S}/config.toml": f'imports = ["{K3S}/config-v3.toml.d/*.toml"]\n{GENERATED_3}'}, "template",
    ),
    "rke2: an empty template": Start(
        "containerd", f"{RKE2}/config.toml.tmpl",
        {f"{RKE2}/config.toml": GENERATED_2, f"{RKE2}/config.toml.tmpl": ""}, "template",
    ),
    "rke2: both templates": Start(
        "containerd", f"{RKE2}/config-v3.toml.tmpl",
        {
            f"{RKE2}/config.toml": GENERATED_3, f"{RKE2}/config.toml.tmpl": FULL_TEMPLATE,
            f"{RKE2}/config-v3.toml.tmpl": '{{template "base" .}}\n[debug]\n  level = "{{ .Program }}"',
        },
        "template",
    ),
    "k0s: as it makes it": Start(
        "containerd", "/etc/k0s/containerd.toml", {"/etc/k0s/containerd.toml": K0S}, "template"
    ),
    "k0s: with drop-ins": Start(
        "containerd", "/etc/k0s/containerd.toml",
        {"/etc/k0s/containerd.toml": K0S, "/etc/k0s/containerd.d/site.toml": f"version = 2\n{OTHER}"}, "template",
    ),
    "k0s: by another hand": Start(
        "containerd", "/etc/k0s/containerd.toml",
        {"/etc/k0s/containerd.toml": 'version = 2\nimports = ["/etc/k0s/containerd.d/*.toml"]\n'}, "template",
    ),
    "microk8s: its template": Start(
        "containerd", MICROK8S, {MICROK8S: KUBEADM.replace('"overlayfs"', '"${SNAPSHOTTER}"')}, "template"
    ),
}  # fmt: skip
STARTS = starts()
