# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services and scripts that send interrupts and queues to CPUs at boot: by their files, or by the scripts of
mlnx-tools.

The number of an interrupt is another one after a boot, so a line that names a number may be about any interrupt.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Iterator, Mapping, Optional, Sequence, Tuple

from ..._core.regex import regex
from ..._kinds import foreign_values
from ..._kinds.foreign_values import Said
from ..._linux import boot_writers, cpulist
from ..._linux.masks import parse_mask
from .devices import INTERRUPT, IRQ
from .state import text_of

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files
    from ..._kinds.foreign_values import ForeignValue
    from ..._linux.boot_writers import BootWrite
    from .state import WantedAffinity

NET = "/sys/class/net"
INFINIBAND = "/sys/class/infiniband"
# They get the interfaces or RDMA devices as arguments, and work the CPUs out.
SCRIPTS = ("set_irq_affinity.sh", "set_irq_affinity_bynode.sh", "set_irq_affinity_cpulist.sh")
# This one is for all cards of the driver, and has other arguments to end that.
OF_ALL, DRIVERS = "mlnx_affinity", "mlx"
STARTS = ("start", "restart")
FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin")
_CALLED = regex(rf"\S*/{OF_ALL}\b")
_LITERAL = regex(r"/[\w./+-]*")
# MLNX_OFED's service, and its configuration, a script that it sources.
OPENIBD, OPENIBD_SCRIPT = ("openibd", "openibd.service"), "/etc/init.d/openibd"
OPENIBD_CONF, TUNES = "/etc/infiniband/openib.conf", "RUN_AFFINITY_TUNER"


def read(files: Files, wants: Sequence[WantedAffinity], scope: Scope) -> Tuple[ForeignValue, ...]:
    """The CPUs that other owners give to these interrupts and queues."""
    writes = [
        one
        for one in boot_writers.read(files)
        if one.target.startswith((f"{IRQ}/", f"{NET}/")) or one.target in (*SCRIPTS, OF_ALL)
    ]
    if not writes:
        return ()
    numbers = {
        (device.address, f"{INTERRUPT} {interrupt.name}"): interrupt.number
        for device in {want.device.address: want.device for want in wants if want.device is not None}.values()
        for interrupt in device.interrupts
    }
    lines = [(one, tuple(_said(files, one, wants, numbers))) for one in writes]
    return foreign_values.read(files, scope, lines)


def _said(
    files: Files, write: BootWrite, wants: Sequence[WantedAffinity], numbers: Mapping[Tuple[str, str], int]
) -> Iterator[Said]:
    if write.target in SCRIPTS or write.target == OF_ALL:
        if write.target in SCRIPTS or _is_run(files, write):
            yield from (Said(want.object, want.setting, None) for want in wants if _is_moved(files, write, want))
        return
    is_glob = any(sign in write.target for sign in "*?[")
    for want in wants:
        if want.path:
            if fnmatchcase(want.path, write.target):
                yield Said(want.object, want.setting, _cpus(write.value, is_list=False))
            continue
        for name in ("smp_affinity", "smp_affinity_list"):
            path = f"{IRQ}/{numbers[want.key]}/{name}"
            # There may be thousands of interrupts, and a line for each.
            if path == write.target or (is_glob and fnmatchcase(path, write.target)):
                cpus = _cpus(write.value, is_list=name.endswith("_list"))
                yield Said(want.object, want.setting, cpus, in_doubt=not is_glob)


def _is_run(files: Files, write: BootWrite) -> bool:
    """Whether mlnx_affinity is there for this line.

    MLNX_OFED's openibd has a line for it on every node: ``if [ -x /usr/sbin/mlnx_affinity ] && [
    "X${RUN_AFFINITY_TUNER}" == "Xyes" ]``. mlnxofedinstall (set_mlnx_affinity) has openib.conf say no, unless asked.
    """
    if write.in_doubt and (write.owner in OPENIBD or write.path == OPENIBD_SCRIPT):
        from ..._linux.network_writers import assignments

        said = dict(assignments(files.read_optional(OPENIBD_CONF) or ""))
        return said.get(TUNES, "").split()[:1] == ["yes"] and files.exists(f"/usr/sbin/{OF_ALL}")
    return any(files.exists(f"{folder}/{OF_ALL}") for folder in FOLDERS) or _is_elsewhere(files, write.path)


def _is_elsewhere(files: Files, script: str) -> bool:
    """Whether a script has it from another folder, which may be known only when it runs."""
    paths = (found[0].lstrip("\"'`$(") for found in _CALLED.finditer(files.read_optional(script) or ""))
    return any(not _LITERAL.fullmatch(path) or files.exists(path) for path in paths)


def _is_moved(files: Files, write: BootWrite, want: WantedAffinity) -> bool:
    """Whether a script moves the interrupts of this device."""
    device = want.device
    if device is None:
        return False
    if write.target == OF_ALL:
        return device.driver.startswith(DRIVERS) and any(word in write.arguments for word in STARTS)
    return any(
        word == "*" or word in device.interfaces or device.address in files.resolve(f"{INFINIBAND}/{word}")
        for word in write.arguments
    )


def _cpus(value: Optional[str], *, is_list: bool) -> Optional[str]:
    try:
        return None if value is None else text_of(cpulist.parse(value) if is_list else parse_mask(value))
    except ValueError:
        # The kernel refuses it, or the script only knows it.
        return None
