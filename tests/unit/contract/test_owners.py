# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who may write what root believes: owners and modes, whatever the umask of a run was."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest
from ansible_collections.gpufleet.node.node.declarations import load
from ansible_collections.gpufleet.node.node.standard_host import StandardHost
from ansible_collections.gpufleet.node.plugins.module_utils._core import baseline
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, OwnedByAnother
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import ARCHIVE, COMPILED
from ansible_collections.gpufleet.node.plugins.module_utils._machine.files import LocalFiles
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.node_tools import apply, owners, spec
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.node_tools.plan import Protect
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import (
    CONCERNS,
    Node,
    Nodes,
    difference,
    failure_of,
)

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)

DECLARED = "/etc/gpufleet/declared.d"
NOBODY = 65534
UMASKS = (0o000, 0o027, 0o077)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(params=UMASKS, ids=lambda umask: f"{umask:03o}")
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    return request.param


def modes(node: Node) -> Any:
    """The modes of all that lies in the tree, but what is cleared at boot."""
    root = Path(node.host.files.root)
    paths = [
        path for path in root.rglob("*") if not path.is_symlink() and "run" not in path.relative_to(root).parts[:1]
    ]
    return {str(path.relative_to(root)): oct(stat.S_IMODE(path.stat().st_mode)) for path in paths}


def test_what_is_not_there_yet_is_open_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    assert owners.unsafe(RecordedHost(str(tmp_path)).files) == ""
    (tmp_path / "var").chmod(0o777)
    assert owners.unsafe(RecordedHost(str(tmp_path)).files).startswith("/var is world-writable,")


@pytest.mark.once
@pytest.mark.parametrize("concern", CONCERNS)
def test_a_run_leaves_the_same_modes_whatever_its_umask_is(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    untouched = node.found()
    node.present()
    usual = modes(node)
    node.absent()
    for umask in UMASKS:
        former = os.umask(umask)
        try:
            node.present()
            assert difference(modes(node), usual) == [], f"{umask:03o}"
            node.absent()
        finally:
            os.umask(former)
        assert node.differs_from(untouched) == [], f"{umask:03o}"


def test_programs_that_we_run_do_not_get_the_umask_of_our_caller(tmp_path: Path, umask: int) -> None:
    former = os.umask(umask)
    try:
        StandardHost().commands.run(["mkdir", str(tmp_path / "made")])
    finally:
        os.umask(former)
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("path", "mode", "wanted"),
    [
        ("/etc/gpufleet", 0o777, "0755 0:0"),
        ("/etc/gpufleet/declared.d", 0o700, "0755 0:0"),
        ("/var/lib/gpufleet/program", 0o700, "0755 0:0"),
        ("/var/lib/gpufleet", 0o1777, "0755 0:0"),
        (f"{DECLARED}/node_tools.json", 0o666, "0644 0:0"),
        (ARCHIVE, 0o600, "0644 0:0"),
        ("/usr/local/sbin/gpufleet", 0o777, "0755 0:0"),
        ("/var/lib/gpufleet/baseline/node_tools.json", 0o646, "0600 0:0"),
    ],
)
def test_a_wrong_mode_is_named_with_what_was_found_and_is_mended(
    nodes: Nodes, path: str, mode: int, wanted: str
) -> None:
    node = nodes("node_tools")
    node.present()
    real = node.host.files.locate(path)
    os.chmod(real, mode)
    if path == "/var/lib/gpufleet" or path.startswith("/var/lib/gpufleet/baseline"):
        with pytest.raises(CannotLook, match="is world-writable"):
            baseline.load(node.host.files, "node_tools")
    outcome = node.present()
    rows = [(c.object, c.setting, c.before, c.after) for c in outcome.changes]
    assert rows == [(path, "mode and owner", f"{mode:04o} {os.geteuid()}:{os.getegid()}", wanted)]
    assert f"{stat.S_IMODE(os.stat(real).st_mode):04o}" == wanted.split()[0]
    assert node.present().changes == ()


@pytest.mark.parametrize(
    ("place", "mode"),
    [
        ("", 0o700),
        ("", 0o775),
        ("/*", 0o700),
        ("/*", 0o775),
        ("/*/look", 0o600),
        ("/*/look", 0o755),
        ("/*/look", 0o777),
        ("/*/look", 0o4755),
        ("/*/bytecode", 0o600),
        ("/*/bytecode", 0o664),
    ],
)
def test_the_compiled_program_is_made_again_where_the_controller_would_not_run_it(
    nodes: Nodes, place: str, mode: int
) -> None:
    node = nodes("node_tools")
    node.present()
    compiled = Path(node.host.files.locate(COMPILED))
    (path,) = compiled.parent.glob(f"compiled{place}")
    wanted = stat.S_IMODE(path.stat().st_mode)
    path.chmod(mode)
    changes = [(change.object, change.setting, change.after) for change in node.present().changes]
    seen = COMPILED + str(path)[len(str(compiled)) :]
    assert changes == [(seen, "mode and owner", f"{wanted:04o} 0:0"), (COMPILED, "bytecode", "intact")]
    assert stat.S_IMODE(path.stat().st_mode) == wanted
    assert node.present().changes == ()


class FilesBelow(LocalFiles):
    """The real files below a folder, whose links lead where the kernel says."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def locate(self, path: str) -> str:
        return f"{self.root}{path}"


@pytest.mark.parametrize(("link", "refusal"), [(os.symlink, "symbolic link"), (os.link, "Too many links")])
def test_a_link_put_in_the_place_of_what_was_seen_changes_nothing_else(tmp_path: Path, link: Any, refusal: str) -> None:
    secret = tmp_path / "shadow"
    secret.write_text("root:*:", encoding="utf-8")
    secret.chmod(0o600)
    place = tmp_path / f"{DECLARED}/hugepages.json".lstrip("/")
    place.parent.mkdir(parents=True)
    link(secret, place)
    host = RecordedHost(str(tmp_path))
    host.files = FilesBelow(tmp_path)  # type: ignore[assignment]
    seen = owners.Exposed(f"{DECLARED}/hugepages.json", "0666 0:0", "0644 0:0", 0o644, foreign=False, written=True)
    with pytest.raises(OSError, match=refusal):
        apply.protect(Protect((seen,)), host)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_in_our_folders_is_taken_away_and_what_it_points_to_is_not_touched(nodes: Nodes, link: Any) -> None:
    node = nodes("node_tools")
    node.present()
    files = node.host.files
    files.replace("/root/secret.json", '{"schema": 1}')
    secret, stranger = files.locate("/root/secret.json"), f"{DECLARED}/gpu_settings.json"
    os.chmod(secret, 0o600)
    link(secret, files.locate(DECLARED) + "/gpu_settings.json")
    if link is os.symlink:
        broken = load(files, REGISTRY).broken
        assert f"{stranger} is a link, and root would act on it" in str(broken["gpu_settings"])
    assert [change.object for change in node.present().changes] == [stranger]
    assert not files.exists(stranger)
    assert (stat.S_IMODE(os.stat(secret).st_mode), files.read("/root/secret.json")) == (0o600, '{"schema": 1}')


def test_a_folder_of_ours_that_an_administrator_moved_is_no_link_of_a_stranger(nodes: Nodes) -> None:
    node = nodes("hugepages")
    moved = node.host.files.locate("/srv/gpufleet")
    os.makedirs(moved)
    os.makedirs(node.host.files.locate("/etc"), exist_ok=True)
    os.symlink("/srv/gpufleet", node.host.files.locate("/etc") + "/gpufleet")
    node.present()
    assert load(node.host.files, REGISTRY).broken == {}


@as_root
def test_a_declaration_of_nobody_is_refused_at_boot_and_taken_away_by_the_next_run(nodes: Nodes) -> None:
    node = nodes("node_tools")
    node.present()
    stranger = f"{DECLARED}/gpu_settings.json"
    node.host.files.replace(stranger, '{"schema": 1}')
    os.chown(node.host.files.locate(stranger), NOBODY, NOBODY)
    broken = load(node.host.files, REGISTRY).broken
    assert list(broken) == ["gpu_settings"]
    assert f"{stranger} is owned by the user {NOBODY}, and root would act on it" in str(broken["gpu_settings"])
    assert [change.object for change in node.present().changes] == [stranger]
    assert not node.host.files.exists(stranger)
    assert load(node.host.files, REGISTRY).broken == {}


@as_root
def test_what_a_group_may_write_is_refused_unless_it_is_that_of_root(nodes: Nodes) -> None:
    node = nodes("node_tools")
    node.present()
    folder = node.host.files.locate("/etc/gpufleet")
    os.chmod(folder, 0o775)
    os.chown(folder, 0, NOBODY)
    (error,) = load(node.host.files, REGISTRY).broken.values()
    assert f"/etc/gpufleet is writable by the group {NOBODY}, and root would act on it" in str(error)
    node.present()
    assert load(node.host.files, REGISTRY).broken == {}
    # The way to ours may belong to a group of the administrator.
    above = node.host.files.locate("/var/lib")
    os.chmod(above, 0o2775)
    os.chown(above, 0, 50)
    assert node.present().changes == ()


def test_a_way_to_our_folders_that_everybody_may_write_is_refused_before_any_change(nodes: Nodes) -> None:
    node = nodes("node_tools")
    os.chmod(node.host.files.locate("/var/lib"), 0o777)
    untouched = node.found()
    failure = failure_of(node.present)
    assert isinstance(failure, OwnedByAnother)
    assert "/var/lib is world-writable, and others could replace what is below it" in str(failure)
    assert node.differs_from(untouched) == []


@pytest.mark.parametrize("loose", ["archive", "folder"])
def test_the_command_runs_no_archive_that_others_than_root_may_write(tmp_path: Path, loose: str) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    program = folder / "gpufleet.pyz"
    program.write_text("raise SystemExit(print('mine'))\n")
    text = spec.launcher_text(sys.executable).replace(ARCHIVE, str(program))
    command = ["/bin/sh", "-c", text, "gpufleet", "boot"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "mine\n"
    place = program if loose == "archive" else folder
    place.chmod(0o777)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (64, "")
    assert (
        f"Cannot run {program}: {place} is writable by users other than root. Run the role node_tools." in done.stderr
    )
