# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists of thousands: what udev can read of them, and that none takes a minute."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import match
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import AnyConcern, Scope
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._linux import modprobe
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_modules.concern import (
    CONCERN as KERNEL_MODULES,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_scheduler import rules, udev
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_scheduler.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_scheduler.spec import parse
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_modules import kernel_modules_machine
from ansible_collections.gpufleet.node.tests.unit.concerns.nvme_scheduler.nvme_machine import (
    RULES,
    Drive,
    machine,
    run,
    value,
)
from ansible_collections.gpufleet.node.tests.unit.support import PATIENCE, quickest, snapshot

pytestmark = pytest.mark.once

# UDEV_LINE_SIZE of systemd, UTIL_LINE_SIZE before 240: a line of so many bytes, without its end, is not read.
UDEV_LINE_BYTES = 16384
OTHERS = "/etc/udev/rules.d/99-zz-others.rules"
MANY = 10_000
SECONDS = 1.0


def serials(count: int, *more: str) -> List[str]:
    return [*(f"S6CKNE0T{number:06d}" for number in range(count)), *more]


def longest(text: str) -> int:
    return max(len(line.encode()) for line in text.splitlines())


# --- udev -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["serial", "model", "pci_address", "name"])
def test_no_line_of_ours_is_longer_than_udev_reads(key: str) -> None:
    texts = {
        "serial": serials(3000),
        "model": [f"Ünified Model {number}" for number in range(2000)],
        "pci_address": [f"{number:04x}:41:00.0" for number in range(2000)],
        "name": [f"{kind}{number}" for number in range(1000) for kind in ("nvme", "md", "vg-")],
    }
    text = rules.render(parse([{"match": {key: texts[key]}, "read_ahead_kb": 64}]))
    assert text is not None
    assert longest(text) < UDEV_LINE_BYTES // 2
    # All of them, each as often as before.
    assert all(text.count(f"{one}|") + text.count(f'{one}"') >= 1 for one in texts[key])


def test_keys_that_must_agree_together_still_do_when_both_are_long(tmp_path: Path) -> None:
    entry = {
        "match": {"serial": serials(1500, "S0001", "S0002"), "model": [f"MODEL {n}" for n in range(1500)]},
        "read_ahead_kb": 4,
    }
    text = rules.render(parse([entry]))
    assert text is not None
    assert longest(text) < UDEV_LINE_BYTES
    drives = [Drive(1, model="MODEL 1499"), Drive(2), Drive(3, model="MODEL 3")]
    host = machine(tmp_path, drives, {"/etc/udev/rules.d/60-others.rules": 'ATTR{queue/nomerges}="0"\n'})
    outcome = run(host, entry)
    assert [value(host, f"nvme{number}n1", "read_ahead_kb") for number in (1, 2, 3)] == ["4", "128", "128"]
    assert outcome.boot["queues"]["nvme1n1"]["read_ahead_kb"] == 4
    assert run(host, entry).status == "in_sync"


@pytest.mark.parametrize("text", ["S" * 9000, "S*" * 8192])
def test_a_text_that_no_rule_can_hold_is_refused_before_any_change(tmp_path: Path, text: str) -> None:
    host = machine(tmp_path, [Drive(1)])
    with pytest.raises(DeclarationError, match=r"Cannot use queues\[0\]: serial has a string of \d+ bytes"):
        run(host, {"match": {"serial": ["S0001", text]}, "read_ahead_kb": 4})
    assert host.files.log == []


def test_lists_that_would_take_too_many_rules_together_are_refused() -> None:
    lists = {"serial": serials(10_000), "model": serials(10_000)}
    with pytest.raises(DeclarationError, match=r"queues\[0\]: serial and model together"):
        parse([{"match": lists, "read_ahead_kb": 4}])


def test_a_file_with_a_line_that_udev_does_not_read_is_in_doubt(tmp_path: Path) -> None:
    """udev stops at the line, and the jumps of the lines before it go nowhere; older ones leave out the line alone."""
    rule = 'KERNEL=="nvme1n1", ATTR{queue/read_ahead_kb}="512"'
    long_line = f'KERNEL=="{"|".join(serials(1200))}", ATTR{{queue/read_ahead_kb}}="256"'
    assert len(long_line) > UDEV_LINE_BYTES
    for text in (f"{rule}\n{long_line}\n", f"{long_line}\n{rule}\n"):
        (entry,) = udev.parse_texts([(OTHERS, text)])
        assert [[written.value for written in one.assignments] for one in entry.rules] == [["512"]]
        assert all(written.in_doubt for one in entry.rules for written in one.assignments)
    host = machine(tmp_path, [Drive(1)], {OTHERS: f"{rule}\n{long_line}\n"})
    # Nobody can say that it has the last word, so it is told and does not stop the run.
    outcome = run(host, {"match": {"name": "nvme1n1"}, "read_ahead_kb": 64})
    assert [(found.path, found.value) for found in outcome.remaining.conflicts] == [(OTHERS, "512")]
    assert outcome.boot["queues"]["nvme1n1"]["read_ahead_kb"] == 64


def test_a_rule_whose_continued_lines_are_too_long_together_is_not_there(tmp_path: Path) -> None:
    half = "|".join(serials(600))
    text = f'KERNEL=="nvme1n1|{half}|\\\n{half}", ATTR{{queue/read_ahead_kb}}="256"\n'
    assert max(map(len, text.splitlines())) < UDEV_LINE_BYTES < len(text)
    (entry,) = udev.parse_texts([(OTHERS, f'{text}ATTR{{queue/read_ahead_kb}}="512"\n')])
    assert [[written.value for written in one.assignments] for one in entry.rules] == [["512"]]
    assert not entry.rules[0].assignments[0].in_doubt
    host = machine(tmp_path, [Drive(1)], {OTHERS: text})
    assert run(host, {"match": {"name": "nvme1n1"}, "read_ahead_kb": 64}).remaining.conflicts == ()


def test_the_line_before_the_limit_counts_and_the_one_at_it_does_not() -> None:
    def text(length: int) -> str:
        rule = 'KERNEL=="nvme*", ATTR{queue/read_ahead_kb}="256"'
        return rule.replace("nvme*", f"nvme*|{'x' * (length - len(rule) - 1)}")

    # Up to 239 the end of the line and a NUL count, too.
    for length, there in ((UDEV_LINE_BYTES - 3, 1), (UDEV_LINE_BYTES - 2, 0), (UDEV_LINE_BYTES, 0)):
        assert len(text(length)) == length
        (entry,) = udev.parse_texts([(OTHERS, text(length) + "\n")])
        assert len(entry.rules) == there


def test_rules_of_an_earlier_release_with_such_a_line_are_not_in_effect(tmp_path: Path) -> None:
    entry = {"match": {"serial": serials(1200, "S0001")}, "read_ahead_kb": 64}
    host = machine(tmp_path, [Drive(1)])
    assert run(host, entry).error is None
    lines = host.files.read(RULES).splitlines()
    tests = [line for line in lines if "ATTRS{serial}" in line]
    one = tests[0].replace(tests[0].split('"')[3], "|".join(serials(1200, "S0001")))
    old = "\n".join(one if line == tests[0] else line for line in lines if line not in tests[1:]) + "\n"
    assert longest(old) > UDEV_LINE_BYTES
    host.files.replace(RULES, old)
    found = run(host, entry, check_mode=True)
    assert ("nvme1n1", "read_ahead_kb", None, 64) in [(c.object, c.setting, c.before, c.after) for c in found.changes]
    assert run(host, entry).error is None
    assert longest(host.files.read(RULES)) < UDEV_LINE_BYTES


# --- time -------------------------------------------------------------------------------------------------------------


def timed(work: Callable[[], Any]) -> float:
    """Seconds of the processor for what cannot be done twice."""
    return quickest(work, attempts=1)


def entries(count: int) -> List[Dict[str, Any]]:
    return [
        {"match": {"serial": f"S6CKNE0T{number:06d}"}, "read_ahead_kb": 64 + 4 * (number % 3), "optional": True}
        for number in range(count)
    ]


@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside others"])
@pytest.mark.parametrize("one_entry", [False, True], ids=["entries", "serials"])
def test_drives_by_the_thousand_take_no_minute(tmp_path: Path, one_entry: bool, others: bool) -> None:
    declared: List[Dict[str, Any]] = (
        [{"match": {"serial": serials(MANY)}, "read_ahead_kb": 64}] if one_entry else entries(MANY)
    )
    drives = [Drive(number, serial=f"S6CKNE0T{number:06d}") for number in range(1, 17)]
    more = {"/etc/udev/rules.d/60-others.rules": 'KERNEL=="nvme*", ATTR{queue/nomerges}="0"\n'}
    host = machine(tmp_path, drives, more if others else {})
    assert run(host, *declared).error is None
    params = validated(CONCERN, {"queues": declared})
    assert timed(lambda: converge(CONCERN, params, host, check_mode=False)) < SECONDS * PATIENCE
    outcome = converge(CONCERN, params, host, check_mode=True)
    assert (outcome.status, outcome.changes) == ("in_sync", ())
    assert value(host, "nvme16n1", "read_ahead_kb") in ("64", "68", "72")


def test_a_selection_of_thousands_takes_no_second() -> None:
    many = match.parse("gpus", [{"match": {"uuid": f"GPU-{n}"}, "optional": True} for n in range(MANY)], ["uuid"])
    candidates = [match.Candidate(f"gpu{n}", {"uuid": (f"GPU-{n}",)}) for n in range(16)]
    assert match.select(many, candidates) == tuple(range(16))
    assert timed(lambda: match.select(many, candidates)) < SECONDS * PATIENCE
    one = match.parse("gpus", [{"match": {"uuid": [f"GPU-{n}" for n in range(MANY)]}}], ["uuid"])
    assert timed(lambda: match.select(one, candidates)) < SECONDS * PATIENCE


LISTS: Dict[str, Dict[str, Any]] = {
    "gpu_settings": {"gpus": [{"match": {"uuid": f"GPU-{n}"}, "optional": True} for n in range(MANY)]},
    "mig_layout": {"gpus": [{"match": {"uuid": f"GPU-{n}"}, "optional": True} for n in range(MANY)]},
    "nvme_scheduler": {"queues": entries(MANY)},
}


@pytest.mark.parametrize("name", LISTS)
def test_a_declaration_of_thousands_is_looked_at_in_a_second(tmp_path: Path, name: str) -> None:
    concern: AnyConcern = next(entry.concern for entry in REGISTRY if entry.name == name)
    host = machine(tmp_path, [Drive(1)])
    params = validated(concern, LISTS[name])

    def look() -> None:
        assess(concern, params, host)

    assert timed(look) < SECONDS * PATIENCE


def test_of_patterns_and_names_the_line_that_is_read_first_counts() -> None:
    text = """\
blacklist nv*
install nv[a-m]? /bin/first
install nvme /bin/second
install nv* /bin/third
install nvidia-uvm /bin/fourth
softdep *_uvm pre: nvidia
install nvidia_drm /bin/fifth
"""
    lines = modprobe.ModprobeLines(modprobe.parse_modprobe("/etc/modprobe.d/a.conf", text))

    def number(line: Optional[modprobe.ModprobeLine]) -> Optional[int]:
        return None if line is None else line.number

    names = ("nvme", "nvidia_uvm", "nvidia_drm", "nvm", "ext4")
    assert [number(modprobe.install_of(name, lines)) for name in names] == [2, 4, 4, 4, None]
    assert [number(modprobe.softdep_of(name, lines)) for name in names] == [None, 6, None, None, None]
    assert [line.number for line in lines.of("nvidia_uvm")] == [4, 5, 6]
    # A blacklist knows no patterns.
    assert modprobe.lines_of(modprobe.BLACKLIST, "nvme", lines) == ()


MODULES = [f"driver_{number:05d}" for number in range(MANY)]
# As modprobe.d has it: a name may have dashes, and a pattern stands for many.
OTHERS_OF = {
    "load": "install gone_* /bin/false\n"
    + "".join(f"softdep other-{number} pre: driver-{number:05d}\n" for number in range(MANY)),
    "block": "install gone_* /bin/false\n"
    + "".join(f"install {name.replace('_', '-')} /sbin/modprobe -i {name}\n" for name in MODULES),
}


@pytest.mark.parametrize("there", ["nothing", "all", "others"])
@pytest.mark.parametrize("option", OTHERS_OF)
def test_modules_by_the_thousand_are_looked_at_in_a_second(tmp_path: Path, option: str, there: str) -> None:
    files = {
        f"/lib/modules/{kernel_modules_machine.RELEASE}/modules.dep": "".join(
            f"kernel/drivers/{name.replace('_', '-')}.ko.zst: kernel/lib/lib.ko.zst\n" for name in MODULES
        ),
    }
    loaded = "".join(f"{name} 16384 0 - Live 0x0\n" for name in MODULES)
    if there == "others":
        # Read after our own file, so that ours wins.
        files["/etc/modprobe.d/zz-others.conf"] = OTHERS_OF[option]
    if there == "all":
        lists = {
            "load": (kernel_modules_machine.LOAD_FILE, MODULES),
            "block": (
                kernel_modules_machine.BLOCK_FILE,
                [line for name in MODULES for line in (f"blacklist {name}", f"install {name} /bin/false")],
            ),
        }
        path, lines = lists[option]
        header = "# Written by the module gpufleet.node.kernel_modules; changes are lost.\n"
        files[path] = header + "".join(f"{line}\n" for line in lines)
    # What a machine has to load, or to unload, is not loaded yet, or still is.
    host, _kernel = kernel_modules_machine.machine(
        tmp_path, files, loaded=loaded if (option == "load") == (there == "all") else ""
    )
    params = validated(KERNEL_MODULES, {option: MODULES})

    def look() -> None:
        declaration, scope = KERNEL_MODULES.parse(params), Scope()
        state = KERNEL_MODULES.observe(host, declaration, scope)
        plan = KERNEL_MODULES.plan(state, KERNEL_MODULES.resolve(declaration, state), scope)
        assert {setting.status for setting in plan.settings} == ({"in_sync"} if there == "all" else {"drifted"})
        assert len(plan.conflicts) == (MANY if (option, there) == ("block", "others") else 0)
        _effective, boot = KERNEL_MODULES.report(state)
        assert len(boot["modules"]) == MANY

    assert timed(look) < SECONDS * PATIENCE


def test_thousands_of_modules_are_blocked_in_seconds_and_restored(tmp_path: Path) -> None:
    host, _kernel = kernel_modules_machine.machine(tmp_path)
    before = snapshot(tmp_path)
    began = time.process_time()
    kernel_modules_machine.run(host, block=MODULES)
    kernel_modules_machine.run(host, state="absent")
    assert time.process_time() - began < 8 * SECONDS * PATIENCE
    assert snapshot(tmp_path) == before


def test_two_lists_of_thousands_of_modules_are_looked_at_in_a_second(tmp_path: Path) -> None:
    depends = "".join(f"kernel/drivers/{name}.ko: kernel/lib/lib.ko\n" for name in MODULES)
    path = f"/lib/modules/{kernel_modules_machine.RELEASE}/modules.dep"
    host, _kernel = kernel_modules_machine.machine(tmp_path, {path: depends})
    params = validated(KERNEL_MODULES, {"load": MODULES, "block": [f"other_{number}" for number in range(MANY)]})

    def look() -> None:
        _state, plan = assess(KERNEL_MODULES, params, host)
        # Each list has a file, the modules need one more, and there is the declaration.
        assert len(plan.settings) == 3 * MANY + 4

    assert timed(look) < 2 * SECONDS * PATIENCE
