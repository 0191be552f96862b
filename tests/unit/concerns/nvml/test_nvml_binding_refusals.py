# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input: what was given, the exact message that comes back, and that nothing changed."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import status_of
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvml.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvml.state import OURS
from ansible_collections.gpufleet.node.plugins.plugin_utils.binding import NoBinding, binding_of
from ansible_collections.gpufleet.node.tests.unit.concerns.nvml.binding_machine import (
    CURRENT,
    DEBIAN,
    OLD,
    SITE,
    machine,
    params,
    run,
    search_first,
    total,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, snapshot

ROCKY = {"/etc/os-release": 'NAME="Rocky Linux"\nPRETTY_NAME="Rocky Linux 9.4"\nID="rocky"\nID_LIKE="rhel fedora"\n'}
VENV = "/opt/venv/lib/python3.11/site-packages"


@pytest.fixture(autouse=True)
def search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    search_first(monkeypatch, SITE)


def as_it_is(host: FakeHost) -> None:
    pass


def open_to_all(path: str) -> Callable[[FakeHost], None]:
    return lambda host: os.chmod(host.files.locate(path), 0o777)


def not_root(host: FakeHost) -> None:
    host.may_change = False


def case(
    name: str,
    message: str,
    files: Optional[Dict[str, str]] = None,
    *,
    prepare: Callable[[FakeHost], None] = as_it_is,
    **options: Any,
) -> Any:
    return pytest.param(message, files or {}, prepare, options, id=name)


def foreseen(host: FakeHost, **options: Any) -> List[str]:
    """What check mode says that a run fails for."""
    try:
        return [str(error) for error in run(host, check_mode=True, **options).remaining.refusals]
    except GpuFleetError as error:
        return [str(error)]


@pytest.mark.parametrize(
    ("message", "files", "prepare", "options"),
    [
        case(
            "a controller that has none",
            "Cannot find nvidia-ml-py on the controller: its Python /usr/bin/python3 does not find it. Run pip install "
            "nvidia-ml-py there, or set nvml_file, or nvml_source: package.",
            lacking="its Python /usr/bin/python3 does not find it",
            pynvml_sha256="",
        ),
        case(
            "a sum that is none",
            "Cannot install nvidia-ml-py on pynvml_sha256: '1a2b' is not a SHA-256 checksum. Use the role nvml, or "
            "the lookup gpufleet.node.nvml_binding.",
            pynvml_sha256="1a2b",
        ),
        case(
            "a package without a name",
            "Cannot use nvidia-ml-py from package: '' is not a package name. Leave package out for python3-pynvml.",
            source="package",
            package="",
        ),
        case(
            "two packages",
            "Cannot use nvidia-ml-py from package: 'a b' is not a package name. Leave package out for python3-pynvml.",
            source="package",
            package="a b",
        ),
        case(
            "a folder without a name",
            "Cannot use nvidia-ml-py from folder: it is empty, and must be an absolute path.",
            source="folder",
        ),
        case(
            "a relative folder",
            "Cannot use nvidia-ml-py from folder: it is venv/lib, and must be an absolute path.",
            source="folder",
            folder="venv/lib",
        ),
        *(
            case(
                f"a folder of the kernel, {folder!r}",
                f"Cannot use nvidia-ml-py from folder: it is {folder!r}, where nothing can be stored. Name a folder "
                "or file on a disk.",
                {f"/{folder.lstrip('/')}/pynvml.py": CURRENT},
                source="folder",
                folder=folder,
            )
            for folder in ("/proc/1/root/opt", "/sys", "//dev/shm", "/./dev/shm")
        ),
        case(
            "a folder that leads back",
            "Cannot use nvidia-ml-py from folder: it is /opt/../tmp, and must not lead back by ... Name the folder "
            "itself.",
            {"/tmp/pynvml.py": CURRENT},
            source="folder",
            folder="/opt/../tmp",
        ),
        case(
            "a folder with a NUL",
            "Cannot use nvidia-ml-py from folder: it is '/opt/\\x00', and a path cannot contain a NUL. Leave it out.",
            source="folder",
            folder="/opt/\0",
        ),
        case(
            "a folder for another source",
            "Cannot use nvidia-ml-py from folder: it is for source: folder only (found controller). Set source: "
            "folder, or leave folder out.",
            folder=VENV,
        ),
        case(
            "a folder that has none",
            f"Cannot use nvidia-ml-py from {VENV}: there is no pynvml.py in it. Install nvidia-ml-py there, or name "
            "the folder site-packages that has it.",
            source="folder",
            folder=VENV,
        ),
        case(
            "a folder with one that is too old",
            f"Cannot use nvidia-ml-py from {VENV}/pynvml.py: it is older than 11.515, and lacks calls that MIG needs "
            "(found 11.495.46). Repair or remove it, or set source: controller.",
            {f"{VENV}/pynvml.py": OLD, f"{VENV}/nvidia_ml_py-11.495.46.dist-info/METADATA": ""},
            source="folder",
            folder=VENV,
        ),
        case(
            "a file of that name that is something else",
            f"Cannot use nvidia-ml-py from {VENV}/pynvml.py: it is not nvidia-ml-py. Repair or remove it, or set "
            "source: controller.",
            {f"{VENV}/pynvml.py": "import nvml\n"},
            source="folder",
            folder=VENV,
        ),
        case(
            "a folder that others may change",
            f"Cannot use nvidia-ml-py from {VENV}/pynvml.py: /opt/venv is world-writable, and root would run it. "
            "Repair or remove it, or set source: controller.",
            {f"{VENV}/pynvml.py": CURRENT},
            prepare=open_to_all("/opt/venv"),
            source="folder",
            folder=VENV,
        ),
        case(
            "the discontinued package",
            f"Cannot use the package python3-pynvml in {SITE}/pynvml: it is the discontinued package pynvml, which "
            "hides nvidia-ml-py. Repair or remove it, or set source: controller.",
            {f"{SITE}/pynvml/__init__.py": "from .nvml import *\n", f"{SITE}/pynvml.py": CURRENT},
            source="package",
        ),
        case(
            "a package that is too old",
            f"Cannot use the package python3-pynvml in {SITE}/pynvml.py: it is older than 11.515, and lacks calls that "
            "MIG needs (found 7.352.0). Repair or remove it, or set source: controller.",
            {**DEBIAN, f"{SITE}/pynvml.py": OLD, f"{SITE}/nvidia_ml_py-7.352.0.egg-info": ""},
            source="package",
        ),
        case(
            "a distribution that has no package",
            "Cannot use the package python3-pynvml: only Debian and Ubuntu package it (found Rocky Linux 9.4). Set "
            "source: controller, or name a package of your own in package.",
            ROCKY,
            source="package",
        ),
        case(
            "a package that nobody installed",
            f"Cannot find nvidia-ml-py in {sys.executable}: this Python does not find it (wanted from the package "
            "python3-pynvml). Install the package, as the role nvml does; the Python of a virtual environment does "
            "not see the distribution's packages, so set source: controller there.",
            DEBIAN,
            source="package",
            permanent=False,
        ),
        case(
            "without root",
            "Cannot change nvml: not running as root. Run the task with become: true.",
            prepare=not_root,
        ),
    ],
)
def test_a_refusal_says_what_was_found_and_what_to_do(
    tmp_path: Path,
    message: str,
    files: Dict[str, str],
    prepare: Callable[[FakeHost], None],
    options: Dict[str, Any],
) -> None:
    host = machine(tmp_path, files)
    prepare(host)
    before = snapshot(tmp_path / "node", leave_out=("run", "var"))
    # To look needs no rights.
    assert not host.may_change or foreseen(host, **options) == [message]
    with pytest.raises(GpuFleetError) as raised:
        run(host, **options)
    assert str(raised.value) == message
    assert snapshot(tmp_path / "node", leave_out=("run", "var")) == before


@pytest.mark.parametrize(
    ("files", "options"),
    [({}, {"lacking": "it has none"}), (ROCKY, {"source": "package"}), ({}, {"source": "folder", "folder": VENV})],
)
def test_a_look_refuses_what_a_run_would_as_a_wrong_declaration(
    tmp_path: Path, files: Dict[str, str], options: Dict[str, Any]
) -> None:
    with pytest.raises(DeclarationError) as raised:
        assess(CONCERN, params(**options), machine(tmp_path, files))
    assert status_of(raised.value) == "invalid"


def test_a_package_that_is_not_there_leaves_the_node_with_what_it_has(tmp_path: Path) -> None:
    host = machine(tmp_path, DEBIAN)
    run(host)
    before = snapshot(tmp_path / "node")
    with pytest.raises(GpuFleetError, match="this Python does not find it"):
        run(host, None, source="package")
    assert snapshot(tmp_path / "node") == before


def test_absent_asks_neither_the_controller_nor_the_distribution(tmp_path: Path) -> None:
    host = machine(tmp_path, ROCKY)
    assert run(host, None, state="absent", lacking="it has none", pynvml_sha256="").status == "in_sync"
    assert run(host, None, state="absent", source="package").status == "in_sync"


def test_a_package_of_ones_own_is_believed_in_on_any_distribution(tmp_path: Path) -> None:
    outcome = run(machine(tmp_path, ROCKY), None, source="package", package="site-nvml", check_mode=True)
    assert outcome.changes[0].after == "from the package site-nvml"


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (
            OLD,
            "Cannot install nvidia-ml-py in {path}: the received file differs from the one that was sent "
            f"(found {total(OLD)}, wanted {total(CURRENT)}).",
        ),
        (None, "Cannot install nvidia-ml-py: the task did not send the file."),
    ],
)
def test_a_file_that_did_not_arrive_is_not_installed(tmp_path: Path, sent: Optional[str], message: str) -> None:
    host = machine(tmp_path)
    with pytest.raises(GpuFleetError) as raised:
        run(host, sent)
    assert str(raised.value) == message.format(path=f"{host.files.root}/../sent-pynvml.py")
    assert not host.files.exists(OURS)
    assert not host.files.exists("/etc/gpufleet/declared.d/nvml.json")


def test_a_python_that_cannot_compile_the_file_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path)
    host.commands.programs[os.path.basename(sys.executable)] = lambda argv: Completed(1, "", "SyntaxError: no\n")
    with pytest.raises(GpuFleetError) as raised:
        run(host)
    assert str(raised.value) == (
        f"Cannot compile nvidia-ml-py with {sys.executable} -I -m py_compile {OURS}: exit status 1: SyntaxError: no."
    )


def test_a_folder_of_ours_that_others_may_write_is_named_and_not_called_right(tmp_path: Path) -> None:
    folder = os.path.dirname(OURS)
    host = machine(tmp_path, {f"{folder}/README": ""})
    open_to_all(folder)(host)
    before = snapshot(tmp_path / "node")
    predicted = foreseen(host)
    with pytest.raises(GpuFleetError) as raised:
        run(host)
    assert predicted == [str(raised.value)]
    assert f"{folder} is world-writable, and root would run it" in str(raised.value)
    run(host, None, state="absent")
    assert snapshot(tmp_path / "node") == before


# --- the controller ---------------------------------------------------------------------------------------------------


def wheel(path: Path, *members: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in members:
            archive.writestr(name, OLD)


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("missing.py", None, "there is no {path}"),
        ("missing.whl", None, "{path} cannot be read: No such file or directory"),
        ("pynvml.py", OLD, "{path} cannot be used: it is older than 11.515, and lacks calls that MIG needs"),
        ("pynvml.py", "import nvml\n", "{path} cannot be used: it is not nvidia-ml-py"),
        ("", None, "{path} cannot be read: Is a directory"),
        ("broken.whl", "text", "{path} cannot be read: File is not a zip file"),
    ],
)
def test_a_file_of_the_controller_that_will_not_do_is_named(
    tmp_path: Path, name: str, text: Optional[str], cause: str
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(NoBinding) as raised:
        binding_of(str(path))
    assert str(raised.value) == cause.format(path=path)


def test_a_wheel_of_something_else_or_of_an_old_release_is_named(tmp_path: Path) -> None:
    other, old = tmp_path / "pynvml-12.0.0-py3-none-any.whl", tmp_path / "nvidia_ml_py-11.495.46-py3-none-any.whl"
    wheel(other, "pynvml_utils/smi.py")
    wheel(old, "pynvml.py")
    with pytest.raises(NoBinding) as raised:
        binding_of(str(other))
    assert str(raised.value) == f"{other} holds no pynvml.py"
    with pytest.raises(NoBinding) as raised:
        binding_of(str(old))
    assert str(raised.value) == f"{old} cannot be used: it is older than 11.515, and lacks calls that MIG needs"


def test_a_controller_with_the_discontinued_package_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml").mkdir()
    (tmp_path / "pynvml" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    binding_of.cache_clear()
    with pytest.raises(NoBinding, match="it is the discontinued package pynvml, which hides nvidia-ml-py"):
        binding_of()


def test_the_action_refuses_in_the_same_words_as_the_look(tmp_path: Path) -> None:
    pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller")
    from ansible_collections.gpufleet.node.plugins.action.nvml import ActionModule

    action = ActionModule.__new__(ActionModule)
    missing = tmp_path / "pynvml.py"
    with pytest.raises(ValueError, match=r"^Cannot find") as raised:
        action.content({"file": str(missing)})
    assert str(raised.value) == (
        f"Cannot find nvidia-ml-py on the controller: there is no {missing}. Run pip install nvidia-ml-py there, or "
        "set nvml_file, or nvml_source: package."
    )
    assert action.content({"source": "package"}) is None
    assert action.content({"state": "absent", "file": str(missing)}) is None
    missing.write_text(CURRENT)
    arguments: Dict[str, Any] = {"file": str(missing)}
    assert action.content(arguments) == CURRENT.encode()
    assert arguments["version"] == ""
