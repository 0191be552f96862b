# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The look that the controller asks for, without the module that it would have to send."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, Mapping, NoReturn

from ansible_collections.gpufleet.node.node.standard_host import this_host
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.importing import importing
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import OTHER_PYTHON
from ansible_collections.gpufleet.node.plugins.module_utils._node.look_frame import ANSWERED, framed

DEFAULTS: Mapping[str, Any] = {
    "excluded": [],
    "expect": "nothing",
    "detail": "brief",
    "facts": False,
    "compress": False,
    "check_mode": False,
    "diff": False,
    "interpreter": "",
}


def main() -> NoReturn:
    """Answer the request on standard input, and end at once: taking Python down costs more than writing the answer."""
    status = respond(sys.stdin.buffer.read())
    sys.stdout.flush()
    os._exit(status)


def respond(text: bytes) -> int:
    """Print the framed answer to a request, and return the exit status.

    Whatever else happens is none of it: then the controller sends the module, which says what is wrong.
    """
    request = request_of(text)
    interpreter = request["interpreter"]
    # A script in its place, or another Python, may see another machine than we do, such as a recorded one.
    if interpreter and os.path.realpath(interpreter) != os.path.realpath(sys.executable):
        return OTHER_PYTHON
    print(framed(json.dumps(answer_to(request), separators=(",", ":"))), end="")
    return ANSWERED


def request_of(text: bytes) -> Dict[str, Any]:
    """The options of ``node_state``, with ``check_mode`` and ``diff``, or those of ``gpu_node_info``, complete.

    Raises ``DeclarationError``.
    """
    try:
        request = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DeclarationError("read the request", cause=f"it is not JSON: {error}") from error
    if not isinstance(request, dict) or not (_has(request, "declared", dict) or _has(request, "gather", list)):
        cause = "it must be an object with the declarations in declared, or with the parts of the facts in gather"
        raise DeclarationError("read the request", cause=cause)
    return {**DEFAULTS, **request}


def answer_to(request: Mapping[str, Any]) -> Dict[str, Any]:
    """The result that the module would have, on this machine."""
    host = this_host()
    with importing():
        if "declared" not in request:
            from ansible_collections.gpufleet.node.plugins.module_utils._node.facts.collect import facts_answer

            return {"changed": False, **facts_answer(host, request["gather"], compressed=request["compress"])}
        from ansible_collections.gpufleet.node.plugins.module_utils._node.look import look

    try:
        return look(request, host)
    except GpuFleetError as error:
        return {"failed": True, "msg": str(error), "failure": error.failure()}


def _has(request: Mapping[str, Any], name: str, kind: type) -> bool:
    return isinstance(request.get(name), kind)
