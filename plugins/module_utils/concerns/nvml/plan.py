# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps from the binding that is there to the declared one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Optional, Tuple

from ..._core.change import Change, Refuse, RoomAction, Step
from ..._core.errors import DeclarationError, NoPackage, Refused
from ..._core.setting import EFFECTIVE, Setting
from ..._core.value import frozen
from ..._linux import os_release
from .recognise import FILE
from .spec import DEBIAN_PACKAGE, FOLDER
from .state import OURS

if TYPE_CHECKING:
    from .spec import BindingDeclaration
    from .state import BindingDesired, BindingState


@frozen
class Install(RoomAction):
    """Put ``text``, or the file at ``source`` that must have this sum, in place of our file.

    With ``anew`` what is there goes first, because it is a link or others may write it.
    """

    writes = (OURS,)
    optional_programs = (sys.executable,)
    sha256: str
    text: Optional[str]
    source: Optional[str]
    anew: bool


@frozen
class RemoveOurs(RoomAction):
    """Remove our file, what Python compiled from it, and its folders where nothing else is in them."""


def refuse_unfit(declaration: BindingDeclaration, state: BindingState) -> None:
    """Raise ``DeclarationError`` for a binding that will not do, or that no run of ours can bring."""
    found, folder = state.elsewhere, declaration.source == FOLDER
    goal = "use nvidia-ml-py from {}" if folder else f"use the package {declaration.package}"
    if found is not None and found.fault:
        raise DeclarationError(
            goal,
            object=found.path,
            cause=found.fault,
            found=found.version or None,
            hint="repair or remove it, or set source: controller",
        )
    if found is None and folder:
        raise DeclarationError(
            goal,
            object=declaration.folder,
            cause=f"there is no {FILE} in it",
            hint="install nvidia-ml-py there, or name the folder site-packages that has it",
        )
    if found is None and declaration.package == DEBIAN_PACKAGE and not _of_debian(state.release):
        raise DeclarationError(
            goal,
            cause="only Debian and Ubuntu package it",
            found=os_release.parse(state.release).get("PRETTY_NAME") or None,
            hint="set source: controller, or name a package of your own in package",
        )


def steps_of(
    state: BindingState, desired: BindingDesired, setting: Setting, *, sent: Optional[str]
) -> Tuple[Step, ...]:
    """Our file comes or goes. It goes only once the package is there that takes its place."""
    changes = (Change(setting.object, setting.setting, setting.effective, desired.wanted, EFFECTIVE),)
    if desired.sha256 is not None:
        anew = state.ours is not None and bool(state.ours.fault)
        refusal = (Step(Refuse(_exposed(state.folder_fault))),) if state.folder_fault else ()
        return (*refusal, Step(Install(desired.sha256, desired.text, sent, anew), changes))
    remove = (RemoveOurs(),) if state.ours is not None else ()
    find = (Refuse(_not_found(desired.wanted)),) if desired.wanted is not None and state.elsewhere is None else ()
    actions = (*find, *remove)
    # The last one completes the change.
    return (*(Step(action) for action in actions[:-1]), Step(actions[-1], changes, probes=(OURS,) if remove else ()))


class ExposedFolder(Refused):
    """Users other than root can replace what is installed there."""

    code = "exposed"


def _exposed(fault: str) -> ExposedFolder:
    hint = "run the role node_tools, which corrects owner and mode"
    return ExposedFolder("install nvidia-ml-py", object=OURS, cause=fault, hint=hint)


def _not_found(wanted: str) -> NoPackage:
    return NoPackage(
        "find nvidia-ml-py",
        object=sys.executable,
        cause="this Python does not find it",
        wanted=wanted,
        hint="install the package, as the role nvml does; the Python of a virtual environment does not see the "
        "distribution's packages, so set source: controller there",
    )


def loader_text(folder: str) -> str:
    """A pynvml.py that takes the place of itself by the one in ``folder``.

    Not a link: whoever replaces a link's target by way of the link changes a file that is not ours.
    """
    path = f"{folder.rstrip('/')}/{FILE}"
    return (
        "# Written by gpufleet.node, module nvml. A change made here is overwritten by the next run.\n"
        "import importlib.util\n"
        "import sys\n"
        "\n"
        f"_spec = importlib.util.spec_from_file_location(__name__, {path!r})\n"
        "sys.modules[__name__] = importlib.util.module_from_spec(_spec)\n"
        "_spec.loader.exec_module(sys.modules[__name__])\n"
    )


def _of_debian(text: str) -> bool:
    release = os_release.parse(text)
    return "debian" in f"{release.get('ID', '')} {release.get('ID_LIKE', '')}".split()
