# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments of the kernel: which one counts, what the next boot brings, and what the kernel made of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import NotInEffect, OwnedByAnother
from ansible_collections.gpufleet.node.plugins.module_utils._core.knobs import contested
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import DRIFTED, IN_SYNC, PENDING
from ansible_collections.gpufleet.node.plugins.module_utils._linux.cpu_topology import expand
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.hugepages.concern import CONCERN as HUGEPAGES
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_cmdline.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_cmdline.grammar import value_of
from ansible_collections.gpufleet.node.tests.unit.concerns.hugepages import hugepages_machine
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_cmdline.cmdline_machine import (
    CPU,
    DROP_IN,
    MENU,
    machine,
    params,
    reboot,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import difference
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, snapshot

ONE_GIB = {"pools": [{"size": "1G", "per_node": {"0": 1, "1": 1}}]}
NOTE = "var/lib/gpufleet/kernel_cmdline.arguments"
DECLARED = {"iommu": "pt", "nohz_full": "2-7", "skew_tick": 1}


def default_entry(host: FakeHost) -> str:
    return next(line for line in host.files.read(MENU).splitlines() if line.strip().startswith("linux"))


def recovery_entry(host: FakeHost) -> str:
    return [line for line in host.files.read(MENU).splitlines() if line.strip().startswith("linux")][-1]


ANYTHING_ELSE: Any = object()


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("ro quiet", "quiet", "present"),
        ("ro quiet", "splash", None),
        ("isolcpus=2 isolcpus=3", "isolcpus", "2"),
        ("nohz_full=2 nohz-full=3", "nohz_full", "2"),
        ("rcu-nocbs=2 rcu_nocbs=3", "rcu_nocbs", "3"),
        ("mitigations=auto mitigations=off", "mitigations", "off"),
        ("iommu=soft iommu=pt", "iommu", "soft,pt"),
        ("iommu=pt iommu=nopt", "iommu", "nopt"),
        ("intel_iommu=on intel_iommu=sm_on,off", "intel_iommu", "sm_on,off"),
        ("pci=noaer pci=realloc=on", "pci", "noaer,realloc=on"),
        ('dyndbg="file a.c +p" quiet', "dyndbg", "file a.c +p"),
        ("ro -- quiet", "quiet", None),
    ],
)
def test_what_counts_of_an_argument_is_what_the_kernel_takes(line: str, name: str, value: Optional[str]) -> None:
    assert value_of(line, name) == value


@pytest.mark.parametrize(
    ("line", "name", "wanted", "value"),
    [
        ("pci=pcie_bus_perf pci=pcie_bus_safe", "pci", "pcie_bus_perf", "pcie_bus_safe"),
        ("pci=realloc=off,realloc", "pci", "realloc=off", "realloc"),
        ("pci=hpbussize=4,noaer pci=hpbussize=8", "pci", "hpbussize=4", "noaer,hpbussize=8"),
        ("pci=hpmemsize=2M,hpmmiosize=1M", "pci", "hpmemsize=2M", "hpmmiosize=1M"),
        ("pci=hpbussize=4 pci=ecrc=on", "pci", "hpbussize=4", "hpbussize=4"),
        ("pci=resource_alignment=20@a;b pci=resource_alignment=c", "pci", "resource_alignment=20@a;b", ANYTHING_ELSE),
        ("amd_iommu=pgtbl_v1,pgtbl_v2", "amd_iommu", "pgtbl_v1", "pgtbl_v2"),
        ("iommu=pt iommu.passthrough=0", "iommu", "pt", "iommu.passthrough=0"),
        ("iommu.passthrough=0 iommu=pt", "iommu", "pt", "pt"),
        ("iommu.passthrough=1 iommu=nopt", "iommu.passthrough", "1", "iommu=nopt"),
        ("iommu=pt iommu.passthrough=on", "iommu", "pt", "pt"),
        ("iommu=merge,noforce", "iommu", "merge", "noforce"),
        # systemd and others read them too.
        ("quiet loglevel=7", "quiet", "present", "present"),
        ("debug quiet", "debug", "present", "present"),
        ("loglevel=7 quiet", "loglevel", "7", "quiet"),
        ("quiet loglevel=7", "loglevel", "7", "7"),
        ("slab_nomerge slub_merge", "slab_nomerge", "present", "slub_merge"),
        ("modprobe.blacklist=nouveau,uveau", "modprobe.blacklist", "nouveau", "nouveau"),
        ("cgroup_disable=memory cgroup_disable=cpu", "cgroup_disable", "memory", "memory"),
        ("quiet", "loglevel", "7", "quiet"),
        ("ro", "loglevel", "7", None),
    ],
)
def test_of_arguments_that_set_one_variable_the_last_counts(
    line: str, name: str, wanted: str, value: Optional[str]
) -> None:
    found = value_of(line, name, wanted)
    assert found != wanted if value is ANYTHING_ELSE else found == value


def test_a_semicolon_reaches_the_kernel_through_shell_and_boot_loader(tmp_path: Path) -> None:
    host = machine(tmp_path)
    declared = {"pci": "resource_alignment=20@0000:3b:00.0;20@0000:5d:00.0", "skew_tick": 1}
    run(host, declared)
    shell = f"GRUB_CMDLINE_LINUX_DEFAULT=quiet; . {host.files.locate(DROP_IN)}; echo $GRUB_CMDLINE_LINUX_DEFAULT"
    told = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, check=True).stdout
    assert told == f'quiet "pci={declared["pci"]}" skew_tick=1\n'
    reboot(host)
    assert host.files.read("/proc/cmdline").endswith(f"pci={declared['pci']} skew_tick=1\n")
    again = run(host, declared)
    assert (again.status, again.changes) == (IN_SYNC, ())
    run(host, state="absent")
    assert "pci=" not in default_entry(host)


def test_quiet_is_written_before_the_log_level_which_then_counts(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {"quiet": True, "loglevel": 3})
    assert default_entry(host).endswith("quiet loglevel=3")
    reboot(host)
    assert run(host, {"quiet": True, "loglevel": 3}).status == IN_SYNC


def test_an_argument_of_another_name_that_sets_the_same_is_a_conflict_or_refused(tmp_path: Path) -> None:
    defaults = 'GRUB_CMDLINE_LINUX=""\nGRUB_CMDLINE_LINUX_DEFAULT="quiet pci=noaer"\n'
    host = machine(tmp_path, extra={"/etc/default/grub": defaults})
    found = run(host, {"loglevel": 7, "pci": "realloc"}).remaining.conflicts
    # Arguments that only add up are no conflict.
    assert [(one.path, one.line, one.setting, one.value, one.wins) for one in found] == [
        ("/etc/default/grub", 2, "loglevel", "quiet", "us")
    ]
    reboot(host)
    assert run(host, {"loglevel": 7, "pci": "realloc"}).status == IN_SYNC
    host.files.replace("/etc/default/grub.d/zz.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT debug"\n')
    host.commands.run(["update-grub"])
    with pytest.raises(OwnedByAnother) as caught:
        run(host, {"loglevel": 7, "pci": "realloc"})
    assert str(caught.value) == (
        "Cannot set loglevel on the kernel command line: /etc/default/grub.d/zz.cfg line 1 sets it too, and comes "
        "after ours (found debug, wanted 7). Remove debug there, or loglevel from the declaration."
    )


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1,3-5", {1, 3, 4, 5}),
        ("0-7:1/2", {0, 2, 4, 6}),
        ("0-1:0/2", set()),
        ("6-N", {6, 7}),
        ("all:1/4", {0, 4}),
        ("N", {7}),
        ("1,,1", {1}),
    ],
)
def test_a_list_of_cpus_is_expanded_as_the_kernel_does(text: str, numbers: Any) -> None:
    assert expand(text, 7) == numbers


def test_arguments_are_pending_until_the_reboot_and_then_in_effect(tmp_path: Path) -> None:
    host = machine(tmp_path)
    written = run(host, DECLARED)
    assert written.error is None
    assert written.remaining.status == PENDING
    assert written.as_dict()["reboot_reasons"][0] == (
        "kernel command line iommu is not set, wanted pt: the kernel takes its arguments when it boots"
    )
    assert {change.takes_effect for change in written.changes[:3]} == {"reboot"}
    assert run(host, DECLARED).changes == ()
    reboot(host)
    booted = run(host, DECLARED)
    assert (booted.status, booted.changes) == (IN_SYNC, ())
    assert booted.effective == {
        "arguments": {"iommu": "pt", "nohz_full": "2-7", "skew_tick": "1"},
        "nohz_full": "2-7",
        "iommu": None,
    }
    assert booted.boot["ours"] == ["iommu=pt", "nohz_full=2-7", "skew_tick=1"]


def test_entries_for_recovery_keep_the_line_that_booted_before(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = recovery_entry(host)
    run(host, DECLARED)
    assert default_entry(host).endswith("ro quiet iommu=pt nohz_full=2-7 skew_tick=1")
    assert recovery_entry(host) == before


def test_a_generator_without_drop_ins_gets_a_marked_line_in_its_defaults(tmp_path: Path) -> None:
    host = machine(tmp_path, extra={"/usr/sbin/grub-mkconfig": "#!/bin/sh\n"})
    before = host.files.read("/etc/default/grub")
    run(host, {"skew_tick": 1})
    assert host.files.read("/etc/default/grub") == (
        f'{before}GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT skew_tick=1"'
        "  # gpufleet.node.kernel_cmdline: written by this module, changes are lost\n"
    )
    run(host, state="absent")
    assert host.files.read("/etc/default/grub") == before


@pytest.mark.parametrize("drop_ins", [True, False])
@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.parametrize("ours_leave_first", [True, False])
def test_huge_pages_on_the_same_line_stay_whoever_comes_and_goes_first(
    tmp_path: Path, *, drop_ins: bool, ours_first: bool, ours_leave_first: bool
) -> None:
    generator = {} if drop_ins else {"/usr/sbin/grub-mkconfig": "#!/bin/sh\n"}
    host = machine(tmp_path, extra={"/etc/default/grub.d/README": "", **generator})
    before = snapshot(tmp_path)

    def of_pages(**declared: Any) -> Any:
        return converge(HUGEPAGES, hugepages_machine.params(**declared), host, check_mode=False)

    def ours(**declared: Any) -> Any:
        return run(host, DECLARED, **declared)

    for turn in (ours, of_pages) if ours_first else (of_pages, ours):
        declared = ONE_GIB if turn is of_pages else {}
        assert turn(**declared).error is None
    line = default_entry(host)
    assert "hugepagesz=1G hugepages=0:1,1:1" in line
    assert "iommu=pt nohz_full=2-7 skew_tick=1" in line
    assert ours().changes == ()
    assert of_pages(**ONE_GIB).changes == ()
    leave, stay = (ours, of_pages) if ours_leave_first else (of_pages, ours)
    assert leave(state="absent").error is None
    line = default_entry(host)
    assert ("iommu=pt" in line, "hugepages=" in line) == (not ours_leave_first, ours_leave_first)
    assert stay(**(ONE_GIB if stay is of_pages else {})).changes == ()
    assert stay(state="absent").error is None
    assert snapshot(tmp_path) == before


def test_an_argument_that_others_bring_is_not_brought_twice(tmp_path: Path) -> None:
    host = machine(
        tmp_path, extra={"/etc/default/grub": 'GRUB_CMDLINE_LINUX="iommu=pt"\nGRUB_CMDLINE_LINUX_DEFAULT=""\n'}
    )
    outcome = run(host, {"iommu": "pt", "skew_tick": 1})
    assert outcome.boot["ours"] == ["skew_tick=1"]
    assert default_entry(host).count("iommu=pt") == 1
    run(host, state="absent")
    assert "iommu=pt" in default_entry(host)


def test_what_is_no_longer_declared_is_removed_where_it_is_ours(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {"skew_tick": 1, "iommu": "pt"})
    outcome = run(host, {"iommu": "pt"})
    assert [(change.setting, change.before, change.after) for change in outcome.changes[:1]] == [
        ("skew_tick", "1", None)
    ]
    assert "skew_tick" not in default_entry(host)
    assert run(host, {"iommu": "pt", "skew_tick": False}).remaining.status == PENDING
    run(host, {})
    assert not host.files.exists(DROP_IN)
    assert default_entry(host).endswith("ro quiet")


def test_another_owner_that_loses_is_a_conflict_with_file_and_line(tmp_path: Path) -> None:
    defaults = 'GRUB_CMDLINE_LINUX=""\nGRUB_CMDLINE_LINUX_DEFAULT="quiet mitigations=auto"\n'
    host = machine(tmp_path, extra={"/etc/default/grub": defaults})
    outcome = run(host, {"mitigations": "off"})
    assert [entry.as_dict() for entry in outcome.remaining.conflicts] == [
        {
            "owner": "kernel command line",
            "path": "/etc/default/grub",
            "line": 2,
            "object": "kernel command line",
            "setting": "mitigations",
            "value": "auto",
            "wins": "us",
            "accepted": "",
        }
    ]
    assert default_entry(host).endswith("mitigations=auto mitigations=off")
    assert run(host, {"mitigations": "off"}).changes == ()


def test_an_argument_that_adds_up_is_there_beside_those_of_others(tmp_path: Path) -> None:
    host = machine(
        tmp_path, extra={"/etc/default/grub": 'GRUB_CMDLINE_LINUX="pci=noaer"\nGRUB_CMDLINE_LINUX_DEFAULT=""\n'}
    )
    outcome = run(host, {"pci": "realloc=on"})
    assert outcome.error is None
    assert default_entry(host).endswith("pci=noaer pci=realloc=on")
    assert run(host, {"pci": "realloc=on"}).changes == ()


def test_a_menu_that_lacks_what_was_written_is_a_failure_and_leaves_what_was_there(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    host.commands.programs["update-grub"] = lambda argv: Completed(0, "", "")
    outcome = run(host, {"skew_tick": 1})
    assert isinstance(outcome.error, NotInEffect)
    assert "the entry that boots by default lacks skew_tick=1" in str(outcome.error)
    run(host, state="absent")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("later", [{"state": "absent"}, {"arguments": {"iommu": "pt"}}])
def test_a_menu_that_still_has_what_was_removed_is_a_failure_and_nothing_is_forgotten(
    tmp_path: Path, later: Dict[str, Any]
) -> None:
    host = machine(tmp_path)
    untouched = snapshot(tmp_path)
    run(host, {"skew_tick": 1, "iommu": "pt"})
    generator = host.commands.programs["update-grub"]
    host.commands.programs["update-grub"] = lambda argv: Completed(0, "", "")
    for _run in range(2):
        before = snapshot(tmp_path)
        outcome = run(host, **later)
        assert isinstance(outcome.error, NotInEffect)
        assert re.search("the entry that boots by default still has .*skew_tick=1", str(outcome.error))
        # What was about to be set stays noted.
        assert {path for path, _then, _now in difference(snapshot(tmp_path), before)} <= {NOTE}
    host.commands.programs["update-grub"] = generator
    assert run(host, **later).error is None
    assert "skew_tick" not in default_entry(host)
    run(host, state="absent")
    assert snapshot(tmp_path) == untouched


@pytest.mark.parametrize(
    ("arguments", "said", "message"),
    [
        (
            {"isolcpus": "2-7"},
            {f"{CPU}/isolated": ""},
            "Cannot set isolcpus on kernel command line: the running kernel was given it and did not take it, by"
            " /sys/devices/system/cpu/isolated (found none, wanted 2-7). Look for isolcpus in the kernel's log, such as"
            " with dmesg.",
        ),
        (
            {"nohz_full": "2-7"},
            {f"{CPU}/nohz_full": "(null)"},
            "Cannot set nohz_full on kernel command line: the running kernel was given it and did not take it, by"
            " /sys/devices/system/cpu/nohz_full (found none, wanted 2-7). Look for nohz_full in the kernel's log, such"
            " as with dmesg.",
        ),
        (
            {"iommu": "pt"},
            {"/sys/kernel/iommu_groups/0/type": "DMA-FQ", "/sys/kernel/iommu_groups/1/type": "DMA"},
            "Cannot set iommu on kernel command line: the running kernel was given it and did not take it, by"
            " /sys/kernel/iommu_groups (found DMA-FQ,DMA, wanted pt). Look for iommu in the kernel's log, such as with"
            " dmesg.",
        ),
    ],
)
def test_an_argument_that_the_kernel_was_given_and_ignored_is_a_failure(
    tmp_path: Path, arguments: Dict[str, Any], said: Dict[str, str], message: str
) -> None:
    host = machine(tmp_path, extra=dict.fromkeys(said, ""))
    run(host, arguments)
    reboot(host)
    for path, text in said.items():
        host.files.store(path, text)
    with pytest.raises(NotInEffect) as caught:
        run(host, arguments)
    assert str(caught.value) == message
    assert run(host, arguments, immediate=False).remaining.status == IN_SYNC


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        # Partitions of cpusets are in the same file, and other flags in none.
        ({"isolcpus": "2-7"}, {f"{CPU}/isolated": "2-9"}),
        ({"isolcpus": "managed_irq,2-7"}, {f"{CPU}/isolated": ""}),
        ({"iommu": "pt"}, {"/sys/kernel/iommu_groups/0/type": "DMA", "/sys/kernel/iommu_groups/1/type": "identity"}),
    ],
)
def test_what_the_kernel_made_of_an_argument_is_believed(
    tmp_path: Path, arguments: Dict[str, Any], said: Dict[str, str]
) -> None:
    host = machine(tmp_path, extra=dict.fromkeys(said, ""))
    run(host, arguments)
    reboot(host)
    for path, text in said.items():
        host.files.store(path, text)
    assert run(host, arguments).status == IN_SYNC


def test_a_kernel_without_tickless_cpus_leaves_them_unmanaged_or_is_refused(tmp_path: Path) -> None:
    host = machine(tmp_path)
    host.files.remove(f"{CPU}/nohz_full")
    outcome = run(host, {"nohz_full": "2-7"})
    assert [entry.as_dict() for entry in outcome.remaining.unmanaged] == [
        {
            "object": "kernel command line",
            "setting": "nohz_full",
            "reason": "this kernel was built without CONFIG_NO_HZ_FULL",
        }
    ]
    assert "nohz_full" not in default_entry(host)


def test_a_removed_argument_that_still_runs_waits_for_the_reboot(tmp_path: Path) -> None:
    host = machine(tmp_path, command_line="BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro quiet nosmt")
    outcome = run(host, {"nosmt": False})
    assert outcome.remaining.status == PENDING
    assert outcome.remaining.needs == ("reboot",)


def test_a_converged_look_reads_neither_the_cpus_nor_the_files_of_others(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, DECLARED)
    reboot(host)
    host.files.reads.clear()
    assert run(host, DECLARED).status == IN_SYNC
    assert not [path for path in host.files.reads if re.search("topology|/devices/system/node/|/default/grub$", path)]


@pytest.mark.parametrize(
    ("files", "crash_kernel"),
    [
        (
            {"/etc/default/kdump-tools": 'USE_KDUMP=1\n#KDUMP_CMDLINE=""\nKDUMP_CMDLINE_APPEND="nr_cpus=1"\n'},
            ("/etc/default/kdump-tools", None, "nr_cpus=1", ["iommu=pt", "skew_tick=1"]),
        ),
        (
            {"/etc/default/kdump-tools": 'KDUMP_CMDLINE="root=/dev/vda1"\n'},
            ("/etc/default/kdump-tools", "root=/dev/vda1", None, []),
        ),
        (
            {"/etc/sysconfig/kdump": 'KDUMP_COMMANDLINE=""\nKDUMP_COMMANDLINE_REMOVE="hugepages iommu"\n'},
            ("/etc/sysconfig/kdump", None, None, ["skew_tick=1"]),
        ),
    ],
)
def test_what_decides_the_line_of_the_crash_kernel_is_named(
    tmp_path: Path, files: Dict[str, str], crash_kernel: Tuple[Any, ...]
) -> None:
    defaults = 'GRUB_CMDLINE_LINUX="crashkernel=512M"\nGRUB_CMDLINE_LINUX_DEFAULT=""\n'
    host = machine(tmp_path, extra={"/etc/default/grub": defaults, **files})
    outcome = run(host, {"iommu": "pt", "skew_tick": 1})
    assert tuple(outcome.boot["crash_kernel"].values()) == crash_kernel


def test_an_argument_that_another_concern_owns_is_refused_before_the_first_look() -> None:
    declared = CONCERN.parse(params(arguments={"transparent-hugepage": "never", "sysctl.vm.swappiness": 1}))
    knobs = CONCERN.knobs(declared)
    assert knobs == (
        "kernel argument transparent_hugepage",
        "kernel argument sysctl.vm.swappiness",
        "sysctl vm.swappiness",
    )
    owned = {"hugepages": HUGEPAGES.registration.owns}
    refusal = contested(owned, {"kernel_cmdline": knobs})["kernel_cmdline"]
    assert str(refusal).startswith(
        "Cannot declare kernel argument transparent_hugepage: hugepages is declared too, and sets it."
    )


def test_absent_restores_what_others_say_and_only_that(tmp_path: Path) -> None:
    defaults = 'GRUB_CMDLINE_LINUX=""\nGRUB_CMDLINE_LINUX_DEFAULT="quiet mitigations=auto"\n'
    host = machine(tmp_path, extra={"/etc/default/grub": defaults})
    before = snapshot(tmp_path)
    run(host, {"mitigations": "off", "skew_tick": 1})
    outcome = run(host, state="absent")
    assert ("mitigations", "off", "auto") in [(one.setting, one.before, one.after) for one in outcome.changes]
    assert snapshot(tmp_path) == before
    assert run(host, state="absent").changes == ()


def test_loader_entries_get_the_arguments_from_grubby(tmp_path: Path) -> None:
    entry = "/boot/loader/entries/a.conf"
    text = "title Linux\nversion 5\nlinux /vmlinuz-5\noptions root=/dev/vda1 ro\n"
    host = machine(tmp_path, grub=False, extra={"/boot/grub2/grub.cfg": "blscfg\n", entry: text})

    def grubby(argv: Any) -> Completed:
        line = host.files.read(entry).rstrip("\n")
        for argument in argv:
            name, _equals, words = argument.partition("=")
            if name == "--remove-args":
                line = line.replace(f" {words}", "")
            elif name == "--args":
                line += f" {words}"
        host.files.store(entry, line)
        return Completed(0, "", "")

    host.commands.programs["grubby"] = grubby
    assert run(host, {"skew_tick": 1, "iommu": "pt"}).error is None
    assert host.files.read(entry).endswith("ro iommu=pt skew_tick=1\n")
    assert run(host, {"iommu": "pt", "skew_tick": 1}).changes == ()
    assert run(host, {"iommu": "pt"}).error is None
    assert host.files.read(entry).endswith("ro iommu=pt\n")
    run(host, state="absent")
    assert host.files.read(entry) == text


def test_arguments_of_tuned_in_the_menu_are_seen(tmp_path: Path) -> None:
    host = machine(tmp_path, extra={"/etc/tuned/bootcmdline": 'TUNED_BOOT_CMDLINE="skew_tick=1"\n'})
    menu = host.files.read(MENU).replace("ro quiet", "ro quiet $tuned_params")
    host.files.store(MENU, f'set tuned_params="skew_tick=1"\n{menu}')
    outcome = run(host, {"skew_tick": 1})
    assert (outcome.changes[:-1], outcome.remaining.status) == ((), PENDING)


def test_the_status_of_a_machine_without_them_is_drifted(tmp_path: Path) -> None:
    host = machine(tmp_path)
    assert converge(CONCERN, params(arguments=DECLARED), host, check_mode=True).status == DRIFTED
    assert not host.files.exists(DROP_IN)
