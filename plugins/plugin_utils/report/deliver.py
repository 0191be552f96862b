# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the files of a report go: into a folder of the controller, or by PUT to a web server."""

from __future__ import annotations

import contextlib
import os
import tempfile
from http.client import HTTPException
from typing import Mapping
from urllib.parse import quote, urlsplit, urlunsplit

from ansible.module_utils import urls

from ...module_utils._core.errors import DeclarationError, GpuFleetError

GOAL = "write the report"
SECONDS = 60
NAMES = {
    "json": "gpufleet-report.json",
    "html": "gpufleet-report.html",
    "junit": "gpufleet-report.junit.xml",
    "prometheus": "gpufleet.prom",
}
CONTENT_TYPES = {
    ".json": "application/json",
    ".html": "text/html; charset=utf-8",
    ".xml": "application/xml",
    ".prom": "text/plain; version=0.0.4; charset=utf-8",
}


def is_address(dest: str) -> bool:
    return dest.lower().startswith(("http://", "https://"))


def check(dest: str) -> None:
    """Refuse what nothing can be written to, before anything is read. Raises ``DeclarationError``."""
    if not dest.strip():
        raise DeclarationError(GOAL, cause="dest is empty", hint="name a folder, or an address that ends in /")
    if is_address(dest):
        parts = urlsplit(dest)
        if not parts.hostname or not parts.path.endswith("/") or parts.query or parts.fragment:
            raise DeclarationError(
                GOAL,
                object=shown(dest),
                cause="the address must end in /, and have no query: each file is put below it",
            )
    elif "://" in dest:
        raise DeclarationError(GOAL, object=shown(dest), cause="only http and https are known", hint="name a folder")


def shown(dest: str) -> str:
    """An address without a password."""
    parts = urlsplit(dest)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if parts.scheme else dest


def deliver(dest: str, name: str, text: str, headers: Mapping[str, str]) -> str:
    """Write one file, and return where it is. Raises ``GpuFleetError``."""
    # A name that is no text in a variable of a host must not cost the whole report.
    content = text.encode("utf-8", "replace")
    return _put(dest, name, content, headers) if is_address(dest) else _write(dest, name, content)


def _write(dest: str, name: str, content: bytes) -> str:
    """Who reads the file meanwhile reads the old one or the new one, whole."""
    folder = os.path.abspath(os.path.expanduser(dest))
    path = os.path.join(folder, name)
    temporary = ""
    try:
        os.makedirs(folder, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            # The collector of the metrics is another user.
            os.fchmod(stream.fileno(), 0o644)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise GpuFleetError(GOAL, object=path, cause=(error.strerror or str(error)).lower()) from error
    return path


def _put(dest: str, name: str, content: bytes, headers: Mapping[str, str]) -> str:
    kind = CONTENT_TYPES[os.path.splitext(name)[1]]
    address = f"{dest}{quote(name)}"
    try:
        urls.open_url(
            address, data=content, method="PUT", headers={"Content-Type": kind, **headers}, timeout=SECONDS
        ).close()
    except (OSError, ValueError, HTTPException, urls.ConnectionError) as error:
        # What a proxy or a library says may have the address in it.
        cause = str(error).replace(dest, shown(dest))
        raise GpuFleetError(
            GOAL,
            object=shown(address),
            cause=f"the server did not take it: {cause}",
            hint="the server must allow PUT there, and give the folder to who asks with these headers",
        ) from error
    return shown(address)
