# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The words of a shell script, line by line, as "Shell Command Language" of POSIX.1-2017 (2.2, 2.3, 2.7) has them.

One scan forward, so that the cost goes by the length of the script, whatever its quotes.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Iterator, List, Optional, Sequence, Tuple

from .._core.regex import regex

UNKNOWN = "${0}"
"""Stands in a word for a part that only the running script knows: a variable that has no value here."""
MOST_WORDS = 1024
"""So many words are made of one by its braces."""

_SEPARATORS = (";", "&&", "||", "|", "&", "(", ")", "()", ";;", "|&")
_PLAIN = regex(r"[^\s\\'\"`$#;&|()<>{}]+")
_QUOTED_PLAIN = regex(r'[^"\\`$]+')
_BLANK = regex(r"[^\S\n]+|\\\n")
_COMMENT = regex(r"#[^\n]*")
# Redirections with the number of their stream, here-documents before them; to a stream it is no file.
_HERE = regex(r"\d*<<(-?)[^\S\n]*((?:\\.|'[^'\n]*'|\"[^\"\n]*\"|[^\s;&|()<>'\"\\])+)")
_TO_STREAM = regex(r"\d*[<>]&\s*(?:\d+-?|-)(?![\w./$])")
_REDIRECTION = regex(r"(\d*)(&>>?|<<<|<>|<&|>&|>>|>\||[<>])(?!\()")
_OPERATOR = regex(r";;&|;;|;&|&&|\|\||\|&|\(\s*\)|[;&|()]")
_NAME = regex(r"\$(?:(\w+)|\{(\w+)\})")
_SPECIAL = regex(r"\$[@*#?$!-]")
# What is balanced in a substitution: quotes are one piece.
_PIECE = regex(r"\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"|[(){}]|[^\\'\"(){}]+|.", re.DOTALL)
# The path of a program of this name.
_LOOKED_UP = regex(r"(?:\$\(|`)\s*(?:which|command -v|type -p)\s+([\w./-]+)\s*(?:2>\s*/dev/null\s*)?[)`]")
_BACKTICKS = regex(r"`(?:[^`\\]|\\.)*`", re.DOTALL)
_SINGLE = regex(r"'([^']*)'")
_BRACES = regex(r"\{([^{}\s]*)\}")


class Sign(str):
    """A word that separates commands or redirects, which the same text in quotes does not."""


def lines(text: str) -> Iterator[Tuple[int, List[str]]]:
    """The words of each line by number: quotes removed, lines that belong together joined, comments and here-documents
    left out. Nothing comes behind a quote that is never closed.
    """
    return _Scan(text).lines()


def commands(words: Sequence[str]) -> Iterator[Tuple[str, List[str]]]:
    """The commands of a line, each with what stands before it. A parenthesis is one by itself."""
    separator = ""
    command: List[str] = []
    for word in words:
        if not isinstance(word, Sign) or word not in _SEPARATORS:
            command.append(word)
            continue
        if command:
            yield separator, command
            separator = ""
        if word in ("(", ")"):
            yield separator, [word]
        separator, command = word, []
    if command:
        yield separator, command


def redirected(command: Sequence[str]) -> Tuple[List[str], List[str]]:
    """The files that the output of a command goes to, and the command without them."""
    targets: List[str] = []
    rest: List[str] = []
    words = iter(command)
    for word in words:
        if not isinstance(word, Sign):
            rest.append(word)
        elif word == ">":
            targets.append(next(words, ""))
        else:
            next(words, "")
    return targets, rest


def printed(command: Sequence[str]) -> Optional[str]:
    """The output of a command; None where that is not known."""
    program = command[0].rpartition("/")[2] if command else ""
    if program == "echo":
        return " ".join(word for word in command[1:] if word not in ("-n", "-e", "-ne", "-en"))
    if program == "printf" and len(command) > 1:
        text = command[1].replace("\\n", "")
        if text == "%s" and len(command) == 3:
            return command[2]
        return text if "%" not in text else None
    return None


class _OpenError(Exception):
    """A quote or a substitution is never closed."""


class _Scan:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        # The line of ``_at``, counted up to ``_counted``.
        self._number, self._counted = 1, 0
        self._words: List[str] = []
        # The word that has begun, and whether it may have braces to expand.
        self._word: Optional[str] = None
        self._has_braces = False
        # The ends of the here-documents that begin behind this line, and whether tabs before these are left out.
        self._documents: List[Tuple[str, bool]] = []

    def lines(self) -> Iterator[Tuple[int, List[str]]]:
        start = 1
        try:
            while self._at < len(self._text):
                if not self._words and self._word is None:
                    start = self._line()
                if self._text[self._at] != "\n":
                    self._step()
                    continue
                self._end_word()
                self._at += 1
                self._skip_documents()
                if self._words and not self._goes_on():
                    yield start, self._words
                    self._words = []
        except _OpenError:
            return
        self._end_word()
        if self._words:
            yield start, self._words

    def _goes_on(self) -> bool:
        return isinstance(self._words[-1], Sign) and self._words[-1] in ("&&", "||", "|", "|&")

    def _line(self) -> int:
        self._number += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._number

    def _step(self) -> None:
        """Take the next piece of the line."""
        if self._word is None and self._begins_no_word():
            return
        plain = _PLAIN.match(self._text, self._at)
        if plain:
            self._add(plain[0])
            self._at = plain.end()
            return
        first = self._text[self._at]
        blank = _BLANK.match(self._text, self._at)
        if blank:
            if first != "\\":
                self._end_word()
            self._at = blank.end()
        elif first in ";&|()<>":
            self._end_word()
            self._take_sign()
        else:
            self._take_part(first)

    def _begins_no_word(self) -> bool:
        """Whether a comment, a redirection with its number or arithmetic was taken, which only begin where a word may.

        A word ends before other redirections, so that these are here as well.
        """
        first = self._text[self._at]
        if first == "#":
            found = _COMMENT.match(self._text, self._at)
            self._at = found.end() if found else self._at
        elif self._text.startswith("((", self._at):
            start, self._at = self._at, self._end_of(self._at)
            self._words.append(self._text[start : self._at])
        elif first in "0123456789&<>":
            return self._take_redirection()
        else:
            return False
        return True

    def _take_redirection(self) -> bool:
        here = _HERE.match(self._text, self._at)
        if here:
            self._documents.append((re.sub(r"['\"\\]", "", here[2]), bool(here[1])))
            self._at = here.end()
            return True
        to_stream = _TO_STREAM.match(self._text, self._at)
        if to_stream:
            self._at = to_stream.end()
            return True
        found = _REDIRECTION.match(self._text, self._at)
        if found is None:
            return False
        # Only the output is of interest; the word behind another redirection is a file as well.
        is_output = found[1] in ("", "1") and found[2] not in ("<", "<<<", "<>", "<&")
        self._words.append(Sign(">" if is_output else "<"))
        self._at = found.end()
        return True

    def _take_sign(self) -> None:
        if self._take_redirection():
            return
        operator = _OPERATOR.match(self._text, self._at)
        if operator:
            word = operator[0]
            self._words.append(Sign("()" if word[0] == "(" and len(word) > 1 else ";;" if word[:2] in _ENDS else word))
            self._at = operator.end()
        else:
            # A substitution in place of a file: the commands in it are of no interest.
            self._at = self._end_of(self._at + 1)
            self._add(UNKNOWN)

    def _take_part(self, first: str) -> None:
        """A quote, a substitution, or a sign that has no meaning within a word."""
        if first == "'":
            quote = _SINGLE.match(self._text, self._at)
            if quote is None:
                raise _OpenError
            self._add(quote[1])
            self._at = quote.end()
        elif first == '"':
            self._at += 1
            self._add("")
            self._take_double()
        elif first in "$`":
            self._take_substitution()
        elif first == "\\":
            self._add(self._text[self._at + 1 : self._at + 2])
            self._at += 2
        else:
            self._has_braces = self._has_braces or first == "{"
            self._add(first)
            self._at += 1

    def _take_double(self) -> None:
        while self._at < len(self._text):
            plain = _QUOTED_PLAIN.match(self._text, self._at)
            if plain:
                self._add(plain[0])
                self._at = plain.end()
                continue
            first = self._text[self._at]
            if first == '"':
                self._at += 1
                return
            if first == "\\":
                escaped = self._text[self._at + 1 : self._at + 2]
                self._add("" if escaped == "\n" else escaped if escaped in '$`"\\' else first + escaped)
                self._at += 2
            else:
                self._take_substitution()
        raise _OpenError

    def _take_substitution(self) -> None:
        name = _NAME.match(self._text, self._at)
        if name:
            # $12 is $1 with a 2 behind it.
            plain = name[1][:1] if name[1] and name[1][0].isdecimal() else name[1]
            self._add(f"${{{plain or name[2]}}}")
            self._at = name.end() if plain == name[1] else self._at + 2
            return
        start = self._at
        special = _SPECIAL.match(self._text, self._at)
        if special:
            self._at = special.end()
        elif self._text[self._at] == "`":
            quote = _BACKTICKS.match(self._text, self._at)
            if quote is None:
                raise _OpenError
            self._at = quote.end()
        elif self._text.startswith(("$(", "${"), self._at):
            self._at = self._end_of(self._at + 1)
        else:
            # A sign by itself, or before a quote ($'...').
            self._add("" if self._text[self._at + 1 : self._at + 2] in ("'", '"') else "$")
            self._at += 1
            return
        looked_up = _LOOKED_UP.fullmatch(self._text, start, self._at)
        self._add(looked_up[1] if looked_up else UNKNOWN)

    def _end_of(self, at: int) -> int:
        """The place behind the parenthesis or brace that closes the one at this place."""
        opening = self._text[at]
        closing = ")" if opening == "(" else "}"
        depth = 0
        for piece in _PIECE.finditer(self._text, at):
            depth += (piece[0] == opening) - (piece[0] == closing)
            if depth == 0:
                return piece.end()
        raise _OpenError

    def _add(self, part: str) -> None:
        self._word = part if self._word is None else self._word + part

    def _end_word(self) -> None:
        if self._word is not None:
            self._words += _with_braces(self._word) if self._has_braces else (self._word,)
        self._word, self._has_braces = None, False

    def _skip_documents(self) -> None:
        for end, without_tabs in self._documents:
            while self._at < len(self._text):
                newline = self._text.find("\n", self._at)
                line = self._text[self._at : newline if newline >= 0 else len(self._text)]
                self._at += len(line) + 1
                if (line.lstrip("\t") if without_tabs else line) == end:
                    break
        self._documents = []


# All of these end a branch of ``case``.
_ENDS = (";;", ";&")


def _with_braces(word: str) -> List[str]:
    """Brace expansion of bash(1) where it is simple; what is not is unknown, and a brace without a meaning stays."""
    pieces: List[List[str]] = []
    at, count = 0, 1
    for braces in _BRACES.finditer(word):
        if braces.start() and word[braces.start() - 1] == "$":
            continue
        made = _alternatives(braces[1])
        if made is None:
            continue
        made = made if 0 < len(made) * count <= MOST_WORDS else [UNKNOWN]
        count *= len(made)
        pieces += [[word[at : braces.start()]], made]
        at = braces.end()
    return ["".join(parts) for parts in product(*pieces, [word[at:]])]


def _alternatives(inside: str) -> Optional[List[str]]:
    """None where the braces mean themselves; none where they are not simple."""
    numbers = re.fullmatch(r"(0|[1-9]\d{0,8})\.\.(0|[1-9]\d{0,8})", inside)
    if numbers:
        first, last = int(numbers[1]), int(numbers[2])
        step = 1 if last >= first else -1
        return [str(number) for number in range(first, last + step, step)[: MOST_WORDS + 1]]
    if ".." in inside:
        return []
    return inside.split(",") if "," in inside else None
