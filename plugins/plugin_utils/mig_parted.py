# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of NVIDIA's mig-parted: what one of their configurations is as entries of ``mig_layout_gpus``.

The rules are those of mig-parted (api/spec/v1, pkg/mig/config): of several entries for a GPU the last counts, and
compute instances that are a part of a GPU instance share one while it has room.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, NoReturn, Sequence, Tuple

import yaml

from ..module_utils._core.nearest import did_you_mean, nearest

VERSION = "v1"
CONFIGS = "mig-configs"
FIELDS = ("device-filter", "devices", "mig-enabled", "mig-devices")
# 1g.10gb, 1g.10gb+me, 1g.24gb-me, 1c.3g.40gb
PROFILE = re.compile(r"(?:(\d)c\.)?((\d)g\.\d+gb(?:[+-][a-z.,]+)?)", re.ASCII)
# Device and vendor, and those of the board: 0x20B210DE, 0x20B210DE:0x147F10DE
DEVICE = re.compile(r"0x([0-9a-f]{4})([0-9a-f]{4})(?::0x([0-9a-f]{4})([0-9a-f]{4}))?", re.ASCII)

Entry = Dict[str, Any]


class WrongFile(Exception):
    """Why a file, or a configuration in it, cannot be taken; one sentence with the next step."""


class MigDevice(NamedTuple):
    """One of ``mig-devices``: ``many`` with ``slices`` of compute in a GPU instance ``profile``, which has ``of``."""

    profile: str
    of: int
    slices: int
    many: int


def entries_of(file: Any, name: str) -> List[Entry]:
    """The entries that the configuration ``name`` of a file is; ``file`` is its text, or what it says as YAML.

    A GPU for which the configuration has nothing gets an entry that no GPU can have, so that it is not passed over in
    silence. Raises ``WrongFile``.
    """
    found: List[Entry] = []
    config = _config(file, name)
    for number in range(len(config) - 1, -1, -1):
        entry = _entry(f"{name}[{number}]", config[number])
        if not entry["match"]:
            return [*found, {**entry, "optional": bool(found)}]
        found.append({**entry, "optional": True})
    return [*found, {"match": {}, "layout": f"{name} (mig-parted)", "optional": True}]


def _config(file: Any, name: str) -> Sequence[Any]:
    if isinstance(file, str):
        try:
            file = yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise WrongFile(f"it is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(file, Mapping) or not isinstance(file.get(CONFIGS), Mapping):
        raise WrongFile(f"it has no {CONFIGS}. Give the content of the file, not its path.")
    if file.get("version") != VERSION:
        raise WrongFile(f"its version is {file.get('version')!r}, and must be {VERSION}.")
    configs = file[CONFIGS]
    if name not in configs:
        near = nearest(name, map(str, configs))
        hint = f"Did you mean {near}?" if near else f"It has {', '.join(map(str, configs))}."
        raise WrongFile(f"it has no configuration {name}. {hint}")
    config = configs[name]
    if not isinstance(config, (list, tuple)) or not config:
        _wrong(name, "it is not a list of entries")
    return config


def _entry(where: str, given: Any) -> Entry:
    if not isinstance(given, Mapping):
        _wrong(where, "it is not a mapping")
    for key in given:
        if key not in FIELDS:
            _wrong(where, f"there is no field {key}", did_you_mean(key, FIELDS))
    for key in ("devices", "mig-enabled"):
        if key not in given:
            _wrong(where, f"it has no {key}")
    enabled, devices = given["mig-enabled"], given.get("mig-devices")
    if not isinstance(enabled, bool):
        _wrong(where, f"mig-enabled is {enabled!r}, and must be true or false")
    match = {**_filter(where, given.get("device-filter")), **_indexes(where, given["devices"])}
    if not enabled:
        if devices:
            _wrong(where, "it has mig-devices, and mig-enabled is false")
        return {"match": match, "mig": "disabled"}
    if not isinstance(devices, Mapping):
        _wrong(where, "it has no mig-devices", "write mig-devices: {} for none")
    return {"match": match, "instances": _instances(where, devices)}


def _filter(where: str, given: Any) -> Dict[str, List[str]]:
    if given is None:
        return {}
    found = []
    for text in [given] if isinstance(given, (str, int)) else _list(where, "device-filter", given):
        # Without quotation marks YAML makes a number of it.
        word = DEVICE.fullmatch(f"{text:#010x}" if isinstance(text, int) else text.strip().lower())
        if word is None:
            _wrong(where, f"device-filter has {text!r}", "write it as 0x233010DE, the device before the vendor")
        device, vendor, board, board_vendor = word.groups()
        found.append(f"{vendor}:{device}" + (f":{board_vendor}:{board}" if board else ""))
    return {"pci_id": found} if found else {}


def _indexes(where: str, given: Any) -> Dict[str, List[int]]:
    if given == "all":
        return {}
    indexes = [] if isinstance(given, str) else _list(where, "devices", given)
    if not indexes or not all(isinstance(one, int) for one in indexes):
        _wrong(where, f"devices is {given!r}, and must be all or a list of the numbers of GPUs")
    return {"index": indexes}


def _list(where: str, field: str, given: Any) -> List[Any]:
    if not isinstance(given, (list, tuple)) or any(
        isinstance(one, bool) or not isinstance(one, (str, int)) for one in given
    ):
        _wrong(where, f"{field} is {given!r}, and must be a list")
    return list(given)


def _instances(where: str, devices: Mapping[str, Any]) -> List[Entry]:
    """The GPU instances, those first that have the most slices, each with its compute instances where it is divided."""
    wanted = [_device(where, str(name), count) for name, count in devices.items()]
    if wanted and not any(device.many for device in wanted):
        _wrong(where, "all counts of mig-devices are 0", "write mig-devices: {} for none")
    found: List[Entry] = []
    for device in sorted((one for one in wanted if one.slices == one.of), key=lambda one: (-one.of, one.profile)):
        if device.many:
            found.append({"profile": device.profile, "count": device.many})
    divided = sorted((one for one in wanted if one.slices < one.of), key=lambda one: (-one.of, one.profile))
    profiles = dict.fromkeys((one.profile, one.of) for one in divided)
    for profile, of in profiles:
        found.extend(_shared(profile, of, (one for one in divided if one.profile == profile)))
    return found


def _device(where: str, name: str, count: Any) -> MigDevice:
    parts = PROFILE.fullmatch(name.strip().lower())
    if parts is None:
        _wrong(where, f"{name!r} is not a MIG profile", "write it as 3g.40gb, 1g.10gb+me or 1c.3g.40gb")
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        _wrong(where, f"the count of {name} is {count!r}, and must be a whole number")
    of = int(parts[3])
    slices = int(parts[1] or of)
    if not 0 < slices <= of:
        _wrong(where, f"a {parts[2]} has {of} compute slices, and {name} takes {slices}")
    return MigDevice(parts[2], of, slices, count)


def _shared(profile: str, of: int, devices: Iterable[MigDevice]) -> Iterable[Entry]:
    """The GPU instances of one profile that compute instances share: the largest first, while there is room."""
    room: Tuple[str, ...] = ()
    used = 0
    for device in sorted(devices, key=lambda one: -one.slices):
        for _number in range(device.many):
            if used + device.slices > of:
                yield {"profile": profile, "compute_instances": list(room)}
                room, used = (), 0
            room, used = (*room, f"{device.slices}c"), used + device.slices
    if room:
        yield {"profile": profile, "compute_instances": list(room)}


def _wrong(where: str, cause: str, hint: str = "") -> NoReturn:
    said = f" {hint[0].upper()}{hint[1:]}{'?' if hint.startswith('did') else '.'}" if hint else ""
    raise WrongFile(f"{where} is wrong: {cause}.{said}")
