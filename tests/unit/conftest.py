# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which tests run on which Python, and how pytest and Hypothesis run them."""

from __future__ import annotations

import gc
import sys
from typing import List

import pytest
from hypothesis import settings

# What takes long and does not depend on the interpreter runs on the fastest of those that `make test` takes.
ONCE = (3, 13)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--concern", action="append", help="of the tests that run for each concern: those for this one")


def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    concerns = config.getoption("--concern")
    if concerns:
        # By the parameter: -k would take a part of a name for all of it.
        parameters = {item: getattr(getattr(item, "callspec", None), "params", {}) for item in items}
        config.hook.pytest_deselected(items=[item for item in items if parameters[item].get("concern") not in concerns])
        items[:] = [item for item in items if parameters[item].get("concern") in concerns]
    if sys.version_info[:2] != ONCE:
        skip = pytest.mark.skip(reason="runs on Python {}.{}".format(*ONCE))
        for item in items:
            if item.get_closest_marker("once"):
                item.add_marker(skip)


def pytest_sessionstart() -> None:
    """Hold every run to what its plan lists, before a test module takes anything from ``convergence``."""
    from ansible_collections.gpufleet.node.tests.unit import foresight

    foresight.watch()


def pytest_collection_finish() -> None:
    """Keep what is imported and collected out of garbage collection, which makes each child copy all of it."""
    gc.collect()
    gc.freeze()


# How long an example takes is the machine's matter; what must be fast has a test that says so.
# Few examples a run, for every run draws others.
settings.register_profile("any machine", deadline=None, max_examples=40)
settings.load_profile("any machine")
