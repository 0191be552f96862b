# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The imports of the Python files of the collection, read from their sources."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import AbstractSet, FrozenSet, Iterator, List, Set

ROOT = Path(__file__).resolve().parents[1]
COLLECTION = "ansible_collections.gpufleet.node."


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def statements(tree: ast.AST, *, lazy: bool, types: bool = False) -> Iterator[ast.stmt]:
    """Import statements: with ``lazy`` also those in functions, with ``types`` those that only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            body = [*node.body, *node.orelse] if types else node.orelse
            yield from statements(ast.Module(body=body, type_ignores=[]), lazy=lazy, types=types)
        elif isinstance(node, ast.expr):
            continue  # most of a tree, and nothing is imported in it
        elif lazy or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from statements(node, lazy=lazy, types=types)


@functools.cache
def imported(path: Path, *, lazy: bool, types: bool = False) -> FrozenSet[str]:
    """Full names that a file imports: modules, and names in modules that may be modules themselves."""
    return frozenset(names_of(tree_of(path), path.relative_to(ROOT), lazy=lazy, types=types))


def names_of(tree: ast.AST, path: Path, *, lazy: bool, types: bool = False) -> Set[str]:
    """The same of a tree that was read from this path in the checkout."""
    package = COLLECTION + ".".join(path.with_suffix("").parts[:-1])
    names: Set[str] = set()
    for node in statements(tree, lazy=lazy, types=types):
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


def candidates(name: str) -> List[str]:
    """The files of the checkout, relative to it, one of which may be the module of this full name."""
    if not name.startswith(COLLECTION):
        return []
    place = name[len(COLLECTION) :].replace(".", "/")
    return [f"{place}.py", f"{place}/__init__.py"]


def our_files(names: AbstractSet[str]) -> Set[Path]:
    """Those of the names that are files of the collection."""
    return {ROOT / place for name in names for place in candidates(name) if (ROOT / place).is_file()}
