# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``hugepages`` refuses, with the message for it, and that nothing changed then; and who else owns a setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    GpuFleetError,
    NotPermitted,
    OwnedByAnother,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import DRIFTED, IN_SYNC
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.hugepages.concern import CONCERN
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.concerns.hugepages.hugepages_machine import (
    THP,
    TMPFILES,
    machine,
    pages,
    params,
    pool_path,
)
from ansible_collections.gpufleet.node.tests.unit.support import snapshot


def one(size: str = "2M", **how: Any) -> Dict[str, Any]:
    return {"pools": [{"size": size, **how}]}


WRONG = {
    "not a size": (
        {},
        one("big", pages=1),
        "Cannot declare pages of big: this is not a page size. Write it like 2M or 1G.",
    ),
    "a size that the kernel lacks": (
        {},
        one("4M", pages=1),
        "Cannot declare pages of 4M: this kernel does not have the size (found 2M, 1G).",
    ),
    "a kernel without huge pages": (
        {"sizes": ()},
        one(pages=1),
        "Cannot declare pages of 2M: this kernel does not have the size (found no huge pages at all).",
    ),
    "a size twice": (
        {},
        {"pools": [{"size": "2M", "pages": 1}, {"size": "2048K", "pages": 2}]},
        "Cannot declare pages of 2048K: the size is declared twice.",
    ),
    "both ways to count": (
        {},
        one(pages=1, per_node={"0": 1}),
        "Cannot declare pages of 2M: both pages and per_node are given. Pages is the total, per_node is by node.",
    ),
    "no way to count": (
        {},
        one(),
        "Cannot declare pages of 2M: neither pages nor per_node is given. Pages is the total, per_node is by node.",
    ),
    "fewer than none": (
        {},
        one(pages=-1),
        "Cannot declare pages of 2M: the number of pages is negative (found -1).",
    ),
    "fewer than none on a node": (
        {},
        one(per_node={"0": -3}),
        "Cannot declare pages of 2M: the number of pages is negative (found -3).",
    ),
    "half a page": (
        {},
        one(per_node={"0": 1.5}),
        "Cannot declare pages of 2M: the number of pages is not a whole number (found 1.5).",
    ),
    "a truth for a number": (
        {},
        one(per_node={"0": True}),
        "Cannot declare pages of 2M: the number of pages is not a whole number (found True).",
    ),
    "a node that is not there": (
        {},
        one(per_node={"0": 1, "7": 1}),
        "Cannot declare pages of 2M: there is no NUMA node 7 with huge pages (found node0, node1).",
    ),
    "a node with a wrong name": (
        {},
        one(per_node={"node0": 1}),
        "Cannot declare pages of 2M: there is no NUMA node node0 with huge pages (found node0, node1).",
    ),
    "a node on a machine without nodes": (
        {"nodes": ()},
        one(per_node={"0": 1}),
        "Cannot declare pages of 2M: there is no NUMA node 0 with huge pages (found a machine without NUMA nodes).",
    ),
    "more than the node has": (
        {"memory_mib": 1024},
        one(per_node={"1": 513}),
        "Cannot declare pages of 2M on node1: they need more memory than the node has (found 1024 MiB, wanted 1026 "
        "MiB).",
    ),
    "more in all sizes than the node has": (
        {"memory_mib": 2048},
        {"pools": [{"size": "2M", "pages": 1536}, {"size": "1G", "pages": 2}]},
        "Cannot declare pages of 2M, 1G on node0: they need more memory than the node has "
        "(found 2048 MiB, wanted 2560 MiB).",
    ),
    "a total where no node has CPUs": (
        {"cpuless": (0, 1)},
        one(pages=2),
        "Cannot declare pages of 2M: no NUMA node has both CPUs and memory. "
        "Name the nodes in per_node: memory without CPUs gets pages only that way.",
    ),
    "a distribution that an old kernel cannot make at boot": (
        {"kernel": "5.14.0-503.el9"},
        one("1G", per_node={"0": 1, "1": 3}),
        "Cannot reserve 1G pages at boot: before Linux 5.16 the command line takes only a total, which goes evenly to "
        "all nodes with memory (found 0:2,1:2, wanted 0:1,1:3). Declare that distribution, or permanent: false.",
    ),
    "no boot loader": (
        {"grub": False},
        one("1G", pages=2),
        "Cannot set kernel arguments for the next boot: no boot loader was found "
        "(wanted hugepagesz=1G hugepages=0:1,1:1). Set them where this machine gets its command line from "
        "(network boot, image), or set permanent: false.",
    ),
    "waiting for a boot that brings nothing": (
        {},
        {**one(pages=2), "permanent": False, "on_shortage": "reboot"},
        "Cannot declare huge pages: on_shortage: reboot waits for the next boot, and permanent: false leaves that as "
        "it is. Set permanent: true, or on_shortage: fail.",
    ),
    "a policy that the kernel lacks": (
        {"extra": {f"{THP}/defrag": "always [madvise] never\n"}},
        {"transparent": {"defrag": "defer+madvise"}},
        "Cannot set defrag on transparent_hugepages: this kernel knows only always, madvise, never "
        "(wanted defer+madvise).",
    ),
    "a transparent size that the kernel lacks": (
        {},
        {"transparent": {"sizes": [{"size": "96K", "enabled": "never"}]}},
        "Cannot declare transparent hugepages of 96K: this kernel does not have the size (found 64K, 2M).",
    ),
    "a transparent size twice": (
        {},
        {"transparent": {"sizes": [{"size": "64K", "enabled": "never"}, {"size": "64k", "enabled": "always"}]}},
        "Cannot declare transparent hugepages of 64k: the size is declared twice.",
    ),
    "a transparent size that is none": (
        {},
        {"transparent": {"sizes": [{"size": "large", "enabled": "never"}]}},
        "Cannot declare transparent hugepages of large: this is not a page size. Write it like 64K or 2M.",
    ),
    "a negative time": (
        {},
        {"transparent": {"khugepaged": {"scan_sleep_millisecs": -1}}},
        "Cannot set scan_sleep_millisecs on khugepaged: the value is negative (wanted -1).",
    ),
    "no pages to scan": (
        {},
        {"transparent": {"khugepaged": {"pages_to_scan": 0}}},
        "Cannot set pages_to_scan on khugepaged: the kernel does not accept 0 here (wanted 0).",
    ),
    "more small pages than a huge one has": (
        {},
        {"transparent": {"khugepaged": {"max_ptes_none": 512}}},
        "Cannot set max_ptes_none on khugepaged: the kernel accepts at most 511 here (wanted 512).",
    ),
}


@pytest.mark.parametrize(("shape", "declared", "message"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_refused_before_anything_changes(
    tmp_path: Path, shape: Dict[str, Any], declared: Dict[str, Any], message: str
) -> None:
    host = machine(tmp_path, **shape)
    before = snapshot(tmp_path)
    with pytest.raises(GpuFleetError) as caught:
        converge(CONCERN, params(**declared), host, check_mode=False)
    assert caught.value.code == "declaration"
    assert str(caught.value) == message
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("folder", "declared", "message"),
    [
        ("/sys", one(pages=2), "Cannot set hugepages_2M on node0: /sys is read-only here. Run on the host itself"),
        (
            "/sys",
            {"transparent": {"enabled": "never"}},
            "Cannot set enabled on transparent_hugepages: /sys is read-only here.",
        ),
        ("/etc", one(pages=2), f"Cannot write {TMPFILES}: /etc is on a read-only file system, or is immutable"),
        ("/etc", one("1G", pages=2), f"Cannot write {TMPFILES}: /etc is on a read-only file system, or is immutable"),
    ],
)
@pytest.mark.parametrize("check_mode", [True, False])
def test_what_cannot_be_written_is_refused_before_anything_changes(
    tmp_path: Path, folder: str, declared: Dict[str, Any], message: str, check_mode: bool
) -> None:
    host = machine(tmp_path)
    host.files.read_only.append(folder)
    before = snapshot(tmp_path)
    with pytest.raises(NotPermitted) as caught:
        converge(CONCERN, params(**declared), host, check_mode=check_mode)
    assert str(caught.value).startswith(message)
    assert snapshot(tmp_path) == before


def test_a_read_only_machine_that_is_right_stays_right(tmp_path: Path) -> None:
    host = machine(tmp_path)
    converge(CONCERN, params(**one(pages=2)), host, check_mode=False)
    host.files.read_only += ["/sys", "/etc"]
    assert converge(CONCERN, params(**one(pages=2)), host, check_mode=False).status == IN_SYNC


SYSCTL = "/etc/sysctl.d/60-database.conf"
TUNED = {
    "/etc/tuned/active_profile": "gpu\n",
    "/etc/systemd/system/multi-user.target.wants/tuned.service": "",
    "/etc/tuned/profiles/gpu/tuned.conf": "[main]\ninclude=base\n[variables]\npolicy=never\n",
    "/usr/lib/tuned/base/tuned.conf": "[main]\nsummary=x\n[vm]\n"
    "transparent_hugepages=never\n[sysctl]\nvm.nr_hugepages=64\n",
}
GRUB = {"/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT=""\nGRUB_CMDLINE_LINUX="hugepagesz=1G hugepages=2"\n'}
THP_LINE = f"w {THP}/enabled - - - - never\n"

OWNERS: Dict[str, Any] = {
    "sysctl.d with another total": (
        {SYSCTL: "# pages\nvm.nr_hugepages = 100\n"},
        one(pages=1024),
        f"Cannot set hugepages_2M on all nodes: sysctl.d sets it too, at {SYSCTL}:2 (found 100, wanted 1024). "
        "Remove it there, or declare the same value.",
        None,
    ),
    "sysctl.d with the same total": (
        {SYSCTL: "vm.nr_hugepages = 1024\n"},
        one(per_node={"0": 1000, "1": 24}),
        None,
        None,
    ),
    "sysctl.d with the same total, spread as the kernel does": (
        {SYSCTL: "vm/nr_hugepages=1024\n"},
        one(pages=1024),
        None,
        None,
    ),
    "an overridden line of sysctl.d": (
        {SYSCTL: "vm.nr_hugepages = 1\n", "/usr/lib/sysctl.d/99-last.conf": "vm.nr_hugepages = 1024\n"},
        one(pages=1024),
        None,
        None,
    ),
    "a glob of sysctl.d": (
        {SYSCTL: "vm.nr_huge*_mempolicy = 100\n"},
        one(pages=1024),
        f"Cannot set hugepages_2M on all nodes: sysctl.d sets it too, at {SYSCTL}:1 (found 100, wanted 1024). "
        "Remove it there, or declare the same value.",
        None,
    ),
    "sysctl.d with what the kernel refuses": ({SYSCTL: "vm.nr_hugepages = many\n"}, one(pages=1024), None, None),
    "sysctl.conf, which systemd does not read": (
        {"/etc/sysctl.conf": "vm.nr_hugepages=7\n"},
        one(pages=1024),
        "Cannot set hugepages_2M on all nodes: sysctl.conf sets it too, at /etc/sysctl.conf:1 (found 7, wanted 1024). "
        "Remove it there, or declare the same value.",
        None,
    ),
    "sysctl.d about another page size": ({SYSCTL: "vm.nr_hugepages = 100\n"}, one("1G", pages=2), None, None),
    "a line of tmpfiles.d that is carried out later too": (
        {"/usr/lib/tmpfiles.d/thp.conf": THP_LINE},
        {"transparent": {"enabled": "madvise"}},
        "Cannot set enabled on transparent_hugepages: tmpfiles.d sets it too, at /usr/lib/tmpfiles.d/thp.conf:1 "
        "(found never, wanted madvise). Remove it there, or declare the same value.",
        None,
    ),
    "a line of tmpfiles.d for the boot, behind ours": (
        {"/usr/lib/tmpfiles.d/thp.conf": THP_LINE.replace("w ", "w! ")},
        {"transparent": {"enabled": "madvise"}},
        None,
        ("tmpfiles.d", "/usr/lib/tmpfiles.d/thp.conf", 1, "transparent_hugepages", "enabled", "never", "us", ""),
    ),
    "a line of tmpfiles.d for the boot, before ours": (
        {"/etc/tmpfiles.d/00-a.conf": THP_LINE.replace("w ", "w! ")},
        {"transparent": {"enabled": "madvise"}},
        "Cannot set enabled on transparent_hugepages: tmpfiles.d sets it too, at /etc/tmpfiles.d/00-a.conf:1 "
        "(found never, wanted madvise). Remove it there, or declare the same value.",
        None,
    ),
    "a line of tmpfiles.d that adds itself behind ours": (
        {"/etc/tmpfiles.d/zz.conf": THP_LINE.replace("w ", "w+! ")},
        {"transparent": {"enabled": "madvise"}},
        "Cannot set enabled on transparent_hugepages: tmpfiles.d sets it too, at /etc/tmpfiles.d/zz.conf:1 "
        "(found never, wanted madvise). Remove it there, or declare the same value.",
        None,
    ),
    "a pattern of tmpfiles.d, carried out behind ours": (
        {"/etc/tmpfiles.d/zz.conf": f"w! {THP}/en* - - - - never\n"},
        {"transparent": {"enabled": "madvise"}},
        "Cannot set enabled on transparent_hugepages: tmpfiles.d sets it too, at /etc/tmpfiles.d/zz.conf:1 "
        "(found never, wanted madvise). Remove it there, or declare the same value.",
        None,
    ),
    "a total in tmpfiles.d behind ours": (
        {"/etc/tmpfiles.d/zz.conf": f"w! {pool_path(None)} - - - - 30\n"},
        one(pages=1024),
        "Cannot set hugepages_2M on all nodes: tmpfiles.d sets it too, at /etc/tmpfiles.d/zz.conf:1 "
        "(found 30, wanted 1024). Remove it there, or declare the same value.",
        None,
    ),
    "tuned with another policy": (
        TUNED,
        {"transparent": {"enabled": "madvise"}},
        "Cannot set enabled on transparent_hugepages: tuned sets it too, at /usr/lib/tuned/base/tuned.conf:4 "
        "(found never, wanted madvise). Remove it there, or declare the same value.",
        None,
    ),
    "tuned after another file, and with a total": (
        {**TUNED, "/usr/lib/tmpfiles.d/thp.conf": THP_LINE.replace("w ", "w! ").replace("never", "always")},
        {"transparent": {"enabled": "madvise"}, **one(pages=1024)},
        "Cannot set enabled on transparent_hugepages: tuned sets it too, at /usr/lib/tuned/base/tuned.conf:4 "
        "(found never, wanted madvise). Remove it there, or declare the same value. Also cannot set hugepages_2M on "
        "all nodes: tuned sets it too, at /usr/lib/tuned/base/tuned.conf:6 (found 64, wanted 1024).",
        None,
    ),
    "tuned with the same policy": (
        TUNED,
        {"transparent": {"enabled": "never"}},
        None,
        None,
    ),
    "tuned with another total": (
        TUNED,
        one(pages=1024),
        "Cannot set hugepages_2M on all nodes: tuned sets it too, at /usr/lib/tuned/base/tuned.conf:6 "
        "(found 64, wanted 1024). Remove it there, or declare the same value.",
        None,
    ),
    "tuned that is not enabled": (
        {path: text for path, text in TUNED.items() if not path.endswith(".service")},
        {"transparent": {"enabled": "madvise"}},
        None,
        None,
    ),
    "a policy on the command line, which ours follows": (
        {"/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT=""\nGRUB_CMDLINE_LINUX="transparent_hugepage=never"\n'},
        {"transparent": {"enabled": "madvise"}},
        None,
        ("kernel command line", "/etc/default/grub", 2, "transparent_hugepages", "enabled", "never", "us", ""),
    ),
    "another number on the command line": (
        GRUB,
        one("1G", pages=4),
        "Cannot set hugepages_1G on all nodes: kernel command line sets it too, at /etc/default/grub:2 "
        "(found 2, wanted 4). Remove it there, or declare the same value.",
        None,
    ),
    "the same number on the command line": (
        GRUB,
        one("1G", pages=2),
        None,
        None,
    ),
    "the same number per node in a drop-in of somebody else": (
        {"/etc/default/grub.d/db.cfg": 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX hugepagesz=1G hugepages=0:2,1:1"\n'},
        one("1G", per_node={"0": 2}),
        None,
        None,
    ),
}


@pytest.mark.parametrize(("extra", "declared", "message", "conflict"), OWNERS.values(), ids=OWNERS)
def test_another_owner_is_named_and_refused_where_the_two_would_flap(
    tmp_path: Path, extra: Dict[str, str], declared: Dict[str, Any], message: Optional[str], conflict: Any
) -> None:
    host = machine(tmp_path, extra=extra)
    before = snapshot(tmp_path)
    if message is not None:
        with pytest.raises(OwnedByAnother) as caught:
            converge(CONCERN, params(**declared), host, check_mode=False)
        assert str(caught.value) == message
        assert snapshot(tmp_path) == before
        return
    outcome = converge(CONCERN, params(**declared), host, check_mode=False)
    assert outcome.error is None
    found = [tuple(entry.as_dict().values()) for entry in outcome.remaining.conflicts]
    assert found == ([conflict] if conflict else [])
    again = converge(CONCERN, params(**declared), host, check_mode=False)
    assert again.changes == ()


def test_what_somebody_else_already_brings_at_boot_is_not_written_again(tmp_path: Path) -> None:
    host = machine(tmp_path, extra={SYSCTL: "vm.nr_hugepages = 1024\n", **GRUB})
    converge(CONCERN, params(pools=[*one(pages=1024)["pools"], *one("1G", pages=2)["pools"]]), host, check_mode=False)
    assert not host.files.exists(TMPFILES)
    assert host.commands.calls == []
    assert pages(host, 0) == 512


def test_what_sysctl_counts_at_the_next_boot_is_the_default_size_of_its_command_line(tmp_path: Path) -> None:
    defaults = 'GRUB_CMDLINE_LINUX_DEFAULT=""\nGRUB_CMDLINE_LINUX="default_hugepagesz=1G"\n'
    host = machine(tmp_path, extra={SYSCTL: "vm.nr_hugepages = 4\n", "/etc/default/grub": defaults})
    at_boot = converge(CONCERN, params(**one(pages=8)), host, check_mode=True).boot["pools"]
    assert sum(at_boot["2M"].values()) == 0
    with pytest.raises(OwnedByAnother, match=r"Cannot set hugepages_1G on all nodes: sysctl\.d sets it too"):
        converge(CONCERN, params(**one("1G", pages=2)), host, check_mode=True)
    # And without the argument, as it is now.
    host.files.replace("/etc/default/grub", defaults.replace("default_hugepagesz=1G", ""))
    host.commands.run(["update-grub"])
    host.files.store("/proc/cmdline", "ro quiet default_hugepagesz=1G")
    host.files.store("/proc/meminfo", host.files.read("/proc/meminfo").replace("2048 kB", "1048576 kB"))
    at_boot = converge(CONCERN, params(**one(pages=4)), host, check_mode=True).boot["pools"]
    assert sum(at_boot["2M"].values()) == 4


def test_without_permanent_another_owner_is_only_listed(tmp_path: Path) -> None:
    host = machine(tmp_path, extra={SYSCTL: "vm.nr_hugepages = 100\n"})
    outcome = converge(CONCERN, params(permanent=False, **one(pages=1024)), host, check_mode=False)
    assert [entry.wins for entry in outcome.remaining.conflicts] == ["them"]


def recorded(name: str, tmp_path: Path) -> RecordedHost:
    return RecordedHost(str(nodetree.expand(name, tmp_path / name)))


def test_the_recorded_conflicts_are_found(tmp_path: Path) -> None:
    host = recorded("conflicts", tmp_path)
    with pytest.raises(OwnedByAnother) as caught:
        assess(CONCERN, params(pools=[{"size": "1G", "pages": 8}]), host)
    assert caught.value.found == "4"


@pytest.mark.parametrize(
    ("name", "declared", "nodes"),
    [
        ("grace", {"size": "512M", "pages": 4}, {"node0": 2, "node1": 2}),
        ("cxl", {"size": "2M", "pages": 64}, {"node0": 32, "node1": 32}),
        ("vm-without-numa", {"size": "2M", "pages": 64}, {"memory": 64}),
        ("eight-nodes", {"size": "2M", "pages": 64}, {f"node{number}": 8 for number in range(8)}),
    ],
)
def test_recorded_machines_get_their_share(
    tmp_path: Path, name: str, declared: Dict[str, Any], nodes: Dict[str, int]
) -> None:
    host = recorded(name, tmp_path)
    state, plan = assess(CONCERN, params(pools=[declared]), host)
    wanted = {
        row.object: row.wanted for row in plan.settings if str(row.setting).startswith("hugepages") and row.wanted
    }
    assert wanted == nodes
    assert CONCERN.report(state)[0]["pools"]


def test_the_boot_entries_of_a_recorded_machine_are_read(tmp_path: Path) -> None:
    host = recorded("rhel9-bls", tmp_path)
    state, plan = assess(CONCERN, params(), host)
    assert state.loader.name == "GRUB with loader entries"
    assert plan.status == DRIFTED


def test_arguments_that_an_admin_adds_beside_ours_are_a_conflict_and_no_fight(tmp_path: Path) -> None:
    host = machine(tmp_path)
    declared = params(**one("1G", per_node={"0": 1, "1": 2}))
    converge(CONCERN, declared, host, check_mode=False)
    text = host.files.read("/etc/default/grub").replace('LINUX=""', 'LINUX="hugepagesz=1G hugepages=8"')
    host.files.replace("/etc/default/grub", text)
    host.commands.run(["update-grub"])
    assert "hugepagesz=1G hugepages=8 hugepagesz=1G hugepages=0:1,1:2" in host.files.read("/boot/grub/grub.cfg")
    before = snapshot(tmp_path)
    for _attempt in range(2):
        with pytest.raises(OwnedByAnother) as caught:
            converge(CONCERN, declared, host, check_mode=False)
        assert str(caught.value) == (
            "Cannot set hugepages_1G on all nodes: kernel command line sets it too, at /etc/default/grub:3 "
            "(found 8, wanted 3). Remove it there, or declare the same value."
        )
    assert snapshot(tmp_path) == before


def test_arguments_that_somebody_added_after_a_run_for_now_only_are_not_ours(tmp_path: Path) -> None:
    host = machine(tmp_path)
    converge(CONCERN, params(permanent=False, **one("1G", pages=2)), host, check_mode=False)
    text = host.files.read("/etc/default/grub").replace('LINUX=""', 'LINUX="hugepagesz=1G hugepages=8"')
    host.files.replace("/etc/default/grub", text)
    host.commands.run(["update-grub"])
    with pytest.raises(OwnedByAnother, match=r"at /etc/default/grub:3 \(found 8, wanted 2\)"):
        converge(CONCERN, params(**one("1G", pages=2)), host, check_mode=False)


def test_links_that_point_nowhere_say_nothing(tmp_path: Path) -> None:
    links = {
        "/etc/sysctl.d/99-sysctl.conf": "../sysctl.conf",
        "/etc/tmpfiles.d/gone.conf": "/opt/gone.conf",
        "/etc/sysctl.d/50-none.conf": "/dev/null",
    }
    host = machine(tmp_path, links=links)
    outcome = converge(CONCERN, params(**one(pages=8)), host, check_mode=False)
    assert outcome.error is None
    assert outcome.remaining.conflicts == ()
