# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence of a failure: the journal, the units and the changed files of a machine, before it is destroyed."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Mapping, Sequence, Tuple

# A machine that failed may not answer, and the next scenario waits.
TIMEOUT_SECONDS = 120.0

# Runs on the machine, and writes an archive to stdout. What fails says so in its own file. A machine is created with
# its host name, so that what is newer was made or changed by the scenario.
COLLECT = r"""
exec 3>&1 >/dev/null 2>&1
folder=$(mktemp -d /run/evidence.XXXXXX) && cd "$folder" || exit 1
trap 'rm -rf "$folder"' EXIT
ask() { file=$1; shift; timeout 30 "$@" > "$file" 2>&1; }
ask journal.txt journalctl --no-pager --output=short-precise --lines=20000
ask kernel.txt dmesg
ask units.txt systemctl list-units --all --full --no-pager
ask jobs.txt systemctl list-jobs --no-pager
failed=$(systemctl list-units --state=failed --plain --no-legend --no-pager | cut -d' ' -f1)
[ -z "$failed" ] || ask failed.txt systemctl status --full --no-pager --lines=100 $failed
ask processes.txt ps -e -o pid,ppid,user,stat,etimes,cgroup:60,args --forest
ask mounts.txt findmnt --list
ask network.txt ip -details address
find /etc /usr/local /var/log /var/lib/gpufleet /run/gpufleet /run/systemd/system /run/systemd/transient \
    -type f -newer /etc/hostname -size -1024k \
    ! -path '/var/log/journal/*' ! -name '*.pyc' ! -path '/etc/ssh/*' ! -name '*shadow*' > newer.list
tar --create --ignore-failed-read --files-from=newer.list --transform='s,^/,files/,S' --absolute-names --file=files.tar
rm newer.list
tar --create --file=- . >&3
"""


@dataclass(frozen=True)
class Source:
    """A machine to ask.

    shell: the command that feeds its standard input to a shell of the machine.
    beside: files of this host about the machine.
    commands: further questions, to programs of this host, each with the name of the file for the answer.
    """

    name: str
    shell: Sequence[str]
    beside: Sequence[Path] = ()
    commands: Sequence[Tuple[str, Sequence[str]]] = ()


def keep(folder: Path, *, sources: Sequence[Source], environment: Mapping[str, str]) -> None:
    """Collect what there is to know about machines, a folder for each. A machine that does not answer is no failure of
    its own: the folder says so.
    """
    for source in sources:
        target = folder / source.name
        target.mkdir(parents=True, exist_ok=True)
        _collect(target, source, environment=environment)
        for file in source.beside:
            with contextlib.suppress(OSError):
                shutil.copyfile(file, target / file.name)
        for name, command in source.commands:
            _status, output, errors = _answer(command, "", environment=environment)
            (target / name).write_bytes(output + errors)


def _collect(target: Path, source: Source, *, environment: Mapping[str, str]) -> None:
    status, output, errors = _answer(source.shell, COLLECT, environment=environment)
    try:
        with tarfile.open(fileobj=io.BytesIO(output), mode="r:") as archive:
            _unpack(archive, target)
        inner = target / "files.tar"
        with tarfile.open(inner, mode="r:") as archive:
            _unpack(archive, target)
        inner.unlink()
    except (tarfile.TarError, OSError) as error:
        # Whatever came before the connection broke is there all the same.
        said = f"{source.name} did not answer in full (exit status {status}, {error})\n"
        (target / "incomplete.txt").write_bytes(said.encode() + errors)


def _answer(command: Sequence[str], words: str, *, environment: Mapping[str, str]) -> Tuple[int, bytes, bytes]:
    """Exit status, output and messages of a command that reads ``words``."""
    try:
        done = subprocess.run(
            list(command),
            input=words.encode(),
            capture_output=True,
            env=dict(environment),
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        return 124, expired.stdout or b"", expired.stderr or b""
    except OSError as error:
        return 127, b"", f"{error}\n".encode()
    return done.returncode, done.stdout, done.stderr


def _unpack(archive: tarfile.TarFile, target: Path) -> None:
    """Write the plain files of an archive below a folder, whatever it calls them."""
    for member in archive:
        path = PurePosixPath(member.name)
        content = archive.extractfile(member) if member.isfile() else None
        if content is None or path.is_absolute() or ".." in path.parts:
            continue
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.read())
