# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``nvml``: the Python binding of NVML, as it is and as declared. One file is both now and after a boot."""

from __future__ import annotations

import site
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from .._core.change import RIGHT, Plan, Setting, Step
from .._host.exposure import exposed
from .._host.nvml_driver import BINDING_FOLDER
from . import recognise
from .recognise import FILE, Found
from .spec import CONTROLLER, FOLDER, NAME, OPTIONS, PACKAGE, check

if TYPE_CHECKING:
    from .._core.before import Before
    from .._host.protocols import Files, Host

OURS = f"{BINDING_FOLDER}/{FILE}"
OBJECT = "nvidia-ml-py"


@dataclass(frozen=True)
class State:
    """What was seen: the file that we bring, and with another source what the declaration is about.

    ``release`` is the text of /etc/os-release, read where a package is declared that is not there.
    """

    ours: Optional[Found]
    elsewhere: Optional[Found] = None
    release: str = ""


@dataclass(frozen=True)
class Desired:
    """What the machine shall have. ``sha256`` is that of our file, None for: no file of ours.

    ``wanted`` is what a person calls it, ``text`` the file where the declaration itself says what is in it.
    """

    wanted: Optional[str] = None
    sha256: Optional[str] = None
    text: Optional[str] = None
    matters: bool = True


class Nvml:
    """``road.Concern`` for the binding. ``staged`` is the path of the file that was sent along."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False

    def __init__(self, staged: Optional[str] = None) -> None:
        self._staged = staged

    def observe(self, host: Host, params: Mapping[str, Any]) -> State:
        files = host.files
        if params["state"] == "absent":
            return State(ours(files))
        check(params)
        if params["source"] == FOLDER:
            return State(ours(files), recognise.guarded(files, recognise.search(files, [params["folder"]])))
        if params["source"] == PACKAGE:
            found = recognise.guarded(files, recognise.search(files, _search_path()))
            release = (files.read_optional("/etc/os-release") or "") if found is None else ""
            return State(ours(files), found, release)
        return State(ours(files))

    def normalise(self, params: Mapping[str, Any], state: State) -> Desired:
        source, matters = params["source"], params["immediate"] or params["permanent"]
        if source == CONTROLLER:
            told = f"{params['version'] or 'unknown version'} (sha256 {params['pynvml_sha256'][:12]})"
            return Desired(told, params["pynvml_sha256"], matters=matters)
        from . import plan

        plan.refuse_unfit(params, state)
        if source == PACKAGE:
            return Desired(f"from the package {params['package']}", matters=matters)
        text = plan.loader_text(params["folder"])
        return Desired(f"from {params['folder']}", recognise.digest(text), text, matters)

    def restore(self, params: Mapping[str, Any], found: Before, state: State) -> Desired:
        return Desired(matters=params["immediate"] or params["permanent"])

    def plan(self, state: State, desired: Desired) -> Plan:
        if not desired.matters:
            return Plan()
        effective = _effective(state, desired)
        setting = Setting(OBJECT, "binding", desired.wanted, effective, effective, OBJECT, boot_matters=False)
        steps: Tuple[Step, ...] = ()
        if setting.status != RIGHT:
            from .plan import steps_of

            steps = steps_of(state, desired, setting, staged=self._staged)
        return Plan(settings=(setting,), steps=steps)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: State) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        found = state.ours or state.elsewhere
        if found is None:
            return {}, {}
        told = {"path": found.path, "sha256": found.sha256 or None, "version": found.version or None}
        return told, told


CONCERN = Nvml()


def ours(files: Files) -> Optional[Found]:
    """The file in our folder. What is in it is compared by its sum, so only who may change it is of interest."""
    text = files.read_optional(OURS)
    if text is None:
        return None
    return Found(OURS, recognise.digest(text), fault=exposed(files, OURS))


def lacks_file(files: Files, params: Mapping[str, Any]) -> bool:
    """Whether a run with these parameters would have to write the file of the controller."""
    if params["state"] == "absent" or params["source"] != CONTROLLER:
        return False
    found = ours(files)
    right = found is not None and found.sha256 == params["pynvml_sha256"] and not found.fault
    return not right and (params["immediate"] or params["permanent"])


def _search_path() -> Tuple[str, ...]:
    # The command on the node runs isolated, so what lies in somebody's home is not there for it.
    return tuple(
        folder for folder in sys.path if folder.startswith("/") and folder not in (BINDING_FOLDER, site.USER_SITE)
    )


def _effective(state: State, desired: Desired) -> Optional[str]:
    if state.ours is None:
        return desired.wanted if state.elsewhere is not None and desired.sha256 is None else None
    if state.ours.sha256 == desired.sha256 and not state.ours.fault:
        return desired.wanted
    told = f"sha256 {state.ours.sha256[:12]}"
    return f"{told}: {state.ours.fault}" if state.ours.fault else told
