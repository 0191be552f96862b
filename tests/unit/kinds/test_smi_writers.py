# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Scope
from ansible_collections.gpufleet.node.plugins.module_utils._kinds import smi_writers
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost

TREES = sorted((Path(nodetree.__file__).parent / "stock").glob("*.tree"))
RC_LOCAL = "etc/rc.local"


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: str(tree.stem))
def test_a_stock_system_sets_no_gpu(tree: Path, tmp_path: Path) -> None:
    root = nodetree.expand(nodetree.parse(tree.read_text(encoding="utf-8")), tmp_path / "root")
    files = RecordedHost(str(root)).files
    assert smi_writers.read(files, Scope()) == ()
    # The same system with one line is not without a finding.
    script = Path(root, RC_LOCAL)
    script.parent.mkdir(exist_ok=True)
    script.write_text("#!/bin/sh\nnvidia-smi -pm 0\n")
    script.chmod(0o755)
    (found,) = smi_writers.read(files, Scope())
    assert (found.owner, found.path, found.line, found.value) == ("rc.local", "/etc/rc.local", 2, "0")
    assert smi_writers.read(files, Scope(restoring=True)) == ()
