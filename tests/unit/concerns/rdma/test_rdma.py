# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is its own of ``rdma``. The contract of all concerns is in tests/unit/contract."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[4]
WRITTEN = (
    "plugins/modules/rdma.py",
    "plugins/module_utils/concerns/rdma",
    "roles/rdma",
    "changelogs/fragments/rdma.yml",
    "tests/unit/concerns/rdma/rdma_contract.py",
)


@pytest.mark.parametrize("place", WRITTEN)
def test_nothing_is_left_to_write(place: str) -> None:
    path = ROOT / place
    files = [path] if path.is_file() else sorted(path.rglob("*.*"))
    assert [file.name for file in files if file.suffix != ".pyc" and "TODO" in file.read_text(encoding="utf-8")] == []


def test_the_readme_of_the_role_has_an_example() -> None:
    text = (ROOT / "roles" / "rdma" / "README.md").read_text(encoding="utf-8")
    example = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert example, "show in roles/rdma/README.md how the role is used"


def test_what_no_machine_could_have_is_refused_with_the_reason() -> None:
    pytest.fail("write: each value that no machine could have, and the cause that the message names")


def test_what_this_machine_cannot_have_is_refused_or_unmanaged() -> None:
    pytest.fail("write: a machine that lacks something, with strict: true and without")


def test_the_next_boot_is_what_the_program_that_brings_it_makes_of_all_files() -> None:
    pytest.fail("write: the precedence of the files, as the program itself reads them, case by case")


def test_another_owner_is_named_with_file_and_line() -> None:
    pytest.fail("write: one that wins, and is refused; one that loses, and is in conflicts")


def test_absent_restores_what_others_say() -> None:
    pytest.fail("write: values of others before us, which are back in effect and at the next boot")
