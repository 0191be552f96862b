# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One node as a machine: its hardware, its disk before the first boot, its process, and the way into it by SSH."""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple, Union

import bed_acpi
import bed_gpus
import bed_monitor
import bed_qemu
from bed_host import BedError, processes, say, tail, tool
from bed_image import Image

NUMA_NODES = 2
BUS_NUMBERS = (0x40, 0x80)
# The root ports of each NUMA node: one for what it has of each kind, and an empty one for what is plugged in later.
NVME, NIC, LENT = "nvme", "nic", "lent"
PORTS = (f"{NVME}-port", f"{NIC}-port", f"{NVME}-spare", f"{NIC}-spare", f"{LENT}-port")
DATA_DISK_BYTES = 1 << 30
MANAGEMENT_MAC = "52:54:00:6d:67:01"
# QEMU's NVMe controller has room for 20 characters.
SERIAL_LENGTH = 20

# The console says so when a boot can no longer succeed; waiting for the deadline would only hide it.
DEAD_ENDS = ("You are in emergency mode", "(initramfs) ", "grub rescue>", "\ngrub>")
# The boot loader says so. A node that goes down answers until then, and each login takes an emulated CPU a second.
LOADS = "Loading initial ramdisk"
# The node resets itself after a panic, because emulation causes one now and then. More in a row have another cause.
PANIC = "Kernel panic - not syncing"
PANICS_IN_A_ROW = 3
# It does not when the emulated CPU lost a timer interrupt before there is a user space. Then a reset from here helps.
STUCK = "INFO: task swapper/0:1 blocked for more than"

# One thread for all CPUs of a node. With one for each, QEMU 7.2 crashed where a CPU accessed a register of a device and
# another CPU mapped one meanwhile, as in a boot or a rescan of PCI: the list that tells what is mapped where was
# replaced under the first. 1,400 changes of a mapping were enough. Nodes side by side boot no slower.
# A cache of translated code that is larger than a boot needs slows the next boot in the same QEMU down.
EMULATION = "tcg,thread=single,tb-size=256"
# The nice value of its session among the others.
AHEAD = "-8"
# Everything QEMU can emulate (1 GiB pages above all), except: cx16, because QEMU 7.2 now and then lost the flags of
# cmpxchg16b, which panicked the kernel in kmalloc; a fifth level of page tables, which costs time at every TLB miss;
# and what only makes the kernel load drivers (kvm_amd, accelerated ciphers) that nothing here uses. acpi-cpufreq
# refuses family 15, which is what it would be; 17 has as few flaws that cost the kernel time.
EMULATED_CPU = "max,family=17,cx16=off,la57=off,svm=off,aes=off,pclmulqdq=off,sha-ni=off"

Properties = Mapping[str, Union[str, int, bool]]

KEY = "id_ed25519"
HOST_KEY = "ssh_host_ed25519_key"
KNOWN_HOSTS = "known_hosts"


@dataclass(frozen=True)
class Hardware:
    """What every node of a bed is made of.

    cpus: per node, spread evenly over the NUMA nodes.
    memory_mib: per NUMA node. Of the whole GiB in each, firmware and kernel take parts: the first one of node 0 (below
        the PCI hole), the last one of each node, and any one more, where the kernel puts itself at random.
    queues: queues per data NIC; 1 where the host lets us create no taps.
    accel: `kvm` or `tcg`.
    """

    accel: str
    cpus: int
    memory_mib: int
    queues: int

    @property
    def cpu_lists(self) -> List[str]:
        """The CPUs of each NUMA node, in the kernel's list format."""
        share = self.cpus // NUMA_NODES
        return [f"{node * share}-{(node + 1) * share - 1}" for node in range(NUMA_NODES)]


@dataclass(frozen=True)
class Machine:
    """A node of a bed: name, the port of its SSH on 127.0.0.1, and where its files are.

    gpus: the machine of the NVML simulator whose GPUs it has; empty for none.
    """

    name: str
    port: int
    index: int
    bed_folder: Path
    hardware: Hardware
    gpus: str = ""

    @property
    def folder(self) -> Path:
        return self.bed_folder / self.name

    @property
    def disk(self) -> Path:
        return self.folder / "root.raw"

    @property
    def loader(self) -> Path:
        return self.folder / "loader.img"

    @property
    def frequencies(self) -> Path:
        return self.folder / "cpufreq.aml"

    @property
    def console(self) -> Path:
        return self.folder / "console.log"

    @property
    def monitor_log(self) -> Path:
        return self.folder / "qemu.log"

    @property
    def pid_file(self) -> Path:
        return self.folder / "qemu.pid"

    @property
    def serials(self) -> List[str]:
        """Serial numbers of the NVMe drives: by NUMA node, then of those that may be plugged in, by NUMA node."""
        return [f"GPUFLEET-{self.name}-{number}" for number in range(2 * NUMA_NODES)]

    @property
    def data_macs(self) -> List[str]:
        """Hardware addresses of the data NICs, in the order of ``serials``."""
        return [f"52:54:00:6d:{self.index + 1:02x}:{0xD0 + number:02x}" for number in range(2 * NUMA_NODES)]

    @property
    def pid(self) -> Optional[int]:
        """PID of the running QEMU, from the process table; None when the node is off."""
        pids = processes(str(self.pid_file))
        return pids[0] if pids else None


def create_disks(machine: Machine, *, image: Image, bed: str) -> None:
    """Write the node's disks: a copy of the image that knows the node's name and keys, and empty NVMe drives.

    Takes the key pair of the bed from the bed's folder and adds the node's host key to its known_hosts.
    """
    copy_disks(machine, source=image.folder)
    seed = machine.folder / "seed"
    seed.mkdir(mode=0o700)
    make_key(seed / HOST_KEY, comment=machine.name)
    public = (seed / f"{HOST_KEY}.pub").read_text()
    with (machine.bed_folder / KNOWN_HOSTS).open("a") as known_hosts:
        known_hosts.write(f"[127.0.0.1]:{machine.port} {' '.join(public.split()[:2])}\n")

    authorized = (machine.bed_folder / f"{KEY}.pub").read_text()
    machine_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"{machine.name}.{bed}.{public}").hex
    files: List[Tuple[str, int, str]] = [
        ("/etc/hostname", 0o644, f"{machine.name}\n"),
        ("/etc/hosts", 0o644, f"127.0.0.1 localhost\n127.0.1.1 {machine.name}\n::1 localhost ip6-localhost\n"),
        ("/etc/resolv.conf", 0o644, "nameserver 10.0.2.3\n"),
        ("/etc/machine-id", 0o444, f"{machine_id}\n"),
        ("/root/.ssh/authorized_keys", 0o600, authorized),
        (f"/etc/ssh/{HOST_KEY}", 0o600, (seed / HOST_KEY).read_text()),
        (f"/etc/ssh/{HOST_KEY}.pub", 0o644, public),
    ]
    script = ["mkdir /root/.ssh", "sif /root/.ssh mode 040700"]
    if machine.gpus:
        (seed / "gpus").write_bytes(bed_gpus.pack(machine.gpus, node=machine.name, cpus=machine.hardware.cpu_lists))
        script.append(f"write gpus {bed_gpus.ARCHIVE}")
    for number, (path, mode, text) in enumerate(files):
        source = f"file{number}"
        (seed / source).write_text(text)
        script += [f"rm {path}", f"write {source} {path}", f"sif {path} mode 0{0o100000 | mode:o}"]
    # Written into the file system from outside: no mount, hence no root, and the image itself never holds a key.
    (seed / "script").write_text("\n".join(script) + "\n")
    subprocess.run(
        [tool("debugfs"), "-w", "-f", "script", machine.disk], cwd=seed, capture_output=True, check=True, text=True
    )
    for path, _mode, text in files:
        done = subprocess.run([tool("debugfs"), "-R", f"cat {path}", machine.disk], capture_output=True, check=True)
        if done.stdout.decode() != text:
            raise BedError(f"Cannot write {path} into {machine.disk}: {done.stderr.decode().strip()}")
    subprocess.run(["rm", "-r", seed], check=True)


def copy_disks(machine: Machine, *, source: Path) -> None:
    """Give a node copies of the root disk and the loader in a folder, and empty NVMe drives."""
    machine.folder.mkdir(parents=True)
    machine.frequencies.write_bytes(bed_acpi.frequency_table(machine.hardware.cpus))
    subprocess.run(["cp", "--reflink=auto", "--sparse=always", source / machine.disk.name, machine.disk], check=True)
    machine.disk.chmod(0o600)
    # The loader belongs to the disk: a rebuilt image must not change what a running bed boots with.
    subprocess.run(["cp", source / machine.loader.name, machine.loader], check=True)
    for drive in range(NUMA_NODES):
        with (machine.folder / f"nvme{drive}.raw").open("wb") as handle:
            handle.truncate(DATA_DISK_BYTES)


def make_key(path: Path, *, comment: str) -> None:
    """A new ed25519 key pair without passphrase at `path` and `path`.pub."""
    subprocess.run([tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path], check=True)


def command_line(machine: Machine) -> List[str]:
    """The arguments of QEMU for a node.

    The root disk and the management NIC sit on the root bus. Each NUMA node has a PCI host bridge of its own
    (pxb-pcie), and what hangs under it (one NVMe drive, one data NIC) reports that node in sysfs, as on a server with
    two sockets. NUMA node 1 also has a device that nothing needs, alone in its IOMMU group, so that it can be lent to a
    virtual machine.
    """
    hardware = machine.hardware
    fast = hardware.accel == "kvm"
    command = [*bed_qemu.words(), "-name", f"{machine.name},debug-threads=on", "-no-user-config", "-nodefaults"]
    command += ["-pidfile", str(machine.pid_file), "-display", "none"]
    # With most of the first NUMA node above 4 GiB it has whole free GiB to offer.
    command += ["-machine", "q35,max-ram-below-4g=1G,sata=off,i8042=off"]
    command += ["-accel", "kvm" if fast else EMULATION, "-cpu", "host" if fast else EMULATED_CPU]
    command += ["-smp", f"{hardware.cpus},sockets={NUMA_NODES}", "-m", f"{hardware.memory_mib * NUMA_NODES}M"]
    command += ["-acpitable", f"file={_escaped(machine.frequencies)}"]
    # Before the devices that it is to translate for. Interrupts go where they go without one.
    command += ["-device", "intel-iommu,intremap=off"]
    for node, cpus in enumerate(hardware.cpu_lists):
        command += ["-object", f"memory-backend-ram,id=memory{node},size={hardware.memory_mib}M"]
        command += ["-numa", f"node,nodeid={node},memdev=memory{node},cpus={cpus}"]

    command += ["-kernel", str(machine.loader)]
    command += ["-chardev", f"file,id=console,path={_escaped(machine.console)},append=on", "-serial", "chardev:console"]
    # A guest that flushes gains nothing here: what QEMU wrote is in the host's page cache, and that survives QEMU.
    drive = "format=raw,if=none,cache=unsafe,discard=unmap"
    command += ["-drive", f"file={_escaped(machine.disk)},id=root,{drive}"]
    command += ["-device", "virtio-blk-pci,drive=root,bus=pcie.0,addr=0x2"]
    command += ["-netdev", f"user,id=management,hostfwd=tcp:127.0.0.1:{machine.port}-:22"]
    command += ["-device", f"virtio-net-pci,netdev=management,mac={MANAGEMENT_MAC},bus=pcie.0,addr=0x3,romfile="]
    command += ["-device", "virtio-rng-pci,bus=pcie.0,addr=0x4"]
    for node in range(NUMA_NODES):
        bridge = f"pxb-pcie,id=bus{node},bus=pcie.0,addr={0x10 + node:#x},bus_nr={BUS_NUMBERS[node]},numa_node={node}"
        command += ["-device", bridge]
        for index, port in enumerate(PORTS):
            number = node * len(PORTS) + index + 1
            command += ["-device", f"pcie-root-port,id={port}{node},bus=bus{node},chassis={number},slot={number}"]
        command += ["-drive", f"file={_escaped(machine.folder / f'nvme{node}.raw')},id=nvme{node},{drive}"]
        nvme = nvme_device(machine, number=node, drive=f"nvme{node}", port=f"{NVME}-port{node}")
        nic = nic_device(machine, number=node, backend=f"data{node}", port=f"{NIC}-port{node}")
        command += ["-device", _option(nvme), "-netdev", _option(nic_backend(machine, name=f"data{node}"))]
        command += ["-device", _option(nic)]
    # It is there to tell of a panic. The node tells of one on its console, and starts again.
    command += ["-device", f"pvpanic-pci,bus={LENT}-port1", "-action", "panic=none"]
    command += ["-qmp", f"unix:{bed_monitor.SOCKET},server=on,wait=off"]
    return command


def nvme_device(machine: Machine, *, number: int, drive: str, port: str) -> Properties:
    """The NVMe drive with that number among ``Machine.serials``."""
    return {
        "driver": "nvme",
        "id": f"drive{number}",
        "drive": drive,
        "serial": machine.serials[number],
        "bus": port,
    }


def nic_backend(machine: Machine, *, name: str) -> Properties:
    """What a data NIC is connected to: nothing that answers."""
    if machine.hardware.queues == 1:
        return {"type": "user", "id": name, "restrict": True}
    # The kernel names the tap (tap%d), so beds cannot clash, and drops it with the last descriptor.
    tap: Dict[str, Union[str, int, bool]] = {"script": "no", "downscript": "no", "vhost": False}
    return {"type": "tap", "id": name, "queues": machine.hardware.queues, **tap}


def nic_device(machine: Machine, *, number: int, backend: str, port: str) -> Properties:
    """The data NIC with that number among ``Machine.data_macs``."""
    queues = machine.hardware.queues
    several: Dict[str, Union[str, int, bool]] = {"mq": True, "vectors": 2 * queues + 2} if queues > 1 else {}
    mac = machine.data_macs[number]
    return {
        "driver": "virtio-net-pci",
        "id": f"nic{number}",
        "netdev": backend,
        "mac": mac,
        "bus": port,
        "romfile": "",
        **several,
    }


def plug(machine: Machine, *, kind: str, node: int) -> None:
    """Put an NVMe drive or a data NIC into the empty port of a NUMA node, while the node runs.

    Errors: BedError when the port has one already, or QEMU refuses.
    """
    number, port, backend = NUMA_NODES + node, f"{kind}-spare{node}", f"{kind}-spare{node}"
    with bed_monitor.Monitor(machine.folder) as monitor:
        if kind == NIC:
            monitor.ask("netdev_add", **nic_backend(machine, name=backend))
            device = nic_device(machine, number=number, backend=backend, port=port)
        else:
            path = machine.folder / f"nvme{number}.raw"
            with path.open("wb") as handle:
                handle.truncate(DATA_DISK_BYTES)
            file = {"driver": "file", "filename": str(path)}
            monitor.ask("blockdev-add", driver="raw", node_name=backend, file=file)
            device = nvme_device(machine, number=number, drive=backend, port=port)
        monitor.ask("device_add", **device)


def unplug(machine: Machine, *, kind: str, node: int) -> None:
    """Take out what ``plug`` put in, after the node let go of it."""
    number, backend = NUMA_NODES + node, f"{kind}-spare{node}"
    with bed_monitor.Monitor(machine.folder) as monitor:
        monitor.release(f"{'nic' if kind == NIC else 'drive'}{number}")
        if kind == NIC:
            monitor.ask("netdev_del", id=backend)
        else:
            monitor.ask("blockdev-del", node_name=backend)


def power_on(machine: Machine) -> int:
    """Start QEMU for a node that is off. Returns where in the console log this boot begins.

    Errors: BedError with what QEMU said when it ends at once (a port that was taken, no memory).
    """
    for disk in (machine.disk, machine.loader):
        if not disk.exists():
            raise BedError(f"Cannot start {machine.name}: {disk} is missing")
    # QEMU writes its PID before it opens the console: without a file, a reader could come too early.
    machine.console.touch()
    begin = machine.console.stat().st_size
    with machine.monitor_log.open("ab") as output:
        process = subprocess.Popen(
            command_line(machine),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=machine.folder,
        )
    deadline = time.monotonic() + 30
    while not machine.pid_file.exists() or machine.pid != process.pid:
        if process.poll() is not None or time.monotonic() > deadline:
            raise BedError(f"Cannot start {machine.name}: QEMU says\n{tail(machine.monitor_log)}")
        time.sleep(0.05)
    _put_first(process.pid)
    return begin


def power_off(machine: Machine, *, deadline: float) -> None:
    """Shut a node down, and wait until its QEMU has ended.

    deadline: in the time of time.monotonic().
    """
    # The connection may be cut before the answer comes.
    ask(machine, ["systemctl", "poweroff"])
    while machine.pid is not None:
        if time.monotonic() > deadline:
            raise BedError(f"Cannot shut {machine.name} down: it is still on; console {machine.console}")
        time.sleep(0.2)


def _put_first(pid: int) -> None:
    """Let an emulated processor go before what runs beside it: whoever works on a node waits for it most of the time.

    Sessions share the processor by the nice value of their group (sched(7)), which only root may lower.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(AHEAD, encoding="ascii")


def ssh_options(machine: Machine) -> List[str]:
    """Options of ssh that leave the user's own configuration out: no ~/.ssh/config, no known_hosts, no agent keys."""
    options = [
        f'UserKnownHostsFile="{machine.bed_folder / KNOWN_HOSTS}"', "GlobalKnownHostsFile=/dev/null",
        "StrictHostKeyChecking=yes", "IdentitiesOnly=yes", "BatchMode=yes", "ConnectTimeout=20", "LogLevel=ERROR",
    ]  # fmt: skip
    arguments = ["-F", "/dev/null"]
    for option in options:
        arguments += ["-o", option]
    return arguments


def ssh_command(machine: Machine, words: Sequence[str]) -> List[str]:
    """The command that logs in as root; `words` are what the shell of the node sees."""
    identity = ["-i", str(machine.bed_folder / KEY), "-p", str(machine.port)]
    return [tool("ssh"), *ssh_options(machine), *identity, "root@127.0.0.1", *words]


def ask(machine: Machine, words: Sequence[str], *, timeout: float = 60) -> Optional[str]:
    """What a command on the node prints, or None when the node cannot be reached or the command fails."""
    try:
        done = subprocess.run(
            ssh_command(machine, words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def boot_id(machine: Machine) -> Optional[str]:
    """The kernel's random id of the running boot, or None when the node cannot be reached."""
    return ask(machine, ["cat", "/proc/sys/kernel/random/boot_id"])


def await_boot(machine: Machine, *, begin: int, deadline: float, previous: Optional[str] = None) -> None:
    """Wait until a login works and systemd has finished starting, in a boot other than `previous`.

    begin: where in the console log this boot's output starts.
    deadline: in the time of time.monotonic().
    Errors: BedError with the end of the console log when QEMU ends, the boot gives up or the deadline passes.
    """
    started = time.monotonic()
    cause = f"no login within {deadline - started:.0f} s"
    while time.monotonic() < deadline:
        if machine.pid is None:
            cause = f"QEMU ended; it said:\n{tail(machine.monitor_log)}\n"
            break
        output = _console_since(machine, begin)
        dead_end = next((text for text in DEAD_ENDS if text in output), None)
        if dead_end is not None:
            cause = f"the boot stopped with {dead_end.strip()!r}"
            break
        if output.count(PANIC) >= PANICS_IN_A_ROW:
            cause = f"the kernel panicked {PANICS_IN_A_ROW} times in a row"
            break
        if STUCK in output:
            say(f"{machine.name} is stuck after {time.monotonic() - started:.1f} s, and is reset")
            begin = machine.console.stat().st_size
            with bed_monitor.Monitor(machine.folder) as monitor:
                monitor.ask("system_reset")
        if LOADS in output and _has_banner(machine.port):
            # One login answers both questions; is-system-running exits 1 for `degraded`, which is up as well.
            script = "cat /proc/sys/kernel/random/boot_id && { systemctl is-system-running --wait || true; }"
            answer = ask(machine, [script], timeout=max(5.0, deadline - time.monotonic()))
            lines = (answer or "").split("\n")
            if len(lines) == 2 and lines[0] != previous and lines[1] in ("running", "degraded"):
                say(f"{machine.name} is up ({lines[1]}) after {time.monotonic() - started:.1f} s")
                return
        time.sleep(0.2)
    raise BedError(f"Cannot boot {machine.name}: {cause}; console {machine.console}:\n{tail(machine.console)}")


def _console_since(machine: Machine, begin: int) -> str:
    with machine.console.open("rb") as handle:
        handle.seek(begin)
        return handle.read().decode("utf-8", "replace")


def _has_banner(port: int) -> bool:
    """Whether sshd itself answers. QEMU accepts connections long before the guest listens: a connect proves nothing."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=3) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def ansible_ssh_args(machine: Machine) -> str:
    """`ssh_options` as one string for ansible_ssh_common_args."""
    return " ".join(shlex.quote(word) for word in ssh_options(machine))


def _option(properties: Properties) -> str:
    """Properties as an argument of -device and -netdev, which begins with the value of the first one."""
    first, *others = properties.items()
    words = [str(first[1])]
    for name, value in others:
        words.append(f"{name}={('off', 'on')[value] if isinstance(value, bool) else value}")
    return ",".join(words)


def _escaped(path: Path) -> str:
    # In QEMU's option lists a comma is written twice.
    return str(path).replace(",", ",,")
