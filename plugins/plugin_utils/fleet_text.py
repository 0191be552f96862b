# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an operator reads of a fleet, as lines: what differs, waits, or would be done. Equal nodes are one line."""

from __future__ import annotations

from itertools import chain
from typing import Any, Callable, Container, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..module_utils._core.setting import DRIFTED, GPU_RESET, IN_SYNC, PENDING, REBOOT
from ..module_utils._core.wording import agreeing, counted
from ..module_utils._node.table import describe_counts, device_table, losers_of, ranged, spelled, table, unmanaged_of
from ..module_utils._text.host_ranges import folded, natural
from .answers import Look, answered, look_in
from .summary import UNREACHABLE, Summary

# How many characters of hosts stand in a line, how many lines the table has, and how many each kind of sentence.
WIDEST = 40
TABLE_LINES = 32
SENTENCES = 6
EVERYTHING = "For everything: -e gpufleet_detail=full"
# The table without what is cut: folded as before, of one node, or a line for each setting of each node.
REST = "For all lines: --diff, or --limit to one node; for each setting of each node: -e gpufleet_detail=full"
# What is done about a need that is not the reset of a GPU, or a reboot; for any other, whoever it names is notified.
DONE_BY_NAME = ("restart_", "reload_")
IDLE_GPU = "idle_gpu"
IDLE_NODE = "idle_node"
IDLE_SLICE = "idle_slice"
CONFIRMATION = "confirmation"
PEER = "peer"
LINK = "link"
# What somebody else does when it suits them.
AFTER = ("end of ", "mount of ", "restart of ")
NOT_DRAINED = "not drained, because drain_backend is not set; "
# A reboot asks no job. What else would take something away from a job is refused, unless the inventory allows it.
KILLS = "running jobs would be killed"
REFUSES = "by default a change to what running jobs use is refused"

# What is said of a run, in this order.
VERBS_OF_A_RUN = ("install", "change", "restart", "reload", "notify", "reset", "drain", "reboot", "unknown", "fail")

# One of these, and of what.
Told = Tuple[str, str]


def where(hosts: Sequence[str]) -> str:
    return folded(hosts, widest=WIDEST)


def drift(summary: Summary, gone: Mapping[str, bool], *, detail: str, whole: bool = False) -> Iterator[str]:
    """What the looks found. ``gone`` are the hosts out of reach since then, and whether they were drained before.

    ``detail`` is that of the look: with ``full`` nothing is left out, and only what cannot be set is folded, by the
    reason; with ``devices`` the devices with interrupts have a table, as they have on one node alone. So have, but with
    ``full``, the other owners that lose. The table of several nodes is cut, unless the ``whole`` is asked for.
    """
    full = detail == "full"
    rows = list(chain(*summary.rows.values()))
    if full:
        rows += [row for node in summary.rows for row in unmanaged_of(node, summary.looks[node])]
    if rows:
        most = 0 if full or whole or summary.total == 1 else TABLE_LINES
        yield from table(rows, where=where, most=most, full=full, rest=f". {REST}")
    devices = list(chain(*summary.devices.values()))
    if devices and (detail != "brief" or summary.total == 1):
        yield from device_table(devices, where=where)
    most = 0 if full else SENTENCES
    if full or summary.total == 1:
        yield from sentences(
            ((host, text) for host, look in summary.looks.items() if answered(look) for text in losers_of(look)),
            lambda names, text: f"on {on(names)} {text}",
            most=most,
        )
    yield from sentences(
        ((host, reason) for host, reasons in summary.reboot_reasons.items() for reason in reasons),
        lambda names, reason: f"{on(names)} {agreeing(len(names), 'needs', 'need')} a reboot: {reason}",
        most=most,
    )
    yield from sentences(
        ((host, text) for host, look in summary.looks.items() for text in _waits(look)),
        lambda names, text: f"{on(names)} {agreeing(len(names), 'waits', 'wait')} for {text}",
        most=most,
    )
    yield from sentences(
        ((host, _silence(summary.looks[host])) for host in summary.nodes[UNREACHABLE]),
        lambda names, text: f"{on(names)} did not respond{text}",
        most=most,
    )
    yield from sentences(
        ((host, ", and was drained before" if drained else "") for host, drained in gone.items()),
        lambda names, text: f"{on(names)} stopped responding{text}",
        most=most,
    )
    yield total(summary)


def total(summary: Summary) -> str:
    """How many nodes and settings are in sync; every setting is in exactly one of the counts."""
    right = len(summary.nodes[IN_SYNC])
    verb = agreeing(min(right or summary.total, summary.total), "is", "are")
    nodes = f"{right} of {counted(summary.total, 'node')} {verb} in sync"
    return f"{nodes}. Settings: {describe_counts(summary.counts)}."


def verdict(host: str, status: str, look: Look, rows: Sequence[Mapping[str, Any]]) -> str:
    """A sentence of one host whose worst status is one that an audit may fail for."""
    if status == UNREACHABLE:
        return f"{host} did not respond{_silence(look)}"
    concerns = ", ".join(dict.fromkeys(str(row["concern"]) for row in rows if row["status"] == status))
    return f"{host} {'has' if status == DRIFTED else 'is'} {spelled(status)}: {concerns}"


def forecast(
    looks: Mapping[str, Look],
    *,
    drained: Container[str],
    undrained: Container[str] = (),
    failing: Mapping[str, str],
    in_part: Container[str] = (),
    refusals: Sequence[Tuple[str, str, str]] = (),
    reasons: Optional[Mapping[str, Sequence[str]]] = None,
    clusters: Optional[Mapping[str, int]] = None,
    detail: str = "brief",
) -> List[str]:
    """What a run would do to these hosts: change, restart, reset, drain, reboot, and where it would fail.

    ``undrained`` are those that no drain_backend takes out of service although jobs there would end.
    ``refusals`` are the errors at which hosts would stop, after what is changed before, and what they would install
    first: host, verb and text.
    ``in_part`` are those of ``failing`` where only a concern or the cluster fails, and the rest is done all the same.
    With ``reasons`` it reboots them for these, and does nothing else. ``clusters`` is how many changes there would be
    in Kubernetes, by host. With the ``detail`` full no line is left out.
    """
    entries_of: Dict[str, List[Tuple[str, str]]] = {verb: [] for verb in VERBS_OF_A_RUN}
    changes: Dict[str, Dict[str, int]] = {}
    for host, look in looks.items():
        if host in failing:
            entries_of["fail"].append((host, failing[host]))
            if host not in in_part:
                continue
        if reasons is None:
            found = look_in(look)
            changes[host] = _counts(found)
            done: Iterable[Told] = _done(found)
        else:
            done = (("reboot", reason) for reason in reasons.get(host, ()))
        for verb, text in done:
            entries_of[verb].append((host, text))
        if host in drained:
            entries_of["drain"].append((host, ""))
        elif host in undrained:
            entries_of["drain"].append((host, NOT_DRAINED + (REFUSES if reasons is None else KILLS)))
    for host, verb, text in refusals:
        entries_of[verb].append((host, text))
    entries_of["change"] += [
        (host, f"{counted(count, 'change')} in Kubernetes") for host, count in (clusters or {}).items() if count
    ]
    full = detail == "full"
    lines = {verb: _of_verb(verb, entries, full=full) for verb, entries in entries_of.items()}
    lines["change"] = chain(_of_changes(changes, full=full), lines["change"])
    return list(chain(*lines.values()))


def file_differences(looks: Mapping[str, Look]) -> Iterator[str]:
    """The hunks by which a run would change foreign files, each once for all hosts that have the same.

    ``looks`` are those of a summary.
    """
    hosts: Dict[Tuple[str, str], List[str]] = {}
    for host, look in looks.items():
        for result in look.get("concerns", {}).values():
            for one in result.get("files", ()):
                hosts.setdefault((one["path"], one["diff"]), []).append(host)
    for (path, difference), names in sorted(hosts.items(), key=lambda entry: entry[0]):
        yield f"{path} on {on(names)}{':' if difference else ' changes.'}"
        # The path stands above.
        yield from (f"  {line}" for line in difference.splitlines()[2:])


def _of_verb(verb: str, entries: Sequence[Tuple[str, str]], *, full: bool) -> Iterator[str]:
    def line(hosts: Sequence[str], text: str) -> str:
        # The causes of one host are several lines.
        return f"{verb:<7}  {on(hosts)}{': ' if text else ''}{' '.join(text.split())}"

    # What fails is never left out.
    return sentences(entries, line, most=0 if full or verb == "fail" else SENTENCES)


def _of_changes(changes: Mapping[str, Mapping[str, int]], *, full: bool) -> Iterator[str]:
    """How many changes each host would have, by concern: a line for hosts that have the same, or for each concern where
    few have the same.
    """
    alike: Dict[Tuple[Tuple[str, int], ...], List[str]] = {}
    for host, counts in changes.items():
        alike.setdefault(tuple((name, count) for name, count in counts.items() if count), []).append(host)
    alike.pop((), None)
    if full or len(alike) <= SENTENCES:
        for pairs, hosts in sorted(alike.items(), key=lambda entry: -len(entry[1])):
            each = " each" if len(hosts) > 1 else ""
            of = ", ".join(f"{name} {count}" for name, count in pairs)
            yield f"change   {on(hosts)}: {counted(sum(count for _name, count in pairs), 'change')}{each}: {of}"
        return
    totals = {host: {"all": sum(count for _name, count in pairs)} for pairs, hosts in alike.items() for host in hosts}
    yield f"change   {on(list(totals))}: in all {_by_count(totals, 'all')}"
    for name in dict.fromkeys(name for counts in changes.values() for name, count in counts.items() if count):
        yield f"change   {name}: {_by_count(changes, name)}"


def _by_count(changes: Mapping[str, Mapping[str, int]], name: str) -> str:
    """How many changes of this name which hosts have."""
    hosts: Dict[int, List[str]] = {}
    for host, counts in changes.items():
        if counts.get(name):
            hosts.setdefault(counts[name], []).append(host)
    ordered = sorted(hosts, key=lambda count: (-len(hosts[count]), count))
    shown = ordered if len(ordered) <= SENTENCES else ordered[: SENTENCES - 1]
    parts = [f"{count} on {on(hosts[count])}" for count in shown]
    rest = ordered[len(shown) :]
    if rest:
        parts.append(f"{min(rest)} to {max(rest)} on {counted(sum(len(hosts[count]) for count in rest), 'more node')}")
    return ", ".join(parts)


def _counts(look: Look) -> Dict[str, int]:
    """How many changes a run would make on a node, by concern."""
    return {name: len(result["changes"]) for name, result in _results(look).items()}


def _results(look: Look) -> Dict[str, Mapping[str, Any]]:
    """What is found of the concerns that a run would converge."""
    return {name: result for name, result in look["concerns"].items() if name in (look.get("to_converge") or ())}


def sentences(
    entries: Iterable[Tuple[str, str]], make: Callable[[Sequence[str], str], str], *, most: int
) -> Iterator[str]:
    """A line for each text with its hosts, those of the most hosts first. With ``most`` the others are counted."""
    hosts: Dict[str, List[str]] = {}
    for host, text in entries:
        hosts.setdefault(text, []).append(host)
    texts = sorted(hosts, key=lambda text: -len(hosts[text]))
    shown = texts if not most or len(texts) <= most else texts[: most - 1]
    for text in shown:
        yield make(hosts[text], text)
    rest = texts[len(shown) :]
    if rest:
        nodes = {host for text in rest for host in hosts[text]}
        yield f"and {counted(len(rest), 'more line')} about {counted(len(nodes), 'node')}. {EVERYTHING}"


def on(hosts: Sequence[str]) -> str:
    """The hosts, and how many they are."""
    return where(hosts) if len(hosts) == 1 else f"{where(hosts)} ({len(hosts)})"


def _waits(look: Look) -> Iterator[str]:
    if not answered(look):
        return
    concerns: Dict[str, List[str]] = {}
    for name, result in look["concerns"].items():
        for need in result["needs"] if result["status"] == PENDING else ():
            if need != REBOOT:
                concerns.setdefault(need, []).append(name)
    for need, names in concerns.items():
        yield f"{need} ({', '.join(names)})"


def _silence(look: Look) -> str:
    message = " ".join(str(look.get("msg") or "").split())
    return f": {message}" if message else ""


def _done(look: Look) -> Iterator[Told]:
    """What a run would do to a node beside its changes."""
    for name, result in _results(look).items():
        for need in result["needs"]:
            yield from _about(need, name)
        reset = _reset(result)
        if reset:
            yield "reset", f"{reset}, for {name}"
        for reason in result["reboot_reasons"]:
            yield "reboot", reason
    for name in look.get("waiting") or ():
        yield "unknown", f"{name}, until what it depends on is installed"


def _reset(result: Mapping[str, Any]) -> str:
    """The objects of which something takes effect with the reset of a GPU, or waits for it; empty without any."""
    names = [one["object"] for one in result["changes"] if one["takes_effect"] == GPU_RESET]
    if GPU_RESET in result["needs"]:
        names += [one["object"] for one in result["settings"] if one["status"] == PENDING]
    text = ranged(sorted(set(names), key=natural)) if names else ""
    return text or ("GPUs" if GPU_RESET in result["needs"] else "")


def _about(need: str, concern: str) -> Iterator[Told]:
    if need in (REBOOT, GPU_RESET, PEER, LINK):
        # The table of the look says what it takes.
        return
    if need == IDLE_GPU:
        yield "change", f"GPUs only once they are idle, for {concern}"
    elif need == IDLE_NODE:
        yield "change", f"SMT only once no job runs, for {concern}"
    elif need == IDLE_SLICE:
        yield "change", f"slices only once nothing runs in them, for {concern}"
    elif need == CONFIRMATION:
        yield "change", f"interfaces for good only once a new connection comes through them, for {concern}"
    elif need.startswith(AFTER):
        yield "change", f"the rest only after the {need}, for {concern}"
    elif need.startswith(DONE_BY_NAME):
        verb, _line, name = need.partition("_")
        yield verb, f"{name}, for {concern}"
    else:
        yield "notify", f"{need}, for {concern}"
