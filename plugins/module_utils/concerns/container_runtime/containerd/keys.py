# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd: the keys of a runtime beside its program, which pods get without asking for them.

They are those of ``Runtime`` in containerd's internal/cri/config and of runc's ``Options`` (api/types/runc/options).
The kind of a setting is the option, and its name that of the runtime: ``base_runtime_spec nvidia``. What is empty, zero
or false means the same as no key, and is no setting.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Tuple

from ..entries import OF_CONTAINERD, PRIVILEGED
from ..model import SettingName

if TYPE_CHECKING:
    from ...._core.setting import Scalar
    from ..model import Settings

# The names that runc's options have in the file, where they are in a table of their own.
OPTIONS = {
    "runc_root": "Root",
    "no_pivot_root": "NoPivotRoot",
    "no_new_keyring": "NoNewKeyring",
    "shim_cgroup": "ShimCgroup",
    "io_uid": "IoUid",
    "io_gid": "IoGid",
    "criu_path": "CriuPath",
    "criu_image_path": "CriuImagePath",
    "criu_work_path": "CriuWorkPath",
}
TYPES: Mapping[str, type] = {"path": str, "str": str, "bool": bool, "int": int, "list": list}
# By option: the way from the table of the runtime to the key, and the kind of its value.
KEYS: Mapping[str, Tuple[Tuple[str, ...], type]] = {
    option: (("options", OPTIONS[option]) if option in OPTIONS else (option,), TYPES[given["type"]])
    for option, given in OF_CONTAINERD.items()
}
KINDS = {str: "not a string", bool: "neither true nor false", int: "not a number", list: "not a list of strings"}


def settings_of(name: str, runtime: Mapping[str, Any]) -> Iterator[Tuple[SettingName, Scalar]]:
    """What the table of a runtime says."""
    for option, (path, _kind) in KEYS.items():
        value = scalar(at(runtime, path))
        if value is not None:
            yield SettingName(option, name), value


def at(runtime: Mapping[str, Any], path: Tuple[str, ...]) -> Any:
    """The value of a key, None where it is not there."""
    table = runtime.get("options", {}) if len(path) > 1 else runtime
    return table.get(path[-1])


def same(has: Scalar, wanted: Scalar) -> bool:
    """Whether both mean the same to containerd, which takes false and 0 for a key that is not there."""
    return (has or None) == (wanted or None)


def scalar(value: Any) -> Scalar:
    """A value of a key, or of an option, as a setting has it; None for an empty one."""
    made: Scalar = value
    if isinstance(value, list):
        made = " ".join(value)
        if value and (made.startswith("[") or made.split(" ") != value or "" in value):
            made = json.dumps(value, ensure_ascii=False)
    return None if made == "" else made


def listed(text: str) -> List[str]:
    """The items of a list that is a setting: between blanks, or as JSON where one of them has a blank."""
    items: List[str] = json.loads(text) if text.startswith("[") else text.split(" ")
    return items


def wrong_kind(kind: type, value: Any) -> bool:
    """Whether containerd would not take the value. True and false are not numbers."""
    if kind is list:
        return not isinstance(value, list) or not all(isinstance(item, str) for item in value)
    return not isinstance(value, kind) or (kind is int and isinstance(value, bool))


def wanted(name: str, declared: Mapping[str, Any], has: Settings, like: str) -> Dict[SettingName, Scalar]:
    """The keys of the runtime ``name``: as declared, otherwise those of the runtime ``like``, empty for none to copy.

    What neither the declaration nor one of the two runtimes says anything about is left out.
    """
    made: Dict[SettingName, Scalar] = {}
    for option in KEYS:
        setting = SettingName(option, name)
        copied = has.get(SettingName(option, like)) if like else None
        if option in declared:
            made[setting] = scalar(declared[option]) or None
        elif like and (copied or has.get(setting)):
            made[setting] = copied or None
    required, allowed = (SettingName(option, name) for option in PRIVILEGED)
    if made.get(allowed) and not made.get(required, has.get(required)) and PRIVILEGED[1] not in declared:
        # containerd does not start with the one and without the other.
        made[allowed] = None
    # What means the same stays as it is written.
    return {setting: has.get(setting) if same(has.get(setting), value) else value for setting, value in made.items()}
