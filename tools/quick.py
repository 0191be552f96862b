# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of ``make quick`` that decides: which concerns, tests and files a change touches, by the imports.

Paths are those of git: relative to the checkout, with slashes.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import AbstractSet, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple

import imports

UPSTREAM = "origin/main"
PACKAGES = "plugins/module_utils/concerns/"
TESTS = "tests/unit/concerns/"
CONTRACT = "tests/unit/contract/"
# Imports each concern by its name when it is declared: what imports it does not stand on all of them.
REGISTRY = "plugins/module_utils/_node/registry.py"
# More than these, standing on one change, are the work of all unit tests.
MAX_CONCERNS = 8
# Of the tests that are nearest to a change: more import what all of them do.
MAX_TESTS = 20
# What imports it is not for a quick run.
BROWSER = "tests/unit/controller/browser.py"
# What is read or built by a file instead of imported.
READ_BY = {
    "tests/nvml_simulator/": "tests/unit/nvml_simulator/nvml_simulator_machine.py",
    "tests/nodes/": "tests/nodes/recorded.py",
}

Graph = Mapping[str, AbstractSet[str]]


class Unknown(Exception):
    """What cannot be chosen, and the next step."""


class Selection(NamedTuple):
    """What is checked.

    tests: what pytest runs, files and folders. contracts: concerns that keep the contract again. files: those for the
    linters. postponed: concerns that stand on the change as well, and are too many. unselected: what changed and has
    no test here.
    """

    concerns: Tuple[str, ...] = ()
    tests: Tuple[str, ...] = ()
    contracts: Tuple[str, ...] = ()
    files: Tuple[str, ...] = ()
    postponed: Tuple[str, ...] = ()
    unselected: Tuple[str, ...] = ()


def choose(names: Sequence[str], *, root: Path, files: Sequence[str], cache: Path) -> Selection:
    """What there is to check of these concerns; without one, of what changed. Raises ``Unknown``."""
    changed = [] if names else changed_paths(root)
    texts = {name: (root / name).read_text(encoding="utf-8") for name in files if name.endswith(".py")}
    graph = graph_of(names_by_file(texts, cache), gone=changed)
    return select_concerns(names, files, graph) if names else select_changed(changed, files, graph)


def summary(chosen: Selection) -> List[str]:
    """Lines on what is checked."""
    alone = [name for name in chosen.tests if name[len(TESTS) :] not in chosen.concerns]
    lines = [f"concerns: {', '.join(chosen.concerns) or 'none'}"]
    if alone:
        lines.append(f"other tests: {', '.join(alone)}")
    more = sorted({*chosen.contracts} - {*chosen.concerns})
    if more:
        lines.append(f"the contract also of: {', '.join(more)}")
    return [*lines, f"linters: {len(chosen.files)} files"]


def left_out(chosen: Selection) -> List[str]:
    """Lines on what is not checked."""
    lines = [
        "Left to `make test`: other Pythons, ansible-test sanity, the scenarios, the page in a browser, promtool, and "
        "what the contract has of several concerns together."
    ]
    if chosen.postponed:
        names = ", ".join(chosen.postponed)
        lines.append(f"Left to `make unit`, since too much stands on this change: the tests of {names}.")
    if chosen.unselected:
        lines.append(f"Without a test here: {', '.join(chosen.unselected)}.")
    return lines


# --- the graph --------------------------------------------------------------------------------------------------------


def names_by_file(texts: Mapping[str, str], cache: Path) -> Dict[str, List[str]]:
    """The names that each Python file imports. Parsing all takes seconds, so what did not change is kept in a file."""
    try:
        kept = json.loads(cache.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        kept = {}
    found = {}
    for name, text in texts.items():
        digest = hashlib.sha256(text.encode()).hexdigest()
        known = kept.get(name, [])
        found[name] = known if known[:1] == [digest] else [digest, *sorted(imported_names(name, text))]
    if found != kept:
        cache.parent.mkdir(parents=True, exist_ok=True)
        fresh = cache.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(found), encoding="utf-8")
        fresh.replace(cache)
    return {name: names[1:] for name, names in found.items()}


def imported_names(name: str, text: str) -> Set[str]:
    """The full names that a file imports, and the modules that its ``pytest_plugins`` names."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # ruff says where
        return set()
    return imports.names_of(tree, Path(name), lazy=True) | {
        node.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and "pytest_plugins" in map(ast.unparse, statement.targets)
        for node in ast.walk(statement.value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def graph_of(names: Mapping[str, Iterable[str]], gone: Iterable[str] = ()) -> Dict[str, Set[str]]:
    """The files that each file imports, from the names that it imports. ``gone`` were deleted: what still imports them
    stands on the change as well.
    """
    known = {*names, *(name for name in gone if name.endswith(".py"))}
    by_stem: Dict[str, Set[str]] = defaultdict(set)
    for name in known:
        # Test environments and tools import each other by their bare names.
        if not name.startswith("plugins/"):
            by_stem[PurePosixPath(name).stem].add(name)
    graph: Dict[str, Set[str]] = {}
    for name, imported in names.items():
        graph[name] = set()
        for full in imported:
            graph[name].update(known.intersection(imports.candidates(full)))
            if not full.startswith(imports.COLLECTION):
                graph[name] |= by_stem.get(full.split(".")[0], set())
        graph[name].discard(name)
    if REGISTRY in graph:
        graph[REGISTRY] = {target for target in graph[REGISTRY] if not target.startswith(PACKAGES)}
    return graph


def reversed_graph(graph: Graph) -> Dict[str, Set[str]]:
    found: Dict[str, Set[str]] = defaultdict(set)
    for name, targets in graph.items():
        for target in targets:
            found[target].add(name)
    return found


def closure(names: Iterable[str], graph: Graph, *, below: str = "") -> Set[str]:
    """These files and all that they lead to in the graph, through files below a folder alone."""
    found: Set[str] = set(names)
    waiting = list(found)
    while waiting:
        for target in graph.get(waiting.pop(), ()):
            if target not in found and target.startswith(below):
                found.add(target)
                waiting.append(target)
    return found


# --- concerns ---------------------------------------------------------------------------------------------------------


def concerns_in(files: Iterable[str]) -> List[str]:
    return sorted(name[len(PACKAGES) :].split("/")[0] for name in files if _is_concern_file(name))


def _is_concern_file(name: str) -> bool:
    return name.startswith(PACKAGES) and name.endswith("/concern.py") and name.count("/") == PACKAGES.count("/") + 1


def check_names(names: Iterable[str], known: Sequence[str]) -> None:
    """Raises ``Unknown`` for what is not the name of a concern."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3) or known
            raise Unknown(f"There is no concern {name!r}: {', '.join(near)}")


def concern_of(name: str, known: AbstractSet[str]) -> str:
    """The concern that a file belongs to by its place; empty if none."""
    parts = name.split("/")
    if name.startswith((PACKAGES, TESTS)):
        owner = parts[3]
    elif name.startswith("plugins/modules/"):
        owner = PurePosixPath(name).stem
    elif name.startswith("roles/"):
        owner = parts[1]
    elif name.startswith("molecule/"):
        # A scenario of the concern, or a file of one that is named after it.
        owner = next((word for word in (parts[1].split("-")[0], PurePosixPath(name).stem) if word in known), "")
    else:
        owner = ""
    return owner if owner in known else ""


def is_test(name: str) -> bool:
    return name.startswith("tests/unit/") and PurePosixPath(name).match("test_*.py")


# --- selection --------------------------------------------------------------------------------------------------------


def select_concerns(names: Sequence[str], files: Iterable[str], graph: Graph) -> Selection:
    """All that is of these concerns, and the tests elsewhere that import their packages."""
    files = list(files)
    known = set(concerns_in(files))
    check_names(names, sorted(known))
    own = [name for name in files if concern_of(name, known) in names]
    packages = {name for name in own if name.startswith(PACKAGES)}
    near = {test for test in graph if is_test(test) and packages & graph[test] and not test.startswith(CONTRACT)}
    return Selection(
        concerns=tuple(sorted(names)),
        tests=tuple(_tests(names, near, graph, files)),
        contracts=tuple(sorted(names)),
        files=tuple(own),
    )


class Touch(NamedTuple):
    """What one path touches: the concern that it belongs to, those that import it, and tests."""

    owner: str
    standing: Set[str]
    contracts: Set[str]
    tests: Set[str]


def select_changed(changed: Sequence[str], files: Iterable[str], graph: Graph) -> Selection:
    """What a change of these paths touches. Where more than ``MAX_CONCERNS`` stand on it, none of them is tested but
    those with a change of their own, and the tests that are nearest to what changed.
    """
    files = list(files)
    known = set(concerns_in(files))
    importers = reversed_graph(graph)
    needed = {name: closure([path for path in graph if path.startswith(f"{PACKAGES}{name}/")], graph) for name in known}
    touched = {path: touch(path, needed, graph, importers) for path in changed}
    chosen = {entry.owner for path, entry in touched.items() if entry.owner and not _only_tests(path, entry)}
    postponed: Set[str] = set()

    def limited(names: Set[str]) -> Set[str]:
        """These, or none of them where they are too many."""
        if len(names) <= MAX_CONCERNS:
            return names
        postponed.update(names)
        return set()

    chosen |= limited(set().union(*(entry.standing for entry in touched.values())) - chosen)
    contracts = chosen | limited(set().union(*(entry.contracts for entry in touched.values())) - chosen)
    tests = set().union(*(entry.tests for entry in touched.values()))
    # Concerns of which some tests import what changed, while the concern does not.
    limited({concern_of(name, known) for name in tests} - {"", *chosen})
    changed_files = set(changed)
    tests = {name for name in tests if name in changed_files or concern_of(name, known) not in postponed}
    return Selection(
        concerns=tuple(sorted(chosen)),
        tests=tuple(_tests(chosen, tests, graph, files)),
        contracts=tuple(sorted(contracts)),
        files=tuple(name for name in files if name in changed_files or concern_of(name, known) in chosen),
        postponed=tuple(sorted(postponed)),
        unselected=tuple(path for path, entry in touched.items() if not any(entry)),
    )


def touch(path: str, needed: Graph, graph: Graph, importers: Graph) -> Touch:
    """``needed`` are the files that each concern stands on, ``importers`` the graph the other way round."""
    start = path
    if path not in importers and path not in graph:
        start = next((reader for folder, reader in READ_BY.items() if path.startswith(folder)), path)
    contracts: Set[str] = set()
    if start.startswith("tests/"):
        reached = closure([start], importers, below="tests/")
        tests = {name for name in reached if is_test(name)}
        contracts = {name for name in needed if f"{TESTS}{name}/{name}_contract.py" in reached}
    else:
        tests = nearest_tests(start, importers)
    # Those of the contract run for each concern that is chosen.
    tests = {name for name in tests if name == path or not name.startswith(CONTRACT)}
    standing = {name for name, files in needed.items() if start in files}
    return Touch(concern_of(path, needed.keys()), standing, contracts, tests)


def _only_tests(path: str, touched: Touch) -> bool:
    """Whether what changed is a test or its environment, and not something that all tests of a concern may read."""
    return path.startswith(TESTS) and bool(touched.tests or touched.contracts)


def nearest_tests(path: str, importers: Graph) -> Set[str]:
    """The tests that import a file with the fewest files of the collection between; test environments do not count,
    unless they make it more than ``MAX_TESTS``.
    """
    reached = {path}
    while True:
        direct = _into_tests(reached, importers)
        found = {name for name in closure(direct, importers, below="tests/") if is_test(name)}
        wider = reached.union(*(importers.get(name, ()) for name in reached))
        wider = {name for name in wider if name == path or not name.startswith("tests/")}
        if found or wider == reached:
            break
        reached = wider
    if len(found) > MAX_TESTS:
        found = {name for name in direct if is_test(name)}
    if len(found) > MAX_TESTS:
        # Of plugins/module_utils/_core the tests are in tests/unit/core.
        parts = {f"tests/unit/{part.lstrip('_')}/" for part in path.split("/")[:-1]}
        found = {name for name in found if name.startswith(tuple(parts))}
    return found


def _into_tests(names: Iterable[str], importers: Graph) -> Set[str]:
    return {importer for name in names for importer in importers.get(name, ()) if importer.startswith("tests/")}


def _tests(concerns: Iterable[str], others: Iterable[str], graph: Graph, files: Iterable[str]) -> List[str]:
    """The folders of the concerns, and the test files that are in none of them and need no browser."""
    present = set(files)
    folders = [f"{TESTS}{name}" for name in sorted(concerns)]
    folders = [folder for folder in folders if any(name.startswith(f"{folder}/") for name in present)]
    inside = tuple(f"{folder}/" for folder in folders)
    alone = [name for name in sorted(others) if name in present and not name.startswith(inside)]
    return [*folders, *(name for name in alone if BROWSER not in closure([name], graph, below="tests/"))]


# --- git --------------------------------------------------------------------------------------------------------------


def changed_paths(root: Path) -> List[str]:
    """What differs from where this branch left ``origin/main``: committed or not, new, changed, renamed or deleted."""
    instead = "Name concerns (make quick CONCERN=hugepages), or run make unit."
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        why = "git is not installed" if git is None else f"{root} is not a checkout of git"
        raise Unknown(f"Cannot find out what changed: {why}. {instead}")

    def lines(*words: str) -> List[str]:
        command = [git or "", "-c", f"safe.directory={root}", *words]
        done = subprocess.run(command, cwd=root, capture_output=True, check=False)
        if done.returncode != 0:
            raise Unknown(f"Cannot find out what changed: {os.fsdecode(done.stderr).strip()}. {instead}")
        return [name for name in os.fsdecode(done.stdout).split("\0") if name]

    try:
        lines("rev-parse", "--verify", "--quiet", f"{UPSTREAM}^{{commit}}")
    except Unknown:
        raise Unknown(f"Cannot find out what changed: git has no {UPSTREAM}, run git fetch origin. {instead}") from None
    (base,) = "".join(lines("merge-base", UPSTREAM, "HEAD")).split()
    # Without renames, a file that moved is there under both names.
    found = lines("diff", "--name-only", "--no-renames", "-z", base)
    return sorted({*found, *lines("ls-files", "--others", "--exclude-standard", "-z")})
