# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``container_runtime`` converges configurations as people leave them: there, nothing to do, and back."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, OwnedByAnother
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.spec import RUNTIME_PATH
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.containerd_machine import (
    BEGIN,
    DEBIAN,
    END,
    FOLDER,
    GENERATED_2,
    KUBEADM,
    MAIN,
    NEW,
    OLD,
    V3_TEXT,
    runtime_text,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.corpus_runs import (
    edited,
    meaning,
    run,
    write,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.engine_corpus import (
    DAEMON_JSON,
    DECLARED,
    K3S,
    STARTS,
    TOOLKIT,
    Start,
    machine,
)
from ansible_collections.gpufleet.node.tests.unit.support import PATIENCE, FakeHost, quickest, snapshot

TOUCHED = {
    "docker": r"nvidia|cdi|default-|live-restore|data-root|exec-opts|null",
    "containerd": r"default_runtime_name|enable_cdi|imports|SystemdCgroup|/old|/opt/nv|gpufleet",
    "apptainer": r"always use nv",
    "toolkit": r"no-cgroups|mode|runc|crun",
}


def text_of(host: FakeHost, path: str) -> Optional[str]:
    return host.files.read_optional(path)


def lost(before: str, after: str, *, json_lines: bool) -> List[str]:
    """The lines that went, or that not all is left of; of one of JSON a part may be on the next line."""
    there = {line.rstrip(" \t,") for line in after.splitlines()}
    gone = [line for line in before.splitlines() if line.rstrip(" \t,") not in there]
    wholes = [after] if json_lines else after.splitlines()
    return [line for line in gone if not any(is_in_order(line, whole) for whole in wholes)]


def is_in_order(part: str, whole: str) -> bool:
    characters = iter(whole)
    return all(character in characters for character in part)


@pytest.mark.parametrize("name", STARTS)
def test_a_configuration_is_converged_once_and_restored_byte_for_byte(tmp_path: Path, name: str) -> None:
    start = STARTS[name]
    host = machine(tmp_path, start)
    declared = DECLARED[start.declared]
    found = snapshot(tmp_path)

    assert run(host, declared).changes

    for path, text in start.files.items():
        after = text_of(host, path)
        if after == text or path.endswith("99-gpufleet.toml"):
            continue
        assert meaning(start, after) == meaning(start, text)
        gone = lost(text, after or "", json_lines=start.engine == "docker")
        assert [line for line in gone if not re.search(TOUCHED[start.engine], line)] == []
    host.files.log.clear()
    again = run(host, declared)
    assert (again.status, again.changes, host.files.log) == ("in_sync", (), [])

    run(host, {"state": "absent"})

    assert snapshot(tmp_path) == found


def files_of(root: Path) -> Dict[str, str]:
    """What is in /etc, /var and /srv."""
    paths = [path for folder in ("etc", "var", "srv") for path in (root / folder).rglob("*") if path.is_file()]
    return {str(path): path.read_bytes().decode("utf-8", "surrogateescape") for path in paths}


def marked(files: Mapping[str, str]) -> bool:
    """Whether a file has our name, or is called so."""
    return any("gpufleet" in os.path.basename(path) or "gpufleet" in text for path, text in files.items())


# Where nobody can tell what was there from what we brought: the empty things of others, a value that says what would be
# without it, the way in which a value was written. What it means is the same.
SAME_MEANING = (
    *(
        "docker: no file",
        "docker: empty",
        "docker: blank",
        "docker: an empty object",
        "docker: an empty object and a line",
    ),
    *("docker: ours in capitals", "docker: nulls", "docker: limits", "docker: an empty object of ours"),
    *("docker: ours with another value each", "docker: a link to nothing", "docker: the snap without a file"),
    *("containerd: missing", "containerd: missing 2.x", "containerd: missing, no program", "containerd: empty"),
    *("containerd: empty 2.x", "containerd: comments", "containerd: comments 2.x", "containerd: blanks"),
    *("containerd: inline tables", "containerd: all plugins inline", "containerd: imports, empty"),
    *("containerd: a block of an earlier run", "k3s: no template", "k3s: no template, version 3"),
    *("apptainer: nothing", "apptainer: only comments", "apptainer: a list"),
    # A table of the toolkit that we made stays, empty: there may be comments of others in it.
    *(name for name in STARTS if name.startswith("toolkit: ")),
)


@pytest.mark.parametrize("name", [name for name in STARTS if "long" not in name and "5,000" not in name])
def test_what_others_add_in_the_meantime_is_all_that_is_left(tmp_path: Path, name: str) -> None:
    start = STARTS[name]
    host = machine(tmp_path, start)
    path = host.files.resolve(start.main)
    before = text_of(host, path)
    expected = edited(start, before)
    run(host, DECLARED[start.declared])
    target = Path(host.files.locate(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(edited(start, text_of(host, path)).encode("utf-8", "surrogateescape"))

    run(host, {"state": "absent"})

    after = text_of(host, path)
    assert meaning(start, after) == meaning(start, expected)
    assert name in SAME_MEANING or after == expected
    assert marked(start.files) or not marked(files_of(tmp_path))


# --- What no engine would read


def docker(text: str) -> Start:
    return Start("docker", DAEMON_JSON, {DAEMON_JSON: text}, "docker")


def containerd(text: str, version: Tuple[int, ...] = OLD, **more: str) -> Start:
    imported = {f"/etc/containerd/{name}.toml": body for name, body in more.items()}
    return Start("containerd", MAIN, {MAIN: text, **imported}, "containerd", version)


CRIO_FILE, PODMAN_FILE = "/etc/crio/crio.conf.d/1", "/etc/containers/containers.conf"
BLOCK = f"{BEGIN}{runtime_text(program='/old')}{END}"
IN_ORDER = "the block gpufleet container_runtime needs its first and last line once each, in this order"
TEMPLATE = f"{K3S}/config.toml.tmpl"
REFUSED: Mapping[str, Tuple[Start, str]] = {
    "a key twice": (
        docker('{\n  "a": 1,\n  "b": {"x": 1, "x": 2}\n}'),
        'line 3, column 17: the key "x" occurs twice',
    ),
    "a key twice, once with escapes": (
        docker('{"a": 1, "\\u0061": 2}'),
        'line 1, column 10: the key "a" occurs twice',
    ),
    "another encoding": (docker('{"a":\n "\udcff"}'), "line 2, column 3: a byte that is not UTF-8"),
    "two bytes a letter": (docker("\udcff\udcfe{\0}\0"), "line 1, column 1: a byte that is not UTF-8"),
    "no number": (docker('{"NaN": 1,\n "b": ["NaN\\"", NaN]}'), "line 2, column 17: NaN is not JSON"),
    "an endless number": (docker('{"a": -Infinity}'), "line 1, column 7: -Infinity is not JSON"),
    "a list": (docker(" []"), "line 1, column 2: the file does not hold a mapping"),
    # From 3.13 on Python points at the comma, before at what should not come after it.
    "a comma too many": (docker('{"a": 1,}'), f"line 1, column {8 if sys.version_info >= (3, 13) else 9}: "),
    "a comment": (docker('{\n// x\n"a": 1}'), "line 2, column 1: "),
    "cut short": (docker('{"a": 1'), "line 1, column 8: "),
    "two marks": (docker("\ufeff\ufeff{}"), "line 1, column 1: "),
    "without an end": (
        docker('{"a": ' * 100_000),
        "line 1, column 1: its objects and lists are nested too deeply",
    ),
    "no object of runtimes": (docker('{"runtimes": []}'), "runtimes is not a mapping"),
    "a half block, the first": (containerd(DEBIAN + BEGIN + runtime_text()), IN_ORDER),
    "a half block, the last": (containerd(DEBIAN + runtime_text() + END), IN_ORDER),
    "a half block in 2.x": (containerd(V3_TEXT + BEGIN, NEW), IN_ORDER),
    "two blocks": (containerd(DEBIAN + BLOCK + BEGIN + "[x]\n" + END), IN_ORDER),
    "a block upside down": (containerd(DEBIAN + END + BEGIN), IN_ORDER),
    "a key right after the block": (
        containerd(DEBIAN + BLOCK + 'Root = "/r"\n'),
        "the lines after the block gpufleet container_runtime belong to a table in it",
    ),
    "a cycle": (
        containerd('version = 3\nimports = ["a.toml"]\n', NEW, a='version = 3\nimports = ["config.toml"]\n'),
        "/etc/containerd/a.toml: it imports /etc/containerd/config.toml, which imports it in turn",
    ),
    "itself": (containerd('version = 3\nimports = ["config.toml"]\n', NEW), "which imports it in turn"),
    "an import that is not there": (containerd('imports = ["no.toml"]\n', NEW), "/no.toml, which does not exist"),
    "an import that is no TOML": (
        containerd('version = 3\nimports = ["a*"]\n', NEW, a="a = \n"),
        "/a.toml: line 1, column 5: the value is missing",
    ),
    "a key of TOML twice": (containerd("version = 2\nversion = 2\n"), "line 2, column 1: version is already defined"),
    "TOML in another encoding": (containerd('version = 2\nx = "\udcff"\n'), "line 2, column 6: this is not UTF-8"),
    "a NUL": (containerd("version = 2\n# \0\n"), "line 2, column 3: the control character '\\x00' may not be here"),
    "lines of an old Macintosh": (containerd("version = 2\r[x]\r"), "line 1, column 12: the control character '\\r'"),
    "a version to come": (containerd("version = 9\n"), "its version is 9"),
    "no list of imports": (containerd('version = 3\nimports = "a"\n', NEW), "imports is not a list of strings"),
    "the toolkit's array": (Start("toolkit", TOOLKIT, {TOOLKIT: "a = [1 2]\n"}, "toolkit"), "line 1, column 8: "),
    "a number of the toolkit's": (Start("toolkit", TOOLKIT, {TOOLKIT: "features = 1\n"}, "toolkit"), "is not a table"),
    "a drop-in of CRI-O": (
        Start("crio", CRIO_FILE, {CRIO_FILE: "[crio]\na ="}, "crio"),
        f"{CRIO_FILE}: line 2, column 4: the value is missing",
    ),
    "a number of Podman's": (
        Start("podman", PODMAN_FILE, {PODMAN_FILE: "engine = 1\n"}, "podman"),
        "has to be a table",
    ),
    "a template": (
        Start("containerd", TEMPLATE, {f"{K3S}/config.toml": GENERATED_2, TEMPLATE: "x = {{ if }}\n[a\n"}, "template"),
        f"{TEMPLATE}: line 1: the if has no end",
    ),
    "a template of which no TOML comes": (
        Start(
            "containerd",
            TEMPLATE,
            {f"{K3S}/config.toml": GENERATED_2, TEMPLATE: "x = {{ .SystemdCgroup }}\n[a\n"},
            "template",
        ),
        f"{TEMPLATE}: containerd would not start with what k3s makes of it: the header of a table goes on with a dot "
        "or ends with ] ([a)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_engine_would_read_is_refused_with_its_place_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    start, cause = REFUSED[name]
    host = machine(tmp_path, start)
    found = snapshot(tmp_path)
    with pytest.raises(GpuFleetError) as caught:
        run(host, DECLARED[start.declared])
    assert cause in str(caught.value)
    assert any(path in str(caught.value) for path in start.files)
    assert snapshot(tmp_path) == found


# --- What others did to what is ours


def test_a_value_of_ours_that_somebody_else_changed_goes_back_to_what_was_found(tmp_path: Path) -> None:
    start = docker('{\n  "default-runtime": "crun",\n  "mtu": 9000\n}\n')
    host = machine(tmp_path, start)
    run(host, DECLARED["docker"])
    text = host.files.read(DAEMON_JSON).replace('"nvidia",', '"kata",').replace('"8G"', '"1G"').replace("9000", "1500")
    assert text.count("kata") == text.count('"1G"') == text.count("1500") == 1
    write(host, DAEMON_JSON, text)
    run(host, {"state": "absent"})
    assert host.files.read(DAEMON_JSON) == '{\n  "default-runtime": "crun",\n  "mtu": 1500\n}\n'


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_key_of_our_runtime_that_somebody_else_added_goes_with_it(tmp_path: Path, version: Tuple[int, ...]) -> None:
    host = machine(tmp_path, containerd(KUBEADM, version))
    run(host, DECLARED["containerd"])
    path = MAIN if version == OLD else f"{FOLDER}/99-gpufleet.toml"
    ours = f'BinaryName = "{RUNTIME_PATH}"\n'
    write(host, path, host.files.read(path).replace(ours, 'BinaryName = "/other"\nRoot = "/r"\n'))
    run(host, {"state": "absent"})
    assert host.files.read(MAIN) == KUBEADM
    assert not host.files.exists(f"{FOLDER}/99-gpufleet.toml")


def test_a_block_that_somebody_else_took_out_is_not_missed(tmp_path: Path) -> None:
    host = machine(tmp_path, containerd(DEBIAN))
    run(host, DECLARED["containerd"])
    write(host, MAIN, f"{DEBIAN}# clean\n")
    run(host, {"state": "absent"})
    assert host.files.read(MAIN) == f"{DEBIAN}# clean\n"


def test_a_block_that_somebody_else_cut_in_half_is_left_to_them(tmp_path: Path) -> None:
    host = machine(tmp_path, containerd(DEBIAN))
    run(host, DECLARED["containerd"])
    text = host.files.read(MAIN).replace(END, "")
    write(host, MAIN, text)
    for declared in ({"state": "absent"}, {"engines": [{"engine": "containerd", "state": "absent"}]}):
        with pytest.raises(OwnedByAnother, match=r"Remove the block from the file, then run again\."):
            run(host, declared)
        assert host.files.read(MAIN) == text


def test_a_runtime_that_somebody_else_put_into_our_block_stays_in_it(tmp_path: Path) -> None:
    host = machine(tmp_path, containerd(KUBEADM))
    run(host, DECLARED["containerd"])
    theirs = runtime_text(name="kata", program="/usr/bin/kata")
    write(host, MAIN, host.files.read(MAIN).replace(END, theirs + END))
    run(host, {"state": "absent"})
    assert host.files.read(MAIN) == f"{KUBEADM}\n{BEGIN}{theirs}{END}"


@pytest.mark.parametrize("gone", ["imports", "drop-in"])
def test_what_somebody_else_left_of_a_drop_in_and_its_import_goes(tmp_path: Path, gone: str) -> None:
    host = machine(tmp_path, containerd(V3_TEXT, NEW))
    run(host, DECLARED["containerd"])
    if gone == "imports":
        write(host, MAIN, V3_TEXT)
    else:
        host.files.remove(f"{FOLDER}/99-gpufleet.toml")
    run(host, {"state": "absent"})
    assert host.files.read(MAIN) == V3_TEXT
    assert not host.files.exists(FOLDER)


def test_a_file_that_somebody_else_removed_is_not_made_anew(tmp_path: Path) -> None:
    host = machine(tmp_path, docker('{"mtu": 9000}'))
    run(host, DECLARED["docker"])
    host.files.remove(DAEMON_JSON)
    run(host, {"state": "absent"})
    assert not host.files.exists(DAEMON_JSON)


def test_a_link_that_somebody_else_replaced_by_a_file_stays_a_file(tmp_path: Path) -> None:
    host = machine(tmp_path, STARTS["docker: a link"])
    run(host, DECLARED["docker"])
    text = host.files.read(DAEMON_JSON)
    (tmp_path / DAEMON_JSON[1:]).unlink()
    write(host, DAEMON_JSON, text)
    run(host, {"state": "absent"})
    for path in (DAEMON_JSON, "/srv/daemon.json"):
        assert host.files.read(path) == '{\n  "debug": true\n}\n'
    assert not (tmp_path / DAEMON_JSON[1:]).is_symlink()


# --- Speed


FAST = [name for name in STARTS if "long" in name or "5,000" in name or name.endswith(("Debian", "package brings it"))]


@pytest.mark.parametrize("name", FAST)
def test_a_run_that_finds_nothing_to_do_takes_milliseconds_and_starts_no_program(tmp_path: Path, name: str) -> None:
    start = STARTS[name]
    host = machine(tmp_path, start)
    run(host, DECLARED[start.declared])
    host.commands.calls.clear()
    params = validated(CONCERN, DECLARED[start.declared])
    assert quickest(lambda: converge(CONCERN, params, host, check_mode=False), attempts=3) < 0.04 * PATIENCE
    assert host.commands.calls == []
