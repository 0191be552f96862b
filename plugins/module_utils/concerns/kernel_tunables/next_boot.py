# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the next boot brings of sysctl keys: as it is, and as a plan leaves it.

The kernel's command line comes first, then systemd-sysctl with sysctl.d, and tuned last, which by default applies
sysctl.d of /run and /etc and /etc/sysctl.conf once more behind its profile (``reapply_sysctl``).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Dict, Iterator, Mapping, Optional, Tuple

from ..._core.setting import Scalar
from ..._kinds.own_files import header_of
from ..._kinds.tunables import COMMAND_LINE, SYSCTL_CONF, SYSCTL_D, BootAssignment, assigned
from ..._linux import sysctl_d, tuned
from .keys import DEFAULT_RT_PERIOD, ZEROED, dotted, in_order, interface_of, module_of, read_by_kernel
from .state import FILE, NAME, KernelTunablesState, as_scalar

if TYPE_CHECKING:
    from typing import Sequence

    from ..._linux.sysctl_d import SysctlLine

TUNED = "tuned"

Values = Dict[str, Tuple[Scalar, Optional[BootAssignment]]]


def file_text(values: Mapping[str, str]) -> Optional[str]:
    """Our file. A key that may not be there yet is no failure of systemd-sysctl or sysctl(8)."""
    if not values:
        return None
    lines = (
        f"{'-' if module_of(key) or interface_of(key) else ''}{dotted(key)} = {value}\n"
        for key, value in in_order(values, DEFAULT_RT_PERIOD).items()
    )
    return header_of(NAME) + "".join(lines)


def rules_text(values: Mapping[str, str]) -> Optional[str]:
    """The udev rules that let systemd-sysctl set the keys of a module when it is loaded, as sysctl.d(5) shows."""
    keys: Dict[str, str] = {}
    for key in values:
        module = module_of(key)
        if module:
            keys[module] = f"{keys.get(module, '')} --prefix=/{key}"
    lines = (
        f'ACTION=="add", SUBSYSTEM=="module", KERNEL=="{module}", RUN+="/usr/lib/systemd/systemd-sysctl{prefixes}"\n'
        for module, prefixes in keys.items()
    )
    return header_of(NAME) + "".join(lines) if keys else None


def lines_with(state: KernelTunablesState, text: Optional[str]) -> Tuple[SysctlLine, ...]:
    """The lines of sysctl.d with another text of our file."""
    if text == state.file.text:
        return state.sources.lines
    others = [line for line in state.sources.lines if line.path != FILE]
    place = os.path.basename(FILE)
    earlier = [line for line in others if os.path.basename(line.path) < place]
    return (*earlier, *sysctl_d.parse(FILE, text or ""), *others[len(earlier) :])


def boot_values(state: KernelTunablesState, lines: Sequence[SysctlLine]) -> Values:
    """What each key is after the next boot, and who says so; None where nobody does and the kernel's own stays."""
    keys = tuple(state.found)
    values: Values = dict.fromkeys(keys, (None, None))
    for one in state.sources.writes(lines, keys):
        if one.tunable not in values:
            continue
        before = values[one.tunable][0]
        text = left_by(one, state.found[one.tunable] if before is None else str(before), state)
        if text is None:
            continue
        values[one.tunable] = (as_scalar(text), one)
        other = ZEROED.get(one.tunable)
        if other in values and text != "0":
            values[other] = (0, one)
    return values


def left_by(one: BootAssignment, before: Optional[str], state: KernelTunablesState) -> Optional[str]:
    """The value of a key after this line; None where the kernel refuses it, or where tuned leaves the one before it."""
    value = tuned.modified(one.value, before) if one.owner == TUNED else one.value
    return None if value is None else read_by_kernel(one.tunable, value, state.found[one.tunable])


def said_by_others(state: KernelTunablesState, keys: Sequence[str]) -> Iterator[BootAssignment]:
    """What each of the others says last of these keys."""
    sources = state.sources
    linked = {(line.number, line.key) for line in sources.conf}
    of_conf = os.path.basename(sysctl_d.CONF)
    others = [
        line
        for line in sources.lines
        # What a link brings to boot is said once, by the file that it leads to.
        if line.path != FILE and not (line.path.endswith(of_conf) and (line.number, line.key) in linked)
    ]
    for claims in (
        assigned(COMMAND_LINE, sources.command_line, keys),
        assigned(SYSCTL_D, others, keys),
        assigned(SYSCTL_CONF, sources.conf, keys),
        sources.tuned,
        sources.writers,
    ):
        yield from {one.tunable: one for one in claims if one.tunable in keys}.values()
