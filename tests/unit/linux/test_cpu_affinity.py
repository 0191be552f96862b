# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CPUs to which services bind themselves, as systemd reads ``CPUAffinity=``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux.cpu_affinity import Affinity, read_affinities
from ansible_collections.gpufleet.node.plugins.module_utils._linux.cpulist import parse, render
from ansible_collections.gpufleet.node.tests.unit.support import build

ETC, LIB, RUN = "/etc/systemd/system", "/usr/lib/systemd/system", "/run/systemd/system"
PLAIN = "[Service]\nExecStart=/bin/a\n"
NODES = "/sys/devices/system/node"


def unit(*lines: str) -> str:
    return f"{PLAIN}{''.join(f'{line}{chr(10)}' for line in lines)}"


def bound(*values: str) -> str:
    return unit(*(f"CPUAffinity={value}" for value in values))


def read(root: Path, files: Mapping[str, str], links: Optional[Mapping[str, str]] = None) -> Tuple[Affinity, ...]:
    nodes = {f"{NODES}/node0/cpulist": "0-7\n", f"{NODES}/node1/cpulist": "8-15\n"}
    return read_affinities(build(root, {**nodes, **files}, links).files, without="99-ours.conf")


@pytest.mark.parametrize(
    ("lines", "cpus"),
    [
        (["CPUAffinity=0-3"], "0-3"),
        (["CPUAffinity=0 2,4"], "0,2,4"),
        (['CPUAffinity="0" 2'], "0,2"),
        (["CPUAffinity=0-3", "CPUAffinity=5"], "0-3,5"),
        (["CPUAffinity=0-3", "CPUAffinity=", "CPUAffinity=5"], "5"),
        (["CPUAffinity=0-3", "CPUAffinity=,", "CPUAffinity=5"], "5"),
        (["CPUAffinity=0-3", "CPUAffinity=0-N"], "0-3"),
        (["CPUAffinity=numa", "NUMAMask=1"], "8-15"),
        (["NUMAMask=0", "NUMAMask=1", "CPUAffinity=3", "CPUAffinity=numa"], "0-15"),
        (["NUMAMask=0", "NUMAMask=", "NUMAMask=1", "CPUAffinity=numa"], "8-15"),
        (["NUMAMask=all", "CPUAffinity=numa"], "0-15"),
        (["NUMAMask=1", "CPUAffinity=numa", "CPUAffinity=2"], "2"),
        (["NUMAMask=1", "CPUAffinity=numa", "CPUAffinity=0-N"], "8-15"),
    ],
)
def test_the_lines_add_up_as_in_systemd(tmp_path: Path, lines: List[str], cpus: str) -> None:
    """The reference is config_parse_exec_cpu_affinity(), config_parse_numa_mask() and parse_cpu_set_extend()."""
    (affinity,) = read(tmp_path, {f"{LIB}/a.service": unit(*lines)})
    assert render(affinity.cpus) == cpus


@pytest.mark.parametrize(
    "lines",
    [
        ["CPUAffinity="],
        ["CPUAffinity=0-3", "CPUAffinity="],
        ["CPUAffinity=0-N"],
        ["CPUAffinity=numa"],
        ["CPUAffinity=numa", "NUMAMask=7"],
        ["# CPUAffinity=0"],
        ["[Unit]", "CPUAffinity=0"],
        # It cannot be known what these are.
        ["CPUAffinity=%H"],
        ["CPUAffinity=0", "CPUAffinity=%i"],
    ],
)
def test_a_service_without_cpus_is_not_listed(tmp_path: Path, lines: List[str]) -> None:
    assert read(tmp_path, {f"{LIB}/a.service": unit(*lines)}) == ()


def test_the_file_and_the_line_are_those_of_the_last_that_counts(tmp_path: Path) -> None:
    drop_in = f"{ETC}/a.service.d/50-cpus.conf"
    files = {f"{LIB}/a.service": bound("0"), drop_in: "# Mine\n[Service]\n CPUAffinity = 4-5\nNice=1\n"}
    assert read(tmp_path, files) == (Affinity("a.service", "system.slice", parse("0,4-5"), drop_in, 3, "4-5"),)


FOUND: Dict[str, Tuple[Dict[str, str], Sequence[str]]] = {
    "the strongest file": ({f"{LIB}/a.service": bound("1"), f"{ETC}/a.service": bound("2")}, ["a.service 2"]),
    "a stronger file without it": ({f"{LIB}/a.service": bound("1"), f"{ETC}/a.service": PLAIN}, []),
    "a mask": ({f"{LIB}/a.service": bound("1"), f"{ETC}/a.service": ""}, []),
    "a drop-in without its service": ({f"{ETC}/a.service.d/a.conf": bound("1")}, []),
    "a drop-in of ours": ({f"{LIB}/a.service": PLAIN, f"{ETC}/a.service.d/99-ours.conf": bound("1")}, []),
    "until the next boot": ({f"{RUN}/a.service": bound("1")}, ["a.service 1"]),
    "a drop-in of a prefix": (
        {f"{LIB}/a-b.service": PLAIN, f"{LIB}/ab.service": PLAIN, f"{ETC}/a-.service.d/a.conf": bound("1")},
        ["a-b.service 1"],
    ),
    "a drop-in of all services": (
        {f"{LIB}/a.service": PLAIN, f"{LIB}/b.service": bound("", "2"), f"{ETC}/service.d/a.conf": bound("1")},
        ["a.service 1", "b.service 1-2"],
    ),
    "a template without instances": ({f"{LIB}/a@.service": bound("1")}, ["a@.service 1"]),
    "instances by their names": (
        {
            f"{LIB}/a@.service": bound("%i"),
            f"{ETC}/multi-user.target.wants/a@2.service": "",
            f"{ETC}/multi-user.target.wants/a@3.service": "",
        },
        ["a@2.service 2", "a@3.service 3"],
    ),
    "an instance with a drop-in": (
        {
            f"{LIB}/a@.service": bound("1"),
            f"{ETC}/a@.service.d/b.conf": bound("4"),
            f"{ETC}/a@2.service.d/a.conf": bound("", "5"),
        },
        ["a@2.service 4-5"],
    ),
}


@pytest.mark.parametrize("case", FOUND)
def test_a_service_has_the_cpus_of_all_files_that_it_is_made_of(tmp_path: Path, case: str) -> None:
    files, expected = FOUND[case]
    assert [f"{one.unit} {render(one.cpus)}" for one in read(tmp_path, files)] == list(expected)


def test_another_name_of_a_service_is_not_listed_twice(tmp_path: Path) -> None:
    (affinity,) = read(tmp_path, {f"{LIB}/a.service": bound("1")}, {f"{ETC}/b.service": f"{LIB}/a.service"})
    assert affinity.unit == "a.service"


def test_a_folder_with_the_name_of_a_service_is_passed_over(tmp_path: Path) -> None:
    assert read(tmp_path, {f"{ETC}/a.service/b": "", f"{LIB}/b.service": bound("1")})[0].unit == "b.service"


@pytest.mark.parametrize(
    ("name", "files", "place"),
    [
        ("a.service", {}, "system.slice"),
        ("a.service", {f"{ETC}/a.service.d/a.conf": "[Service]\nSlice=b.slice\n"}, "b.slice"),
        ("a.service", {f"{ETC}/a.service.d/99-ours.conf": "[Service]\nSlice=b.slice\n"}, "system.slice"),
        ("a@1.service", {}, "system-a.slice"),
        ("a@1.service", {f"{LIB}/a@.service.d/a.conf": "[Service]\nSlice=b.slice\n"}, "b.slice"),
    ],
)
def test_a_service_starts_in_the_slice_of_its_files(
    tmp_path: Path, name: str, files: Mapping[str, str], place: str
) -> None:
    template = f"{LIB}/{name.replace('@1', '@')}"
    drop_in = f"{ETC}/{name}.d/50-cpus.conf"
    (affinity,) = read(tmp_path, {template: PLAIN, drop_in: bound("1"), **files})
    assert (affinity.unit, affinity.slice) == (name, place)


@pytest.mark.parametrize("value", ["0-3", "0 2,4", '"0" 2', "3-1", "numa", "0-N", "all", "0-7:1/2"])
def test_systemd_itself_ignores_the_lists_that_do_not_count(tmp_path: Path, value: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    path = tmp_path / "tried.service"
    path.write_text(bound("15", value))
    said = subprocess.run(["systemd-analyze", "verify", str(path)], stderr=subprocess.PIPE, text=True, check=False)
    (ours,) = read(
        tmp_path / "root", {f"{LIB}/a.service": unit("NUMAMask=0", "CPUAffinity=15", f"CPUAffinity={value}")}
    )
    # An ignored line leaves what was before it.
    ignored = ours.cpus == {15} and value != "3-1"
    assert ("Failed to parse CPU" in said.stderr) == ignored, said.stderr
