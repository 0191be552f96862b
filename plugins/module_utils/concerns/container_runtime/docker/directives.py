# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keys of ``daemon.json`` with which dockerd does not start, for releases that have no ``--validate`` to report them.

After ``findConfigurationConflicts`` and ``configValuesSet`` of moby's daemon/config/config.go (v19.03.15, v20.10.27),
which compare the keys with the options in cmd/dockerd. Case counts. An object that is not one of the known maps is
replaced by its own keys, so ``{"feautres": {"cdi": true}}`` is refused because of ``cdi``.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Sequence, Tuple

from ...._text.json_text import BOM
from .meaning import dotted

# By the first release that has them; earlier releases are not known here.
KNOWN: Mapping[Tuple[int, int], Sequence[str]] = {
    (19, 3): (
        *("add-runtime", "allow-nondistributable-artifacts", "api-cors-header", "authorization-plugin"),
        *("authorization-plugins", "bip", "bridge", "builder", "cgroup-parent", "cluster-advertise", "cluster-store"),
        *("cluster-store-opt", "cluster-store-opts", "config-file", "containerd", "containerd-namespace"),
        *("containerd-plugins-namespace", "cpu-rt-period", "cpu-rt-runtime", "cri-containerd", "data-root", "debug"),
        *("default-address-pool", "default-address-pools", "default-gateway", "default-gateway-v6", "default-ipc-mode"),
        *("default-runtime", "default-shm-size", "default-ulimit", "default-ulimits", "deprecated-key-path", "dns"),
        *("dns-opt", "dns-opts", "dns-search", "exec-opt", "exec-opts", "exec-root", "experimental", "features"),
        *("fixed-cidr", "fixed-cidr-v6", "graph", "group", "help", "host", "hosts", "icc", "init", "init-path"),
        *("insecure-registries", "insecure-registry", "ip", "ip-forward", "ip-masq", "iptables", "ipv6", "label"),
        *("labels", "live-restore", "log-driver", "log-level", "log-opt", "log-opts", "max-concurrent-downloads"),
        *("max-concurrent-uploads", "metrics-addr", "mtu", "network-control-plane-mtu", "network-diagnostic-port"),
        *("no-new-privileges", "node-generic-resource", "node-generic-resources", "oom-score-adjust", "pidfile"),
        *("raw-logs", "registry-mirror", "registry-mirrors", "restart", "rootless", "runtimes", "seccomp-profile"),
        *("selinux-enabled", "shutdown-timeout", "storage-driver", "storage-opt", "storage-opts"),
        *("swarm-default-advertise-addr", "tls", "tlscacert", "tlscert", "tlskey", "tlsverify", "userland-proxy"),
        *("userland-proxy-path", "userns-remap", "version"),
    ),
    (20, 10): ("default-cgroupns-mode", "host-gateway-ip", "ip6tables", "max-download-attempts"),
}
# The maps whose keys are not options.
# Of the oldest, those that are gone by docker-v29.7.2. The others are known to every release.
GONE = (
    *("allow-nondistributable-artifacts", "api-cors-header", "cluster-advertise", "cluster-store", "cluster-store-opt"),
    *("cluster-store-opts", "deprecated-key-path", "graph", "oom-score-adjust"),
)
MAPS = ("builder", "cluster-store-opts", "default-ulimits", "features", "log-opts", "runtimes")
# What the command line and the file may both have.
MERGED = ("runtimes",)


def refusal(
    text: str, values: Mapping[str, Any], given: Mapping[str, Tuple[Any, str]], version: Tuple[int, ...]
) -> str:
    """Why dockerd of this release would not start with a file, empty where it would as far as its keys go.

    ``values`` is what the text means, and ``given`` are the options of the command line by their keys, with the places
    that they come from.
    """
    if version not in KNOWN:
        return ""
    known = [key for since, keys in KNOWN.items() if since <= version for key in keys]
    keys = _flattened(values)
    unknown = [key for key in keys if key not in known]
    twice = [key for key in keys if key in given and key not in MERGED]
    cause = ""
    if unknown:
        cause = f"dockerd {dotted(version)} does not know {located(text, values, unknown)}"
    elif twice:
        cause = f"{given[twice[0]][1]} sets {located(text, values, twice)} on the command line of dockerd too"
    elif values.get("graph") and values.get("data-root"):
        cause = f"dockerd {dotted(version)} takes only one of {located(text, values, ['graph', 'data-root'])}"
    return f"{cause}, so it would not start" if cause else ""


def in_doubt(text: str, values: Mapping[str, Any], given: Mapping[str, Tuple[Any, str]]) -> bool:
    """Whether any release may not start with the keys of a file; for the arguments see ``refusal``."""
    sure = [key for key in KNOWN[(19, 3)] if key not in GONE]
    return text.startswith(BOM) or any(
        key not in sure or (key in given and key not in MERGED) for key in _flattened(values)
    )


def located(text: str, values: Mapping[str, Any], keys: Sequence[str]) -> str:
    """The keys as the file has them, each with its line where it is there."""
    ways = _flattened(values)
    return " and ".join(
        f"{'.'.join(ways[key])} (line {_line(text, ways[key])})" if key in ways else key for key in keys
    )


def _flattened(values: Mapping[str, Any]) -> Dict[str, Tuple[str, ...]]:
    """The keys that count, each with the way to it."""
    found: Dict[str, Tuple[str, ...]] = {}
    for key, value in values.items():
        if isinstance(value, dict) and key not in MAPS:
            found.update({inner: (key, inner) for inner in value})
        else:
            found[key] = (key,)
    return found


def _line(text: str, way: Sequence[str]) -> int:
    from ...._text.json_edit import members_of

    body = text.lstrip(BOM)
    start = at = body.index("{")
    for key in way:
        at, start = next((member.key_start, member.start) for member in members_of(body, start) if member.key == key)
    return body.count("\n", 0, at) + 1
