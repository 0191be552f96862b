# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input: what was given, the exact message that comes back, and that nothing changed."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, NotInEffect, Refused
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.concern import CONCERN
from ansible_collections.gpufleet.node.tests.nodes.nodetree import FILE, Entry, Tree
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity.irq_machine import (
    BEFORE,
    DECLARED,
    ETH0,
    LOCAL,
    IrqMachine,
    isolating,
    of_eth0,
    params,
    run,
    with_irqbalance,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity.irq_trees import (
    CPU,
    NETWORK,
    cpus,
    function,
    irq,
    two_sockets,
    virtual_interface,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity.irqbalance_machine import DEFAULTS
from ansible_collections.gpufleet.node.tests.unit.support import KernelFiles, snapshot

ETH: Dict[str, Any] = {"match": {"interface": "eth0"}}
OTHERS = "every other interrupt and queue is set, and what the next boot brings is as before."
THERE = (
    "there is 0000:02:00.0, ib0, eth0, 0000:05:00.0, 0001:02:00.0, ib1, eth1, 0001:05:00.0. "
    "Correct the match, or set optional: true."
)


def plain() -> List[Tree]:
    return [two_sockets()]


def without_gpu() -> List[Tree]:
    return [
        cpus("0-7", nodes={0: "0-7"}),
        function(ETH0, NETWORK, irq(20, "eth0"), node=0, net=["eth0"]),
    ]


def bonded() -> List[Tree]:
    return [two_sockets(), virtual_interface("bond0", "eth0", "eth1", marks=["bonding"])]


def isolated() -> List[Tree]:
    return [two_sockets(), isolating("0-3,8-11")]


def one_script_of_others() -> List[Tree]:
    return [
        two_sockets(),
        with_irqbalance(),
        {
            DEFAULTS: Entry(FILE, 'IRQBALANCE_ARGS="--policyscript=/etc/site/policy"\n'),
            "/etc/site/policy": Entry(FILE, "#!/bin/sh\n", 0o755),
        },
    ]


def untouched(machine: IrqMachine) -> None:
    pass


def not_root(machine: IrqMachine) -> None:
    machine.host.may_change = False


def read_only(*folders: str) -> Callable[[IrqMachine], None]:
    def prepare(machine: IrqMachine) -> None:
        machine.host.files.read_only.extend(folders)

    return prepare


def damaged(machine: IrqMachine) -> None:
    path = machine.root / BEFORE[1:]
    path.parent.mkdir(parents=True)
    path.write_text(f'{{"schema": 1, "folders": [], "values": [{{"identity": "{ETH0}", ')


def no_list(machine: IrqMachine) -> None:
    damaged(machine)
    path = machine.root / BEFORE[1:]
    path.write_text(path.read_text() + '"setting": "interrupt eth0", "effective": "all", "boot": null}]}')


def case(
    name: str,
    message: str,
    *entries: Dict[str, Any],
    trees: Callable[[], Sequence[Tree]] = plain,
    prepare: Callable[[IrqMachine], None] = untouched,
    **options: Any,
) -> Any:
    return pytest.param(list(entries), message, trees, prepare, options, id=name)


@pytest.mark.parametrize(
    ("entries", "message", "trees", "prepare", "options"),
    [
        case(
            "an entry that matches nothing",
            f"Cannot apply interrupts[0] (interface: eth7): it matches no device; {THERE}",
            {"match": {"interface": "eth7"}},
        ),
        case(
            "a key that there is not",
            "Cannot use interrupts[0]: there is no key interfaces. Did you mean interface?",
            {"match": {"interfaces": "eth0"}},
        ),
        case(
            "a bond",
            "Cannot use interrupts[0] (interface: bond0): bond0 is a bond, and has no interrupts "
            "of its own. "
            "Match its ports: eth0, eth1.",
            {"match": {"interface": "bond0"}},
            trees=bonded,
        ),
        case(
            "a VLAN on a bond",
            "Cannot use interrupts[0] (interface: bond0.7): bond0.7 is a VLAN, and has no interrupts of "
            "its own. Match its ports: eth0, eth1.",
            {"match": {"interface": "bond0.7"}},
            trees=lambda: [*bonded(), virtual_interface("bond0.7", "bond0", devtype="vlan")],
        ),
        case(
            "CPUs that are offline",
            "Cannot place interrupts on interrupts[0] (interface: eth0): CPUs 2-3 are offline. Bring them online, or "
            "leave them out.",
            {**ETH, "cpus": "0-3"},
            trees=lambda: [two_sockets(), {f"{CPU}/online": Entry(FILE, "0-1,4-15\n")}],
        ),
        case(
            "CPUs that are not there",
            "Cannot place interrupts on interrupts[0] (interface: eth0): there is no CPU 16; this machine has 0-15.",
            {**ETH, "cpus": "0,16"},
        ),
        case(
            "near a GPU on a machine without one",
            "Cannot place interrupts near a GPU on interrupts[0] (interface: eth0): this machine has no NVIDIA GPU, "
            "but the entry matches eth0. Set cpus: local for this machine.",
            {**ETH, "near": "gpu"},
            trees=without_gpu,
        ),
        case(
            "reserved CPUs that leave a node empty",
            "Cannot place interrupts on eth0: all CPUs next to it (0-3,8-11) are reserved. Leave some of them to "
            "interrupts, or name CPUs in cpus.",
            ETH,
            reserved_cpus="0-3,8-11",
        ),
        case(
            "isolated CPUs that leave a node empty",
            "Cannot place interrupts on eth0: all CPUs next to it (0-3,8-11) are isolated. Leave some of them to "
            "interrupts, or name CPUs in cpus.",
            ETH,
            trees=isolated,
        ),
        case(
            "an interrupt that the kernel places, where everything declared must be set",
            "Cannot set interrupt nvme0q1 on 0000:05:00.0: it cannot be moved: its smp_affinity_list is read-only. "
            "Leave it out, or set strict: false.",
            LOCAL,
            strict=True,
        ),
        case(
            "a container in which /proc/irq is read-only",
            "Cannot set interrupt eth0 on eth0: /proc/irq is read-only here. Run on the host itself, not in a "
            "container "
            "without the right to change it.",
            ETH,
            prepare=read_only("/proc/irq"),
        ),
        case(
            "a container in which only /sys is",
            "Cannot set rps rx-0 on eth0: /sys is read-only here. Run on the host itself, not in a container "
            "without the "
            "right to change it.",
            {**ETH, "rps": True, "cpus": "0-15", "spread": "all"},
            trees=lambda: [two_sockets(), of_eth0()],
            prepare=read_only("/sys"),
        ),
        case(
            "somebody who is not root",
            "Cannot change numa_irq_affinity: not running as root. Run the task with become: true.",
            ETH,
            prepare=not_root,
        ),
        case(
            "a policy script of others that irqbalance can have but one of",
            "Cannot exclude devices from irqbalance on irqbalance.service: its arguments already name a policy "
            "script, and it takes only one, or a folder (found /etc/site/policy). Put that script into a folder and "
            "name the folder, or set irqbalance: disable or irqbalance: ignore.",
            ETH,
            trees=one_script_of_others,
        ),
        case(
            "a damaged record of what was there before",
            "Cannot read the original values in "
            "/var/lib/gpufleet/baseline/numa_irq_affinity.json: the "
            "file is damaged: it is not JSON. Restore it from a backup, or remove it to give up restoring.",
            ETH,
            prepare=damaged,
        ),
        case(
            "a record of CPUs that are no list",
            "Cannot read the original values in /var/lib/gpufleet/baseline/numa_irq_affinity.json: "
            "the file is damaged: 'all' is not a list of CPUs. Restore it from a backup, or remove it to give up "
            "restoring.",
            prepare=no_list,
            state="absent",
        ),
    ],
)
def test_what_is_refused_says_why_and_changes_nothing(
    tmp_path: Path,
    entries: List[Dict[str, Any]],
    message: str,
    trees: Callable[[], Sequence[Tree]],
    prepare: Callable[[IrqMachine], None],
    options: Dict[str, Any],
) -> None:
    machine = IrqMachine(tmp_path, *trees())
    prepare(machine)
    found = snapshot(tmp_path)
    with pytest.raises(GpuFleetError) as caught:
        run(machine, *entries, **options)
    assert str(caught.value) == message
    assert snapshot(tmp_path) == found


def test_a_read_only_folder_is_no_matter_where_nothing_must_be_written_to_it(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, ETH)
    read_only("/proc/irq", "/sys")(machine)
    assert run(machine, ETH).status == "in_sync"


def test_what_the_next_boot_would_not_bring_is_refused_before_anything_is_set(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path, two_sockets(), with_irqbalance(), {"/var/lib/x": Entry(FILE)}, boot_service=False)
    found = snapshot(tmp_path)
    with pytest.raises(Refused) as caught:
        run(machine, ETH)
    assert str(caught.value) == (
        "Cannot keep what is declared across a reboot: the boot service is not installed. Run the role node_tools "
        "first, or set permanent: false."
    )
    assert snapshot(tmp_path) == found
    run(machine, ETH, permanent=False)
    assert "0-15" not in machine.of(ETH0).values()


# --- what the kernel refuses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "cause", "hint"),
    [
        pytest.param(
            errno.ENOSPC,
            "the interrupt vectors of CPU 1 are exhausted",
            "Give the device more CPUs, or fewer queues; ",
            id="no vectors",
        ),
        pytest.param(errno.EBUSY, "the kernel returned Device or resource busy 5 times", "Run again; ", id="busy"),
        pytest.param(
            errno.EINVAL,
            "the kernel returned Invalid argument: none of these CPUs is online any more",
            "Run again; ",
            id="offline",
        ),
        pytest.param(
            errno.ERANGE,
            "the kernel returned Numerical result out of range: it has no CPU with that number",
            "Run again; ",
            id="no such CPU",
        ),
        pytest.param(errno.ENOMEM, "the kernel returned Cannot allocate memory", "", id="another"),
    ],
)
def test_what_the_kernel_refuses_is_explained_and_the_others_have_their_cpus(
    tmp_path: Path, number: int, cause: str, hint: str
) -> None:
    machine = IrqMachine(tmp_path)
    machine.refuses[121] = number
    with pytest.raises(Refused) as caught:
        run(machine, {**ETH, "cpus": "0,1"})
    ending = f"{hint}{OTHERS}"
    assert str(caught.value) == (
        f"Cannot set interrupt eth0-TxRx-0 on eth0: {cause} (found 0-15, wanted 1). {ending[0].upper()}{ending[1:]}"
    )
    assert machine.of(ETH0) == {"eth0": "0", "eth0-TxRx-0": "0-15"}
    assert not machine.host.files.exists(DECLARED)
    machine.refuses.clear()
    run(machine, {**ETH, "cpus": "0,1"})
    assert machine.of(ETH0) == {"eth0": "0", "eth0-TxRx-0": "1"}


def test_one_error_names_all_that_were_refused_and_the_result_what_was_changed(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path, two_sockets(), of_eth0())
    rx1 = machine.host.files.resolve("/sys/class/net/eth0/queues/rx-1/rps_cpus")
    machine.refuses.update({120: errno.ENOSPC, rx1: errno.ENOMEM})
    entry = {**ETH, "cpus": "1,2", "rps": True}
    outcome = converge(CONCERN, params(entry), machine.host, check_mode=False)
    assert isinstance(outcome.error, Refused)
    assert str(outcome.error).startswith(
        "Cannot set interrupt eth0 on eth0: the interrupt vectors of CPU 1 are exhausted; "
        "eth0, rps rx-1: the kernel returned Cannot allocate memory (found 0-15, wanted 1)."
    )
    changed = {change.setting for change in outcome.changes if change.scope == "effective" and change.object == "eth0"}
    assert changed == {"interrupt eth0-TxRx-0", "rps rx-0"}


def test_a_refusal_does_not_keep_what_the_kernel_took_for_itself_from_being_noted(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    machine.refuses.update({120: errno.ENOSPC, 121: errno.EIO})
    for _attempt in range(2):
        with pytest.raises(Refused, match="interrupt eth0 on eth0: the interrupt vectors"):
            run(machine, {**ETH, "cpus": "0,1"})
    written = [path for path, _text in machine.writes()]
    assert written.count("/proc/irq/121/smp_affinity_list") == 1
    # Once in each run: what was refused for a reason of its own is not tried again beside the others.
    assert written.count("/proc/irq/120/smp_affinity_list") == 2


def test_cpus_that_somebody_else_writes_meanwhile_are_a_failure_that_names_both(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)

    def undo(files: KernelFiles, match: re.Match[str], value: str) -> None:
        files.store(match[0], "15")

    machine.host.files.rules.insert(0, (r"/proc/irq/120/smp_affinity_list", undo))
    with pytest.raises(NotInEffect) as caught:
        run(machine, {**ETH, "cpus": "3"})
    assert (caught.value.object, caught.value.found, caught.value.wanted) == ("eth0", "15", "3")


# --- CPUs of others ---------------------------------------------------------------------------------------------------


def declares(machine: IrqMachine, concern: str, **declaration: Any) -> None:
    """Another concern has this declaration on the node."""
    path = machine.root / f"etc/gpufleet/declared.d/{concern}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema": 1, "declaration": declaration}))


@pytest.mark.parametrize(
    ("concern", "declaration", "entry", "reserved", "message"),
    [
        (
            "kernel_cmdline",
            {"arguments": {"isolcpus": "managed_irq,domain,2-3,10-N"}},
            {"cpus": "1-2"},
            "",
            "Cannot declare interrupts[0].cpus of numa_irq_affinity: interrupts would go to isolated CPUs, since 2 is "
            "in kernel argument isolcpus of kernel_cmdline too",
        ),
        (
            "cpu_isolation",
            {"housekeeping_cpus": "0,4,8,12"},
            {},
            "0,1,4,8,12",
            "Cannot declare reserved_cpus of numa_irq_affinity: no interrupt could use any of the CPUs for the system: "
            "0,4,8,12 are in housekeeping_cpus of cpu_isolation too, so that they would all go to the CPUs of jobs",
        ),
        (
            "kernel_cmdline",
            {"arguments": {"nohz_full": "1-3,9-11"}},
            {},
            "0,8",
            "Cannot declare reserved_cpus of numa_irq_affinity: no CPU of node0 is left for the interrupts of its "
            "devices: of 0-3,8-11 the others are in kernel argument nohz_full of kernel_cmdline",
        ),
    ],
    ids=["isolated", "of the system", "nothing left"],
)
def test_what_contradicts_another_declaration_on_the_node_is_refused_before_anything_changes(
    tmp_path: Path, concern: str, declaration: Dict[str, Any], entry: Dict[str, Any], reserved: str, message: str
) -> None:
    machine = IrqMachine(tmp_path, two_sockets(), {"/var/lib/x": Entry(FILE)})
    declares(machine, concern, **declaration)
    found = snapshot(tmp_path)
    with pytest.raises(GpuFleetError) as caught:
        run(machine, {**ETH, **entry}, reserved_cpus=reserved)
    assert str(caught.value).startswith(message)
    assert snapshot(tmp_path) == found
    # Whoever looks at all of them at once knows what the others are about to become.
    declares(machine, concern)
    assert run(machine, {**ETH, **entry}, reserved_cpus=reserved).remaining.status == "in_sync"


def test_a_declaration_that_is_on_the_node_was_held_against_the_others_and_reads_them_no_more(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, {**ETH, "cpus": "1-2"}, reserved_cpus="0")
    machine.host.files.reads.clear()
    assert run(machine, {**ETH, "cpus": "1-2"}, reserved_cpus="0").status == "in_sync"
    assert not [path for path in machine.host.files.reads if "/declared.d/" in path and path != DECLARED]


def test_cpus_that_something_else_isolates_get_the_interrupts_and_that_is_said(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path, two_sockets(), isolating("2,3"))
    for _run in range(2):
        [conflict] = run(machine, {**ETH, "cpus": "1-2"}).remaining.conflicts
        assert conflict.as_dict() == {
            "owner": "the running kernel",
            "path": "/sys/devices/system/cpu/isolated",
            "line": None,
            "object": "interrupts[0].cpus",
            "setting": "isolcpus",
            "value": "2",
            "wins": "us",
            "accepted": "",
        }
    assert run(machine, {**ETH, "cpus": "1-2", "isolated": True}).remaining.conflicts == ()


def test_isolated_cpus_are_meant_where_some_are_named(tmp_path: Path) -> None:
    with pytest.raises(GpuFleetError) as caught:
        run(IrqMachine(tmp_path), {**ETH, "isolated": True})
    assert str(caught.value) == (
        "Cannot use interrupts[0] (interface: eth0): isolated is about CPUs that cpus names, and it names none. List "
        "them in cpus."
    )
