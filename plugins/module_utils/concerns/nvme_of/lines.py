# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is handed to the kernel for a connection, now and at boot, and the unit that does so at boot.

The kernel takes a connection as one line at /dev/nvme-fabrics, so that nothing needs nvme-cli, and no connection that
others have declared in its files is touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Mapping, Optional, Sequence, Set

from ..._core.regex import regex
from ..._core.value import frozen
from ..._kinds.own_files import header_of
from ..._linux import systemd
from .spec import DISCOVERY, LOOP, NAME, NUMBERS, Connection, Key, Secrets, name_of

if TYPE_CHECKING:
    from .targets import Identity

UNIT = "gpufleet-nvme-of.service"
UNIT_PATH = f"{systemd.ETC}/{UNIT}"
DEVICE = "/dev/nvme-fabrics"
MODULES = {"tcp": "nvme-tcp", "rdma": "nvme-rdma", LOOP: "nvme-loop"}
# How long a target may take, in a run and at boot.
SECONDS = 60
# How long a discovery controller is kept without a sign of life, as nvme-cli has it, and that it is never given up.
KEPT = ("keep_alive_tmo=30", "ctrl_loss_tmo=-1")
# How long what discovery controllers tell of may take at boot, and ending that then.
TOLD_SECONDS, MARGIN_SECONDS = 120, 30
# What the kernel calls what stands in a key behind the transport.
WAY = ("traddr", "trsvcid", "host_traddr", "host_iface")
_IDENTITY = regex(r"hostnqn=([^,]+),hostid=([^,\"]+)")
_LINE = regex(r'printf %%s "(nqn=[^"]+)"')


@frozen
class Line:
    """What the kernel is handed for a connection, and the module that it needs for it.

    ``secrets`` are handed over too, from their files: nobody but root may see them, and anybody sees arguments.
    """

    name: str
    options: str
    module: str
    secrets: Secrets = ()

    @property
    def discovers(self) -> bool:
        """Whether it leads to a discovery controller, which has no disk."""
        return self.options.startswith(f"nqn={DISCOVERY},")


def identity_in(text: Optional[str]) -> Optional[Identity]:
    """The name and number of this host that our unit connects with; None if there is no unit."""
    found = _IDENTITY.search(text or "")
    if not found:
        return None
    from .targets import Identity

    return Identity(found[1], found[2])


def line_of(connection: Connection, identity: Identity) -> Line:
    words = [f"nqn={connection.nqn}", f"transport={connection.transport}"]
    words += [f"{name}={value}" for name, value in zip(WAY, connection.key[2:]) if value]
    words += [f"hostnqn={identity.nqn}", f"hostid={identity.number}"]
    words += KEPT if connection.nqn == DISCOVERY else ()
    words += [f"{NUMBERS[name].name}={value}" for name, value in connection.numbers.items()]
    return Line(name_of(connection.key), ",".join(words), MODULES[connection.transport], connection.secrets)


def unit_text(lines: Sequence[Line], policies: Mapping[str, str]) -> Optional[str]:
    """None where nothing is declared. A target that does not answer does not keep the others from being connected."""
    if not lines:
        return None
    commands: List[str] = [f"-/sbin/modprobe {module}" for module in dict.fromkeys(line.module for line in lines)]
    commands += [f"-/bin/sh -c 'printf %%s \"{line.options}{_secrets(line)}\" >{DEVICE}'" for line in lines]
    for nqn, policy in policies.items():
        commands.append(
            "-/bin/sh -c 'for one in /sys/class/nvme-subsystem/*; do "
            f'[ "$$(cat $$one/subsysnqn)" != "{nqn}" ] || echo {policy} >$$one/iopolicy; done\''
        )
    more, seconds = "", SECONDS * len(commands)
    if any(line.discovers for line in lines):
        from ..._linux.program import EXEC_START

        # What they tell of is connected before anybody mounts it. The boot service, which has no time to wait for
        # targets, leaves it to us. The program tells the journal itself what it did.
        more = "StandardOutput=null\n"
        commands.append(f"-{EXEC_START} boot --concern {NAME} --timeout {TOLD_SECONDS}")
        seconds += TOLD_SECONDS + MARGIN_SECONDS
    starts = "".join(f"ExecStart={command}\n" for command in commands)
    return f"""\
{header_of(NAME)}[Unit]
Description=Connect to NVMe subsystems as declared by gpufleet.node
Wants=network-online.target remote-fs-pre.target
After=network-online.target
Before=remote-fs-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
{more}TimeoutStartSec={seconds}
{starts}
[Install]
WantedBy=multi-user.target
"""


def _secrets(line: Line) -> str:
    return "".join(f",{option}=$$(cat {path})" for option, path in line.secrets)


def connected_by(text: Optional[str]) -> Set[Key]:
    """The keys of the connections that a unit of ours makes."""
    found = set()
    for options in _LINE.findall(text or ""):
        words = dict(word.partition("=")[::2] for word in options.split(","))
        address, port, here, interface = (words.get(name, "") for name in WAY)
        found.add((words.get("nqn", ""), words.get("transport", ""), address, port, here, interface))
    return found
