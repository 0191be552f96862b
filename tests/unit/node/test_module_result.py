# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the module of a concern returns to Ansible."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._node import module
from ansible_collections.gpufleet.node.tests.unit.core.tunables_concern import TUNABLES, Elsewhere
from ansible_collections.gpufleet.node.tests.unit.support import build

testing = pytest.importorskip("ansible.module_utils.testing", reason="ansible is not importable here")


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("diff", [True, False])
def test_a_module_shows_what_changes_in_foreign_files_in_diff_mode(
    *, check_mode: bool, diff: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = build(tmp_path, dict.fromkeys(TUNABLES, "1\n"))
    monkeypatch.setattr(module, "host_of", lambda _module: host)
    arguments = {"value": "7", "_ansible_check_mode": check_mode, "_ansible_diff": diff}
    with testing.patch_module_args(arguments), pytest.raises(SystemExit):
        module.run(Elsewhere())
    result = json.loads(capsys.readouterr().out)
    assert result["changed"] is True
    assert result.get("diff", {}).get("prepared", "").count("+++ /etc/first\n") == diff
