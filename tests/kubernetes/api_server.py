# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of a Kubernetes API server that a drain talks to, on loopback: one node, its pods, and other nodes.

The shapes are those of the API reference of Kubernetes 1.33: nodes and pods of core/v1, Status, APIResourceList, the
subresource ``pods/eviction`` of policy/v1 with 429 where a PodDisruptionBudget forbids it, merge patches with
``metadata.resourceVersion`` as their precondition (409), and ``dryRun=All``.
"""

from __future__ import annotations

import copy
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Set, Tuple
from urllib.parse import parse_qs, urlsplit

Reply = Tuple[int, Dict[str, Any]]
POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/eviction)?")
RESOURCES = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": "v1",
    "resources": [
        {
            "name": "nodes",
            "singularName": "node",
            "namespaced": False,
            "kind": "Node",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "shortNames": ["no"],
        },
        {
            "name": "pods",
            "singularName": "pod",
            "namespaced": True,
            "kind": "Pod",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "shortNames": ["po"],
            "categories": ["all"],
        },
        {
            "name": "pods/eviction",
            "singularName": "",
            "namespaced": True,
            "group": "policy",
            "version": "v1",
            "kind": "Eviction",
            "verbs": ["create"],
        },
    ],
}
VERBS = {"GET": "get", "PATCH": "patch", "POST": "create", "DELETE": "delete"}
VERSION = {"major": "1", "minor": "33", "gitVersion": "v1.33.1", "platform": "linux/amd64"}


def new_node(name: str) -> Dict[str, Any]:
    """A node that is in service."""
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "uid": "3f8a1f8e-60d2-4f0c-9b54-0f1a2b3c4d5e",
            "resourceVersion": "1000",
            "labels": {"kubernetes.io/hostname": name},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {"podCIDR": "10.244.0.0/24"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


class Cluster:
    """``requests`` are those that would change something: method, path, body. ``lists`` counts the looks at pods,
    ``node_lists`` those at all nodes, ``selectors`` are the labels asked for. ``others`` are only listed.

    ``budgets`` are pods that no budget lets go. An evicted pod is there for ``slow`` more looks at all pods.
    ``forbidden`` is how the requests begin that are answered with 403, such as ``GET /api/v1/nodes``. ``away``: nobody
    listens. ``meanwhile`` runs before the next patch, once; ``then`` after every look at all pods.
    """

    def __init__(self, name: str) -> None:
        self.node = new_node(name)
        self.others: List[Dict[str, Any]] = []
        self.pods: Dict[Tuple[str, str], Dict[str, Any]] = {}
        self.budgets: List[str] = []
        self.ending: Dict[Tuple[str, str], int] = {}
        self.slow = 1
        self.requests: List[Tuple[str, str, Dict[str, Any]]] = []
        self.lists = 0
        self.node_lists = 0
        self.selectors: Set[str] = set()
        self.forbidden = "nothing"
        self.away = False
        self.meanwhile: Optional[Callable[[], None]] = None
        self.then: Callable[[], None] = lambda: None

    def add_pod(self, name: str, *, owner: str = "ReplicaSet", namespace: str = "default", **more: Any) -> None:
        """A running pod; ``owner`` is the kind of its controller, empty for none. ``more`` is for metadata and spec."""
        metadata: Dict[str, Any] = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "7"}
        if owner:
            reference = {
                "apiVersion": "apps/v1",
                "kind": owner,
                "name": f"{name}-owner",
                "uid": "u",
                "controller": True,
            }
            metadata["ownerReferences"] = [reference]
        metadata.update(more.get("metadata", {}))
        spec = {"nodeName": self.node["metadata"]["name"], "containers": [{"name": "c", "image": "i"}]}
        spec.update(more.get("spec", {}))
        status = {"phase": more.get("phase", "Running")}
        self.pods[namespace, name] = {"metadata": metadata, "spec": spec, "status": status}

    @property
    def cordoned(self) -> bool:
        return bool(self.node["spec"].get("unschedulable"))

    @property
    def mark(self) -> Optional[str]:
        mark: Optional[str] = self.node["metadata"]["annotations"].get("gpufleet.node/drained-by")
        return mark

    @property
    def changes(self) -> List[str]:
        """The requests that changed something, in words."""
        return [f"{method} {path}" for method, path, _body in self.requests]

    def touch(self) -> None:
        """Somebody else changes the node."""
        self.node["metadata"]["resourceVersion"] = str(int(self.node["metadata"]["resourceVersion"]) + 1)

    # --- the interface ------------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: Dict[str, List[str]], body: Dict[str, Any]) -> Reply:
        if f"{method} {path}".startswith(self.forbidden):
            what, verb = path.split("/")[3], VERBS[method]
            said = f'{what} is forbidden: User "u" cannot {verb} resource "{what}" in API group "" at the cluster scope'
            return status(403, "Forbidden", said)
        if method == "GET":
            return self._get(path, query)
        if method == "PATCH" and path == f"/api/v1/nodes/{self.node['metadata']['name']}":
            return self._patch(path, query, body)
        pod = POD.fullmatch(path)
        if pod is not None and (pod[1], pod[2]) in self.pods and method in ("POST", "DELETE"):
            return self._end(method, path, (pod[1], pod[2]), body)
        return status(404, "NotFound", f'"{path}" not found')

    def _get(self, path: str, query: Dict[str, List[str]]) -> Reply:
        fixed: Dict[str, Dict[str, Any]] = {
            "/version": VERSION,
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": RESOURCES,
        }
        if path in fixed:
            return 200, fixed[path]
        if path == f"/api/v1/nodes/{self.node['metadata']['name']}":
            return 200, self.node
        if path == "/api/v1/nodes":
            return 200, self._list_nodes(query)
        if path == "/api/v1/pods":
            return 200, self._list(query)
        pod = POD.fullmatch(path)
        if pod is not None and (pod[1], pod[2]) in self.pods:
            return 200, {"kind": "Pod", "apiVersion": "v1", **self.pods[pod[1], pod[2]]}
        return status(404, "NotFound", f'"{path}" not found')

    def _list_nodes(self, query: Dict[str, List[str]]) -> Dict[str, Any]:
        assert query.get("fieldSelector") == ["spec.unschedulable=true"]
        self.node_lists += 1
        nodes = [node for node in (self.node, *self.others) if node["spec"].get("unschedulable")]
        return {"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": nodes}

    def _list(self, query: Dict[str, List[str]]) -> Dict[str, Any]:
        assert query.get("fieldSelector") == [f"spec.nodeName={self.node['metadata']['name']}"]
        self.lists += 1
        self.selectors.update(query.get("labelSelector", ()))
        for key in [key for key, left in self.ending.items() if left <= 0]:
            self.pods.pop(key, None)
            del self.ending[key]
        self.ending = {key: left - 1 for key, left in self.ending.items()}
        self.then()
        return {
            "kind": "PodList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "9"},
            "items": list(self.pods.values()),
        }

    def _patch(self, path: str, query: Dict[str, List[str]], body: Dict[str, Any]) -> Reply:
        once, self.meanwhile = self.meanwhile, None
        if once is not None:
            once()
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted is not None and wanted != self.node["metadata"]["resourceVersion"]:
            name = self.node["metadata"]["name"]
            return status(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on nodes "{name}": the object has been modified; '
                "please apply your changes to the latest version and try again",
            )
        node = merged(self.node, body)
        if query.get("dryRun") == ["All"]:
            return 200, node
        self.requests.append(("PATCH", path, body))
        self.node = node
        self.touch()
        return 200, self.node

    def _end(self, method: str, path: str, key: Tuple[str, str], body: Dict[str, Any]) -> Reply:
        options = body.get("deleteOptions", body)
        uid = options.get("preconditions", {}).get("uid", self.pods[key]["metadata"]["uid"])
        if uid != self.pods[key]["metadata"]["uid"]:
            return status(409, "Conflict", f"the UID in the precondition ({uid}) does not match the UID in record")
        if method == "POST" and key[1] in self.budgets:
            reply = status(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
            cause = {
                "reason": "DisruptionBudget",
                "message": "The disruption budget web needs 2 healthy pods and has 2",
            }
            reply[1]["details"] = {"causes": [cause]}
            return reply
        self.requests.append((method, path, body))
        self.pods[key]["metadata"]["deletionTimestamp"] = "2026-11-22T04:00:00Z"
        self.ending.setdefault(key, self.slow)
        return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def status(code: int, reason: str, message: str) -> Reply:
    return code, {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def merged(target: Dict[str, Any], patch: Dict[str, Any]) -> Dict[str, Any]:
    """A JSON merge patch, RFC 7386."""
    result = copy.deepcopy(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            below = result.get(key)
            result[key] = merged(below if isinstance(below, dict) else {}, value)
        else:
            result[key] = value
    return result


class Answers(Protocol):
    """What a cluster has to be, to be served."""

    def answer(self, method: str, path: str, query: Dict[str, List[str]], body: Dict[str, Any]) -> Reply: ...


class Server(ThreadingHTTPServer):
    """``headers`` are those of the requests, in lower case, behind their method."""

    headers: List[Tuple[str, Mapping[str, str]]]


def serve(cluster: Answers) -> Server:
    """Listen for the cluster on a free port of 127.0.0.1; the caller shuts it down."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            target = urlsplit(self.path)
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                server.headers.append((self.command, {name.lower(): value for name, value in self.headers.items()}))
                code, reply = cluster.answer(
                    self.command,
                    target.path.rstrip("/") or "/",
                    parse_qs(target.query),
                    json.loads(text or b"{}") or {},
                )
                answer = json.dumps(reply).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PATCH = do_POST = do_DELETE = handle_any

        def log_message(self, format: str, *args: Any) -> None:
            return None

    server = Server(("127.0.0.1", 0), Handler)
    server.headers = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
