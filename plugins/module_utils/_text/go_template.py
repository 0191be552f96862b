# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of Go's text/template (https://pkg.go.dev/text/template) that templates of configurations are written in.

Actions: comments, pipelines, variables, ``if``, ``with``, ``range``, ``define``, ``block``, ``template``, ``break`` and
``continue``, with trim markers. Functions: those that compare, ``and``, ``or``, ``not``, ``len``, ``index``, ``print``,
``println`` and ``printf``, and what the caller brings. All else raises ``TemplateError``, as does what would end Go's
own rendering, so that no text is ever made which Go would not make.
"""

from __future__ import annotations

import json
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .._core.regex import regex
from .._core.value import field, frozen

# What keeps templates that call each other from ending the process.
DEEPEST = 50
_ACTION = regex(r"\{\{(-(?=[ \t\r\n]))?")
_END = regex(r"(?:(?<=[ \t\r\n])-)?\}\}")
_COMMENT = regex(r"[ \t\r\n]*/\*.*?\*/[ \t\r\n]*(-(?<=[ \t\r\n]-))?\}\}", re.DOTALL)
_TOKEN = regex(
    r"""(?P<space>[ \t\r\n]+)|(?P<text>"(?:[^"\\\n]|\\.)*"|`[^`]*`)|(?P<number>[-+]?[0-9]+(?![\w.]))"""
    r"""|(?P<variable>\$\w*)|(?P<field>\.[A-Za-z_]\w*)|(?P<word>[A-Za-z_]\w*)|(?P<sign>:=|[=|(),.])"""
)
_WORDS = {"true": True, "false": False, "nil": None}
_VERB = regex(r"%(?:%|([-+# 0]*[0-9]*(?:\.[0-9]+)?)([a-zA-Z]))")
_NOT_HERE = object()

Functions = Mapping[str, Callable[..., Any]]


class TemplateError(ValueError):
    """What is not known of a template here, or would end its rendering. ``line`` counts from 1."""

    def __init__(self, line: int, cause: str) -> None:
        super().__init__(f"line {line}: {cause}")
        self.line = line
        self.cause = cause


class Struct(Dict[str, Any]):
    """A struct of Go: it has the fields that it has, and is true, whatever is in them. A dict is a map."""


@frozen
class Token:
    """``blank`` is what stands before it: a field without one belongs to what it follows."""

    kind: str
    text: str
    blank: str = ""


class TemplateAction(NamedTuple):
    line: int
    tokens: Tuple[Token, ...]


@frozen
class TemplateNode:
    """``kind`` is text, a pipeline, or the word of a block with its two lists of nodes."""

    kind: str
    line: int
    text: str = ""
    tokens: Tuple[Token, ...] = ()
    body: List[TemplateNode] = field(default_factory=list)
    otherwise: List[TemplateNode] = field(default_factory=list)


class _Break(Exception):
    """``break``; its subclass is ``continue``."""


class _Continue(_Break):
    pass


def render(text: str, data: Any, *, templates: Mapping[str, str], functions: Functions) -> str:
    """The text that a template makes of data: dicts, ``Struct``, lists, texts, numbers, true, false and None.

    ``templates`` are others by their names, which come after its own definitions and so replace them.
    Raises ``TemplateError``.
    """
    defined: Dict[str, List[TemplateNode]] = {}
    body = _parse(text, defined)
    for name, other in templates.items():
        defined[name] = _parse(other, defined)
    return _Rendering(defined, {**_FUNCTIONS, **functions}).run(body, data)


# --- Text to nodes


def _parse(text: str, defined: Dict[str, List[TemplateNode]]) -> List[TemplateNode]:
    nodes: List[TemplateNode] = []
    # Each block that is open: its node, and the list that goes on now.
    around: List[Tuple[TemplateNode, List[TemplateNode]]] = []
    for part in _parts(text):
        if isinstance(part, str):
            if part:
                nodes.append(TemplateNode("text", 0, text=part))
            continue
        word = part.tokens[0].text if part.tokens and part.tokens[0].kind == "word" else ""
        rest = part.tokens[1:]
        if word in ("if", "with", "range", "define", "block"):
            node = TemplateNode(word, part.line, tokens=rest)
            if word != "define":
                nodes.append(node)
            around.append((node, nodes))
            nodes = node.body
        elif word == "else":
            node = around[-1][0] if around else TemplateNode("", 0)
            if node.kind not in ("if", "with", "range") or nodes is not node.body:
                raise TemplateError(part.line, "else without if, with or range")
            nodes = node.otherwise
            if rest:
                # An ``else if`` is a block in the else, which ends with it.
                if rest[0].text != node.kind or node.kind == "range":
                    raise TemplateError(part.line, f"{_shown(part)} is not supported")
                inner = TemplateNode(node.kind, part.line, text="else", tokens=rest[1:])
                nodes.append(inner)
                around.append((inner, nodes))
                nodes = inner.body
        elif word == "end":
            if rest or not around:
                raise TemplateError(part.line, "end without a block to end")
            node, nodes = around.pop()
            while node.text == "else":
                node, nodes = around.pop()
            if node.kind in ("define", "block"):
                defined[_name(node)] = node.body
        else:
            nodes.append(
                TemplateNode(
                    word if word in ("template", "break", "continue") else "pipe", part.line, tokens=part.tokens
                )
            )
    if around:
        raise TemplateError(around[-1][0].line, f"the {around[-1][0].kind} has no end")
    return nodes


def _parts(text: str) -> List[Any]:
    """The texts and the actions between them, trimmed."""
    parts: List[Any] = []
    position, trim = 0, False
    while True:
        opening = _ACTION.search(text, position)
        before = text[position : opening.start() if opening else len(text)]
        before = before.lstrip(" \t\r\n") if trim else before
        if opening is None:
            parts.append(before)
            return parts
        parts.append(before.rstrip(" \t\r\n") if opening[1] else before)
        line = text.count("\n", 0, opening.start()) + 1
        comment = _COMMENT.match(text, opening.end())
        if comment:
            position, trim = comment.end(), bool(comment[1])
            continue
        tokens, position, trim = _tokens(text, opening.end(), line)
        parts.append(TemplateAction(line, tokens))


def _tokens(text: str, position: int, line: int) -> Tuple[Tuple[Token, ...], int, bool]:
    """The tokens of an action, where it ends, and whether it trims what follows."""
    tokens: List[Token] = []
    blank = ""
    while True:
        end = _END.match(text, position)
        if end:
            if not tokens:
                raise TemplateError(line, "an action is empty")
            return tuple(tokens), end.end(), end[0].startswith("-")
        found = _TOKEN.match(text, position)
        if found is None:
            shown = text[position : position + 20].partition("}}")[0].partition("\n")[0]
            raise TemplateError(line, f"{shown!r} is not supported" if shown else "an action is not closed")
        position = found.end()
        if found.lastgroup == "space":
            blank = found[0]
            continue
        tokens.append(Token(str(found.lastgroup), found[0], blank))
        blank = ""


def _shown(action: Any) -> str:
    return "{{ " + "".join(token.blank + token.text for token in action.tokens).strip() + " }}"


def _name(node: TemplateNode) -> str:
    tokens = node.tokens[1:] if node.kind == "template" else node.tokens
    if not tokens or tokens[0].kind != "text" or (node.kind == "define" and len(tokens) > 1):
        raise TemplateError(node.line, f"a {node.kind} has no name")
    return _unquoted(tokens[0].text, node.line)


def _unquoted(text: str, line: int) -> str:
    if text[0] == "`":
        return text[1:-1]
    try:
        return str(json.loads(text))
    except ValueError:
        raise TemplateError(line, f"{text} has an unsupported escape sequence") from None


# --- Nodes to text


class _Rendering:
    def __init__(self, templates: Mapping[str, List[TemplateNode]], functions: Functions) -> None:
        self.templates = templates
        self.functions = functions
        self.depth = 0

    def run(self, nodes: Sequence[TemplateNode], data: Any) -> str:
        """A template on its own: it sees no variable but the data."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise TemplateError(nodes[0].line if nodes else 1, f"templates call each other more than {DEEPEST} times")
        made: List[str] = []
        try:
            self.walk(nodes, data, [{"$": data}], made)
        except _Break:
            raise TemplateError(1, "break or continue outside of a range") from None
        self.depth -= 1
        return "".join(made)

    def walk(self, nodes: Sequence[TemplateNode], dot: Any, variables: List[Dict[str, Any]], made: List[str]) -> None:
        for node in nodes:
            if node.kind == "text":
                made.append(node.text)
            elif node.kind in ("break", "continue"):
                raise _Break if node.kind == "break" else _Continue
            elif node.kind == "range":
                self.repeat(node, dot, variables, made)
            elif node.kind in ("if", "with"):
                scope = [*variables, {}]
                value = _Pipeline(self, node, dot, scope).result()
                inner = value if node.kind == "with" else dot
                if truth(value):
                    self.walk(node.body, inner, scope, made)
                else:
                    self.walk(node.otherwise, dot, scope, made)
            elif node.kind in ("template", "block"):
                made.append(self.call(node, dot, variables))
            else:
                pipeline = _Pipeline(self, node, dot, variables)
                value = pipeline.result()
                if not pipeline.assigns:
                    made.append(printed(value, node.line))

    def call(self, node: TemplateNode, dot: Any, variables: List[Dict[str, Any]]) -> str:
        name = _name(node)
        if name not in self.templates:
            raise TemplateError(node.line, f"there is no template {name}")
        given = node.tokens[2:] if node.kind == "template" else node.tokens[1:]
        data = (
            _Pipeline(self, TemplateNode("pipe", node.line, tokens=given), dot, variables).result() if given else None
        )
        return self.run(self.templates[name], data)

    def repeat(self, node: TemplateNode, dot: Any, variables: List[Dict[str, Any]], made: List[str]) -> None:
        names, tokens = _loop_variables(node)
        pipeline = _Pipeline(self, TemplateNode("range", node.line, tokens=tokens), dot, [*variables, {}])
        value = pipeline.result()
        pairs: List[Tuple[Any, Any]] = []
        if isinstance(value, list):
            pairs = list(enumerate(value))
        elif isinstance(value, dict) and not isinstance(value, Struct):
            pairs = sorted(value.items())
        elif value is not None:
            raise TemplateError(node.line, f"range over {_kind(value)} is not supported")
        if not pairs:
            self.walk(node.otherwise, dot, [*variables, {}], made)
        for key, item in pairs:
            scope = dict(zip(names, (key, item) if len(names) == 2 else (item,)))
            try:
                self.walk(node.body, item, [*variables, scope], made)
            except _Continue:
                continue
            except _Break:
                break


def _loop_variables(node: TemplateNode) -> Tuple[List[str], Tuple[Token, ...]]:
    """The variables of a range, and the tokens of what it goes over."""
    signs = [index for index, token in enumerate(node.tokens) if token.text == ":="]
    if not signs:
        return [], node.tokens
    before = [token for token in node.tokens[: signs[0]] if token.text != ","]
    if len(before) > 2 or any(token.kind != "variable" for token in before):
        raise TemplateError(node.line, "these variables of a range are not supported")
    return [token.text for token in before], node.tokens[signs[0] + 1 :]


class _Pipeline:
    """The value of the tokens of one action."""

    def __init__(self, rendering: _Rendering, node: TemplateNode, dot: Any, variables: List[Dict[str, Any]]) -> None:
        self.rendering = rendering
        self.line = node.line
        self.dot = dot
        self.variables = variables
        self.tokens = list(node.tokens)
        self.position = 0
        self.assigns = False

    def result(self) -> Any:
        first = self.next()
        sign = self.peek()
        if first is not None and first.kind == "variable" and sign in (":=", "="):
            self.position += 1
            self.assigns = True
            value = self.commands()
            scope = self.variables[-1] if sign == ":=" else self.scope_of(first.text)
            scope[first.text] = value
        else:
            self.position = 0
            value = self.commands()
        if self.position < len(self.tokens):
            raise self.error(f"{self.tokens[self.position].text} is not supported")
        return value

    def scope_of(self, name: str) -> Dict[str, Any]:
        """The innermost scope that has a variable."""
        scope: Dict[str, Any]
        for scope in reversed(self.variables):
            if name in scope:
                return scope
        raise self.error(f"there is no variable {name}")

    def commands(self) -> Any:
        """Commands with a bar between them, each of which gets the value of the one before it last."""
        value = self.command(_NOT_HERE)
        while self.peek() == "|":
            self.position += 1
            value = self.command(value)
        return value

    def command(self, last: Any) -> Any:
        token = self.next()
        if token is None:
            raise self.error("a value is missing")
        if token.kind == "word" and token.text not in _WORDS:
            return self.call(token.text, last)
        self.position -= 1
        value = self.operand()
        if last is not _NOT_HERE or not self.ended():
            raise self.error(f"{token.text} is not a supported function")
        return value

    def call(self, name: str, last: Any) -> Any:
        function = self.rendering.functions.get(name)
        if function is None:
            raise self.error(f"the function {name} is not supported")
        arguments: List[Any] = []
        while not self.ended():
            if name in ("and", "or") and arguments and truth(arguments[-1]) is (name == "or"):
                # Go takes no argument after the one that decides.
                self.leave_out()
                last = _NOT_HERE
                break
            token = self.tokens[self.position]
            if token.kind == "word" and token.text not in _WORDS:
                raise self.error(f"{token.text} is a call without parentheses as an argument, which is not supported")
            arguments.append(self.operand())
        if last is not _NOT_HERE:
            arguments.append(last)
        try:
            return function(*arguments)
        except (TypeError, LookupError, ValueError) as error:
            raise self.error(f"{name} does not accept its arguments: {error}") from error

    def leave_out(self) -> None:
        """Up to the end of the command, whatever is there."""
        depth = 0
        while self.position < len(self.tokens):
            text = self.tokens[self.position].text
            if depth == 0 and text in ("|", ")"):
                return
            depth += (text == "(") - (text == ")")
            self.position += 1

    def operand(self) -> Any:
        token = self.next()
        if token is None:
            raise self.error("a value is missing")
        if token.kind == "text":
            return self.fields(_unquoted(token.text, self.line))
        if token.kind == "number":
            return int(token.text)
        if token.kind == "word":
            return _WORDS[token.text]
        if token.kind == "variable":
            return self.fields(self.scope_of(token.text)[token.text])
        if token.kind == "field":
            self.position -= 1
            return self.fields(self.dot, first=True)
        if token.text == ".":
            return self.dot
        if token.text == "(":
            value = self.commands()
            if self.peek() != ")":
                raise self.error("a closing parenthesis is missing")
            self.position += 1
            return self.fields(value)
        raise self.error(f"{token.text} is not supported")

    def fields(self, value: Any, *, first: bool = False) -> Any:
        """The value at the fields that follow; ``first``: also at one with a blank before it."""
        while self.position < len(self.tokens):
            token = self.tokens[self.position]
            if token.kind != "field" or (token.blank and not first):
                break
            name, first = token.text[1:], False
            self.position += 1
            if isinstance(value, dict) and name in value:
                value = value[name]
            elif value is None:
                raise self.error(f".{name} is read from a nil value")
            else:
                raise self.error(f"the field .{name} is not supported")
        return value

    def next(self) -> Optional[Token]:
        if self.position >= len(self.tokens):
            return None
        self.position += 1
        return self.tokens[self.position - 1]

    def peek(self) -> str:
        return self.tokens[self.position].text if self.position < len(self.tokens) else ""

    def ended(self) -> bool:
        return self.peek() in ("", "|", ")")

    def error(self, cause: str) -> TemplateError:
        return TemplateError(self.line, f"in {_shown(self)} {cause}")


# --- Values


def truth(value: Any) -> bool:
    return True if isinstance(value, Struct) else bool(value)


def printed(value: Any, line: int) -> str:
    """A value as Go prints it. Raises ``TemplateError`` for what is no single one."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    raise TemplateError(line, f"printing {_kind(value)} is not supported")


def _kind(value: Any) -> str:
    if value is None:
        return "nil"
    kinds = {str: "a string", bool: "a boolean", int: "a number", list: "a list", dict: "a map"}
    return kinds.get(type(value), "a struct")


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other) or isinstance(one, (dict, list)):
        raise TypeError(f"{_kind(one)} and {_kind(other)} cannot be compared")
    return bool(one == other)


def _equal(first: Any, *others: Any) -> bool:
    if not others:
        raise TypeError("one argument is missing")
    return any(_same(first, other) for other in others)


def _less(one: Any, other: Any) -> bool:
    if type(one) is not type(other) or not isinstance(one, (str, int)) or isinstance(one, bool):
        raise TypeError(f"{_kind(one)} and {_kind(other)} cannot be ordered")
    return bool(one < other)


def _and(first: Any, *others: Any) -> Any:
    values = (first, *others)
    return next((value for value in values if not truth(value)), values[-1])


def _or(first: Any, *others: Any) -> Any:
    values = (first, *others)
    return next((value for value in values if truth(value)), values[-1])


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, Struct) or not isinstance(value, (dict, list)) or isinstance(key, bool):
            raise TypeError(f"{_kind(value)} has no items")
        if isinstance(value, list) and not (isinstance(key, int) and 0 <= key < len(value)):
            raise LookupError("there is no such item")
        # Of a map Go would give an empty value, of a kind that is not supported.
        value = value[key]
    return value


def _length(value: Any) -> int:
    if isinstance(value, Struct) or not isinstance(value, (str, list, dict)):
        raise TypeError(f"{_kind(value)} has no length")
    return len(value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value)


def _print(*values: Any) -> str:
    made = ""
    for index, value in enumerate(values):
        # Go puts a blank where neither of two neighbours is a text.
        if index and not isinstance(value, str) and not isinstance(values[index - 1], str):
            made += " "
        made += printed(value, 0)
    return made


def _println(*values: Any) -> str:
    return " ".join(printed(value, 0) for value in values) + "\n"


def _printf(form: str, *values: Any) -> str:
    left = list(values)

    def replaced(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        if match[1] or not left:
            raise ValueError(f"{match[0]} is not supported")
        value, verb = left.pop(0), match[2]
        kinds: Mapping[str, Any] = {"s": str, "q": str, "d": int, "t": bool, "v": (str, int)}
        if verb not in kinds or not isinstance(value, kinds[verb]) or (verb == "d" and isinstance(value, bool)):
            raise ValueError(f"{match[0]} of {_kind(value)} is not supported")
        if verb == "q":
            if not value.isprintable() or "\ufffd" in value:
                raise ValueError("%q of a string that is not printable is not supported")
            return json.dumps(value, ensure_ascii=False)
        return printed(value, 0)

    if not isinstance(form, str) or "%" in _VERB.sub("", form):
        raise ValueError("its first argument is not a supported format string")
    made = _VERB.sub(replaced, form)
    if left:
        raise ValueError("it has more arguments than verbs")
    return made


_FUNCTIONS: Functions = {
    "and": _and,
    "or": _or,
    "not": lambda value: not truth(value),
    "eq": _equal,
    "ne": lambda one, other: not _same(one, other),
    "lt": _less,
    "le": lambda left, right: not _less(right, left),
    "gt": lambda left, right: _less(right, left),
    "ge": lambda one, other: not _less(one, other),
    "len": _length,
    "index": _index,
    "print": _print,
    "println": _println,
    "printf": _printf,
}
