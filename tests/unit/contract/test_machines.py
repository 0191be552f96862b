# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every concern of the registry describes the machine on which it keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import (
    ABSENT,
    CONCERNS,
    OTHER,
    PRESENT,
    Nodes,
    described,
)

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)


@pytest.mark.parametrize("concern", CONCERNS)
def test_a_concern_has_a_machine_that_each_of_its_declarations_changes(nodes: Nodes, concern: str) -> None:
    module = Path(described(concern).__code__.co_filename).resolve()
    assert module == Path(__file__).parents[1] / "concerns" / concern / f"{concern}_contract.py"
    node = nodes(concern)
    assert node.check(ABSENT).changes == ()
    # More than the file that says what was declared.
    assert {change.setting for change in node.check(PRESENT).changes} > {"declaration"}
    node.present()
    assert node.check(OTHER).changes != ()
    node.absent()


def test_a_concern_that_describes_none_is_told_what_to_write() -> None:
    with pytest.raises(
        pytest.fail.Exception, match=r"write contract_node\(make: Make\) -> Node in tests/unit/concerns/"
    ):
        described("no_such_concern")
