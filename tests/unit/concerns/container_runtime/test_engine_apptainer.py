# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apptainer: its directives read as it reads them, and changed without touching another character."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.apptainer.apptainer import (
    ALWAYS_NV,
    KIND,
    MAIN,
    SWITCHES,
    values,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    BIND_PATH,
    NOTHING,
    Configuration,
    Edit,
    Kind,
    SettingName,
    WantedEngine,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.apptainer_corpus import CORPUS, SHIPPED
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build
from hypothesis import given
from hypothesis import strategies as st


def wanted(**keys: Any) -> WantedEngine:
    defaults: Dict[str, Any] = {"present": True, "runtime_name": "nvidia", "runtime_path": "/n", "options": {}}
    return WantedEngine(engine="apptainer", **{**defaults, **keys})


class Machine:
    """A host with Apptainer and this configuration."""

    def __init__(self, root: Path, text: Optional[str], main: str = MAIN) -> None:
        self.host: FakeHost = build(root, {} if text is None else {main: text})
        self.host.commands.programs["apptainer"] = lambda argv: Completed(0, "", "")

    def read(self) -> Configuration:
        installation = KIND.find(self.host)
        assert installation is not None
        return KIND.read(self.host.files, installation)

    def converge(self, want: WantedEngine) -> str:
        self.write(KIND.edit(self.read(), want))
        return self.host.files.read(MAIN)

    def write(self, edits: Tuple[Edit, ...]) -> None:
        for edit in edits:
            assert edit.before == self.host.files.read(edit.path)
            assert edit.after is not None
            self.host.files.replace(edit.path, edit.after)


def test_it_is_a_kind_of_engine_without_a_daemon(tmp_path: Path) -> None:
    kind: Kind = KIND
    machine = Machine(tmp_path, SHIPPED)
    assert kind.running(machine.host, machine.read()) is None
    assert kind.required_action({}, {ALWAYS_NV: True}).action == NOTHING
    assert kind.find(build(tmp_path / "bare", {MAIN: SHIPPED})) is None


def test_one_that_was_built_here_has_its_configuration_below_usr_local(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SHIPPED)
    machine.host.commands.find = lambda name: f"/usr/local/bin/{name}"  # type: ignore[method-assign]
    installation = KIND.find(machine.host)
    assert installation is not None
    assert installation.main == "/usr/local/etc/apptainer/apptainer.conf"


def test_what_is_declared_is_all_that_changes(tmp_path: Path) -> None:
    want = wanted(default=True, options={"use_nvidia_container_cli": True, "bind_paths": ["/data", "/a:/b:ro"]})
    machine = Machine(tmp_path, SHIPPED)
    expected = SHIPPED.replace("use nv = no", "use nv = yes").replace("container-cli = no", "container-cli = yes")
    hosts = "bind path = /etc/hosts\n"
    expected = expected.replace(hosts, f"{hosts}bind path = /data\nbind path = /a:/b:ro\n")
    assert machine.converge(want) == expected
    assert KIND.edit(machine.read(), want) == ()


@pytest.mark.parametrize("text", [text for _name, text in CORPUS], ids=[name for name, _text in CORPUS])
def test_every_file_takes_all_and_gives_it_back(tmp_path: Path, text: str) -> None:
    (tmp_path / "etc/apptainer").mkdir(parents=True)
    (tmp_path / MAIN[1:]).write_bytes(text.encode("utf-8", "surrogateescape"))
    machine = Machine(tmp_path, None)
    found = machine.read().settings
    want = wanted(default=True, options={"use_nvidia_container_cli": True, "bind_paths": ["/data", "/opt/nvidia"]})
    after = machine.converge(want)
    settings = KIND.wanted(want, machine.read())
    assert {name: machine.read().settings.get(name) for name in settings} == settings
    assert KIND.edit(machine.read(), want) == ()
    assert ("\r\n" in after) == ("\r\n" in text)
    assert after.count("\r\n") in (0, after.count("\n"))
    machine.write(KIND.restore(machine.read(), {name: found.get(name) for name in settings}))
    assert machine.read().settings == found
    if all(str(switch) in values(text) for switch in SWITCHES) and text.endswith("\n"):
        # Else a line for a switch that was not there is left, which says what would be anyway.
        assert machine.host.files.read(MAIN) == text


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("bind path = /data\n", ""),
        ("a = 1\nbind path = /data\nb = 2\n", "a = 1\nb = 2\n"),
        ("bind path = /data,/opt\n", "bind path = /opt\n"),
        ("bind path = /opt, /data\r\nb = 2\r\n", "bind path = /opt\r\nb = 2\r\n"),
        ("bind path = /data\nbind path = /x\nbind path = /data\n", "bind path = /x\n"),
        ("bind path = /data2\n#bind path = /data\n", "bind path = /data2\n#bind path = /data\n"),
        ("x = 1\nbind path = /data", "x = 1\n"),
    ],
)
def test_absent_takes_the_bind_path_out_wherever_it_is(tmp_path: Path, text: str, after: str) -> None:
    machine = Machine(tmp_path, text)
    assert machine.converge(wanted(present=False, options={"bind_paths": ["/data"]})) == after


def test_absent_switches_off_what_is_on(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "always use nv = yes\nuse nvidia-container-cli = yes\n")
    assert machine.converge(wanted(present=False)) == "always use nv = no\nuse nvidia-container-cli = no\n"
    assert KIND.edit(machine.read(), wanted(present=False)) == ()


def test_what_is_not_declared_stays(tmp_path: Path) -> None:
    text = SHIPPED.replace("use nv = no", "use nv = yes")
    assert Machine(tmp_path, text).converge(wanted()) == text


@given(
    text=st.lists(
        st.sampled_from(
            [
                "always use nv = no",
                "always use nv = yes",
                "bind path = /opt",
                "bind path = /data,/x",
                "# c",
                "",
                " z=1",
                "=",
                "x",
            ]
        )
    ).map("\n".join),
    on=st.booleans(),
    bound=st.booleans(),
)
def test_no_other_directive_ever_changes(text: str, on: bool, bound: bool) -> None:
    installation = KIND.find(_AnyHost())  # type: ignore[arg-type]
    assert installation is not None
    configuration = KIND.read(_OneFile(text), installation)  # type: ignore[arg-type]
    target = {ALWAYS_NV: on, SettingName(BIND_PATH, "/data"): True if bound else None}
    edits = KIND.restore(configuration, target)
    after = edits[0].after if edits else text
    assert after is not None
    changed = KIND.read(_OneFile(after), installation)  # type: ignore[arg-type]
    assert {name: changed.settings.get(name) for name in target} == target
    others = {name: value for name, value in configuration.settings.items() if name not in target}
    assert {name: value for name, value in changed.settings.items() if name not in target} == others
    assert [line for line in after.split("\n") if line in ("# c", " z=1", "=", "x")] == [
        line for line in text.split("\n") if line in ("# c", " z=1", "=", "x")
    ]


class _AnyHost:
    """A host that has every program."""

    @property
    def commands(self) -> _AnyHost:
        return self

    def find(self, name: str) -> str:
        return f"/usr/bin/{name}"


class _OneFile:
    """Files of which each has the same text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def resolve(self, path: str) -> str:
        return path

    def read_optional(self, path: str) -> str:
        return self.text


# Bad input


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "# a\nalways use nv = true\n",
            "line 2, column 17: always use nv is true, and Apptainer takes yes or no. "
            "Correct the file, then run again; nothing was written.",
        ),
        (
            "use nvidia-container-cli = \nuse nvidia-container-cli =   Yes\n",
            "line 2, column 30: use nvidia-container-cli is Yes, and Apptainer takes yes or no. "
            "Correct the file, then run again; nothing was written.",
        ),
    ],
)
def test_a_file_that_it_would_not_understand_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CannotLook) as caught:
        Machine(tmp_path, text).read()
    assert str(caught.value) == f"Cannot parse {MAIN}: {message}"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotLook) as caught:
        Machine(tmp_path, None).read()
    assert str(caught.value) == (
        f"Cannot read the configuration in {MAIN}: it does not exist, and Apptainer runs nothing without it. "
        "Install Apptainer with its configuration."
    )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"cdi": True},
            "Cannot set cdi on apptainer: Apptainer knows no CDI in its configuration. Leave cdi out of this entry.",
        ),
        (
            {"options": {"bind_paths": ["data"]}},
            "Cannot bind a path in apptainer: in bind_paths 'data' is not an absolute path. Write it as /data, or as "
            "/data:/mnt/data for another place in the container; a comma cannot be in it.",
        ),
        (
            {"options": {"bind_paths": ["/a,/b"]}},
            "Cannot bind a path in apptainer: in bind_paths '/a,/b' is not an absolute path. Write it as /data, or as "
            "/data:/mnt/data for another place in the container; a comma cannot be in it.",
        ),
    ],
)
def test_what_it_does_not_have_is_refused(tmp_path: Path, keys: Dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        Machine(tmp_path, SHIPPED).converge(wanted(**keys))
    assert str(caught.value) == message
