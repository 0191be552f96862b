# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The recorded machines in tests/nodes and the tool that reads, expands and records them."""

from __future__ import annotations

import builtins
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux import cpulist
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedFiles

pytestmark = pytest.mark.once

NAMES = nodetree.names()
NODE = "/sys/devices/system/node"
THP = "/sys/kernel/mm/transparent_hugepage"


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """Every tree, expanded once; tests only read."""
    top = tmp_path_factory.mktemp("nodes")
    return {name: nodetree.expand(name, top / name) for name in NAMES}


def files_of(trees: Dict[str, Path], name: str) -> RecordedFiles:
    return RecordedFiles(str(trees[name]))


def test_the_kinds_of_machines_that_the_rooms_are_tested_on_are_here() -> None:
    assert set(NAMES) >= {
        *("hgx-2socket", "single-socket", "vm-without-numa", "grace", "cxl"),
        *("nvme-multipath", "eight-nodes", "nvme-64", "rhel9-bls", "conflicts"),
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_of_an_expanded_tree_is_the_tree(trees: Dict[str, Path], name: str) -> None:
    assert nodetree.render(nodetree.record(trees[name])) == nodetree.render(nodetree.load(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_text_form_without_repetitions_means_the_same_tree(name: str) -> None:
    tree = nodetree.load(name)
    assert nodetree.parse(nodetree.render(tree)) == tree


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_to_something_inside_the_tree(trees: Dict[str, Path], name: str) -> None:
    files = files_of(trees, name)
    dangling = [
        path
        for path, entry in nodetree.load(name).items()
        if entry.kind == nodetree.LINK and files.resolve(path) != "/dev/null" and not files.exists(path)
    ]
    assert dangling == []


@pytest.mark.parametrize("name", NAMES)
def test_links_of_sysfs_stay_in_sysfs(trees: Dict[str, Path], name: str) -> None:
    files = files_of(trees, name)
    links = [p for p, entry in nodetree.load(name).items() if entry.kind == nodetree.LINK and p.startswith("/sys/")]
    assert links
    assert [path for path in links if not files.resolve(path).startswith("/sys/")] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_says_where_it_comes_from(name: str) -> None:
    first = (nodetree.FOLDER / f"{name}{nodetree.SUFFIX}").read_text().splitlines()[:8]
    assert sum(len(line) for line in first if line.startswith("# ")) > 80


@pytest.mark.parametrize("name", NAMES)
def test_bracketed_tunables_have_one_choice_and_queues_that_cannot_choose_say_none(
    trees: Dict[str, Path], name: str
) -> None:
    files = files_of(trees, name)
    for path, entry in nodetree.load(name).items():
        if path.startswith(f"{THP}/") and path.endswith(("enabled", "hugepage/defrag")):
            assert len(re.findall(r"\[\S+\]", entry.text)) == 1, path
        elif path.endswith("/queue/scheduler"):
            assert re.fullmatch(r"none\n|(\[?[a-z-]+\]? )*\[[a-z-]+\]( \[?[a-z-]+\]?)* ?\n", entry.text), path
    assert files.read(f"{THP}/enabled").endswith("\n")


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_numbers_and_end_with_a_newline(name: str) -> None:
    pattern = re.compile(
        r".*/(nr_\w*hugepages\w*|free_hugepages|surplus_hugepages|read_ahead_kb|nr_requests|numa_node)"
    )
    wrong = [
        path
        for path, entry in nodetree.load(name).items()
        if pattern.fullmatch(path) and not re.fullmatch(r"-?\d+\n", entry.text)
    ]
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_every_disk_is_a_link_into_the_devices_and_knows_its_parent(trees: Dict[str, Path], name: str) -> None:
    files = files_of(trees, name)
    disks = files.names("/sys/block")
    assert disks
    for disk in disks:
        real = files.resolve(f"/sys/block/{disk}")
        assert real.startswith("/sys/devices/"), disk
        assert files.resolve(f"/sys/block/{disk}/subsystem") == "/sys/class/block"
        assert files.exists(f"/sys/block/{disk}/queue/scheduler")
        if disk.startswith("nvme"):
            parent = files.resolve(f"/sys/block/{disk}/device")
            assert real == f"{parent}/{disk}"
            assert len(files.read(f"{parent}/model")) == 41


@pytest.mark.parametrize("name", [name for name in NAMES if name != "vm-without-numa"])
def test_nodes_agree_with_their_lists_masks_distances_and_pages(trees: Dict[str, Path], name: str) -> None:
    files = files_of(trees, name)
    online = sorted(cpulist.parse(files.read(f"{NODE}/online")))
    assert sorted(int(n[4:]) for n in files.names(NODE) if re.fullmatch(r"node\d+", n)) == online
    seen: List[int] = []
    for number in online:
        folder = f"{NODE}/node{number}"
        cpus = cpulist.parse(files.read(f"{folder}/cpulist"))
        mask = int(files.read(f"{folder}/cpumap").strip().replace(",", ""), 16)
        assert mask == sum(1 << cpu for cpu in cpus)
        assert (number in cpulist.parse(files.read(f"{NODE}/has_cpu"))) == bool(cpus)
        distances = [int(word) for word in files.read(f"{folder}/distance").split()]
        assert len(distances) == len(online)
        assert distances[online.index(number)] == 10
        meminfo = files.read(f"{folder}/meminfo")
        total = re.search(rf"^Node {number} MemTotal: +(\d+) kB$", meminfo, re.MULTILINE)
        assert total
        assert (number in cpulist.parse(files.read(f"{NODE}/has_memory"))) == (int(total[1]) > 0)
        seen.extend(cpus)
    assert cpulist.parse(files.read("/sys/devices/system/cpu/online")) == frozenset(seen)
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "vm-without-numa"])
def test_the_pages_of_the_nodes_add_up_to_those_of_the_machine(trees: Dict[str, Path], name: str) -> None:
    files = files_of(trees, name)
    meminfo = files.read("/proc/meminfo")
    default = int(re.findall(r"^Hugepagesize: +(\d+) kB$", meminfo, re.MULTILINE)[0])
    for size in files.names("/sys/kernel/mm/hugepages"):
        total = int(files.read(f"/sys/kernel/mm/hugepages/{size}/nr_hugepages"))
        nodes = [f"{NODE}/{n}/hugepages/{size}/nr_hugepages" for n in files.names(NODE)]
        assert total == sum(int(text) for text in map(files.read_optional, nodes) if text)
        if size == f"hugepages-{default}kB":
            assert int(files.read("/proc/sys/vm/nr_hugepages")) == total
            assert int(re.findall(r"^HugePages_Total: +(\d+)$", meminfo, re.MULTILINE)[0]) == total


def test_a_vm_without_numa_has_no_nodes_at_all(trees: Dict[str, Path]) -> None:
    files = files_of(trees, "vm-without-numa")
    assert files.names(NODE) == ()
    assert not files.exists("/sys/block/nvme0n1/device/device/numa_node")
    assert files.read("/sys/block/nvme0n1/device/numa_node") == "-1\n"


def test_paths_of_a_multipath_drive_are_hidden_and_its_head_has_no_scheduler(trees: Dict[str, Path]) -> None:
    files = files_of(trees, "nvme-multipath")
    for disk, hidden, scheduler in (
        ("nvme0n1", "0\n", "none\n"),
        ("nvme0c0n1", "1\n", "[none] mq-deadline \n"),
        ("nvme0c1n1", "1\n", "[none] mq-deadline \n"),
        ("md127", "0\n", "none\n"),
    ):
        assert files.read(f"/sys/block/{disk}/hidden") == hidden
        assert files.read(f"/sys/block/{disk}/queue/scheduler") == scheduler
    assert files.names("/sys/block/md127/slaves") == ("nvme2n1", "nvme3n1")


def test_reading_a_recorded_tree_opens_nothing_outside_of_it(
    trees: Dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    outside: List[str] = []

    def trap(module: Any, name: str) -> None:
        original = getattr(module, name)

        def watched(path: Any, *arguments: Any, **keywords: Any) -> Any:
            if isinstance(path, (str, Path)) and str(root) not in str(path):
                outside.append(f"{name} {path}")
            return original(path, *arguments, **keywords)

        monkeypatch.setattr(module, name, watched)

    root = trees["conflicts"]
    tree = nodetree.load("conflicts")
    files = RecordedFiles(str(root))
    for name in ("open", "listdir", "stat", "access"):
        trap(os, name)
    trap(builtins, "open")
    for path, entry in tree.items():
        if files.exists(path) and entry.kind == nodetree.FILE:
            files.read(path)
        files.names(os.path.dirname(path))
        files.writable(path)
    nodetree.record(root)
    monkeypatch.undo()
    assert outside == []


FORMAT: List[Tuple[str, Dict[str, nodetree.Entry]]] = [
    ("/a = x\n", {"/a": nodetree.Entry(nodetree.FILE, "x\n")}),
    ("/a := x\n", {"/a": nodetree.Entry(nodetree.FILE, "x")}),
    ("/a =\n", {"/a": nodetree.Entry(nodetree.FILE, "\n")}),
    ("/a :=\n", {"/a": nodetree.Entry(nodetree.FILE, "")}),
    ("/a 0200 :=\n", {"/a": nodetree.Entry(nodetree.FILE, "", 0o200)}),
    ("/a = x\\x20\n", {"/a": nodetree.Entry(nodetree.FILE, "x \n")}),
    ("/a = \\t\\\\n\\xc3\\xa9\\xff\n", {"/a": nodetree.Entry(nodetree.FILE, "\t\\né\udcff\n")}),
    ("/a <<\n|x\n|\n|{y}\n", {"/a": nodetree.Entry(nodetree.FILE, "x\n\n{y}\n")}),
    ("/a -> ../b c\n", {"/a": nodetree.Entry(nodetree.LINK, "../b c")}),
    ("/a/\n", {"/a": nodetree.Entry(nodetree.DIRECTORY)}),
    ("/a/\n/a/b = 1\n", {"/a/b": nodetree.Entry(nodetree.FILE, "1\n")}),
    ("# note\n\n@each n in 9..10, w in x y\n/{w}{n:02x} = {n*2+1}\n@end\n", {
        "/x09": nodetree.Entry(nodetree.FILE, "19\n"), "/y0a": nodetree.Entry(nodetree.FILE, "21\n"),
    }),
    ("/a <<\n|x\n@each n in 1..2\n|y{n}\n@each m in 0..1\n|z{n*2+m}\n@end\n@end\n|{y}\n/b = 1\n", {
        "/a": nodetree.Entry(nodetree.FILE, "x\ny1\nz2\nz3\ny2\nz4\nz5\n{y}\n"),
        "/b": nodetree.Entry(nodetree.FILE, "1\n"),
    }),
    ("/a <<\n|x\n@each n in 1..2\n@each m in 3\n/b{n} <<\n|y{m}\n@end\n@end\n", {
        "/a": nodetree.Entry(nodetree.FILE, "x\n"),
        "/b1": nodetree.Entry(nodetree.FILE, "y3\n"),
        "/b2": nodetree.Entry(nodetree.FILE, "y3\n"),
    }),
    ("@each n in 1..2\n@each m in 0..1\n@at /p{n}\n./q{m} = {n%2}\n@end\n@end\n", {
        f"/p{n}/q{m}": nodetree.Entry(nodetree.FILE, f"{n % 2}\n") for n in (1, 2) for m in (0, 1)
    }),
]  # fmt: skip


@pytest.mark.parametrize(("text", "tree"), FORMAT)
def test_each_form_of_a_line_means_what_the_readme_says(text: str, tree: Dict[str, nodetree.Entry]) -> None:
    assert nodetree.parse(text) == tree
    assert nodetree.parse(nodetree.render(tree)) == tree


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = x\n", "tree, line 1: is neither a file, a link, a folder nor a comment: a = x"),
        ("/a = x\n/a = y\n", "tree, line 2: names a path for the second time: /a = y"),
        ("/a/../b = x\n", "tree, line 1: is not an absolute path in its shortest form: /a/../b = x"),
        ("./a = x\n", "tree, line 1: is neither a file, a link, a folder nor a comment: ./a = x"),
        ("/a = \\q\n", "tree, line 1: has an unknown escape \\q: /a = \\q"),
        ("@each n in 0..1\n/a{n} = x\n", "tree, line 1: has no @end: @each n in 0..1"),
        ("@each n in 0..1, m in 5\n@end\n", "tree, line 1: has lists of different lengths: @each n in 0..1, m in 5"),
        (
            "@each n in 0..1\n/a{o} = x\n@end\n",
            "tree, line 2: has an expression that is not a sum of its values: /a{o} = x",
        ),
        ("@each n in 0..1\n/a{n.real} = x\n@end\n", "expression that is not a sum of its values"),
        ("/a 0644 -> b\n", "tree, line 1: gives a link a mode: /a 0644 -> b"),
        ("/a = x\n/a/b = y\n", "/a is a file and has something in it"),
    ],
)
def test_a_line_that_means_nothing_is_refused_with_its_number(text: str, message: str) -> None:
    with pytest.raises(nodetree.TreeError, match=re.escape(message)):
        nodetree.parse(text)


def test_a_tree_is_expanded_only_into_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(nodetree.TreeError, match="is not empty"):
        nodetree.expand("grace", tmp_path)
    assert os.listdir(tmp_path) == ["mine"]


def test_an_unknown_tree_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(nodetree.TreeError, match=r"no tree 'hopper'; these are: .*grace"):
        nodetree.load("hopper")


NVME = "/sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0"
SECRETS = {
    "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=6a3e8d4c-93a1-4b6f-a1f0-0c5d2b9e7f11 ip=10.1.2.3::10.1.2.1 quiet\n",
    "/boot/loader/entries/4fd1c9e07a6b4d30b2aa51f3c8e9d702-5.14.conf": "options root=/dev/sda\n",
    "/boot/grub/grub.cfg": "# generated\n\tlinux /vmlinuz root=UUID=6a3e8d4c-93a1-4b6f-a1f0-0c5d2b9e7f11\n",
    "/etc/sysctl.d/10-net.conf": "net.ipv4.ip_forward = 1\n",
    "/etc/sysctl.d/20-huge.conf": "vm.nr_hugepages = 5\n",
    f"{NVME}/serial": "S64GNE0R123456      \n",
    f"{NVME}/subsysnqn": "nqn.1994-11.com.samsung:nvme:PM9A3:2.5-inch:S64GNE0R123456\n",
    f"{NVME}/model": "SAMSUNG MZQL23T8HCLS-00A07              \n",
    f"{NVME}/nvme0n1/wwid": "eui.36344730521234560025384500000001\n",
    f"{NVME}/nvme0n1/uuid": "36344730-5212-3456-0025-384500000001\n",
    f"{NVME}/nvme0n1/queue/scheduler": "[none] mq-deadline \n",
    "/sys/devices/virtual/net/eth0/address": "3c:ec:ef:12:34:56\n",
}
SECRET_WORDS = ("6a3e8d4c", "10.1.2", "4fd1c9e0", "S64GNE", "36344730", "3c:ec", "ip_forward", "generated")


def test_a_recording_names_no_serial_address_or_id_of_the_machine(tmp_path: Path) -> None:
    tree = {path: nodetree.Entry(nodetree.FILE, text) for path, text in SECRETS.items()}
    tree["/sys/block/nvme0n1"] = nodetree.Entry(nodetree.LINK, f"../..{NVME}/nvme0n1")
    tree["/sys/class/nvme/nvme0"] = nodetree.Entry(nodetree.LINK, f"../../..{NVME}")
    tree["/sys/class/net/eth0"] = nodetree.Entry(nodetree.LINK, "../../devices/virtual/net/eth0")
    first = nodetree.record(nodetree.expand(tree, tmp_path / "first"))
    text = nodetree.render(first)
    assert [word for word in SECRET_WORDS if word in text] == []
    assert first[f"{NVME}/serial"].text == "ANON0000000001      \n"
    assert first["/etc/sysctl.d/20-huge.conf"].text == "vm.nr_hugepages = 5\n"
    # The same value stays the same value, so that what refers to it still does.
    assert "UUID=00000000-0000-4000-8000-000000000001 ip=anonymous quiet" in first["/proc/cmdline"].text
    assert "UUID=00000000-0000-4000-8000-000000000001" in first["/boot/grub/grub.cfg"].text
    assert nodetree.record(nodetree.expand(first, tmp_path / "second")) == first


MANY_CPUS = """           CPU0       CPU1       CPU2
  24:          1          0         14  IO-APIC   5-edge      ttyS0
 301:     904113          2          0  PCI-MSIX-0000:18:00.0   1-edge      mlx5_comp0@pci:0000:18:00.0
 NMI:          3          3          4   Non-maskable interrupts
 ERR:          7
"""
ONE_COLUMN = """            CPU0
  24:         15  IO-APIC   5-edge      ttyS0
 301:     904115  PCI-MSIX-0000:18:00.0   1-edge      mlx5_comp0@pci:0000:18:00.0
 NMI:         10   Non-maskable interrupts
 ERR:          7
"""


def test_a_recording_adds_the_interrupts_of_all_cpus_up(tmp_path: Path) -> None:
    tree = {"/proc/interrupts": nodetree.Entry(nodetree.FILE, MANY_CPUS)}
    assert nodetree.record(nodetree.expand(tree, tmp_path / "one"))["/proc/interrupts"].text == ONE_COLUMN


def test_a_recording_notes_services_and_programs_without_what_is_in_them(tmp_path: Path) -> None:
    entry = nodetree.Entry
    tree = {
        "/lib": entry(nodetree.LINK, "usr/lib"),
        "/usr/lib/systemd/system/k3s.service": entry(nodetree.FILE, "[Service]\nEnvironment=K3S_TOKEN=secret\n"),
        "/usr/lib/systemd/system/ssh.service": entry(nodetree.FILE, "[Service]\n"),
        "/etc/systemd/system/docker.service": entry(nodetree.LINK, "/dev/null"),
        "/usr/bin/dockerd": entry(nodetree.FILE, "\x7fELF"),
        "/sys/fs/cgroup/system.slice/k3s.service/cgroup.procs": entry(nodetree.FILE, "12\n"),
        "/var/lib/dpkg/status": entry(
            nodetree.FILE, "Package: adduser\nStatus: s\n\nPackage: podman\nStatus: s\nDepends: x\nVersion: 4\n"
        ),
    }
    recorded = nodetree.record(nodetree.expand(tree, tmp_path / "one"))
    assert recorded == {
        "/lib": entry(nodetree.LINK, "usr/lib"),
        "/etc/systemd/system/docker.service": entry(nodetree.LINK, "/dev/null"),
        "/sys/fs/cgroup/system.slice/k3s.service": entry(nodetree.DIRECTORY),
        "/usr/bin/dockerd": entry(nodetree.FILE),
        "/usr/lib/systemd/system/k3s.service": entry(nodetree.FILE),
        "/var/lib/dpkg/status": entry(nodetree.FILE, "Package: podman\nStatus: s\nVersion: 4\n"),
    }


def test_a_recording_of_the_machine_that_runs_the_tests_can_be_expanded_and_recorded_again(tmp_path: Path) -> None:
    live = nodetree.record("/")
    assert "/proc/cmdline" in live
    expanded = nodetree.expand(nodetree.parse(nodetree.render(live)), tmp_path / "live")
    assert nodetree.render(nodetree.record(expanded)) == nodetree.render(live)


def test_the_command_lists_expands_and_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nodetree.main(["list"]) == 0
    assert tuple(capsys.readouterr().out.split()) == NAMES
    assert nodetree.main(["expand", "single-socket", str(tmp_path / "one")]) == 0
    assert nodetree.main(["record", "--root", str(tmp_path / "one"), "--about", "a test"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# a test\n")
    (tmp_path / "copy.tree").write_text(text)
    assert nodetree.main(["expand", str(tmp_path / "copy.tree"), str(tmp_path / "two")]) == 0
    assert nodetree.record(tmp_path / "two") == nodetree.load("single-socket")
    assert nodetree.main(["expand", "nowhere", str(tmp_path / "three")]) == 1
    assert capsys.readouterr().err.startswith("nodetree: there is no tree 'nowhere'")
    assert sorted(os.listdir(tmp_path)) == ["copy.tree", "one", "two"]
