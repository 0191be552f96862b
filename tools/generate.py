# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Everything that follows from the documentation of the modules, so that an option is written once.

Of a concern: its argument specification, and of its role the argument specification, defaults, variables, tasks and the
table in README.md. Of other modules the argument specification. Of all: the keys that the modules of concerns return
alike, the action group, and the tables of docs/profiles.md. What cannot be derived is in tools/overlay.yml. The table
of docs/files.md is that of tools/written_files.yml, and that of docs/check-mode.md of tools/not_foreseen.yml.

Without an argument it is written; with ``--check`` nothing is written, and a file that is not current is an error.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import emit
import yaml
from documented import (
    COLLECTION,
    ROOT,
    Module,
    Option,
    Options,
    arguments,
    concerns,
    modules,
    of_role,
    shared_options,
    texts,
)
from needs import COLLECTIONS

OVERLAY: Mapping[str, Any] = yaml.safe_load((ROOT / "tools" / "overlay.yml").read_text(encoding="utf-8"))
LICENSE = """\
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""
BEGIN, END = "<!-- options:begin -->", "<!-- options:end -->"
BEGIN_OPTIONS = "# Made by `make docs` from the options above: change them there."
END_OPTIONS = "# End of what is made."
BEGIN_RETURN = "# What the modules of all concerns return. `make docs` keeps the keys, not the sentences and samples."
END_RETURN = "# End of what all return.\n"
# From here a sentence does not fit on the line of its key.
LONG = 90
# The longest line that yamllint lets pass, with its end.
LINE = 151
UTILS = "plugins/module_utils"
# Which value a variable has without a profile is the last argument; above it stands what to copy into an inventory.
CLASSES = "plugins/module_utils/concerns"
LOAD = """\
def _{name}() -> AnyConcern:
    from ..concerns.{name}.concern import CONCERN

    return CONCERN


"""
REGISTRY = '''\
{license}{source}
"""Every concern there is, in the order in which they run, and each without an import of what is in it."""

from __future__ import annotations

from typing import Tuple

from .._core.contract import AnyConcern
from .._core.registration import Registration
from .order import RegisteredConcern


{loads}REGISTRY: Tuple[RegisteredConcern, ...] = (
{entries})
'''
# The shared options that a variable of the inventory gives to all roles, gpufleet_accepted.
OF_THE_INVENTORY = ("accepted",)
ASKING = "{{{{ gpufleet_profile | default('') | gpufleet.node.profile('{name}', {value}) }}}}"

Files = Iterator[Tuple[Path, str]]

# A default in a playbook, with the literal that it is.
DEFAULT = re.compile(
    r"(?P<before>\b(?P<name>[a-z]\w*) \| default\()"
    r"(?P<literal>'[^']*'|\[[^\]]*\]|\{\}|-?\d+|true|false)"
)


def made_from(source: str) -> str:
    return f"# Made by `make docs` from {source}: change it there.\n"


# --- argument specifications ------------------------------------------------------------------------------------------


def specification_file(name: str, spec: Mapping[str, Any], *, title: str, source: str) -> str:
    """A Python file that holds nothing but argument specifications."""
    return (
        f"{LICENSE}{made_from(source)}\n"
        f'"""{title}"""\n\n'
        "from __future__ import annotations\n\n"
        "from typing import Any, Mapping\n\n"
        f"{assigned(name, spec)}"
    )


def assigned(name: str, spec: Mapping[str, Any]) -> str:
    annotation = f"{name}: Mapping[str, Any] = "
    return f"{annotation}{emit.python(spec, before=annotation)}\n"


def argument_specifications() -> Files:
    fragment = "plugins/doc_fragments/contract.py"
    path = f"{UTILS}/_core/shared_options.py"
    title = "The options that the modules of all concerns take."
    spec = arguments(shared_options())
    yield ROOT / path, specification_file("SHARED_OPTIONS", spec, title=title, source=fragment)
    places = {module.name: f"concerns/{module.name}" for module in concerns()}
    places.update(OVERLAY["packages"])
    for module in modules():
        if module.name in places:
            title = f"The options of ``{module.name}``."
            sent = OVERLAY["roles"].get(module.name, {}).get("sent", ())
            spec = arguments(module.options)
            handed_over = {name: spec.pop(name) for name in sent}
            text = specification_file("OPTIONS", spec, title=title, source=source_of(module))
            if handed_over:
                text += f"# What the controller hands over, which nobody declares.\n{assigned('SENT', handed_over)}"
            yield ROOT / UTILS / places[module.name] / "options.py", text


def arguments_of_actions() -> Files:
    """What runs on the controller checks its arguments itself."""
    actions = {path.stem for path in (ROOT / "plugins" / "action").glob("*.py")}
    secret = OVERLAY["no_log"]
    found = {}
    # Those of a package have theirs there.
    elsewhere = {*OVERLAY["packages"], *(module.name for module in concerns())}
    for module in modules():
        if module.name in actions and module.name not in elsewhere and module.options:
            found[module.name] = {
                name: {**option, "no_log": True} if name in secret else option
                for name, option in arguments(module.options).items()
            }
    title = "The options of the modules that run on the controller, by the name of the module."
    text = specification_file("ARGUMENTS", found, title=title, source="plugins/modules")
    yield ROOT / "plugins" / "plugin_utils" / "arguments.py", text


def arguments_in_modules() -> Files:
    """In its own file where a module imports nothing of ours before it knows which copy of it to take."""
    known = {module.name: module for module in modules()}
    for module in (known[name] for name in OVERLAY["in_modules"]):
        text = f"\n{assigned('OPTIONS', arguments(module.options))}"
        yield module.path, between(module.path.read_text(encoding="utf-8"), BEGIN_OPTIONS, END_OPTIONS, text)


def source_of(module: Module) -> str:
    return module.path.relative_to(ROOT).as_posix()


# --- the registry -----------------------------------------------------------------------------------------------------


def registry() -> Files:
    """Every concern in the order in which they run, each with an import of its own, so that only what is declared is
    imported on a node. Whatever a class says of its place among the others stands here as a literal.
    """
    names = [module.name for module in concerns()]
    found = {name: import_ours(f"concerns.{name}.concern").CONCERN for name in names}
    loads, entries = [], []
    order = import_ours("_node.order")
    known = (order.RegisteredConcern(name, None, concern.registration) for name, concern in found.items())
    for name in (entry.name for entry in order.in_order(known)):
        loads.append(LOAD.format(name=name))
        lines = [f'"{name}",', f"_{name},"]
        said = said_of(found[name].registration, others=[other for other in names if other != name])
        if said:
            # They stand eight columns further to the right in the end.
            arguments = [
                f"    {key}={emit.python(value, before=f'{key}='.rjust(8 + len(key) + 1), depth=1)},"
                for key, value in said.items()
            ]
            lines += ["Registration(", *arguments, "),"]
        if hasattr(found[name], "knobs"):
            lines.append("names_knobs=True,")
        indented = "\n".join(lines).replace("\n", "\n        ")
        entries.append(f"    RegisteredConcern(\n        {indented}\n    ),\n")
    text = REGISTRY.format(license=LICENSE, source=made_from(CLASSES), loads="".join(loads), entries="".join(entries))
    yield ROOT / UTILS / "_node" / "registry.py", text


def import_ours(name: str) -> Any:
    """A module of ours that runs on nodes, from the sources as they are now."""
    if str(COLLECTIONS) not in sys.path:
        sys.path.insert(0, str(COLLECTIONS))
    return import_module(f"ansible_collections.{COLLECTION}.plugins.module_utils.{name}")


def said_of(registration: Any, *, others: Sequence[str]) -> Dict[str, Any]:
    """What it says, without what all say."""
    every = import_ours("_core.registration").ALL
    everything = {key: tuple(others) if value == every else value for key, value in vars(registration).items()}
    return {key: value for key, value in everything.items() if value != getattr(type(registration)(), key)}


# --- roles ------------------------------------------------------------------------------------------------------------


def variables_of(module: Module) -> Options:
    """The public variables of the role of a concern, by name, as its argument specification has them."""
    overlay = OVERLAY["roles"][module.name]
    own, shared = module.options, shared_options()
    options = {"state": shared["state"], **own}
    for name, other in overlay.get("of_other_modules", {}).items():
        options[name] = next(entry for entry in modules() if entry.name == other).options[name]
    options.update({name: option for name, option in shared.items() if name not in OF_THE_INVENTORY})
    found = {}
    for name, option in options.items():
        handed_over = name in overlay.get("sent", ()) and name not in overlay.get("arguments", {})
        if name not in overlay.get("without", ()) and not handed_over:
            found[f"{module.name}_{name}"] = of_role(option, module.name, options, role_default=True)
    return found


def role_defaults() -> Files:
    """What the variables of all roles are without a profile: the files of the roles take a controller long to read."""
    found = {}
    for module in concerns():
        # What handlers read, and what is handed over, declares nothing.
        handed_over = OVERLAY["roles"][module.name].get("sent", ())
        without = (*handed_over, *OF_THE_INVENTORY)
        declared = [option for option in (*module.options, *shared_options()) if option not in without]
        names = [f"{module.name}_{option}" for option in declared]
        found[module.name] = {name: option["default"] for name, option in variables_of(module).items() if name in names}
    title = "What the variables of a concern are without a profile, by the name of its role."
    text = specification_file("ROLE_DEFAULTS", found, title=title, source="plugins/modules")
    yield ROOT / "plugins" / "plugin_utils" / "role_defaults.py", text


def role(module: Module) -> Files:
    folder = ROOT / "roles" / module.name
    overlay, documentation = OVERLAY["roles"][module.name], module.documentation
    variables = variables_of(module)
    head = f"---\n{made_from(source_of(module))}"
    description = [f"Calls the module M({COLLECTION}.{module.name}) once, with the declaration."]
    if "description" in overlay:
        description.append(overlay["description"])
    specification = {
        "short_description": documentation["short_description"],
        "description": description,
        "options": variables,
    }
    yield folder / "meta" / "argument_specs.yml", head + emit.block({"argument_specs": {"main": specification}})
    yield folder / "defaults" / "main.yml", head + defaults(variables)
    declaration = {f"__{module.name}_declaration": f"{{{{ lookup('{COLLECTION}.declaration', '{module.name}') }}}}"}
    why = "# What the public variables declare; a look at the whole node takes the same.\n"
    yield folder / "vars" / "main.yml", f"{head}{why}{emit.block(declaration)}"
    yield folder / "tasks" / "main.yml", head + tasks(module, present=True)
    why = "# Without the declaration of the inventory, which may be wrong by now.\n"
    yield folder / "tasks" / "absent.yml", f"{head}{why}{tasks(module, present=False)}"
    page = folder / "README.md"
    # The beginning of one that people go on with.
    text = f"# {module.name}\n\n{documentation['short_description']}.\n\n## Variables\n\n{BEGIN}{END}\n"
    if page.exists():
        text = page.read_text(encoding="utf-8")
    yield page, between(text, BEGIN, END, f"\n\n{emit.table(variables)}\n\n")


def defaults(variables: Options) -> str:
    lines = [
        "# README.md says what each means. The comment above each shows its value without a profile, ready to copy.\n"
    ]
    for name, option in variables.items():
        value = option["default"]
        lines.append("".join(f"# {line}\n" for line in emit.block({name: value}).splitlines()))
        asking = emit.block({name: ASKING.format(name=name, value=repr(value))}, width=10**6)
        if len(asking) > LINE and not isinstance(value, list):
            asking = f"{name}: >-\n  {ASKING.format(name=name, value=repr(value))}\n"
        elif len(asking) > LINE:
            entries = ",\n".join(f"    {entry!r}" for entry in value)
            asking = f"{name}: >-\n  {ASKING.format(name=name, value=f'[{chr(10)}{entries}{chr(10)}  ]')}\n"
        lines.append(asking)
    return "".join(lines)


def tasks(module: Module, *, present: bool) -> str:
    overlay, name = OVERLAY["roles"][module.name], module.name
    arguments: Dict[str, Any] = {"state": "absent"}
    if present:
        without = (*overlay.get("without", ()), *overlay.get("sent", ()), *overlay.get("arguments", {}))
        every = dict.fromkeys(("state", *module.options, *shared_options()))
        declared = [option for option in every if option not in without]
        arguments = {option: f"{{{{ __{name}_declaration.{option} }}}}" for option in declared}
        arguments.update(overlay.get("arguments", {}))
    task: Dict[str, Any] = {
        "name": overlay["converge" if present else "restore"],
        f"{COLLECTION}.{name}": arguments,
    }
    task.update(overlay.get("keywords", {}))
    before = imported(overlay.get("before", {})) if present else []
    after = imported(overlay.get("after", {}))
    if overlay.get("again"):
        for entry in after:
            entry["vars"] = {f"__{name}_again": "main.yml" if present else "absent.yml"}
    if after:
        task["register"] = f"__{name}_result"
    return "\n".join(emit.block([entry]) for entry in (*before, task, *after))


def imported(files: Mapping[str, str]) -> List[Dict[str, Any]]:
    return [{"name": name, "ansible.builtin.import_tasks": file} for name, file in files.items()]


# --- what modules return ----------------------------------------------------------------------------------------------


def returned(module: Module) -> str:
    """The source of a module with the shared keys of RETURN completed."""
    text = module.path.read_text(encoding="utf-8")
    shared = OVERLAY["returned"]
    own = yaml.safe_load(texts(module.path)["RETURN"])
    block = emit.block({key: merged(entry, own.get(key, {})) for key, entry in shared.items()})
    return between(text, BEGIN_RETURN, END_RETURN, f"\n{block}")


def merged(shared: Option, own: Option) -> Option:
    """A key that all return, with the sentence and the sample of one module."""
    text: Any = own.get("description", shared["description"])
    found: Option = {"description": [text] if len(text) > LONG and isinstance(text, str) else text}
    found.update({key: shared[key] for key in ("returned", "type", "elements") if key in shared})
    if "contains" in shared:
        said = own.get("contains", {})
        found["contains"] = {key: merged(entry, said.get(key, {})) for key, entry in shared["contains"].items()}
    if "sample" in own:
        found["sample"] = own["sample"]
    return found


# --- playbooks --------------------------------------------------------------------------------------------------------


def playbooks() -> Files:
    """The playbooks and their tasks, with the defaults of their specification and of the roles that they include."""
    folder = ROOT / "playbooks"
    specifications = yaml.safe_load((folder / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    known: Dict[str, Options] = {name: entry["options"] for name, entry in specifications["argument_specs"].items()}
    of_roles: Options = {}
    for path in written_specifications():
        of_roles.update(yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]["main"]["options"])
    for path in sorted(folder.glob("**/*.yml")):
        if path.parent.name == "meta":
            continue
        own = [known[path.stem]] if path.stem in known else list(known.values())
        yield path, with_defaults(path.read_text(encoding="utf-8"), [*own, of_roles])


def with_defaults(text: str, specifications: Sequence[Options]) -> str:
    """A playbook with the literals that these specifications have. What none of them knows stays."""

    def with_default(match: re.Match[str]) -> str:
        found = [options[match["name"]] for options in specifications if match["name"] in options]
        if not found:
            return match[0]
        defaults = {repr(option["default"]) for option in found}
        if len(defaults) > 1:
            raise SystemExit(f"{match['name']} has several defaults: {', '.join(sorted(defaults))}")
        default = found[0]["default"]
        # However it is laid out over lines.
        current = yaml.safe_load(match["literal"]) == default
        return match[0] if current else match["before"] + emit.jinja(default)

    return DEFAULT.sub(with_default, text)


def written_specifications() -> List[Path]:
    """Those of the roles that are not made from a module."""
    found = sorted(ROOT.glob("roles/*/meta/argument_specs.yml"))
    return [path for path in found if path.parents[1].name not in OVERLAY["roles"]]


# --- tables and lists -------------------------------------------------------------------------------------------------


def profiles(folder: Path) -> str:
    """A table of what each profile is for, the comment it begins with, and one of the values that profiles set."""
    lines = ["| profile | what it is for |", "|---|---|"]
    setting: Dict[str, Dict[str, List[str]]] = {}
    files = sorted(folder.glob("*.yml"))
    for file in files:
        text = file.read_text(encoding="utf-8")
        comment = takewhile(lambda line: line.startswith("#"), text.splitlines()[1:])
        lines.append(f"| `{file.stem}` | {' '.join(line.lstrip('# ') for line in comment)} |")
        for name, value in yaml.safe_load(text).items():
            setting.setdefault(name, {}).setdefault(emit.inline(value), []).append(f"`{file.stem}`")
    lines += ["", "| variable | value | profiles |", "|---|---|---|"]
    for name in sorted(setting):
        for value, names in setting[name].items():
            lines.append(f"| `{name}` | `{value}` | {'all' if len(names) == len(files) else ', '.join(names)} |")
    return "\n".join(lines)


def written_files(rows: Path) -> str:
    """A table of the files that are written on nodes, who reads them, and the tests in which they are judged."""
    lines = ["| files | read by | tested by |", "|---|---|---|"]
    for row in yaml.safe_load(rows.read_text(encoding="utf-8")):
        judged = "<br>".join(f"`{judge}`" for judge in row.get("judges", ())) or row["unjudged"]
        source = f"<br>after {row['source']}" if "source" in row else ""
        files = "<br>".join(f"`{name}`" for name in row["files"])
        lines.append(f"| {files} | {row['reader']} | {judged}{source} |")
    return "\n".join(lines)


def not_foreseen(rows: Path) -> str:
    """A table of what check mode cannot foresee, and why."""
    lines = ["| what | why |", "|---|---|"]
    lines += [f"| {row['what']} | {row['why']} |" for row in yaml.safe_load(rows.read_text(encoding="utf-8"))]
    return "\n".join(lines)


def runtime() -> str:
    path = ROOT / "meta" / "runtime.yml"
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    found["action_groups"] = {"all": [module.name for module in modules()]}
    listed = "".join(f"    - {name}\n" for name in found["action_groups"]["all"])
    return f'---\nrequires_ansible: "{found["requires_ansible"]}"\naction_groups:\n  all:\n{listed}'


def between(page: str, begin: str, end: str, text: str) -> str:
    """A page with another text between two marks."""
    head, rest = page.split(begin, 1)
    return f"{head}{begin}{text}{end}{rest.split(end, 1)[1]}"


def files() -> Files:
    """Every file that is made, wholly or in part."""
    yield from argument_specifications()
    yield from registry()
    yield from arguments_of_actions()
    yield from arguments_in_modules()
    yield from role_defaults()
    for module in concerns():
        yield from role(module)
        yield module.path, returned(module)
    for specification in written_specifications():
        options = yaml.safe_load(specification.read_text(encoding="utf-8"))["argument_specs"]["main"]["options"]
        page = specification.parents[1] / "README.md"
        yield page, between(page.read_text(encoding="utf-8"), BEGIN, END, f"\n\n{emit.table(options)}\n\n")
    yield from playbooks()
    for name, table in (
        ("profiles.md", profiles(ROOT / "profiles")),
        ("files.md", written_files(ROOT / "tools" / "written_files.yml")),
        ("check-mode.md", not_foreseen(ROOT / "tools" / "not_foreseen.yml")),
    ):
        page = ROOT / "docs" / name
        yield page, between(page.read_text(encoding="utf-8"), BEGIN, END, f"\n\n{table}\n\n")
    yield ROOT / "meta" / "runtime.yml", runtime()


def main() -> int:
    stale = []
    for path, text in files():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        name = path.relative_to(ROOT).as_posix()
        if "--check" in sys.argv[1:]:
            stale.append(name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    if stale:
        print(f"Not current, run `make docs`: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
