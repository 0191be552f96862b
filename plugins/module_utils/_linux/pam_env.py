# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What pam_env gives to a session (``pam_env.c`` of Linux-PAM): first pam_env.conf, then /etc/environment.

In /etc/environment of equal names the last counts. A ``#`` begins a comment wherever it stands, in quotes too; a
backslash at the end of a line joins the next; a value that begins with a quote loses that and one at its end.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator, Tuple

if TYPE_CHECKING:
    from .._core.protocols import Files

PATH = "/etc/environment"
CONF = "/etc/security/pam_env.conf"
# Of equal names PAM reads that of the administrator.
FOLDERS = ("/etc/pam.d", "/usr/lib/pam.d")
# Where pam_env stands, most likely first: Debian has it in each service, others in a stack that services share.
STACKS = ("sshd", "login", "su", "system-auth", "password-auth", "postlogin", "common-session", "common-auth", "cron")
BLANKS = " \t\n"


def is_read(files: Files) -> bool:
    """Whether any service gives /etc/environment to its sessions."""
    for folder in FOLDERS:
        names = files.names(folder)
        for name in (*(name for name in STACKS if name in names), *(name for name in names if name not in STACKS)):
            for line in (files.read_optional(f"{folder}/{name}") or "").splitlines():
                code = line.partition("#")[0]
                if "pam_env.so" in code and "readenv=0" not in code and "envfile=" not in code.replace("user_", ""):
                    return True
    return False


def parse(text: str) -> Iterator[Tuple[int, str, str]]:
    """What /etc/environment defines, as the number of the line, name and value; empty for what it takes back."""
    for number, line in _joined(text):
        words = line.lstrip(BLANKS)
        words = words[len("export ") :] if words.startswith("export ") else words
        name, _equals, value = words.partition("=")
        if re.fullmatch("[A-Za-z0-9_]+", name):
            yield number, name, _unquoted(value.rstrip(BLANKS))


def parse_conf(text: str) -> Iterator[Tuple[int, str, str]]:
    """What pam_env.conf defines: ``NAME DEFAULT=value OVERRIDE=value``. What pam_env would put in is left as it is."""
    for number, line in _joined(text):
        name = line.split(None, 1)[0]
        found = dict(re.findall(r'\s(DEFAULT|OVERRIDE)=("[^"]*"|\S*)', line))
        value = found.get("OVERRIDE", "").strip('"') or found.get("DEFAULT", "").strip('"')
        if value:
            yield number, name, value


def _joined(text: str) -> Iterator[Tuple[int, str]]:
    """The lines without comments, those that end in a backslash joined to the next, by the number of their first."""
    started, begun = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.lstrip(BLANKS)
        if not stripped or stripped.startswith("#"):
            continue
        line, comment, _rest = line.partition("#")
        plain = line.rstrip(BLANKS)
        begun = begun if started else number
        if plain.endswith("\\") and not comment:
            started += plain[:-1]
        else:
            yield begun, started + line
            started = ""


def _unquoted(value: str) -> str:
    if not value.startswith(('"', "'")):
        return value
    return value[1:-1] if len(value) > 1 and value.endswith(('"', "'")) else value[1:]
