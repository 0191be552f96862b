# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the samples say: medians, ratios, goals, the table, and the part of docs/performance.md that is generated."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from bench_ways import FLOOR, GPUFLEET, GPUFLEET_MODULE, TASKS, USUAL, USUAL_MITOGEN, WAYS

Results = Mapping[str, Any]
MEASURES = ("wall", "node_cpu", "guest_cpu", "controller_cpu", "bytes_sent", "bytes_received")
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
# measure, compared with, at least (True) or at most, factor
GOALS = (
    ("wall", FLOOR, False, 0.8),
    ("node_cpu", FLOOR, False, 0.7),
    ("bytes_sent", FLOOR, False, 0.1),
    ("wall", USUAL, True, 20.0),
    ("node_cpu", USUAL, True, 20.0),
    ("wall", TASKS, True, 8.0),
    ("node_cpu", TASKS, True, 8.0),
    ("wall", USUAL_MITOGEN, True, 2.5),
    ("node_cpu", USUAL_MITOGEN, True, 2.5),
)
# On a CPU that nobody emulates, ssh alone is 0.4 of the floor.
REAL_NODE_CPU = 0.8
WORDS = {"wall": "wall time", "node_cpu": "node CPU", "bytes_sent": "bytes"}
TITLES = {
    FLOOR: "the floor",
    USUAL: "the usual way",
    USUAL_MITOGEN: "the usual way under mitogen",
    TASKS: "the playbook of well-written tasks",
}
# Whose CPU time the node's is: that of the emulator's process, or what the control groups of the node count.
QEMU, GUEST = "qemu", "guest"
NODE_CPU = {QEMU: "QEMU's process", GUEST: "the control groups of the node"}


def medians(samples: Sequence[Mapping[str, Any]]) -> Dict[str, Dict[str, float]]:
    """The median of every measure, by way."""
    ways = dict.fromkeys(sample["way"] for sample in samples)
    return {
        way: {measure: statistics.median(s[measure] for s in samples if s["way"] == way) for measure in MEASURES}
        for way in ways
    }


def ratios(middle: Mapping[str, Mapping[str, float]], to: str) -> Dict[str, Dict[str, float]]:
    """Every median in multiples of that of the way ``to``."""
    if to not in middle:
        return {}
    return {
        way: {measure: value / middle[to][measure] for measure, value in values.items()}
        for way, values in middle.items()
    }


def goals(middle: Mapping[str, Mapping[str, float]], *, virtual: bool) -> List[Tuple[bool, str]]:
    """Whether each goal is met, and the sentence about it; ``virtual`` where the node is a virtual machine of ours."""
    found = []
    for measure, other, at_least, factor in GOALS:
        if other not in middle or GPUFLEET not in middle:
            continue
        if (measure, other) == ("node_cpu", FLOOR) and not virtual:
            factor = REAL_NODE_CPU
        ours, theirs = middle[GPUFLEET][measure], middle[other][measure]
        ratio = theirs / ours if at_least else ours / theirs
        met = ratio >= factor if at_least else ratio <= factor
        if at_least:
            aim = f"{TITLES[other]} takes at least {factor:g} times our {WORDS[measure]}"
        else:
            aim = f"we take at most {factor:g} times the {WORDS[measure]} of {TITLES[other]}"
        found.append((met, f"{aim}: {'met' if met else 'not met'}, {ratio:.2f} times"))
    return found


def table(results: Results) -> str:
    """One row a way, as Markdown."""
    middle = results["medians"]
    ours, floor = results["ratio_to_gpufleet"], results["ratio_to_floor"]
    counts = {entry["way"]: entry for entry in results["counts"]}
    header = (
        "way", "looked by", "remote executions", "wall s", "to ours", "to floor", "node CPU s", "to ours", "to floor",
        "controller CPU s", "KiB sent", "to floor", "lines compiled",
    )  # fmt: skip
    rows = [header]
    for way in WAYS:
        if way.name not in middle:
            continue
        values, count = middle[way.name], counts[way.name]

        def of(table_: Mapping[str, Mapping[str, float]], measure: str, name: str = way.name) -> str:
            return f"{table_[name][measure]:.2f}" if table_ else "-"

        rows.append(
            (
                way.title,
                f"the {count['looked_by']}" if count["looked_by"] else "-",
                "1 connection" if way.mitogen else str(count["executions"]),
                f"{values['wall']:.2f}",
                of(ours, "wall"),
                of(floor, "wall"),
                f"{values['node_cpu']:.2f}",
                of(ours, "node_cpu"),
                of(floor, "node_cpu"),
                f"{values['controller_cpu']:.2f}",
                f"{values['bytes_sent'] / 1024:.0f}",
                of(floor, "bytes_sent"),
                f"{count['lines']}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = [
        "| " + " | ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))) + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def machine(results: Results) -> str:
    """The paragraph about what was measured where."""
    node, controller, run = results["node"], results["controller"], results["run"]
    accel = {"kvm": "a virtual machine with KVM", "tcg": "a virtual machine on an emulated CPU (QEMU TCG)"}
    kind = accel.get(node["accel"], "a machine of its own")
    where = "on the machine of the controller" if node["accel"] in accel else "on the network"
    source = f"Node CPU is that of {NODE_CPU[run['node_cpu_of']]}"
    if run["node_cpu_of"] == QEMU and results["ratio_to_floor"]:
        ratio = results["ratio_to_floor"].get(GPUFLEET, {}).get("guest_cpu")
        source += f"; what the node's control groups count for ours is {ratio:.2f} times the floor" if ratio else ""
    return (
        f"Measured on {run['date']}: {run['rounds']} rounds, medians. The node is {kind} {where}, {node['cpus']} CPUs "
        f"({node['cpu']}), {node['memory_mib']} MiB, {node['system']}, kernel {node['kernel']}, "
        f"Python {node['python']}. "
        f"The controller has {controller['cpus']} CPUs ({controller['cpu']}), Python {controller['python']}, "
        f"ansible-core {controller['ansible_core']}, ansible.posix {controller['ansible_posix']}, "
        f"mitogen {controller['mitogen'] or 'not there'}, {controller['ssh']}. Others used "
        f"{run['busy_before']:.0%} of the controller's CPUs before the rounds and {run['busy_after']:.0%} after. "
        f"{source}."
    )


def compiled(results: Results) -> List[str]:
    """Whose lines the node compiles for the collection, a sentence for each way to look."""
    found = []
    for entry in results["counts"]:
        if entry["way"] == GPUFLEET:
            found.append(
                f"By the program, `gpufleet.node.site` has the node compile {entry['lines']} lines, which start it."
            )
        if entry["way"] == GPUFLEET_MODULE:
            found.append(
                f"Of the {entry['lines']} lines that it has the node compile by the module, {entry['lines_ours']} are "
                "those of this collection; the rest is what Ansible sends with every module."
            )
    return found


def summary(results: Results) -> str:
    """What the user reads at the end."""
    lines = [table(results), "", machine(results), ""]
    lines += compiled(results)
    lines += [f"Not run: {text}" for text in results["not_run"]]
    lines += [f"Goal: {entry['text']}" for entry in results["goals"]]
    return "\n".join(lines)


def write_docs(results: Results, page: Path) -> None:
    """Replace the generated part of the page."""
    text = page.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _old, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table: {BEGIN} and {END}")
    parts = [table(results), machine(results), *compiled(results)]
    parts += [f"{text}." for text in results["not_run"]]
    parts.append(
        "\n".join(["Goals for the converged node:", "", *(f"- {entry['text']}" for entry in results["goals"])])
    )
    page.write_text(f"{head}{BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{END}{tail}", encoding="utf-8")
