# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of options in the roles' README files, from their argument specifications, and those of the profiles.

Without an argument they are written; with ``--check`` nothing is written, and a table that is not current is an error.
"""

from __future__ import annotations

import sys
from itertools import takewhile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import yaml

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- options:begin -->", "<!-- options:end -->"


def table(options: Dict[str, Any]) -> str:
    """One line an option; those of nested entries are indented under theirs."""
    lines = ["| variable | type | default | meaning |", "|---|---|---|---|"]
    lines.extend(rows(options, depth=0))
    return "\n".join(lines)


def rows(options: Dict[str, Any], depth: int) -> Iterator[str]:
    for name, option in options.items():
        kind = str(option.get("type", "str"))
        if "elements" in option:
            kind = f"list of {option['elements']}"
        if "choices" in option:
            kind = " \\| ".join(f"`{choice}`" for choice in option["choices"])
        default = (
            f"`{literal(option['default'])}`" if "default" in option else ("required" if option.get("required") else "")
        )
        indent = "&nbsp;" * 4 * depth
        yield f"| {indent}`{name}` | {kind} | {default} | {prose(option['description'])} |"
        yield from rows(option.get("options", {}), depth + 1)


def literal(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).replace("\n...", "").strip()


def prose(description: object) -> str:
    sentences: List[str] = description if isinstance(description, list) else [str(description)]
    return " ".join(" ".join(sentences).split()).replace("|", "\\|")


def profiles(folder: Path) -> str:
    """A table of what each profile is for, the comment it begins with, and one of the values that profiles set."""
    lines = ["| profile | what it is for |", "|---|---|"]
    setting: Dict[str, Dict[str, List[str]]] = {}
    files = sorted(folder.glob("*.yml"))
    for file in files:
        text = file.read_text()
        comment = takewhile(lambda line: line.startswith("#"), text.splitlines()[1:])
        lines.append(f"| `{file.stem}` | {' '.join(line.lstrip('# ') for line in comment)} |")
        for name, value in yaml.safe_load(text).items():
            setting.setdefault(name, {}).setdefault(literal(value), []).append(f"`{file.stem}`")
    lines += ["", "| variable | value | profiles |", "|---|---|---|"]
    for name in sorted(setting):
        for value, names in setting[name].items():
            lines.append(f"| `{name}` | `{value}` | {'all' if len(names) == len(files) else ', '.join(names)} |")
    return "\n".join(lines)


def pages() -> Iterator[Tuple[Path, str]]:
    """Each page with the tables that belong into it."""
    for specification in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        options = yaml.safe_load(specification.read_text())["argument_specs"]["main"]["options"]
        yield specification.parents[1] / "README.md", table(options)
    yield ROOT / "docs" / "profiles.md", profiles(ROOT / "profiles")


def main() -> int:
    stale = []
    for page, tables in pages():
        text = page.read_text()
        head, rest = text.split(BEGIN, 1)
        current = f"{head}{BEGIN}\n\n{tables}\n\n{END}{rest.split(END, 1)[1]}"
        if current == text:
            continue
        if "--check" in sys.argv[1:]:
            stale.append(str(page.relative_to(ROOT)))
        else:
            page.write_text(current)
            print(f"wrote {page.relative_to(ROOT)}")
    if stale:
        print(f"Not current, run `make docs`: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
