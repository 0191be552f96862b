# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``make`` does around the tests: it runs all scenarios, says why one failed, and what its machine already had."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

import pytest
from ansible_collections.gpufleet.node.tests.unit.repository import scripts

TOOLS = Path(__file__).resolve().parents[3] / "tools"


@pytest.fixture
def tools() -> Iterator[Any]:
    with scripts.tools("engine", "machine", "make", "runner", "scenarios", "why") as found:
        yield found


# --- why a scenario failed --------------------------------------------------------------------------------------------

RESCUED = 'fatal: [trixie]: FAILED! => {"changed": false, "msg": "Cannot understand the file. Correct it."}'
SHELL = (
    'fatal: [sid]: FAILED! => {"changed": true, "cmd": "systemctl restart docker.service", "rc": 1, '
    '"msg": "non-zero return code", "stderr": "first\\nJob for docker.service failed.", "stdout": ""}'
)
SHELL_SAYS_LONGER = "[sid] The command exited with a non-zero return code: Job for docker.service failed."
SHELL_SAYS = "[sid] non-zero return code: Job for docker.service failed."
CHANGED = [
    RESCUED,
    "ERROR    Idempotence test failed because of the following tasks:",
    "* [trixie] => gpufleet.node.numa : Apply",
]
LOST = 'fatal: [bookworm]: UNREACHABLE! => {"changed": false, "msg": "Failed to connect", "unreachable": true}'
ITEM = 'failed: [localhost] (item=sid) => {"ansible_loop_var": "item", "changed": true, "msg": "No such image"}'
TESTS = [
    "tests/converged/test_converged.py F.F",
    "FAILED molecule/default/tests/converged/test_converged.py::test_a[trixie] - assert 1 == 2",
    "FAILED molecule/default/tests/converged/test_converged.py::test_b[trixie] - OSError",
    "2 failed, 10 passed in 2.18s",
]
FINDINGS = [
    "WARNING: Location 'file:///mirror' is ignored",
    "ERROR: Found 2 pylint issue(s) which need to be resolved:",
    "ERROR: plugins/modules/a.py:72:28: ansible-bad-function: Call run_command instead of os.system",
    "ERROR: plugins/modules/b.py:1:0: unused-import: Unused import os",
    "See documentation for help: https://docs.ansible.com/",
    "FATAL: The 1 sanity test(s) listed below (out of 34) failed. See error output above for details.",
    "pylint",
]
NOISE = [
    "CRITICAL Ansible return code was 2, command was: ansible-playbook",
    "ERROR    [default > prepare] Executed: Failed",
]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([RESCUED, "ok: [trixie]", SHELL, *NOISE], SHELL_SAYS),
        ([SHELL.replace("non-zero", "The command exited with a non-zero"), *NOISE], SHELL_SAYS_LONGER),
        ([LOST, *NOISE], "[bookworm] Failed to connect"),
        ([ITEM, *NOISE], "[localhost] No such image"),
        ([RESCUED, *TESTS, *NOISE], f"{TESTS[1]} (and 1 more)"),
        (FINDINGS, f"{FINDINGS[2]} (and 1 more)"),
        ([*CHANGED, *NOISE], "[trixie] changed again: gpufleet.node.numa : Apply"),
        (["ok: [trixie]", *NOISE], None),
        ([], None),
        (['fatal: [sid]: FAILED! => {"msg": "cut in the'], '[sid] {"msg": "cut in the'),
    ],
    ids=[
        "the last task",
        "its words since core 2.20",
        "out of reach",
        "of a loop",
        "tests",
        "findings",
        "not idempotent",
        "no word of it",
        "nothing",
        "half a result",
    ],
)
def test_of_all_that_a_scenario_writes_the_summary_has_the_line_that_ended_it(
    tools: Any, lines: List[str], reason: Any
) -> None:
    assert tools.why.line_that_matters(lines) == reason


# --- all scenarios run ------------------------------------------------------------------------------------------------


class Bench:
    """Scenarios that end as they are told to, instead of molecule."""

    def __init__(
        self, tools: Any, monkeypatch: pytest.MonkeyPatch, cache: Path, *, failing: Dict[str, Exception]
    ) -> None:
        self.ran: List[str] = []
        failed_image: Future[str] = Future()
        failed_image.set_exception(tools.runner.StageFailed("exit status 100 of: mmdebstrap"))

        @contextlib.contextmanager
        def no_engine(_job: Any, *, keep: bool = False) -> Iterator[Dict[str, str]]:
            yield {}

        def images(_job: Any, _address: Dict[str, str], names: Sequence[str]) -> Dict[str, Future[str]]:
            made: Dict[str, Future[str]] = {}
            for name in names:
                made[name] = failed_image if name == "sid-engines" else Future()
                if name != "sid-engines":
                    made[name].set_result(f"tag:{name}")
            return made

        def walk(_job: Any, scenario: Any) -> None:
            self.ran.append(scenario.name)
            if scenario.name in failing:
                raise failing[scenario.name]

        monkeypatch.setattr(tools.make.engine, "engine", no_engine)
        monkeypatch.setattr(tools.make.engine, "images", images)
        monkeypatch.setattr(tools.scenarios, "start", lambda _job, _scenario: None)
        monkeypatch.setattr(tools.scenarios, "walk", walk)
        monkeypatch.setattr(tools.scenarios, "remove_machines", lambda _job, _scenario: None)
        monkeypatch.setattr(tools.scenarios.evidence, "keep", lambda *_arguments, **_options: None)
        monkeypatch.setattr(tools.scenarios, "CACHE", cache)
        monkeypatch.setattr(tools.scenarios, "ROOT", cache)
        monkeypatch.setattr(tools.make, "controller", lambda _job, _which: Path("/nonexistent"))
        monkeypatch.setattr(tools.make, "connections_of_others", lambda _job: {})
        monkeypatch.setattr(tools.make, "require_machines", lambda _job: None)


class FakeJob:
    stopping = False

    def __init__(self) -> None:
        self.environment = {"PATH": "/nonexistent"}
        self.reported: List[str] = []

    def say(self, text: str) -> None:
        pass

    def report(self, text: str) -> None:
        self.reported.append(text)


STEP = "--- step 5 of 9: verify tests/converged"


def test_a_scenario_that_fails_keeps_no_other_from_running_and_is_named_with_its_reason(
    tools: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failure = tools.runner.StageFailed("exit status 2 of: molecule", [RESCUED, STEP, SHELL])
    bench = Bench(tools, monkeypatch, tmp_path, failing={"container_toolkit": failure})
    job = FakeJob()
    with pytest.raises(tools.runner.StageFailed) as raised:
        tools.make.molecule(job)
    all_of_them = tools.make.container_scenarios()
    without_image = [
        name for name in all_of_them if name in ("container_runtime-containerd", "container_runtime-docker")
    ]
    with_image = [name for name in all_of_them if name not in without_image]
    after = with_image.index("container_toolkit") + 1
    assert bench.ran == [*with_image[:after], "container_toolkit", *with_image[after:]]
    assert str(raised.value) == f"3 of {len(all_of_them)} scenarios failed"
    reason = f"at verify tests/converged: {SHELL_SAYS}"
    assert job.reported == [
        "container_runtime-containerd: exit status 100 of: mmdebstrap",
        "container_runtime-docker: exit status 100 of: mmdebstrap",
        f"container_toolkit failed once: {reason} (kept: logs/container_toolkit/try-1/)",
        f"container_toolkit: {reason} (kept: logs/container_toolkit/try-2/)",
    ]
    kept = tmp_path / "logs" / "container_toolkit"
    for attempt in ("try-1", "try-2"):
        # Of the step that failed alone.
        assert (kept / attempt / "output.txt").read_text(encoding="utf-8") == f"{SHELL}\n"


@pytest.mark.parametrize("scenario", ["vm-trixie", "gpu_services"])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_scenario_has_a_second_try_and_what_ended_the_first_is_told(
    tools: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lost: int, scenario: str
) -> None:
    failing = {scenario: tools.runner.StageFailed("exit status 2 of: molecule", [SHELL])}
    bench = Bench(tools, monkeypatch, tmp_path, failing=failing if lost else {})
    walk_once = tools.scenarios.walk

    def walk(*arguments: Any) -> None:
        if len(bench.ran) == lost:
            failing.clear()
        walk_once(*arguments)

    monkeypatch.setattr(tools.scenarios, "walk", walk)
    monkeypatch.setattr(tools.make, "container_scenarios", lambda: [scenario])
    job = FakeJob()
    stage = tools.make.vm_test(scenario, keep=False) if scenario == "vm-trixie" else tools.make.molecule
    with pytest.raises(tools.runner.StageFailed) if lost == 2 else contextlib.nullcontext() as raised:
        stage(job)
    assert bench.ran == [scenario] * min(lost + 1, 2)
    told = [*job.reported, str(raised.value) if raised is not None else ""]
    first = f"{scenario} failed once: {SHELL_SAYS} (kept: logs/{scenario}/try-1/)"
    assert told[0] == (first if lost else "")
    assert any(SHELL_SAYS in line for line in told[1:]) == (lost == 2)


@pytest.mark.parametrize("scenario", ["vm-trixie", "gpu_services"])
def test_a_scenario_that_was_named_is_kept_and_has_no_second_try(
    tools: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scenario: str
) -> None:
    Bench(tools, monkeypatch, tmp_path, failing={})
    kept = []
    monkeypatch.setattr(tools.scenarios, "run_and_keep", lambda _job, chosen, *, again: kept.append(again))
    if scenario == "vm-trixie":
        tools.make.vm_test(scenario, keep=True)(FakeJob())
    else:
        tools.make.molecule(FakeJob(), [scenario])
    target = "vm-test" if scenario == "vm-trixie" else "molecule"
    assert kept == [f"make {target} SCENARIO={scenario}"]


def test_evidence_of_an_earlier_run_is_not_taken_for_that_of_this_one(
    tools: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Bench(tools, monkeypatch, tmp_path, failing={})
    write(tmp_path / "logs" / "drain" / "try-1" / "output.txt", "of yesterday")
    monkeypatch.setattr(tools.make, "container_scenarios", lambda: ["drain"])
    tools.make.molecule(FakeJob())
    assert not (tmp_path / "logs" / "drain").exists()


def test_the_summary_ends_with_what_failed_and_why(
    tools: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def molecule(job: Any) -> None:
        job.report(f"drain: {SHELL_SAYS}")
        # What passed after it is of no use there.
        job.note("gpu_services: 5 passed")
        raise tools.runner.StageFailed("1 of 2 scenarios failed")

    stages = [tools.runner.Stage("molecule", molecule), tools.runner.Stage("lint", lambda _job: None)]
    variables = {"TMPDIR": str(tmp_path)}
    status = tools.runner.run_stages(
        stages, side_by_side=1, environment=variables, root=tmp_path, logs=tmp_path / "logs"
    )
    assert status == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "together  failed       0.0      0.0",
        f"molecule failed: drain: {SHELL_SAYS}; 1 of 2 scenarios failed",
    ]


def test_a_scenario_that_passed_at_its_second_try_is_the_last_word_of_a_run_that_passed(
    tools: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = [tools.runner.Stage("molecule", lambda job: job.report("drain failed once: [trixie] no node"))]
    variables = {"TMPDIR": str(tmp_path)}
    status = tools.runner.run_stages(
        stages, side_by_side=1, environment=variables, root=tmp_path, logs=tmp_path / "logs"
    )
    assert status == 0
    assert capsys.readouterr().out.splitlines()[-1] == "molecule passed, but drain failed once: [trixie] no node"


def test_after_the_user_stopped_everything_no_further_scenario_begins(
    tools: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench = Bench(tools, monkeypatch, tmp_path, failing={"default": tools.runner.StageFailed("stopped")})
    monkeypatch.setattr(tools.make, "container_scenarios", lambda: ["default", "drain"])
    job = FakeJob()
    job.stopping = True
    with pytest.raises(tools.runner.StageFailed, match="stopped"):
        tools.make.molecule(job)
    assert bench.ran == ["default"]


# --- the machine ------------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A new machine: forwarding is off, and nothing runs but this."""
    for name, value in {
        "proc/sys/net/ipv4/ip_forward": "0",
        "proc/sys/net/ipv4/conf/all/forwarding": "0",
        "proc/sys/net/ipv4/conf/eth0/forwarding": "0",
        "proc/sys/net/ipv6/conf/all/forwarding": "0",
        "proc/sys/vm/nr_hugepages": "0",
        "proc/sys/fs/file-nr": "1344\t0\t9223372036854775807",
        "proc/1/comm": "init",
    }.items():
        write(tmp_path / name, value)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def test_a_new_machine_has_nothing_to_say(tools: Any, root: Path) -> None:
    found = tools.machine.look(root=root, home=root / "root")
    assert tools.machine.not_new(found, programs=["/nonexistent", "no-such-program"], cache=root / ".cache") == []


def test_what_an_engine_once_set_and_left_is_said_first(tools: Any, root: Path) -> None:
    write(root / "proc/sys/net/ipv4/ip_forward", "1")
    write(root / "proc/77/comm", "dockerd")
    write(root / "var/lib/docker/engine-id", "x")
    write(root / "root/.ansible/tmp/x", "x")
    write(root / ".cache/venvs/x", "x")
    found = tools.machine.look(root=root, home=root / "root")
    assert tools.machine.not_new(found, programs=["sh"], cache=root / ".cache") == [
        "net.ipv4.ip_forward is 1, not 0",
        "these run: dockerd",
        "these are left: /var/lib/docker, ~/.ansible",
        "installed already, so that nobody sees whether the run would do it: sh",
        ".cache/ has what an earlier run made",
    ]


def test_what_a_run_changed_on_the_machine_is_named_and_what_the_kernel_counts_is_not(tools: Any, root: Path) -> None:
    before = tools.machine.look(root=root, home=root / "root")
    write(root / "proc/sys/net/ipv4/ip_forward", "1")
    write(root / "proc/sys/net/ipv4/conf/eth0/forwarding", "1")
    write(root / "proc/sys/fs/file-nr", "9")
    write(root / "proc/78/comm", "qemu-system-x86")
    write(root / "etc/gpufleet/declared.d/x.json", "{}")
    assert tools.machine.changed(before, tools.machine.look(root=root, home=root / "root")) == [
        "net.ipv4.ip_forward was 0, and is 1",
        "qemu-system-x86 runs still, as process 78",
        "/etc/gpufleet was left",
    ]
