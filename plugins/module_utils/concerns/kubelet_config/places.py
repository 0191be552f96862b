# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a kubelet has its configuration from, and how what is ours gets into it.

A flag counts more than drop-ins, these in the order of their names more than the file of ``--config``. Maps are merged,
and lists and scalars replaced (``mergeKubeletConfigurations`` in cmd/kubelet/app/server.go of Kubernetes, which also
reads subfolders). In a file that belongs to kubeadm what is ours stands between two comments, and what it replaces is a
comment as long.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..._core.errors import CannotLook, not_understood
from ..._core.value import field, frozen
from ..._kinds.own_files import header_of
from ..._linux import unit_command
from ..._text import yaml_subset
from ..._text.nested import merged
from ..._text.whole_lines import whole_lines
from . import schema
from .schema import FIELDS
from .spec import NAME

if TYPE_CHECKING:
    from ..._core.protocols import Files

DROP_IN, MERGED, ARGUMENTS = "drop-in", "merged", "arguments"
CONFIG = "/var/lib/kubelet/config.yaml"
ROOT = "/var/lib/kubelet"
OURS = "99-gpufleet.conf"
OUR_ARGUMENTS = "99-gpufleet-kubelet.yaml"
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
BEGIN = f"# Begin of what the module gpufleet.node.{NAME} writes; changes are lost.\n"
END = f"# End of what the module gpufleet.node.{NAME} writes.\n"
OFF = "#gpufleet.node# "
ARGUMENT = "kubelet-arg"
# What of a flag is no field of ours, and says where something is.
CONFIG_FLAG, FOLDER_FLAG, ROOT_FLAG = "config", "config-dir", "root-dir"
LOOPBACK = "127.0.0.1"
ANY_ADDRESS = ("", "0.0.0.0", "::")
PORTS = {"healthzPort": ("healthz-port", 10248), "port": ("port", 10250)}
K3S, RKE2 = "k3s", "rke2"
# The units by which a kubelet is there, with the product that it is a part of.
UNITS = {
    "kubelet.service": "",
    "k3s.service": K3S,
    "k3s-agent.service": K3S,
    "rke2-server.service": RKE2,
    "rke2-agent.service": RKE2,
}

Flag = Tuple[str, str]
"""What a flag says, and where it stands."""
Document = Tuple[str, Mapping[str, Any]]
"""A file, and what it says of the kubelet."""


@frozen
class Place:
    """Where what is ours is to stand: ``path``, with its whole text, None where the file is not there.

    ``documents`` are those of others in the order in which they count, up to ours and (``later``) after it; ``flags``
    are theirs too, by name. ``root`` is where the kubelet keeps its state. ``ignored`` says for what the arguments of
    files are ignored, empty where they are not. ``config`` says that the first document is the file of ``--config``,
    and ``adds_defaults`` that the kubelet adds its default thresholds to that file's.
    """

    kind: str
    path: str
    text: Optional[str]
    documents: Tuple[Document, ...] = ()
    later: Tuple[Document, ...] = ()
    flags: Mapping[str, Flag] = field(default_factory=dict)
    root: str = ROOT
    ignored: str = ""
    config: bool = False
    adds_defaults: bool = False

    @property
    def asks_for_defaults(self) -> bool:
        """Whether the file of ``--config`` wants the default thresholds beside its own."""
        return self.config and schema.is_true(self.documents[0][1].get(schema.MERGE_DEFAULTS))

    @property
    def drop_ins(self) -> Tuple[Document, ...]:
        """The drop-ins of the site."""
        return (*self.documents[self.config :], *self.later) if self.kind == DROP_IN else ()

    @property
    def there(self) -> bool:
        """Whether something starts this kubelet with a configuration at all."""
        return bool(self.path) and (self.kind != MERGED or self.text is not None)

    @property
    def sources(self) -> Tuple[str, ...]:
        """The files that its next start reads, ours too."""
        return tuple(dict.fromkeys((*(path for path, _one in (*self.documents, *self.later)), self.path)))

    @property
    def ours(self) -> Optional[str]:
        """Of the text what we wrote, None for nothing."""
        return self.text if self.kind != MERGED or self.text is None else split(self.text)[1]

    def others(self) -> Dict[str, Any]:
        """What counts without us, by the fields of ours."""
        return self._values(())

    def values(self, ours: Mapping[str, Any]) -> Dict[str, Any]:
        """What counts when this is ours."""
        return self._values(() if self.ignored else (ours,))

    def found(self) -> Dict[str, Any]:
        """What the next start brings as the files are."""
        return self.values(our_values(self))

    def port(self, name: str) -> int:
        """``healthzPort`` or ``port``; 0 for none."""
        flag, default = PORTS[name]
        found = self._said(name, flag, default)
        return int(found) if str(found).isdecimal() else default

    @property
    def healthz(self) -> str:
        """The address and the port at which it says how it is, empty for none."""
        port = self.port("healthzPort")
        host = str(self._said("healthzBindAddress", "healthz-bind-address", LOOPBACK))
        host = LOOPBACK if host in ANY_ADDRESS else f"[{host}]" if ":" in host else host
        return f"{host}:{port}" if port else ""

    def _said(self, name: str, flag: str, default: Any) -> Any:
        found = default
        for _path, document in (*self.documents, *self.later):
            found = document.get(name, found)
        return self.flags[flag][0] if flag in self.flags else found

    def overruler(self, key: str) -> str:
        """Who sets a field in a place that counts more than ours, empty for nobody."""
        flag = FIELDS[key].flag
        if self.ignored:
            return self.ignored
        if self.kind != ARGUMENTS and flag in self.flags:
            return f"the flag --{flag} in {self.flags[flag][1]}"
        return next((path for path, document in self.later if key in document), "")

    def _values(self, ours: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
        documents = [_fields(path, document) for path, document in self.documents]
        after = [_fields(path, document) for path, document in self.later]
        flags = _of_flags(self.flags)
        made: Dict[str, Any] = {}
        # A kubelet gives its defaults to a file of --config without thresholds before it reads the drop-ins.
        defaults = self.kind == DROP_IN and self.config and schema.HARD not in documents[0]
        if (defaults or self.adds_defaults) and any(schema.HARD in one for one in (*documents, *ours, *after)):
            made[schema.HARD] = schema.EVICTION_HARD
        # A flag of ours replaces what a file has, a file of ours does not replace a flag.
        order = [*documents, *after, flags, *ours] if self.kind == ARGUMENTS else [*documents, *ours, *after, flags]
        for index, one in enumerate(order):
            replaces = one is flags or (self.kind == ARGUMENTS and bool(ours) and index == len(order) - 1)
            made = {**made, **one} if replaces else merged(made, one)
        return {key: value for key, value in made.items() if value is not None}


def of_kubelet(files: Files, unit: str, words: Sequence[str]) -> Place:
    """The place of a kubelet that is a service of its own; ``words`` are those of its process, if it runs."""
    told = unit_command.read(files, unit)
    flags = flags_of(told or [(word, f"the command line of {unit}") for word in words])
    config = flags.get(CONFIG_FLAG, (CONFIG, ""))[0]
    folder = flags.get(FOLDER_FLAG, ("", ""))[0]
    if folder and files.link(folder):
        raise not_understood(folder, "it is a symbolic link, and the kubelet reads no drop-ins through it")
    folder = folder.rstrip("/")
    root = flags.get(ROOT_FLAG, (ROOT, ""))[0]
    text = files.read_optional(config)
    if not folder:
        if text is not None and not text.count(BEGIN) == text.count(END) <= 1:
            cause = "of the two comments around what this module wrote, one is missing or is there twice"
            raise not_understood(config, f"{cause}: {BEGIN.strip()!r} and {END.strip()!r}")
        if text is not None and text.lstrip().startswith("{"):
            raise not_understood(
                config, "it is JSON, in which nothing can be marked as ours: start it with --config-dir"
            )
        rest = split(text)[0] if text is not None else ""
        document = read(config, rest)
        return Place(MERGED, config, text, (document,), flags=flags, root=root, config=text is not None)
    before = (read(config, text),) if text is not None else ()
    return _in_folder(files, folder, before, flags, root)


def of_rancher(files: Files, unit: str, product: str) -> Place:
    """The place of a kubelet inside k3s or RKE2, which have a folder of drop-ins from 1.32 on.

    What the command line of their unit says of the kubelet's arguments stands in place of all that their files do.
    """
    etc = f"/etc/rancher/{product}"
    own = f"{etc}/config.yaml.d/{OUR_ARGUMENTS}"
    names = files.names(f"{etc}/config.yaml.d")
    paths = [
        f"{etc}/config.yaml",
        *(f"{etc}/config.yaml.d/{name}" for name in names if name.endswith((".yaml", ".yml"))),
    ]
    told: List[Flag] = []
    data = f"/var/lib/rancher/{product}"
    for path in paths:
        text = files.read_optional(path)
        document = read(path, text)[1] if text is not None and path != own else {}
        data = str(document.get("data-dir", data))
        for name in (ARGUMENT, f"{ARGUMENT}+"):
            if name in document:
                listed = document[name]
                added = [(f"--{one}", path) for one in (listed if isinstance(listed, list) else [listed])]
                told = [*told, *added] if name.endswith("+") else added
    words = unit_command.read(files, unit)
    data = next(reversed([value for value, _unit in _given(words, "data-dir")]), data)
    given = [(f"--{value}", place) for value, place in _given(words, ARGUMENT)]
    flags = flags_of(given or told)
    folder = f"{data}/agent/etc/kubelet.conf.d"
    if files.is_folder(folder):
        return _in_folder(files, folder, (), flags, ROOT)
    ignored = f"--{ARGUMENT} on the command line of {unit}" if given else ""
    return Place(ARGUMENTS, own, files.read_optional(own), flags=flags, ignored=ignored)


def _given(words: Sequence[Flag], name: str) -> Iterator[Flag]:
    """The values of a flag that may come more than once, and where each stands."""
    for index, (word, place) in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in (f"-{name}", f"--{name}"):
            yield value if equals else next((after for after, _place in words[index + 1 :]), ""), place


def _in_folder(files: Files, folder: str, before: Tuple[Document, ...], flags: Mapping[str, Flag], root: str) -> Place:
    path = f"{folder}/{OURS}"
    names = [name for name in _drop_ins(files, folder) if name != OURS]
    read_in = [(name, read(f"{folder}/{name}", files.read_optional(f"{folder}/{name}") or "")) for name in names]
    return Place(
        kind=DROP_IN,
        path=path,
        text=files.read_optional(path),
        documents=(*before, *(one for name, one in read_in if name.split("/") < [OURS])),
        later=tuple(one for name, one in read_in if name.split("/") > [OURS]),
        flags=flags,
        root=root,
        config=bool(before),
    )


def _drop_ins(files: Files, folder: str) -> Iterator[str]:
    """Their paths below a folder in the order in which Go's filepath.WalkDir comes to them; links are no folders."""
    for name in files.names(folder):
        inner = f"{folder}/{name}"
        if files.is_folder(inner) and not files.link(inner):
            yield from (f"{name}/{below}" for below in _drop_ins(files, inner))
        elif name.endswith(".conf"):
            yield name


def flags_of(words: Iterable[Flag]) -> Mapping[str, Flag]:
    """The flags of a command line, with one dash or two. Of one that comes twice the last counts, or all of a map."""
    found: Dict[str, Flag] = {}
    name = ""
    for word, place in words:
        value: Optional[str] = word if name else None
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            if not equals:
                found.setdefault(name, ("", place))
                continue
        if name and value is not None:
            before = found.get(name, ("", ""))[0] if name in schema.JOINED else ""
            found[name] = (f"{before}{schema.JOINED[name]}{value}" if before else value, place)
        name = ""
    return found


def read(path: str, text: str) -> Document:
    """Raises ``CannotLook`` where it is not a mapping of YAML or JSON that is read here."""
    try:
        document = yaml_subset.parse(text, flow=True)
    except yaml_subset.YamlError as error:
        raise not_understood(path, str(error)) from error
    if document is not None and not isinstance(document, dict):
        raise not_understood(path, "it is not a mapping")
    return path, document or {}


def _fields(path: str, document: Mapping[str, Any]) -> Dict[str, Any]:
    """Its values, None for one that takes away those before it: null, and what is empty in place of a list or text."""
    try:
        return {key: schema.of_document(key, document[key]) for key in FIELDS if document.get(key, {}) != {}}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise not_understood(path, f"{error}") from error


def _of_flags(flags: Mapping[str, Flag]) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for key, one in FIELDS.items():
        if one.flag in flags:
            text, path = flags[one.flag]
            try:
                found[key] = schema.of_flag(key, text)
            except ValueError as error:
                raise not_understood(path, f"--{one.flag}={text}: {error}") from error
    return found


def our_values(place: Place) -> Dict[str, Any]:
    """What our part says; nothing where it is damaged, and is written anew."""
    try:
        document = read(place.path, place.ours or "")[1]
        if place.kind != ARGUMENTS:
            return {key: value for key, value in _fields(place.path, document).items() if value is not None}
        return _of_flags(flags_of([(f"--{one}", place.path) for one in document.get(f"{ARGUMENT}+") or ()]))
    except CannotLook:
        return {}


def complete(place: Place, wanted: Mapping[str, Any]) -> Dict[str, Any]:
    """What our part has for what is declared: a map of ours hides the thresholds that a kubelet has without one."""
    values = dict(wanted)
    if schema.HARD in values and schema.HARD not in place.others():
        values[schema.HARD] = {**schema.EVICTION_HARD, **values[schema.HARD]}
    if place.kind == DROP_IN:
        return values
    # In the file of others it takes the place of what they say, and a flag takes the place of all.
    return {
        key: {**place.others().get(key, {}), **value} if FIELDS[key].kind in schema.MAPS else value
        for key, value in values.items()
    }


def whole_text(place: Place, values: Mapping[str, Any]) -> Optional[str]:
    """The file with these values as ours, None for no file."""
    if place.kind == MERGED:
        rest = split(place.text or "")[0]
        if not values:
            return None if place.text is None else rest
        made = with_ours(rest, values)
        # What is as it was needs no second look.
        if made != place.text:
            _refuse_misread(place.path, rest, made, values)
        return made
    if not values:
        return None
    if place.kind == DROP_IN:
        return header_of(NAME) + HEAD + _lines(values)
    told = [json.dumps(f"{FIELDS[key].flag}={schema.shown(key, value)}") for key, value in sorted(values.items())]
    return header_of(NAME) + f"{ARGUMENT}+:\n" + "".join(f"- {one}\n" for one in told)


def split(text: str) -> Tuple[str, Optional[str]]:
    """A text without what is ours, as it was before; and that, None where there is nothing."""
    rest: List[str] = []
    ours: Optional[List[str]] = None
    within = False
    for line in whole_lines(text):
        if line == BEGIN:
            within, ours = True, ours or []
        elif line == END:
            within = False
        elif within and ours is not None:
            ours.append(line)
        else:
            rest.append(line[len(OFF) :] if line.startswith(OFF) else line)
    return "".join(rest), None if ours is None else "".join(ours)


def with_ours(rest: str, values: Mapping[str, Any]) -> str:
    """A text of block mappings with what is ours in it, in place of what it says of the same fields."""
    made: List[str] = []
    off = False
    for line in whole_lines(rest):
        key = re.match(r"""(["']?)(\w+)\1[ ]*:""", line)
        if key:
            off = key[2] in values
        elif not line[:1].isspace() and not line.startswith(("- ", "-\n", "-\r", "#")):
            off = False
        made.append(f"{OFF}{line}" if off and line.strip() else line)
    # A text has a first line wherever it ends, and a document may begin with three hyphens.
    at = next((index + 1 for index, line in enumerate(made) if line.startswith("---")), 0)
    return "".join((*made[:at], BEGIN, _lines(values), END, *made[at:]))


def _refuse_misread(path: str, rest: str, made: str, values: Mapping[str, Any]) -> None:
    """Raise ``CannotLook`` where others wrote their values in a form in which ours cannot be put among them."""
    try:
        same = read(path, made)[1] == {**read(path, rest)[1], **read(path, _lines(values))[1]}
    except CannotLook:
        same = False
    if not same:
        cause = "its keys do not begin their lines, or a byte order mark stands before the first of them"
        raise not_understood(path, cause)


def _lines(values: Mapping[str, Any]) -> str:
    made = ((key, schema.to_document(key, value)) for key, value in sorted(values.items()))
    return "".join(f"{key}: {json.dumps(value, sort_keys=True)}\n" for key, value in made)
