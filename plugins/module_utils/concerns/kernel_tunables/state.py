# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was seen of sysctl: values in effect, and everyone who gives them one at boot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, Mapping, Optional, Sequence, Tuple

from ..._core.setting import Scalar
from ..._core.value import field, frozen
from ..._kinds import tunables
from ..._kinds.own_files import OwnFile
from ..._linux import sysctl_d
from .keys import NR_OPEN, ZEROED, decimals, found, interface_of, module_of

if TYPE_CHECKING:
    from ..._core.errors import DeclarationError
    from ..._core.protocols import Files, Host
    from ..._kinds.open_files import NofileLine
    from ..._kinds.tunables import SysctlSources
    from .spec import KernelTunablesDeclaration

NAME = "kernel_tunables"
PROC = "/proc/sys"
# Behind 99-sysctl.conf, the link to /etc/sysctl.conf: of all lines for a key the last counts.
FILE = "/etc/sysctl.d/zz-gpufleet-kernel_tunables.conf"
RULES = "/etc/udev/rules.d/99-gpufleet-kernel_tunables.rules"
KUBELET_FILES = ("/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet.conf")


@frozen
class KernelTunablesState:
    """Everything a plan needs, read once. Keys are paths below /proc/sys.

    ``found`` has the values in effect, None for a key that is not there. ``sources`` are all who set them at boot, our
    file too. ``refusals`` are why declared keys cannot have their values. ``nofile`` are the hard limits of
    sessions, the highest first; none where ``fs.nr_open`` is not looked at.
    """

    found: Mapping[str, Optional[str]]
    sources: SysctlSources
    kubelet: str
    """A file of a kubelet; empty where there is none."""
    file: OwnFile
    rules: OwnFile
    refusals: Mapping[str, DeclarationError] = field(default_factory=dict)
    nofile: Tuple[NofileLine, ...] = ()


def read_state(host: Host, declaration: KernelTunablesDeclaration) -> KernelTunablesState:
    files = host.files
    read = sysctl_d.read_files(files)
    ours = [line.key for line in read.boot if line.path == FILE]
    keys = tuple(dict.fromkeys(with_companions((*declaration.values, *declaration.looked_at, *ours))))
    seen = {key: _read_value(files, key) for key in keys}
    return KernelTunablesState(
        found=seen,
        sources=tunables.read_sysctl_sources(files, read, seen),
        kubelet=next((path for path in KUBELET_FILES if files.exists(path)), ""),
        file=OwnFile(FILE, "file", files.read_optional(FILE)),
        rules=OwnFile(RULES, "rules", files.read_optional(RULES)),
        nofile=_read_nofile(files) if NR_OPEN in seen else (),
    )


def _read_nofile(files: Files) -> Tuple[NofileLine, ...]:
    from ..._kinds.open_files import hard_limits

    return hard_limits(files)


def with_companions(keys: Sequence[str]) -> Iterator[str]:
    """Keys, and those that a write into one of them changes too."""
    for key in keys:
        yield key
        if key in ZEROED:
            yield ZEROED[key]


def _read_value(files: Files, key: str) -> Optional[str]:
    path = f"{PROC}/{key}"
    try:
        text = None if files.is_folder(path) else files.read_optional(path)
    except PermissionError:
        # What nobody can read is a command, such as vm.compact_memory.
        if not files.exists(path) or files.mode(path) & 0o444:
            raise
        return None
    return None if text is None else found(text)


def as_scalar(text: Optional[str]) -> Scalar:
    numbers = decimals(text or "")
    return numbers[0] if len(numbers) == 1 else text


def missing(key: str, state: KernelTunablesState) -> Tuple[str, str]:
    """Why a key is not there that may come, and what it takes; empty for one that is there, or does not come."""
    if state.found[key] is not None:
        return "", ""
    module, interface = module_of(key), interface_of(key)
    if module:
        return f"the module {module} is not loaded", "load_module"
    return (f"there is no interface {interface}", "add_interface") if interface else ("", "")
