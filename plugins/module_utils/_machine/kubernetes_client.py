# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Python client of Kubernetes: how it finds its way to the API server, and what it says when there is no answer.

It is imported when a module asks, for it takes half a second, and may be missing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import urlencode

from .._core.errors import CannotLook, GpuFleetError, NotPermitted

if TYPE_CHECKING:
    # Method, path, query, body. Raises ``Refusal``.
    Ask = Callable[[str, str, Mapping[str, str], Optional[Mapping[str, Any]]], Mapping[str, Any]]

NO_ANSWER, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, INVALID, TOO_MANY = 0, 401, 403, 404, 409, 422, 429

# What each option is to the client. Those that are given beat the kubeconfig.
ACCESS: Mapping[str, str] = {
    "host": "host",
    "ca_cert": "ssl_ca_cert",
    "client_cert": "cert_file",
    "client_key": "key_file",
    "validate_certs": "verify_ssl",
}
ENVIRONMENT = {
    "kubeconfig": "K8S_AUTH_KUBECONFIG",
    "context": "K8S_AUTH_CONTEXT",
    "host": "K8S_AUTH_HOST",
    "api_key": "K8S_AUTH_API_KEY",
    "validate_certs": "K8S_AUTH_VERIFY_SSL",
    "ca_cert": "K8S_AUTH_SSL_CA_CERT",
    "client_cert": "K8S_AUTH_CERT_FILE",
    "client_key": "K8S_AUTH_KEY_FILE",
}
TYPES = {"context": "str", "host": "str", "api_key": "str", "validate_certs": "bool"}
CONNECT_SECONDS = 10.0
# Between two pieces of an answer.
READ_SECONDS = 60.0
# So many characters of an answer that nobody understands.
SHOWN = 200
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
GOAL = "ask the API server"


class Refusal(Exception):
    """An answer that is no success. ``code`` is the status of HTTP, 0 where nobody answered.

    ``causes`` are reason and message of what the server says besides.
    """

    def __init__(self, code: int, message: str, causes: Sequence[Tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.causes = tuple(causes)


def refused(goal: str, refusal: Refusal, right: str) -> GpuFleetError:
    """The error for a refusal that is about the way to the API server, or about what its user may not do."""
    cause = refusal.message.rstrip(".")
    if refusal.code == FORBIDDEN:
        return NotPermitted(goal, cause=cause, hint=f"its user needs permission to {right}")
    if refusal.code == UNAUTHORIZED:
        return NotPermitted(goal, cause=cause, hint="check the credentials in the kubeconfig")
    return CannotLook(goal, cause=cause, hint="check the route from this host to the API server")


def access_arguments(fallback: Any) -> Dict[str, Any]:
    """The options of the way to the API server. ``fallback`` is Ansible's for variables of the environment.

    They are those of the modules of kubernetes.core, which credentials of AWX set as well.
    """
    return {
        name: {"type": TYPES.get(name, "path"), "fallback": (fallback, [variable]), "no_log": name == "api_key"}
        for name, variable in ENVIRONMENT.items()
    }


def connect(params: Mapping[str, Any], interpreter: str) -> Ask:
    """What asks the API server. Raises ``CannotLook`` where the client is missing, or does not know the way.

    ``interpreter`` is the Python that runs this, for the message.
    """
    try:
        from kubernetes.client.rest import RESTClientObject
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError
    except ImportError as error:
        raise CannotLook(
            GOAL,
            cause=f"the Python package kubernetes cannot be imported by {interpreter}: {error}",
            hint="install it there, or set ansible_python_interpreter of this host to a Python that has it",
        ) from None
    configuration = _configuration(params)
    # Its methods for requests are others in some of its releases. These connections, with their certificates and
    # proxies, and what authenticates a request, are not.
    connections = RESTClientObject(configuration).pool_manager

    def ask(method: str, path: str, query: Mapping[str, str], body: Optional[Mapping[str, Any]]) -> Mapping[str, Any]:
        headers = {"Accept": JSON, "Content-Type": MERGE_PATCH if method == "PATCH" else JSON}
        for entry in configuration.auth_settings().values():
            headers[entry["key"]] = entry["value"]
        try:
            answer = connections.request(
                method,
                f"{configuration.host}{path}{'?' if query else ''}{urlencode(query)}",
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
                retries=False,
            )
        except HTTPError as error:
            raise Refusal(NO_ANSWER, f"no response from {configuration.host}: {error}") from None
        text = answer.data.decode("utf-8", "replace")
        if not 200 <= answer.status <= 299:
            message, causes = _said(text)
            raise Refusal(answer.status, message or f"{answer.status} {answer.reason}", causes)
        try:
            found: Mapping[str, Any] = json.loads(text)
        except ValueError:
            raise Refusal(NO_ANSWER, f"{configuration.host} does not respond with JSON: {text[:SHOWN]}") from None
        return found

    return ask


def _configuration(params: Mapping[str, Any]) -> Any:
    """Where no kubeconfig is named it is that of the pod in which this runs, or the usual one."""
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
    from yaml import YAMLError

    configuration = Configuration()
    named = {"config_file": params["kubeconfig"], "context": params["context"]}
    try:
        if any(named.values()):
            load_kube_config(**named, client_configuration=configuration, persist_config=False)
        elif not params["host"]:
            try:
                load_incluster_config(client_configuration=configuration)
            except ConfigException:
                load_kube_config(client_configuration=configuration, persist_config=False)
    except (ConfigException, OSError, YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        told = isinstance(error, (ConfigException, OSError, YAMLError))
        # What else it raises is about its own code, such as "list indices must be integers".
        why = str(error) if told else "it does not have the structure of a kubeconfig"
        raise CannotLook(
            GOAL,
            object=params["kubeconfig"] or "",
            cause=f"the kubeconfig cannot be used: {why}".rstrip("."),
            hint="name one with kubeconfig, and one of its contexts with context",
        ) from None
    refresh = configuration.refresh_api_key_hook

    def override(loaded: Any) -> None:
        for option, attribute in ACCESS.items():
            if params[option] is not None:
                setattr(loaded, attribute, params[option])
        if params["api_key"]:
            loaded.api_key = {"authorization": f"Bearer {params['api_key']}"}

    def refresh_and_override(loaded: Any) -> None:
        # It comes before every request, for tokens that expire, and sets all that the kubeconfig says, itself included.
        if refresh is not None:
            refresh(loaded)
        override(loaded)
        loaded.refresh_api_key_hook = refresh_and_override

    refresh_and_override(configuration)
    return configuration


def _said(text: str) -> Tuple[str, List[Tuple[str, str]]]:
    """The message and the causes of a Status; what else a proxy on the way may have answered."""
    try:
        status: Dict[str, Any] = json.loads(text)
        causes = (status.get("details") or {}).get("causes") or ()
        return str(status["message"]), [(str(cause.get("reason")), str(cause.get("message"))) for cause in causes]
    except (AttributeError, KeyError, TypeError, ValueError):
        return text.strip()[:SHOWN], []
