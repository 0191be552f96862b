# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where files about a fleet go: into a folder of the controller, or by PUT to a web server."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from http.client import HTTPException
from typing import Any, Dict, Mapping, Optional
from urllib.error import HTTPError
from urllib.parse import quote

from ansible.module_utils import urls

from ..module_utils._core.errors import GpuFleetError
from .destination import check_headers, is_address, shown

SECONDS = 60
# The collector of the metrics is another user.
FOR_ALL = 0o644
CONTENT_TYPES = {
    ".json": "application/json",
    ".html": "text/html; charset=utf-8",
    ".xml": "application/xml",
    ".prom": "text/plain; version=0.0.4; charset=utf-8",
}


def place_of(dest: str, name: str) -> str:
    """Where a file will be: its path on the controller, or its address."""
    return f"{shown(dest)}{quote(name)}" if is_address(dest) else os.path.join(_folder(dest), name)


def deliver(dest: str, name: str, text: str, headers: Mapping[str, Any], *, goal: str, mode: int = FOR_ALL) -> str:
    """Write one file, and return where it is. ``mode`` is that of a new one in a folder. Raises ``GpuFleetError``."""
    # A name that is not a string in a variable of a host must not cost the whole file.
    content = text.encode("utf-8", "replace")
    if is_address(dest):
        _put(dest, name, content, headers, goal=goal)
    else:
        _write(_folder(dest), name, content, goal=goal, mode=mode)
    return place_of(dest, name)


def _folder(dest: str) -> str:
    return os.path.abspath(os.path.expanduser(dest))


def _write(folder: str, name: str, content: bytes, *, goal: str, mode: int) -> None:
    """A reader of the file meanwhile gets the old one or the new one, whole."""
    path = os.path.join(folder, name)
    temporary = ""
    try:
        os.makedirs(folder, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            os.fchmod(stream.fileno(), mode)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise GpuFleetError(f"{goal} to {{}}", object=path, cause=(error.strerror or str(error)).lower()) from error


def _put(dest: str, name: str, content: bytes, headers: Mapping[str, Any], *, goal: str) -> None:
    check_headers(headers, goal=goal)
    kind = CONTENT_TYPES[os.path.splitext(name)[1]]
    try:
        urls.open_url(
            f"{dest}{quote(name)}",
            data=content,
            method="PUT",
            headers={"Content-Type": kind, **{name: str(value) for name, value in headers.items()}},
            timeout=SECONDS,
        ).close()
    except (OSError, ValueError, HTTPException, urls.ConnectionError) as error:
        why = _refused(error) or _unsafe(error) or _out_of_reach(error)
        # What a proxy or a library says may have the address in it.
        why["cause"] = why["cause"].replace(dest, shown(dest))
        raise GpuFleetError(f"{goal} to {{}}", object=place_of(dest, name), **why) from error


def _refused(error: Exception) -> Optional[Dict[str, str]]:
    """Why the server did not take it, and what to do; None where it did not respond."""
    if not isinstance(error, HTTPError):
        return None
    hint = "the address must be a folder that takes PUT"
    if error.code in (401, 403):
        hint = "check that the credentials in the headers may write there"
    elif error.code >= 500:
        hint = "see its log"
    return {"cause": f"the server returned {error.code} {error.reason}", "hint": hint}


def _unsafe(error: Exception) -> Optional[Dict[str, str]]:
    """Why there is no safe connection; None where there is one, or where none was asked for."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return {
            "cause": f"the certificate of the server is not trusted: {reason.verify_message}",
            "hint": "set SSL_CERT_FILE to the certificates that the controller trusts",
        }
    if isinstance(reason, ssl.SSLError):
        return {
            "cause": f"the TLS handshake failed: {reason.reason or reason}",
            "hint": "the address may be an http one, or have the wrong port",
        }
    return None


def _out_of_reach(error: Exception) -> Dict[str, str]:
    reason = getattr(error, "reason", error)
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return {"cause": f"the server did not respond: {text}", "hint": "check its name and port"}
