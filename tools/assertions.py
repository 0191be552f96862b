# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many assertions there are in tests, read out of their sources.

Of a Python function these count: each condition of ``assert`` (``assert a and b`` has two), each ``pytest.raises``,
``warns``, ``deprecated_call`` and ``fail``, each ``raise AssertionError``, and at each call of a helper what counts in
the helper. A helper is a function of the same file, or of a file of tests that is imported, or a method whose name only
one class in these files has. Of a task of Ansible each condition of ``that``, ``failed_when`` and ``until`` counts, in
a list or joined by ``and``, and a ``fail`` counts once.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CHECKS = ("raises", "warns", "deprecated_call", "fail")
FOLDERS = ("tests", "molecule")
COLLECTION = "ansible_collections.gpufleet.node."
TESTS = f"{COLLECTION}tests."
INCLUDES = ("include_tasks", "import_tasks", "import_playbook")


# --- Python -----------------------------------------------------------------------------------------------------------


class Module:
    """A file: its functions by name, its methods by name, its functions by their first line, and what it imports."""

    def __init__(self, path: Path) -> None:
        self.path = path
        tree = ast.parse(path.read_text(encoding="utf-8"))
        self.functions = {node.name: node for node in tree.body if isinstance(node, FUNCTIONS)}
        self.methods: Dict[str, List[Function]] = {}
        self.by_line: Dict[int, Function] = {}
        # (module, name in it or nothing) by the name here.
        self.imports: Dict[str, Tuple[str, str]] = {}
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                self.by_line[min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])] = node
            elif isinstance(node, ast.ClassDef):
                for child in node.body:
                    if isinstance(child, FUNCTIONS):
                        self.methods.setdefault(child.name, []).append(child)
            elif isinstance(node, ast.ImportFrom):
                self.imports.update({name.asname or name.name: (node.module or "", name.name) for name in node.names})
            elif isinstance(node, ast.Import):
                self.imports.update({name.asname or name.name: (name.name, "") for name in node.names})


class Sources:
    """The files of tests of a checkout."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._paths: Dict[str, List[Path]] = {}
        for folder in FOLDERS:
            for path in sorted((root / folder).rglob("*.py")):
                self._paths.setdefault(path.stem, []).append(path)
        self._known = {path for paths in self._paths.values() for path in paths}
        self._modules: Dict[Path, Module] = {}
        self._counted: Dict[int, int] = {}

    def module(self, path: Path) -> Module:
        if path not in self._modules:
            self._modules[path] = Module(path)
        return self._modules[path]

    def at(self, path: Path, line: int) -> int:
        """Assertions of the function that begins in this line; 0 for one that is not of the tests."""
        if path not in self._known:
            return 0
        module = self.module(path)
        function = module.by_line.get(line)
        return self.count(function, module) if function else 0

    def count(self, function: Function, module: Module) -> int:
        """Assertions of a function, with those of its helpers."""
        key = id(function)
        if key not in self._counted:
            # One that calls itself has its own only once.
            self._counted[key] = 0
            self._counted[key] = sum(self._of(node, module) for node in ast.walk(function))
        return self._counted[key]

    def _of(self, node: ast.AST, module: Module) -> int:
        if isinstance(node, ast.Assert):
            return _conjuncts(node.test)
        if isinstance(node, ast.Raise):
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            return int(isinstance(raised, ast.Name) and raised.id == "AssertionError")
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "pytest":
                return int(called.attr in CHECKS)
            helper = self._helper(called, module)
            return self.count(*helper) if helper else 0
        return 0

    def _helper(self, called: ast.expr, module: Module) -> Optional[Tuple[Function, Module]]:
        if isinstance(called, ast.Name):
            if called.id in module.functions:
                return module.functions[called.id], module
            source, name = module.imports.get(called.id, ("", ""))
            found = self._find(source, "", module)
            return (found.functions[name], found) if found and name in found.functions else None
        if not isinstance(called, ast.Attribute):
            return None
        if isinstance(called.value, ast.Name) and called.value.id in module.imports:
            source, name = module.imports[called.value.id]
            found = self._find(source, name, module) if not name or source.startswith(TESTS) else None
            if found and called.attr in found.functions:
                return found.functions[called.attr], found
        sources = [(source, inner) for source, name in module.imports.values() for inner in ("", name)]
        near = [module, *(other for source, name in sources if (other := self._find(source, name, module)))]
        methods = {id(node): (node, other) for other in near for node in other.methods.get(called.attr, ())}
        return next(iter(methods.values())) if len(methods) == 1 else None

    def _find(self, name: str, inner: str, module: Module) -> Optional[Module]:
        """The file of tests with this name of a module, or ``inner`` in this package of tests.

        Of a bare name it is the one beside the file that imports it, else the only one.
        """
        if name.startswith(TESTS):
            words = [*name[len(COLLECTION) :].split("."), *filter(None, [inner])]
            place = self._root.joinpath(*words).with_suffix(".py")
            return self.module(place) if place in self._known else None
        if name.startswith("ansible_collections.") or inner:
            return None
        paths = self._paths.get(name.rpartition(".")[2], [])
        beside = [path for path in paths if path.parent == module.path.parent]
        chosen = beside or (paths if len(paths) == 1 else [])
        return self.module(chosen[0]) if chosen else None

    def tests_in(self, folder: Path) -> Iterator[Tuple[str, int]]:
        """The test functions of a folder with their assertions, those of the fixtures of their file included.

        For tests that cannot be collected without their machines: what ``parametrize`` spells out counts as often.
        """
        for path in sorted(folder.rglob("test_*.py")):
            module = self.module(path)
            for name, function in module.functions.items():
                if name.startswith("test_"):
                    names = [argument.arg for argument in function.args.args]
                    fixtures = sum(
                        self.count(module.functions[arg], module) for arg in names if arg in module.functions
                    )
                    yield f"{path.name}::{name}", (self.count(function, module) + fixtures) * _cases(function)


def _conjuncts(test: ast.expr) -> int:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return sum(_conjuncts(value) for value in test.values)
    return 1


def _cases(function: Function) -> int:
    """How many cases the decorators ``parametrize`` make, as far as they spell them out."""
    cases = 1
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute) and len(decorator.args) > 1:
            values = decorator.args[1]
            if decorator.func.attr == "parametrize" and isinstance(values, (ast.List, ast.Tuple)):
                cases *= len(values.elts)
    return cases


# --- Ansible ----------------------------------------------------------------------------------------------------------


def tasks_of(name: str, documents: Mapping[str, Any]) -> Iterator[Tuple[str, int]]:
    """The tasks with conditions of a file and of those that it includes, with the number of conditions.

    ``documents`` has what is in each file, by its path relative to the checkout. Names of tasks have their file before
    them, and a number after them where the file has the name more than once.
    """
    seen: Dict[str, int] = {}
    for task, count in _tasks(documents.get(name), name, documents):
        seen[task] = seen.get(task, 0) + 1
        yield (task if seen[task] == 1 else f"{task} #{seen[task]}"), count


def _tasks(node: Any, name: str, documents: Mapping[str, Any]) -> Iterator[Tuple[str, int]]:
    if isinstance(node, list):
        for child in node:
            yield from _tasks(child, name, documents)
    if not isinstance(node, dict):
        return
    for part in ("pre_tasks", "tasks", "post_tasks", "handlers", "block", "rescue", "always"):
        yield from _tasks(node.get(part), name, documents)
    count = conditions(node.get("failed_when")) + conditions(node.get("until"))
    for key, value in node.items():
        action = str(key).rpartition(".")[2]
        if action == "assert":
            count += conditions(value.get("that"))
        elif action == "fail":
            count += 1
        elif action in INCLUDES:
            file = value.get("file", "") if isinstance(value, dict) else str(value)
            # Beside the file itself, or beside the playbook that includes the file.
            places = [_relative(Path(name).parent / file), _relative(Path(name).parent.parent / file)]
            included = next((place for place in places if place in documents), "")
            yield from _tasks(documents.get(included), included, documents)
    if count:
        yield f"{name}: {node.get('name', 'a task without a name')}", count


def conditions(value: Any) -> int:
    """The conditions in a list, or joined by ``and``; none where nothing can fail."""
    if value is None or value is False or value == []:
        return 0
    if isinstance(value, list):
        return sum(conditions(item) for item in value)
    return 1 + len(re.findall(r"\band\b", str(value)))


def _relative(path: Path) -> str:
    parts: List[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def scenario(folder: str, documents: Mapping[str, Any], sources: Sources, root: Path) -> Iterator[Tuple[str, str, int]]:
    """What a scenario of molecule checks: the action, the name of a test or a task, and how many assertions it has."""
    definition = documents[f"{folder}/molecule.yml"]
    playbooks: Mapping[str, str] = definition.get("provisioner", {}).get("playbooks", {})
    for line in definition["scenario"]["test_sequence"]:
        action, *arguments = str(line).split()
        if action == "verify":
            # Without an argument molecule takes this folder.
            for argument in arguments or ["tests"]:
                tests = _relative(Path(folder) / argument)
                for name, count in sources.tests_in(root / tests):
                    yield action, f"{tests}/{name}", count
            continue
        if action in ("check", "idempotence"):
            yield action, f"{action} of {folder}", 1
        own = "converge" if action in ("check", "idempotence") else action
        for argument in arguments or [playbooks.get(own, f"{own}.yml")]:
            for name, count in tasks_of(_relative(Path(folder) / argument), documents):
                yield action, name, count
