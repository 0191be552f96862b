# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input and machines that stand in the way: the exact message that comes back, and that nothing changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvidia_persistence.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.nvidia_persistence.persistence_machine import (
    BOOT_SERVICE,
    LINK,
    UNIT,
    UPSTREAM,
    VENDOR,
    MakePersistenceMachine,
    PersistenceMachine,
    params,
)
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.concerns.nvidia_persistence.persistence_machine",)

OVERRIDE = f"/etc/systemd/system/{UNIT}.d/override.conf"
MASK = {f"/etc/systemd/system/{UNIT}": "/dev/null"}
H100 = "NVIDIA H100 80GB HBM3"
GPU = {"/sys/bus/pci/devices/0000:17:00.0/vendor": "0x10de\n", "/sys/bus/pci/devices/0000:17:00.0/class": "0x030200\n"}


def nothing(machine: PersistenceMachine) -> None:
    pass


def no_driver(machine: PersistenceMachine) -> None:
    machine.machine.sim("unload-driver")


def not_root(machine: PersistenceMachine) -> None:
    machine.host.may_change = False


def read_only_etc(machine: PersistenceMachine) -> None:
    machine.host.files.read_only.append("/etc")


def without_persistence(machine: PersistenceMachine) -> None:
    machine.machine.sim("fail", "nvmlDeviceGetPersistenceMode", "NVML_ERROR_NOT_SUPPORTED", 0)


def on(machine: PersistenceMachine) -> None:
    machine.machine.simulated.elsewhere("[nvmlDeviceSetPersistenceMode(each, 1) for each in gpu]")


def case(
    name: str,
    message: str,
    declaration: Dict[str, Any],
    *,
    kind: str = "hgx-h100-80gb-8",
    unit: Optional[str] = UPSTREAM,
    files: Optional[Mapping[str, str]] = None,
    links: Optional[Mapping[str, str]] = None,
    prepare: Callable[[PersistenceMachine], object] = nothing,
    status: str = "unknown",
) -> Any:
    made = {"unit": unit, "files": files, "links": links}
    return pytest.param(kind, made, prepare, declaration, message, status, id=name)


@pytest.mark.parametrize(
    ("kind", "made", "prepare", "declaration", "message", "status"),
    [
        case(
            "all GPUs and a list",
            "Cannot read the declaration: enabled is for all GPUs, and gpus is for each. Remove one of the two.",
            {"enabled": True, "gpus": [{"enabled": False}]},
        ),
        case(
            "nothing",
            "Cannot read the declaration: nothing is declared. Set enabled: true, or give a list of gpus.",
            {},
        ),
        case(
            "an index that there is not",
            "Cannot apply gpus[0] (index: 8): it matches no device; there is gpu0, gpu1, gpu2, gpu3, gpu4, "
            "gpu5, gpu6, gpu7. Correct the match, or set optional: true.",
            {"gpus": [{"match": {"index": 8}, "enabled": True}]},
        ),
        case(
            "a UUID that there is not",
            "Cannot apply gpus[0] (uuid: GPU-0): it matches no device; there is gpu0, gpu1, gpu2, gpu3, "
            "gpu4, gpu5, gpu6, gpu7. Correct the match, or set optional: true.",
            {"gpus": [{"match": {"uuid": "GPU-0"}, "enabled": True}]},
        ),
        case(
            "a MIG device",
            "Cannot use gpus[0]: MIG-1 is a MIG device, and the setting belongs to a whole GPU. Write the "
            "UUID of its GPU, which begins with GPU-.",
            {"gpus": [{"match": {"uuid": "MIG-1"}, "enabled": True}]},
        ),
        case(
            "a key that there is not",
            "Cannot use gpus[0]: there is no key modell. Did you mean model?",
            {"gpus": [{"match": {"modell": "*"}, "enabled": True}]},
        ),
        case(
            "an entry whose GPUs were taken",
            "Cannot apply gpus[1] (index: 0): gpu0 matched earlier gpus[0] (which matches everything). Put "
            "the entry before them, or set optional: true.",
            {"gpus": [{"enabled": True}, {"match": {"index": 0}, "enabled": False}]},
        ),
        case(
            "a GPU without the mode, strictly",
            "Cannot set persistence_mode on gpu0: not supported by this GPU. Leave it out, or set strict: false.",
            {"enabled": True, "strict": True},
            prepare=without_persistence,
        ),
        case(
            "a machine with a GPU and without its driver",
            "Cannot query the NVIDIA driver: the kernel module nvidia is not loaded. Load it with modprobe nvidia, or "
            "declare it in kernel_modules_load, and check the kernel log.",
            {"enabled": True},
            files=GPU,
            prepare=no_driver,
        ),
        case(
            "a machine without a driver, and an entry that insists",
            "Cannot query the NVIDIA driver: the kernel module nvidia is not loaded. Load it with modprobe nvidia, or "
            "declare it in kernel_modules_load, and check the kernel log.",
            {"gpus": [{"enabled": True}]},
            prepare=no_driver,
        ),
        case(
            "a library newer than the driver",
            "Cannot query the NVIDIA driver: the driver's library and the loaded kernel module have different "
            "versions: the driver was upgraded but not reloaded. Reload the driver while no GPU is in use, or "
            "reboot the node.",
            {"enabled": True},
            prepare=lambda machine: machine.machine.sim("mismatch", "on"),
        ),
        case(
            "a masked daemon",
            f"Cannot keep persistence_mode on across a reboot on {UNIT}: it is masked. Run systemctl unmask "
            f"{UNIT}, or set permanent: false.",
            {"enabled": True},
            links=MASK,
            status="drifted",
        ),
        case(
            "a drop-in that has the last word",
            f"Cannot keep persistence_mode on across a reboot on {UNIT}: {OVERRIDE} is read after our drop-in and "
            "sets ExecStart (found /usr/bin/nvidia-persistenced --no-persistence-mode). Remove ExecStart from it, or "
            "set permanent: false.",
            {"enabled": True},
            files={OVERRIDE: "[Service]\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced --no-persistence-mode\n"},
            status="drifted",
        ),
        case(
            "a drop-in that has the last word, when it shall be off",
            f"Cannot keep persistence_mode off across a reboot on {UNIT}: {OVERRIDE} is read after our drop-in and "
            "sets ExecStart (found /usr/bin/nvidia-persistenced). Remove ExecStart from it, or set permanent: false.",
            {"enabled": False},
            files={OVERRIDE: "[Service]\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced\n", LINK: ""},
            status="drifted",
        ),
        case(
            "a drop-in that adds a second command",
            f"Cannot keep persistence_mode on across a reboot on {UNIT}: {OVERRIDE} is read after our drop-in and "
            "sets ExecStart (found /usr/bin/nvidia-smi -pm 1). Remove ExecStart from it, or set permanent: false.",
            {"enabled": True},
            files={OVERRIDE: "[Service]\nExecStart=/usr/bin/nvidia-smi -pm 1\n"},
            status="drifted",
        ),
        case(
            "a unit without a command",
            f"Cannot keep persistence_mode on across a reboot on {UNIT}: it has no ExecStart of its own. Install the "
            "driver's unit again, or set permanent: false.",
            {"enabled": True},
            files={VENDOR: "[Unit]\nDescription=nothing\n"},
            status="drifted",
        ),
        case(
            "memory of the machine that would go offline",
            "Cannot disable persistence_mode on gpu0: its memory is a NUMA node of this machine (addressing mode "
            "ATS), which would go offline. Set force: true once nothing uses it.",
            {"enabled": False},
            kind="gb200-4",
            unit=None,
            prepare=on,
            status="drifted",
        ),
        case(
            "memory of the machine that would go offline at the next boot",
            "Cannot disable persistence_mode on gpu0: its memory is a NUMA node of this machine (addressing mode "
            "ATS), which would go offline. Set force: true once nothing uses it.",
            {"enabled": False, "immediate": False},
            kind="gb200-4",
            files={LINK: ""},
            status="drifted",
        ),
        case(
            "no boot service",
            "Cannot keep what is declared across a reboot: the boot service is not installed. Run the role node_tools "
            "first, or set permanent: false.",
            {"enabled": True},
            unit=None,
        ),
        case(
            "no boot service, and GPUs that are not wanted alike",
            "Cannot keep what is declared across a reboot: the boot service is not enabled. Run the role node_tools "
            "first, or set permanent: false.",
            {"gpus": [{"match": {"index": 0}, "enabled": True}]},
            files={**BOOT_SERVICE, f"/etc/systemd/system/multi-user.target.wants/{'gpufleet-boot.service'}": ""},
            prepare=lambda machine: Path(
                machine.host.files.locate("/etc/systemd/system/multi-user.target.wants/gpufleet-boot.service")
            ).unlink(),
        ),
        case(
            "not root",
            "Cannot change nvidia_persistence: not running as root. Run the task with become: true.",
            {"enabled": True},
            prepare=not_root,
            status="drifted",
        ),
        case(
            "a read-only file system",
            "Cannot write /etc/gpufleet/declared.d/nvidia_persistence.json: /etc is on a read-only file system, or is"
            " immutable (see lsattr -d). Make it writable, or set permanent: false.",
            {"enabled": True},
            files=BOOT_SERVICE,
            unit=None,
            prepare=read_only_etc,
        ),
    ],
)
def test_it_is_refused_with_this_message_and_nothing_changes(
    persistence_machine: MakePersistenceMachine,
    kind: str,
    made: Dict[str, Any],
    prepare: Callable[[PersistenceMachine], object],
    declaration: Dict[str, Any],
    message: str,
    status: str,
) -> None:
    machine = persistence_machine(kind, running=False, **made)
    prepare(machine)
    before = snapshot(machine.root, leave_out=("run", "var"))
    machine.machine.clear_logs()
    with pytest.raises(GpuFleetError) as caught:
        machine.run(**declaration)
    assert str(caught.value) == message
    assert snapshot(machine.root, leave_out=("run", "var")) == before
    assert (machine.machine.log(), machine.host.commands.calls) == ([], [])


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({"enabled": "sometimes"}, "'sometimes' is not a valid boolean"),
        ({"gpus": [{"enable": True}]}, "gpus.enable. Supported parameters include: enabled, match, optional."),
        ({"gpus": "all"}, "dictionary requested, could not parse JSON or key=value"),
        ({"on": True}, "on. Supported parameters include"),
    ],
)
def test_what_is_no_declaration_at_all_is_refused_by_its_types(declaration: Dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        params(**declaration)
    assert message in str(caught.value)


def test_a_masked_daemon_is_no_obstacle_for_the_running_system(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(links=MASK, running=False)
    outcome = machine.run(enabled=True, permanent=False)
    assert machine.modes() == ["on"] * 8
    assert outcome.effective["through"] == "legacy"


def test_a_masked_daemon_is_as_wanted_where_all_shall_be_off(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(links=MASK, running=False)
    machine.run(enabled=False)
    assert machine.run(enabled=False).status == "in_sync"


def test_a_drop_in_that_has_the_last_word_is_only_reported_for_the_running_system(
    persistence_machine: MakePersistenceMachine,
) -> None:
    override = "[Service]\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced --no-persistence-mode\n"
    machine = persistence_machine(unit=UPSTREAM, enabled=True, files={OVERRIDE: override})
    outcome = machine.run(enabled=True, permanent=False)
    assert [(entry.path, entry.wins) for entry in outcome.remaining.conflicts] == [(OVERRIDE, "them")]
    assert machine.modes() == ["on"] * 8


def test_a_driver_that_hangs_is_an_answer_within_the_deadline(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(unit=None)
    machine.machine.sim("hang", "nvmlDeviceGetPersistenceMode")
    machine.machine.connect(deadline=0.3)
    with pytest.raises(GpuFleetError) as caught:
        converge(CONCERN, params(enabled=True), machine.host, check_mode=False)
    assert refused(caught.value).status == "unknown"
    assert str(caught.value).startswith("Cannot query the NVIDIA driver: it did not respond within 0.3 s.")
    machine.machine.sim("heal")


def test_a_daemon_that_does_not_start_is_an_error_that_says_so(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(
        unit=UPSTREAM.replace("--user nvpd", "--user nvpd --group no-such-group"), running=False
    )
    outcome = machine.try_to_run(enabled=True)
    assert str(outcome.error).startswith(f"Cannot start {UNIT} with systemctl start {UNIT}: exit status 1: ")
