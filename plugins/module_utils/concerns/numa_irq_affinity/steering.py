# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The queues of network interfaces and the CPUs they are steered to (Documentation/networking/scaling.rst).

RPS hands the packets of a receive queue to CPUs; XPS says which CPUs use a transmit queue.
"""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Unmanaged
from ..._core.value import replace
from ..._linux.masks import parse_mask
from .devices import noted
from .state import Key, WantedAffinity

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from .model import Cpus, IrqDevice, IrqTarget

RPS, XPS = "rps", "xps"
# The queues that each is about, and its file in the folder of a queue.
QUEUE_FILES: Mapping[str, Tuple[str, str]] = {RPS: ("rx-", "rps_cpus"), XPS: ("tx-", "xps_cpus")}
NO_INTERFACE = "it has no network interface"
NO_ANSWER = "the kernel does not steer it, as it does not steer the only queue of an interface"
NO_CLASS = "the kernel does not steer it, as it is of no traffic class"
ISOLATED = "the kernel hands no packets to isolated CPUs, and the entry has no others"
REFUSED = "the kernel refused to steer it, and is not asked again until the next boot"

Queues = Tuple[Tuple[WantedAffinity, ...], Dict[Key, Unmanaged]]
"""What can be steered, and by key what cannot, with the reason."""


def observe_queues(files: Files, targets: Sequence[IrqTarget], *, isolated: Cpus) -> Queues:
    """What the declared queues are steered to, and shall be."""
    wants: List[WantedAffinity] = []
    lacking: Dict[Key, Unmanaged] = {}
    for target in targets:
        device = target.device
        for kind, switch in ((RPS, target.rps), (XPS, target.xps)):
            if switch and not device.interfaces:
                lacking[device.address, kind] = Unmanaged(device.name, kind, NO_INTERFACE)
            for interface in device.interfaces if switch is not None else ():
                queues, without = read(files, device, interface, [kind])
                lacking.update(without)
                # Since 5.9 the kernel takes isolated CPUs out of a mask of RPS without a word, and refuses no rest.
                cpus = target.eligible - isolated if kind == RPS else target.eligible
                if switch and not cpus:
                    lacking.update({want.key: Unmanaged(interface, want.setting, ISOLATED) for want in queues})
                else:
                    wants.extend(_steered(queues, cpus if switch else frozenset(), each=kind == XPS))
    return tuple(wants), lacking


def _steered(queues: Sequence[WantedAffinity], cpus: Cpus, *, each: bool) -> Iterable[WantedAffinity]:
    """The queues with all CPUs, or, with ``each``, with every CPU in one of them in turn."""
    ordered = sorted(cpus)
    for index, want in enumerate(queues):
        yield replace(want, wanted=frozenset(ordered[index :: len(queues)]) if each else cpus)


def read(files: Files, device: IrqDevice, interface: str, kinds: Iterable[str]) -> Queues:
    """The queues of an interface, in order and as they are."""
    wants: List[WantedAffinity] = []
    lacking: Dict[Key, Unmanaged] = {}
    refused = noted(files)
    identity = device.address if len(device.interfaces) == 1 else f"{device.address} {interface}"
    folder = f"/sys/class/net/{interface}/queues"
    names = sorted(files.names(folder), key=_number)
    for kind in kinds:
        prefix, file = QUEUE_FILES[kind]
        for name in names:
            if not name.startswith(prefix):
                continue
            key, path = (identity, f"{kind} {name}"), f"{folder}/{name}/{file}"
            text, without = _ask(files, path)
            if text is None or key in refused:
                lacking[key] = Unmanaged(interface, key[1], without or REFUSED)
            else:
                cpus = parse_mask(text)
                wants.append(WantedAffinity(interface, key, wanted=cpus, effective=cpus, path=path))
    return tuple(wants), lacking


def _ask(files: Files, path: str) -> Tuple[Optional[str], str]:
    """What the file of a queue says, or why it says nothing.

    A queue that is the only one has the file, and reading it says that there is no such thing.
    """
    try:
        text = files.read_optional(path)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None, NO_CLASS
    return text, NO_ANSWER if text is None else ""


def _number(name: str) -> Tuple[str, int]:
    """Queues in the order of their numbers."""
    match = re.fullmatch(r"(\D*)(\d+)", name)
    return (match[1], int(match[2])) if match else (name, 0)
