# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of GPUs in Slurm, and what is wrong whatever the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Tuple

from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._core.value import frozen
from ..._nvidia import gpus
from ..._text.slurm_conf import SHARES, folder_of

if TYPE_CHECKING:
    from ..._core import match

NAME = "slurm_gpus"
EXPLICIT, NVML = "explicit", "nvml"
FOLDER = "/etc/slurm"
GOAL = "allocate GPUs in Slurm"

# Of Gres=gpu:TYPE:COUNT, where a colon, comma, bracket or blank would end it.
TYPE = regex(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# Slurm takes these for a count, with a multiple behind it.
COUNT = regex(r"[0-9]+[kKmMgGtTpP]?")
NODE = regex(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MOST = 10_000


@frozen
class SlurmDeclaration:
    """What is declared. ``devices`` is empty for ``state: absent``, ``node`` where the host name is meant.

    ``entries`` are those of ``types``, with their ``names``. ``shares`` are the counts of each GPU by the name of the
    generic resource, of which there is one at most.
    """

    devices: str = ""
    folder: str = FOLDER
    node: str = ""
    entries: Tuple[match.MatchEntry, ...] = ()
    names: Tuple[str, ...] = ()
    cores: bool = False
    links: bool = False
    shares: Tuple[Tuple[str, int], ...] = ()
    constrain: bool = False


def parse(params: Mapping[str, Any]) -> SlurmDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    if params["devices"] is None:
        hint = f"set devices: {EXPLICIT}, which every build of Slurm takes"
        raise DeclarationError("read the declaration", cause="devices is not set", hint=hint)
    if params["devices"] not in (EXPLICIT, NVML):
        cause = f"it must be one of {EXPLICIT}, {NVML}"
        raise DeclarationError("use {}", object="devices", cause=cause, found=params["devices"])
    if not params["permanent"]:
        cause = "Slurm has its GPUs from files, which are there for the next boot as well"
        raise DeclarationError(GOAL, cause=cause, hint="set permanent: true")
    folder = folder_of(params["folder"])
    node = params["node_name"] or ""
    if node and not NODE.fullmatch(node):
        raise DeclarationError("use {}", object="node_name", cause="it is not the name of one node", found=node)
    types = params["types"] or ()
    for index, entry in enumerate(types):
        refuse_type(entry["type"], f"types[{index}].type")
    return SlurmDeclaration(
        devices=params["devices"],
        folder=folder,
        node=node,
        entries=gpus.parse("types", types),
        names=tuple(entry["type"] for entry in types),
        cores=params["cores"],
        links=params["links"],
        shares=_shares(params),
        constrain=params["constrain_devices"],
    )


def refuse_type(name: str, where: str) -> None:
    """Raise ``DeclarationError`` on a name that no Gres= could have."""
    if not TYPE.fullmatch(name):
        cause = "a type in Slurm has letters, digits, dots, hyphens and underscores, and begins with no sign"
    elif COUNT.fullmatch(name):
        cause = "Slurm takes it for a count, as in gpu:2"
    else:
        return
    raise DeclarationError("use {}", object=where, cause=cause, found=repr(name), hint="write a name such as h100")


def _shares(params: Mapping[str, Any]) -> Tuple[Tuple[str, int], ...]:
    found: Dict[str, int] = {}
    for option, name in zip(("shards", "mps"), SHARES):
        count = params[option]
        if count is None:
            continue
        if not 1 <= count <= MOST:
            raise DeclarationError(
                "use {}",
                object=option,
                cause=f"a GPU is divided into 1 to {MOST}",
                found=count,
                hint=f"leave {option} out for GPUs that are allocated as a whole",
            )
        found[name] = count
    if len(found) > 1:
        raise DeclarationError(
            "use {}",
            object="mps",
            cause="shards is set too, and a job would get shares of a GPU that the other way has allocated already",
            hint="leave one of the two out",
        )
    return tuple(found.items())
