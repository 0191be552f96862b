# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd: keys in another case than their names are read as containerd reads them, and what is written counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_text import parse
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    CDI,
    DEFAULT_RUNTIME,
    SYSTEMD_CGROUP,
    SettingName,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime.containerd_machine import (
    DROP_IN,
    FOLDER,
    MAIN,
    NEW,
    NVIDIA,
    OLD,
    OUR_CGROUP,
    V2,
    V3,
    Machine,
)

pytestmark = pytest.mark.once

CGROUP = SettingName(SYSTEMD_CGROUP, "runc")
IMPORTING = f'imports = ["{FOLDER}/*.toml"]\n'


def options_read(options: Mapping[str, Any], name: str, *, newer: bool) -> Any:
    """The value that containerd has for a field of runc's options, None for nothing: ``valueFromTree`` of go-toml
    1.9.5, and ``sortEntriesByKey`` with ``structFieldPath`` of go-toml 2.3.0.
    """
    if newer:
        return next((options[key] for key in sorted(options, reverse=True) if key.lower() == name.lower()), None)
    tried = (name, name.lower(), name.upper(), name[0].lower() + name[1:])
    return next((options[key] for key in tried if key in options), None)


def main_text(*options: str, version: int = 2, runtime: str = "runc") -> str:
    plugin = V3 if version > 2 else V2
    head = f'[plugins."{plugin}".containerd.runtimes.{runtime}'
    lines = (f"version = {version}", f"{head}]", 'runtime_type = "io.containerd.runc.v2"', f"{head}.options]", *options)
    return "\n".join((*lines, ""))


READ: Mapping[str, Tuple[Tuple[str, ...], bool, bool]] = {
    # The options, and what 1.x and 2.x make of them.
    "as its name": (("SystemdCgroup = true",), True, True),
    "lower case": (("systemdcgroup = true",), True, True),
    "upper case": (("SYSTEMDCGROUP = true",), True, True),
    "first letter": (("systemdCgroup = true",), True, True),
    "any case": (("SystemDCGroup = true",), False, True),
    "name and lower case": (("SystemdCgroup = true", "systemdcgroup = false"), True, False),
    "lower case and name": (("systemdcgroup = true", "SystemdCgroup = false"), False, True),
    "name and upper case": (("SystemdCgroup = true", "SYSTEMDCGROUP = false"), True, True),
    "lower and upper case": (("systemdcgroup = true", "SYSTEMDCGROUP = false"), True, True),
}


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("case", READ)
def test_the_spelling_that_containerd_takes_counts(tmp_path: Path, version: Tuple[int, ...], case: str) -> None:
    options, older, newer = READ[case]
    machine = Machine(tmp_path / "node", {MAIN: main_text(*options, runtime="nvidia")}, version)
    assert machine.configuration.settings[OUR_CGROUP] is (newer if version >= (2,) else older)


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("case", READ)
def test_the_options_that_2_x_gives_runc_are_spellings_too(tmp_path: Path, version: Tuple[int, ...], case: str) -> None:
    machine = Machine(tmp_path / "node", {MAIN: main_text(*READ[case][0])}, version)
    assert machine.model is not None
    options = machine.means()["containerd"]["runtimes"]["runc"]["options"]
    found = options_read(options, "SystemdCgroup", newer=version >= (2,))
    assert machine.configuration.settings[CGROUP] is bool(found)


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("case", READ)
def test_what_is_declared_counts_whatever_the_spelling_that_is_there(
    tmp_path: Path, version: Tuple[int, ...], case: str, wanted: bool
) -> None:
    text = main_text(*READ[case][0], runtime="nvidia")
    machine = Machine(tmp_path / "node", {MAIN: text}, version)
    entry = replace(NVIDIA, systemd_cgroup=wanted)
    machine.converge(entry)
    assert machine.model is not None
    files = [text for text in (machine.text(MAIN), machine.text(DROP_IN)) if text]
    merged: Dict[str, Any] = {}
    for document in map(parse, files):
        for plugin in document.data.get("plugins", {}).values():
            merged.update(plugin["containerd"]["runtimes"].get("nvidia", {}).get("options", {}))
    assert bool(options_read(merged, "SystemdCgroup", newer=version >= (2,))) is wanted
    assert machine.configuration.settings[OUR_CGROUP] is wanted
    assert machine.converge_edits(entry) == ()


def test_the_key_that_is_there_gets_the_value_in_its_own_spelling(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "node", {MAIN: main_text("systemdcgroup = true # ours", runtime="nvidia")}, OLD)
    machine.converge(replace(NVIDIA, systemd_cgroup=False))
    text = machine.text() or ""
    assert "systemdcgroup = false # ours" in text
    assert "SystemdCgroup" not in text


def test_2_x_merges_spellings_of_several_files_as_if_they_were_keys_of_their_own(tmp_path: Path) -> None:
    # mergeConfig has maps by then, and knows no fields.
    files = {
        MAIN: IMPORTING + main_text("systemdcgroup = true", version=3),
        f"{FOLDER}/50-site.toml": main_text("SystemdCgroup = false", version=3),
    }
    assert Machine(tmp_path / "node", files, NEW).configuration.settings[CGROUP] is True


def test_a_drop_in_overrides_the_spelling_that_counts(tmp_path: Path) -> None:
    files = {MAIN: IMPORTING + main_text("systemdcgroup = true", version=3, runtime="nvidia")}
    machine = Machine(tmp_path / "node", files, NEW)
    machine.converge(replace(NVIDIA, systemd_cgroup=False))
    assert "systemdcgroup = false" in (machine.text(DROP_IN) or "")
    assert machine.configuration.settings[OUR_CGROUP] is False
    assert machine.text(MAIN) == files[MAIN]


def test_runtimes_are_names_and_have_one_spelling(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "node", {MAIN: main_text("systemdcgroup = true", runtime="NVIDIA")}, OLD)
    assert OUR_CGROUP not in machine.configuration.settings
    assert machine.configuration.settings[SettingName(SYSTEMD_CGROUP, "NVIDIA")] is True


@pytest.mark.parametrize("version", [OLD, NEW])
def test_all_keys_of_the_plugin_are_read_so(tmp_path: Path, version: Tuple[int, ...]) -> None:
    text = f'version = 2\n[plugins."{V2}"]\nENABLE_CDI = true\n[plugins."{V2}".CONTAINERD]\n'
    text += 'DEFAULT_RUNTIME_NAME = "kata"\n'
    text += f'[plugins."{V2}".CONTAINERD.RUNTIMES.kata]\nRUNTIME_TYPE = "io.containerd.kata.v2"\n'
    settings = Machine(tmp_path / "node", {MAIN: text}, version).configuration.settings
    assert settings[CDI] is True
    assert settings[DEFAULT_RUNTIME] == "kata"
    assert settings[SettingName("runtime", "kata")] == "io.containerd.kata.v2"


def test_the_program_is_asked_only_where_1_x_and_2_x_differ(tmp_path: Path) -> None:
    for name, options, calls in (("one", ("systemdcgroup = true",), 0), ("two", READ["name and lower case"][0], 1)):
        machine = Machine(tmp_path / name, {MAIN: main_text(*options)}, OLD)
        assert machine.configuration.settings[CGROUP] is True
        assert machine.model is not None
        assert machine.model.calls == calls


def test_a_spelling_that_an_unknown_version_decides_is_unknown(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "node", {MAIN: main_text(*READ["name and lower case"][0])}, None)
    with pytest.raises(CannotLook) as caught:
        assert machine.configuration
    assert str(caught.value) == (
        f"Cannot parse {MAIN}: containerd.runtimes.runc.options.systemdcgroup in {V2} is spelled in another case, "
        "which containerd 1.x and 2.x read differently. Correct the file, then run again; nothing was written."
    )
