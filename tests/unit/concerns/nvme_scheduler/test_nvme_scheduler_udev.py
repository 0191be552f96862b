# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The next boot: our rules as text, and everybody's rules as udev reads them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import OwnedByAnother
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_scheduler import rules
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_scheduler.spec import parse
from ansible_collections.gpufleet.node.tests.unit.concerns.nvme_scheduler.nvme_machine import (
    RULES,
    Drive,
    machine,
    run,
    value,
)

ETC = "/etc/udev/rules.d"
LIB = "/usr/lib/udev/rules.d"
DISKS = ["nvme0n1", "nvme1n1"]
WHOLE: List[Dict[str, Any]] = [
    {"match": {"serial": ["S1", "S2*"], "model": "SAMSUNG MZ*"}, "scheduler": "kyber", "nr_requests": 512},
    {"match": {"pci_address": ["0000:41:00.0", "0000:4[2-5]:00.0"]}, "scheduler": "none", "read_ahead_kb": 64},
    {"match": {"name": ["nvme7n1", "md127", "vg-*", "dm-3"]}, "read_ahead_kb": 4096, "max_sectors_kb": 512},
    {"match": {"name": "nvme8c*n1"}},
    {
        "scheduler": "none",
        "nr_requests": 1023,
        "rq_affinity": 2,
        "nomerges": 2,
        "wbt_lat_usec": 0,
        "io_timeout_ms": 30000,
        "max_sectors_kb": 256,
        "read_ahead_kb": 128,
    },
]


def test_the_rules_know_disks_by_the_keys_of_the_declaration_and_write_the_scheduler_first() -> None:
    text = rules.render(parse(WHOLE[:1]))
    assert text is not None
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        'ACTION!="add|change", GOTO="gpufleet_nvme_scheduler_end"',
        'SUBSYSTEM!="block", GOTO="gpufleet_nvme_scheduler_end"',
        'ENV{DEVTYPE}!="disk", GOTO="gpufleet_nvme_scheduler_end"',
        "",
        'KERNEL=="nvme*", ATTRS{serial}=="S1|S2*", ATTRS{model}=="SAMSUNG MZ*", GOTO="gpufleet_nvme_scheduler_0"',
        'GOTO="gpufleet_nvme_scheduler_end"',
        "",
        'LABEL="gpufleet_nvme_scheduler_0"',
        'TEST!="mq", GOTO="gpufleet_nvme_scheduler_0_bio"',
        'TEST=="queue/scheduler", ATTR{queue/scheduler}="kyber"',
        'TEST=="queue/nr_requests", ATTR{queue/nr_requests}="512"',
        'GOTO="gpufleet_nvme_scheduler_end"',
        'LABEL="gpufleet_nvme_scheduler_0_bio"',
        'KERNEL=="nvme*", RUN+="/bin/sh -c \'for q in /sys%p/../nvme*/nvme*c*n%n/queue; '
        "do echo kyber > $$q/scheduler; echo 512 > $$q/nr_requests; done'\"",
        'GOTO="gpufleet_nvme_scheduler_end"',
        "",
        'LABEL="gpufleet_nvme_scheduler_end"',
    ]


def test_the_udev_of_this_machine_accepts_our_rules(tmp_path: Path) -> None:
    program = shutil.which("udevadm")
    if program is None:
        pytest.skip("no udevadm here")
    if subprocess.run([program, "verify", "--help"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this udevadm has no verify (systemd 254)")
    target = tmp_path / "99-gpufleet-nvme_scheduler.rules"
    target.write_text(rules.render(parse(WHOLE)) or "")
    completed = subprocess.run([program, "verify", str(target)], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr + completed.stdout


def test_the_loop_over_hidden_paths_finds_those_of_its_disk_alone(tmp_path: Path) -> None:
    """The shell of the rule itself, on folders as the kernel makes them."""
    subsystem = tmp_path / "subsys"
    for controller in ("nvme0", "nvme3"):
        for hidden in ("nvme0c0n1", "nvme0c0n11", "nvme0c0n2"):
            (subsystem / controller / hidden.replace("c0", f"c{controller[4:]}") / "queue").mkdir(parents=True)
    for head in ("nvme0n1", "nvme0n11"):
        (subsystem / head / "queue").mkdir(parents=True)
    text = rules.render(parse([{"scheduler": "none"}])) or ""
    line = next(line for line in text.splitlines() if "RUN+=" in line)
    script = line.split("/bin/sh -c '")[1].split("'")[0]
    for head, number in (("nvme0n1", "1"), ("nvme0n11", "11")):
        shell = script.replace("/sys%p", str(subsystem / head)).replace("%n", number).replace("$$", "$")
        subprocess.run(["/bin/sh", "-c", shell], check=True)
        written = {str(path.relative_to(subsystem)) for path in subsystem.rglob("scheduler")}
        assert written == {f"nvme0/nvme0c0n{number}/queue/scheduler", f"nvme3/nvme0c3n{number}/queue/scheduler"}
        for path in subsystem.rglob("scheduler"):
            path.unlink()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, None, id="nobody sets it"),
        pytest.param(
            {f"{LIB}/60-a.rules": 'ACTION=="add", SUBSYSTEM=="block", KERNEL=="nvme*", ATTR{queue/scheduler}="bfq"\n'},
            "bfq",
            id="a rule of the distribution",
        ),
        pytest.param(
            {
                f"{LIB}/60-a.rules": 'KERNEL=="nvme*", ATTR{queue/scheduler}="kyber"\n',
                f"{ETC}/60-a.rules": "# nothing about ATTR{queue/scheduler}\n",
            },
            None,
            id="a file of the same name in /etc hides it",
        ),
        pytest.param(
            {
                f"{LIB}/70-b.rules": 'KERNEL=="nvme*", ATTR{queue/scheduler}="bfq"\n',
                f"{ETC}/60-a.rules": 'KERNEL=="nvme*", ATTR{queue/scheduler}="kyber"\n',
            },
            "bfq",
            id="files are read by name across folders",
        ),
        pytest.param(
            {f"{ETC}/60-a.rules": 'ACTION=="change", KERNEL=="nvme*", ATTR{queue/scheduler}="kyber"\n'},
            None,
            id="a rule for another event",
        ),
        pytest.param(
            {f"{ETC}/60-a.rules": 'KERNEL=="sd*|nvme*", ATTR{queue/rotational}=="0", ATTR{queue/scheduler}="kyber"\n'},
            "kyber",
            id="an attribute that can be looked at",
        ),
        pytest.param(
            {f"{ETC}/60-a.rules": 'KERNEL=="nvme*", ATTR{queue/rotational}!="0", ATTR{queue/scheduler}="kyber"\n'},
            None,
            id="an attribute that says otherwise",
        ),
        pytest.param(
            {f"{ETC}/60-a.rules": 'ATTRS{model}=="SAMSUNG MZWLJ3T8HBLS-00007", ATTR{queue/scheduler}="kyber"\n'},
            "kyber",
            id="blanks at the end of a model do not count",
        ),
        pytest.param(
            {f"{ETC}/60-a.rules": 'KERNELS=="0000:40:00.0", DRIVERS=="nvme", ATTR{queue/scheduler}="kyber"\n'},
            "kyber",
            id="one parent agrees with both",
        ),
        pytest.param(
            {f"{ETC}/60-a.rules": 'KERNELS=="0000:40:00.0", ATTRS{serial}=="S0000", ATTR{queue/scheduler}="kyber"\n'},
            None,
            id="no parent agrees with both",
        ),
        pytest.param(
            {
                f"{ETC}/60-a.rules": 'SUBSYSTEM!="block", GOTO="end"\nKERNEL=="nvme*", GOTO="end"\n'
                'ATTR{queue/scheduler}="kyber"\nLABEL="end"\n'
            },
            None,
            id="a jump over it",
        ),
        pytest.param(
            {f"{ETC}/60-a.rules": 'KERNEL=="nvme*", \\\n  ATTR{queue/scheduler}="kyber"\n'},
            "kyber",
            id="a line that goes on",
        ),
        pytest.param(
            {f"{ETC}/60-a.rules": 'ENV{ID_SERIAL}=="x", ATTR{queue/scheduler}="kyber"\n'},
            None,
            id="a property that cannot be told",
        ),
    ],
)
def test_the_next_boot_is_computed_from_everybody_s_rules(
    tmp_path: Path, files: Dict[str, str], expected: Optional[str]
) -> None:
    host = machine(tmp_path, [Drive(0)], files)
    outcome = run(host, {"scheduler": "none"}, permanent=False, check_mode=True)
    assert outcome.boot["queues"]["nvme0n1"]["scheduler"] == expected


def test_our_rules_bring_every_disk_to_what_its_entry_says_also_through_multipath(tmp_path: Path) -> None:
    # Where somebody else mentions a queue, ours are read as udev would, and not taken at their word.
    others = {f"{ETC}/10-site.rules": "# nothing yet about ATTR{queue/scheduler}\n"}
    host = machine(tmp_path, [Drive(0), Drive(1, paths=2), Drive(2), Drive(3, serial="SX")], others)
    outcome = run(
        host,
        {"match": {"serial": "SX"}, "read_ahead_kb": 64},
        {"match": {"pci_address": ["0000:41:01.0", "0000:42:00.0"]}, "scheduler": "mq-deadline", "read_ahead_kb": 256},
        {"scheduler": "kyber", "nr_requests": 64},
    )
    assert outcome.remaining.status == "in_sync"
    boot = outcome.boot["queues"]
    assert boot["nvme0n1"]["scheduler"] == "kyber"
    assert boot["nvme1n1"]["read_ahead_kb"] == 256
    assert boot["nvme1c1n1"]["scheduler"] == boot["nvme1c101n1"]["scheduler"] == "mq-deadline"
    assert (boot["nvme2n1"]["scheduler"], boot["nvme2n1"]["nr_requests"]) == ("mq-deadline", None)
    assert (boot["nvme3n1"]["scheduler"], boot["nvme3n1"]["read_ahead_kb"]) == (None, 64)


@pytest.mark.parametrize(
    ("files", "conflict"),
    [
        pytest.param(
            {f"{ETC}/60-site.rules": '# site\nACTION=="add|change", KERNEL=="nvme*", ATTR{queue/scheduler}="none"\n'},
            ("udev", f"{ETC}/60-site.rules", 2, DISKS, "none", "us"),
            id="an earlier rule loses",
        ),
        pytest.param(
            {f"{ETC}/99-zz.rules": 'ENV{ID_SERIAL}=="x", ATTR{queue/scheduler}="none"\n'},
            ("udev", f"{ETC}/99-zz.rules", 1, DISKS, "none", "unknown"),
            id="a later rule that cannot be told is reported",
        ),
        pytest.param(
            {f"{ETC}/99-zz.rules": 'KERNEL=="nvme*", ATTR{queue/scheduler}="none" # a comment is no part of a rule\n'},
            ("udev", f"{ETC}/99-zz.rules", 1, DISKS, "none", "unknown"),
            id="so is one that releases of udev read differently",
        ),
        pytest.param(
            {"/proc/cmdline": "ro elevator=noop quiet\n"},
            ("kernel command line", "/proc/cmdline", 1, ["all queues"], "noop", "us"),
            id="a command line that the kernel no longer reads",
        ),
    ],
)
def test_other_owners_are_listed_with_file_and_line(tmp_path: Path, files: Dict[str, str], conflict: Any) -> None:
    host = machine(tmp_path, [Drive(0), Drive(1)], files)
    found = run(host, {"scheduler": "mq-deadline"}).remaining.conflicts
    assert [(c.owner, c.path, c.line, c.value, c.wins) for c in found] == [(*conflict[:3], *conflict[4:])] * len(
        conflict[3]
    )
    assert [(c.object, c.setting) for c in found] == [(name, "scheduler") for name in conflict[3]]


PROFILE = "/etc/tuned/profiles/site/tuned.conf"
BASE = "/usr/lib/tuned/base/tuned.conf"


def tuned(profile: str, base: str = "", *, enabled: bool = True) -> Dict[str, str]:
    files = {"/etc/tuned/active_profile": "site\n", PROFILE: f"[main]\ninclude=base\n{profile}", BASE: base}
    return {**files, "/etc/systemd/system/multi-user.target.wants/tuned.service": ""} if enabled else files


@pytest.mark.parametrize(
    ("files", "boot", "conflict"),
    [
        pytest.param(tuned("", "[disk]\nreadahead=512\n"), 512, None, id="an equal value is no conflict"),
        pytest.param(tuned("[disk]\nreadahead=1024 s\n"), 512, None, id="in sectors"),
        pytest.param(tuned("[disk]\nreadahead=>256\n"), 512, None, id="at least what is less"),
        pytest.param(
            tuned("[disk]\nreadahead=512\n", "[disk]\nreadahead=>8192\n"),
            512,
            None,
            id="a profile overrides the one it includes",
        ),
        pytest.param(
            tuned("[variables]\nra=512 # KiB\n", "[variables]\nra=64\n[disk]\nreadahead=${ra}\n"),
            512,
            None,
            id="a variable that the including profile sets",
        ),
        pytest.param(
            tuned("[disk]\nreplace=1\n", "[disk]\nreadahead=>8192\n"), 512, None, id="a section that starts anew"
        ),
        pytest.param(
            tuned("[slow]\ntype=disk\ndevices=sd*, !nvme*\nreadahead=64\n"), 512, None, id="a section for others"
        ),
        pytest.param(
            tuned("[mine]\ntype=disk\ndevices=nvme*\nreadahead=512\n[disk]\nreadahead=64\n"),
            512,
            None,
            id="the first section that asks for a disk has it",
        ),
        pytest.param(
            tuned("[sysfs]\n/sys/block/nvme*n1/queue/read_ahead_kb=512\n"),
            512,
            None,
            id="a path of sysfs",
        ),
        pytest.param(
            tuned("[disk]\nreadahead=${f:calc:2}\n"),
            512,
            (PROFILE, 4, "${f:calc:2}", "unknown"),
            id="a value that cannot be told is reported",
        ),
        pytest.param(
            tuned("[disk]\nreadahead=>9000 s\n"), 512, None, id="a modifier of sectors, which tuned cannot read"
        ),
        pytest.param(tuned('[disk]\nreadahead="64"\n'), 512, None, id="quotes, which tuned cannot read"),
        pytest.param(tuned("[disk]\nreadahead_multiply=1.0\n"), 512, None, id="a factor that leaves it"),
        *(
            pytest.param(tuned(f"[disk]\n{line}\n"), 512, None, id=f"no number: {line[:30]}")
            for line in ("readahead_multiply=two", "readahead_multiply=inf", f"readahead={'9' * 5000}")
        ),
        pytest.param(
            tuned("[disk]\ncpuinfo_regex=.*AMD.*\nreadahead=64\n"),
            512,
            (PROFILE, 5, "64", "unknown"),
            id="a section that may be for other machines",
        ),
        pytest.param(tuned("[disk]\nreadahead=>8192\n", enabled=False), 512, None, id="a tuned that is not enabled"),
    ],
)
def test_tuned_has_the_last_word_at_boot_and_may_only_say_the_same(
    tmp_path: Path, files: Dict[str, str], boot: int, conflict: Any
) -> None:
    host = machine(tmp_path, [Drive(0), Drive(1)], files)
    outcome = run(host, {"read_ahead_kb": 512})
    assert [outcome.boot["queues"][f"nvme{number}n1"]["read_ahead_kb"] for number in (0, 1)] == [boot, boot]
    found = [(c.owner, c.path, c.line, c.object, c.setting, c.value, c.wins) for c in outcome.remaining.conflicts]
    expected = [("tuned", *conflict[:2], name, "read_ahead_kb", *conflict[2:]) for name in DISKS] if conflict else []
    assert found == expected
    assert run(host, {"read_ahead_kb": 512}).changes == ()


@pytest.mark.parametrize(
    "profile", ["[disk]\nreadahead_multiply=2\n", "[sysfs]\n/sys/block/nvme0n1/bdi/read_ahead_kb=64\n"]
)
def test_what_else_of_tuned_sets_the_read_ahead_is_refused(tmp_path: Path, profile: str) -> None:
    with pytest.raises(OwnedByAnother, match=f"tuned starts after our rules, and {PROFILE} line 4 sets another value"):
        run(machine(tmp_path, [Drive(0)], tuned(profile)), {"read_ahead_kb": 512})


def test_a_script_of_tuned_is_refused_where_it_sets_another_value(tmp_path: Path) -> None:
    script = "start() {\necho none > /sys/block/nvme0n1/queue/scheduler\n}\nstop() {\necho x > /sys/a\n}\nprocess $@\n"
    files = {**tuned("[script]\nscript=site.sh\n"), "/etc/tuned/profiles/site/site.sh": f"#!/bin/bash\n{script}"}
    host = machine(tmp_path, [Drive(0), Drive(1)], files)
    with pytest.raises(
        OwnedByAnother, match=r"tuned starts after our rules, and /etc/tuned/profiles/site/site\.sh line 3"
    ):
        run(host, {"scheduler": "mq-deadline"})
    assert run(host, {"scheduler": "none"}).remaining.conflicts == ()


def test_what_tuned_will_set_is_told_as_the_value_of_the_next_boot(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0)], tuned("[disk]\nreadahead=>8192\nelevator=kyber\n"))
    outcome = run(host, {"read_ahead_kb": 512, "scheduler": "mq-deadline"}, permanent=False)
    assert outcome.boot["queues"]["nvme0n1"]["read_ahead_kb"] == 8192
    assert outcome.boot["queues"]["nvme0n1"]["scheduler"] == "kyber"
    assert [(c.setting, c.wins) for c in outcome.remaining.conflicts] == [
        ("read_ahead_kb", "them"),
        ("scheduler", "them"),
    ]
    assert value(host, "nvme0n1", "read_ahead_kb") == "512"


def test_whether_tuned_reaches_a_multipath_disk_is_reported_and_not_decided(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0, paths=2)], tuned("[disk]\nreadahead=>8192\n"))
    outcome = run(host, {"read_ahead_kb": 512})
    assert outcome.boot["queues"]["nvme0n1"]["read_ahead_kb"] == 512
    assert [c.wins for c in outcome.remaining.conflicts] == ["unknown"]


@pytest.mark.parametrize(
    ("name", "won"),
    [
        ("d*", ["dm-0", "dm-1", "dm-2"]),
        ("da*", ["dm-1"]),
        ("dm-0", ["dm-0"]),
        ("vg-*", ["dm-0"]),
        ("m*", ["md127"]),
        ("n*", ["dm-2"]),
        ("nvme0n1p3_*", ["dm-2"]),
    ],
)
def test_our_rules_and_the_run_agree_on_devices_of_md_and_dm(tmp_path: Path, name: str, won: List[str]) -> None:
    files = {f"{ETC}/10-site.rules": "# nothing yet about ATTR{queue/scheduler}\n"}
    names = {"dm-0": "vg-root", "dm-1": "data", "dm-2": "nvme0n1p3_crypt", "md127": ""}
    for device, mapped in names.items():
        files[f"/sys/devices/virtual/block/{device}/queue/read_ahead_kb"] = "128\n"
        if mapped:
            files[f"/sys/devices/virtual/block/{device}/dm/name"] = f"{mapped}\n"
    host = machine(tmp_path, [Drive(0)], files)
    for device in names:
        (tmp_path / "sys/block" / device).symlink_to(f"/sys/devices/virtual/block/{device}")
    entries = [{"match": {"name": name}, "read_ahead_kb": 512}, {"match": {"name": ["dm-*", "md*"]}, "optional": True}]
    outcome = run(host, *entries)
    assert outcome.remaining.status == "in_sync"
    assert [device for device in sorted(names) if value(host, device, "read_ahead_kb") == "512"] == won
    boot = outcome.boot["queues"]
    assert [device for device in sorted(names) if boot[device]["read_ahead_kb"] == 512] == won


def test_a_file_that_a_killed_run_left_is_not_read(tmp_path: Path) -> None:
    left = {f"{ETC}/.99-gpufleet.rules": 'KERNEL=="nvme*", ATTR{queue/scheduler}="kyber"\n'}
    host = machine(tmp_path, [Drive(0)], left)
    outcome = run(host, {"scheduler": "none"}, permanent=False)
    assert outcome.boot["queues"]["nvme0n1"]["scheduler"] is None
    assert outcome.remaining.conflicts == ()


def test_the_rules_say_of_themselves_that_every_event_writes_all_values() -> None:
    text = rules.render(parse([{"scheduler": "none"}])) or ""
    assert "Each such event writes all values" in text
    assert 'TEST=="queue/scheduler", ATTR{queue/scheduler}="none"' in text.splitlines()


def test_a_later_rule_with_the_same_value_is_no_conflict(tmp_path: Path) -> None:
    host = machine(
        tmp_path, [Drive(0)], {f"{ETC}/99-zz.rules": 'KERNEL=="nvme*", ATTR{queue/scheduler}="mq-deadline"\n'}
    )
    assert run(host, {"scheduler": "mq-deadline"}).remaining.conflicts == ()


def test_rules_that_somebody_changed_are_ours_again_after_a_run(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0)])
    run(host, {"scheduler": "mq-deadline"})
    text = host.files.read(RULES)
    Path(host.files.locate(RULES)).write_text(text.replace("mq-deadline", "none"))
    outcome = run(host, {"scheduler": "mq-deadline"})
    assert [(c.object, c.setting, c.before, c.after) for c in outcome.changes] == [
        (RULES, "rules", "others", "as declared"),
        ("nvme0n1", "scheduler", "none", "mq-deadline"),
    ]
    assert host.files.read(RULES) == text
    assert value(host, "nvme0n1", "scheduler") == "mq-deadline"
