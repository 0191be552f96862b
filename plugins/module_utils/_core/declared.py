# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The declaration that a concern leaves on its node, for the boot service, for ``gpufleet status`` and the audit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, Mapping, Optional, Tuple

from .change import Change, RemoveFile, ReplaceFile, Step
from .errors import CannotLook, GpuFleetError
from .record import MALFORMED, parse
from .setting import BOOT, NOW, Setting, worded
from .version import VERSION
from .wording import printable

if TYPE_CHECKING:
    from .contract import AnyConcern
    from .protocols import Files

FOLDER = "/etc/gpufleet/declared.d"
SCHEMA = 1
WANTED = "as declared"
DAMAGED = "damaged"
# How many characters of another declaration are shown.
LONGEST = 60


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
        document = parse(text)
        if document["schema"] == SCHEMA and isinstance(document["declaration"], dict):
            return dict(document["declaration"])
    except MALFORMED:
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
        present = parse(text)
        wanted = json.loads(json.dumps(document))
        # Another release of the collection that declares the same is no difference.
        present["collection_version"] = VERSION
        if present == wanted:
            return WANTED
        found, declaration = present.pop("declaration"), wanted.pop("declaration")
        if not isinstance(found, dict):
            return DAMAGED
        return _shown([*_differences("", found, declaration), *_differences("", present, wanted)])
    except MALFORMED:
        return DAMAGED


def _differences(name: str, found: Any, wanted: Any) -> Iterator[str]:
    """Each value of a declaration that is another one in the wanted one, with the way to it."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in sorted({*found, *wanted}):
            inner = f"{name}.{key}" if name else str(key)
            if key in found and key in wanted:
                yield from _differences(inner, found[key], wanted[key])
            else:
                yield f"{inner}: {_text(found[key]) if key in found else worded(None)}"
    elif isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        for number, (one, other) in enumerate(zip(found, wanted)):
            yield from _differences(f"{name}[{number}]", one, other)
    elif found != wanted:
        yield f"{name}: {_text(found)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shown(texts: Iterable[str]) -> str:
    """The texts without secrets, in what a table has room for."""
    from .file_diff import masked

    shown = "; ".join(masked(printable(text))[0] for text in texts)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 3]}..."


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
