# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keys of sysctl: what the next boot brings and who decides it, and what a run does about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping, Optional

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import NotInEffect, OwnedByAnother
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_tunables import keys
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_tunables.kernel_tunables_machine import machine
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_tunables.kernel_tunables_runs import run
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

OURS = "/etc/sysctl.d/zz-gpufleet-kernel_tunables.conf"
RULES = "/etc/udev/rules.d/99-gpufleet-kernel_tunables.rules"
TUNED = {
    "/etc/tuned/active_profile": "mine\n",
    "/etc/systemd/system/multi-user.target.wants/tuned.service": "",
}


def value(host: FakeHost, key: str) -> str:
    return host.files.read(f"/proc/sys/{key}").strip()


# What is in effect


def test_values_are_in_effect_and_in_a_file_that_sorts_late(tmp_path: Path) -> None:
    host = machine(tmp_path)
    wanted = {"vm.swappiness": 0, "net.ipv4.tcp_rmem": "4096  87380\t268435456", "net/ipv4/conf/eth0.5/rp_filter": "0"}
    outcome = run(host, wanted)
    assert value(host, "vm/swappiness") == "0"
    assert value(host, "net/ipv4/tcp_rmem") == "4096\t87380\t268435456"
    assert host.files.read(OURS).splitlines()[1:] == [
        "-net.ipv4.conf.eth0/5.rp_filter = 0",
        "net.ipv4.tcp_rmem = 4096 87380 268435456",
        "vm.swappiness = 0",
    ]
    assert ("sysctl", "vm.swappiness", 60, 0, "effective") in {
        (one.object, one.setting, one.before, one.after, one.scope) for one in outcome.changes
    }
    # The node keeps the declaration in another order than the inventory has it.
    for same in (wanted, dict(sorted(wanted.items()))):
        again = run(host, same)
        assert (again.status, again.changes) == ("in_sync", ())


def test_a_value_that_the_kernel_refuses_is_in_no_file(tmp_path: Path) -> None:
    host = machine(tmp_path)
    host.files.rules.insert(0, (r"/proc/sys/vm/swappiness", lambda _files, _match, _value: _refuse()))
    with pytest.raises(Exception, match=r"^Cannot set vm.swappiness on sysctl: the kernel refused the value at /proc"):
        run(host, {"vm.swappiness": 10})
    assert not host.files.exists(OURS)


def _refuse() -> None:
    raise OSError(22, "Invalid argument")


def test_a_value_that_the_kernel_changes_silently_is_named_with_what_became_of_it(tmp_path: Path) -> None:
    host = machine(tmp_path)
    path = Path(host.files.locate("/proc/sys/vm/max_map_count"))
    host.files.rules.insert(0, (r"/proc/sys/vm/max_map_count", lambda *_rest: path.write_text("65536\n") and None))
    with pytest.raises(NotInEffect) as caught:
        run(host, {"vm.max_map_count": 1})
    assert str(caught.value) == (
        "Cannot set sysctl vm.max_map_count: the kernel took the value and made another one of it (found 65536, wanted"
        " 1). Declare the value that the kernel makes of it, or leave the key out."
    )
    assert not host.files.exists(OURS)


def test_of_a_pair_one_is_declared_and_both_come_back(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {"vm.dirty_bytes": 8589934592, "vm.dirty_background_bytes": 1073741824})
    assert [value(host, f"vm/dirty_{name}") for name in ("bytes", "ratio", "background_ratio")] == [
        "8589934592",
        "0",
        "0",
    ]
    assert run(host, {"vm.dirty_bytes": 8589934592, "vm.dirty_background_bytes": 1073741824}).changes == ()
    # Somebody sets the other one: both have drifted, and one write mends both.
    host.files.write_attribute("/proc/sys/vm/dirty_ratio", "40")
    host.files.log.clear()
    run(host, {"vm.dirty_bytes": 8589934592, "vm.dirty_background_bytes": 1073741824})
    assert [entry for entry in host.files.log if entry[0] == "set"] == [
        ("set", "/proc/sys/vm/dirty_bytes", "8589934592")
    ]
    run(host, state="absent")
    names = ("bytes", "ratio", "background_bytes", "background_ratio")
    assert [value(host, f"vm/dirty_{name}") for name in names] == ["0", "20", "0", "10"]
    assert not host.files.exists(OURS)


def test_what_khugepaged_raised_is_left_and_what_is_less_is_not(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {"vm.min_free_kbytes": 135168})
    host.files.write_attribute("/proc/sys/vm/min_free_kbytes", "270336")
    assert run(host, {"vm.min_free_kbytes": 135168}).status == "in_sync"
    host.files.write_attribute("/proc/sys/vm/min_free_kbytes", "1024")
    assert run(host, {"vm.min_free_kbytes": 135168}).status == "drifted"
    run(host, state="absent")
    assert value(host, "vm/min_free_kbytes") == "67584"


def test_what_was_more_than_declared_from_the_beginning_is_not_lowered_by_absent(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {"vm.min_free_kbytes": 1024})
    run(host, state="absent")
    assert value(host, "vm/min_free_kbytes") == "67584"


def test_runtime_and_period_are_written_so_that_one_never_exceeds_the_other(tmp_path: Path) -> None:
    host = machine(tmp_path)
    for runtime, period, first in ((1900000, 2000000, "period"), (400000, 500000, "runtime")):
        host.files.log.clear()
        run(host, {"kernel.sched_rt_runtime_us": runtime, "kernel.sched_rt_period_us": period})
        assert next(path for kind, path, _value in host.files.log if kind == "set").endswith(f"sched_rt_{first}_us")


def test_a_list_of_ports_is_compared_as_the_kernel_shows_it(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {"net.ipv4.ip_local_reserved_ports": "30,10-12,11-20"})
    assert value(host, "net/ipv4/ip_local_reserved_ports") == "10-20,30"
    assert run(host, {"net.ipv4.ip_local_reserved_ports": "30,10-12,11-20"}).changes == ()


def test_a_key_that_is_no_longer_declared_is_in_our_file_no_more(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {"vm.swappiness": 0, "fs.aio-max-nr": 1048576})
    run(host, {"fs.aio-max-nr": 1048576})
    assert "swappiness" not in host.files.read(OURS)
    run(host, state="absent")
    assert (value(host, "vm/swappiness"), value(host, "fs/aio-max-nr")) == ("60", "65536")


# Keys that are not there


def test_a_key_of_a_module_is_kept_until_it_is_loaded(tmp_path: Path) -> None:
    host = machine(tmp_path)
    wanted = {"net.netfilter.nf_conntrack_max": 1048576}
    run(host, wanted)
    outcome = run(host, wanted)
    assert (outcome.status, outcome.changes) == ("pending", ())
    assert outcome.as_dict()["needs"] == ["load_module"]
    assert outcome.as_dict()["reboot_required"] is False
    assert host.files.read(RULES).splitlines()[1:] == [
        'ACTION=="add", SUBSYSTEM=="module", KERNEL=="nf_conntrack",'
        ' RUN+="/usr/lib/systemd/systemd-sysctl --prefix=/net/netfilter/nf_conntrack_max"'
    ]
    path = Path(host.files.locate("/proc/sys/net/netfilter/nf_conntrack_max"))
    path.parent.mkdir()
    path.write_text("262144\n")
    run(host, wanted)
    assert value(host, "net/netfilter/nf_conntrack_max") == "1048576"
    unmanaged = run(host, state="absent").as_dict()["unmanaged"]
    assert [entry["setting"] for entry in unmanaged] == ["net.netfilter.nf_conntrack_max"]
    assert not host.files.exists(RULES)


def test_a_key_of_an_interface_waits_for_it(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {"net.ipv4.conf.eth7.rp_filter": 2})
    assert run(host, {"net.ipv4.conf.eth7.rp_filter": 2}).as_dict()["needs"] == ["add_interface"]
    assert not host.files.exists(RULES)


def test_a_key_that_some_kernels_lack_is_unmanaged(tmp_path: Path) -> None:
    host = machine(tmp_path)
    Path(host.files.locate("/proc/sys/kernel/numa_balancing")).unlink()
    outcome = run(host, {"kernel.numa_balancing": 0, "vm.swappiness": 0})
    assert [entry["setting"] for entry in outcome.as_dict()["unmanaged"]] == ["kernel.numa_balancing"]
    assert "numa_balancing" not in host.files.read(OURS)
    with pytest.raises(Exception, match=r"Cannot set kernel\.numa_balancing on sysctl: this kernel does not have"):
        run(host, {"kernel.numa_balancing": 0}, strict=True)


# What the next boot brings, and who else has a say


def test_a_file_that_sorts_before_ours_loses_and_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/usr/lib/sysctl.d/99-vendor.conf": "# theirs\nvm.swappiness = 30\n"})
    conflicts = run(host, {"vm.swappiness": 0}).as_dict()["conflicts"]
    assert conflicts == [
        {
            "owner": "sysctl.d",
            "path": "/usr/lib/sysctl.d/99-vendor.conf",
            "line": 2,
            "object": "sysctl",
            "setting": "vm.swappiness",
            "value": "30",
            "wins": "us",
            "accepted": "",
        }
    ]
    assert run(host, state="absent").boot == {"sysctl": {"vm.swappiness": 30}}


@pytest.mark.parametrize(
    ("files", "who"),
    [
        pytest.param({"/usr/lib/sysctl.d/zzz.conf": "vm.swappiness=30\n"}, "sysctl.d sets it too, at ", id="later"),
        pytest.param(
            {
                **TUNED,
                "/etc/tuned/mine/tuned.conf": "[sysctl]\nvm.swappiness=30\n",
                "/etc/tuned/tuned-main.conf": "reapply_sysctl = 0\n",
            },
            "tuned sets it too, at /etc/tuned/mine/tuned.conf:2",
            id="tuned",
        ),
        pytest.param(
            {
                **TUNED,
                "/etc/tuned/mine/tuned.conf": "[sysctl]\nvm.max_map_count=1\n",
                "/etc/sysctl.conf": "vm.swappiness=30\n",
            },
            "sysctl.conf sets it too, at /etc/sysctl.conf:1",
            id="sysctl.conf by tuned",
        ),
    ],
)
def test_what_would_win_over_our_file_is_refused(tmp_path: Path, files: Mapping[str, str], who: str) -> None:
    host = machine(tmp_path, files)
    with pytest.raises(OwnedByAnother) as caught:
        run(host, {"vm.swappiness": 0})
    assert str(caught.value).startswith(f"Cannot set sysctl vm.swappiness: {who}")
    assert str(caught.value).endswith("(found 30, wanted 0). Remove it there, or declare the same value.")
    assert host.files.log == []
    # Of the running system alone there is nothing to refuse.
    assert run(host, {"vm.swappiness": 0}, permanent=False).effective == {"sysctl": {"vm.swappiness": 0}}


def test_what_is_refused_names_all_the_others_and_who_of_them_wins(tmp_path: Path) -> None:
    files = {
        **TUNED,
        "/etc/tuned/mine/tuned.conf": "[sysctl]\nvm.swappiness=10\nvm.dirty_background_ratio=3\n",
        "/etc/sysctl.d/99-site.conf": "vm.swappiness = 30\n",
        "/etc/sysctl.d/zz-vendor.conf": "vm.swappiness = 60\n",
    }
    host = machine(tmp_path, files)
    with pytest.raises(OwnedByAnother) as caught:
        run(host, {"vm.swappiness": 5, "vm.dirty_background_bytes": 268435456})
    assert "zz-vendor.conf:1, and wins over" in str(caught.value)
    assert {(entry.path, entry.setting, entry.value, entry.wins) for entry in caught.value.conflicts} == {
        ("/etc/tuned/mine/tuned.conf", "vm.swappiness", "10", "us"),
        ("/etc/tuned/mine/tuned.conf", "vm.dirty_background_ratio", "3", "us"),
        ("/etc/sysctl.d/zz-vendor.conf", "vm.swappiness", "60", "them"),
    }


def test_the_other_one_of_a_pair_in_a_later_file_wins_too(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/etc/sysctl.d/zzz.conf": "vm.dirty_ratio = 40\n"})
    with pytest.raises(OwnedByAnother, match=r"sets vm\.dirty_ratio, which sets it to 0, at /etc/sysctl\.d/zzz"):
        run(host, {"vm.dirty_bytes": 8589934592})


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("net.core.somaxconn=>2048", []),
        ("net.core.somaxconn=>4096", []),
        ('net.core.somaxconn="4096"', []),
        ("net.core.somaxconn=<8192", []),
        ("net.core.somaxconn=>8192", [">8192"]),
        ('net.core.somaxconn=">8192"', [">8192"]),
        ("net.core.somaxconn=<1024", ["<1024"]),
    ],
)
def test_a_value_of_tuned_may_be_the_least_or_the_most(tmp_path: Path, line: str, found: List[str]) -> None:
    """``_process_assignment_modifiers`` of tuned's plugins/base.py, and ``unquote`` of its plugin_sysctl.py."""
    files = {**TUNED, "/etc/tuned/mine/tuned.conf": f"[sysctl]\n{line}\n", "/proc/sys/net/core/somaxconn": "128\n"}
    host = machine(tmp_path, files)
    assert [one.value for one in run(host, {"net.core.somaxconn": 4096}).remaining.conflicts] == found
    Path(host.files.locate("/etc/tuned/tuned-main.conf")).write_text("reapply_sysctl = 0\n")
    if not found:
        assert run(host, {"net.core.somaxconn": 4096}).status == "in_sync"
        return
    with pytest.raises(OwnedByAnother, match="tuned sets it too"):
        run(host, {"net.core.somaxconn": 4096})


def test_a_profile_of_tuned_loses_where_it_applies_our_file_again(tmp_path: Path) -> None:
    host = machine(
        tmp_path, {**TUNED, "/etc/tuned/mine/tuned.conf": "[sysctl]\nvm.swappiness=30\n[vm]\ndirty_ratio=40\n"}
    )
    conflicts = run(host, {"vm.swappiness": 0}).as_dict()["conflicts"]
    assert [(entry["owner"], entry["value"], entry["wins"]) for entry in conflicts] == [("tuned", "30", "us")]
    assert run(host, {"vm.swappiness": 0}).status == "in_sync"


def test_sysctl_conf_is_named_as_what_sysctl_system_reads_last(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/etc/sysctl.conf": "vm.swappiness = 30\n"})
    Path(host.files.locate("/etc/sysctl.d/99-sysctl.conf")).symlink_to("../sysctl.conf")
    conflicts = run(host, {"vm.swappiness": 0}).as_dict()["conflicts"]
    assert [(entry["owner"], entry["path"], entry["wins"]) for entry in conflicts] == [
        ("sysctl.conf", "/etc/sysctl.conf", "them")
    ]
    assert run(host, state="absent").boot == {"sysctl": {"vm.swappiness": 30}}


def test_patterns_lose_wherever_they_stand_and_the_command_line_comes_first(tmp_path: Path) -> None:
    files = {
        "/etc/sysctl.d/zzz.conf": "net.ipv4.conf.*.rp_filter = 1\n",
        "/proc/cmdline": 'root=/dev/sda1 sysctl.vm.swappiness=20 sysctl.net.ipv4.tcp_rmem="1 2 3" quiet\n',
    }
    host = machine(tmp_path, files)
    wanted = {"net.ipv4.conf.eth0.rp_filter": 0, "vm.swappiness": 0, "net.ipv4.tcp_rmem": "4096 87380 6291456"}
    conflicts = run(host, wanted).as_dict()["conflicts"]
    assert {(entry["owner"], entry["setting"], entry["value"], entry["wins"]) for entry in conflicts} == {
        ("kernel command line", "vm.swappiness", "20", "us"),
        ("kernel command line", "net.ipv4.tcp_rmem", "1 2 3", "us"),
        ("sysctl.d", "net.ipv4.conf.eth0.rp_filter", "1", "us"),
    }
    assert run(host, state="absent").boot == {
        "sysctl": {"net.ipv4.conf.eth0.rp_filter": 1, "vm.swappiness": 20, "net.ipv4.tcp_rmem": "1 2 3"}
    }


def test_beside_a_kubelet_its_own_values_are_kept(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/var/lib/kubelet/config.yaml": "", "/proc/sys/vm/overcommit_memory": "1\n"})
    with pytest.raises(OwnedByAnother, match=r"sysctl vm\.overcommit_memory: the kubelet of /var/lib/kubelet/config"):
        run(host, {"vm.overcommit_memory": 0})
    assert run(host, {"vm.overcommit_memory": 1}).effective == {"sysctl": {"vm.overcommit_memory": 1}}


@pytest.mark.parametrize(
    ("text", "like", "expected"),
    [
        ("7 8 9", "60", "7"),
        ("010", "60", "8"),
        ("0x40", "60", "64"),
        ("-1", "60", "-1"),
        ("64K", "60", None),
        ("7 # less", "60", "7"),
        ("1 2", "1 2 3", "1 2"),
        ("1\t2 3 4", "1 2 3", "1 2 3"),
        ("bbr", "cubic", "bbr"),
        ("5", None, "5"),
    ],
)
def test_a_line_of_others_is_read_as_the_kernel_reads_it(
    text: str, like: Optional[str], expected: Optional[str]
) -> None:
    assert keys.read_by_kernel("vm/swappiness", text, like) == expected


# Among the other concerns


def test_a_key_of_huge_pages_is_left_to_their_concern_and_a_declaration_is_read_once(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/proc/meminfo": "MemTotal: 1024 kB\nHugepagesize: 2048 kB\n"})
    asked = []

    def validate(concern: Any, declaration: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(concern.name)
        result = ArgumentSpecValidator({**SHARED_OPTIONS, **concern.options}).validate(dict(declaration))
        return dict(result.validated_parameters)

    entries = [entry for entry in REGISTRY if entry.name in ("hugepages", "kernel_tunables")]
    registry = [replace(entry, registration=replace(entry.registration, after=())) for entry in entries]
    declared = {"hugepages": {}, "kernel_tunables": {"sysctl": {"vm.nr_hugepages": 4}}}
    answer = assess_node(declared, host, validate=validate, full=False, registry=registry)
    assert answer["concerns"]["kernel_tunables"]["msg"] == (
        "Cannot declare sysctl vm.nr_hugepages: hugepages is declared too, and sets it. Leave it to hugepages, or"
        " remove the declaration of hugepages."
    )
    asked.clear()
    declared = {"kernel_tunables": {"sysctl": {"vm.swappiness": 0}}}
    answer = assess_node(declared, host, validate=validate, full=False, registry=registry)
    assert answer["drifted"] == ["kernel_tunables"]
    assert asked == ["kernel_tunables"]
