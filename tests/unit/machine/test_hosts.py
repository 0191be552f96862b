# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same expectations of every implementation of a host: a recorded tree, the standard library, AnsibleModule."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
import ssl
import stat
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.node import standard_host
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Host
from ansible_collections.gpufleet.node.plugins.module_utils._machine import journal, programs, unix_http
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedFiles, RecordedHost
from ansible_collections.gpufleet.node.tests.unit.support import AT_ONCE_SECONDS


@dataclass
class Machine:
    """A host and the folder its files lie in: the root of a recorded tree, or a folder of this machine."""

    host: Host
    root: Path
    recorded: bool

    def path(self, name: str) -> str:
        """What the host calls the file."""
        return f"/{name}" if self.recorded else str(self.root / name)


def module_host() -> Host:
    testing = pytest.importorskip("ansible.module_utils.testing", reason="ansible is not importable here")
    from ansible.module_utils.basic import AnsibleModule
    from ansible_collections.gpufleet.node.plugins.module_utils._node.module import ModuleHost

    with testing.patch_module_args({}):
        return ModuleHost(AnsibleModule(argument_spec={}))


HOSTS: Dict[str, Callable[[Path], Host]] = {
    "recorded": lambda root: RecordedHost(str(root)),
    "standard": lambda root: standard_host.StandardHost(),
    "module": lambda root: module_host(),
}


def machine_of(kind: str, root: Path) -> Machine:
    return Machine(host=HOSTS[kind](root), root=root, recorded=kind == "recorded")


@pytest.fixture(params=sorted(HOSTS))
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    return machine_of(request.param, tmp_path)


@pytest.fixture(params=["module", "standard"])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    """Those that work on this machine."""
    return machine_of(request.param, tmp_path)


# Reading


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 131072, 1_000_000])
def test_a_file_of_any_size_is_read_whole(machine: Machine, size: int) -> None:
    text = ("x" * 99 + "\n") * (size // 100 + 1)
    (machine.root / "big").write_text(text[:size])
    assert machine.host.files.read(machine.path("big")) == text[:size]


@pytest.mark.parametrize("path", ["/proc/self/mountinfo", "/proc/kallsyms", "/proc/interrupts", "/proc/cpuinfo"])
def test_a_list_that_the_kernel_hands_out_in_pieces_is_read_to_its_end(real: Machine, path: str) -> None:
    def lines() -> int:
        with open(path) as stream:
            return len(stream.readlines())

    # Whoever else is at work here may load a BPF program or mount something while we read.
    for _attempt in range(20):
        before, found, after = lines(), len(real.host.files.read(path).splitlines()), lines()
        if before == after:
            break
    assert before == found == after


def test_bytes_that_are_no_text_survive_reading_and_writing(machine: Machine) -> None:
    (machine.root / "a").write_bytes(b"caf\xe9\n")
    machine.host.files.replace(machine.path("b"), machine.host.files.read(machine.path("a")))
    assert (machine.root / "b").read_bytes() == b"caf\xe9\n"


def test_what_is_not_there_reads_as_none_has_no_names_and_is_not_writable(machine: Machine) -> None:
    files = machine.host.files
    (machine.root / "file").write_text("x")
    for name in ("missing", "missing/deeper", "file/deeper"):
        assert files.read_optional(machine.path(name)) is None
        assert files.names(machine.path(name)) == ()
        assert not files.exists(machine.path(name))
        assert not files.writable(machine.path(name))
    assert not files.exists(machine.path("a\0b"))
    with pytest.raises(FileNotFoundError):
        files.read(machine.path("missing"))


@pytest.mark.parametrize("name", ["a\0b", "a\0b/c", "\ud800", "\ud800/c"])
def test_what_no_file_can_be_called_is_not_there(machine: Machine, name: str) -> None:
    files, path = machine.host.files, machine.path(name)
    assert (files.read_optional(path), files.names(path), files.link(path), files.status(path)) == (None, (), "", None)
    assert [files.exists(path), files.is_folder(path), files.writable(path)] == [False] * 3
    assert (files.modified(path), files.version(path), files.checksum(path)) == (0, "", "")
    assert files.resolve(path).endswith(name)
    with pytest.raises(FileNotFoundError) as error:
        files.read(path)
    assert error.value.filename == path


def test_a_pipe_in_place_of_a_file_is_empty_and_not_waited_for(machine: Machine) -> None:
    (machine.root / "empty").touch()
    os.mkfifo(machine.root / "pipe")
    released: List[str] = []

    def release() -> None:
        """Whoever waits for a writer would wait for ever."""
        released.append("pipe")
        os.close(os.open(machine.root / "pipe", os.O_WRONLY | os.O_NONBLOCK))

    late = threading.Timer(AT_ONCE_SECONDS, release)
    late.start()
    files = machine.host.files
    assert files.read(machine.path("pipe")) == ""
    assert files.checksum(machine.path("pipe")) == files.checksum(machine.path("empty"))
    late.cancel()
    late.join()
    assert released == []


@pytest.mark.parametrize(("name", "number"), [("folder", errno.EISDIR), ("missing", errno.ENOENT)])
def test_what_cannot_be_read_is_named_as_it_was_asked_for(machine: Machine, name: str, number: int) -> None:
    (machine.root / "folder").mkdir()
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        machine.host.files.read(machine.path(name))
    assert (caught.value.errno, caught.value.filename) == (number, machine.path(name))


def test_a_read_that_fails_after_the_file_was_opened_names_it(real: Machine) -> None:
    with pytest.raises(OSError, match="Input/output error: '/proc/self/mem'"):
        real.host.files.read("/proc/self/mem")


def test_names_are_sorted_and_what_is_there_is_seen_through_links(machine: Machine) -> None:
    files = machine.host.files
    for name in ("d/b", "d/a", "d/c"):
        (machine.root / name).parent.mkdir(exist_ok=True)
        (machine.root / name).write_text(name)
    (machine.root / "link").symlink_to("d")
    assert files.names(machine.path("link")) == ("a", "b", "c")
    assert [files.is_folder(machine.path(name)) for name in ("link", "d", "d/a", "missing")] == [
        True,
        True,
        False,
        False,
    ]
    assert files.exists(machine.path("link/a"))
    assert files.writable(machine.path("link/a"))
    assert files.read(machine.path("link/a")) == "d/a"
    assert files.resolve(machine.path("link/a")) == machine.path("d/a")


@pytest.mark.parametrize("mode", [0o444, 0o644, 0o600, 0o755])
def test_the_mode_of_a_file_is_told_through_links(machine: Machine, mode: int) -> None:
    (machine.root / "file").write_text("x")
    (machine.root / "file").chmod(mode)
    (machine.root / "link").symlink_to("file")
    assert machine.host.files.mode(machine.path("file")) == machine.host.files.mode(machine.path("link")) == mode


def test_it_is_known_when_a_file_was_written_last(machine: Machine) -> None:
    (machine.root / "file").write_text("x")
    (machine.root / "link").symlink_to("file")
    os.utime(machine.root / "file", ns=(5, 1_700_000_000_123_456_789))
    assert machine.host.files.modified(machine.path("link")) == 1_700_000_000_123_456_789
    assert machine.host.files.modified(machine.path("missing/deeper")) == 0


def test_what_is_not_there_has_no_mode(machine: Machine) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        machine.host.files.mode(machine.path("missing"))
    assert caught.value.filename == machine.path("missing")


def test_a_file_has_another_version_after_it_was_written_also_by_the_same_text(machine: Machine) -> None:
    files = machine.host.files
    path = machine.path("file")
    assert files.version(path) == files.version(machine.path("missing/deeper")) == ""
    files.replace(path, "text")
    (machine.root / "link").symlink_to("file")
    first = files.version(path)
    assert files.version(path) == files.version(machine.path("link")) == first != ""
    files.replace(path, "text")
    second = files.version(path)
    assert second not in ("", first)
    # Written in place: the clock of a file system may stand still for a while.
    status = (machine.root / "file").stat()
    os.utime(machine.root / "file", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert files.version(path) != second


def test_a_link_that_leads_nowhere_does_not_exist(machine: Machine) -> None:
    (machine.root / "link").symlink_to("gone")
    assert not machine.host.files.exists(machine.path("link"))
    assert machine.host.files.read_optional(machine.path("link")) is None


def test_links_in_a_circle_raise_eloop_and_do_not_exist(machine: Machine) -> None:
    (machine.root / "a").symlink_to("b")
    (machine.root / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels") as caught:
        machine.host.files.read(machine.path("a"))
    assert caught.value.errno == errno.ELOOP
    assert not machine.host.files.exists(machine.path("a"))


# Replacing


def test_a_new_file_gets_the_mode_that_was_asked_and_its_folders(machine: Machine) -> None:
    machine.host.files.replace(machine.path("x/y/new"), "text\n", 0o600)
    assert (machine.root / "x/y/new").read_text() == "text\n"
    assert stat.S_IMODE((machine.root / "x/y/new").stat().st_mode) == 0o600
    assert os.listdir(machine.root / "x/y") == ["new"]


def test_a_file_that_has_no_room_is_named_and_stays_as_it_was(machine: Machine) -> None:
    (machine.root / "a").write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        with pytest.raises(OSError, match="File too large") as caught:
            machine.host.files.replace(machine.path("a"), "x" * 8192)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == machine.path("a")
    assert (machine.root / "a").read_text() == "old"
    assert os.listdir(machine.root) == ["a"]


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o755, 0o2750, 0o444])
def test_an_existing_file_keeps_its_mode(machine: Machine, mode: int) -> None:
    (machine.root / "a").write_text("old")
    (machine.root / "a").chmod(mode)
    machine.host.files.replace(machine.path("a"), "new", 0o640)
    assert (machine.root / "a").read_text() == "new"
    assert stat.S_IMODE((machine.root / "a").stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_existing_file_keeps_its_owner_and_group_and_setuid_bit(machine: Machine) -> None:
    (machine.root / "a").write_text("old")
    os.chown(machine.root / "a", 12345, 54321)
    (machine.root / "a").chmod(0o4750)
    machine.host.files.replace(machine.path("a"), "new")
    status = (machine.root / "a").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (12345, 54321, 0o4750)


def test_an_existing_file_keeps_its_selinux_context(real: Machine) -> None:
    target = real.root / "a"
    target.write_text("old")
    try:
        os.setxattr(target, "security.selinux", b"system_u:object_r:etc_t:s0\0")
    except OSError as error:
        pytest.skip(f"this file system keeps no SELinux context for us: {error.strerror}")
    real.host.files.replace(real.path("a"), "new")
    assert target.read_text() == "new"
    assert os.getxattr(target, "security.selinux").rstrip(b"\0") == b"system_u:object_r:etc_t:s0"


def test_a_new_file_is_labelled_as_the_policy_says_where_selinux_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = standard_host.StandardHost()
    calls: List[Tuple[str, ...]] = []
    monkeypatch.setattr(standard_host, "SELINUX", "/dev/null")
    monkeypatch.setattr(host.commands, "find", lambda name: f"/usr/sbin/{name}")
    monkeypatch.setattr(host.commands, "run", lambda argv: calls.append(tuple(argv)))
    host.files.replace(str(tmp_path / "a"), "new")
    host.files.replace(str(tmp_path / "a"), "newer")
    assert calls == [("restorecon", str(tmp_path / "a"))]


def test_a_link_stays_a_link_and_what_it_leads_to_is_replaced(machine: Machine) -> None:
    (machine.root / "etc").mkdir()
    (machine.root / "etc/real").write_text("old")
    (machine.root / "link").symlink_to("etc/real")
    (machine.root / "dangling").symlink_to("etc/later")
    machine.host.files.replace(machine.path("link"), "new")
    machine.host.files.replace(machine.path("dangling"), "made")
    assert os.readlink(machine.root / "link") == "etc/real"
    assert (machine.root / "etc/real").read_text() == "new"
    assert os.readlink(machine.root / "dangling") == "etc/later"
    assert (machine.root / "etc/later").read_text() == "made"


def test_the_file_is_on_disk_before_its_name_and_the_name_before_we_go_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.root / "a").write_text("old")
    events: List[str] = []
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def watch_fsync(descriptor: int) -> None:
        events.append("fsync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "fsync file")
        fsync(descriptor)

    def watch(original: Callable[..., None]) -> Callable[..., None]:
        def watched(*arguments: Any) -> None:
            events.append("rename")
            original(*arguments)

        return watched

    monkeypatch.setattr(os, "fsync", watch_fsync)
    monkeypatch.setattr(os, "rename", watch(rename))
    monkeypatch.setattr(os, "replace", watch(replace))
    machine.host.files.replace(machine.path("a"), "new")
    assert events == ["fsync file", "rename", "fsync folder"]


def test_a_rename_that_fails_is_an_oserror_and_leaves_the_old_file_alone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.root / "a").write_text("old")

    def busy(*arguments: Any) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(os, "rename", busy)
    monkeypatch.setattr(os, "replace", busy)
    with pytest.raises(OSError, match=r"\[Errno 16\]") as caught:
        machine.host.files.replace(machine.path("a"), "new")
    monkeypatch.undo()
    assert caught.value.errno == errno.EBUSY
    assert (machine.root / "a").read_text() == "old"
    assert os.listdir(machine.root) == ["a"]


PRIMITIVES = (
    *("open", "write", "close", "fsync", "rename", "replace", "mkdir", "unlink"),
    *("chmod", "fchmod", "chown", "fchown", "utime", "setxattr"),
)


def killed_at(number: int, action: Callable[[], None]) -> bool:
    """Run the action in a process that ends before its n-th primitive; false when it had fewer than that."""
    child = os.fork()
    if child == 0:
        count = 0

        def fatal(original: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*arguments: Any, **keywords: Any) -> Any:
                nonlocal count
                count += 1
                if count == number:
                    os._exit(9)
                return original(*arguments, **keywords)

            return counted

        try:
            for name in PRIMITIVES:
                setattr(os, name, fatal(getattr(os, name)))
            action()
            os._exit(0)
        except BaseException:
            os._exit(1)
    _child, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9)
    return code == 9


@pytest.mark.parametrize("present", [True, False])
def test_a_kill_at_any_primitive_leaves_the_old_file_or_the_new_one(machine: Machine, present: bool) -> None:
    target = machine.root / "d" / "a"
    number = 0
    seen = set()
    killed = True
    while killed:
        number += 1
        if present:
            target.parent.mkdir(exist_ok=True)
            target.write_text("old\n" * 1000)
            target.chmod(0o640)
        killed = killed_at(number, lambda: machine.host.files.replace(machine.path("d/a"), "new\n" * 1000, 0o644))
        text = target.read_text() if target.exists() else None
        seen.add(text and text[:3])
        assert text in (("old\n" * 1000 if present else None), "new\n" * 1000)
        if present:
            assert stat.S_IMODE(target.stat().st_mode) == 0o640
        if target.parent.exists():
            left = [name for name in os.listdir(target.parent) if name != "a"]
            assert all(name.endswith(".gpufleet-tmp") for name in left)
            for name in (*left, "a"):
                with contextlib.suppress(FileNotFoundError):
                    (target.parent / name).unlink()
            target.parent.rmdir()
    assert number > 6
    assert seen == {"old" if present else None, "new"}


def test_what_a_killed_run_left_is_gone_after_the_next_one(machine: Machine) -> None:
    def end_before_rename() -> None:
        os.rename = os.replace = lambda *arguments, **keywords: os._exit(9)
        machine.host.files.replace(machine.path("a"), "new", 0o600)

    killed_at(0, end_before_rename)
    assert os.listdir(machine.root) == [".a.gpufleet-tmp"]
    machine.host.files.replace(machine.path("a"), "newer", 0o600)
    assert os.listdir(machine.root) == ["a"]
    assert (machine.root / "a").read_text() == "newer"


# Tunables


def test_a_tunable_that_is_not_there_does_not_become_a_file(machine: Machine) -> None:
    with pytest.raises(FileNotFoundError):
        machine.host.files.write_attribute(machine.path("tunable"), "1")
    assert os.listdir(machine.root) == []


def test_a_tunable_gets_its_value_by_one_write_that_truncates_nothing(
    real: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (real.root / "tunable").write_text("12345\n")
    writes: List[bytes] = []
    write = os.write

    def watched(descriptor: int, data: bytes) -> int:
        writes.append(data)
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", watched)
    real.host.files.write_attribute(real.path("tunable"), "99")
    monkeypatch.undo()
    assert writes == [b"99"]
    assert (real.root / "tunable").read_text() == "99345\n"


def test_what_the_kernel_answers_to_a_value_is_raised(real: Machine) -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        real.host.files.write_attribute("/dev/full", "1")
    assert caught.value.errno == errno.ENOSPC


# Removing


def test_removing_takes_the_link_and_leaves_what_it_leads_to(machine: Machine) -> None:
    (machine.root / "a").write_text("x")
    (machine.root / "link").symlink_to("a")
    machine.host.files.remove(machine.path("link"))
    machine.host.files.remove(machine.path("missing"))
    assert os.listdir(machine.root) == ["a"]


def test_a_folder_is_removed_only_when_it_is_empty(machine: Machine) -> None:
    (machine.root / "full").mkdir()
    (machine.root / "full/a").write_text("x")
    (machine.root / "empty").mkdir()
    for name in ("full", "empty", "missing"):
        machine.host.files.remove_folder(machine.path(name))
    assert os.listdir(machine.root) == ["full"]


# Locks


@contextlib.contextmanager
def holder(machine: Machine) -> Iterator[int]:
    """Another process that holds the lock."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException), machine.host.files.lock(machine.path("run/lock"), 5.0):
            os.write(tell, b"x")
            signal.pause()
        os._exit(1)
    try:
        assert os.read(ready, 1) == b"x"
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(tell)


def test_a_lock_keeps_another_process_out_until_its_time_is_over(machine: Machine) -> None:
    with holder(machine):
        started = time.monotonic()
        lock = machine.host.files.lock(machine.path("run/lock"), 0.3)
        with pytest.raises(TimeoutError, match="is held by another run"):
            lock.__enter__()
        assert 0.3 <= time.monotonic() - started < AT_ONCE_SECONDS


def test_a_lock_is_free_when_its_holder_was_killed(machine: Machine) -> None:
    with holder(machine):
        pass
    with machine.host.files.lock(machine.path("run/lock"), 0.0):
        assert stat.S_IMODE((machine.root / "run/lock").stat().st_mode) == 0o600


def test_a_lock_is_free_after_its_block_even_when_a_child_was_left_behind(machine: Machine) -> None:
    with machine.host.files.lock(machine.path("run/lock"), 0.0):
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        with machine.host.files.lock(machine.path("run/lock"), 0.0):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_lock_is_free_after_an_error_in_its_block(machine: Machine) -> None:
    with pytest.raises(RuntimeError), machine.host.files.lock(machine.path("run/lock"), 0.0):
        raise RuntimeError
    with machine.host.files.lock(machine.path("run/lock"), 0.0):
        pass


# Commands


def test_a_command_answers_with_status_output_and_errors(real: Machine) -> None:
    completed = real.host.commands.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (completed.status, completed.output, completed.errors) == (3, "out\n", "err\n")


def test_a_command_runs_in_the_c_locale(real: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert real.host.commands.run(["sh", "-c", "echo $LANG $LC_ALL"]).output == "C C\n"


def test_arguments_reach_a_command_as_they_are_without_a_shell(real: Machine) -> None:
    assert real.host.commands.run(["echo", "$HOME; ls *", "a  b"]).output == "$HOME; ls * a  b\n"


def test_a_command_reads_what_it_is_given_and_nothing_else(real: Machine) -> None:
    assert real.host.commands.run(["cat"], data="one\ntwo").output == "one\ntwo"
    assert real.host.commands.run(["sh", "-c", "read line || echo none"], data="").output == "none\n"


def test_output_that_is_no_text_is_kept(real: Machine) -> None:
    assert real.host.commands.run(["printf", "\\351\\n"]).output == "\udce9\n"


def test_a_command_that_takes_too_long_is_ended_and_leaves_124(real: Machine) -> None:
    started = time.monotonic()
    completed = real.host.commands.run(["sh", "-c", "echo early; sleep 20; echo late"], timeout=0.4)
    assert completed.status == 124
    assert "late" not in completed.output
    assert time.monotonic() - started < AT_ONCE_SECONDS


def test_a_command_that_does_not_listen_is_killed_and_leaves_124(
    real: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "GRACE_SECONDS", 0.3)
    started = time.monotonic()
    completed = real.host.commands.run(["sh", "-c", "trap '' TERM; sleep 20; sleep 20"], timeout=0.3)
    assert completed.status == 124
    assert time.monotonic() - started < AT_ONCE_SECONDS


def test_a_command_that_closes_its_output_is_waited_for(real: Machine) -> None:
    assert real.host.commands.run(["sh", "-c", "exec >&- 2>&-; sleep 0.3; exit 7"]).status == 7


def test_what_a_command_leaves_running_is_not_waited_for_and_not_ended(real: Machine) -> None:
    begin = time.monotonic()
    completed = real.host.commands.run(["sh", "-c", "sleep 20 & echo $!; exit 3"], timeout=20)
    assert completed.status == 3
    assert time.monotonic() - begin < AT_ONCE_SECONDS
    # It has the output open, and goes on.
    os.kill(int(completed.output), signal.SIGKILL)


def test_a_command_that_says_much_late_is_heard_to_its_end(real: Machine) -> None:
    script = "sleep 0.7; head -c 300000 /dev/zero | tr '\\0' x; sleep 0.7; echo end"
    completed = real.host.commands.run(["sh", "-c", script], timeout=20)
    assert (completed.status, len(completed.output), completed.output[-4:]) == (0, 300_004, "end\n")


def test_of_an_endless_output_the_beginning_is_kept(real: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MAX_OUTPUT", 100_000)
    # It ends no more than `yes` does, and needs little time to have said too much.
    completed = real.host.commands.run(["sh", "-c", "yes | head -c 300000 >&2; sleep 60"], timeout=2)
    assert (completed.status, completed.output, len(completed.errors)) == (124, "", 100_000)


def test_an_output_that_was_cut_is_an_error(real: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MAX_OUTPUT", 100_000)
    with pytest.raises(OSError, match="it said more than"):
        real.host.commands.run(["sh", "-c", "head -c 100001 /dev/zero"])
    assert len(real.host.commands.run(["sh", "-c", "head -c 100000 /dev/zero"]).output) == 100_000


def test_what_a_command_leaves_running_may_go_on_to_say_something(real: Machine) -> None:
    begin = time.monotonic()
    script = "(while :; do echo x; sleep 0.05; done) & exit 3"
    assert real.host.commands.run(["sh", "-c", script], timeout=20).status == 3
    assert time.monotonic() - begin < AT_ONCE_SECONDS


def test_a_command_that_ended_just_before_its_time_was_over_has_not_timed_out(real: Machine) -> None:
    assert real.host.commands.run(["sh", "-c", "sleep 20 & sleep 0.2; exit 3"], timeout=0.4).status == 3


def test_a_child_that_does_not_listen_is_killed_with_its_program(
    real: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "GRACE_SECONDS", 0.3)
    script = "sh -c 'trap \"\" TERM; echo $$; sleep 20; sleep 20' & sleep 20"
    completed = real.host.commands.run(["sh", "-c", script], timeout=0.5)
    assert completed.status == 124
    deadline = time.monotonic() + AT_ONCE_SECONDS
    while _runs(int(completed.output)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(int(completed.output))


def _runs(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def test_a_command_ends_when_nobody_reads_its_output_any_more(real: Machine) -> None:
    # Python ignores the signal of a broken pipe. With that inherited, `yes` would complain and not end by it.
    completed = real.host.commands.run(["sh", "-c", "yes | head -n1; exit 0"])
    assert (completed.output, completed.errors) == ("y\n", "")


def test_a_long_output_is_kept_whole(real: Machine) -> None:
    assert len(real.host.commands.run(["sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x"]).output) == 1_000_000


def test_a_program_that_ends_by_itself_with_137_is_no_timeout(real: Machine) -> None:
    assert real.host.commands.run(["sh", "-c", "exit 137"], timeout=30).status == 137


def test_programs_in_the_sbin_folders_are_found_with_a_short_path(
    real: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    program = next((name for name in ("ldconfig", "useradd", "mkswap") if os.path.exists(f"/usr/sbin/{name}")), None)
    if program is None:
        pytest.skip("this machine has none of the programs that usually lie in /usr/sbin")
    found = real.host.commands.find(program)
    assert found is not None
    assert os.path.basename(os.path.dirname(found)) == "sbin"
    assert real.host.commands.find("no-such-program") is None


def test_a_program_that_is_not_there_is_file_not_found(machine: Machine) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        machine.host.commands.run(["no-such-program"])
    assert caught.value.filename == "no-such-program"


def test_only_root_may_change_this_machine(real: Machine) -> None:
    assert real.host.may_change == (os.geteuid() == 0)


def test_a_machine_without_a_journal_has_nobody_to_tell(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SOCKET", str(machine.root / "nowhere"))
    machine.host.journal("hugepages: changed", {"GPUFLEET_CONCERN": "hugepages"})


def test_a_line_in_the_journal_has_its_fields_and_keeps_newlines_apart(
    real: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    # A path of a socket may have 107 bytes.
    monkeypatch.chdir(real.root)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("journal")
        monkeypatch.setattr(journal, "SOCKET", "journal")
        real.host.journal("a message", {"GPUFLEET_AFTER": "two\nlines"})
        data = receiver.recv(65536)
    assert b"MESSAGE=a message\n" in data
    assert b"SYSLOG_IDENTIFIER=gpufleet\n" in data
    assert data.endswith(b"GPUFLEET_AFTER\n\x09\0\0\0\0\0\0\0two\nlines\n")


# What only a recorded tree does


@pytest.mark.parametrize(
    "target", ["/etc/secret", "../../../../etc/secret", "sub/../../../etc/secret", "/../etc/secret"]
)
def test_links_cannot_leave_a_recorded_tree(tmp_path: Path, target: str) -> None:
    root = tmp_path / "tree"
    (root / "etc").mkdir(parents=True)
    (root / "a/sub").mkdir(parents=True)
    (root / "etc/secret").write_text("inside")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/secret").write_text("outside")
    (root / "a/link").symlink_to(target)
    files = RecordedFiles(str(root))
    assert files.read("/a/link") == "inside"
    files.replace("/a/link", "changed")
    files.replace("/../../etc/other", "made")
    assert (tmp_path / "etc/secret").read_text() == "outside"
    assert sorted(os.listdir(tmp_path / "etc")) == ["secret"]
    assert (root / "etc/secret").read_text() == "changed"
    assert (root / "etc/other").read_text() == "made"


def test_a_link_up_to_the_root_stays_a_path_of_the_tree(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/link").symlink_to("../../srv/file")
    (tmp_path / "up").symlink_to("..")
    files = RecordedFiles(str(tmp_path))
    assert files.resolve("/etc/link") == "/srv/file"
    assert files.resolve("/up/up/etc") == "/etc"
    assert files.resolve("/up") == "/"


def test_a_linked_folder_cannot_lead_a_removal_out_of_the_tree(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/file").write_text("keep")
    (root / "link").symlink_to(tmp_path / "out")
    files = RecordedFiles(str(root))
    files.remove("/link/file")
    files.remove_folder("/link")
    assert (tmp_path / "out/file").read_text() == "keep"


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("always [madvise] never\n", "never", "always madvise [never]\n"),
        ("[none] mq-deadline \n", "mq-deadline", "none [mq-deadline]\n"),
        ("0\n", "512", "512\n"),
        ("1048576\n", "1", "1\n"),
        ("0", "1", "1"),
    ],
)
def test_a_recorded_tunable_is_written_as_the_kernel_would_show_it(
    tmp_path: Path, before: str, value: str, after: str
) -> None:
    (tmp_path / "tunable").write_text(before)
    RecordedFiles(str(tmp_path)).write_attribute("/tunable", value)
    assert (tmp_path / "tunable").read_text() == after


def test_a_recorded_tunable_refuses_what_it_does_not_list(tmp_path: Path) -> None:
    (tmp_path / "tunable").write_text("[none] mq-deadline \n")
    with pytest.raises(OSError, match="Invalid argument"):
        RecordedFiles(str(tmp_path)).write_attribute("/tunable", "kyber")
    assert (tmp_path / "tunable").read_text() == "[none] mq-deadline \n"


def test_a_recorded_tree_runs_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    host = RecordedHost(str(tmp_path))
    assert host.commands.find("sh") is None
    with pytest.raises(FileNotFoundError, match="a recorded tree runs no commands"):
        host.commands.run(["sh"])


# Daemons


LOOPBACK = "127.0.0.1"


class Daemon:
    """A server on a socket that sends one answer to everybody, as it is; without one it says nothing.

    ``LOOPBACK`` in place of a path lets it listen at a port there, and with a ``context`` it speaks TLS.
    """

    def __init__(self, path: Path, answer: Optional[bytes], context: Optional[ssl.SSLContext] = None) -> None:
        self.path = str(path)
        self._context = context
        self.asked: List[bytes] = []
        self._answer = answer
        self._kept: List[socket.socket] = []
        if path.name == LOOPBACK:
            self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._listener.bind((LOOPBACK, 0))
            self.path = f"{LOOPBACK}:{self._listener.getsockname()[1]}"
        else:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                channel, _address = self._listener.accept()
            except OSError:
                return
            if self._context is not None:
                try:
                    channel = self._context.wrap_socket(channel, server_side=True)
                except OSError:
                    # A client that it does not know.
                    continue
            self.asked.append(channel.recv(65536))
            if self._answer is None:
                self._kept.append(channel)
                continue
            # In two pieces, as a network may cut it.
            for part in (self._answer[:7], self._answer[7:]):
                channel.sendall(part)
            channel.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(timeout=5)
        for channel in self._kept:
            channel.close()


@contextlib.contextmanager
def daemon(path: Path, answer: Optional[bytes], context: Optional[ssl.SSLContext] = None) -> Iterator[Daemon]:
    server = Daemon(path, answer, context)
    try:
        yield server
    finally:
        server.close()


def test_a_daemon_is_asked_on_its_socket(real: Machine) -> None:
    answer = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + b'{"x": "' + b"y" * 200_000 + b'"}'
    with daemon(real.root / "socket", answer) as server:
        assert real.host.http_get(server.path, "/info") == '{"x": "' + "y" * 200_000 + '"}'
        assert server.asked[0].startswith(b"GET /info HTTP/1.0\r\nHost: localhost\r\n\r\n")


def test_a_daemon_that_wants_a_certificate_gets_the_one_of_the_caller(real: Machine, tmp_path: Path) -> None:
    ours, others = (identity(tmp_path / name) for name in ("ours", "others"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*identity(tmp_path / "server"))
    context.load_verify_locations(ours[0])
    context.verify_mode = ssl.CERT_REQUIRED
    with daemon(Path(LOOPBACK), b"HTTP/1.0 200 OK\r\n\r\n{}", context) as server:
        assert real.host.http_get(server.path, "/configz", identity=ours) == "{}"
        assert server.asked[-1].startswith(b"GET /configz HTTP/1.0\r\n")
        for pair in (None, others, (f"{tmp_path}/none.crt", ours[1])):
            with pytest.raises(OSError, match=server.path):
                real.host.http_get(server.path, "/configz", identity=pair)
        assert len(server.asked) == 1


def identity(place: Path) -> Tuple[str, str]:
    """A certificate that is signed by its own key, and that key."""
    certificate, key = f"{place}.crt", f"{place}.key"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    made = ["openssl", "req", "-x509", *curve, "-subj", f"/CN={place.name}", "-out", certificate, "-keyout", key]
    subprocess.run(made, check=True, capture_output=True)
    return certificate, key


def test_a_daemon_that_listens_at_a_port_is_asked_there(real: Machine) -> None:
    with daemon(Path(LOOPBACK), b"HTTP/1.0 200 OK\r\n\r\n# TYPE up gauge\n") as server:
        assert real.host.http_get(server.path, "/metrics") == "# TYPE up gauge\n"
    with pytest.raises(ConnectionRefusedError) as caught:
        real.host.http_get(server.path, "/metrics")
    assert caught.value.filename == server.path


@pytest.mark.parametrize(
    "address", ["localhost:9400", "gpu.example.com:80", "127.0.0.1:", "127.0.0.1:http", "", ":9400"]
)
def test_no_name_is_looked_up_to_ask_a_daemon(real: Machine, address: str) -> None:
    with pytest.raises(OSError, match="not an address with a port, in numbers") as caught:
        real.host.http_get(address, "/metrics")
    assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, address)


ANSWERS: Dict[str, Tuple[bytes, str]] = {
    "an error": (b"HTTP/1.0 500 Internal Server Error\r\n\r\nno\n", "status 500 Internal Server Error: no"),
    "another language": (b"+OK POP3 ready\r\n", "not an HTTP response"),
    "nothing": (b"", "not an HTTP response"),
    "a head without an end": (b"HTTP/1.0 200 OK\r\nContent", "not an HTTP response"),
}


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_another_answer_than_the_one_wanted_is_an_error_that_names_the_socket(real: Machine, name: str) -> None:
    answer, cause = ANSWERS[name]
    with daemon(real.root / "socket", answer) as server, pytest.raises(OSError, match=cause) as caught:
        real.host.http_get(server.path, "/info")
    assert (caught.value.errno, caught.value.filename) == (errno.EPROTO, server.path)


def test_a_daemon_that_does_not_answer_is_waited_for_no_longer_than_said(tmp_path: Path) -> None:
    started = time.monotonic()
    with (
        daemon(tmp_path / "socket", None) as server,
        pytest.raises(TimeoutError, match=r"within 0\.2 seconds") as caught,
    ):
        unix_http.get(server.path, "/info", timeout=0.2)
    assert caught.value.filename == server.path
    assert 0.2 <= time.monotonic() - started < 2.0


@pytest.mark.parametrize("left", [None, "file", "closed"])
def test_where_nobody_listens_there_is_no_answer(machine: Machine, left: Optional[str]) -> None:
    if left == "file":
        (machine.root / "socket").write_text("")
    if left == "closed":
        Daemon(machine.root / "socket", b"").close()
    with pytest.raises((ConnectionRefusedError, FileNotFoundError)) as caught:
        machine.host.http_get(machine.path("socket"), "/info")
    assert caught.value.filename == machine.path("socket")


def test_a_recorded_tree_answers_from_a_file_beside_the_socket(tmp_path: Path) -> None:
    (tmp_path / "run/docker.sock.http").mkdir(parents=True)
    (tmp_path / "run/docker.sock.http/info").write_text("{}")
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    assert RecordedHost(str(tmp_path)).http_get("/var/run/docker.sock", "/info") == "{}"
