# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RDMA devices: what is refused, what they do not have, configfs, and the way to the memory of GPUs."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    GpuFleetError,
    OwnedByAnother,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux.pci_config import relaxed_ordering
from ansible_collections.gpufleet.node.tests.unit.concerns.rdma.rdma_machine import (
    CLASS,
    CONFIGFS,
    DCB,
    MODULES,
    OPEN,
    PEERMEM,
    V1,
    V2,
    Machine,
    config,
    place,
)

MLX0 = {"match": {"name": "mlx5_0"}}
MLX1 = {"match": {"name": "mlx5_1"}}
RULES = "/etc/udev/rules.d/99-gpufleet-rdma.rules"
UNIT = "/etc/systemd/system/gpufleet-rdma.service"
DRIVER = "/proc/driver/nvidia/version"
KERNEL_5_11 = {"/proc/sys/kernel/osrelease": "5.11.0\n", "/lib/modules/5.11.0/modules.dep": "nvidia-peermem.ko:\n"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def refusal(machine: Machine, *devices: Mapping[str, Any], **more: Any) -> GpuFleetError:
    machine.host.files.log.clear()
    with pytest.raises(GpuFleetError) as caught:
        machine.run(*devices, **more)
    assert machine.host.files.log == []
    return caught.value


# --- what no machine could have ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            {"roce_tos": 256},
            "Cannot declare devices[0].roce_tos: it is a byte, from 0 to 255 (wanted 256). Set such as roce_tos: 106, "
            "which is DSCP 26 with ECN, or ready: true.",
        ),
        ({"roce_tos": -1}, "Cannot declare devices[0].roce_tos: it is a byte, from 0 to 255 (wanted -1)."),
        ({"traffic_class": 300}, "Cannot declare devices[0].traffic_class: it is a byte, from 0 to 255 (wanted 300)."),
        ({}, "Cannot declare devices[0]: it declares nothing."),
        ({"pfc": [8]}, "Cannot declare devices[0].pfc: a priority is a number from 0 to 7 (wanted 8)."),
        ({"pfc": [-1]}, "Cannot declare devices[0].pfc: a priority is a number from 0 to 7 (wanted -1)."),
        ({"ecn": [9]}, "Cannot declare devices[0].ecn: a priority is a number from 0 to 7 (wanted 9)."),
        (
            {"dscp_priorities": {64: 3}},
            "Cannot declare devices[0].dscp_priorities: a DSCP is a number from 0 to 63 (wanted 64).",
        ),
        (
            {"dscp_priorities": {"AF31": 3}},
            "Cannot declare devices[0].dscp_priorities: a DSCP is a number from 0 to 63 (wanted AF31).",
        ),
        # Which is a digit, and no number for int().
        (
            {"dscp_priorities": {"²": 3}},
            "Cannot declare devices[0].dscp_priorities: a DSCP is a number from 0 to 63 (wanted ²).",
        ),
        (
            {"dscp_priorities": {26: 3, "34": 4}},
            "Cannot declare devices[0].dscp_priorities: some DSCPs are numbers, and some are strings.",
        ),
        (
            {"dscp_priorities": {26: True}},
            "Cannot declare devices[0].dscp_priorities: a priority is a number from 0 to 7 (wanted True).",
        ),
        ({"match": {"nam": "mlx5_0"}, "roce_tos": 1}, "Cannot use devices[0]: there is no key nam."),
        ({"match": {"name": []}, "roce_tos": 1}, "name is [], and must be a string or a list of strings"),
    ],
)
def test_what_no_machine_could_have_is_refused_with_the_reason(
    machine: Machine, declared: Mapping[str, Any], message: str
) -> None:
    error = refusal(machine, {**MLX0, **declared})
    assert isinstance(error, DeclarationError)
    assert message in str(error)


def test_a_declaration_of_nothing_is_refused(machine: Machine) -> None:
    assert "nothing is declared" in str(refusal(machine))


# --- what this machine cannot have, or lacks --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "cause"),
    [
        ({"match": {"name": "mlx5_9"}, "roce_tos": 1}, "it matches no device; there is mlx5_0, mlx5_1, mlx5_2, rxe0"),
        # What software makes must be named.
        ({"match": {"name": "*xe0"}, "roce_tos": 1}, "it matches no device"),
        ({"match": {"netdev": "eth2"}, "roce_tos": 1}, "it matches no device"),
        ({"match": {"numa_node": "2"}, "roce_tos": 1}, "it matches no device"),
        ({"match": {"name": "rxe0"}, "roce_mode": "v1"}, "it has only addresses of RoCE v2 (wanted v1). Set v2."),
    ],
)
def test_what_the_machine_cannot_have_is_refused_before_anything_changes(
    machine: Machine, device: Mapping[str, Any], cause: str
) -> None:
    assert cause in str(refusal(machine, {**MLX0, "traffic_class": 8}, device))


@pytest.mark.parametrize(
    ("device", "files", "reasons"),
    [
        (
            {"match": {"name": "mlx5_2"}, "roce_mode": "v2", "roce_tos": 8},
            {},
            {
                "roce_mode": "its link layer is InfiniBand, and RoCE needs Ethernet",
                "roce_tos": "its link layer is InfiniBand, and RoCE needs Ethernet",
            },
        ),
        (
            {"match": {"name": "rxe0"}, "traffic_class": 8},
            {},
            {"traffic_class": "its driver does not have it, only those of MLNX_OFED and DOCA do"},
        ),
        (
            {**MLX0, "roce_tos": 8},
            {f"{place('mlx5_0')}/node_type": "4: RNIC\n"},
            {"roce_tos": "it does not speak RoCE"},
        ),
    ],
)
def test_what_a_device_lacks_is_unmanaged_with_the_reason_and_strict_an_error(
    tmp_path: Path, device: Mapping[str, Any], files: Mapping[str, str], reasons: Mapping[str, str]
) -> None:
    machine = Machine(tmp_path, files)
    outcome = machine.run(device, {**MLX1, "roce_tos": 96})
    assert {entry.setting: entry.reason for entry in outcome.remaining.unmanaged} == reasons
    assert machine.kernel("mlx5_1")["default_roce_tos"] == "96"
    assert f"Cannot set {next(iter(reasons))}" in str(refusal(machine, device, strict=True))


@pytest.mark.parametrize(
    ("module", "dependencies", "reason"),
    [
        (True, "rdma_cm.ko:\n", "rdma_cm has no configfs in this kernel, or it is not mounted"),
        (False, "ib_core.ko:\n", "this kernel has no rdma_cm"),
        (False, "rdma_cm.ko:\n", None),
    ],
)
def test_rdma_cm_is_loaded_where_it_is_not_and_unmanaged_where_it_cannot_be(
    machine: Machine, module: bool, dependencies: str, reason: Optional[str]
) -> None:
    for path in sorted(machine.path(CONFIGFS).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    machine.path(CONFIGFS).rmdir()
    if not module:
        machine.path("/sys/module/rdma_cm/refcnt").unlink()
        machine.path("/sys/module/rdma_cm").rmdir()
    machine.path(MODULES).write_text(dependencies)
    outcome = machine.run({**MLX0, "roce_tos": 106})
    assert [entry.reason for entry in outcome.remaining.unmanaged] == ([reason] if reason else [])
    assert (("modprobe", "rdma_cm") in machine.host.commands.calls) is (reason is None)
    assert machine.kernel("mlx5_0")["default_roce_tos"] == ("0" if reason else "106")


# --- devices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "names"),
    [
        ({}, ["mlx5_0", "mlx5_1"]),
        ({"driver": "mlx5_*"}, ["mlx5_0", "mlx5_1"]),
        ({"pci_address": "0000:3B:00.0"}, ["mlx5_1"]),
        ({"netdev": ["eth0", "eth9"]}, ["mlx5_0"]),
        ({"numa_node": "1"}, ["mlx5_1"]),
        ({"numa_node": 0}, ["mlx5_0"]),
        ({"name": "rxe0", "netdev": "eth2"}, ["rxe0"]),
    ],
)
def test_devices_are_meant_by_what_they_are(machine: Machine, match: Mapping[str, Any], names: Sequence[str]) -> None:
    machine.run({"match": match, "roce_tos": 44})
    assert [name for name in ("mlx5_0", "mlx5_1", "rxe0") if machine.kernel(name)["default_roce_tos"] == "44"] == names


def test_the_kernel_is_read_back_and_a_second_run_changes_nothing(machine: Machine) -> None:
    device = {**MLX0, "roce_mode": "v1", "roce_tos": 106, "traffic_class": 96}
    outcome = machine.run(device)
    assert machine.kernel("mlx5_0") == {"default_roce_mode": V1, "default_roce_tos": "106"}
    assert machine.traffic_class("mlx5_0") == "Global tclass=96"
    assert outcome.effective["devices"]["mlx5_0"] == {
        "driver": "mlx5_core",
        "identity": "0000:17:00.0",
        "netdevs": ["eth0"],
        "numa_node": "0",
        "relaxed_ordering": True,
        "redirecting_bridges": ["0000:16:01.0"],
        "ports": {
            "1": {
                "state": "ACTIVE",
                "rate": "400 Gb/sec (4X NDR)",
                "link_layer": "Ethernet",
                "roce_mode": "v1",
                "roce_tos": 106,
                "traffic_class": 96,
            }
        },
    }
    assert outcome.boot["devices"]["mlx5_0"]["ports"]["1"] == {"roce_mode": "v1", "roce_tos": 106, "traffic_class": 96}
    assert machine.run(device).changes == ()


def test_what_the_kernel_has_is_not_known_before_there_is_a_folder_and_is_set_all_the_same(machine: Machine) -> None:
    changes = machine.run({**MLX0, "roce_mode": "v2"}, check_mode=True).changes
    assert ("mlx5_0:1", "roce_mode", None, "v2") in [
        (one.object, one.setting, one.before, one.after) for one in changes
    ]
    assert not machine.path(f"{CONFIGFS}/mlx5_0").exists()
    machine.run({**MLX0, "roce_mode": "v2"})
    assert machine.path(f"{CONFIGFS}/mlx5_0/ports/1/default_roce_mode").read_text() == f"{V2}\n"


def test_a_value_that_the_kernel_refuses_leaves_the_device_as_it_was(machine: Machine) -> None:
    # It has an address of neither mode yet, so that only the kernel can tell.
    for path in machine.path(f"{place('mlx5_0')}/ports/1/gid_attrs/types").iterdir():
        path.write_text("")
    with pytest.raises(Refused) as caught:
        machine.run({**MLX0, "roce_tos": 106, "roce_mode": "v1"})
    assert "Cannot set mlx5_0: the kernel refused IB/RoCE v1 at " in str(caught.value)
    assert not machine.path(f"{CONFIGFS}/mlx5_0").exists()
    assert machine.kernel("mlx5_0") == {"default_roce_mode": V2, "default_roce_tos": "0"}


def test_what_was_set_before_the_refused_value_is_taken_back(machine: Machine) -> None:
    def refuse(*_arguments: Any) -> None:
        raise OSError(errno.EINVAL, "Invalid argument", "default_roce_tos")

    machine.host.files.rules.insert(0, (rf"{CONFIGFS}/mlx5_0/ports/1/default_roce_tos", refuse))
    with pytest.raises(Refused):
        machine.run({**MLX0, "roce_tos": 106, "roce_mode": "v1"})
    assert not machine.path(f"{CONFIGFS}/mlx5_0").exists()
    assert machine.kernel("mlx5_0") == {"default_roce_mode": V2, "default_roce_tos": "0"}


def test_rules_of_others_for_single_addresses_stay(machine: Machine) -> None:
    path = machine.path(f"{place('mlx5_0')}/tc/1/traffic_class")
    path.write_text("src_ip=10.0.0.1,tclass=32\n")
    machine.run({**MLX0, "traffic_class": 96})
    assert path.read_text() == "Global tclass=96\nsrc_ip=10.0.0.1,tclass=32\n"
    machine.run(state="absent")
    assert path.read_text() == "src_ip=10.0.0.1,tclass=32\n"


def test_an_address_that_is_not_set_refuses_to_be_read_and_is_no_failure(machine: Machine) -> None:
    port = f"{CLASS}/rxe0/ports/1/gid_attrs"
    machine.host.files.unreadable = (f"{place('rxe0')}/ports/1/gid_attrs/ndevs/0", f"{port}/types/0")
    machine.run({"match": {"name": "rxe0"}, "roce_tos": 8})
    assert machine.kernel("rxe0")["default_roce_tos"] == "8"


# --- lossless ---------------------------------------------------------------------------------------------------------


def test_a_class_is_lossless_and_what_others_set_stays(machine: Machine) -> None:
    machine.path(f"{DCB}/eth0").write_text(json.dumps({"pfc": [0, 3], "dscp": [[26, 1], [26, 2], [48, 6]]}))
    machine.path("/sys/class/net/eth0/ecn/roce_np/enable/5").write_text("1\n")
    device = {**MLX0, "pfc": [4, 3], "dscp_priorities": {26: 3, 34: 4}, "ecn": [3]}
    before = machine.lossless("eth0")
    outcome = machine.run(device)
    assert machine.lossless("eth0") == {
        "pfc": [3, 4],
        "dscp": [[26, 3], [34, 4], [48, 6]],
        "np": [3, 5],
        "rp": [3],
    }
    changes = [(one.setting, one.before, one.after) for one in outcome.changes if one.scope == "effective"]
    assert changes == [
        ("pfc", "0,3", "3,4"),
        ("dscp 26", "1,2", 3),
        ("dscp 34", None, 4),
        ("ecn 3 np", "off", "on"),
        ("ecn 3 rp", "off", "on"),
    ]
    assert machine.run(device).changes == ()
    machine.run(state="absent")
    assert machine.lossless("eth0") == before


def test_no_priority_with_pfc_is_declared_as_an_empty_list(machine: Machine) -> None:
    machine.path(f"{DCB}/eth0").write_text(json.dumps({"pfc": [3], "dscp": []}))
    assert machine.run({**MLX0, "pfc": []}).effective["devices"]["mlx5_0"]["ports"]["1"]["pfc"] == "none"
    assert machine.lossless("eth0")["pfc"] == []


@pytest.mark.parametrize(
    ("device", "without_dcb", "reasons"),
    [
        (
            {**MLX0, "pfc": [3], "dscp_priorities": {26: 3}},
            True,
            {"dcb is not installed; install iproute2 5.11 or newer"},
        ),
        ({"match": {"name": "rxe0"}, "pfc": [3], "dscp_priorities": {26: 3}}, False, {"its driver does not have it"}),
        (
            {"match": {"name": "rxe0"}, "ecn": [3]},
            False,
            {"its driver does not have it, only those of MLNX_OFED and DOCA do"},
        ),
        ({"match": {"name": "mlx5_2"}, "pfc": [3]}, False, {"its driver does not have it"}),
    ],
)
def test_what_an_interface_lacks_is_unmanaged(
    machine: Machine, device: Mapping[str, Any], without_dcb: bool, reasons: Sequence[str]
) -> None:
    if without_dcb:
        del machine.host.commands.programs["dcb"]
    outcome = machine.run(device)
    assert {entry.reason for entry in outcome.remaining.unmanaged} == reasons


def test_a_device_without_an_interface_has_no_priorities(machine: Machine) -> None:
    machine.path(f"{place('rxe0')}/ports/1/gid_attrs/ndevs/0").write_text("")
    outcome = machine.run({"match": {"name": "rxe0"}, "pfc": [3]})
    assert [entry.reason for entry in outcome.remaining.unmanaged] == ["it has no network interface"]


def test_the_priorities_of_a_bond_are_those_of_its_ports_and_left_alone(tmp_path: Path) -> None:
    bond = {f"{place('mlx5_0')}/ports/1/gid_attrs/ndevs/0": "bond0\n", "/sys/class/net/bond0/bonding/slaves": "eth0\n"}
    machine = Machine(tmp_path, bond)
    outcome = machine.run({"match": {"netdev": "bond0"}, "pfc": [3], "roce_tos": 106})
    assert [(entry.setting, entry.reason) for entry in outcome.remaining.unmanaged] == [
        ("pfc", "it is over the bond bond0, whose ports have priorities of their own")
    ]
    assert machine.kernel("mlx5_0")["default_roce_tos"] == "106"


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (Completed(1, "", "RTNETLINK answers: Operation not permitted\n"), "Operation not permitted"),
        (Completed(0, "prio-pfc 0:off\n", ""), "prio-pfc 0:off"),
        (Completed(2, "", ""), "exit status 2"),
        (Completed(124, "", ""), "it took too long"),
    ],
)
def test_what_dcb_cannot_say_is_unknown(machine: Machine, answer: Completed, cause: str) -> None:
    machine.host.commands.programs["dcb"] = lambda argv: answer
    error = refusal(machine, {**MLX0, "pfc": [3]})
    assert isinstance(error, CannotLook)
    assert str(error).startswith("Cannot ask dcb about pfc of eth0: ")
    assert cause in str(error)


def test_priorities_that_the_firmware_agrees_on_are_not_changed(machine: Machine) -> None:
    machine.dcbx = {"lld_managed": True, "ieee": True}
    error = refusal(machine, {**MLX0, "pfc": [3]})
    assert isinstance(error, OwnedByAnother)
    assert (
        "Cannot set mlx5_0:1 pfc: the firmware of the card agrees on the priorities of eth0 with the switch (DCBX) "
        "(found none, wanted 3)."
    ) in str(error)
    # What it agreed on may be declared.
    machine.run({**MLX0, "pfc": [], "dscp_priorities": {48: 6}})


def test_lldpad_is_named_as_another_owner(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"/run/lldpad.pid": "812\n"})
    outcome = machine.run({**MLX0, "pfc": [3], "ecn": [3], "roce_tos": 106})
    assert [(one.owner, one.path, one.object, one.setting, one.wins) for one in outcome.remaining.conflicts] == [
        ("lldpad", "/run/lldpad.pid", "mlx5_0:1", "pfc", "them")
    ]


# --- ready ------------------------------------------------------------------------------------------------------------


def test_a_port_that_is_down_is_pending_and_left_alone(machine: Machine) -> None:
    device = {"match": {"numa_node": "1"}, "ready": True}
    outcome = machine.run(device)
    rows = {(row.object, row.setting): (row.effective, row.status) for row in outcome.remaining.settings}
    assert rows[("mlx5_1:1", "state")] == ("ACTIVE", "in_sync")
    assert rows[("mlx5_2:1", "state")] == ("DOWN, Polling", "pending")
    assert outcome.remaining.needs == ("link",)
    assert [change for change in outcome.changes if change.scope == "effective"] == []
    assert machine.path(f"{place('mlx5_2')}/ports/1/state").read_text() == "1: DOWN\n"
    machine.path(f"{place('mlx5_2')}/ports/1/state").write_text("4: ACTIVE\n")
    assert machine.run(device).remaining.status == "in_sync"


# --- the next boot ----------------------------------------------------------------------------------------------------


def test_after_a_reboot_the_same_run_sets_what_has_vanished(machine: Machine) -> None:
    devices = ({**MLX0, "roce_tos": 106, "traffic_class": 106}, {**MLX1, "roce_mode": "v1"})
    machine.run(*devices, gpudirect="peermem")
    machine.reboot()
    outcome = machine.run(*devices, gpudirect="peermem")
    assert {(change.object, change.setting, change.scope) for change in outcome.changes} == {
        ("mlx5_0:1", "roce_tos", "effective"),
        ("mlx5_0:1", "traffic_class", "effective"),
        ("mlx5_1:1", "roce_mode", "effective"),
        ("GPU memory", "gpudirect", "effective"),
    }


def test_what_comes_later_is_set_by_a_unit_that_rules_start(machine: Machine) -> None:
    machine.run({**MLX0, "roce_tos": 106})
    run = 'RUN+="/bin/systemctl --no-block start gpufleet-rdma.service"'
    lines = machine.path(RULES).read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        f'SUBSYSTEM=="infiniband", ACTION=="add|move", {run}'
    ]
    unit = machine.path(UNIT).read_text()
    assert "After=gpufleet-boot.service rdma-hw.target openibd.service\n" in unit
    assert "gpufleet boot --concern rdma " in unit
    machine.run({**MLX0, "roce_tos": 106}, gpudirect="peermem")
    assert f'SUBSYSTEM=="pci", ACTION=="bind", ENV{{DRIVER}}=="nvidia", {run}' in machine.path(RULES).read_text()
    # Ports that have to be active need nothing to be done later.
    machine.run({**MLX0, "ready": True})
    assert not machine.path(RULES).exists()
    assert not machine.path(UNIT).exists()


def test_without_the_boot_service_nothing_would_last_and_the_run_is_refused(machine: Machine) -> None:
    machine.path("/etc/systemd/system/multi-user.target.wants/gpufleet-boot.service").unlink()
    with pytest.raises(Refused) as caught:
        machine.run({**MLX0, "roce_tos": 106})
    assert "the boot service is not enabled" in str(caught.value)
    assert machine.kernel("mlx5_0")["default_roce_tos"] == "0"


# --- the memory of GPUs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "files", "way", "lacks"),
    [
        ("auto", {DRIVER: OPEN}, "dma_buf", []),
        ("dma_buf", {DRIVER: OPEN}, "dma_buf", []),
        ("auto", {}, "peermem", ["the NVIDIA driver does not have the open kernel modules"]),
        ("peermem", {DRIVER: OPEN}, "peermem", []),
        ("auto", {DRIVER: OPEN, **KERNEL_5_11}, "peermem", ["the kernel 5.11.0 is older than 5.12"]),
    ],
)
def test_the_way_to_gpu_memory_is_the_one_that_works(
    tmp_path: Path, declared: str, files: Mapping[str, str], way: str, lacks: Sequence[str]
) -> None:
    machine = Machine(tmp_path, files)
    outcome = machine.run(gpudirect=declared)
    assert machine.path(PEERMEM).is_dir() is (way == "peermem")
    assert outcome.effective["gpudirect"] == {
        "peermem": way == "peermem",
        "dma_buf": not lacks,
        "dma_buf_lacks": lacks,
    }
    row = next(row for row in outcome.remaining.settings if row.setting == "gpudirect")
    assert (row.wanted, row.effective, row.status) == (way, way, "in_sync")
    assert machine.run(gpudirect=declared).changes == ()


def test_a_card_whose_driver_does_not_take_dma_buf_is_named(machine: Machine) -> None:
    machine.path(DRIVER).write_text(OPEN)
    for name in ("mlx5_0", "mlx5_1", "mlx5_2"):
        driver = machine.path(place(name)).parents[1] / "driver"
        driver.unlink()
        driver.symlink_to("/sys/bus/pci/drivers/mlx4_core")
    error = refusal(machine, gpudirect="dma_buf")
    assert "Cannot give RDMA devices GPU memory by DMA-BUF: mlx4_core does not take DMA-BUF" in str(error)


@pytest.mark.parametrize(
    ("declared", "files", "reason"),
    [
        ("auto", {DRIVER: None}, "the NVIDIA driver is not loaded"),
        ("dma_buf", {DRIVER: None}, "the NVIDIA driver is not loaded"),
        ("peermem", {MODULES: "rdma_cm.ko:\n"}, "this kernel (6.8.0) has no module nvidia_peermem"),
        (
            "auto",
            {MODULES: "rdma_cm.ko:\n"},
            "no DMA-BUF: the NVIDIA driver does not have the open kernel modules; no peermem: this kernel (6.8.0) has "
            "no module nvidia_peermem",
        ),
        ("auto", {CLASS: None}, "there is no RDMA device"),
    ],
)
def test_what_gpudirect_lacks_is_unmanaged(
    machine: Machine, declared: str, files: Mapping[str, Optional[str]], reason: str
) -> None:
    for path, text in files.items():
        if text is not None:
            machine.path(path).write_text(text)
        elif machine.path(path).is_dir():
            machine.path(path).rename(machine.path("/away"))
        else:
            machine.path(path).unlink()
    outcome = machine.run(gpudirect=declared)
    assert [entry.reason for entry in outcome.remaining.unmanaged] == [reason]
    assert not machine.path(PEERMEM).exists()
    assert reason in str(refusal(machine, gpudirect=declared, strict=True))


def test_a_proprietary_driver_has_no_dma_buf(machine: Machine) -> None:
    error = refusal(machine, gpudirect="dma_buf")
    assert isinstance(error, DeclarationError)
    assert "the NVIDIA driver does not have the open kernel modules. Set peermem, or auto" in str(error)


def test_the_old_module_is_in_the_way_of_the_new_one_and_named_as_a_conflict_otherwise(tmp_path: Path) -> None:
    old = {"/sys/module/nv_peer_mem/refcnt": "1\n"}
    error = refusal(Machine(tmp_path / "closed", old), gpudirect="peermem")
    assert isinstance(error, OwnedByAnother)
    assert "nv_peer_mem is loaded, which is in the same place of the RDMA stack" in str(error)
    outcome = Machine(tmp_path / "open", {**old, DRIVER: OPEN}).run(gpudirect="auto")
    assert [(one.owner, one.path, one.wins) for one in outcome.remaining.conflicts] == [
        ("nv_peer_mem", "/sys/module/nv_peer_mem", "us")
    ]


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (
            "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument\n",
            "Cannot load nvidia_peermem: it was built for an RDMA stack that has no peer memory, as that of the kernel "
            "itself is (Invalid argument). Set gpudirect: dma_buf, or install MLNX_OFED or DOCA and then build the "
            "NVIDIA driver again.",
        ),
        (
            "modprobe: ERROR: could not insert 'nvidia_peermem': Unknown symbol in module, or unknown parameter\n",
            "Cannot load nvidia_peermem: the RDMA stack that is loaded is not the one that it was built for (Unknown "
            "symbol).",
        ),
        (
            "modprobe: ERROR: could not insert 'nvidia_peermem': Key was rejected by service\n",
            "could not insert 'nvidia_peermem': Key was rejected by service. See what the kernel says in journalctl -k",
        ),
    ],
)
def test_what_it_means_that_the_module_does_not_load_is_said(machine: Machine, says: str, message: str) -> None:
    machine.peermem_says = says
    with pytest.raises(Refused) as caught:
        machine.run(gpudirect="peermem")
    assert message in str(caught.value)
    # Nothing declares it for the next boot.
    assert not machine.path("/etc/gpufleet/declared.d/rdma.json").exists()


# --- absent -----------------------------------------------------------------------------------------------------------


def test_absent_gives_back_what_was_set_and_takes_only_our_folder_away(machine: Machine) -> None:
    machine.run({**MLX0, "roce_mode": "v1", "roce_tos": 106}, {**MLX1, "roce_mode": "v2"}, gpudirect="peermem")
    machine.run(state="absent")
    assert not machine.path(f"{CONFIGFS}/mlx5_0").exists()
    assert machine.kernel("mlx5_0") == {"default_roce_mode": V2, "default_roce_tos": "0"}
    assert machine.path(f"{CONFIGFS}/mlx5_1/ports/1/default_roce_mode").read_text() == f"{V1}\n"
    assert not machine.path(PEERMEM).exists()
    assert not machine.path(RULES).exists()


def test_a_setting_that_came_second_goes_with_the_folder_too(machine: Machine) -> None:
    machine.run({**MLX0, "roce_mode": "v1"})
    machine.run({**MLX0, "roce_mode": "v1", "roce_tos": 106})
    machine.run(state="absent")
    assert not machine.path(f"{CONFIGFS}/mlx5_0").exists()
    assert machine.kernel("mlx5_0") == {"default_roce_mode": V2, "default_roce_tos": "0"}


def test_absent_after_a_reboot_finds_nothing_to_do_in_the_kernel(machine: Machine) -> None:
    machine.run({**MLX0, "roce_tos": 106, "traffic_class": 96})
    machine.reboot()
    outcome = machine.run(state="absent")
    assert [change for change in outcome.changes if change.object == "mlx5_0:1" and change.scope == "effective"] == []
    assert not machine.path(f"{CONFIGFS}/mlx5_0").exists()


def test_the_module_stays_while_memory_is_registered_with_it(machine: Machine) -> None:
    machine.run(gpudirect="peermem")
    machine.path(f"{PEERMEM}/refcnt").write_text("2\n")
    outcome = machine.run(state="absent")
    assert [entry.reason for entry in outcome.remaining.unmanaged] == [
        "nvidia_peermem stays loaded: memory of GPUs is registered with it"
    ]
    assert machine.path(PEERMEM).is_dir()


def test_a_module_that_was_loaded_before_stays(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {f"{PEERMEM}/refcnt": "0\n"})
    machine.run({**MLX0, "roce_tos": 106}, gpudirect="peermem")
    machine.run(state="absent")
    assert machine.path(PEERMEM).is_dir()


@pytest.mark.parametrize(
    ("identity", "setting", "value"),
    [
        ("0000:17:00.0:1", "roce_tos", 300),
        ("0000:17:00.0:1", "roce_mode", "v3"),
        ("0000:17:00.0:1", "mtu", 9000),
        ("0000:17:00.0:1", "pfc", "3,8"),
        ("0000:17:00.0:1", "pfc", 3),
        ("0000:17:00.0:1", "dscp 26", 8),
        ("0000:17:00.0:1", "dscp 64", 3),
        ("0000:17:00.0:1", "ecn 3 np", "yes"),
        ("GPU memory", "gpudirect", "dma_buf"),
    ],
)
def test_a_record_of_what_was_never_there_is_damaged(machine: Machine, identity: str, setting: str, value: Any) -> None:
    machine.run({**MLX0, "roce_tos": 106})
    path = machine.path("/var/lib/gpufleet/baseline/rdma.json")
    record = json.loads(path.read_text())
    record["values"].append({"identity": identity, "setting": setting, "effective": value, "boot": None})
    path.write_text(json.dumps(record))
    assert f"the file is damaged: {value!r} is not a value of {setting}" in str(refusal(machine, state="absent"))


def test_absent_names_what_is_not_there_any_more(machine: Machine) -> None:
    machine.run({**MLX0, "roce_tos": 106})
    machine.path(f"{CLASS}/mlx5_0").unlink()
    outcome = machine.run(state="absent")
    assert [(entry.object, entry.setting) for entry in outcome.remaining.unmanaged] == [("0000:17:00.0:1", "roce_tos")]


# --- the configuration space ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "relaxed"),
    [
        (config(relaxed=True), True),
        (config(relaxed=False), False),
        # Root alone is shown more than the first of these.
        (config(relaxed=True)[:64], None),
        ("\x00" * 256, None),
        ("\udcff" * 256, None),
    ],
)
def test_relaxed_ordering_is_read_from_the_configuration_space(space: str, relaxed: Optional[bool]) -> None:
    assert relaxed_ordering(space.encode("utf-8", "surrogateescape")) is relaxed
