# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A declaration made complete without Ansible: on the node, where it lies as what is no default."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional

from . import declared
from .errors import CannotLook, DeclarationError
from .nearest import did_you_mean

if TYPE_CHECKING:
    from .protocols import Files

TYPES: Mapping[str, Any] = {
    "str": str,
    "path": str,
    "int": int,
    "float": (float, int),
    "bool": bool,
    "list": list,
    "dict": dict,
}


def of_file(files: Files, concern: str) -> Optional[Dict[str, Any]]:
    """What a concern declares on this node that is no default; None where it declares nothing.

    Raises ``CannotLook`` for a file that is damaged or of another schema, and ``OSError`` for one that cannot be read.
    """
    path = declared.path_of(concern)
    text = files.read_optional(path)
    if text is None:
        return None
    try:
        document = json.loads(text)
        if document["schema"] == declared.SCHEMA and isinstance(document["declaration"], dict):
            return dict(document["declaration"])
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise CannotLook(
        "read the declaration",
        object=path,
        cause="the file is damaged, or of another release",
        hint=f"run {concern} again, which writes it",
    )


def complete(options: Mapping[str, Any], declaration: Mapping[str, Any], where: str = "") -> Dict[str, Any]:
    """The declaration with the defaults of ``options``, an argument specification, at every depth.

    What Ansible accepted once is of the right type already, so nothing is converted. Raises ``DeclarationError`` for
    what this release does not know or take: a file of another release, or one that was edited. ``where`` begins a path.
    """
    for name in declaration:
        if name not in options:
            raise _refused(f"{where}{name}", "there is no such option", did_you_mean(name, options))
    completed = {}
    for name, option in options.items():
        value = declaration.get(name)
        if value is None:
            if option.get("required"):
                raise _refused(f"{where}{name}", "it is missing")
            completed[name] = deepcopy(option.get("default"))
        else:
            completed[name] = _checked(option, value, f"{where}{name}")
    return completed


def _checked(option: Mapping[str, Any], value: Any, where: str) -> Any:
    kind = option.get("type", "str")
    # Python takes a boolean for a number.
    if not isinstance(value, TYPES.get(kind, object)) or (isinstance(value, bool) and kind in ("int", "float")):
        raise _refused(where, f"{value!r} is not of type {kind}")
    if option.get("choices") and value not in option["choices"]:
        raise _refused(where, f"{value!r} is not one of {', '.join(str(choice) for choice in option['choices'])}")
    if kind == "list":
        element = {key: option[key] for key in ("options",) if key in option}
        element["type"] = option.get("elements", "raw")
        return [_checked(element, entry, f"{where}[{index}]") for index, entry in enumerate(value)]
    if kind == "dict" and "options" in option:
        return complete(option["options"], value, f"{where}.")
    return value


def _refused(where: str, cause: str, hint: str = "") -> DeclarationError:
    return DeclarationError("read {} in the declaration", object=where, cause=cause, hint=hint)
