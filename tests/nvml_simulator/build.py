# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds the NVML simulator into a folder that works wherever it is copied: ``python3 build.py OUTDIR``.

The folder holds ``libnvidia-ml.so.1``, ``nvml-sim`` and stand-ins for ``nvidia-persistenced``,
``nv-fabricmanager``, ``nvidia-cuda-mps-control`` and ``nvidia-smi``, with what they read.
It is made beside OUTDIR and then takes its place, so that a build which fails leaves the old one.
"""

from __future__ import annotations

import json
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
# Calls among our own functions are none of the dynamic linker's, which does not find those that a release lacks; and
# exports.c needs the table with the number of symbols, in pages that are not code.
LINK = (
    "-shared",
    *(f"-Wl,{option}" for option in (f"-soname,{LIBRARY}", "-z,defs", "-Bsymbolic-functions")),
    *(f"-Wl,{option}" for option in ("--hash-style=both", "-z,separate-code")),
)
PROGRAMS = (
    *("nvml_sim.py", "persistenced.py", "fabricmanager.py", "nvidia_smi.py", "container_toolkit.py", "mps.py"),
    "dcgm.py",
)
DATA = (*PROGRAMS, "mig_profiles.json", "gpus.json", "drivers.json", "symbols.json")
LAUNCHERS = {
    "nvml-sim": "nvml_sim",
    "nvidia-persistenced": "persistenced",
    "nv-fabricmanager": "fabricmanager",
    "nvidia-smi": "nvidia_smi",
    "nvidia-cuda-mps-control": "mps",
    "mps-client": "mps",
    "nv-hostengine": "dcgm",
    "dcgmi": "dcgm",
    "dcgm-exporter": "dcgm",
}
# Imported and not run: of a script Python does not keep what it compiled, which takes an emulated machine two seconds.
LAUNCHER = """#!/bin/sh
program=$(readlink -f "$0")
exec "${PYTHON:-python3}" -S -c 'import sys
sys.path[:1] = [sys.argv[1]]
sys.argv[:2] = ["%(command)s"]
import %(module)s
sys.exit(%(module)s.main())' "${program%%/*}" "$@"
"""


def compile_library(folder: Path) -> None:
    """The shared library in ``folder``. Raises :class:`subprocess.CalledProcessError` when the compiler refuses."""
    compiler = os.environ.get("CC", "cc")
    with tempfile.TemporaryDirectory(prefix="nvml-simulator-") as scratch:
        write_releases(Path(scratch, "releases.def"))

        def compile_one(source: Path) -> str:
            built = str(Path(scratch, source.stem + ".o"))
            subprocess.run([compiler, *FLAGS, f"-I{scratch}", "-c", str(source), "-o", built], check=True)
            return built

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, sorted((HOME / "src").glob("*.c"))))
        subprocess.run([compiler, *LINK, "-o", str(folder / LIBRARY), *objects], check=True)


def write_releases(path: Path) -> None:
    """symbols.json as ``FUNCTION("name", since, gone)``, for exports.c."""
    known = json.loads((HOME / "symbols.json").read_text(encoding="utf-8"))
    lines = [
        f'FUNCTION("{name}", {since}, {known["gone"].get(name, 0)})\n'
        for since, names in known["since"].items()
        for name in names
    ]
    path.write_text("".join(lines), encoding="utf-8")


def build(target: Path) -> None:
    """Everything, in ``target``."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        compile_library(fresh)
        for name in DATA:
            shutil.copyfile(HOME / name, fresh / name)
        shutil.copytree(HOME / "machines", fresh / "machines")
        for command, module in LAUNCHERS.items():
            text = LAUNCHER % {"command": command, "module": module}
            (fresh / command).write_text(text, encoding="utf-8")
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
