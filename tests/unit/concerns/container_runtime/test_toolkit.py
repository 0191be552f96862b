# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The toolkit's file: what can be declared of it, and edits that leave the rest of its text alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, DeclarationError, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_text import parse
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    NOTHING,
    Configuration,
    Edit,
    Kind,
    SettingName,
    WantedEngine,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.toolkit.options import declared
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.toolkit.toolkit import KIND, MAIN
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

# As the package of version 1.17 writes it.
SHIPPED = """\
#accept-nvidia-visible-devices-as-volume-mounts = false
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"
#swarm-resource = "DOCKER_RESOURCE_GPU"

[nvidia-container-cli]
#debug = "/var/log/nvidia-container-toolkit.log"
environment = []
#ldcache = "/etc/ld.so.cache"
ldconfig = "@/sbin/ldconfig.real"
load-kmods = true
#no-cgroups = false
#path = "/usr/bin/nvidia-container-cli"
#root = "/run/nvidia/driver"
#user = "root:video"

[nvidia-container-runtime]
#debug = "/var/log/nvidia-container-runtime.log"
log-level = "info"
mode = "auto"
runtimes = ["docker-runc", "runc", "crun"]

[nvidia-container-runtime.modes]

[nvidia-container-runtime.modes.cdi]
annotation-prefixes = ["cdi.k8s.io/"]
default-kind = "nvidia.com/gpu"
spec-dirs = ["/etc/cdi", "/var/run/cdi"]

[nvidia-container-runtime.modes.csv]
mount-spec-path = "/etc/nvidia-container-runtime/host-files-for-container.d"

[nvidia-container-runtime-hook]
path = "nvidia-container-runtime-hook"
skip-mode-detection = false

[nvidia-ctk]
path = "nvidia-ctk"
"""


class Machine:
    """A host with the toolkit and this file."""

    def __init__(self, root: Path, text: Optional[str]) -> None:
        self.host: FakeHost = build(root, {} if text is None else {MAIN: text})
        self.host.commands.programs["nvidia-ctk"] = lambda argv: Completed(0, "", "")

    def read(self) -> Configuration:
        installation = KIND.find(self.host)
        assert installation is not None
        return KIND.read(self.host.files, installation)

    def edit(self, given: Mapping[str, Any]) -> Tuple[Edit, ...]:
        return KIND.edit(self.read(), WantedEngine("toolkit", True, "", "", options=declared(given)))

    def converge(self, given: Mapping[str, Any]) -> str:
        self.write(self.edit(given))
        return self.host.files.read(MAIN)

    def write(self, edits: Tuple[Edit, ...]) -> None:
        for edit in edits:
            assert edit.after is not None
            self.host.files.replace(edit.path, edit.after)


def test_it_is_looked_at_as_an_engine_without_a_daemon(tmp_path: Path) -> None:
    kind: Kind = KIND
    machine = Machine(tmp_path, SHIPPED)
    assert kind.running(machine.host, machine.read()) is None
    assert kind.required_action({}, {SettingName("disable-require"): True}).action == NOTHING
    assert kind.find(build(tmp_path / "bare", {MAIN: SHIPPED})) is None


HARDENED = {
    "accept-nvidia-visible-devices-envvar-when-unprivileged": False,
    "accept-nvidia-visible-devices-as-volume-mounts": True,
}
EVERYTHING: Dict[str, Any] = {
    **HARDENED,
    "nvidia-container-cli": {"no-cgroups": False, "environment": ["A=b"]},
    "nvidia-container-runtime": {"mode": "cdi", "modes": {"cdi": {"spec-dirs": ["/etc/cdi"]}}},
    "nvidia-container-runtime.modes.legacy.cuda-compat-mode": "hook",
    "features.disable-imex-channel-creation": True,
}
CORPUS = [
    ("as it comes", SHIPPED),
    ("nothing", ""),
    ("comments alone", "# nvidia-container-runtime.mode = 'x'\n"),
    ("Windows line ends", SHIPPED.replace("\n", "\r\n")),
    ("a byte-order mark", "\ufeff" + SHIPPED),
    ("no line end at the end", SHIPPED.rstrip("\n")),
    ("dotted keys", 'nvidia-container-runtime.mode = "auto"\nnvidia-container-cli.no-cgroups = true\n'),
    ("an inline table", '[nvidia-container-runtime]\nmodes = {cdi = {default-kind = "nvidia.com/gpu"}}\n'),
    ("keys that nobody knows", "future = 1.5\n[later]\nwhen = 2027-01-01\n[[more]]\na = 1\n"),
    ("a list on several lines", '[nvidia-container-cli]\nenvironment = [\n  "A=b", # why\n  "C=d",\n]\n'),
]


@pytest.mark.parametrize("text", [text for _name, text in CORPUS], ids=[name for name, _text in CORPUS])
def test_every_file_takes_all_and_gives_its_meaning_back(tmp_path: Path, text: str) -> None:
    machine = Machine(tmp_path, text)
    found = machine.read().settings
    after = parse(machine.converge(EVERYTHING)).data
    assert after["accept-nvidia-visible-devices-as-volume-mounts"] is True
    assert after["nvidia-container-cli"]["environment"] == ["A=b"]
    assert after["nvidia-container-runtime"]["modes"]["cdi"]["spec-dirs"] == ["/etc/cdi"]
    assert after["features"] == {"disable-imex-channel-creation": True}
    assert machine.edit(EVERYTHING) == ()
    names = map(SettingName, declared(EVERYTHING))
    machine.write(KIND.restore(machine.read(), {name: found.get(name) for name in names}))
    assert machine.read().settings == found


def test_the_rest_of_the_text_stays_as_it_is(tmp_path: Path) -> None:
    after = Machine(tmp_path, SHIPPED).converge({"nvidia-container-runtime.mode": "cdi", "disable-require": True})
    assert after == SHIPPED.replace('mode = "auto"', 'mode = "cdi"').replace("require = false", "require = true")


def test_a_key_with_null_is_taken_out_and_the_default_of_the_toolkit_counts(tmp_path: Path) -> None:
    after = Machine(tmp_path, SHIPPED).converge({"nvidia-container-cli": {"load-kmods": None, "user": None}})
    assert after == SHIPPED.replace("load-kmods = true\n", "")


@pytest.mark.parametrize("text", ['runtimes = "runc"', 'runtimes = "[runc"', 'runtimes = ["runc"]'])
def test_what_others_wrote_of_another_kind_comes_back_as_it_was(tmp_path: Path, text: str) -> None:
    machine = Machine(tmp_path, f"[nvidia-container-runtime]\n{text}\n")
    found = machine.read().settings
    machine.converge({"nvidia-container-runtime": {"runtimes": ["crun"]}})
    machine.write(KIND.restore(machine.read(), found))
    assert machine.host.files.read(MAIN) == f"[nvidia-container-runtime]\n{text}\n"


def test_a_missing_file_gets_what_is_declared_and_the_rest_is_as_the_toolkit_has_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, None)
    assert machine.converge(HARDENED) == (
        "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
        "accept-nvidia-visible-devices-as-volume-mounts = true\n"
    )


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {}),
        ({"nvidia-container-runtime": {"mode": "cdi"}}, {"nvidia-container-runtime.mode": "cdi"}),
        ({"nvidia-container-cli.no-cgroups": "True"}, {"nvidia-container-cli.no-cgroups": True}),
        ({"nvidia-container-cli": {}}, {}),
        ({"nvidia-container-runtime.modes.mps.share": 5}, {"nvidia-container-runtime.modes.mps.share": 5}),
        ({"nvidia-cdi-hook": {"path": "/x"}}, {"nvidia-cdi-hook.path": "/x"}),
        ({"features.new-one": True}, {"features.new-one": True}),
        ({"features": {"anything": ["a"]}}, {"features.anything": ["a"]}),
        ({"features.anything": None, "disable-require": None}, {"features.anything": None, "disable-require": None}),
    ],
)
def test_keys_may_be_nested_or_dotted_and_of_a_later_release(given: Dict[str, Any], found: Dict[str, Any]) -> None:
    assert declared(given) == found


@pytest.mark.parametrize(
    ("given", "name", "message"),
    [
        (
            {"nvidia-container-cli": {"no-cgroups": "maybe"}},
            "nvidia-container-cli.no-cgroups",
            "it is 'maybe', and must be true or false.",
        ),
        ({"disable-require": 1}, "disable-require", "it is 1, and must be true or false."),
        ({"swarm-resource": True}, "swarm-resource", "it is True, and must be a string."),
        (
            {"nvidia-container-runtime.runtimes": "runc"},
            "nvidia-container-runtime.runtimes",
            "it is 'runc', and must be a list of strings.",
        ),
        (
            {"nvidia-container-runtime.runtimes": ["runc", 1]},
            "nvidia-container-runtime.runtimes",
            "it is ['runc', 1], and must be a list of strings.",
        ),
        (
            {"nvidia-container-runtime.mode": "automatic"},
            "nvidia-container-runtime.mode",
            "it is 'automatic', and must be one of auto, legacy, csv, cdi, jit-cdi.",
        ),
        (
            {"nvidia-container-runtime.modes.legacy.cuda-compat-mode": "off"},
            "nvidia-container-runtime.modes.legacy.cuda-compat-mode",
            "it is 'off', and must be one of ldconfig, disabled, hook, mount.",
        ),
        (
            {"nvidia-container-cli.no-cgroup": True},
            "nvidia-container-cli.no-cgroup",
            "the toolkit has no such key. Did you mean nvidia-container-cli.no-cgroups?",
        ),
        (
            {"nvidia-container-runtime": {"no-cgroups": True}},
            "nvidia-container-runtime.no-cgroups",
            "the toolkit has no such key. Did you mean nvidia-container-cli.no-cgroups?",
        ),
        (
            {"disable-requires": True},
            "disable-requires",
            "the toolkit has no such key. Did you mean disable-require?",
        ),
        (
            {"features": True},
            "features",
            "the toolkit has no such key. Did you mean features.allow-cuda-compat-libs-from-container?",
        ),
        (
            {"features": None},
            "features",
            "the toolkit has no such key. Did you mean features.allow-cuda-compat-libs-from-container?",
        ),
        (
            {"nvidia-container-cli.no-cgroup": None},
            "nvidia-container-cli.no-cgroup",
            "the toolkit has no such key. Did you mean nvidia-container-cli.no-cgroups?",
        ),
        (
            {"later.key": "[a]"},
            "later.key",
            "it is the string '[a]', which could also be a list. Write it as a list.",
        ),
        (
            {"disable-require": {"all": True}},
            "disable-require.all",
            "the toolkit has no such key. Did you mean disable-require?",
        ),
        (
            {"nvidia-container-runtime.mode": "cdi", "nvidia-container-runtime": {"mode": "auto"}},
            "nvidia-container-runtime.mode",
            "it is declared twice, as a nested and as a dotted key. Leave one out.",
        ),
        (
            {"later.key": 1.5},
            "later.key",
            "it is 1.5, and must be true or false, a number, a string, or a list of strings.",
        ),
        (
            {"later key": True},
            "later key",
            "it is not the name of a key. Write it as nvidia-container-runtime.mode.",
        ),
    ],
)
def test_what_the_toolkit_would_pass_over_is_refused(given: Dict[str, Any], name: str, message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declared(given)
    assert str(caught.value) == f"Cannot use {name} in the option toolkit: {message}"


def test_a_path_to_ldconfig_in_the_container_needs_the_feature_for_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SHIPPED)
    with pytest.raises(DeclarationError) as caught:
        machine.edit({"nvidia-container-cli.ldconfig": "/sbin/ldconfig"})
    assert str(caught.value) == (
        "Cannot use nvidia-container-cli.ldconfig in the option toolkit: /sbin/ldconfig is a path in the container, "
        "and the toolkit runs that only with features.allow-ldconfig-from-container. "
        "Write it as @/sbin/ldconfig for the one of this machine."
    )
    allowed = {"features.allow-ldconfig-from-container": True, "nvidia-container-cli.ldconfig": "/sbin/ldconfig"}
    assert machine.edit(allowed)


def test_a_damaged_file_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(CannotLook) as caught:
        Machine(tmp_path, "[nvidia-container-cli]\nload-kmods = yes\n").read()
    assert str(caught.value) == (
        f"Cannot parse {MAIN}: line 2, column 14: yes is not a value; strings are quoted. "
        "Correct the file, then run again; nothing was written."
    )


def test_a_text_that_has_no_room_for_a_key_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "features = 5\n")
    with pytest.raises(Refused, match=r"set features\.disable-imex-channel-creation in .*config\.toml"):
        machine.edit({"features.disable-imex-channel-creation": True})
