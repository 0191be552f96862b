# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "scale"))

from scale import AUDIT, EMPTY, Sample, Setting, sentences, setting_of


def test_a_setting_is_read_and_called_by_what_is_not_usual() -> None:
    assert setting_of("forks=5,strategy=free") == Setting(forks=5, strategy="free")
    assert setting_of("forks=5,slices=4").name == "forks=5,slices=4"
    assert setting_of("forks=25").name == ""


def test_slices_count_together_and_are_held_against_the_empty_module() -> None:
    samples = [Sample(EMPTY, "slices=2", 10, 1.0, 1.0, 1.0), Sample(EMPTY, "slices=2", 10, 3.0, 1.0, 1.0)]
    samples += [Sample(AUDIT, "slices=2", 10, 2.0, 1.0, 1.0), Sample(AUDIT, "slices=2", 10, 2.5, 1.0, 1.0)]
    assert list(sentences(samples)) == [
        "audit slices=2: 0.89 of the empty module's hosts per second and core, goal 0.8: met"
    ]
    slow = [*samples, Sample(AUDIT, "slices=2", 0, 4.0, 1.0, 1.0)]
    assert next(iter(sentences(slow))).endswith("not met")
