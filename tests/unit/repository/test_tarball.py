# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `ansible-galaxy collection build` makes of a checkout, by the code of ansible-core that goes through it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, Tuple

import pytest
from ansible_collections.gpufleet.node.tools import tarball

ROOT = Path(__file__).resolve().parents[3]
# The collection, beside the files of it that the tarball always has.
HELD = {
    *("LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"),
    *("awx", "changelogs", "docs", "inventories", "meta", "node", "playbooks", "plugins", "profiles", "roles"),
}
# What checks, playbooks, editors and Python leave in a checkout that somebody works in.
LEFT = (
    ".cache/vm/run/demo/bed.json",
    ".git/HEAD",
    ".ansible/tmp/x",
    ".venv/bin/python",
    ".idea/x.xml",
    "venv/bin/python",
    "build/gpufleet-node-0.0.1.tar.gz",
    "gpufleet-node-0.0.1.tar.gz",
    "facts/gpu-01.json",
    "reports/gpufleet-report.html",
    "tests/output/junit/x.xml",
    "plugins/modules/__pycache__/hugepages.cpython-313.pyc",
    "plugins/modules/hugepages.pyc",
    "plugins/modules/.hugepages.py.swp",
    "playbooks/site.retry",
    "playbooks/site.yml~",
    "playbooks/site.yml.orig",
    "roles/hugepages/tasks/main.yml.rej",
)


def sources() -> Dict[str, bytes]:
    """The files of the checkout that are the project's: what git tracks, or would."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is no checkout of git")
    names = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    return {name: (ROOT / name).read_bytes() for name in names}


def built(folder: Path) -> Dict[str, Tuple[int, bytes]]:
    """What the tarball of a folder holds."""
    target = folder.with_suffix(".built")
    command = [
        sys.executable,
        "-m",
        "ansible",
        "galaxy",
        "collection",
        "build",
        "--output-path",
        str(target),
        str(folder),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return tarball.content(next(target.glob("*.tar.gz")))


def test_the_tarballs_of_a_clean_export_and_of_a_used_checkout_hold_the_collection_and_the_same(tmp_path: Path) -> None:
    pytest.importorskip("ansible.galaxy.collection", reason="ansible-galaxy is the controller's, Python 3.11")
    files = sources()
    clean, used = tmp_path / "clean", tmp_path / "used"
    for name, content in files.items():
        (clean / name).parent.mkdir(parents=True, exist_ok=True)
        (clean / name).write_bytes(content)
    shutil.copytree(clean, used)
    for name in LEFT:
        (used / name).parent.mkdir(parents=True, exist_ok=True)
        (used / name).write_text("left\n")
    exported = built(clean)
    assert exported == built(used)
    listed = {entry["name"] for entry in json.loads(exported["FILES.json"][1])["files"] if entry["ftype"] == "file"}
    hidden = ("/.", ".pyc")
    expected = {name for name in files if name.split("/")[0] in HELD and not any(word in name for word in hidden)}
    assert listed == expected
