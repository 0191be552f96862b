# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a destination of files is, and what none can be. What brings them there is apart: every run imports this."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from ..module_utils._core.errors import DeclarationError


def is_address(dest: str) -> bool:
    return dest.lower().startswith(("http://", "https://"))


def check(dest: str, *, goal: str) -> None:
    """Refuse what nothing can be written to, before anything is read. Raises ``DeclarationError``."""
    if not dest.strip():
        raise DeclarationError(goal, cause="dest is empty", hint="name a folder, or an address that ends in /")
    if is_address(dest):
        parts = urlsplit(dest)
        if not parts.hostname or not parts.path.endswith("/") or parts.query or parts.fragment:
            raise DeclarationError(
                goal,
                object=shown(dest),
                cause="the address must end in /, and have no query: each file is put below it",
            )
    elif "://" in dest:
        raise DeclarationError(goal, object=shown(dest), cause="only http and https are known", hint="name a folder")


def shown(dest: str) -> str:
    """An address without a password."""
    parts = urlsplit(dest)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if parts.scheme else dest
