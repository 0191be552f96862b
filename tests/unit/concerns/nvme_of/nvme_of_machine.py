# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine that reaches NVMe subsystems over a network: what /dev/nvme-fabrics does with a line, and sysfs after it.

After nvmf_create_ctrl of drivers/nvme/host/fabrics.c and the attributes of drivers/nvme/host/sysfs.c, as Linux 6.12
shows them of nvmet over TCP.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import struct
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_of.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.support import KernelFiles, build, shown_by_systemctl

DATA, OTHER = "nqn.2024-01.com.example:data", "nqn.2024-01.com.example:other"
UUID = "4c4c4544-0042-4810-8052-b4c04f4d3132"
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
SECRETS = ("dhchap_secret", "dhchap_ctrl_secret")
PYTHON = os.path.basename(sys.executable)
WANTS = "/etc/systemd/system/multi-user.target.wants/gpufleet-nvme-of.service"
UNIT = "/etc/systemd/system/gpufleet-nvme-of.service"
RULES = "/etc/udev/rules.d/99-gpufleet-nvme_of.rules"
LATER = "/etc/systemd/system/gpufleet-nvme-discovery.service"
# What the role node_tools leaves, which asks discovery controllers at boot.
PROGRAM = {"/var/lib/gpufleet/program/gpufleet": "", "/var/lib/gpufleet/program/gpufleet.pyz": ""}
FILES = {
    "/run/systemd/system/.keep": "",
    "/etc/systemd/system/.keep": "",
    "/etc/nvme/.keep": "",
    "/var/lib/.keep": "",
    "/sys/class/nvme-subsystem/.keep": "",
    "/sys/class/block/.keep": "",
    "/proc/sys/kernel/osrelease": "6.12.0\n",
    "/lib/modules/6.12.0/modules.dep": "kernel/drivers/nvme/host/nvme-tcp.ko.xz:\n",
    "/proc/self/mountinfo": "25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n",
    "/proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n",
    "/sys/class/dmi/id/product_uuid": f"{UUID.upper()}\n",
    # The drive of the machine itself.
    "/sys/class/nvme/nvme0/transport": "pcie\n",
    "/sys/class/nvme/nvme0/address": "0000:01:00.0\n",
}


class Machine:
    """``allows`` is the most queues that a target has, ``dead`` are the addresses that do not answer.

    ``keys`` are the secrets that targets ask for, by address, and ``authenticates`` says whether the kernel does so.
    ``tells`` is what discovery controllers tell of by their addresses, as ``entry`` makes it, or what goes wrong.
    """

    def __init__(self, root: Path, more: Optional[Mapping[str, str]] = None, *, program: bool = False) -> None:
        files = {**FILES, **(PROGRAM if program else {}), **(more or {})}
        self.host = build(root, files)
        self.tells: Dict[str, Any] = {}
        self.asked: List[str] = []
        self.keys: Dict[str, str] = {}
        self.authenticates = True
        self.allows = 8
        self.multipath = True
        self.dead: List[str] = []
        for name in ("modprobe", "sh", "systemctl"):
            self.host.commands.programs[name] = getattr(self, name)
        self.host.commands.programs[PYTHON] = self.read_log
        self.host.files.rules += [
            (r"/sys/class/nvme/(nvme\d+)/delete_controller", self._delete),
            (r"/sys/class/nvme-subsystem/[^/]+/iopolicy", self._policy),
            (r"/sys/class/nvme/(nvme\d+)/reconnect_delay", self._delay),
            (r"/sys/class/nvme/(nvme\d+)/ctrl_loss_tmo", self._loss),
        ]

    @property
    def root(self) -> Path:
        return Path(self.host.files.root)

    def modprobe(self, argv: Sequence[str]) -> Completed:
        return Completed(0, "", "")

    def sh(self, argv: Sequence[str]) -> Completed:
        # What the shell reads from files stands in no argument.
        files = [f',{option}=$(cat "${at}")' for at, option in zip(range(2, len(argv) - 3), SECRETS)]
        assert argv[2] == f'printf %s "$1{"".join(files)}" >/dev/nvme-fabrics'
        words = dict(word.partition("=")[::2] for word in argv[4].split(","))
        words.update((option, self.host.files.read(path).strip()) for option, path in zip(SECRETS, argv[5:]))
        if words.get("traddr") in self.keys and words.get("dhchap_secret") != self.keys[words["traddr"]]:
            return Completed(1, "", "sh: 1: printf: write error: Connection refused\n")
        if words.get("traddr") in self.dead:
            return Completed(1, "", "sh: 1: printf: write error: Connection refused\n")
        place = place_of(words)
        for folder in (self.root / "sys/class/nvme").iterdir():
            if words["nqn"] == DISCOVERY or folder.name == "nvme0":
                continue
            if (folder / "address").read_text().rpartition(",src_addr")[0] == place and (
                folder / "subsysnqn"
            ).read_text().strip() == words["nqn"]:
                error = self._matches_host(folder, words)
                if error:
                    return Completed(1, "", f"sh: 1: printf: write error: {error}\n")
        self.connect(words)
        return Completed(0, "", "")

    @staticmethod
    def _matches_host(folder: Path, words: Mapping[str, str]) -> str:
        """By nvmf_ctlr_matches_baseopts() and nvmf_host_add() of drivers/nvme/host (Linux 6.12)."""
        shown = [(folder / name, words[name]) for name in ("hostnqn", "hostid")]
        same = {path.read_text().strip() == value for path, value in shown if path.exists()}
        return "" if same == {False} else "Invalid argument" if False in same else "Operation already in progress"

    def connect(self, words: Mapping[str, str]) -> str:
        nqn = words["nqn"]
        number = next(n for n in range(1, 99) if not (self.root / f"sys/class/nvme/nvme{n}").exists())
        shown = {
            "transport": words["transport"],
            "address": f"{place_of(words)},src_addr=10.10.0.7",
            "state": "live",
            "subsysnqn": words.get("unique", nqn),
            "cntrltype": "discovery" if nqn == DISCOVERY else "io",
            "queue_count": str(min(int(words.get("nr_io_queues", 0 if nqn == DISCOVERY else 4)), self.allows) + 1),
            "sqsize": str(int(words.get("queue_size", 128)) - 1),
            "kato": words.get("keep_alive_tmo", "5"),
            "reconnect_delay": words.get("reconnect_delay", "10"),
            "ctrl_loss_tmo": _shown(words.get("ctrl_loss_tmo", "600"), words.get("reconnect_delay", "10")),
            "fast_io_fail_tmo": words.get("fast_io_fail_tmo", "off"),
            "delete_controller": "",
            **{name: words[name] for name in ("hostnqn", "hostid") if name in words},
            **({option: words.get(option, "none") for option in SECRETS} if self.authenticates else {}),
        }
        self._write(f"sys/class/nvme/nvme{number}", shown)
        if nqn == DISCOVERY:
            return f"nvme{number}"
        subsystem = self.subsystem(nqn) or self.root / f"sys/class/nvme-subsystem/nvme-subsys{number}"
        if not subsystem.exists():
            self._write(str(subsystem.relative_to(self.root)), {"subsysnqn": nqn, "iopolicy": "numa"})
            if self.multipath:
                self._disk(str(subsystem.relative_to(self.root)), number)
        if not self.multipath:
            self._disk(f"sys/class/nvme/nvme{number}", number)
        (subsystem / f"nvme{number}").mkdir()
        return f"nvme{number}"

    def read_log(self, argv: Sequence[str]) -> Completed:
        """What the program for it says, which asks the character device of a controller."""
        controller = argv[4].rpartition("/")[2]
        folder = self.root / "sys/class/nvme" / controller
        assert (folder / "cntrltype").read_text() == "discovery\n"
        address = (folder / "address").read_text().partition(",")[0].partition("=")[2]
        self.asked.append(address)
        told = self.tells.get(address, ())
        if isinstance(told, Completed):
            return told
        return Completed(0, base64.b64encode(b"".join((entry(ITSELF), *told))).decode(), "")

    def _disk(self, folder: str, number: int) -> None:
        for place in (f"{folder}/nvme{number}n1", f"sys/class/block/nvme{number}n1"):
            self._write(place, {"dev": f"259:{number}"})

    def subsystem(self, nqn: str) -> Optional[Path]:
        for folder in (self.root / "sys/class/nvme-subsystem").glob("nvme*"):
            if (folder / "subsysnqn").read_text().strip() == nqn:
                return folder
        return None

    def _write(self, folder: str, values: Mapping[str, str]) -> None:
        (self.root / folder).mkdir(parents=True)
        for name, value in values.items():
            (self.root / folder / name).write_text(f"{value}\n")

    def _delete(self, kernel: KernelFiles, path: re.Match[str], value: str) -> None:
        nqn = (self.root / f"sys/class/nvme/{path[1]}/subsysnqn").read_text().strip()
        for disk in (self.root / f"sys/class/nvme/{path[1]}").glob("nvme*n*"):
            shutil.rmtree(self.root / "sys/class/block" / disk.name)
        shutil.rmtree(self.root / f"sys/class/nvme/{path[1]}")
        subsystem = self.subsystem(nqn)
        if subsystem is None:
            return
        (subsystem / path[1]).rmdir()
        if not [one for one in subsystem.glob("nvme*") if not (one / "dev").exists()]:
            for disk in subsystem.glob("nvme*n*"):
                shutil.rmtree(self.root / "sys/class/block" / disk.name)
            shutil.rmtree(subsystem)

    def _policy(self, kernel: KernelFiles, path: re.Match[str], value: str) -> None:
        if value == "queue-depth":
            raise OSError(22, "Invalid argument", path[0])
        kernel.store(path[0], value)

    # The kernel keeps how often it tries, and shows that times how long it waits before each.
    def _delay(self, kernel: KernelFiles, path: re.Match[str], value: str) -> None:
        place = f"/sys/class/nvme/{path[1]}/ctrl_loss_tmo"
        before, loss = kernel.read(path[0]).strip(), kernel.read(place).strip()
        kernel.store(path[0], value)
        if loss != "off":
            kernel.store(place, str(int(loss) // int(before) * int(value)))

    def _loss(self, kernel: KernelFiles, path: re.Match[str], value: str) -> None:
        kernel.store(path[0], _shown(value, kernel.read(f"/sys/class/nvme/{path[1]}/reconnect_delay").strip()))

    def systemctl(self, argv: Sequence[str]) -> Completed:
        wants = self.root / WANTS.lstrip("/")
        if "enable" in argv:
            wants.parent.mkdir(parents=True, exist_ok=True)
            wants.symlink_to(UNIT)
        elif "disable" in argv and wants.is_symlink():
            wants.unlink()
            wants.parent.rmdir()
        return shown_by_systemctl(argv) if argv[1] == "show" else Completed(0, "", "")

    def lose(self, controller: str) -> None:
        (self.root / f"sys/class/nvme/{controller}/state").write_text("connecting\n")

    def mount(self, disk: str) -> None:
        number = (self.root / f"sys/class/block/{disk}/dev").read_text().strip()
        with open(self.root / "proc/self/mountinfo", "a", encoding="utf-8") as stream:
            stream.write(f"61 25 {number} / /data rw,relatime shared:61 - xfs /dev/{disk} rw\n")

    @property
    def connected(self) -> List[str]:
        """The addresses of the connections that there are."""
        texts = [path.read_text() for path in (self.root / "sys/class/nvme").glob("*/address")]
        return sorted(found[1] for text in texts for found in [re.match("traddr=([^,]+)", text)] if found)

    def policy(self, nqn: str) -> str:
        subsystem = self.subsystem(nqn)
        return "" if subsystem is None else (subsystem / "iopolicy").read_text().strip()

    def run(self, *subsystems: Mapping[str, Any], check_mode: bool = False, **more: Any) -> Outcome:
        params = {"subsystems": [dict(subsystem) for subsystem in subsystems], **more}
        validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate(params)
        assert validated.error_messages == []
        outcome = converge(CONCERN, validated.validated_parameters, self.host, check_mode=check_mode)
        if outcome.error is not None:
            raise outcome.error
        return outcome


REFERRAL, SUBSYSTEM, ITSELF = 1, 2, 3


def entry(
    kind: int = SUBSYSTEM, nqn: str = DISCOVERY, address: str = "10.10.0.5", port: str = "4420", **more: int
) -> bytes:
    """An entry of a discovery log (NVM Express Base Specification, Discovery Log Page Entry)."""
    head = struct.pack("<BBBB", more.get("transport", 3), 2 if ":" in address else 1, kind, more.get("treq", 0))
    head = struct.pack("<10sH20x", head, more.get("flags", 0))
    return struct.pack("<32s32s192x256s256s256x", head, port.encode(), nqn.encode(), address.encode())


def place_of(words: Mapping[str, str]) -> str:
    names = ("traddr", "trsvcid", "host_traddr", "host_iface")
    return ",".join(f"{name}={words.get(name)}" for name in names if name in words)


def _shown(loss: str, delay: str) -> str:
    return "off" if int(loss) < 0 else str(-(-int(loss) // int(delay)) * int(delay))
