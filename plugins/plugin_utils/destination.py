# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a destination of files is, and what none can be. What brings them there is apart: every run imports this."""

from __future__ import annotations

import re
from typing import Any, Mapping
from urllib.parse import urlsplit, urlunsplit

from ..module_utils._core.errors import DeclarationError

# What RFC 9110 takes for the name of a header, and what http.client can send for its value.
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def is_address(dest: str) -> bool:
    return dest.lower().startswith(("http://", "https://"))


def check(dest: str, *, goal: str) -> None:
    """Refuse what nothing can be written to, before anything is read. Raises ``DeclarationError``."""
    if not dest.strip():
        raise DeclarationError(goal, cause="dest is empty", hint="name a folder, or an address that ends in /")
    if is_address(dest):
        try:
            parts = urlsplit(dest)
        except ValueError as error:
            raise DeclarationError(goal, cause=f"the address is invalid: {error}".lower()) from None
        if not parts.hostname or not parts.path.endswith("/") or parts.query or parts.fragment:
            raise DeclarationError(
                f"{goal} to {{}}",
                object=shown(dest),
                cause="the address must end in /, and have no query: each file is put below it",
            )
    elif "://" in dest:
        raise DeclarationError(
            f"{goal} to {{}}", object=shown(dest), cause="only http and https are known", hint="name a folder"
        )


def check_headers(headers: Mapping[str, Any], *, goal: str) -> None:
    """Refuse headers that no request can have, before one is made. Raises ``DeclarationError`` without their values."""
    for name, value in headers.items():
        if not TOKEN.fullmatch(str(name)):
            raise DeclarationError(goal, cause=f"a header cannot be called {name!r}")
        if not VALUE.fullmatch(str(value)):
            cause = f"the header {name} has a line break, or another character that is not allowed"
            raise DeclarationError(
                goal, cause=cause, hint="of a file with a token, take the text without its end of line"
            )


def shown(dest: str) -> str:
    """An address without a password."""
    try:
        parts = urlsplit(dest)
    except ValueError:
        return "no address"
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if parts.scheme else dest
