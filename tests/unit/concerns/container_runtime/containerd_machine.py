# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with containerd, and configurations that it is found with."""

from __future__ import annotations

import os
from copy import deepcopy
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_edit import dump
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_text import parse
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.candidate import CandidateFiles
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.containerd.containerd import KIND
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    CONTAINERD,
    RUNTIME,
    SYSTEMD_CGROUP,
    Configuration,
    Edit,
    SettingName,
    Settings,
    WantedEngine,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.plan import in_order
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

MAIN = "/etc/containerd/config.toml"
FOLDER = "/etc/containerd/conf.d"
DROP_IN = f"{FOLDER}/99-gpufleet.toml"
PROGRAM = "/usr/bin/nvidia-container-runtime"
OUR_RUNTIME, OUR_CGROUP = SettingName(RUNTIME, "nvidia"), SettingName(SYSTEMD_CGROUP, "nvidia")
UNIT = "[Service]\nExecStart=/usr/bin/containerd\n"
INSTALLED = {"/usr/lib/systemd/system/containerd.service": UNIT, "/usr/bin/containerd": "", PROGRAM: ""}
V2, V3 = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"
OLD, NEW = (1, 7, 24), (2, 1, 9)
BEGIN, END = "# BEGIN gpufleet container_runtime\n", "# END gpufleet container_runtime\n"
NVIDIA = WantedEngine(CONTAINERD, True, "nvidia", PROGRAM)
RUNC_OPTIONS: Mapping[str, Any] = {"BinaryName": "", "SystemdCgroup": False}
RUNC = {"runtime_type": "io.containerd.runc.v2", "options": RUNC_OPTIONS}
SINCE = {
    "snapshotter": (1, 7),
    "privileged_without_host_devices_all_devices_allowed": (1, 7),
    "sandboxer": (2, 0),
    "io_type": (2, 0),
    "cgroup_writable": (2, 1),
}


class Containerd:
    """``containerd --version`` and ``containerd config dump``, after the source of 1.7 and of 2.1."""

    def __init__(self, host: FakeHost, version: Tuple[int, ...]) -> None:
        self.host = host
        self.version = version
        self.calls = 0
        host.commands.programs["containerd"] = self

    def __call__(self, argv: Sequence[str]) -> Completed:
        self.calls += 1
        if tuple(argv[1:]) == ("--version",):
            number = ".".join(str(part) for part in self.version)
            return Completed(0, f"containerd github.com/containerd/containerd/v2 {number} 0123abc\n", "")
        assert (argv[1], *argv[3:]) == ("--config", "config", "dump")
        try:
            return Completed(0, dump(self.dump(argv[2], starts=False)), "")
        except ValueError as error:
            return Completed(1, "", f"containerd: {error}\n")

    def dump(self, main: str = MAIN, *, starts: bool = True) -> Dict[str, Any]:
        """The configuration that it starts with, which it also prints where the CRI plugin would then not start.

        Raises ``ValueError`` where it would not print it, or with ``starts`` where pods would not start.
        """
        new = self.version >= (2,)
        config: Dict[str, Any] = {"version": 3 if new else 1, "plugins": {}, "disabled_plugins": []}
        waiting, loaded = [main], []
        while waiting:
            path = waiting.pop(0)
            if path in loaded:
                continue
            text = self.host.files.read_optional(path)
            if text is None:
                if path == main:
                    break
                raise ValueError(f"open {path}: no such file or directory")
            if new and text.startswith("\ufeff"):
                raise ValueError("invalid character at start of key")
            loaded.append(path)
            data = deepcopy(parse(text).data)
            plugins = data.get("plugins", {})
            if new and data.get("version", 0) < 2:
                # Renamed, and then taken for version 3, in which nobody reads this name.
                data["version"] = 3
                plugins = {V2 if name == "cri" else name: value for name, value in plugins.items()}
            config["version"] = data.get("version") or config["version"]
            config["disabled_plugins"] += data.get("disabled_plugins", [])
            config["plugins"] = deep(config["plugins"], plugins) if new else {**config["plugins"], **plugins}
            waiting += self.imports(path, data.get("imports", []))
        return self.decoded(config, starts)

    def imports(self, parent: str, patterns: Sequence[str]) -> List[str]:
        found: List[str] = []
        # filepath.Glob of a relative pattern starts where systemd starts the daemon, until 1.6.29 and 1.7.16.
        rooted = self.version < (1, 6, 29) or (1, 7) <= self.version < (1, 7, 16)
        for pattern in patterns:
            folder = "/" if rooted and "*" in pattern else os.path.dirname(parent)
            path = os.path.normpath(os.path.join(folder, pattern))
            if "*" not in path:
                found.append(path)
                continue
            root = self.host.files.root
            found += sorted(str(match)[len(root) :] for match in Path(root).glob(path.lstrip("/")))
        return found

    def decoded(self, config: Mapping[str, Any], starts: bool) -> Dict[str, Any]:
        new, version, plugins = self.version >= (2,), config["version"], config["plugins"]
        if version > (3 if new else 2):
            raise ValueError(f"unsupported config version `{version}`")
        if not new and version == 2 and any(name.count(".") < 3 for name in plugins):
            raise ValueError("invalid plugin key URI")
        cri = plugins.get("cri" if version == 1 else V2, {})
        if new:
            cri = plugins.get(V3, {})
            cri = deep(plugins.get(V2, {}), cri) if version == 2 else cri
        containerd = cri.get("containerd", {})
        written = containerd.get("runtimes", {})
        # What the files say goes into the runc that is built in, which 1.x has only where they have no such table, not
        # even an empty one: go-toml then makes a new map.
        built_in = {"runc": RUNC} if new or "runtimes" not in containerd else {}
        runtimes = {
            name: deep(built_in.get(name) or untyped(runtime), self.known(runtime)) for name, runtime in written.items()
        }
        runtimes = {**built_in, **runtimes}
        default = containerd.get("default_runtime_name", "runc")
        if starts and default not in runtimes:
            raise ValueError(f'no corresponding runtime configured for `default_runtime_name = "{default}"`')
        rest = {key: value for key, value in cri.items() if key not in ("containerd", "enable_cdi")}
        shown = {
            **rest,
            "enable_cdi": cri.get("enable_cdi", new),
            "containerd": {"default_runtime_name": default, "runtimes": runtimes},
        }
        if self.version < (1, 7):
            del shown["enable_cdi"]
        others = {name: table for name, table in plugins.items() if name not in ("cri", V2, V3)}
        return {"version": 3 if new else 2, "plugins": {V3 if new else V2: shown, **others}}

    def known(self, runtime: Mapping[str, Any]) -> Dict[str, Any]:
        """The table of a runtime without the keys that this version ignores."""
        unknown = [key for key, since in SINCE.items() if self.version < since]
        return {key: value for key, value in runtime.items() if key not in unknown}


def untyped(runtime: Mapping[str, Any]) -> Dict[str, Any]:
    """A runtime without a word: the tests show its options as far as the table does not spell them otherwise."""
    spelled = {key.lower() for key in runtime.get("options", {})}
    options = {key: value for key, value in RUNC_OPTIONS.items() if key.lower() not in spelled}
    return {"runtime_type": "", "options": options}


def deep(one: Mapping[str, Any], other: Mapping[str, Any]) -> Dict[str, Any]:
    made = dict(deepcopy(dict(one)))
    for key, value in other.items():
        present = made.get(key)
        made[key] = deep(present, value) if isinstance(present, dict) and isinstance(value, dict) else deepcopy(value)
    return made


class Machine:
    """A host with a containerd of a version, and the way that the concern goes with it."""

    def __init__(self, root: Path, files: Mapping[str, str], version: Optional[Tuple[int, ...]] = OLD) -> None:
        root.mkdir(exist_ok=True)
        self.host = build(root, {**INSTALLED, **files})
        for path, text in files.items():
            # Byte for byte, which the line ends are not in text mode.
            (root / path.lstrip("/")).write_bytes(text.encode("utf-8"))
        self.model = Containerd(self.host, version) if version else None

    @property
    def configuration(self) -> Configuration:
        installation = KIND.find(self.host)
        assert installation is not None
        return KIND.read(self.host.files, installation)

    def text(self, path: str = MAIN) -> Optional[str]:
        return self.host.files.read_optional(path)

    def means(self) -> Dict[str, Any]:
        assert self.model is not None
        plugins = self.model.dump()["plugins"]
        found: Dict[str, Any] = plugins[V3 if self.model.version >= (2,) else V2]
        return found

    def converge(self, wanted: WantedEngine = NVIDIA) -> Tuple[Edit, ...]:
        configuration = self.configuration
        return self._write(configuration, KIND.edit(configuration, wanted), KIND.wanted(wanted, configuration))

    def converge_edits(self, wanted: WantedEngine = NVIDIA) -> Tuple[Edit, ...]:
        """What converge would edit; nothing of it is done."""
        return KIND.edit(self.configuration, wanted)

    def restore(self, baseline: Settings) -> Tuple[Edit, ...]:
        configuration = self.configuration
        return self._write(configuration, KIND.restore(configuration, baseline), {})

    def _write(self, configuration: Configuration, edits: Tuple[Edit, ...], wanted: Settings) -> Tuple[Edit, ...]:
        installation, files = configuration.installation, self.host.files
        if edits:
            candidate = KIND.read(CandidateFiles(files, edits), installation)
            assert {name: candidate.settings.get(name) for name in wanted} == wanted
            KIND.check(self.host, installation, edits)
        for edit in in_order(edits, installation.drop_in):
            assert files.read_optional(edit.path) == edit.before
            if edit.after is None:
                files.remove(edit.path)
            else:
                files.replace(edit.path, edit.after)
            if self.model is not None and not edit.path.endswith(".tmpl"):
                # A run that is killed here leaves what containerd starts with.
                self.model.dump(configuration.installation.main)
        return edits


def runtime_text(plugin: str = f'"{V2}"', name: str = "nvidia", program: str = PROGRAM, systemd: str = "false") -> str:
    return (
        f'[plugins.{plugin}.containerd.runtimes.{name}]\nruntime_type = "io.containerd.runc.v2"\n\n'
        f'[plugins.{plugin}.containerd.runtimes.{name}.options]\nBinaryName = "{program}"\nSystemdCgroup = {systemd}\n'
    )


RUNC_BLOCK = f'[plugins."{V2}".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
DEBIAN = """\
version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
"""
KUBEADM = """\
# As kubeadm's guide has it.
version = 2
[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "registry.k8s.io/pause:3.8" # not latest
    enable_cdi = false
    [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "runc"
      snapshotter = "overlayfs"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes]
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
          runtime_type = "io.containerd.runc.v2"  # v2!
          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
            SystemdCgroup = true
"""
REGISTRIES = (
    KUBEADM
    + """\
    [plugins."io.containerd.grpc.v1.cri".registry]
      [plugins."io.containerd.grpc.v1.cri".registry.mirrors]
        [plugins."io.containerd.grpc.v1.cri".registry.mirrors."docker.io"]
          endpoint = [
            "https://mirror.example.org", # ours
            "https://registry-1.docker.io",
          ]
      [plugins."io.containerd.grpc.v1.cri".registry.configs."registry.example.org".auth]
        username = "fleet"
        password = "geheim"
"""
)
V1 = """\
[plugins]
  [plugins.cri]
    sandbox_image = "pause"
    [plugins.cri.containerd]
      snapshotter = "overlayfs"
"""
V3_TEXT = """\
version = 3

[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'

[plugins.'io.containerd.cri.v1.runtime']
  max_container_log_line_size = 16384

  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'runc'

    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = 'io.containerd.runc.v2'

      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        SystemdCgroup = true
"""
OTHER = f'[plugins."{V2}".containerd.runtimes.kata]\n  runtime_type = "io.containerd.kata.v2"\n'
LONG = KUBEADM + "".join(
    f'[plugins."{V2}".registry.mirrors."r{number}.example.org"]\nendpoint = ["https://m{number}"]\n'
    for number in range(2500)
)
# As nodeadm of EKS writes it, but for the registry.
EKS = """\
version = {version}
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "/run/containerd/containerd.sock"

[plugins."{plugin}".containerd]
default_runtime_name = "runc"

[plugins."{plugin}".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "/etc/containerd/base-runtime-spec.json"

[plugins."{plugin}".containerd.runtimes.runc.options]
SystemdCgroup = true

[plugins."{plugin}".cni]
bin_dir = "/opt/cni/bin"
conf_dir = "/etc/cni/net.d"
"""
SHORT = f"version = 3\n[plugins.'{V3}'.containerd.runtimes.runc.options]\n  SystemdCgroup = true\n"
KEYS_TEXT = V3_TEXT.replace(
    "      runtime_type = 'io.containerd.runc.v2'\n",
    "      runtime_type = 'io.containerd.runc.v2'\n      base_runtime_spec = '/etc/containerd/base-runtime-spec.json'\n"
    "      container_annotations = ['cdi.k8s.io/*', 'a']\n      cni_max_conf_num = 2\n",
).replace("SystemdCgroup = true\n", "SystemdCgroup = true\n        Root = '/run/runc'\n        NoNewKeyring = true\n")
# Each: the version of containerd (None where no program is there), and the files.
CORPUS: Mapping[str, Tuple[Optional[Tuple[int, ...]], Mapping[str, str]]] = {
    "missing": (OLD, {}),
    "missing 2.x": (NEW, {}),
    "missing, no program": (None, {}),
    "empty": (OLD, {MAIN: ""}),
    "empty 2.x": (NEW, {MAIN: ""}),
    "comments": (OLD, {MAIN: "# nothing\n\n#version = 2\n"}),
    "comments 2.x": (NEW, {MAIN: "# nothing\n# version = 3"}),
    "blanks": (OLD, {MAIN: "\n  \n"}),
    "version alone": (OLD, {MAIN: "version = 2"}),
    "version alone 2.x": (NEW, {MAIN: "version = 3\n"}),
    "Debian": (OLD, {MAIN: DEBIAN}),
    "Debian 2.x": (NEW, {MAIN: DEBIAN}),
    "Debian, no program": (None, {MAIN: DEBIAN}),
    "kubeadm": (OLD, {MAIN: KUBEADM}),
    "kubeadm 2.x": (NEW, {MAIN: KUBEADM}),
    "registries": (OLD, {MAIN: REGISTRIES}),
    "registries 2.x": (NEW, {MAIN: REGISTRIES}),
    "version 1": (OLD, {MAIN: V1}),
    "version 1 said": (OLD, {MAIN: f"version = 1\n{V1}"}),
    "version 1 on 2.x": (NEW, {MAIN: V1}),
    "version 3": (NEW, {MAIN: V3_TEXT}),
    "version 3, no program": (None, {MAIN: V3_TEXT}),
    "short form": (NEW, {MAIN: SHORT}),
    "short form, no program": (None, {MAIN: SHORT}),
    "EKS": (OLD, {MAIN: EKS.format(version=2, plugin=V2)}),
    "EKS 2.x": (NEW, {MAIN: EKS.format(version=3, plugin=V3)}),
    "keys of the default runtime": (NEW, {MAIN: KEYS_TEXT}),
    "other runtimes": (OLD, {MAIN: KUBEADM + OTHER}),
    "other runtimes alone": (OLD, {MAIN: "version = 2\n" + OTHER + RUNC_BLOCK}),
    "other runtimes 2.x": (NEW, {MAIN: KUBEADM + OTHER}),
    "ours by another hand": (OLD, {MAIN: KUBEADM + runtime_text(systemd="true")}),
    "ours with another program": (OLD, {MAIN: KUBEADM + runtime_text(program="/opt/nv")}),
    "ours with another program 2.x": (NEW, {MAIN: KUBEADM + runtime_text(program="/opt/nv")}),
    "Windows line ends": (OLD, {MAIN: KUBEADM.replace("\n", "\r\n")}),
    "Windows line ends 2.x": (NEW, {MAIN: V3_TEXT.replace("\n", "\r\n")}),
    "byte-order mark": (OLD, {MAIN: "\ufeff" + DEBIAN}),
    "no last line end": (OLD, {MAIN: DEBIAN.rstrip("\n")}),
    "no last line end 2.x": (NEW, {MAIN: V3_TEXT.rstrip("\n")}),
    "long": (OLD, {MAIN: LONG}),
    "long 2.x": (NEW, {MAIN: LONG}),
    "inline tables": (OLD, {MAIN: f'version = 2\nplugins."{V2}".containerd = {{ snapshotter = "native" }}\n'}),
    "dotted keys": (OLD, {MAIN: f'version = 2\n[plugins]\n"{V2}".sandbox_image = "p"\n[grpc]\ngid = 1\n'}),
    "imports of a folder": (
        NEW, {MAIN: f'imports = ["{FOLDER}/*.toml"]\n{V3_TEXT}', f"{FOLDER}/a.toml": "version = 3\n"}
    ),
    "imports, relative": (NEW, {MAIN: f'imports = ["conf.d/*.toml"]\n{V3_TEXT}'}),
    "imports of one file": (
        NEW,
        {MAIN: 'imports = [\n  # theirs\n  "more.toml",\n]\n' + V3_TEXT,
         "/etc/containerd/more.toml": f'version = 3\n[plugins."{V3}"]\nenable_selinux = true\n'},
    ),
    "imports that import": (
        NEW,
        {MAIN: 'version = 3\nimports = ["a.toml"]\n',
         "/etc/containerd/a.toml": 'version = 3\nimports = ["b*.toml"]\n',
         "/etc/containerd/b1.toml": f'version = 3\n[plugins."{V3}"]\nenable_selinux = true\n'},
    ),
    "imports of another plugin": (
        OLD,
        {MAIN: f'imports = ["x.toml"]\n{DEBIAN}',
         "/etc/containerd/x.toml": 'version = 2\n[plugins."io.containerd.gc.v1.scheduler"]\nstartup_delay = "1s"\n'},
    ),
    "imports, empty": (NEW, {MAIN: f"imports = []\n{V3_TEXT}"}),
    "imports, 2.x and version 2": (
        NEW, {MAIN: f'imports = ["/etc/containerd/c/*"]\n{KUBEADM}', "/etc/containerd/c/x": f"version = 2\n{OTHER}"}
    ),
}  # fmt: skip
RANCHER = "/var/lib/rancher/{}/agent/etc/containerd"
GENERATED_2 = f"""\
# File generated by k3s. DO NOT EDIT. Use config.toml.tmpl instead.
version = 2
[plugins."{V2}"]
  enable_selinux = false
  enable_unprivileged_ports = true
[plugins."{V2}".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."{V2}".containerd.runtimes.runc.options]
  SystemdCgroup = true
"""
GENERATED_3 = GENERATED_2.replace("version = 2", "version = 3").replace(V2, V3)
FULL_TEMPLATE = """\
version = 2

[plugins."io.containerd.internal.v1.opt"]
  path = "{{ .NodeConfig.Containerd.Opt }}"
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_port = "10010"
  enable_selinux = {{ .NodeConfig.SELinux }}
{{- if .DisableCgroup}}
  disable_cgroup = true
{{end}}
{{- if .NodeConfig.AgentConfig.PauseImage }}
  sandbox_image = "{{ .NodeConfig.AgentConfig.PauseImage }}"
{{end}}
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = {{ .SystemdCgroup }}  # {{ .Program }}
{{range $k, $v := .ExtraRuntimes}}
#{{$k}}
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes."{{$k}}"]
  runtime_type = "{{$v.RuntimeType}}"
{{end}}
"""
