# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux import module_options
from ansible_collections.gpufleet.node.tests.unit.support import build

# As the driver 550 lists them, shortened.
NVIDIA = """\
ResmanDebugLevel: 4294967295
DeviceFileUID: 0
DeviceFileGID: 44
DeviceFileMode: 432
RmProfilingAdminOnly: 0
RegistryDwords: "RMForceStaticBar1=1;RmForceDisableIomapWC=1;"
RegistryDwordsPerDevice: ""
"""
# modinfo(8) of kmod 30: with a description and a type, a type alone, a description alone, a type in the description.
MODINFO = """\
filename:       /lib/modules/6.1.0-35-amd64/kernel/drivers/nvme/host/nvme.ko
license:        GPL
alias:          pci:v*d*sv*sd*bc01sc08i02*
depends:        nvme-core
name:           nvme
vermagic:       6.1.0-35-amd64 SMP preempt mod_unload modversions
parm:           use_threaded_interrupts:int
parm:           max_host_mem_size_mb:Maximum Host Memory Buffer (HMB) size per controller (in MiB) (uint)
parm:           io_queue_depth:set io queue depth, should >= 2 and < 4096
parm:           noacpi:disable acpi bios quirks (bool)
parm:           index:Index value (all of them). (array of int)
parm:           odd-name:charp
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "options nvme poll_queues=8 write_queues=4\n",
            [(1, "nvme", "poll_queues", "8"), (1, "nvme", "write_queues", "4")],
        ),
        ("# options nvme a=1\n\n  options\tnvme-core\tio-timeout=60  \n", [(3, "nvme_core", "io_timeout", "60")]),
        (
            "options nvidia \\\n  NVreg_A=1 \\\n  NVreg_B=2\n",
            [(1, "nvidia", "NVreg_A", "1"), (1, "nvidia", "NVreg_B", "2")],
        ),
        ('options x a="b c" "d=e f" g\n', [(1, "x", "a", "b c"), (1, "x", "d", "e f"), (1, "x", "g", "")]),
        ("options nvidia NVreg_RegistryDwords=A=1;B=2\n", [(1, "nvidia", "NVreg_RegistryDwords", "A=1;B=2")]),
        ("options nvme\nOptions nvme a=1\noptionsnvme a=1\n", []),
    ],
)
def test_option_lines_are_read_as_modprobe_and_the_kernel_read_them(text: str, found: List[Any]) -> None:
    lines = module_options.parse_options("/etc/modprobe.d/a.conf", text)
    assert [(line.number, line.module, line.parameter, line.value) for line in lines] == found


def test_of_the_command_line_arguments_with_a_dot_count() -> None:
    text = 'root=/dev/sda1 ro nvme-core.io_timeout=60 nvidia.NVreg_X="a b" quiet loop.max_loop'
    lines = module_options.parse_command_line("/proc/cmdline", text)
    assert [(line.module, line.parameter, line.value, line.name) for line in lines] == [
        ("nvme_core", "io_timeout", "60", "nvme-core.io_timeout"),
        ("nvidia", "NVreg_X", "a b", "nvidia.NVreg_X"),
        ("loop", "max_loop", "", "loop.max_loop"),
    ]


def test_what_is_rendered_is_read_again() -> None:
    parameters = {"a": "1,2", "b": "c d", "e": ""}
    text = module_options.render("nvidia", parameters)
    assert text == 'options nvidia a=1,2 b="c d" e=\n'
    assert {line.parameter: line.value for line in module_options.parse_options("x", text)} == parameters


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("0660", "432", True),
        ("0x1B0", "432", True),
        ("660", "432", False),
        ("1", "Y", True),
        ("off", "N", True),
        ("0", "N", True),
        ("1", "N", False),
        ("-1", "4294967295", True),
        ("-1", "-1", True),
        ("1,0x2", "1,2", True),
        ("1,2", "1", False),
        ("08", "8", False),
        ("", "0", False),
        ("o2ib0(ib0,ib1)", "o2ib0(ib0,ib1)", True),
    ],
)
def test_values_are_compared_as_the_kernel_reads_them(left: str, right: str, same: bool) -> None:
    assert module_options.is_same(left, right) is same
    assert module_options.is_same(right, left) is same


def test_the_driver_of_nvidia_lists_one_parameter_by_another_name(tmp_path: Path) -> None:
    host = build(tmp_path, {"/proc/driver/nvidia/params": NVIDIA})
    found = module_options.read_nvidia(host.files)
    assert found["NVreg_RestrictProfilingToAdminUsers"] == "0"
    assert found["NVreg_DeviceFileMode"] == "432"
    assert found["NVreg_RegistryDwords"] == "RMForceStaticBar1=1;RmForceDisableIomapWC=1;"
    assert found["NVreg_RegistryDwordsPerDevice"] == ""
    assert "NVreg_RmProfilingAdminOnly" not in found
    assert module_options.read_nvidia(build(tmp_path / "other", {}).files) == {}


def test_modinfo_says_what_a_module_has_and_of_which_type(tmp_path: Path) -> None:
    host = build(tmp_path, {})
    assert module_options.read_types(host.commands, "nvme") is None
    host.commands.programs["modinfo"] = lambda argv: Completed(0, MODINFO, "")
    assert module_options.read_types(host.commands, "nvme") == {
        "use_threaded_interrupts": "int",
        "max_host_mem_size_mb": "uint",
        "io_queue_depth": "",
        "noacpi": "bool",
        "index": "array of int",
        "odd_name": "charp",
    }
    host.commands.programs["modinfo"] = lambda argv: Completed(1, "", "modinfo: ERROR: Module x not found.\n")
    assert module_options.read_types(host.commands, "x") is None


REFUSED: Mapping[str, List[Any]] = {
    "uint": [
        ("8", ""),
        ("0x8", ""),
        ("010", ""),
        ("-1", "-1 is not between 0 and 4294967295"),
        ("a", "'a' is not a number"),
    ],
    "ushort": [("65535", ""), ("65536", "65536 is not between 0 and 65535"), ("08", "'08' is not a number")],
    "int": [
        ("-1", ""),
        ("2147483648", "2147483648 is not between -2147483648 and 2147483647"),
        ("", "'' is not a number"),
    ],
    "bool": [
        ("1", ""),
        ("N", ""),
        ("off", ""),
        ("2", "'2' is neither 1 nor 0"),
        ("maybe", "'maybe' is neither 1 nor 0"),
    ],
    "array of int": [("1,2", ""), ("1,x", "'x' is not a number")],
    "charp": [("anything at all", "")],
    "": [("anything at all", "")],
}


@pytest.mark.parametrize(
    ("kind", "value", "why"), [(kind, value, why) for kind, cases in REFUSED.items() for value, why in cases]
)
def test_what_a_type_does_not_take_is_known_before_the_module_is_loaded(kind: str, value: str, why: str) -> None:
    assert module_options.why_refused(value, kind) == why
