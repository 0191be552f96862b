# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``gpufleet_accepted``: other owners of settings that the inventory accepts, for all concerns in one list."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..module_utils._core import accepted
from ..module_utils._core.errors import DeclarationError
from ..module_utils._core.shared_options import SHARED_OPTIONS

VARIABLE = "gpufleet_accepted"
_CONCERN = "concern"


def of_concern(concern: str, value: Any) -> List[Dict[str, Any]]:
    """The entries of a concern, as its module takes them. What is malformed is left to ``fault_of``."""
    entries = value if isinstance(value, (list, tuple)) else ()
    return [
        # YAML has a type of its own for days.
        {name: str(part) for name, part in entry.items() if name != _CONCERN and part is not None}
        for entry in entries
        if isinstance(entry, Mapping) and entry.get(_CONCERN) == concern
    ]


def fault_of(value: Any, concerns: Sequence[str]) -> Optional[str]:
    """Why the variable cannot have a value; None where it can."""
    options = {**SHARED_OPTIONS[accepted.OPTION]["options"], _CONCERN: {"required": True, "choices": list(concerns)}}
    specification = {VARIABLE: {"type": "list", "elements": "dict", "options": options}}
    checked = ArgumentSpecValidator(specification).validate({VARIABLE: value})
    if checked.error_messages:
        return "; ".join(message.rstrip(".") for message in checked.error_messages) + "."
    try:
        accepted.parse(checked.validated_parameters[VARIABLE] or (), called=VARIABLE)
    except DeclarationError as error:
        return f"{error.object}: {error.cause}."
    return None
