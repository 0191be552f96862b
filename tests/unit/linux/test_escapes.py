# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Words and escapes as the programs of systemd read them."""

from __future__ import annotations

from typing import List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux.escapes import split_words, unescape


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        (r"\a\b\f\n\r\t\v\s\\\"\'", "\a\b\f\n\r\t\v \\\"'"),
        (r"\x41\101\u0041\U00000041", "AAAA"),
        # Bytes make characters together.
        (r"\xc3\xa9 \303\251 é", "é é é"),
        (r"\xff", "\udcff"),
    ],
)
def test_an_escape_is_what_it_is_in_c(text: str, expected: str) -> None:
    assert unescape(text) == expected


@pytest.mark.parametrize(
    "text", ["\\", r"\q", r"\x4", r"\xg1", r"\400", r"\18", r"\u004", r"\x00", r"\000", r"\UFFFFFFFF"]
)
def test_what_is_no_escape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an escape"):
        unescape(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" a\tb  c ", ["a", "b", "c"]),
        ("a b c d  e", ["a", "b", "c", "d  e"]),
        ("'a b' \"c d\" e\"f g\"'h'", ["a b", "c d", "ef gh"]),
        (r"a\x20b \"c '\'' d", ["a b", '"c', "'", "d"]),
        ("'' \"\" x", ["", "", "x"]),
        ("", []),
    ],
)
def test_words_are_parted_at_blanks_outside_of_quotes(text: str, words: List[str]) -> None:
    assert split_words(text, 3) == words


@pytest.mark.parametrize("text", ["'a", 'a "b', "a'b", "a \\"])
def test_a_quote_that_is_not_closed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not closed"):
        split_words(text, 3)
