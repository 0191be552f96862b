# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of container engines, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, Mapping, Tuple

from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._core.value import field, frozen
from .entries import CDI, OF_CONTAINERD, TOOLKIT, refuse_relative, wrong
from .model import APPTAINER, CONTAINERD, DOCKER, SettingName, WantedEngine, setting_of

if TYPE_CHECKING:
    from ..._core.baseline import Baseline, BaselineValue

ENTRIES = "engines"
REFRESH, REMOVE_DUPLICATES, REMOVE_HOOKS = "refresh", "remove_duplicates", "remove_oci_hooks"
# What the CDI specification is where nothing is wrong with it.
CURRENT = "current"
RUNTIME_NAME = "nvidia"
# Where the package nvidia-container-toolkit has it.
RUNTIME_PATH = "/usr/bin/nvidia-container-runtime"

# What only some engines have, by option.
ONLY: Mapping[str, Tuple[str, ...]] = {
    "systemd_cgroup": (CONTAINERD,),
    **dict.fromkeys(OF_CONTAINERD, (CONTAINERD,)),
    "default_ulimits": (DOCKER,),
    "default_shm_size": (DOCKER,),
    "live_restore": (DOCKER,),
    "data_root": (DOCKER,),
    "exec_opts": (DOCKER,),
    "use_nvidia_container_cli": (APPTAINER,),
    "bind_paths": (APPTAINER,),
}
OWN = tuple(name for name in ONLY if name != "systemd_cgroup")

RUNTIME = regex(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)
# Every engine brings these itself, and Docker refuses to have another of the name.
ITS_OWN = ("runc", "crun", "io.containerd.runc.v2")
# Such a name dockerd takes for the shim of containerd (``stockRuntimes`` of its runtime_unix.go).
SHIMS = "io.containerd."
NOT_IN_PATHS = regex(r"[\s,\x00-\x1f\x7f]")


Changed = Mapping[str, Mapping[SettingName, "BaselineValue"]]
"""The values from before our first change, by engine."""


@frozen
class ContainerRuntimeDeclaration:
    """What is declared: at most one entry for each engine, then the toolkit and CDI as entries of their own.

    ``refresh`` is whether the CDI specification is made anew where it is out of date. ``changed`` are, for
    ``state: absent``, the engines that we ever changed, with the values from before.
    """

    entries: Tuple[WantedEngine, ...] = ()
    refresh: bool = False
    changed: Changed = field(default_factory=dict)


def parse(params: Mapping[str, Any]) -> ContainerRuntimeDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    refuse_running_only(params)
    entries = [_entry(f"{ENTRIES}[{index}]", given) for index, given in enumerate(params[ENTRIES])]
    first: Dict[str, int] = {}
    for index, entry in enumerate(entries):
        if entry.engine in first:
            raise wrong(
                f"{ENTRIES}[{index}] ({entry.engine})",
                f"{ENTRIES}[{first[entry.engine]}] is for the same engine",
                "merge them into one entry",
            )
        first[entry.engine] = index
    if params[TOOLKIT]:
        from .toolkit.options import declared

        entries.append(WantedEngine(TOOLKIT, True, "", "", options=declared(params[TOOLKIT])))
    cdi = params[CDI] or {}
    if any(cdi.values()):
        entries.append(WantedEngine(CDI, True, "", "", options=cdi))
    return ContainerRuntimeDeclaration(tuple(entries), refresh=bool(cdi.get(REFRESH)))


def changed_in(baseline: Baseline) -> Changed:
    changed: Dict[str, Dict[SettingName, BaselineValue]] = {}
    for (engine, text), value in baseline.values.items():
        changed.setdefault(engine, {})[setting_of(text)] = value
    return changed


def refuse_running_only(params: Mapping[str, Any]) -> None:
    if params["immediate"] and not params["permanent"]:
        raise DeclarationError(
            "configure container engines",
            object="permanent",
            cause="it is false, but an engine only has what its files say, which the next boot uses too",
            hint="set permanent: true, or immediate: false as well",
        )


def _entry(where: str, given: Mapping[str, Any]) -> WantedEngine:
    engine, present = given["engine"], given.get("state") != "absent"
    where = f"{where} ({engine})"
    for option, engines in ONLY.items():
        if given.get(option) is not None and engine not in engines:
            raise wrong(where, f"{option} is an option of {' and '.join(engines)}", "leave it out")
    name, path = given.get("runtime_name") or RUNTIME_NAME, given.get("runtime_path") or RUNTIME_PATH
    if not RUNTIME.fullmatch(name):
        raise wrong(where, f"runtime_name is {name!r}, and must be letters, digits, dots, dashes and underscores")
    if name in ITS_OWN or name.startswith(SHIMS):
        raise wrong(
            where, f"runtime_name is {name}, which is built into the engine", "rename it, for example to nvidia"
        )
    refuse_relative(where, "runtime_path", path)
    # Engines would make arguments, or a second program, of a part of it.
    if NOT_IN_PATHS.search(path):
        raise wrong(where, f"runtime_path is {path!r}, and must have no blank, comma or control character")
    # The bind paths of Apptainer go with the runtime, and none is the default one. All else would be left undone.
    done = {"default": False, "bind_paths": given.get("bind_paths")}
    undone = [option for option in ("default", "cdi", *ONLY) if given.get(option) not in (None, done.get(option))]
    if undone and not present:
        raise wrong(where, f"{undone[0]} is set, but the runtime is absent", f"leave {undone[0]} out")
    return WantedEngine(
        engine=engine,
        present=present,
        runtime_name=name,
        runtime_path=path,
        default=given.get("default"),
        cdi=given.get("cdi"),
        systemd_cgroup=given.get("systemd_cgroup"),
        options=_own(where, given),
    )


def _own(where: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options that only this engine has."""
    options = {name: given[name] for name in OWN if given.get(name) is not None}
    if options and given["engine"] == DOCKER:
        from .docker.options import checked

        return checked(where, options)
    if options and given["engine"] == CONTAINERD:
        from .containerd.options import check

        check(where, options)
    return options
