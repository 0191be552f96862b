# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Units that are off: what goes with them, what is refused, and what comes back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, List, Mapping

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, InUse
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.quiet_services.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.quiet_services.quiet_services_machine import (
    ENABLED,
    ETC,
    LIB,
    ONESHOT,
    SERVICE,
    TIMER,
    machine,
    units_of,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build, snapshot


def run(host: FakeHost, *units: Any, check: bool = False, **more: Any) -> Outcome:
    validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate({"units": [*units], **more})
    assert validated.error_messages == []
    outcome = converge(CONCERN, validated.validated_parameters, host, check_mode=check)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def optional(*names: str, **more: Any) -> Mapping[str, Any]:
    return {"name": list(names), "optional": True, **more}


# What goes off


def test_a_unit_is_masked_and_stopped_and_a_second_run_asks_once_and_changes_nothing(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host, "man-db.timer")
    assert (outcome.boot["units"], outcome.effective["units"]) == (
        {"man-db.timer": "masked"},
        {"man-db.timer": "stopped"},
    )
    assert host.files.link(f"{ETC}/man-db.timer") == "/dev/null"
    units_of(host).asked.clear()
    again = run(host, "man-db.timer")
    assert (again.status, again.changes) == ("in_sync", ())
    assert units_of(host).asked == [["man-db.timer", "man-db.service"]]


def test_what_triggers_a_service_goes_with_it_and_is_stopped_first(tmp_path: Path) -> None:
    host = machine(tmp_path)
    assert run(host, "cups.service").boot["units"] == dict.fromkeys(
        ("cups.service", "cups.socket", "cups.path"), "masked"
    )
    calls = [call for call in host.commands.calls if "stop" in call or "mask" in call]
    triggers, masks, service = calls
    # A timer or a path that waits for a unit that is masked fails.
    assert triggers == ("systemctl", "stop", "cups.socket", "cups.path")
    assert "mask" in masks
    assert service == ("systemctl", "stop", "cups.service")
    assert sorted(units_of(host).active) == ["apt-daily.timer", "man-db.timer"]


def test_so_does_what_triggers_it_by_another_name(tmp_path: Path) -> None:
    host = machine(tmp_path, {"nightly.timer": TIMER}, active=["nightly.timer"])
    units_of(host).said["man-db.service"] = {"TriggeredBy": "man-db.timer nightly.timer"}
    assert run(host, "man-db.service").boot["units"]["nightly.timer"] == "masked"
    assert units_of(host).active == set()


def test_disable_removes_the_links_and_leaves_a_mask_of_somebody_else(tmp_path: Path) -> None:
    host = machine(tmp_path)
    build(tmp_path, {}, {f"{ETC}/apt-daily.timer": "/dev/null"})
    outcome = run(host, "man-db.timer", "man-db.service", "apt-daily.timer", method="disable")
    assert outcome.boot["units"] == {
        "man-db.timer": "disabled",
        "man-db.service": "static",
        "apt-daily.timer": "masked",
    }
    assert run(host, "man-db.timer", "man-db.service", "apt-daily.timer", method="disable").changes == ()


def test_who_starts_a_unit_that_is_only_disabled_is_named(tmp_path: Path) -> None:
    bus = "/usr/share/dbus-1/system-services/org.x.service"
    host = machine(tmp_path, {"desk.service": SERVICE})
    build(tmp_path, {bus: ""})
    units_of(host).said["cups.service"] = {"BusName": "org.x", "WantedBy": "multi-user.target desk.service"}
    conflicts = run(host, "cups.service", method="disable").as_dict()["conflicts"]
    assert [(entry["owner"], entry["path"], entry["object"], entry["wins"]) for entry in conflicts] == [
        ("D-Bus", bus, "cups.service", "them"),
        ("systemd", f"{LIB}/desk.service", "cups.service", "them"),
    ]
    assert run(host, "cups.service").as_dict()["conflicts"] == []


def test_another_name_of_a_unit_means_the_unit(tmp_path: Path) -> None:
    host = machine(tmp_path)
    build(tmp_path, {}, {f"{LIB}/print.service": "cups.service"})
    assert "cups.service" in run(host, "print.service").boot["units"]
    build(tmp_path, {}, {f"{LIB}/shell.service": "sshd.service"})
    with pytest.raises(DeclarationError, match=r"Cannot quiet sshd\.service: people and Ansible log in by it"):
        run(host, "shell.service")


def test_an_entry_counts_on_its_distribution_and_the_first_that_names_a_unit_wins(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(
        host,
        {"name": "man-db.timer", "distribution": "rhel", "method": "disable"},
        {"name": "man-db.timer", "distribution": ["ubuntu", "debian"]},
        {"name": "man-db.timer", "method": "disable"},
        {"name": "gone.timer", "distribution": "suse"},
    )
    assert outcome.boot["units"] == {"man-db.timer": "masked"}


def test_what_is_only_for_the_next_boot_or_only_for_now(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host, "man-db.timer", immediate=False)
    assert (outcome.boot["units"]["man-db.timer"], "man-db.timer" in units_of(host).active) == ("masked", True)
    outcome = run(host, "apt-daily.timer", permanent=False)
    assert (outcome.boot["units"]["apt-daily.timer"], "apt-daily.timer" in units_of(host).active) == ("enabled", False)


def test_where_systemd_does_not_run_the_next_boot_is_set(tmp_path: Path) -> None:
    host = machine(tmp_path)
    for path in ("run/systemd/system/.keep", "run/systemd/system", "run/systemd"):
        target = tmp_path / path
        target.unlink() if target.is_file() else target.rmdir()
    outcome = run(host, "man-db.timer")
    assert (outcome.boot["units"], outcome.effective["units"]) == ({"man-db.timer": "masked"}, {"man-db.timer": None})
    assert [call[1] for call in host.commands.calls] == ["--no-reload"]


# Jobs


def test_a_job_that_a_timer_began_is_left_to_end_and_pending_until_then(tmp_path: Path) -> None:
    host = machine(tmp_path)
    units_of(host).states["man-db.service"] = "activating"
    outcome = run(host, "man-db.timer")
    assert (outcome.status, outcome.remaining.status) == ("drifted", "pending")
    assert outcome.as_dict()["needs"] == ["end of man-db.service"]
    assert not outcome.as_dict()["reboot_required"]
    [job] = outcome.remaining.pending
    assert (job.object, job.setting) == ("man-db.service", "job in progress")
    assert units_of(host).states == {"man-db.service": "activating"}
    units_of(host).states.clear()
    assert run(host, "man-db.timer").status == "in_sync"


@pytest.mark.parametrize("said", [{}, {"LoadState": "masked", "Type": ""}])
def test_so_is_one_of_a_declared_service_and_it_is_stopped_where_that_is_declared(
    tmp_path: Path, said: Mapping[str, str]
) -> None:
    host = machine(tmp_path)
    units_of(host).states["man-db.service"] = "activating"
    units_of(host).said["man-db.service"] = dict(said)
    assert run(host, "man-db.service").remaining.status == "pending"
    assert units_of(host).states == {"man-db.service": "activating"}
    outcome = run(host, "man-db.service", stop_jobs=True)
    assert (outcome.remaining.status, units_of(host).states) == ("in_sync", {})
    # It is not begun again.
    run(host, state="absent")
    assert units_of(host).active == set(ENABLED)


# What is refused

LEAVE_OUT = "Leave it out: a GPU node cannot do without it."


@pytest.mark.parametrize(
    ("units", "message"),
    [
        (["sshd.service"], f"Cannot quiet sshd.service: people and Ansible log in by it. {LEAVE_OUT}"),
        (["getty@tty1.service"], f"Cannot quiet getty@tty1.service: people and Ansible log in by it. {LEAVE_OUT}"),
        (
            ["NetworkManager.service"],
            f"Cannot quiet NetworkManager.service: the network of the node needs it. {LEAVE_OUT}",
        ),
        (["slurmd.service"], f"Cannot quiet slurmd.service: the node's scheduler needs it. {LEAVE_OUT}"),
        (["kubelet.service"], f"Cannot quiet kubelet.service: the node's scheduler needs it. {LEAVE_OUT}"),
        (["docker.socket"], f"Cannot quiet docker.socket: it runs the node's containers. {LEAVE_OUT}"),
        (["containerd.service"], f"Cannot quiet containerd.service: it runs the node's containers. {LEAVE_OUT}"),
        (["systemd-journald.socket"], f"Cannot quiet systemd-journald.socket: systemd itself works by it. {LEAVE_OUT}"),
        (["dbus.service"], f"Cannot quiet dbus.service: systemd itself works by it. {LEAVE_OUT}"),
        (
            ["gpufleet-boot.service"],
            f"Cannot quiet gpufleet-boot.service: it applies what is declared at boot. {LEAVE_OUT}",
        ),
        (["nvidia-persistenced.service"], f"Cannot quiet nvidia-persistenced.service: the GPUs need it. {LEAVE_OUT}"),
        (
            [optional("chronyd.service")],
            f"Cannot quiet chronyd.service: it sets the clock, which authentication needs. {LEAVE_OUT}",
        ),
        (
            ["man-db.timr"],
            "Cannot use units[0]: 'man-db.timr' does not end in .service, .socket, .timer or .path. Did you"
            " mean man-db.timer?",
        ),
        (["data.mount"], "Cannot use units[0]: 'data.mount' does not end in .service, .socket, .timer or .path."),
        (["man db.timer"], "Cannot use units[0]: 'man db.timer' is not the name of a unit."),
        ([7], "Cannot use units[0]: 7 is not the name of a unit."),
        (
            ["a@.service"],
            "Cannot use units[0]: 'a@.service' is a template, of which only the instances start. Name an instance,"
            " such as a@1.service.",
        ),
        (
            ["cups"],
            "Cannot use units[0]: 'cups' does not end in .service, .socket, .timer or .path. Write cups.service, if it"
            " is a service.",
        ),
        ([{"nam": "x.service"}], "Cannot use units[0]: there is no key nam. Did you mean name?"),
        ([{"optional": True}], "Cannot use units[0]: name is None, and must be a string or a list of strings."),
        (
            [{"name": "a.service", "method": "stop"}],
            "Cannot use units[0]: method is 'stop', and must be mask or disable.",
        ),
        (
            [{"name": "a.service", "optional": "perhaps"}],
            "Cannot use units[0]: optional is 'perhaps', and must be true or false.",
        ),
        (
            ["mandb.timer"],
            "Cannot quiet mandb.timer: this machine has no such unit. Did you mean man-db.timer? Otherwise leave it"
            " out, or set optional: true for it.",
        ),
        (
            ["xyz.timer"],
            "Cannot quiet xyz.timer: this machine has no such unit. Leave it out, or set optional: true for it.",
        ),
    ],
)
def test_what_is_wrong_is_refused_before_anything_changes(tmp_path: Path, units: List[Any], message: str) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    with pytest.raises(DeclarationError) as caught:
        run(host, *units, "apt-daily.timer")
    assert str(caught.value) == message
    assert (snapshot(tmp_path), units_of(host).active) == (before, set(ENABLED))


def test_a_unit_that_another_one_requires_is_refused_unless_both_are_declared(tmp_path: Path) -> None:
    host = machine(tmp_path, {"cups-browsed.service": SERVICE}, active=[*ENABLED, "cups-browsed.service"])
    units_of(host).said["cups.service"] = {"RequiredBy": "cups-browsed.service cups.socket"}
    message = (
        "Cannot stop cups.service: cups-browsed.service runs, requires it, and would stop with it. Declare"
        " cups-browsed.service as well, or leave cups.service out."
    )
    with pytest.raises(InUse, match=re.escape(message)):
        run(host, "cups.service")
    assert "cups.service" in units_of(host).active
    assert run(host, "cups.service", "cups-browsed.service").remaining.status == "in_sync"


def test_a_unit_whose_file_stands_where_the_mask_would_is_refused(tmp_path: Path) -> None:
    host = machine(tmp_path)
    build(tmp_path, {f"{ETC}/own.service": SERVICE})
    with pytest.raises(DeclarationError, match=r"Cannot mask own\.service: /etc/systemd/system/own\.service is"):
        run(host, "own.service")
    assert run(host, "own.service", method="disable").boot["units"]["own.service"] == "disabled"


def test_one_that_a_package_has_started_cannot_be_disabled(tmp_path: Path) -> None:
    host = machine(tmp_path, {"clean.timer": "[Timer]\nOnCalendar=daily\n"})
    build(tmp_path, {}, {f"{LIB}/timers.target.wants/clean.timer": "../clean.timer"})
    with pytest.raises(DeclarationError, match=r"Cannot disable clean\.timer: .*timers\.target\.wants starts it"):
        run(host, "clean.timer", method="disable")
    assert run(host, "clean.timer").boot["units"]["clean.timer"] == "masked"


def test_what_a_machine_may_lack_is_skipped(tmp_path: Path) -> None:
    assert run(machine(tmp_path), optional("xyz.timer", "man-db.timer")).boot["units"] == {"man-db.timer": "masked"}


# What comes back


def test_absent_restores_both_what_a_boot_makes_of_a_unit_and_whether_it_runs(tmp_path: Path) -> None:
    host = machine(tmp_path, active=["man-db.timer", "cups.socket", "cups.path"])
    before = snapshot(tmp_path)
    run(host, "man-db.timer", {"name": ["cups.service"], "method": "disable"})
    assert units_of(host).active == set()
    outcome = run(host, state="absent")
    assert outcome.remaining.status == "in_sync"
    assert units_of(host).active == {"man-db.timer", "cups.socket", "cups.path"}
    assert snapshot(tmp_path) == before


def test_a_unit_that_was_removed_in_between_keeps_no_mask(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, "man-db.timer")
    host.files.remove(f"{LIB}/man-db.timer")
    assert run(host, "man-db.timer").status == "in_sync"
    outcome = run(host, state="absent")
    assert host.files.link(f"{ETC}/man-db.timer") == ""
    assert outcome.as_dict()["unmanaged"] == [
        {"object": "man-db.timer", "setting": "start at boot", "reason": "the unit is no longer installed"}
    ]
    assert "man-db.timer" not in units_of(host).active


def test_a_unit_is_started_only_when_systemd_may_read_that_it_is_unmasked(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, "man-db.timer")
    units_of(host).said["man-db.timer"] = {"LoadState": "masked"}
    scope = "docker-a.scope"
    build(tmp_path, {"/proc/71/cgroup": f"0::/system.slice/{scope}\n", "/proc/71/root/dev/nvidiactl": ""})
    units_of(host).said[scope] = {"DevicePolicy": "strict"}
    outcome = run(host, state="absent")
    assert outcome.remaining.status == "pending"
    assert outcome.as_dict()["needs"] == ["daemon-reload"]
    assert outcome.boot["units"] == {"man-db.timer": "enabled"}
    host.files.remove("/proc/71/cgroup")
    assert run(host, state="absent").remaining.status == "in_sync"
    assert "man-db.timer" in units_of(host).active


def test_a_service_of_its_own_is_no_job(tmp_path: Path) -> None:
    host = machine(tmp_path, {"own.service": SERVICE, "once.service": ONESHOT}, active=["own.service", "once.service"])
    run(host, "own.service", "once.service")
    assert units_of(host).active == set()


def test_a_converged_look_asks_more_only_of_services(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, "man-db.timer", "cups.service", "apt-daily.timer")
    units_of(host).asked.clear()
    host.files.reads.clear()
    run(host, "man-db.timer", "cups.service", "apt-daily.timer", check=True)
    (every, services) = units_of(host).asked
    assert {"man-db.timer", "man-db.service", "cups.socket"} <= set(every)
    assert services == ["cups.service"]
    assert [path for path in host.files.reads if path.startswith(LIB)] == []


def test_systemctl_is_not_started_where_systemd_answers_itself(tmp_path: Path) -> None:
    apart, bus = machine(tmp_path / "a", {"nightly.timer": TIMER}), machine(tmp_path / "b", {"nightly.timer": TIMER})
    bus.ask_systemd = units_of(bus).on_the_bus  # type: ignore[method-assign]
    for host in (apart, bus):
        units_of(host).said["cups.service"] = {"TriggeredBy": "cups.socket nightly.timer"}
        units_of(host).states["man-db.service"] = "activating"
    names = ("man-db.timer", "cups.service")
    first, second = run(apart, *names), run(bus, *names)
    assert {"cups.path": "masked", "nightly.timer": "masked"}.items() <= second.boot["units"].items()
    assert [change.setting for change in second.changes] == [change.setting for change in first.changes]
    assert (second.status, second.effective, second.boot) == (first.status, first.effective, first.boot)
    assert (units_of(apart).asked != [], units_of(bus).asked) == (True, [])


def test_each_unit_is_named_once_among_the_knobs_of_all_concerns() -> None:
    params = {"units": [{"name": ["a.timer", "a.timer"]}, "b.service"], "method": "mask", "stop_jobs": False}
    assert CONCERN.knobs(CONCERN.parse(params)) == ("unit a.timer", "unit b.service")
