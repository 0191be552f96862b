# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which each concern of the registry keeps what all concerns have to keep.

It is described beside the tests of the concern, in ``tests/unit/concerns/<name>/<name>_contract.py``, by a function
``contract_node(make: Make) -> Node``. A concern that is added adds this file, and changes nothing here.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core import value
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import AnyConcern, Outcome, refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed, Nvml
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node
from ansible_collections.gpufleet.node.plugins.module_utils._node.order import RegisteredConcern
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.tests.unit.foresight import only_reads
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import DEADLINE_SECONDS, GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build, snapshot

CONCERNS = tuple(entry.name for entry in REGISTRY)
PRESENT, OTHER, ABSENT = "present", "other", "absent"
FUNCTION = "contract_node"
HOME = Path(__file__).resolve().parents[1] / "concerns"


def contract_module(concern: str) -> str:
    """The full name of the module that describes a concern."""
    return f"ansible_collections.gpufleet.node.tests.unit.concerns.{concern}.{concern}_contract"


# A description may bring fixtures, or name the plugins that do.
pytest_plugins = (
    "ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",
    *(contract_module(name) for name in CONCERNS if (HOME / name / f"{name}_contract.py").exists()),
)

Found = Tuple[Mapping[str, Tuple[str, ...]], Any]


@dataclass
class Node:
    """One machine with what is declared for one concern of it, and something else that may be declared.

    ``absent_options`` are what ``state: absent`` takes besides. ``state`` is what of the machine lies outside of its
    tree, and ``set_state`` brings back what ``save_state`` saved, which is None where nobody could. ``connect_to`` is
    what a run on a host begins with. ``lasting`` is a machine of which there is one in a test. ``left`` is what stays
    in /run after ``state: absent``, with the reason. ``refused_until_boot`` is the reason why what the kernel refused
    to give back is not tried again before the next boot.
    """

    concern: AnyConcern
    host: FakeHost
    declaration: Mapping[str, Any]
    other: Mapping[str, Any]
    absent_options: Mapping[str, Any] = field(default_factory=dict)
    state: Callable[[], Any] = lambda: None
    save_state: Optional[Callable[[], Any]] = lambda: None
    set_state: Callable[[Any], None] = lambda state: None
    connect_to: Callable[[FakeHost], None] = lambda host: None
    lasting: bool = False
    left: Mapping[str, str] = field(default_factory=dict)
    refused_until_boot: str = ""
    _arrived: Dict[Tuple[str, ...], Found] = field(default_factory=dict)
    _given_back: Dict[bytes, Found] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.concern.name

    def params(self, declaration: Mapping[str, Any]) -> Dict[str, Any]:
        validated = ArgumentSpecValidator({**SHARED_OPTIONS, **self.concern.options}).validate(dict(declaration))
        assert validated.error_messages == []
        found: Dict[str, Any] = validated.validated_parameters
        return found

    def declared(self, verb: str) -> Dict[str, Any]:
        """The parameters of a run of this kind."""
        if verb == ABSENT:
            return self.params({**self.absent_options, "state": "absent"})
        return self.params(self.declaration if verb == PRESENT else self.other)

    def attempt(self, verb: str, *, check_mode: bool = False) -> Outcome:
        """One run of the module. Raises ``GpuFleetError`` before anything changed; else its error is in the outcome."""
        return self._converge(self.declared(verb), check_mode=check_mode)

    def outcome(self, verb: str) -> Outcome:
        """The same with whatever went wrong in the outcome."""
        try:
            return self.attempt(verb)
        except GpuFleetError as error:
            return refused(error)

    def check(self, verb: str) -> Outcome:
        """The same in check mode; its error is raised."""
        return _or_raise(self.attempt(verb, check_mode=True))

    def run(self, declaration: Mapping[str, Any], **more: Any) -> Outcome:
        """One run of the module. Raises ``GpuFleetError``, also what went wrong in the middle of it."""
        return _or_raise(self._converge(self.params({**declaration, **more})))

    def converge(self, verb: str) -> Outcome:
        """The same for a run of this kind."""
        return _or_raise(self.attempt(verb))

    def present(self) -> Outcome:
        return self.converge(PRESENT)

    def absent(self) -> Outcome:
        return self.converge(ABSENT)

    def failing(self, verb: str, at: int, error: int) -> Outcome:
        """A run whose side effect of this number fails with this error of the system."""
        self.effects.clear()
        self.host.files.fail_at, self.host.files.fail_error = at, error
        outcome = self.outcome(verb)
        self.host.files.fail_at = None
        return outcome

    def look(self, verb: str) -> Dict[str, Any]:
        """What ``node_state`` says of the concern."""
        entry: RegisteredConcern = next(entry for entry in REGISTRY if entry.name == self.name)
        self.connect_to(self.host)
        try:
            answer = assess_node(
                {self.name: {}},
                self.host,
                validate=lambda _concern, _declaration: self.declared(verb),
                full=True,
                registry=[value.replace(entry, load=lambda: self.concern)],
            )
        finally:
            self.host.nvml.close()
        found: Dict[str, Any] = answer["concerns"][self.name]
        return found

    def _converge(self, params: Mapping[str, Any], *, check_mode: bool = False) -> Outcome:
        self.connect_to(self.host)
        try:
            return converge(self.concern, params, self.host, check_mode=check_mode, diff=True)
        finally:
            self.host.nvml.close()

    def found(self, leave_out: Tuple[str, ...] = ("run",)) -> Found:
        """All of the machine that a run may change, but what the next boot clears."""
        return snapshot(Path(self.host.files.root), leave_out=leave_out), self.state()

    def everything(self) -> Found:
        """The same with what the next boot clears."""
        return self.found(leave_out=())

    def differs_from(self, earlier: Found) -> List[Tuple[str, Any, Any]]:
        """What is not as ``found`` had it earlier."""
        tree, state = self.found()
        return [*difference(tree, earlier[0]), *([] if state == earlier[1] else [("state", earlier[1], state)])]

    def save(self) -> Found:
        """The whole machine, for ``back_to``."""
        assert self.save_state is not None
        return snapshot(Path(self.host.files.root), leave_out=()), self.save_state()

    def back_to(self, saved: Found) -> None:
        """Make the machine what it was when it was saved."""
        tree, state = saved
        root = Path(self.host.files.root)
        changed = difference(snapshot(root, leave_out=()), tree)
        for path, _then, now in reversed(changed):
            if now is not None:
                place = root / path
                place.rmdir() if now[0] == "folder" else place.unlink()
        for path, then, _now in changed:
            place = root / path
            if then is None:
                continue
            if then[0] == "folder":
                place.mkdir()
            elif then[0] == "link":
                place.symlink_to(then[1])
            else:
                place.write_bytes(then[2].encode("latin-1"))
                place.chmod(int(then[1], 8) & 0o7777)
        self.set_state(state)

    def arrive(self, *verbs: str) -> None:
        """These runs one after the other, on a machine without anything of ours.

        What came of them the first time is put in its place the next times.
        """
        if verbs in self._arrived:
            self.back_to(self._arrived[verbs])
            return
        for verb in verbs:
            self.converge(verb)
        if verbs and self.save_state is not None:
            self._arrived[verbs] = self.save()

    def left_by_absent(self, untouched: Found) -> List[Tuple[str, Any, Any]]:
        """Give all back, and what is then not as it was before us.

        A machine that is in all what an earlier one was, of which nothing was left, is put where that one was after
        it. Of simulated GPUs none is: their driver counts its calls.
        """
        if self.save_state is None or self.lasting:
            self.absent()
            return self.differs_from(untouched)
        tree, state = self.save()
        key = hashlib.blake2b(repr((sorted(tree.items()), state)).encode()).digest()
        if key in self._given_back:
            self.back_to(self._given_back[key])
            return []
        self.absent()
        left = self.differs_from(untouched)
        if not left:
            self._given_back[key] = self.save()
        return left

    def again(self) -> Node:
        """Another run on the same machine, with its own connection to the driver."""
        return replace(self, host=copy.copy(self.host))

    @property
    def effects(self) -> List[Tuple[str, str, str]]:
        """The side effects since the log was cleared, in order."""
        return self.host.files.log


class CountedPrograms:
    """The programs of a machine, each a side effect of its own; the one that fails is the one that ``fail_at`` hits."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._programs = dict(node.host.commands.programs)
        for name in self._programs:
            node.host.commands.programs[name] = self._counted(name)

    def _counted(self, name: str) -> Callable[[Sequence[str]], Completed]:
        def run(argv: Sequence[str]) -> Completed:
            if not only_reads(argv):
                try:
                    self._node.host.files.effect("run", argv[0], " ".join(argv))
                except OSError as error:
                    return Completed(1, "", f"{error.strerror}\n")
            return self._programs[name](argv)

        return run


class CountedDriver:
    """``protocols.Nvml`` whose questions that change something are side effects: those that ``apply`` asks."""

    def __init__(self, driver: Nvml, host: FakeHost) -> None:
        self._driver = driver
        self._host = host

    def begin(self) -> None:
        self._driver.begin()

    def ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        if "apply" in question.__module__:
            try:
                self._host.files.effect("ask", question.__name__, "")
            except OSError as error:
                raise Refused("change {}", object=question.__name__, cause=error.strerror or "") from error
        return self._driver.ask(question, *arguments)

    def close(self) -> None:
        self._driver.close()


class Make:
    """What a description makes its machine of."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
        self.monkeypatch = monkeypatch
        self._root = root
        self._request = request
        self._made = 0

    def folder(self) -> Path:
        """A new folder."""
        self._made += 1
        root = self._root / str(self._made)
        root.mkdir()
        return root

    def machine(self, files: Mapping[str, str]) -> FakeHost:
        """A new machine of these files (absolute path to text), and of the folders that every machine has."""
        root = self.folder()
        for name in ("etc", "run", "var/lib"):
            (root / name).mkdir(parents=True)
        return build(root, files)

    def fixture(self, name: str) -> Any:
        return self._request.getfixturevalue(name)

    @property
    def gpu_machine(self) -> MakeMachine:
        make: MakeMachine = self.fixture("gpu_machine")
        return make


class Nodes:
    """Makes a new machine for a concern; those with GPUs are one machine, which a test leaves as it found it."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._with_gpus: Optional[Node] = None

    def __call__(self, concern: str) -> Node:
        if self._with_gpus is not None:
            return self._with_gpus
        node = described(concern)(self._make)
        assert node.name == concern
        CountedPrograms(node)
        if node.lasting:
            self._with_gpus = node
        node.effects.clear()
        return node


def described(concern: str) -> Callable[[Make], Node]:
    """The function that makes the machine of a concern."""
    module = contract_module(concern)
    try:
        function: Callable[[Make], Node] = getattr(importlib.import_module(module), FUNCTION)
    except (ModuleNotFoundError, AttributeError) as error:
        # Of a concern without tests, its package is missing.
        if isinstance(error, ModuleNotFoundError) and not f"{module}.".startswith(f"{error.name}."):
            raise
        pytest.fail(
            f"The concern {concern} has no machine to keep the contract on: write {FUNCTION}(make: Make) -> Node in"
            f" tests/unit/concerns/{concern}/{concern}_contract.py, which makes a machine that the concern changes,"
            " with a declaration and another one. See Node and Make in tests/unit/contract/concern_machines.py."
        )
    return function


GPU_STATE = (
    "persistence",
    "mig",
    "mig_pending",
    "instances",
    "power_limit",
    "locked_graphics_min",
    "locked_graphics_max",
    "compute_mode",
    "ecc_pending",
)


def on_gpus(
    concern: AnyConcern,
    machine: GpuMachine,
    declaration: Mapping[str, Any],
    other: Mapping[str, Any],
    left: Optional[Mapping[str, str]] = None,
) -> Node:
    """The node of a machine with simulated GPUs."""

    def state() -> Any:
        return [{name: gpu.get(name) for name in GPU_STATE} for gpu in machine.describe()["gpus"]]

    def connect(host: FakeHost) -> None:
        host.nvml = CountedDriver(machine.simulated.nvml(host.commands, deadline=DEADLINE_SECONDS), host)

    return Node(
        concern,
        machine.host,
        declaration,
        other,
        state=state,
        save_state=machine.simulated.state.read_bytes,
        set_state=lambda state: bool(machine.simulated.state.write_bytes(state)) or None,
        connect_to=connect,
        lasting=True,
        left=left or {},
    )


def difference(now: Mapping[str, Any], before: Mapping[str, Any]) -> List[Tuple[str, Any, Any]]:
    """The paths that differ, with both entries."""
    paths = sorted({*now, *before})
    return [(path, before.get(path), now.get(path)) for path in paths if now.get(path) != before.get(path)]


def concern_of(name: str) -> AnyConcern:
    return next(entry.concern for entry in REGISTRY if entry.name == name)


def failure_of(run: Callable[[], Outcome]) -> Optional[GpuFleetError]:
    """What a run failed with, None where it did not."""
    try:
        run()
    except GpuFleetError as error:
        return error
    return None


def _or_raise(outcome: Outcome) -> Outcome:
    if outcome.error is not None:
        raise outcome.error
    return outcome


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Nodes:
    (tmp_path / "nodes").mkdir()
    # What is on disk after a crash of the machine is the matter of tests/unit/machine; here it would take a fifth.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    return Nodes(Make(tmp_path / "nodes", monkeypatch, request))
