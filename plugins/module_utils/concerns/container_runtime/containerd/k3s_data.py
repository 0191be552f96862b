# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What k3s and RKE2 render a template of containerd with: ``ContainerdConfig`` of their pkg/agent/templates.

The fields are those of all versions that had a template, with ``Node``, ``Containerd`` and ``Agent`` of
pkg/daemons/config and ``Registry`` of rancher/wharfie. Their functions are those of ``templateFuncs``.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

from ...._core.value import field, frozen
from ...._text.go_template import Functions, Struct

# The runtimes that they look for, and where: what the GPU Operator installs comes first.
DETECTED = {
    "nvidia": "nvidia-container-runtime",
    "nvidia-cdi": "nvidia-container-runtime.cdi",
    "nvidia-legacy": "nvidia-container-runtime.legacy",
    "nvidia-experimental": "nvidia-container-runtime-experimental",
}
FOLDERS = ("/usr/local/nvidia/toolkit", "/usr/bin")
RUNC_TYPE = "io.containerd.runc.v2"
# The others that they look for, whose types went through versions: what they found stands in what they generated.
OTHERS = ("crun", "lunatic", "slight", "spin", "wws", "wasmedge", "wasmer", "wasmtime")

_FLAGS = {
    "": ("DisableCgroup", "IsRunningInUserNS", "EnableUnprivileged", "NonrootDevices", "NoDefaultEndpoint"),
    "NodeConfig": (
        *("Docker", "NoFlannel", "SELinux", "FlannelIPv6Masq", "FlannelExternalIP", "FlannelConfOverride"),
        *("EmbeddedRegistry", "SupervisorMetrics"),
    ),
    "Containerd": ("NoDefault", "NonrootDevices", "SELinux", "Debug"),
    "AgentConfig": (
        *("Systemd", "Rootless", "CNIPlugin", "DisableCCM", "DisableNPC", "DisableServiceLB", "ProtectKernelDefaults"),
        *("EnableIPv4", "EnableIPv6"),
    ),
}
_TEXTS = {
    "NodeConfig": (
        *(
            "ContainerRuntimeEndpoint",
            "ImageServiceEndpoint",
            "FlannelBackend",
            "FlannelConfFile",
            "EgressSelectorMode",
        ),
        *("Images", "Token"),
    ),
    "Containerd": ("BlockIOConfig", "RDTConfig"),
    "AgentConfig": (
        *("NodeName", "ClusterDomain", "ResolvConf", "NodeIP", "NodeExternalIP", "PauseImage", "ImageServiceSocket"),
        *("SystemDefaultRegistry", "PrivateRegistry", "AirgapExtraRegistry", "ImageCredProvBinDir", "IPSECPSK"),
        *("ImageCredProvConfig", "VModule", "LogFile", "ListenAddress", "MinTLSVersion", "FlannelCniConfFile"),
    ),
}


@frozen
class K3sFacts:
    """What is known of a k3s or an RKE2 beside its template.

    ``systemd_cgroup``, ``default_runtime`` and ``cdi`` are as it generated them last, None where that tells nothing.
    ``runtimes`` are those that it finds now, each with its type and program; ``cgroups`` is ``SystemdCgroup`` of those
    that it generated, which bases from before 2024 leave out.
    """

    flavour: str
    systemd_cgroup: Optional[bool] = None
    default_runtime: str = ""
    cdi: Optional[bool] = None
    snapshotter: str = "overlayfs"
    runtimes: Mapping[str, Tuple[str, str]] = field(default_factory=dict)
    cgroups: Mapping[str, bool] = field(default_factory=dict)


def deschemify(address: str) -> str:
    scheme = "unix://"
    if not isinstance(address, str):
        raise TypeError("it is not a string")
    return address[len(scheme) :] if address.startswith(scheme) else address


FUNCTIONS: Functions = {"deschemify": deschemify}


def data(facts: K3sFacts, runtimes: Mapping[str, Tuple[str, str]], *, full: bool) -> Struct:
    """The data of one rendering. What no file tells is all empty and false, or with ``full`` all there and true."""
    folder, text = f"/var/lib/rancher/{facts.flavour}/agent", "gpufleet" if full else ""

    def struct(name: str, **values: Any) -> Struct:
        known: Dict[str, Any] = dict.fromkeys(_FLAGS.get(name, ()), full)
        return Struct({**known, **dict.fromkeys(_TEXTS.get(name, ()), text), **values})

    containerd = struct(
        "Containerd",
        Address="unix:///run/k3s/containerd/containerd.sock",
        Config=f"{folder}/etc/containerd/config.toml",
        ConfigVersion=3,
        Log=f"{folder}/containerd/containerd.log",
        Opt=f"{folder}/containerd",
        Registry=f"{folder}/etc/containerd/certs.d",
        Root=f"{folder}/containerd",
        State="/run/k3s/containerd",
        Template=f"{folder}/etc/containerd",
    )
    agent = struct(
        "AgentConfig",
        CNIBinDir="/var/lib/rancher/cni/bin",
        CNIConfDir=f"{folder}/etc/cni/net.d",
        RuntimeSocket="unix:///run/k3s/containerd/containerd.sock",
        RootDir="/var/lib/kubelet",
        Snapshotter=facts.snapshotter,
        VLevel=int(full),
        **{name: [text] if full else [] for name in ("NodeLabels", "NodeTaints", "ExtraKubeletArgs", "NodeIPs")},
    )
    node = struct(
        "NodeConfig",
        AgentConfig=agent,
        Containerd=containerd,
        DefaultRuntime=facts.default_runtime,
        ServerHTTPSPort=6443,
        SupervisorPort=9345,
    )
    cgroup = full if facts.systemd_cgroup is None else facts.systemd_cgroup
    return struct(
        "",
        ExtraRuntimes={
            name: Struct(RuntimeType=kind, BinaryName=program) for name, (kind, program) in runtimes.items()
        },
        NodeConfig=node,
        PrivateRegistryConfig=_registries(full),
        Program=facts.flavour,
        SystemdCgroup=cgroup,
    )


def _registries(full: bool) -> Struct:
    if not full:
        return Struct(Mirrors={}, Configs={}, Auths={})
    auth = Struct(dict.fromkeys(("Username", "Password", "Auth", "IdentityToken"), "gpufleet"))
    tls = Struct(CAFile="/ca", CertFile="/cert", KeyFile="/key", InsecureSkipVerify=True)
    mirror = Struct(Endpoints=["https://one.example.org", "https://two.example.org"], Rewrites={"^a": "b"})
    return Struct(
        Mirrors={"registry.example.org": mirror},
        Configs={"registry.example.org": Struct(Auth=auth, TLS=tls)},
        Auths={},
    )


def base(facts: K3sFacts, version: int) -> str:
    """A template with the tables that theirs opens, and what it says of runtimes.

    TOML lets nobody open these tables a second time. Theirs has more keys, none of which says anything of runtimes.
    """
    cri = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}[version]
    cdi = "" if facts.cdi is None or version > 2 else f"enable_cdi = {str(facts.cdi).lower()}\n"
    own = ["io.containerd.internal.v1.opt"] if version == 2 else ["io.containerd.internal.v1.opt", _STREAMS]
    images = [] if version == 2 else [f'[plugins."{_IMAGES}"]\n', f'[plugins."{_IMAGES}".registry]\n']
    runtimes = f'plugins."{cri}".containerd.runtimes'
    generated = [
        f'{{{{ if eq $name "{name}" }}}}SystemdCgroup = {str(cgroup).lower()}{{{{ else }}}}'
        for name, cgroup in facts.cgroups.items()
    ]
    return (
        f"version = {version}\n"
        + "".join(f'[plugins."{name}"]\n' for name in own)
        + "".join(images)
        + f'[plugins."{cri}"]\n{cdi}[plugins."{cri}".cni]\n[plugins."{cri}".containerd]\n'
        + '{{ with .NodeConfig.DefaultRuntime }}default_runtime_name = "{{ . }}"{{ end }}\n'
        + f'[{runtimes}.runc]\nruntime_type = "{RUNC_TYPE}"\n[{runtimes}.runc.options]\n'
        + "SystemdCgroup = {{ .SystemdCgroup }}\n"
        + f'{{{{ range $name, $found := .ExtraRuntimes }}}}[{runtimes}."{{{{ $name }}}}"]\n'
        + 'runtime_type = "{{ $found.RuntimeType }}"\n'
        + f'[{runtimes}."{{{{ $name }}}}".options]\nBinaryName = "{{{{ $found.BinaryName }}}}"\n'
        + "".join(generated)
        + "SystemdCgroup = {{ $.SystemdCgroup }}"
        + "{{ end }}" * len(generated)
        + "\n{{ end }}"
    )


_STREAMS, _IMAGES = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images"
