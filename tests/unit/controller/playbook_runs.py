# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs of Ansible, with the collection of this checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Mapping

import pytest

# Where the connection is by which hosts say what they are told to.
CONNECTIONS = Path(__file__).resolve().parents[2] / "bench" / "scale" / "connection"


def ansible_playbook(tmp_path: Path, inventory: Any, *arguments: str, **settings: str) -> str:
    """What a playbook prints. ``settings`` are those of Ansible in its environment, such as ``forks``."""
    pytest.importorskip("ansible.plugins.action", reason="an action needs Ansible's controller, Python 3.11")
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": inventory}))
    collections = next(path for path in sys.path if (Path(path) / "ansible_collections" / "gpufleet" / "node").exists())
    environment = {"ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_LOCALHOST_WARNING": "false"}
    environment.update(ANSIBLE_SHOW_CUSTOM_STATS="true", HOME=str(tmp_path))
    environment["ANSIBLE_CONNECTION_PLUGINS"] = str(CONNECTIONS)
    environment.update({f"ANSIBLE_{name.upper()}": value for name, value in settings.items()})
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", str(tmp_path / "hosts.yml"), *arguments],
        env={**os.environ, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{done.stdout}{done.stderr}\nends with {done.returncode}"


def replaying(folder: Path, answers: Mapping[str, Any]) -> Dict[str, Any]:
    """The variables of a host on which each module says what ``answers`` has under its name."""
    folder.mkdir()
    for module, answer in answers.items():
        (folder / f"{module}.json").write_text(json.dumps(answer))
    # Such a connection takes modules alone, and would be asked for an interpreter first.
    settings = {"ansible_pipelining": True, "ansible_python_interpreter": "/usr/bin/python3"}
    return {"ansible_connection": "replay", "replay_answers": str(folder), **settings}


def statistics(output: str) -> Dict[str, Any]:
    """What a run keeps by set_stats, where AWX has it."""
    (found,) = re.findall(r"CUSTOM STATS.*\s+RUN: (\{.*\})", output)
    kept: Dict[str, Any] = json.loads(found)
    return kept


def said_by_ansible(output: str) -> Dict[str, str]:
    """The last message with which each host fails."""
    found = re.findall(r"^fatal: \[(\S+)\]: FAILED! => (.*)$", output, flags=re.MULTILINE)
    return {host: json.loads(result)["msg"] for host, result in found}


def failed_hosts(output: str) -> Dict[str, int]:
    """The hosts that Ansible, and AWX, count as failed or unreachable, and how many times."""
    found = re.findall(r"^(\S+) +: ok=.* unreachable=(\d+) +failed=(\d+)", output, flags=re.MULTILINE)
    return {host: int(away) + int(failed) for host, away, failed in found if (away, failed) != ("0", "0")}
