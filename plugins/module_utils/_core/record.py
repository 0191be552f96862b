# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of ours on a node, each a JSON document with the number of its schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, TypeVar

from .errors import CannotLook
from .exposure import BELIEVED, exposed

if TYPE_CHECKING:
    from .protocols import Files

Made = TypeVar("Made")


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

    Raises ``CannotLook`` on a damaged one, and where it is ``believed`` on one that others than root may write.
    """
    text = files.read_optional(path)
    if text is None:
        return None
    fault = exposed(files, path, matter=BELIEVED) if believed else ""
    if fault:
        raise CannotLook(goal, object=path, cause=fault, hint="run the role node_tools, which corrects owner and mode")
    try:
        document = json.loads(text)
        if document["schema"] != schema:
            raise ValueError(f"schema {document['schema']}")
        return make(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CannotLook(goal, object=path, cause=f"the file is damaged: {error!r}", hint=hint) from error


def texts_of(document: Any) -> Dict[str, Optional[str]]:
    """The texts of files by path, None for one that is not there. Raises ``ValueError`` on anything else."""
    found = dict(document)
    if not all(isinstance(path, str) and isinstance(text, (str, type(None))) for path, text in found.items()):
        raise ValueError("not texts by path")
    return found


def read_note(files: Files, path: str, make: Callable[[Any], Made]) -> Optional[Made]:
    """What ``make`` makes of a document that may be lost: None where there is none, and for a damaged one."""
    text = files.read_optional(path)
    try:
        return None if text is None else make(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
