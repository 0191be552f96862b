# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings of engines: values, of which results and records have the text."""

from __future__ import annotations

from typing import List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    BIND_PATH,
    CDI,
    DEFAULT_RUNTIME,
    DEFAULT_ULIMITS,
    NAMED,
    RUNTIME,
    SettingName,
    setting_of,
)

ALONE = ("default_runtime", "cdi", "always use nv", "oci hooks", "nvidia-container-cli.ldconfig", "a-key", "a-key.a")
NAMES = ("nvidia", "nvidia-cdi", "crun", "/data", "/a b:/c d:ro", "")
SETTINGS: List[SettingName] = [
    *(SettingName(kind) for kind in ALONE),
    *(SettingName(kind, name) for kind in NAMED for name in NAMES),
]


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (DEFAULT_RUNTIME, "default_runtime"),
        (CDI, "cdi"),
        (SettingName(RUNTIME, "nvidia"), "runtime nvidia"),
        (SettingName("base_runtime_spec", "nvidia"), "base_runtime_spec nvidia"),
        (SettingName(DEFAULT_ULIMITS, "memlock"), "default_ulimits memlock"),
        (SettingName(BIND_PATH, "/data:/mnt/my data"), "bind path /data:/mnt/my data"),
        # As of a line that ends with a comma.
        (SettingName(BIND_PATH, ""), "bind path "),
        (SettingName("use nvidia-container-cli"), "use nvidia-container-cli"),
    ],
)
def test_a_setting_has_the_text_that_results_and_records_show(setting: SettingName, text: str) -> None:
    assert (str(setting), setting_of(text)) == (text, setting)


def test_the_text_of_every_setting_means_that_setting_alone() -> None:
    assert [setting_of(str(setting)) for setting in SETTINGS] == SETTINGS
    assert len({str(setting) for setting in SETTINGS}) == len(set(SETTINGS)) == len(SETTINGS)


def test_settings_are_in_the_order_of_their_texts() -> None:
    assert [str(setting) for setting in sorted(SETTINGS)] == sorted(map(str, SETTINGS))
