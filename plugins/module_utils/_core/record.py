# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of ours on a node, each a JSON document with the number of its schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, TypeVar

from .errors import CannotLook
from .exposure import BELIEVED, exposed

if TYPE_CHECKING:
    from .protocols import Files

Made = TypeVar("Made")

# How a reader of a document stumbles over one that it was not written for.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
TOO_DEEP = "it is nested too deeply"


class Damaged(ValueError):
    """A document is not what it has to be; the message says why, as in "it is empty"."""


def read_record(
    files: Files,
    path: str,
    make: Callable[[Any], Made],
    *,
    schema: int,
    goal: str,
    hint: str,
    believed: bool = True,
) -> Optional[Made]:
    """What ``make`` makes of the document, None where there is none.

    Raises ``CannotLook`` on a damaged one, on what is not a file, and where it is ``believed`` on one that others than
    root may write.
    """
    try:
        text = files.read_optional(path)
    except PermissionError:
        raise
    except OSError as error:
        raise CannotLook(goal, object=path, cause=error.strerror or str(error), hint=hint) from error
    if text is None:
        if files.link(path):
            raise CannotLook(goal, object=path, cause=f"it is a symbolic link to {files.link(path)}", hint=hint)
        return None
    fault = exposed(files, path, matter=BELIEVED) if believed else ""
    if fault:
        raise CannotLook(goal, object=path, cause=fault, hint="run the role node_tools, which corrects owner and mode")
    try:
        document = parse(text)
        if not isinstance(document, dict):
            raise Damaged("it does not hold a mapping")
        if document["schema"] != schema:
            raise Damaged(f"it has schema {document['schema']!r}, and this release {schema}")
        return make(document)
    except MALFORMED as error:
        cause = f"the file is damaged: {damage_of(error)}"
        raise CannotLook(goal, object=path, cause=cause, hint=hint) from error


def parse(text: str) -> Any:
    """The document of a text. Raises ``Damaged``."""
    if not text.strip():
        raise Damaged("it is empty")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Damaged("it is not UTF-8") from error
    try:
        return json.loads(text)
    except ValueError as error:
        raise Damaged("it is not JSON") from error
    except RecursionError as error:
        raise Damaged(TOO_DEEP) from error


def damage_of(error: Exception) -> str:
    """What is wrong with a document over which its reader stumbled, in words for an operator."""
    if isinstance(error, Damaged):
        return str(error)
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    return TOO_DEEP if isinstance(error, RecursionError) else "a value in it has the wrong type"


def listed(value: Any) -> List[Any]:
    """A list in a document: a text or a mapping in its place could be gone through too. Raises ``Damaged``."""
    if isinstance(value, list):
        return value
    raise Damaged(f"{value!r:.80} is not a list")


def optional_text(value: Any) -> Optional[str]:
    """A text in a document, or None. Raises ``Damaged``."""
    if value is None or isinstance(value, str):
        return value
    raise Damaged(f"{value!r:.80} is not a text")


def texts_of(document: Any) -> Dict[str, Optional[str]]:
    """The texts of files by path, None for one that is not there. Raises what ``MALFORMED`` has."""
    return {path: optional_text(text) for path, text in document.items()}


def read_note(files: Files, path: str, make: Callable[[Any], Made]) -> Optional[Made]:
    """What ``make`` makes of a document that may be lost: None where there is none, and for a damaged one."""
    text = files.read_optional(path)
    try:
        return None if text is None else make(parse(text))
    except MALFORMED:
        return None
