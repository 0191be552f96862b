# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated nvidia-persistenced: what it holds, what it leaves behind, whom it obeys."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import tempfile
from pathlib import Path
from typing import Iterator, List

import pynvml as nvml
import pytest
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import (
    Machine,
    Machines,
    again,
    as_client,
    gpu,
    in_another_process,
    kind,
    refused,
    wait_until,
)
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.persistenced_runs import (
    alive,
    folder_of,
    running,
    start,
)

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)

AMPERE = kind("hgx-a100-80gb-8")
MODES = "[nvmlDeviceGetPersistenceMode(one) for one in gpu]"
NOT_STARTED = "nvidia-persistenced failed to initialize. Check syslog for more details.\n"


def asked(machine: Machine, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder_of(machine) / "socket"))
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(100)


def test_it_keeps_every_gpu_persistent_until_it_is_told_to_end(machine: Machine) -> None:
    folder = folder_of(machine)
    with running(machine) as pid:
        assert alive(pid)
        assert sorted(path.name for path in folder.iterdir()) == ["nvidia-persistenced.pid", "socket"]
        assert machine.elsewhere(MODES) == [1] * 8
    assert machine.elsewhere(MODES) == [0] * 8
    assert not folder.exists()


def test_its_process_has_the_name_of_the_real_one(machine: Machine) -> None:
    with running(machine) as pid:
        # The kernel keeps 15 characters.
        assert Path(f"/proc/{pid}/comm").read_text() == "nvidia-persiste\n"


@as_client
def test_settings_stay_without_any_other_client(machine: Machine) -> None:
    with running(machine):
        nvml.nvmlDeviceSetPowerManagementLimit(gpu(), 400_000)
        again()
        assert nvml.nvmlDeviceGetPowerManagementLimit(gpu()) == 400_000
        nvml.nvmlShutdown()
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetPowerManagementLimit(gpu()) == 700_000


@as_client
def test_nvml_sets_the_mode_through_the_running_daemon(machine: Machine) -> None:
    with running(machine, "--no-persistence-mode"):
        assert nvml.nvmlDeviceGetPersistenceMode(gpu(1)) == 0
        nvml.nvmlDeviceSetPersistenceMode(gpu(1), 1)
        assert machine.elsewhere(MODES) == [0, 1, 0, 0, 0, 0, 0, 0]
    assert machine.elsewhere(MODES) == [0] * 8, "nothing was left with the driver itself"
    with running(machine):
        nvml.nvmlDeviceSetPersistenceMode(gpu(1), 0)
        assert machine.elsewhere(MODES) == [1, 0, 1, 1, 1, 1, 1, 1]
    with running(machine):
        assert machine.elsewhere(MODES) == [1] * 8, "a restart goes back to the options"


@kind("gb200-4")
@as_client
def test_a_coherent_gpu_that_it_releases_leaves_the_system_with_its_handles(machine: Machine) -> None:
    with running(machine):
        released, kept = gpu(0), gpu(1)
        nvml.nvmlDeviceSetPersistenceMode(released, 0)
        with refused(nvml.NVML_ERROR_INVALID_ARGUMENT):
            nvml.nvmlDeviceGetPersistenceMode(released)
        assert [nvml.nvmlDeviceGetPersistenceMode(one) for one in (gpu(0), kept)] == [0, 1]


@as_client
def test_the_flag_of_the_driver_is_used_where_no_daemon_runs(machine: Machine) -> None:
    nvml.nvmlDeviceSetPersistenceMode(gpu(), 1)
    with running(machine, "--no-persistence-mode"):
        assert machine.elsewhere(MODES) == [1] + [0] * 7
    assert machine.elsewhere(MODES) == [1] + [0] * 7


@AMPERE
@as_client
def test_it_is_in_the_way_of_a_reset_and_of_a_change_of_the_mig_mode(machine: Machine) -> None:
    with running(machine) as pid:
        assert nvml.nvmlDeviceSetMigMode(gpu(), 1) == nvml.NVML_ERROR_IN_USE
        assert nvml.nvmlDeviceGetMigMode(gpu()) == [0, 1]
        nvml.nvmlShutdown()
        for request in (("reset", 0), ("reload-driver",)):
            message = machine.refusal(*request)
            assert f"the persistence daemon (pid {pid})" in message
    machine.tool("reset", 0)
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]


def test_a_killed_daemon_holds_nothing_and_its_files_do_not_hinder_the_next(machine: Machine) -> None:
    with running(machine) as pid:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid))
        assert machine.elsewhere(MODES) == [0] * 8
        assert (folder_of(machine) / "socket").exists()
        assert machine.elsewhere("nvmlDeviceSetPersistenceMode(gpu[2], 1)") is None
        assert machine.elsewhere(MODES) == [0, 0, 1, 0, 0, 0, 0, 0], "nobody listens: the driver's own flag"
        with running(machine) as second:
            assert second != pid
            assert machine.elsewhere(MODES) == [1] * 8


def test_there_is_only_one(machine: Machine) -> None:
    with running(machine) as pid:
        second = start(machine)
        assert (second.returncode, second.stderr) == (1, NOT_STARTED)
        assert alive(pid)
        assert machine.elsewhere(MODES) == [1] * 8


def test_without_a_driver_it_does_not_start_and_leaves_nothing(machine: Machine) -> None:
    machine.tool("unload-driver")
    done = start(machine)
    assert (done.returncode, done.stderr) == (1, NOT_STARTED)
    assert not folder_of(machine).exists()


@kind("l40s-1")
def test_a_gpu_that_appears_later_is_unknown_to_it(machine: Machine) -> None:
    with running(machine):
        machine.tool("create", "a30-4", "--force")
        address = machine.elsewhere("nvmlDeviceGetPciInfo(gpu[0]).busId")
        known = asked(machine, f"set {address} 1\n".encode())
        assert known == b"error 6\n"


WRONG_USE = [
    (["--user", "nobody-of-this-name"], 1, "ERROR: Failed to find user ID of user 'nobody-of-this-name': "),
    (["--group=no-such-group"], 1, "ERROR: Failed to find group ID of group 'no-such-group': "),
    (["--persistance-mode"], 0, "ERROR: Invalid commandline, please run `nvidia-persistenced --help` "),
    (["something"], 0, "ERROR: Invalid commandline, please run `nvidia-persistenced --help` "),
]


@pytest.mark.parametrize(("options", "code", "message"), WRONG_USE)
def test_wrong_use_starts_nothing(machine: Machine, options: List[str], code: int, message: str) -> None:
    done = start(machine, *options)
    assert done.returncode == code
    assert done.stderr.startswith(message)
    assert not folder_of(machine).exists()


def test_it_takes_every_option_of_the_real_program(machine: Machine) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    modes = ["--persistence-mode", "--uvm-persistence-mode"]
    with running(machine, *modes, "--verbose", "--nvidia-cfg-path=/usr/lib", f"--user={user}"):
        assert machine.elsewhere(MODES) == [1] * 8
    with running(machine, "-V", "-u", user, "--no-persistence-mode", "--no-uvm-persistence-mode"):
        assert machine.elsewhere(MODES) == [0] * 8
    for option, beginning in (
        ("--version", "nvidia-persistenced: version "),
        ("--help", "usage: "),
    ):
        done = start(machine, option)
        assert (done.returncode, done.stdout.startswith(beginning)) == (0, True)


def test_a_request_that_makes_no_sense_changes_nothing(machine: Machine) -> None:
    address = machine.elsewhere("nvmlDeviceGetPciInfo(gpu[0]).busId")
    with running(machine):
        for request, reply in (
            (b"", b"error 2\n"),
            (b"\n", b"error 2\n"),
            (b"set\n", b"error 2\n"),
            (f"set {address} 2\n".encode(), b"error 2\n"),
            (f"get {address} 0\n".encode(), b"error 2\n"),
            (f"set {address} 0 0\n".encode(), b"error 2\n"),
            (b"\xff\xfe" * 100, b"error 2\n"),
            (b"set 0000:ff:1f.0 0\n", b"error 6\n"),
            (f"set {address} 1\n".encode(), b"ok\n"),
        ):
            assert asked(machine, request) == reply, request
        with socket.socket(socket.AF_UNIX) as silent:
            silent.connect(str(folder_of(machine) / "socket"))
        assert machine.elsewhere(MODES) == [1] * 8
        assert asked(machine, f"set {address} 0\n".encode()) == b"ok\n"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user may enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_it_drops_its_privileges_and_obeys_only_root(machines: Machines, public: Path) -> None:
    machine = machines.copy(public / "machine", "hgx-h100-80gb-8")
    nobody = pwd.getpwnam("nobody")
    with running(machine, "--user", "nobody", "--no-persistence-mode") as pid:
        owner = folder_of(machine).stat()
        assert (owner.st_uid, owner.st_gid) == (nobody.pw_uid, nobody.pw_gid)
        assert os.stat(f"/proc/{pid}").st_uid == nobody.pw_uid
        assert machine.elsewhere("nvmlDeviceSetPersistenceMode(gpu[0], 1)") is None
        assert machine.elsewhere(MODES) == [1] + [0] * 7
        address = machine.elsewhere("nvmlDeviceGetPciInfo(gpu[0]).busId")

        def work() -> None:
            os.setuid(nobody.pw_uid)
            assert asked(machine, f"set {address} 0\n".encode()) == b"error 4\n"

        in_another_process(work)
    assert machine.elsewhere(MODES) == [0] * 8


@as_client
def test_an_error_of_the_daemon_is_the_error_of_nvml(machine: Machine) -> None:
    address = nvml.nvmlDeviceGetPciInfo(gpu()).busId
    folder_of(machine).mkdir()
    child = os.fork()
    if child == 0:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder_of(machine) / "socket"))
            listener.listen()
            (folder_of(machine) / "listening").touch()
            connection = listener.accept()[0]
            request = connection.makefile().readline()
            connection.sendall(b"error 19\n" if request == f"set {address} 1\n" else b"error 2\n")
            connection.close()
        os._exit(0)
    wait_until((folder_of(machine) / "listening").exists)
    with refused(nvml.NVML_ERROR_IN_USE):
        nvml.nvmlDeviceSetPersistenceMode(gpu(), 1)
    os.waitpid(child, 0)
    assert nvml.nvmlDeviceGetPersistenceMode(gpu()) == 0
