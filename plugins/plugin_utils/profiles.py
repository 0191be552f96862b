# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Profiles: files with defaults for the variables of all concerns, of the collection and of a fleet's own."""

from __future__ import annotations

import re
from ast import literal_eval
from functools import cache
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.yaml import yaml_load

from ..module_utils._core.nearest import nearest
from .playbooks import COLLECTION, Option, cause_against, options_of

PROFILES = COLLECTION / "profiles"
SUFFIX = ".yml"
# The variable that names the profile of a host.
VARIABLE = "gpufleet_profile"

# The one form that a default of a concern's role has: the name of the variable, and its value without a profile.
ASKING = re.compile(
    r"\{\{ gpufleet_profile \| default\(''\) \| gpufleet\.node\.profile\(\s*'(\w+)',\s*(.*)\) \}\}", re.DOTALL
)
EXAMPLE = "kernel_modules_block: [nouveau]"
TEMPLATE = re.compile(r"\{[{%]")

Profile = Mapping[str, Any]


class ProfileError(ValueError):
    """A profile that cannot be used, and why, with what to do; the text has both."""

    def __init__(self, profile: str, cause: str) -> None:
        self.cause = cause
        super().__init__(f"Cannot use the profile {profile}: {cause}")


def names() -> List[str]:
    """The profiles of the collection."""
    return sorted(path.stem for path in PROFILES.glob(f"*{SUFFIX}"))


@cache
def read(profile: str) -> Profile:
    """The values of a profile by variable: one of the collection by its name, any other by its absolute path.

    Raises ``ProfileError`` when there is none, or when it is not a mapping.
    """
    path = _path_of(profile)
    try:
        found = yaml_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(profile, f"{error.strerror}. Name a file on the controller.") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ProfileError(profile, f"it is not valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(found, dict):
        raise ProfileError(profile, f"it is not a mapping. Write a line for each variable, such as {EXAMPLE}.")
    return found


def value_of(profile: Any, variable: str, default: Any) -> Any:
    """What a variable is without the inventory. ``profile`` is a name, a path, or empty for none."""
    return read(str(profile)).get(variable, default) if profile else default


def asked(default: Any) -> Optional[Tuple[str, Any]]:
    """The variable and its value without a profile, of the default of a role; None for a value that asks no profile.

    It spares the templating of a text of which nothing but these two is ever different.
    """
    asking = ASKING.fullmatch(default) if isinstance(default, str) else None
    return (asking[1], literal_eval(asking[2])) if asking else None


def variables_of(concerns: Iterable[str]) -> Dict[str, Option]:
    """What a profile may set: the public variables of the roles of all concerns."""
    return {name: option for concern in concerns for name, option in options_of(concern).items()}


def faults(profile: str, options: Mapping[str, Option]) -> Iterator[Tuple[str, str]]:
    """What of a profile cannot be used, and why. ``options`` are the variables that it may set."""
    try:
        values = read(profile)
    except ProfileError as error:
        yield f"the profile {profile}", error.cause
        return
    for name, value in values.items():
        cause = _cause(str(name), value, options)
        if cause:
            yield f"{name} in the profile {_path_of(profile)}", cause


def _path_of(profile: str) -> Path:
    if profile.startswith("/"):
        return Path(profile)
    known = names()
    if profile not in known:
        near = nearest(profile, known)
        hint = f"Did you mean {near}?" if near else f"The profiles are {', '.join(known)}."
        raise ProfileError(profile, f"there is no such profile. {hint} One of your own is named by its absolute path.")
    return PROFILES / f"{profile}{SUFFIX}"


def _cause(name: str, value: Any, options: Mapping[str, Option]) -> Optional[str]:
    if name not in options:
        near = nearest(name, options)
        return "no concern has such a variable." + (f" Did you mean {near}?" if near else "")
    if any(TEMPLATE.search(text) for text in _texts(value)):
        return "a profile holds values, and no templates. Set it in the inventory."
    option = options[name]
    if "options" not in option or not isinstance(value, (list, dict)):
        return cause_against(name, option, value)
    messages = [
        f"unsupported option {message}" if "Supported parameters" in message else message
        for message in ArgumentSpecValidator({name: option}).validate({name: value}).error_messages
    ]
    return "; ".join(message.rstrip(".") for message in messages) + "." if messages else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
