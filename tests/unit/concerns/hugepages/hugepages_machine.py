# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with NUMA nodes whose huge pages follow the kernel's rules, and a GRUB that generates its menu."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, KernelFiles, build

NODES = "/sys/devices/system/node"
THP = "/sys/kernel/mm/transparent_hugepage"
GLOBAL = "/sys/kernel/mm/hugepages"
TMPFILES = "/etc/tmpfiles.d/00-gpufleet-hugepages.conf"
DROP_IN = "/etc/default/grub.d/gpufleet-hugepages.cfg"
RECORD = "/var/lib/gpufleet/baseline/hugepages.json"
SIZES = (2048, 1048576)
GRUB_DEFAULT = 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n'


def params(**declared: Any) -> Dict[str, Any]:
    """Complete parameters, as argument validation would hand them over."""
    return {
        "state": "present",
        "immediate": True,
        "permanent": True,
        "strict": False,
        "accepted": [],
        "pools": None,
        "transparent": None,
        "on_shortage": "fail",
        "drop_caches": False,
        **declared,
    }


def pool_path(node: Optional[int], size_kb: int = 2048, name: str = "nr") -> str:
    root = GLOBAL if node is None else f"{NODES}/node{node}/hugepages"
    return f"{root}/hugepages-{size_kb}kB/{name}_hugepages"


def tree(
    *,
    nodes: Sequence[int] = (0, 1),
    cpuless: Sequence[int] = (),
    memory_mib: int = 65536,
    kernel: str = "6.8.0-45-generic",
    command_line: str = "BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro quiet",
    thp: bool = True,
    mthp: Sequence[int] = (64, 2048),
    sizes: Sequence[int] = SIZES,
) -> Dict[str, str]:
    """The files of such a machine, without a boot loader."""
    total_kb = memory_mib * 1024
    files = {
        "/proc/meminfo": f"MemTotal: {total_kb * max(len(nodes), 1)} kB\nMemFree: 1 kB\nHugepagesize: 2048 kB\n",
        "/proc/cmdline": f"{command_line}\n",
        "/proc/sys/kernel/osrelease": f"{kernel}\n",
        "/proc/sys/vm/nr_hugepages": "0\n",
        "/proc/sys/vm/compact_memory": "",
        "/proc/sys/vm/drop_caches": "0\n",
        "/etc/os-release": "ID=debian\n",
        "/var/lib/dpkg/status": "",
    }
    for size_kb in sizes:
        for node in (None, *nodes):
            for name in ("nr", "free", "surplus") + (("resv",) if node is None else ()):
                files[pool_path(node, size_kb, name)] = "0\n"
    for node in nodes:
        files[f"{NODES}/node{node}/cpulist"] = "\n" if node in cpuless else f"{node * 8}-{node * 8 + 7}\n"
        files[f"{NODES}/node{node}/meminfo"] = (
            f"Node {node} MemTotal:       {total_kb} kB\nNode {node} MemFree:        {total_kb // 2} kB\n"
        )
        files[f"{NODES}/node{node}/compact"] = ""
    if thp:
        files[f"{THP}/enabled"] = "[always] madvise never\n"
        files[f"{THP}/defrag"] = "always defer defer+madvise [madvise] never\n"
        files[f"{THP}/shmem_enabled"] = "always within_size advise [never] deny force\n"
        files[f"{THP}/hpage_pmd_size"] = "2097152\n"
        for name, value in (
            ("defrag", 1),
            ("pages_to_scan", 4096),
            ("scan_sleep_millisecs", 10000),
            ("alloc_sleep_millisecs", 60000),
            ("max_ptes_none", 511),
            ("max_ptes_swap", 64),
            ("max_ptes_shared", 256),
        ):
            files[f"{THP}/khugepaged/{name}"] = f"{value}\n"
        for size_kb in mthp:
            files[f"{THP}/hugepages-{size_kb}kB/enabled"] = "always inherit madvise [never]\n"
            files[f"{THP}/hugepages-{size_kb}kB/shmem_enabled"] = "always inherit within_size advise [never]\n"
    return files


def machine(
    root: Path,
    *,
    extra: Optional[Mapping[str, str]] = None,
    links: Optional[Mapping[str, str]] = None,
    limits: Optional[Mapping[int, int]] = None,
    grub: bool = True,
    **shape: Any,
) -> FakeHost:
    """The machine. ``limits`` is how many pages of 2M a node can give at most, until its memory is compacted."""
    host = build(root, {**tree(**shape), **(grub_files() if grub else {}), **(extra or {})}, links)
    host.files.rules += kernel_rules(dict(limits or {}))
    if grub:
        host.commands.programs["update-grub"] = update_grub(host)
        update_grub(host)(["update-grub"])
        host.files.log.clear()
        host.files.reads.clear()
    return host


def kernel_rules(limits: Dict[int, int]) -> Any:
    """What the kernel does with a number of pages: fewer where memory is short, pages in use become surplus ones."""

    def resize(files: KernelFiles, match: Any, value: str) -> None:
        node, size_kb = int(match[1]) if match[1] else None, int(match[2])
        old = number(files, pool_path(node, size_kb))
        free = number(files, pool_path(node, size_kb, "free"))
        surplus = number(files, pool_path(node, size_kb, "surplus"))
        wanted, in_use, lasting = int(value), old - free, old - surplus
        if node is not None and size_kb == 2048 and node in limits:
            wanted = max(min(wanted, limits[node]), min(wanted, lasting))
        pages = max(wanted, in_use)
        files.store(pool_path(node, size_kb), str(pages))
        files.store(pool_path(node, size_kb, "free"), str(pages - in_use))
        files.store(pool_path(node, size_kb, "surplus"), str(pages - wanted))
        if node is not None:
            whole = number(files, pool_path(None, size_kb)) + pages - old
            files.store(pool_path(None, size_kb), str(whole))
            files.store(
                pool_path(None, size_kb, "free"), str(number(files, pool_path(None, size_kb, "free")) + pages - old)
            )
            if size_kb == 2048:
                files.store("/proc/sys/vm/nr_hugepages", str(whole))

    def command(files: KernelFiles, match: Any, value: str) -> None:
        return None

    return [
        (rf"{NODES}/node(\d+)/hugepages/hugepages-(\d+)kB/nr_hugepages", resize),
        (rf"{GLOBAL}()/hugepages-(\d+)kB/nr_hugepages", resize),
        (r"/proc/sys/vm/(compact_memory|drop_caches)", command),
        (rf"{NODES}/node\d+/compact", command),
    ]


def grub_files() -> Dict[str, str]:
    return {
        "/etc/default/grub": GRUB_DEFAULT,
        "/usr/sbin/grub-mkconfig": "for x in ${sysconfdir}/default/grub.d/*.cfg ; do\n",
        "/boot/grub/grub.cfg": "",
    }


def update_grub(host: FakeHost) -> Any:
    """update-grub, as far as it matters: the shell fragments give variables, those give the menu."""

    def run(argv: Sequence[str]) -> Completed:
        variables: Dict[str, str] = {}
        files = host.files
        drop_ins = [f"/etc/default/grub.d/{name}" for name in files.names("/etc/default/grub.d") if name[-4:] == ".cfg"]
        for path in ["/etc/default/grub", *drop_ins]:
            for name, value in re.findall(r'^(\w+)="?((?:\\.|[^"\\\n])*)"?', files.read(path), re.MULTILINE):
                expanded = re.sub(r"\$(\w+)", lambda match: variables.get(match[1], ""), value)
                variables[name] = expanded.replace('\\"', '"')
        words = f"{variables['GRUB_CMDLINE_LINUX']} {variables['GRUB_CMDLINE_LINUX_DEFAULT']}"
        line = f"/vmlinuz-6.8 root=/dev/vda1 ro {' '.join(words.split())}"
        recovery = f"/vmlinuz-6.8 root=/dev/vda1 ro single {' '.join(variables['GRUB_CMDLINE_LINUX'].split())}"
        menu = (
            'set default="0"\n'
            f"menuentry 'Debian GNU/Linux' $menuentry_id_option 'gnulinux-simple' {{\n\tlinux\t{line}\n}}\n"
            f"submenu 'Advanced' $menuentry_id_option 'gnulinux-advanced' {{\n"
            f"\tmenuentry 'Recovery' $menuentry_id_option 'gnulinux-recovery' {{\n\t\tlinux\t{recovery}\n\t}}\n}}\n"
        )
        (Path(files.root) / "boot/grub/grub.cfg").write_text(menu)
        return Completed(0, "done\n", "")

    return run


def number(files: KernelFiles, path: str) -> int:
    return int(files.read(path))


def pages(host: FakeHost, node: Optional[int], size_kb: int = 2048) -> int:
    """What the kernel says."""
    return number(host.files, pool_path(node, size_kb))


def set_pool(host: FakeHost, node: int, *, total: int, free: int, surplus: int = 0, size_kb: int = 2048) -> None:
    """Pages that are there before anybody declares something."""
    for name, value in (("nr", total), ("free", free), ("surplus", surplus)):
        host.files.store(pool_path(node, size_kb, name), str(value))
        path = pool_path(None, size_kb, name)
        host.files.store(path, str(number(host.files, path) + value))
    if size_kb == 2048:
        host.files.store("/proc/sys/vm/nr_hugepages", str(pages(host, None)))
