# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Foreign udev rules that write into queues by other means than ``ATTR{queue/...}``: programs, scripts, the bdi."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import OwnedByAnother
from ansible_collections.gpufleet.node.plugins.module_utils._linux import udev_programs
from ansible_collections.gpufleet.node.plugins.module_utils._linux.udev_programs import UNKNOWN, UdevDevice
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_scheduler import rules
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.concerns.nvme_scheduler.nvme_machine import Drive, machine, run, value

SITE = "/etc/udev/rules.d/50-site.rules"
VENDOR = "/usr/lib/udev/rules.d/60-vendor.rules"
LATE = "/etc/udev/rules.d/99-zz.rules"
SCRIPT = "/opt/tune"
DISK = 'SUBSYSTEM=="block", KERNEL=="nvme*"'
NUMBER = "/sys/devices/pci0000:00/0000:40:00.0/nvme/nvme0/nvme0n1/dev"
SHELL = "/bin/sh -c"
STOCK = sorted((Path(nodetree.__file__).parent / "stock").glob("*.tree"))


def to_scheduler(target: str, text: str = "none") -> str:
    return f"{DISK}, RUN+=\"{SHELL} 'echo {text} > {target}'\"\n"


def by_script(script: str, run_it: str = f"{SCRIPT} %k") -> Dict[str, str]:
    return {SITE: f'{DISK}, RUN+="{run_it}"\n', SCRIPT: f"#!/bin/bash\n{script}\n"}


WINS: Mapping[str, Dict[str, str]] = {
    "by the name of the device": {SITE: to_scheduler("/sys/block/%k/queue/scheduler")},
    "by its long name": {SITE: to_scheduler("/sys/block/$kernel/queue/scheduler")},
    "by its path": {SITE: to_scheduler("/sys%p/queue/scheduler")},
    "by both": {SITE: to_scheduler("$sys$devpath/queue/scheduler")},
    "by a property of the event": {SITE: to_scheduler("/sys$env{DEVPATH}/queue/scheduler")},
    "by its environment": {SITE: to_scheduler("/sys$DEVPATH/queue/scheduler")},
    "by a variable of the shell": {
        SITE: f"{DISK}, RUN+=\"{SHELL} 'q=/sys/block/%k/queue; echo none > $$q/scheduler'\"\n"
    },
    "by tee": {SITE: f"{DISK}, RUN+=\"{SHELL} 'echo none | tee /sys/block/%k/queue/scheduler'\"\n"},
    "a rule before one that has the declared value": {
        SITE: to_scheduler("/sys/block/%k/queue/scheduler"),
        LATE: f'{DISK}, ATTR{{queue/scheduler}}="mq-deadline"\n',
    },
    "a script": by_script("echo none > /sys/block/$1/queue/scheduler"),
    "a script that a shell runs": by_script('echo none > "/sys/block/$1/queue/scheduler"', f"/bin/bash {SCRIPT} %k"),
    "a script by its environment": by_script("echo none > /sys/$DEVPATH/queue/scheduler", SCRIPT),
    "a script of a package": {
        VENDOR: f'{DISK}, RUN{{program}}+="{SCRIPT} $name"\n',
        SCRIPT: "#!/bin/sh\necho none > /sys/block/$1/queue/scheduler\n",
    },
    "the later of two programs": {
        SITE: to_scheduler("/sys/block/%k/queue/scheduler", "mq-deadline")
        + to_scheduler("/sys/block/%k/queue/scheduler")
    },
    "a path from another device of the rule": {LATE: f'{DISK}, ATTR{{[block/nvme0n1]queue/scheduler}}="none"\n'},
    "any folder that has it": {LATE: f'{DISK}, ATTR{{*/scheduler}}="none"\n'},
    "a path with too many slashes": {LATE: f'{DISK}, ATTR{{queue//scheduler}}="none"\n'},
    "what a program does while the rule is read": {
        LATE: f"{DISK}, PROGRAM==\"{SHELL} 'echo none > /sys/block/%k/queue/scheduler'\"\n"
    },
    "an imported program": {
        LATE: f"{DISK}, IMPORT{{program}}=\"{SHELL} 'echo none > /sys/block/%k/queue/scheduler'\"\n"
    },
    "the link to the bdi": {LATE: f'{DISK}, ATTR{{bdi/read_ahead_kb}}="64"\n'},
    "blockdev": {SITE: f'{DISK}, RUN+="/sbin/blockdev --setra 128 /dev/%k"\n'},
    "blockdev by its node": {SITE: f'{DISK}, RUN+="/usr/sbin/blockdev --setra 128 $devnode"\n'},
}
SAME: Mapping[str, Dict[str, str]] = {
    "a program": {SITE: to_scheduler("/sys/block/%k/queue/scheduler", "mq-deadline")},
    "a substituted value": {LATE: f'{DISK}, ENV{{X}}="1", ATTR{{[block/$kernel]queue/scheduler}}="mq-deadline"\n'},
    "blockdev": {SITE: f'{DISK}, RUN+="/sbin/blockdev --setra 1024 /dev/%k"\n'},
    "the bdi": {LATE: 'SUBSYSTEM=="bdi", ACTION=="add", ATTR{read_ahead_kb}="512"\n'},
    "the later of two programs": {
        SITE: to_scheduler("/sys/block/%k/queue/scheduler", "mq-deadline"),
        LATE: f"{DISK}, RUN=\"{SHELL} 'echo mq-deadline > /sys/block/%k/queue/scheduler'\"\n",
    },
}
UNKNOWN_WINNER: Mapping[str, Tuple[Dict[str, str], str, int]] = {
    "a condition in the program": (
        {SITE: f"{DISK}, RUN+=\"{SHELL} 'grep -q x /etc/y && echo none > /sys/block/%k/queue/scheduler'\"\n"},
        SITE,
        1,
    ),
    "a value that only the program knows": (
        {SITE: f"{DISK}, RUN+=\"{SHELL} 'cat /etc/scheduler > /sys/block/%k/queue/scheduler'\"\n"},
        SITE,
        1,
    ),
    "a condition in a script": (
        by_script('if [ "$(uname -r)" = 6 ]; then\necho none > /sys/block/$1/queue/scheduler\nfi'),
        SCRIPT,
        3,
    ),
    "a property that another rule sets": ({LATE: f'{DISK}, ATTR{{queue/scheduler}}="$env{{ID_SCHEDULER}}"\n'}, LATE, 1),
    "a rule behind an imported answer": (
        {LATE: f'{DISK}, IMPORT{{program}}="/usr/bin/ask %k", ATTR{{queue/scheduler}}="none"\n'},
        LATE,
        1,
    ),
    "a rule behind a program": ({LATE: f'{DISK}, PROGRAM="/usr/bin/ask", ATTR{{queue/scheduler}}="none"\n'}, LATE, 1),
    "the bdi, whose event has no order with that of the disk": (
        {LATE: 'SUBSYSTEM=="bdi", ACTION=="add", ATTR{read_ahead_kb}="64"\n'},
        LATE,
        1,
    ),
    "the bdi by its number": (
        {LATE: f'SUBSYSTEM=="bdi", KERNEL=="259:*", RUN+="{SHELL} \'echo 64 > /sys/class/bdi/%k/read_ahead_kb\'"\n'},
        LATE,
        1,
    ),
    "the module of the driver": (
        {SITE: f'SUBSYSTEM=="module", KERNEL=="nvme", RUN+="{SCRIPT}"\n', SCRIPT: "#!/bin/sh\n"}
        | {SCRIPT: "#!/bin/sh\nfor d in /sys/block/nvme*; do\necho none > $d/queue/scheduler\ndone\n"},
        SCRIPT,
        3,
    ),
    "an attribute of another device": (
        {LATE: 'KERNEL=="loop0", ATTR{[block/nvme0n1]queue/scheduler}="none"\n'},
        LATE,
        1,
    ),
}
NOTHING: Mapping[str, Dict[str, str]] = {
    "another disk": {SITE: 'KERNEL=="sd*", RUN+="/bin/sh -c \'echo none > /sys/block/%k/queue/scheduler\'"\n'},
    "a program that only reads it": {SITE: f"{DISK}, RUN+=\"{SHELL} 'cat /sys/block/%k/queue/scheduler'\"\n"},
    "a program that logs it": {SITE: f'{DISK}, RUN+="/usr/bin/logger /sys/block/%k/queue/scheduler"\n'},
    "a comment": {SITE: f"# {to_scheduler('/sys/block/%k/queue/scheduler')}"},
    "another event": {SITE: 'ACTION=="remove", ' + to_scheduler("/sys/block/%k/queue/scheduler")},
    "a program that a later rule takes away": {
        SITE: to_scheduler("/sys/block/%k/queue/scheduler"),
        LATE: f'{DISK}, RUN="/usr/bin/true"\n',
    },
    "a program behind a final one": {
        SITE: f'{DISK}, RUN:="/usr/bin/true"\n',
        LATE: to_scheduler("/sys/block/%k/queue/scheduler"),
    },
    "another file of the disk": {SITE: to_scheduler("/sys/block/%k/queue/iosched/read_expire", "9")},
    "a binary": {SITE: f'{DISK}, RUN+="{SCRIPT} %k"\n', SCRIPT: "\x7fELF /sys/block/%k/queue/scheduler none\n"},
    "the read-ahead of NFS": {
        LATE: 'SUBSYSTEM=="bdi", ACTION=="add", PROGRAM="/usr/libexec/nfsrahead %k", ATTR{read_ahead_kb}="%c"\n'
    },
    "the bdi of something else": {LATE: 'SUBSYSTEM=="bdi", KERNEL=="0:*", ATTR{read_ahead_kb}="64"\n'},
}
DECLARED = {"scheduler": "mq-deadline", "read_ahead_kb": 512}


def found_by(tmp_path: Path, files: Mapping[str, str], **options: Any) -> List[Tuple[str, str, Any, str, str]]:
    host = machine(tmp_path, [Drive(0)], {NUMBER: "259:0\n", **files})
    run(host, DECLARED, **options)
    outcome = run(host, DECLARED, **options)
    assert outcome.changes == ()
    assert value(host, "nvme0n1", "scheduler") == "mq-deadline"
    return [(c.owner, c.path, c.line, c.object, c.wins) for c in outcome.remaining.conflicts]


@pytest.mark.parametrize("name", WINS)
def test_what_udev_writes_behind_our_rules_is_refused(tmp_path: Path, name: str) -> None:
    host = machine(tmp_path, [Drive(0)], {NUMBER: "259:0\n", **WINS[name]})
    with pytest.raises(OwnedByAnother, match=r"Cannot keep (scheduler|read_ahead_kb) on nvme0n1: udev (runs|reads) /"):
        run(host, DECLARED)
    assert value(host, "nvme0n1", "scheduler") == "none"


@pytest.mark.parametrize("name", WINS)
def test_for_now_alone_it_wins_later(tmp_path: Path, name: str) -> None:
    assert {wins for *_line, wins in found_by(tmp_path, WINS[name], permanent=False)} == {"them"}


@pytest.mark.parametrize("name", SAME)
def test_the_declared_value_is_no_finding(tmp_path: Path, name: str) -> None:
    assert found_by(tmp_path, SAME[name]) == []


@pytest.mark.parametrize("name", UNKNOWN_WINNER)
def test_what_may_be_written_is_named_and_does_not_fail_the_run(tmp_path: Path, name: str) -> None:
    files, path, line = UNKNOWN_WINNER[name]
    assert found_by(tmp_path, files) == [("udev", path, line, "nvme0n1", "unknown")]


@pytest.mark.parametrize("name", NOTHING)
def test_what_does_not_write_is_no_finding(tmp_path: Path, name: str) -> None:
    assert found_by(tmp_path, NOTHING[name]) == []


def test_a_rule_that_takes_our_program_away_is_seen_at_the_paths_of_a_multipath_disk(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0, paths=2)], {LATE: f'{DISK}, RUN="/usr/bin/true"\n'})
    outcome = run(host, {"scheduler": "mq-deadline"}, check_mode=True)
    assert outcome.boot["queues"]["nvme0c0n1"]["scheduler"] is None
    host = machine(tmp_path / "without", [Drive(0, paths=2)], {LATE: f'{DISK}, RUN+="/usr/bin/true"\n'})
    assert run(host, {"scheduler": "mq-deadline"}).boot["queues"]["nvme0c0n1"]["scheduler"] == "mq-deadline"


def test_a_program_that_finds_the_paths_of_a_multipath_disk_is_refused_for_them(tmp_path: Path) -> None:
    loop = f"{SHELL} 'for q in /sys/block/nvme*/queue; do echo none > $$q/scheduler; done'"
    host = machine(tmp_path, [Drive(0, paths=2)], {LATE: f'{DISK}, RUN+="{loop}"\n'})
    with pytest.raises(OwnedByAnother, match="Cannot keep scheduler on nvme0c0n1"):
        run(host, {"scheduler": "mq-deadline"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%k $kernel %n $number", "nvme0n1 nvme0n1 1 1"),
        ("%p $devpath/x", "/devices/pci/nvme0n1 /devices/pci/nvme0n1/x"),
        ("%N $devnode $tempnode $name %D", "/dev/nvme0n1 /dev/nvme0n1 /dev/nvme0n1 nvme0n1 nvme0n1"),
        ("%r $root %S $sys", "/dev /dev /sys /sys"),
        ("$env{DEVNAME} %E{SUBSYSTEM}", "/dev/nvme0n1 block"),
        ("$attr{size} %s{size} $sysfs{size}", " ".join([UNKNOWN] * 3)),
        ("%c $result{2} %c{1+} $id %b $driver $major %m", " ".join([UNKNOWN] * 8)),
        ("$env{ID_SERIAL} %E{X}", f"{UNKNOWN} {UNKNOWN}"),
        ("100%% $$q ${q} $q %", "100% $q ${q} $q %"),
    ],
)
def test_the_substitutions_of_udev(text: str, expected: str) -> None:
    """``map`` of src/udev/udev-format.c of systemd 257."""
    device = UdevDevice("nvme0n1", "/sys/devices/pci/nvme0n1", "block", "/dev/nvme0n1")
    assert udev_programs.substitute(text, device) == expected


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/bin/sh -c 'echo \"a b\" > x'", ["/bin/sh", "-c", 'echo "a b" > x']),
        ('/bin/echo "a b" c\\ d', ["/bin/echo", "a b", "c\\", "d"]),
        ("tune %k", ["/usr/lib/udev/tune", "%k"]),
        ("/bin/sh -c 'open", ["/bin/sh", "-c", "'open"]),
        ("", []),
    ],
)
def test_the_words_of_a_command(command: str, words: List[str]) -> None:
    """``udev_event_spawn`` of src/udev/udev-spawn.c of systemd 257."""
    assert udev_programs.words_of(command) == words


@pytest.mark.parametrize("tree", STOCK, ids=lambda tree: str(tree.stem))
def test_the_rules_of_a_stock_system_are_no_finding(tree: Path, tmp_path: Path) -> None:
    root = nodetree.expand(nodetree.parse(tree.read_text(encoding="utf-8")), tmp_path / "root")
    texts = rules.read_texts(RecordedHost(str(root)).files)
    # btrfs-progs has one for zoned disks. That of nfs-utils for its mounts is not even looked at.
    assert {Path(path).name for path, _text in texts} <= {"64-btrfs-zoned.rules"}
    assert found_by(tmp_path / "node", dict(texts)) == []
