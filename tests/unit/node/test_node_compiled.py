# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that is kept compiled on the node, and who takes it from there."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.gpufleet.node.node import compile as compiled
from ansible_collections.gpufleet.node.plugins.plugin_utils import archive

TREE = Path("ansible_collections/gpufleet/node/plugins/module_utils")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "gpufleet.pyz"
    path.write_bytes(archive.build())
    return path


def folder_of(program: Path, place: Path) -> Path:
    return place / hashlib.sha256(program.read_bytes()).hexdigest()


def test_all_of_the_program_is_compiled_under_the_sum_of_its_archive(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", None)
    place = tmp_path / "compiled"
    compiled.compile_program(program, place)
    assert list(place.iterdir()) == [folder_of(program, place)]
    sources = [path for path in folder_of(program, place).rglob("*.py") if path.parent.name != "__pycache__"]
    assert len(sources) > 50
    for source in sources:
        assert list(source.parent.glob(f"__pycache__/{source.stem}.*.pyc")), source


def test_it_is_made_once_and_what_came_from_another_archive_goes(program: Path, tmp_path: Path) -> None:
    place = tmp_path / "compiled"
    for name in ("0123", f".{folder_of(program, place).name}"):
        (place / name).mkdir(parents=True)
        (place / name / "left.py").write_text("x")
    compiled.compile_program(program, place)
    first = (folder_of(program, place) / TREE / "_core" / "convergence.py").stat()
    compiled.compile_program(program, place)
    assert (folder_of(program, place) / TREE / "_core" / "convergence.py").stat() == first
    assert len(list(place.iterdir())) == 1


def test_nothing_of_it_is_left_when_it_is_removed(program: Path, tmp_path: Path) -> None:
    compiled.compile_program(program, tmp_path / "compiled")
    compiled.remove(tmp_path / "compiled")
    compiled.remove(tmp_path / "compiled")
    assert not (tmp_path / "compiled").exists()


def imported_from(tmp_path: Path, program: Path, declared: str) -> str:
    """Where a look that was sent in an archive of its own, as Ansible does it, has its rooms from."""
    place = tmp_path / "compiled"
    compiled.compile_program(program, place)
    code = f"""
import sys, types
sys.path.insert(0, {str(program)!r})
for name in ("", ".module_utils", ".module_utils.basic", ".module_utils.common", ".module_utils.common.arg_spec"):
    module = sys.modules["ansible" + name] = types.ModuleType("ansible" + name)
    module.AnsibleModule = module.ArgumentSpecValidator = object
source = open({str(Path(archive.ROOT) / "plugins" / "modules" / "node_state.py")!r}).read()
module = types.ModuleType("ansible_collections.gpufleet.node.plugins.modules.node_state")
exec(compile(source, "node_state.py", "exec"), module.__dict__)
module.COMPILED = module.COMPILED.replace("/usr/local/lib/gpufleet/compiled", {str(place)!r})
module.prefer_what_is_compiled({declared})
from ansible_collections.gpufleet.node.plugins.module_utils._node import registry
print(registry.__file__)
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_look_takes_the_rooms_from_the_node_only_where_they_are_the_very_same(tmp_path: Path, program: Path) -> None:
    digest = folder_of(program, tmp_path).name
    mine = imported_from(tmp_path, program, repr({"node_tools": {"archive_sha256": digest}}))
    assert mine.startswith(str(tmp_path / "compiled" / digest))
    for other in ({}, {"node_tools": {"archive_sha256": "0" * 64}}, {"node_tools": None}, {"node_tools": {}}):
        assert imported_from(tmp_path, program, repr(other)).startswith(str(program)), other
    path = repr({"node_tools": {"archive_sha256": f"../compiled/{digest}"}})
    assert imported_from(tmp_path, program, path).startswith(str(program))
