# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the stages need from the machine: places, Debian packages, Python interpreters and virtual environments."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from runner import Job, StageFailed

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache"
HOME = CACHE / "home"
COLLECTIONS = CACHE / "collections"
REQUIREMENTS = ROOT / "tests"

# A package with many collections in it, for those that a part of ours works with.
COLLECTIONS_OF_OTHERS = "ansible==12.3.0"

# Where the interpreters of the user are; HOME is another one for everything that the stages start.
USER_HOME = Path.home()
DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
C_HEADERS = "/usr/include/stdio.h"
# What looks at the page of the report, the smallest first.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

# Which Debian package brings a program (or a file, when the name is a path).
PACKAGES: Dict[str, str] = {
    "dockerd": "docker.io",
    "docker": "docker-cli",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "newuidmap": "uidmap",
    DEBIAN_KEYRING: "debian-archive-keyring",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "mkfs.ext4": "e2fsprogs",
    "debugfs": "e2fsprogs",
    "cc": "gcc",
    C_HEADERS: "libc6-dev",
    "git": "git",
    "shellcheck": "shellcheck",
}


def environment() -> Dict[str, str]:
    """The environment of every command: the caller's without what would change a result, all caches in the checkout."""
    dropped = ("ANSIBLE_", "MOLECULE_", "GPUFLEET_", "MYPY", "PYTEST_", "DOCKER_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "CDPATH"):
        kept.pop(name, None)
    user_pip = USER_HOME / ".config" / "pip" / "pip.conf"
    if user_pip.exists():
        kept.setdefault("PIP_CONFIG_FILE", str(user_pip))
    path = kept.get("PATH", os.defpath).split(":")
    kept.update(
        PATH=":".join([*path, *(folder for folder in SYSTEM_PATH if folder not in path)]),
        HOME=str(HOME),
        XDG_CACHE_HOME=str(CACHE / "xdg"),
        XDG_CONFIG_HOME=str(HOME / ".config"),
        PIP_CACHE_DIR=str(CACHE / "pip"),
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        PIP_ROOT_USER_ACTION="ignore",
        UV_CACHE_DIR=str(CACHE / "uv"),
        UV_PYTHON_INSTALL_DIR=str(CACHE / "pythons"),
        PYTHONPYCACHEPREFIX=str(CACHE / "pycache"),
        PYTHONUNBUFFERED="1",
        MYPY_CACHE_DIR=str(CACHE / "mypy"),
        RUFF_CACHE_DIR=str(CACHE / "ruff"),
        HYPOTHESIS_STORAGE_DIRECTORY=str(CACHE / "hypothesis"),
        ANSIBLE_HOME=str(HOME / ".ansible"),
        # As by default on a node. Here `~` would be the home that passwd has for the user, and not the one above.
        ANSIBLE_REMOTE_TMP="$HOME/.ansible/tmp",
        ANSIBLE_COLLECTIONS_PATH=str(COLLECTIONS),
        ANSIBLE_DEPRECATION_WARNINGS="true",
        LC_ALL="C.UTF-8",
        NO_COLOR="1",
        DEBIAN_FRONTEND="noninteractive",
    )
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept


def prepare_places() -> None:
    """Make the folders, and the checkout importable as ``ansible_collections.gpufleet.node``."""
    HOME.mkdir(parents=True, exist_ok=True)
    link = COLLECTIONS / "ansible_collections" / "gpufleet" / "node"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink() or Path(os.readlink(link)) != ROOT:
        if link.is_symlink():
            link.unlink()
        link.symlink_to(ROOT)


def source_files() -> List[Path]:
    """The files of the checkout, relative to it: what git tracks and what it would, or all but caches without git."""
    git = shutil.which("git")
    if git and (ROOT / ".git").exists():
        command = [git, "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
        names = [Path(name) for name in listed if name]
    else:
        names = [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file() or path.is_symlink()]
        hidden = {".cache", ".git", "build", "__pycache__"}
        names = [name for name in names if not hidden.intersection(name.parts)]
    return sorted(name for name in names if (ROOT / name).is_file())


def copy_sources(target: Path, names: Optional[Iterable[Path]] = None) -> None:
    """A clean copy of the checkout in an empty folder. Files keep their times where nothing changed, for caches."""
    shutil.rmtree(target, ignore_errors=True)
    for name in source_files() if names is None else names:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place, follow_symlinks=False)


# --- Debian packages --------------------------------------------------------------------------------------------------


def require_programs(job: Job, names: Sequence[str]) -> None:
    """Install what is missing where that is possible. Raises ``StageFailed`` with the exact command where it is not."""
    if all(_there(job, name) for name in names):
        return
    # Another stage may be installing the same.
    with job.locked(CACHE / "locks" / "require", what="The list of packages"):
        missing = [name for name in names if not _there(job, name)]
        if missing:
            install_packages(job, sorted({_package(name) for name in missing}), why=", ".join(missing))


def install_packages(job: Job, packages: Sequence[str], *, why: str) -> None:
    line = f"apt-get install --no-install-recommends --yes {' '.join(packages)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise StageFailed(f"Cannot go on without {why}. On Debian or Ubuntu, as root:\n    apt-get update && {line}")
    job.say(f"installing {' '.join(packages)} ({why} missing)")
    with job.locked(CACHE / "locks" / "apt", what="apt-get"):
        job.run(["apt-get", "-o", "DPkg::Lock::Timeout=300", "update"])
        job.run(["apt-get", "-o", "DPkg::Lock::Timeout=300", *line.split()[1:]])


def offer_browser(job: Job) -> bool:
    """Whether there is a browser; where there is none, Debian is asked for one. Ubuntu has it as a snap alone."""
    if any(_there(job, name) for name in BROWSERS):
        return True
    try:
        install_packages(job, [BROWSERS[0]], why="a browser")
    except StageFailed:
        return False
    return True


def offer_promtool(job: Job) -> Optional[Path]:
    """Prometheus' judge of alert rules, None where it is not to be had; taken out of Debian's package of the server."""
    found = shutil.which("promtool", path=job.environment["PATH"])
    if found:
        return Path(found)
    place = CACHE / "promtool" / "usr" / "bin" / "promtool"
    if not place.exists() and shutil.which("apt-get") and shutil.which("dpkg-deb"):
        # Not installed, since the package starts the server.
        with job.locked(CACHE / "locks" / "promtool", what="promtool"), contextlib.suppress(StageFailed):
            folder = job.scratch / "promtool"
            folder.mkdir(parents=True, exist_ok=True)
            job.say("taking promtool out of the package prometheus")
            download = ["apt-get", "-o", f"Dir::Cache::archives={folder}", "-o", "APT::Sandbox::User=root"]
            job.run([*download, "download", "prometheus"], cwd=folder)
            for package in folder.glob("prometheus_*.deb"):
                job.run(["dpkg-deb", "--extract", str(package), str(folder / "unpacked")])
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(folder / "unpacked" / "usr" / "bin" / "promtool", place)
    return place if place.exists() else None


def _there(job: Job, name: str) -> bool:
    return Path(name).exists() if name.startswith("/") else shutil.which(name, path=job.environment["PATH"]) is not None


def _package(name: str) -> str:
    # Before Debian 13 the client is part of docker.io.
    if name == "docker" and shutil.which("apt-cache"):
        known = subprocess.run(["apt-cache", "show", "docker-cli"], capture_output=True, check=False)
        if known.returncode != 0:
            return "docker.io"
    return PACKAGES[name]


# --- Python -----------------------------------------------------------------------------------------------------------

# The base executable: an interpreter of a virtual environment would vanish with it.
PROBE = "import ensurepip, sys, venv; print('%d.%d %s' % (*sys.version_info[:2], sys._base_executable))"
# Interpreters of Debian are built with profile-guided optimization, which pyenv leaves out unless it is told otherwise:
# all that the tests do in Python takes a quarter to a third less processor time with them. Suite, packages by version.
DEBIAN_PYTHONS = {
    "3.11": ("bookworm", ("python3.11-venv",)),
    "3.13": ("trixie", ("python3.13-venv",)),
}
OPTIMIZED = "import sys, sysconfig; sys.exit('--enable-optimizations' not in sysconfig.get_config_var('CONFIG_ARGS'))"


@functools.cache
def known_python(version: str) -> Optional[Path]:
    """An interpreter that can make virtual environments: unpacked here, on PATH, of pyenv, or one that uv brought."""
    for candidate in _candidates(version):
        found = _probe(candidate)
        if found and found[0] == version:
            return found[1]
    return None


def _candidates(version: str) -> Iterator[Path]:
    yield _unpacked(version) / "usr" / "bin" / f"python{version}"
    for folder in [*os.environ.get("PATH", os.defpath).split(":"), *SYSTEM_PATH]:
        yield Path(folder) / f"python{version}"
    pyenv = _pyenv()
    # Who became another user may still have the variable of the first one.
    if os.access(pyenv, os.R_OK | os.X_OK):
        yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    yield from sorted((CACHE / "pythons").glob(f"cpython-{version}.*/bin/python{version}"), reverse=True)


def _pyenv() -> Path:
    return Path(os.environ.get("PYENV_ROOT", str(USER_HOME / ".pyenv")))


def _unpacked(version: str) -> Path:
    """The folder where Debian's interpreter of this version is unpacked."""
    return CACHE / "pythons" / f"debian-{version}"


def _probe(candidate: Path) -> Optional[Tuple[str, Path]]:
    if not candidate.exists():
        return None
    # A shim of pyenv exists for versions that are not selected, and fails.
    done = subprocess.run([str(candidate), "-I", "-c", PROBE], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    version, path = done.stdout.strip().split(" ", 1)
    return version, Path(path)


def python(job: Job, *versions: str, optimized: bool = True) -> Path:
    """The first of these versions that is there; else the first one, brought by Debian or by uv.

    optimized: unpack Debian's build in place of one without optimizations, where that can be done.
    Raises ``StageFailed`` that names what is missing.
    """
    for version in versions:
        found = known_python(version)
        if found:
            return (_optimized(job, version, found) if optimized else None) or found
    version = versions[0]
    if any(path.exists() for path in _candidates(version)) and Path(f"/usr/bin/python{version}").exists():
        # Debian's interpreter without its module for virtual environments.
        install_packages(job, [f"python{version}-venv"], why=f"ensurepip of Python {version}")
    else:
        _bring_python(job, version)
    known_python.cache_clear()
    found = known_python(version)
    if found is None:
        raise StageFailed(_missing_python(version))
    return found


def _optimized(job: Job, version: str, found: Path) -> Optional[Path]:
    """Debian's build of an interpreter in place of a slower one of pyenv; None where that is as good or has to do."""
    if version not in DEBIAN_PYTHONS or os.geteuid() != 0 or os.uname().machine != "x86_64":
        return None
    if not found.is_relative_to(_pyenv()) or subprocess.run([str(found), "-c", OPTIMIZED], check=False).returncode == 0:
        return None
    suite, packages = DEBIAN_PYTHONS[version]
    with job.locked(CACHE / "locks" / f"python-{version}", what=f"Python {version}"):
        folder = _unpacked(version)
        program = folder / "usr" / "bin" / f"python{version}"
        if not program.exists():
            job.say(f"unpacking Debian's Python {version}: {found} is built without optimizations")
            words = [word for name in packages for word in ("--include", name)]
            words += ["--suite", suite, "--program", program.relative_to(folder).as_posix()]
            try:
                require_programs(job, ["mmdebstrap", DEBIAN_KEYRING])
                job.run([sys.executable, str(ROOT / "tools" / "debian_tree.py"), str(folder), *words])
            except StageFailed as failure:
                job.say(f"going on with {found}: {failure}")
                return None
            known_python.cache_clear()
    return known_python(version)


def _bring_python(job: Job, version: str) -> None:
    with job.locked(CACHE / "locks" / "pythons", what="The folder of Python interpreters"):
        job.say(f"Python {version} is not here, asking uv for it")
        uv = venv(job, "uv", interpreter=any_python(job), requirements=["uv>=0.8,<1"]) / "bin" / "uv"
        try:
            job.run([str(uv), "python", "install", "--no-bin", version])
        except StageFailed as failure:
            raise StageFailed(f"{_missing_python(version)}\n({failure})") from failure


def _missing_python(version: str) -> str:
    return (
        f"Cannot find Python {version}: no python{version} on PATH, none in ~/.pyenv/versions, nor from uv. "
        f"Do one of: apt-get install python{version} python{version}-venv (where the distribution has it), "
        f"pyenv install {version}, uv python install {version}"
    )


def any_python(job: Job) -> Path:
    """The interpreter that runs this, or any other one, that can make virtual environments."""
    found = _probe(Path(sys.executable))
    if found:
        return found[1]
    for minor in range(13, 8, -1):
        known = known_python(f"3.{minor}")
        if known:
            return known
    install_packages(job, ["python3-venv"], why="ensurepip of python3")
    return Path(sys.executable)


# --- virtual environments ---------------------------------------------------------------------------------------------


def requirements(*names: str) -> List[str]:
    """The lines of tests/requirements-<name>.txt."""
    lines = []
    for name in names:
        text = (REQUIREMENTS / f"requirements-{name}.txt").read_text(encoding="utf-8")
        lines += [line for line in (raw.split("#")[0].strip() for raw in text.splitlines()) if line]
    return lines


def venv(
    job: Job, name: str, *, interpreter: Path, requirements: Sequence[str], without_dependencies: Sequence[str] = ()
) -> Path:
    """A virtual environment with these packages, kept until one of them or the interpreter changes. Returns its folder.

    ``without_dependencies`` are installed whatever Python they ask for, and alone.
    """
    definition = "\0".join([str(interpreter), *requirements, "", *without_dependencies])
    folder = CACHE / "venvs" / f"{name}-{hashlib.sha256(definition.encode()).hexdigest()[:10]}"
    ready = folder / ".ready"
    with job.locked(CACHE / "locks" / f"venv-{name}", what=f"The environment {name}"):
        if ready.exists():
            return folder
        job.say(f"making the environment {folder.name} with {interpreter}")
        for old in (CACHE / "venvs").glob(f"{name}-??????????"):
            shutil.rmtree(old)
        # One pip for all: ensurepip in each would take longer than most installations.
        job.run([str(interpreter), "-m", "venv", "--without-pip", str(folder)])
        install = [*_pip(job), "--python", str(folder / "bin" / "python"), "install"]
        install += ["--no-compile", "--quiet"]
        job.run([*install, *requirements])
        if without_dependencies:
            job.run([*install, "--no-deps", "--ignore-requires-python", *without_dependencies])
        ready.touch()
    return folder


def collections_of_others(job: Job, *names: str, interpreter: Path) -> Path:
    """A folder for ``ANSIBLE_COLLECTIONS_PATH`` with collections that the package ``ansible`` has in it."""
    folder = CACHE / "others" / f"{'-'.join(names)}-{COLLECTIONS_OF_OTHERS}"
    wheels = folder / "wheels"
    with job.locked(CACHE / "locks" / "others", what=f"The collections of {COLLECTIONS_OF_OTHERS}"):
        if folder.exists() and not wheels.exists():
            return folder
        job.say(f"taking {' and '.join(names)} out of {COLLECTIONS_OF_OTHERS}")
        shutil.rmtree(folder, ignore_errors=True)
        # For this interpreter: pip itself may run on one that is too old for the package.
        download = ["--python", str(interpreter), "download", "--quiet", "--no-deps", "--dest", str(wheels)]
        job.run([*_pip(job), *download, COLLECTIONS_OF_OTHERS])
        with zipfile.ZipFile(next(wheels.glob("ansible-*.whl"))) as archive:
            inside = tuple(f"ansible_collections/{name.replace('.', '/')}/" for name in names)
            archive.extractall(folder, [member for member in archive.namelist() if member.startswith(inside)])
        shutil.rmtree(wheels)
    return folder


def _pip(job: Job) -> List[str]:
    folder = CACHE / "venvs" / "pip"
    with job.locked(CACHE / "locks" / "pip", what="pip"):
        if not (folder / ".ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            job.run([str(any_python(job)), "-m", "venv", str(folder)])
            # The last series that also runs on Python 3.9.
            job.run([str(folder / "bin" / "pip"), "install", "--quiet", "pip>=25,<26"])
            (folder / ".ready").touch()
    return [str(folder / "bin" / "pip")]
