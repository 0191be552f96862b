# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""JSON documents as text, with comments and whitespace where JSON5 and JSON have them."""

from __future__ import annotations

import json

from hypothesis import strategies as st

KEYS = st.sampled_from(["a", "b", "runtimes", 'q"', "ä", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """An object, written in any of the ways people write it."""
    indent = draw(st.sampled_from([None, None, 1, 2, 4, "\t"]))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")]))
    text = json.dumps(draw(DOCUMENTS), indent=indent, separators=separators, ensure_ascii=draw(st.booleans()))
    text = draw(st.sampled_from(["", "\n", " \n\t"])) + text + draw(st.sampled_from(["", "\n", "\r\n\r\n"]))
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n").replace("\r\r", "\r")
    return draw(st.sampled_from(["", "\ufeff"])) + text
