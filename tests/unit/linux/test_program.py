# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program compiled on the node: what is made, who believes it, and what its entry answers."""

from __future__ import annotations

import ast
import errno
import io
import json
import os
import site
import stat
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any, Iterator, List, Mapping

import pytest
from ansible_collections.gpufleet.node.node.standard_host import StandardFiles, StandardHost
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.exposure import exposed_way
from ansible_collections.gpufleet.node.plugins.module_utils._linux import program, program_apply
from ansible_collections.gpufleet.node.plugins.module_utils._machine.bytecode import LENGTH, Finder
from ansible_collections.gpufleet.node.plugins.module_utils._node.look_frame import ANSWERED, unframed
from ansible_collections.gpufleet.node.plugins.plugin_utils import archive
from ansible_collections.gpufleet.node.tests.unit.concerns.node_tools.node_tools_machine import small_program

PACKAGE = "ansible_collections.gpufleet.node"
PRODUCT = archive.build()
DIGEST = sha256(PRODUCT).hexdigest()
# Whoever runs the tests may be anybody; on a node it is root.
FILES = StandardHost().files


class Program:
    """The program at a place of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
        self.archive, self.compiled = folder / "gpufleet.pyz", folder / "compiled"
        for module in (program, program_apply):
            monkeypatch.setattr(module, "ARCHIVE", str(self.archive))
            monkeypatch.setattr(module, "COMPILED", str(self.compiled))
        self.install(content)

    def install(self, content: bytes) -> None:
        self.archive.write_bytes(content)
        self.folder = self.compiled / sha256(content).hexdigest()
        self.bytecode, self.look = self.folder / program.BYTECODE, self.folder / program.LOOK
        program_apply.compile_program(FILES)

    def fault(self) -> str:
        return program.compiled_fault(FILES)

    def ask(self, request: Any) -> subprocess.CompletedProcess[str]:
        text = request if isinstance(request, str) else json.dumps(request)
        return subprocess.run(self.command, input=text, capture_output=True, text=True, check=False)

    @property
    def command(self) -> List[str]:
        """As the controller starts it: by what the first line names."""
        return [*self.look.read_text().partition("\n")[0][2:].split(), str(self.look)]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(tmp_path, monkeypatch, small_program())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Program(tmp_path_factory.mktemp("program"), monkeypatch, PRODUCT)


@pytest.fixture
def damaged(whole: Program) -> Iterator[Program]:
    """The whole program, which is put right again."""
    before = {path: path.read_bytes() for path in (whole.bytecode, whole.look)}
    yield whole
    for path, content in before.items():
        path.write_bytes(content)


def index_of(made: Program) -> Mapping[str, Any]:
    descriptor = os.open(made.bytecode, os.O_RDONLY)
    try:
        return Finder(descriptor).index
    finally:
        os.close(descriptor)


# --- what is made -----------------------------------------------------------------------------------------------------


def test_all_of_the_program_is_compiled_under_the_sum_of_its_archive(whole: Program) -> None:
    assert [path.name for path in whole.compiled.iterdir()] == [DIGEST]
    assert sorted(path.name for path in whole.folder.iterdir()) == ["bytecode", "look"]
    modules = index_of(whole)
    sources = [name for name in archive.sources(archive.ROOT) if not name.endswith("__init__.py")]
    assert len(sources) > 50
    for source in sources:
        assert f"{PACKAGE}.{source[: -len('.py')].replace('/', '.')}" in modules


def test_only_its_owner_may_write_it_whatever_the_umask_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        made = Program(tmp_path, monkeypatch, small_program())
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (made.folder, made.bytecode, made.look)}
    assert modes == {made.folder.name: 0o755, "bytecode": 0o644, "look": 0o644}


def test_what_came_from_another_archive_goes(small: Program) -> None:
    other = small.compiled / "0123"
    (other / "below").mkdir(parents=True)
    (other / "below" / "left.py").write_text("x")
    (small.compiled / "link").symlink_to(small.folder)
    program_apply.compile_program(FILES)
    assert list(small.compiled.iterdir()) == [small.folder]
    assert len(list(small.folder.iterdir())) == 2


def test_nothing_of_it_is_left_when_it_is_removed(small: Program) -> None:
    program_apply.remove_compiled(FILES)
    program_apply.remove_compiled(FILES)
    assert not small.compiled.exists()


def test_a_link_in_its_place_goes_and_what_it_leads_to_stays(small: Program, tmp_path: Path) -> None:
    small.compiled.rename(tmp_path / "theirs")
    small.compiled.symlink_to(tmp_path / "theirs")
    program_apply.remove_compiled(FILES)
    assert not small.compiled.is_symlink()
    assert (tmp_path / "theirs" / small.folder.name / "look").exists()


@pytest.mark.parametrize("content", [b"no archive", small_program()[:-40]])
def test_an_archive_that_cannot_be_compiled_is_named(small: Program, content: bytes) -> None:
    with pytest.raises(Refused) as caught:
        small.install(content)
    assert str(caught.value).startswith(f"Cannot compile the program in {small.archive}: ")


def test_an_interpreter_that_no_first_line_can_name_has_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for interpreter in ("", "python3", "/opt/my python/bin/python3"):
        monkeypatch.setattr(sys, "executable", interpreter)
        made = Program(tmp_path, monkeypatch, small_program())
        assert not made.look.exists()
        # Nothing can be done about it, so it is no difference that every run would try to mend.
        assert made.fault() == ""


def test_an_entry_goes_when_an_interpreter_that_cannot_be_named_compiles_anew(
    small: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    for damaged in (small.bytecode, small.look):
        program_apply.compile_program(FILES)
        damaged.write_bytes(b"x")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", "/opt/my python/bin/python3")
            assert small.fault() == "damaged"
            program_apply.compile_program(FILES)
            assert small.fault() == ""
        assert small.fault() == "missing"


# --- what is wrong with it --------------------------------------------------------------------------------------------


def test_what_is_whole_has_no_fault(small: Program) -> None:
    assert small.fault() == ""


def test_without_an_archive_nothing_is_missed(small: Program) -> None:
    small.archive.unlink()
    assert small.fault() == ""


def test_damage_is_seen(small: Program) -> None:
    content = small.bytecode.read_bytes()
    for other in (b"", content[:-1], content + b"\0", bytes([content[0] ^ 1]) + content[1:]):
        small.bytecode.write_bytes(other)
        assert small.fault() == "damaged"
    small.bytecode.unlink()
    assert small.fault() == "damaged"
    program_apply.compile_program(FILES)
    assert small.fault() == ""


def test_an_entry_that_is_missing_or_not_as_it_was_made_is_seen(small: Program) -> None:
    made = small.look.read_text()
    lines = made.splitlines(keepends=True)
    for text in (
        "",
        "#!/bin/sh\nexit 90\n",
        made[10:],
        made + "\n",
        made.replace("PATH = [", 'PATH = ["/x" '),
        "".join([lines[0], "raise KeyError\n", *lines[1:]]),
    ):
        small.look.write_text(text)
        assert small.fault() == "damaged"
    small.look.unlink()
    assert small.fault() == "missing"


def test_what_another_python_made_is_seen_where_that_python_is_gone_or_changed(small: Program) -> None:
    text = small.look.read_text()
    small.look.write_text(text.replace(f"#!{sys.executable} ", "#!/nonexistent/python3 "))
    assert small.fault() == "for /nonexistent/python3, which does not exist"
    tag = sys.implementation.cache_tag
    small.look.write_text(text.replace(f'PYTHON = "{tag}"', 'PYTHON = "cpython-36"'))
    assert small.fault() == f"for cpython-36, and {sys.executable} is {tag}"
    # Two runs with different interpreters leave each other's alone.
    small.look.write_text(text.replace(f"#!{sys.executable} ", "#!/bin/sh "))
    assert small.fault() == ""


def test_an_upgrade_of_the_python_of_the_entry_is_seen_by_any_of_its_names(
    small: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, upgraded = tmp_path / "python3", os.path.realpath(sys.executable)
    named.symlink_to(upgraded)
    tag = sys.implementation.cache_tag
    text = small.look.read_text().replace(f'PYTHON = "{tag}"', 'PYTHON = "cpython-36"')
    small.look.write_text(text.replace(f"#!{sys.executable} ", f"#!{named} "))
    monkeypatch.setattr(sys, "executable", upgraded)
    assert small.fault() == f"for cpython-36, and {named} is {tag}"
    program_apply.compile_program(FILES)
    assert small.fault() == ""


def test_no_entry_is_made_or_believed_that_names_a_python_which_others_may_change(
    small: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, folder = tmp_path / "home", tmp_path / "venv" / "bin"
    home.mkdir()
    folder.mkdir(parents=True)
    # What it leads to in the end is root's, and who may lead it elsewhere is not.
    (folder / "python").symlink_to("../../home/python")
    (home / "python").symlink_to(sys.executable)
    for loose in (folder, home):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(folder / "python"))
            program_apply.compile_program(FILES)
            assert small.fault() == ""
            loose.chmod(0o777)
            assert small.fault() == f"for {folder}/python: {loose} is world-writable, and root would run it"
            program_apply.compile_program(FILES)
            assert not small.look.exists()
            assert small.fault() == ""
        # Another interpreter can have one.
        assert small.fault() == "missing"
        loose.chmod(0o755)


def test_no_entry_is_made_or_believed_with_modules_that_others_may_change(
    small: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(packages)])
    monkeypatch.syspath_prepend(str(packages))
    program_apply.compile_program(FILES)
    assert str(packages) in small.look.read_text()
    packages.chmod(0o777)
    why = f"{packages} is world-writable, and root would run it"
    assert small.fault() == f"for {sys.executable}: {why}"
    program_apply.compile_program(FILES)
    assert (small.look.exists(), small.fault()) == (False, "")


def test_links_in_a_circle_on_the_way_have_an_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("../" + tmp_path.name + "/b")
    (tmp_path / "b").symlink_to("a")
    assert exposed_way(FILES, str(tmp_path / "a")) == ""


# --- what the entry answers -------------------------------------------------------------------------------------------


def test_the_entry_answers_a_look_and_starts_nothing_of_ansible(whole: Program) -> None:
    done = whole.ask({"declared": {}})
    assert (done.returncode, done.stderr) == (ANSWERED, "")
    answer = json.loads(unframed(done.stdout) or "")
    assert (answer["changed"], answer["concerns"], answer["facts"]["kernel"]) == (False, {}, os.uname().release)


def test_a_wrong_declaration_is_an_answer_too(whole: Program) -> None:
    done = whole.ask({"declared": {"hugepage": {}}})
    assert done.returncode == ANSWERED
    answer = json.loads(unframed(done.stdout) or "")
    assert answer["failed"]
    assert "Did you mean hugepages" in answer["msg"]


@pytest.mark.parametrize("request_text", ["", "{", "[]", "{}", '{"declared": []}', "[" * 100_000])
def test_what_is_no_request_has_no_answer(whole: Program, request_text: str) -> None:
    done = whole.ask(request_text)
    assert done.returncode not in (0, ANSWERED)
    assert unframed(done.stdout) is None


def test_it_does_not_answer_for_another_interpreter(whole: Program, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(sys.executable)
    assert whole.ask({"declared": {}, "interpreter": str(tmp_path / "link")}).returncode == ANSWERED
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for other in (str(wrapper), "/nonexistent/python3"):
        done = whole.ask({"declared": {}, "interpreter": other})
        assert (done.returncode, done.stdout) == (program.OTHER_PYTHON, "")


def test_damaged_bytecode_is_not_run(damaged: Program) -> None:
    content = damaged.bytecode.read_bytes()
    for other in (b"", content[:-1], content[: len(content) // 2], content[:-1] + bytes([content[-1] ^ 1])):
        damaged.bytecode.write_bytes(other)
        done = damaged.ask({"declared": {}})
        assert (done.returncode, done.stdout, done.stderr) == (program.DAMAGED, "", "")


def test_bytecode_of_another_python_is_not_run(damaged: Program) -> None:
    tag = sys.implementation.cache_tag
    damaged.look.write_text(damaged.look.read_text().replace(f'PYTHON = "{tag}"', 'PYTHON = "cpython-36"'))
    assert damaged.ask({"declared": {}}).returncode == program.OTHER_PYTHON


def test_it_finds_no_module_in_the_folder_or_the_environment_of_its_caller(whole: Program, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(7)\n")
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit(7)\n")
    done = subprocess.run(
        whole.command,
        input='{"declared": {}}',
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (ANSWERED, "")


# --- who else takes it ------------------------------------------------------------------------------------------------


def loader_with(whole: Program, digest: str, *, packages: bool = False) -> str:
    """What loads the modules of a look that was sent in an archive of its own, as Ansible does it."""
    code = f"""
import sys
sys.path.insert(0, {str(whole.archive)!r})
from {PACKAGE}.plugins.module_utils._linux import program
from {PACKAGE}.plugins.module_utils._machine.files import LocalFiles
program.COMPILED = {str(whole.compiled)!r}
program.prefer(LocalFiles(), {digest!r}, packages={packages})
from {PACKAGE}.plugins.module_utils._node import registry
print(type(registry.__spec__.loader).__name__)
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_look_that_was_sent_takes_its_modules_from_the_node_only_where_they_are_the_very_same(
    whole: Program,
) -> None:
    assert loader_with(whole, DIGEST) == "Finder"
    assert loader_with(whole, DIGEST, packages=True) == "Finder"
    for other in ("", "0" * 64, f"../compiled/{DIGEST}", "None"):
        assert loader_with(whole, other) == "zipimporter"


def test_it_does_not_take_what_is_damaged_or_what_others_may_have_written(damaged: Program) -> None:
    damaged.bytecode.chmod(0o666)
    assert loader_with(damaged, DIGEST) == "zipimporter"
    damaged.bytecode.chmod(0o644)
    damaged.folder.chmod(0o777)
    assert loader_with(damaged, DIGEST) == "zipimporter"
    damaged.folder.chmod(0o755)
    assert loader_with(damaged, DIGEST) == "Finder"
    damaged.bytecode.write_bytes(damaged.bytecode.read_bytes()[:-1])
    assert loader_with(damaged, DIGEST) == "zipimporter"


@pytest.mark.parametrize("file", [program.LOOK, program.BYTECODE])
def test_without_what_cannot_be_read_it_is_only_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    made = Program(tmp_path, monkeypatch, PRODUCT)
    (made.folder / file).unlink()
    (made.folder / file).mkdir()
    assert loader_with(made, DIGEST) == "zipimporter"
    monkeypatch.setattr(StandardFiles, "locate", lambda self, path: refuse(path) if path.endswith(file) else path)
    program.prefer(FILES, DIGEST, packages=True)


def refuse(path: str) -> str:
    raise OSError(errno.EIO, os.strerror(errno.EIO), path)


# --- without types ----------------------------------------------------------------------------------------------------


def test_no_module_of_the_program_breaks_without_typing(whole: Program) -> None:
    """All of them, imported from the bytecode as an entry does it; those that need Ansible are not among them."""
    modules = index_of(whole)
    code = f"""
import os
from importlib import import_module
from marshal import loads
file, start = os.open({str(whole.bytecode)!r}, os.O_RDONLY), {{}}
exec(loads(os.pread(file, int.from_bytes(os.pread(file, {LENGTH}, 0), "little"), {LENGTH})), start)
finder = start["Finder"](file)
finder.install()
for name in finder.index:
    import_module(name)
print(len(finder.index))
"""
    done = subprocess.run([sys.executable, "-IBS", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == len(modules)


def test_nothing_asks_at_run_time_whether_a_value_is_of_a_type_of_typing() -> None:
    """The stand-in for typing has no such types: those of ``collections.abc`` have."""
    found = []
    with zipfile.ZipFile(io.BytesIO(PRODUCT)) as opened:
        sources = {name: opened.read(name) for name in opened.namelist() if name.endswith(".py")}
    assert sources
    for name, source in sources.items():
        tree = ast.parse(source)
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "typing"]
        types = {alias.asname or alias.name for node in imports for alias in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                asked = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
                found += [f"{name}:{node.lineno}: {type_}" for type_ in sorted(asked & types)]
    assert found == []


# What none of our looks needs, each of them a large part of what the look itself costs.
COSTLY = {
    "typing",
    "subprocess",
    "shutil",
    "socket",
    "pathlib",
    "dataclasses",
    "inspect",
    "ast",
    "argparse",
    "tempfile",
}
COSTLY |= {"hashlib", "zipfile", "urllib.parse", "ctypes", "logging", "threading", "asyncio", "decimal", "traceback"}


def test_a_look_imports_nothing_that_is_for_others(whole: Program) -> None:
    request = {"declared": {"hugepages": {"pools": []}, "kernel_modules": {"block": ["nouveau"]}, "nvme_scheduler": {}}}
    command = [sys.executable, "-IBS", "-X", "importtime", str(whole.look)]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=False)
    assert done.returncode == ANSWERED
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "json" in imported
    assert sorted(imported & COSTLY) == []
