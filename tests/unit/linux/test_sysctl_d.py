# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""sysctl.d as systemd-sysctl and sysctl(8) read it. The answers were given by systemd 252 and procps 4.0.2."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux import sysctl_d
from ansible_collections.gpufleet.node.tests.unit.support import build

ETC, RUN, LOCAL, LIB = "/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d"
SWAPPINESS = "vm/swappiness"
ALL, DEFAULT, LO = (f"net/ipv4/conf/{name}/rp_filter" for name in ("all", "default", "lo"))


def lines_of(text: str, path: str = "a.conf") -> Tuple[sysctl_d.SysctlLine, ...]:
    return tuple(sysctl_d.parse(path, text))


# Lines


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("vm.swappiness", "vm/swappiness"),
        ("vm/swappiness", "vm/swappiness"),
        ("net.ipv4.conf.eth0/5.mtu", "net/ipv4/conf/eth0.5/mtu"),
        ("net/ipv4/conf/eth0.5/mtu", "net/ipv4/conf/eth0.5/mtu"),
        # Of dots alone nobody can tell which was meant: the path of this one is not there.
        ("net.ipv4.conf.eth0.5.mtu", "net/ipv4/conf/eth0/5/mtu"),
        ("net.ipv4.conf.*.rp_filter", "net/ipv4/conf/*/rp_filter"),
        ("/vm//./swappiness", "vm/swappiness"),
        ("printk", "printk"),
        ("", ""),
    ],
)
def test_the_first_separator_of_a_key_says_what_the_others_are(key: str, expected: str) -> None:
    assert sysctl_d.normal(key) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vm.swappiness=1", (SWAPPINESS, "1", False)),
        (" \tvm/swappiness  =  1 \r", (SWAPPINESS, "1", False)),
        ("-vm.swappiness = 1", (SWAPPINESS, "1", True)),
        ("- vm.swappiness = 1", (SWAPPINESS, "1", True)),
        ("-vm.swappiness", (SWAPPINESS, None, True)),
        ("vm.swappiness =", (SWAPPINESS, "", False)),
        # What comes behind the value is a part of it, and so are quotes.
        ("vm.swappiness = 1 # less", (SWAPPINESS, "1 # less", False)),
        ('kernel.core_pattern = "|/bin/x %p=%s"', ("kernel/core_pattern", '"|/bin/x %p=%s"', False)),
        ("net.ipv4.tcp_rmem = 4096\t131072 6291456", ("net/ipv4/tcp_rmem", "4096\t131072 6291456", False)),
        ("# vm.swappiness = 1", None),
        ("  ; vm.swappiness = 1", None),
        ("vm.swappiness 1", None),
        ("= 1", None),
        ("-", None),
        ("", None),
    ],
)
def test_a_line_is_an_assignment_or_an_exclusion(text: str, expected: Optional[Tuple[str, str, bool]]) -> None:
    found = [(line.key, line.value, line.lenient) for line in lines_of(text)]
    assert found == ([expected] if expected else [])


def test_lines_have_their_numbers_and_none_goes_on_in_the_next() -> None:
    found = lines_of("# \x0c\u2028vm.swappiness = 9\n\nvm.swappiness = \\\n1\nvm.laptop_mode=5\n")
    assert [(line.number, line.key, line.value) for line in found] == [
        (3, SWAPPINESS, "\\"),
        (5, "vm/laptop_mode", "5"),
    ]


# Which line counts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("vm.swappiness=1\nvm.swappiness=2\n", [(2, SWAPPINESS)], id="the last of equal keys"),
        pytest.param("vm.swappiness=1\nvm/swappiness=2\n", [(2, SWAPPINESS)], id="in whatever form they are written"),
        pytest.param("vm.swappiness=1\n-vm.swappiness\n", [], id="a later exclusion takes the assignment away"),
        pytest.param("-vm.swappiness\nvm.swappiness=1\n", [(2, SWAPPINESS)], id="an earlier one does not"),
        pytest.param("net.ipv4.conf.*.rp_filter=2\n", [(1, ALL), (1, DEFAULT), (1, LO)], id="a glob is for all keys"),
        pytest.param("net.ipv4.*.rp_filter=2\n", [], id="no sign of a glob stands for a separator"),
        pytest.param("net.ipv4.conf.*=2\n", [], id="nor for what is below"),
        pytest.param("net.ipv4.conf.[dl]?*.rp_filter=2\n", [(1, DEFAULT), (1, LO)], id="a set, one sign and any"),
        pytest.param(
            "net.ipv4.conf.*.rp_filter=2\nnet.ipv4.conf.all.rp_filter=1\n",
            [(1, DEFAULT), (1, LO), (2, ALL)],
            id="a key with a line of its own is not for a glob before it",
        ),
        pytest.param(
            "net.ipv4.conf.all.rp_filter=1\nnet.ipv4.conf.*.rp_filter=2\n",
            [(1, ALL), (2, DEFAULT), (2, LO)],
            id="nor for one behind it",
        ),
        pytest.param(
            "net.ipv4.conf.*.rp_filter=2\n-net.ipv4.conf.all.rp_filter\n",
            [(1, DEFAULT), (1, LO)],
            id="nor is one that is excluded",
        ),
        pytest.param(
            "net.ipv4.conf.*.rp_filter=1\nnet.ipv4.*.*.rp_filter=2\n",
            [(1, ALL), (1, DEFAULT), (1, LO), (2, ALL), (2, DEFAULT), (2, LO)],
            id="of two globs the later one stays",
        ),
        pytest.param(
            "net.ipv4.conf.l*.rp_filter=0\nnet.ipv4.*.*.rp_filter=2\nnet.ipv4.conf.l*.rp_filter=0\n",
            [(3, LO), (2, ALL), (2, DEFAULT), (2, LO)],
            id="a line that says again what was said stays at the first place",
        ),
        pytest.param(
            "net.ipv4.conf.l*.rp_filter=0\nnet.ipv4.*.*.rp_filter=2\nnet.ipv4.conf.l*.rp_filter=1\n",
            [(2, ALL), (2, DEFAULT), (2, LO), (3, LO)],
            id="one that says something else goes to the end",
        ),
    ],
)
def test_what_is_written_and_in_which_order(text: str, expected: Sequence[Tuple[int, str]]) -> None:
    found = sysctl_d.written(lines_of(text), (SWAPPINESS, ALL, DEFAULT, LO))
    assert [(line.number, line.key) for line in found] == expected


# Files


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            {f"{ETC}/10-a.conf": "vm.swappiness=1\n", f"{LIB}/99-b.conf": "vm.swappiness=2\n"},
            [f"{ETC}/10-a.conf", f"{LIB}/99-b.conf"],
            id="by name, whatever the folder",
        ),
        pytest.param(
            {f"{place}/50-a.conf": "vm.swappiness=1\n" for place in (LIB, LOCAL, RUN, ETC)},
            [f"{ETC}/50-a.conf"],
            id="of equal names only one",
        ),
        pytest.param(
            {f"{ETC}/50-a.conf": "vm.laptop_mode=1\n", f"{LIB}/50-a.conf": "vm.swappiness=1\n"},
            [f"{ETC}/50-a.conf"],
            id="also where it says something else",
        ),
        pytest.param(
            {f"{ETC}/50-a.conf": "", f"{LIB}/50-a.conf": "vm.swappiness=1\n"},
            [],
            id="or nothing, which masks the other",
        ),
        pytest.param(
            {f"{ETC}/9.conf": "vm.swappiness=1\n", f"{ETC}/10.conf": "vm.swappiness=2\n", f"{ETC}/Z.conf": "a=1\n"},
            [f"{ETC}/10.conf", f"{ETC}/9.conf", f"{ETC}/Z.conf"],
            id="names are texts, not numbers",
        ),
        pytest.param({f"{ETC}/a.conf.bak": "a=1\n", f"{ETC}/.a.conf": "a=1\n"}, [], id="other names say nothing"),
    ],
)
def test_files_are_read_as_systemd_sysctl_does(tmp_path: Path, files: Dict[str, str], expected: List[str]) -> None:
    found = sysctl_d.read_files(build(tmp_path, files).files)
    assert [line.path for line in found.boot] == expected
    assert (found.conf, found.conf_at_boot) == ((), False)


def test_a_link_to_dev_null_masks_a_file(tmp_path: Path) -> None:
    host = build(tmp_path, {f"{LIB}/50-a.conf": "vm.swappiness=1\n"}, {f"{ETC}/50-a.conf": "/dev/null"})
    assert sysctl_d.read_files(host.files).boot == ()


def test_sysctl_conf_is_not_read_at_boot_and_by_sysctl_it_is_the_last(tmp_path: Path) -> None:
    files = {"/etc/sysctl.conf": "vm.swappiness=1\n", f"{ETC}/zz.conf": "vm.swappiness=2\n"}
    found = sysctl_d.read_files(build(tmp_path, files).files)
    assert [line.value for line in sysctl_d.written(found.boot, [SWAPPINESS])] == ["2"]
    assert [line.value for line in sysctl_d.written((*found.boot, *found.conf), [SWAPPINESS])] == ["1"]
    assert not found.conf_at_boot


@pytest.mark.parametrize(("name", "at_boot"), [("99-sysctl.conf", "2"), ("zzz.conf", "1")])
def test_a_link_to_sysctl_conf_has_its_own_place_at_boot(tmp_path: Path, name: str, at_boot: str) -> None:
    files = {"/etc/sysctl.conf": "vm.swappiness=1\n", f"{ETC}/99-zz.conf": "vm.swappiness=2\n"}
    found = sysctl_d.read_files(build(tmp_path, files, {f"{ETC}/{name}": "../sysctl.conf"}).files)
    assert found.conf_at_boot
    assert f"{ETC}/{name}" in [line.path for line in found.boot]
    assert [line.value for line in sysctl_d.written(found.boot, [SWAPPINESS])] == [at_boot]
    assert [line.path for line in found.conf] == ["/etc/sysctl.conf"]
    assert [line.value for line in sysctl_d.written((*found.boot, *found.conf), [SWAPPINESS])] == ["1"]
