# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plugin of pytest that lists the collected tests: ``pytest -p pytest_inventory --inventory FILE --collect-only``.

The file has a line of JSON a test that would run here: its name, and where its function and those of its fixtures are.
A test that a marker skips is not among them.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, List, Sequence, Tuple

import pytest
from _pytest.skipping import evaluate_skip_marks


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--inventory", metavar="FILE", help="write the collected tests to this file")


def pytest_collection_finish(session: pytest.Session) -> None:
    path = session.config.getoption("--inventory")
    if path:
        lines = [json.dumps(_entry(item)) for item in session.items if evaluate_skip_marks(item) is None]
        Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _entry(item: pytest.Item) -> Any:
    function = getattr(item, "function", None)
    # What hypothesis hides below its own function.
    inner = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    return {"test": item.nodeid, "functions": _places([inner, *_fixtures(item)])}


def _fixtures(item: pytest.Item) -> List[Any]:
    # Not part of the interface of pytest, as those of no test are.
    known = item._fixtureinfo.name2fixturedefs if hasattr(item, "_fixtureinfo") else {}
    return [definitions[-1].func for definitions in known.values()]


def _places(functions: Sequence[Any]) -> List[Tuple[str, int]]:
    """File and first line of each function."""
    codes = [getattr(inspect.unwrap(function), "__code__", None) for function in functions if function is not None]
    return [(code.co_filename, code.co_firstlineno) for code in codes if code is not None]
