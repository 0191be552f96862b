# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MPS that a machine cannot have, that others have, and declarations that are wrong: what is said, and nothing done."""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    DeclarationError,
    GpuFleetError,
    OwnedByAnother,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mps.files import refuse_long_path
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_machine import ONE, divide, whole
from ansible_collections.gpufleet.node.tests.unit.concerns.mps.mps_machine import (
    ETC,
    PIPES,
    UNIT,
    machine,
    run,
    systemd_of,
)
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import build, snapshot

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

MEMORY = "it must be a whole number above 0 followed by G or M; the daemon would read 1.5G as 1M"
PERCENTAGE = "it must be above 0 and at most 100, with one decimal at most; the daemon ignores any other"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"gpus": []},
            "Cannot read the declaration: no GPU is declared. Set gpus: [{}] for all GPUs, or state: absent.",
        ),
        *(
            (
                {"gpus": [{}], "active_thread_percentage": text},
                f"Cannot set active_thread_percentage: {PERCENTAGE} (wanted {text}). Set a number such as 50; 100 "
                "limits nothing.",
            )
            for text in ("0", "0.0", "100.1", "150", "-5", "33.33", "half", "1e1", "50%")
        ),
        *(
            (
                {"gpus": [{}, {"memory_limit": text, "optional": True}]},
                f"Cannot set gpus[1].memory_limit: {MEMORY} (wanted {text}). Set a limit such as 10G or 1536M, or "
                "leave it out for none.",
            )
            for text in ("1.5G", "0G", "10", "10GB", "-1G", "G", "10 G", "1T")
        ),
        (
            {"gpus": [{"memory_limit": "500G"}]},
            "Cannot set memory limit on gpu0: the GPU has only 46068M (wanted 500G). Set a limit below that, or leave "
            "it out.",
        ),
        (
            {"gpus": [{"match": {"uuid": "GPU-none"}}]},
            "Cannot apply gpus[0] (uuid: GPU-none): it matches no device; there is gpu0. Correct the match, or set "
            "optional: true.",
        ),
        (
            {"gpus": [{"match": {"uuid": "MIG-1"}}]},
            "Cannot use gpus[0]: MIG-1 is a MIG device, and the setting belongs to a whole GPU. Write the UUID of its "
            "GPU, which begins with GPU-.",
        ),
        (
            {"gpus": [{}], "busy_timeout": -1},
            "Cannot set busy_timeout: it is below 0 (wanted -1). Set 0 or more.",
        ),
        (
            {"gpus": [{}], "multi_user": True},
            "Cannot set multi-user on MPS: the daemon of this driver (R550) does not have -multiuser-server, and "
            "ignores it. Upgrade the driver to R555 or later, or leave multi_user out.",
        ),
    ],
)
def test_what_is_declared_wrong_is_refused_before_anything_changes(
    gpu_machine: MakeMachine, options: Mapping[str, Any], message: str
) -> None:
    made = machine(gpu_machine)
    before = snapshot(made.root)
    with pytest.raises(DeclarationError) as caught:
        run(made, **options)
    assert str(caught.value) == message
    assert snapshot(made.root) == before


def test_a_path_of_pipes_that_is_too_long_is_refused_before_the_daemon_says_that_there_is_none() -> None:
    # The kernel takes 107 bytes, of which the name of the socket has 18.
    refuse_long_path("/run/" + "x" * 83)
    with pytest.raises(
        DeclarationError, match="the path of a socket in it has 108 bytes, and the kernel accepts at most 107"
    ):
        refuse_long_path("/run/" + "x" * 84)
    with pytest.raises(DeclarationError):
        refuse_long_path("/run/" + "ä" * 42)


def test_without_the_control_program_the_packages_are_named(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    del made.host.commands.programs["nvidia-cuda-mps-control"]
    with pytest.raises(DeclarationError, match=r"no nvidia-cuda-mps-control\. Install nvidia-cuda-mps \(Debian\), "):
        run(made, gpus=[{}])


def test_several_users_share_a_server_where_the_daemon_can(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, driver="580.65.06")
    outcome = run(made, gpus=[{}], multi_user=True)
    assert outcome.effective["daemons"][UNIT]["multi_user"] is True
    assert "-f -multiuser-server\n" in made.host.files.read(f"{ETC}/{UNIT}")
    changes = {(one.setting, one.scope): (one.before, one.after) for one in run(made, gpus=[{}]).changes}
    assert changes["multi-user", "effective"] == ("yes", "no")


# The compute mode


def declares(mode: str) -> Dict[str, str]:
    document = {"schema": 1, "declaration": {"gpus": [{"compute_mode": mode}]}}
    return {"/etc/gpufleet/declared.d/gpu_settings.json": json.dumps(document)}


@pytest.mark.parametrize(
    ("mode", "exclusive", "hint"),
    [
        ("default", True, "compute_mode: exclusive_process there, or set exclusive: false, which lets programs"),
        ("prohibited", True, r"compute_mode: exclusive_process there\."),
        ("prohibited", False, r"compute_mode: default there\."),
    ],
)
def test_a_compute_mode_that_is_declared_otherwise_is_refused(
    gpu_machine: MakeMachine, mode: str, exclusive: bool, hint: str
) -> None:
    made = machine(gpu_machine, files=declares(mode))
    with pytest.raises(
        OwnedByAnother, match=f"Cannot serve gpu0 by MPS: gpu_settings .* compute_mode: {mode}"
    ) as caught:
        run(made, gpus=[{}], exclusive=exclusive)
    assert caught.match(hint)
    assert not made.host.files.exists(f"{ETC}/{UNIT}")


@pytest.mark.parametrize(("mode", "exclusive"), [("exclusive_process", True), ("default", False)])
def test_a_compute_mode_that_fits_is_nothing_to_speak_of(gpu_machine: MakeMachine, mode: str, exclusive: bool) -> None:
    made = machine(gpu_machine, files=declares(mode))
    assert run(made, gpus=[{}], exclusive=exclusive, strict=True).as_dict()["unmanaged"] == []


def test_that_programs_may_go_past_mps_is_said_where_nobody_declares_a_mode(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    [said] = run(made, gpus=[{}], strict=True).as_dict()["unmanaged"]
    assert (said["object"], said["setting"]) == ("gpu0", "compute mode")
    made.sim("set", 0, "compute_mode=3")
    assert run(made, gpus=[{}]).as_dict()["unmanaged"] == []


def test_a_gpu_in_mig_mode_has_the_compute_mode_that_it_can_have(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, "hgx-h100-80gb-8", files=declares("default"))
    divide(made, 0, (whole(0, ONE),))
    outcome = run(made, gpus=[{"match": {"index": 0}}], strict=True)
    assert (outcome.as_dict()["unmanaged"], len(outcome.effective["daemons"])) == ([], 1)


# Others


def socket_of(folder: str) -> str:
    line = "ffff8881: 00000002 00000000 00010000 0001 01 4242"
    return f"Num       RefCount Protocol Flags    Type St Inode Path\n{line} {folder}/control_privileged\n"


def foreign(folder: str, devices: str) -> Dict[str, str]:
    environment = f"CUDA_MPS_PIPE_DIRECTORY={folder}\0CUDA_VISIBLE_DEVICES={devices}\0"
    return {
        "/proc/net/unix": socket_of(folder),
        "/proc/900/comm": "nvidia-cuda-mps\n",
        "/proc/900/cmdline": "/usr/bin/nvidia-cuda-mps-control\0-d\0",
        "/proc/900/environ": environment,
    }


@pytest.mark.parametrize("devices", ["", "0", "2,GPU-x"])
def test_another_daemon_on_the_same_gpus_is_refused(gpu_machine: MakeMachine, devices: str) -> None:
    made = machine(gpu_machine, files=foreign("/tmp/nvidia-mps-77", devices))
    before = snapshot(made.root)
    with pytest.raises(OwnedByAnother) as caught:
        run(made, gpus=[{}])
    assert str(caught.value).startswith(
        "Cannot start the MPS control daemon: another nvidia-cuda-mps-control already serves the same GPUs "
        f"(/tmp/nvidia-mps-77) (found {devices or 'all'}). Stop it, or leave mps out of the declaration of this node"
    )
    assert [conflict.path for conflict in caught.value.conflicts] == ["/tmp/nvidia-mps-77"]
    assert snapshot(made.root) == before


def test_one_on_other_gpus_is_named_and_left_alone(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, files=foreign("/tmp/mps-of-alice", "GPU-another"))
    [conflict] = run(made, gpus=[{}]).as_dict()["conflicts"]
    assert conflict == {
        "owner": "another nvidia-cuda-mps-control",
        "path": "/tmp/mps-of-alice",
        "line": None,
        "object": "GPUs",
        "setting": "control daemon",
        "value": "GPU-another",
        "wins": "us",
        "accepted": "",
    }


def test_a_daemon_of_somebody_else_in_our_folder_is_refused_and_ours_is_none(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, files=foreign(PIPES, ""))
    with pytest.raises(OwnedByAnother, match=rf"already serves the same GPUs \({PIPES}\)"):
        run(made, gpus=[{}])


def test_our_own_daemon_is_no_conflict(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    run(made, gpus=[{}])
    (made.root / "proc/net/unix").write_text(socket_of(PIPES))
    assert run(made, gpus=[{}]).as_dict()["conflicts"] == []


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "gpu"])
def test_the_daemon_of_the_device_plugin_is_refused(gpu_machine: MakeMachine, resource: str) -> None:
    mark = f"/run/nvidia/mps/{resource}/.started"
    made = machine(gpu_machine, files={mark: ""})
    with pytest.raises(
        OwnedByAnother, match=rf"the device plugin of Kubernetes already serves the same GPUs \({mark}\)"
    ):
        run(made, gpus=[{}])


def test_slurm_with_gres_mps_is_named_and_goes_with_it(gpu_machine: MakeMachine) -> None:
    gres = "# Name=mps Count=100\nName=gpu File=/dev/nvidia0\nName=mps Count=400\n"
    made = machine(gpu_machine, files={"/etc/slurm/gres.conf": gres})
    [conflict] = run(made, gpus=[{}]).as_dict()["conflicts"]
    assert (conflict["owner"], conflict["line"], conflict["wins"]) == ("Slurm gres/mps", 3, "us")


def test_what_is_given_back_is_given_back_beside_another_daemon(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    run(made, gpus=[{}])
    build(made.root, foreign("/tmp/nvidia-mps", ""))
    run(made, state="absent")
    assert systemd_of(made).daemons == {}


@pytest.mark.parametrize(
    ("path", "text", "cause"),
    [
        (f"{ETC}/{UNIT}", "[Service]\nExecStart=/bin/mine\n", f"{ETC}/{UNIT} was not written by this module"),
        (
            f"{ETC}/{UNIT}.d/50-mine.conf",
            "[Service]\nEnvironment=CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10\n",
            "50-mine.conf overrules what is declared",
        ),
        (
            "/run/systemd/system.control/gpufleet-mps.service.d/a.conf",
            "[Service]\nEnvironment=\n",
            "a.conf overrules what is declared",
        ),
    ],
)
def test_who_has_a_say_in_our_unit_is_named(gpu_machine: MakeMachine, path: str, text: str, cause: str) -> None:
    made = machine(gpu_machine, files={path: text})
    with pytest.raises(OwnedByAnother, match=cause):
        run(made, gpus=[{}])


def test_a_drop_in_that_changes_no_value_is_nobodys_business(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, files={f"{ETC}/{UNIT}.d/nice.conf": "[Service]\nNice=-5\n"})
    run(made, gpus=[{}])
    assert run(made, gpus=[{}]).status == "in_sync"


def test_a_unit_that_is_masked_is_named(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    build(made.root, {}, {f"{ETC}/{UNIT}": "/dev/null"})
    with pytest.raises(GpuFleetError, match=f"Cannot start the MPS control daemon by {UNIT}: it is masked"):
        run(made, gpus=[{}])
