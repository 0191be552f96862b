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
  - Reads which module it was sent and returns the recorded answer of that module. Contacts nobody and starts nothing.
options:
  answers:
    description: A folder with one file a module, C(<module>.json). Without its file a module does not reach the host.
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
# A module shows a difference only where it is asked to.
DIFF = re.compile(rb"_ansible_diff\W+true")


class Connection(ConnectionBase):
    """A node that always says the same. It takes modules by pipelining alone."""

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
        if module is None:
            raise AnsibleConnectionFailure(f"Cannot replay {cmd[:80]}: no module was sent with it.")
        answer = Path(self.get_option("answers")) / f"{module[1].decode().split('.')[-1]}.json"
        if not answer.exists():
            raise AnsibleConnectionFailure(f"Cannot replay {answer.stem}: there is no answer of it.")
        said = answer.read_bytes()
        if not DIFF.search(in_data or b""):
            told = json.loads(said)
            said = json.dumps({key: told[key] for key in told if key != "diff"}).encode()
        return 0, said, b""

    def put_file(self, in_path: str, out_path: str) -> None:
        raise AnsibleConnectionFailure(f"Cannot replay the copy of {in_path}: only modules have answers.")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        raise AnsibleConnectionFailure(f"Cannot replay the copy of {in_path}: only modules have answers.")

    def close(self) -> None:
        self._connected = False
