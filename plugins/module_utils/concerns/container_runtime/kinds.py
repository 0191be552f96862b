# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kinds by name: of engines, and of what has settings in files as they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .entries import CDI, TOOLKIT
from .model import APPTAINER, CONTAINERD, CRIO, DOCKER, PODMAN

if TYPE_CHECKING:
    from .model import Kind


def kind_of(engine: str) -> Kind:
    """How one of ``ENGINES``, the toolkit or CDI is configured."""
    if engine == DOCKER:
        from .docker.docker import KIND
    elif engine == CONTAINERD:
        from .containerd.containerd import KIND
    elif engine == CRIO:
        from .crio.crio import KIND
    elif engine == PODMAN:
        from .podman.podman import KIND
    elif engine == APPTAINER:
        from .apptainer.apptainer import KIND
    elif engine == TOOLKIT:
        from .toolkit.toolkit import KIND
    elif engine == CDI:
        from .cdi.cdi import KIND
    else:
        raise KeyError(engine)
    return KIND
