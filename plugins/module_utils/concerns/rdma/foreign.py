# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services and scripts that set ports at boot: by dcb(8), by mlnx_qos, cma_roce_mode and cma_roce_tos of mlnx-tools, or
by the files of the kernel.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Iterator, Mapping, Optional, Sequence, Tuple

from ..._kinds import foreign_values
from ..._kinds.foreign_values import Said
from ..._linux import boot_writers
from . import devices, lossless
from .devices import MODES
from .spec import IN_CONFIGFS, ROCE_MODE, ROCE_TOS, TRAFFIC_CLASS

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files
    from ..._kinds.foreign_values import ForeignValue
    from ..._linux.boot_writers import BootWrite
    from .devices import Port

QOS, CMA_MODE, CMA_TOS = "mlnx_qos", "cma_roce_mode", "cma_roce_tos"
PROGRAMS = (lossless.PROGRAM, QOS, CMA_MODE, CMA_TOS)
TREES = (f"{devices.FOLDER}/", f"{devices.CONFIGFS}/", "/sys/class/net/")
# The device and port of the scripts of mlnx-tools where they are given none.
FIRST_DEVICE, FIRST_PORT = "mlx5_0", "1"
_LONG = {"--interface": "-i", "--pfc": "-f"}
_Options = Sequence[Tuple[str, str]]


def read(files: Files, ports: Sequence[Port], scope: Scope) -> Tuple[ForeignValue, ...]:
    """The values that other owners give to the declared settings of these ports."""
    writes = [one for one in boot_writers.read(files) if one.target in PROGRAMS or one.target.startswith(TREES)]
    lines = [(one, [said for port in ports for said in _said(one, port)]) for one in writes]
    return foreign_values.read(files, scope, lines) if lines else ()


def _said(write: BootWrite, port: Port) -> Iterator[Said]:
    if write.target == lossless.PROGRAM:
        found = _by_dcb(write.arguments, port)
    elif write.target == QOS:
        found = _by_qos(_options(write.arguments), port)
    elif write.target in (CMA_MODE, CMA_TOS):
        found = _by_cma(write.target, dict(_options(write.arguments)), port)
    else:
        found = _by_sysfs(write, port)
    yield from (one for one in found if one.setting in port.values)


def _options(arguments: Sequence[str]) -> _Options:
    """The options of a program in order, each with its value."""
    found = []
    for word, following in zip(arguments, (*arguments[1:], "")):
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            found.append((_LONG.get(name, name), value if equals else following))
        elif word.startswith("-") and len(word) > 1:
            found.append((word[:2], word[2:] or following))
    return found


def _by_qos(options: _Options, port: Port) -> Iterator[Said]:
    """python/mlnx_qos of mlnx-tools. Without a list of priorities, a length of the cable takes PFC from all."""
    said = dict(options)
    if not fnmatchcase(port.netdev, said.get("-i", "")):
        return
    if "-f" in said or "--cable_len" in said:
        yield Said(port.name, lossless.PFC, _priorities(said.get("-f", "").split(",") if "-f" in said else ()))
    for name, value in options:
        if name != "--dscp2prio":
            continue
        action, _comma, mapping = value.partition(",")
        code, _comma, priority = mapping.partition(",")
        if action == "set":
            yield Said(port.name, f"{lossless.DSCP} {code}", _known(priority))
        elif action == "del":
            yield Said(port.name, f"{lossless.DSCP} {code}", lossless.NONE)
        else:
            yield from _all_codes(port, lossless.NONE if action == "flush" else None)


def _priorities(switches: Sequence[str]) -> Optional[str]:
    """The priorities of a list of 0 and 1, one for each."""
    if any(one not in ("0", "1") for one in switches):
        return None
    return ",".join(str(priority) for priority, one in enumerate(switches) if one == "1") or lossless.NONE


def _all_codes(port: Port, value: Optional[str]) -> Iterator[Said]:
    settings = (setting for setting in port.values if setting.startswith(f"{lossless.DSCP} "))
    yield from (Said(port.name, setting, value) for setting in settings)


def _by_dcb(arguments: Sequence[str], port: Port) -> Iterator[Said]:
    """dcb-pfc(8) and dcb-app(8): ``dcb pfc set dev NAME prio-pfc ...``, ``dcb app replace dev NAME dscp-prio ...``."""
    words = [word for word in arguments if not word.startswith("-")]
    if len(words) < 6 or words[2] != "dev" or not fnmatchcase(port.netdev, words[3]):
        return
    mappings = words[words.index("prio-pfc" if words[0] == "pfc" else "dscp-prio") + 1 :] if _is_about(words) else []
    pairs = [tuple(mapping.split(":", 1)) for mapping in mappings if ":" in mapping]
    if words[0] == "pfc" and pairs:
        is_whole = pairs[0] == ("all", lossless.OFF)
        on = [pair[0] for pair in pairs if pair[1] == lossless.ON]
        # Without the others, what they had stays.
        yield Said(port.name, lossless.PFC, (",".join(sorted(on)) or lossless.NONE) if is_whole else None)
    elif words[0] == "app" and words[1] in ("add", "replace", "set", "del"):
        for code, priority in pairs:
            value = lossless.NONE if words[1] == "del" else _known(priority)
            yield Said(port.name, f"{lossless.DSCP} {code}", value)


def _is_about(words: Sequence[str]) -> bool:
    return (words[0] == "pfc" and words[1] == "set" and "prio-pfc" in words) or (
        words[0] == "app" and "dscp-prio" in words
    )


def _by_cma(program: str, options: Mapping[str, str], port: Port) -> Iterator[Said]:
    """sbin/cma_roce_mode and sbin/cma_roce_tos of mlnx-tools."""
    device, number = options.get("-d", FIRST_DEVICE), options.get("-p", FIRST_PORT)
    if not fnmatchcase(port.device.name, device) or not fnmatchcase(port.number, number):
        return
    if program == CMA_MODE and options.get("-m"):
        modes = {"1": "v1", "2": "v2"}
        yield Said(port.name, ROCE_MODE, modes.get(options["-m"]))
    elif program == CMA_TOS and options.get("-t"):
        yield Said(port.name, ROCE_TOS, _known(options["-t"]))


def _by_sysfs(write: BootWrite, port: Port) -> Iterator[Said]:
    for setting in port.values:
        in_files = setting in (*IN_CONFIGFS, TRAFFIC_CLASS) or setting.startswith(f"{lossless.ECN} ")
        if in_files and fnmatchcase(port.path_of(setting), write.target):
            yield Said(port.name, setting, _meant(setting, write.value))


def _meant(setting: str, text: Optional[str]) -> Optional[str]:
    """A text for a file of the kernel, as the setting has its value."""
    if text is None:
        return None
    if setting == ROCE_MODE:
        return next((mode for mode, words in MODES.items() if words == text), None)
    if setting.startswith(lossless.ECN):
        return lossless.ON if text == "1" else lossless.OFF
    return text


def _known(text: str) -> Optional[str]:
    return text if text.isdecimal() else None
