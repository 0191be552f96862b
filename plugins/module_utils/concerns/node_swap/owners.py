# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else has a word in it: cloud-init, the agent of Azure and scripts bring swap again, and kubelet does not start
with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator, Tuple

from ..._core.change import THEM, US, WINNER_UNKNOWN, Conflict
from ..._linux import boot_writers, systemd
from .sources import SERVICES
from .state import NODE, SWAP

if TYPE_CHECKING:
    from ..._core.protocols import Files

WAAGENT = "/etc/waagent.conf"
AGENTS = ("walinuxagent.service", "waagent.service")
CLOUD = "/etc/cloud"
INSTANCE = "/var/lib/cloud/instance"
# What the cloud says of it: its vendor's, and the user's.
FOR_INSTANCE = ("vendor-cloud-config.txt", "vendor2-cloud-config.txt", "cloud-config.txt")
# swapspace of Debian, and systemd-swap of other distributions.
DAEMONS = ("swapspace.service", "systemd-swap.service")
KUBELET = "/var/lib/kubelet/config.yaml"


def of_swap_off(files: Files) -> Tuple[Conflict, ...]:
    """Those who make swap."""
    return (*_agent(files), *_cloud_init(files), *_daemons(files), *_writers(files))


def of_swap_on(files: Files) -> Tuple[Conflict, ...]:
    """kubelet does not start while there is swap, unless its configuration lets it (failSwapOn, true by default)."""
    text = files.read_optional(KUBELET)
    if text is None:
        return ()
    found = next(_matching(text, r"failSwapOn:\s*(\S+)"), None)
    if found is not None and found[1] == "false":
        return ()
    return (Conflict("kubelet", KUBELET, found[0] if found else None, NODE, "failSwapOn", "true", THEM),)


def _agent(files: Files) -> Iterator[Conflict]:
    text = files.read_optional(WAAGENT)
    if text is None or not any(systemd.enabled(files, unit) == systemd.ENABLED for unit in AGENTS):
        return
    sizes = [value for _number, value in _matching(text, r"ResourceDisk\.SwapSizeMB\s*=\s*(\d+)")]
    if sizes and int(sizes[-1]) == 0:
        return
    for number, value in _matching(text, r"ResourceDisk\.EnableSwap\s*=\s*(\w+)"):
        if value.lower() == "y":
            yield Conflict("WALinuxAgent", WAAGENT, number, NODE, "ResourceDisk.EnableSwap", value, THEM)


def _daemons(files: Files) -> Iterator[Conflict]:
    """Those that make swap whenever they find that there is too little, so that a mask alone does not end it."""
    units = systemd.unit_files(files)
    for unit in DAEMONS:
        if units.status(unit) == systemd.ENABLED:
            yield Conflict(unit, units.paths(unit)[0], None, NODE, SWAP, "as needed", THEM)


def _writers(files: Files) -> Iterator[Conflict]:
    """Services and scripts that run swapon(8); units that do nothing else are masked instead."""
    for one in boot_writers.read(files):
        if one.target == boot_writers.SWAP and one.owner not in SERVICES:
            wins = WINNER_UNKNOWN if one.in_doubt else THEM
            yield Conflict(one.owner, one.path, one.line, NODE, SWAP, one.value or "", wins)


def _cloud_init(files: Files) -> Iterator[Conflict]:
    """Its module mounts runs once for an instance: what it made then is in fstab, and it makes it for the next one."""
    if files.exists(f"{CLOUD}/cloud-init.disabled"):
        return
    folder = f"{CLOUD}/cloud.cfg.d"
    paths = [f"{CLOUD}/cloud.cfg", *(f"{folder}/{name}" for name in files.names(folder) if name.endswith(".cfg"))]
    wins = US if files.exists(f"{INSTANCE}/sem/config_mounts") else THEM
    for path in (*paths, *(f"{INSTANCE}/{name}" for name in FOR_INSTANCE)):
        key = ""
        for number, line in enumerate((files.read_optional(path) or "").splitlines(), 1):
            top = re.match(r"([A-Za-z_]+):", line)
            key = top[1] if top else key
            size = re.search(r"\bsize:\s*['\"]?([0-9A-Za-z.]+)", line) if key == "swap" else None
            if size and size[1] != "0":
                yield Conflict("cloud-init", path, number, NODE, SWAP, size[1], wins)
            elif key == "mounts" and re.match(r"\s*-\s*\[[^#]*,\s*['\"]?swap['\"]?\s*[,\]]", line):
                yield Conflict("cloud-init", path, number, NODE, SWAP, line.strip(), wins)


def _matching(text: str, pattern: str) -> Iterator[Tuple[int, str]]:
    """The lines that are this assignment, by number, with the value."""
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(rf"\s*{pattern}", line)
        if found:
            yield number, found[1]
