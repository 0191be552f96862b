# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node behind a real SSH server on this machine, that changes nothing here.

It has this machine's root file system below a layer of its own in memory, processes of its own, and a server that
listens on the loopback interface alone, to one key. All of it is gone when it ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Dict, List, Optional

from bench_node import BenchError

START_SECONDS, END_SECONDS = 30.0, 10.0
SERVER = "/usr/sbin/sshd"
# What brings the server on Debian and Ubuntu, beside what every machine there has.
PACKAGES = ("openssh-server", "libwrap0")
CONFIGURATION = """\
ListenAddress 127.0.0.1
Port {port}
HostKey /etc/gpufleet-bench/host
AuthorizedKeysFile /etc/gpufleet-bench/user.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PrintMotd no
Subsystem sftp internal-sftp
MaxStartups 1000
MaxSessions 1000
"""
# The arguments: a folder for the layer, one with the keys and the configuration, one with what brings the server.
START = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 node "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" node "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mkdir -p etc/gpufleet-bench run/sshd usr/lib
cp "$2"/* etc/gpufleet-bench
for folder in usr lib; do
  [ ! -d "$3/$folder" ] || cp -a "$3/$folder/." "$(readlink -f $folder)"
done
grep -q '^sshd:' etc/passwd || echo 'sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin' >> etc/passwd
sed -i 's/^root:[^:]*:/root:*:/' etc/shadow
exec chroot . /usr/sbin/sshd -D -e -f /etc/gpufleet-bench/configuration
"""


class SshNode:
    """While it is open: a node to log in at. Raises ``BenchError`` where this machine cannot have one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder.with_suffix(".log")
        self._port = 0
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._server = 0

    @property
    def variables(self) -> Dict[str, object]:
        """What the inventory says of a host that is this node. Its name alone tells its connection from the others."""
        words = ["-F", "none", "-o", "HostName=127.0.0.1", "-o", "HostKeyAlias=node", "-o", "BatchMode=yes"]
        words += ["-o", "StrictHostKeyChecking=yes", "-o", f"UserKnownHostsFile={self._folder / 'known_hosts'}"]
        return {
            "ansible_connection": "ssh",
            "ansible_port": self._port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self._folder / "user"),
            "ansible_ssh_common_args": " ".join(words),
            "ansible_python_interpreter": "/usr/bin/python3",
            # Of what can be declared, that which is in files alone: the kernel is this machine's own.
            "resource_limits_sessions": {"memlock": "unlimited", "nofile": "1024:65536"},
        }

    def __enter__(self) -> SshNode:
        if os.geteuid() != 0:
            raise BenchError("Cannot make a node with an SSH server: that takes root")
        shutil.rmtree(self._folder, ignore_errors=True)
        for name in ("layer", "settings", "packages"):
            (self._folder / name).mkdir(parents=True)
        self._fetch_server()
        self._make_keys()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        settings = self._folder / "settings"
        (settings / "configuration").write_text(CONFIGURATION.format(port=self._port), encoding="ascii")
        places = [str(self._folder / "layer"), str(settings), str(self._folder / "packages")]
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", START, "node", *places]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_details: object) -> None:
        if self._process is None:
            return
        # All in its namespace ends with the server, and who waits for that ends after it. Before there is a server,
        # nobody else is there.
        if self._server:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._server, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()

    def cpu(self) -> float:
        """The CPU seconds of the server and of all that it started, once nobody is logged in any more."""
        deadline = time.monotonic() + END_SECONDS
        while children_of(self._server):
            if time.monotonic() > deadline:
                raise BenchError(f"Cannot tell what the node used: somebody is logged in after {END_SECONDS:g} s")
            time.sleep(0.01)
        # Behind the name, which may have blanks: user and system time, and those of children that have ended.
        words = Path(f"/proc/{self._server}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(int(word) for word in words[11:15]) / os.sysconf("SC_CLK_TCK")

    def _wait(self) -> None:
        """Until the server answers."""
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while b"Server listening" not in self._log.read_bytes():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self._log.read_text(encoding="utf-8", errors="replace").strip()
                raise BenchError(f"Cannot start the SSH server of the node:\n{said}")
            time.sleep(0.05)
        (self._server,) = children_of(self._process.pid)

    def _fetch_server(self) -> None:
        """Take the server out of its package where it is not installed, which would start one on this machine."""
        if Path(SERVER).exists():
            return
        download = self._folder / "download"
        download.mkdir()
        try:
            fetch = ["apt-get", "-o", "APT::Sandbox::User=root", "-qq", "download", *PACKAGES]
            subprocess.run(fetch, cwd=download, check=True)
            for package in download.glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", str(package), str(self._folder / "packages")], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise BenchError(f"Cannot fetch an SSH server ({error}). Install openssh-server.") from error

    def _make_keys(self) -> None:
        settings = self._folder / "settings"
        for path in (settings / "host", self._folder / "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "node", "-f", str(path)], check=True)
        shutil.move(str(self._folder / "user.pub"), str(settings / "user.pub"))
        kind, key, *_comment = (settings / "host.pub").read_text(encoding="ascii").split()
        (self._folder / "known_hosts").write_text(f"node {kind} {key}\n", encoding="ascii")


def children_of(pid: int) -> List[int]:
    """The processes that this one started and that have not been waited for."""
    found: List[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(word) for word in path.read_text(encoding="ascii").split()]
    return found
