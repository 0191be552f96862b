# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a text that is no TOML is told. Imported for that alone."""

from __future__ import annotations

import re

from .toml_text import BLANKS, BYTE_ORDER_MARK, KEY, NO_TEXT, TomlError, skip


def error(text: str, position: int, cause: str) -> TomlError:
    if re.compile(NO_TEXT).match(text, position):
        cause = f"the control character {text[position]!r} may not be here"
    before = text[:position].lstrip(BYTE_ORDER_MARK)
    return TomlError(before.count("\n") + 1, len(before) - before.rfind("\n"), cause)


def misplaced(text: str, position: int) -> TomlError:
    """What is neither an assignment nor a header, at the place from which on it is not."""
    opening = re.compile(r"\[\[?[ \t]*").match(text, position)
    key = re.compile(KEY).match(text, opening.end() if opening else position)
    if key is None:
        what = "header of a table" if opening else "key with an = after it"
        return error(text, opening.end() if opening else position, f"this is no {what}")
    cause = "the header of a table goes on with a dot or ends with ]" if opening else "an = must follow the key"
    return error(text, skip(BLANKS, text, key.end()), cause)
