# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The templates of k3s and RKE2: TOML with actions of Go's text/template, of which ``config.toml`` is made at a start.

A template is believed once it was rendered as they do it, in every state that their data can be in: with the NVIDIA
runtimes, which they put into ``.ExtraRuntimes`` themselves where they find the programs
(``findNvidiaContainerRuntimes`` of their pkg/agent/containerd), and without them. What cannot be rendered here is not
believed. The action ``template "base"`` stands for what they would write without a template.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence, Tuple

from ...._core.change import RunCommand
from ...._core.errors import CannotLook, Refused
from ...._core.regex import regex
from ...._core.steps import run
from ...._core.value import frozen
from ...._linux import unit_command
from ...._text.go_template import TemplateError, render
from ...._text.toml_text import TomlError, parse
from ..model import CDI, RUNTIME, Configuration, Document, Installation, SettingName
from . import meaning, places, spelling
from .k3s_data import DETECTED, FOLDERS, FUNCTIONS, OTHERS, RUNC_TYPE, K3sFacts, base, data
from .meaning import CGROUP, DEFAULT, MARKER, RUNC, ConfigSource, ParsedContainerd

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host
    from ...._core.setting import Scalar
    from ..model import Settings

BASE = '{{ template "base" . }}\n'
ACTION = regex(r"\{\{.*?\}\}", re.DOTALL)
# A line with the actions in it, which may go over several, and its end. The header of a table, and what follows it.
LINE = regex(r"((?:\{\{.*?\}\}|(?!\{\{)[^\r\n])+)(\r?\n|$)", re.DOTALL)
HEADER = regex(r"""([ \t]*\[(?:"[^"]*"|'[^']*'|[^\]"'{=])*\]+)(.*)$""", re.DOTALL)
IS_BASE = regex(r'\{\{-?\s*template\s+"base"')
STAND_IN = "gpufleet-action-{}-"
WHOLE = "gpufleet-template-"
BLOCK = regex(rf"(?:^[ \t]*\r?\n)?^# BEGIN {MARKER}[ \t]*\r?$.*?^# END {MARKER}[ \t]*\r?$\n?", re.M | re.S)
# From these on a template may have the base in it (k3s-io/k3s#7991), by the release of Kubernetes.
HAVE_BASE = {(1, 24): 17, (1, 25): 13, (1, 26): 8, (1, 27): 5}
SECONDS = 30.0


@frozen
class AskingK3s(Installation):
    """An installation that tells whether its templates may have the base in them, None where nobody knows."""

    ask_base: Optional[Callable[[], Optional[bool]]] = None


def asking(host: Host, found: Installation) -> Installation:
    """The installation with the way to ask its program, which costs a start of it."""
    return AskingK3s(**vars(found), ask_base=lambda: _has_base(host, found))


def read(files: Files, installation: Installation) -> Configuration:
    """What the next start makes of the template, as far as text and files tell it.

    Raises ``CannotLook`` for a template that cannot be rendered, or not to something that containerd would take.
    """
    path = files.resolve(installation.main)
    document = Document(path, files.read_optional(path))
    text = BASE if document.text is None else document.text
    facts = facts_of(files, installation)
    twice: List[str] = []
    try:
        found = states(path, text, facts, installation)
    except CannotLook:
        # A block of ours beside a runtime that they bring by now: without it the rest may be good.
        rest = without_block(text)
        if rest == text:
            raise
        found = states(path, rest, facts, installation)
        twice = list(meaning.block_of(text).get("containerd", {}).get("runtimes", {}))
    settings = known(path, found)
    for name in twice:
        runtime = SettingName(RUNTIME, name)
        settings[runtime] = f"{settings.get(runtime) or ''}, and a second time in our block"
    # The last state is that without their runtimes.
    alone = _settings(found[-1])
    brought = tuple(name for name in {**facts.runtimes, **DETECTED} if SettingName(RUNTIME, name) not in alone)
    parsed = ParsedContainerd((found[0],), merges=True, drop_in=document, base=facts, brought=brought)
    return Configuration(installation, (document,), settings, parsed)


def known(path: str, found: Sequence[ConfigSource]) -> Dict[SettingName, Scalar]:
    """The settings as of now: what is the same, whatever the data is that no file tells."""
    empty, full = (_settings(source) for source in found[:2])
    differ = [name for name in {**empty, **full} if empty.get(name) != full.get(name)]
    strange = [name for name in sorted(differ) if name.kind != CGROUP]
    if strange:
        raise CannotLook(
            "parse {}",
            object=path,
            cause=f"{strange[0]} depends on a condition that is known only when the template is rendered",
            hint="move it out of the condition, then run again; nothing was written",
        )
    return {name: value for name, value in empty.items() if name not in differ}


def states(path: str, text: str, facts: K3sFacts, installation: Installation) -> List[ConfigSource]:
    """The template rendered in all states, the first two as of now. Raises ``CannotLook``."""
    detected = {name: (RUNC_TYPE, f"/usr/bin/{program}") for name, program in DETECTED.items()}
    there = {**detected, **facts.runtimes}
    gone = {name: found for name, found in facts.runtimes.items() if name not in DETECTED}
    templates = {"base": base(facts, version_of(installation))}
    made = []
    for name, runtimes in (("", facts.runtimes), ("with", there), ("without", gone)):
        if name and runtimes == facts.runtimes:
            continue
        for full in (False, True):
            try:
                rendered = render(text, data(facts, runtimes, full=full), templates=templates, functions=FUNCTIONS)
            except TemplateError as error:
                raise CannotLook(
                    "parse {}",
                    object=path,
                    cause=str(error),
                    hint="correct or simplify the template, then run again; nothing was written",
                ) from error
            state = f" {name} {DETECTED['nvidia']} on the machine" if name else ""
            made.append(_understood(path, rendered, facts.flavour, installation, state))
    return made


def _settings(source: ConfigSource) -> Dict[SettingName, Scalar]:
    return meaning.settings_of(source.cri, source.version)


def _understood(path: str, rendered: str, flavour: str, installation: Installation, state: str) -> ConfigSource:
    """Raises ``CannotLook`` where containerd would not start with what was rendered."""
    try:
        return meaning.make_source(installation.main, Document(path, rendered))
    except CannotLook as error:
        wrong = error.__cause__
        line = rendered.split("\n")[wrong.line - 1].strip() if isinstance(wrong, TomlError) else ""
        what = f"{wrong.cause} ({line})" if isinstance(wrong, TomlError) else str(error)
        raise CannotLook(
            "parse {}",
            object=path,
            cause=f"containerd would not start with what {flavour} makes of it{state}: {what}",
            hint=f"{flavour} adds the runtimes that it detects through .ExtraRuntimes: a template that includes "
            "these, or the base, must not define one of them again; nothing was written",
        ) from error


def facts_of(files: Files, installation: Installation) -> K3sFacts:
    """What is known beside the template. What is not to be seen in files is as they generated it last."""
    path = places.generated(installation)
    text = files.read_optional(path)
    brought: Settings = {}
    snapshotter = ""
    if text is not None:
        source = meaning.make_source(path, Document(path, text))
        brought = meaning.settings_of(source.cri, source.version)
        plugins = source.data.get("plugins", {})
        for plugin in (source.cri.get("containerd", {}), plugins.get("io.containerd.cri.v1.images", {})):
            snapshotter = str(plugin.get("snapshotter") or snapshotter)
    runtimes: Dict[str, Tuple[str, str]] = {}
    for name in OTHERS:
        kind, _blank, program = str(brought.get(SettingName(RUNTIME, name)) or "").rpartition(" ")
        if program:
            runtimes[name] = (kind or RUNC_TYPE, program)
    for name, program in DETECTED.items():
        found = next((f"{folder}/{program}" for folder in FOLDERS if files.exists(f"{folder}/{program}")), "")
        if found:
            runtimes[name] = (RUNC_TYPE, found)
    cgroup, cdi = brought.get(SettingName(CGROUP, RUNC)), brought.get(CDI)
    said = {setting.name: bool(value) for setting, value in brought.items() if setting.kind == CGROUP}
    cgroups = {name: said[name] for name in runtimes if name in said}
    return K3sFacts(
        flavour=installation.flavour,
        systemd_cgroup=None if cgroup is None else bool(cgroup),
        default_runtime=str(brought.get(DEFAULT) or ""),
        cdi=None if cdi is None else bool(cdi),
        snapshotter=snapshotter or "overlayfs",
        runtimes=runtimes,
        cgroups=cgroups,
    )


def version_of(installation: Installation) -> int:
    """The version of the base, which goes by the name of the template."""
    return 3 if os.path.basename(installation.main) == f"config-v3.toml{places.TEMPLATE}" else 2


def without_block(text: str) -> str:
    return BLOCK.sub("", text)


def mask(text: str) -> Tuple[str, List[Tuple[str, str]]]:
    """The template as TOML, with a stand-in for every action, and the actions, each with its stand-in.

    A line that begins with one becomes a comment, a value that has one outside of a text becomes a text, and one in a
    text or comment a part of it. Where that is no TOML, such as with two branches that say the same, all but our block
    is one action.
    """
    masked, actions = _masked(text)
    try:
        parse(masked)
    except TomlError:
        rest = without_block(text)
        block = text[len(rest) :] if text.startswith(rest) else ""
        stand_in = f"#{WHOLE}"
        ending = "\n" if rest.endswith("\n") else ""
        return f"{stand_in}{ending}{block}", [(stand_in, rest[: len(rest) - len(ending)])]
    return masked, actions


def is_one_action(masked: str) -> bool:
    """Whether the text of a template could not be told from its actions."""
    return masked.startswith(f"#{WHOLE}")


def _masked(text: str) -> Tuple[str, List[Tuple[str, str]]]:
    actions: List[Tuple[str, str]] = []

    def stand_in(form: str, written: str) -> str:
        actions.append((form.format(STAND_IN.format(len(actions))), written))
        return actions[-1][0]

    def plain(written: str) -> str:
        return ACTION.sub(lambda match: stand_in("{}", match[0]), written)

    def line(match: re.Match[str]) -> str:
        body = match[1]
        before, opening, _rest = body.partition("{{")
        if not opening:
            return match[0]
        key, equals, value = body.partition("=")
        header = HEADER.match(body)
        if not before.strip():
            made = before + stand_in("#{}", body[len(before) :])
        elif before.lstrip().startswith("#"):
            made = plain(body)
        elif header:
            made = plain(header[1]) + (stand_in("#{}", header[2]) if "{{" in header[2] else header[2])
        elif equals and "{{" not in key:
            blank = value[: len(value) - len(value.lstrip())]
            single = re.match(rf"({ACTION.pattern})(\s*(?:#.*)?)$", value.lstrip(), re.DOTALL)
            if re.fullmatch(r"(\"[^\"]*\"|'[^']*')\s*(#.*)?", ACTION.sub("", value).strip()):
                made = f"{key}={plain(value)}"
            elif single and "}}" not in single[1][:-2]:
                made = f"{key}={blank}" + stand_in('"{}"', single[1]) + plain(single[2])
            else:
                made = f"{key}={blank}" + stand_in('"{}"', value.strip()) + value[len(value.rstrip()) :]
        else:
            made = plain(body)
        return made + match[2]

    return LINE.sub(line, text), actions


def unmask(text: str, actions: Sequence[Tuple[str, str]]) -> str:
    """The template back from what ``mask`` made of it, and what was then changed around its actions."""
    for stand_in, action in actions:
        text = text.replace(stand_in, action)
    return text


def brings(path: str, text: str, facts: K3sFacts, installation: Installation) -> Dict[SettingName, Scalar]:
    """The settings that actions bring, in any state, and for which nothing stands in the text itself."""
    rest = without_block(text)
    masked, _actions = mask(rest)
    prefix = {name: table for name, table in parse(masked).data.get("plugins", {}).items() if isinstance(table, dict)}
    written: Dict[SettingName, Scalar] = {}
    for plugin in meaning.PLUGINS.values():
        written.update(meaning.settings_of(spelling.by_name(prefix.get(plugin, {}), newer=True), 0))
    made: Dict[SettingName, Scalar] = {}
    found = states(path, rest, facts, installation)
    # Those of now count most.
    for state in reversed(found):
        made.update(_settings(state))
    made.update(known(path, found))
    return {name: value for name, value in made.items() if name not in written}


def refuse_undecided(configuration: Configuration, name: str) -> None:
    """Raises ``CannotLook`` for a runtime that they do not bring themselves, before they ever decided about it."""
    if name not in configuration.parsed.brought:
        product = configuration.installation.flavour
        raise CannotLook(
            "tell whether runtimes use the systemd cgroup driver",
            object=places.generated(configuration.installation),
            cause=f"{product} decides this when it generates its configuration, and has not done so yet",
            hint=f"start {product} once, or declare systemd_cgroup to match the kubelet",
        )


def refuse_without_base(installation: Installation, path: str) -> None:
    """Raises ``Refused`` where a template with the base in it would keep this k3s or RKE2 from starting."""
    known = installation.ask_base() if isinstance(installation, AskingK3s) and installation.ask_base else None
    if known is False:
        product = installation.flavour
        raise Refused(
            "create {}",
            object=path,
            cause=f"this {product} is too old to include its base in a template, and would not start with one",
            hint=f"upgrade {product} to 1.24.17, 1.25.13, 1.26.8, 1.27.5 or newer, or copy the template of "
            "this version there first",
        )


def _has_base(host: Host, installation: Installation) -> Optional[bool]:
    """Whether the version of k3s or RKE2 knows the base in a template."""
    words = [word for word, _place in unit_command.read(host.files, installation.unit)] if installation.unit else []
    folders = ("/usr/local/bin", "/usr/bin", "/opt/rke2/bin")
    programs = [*words[:1], *(f"{folder}/{installation.flavour}" for folder in folders)]
    program = next((path for path in programs if path.startswith("/") and host.files.exists(path)), "")
    if program and host.commands.find(program) is not None:
        asked = RunCommand((program, "--version"), f"ask {installation.flavour} for its version", timeout=SECONDS)
        found = re.search(r"v(\d+)\.(\d+)\.(\d+)", run(asked, host))
        if found:
            major, minor, patch = (int(part) for part in found.groups())
            return (major, minor) >= (1, 28) or patch >= HAVE_BASE.get((major, minor), patch + 1)
    text = host.files.read_optional(places.generated(installation))
    # Older ones wrote no such line.
    return None if text is None else "File generated by" in text.partition("\nversion")[0]
