# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd's own program judges the candidate files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Callable, List, Sequence, Tuple

from ...._core.change import RunCommand
from ...._core.errors import CannotLook, Refused
from ...._core.steps import run
from ...._text.json_text import BOM
from ...._text.toml_edit import TomlEditError, remove, set_value
from ..candidate import SCRATCH, CandidateFiles, compare, copies
from ..model import CDI, RUNTIME, Configuration, Document, Edit, Installation, SettingName, Settings
from . import meaning, places
from .keys import KEYS, at
from .meaning import PLUGINS

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host

FOLDER = f"{SCRATCH}.containerd"
SECONDS = 30.0
GOAL = "validate the new configuration of containerd"


def version(host: Host, program: str) -> Tuple[int, ...]:
    """What ``containerd --version`` says: ``containerd github.com/containerd/containerd/v2 2.1.9 <commit>``.

    Empty where there is no such program. Raises ``CannotLook`` for a version that the files here are not known to fit.
    """
    if host.commands.find(program) is None:
        return ()
    output = run(RunCommand((program, "--version"), "ask containerd for its version", timeout=SECONDS), host)
    found = re.search(r"containerd\S* v?(\d+)\.(\d+)(?:\.(\d+))?", output)
    if found is None or not 1 <= int(found[1]) <= 2:
        raise CannotLook(
            "tell how {} reads its files",
            object=program,
            cause=f"its version is not known here: {output.strip() or 'it says nothing'}",
            hint="1.x and 2.x are known",
        )
    return tuple(int(part) for part in found.groups("0"))


def refuse_unreadable(sources: Sequence[meaning.ConfigSource], version: Tuple[int, ...]) -> None:
    """Raises ``Refused`` for files with which a containerd of this version does not start, as far as they tell alone.

    Unknown keys it ignores. After ``ValidateV2`` of 1.x and ``ValidateVersion`` of 2.x; 1.6 starts with version 3, but
    does not look for its plugins.
    """
    newest = 2 if version < (2,) else 3 if version < (2, 3) else meaning.NEWEST
    versions = [source for source in sources if source.data.get("version")]
    if versions and versions[-1].version > newest:
        last = versions[-1]
        raise _unreadable(last, version, f"reads files up to version {newest}, and this one has {last.version}")
    for source in sources:
        if version >= (2,) and (source.document.text or "").startswith(BOM):
            raise _unreadable(source, version, "cannot read a file with a byte-order mark")
    if not versions or versions[-1].version < 2:
        return
    for source in sources:
        for key in ("disabled_plugins", "required_plugins", "plugins"):
            names = source.data.get(key)
            for name in names if isinstance(names, (list, dict)) and (key != "plugins" or version < (2,)) else ():
                if not _is_plugin(str(name), version):
                    raise _unreadable(source, version, f"would not start because of {name} in {key}")


def _is_plugin(name: str, version: Tuple[int, ...]) -> bool:
    """Whether it takes this for the name of a plugin."""
    if version >= (2,):
        return "." in name
    return name.count(".") > 2 and (version < (1, 7) or name.startswith("io.containerd."))


def _unreadable(source: meaning.ConfigSource, version: Tuple[int, ...], cause: str) -> Refused:
    return Refused(
        "configure containerd",
        object=source.document.path,
        cause=f"containerd {version[0]}.{version[1]} {cause}",
        hint="correct the file, then run again",
    )


def check(
    host: Host,
    installation: Installation,
    edits: Tuple[Edit, ...],
    read: Callable[[Files, Installation], Configuration],
) -> None:
    """``containerd config dump`` on the candidate, and whether it says what the files say to us.

    A template is nothing that containerd reads, and k0s and MicroK8s keep their program to themselves.
    Raises ``Refused`` where the daemon would not start with it, or would read something else than we do.
    """
    program = installation.program
    if not program or host.commands.find(program) is None or places.is_template(installation):
        return
    candidate = read(CandidateFiles(host.files, edits), installation)
    documents = _renamed(candidate.parsed.sources)
    if not documents:
        return
    argv = (program, "--config", documents[0].path, "config", "dump")
    with copies(host.files, FOLDER, documents):
        output = run(RunCommand(argv, GOAL, timeout=SECONDS), host)
    dumped = Document("containerd config dump", output)
    said = meaning.make_source("config dump", dumped, ask=lambda: meaning.version_of(installation))
    # 1.6 has no CDI, and no word about it.
    reported = {CDI: False, **meaning.settings_of(said.cri, 0)}
    _refuse_ignored(candidate, reported)
    now = read(host.files, installation).settings
    unknown = [name for name in candidate.settings if _unknown(name, said.cri, candidate.settings, now)]
    settings = {name: value for name, value in candidate.settings.items() if name not in unknown}
    compare(GOAL, "containerd config dump", reported, settings, meaning.same)
    default = str(reported.get(meaning.DEFAULT) or meaning.RUNC)
    if said.has_plugin and SettingName(RUNTIME, default) not in reported:
        raise Refused(GOAL, object=str(meaning.DEFAULT), cause=f"there is no runtime {default}, and no pod would start")


def _refuse_ignored(candidate: Configuration, reported: Settings) -> None:
    """Raises ``Refused`` for what a file says in vain, because plugins have other names in its version.

    2.0 to 2.2 give those of version 1 names that they do not look up then (``v1Migrate``). The version of the last file
    counts for all, and names in another one are not looked up (``LoadConfig``).
    """
    sources = candidate.parsed.sources
    last = sources[-1]
    for source in sources:
        if source.version == 1:
            why, hint = "the file has version 1", "write the file as version 2 or newer, or remove these tables"
        elif PLUGINS[source.version] != PLUGINS[last.version]:
            why = f"{last.document.path} is read last and has version {last.version}"
            hint = "write both files in the same version"
        else:
            continue
        ignored = _not_reported(source, candidate, reported)
        if ignored:
            raise Refused(
                GOAL,
                object=source.document.path,
                cause=f"{why}, and this containerd ignores the plugin tables of version {source.version}, so {ignored} "
                "would not take effect",
                hint=f"{hint}, then run again",
            )


def _not_reported(source: meaning.ConfigSource, candidate: Configuration, reported: Settings) -> str:
    """The settings that a file has and containerd does not."""
    said = meaning.settings_of(source.cri, 0)
    return ", ".join(
        str(name) for name in sorted(said) if not meaning.same(name, reported.get(name), candidate.settings.get(name))
    )


def _unknown(setting: SettingName, cri: meaning.Table, candidate: Settings, now: Settings) -> bool:
    """Whether this version has no such key of a runtime, and does not see it in what others wrote or was made alike.

    That is no worse than before. Where it is ours alone, somebody declared what containerd would ignore.
    """
    if setting.kind not in KEYS:
        return False
    path, _kind = KEYS[setting.kind]
    runtime = cri.get("containerd", {}).get("runtimes", {}).get(setting.name, {})
    value = candidate[setting]
    alike = [one for one in now if one.kind == setting.kind and now[one] == value]
    return at(runtime, path) is None and bool(alike)


def _renamed(sources: Tuple[meaning.ConfigSource, ...]) -> List[Document]:
    """The files under names of ours, the first of which imports all others in their order."""
    names = [f"{FOLDER}/{number:05}.toml" for number in range(len(sources))]
    documents = []
    for name, source in zip(names, sources):
        text = source.document.text or ""
        try:
            text = remove(text, ("imports",)) if name != names[0] else set_value(text, ("imports",), names[1:])
        except TomlEditError as error:
            raise Refused(GOAL, object=source.document.path, cause=str(error)) from error
        documents.append(Document(name, text))
    return documents
