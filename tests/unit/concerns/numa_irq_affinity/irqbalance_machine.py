# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""irqbalance and its unit, as releases of Debian have them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Mapping, Optional, Sequence, Set

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.irqbalance import UNIT
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, FakeHost

VENDOR = f"/usr/lib/systemd/system/{UNIT}"
LINK = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"
DEFAULTS = "/etc/default/irqbalance"
CGROUP = f"/sys/fs/cgroup/system.slice/{UNIT}/cgroup.procs"
NIC, GPU, DISK = "0000:17:00.0", "0000:18:00.0", "0000:19:00.0"
# The units of Debian: 1.9.2 (bookworm) and 1.9.4 (trixie), the latter without its sandbox.
BOOKWORM = """\
[Unit]
Description=irqbalance daemon
ConditionVirtualization=!container
ConditionCPUs=>1

[Service]
EnvironmentFile=-/usr/lib/irqbalance/defaults.env
EnvironmentFile=-/etc/default/irqbalance
ExecStart=/usr/sbin/irqbalance --foreground $IRQBALANCE_ARGS
ReadOnlyPaths=/
ReadWritePaths=/proc/irq
RestrictAddressFamilies=AF_UNIX
RuntimeDirectory=irqbalance/

[Install]
WantedBy=multi-user.target
"""
TRIXIE = BOOKWORM.replace(" --foreground", "")


class Irqbalance:
    """``systemctl`` for the one unit, and the daemon that it starts. ``banned`` is what that does not touch.

    It starts what systemd read last. As the real one, it asks its scripts once, when it starts.
    """

    def __init__(self, host: FakeHost, root: Path) -> None:
        self.host = host
        self.root = root
        self.read: Optional[Mapping[str, Sequence[str]]] = None
        self.pid = 0
        self.starts = 0
        self.banned: Set[str] = set()
        self.ends_at_once = False
        host.commands.programs["systemctl"] = self

    def __call__(self, argv: Sequence[str]) -> Completed:
        words = [word for word in argv[1:] if word not in ("--no-reload", "--job-mode=ignore-dependencies")]
        if words[0] == "show":
            due = self.read is not None and self.read != systemd.unit_lines(self.host.files, UNIT)
            scope = "Id=docker-1.scope\nDevicePolicy=strict\nDeviceAllow=/dev/null rwm\n"
            asked = "NeedDaemonReload" in words[1]
            return Completed(0, f"NeedDaemonReload={'yes' if due else 'no'}\n" if asked else scope, "")
        getattr(self, words[0].replace("-", "_"))()
        return Completed(0, "", "")

    def daemon_reload(self) -> None:
        self.read = systemd.unit_lines(self.host.files, UNIT)

    def enable(self) -> None:
        link = self.root / LINK.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(VENDOR)

    def disable(self) -> None:
        (self.root / LINK.lstrip("/")).unlink()

    def restart(self) -> None:
        self.stop()
        self.start()

    def start(self) -> None:
        if self.read is None:
            self.daemon_reload()
        assert self.read is not None
        (line,) = self.read["Service.ExecStart"]
        self.starts += 1
        if not self.ends_at_once:
            said = re.search(
                r'^IRQBALANCE_ARGS="?([^"\n]*)', self.host.files.read_optional(DEFAULTS) or "", re.MULTILINE
            )
            self.run(shlex.split(line.replace("$IRQBALANCE_ARGS", said[1] if said else "")))

    def run(
        self, words: Sequence[str], pid: int = 4711, cgroup: str = f"/system.slice/{UNIT}", status: str = STATUS_OF_ROOT
    ) -> None:
        """The daemon itself, with this command line."""
        self.pid = pid
        self._write(f"/proc/{pid}/comm", "irqbalance\n")
        self._write(f"/proc/{pid}/status", status)
        self._write(f"/proc/{pid}/cmdline", "".join(f"{word}\0" for word in words))
        self._write(f"/proc/{pid}/cgroup", f"0::{cgroup}\n")
        if UNIT in cgroup:
            self._write(CGROUP, f"{pid}\n")
        policies = [word.partition("=")[2] for word in words if word.startswith("--policyscript=")]
        self.banned = {address for address in (NIC, GPU, DISK) if policies and self._asks(policies[-1], address)}

    def stop(self) -> None:
        if self.pid:
            shutil.rmtree(self.root / f"proc/{self.pid}")
            self._write(CGROUP, "")
        self.pid = 0
        self.banned = set()

    def _asks(self, policy: str, address: str) -> bool:
        there = self.root / policy.lstrip("/")
        for script in [there] if there.is_file() else sorted(there.glob("*")):
            if script.stat().st_mode & 0o100:
                text = script.read_text().replace("/run/", f"{self.root}/run/")
                command = ["sh", "-c", text, str(script), f"/sys/bus/pci/devices/{address}", "77"]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode == 0:
                    return done.stdout == "ban=true\n"
        return False

    def _write(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
