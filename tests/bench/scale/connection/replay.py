# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Optional, Tuple

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
      - The program on the node answers as the module C(node_state), which is what both promise.
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
# Both show a difference only where they are asked to.
DIFF = re.compile(rb'_ansible_diff\W+true|"diff":\s*true')


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
        module = MODULE.search(in_data or b"")
        if module is not None:
            return 0, self._answer(module[1].decode().split(".")[-1], in_data).encode(), b""
        # The action has them in every process that gets here. With an empty module nobody shall pay for them.
        from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import COMPILED
        from ansible_collections.gpufleet.node.plugins.module_utils._node.look_frame import ANSWERED, framed

        if f"{COMPILED}/" not in cmd:
            raise AnsibleConnectionFailure(f"Cannot replay {cmd[:80]}: no module was sent with it.")
        return ANSWERED, framed(self._answer("node_state", in_data)).encode(), b""

    def _answer(self, module: str, sent: Optional[bytes]) -> str:
        path = Path(self.get_option("answers")) / f"{module}.json"
        if not path.exists():
            raise AnsibleConnectionFailure(f"Cannot replay {module}: there is no answer of it.")
        told = json.loads(path.read_bytes())
        if not DIFF.search(sent or b""):
            told.pop("diff", None)
        return json.dumps(told, separators=(",", ":"))

    def put_file(self, in_path: str, out_path: str) -> None:
        raise AnsibleConnectionFailure(f"Cannot replay the copy of {in_path}: only modules have answers.")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        raise AnsibleConnectionFailure(f"Cannot replay the copy of {in_path}: only modules have answers.")

    def close(self) -> None:
        self._connected = False
