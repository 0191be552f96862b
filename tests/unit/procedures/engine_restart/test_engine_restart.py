# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The restart of an engine, judged by daemons that read their files when they start, as the real ones do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import pytest
import yaml
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    GpuFleetError,
    InUse,
    NotPermitted,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime import last_good, original_files
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.docker.meaning import LOADED
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.kinds import kind_of
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    CDI,
    DEFAULT_RUNTIME,
    ENGINES,
    NEEDS,
    RUNTIME,
    SettingName,
    Settings,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.state import UNDER_WAY
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.engine_restart.options import (
    OPTIONS as RESTART_OPTIONS,
)
from ansible_collections.gpufleet.node.tests.unit.procedures.engine_restart.restart_machine import (
    BEFORE,
    DAEMON_JSON,
    DECLARED,
    FAILURE,
    FOUND,
    NVIDIA,
    SOCKET,
    START,
    START_LIMIT,
    STARTING,
    Daemon,
    Docker,
    declare,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, Killed, snapshot

pytestmark = pytest.mark.once

ROLE = Path(__file__).resolve().parents[4] / "roles" / "container_runtime"


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    return Docker(tmp_path, monkeypatch)


def left(machine: Daemon) -> List[str]:
    """What is kept for the way back."""
    folders = (last_good.FOLDER, UNDER_WAY)
    return [f"{folder}/{name}" for folder in folders for name in machine.host.files.names(folder)]


# --- what is needed ---------------------------------------------------------------------------------------------------


def test_a_daemon_that_has_what_its_files_say_is_left_alone(docker: Docker) -> None:
    result = run(docker)
    assert (result["changed"], result["done"], result["needs"], docker.calls) == (False, None, [], [])


def test_a_restart_is_done_once_and_the_daemon_then_says_that_it_has_what_was_declared(docker: Docker) -> None:
    assert declare(docker, cdi=True) == ("restart_docker",)
    assert left(docker) == ["/run/gpufleet/container_runtime.previous/docker.json"]
    result = run(docker)
    assert (result["changed"], result["done"], docker.calls) == (True, "restart", ["restart"])
    assert {"setting": "cdi", "before": "false", "after": "true"} in result["settings"]
    assert docker.has["features"] == {"cdi": True}
    assert left(docker) == []
    assert not docker.host.files.exists(LOADED)
    assert declare(docker, cdi=True) == ()
    assert run(docker)["changed"] is False
    assert docker.calls == ["restart"]


def test_a_daemon_that_started_often_just_before_is_not_taken_for_one_that_refuses_its_files(docker: Docker) -> None:
    declare(docker, cdi=True)
    docker.starts = START_LIMIT
    result = run(docker)
    assert (result.get("failed"), result["restored"], docker.has["features"]) == (None, [], {"cdi": True})


def test_a_reload_is_believed_when_the_daemon_says_that_it_was_done(docker: Docker) -> None:
    assert declare(docker, default=True, default_shm_size="8g") == ("reload_docker",)
    docker.hears = False

    def later() -> None:
        docker.hears = True
        if docker.clock.now >= START + 2 and not docker.reloaded:
            docker.reload()

    docker.clock.then = later
    result = run(docker, action="reload")
    assert (result["done"], docker.calls, docker.clock.now) == ("reload", ["reload"], START + 2)
    # Also of the size, which no question to the daemon answers.
    assert declare(docker, default=True, default_shm_size="8g") == ()


def test_a_reload_also_gives_what_nobody_knew_of_since_somebody_else_wrote_the_file(docker: Docker) -> None:
    declare(docker, default=True, default_shm_size="8g")
    run(docker, action="restart")
    text = Path(docker.host.files.locate(DAEMON_JSON)).read_text()
    docker.clock.now += 10
    docker.write(DAEMON_JSON, text.replace('"default-runtime": "nvidia"', '"debug": false'))
    docker.host.files.remove(LOADED)
    assert declare(docker, default=True, default_shm_size="8g") == ("reload_docker",)
    assert run(docker, action="reload")["done"] == "reload"
    assert declare(docker, default=True, default_shm_size="8g") == ()


def test_what_a_restart_brings_a_reload_does_not(docker: Docker) -> None:
    declare(docker, cdi=True)
    with pytest.raises(DeclarationError) as caught:
        run(docker, action="reload")
    assert str(caught.value) == (
        "Cannot reload docker on docker.service: that is not enough: dockerd turns CDI on or off only when it starts. "
        "Set action: restart."
    )
    assert docker.calls == []


def test_what_nobody_declared_counts_only_where_nothing_is_declared(docker: Docker) -> None:
    docker.write(DAEMON_JSON, '{"features": {"cdi": true}}')
    assert run(docker, check_mode=True)["done"] == "restart"
    declare(docker)
    run(docker, action="reload")
    assert run(docker, check_mode=True)["done"] is None


def test_what_was_restored_is_needed_as_well_and_then_nothing_of_ours_is_left(docker: Docker) -> None:
    there = snapshot(docker.root, leave_out=("proc", "run"))
    declare(docker, cdi=True)
    run(docker)
    assert declare(docker, state="gone") == ("restart_docker",)
    assert docker.text() == FOUND
    assert run(docker, check_mode=True)["done"] == "restart"
    assert docker.text(BEFORE) is not None
    assert run(docker)["done"] == "restart"
    assert docker.has == {"log-driver": "local", "started": True}
    assert snapshot(docker.root, leave_out=("proc", "run")) == there
    assert not docker.host.files.exists(UNDER_WAY)
    assert declare(docker, state="gone") == ()


def test_what_was_before_stays_known_until_the_daemon_has_it_again(docker: Docker) -> None:
    declare(docker, cdi=True)
    run(docker)
    docker.containers = 2
    docker.tell()
    declare(docker, state="gone")
    assert run(docker, when_containers_run="skip")["needs"] == ["restart_docker"]
    assert docker.text(BEFORE) is not None
    # As declared, so that what a restart brings is no end of it.
    declare(docker, cdi=True)
    assert run(docker, when_containers_run="restart")["changed"] is False
    assert docker.text(BEFORE) is not None


def test_check_mode_tells_and_does_nothing(docker: Docker) -> None:
    declare(docker, cdi=True)
    there = snapshot(docker.root, leave_out=())
    result = run(docker, check_mode=True)
    assert (result["changed"], result["done"]) == (True, "restart")
    assert "docker cdi: false\n" in result["diff"]["before"]
    assert "docker cdi: true\n" in result["diff"]["after"]
    assert docker.calls == []
    assert snapshot(docker.root, leave_out=()) == there


def test_what_somebody_restarted_by_hand_is_noted_as_well(docker: Docker) -> None:
    declare(docker, cdi=True)
    docker.restart()
    assert run(docker)["changed"] is False
    assert left(docker) == []


# --- containers -------------------------------------------------------------------------------------------------------


def test_containers_that_would_end_are_counted_before_anything_is_done(docker: Docker) -> None:
    docker.containers = 2
    docker.tell()
    declare(docker, cdi=True)
    with pytest.raises(InUse) as caught:
        run(docker)
    assert str(caught.value) == (
        "Cannot restart docker on docker.service: 2 running containers would end with it, and it is needed because "
        "dockerd turns CDI on or off only when it starts. Stop them first, set live_restore: true, or set "
        "when_containers_run: restart."
    )
    result = run(docker, when_containers_run="skip")
    assert (result["changed"], result["needs"]) == (False, ["restart_docker"])
    assert (docker.calls, docker.containers) == ([], 2)
    assert run(docker, when_containers_run="restart")["stopped_containers"] == 2
    assert (docker.calls, docker.containers) == (["restart"], 0)


def test_live_restore_that_is_new_is_brought_first_so_that_containers_outlive_the_restart(docker: Docker) -> None:
    docker.containers = 2
    docker.tell()
    assert declare(docker, cdi=True, live_restore=True) == ("restart_docker",)
    result = run(docker)
    assert (docker.calls, docker.containers, result["stopped_containers"]) == (["reload", "restart"], 2, 0)
    declare(docker, cdi=False, live_restore=True)
    run(docker)
    assert (docker.calls[2:], docker.containers) == (["restart"], 2)


def test_a_daemon_that_does_not_take_up_live_restore_keeps_its_containers_and_is_not_restarted(docker: Docker) -> None:
    docker.containers = 2
    docker.tell()
    declare(docker, cdi=True, live_restore=True)
    docker.hears = False
    with pytest.raises(Refused) as caught:
        run(docker, health_timeout=5)
    assert str(caught.value) == (
        "Cannot restart docker on docker.service: its containers would end, for it did not load live restore first "
        "(it did not report that it reloaded). Stop them first, or set when_containers_run: restart."
    )
    assert (docker.calls, docker.containers) == (["reload"], 2)


def test_a_reload_ends_no_container(docker: Docker) -> None:
    docker.containers = 2
    docker.tell()
    declare(docker)
    assert run(docker, action="reload")["done"] == "reload"
    assert docker.containers == 2


# --- the way back -----------------------------------------------------------------------------------------------------


def test_a_daemon_that_does_not_come_back_runs_with_the_previous_configuration_again(docker: Docker) -> None:
    declare(docker, cdi=True)
    run(docker)
    well = docker.text()
    declare(docker, cdi=True, data_root="/broken")
    # A second change before the restart: the previous one is still that which the daemon was well with.
    declare(docker, cdi=True, data_root="/broken", default_shm_size="8g")
    docker.calls.clear()
    result = run(docker)
    assert result["msg"] == (
        "Cannot restart docker on docker.service: it did not come back with the new configuration (Job for "
        f"docker.service failed), and it runs with the previous configuration again; its log: {FAILURE}. "
        "Correct what is declared, then run again."
    )
    assert (result["failed"], result["changed"], result["restored"]) == (True, True, [DAEMON_JSON])
    assert result["log"] == [STARTING, FAILURE]
    assert docker.calls == ["restart", "restart"]
    assert docker.text() == well
    assert (docker.state, docker.has["features"]) == ("active", {"cdi": True})
    assert left(docker) == []
    # And the text from before all that is still known, and that nobody else has edited it.
    assert [kept.unedited for kept in original_files.load(docker.host.files)] == [True]
    declare(docker, state="gone")
    assert docker.text() == FOUND


def test_a_file_that_was_not_there_before_goes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = Docker(tmp_path, monkeypatch, None)
    declare(docker, data_root="/broken")
    assert run(docker)["restored"] == [DAEMON_JSON]
    assert docker.text() is None
    assert docker.state == "active"


def test_a_daemon_that_is_not_well_in_time_is_brought_back(docker: Docker) -> None:
    declare(docker, cdi=True)
    docker.states = ["active"] + ["activating"] * 11
    result = run(docker, health_timeout=5)
    assert (
        "with the new configuration (its unit is activating), and it runs with the previous configuration"
        in result["msg"]
    )
    assert docker.clock.now == START + 5
    assert docker.text() == FOUND


def fail_once(docker: Docker, verb: str) -> None:
    """The next time that systemd is told this, it does nothing and does not respond in time."""

    def systemctl(argv: Sequence[str]) -> Completed:
        if argv[1] != verb:
            return docker.systemctl(argv)
        docker.host.commands.programs["systemctl"] = docker.systemctl
        return Completed(124, "", "")

    docker.host.commands.programs["systemctl"] = systemctl


def test_a_daemon_that_was_never_restarted_is_not_taken_for_one_that_is_well_with_the_new_files(docker: Docker) -> None:
    declare(docker, cdi=True)
    fail_once(docker, "restart")
    result = run(docker)
    assert result["msg"] == (
        "Cannot restart docker on docker.service: it did not come back with the new configuration (it took longer than "
        "180 s), and it runs with the previous configuration again. Correct what is declared, "
        "then run again."
    )
    assert docker.text() == FOUND
    assert docker.has == {"log-driver": "local", "started": True}


def test_a_question_to_systemd_that_fails_after_the_restart_leaves_no_daemon_down(docker: Docker) -> None:
    declare(docker, data_root="/broken")
    docker.states = ["active"]
    fail_once(docker, "show")
    # The look before the restart is the one that it is asked first.
    with pytest.raises(CannotLook):
        run(docker)
    assert docker.calls == []
    docker.host.commands.programs["systemctl"] = docker.systemctl
    restarted = docker.restart

    def restart_and_fail() -> None:
        restarted()
        docker.restart = restarted  # type: ignore[method-assign]
        fail_once(docker, "show")

    docker.restart = restart_and_fail  # type: ignore[method-assign]
    assert "it runs with the previous configuration again" in run(docker)["msg"]
    assert docker.state == "active"


def test_a_way_back_that_cannot_be_gone_is_said_beside_the_daemon_that_is_down(docker: Docker) -> None:
    declare(docker, data_root="/broken")
    docker.write(f"{last_good.FOLDER}/docker.json", "{")
    result = run(docker)
    assert result["msg"].startswith(
        "Cannot restart docker on docker.service: it did not come back with the new configuration (Job for "
        "docker.service failed), and the previous configuration was not restored (Cannot read the previous "
        f"configuration in {last_good.FOLDER}/docker.json: the file is damaged"
    )
    assert (result["failure"]["code"], result["failure"]["object"], result["restored"]) == (
        "refused",
        "docker.service",
        [],
    )
    assert FAILURE in result["log"]


def test_a_daemon_gets_the_time_that_it_may_take(docker: Docker) -> None:
    declare(docker, cdi=True)
    docker.states = ["active"] + ["activating"] * 9
    assert "failed" not in run(docker, health_timeout=5)
    assert docker.clock.now == START + 4.5


def test_a_reload_that_dockerd_refuses_leaves_no_file_with_which_it_would_not_start(docker: Docker) -> None:
    declare(docker)
    docker.hears = False
    docker.clock.then = lambda: setattr(docker, "hears", docker.text() == FOUND)
    result = run(docker, action="reload", health_timeout=3)
    assert result["msg"].startswith(
        "Cannot reload docker on docker.service: it did not load the new configuration (it did not report that it "
        "reloaded), and "
    )
    assert "unable to configure the Docker daemon" in result["msg"]
    assert docker.text() == FOUND
    assert docker.state == "active"


def test_what_somebody_else_edited_since_is_left_and_named(docker: Docker) -> None:
    declare(docker, cdi=True)
    edited = '{"features": {"cdi": true}, "data-root": "/broken"}'
    docker.write(DAEMON_JSON, edited)
    result = run(docker)
    assert (
        f"and the previous configuration was not restored, because {DAEMON_JSON} was edited since; its log"
        in result["msg"]
    )
    assert result["msg"].endswith("See journalctl -u docker.service.")
    assert (docker.text(), result["restored"], docker.calls) == (edited, [], ["restart"])


def test_without_a_change_of_ours_there_is_no_way_back(docker: Docker) -> None:
    docker.write(DAEMON_JSON, '{"data-root": "/broken"}')
    assert "and no previous configuration is known; its log" in run(docker)["msg"]


def breaks(docker: Docker) -> Callable[[], None]:
    """From now on it does not start with anything. Returns how it did."""
    restart_it = docker.restart

    def broken() -> None:
        docker.state = "failed"
        docker.gone()

    docker.restart = broken  # type: ignore[method-assign]
    return restart_it


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ([STARTING, "first", "second", "third", "fourth"], "second | third | fourth"),
        # As systemd starts it again and again.
        ([STARTING, FAILURE, STARTING, FAILURE, STARTING, FAILURE], FAILURE),
        (['{"level":"info","msg":"up"}', '{"level":"fatal","msg":"bad"}'], '{"level":"fatal","msg":"bad"}'),
        (
            ['level=warning msg="old"', 'level=error msg="bad"', 'level=info msg="Processing signal"'],
            'level=error msg="bad"',
        ),
        (
            ["I1122 00:00:00.000000 1 up.go:1] up", "E1122 00:00:00.000000 1 up.go:2] bad"],
            "E1122 00:00:00.000000 1 up.go:2] bad",
        ),
        ([STARTING, 'level=debug msg="more"'], STARTING + ' | level=debug msg="more"'),
    ],
)
def test_of_what_the_daemon_said_the_last_that_tells_of_trouble_is_shown(
    docker: Docker, log: List[str], said: str
) -> None:
    declare(docker, cdi=True)
    breaks(docker)
    docker.log = log
    result = run(docker)
    assert f"; its log: {said}. " in result["msg"]
    assert result["log"] == log


def test_a_restart_that_was_cut_off_is_needed_until_a_daemon_runs_again(docker: Docker) -> None:
    declare(docker, cdi=True)
    restart_it = breaks(docker)
    run(docker)
    wanted = validated(CONCERN, {"engines": [{"engine": "docker", "cdi": True}]})
    # The files went back, and are to be written again; nothing takes effect by that.
    planned = converge(CONCERN, wanted, docker.host, check_mode=True).changes
    assert {change.scope for change in planned} == {"boot"}
    for _attempt in range(2):
        assert declare(docker, cdi=True) == ("restart_docker",)
    look = converge(CONCERN, wanted, docker.host, check_mode=True)
    (row,) = [setting for setting in look.remaining.settings if setting.setting == "cdi"]
    assert (row.effective, row.boot, row.status) == ("not known", "true", "pending")
    told = look.effective["engines"]["docker"]
    assert (told["takes"], told["why"]) == ("restart", "an earlier restart did not finish")
    for _attempt in range(2):
        assert declare(docker, state="gone") == ("restart_docker",)
    docker.restart = restart_it  # type: ignore[method-assign]
    assert run(docker)["why"] == "an earlier restart did not finish"
    assert (docker.text(), docker.text(BEFORE), left(docker)) == (FOUND, None, [])


def test_the_files_that_a_restart_was_cut_off_with_are_no_way_back(docker: Docker) -> None:
    def killed(argv: Sequence[str]) -> Completed:
        raise Killed

    declare(docker, data_root="/broken")
    docker.host.commands.programs["journalctl"] = killed
    with pytest.raises(Killed):
        run(docker)
    docker.host.commands.programs["journalctl"] = docker.journalctl
    declare(docker, data_root="/broken", cdi=True)
    assert [edit.before for edit in last_good.load(docker.host.files, "docker")] == [FOUND]
    assert run(docker)["restored"] == [DAEMON_JSON]
    assert (docker.state, docker.text()) == ("active", FOUND)


def test_a_daemon_that_is_well_with_neither_is_started_by_the_next_run(docker: Docker) -> None:
    declare(docker, cdi=True)
    restart_it = breaks(docker)
    for _attempt in range(2):
        assert (
            "and the previous configuration was restored, but it is not healthy with that either (Job for "
            "docker.service failed)" in run(docker)["msg"]
        )
        assert docker.text() == FOUND
        assert len(left(docker)) == 2
    docker.restart = restart_it  # type: ignore[method-assign]
    result = run(docker)
    assert (result["done"], result["why"]) == ("restart", "an earlier restart did not finish")
    assert docker.state == "active"
    assert left(docker) == []


def test_a_daemon_that_was_stopped_on_purpose_is_not_started(docker: Docker) -> None:
    (docker.root / "run/docker.pid").unlink()
    docker.state = "inactive"
    declare(docker, cdi=True)
    assert run(docker)["changed"] is False
    assert docker.calls == []


def test_files_with_which_the_daemon_would_not_start_do_not_stop_it(docker: Docker) -> None:
    declare(docker, cdi=True)
    docker.verdict = Completed(1, "", "unable to configure: the following directives don't match: nonsense\n")
    with pytest.raises(Refused) as caught:
        run(docker)
    assert str(caught.value) == (
        f"Cannot configure docker in {DAEMON_JSON}: dockerd --validate reports: unable to configure: the following "
        "directives don't match: nonsense. The file was left as it is."
    )
    assert docker.calls == []
    assert docker.state == "active"


def test_a_daemon_that_is_well_and_has_another_value_keeps_its_files_and_is_named(docker: Docker) -> None:
    declare(docker, cdi=True)
    docker.ignores = ("features",)
    result = run(docker, health_timeout=2)
    assert result["msg"] == (
        "Cannot apply cdi on docker: it is healthy after the restart, but its value is not that of its "
        "files (found false, wanted true). See effective and boot of gpufleet.node.container_runtime."
    )
    assert '"cdi": true' in (docker.text() or "")
    assert left(docker) == []


@pytest.mark.parametrize("data_root", ["/srv/docker", "/broken"])
def test_a_run_that_is_killed_anywhere_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_root: str
) -> None:
    points = 0
    while True:
        points += 1
        docker = Docker(tmp_path / str(points), monkeypatch)
        declare(docker, cdi=True, data_root=data_root)
        docker.host.files.log.clear()
        docker.host.files.kill_at = points
        try:
            run(docker)
        except Killed:
            pass
        else:
            break
        docker.host.files.kill_at = None
        run(docker)
        assert docker.state == "active"
        assert ("broken" in (docker.text() or "")) is False
        assert left(docker) == []
    assert points > (8 if data_root == "/broken" else 4)


def test_a_restart_after_absent_that_is_killed_anywhere_leaves_nothing_once_absent_ran_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = 0
    while True:
        points += 1
        docker = Docker(tmp_path / str(points), monkeypatch)
        there = snapshot(docker.root, leave_out=("proc", "run"))
        declare(docker, cdi=True)
        run(docker)
        declare(docker, state="gone")
        docker.host.files.log.clear()
        docker.host.files.kill_at = points
        try:
            run(docker)
        except Killed:
            pass
        else:
            break
        docker.host.files.kill_at = None
        declare(docker, state="gone")
        run(docker)
        assert docker.state == "active"
        assert snapshot(docker.root, leave_out=("proc", "run")) == there
        assert left(docker) == []
    assert points > 4


# --- refusals ---------------------------------------------------------------------------------------------------------


def remove(path: str) -> Callable[[Docker], None]:
    return lambda docker: (docker.root / path.lstrip("/")).unlink()


def no_systemd(docker: Docker) -> None:
    (docker.root / "run/systemd/system/.keep").unlink()
    (docker.root / "run/systemd/system").rmdir()


def damaged(docker: Docker) -> None:
    docker.write(DECLARED, "{")


def silent(docker: Docker) -> None:
    (docker.root / f"{SOCKET.lstrip('/')}.http/info").unlink()


def not_root(docker: Docker) -> None:
    docker.host.may_change = False


def by_hand(docker: Docker) -> None:
    docker.state = "inactive"


REFUSALS: Dict[str, Tuple[Callable[[Docker], None], Mapping[str, Any], type, str]] = {
    "no engine": (
        lambda docker: None,
        {"engine": "crio"},
        DeclarationError,
        "Cannot restart crio: it is not installed. Leave it out.",
    ),
    "no unit": (
        remove("/usr/lib/systemd/system/docker.service"),
        {},
        DeclarationError,
        "Cannot restart docker: no unit of systemd starts it. Restart it as it was started.",
    ),
    "another unit": (
        by_hand,
        {},
        Refused,
        "Cannot restart docker on docker.service: it runs, and this unit is inactive: something else has started it. "
        "Restart it as it was started.",
    ),
    "no systemd": (no_systemd, {}, DeclarationError, "Cannot restart docker: this machine does not run systemd."),
    "no time": (
        lambda docker: None,
        {"health_timeout": 0},
        DeclarationError,
        "Cannot restart docker on health_timeout: it is 0, and must be more than 0 seconds.",
    ),
    "a damaged declaration": (
        damaged,
        {},
        CannotLook,
        f"Cannot read the declaration in {DECLARED}: the file is damaged, or of another release. "
        "Run container_runtime again, which writes it.",
    ),
    "a declaration that is none": (
        lambda docker: docker.write(DECLARED, '{"schema": 1, "declaration": 5}'),
        {},
        CannotLook,
        f"Cannot read the declaration in {DECLARED}: the file is damaged, or of another release. "
        "Run container_runtime again, which writes it.",
    ),
    "a daemon that does not respond": (
        silent,
        {},
        CannotLook,
        "Cannot query dockerd in /run/docker.sock: Connection refused. See journalctl -u docker.",
    ),
    "another user": (
        not_root,
        {},
        NotPermitted,
        "Cannot restart docker: not running as root. Run the task with become: true.",
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSALS))
def test_what_cannot_be_is_refused_and_the_daemon_is_left_alone(docker: Docker, name: str) -> None:
    prepare, options, kind, message = REFUSALS[name]
    declare(docker, cdi=True)
    prepare(docker)
    text = docker.text()
    with pytest.raises(GpuFleetError) as caught:
        run(docker, **options)
    assert (type(caught.value), str(caught.value)) == (kind, message)
    assert (docker.calls, docker.text()) == ([], text)


# --- containerd and CRI-O ---------------------------------------------------------------------------------------------

CONFIG_TOML = "/etc/containerd/config.toml"


class Containerd(Daemon):
    """containerd 1.6. Where it ``breaks``, its plugin for Kubernetes does not load with a runtime of ours."""

    unit = "containerd.service"

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        unit = "[Service]\nExecStart=/usr/bin/containerd\n"
        files = {"/usr/bin/containerd": "", f"/usr/lib/systemd/system/{self.unit}": unit, CONFIG_TOML: text}
        super().__init__(root, monkeypatch, files)
        self.cri = "ok"
        self.breaks = False
        self.write("/proc/815/comm", "containerd\n")
        self.write("/proc/815/status", STATUS_OF_ROOT)
        self.host.commands.programs["ctr"] = self.ctr
        self.restart()

    def ctr(self, argv: Sequence[str]) -> Completed:
        assert list(argv) == ["ctr", "--address", "/run/containerd/containerd.sock", "plugins", "ls"]
        rows = [
            "TYPE                          ID         PLATFORMS    STATUS    ",
            "io.containerd.snapshotter.v1  devmapper  linux/amd64  error     ",
            f"io.containerd.grpc.v1         cri        linux/amd64  {self.cri:<10}",
        ]
        return Completed(0, "\n".join(rows) + "\n", "")

    def restart(self) -> None:
        self.state = "active"
        self.cri = "error" if self.breaks and "nvidia" in (self.text(CONFIG_TOML) or "") else "ok"
        self.write("/run/containerd/containerd.sock", "")


def test_containerd_is_well_when_its_plugin_for_kubernetes_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    containerd = Containerd(tmp_path, monkeypatch, "version = 2\n")
    assert declare(containerd, "containerd") == ("restart_containerd",)
    containerd.breaks = True
    result = run(containerd, "containerd", health_timeout=2)
    assert (
        "with the new configuration (its CRI plugin did not load), and it runs with the previous configuration again"
        in result["msg"]
    )
    assert containerd.text(CONFIG_TOML) == "version = 2\n"
    containerd.breaks = False
    assert declare(containerd, "containerd") == ("restart_containerd",)
    assert "failed" not in run(containerd, "containerd")
    assert declare(containerd, "containerd") == ()
    assert left(containerd) == []


BOUND = {
    "requires": ("[Unit]\nRequires=docker.socket containerd.service\n", "{}", 2),
    "is bound to": ("[Unit]\nBindsTo=containerd.service\n", "{}", 2),
    "is a part of": ("[Unit]\nPartOf=containerd.service\n", "{}", 2),
    "wants": ("[Unit]\nWants=containerd.service\nAfter=containerd.service\n", "{}", 0),
    "requires, with live restore": ("[Unit]\nRequires=containerd.service\n", '{"live-restore": true}', 0),
}


@pytest.mark.parametrize("name", sorted(BOUND))
def test_containers_of_docker_count_where_systemd_restarts_it_with_containerd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    unit, text, ended = BOUND[name]
    docker = Docker(tmp_path / "docker", monkeypatch, text, containers=2)
    docker.write(f"/usr/lib/systemd/system/{docker.unit}", f"{unit}[Service]\nExecStart=/usr/sbin/dockerd -H fd://\n")
    containerd = Containerd(tmp_path / "docker", monkeypatch, "version = 2\n")
    declare(containerd, "containerd")
    if ended:
        with pytest.raises(InUse) as caught:
            run(containerd, "containerd")
        assert str(caught.value).startswith(
            "Cannot restart containerd on containerd.service: 2 running containers of Docker, whose unit "
            "docker.service is bound to this one, would end with it, and it is needed because containerd reads "
            "runtime nvidia"
        )
        assert containerd.calls == []
        assert run(containerd, "containerd", when_containers_run="skip")["done"] is None
    result = run(containerd, "containerd", when_containers_run="restart")
    assert (result["done"], result["stopped_containers"]) == ("restart", ended)


class Crio(Daemon):
    """CRI-O, which answers on its socket what its drop-in says, and has no socket before its first start."""

    unit = "crio.service"

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch, {"/etc/crio/crio.conf": ""})
        self.host.commands.programs["crio"] = self.crio
        self.restart()

    def crio(self, argv: Sequence[str]) -> Completed:
        folder = self.root / argv[4].lstrip("/")
        return Completed(0, "".join(path.read_text() for path in sorted(folder.iterdir())), "")

    def restart(self) -> None:
        self.state = "active"
        self.write("/run/crio/crio.sock", "")
        self.write("/run/crio/crio.sock.http/config", self.text("/etc/crio/crio.conf.d/99-gpufleet.toml") or "")


def test_crio_is_restarted_until_it_says_that_it_has_the_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crio = Crio(tmp_path, monkeypatch)
    assert declare(crio, "crio") == ("restart_crio",)
    assert run(crio, "crio")["done"] == "restart"
    assert declare(crio, "crio") == ()
    assert run(crio, "crio")["changed"] is False


# --- the role ---------------------------------------------------------------------------------------------------------


def test_every_need_of_a_daemon_has_a_handler_that_asks_for_just_that() -> None:
    handlers = yaml.safe_load((ROLE / "handlers" / "main.yml").read_text())
    asked = {handler["listen"]: handler["gpufleet.node.container_engine_restart"] for handler in handlers}
    assert {listen: (options["action"], options["engine"]) for listen, options in asked.items()} == {
        f"container_runtime {need}": tuple(need.split("_")) for need in NEEDS
    }
    assert all(set(options) == set(RESTART_OPTIONS) for options in asked.values())


def test_the_role_runs_again_for_just_what_engines_say_that_they_need() -> None:
    values: Settings = {SettingName(RUNTIME, "nvidia"): NVIDIA, DEFAULT_RUNTIME: "nvidia", CDI: True}
    nothing: Settings = dict.fromkeys(values)
    some = [{**nothing, name: value} for name, value in values.items()]
    changes = [*((nothing, one) for one in some), *((one, nothing) for one in some)]
    taken = {(kind_of(engine).required_action(*change).action, engine) for engine in ENGINES for change in changes}
    produced = {f"{action}_{engine}" for action, engine in taken if action}
    (entry,) = (entry for entry in REGISTRY if entry.name == CONCERN.name)
    assert produced == set(NEEDS) == set(entry.registration.tells)


def test_the_role_declares_every_option_of_an_engine() -> None:
    options = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    declared = options["container_runtime_engines"]["options"]
    module = CONCERN.options["engines"]["options"]
    said = ("type", "elements", "choices", "default", "required")
    assert {name: {key: option[key] for key in said if key in option} for name, option in declared.items()} == module
