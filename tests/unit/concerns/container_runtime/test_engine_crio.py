# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CRI-O: what its files mean together, our drop-in among them, and what its program and its daemon say of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    OwnedByAnother,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.candidate import SCRATCH
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.crio.crio import (
    DROP_IN,
    FOLDER,
    KIND,
    MAIN,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    CDI,
    DEFAULT_RUNTIME,
    NOTHING,
    RESTART,
    RUNTIME,
    Kind,
    SettingName,
    Settings,
    WantedEngine,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.crio_corpus import CORPUS, PACKAGED
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.kind_machine import KindMachine
from ansible_collections.gpufleet.node.tests.unit.support import build, snapshot

PATH = "/usr/bin/nvidia-container-runtime"
COPIES = f"{SCRATCH}.crio"
OUR_RUNTIME = SettingName(RUNTIME, "nvidia")
SOCKET = "/run/crio/crio.sock"

# What nvidia-ctk runtime configure --runtime=crio writes.
CTK = """\

[crio]

  [crio.runtime]
    default_runtime = "nvidia"

    [crio.runtime.runtimes]

      [crio.runtime.runtimes.nvidia]
        runtime_path = "/usr/bin/nvidia-container-runtime"
        runtime_type = "oci"
"""
# The parts of "crio config" of 1.34 that are about runtimes; what is as it would be anyway is a comment.
SAMPLE = """\
# The CRI-O configuration file specifies all of the available configuration
# options and command-line flags for the crio(8) OCI Kubernetes Container Runtime
[crio]

# Path to the "root directory".
# root = "/var/lib/containers/storage"

[crio.api]
# listen = "/var/run/crio/crio.sock"

[crio.runtime]

# default_runtime is the _name_ of the OCI runtime to be used as the default.
# default_runtime = "crun"
cgroup_manager = "systemd"
# cdi_spec_dirs = [
# \t"/etc/cdi",
# \t"/var/run/cdi",
# ]
hooks_dir = [
\t"/usr/share/containers/oci/hooks.d",
]

# [crio.runtime.runtimes.crun]
# runtime_path = ""
# runtime_type = "oci"

[crio.runtime.runtimes.nvidia]
runtime_path = "/usr/bin/nvidia-container-runtime"
runtime_type = "oci"
runtime_root = ""
inherit_default_runtime = false
runtime_config_path = ""
container_min_memory = ""
monitor_path = "/usr/libexec/crio/conmon"
privileged_without_host_devices = false

[crio.image]
# default_transport = "docker://"
"""


def wanted(**keys: Any) -> WantedEngine:
    defaults: Dict[str, Any] = {"present": True, "runtime_name": "nvidia", "runtime_path": PATH, "options": {}}
    return WantedEngine(engine="crio", **{**defaults, **keys})


class Machine(KindMachine):
    """A host with CRI-O and these files."""

    def __init__(self, root: Path, files: Mapping[str, str], links: Optional[Mapping[str, str]] = None) -> None:
        super().__init__(KIND, root, files, links)

    def ours(self) -> str:
        return self.host.files.read(DROP_IN)


def test_it_is_a_kind_of_engine() -> None:
    kind: Kind = KIND
    assert kind.engine == "crio"


def test_a_machine_without_its_program_has_none(tmp_path: Path) -> None:
    assert KIND.find(build(tmp_path, {MAIN: ""})) is None


@pytest.mark.parametrize("files", [files for _name, files in CORPUS], ids=[name for name, _files in CORPUS])
@pytest.mark.parametrize("default", [None, True, False])
@pytest.mark.parametrize("cdi", [None, True])
def test_it_converges_once_and_restores_every_byte(
    tmp_path: Path, files: Dict[str, str], default: Optional[bool], cdi: Optional[bool]
) -> None:
    machine = Machine(tmp_path, files)
    found, before = machine.read().settings, snapshot(tmp_path)
    want = wanted(default=default, cdi=cdi)
    assert machine.converge(want)
    configuration = machine.read()
    settings = KIND.wanted(want, configuration)
    assert {name: configuration.settings.get(name) for name in settings} == settings
    assert machine.edit(want) == ()
    assert [path for path in snapshot(tmp_path) if path not in before and path.endswith("toml")] == [DROP_IN[1:]]
    machine.write(KIND.restore(configuration, {name: found.get(name) for name in settings}))
    if not before:
        # The folders are given back by who made them.
        before = {path: entry for path, entry in snapshot(tmp_path).items() if entry == ("folder",)}
    assert {path: entry for path, entry in snapshot(tmp_path).items() if entry != ("folder",)} == {
        path: entry for path, entry in before.items() if entry != ("folder",)
    }
    assert machine.read().settings == found


def test_its_file_says_whose_it_is_and_what_is_declared(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {})
    machine.converge(wanted(default=True))
    assert machine.ours() == (
        "# Written by gpufleet.node, module container_runtime. A change made here is overwritten by the next run.\n"
        "[crio.runtime]\n"
        'default_runtime = "nvidia"\n'
        "\n"
        "[crio.runtime.runtimes.nvidia]\n"
        'runtime_path = "/usr/bin/nvidia-container-runtime"\n'
        'runtime_type = "oci"\n'
    )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the reader of the standard library came with Python 3.11")
def test_its_file_is_toml_to_another_reader(tmp_path: Path) -> None:
    import tomllib

    machine = Machine(tmp_path, {f"{FOLDER}/10-crio.conf": PACKAGED})
    machine.converge(wanted(default=True))
    assert tomllib.loads(machine.ours())["crio"]["runtime"] == {
        "default_runtime": "nvidia",
        "runtimes": {
            "nvidia": {
                "runtime_path": PATH,
                "runtime_type": "oci",
                "runtime_root": "/run/crun",
                "monitor_path": "/usr/libexec/crio/conmon",
                "allowed_annotations": ["io.containers.trace-syscall"],
            }
        },
    }


def test_the_runtime_gets_the_options_of_the_one_that_it_starts_but_not_what_leads_past_it(tmp_path: Path) -> None:
    misleading = (
        "[crio.runtime.runtimes.crun]\n"
        "inherit_default_runtime = true\n"
        'platform_runtime_paths = {"linux/arm64" = "/usr/bin/crun-arm"}\n'
        'monitor_path = "/usr/libexec/crio/conmon"\n'
    )
    machine = Machine(tmp_path, {f"{FOLDER}/10-crio.conf": misleading})
    machine.converge(wanted())
    assert 'monitor_path = "/usr/libexec/crio/conmon"' in machine.ours()
    assert "inherit" not in machine.ours()
    assert "platform" not in machine.ours()


def test_what_a_later_entry_does_not_declare_any_more_stays(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {})
    machine.converge(wanted(default=True))
    machine.converge(wanted(runtime_path="/opt/nvidia-container-runtime"))
    assert machine.read().settings[DEFAULT_RUNTIME] == "nvidia"


def test_a_runtime_that_others_wrote_as_it_is_declared_needs_no_file_of_ours(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {f"{FOLDER}/99-nvidia.toml": CTK})
    assert machine.edit(wanted(default=True)) == ()


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ('runtime_type = "vm"', f"{PATH} (vm)"),
        ("inherit_default_runtime = true", "as the default runtime"),
    ],
)
def test_a_runtime_that_would_not_be_started_as_declared_is_another_one(tmp_path: Path, kind: str, found: str) -> None:
    text = f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{PATH}"\n{kind}\n'
    machine = Machine(tmp_path, {f"{FOLDER}/50-x.conf": text})
    assert machine.read().settings[OUR_RUNTIME] == found
    machine.converge(wanted())
    assert machine.read().settings[OUR_RUNTIME] == PATH


# Who has the last word


@pytest.mark.parametrize("name", ["10-a", "99-gpufleet.conf", "10-site/zz.toml", ".hidden"])
def test_earlier_names_and_files_of_folders_count_less(tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path, {f"{FOLDER}/{name}": '[crio.runtime.runtimes.nvidia]\nruntime_path = "/other"\n'})
    machine.converge(wanted())
    assert machine.read().settings[OUR_RUNTIME] == PATH


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


def test_an_empty_folder_in_its_folder_says_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {})
    (tmp_path / FOLDER.lstrip("/") / "20-site").mkdir(parents=True)
    machine.converge(wanted())
    assert machine.read().settings[OUR_RUNTIME] == PATH


@pytest.mark.parametrize("name", ["mine", "nvidia"])
def test_files_that_the_gpu_operator_writes_are_refused(tmp_path: Path, name: str) -> None:
    theirs = f"{FOLDER}/99-nvidia.conf"
    program = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
    machine = Machine(tmp_path, {theirs: f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{program}"\n'})
    with pytest.raises(OwnedByAnother) as caught:
        machine.edit(wanted(runtime_name=name))
    expected = f", wanted {PATH}" if name == "nvidia" else ""
    assert str(caught.value) == (
        f"Cannot configure crio in {theirs}: the toolkit container of the GPU Operator owns it, and rewrites it at "
        f"every start (found {program}{expected}). Remove crio from the declaration, or set toolkit.enabled=false in "
        "the GPU Operator and remove its runtimes from this file."
    )


@pytest.mark.parametrize("name", ["99-nvidia.toml", "zz", "99-gpufleet.toml.bak"])
def test_a_later_file_that_says_otherwise_is_named_and_nothing_is_planned(tmp_path: Path, name: str) -> None:
    text = '[crio.runtime.runtimes.nvidia]\nruntime_path = "/other"\n'
    machine = Machine(tmp_path, {f"{FOLDER}/{name}": text})
    with pytest.raises(OwnedByAnother) as caught:
        machine.edit(wanted())
    assert str(caught.value) == (
        f"Cannot set runtime nvidia in {FOLDER}/{name}: this file is read after {DROP_IN} and overrides it "
        f"(found /other, wanted {PATH}). Remove it from that file, or let the file come earlier in the order of names."
    )


OTHER_CASES = """\
[CRIO.Runtime]
Default_Runtime = "nvidia"
[CRIO.Runtime.Runtimes.nvidia]
Runtime_Path = "/opt/other"
Monitor_Path = "/usr/libexec/crio/conmon"
"""


def test_keys_are_read_in_any_case_and_what_is_declared_counts(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {MAIN: OTHER_CASES})
    assert machine.read().settings == {OUR_RUNTIME: "/opt/other", DEFAULT_RUNTIME: "nvidia", CDI: True}
    machine.converge(wanted(default=True))
    assert machine.read().settings == {OUR_RUNTIME: PATH, DEFAULT_RUNTIME: "nvidia", CDI: True}
    assert machine.edit(wanted(default=True)) == ()
    assert "conmon" in machine.ours()
    assert "default_runtime" not in machine.ours().lower()


def test_a_default_in_another_case_is_taken_out_of_the_text_of_others(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {MAIN: OTHER_CASES})
    machine.converge(wanted(present=False))
    assert machine.read().settings == {DEFAULT_RUNTIME: None, CDI: True}


def test_runtimes_of_names_that_differ_in_case_are_two(tmp_path: Path) -> None:
    text = CTK + CTK.partition("[crio.runtime.runtimes]")[2].replace("nvidia]", "NVIDIA]")
    settings = Machine(tmp_path, {MAIN: text}).read().settings
    assert {OUR_RUNTIME, SettingName(RUNTIME, "NVIDIA")} <= settings.keys()


def test_two_spellings_in_one_file_are_unknown(tmp_path: Path) -> None:
    text = '[crio.runtime]\ndefault_runtime = "crun"\nDefault_Runtime = "nvidia"\n'
    with pytest.raises(CannotLook, match="default_runtime and Default_Runtime are the same key in other case"):
        Machine(tmp_path, {MAIN: text}).read()


def test_a_default_of_others_gives_way_and_comes_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {f"{FOLDER}/10-crio.conf": PACKAGED})
    machine.converge(wanted(default=True))
    assert machine.read().settings[DEFAULT_RUNTIME] == "nvidia"
    machine.converge(wanted(default=False))
    assert machine.read().settings[DEFAULT_RUNTIME] == "crun"
    assert "default_runtime" not in machine.ours()


def test_a_default_that_only_others_gave_to_the_runtime_is_taken_out_of_their_text(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {f"{FOLDER}/99-nvidia.toml": CTK})
    (edit,) = machine.converge(wanted(default=False))
    assert edit.after == CTK.replace('    default_runtime = "nvidia"\n', "")
    assert machine.read().settings[DEFAULT_RUNTIME] is None


def test_absent_takes_the_runtime_out_wherever_it_is(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {f"{FOLDER}/10-crio.conf": PACKAGED, f"{FOLDER}/20-nvidia.toml": CTK})
    machine.converge(wanted(runtime_path="/opt/n"))
    machine.converge(wanted(present=False))
    settings = machine.read().settings
    assert OUR_RUNTIME not in settings
    assert settings[DEFAULT_RUNTIME] == "crun"
    assert not machine.host.files.exists(DROP_IN)
    assert machine.host.files.read(f"{FOLDER}/10-crio.conf") == PACKAGED


def test_what_a_killed_run_left_is_as_if_it_were_not_there_until_it_is_written_anew(tmp_path: Path) -> None:
    leftover = f"{FOLDER}/.99-gpufleet.toml.gpufleet-tmp"
    machine = Machine(tmp_path, {leftover: "[crio.run"})
    machine.converge(wanted())
    assert not machine.host.files.exists(leftover)


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"/srv/ours.toml": ""}, {DROP_IN: "/srv/ours.toml"})
    (edit,) = machine.converge(wanted())
    assert edit.path == "/srv/ours.toml"
    assert machine.edit(wanted()) == ()


# Bad input

CORRECT_IT = "Correct the file, then run again; nothing was written."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[crio.runtime]\ndefault_runtime = nvidia\n",
            "line 2, column 19: nvidia is not a value; strings are quoted.",
        ),
        ("[crio.runtime]\ndefault_runtime = 5\n", "crio.runtime.default_runtime is a number, and has to be a text."),
        ("crio = true\n", "crio is true or false, and has to be a table."),
        ("[crio.runtime]\nruntimes = []\n", "crio.runtime.runtimes is a list, and has to be a table."),
        (
            "[crio.runtime.runtimes.x]\nruntime_path = {}\n",
            "crio.runtime.runtimes.x.runtime_path is a table, and has to be a text.",
        ),
        (
            "[crio.runtime]\ncdi_spec_dirs = [1]\n",
            "crio.runtime.cdi_spec_dirs is a number, and has to be a text.",
        ),
    ],
)
def test_a_file_that_it_would_not_understand_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = f"{FOLDER}/10-x.conf"
    machine = Machine(tmp_path, {path: text})
    with pytest.raises(CannotLook) as caught:
        machine.read()
    assert str(caught.value) == f"Cannot parse {path}: {message} {CORRECT_IT}"


def test_it_cannot_do_without_cdi(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError) as caught:
        Machine(tmp_path, {}).edit(wanted(cdi=False))
    assert str(caught.value) == (
        "Cannot disable CDI on crio: it always looks up CDI devices, and cannot be told not to. "
        "Leave cdi out of this entry."
    )


# Its daemon


def test_it_has_what_the_daemon_says_on_its_socket(tmp_path: Path) -> None:
    answer = '[crio.runtime]\ndefault_runtime = "crun"\n[crio.runtime.runtimes.crun]\nruntime_path = "/c"\n'
    machine = Machine(tmp_path, {SOCKET: "", f"{SOCKET}.http/config": answer})
    running = KIND.running(machine.host, machine.read())
    assert running is not None
    assert running.settings == {SettingName(RUNTIME, "crun"): "/c", DEFAULT_RUNTIME: "crun", CDI: True}
    assert running.containers is None


def test_nobody_who_answers_is_no_daemon(tmp_path: Path) -> None:
    for files in ({}, {SOCKET: ""}):
        machine = Machine(tmp_path / str(len(files)), files)
        assert KIND.running(machine.host, machine.read()) is None


@pytest.mark.parametrize(
    ("before", "after", "action"),
    [
        ({OUR_RUNTIME: PATH}, {OUR_RUNTIME: PATH}, NOTHING),
        ({}, {OUR_RUNTIME: PATH}, RESTART),
        ({OUR_RUNTIME: PATH}, {OUR_RUNTIME: None}, RESTART),
        ({DEFAULT_RUNTIME: "nvidia"}, {DEFAULT_RUNTIME: None}, RESTART),
        ({DEFAULT_RUNTIME: "crun"}, {DEFAULT_RUNTIME: None}, NOTHING),
        ({DEFAULT_RUNTIME: "runc"}, {DEFAULT_RUNTIME: "nvidia"}, RESTART),
        ({CDI: False}, {CDI: True}, RESTART),
    ],
)
def test_only_what_the_daemon_does_not_have_takes_a_restart(before: Settings, after: Settings, action: str) -> None:
    required_action = KIND.required_action(before, after)
    assert required_action.action == action
    assert bool(required_action.why) == (action == RESTART)


# Its program


OTHERWISE = "This version reads them differently, or does not know the setting."


class Program:
    """``crio --config ... --config-dir ... config``: what it was given, and what it says."""

    def __init__(self, machine: Machine, says: str, status: int = 0) -> None:
        self.machine, self.says, self.status = machine, says, status
        self.given: List[str] = []
        machine.host.commands.programs["crio"] = self

    def __call__(self, argv: Sequence[str]) -> Completed:
        assert list(argv[1:]) == ["--config", "/dev/null", "--config-dir", COPIES, "config"]
        files = self.machine.host.files
        self.given = [files.read(f"{COPIES}/{name}") for name in files.names(COPIES)]
        return Completed(self.status, self.says, 'level=fatal msg="no such runtime"\n')


def test_its_program_is_given_all_files_in_their_order_with_ours_as_it_will_be(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {MAIN: "# main\n", f"{FOLDER}/10-crio.conf": PACKAGED, f"{FOLDER}/zz": "# last\n"})
    # Of a run that was killed.
    machine.host.files.replace(f"{COPIES}/00009.conf", "default_runtime = 1")
    program = Program(machine, SAMPLE)
    edits = machine.edit(wanted())
    machine.check(edits)
    assert program.given == ["# main\n", PACKAGED, edits[0].after, "# last\n"]
    assert machine.host.files.names("/run/gpufleet") == ()
    assert not machine.host.files.exists(DROP_IN)


def test_a_candidate_that_its_program_refuses_is_refused_with_its_words(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {})
    Program(machine, "", status=1)
    with pytest.raises(Refused, match='exit status 1: level=fatal msg="no such runtime"'):
        machine.check(machine.edit(wanted()))
    assert not machine.host.files.exists(COPIES)


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (
            SAMPLE.replace("/usr/bin/nvidia-container-runtime", "/usr/bin/other"),
            f"Cannot validate the new configuration of CRI-O on runtime nvidia: crio config reports something else "
            f"than the files (found /usr/bin/other, wanted {PATH}). {OTHERWISE}",
        ),
        (
            "",
            f"Cannot validate the new configuration of CRI-O on runtime nvidia: crio config reports something else "
            f"than the files (wanted {PATH}). {OTHERWISE}",
        ),
        (
            SAMPLE.replace('cgroup_manager = "systemd"', 'default_runtime = "nvidia"'),
            f"Cannot validate the new configuration of CRI-O on default_runtime: crio config reports something else "
            f"than the files (found nvidia). {OTHERWISE}",
        ),
    ],
)
def test_a_result_that_is_not_what_the_files_say_is_refused(tmp_path: Path, says: str, message: str) -> None:
    machine = Machine(tmp_path, {})
    Program(machine, says)
    with pytest.raises(Refused) as caught:
        machine.check(machine.edit(wanted()))
    assert str(caught.value) == message
