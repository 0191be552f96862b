# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The declaration that a concern leaves on its node, for the boot service, for ``gpufleet status`` and the audit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from .change import Change, RemoveFile, ReplaceFile, Step
from .errors import CannotLook, GpuFleetError
from .setting import BOOT, NOW, Setting
from .version import VERSION

if TYPE_CHECKING:
    from .contract import AnyConcern
    from .protocols import Files

FOLDER = "/etc/gpufleet/declared.d"
SCHEMA = 1
WANTED = "as declared"


def path_of(concern: str) -> str:
    return f"{FOLDER}/{concern}.json"


def names(files: Files, folder: str = FOLDER) -> Tuple[str, ...]:
    """The concerns that have a declaration on this node, or a document in another folder."""
    return tuple(
        name[: -len(".json")] for name in files.names(folder) if name.endswith(".json") and not name.startswith(".")
    )


def of_file(files: Files, concern: str) -> Optional[Dict[str, Any]]:
    """What a concern declares on this node that is no default; None where it declares nothing.

    Raises ``CannotLook`` for a file that is damaged or of another schema, and ``OSError`` for one that cannot be read.
    """
    path = path_of(concern)
    text = files.read_optional(path)
    if text is None:
        return None
    try:
        document = json.loads(text)
        if document["schema"] == SCHEMA and isinstance(document["declaration"], dict):
            return dict(document["declaration"])
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise CannotLook(
        "read the declaration",
        object=path,
        cause="the file is damaged, or of another release",
        hint=f"run {concern} again, which writes it",
    )


def of_another(files: Files, concern: str) -> Dict[str, Any]:
    """The same of another concern; empty also where the file is damaged, which the look of that concern tells."""
    try:
        return of_file(files, concern) or {}
    except GpuFleetError:
        return {}


def without_defaults(params: Mapping[str, Any], options: Mapping[str, Any]) -> Dict[str, Any]:
    """What of the parameters was really declared: neither a default nor empty.

    So a release that adds an option changes no declaration.
    """
    return {
        name: _without_none(value)
        for name, value in params.items()
        if value is not None and value != options[name].get("default")
    }


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(entry) for name, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [_without_none(entry) for entry in value]
    return value


def plan_present(
    files: Files, concern: AnyConcern, params: Mapping[str, Any], shared: Mapping[str, Any]
) -> Tuple[Setting, Tuple[Step, ...]]:
    """The declaration as a setting of the next boot, and the step that writes it where it is not what is declared."""
    document = {
        "schema": SCHEMA,
        "collection_version": VERSION,
        "concern": concern.name,
        "apply_at_boot": concern.apply_at_boot or _needs_boot_service(concern, params),
        "declaration": without_defaults(params, {**shared, **concern.options}),
    }
    path = path_of(concern.name)
    found = _describe(files.read_optional(path), document)
    setting = _setting(path, wanted=WANTED, found=found)
    if found == WANTED:
        return setting, ()
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    return setting, (Step(ReplaceFile(path, text), (_change(path, found, WANTED),)),)


def _needs_boot_service(concern: AnyConcern, params: Mapping[str, Any]) -> bool:
    """Whether something in this declaration has to be applied at boot, of a concern whose others have not."""
    return hasattr(concern, "needs_boot_service") and bool(concern.needs_boot_service(params))


def plan_absent(files: Files, concern: str) -> Tuple[Setting, Tuple[Step, ...]]:
    """The same for a concern that is restored: the file goes."""
    path = path_of(concern)
    found = None if files.read_optional(path) is None else "present"
    steps = () if found is None else (Step(RemoveFile(path), (_change(path, found, None),)),)
    return _setting(path, wanted=None, found=found), steps


def _describe(text: Optional[str], document: Mapping[str, Any]) -> Optional[str]:
    if text is None:
        return None
    try:
        present = json.loads(text)
        # Another release of the collection that declares the same is no difference.
        same = {**present, "collection_version": VERSION} == json.loads(json.dumps(document))
    except (ValueError, TypeError, RecursionError):
        same = False
    return WANTED if same else "another declaration"


def _setting(path: str, *, wanted: Optional[str], found: Optional[str]) -> Setting:
    return Setting(
        object=path,
        setting="declaration",
        wanted=wanted,
        effective=found,
        boot=found,
        identity=path,
        effective_matters=False,
    )


def _change(path: str, before: Optional[str], after: Optional[str]) -> Change:
    return Change(object=path, setting="declaration", before=before, after=after, scope=BOOT, takes_effect=NOW)
