# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of the house (docs/architecture.md) that a machine can check."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set, Tuple

import pytest
import yaml
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.plugin_utils.profiles import asked

ROOT = Path(__file__).resolve().parents[2]
UTILS = ROOT / "plugins" / "module_utils"
MODULES = sorted((ROOT / "plugins" / "modules").glob("*.py"))
ROLES = sorted(path.parents[1] for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"))
CONCERNS = [entry.name for entry in REGISTRY]
COLLECTION = "ansible_collections.gpufleet.node."
FOUNDATION = ("_core", "_host", "_topology")
TOP = "_node"
CODE = ("plugins", "node", "tests", "tools", "molecule")

# Ansible compiles what it ships on every run, about 22 ms a thousand lines. The look at a whole node does so only until
# the node has the same sources compiled.
LINES_OF_A_MODULE = 2050
LINES_OF = {
    # It has to know what every board can be divided into before it can say that nothing differs.
    "mig_layout": 2753,
    # Where every interrupt belongs must be worked out before it can be seen that it is there, and irqbalance, udev and
    # the boot service each have a say in whether it stays.
    "numa_irq_affinity": 3600,
    # It is called only where a daemon lacks something, and looks as container_runtime does.
    "container_engine_restart": 2500,
    # How much of a list a rule of udev has room for must be known before it can be said that the rules are these.
    "nvme_scheduler": 2100,
    "node_state": 11600,
}

# The kinds of engines and what else has settings in files: each is imported when it is declared.
KINDS = ("docker", "containerd", "crio", "podman", "apptainer", "toolkit", "cdi")
LINES_WITH_A_KIND = 3375

WITH_ANSIBLE = tuple(
    f"plugins/{kind}/" for kind in ("modules", "action", "callback", "filter", "lookup", "plugin_utils")
)
CONVERGE = "plugins/module_utils/_core/converge.py"


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(*folders: str) -> List[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


SHIPPED = python_files("plugins", "node")


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def statements(tree: ast.AST, *, lazy: bool) -> Iterator[ast.stmt]:
    """Import statements; with ``lazy`` also those inside functions. What only type checkers see is left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.orelse:
                yield from statements(ast.Module(body=[child], type_ignores=[]), lazy=lazy)
        elif lazy or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from statements(node, lazy=lazy)


def imported(path: Path, *, lazy: bool) -> Set[str]:
    """Full names that a file imports: modules, and names in modules that may be modules themselves."""
    package = COLLECTION + ".".join(path.relative_to(ROOT).with_suffix("").parts[:-1])
    names: Set[str] = set()
    for node in statements(tree_of(path), lazy=lazy):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")
                base = ".".join(above[: len(above) - node.level + 1] + ([node.module] if node.module else []))
            names.add(base)
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def our_files(names: Set[str]) -> Set[Path]:
    """Those of the names that are files of the collection."""
    found: Set[Path] = set()
    for name in names:
        if name.startswith(COLLECTION):
            place = ROOT.joinpath(*name[len(COLLECTION) :].split("."))
            found.update(path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file())
    return found


def reachable(path: Path) -> Set[Path]:
    """A file and every file of ours that runs when it is imported."""
    seen: Set[Path] = set()
    waiting = [path]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting.extend(our_files(imported(current, lazy=False)))
    return seen


def lines_of(path: Path) -> int:
    """The lines of a file without a plugin's documentation, which costs a compiler nothing."""
    documentation = [
        node
        for node in tree_of(path).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("DOCUMENTATION", "EXAMPLES", "RETURN")
    ]
    lines = len(path.read_text(encoding="utf-8").splitlines())
    return lines - sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in documentation)


def layer_of(path: Path) -> str:
    """The package below module_utils, or the kind of plugin."""
    parts = path.relative_to(ROOT / "plugins").parts
    return parts[1] if parts[0] == "module_utils" else parts[0]


def edges() -> Iterator[Tuple[Path, Path]]:
    for path in python_files("plugins"):
        for target in our_files(imported(path, lazy=True)):
            if target != path:
                yield path, target


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


# --- imports ----------------------------------------------------------------------------------------------------------


def test_the_foundation_imports_no_room_and_rooms_import_neither_each_other_nor_the_node() -> None:
    wrong = []
    for path, target in edges():
        if "module_utils" not in path.parts:
            continue
        source, destination = layer_of(path), layer_of(target)
        if source in FOUNDATION:
            allowed = destination in FOUNDATION
        elif source == TOP:
            allowed = "module_utils" in target.parts
        else:
            allowed = destination in (source, *FOUNDATION)
        if not allowed:
            wrong.append(f"{name_of(path)} imports {name_of(target)}")
    assert wrong == []


def test_nothing_is_imported_in_a_ring() -> None:
    # A room may import its own files lazily, so this is about what runs at import.
    graph: Dict[Path, List[Path]] = {}
    for path in python_files("plugins/module_utils"):
        graph[path] = sorted(our_files(imported(path, lazy=False)) - {path})
    done: Set[Path] = set()

    def walk(path: Path, trail: Tuple[Path, ...]) -> None:
        assert path not in trail, " -> ".join(name_of(step) for step in (*trail, path))
        if path not in done:
            for target in graph.get(path, []):
                walk(target, (*trail, path))
            done.add(path)

    for path in graph:
        walk(path, ())


def test_the_topology_is_pure() -> None:
    allowed = (UTILS / "_topology", UTILS / "_core" / "errors.py", UTILS / "_core" / "__init__.py")
    wrong = [
        f"{name_of(path)} imports {name_of(target)}"
        for path, target in edges()
        if layer_of(path) == "_topology" and not any(place in (target, *target.parents) for place in allowed)
    ]
    assert wrong == []


def test_only_plugins_and_the_road_know_ansible() -> None:
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
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.exit", "exit", "quit"):
                wrong.append(f"{name_of(path)}:{node.lineno} calls {ast.unparse(node.func)}")
    assert wrong == []


# Of the environment, a program of the node takes the way to programs, and hands the rest on to those that it starts.
ENVIRONMENT = ("os.environ", "os.environb", "os.getenv", "os.getenvb", "environ", "getenv")
HEEDS_ITS_ENVIRONMENT = {"node/standard_host.py"}


def test_what_runs_on_a_node_takes_no_orders_from_its_environment() -> None:
    wrong = []
    for path in python_files("plugins/modules", "plugins/module_utils", "node"):
        for node in ast.walk(tree_of(path)):
            asked = ast.unparse(node) if isinstance(node, (ast.Attribute, ast.Name)) else ""
            if asked in ENVIRONMENT and name_of(path) not in HEEDS_ITS_ENVIRONMENT:
                wrong.append(f"{name_of(path)}:{node.lineno} reads {asked}")
    assert wrong == []


def test_nothing_that_is_shipped_stands_on_what_is_for_test_beds() -> None:
    wrong = [name_of(path) for path in SHIPPED if "recorded_bed" in path.read_text(encoding="utf-8")]
    assert wrong == []
    assert not [path for path in SHIPPED if path.stem.startswith("recorded")]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_what_a_run_without_changes_compiles_stays_small(module: Path) -> None:
    limit = LINES_OF.get(module.stem, LINES_OF_A_MODULE)
    starts = [module, *([ROOT / CONVERGE, UTILS / TOP / "look.py"] if module.stem == "node_state" else [])]
    lines = {name_of(path): lines_of(path) for start in starts for path in reachable(start)}
    assert sum(lines.values()) < limit, sorted(((count, name) for name, count in lines.items()), reverse=True)


@pytest.mark.parametrize("kind", KINDS)
def test_what_one_declared_engine_compiles_without_a_change_stays_small(kind: str) -> None:
    module = ROOT / "plugins" / "modules" / "container_runtime.py"
    files = reachable(module) | reachable(UTILS / "_engine" / f"{kind}.py")
    lines = {name_of(path): lines_of(path) for path in files}
    assert sum(lines.values()) < LINES_WITH_A_KIND, sorted(((n, name) for name, n in lines.items()), reverse=True)


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
