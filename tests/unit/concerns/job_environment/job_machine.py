# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""systemctl as far as it is asked about variables: what systemd has read, which is not always what its files say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, execute_init

OURS = "99-gpufleet-job_environment.conf"
LIB = "/usr/lib/systemd/system"
ETC = "/etc/systemd/system"
NCCL = "/etc/nccl.conf"
ENVIRONMENT = "/etc/environment"
PROLOG = "/etc/slurm/gpufleet-task_prolog.sh"
CDI = "/etc/cdi/gpufleet-job_environment.json"
FILES = {
    "/run/systemd/system/.keep": "",
    "/proc/sys/kernel/randomize_va_space": "2\n",
    f"{LIB}/slurmd.service": "[Service]\nEnvironment=SLURMD_OPTIONS=-D\n",
    f"{LIB}/containerd.service": "[Service]\nExecStart=/bin/containerd\n",
    # What dpkg or rpm would have made, so that it stays when our drop-in goes.
    f"{ETC}/.keep": "",
    "/etc/systemd/system.conf": "[Manager]\n#DefaultEnvironment=\n",
    "/etc/pam.d/sshd": "session required pam_env.so # reads /etc/environment\n",
    # Debian's, whose last line did not end.
    ENVIRONMENT: 'PATH="/usr/local/bin:/usr/bin:/bin"\nexport OMP_NUM_THREADS=4',
    "/etc/slurm/slurm.conf": f"ClusterName=test\nTaskProlog={PROLOG}\n",
    "/sys/class/net/lo/ifindex": "1\n",
    "/sys/class/net/bond0/ifindex": "2\n",
    "/etc/passwd": "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000::/home/ann:/bin/bash\n",
}


class Systemd:
    """What systemd has read, by folder. ``pids`` are those of main processes, whose variables lie in /proc."""

    def __init__(self, host: FakeHost) -> None:
        self._root = Path(host.files.root)
        self.pids: Dict[str, int] = {}
        self.read: Dict[str, str] = {}
        self.calls: Dict[str, int] = {"daemon-reload": 0, "daemon-reexec": 0, "show": 0}
        self._executed = 0
        self._take_up("daemon-reexec")
        host.commands.programs["systemctl"] = self

    def __call__(self, argv: Sequence[str]) -> Completed:
        verb = argv[1]
        self.calls[verb] += 1
        if verb != "show":
            self._take_up(verb)
            return Completed(0, "", "")
        properties, units = argv[2].partition("=")[2].split(","), argv[4:]
        return Completed(0, "\n".join(self._shown(unit, properties) for unit in units or [""]), "")

    def _take_up(self, verb: str) -> None:
        if verb == "daemon-reexec":
            self._executed += 1
            execute_init(self._root, self._executed)
        folders = [f"etc/systemd/system/{unit}.service.d" for unit in ("slurmd", "containerd")]
        folders += ["etc/systemd/system.conf.d"] if verb == "daemon-reexec" else []
        for folder in folders:
            path = self._root / folder / OURS
            self.read[folder] = path.read_text() if path.exists() else ""

    def _shown(self, unit: str, properties: Sequence[str]) -> str:
        folder = f"etc/systemd/system/{unit}.d" if unit else "etc/systemd/system.conf.d"
        if "NeedDaemonReload" in properties:
            path = self._root / folder / OURS
            due = (path.read_text() if path.exists() else "") != self.read.get(folder, "")
            known = f"/{folder}/{OURS}" if self.read.get(folder) else ""
            return f"NeedDaemonReload={'yes' if due else 'no'}\nDropInPaths={known}\n"
        words = re.findall(r"^(?:Default)?Environment=(.*)$", self.read.get(folder, ""), re.MULTILINE)
        # It escapes what a shell would replace in double quotes, as 252 and 257 do.
        words = [word.replace("$", "\\$") if " " in word or "$" in word else word.strip('"') for word in words]
        shown = " ".join(["LANG=C.UTF-8", *words] if not unit else words)
        pid = f"MainPID={self.pids.get(unit, 0)}\n" if "MainPID" in properties else ""
        return f"{pid}Environment={shown}\n"
