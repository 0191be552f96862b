# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The VM bed: servers with two NUMA nodes, NVMe drives and NICs on both, their own boot loader and a real kernel.

    bed.py up --name demo --nodes gpu-a01,gpu-b01
    ansible -i .cache/vm/run/demo/hosts.yml all -m ansible.builtin.ping
    bed.py down --name demo

Progress goes to stderr, what a caller may want to read to stdout. Exit status: 0 done, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Callable, ContextManager, Dict, List, NoReturn, Optional, Sequence

import bed_gpus
import bed_host
import bed_image
import bed_machine
import bed_qemu
from bed_host import CACHE, BedError, locked, say
from bed_machine import Hardware, Machine

RUNS = CACHE / "run"
SAVED = CACHE / "saved"
NEEDED = ("debugfs", "ssh", "ssh-keygen")
NEEDED_FOR_GPUS = ("cc", "/usr/include/stdio.h")
# Logs outlive the bed: they are what remains to look at after a failed run.
KEPT = ("console.log", "qemu.log")
LONGEST_NAME = bed_machine.SERIAL_LENGTH - len("GPUFLEET--0")


@dataclass(frozen=True)
class Bed:
    """The nodes of one bed, and the image they came from. On disk it is the file bed.json in the bed's folder."""

    name: str
    suite: str
    image: str
    machines: List[Machine]

    @property
    def folder(self) -> Path:
        return RUNS / self.name

    @property
    def hardware(self) -> Hardware:
        return self.machines[0].hardware

    def select(self, names: Sequence[str], *, everyone: bool = False) -> List[Machine]:
        """The nodes with these names, in this order; with `everyone` all of them."""
        if everyone:
            return self.machines
        known = {machine.name: machine for machine in self.machines}
        for name in names:
            if name not in known:
                raise BedError(f"Cannot find the node {name} in the bed {self.name}: it has {', '.join(known)}")
        return [known[name] for name in names]


# --- what the bed leaves for its users ------------------------------------------------------------------------------


def write_state(bed: Bed) -> None:
    """Write bed.json: what the bed is made of, for tests that must know what this host could not give them."""
    state = {
        "name": bed.name,
        "suite": bed.suite,
        "image": bed.image,
        "accel": bed.hardware.accel,
        "queues": "multi" if bed.hardware.queues > 1 else "single",
        "hardware": asdict(bed.hardware),
        "inventory": str(bed.folder / "hosts.yml"),
        "nodes": {
            machine.name: {
                "index": machine.index,
                "port": machine.port,
                "console": str(machine.console),
                "gpus": machine.gpus,
                "nvme_serials": machine.serials[: bed_machine.NUMA_NODES],
                "data_nic_macs": machine.data_macs[: bed_machine.NUMA_NODES],
            }
            for machine in bed.machines
        },
    }
    _replace(bed.folder / "bed.json", json.dumps(state, indent=2) + "\n")


def write_inventory(bed: Bed) -> None:
    """Write hosts.yml: how to reach the nodes, and nothing else. JSON strings are YAML strings."""
    lines = [
        "# Written by tests/vm/bed.py. Only how to reach the nodes: what they should be is another inventory's matter.",
        "all:",
    ]
    lines.append("  hosts:")
    for machine in bed.machines:
        lines.append(f"    {machine.name}:")
        variables = {
            "ansible_host": "127.0.0.1",
            "ansible_port": machine.port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(bed.folder / bed_machine.KEY),
            "ansible_ssh_common_args": bed_machine.ansible_ssh_args(machine),
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        lines += [f"      {key}: {json.dumps(value)}" for key, value in variables.items()]
    _replace(bed.folder / "hosts.yml", "\n".join(lines) + "\n")


def read_state(name: str, saved: Optional[Path] = None) -> Bed:
    """The bed with this name, as `up` left it, or ``saved`` in a folder. Errors: BedError when there is none."""
    folder = saved or RUNS / name
    try:
        state = json.loads((folder / "bed.json").read_text())
    except FileNotFoundError:
        raise BedError(
            f"Cannot find the bed {name}: no {folder / 'bed.json'}; start it with `bed.py up --name {name}`"
        ) from None
    hardware = Hardware(**state["hardware"])
    machines = [
        Machine(node, entry["port"], entry["index"], bed_folder=folder, hardware=hardware, gpus=entry["gpus"])
        for node, entry in state["nodes"].items()
    ]
    return Bed(name=state["name"], suite=state["suite"], image=state["image"], machines=machines)


def _replace(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


# --- commands -------------------------------------------------------------------------------------------------------


def image(args: argparse.Namespace) -> None:
    with ThreadPoolExecutor() as pool:
        simulator = pool.submit(bed_gpus.build) if args.gpus else None
        built = bed_image.ensure(suite=args.suite, mirror=args.mirror, worker=args.worker, rebuild=args.rebuild)
        if simulator is not None:
            simulator.result()
    print(built.disk)


def up(args: argparse.Namespace) -> None:
    bed_host.require((*NEEDED, *NEEDED_FOR_GPUS) if args.gpus else NEEDED)
    names = node_names(args.nodes)
    gpus = gpus_of(args.gpus, names)
    if args.cpus % bed_machine.NUMA_NODES:
        raise BedError(f"Cannot spread {args.cpus} CPUs evenly over {bed_machine.NUMA_NODES} NUMA nodes")
    bed_qemu.ensure(mirror=args.mirror)
    built = bed_image.ensure(suite=args.suite, mirror=args.mirror, worker=args.worker)
    with _locked_bed(args.name):
        _clear(args.name, replace=args.replace)
        hardware = Hardware(
            accel=args.accel or bed_qemu.accelerator(),
            cpus=args.cpus,
            memory_mib=args.memory,
            queues=args.cpus if bed_host.multi_queue_taps() else 1,
        )
        ports = free_ports(len(names))
        machines = [
            Machine(name, ports[index], index, bed_folder=RUNS / args.name, hardware=hardware, gpus=gpus.get(name, ""))
            for index, name in enumerate(names)
        ]
        bed = Bed(name=args.name, suite=built.suite, image=built.folder.name, machines=machines)
        _start(bed, disks=lambda: _fresh_disks(bed, built=built), timeout=args.timeout)
    _come_up(bed, owner=args.owner_pid)


def _fresh_disks(bed: Bed, *, built: bed_image.Image) -> None:
    bed_machine.make_key(bed.folder / bed_machine.KEY, comment=f"gpufleet bed {bed.name}")
    for machine in bed.machines:
        bed_machine.create_disks(machine, image=built, bed=bed.name)


def save(args: argparse.Namespace) -> None:
    """Shut the nodes down, and keep their root disks: the drives hold nothing, and a machine with NVMe drives that runs
    cannot be saved by QEMU."""
    target = SAVED / args.name / args.label
    with _locked_bed(args.name):
        bed = read_state(args.name)
        deadline = time.monotonic() + args.timeout
        _each(bed.machines, lambda node: bed_machine.power_off(node, deadline=deadline))
        # What is saved takes gigabytes, and an older state is of no use to who saves a new one.
        shutil.rmtree(SAVED / args.name, ignore_errors=True)
        part = target.with_suffix(".part")
        part.mkdir(parents=True, mode=0o700)
        for machine in bed.machines:
            (part / machine.name).mkdir()
            for disk in (machine.disk, machine.loader):
                disk.rename(part / machine.name / disk.name)
        for name in ("bed.json", bed_machine.KEY, f"{bed_machine.KEY}.pub", bed_machine.KNOWN_HOSTS):
            (bed.folder / name).rename(part / name)
        remove(bed.name)
        part.rename(target)
    say(f"bed {bed.name} is saved as {args.label}")


def load(args: argparse.Namespace) -> None:
    """Boot nodes from copies of the disks that `save` kept; the bed has the name that it had then."""
    bed_host.require(NEEDED)
    bed_qemu.ensure(mirror=bed_image.MIRROR)
    saved = SAVED / args.name / args.label
    with _locked_bed(args.name):
        old = read_state(args.name, saved)
        chosen = old.select(args.nodes.split(",") if args.nodes else [], everyone=not args.nodes)
        _clear(args.name, replace=args.replace)
        ports = free_ports(len(chosen))
        # The address of a NIC has the rank in it that its node had, and so does what the node knows about it.
        machines = [replace(machine, port=port, bed_folder=RUNS / args.name) for machine, port in zip(chosen, ports)]
        bed = replace(old, machines=machines)

        def copy_disks() -> None:
            for name in (bed_machine.KEY, f"{bed_machine.KEY}.pub"):
                shutil.copy2(saved / name, bed.folder / name)
            keys = (saved / bed_machine.KNOWN_HOSTS).read_text()
            for before, machine in zip(chosen, machines):
                keys = keys.replace(f"]:{before.port} ", f"]:{machine.port} ")
                bed_machine.copy_disks(machine, source=saved / machine.name)
            (bed.folder / bed_machine.KNOWN_HOSTS).write_text(keys)

        _start(bed, disks=copy_disks, timeout=args.timeout)
    _come_up(bed, owner=args.owner_pid)


def _clear(name: str, *, replace: bool) -> None:
    """Make room for a bed of this name."""
    if (RUNS / name / "bed.json").exists():
        if not replace:
            raise BedError(f"Cannot start the bed {name}: it exists; stop it with `bed.py down`, or use --replace")
        say(f"replacing the bed {name}")
    remove(name)
    shutil.rmtree(RUNS / name, ignore_errors=True)


def _start(bed: Bed, *, disks: Callable[[], None], timeout: float) -> None:
    """Boot the nodes of a bed from the disks that ``disks`` makes in its folder."""
    try:
        bed.folder.mkdir(parents=True, mode=0o700)
        disks()
        say(f"starting {', '.join(machine.name for machine in bed.machines)} with {bed.hardware.accel}")
        begins = {machine.name: bed_machine.power_on(machine) for machine in bed.machines}
        write_state(bed)
        deadline = time.monotonic() + timeout
        _each(bed.machines, lambda node: bed_machine.await_boot(node, begin=begins[node.name], deadline=deadline))
        write_inventory(bed)
    except BaseException:
        # A bed that is half up is of use to nobody; the logs stay.
        remove(bed.name)
        raise


def _come_up(bed: Bed, *, owner: Optional[int]) -> None:
    if owner is not None:
        _follow(bed.name, owner=owner)
    hardware = bed.hardware
    say(f"bed {bed.name}: {len(bed.machines)} nodes, {hardware.accel}, {hardware.queues} queues per data NIC")
    print(bed.folder / "hosts.yml")


def down(args: argparse.Namespace) -> None:
    with _locked_bed(args.name):
        stopped = remove(args.name)
    say(f"bed {args.name}: {stopped} nodes stopped" if stopped else f"bed {args.name}: nothing was running")


def remove(name: str) -> int:
    """Stop every node of a bed and delete what it had, except logs. Returns how many nodes ran.

    Goes by the process table and the folder, so it also clears what an interrupted `up` left.
    """
    folder = RUNS / name
    if not folder.is_dir():
        return 0
    stopped = 0
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            stopped += bed_host.stop(str(entry / "qemu.pid"))
            for file in entry.iterdir():
                if file.is_dir():
                    shutil.rmtree(file)
                elif file.name not in KEPT:
                    file.unlink()
        else:
            entry.unlink()
    return stopped


def reboot(args: argparse.Namespace) -> None:
    bed = read_state(args.name)
    deadline = time.monotonic() + args.timeout

    def one(machine: Machine) -> None:
        previous = bed_machine.boot_id(machine)
        if previous is None:
            raise BedError(f"Cannot reboot {machine.name}: no login")
        begin = machine.console.stat().st_size
        # The connection may be cut before the answer comes; the new boot id is the proof that counts.
        bed_machine.ask(machine, ["systemctl", "reboot"])
        bed_machine.await_boot(machine, begin=begin, deadline=deadline, previous=previous)

    _each(bed.select(args.node, everyone=args.all), one)


def cut(args: argparse.Namespace) -> None:
    bed = read_state(args.name)
    for machine in bed.select(args.node, everyone=args.all):
        if bed_host.stop(str(machine.pid_file), force=True) == 0:
            raise BedError(f"Cannot cut the power of {machine.name}: it is off")
        say(f"{machine.name} lost its power")


def start(args: argparse.Namespace) -> None:
    bed = read_state(args.name)
    machines = bed.select(args.node, everyone=args.all)
    for machine in machines:
        if machine.pid is not None:
            raise BedError(f"Cannot start {machine.name}: it is on (PID {machine.pid})")
    begins = {machine.name: bed_machine.power_on(machine) for machine in machines}
    deadline = time.monotonic() + args.timeout
    _each(machines, lambda node: bed_machine.await_boot(node, begin=begins[node.name], deadline=deadline))


def plug(args: argparse.Namespace) -> None:
    (machine,) = read_state(args.name).select([args.node])
    bed_machine.plug(machine, kind=args.kind, node=args.numa_node)


def unplug(args: argparse.Namespace) -> None:
    (machine,) = read_state(args.name).select([args.node])
    bed_machine.unplug(machine, kind=args.kind, node=args.numa_node)


def ssh(args: argparse.Namespace) -> NoReturn:
    (machine,) = read_state(args.name).select([args.node])
    command = bed_machine.ssh_command(machine, args.command)
    os.execv(command[0], command)


def status(args: argparse.Namespace) -> None:
    names = [args.name] if args.name else sorted(path.parent.name for path in RUNS.glob("*/bed.json"))
    for name in names:
        bed = read_state(name)
        hardware = bed.hardware
        print(f"{bed.name}: {bed.suite}, {hardware.accel}, {hardware.queues} queues per data NIC")
        print(f"  inventory {bed.folder / 'hosts.yml'}")
        for machine in bed.machines:
            pid = machine.pid
            state = "off" if pid is None else f"on, PID {pid}"
            print(f"  {machine.name}: {state}, port {machine.port}, console {machine.console}")


def keep(args: argparse.Namespace) -> None:
    read_state(args.name)
    if args.owner_pid is not None:
        _follow(args.name, owner=args.owner_pid)
    else:
        _owner_file(args.name).unlink(missing_ok=True)


def watch(args: argparse.Namespace) -> None:
    """Wait for a process to end, then take the bed down if it is still the owner. Runs as a process of its own."""
    try:
        descriptor = os.pidfd_open(args.owner_pid)
    except ProcessLookupError:
        pass
    else:
        select.select([descriptor], [], [])
    try:
        owner = _owner_file(args.name).read_text()
    except FileNotFoundError:
        return
    if owner == str(args.owner_pid):
        down(args)


def _owner_file(name: str) -> Path:
    return RUNS / name / "owner"


def _follow(name: str, *, owner: int) -> None:
    _owner_file(name).write_text(str(owner))
    with (RUNS / name / "watch.log").open("wb") as output:
        subprocess.Popen(
            [sys.executable, __file__, "watch", "--name", name, "--owner-pid", str(owner)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _locked_bed(name: str) -> ContextManager[None]:
    return locked(RUNS / f"{name}.lock", what=f"The bed {name}")


def _each(machines: Sequence[Machine], work: Callable[[Machine], None]) -> None:
    """Do the same on all nodes at once; every failure is told, not only the first."""
    failures = []
    with ThreadPoolExecutor(max_workers=len(machines)) as pool:
        for future in [pool.submit(work, machine) for machine in machines]:
            try:
                future.result()
            except BedError as error:
                failures.append(str(error))
    if failures:
        raise BedError("\n".join(failures))


# --- command line ---------------------------------------------------------------------------------------------------


def node_names(text: str) -> List[str]:
    """`3` or `gpu-a01,gpu-b01` as names. A name is a host name short enough for the serial number of an NVMe drive."""
    if text.isdecimal():
        if not 1 <= int(text) <= 26:
            raise BedError(f"Cannot start {text} nodes: between 1 and 26")
        return [f"gpu-{chr(ord('a') + index)}01" for index in range(int(text))]
    names = text.split(",")
    for name in names:
        if (
            not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)
            or len(name) > LONGEST_NAME
            or names.count(name) > 1
        ):
            raise BedError(
                f"Cannot name a node {name!r}: lower-case host names of at most {LONGEST_NAME} characters, each once"
            )
    return names


def gpus_of(words: Sequence[str], names: Sequence[str]) -> Dict[str, str]:
    """`node=machine` of the command line, by node."""
    found = {}
    for word in words:
        node, _equals, machine = word.partition("=")
        if node not in names or machine not in bed_gpus.machines():
            known = ", ".join(bed_gpus.machines())
            raise BedError(
                f"Cannot plug in {word!r}: write NODE=MACHINE, a node of {', '.join(names)} and one of {known}"
            )
        found[node] = machine
    return found


def free_ports(count: int) -> List[int]:
    ports: List[int] = []
    for _number in range(count):
        ports.append(bed_host.free_port(ports))
    return ports


def bed_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,31}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not made of a-z, 0-9 and -, at most 32 characters")
    return text


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="bed.py", description="Virtual GPU servers for tests (without the GPU).")
    commands = root.add_subparsers(dest="action", required=True, metavar="COMMAND")

    def add(action: Callable[[argparse.Namespace], None], description: str) -> argparse.ArgumentParser:
        command = commands.add_parser(action.__name__, help=description, description=description)
        command.set_defaults(run=action)
        return command

    def with_name(command: argparse.ArgumentParser, *, default: Optional[str] = "demo") -> None:
        command.add_argument("--name", type=bed_name, default=default, help="bed (default: %(default)s)")

    def with_suite(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--suite", choices=bed_image.SUITES, default="trixie", help="Debian (default: %(default)s)"
        )
        command.add_argument(
            "--mirror", default=bed_image.MIRROR, help="where Debian comes from (default: %(default)s)"
        )
        command.add_argument("--worker", action="store_true", help="with container engines and Slurm in it, off")

    def with_timeout(command: argparse.ArgumentParser) -> None:
        command.add_argument("--timeout", type=float, default=600, help="seconds for the boot (default: %(default)s)")

    def with_nodes(command: argparse.ArgumentParser) -> None:
        which = command.add_mutually_exclusive_group(required=True)
        which.add_argument("node", nargs="*", default=[], help="name of a node")
        which.add_argument("--all", action="store_true", help="every node of the bed")

    def with_life(command: argparse.ArgumentParser) -> None:
        command.add_argument("--replace", action="store_true", help="take a bed of that name down first")
        command.add_argument("--owner-pid", type=int, metavar="PID", help="take the bed down when this process ends")

    command = add(image, "Build the image if the cache has none, and print its path.")
    with_suite(command)
    command.add_argument("--gpus", action="store_true", help="beside it compile the simulator of GPUs")
    command.add_argument("--rebuild", action="store_true", help="build it anew, with today's packages")

    command = add(up, "Start fresh nodes, wait until they are up, and print the path of their inventory.")
    with_name(command)
    with_suite(command)
    with_timeout(command)
    command.add_argument("--nodes", default="2", help="how many, or names separated by commas (default: %(default)s)")
    command.add_argument("--gpus", action="append", default=[], metavar="NODE=MACHINE", help="simulated GPUs of a node")
    command.add_argument("--cpus", type=int, default=4, help="CPUs of a node (default: %(default)s)")
    command.add_argument("--memory", type=int, default=5120, help="MiB per NUMA node (default: %(default)s)")
    command.add_argument("--accel", choices=("kvm", "tcg"), help="default: KVM if it works, else TCG")
    with_life(command)

    command = add(save, "Shut the nodes down, and keep their disks in place of what was saved of the bed before.")
    with_name(command)
    with_timeout(command)
    command.add_argument("label", type=bed_name, help="what `load` calls for")

    command = add(load, "Boot nodes from copies of disks that were saved, as `up` does with fresh ones.")
    with_name(command)
    with_timeout(command)
    command.add_argument("label", type=bed_name, help="what `save` called them")
    command.add_argument("--nodes", help="names separated by commas (default: all)")
    with_life(command)

    command = add(down, "Stop the nodes and delete their disks, keys and inventory; logs stay.")
    with_name(command)

    command = add(status, "Show beds and nodes.")
    with_name(command, default=None)

    for action, description in (
        (reboot, "Reboot nodes from inside, and wait until they are up again."),
        (start, "Switch nodes on that are off, and wait until they are up."),
    ):
        command = add(action, description)
        with_name(command)
        with_nodes(command)
        with_timeout(command)

    command = add(cut, "Cut the power of nodes: no shutdown, what the kernel had not written is lost.")
    with_name(command)
    with_nodes(command)

    for action, description in (
        (plug, "Plug an NVMe drive or a NIC into the empty port of a NUMA node, while the node runs."),
        (unplug, "Remove it again, when the node has let go of it."),
    ):
        command = add(action, description)
        with_name(command)
        command.add_argument("node", help="name of the node")
        command.add_argument("kind", choices=(bed_machine.NVME, bed_machine.NIC), help="what")
        command.add_argument("numa_node", type=int, choices=range(bed_machine.NUMA_NODES), help="where")

    command = add(ssh, "Log in as root, or run a command there.")
    with_name(command)
    command.add_argument("node", help="name of the node")
    command.add_argument("command", nargs=argparse.REMAINDER, help="command and arguments, as ssh takes them")

    command = add(keep, "Let the nodes outlive the process that `--owner-pid` named, or give them to another one.")
    with_name(command)
    command.add_argument("--owner-pid", type=int, metavar="PID", help="take the bed down when this process ends")

    command = add(watch, "Take the bed down when a process ends (what `up --owner-pid` starts).")
    with_name(command)
    command.add_argument("--owner-pid", type=int, metavar="PID", required=True)
    return root


def main(arguments: Optional[Sequence[str]] = None) -> int:
    args = parser().parse_args(arguments)
    # A terminated `up` must stop its nodes like an interrupted one.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    try:
        args.run(args)
    except BedError as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip()
        command = " ".join(str(word) for word in error.cmd)
        print(f"Cannot {args.action}: `{command}` ended with exit status {error.returncode} {said}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
