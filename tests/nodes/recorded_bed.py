# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hands a recorded tree and a library of the driver to our modules and to the program on the node.

What is installed on a node reads neither from its environment. A bed starts the interpreter so that, before anything of
ours runs in it, the functions which give our code its machine are replaced. For modules, an interpreter of their own::

    python = recorded_bed.interpreter(folder, root=tree, library=simulator)     # ansible_python_interpreter

and for the program of the node, in place of ``python3 gpufleet.pyz status``::

    python3 recorded_bed.py /path/of/gpufleet.pyz /path/of/tree status
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import runpy
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

PLACE = Path(__file__).resolve().parent
UTILS = "ansible_collections.gpufleet.node.plugins.module_utils"
BINDING_FOLDER = "var/lib/gpufleet/python"

START = """import sys

sys.path.append({place!r})
import recorded_bed

recorded_bed.hand_in({root!r}, library={library!r}, deadline={deadline!r})
"""


def interpreter(
    folder: Path,
    *,
    root: Optional[Path] = None,
    library: str = "",
    deadline: Optional[float] = None,
    variables: Optional[Mapping[str, str]] = None,
    python: str = sys.executable,
) -> Path:
    """Write an interpreter into ``folder``, in which our code finds the tree, and return its path.

    ``variables`` is what the library reads from its environment, such as ``NVML_SIM_STATE`` of the simulator.
    ``python`` is the interpreter behind it; it needs nothing of ours. The others are those of ``hand_in``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    start = START.format(place=str(PLACE), root=root and str(root), library=library, deadline=deadline)
    (folder / "sitecustomize.py").write_text(start, encoding="utf-8")
    words = [f"{name}={shlex.quote(value)}" for name, value in {**(variables or {}), "PYTHONPATH": str(folder)}.items()]
    path = folder / "python"
    path.write_text(f'#!/bin/sh\n{" ".join(words)} exec {shlex.quote(python)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def hand_in(root: Optional[str] = None, *, library: str = "", deadline: Optional[float] = None) -> None:
    """Prepare this process, in which nothing of ours was imported yet.

    ``root`` takes the place of the machine; without one it stays the machine. ``library`` is the path of the tree's
    driver, empty where it has none. ``deadline`` is how many seconds a driver may take to answer.
    """
    changes: Dict[str, Callable[[ModuleType], None]] = {}
    if root is not None:
        machine = root

        def recorded(*_module: Any) -> Any:
            from recorded import RecordedHost

            return RecordedHost(machine, library=library)

        def of_module(converge: ModuleType) -> None:
            vars(converge)["host_of"] = recorded

        def of_program(standard_host: ModuleType) -> None:
            vars(standard_host)["this_host"] = recorded

        changes[f"{UTILS}._node.module"] = of_module
        changes["ansible_collections.gpufleet.node.node.standard_host"] = of_program
        # Where the concern nvml brings the binding.
        sys.path.append(str(Path(root) / BINDING_FOLDER))
    if deadline is not None:
        changes[f"{UTILS}._nvidia.nvml"] = lambda nvml: vars(nvml).update(DEADLINE_SECONDS=deadline)
    sys.meta_path.insert(0, Changed(changes))


class Changed(importlib.abc.MetaPathFinder):
    """Changes modules when they are imported, from wherever they come."""

    def __init__(self, changes: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._changes = changes

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname not in self._changes:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            spec.loader = ChangingLoader(spec.loader, self._changes[fullname])
        return spec


class ChangingLoader(importlib.abc.Loader):
    """The loader of a module, and a change of what it has loaded."""

    def __init__(self, loader: Any, change: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._change = change

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Optional[ModuleType]:
        create = getattr(self._loader, "create_module", lambda _spec: None)
        module: Optional[ModuleType] = create(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if hasattr(self._loader, "exec_module"):
            self._loader.exec_module(module)
        else:
            # Python 3.9 takes what lies in an archive by the older protocol, which fills the module that is there.
            self._loader.load_module(module.__name__)
        self._change(module)


def main(arguments: Sequence[str]) -> None:
    """Run the program of the node, as its launcher does, on a tree."""
    program, root, *rest = arguments
    sys.path.append(str(PLACE))
    hand_in(root)
    sys.argv = [program, *rest]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
