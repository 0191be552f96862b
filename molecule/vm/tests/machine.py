# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node of the scenarios says about itself, read without anything of the collection, and what it should say."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List

EXCLUSIVE_PROCESS = 3
SHORT = 1
BALANCED = ["1g.10gb@2", "1g.10gb@3", "2g.20gb@0", "3g.40gb@4"]
MIG_DEVICES = {"2": BALANCED, "3": BALANCED, "4": ["1g.10gb@4", "1g.10gb@5", "3g.40gb@0"]}
# ``other_layout`` of inventory/fleet.yml.
OTHER_MIG_DEVICES = {**MIG_DEVICES, "2": ["1g.10gb@0", "1g.10gb@1", "1g.10gb@2", "1g.10gb@3", "3g.40gb@4"]}

VENDOR = ("sysctl.d", "sysctl", "vm.swappiness", "30", "us")
# Who else sets by node what ``inventory/fleet.yml`` declares, what and to which value, and who wins.
OTHERS = {
    "bookworm": {
        VENDOR,
        ("tuned", "sysctl", "vm.swappiness", "10", "us"),
        ("tuned", "sysctl", "vm.dirty_background_ratio", "3", "us"),
        ("cloud-init", "node", "swap", "64M", "us"),
    },
    "trixie": {VENDOR},
}

# The lowest, the highest and the current one of every CPU by node, in kHz: this governor takes the highest.
FREQUENCIES = {"trixie": ["1200000", "1800000", "1800000"], "bookworm": ["800000", "2400000", "2400000"]}

# The driver of what the bed has to lend.
BEFORE_VFIO = "pvpanic-pci"

FAR = "/dev/disk/by-id/nvme-uuid.6f1d2c3b-4a59-4687-b2c1-d0e9f8a7b6c5"

Said = Dict[str, Any]


def ask(host: Any) -> Said:
    """All at once, see ``files/said.py``: on an emulated node it is processes that cost."""
    said: Said = json.loads(host.check_output("python3 /root/said.py"))
    return said


def assert_as_declared(said: Said) -> None:
    """Everything of the kernel that ``inventory/fleet.yml`` declares and that needs no boot."""
    assert said["pages"]["2048"] == {"0": 48, "1": 16}
    assert said["transparent_hugepages"] == {
        "enabled": "madvise",
        "defrag": "defer+madvise",
        "shmem_enabled": "advise",
        "pages_to_scan": "2048",
    }
    assert said["sysctl"] == {
        "vm/swappiness": "5",
        "vm/dirty_background_bytes": "268435456",
        "vm/dirty_background_ratio": "0",
        "net/ipv4/tcp_rmem": "4096 87380 268435456",
    }
    assert said["swap"] == {}
    assert said["cpus"] == {f"cpu{number}": ["performance", *FREQUENCIES[said["node"]]] for number in range(4)}
    # The node is reached over a card on another bus.
    assert {mtu for address, mtu in said["mtu"].items() if address[:6] in ("0000:4", "0000:8")} == {"9000"}
    assert_has(
        said["queues"]["0"], scheduler="none", read_ahead_kb="4096", rq_affinity="2", nomerges="1", max_sectors_kb="128"
    )
    assert_has(said["queues"]["1"], scheduler="mq-deadline", read_ahead_kb="256", nr_requests="48")


def assert_has_scratch(host: Any) -> None:
    """An array over both drives, with XFS of its geometry, as the kernel has it."""
    mount = next(line for line in host.check_output("cat /proc/self/mountinfo").splitlines() if " /scratch " in line)
    assert " rw,noatime " in mount
    # In sectors of 512 bytes.
    assert "sunit=1024,swidth=2048" in mount
    name = host.check_output("basename $(readlink -f /dev/md/scratch)")
    assert f" - xfs /dev/{name} " in mount
    shown = host.check_output(f"cd /sys/block/{name}/md && cat level raid_disks chunk_size")
    assert shown.split() == ["raid0", "2", "524288"]


def assert_is_connected(host: Any) -> None:
    """A disk of another machine, over both paths, as the kernel has it; it is the file that the target has there."""
    values = "echo $(cat state address queue_count reconnect_delay ctrl_loss_tmo)"
    connections = "$(grep -lx nqn.2024-01.com.example:data /sys/class/nvme/*/subsysnqn)"
    said = host.check_output(f"for one in {connections}; do cd ${{one%/*}} && {values}; done")
    found = sorted(line.split() for line in said.splitlines())
    # A queue more than is declared is for administration.
    assert [(words[0], *words[2:]) for words in found] == [("live", "3", "7", "602")] * 2
    assert [words[1].split(",")[0] for words in found] == ["traddr=127.0.0.1", "traddr=127.0.0.2"]
    assert host.check_output("cat /sys/class/nvme-subsystem/*/iopolicy | sort -u | grep round") == "round-robin"
    host.run_expect([0], f"cmp {FAR} /var/lib/nvme-target.img")


def assert_is_told(host: Any) -> None:
    """A disk of another machine of which a discovery controller tells, which stays connected."""
    values = "echo $(cat state cntrltype address queue_count subsysnqn)"
    told = "$(grep -lE ':told$|[.]discovery$' /sys/class/nvme/*/subsysnqn)"
    found = sorted(host.check_output(f"for one in {told}; do cd ${{one%/*}} && {values}; done").splitlines())
    assert [(words[:2], words[2].split(",")[0], *words[3:]) for words in map(str.split, found)] == [
        (["live", "discovery"], "traddr=127.0.0.2", "1", "nqn.2014-08.org.nvmexpress.discovery"),
        (["live", "io"], "traddr=127.0.0.2", "2", "nqn.2024-01.com.example:told"),
    ]


def assert_has(queue: Dict[str, str], **wanted: str) -> None:
    assert {name: queue[name] for name in wanted} == wanted


def assert_gpus_as_declared(said: Said, *, ecc: bool) -> None:
    """``ecc``: whether the GPU that shall have none was reset since it was told so."""
    found = said["gpus"]
    assert all(gpu["daemon_pid"] for gpu in found)
    assert [gpu["power_limit"] for gpu in found] == [300_000, *[350_000] * 7]
    assert [gpu["compute_mode"] for gpu in found] == [EXCLUSIVE_PROCESS, *[0] * 7]
    assert [gpu["time_slice"] for gpu in found] == [SHORT, *[0] * 7]
    assert [(gpu["locked_graphics_min"], gpu["locked_graphics_max"]) for gpu in found] == [
        (900, 1200),
        *[(None, None)] * 7,
    ]
    assert [gpu["ecc_pending"] for gpu in found] == [1, 1, 1, 1, 1, 0, 1, 1]
    assert found[5]["ecc"] == int(not ecc)


def assert_divided(said: Said, wanted: Dict[str, Any]) -> None:
    """What two clients of the driver that know nothing of the collection list."""
    assert said["pynvml"] == wanted
    profiles = {index: sorted(device.partition("@")[0] for device in devices) for index, devices in wanted.items()}
    assert said["nvidia_smi"] == profiles
    enabled = [f"{mode}, {mode}" for mode in ("Disabled", "Enabled")]
    assert said["modes"] == [enabled[str(index) in wanted] for index in range(8)]


def assert_interrupts_as_declared(host: Any) -> None:
    """On CPUs next to their devices, also of those that came a moment ago."""
    looked = host.run("python3 /root/interrupts.py settled 4")
    assert looked.rc == 0, looked.stdout + looked.stderr


MEMLOCK = str(64 * 1024**2)


def assert_quiet(host: Any) -> None:
    """The timer that fleet.yml declares is off, and cannot be started."""
    state = host.run("systemctl is-enabled demo-index.timer; systemctl is-active demo-index.timer")
    assert state.stdout.split() == ["masked", "inactive"]


def cpus_of(host: Any, unit: str) -> List[str]:
    """The control group of a running service, and the CPUs that its process may use."""
    pid = f"$(systemctl show -P MainPID {unit})"
    said = host.check_output(f"cd /proc/{pid} && cat cgroup && grep Cpus_allowed_list: status")
    return [line.split(":")[-1].strip() for line in said.splitlines()]


def memlock_of_sshd(host: Any) -> str:
    """The soft limit of the process that listens."""
    command = "grep 'Max locked memory' /proc/$(systemctl show -P MainPID ssh.service)/limits"
    return str(host.check_output(command).split()[3])


def assert_runs_next_to_its_gpu(host: Any) -> None:
    """A command of ``gpufleet run``, with a child, on the last GPU of ``inventory/fleet.yml``, which is on node 1."""
    looked = json.loads(host.check_output("gpufleet run --quiet --gpu 7 -- python3 /root/local.py"))
    node = host.check_output("cat /sys/devices/system/node/node1/cpulist")
    first, _dash, last = node.partition("-")
    assert looked["cpus"] == list(range(int(first), int(last or first) + 1))
    assert looked["pages"] == [1]
    assert "/gpu.slice/gpu-7.slice/gpufleet-run-" in looked["cgroup"]
    assert looked["visible"] == host.check_output("nvidia-smi --query-gpu=uuid --format=csv,noheader -i 7")
    # It is loaded now, and empty: this is what the kernel has of it.
    slices = "/sys/fs/cgroup/gpu.slice/gpu-7.slice"
    files = ("cpuset.cpus.effective", "cpuset.mems.effective", "memory.swap.max", "io.weight")
    found = host.check_output("; ".join(f"cat {slices}/{name}" for name in files)).splitlines()
    assert found == [node, "1", "0", "default 200"]
    process = host.check_output("systemctl show -P MainPID nvidia-persistenced.service")
    assert host.check_output(f"cat /proc/{process}/oom_score_adj") == "-900"


def assert_the_group_may_launch_and_nobody_else(host: Any) -> None:
    """Through pkexec and polkit, as users who are not root."""
    member, stranger = (f"runuser -u {name} -- " for name in ("member", "stranger"))
    launch = "gpufleet run --quiet --gpu 7 -- cat /proc/self/cgroup"
    group = host.check_output(member + launch)
    assert re.fullmatch(r"0::/gpu\.slice/gpu-7\.slice/gpufleet-run-[0-9]+\.scope", group)
    refused = host.run(stranger + launch)
    assert (refused.rc, refused.stdout) == (64, "")
    assert "only root and the group gpu-users may, and this is stranger" in refused.stderr
    # Nor by pkexec itself, and no member anything but this.
    pkexec = "pkexec --disable-internal-agent"
    for command in (
        f"{stranger}{pkexec} /usr/local/sbin/gpufleet place gpu-7.slice",
        f"{member}{pkexec} /usr/local/sbin/gpufleet status",
        f"{member}{pkexec} /usr/bin/id",
    ):
        assert host.run(command).rc == 127


def driver_of_lent(host: Any) -> str:
    """The driver of what the bed has to lend, empty for none."""
    return str(host.run("basename $(readlink /sys/bus/pci/devices/$(sh /root/lent.sh where)/driver)").stdout.strip())


def assert_is_lent(host: Any) -> None:
    """A virtual machine can have it: its group has a file, which only this device is behind."""
    assert driver_of_lent(host) == "vfio-pci"
    group = host.check_output("readlink -f /sys/bus/pci/devices/$(sh /root/lent.sh where)/iommu_group")
    assert host.file(f"/dev/vfio/{group.rpartition('/')[2]}").exists
    assert len(host.check_output(f"ls {group}/devices").split()) == 1
