# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the binding of NVML reaches a node: what is written, what is compared, and what Python then imports."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any, Dict

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvml.concern import lacks_file
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvml.state import OURS
from ansible_collections.gpufleet.node.plugins.plugin_utils.binding import binding_of
from ansible_collections.gpufleet.node.tests.unit.concerns.nvml.binding_machine import (
    BINDING,
    CURRENT,
    DEBIAN,
    OLD,
    SITE,
    describe,
    imported,
    machine,
    params,
    run,
    search_first,
    total,
)
from ansible_collections.gpufleet.node.tests.unit.support import Killed, snapshot

DECLARATION = "/etc/gpufleet/declared.d/nvml.json"


@pytest.fixture(autouse=True)
def search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    search_first(monkeypatch, SITE)


# --- the binding of the controller ------------------------------------------------------------------------------------


def test_the_file_of_the_controller_is_installed_and_compiled_for_root_alone_to_change(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host)
    assert outcome.changes[0].as_dict() == {
        "object": "nvidia-ml-py",
        "setting": "binding",
        "before": None,
        "after": describe(CURRENT),
        "scope": "effective",
        "takes_effect": "now",
    }
    assert host.files.read(OURS) == CURRENT
    assert os.stat(host.files.locate(OURS)).st_mode & 0o777 == 0o644
    assert len(host.files.names(f"{os.path.dirname(OURS)}/__pycache__")) == 1
    assert imported(host) == "current"
    assert outcome.as_dict()["effective"] == {"path": OURS, "sha256": total(CURRENT), "version": None}


def test_a_second_run_reads_little_and_changes_nothing(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    before = snapshot(tmp_path / "node")
    host.files.reads.clear()
    outcome = run(host, None)
    assert (outcome.status, outcome.changes) == ("in_sync", ())
    record, note = "/var/lib/gpufleet/baseline/nvml.json", "/run/gpufleet/reboot-required.d/nvml"
    assert host.files.reads == [DECLARATION, OURS, record, note]
    assert snapshot(tmp_path / "node") == before


def test_check_mode_predicts_what_a_run_does_without_the_file(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path / "node", leave_out=())
    predicted = run(host, None, check_mode=True)
    assert snapshot(tmp_path / "node", leave_out=()) == before
    assert predicted.changes == run(host).changes


def test_the_file_is_asked_for_only_where_a_run_would_write_it(tmp_path: Path) -> None:
    host = machine(tmp_path)
    assert lacks_file(host.files, params())
    assert not lacks_file(host.files, params(state="absent"))
    assert not lacks_file(host.files, params(source="package"))
    assert not lacks_file(host.files, params(immediate=False, permanent=False))
    run(host)
    assert not lacks_file(host.files, params())
    assert lacks_file(host.files, params(pynvml_sha256=total(OLD)))


def test_the_declaration_on_the_node_names_the_file_by_its_sum_and_does_not_hold_it(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    assert json.loads(host.files.read(DECLARATION))["declaration"] == {
        "pynvml_sha256": total(CURRENT),
        "version": "13.615.71",
    }


def test_another_file_is_replaced_and_named_by_its_sum(tmp_path: Path) -> None:
    host = machine(tmp_path, {OURS: OLD})
    outcome = run(host)
    assert outcome.changes[0].before == f"sha256 {total(OLD)[:12]}"
    assert host.files.read(OURS) == CURRENT


def test_a_file_that_everybody_may_write_is_replaced_though_its_content_is_right(tmp_path: Path) -> None:
    host = machine(tmp_path, {OURS: CURRENT})
    os.chmod(host.files.locate(OURS), 0o666)
    outcome = run(host)
    assert outcome.changes[0].before == (
        f"sha256 {total(CURRENT)[:12]}: {OURS} is world-writable, and root would run it"
    )
    assert os.stat(host.files.locate(OURS)).st_mode & 0o777 == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_replaced_though_its_content_is_right(tmp_path: Path) -> None:
    host = machine(tmp_path, {OURS: CURRENT})
    os.chown(host.files.locate(OURS), 4711, 0)
    assert str(run(host).changes[0].before).endswith(f"{OURS} is owned by the user 4711, and root would run it")
    assert os.stat(host.files.locate(OURS)).st_uid == 0


def test_a_link_is_replaced_and_what_it_pointed_to_stays(tmp_path: Path) -> None:
    theirs = "/opt/venv/pynvml.py"
    host = machine(tmp_path, {theirs: OLD, f"{os.path.dirname(OURS)}/README": ""})
    os.symlink(theirs, f"{host.files.root}{OURS}")
    assert str(run(host).changes[0].before).endswith(" is a link, and root would run it")
    assert (host.files.read(theirs), host.files.read(OURS)) == (OLD, CURRENT)


def test_a_folder_of_the_system_that_is_a_link_is_no_fault(tmp_path: Path) -> None:
    host = machine(tmp_path)
    os.makedirs(f"{host.files.root}/data")
    os.rename(f"{host.files.root}/var/lib", f"{host.files.root}/data/lib")
    os.symlink("/data/lib", f"{host.files.root}/var/lib")
    run(host)
    assert run(host, None).status == "in_sync"


@pytest.mark.parametrize("kind", [{"immediate": False}, {"permanent": False}])
def test_one_file_serves_the_running_system_and_the_next_boot(tmp_path: Path, kind: Dict[str, Any]) -> None:
    host = machine(tmp_path)
    run(host, **kind)
    assert host.files.read(OURS) == CURRENT
    assert host.files.exists(DECLARATION) == ("permanent" not in kind)


def test_a_run_about_neither_writes_nothing(tmp_path: Path) -> None:
    host = machine(tmp_path)
    assert run(host, None, immediate=False, permanent=False).changes == ()
    assert host.files.log == []


def test_absent_leaves_the_node_as_it_was(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/var/lib/README": ""})
    before = snapshot(tmp_path / "node")
    run(host)
    assert imported(host) == "current"
    outcome = run(host, None, state="absent")
    assert outcome.changes[0].as_dict()["after"] is None
    assert snapshot(tmp_path / "node") == before
    assert run(host, None, state="absent").changes == ()


def test_absent_leaves_what_others_have_in_our_folder(tmp_path: Path) -> None:
    archive = "/var/lib/gpufleet/program/gpufleet.pyz"
    host = machine(tmp_path, {archive: "program"})
    run(host)
    run(host, None, state="absent")
    assert host.files.names("/var/lib/gpufleet") == ("program",)


@pytest.mark.parametrize("number", range(1, 7))
def test_a_run_that_was_killed_is_made_good_by_the_next(tmp_path: Path, number: int) -> None:
    host = machine(tmp_path, {OURS: OLD})
    host.files.kill_at = number
    with pytest.raises(Killed):
        run(host)
    assert host.files.read(OURS) in (OLD, CURRENT)
    host.files.kill_at = None
    run(host)
    assert host.files.read(OURS) == CURRENT
    assert run(host, None).status == "in_sync"


# --- a package of the distribution ------------------------------------------------------------------------------------


def test_a_package_that_python_finds_is_right_and_told_with_its_release(tmp_path: Path) -> None:
    host = machine(tmp_path, {f"{SITE}/pynvml.py": CURRENT, f"{SITE}/nvidia_ml_py-12.535.133.egg-info/PKG-INFO": ""})
    outcome = run(host, None, source="package", permanent=False)
    assert (outcome.status, outcome.changes, host.files.log) == ("in_sync", (), [])
    path = f"{SITE}/pynvml.py"
    assert outcome.effective == {"path": path, "sha256": total(CURRENT), "version": "12.535.133"}


def test_a_package_that_is_not_there_yet_differs_and_check_mode_trusts_the_role_to_install_it(tmp_path: Path) -> None:
    outcome = run(machine(tmp_path, DEBIAN), None, source="package", check_mode=True)
    assert outcome.status == "drifted"
    assert outcome.changes[0].after == "from the package python3-pynvml"


def test_what_we_brought_before_makes_way_for_the_package(tmp_path: Path) -> None:
    host = machine(tmp_path, {f"{SITE}/pynvml.py": BINDING.format(answer="package")})
    run(host)
    outcome = run(host, None, source="package")
    assert outcome.changes[0].before == f"sha256 {total(CURRENT)[:12]}"
    assert not host.files.exists("/var/lib/gpufleet/python")
    assert run(host, None, source="package").status == "in_sync"


def test_a_package_in_the_home_of_a_user_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = "/root/.local/lib/python3.9/site-packages"
    monkeypatch.setattr("site.USER_SITE", home)
    search_first(monkeypatch, home, SITE)
    outcome = run(machine(tmp_path, {**DEBIAN, f"{home}/pynvml.py": CURRENT}), None, source="package", check_mode=True)
    assert outcome.status == "drifted"


# --- a folder of the node ---------------------------------------------------------------------------------------------


def test_python_imports_the_binding_of_a_folder_and_none_of_it_is_copied(tmp_path: Path) -> None:
    # Python itself reads the path, so that the folder must have the same name outside of the tree.
    folder = f"{tmp_path}/venv"
    host = machine(tmp_path, {f"{folder}/pynvml.py": BINDING.format(answer="folder")})
    Path(folder).mkdir()
    Path(folder, "pynvml.py").write_text(BINDING.format(answer="folder"))
    os.chmod(f"{host.files.root}{tmp_path}", 0o755)
    outcome = run(host, None, source="folder", folder=folder)
    assert outcome.changes[0].after == f"from {folder}"
    assert "NVIDIA" not in host.files.read(OURS)
    assert imported(host) == "folder"
    assert run(host, None, source="folder", folder=folder).status == "in_sync"


def test_from_a_folder_to_the_controller_leaves_the_folder_as_it_is(tmp_path: Path) -> None:
    theirs = "/opt/venv/pynvml.py"
    host = machine(tmp_path, {theirs: CURRENT + "# theirs\n"})
    run(host, None, source="folder", folder="/opt/venv/")
    run(host)
    assert (host.files.read(theirs), host.files.read(OURS)) == (CURRENT + "# theirs\n", CURRENT)


# --- the controller ---------------------------------------------------------------------------------------------------


def metadata(folder: Path, version: str, text: str) -> None:
    """What pip leaves beside the file: a RECORD with its sum."""
    place = folder / f"nvidia_ml_py-{version}.dist-info"
    place.mkdir(parents=True)
    encoded = urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    (place / "RECORD").write_text(f"example.py,sha256=x,1\npynvml.py,sha256={encoded},{len(text)}\n")


def test_the_controller_finds_what_its_python_would_import_and_its_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata(tmp_path, "12.1.1", OLD)
    metadata(tmp_path, "13.615.71", CURRENT)
    (tmp_path / "pynvml.py").write_text(CURRENT)
    monkeypatch.setattr(sys, "path", ["/nowhere", str(tmp_path)])
    binding_of.cache_clear()
    found = binding_of()
    binding_of.cache_clear()
    assert (found.content, found.version, found.sha256) == (CURRENT.encode(), "13.615.71", total(CURRENT))


def test_the_controller_takes_a_file_without_metadata_and_does_not_guess_its_release(tmp_path: Path) -> None:
    metadata(tmp_path, "12.1.1", OLD)
    (tmp_path / "pynvml.py").write_text(CURRENT)
    assert binding_of(str(tmp_path / "pynvml.py")).version == ""


def test_the_controller_reads_a_wheel(tmp_path: Path) -> None:
    file = tmp_path / "nvidia_ml_py-13.615.71-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("pynvml.py", CURRENT)
        archive.writestr("nvidia_ml_py-13.615.71.dist-info/METADATA", "")
    found = binding_of(str(file))
    assert (found.content, found.version) == (CURRENT.encode(), "13.615.71")


def test_the_binding_that_the_tests_use_will_do() -> None:
    pytest.importorskip("pynvml")
    binding_of.cache_clear()
    found = binding_of()
    assert found.version
    assert b"def nvmlInit" in found.content


def test_the_lookup_says_what_there_is_or_why_there_is_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ansible.plugins.lookup", reason="the controller's side needs Ansible's controller")
    from ansible_collections.gpufleet.node.plugins.lookup.nvml_binding import LookupModule

    good, missing = tmp_path / "pynvml.py", tmp_path / "missing.py"
    good.write_text(CURRENT)
    lookup = LookupModule(loader=None, templar=None)
    assert lookup.run([str(good)]) == [{"pynvml_sha256": total(CURRENT), "version": "", "lacking": ""}]
    assert lookup.run([str(missing)]) == [{"pynvml_sha256": "", "version": "", "lacking": f"there is no {missing}"}]
