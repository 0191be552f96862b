# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""irqbalance: what it leaves alone, judged by a daemon that asks its policy scripts as the real one does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.baseline import Baseline, BaselineValue
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import Change, Conflict, Plan
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import OwnedByAnother, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import IN_SYNC, PENDING
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity import (
    irqbalance,
    irqbalance_apply,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.irqbalance import (
    DEVICES,
    DROP_IN,
    FOLDER,
    LEFT_ALONE,
    SCRIPT_NAME,
    SCRIPT_TEXT,
    UNIT,
    UNTOLD,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.spec import (
    COOPERATE,
    DISABLE,
    IGNORE,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity.irqbalance_machine import (
    BOOKWORM,
    CGROUP,
    DEFAULTS,
    DISK,
    GPU,
    LINK,
    NIC,
    TRIXIE,
    VENDOR,
    Irqbalance,
)
from ansible_collections.gpufleet.node.tests.unit.support import Killed, build

SCRIPT = f"{FOLDER}/{SCRIPT_NAME}"


class Machine:
    """A host with irqbalance, and runs on it."""

    def __init__(
        self,
        root: Path,
        *,
        files: Optional[Mapping[str, str]] = None,
        unit: str = TRIXIE,
        enabled: bool = True,
        runs: bool = True,
    ) -> None:
        units = {VENDOR: unit} if unit else {}
        devices = {f"/sys/bus/pci/devices/{address}/class": "0x020000\n" for address in (NIC, GPU, DISK)}
        links = {LINK: VENDOR} if enabled and unit else {}
        host_files = {
            "/run/systemd/system/.keep": "",
            "/proc/2/comm": "kthreadd\n",
            **units,
            **devices,
            **(files or {}),
        }
        self.host = build(root, host_files, links)
        self.daemon = Irqbalance(self.host, root)
        self.baseline = Baseline({})
        if runs:
            self.daemon.start()

    def plan(
        self,
        mode: str,
        devices: Sequence[str] = (),
        *,
        absent: bool = False,
        immediate: bool = True,
        permanent: bool = True,
    ) -> Plan:
        daemon = irqbalance.observe(self.host)
        irqbalance.refuse_impossible(daemon, mode)
        want = (
            irqbalance.restore(daemon, self.baseline)
            if absent
            else irqbalance.wanted(daemon, mode, devices, self.baseline)
        )
        made = irqbalance.settings(daemon, want, immediate=immediate, permanent=permanent)
        steps = irqbalance_apply.steps_of(daemon, want, made)
        return Plan(made, steps, conflicts=irqbalance.conflicts(daemon, mode, made))

    def run(self, mode: str, devices: Sequence[str] = (), **options: bool) -> Tuple[Change, ...]:
        """A run to the end, and the proof by a second look that nothing is left to do."""
        plan = self.plan(mode, devices, **options)
        for setting in plan.settings:
            value = BaselineValue(setting.effective, setting.boot)
            self.baseline = Baseline({(setting.identity, setting.setting): value, **self.baseline.values})
        for step in plan.steps:
            irqbalance_apply.perform(step, self.host)
        after = self.plan(mode, devices, **options)
        assert [setting for setting in after.settings if setting.status != IN_SYNC] == []
        assert after.steps == ()
        return plan.changes

    def status(self, mode: str, devices: Sequence[str] = ()) -> Dict[str, str]:
        return {setting.setting: setting.status for setting in self.plan(mode, devices).settings}


# Cooperation


@pytest.mark.parametrize("unit", [BOOKWORM, TRIXIE])
def test_it_leaves_the_declared_devices_alone_and_keeps_the_others(tmp_path: Path, unit: str) -> None:
    machine = Machine(tmp_path, unit=unit, files={DEFAULTS: 'IRQBALANCE_ARGS="--interval=30 --banmod=x"\n'})
    assert machine.daemon.banned == set()
    machine.run(COOPERATE, [NIC, GPU])
    assert machine.daemon.banned == {NIC, GPU}
    command = (tmp_path / "proc/4711/cmdline").read_text().split("\0")
    assert {"--interval=30", "--banmod=x", f"--policyscript={FOLDER}"} <= set(command)


def test_a_machine_that_is_right_is_only_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run(COOPERATE, [NIC])
    starts = machine.daemon.starts
    machine.host.files.log.clear()
    machine.host.commands.calls.clear()
    assert machine.run(COOPERATE, [NIC]) == ()
    assert (machine.host.files.log, machine.host.commands.calls) == ([], [])
    assert machine.daemon.starts == starts


def test_another_list_is_told_by_a_new_start_and_the_same_list_is_not(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run(COOPERATE, [NIC])
    changes = machine.run(COOPERATE, [GPU, NIC])
    assert [(change.setting, change.before, change.after) for change in changes] == [(LEFT_ALONE, NIC, f"{NIC} {GPU}")]
    assert machine.daemon.banned == {NIC, GPU}
    assert machine.run(COOPERATE, [NIC, GPU]) == ()
    machine.run(COOPERATE, [])
    assert machine.daemon.banned == set()


def test_a_device_that_went_away_is_no_reason_for_a_new_start(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run(COOPERATE, [NIC, GPU])
    shutil.rmtree(tmp_path / f"sys/bus/pci/devices/{GPU}")
    assert machine.run(COOPERATE, [NIC]) == ()


def test_at_boot_the_list_is_there_before_it_starts(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run(COOPERATE, [NIC])
    assert "After=gpufleet-boot.service\n" in machine.host.files.read(DROP_IN)
    machine.daemon.stop()
    shutil.rmtree(tmp_path / "run/gpufleet")
    starts = machine.daemon.starts
    machine.run(COOPERATE, [NIC], permanent=False)
    assert machine.daemon.starts == starts
    machine.daemon.start()
    assert machine.daemon.banned == {NIC}
    assert machine.run(COOPERATE, [NIC], permanent=False) == ()


@pytest.mark.parametrize("files", [{f"{FOLDER}/README": "x"}, {}])
def test_the_next_boot_alone_is_prepared_without_a_new_start(tmp_path: Path, files: Dict[str, str]) -> None:
    machine = Machine(tmp_path, files=files)
    starts = machine.daemon.starts
    machine.run(COOPERATE, [NIC], immediate=False)
    assert (machine.daemon.starts, machine.daemon.banned) == (starts, set())
    assert not machine.host.files.exists(DEVICES)
    for mode in (COOPERATE, DISABLE):
        assert machine.plan(mode, [NIC], immediate=False).conflicts == ()


def test_without_its_files_it_stays_as_it_is_and_is_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run(COOPERATE, [NIC], permanent=False)
    assert machine.daemon.banned == set()
    assert machine.daemon.starts == 1
    assert machine.plan(COOPERATE, [NIC], permanent=False).conflicts == (
        Conflict("irqbalance", "/proc/4711", None, "irqbalance", "smp_affinity", "/usr/sbin/irqbalance", "them"),
    )


def test_an_upgrade_that_changes_its_command_line_is_followed(tmp_path: Path) -> None:
    machine = Machine(tmp_path, unit=BOOKWORM)
    machine.run(COOPERATE, [NIC])
    (tmp_path / VENDOR.lstrip("/")).write_text(TRIXIE)
    machine.daemon.daemon_reload()
    machine.run(COOPERATE, [NIC])
    assert "--foreground" not in machine.host.files.read(DROP_IN)


def test_a_drop_in_of_others_keeps_its_say(tmp_path: Path) -> None:
    override = f"/etc/systemd/system/{UNIT}.d/override.conf"
    text = "[Service]\nExecStart=\nExecStart=/opt/irqbalance $IRQBALANCE_ARGS --powerthresh=2\n"
    machine = Machine(tmp_path, files={override: text})
    machine.run(COOPERATE, [NIC])
    command = (tmp_path / "proc/4711/cmdline").read_text().split("\0")
    assert command[:3] == ["/opt/irqbalance", "--powerthresh=2", f"--policyscript={FOLDER}"]
    assert machine.daemon.banned == {NIC}


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_of_others_gets_our_script_and_their_arguments_stay(tmp_path: Path, there: bool) -> None:
    files = {DEFAULTS: "IRQBALANCE_ARGS=--policyscript=/etc/irqbalance.d/\n"}
    if there:
        files["/etc/irqbalance.d/theirs"] = "#!/bin/sh\nexit 1\n"
    machine = Machine(tmp_path, files=files)
    machine.run(COOPERATE, [NIC])
    assert machine.daemon.banned == {NIC}
    assert "ExecStart" not in machine.host.files.read(DROP_IN)
    assert machine.host.files.read(f"/etc/irqbalance.d/{SCRIPT_NAME}") == SCRIPT_TEXT
    machine.run(COOPERATE, absent=True)
    assert machine.daemon.banned == set()
    assert machine.host.files.names("/etc/irqbalance.d") == (("theirs",) if there else ())


def test_a_policy_script_of_others_is_refused_with_the_way_out(tmp_path: Path) -> None:
    files = {DEFAULTS: "IRQBALANCE_ARGS=--policyscript=/etc/policy\n", "/etc/policy": "#!/bin/sh\n"}
    machine = Machine(tmp_path, files=files)
    with pytest.raises(OwnedByAnother) as caught:
        machine.run(COOPERATE, [NIC])
    assert str(caught.value) == (
        "Cannot exclude devices from irqbalance on irqbalance.service: its arguments already name a policy script, "
        "and it takes only one, or a folder (found /etc/policy). Put that script into a folder and name the folder, "
        "or set irqbalance: disable or irqbalance: ignore."
    )
    assert machine.host.files.log == []
    machine.run(DISABLE)
    assert machine.daemon.pid == 0


def test_a_unit_without_a_command_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path, unit="[Service]\nType=oneshot\n", runs=False)
    with pytest.raises(OwnedByAnother, match=r"it has not exactly one ExecStart\. Set irqbalance: disable or"):
        machine.run(COOPERATE, [NIC])


def test_it_stays_pending_while_systemd_must_not_read_its_drop_in(tmp_path: Path) -> None:
    container = {
        "/proc/99/comm": "train\n",
        "/proc/99/cgroup": "0::/system.slice/docker-1.scope\n",
        "/proc/99/root/dev/nvidiactl": "",
    }
    machine = Machine(tmp_path, files=container)
    for step in machine.plan(COOPERATE, [NIC]).steps:
        irqbalance_apply.perform(step, machine.host)
    assert machine.daemon.banned == set()
    plan = machine.plan(COOPERATE, [NIC])
    assert (plan.status, plan.needs, plan.steps) == (PENDING, (systemd.DAEMON_RELOAD,), ())
    shutil.rmtree(tmp_path / "proc/99")
    machine.run(COOPERATE, [NIC])
    assert machine.daemon.banned == {NIC}


def test_a_run_that_is_killed_anywhere_is_finished_by_the_next(tmp_path: Path) -> None:
    for kill_at in range(1, 100):
        machine = Machine(tmp_path / str(kill_at))
        machine.host.files.kill_at = kill_at
        try:
            machine.run(COOPERATE, [NIC])
        except Killed:
            machine.host.files.kill_at = None
            machine.run(COOPERATE, [NIC])
            assert machine.daemon.banned == {NIC}
            continue
        assert kill_at > 8
        return
    raise AssertionError("it never came to its end")


def test_a_daemon_that_ends_at_once_is_a_failure_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(irqbalance_apply, "START_SECONDS", 0.0)
    machine = Machine(tmp_path)
    machine.daemon.ends_at_once = True
    with pytest.raises(Refused, match=r"restart irqbalance\.service.*it is not running.*journalctl --unit irqbalance"):
        machine.run(COOPERATE, [NIC])
    machine.daemon.ends_at_once = False
    assert machine.host.files.exists(UNTOLD)
    assert LEFT_ALONE in {change.setting for change in machine.run(COOPERATE, [NIC])}
    assert not machine.host.files.exists(UNTOLD)


# Where it is not, or not ours


def test_a_machine_without_it_has_nothing_of_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, unit="", runs=False)
    for mode in (COOPERATE, DISABLE, IGNORE):
        assert machine.plan(mode, [NIC]) == Plan()


def test_a_masked_one_is_left_masked(tmp_path: Path) -> None:
    machine = Machine(tmp_path, enabled=False, runs=False)
    (tmp_path / f"etc/systemd/system/{UNIT}").parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / f"etc/systemd/system/{UNIT}").symlink_to("/dev/null")
    for mode in (COOPERATE, DISABLE, IGNORE):
        assert machine.plan(mode, [NIC]) == Plan()


def test_a_disabled_one_stays_so_and_knows_what_to_leave_alone_should_it_be_started(tmp_path: Path) -> None:
    machine = Machine(tmp_path, enabled=False, runs=False)
    machine.run(COOPERATE, [NIC])
    assert machine.daemon.starts == 0
    assert systemd.enabled(machine.host.files, UNIT) == systemd.DISABLED
    machine.daemon.start()
    assert machine.daemon.banned == {NIC}


@pytest.mark.parametrize("mode", [COOPERATE, DISABLE, IGNORE])
def test_one_that_its_unit_did_not_start_is_named_and_not_touched(tmp_path: Path, mode: str) -> None:
    machine = Machine(tmp_path, unit="", runs=False)
    machine.daemon.run(["irqbalance", "--debug"], cgroup="/user.slice/session-1.scope")
    plan = machine.plan(mode, [NIC])
    assert (plan.settings, plan.steps) == ((), ())
    assert plan.conflicts == (
        Conflict("irqbalance", "/proc/4711", None, "irqbalance", "smp_affinity", "irqbalance --debug", "them"),
    )


def test_threads_of_the_kernel_are_not_searched(tmp_path: Path) -> None:
    threads = {f"/proc/{pid}/comm": "kworker\n" for pid in range(3, 9)}
    files = {**threads, "/proc/2/task/2/children": "3 4 5 6 7 8 ", "/proc/1/comm": "systemd\n"}
    machine = Machine(tmp_path, files=files, unit="", runs=False)
    machine.host.files.reads.clear()
    assert irqbalance.process(machine.host.files) is None
    assert [path for path in machine.host.files.reads if path.endswith("/comm")] == [
        "/proc/2/comm",
        "/proc/1/comm",
        "/proc/2/comm",
    ]


def test_what_it_asks_is_not_taken_for_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / CGROUP.lstrip("/")).write_text("4000\n4711\n")
    (tmp_path / "proc/4000").mkdir()
    (tmp_path / "proc/4000/comm").write_text("sh\n")
    seen = irqbalance.process(machine.host.files)
    assert seen is not None
    assert (seen.pid, seen.by_unit) == (4711, True)


# The other modes, and the way back


def test_disabled_it_does_not_run_now_nor_at_boot_and_absent_gives_it_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run(DISABLE)
    assert machine.daemon.pid == 0
    assert systemd.enabled(machine.host.files, UNIT) == systemd.DISABLED
    machine.run(DISABLE, absent=True)
    assert machine.daemon.pid
    assert systemd.enabled(machine.host.files, UNIT) == systemd.ENABLED


def test_one_that_was_off_before_stays_off_when_it_is_restored(tmp_path: Path) -> None:
    machine = Machine(tmp_path, enabled=False, runs=False)
    assert machine.run(DISABLE) == ()
    assert machine.run(DISABLE, absent=True) == ()
    assert machine.daemon.starts == 0


@pytest.mark.parametrize("later", [COOPERATE, IGNORE])
def test_what_an_earlier_declaration_disabled_comes_back_with_another_one(tmp_path: Path, later: str) -> None:
    machine = Machine(tmp_path)
    machine.run(DISABLE)
    machine.run(later, [NIC])
    assert systemd.enabled(machine.host.files, UNIT) == systemd.ENABLED
    assert machine.daemon.banned == ({NIC} if later == COOPERATE else set())


@pytest.mark.parametrize("way", ["absent", IGNORE, DISABLE])
def test_cooperation_that_ends_leaves_no_file_behind(tmp_path: Path, way: str) -> None:
    machine = Machine(tmp_path)
    machine.run(COOPERATE, [NIC])
    machine.run(COOPERATE if way == "absent" else way, absent=way == "absent")
    for path in (SCRIPT, DROP_IN, DEVICES, UNTOLD):
        assert not machine.host.files.exists(path)
    assert machine.daemon.banned == set()
    assert (machine.daemon.pid == 0) == (way == DISABLE)


def test_ignored_it_is_named_as_who_has_the_last_word(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    plan = machine.plan(IGNORE, [NIC])
    assert (plan.settings, plan.steps) == ((), ())
    assert [(conflict.owner, conflict.wins) for conflict in plan.conflicts] == [("irqbalance", "them")]
    machine.daemon.stop()
    assert machine.plan(IGNORE, [NIC]) == Plan()


# What is read


@pytest.mark.parametrize(
    ("words", "policy"),
    [
        ([], ""),
        (["--foreground"], ""),
        (["--policyscript=/a"], "/a"),
        (["--policyscript", "/a", "--debug"], "/a"),
        (["-l", "/a"], "/a"),
        (["-l/a"], "/a"),
        (["-jl", "/a"], "/a"),
        (["-fdl/a"], "/a"),
        (["--policyscript=a/b"], "/a/b"),
        (["--pol=/a/"], "/a"),
        (["--powerthresh=4"], ""),
        (["--policyscript=/a", "-l", "/b"], "/b"),
        (["--policyscript"], ""),
    ],
)
def test_the_last_policy_on_a_command_line_counts(words: List[str], policy: str) -> None:
    assert irqbalance.policy_of(["/usr/sbin/irqbalance", *words]) == policy


@pytest.mark.parametrize(
    ("unit", "files", "policy", "banned"),
    [
        ("", {}, "", ""),
        ("Environment=IRQBALANCE_ARGS=-l/a 'IRQBALANCE_BANNED_CPULIST=0-3'\n", {}, "/a", "0-3"),
        ("Environment=IRQBALANCE_ARGS=-l/a\n", {DEFAULTS: "IRQBALANCE_ARGS='-d -l /b'\n"}, "/b", ""),
        ("", {DEFAULTS: "#IRQBALANCE_ARGS=-l/a\nIRQBALANCE_BANNED_CPUS=ff\n"}, "", "ff"),
        ("", {DEFAULTS: 'IRQBALANCE_ARGS="--debug \\\n  --policyscript=/c"\n'}, "/c", ""),
        ("", {DEFAULTS: "IRQBALANCE_ARGS=-l/a\0\0\0\n"}, "", ""),
        (
            "EnvironmentFile=/etc/more\n",
            {DEFAULTS: "IRQBALANCE_ARGS=-l/a\n", "/etc/more": "IRQBALANCE_ARGS=\n"},
            "",
            "",
        ),
    ],
)
def test_its_environment_is_that_of_systemd_in_its_order(
    tmp_path: Path, unit: str, files: Dict[str, str], policy: str, banned: str
) -> None:
    text = TRIXIE.replace("ExecStart=", f"{unit}ExecStart=")
    machine = Machine(tmp_path, unit=text, files=files, runs=False)
    seen = irqbalance.observe(machine.host)
    assert (seen.policy, seen.banned_cpus) == (policy, banned)


def test_it_is_told_in_its_own_words(tmp_path: Path) -> None:
    machine = Machine(tmp_path, files={DEFAULTS: "IRQBALANCE_BANNED_CPULIST=0\n"})
    machine.run(COOPERATE, [NIC])
    assert irqbalance.report(irqbalance.observe(machine.host)) == {
        "running": True,
        "start_at_boot": "enabled",
        "policy": FOLDER,
        "banned_cpus": "0",
        "devices_left_alone": [NIC],
    }
