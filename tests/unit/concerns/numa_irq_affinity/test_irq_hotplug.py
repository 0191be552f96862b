# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Devices that come later: the rule of udev and the unit, as their programs judge them, and how they come and go."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import Plan
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import IN_SYNC, PENDING
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd, systemd_apply
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import EXEC_START
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity import hotplug
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.hotplug import (
    RULES,
    RULES_TEXT,
    UNIT,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.plan import hotplug_steps
from ansible_collections.gpufleet.node.tests.unit.node.boot_concern import verify
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

TEXT = hotplug.unit_text(irqbalance=True)
UNIT_PATH = f"/etc/systemd/system/{UNIT}"


# The rule


Part = Tuple[str, str, str, str]
"""Key, name in braces, sign and value."""


def applying(event: Mapping[str, str]) -> List[List[Part]]:
    """The rules that apply to an event, by the rules of udev(7) for the few keys they use."""
    found: List[List[Part]] = []
    for line in RULES_TEXT.splitlines():
        if not line or line.startswith("#"):
            continue
        parts = re.findall(r'([A-Z]+)(?:\{([\w/\[\]]+)\})?(==|\+?=)"([^"]*)"(?:, |$)', line)
        assert (
            ", ".join(f'{key}{f"{{{name}}}" if name else ""}{sign}"{value}"' for key, name, sign, value in parts)
            == line
        )
        matches = [(key, value) for key, _name, sign, value in parts if sign == "=="]
        if all(any(globbed(pattern, event.get(key, "")) for pattern in value.split("|")) for key, value in matches):
            found.append(parts)
    return found


def wants(event: Mapping[str, str]) -> List[str]:
    """What the rules make systemd start for an event."""
    asking = [rule for rule in applying(event) if any(name == "SYSTEMD_WANTS" for _key, name, _sign, _value in rule)]
    assert all(("TAG", "", "+=", "systemd") in rule for rule in asking)
    return [value for rule in asking for _key, name, _sign, value in rule if name == "SYSTEMD_WANTS"]


def writes(event: Mapping[str, str]) -> List[Tuple[str, str]]:
    """The attributes of sysfs that the rules write for an event, in their order."""
    return [
        (name, value) for rule in applying(event) for key, name, sign, value in rule if (key, sign) == ("ATTR", "=")
    ]


def globbed(pattern: str, text: str) -> bool:
    """As fnmatch(3) without FNM_PATHNAME: a star takes slashes too."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None


PORT = "/devices/pci0000:16/0000:16:02.0/0000:17:00.0"


@pytest.mark.parametrize(
    ("subsystem", "path"),
    [
        ("net", f"{PORT}/net/eth0"),
        ("net", f"{PORT}/virtio3/net/eth0"),
        ("net", "/devices/platform/soc/40000000.pcie/pci0000:00/0000:00:00.0/net/eth0"),
        ("queues", f"{PORT}/net/eth0/queues/rx-63"),
        ("infiniband", f"{PORT}/infiniband/mlx5_0"),
        ("nvme", f"{PORT}/nvme/nvme0"),
        ("module", "/module/nvidia"),
        ("module", "/module/mlx5_core"),
    ],
)
def test_what_brings_interrupts_starts_the_unit_once(subsystem: str, path: str) -> None:
    event = {"SUBSYSTEM": subsystem, "DEVPATH": path, "KERNEL": path.rpartition("/")[2]}
    assert wants(event) == [UNIT]


@pytest.mark.parametrize(
    ("subsystem", "path"),
    [
        ("net", "/devices/virtual/net/veth1"),
        ("queues", "/devices/virtual/net/veth1/queues/tx-0"),
        ("infiniband", "/devices/virtual/infiniband/rxe0"),
        ("nvme", "/devices/virtual/nvme-fabrics/ctl/nvme1"),
        ("block", f"{PORT}/nvme/nvme0/nvme0n1"),
        ("pci", PORT),
        ("module", "/module/nvidia_uvm"),
        ("module", "/module/loop"),
    ],
)
def test_what_comes_with_containers_and_what_has_no_interrupts_starts_nothing(subsystem: str, path: str) -> None:
    assert wants({"SUBSYSTEM": subsystem, "DEVPATH": path, "KERNEL": path.rpartition("/")[2]}) == []


def queue(action: str, port: str = PORT) -> Dict[str, str]:
    path = f"{port}/net/eth0/queues/rx-3"
    return {"ACTION": action, "SUBSYSTEM": "queues", "DEVPATH": path, "KERNEL": "rx-3"}


def test_for_a_queue_that_goes_a_module_that_is_always_there_goes_and_comes_back_and_starts_the_unit() -> None:
    said = writes(queue("remove"))
    assert said == [("[module/kernel]uevent", "remove"), ("[module/kernel]uevent", "add")]
    assert wants({"SUBSYSTEM": "module", "DEVPATH": "/module/kernel", "KERNEL": "kernel", "ACTION": "add"}) == [UNIT]


@pytest.mark.parametrize(
    "event", [queue("add"), queue("remove", "/devices/virtual"), {**queue("remove"), "SUBSYSTEM": "net"}]
)
def test_nothing_is_said_to_come_back_for_a_queue_that_comes_or_has_no_interrupt(event: Mapping[str, str]) -> None:
    assert writes(event) == []


def test_udev_runs_no_program_and_no_number_of_an_interrupt_is_kept() -> None:
    rules = "".join(line for line in RULES_TEXT.splitlines() if not line.startswith("#"))
    assert not re.search(r"RUN|PROGRAM|IMPORT|/proc/irq", rules)
    assert "/proc/irq" not in TEXT


def test_udev_accepts_the_rules(tmp_path: Path) -> None:
    udevadm = shutil.which("udevadm")
    if udevadm is None:
        pytest.skip("there is no udevadm here")
    (tmp_path / "99.rules").write_text(RULES_TEXT)
    done = subprocess.run([udevadm, "verify", str(tmp_path / "99.rules")], capture_output=True, text=True, check=False)
    if "nknown command" in done.stderr:
        pytest.skip("udevadm verify came with systemd 254")
    assert (done.returncode, done.stderr) == (0, "")


# The unit


@pytest.mark.parametrize("cooperates", [True, False])
def test_systemd_has_nothing_to_say_against_the_unit(tmp_path: Path, cooperates: bool) -> None:
    assert verify(tmp_path, {UNIT: hotplug.unit_text(irqbalance=cooperates)}, checked=UNIT) == []


def test_many_events_never_make_it_fail_and_one_during_a_run_is_seen_by_the_next_look() -> None:
    assert "StartLimitIntervalSec=0" in TEXT.splitlines()
    assert f"ExecStart={EXEC_START} boot --concern numa_irq_affinity --again 5 --timeout 240" in TEXT.splitlines()
    # One that stayed active would not be started again.
    assert "RemainAfterExit" not in TEXT


def test_irqbalance_starts_anew_before_anything_is_placed_and_only_where_it_cooperates() -> None:
    lines = TEXT.splitlines()
    restart = lines.index("ExecStartPre=-systemctl try-restart irqbalance.service")
    assert restart < next(index for index, line in enumerate(lines) if line.startswith("ExecStart="))
    assert "irqbalance" not in hotplug.unit_text(irqbalance=False)


# How they come and go


class Programs:
    """``systemctl`` and ``udevadm``, which note what was on disk when they were told to read."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host
        self.rules: Optional[str] = None
        self.unit: Optional[str] = None
        host.commands.programs.update(systemctl=self.systemctl, udevadm=self.udevadm)

    def systemctl(self, argv: Sequence[str]) -> Completed:
        text = self.host.files.read_optional(UNIT_PATH)
        if argv[1] == "daemon-reload":
            self.unit = text
            return Completed(0, "", "")
        if "NeedDaemonReload" in argv[2]:
            # A unit that was never loaded is read when it is first asked for.
            due = self.unit is not None and text != self.unit
            return Completed(0, f"NeedDaemonReload={'yes' if due else 'no'}\n", "")
        return Completed(0, "Id=docker-1.scope\nDevicePolicy=strict\nDeviceAllow=/dev/null rwm\n", "")

    def udevadm(self, argv: Sequence[str]) -> Completed:
        assert list(argv) == ["udevadm", "control", "--reload"]
        self.rules = self.host.files.read_optional(RULES)
        return Completed(0, "", "")


def machine(root: Path, files: Optional[Dict[str, str]] = None) -> Tuple[FakeHost, Programs]:
    host = build(root, {"/run/systemd/system/.keep": "", "/run/udev/control": "", **(files or {})})
    return host, Programs(host)


def plan(host: FakeHost, unit: Optional[str], *, immediate: bool = True) -> Plan:
    found = hotplug.observe(host)
    made = hotplug.settings(found, unit=unit, immediate=immediate)
    return Plan(made, hotplug_steps(found, made, unit=unit))


def run(host: FakeHost, unit: Optional[str]) -> None:
    for step in plan(host, unit).steps:
        systemd_apply.perform(step, host)
    after = plan(host, unit)
    assert (after.status, after.steps) == (IN_SYNC, ())


def test_udev_learns_the_rules_when_the_unit_is_there(tmp_path: Path) -> None:
    host, programs = machine(tmp_path)
    run(host, TEXT)
    assert programs.rules == RULES_TEXT
    written = [path for kind, path, _text in host.files.log if kind == "replace"]
    assert written.index(UNIT_PATH) < written.index(RULES)
    host.files.log.clear()
    host.commands.calls.clear()
    run(host, TEXT)
    assert (host.files.log, host.commands.calls) == ([], [])


def test_both_go_with_the_declaration_the_rules_first(tmp_path: Path) -> None:
    host, programs = machine(tmp_path)
    run(host, TEXT)
    host.files.log.clear()
    run(host, None)
    assert programs.rules is None
    gone = [path for kind, path, _text in host.files.log if kind == "remove"]
    assert gone.index(RULES) < gone.index(UNIT_PATH)
    assert not host.files.exists(UNIT_PATH)
    assert plan(host, None).settings == ()


@pytest.mark.parametrize("path", [UNIT_PATH, RULES])
def test_a_file_that_was_edited_is_written_again(tmp_path: Path, path: str) -> None:
    host, _programs = machine(tmp_path)
    run(host, TEXT)
    before = host.files.read(path)
    host.files.replace(path, "edited\n")
    assert [(change.object, change.before) for change in plan(host, TEXT).changes] == [(path, "others")]
    run(host, TEXT)
    assert host.files.read(path) == before


def test_a_unit_that_systemd_knows_is_read_again_or_waits_for_the_containers(tmp_path: Path) -> None:
    container = {
        "/proc/99/comm": "train\n",
        "/proc/99/cgroup": "0::/system.slice/docker-1.scope\n",
        "/proc/99/root/dev/nvidiactl": "",
    }
    host, programs = machine(tmp_path, container)
    run(host, TEXT)
    programs.unit = TEXT
    other = hotplug.unit_text(irqbalance=False)
    for step in plan(host, other).steps:
        systemd_apply.perform(step, host)
    waiting = plan(host, other)
    assert (waiting.status, waiting.needs, waiting.steps) == (PENDING, (systemd.DAEMON_RELOAD,), ())
    assert plan(host, other, immediate=False).status == IN_SYNC
    shutil.rmtree(tmp_path / "proc/99")
    run(host, other)
    assert programs.unit == other


def test_without_udev_nobody_is_told(tmp_path: Path) -> None:
    host = build(tmp_path, {"/etc/os-release": ""})
    run(host, TEXT)
    assert host.commands.calls == []
    assert host.files.read(RULES) == RULES_TEXT


def test_a_step_of_any_kind_is_one_that_all_rooms_share(tmp_path: Path) -> None:
    host, _programs = machine(tmp_path)
    kinds: List[Any] = [type(step.action).__name__ for step in plan(host, TEXT).steps]
    assert kinds == ["AnnounceUnit", "ReplaceFile", "ReloadUnits", "ReplaceFile", "RunCommand"]
