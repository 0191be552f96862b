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
from typing import Any, Dict

import pytest


def ansible_playbook(tmp_path: Path, inventory: Any, *arguments: str) -> str:
    """What a playbook prints."""
    pytest.importorskip("ansible.plugins.action", reason="an action needs Ansible's controller, Python 3.11")
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": inventory}))
    collections = next(path for path in sys.path if (Path(path) / "ansible_collections" / "gpufleet" / "node").exists())
    environment = {"ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_LOCALHOST_WARNING": "false"}
    environment.update(ANSIBLE_SHOW_CUSTOM_STATS="true", HOME=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", str(tmp_path / "hosts.yml"), *arguments],
        env={**os.environ, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{done.stdout}{done.stderr}\nends with {done.returncode}"


def statistics(output: str) -> Dict[str, Any]:
    """What a run keeps by set_stats, where AWX has it."""
    (found,) = re.findall(r"CUSTOM STATS.*\s+RUN: (\{.*\})", output)
    kept: Dict[str, Any] = json.loads(found)
    return kept
