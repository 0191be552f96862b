# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``tools/new_concern.py`` begins: code that can be read, that imports what there is, and tests that fail."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Sequence

import pytest
import yaml
from ansible_collections.gpufleet.node.tests.unit.repository.imports_of_tests import misplaced_imports
from ansible_collections.gpufleet.node.tools.new_concern import (
    AFTER_ROLES,
    KINDS,
    files_of,
    overlay_with,
    taken_options,
)

ROOT = Path(__file__).resolve().parents[3]
UTILS = "ansible_collections.gpufleet.node.plugins.module_utils"
COMBINATIONS = (*((kind,) for kind in KINDS), tuple(KINDS))


@pytest.mark.parametrize("kinds", COMBINATIONS, ids="+".join)
def test_what_is_begun_is_python_and_yaml_with_no_place_left_unfilled(kinds: Sequence[str]) -> None:
    for path, text in files_of("made_up", kinds).items():
        assert "@" not in text.replace("@gpufleet", "").replace("@frozen", "").replace("@pytest", ""), path
        if path.endswith(".py"):
            ast.parse(text, filename=path)
        elif path.endswith(".yml"):
            assert yaml.safe_load(text), path
        assert all(len(line) <= 120 for line in text.splitlines()), path


@pytest.mark.parametrize("kinds", COMBINATIONS, ids="+".join)
def test_the_imports_of_what_is_begun_are_there_and_in_order(kinds: Sequence[str]) -> None:
    tree = ast.parse(files_of("made_up", kinds)["plugins/module_utils/concerns/made_up/concern.py"])
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 3]
    assert statements
    for node in statements:
        module = importlib.import_module(f"{UTILS}.{node.module}")
        for alias in node.names:
            if not hasattr(module, alias.name):
                importlib.import_module(f"{UTILS}.{node.module}.{alias.name}")
    at_top = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 3]
    assert at_top == sorted(set(at_top))


@pytest.mark.parametrize("kinds", COMBINATIONS, ids="+".join)
def test_the_tests_that_are_begun_import_by_package_what_is_there(kinds: Sequence[str]) -> None:
    files = files_of("made_up", kinds)
    found = []
    for path in (path for path in files if path.startswith("tests/")):
        assert misplaced_imports(files[path]) == []
        for node in ast.walk(ast.parse(files[path])):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ansible_collections."):
                module = importlib.import_module(node.module or "")
                found += [getattr(module, alias.name) for alias in node.names]
    assert found


def test_a_concern_on_own_files_alone_is_one_file_and_no_more() -> None:
    package = "plugins/module_utils/concerns/made_up"
    assert [path for path in files_of("made_up", ["own_files"]) if path.startswith(package)] == [
        f"{package}/__init__.py",
        f"{package}/concern.py",
    ]


def test_a_name_that_begins_a_variable_of_others_is_fine_and_its_options_are_told() -> None:
    assert "dir" in taken_options("kubelet_config")
    assert taken_options("made_up") == []


def test_the_role_is_added_to_the_overlay_once() -> None:
    text = (ROOT / "tools" / "overlay.yml").read_text(encoding="utf-8")
    assert text.count(AFTER_ROLES) == 1
    roles = yaml.safe_load(overlay_with("made_up", text))["roles"]
    assert roles.pop("made_up") == {"converge": "Converge made up", "restore": "Restore made up to what was found"}
    assert roles == yaml.safe_load(text)["roles"]
