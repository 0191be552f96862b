# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What services, timers and scripts write at boot, and what merely mentions a path or runs a program."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.snapshot import snapshot
from ansible_collections.gpufleet.node.plugins.module_utils._linux import boot_writers, shell_writes
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.support import build

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
POOLS = "/sys/kernel/mm/hugepages"
SWAPPINESS = "/proc/sys/vm/swappiness"
GOVERNORS = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
Said = Tuple[str, Optional[str], bool]

SCRIPTS: Dict[str, Tuple[str, List[Said]]] = {
    "echo": (f"echo never > {THP}", [(THP, "never", False)]),
    "quotes and blanks": (f'echo -n "never" >"{THP}"', [(THP, "never", False)]),
    "printf": (f"printf '%s' never >{THP}", [(THP, "never", False)]),
    "a value that is a stream's number": (f"echo 2 > {SWAPPINESS}", [(SWAPPINESS, "2", False)]),
    "errors beside it": (f"echo 10 > {SWAPPINESS} 2>/dev/null", [(SWAPPINESS, "10", False)]),
    "errors along with it": (f"echo 10 2>&1 >{SWAPPINESS} || true", [(SWAPPINESS, "10", False)]),
    "errors alone": (f"cat x 2> {SWAPPINESS}", []),
    "tee": (f"echo 10 | sudo tee {SWAPPINESS} >/dev/null", [(SWAPPINESS, "10", False)]),
    "sysctl": ("/sbin/sysctl -q -w vm.swappiness=10", [(SWAPPINESS, "10", False)]),
    "a loop": (f"for f in {GOVERNORS}; do echo performance > $f; done", [(GOVERNORS, "performance", False)]),
    "a loop over lines": (
        f'for f in {GOVERNORS}\ndo\n  echo performance > "$f"\ndone',
        [(GOVERNORS, "performance", False)],
    ),
    "a variable": (f"V=never\nF={THP}\necho ${{V}} > $F", [(THP, "never", False)]),
    "a folder": ("cd /sys/kernel/mm/transparent_hugepage\necho never > enabled", [(THP, "never", False)]),
    "a continued line": (f"echo never \\\n  > {THP}", [(THP, "never", False)]),
    "only if it is there": (f"[ -w {THP} ] && echo never > {THP}", [(THP, "never", False)]),
    "if it is there": (f"if [ -e {THP} ]; then\n  echo never > {THP}\nfi", [(THP, "never", False)]),
    "a condition": (f"if systemd-detect-virt; then echo never > {THP}; fi", [(THP, "never", True)]),
    "the other branch": (f"if [ -e {THP} ]; then :; else echo never > {THP}; fi", [(THP, "never", True)]),
    "behind a condition": (f"if true; then :; fi\necho never > {THP}", [(THP, "never", False)]),
    "another choice": (f"false || echo never > {THP}", [(THP, "never", True)]),
    "a function": (f"tune() {{\n  echo never > {THP}\n}}\n", [(THP, "never", True)]),
    "an unknown value": (f"echo $(cat /tmp/x) > {THP}", [(THP, None, False)]),
    "an unknown part": ("echo 8 > /sys/block/$dev/queue/nr_requests", [("/sys/block/*/queue/nr_requests", "8", True)]),
    "cpupower": ("cpupower -c all frequency-set -g performance", [(GOVERNORS, "performance", False)]),
    "cpufreq-set": ("cpufreq-set -r -g performance", [(GOVERNORS, "performance", False)]),
    "blockdev": (
        "blockdev --setra 8192 /dev/nvme0n1",
        [("/sys/class/block/nvme0n1/queue/read_ahead_kb", "4096", False)],
    ),
    "swapon": ("swapon /swapfile", [(boot_writers.SWAP, "/swapfile", False)]),
    "swapon of a variable": (
        'readonly DEV="/dev/zram0"\nmkswap "${DEV}"\nswapon -p 5 "${DEV}"',
        [(boot_writers.SWAP, "-p 5 /dev/zram0", False)],
    ),
    "swapon of what a program says": (
        "d=$(zramctl -f -s 4G)\nswapon -p 5 $d",
        [(boot_writers.SWAP, "-p 5 ${0}", True)],
    ),
    "swapon by a label": (
        "swapon -L more; swapon UUID=22bb",
        [(boot_writers.SWAP, "-L more", False), (boot_writers.SWAP, "UUID=22bb", False)],
    ),
    "hugeadm": (
        "hugeadm --pool-pages-min 2M:1024 --pool-pages-min=1G:8G --pool-pages-min DEFAULT:512",
        [
            (f"{POOLS}/hugepages-2048kB/nr_hugepages", "1024", False),
            (f"{POOLS}/hugepages-1048576kB/nr_hugepages", "8", False),
            ("/proc/sys/vm/nr_hugepages", "512", False),
        ],
    ),
    "hugeadm by what there is": (
        "hugeadm --pool-pages-min 2M:+64 --pool-pages-max 2M:2048 --pool-pages-min DEFAULT:1G",
        [
            (f"{POOLS}/hugepages-2048kB/nr_hugepages", None, False),
            (f"{POOLS}/hugepages-2048kB/nr_overcommit_hugepages", None, False),
            ("/proc/sys/vm/nr_hugepages", None, False),
        ],
    ),
    "hugeadm of other settings": (
        "hugeadm --thp-never --set-recommended-min_free_kbytes --set-shm-group 107 --thp-khugepaged-pages=64",
        [
            (THP, "never", False),
            ("/proc/sys/vm/min_free_kbytes", None, False),
            ("/proc/sys/vm/hugetlb_shm_group", "107", False),
            ("/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan", "64", False),
        ],
    ),
    "hugeadm that shows": ("hugeadm --pool-list; hugeadm -d --pool-pages-min 2M:8; hugeadm --explain", []),
    "a declared variable": (f"export to=never\necho $to > {THP}", [(THP, "never", False)]),
    # Nothing of this sets anything.
    "it reads": (f"cat {THP}; grep -q never {THP} > /dev/null", []),
    "it reads from": (f"read x < {THP}", []),
    "it prints": (f"echo 'set {THP} to never'", []),
    "a comment": (f"# echo never > {THP}", []),
    "it asks sysctl": ("sysctl -n vm.swappiness; sysctl -a", []),
    "it asks cpupower": ("cpupower frequency-info", []),
    "it shows swap": ("swapon --show; swapon -s; swapon; swapon -a -e; swapon -p 5 -a; swapon -a > /dev/null 2>&1", []),
    "errors elsewhere": (f"cat {THP} 2>/dev/null", []),
    "another tree": ("echo 1 > /proc/self/oom_score_adj; echo x > /var/lib/sys/block", []),
    "a quote left open": ("echo 'never\n" * 3, []),
    # A command that leaves the script decides about all that follows.
    "a guard": (f"[ -x /opt/x ] || exit 0\necho 10 > {SWAPPINESS}", [(SWAPPINESS, "10", True)]),
    "a guard the other way": (f"[ -e /opt/x ] && exit\necho 10 > {SWAPPINESS}", [(SWAPPINESS, "10", True)]),
    "a guard with braces": (
        f"grep -q x /proc/cmdline || {{ echo no; exit 0; }}\necho 10 > {SWAPPINESS}",
        [(SWAPPINESS, "10", True)],
    ),
    "a guard on lines": (f"if lspci; then\n  exit 0\nfi\necho 10 > {SWAPPINESS}", [(SWAPPINESS, "10", True)]),
    "a guard by a function": (
        f"die() {{\n  exit 1\n}}\ntest -d /opt || die no\necho 10 > {SWAPPINESS}",
        [(SWAPPINESS, "10", True)],
    ),
    "a guard by the file itself": (
        f"[ -w {SWAPPINESS} ] || exit 0\n[ ! -e {THP} ] && exit\necho 10 > {SWAPPINESS}",
        [(SWAPPINESS, "10", False)],
    ),
    "a guard around the file itself": (
        f"if ! [ -w {SWAPPINESS} ]; then exit 0; fi\necho 10 > {SWAPPINESS}",
        [(SWAPPINESS, "10", False)],
    ),
    "a guard that does not hold": (f"[ a = b ] && exit\necho 10 > {SWAPPINESS}", [(SWAPPINESS, "10", False)]),
    "it leaves": (f"echo 10 > {SWAPPINESS}\nexit 0\necho 20 > {SWAPPINESS}", [(SWAPPINESS, "10", False)]),
    "it becomes another program": (f"exec /opt/x\necho 20 > {SWAPPINESS}", []),
    "its output goes elsewhere": (
        f"exec > >(logger -t x) 2>&1\nexec 3>/tmp/x\necho 10 > {SWAPPINESS}",
        [(SWAPPINESS, "10", False)],
    ),
    "a function returns": (
        f"f() {{\n  return 0\n}}\nf\necho 10 > {SWAPPINESS}",
        [(SWAPPINESS, "10", False)],
    ),
    "a subshell exits": (f"(cd /x; exit 1)\necho 10 > {SWAPPINESS}", [(SWAPPINESS, "10", False)]),
    "a choice of several": (
        f"lspci && {{\n  :\n  echo 10 > {SWAPPINESS}\n}}",
        [(SWAPPINESS, "10", True)],
    ),
    "two conditions": (
        f"if [ -e {THP} ] && lspci; then echo never > {THP}; fi",
        [(THP, "never", True)],
    ),
    # No command, though they look like one.
    "here-documents": (
        f"cat <<EOF <<-'END OF IT' > /tmp/x\necho 1 > {THP}\nEOF\n\techo 2 > {THP}\n\tEND OF IT\n"
        f"cat << \\E\nit's\nE\ncat <<< x\necho 10 > {SWAPPINESS}",
        [(SWAPPINESS, "10", False)],
    ),
    "signs in quotes": (f"echo ';' '>' {THP} '&&' echo never", []),
    # A comment only begins where a word does.
    "a part of a name": (f"n=${{x##*/}}; k=${{#n}}; echo never > {THP} # > {SWAPPINESS}", [(THP, "never", False)]),
    "a count of arguments": (
        f"if [ $# -gt 9 ]; then\n  :\nfi\necho never > {THP}",
        [(THP, "never", False)],
    ),
    # What is too much is not known.
    "loops in loops": (
        "".join(f"for {one} in {' '.join(map(str, range(100)))}; do\n" for one in "abc")
        + "echo 1 > /sys/block/x/a/$a/$b/$c\n",
        [(f"/sys/block/x/a/{a}/*/*", "1", True) for a in range(100)],
    ),
    "a text that grows": (
        "for i in a b c; do\n" + "X=$X$i\n" * 13 + "echo 1 > /sys/block/$X/y\ndone",
        [("/sys/block/*/y", "1", True)],
    ),
    "braces": (
        "for n in /sys/block/nvme{0..1}n1/{a,b}; do echo 1 > $n; done",
        [(f"/sys/block/nvme{number}n1/{name}", "1", False) for number in "01" for name in "ab"],
    ),
    "braces that are not simple": ("echo 1 > /sys/block/nvme{0..9..3}n1/x", [("/sys/block/nvme*n1/x", "1", True)]),
    "braces without end": ("echo 1 > /sys/block/nvme{0..99999999}n1/x", [("/sys/block/nvme*n1/x", "1", True)]),
    "arithmetic that counts": (
        "i=7\nfor ((i=0; i<8; i++)); do\n  echo 1 > /sys/block/sd$i/x\ndone",
        [("/sys/block/sd*/x", "1", True)],
    ),
    "a part that is worked out": ("echo 1 > /sys/block/${d##*/}/x", [("/sys/block/*/x", "1", True)]),
    "a shell in a script": (
        f"v=10\nif lspci; then sudo sh -c \"echo $v > {SWAPPINESS}\"; fi\nbash -ec 'echo never > {THP}'",
        [(SWAPPINESS, "10", True), (THP, "never", False)],
    ),
    "eval": (f"c='echo never >'; eval \"$c {THP}\"", [(THP, "never", False)]),
}


COMMANDS: Dict[str, Tuple[str, List[Tuple[Tuple[str, ...], bool]]]] = {
    "a program": ("/usr/sbin/ethtool -G eth0 rx 4096", [(("-G", "eth0", "rx", "4096"), False)]),
    "a loop": (
        "for n in eth0 eth1; do\n  ethtool -A $n rx off\ndone",
        [(("-A", "eth0", "rx", "off"), False), (("-A", "eth1", "rx", "off"), False)],
    ),
    "an unknown name": ("ethtool -G $(basename $x) rx 9", [(("-G", "*", "rx", "9"), True)]),
    "arithmetic": ("ethtool -G eth0 rx $((2 * 4))", [(("-G", "eth0", "rx", "*"), True)]),
    "a condition": ("if lspci; then ethtool -G eth0 rx 9; fi", [(("-G", "eth0", "rx", "9"), True)]),
    "a variable for the program": (
        'ETHTOOL=/sbin/ethtool\n"$ETHTOOL" -G eth0 rx 9\n$OTHER -G eth0 rx 9',
        [(("-G", "eth0", "rx", "9"), False)],
    ),
    "its place": ("E=$(which ethtool)\n$E -G eth0 rx 9", [(("-G", "eth0", "rx", "9"), False)]),
    "all arguments": ('ethtool -G "$@"', [(("-G", "*"), True)]),
    "options of a loop": (
        'for i in 1 2; do OPTS="$OPTS -x $i"; done\nethtool -G eth0 $OPTS',
        [(("-G", "eth0", "*"), True)],
    ),
    "more of them": (
        'O=rx\nfor i in 1 2; do O+=" $i"; done\nethtool -G eth0 $O',
        [(("-G", "eth0", "*"), True)],
    ),
    "if it fails": ("if ! ethtool -G eth0 rx 9; then logger x; fi", [(("-G", "eth0", "rx", "9"), False)]),
    "it is looked for": ("command -v ethtool -G; which ethtool -G", []),
    "another program": ("my-ethtool -G eth0 rx 9; echo ethtool -G eth0 rx 9", []),
}


@pytest.mark.parametrize(
    "before",
    [
        "sudo -u root",
        "sudo -nE",
        "env -i A=b C=d",
        "env -u A",
        "/usr/bin/env -S nice -n 5",
        "numactl -N 0 --membind=0",
        "taskset -c 0-3",
        "taskset 0x3",
        "chrt -f 10",
        "chrt -d -T 1 -P 2 -D 3 0",
        "setsid -w",
        "flock -w 5 /run/x",
        "time",
        "flock -n /run/x env",
        "stdbuf -oL -e 0",
        "timeout -k 5 10",
        "ionice -c 2 -n0",
        "nice -5",
        "nohup",
        "A=b busybox",
    ],
)
def test_programs_that_run_another_one(before: str) -> None:
    (found,) = shell_writes.read_script(f"{before} ethtool -G eth0 rx 9")
    assert (found.arguments, found.in_doubt) == (("-G", "eth0", "rx", "9"), False)


def test_flock_runs_a_line_of_a_shell() -> None:
    (found,) = shell_writes.read_script(f"flock /run/x -c 'echo never > {THP}'")
    assert (found.target, found.value) == (THP, "never")


def test_the_cost_of_a_script_goes_by_its_length() -> None:
    quote = "echo 'a\n" + "b\n" * 200_000 + f"'\necho never > {THP}\n"
    started = time.process_time()
    (found,) = shell_writes.read_script(quote)
    assert (found.number, found.value) == (200_003, "never")
    text = "".join(f"it\"s {number} $(x 'y') # isn't\n" for number in range(20_001))
    assert shell_writes.read_script(text + f"echo never > {THP}") == ()
    assert time.process_time() - started < 5


def test_so_much_is_made_of_all_lines_of_a_script() -> None:
    names = " ".join(f"sd{number}" for number in range(1000))
    found = shell_writes.read_script(f"for d in {names}; do\n" + "echo 1 > /sys/block/$d/x\n" * 1000 + "done\n")
    assert len(found) < 20_000
    assert (found[0].target, found[0].in_doubt) == ("/sys/block/sd0/x", False)
    assert (found[-1].target, found[-1].in_doubt) == ("/sys/block/*/x", True)


@pytest.mark.parametrize("name", COMMANDS)
def test_programs_that_set_devices_have_their_arguments(name: str) -> None:
    script, expected = COMMANDS[name]
    assert [(one.arguments, one.in_doubt) for one in shell_writes.read_script(script)] == expected


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_writes(name: str) -> None:
    text, expected = SCRIPTS[name]
    assert [(one.target, one.value, one.in_doubt) for one in shell_writes.read_script(text)] == expected


SYSTEM, WANTS = "/etc/systemd/system", "/etc/systemd/system/multi-user.target.wants"


def service(command: str, unit: str = "") -> str:
    said = f"[Service]\nType=oneshot\nExecStart={command}\n[Install]\nWantedBy=multi-user.target\n"
    return f"[Unit]\nDescription=x\n{unit}\n{said}"


def writes(tmp_path: Path, tree: Dict[str, str]) -> List[Tuple[str, str, Optional[int], str, Optional[str], bool]]:
    root = tmp_path / "root"
    build(root, tree)
    found = boot_writers.read(RecordedHost(str(root)).files)
    return [(one.owner, one.path, one.line, one.target, one.value, one.in_doubt) for one in found]


def enabled(command: str, unit: str = "") -> Dict[str, str]:
    return {f"{SYSTEM}/mine.service": service(command, unit), f"{WANTS}/mine.service": service(command, unit)}


@pytest.mark.parametrize(
    ("command", "extra", "expected"),
    [
        (f"/bin/sh -c 'echo never > {THP}'", {}, (f"{SYSTEM}/mine.service", 6)),
        (f'-/usr/bin/bash -ec "echo never > {THP}"', {}, (f"{SYSTEM}/mine.service", 6)),
        ("/opt/tune", {"/opt/tune": f"#!/bin/sh\n\necho never > {THP}\n"}, ("/opt/tune", 3)),
        ("/bin/bash /opt/tune", {"/opt/tune": f"#!/bin/sh\necho never > {THP}\n"}, ("/opt/tune", 2)),
        ("/usr/bin/env bash /opt/tune", {"/opt/tune": f"#!/bin/sh\necho never > {THP}\n"}, ("/opt/tune", 2)),
        ("/opt/tune", {"/opt/tune": f"#!/bin/env bash\necho never > {THP}\n"}, ("/opt/tune", 2)),
        ("/opt/tune", {"/opt/tune": f"#!/usr/bin/env -S bash -e\necho never > {THP}\n"}, ("/opt/tune", 2)),
        ("/bin/bash -x /opt/tune", {"/opt/tune": f"\necho never > {THP}\n"}, ("/opt/tune", 2)),
        ("/bin/bash -o pipefail /opt/tune", {"/opt/tune": f"\necho never > {THP}\n"}, ("/opt/tune", 2)),
        ("/usr/bin/taskset -c 0 /opt/tune", {"/opt/tune": f"#!/bin/sh\necho never > {THP}\n"}, ("/opt/tune", 2)),
    ],
)
def test_a_service_that_is_enabled(
    tmp_path: Path, command: str, extra: Dict[str, str], expected: Tuple[str, int]
) -> None:
    assert writes(tmp_path, {**enabled(command), **extra}) == [("mine.service", *expected, THP, "never", False)]


ECHO = f"/bin/sh -c 'echo never > {THP}'"


@pytest.mark.parametrize(
    "tree",
    [
        {f"{SYSTEM}/mine.service": service(ECHO)},
        {f"{SYSTEM}/rescue.target.wants/mine.service": service(ECHO), f"{SYSTEM}/mine.service": service(ECHO)},
        {f"{SYSTEM}/gpufleet.service": service(ECHO), f"{WANTS}/gpufleet.service": service(ECHO)},
        {**enabled(ECHO), f"{SYSTEM}/mine.service.d/a.conf": "[Service]\nExecStart=\nExecStart=/bin/true\n"},
        enabled(f"/usr/bin/cat {THP}"),
        enabled(f"/usr/bin/monitor --watch {THP}"),
        {**enabled("/opt/tune"), "/opt/tune": f"#!/usr/bin/python3\nopen('{THP}').read()\n"},
        {"/etc/rc.local": f"#!/bin/sh\necho never > {THP}\n"},
        {"/etc/sysfs.conf": "kernel/mm/transparent_hugepage/enabled = never\n"},
        {"/etc/ufw/ufw.conf": "ENABLED=no\n", "/etc/default/ufw": "IPT_SYSCTL=/etc/ufw/sysctl.conf\n",
         "/etc/ufw/sysctl.conf": "vm/swappiness=10\n"},
    ],
)  # fmt: skip
def test_what_does_not_set_it_at_boot(tmp_path: Path, tree: Dict[str, str]) -> None:
    assert writes(tmp_path, tree) == []


@pytest.mark.parametrize("unit", ["ConditionVirtualization=vm", "DefaultDependencies=no", "AssertPathExists=/x"])
def test_a_unit_that_may_not_run_or_too_early_is_in_doubt(tmp_path: Path, unit: str) -> None:
    ((*_place, value, in_doubt),) = writes(tmp_path, enabled(ECHO, unit))
    assert (value, in_doubt) == ("never", True)


QUEUE = "/sys/class/net/{}/queues/rx-0/rps_cpus"


@pytest.mark.parametrize(
    ("name", "specifier", "target", "in_doubt"),
    [
        ("eth0", "%i", "eth0", False),
        ("eth0", "%I", "eth0", False),
        ("a-b", "%i", "a-b", False),
        ("a\\x2db", "%I", "*", True),
        ("eth0", "%H", "*", True),
        ("eth0", "a%%b", "a%b", False),
    ],
)
@pytest.mark.parametrize("by", ["/bin/sh -c 'echo f > {}'", "/opt/tune {}"])
def test_an_instance_has_its_name(
    tmp_path: Path, name: str, specifier: str, target: str, by: str, *, in_doubt: bool
) -> None:
    place = QUEUE.format(specifier)
    tree = {
        f"{SYSTEM}/tune@.service": service(by.format(place)),
        f"{WANTS}/tune@{name}.service": service(by.format(place)),
        "/opt/tune": "#!/bin/sh\necho f > $1\n",
    }
    assert [(one[3], one[5]) for one in writes(tmp_path, tree)] == [(QUEUE.format(target), in_doubt)]


def with_folder(tmp_path: Path, tree: Dict[str, str], folder: str) -> List[boot_writers.BootWrite]:
    root = tmp_path / "root"
    build(root, {**tree, f"{folder}/x": ""})
    return list(boot_writers.read(RecordedHost(str(root)).files))


@pytest.mark.parametrize(
    "tree",
    [
        enabled("/sbin/sysctl -p /etc/x.d"),
        enabled("/usr/sbin/ethtool -G ${IF} rx 9", "[Service]\nEnvironmentFile=/etc/x.d\n"),
        enabled("/bin/sh /etc/x.d"),
        enabled("/etc/x.d"),
        {
            "/etc/tuned/active_profile": "gpu\n",
            "/etc/systemd/system/multi-user.target.wants/tuned.service": "",
            "/etc/tuned/gpu/tuned.conf": "[variables]\ninclude=/etc/x.d\n[script]\nscript=x.sh\n",
        },
        enabled("/opt/a\0b"),
        enabled("/bin/sh /opt/a\0b"),
        enabled(f"/opt/{'a' * 5000}"),
        enabled(f"/bin/sh /opt/{'a' * 5000}"),
    ],
)
def test_what_is_no_text_is_an_empty_one(tmp_path: Path, tree: Dict[str, str]) -> None:
    found = with_folder(tmp_path, tree, "/etc/x.d")
    assert [one.target for one in found] in ([], ["ethtool"])


def test_of_a_text_that_is_too_long_nothing_is_read(tmp_path: Path) -> None:
    script = f"#!/bin/sh\necho never > {THP}\n"
    tree = {**enabled("/opt/tune"), "/opt/tune": script + "#" * (1 << 20)}
    assert writes(tmp_path, tree) == []
    tree["/opt/tune"] = script + "#" * ((1 << 20) - len(script))
    assert len(writes(tmp_path, tree)) == 1


def test_a_timer_starts_its_service(tmp_path: Path) -> None:
    timer = "[Timer]\nOnBootSec=1min\nUnit=tune.service\n"
    tree = {f"{SYSTEM}/mine.timer": timer, f"{SYSTEM}/timers.target.wants/mine.timer": timer}
    found = writes(tmp_path, {**tree, f"{SYSTEM}/tune.service": service(ECHO)})
    assert [one[0] for one in found] == ["tune.service"]


def test_the_other_sources(tmp_path: Path) -> None:
    root = tmp_path / "root"
    tree = {
        "/etc/rc.local": f"#!/bin/sh\necho never > {THP}\n",
        "/etc/rc2.d/S01sysfsutils": "",
        "/etc/sysfs.d/mine.conf": "mode kernel/x = 0660\nkernel/mm/transparent_hugepage/enabled = always # x\n",
        "/etc/ufw/ufw.conf": "ENABLED=yes\n",
        "/etc/default/ufw": "IPT_SYSCTL=/etc/ufw/sysctl.conf\n",
        "/etc/ufw/sysctl.conf": "net/ipv4/conf/all/accept_redirects=0\n",
        "/etc/default/apport": "enabled=1\n",
        "/etc/init.d/apport": "#!/bin/sh\n",
        "/usr/lib/systemd/system/systemd-networkd.service": "[Install]\n",
        f"{WANTS}/systemd-networkd.service": "[Install]\n",
        "/etc/systemd/network/a.network": "[Match]\nName=*\n[Network]\nIPForward=ipv4\n",
    }
    build(root, tree)
    (root / "etc/rc.local").chmod(0o755)
    found = boot_writers.read(RecordedHost(str(root)).files)
    assert [(one.owner, one.line, one.target, one.value, one.in_doubt) for one in found] == [
        ("systemd-networkd", 4, "/proc/sys/net/ipv4/ip_forward", "1", False),
        ("ufw", 1, "/proc/sys/net/ipv4/conf/all/accept_redirects", "0", True),
        ("sysfsutils", 2, THP, "always", False),
        ("apport", None, "/proc/sys/kernel/core_pattern", None, True),
        ("rc.local", 2, THP, "never", False),
    ]


def test_sysctl_files_that_a_script_has_read(tmp_path: Path) -> None:
    tree = {
        **enabled("/sbin/sysctl -p /etc/tune.conf"),
        "/etc/tune.conf": "# x\nvm.swappiness = 10\n",
        "/etc/sysctl.conf": "vm.swappiness = 20\n",
    }
    assert writes(tmp_path, tree) == [("mine.service", "/etc/tune.conf", 2, SWAPPINESS, "10", False)]
    (again,) = writes(tmp_path, {**tree, **enabled("/sbin/sysctl --system")})
    assert again == ("mine.service", "/etc/sysctl.conf", 1, SWAPPINESS, "20", False)


def test_all_concerns_of_a_look_get_what_was_read_once_and_the_next_look_reads_again(tmp_path: Path) -> None:
    build(tmp_path / "root", {**enabled("/opt/tune"), "/opt/tune": f"#!/bin/sh\necho never > {THP}\n"})
    host = RecordedHost(str(tmp_path / "root"))
    files = snapshot(host).files
    first = boot_writers.read(files)
    (tmp_path / "root/opt/tune").write_text(f"#!/bin/sh\necho always > {THP}\n")
    assert boot_writers.read(files) is first
    (again,) = boot_writers.read(snapshot(host).files)
    assert (first[0].value, again.value) == ("never", "always")


PROGRAMS: Dict[str, Tuple[str, List[str]]] = {
    "python": (f'#!/usr/bin/python3\nwith open("{THP}", "w") as f:\n    f.write("never")\n', [THP]),
    "python by its mode": (f"#!/usr/bin/env python3\nopen('{THP}', mode='r+').write('x')\n", [THP]),
    "python by pathlib": (f'#!/usr/bin/python3 -u\nPath("{THP}").write_text("never")\n', [THP]),
    "python with a name": (
        '#!/usr/bin/python3\nopen(f"/sys/block/{dev}/queue/scheduler", "w").write("none")\n',
        ["/sys/block/*/queue/scheduler"],
    ),
    "perl": (f"#!/usr/bin/perl -w\nopen(my $f, '>', '{THP}') or die;\n", [THP]),
    "perl of two arguments": (f'#!/usr/bin/perl\nopen FH, ">{THP}";\n', [THP]),
    "it reads": (f'#!/usr/bin/python3\nopen("{THP}"); open("{THP}", "r"); open("{THP}", encoding="utf-8")\n', []),
    "it mentions it": (f'#!/usr/bin/python3\nprint("{THP}")\n# open("{THP}", "w")\nopen("/tmp/x", "w")\n', []),
    "perl that reads": (f"#!/usr/bin/perl\nopen(my $f, '<', '{THP}');\n", []),
}


@pytest.mark.parametrize("by", ["/opt/tune", "/usr/bin/python3 -u /opt/tune"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_program_opens_to_write_is_in_doubt(tmp_path: Path, name: str, by: str) -> None:
    text, targets = PROGRAMS[name]
    unit = f"[Service]\nExecStart={by}\n"
    tree = {"/etc/systemd/system/mine.service": unit, f"{WANTS}/mine.service": unit, "/opt/tune": text}
    assert writes(tmp_path, tree) == [("mine.service", "/opt/tune", 2, target, None, True) for target in targets]


@pytest.mark.parametrize("enabled", ["1", "0"])
def test_apport_is_found_by_its_own_file_alone(tmp_path: Path, enabled: str) -> None:
    unit = "[Service]\nExecStart=/usr/share/apport/apport --start\n"
    tree = {
        "/usr/lib/systemd/system/apport.service": unit,
        f"{WANTS}/apport.service": unit,
        "/usr/share/apport/apport": '#!/usr/bin/python3\nopen("/proc/sys/kernel/core_pattern", "w").write(pattern)\n',
        "/etc/default/apport": f"enabled={enabled}\n",
    }
    found = [("apport", "/etc/default/apport", None, "/proc/sys/kernel/core_pattern", None, True)]
    assert writes(tmp_path, tree) == (found if enabled == "1" else [])
