# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is made from the documentation of the modules, which is the one place where an option stands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("docs", "meta", "playbooks", "plugins", "profiles", "roles", "tools")
FIRST = """\
  drop_caches:
    description:
"""
ADDED = f"""\
  compact_for:
    description:
      - How many seconds memory is compacted, at most. See O(pools[].pages) and RV(needs).
      - Only with O(state=present).
    type: int
    default: 7
{FIRST}"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The sources, to be changed."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in SOURCES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    place = tmp_path / ".cache" / "collections" / "ansible_collections" / "gpufleet" / "node"
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path)
    return tmp_path


def generate(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "tools" / "generate.py"), *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


@pytest.mark.once
def test_an_option_that_is_documented_is_everywhere(checkout: Path) -> None:
    module = checkout / "plugins" / "modules" / "hugepages.py"
    text = module.read_text()
    assert text.count(FIRST) == 1
    module.write_text(text.replace(FIRST, ADDED))
    stale = generate(checkout, "--check")
    assert stale.returncode == 1
    assert "run `make docs`" in stale.stderr
    made = generate(checkout)
    assert made.returncode == 0, made.stderr
    role = checkout / "roles" / "hugepages"
    options = checkout / "plugins" / "module_utils" / "concerns" / "hugepages" / "options.py"
    assert '    "compact_for": {"type": "int", "default": 7},\n' in options.read_text()
    specification = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())
    variable = specification["argument_specs"]["main"]["options"]["hugepages_compact_for"]
    assert variable == {
        "description": [
            "How many seconds memory is compacted, at most. See O(hugepages_pools[].pages) and C(needs).",
            "Only with O(hugepages_state=present).",
        ],
        "type": "int",
        "default": 7,
    }
    defaults = (role / "defaults" / "main.yml").read_text()
    assert "\n# hugepages_compact_for: 7\nhugepages_compact_for: " in defaults
    (task,) = yaml.safe_load((role / "tasks" / "main.yml").read_text())
    assert task["gpufleet.node.hugepages"]["compact_for"] == "{{ __hugepages_declaration.compact_for }}"
    assert (
        "| `hugepages_compact_for` | int | `7` | How many seconds memory is compacted, at most. "
        "See `hugepages_pools[].pages` and `needs`.<br>Only with `hugepages_state=present`. |\n"
    ) in (role / "README.md").read_text()
    assert generate(checkout, "--check").returncode == 0


@pytest.mark.once
def test_a_key_that_all_return_and_a_default_of_a_playbook_stand_once(checkout: Path) -> None:
    overlay = checkout / "tools" / "overlay.yml"
    added = "  checked:\n    description: How.\n    type: str\n  status:\n"
    overlay.write_text(overlay.read_text().replace("  status:\n", added))
    specification = checkout / "playbooks" / "meta" / "argument_specs.yml"
    specification.write_text(specification.read_text().replace('default: [1, "10%"]', 'default: [2, "10%"]'))
    made = generate(checkout)
    assert made.returncode == 0, made.stderr
    module = (checkout / "plugins" / "modules" / "nvml.py").read_text()
    own_sentence = "  description: What was found before the run, C(in_sync) or C(drifted).\n"
    assert f"checked:\n  description: How.\n  type: str\nstatus:\n{own_sentence}" in module
    playbooks = checkout / "playbooks"
    assert "gpufleet_batches | default([2, '10%']) }}" in (playbooks / "reboot.yml").read_text()
    assert "gpufleet_batches | default([1, '10%', '100%']) }}" in (playbooks / "site.yml").read_text()
