# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the exporter and the host engine are started, and with which file of counters.

The exporter takes its options with one dash or two, and ends where it gets two forms of the same (urfave/cli). Without
``-r`` it has a host engine in itself, beside the one of the machine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Optional, Sequence

from ..._core.regex import regex
from ..._kinds.own_files import header_of
from ..._linux import unit_command
from .spec import NAME, WATCHES

if TYPE_CHECKING:
    from typing import FrozenSet

PROGRAM = "dcgm-exporter"
COUNTERS = "/etc/dcgm-exporter/gpufleet-counters.csv"
SHIPPED_COUNTERS = "/etc/dcgm-exporter/default-counters.csv"
ADDRESS = ":9400"
ENGINE_PORT = "5555"
# Less than a run waits for systemctl, so that systemd says what happened.
HEALTH_SECONDS = 90
OPTIONS = {
    "counters": ("f", "collectors", "DCGM_EXPORTER_COLLECTORS"),
    "address": ("a", "address", "DCGM_EXPORTER_LISTEN"),
    "remote": ("r", "remote-hostengine-info", "DCGM_REMOTE_HOSTENGINE_INFO"),
}
_VALUE = r"""(?:"[^"]*"|'[^']*'|\S+)"""
_COUNTERS = regex(rf"\s+--?(?:f|collectors)(?:=|\s+){_VALUE}")


def option(words: Sequence[str], name: str, environment: Optional[object] = None) -> str:
    """The value of an option of the exporter, empty where neither its words nor its environment have it."""
    short, long, variable = OPTIONS[name]
    found = given(words, short, long)
    if not found and isinstance(environment, dict):
        found = str(environment.get(variable, ("", ""))[0])
    return found


def given(words: Sequence[str], short: str, long: str) -> str:
    """The value of an option, with one dash or two, in the next word or behind an equals sign."""
    found = ""
    for word, following in zip(words, [*words[1:], ""]):
        name, equals, value = word.partition("=")
        if name in (f"-{short}", f"--{short}", f"-{long}", f"--{long}"):
            found = value if equals else following
    return found


def is_exporter(line: str) -> bool:
    """Whether this command line starts the exporter itself, and not something that starts it."""
    words = unit_command.split(line.lstrip("-@:+!"))
    return bool(words) and os.path.basename(words[0]) == PROGRAM


def clashes(line: str, words: Sequence[str]) -> bool:
    """Whether a variable in the command line brings the other form of our option, at which the exporter would end.

    ``words`` are those of the line with all variables replaced.
    """

    def has_long(found: Sequence[str]) -> bool:
        return any(word.partition("=")[0].lstrip("-") == OPTIONS["counters"][1] for word in found if word[:1] == "-")

    return has_long(words) and not has_long(unit_command.split(line))


def with_ours(line: str, remote: str, *, writes: bool) -> str:
    """The command line with our file of counters, if there is one, and a host engine where ``remote`` names it."""
    if writes:
        line = f"{_COUNTERS.sub('', line)} -f {COUNTERS}"
    return f"{line} -r {remote}" if remote else line


def listens_at(address: str) -> str:
    """The address of this machine at which the exporter answers; ``address`` is as it takes it."""
    host, _colon, port = address.rpartition(":")
    return f"{'127.0.0.1' if host in ('', '0.0.0.0', '[::]', 'localhost') else host}:{port}"


def engine_address(words: Sequence[str]) -> str:
    """Where the host engine listens, for the exporter; empty where it only has a socket in the file system."""
    if given(words, "d", "domain-socket"):
        return ""
    host = given(words, "b", "bind-interface")
    port = given(words, "p", "port") or ENGINE_PORT
    return f"{'localhost' if host.upper() in ('', 'ALL', '0.0.0.0') else host}:{port}"


def drop_in_text(line: str, engine: str) -> str:
    """Our drop-in of a unit of others; ``engine`` is the unit that it comes after, if any."""
    order = f"[Unit]\nWants={engine}\nAfter={engine}\n" if engine else ""
    return f"{header_of(NAME)}{order}[Service]\nExecStart=\nExecStart={line}\n"


def unit_text(line: str, engine: str) -> str:
    """Our unit of the exporter, where its package has none."""
    order = f"Wants={engine}\nAfter={engine}\n" if engine else ""
    return (
        f"{header_of(NAME)}[Unit]\nDescription=NVIDIA DCGM exporter\n{order}"
        f"[Service]\nExecStart={line}\nRestart=on-failure\nRestartSec=5\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


def health_text(engine: str, dcgmi: str, watches: FrozenSet[str]) -> str:
    """Our unit that sets the health watches, which end with the host engine, each time that this starts.

    The engine is started before it listens, so that the first tries may fail. Of itself systemd would wait for ever for
    one that hangs, and so would whoever asks whether the boot is over.
    """
    flags = "a" if len(watches) == len(WATCHES) else "".join(sorted(WATCHES[name][0] for name in watches))
    loop = f"n=0; until {dcgmi} health -s {flags}; do n=$$((n+1)); [ $$n -lt 30 ] || exit 1; sleep 1; done"
    return (
        f"{header_of(NAME)}[Unit]\nDescription=Health watches of DCGM\nPartOf={engine}\nAfter={engine}\n"
        f"[Service]\nType=oneshot\nRemainAfterExit=yes\nTimeoutStartSec={HEALTH_SECONDS}\n"
        f"ExecStart=/bin/sh -c '{loop}'\n"
        f"[Install]\nWantedBy={engine}\n"
    )
