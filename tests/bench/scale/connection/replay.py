# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: replay
short_description: Answers what a node once answered
description:
  - Reads which module it was sent, or that the program on the node was asked, and returns the recorded answer. Contacts
    nobody and starts nothing.
options:
  answers:
    description:
      - A folder with one file a module, C(<module>.json). Without its file a module does not reach the host.
      - The program on the node answers as the modules C(node_state) and C(gpu_node_info), which is what it promises.
      - With C(node_state_after.json), that is the answer of the look that expects a node in sync.
    type: path
    required: true
    vars:
      - name: replay_answers
extends_documentation_fragment:
  - connection_pipelining
author:
  - gpufleet contributors (@gpufleet)
"""

# How the program that Ansible sends calls itself, near its end or, in other releases, behind the module's archive.
MODULE = re.compile(rb"ansible_module='([\w.]+)'")
# A difference is shown, and facts are brought along, only where that is asked for: of a module, or of the program.
WITH_DIFF = re.compile(rb"diff\W+true")
WITH_FACTS = re.compile(rb"facts\W+true")
# The look after a run, which finds what came of it.
AFTER = re.compile(rb"expect\W+in_sync")
LOOK, FACTS = "node_state", "gpu_node_info"


class Connection(ConnectionBase):
    """A node that always says the same. It takes what is sent with the command alone."""

    transport = "replay"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(
        self, cmd: str, in_data: Optional[bytes] = None, sudoable: bool = True
    ) -> Tuple[int, bytes, bytes]:
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        sent = in_data or b""
        module = MODULE.search(sent)
        if module is not None:
            return 0, self._answer(module[1].decode().split(".")[-1], sent).encode(), b""
        # The action has them in every process that gets here. With an empty module nobody shall pay for them.
        from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import COMPILED
        from ansible_collections.gpufleet.node.plugins.module_utils._node.look_frame import ANSWERED, framed

        if f"{COMPILED}/" not in cmd:
            raise AnsibleConnectionFailure(f"Cannot replay {cmd[:80]}: no module was sent with it.")
        asked = LOOK if b'"declared"' in sent else FACTS
        return ANSWERED, framed(self._answer(asked, sent)).encode(), b""

    def _answer(self, module: str, sent: bytes) -> str:
        has_another = module == LOOK and AFTER.search(sent) and self._file(f"{LOOK}_after").exists()
        told = self._recorded(f"{LOOK}_after" if has_another else module)
        # What is sent for an empty module is not searched: it would be charged for it.
        if "diff" in told and not WITH_DIFF.search(sent):
            del told["diff"]
            for concern in told.get("concerns", {}).values():
                concern.pop("files", None)
        if module == LOOK and WITH_FACTS.search(sent):
            told = {**self._recorded(FACTS), **told}
        return json.dumps(told, separators=(",", ":"))

    def _file(self, module: str) -> Path:
        return Path(self.get_option("answers")) / f"{module}.json"

    def _recorded(self, module: str) -> Dict[str, Any]:
        path = self._file(module)
        if not path.exists():
            raise AnsibleConnectionFailure(f"Cannot replay {module}: there is no answer of it.")
        told: Dict[str, Any] = json.loads(path.read_bytes())
        return told

    def put_file(self, in_path: str, out_path: str) -> None:
        raise AnsibleConnectionFailure(f"Cannot replay the copy of {in_path}: only modules have answers.")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        raise AnsibleConnectionFailure(f"Cannot replay the copy of {in_path}: only modules have answers.")

    def close(self) -> None:
        self._connected = False
