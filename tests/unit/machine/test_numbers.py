# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook
from ansible_collections.gpufleet.node.plugins.module_utils._machine.numbers import read_number
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedFiles
from ansible_collections.gpufleet.node.tests.unit.support import build

PATH = "/sys/class/net/eth0/mtu"


@pytest.mark.parametrize("text", ["", "\n", "max", "1.5", "0x10", "12 34", "\x1b[2J", "9" * 5000])
def test_any_other_text_names_the_file(tmp_path: Path, text: str) -> None:
    build(tmp_path, {PATH: text})
    with pytest.raises(CannotLook, match="is not a whole number") as error:
        read_number(RecordedFiles(str(tmp_path)), PATH)
    assert error.value.object == PATH
    assert len(error.value.cause) < 150


def test_a_number_is_read_and_a_file_that_is_not_there_has_none(tmp_path: Path) -> None:
    build(tmp_path, {PATH: "-1\n"})
    files = RecordedFiles(str(tmp_path))
    assert (read_number(files, PATH), read_number(files, "/sys/none")) == (-1, None)
