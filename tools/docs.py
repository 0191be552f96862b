# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of options in the roles' README files, generated from their argument specifications.

Without an argument they are written; with ``--check`` nothing is written, and a table that is not current is an error.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

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


def main() -> int:
    stale = []
    for specification in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        options = yaml.safe_load(specification.read_text())["argument_specs"]["main"]["options"]
        readme = specification.parents[1] / "README.md"
        text = readme.read_text()
        head, rest = text.split(BEGIN, 1)
        current = f"{head}{BEGIN}\n\n{table(options)}\n\n{END}{rest.split(END, 1)[1]}"
        if current == text:
            continue
        if "--check" in sys.argv[1:]:
            stale.append(str(readme.relative_to(ROOT)))
        else:
            readme.write_text(current)
            print(f"wrote {readme.relative_to(ROOT)}")
    if stale:
        print(f"Not current, run `make docs`: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
