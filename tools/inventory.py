# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every test of `make test`: its stage, its Python, and the number of its assertions, to compare two checkouts.

python3 tools/inventory.py --root DIR --output FILE
python3 tools/inventory.py --compare BEFORE AFTER

The stages of a checkout are asked themselves: they run as in `make test`, and each command that would test something
is taken down instead, with its own interpreter and its own arguments. pytest collects, and a test that a marker skips
there is not listed. The assertions are counted in the sources (assertions.py), those of a test with those of the
fixtures that it takes. Scenarios are read: they have an entry for each task that can fail by a condition, and for each
test of a verify. Of lint and sanity the checks are listed, of build its commands and the failures that it knows.
Environments that are missing in the checkout are made, in its .cache.

A comparison lists the tests that are missing, that run in fewer places, and that have fewer assertions, and ends with
exit status 1 if there are any; then those that run elsewhere.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import assertions

PLUGIN = Path(__file__).resolve().parents[1] / "tests" / "measure"
# Written where the yaml package is: the interpreter of this program may be without.
LOAD_YAML = """
import json, sys, yaml
print(json.dumps({name: yaml.safe_load(open(name, encoding="utf-8")) for name in sys.argv[1:]}))
"""
# Those that run once for each Python of a node.
FOR_EACH_PYTHON = ("compile", "import")


@dataclass(frozen=True)
class Row:
    """A test in one place. ``part`` is where in its stage: the action of a scenario."""

    stage: str
    python: str
    part: str
    test: str
    assertions: int


class CannotList(Exception):
    """A stage does not do what this program knows. The text says what."""


# --- what a checkout has ----------------------------------------------------------------------------------------------


class Checkout:
    """The tools of a checkout, with its stages kept from doing what takes long."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rows: List[Row] = []
        self.sources = assertions.Sources(root)
        self._documents: Dict[str, Any] = {}
        sys.path.insert(0, str(root / "tools"))
        import engine
        import make
        import needs
        import runner

        self.make, self.needs, self.runner, self.engine = make, needs, runner, engine

    def list_rows(self, stages: Sequence[str] = ()) -> List[Row]:
        """The rows of these stages, or of all."""
        self.needs.prepare_places()
        logs = self.needs.CACHE / "inventory"
        logs.mkdir(parents=True, exist_ok=True)
        board = self.runner.Board(logs)
        with tempfile.TemporaryDirectory() as scratch, self._listing_only():
            environment = {**self.needs.environment(), "TMPDIR": scratch}
            options = argparse.Namespace(python=None, scenario=None, chapter="", arguments=[])
            for stage in self.make.schedule("test", options):
                if stages and stage.name not in stages:
                    continue
                print(f"{stage.name} ...", file=sys.stderr, flush=True)
                job = self.runner.Job(board, stage.name, environment, self.root)
                before = len(self.rows)
                with _listing(self, job):
                    if stage.name == "build":
                        self._build(stage.name)
                    else:
                        stage.work(job)
                if len(self.rows) == before:
                    raise CannotList(f"The stage {stage.name} runs nothing that is known")
        return self.rows

    @contextlib.contextmanager
    def _listing_only(self) -> Iterator[None]:
        """Without programs, engines and copies: what is listed needs none."""

        @contextlib.contextmanager
        def no_engine(_job: Any, **_options: Any) -> Iterator[Dict[str, str]]:
            yield {}

        def no_images(_job: Any, _address: Any, names: Sequence[str]) -> Dict[str, Future[str]]:
            tags: Dict[str, Future[str]] = {name: Future() for name in names}
            for tag in tags.values():
                tag.set_result("none")
            return tags

        replaced = [
            (self.needs, "require_programs", lambda *_words: None),
            (self.needs, "offer_browser", lambda _job: True),
            (self.needs, "offer_promtool", lambda _job: None),
            (self.needs, "copy_sources", lambda *_words: None),
            (self.needs, "collections_of_others", lambda *_words, **_more: Path("/nonexistent")),
            (self.engine, "engine", no_engine),
            (self.engine, "images", no_images),
            (self.needs, "venv", _without_listing(self.needs.venv)),
            (self.needs, "python", _without_listing(self.needs.python)),
        ]
        former = [(module, name, getattr(module, name)) for module, name, _stub in replaced]
        try:
            for module, name, stub in replaced:
                setattr(module, name, stub)
            yield
        finally:
            for module, name, value in former:
                setattr(module, name, value)

    # --- commands of stages ---

    def take_down(self, job: Any, title: str, command: Sequence[str], variables: Mapping[str, str], cwd: Path) -> None:
        """Add what a command tests."""
        words = [Path(command[0]).name, *command[1:]]
        if words[1:3] == ["-m", "pytest"]:
            self._pytest(job, command, variables, cwd)
        elif words[:2] == ["molecule", "test"]:
            self._molecule(job, command, name=command[command.index("-s") + 1])
        elif words[1:2] and words[1].endswith("/walk.py"):
            self._molecule(job, command, name=words[2])
        elif words[:2] == ["ansible-test", "sanity"]:
            self._sanity(job, command, variables)
        elif job.name == "lint":
            files = sum(word.endswith(".py") for word in command)
            python = _python_of(Path(variables["PATH"].split(":")[0]) / "python")
            self.rows.append(Row(job.name, python, "", title, max(1, files)))
        elif words[0] not in ("git", "molecule", "docker") and not words[1].endswith("/bed.py"):
            raise CannotList(f"The stage {job.name} runs a command that is not known: {' '.join(command)}")

    def _pytest(self, job: Any, command: Sequence[str], variables: Mapping[str, str], cwd: Path) -> None:
        listed = job.scratch / "inventory.jsonl"
        listed.unlink(missing_ok=True)
        path = ":".join([str(PLUGIN), *filter(None, [variables.get("PYTHONPATH")])])
        arguments = ["-p", "pytest_inventory", "--inventory", str(listed), "--collect-only", "-q", *command[3:]]
        done = subprocess.run(
            [*command[:3], *arguments],
            env={**variables, "PYTHONPATH": path},
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CannotList(f"Cannot collect the tests of {job.name}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        python = _python_of(Path(command[0]))
        for line in listed.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            # Each fixture once, however many ask for it.
            places = {(os.path.realpath(path), number) for path, number in entry["functions"]}
            count = sum(self.sources.at(Path(path), number) for path, number in places)
            self.rows.append(Row(job.name, python, "", entry["test"], count))

    def _molecule(self, job: Any, command: Sequence[str], *, name: str) -> None:
        if not self._documents:
            files = sorted(path.relative_to(self.root).as_posix() for path in (self.root / "molecule").rglob("*.yml"))
            # What is listed is written without tags of Ansible.
            python = Path(command[0]).with_name("python")
            loaded = subprocess.run(
                [python, "-c", LOAD_YAML, *files], cwd=self.root, stdout=subprocess.PIPE, check=True
            )
            self._documents = json.loads(loaded.stdout)
        python_version = _python_of(Path(command[0]).with_name("python"))
        for part, test, count in assertions.scenario(f"molecule/{name}", self._documents, self.sources, self.root):
            self.rows.append(Row(job.name, python_version, f"{name} > {part}", test, count))

    def _sanity(self, job: Any, command: Sequence[str], variables: Mapping[str, str]) -> None:
        chosen, skipped = _values(command, "--test"), _values(command, "--skip-test")
        with tempfile.TemporaryDirectory() as folder:
            # It wants to be in a collection that has something to test.
            place = Path(folder) / "ansible_collections" / "gpufleet" / "node"
            (place / "plugins" / "modules").mkdir(parents=True)
            (place / "plugins" / "modules" / "module.py").touch()
            listed = subprocess.run(
                [command[0], "sanity", "--list-tests", "--color", "no"],
                cwd=place,
                env=dict(variables),
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
        own = _python_of(Path(command[0]).with_name("python"))
        pythons = _values(command, "--python") or list(self.make.NODE_PYTHONS)
        for test in listed.stdout.split():
            if re.fullmatch(r"[\w-]+", test) and (not chosen or test in chosen) and test not in skipped:
                for python in pythons if test in FOR_EACH_PYTHON else [own]:
                    self.rows.append(Row(job.name, python, "", test, 1))

    def _build(self, stage: str) -> None:
        """What the stage that builds can find wrong: each place where it fails, in its functions."""
        tree = ast.parse((self.root / "tools" / "make.py").read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name in ("build", "_use_installed"):
                checks = [child for child in ast.walk(node) if isinstance(child, ast.Raise) or _is_run(child)]
                self.rows.append(Row(stage, "", "", node.name, len(checks)))


def _is_run(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "run"


@contextlib.contextmanager
def _listing(checkout: Checkout, job: Any) -> Iterator[None]:
    """Have ``job.run`` take commands down, and ``job.say`` remember the title of the next one."""
    real_run, title = job.run, [""]

    def run(command: Sequence[str], **options: Any) -> List[str]:
        if job.listing:
            variables = {**job.environment, **(options.get("environment") or {})}
            checkout.take_down(job, title[0], command, variables, options.get("cwd") or job.root)
            return []
        lines: List[str] = real_run(command, **options)
        return lines

    def say(text: str) -> None:
        title[0] = text

    job.run, job.say, job.listing = run, say, True
    try:
        yield
    finally:
        if hasattr(job, "close"):
            job.close()


def _without_listing(function: Any) -> Any:
    """What makes an environment runs its commands."""

    def work(job: Any, *words: Any, **more: Any) -> Any:
        former, job.listing = job.listing, False
        try:
            return function(job, *words, **more)
        finally:
            job.listing = former

    return work


def _values(command: Sequence[str], option: str) -> List[str]:
    return [command[index + 1] for index, word in enumerate(command) if word == option]


_PYTHONS: Dict[Path, str] = {}


def _python_of(interpreter: Path) -> str:
    if interpreter not in _PYTHONS:
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([str(interpreter), "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        _PYTHONS[interpreter] = done.stdout.strip()
    return _PYTHONS[interpreter]


# --- comparison -------------------------------------------------------------------------------------------------------

Place = Tuple[str, str, str]


def compare(before: Sequence[Row], after: Sequence[Row]) -> Tuple[List[str], int]:
    """Lines for the user, and the exit status."""
    old, new = _by_test(before), _by_test(after)
    renamed = _renamed(old, new)
    missing, fewer_places, fewer, moved = [], [], [], []
    for test, places in old.items():
        name = renamed.get(test, test)
        if name not in new:
            missing.append(f"{test} ({_names(places)})")
            continue
        gone, came = list((places - new[name]).elements()), list((new[name] - places).elements())
        for place in gone:
            # Elsewhere on the same Python first.
            target = next((other for other in sorted(came) if other[1] == place[1]), None)
            if target is None:
                fewer_places.append(f"{test}: no longer in {_name(place)}")
            else:
                came.remove(target)
                moved.append(f"{test}: from {_name(place)} to {_name(target)}")
        if name != test:
            moved.append(f"{test}: is now {name}")
    counts = [{row.test: row.assertions for row in rows} for rows in (before, after)]
    for test, count in counts[0].items():
        now = counts[1].get(renamed.get(test, test))
        if now is not None and now < count:
            fewer.append(f"{test}: {count} before, {now} now")
    added = sorted(set(new) - set(old) - set(renamed.values()))
    lines = [f"before: {_sums(before)}", f"after:  {_sums(after)}"]
    titled = (("missing", missing), ("in fewer places", fewer_places), ("with fewer assertions", fewer))
    for title, entries in (*titled, ("moved", moved), ("new", added)):
        lines += ["", f"{title}: {len(entries)}", *(f"  {entry}" for entry in sorted(entries))]
    return lines, 1 if missing or fewer_places or fewer else 0


def _by_test(rows: Sequence[Row]) -> Dict[str, Counter[Place]]:
    found: Dict[str, Counter[Place]] = {}
    for row in rows:
        found.setdefault(row.test, Counter())[(row.stage, row.python, row.part)] += 1
    return found


def _renamed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Dict[str, str]:
    """Tests whose file has another name or folder now, by their former names: what follows the file is the same."""
    candidates: Dict[str, List[str]] = {}
    for test in set(new) - set(old):
        candidates.setdefault(_below_file(test), []).append(test)
    lost: Dict[str, List[str]] = {}
    for test in set(old) - set(new):
        lost.setdefault(_below_file(test), []).append(test)
    return {
        tests[0]: candidates[name][0]
        for name, tests in lost.items()
        if name and len(tests) == 1 and len(candidates.get(name, [])) == 1
    }


def _below_file(test: str) -> str:
    """The name of a test or a task without the file before it; nothing for what is in no file."""
    return test.partition("::")[2] or test.partition(".yml: ")[2]


def _name(place: Place) -> str:
    stage, python, part = place
    return stage + (f" on Python {python}" if python else "") + (f" ({part})" if part else "")


def _names(places: Counter[Place]) -> str:
    return ", ".join(_name(place) for place in sorted(places))


def _sums(rows: Sequence[Row]) -> str:
    tests = len({row.test for row in rows})
    return f"{tests} tests in {len(rows)} places, {sum(row.assertions for row in rows)} assertions"


# --- command line -----------------------------------------------------------------------------------------------------


def read(path: Path) -> List[Row]:
    return [Row(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def write(rows: Sequence[Row], path: Optional[Path]) -> None:
    """A row a line, for other programs to compare, too."""
    ordered = sorted(rows, key=lambda row: (row.stage, row.part, row.test, row.python))
    text = "[\n" + ",\n".join(json.dumps(vars(row)) for row in ordered) + "\n]\n"
    if path:
        path.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="List every test of `make test`, or compare two such lists.")
    root = Path(__file__).resolve().parents[1]
    parser.add_argument("--root", type=Path, default=root, metavar="DIR", help="the checkout (default: this one)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the list is written (default: stdout)")
    parser.add_argument("--stage", action="append", default=[], metavar="NAME", help="this stage only")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"), help="two such lists")
    options = parser.parse_args(arguments)
    if options.compare:
        lines, status = compare(*(read(path) for path in options.compare))
        print("\n".join(lines))
        return status
    try:
        write(Checkout(options.root.resolve()).list_rows(options.stage), options.output)
    except CannotList as reason:
        print(reason, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
