# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A controller: ``ansible-playbook`` with an inventory, and what the hosts came to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

# tcpmux, which nobody listens for.
NOBODYS_PORT = 1
COMMON = {
    "ansible_connection": "local",
    "ansible_python_interpreter": sys.executable,
    "drain_backend": "kubernetes",
    "drain_timeout": 2,
    "drain_poll": 1,
}


@dataclass(frozen=True)
class Outcome:
    """What a host came to in a play: whether it is through, how many tasks changed something, and all messages."""

    play: str
    host: str
    ok: bool
    changed: int
    said: str


@dataclass(frozen=True)
class Run:
    """A run of Ansible: what the hosts came to, what it printed, and its exit status."""

    outcomes: List[Outcome]
    printed: str
    status: int


def drain(group: str, entry: str) -> Dict[str, Any]:
    """A play that takes each host of a group through the role, none of which waits for another."""
    role = {"name": "gpufleet.node.drain", "tasks_from": entry}
    return {
        "name": group,
        "hosts": group,
        "gather_facts": False,
        "strategy": "ansible.builtin.free",
        "tasks": [{"ansible.builtin.include_role": role}],
    }


def play(
    folder: Path, plays: Sequence[Mapping[str, Any]], groups: Mapping[str, Mapping[str, Any]], *options: str
) -> List[Outcome]:
    """Run the plays on the groups, which have the variables of each host. ``folder`` is made for it."""
    return run(folder, plays, groups, *options).outcomes


def run(
    folder: Path, plays: Sequence[Mapping[str, Any]], groups: Mapping[str, Mapping[str, Any]], *options: str
) -> Run:
    """The same, with what Ansible printed and its exit status."""
    folder.mkdir()
    written = {
        "play.yml": plays,
        "inventory.json": {name: {"hosts": hosts, "vars": COMMON} for name, hosts in groups.items()},
    }
    for name, content in written.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    outcomes = folder / "outcomes.json"
    environment = {
        **os.environ,
        "ANSIBLE_CALLBACK_PLUGINS": str(Path(__file__).with_name("callbacks")),
        "ANSIBLE_CALLBACKS_ENABLED": "outcomes",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_PIPELINING": "true",
        "GPUFLEET_OUTCOMES": str(outcomes),
        "TMPDIR": str(folder),
    }
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            *("-i", str(folder / "inventory.json"), *options, str(folder / "play.yml")),
        ],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    # Shown where a test fails.
    print(done.stdout)
    raw = json.loads(outcomes.read_text(encoding="utf-8"))
    found = [Outcome(**{**entry, "said": " ".join(" ".join(entry["said"]).split())}) for entry in raw]
    return Run(found, done.stdout, done.returncode)


def kubeconfig(path: Path, port: int) -> str:
    """Write the way to an API server on a port of 127.0.0.1."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)
