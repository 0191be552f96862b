# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of the house (docs/architecture.md) that a machine can check."""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set, Tuple

import pytest
import yaml
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.plugin_utils.profiles import asked
from ansible_collections.gpufleet.node.tests.unit.repository.imports_of_tests import misplaced_imports
from ansible_collections.gpufleet.node.tests.unit.repository.scripts import siblings

ROOT = Path(__file__).resolve().parents[3]
with siblings("tools"):
    from imports import COLLECTION, imported, our_files, statements, tree_of

UTILS = ROOT / "plugins" / "module_utils"
MODULES = sorted((ROOT / "plugins" / "modules").glob("*.py"))
ROLES = sorted(path.parents[1] for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"))
CONCERNS = [entry.name for entry in REGISTRY]
# From the ground up; what stands side by side on a floor knows nothing of the others there. A procedure may look as a
# concern does, and no concern calls a procedure.
FLOORS = (
    ("_core",),
    ("_machine",),
    ("_linux", "_nvidia", "_text"),
    ("_kinds",),
    ("concerns",),
    ("procedures",),
    ("_node",),
)
TOP = "_node"
# Floors of which every folder is a house of its own.
DIVIDED = ("concerns", "procedures")
CODE = ("plugins", "node", "tests", "tools", "molecule")

# What a look costs before it looks at anything: the CPU time of importing it, compiled, in those of a Python that
# starts and ends, without a concern and with all of them. A module such as dataclasses or asyncio is more than one.
# Nobody declares everything, so what that may cost grows with the number of concerns.
IMPORT_OF_THE_LOOK = {"nothing": 5.0, "everything": 0.6 * len(CONCERNS)}
# What is imported when it is declared: concerns, engines, what else has settings in files, and the driver.
WHEN_DECLARED = (
    *(f"concerns.{name}.concern" for name in CONCERNS),
    *(
        f"concerns.container_runtime.{kind}.{kind}"
        for kind in ("docker", "containerd", "crio", "podman", "apptainer", "toolkit", "cdi")
    ),
    "_nvidia.driver",
)

WITH_ANSIBLE = tuple(
    f"plugins/{kind}/" for kind in ("modules", "action", "callback", "filter", "lookup", "plugin_utils")
)
CONVERGE = "plugins/module_utils/_node/module.py"


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(*folders: str) -> List[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


SHIPPED = python_files("plugins", "node")


def room_of(path: Path) -> Tuple[str, ...]:
    """The package below module_utils, with the folder in it where each is for itself; or the kind of plugin."""
    parts = path.relative_to(ROOT / "plugins").parts
    if parts[0] != "module_utils":
        return parts[:1]
    return parts[1:3] if parts[1] in DIVIDED else parts[1:2]


def edges() -> Iterator[Tuple[Path, Path]]:
    for path in python_files("plugins"):
        for target in our_files(imported(path, lazy=True)):
            if target != path:
                yield path, target


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


# --- imports ----------------------------------------------------------------------------------------------------------


def test_what_is_imported_of_ours_is_there() -> None:
    """Also by the test beds, of which most run only in a container or on an emulated machine."""
    missing = []
    for path in python_files("molecule", "tests", "tools"):
        for node in statements(tree_of(path), lazy=True):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(COLLECTION):
                continue
            place = ROOT.joinpath(*str(node.module)[len(COLLECTION) :].split("."))
            if place.with_suffix(".py").is_file():
                names = defined_in(place.with_suffix(".py"))
            else:
                names = {child.stem for child in place.iterdir()} if place.is_dir() else set()
            missing += [
                f"{name_of(path)}: {alias.name} of {node.module}" for alias in node.names if alias.name not in names
            ]
    assert missing == []


@functools.cache
def defined_in(path: Path) -> Set[str]:
    """The names that a file binds at its top, imports included."""
    names: Set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    return names


def test_imports_point_down_and_what_stands_side_by_side_imports_nothing_of_each_other() -> None:
    height = {name: number for number, names in enumerate(FLOORS) for name in names}
    wrong = []
    for path, target in edges():
        if "module_utils" not in path.parts:
            continue
        source, destination = room_of(path), room_of(target)
        down = "module_utils" in target.parts and height[destination[0]] < height[source[0]]
        if not down and destination != source:
            wrong.append(f"{name_of(path)} imports {name_of(target)}")
    assert wrong == []


def test_nothing_is_imported_in_a_ring() -> None:
    # Inside a room too, and whether at the head, in a function or for types alone: what two files of a ring share
    # belongs into a file below both.
    graph: Dict[Path, List[Path]] = {}
    for path in python_files("plugins/module_utils"):
        graph[path] = sorted(our_files(imported(path, lazy=True, types=True)) - {path})
    done: Set[Path] = set()

    def walk(path: Path, trail: Tuple[Path, ...]) -> None:
        assert path not in trail, " -> ".join(name_of(step) for step in (*trail, path))
        if path not in done:
            for target in graph.get(path, []):
                walk(target, (*trail, path))
            done.add(path)

    for path in graph:
        walk(path, ())


def test_only_plugins_and_the_module_host_know_ansible() -> None:
    wrong = []
    for path in SHIPPED:
        names = {name for name in imported(path, lazy=True) if name == "ansible" or name.startswith("ansible.")}
        if names and not name_of(path).startswith(WITH_ANSIBLE) and name_of(path) != CONVERGE:
            wrong.append(f"{name_of(path)} imports {', '.join(sorted(names))}")
    assert wrong == []


def test_subprocesses_print_and_exit_are_for_programs_on_the_node() -> None:
    wrong = []
    for path in python_files("plugins"):
        if any(name.split(".")[0] == "subprocess" for name in imported(path, lazy=True)):
            wrong.append(f"{name_of(path)} imports subprocess")
        # To look at all that is called takes long.
        if not re.search("print|exit|quit", path.read_text(encoding="utf-8")):
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.exit", "exit", "quit"):
                wrong.append(f"{name_of(path)}:{node.lineno} calls {ast.unparse(node.func)}")
    assert wrong == []


def test_what_is_taken_for_a_number_is_one_for_int_too() -> None:
    # "²".isdigit() is true, and int("²") raises.
    wrong = []
    for path in SHIPPED:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if ".isdigit()" in line and ".isascii()" not in line:
                wrong.append(f"{name_of(path)}:{number} asks isdigit() of what may not be ASCII")
    assert wrong == []


# Of the environment, a module and a program of the node take the way to programs, and hand the rest on to those that
# they start. The launcher also asks pkexec for whom it runs, which sets that itself.
ENVIRONMENT = ("os.environ", "os.environb", "os.getenv", "os.getenvb", "environ", "getenv")
HEEDS_ITS_ENVIRONMENT = {"node/run.py", "node/standard_host.py", "plugins/module_utils/_node/module.py"}


def test_what_runs_on_a_node_takes_no_orders_from_its_environment() -> None:
    wrong = []
    for path in python_files("plugins/modules", "plugins/module_utils", "node"):
        if not re.search("environ|getenv", path.read_text(encoding="utf-8")):
            continue
        for node in ast.walk(tree_of(path)):
            asked = ast.unparse(node) if isinstance(node, (ast.Attribute, ast.Name)) else ""
            if asked in ENVIRONMENT and name_of(path) not in HEEDS_ITS_ENVIRONMENT:
                wrong.append(f"{name_of(path)}:{node.lineno} reads {asked}")
    assert wrong == []


def test_nothing_that_is_shipped_stands_on_what_is_for_test_beds() -> None:
    wrong = [name_of(path) for path in SHIPPED if "recorded_bed" in path.read_text(encoding="utf-8")]
    assert wrong == []
    assert not [path for path in SHIPPED if path.stem.startswith("recorded")]


def cpu_of(program: str) -> float:
    """The CPU seconds of a child process, the least of several: what else the machine does only ever adds to them."""
    spent = []
    for _round in range(5):
        # Without site: what the machine has installed is none of ours.
        child = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", "-c", program], os.environ)
        _pid, status, usage = os.wait4(child, 0)
        assert status == 0
        spent.append(usage.ru_utime + usage.ru_stime)
    return min(spent)


@pytest.mark.parametrize("declared", IMPORT_OF_THE_LOOK)
def test_importing_the_look_costs_little_more_than_starting_python(tmp_path: Path, declared: str) -> None:
    utils = tmp_path.joinpath(*COLLECTION.rstrip(".").split("."), "plugins", "module_utils")
    shutil.copytree(UTILS, utils, ignore=shutil.ignore_patterns("__pycache__"))
    # By a child that heeds no environment, as those that are measured: the bytecode lies where they look for it.
    subprocess.run([sys.executable, "-I", "-m", "compileall", "-q", str(utils)], check=True)
    imported = (f"{TOP}.assessment", *(WHEN_DECLARED if declared == "everything" else ()))
    names = ", ".join(f"{COLLECTION}plugins.module_utils.{name}" for name in imported)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        f"from {COLLECTION}plugins.module_utils._core.importing import importing\n"
        f"with importing(): import {names}"
    )
    # Beside an emulated machine a core is half as fast from one second to the next: not only between the two.
    pairs = ((cpu_of("pass"), cpu_of(program)) for _attempt in range(4))
    assert any((look - start) / start < IMPORT_OF_THE_LOOK[declared] for start, look in pairs)


# The only entry that the process of tests gets, and the one place where more are there for an import.
CHANGE_SYS_PATH = {"tests/conftest.py", "tests/unit/repository/scripts.py"}


def test_tests_import_by_package_and_leave_the_path_of_python_alone() -> None:
    wrong = [
        f"{name_of(path)}:{reason}"
        for path in [ROOT / "tests" / "conftest.py", *python_files("tests/unit", "tests/kubernetes", "tests/awx")]
        for reason in misplaced_imports(path.read_text(encoding="utf-8"))
        if name_of(path) not in CHANGE_SYS_PATH or not reason.endswith("sys.path is changed")
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "line",
    [
        "import nodetree",
        "import json, gpu_machine as machine",
        "from support import FakeHost",
        "def function() -> None:\n    from recorded import RecordedHost",
        "from tests.unit.support import FakeHost",
        "from .support import FakeHost",
        f"from {COLLECTION}tests.unit.node.test_node_run import run",
        f"from {COLLECTION}tests.unit.node import test_node_run",
        'pytest_plugins = ("gpu_machine",)',
        'sys.path.insert(0, "folder")',
        'sys.path[:0] = ["folder"]',
        'sys.path += ["folder"]',
        'with open("file"):\n    import bed_host',
    ],
)
def test_an_import_of_tests_that_is_not_by_package_is_found(line: str) -> None:
    assert len(misplaced_imports(line)) >= 1


@pytest.mark.parametrize(
    "line",
    [
        "import json",
        f"from {COLLECTION}tests.unit.support import FakeHost",
        f"from {COLLECTION}tests.nodes import nodetree",
        f'pytest_plugins = ("{COLLECTION}tests.unit.nvidia.gpu_machine",)',
        'with siblings("tests/vm"):\n    import bed_host',
        "found = list(sys.path)",
        'monkeypatch.syspath_prepend("folder")',
    ],
)
def test_an_import_of_tests_by_package_is_fine(line: str) -> None:
    assert misplaced_imports(line) == []


# --- modules and roles ------------------------------------------------------------------------------------------------


def test_every_module_is_in_the_action_group() -> None:
    groups = load(ROOT / "meta" / "runtime.yml")["action_groups"]
    assert sorted(groups["all"]) == [path.stem for path in MODULES]


@pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)
def test_the_defaults_of_a_role_are_the_options_it_documents(role: Path) -> None:
    options = load(role / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = load(role / "defaults" / "main.yml") or {}
    documented = {name: option["default"] for name, option in options.items() if "default" in option}
    if role.name in CONCERNS:
        # Each asks the profile of the host for itself, and has what is documented where there is none.
        asking = {name: asked(default) for name, default in defaults.items()}
        assert asking == {name: (name, default) for name, default in documented.items()}
    else:
        assert defaults == documented
    assert [name for name in options if not name.startswith(f"{role.name}_")] == []


# --- release ----------------------------------------------------------------------------------------------------------


def test_the_code_and_the_collection_have_one_version() -> None:
    values = {
        target.id: ast.literal_eval(node.value)
        for node in tree_of(UTILS / "_core" / "version.py").body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert values["VERSION"] == load(ROOT / "galaxy.yml")["version"]


def test_the_collection_depends_on_no_other() -> None:
    assert load(ROOT / "galaxy.yml")["dependencies"] == {}


def test_no_finding_of_ansible_test_is_ignored() -> None:
    entries = [
        f"{name_of(path)}: {line}"
        for path in sorted((ROOT / "tests" / "sanity").glob("ignore*.txt"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    assert entries == []


@pytest.mark.parametrize("folder", CODE)
def test_every_python_file_says_whose_it_is_and_under_which_licence(folder: str) -> None:
    wrong = []
    for path in python_files(folder):
        text = path.read_text(encoding="utf-8")
        head = text.splitlines()[:4]
        if text and not (
            "# Copyright: (c)" in "\n".join(head) and "GNU General Public License v3.0+" in "\n".join(head)
        ):
            wrong.append(name_of(path))
    assert wrong == []
