# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with a stand-in of a kubelet, since a kubelet itself is not to be had where the tests run.

It does as the sources of Kubernetes say (pkg/kubelet/cm): it reads its files and flags when it starts, drops the fields
that it does not know, exits where its state files do not fit, where nothing is reserved for the static policy, or where
reserved memory does not add up, and writes state files where there are none. It says what it has read on /configz, to
whom it knows, and that it is well on /healthz. What it computes is written here a second time, from those sources, and
not taken from the collection.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kubelet_config.concern import CONCERN
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedFiles
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

UNIT = "kubelet.service"
CONFIG, FOLDER = "/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet.conf.d"
CPU_STATE, MEMORY_STATE = "/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/memory_manager_state"
PKI = "/etc/kubernetes/pki/apiserver-kubelet-client"
LIB = "/usr/lib/systemd/system"
NODES = "/sys/devices/system/node"
PIDS = {UNIT: 900, "k3s-agent.service": 950}
GI = 1024**3
# As kubeadm 1.31 writes it.
KUBEADM = """\
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
evictionPressureTransitionPeriod: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
kind: KubeletConfiguration
logging:
  flushFrequency: 0
memorySwap: {}
rotateCertificates: true
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
"""
KUBELET_UNIT = (
    "[Unit]\nDescription=kubelet: The Kubernetes Node Agent\n"
    "[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n[Install]\nWantedBy=multi-user.target\n"
)
KUBEADM_DROP_IN = (
    f'[Service]\nEnvironment="KUBELET_CONFIG_ARGS=--config={CONFIG}{{folder}}"\n'
    "EnvironmentFile=-/etc/default/kubelet\n"
    "ExecStart=\nExecStart=/usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf $KUBELET_CONFIG_ARGS"
    " $KUBELET_EXTRA_ARGS\n"
)
UNITS_BIN = {"Ki": 1024, "Mi": 1024**2, "Gi": GI, "": 1}
# What it knows of what we may write, by release. What is not here it drops.
KNOWN = {
    "cpuManagerPolicy": "none",
    "cpuManagerPolicyOptions": None,
    "reservedSystemCPUs": "",
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
    "topologyManagerPolicyOptions": None,
    "memoryManagerPolicy": "None",
    "reservedMemory": None,
    "systemReserved": None,
    "kubeReserved": None,
    "evictionHard": {
        "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
    },
    "evictionSoft": None,
    "evictionSoftGracePeriod": None,
    "evictionMinimumReclaim": None,
    "failSwapOn": True,
    "memorySwap": {},
    "shutdownGracePeriod": "0s",
    "shutdownGracePeriodCriticalPods": "0s",
}
FLAGS = {
    "cpu-manager-policy": ("cpuManagerPolicy", str),
    "reserved-cpus": ("reservedSystemCPUs", str),
    "topology-manager-policy": ("topologyManagerPolicy", str),
    "system-reserved": ("systemReserved", lambda text: dict(one.split("=") for one in text.split(","))),
    "eviction-hard": ("evictionHard", lambda text: dict(one.split("<") for one in text.split(","))),
}


def files_of(*, drop_ins: bool = False, control_plane: bool = True) -> Dict[str, str]:
    """A node that kubeadm made: two NUMA nodes with four CPUs and 16 GiB each."""
    found = {
        f"{LIB}/{UNIT}": KUBELET_UNIT,
        f"{LIB}/{UNIT}.d/10-kubeadm.conf": KUBEADM_DROP_IN.format(folder=f" --config-dir={FOLDER}" if drop_ins else ""),
        CONFIG: KUBEADM,
        "/run/systemd/system/.keep": "",
        "/run/proc/meminfo": f"MemTotal: {32 * GI // 1024} kB\nMemAvailable: 1 kB\n",
        "/run/proc/swaps": "Filename Type Size Used Priority\n",
        "/sys/devices/system/cpu/online": "0-7\n",
        "/sys/devices/system/cpu/possible": "0-7\n",
        "/run/cgroup/cgroup.controllers": "cpuset cpu memory\n",
        "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
    }
    for node in (0, 1):
        found[f"{NODES}/node{node}/meminfo"] = f"Node {node} MemTotal: {16 * GI // 1024} kB\n"
        found[f"{NODES}/node{node}/cpulist"] = f"{4 * node}-{4 * node + 3}\n"
        found[f"{NODES}/node{node}/hugepages/hugepages-1048576kB/nr_hugepages"] = "0\n"
    for cpu in range(8):
        found[f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"] = f"{cpu // 4}\n"
    if drop_ins:
        found[f"{FOLDER}/10-site.conf"] = (
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nsystemReserved:\n  pid: '1000'\n"
        )
    if control_plane:
        found.update({f"{PKI}.crt": "certificate", f"{PKI}.key": "key"})
    return found


def cpus(text: str) -> List[int]:
    found: List[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _dash, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def size(text: str) -> int:
    number = text.rstrip("KMGi")
    return int(number) * UNITS_BIN[text[len(number) :]]


class Kubelet:
    """systemd, and the kubelet of a machine with what it has in its memory.

    ``knows`` are the certificates that it takes, ``slow`` lets it never be well, and ``forgets`` are fields that this
    release does not know.
    """

    def __init__(self, host: FakeHost, unit: str = UNIT) -> None:
        self.files = RecordedFiles(host.files.root)
        self.unit = unit
        self.knows: Tuple[str, ...] = (f"{PKI}.crt",)
        self.forgets: Tuple[str, ...] = ()
        self.slow = False
        self.release = "Kubernetes v1.31.2"
        self.config: Optional[Dict[str, Any]] = None
        self.log = ""
        self.starts: List[str] = []
        self.pid = PIDS[unit]
        self._boot = time.time() - 100_000.0
        self.order: List[str] = []
        host.commands.programs.update(
            systemctl=self._systemctl,
            journalctl=lambda argv: Completed(0, self.log, ""),
            kubelet=lambda argv: Completed(0, f"{self.release}\n", ""),
        )
        host.http_get = self.http_get  # type: ignore[method-assign]
        self._write("/run/proc/stat", f"btime {int(self._boot)}\n")

    @property
    def runs(self) -> bool:
        return self.config is not None

    def http_get(self, socket: str, target: str, identity: Optional[Tuple[str, str]] = None) -> str:
        if self.runs and target == "/healthz" and socket == "127.0.0.1:10248":
            if self.slow:
                raise OSError(errno.EPROTO, "status 500 Internal Server Error", socket)
            return "ok"
        if self.runs and target == "/configz" and socket == "127.0.0.1:10250":
            if identity is None or identity[0] not in self.knows:
                raise OSError(errno.EPROTO, "status 401 Unauthorized: Unauthorized", socket)
            return json.dumps(
                {"kubeletconfig": {key: value for key, value in (self.config or {}).items() if value is not None}}
            )
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED), socket)

    # --- systemd ---

    def _systemctl(self, argv: Sequence[str]) -> Completed:
        verb, unit = argv[1], argv[-1]
        assert unit == self.unit, argv
        if verb == "show":
            return Completed(0, f"InvocationID={len(self.starts):032x}\n", "")
        if verb == "reset-failed":
            return Completed(0, "", "")
        self.order.append(verb)
        if verb in ("stop", "restart"):
            self._end()
        if verb in ("start", "restart"):
            self.start()
        return Completed(0, "", "")

    def start(self) -> None:
        """As systemd does: whether it comes up is only seen later."""
        if self.runs:
            return
        self.starts.append(self.unit)
        self.log = ""
        try:
            self.config = self._load()
            self._check_state(self.config)
        except ValueError as error:
            self.config = None
            self.log = f'E1125 09:00:00.000000 900 run.go:74] "command failed" err="{error}"\n'
            return
        folder = self._place(f"/run/proc/{self.pid}")
        folder.mkdir(parents=True, exist_ok=True)
        ticks = int((time.time() - self._boot) * 100)
        (folder / "comm").write_text("kubelet\n")
        (folder / "cmdline").write_text("\0".join(["/usr/bin/kubelet", *self._words()]))
        (folder / "stat").write_text(f"{self.pid} (kubelet) S 1 {' '.join(['0'] * 17)} {ticks} 0 0\n")
        self._write(f"/run/cgroup/system.slice/{self.unit}/cgroup.procs", f"{self.pid}\n")
        self._write("/run/cgroup/kubepods.slice/hugetlb.1GB.max", f"{sum(self._pages()) * GI}\n")

    def _end(self) -> None:
        self.config = None
        shutil.rmtree(self._place(f"/run/proc/{self.pid}"), ignore_errors=True)
        self._place(f"/run/cgroup/system.slice/{self.unit}/cgroup.procs").unlink(missing_ok=True)

    def reboot(self) -> None:
        self._end()
        self.start()

    # --- the kubelet ---

    def _words(self) -> List[str]:
        text = self.files.read(f"{LIB}/{UNIT}.d/10-kubeadm.conf")
        words = text.partition("KUBELET_CONFIG_ARGS=")[2].partition('"')[0].split()
        extra = (self.files.read_optional("/etc/default/kubelet") or "").strip().partition("=")[2]
        return [*words, *extra.strip('"').split()]

    def _load(self) -> Dict[str, Any]:
        words = dict(word.lstrip("-").split("=", 1) for word in self._words())
        paths = [words["config"]]
        folder = words.get("config-dir")
        paths += self._drop_ins(folder) if folder else []
        made: Dict[str, Any] = {}
        for path in paths:
            document = yaml.load(self.files.read(path), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            if document.get("kind") != "KubeletConfiguration":
                raise ValueError(f"failed to load kubelet config file, path: {path}: Object 'Kind' is missing")
            for key, value in document.items():
                both = isinstance(value, dict) and isinstance(made.get(key), dict)
                made[key] = {**made[key], **value} if both else value
        known = {key: default for key, default in KNOWN.items() if key not in self.forgets}
        config = {key: default if made.get(key) in (None, "", {}) else made[key] for key, default in known.items()}
        if made.get("mergeDefaultEvictionSettings") and self._minor() >= 33:
            config["evictionHard"] = {**KNOWN["evictionHard"], **config["evictionHard"]}
        config.update({FLAGS[name][0]: FLAGS[name][1](text) for name, text in words.items() if name in FLAGS})
        if config["reservedSystemCPUs"]:
            # run of cmd/kubelet/app/server.go; /configz shows it, as both share their maps.
            for name, number in (("kubeReserved", 0), ("systemReserved", len(cpus(config["reservedSystemCPUs"])))):
                if config[name]:
                    config[name] = {key: text for key, text in config[name].items() if key != "cpu"}
                    config[name].update({"cpu": str(number)} if number else {})
        self._validate(config)
        return config

    def _drop_ins(self, folder: str) -> List[str]:
        found: List[str] = []
        for name in self.files.names(folder):
            path = f"{folder}/{name}"
            if self._place(path).is_dir() and not self._place(path).is_symlink():
                found += self._drop_ins(path)
            elif name.endswith(".conf"):
                found.append(path)
        return found

    def _minor(self) -> int:
        return int(self.release.partition("v1.")[2].partition(".")[0] or 0)

    def _validate(self, config: Mapping[str, Any]) -> None:
        if config["cpuManagerPolicy"] == "static":
            kept = [(config[name] or {}).get("cpu") for name in ("systemReserved", "kubeReserved")]
            if not config["reservedSystemCPUs"] and not any(kept):
                raise ValueError(
                    "start cpu manager error: unable to determine reserved CPU resources for static policy"
                )
        if config["memoryManagerPolicy"] == "Static":
            sums = sum(size(one["limits"]["memory"]) for one in config["reservedMemory"] or [])
            kept = [(config[name] or {}).get("memory", "0") for name in ("systemReserved", "kubeReserved")]
            needed = sum(map(size, kept)) + size(config["evictionHard"].get("memory.available", "0"))
            if sums != needed:
                raise ValueError(
                    f'the total amount "{sums}" of type "memory" is not equal to the value "{needed}" determined by'
                    " Node Allocatable feature"
                )

    def _check_state(self, config: Mapping[str, Any]) -> None:
        policy = config["cpuManagerPolicy"]
        online = cpus(self.files.read("/sys/devices/system/cpu/online"))
        shared = ",".join(map(str, online)) if policy == "static" else ""
        state = self._state(CPU_STATE, {"policyName": policy, "defaultCpuSet": shared, "checksum": 1})
        if state["policyName"] != policy:
            raise ValueError(
                "start cpu manager error: could not restore state from checkpoint: configured policy"
                f' \\"{policy}\\" differs from state checkpoint policy \\"{state["policyName"]}\\"'
            )
        if policy == "static" and sorted(cpus(state["defaultCpuSet"])) != online:
            raise ValueError("start cpu manager error: current set of available CPUs doesn't match with CPUs in state")
        wanted = {"policyName": config["memoryManagerPolicy"], "checksum": 2, **self._memory(config)}
        state = self._state(MEMORY_STATE, wanted)
        if state["policyName"] != wanted["policyName"]:
            raise ValueError("start memory manager error: could not restore state from checkpoint")
        if state.get("machineState") != wanted.get("machineState"):
            raise ValueError("[memorymanager] the expected machine state is different from the real one")

    def _state(self, path: str, default: Mapping[str, Any]) -> Dict[str, Any]:
        if self.files.read_optional(path) is None:
            self._write(path, json.dumps(default, separators=(",", ":")))
        found: Dict[str, Any] = json.loads(self.files.read(path))
        return found

    def _memory(self, config: Mapping[str, Any]) -> Dict[str, Any]:
        if config["memoryManagerPolicy"] != "Static":
            return {}
        reserved = {one["numaNode"]: size(one["limits"]["memory"]) for one in config["reservedMemory"]}
        state = {}
        for node, pages in enumerate(self._pages()):
            total = int(self.files.read(f"{NODES}/node{node}/meminfo").split()[-2]) * 1024
            tables = {"memory": (total, reserved.get(node, 0)), "hugepages-1Gi": (pages * GI, 0)}
            state[str(node)] = {
                "numberOfAssignments": 0,
                "memoryMap": {
                    name: {
                        "total": total,
                        "systemReserved": kept,
                        "allocatable": total - kept,
                        "reserved": 0,
                        "free": 0,
                    }
                    for name, (total, kept) in tables.items()
                },
                "cells": [node],
            }
        return {"machineState": state}

    def _pages(self) -> List[int]:
        path = f"{NODES}/node{{}}/hugepages/hugepages-1048576kB/nr_hugepages"
        return [int(self.files.read(path.format(node))) for node in (0, 1)]

    # --- the tree ---

    def _place(self, path: str) -> Path:
        return Path(f"{self.files.root}{path}")

    def _write(self, path: str, text: str) -> None:
        place = self._place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def state(self) -> Any:
        return None if self.config is None else dict(self.config)

    def memory(self) -> Any:
        return None if self.config is None else dict(self.config)

    def remember(self, saved: Any) -> None:
        self.config = None if saved is None else dict(saved)


LINKS = {
    "/proc": "/run/proc",
    "/sys/fs/cgroup": "/run/cgroup",
    f"/etc/systemd/system/multi-user.target.wants/{UNIT}": f"{LIB}/{UNIT}",
}


def machine(
    root: Path, extra: Optional[Mapping[str, Optional[str]]] = None, **options: bool
) -> Tuple[FakeHost, Kubelet]:
    """A machine whose kubelet runs with what kubeadm gave it."""
    files = {**files_of(**options), **(extra or {})}
    host = build(root, {path: text for path, text in files.items() if text is not None}, LINKS)
    kubelet = Kubelet(host)
    kubelet.start()
    assert kubelet.runs, kubelet.log
    kubelet.starts.clear()
    return host, kubelet


def run(host: FakeHost, declared: Mapping[str, Any], *, check: bool = False, **more: Any) -> Outcome:
    """One run of the module; its error is raised."""
    validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate({**declared, **more})
    assert validated.error_messages == []
    outcome = converge(CONCERN, validated.validated_parameters, host, check_mode=check)
    if outcome.error is not None:
        raise outcome.error
    return outcome
