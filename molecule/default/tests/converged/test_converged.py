# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from typing import Any, Dict, List

import pytest
import runs

TMPFILES = "/etc/tmpfiles.d/00-gpufleet-hugepages.conf"
RULES = "/etc/udev/rules.d/99-gpufleet-nvme_scheduler.rules"
SYSCTL = "/etc/sysctl.d/zz-gpufleet-kernel_tunables.conf"
THP = "/sys/kernel/mm/transparent_hugepage"


def name_of(host: Any) -> str:
    return str(host.backend.get_hostname())


def systemd_version(host: Any) -> int:
    return int(host.check_output("systemctl --version").split()[1])


# Where files in /usr/local may not be executed, or there is no command.
GPUFLEET = "/bin/sh /var/lib/gpufleet/program/gpufleet"


def test_the_machine_began_as_a_new_one_whatever_the_host_has(host: Any) -> None:
    assert host.file("/proc/sys/net/ipv4/ip_forward").content_string.strip() == "0"


def test_what_check_mode_predicted_is_what_converge_did(host: Any) -> None:
    predicted, done = runs.predicted_and_done("converge.yml", name_of(host))
    assert len(done) == 8
    assert all(done.values())
    assert predicted == done


def test_the_second_run_changed_nothing(host: Any) -> None:
    assert not any(runs.repeated("converge.yml", name_of(host)).values())


def test_nothing_in_effect_was_planned_but_our_own_program(host: Any) -> None:
    _predicted, done = runs.predicted_and_done("converge.yml", name_of(host))
    now = {change["object"] for changes in done.values() for change in changes if change["scope"] == "effective"}
    # What pam_limits reads counts for the next session.
    assert now == {
        "/var/lib/gpufleet/program/gpufleet.pyz",
        "/var/lib/gpufleet/program/compiled",
        "/var/lib/gpufleet/program/gpufleet",
        # trixie has a read-only /usr.
        *(["/usr/local/sbin/gpufleet"] if name_of(host) == "bookworm" else []),
        "*",
        "root",
        # So does what pam_env and NCCL read.
        "sessions",
        "nccl",
        # systemd is executed anew, and units are stopped and read again.
        "services",
        "demo-index.service",
        "demo-index.timer",
    }


def test_modprobe_keeps_a_blocked_module_out(host: Any) -> None:
    assert "install nouveau /bin/false" in host.check_output("cat /etc/modprobe.d/gpufleet-kernel_modules.conf")


def test_the_last_file_that_systemd_sysctl_reads_is_ours(host: Any) -> None:
    effective = host.check_output("systemd-analyze cat-config sysctl.d")
    assert re.findall(r"^# (/\S+)$", effective, re.MULTILINE)[-1] == SYSCTL
    assert re.findall(r"^vm\.swappiness *= *(\d+)$", effective, re.MULTILINE)[-1] == "5"


@pytest.mark.parametrize("user", ["nobody", "root"])
def test_a_session_gets_the_declared_limits(host: Any, user: str) -> None:
    assert _limits(host, user) == ["500", "1000", "0"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("nobody hard nofile 900", ["500", "900", "0"]),
        ("nobody - nofile 0800 # decimal", ["800", "800", "0"]),
        ("@nogroup HARD NOFILE 900", ["500", "900", "0"]),
        ("* hard nofile 900", ["500", "1000", "0"]),
        ("nobody - nofile 900K", ["900", "900", "0"]),
        ("* -", ["500", "1000", "0"]),
    ],
)
def test_lines_of_others_count_as_the_module_says(host: Any, lines: str, expected: List[str]) -> None:
    other = "/etc/security/limits.d/10-other.conf"
    host.check_output("echo %s > %s", lines, other)
    try:
        assert _limits(host, "nobody") == expected
    finally:
        host.check_output("rm %s", other)


def test_a_new_service_gets_the_declared_limits(host: Any) -> None:
    assert host.check_output("systemctl show -P DefaultLimitMEMLOCK") == str(1024**2)
    fresh = "systemd-run --quiet --wait --pipe /bin/bash -c 'ulimit -Sl; ulimit -Hl'"
    assert host.check_output(fresh).split() == ["1024", "1024"]
    shown = host.check_output("systemctl show -P LimitNOFILESoft -P LimitNOFILE demo-index.service")
    assert sorted(shown.split()) == ["600", "900"]


@pytest.mark.parametrize("user", ["nobody", "root"])
def test_a_session_gets_the_declared_variables(host: Any, user: str) -> None:
    assert _variables(host, user)["GPUFLEET_JOB"] == "set = for all (1, 2)"


# The same lines are in test_nccl_conf.py, which says what the module makes of them.
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("A=1", "1"),
        ("export A=1", "1"),
        ("  A=1", "1"),
        ("A=1 2", "1 2"),
        ("A=1 # note", "1"),
        ("A=a#b", "a"),
        ('A="a b"', "a b"),
        ("A='a#b'", "a"),
        ('A=a"b"', 'a"b"'),
        ("A=1\\\n2", "12"),
        ("A=1\nA=2", "2"),
        ("A=$HOME", "$HOME"),
    ],
)
def test_pam_env_reads_lines_of_others_as_the_module_says(host: Any, line: str, expected: str) -> None:
    host.check_output("cp /etc/environment /root/environment.before")
    try:
        host.check_output("printf '%%s\\n' %s >> /etc/environment", line)
        assert _variables(host, "nobody")["A"].rstrip() == expected
    finally:
        host.check_output("mv /root/environment.before /etc/environment")


def test_a_service_gets_the_variables_of_its_unit(host: Any) -> None:
    host.check_output("systemctl start --no-block demo-index.service")
    try:
        pid = host.check_output(
            "for turn in $(seq 100); do pid=$(systemctl show -P MainPID demo-index.service); "
            'test -n "$pid" && test "$pid" != 0 && break; sleep 0.1; done; echo $pid'
        )
        environ = host.check_output("tr '\\0' '\\n' < /proc/%s/environ", pid).splitlines()
        assert 'GPUFLEET_UNIT=a "b" c\\d $HOME' in environ
    finally:
        host.check_output("systemctl stop demo-index.service")


def test_nccl_reads_our_line_first(host: Any) -> None:
    assert host.check_output("grep -v '^#' /etc/nccl.conf") == "NCCL_DEBUG=WARN"


def test_a_quiet_timer_does_not_run_and_nothing_starts_it(host: Any) -> None:
    assert host.run("systemctl is-enabled demo-index.timer").stdout.strip() == "masked"
    assert host.run("systemctl is-active demo-index.timer").stdout.strip() == "inactive"
    assert host.run("systemctl start demo-index.timer").rc != 0


# Asks systemd by D-Bus as a look does, and systemctl; of all units, each in a way of its own.
BOTH_WAYS = """
import subprocess, sys
sys.path.insert(0, "/var/lib/gpufleet/program/gpufleet.pyz")
from ansible_collections.gpufleet.node.node.standard_host import StandardHost
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd
host = StandardHost()
listed = subprocess.run(["systemctl", "list-units", "--all", "--plain", "--no-legend"], capture_output=True, text=True)
units = tuple(line.split()[0] for line in listed.stdout.splitlines() if line) + ("no-such.service", "4-no.timer")
names = tuple(name for name in systemd.INTERFACES if name not in ("ActiveState", "MainPID"))
bus = systemd._shown_by_systemd(host, names, units)
for unit, ours, theirs in zip(units, bus, systemd._shown_by_systemctl(host, names, units)):
    ours = {name: sorted(" ".join(values).split()) for name, values in ours.items()}
    of_unit = {name for name in names if systemd.INTERFACES[name] == "Unit" or unit.endswith(".service")}
    theirs = {name: sorted(" ".join(values).split()) for name, values in theirs.items() if name in of_unit}
    if ours != theirs:
        print(unit, ours, theirs)
listed = host.ask_systemd([systemd.BusCall(systemd.MANAGER_PATH, systemd.MANAGER, "ListUnitsByNames", (units,))])
print(len(units), len(bus), len(listed[0][0]), len(systemd.states(host, units)))
"""


def test_systemd_answers_us_what_it_answers_systemctl(host: Any) -> None:
    """Of those that nobody has loaded, too. What changes from one moment to the next is not compared."""
    asked = host.run("/usr/bin/python3 -I -c %s", BOTH_WAYS)
    counts = asked.stdout.split()
    assert asked.rc == 0, asked.stderr
    assert len(counts) == 4, asked.stdout
    assert len(set(counts)) == 1, asked.stdout
    assert int(counts[0]) > 20


def test_a_job_in_progress_is_left_to_end(host: Any) -> None:
    host.check_output("systemctl start --no-block demo-index.service")
    try:
        status = host.run(f"{GPUFLEET} status --concern quiet_services")
        assert "demo-index.service" in status.stdout + status.stderr
        assert host.run("systemctl is-active demo-index.service").stdout.strip() == "activating"
    finally:
        host.check_output("systemctl stop demo-index.service")


def _variables(host: Any, user: str) -> Dict[str, str]:
    """What a new session of this user has, by su as by any other service of PAM."""
    said = host.check_output("su --shell /bin/sh %s --command 'env --null' | tr '\\n\\0' ' \\n'", user)
    return {name: value for name, _equals, value in (line.partition("=") for line in said.splitlines())}


def _limits(host: Any, user: str) -> List[str]:
    """What a new session of this user has: open files soft and hard, and the highest real-time priority."""
    said = host.check_output("su --shell /bin/bash %s --command 'ulimit -Sn; ulimit -Hn; ulimit -Hr'", user)
    return [*said.split()]


def test_systemd_accepts_the_boot_service_and_would_start_it(host: Any) -> None:
    assert host.run("systemd-analyze verify gpufleet-boot.service").rc == 0
    assert host.check_output("systemctl is-enabled gpufleet-boot.service") == "enabled"
    assert host.check_output("systemctl show -P NeedDaemonReload gpufleet-boot.service") == "no"


def test_the_node_itself_says_what_the_roles_declared(host: Any) -> None:
    status = host.run(f"{GPUFLEET} status")
    assert status.rc == 0, status.stdout + status.stderr


def test_systemd_tmpfiles_reads_every_line_of_ours(host: Any) -> None:
    # A prefix that matches nothing: the file is parsed, and nothing is written.
    parsed = host.run("systemd-tmpfiles --create --boot --prefix=/nowhere %s", TMPFILES)
    assert (parsed.rc, parsed.stderr) == (0, "")


def test_the_next_boot_writes_the_declared_values(host: Any) -> None:
    effective = host.check_output("systemd-tmpfiles --cat-config")
    written = dict(re.findall(r"^w! (/sys/\S+) - - - - (\S+)$", effective, re.MULTILINE))
    pages = {path: int(value) for path, value in written.items() if path.endswith("-2048kB/nr_hugepages")}
    assert sum(pages.values()) == 64
    assert written[f"{THP}/enabled"] == "madvise"
    assert written[f"{THP}/defrag"] == "defer+madvise"


def test_systemd_tmpfiles_would_write_each_of_them_at_boot_only(host: Any) -> None:
    if systemd_version(host) < 256:
        pytest.skip("systemd-tmpfiles --dry-run came with systemd 256")
    at_boot = host.run("systemd-tmpfiles --create --boot --dry-run %s", TMPFILES)
    later = host.run("systemd-tmpfiles --create --dry-run %s", TMPFILES)
    assert f'Would write to "{THP}/enabled"' in at_boot.stdout + at_boot.stderr
    assert "Would write" not in later.stdout + later.stderr


def test_udev_accepts_every_rule(host: Any) -> None:
    if systemd_version(host) < 254:
        pytest.skip("udevadm verify came with systemd 254")
    verified = host.run("udevadm verify %s", RULES)
    assert verified.rc == 0, verified.stdout + verified.stderr


def test_udev_reads_the_rules_without_a_complaint(host: Any) -> None:
    # Any device will do: all rules are read before they are matched.
    device = host.check_output("ls -d /sys/class/net/lo /sys/class/mem/null | head -n 1")
    tested = host.run("udevadm test --action=add %s", device)
    lines = [line for line in (tested.stdout + tested.stderr).splitlines() if RULES in line]
    assert [line for line in lines if "Reading rules file" in line] == lines
    assert lines


def test_the_declaration_stays_on_the_node(host: Any) -> None:
    concerns = "hugepages nvme_scheduler kernel_modules kernel_tunables resource_limits quiet_services node_tools"
    for concern in ("job_environment", *concerns.split()):
        assert host.check_output("cat /etc/gpufleet/declared.d/%s.json", concern)
