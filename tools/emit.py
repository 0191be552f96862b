# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Data as Python, YAML and Markdown, laid out as the formatters and linters of this repository want it."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

import yaml
from documented import cell

WIDTH = 120
# PyYAML ends a line behind the first word that goes beyond.
YAML_WIDTH = 100


def python(value: object, *, before: str = "", depth: int = 0) -> str:
    """A literal as ruff formats it: on one line where it fits after ``before``, else an entry a line."""
    flat = _flat(value)
    if len(before) + len(flat) + 4 * depth + 1 <= WIDTH or not isinstance(value, (dict, list, tuple)):
        return flat
    indent = " " * 4 * (depth + 1)
    opening, closing = "{}" if isinstance(value, dict) else "[]" if isinstance(value, list) else "()"
    lines = []
    if isinstance(value, dict):
        for key, entry in value.items():
            lines.append(f"{indent}{_flat(key)}: {python(entry, before=f'{_flat(key)}: ', depth=depth + 1)},")
    else:
        lines = [f"{indent}{python(entry, depth=depth + 1)}," for entry in value]
    return "\n".join([opening, *lines, f"{' ' * 4 * depth}{closing}"])


def _flat(value: object) -> str:
    if isinstance(value, str):
        quote = "'" if '"' in value and "'" not in value else '"'
        return quote + value.replace("\\", "\\\\").replace(quote, f"\\{quote}") + quote
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flat(key)}: {_flat(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flat, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_flat, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)


def jinja(value: object) -> str:
    """A literal as templates have it in a text between double quotes."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


class _Dumper(yaml.SafeDumper):
    """Lists are indented under their key, and those of plain values stand on one line, as choices do by hand."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        return True


def _list(dumper: yaml.SafeDumper, data: Sequence[object]) -> yaml.Node:
    plain = not any(isinstance(entry, (dict, list)) or " " in str(entry) for entry in data) and len(str(data)) < 100
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=plain)


def _mapping(dumper: yaml.SafeDumper, data: Mapping[str, object]) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", data.items(), flow_style=not data)


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style='"' if "{{" in data else None)


_Dumper.add_representer(list, _list)
_Dumper.add_representer(str, _text)
_Dumper.add_representer(dict, _mapping)


def block(value: object, *, width: int = YAML_WIDTH) -> str:
    """A document in YAML, without its first line."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=width, allow_unicode=True)


def inline(value: object) -> str:
    """A value on one line of YAML."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).replace("\n...", "").strip()


def table(options: Mapping[str, Any]) -> str:
    """Options in Markdown, one line each; those of nested entries are indented under theirs."""
    return "\n".join(["| variable | type | default | meaning |", "|---|---|---|---|", *_rows(options, depth=0)])


def _rows(options: Mapping[str, Any], depth: int) -> Iterator[str]:
    for name, option in options.items():
        kind = str(option.get("type", "str"))
        if "elements" in option:
            kind = f"list of {option['elements']}"
        if "choices" in option:
            kind = " \\| ".join(f"`{choice}`" for choice in option["choices"])
        default = "required" if option.get("required") else ""
        if "default" in option:
            default = f"`{inline(option['default'])}`"
        indent = "&nbsp;" * 4 * depth
        yield f"| {indent}`{name}` | {kind} | {default} | {cell(option['description'])} |"
        yield from _rows(option.get("options", {}), depth + 1)
