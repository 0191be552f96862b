# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command ``gpufleet`` on a node. A subcommand is a function that adds its parser, and one that runs it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import traceback
from typing import Any, NoReturn, Optional, Sequence

from ansible_collections.gpufleet.node.node.standard_host import this_host
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.importing import importing
from ansible_collections.gpufleet.node.plugins.module_utils._core.version import VERSION

# Apart from those of `status`.
USAGE_EXIT = 64


class Parser(argparse.ArgumentParser):
    """Wrong usage must not look like an answer."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE_EXIT, f"{self.prog}: {message}\n")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one subcommand and return its exit status."""
    parser = Parser(prog="gpufleet", description="What is declared for this node, and what of it is in effect.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in (add_status, add_health, add_look, add_boot, add_facts, add_run, add_place, add_compile, add_version):
        add(commands)
    parsed = parser.parse_args(arguments)
    try:
        status: int = parsed.run(parsed)
        sys.stdout.flush()
        return status
    except GpuFleetError as error:
        print(error, file=sys.stderr)
        return USAGE_EXIT
    except BrokenPipeError:
        # The reader of the output has gone; Python must not try to flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return USAGE_EXIT
    except Exception:
        # Python itself would exit with 1, which says that something differs.
        traceback.print_exc()
        return USAGE_EXIT


def add_status(commands: Any) -> None:
    parser = commands.add_parser(
        "status",
        help="compare what is declared, in effect and due at the next boot",
        description="Exit status: 0 everything is in sync, 1 something has drifted, 2 something is pending, 3 "
        "something could not be read, or another owner may change it at boot, 4 a declaration is wrong.",
    )
    parser.add_argument("--json", action="store_true", help="the whole answer, for programs")
    parser.add_argument("--concern", metavar="NAME", help="only this one, such as hugepages")
    parser.set_defaults(run=run_status)


def run_status(parsed: argparse.Namespace) -> int:
    with importing():
        from ansible_collections.gpufleet.node.node.status import status

    return status(this_host(), concern=parsed.concern, as_json=parsed.json)


def add_health(commands: Any) -> None:
    parser = commands.add_parser(
        "health",
        help="say whether GPUs and ports are fit for jobs",
        description="For the HealthCheckProgram of Slurm and for node-problem-detector. Exit status: 0 healthy, 1 a "
        "GPU or a port of a network card is sick, 2 something is not known, for example because the driver does not "
        "respond, 64 the usage is wrong. As root it saves the error counters of the ports in /run/gpufleet/ports.json, "
        "at most once an hour.",
    )
    parser.add_argument("--line", action="store_true", help="print one line of at most 80 bytes: the first problem")
    parser.add_argument("--json", action="store_true", help="print the problems and the facts, for programs")
    parser.add_argument("--gpus", metavar="NUMBER", type=_whole, default=0, help="how many GPUs there must be")
    parser.add_argument(
        "--port",
        metavar="GLOB",
        action="append",
        default=[],
        help="a port that must be active, by RDMA device, interface or PCI address; may be given more than once",
    )
    parser.add_argument(
        "--ignore-port",
        metavar="GLOB",
        action="append",
        default=[],
        help="a port that is not checked, named as with --port",
    )
    parser.add_argument(
        "--gbps",
        metavar="RATE",
        type=_whole,
        default=0,
        help="the rate that these ports must have, or each active one, in Gb/s",
    )
    parser.set_defaults(run=run_health)


def run_health(parsed: argparse.Namespace) -> int:
    with importing():
        from ansible_collections.gpufleet.node.node.health import health

    return health(
        this_host(),
        gpus=parsed.gpus,
        ports=parsed.port,
        ignored=parsed.ignore_port,
        rate_gbps=parsed.gbps,
        line=parsed.line,
        as_json=parsed.json,
    )


def add_look(commands: Any) -> None:
    parser = commands.add_parser(
        "look",
        help="compare declarations that are handed in, as the controller does",
        description="FILE holds the options of node_state or gpu_node_info as JSON. Prints the result of that module. "
        "Exit status: 0 the node is as expect says, 1 it is not, 64 the request is wrong.",
    )
    parser.add_argument("--json", metavar="FILE", required=True, help="a file, or - for standard input")
    parser.set_defaults(run=run_look)


def run_look(parsed: argparse.Namespace) -> int:
    from ansible_collections.gpufleet.node.node.look import answer_to, request_of

    try:
        if parsed.json == "-":
            text = sys.stdin.buffer.read()
        else:
            with open(parsed.json, "rb") as stream:
                text = stream.read()
    except OSError as error:
        raise CannotLook("read the request", object=parsed.json, cause=error.strerror or str(error)) from error
    answer = answer_to(request_of(text))
    print(json.dumps(answer, indent=1, sort_keys=True))
    return int(answer.get("failed", False))


def add_boot(commands: Any) -> None:
    parser = commands.add_parser(
        "boot",
        help="apply the declared settings that a boot loses",
        description="Exit status: 0 all were applied, 1 at least one failed. The boot service runs this, and "
        "so does the unit for devices that appear later.",
    )
    parser.add_argument("--timeout", metavar="SECONDS", type=_seconds, default=300, help="for all of them together")
    parser.add_argument(
        "--concern", metavar="NAME", action="append", default=[], help="only this one; may be given more than once"
    )
    parser.add_argument(
        "--again",
        metavar="SECONDS",
        type=_seconds,
        default=0,
        help="repeat after this many seconds until nothing changes",
    )
    parser.set_defaults(run=run_boot)


def run_boot(parsed: argparse.Namespace) -> int:
    with importing():
        from ansible_collections.gpufleet.node.node.boot import boot

    compile_where_missing()
    host = this_host()
    status = boot(host, timeout=parsed.timeout, concerns=parsed.concern, again=parsed.again)
    if not parsed.concern:
        # The service of the boot, and not that of a device that appears later.
        with importing():
            from ansible_collections.gpufleet.node.node.health import begin_counting

        begin_counting(host)
    return status


def add_facts(commands: Any) -> None:
    parser = commands.add_parser(
        "facts",
        help="what this machine is, as JSON",
        description="What the module gpu_node_info returns. A field that cannot be read is null, with the reason.",
    )
    parser.add_argument(
        "part", nargs="*", type=_part, metavar="PART", help="these parts only, or all (default: all except holders)"
    )
    parser.set_defaults(run=run_facts)


def run_facts(parsed: argparse.Namespace) -> int:
    with importing():
        from ansible_collections.gpufleet.node.plugins.module_utils._node.facts.collect import (
            DEFAULT_PARTS,
            facts_answer,
        )

    answer = facts_answer(this_host(), parsed.part or DEFAULT_PARTS, compressed=False)
    print(json.dumps(answer["node"], indent=2))
    return 0


def add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run a command next to its GPUs",
        description="Runs the command in the slice of its GPUs, with their CPUs and memory, and with "
        "CUDA_VISIBLE_DEVICES set to their UUIDs. What it starts inherits that. Exit status: that of the command, 64 "
        "if this was refused, 127 if there is no such command, 126 if it cannot be executed.",
    )
    parser.add_argument(
        "--gpu",
        metavar="GPU",
        action="append",
        required=True,
        help="number or UUID of a GPU, 0:1 for a MIG instance of it, or the UUID of one; may be given more than once",
    )
    parser.add_argument("--quiet", action="store_true", help="do not say what was set")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="after --, with its arguments")
    parser.set_defaults(run=run_run)


def run_run(parsed: argparse.Namespace) -> int:
    with importing():
        from ansible_collections.gpufleet.node.node.run import run

    return run(this_host(), parsed.gpu, parsed.command, quiet=parsed.quiet)


def add_place(commands: Any) -> None:
    parser = commands.add_parser(
        "place",
        help="move the calling process into slices; run asks for it through pkexec",
        description="Moves the process that called it, where that belongs to the user of pkexec.",
    )
    parser.add_argument("slices", nargs="+", metavar="SLICE", help="a slice of gpu_slices")
    parser.set_defaults(run=run_place)


def run_place(parsed: argparse.Namespace) -> int:
    with importing():
        from ansible_collections.gpufleet.node.node.run import place_caller

    return place_caller(this_host(), parsed.slices)


def add_compile(commands: Any) -> None:
    parser = commands.add_parser("compile", help="compile this program, so that the next look is faster")
    parser.add_argument("--remove", action="store_true", help="remove what was compiled")
    parser.set_defaults(run=run_compile)


def run_compile(parsed: argparse.Namespace) -> int:
    from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import LOCK
    from ansible_collections.gpufleet.node.plugins.module_utils._linux import program_apply

    files = this_host().files
    try:
        # Another run may be writing the same files, and then it compiles.
        with files.lock(LOCK, 0.0):
            if parsed.remove:
                program_apply.remove_compiled(files)
            else:
                program_apply.compile_program(files)
    except OSError as error:
        print(f"Cannot compile the program: {error}. It works without that, only slower.", file=sys.stderr)
        return 1
    return 0


def compile_where_missing() -> None:
    """What a killed run left to do, or another Python, so that looks are fast again. No boot fails because of it."""
    from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import compiled_fault

    with contextlib.suppress(OSError, GpuFleetError):
        if compiled_fault(this_host().files):
            run_compile(argparse.Namespace(remove=False))


def add_version(commands: Any) -> None:
    parser = commands.add_parser("version", help="the release of the collection this came from")
    parser.set_defaults(run=run_version)


def run_version(parsed: argparse.Namespace) -> int:
    print(f"gpufleet.node {VERSION}, Python {platform.python_version()}")
    return 0


def _part(text: str) -> str:
    from ansible_collections.gpufleet.node.plugins.module_utils._node.facts.collect import PARTS

    if text not in ("all", *PARTS):
        raise argparse.ArgumentTypeError(f"there is no part {text}; these are all, {', '.join(sorted(PARTS))}")
    return text


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) > 1_000_000:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0 to 1000000")
    return int(text)


def _seconds(text: str) -> int:
    seconds = int(text) if text.isdecimal() else 0
    if not 1 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 1 to 86400")
    return seconds
