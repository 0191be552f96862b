# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import gc

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.importing import importing


def test_garbage_is_not_looked_for_during_an_import_and_is_again_after_it() -> None:
    kept = gc.get_freeze_count()
    try:
        with importing():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > kept
    finally:
        gc.unfreeze()


def test_it_is_again_after_an_import_that_failed() -> None:
    try:
        with pytest.raises(ImportError), importing():
            raise ImportError
        assert gc.isenabled()
    finally:
        gc.unfreeze()
