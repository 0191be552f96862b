# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The choice of ``make quick``: the concerns, tests and files that a change touches."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence, Set

import pytest
from ansible_collections.gpufleet.node.tests.unit.repository.scripts import siblings

ROOT = Path(__file__).resolve().parents[3]
with siblings("tools"):
    import imports
    import make
    import needs
    import quick
    import runner

UTILS = "plugins/module_utils"
ALPHA, BETA = f"{UTILS}/concerns/alpha", f"{UTILS}/concerns/beta"
FULL = imports.COLLECTION + "plugins.module_utils."
# A made-up checkout, by path and text.
MADE_UP: Dict[str, str] = {
    f"{UTILS}/_core/value.py": "",
    f"{UTILS}/_linux/mounts.py": "from .._core.value import replace\n",
    f"{UTILS}/_linux/apart.py": "",
    f"{ALPHA}/concern.py": "from .apply import steps\n",
    f"{ALPHA}/apply.py": "def steps():\n    from ..._linux import mounts\n",
    f"{BETA}/concern.py": "from ..._core import value\n",
    f"{UTILS}/_node/registry.py": (
        "def _alpha():\n    from ..concerns.alpha.concern import CONCERN\n"
        "def _beta():\n    from ..concerns.beta.concern import CONCERN\n"
    ),
    f"{UTILS}/_node/look.py": "from .registry import REGISTRY\n",
    "plugins/modules/alpha.py": f"from {FULL}_node import look\n",
    "plugins/modules/beta.py": f"from {FULL}_node import look\n",
    "roles/alpha/tasks/main.yml": "",
    "roles/other/tasks/main.yml": "",
    "molecule/alpha-docker/converge.yml": "",
    "molecule/default/tasks/alpha.yml": "",
    "molecule/default/tasks/alphabet.yml": "",
    "docs/page.md": "",
    "profiles/training.yml": "",
    "tests/nodes/recorded.py": "",
    "tests/nodes/machines/one.json": "",
    "tests/unit/support.py": "",
    "tests/unit/concerns/alpha/alpha_machine.py": f"import support\nfrom {FULL}concerns.alpha.concern import CONCERN\n",
    "tests/unit/concerns/alpha/alpha_contract.py": "import alpha_machine\n",
    "tests/unit/concerns/alpha/test_alpha.py": "from alpha_machine import machine\n",
    "tests/unit/concerns/alpha/test_alpha_alone.py": f"import recorded\nimport {FULL}concerns.alpha.apply\n",
    "tests/unit/concerns/alpha/data/found.txt": "",
    "tests/unit/concerns/beta/beta_contract.py": "",
    "tests/unit/concerns/beta/test_beta.py": 'pytest_plugins = ("alpha_machine",)\n',
    "tests/unit/contract/concern_machines.py": "import support\n",
    "tests/unit/contract/test_killed.py": "from concern_machines import nodes\n",
    "tests/unit/controller/browser.py": "",
    "tests/unit/controller/test_page.py": f"import browser\nimport {FULL}concerns.alpha.apply\n",
    "tests/unit/controller/test_filter.py": f"from {FULL}concerns.alpha.apply import steps\n",
    "tests/unit/linux/test_mounts.py": f"from {FULL}_linux.mounts import parse\n",
    "tests/unit/node/test_look.py": f"from {FULL}_node.look import look\n",
}
ALPHA_TESTS, BETA_TESTS = "tests/unit/concerns/alpha", "tests/unit/concerns/beta"


def graph(texts: Dict[str, str], *gone: str) -> Dict[str, Set[str]]:
    python = {name: text for name, text in texts.items() if name.endswith(".py")}
    return quick.graph_of({name: quick.imported_names(name, text) for name, text in python.items()}, gone)


def changed(*paths: str) -> quick.Selection:
    """The choice for a change of these; those that the checkout does not have were deleted."""
    gone = [path for path in paths if path not in MADE_UP]
    return quick.select_changed(paths, MADE_UP, graph(MADE_UP, *gone))


# --- a concern by its name --------------------------------------------------------------------------------------------


def test_a_named_concern_has_its_tests_its_contract_and_its_files() -> None:
    chosen = quick.select_concerns(["alpha"], MADE_UP, graph(MADE_UP))
    assert chosen == quick.Selection(
        concerns=("alpha",),
        # Also one elsewhere that imports the package, but none that takes a browser.
        tests=(ALPHA_TESTS, "tests/unit/controller/test_filter.py"),
        contracts=("alpha",),
        files=(
            f"{ALPHA}/concern.py",
            f"{ALPHA}/apply.py",
            "plugins/modules/alpha.py",
            "roles/alpha/tasks/main.yml",
            "molecule/alpha-docker/converge.yml",
            "molecule/default/tasks/alpha.yml",
            *(name for name in MADE_UP if name.startswith(f"{ALPHA_TESTS}/")),
        ),
    )


def test_a_name_that_is_not_that_of_a_concern_is_refused_with_those_that_are_near() -> None:
    with pytest.raises(quick.Unknown, match=r"^There is no concern 'alpa': alpha$"):
        quick.select_concerns(["beta", "alpa"], MADE_UP, graph(MADE_UP))
    with pytest.raises(quick.Unknown, match=r"^There is no concern 'xyz': alpha, beta$"):
        quick.select_concerns(["xyz"], MADE_UP, graph(MADE_UP))


# --- a change ---------------------------------------------------------------------------------------------------------


def test_a_changed_file_of_a_concern_chooses_that_concern() -> None:
    chosen = changed(f"{ALPHA}/concern.py")
    assert (chosen.concerns, chosen.contracts) == (("alpha",), ("alpha",))
    assert chosen.tests[0] == ALPHA_TESTS
    assert f"{ALPHA}/apply.py" in chosen.files


@pytest.mark.parametrize("path", ["roles/alpha/tasks/main.yml", "plugins/modules/alpha.py"])
def test_so_does_its_role_and_its_module(path: str) -> None:
    assert changed(path).concerns == ("alpha",)


def test_a_changed_file_below_the_concerns_chooses_those_that_import_it_also_in_functions() -> None:
    chosen = changed(f"{UTILS}/_linux/mounts.py")
    assert chosen.concerns == ("alpha",)
    assert chosen.tests == (ALPHA_TESTS, "tests/unit/linux/test_mounts.py")
    assert f"{UTILS}/_linux/mounts.py" in chosen.files
    assert changed(f"{UTILS}/_core/value.py").concerns == ("alpha", "beta")


def test_what_takes_concerns_by_name_stands_on_none_of_them() -> None:
    assert changed(f"{BETA}/concern.py").tests == (BETA_TESTS,)
    chosen = changed(f"{UTILS}/_node/registry.py")
    assert (chosen.concerns, chosen.tests) == ((), ("tests/unit/node/test_look.py",))


def test_a_changed_test_environment_chooses_the_tests_and_contracts_that_import_it_and_no_whole_concern() -> None:
    chosen = changed(f"{ALPHA_TESTS}/alpha_machine.py")
    assert chosen.concerns == ()
    assert chosen.tests == (f"{ALPHA_TESTS}/test_alpha.py", f"{BETA_TESTS}/test_beta.py")
    assert chosen.contracts == ("alpha",)
    assert chosen.files == (f"{ALPHA_TESTS}/alpha_machine.py",)


def test_what_the_contract_stands_on_chooses_the_contract_of_concerns_and_not_all_of_it() -> None:
    chosen = changed("tests/unit/support.py")
    assert chosen.tests == (f"{ALPHA_TESTS}/test_alpha.py", f"{BETA_TESTS}/test_beta.py")
    assert chosen.contracts == ("alpha",)


def test_a_changed_test_is_run_alone() -> None:
    chosen = changed(f"{ALPHA_TESTS}/test_alpha.py", "tests/unit/contract/test_killed.py")
    assert chosen.tests == (f"{ALPHA_TESTS}/test_alpha.py", "tests/unit/contract/test_killed.py")
    assert (chosen.concerns, chosen.contracts) == ((), ())


def test_what_tests_of_a_concern_read_chooses_it_and_a_recorded_machine_those_that_read_one() -> None:
    assert changed(f"{ALPHA_TESTS}/data/found.txt").concerns == ("alpha",)
    assert changed("tests/nodes/machines/one.json").tests == (f"{ALPHA_TESTS}/test_alpha_alone.py",)


def test_what_still_imports_a_deleted_file_stands_on_the_change() -> None:
    texts = {name: text for name, text in MADE_UP.items() if name != f"{UTILS}/_linux/mounts.py"}
    chosen = quick.select_changed([f"{UTILS}/_linux/mounts.py"], texts, graph(texts, f"{UTILS}/_linux/mounts.py"))
    assert chosen.concerns == ("alpha",)
    assert chosen.tests == (ALPHA_TESTS, "tests/unit/linux/test_mounts.py")
    # A linter that is asked about a file that is not there fails.
    assert f"{UTILS}/_linux/mounts.py" not in chosen.files


def test_a_deleted_test_is_not_run() -> None:
    chosen = changed(f"{ALPHA_TESTS}/test_gone.py")
    assert (chosen.concerns, chosen.tests, chosen.files) == ((), (), ())


def test_what_has_no_test_here_is_named_and_linted() -> None:
    chosen = changed("profiles/training.yml", "roles/other/tasks/main.yml")
    assert chosen.unselected == ("profiles/training.yml", "roles/other/tasks/main.yml")
    assert chosen.files == ("roles/other/tasks/main.yml", "profiles/training.yml")
    assert any("profiles/training.yml" in line for line in quick.left_out(chosen))


def test_where_too_many_stand_on_a_change_only_the_nearest_tests_run_and_the_rest_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quick, "MAX_CONCERNS", 1)
    chosen = changed(f"{UTILS}/_core/value.py", "tests/unit/linux/test_mounts.py")
    assert (chosen.concerns, chosen.contracts, chosen.postponed) == ((), (), ("alpha", "beta"))
    assert chosen.tests == ("tests/unit/linux/test_mounts.py",)
    monkeypatch.setattr(quick, "MAX_CONCERNS", 0)
    chosen = changed(f"{UTILS}/_core/value.py", f"{BETA}/concern.py")
    # The one that changed itself is tested all the same.
    assert (chosen.concerns, chosen.contracts, chosen.postponed) == (("beta",), ("beta",), ("alpha",))
    chosen = changed(f"{UTILS}/_core/value.py")
    assert (chosen.concerns, chosen.postponed) == ((), ("alpha", "beta"))
    assert any("make unit" in line and "alpha, beta" in line for line in quick.left_out(chosen))


def test_where_too_many_tests_are_near_those_of_the_same_package_run(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {**MADE_UP, "tests/unit/node/test_more.py": f"from {FULL}_linux.mounts import parse\n"}
    importers = quick.reversed_graph(graph(texts))
    path = f"{UTILS}/_linux/mounts.py"
    assert quick.nearest_tests(path, importers) == {"tests/unit/linux/test_mounts.py", "tests/unit/node/test_more.py"}
    monkeypatch.setattr(quick, "MAX_TESTS", 1)
    assert quick.nearest_tests(path, importers) == {"tests/unit/linux/test_mounts.py"}


def test_a_file_that_is_not_python_yet_imports_nothing() -> None:
    assert quick.imported_names("tools/a.py", "import (") == set()


def test_what_did_not_change_is_not_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "quick" / "imports.json"
    texts = {"tools/a.py": "import os\n", "tools/b.py": "import sys\n"}
    assert quick.names_by_file(texts, cache) == {"tools/a.py": ["os"], "tools/b.py": ["sys"]}
    parsed: List[str] = []
    monkeypatch.setattr(quick, "imported_names", lambda name, text: parsed.append(name) or {"json"})
    assert quick.names_by_file({**texts, "tools/b.py": "import json\n"}, cache) == {
        "tools/a.py": ["os"],
        "tools/b.py": ["json"],
    }
    assert parsed == ["tools/b.py"]
    cache.write_text("damaged")
    assert quick.names_by_file(texts, cache) == {"tools/a.py": ["json"], "tools/b.py": ["json"]}


# --- git --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository whose origin/main is one commit ago."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    for name in ("kept", "edited", "staged", "removed", "moved"):
        (root / name).write_text(f"{name}\n" * 20)
    (root / ".gitignore").write_text("ignored\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "first")
    git(root, "update-ref", "refs/remotes/origin/main", "HEAD")
    (root / "committed").write_text("")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "second")
    return root


def git(root: Path, *words: str) -> None:
    identity = {f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *words], cwd=root, env=environment, check=True)


def test_what_is_committed_staged_edited_new_moved_or_deleted_has_changed(checkout: Path) -> None:
    assert quick.changed_paths(checkout) == ["committed"]
    (checkout / "edited").write_text("else\n")
    (checkout / "staged").write_text("else\n")
    (checkout / "new file").write_text("")
    (checkout / "ignored").write_text("")
    (checkout / "removed").unlink()
    git(checkout, "add", "staged")
    git(checkout, "mv", "moved", "there")
    expected = ["committed", "edited", "moved", "new file", "removed", "staged", "there"]
    assert quick.changed_paths(checkout) == expected


def test_what_others_committed_since_the_branch_began_has_not_changed(checkout: Path) -> None:
    git(checkout, "checkout", "--quiet", "--detach", "origin/main")
    (checkout / "theirs").write_text("")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "other")
    git(checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(checkout, "checkout", "--quiet", "main")
    assert quick.changed_paths(checkout) == ["committed"]


def test_without_git_or_origin_the_message_says_what_to_do_instead(checkout: Path, monkeypatch: Any) -> None:
    git(checkout, "update-ref", "-d", "refs/remotes/origin/main")
    with pytest.raises(
        quick.Unknown, match=r"git has no origin/main, run git fetch origin\. Name concerns .*make unit"
    ):
        quick.changed_paths(checkout)
    (checkout / ".git").rename(checkout / "git")
    with pytest.raises(quick.Unknown, match="is not a checkout of git"):
        quick.changed_paths(checkout)
    monkeypatch.setenv("PATH", str(checkout))
    with pytest.raises(quick.Unknown, match="git is not installed"):
        quick.changed_paths(checkout)


# --- stages -----------------------------------------------------------------------------------------------------------


class FakeJob:
    """What a stage asks of its job: it keeps the commands, and those that begin with ``fails`` end badly."""

    def __init__(self, fails: str = "-") -> None:
        self.commands: List[str] = []
        self.notes: List[str] = []
        self.environment = {"PATH": "/bin"}
        self._fails = fails

    def run(self, command: Sequence[str], **_more: Any) -> List[str]:
        self.commands.append(" ".join(command))
        if self.commands[-1].startswith(self._fails):
            raise runner.StageFailed("exit status 1")
        return []

    def say(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One environment for everything, made long ago."""
    (tmp_path / ".ready").write_text("")
    os.utime(tmp_path / ".ready", (0, 0))
    monkeypatch.setattr(make, "controller", lambda job, which: tmp_path)
    monkeypatch.setattr(make, "unit_environment", lambda job, version: tmp_path)
    monkeypatch.setattr(needs, "require_programs", lambda job, names: None)
    return tmp_path


def test_each_part_of_the_choice_has_a_stage_and_the_contract_is_that_of_the_chosen_concerns(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: List[Sequence[str]] = []
    monkeypatch.setattr(make, "run_pytest", lambda job, folder, version, arguments: runs.append(arguments) or True)
    chosen = quick.Selection(concerns=("alpha",), tests=(ALPHA_TESTS,), contracts=("alpha", "beta"))
    stages = make.quick_stages(chosen)
    assert [stage.name for stage in stages] == ["quick-tests", "quick-contract", "quick-lint", "quick-rules"]
    for stage in stages[:2]:
        stage.work(FakeJob())
    assert [[*words] for words in runs] == [
        [ALPHA_TESTS],
        ["tests/unit/contract", "--concern", "alpha", "--concern", "beta"],
    ]
    assert [stage.name for stage in make.quick_stages(quick.Selection())] == ["quick-lint", "quick-rules"]


def test_the_linters_see_the_chosen_files_and_all_of_them_run(environment: Path) -> None:
    job = FakeJob(fails="ruff check")
    files = [f"{ALPHA}/concern.py", "node/run.py", "roles/alpha/README.md", "roles/alpha/tasks/main.yml"]
    with pytest.raises(runner.StageFailed, match=r"^not clean: ruff$"):
        make.quick_lint(job, files)
    assert job.commands[:3] == [
        f"ruff check --quiet --force-exclude {ALPHA}/concern.py node/run.py",
        f"ruff format --check --quiet --force-exclude {ALPHA}/concern.py node/run.py",
        "yamllint --strict roles/alpha/tasks/main.yml",
    ]
    # What uses a changed file has types as well.
    assert job.commands[3] == "mypy -p ansible_collections.gpufleet.node.plugins"
    assert job.commands[4].startswith(f"mypy {ROOT / 'node'}/")
    assert job.commands[5:] == [
        "python tools/generate.py --check",
        "ansible-lint --offline --profile production --strict -q roles/alpha",
    ]


def test_the_call_that_makes_an_environment_says_how_long_it_took(environment: Path) -> None:
    job = FakeJob()
    make.set_up(job, lambda: environment)
    assert job.notes == []
    os.utime(environment / ".ready")
    make.set_up(job, lambda: environment)
    assert [note.split(" took ")[0] for note in job.notes] == ["first call: making the environment"]


# --- this checkout ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sources() -> List[str]:
    return [path.as_posix() for path in needs.source_files()]


@pytest.fixture(scope="module")
def real(sources: List[str]) -> Dict[str, Set[str]]:
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in sources if name.endswith(".py")}
    return quick.graph_of(quick.names_by_file(texts, needs.CACHE / "quick" / "imports.json"))


@pytest.mark.once
def test_here_a_file_of_the_kernel_chooses_exactly_the_concerns_that_stand_on_it(
    sources: List[str], real: Dict[str, Set[str]]
) -> None:
    path = f"{UTILS}/_linux/fstab.py"
    standing = set()
    for name in quick.concerns_in(sources):
        waiting = list((ROOT / UTILS / "concerns" / name).glob("*.py"))
        seen: Set[Path] = set()
        while waiting:
            file = waiting.pop()
            if file not in seen:
                seen.add(file)
                waiting += imports.our_files(imports.imported(file, lazy=True))
        if ROOT / path in seen:
            standing.add(name)
    assert {"filesystems", "node_swap"} <= standing
    chosen = quick.select_changed([path], sources, real)
    assert (set(chosen.concerns), chosen.postponed) == (standing, ())


@pytest.mark.once
def test_here_a_file_on_which_everything_stands_leaves_the_concerns_to_all_unit_tests(
    sources: List[str], real: Dict[str, Set[str]]
) -> None:
    chosen = quick.select_changed([f"{UTILS}/_core/value.py"], sources, real)
    assert list(chosen.postponed) == quick.concerns_in(sources)
    assert chosen.concerns == ()
    assert "tests/unit/core/test_value.py" in chosen.tests


@pytest.mark.once
def test_here_every_concern_can_be_named_and_has_tests_a_role_and_a_module(
    sources: List[str], real: Dict[str, Set[str]]
) -> None:
    for name in quick.concerns_in(sources):
        chosen = quick.select_concerns([name], sources, real)
        assert f"tests/unit/concerns/{name}" in chosen.tests
        assert {f"roles/{name}/tasks/main.yml", f"plugins/modules/{name}.py"} <= {*chosen.files}


@pytest.mark.once
def test_here_a_changed_test_environment_chooses_the_tests_that_import_it(
    sources: List[str], real: Dict[str, Set[str]]
) -> None:
    chosen = quick.select_changed(["tests/unit/concerns/hugepages/hugepages_machine.py"], sources, real)
    for name in ("test_hugepages", "test_hugepages_absent", "test_hugepages_refusals"):
        assert f"tests/unit/concerns/hugepages/{name}.py" in chosen.tests
    assert "hugepages" in chosen.contracts


@pytest.mark.once
def test_the_contract_of_one_concern_brings_no_test_of_another() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "--concern", "mps", "tests/unit/contract"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    tests = [line for line in done.stdout.splitlines() if "::" in line]
    assert len(tests) > 20
    assert [line for line in tests if "mps" not in line.split("[")[-1].rstrip("]").split("-")] == []
