# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``node_tools``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, NotPermitted
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import DRIFTED, IN_SYNC, PENDING
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd
from ansible_collections.gpufleet.node.plugins.module_utils._linux.boot_service import UNIT, why_not_persisted
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import ARCHIVE, EXEC_START, ON_PATH, PROGRAM
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.node_tools import spec
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.node_tools.concern import (
    CONCERN,
    NodeTools,
    lacks_archive,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.node_tools.state import UNIT_PATH
from ansible_collections.gpufleet.node.plugins.plugin_utils import archive
from ansible_collections.gpufleet.node.tests.unit.concerns.node_tools.node_tools_machine import (
    ETC,
    Systemctl,
    machine,
    small_program,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, Killed, build, snapshot

CONTENT = small_program()
DIGEST = sha256(CONTENT).hexdigest()
# What the controller sends.
PRODUCT = archive.build()
PRODUCT_DIGEST = sha256(PRODUCT).hexdigest()
WANTS = f"{ETC}/multi-user.target.wants/{UNIT}"
DECLARED = "/etc/gpufleet/declared.d/node_tools.json"


def params(**options: Any) -> Dict[str, Any]:
    validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate(
        {"archive_sha256": DIGEST, **options}
    )
    assert validated.error_messages == []
    found: Dict[str, Any] = validated.validated_parameters
    return found


def run(host: FakeHost, *, sent: Optional[bytes] = CONTENT, check_mode: bool = False, **options: Any) -> Outcome:
    outcome = converge(NodeTools(sent), params(**options), host, check_mode=check_mode)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def systemctl_of(host: FakeHost) -> Systemctl:
    program = host.commands.programs["systemctl"]
    assert isinstance(program, Systemctl)
    return program


def verbs(host: FakeHost) -> List[str]:
    return [next(word for word in call[1:] if not word.startswith("-")) for call in host.commands.calls]


def test_one_call_installs_the_command_and_the_service(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host)
    assert outcome.status == DRIFTED
    assert (tmp_path / ARCHIVE.lstrip("/")).read_bytes() == CONTENT
    assert (tmp_path / ARCHIVE.lstrip("/")).stat().st_mode & 0o777 == 0o644
    assert (tmp_path / PROGRAM.lstrip("/")).stat().st_mode & 0o777 == 0o755
    assert host.files.read(UNIT_PATH) == spec.unit_text(params())
    assert host.files.read(WANTS) == host.files.read(UNIT_PATH)
    assert why_not_persisted(host.files) == ""
    # A unit that systemd never read is read when it is first asked for.
    assert "daemon-reload" not in verbs(host)


def test_a_second_run_changes_nothing_and_starts_no_program(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    host.files.log.clear()
    host.commands.calls.clear()
    outcome = run(host, sent=None)
    assert (outcome.status, outcome.changes, host.files.log, host.commands.calls) == (IN_SYNC, (), [], [])


def test_check_mode_needs_no_archive_and_predicts_what_a_run_then_does(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    predicted = run(host, sent=None, check_mode=True, boot_failure="hold")
    assert snapshot(tmp_path) == before
    assert predicted.changes == run(host, boot_failure="hold").changes


def test_the_archive_is_asked_for_only_where_it_must_be_written(tmp_path: Path) -> None:
    host = machine(tmp_path)
    assert lacks_archive(host.files, params())
    assert not lacks_archive(host.files, params(state="absent"))
    assert not lacks_archive(host.files, params(immediate=False, permanent=False))
    run(host)
    assert not lacks_archive(host.files, params())
    assert lacks_archive(host.files, params(archive_sha256="0" * 64))


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (
            None,
            f"Cannot install the archive in {ARCHIVE}: the task did not send the file (wanted {DIGEST[:12]}). Run "
            "again.",
        ),
        (
            b"cut",
            f"Cannot install the archive in {ARCHIVE}: the received file has a different SHA-256 checksum "
            f"(found {sha256(b'cut').hexdigest()[:12]}, wanted {DIGEST[:12]}). Run again.",
        ),
    ],
)
def test_an_archive_that_did_not_arrive_whole_leaves_nothing_behind(
    tmp_path: Path, sent: Optional[bytes], message: str
) -> None:
    host = machine(tmp_path)
    with pytest.raises(GpuFleetError) as caught:
        run(host, sent=sent)
    assert str(caught.value) == message
    assert not any(host.files.exists(path) for path in (ARCHIVE, PROGRAM, UNIT_PATH, DECLARED))


def test_what_was_sent_is_no_part_of_the_declaration(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, boot_timeout=60)
    document = json.loads(host.files.read(DECLARED))
    assert document["declaration"] == {"archive_sha256": DIGEST, "boot_timeout": 60}
    assert document["apply_at_boot"] is False


def test_services_are_held_back_by_links_that_come_and_go(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, boot_failure="hold", boot_before=["docker.service", "slurmd.service"])
    held = ("docker.service.requires", "slurmd.service.requires")
    assert systemd.links(host.files, UNIT) == (held[0], "multi-user.target.wants", held[1])
    outcome = run(host, boot_before=["docker.service"])
    assert systemd.links(host.files, UNIT) == ("multi-user.target.wants",)
    enabled = next(change for change in outcome.changes if change.setting == "enabled")
    assert (enabled.before, enabled.after) == ("enabled, docker.service.requires, slurmd.service.requires", "enabled")


def test_a_service_that_somebody_disabled_is_enabled_again(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    (tmp_path / WANTS.lstrip("/")).unlink()
    outcome = run(host)
    assert [(change.setting, change.before, change.after) for change in outcome.changes] == [
        ("enabled", "disabled", "enabled")
    ]
    assert why_not_persisted(host.files) == ""


def test_absent_restores_the_machine_as_it_was(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    run(host, boot_failure="hold")
    run(host, state="absent")
    assert snapshot(tmp_path) == before
    assert run(host, state="absent").changes == ()


def test_absent_leaves_the_folder_of_the_binding_alone(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    build(tmp_path, {"/var/lib/gpufleet/python/pynvml.py": ""})
    run(host, state="absent")
    assert host.files.exists("/var/lib/gpufleet/python/pynvml.py")
    assert not host.files.exists(ARCHIVE)


@pytest.mark.parametrize("came_with_image", [False, True])
def test_a_read_only_usr_has_no_command_and_all_else(tmp_path: Path, *, came_with_image: bool) -> None:
    old = {ON_PATH: "#!/bin/sh\n# Of an earlier release.\n"} if came_with_image else {}
    host = machine(tmp_path, old)
    before = snapshot(tmp_path)
    host.files.read_only = ["/usr"]
    assert ON_PATH not in {change.object for change in run(host).changes}
    assert why_not_persisted(host.files) == ""
    assert run(host).status == "in_sync"
    run(host, state="absent")
    assert snapshot(tmp_path) == before


def test_a_command_of_ours_on_what_became_read_only_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    host.files.read_only = ["/usr"]
    assert run(host).status == "in_sync"
    with pytest.raises(NotPermitted, match="/usr/local/sbin is on a read-only file system"):
        run(host, state="absent")


@pytest.mark.parametrize(
    ("spoil", "mode"),
    [("", 0o777), ("", 0o775), ("program", 0o757), ("program/gpufleet", 0o722), ("program/gpufleet", 0)],
)
def test_nothing_starts_a_program_that_users_other_than_root_may_change(tmp_path: Path, spoil: str, mode: int) -> None:
    ours = tmp_path / "gpufleet"
    (ours / "program").mkdir(parents=True)
    (ours / "program/gpufleet").write_text('printf "%s|" "$@"\n')
    for place, right in ((ours, 0o755), (ours / "program", 0o755), (ours / "program/gpufleet", 0o755)):
        place.chmod(right)
    unit = EXEC_START.replace("$$", "$").replace("%%", "%")
    for text in (spec.COMMAND_TEXT, unit.partition("'")[2].rpartition("'")[0]):
        (tmp_path / "command").write_text(text.replace("/var/lib/gpufleet", str(ours)))
        command = ["/bin/sh", str(tmp_path / "command"), "boot", "a b"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "boot|a b|")
        if mode:
            (ours / spoil).chmod(mode)
        else:
            (ours / spoil).unlink()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (64, "")
        assert done.stderr.endswith("users other than root may change it. Run the role node_tools.\n")
        (ours / "program/gpufleet").write_text('printf "%s|" "$@"\n')
        (ours / spoil).chmod(0o755)


def test_usr_local_may_be_a_link_into_var(tmp_path: Path) -> None:
    host = machine(tmp_path)
    (tmp_path / "usr/local").rename(tmp_path / "var/usrlocal")
    (tmp_path / "usr/local").symlink_to("/var/usrlocal")
    before = snapshot(tmp_path)
    run(host)
    assert host.files.read("/var/usrlocal/sbin/gpufleet") == spec.COMMAND_TEXT
    assert run(host).changes == ()
    run(host, state="absent")
    assert snapshot(tmp_path) == before


def test_without_permanent_there_is_only_the_command(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, permanent=False)
    assert host.files.exists(PROGRAM)
    assert not host.files.exists(UNIT_PATH)
    assert host.commands.calls == []


@pytest.mark.parametrize("booted", [True, False])
def test_in_an_image_that_is_not_booted_the_service_is_enabled_all_the_same(tmp_path: Path, booted: bool) -> None:
    host = machine(tmp_path, booted=booted)
    run(host)
    assert why_not_persisted(host.files) == ""
    assert host.files.exists(systemd.MARKER) is False


def test_without_systemctl_nothing_is_installed_that_could_not_be_enabled(tmp_path: Path) -> None:
    host = machine(tmp_path)
    host.commands.programs.clear()
    before = snapshot(tmp_path)
    with pytest.raises(GpuFleetError, match=r"Cannot run systemctl: it is not installed\. Install the package"):
        run(host)
    assert snapshot(tmp_path) == before


# The command


def test_two_runs_with_different_interpreters_agree_on_the_first_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = machine(tmp_path, {"/usr/bin/python3.12": "", "/usr/bin/python3": ""})
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3.12")
    run(host)
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert run(host).changes == ()
    assert run(host).effective["interpreter"] == "/usr/bin/python3.12"
    (tmp_path / "usr/bin/python3.12").unlink()
    assert [change.setting for change in run(host).changes] == ["bytecode", "launcher"]
    assert run(host).effective["interpreter"] == "/usr/bin/python3"


@pytest.mark.parametrize("interpreter", ["/usr/bin/python3", "/opt/my python/bin/python3", "/opt/a'b/python"])
def test_a_launcher_tells_its_interpreter(interpreter: str) -> None:
    text = spec.launcher_text(interpreter)
    assert spec.interpreter_of(text) == interpreter
    assert spec.interpreter_of(text + "# edited\n") == ""
    assert spec.interpreter_of(f"python={interpreter}\n") == ""


@pytest.mark.parametrize("there", [True, False])
def test_the_launcher_runs_the_archive_and_falls_back_to_another_python(tmp_path: Path, there: bool) -> None:
    (tmp_path / "program.pyz").write_bytes(PRODUCT)
    interpreter = sys.executable if there else "/nonexistent/python"
    text = spec.launcher_text(interpreter).replace(ARCHIVE, str(tmp_path / "program.pyz"))
    (tmp_path / "gpufleet").write_text(text)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(sys.executable)
    environment = {"PATH": f"{tmp_path}/bin:{os.defpath}", "PYTHONPATH": "/nonexistent", "PYTHONHOME": "/nonexistent"}
    done = subprocess.run(
        ["/bin/sh", str(tmp_path / "gpufleet"), "version"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("gpufleet.node ")


@pytest.mark.parametrize("content", [None, b"", CONTENT[: len(CONTENT) // 2]], ids=["missing", "empty", "truncated"])
@pytest.mark.parametrize("subcommand", ["status", "boot"])
def test_an_archive_that_cannot_be_run_is_no_answer(tmp_path: Path, content: Optional[bytes], subcommand: str) -> None:
    program = tmp_path / "program.pyz"
    if content is not None:
        program.write_bytes(content)
    text = spec.launcher_text(sys.executable).replace(ARCHIVE, str(program))
    done = subprocess.run(["/bin/sh", "-c", text, "gpufleet", subcommand], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith(f"Cannot run {program}: ")
    assert done.stderr.endswith(". Run the role node_tools.\n")


# systemd's memory


def changed_while_containers_run(root: Path) -> FakeHost:
    """The unit was read by systemd, a container uses GPUs that systemd did not give, and then the unit changes."""
    host = machine(root)
    run(host)
    systemctl_of(host).loaded = host.files.read(UNIT_PATH)
    systemctl_of(host).scopes["docker-1.scope"] = "DevicePolicy=strict\nDeviceAllow=char-pts rwm"
    build(root, {"/proc/71/cgroup": "0::/system.slice/docker-1.scope\n"}, {"/proc/71/fd/3": "/dev/nvidia0"})
    host.commands.calls.clear()
    return host


def test_a_changed_unit_is_read_again_at_once_where_that_harms_nobody(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    systemctl_of(host).loaded = host.files.read(UNIT_PATH)
    outcome = run(host, boot_timeout=60)
    assert verbs(host).count("daemon-reload") == 1
    assert systemctl_of(host).loaded == host.files.read(UNIT_PATH)
    assert outcome.remaining.needs == ()
    assert not host.files.exists(systemd.MARKER)


def test_while_containers_would_lose_their_gpus_it_is_pending_and_done_once_they_are_gone(tmp_path: Path) -> None:
    host = changed_while_containers_run(tmp_path)
    outcome = run(host, boot_timeout=60)
    assert "daemon-reload" not in verbs(host)
    assert outcome.remaining.needs == ("daemon-reload",)
    assert not outcome.as_dict()["reboot_required"]
    again = run(host, boot_timeout=60)
    assert (again.status, again.changes, again.remaining.needs) == (PENDING, (), ("daemon-reload",))
    row = next(setting for setting in again.remaining.settings if setting.setting == "unit")
    assert row.pending == (
        "systemd must reload it, and docker-1.scope would lose its GPUs, which were not assigned by systemd"
    )
    (tmp_path / "proc/71/cgroup").unlink()
    later = run(host, boot_timeout=60)
    assert [(change.setting, change.before, change.after) for change in later.changes] == [
        ("unit", "an older version", "as declared")
    ]
    assert verbs(host).count("daemon-reload") == 1
    assert run(host, boot_timeout=60).status == IN_SYNC


def test_a_reload_that_somebody_else_did_is_seen(tmp_path: Path) -> None:
    host = changed_while_containers_run(tmp_path)
    run(host, boot_timeout=60)
    systemctl_of(host).loaded = host.files.read(UNIT_PATH)
    assert run(host, boot_timeout=60).status == IN_SYNC


def test_a_service_is_never_started_stopped_or_restarted(tmp_path: Path) -> None:
    host = changed_while_containers_run(tmp_path)
    run(host, boot_timeout=60)
    run(host, boot_failure="hold")
    run(host, state="absent")
    assert set(verbs(host)) <= {"show", "reenable", "disable", "daemon-reload"}


@pytest.mark.parametrize("kill_at", range(1, 15))
def test_a_run_that_is_killed_anywhere_is_completed_by_the_next(tmp_path: Path, kill_at: int) -> None:
    host = machine(tmp_path)
    run(host)
    systemctl_of(host).loaded = host.files.read(UNIT_PATH)
    build(tmp_path, {ARCHIVE: "old", PROGRAM: "old"})
    host.files.log.clear()
    host.files.kill_at = kill_at
    options: Dict[str, Any] = {"boot_failure": "hold", "boot_before": ["docker.service"]}
    killed = True
    try:
        run(host, **options)
        killed = False
    except Killed:
        pass
    host.files.kill_at = None
    run(host, **options)
    assert assess(CONCERN, params(**options), host)[1].status == IN_SYNC
    assert systemctl_of(host).loaded == host.files.read(UNIT_PATH) == spec.unit_text(params(**options))
    # The cases reach from the first side effect to the last.
    assert killed == (kill_at < 14)


# Refusals


def masked(host: FakeHost) -> None:
    (Path(host.files.root) / UNIT_PATH.lstrip("/")).symlink_to("/dev/null")


def early(host: FakeHost) -> None:
    build(Path(host.files.root), {"/usr/lib/systemd/system/first.service": "[Unit]\nDefaultDependencies=no\n"})


def not_root(host: FakeHost) -> None:
    host.may_change = False


def as_it_is(host: FakeHost) -> None:
    pass


SOCKETS = (
    "only services can wait; units of this kind start before basic.target, which the boot service waits for "
    "(found {}). Name the service that uses it."
)
ORDER = "Cannot use boot_before: "


@pytest.mark.parametrize(
    ("options", "prepare", "message"),
    [
        (
            {"archive_sha256": None},
            as_it_is,
            "Cannot install the archive on archive_sha256: None is not a SHA-256 checksum. Use the role node_tools, "
            "or the lookup gpufleet.node.node_archive.",
        ),
        (
            {"archive_sha256": "abc"},
            as_it_is,
            "Cannot install the archive on archive_sha256: 'abc' is not a SHA-256 checksum. Use the role node_tools, "
            "or the lookup gpufleet.node.node_archive.",
        ),
        ({"boot_before": ["docker.socket"]}, as_it_is, ORDER + SOCKETS.format("docker.socket")),
        ({"boot_before": ["gpu.target"]}, as_it_is, ORDER + SOCKETS.format("gpu.target")),
        (
            {"boot_before": ["docker"]},
            as_it_is,
            f"{ORDER}'docker' is not the name of a service (found docker). Write it as systemctl shows it, such as "
            "kubelet.service.",
        ),
        (
            {"boot_before": [""]},
            as_it_is,
            f"{ORDER}'' is not the name of a service (found ). Write it as systemctl shows it, such as "
            "kubelet.service.",
        ),
        (
            {"boot_before": ["app@.service"]},
            as_it_is,
            f"{ORDER}'app@.service' is a template, and only its instances start (found app@.service). Name an "
            "instance, such as app@1.service.",
        ),
        (
            {"boot_before": [f"{'a' * 248}.service"]},
            as_it_is,
            f"{ORDER}'{'a' * 248}.service' is not the name of a service (found {'a' * 248}.service). Write it as "
            "systemctl shows it, such as kubelet.service.",
        ),
        (
            {"boot_before": ["a.service b.service"]},
            as_it_is,
            f"{ORDER}'a.service b.service' is not the name of a service (found a.service b.service). Write it as "
            "systemctl shows it, such as kubelet.service.",
        ),
        (
            {"boot_before": ["nvidia-persistenced.service"]},
            as_it_is,
            f"{ORDER}the boot service itself starts after it (found nvidia-persistenced.service). Remove it from "
            "boot_before.",
        ),
        (
            {"boot_before": ["first.service"]},
            early,
            f"{ORDER}it starts before basic.target, which the boot service waits for (found first.service). Remove "
            "it from boot_before.",
        ),
        (
            {"boot_timeout": 5},
            as_it_is,
            "Cannot use boot_timeout: it must be from 10 to 3600 seconds (wanted 5).",
        ),
        (
            {},
            masked,
            f"Cannot install the boot service in {UNIT_PATH}: it is masked. Run systemctl unmask {UNIT}, or set "
            "permanent: false.",
        ),
        ({}, not_root, "Cannot change node_tools: not running as root. Run the task with become: true."),
    ],
)
def test_wrong_input_is_refused_before_any_change(
    tmp_path: Path, options: Dict[str, Any], prepare: Callable[[FakeHost], None], message: str
) -> None:
    host = machine(tmp_path)
    prepare(host)
    before = snapshot(tmp_path)
    with pytest.raises(GpuFleetError) as caught:
        run(host, **options)
    assert str(caught.value) == message
    assert snapshot(tmp_path) == before


def test_a_masked_service_lets_the_command_be_installed_and_removed(tmp_path: Path) -> None:
    host = machine(tmp_path)
    masked(host)
    run(host, permanent=False)
    assert host.files.exists(PROGRAM)
    run(host, state="absent")
    assert not host.files.exists(PROGRAM)
    assert os.readlink(tmp_path / UNIT_PATH.lstrip("/")) == "/dev/null"


def test_what_a_drop_in_of_somebody_else_changes_is_listed(tmp_path: Path) -> None:
    path = f"{ETC}/{UNIT}.d/site.conf"
    host = machine(tmp_path, {path: "[Service]\nTimeoutStartSec=20min\n"})
    outcome = run(host)
    assert [entry.as_dict() for entry in outcome.remaining.conflicts] == [
        {
            "owner": "systemd drop-in",
            "path": path,
            "line": None,
            "object": UNIT,
            "setting": "Service.TimeoutStartSec",
            "value": "20min",
            "wins": "them",
            "accepted": "",
        }
    ]


# The controller's side


class Executions:
    """The node as an action plugin meets it: what ran there, and what was sent. ``wants`` is how often it asks."""

    def __init__(self, wants: int) -> None:
        self.wants = wants
        self.arguments: List[Dict[str, Any]] = []
        self.sent: List[bytes] = []

    def execute(self, *, module_args: Dict[str, Any], task_vars: Any) -> Dict[str, Any]:
        self.arguments.append(dict(module_args))
        asks = len(self.arguments) <= self.wants
        return {"changed": False, "wants_file": True} if asks else {"changed": bool(self.sent)}

    def transfer(self, path: str, content: bytes) -> None:
        self.sent.append(content)


def act(executions: Executions, **options: Any) -> Dict[str, Any]:
    pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller")
    from ansible.plugins.action import ActionBase
    from ansible_collections.gpufleet.node.plugins.action.node_tools import ActionModule

    shell = SimpleNamespace(tmpdir=None, join_path=lambda *parts: "/".join(parts))
    action = ActionModule.__new__(ActionModule)
    action._task = SimpleNamespace(args=options)
    action._connection = SimpleNamespace(_shell=shell)
    action._execute_module = executions.execute
    action._make_tmp_path = lambda: "/tmp/task"
    action._transfer_data = executions.transfer
    action._fixup_perms2 = lambda paths: None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
        result: Dict[str, Any] = action.run(task_vars={})
    return result


def test_a_node_that_is_right_costs_one_execution_and_no_transfer() -> None:
    executions = Executions(wants=0)
    assert act(executions, boot_timeout=60) == {"changed": False}
    assert executions.arguments == [{"boot_timeout": 60, "archive_sha256": PRODUCT_DIGEST}]
    assert executions.sent == []


def test_the_archive_is_sent_when_the_module_asks_for_it() -> None:
    executions = Executions(wants=1)
    assert act(executions) == {"changed": True}
    assert executions.sent == [PRODUCT]
    assert executions.arguments[1] == {"archive_sha256": PRODUCT_DIGEST, "archive": "/tmp/task/gpufleet.pyz"}


def test_nothing_is_built_or_sent_for_a_node_that_gives_it_back() -> None:
    executions = Executions(wants=0)
    act(executions, state="absent")
    assert executions.arguments == [{"state": "absent"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"archive": "/x"}, "Cannot use the option archive: only the controller sets it. Leave it out."),
        (
            {"archive_sha256": "0" * 64},
            "Cannot send the file of archive: archive_sha256 is not that of the file on this controller "
            f"(found {PRODUCT_DIGEST}, wanted {'0' * 64}). Leave archive_sha256 out.",
        ),
    ],
)
def test_an_archive_that_is_not_the_controllers_is_refused_before_anything_runs(
    options: Dict[str, Any], message: str
) -> None:
    executions = Executions(wants=0)
    with pytest.raises(Exception, match=f"^{re.escape(message)}$"):
        act(executions, **options)
    assert executions.arguments == []


def test_the_lookup_says_which_archive_the_controller_installs() -> None:
    pytest.importorskip("ansible.plugins.lookup", reason="the controller's side needs Ansible's controller")
    from ansible_collections.gpufleet.node.plugins.lookup.node_archive import LookupModule

    assert LookupModule().run([]) == [PRODUCT_DIGEST]
    with pytest.raises(Exception, match="it takes none"):
        LookupModule().run(["x"])


def test_a_file_that_another_run_took_away_since_is_asked_for_and_nothing_changed(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    os.chmod(host.files.locate("/etc/gpufleet"), 0o777)
    host.files.before_lock = lambda: host.files.remove(ARCHIVE)
    outcome = converge(NodeTools(None), params(), host, check_mode=False)
    assert outcome.error is not None
    assert (outcome.error.code, outcome.changes) == ("not_sent", ())
