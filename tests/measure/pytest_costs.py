# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plugin of pytest that writes down the processor time of each test: ``pytest -p pytest_costs --costs FOLDER``.

A test has the time of the process and of the children that it waited for, in its setup, its call and its teardown. So
the first test that asks for a fixture of a wider scope pays for it, and the last one for its teardown. Collection, and
what is imported for it, has an entry of its own. Every process of pytest writes a file of its own, so the workers of
pytest-xdist do, too.
"""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Dict, Iterator

import pytest

COLLECTION = "(collection)"


class Costs:
    """Seconds of the processor by test, written to ``folder`` at the end."""

    def __init__(self, folder: Path) -> None:
        self.seconds: Dict[str, float] = {}
        self._folder = folder

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = processor_seconds()
        yield
        # The same test may run more than once in a process.
        self.seconds[item.nodeid] = self.seconds.get(item.nodeid, 0.0) + processor_seconds() - before

    def pytest_collection_finish(self) -> None:
        # All that the process did so far: Python, pytest and its plugins are there for the tests.
        self.seconds[COLLECTION] = processor_seconds()

    def pytest_unconfigure(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        rounded = {name: round(seconds, 6) for name, seconds in self.seconds.items()}
        # Whole or not there, for a process that is killed.
        part = self._folder / f"{os.getpid()}.part"
        part.write_text(json.dumps(rounded), encoding="utf-8")
        part.replace(part.with_suffix(".json"))


def processor_seconds() -> float:
    """Seconds that this process and the children that it waited for had of the processor."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", metavar="FOLDER", help="write the processor time of each test to a file in this folder")


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("--costs")
    if folder:
        config.pluginmanager.register(Costs(Path(folder)), "costs")
