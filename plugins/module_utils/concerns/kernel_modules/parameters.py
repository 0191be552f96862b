# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parameters of modules: as they are in effect, as the next load brings them, and as declared.

A module takes its parameters when it is loaded, and what is written to its files in /sys after that often changes what
they show and nothing else (the queues of nvme): so nothing is written there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, AbstractSet, Any, Dict, List, Mapping, Optional, Tuple

from ..._core.change import US, Conflict, Unmanaged
from ..._core.setting import Setting
from ..._core.value import replace
from ..._kinds.own_files import header_of
from ..._linux.bootloader import find_sources
from ..._linux.cpus import read_cpus
from ..._linux.module_options import (
    NVIDIA_PREFIX,
    OptionLine,
    is_same,
    parse_command_line,
    parse_options,
    read_nvidia,
    read_parameter,
    read_types,
    render,
)
from .spec import NAME
from .state import (
    LOADED,
    OPTIONS_FILE,
    PARAMETER,
    POSSIBLE_CPUS,
    KernelModulesDesired,
    KernelModulesState,
    Key,
    ParametersState,
    setting_of,
)

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from ..._linux.bootloader import BootLoader
    from .spec import KernelModulesDeclaration

WAITS = "a module takes its parameters only when it is loaded"
HIDDEN = "the module does not show it: what is in effect is not known, and the next load takes the declared value"


def observe(
    host: Host,
    declaration: KernelModulesDeclaration,
    state: KernelModulesState,
    texts: Mapping[str, str],
    loader: BootLoader,
) -> ParametersState:
    """``texts`` are the files of modprobe.d."""
    keys = tuple(declaration.parameters)
    lines = tuple(line for path, text in texts.items() for line in parse_options(path, text))
    ours = {(line.module, line.parameter): line.value for line in lines if line.path == OPTIONS_FILE}
    changed = {key[0] for key, value in declaration.parameters.items() if value is not None and ours.get(key) != value}
    return ParametersState(
        keys=keys,
        shown=_read(host.files, {key for key in keys if state.effective(key[0]) == LOADED}),
        lines=lines,
        coming=_coming(host.files, loader, {key[0] for key in keys}),
        # A converged node is asked for neither.
        types=_types(host, state, changed),
        possible_cpus=_possible_cpus(host.files) if changed else 0,
    )


def everything(baseline: Baseline) -> Dict[Key, Optional[str]]:
    """The parameters that were ever set."""
    return {
        (name, setting[len(PARAMETER) :]): None for name, setting in baseline.values if setting.startswith(PARAMETER)
    }


def resolve(
    desired: KernelModulesDesired, declaration: KernelModulesDeclaration, state: KernelModulesState
) -> KernelModulesDesired:
    """With the parameters that are wanted, the file that gives them, and what no module here takes."""
    values: Dict[Key, Optional[str]] = {}
    of_file: Dict[str, Dict[str, str]] = {}
    lacking: List[Unmanaged] = []
    at_boot = state.winners()
    for (module, parameter), wanted in declaration.parameters.items():
        if wanted is None:
            continue
        if not state.has(module):
            from .parameters_plan import lacking_module

            lacking.append(lacking_module(module, parameter, state))
            continue
        values[module, parameter] = wanted
        if not state.installed.has_built_in(module):
            of_file.setdefault(module, {})[parameter] = wanted
        elif not is_same(wanted, _value(at_boot, (module, parameter)) or ""):
            from .parameters_plan import refuse_built_in

            refuse_built_in(module, parameter, wanted, state)
    if state.parameters is not None and state.parameters.possible_cpus:
        from .parameters_plan import refuse_impossible

        refuse_impossible(of_file, state)
    text = None
    if of_file:
        names = ((name, of_file[module]) for module in of_file for name in (module, *state.real_names(module)))
        text = header_of(NAME) + "".join(render(name, parameters) for name, parameters in names)
    return replace(desired, parameters=values, options_text=text, unmanaged=(*desired.unmanaged, *lacking))


def restore(baseline: Baseline, state: KernelModulesState) -> Dict[Key, Optional[str]]:
    """What the modules had before; a value that somebody else gives them since then is as good."""
    values: Dict[Key, Optional[str]] = {}
    if state.parameters is None:
        return values
    others = state.winners([line for line in state.parameters.lines if line.path != OPTIONS_FILE])
    for key in state.parameters.keys:
        before = baseline.values[key[0], setting_of(key[1])].effective
        if isinstance(before, int):
            raise ValueError(f"{before!r} is not the value of a parameter")
        shown, line = state.parameters.shown.get(key), others.get(key)
        values[key] = shown if shown is not None and line is not None and is_same(shown, line.value) else before
    return values


def rows(state: KernelModulesState, desired: KernelModulesDesired, scope: Scope) -> List[Setting]:
    if state.parameters is None:
        return []
    at_boot, made = state.winners(), []
    for key, wanted in desired.parameters.items():
        shown = state.parameters.shown.get(key)
        effective = _as_wanted(shown, wanted)
        made.append(
            Setting(
                object=key[0],
                setting=setting_of(key[1]),
                wanted=wanted,
                effective=effective,
                boot=None if key[0] in state.faults else _as_wanted(_value(at_boot, key), wanted),
                identity=key[0],
                effective_matters=scope.immediate and shown is not None and wanted is not None,
                boot_matters=scope.carries,
                # A boot with an initramfs that loads the module without our file does not help.
                pending=WAITS if effective != wanted and key[0] not in state.faults else "",
            )
        )
    return made


def hidden(state: KernelModulesState, desired: KernelModulesDesired) -> Tuple[Unmanaged, ...]:
    """What loaded modules do not show."""
    if state.parameters is None:
        return ()
    return tuple(
        Unmanaged(module, setting_of(parameter), HIDDEN, hint="set immediate: false, or strict: false")
        for module, parameter in desired.parameters
        if state.effective(module) == LOADED and state.parameters.shown.get((module, parameter)) is None
    )


def conflicts(state: KernelModulesState, desired: KernelModulesDesired) -> Tuple[Conflict, ...]:
    """The lines of others that give another value. One that would win is refused where there is something to do."""
    if state.parameters is None:
        return ()
    found = []
    for line in (*state.parameters.lines, *state.parameters.coming):
        key = (state.name_of(line), line.parameter)
        wanted = desired.parameters.get(key)
        if wanted is not None and line.path != OPTIONS_FILE and not is_same(wanted, line.value):
            found.append(Conflict(line.owner, line.path, line.number, key[0], setting_of(key[1]), line.value, US))
    return tuple(found)


def report(parameters: ParametersState, state: KernelModulesState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    effective: Dict[str, Dict[str, Optional[str]]] = {}
    boot: Dict[str, Dict[str, Optional[str]]] = {}
    at_boot = state.winners()
    for key in parameters.keys:
        effective.setdefault(key[0], {})[key[1]] = parameters.shown.get(key)
        boot.setdefault(key[0], {})[key[1]] = None if key[0] in state.faults else _value(at_boot, key)
    return effective, boot


def _value(at_boot: Mapping[Key, OptionLine], key: Key) -> Optional[str]:
    return at_boot[key].value if key in at_boot else None


def _as_wanted(found: Optional[str], wanted: Optional[str]) -> Optional[str]:
    """What was found, in the words of what is wanted where it is the same value."""
    return wanted if found is not None and wanted is not None and is_same(found, wanted) else found


def _read(files: Files, keys: AbstractSet[Key]) -> Dict[Key, Optional[str]]:
    of_driver = [key for key in keys if key[0] == "nvidia" and key[1].startswith(NVIDIA_PREFIX)]
    driver = read_nvidia(files) if of_driver else {}
    return {key: driver.get(key[1]) if key in of_driver else read_parameter(files, *key) for key in keys}


def _coming(files: Files, loader: BootLoader, modules: AbstractSet[str]) -> Tuple[OptionLine, ...]:
    """What the command line of the next boot says of these modules, with file and line where they are known."""
    lines = [line for line in parse_command_line("/proc/cmdline", loader.command_line) if line.module in modules]
    if not lines:
        return ()
    sources = find_sources(files, loader, [line.name for line in lines])
    return tuple(
        replace(line, path=sources[line.name][0], number=sources[line.name][1]) if line.name in sources else line
        for line in lines
    )


def _types(host: Host, state: KernelModulesState, modules: AbstractSet[str]) -> Dict[str, Dict[str, str]]:
    found = {}
    for module in sorted(modules):
        name = next(iter(state.real_names(module)), module)
        if state.installed.dependencies(name) is not None:
            types = read_types(host.commands, name)
            if types is not None:
                found[module] = types
    return found


def _possible_cpus(files: Files) -> int:
    return len(read_cpus(files, POSSIBLE_CPUS))
