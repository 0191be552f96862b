# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The control program: what the real one answered, that the stand-in answers the same, and that our unit runs it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.node.standard_host import StandardHost
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, NotPermitted
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mps import control
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mps import files as mps_files
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mps.state import Values, WantedDaemon
from ansible_collections.gpufleet.node.tests.unit.concerns.mps.mps_machine import stand_in
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import Machines
from ansible_collections.gpufleet.node.tests.unit.support import AT_ONCE_SECONDS, FakeHost

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)

GPU = "GPU-11111111-2222-3333-4444-555555555555"
# Commands, and what the real control programs of the drivers 535.261.03, 550.163.01 and 555.58.02 answered, started
# with CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40 on a machine without a GPU.
RECORDED: List[Tuple[str, str]] = [
    ("get_server_list", ""),
    ("get_default_client_priority", "0"),
    ("get_default_active_thread_percentage", "40.0"),
    ("get_default_device_pinned_mem_limit 0", ""),
    ("set_default_device_pinned_mem_limit 0 10240M", ""),
    ("get_default_device_pinned_mem_limit 0", "10G"),
    ("set_default_device_pinned_mem_limit 0 1.5G", ""),
    ("get_default_device_pinned_mem_limit 0", "1M"),
    ("get_default_device_pinned_mem_limit 1", ""),
    ("set_default_active_thread_percentage 33.5", "33.5"),
    ("set_default_active_thread_percentage 0", "33.5"),
    ("set_default_active_thread_percentage 101", "33.5"),
    ("get_active_thread_percentage 4242", "Server 4242 not found"),
    ("get_device_pinned_mem_limit 4242 0", "Server 4242 not found"),
    ("get_client_list 4242", "Server 4242 not found"),
    ("bogus", 'Unknown command "bogus"'),
]
QUESTIONS = (
    "get_server_list",
    "get_default_active_thread_percentage",
    "get_default_device_pinned_mem_limit 0",
    "set_default_device_pinned_mem_limit 0 10G",
    "get_default_device_pinned_mem_limit 0",
    "get_active_thread_percentage 4242",
    "bogus",
)
# The output of 555.58.02 to these, each followed by the mark, as control.ask has them.
OUTPUT = '0\n40.0\n0\n0\n0\n10G\n0\nServer 4242 not found\n0\nUnknown command "bogus"\n0\n'


def host(tmp_path: Path, completed: Completed) -> FakeHost:
    made = FakeHost(tmp_path)
    made.commands.programs["env"] = lambda _argv: completed
    return made


def test_answers_are_told_apart_where_some_are_missing(tmp_path: Path) -> None:
    found = control.ask(host(tmp_path, Completed(0, OUTPUT, "")), "/run/x", QUESTIONS)
    assert found == ("", "40.0", "", "", "10G", "Server 4242 not found", 'Unknown command "bogus"')


def test_one_that_does_not_know_the_mark_is_read_as_well(tmp_path: Path) -> None:
    unknown = f'Unknown command "{control.MARK}"\n'
    output = f"40.0\n{unknown}4711\n4712\n{unknown}{unknown}"
    assert control.ask(host(tmp_path, Completed(0, output, "")), "/run/x", ["a", "b", "c"]) == (
        "40.0",
        "4711\n4712",
        "",
    )


@pytest.mark.parametrize(
    ("completed", "error"),
    [
        (Completed(1, "", "Cannot find MPS control daemon process\n"), None),
        # It ended in the middle.
        (Completed(0, "40.0\n", ""), None),
        (
            Completed(1, "", "Cannot authenticate or connect to MPS control daemon process\n"),
            "Cannot ask the MPS control daemon in /run/x: not running as root. Run the task with become: true.",
        ),
        (
            Completed(124, "", ""),
            "Cannot ask the MPS control daemon in /run/x: it did not respond within 10 s; it may be waiting for its "
            "clients to end. End its clients, or give nvidia-cuda-mps-control the command quit -t SECONDS, which ends "
            "them after that time.",
        ),
    ],
)
def test_a_daemon_that_does_not_answer_is_none_or_the_reason(
    tmp_path: Path, completed: Completed, error: Optional[str]
) -> None:
    made = host(tmp_path, completed)
    if error is None:
        assert control.ask(made, "/run/x", ["a"]) is None
        with pytest.raises(NotPermitted, match="no daemon listens"):
            control.tell(made, "/run/x", ["a"])
    else:
        with pytest.raises(CannotLook) as caught:
            control.ask(made, "/run/x", ["a"])
        assert str(caught.value) == error


def test_the_stand_in_answers_as_the_real_ones_did() -> None:
    daemon = stand_in.Control({stand_in.PERCENTAGE: "40", stand_in.LIMITS: f"{GPU}=10G,0=2048M"}, lambda: 4711)
    assert [(line, daemon.answer(line)) for line, _said in RECORDED] == RECORDED


def test_the_stand_in_keeps_defaults_and_servers_apart_and_a_uuid_and_a_number() -> None:
    daemon = stand_in.Control({}, lambda: 4711)
    daemon.answer(f"set_default_device_pinned_mem_limit {GPU} 10G")
    daemon.connect(5)
    daemon.answer(f"set_default_device_pinned_mem_limit {GPU} 8G")
    daemon.answer("set_default_active_thread_percentage 50")
    assert daemon.answer("get_active_thread_percentage 4711") == "100.0"
    assert daemon.answer(f"get_device_pinned_mem_limit 4711 {GPU}") == "10G"
    assert daemon.answer(f"get_default_device_pinned_mem_limit {GPU}") == "8G"
    assert daemon.answer("get_default_device_pinned_mem_limit 0") == ""
    assert daemon.answer("get_client_list 4711") == "5"


# Our unit and real processes


class Started:
    """The processes of a unit of ours, started as systemd does it, in a folder of a test."""

    def __init__(self, built: Path, folder: Path) -> None:
        self.folder = folder
        self.pipes = f"{folder}/p"
        values = Values((GPU,), "40", {GPU: 10240}, multi_user=True)
        wanted = WantedDaemon("gpufleet-mps.service", "", "gpu0", {GPU: "gpu0"}, values)
        text = mps_files.render(wanted, f"{built}/nvidia-cuda-mps-control")
        lines = list(systemd.assignments(text.replace("/run/nvidia-mps", self.pipes)))
        self.of: Dict[str, str] = dict(lines)
        environment = (value.partition("=") for key, value in lines if key == "Service.Environment")
        self.environment = {**os.environ, **{name: value for name, _equals, value in environment}}
        self.daemon = subprocess.Popen(shlex.split(self.of["Service.ExecStart"]), env=self.environment)

    def run(self, key: str) -> int:
        """A command of the unit. systemd takes the quotes off as a shell does."""
        done = subprocess.run(shlex.split(self.of[key]), env=self.environment, timeout=AT_ONCE_SECONDS, check=False)
        return done.returncode

    def client(self, built: Path) -> Tuple[subprocess.Popen[str], str]:
        command = [str(built / "mps-client")]
        process = subprocess.Popen(command, env=self.environment, text=True, stdout=subprocess.PIPE)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()


@pytest.fixture
def started(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    # The folder of a test is too long for a socket.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        built = machines.built
        monkeypatch.setenv("PATH", f"{built}:{os.environ['PATH']}")
        os.mkdir(f"{folder}/p")
        one = Started(built, Path(folder))
        try:
            yield one
        finally:
            one.daemon.kill()
            one.daemon.wait()


def asked(started: Started, *questions: str) -> Any:
    return control.ask(StandardHost(), started.pipes, questions)


def test_our_unit_starts_tells_and_stops_a_daemon(started: Started, machines: Machines) -> None:
    assert started.run("Service.ExecStartPost") == 0
    limit = f"get_default_device_pinned_mem_limit {GPU}"
    assert asked(started, "get_default_active_thread_percentage", limit, "get_server_list") == ("40.0", "10G", "")
    client, said = started.client(machines.built)
    server = said.rpartition(" ")[2]
    assert asked(started, "get_server_list", f"get_client_list {server}") == (server, str(client.pid))
    assert Path(f"/proc/{server}/cmdline").read_text().split("\0")[0] == "nvidia-cuda-mps-server"
    command = Path(f"/proc/{started.daemon.pid}/cmdline").read_text().split("\0")
    assert (command[0], "-multiuser-server" in command) == ("nvidia-cuda-mps-control", True)
    # A shell that gives "quit" waits for clients, and the daemon is gone when it returns.
    client.send_signal(signal.SIGTERM)
    assert (started.run("Service.ExecStop"), started.daemon.wait(timeout=AT_ONCE_SECONDS), client.wait()) == (0, 0, 0)
    assert asked(started, "get_server_list") is None


def test_a_daemon_that_is_told_to_quit_waits_for_its_client_and_takes_no_other(
    started: Started, machines: Machines
) -> None:
    assert started.run("Service.ExecStartPost") == 0
    client, _said = started.client(machines.built)
    stop = subprocess.Popen(
        ["sh", "-c", f"echo quit | {machines.built}/nvidia-cuda-mps-control"], env=started.environment
    )
    time.sleep(0.3)
    assert (stop.poll(), started.daemon.poll()) == (None, None)
    other, said = started.client(machines.built)
    assert (said, other.wait(timeout=AT_ONCE_SECONDS)) == ("", 1)
    client.send_signal(signal.SIGTERM)
    assert (client.wait(), stop.wait(timeout=AT_ONCE_SECONDS), started.daemon.wait(timeout=AT_ONCE_SECONDS)) == (
        0,
        0,
        0,
    )


def test_the_stop_that_is_passed_around_without_a_shell_ends_nothing(started: Started) -> None:
    assert started.run("Service.ExecStartPost") == 0
    program = started.of["Service.ExecStart"].split()[0]
    # What systemd makes of ExecStop=/bin/echo quit | /usr/bin/nvidia-cuda-mps-control.
    subprocess.run(["/bin/echo", "quit", "|", program], env=started.environment, check=True, stdout=subprocess.DEVNULL)
    assert asked(started, "get_server_list") == ("",)
