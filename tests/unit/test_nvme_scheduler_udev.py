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
from ansible_collections.gpufleet.node.plugins.module_utils._block import rules
from ansible_collections.gpufleet.node.plugins.module_utils._block.spec import parse
from nvme_machine import RULES, Drive, machine, run, value

ETC = "/etc/udev/rules.d"
LIB = "/usr/lib/udev/rules.d"
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
    assert outcome.remaining.status == "right"
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
            ("udev", f"{ETC}/60-site.rules", 2, "scheduler", "none", "us"),
            id="an earlier rule loses",
        ),
        pytest.param(
            {f"{ETC}/99-zz.rules": 'ENV{ID_SERIAL}=="x", ATTR{queue/scheduler}="none"\n'},
            ("udev", f"{ETC}/99-zz.rules", 1, "scheduler", "none", "them"),
            id="a later rule that cannot be told is reported",
        ),
        pytest.param(
            {f"{ETC}/60-site.rules": "RUN+=\"/bin/sh -c 'echo none > /sys/block/%k/queue/scheduler'\"\n"},
            (
                "udev",
                f"{ETC}/60-site.rules",
                1,
                "scheduler",
                "/bin/sh -c 'echo none > /sys/block/%k/queue/scheduler'",
                "them",
            ),
            id="a program runs after all rules",
        ),
        pytest.param(
            {
                "/etc/tuned/active_profile": "site\n",
                "/etc/tuned/profiles/site/tuned.conf": "[main]\ninclude=base\n",
                "/usr/lib/tuned/base/tuned.conf": "[disk]\nelevator=bfq\n",
            },
            ("tuned", "/usr/lib/tuned/base/tuned.conf", 2, "scheduler", "bfq", "them"),
            id="the active profile of tuned",
        ),
        pytest.param(
            {"/proc/cmdline": "ro elevator=noop quiet\n"},
            ("kernel command line", "/proc/cmdline", 1, "scheduler", "noop", "us"),
            id="a command line that the kernel no longer reads",
        ),
    ],
)
def test_other_owners_are_listed_with_file_and_line(tmp_path: Path, files: Dict[str, str], conflict: Any) -> None:
    host = machine(tmp_path, [Drive(0), Drive(1)], files)
    found = run(host, {"scheduler": "mq-deadline"}).remaining.conflicts
    assert [(c.owner, c.path, c.line, c.setting, c.value, c.wins) for c in found] == [conflict]


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
