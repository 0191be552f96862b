# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recorded trees of /sys, /proc, /etc and /boot, as text that a person can review.

The format is described in README.md beside this file. The module needs nothing but the standard library, so that it can
be copied alone to a machine that is to be recorded.
"""

from __future__ import annotations

import argparse
import ast
import errno
import fnmatch
import os
import re
import stat
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union

FOLDER = Path(__file__).resolve().parent
SUFFIX = ".tree"

FILE = "file"
LINK = "link"
DIRECTORY = "folder"

DEFAULT_MODE = 0o644


class TreeError(ValueError):
    """A tree file that cannot be read; the message names the file and the line."""


@dataclass(frozen=True)
class Entry:
    """One path of a tree: the text of a file, the target of a link, or a folder (which has neither)."""

    kind: str
    text: str = ""
    mode: int = DEFAULT_MODE


Tree = Dict[str, Entry]
Value = Union[int, str]


# The text format


def parse(text: str, name: str = "tree") -> Tree:
    """The entries of a tree file, by absolute path. Raises ``TreeError``."""
    tree: Tree = {}
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    _parse_lines(list(enumerate(lines, 1)), {}, tree, name)
    return _tidy(tree)


_LINE = re.compile(r"(?P<path>/\S*)(?: (?P<mode>0[0-7]{3}))? (?P<sign>->|:=|=|<<)(?: (?P<text>.*))?")


def _parse_lines(lines: Sequence[Tuple[int, str]], values: Mapping[str, Value], tree: Tree, name: str) -> None:
    index = 0
    prefix = ""
    while index < len(lines):
        number, line = lines[index]
        index += 1
        if not line.strip() or line.startswith("#"):
            continue
        try:
            if line.startswith("@each "):
                end = _end_of_block(lines, index)
                for row in _rows(line[len("@each ") :]):
                    _parse_lines(lines[index:end], {**values, **row}, tree, name)
                index = end + 1
                continue
            line = _fill(line, values)
            if line.startswith("@at "):
                prefix = line[len("@at ") :]
                continue
            if line.startswith("./") and prefix:
                line = prefix + line[1:]
            if line.endswith("/") and " " not in line and line.startswith("/"):
                _add(tree, _unescape(line.rstrip("/")), Entry(DIRECTORY))
                continue
            match = _LINE.fullmatch(line)
            if match is None:
                raise ValueError("is neither a file, a link, a folder nor a comment")
            content = match["text"] or ""
            if match["sign"] == "<<":
                if content:
                    raise ValueError("has text after <<")
                content, index = _body(lines, index, values)
            else:
                content = _unescape(content) + ("\n" if match["sign"] == "=" else "")
            kind = LINK if match["sign"] == "->" else FILE
            if match["mode"] and kind == LINK:
                raise ValueError("gives a link a mode")
            mode = int(match["mode"], 8) if match["mode"] else DEFAULT_MODE
            _add(tree, _unescape(match["path"]), Entry(kind, content, mode))
        except TreeError:
            raise
        except ValueError as error:
            raise TreeError(f"{name}, line {number}: {error}: {line}") from error


def _body(lines: Sequence[Tuple[int, str]], index: int, values: Mapping[str, Value]) -> Tuple[str, int]:
    """The lines of a file from here on, those in blocks that begin with a line of it repeated, and where they end."""
    body: List[str] = []
    while index < len(lines):
        line = lines[index][1]
        if line.startswith("|"):
            body.append(_unescape(_fill(line[1:], values)) + "\n")
            index += 1
        elif line.startswith("@each ") and _is_body(lines[index:]):
            end = _end_of_block(lines, index + 1)
            for row in _rows(line[len("@each ") :]):
                body.append(_body(lines[index + 1 : end], 0, {**values, **row})[0])
            index = end + 1
        else:
            break
    return "".join(body), index


def _is_body(lines: Sequence[Tuple[int, str]]) -> bool:
    return next((line.startswith("|") for _number, line in lines if not line.startswith("@each ")), False)


def _add(tree: Tree, path: str, entry: Entry) -> None:
    if path in tree:
        raise ValueError("names a path for the second time")
    if os.path.normpath(path) != path or not path.startswith("/"):
        raise ValueError("is not an absolute path in its shortest form")
    tree[path] = entry


def _end_of_block(lines: Sequence[Tuple[int, str]], start: int) -> int:
    depth = 1
    for index in range(start, len(lines)):
        line = lines[index][1]
        if line.startswith("@each "):
            depth += 1
        elif line == "@end":
            depth -= 1
            if not depth:
                return index
    raise ValueError("has no @end")


def _rows(text: str) -> List[Dict[str, Value]]:
    """``n in 0..3, bus in 3b 3c 5e 5f``: one row of values for each turn."""
    columns: Dict[str, List[Value]] = {}
    for part in text.split(", "):
        name, found, values = part.partition(" in ")
        if not found or not name.isidentifier():
            raise ValueError("is not 'NAME in VALUES'")
        columns[name] = [value for word in values.split() for value in _range(word)]
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise ValueError("has lists of different lengths")
    return [{name: column[turn] for name, column in columns.items()} for turn in range(lengths.pop())]


def _range(word: str) -> List[Value]:
    match = re.fullmatch(r"(\d+)\.\.(\d+)", word)
    if match is None:
        return [word]
    return list(range(int(match[1]), int(match[2]) + 1))


def _fill(line: str, values: Mapping[str, Value]) -> str:
    """Put values into ``{n}``, ``{n//8+1}`` and ``{n:02x}``. Outside of @each braces mean themselves."""
    if not values:
        return line

    def one(match: re.Match[str]) -> str:
        expression, _colon, form = match[1].partition(":")
        return format(_calculate(ast.parse(expression, mode="eval").body, values), form)

    return re.sub(r"\{([a-z][^{}]*)\}", one, line)


_OPERATORS: Dict[type, Callable[[int, int], int]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.Mod: lambda left, right: left % right,
}


def _calculate(node: ast.AST, values: Mapping[str, Value]) -> Value:
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _calculate(node.left, values), _calculate(node.right, values)
        if isinstance(left, int) and isinstance(right, int):
            return _OPERATORS[type(node.op)](left, right)
    raise ValueError("has an expression that is not a sum of its values")


def render(tree: Tree, comments: Sequence[str] = ()) -> str:
    """A tree in its text form, without repetitions, sorted by path."""
    lines = [f"# {comment}".rstrip() for comment in comments]
    for path, entry in sorted(_tidy(tree).items()):
        key = _escape(path).replace(" ", "\\x20")
        if entry.kind == DIRECTORY:
            lines.append(f"{key}/")
        elif entry.kind == LINK:
            lines.append(f"{key} -> {_escape(entry.text)}")
        else:
            mode = "" if entry.mode == DEFAULT_MODE else f" {entry.mode:04o}"
            lines.extend(_render_file(f"{key}{mode}", entry.text))
    return "".join(f"{line}\n" for line in lines)


def _render_file(key: str, text: str) -> List[str]:
    if not text.endswith("\n"):
        return [f"{key} := {_escape(text)}".rstrip(" ")]
    if text.count("\n") == 1:
        return [f"{key} = {_escape(text[:-1])}".rstrip(" ")]
    return [f"{key} <<", *(f"|{_escape(line)}" for line in text[:-1].split("\n"))]


def _escape(text: str) -> str:
    pieces = []
    for character in text:
        if character == "\\":
            pieces.append("\\\\")
        elif character == "\n":
            pieces.append("\\n")
        elif character == "\t":
            pieces.append("\\t")
        elif " " <= character <= "~":
            pieces.append(character)
        else:
            pieces.extend(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
    # A blank at the end of a line would not survive every editor.
    if pieces and pieces[-1] == " ":
        pieces[-1] = "\\x20"
    return "".join(pieces)


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        if code in ("n", "t", "\\"):
            return {"n": "\n", "t": "\t", "\\": "\\"}[code]
        if len(code) == 3:
            return bytes([int(code[1:], 16)]).decode("latin-1")
        raise ValueError(f"has an unknown escape \\{code}")

    raw = re.sub(r"\\(x[0-9a-f]{2}|.)", one, text)
    return raw.encode("latin-1").decode("utf-8", "surrogateescape")


def _tidy(tree: Tree) -> Tree:
    """Without the folders that something in the tree lies in: those are there anyway."""
    parents: Set[str] = set()
    for path in tree:
        folder = os.path.dirname(path)
        while folder not in parents:
            parents.add(folder)
            folder = os.path.dirname(folder)
    for path, entry in tree.items():
        if path in parents and entry.kind != DIRECTORY:
            raise TreeError(f"{path} is a {entry.kind} and has something in it")
    return {path: entry for path, entry in sorted(tree.items()) if path not in parents}


# Trees in this folder


def names() -> Tuple[str, ...]:
    """The trees that are here."""
    return tuple(sorted(path.name[: -len(SUFFIX)] for path in FOLDER.glob(f"*{SUFFIX}")))


def load(name: str) -> Tree:
    """A tree by its name. Raises ``TreeError`` where there is none."""
    path = FOLDER / f"{name}{SUFFIX}"
    if name not in names():
        raise TreeError(f"there is no tree {name!r}; these are: {', '.join(names())}")
    return parse(path.read_text(encoding="utf-8"), path.name)


def expand(tree: Union[Tree, str], folder: Union[Path, str]) -> Path:
    """Make a tree (or the one of that name) below a folder, which must be empty or missing. Returns the folder."""
    entries = load(tree) if isinstance(tree, str) else tree
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    if any(root.iterdir()):
        raise TreeError(f"{root} is not empty")
    made: Set[Path] = set()
    for path, entry in entries.items():
        target = root / path[1:]
        parent = target if entry.kind == DIRECTORY else target.parent
        if parent not in made:
            parent.mkdir(parents=True, exist_ok=True)
            made.add(parent)
        if entry.kind == LINK:
            target.symlink_to(entry.text)
        elif entry.kind == FILE:
            target.write_bytes(entry.text.encode("utf-8", "surrogateescape"))
            if entry.mode != DEFAULT_MODE:
                target.chmod(entry.mode)
    return root


# Recording


class Source:
    """A machine, or a tree below ``root``: links are resolved inside it and nothing else is read."""

    def __init__(self, root: str) -> None:
        self.root = "" if os.path.realpath(root) == "/" else os.path.realpath(root)

    def resolve(self, path: str) -> str:
        parts = [part for part in reversed(path.split("/")) if part]
        done = ""
        links = 0
        while parts:
            part = parts.pop()
            if part == "..":
                done = os.path.dirname(done).rstrip("/")
                continue
            candidate = f"{done}/{part}"
            target = self.link(candidate) if part != "." else None
            if target is None:
                done = done if part == "." else candidate
                continue
            links += 1
            if links > 40:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                done = ""
            parts.extend(piece for piece in reversed(target.split("/")) if piece)
        return done or "/"

    def link(self, path: str) -> Optional[str]:
        """Where the path itself points to, if it is a link. The folders on the way must be resolved."""
        try:
            return os.readlink(self.root + path)
        except OSError:
            return None

    def names(self, path: str) -> List[str]:
        try:
            return sorted(os.listdir(self.root + self.resolve(path)))
        except OSError:
            return []

    def status(self, path: str) -> Optional[os.stat_result]:
        try:
            return os.stat(self.root + self.resolve(path))
        except OSError:
            return None

    def is_folder(self, path: str) -> bool:
        status = self.status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def is_file(self, path: str) -> bool:
        status = self.status(path)
        return status is not None and stat.S_ISREG(status.st_mode)

    def read(self, path: str) -> str:
        with open(self.root + self.resolve(path), "rb") as stream:
            return stream.read().decode("utf-8", "surrogateescape")

    def glob(self, pattern: str) -> Iterator[str]:
        """The paths that match, links on the way resolved only as far as the pattern goes."""
        found = [""]
        for part in pattern.strip("/").split("/"):
            following: List[str] = []
            for folder in found:
                if "*" in part or "[" in part:
                    matching = [name for name in self.names(folder or "/") if fnmatch.fnmatchcase(name, part)]
                else:
                    matching = [part] if self.lexists(f"{folder}/{part}") else []
                following.extend(f"{folder}/{name}" for name in matching)
            found = following
        return iter(found)

    def lexists(self, path: str) -> bool:
        folder, name = os.path.split(path)
        try:
            return os.path.lexists(f"{self.root}{self.resolve(folder).rstrip('/')}/{name}")
        except OSError:
            return False


# What rooms may ever ask of a file in a drop-in folder; the others are nobody's business and stay where they are.
RELEVANT = re.compile(
    r"hugepage|hugetlb|queue/|scheduler|elevator|iosched|bfq|kyber|nvme|read_ahead|nr_requests|nvidia|mlx5"
)

PLAIN = (
    "/proc/cmdline",
    "/proc/meminfo",
    "/proc/uptime",
    "/proc/version",
    "/proc/sys/fs/aio-max-nr",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/ostype",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/net/core/rmem_max",
    "/proc/sys/net/core/wmem_max",
    "/proc/sys/net/ipv4/tcp_rmem",
    "/proc/sys/net/ipv4/tcp_wmem",
    "/proc/sys/vm/dirty_background_bytes",
    "/proc/sys/vm/dirty_background_ratio",
    "/proc/sys/vm/dirty_bytes",
    "/proc/sys/vm/dirty_ratio",
    "/proc/sys/vm/nr_hugepages",
    "/proc/sys/vm/nr_hugepages_mempolicy",
    "/proc/sys/vm/nr_overcommit_hugepages",
    "/proc/sys/vm/hugetlb_shm_group",
    "/proc/sys/vm/stat_interval",
    "/proc/sys/vm/swappiness",
    "/proc/sys/vm/zone_reclaim_mode",
    "/sys/devices/system/node/possible",
    "/sys/devices/system/node/online",
    "/sys/devices/system/node/has_*",
    "/sys/devices/system/node/node*/cpulist",
    "/sys/devices/system/node/node*/cpumap",
    "/sys/devices/system/node/node*/distance",
    "/sys/devices/system/node/node*/meminfo",
    "/sys/devices/system/node/node*/compact",
    "/sys/devices/system/node/node*/hugepages/hugepages-*/*",
    "/sys/devices/system/cpu/possible",
    "/sys/devices/system/cpu/present",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/offline",
    "/sys/devices/system/cpu/isolated",
    "/sys/devices/system/cpu/nohz_full",
    "/sys/devices/system/cpu/kernel_max",
    "/sys/devices/system/cpu/smt/active",
    "/sys/devices/system/cpu/smt/control",
    "/sys/devices/system/cpu/intel_pstate/*",
    "/sys/devices/system/cpu/amd_pstate/status",
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/devices/system/cpu/cpu*/cpufreq/base_frequency",
    "/sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_m*_freq",
    "/sys/devices/system/cpu/cpu*/cpufreq/energy_performance_*",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_available_*",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_driver",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_m*_freq",
    *(
        f"/sys/devices/system/cpu/cpu*/cpuidle/state*/{name}"
        for name in ("name", "latency", "disable", "default_status")
    ),
    "/sys/devices/system/cpu/cpu*/acpi_cppc/nominal_freq",
    "/sys/devices/system/cpu/cpu*/power/energy_perf_bias",
    "/sys/devices/system/cpu/cpu*/topology/core_id",
    "/sys/devices/system/cpu/cpu*/topology/physical_package_id",
    "/sys/devices/system/cpu/cpu*/topology/thread_siblings_list",
    "/sys/kernel/mm/hugepages/hugepages-*/*",
    "/sys/kernel/mm/transparent_hugepage/*",
    "/sys/kernel/mm/transparent_hugepage/khugepaged/*",
    "/sys/kernel/mm/transparent_hugepage/hugepages-*/*",
    "/sys/devices/virtual/dmi/id/sys_vendor",
    "/sys/devices/virtual/dmi/id/product_name",
    "/sys/devices/virtual/dmi/id/board_name",
    "/sys/devices/virtual/dmi/id/bios_vendor",
    "/sys/devices/virtual/dmi/id/bios_version",
    "/sys/devices/virtual/dmi/id/bios_date",
    "/sys/devices/system/cpu/cpu0/microcode/version",
    "/proc/irq/default_smp_affinity",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/gpus/*/information",
    "/sys/module/nvidia/version",
    "/sys/module/nvme/parameters/*",
    "/sys/module/nvme_core/parameters/*",
    "/sys/fs/selinux/enforce",
    "/etc/default/grub",
    "/etc/kernel/cmdline",
    "/etc/tuned/active_profile",
    "/etc/tuned/profile_mode",
    "/usr/lib/os-release",
    "/boot/loader/loader.conf",
    "/boot/loader/entries/*.conf",
    "/boot/efi/loader/loader.conf",
    "/boot/efi/loader/entries/*.conf",
    "/run/ostree-booted",
)

DROP_INS = (
    "/etc/default/grub.d/*.cfg",
    "/etc/sysctl.conf",
    *(
        f"{top}/{folder}"
        for top in ("/etc", "/run", "/usr/local/lib", "/usr/lib")
        for folder in ("sysctl.d/*.conf", "tmpfiles.d/*.conf", "modules-load.d/*.conf", "modprobe.d/*.conf")
    ),
    *(f"{top}/udev/rules.d/*.rules" for top in ("/etc", "/run", "/usr/local/lib", "/usr/lib")),
    *(f"{top}/tuned/{folder}*/tuned.conf" for top in ("/etc", "/usr/lib") for folder in ("", "profiles/")),
)

# Which lines of a big file are kept.
REDUCED: Mapping[str, str] = {
    "/proc/mounts": r"\S+ \S+ hugetlbfs ",
    "/boot/grub/grub.cfg": r"\s*(menuentry|submenu|linux|initrd|set default=|\})",
    "/boot/grub2/grub.cfg": r"\s*(menuentry|submenu|linux|initrd|set default=|set kernelopts=|blscfg|\})",
    "/boot/grub2/grubenv": r"# GRUB Environment Block|saved_entry=|kernelopts=",
    "/boot/config-*": (
        r"(# )?CONFIG_(NUMA|HUGETLB\w*|TRANSPARENT_HUGEPAGE\w*|ARM64_\d+K_PAGES"
        r"|MQ_IOSCHED\w*|IOSCHED_BFQ|NVME_MULTIPATH)\b"
    ),
    "/usr/lib/modules/*/modules.builtin": r"\S*(iosched|bfq|deadline|nvme|virtio_blk)",
    "/usr/lib/modules/*/modules.dep": r"[^:]*(iosched|bfq|deadline|nvme|virtio_blk|nvidia|mlx5_core)[^:]*:",
    "/lib/modules/*/modules.builtin": r"\S*(iosched|bfq|deadline|nvme|virtio_blk)",
    "/lib/modules/*/modules.dep": r"[^:]*(iosched|bfq|deadline|nvme|virtio_blk|nvidia|mlx5_core)[^:]*:",
}

# Services whose units say something about a GPU machine; of those that are not NVIDIA's only that they are there.
SERVICES = (
    *("nvidia-*", "dcgm*", "docker", "containerd", "crio", "kubelet", "k3s*", "rke2-*", "slurmd", "nomad"),
    *("irqbalance", "tuned"),
)
PROGRAMS = (
    *("dockerd", "containerd", "crio", "podman", "apptainer", "k3s", "rke2", "nvidia-ctk", "cuda-checkpoint", "criu"),
    "nvidia-persistenced",
)
# What is kept as an empty file or folder: that it is there is all that anybody asks.
PRESENT = (
    *(f"{top}/systemd/system/{name}.service" for top in ("/etc", "/run", "/usr/lib", "/lib") for name in SERVICES),
    "/etc/systemd/system/multi-user.target.wants/tuned.service",
    *(f"{top}{folder}/{name}" for top in ("/usr/local", "/usr") for folder in ("/sbin", "/bin") for name in PROGRAMS),
    *(f"/var/lib/rancher/rke2/bin/{name}" for name in PROGRAMS),
    "/usr/lib/criu/cuda_plugin.so",
    "/sys/fs/cgroup/system.slice",
    *(f"/sys/fs/cgroup/system.slice/{name}.service" for name in SERVICES),
    *(
        "/var/lib/kubelet/config.yaml",
        "/etc/kubernetes/kubelet.conf",
        "/etc/slurm/slurm.conf",
        "/etc/nomad.d/nomad.hcl",
    ),
    *("/etc/rancher/k3s/config.yaml", "/etc/rancher/k3s/k3s.yaml", "/etc/rancher/rke2/config.yaml"),
    *("/run/nvidia/driver", "/run/nvidia/validations", "/usr/local/nvidia/toolkit", "/etc/nvidia-mig-manager"),
    *("/run/.containerenv", "/.dockerenv", "/run/systemd/container"),
)
PACKAGES = (
    *("docker-ce", "docker.io", "moby-engine", "containerd.io", "containerd", "moby-containerd", "cri-o", "podman"),
    *("apptainer", "nvidia-container-toolkit"),
)

FOLDERS = (
    "/etc/sysctl.d",
    "/etc/tmpfiles.d",
    "/etc/udev/rules.d",
    "/etc/modules-load.d",
    "/etc/default/grub.d",
    "/sys/devices/system/cpu",
    "/sys/firmware/efi",
    "/sys/module/kyber_iosched",
    "/sys/module/bfq",
    "/sys/module/mq_deadline",
    "/sys/module/nvidia",
    "/sys/module/nvidia_uvm",
    "/sys/module/nvidia_modeset",
    "/sys/module/nvidia_drm",
    "/sys/module/nvidia_peermem",
    "/sys/module/nvidia_fs",
    "/sys/module/gdrdrv",
    "/sys/module/nouveau",
    "/usr/lib/sysctl.d",
    "/usr/lib/tmpfiles.d",
    "/usr/lib/udev/rules.d",
)

LINKS = ("/lib", "/etc/os-release", "/etc/grub2.cfg", "/etc/grub2-efi.cfg", "/etc/sysctl.d/*", "/sys/class/dmi/id")

BLOCK_FILES = (
    *("alignment_offset", "capability", "dev", "ext_range", "hidden", "range", "removable", "ro", "size", "uevent"),
    *("serial", "wwid", "nsid", "eui", "nguid", "uuid", "csi", "ana_grpid", "ana_state", "cache_type"),
    *("queue/*", "queue/iosched/*", "dm/name", "dm/uuid", "dm/suspended"),
    *("md/level", "md/raid_disks", "md/array_state", "md/metadata_version", "md/chunk_size"),
    *("*/partition", "*/size", "*/start", "*/dev", "*/ro", "*/uevent"),
)
BLOCK_LINKS = ("device", "subsystem", "bdi", "slaves/*", "holders/*", "*/subsystem", "*/holders/*")

NVME_FILES = (
    *("model", "serial", "firmware_rev", "address", "transport", "state", "cntlid", "cntrltype", "numa_node"),
    *("queue_count", "sqsize", "subsysnqn", "dev", "uevent", "kato", "dctype"),
)
SUBSYSTEM_FILES = ("model", "serial", "firmware_rev", "subsysnqn", "subsystype", "iopolicy")

PCI_FILES = (
    *("vendor", "device", "subsystem_vendor", "subsystem_device", "class", "revision", "numa_node", "local_cpulist"),
    *("irq", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "msi_irqs/*"),
)
# Mass storage, network, display, PCI bridges, bridges of other kinds (NVSwitch), processing accelerators.
PCI_CLASSES = ("0x01", "0x02", "0x03", "0x0604", "0x0680", "0x12")

NET_FILES = (
    *("address", "mtu", "operstate", "type", "addr_assign_type", "dev_id", "dev_port"),
    *("flags", "carrier", "carrier_changes", "carrier_up_count", "carrier_down_count", "speed", "phys_port_name"),
    *(f"statistics/{name}" for name in ("rx_crc_errors", "rx_errors", "tx_errors", "rx_missed_errors")),
    "statistics/tx_carrier_errors",
)
RDMA_FILES = (
    *("fw_ver", "board_id", "hca_type", "node_type"),
    *(f"ports/*/{name}" for name in ("link_layer", "state", "phys_state", "rate", "gid_attrs/ndevs/0")),
    *("ports/*/counters/*", "ports/*/hw_counters/*"),
)

BLOCK_LEFT_OUT = ("loop*", "ram*", "zram*", "sr*", "fd*")
NET_LEFT_OUT = ("lo", "veth*", "docker*", "br-*", "cni*", "cali*", "tap*", "tun*", "bonding_masters")


class Recorder:
    """One recording: what has been read, and the values that took the place of those that name a machine."""

    def __init__(self, source: Source, *, host_name: str = "") -> None:
        self._source = source
        self._host_name = host_name
        self._values: Dict[Tuple[str, str], str] = {}
        self.tree: Tree = {}
        self.refused: List[str] = []

    def record(self) -> Tree:
        for pattern in LINKS:
            self._link(pattern)
        for pattern in PLAIN:
            self._file(pattern)
        for pattern in DROP_INS:
            self._drop_in(pattern)
        for pattern, kept in REDUCED.items():
            self._reduced(pattern, kept)
        self._cpuinfo()
        self._interrupts()
        self._requested()
        self._packages()
        self._devices("/sys/block/*", BLOCK_FILES, BLOCK_LINKS, left_out=BLOCK_LEFT_OUT)
        self._devices("/sys/class/nvme/*", NVME_FILES, ("device", "subsystem"))
        self._devices("/sys/class/nvme-subsystem/*", SUBSYSTEM_FILES, ("subsystem", "nvme*"))
        self._pci()
        self._devices("/sys/class/net/*", NET_FILES, ("device", "subsystem"), left_out=NET_LEFT_OUT)
        self._devices("/sys/class/infiniband/*", RDMA_FILES, ("device", "subsystem"))
        for pattern in PRESENT:
            self._present(pattern)
        for folder in FOLDERS:
            if self._source.is_folder(folder):
                self.tree.setdefault(self._source.resolve(folder), Entry(DIRECTORY))
        self._close_links()
        self.tree = _tidy(self.tree)
        return self.tree

    def _devices(
        self, pattern: str, files: Sequence[str], links: Sequence[str], *, left_out: Sequence[str] = ()
    ) -> None:
        for path in self._source.glob(pattern):
            if any(fnmatch.fnmatchcase(os.path.basename(path), glob) for glob in left_out):
                continue
            self._link(path)
            real = self._source.resolve(path)
            for name in files:
                self._file(f"{real}/{name}")
            for name in links:
                self._link(f"{real}/{name}")

    def _pci(self) -> None:
        for path in self._source.glob("/sys/bus/pci/devices/*"):
            real = self._source.resolve(path)
            if self._source.read(f"{real}/class").startswith(PCI_CLASSES):
                self._devices(path, PCI_FILES, ("driver", "subsystem"))

    def _link(self, pattern: str) -> None:
        for path in self._source.glob(pattern):
            real = f"{self._source.resolve(os.path.dirname(path)).rstrip('/')}/{os.path.basename(path)}"
            target = self._source.link(real)
            if target is not None:
                self.tree[real] = Entry(LINK, target)

    def _file(self, pattern: str) -> None:
        for path in self._source.glob(pattern):
            self._keep(path, lambda text: text)

    def _drop_in(self, pattern: str) -> None:
        for path in self._source.glob(pattern):
            folder = self._source.resolve(os.path.dirname(path))
            target = self._source.link(f"{folder}/{os.path.basename(path)}")
            if target is not None and self._source.resolve(path) == "/dev/null":
                self.tree[f"{folder}/{os.path.basename(path)}"] = Entry(LINK, target)
            else:
                self._keep(path, lambda text: text if RELEVANT.search(text) else None)

    def _reduced(self, pattern: str, kept: str) -> None:
        expression = re.compile(kept)

        def reduce(text: str) -> str:
            return "".join(line for line in text.splitlines(keepends=True) if expression.match(line))

        for path in self._source.glob(pattern):
            self._keep(path, reduce)

    def _cpuinfo(self) -> None:
        """The first CPU, and of its flags those that decide about pages and machines inside machines."""

        def reduce(text: str) -> str:
            lines = []
            for line in text.split("\n\n")[0].splitlines():
                key, _colon, value = line.partition(":")
                word = key.strip()
                if word in ("processor", "vendor_id", "model name", "CPU implementer", "CPU part"):
                    lines.append(f"{line}\n")
                elif word == "flags":
                    flags = [flag for flag in value.split() if flag in ("pse", "pdpe1gb", "hypervisor")]
                    lines.append(f"{key}: {' '.join(flags)}\n")
            return "".join(lines) + "\n"

        for path in self._source.glob("/proc/cpuinfo"):
            self._keep(path, reduce)

    def _interrupts(self) -> None:
        """The counts of all CPUs as one: a column for each would be most of the tree."""

        def one(match: re.Match[str]) -> str:
            return f"{match[1]}:{sum(map(int, match[2].split())):11d}{match[3]}"

        def reduce(text: str) -> str:
            lines = text.splitlines()[1:]
            kept = [re.sub(r"(\s*\w+):((?: +\d+)+)(.*)", one, line) for line in lines]
            return "".join(f"{line}\n" for line in ("            CPU0", *kept))

        for path in self._source.glob("/proc/interrupts"):
            self._keep(path, reduce)

    def _requested(self) -> None:
        """Where the interrupts go, whether they can be moved (the mode), and their handlers, which are folders."""
        for path in self._source.glob("/proc/irq/*/smp_affinity_list"):
            self._keep(path, lambda text: text)
            status = self._source.status(path)
            if status is not None and path in self.tree:
                self.tree[path] = replace(self.tree[path], mode=status.st_mode & 0o7777)
        for path in self._source.glob("/proc/irq/*/*"):
            if self._source.is_folder(path):
                self.tree[path] = Entry(DIRECTORY)

    def _packages(self) -> None:
        """Of the packages of dpkg the few that matter, with state and version."""

        def reduce(text: str) -> str:
            kept = []
            for entry in text.split("\n\n"):
                lines = [line for line in entry.splitlines() if re.match(r"(Package|Status|Version): ", line)]
                if lines and lines[0].partition(": ")[2] in PACKAGES:
                    kept.append("".join(f"{line}\n" for line in lines))
            return "\n".join(kept)

        for path in self._source.glob("/var/lib/dpkg/status"):
            self._keep(path, reduce)

    def _present(self, pattern: str) -> None:
        for path in self._source.glob(pattern):
            self._link(path)
            real = self._source.resolve(path)
            if self._source.is_folder(real):
                self.tree.setdefault(real, Entry(DIRECTORY))
            elif self._source.is_file(real):
                self.tree.setdefault(real, Entry(FILE))

    def _keep(self, path: str, reduce: Callable[[str], Optional[str]]) -> None:
        # /proc/mounts is a link into the folder of the process that reads it.
        real = path if path.startswith("/proc/") else self._source.resolve(path)
        status = self._source.status(real)
        if status is None or not stat.S_ISREG(status.st_mode):
            return
        if not status.st_mode & 0o444:
            self.tree[real] = Entry(FILE, "", status.st_mode & 0o7777)
            return
        try:
            text = reduce(self._source.read(real))
        except OSError as error:
            # Some tunables refuse to be read where the device has no use for them (queue/wbt_lat_usec).
            self.refused.append(f"{real}: {errno.errorcode.get(error.errno or 0, 'error')}")
            return
        if text is not None:
            # The names of boot loader entries begin with the id of the machine.
            key = self._without_machine_id(real) if real.startswith("/boot/") else real
            self.tree[key] = Entry(FILE, self._anonymous(real, text))

    def _close_links(self) -> None:
        """Let every link of the tree have its target in it, as a folder with nothing more to see where need be."""
        for path, entry in list(self.tree.items()):
            if entry.kind != LINK:
                continue
            target = self._source.resolve(path)
            if target == "/dev/null" or target in self.tree or self._has_below(target):
                continue
            if self._source.is_folder(target):
                self.tree[target] = Entry(DIRECTORY)
            else:
                self._keep(target, lambda text: text)
                if target not in self.tree:
                    del self.tree[path]

    def _has_below(self, folder: str) -> bool:
        return any(path.startswith(f"{folder}/") for path in self.tree)

    # Anonymous values are recognised and stay, so that a recording of a recording is the same.

    def _anonymous(self, path: str, text: str) -> str:
        name = os.path.basename(path)
        if name == "serial":
            text = self._replace(r"\A(?!ANON)\S.*?(?= *\n?\Z)", "serial", text, self._serial)
        elif name == "wwid":
            text = self._replace(r"\A(?!eui\.0{20}|nvme\.0{4}-)\S+", "wwid", text, lambda n, _v: f"eui.{n:032d}")
        elif name in ("eui", "nguid"):
            text = self._replace(r"\A(?!(?:00[ -]?){3})[0-9a-f -]{16,}", name, text, self._hexadecimal)
        elif name == "subsysnqn":
            text = self._replace(
                r"\A(?!nqn\.2014-08\.org\.nvmexpress:anonymous)\S+",
                "nqn",
                text,
                lambda n, _v: f"nqn.2014-08.org.nvmexpress:anonymous{n:06d}",
            )
        elif name == "cmdline":
            text = self._replace(
                r"(?<=\b(?:ip|ds)=)(?!anonymous\b)\S+|(?<=\bnfsroot=)(?!anonymous\b)\S+"
                r"|(?<=\bhostname=)(?!anonymous\b)\S+|(?<=\burl=)(?!anonymous\b)\S+",
                "parameter",
                text,
                lambda _n, _v: "anonymous",
            )
        text = self._replace(
            r"\b(?!00000000-0000-4000-8000-)[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b",
            "uuid",
            text,
            lambda n, _v: f"00000000-0000-4000-8000-{n:012d}",
        )
        text = self._replace(
            r"\b(?!02:00:00:00:|00:00:00:00:00:00|ff:ff:ff:ff:ff:ff)[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b",
            "mac",
            text,
            lambda n, _v: f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}",
        )
        if path.startswith("/boot/"):
            text = self._without_machine_id(text)
        if len(self._host_name) > 2 and not path.startswith("/proc/version"):
            text = re.sub(rf"\b{re.escape(self._host_name)}\b", "node", text)
        return text

    def _without_machine_id(self, text: str) -> str:
        pattern = r"(?<![0-9a-f])(?!0{20})[0-9a-f]{32}(?![0-9a-f])"
        return self._replace(pattern, "machine", text, lambda n, _v: f"{n:032d}")

    def _replace(self, pattern: str, kind: str, text: str, make: Callable[[int, str], str]) -> str:
        def one(match: re.Match[str]) -> str:
            key = (kind, match[0])
            if key not in self._values:
                number = 1 + sum(1 for other, _value in self._values if other == kind)
                self._values[key] = make(number, match[0])
            return self._values[key]

        return re.sub(pattern, one, text)

    @staticmethod
    def _serial(number: int, value: str) -> str:
        return f"ANON{number:0{max(6, len(value) - 4)}d}"

    @staticmethod
    def _hexadecimal(number: int, value: str) -> str:
        digits = list(f"{number:0{sum(1 for character in value if character not in ' -')}x}")
        return "".join(character if character in " -" else digits.pop(0) for character in value)


def record(root: Union[Path, str] = "/") -> Tree:
    """What the rooms may read of a machine, or of a tree below ``root``, without what names one machine."""
    host_name = os.uname().nodename if os.path.realpath(root) == "/" else ""
    return Recorder(Source(str(root)), host_name=host_name).record()


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the trees that are here")
    expansion = commands.add_parser("expand", help="make a tree below a folder")
    expansion.add_argument("name", help="a name from 'list', or a path of a .tree file")
    expansion.add_argument("folder", help="an empty or missing folder")
    recording = commands.add_parser("record", help="write the tree of a machine to standard output")
    recording.add_argument("--root", default="/", help="a tree in place of this machine")
    recording.add_argument("--about", default="what machine this is, and who recorded it when", help="provenance")
    options = parser.parse_args(arguments)
    try:
        if options.command == "list":
            sys.stdout.write("".join(f"{name}\n" for name in names()))
        elif options.command == "expand":
            path = Path(options.name)
            tree = parse(path.read_text(encoding="utf-8"), path.name) if path.suffix == SUFFIX else load(options.name)
            expand(tree, options.folder)
        else:
            host_name = os.uname().nodename if os.path.realpath(options.root) == "/" else ""
            recorder = Recorder(Source(options.root), host_name=host_name)
            tree = recorder.record()
            comments = [options.about, *(f"not readable: {line}" for line in recorder.refused)]
            sys.stdout.write(render(tree, comments))
    except (OSError, TreeError) as error:
        sys.stderr.write(f"nodetree: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
