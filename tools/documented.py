# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The documentation of modules, which is the one place where an option stands, and what it says in other forms."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Union

import yaml

ROOT = Path(__file__).resolve().parents[1]
MODULES = ROOT / "plugins" / "modules"
FRAGMENTS = ROOT / "plugins" / "doc_fragments"
COLLECTION = "gpufleet.node"
# What every module of a concern extends.
CONTRACT = f"{COLLECTION}.contract"

Option = Dict[str, Any]
Options = Dict[str, Option]

# What an option says of its values, in documentation and in an argument specification alike, in this order.
KEYS = ("type", "elements", "choices", "required", "default")
# The names that ansible-test takes for those of secrets, and that are none.
NO_SECRETS = ("key",)
# Those of values that are too long to be logged and returned.
UNLOGGED = ("binding",)
# The markup of Ansible's documentation. Only an option, its value and a returned key mean something else elsewhere.
OPTION = re.compile(r"\bO\(([a-z_]+)((?:\[\])?(?:\.[^)=]*)?(?:=[^)]*)?)\)")
RETURNED = re.compile(r"\bRV\((?:ignore:)?([^)]*)\)")
CODE = re.compile(r"\b(?:O|RV|V|C|E)\((?:ignore:)?((?:\\.|[^)\\])*)\)")
NAME = re.compile(r"\b(?:M|P)\(([^)#]+)(?:#\w+)?\)")
ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True)
class Module:
    """A module by its source file."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def documentation(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = yaml.safe_load(texts(self.path)["DOCUMENTATION"])
        return found

    @property
    def is_concern(self) -> bool:
        return CONTRACT in self.fragments

    @property
    def fragments(self) -> Sequence[str]:
        return list(self.documentation.get("extends_documentation_fragment", ()))

    @property
    def options(self) -> Options:
        """Those that stand in the module itself."""
        return dict(self.documentation.get("options", {}))


@cache
def modules() -> Sequence[Module]:
    """All of them, each with its documentation parsed once: that takes longer than all that is made from it."""
    return [Module(path) for path in sorted(MODULES.glob("*.py"))]


def concerns() -> List[Module]:
    return [module for module in modules() if module.is_concern]


def shared_options() -> Options:
    """What the modules of all concerns take."""
    options: Options = yaml.safe_load(texts(FRAGMENTS / "contract.py")["DOCUMENTATION"])["options"]
    return options


def texts(path: Path) -> Dict[str, str]:
    """The string constants of a Python file by the names that they are given, in a class too."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.update({target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)})
    return found


def argument(option: Option) -> Option:
    """An option as an argument specification has it, without its text."""
    found = {key: option[key] for key in KEYS if key in option}
    nested = option.get("suboptions")
    if nested is not None:
        found["options"] = arguments(nested)
    return found


def arguments(options: Options) -> Options:
    """An argument specification, from the documentation of its options."""
    logged = {**dict.fromkeys(NO_SECRETS, False), **dict.fromkeys(UNLOGGED, True)}
    return {
        name: {**argument(option), "no_log": logged[name]} if name in logged else argument(option)
        for name, option in options.items()
    }


def of_role(option: Option, role: str, siblings: Options, *, role_default: bool = False) -> Option:
    """An option as the argument specification of a role has it. Its texts speak of the variables of the role.

    ``role_default`` gives it a default in any case: a variable cannot be left out, as an option can.
    """
    found: Option = {"description": described(option["description"], role, siblings)}
    found.update({key: option[key] for key in KEYS if key in option})
    if role_default and "default" not in found:
        # Else None: an empty text would be a declaration.
        found["default"] = {"list": [], "dict": {}}.get(option["type"])
    nested = option.get("suboptions")
    if nested is not None:
        found["options"] = {name: of_role(entry, role, siblings) for name, entry in nested.items()}
    return found


def described(description: Union[str, Sequence[str]], role: str, siblings: Options) -> List[str]:
    def variable(match: re.Match[str]) -> str:
        return f"O({role}_{match[1]}{match[2]})" if match[1] in siblings else match[0]

    paragraphs = [description] if isinstance(description, str) else description
    return [RETURNED.sub(r"C(\1)", OPTION.sub(variable, paragraph)) for paragraph in paragraphs]


def markdown(text: str) -> str:
    """A text of the documentation in Markdown."""
    named = NAME.sub(r"`\1`", text)
    code = CODE.sub(lambda match: "`" + ESCAPED.sub(r"\1", match[1]) + "`", named)
    return " ".join(code.split()).replace("|", "\\|")


def cell(description: Union[str, Sequence[str]]) -> str:
    """The paragraphs of a description for a cell of a table."""
    paragraphs = [description] if isinstance(description, str) else description
    return "<br>".join(map(markdown, paragraphs))
