# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The main job on a fleet of virtual machines with simulated GPUs: converge, look again, reboot, meddle, heal.

Boots the nodes of ``inventories/demo`` by ``tests/vm/bed.py`` and runs the playbooks by name, as an operator would.
Every chapter ends with a check of what the machines say, and the first one that does not hold ends the demonstration.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

from demo_tools import (
    BED,
    CACHE,
    INFERENCE,
    NAME,
    NODES,
    ROOT,
    TRAINING,
    bed,
    chapter,
    expect,
    indented,
    on,
    on_all,
    playbook,
)

GPUS = {TRAINING: "hgx-h100-80gb-8", INFERENCE: "hgx-a100-80gb-8"}
# As an image of last year left it: the daemon runs, and keeps nothing.
OLD_DROP_IN = """[Service]
ExecStart=
ExecStart=/usr/bin/nvidia-persistenced --user nvpd --no-persistence-mode
"""

# A line for each interrupt of the NICs and drives below the bridges of the NUMA nodes: its number, where it may go, the
# CPUs next to its device, and who handles it.
INTERRUPTS = """for device in /sys/bus/pci/devices/*; do
  case $(cat $device/class $device/numa_node | tr '\\n' ' ') in
    "0x0200"*" "[0-9]*|"0x010802 "[0-9]*) ;;
    *) continue ;;
  esac
  for entry in $device/msi_irqs/*; do
    irq=/proc/irq/${entry##*/}
    for handler in $irq/*/; do
      echo ${entry##*/} $(cat $irq/smp_affinity_list $device/local_cpulist) $(basename $handler)
    done
  done
done"""
# The queues of a drive are placed by the kernel.
KERNEL_PLACES = r"nvme\d+q[1-9]\d*"

CONTAINERS = "/opt/nvml_simulator/containers/install.sh"
RUN = "docker run --rm --network none"
LIST = "tiny list-gpus"
# Which process a container is that was there before us, and since when.
JOB = "docker inspect --format '{{.State.Pid}} {{.State.StartedAt}}' job"
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

SLURM = Path(__file__).with_name("slurm") / "install.sh"
TRAINING_GPUS = [{"match": {"index": 7}, "layout": "all-1g"}, {"mig": "disabled"}]
MIXED = {"mig_layout_gpus": [{"match": {"index": 6}, "layout": "balanced"}, *TRAINING_GPUS]}
WHOLE = {"mig_layout_gpus": [{"match": {"index": 6}, "layout": "whole"}, *TRAINING_GPUS]}

# What an operator would compare before and after us: files, units, the kernel, the driver and the daemon.
RECORD = """find /etc /boot/grub/grub.cfg /usr/local /usr/lib/systemd /usr/lib/udev /var/lib/gpufleet /run/gpufleet \\
  ! -type d -printf '%p %y %m %u:%g %l\\n' 2>/dev/null | sort
find /etc /boot/grub/grub.cfg /usr/local /usr/lib/systemd /usr/lib/udev -type f -exec sha256sum {} + | sort -k2
systemctl list-unit-files --no-legend | awk '$2 != "transient" {print $1, $2}'
cat /proc/cmdline
grep . /sys/devices/system/node/node*/hugepages/*/nr_hugepages /sys/block/nvme*/queue/scheduler \\
  /sys/block/nvme*/queue/read_ahead_kb /sys/block/nvme*/queue/nr_requests /sys/kernel/mm/transparent_hugepage/enabled \\
  /sys/kernel/mm/transparent_hugepage/defrag /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs
docker info --format 'runtimes {{range $name, $_ := .Runtimes}}{{$name}} {{end}}'
docker info --format 'default runtime {{.DefaultRuntime}}, live restore {{.LiveRestoreEnabled}}, CDI {{.CDISpecDirs}}'
"""
# What the driver has, without what only time changes.
OF_A_GPU = ("persistence", "power_limit", "compute_mode", "ecc", "ecc_pending", "mig", "mig_pending", "instances")

BOOTS = "journalctl --list-boots --no-pager | wc -l"
STATE_IN_SLURM = "sinfo --noheader --format=%T"
# No canary, so that the two nodes are converged side by side.
AT_ONCE = ("-e", '{"gpufleet_batches": ["100%"]}')
QUEUES = [{"scheduler": "none", "read_ahead_kb": 2048}]
TWO_BATCHES = {"gpufleet_batches": [1, 1], "nvme_scheduler_queues": QUEUES}
READ_AHEAD = "cat /sys/block/nvme0n1/queue/read_ahead_kb"
RULES = "/etc/udev/rules.d"
REPORT = CACHE / "vm" / "report"
STEPS = """echo begun > /root/steps; sleep 45; echo done >> /root/steps"""


class Interrupt(NamedTuple):
    """CPUs in the kernel's list format."""

    number: str
    cpus: str
    local: str
    handler: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="leave the nodes running at the end")
    arguments = parser.parse_args()
    started = time.monotonic()
    try:
        story(keep=arguments.keep)
    finally:
        if not arguments.keep:
            bed("down", "--name", NAME)
    print(f"\nAll of it held, in {(time.monotonic() - started) / 60:.1f} minutes.")
    if arguments.keep:
        print(f"The nodes are still up. Log in: {' '.join(BED)} ssh --name {NAME} {TRAINING}")
    return 0


def story(*, keep: bool) -> None:
    found = boot(() if keep else ("--owner-pid", str(os.getpid())))
    converge()
    restart()
    meddle()
    divide()
    operate(found)


def boot(lifetime: Sequence[str]) -> Dict[str, List[str]]:
    """Nodes as somebody set them up who did not think of us. Returns what was found, by node."""
    chapter("Two bare nodes with two NUMA nodes and eight simulated GPUs each boot their own kernel")
    plugged = [word for node, machine in GPUS.items() for word in ("--gpus", f"{node}={machine}")]
    names = ("--name", NAME, "--nodes", ",".join(NODES))
    bed("up", "--worker", *names, *plugged, "--replace", *lifetime)
    on(INFERENCE, "mkdir /etc/systemd/system/nvidia-persistenced.service.d")
    on(INFERENCE, "cat > /etc/systemd/system/nvidia-persistenced.service.d/fleet.conf", text=OLD_DROP_IN)
    on(INFERENCE, "systemctl daemon-reload && systemctl enable --quiet --now nvidia-persistenced")
    on(INFERENCE, "nvml-sim set 3 ecc=0 ecc_pending=0")
    on(INFERENCE, "systemctl enable --quiet --now irqbalance")
    for node in NODES:
        held = [persistent(gpu) for gpu in driver(node)["gpus"]]
        expect(held == [False] * 8, f"{node}: the driver has eight GPUs, persistence mode off on all")
    on_all(f"sh {CONTAINERS}")
    on_all("docker run --detach --network none --name job tiny")
    for node in NODES:
        on(node, "sh -s", text=SLURM.read_text())
    found = {node: recorded(node) for node in NODES}
    said = on(TRAINING, f"{RUN} {LIST} 2>&1 || true")
    expect("cannot open shared object file" in said, f"containers run, and see no GPU: {said.strip()}")
    return found


def converge() -> None:
    """Once to change, and once more to change nothing."""
    jobs = on_all(JOB)
    chapter("site --check: what would change, nothing does")
    predicted = playbook("site", "--check", *AT_ONCE)
    expect(predicted.status == 0, "the check ends well on bare nodes")
    expect(files_of_ours(TRAINING) == "", "no file of ours is on the node")

    chapter("site: the first run")
    first = playbook("site", *AT_ONCE)
    expect(first.status == 0 and first.total("changed") > 0, f"converged, with {first.total('changed')} changed tasks")
    show_gpus()
    for node in NODES:
        expect_local(node)

    chapter("Containers see the GPUs: by the runtime, as the default one, by CDI, and in pods of containerd")
    print(indented(on(TRAINING, "cat /etc/docker/daemon.json")))
    expect(on_all(JOB) == jobs, "both containers of before run on")
    expect_containers()

    chapter("site again: nothing to do")
    second = playbook("site")
    expect(second.status == 0 and second.total("changed") == 0, "nothing changed")
    for node in NODES:
        # Each node is a cluster of its own. Elsewhere the question is one for all nodes of a cluster.
        expect(
            second.executions[node] == 2, f"two remote executions on {node}: the look, and the question to its Slurm"
        )

    chapter("audit: nothing differs, and the 1 GiB pages wait for the reboot that only an operator orders")
    audit = playbook("audit", "-e", "audit_fail_on_drift=true")
    expect(audit.status == 0, "no drift")
    expect("needs a reboot" in audit.text, "the audit names what waits for the reboot")
    expect("gpu3" in audit.text and "pending" in audit.text, "and the GPU whose ECC comes on with its next reset")


def restart() -> None:
    """What the next boot brings, and what it brings back."""
    chapter("reboot: the node that needs one gets it, once, after Slurm has let its job end")
    boots = counted_boots()
    on(TRAINING, f"sbatch --output=/dev/null --wrap='{STEPS}'")
    reboot = playbook("reboot")
    expect(reboot.status == 0, "drained, rebooted, seen to be right, and resumed")
    expect(on(TRAINING, "cat /root/steps").split() == ["begun", "done"], "the job came to its own end before")
    boots[TRAINING] += 1
    expect(counted_boots() == boots, f"{TRAINING} booted exactly once, {INFERENCE} not at all")
    expect(set(on_all(STATE_IN_SLURM).values()) == {"idle\n"}, "Slurm gives both nodes jobs")
    expect(playbook("reboot").status == 0 and counted_boots() == boots, "nobody needs a second one")

    chapter("The other node boots, too: with its boot the ECC of its GPU comes on")
    bed("reboot", "--name", NAME, INFERENCE)

    chapter("audit: still right, from the boot loader's command line, tmpfiles.d and udev")
    audit = playbook("audit", "-e", "audit_fail_on_drift=true")
    expect(audit.status == 0 and "2 of 2 nodes are right" in audit.text, "both nodes are right")
    pages = on(TRAINING, "cat /sys/devices/system/node/node*/hugepages/hugepages-1048576kB/nr_hugepages").split()
    expect(pages == ["1", "1"], "the kernel has one 1 GiB page on each NUMA node")

    chapter("verify: nothing waits, no daemon has failed, every GPU answers and is well")
    verified = playbook("verify")
    expect(verified.status == 0 and "is ready for jobs" in verified.text, "both nodes are ready for jobs")

    chapter("gpufleet status on the nodes says the same, without a controller")
    for node in NODES:
        print(indented(on(node, "gpufleet status")))
    on(INFERENCE, "journalctl --quiet --boot --identifier gpufleet --grep power_limit")
    show_gpus()
    expect(all(persistent(gpu) for node in NODES for gpu in driver(node)["gpus"]), "all GPUs keep their state")
    limits = {gpu["power_limit"] for gpu in driver(TRAINING)["gpus"]}
    expect(limits == {600_000}, "the boot service gave the GPUs their power limit again")
    for node in NODES:
        expect_local(node)
    expect(on(INFERENCE, "systemctl is-active irqbalance").strip() == "active", "beside an irqbalance that runs")
    expect_instance("1g.10gb")


def meddle() -> None:
    """What others change is named, and put back."""
    chapter("Somebody changes three values by hand, and the file of a daemon that runs on")
    on(INFERENCE, "echo 128 > /sys/block/nvme0n1/queue/read_ahead_kb")
    on(INFERENCE, "nvml-sim set 2 power_limit=400000")
    moved = placed(INFERENCE)[0]
    on(INFERENCE, f"echo 0 > /proc/irq/{moved.number}/smp_affinity_list")
    on(INFERENCE, """sed -i 's/"default-runtime": "nvidia"/"default-runtime": "runc"/' /etc/docker/daemon.json""")
    audit = playbook("audit", "-e", "audit_fail_on_drift=true", "-e", f"gpufleet_report_dest={REPORT}")
    expect(audit.status != 0, "the audit fails")
    report = json.loads((REPORT / "gpufleet-report.json").read_text())
    expect(INFERENCE in json.dumps(report["findings"]), f"and the report is in {REPORT.relative_to(ROOT)}")
    row = next((line for line in audit.text.splitlines() if "read_ahead_kb" in line), "")
    expect(all(word in row for word in (INFERENCE, "nvme0n1", "128", "differs")), f"it says: {row.strip()}")
    row = next((line for line in audit.text.splitlines() if "power_limit" in line), "")
    expect(all(word in row for word in (INFERENCE, "gpu2", "400", "differs")), f"and: {row.strip()}")
    row = next((line for line in audit.text.splitlines() if f"interrupt {moved.handler}" in line), "")
    words = (INFERENCE, moved.handler, moved.cpus, "0", "differs")
    expect(set(words) <= set(row.split()), f"and: {row.strip()}")
    row = next((line for line in audit.text.splitlines() if "default_runtime" in line), "")
    expect(row.split()[1:] == ["docker", "default_runtime", "nvidia", "nvidia", "-", "differs"], f"and: {row.strip()}")

    chapter("site heals it, and touches nothing else")
    healed = playbook("site")
    expect(healed.status == 0, "converged")
    expect(healed.recap[TRAINING]["changed"] == 0, f"{TRAINING} was left alone")
    expect(
        on(INFERENCE, "cat /sys/block/nvme0n1/queue/read_ahead_kb").strip() != "128",
        "the kernel says the declared value",
    )
    limits = {gpu["power_limit"] for gpu in driver(INFERENCE)["gpus"]}
    expect(limits == {350_000}, "and so does the driver")
    expect_local(INFERENCE)
    expect('"default-runtime": "nvidia"' in on(INFERENCE, "cat /etc/docker/daemon.json"), "and so does the file")


def divide() -> None:
    """The GPUs of a node get other instances, around a job."""
    chapter("GPU 6 is divided anew while a job runs on one of its instances")
    expect(devices(6) == ["1g.10gb"] * 7, "it has seven small instances")
    instance = next(one["id"] for one in driver(TRAINING)["gpus"][6]["instances"] if one["placement"]["start"] == 2)
    on(TRAINING, f"systemd-run --quiet --unit=job nvml-sim hold 6 --gi {instance} --ci 0")
    relayout = playbook("mig_relayout", "--limit", TRAINING, "-e", json.dumps(MIXED))
    expect(relayout.status == 0, "drained, divided, seen to be right, and resumed")
    expect(devices(6) == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"], "the driver lists the new instances")
    expect(devices(7) == ["1g.10gb"] * 7, "its neighbour has those of before")
    expect(job_runs(), "the job never noticed")
    expect_instance("3g.40gb")

    chapter("site brings the layout of the inventory back, around the job again")
    back = playbook("site")
    expect(back.status == 0 and devices(6) == ["1g.10gb"] * 7, "seven small instances again")
    expect(job_runs(), "the job still runs")

    chapter("A layout that would take the instance of the job away is refused, and says whose it is")
    refused = playbook("mig_relayout", "--limit", TRAINING, "-e", json.dumps(WHOLE))
    expect(refused.status != 0 and "job.service" in refused.text, "it names the job's unit")
    expect(devices(6) == ["1g.10gb"] * 7 and job_runs(), "nothing changed")
    on(TRAINING, "systemctl stop job")


def operate(found: Dict[str, List[str]]) -> None:
    """Batches with a fault among them, and the way back to what was ``found``, the records of before the first run."""
    chapter("site in two batches: the first fails, and the second is not begun")
    on(TRAINING, f"mount --bind {RULES} {RULES} && mount -o remount,bind,ro {RULES}")
    before = on(INFERENCE, READ_AHEAD)
    failed = playbook("site", "-e", json.dumps(TWO_BATCHES))
    expect(failed.status != 0, "the run fails")
    expect(on(INFERENCE, READ_AHEAD) == before, f"{INFERENCE} has what it had")

    chapter("site once more, when the cause is gone: it goes on")
    on(TRAINING, f"umount {RULES}")
    resumed = playbook("site", "-e", json.dumps(TWO_BATCHES))
    expect(resumed.status == 0, "converged")
    expect(set(on_all(READ_AHEAD).values()) == {"2048\n"}, "both nodes have what is declared")
    expect(set(on_all(STATE_IN_SLURM).values()) == {"idle\n"}, "and take jobs")

    chapter("remove, and the reboot that it takes: the nodes as they were found")
    # Without live restore, which was not there, it would end with its daemon's restart: a run refuses that.
    on_all("docker rm --force job")
    removed = playbook("remove", "-e", "remove_reboot=true")
    expect(removed.status == 0, "everything of ours is given back")
    # What the kernel was told at its boot is the same only after another one.
    bed("reboot", "--name", NAME, "--all")
    for node in NODES:
        left = recorded(node)
        for line in sorted({*found[node]} ^ {*left}):
            print(f"   {'was' if line in found[node] else 'is'}: {line}")
        expect(left == found[node], f"{node}: {len(left)} files, units and settings are as before the first run")


def files_of_ours(node: str) -> str:
    return on(node, "find /etc /var/lib /usr/local -name '*gpufleet*'")


def driver(node: str) -> Dict[str, Any]:
    """What the driver of a node has, as the simulator itself says it: no code of ours is asked."""
    described: Dict[str, Any] = json.loads(on(node, "nvml-sim describe --json"))
    return described


def counted_boots() -> Dict[str, int]:
    return {node: int(said) for node, said in on_all(BOOTS).items()}


def recorded(node: str) -> List[str]:
    """A line for everything that must be the same once we are gone."""
    gpus = [f"GPU {rank} {key} {gpu.get(key)}" for rank, gpu in enumerate(driver(node)["gpus"]) for key in OF_A_GPU]
    return [*on(node, RECORD).splitlines(), *gpus]


def persistent(gpu: Dict[str, Any]) -> bool:
    """By the daemon, or by the driver's own flag."""
    return bool(gpu["daemon_pid"] or gpu["persistence"])


def devices(index: int) -> Sequence[str]:
    """The profiles of the MIG devices of a GPU of the training node, sorted, as any client of NVML lists them."""
    listed = on(TRAINING, "nvidia-smi -L")
    of_gpu = re.split(r"^GPU \d+:", listed, flags=re.MULTILINE)[index + 1]
    return sorted(re.findall(r"^\s+MIG (\S+)", of_gpu, flags=re.MULTILINE))


def job_runs() -> bool:
    return on(TRAINING, "systemctl is-active job || true").strip() == "active"


def placed(node: str) -> List[Interrupt]:
    """The interrupts of the NICs and drives of both NUMA nodes that are ours to place, as the kernel has them."""
    found = [Interrupt(*line.split()) for line in on(node, INTERRUPTS).splitlines()]
    return [one for one in found if not re.fullmatch(KERNEL_PLACES, one.handler)]


def expect_local(node: str) -> None:
    """One CPU each, next to the device, and not the first one, which is reserved."""
    found = placed(node)
    astray = [one for one in found if one.cpus not in cpus_in(one.local) or one.cpus == "0"]
    expect(bool(found) and not astray, f"{node}: {len(found)} interrupts of NICs and drives are next to their devices")


def expect_containers() -> None:
    """Each way to ask for GPUs gives those that were asked for, and no other."""
    with ThreadPoolExecutor(len(NODES)) as pool:
        said = pool.map(lambda node: [on(node, command) for command in ASKED[node]], NODES)
        for node, texts in zip(NODES, said):
            for (command, wanted), text in zip(ASKED[node].items(), texts):
                found = [int(index) for index in re.findall(r"^GPU (\d+):", text, flags=re.MULTILINE)]
                expect(found == wanted, f"{node}: {command}\n       lists GPU {', '.join(map(str, found))}")


def expect_instance(profile: str) -> None:
    """A container that names an instance of GPU 6 of the training node by CDI has this one, and no other."""
    instances = driver(TRAINING)["gpus"][6]["instances"]
    parts = [part for instance in instances for part in instance["compute_instances"]]
    wanted = next(part for part in parts if part["profile"] == profile)
    text = on(TRAINING, f"{RUN} --device nvidia.com/gpu=6:{wanted['mig_index']} {LIST}")
    print(indented(text))
    found = re.findall(r"MIG-[0-9a-f-]+", text)
    expect(found == [wanted["uuid"]], f"a container has nvidia.com/gpu=6:{wanted['mig_index']}, the one of {profile}")


def cpus_in(text: str) -> List[str]:
    parts = [part.partition("-") for part in text.split(",")]
    return [str(cpu) for first, _dash, last in parts for cpu in range(int(first), int(last or first) + 1)]


def show_gpus() -> None:
    """The GPUs of the fleet in a table, as their nodes tell them."""
    columns = "   {:<9} {:>3}  {:<21} {:<12} {:>4}  {:<11} {:>7}  {}"
    print(columns.format("NODE", "GPU", "MODEL", "PCI", "NUMA", "PERSISTENCE", "POWER", "COMPUTE MODE"))
    for node in NODES:
        facts = json.loads(on(node, "gpufleet facts gpus topology"))
        places = {device["pci_address"]: device["numa_node"] for device in facts["topology"]["devices"]}
        for gpu in facts["gpus"]:
            where = (gpu["index"], gpu["model"], gpu["pci_address"], places.get(gpu["pci_address"], "-"))
            state = ("on" if gpu["persistence"] else "off", f"{gpu['power']['limit_watts']:.0f} W", gpu["compute_mode"])
            print(columns.format(node, *where, *state), flush=True)


if __name__ == "__main__":
    sys.exit(main())
