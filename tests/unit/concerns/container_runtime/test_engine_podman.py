# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Podman: what containers.conf and its drop-ins mean together, ours among them, and the hook that must not be there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    OwnedByAnother,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.candidate import SCRATCH
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.cdi.oci_hooks import find_hooks
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    CDI,
    DEFAULT_RUNTIME,
    NOTHING,
    RUNTIME,
    Kind,
    SettingName,
    WantedEngine,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.podman.podman import (
    DROP_IN,
    FOLDER,
    KIND,
    MAIN,
    VENDOR,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.kind_machine import KindMachine
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.podman_corpus import CORPUS, VENDOR_TEXT
from ansible_collections.gpufleet.node.tests.unit.support import build, snapshot

PATH = "/usr/bin/nvidia-container-runtime"
COPIES = f"{SCRATCH}.podman"
CANDIDATE = f"{COPIES}/containers.conf"
OUR_RUNTIME = SettingName(RUNTIME, "nvidia")
HOOK = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"

# What version 1.13 of the toolkit brought for RPM systems.
HOOK_TEXT = """\
{
    "version": "1.0.0",
    "hook": {
        "path": "/usr/bin/nvidia-container-runtime-hook",
        "args": ["nvidia-container-runtime-hook", "prestart"],
        "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    },
    "when": {"always": true, "commands": [".*"]},
    "stages": ["prestart"]
}
"""
OTHER_HOOK = '{"version": "1.0.0", "hook": {"path": "/usr/libexec/oci/hooks.d/oci-seccomp-bpf-hook"}}\n'


def wanted(**keys: Any) -> WantedEngine:
    defaults: Dict[str, Any] = {"present": True, "runtime_name": "nvidia", "runtime_path": PATH, "options": {}}
    return WantedEngine(engine="podman", **{**defaults, **keys})


class Machine(KindMachine):
    """A host with Podman and these files."""

    def __init__(self, root: Path, files: Mapping[str, str]) -> None:
        super().__init__(KIND, root, files)


def files_of(root: Path) -> Dict[str, Tuple[str, ...]]:
    return {path: entry for path, entry in snapshot(root).items() if entry[0] != "folder"}


def test_it_is_a_kind_of_engine_without_a_daemon(tmp_path: Path) -> None:
    kind: Kind = KIND
    machine = Machine(tmp_path, {})
    assert kind.running(machine.host, machine.read()) is None
    assert kind.required_action({}, {OUR_RUNTIME: PATH}).action == NOTHING
    assert kind.find(build(tmp_path / "bare", {MAIN: ""})) is None


@pytest.mark.parametrize("files", [files for _name, files in CORPUS], ids=[name for name, _files in CORPUS])
@pytest.mark.parametrize("default", [None, True, False])
@pytest.mark.parametrize("cdi", [None, True])
def test_it_converges_once_and_restores_every_byte(
    tmp_path: Path, files: Dict[str, str], default: Optional[bool], cdi: Optional[bool]
) -> None:
    machine = Machine(tmp_path, files)
    found, before = machine.read().settings, files_of(tmp_path)
    want = wanted(default=default, cdi=cdi)
    assert [edit.path for edit in machine.converge(want)] == [DROP_IN]
    configuration = machine.read()
    settings = KIND.wanted(want, configuration)
    assert {name: configuration.settings.get(name) for name in settings} == settings
    assert machine.edit(want) == ()
    machine.write(KIND.restore(configuration, {name: found.get(name) for name in settings}))
    assert files_of(tmp_path) == before


def test_its_file_says_whose_it_is_and_what_is_declared(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {MAIN: '[engine]\ncdi_spec_dirs = ["/srv/cdi"]\n'})
    machine.converge(wanted(default=True, cdi=True))
    text = machine.host.files.read(DROP_IN)
    assert text == (
        "# Written by gpufleet.node, module container_runtime. A change made here is overwritten by the next run.\n"
        "[engine]\n"
        'runtime = "nvidia"\n'
        'cdi_spec_dirs = ["/srv/cdi", "/etc/cdi", "/var/run/cdi"]\n'
        "\n"
        "[engine.runtimes]\n"
        'nvidia = ["/usr/bin/nvidia-container-runtime"]\n'
    )
    if sys.version_info >= (3, 11):
        import tomllib

        assert tomllib.loads(text)["engine"]["runtimes"] == {"nvidia": [PATH]}


def test_an_absent_runtime_takes_along_a_default_of_ours_by_another_name(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {})
    machine.converge(wanted(default=True, runtime_name="gpu"))
    want = wanted(present=False)
    # What the edits then have to mean, or they are refused.
    expected = KIND.wanted(want, machine.read())
    machine.write(machine.edit(want))
    settings = machine.read().settings
    assert {name: settings.get(name) for name in expected} == expected
    assert settings[DEFAULT_RUNTIME] is None
    assert not machine.host.files.exists(DROP_IN)


def test_an_empty_folder_that_is_called_like_a_file_says_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {})
    (tmp_path / FOLDER.lstrip("/") / "20-site.conf").mkdir(parents=True)
    assert machine.read().settings[DEFAULT_RUNTIME] is None


def test_the_folders_of_specifications_are_not_written_where_podman_looks_there_anyway(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {VENDOR: VENDOR_TEXT})
    machine.converge(wanted(cdi=True))
    assert "cdi_spec_dirs" not in machine.host.files.read(DROP_IN)


@pytest.mark.parametrize(
    ("texts", "right"),
    [
        ((), True),
        (('["/etc/cdi", "/var/run/cdi/"]',), True),
        (('["/etc/cdi", "/run/cdi"]',), True),
        (('["/etc/cdi"]',), False),
        (('["/srv/cdi", {append=true}]',), True),
        (('["/srv/cdi"]', '["/etc/cdi", "/var/run/cdi", {append=true}]'), True),
        (('["/srv/cdi", {append=true}]', '["/other"]'), True),
        (('["/srv/cdi", {append=true}]', '["/other", {append=false}]'), False),
    ],
)
def test_lists_replace_each_other_or_add_to_each_other(tmp_path: Path, texts: Tuple[str, ...], right: bool) -> None:
    files = {f"{FOLDER}/{index}.conf": f"[engine]\ncdi_spec_dirs = {text}\n" for index, text in enumerate(texts)}
    assert Machine(tmp_path, files).read().settings[CDI] is right


def test_the_drop_ins_count_in_the_order_of_their_names_and_after_the_main_files(tmp_path: Path) -> None:
    def says(name: str) -> str:
        return f'[engine]\nruntime = "{name}"\n'

    files = {VENDOR: says("vendor"), MAIN: says("main")}
    assert Machine(tmp_path / "1", files).read().settings[DEFAULT_RUNTIME] == "main"
    files.update({f"{FOLDER}/20.conf": says("b"), f"{FOLDER}/10.conf": says("a"), f"{FOLDER}/30": says("none")})
    assert Machine(tmp_path / "2", files).read().settings[DEFAULT_RUNTIME] == "b"


def test_a_later_file_that_says_otherwise_is_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {f"{FOLDER}/99-site.conf": '[engine.runtimes]\nnvidia = ["/a", "/b"]\n'})
    with pytest.raises(OwnedByAnother) as caught:
        machine.edit(wanted())
    assert str(caught.value) == (
        f"Cannot set runtime nvidia in {FOLDER}/99-site.conf: this file is read after {DROP_IN} and overrides it "
        f"(found /a, /b, wanted {PATH}). Remove it from that file, or let the file come earlier in the order of names."
    )


def test_absent_takes_the_runtime_out_wherever_it_is(tmp_path: Path) -> None:
    text = f'# ours\n[engine]\nruntime = "nvidia" # why\nnum_locks = 5\n\n[engine.runtimes]\nnvidia = ["{PATH}"]\n'
    machine = Machine(tmp_path, {MAIN: text, VENDOR: VENDOR_TEXT})
    machine.converge(wanted(runtime_path="/opt/n", default=True))
    machine.converge(wanted(present=False))
    assert machine.host.files.read(MAIN) == "# ours\n[engine]\nnum_locks = 5\n\n[engine.runtimes]\n"
    assert not machine.host.files.exists(DROP_IN)
    assert machine.edit(wanted(present=False)) == ()


# Hooks


def test_with_cdi_the_hook_that_injects_a_second_time_goes(tmp_path: Path) -> None:
    other = "/usr/share/containers/oci/hooks.d/oci-seccomp-bpf-hook.json"
    machine = Machine(tmp_path, {HOOK: HOOK_TEXT, other: OTHER_HOOK})
    assert machine.read().settings[CDI] is False
    edits = machine.converge(wanted(cdi=True))
    assert [(edit.path, edit.before, edit.after) for edit in edits[1:]] == [(HOOK, HOOK_TEXT, None)]
    assert machine.host.files.exists(other)
    assert machine.read().settings[CDI] is True


def test_without_cdi_declared_the_hook_stays(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {HOOK: HOOK_TEXT})
    assert [edit.path for edit in machine.converge(wanted())] == [DROP_IN]


def test_hooks_are_looked_for_where_podman_looks(tmp_path: Path) -> None:
    files = {MAIN: '[engine]\nhooks_dir = ["/srv/hooks/"]\n', HOOK: HOOK_TEXT, "/srv/hooks/gpu.json": HOOK_TEXT}
    machine = Machine(tmp_path, files)
    assert [edit.path for edit in machine.edit(wanted(cdi=True))[1:]] == ["/srv/hooks/gpu.json"]


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("oci-nvidia-hook.json", "", True),
        ("oci-nvidia-hook.json", "not JSON", True),
        ("oci-nvidia-hook.json.disabled", HOOK_TEXT, False),
        ("gpu.json", HOOK_TEXT, True),
        ("old.json", '{"hook": "/usr/libexec/oci/hooks.d/oci-nvidia-hook", "stages": ["prestart"]}', True),
        ("other.json", OTHER_HOOK, False),
        ("broken.json", "{", False),
        ("list.json", "[]", False),
        ("strange.json", '{"hook": 5}', False),
    ],
)
def test_a_hook_is_known_by_its_name_or_its_program(tmp_path: Path, name: str, text: str, found: bool) -> None:
    host = build(tmp_path, {f"/etc/containers/oci/hooks.d/{name}": text})
    assert bool(list(find_hooks(host.files))) is found


# Bad input

CORRECT_IT = "Correct the file, then run again; nothing was written."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[engine]\nruntime = 'crun\n",
            "line 2, column 11: the text does not end, or has a control character.",
        ),
        ("[engine]\nruntime = true\n", "engine.runtime is true or false, and has to be a text."),
        ("[engine.runtimes]\nnvidia = '/x'\n", "engine.runtimes.nvidia is a text, and has to be a list."),
        ("[engine.runtimes]\nnvidia = [1]\n", "engine.runtimes.nvidia is a number, and has to be a text."),
        ("[engine]\nruntimes = 1.5\n", "engine.runtimes is a number, and has to be a table."),
    ],
)
def test_a_file_that_it_would_not_understand_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CannotLook) as caught:
        Machine(tmp_path, {MAIN: text}).read()
    assert str(caught.value) == f"Cannot parse {MAIN}: {message} {CORRECT_IT}"


def test_it_cannot_do_without_cdi(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="disable CDI on podman: it always looks up CDI devices"):
        Machine(tmp_path, {}).edit(wanted(cdi=False))


# Its program


class Program:
    """``podman info`` under ``env``: the text that it was given, and the runtime that it says."""

    def __init__(self, machine: Machine, path: str = PATH, status: int = 0, says: str = "") -> None:
        self.machine, self.status = machine, status
        self.says = says or json.dumps({"host": {"ociRuntime": {"name": "nvidia", "path": path}}})
        self.given = ""
        machine.host.commands.programs["env"] = self

    def __call__(self, argv: Sequence[str]) -> Completed:
        variable = f"CONTAINERS_CONF={CANDIDATE}"
        assert list(argv) == ["env", variable, "/usr/bin/podman", "--runtime", "nvidia", "info", "--format", "json"]
        self.given = self.machine.host.files.read(CANDIDATE)
        return Completed(self.status, self.says, "Error: toml: line 2\n")


def test_its_program_is_given_our_file_as_it_will_be(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {})
    program = Program(machine)
    edits = machine.edit(wanted(default=True))
    machine.check(edits)
    assert program.given == edits[0].after
    assert machine.host.files.names("/run/gpufleet") == ()
    assert not machine.host.files.exists(DROP_IN)


def test_a_file_that_goes_needs_no_judge(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {})
    machine.converge(wanted())
    machine.check(machine.edit(wanted(present=False)))
    assert machine.host.commands.calls == []


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ({"status": 125}, "exit status 125: Error: toml: line 2"),
        ({"path": "/usr/bin/other"}, rf"found nvidia /usr/bin/other, wanted nvidia {PATH}\)"),
        ({"says": "{}"}, "podman info does not say which runtime it has: host is missing"),
        ({"says": "nothing"}, "podman info does not say which runtime it has: it is not JSON"),
    ],
)
def test_what_its_program_does_not_take_is_refused(tmp_path: Path, program: Dict[str, Any], message: str) -> None:
    machine = Machine(tmp_path, {})
    Program(machine, **program)
    with pytest.raises(Refused, match=message):
        machine.check(machine.edit(wanted()))
    assert not machine.host.files.exists(COPIES)
