# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The words of the field, and none that they replaced: in names, in what is answered, and in what is printed."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Dict, Iterator, List, Pattern, Tuple

import pytest

HERE = Path(__file__).resolve()
ROOT = next(folder for folder in HERE.parents if (folder / "galaxy.yml").is_file())
FOLDERS = ("awx", "changelogs", "docs", "inventories", "meta", "molecule", "node", "playbooks", "plugins", "profiles")
TEXTS = (".css", ".html", ".js", ".json", ".md", ".py", ".sh", ".yml")
# What others wrote, or what is written by machines.
LEFT_ALONE = ("tests/nodes/machines/", "tests/nvml_simulator/")
NOT_OURS = {"__pycache__", "data", "mig_parted", "variables_of_others.yml"}

QUOTED = r"""["'`]{word}["'`]"""
OLD_NAMES = (
    # Statuses. There is a right side of the window, too, and a right to do something.
    r"\bDIFFERS\b",
    r"\bsettings_right\b",
    QUOTED.format(word="differs"),
    r"""(?:[!=]==? ?|status["']?[:=] ?|name: |\[|badge\(|concern\()["']right["']|`right`""",
    r"\b[CV]\((?:right|differs)\)",
    r"\b(?:gpufleet_)?expect: right\b",
    # What a look answers, and what it takes.
    QUOTED.format(word="(?:to_run|undeclared)"),
    r"\b(?:RV|O)\((?:left_out|to_run|undeclared|kept)\)",
    r"\b(?:gpufleet_look|__gpufleet_left|__gpufleet_whole|look)\.(?:differs|kept|left_out|right|to_run|undeclared)\b",
    # Playbooks, and what they are made of.
    r"\bmig_relayout\b",
    r"\btasks/(?:choose_askers|in_service|in_service_if_right|left_drained|look_back|lost|not_through|take_back)\.yml\b",
    r"\bgpufleet_(?:askers|left|lost|max_lost|rollout|to_relayout|with_work)\b",
    r"\b(?:drain_askers|known_variables|marked_askers)\b",
    r"(?<!ansible_collections\.)\bgpufleet\.node\.(?:look|rollout)\b",
    r"\b(?:action|modules)[./](?:look|rollout)\b",
    # Filters.
    r"\bgpufleet\.node\.(?:decompressed|ends_jobs|from_text|in_turn|not_verified|pods_in_the_way)\b",
    r"\bgpufleet\.node\.(?:to_reboot|to_relayout|to_remove|with_work)\b",
    r"\bfilter[./](?:decompressed|ends_jobs|from_text|in_turn|not_verified|pods_in_the_way)\b",
    r"\bfilter[./](?:to_reboot|to_relayout|to_remove|with_work)\b",
)
OLD_PHRASES = (
    r"(?<!there )\b(?:is|are|holds|answers) no (?:absolute|file|key|lists?|mapping|module|name|number)\b",
    r"(?<!there )\b(?:is|are|holds|answers) no (?:object|size|table|texts?|value)\b",
    r"\b(?:[Ss]ay|[Aa]llow) [a-z_]+: ",
    r"\b(?:do|does|did) not answer\b",
    r"\b(?:gave|give|gives|got) no answer\b",
    r"\b[Ss]omebody\b",
    r"\bnobody (?:can|may|tells)\b",
    r"\bnot through\b",
    r"\b(?:nodes|setting|settings) (?:are |is )?(?:not )?right\b",
    r"\bCannot switch\b|\bswitch MIG mode\b",
    r"\b(?:give|given|gives|giving) back\b",
    r"\bgive up going back\b",
    r"\b(?:is|are|was|were|went) out of reach\b",
    r"\bmend\b",
)


def files() -> Iterator[Path]:
    for folder in (*FOLDERS, "roles", "tests", "tools"):
        yield from sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in TEXTS)
    yield from sorted(ROOT.glob("*.md"))


def looked_at() -> Iterator[Tuple[str, Path]]:
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        ours = not name.startswith(LEFT_ALONE) and NOT_OURS.isdisjoint(name.split("/"))
        if path != HERE and path.is_file() and ours:
            yield name, path


def found(texts: Dict[str, str], words: Tuple[str, ...]) -> List[str]:
    any_of: Pattern[str] = re.compile("|".join(f"(?:{word})" for word in words))
    return [
        f"{place}: {match[0]}"
        for place, text in texts.items()
        for line in text.splitlines()
        for match in any_of.finditer(line)
    ]


def strings(path: Path) -> Iterator[Tuple[int, str]]:
    """What a Python file may print: its strings that are no docstring and not the documentation of a plugin."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id in ("DOCUMENTATION", "EXAMPLES", "RETURN")
        )
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


def printed() -> Dict[str, str]:
    """What may be printed on a node, on the controller or on the page of the report."""
    texts: Dict[str, str] = {}
    for name, path in looked_at():
        if not name.startswith(("node/", "playbooks/", "plugins/", "roles/")):
            continue
        if path.suffix == ".py":
            # A line may have several.
            texts.update({f"{name}:{line} ({n})": text for n, (line, text) in enumerate(strings(path))})
        elif path.suffix in (".js", ".yml"):
            lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            texts.update({f"{name}:{n}": line for n, line in lines if not line.lstrip().startswith(("#", "//"))})
    return texts


def test_no_name_is_one_that_was_replaced() -> None:
    texts = {name: path.read_text(encoding="utf-8") for name, path in looked_at()}
    assert len(texts) > 700
    assert found(texts, OLD_NAMES) == []


def test_nothing_is_printed_in_words_that_were_replaced() -> None:
    texts = printed()
    assert len(texts) > 28000
    assert found(texts, OLD_PHRASES) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (OLD_NAMES, 'result["status"] == "differs"'),
        (OLD_NAMES, 'result["status"] != "right"'),
        (OLD_NAMES, "  description: V(right) or V(pending)."),
        (OLD_NAMES, "that: gpufleet_look.kept | length == 0"),
        (OLD_NAMES, "- gpufleet.node.look:"),
        (OLD_NAMES, "from ..filter.ends_jobs import ends_jobs"),
        (OLD_PHRASES, "exec-opts is no list of texts"),
        (OLD_PHRASES, "leave it out, or say strict: false"),
        (OLD_PHRASES, "h1 gave no answer"),
    ],
)
def test_an_old_word_is_found(words: Tuple[str, ...], text: str) -> None:
    assert len(found({"a file": text}, words)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "this.element.classList.contains('right')",
        "from ansible_collections.gpufleet.node.plugins.module_utils._node.look import look_at_node",
        "extends_documentation_fragment: gpufleet.node.looks",
    ],
)
def test_another_use_of_a_word_is_left_alone(text: str) -> None:
    assert found({"a file": text}, OLD_NAMES) == []
