# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that no program should write and that occur: a look has an answer or an error with a cause."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Dict, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import ABSENT, CONCERNS, PRESENT, Nodes

pytestmark = pytest.mark.once
pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)

# Put behind the text that is there: how a unit in Latin-1, and a file after a crash or of a broken template, end.
ODD: Dict[str, bytes] = {
    "Latin-1": b'\n# caf\xe9\n[Service]\nEnvironment=A=caf\xe9 "B=\xff\\xff"\nExecStart=/caf\xe9 --a=\xe9\n',
    "NUL": b"\n[Service]\nExecStart=/a\0b --config=/c\0d\nEnvironmentFile=/e\0f\n",
}
FOLDERS = ("etc", "usr/lib/systemd", "lib/systemd", "run/systemd", "proc/cmdline")


@pytest.mark.parametrize("concern", CONCERNS)
@pytest.mark.parametrize("odd", ODD)
def test_bytes_that_are_no_text_are_no_traceback(nodes: Nodes, concern: str, odd: str) -> None:
    node = nodes(concern)
    # What others wrote, and what we wrote ourselves.
    for verbs in ((PRESENT, ABSENT), (ABSENT, PRESENT)):
        saved = _spoil(Path(node.host.files.root), ODD[odd])
        for verb in verbs:
            # An error is an answer too, with what was found in a form that can be sent to the controller.
            try:
                outcome = node.attempt(verb, check_mode=True)
            except GpuFleetError as error:
                outcome = refused(error)
            json.dumps(outcome.as_dict())
        for place, (content, modified) in saved.items():
            place.write_bytes(content)
            # Else it depends on the machine's speed whether a daemon counts as older than its file.
            os.utime(place, ns=(modified, modified))
        node.present()


def _spoil(root: Path, odd: bytes) -> Dict[Path, Tuple[bytes, int]]:
    """Put these bytes behind all files of configuration, and return what they held, and since when."""
    places = [path for folder in FOLDERS for path in (root / folder, *(root / folder).rglob("*"))]
    files = [place for place in places if place.is_file() and not place.is_symlink()]
    found = {place: (place.read_bytes(), place.stat().st_mtime_ns) for place in files}
    for place, (content, _modified) in found.items():
        place.write_bytes(content + odd)
    return found
