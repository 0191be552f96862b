# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A device of the Container Device Interface that brings nothing but variables, and /etc/nccl.conf.

A container gets them where it asks for the device, whatever else it asks for. Docker and containerd have no variables
for all containers, and every engine with CDI reads the same file.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, Mapping, Tuple

from . import nccl_conf

PATH = "/etc/cdi/gpufleet-job_environment.json"
KIND, NAME = "gpufleet.node/environment", "job"
# The oldest that has all that is used here: every engine with CDI reads it.
VERSION = "0.3.0"


def render(values: Mapping[str, str], *, mount: bool) -> str:
    """The specification; ``mount`` lets containers see the node's /etc/nccl.conf."""
    edits: Dict[str, Any] = {}
    if values:
        edits["env"] = [f"{name}={value}" for name, value in sorted(values.items())]
    if mount:
        options = ["ro", "nosuid", "nodev", "bind"]
        edits["mounts"] = [{"hostPath": nccl_conf.PATH, "containerPath": nccl_conf.PATH, "options": options}]
    document = {"cdiVersion": VERSION, "kind": KIND, "devices": [{"name": NAME, "containerEdits": edits}]}
    return json.dumps(document, indent=2) + "\n"


def parse(text: str) -> Iterator[Tuple[int, str, str]]:
    """Its variables, as the number of the line, name and value; none in a file that is not ours any more."""
    try:
        edits = json.loads(text)["devices"][0]["containerEdits"]
        words = [str(word) for word in edits.get("env", ())]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return
    for word in words:
        name, _equals, value = word.partition("=")
        yield 1, name, value
