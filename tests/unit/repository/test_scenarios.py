# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A scenario that failed: what is kept of it, and how it continues on its machines."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tarfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

import pytest
from ansible_collections.gpufleet.node.tests.unit.repository import scripts

TOOLS = Path(__file__).resolve().parents[3] / "tools"


@pytest.fixture
def tools() -> Iterator[Any]:
    with scripts.tools("engine", "evidence", "make", "progress", "runner", "scenarios") as found:
        yield found


# --- the steps --------------------------------------------------------------------------------------------------------


def test_each_playbook_of_an_action_is_a_step_of_its_own(tools: Any) -> None:
    sequence = ["create", "verify tests/converged", "side_effect looks.yml effective.yml", "side_effect"]
    assert tools.progress.steps_of(sequence) == [
        "create",
        "verify tests/converged",
        "side_effect looks.yml",
        "side_effect effective.yml",
        "side_effect",
    ]


def test_a_step_that_begins_again_finds_the_record_of_changes_as_its_first_try_found_it(
    tools: Any, tmp_path: Path
) -> None:
    file, runs = tmp_path / "progress.json", tmp_path / "runs.jsonl"
    first = tools.progress.Progress.read(file, runs=runs)
    first.begin("check", number=1, of=2)
    runs.write_text("check\n", encoding="utf-8")
    first.end("check")
    first.begin("converge", number=2, of=2)
    runs.write_text("check\nhalf a converge\n", encoding="utf-8")

    second = tools.progress.Progress.read(file, runs=runs)
    assert second.done == ["check"]
    second.begin("converge", number=2, of=2)
    assert runs.read_text(encoding="utf-8") == "check\n"


# --- the machines -----------------------------------------------------------------------------------------------------

MOLECULE_YML = """---
platforms:
  # With another kernel.
  - name: bookworm
    image: ${IMAGE}
    run_options:
      - --cap-add=NET_ADMIN
  - name: trixie
prerun: false
scenario:
  name: default
"""


class Bench:
    """The scenario ``default``, whose machines are names in a set, and whose steps fail as told."""

    def __init__(self, tools: Any, monkeypatch: pytest.MonkeyPatch, folder: Path, *, scenario: str = "default") -> None:
        self.tools = tools
        self.running: List[str] = []
        self.steps: List[str] = []
        self.failing: Optional[str] = None
        self.commands: List[Sequence[str]] = []
        self.notes: List[str] = []
        self.kept: List[str] = []
        self.definition = folder / "molecule" / scenario / "molecule.yml"
        self.definition.parent.mkdir(parents=True)
        self.definition.write_text(MOLECULE_YML, encoding="utf-8")
        for name, path in {"ROOT": ".", "CACHE": "cache", "MOLECULE": "molecule", "STATES": "cache/molecule"}.items():
            monkeypatch.setattr(tools.scenarios, name, folder / path)
        self.connections = folder / "home" / ".ansible" / "cp"
        self.connections.mkdir(parents=True)
        monkeypatch.setattr(tools.scenarios.needs, "HOME", folder / "home")
        monkeypatch.setattr(tools.scenarios.needs, "require_programs", lambda _job, _names: None)
        monkeypatch.setattr(tools.scenarios.evidence, "keep", self.keep)
        self.scenario = tools.scenarios.Scenario(scenario, folder, {"DOCKER_HOST": "unix:///engine"})

    stopping = False
    environment: Mapping[str, str] = {"PATH": "/nonexistent"}

    def say(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def keep(self, _folder: Path, *, sources: Sequence[Any], environment: Mapping[str, str]) -> None:
        assert environment["DOCKER_HOST"] == "unix:///engine"
        # Before anything is destroyed.
        self.kept = [source.name for source in sources if self.running]

    def run(self, command: Sequence[str], **_options: Any) -> List[str]:
        """What the machines and molecule do with these commands."""
        words = [str(word) for word in command]
        self.commands.append(words)
        if words[:2] == ["docker", "rm"]:
            self.running = [name for name in self.running if name != words[-1]]
        elif words[:2] == ["docker", "ps"]:
            return [name for name in self.running if words[-1] == f"--filter=name=^{name}$"]
        elif words[1].endswith("bed.py"):
            if words[2] == "down":
                self.running = []
            return (
                ["molecule-bookworm: bookworm", "  bookworm: on, PID 7", "  trixie: on, PID 8"] if self.running else []
            )
        elif words[1].endswith("walk.py"):
            return self.walk(Path(words[-1]))
        return []

    def walk(self, file: Path) -> List[str]:
        progress = self.tools.progress.Progress.read(file, runs=file.with_name("runs.jsonl"))
        for step in ["create", "converge", "verify", "destroy"][len(progress.done) :]:
            self.steps.append(step)
            if step == self.failing:
                raise self.tools.runner.StageFailed("exit status 1", [f"--- step 2 of 4: {step}", "FAILED t.py::test"])
            if step == "create":
                self.running = [machine.container for machine in self.scenario.machines]
            progress.end(step)
        return ["==== 3 passed in 2.18s ===="]

    def make(self) -> Optional[str]:
        """Run it by name. Returns why it failed."""
        self.steps = []
        try:
            self.tools.scenarios.run_and_keep(self, self.scenario, again="make molecule SCENARIO=default")
        except self.tools.runner.StageFailed as failure:
            return str(failure)
        return None


@pytest.fixture
def bench(tools: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    return Bench(tools, monkeypatch, tmp_path)


def test_a_scenario_that_was_named_keeps_its_machines_and_continues_at_the_step_that_failed(bench: Bench) -> None:
    bench.failing = "verify"
    assert bench.make() == "at verify: FAILED t.py::test (kept: cache/logs/default/try-1/)"
    assert bench.running == ["gpufleet-default-bookworm", "gpufleet-default-trixie"]
    assert bench.kept == ["bookworm", "trixie"]
    told = "\n".join(bench.notes)
    assert "docker --host unix:///engine exec --interactive --tty gpufleet-default-trixie bash" in told
    assert "To continue at the step that failed: make molecule SCENARIO=default" in told

    assert bench.make() is not None
    assert bench.steps == ["verify"]
    bench.failing = None
    assert bench.make() is None
    assert bench.steps == ["verify", "destroy"]
    assert bench.running == []


def test_after_a_failure_nothing_of_a_scenario_runs_where_all_are_run(bench: Bench) -> None:
    bench.failing = "converge"
    with pytest.raises(bench.tools.runner.StageFailed):
        bench.tools.scenarios.run_once(bench, bench.scenario, attempt=1)
    assert bench.kept == ["bookworm", "trixie"]
    assert bench.running == []


@pytest.mark.parametrize("lost", ["a machine", "molecule.yml", "all of it", "before there was a machine"])
def test_a_scenario_begins_again_where_it_cannot_continue(bench: Bench, lost: str) -> None:
    bench.failing = "create" if lost == "before there was a machine" else "verify"
    assert bench.make() is not None
    if lost == "a machine":
        bench.running.pop()
    elif lost == "molecule.yml":
        bench.definition.write_text(f"{MOLECULE_YML}# changed\n", encoding="utf-8")
    elif lost == "all of it":
        bench.tools.scenarios.remove_machines(bench, bench.scenario)
    bench.failing = None
    assert bench.make() is None
    assert bench.steps == ["create", "converge", "verify", "destroy"]


def test_a_machine_is_not_reached_by_what_connected_to_its_namesake_of_another_scenario(bench: Bench) -> None:
    for name in ("bookworm-22-root", "trixie-22-root", "127.0.0.1-20022-root"):
        (bench.connections / name).touch()
    bench.failing = "verify"
    for _run in ("the first", "the one that continues"):
        assert bench.make() is not None
        assert [path.name for path in bench.connections.iterdir()] == ["127.0.0.1-20022-root"]
        (bench.connections / "trixie-22-root").touch()


def test_a_run_that_the_user_stops_keeps_nothing(bench: Bench) -> None:
    bench.failing = "verify"
    bench.stopping = True
    assert bench.make() == "exit status 1"
    assert bench.running == []


def test_a_virtual_machine_outlives_the_run_that_failed_and_not_the_next_one(
    tools: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench = Bench(tools, monkeypatch, tmp_path, scenario="vm-x")

    def kept() -> List[Sequence[str]]:
        commands = [command[2:] for command in bench.commands if command[2:3] == ["keep"]]
        bench.commands = []
        return commands

    bench.failing = "verify"
    assert bench.make() is not None
    assert kept() == [["keep", "--name=molecule-bookworm"], ["keep", "--name=molecule-trixie"]]
    assert any("bed.py ssh --name molecule-trixie trixie" in note for note in bench.notes)
    assert bench.make() is not None
    assert kept()[0] == ["keep", "--name=molecule-bookworm", f"--owner-pid={os.getpid()}"]


def test_the_machines_are_those_of_molecule_yml(tools: Any) -> None:
    found = {name: [machine.name for machine in tools.scenarios.machines_of(name)] for name in ("default", "vm-trixie")}
    assert found == {"default": ["bookworm", "trixie"], "vm-trixie": ["trixie"]}
    assert len(tools.scenarios.machines_of("container_runtime-containerd")) == 3


# --- the engine -------------------------------------------------------------------------------------------------------

DOCKERD = """#!{python}
import signal, sys, time
pid_file = sys.argv[sys.argv.index("--pidfile") + 1]
open(pid_file, "w").write(str(__import__("os").getpid()))
def end(*_):
    __import__("os").unlink(pid_file)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
time.sleep(60)
"""
DOCKER = """#!/bin/sh
case $1 in
  version) test -e {cache}/docker/run/docker.pid ;;
  ps) cat {cache}/containers ;;
  rm) : > {cache}/containers ;;
esac
"""


@pytest.fixture
def engine(tools: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    programs, cache = tmp_path / "bin", tmp_path / "c"
    (cache / "logs").mkdir(parents=True)
    programs.mkdir()
    (cache / "containers").touch()
    for name, text in (("dockerd", DOCKERD), ("docker", DOCKER)):
        (programs / name).write_text(text.format(python=sys.executable, cache=cache), encoding="utf-8")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tools.engine, "require_programs", lambda _job, _names: None)
    monkeypatch.setattr(tools.engine, "mount_memory", lambda _folder: None)
    monkeypatch.setattr(tools.engine, "LONGEST_SOCKET_FOLDER", 500)
    monkeypatch.setattr(tools.engine, "TRACES", (tmp_path / "trace",))
    monkeypatch.setattr(tools.engine, "LOG", cache / "logs" / "dockerd.log")
    data = cache / "docker"
    for name, path in {"DATA": data, "PID_FILE": data / "run" / "docker.pid", "TRACES_BEFORE": data / "before"}.items():
        monkeypatch.setattr(tools.engine, name, path)
    yield tools.engine
    tools.engine.stop_stale()


@contextlib.contextmanager
def job_of(tools: Any, folder: Path) -> Iterator[Any]:
    board = tools.runner.Board(folder / "c" / "logs")
    yield tools.runner.Job(board, "molecule", {**os.environ, "TMPDIR": str(folder / "scratch")}, folder)


def runs(pid: str) -> bool:
    """Whether it did not end; one that ended stays listed, without a command line, until its parent has seen it."""
    with contextlib.suppress(OSError):
        return Path("/proc", pid, "cmdline").read_bytes() != b""
    return False


@pytest.mark.parametrize(
    ("keep", "left", "stays"), [(True, "default-trixie", True), (True, "", False), (False, "default-trixie", False)]
)
def test_an_engine_stays_only_for_machines_that_are_kept(
    tools: Any, engine: Any, tmp_path: Path, keep: bool, left: str, stays: bool
) -> None:
    with job_of(tools, tmp_path) as job:
        with engine.engine(job, keep=keep):
            (tmp_path / "c" / "containers").write_text(left, encoding="utf-8")
            (tmp_path / "trace").touch()
            first = (tmp_path / "c" / "docker" / "run" / "docker.pid").read_text(encoding="utf-8")
        assert runs(first) == stays
        assert (tmp_path / "trace").exists() == stays
        assert (tmp_path / "c" / "docker").exists() == stays
        if stays:
            with engine.engine(job, keep=True):
                assert (tmp_path / "c" / "docker" / "run" / "docker.pid").read_text(encoding="utf-8") == first
            with engine.engine(job):
                assert not runs(first)
            assert not (tmp_path / "trace").exists()


# --- the images -------------------------------------------------------------------------------------------------------


class Mirror:
    """A job whose mmdebstrap notes what it was asked for, and writes an archive."""

    def __init__(self) -> None:
        self.built: Dict[str, List[str]] = {}

    def say(self, text: str) -> None:
        pass

    @contextlib.contextmanager
    def locked(self, _path: Path, *, what: str) -> Iterator[None]:
        yield

    def run(self, command: Sequence[str], **_options: Any) -> List[str]:
        archive = Path(command[-2])
        archive.write_bytes(b"")
        self.built[archive.name.rpartition("-")[0]] = list(command)
        return []


def test_the_packages_that_all_images_of_a_suite_have_are_installed_once(
    tools: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tools.engine, "IMAGES", tmp_path)
    monkeypatch.setattr(tools.engine, "require_programs", lambda _job, _names: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    mirror = Mirror()
    made = {
        name: tools.engine._archive(mirror, name) for name in ("sid-engines", "sid", "trixie-slurm", "trixie-network")
    }
    assert list(mirror.built) == ["sid", "sid-engines", "trixie", "trixie-slurm", "trixie-network"]
    assert all(path.exists() for path in made.values())
    for name, command in mirror.built.items():
        hooks = [word for word in command if "-hook=" in word]
        installs = [word for word in command if "openssh-server" in word]
        assert len(installs) == 1
        if "-" in name:
            base = next(tmp_path.glob(f"{name.partition('-')[0]}-{'[0-9a-f]' * 12}.tar"))
            assert "--variant=custom" in command
            assert f"--file={base}" in hooks[0]
            assert installs[0].startswith('--customize-hook=chroot "$1" apt-get install')
        # What dpkg unpacked before it knew is removed after all packages are there, and the machine is made last.
        assert hooks[-2].startswith('--customize-hook=rm -rf "$1"/usr/share/doc/* ')
        assert ('"$1"/usr/lib/udev/hwdb.d/*' in hooks[-2]) == name.endswith("-engines")
        assert "mask ssh.service" in hooks[-1]


# --- the evidence -----------------------------------------------------------------------------------------------------


def archive_of(files: Dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_what_a_machine_answers_lies_in_a_folder_of_its_own_and_nowhere_else(tools: Any, tmp_path: Path) -> None:
    changed = archive_of({"files/etc/docker/daemon.json": b"{}", "../outside": b"x", "/absolute": b"x"})
    (tmp_path / "answer.tar").write_bytes(archive_of({"./journal.txt": b"started", "./files.tar": changed}))
    (tmp_path / "console.log").write_text("Kernel panic", encoding="utf-8")
    source = tools.evidence.Source(
        "trixie",
        ["cat", str(tmp_path / "answer.tar")],
        beside=[tmp_path / "console.log", tmp_path / "missing.log"],
        commands=[("container.txt", ["echo", "Welcome"])],
    )
    tools.evidence.keep(tmp_path / "kept", sources=[source], environment=dict(os.environ))
    folder = tmp_path / "kept" / "trixie"
    found = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert found == {
        "journal.txt": "started",
        "files/etc/docker/daemon.json": "{}",
        "console.log": "Kernel panic",
        "container.txt": "Welcome\n",
    }
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "kept" / "outside").exists()


@pytest.mark.parametrize(
    ("shell", "said"),
    [
        (["sh", "-c", "echo 'No such container' >&2; exit 1"], "exit status 1, empty file)\nNo such container"),
        (["/nonexistent"], "exit status 127"),
        (["sleep", "60"], "exit status 124"),
    ],
)
def test_a_machine_that_does_not_answer_is_named_and_the_next_one_is_asked(
    tools: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shell: List[str], said: str
) -> None:
    monkeypatch.setattr(tools.evidence, "TIMEOUT_SECONDS", 0.5)
    (tmp_path / "answer.tar").write_bytes(archive_of({"./files.tar": archive_of({})}))
    sources = [tools.evidence.Source("sid", shell), tools.evidence.Source("b", ["cat", str(tmp_path / "answer.tar")])]
    tools.evidence.keep(tmp_path, sources=sources, environment=dict(os.environ))
    assert said in (tmp_path / "sid" / "incomplete.txt").read_text(encoding="utf-8")
    assert list((tmp_path / "b").iterdir()) == []


def test_a_shell_of_a_machine_collects_the_files_that_are_newer_than_its_name(tools: Any, tmp_path: Path) -> None:
    """The script itself, on this machine with other folders."""
    os.utime(tmp_path, (1, 1))
    machine = tmp_path / "machine"
    for name, age in (("etc/hostname", 100), ("etc/old", 200), ("etc/new.conf", 50), ("var/log/x.log", 40)):
        (machine / name).parent.mkdir(parents=True, exist_ok=True)
        (machine / name).write_text(name, encoding="utf-8")
        os.utime(machine / name, (2_000_000_000 - age, 2_000_000_000 - age))
    script = tools.evidence.COLLECT
    for folder in ("etc", "usr/local", "var/log", "var/lib", "run/gpufleet", "run/systemd", "run/evidence"):
        script = script.replace(f" /{folder}", f" {machine}/{folder}").replace(f"'/{folder}", f"'{machine}/{folder}")
    (machine / "run").mkdir()
    tools.evidence.COLLECT = script
    tools.evidence.keep(tmp_path, sources=[tools.evidence.Source("here", ["sh"])], environment=dict(os.environ))
    files = tmp_path / "here" / "files" / machine.relative_to("/")
    found = sorted(str(path.relative_to(files)) for path in files.rglob("*") if path.is_file())
    assert found == ["etc/new.conf", "var/log/x.log"]
    # Whatever of the programs there is here, each has a file for what it said.
    assert {"journal.txt", "units.txt", "processes.txt"} <= {path.name for path in (tmp_path / "here").iterdir()}
    assert list((machine / "run").iterdir()) == []
