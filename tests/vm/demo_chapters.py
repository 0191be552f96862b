# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The chapters of the demonstration: what takes a second model of GPU, container engines or a scheduler.

All begin with the same fleet, two nodes after their first converge (demo_fleet.py). It is made once and its disks are
kept, until something that went into it is another; a chapter boots copies of those that it needs.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from demo_fleet import JOB, LIST, NAME, NODES, RUN, START_JOB, STATE_IN_SLURM, begin, found_first, recorded
from demo_nodes import (
    HUGE_PAGES,
    INFERENCE,
    REPORT,
    TRAINING,
    counted_boots,
    devices,
    driver,
    expect_in_report,
    expect_local,
    persistent,
    show_gpus,
)
from demo_tools import Bed, chapter, expect, indented

ALL = "all"
# By node: how containers ask for GPUs, and which they get.
ASKED: Dict[str, Dict[str, List[int]]] = {
    TRAINING: {
        f"{RUN} --runtime nvidia --env NVIDIA_VISIBLE_DEVICES=1 {LIST}": [1],
        f"{RUN} {LIST}": [*range(8)],
        "cri pod list-gpus": [*range(8)],
    },
    INFERENCE: {
        f"{RUN} --runtime nvidia --env NVIDIA_VISIBLE_DEVICES=1 {LIST}": [1],
        f"{RUN} --device nvidia.com/gpu=2 {LIST}": [2],
        "cri --device nvidia.com/gpu=3 pod list-gpus": [3],
    },
}

TRAINING_GPUS = [{"match": {"index": 7}, "layout": "all-1g"}, {"mig": "disabled"}]
MIXED = {"mig_layout_gpus": [{"match": {"index": 6}, "layout": "balanced"}, *TRAINING_GPUS]}
WHOLE = {"mig_layout_gpus": [{"match": {"index": 6}, "layout": "whole"}, *TRAINING_GPUS]}

QUEUES = [{"scheduler": "none", "read_ahead_kb": 2048}]
TWO_BATCHES = {"gpufleet_batches": [1, 1], "nvme_scheduler_queues": QUEUES}
READ_AHEAD = "cat /sys/block/nvme0n1/queue/read_ahead_kb"
RULES = "/etc/udev/rules.d"
STEPS = """echo begun > /root/steps; sleep 45; echo done >> /root/steps"""
# A page of 1 GiB more than this boot was told of. A node of the bed has so many at every boot.
MORE_PAGES = [{"size": "2M", "per_node": {0: 64, 1: 64}}, {"size": "1G", "per_node": {0: 1, 1: 2}}]


def run_chapters(name: str, lifetime: Sequence[str], *, keep: bool) -> None:
    """The chapter of that name, or all of them, each on a fleet of its own."""
    for told, (nodes, tell) in CHAPTERS.items():
        if name in (told, ALL):
            bed = Bed(NAME, nodes)
            try:
                begin(bed, lifetime)
                tell(bed)
            finally:
                if not keep:
                    bed.call("down")


# --- containers -------------------------------------------------------------------------------------------------------


def containers(bed: Bed) -> None:
    """Every way in which a container asks for GPUs, and a daemon's file that somebody changed."""
    chapter("Containers see the GPUs: by the runtime, as the default one, by CDI, and in pods of containerd")
    print(indented(bed.on(TRAINING, "cat /etc/docker/daemon.json")))
    expect_containers(bed)
    expect_instance(bed, "1g.10gb")

    chapter("Somebody changes the file of a daemon that runs on, under a job")
    bed.on_all(START_JOB)
    jobs = bed.on_all(JOB)
    bed.on(INFERENCE, """sed -i 's/"default-runtime": "nvidia"/"default-runtime": "runc"/' /etc/docker/daemon.json""")
    audit = bed.playbook("audit", "-e", "audit_fail_on_drift=true", "-e", f"gpufleet_report_dest={REPORT}")
    expect(audit.status != 0, "the audit fails")
    row = audit.row("docker", "default_runtime", "nvidia", "drifted")
    expect(row != "", f"it says: {row}")
    expect_in_report("default_runtime", INFERENCE, "nvidia")

    chapter("site heals it, and touches nothing else")
    healed = bed.playbook("site")
    expect(healed.status == 0, "converged")
    expect(healed.recap[TRAINING]["changed"] == 0, f"{TRAINING} was left alone")
    expect('"default-runtime": "nvidia"' in bed.on(INFERENCE, "cat /etc/docker/daemon.json"), "the file has it again")
    expect(bed.on_all(JOB) == jobs, "both jobs run on")
    expect_containers(bed)


def expect_containers(bed: Bed) -> None:
    """Each way to ask for GPUs gives those that were asked for, and no other."""
    with ThreadPoolExecutor(len(NODES)) as pool:
        said = pool.map(lambda node: [bed.on(node, command) for command in ASKED[node]], NODES)
        for node, texts in zip(NODES, said):
            for (command, wanted), text in zip(ASKED[node].items(), texts):
                found = [int(index) for index in re.findall(r"^GPU (\d+):", text, flags=re.MULTILINE)]
                expect(found == wanted, f"{node}: {command}\n       lists GPU {', '.join(map(str, found))}")


def expect_instance(bed: Bed, profile: str) -> None:
    """A container that names an instance of GPU 6 of the training node by CDI has this one, and no other."""
    instances = driver(bed, TRAINING)["gpus"][6]["instances"]
    parts = [part for instance in instances for part in instance["compute_instances"]]
    wanted = next(part for part in parts if part["profile"] == profile)
    text = bed.on(TRAINING, f"{RUN} --device nvidia.com/gpu=6:{wanted['mig_index']} {LIST}")
    print(indented(text))
    found = re.findall(r"MIG-[0-9a-f-]+", text)
    expect(found == [wanted["uuid"]], f"a container has nvidia.com/gpu=6:{wanted['mig_index']}, the one of {profile}")


# --- mig --------------------------------------------------------------------------------------------------------------


def mig(bed: Bed) -> None:
    """The GPUs of a node get other instances, around a job."""
    chapter("GPU 6 is divided anew while a job runs on one of its instances")
    expect(devices(bed, 6) == ["1g.10gb"] * 7, "it has seven small instances")
    gpu = driver(bed, TRAINING)["gpus"][6]
    instance = next(one["id"] for one in gpu["instances"] if one["placement"]["start"] == 2)
    bed.on(TRAINING, f"systemd-run --quiet --unit=job nvml-sim hold 6 --gi {instance} --ci 0")
    repartition = bed.playbook("mig_repartition", "-e", json.dumps(MIXED))
    expect(repartition.status == 0, "drained, divided, seen to be right, and resumed")
    expect(devices(bed, 6) == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"], "the driver lists the new instances")
    expect(devices(bed, 7) == ["1g.10gb"] * 7, "its neighbour has those of before")
    expect(job_runs(bed), "the job never noticed")
    expect_instance(bed, "3g.40gb")

    chapter("site brings the layout of the inventory back, around the job again")
    back = bed.playbook("site")
    expect(back.status == 0 and devices(bed, 6) == ["1g.10gb"] * 7, "seven small instances again")
    expect(job_runs(bed), "the job still runs")

    chapter("A layout that would take the instance of the job away is refused, and says whose it is")
    refused = bed.playbook("mig_repartition", "-e", json.dumps(WHOLE))
    expect(refused.status != 0 and "job.service" in refused.text, "it names the job's unit")
    expect(devices(bed, 6) == ["1g.10gb"] * 7 and job_runs(bed), "nothing changed")
    bed.on(TRAINING, "systemctl stop job")


def job_runs(bed: Bed) -> bool:
    return bed.on(TRAINING, "systemctl is-active job || true").strip() == "active"


# --- reboot -----------------------------------------------------------------------------------------------------------


def reboot(bed: Bed) -> None:
    """What the next boot brings, and what it brings back, beside a scheduler with jobs."""
    chapter("site again: nothing to do")
    second = bed.playbook("site")
    expect(second.status == 0 and second.total("changed") == 0, "nothing changed")
    # Each node is a cluster of its own. Elsewhere the question is one for all nodes of a cluster.
    expect(
        set(second.executions.values()) == {2} and set(second.by_program.values()) == {1},
        "two remote executions a node: the look, by the program on it, and the question to its Slurm",
    )

    chapter("The inventory has another 1 GiB page, and somebody took ECC: that takes a boot, or a reset of the GPU")
    bed.declare(TRAINING, hugepages_pools=MORE_PAGES)
    bed.on(INFERENCE, "nvml-sim set 3 ecc=0 ecc_pending=0")
    healed = bed.playbook("site")
    expect(healed.status == 0, "what can be now is done")
    audit = bed.playbook("audit", "-e", "audit_fail_on_drift=true")
    expect(audit.status == 0, "nothing differs, for what waits is no drift")
    expect("needs a reboot" in audit.text, "the audit names what waits for the reboot")
    expect("gpu3" in audit.text and "pending" in audit.text, "and the GPU whose ECC comes on with its next reset")

    chapter("reboot: the node that needs one gets it, once, after Slurm has let its job end")
    boots = counted_boots(bed)
    bed.on(TRAINING, f"sbatch --output=/dev/null --wrap='{STEPS}'")
    expect(bed.playbook("reboot").status == 0, "drained, rebooted, seen to be right, and resumed")
    expect(bed.on(TRAINING, "cat /root/steps").split() == ["begun", "done"], "the job came to its own end before")
    boots[TRAINING] += 1
    expect(counted_boots(bed) == boots, f"{TRAINING} booted exactly once, {INFERENCE} not at all")
    expect(set(bed.on_all(STATE_IN_SLURM).values()) == {"idle\n"}, "Slurm gives both nodes jobs")
    expect(bed.playbook("reboot").status == 0 and counted_boots(bed) == boots, "nobody needs a second one")

    chapter("The other node boots, too: with its boot the ECC of its GPU comes on")
    bed.call("reboot", INFERENCE)
    audit = bed.playbook("audit", "-e", "audit_fail_on_drift=true")
    expect(audit.status == 0 and audit.row("2", "of", "nodes") != "", "both nodes are right")
    expect(bed.on(TRAINING, HUGE_PAGES).split() == ["1", "2"], "the kernel has the 1 GiB pages of both NUMA nodes")
    expect(driver(bed, INFERENCE)["gpus"][3]["ecc"] == 1, "ECC is on")

    chapter("verify: nothing waits, no daemon has failed, every GPU answers and is well")
    verified = bed.playbook("verify")
    expect(verified.status == 0 and "Ready for jobs" in verified.text, "both nodes are ready for jobs")

    chapter("gpufleet status on the nodes says the same, without a controller")
    for status in bed.on_all("gpufleet status").values():
        print(indented(status))
    bed.on(INFERENCE, "journalctl --quiet --boot --identifier gpufleet --grep power_limit")
    show_gpus(bed)
    expect(all(persistent(gpu) for node in NODES for gpu in driver(bed, node)["gpus"]), "all GPUs keep their state")
    limits = {gpu["power_limit"] for gpu in driver(bed, TRAINING)["gpus"]}
    expect(limits == {600_000}, "the boot service gave the GPUs their power limit again")
    for node in NODES:
        expect_local(bed, node)
    expect(bed.on(INFERENCE, "systemctl is-active irqbalance").strip() == "active", "beside an irqbalance that runs")
    expect_instance(bed, "1g.10gb")


# --- batches ----------------------------------------------------------------------------------------------------------


def batches(bed: Bed) -> None:
    """A run in batches with a fault among them, and what a second one does."""
    chapter("site in two batches: the first fails, and the second is not begun")
    bed.on(TRAINING, f"mount --bind {RULES} {RULES} && mount -o remount,bind,ro {RULES}")
    before = bed.on(INFERENCE, READ_AHEAD)
    failed = bed.playbook("site", "-e", json.dumps(TWO_BATCHES))
    expect(failed.status != 0, "the run fails")
    expect(bed.on(INFERENCE, READ_AHEAD) == before, f"{INFERENCE} has what it had")

    chapter("site once more, when the cause is gone: it goes on")
    bed.on(TRAINING, f"umount {RULES}")
    resumed = bed.playbook("site", "-e", json.dumps(TWO_BATCHES))
    expect(resumed.status == 0, "converged")
    expect(set(bed.on_all(READ_AHEAD).values()) == {"2048\n"}, "both nodes have what is declared")
    expect(set(bed.on_all(STATE_IN_SLURM).values()) == {"idle\n"}, "and take jobs")


# --- remove -----------------------------------------------------------------------------------------------------------


def remove(bed: Bed) -> None:
    """The way back to what was found, by the records of before the first run."""
    chapter("remove, and the reboot that it takes: the nodes as they were found")
    # Without live restore, which was not there, it would end with its daemon's restart: a run refuses that.
    bed.on_all("docker rm --force job")
    removed = bed.playbook("remove", "-e", "remove_reboot=true")
    expect(removed.status == 0, "everything of ours is given back")
    # What the kernel was told at its boot is the same only after another one.
    bed.call("reboot", "--all")
    found = found_first()
    for node in NODES:
        left = recorded(bed, node)
        for line in sorted({*found[node]} ^ {*left}):
            print(f"   {'was' if line in found[node] else 'is'}: {line}")
        expect(left == found[node], f"{node}: {len(left)} files, units and settings are as before the first run")


class Chapter(NamedTuple):
    nodes: Tuple[str, ...]
    tell: Callable[[Bed], None]


CHAPTERS = {
    "containers": Chapter(NODES, containers),
    "mig": Chapter((TRAINING,), mig),
    "reboot": Chapter(NODES, reboot),
    "batches": Chapter(NODES, batches),
    "remove": Chapter(NODES, remove),
}
