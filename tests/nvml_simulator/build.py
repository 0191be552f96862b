# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds the NVML simulator into a folder that works wherever it is copied: ``python3 build.py OUTDIR``.

The folder holds ``libnvidia-ml.so.1``, ``nvml-sim`` and stand-ins for ``nvidia-persistenced``,
``nv-fabricmanager`` and ``nvidia-smi``, with what they read.
It is made beside OUTDIR and then takes its place, so that a build which fails leaves the old one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HOME = Path(__file__).resolve().parent
LIBRARY = "libnvidia-ml.so.1"
FLAGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden")
PROGRAMS = ("nvml_sim.py", "persistenced.py", "fabricmanager.py", "nvidia_smi.py", "container_toolkit.py")
DATA = (*PROGRAMS, "mig_profiles.json", "gpus.json", "drivers.json")
LAUNCHERS = {
    "nvml-sim": "nvml_sim.py",
    "nvidia-persistenced": "persistenced.py",
    "nv-fabricmanager": "fabricmanager.py",
    "nvidia-smi": "nvidia_smi.py",
}
LAUNCHER = """#!/bin/sh
exec "${PYTHON:-python3}" "$(dirname "$(readlink -f "$0")")/%s" "$@"
"""


def compile_library(folder: Path) -> None:
    """The shared library in ``folder``. Raises :class:`subprocess.CalledProcessError` when the compiler refuses."""
    compiler = os.environ.get("CC", "cc")
    with tempfile.TemporaryDirectory(prefix="nvml-simulator-") as scratch:

        def compile_one(source: Path) -> str:
            built = str(Path(scratch, source.stem + ".o"))
            subprocess.run([compiler, *FLAGS, "-c", str(source), "-o", built], check=True)
            return built

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, sorted((HOME / "src").glob("*.c"))))
        link = [compiler, "-shared", f"-Wl,-soname,{LIBRARY}", "-Wl,-z,defs", "-o", str(folder / LIBRARY)]
        subprocess.run([*link, *objects], check=True)


def build(target: Path) -> None:
    """Everything, in ``target``."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        compile_library(fresh)
        for name in DATA:
            shutil.copyfile(HOME / name, fresh / name)
        shutil.copytree(HOME / "machines", fresh / "machines")
        for command, script in LAUNCHERS.items():
            (fresh / command).write_text(LAUNCHER % script, encoding="utf-8")
            (fresh / command).chmod(0o755)
        fresh.chmod(0o755)
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            target.rename(old / "old")
            fresh.rename(target)
            shutil.rmtree(old)
        else:
            fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python3 build.py OUTDIR", file=sys.stderr)
        return 1
    try:
        build(Path(sys.argv[1]).resolve())
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
