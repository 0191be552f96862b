# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Systems as their distribution installs them: nothing that is enabled there sets a managed value."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux import boot_writers
from ansible_collections.gpufleet.node.plugins.module_utils._linux.shell_writes import COMMANDS
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost

TREES = sorted((Path(nodetree.__file__).parent / "stock").glob("*.tree"))
# nvme-cli asks for a discovery of controllers, which is an action and no value.
ACTIONS = ("/sys/class/fc/fc_udev_device/nvme_discovery",)


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: str(tree.stem))
def test_a_stock_system_has_no_finding(tree: Path, tmp_path: Path) -> None:
    root = nodetree.expand(nodetree.parse(tree.read_text(encoding="utf-8")), tmp_path / "root")
    found = boot_writers.read(RecordedHost(str(root)).files)
    assert [one for one in found if one.target not in (*ACTIONS, *COMMANDS)] == []


def test_there_are_systems_with_services_that_run_scripts() -> None:
    assert len(TREES) >= 7
    assert any("ExecStart=/bin/sh" in tree.read_text(encoding="utf-8") for tree in TREES)
