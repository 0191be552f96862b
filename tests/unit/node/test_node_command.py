# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command on the node: its archive, the declarations it reads, and what it says about them."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Mapping

import pytest
from ansible_collections.gpufleet.node.node import command
from ansible_collections.gpufleet.node.node.declarations import load
from ansible_collections.gpufleet.node.node.look import request_of
from ansible_collections.gpufleet.node.node.status import status
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import Unmanaged
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import LOCK, Scope
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace
from ansible_collections.gpufleet.node.plugins.module_utils._core.version import VERSION
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import ARCHIVE, COMPILED
from ansible_collections.gpufleet.node.plugins.module_utils._node.order import RegisteredConcern
from ansible_collections.gpufleet.node.plugins.plugin_utils import archive
from ansible_collections.gpufleet.node.tests.nodes import recorded_bed
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.concerns.node_tools.node_tools_machine import small_program
from ansible_collections.gpufleet.node.tests.unit.concerns.nvme_scheduler.nvme_machine import Drive, machine, run
from ansible_collections.gpufleet.node.tests.unit.node.boot_concern import Tunable
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

ROOT = Path(__file__).resolve().parents[3]
ENTRIES = (RegisteredConcern.of(Tunable("one")), RegisteredConcern.of(Tunable("two")))
FOLDER = "/etc/gpufleet/declared.d"


# The archive


def copy_of_the_collection(target: Path) -> Path:
    for folder in ("node", "plugins"):
        shutil.copytree(ROOT / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def test_the_same_sources_give_the_same_bytes_whatever_the_folder_the_modes_the_times_and_what_else_lies_there(
    tmp_path: Path,
) -> None:
    other = copy_of_the_collection(tmp_path / "elsewhere")
    files = sorted(path for path in other.rglob("*") if path.is_file())
    for number, path in enumerate(reversed(files)):
        os.utime(path, (number, number))
        path.chmod(0o600 if number % 2 else 0o775)
    (other / "node" / "notes.txt").write_text("x")
    (other / "node" / "__pycache__").mkdir()
    (other / "node" / "__pycache__" / "boot.cpython-39.py").write_bytes(b"x")
    assert archive.build(other) == archive.build(ROOT)


def test_a_changed_source_gives_another_archive(tmp_path: Path) -> None:
    other = copy_of_the_collection(tmp_path / "elsewhere")
    with (other / "plugins/module_utils/concerns/nvme_scheduler/concern.py").open("a") as stream:
        stream.write("\n")
    assert archive.build(other) != archive.build(ROOT)


def test_every_member_has_fixed_attributes_and_is_not_compressed() -> None:
    with zipfile.ZipFile(io.BytesIO(archive.build())) as opened:
        members = opened.infolist()
    assert [member.filename for member in members] == sorted(member.filename for member in members)
    attributes = {(m.date_time, m.external_attr >> 16, m.create_system, m.compress_type) for m in members}
    assert attributes == {((1980, 1, 1, 0, 0, 0), 0o100644, 3, zipfile.ZIP_STORED)}


def test_the_archive_holds_the_rooms_under_their_names_and_nothing_that_needs_ansible() -> None:
    names = set(zipfile.ZipFile(io.BytesIO(archive.build())).namelist())
    package = "ansible_collections/gpufleet/node"
    for name in (
        "node/boot.py",
        "plugins/module_utils/_node/assessment.py",
        "plugins/module_utils/concerns/node_tools/apply.py",
    ):
        assert f"{package}/{name}" in names
    assert f"{package}/plugins/module_utils/_node/module.py" not in names
    assert not [name for name in names if "/plugins/modules/" in name or "/plugins/action/" in name]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "gpufleet.pyz"
    path.write_bytes(archive.build())
    return path


def call(program: Path, root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it as the launcher does, and without the packages of this Python: no Ansible is there."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": "/nonexistent"}
    return subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", recorded_bed.__file__, str(program), str(root), *arguments],
        env=environment,
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_archive_runs_alone_and_shadows_nothing_of_the_folder_it_runs_in(program: Path, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')\n")
    done = call(program, tmp_path, "version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"gpufleet.node {VERSION}, Python {sys.version_info[0]}.")


def test_every_file_of_the_archive_can_be_imported_from_it(program: Path, tmp_path: Path) -> None:
    names = [
        name[: -len(".py")].replace("/", ".").replace(".__init__", "")
        for name in zipfile.ZipFile(program).namelist()
        if name != "__main__.py"
    ]
    code = (
        f"import sys, importlib; sys.path.insert(0, {str(program)!r})\nfor n in {names!r}: importlib.import_module(n)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_on_a_node_it_compares_what_the_module_declared(program: Path, tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0), Drive(1)])
    run(host, {"scheduler": "mq-deadline", "read_ahead_kb": 4096})
    done = call(program, tmp_path, "status")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Concerns: 1 in sync.\n", "")
    host.files.write_attribute("/sys/block/nvme1n1/queue/read_ahead_kb", "128")
    done = call(program, tmp_path, "status")
    assert done.returncode == 1
    row = next(line for line in done.stdout.splitlines() if "nvme1n1" in line).split()
    assert row == [os.uname().nodename, "nvme1n1", "read_ahead_kb", "4096", "128", "4096", "drifted"]
    # Nothing here is for the boot service, for a udev rule carries it.
    assert call(program, tmp_path, "boot").returncode == 0
    assert host.files.read("/sys/block/nvme1n1/queue/read_ahead_kb") == "128\n"


# Broken declarations


GOOD: Dict[str, Any] = {
    "schema": 1,
    "collection_version": VERSION,
    "concern": "one",
    "apply_at_boot": True,
    "declaration": {"value": "0"},
}
IN_SYNC: Dict[str, Any] = {"declaration": {"value": "0", "permanent": False}}
WRONG: Dict[str, Any] = {"declaration": {"value": "1", "permanent": False}}
AGAIN = "Run the role of the concern, which writes it again."
UPDATE = "Run the role node_tools, which installs the matching program."


def test_only_what_root_may_read_is_told_to_run_as_root(tmp_path: Path) -> None:
    (tmp_path / "etc/gpufleet/declared.d/one.json").mkdir(parents=True)
    (tmp_path / "etc/gpufleet/declared.d/two.json").symlink_to("/nowhere")
    link = f"{FOLDER}/two.json is a link, and root would act on it"
    mend = "Run the role node_tools, which corrects owner and mode, and check what the declaration says."
    broken = load(build(tmp_path, {}).files, ENTRIES).broken
    assert {name: str(error) for name, error in broken.items()} == {
        "one": f"Cannot read the declaration in {FOLDER}/one.json: Is a directory. {AGAIN}",
        "two": f"Cannot read the declaration in {FOLDER}/two.json: {link}. {mend}",
    }


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("one", "{", f"the file is damaged: it is not JSON. {AGAIN}"),
        ("one", "", f"the file is damaged: it is empty. {AGAIN}"),
        ("one", "[]", f"the file is damaged: it does not hold a mapping. {AGAIN}"),
        ("one", "[" * 100_000, f"the file is damaged: it is nested too deeply. {AGAIN}"),
        ("one", {"schema": 2}, f"it has schema 2, and this release 1. {UPDATE}"),
        ("one", {"schema": None}, f"it has schema None, and this release 1. {UPDATE}"),
        ("one", {"concern": "two"}, f"it is about 'two'. {AGAIN}"),
        ("new", {"concern": "new"}, f"release {VERSION} has no concern of this name. {UPDATE}"),
        ("one", {"declaration": None}, f"the file is damaged: declaration or apply_at_boot is missing. {AGAIN}"),
        ("one", {"apply_at_boot": "no"}, f"the file is damaged: declaration or apply_at_boot is missing. {AGAIN}"),
    ],
)
def test_a_broken_declaration_is_named_and_the_others_are_read(
    tmp_path: Path, name: str, text: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = text if isinstance(text, str) else json.dumps({**GOOD, **text})
    other = json.dumps({**GOOD, "concern": "two", **IN_SYNC})
    host = build(
        tmp_path, {f"{FOLDER}/{name}.json": given, f"{FOLDER}/two.json": other, "/sys/one": "0\n", "/sys/two": "0\n"}
    )
    found = load(host.files, ENTRIES)
    assert list(found.usable) == ["two"]
    told = str(found.broken[name])
    start, _star, end = message.partition("*")
    assert told.startswith(f"Cannot read the declaration in {FOLDER}/{name}.json: {start}"), told
    assert told.endswith(end)
    assert status(host, registry=ENTRIES) == 4
    lines = capsys.readouterr().out.splitlines()
    assert f"    {told}" in lines
    assert lines[-1] == "Concerns: 1 in sync, 1 invalid."


def test_an_option_that_this_release_does_not_know_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = node(tmp_path, one={"declaration": {"valeu": "1"}})
    assert status(host, registry=ENTRIES) == 4
    out = capsys.readouterr().out
    assert "Cannot read the declaration: unsupported option valeu. Supported parameters include: " in out
    assert "Did you mean value?" in out


# What it says


def node(root: Path, **declarations: Mapping[str, Any]) -> FakeHost:
    texts = {
        f"{FOLDER}/{name}.json": json.dumps({**GOOD, "concern": name, **values})
        for name, values in declarations.items()
    }
    return build(root, {"/sys/one": "0\n", "/sys/two": "0\n", **texts})


@pytest.mark.parametrize(
    ("declarations", "expected", "last"),
    [
        ({}, 0, "Nothing is declared on this node."),
        ({"one": IN_SYNC}, 0, "Concerns: 1 in sync."),
        ({"one": IN_SYNC, "two": WRONG}, 1, "Concerns: 1 in sync, 1 drifted."),
        ({"one": {"schema": 9}, "two": WRONG}, 4, "Concerns: 1 drifted, 1 invalid."),
    ],
)
def test_the_exit_status_is_that_of_the_worst(
    tmp_path: Path,
    declarations: Dict[str, Any],
    expected: int,
    last: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    host = node(tmp_path, **declarations)
    assert status(host, registry=ENTRIES) == expected
    assert capsys.readouterr().out.splitlines()[-1] == last
    assert host.files.log == []


def test_what_nobody_can_set_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = (RegisteredConcern.of(Lacking("one")), RegisteredConcern.of(Tunable("two")))
    assert status(node(tmp_path, one=IN_SYNC, two=IN_SYNC), registry=entries) == 0
    said = "Concerns: 2 in sync. Settings: 2 in sync, 1 unmanaged."
    assert capsys.readouterr().out.splitlines() == [said]
    assert status(node(tmp_path, one=IN_SYNC, two=WRONG), registry=entries) == 1
    said = "Concerns: 1 in sync, 1 drifted. Settings: 1 in sync, 1 drifted, 1 unmanaged."
    assert capsys.readouterr().out.splitlines()[-1] == said


class Lacking(Tunable):
    """A part of it is not there, and nobody can set that."""

    def plan(self, state: Any, desired: str, scope: Scope) -> Any:
        return replace(super().plan(state, desired, scope), unmanaged=(Unmanaged("one", "other", "there is none"),))


def test_one_concern_can_be_asked_for_and_a_wrong_name_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = node(tmp_path, one=IN_SYNC, two=WRONG)
    assert status(host, concern="one", registry=ENTRIES) == 0
    assert capsys.readouterr().out == "Concerns: 1 in sync.\n"
    message = r"Cannot look on tow: nothing of this name is declared on this node\. Did you mean two\?"
    with pytest.raises(DeclarationError, match=message):
        status(host, concern="tow", registry=ENTRIES)


def test_for_programs_the_whole_answer_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = node(tmp_path, one=IN_SYNC, two=WRONG)
    assert status(host, as_json=True, registry=ENTRIES) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["in_sync"], answer["drifted"], answer["orphaned"]) == (["one"], ["two"], [])
    assert answer["concerns"]["two"]["changes"][0]["after"] == "1"
    assert (answer["node"], answer["collection_version"]) == (os.uname().nodename, VERSION)


def test_a_declaration_of_another_release_is_mentioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = node(
        tmp_path, one={**IN_SYNC, "collection_version": "9.9.9"}, two={**IN_SYNC, "collection_version": "9.9.9"}
    )
    assert status(host, registry=ENTRIES) == 0
    line = f"one, two were declared by release 9.9.9, and this is {VERSION}. {UPDATE}"
    assert line in capsys.readouterr().out.splitlines()


def test_what_waits_for_a_reboot_or_for_something_else_is_told_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = node(tmp_path, one=WRONG, two=WRONG)
    entries = (RegisteredConcern.of(Pending("one", "reboot")), RegisteredConcern.of(Pending("two", "daemon-reload")))
    assert status(host, registry=entries) == 2
    lines = capsys.readouterr().out.splitlines()
    assert f"{os.uname().nodename} needs a reboot: one value is 0, wanted 1: it takes time" in lines
    assert "two needs daemon-reload, which now would take their GPUs from running containers" in lines


class Pending(Tunable):
    """Its value comes later, when what it needs has happened."""

    def __init__(self, name: str, needs: str) -> None:
        super().__init__(name)
        self.needs = needs

    def plan(self, state: Any, desired: str, scope: Scope) -> Any:
        plan = super().plan(state, desired, scope)
        settings = tuple(replace(entry, pending="it takes time", needs=self.needs) for entry in plan.settings)
        return replace(plan, settings=settings, steps=())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required: COMMAND"),
        (["stats"], "invalid choice: 'stats'"),
        (["status", "--concern"], "expected one argument"),
        (["boot", "--timeout", "0"], "0 is not a number of seconds from 1 to 86400"),
        (["boot", "--timeout", "soon"], "soon is not a number of seconds from 1 to 86400"),
        (["boot", "--again", "0"], "0 is not a number of seconds from 1 to 86400"),
        (["boot", "--concern"], "expected one argument"),
    ],
)
def test_wrong_usage_has_an_exit_status_of_its_own(
    arguments: List[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)
    assert caught.value.code == 64
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("{", "it is not JSON: Expecting property name"),
        ([], "it must be a mapping with declared (the declarations) or gather (the parts of the facts)."),
        ({}, "it must be a mapping with declared (the declarations) or gather (the parts of the facts)."),
        ({"declared": []}, "argument 'declared' is of type list and we were unable to convert to dict"),
        (
            {"declared": {}, "expect": "in-sync"},
            "value of expect must be one of: nothing, valid, in_sync, got: in-sync.",
        ),
        ({"declared": {}, "detail": None}, "value of detail must be one of: brief, devices, full, got: ."),
        ({"declared": {}, "facts": "perhaps"}, "argument 'facts' is of type str and we were unable to convert to bool"),
        (
            {"declared": {}, "exclude": []},
            "unsupported option exclude. Supported parameters include: binding, check_mode",
        ),
        ({"declared": {}, "gather": []}, "unsupported option gather."),
        ({"declared": {}, "check_mode": {}}, "argument 'check_mode' is of type dict"),
        ({"gather": ["gpu"]}, "value of gather must be one or more of: all, block, "),
        ({"gather": {}}, "argument 'gather' is of type dict and we were unable to convert to list"),
        ({"gather": [], "compress": 7}, "argument 'compress' is of type int and we were unable to convert to bool"),
    ],
)
def test_a_request_for_a_look_is_refused_as_the_module_would(
    request_: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "request.json"
    file.write_text(request_ if isinstance(request_, str) else json.dumps(request_))
    assert command.main(["look", "--json", str(file)]) == 64
    printed = capsys.readouterr()
    assert printed.err.startswith(f"Cannot read the request: {said}")
    assert printed.out == ""


def test_a_request_is_converted_as_the_module_would() -> None:
    request = request_of(b'{"declared": {}, "excluded": "hugepages,nvml", "diff": "yes"}')
    assert request == {
        "declared": {},
        "excluded": ["hugepages", "nvml"],
        "detail": "brief",
        "expect": "nothing",
        "facts": False,
        "no_diff": [],
        "binding": "",
        "check_mode": False,
        "diff": True,
        "interpreter": "",
    }
    assert request_of(b'{"gather": "gpus"}')["gather"] == ["gpus"]


def test_a_recorded_tree_that_is_not_there_is_an_error_and_no_answer(program: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", recorded_bed.__file__, str(program), str(tmp_path / "gone"), "status"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 64
    assert "is not an absolute path of a folder" in done.stderr


def test_no_variable_makes_it_take_another_tree_or_another_library_for_the_machine(
    program: Path, tmp_path: Path
) -> None:
    build(tmp_path, {f"{FOLDER}/intruder.json": "{}"})
    loaded = tmp_path / "loaded"
    library = tmp_path / "library.so"
    library.write_text("no library of anybody")
    environment = {
        "PATH": os.environ["PATH"],
        "GPUFLEET_FSROOT": str(tmp_path),
        "GPUFLEET_NVML": str(library),
        "GPUFLEET_NVML_DEADLINE": "0.000001",
        "PYTHONPATH": str(tmp_path),
    }
    (tmp_path / "sitecustomize.py").write_text(f"open({str(loaded)!r}, 'w')\n")
    for arguments in (["status"], ["facts", "gpus"]):
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(program), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout
        assert "intruder" not in done.stdout + done.stderr
        assert str(tmp_path) not in done.stdout + done.stderr
    assert not loaded.exists()


def test_a_boot_of_some_concerns_is_about_those_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "etc/gpufleet/declared.d"
    folder.mkdir(parents=True)
    for name in ("hugepages", "gpu_settings", "mig_layout"):
        (folder / f"{name}.json").write_text("{")
    monkeypatch.setattr(command, "this_host", lambda: RecordedHost(str(tmp_path)))
    assert command.main(["boot", "--concern", "hugepages", "--concern", "mig_layout", "--again", "60"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert [line.split(":")[1].strip() for line in told] == ["hugepages", "mig_layout"]
    assert command.main(["boot", "--concern", "hugepage"]) == 64
    said = capsys.readouterr().err
    assert said.startswith(
        "Cannot apply on hugepage: nothing of this name is declared on this node. Did you mean hugepages?"
    )


def test_an_archive_that_cannot_be_compiled_lets_the_boot_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build(tmp_path, {ARCHIVE: "no archive"})
    monkeypatch.setattr(command, "this_host", lambda: RecordedHost(str(tmp_path)))
    assert command.main(["boot"]) == 0
    assert command.main(["compile"]) == 64
    assert capsys.readouterr().err.startswith(f"Cannot compile the program in {ARCHIVE}: ")


def test_nothing_is_compiled_while_another_run_may_write_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ARCHIVE.lstrip("/")).parent.mkdir(parents=True)
    (tmp_path / ARCHIVE.lstrip("/")).write_bytes(small_program())
    host = RecordedHost(str(tmp_path))
    monkeypatch.setattr(command, "this_host", lambda: host)
    said = f"Cannot compile the program: {tmp_path}{LOCK} is held by another run."
    with host.files.lock(LOCK, 0.0):
        for subcommand, status in (("boot", 0), ("compile", 1)):
            assert command.main([subcommand]) == status
            assert capsys.readouterr().err.startswith(said)
            assert not host.files.exists(COMPILED)
    assert command.main(["boot"]) == 0
    assert host.files.exists(COMPILED)


def test_a_defect_is_no_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def defect() -> None:
        raise KeyError("ours")

    monkeypatch.setattr(command, "this_host", defect)
    assert command.main(["status"]) == 64
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("KeyError: 'ours'\n")


def test_a_reader_that_has_gone_is_no_crash(program: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-I", "-S", recorded_bed.__file__, str(program), str(tmp_path), "status"],
        env={"PATH": os.environ["PATH"]},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (64, "")
