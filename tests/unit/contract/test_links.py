# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Symbolic links in place of managed files: every concern names them and what they point to, and changes nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import targets
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, OwnedByAnother
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import (
    ABSENT,
    CONCERNS,
    OTHER,
    PRESENT,
    Node,
    Nodes,
    difference,
)

pytestmark = pytest.mark.once
pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)

ELSEWHERE = "/srv/kept-by-another-program"


def kept_files(node: Node) -> List[str]:
    """Declare it, and return the files of the system in which it keeps what it set: drop-ins, rules, units."""
    before = node.everything()[0]
    node.present()
    changed = difference(node.everything()[0], before)
    # Where systemctl enables a unit it makes links.
    paths = [f"/{path}" for path, _then, now in changed if now is not None and now[0] not in ("folder", "link")]
    return [path for path in paths if targets.is_managed(path)]


@pytest.mark.parametrize("concern", CONCERNS)
@pytest.mark.parametrize("points_to", [targets.MASK, ELSEWHERE])
def test_a_link_in_place_of_a_managed_file_is_named_and_its_target_stays(
    nodes: Nodes, tmp_path: Path, concern: str, points_to: str
) -> None:
    node = nodes(concern)
    root = Path(node.host.files.root)
    aside = tmp_path / "aside"
    for path in kept_files(node):
        place = root / path.lstrip("/")
        # The very text that is declared: what another program keeps is not in sync for that.
        text = "" if points_to == targets.MASK else place.read_text()
        node.host.files.replace(points_to, text)
        place.rename(aside)
        place.symlink_to(os.path.relpath(points_to, os.path.dirname(path)))
        before = node.everything()
        for verb in (PRESENT, OTHER):
            look = node.look(verb)
            assert look["status"] != "in_sync", path
            assert "msg" in look, (path, verb)
            assert os.path.basename(path) in look["msg"]
            assert points_to in look["msg"] or points_to == targets.MASK
            for check_mode in (True, False):
                with pytest.raises(GpuFleetError) as refusal:
                    node.attempt(verb, check_mode=check_mode)
                assert str(refusal.value) == look["msg"]
        assert node.everything() == before
        # Of a file that is masked there may be nothing to restore.
        error = node.outcome(ABSENT).error
        assert error is None or str(error).startswith(("Cannot remove", "Cannot write", "Cannot restore")), error
        assert place.is_symlink()
        assert node.host.files.read(points_to) == text
        place.unlink()
        aside.rename(place)
        node.present()
    assert node.look(PRESENT)["status"] in ("in_sync", "pending")


@pytest.mark.parametrize("concern", ["kernel_modules", "hugepages", "numa_irq_affinity"])
def test_all_links_in_place_of_managed_files_are_named_in_one_error(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    paths = kept_files(node)
    assert len(paths) > 1
    for path in paths:
        place = Path(node.host.files.root, path.lstrip("/"))
        place.unlink()
        place.symlink_to(targets.MASK)
    error = node.outcome(PRESENT).error
    assert isinstance(error, OwnedByAnother)
    assert [path for path in paths if path not in str(error)] == []
    assert node.look(PRESENT)["msg"] == str(error)


def test_a_pipe_in_place_of_a_file_is_refused_for_writing_and_for_removing(nodes: Nodes) -> None:
    node = nodes("kernel_modules")
    (path, *_others) = kept_files(node)
    place = node.host.files.locate(path)
    os.unlink(place)
    os.mkfifo(place)
    for verb in (PRESENT, ABSENT):
        with pytest.raises(OwnedByAnother, match="not a regular file"):
            node.attempt(verb)
    with pytest.raises(OSError, match="not a regular file"):
        node.host.files.replace(path, "text")
    with pytest.raises(OSError, match="not a regular file"):
        node.host.files.remove(path)


def test_a_foreign_file_may_be_a_link_to_a_file_and_to_nothing_else(nodes: Nodes) -> None:
    node = nodes("job_environment")
    files = node.host.files
    files.replace(ELSEWHERE, "")
    link = "/etc/environment"
    place = Path(files.root, link.lstrip("/"))
    place.unlink(missing_ok=True)
    place.symlink_to(ELSEWHERE)
    files.replace(link, "A=1\n")
    assert (os.readlink(place), files.read(ELSEWHERE)) == (ELSEWHERE, "A=1\n")
    os.unlink(files.locate(ELSEWHERE))
    os.mkfifo(files.locate(ELSEWHERE))
    with pytest.raises(OSError, match=f"it points to {ELSEWHERE}, which is not a regular file"):
        files.replace(link, "A=2\n")


@pytest.mark.parametrize("path", ["/etc/gpufleet/declared.d/hugepages.json", "/run/gpufleet/note.json"])
def test_a_link_in_our_own_folders_is_replaced_by_the_file_and_not_written_through(nodes: Nodes, path: str) -> None:
    files = nodes("hugepages").host.files
    files.replace(ELSEWHERE, "kept")
    place = files.locate(path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    for write in (lambda: files.replace(path, "ours"), lambda: files.remove(path)):
        os.symlink(files.locate(ELSEWHERE), place)
        os.chmod(files.locate(ELSEWHERE), 0o666)
        write()
        assert not os.path.islink(place)
        assert files.read(ELSEWHERE) == "kept"
        assert files.read_optional(path) in ("ours", None)
        if files.exists(path):
            assert stat.S_IMODE(os.stat(place).st_mode) == 0o644
            files.remove(path)


@pytest.mark.parametrize("concern", ["hugepages", "kernel_tunables"])
def test_a_link_that_only_the_next_boot_needs_does_not_matter_now(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    root = Path(node.host.files.root)
    for path in kept_files(node):
        place = root / path.lstrip("/")
        node.host.files.replace(ELSEWHERE, place.read_text())
        place.unlink()
        place.symlink_to(os.path.relpath(ELSEWHERE, os.path.dirname(path)))
        with pytest.raises(OwnedByAnother):
            node.attempt(PRESENT)
        outcome = converge(node.concern, {**node.declared(PRESENT), "permanent": False}, node.host, check_mode=True)
        assert outcome.error is None
