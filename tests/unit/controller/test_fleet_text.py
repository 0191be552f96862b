# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an operator reads of a fleet: equal nodes are one line, nothing is dropped, and the counts add up."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.wording import counted
from ansible_collections.gpufleet.node.plugins.module_utils._node.table import LEGEND, fold, note_row, table
from ansible_collections.gpufleet.node.plugins.plugin_utils.fleet_text import (
    EVERYTHING,
    REST,
    SENTENCES,
    drift,
    file_differences,
    forecast,
)
from ansible_collections.gpufleet.node.plugins.plugin_utils.summary import summarise
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import (
    ansible_playbook,
    replaying,
    said_by_ansible,
)
from ansible_collections.gpufleet.node.tests.unit.controller.report_fleet import Kind, copied, fleet
from hypothesis import given
from hypothesis import strategies as st

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.controller.report_fleet",)

MOST_LINES = 60
STATUSES = ("drifted", "pending", "unknown", "invalid", "conflict")
REASON = "node0 1G pages is 0, wanted 64: only the boot loader makes pages of 1 GiB"
# What Ansible itself prints of a run.
OF_ANSIBLE = re.compile(
    r"(ok|changed|skipping|included|fatal): |(PLAY|TASK|RUNNING HANDLER)\b|\S+ +: ok="
    # What AWX keeps is shown only to these tests.
    r"|CUSTOM STATS|\tRUN: |$"
)

Looks = Dict[str, Mapping[str, Any]]


def hosts(count: int) -> List[str]:
    return [f"h{number:03}" for number in range(1, count + 1)]


def lines_of(looks: Looks, detail: str = "brief", gone: Optional[Mapping[str, bool]] = None) -> List[str]:
    return list(drift(summarise(looks), gone or {}, detail=detail))


def row(object_: str, setting: str, **values: Any) -> Dict[str, Any]:
    known = {"object": object_, "setting": setting, "wanted": 1, "effective": 2, "boot": 1, "status": "drifted"}
    return {**known, **values}


def concern(status: str, *settings: Dict[str, Any], **values: Any) -> Dict[str, Any]:
    lists: Dict[str, List[Any]] = {
        name: [] for name in ("changes", "needs", "unmanaged", "conflicts", "reboot_reasons")
    }
    return {
        "status": status,
        "settings": list(settings),
        "settings_in_sync": 0,
        "unmanaged_total": 0,
        **lists,
        **values,
    }


def looked(to_converge: Sequence[str] = (), **concerns: Dict[str, Any]) -> Dict[str, Any]:
    return {"concerns": concerns, "orphaned": [], "to_converge": list(to_converge)}


@pytest.mark.parametrize(("nodes", "detail", "told"), [(1, "brief", True), (9, "brief", False), (9, "full", True)])
def test_an_owner_that_loses_is_told_of_one_node_and_where_everything_is_asked_for(
    nodes: int, detail: str, told: bool
) -> None:
    where = {"path": "/etc/sysctl.d/10-vendor.conf", "line": 3, "object": "sysctl", "setting": "vm.swappiness"}
    conflicts = [{"owner": "sysctl.d", **where, "value": "30", "wins": "us", "accepted": ""}]
    looks = dict.fromkeys(hosts(nodes), looked(kernel_tunables=concern("in_sync", conflicts=conflicts)))
    text = " sysctl.d sets sysctl vm.swappiness to 30 in /etc/sysctl.d/10-vendor.conf:3, and is overridden"
    found = [line for line in lines_of(looks, detail) if line.endswith(text)]
    assert found == ([f"on {'h001' if nodes == 1 else 'h[001-009] (9)'}{text}"] if told else [])


def test_nodes_of_one_image_are_named_by_what_only_one_of_them_may_have() -> None:
    def node(nqn: str, status: str = "in_sync") -> Dict[str, Any]:
        return looked(nvme_of=concern(status, unique={"host NQN": nqn, "host ID": nqn[-4:]}))

    looks = {"a1": node("nqn.cloned"), "a2": node("nqn.other"), "a3": node("nqn.cloned"), "a4": node("nqn.cloned")}
    lines = lines_of(looks)
    at = next(number for number, line in enumerate(lines) if "host NQN" in line)
    assert lines[at].split() == ["a[1,3-4]", "(3)", "nvme_of", "host", "NQN", "drifted"]
    assert lines[at + 1].strip() == "nqn.cloned must be unique in the fleet, and 3 nodes have it"
    assert lines[-1] == "1 of 4 nodes is in sync. Settings: 0 in sync, 6 drifted."
    # What no other node has is no line, and neither is what one says of itself twice.
    looks = {"a1": node("nqn.cloned"), "a2": node("nqn.other")}
    assert lines_of(looks) == ["2 of 2 nodes are in sync. Settings: 0 in sync."]


def test_two_hundred_equal_nodes_take_as_many_lines_as_one(kinds: Tuple[Kind, ...]) -> None:
    lines = lines_of(dict.fromkeys(hosts(200), kinds[0].found))
    assert len(lines) <= 20
    shown = [line for line in lines if line.startswith("h")]
    assert all(line.startswith("h[001-200] (200)  ") for line in shown)
    assert sum("interrupt" in line for line in shown) == 1
    assert LEGEND in lines


@pytest.mark.parametrize("seed", range(5))
def test_every_setting_of_a_mixed_fleet_is_in_one_line_and_the_counts_add_up(
    kinds: Tuple[Kind, ...], seed: int
) -> None:
    looks = {name: host.look for name, host in fleet(kinds, 200, seed=seed).items()}
    rows = [row for rows in summarise(looks).rows.values() for row in rows]
    folded = fold(rows)
    assert sum(line.settings for line in folded) == len(rows)
    lines = lines_of(looks)
    assert len(lines) <= MOST_LINES
    shown = sum(re.split(" {2,}", line)[-1] in STATUSES and " more," not in line for line in lines)
    hidden = folded[shown:]
    if hidden:
        nodes = {node for line in hidden for node in line.rows}
        settings = sum(line.settings for line in hidden)
        told = (
            f"and {counted(len(hidden), 'line')} more, {counted(settings, 'setting')} on {counted(len(nodes), 'node')}"
        )
        assert told in lines
    # All of it is there for who asks.
    everything = lines_of(looks, detail="full")
    assert sum(re.split(" {2,}", line)[-1] in STATUSES for line in everything) == len(rows)


def test_what_does_not_fit_is_counted() -> None:
    looks = {name: looked(hugepages=concern("drifted", row("gpu0", "x", effective=name))) for name in hosts(90)}
    lines = lines_of(looks)
    assert lines[32:-1] == [f"and 59 more lines, 59 settings on 59 nodes. {REST}"]
    assert len(lines_of(looks, detail="full")) == 1 + 90 + 1


def test_each_way_to_the_rest_of_a_table_shows_it() -> None:
    rows = [row("gpu0", f"x{number}") for number in range(40)]
    looks = {name: looked(hugepages=concern("drifted", *rows)) for name in hosts(3)}
    assert [way for way in ("--diff", "--limit", "gpufleet_detail=full") if way not in REST] == []
    assert f"and 9 more lines, 27 settings on 3 nodes. {REST}" in lines_of(looks)
    whole = list(drift(summarise(looks), {}, detail="brief", whole=True))
    assert [line.split()[:4] for line in whole[1:-1]] == [["h[001-003]", "(3)", "gpu0", one["setting"]] for one in rows]
    for lines, count in ((lines_of({"h001": looks["h001"]}), 40), (lines_of(looks, detail="full"), 120)):
        assert sum(" gpu0 " in line for line in lines) == count
        assert not any("more line" in line for line in lines)


def test_what_weighs_most_comes_first_and_files_of_ours_last() -> None:
    declaration = row("/etc/gpufleet/declared.d/x.json", "declaration", wanted="as declared", effective=None, boot=None)
    everywhere = looked(nvme_scheduler=concern("drifted", row("nvme0n1", "scheduler"), declaration))
    once = looked(nvme_scheduler=concern("drifted", row("nvme0n1", "scheduler", effective=3), declaration))
    broken = looked(nvml=concern("unknown", failure={}, msg="Cannot look at nvml: it is dark."))
    lines = lines_of({"h1": once, "h2": everywhere, "h3": everywhere, "h4": broken})
    assert [line.split("  ")[0] for line in lines[1:6]] == ["h4", "", "h[2-3] (2)", "h1", "h[1-3] (3)"]
    assert lines[2].strip() == "Cannot look at nvml: it is dark."


def test_what_is_equal_on_objects_of_a_kind_names_or_counts_them() -> None:
    drives = [row(f"nvme{number}n1", "read_ahead_kb") for number in range(24)]
    scattered = [row(f"nvme{number}n1", "scheduler") for number in (0, 3, 5, 8, 11, 13, 17, 19, 23)]
    gpus = [row(f"gpu{number}", "power_limit_watts") for number in range(8)]
    lines = lines_of(
        {"h1": looked(hugepages=concern("drifted", *drives, *scattered), gpu_settings=concern("drifted", *gpus))}
    )
    assert [re.split(" {2,}", line)[1:3] for line in lines[1:4]] == [
        ["nvme[0-23]n1", "read_ahead_kb"],
        ["9 drives", "scheduler"],
        ["gpu[0-7]", "power_limit_watts"],
    ]


def test_the_same_on_different_objects_of_two_nodes_is_counted() -> None:
    one = looked(hugepages=concern("drifted", row("gpu3", "ecc")))
    other = looked(hugepages=concern("drifted", row("gpu5", "ecc")))
    both = looked(hugepages=concern("drifted", row("gpu5", "ecc"), row("gpu6", "ecc")))
    assert "1 GPU " in lines_of({"h1": one, "h2": other})[1]
    assert "3 GPUs in all" in lines_of({"h1": one, "h2": both})[1]
    # Of objects that say nothing of their kind each has its own line.
    names = looked(hugepages=concern("drifted", row("vm.swappiness", "value"), row("vm.dirty_ratio", "value")))
    assert len(lines_of({"h1": names, "h2": names})) == 1 + 2 + 1


def test_reasons_needs_and_silence_are_said_once_for_all_nodes() -> None:
    waits = looked(hugepages=concern("pending", needs=["reboot"], reboot_reasons=[REASON]))
    reset = looked(gpu_settings=concern("pending", needs=["gpu_reset"]))
    silent = {"unreachable": True, "msg": "Failed to connect to the host via ssh:\ntimed out"}
    looks: Looks = {**dict.fromkeys(hosts(200), waits), "n1": reset, **dict.fromkeys(["x1", "x2"], silent)}
    assert lines_of(looks, gone={"h001": True, "h002": True}) == [
        f"h[001-200] (200) need a reboot: {REASON}",
        "n1 waits for gpu_reset (gpu_settings)",
        "x[1-2] (2) did not respond: Failed to connect to the host via ssh: timed out",
        "h[001-002] (2) stopped responding, and was drained before",
        "0 of 203 nodes are in sync. Settings: 0 in sync.",
    ]


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        ({"a": "in_sync", "b": "drifted"}, "1 of 2 nodes is in sync. Settings: 0 in sync, 1 drifted."),
        ({"a": "in_sync"}, "1 of 1 node is in sync. Settings: 0 in sync."),
        ({"a": "drifted", "b": "drifted"}, "0 of 2 nodes are in sync. Settings: 0 in sync, 2 drifted."),
    ],
)
def test_the_last_line_counts_as_people_write(looks: Dict[str, str], said: str) -> None:
    found = {
        name: looked(hugepages=concern(status, *([row("gpu0", "ecc")] if status == "drifted" else [])))
        for name, status in looks.items()
    }
    assert lines_of(found)[-1] == said
    assert (counted(1, "node"), counted(2, "node"), counted(0, "copy", "copies")) == ("1 node", "2 nodes", "0 copies")


def test_what_nobody_can_set_is_counted_and_has_a_line_for_each_reason_in_full() -> None:
    none = {"object": "NVIDIA GPUs", "setting": "driver", "reason": "there is none on the PCI bus"}
    bare = concern("in_sync", unmanaged=[none], unmanaged_total=1)
    queues = [
        {"object": f"nvme{drive}", "setting": f"interrupt {number}", "reason": "the kernel places it"}
        for drive in range(3)
        for number in range(4)
    ]
    drives = concern("in_sync", settings_in_sync=2, unmanaged=queues, unmanaged_total=len(queues))
    head = looked(gpu_settings=bare, mig_layout=bare)
    looks: Looks = {"h1": head, "h2": head, "h3": looked(numa_irq_affinity=drives)}
    total = "3 of 3 nodes are in sync. Settings: 2 in sync, 16 unmanaged."
    assert lines_of(looks) == [total]
    lines = lines_of(looks, detail="full")
    assert [re.split(" {2,}", line) for line in lines[1:]] == [
        ["h[1-2] (2)", "NVIDIA GPUs", "driver", "unmanaged"],
        ["", "there is none on the PCI bus"],
        ["h3", "3 devices", "interrupt (12)", "unmanaged"],
        ["", "the kernel places it"],
        [total],
    ]


def test_a_forecast_says_what_is_changed_restarted_reset_drained_and_rebooted() -> None:
    change = {"object": "gpu0", "setting": "ecc", "before": 1, "after": 0, "scope": "boot", "takes_effect": "gpu_reset"}
    waits = row("gpu3", "ecc", status="pending")
    gpus = concern("drifted", waits, changes=[change, {**change, "object": "gpu1"}], needs=["gpu_reset"])
    written = {**change, "takes_effect": "now"}
    engines = concern("drifted", changes=[written], needs=["restart_docker"])
    pages = concern("drifted", changes=[written], needs=["reboot"], reboot_reasons=[REASON])
    names = ["gpu_settings", "container_runtime", "hugepages"]
    look = looked(names, gpu_settings=gpus, container_runtime=engines, hugepages=pages)
    looks: Looks = {**dict.fromkeys(hosts(200), look), "bad": looked()}
    without = {"h150"}
    lines = forecast(looks, drained=set(hosts(100)), undrained=without, failing={"bad": "hugepages: Cannot read it."})
    assert lines == [
        "change   h[001-200] (200): 4 changes each: gpu_settings 2, container_runtime 1, hugepages 1",
        "restart  h[001-200] (200): docker, for container_runtime",
        "reset    h[001-200] (200): gpu[0-1,3], for gpu_settings",
        "drain    h[001-100] (100)",
        "drain    h150: not drained, because drain_backend is not set; by default a change to what running jobs use is "
        "refused",
        f"reboot   h[001-200] (200): {REASON}",
        "fail     bad: hugepages: Cannot read it.",
    ]
    assert forecast({"h1": looked()}, drained=(), failing={}) == []


def test_what_a_run_would_fail_with_on_its_way_is_foreseen_beside_what_it_changes_before() -> None:
    change = {"object": "a", "setting": "b", "before": 1, "after": 2, "scope": "effective", "takes_effect": "now"}
    look = looked(["mps"], mps=concern("drifted", row("a", "b"), changes=[change]))
    told = [("h1", "fail", "mps: Cannot. Do."), ("h2", "install", "packages, for dcgm")]
    lines = forecast({"h1": look, "h2": look}, drained=(), failing={}, refusals=told)
    assert lines == [
        "install  h2: packages, for dcgm",
        "change   h[1-2] (2): 1 change each: mps 1",
        "fail     h1: mps: Cannot. Do.",
    ]


def changing(**counts: int) -> Dict[str, Any]:
    change = {"object": "a", "setting": "b", "before": 1, "after": 2, "scope": "effective", "takes_effect": "now"}
    return looked(
        list(counts), **{name: concern("drifted", changes=[change] * count) for name, count in counts.items()}
    )


def test_how_many_changes_which_node_would_have_is_said_by_concern_where_few_nodes_are_alike() -> None:
    looks: Looks = {name: changing(hugepages=2, nvme_scheduler=number % 3) for number, name in enumerate(hosts(20))}
    assert forecast(looks, drained=(), failing={}) == [
        "change   h[001,004,007,010,013,016,019] (7): 2 changes each: hugepages 2",
        "change   h[002,005,008,011,014,017,020] (7): 3 changes each: hugepages 2, nvme_scheduler 1",
        "change   h[003,006,009,012,015,018] (6): 4 changes each: hugepages 2, nvme_scheduler 2",
    ]
    # No two of the first seven have the same.
    looks = {name: changing(hugepages=2, nvme_scheduler=min(number, 7)) for number, name in enumerate(hosts(20))}
    assert forecast(looks, drained=(), failing={}) == [
        "change   h[001-020] (20): in all 9 on h[008-020] (13), 2 on h001, 3 on h002, 4 on h003, 5 on h004, "
        "6 to 8 on 3 more nodes",
        "change   hugepages: 2 on h[001-020] (20)",
        "change   nvme_scheduler: 7 on h[008-020] (13), 1 on h002, 2 on h003, 3 on h004, 4 on h005, "
        "5 to 6 on 2 more nodes",
    ]
    # And each has its line for who asks.
    lines = forecast(looks, drained=(), failing={}, detail="full")
    assert len(lines) == 8
    assert "change   h007: 8 changes: hugepages 2, nvme_scheduler 6" in lines


@given(st.dictionaries(st.sampled_from(hosts(30)), st.tuples(*[st.integers(0, 9)] * 3)))
def test_the_counts_of_all_changes_add_up_however_they_are_folded(counts: Dict[str, Tuple[int, int, int]]) -> None:
    names = ("hugepages", "nvme_scheduler", "rdma")
    looks: Looks = {host: changing(**dict(zip(names, of))) for host, of in counts.items()}
    lines = forecast(looks, drained=(), failing={}, detail="full")
    found = [re.fullmatch(r"change   \S+(?: \((\d+)\))?: (\d+) changes?(?: each)?: .*", line) for line in lines]
    assert sum(int(one[1] or 1) * int(one[2]) for one in found if one) == sum(map(sum, counts.values()))
    brief = forecast(looks, drained=(), failing={})
    assert len(brief) <= max(SENTENCES, 1 + len(names))
    assert all(name in "".join(brief) for number, name in enumerate(names) if any(of[number] for of in counts.values()))


def test_what_a_forecast_leaves_out_is_there_in_full() -> None:
    reasons = {name: [f"reason {name}"] for name in hosts(20)}
    looks = dict.fromkeys(reasons, looked())
    brief, full = (
        forecast(looks, drained=(), failing={}, reasons=reasons, detail=detail) for detail in ("brief", "full")
    )
    assert brief[-1] == f"and 15 more lines about 15 nodes. {EVERYTHING}"
    assert full == [f"reboot   {name}: reason {name}" for name in reasons]


def test_a_reboot_without_a_drain_is_what_kills_jobs() -> None:
    lines = forecast({"h1": looked()}, drained=(), undrained={"h1"}, failing={}, reasons={"h1": [REASON]})
    assert lines[0] == "drain    h1: not drained, because drain_backend is not set; running jobs would be killed"


def test_what_is_done_to_a_node_is_foreseen_although_one_of_its_concerns_or_its_cluster_fails() -> None:
    change = {"object": "a", "setting": "b", "before": 1, "after": 0, "scope": "effective", "takes_effect": "now"}
    look = looked(["hugepages"], hugepages=concern("drifted", changes=[change]))
    causes = {f"h{number}": f"cause {number}" for number in range(1, 10)}
    lines = forecast(dict.fromkeys(causes, look), drained=(), failing=causes, in_part={"h1"})
    # And what fails is never left out.
    assert lines == [
        "change   h1: 1 change: hugepages 1",
        *(f"fail     {host}: {cause}" for host, cause in causes.items()),
    ]


def test_the_causes_of_one_node_are_one_line_of_the_forecast() -> None:
    causes = "kernel_cmdline: Cannot set it.\nquiet_services: Cannot declare it."
    line = "fail     h[1-2] (2): kernel_cmdline: Cannot set it. quiet_services: Cannot declare it."
    assert forecast({"h1": looked(), "h2": looked()}, drained=(), failing={"h1": causes, "h2": causes}) == [line]
    assert forecast(
        {"h1": looked(), "h2": looked()},
        drained=(),
        failing={},
        refusals=[("h1", "fail", causes), ("h2", "fail", causes)],
    ) == [line]


def test_refusals_and_other_owners_are_above_drift_and_never_cut() -> None:
    rows = [row(f"gpu{number}", f"setting{number}", status="drifted") for number in range(40)]
    found = [{"node": "h1", "concern": "gpu_settings", **one} for one in rows]
    for number in range(6):
        found.append(note_row("h1", f"concern{number}", status="drifted", note=f"Cannot set it: cause {number}."))
        found.append(note_row("h1", f"concern{number}", "x", status="conflict", note=f"owner {number} sets it"))
    lines = table(found, most=10)
    assert [sum(word in line for line in lines) for word in ("Cannot set it", " sets it")] == [6, 6]
    assert lines[-1] == "and 40 more lines, 40 settings on 1 node"


def test_the_change_of_a_foreign_file_stands_once_for_all_nodes_that_have_the_same() -> None:
    def look(difference: str) -> Dict[str, Any]:
        entry = {"path": "/etc/fstab", "diff": difference and f"--- /etc/fstab\n+++ /etc/fstab\n{difference}"}
        return looked(["node_swap"], node_swap=concern("drifted", row("x", "y"), files=[entry]))

    looks = {
        **dict.fromkeys(hosts(20), look("@@ -1 +1 @@\n-a\n+b\n")),
        "k1": look("@@ -1 +1 @@\n-c\n+b\n"),
        "k2": look(""),
    }
    assert list(file_differences({**looks, "gone": {"unreachable": True, "msg": "timed out"}})) == [
        "/etc/fstab on k2 changes.",
        "/etc/fstab on h[001-020] (20):",
        "  @@ -1 +1 @@",
        "  -a",
        "  +b",
        "/etc/fstab on k1:",
        "  @@ -1 +1 @@",
        "  -c",
        "  +b",
    ]


def test_a_forecast_names_what_others_mount_and_restart_as_what_the_rest_waits_for() -> None:
    written = {"object": "a", "setting": "b", "before": 1, "after": 0, "scope": "boot", "takes_effect": "now"}
    mounts = concern("drifted", changes=[written], needs=["mount of /gpfs", "restart of mmfsd"])
    look = looked(["filesystems"], filesystems=mounts)
    assert forecast({"h1": look, "h2": look}, drained=(), failing={}) == [
        "change   h[1-2] (2): 1 change each: filesystems 1",
        "change   h[1-2] (2): the rest only after the mount of /gpfs, for filesystems",
        "change   h[1-2] (2): the rest only after the restart of mmfsd, for filesystems",
    ]


# --- runs -------------------------------------------------------------------------------------------------------------


def inventory_of(folder: Path, looks: Looks, **answers: Any) -> Dict[str, Any]:
    found = {}
    for number, look in enumerate({id(look): look for look in looks.values()}.values()):
        variables = replaying(folder / f"answers{number}", {"node_state": {"changed": False, **look}, **answers})
        found.update({name: variables for name, of in looks.items() if of is look})
    return {"hosts": found, "vars": {"hugepages_transparent": {"enabled": "always"}}}


def with_diff(look: Mapping[str, Any]) -> Dict[str, Any]:
    found = copied(look)
    found["diff"] = {"before": "a: 1\n" * 40, "after": "a: 2\n" * 40}
    return found


def ours(output: str) -> List[str]:
    return [line for line in output.splitlines() if not OF_ANSIBLE.match(line)]


def test_an_audit_of_equal_nodes_is_a_screen(kinds: Tuple[Kind, ...], tmp_path: Path) -> None:
    looks = dict.fromkeys(hosts(3), with_diff(kinds[0].found))
    output = ansible_playbook(tmp_path, inventory_of(tmp_path, looks), "gpufleet.node.audit", "--diff")
    assert output.endswith("ends with 0"), output
    assert len(ours(output)) <= 20, output
    assert "h[001-003] (3)" in output


def test_a_check_of_equal_nodes_shows_each_change_once(kinds: Tuple[Kind, ...], tmp_path: Path) -> None:
    look = with_diff(kinds[0].found)
    # Its obstacle would fail it.
    look["concerns"].pop("nvidia_persistence")
    look["to_converge"].remove("nvidia_persistence")
    # So would those of the boot service, which is not declared here.
    for result in look["concerns"].values():
        result.pop("refusals", None)
    hunks = '--- /etc/docker/daemon.json\n+++ /etc/docker/daemon.json\n@@ -1 +1 @@\n-{}\n+{"debug": true}\n'
    look["concerns"]["hugepages"]["files"] = [{"path": "/etc/docker/daemon.json", "diff": hunks}]
    done = {"changed": True, "changes": [], "needs": [], "diff": look["diff"], "reboot_reasons": []}
    done.update(effective={"engines": [], "consumers": {}}, boot={}, reboot_required=False)
    answers = {**dict.fromkeys(look["to_converge"], done), "gpu_node_info": kinds[0].info}
    inventory = inventory_of(tmp_path, dict.fromkeys(hosts(3), look), **answers)
    arguments = ("gpufleet.node.site", "--check", "--diff", "-e", "gpufleet_batches=2")
    output = ansible_playbook(tmp_path, inventory, *arguments)
    assert output.endswith("ends with 0"), output
    said = ours(output)
    assert len(said) <= MOST_LINES, "\n".join(said)
    assert output.count("What is not in sync") == 1
    # All batches, and not the first one alone.
    assert said[said.index("What would be done") + 1].startswith("  change   h[001-003] (3): ")
    # Also of nodes that have work, and are looked at where no task shows its difference.
    assert "  /etc/docker/daemon.json on h[001-003] (3):" in said
    assert output.count('+{"debug": true}') == 1
    # One node alone has its differences.
    alone = ansible_playbook(tmp_path, inventory, *arguments, "--limit", "h001")
    assert alone.count("+a: 2") >= 40


def test_a_run_of_equal_nodes_shows_each_difference_once(kinds: Tuple[Kind, ...], tmp_path: Path) -> None:
    look = with_diff(kinds[0].found)
    for name in ("nvidia_persistence", "nvml"):
        look["concerns"].pop(name, None)
    look["to_converge"] = ["hugepages", "kernel_modules"]
    hunks = '--- /etc/docker/daemon.json\n+++ /etc/docker/daemon.json\n@@ -1 +1 @@\n-{}\n+{"debug": true}\n'
    look["concerns"]["hugepages"]["files"] = [{"path": "/etc/docker/daemon.json", "diff": hunks}]
    diff = {name: {"before": f"{name}: 1\n", "after": f"{name}: 2\n"} for name in look["to_converge"]}
    done = {"changed": True, "changes": [], "needs": [], "reboot_reasons": [], "effective": {}, "boot": {}}
    answers = {name: {**done, "diff": diff[name]} for name in diff}

    def run(of: Mapping[str, Any], *arguments: str) -> Dict[str, int]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        inventory = inventory_of(folder, dict.fromkeys(hosts(3), of), gpu_node_info=kinds[0].info, **answers)
        output = ansible_playbook(
            folder, inventory, "gpufleet.node.site", "--diff", "-e", "gpufleet_batches=100%", *arguments
        )
        # The nodes of a recording stay as they are.
        assert "What is not in sync after the run" in output, output
        return {text: output.count(text) for text in ("+hugepages: 2", "+kernel_modules: 2", '+{"debug": true}')}

    assert run(look) == {"+hugepages: 2": 0, "+kernel_modules: 2": 0, '+{"debug": true}': 1}
    # Tasks show theirs of one node, and where each node is asked for.
    assert run(look, "--limit", "h002") == {"+hugepages: 2": 1, "+kernel_modules: 2": 1, '+{"debug": true}': 0}
    assert run(look, "-e", "gpufleet_detail=full") == {
        "+hugepages: 2": 3,
        "+kernel_modules: 2": 3,
        '+{"debug": true}': 0,
    }
    # So they do where no look could foresee it.
    waits = copied(look)
    waits["concerns"]["kernel_modules"].update(status="unknown", failure={"code": "no_nvml"}, msg="Cannot look.")
    waits["waiting"] = ["kernel_modules"]
    assert run(waits) == {"+hugepages: 2": 0, "+kernel_modules: 2": 3, '+{"debug": true}': 1}
    # Of a file that is hidden no task may show the lines.
    hidden = copied(look)
    hidden["concerns"]["hugepages"]["files"] = [{"path": "/etc/docker/daemon.json", "diff": ""}]
    assert run(hidden, "--limit", "h002") == {"+hugepages: 2": 0, "+kernel_modules: 2": 0, '+{"debug": true}': 0}


def test_a_look_that_objects_is_a_line_and_not_its_whole_answer(kinds: Tuple[Kind, ...], tmp_path: Path) -> None:
    look = copied(kinds[0].found)
    message = "Cannot read the declaration of hugepages: unsupported option sise."
    look["concerns"]["hugepages"].update(status="invalid", settings=[], failure={"code": "declaration"}, msg=message)
    look.update(failed=True, msg=f"hugepages: {message}", invalid=["hugepages"])
    output = ansible_playbook(tmp_path, inventory_of(tmp_path, dict.fromkeys(hosts(3), look)), "gpufleet.node.site")
    assert output.endswith("ends with 2"), output
    assert "TASK [Run the role" not in output
    # The table has it, and so has the end of the run; a node is a short line.
    assert said_by_ansible(output) == {name: f"{name} failed, see below." for name in hosts(3)}
    assert f"  h[001-003] (3): failed: hugepages: {message}" in output.splitlines()
    assert sum(message in line for line in ours(output) if not line.startswith("[ERROR]")) == 2
    # One alone says it itself.
    one = tmp_path / "one"
    one.mkdir()
    alone = ansible_playbook(tmp_path, inventory_of(one, {"h1": look}), "gpufleet.node.site")
    assert said_by_ansible(alone) == {"h1": f"h1 failed: hugepages: {message}"}


def test_of_a_node_to_which_nothing_is_done_no_change_of_a_file_is_foreseen(
    kinds: Tuple[Kind, ...], tmp_path: Path
) -> None:
    look = copied(kinds[0].found)
    look["concerns"]["kernel_modules"]["files"] = [
        {"path": "/etc/x", "diff": "--- /etc/x\n+++ /etc/x\n@@ -1 +1 @@\n-a\n+b\n"}
    ]
    look["concerns"]["hugepages"].update(status="invalid", settings=[], failure={"code": "declaration"}, msg="Cannot.")
    look.update(failed=True, msg="hugepages: Cannot.", invalid=["hugepages"])
    inventory = inventory_of(tmp_path, dict.fromkeys(hosts(3), look))
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", "--check", "--diff")
    assert "What would be done" in output, output
    assert "/etc/x" not in output


def test_a_module_that_breaks_down_is_a_line(kinds: Tuple[Kind, ...], tmp_path: Path) -> None:
    broken = {"failed": True, "msg": "MODULE FAILURE: No start of json char found\nSee stdout/stderr", "rc": 1}
    broken.update(module_stdout="", module_stderr="Traceback\n" + "  File x\n" * 200 + "ImportError: no json\n")
    output = ansible_playbook(tmp_path, inventory_of(tmp_path, {"h1": broken}), "gpufleet.node.audit")
    (fatal,) = [line for line in output.splitlines() if line.startswith("fatal: ")]
    assert len(fatal) < 300
    assert "ImportError: no json" in fatal


def test_an_audit_with_a_report_ends_as_it_was_told_to(kinds: Tuple[Kind, ...], tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, {"h001": with_diff(kinds[0].found)}, gpu_node_info=kinds[0].info)
    arguments = ("gpufleet.node.audit", "-e", f"gpufleet_report_dest={tmp_path / 'report'}")
    output = ansible_playbook(tmp_path, inventory, *arguments)
    assert output.endswith("ends with 0"), output
    output = ansible_playbook(tmp_path, inventory, *arguments, "-e", "audit_fail_on_drift=true")
    assert output.endswith("ends with 2"), output
    assert re.search(r'"msg": "h001 has drifted: .*nvme_scheduler', output)


def test_a_node_without_systemd_can_be_verified(tmp_path: Path) -> None:
    inventory = {"hosts": {"h1": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}}
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.verify")
    assert "TASK [Refuse a node that is not ready for jobs]" in output, output
    assert "systemctl" not in output, output


def test_removing_from_a_bare_node_says_that_there_is_nothing(tmp_path: Path) -> None:
    bare = {
        name: []
        for name in ("drifted", "pending", "unknown", "invalid", "in_sync", "waiting", "to_converge", "orphaned")
    }
    look = {**bare, "concerns": {}, "managed": [], "reboot_noted": {}, "facts": {}}
    inventory = inventory_of(tmp_path, dict.fromkeys(hosts(3), look))
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.remove", "--check")
    assert output.endswith("ends with 0"), output
    assert "Nothing: these nodes have nothing of this collection." in output
    # In earnest it was silent.
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.remove")
    assert output.endswith("ends with 0"), output
    assert "  h[001-003] (3): it has nothing of this collection." in output.splitlines()


def test_nodes_that_fail_for_one_cause_have_it_said_once(kinds: Tuple[Kind, ...], tmp_path: Path) -> None:
    cause = "the sensors do not respond"
    look = {**copied(kinds[0].found), "to_converge": ["hugepages"], "waiting": []}
    inventory = inventory_of(tmp_path, dict.fromkeys(hosts(3), look), gpu_node_info={"failed": True, "msg": cause})
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", "-e", "gpufleet_batches=100%")
    assert f"  h[001-003] (3): failed: {cause}" in output.splitlines(), output
    last = output.partition("PLAY [Say how it ended]")[2]
    assert said_by_ansible(last) == {name: f"{name} failed, see below." for name in hosts(3)}
    assert "What is not in sync after the run" in output.splitlines(), output
    assert len(re.findall(r"^h\d+ .* failed=1 ", output, flags=re.MULTILINE)) == 3


def test_warnings_before_work_are_said_once(kinds: Tuple[Kind, ...], tmp_path: Path) -> None:
    look = copied(kinds[0].found)
    look.update(to_converge=["hugepages"], waiting=["hugepages"])
    command = {"changed": False, "rc": 0, "stdout": "", "stderr": ""}
    inventory = inventory_of(tmp_path, dict.fromkeys(hosts(3), look), gpu_node_info=kinds[0].info, command=command)
    arguments = ("gpufleet.node.site", "--check", "-e", '{"preflight_held": ["nvidia-*"]}')
    output = ansible_playbook(tmp_path, inventory, *arguments)
    assert output.count("is not held in its version") == 1, output
    assert "  h[001-003] (3): package nvidia-* is not held in its version" in output.splitlines()


def test_who_is_ready_for_jobs_and_who_is_not_is_said_once(kinds: Tuple[Kind, ...], tmp_path: Path) -> None:
    right = {**copied(kinds[0].found), "orphaned": []}
    for name in list(right["concerns"]):
        right["concerns"].pop(name)
    right.update(in_sync=[], to_converge=[])
    wrong = {**copied(right), "orphaned": ["hugepages"]}
    looks = {**dict.fromkeys(hosts(3), right), **dict.fromkeys(("x1", "x2", "x3"), wrong)}
    command = {"changed": False, "rc": 0, "stdout": "", "stderr": "", "start": "now"}
    inventory = inventory_of(tmp_path, looks, gpu_node_info=kinds[0].info, command=command)
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.verify")
    lines = output.splitlines()
    assert (
        f"  h[001-003] (3): Concerns in sync: 0. GPUs that respond: {kinds[0].info['node']['nvml_gpus']}." in lines
    ), output
    assert "  x[1-3] (3): hugepages is declared on the node, but not in the inventory" in lines
    assert said_by_ansible(output) == {name: f"{name} is not ready for jobs, see below." for name in ("x1", "x2", "x3")}
    assert output.count("not in the inventory") == 2  # The table has it too.
    assert output.endswith("ends with 2")


def test_what_waits_to_be_restored_is_said_once(tmp_path: Path) -> None:
    none = {
        name: []
        for name in ("drifted", "pending", "unknown", "invalid", "in_sync", "waiting", "to_converge", "orphaned")
    }
    pages = concern("pending", needs=["reboot"], reboot_reasons=[REASON])
    look = {**none, "pending": ["hugepages"], "concerns": {"hugepages": pages}, "managed": ["hugepages"]}
    look.update(reboot_noted={}, facts={})
    inventory = inventory_of(tmp_path, dict.fromkeys(hosts(3), look), hugepages={"changed": False, "needs": []})
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.remove", "-e", "gpufleet_batches=1")
    assert output.count("What could not be restored yet") == 1, output
    assert f"  h[001-003] (3): hugepages, for {REASON}" in output.splitlines()
