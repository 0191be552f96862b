# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Words and escapes of a line as the programs of systemd read them (``extract_first_word`` and ``cunescape``)."""

from __future__ import annotations

import re
from typing import List

_SIMPLE = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "s": 32, "\\": 92, '"': 34, "'": 39}


def unescape(text: str) -> str:
    """A text with what it has in C's escapes: ``\\n``, ``\\x41``, ``\\101``, ``\\u00e9``, and ``\\s`` for a blank.

    Raises ``ValueError`` on any other, and on a NUL.
    """
    if "\\" not in text:
        return text
    made = re.sub(
        rb"\\(?:x([0-9a-fA-F]{2})|([0-3][0-7]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.?))",
        _unescaped,
        text.encode("utf-8", "surrogateescape"),
        flags=re.DOTALL,
    )
    return made.decode("utf-8", "surrogateescape")


def split_words(text: str, count: int) -> List[str]:
    """The first words of a line, at most ``count``, without their quotes and escapes, and the rest as it is written.

    Raises ``ValueError`` where a quote is not closed or an escape is none.
    """
    words: List[str] = []
    rest = text.strip(" \t\n\r")
    while rest and len(words) < count:
        word = re.match(r"""(?:[^ \t\n\r"'\\]|\\.|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')+(?=[ \t\n\r]|$)""", rest)
        if word is None:
            raise ValueError(f"{rest!r} has a quote that is not closed")
        plain = re.sub(r"""(\\.)|"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'""", _unquoted, word[0])
        words.append(unescape(plain))
        rest = rest[word.end() :].lstrip(" \t\n\r")
    return [*words, rest] if rest else words


def _unescaped(escape: re.Match[bytes]) -> bytes:
    byte, octal, short, long, simple = escape.groups()
    if simple is not None:
        number = _SIMPLE.get(simple.decode("latin-1"), 0)
    else:
        number = int(octal, 8) if octal else int(byte or short or long, 16)
    if not number or number > 0x10FFFF:
        raise ValueError(f"{escape[0].decode('latin-1')} is not an escape")
    return chr(number).encode("utf-8", "surrogatepass") if short or long else bytes([number])


def _unquoted(part: re.Match[str]) -> str:
    return next(text for text in part.groups() if text is not None)


def unit_of_path(path: str, kind: str) -> str:
    """The unit of a path, such as ``dev-sda3.swap`` for /dev/sda3 (systemd.unit(5), "String escaping")."""
    words = [word for word in path.split("/") if word]
    escaped = ["".join(map(_unit_character, word)) for word in words]
    if escaped and escaped[0].startswith("."):
        escaped[0] = f"\\x2e{escaped[0][1:]}"
    return f"{'-'.join(escaped) or '-'}.{kind}"


def _unit_character(character: str) -> str:
    if character.isascii() and (character.isalnum() or character in ":_."):
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
