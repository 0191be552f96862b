# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of tuned's profiles, as its own sources merge them, and the writes of its scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux import boot_writers, tuned
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost

PROFILE = "/etc/tuned/profiles/site/tuned.conf"
BASE = "/usr/lib/tuned/base/tuned.conf"
SCRIPT = "/etc/tuned/profiles/site/script.sh"
TARGET = "/sys/block/nvme0n1/queue/scheduler"
TUNED: Mapping[str, str] = {tuned.ACTIVE: "site\n", tuned.ENABLED: ""}


def host_with(root: Path, files: Mapping[str, str]) -> RecordedHost:
    for path, text in {**TUNED, **files}.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return RecordedHost(str(root))


def profiles(text: str, base: str = "") -> Dict[str, str]:
    return {PROFILE: f"[main]\ninclude=base\n{text}", BASE: base}


def test_a_folder_in_place_of_an_included_file_is_no_text(tmp_path: Path) -> None:
    profile = "[variables]\ninclude=/etc/tuned/vars\nx=1\n[sysctl]\nvm.swappiness=${x}\n"
    host = host_with(tmp_path, {"/etc/tuned/site/tuned.conf": profile, "/etc/tuned/vars/.keep": ""})
    assert [(one.key, one.value) for one in tuned.read_active(host.files)] == [("vm.swappiness", "1")]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            profiles("[sysctl]\nb=2\na=3\n", "[sysctl]\na=1\n"),
            [("sysctl", "a", "3"), ("sysctl", "b", "2")],
            id="place",
        ),
        pytest.param(profiles("[disk]\nenabled=yes\nelevator=none\n"), [], id="yes is not true"),
        pytest.param(profiles("[disk]\nenabled=true\nelevator=none\n"), [("disk", "elevator", "none")], id="true"),
        pytest.param(
            profiles("[disk]\nelevator=none\n", "[disk]\nenabled=0\nreadahead=64\n"),
            [("disk", "readahead", "64"), ("disk", "elevator", "none")],
            id="a later section is enabled unless it says otherwise",
        ),
        pytest.param(
            profiles("[disk]\ndrop=readahead, apm\nelevator=none\n", "[disk]\nreadahead=64\napm=1\n"),
            [("disk", "elevator", "none")],
            id="dropped options",
        ),
        pytest.param(profiles('[sysctl]\na="1 2"\n'), [("sysctl", "a", "1 2")], id="quotes of sysctl"),
        pytest.param(profiles('[sysfs]\n/sys/a="1"\n'), [("sysfs", "/sys/a", '"1"')], id="quotes of sysfs"),
        pytest.param(
            {
                **profiles("[variables]\ninclude=/etc/tuned/v.conf\n[sysctl]\na=${b}\n"),
                "/etc/tuned/v.conf": "# x\nb=7\n",
            },
            [("sysctl", "a", "7")],
            id="variables of a file",
        ),
        pytest.param(
            {
                **profiles("[sysctl]\na=1\n"),
                tuned.POST_LOADED: "post\n",
                "/etc/tuned/post/tuned.conf": "[sysctl]\na=2\n",
            },
            [("sysctl", "a", "2")],
            id="the profile that is loaded behind",
        ),
    ],
)
def test_profiles_are_merged_as_tuned_does(
    tmp_path: Path, files: Mapping[str, str], expected: List[Tuple[str, str, str]]
) -> None:
    """``_merge_two`` of profiles/merger.py, ``Unit`` of unit.py, and variables.py (tuned 2.20 and August 2026)."""
    options = tuned.read_active(host_with(tmp_path, files).files)
    assert [(one.plugin, one.key, one.value) for one in options] == expected


def test_a_later_section_is_for_all_devices_unless_it_says_otherwise(tmp_path: Path) -> None:
    files = profiles("[disk]\nelevator=none\n", "[disk]\ndevices=sda\ntype=disk\nreadahead=64\n")
    assert {one.devices for one in tuned.read_active(host_with(tmp_path, files).files)} == {"*"}


@pytest.mark.parametrize("key", ["devices_udev_regex", "cpuinfo_regex", "uname_regex"])
def test_a_section_for_some_machines_or_devices_says_so(tmp_path: Path, key: str) -> None:
    files = profiles(f"[disk]\n{key}=x.*\nelevator=none\n[sysctl]\na=1\n")
    found = {one.key: one.conditional for one in tuned.read_active(host_with(tmp_path, files).files)}
    assert found == {key: True, "elevator": True, "a": False}


@pytest.mark.parametrize(
    ("value", "before", "expected"),
    [
        (">4096", "128", "4096"),
        (">4096", "8192", None),
        ("<64", "128", "64"),
        ("<64", "32", None),
        (">4096", None, "4096"),
        (">8192 s", "128", ">8192 s"),
        (">a", "128", ">a"),
        (">", "1", ">"),
        ("128", "1", "128"),
    ],
)
def test_what_a_modifier_makes_of_a_value(value: str, before: Optional[str], expected: Optional[str]) -> None:
    """``_process_assignment_modifiers`` of plugins/base.py."""
    assert tuned.modified(value, before) == expected


FUNCTIONS = ". /usr/lib/tuned/functions\n"
START, STOP = f"echo none > {TARGET}", f"echo bfq > {TARGET}"
NONE = [("none", False)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param(START, NONE, id="a plain script"),
        pytest.param(
            f"{FUNCTIONS}start() {{\n{START}\nreturn 0\n}}\nstop() {{\n{STOP}\n}}\nprocess $@\n", NONE, id="functions"
        ),
        pytest.param(f'start() {{ {START}; }}\nstop() {{ {STOP}; }}\nprocess "$@"\n', NONE, id="functions of one line"),
        pytest.param(
            f'function start {{\n{START}\n}}\nfunction verify {{\n{STOP}\n}}\nprocess "$1"\n', NONE, id="named so"
        ),
        pytest.param(
            f"other() {{\n{START}\n}}\nstart() {{\nother\n}}\nprocess $@\n",
            [("none", True)],
            id="a function of its own",
        ),
        pytest.param(f"start() {{\n{START}\n}}\n", [("none", True)], id="a function that may not be called"),
        pytest.param(f'case "$1" in\nstart)\n{START}\n;;\nstop)\n{STOP}\n;;\nesac\n', NONE, id="a case"),
        pytest.param(
            f'case "$1" in\n  stop|off) {STOP} ;;\n  st*|on) {START} ;;\n  *) {STOP} ;;\nesac\n', NONE, id="patterns"
        ),
        pytest.param(f"case $1 in (stop) {STOP};; (*) {START};; esac\n", NONE, id="a case of one line"),
        pytest.param(
            f'case "$1" in\nstart)\ncase "$2" in\nx)\n{STOP}\n;;\nesac\n{START}\n;;\nstop)\n{STOP}\n;;\nesac\n',
            [("bfq", True), ("none", False)],
            id="a case in a case",
        ),
        pytest.param(f'if [ "$1" = "start" ]; then\n{START}\nelse\n{STOP}\nfi\n', NONE, id="if"),
        pytest.param(
            f'if [ "$1" = stop ]; then\n{STOP}\nelif [ "$1" = start ]; then\n{START}\nelse\n{STOP}\nfi\n',
            NONE,
            id="elif",
        ),
        pytest.param(
            f'if [ "$1" = stop ]; then\n{STOP}\nelif [ -n "$X" ]; then\n{START}\nelse\n{STOP}\nfi\n',
            [("none", True), ("bfq", True)],
            id="elif of another condition",
        ),
        pytest.param(f'[ "$1" != start ] && {STOP}\n[ "$1" == start ] && {START}\n', NONE, id="and"),
        pytest.param(f'if [ "$TUNED_mode" = fast ]; then\n{START}\nfi\n', NONE, id="a variable of the profile"),
        pytest.param(
            f'MODE=x\n[ -f /etc/x ] && MODE=start\nif [ "$MODE" = x ]; then\n{START}\nfi\n',
            [("none", True)],
            id="a variable of the script",
        ),
        pytest.param(
            f'set_to() {{\nif [ "$1" = start ]; then\n{START}\nfi\n}}\nset_to stop\n',
            [("none", True)],
            id="its own arguments",
        ),
        pytest.param(f'shift\nif [ "$1" = start ]; then\n{START}\nfi\n', [("none", True)], id="shifted arguments"),
        pytest.param(f'if [ "$1" = stop ]; then\n{STOP}\nfi\n', [], id="what runs at the end alone"),
    ],
)
def test_what_a_script_writes_when_the_profile_is_loaded(
    tmp_path: Path, script: str, expected: List[Tuple[str, bool]]
) -> None:
    """``ScriptPlugin`` of plugins/plugin_script.py: ``start``; ``process`` of the file functions."""
    text = "[variables]\nmode=fast\n[script]\nscript=${i:PROFILE_DIR}/script.sh\n"
    host = host_with(tmp_path, {**profiles(text), SCRIPT: f"#!/bin/bash\n{script}"})
    found = boot_writers.read(host.files)
    assert [(one.value, one.in_doubt) for one in found] == expected
    assert {(one.owner, one.path, one.target) for one in found} <= {("tuned", SCRIPT, TARGET)}


def test_scripts_of_included_profiles_run_first(tmp_path: Path) -> None:
    files = profiles("[script]\nscript=script.sh\n", "[script]\nscript=base.sh\n")
    files.update({SCRIPT: f"#!/bin/sh\n{START}\n", "/usr/lib/tuned/base/base.sh": f"#!/bin/sh\n{STOP}\n"})
    found = boot_writers.read(host_with(tmp_path, files).files)
    assert [(one.path, one.line, one.value) for one in found] == [
        ("/usr/lib/tuned/base/base.sh", 2, "bfq"),
        (SCRIPT, 2, "none"),
    ]


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(
            profiles("[script]\nscript=/opt/script.sh\n") | {"/opt/script.sh": f"#!/bin/sh\n{START}\n"}, id="else"
        ),
        pytest.param(
            profiles("[script]\nenabled=0\nscript=script.sh\n") | {SCRIPT: f"#!/bin/sh\n{START}\n"}, id="disabled"
        ),
        pytest.param(profiles("") | {SCRIPT: f"#!/bin/sh\n{START}\n"}, id="not named"),
        pytest.param(profiles("[script]\nscript=script.sh\n"), id="not there"),
    ],
)
def test_a_script_that_tuned_does_not_run_is_no_finding(tmp_path: Path, files: Mapping[str, str]) -> None:
    assert boot_writers.read(host_with(tmp_path, files).files) == ()


@pytest.mark.parametrize("again", [True, False])
def test_a_key_of_a_script_is_in_doubt_where_sysctl_d_is_applied_again(tmp_path: Path, again: bool) -> None:
    files = profiles("[script]\nscript=script.sh\n")
    files.update({SCRIPT: "#!/bin/sh\nsysctl -w vm.swappiness=60\n", tuned.MAIN: f"reapply_sysctl = {int(again)}\n"})
    (found,) = boot_writers.read(host_with(tmp_path, files).files)
    assert (found.target, found.value, found.in_doubt) == ("/proc/sys/vm/swappiness", "60", again)


def test_an_edited_script_is_read_again(tmp_path: Path) -> None:
    host = host_with(tmp_path, {**profiles("[script]\nscript=script.sh\n"), SCRIPT: f"#!/bin/sh\n{START}\n"})
    assert [one.value for one in boot_writers.read(host.files)] == ["none"]
    (tmp_path / SCRIPT.lstrip("/")).write_text(f"#!/bin/sh\n{STOP}\n")
    assert [one.value for one in boot_writers.read(host.files)] == ["bfq"]
