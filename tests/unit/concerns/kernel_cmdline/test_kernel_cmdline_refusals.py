# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``kernel_cmdline`` refuses, with the message for it, and that nothing changed then."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_cmdline.cmdline_machine import CPU, GPU, machine, run
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

DEFAULTS = "/etc/default/grub"
KDUMP = "/etc/default/grub.d/kdump-tools.cfg"


def others(line: str) -> Dict[str, str]:
    """A machine on which others set these arguments."""
    return {DEFAULTS: f'GRUB_CMDLINE_LINUX="{line}"\nGRUB_CMDLINE_LINUX_DEFAULT=""\n'}


WRONG: Dict[str, Any] = {
    "a typo": (
        {"nohz_ful": "2-7"},
        "Cannot declare kernel argument nohz_ful: the kernel would ignore the unknown name silently. "
        "Did you mean nohz_full?",
    ),
    "a name that is none": (
        {"a b": True},
        "Cannot declare kernel argument a b: this is not the name of an argument. Write arguments: "
        "{iommu: pt, quiet: true, nosmt: false}.",
    ),
    "the root file system": (
        {"root": "/dev/sda1"},
        "Cannot declare kernel argument root: a wrong value leaves a node that only a rescue system "
        "repairs. Set it where the machine is installed.",
    ),
    "the first program": (
        {"init": "/bin/sh"},
        "Cannot declare kernel argument init: it decides what the machine starts. Set it where the "
        "machine is installed.",
    ),
    "the console": (
        {"console": "ttyS0"},
        "Cannot declare kernel argument console: without the console a node that does not boot cannot "
        "say why. Set it where the machine is installed.",
    ),
    "no console": (
        {"console": False},
        "Cannot declare kernel argument console: without the console a node that does not boot cannot "
        "say why. Set it where the machine is installed.",
    ),
    "an encrypted root": (
        {"rd.luks.uuid": "1"},
        "Cannot declare kernel argument rd.luks.uuid: a wrong value leaves a node that only a rescue "
        "system repairs. Set it where the machine is installed.",
    ),
    "names of interfaces": (
        {"net.ifnames": 0},
        "Cannot declare kernel argument net.ifnames: a wrong value leaves a node that only a rescue "
        "system repairs. Set it where the machine is installed.",
    ),
    "huge pages": (
        {"hugepages": 4},
        "Cannot declare kernel argument hugepages: it counts by its place among others. Use the module hugepages.",
    ),
    "the same name twice": (
        {"rcu_nocbs": "2", "rcu-nocbs": "3"},
        "Cannot declare kernel argument rcu-nocbs: it is declared twice. Names with - and with _ are equal.",
    ),
    "a word that YAML took": (
        {"mitigations": False},
        "Cannot declare kernel argument mitigations: its value is a word, and YAML reads on and off as "
        'true and false (found false). Write "off" in quotes, or leave the argument out.',
    ),
    "another word that YAML took": (
        {"intel_iommu": True},
        "Cannot declare kernel argument intel_iommu: its value is a word, and YAML reads on and off as "
        'true and false (found true). Write "on" in quotes, or leave the argument out.',
    ),
    "a list that is none": (
        {"isolcpus": True},
        'Cannot declare kernel argument isolcpus: it takes a list of CPUs (found true). Write isolcpus: "2-31".',
    ),
    "a fraction": (
        {"skew_tick": 0.5},
        "Cannot declare kernel argument skew_tick: the value is not true, false, a string or a whole "
        "number. Write arguments: {iommu: pt, quiet: true, nosmt: false}.",
    ),
    "a list": (
        {"pci": ["noaer"]},
        "Cannot declare kernel argument pci: the value is not true, false, a string or a whole number. "
        "Write arguments: {iommu: pt, quiet: true, nosmt: false}.",
    ),
    "an empty value": (
        {"quiet": ""},
        "Cannot declare kernel argument quiet: the value is empty. Write quiet: true for an argument without a value.",
    ),
    "a blank": (
        {"skew_tick": "1 init=/bin/sh"},
        "Cannot declare kernel argument skew_tick: a boot loader would not pass on the character ' ' as "
        "it is (wanted 1 init=/bin/sh).",
    ),
    "a variable of the shell": (
        {"memmap": "4G$8G"},
        "Cannot declare kernel argument memmap: a boot loader would not pass on the character '$' as it "
        "is (wanted 4G$8G).",
    ),
    "two that exclude each other": (
        {"iommu": "pt", "iommu.passthrough": 0},
        "Cannot declare iommu and iommu.passthrough: both set the kernel's default IOMMU domain, and the later one "
        "counts. Declare one of them.",
    ),
    "two of one variable": (
        {"slab_nomerge": True, "slab_merge": True},
        "Cannot declare slab_nomerge and slab_merge: both set the kernel's merging of slabs, and the later one counts. "
        "Declare one of them.",
    ),
    "two items of one choice": (
        {"pci": "pcie_bus_perf,noaer,pcie_bus_safe"},
        "Cannot declare kernel argument pci: a later item overrides pcie_bus_perf, as both set the same "
        "kernel variable (found pcie_bus_perf,noaer,pcie_bus_safe).",
    ),
    "no tickless CPUs without idle ticks": (
        {"nohz": "off", "nohz_full": "2-7"},
        "Cannot declare nohz and nohz_full: nohz=off and nohz_full=2-7 exclude each other. Declare one of them.",
    ),
    "hexadecimal": (
        {"isolcpus": "0x3"},
        "Cannot declare kernel argument isolcpus: 0x3 is not a CPU or a range of CPUs (wanted 0x3). "
        "List CPUs, such as 2-31,34.",
    ),
    "a range that goes backwards": (
        {"nohz_full": "7-2"},
        "Cannot declare kernel argument nohz_full: 7-2 is a range that goes backwards, and the kernel "
        "drops the whole list (wanted 7-2).",
    ),
    "a stride that is none": (
        {"nohz_full": "2-7:3/2"},
        "Cannot declare kernel argument nohz_full: 2-7:3/2 takes 3 of every 2 CPUs (wanted 2-7:3/2).",
    ),
    "a list that the kernel takes for flags": (
        {"isolcpus": "N"},
        "Cannot declare kernel argument isolcpus: the kernel would take N as a flag and skip it (wanted "
        "N). Write CPUs as numbers; flags are domain, nohz, managed_irq.",
    ),
    "an unknown flag": (
        {"isolcpus": "domains,2-7"},
        "Cannot declare kernel argument isolcpus: the kernel would take domains as a flag and skip it "
        "(wanted domains,2-7). Write CPUs as numbers; flags are domain, nohz, managed_irq.",
    ),
    "flags alone": (
        {"isolcpus": "domain"},
        "Cannot declare kernel argument isolcpus: the list names no CPU (wanted domain). List CPUs, such as 2-31.",
    ),
    "a CPU beyond the machine": (
        {"rcu_nocbs": "2-16"},
        "Cannot declare kernel argument rcu_nocbs: CPU 16 does not exist, and the kernel drops the "
        "whole list (wanted 2-16). List CPUs up to 15.",
    ),
    "a list that is empty here": (
        {"irqaffinity": "0-1:0/2,"},
        "Cannot declare kernel argument irqaffinity: 0-1:0/2 takes 0 of every 2 CPUs (wanted 0-1:0/2,).",
    ),
    "a range that goes backwards here": (
        {"nohz_full": "20-N"},
        "Cannot declare kernel argument nohz_full: 20-N is a range that goes backwards on this machine, "
        "and the kernel drops the whole list (wanted 20-N).",
    ),
    "CPU 0": (
        {"isolcpus": "0-1"},
        "Cannot declare kernel argument isolcpus: CPU 0 boots the machine, and stays with the system "
        "(wanted 0-1). List CPUs from 1 on.",
    ),
    "a whole NUMA node": (
        {"nohz_full": "8-15"},
        "Cannot declare kernel argument nohz_full: no CPU of node1 is left for the system and for the "
        "interrupts of its devices (wanted 8-15). Leave out a core of 8-15.",
    ),
    "all CPUs near a GPU": (
        {"nohz_full": "8-11"},
        "Cannot declare kernel argument nohz_full: no CPU near the GPU at 0000:3b:00.0 is left for its "
        "interrupts (wanted 8-11). Leave out a core of 8-11.",
    ),
    "a thread without the other": (
        {"isolcpus": "3-5"},
        "Cannot declare kernel argument isolcpus: CPUs 2-3 are one core, and it isolates only 3 (wanted "
        "3-5). List all threads of a core or none.",
    ),
    "an inverted list": (
        {"nohz_full": "2-7,12-15"},
        "Cannot declare kernel argument nohz_full: it isolates 10 of 16 CPUs, which looks inverted "
        "(wanted 2-7,12-15). List the CPUs to isolate, not those for the system, or set most_isolated: "
        "true.",
    ),
    "two different lists": (
        {"nohz_full": "2-7", "isolcpus": "managed_irq,2-5"},
        "Cannot declare isolcpus and nohz_full: they name different CPUs (found managed_irq,2-5, wanted "
        "2-7). Declare the same CPUs in both, or only one of them.",
    ),
    "interrupts on isolated CPUs": (
        {"nohz_full": "2-7", "irqaffinity": "0-3"},
        "Cannot declare kernel argument irqaffinity: interrupts would go to CPUs that nohz_full "
        "isolates: 2-3 (wanted 0-3).",
    ),
    "too long a line": (
        {"dyndbg": "x" * 2100},
        "Cannot declare kernel arguments: the kernel cuts its command line silently after 2047 bytes "
        "(found 2151 bytes). Declare fewer arguments, or remove some of others.",
    ),
}
OWNED: Dict[str, Any] = {
    "an argument of others that must not be there": (
        others("quiet nosmt"),
        {"nosmt": False},
        "Cannot remove nosmt from the kernel command line: /etc/default/grub line 1 sets it, and it is "
        "not ours (found present). Remove nosmt there, or from the declaration.",
    ),
    "the first list counts": (
        others("isolcpus=4-5"),
        {"isolcpus": "2-3"},
        "Cannot set isolcpus on the kernel command line: /etc/default/grub line 1 sets it too, and the "
        "kernel takes only the first (found 4-5, wanted 2-3). Remove isolcpus there, or from the "
        "declaration.",
    ),
    "two arguments of others": (
        others("nosmt isolcpus=4-5"),
        {"isolcpus": "2-3", "nosmt": False},
        "Cannot set isolcpus on the kernel command line: /etc/default/grub line 1 sets it too, and the "
        "kernel takes only the first (found 4-5, wanted 2-3). Remove isolcpus there, or from the "
        "declaration. Also cannot remove nosmt from the kernel command line: /etc/default/grub line 1 "
        "sets it, and it is not ours (found present).",
    ),
    "a later file": (
        {KDUMP: 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=1M"\n'},
        {"crashkernel": "512M"},
        "Cannot set crashkernel on the kernel command line: /etc/default/grub.d/kdump-tools.cfg line 1 "
        "sets it too, and comes after ours (found 1M, wanted 512M). Remove crashkernel there, or from "
        "the declaration.",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_with_the_reason(tmp_path: Path, arguments: Dict[str, Any], message: str) -> None:
    refused(tmp_path, {}, arguments, message)


@pytest.mark.parametrize(("files", "arguments", "message"), OWNED.values(), ids=OWNED)
def test_what_another_owner_would_undo_is_refused_with_file_and_line(
    tmp_path: Path, files: Mapping[str, str], arguments: Dict[str, Any], message: str
) -> None:
    refused(tmp_path, files, arguments, message)


def refused(root: Path, files: Mapping[str, str], arguments: Dict[str, Any], message: str, **declared: Any) -> None:
    host = machine(root, extra=files)
    before = snapshot(root)
    with pytest.raises(GpuFleetError) as caught:
        run(host, arguments, **declared)
    assert str(caught.value) == message
    assert snapshot(root) == before


def test_a_running_kernel_takes_no_arguments(tmp_path: Path) -> None:
    message = (
        "Cannot declare kernel arguments: a running kernel takes none, and permanent: false leaves the next boot as it"
        " is. Set permanent: true."
    )
    refused(tmp_path, {}, {"skew_tick": 1}, message, permanent=False)


def test_a_machine_whose_command_line_comes_from_outside_says_so(tmp_path: Path) -> None:
    host = machine(tmp_path, grub=False)
    with pytest.raises(GpuFleetError) as caught:
        run(host, {"skew_tick": 1})
    assert str(caught.value) == (
        "Cannot set kernel arguments for the next boot: no boot loader was found (wanted skew_tick=1). Set them where"
        " this machine gets its command line from (network boot, image), or leave them out."
    )


def test_grubby_keeps_each_name_once(tmp_path: Path) -> None:
    entry = "title Linux\nversion 5\nlinux /vmlinuz-5\noptions root=/dev/vda1 ro mitigations=auto\n"
    host = machine(
        tmp_path, grub=False, extra={"/boot/grub2/grub.cfg": "blscfg\n", "/boot/loader/entries/a.conf": entry}
    )
    with pytest.raises(GpuFleetError, match="sets it too, and grubby keeps each name once"):
        run(host, {"mitigations": "off"})


def test_most_of_the_cpus_are_isolated_with_a_word(tmp_path: Path) -> None:
    host = machine(tmp_path, extra={f"{GPU}/local_cpulist": "8-15\n"})
    assert run(host, {"nohz_full": "2-7,10-15"}, most_isolated=True).error is None


def test_one_thread_of_a_core_is_all_of_it_where_the_others_are_off(tmp_path: Path) -> None:
    host = machine(tmp_path)
    assert run(host, {"nohz_full": "2,4", "nosmt": True}).error is None


def test_architectures_have_their_own_length(tmp_path: Path) -> None:
    host = machine(tmp_path, extra={"/proc/sys/kernel/arch": "s390x\n"})
    assert run(host, {"dyndbg": "x" * 2100}).error is None


def test_damaged_topology_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path, extra={f"{CPU}/possible": "none\n"})
    with pytest.raises(GpuFleetError, match=f"Cannot read the CPUs of this machine in {CPU}/possible"):
        run(host, {"nohz_full": "2-7"})
