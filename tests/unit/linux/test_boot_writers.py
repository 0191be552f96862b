# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What services, timers and scripts write at boot, and what merely mentions a path or runs a program."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional, Tuple

import pytest
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
    "swapon": ("swapon /swapfile", [(shell_writes.SWAP, "/swapfile", False)]),
    "swapon of a variable": (
        'readonly DEV="/dev/zram0"\nmkswap "${DEV}"\nswapon -p 5 "${DEV}"',
        [(shell_writes.SWAP, "-p 5 /dev/zram0", False)],
    ),
    "swapon of what a program says": (
        "d=$(zramctl -f -s 4G)\nswapon -p 5 $d",
        [(shell_writes.SWAP, "-p 5 ${0}", True)],
    ),
    "swapon by a label": (
        "swapon -L more; swapon UUID=22bb",
        [(shell_writes.SWAP, "-L more", False), (shell_writes.SWAP, "UUID=22bb", False)],
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
    "another program": ("my-ethtool -G eth0 rx 9; echo ethtool -G eth0 rx 9", []),
}


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


def test_what_changed_is_read_again_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "root"
    build(root, {**enabled("/opt/tune"), "/opt/tune": f"#!/bin/sh\necho never > {THP}\n"})
    files = RecordedHost(str(root)).files
    first = boot_writers.read(files)
    assert boot_writers.read(files) is first
    script = root / "opt/tune"
    script.write_text(f"#!/bin/sh\necho always > {THP}\n")
    (again,) = boot_writers.read(files)
    assert again.value == "always"
    (root / WANTS.lstrip("/") / "mine.service").unlink()
    assert boot_writers.read(files) == ()


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
