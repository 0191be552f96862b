# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Schedulers that are modules of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, Mapping, Optional

from ..._linux.kernel_modules import read_installed

if TYPE_CHECKING:
    from ..._core.protocols import Files

KNOWN_SCHEDULERS = ("mq-deadline", "kyber", "bfq")


def of_schedulers(files: Files, asked: Iterable[str]) -> Dict[str, str]:
    """The modules of these schedulers and of the known ones, by scheduler, as far as this kernel has them."""
    installed = read_installed(files)
    found = {}
    for name in sorted({*asked, *KNOWN_SCHEDULERS}):
        for module in (f"{name}-iosched", name):
            if installed.dependencies(module) is not None:
                found[name] = module
                break
    return found


def text_of(schedulers: Iterable[str], modules: Mapping[str, str]) -> Optional[str]:
    """The file that loads what these schedulers need at boot; None where all are built in."""
    needed = [modules[name] for name in sorted(set(schedulers)) if name in modules]
    if not needed:
        return None
    header = "# Written by gpufleet.node, module nvme_scheduler. A change made here is overwritten by the next run.\n"
    return header + "".join(f"{module}\n" for module in needed)
