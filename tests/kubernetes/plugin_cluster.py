# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of a Kubernetes API server that ``device_plugin`` talks to, and what answers it: the plugins on each node.

The shapes are those of the API reference of Kubernetes 1.33, of the Helm chart of k8s-device-plugin 0.20, of the
deployment of k8s-rdma-shared-dev-plugin 1.5, and of the GPU Operator. The plugin behaves as cmd/config-manager does: a
key that is not there leaves the previous one, a label that does not change is not looked at again, and without a label
the default, ``default`` or the only key counts. The one for RDMA reads its file when its pod starts, and ends where its
pkg/resources/resources_manager.go refuses it.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any, Callable, Dict, List, Optional, Tuple

from ansible_collections.gpufleet.node.tests.kubernetes.api_server import Reply, merged, status

CONFIG_LABEL = "nvidia.com/device-plugin.config"
NAMESPACE = "nvidia-device-plugin"
RDMA_NAMESPACE, RDMA_FILES = "kube-system", "rdma-devices"
LABEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,61})?[A-Za-z0-9]?")
MANAGER = [
    {"name": "NODE_LABEL", "value": CONFIG_LABEL},
    {"name": "CONFIG_FILE_SRCDIR", "value": "/available-configs"},
    {"name": "CONFIG_FILE_DST", "value": "/config/config.yaml"},
]


def daemonset(config_map: Optional[str], *, default: str = "", fallbacks: str = "named,single") -> Dict[str, Any]:
    """That of the chart, as ``helm template`` makes it; without a ConfigMap it has no config-manager."""
    containers: List[Dict[str, Any]] = [
        {
            "name": "nvidia-device-plugin-ctr",
            "image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
            "command": ["nvidia-device-plugin"],
            "env": [{"name": "MPS_ROOT", "value": "/run/nvidia/mps"}],
        }
    ]
    volumes: List[Dict[str, Any]] = [{"name": "mps-shm", "hostPath": {"path": "/run/nvidia/mps/shm"}}]
    if config_map is not None:
        env = [
            *MANAGER,
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "DEFAULT_CONFIG", "value": default},
            {"name": "FALLBACK_STRATEGIES", "value": fallbacks},
        ]
        mounts = [
            {"name": "available-configs", "mountPath": "/available-configs"},
            {"name": "config", "mountPath": "/config"},
        ]
        manager = {"name": "nvidia-device-plugin-sidecar", "command": ["config-manager"], "env": env}
        containers.insert(0, {**manager, "volumeMounts": mounts})
        volumes.append({"name": "available-configs", "configMap": {"name": config_map}})
    return {
        "kind": "DaemonSet",
        "apiVersion": "apps/v1",
        "metadata": {"name": "nvdp-nvidia-device-plugin", "namespace": NAMESPACE},
        "spec": {"template": {"spec": {"containers": containers, "volumes": volumes}}},
    }


def rdma_daemonset() -> Dict[str, Any]:
    """That of deployment/k8s/base."""
    items = [{"key": "config.json", "path": "config.json"}]
    volumes = [
        {"name": "devs", "hostPath": {"path": "/dev/"}},
        {"name": "config", "configMap": {"name": RDMA_FILES, "items": items}},
    ]
    template = {
        "metadata": {"labels": {"name": "rdma-shared-dp-ds"}},
        "spec": {"containers": [{"name": "k8s-rdma-shared-dp-ds"}], "volumes": volumes},
    }
    return {
        "kind": "DaemonSet",
        "apiVersion": "apps/v1",
        "metadata": {"name": "rdma-shared-dp-ds", "namespace": RDMA_NAMESPACE},
        "spec": {"template": template},
    }


OTHER_DAEMONSET = {
    "metadata": {"name": "gpu-feature-discovery"},
    "spec": {"template": {"spec": {"containers": [{"name": "gpu-feature-discovery-ctr"}]}}},
}


class PluginCluster:
    """``gpus`` are how many each node has. ``requests`` are those that changed something.

    A kubelet has a new key after ``slow`` more looks at all nodes. ``meanwhile`` runs before the next patch of a node,
    once. ``forbidden`` is how the requests begin that are answered with 403. ``operator``: the DaemonSet is made from a
    ClusterPolicy, and names the ConfigMap that this names. ``resource_api`` is the version of resource.k8s.io that is
    served, with ``device_classes`` and ``slices``. ``rdma`` is the DaemonSet of the RDMA plugin, None without one.
    ``adapters`` are the network devices of each node, by what selectors choose, and ``rdma_log`` is why pods ended.
    """

    def __init__(self, nodes: Dict[str, int], *, operator: bool = False) -> None:
        self.gpus = dict(nodes)
        self.nodes: Dict[str, Dict[str, Any]] = {name: self._new(name, number) for name, number in nodes.items()}
        self.config_maps: Dict[str, Dict[str, Any]] = {}
        self.daemonsets = [OTHER_DAEMONSET, daemonset("gpufleet-device-plugin")]
        self.policy: Optional[Dict[str, Any]] = None
        if operator:
            self.policy = {
                "apiVersion": "nvidia.com/v1",
                "kind": "ClusterPolicy",
                "metadata": {"name": "cluster-policy", "annotations": {"helm.sh/resource-policy": "keep"}},
                "spec": {"devicePlugin": {"enabled": True}, "mig": {"strategy": "single"}},
            }
        self.requests: List[Tuple[str, str, Dict[str, Any]]] = []
        self.lists = 0
        self.slow = 0
        self.page = 2
        # What each kubelet has offered of nvidia.com/gpu, one after the other.
        self.offers: Dict[str, List[int]] = {name: [number] for name, number in nodes.items()}
        self.active: Dict[str, Tuple[Optional[str], str]] = {}
        self.waiting: Dict[str, int] = {}
        self.meanwhile: Optional[Callable[[], None]] = None
        self.webhook: Callable[[Dict[str, Any]], None] = lambda node: None
        self.forbidden = "nothing"
        self.resource_api: Optional[str] = None
        self.device_classes: Dict[str, Dict[str, Any]] = {}
        self.rdma: Optional[Dict[str, Any]] = None
        self.adapters: Dict[str, List[Dict[str, str]]] = {name: [] for name in nodes}
        self.rdma_log: List[str] = []
        self.started: Dict[str, Any] = {}
        self.slices: List[Dict[str, Any]] = []

    @staticmethod
    def _new(name: str, gpus: int) -> Dict[str, Any]:
        return {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "resourceVersion": "1000",
                "labels": {"kubernetes.io/hostname": name, "nvidia.com/gpu.present": "true"},
                "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
            },
            "spec": {"podCIDR": "10.244.0.0/24"},
            "status": {"allocatable": {"cpu": "112", "memory": "1056Mi", "nvidia.com/gpu": str(gpus)}},
        }

    # --- for tests ----------------------------------------------------------------------------------------------------

    @property
    def changes(self) -> List[str]:
        return [f"{method} {path}" for method, path, _body in self.requests]

    @property
    def data(self) -> Dict[str, str]:
        found: Dict[str, str] = self.config_maps["gpufleet-device-plugin"]["data"]
        return found

    def labels(self, name: str) -> Dict[str, str]:
        found: Dict[str, str] = self.nodes[name]["metadata"]["labels"]
        return found

    def taints(self, name: str) -> List[Dict[str, str]]:
        return list(self.nodes[name]["spec"].get("taints", ()))

    def allocatable(self, name: str) -> Dict[str, str]:
        found: Dict[str, str] = self.nodes[name]["status"]["allocatable"]
        return {key: value for key, value in found.items() if key.startswith("nvidia.com/")}

    def touch(self, name: str) -> None:
        """Somebody else changes the node."""
        metadata = self.nodes[name]["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)

    def publish(self, node: str, *devices: str, generation: int = 1, driver: str = "gpu.nvidia.com") -> None:
        """A driver publishes devices of a node."""
        self.slices.append(
            {
                "metadata": {"name": f"{node}-{driver}-{len(self.slices)}"},
                "spec": {
                    "driver": driver,
                    "nodeName": node,
                    "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
                    "devices": [{"name": name, "attributes": {"type": {"string": "gpu"}}} for name in devices],
                },
            }
        )

    def add_class(self, name: str, *expressions: str, **metadata: Any) -> None:
        """Somebody makes a DeviceClass."""
        spec = {"selectors": [{"cel": {"expression": one}} for one in expressions]}
        self.device_classes[name] = {"metadata": {"name": name, **metadata}, "spec": spec}

    def state(self) -> Any:
        """All that a user could have set, without versions."""
        nodes, files = copy.deepcopy(self.nodes), copy.deepcopy(self.config_maps)
        for node in nodes.values():
            del node["metadata"]["resourceVersion"], node["status"]
        for one in files.values():
            one["metadata"].pop("resourceVersion", None)
            # The API server returns no map that is empty.
            if not one["metadata"].get("annotations", True):
                del one["metadata"]["annotations"]
        return nodes, files, copy.deepcopy(self.policy)

    # --- the interface ------------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: Dict[str, List[str]], body: Dict[str, Any]) -> Reply:
        if f"{method} {path}".startswith(self.forbidden):
            return status(403, "Forbidden", f'{path.split("/")[-1]} is forbidden: User "u" cannot do this')
        dry_run = query.get("dryRun") == ["All"]
        if path == "/api/v1/nodes" and method == "GET":
            return self._list(query)
        kind, _slash, name = path.rpartition("/")
        if kind == "/api/v1/nodes" and name in self.nodes:
            return (200, self.nodes[name]) if method == "GET" else self._patch(name, path, body, dry_run)
        if path.startswith("/apis/apps/v1/namespaces/"):
            return self._apps(method, path, body, dry_run)
        if re.match(rf"/api/v1/namespaces/({self.namespace}|{RDMA_NAMESPACE})/configmaps", path):
            return self._config_map(method, path, body, dry_run)
        if path == "/apis/nvidia.com/v1/clusterpolicies/cluster-policy" and self.policy is not None:
            if method == "GET":
                return 200, self.policy
            policy = merged(self.policy, body)
            return self._keep(method, path, body, dry_run, lambda: setattr(self, "policy", policy), policy)
        if path == "/apis/resource.k8s.io" and self.resource_api:
            versions = [{"version": version} for version in ("v1alpha3", self.resource_api)]
            return 200, {"kind": "APIGroup", "name": "resource.k8s.io", "versions": versions}
        served = f"/apis/resource.k8s.io/{self.resource_api}/"
        if self.resource_api and path.startswith(served):
            kind, _slash, name = path[len(served) :].partition("/")
            if method == "GET":
                return self._resources(kind, query)
            return self._class(method, path, name or body["metadata"]["name"], body, dry_run)
        return status(404, "NotFound", f'"{path}" not found')

    def _resources(self, kind: str, query: Dict[str, List[str]]) -> Reply:
        items = list(self.device_classes.values())
        if kind == "resourceslices":
            (selector,) = query["fieldSelector"]
            items = [one for one in self.slices if f"spec.driver={one['spec']['driver']}" == selector]
        return self._page("List", query, items)

    def _class(self, method: str, path: str, name: str, body: Dict[str, Any], dry_run: bool) -> Reply:
        if method == "DELETE":
            return self._keep(method, path, body, dry_run, lambda: self.device_classes.pop(name), {"kind": "Status"})
        changed = body if method == "POST" else merged(self.device_classes[name], body)
        for number, one in enumerate(changed["spec"]["selectors"]):
            expression = one["cel"]["expression"]
            # Of a compiler of CEL there is only what counts brackets.
            if expression.count("(") != expression.count(")"):
                where = f"spec.selectors[{number}].cel.expression"
                said = f'{where}: Invalid value: "{expression}": compilation failed: Syntax error'
                return status(422, "Invalid", f'DeviceClass.resource.k8s.io "{name}" is invalid: {said}')
        return self._keep(method, path, body, dry_run, lambda: self.device_classes.__setitem__(name, changed), changed)

    def _apps(self, method: str, path: str, body: Dict[str, Any], dry_run: bool) -> Reply:
        namespace, name = path.split("/")[5], path.partition("/daemonsets/")[2]
        if method == "PATCH" and self.rdma is not None and name == self.rdma["metadata"]["name"]:
            changed = merged(self.rdma, body)
            return self._keep(method, path, body, dry_run, lambda: setattr(self, "rdma", changed), changed)
        items = self._daemonsets() if namespace == self.namespace else []
        if namespace == RDMA_NAMESPACE and self.rdma is not None:
            items = [OTHER_DAEMONSET, self.rdma]
        return 200, {"kind": "DaemonSetList", "apiVersion": "apps/v1", "metadata": {}, "items": items}

    @property
    def namespace(self) -> str:
        return NAMESPACE if self.policy is None else "gpu-operator"

    def _keep(
        self, method: str, path: str, body: Dict[str, Any], dry_run: bool, do: Callable[[], Any], reply: Dict[str, Any]
    ) -> Reply:
        if not dry_run:
            self.requests.append((method, path, body))
            do()
        return 200, reply

    def _list(self, query: Dict[str, List[str]]) -> Reply:
        if "continue" not in query:
            self.lists += 1
            self._work()
            self._work_of_rdma()
        return self._page("NodeList", query, list(self.nodes.values()))

    def _page(self, kind: str, query: Dict[str, List[str]], items: List[Dict[str, Any]]) -> Reply:
        assert int(query["limit"][0]) > 0
        begin = int(query.get("continue", ["0"])[0])
        end = begin + self.page
        metadata = {"continue": str(end)} if end < len(items) else {}
        return 200, {"kind": kind, "metadata": metadata, "items": items[begin:end]}

    def _patch(self, name: str, path: str, body: Dict[str, Any], dry_run: bool) -> Reply:
        once, self.meanwhile = self.meanwhile, None
        if once is not None:
            once()
        if body["metadata"]["resourceVersion"] != self.nodes[name]["metadata"]["resourceVersion"]:
            said = f'Operation cannot be fulfilled on nodes "{name}": the object has been modified'
            return status(409, "Conflict", said)
        node = merged(self.nodes[name], body)
        wrong = [value for value in node["metadata"]["labels"].values() if not LABEL.fullmatch(value)]
        if wrong:
            return status(422, "Invalid", f'Node "{name}" is invalid: metadata.labels: Invalid value: "{wrong[0]}"')
        self.webhook(node)

        def do() -> None:
            self.nodes[name] = node
            self.touch(name)

        return self._keep("PATCH", path, body, dry_run, do, node)

    def _config_map(self, method: str, path: str, body: Dict[str, Any], dry_run: bool) -> Reply:
        name = path.partition("/configmaps/")[2]
        if method == "POST":
            made = body["metadata"]["name"]
            assert made not in self.config_maps
            body["metadata"]["resourceVersion"] = "1"
            return self._keep(method, path, body, dry_run, lambda: self.config_maps.__setitem__(made, body), body)
        if name not in self.config_maps:
            return status(404, "NotFound", f'configmaps "{name}" not found')
        found = self.config_maps[name]
        if method == "GET":
            return 200, found
        if method == "DELETE":
            return self._keep(method, path, body, dry_run, lambda: self.config_maps.pop(name), {"kind": "Status"})
        version = found["metadata"].get("resourceVersion", "1")
        if body.get("metadata", {}).get("resourceVersion", version) != version:
            said = f'Operation cannot be fulfilled on configmaps "{name}": the object has been modified'
            return status(409, "Conflict", said)
        changed = merged(found, body)
        changed["metadata"]["resourceVersion"] = str(int(version) + 1)
        return self._keep(method, path, body, dry_run, lambda: self.config_maps.__setitem__(name, changed), changed)

    # --- the device plugin --------------------------------------------------------------------------------------------

    def _daemonsets(self) -> List[Dict[str, Any]]:
        if self.policy is None:
            return self.daemonsets
        config = self.policy["spec"]["devicePlugin"].get("config") or {}
        made = daemonset(config.get("name"), default=config.get("default") or "", fallbacks="")
        pod = made["spec"]["template"]["spec"]
        pod["containers"][-1]["name"] = "nvidia-device-plugin"
        pod["containers"][-1]["command"] = ["/bin/sh", "-c"]
        strategy = {"name": "MIG_STRATEGY", "value": self.policy["spec"]["mig"]["strategy"]}
        pod["containers"][-1]["env"].append(strategy)
        owner = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "cluster-policy", "controller": True}
        made["metadata"] = {"name": "nvidia-device-plugin-daemonset", "ownerReferences": [owner]}
        return [made]

    def _work(self) -> None:
        """What the config-manager of each node does, and then its plugin and its kubelet."""
        manager = next(
            (
                one
                for item in self._daemonsets()
                for one in item["spec"]["template"]["spec"]["containers"]
                if one.get("command") == ["config-manager"]
            ),
            None,
        )
        volumes = [
            volume["configMap"]["name"]
            for item in self._daemonsets()
            for volume in item["spec"]["template"]["spec"].get("volumes", ())
            if "configMap" in volume
        ]
        if manager is None or not volumes or volumes[0] not in self.config_maps:
            return
        files = self.config_maps[volumes[0]]["data"]
        env = {one["name"]: one.get("value", "") for one in manager["env"]}
        for name in self.nodes:
            label = self.labels(name).get(CONFIG_LABEL)
            key = label or env["DEFAULT_CONFIG"] or ("default" if "default" in files else "")
            if not key and len(files) == 1 and "single" in env["FALLBACK_STRATEGIES"]:
                (key,) = files
            if key not in files or self.active.get(name, (None, ""))[0] == key:
                continue
            self.waiting.setdefault(name, self.slow)
            if self.waiting[name]:
                self.waiting[name] -= 1
                continue
            del self.waiting[name]
            self.active[name] = (key, files[key])
            self._offer(name, json.loads(files[key]))

    def _offer(self, name: str, config: Dict[str, Any]) -> None:
        allocatable = self.nodes[name]["status"]["allocatable"]
        for resource in [resource for resource in allocatable if resource.startswith("nvidia.com/")]:
            allocatable[resource] = "0"
        sharing = config.get("sharing", {})
        section = sharing.get("mps") or sharing.get("timeSlicing") or {"resources": []}
        replicas = {one["name"]: one["replicas"] for one in section["resources"]}.get("nvidia.com/gpu", 1)
        shared = section.get("renameByDefault", False)
        allocatable[f"nvidia.com/gpu{'.shared' if shared else ''}"] = str(self.gpus[name] * replicas)
        if self.offers[name][-1] != int(allocatable["nvidia.com/gpu"]):
            self.offers[name].append(int(allocatable["nvidia.com/gpu"]))

    # --- the RDMA shared device plugin --------------------------------------------------------------------------------

    def _work_of_rdma(self) -> None:
        """A pod is made again where its template is another one, and reads the file then; without one it waits."""
        files = self.config_maps.get(RDMA_FILES, {}).get("data", {})
        for name, node in self.nodes.items():
            allocatable = node["status"]["allocatable"]
            if self.rdma is None or "config.json" not in files:
                continue
            template = json.dumps(self.rdma["spec"]["template"])
            if self.started.get(name) == template:
                continue
            self.waiting.setdefault(f"rdma {name}", self.slow)
            if self.waiting[f"rdma {name}"]:
                self.waiting[f"rdma {name}"] -= 1
                continue
            del self.waiting[f"rdma {name}"]
            self.started[name] = template
            for resource in [one for one in allocatable if one.startswith("rdma/")]:
                allocatable[resource] = "0"
            try:
                entries = json.loads(files["config.json"])["configList"]
            except ValueError as error:
                self.rdma_log.append(str(error))
                continue
            if not entries:
                self.rdma_log.append("no resources configuration found")
            for entry in entries:
                chosen = entry.get("selectors") or {"ifNames": entry["devices"]}
                matching = [
                    adapter for adapter in self.adapters[name] if all(adapter[key] in chosen[key] for key in chosen)
                ]
                resource = f"{entry.get('resourcePrefix', 'rdma')}/{entry['resourceName']}"
                allocatable[resource] = str(entry["rdmaHcaMax"] if matching else 0)
