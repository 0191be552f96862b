# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of interrupts, and the exact message for what cannot, whatever the machine."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.arguments import validated
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.options import OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.spec import (
    InterruptEntry,
    IrqAffinityDeclaration,
    parse,
)


def declared(*entries: Dict[str, Any], **options: Any) -> IrqAffinityDeclaration:
    """What is read of a declaration that was completed with the defaults of the options."""
    return parse(validated(OPTIONS, {"interrupts": list(entries), **options}))


def entry(**keys: Any) -> InterruptEntry:
    (parsed,) = declared(keys).entries
    return parsed


def test_nothing_declared_is_nothing_wanted() -> None:
    assert declared() == IrqAffinityDeclaration(entries=(), reserved=frozenset())


def test_an_entry_that_says_nothing_is_about_the_cpus_next_to_each_device() -> None:
    parsed = entry()
    assert (parsed.cpus, parsed.numa_node, parsed.near_gpu) == (None, None, False)
    assert (parsed.spread, parsed.rps, parsed.xps) == ("one_per_irq", None, None)
    assert parsed.entry.match == {}
    assert entry(cpus="local") == entry(cpus=" local ") == parsed


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0", {0}),
        ("0-3", {0, 1, 2, 3}),
        ("0-1,16", {0, 1, 16}),
        (" 0-1 , 16 ", {0, 1, 16}),
        ("7,7,7", {7}),
        ("1023", {1023}),
    ],
)
def test_cpus_are_a_list_as_the_kernel_writes_it(text: str, cpus: set) -> None:
    assert entry(cpus=text).cpus == cpus
    assert declared(reserved_cpus=text).reserved == cpus


def test_a_node_or_the_nearest_gpu_takes_the_place_of_cpus() -> None:
    assert entry(numa_node=0).numa_node == 0
    assert entry(near="gpu").near_gpu


def test_the_spread_and_the_steering_of_queues_are_kept_as_declared() -> None:
    parsed = entry(spread="all", rps=False, xps=True)
    assert (parsed.spread, parsed.rps, parsed.xps) == ("all", False, True)


@pytest.mark.parametrize(
    ("match", "addresses"),
    [
        ("00000000:1B:00.0", ("0000:1b:00.0",)),
        ("1b:00.0", ("0000:1b:00.0",)),
        (["0000:1B:*", "*:00.1"], ("0000:1b:*", "*:00.1")),
    ],
)
def test_an_address_is_read_as_lspci_and_nvidia_smi_write_it(match: Any, addresses: Tuple[str, ...]) -> None:
    assert entry(match={"pci_address": match}).entry.match["pci_address"] == addresses


@pytest.mark.parametrize(
    ("match", "others"),
    [
        ({}, False),
        ({"class": "network"}, False),
        ({"driver": "xhci_hcd"}, True),
        ({"interface": "eth*"}, True),
        ({"pci_address": "0000:00:14.0"}, True),
        ({"class": "network", "driver": "ice"}, True),
    ],
)
def test_only_who_names_a_device_may_mean_one_of_no_class(match: Dict[str, str], others: bool) -> None:
    assert entry(match=match).others is others


def case(name: str, message: str, *entries: Dict[str, Any], **options: Any) -> Any:
    return pytest.param(entries, options, message, id=name)


@pytest.mark.parametrize(
    ("entries", "options", "message"),
    [
        case(
            "a typo in a key",
            "Cannot use interrupts[0]: there is no key drivers. Did you mean driver?",
            {"match": {"drivers": "ice"}},
        ),
        case(
            "a class that there is not",
            "Cannot use interrupts[1]: there is no class nic. The classes are gpu, infiniband, network, nvme, storage.",
            {"match": {"class": "n*"}},
            {"match": {"class": ["network", "nic"]}},
        ),
        case(
            "a place by two words",
            "Cannot use interrupts[0] (class: network): numa_node and near are mutually exclusive. Keep one "
            "of them; without any, interrupts go to the CPUs next to their device.",
            {"match": {"class": "network"}, "numa_node": 0, "near": "gpu"},
        ),
        case(
            "local and a node",
            "Cannot use interrupts[0] (which matches everything): cpus and numa_node are mutually exclusive. "
            "Keep one of them; without any, interrupts go to the CPUs next to their device.",
            {"cpus": "local", "numa_node": 0},
        ),
        case(
            "a place by all three",
            "Cannot use interrupts[0] (which matches everything): cpus and numa_node and near are mutually "
            "exclusive. Keep one of them; without any, interrupts go to the CPUs next to their device.",
            {"cpus": "0-3", "numa_node": 1, "near": "gpu"},
        ),
        *(
            case(
                f"no list of CPUs: {text!r}",
                "Cannot use interrupts[0] (which matches everything): "
                f"cpus is {text!r}, and must be local or a list of CPUs. Write it as 0-7,16.",
                {"cpus": text},
            )
            for text in ("", "near", "0-", "-1", "0,,1", "0x3", "0-7:2/4", "0-999999", "[0, 1]", "\u0663", "0 1")
        ),
        case(
            "a range that goes backwards",
            "Cannot use interrupts[0] (which matches everything): in cpus '7-0' is a range that goes backwards.",
            {"cpus": "1,7-0"},
        ),
        case(
            "a node below zero",
            "Cannot use interrupts[0] (which matches everything): numa_node is -1, and nodes count from 0.",
            {"numa_node": -1},
        ),
        case(
            "reserved CPUs that are no list",
            "Cannot use reserved_cpus: 'all' is not a list of CPUs. Write it as 0-7,16.",
            reserved_cpus="all",
        ),
        case(
            "reserved CPUs that go backwards",
            "Cannot use reserved_cpus: '3-1' is a range that goes backwards. Write it as 0-7,16.",
            reserved_cpus="3-1",
        ),
        case(
            "a spread that there is not",
            "Cannot read the declaration: value of spread must be one of: one_per_irq, all, got: even found in "
            "interrupts.",
            {"spread": "even"},
        ),
        case(
            "near to what is no GPU",
            "Cannot read the declaration: value of near must be one of: gpu, got: nvme found in interrupts.",
            {"near": "nvme"},
        ),
    ],
)
def test_what_no_machine_could_have_is_refused(
    entries: Tuple[Dict[str, Any], ...], options: Dict[str, Any], message: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        declared(*entries, **options)
    assert str(caught.value) == message
