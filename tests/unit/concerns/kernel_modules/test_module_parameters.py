# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_modules.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_modules.kernel_modules_machine import (
    INITRAMFS,
    NVME_LOADED,
    OPTIONS_FILE,
    OUTDATED,
    RELEASE,
    machine,
    params,
    programs_run,
    run,
    text_of,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, snapshot

PROFILING = {"nvidia": {"NVreg_RestrictProfilingToAdminUsers": 0, "NVreg_DeviceFileMode": "0660"}}
QUEUES = {"nvme": {"poll_queues": 4, "write_queues": 2}}
CMDLINE = {
    "/boot/grub/grub.cfg": "menuentry 'Linux' {\n\tlinux /vmlinuz ro nvme.poll-queues=2\n}\n",
    "/etc/default/grub": '# x\nGRUB_CMDLINE_LINUX="nvme.poll-queues=2"\n',
}


def reasons(outcome: Any) -> Any:
    return outcome.remaining.reboot_reasons


def test_a_module_that_is_not_loaded_takes_the_parameters_when_it_is(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path)
    outcome = run(host, parameters=PROFILING)
    assert text_of(host, OPTIONS_FILE) == [
        "options nvidia NVreg_DeviceFileMode=0660 NVreg_RestrictProfilingToAdminUsers=0"
    ]
    assert (outcome.remaining.status, outcome.remaining.needs) == ("in_sync", ())
    assert outcome.effective["parameters"] == {
        "nvidia": {"NVreg_DeviceFileMode": None, "NVreg_RestrictProfilingToAdminUsers": None}
    }
    kernel.modprobe("nvidia")
    outcome = run(host, parameters=PROFILING)
    assert (outcome.status, outcome.changes) == ("in_sync", ())
    assert outcome.effective["parameters"] == {
        "nvidia": {"NVreg_DeviceFileMode": "432", "NVreg_RestrictProfilingToAdminUsers": "0"}
    }
    assert outcome.boot["parameters"] == {
        "nvidia": {"NVreg_DeviceFileMode": "0660", "NVreg_RestrictProfilingToAdminUsers": "0"}
    }


def test_the_file_is_there_before_the_module_is_loaded(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path)
    outcome = run(host, ["nvidia"], parameters=PROFILING)
    assert outcome.remaining.status == "in_sync"
    assert "RmProfilingAdminOnly: 0" in host.files.read("/proc/driver/nvidia/params")


def test_a_loaded_module_keeps_its_values_until_the_reboot_which_the_initramfs_knows(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path, loaded=NVME_LOADED, hardware=["nvme"], initramfs=True)
    outcome = run(host, parameters=QUEUES)
    expected = (
        "nvme parameter poll_queues is 0, wanted 4: a module takes its parameters only when it is loaded",
        "nvme parameter write_queues is 0, wanted 2: a module takes its parameters only when it is loaded",
    )
    assert (outcome.remaining.status, outcome.remaining.needs, reasons(outcome)) == ("pending", ("reboot",), expected)
    assert [(c.setting, c.takes_effect) for c in outcome.changes if c.object == "nvme"] == [
        ("parameter poll_queues", "reboot"),
        ("parameter write_queues", "reboot"),
    ]
    assert host.files.read("/sys/module/nvme/parameters/poll_queues") == "0\n"
    assert "options nvme poll_queues=4" in host.files.read(INITRAMFS)
    outcome = run(host, parameters=QUEUES)
    assert (outcome.status, outcome.changes) == ("pending", ())
    kernel.boot()
    outcome = run(host, parameters=QUEUES)
    assert (outcome.status, outcome.effective["parameters"]) == (
        "in_sync",
        {"nvme": {"poll_queues": "4", "write_queues": "2"}},
    )


def test_the_initramfs_is_built_again_only_for_what_changed_and_is_on_disk(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, initramfs=True)
    run(host, parameters=QUEUES)
    assert list(dict.fromkeys(programs_run(host))) == ["modinfo nvme", "update-initramfs -u -k all"]
    host.commands.calls.clear()
    run(host, ["dummy"], parameters=QUEUES)
    assert programs_run(host) == ["modprobe dummy"]
    host.commands.calls.clear()
    run(host, ["dummy"])
    assert programs_run(host) == ["update-initramfs -u -k all"]
    assert not host.files.exists(OPTIONS_FILE)


def test_an_initramfs_that_could_not_be_built_is_named_until_it_is(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path, initramfs=True)
    host.commands.programs["update-initramfs"] = lambda argv: Completed(1, "", "E: /boot is full\n")
    with pytest.raises(GpuFleetError, match="Cannot build the initramfs"):
        run(host, parameters=QUEUES)
    assert host.files.exists(OUTDATED)
    _state, plan = assess(CONCERN, params(parameters=QUEUES), host)
    assert [(row.object, row.setting, row.status) for row in plan.settings if row.status != "in_sync"] == [
        ("initramfs", "copy of modprobe.d", "drifted"),
        ("/etc/gpufleet/declared.d/kernel_modules.json", "declaration", "drifted"),
    ]
    host.commands.programs["update-initramfs"] = kernel.rebuild
    assert run(host, parameters=QUEUES).remaining.status == "in_sync"


def test_without_immediate_nothing_waits(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, loaded=NVME_LOADED)
    outcome = run(host, parameters=QUEUES, immediate=False)
    assert (outcome.remaining.status, outcome.remaining.needs) == ("in_sync", ())


@pytest.mark.parametrize(
    ("more", "boot"),
    [
        ({}, None),
        ({"/etc/modprobe.d/a.conf": "options nvme poll_queues=1\n"}, "1"),
        ({"/etc/modprobe.d/a.conf": "options nvme poll_queues=1 poll_queues=3\n"}, "3"),
        (
            {
                "/etc/modprobe.d/b.conf": "options nvme poll_queues=1\n",
                "/usr/lib/modprobe.d/c.conf": "options nvme poll_queues=2\n",
            },
            "2",
        ),
        ({"/etc/modprobe.d/a.conf": "", "/usr/lib/modprobe.d/a.conf": "options nvme poll_queues=2\n"}, None),
        ({"/etc/modprobe.d/a.conf": "options nvm* poll_queues=1\noptions nvme_core poll_queues=1\n"}, None),
        ({"/etc/modprobe.d/a.txt": "options nvme poll_queues=1\n"}, None),
        ({"/proc/cmdline": "ro nvme.poll_queues=1", "/etc/modprobe.d/zzz.conf": "options nvme poll_queues=2\n"}, "1"),
        ({"/proc/cmdline": "ro nvme.poll_queues=1 nvme.poll_queues=3"}, "3"),
        (CMDLINE, "2"),
    ],
)
def test_the_next_load_is_told_from_all_sources(tmp_path: Path, more: Mapping[str, str], boot: Any) -> None:
    host, _kernel = machine(tmp_path, more)
    state, _plan = assess(CONCERN, params(parameters={"nvme": {"poll_queues": boot or 0}}), host)
    assert CONCERN.report(state)[1]["parameters"] == {"nvme": {"poll_queues": boot}}


def test_lines_of_others_that_come_before_ours_are_named(tmp_path: Path) -> None:
    more = {
        "/etc/modprobe.d/nvme.conf": "# site\noptions nvme poll_queues=0x8 io_queue_depth=64\n",
        "/usr/lib/modprobe.d/same.conf": "options nvme poll_queues=0x4\n",
    }
    host, kernel = machine(tmp_path, more)
    outcome = run(host, parameters=QUEUES)
    assert [tuple(entry.as_dict().values()) for entry in outcome.remaining.conflicts] == [
        ("modprobe.d", "/etc/modprobe.d/nvme.conf", 2, "nvme", "parameter poll_queues", "0x8", "us", "")
    ]
    kernel.modprobe("nvme")
    assert host.files.read("/sys/module/nvme/parameters/poll_queues") == "4\n"
    assert host.files.read("/sys/module/nvme/parameters/io_queue_depth") == "64\n"


def test_what_another_gives_already_needs_no_change_but_our_file(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, {"/etc/modprobe.d/zzz.conf": "options nvme poll_queues=04 write_queues=2\n"})
    outcome = run(host, parameters=QUEUES)
    assert [change.object for change in outcome.changes] == [
        OPTIONS_FILE,
        "/etc/gpufleet/declared.d/kernel_modules.json",
    ]
    assert outcome.remaining.conflicts == ()


def test_a_module_with_the_declared_value_by_another_word_is_in_sync(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path)
    parameters = {"nvme": {"noacpi": True}, "nvidia": {"NVreg_UsePageAttributeTable": -1}}
    run(host, parameters=parameters)
    for name in parameters:
        kernel.modprobe(name)
    outcome = run(host, parameters=parameters)
    assert outcome.status == "in_sync"
    assert outcome.effective["parameters"] == {
        "nvidia": {"NVreg_UsePageAttributeTable": "4294967295"},
        "nvme": {"noacpi": "Y"},
    }


def test_a_parameter_that_a_loaded_module_does_not_show_is_named_and_set_for_the_next_load(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, loaded="dummy 16384 0 - Live 0x0\n")
    outcome = run(host, parameters={"dummy": {"secret": "1,2"}})
    assert [entry.as_dict() for entry in outcome.remaining.unmanaged] == [
        {
            "object": "dummy",
            "setting": "parameter secret",
            "reason": "the module does not show it: what is in effect is not known, and the next load takes the "
            "declared value",
        }
    ]
    assert outcome.remaining.status == "in_sync"
    assert text_of(host, OPTIONS_FILE) == ["options dummy secret=1,2"]
    assert run(host, parameters={"dummy": {"secret": "1,2"}}, immediate=False).remaining.unmanaged == ()


def test_a_parameter_that_can_only_be_written_is_not_shown(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, loaded=NVME_LOADED)
    (tmp_path / "sys/module/nvme/parameters/poll_queues").chmod(0o200)
    read = host.files.read

    def reading(path: str) -> str:
        if path.endswith("/poll_queues"):
            raise PermissionError(1, "Operation not permitted", path)
        return read(path)

    host.files.read = reading  # type: ignore[method-assign]
    outcome = run(host, parameters={"nvme": {"poll_queues": 4}})
    assert [entry.setting for entry in outcome.remaining.unmanaged] == ["parameter poll_queues"]


def test_a_driver_that_is_not_installed_is_named_and_left_out_of_the_file(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, {f"/lib/modules/{RELEASE}/modules.dep": "kernel/nvme.ko:\nkernel/nvidiafb.ko:\n"})
    outcome = run(host, parameters={**PROFILING, **QUEUES, "lnet": {"networks": "o2ib0(ib0)"}})
    assert {(entry.object, entry.reason) for entry in outcome.remaining.unmanaged} == {
        ("nvidia", f"the NVIDIA driver is not installed for this kernel ({RELEASE})"),
        ("lnet", f"this kernel ({RELEASE}) has no such module"),
    }
    assert text_of(host, OPTIONS_FILE) == ["options nvme poll_queues=4 write_queues=2"]


def test_a_driver_that_debian_loads_by_another_name_gets_them_by_both(tmp_path: Path) -> None:
    host, _kernel = machine(
        tmp_path,
        {
            "/etc/modprobe.d/nvidia.conf": "install nvidia modprobe -i nvidia-current $CMDLINE_OPTS\n",
            "/etc/modprobe.d/site.conf": "options nvidia-current NVreg_DeviceFileMode=0600\n",
            f"/lib/modules/{RELEASE}/modules.dep": "updates/dkms/nvidia-current.ko.xz:\n",
        },
    )
    said = "parm:           NVreg_DeviceFileMode:int\nparm:           NVreg_RestrictProfilingToAdminUsers:int\n"
    host.commands.programs["modinfo"] = lambda argv: Completed(0, said, "")
    outcome = run(host, parameters=PROFILING)
    assert set(programs_run(host)) == {"modinfo nvidia_current"}
    assert [line.split()[1] for line in text_of(host, OPTIONS_FILE)] == ["nvidia", "nvidia_current"]
    assert [(entry.path, entry.setting, entry.wins) for entry in outcome.remaining.conflicts] == [
        ("/etc/modprobe.d/site.conf", "parameter NVreg_DeviceFileMode", "us")
    ]
    assert run(host, parameters=PROFILING).status == "in_sync"


def test_a_module_that_is_built_in_is_in_sync_by_the_command_line_alone(tmp_path: Path) -> None:
    host, _kernel = machine(
        tmp_path,
        {
            "/proc/cmdline": "ro loopback.flow=2",
            "/sys/module/loopback/parameters/flow": "2\n",
            "/etc/modprobe.d/a.conf": "options loopback flow=1\n",
        },
    )
    outcome = run(host, parameters={"loopback": {"flow": 2}})
    assert (outcome.remaining.status, outcome.boot["parameters"]) == ("in_sync", {"loopback": {"flow": "2"}})
    assert not host.files.exists(OPTIONS_FILE)


def test_a_converged_look_runs_no_program(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, loaded=NVME_LOADED)
    run(host, parameters=QUEUES)
    host.commands.calls.clear()
    assess(CONCERN, params(parameters=QUEUES), host)
    assert programs_run(host) == []


def test_without_modinfo_a_name_cannot_be_known_and_is_written(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path)
    del host.commands.programs["modinfo"]
    run(host, parameters={"nvme": {"pol_queues": 4}})
    assert text_of(host, OPTIONS_FILE) == ["options nvme pol_queues=4"]


def test_what_is_declared_no_longer_is_given_up(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, {"/etc/modprobe.d/a.conf": "options nvme write_queues=1\n"})
    run(host, parameters=QUEUES)
    outcome = run(host, parameters={"nvme": {"poll_queues": 4}})
    assert [(c.setting, c.before, c.after) for c in outcome.changes if c.object == "nvme"] == [
        ("parameter write_queues", "2", "1")
    ]
    assert text_of(host, OPTIONS_FILE) == ["options nvme poll_queues=4"]


def test_absent_takes_the_file_away_and_waits_for_a_module_that_has_our_values(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path, loaded=NVME_LOADED, hardware=["nvme"], initramfs=True)
    before = snapshot(tmp_path)
    run(host, parameters=QUEUES)
    run(host, state="absent")
    assert snapshot(tmp_path) == before
    run(host, parameters=QUEUES)
    kernel.boot()
    outcome = run(host, state="absent")
    assert not host.files.exists(OPTIONS_FILE)
    assert reasons(outcome)[0] == (
        "nvme parameter poll_queues is 4, wanted 0: a module takes its parameters only when it is loaded"
    )
    kernel.boot()
    assert reasons(run(host, state="absent")) == ()
    assert not host.files.exists("/var/lib/gpufleet")


def test_a_value_that_somebody_gave_meanwhile_is_not_taken_back(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path, loaded=NVME_LOADED, hardware=["nvme"])
    run(host, parameters={"nvme": {"poll_queues": 4}})
    (tmp_path / "etc/modprobe.d/site.conf").write_text("options nvme poll_queues=2\n")
    (tmp_path / OPTIONS_FILE.lstrip("/")).unlink()
    kernel.boot()
    outcome = run(host, state="absent")
    assert outcome.remaining.needs == ()


def test_its_parameters_are_knobs_that_no_argument_of_another_concern_sets(tmp_path: Path) -> None:
    declaration = CONCERN.parse(params(parameters=QUEUES))
    assert CONCERN.knobs(declaration) == ("kernel argument nvme.poll_queues", "kernel argument nvme.write_queues")


LOADED_LATER = "/etc/modprobe.d/zzz.conf"


@pytest.mark.parametrize(
    ("parameters", "message", "more", "shared"),
    [
        pytest.param(parameters, message, more, shared, id=name)
        for name, parameters, message, more, shared in [
            (
                "a name that is longer than the kernel takes",
                {"n" * 56: {"x": 1}},
                f"Cannot use parameters: '{'n' * 56}' has 56 characters, but the name of a kernel module has at"
                " most 55.",
                {},
                {},
            ),
            (
                "a file name",
                {"nvidia.ko": {"x": 1}},
                "Cannot use parameters: 'nvidia.ko' is not the name of a kernel module.",
                {},
                {},
            ),
            (
                "a value for a module",
                {"nvme": 8},
                "Cannot use parameters.nvme: 8 is not a mapping of parameters to values.",
                {},
                {},
            ),
            (
                "two parameters in a name",
                {"nvme": {"poll_queues=8 x": 1}},
                "Cannot use parameters.nvme: 'poll_queues=8 x' is not the name of a parameter.",
                {},
                {},
            ),
            (
                "one parameter by two names",
                {"nvme": {"poll_queues": 8, "poll-queues": 4}},
                "Cannot set poll_queues on nvme: it is there twice, with - and with _. Remove one of the two.",
                {},
                {},
            ),
            (
                "a list",
                {"dummy": {"secret": [1, 2]}},
                "Cannot set secret on dummy: [1, 2] is not a string, a number or a boolean. Write a list as one "
                "string, such as '1,2'.",
                {},
                {},
            ),
            (
                "no value",
                {"nvme": {"poll_queues": None}},
                "Cannot set poll_queues on nvme: None is not a string, a number or a boolean.",
                {},
                {},
            ),
            (
                "a second line for the file",
                {"nvidia": {"NVreg_RegistryDwords": "a=1\ninstall nvme /bin/false"}},
                "Cannot set NVreg_RegistryDwords on nvidia: 'a=1\\ninstall nvme /bin/false' has a quote, a backslash "
                "or a control character.",
                {},
                {},
            ),
            (
                "a mode that YAML took for a decimal number",
                {"nvidia": {"NVreg_DeviceFileMode": 660}},
                "Cannot set NVreg_DeviceFileMode on nvidia: 660 is 0o1224 in octal, which is not the mode of a file. "
                "Write it as a string with a leading 0, such as '0660'.",
                {},
                {},
            ),
            (
                "a blocked module",
                {"nouveau": {"modeset": 1}},
                "Cannot set parameters of nouveau: it is in block. Remove one of the two.",
                {},
                {"block": ["nouveau"]},
            ),
            (
                "nothing for the next boot",
                QUEUES,
                "Cannot set parameters of modules: a module takes them from a file when it is loaded, and permanent is "
                "false. Set permanent: true, or leave the parameters out.",
                {},
                {"permanent": False},
            ),
            (
                "a module that does not exist",
                {"nvmee": {"poll_queues": 8}},
                f"Cannot set parameters of nvmee: this kernel ({RELEASE}) has no such module. Did you mean nvme?",
                {},
                {},
            ),
            (
                "a driver that is not installed, strictly",
                {"lnet": {"networks": "o2ib0(ib0)"}},
                f"Cannot set parameter networks on lnet: this kernel ({RELEASE}) has no such module. Install it, leave "
                "it out, or set strict: false.",
                {},
                {"strict": True},
            ),
            (
                "a parameter that does not exist",
                {"nvme": {"pol_queues": 8}},
                "Cannot set pol_queues on nvme: the module has no such parameter. Did you mean poll_queues?",
                {},
                {},
            ),
            (
                "a parameter like no other",
                {"dummy": {"x": 8}},
                "Cannot set x on dummy: the module has no such parameter. See modinfo dummy.",
                {},
                {},
            ),
            (
                "a word for a number",
                {"nvme": {"use_threaded_interrupts": "on"}},
                "Cannot set use_threaded_interrupts on nvme: 'on' is not a number, and the module would not be loaded "
                "(wanted on).",
                {},
                {},
            ),
            (
                "more queues than CPUs",
                {"nvme": {"poll_queues": 9}},
                "Cannot set poll_queues on nvme: 9 is not between 0 and 8, the CPUs in "
                "/sys/devices/system/cpu/possible, and the module would not be loaded (wanted 9).",
                {},
                {},
            ),
            (
                "a count of queues in another base",
                {"nvme": {"write_queues": "0x4"}},
                "Cannot set write_queues on nvme: '0x4' is not a decimal number, and the module would not be loaded "
                "(wanted 0x4).",
                {},
                {},
            ),
            (
                "a queue of one entry",
                {"nvme": {"io_queue_depth": 1}},
                "Cannot set io_queue_depth on nvme: 1 is not between 2 and 4095, and the module would not be loaded "
                "(wanted 1).",
                {},
                {},
            ),
            (
                "a module that is built in",
                {"loopback": {"flow": 2}},
                f"Cannot set flow on loopback: it is built into this kernel ({RELEASE}), and takes parameters from the "
                "kernel command line alone. Set loopback.flow=2 on the kernel command line, and leave it out here.",
                {"/etc/modprobe.d/a.conf": "options loopback flow=2\n"},
                {},
            ),
            (
                "a file that comes later",
                QUEUES,
                f"Cannot set poll_queues on nvme: {LOADED_LATER} line 2 comes after {OPTIONS_FILE} (found 8, wanted 4)."
                " Remove it there, declare the same value, or leave the parameter out.",
                {LOADED_LATER: "# site\noptions nvme write_queues=2 poll_queues=8\n"},
                {},
            ),
            (
                "an argument of the kernel",
                QUEUES,
                "Cannot set poll_queues on nvme: /etc/default/grub line 2 says nvme.poll-queues=2, and the kernel "
                "command line has the last word (found 2, wanted 4). Remove it there, declare the same value, or leave "
                "the parameter out.",
                CMDLINE,
                {},
            ),
        ]
    ],
)
def test_what_cannot_be_is_refused_before_anything_changes(
    tmp_path: Path, parameters: Dict[str, Any], message: str, more: Mapping[str, str], shared: Dict[str, Any]
) -> None:
    host, _kernel = machine(tmp_path, more, loaded=NVME_LOADED, initramfs=True)
    before = snapshot(tmp_path)
    assert refused(host, parameters, **shared) == message
    assert snapshot(tmp_path) == before
    assert {argv[0] for argv in host.commands.calls} <= {"modinfo"}


def refused(host: FakeHost, parameters: Dict[str, Any], **shared: Any) -> str:
    with pytest.raises(GpuFleetError) as caught:
        run(host, parameters=parameters, **shared)
    return str(caught.value)


def test_a_damaged_value_in_the_baseline_is_named(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path)
    run(host, parameters=QUEUES)
    path = tmp_path / "var/lib/gpufleet/baseline/kernel_modules.json"
    text = path.read_text().replace(
        '"setting": "parameter poll_queues",\n   "effective": null',
        '"setting": "parameter poll_queues",\n   "effective": 4',
    )
    path.write_text(text)
    assert "the file is damaged: 4 is not the value of a parameter" in refused(host, {}, state="absent")


def test_a_module_with_a_name_like_another_is_no_typo_where_it_is_there(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path)
    with pytest.raises(DeclarationError, match=r"has no such module\. Did you mean nvme\?"):
        run(host, parameters={"nvmee": {"poll_queues": 1}})
    run(host, parameters={"nvme-core": {"multipath": False}})
    assert text_of(host, OPTIONS_FILE) == ["options nvme_core multipath=0"]
