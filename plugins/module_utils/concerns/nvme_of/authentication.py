# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DH-HMAC-CHAP: the secrets that connections are made with. Imported where one is declared.

A secret stays in its file, which only root may read: the kernel is handed what stands there, and tells root what a
connection was made with (drivers/nvme/host/sysfs.c).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Mapping, NoReturn, Optional, Sequence

from ..._core.errors import DeclarationError
from ..._core.regex import regex
from .spec import Connection, Key, name_of
from .targets import CONTROLLERS, Controller

if TYPE_CHECKING:
    from ..._core.protocols import Files

READ = "authenticate by {}"
NONE, OTHER = "none", "with another secret"
RELEASE = "/proc/sys/kernel/osrelease"
# NVM Express Base Specification, 8.13.5.8: the form of a secret, with the hash that it is transformed by, 0 for none.
_SECRET = regex(r"DHHC-1:0[0-3]:[A-Za-z0-9+/]+={0,2}:")
# Nobody but the owner.
_OTHERS = 0o077


def observe(
    files: Files, connections: Sequence[Connection], controllers: Mapping[Key, Controller]
) -> Dict[Key, Optional[str]]:
    """What the connections have that are declared with secrets, None for one that there is not.

    Raises ``DeclarationError`` for a file that holds none, or that others may read, and for a kernel that would connect
    without: this is no setting to go without.
    """
    secrets = {path: _secret_in(files, path) for one in connections for _option, path in one.secrets}
    missing = [one for one in connections if one.key not in controllers]
    if missing and _is_lacking(files, controllers):
        _refuse(
            "authenticate to {}",
            name_of(missing[0].key),
            "this kernel does not authenticate connections of NVMe over Fabrics",
            "boot one with CONFIG_NVME_HOST_AUTH (before Linux 6.7, CONFIG_NVME_AUTH)",
        )
    return {one.key: _found(files, one, controllers.get(one.key), secrets) for one in connections}


def _secret_in(files: Files, path: str) -> str:
    status = files.status(path)
    if status is None:
        _refuse(
            READ, path, "the file with the secret is not there", "put it there first, with owner root and mode 0600"
        )
    if status.st_uid != 0 or status.st_mode & _OTHERS:
        _refuse(READ, path, "others than root may read or replace the secret in it", "set owner root and mode 0600")
    secret = files.read(path).strip()
    if not _SECRET.fullmatch(secret):
        _refuse(READ, path, "it does not hold a secret of the form DHHC-1:", "make one by nvme gen-dhchap-key")
    return secret


def _is_lacking(files: Files, controllers: Mapping[Key, Controller]) -> bool:
    """Whether the kernel is known to connect without. It takes the option even then, and leaves it out of account."""
    if controllers:
        return not any(files.exists(f"{CONTROLLERS}/{one.name}/dhchap_secret") for one in controllers.values())
    release = files.read(RELEASE).strip()
    text = files.read_optional(f"/boot/config-{release}") or files.read_optional(f"/lib/modules/{release}/config") or ""
    options = text.splitlines()
    of_host = [line for line in options if "CONFIG_NVME_HOST_AUTH" in line]
    return (
        bool(options)
        and "CONFIG_NVME_HOST_AUTH=y" not in of_host
        and (bool(of_host) or "CONFIG_NVME_AUTH=y" not in options)
    )


def _found(
    files: Files, one: Connection, controller: Optional[Controller], secrets: Mapping[str, str]
) -> Optional[str]:
    if controller is None:
        return None
    shown = [files.read_optional(f"{CONTROLLERS}/{controller.name}/{option}") for option, _path in one.secrets]
    if any((text or NONE).strip() == NONE for text in shown):
        return NONE
    same = [(text or "").strip() == secrets[path] for text, (_option, path) in zip(shown, one.secrets)]
    return one.authentication if all(same) else OTHER


def _refuse(goal: str, object: str, cause: str, hint: str) -> NoReturn:
    raise DeclarationError(goal, object=object, cause=cause, hint=f"{hint}; nothing was changed")
