# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with NVMe disks whose queues follow the rules of block/blk-sysfs.c, blk-mq.c and elevator.c."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_scheduler.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, KernelFiles, build

RELEASE = "6.12.0-1-amd64"
RULES = "/etc/udev/rules.d/99-gpufleet-nvme_scheduler.rules"
MODULES = "/etc/modules-load.d/gpufleet-nvme_scheduler.conf"


@dataclass(frozen=True)
class Drive:
    """A disk in a slot. With ``paths`` above 0 it is native multipath: a head, and so many hidden devices."""

    number: int
    serial: str = ""
    model: str = "SAMSUNG MZWLJ3T8HBLS-00007"
    scheduler: str = "[none] mq-deadline"
    nr_requests: int = 1023
    tags: int = 1023
    read_ahead_kb: int = 128
    wbt: Optional[str] = "2000"
    zoned: str = "none"
    paths: int = 0

    @property
    def known_serial(self) -> str:
        return self.serial or f"S{self.number:04d}"

    def address(self, path: int = 0) -> str:
        return f"0000:{0x40 + self.number:02x}:{path:02x}.0"


def drive_files(drive: Drive) -> Tuple[Dict[str, str], Dict[str, str]]:
    n = drive.number
    files: Dict[str, str] = {}
    links: Dict[str, str] = {}
    controllers = []
    for path in range(max(drive.paths, 1)):
        controller = f"nvme{n + 100 * path}"
        place = f"/sys/devices/pci0000:00/{drive.address(path)}/nvme/{controller}"
        controllers.append((controller, place))
        files[f"{place}/serial"] = f"{drive.known_serial:<20}\n"
        files[f"{place}/model"] = f"{drive.model:<40}\n"
        files[f"{place}/address"] = f"{drive.address(path)}\n"
        files[f"{place}/transport"] = "pcie\n"
    if drive.paths:
        subsystem = f"/sys/devices/virtual/nvme-subsystem/nvme-subsys{n}"
        head = f"{subsystem}/nvme{n}n1"
        files[f"{subsystem}/serial"] = f"{drive.known_serial}\n"
        files[f"{subsystem}/model"] = f"{drive.model}\n"
        files.update(bio_files(head, read_ahead_kb=drive.read_ahead_kb))
        files[f"{head}/nsid"] = "1\n"
        links[f"/sys/block/nvme{n}n1"] = head
        for path, (controller, place) in enumerate(controllers):
            hidden = f"{place}/nvme{n}c{n + 100 * path}n1"
            files.update(request_files(hidden, drive))
            links[f"/sys/block/nvme{n}c{n + 100 * path}n1"] = hidden
            links[f"{subsystem}/{controller}"] = place
    else:
        disk = f"{controllers[0][1]}/nvme{n}n1"
        files.update(request_files(disk, drive))
        files[f"{disk}/nvme{n}n1p1/partition"] = "1\n"
        links[f"/sys/block/nvme{n}n1"] = disk
    return files, links


def bio_files(place: str, *, read_ahead_kb: int = 128) -> Dict[str, str]:
    return {
        f"{place}/queue/scheduler": "none\n",
        f"{place}/queue/read_ahead_kb": f"{read_ahead_kb}\n",
        f"{place}/queue/max_sectors_kb": "128\n",
        f"{place}/queue/max_hw_sectors_kb": "2048\n",
        f"{place}/queue/rotational": "0\n",
        f"{place}/queue/zoned": "none\n",
    }


def request_files(place: str, drive: Drive) -> Dict[str, str]:
    files = {
        f"{place}/nsid": "1\n",
        f"{place}/mq/0/nr_tags": f"{drive.tags}\n",
        f"{place}/queue/scheduler": f"{drive.scheduler}\n",
        f"{place}/queue/nr_requests": f"{drive.nr_requests}\n",
        f"{place}/queue/read_ahead_kb": f"{drive.read_ahead_kb}\n",
        f"{place}/queue/rq_affinity": "1\n",
        f"{place}/queue/nomerges": "0\n",
        f"{place}/queue/io_timeout": "30000\n",
        f"{place}/queue/max_sectors_kb": "256\n",
        f"{place}/queue/max_hw_sectors_kb": "2048\n",
        f"{place}/queue/rotational": "0\n",
        f"{place}/queue/zoned": f"{drive.zoned}\n",
    }
    if drive.wbt is not None:
        files[f"{place}/queue/wbt_lat_usec"] = f"{drive.wbt}\n"
    return files


def machine(root: Path, drives: Sequence[Drive], more: Optional[Mapping[str, str]] = None) -> FakeHost:
    """A host with these drives; ``more`` are further files."""
    files = {
        "/proc/sys/kernel/osrelease": f"{RELEASE}\n",
        f"/lib/modules/{RELEASE}/modules.dep": (
            "kernel/block/kyber-iosched.ko.xz:\nkernel/block/bfq.ko.xz:\n"
            "kernel/fs/ext4/ext4.ko.xz: kernel/lib/crc16.ko.xz\n"
        ),
        "/etc/udev/rules.d/README": "rules of the administrator\n",
        "/etc/modules-load.d/modules.conf": "# none\n",
        "/proc/cmdline": "root=/dev/sda1 ro\n",
        "/var/lib/dbus/machine-id": "0123456789abcdef0123456789abcdef\n",
    }
    all_links: Dict[str, str] = {}
    for drive in drives:
        made, linked = drive_files(drive)
        files.update(made)
        all_links.update(linked)
    files.update(more or {})
    host = build(root, files, all_links)
    host.files.rules.extend(
        [
            (r"(.*/queue)/scheduler", set_scheduler),
            (r"(.*)/queue/nr_requests", set_nr_requests),
            (r"(.*)/queue/max_sectors_kb", set_max_sectors),
        ]
    )
    return host


def set_scheduler(files: KernelFiles, path: re.Match[str], value: str) -> None:
    queue = path.group(1)
    text = files.read(f"{queue}/scheduler")
    if "[" not in text:
        raise refused(path.group())
    words = [word.strip("[]") for word in text.split()]
    active = re.search(r"\[(\S+)\]", text)
    if value not in words:
        # request_module("<name>-iosched") brings what there is.
        if value not in ("kyber", "bfq"):
            raise refused(path.group())
        words.append(value)
        text = text.rstrip("\n") + f" {value}\n"
        Path(files.locate(f"{queue}/scheduler")).write_text(text)
    if active and active.group(1) == value:
        return
    files.store(f"{queue}/scheduler", value)
    tags = int(files.read(f"{os.path.dirname(queue)}/mq/0/nr_tags"))
    files.store(f"{queue}/nr_requests", str(tags if value == "none" else 2 * min(tags, 128)))
    if files.exists(f"{queue}/wbt_lat_usec"):
        if value == "bfq":
            files.store(f"{queue}/wbt_lat_usec", "0")
        elif active and active.group(1) == "bfq":
            files.store(f"{queue}/wbt_lat_usec", "2000")


def set_nr_requests(files: KernelFiles, path: re.Match[str], value: str) -> None:
    device = path.group(1)
    scheduler = files.read(f"{device}/queue/scheduler")
    bound = int(files.read(f"{device}/mq/0/nr_tags")) if "[none]" in scheduler else 2048
    if int(value) > bound:
        raise refused(path.group())
    files.store(path.group(), str(max(4, int(value))))


def set_max_sectors(files: KernelFiles, path: re.Match[str], value: str) -> None:
    if int(value) > int(files.read(f"{path.group(1)}/queue/max_hw_sectors_kb")):
        raise refused(path.group())
    files.store(path.group(), value)


def refused(path: str) -> OSError:
    return OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)


def params(*queues: Mapping[str, Any], **shared: Any) -> Dict[str, Any]:
    """Parameters as Ansible would hand them over, defaults filled in. Raises ``ValueError`` with its message."""
    validator = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options})
    result = validator.validate({"queues": [dict(queue) for queue in queues], **shared})
    if result.error_messages:
        raise ValueError("; ".join(result.error_messages))
    validated: Dict[str, Any] = result.validated_parameters
    return validated


def run(host: FakeHost, *queues: Mapping[str, Any], check_mode: bool = False, **shared: Any) -> Outcome:
    outcome = converge(CONCERN, params(*queues, **shared), host, check_mode=check_mode)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def value(host: FakeHost, device: str, file: str) -> str:
    """What the machine says."""
    text = host.files.read(f"/sys/block/{device}/queue/{file}").strip()
    active = re.search(r"\[(\S+)\]", text)
    return active.group(1) if active else text


def tunables_written(host: FakeHost) -> List[Tuple[str, str, str]]:
    """The writes into queues: device, file, value, in order."""
    return [(path.split("/")[-3], path.split("/")[-1], text) for kind, path, text in host.files.log if kind == "set"]
