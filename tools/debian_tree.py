# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs of another Debian suite, unpacked into a folder, which start from there with the libraries of that suite.

    python3 tools/debian_tree.py FOLDER --suite trixie --include python3.13 --program usr/bin/python3.13

Nothing is installed, and the C library of this machine stays as it is. Exit status: 0 done, 1 failed; the last line on
stderr says why.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Sequence

MIRROR = "http://deb.debian.org/debian"
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
# Before Debian 13 the packages of some libraries have them in the second one.
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
LOADER = "ld-linux-x86-64.so.2"
PROGRAM_FOLDERS = ("bin", "sbin", "usr/bin", "usr/sbin")
# Writes into a program which loader starts it, and where its libraries are.
PATCHELF = "patchelf"


def unpack(folder: Path, *, suite: str, packages: Sequence[str], programs: Sequence[str], mirror: str) -> None:
    """Unpack packages and what they depend on, and let ``programs`` (paths in the tree) run where they lie.

    Errors: ``CalledProcessError`` or ``OSError`` of the step that failed; the folder is then not there.
    """
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    archive = part / "tree.tar"
    command = ["mmdebstrap", "--variant=extract", "--architectures=amd64"]
    command += [f"--include={','.join((*packages, PATCHELF))}"]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    # As an archive: without root, what mmdebstrap writes itself belongs to another user.
    for step in ([*command, suite, str(archive), mirror], ["tar", "-xf", str(archive), "-C", str(part)]):
        subprocess.run(step, stdin=subprocess.DEVNULL, check=True)
    archive.unlink()
    for program in programs:
        _relocate(part, program, place=folder)
    # The others would start with the libraries of this machine, and folders of programs may come on PATH.
    for name in PROGRAM_FOLDERS:
        for path in (part / name).glob("*"):
            if path.relative_to(part).as_posix() not in programs:
                path.unlink()
    part.rename(folder)


def _relocate(tree: Path, program: str, *, place: Path) -> None:
    """Let a program start with the loader and the libraries that will be at ``place``.

    In this order: by the other one, and by both at once, patchelf 0.18 breaks a program that is not
    position-independent, which Debian's interpreters are not.
    """
    loader = next(folder for folder in LIBRARIES if (tree / folder / LOADER).exists())
    here, there = (":".join(str(top / folder) for folder in LIBRARIES) for top in (tree, place))
    patchelf = [str(tree / loader / LOADER), "--library-path", here, str(tree / "usr" / "bin" / PATCHELF)]
    # RPATH and not RUNPATH: it also counts for modules that the program loads later.
    for words in (["--force-rpath", "--set-rpath", there], ["--set-interpreter", str(place / loader / LOADER)]):
        subprocess.run([*patchelf, *words, str(tree / program)], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Unpack programs of a Debian suite.")
    parser.add_argument("folder", type=Path, help="where they are to be; made anew")
    parser.add_argument("--suite", required=True)
    parser.add_argument("--include", action="append", required=True, help="a package, with what it depends on")
    parser.add_argument("--program", action="append", required=True, help="a program in the tree that is to be run")
    parser.add_argument("--mirror", default=MIRROR, help="default: %(default)s")
    options = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    try:
        unpack(
            options.folder.absolute(),
            suite=options.suite,
            packages=options.include,
            programs=options.program,
            mirror=options.mirror,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"Cannot unpack {', '.join(options.include)} of {options.suite}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
