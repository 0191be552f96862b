# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the variables of the roles declare.

A look takes the declarations of all roles on every host, and Ansible makes a new process for each host. What is the
same for all hosts is therefore worked out when this module is imported: Ansible imports an action before it does so.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Callable, Dict, Mapping

from ..module_utils._core import accepted
from ..module_utils._node.registry import REGISTRY
from ..module_utils.concerns.nvml.spec import CONTROLLER
from . import acceptances
from .archive import build
from .binding import NoBinding, options_for, packed
from .profiles import VARIABLE, asked
from .profiles import value_of as value_in
from .role_defaults import ROLE_DEFAULTS

ENTRIES = {entry.name: entry for entry in REGISTRY}


# In the order in which they run.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {role: ROLE_DEFAULTS[role] for role in ENTRIES}
ARCHIVE_SHA256 = sha256(build()).hexdigest()
BROUGHT = options_for("")


def declaration_of(role: str, variables: Mapping[str, Any], template: Callable[[Any], Any]) -> Dict[str, Any]:
    """The declaration that the public variables of a role make; ``variables`` are those of the host as written.

    A variable that the host does not have has the role's default, which asks the profile. Raises ``ProfileError``.
    """
    value_of = _values(variables, template)
    values = {name: value_of(name, default) for name, default in DEFAULTS[role].items()}
    declared = {name[len(role) + 1 :]: value for name, value in values.items()}
    declared[accepted.OPTION] = acceptances.of_concern(role, value_of(acceptances.VARIABLE, []))
    if role == "node_tools":
        declared["archive_sha256"] = ARCHIVE_SHA256
    if role == "nvml" and declared["source"] == CONTROLLER:
        file = value_of("nvml_file", "")
        declared.update(options_for(str(file)) if file else BROUGHT)
    return declared


def binding_to_lend(variables: Mapping[str, Any], template: Callable[[Any], Any]) -> str:
    """The binding that ``nvml`` would install on a host, packed for a look; empty where it would bring none.

    Raises ``ProfileError``.
    """
    value_of = _values(variables, template)
    if value_of("nvml_state", "present") == "absent" or value_of("nvml_source", CONTROLLER) != CONTROLLER:
        return ""
    try:
        return packed(str(value_of("nvml_file", "") or ""))
    except NoBinding:
        # The look at the concern says so.
        return ""


def _values(variables: Mapping[str, Any], template: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    """The function that reads a variable of a host, by its name and its default."""
    profile = variables.get(VARIABLE, "")
    if not is_plain(profile):
        profile = template(profile)

    def value_of(name: str, default: Any) -> Any:
        if name not in variables:
            return value_in(profile, name, default)
        value = variables[name]
        if is_plain(value):
            return value
        # Beside the role its defaults are variables too.
        asking = asked(value)
        return template(value) if asking is None else value_in(profile, *asking)

    return value_of


def declarations(variables: Mapping[str, Any], template: Callable[[Any], Any]) -> Dict[str, Mapping[str, Any]]:
    """What all roles declare on a host, without those that ask for nothing there."""
    return declaring({role: declaration_of(role, variables, template) for role in DEFAULTS})


def is_plain(value: Any) -> bool:
    """Whether a value has no template in it, as most have none: Ansible takes much longer to see that."""
    if isinstance(value, str):
        return "{" not in value and not value.startswith("#jinja2:")
    if isinstance(value, Mapping):
        return all(is_plain(part) for part in value.values())
    if isinstance(value, (list, tuple)):
        return all(is_plain(part) for part in value)
    return value is None or isinstance(value, (bool, int, float))


def declares_something(concern: str, declaration: Mapping[str, Any]) -> bool:
    """Whether a role was given anything to do: by an option that is empty without it, or by another state.

    What is there and of the wrong type counts, so that the look refuses it.
    """
    empty = [name[len(concern) + 1 :] for name, default in DEFAULTS[concern].items() if default in (None, [], {})]
    serves = ENTRIES[concern].registration.serves
    given = not serves and any(declaration.get(name) not in (None, [], {}) for name in empty)
    return given or declaration.get("state", "present") != "present"


def declaring(declarations: Mapping[str, Mapping[str, Any]]) -> Dict[str, Mapping[str, Any]]:
    """Those that ask for something, and of the concerns that serve others those with such a one."""
    names = {name for name, declaration in declarations.items() if declares_something(name, declaration)}
    return {
        name: declaration
        for name, declaration in declarations.items()
        if name in names or names.intersection(ENTRIES[name].registration.serves)
    }
