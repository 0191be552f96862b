# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Begin a new concern: its module, package, role and tests, with a failing test for each thing that is to be written.

    python3 tools/new_concern.py core_dumps --kind own_files

A concern of the kind ``own_files`` alone is a description; others get the parts of their kinds, put together. What is
to be written says TODO. docs/adding-a-concern.md is the way from here.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Set, Tuple

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = ROOT / "tools" / "concern"
OVERLAY = ROOT / "tools" / "overlay.yml"
OTHERS = ROOT / "tests" / "unit" / "controller" / "variables_of_others.yml"
AFTER_ROLES = "\n# What the modules of all concerns return."
# Of the names from typing, a file imports those that it uses.
TYPING = ("Any", "Dict", "List", "Mapping", "Optional", "Sequence", "Tuple")


# What every concern that is put together imports.
ALL = """\
from ..._core.change import Plan, Step
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import frozen"""


@dataclass(frozen=True)
class Kind:
    """What a kind adds to each place of a concern that is put together from parts; each is whole lines."""

    imports: str
    constants: str
    seen: str
    desired: str
    observe: str
    rows: str
    steps: str


KINDS: Mapping[str, Kind] = {
    "own_files": Kind(
        imports="from ..._core.planning import boot_change\nfrom ..._kinds.own_files import OwnFile",
        constants='FILE = "/etc/TODO.d/gpufleet-@name@.conf"',
        seen="file: OwnFile",
        desired="file_text: Optional[str] = None",
        observe='file=OwnFile(FILE, "file", host.files.read_optional(FILE)),',
        rows="if scope.permanent:\n    rows += state.file.rows(desired.file_text)",
        steps=(
            'if "file" in wrong:\n    steps.append(state.file.step(desired.file_text, [boot_change(wrong["file"])]))'
        ),
    ),
    "units": Kind(
        imports="from ..._kinds import units\nfrom ..._linux import systemd",
        constants='UNIT = "TODO.service"\nDROP_IN = f"{systemd.ETC}/{UNIT}.d/gpufleet.conf"',
        seen="drop_in: units.UnitFile\nstatus: str",
        desired="drop_in_text: Optional[str] = None\nstart: Optional[str] = None",
        observe=(
            'drop_in=units.unit_file(host, UNIT, DROP_IN, "drop-in", host.files.read_optional(DROP_IN)),\n'
            "status=systemd.enabled(host.files, UNIT),"
        ),
        rows=(
            "if scope.permanent:\n"
            "    rows += state.drop_in.rows_in(desired.drop_in_text, immediate=scope.immediate)\n"
            "    rows += units.start_row(UNIT, desired.start, state.status)"
        ),
        steps=(
            'write, reload = state.drop_in.steps(wrong.get("drop-in"), desired.drop_in_text)\n'
            "steps += write\n"
            "if units.START in wrong:\n"
            "    steps.append(units.start_step(wrong[units.START], state.status))\n"
            "steps += reload"
        ),
    ),
    "tunables": Kind(
        imports=(
            "from ..._core.planning import effective_change\nfrom ..._core.setting import Scalar\n"
            "from ..._core.value import replace\nfrom ..._kinds import tunables"
        ),
        constants='TUNABLE = "/proc/sys/TODO"',
        seen="tunable: Optional[tunables.Tunable]\nat_boot: Scalar",
        desired="value: Scalar = None",
        observe=(
            'tunable=tunables.read(host.files, TUNABLE, "TODO"),\n'
            "# TODO: what the next boot brings, by tunables.read_sysctl, read_tuned and tmpfiles.d.\n"
            "at_boot=None,"
        ),
        rows=(
            "one = state.tunable\n"
            "if one is not None:\n"
            "    row = Setting(one.object, one.setting, desired.value, one.value, state.at_boot, one.path)\n"
            "    rows.append(replace(row, effective_matters=scope.immediate, boot_matters=scope.carries))"
        ),
        steps=(
            "for row in wrong.values():\n"
            "    if row.identity == TUNABLE and row.effective_matters and row.effective != row.wanted:\n"
            "        steps.append(tunables.write_step(TUNABLE, effective_change(row)))"
        ),
    ),
    "boot_arguments": Kind(
        imports=(
            "from ..._core.planning import boot_change\nfrom ..._core.value import replace\n"
            "from ..._kinds.boot_arguments import COMMAND_LINE, BootArguments\nfrom ..._linux import bootloader"
        ),
        constants='RUNNING = "/proc/cmdline"\nSOURCE = "/etc/default/grub"',
        seen="loader: bootloader.BootLoader",
        desired="arguments: Tuple[str, ...] = ()",
        observe='loader=bootloader.detect(host, "@name@", (host.files.read_optional(RUNNING) or "").strip()),',
        rows=(
            "if scope.permanent:\n"
            '    wanted, found = " ".join(desired.arguments) or None, " ".join(state.loader.ours) or None\n'
            '    row = Setting(COMMAND_LINE, "arguments", wanted, None, found, COMMAND_LINE)\n'
            "    rows.append(replace(row, effective_matters=False))"
        ),
        steps=(
            "arguments = BootArguments(state.loader, desired.arguments)\n"
            'if "arguments" in wrong:\n'
            '    steps += arguments.steps([boot_change(wrong["arguments"])], probe=SOURCE)'
        ),
    ),
}


def filled(template: str, values: Mapping[str, str]) -> str:
    text = (TEMPLATES / f"{template}.in").read_text(encoding="utf-8")
    # Twice, since what is put in has names in it too.
    for _turn in range(2):
        text = re.sub(r"@(\w+)@", lambda found: values.get(found[1], found[0]), text)
    used = [name for name in TYPING if re.search(rf"\b{name}\b", text.replace("@typing@", ""))]
    return text.replace("@typing@", f"from typing import TYPE_CHECKING, {', '.join(used)}")


def put_together(kinds: Sequence[str], values: Mapping[str, str]) -> str:
    """``concern.py`` of several parts."""
    parts = [KINDS[kind] for kind in kinds]
    statements = [line for part in (ALL, *(part.imports for part in parts)) for line in part.split("\n")]
    places: Dict[str, str] = {"imports": "\n".join(imported(statements))}
    for place, indent in (("constants", 0), ("seen", 4), ("desired", 4), ("observe", 12), ("rows", 8), ("steps", 4)):
        lines = [line for part in parts for line in getattr(part, place).split("\n")]
        places[place] = "\n".join(" " * indent + line for line in lines)
    return filled("parts.py", {**values, **places})


def imported(statements: Sequence[str]) -> List[str]:
    """The imports in order, one statement for each module, whoever brings a name."""
    names: Dict[str, Set[str]] = {}
    for statement in statements:
        module, _import, listed = statement[len("from ") :].partition(" import ")
        names.setdefault(module, set()).update(listed.split(", "))
    return [f"from {module} import {', '.join(sorted(names[module], key=_order))}" for module in sorted(names)]


def _order(name: str) -> Tuple[bool, bool, str]:
    """Constants stand before classes, and those before functions, as ruff sorts them."""
    return not name.isupper(), name.islower(), name


def files_of(name: str, kinds: Sequence[str]) -> Dict[str, str]:
    """The new files by path."""
    version = re.search(r"^version: (\S+)$", (ROOT / "galaxy.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    title = "".join(word.capitalize() for word in name.split("_"))
    values = {"name": name, "Class": title, "version": version[1]}
    package = f"plugins/module_utils/concerns/{name}"
    tests = f"tests/unit/concerns/{name}"
    alone = list(kinds) == ["own_files"]
    return {
        f"plugins/modules/{name}.py": "#!/usr/bin/python\n" + filled("module.py", values),
        f"{package}/__init__.py": "",
        **({} if alone else {f"{package}/spec.py": filled("spec.py", values)}),
        f"{package}/concern.py": filled("own_files.py", values) if alone else put_together(kinds, values),
        f"roles/{name}/meta/main.yml": filled("role.yml", values),
        f"roles/{name}/README.md": filled("README.md", values),
        f"changelogs/fragments/{name}.yml": filled("fragment.yml", values),
        f"{tests}/{name}_contract.py": filled("contract.py", values),
        f"{tests}/test_{name}.py": filled("test.py", values),
    }


def overlay_with(name: str, text: str) -> str:
    """The overlay with the tasks of the role."""
    words = name.replace("_", " ")
    entry = f"  {name}:\n    converge: Converge {words}\n    restore: Restore {words} to what was found\n"
    return text.replace(AFTER_ROLES, f"{entry}{AFTER_ROLES}", 1)


def taken_options(name: str) -> List[str]:
    """The options whose variables would be those of a role that others publish."""
    return re.findall(rf"^  - {name}_(\w+)$", OTHERS.read_text(encoding="utf-8"), re.MULTILINE)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", help="the concern: its module, role, package and tag, and the prefix of its variables")
    parser.add_argument(
        "--kind", nargs="+", choices=sorted(KINDS), required=True, help="the kinds of parts that the concern uses"
    )
    options = parser.parse_args(arguments)
    name = options.name
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        words = "lower-case words joined by underscores, such as core_dumps"
        parser.error(f"{name!r} is not a valid name: use {words}")
    files = files_of(name, options.kind)
    there = [path for path in files if (ROOT / path).exists()]
    if there:
        parser.error(f"{there[0]} already exists")
    for path, text in files.items():
        place = ROOT / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    OVERLAY.write_text(overlay_with(name, OVERLAY.read_text(encoding="utf-8")), encoding="utf-8")
    print("added its role to tools/overlay.yml")
    subprocess.run([sys.executable, str(ROOT / "tools" / "make.py"), "docs"], cwd=ROOT, check=True)
    taken = taken_options(name)
    if taken:
        print(f"Name no option {' or '.join(taken)}: roles that others publish have such variables ({OTHERS.name}).")
    print("Next: follow docs/adding-a-concern.md. Replace each TODO; the new tests fail until you do.")


if __name__ == "__main__":
    main(sys.argv[1:])
