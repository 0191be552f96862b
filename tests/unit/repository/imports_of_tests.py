# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rule by which tests import modules of the project: by package, and with nothing more on ``sys.path``."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Iterator, List, Set

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = "ansible_collections.gpufleet.node."
# What a bare name could mean: folders and modules of the project that have no other name outside of it.
BARE = {
    *(path.stem for folder in ("tests", "tools", "molecule") for path in (ROOT / folder).rglob("*.py")),
    *("tests", "tools", "plugins", "node", "molecule"),
}
CHANGES = ("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort")


def misplaced_imports(text: str) -> List[str]:
    """What is wrong in a file of tests, as "LINE: reason".

    Programs that are started by their path are imported by bare name within ``with siblings(...)``. ``monkeypatch`` may
    change ``sys.path``, since it undoes that.
    """
    tree = ast.parse(text)
    exempt: Set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and any("siblings(" in ast.unparse(item.context_expr) for item in node.items):
            exempt.update(id(inner) for inner in ast.walk(node))
    return [
        f"{getattr(node, 'lineno', 0)}: {reason}"
        for node in ast.walk(tree)
        for reason in _wrong(node, by_path=id(node) in exempt)
    ]


def _wrong(node: ast.AST, *, by_path: bool) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
        # What is imported from a package may be a module itself.
        names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    elif isinstance(node, ast.Assign) and "pytest_plugins" in map(ast.unparse, node.targets):
        strings = (part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant))
        names = [value for value in strings if isinstance(value, str)]
    else:
        names = []
    for name in names:
        if name.partition(".")[0] in BARE and not by_path:
            yield f"{name} is imported by bare name"
        elif name.startswith(f"{PACKAGE}tests.") and name.rpartition(".")[2].startswith("test_"):
            yield f"{name} is a file of tests: move what they share into a module beside it"
    if isinstance(node, ast.ImportFrom) and node.level:
        yield "the import is relative, but pytest gives a file of tests another package"
    if _changes_the_path(node):
        yield "sys.path is changed"


def _changes_the_path(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return ast.unparse(node.func.value) == "sys.path" and node.func.attr in CHANGES
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete)):
        targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
        return any(ast.unparse(target).partition("[")[0] == "sys.path" for target in targets)
    return False
