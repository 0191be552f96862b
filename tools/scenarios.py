# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs of molecule's scenarios: what a failed one leaves to look at, and how a later run continues it.

`make test` destroys the machines of every scenario, and keeps evidence of those that failed. A developer who runs one
scenario by name finds its machines running after a failure, and continues at the step that failed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence

import engine
import evidence
import needs
from needs import CACHE, ROOT
from progress import last_step, lines_of_last_step
from runner import Job, StageFailed
from why import line_that_matters

MOLECULE = ROOT / "molecule"
STATES = CACHE / "molecule"
BED = ROOT / "tests" / "vm" / "bed.py"
VM_PREFIX = "vm-"
# Files in the folder of a run.
PROGRESS = "progress.json"
DEFINITION = "definition"
# What of the output is shown as it comes.
ANSIBLE_PROGRESS = r"^(PLAY \[|fatal:|failed:|.* (passed|failed)( in |,))|^--- step |CRITICAL|Executed:"
# Which lines begin a step whose costs are listed: an action, and a play of it.
ANSIBLE_STEPS = r"^INFO +\[(?P<step>.+ > \w+)\] Executing|^PLAY \[(?P<part>.+)\] \*"


@dataclass(frozen=True)
class Scenario:
    """A scenario by its name, the environment that has molecule, and variables for molecule."""

    name: str
    venv: Path
    variables: Mapping[str, str]

    @property
    def state(self) -> Path:
        """The folder that molecule calls ephemeral."""
        return STATES / self.name

    @property
    def machines(self) -> List[Machine]:
        return machines_of(self.name)

    def environment(self, job: Job) -> Dict[str, str]:
        return {
            "PATH": f"{self.venv / 'bin'}:{job.environment['PATH']}",
            "MOLECULE_EPHEMERAL_DIRECTORY": str(self.state),
            "GPUFLEET_ROOT": str(ROOT),
            "GPUFLEET_OWNER_PID": str(os.getpid()),
            "GPUFLEET_RUNS": str(self.state / "runs.jsonl"),
            **self.variables,
        }


# --- machines ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """A machine of a scenario: a container, as molecule/shared/create.yml names it, or a node of the VM bed."""

    name: str
    scenario: str

    @property
    def virtual(self) -> bool:
        return self.scenario.startswith(VM_PREFIX)

    @property
    def container(self) -> str:
        return f"gpufleet-{self.scenario}-{self.name}"

    @property
    def bed(self) -> str:
        return f"molecule-{self.name}"

    def runs(self, job: Job, variables: Mapping[str, str]) -> bool:
        if self.virtual:
            command, up = [sys.executable, str(BED), "status", f"--name={self.bed}"], f"  {self.name}: on, "
        else:
            # The name as a pattern for the whole of it, as Docker has it.
            up = self.container
            command = ["docker", "ps", "--format={{.Names}}", f"--filter=name=^{self.container}$"]
        lines = job.run(command, environment=variables, accept=range(256), cleanup=True)
        return any(line.startswith(up) for line in lines)

    def source(self) -> evidence.Source:
        if self.virtual:
            folder = CACHE / "vm" / "run" / self.bed / self.name
            shell = [sys.executable, str(BED), "ssh", f"--name={self.bed}", self.name, "sh"]
            return evidence.Source(self.name, shell, beside=[folder / "console.log", folder / "qemu.log"])
        commands = [
            ("container.txt", ["docker", "logs", "--timestamps", self.container]),
            ("container.json", ["docker", "inspect", self.container]),
        ]
        shell = ["docker", "exec", "--interactive", self.container, "sh"]
        return evidence.Source(self.name, shell, beside=[engine.LOG], commands=commands)

    def login(self, variables: Mapping[str, str]) -> str:
        """The command that a user types to log in."""
        if self.virtual:
            return f"python3 {os.path.relpath(BED, ROOT)} ssh --name {self.bed} {self.name}"
        host = f" --host {variables['DOCKER_HOST']}" if "DOCKER_HOST" in variables else ""
        return f"docker{host} exec --interactive --tty {self.container} bash"


def machines_of(scenario: str) -> List[Machine]:
    """The machines in the scenario's molecule.yml."""
    text = (MOLECULE / scenario / "molecule.yml").read_text(encoding="utf-8")
    platforms = re.search(r"^platforms:\n((?:[ #].*\n|\n)+)", text, flags=re.MULTILINE)
    names = re.findall(r"^  - name: (\S+)$", platforms[1], flags=re.MULTILINE) if platforms else []
    return [Machine(name, scenario) for name in names]


# --- runs -------------------------------------------------------------------------------------------------------------


def run_twice(job: Job, scenario: Scenario) -> None:
    """Run a scenario, and once more if it failed, with evidence of each failure. The summary shows what ended the first
    run, whatever the second.

    On a host that is busy with all the stages, daemons lose races that they lose nowhere else, those of an emulated
    machine above all, and it takes all stages once more to see whether that was it.
    """
    _forget_evidence(scenario)
    try:
        run_once(job, scenario, attempt=1)
    except StageFailed as failure:
        if job.stopping:
            raise
        job.report(f"{scenario.name} failed once: {failure}")
    else:
        return
    run_once(job, scenario, attempt=2)


def run_once(job: Job, scenario: Scenario, *, attempt: int) -> None:
    """Run the whole sequence. The machines are destroyed whatever happens; evidence of a failure is kept."""
    try:
        start(job, scenario)
        walk(job, scenario)
    except StageFailed as failure:
        if job.stopping:
            raise
        raise keep_evidence(job, scenario, failure, attempt=attempt) from failure
    finally:
        remove_machines(job, scenario)


def run_and_keep(job: Job, scenario: Scenario, *, again: str) -> None:
    """Run the sequence, or continue it on the machines of a run that failed. Keeps the machines if it fails.

    again: the command that continues.
    """
    _forget_evidence(scenario)
    kept = False
    try:
        if can_continue(job, scenario):
            job.say(f"{scenario.name}: continuing on the kept machines; `make destroy` ends them for a fresh start")
            _set_owner(job, scenario, pid=os.getpid())
        else:
            start(job, scenario)
        walk(job, scenario)
    except StageFailed as failure:
        if job.stopping:
            raise
        kept = can_continue(job, scenario)
        evidence_kept = keep_evidence(job, scenario, failure, attempt=1)
        if kept:
            _set_owner(job, scenario, pid=None)
            for line in _how_to_continue(scenario, again=again):
                job.say(line)
                job.note(line)
        raise evidence_kept from failure
    finally:
        if not kept:
            remove_machines(job, scenario)


def start(job: Job, scenario: Scenario) -> None:
    """Make room for a run from the beginning."""
    needs.require_programs(job, ["ssh", "ssh-keygen"])
    remove_machines(job, scenario)
    shutil.rmtree(scenario.state, ignore_errors=True)
    scenario.state.mkdir(parents=True)
    (scenario.state / DEFINITION).write_text(_definition(scenario.name), encoding="utf-8")


def can_continue(job: Job, scenario: Scenario) -> bool:
    """Whether all machines of an earlier run are there, past their creation, and as molecule.yml has them."""
    try:
        definition = (scenario.state / DEFINITION).read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    if definition != _definition(scenario.name) or not (scenario.state / PROGRESS).exists():
        return False
    return all(machine.runs(job, scenario.variables) for machine in scenario.machines)


def walk(job: Job, scenario: Scenario) -> None:
    """Take the steps of the sequence that are left."""
    for machine in scenario.machines:
        # Ansible names a connection that it may share after the host, and so after a machine that another scenario has.
        for shared in (needs.HOME / ".ansible" / "cp").glob(f"{machine.name}-*"):
            shared.unlink(missing_ok=True)
    python, program = scenario.venv / "bin" / "python", ROOT / "tools" / "walk.py"
    command = [str(python), str(program), scenario.name, str(scenario.state / PROGRESS)]
    for line in job.run(command, environment=scenario.environment(job), show=ANSIBLE_PROGRESS, steps=ANSIBLE_STEPS):
        if " passed" in line and " in " in line:
            job.note(f"{scenario.name}: {line.strip('= ')}")


def remove_machines(job: Job, scenario: Scenario) -> None:
    """End what a run created, however far it came."""
    for machine in scenario.machines:
        if machine.virtual:
            command = [sys.executable, str(BED), "down", f"--name={machine.bed}"]
        else:
            command = ["docker", "rm", "--force", "--volumes", machine.container]
        job.run(command, environment=scenario.environment(job), accept=range(256), cleanup=True)


def destroy(job: Job, names: Sequence[str]) -> None:
    """End what failed runs of these scenarios kept; of all where none is named."""
    address = engine.kept_engine(job) or {}
    for name in names or sorted(path.name for path in STATES.glob("*") if (MOLECULE / path.name).is_dir()):
        scenario = Scenario(name, Path(sys.prefix), address)
        stage = name if name.startswith(VM_PREFIX) else "molecule"
        with job.locked(CACHE / "logs" / f"{stage}.lock", what=f"The stage {stage}"):
            if any(machine.runs(job, address) for machine in scenario.machines):
                job.note(f"{name}: destroyed")
            remove_machines(job, scenario)
            shutil.rmtree(scenario.state, ignore_errors=True)
    engine.stop_unused(job)


def keep_evidence(job: Job, scenario: Scenario, failure: StageFailed, *, attempt: int) -> StageFailed:
    """Keep what the machines and the output tell about a failure. Returns it with its reason and the place of those."""
    step = last_step(failure.lines)
    lines = lines_of_last_step(failure.lines)
    reason = line_that_matters(lines) or str(failure)
    folder = _evidence(scenario) / f"try-{attempt}"
    folder.mkdir(parents=True, exist_ok=True)
    job.say(f"{scenario.name}: collecting evidence in {os.path.relpath(folder, ROOT)}")
    (folder / "output.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    environment = {**job.environment, **scenario.environment(job)}
    evidence.keep(folder, sources=[machine.source() for machine in scenario.machines], environment=environment)
    place = f"{f'at {step}: ' if step else ''}{reason} (kept: {os.path.relpath(folder, ROOT)}/)"
    return StageFailed(place)


def _evidence(scenario: Scenario) -> Path:
    return CACHE / "logs" / scenario.name


def _forget_evidence(scenario: Scenario) -> None:
    shutil.rmtree(_evidence(scenario), ignore_errors=True)


def _definition(name: str) -> str:
    return hashlib.sha256((MOLECULE / name / "molecule.yml").read_bytes()).hexdigest()


def _set_owner(job: Job, scenario: Scenario, *, pid: Optional[int]) -> None:
    """Let virtual machines end with this process; with ``None`` they outlive the one with which they would end."""
    for machine in scenario.machines:
        if machine.virtual:
            owner = [] if pid is None else [f"--owner-pid={pid}"]
            job.run([sys.executable, str(BED), "keep", f"--name={machine.bed}", *owner])


def _how_to_continue(scenario: Scenario, *, again: str) -> List[str]:
    return [
        f"{scenario.name} is kept as it failed. To log in:",
        *(f"    {machine.login(scenario.variables)}" for machine in scenario.machines),
        f"To continue at the step that failed: {again}",
        f"To end it, and to begin again the next time: make destroy SCENARIO={scenario.name}",
    ]
