# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of gpu_node_info on container engines and CDI, by recorded answers and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict

from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import engines
from ansible_collections.gpufleet.node.tests.unit.node.engine_files import RUNNING, SPECIFICATION
from ansible_collections.gpufleet.node.tests.unit.support import build

DAEMON_JSON = json.dumps(
    {"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}}, "default-runtime": "nvidia"}
)
DOCKER = {"/usr/bin/dockerd": "", "/etc/docker/daemon.json": DAEMON_JSON}


def engines_of(root: Path, files: Dict[str, str]) -> Dict[str, Any]:
    return {engine["name"]: engine for engine in engines.gather(build(root, files))}


def test_an_engine_says_what_its_daemon_has_and_what_that_has_not_taken_up(tmp_path: Path) -> None:
    docker = engines_of(tmp_path, {**DOCKER, **RUNNING})["docker"]
    assert docker["files"] == ["/etc/docker/daemon.json"]
    assert docker["runtimes"] == [{"name": "old", "path": "/opt/old"}]
    assert (docker["cdi"], docker["containers"], docker["daemon_version"]) == (True, 2, "26.1.5")
    assert docker["not_taken_up"] == ["default_runtime", "runtime nvidia", "runtime old"]


def test_an_engine_without_a_daemon_says_what_its_files_do(tmp_path: Path) -> None:
    docker = engines_of(tmp_path, DOCKER)["docker"]
    assert docker["runtimes"] == [{"name": "nvidia", "path": "/usr/bin/nvidia-container-runtime"}]
    assert docker["default_runtime"] == "nvidia"
    assert docker["unavailable"]["not_taken_up"] == engines.NO_DAEMON


def test_a_file_that_cannot_be_read_is_the_reason_for_what_is_not_known_and_the_others_are_there(
    tmp_path: Path,
) -> None:
    found = engines_of(tmp_path, {**DOCKER, "/etc/docker/daemon.json": '{\n"runtimes": }', "/usr/bin/containerd": ""})
    docker = found["docker"]
    assert docker["runtimes"] is None
    assert "line 2, column 13" in docker["unavailable"]["runtimes"]
    assert found["containerd"]["runtimes"] == []


def test_what_cannot_be_read_among_the_specifications_keeps_no_other_from_being_told(tmp_path: Path) -> None:
    files = {
        "/etc/cdi/nvidia.json": json.dumps(SPECIFICATION),
        "/etc/cdi/folder.json/x": "",
        "/usr/share/containers/oci/hooks.d/folder.json/x": "",
        "/etc/cdi/number.json": '{"kind": "a/b", "devices": [], "x": ' + "9" * 5000 + "}",
    }
    host = build(tmp_path, files, {"/etc/cdi/circle.yaml": "circle.yaml"})
    facts = engines.gather_cdi(host.files)
    assert facts["devices"] == ["nvidia.com/gpu=0"]
    told = {one["path"]: one["unavailable"].get("kind", "") for one in facts["specifications"]}
    assert told["/etc/cdi/circle.yaml"] == "Too many levels of symbolic links"
    assert "/etc/cdi/folder.json" not in told


def test_cdi_says_which_devices_engines_find_and_which_files_are_in_the_way(tmp_path: Path) -> None:
    text = json.dumps(SPECIFICATION)
    host = build(
        tmp_path,
        {"/etc/cdi/nvidia.json": text, "/var/run/cdi/nvidia.json": text, "/etc/cdi/broken.json": "{"},
    )
    facts = engines.gather_cdi(host.files)
    assert facts["devices"] == ["nvidia.com/gpu=0"]
    assert facts["duplicates"] == ["/etc/cdi/nvidia.json"]
    assert facts["unavailable"] == {"state": "no driver is loaded, or a specification cannot be read"}
    kinds = {one["path"]: (one["kind"], one["unavailable"]) for one in facts["specifications"]}
    assert kinds["/var/run/cdi/nvidia.json"] == ("nvidia.com/gpu", {})
    assert "line 1, column 2" in kinds["/etc/cdi/broken.json"][1]["kind"]
