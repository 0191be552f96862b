# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The text of the toolkit's file with other values."""

from __future__ import annotations

import json
from typing import Any, Tuple

from ...._core.errors import Refused
from ...._core.setting import Scalar
from ...._text.toml_edit import TomlEditError, remove, set_value
from ..model import Configuration, Edit, Settings
from .options import KEYS, TEXTS


def edit(configuration: Configuration, target: Settings) -> Tuple[Edit, ...]:
    """The edit after which the keys in ``target`` have its values; None for a key that is not there.

    Raises ``Refused`` where the text does not take it.
    """
    (document,) = configuration.documents
    before = document.text
    text = before or ""
    for setting, value in target.items():
        if configuration.settings.get(setting) == value:
            continue
        keys = tuple(setting.kind.split("."))
        try:
            text = remove(text, keys) if value is None else set_value(text, keys, _typed(setting.kind, value))
        except TomlEditError as error:
            raise Refused(
                f"set {setting}", object=document.path, cause=str(error), hint="edit the file by hand"
            ) from error
    return () if text == (before or "") else (Edit(document.path, before, text),)


def _typed(name: str, value: Scalar) -> Any:
    """The value of a setting as the file has it: a list is its text there. One that others wrote may be no list."""
    if not isinstance(value, str) or not value.startswith("[") or KEYS.get(name, TEXTS) != TEXTS:
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value
