# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs that are started by their path, for tests that call their functions."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

ROOT = Path(__file__).resolve().parents[3]


@contextlib.contextmanager
def siblings(*folders: str) -> Iterator[None]:
    """Let what is imported meanwhile import its siblings by bare name, as it does where it is started by its path.

    ``folders`` are relative to the repository. They are not on ``sys.path`` afterwards, nor is what a program adds.
    """
    before = list(sys.path)
    sys.path[:0] = [str(ROOT / folder) for folder in folders]
    try:
        yield
    finally:
        sys.path[:] = before


@contextlib.contextmanager
def tools(*names: str) -> Iterator[Any]:
    """Modules of tools/ as attributes, imported for this use alone, since tests replace what is in them."""
    folder = str(ROOT / "tools")
    try:
        with siblings("tools"):
            yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        for name in [name for name, module in sys.modules.items() if folder in str(getattr(module, "__file__", ""))]:
            del sys.modules[name]
