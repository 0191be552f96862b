# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who may write what root runs, or does what it says: a file or a folder, and the way to it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .protocols import Files

OURS = ("/etc/gpufleet", "/var/lib/gpufleet")
# What root runs of it: the program, and a binding of NVML that is not the distribution's.
PROGRAM_FOLDER = "/var/lib/gpufleet/program"
BINDING_FOLDER = "/var/lib/gpufleet/python"
RUN = "root would run it"
BELIEVED = "root would act on it"


def exposed(files: Files, path: str, *, matter: str = RUN) -> str:
    """Return why users other than root can change a file or a folder above it; empty if they cannot.

    ``matter`` ends the sentence: why that matters. Outside of our folders a group may have write access. In a folder
    with the sticky bit, users cannot replace files of other users.
    """
    link = link_of_ours(files, path)
    if link:
        return f"{link} is a link, and {matter}"
    place = files.resolve(path)
    while place != "/":
        # What is not there yet is made by root.
        status = files.status(place)
        fault = ownership_fault(status, ours=is_ours(place)) if status is not None else ""
        if fault:
            return f"{fault.format(place)}, and {matter}"
        place = os.path.dirname(place)
    return ""


def exposed_way(files: Files, path: str, *, matter: str = RUN) -> str:
    """As ``exposed``, also by the links on the way: who may write where one of them is may lead it elsewhere."""
    # Links in a circle lead nowhere, and would never end here.
    places = [path] if files.exists(path) else []
    while places:
        place = places.pop()
        folder = os.path.dirname(place)
        while folder != place:
            target = files.link(place)
            if target:
                fault = exposed(files, folder, matter=matter)
                if fault:
                    return fault
                places.append(os.path.join(folder, target))
            place, folder = folder, os.path.dirname(folder)
    return exposed(files, path, matter=matter)


def is_ours(path: str) -> bool:
    """Whether a path is a folder that we manage, or in one."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in OURS)


def link_of_ours(files: Files, path: str) -> str:
    """What on this path is a link below a folder of ours; empty where nothing is.

    We make none there, so whoever did could write there. The folder itself may be one: an administrator moved it.
    """
    while is_ours(path) and path not in OURS:
        folder, name = os.path.split(path)
        if files.resolve(path) != f"{files.resolve(folder).rstrip('/')}/{name}":
            return path
        path = folder
    return ""


def ownership_fault(status: os.stat_result, *, ours: bool) -> str:
    """What is wrong with an owner and a mode, with ``{}`` for the path; empty where nothing is."""
    if status.st_uid not in (0, os.geteuid()):
        return f"{{}} is owned by the user {status.st_uid}"
    shared = not ours and stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & stat.S_IWOTH and not shared:
        return "{} is world-writable"
    if ours and status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getegid()):
        return f"{{}} is writable by the group {status.st_gid}"
    return ""
