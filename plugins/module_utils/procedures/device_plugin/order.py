# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A request to the API server, and the objects that requests are about."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Tuple

from ..._core.change import Change
from ..._core.value import frozen


@frozen
class Order:
    """A request that changes something, and what. ``node`` is the one that it is about, which may change meanwhile.

    ``judged_there``: only the API server can say whether it is valid, so it is asked before anything changes.
    """

    method: str
    path: str
    body: Optional[Mapping[str, Any]]
    changes: Tuple[Change, ...]
    right: str
    node: Optional[str] = None
    judged_there: bool = False


@frozen
class Place:
    """A ConfigMap that a plugin reads."""

    namespace: str
    config_map: str

    @property
    def all_of_them(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    @property
    def path(self) -> str:
        return f"{self.all_of_them}/{self.config_map}"

    @property
    def daemonsets(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.config_map}"


@frozen
class Places:
    """Where the files of the device plugin and of the RDMA plugin are, and whether pods of the latter are replaced."""

    files: Place
    rdma: Place
    restart_rdma: bool
