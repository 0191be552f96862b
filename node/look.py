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
from ansible_collections.gpufleet.node.plugins.module_utils._core import arguments
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.importing import importing
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import OTHER_PYTHON
from ansible_collections.gpufleet.node.plugins.module_utils._node.look_frame import ANSWERED, framed

# What a module is told beside its options.
OF_THE_TASK: Mapping[str, Any] = {
    "check_mode": {"type": "bool", "default": False},
    "diff": {"type": "bool", "default": False},
    "interpreter": {"type": "str", "default": ""},
}
GOAL = "read the request"


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
    """The options of ``node_state`` or ``gpu_node_info``, with what is said of the task, complete and of their types.

    Raises ``DeclarationError``.
    """
    try:
        request = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DeclarationError(GOAL, cause=f"it is not JSON: {error}") from error
    if isinstance(request, dict) and "declared" in request:
        from ansible_collections.gpufleet.node.plugins.module_utils._node.options import OPTIONS
    elif isinstance(request, dict) and "gather" in request:
        from ansible_collections.gpufleet.node.plugins.module_utils._node.facts.options import OPTIONS
    else:
        cause = "it must be a mapping with declared (the declarations) or gather (the parts of the facts)"
        raise DeclarationError(GOAL, cause=cause)
    return arguments.validated({**OPTIONS, **OF_THE_TASK}, request, goal=GOAL)


def answer_to(request: Mapping[str, Any]) -> Dict[str, Any]:
    """The result that the module would have, on this machine."""
    host = this_host()
    with importing():
        if "declared" in request:
            from ansible_collections.gpufleet.node.plugins.module_utils._node.look import look as answer
        else:
            from ansible_collections.gpufleet.node.plugins.module_utils._node.facts.collect import answer_for as answer
    try:
        return answer(request, host)
    except GpuFleetError as error:
        return {"failed": True, "msg": str(error), "failure": error.failure()}
