# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a kubelet has its configuration from, and how what is ours gets into it.

A flag counts more than drop-ins, these in the order of their names more than the file of ``--config``. Maps are merged,
and lists and scalars replaced (pkg/kubelet/kubelet.go of Kubernetes, ``mergeKubeletConfigurations``). In a file that
belongs to kubeadm what is ours stands between two comments, and what it replaces is a comment as long.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..._core.errors import not_understood
from ..._core.value import field, frozen
from ..._kinds.own_files import header_of
from ..._linux import unit_command
from ..._text import yaml_subset
from ..._text.nested import merged
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
    are theirs too, by name. ``root`` is where the kubelet keeps its state.
    """

    kind: str
    path: str
    text: Optional[str]
    documents: Tuple[Document, ...] = ()
    later: Tuple[Document, ...] = ()
    flags: Mapping[str, Flag] = field(default_factory=dict)
    root: str = ROOT

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
        return self._values((ours,))

    def found(self) -> Dict[str, Any]:
        """What the next start brings as the files are."""
        return self._values((our_values(self),))

    def port(self, name: str) -> int:
        """``healthzPort`` or ``port``; 0 for none."""
        flag, default = PORTS[name]
        found: Any = default
        for _path, document in (*self.documents, *self.later):
            found = document.get(name, found)
        found = self.flags[flag][0] if flag in self.flags else found
        return int(found) if str(found).isdigit() else default

    def overruler(self, key: str) -> str:
        """Who sets a field in a place that counts more than ours, empty for nobody."""
        flag = FIELDS[key].flag
        if self.kind != ARGUMENTS and flag in self.flags:
            return f"the flag --{flag} in {self.flags[flag][1]}"
        return next((path for path, document in self.later if key in document), "")

    def _values(self, ours: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
        documents = [_fields(path, document) for path, document in self.documents]
        after = [_fields(path, document) for path, document in self.later]
        flags = {
            key: schema.of_flag(key, self.flags[one.flag][0]) for key, one in FIELDS.items() if one.flag in self.flags
        }
        made: Dict[str, Any] = {}
        # A flag of ours replaces what a file has, a file of ours does not replace a flag.
        order = [*documents, *after, flags, *ours] if self.kind == ARGUMENTS else [*documents, *ours, *after, flags]
        for index, one in enumerate(order):
            replaces = one is flags or (self.kind == ARGUMENTS and index == len(order) - 1)
            made = {**made, **one} if replaces else merged(made, one)
        return made


def of_kubelet(files: Files, unit: str, words: Sequence[str]) -> Place:
    """The place of a kubelet that is a service of its own; ``words`` are those of its process, if it runs."""
    told = unit_command.read(files, unit)
    flags = flags_of(told or [(word, f"the command line of {unit}") for word in words])
    config = flags.get(CONFIG_FLAG, (CONFIG, ""))[0]
    folder = flags.get(FOLDER_FLAG, ("", ""))[0].rstrip("/")
    root = flags.get(ROOT_FLAG, (ROOT, ""))[0]
    text = files.read_optional(config)
    if not folder:
        if text is not None and text.lstrip().startswith("{"):
            raise not_understood(
                config, "it is JSON, in which nothing can be marked as ours: start it with --config-dir"
            )
        rest = split(text)[0] if text is not None else ""
        return Place(MERGED, config, text, (read(config, rest),), flags=flags, root=root)
    before = (read(config, text),) if text is not None else ()
    return _in_folder(files, folder, before, flags, root)


def of_rancher(files: Files, product: str) -> Place:
    """The place of a kubelet inside k3s or RKE2, which have a folder of drop-ins from 1.32 on."""
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
    folder = f"{data}/agent/etc/kubelet.conf.d"
    if files.is_folder(folder):
        return _in_folder(files, folder, (), flags_of(told), ROOT)
    return Place(ARGUMENTS, own, files.read_optional(own), flags=flags_of(told))


def _in_folder(files: Files, folder: str, before: Tuple[Document, ...], flags: Mapping[str, Flag], root: str) -> Place:
    path = f"{folder}/{OURS}"
    names = [name for name in files.names(folder) if name.endswith(".conf") and name != OURS]
    read_in = [(name, read(f"{folder}/{name}", files.read_optional(f"{folder}/{name}") or "")) for name in names]
    return Place(
        kind=DROP_IN,
        path=path,
        text=files.read_optional(path),
        documents=(*before, *(one for name, one in read_in if name < OURS)),
        later=tuple(one for name, one in read_in if name > OURS),
        flags=flags,
        root=root,
    )


def flags_of(words: Iterable[Flag]) -> Mapping[str, Flag]:
    """The flags of a command line, with one dash or two; of one that comes twice the last counts."""
    found: Dict[str, Flag] = {}
    name = ""
    for word, place in words:
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            found[name] = (value, place)
            name = "" if equals else name
        elif name:
            found[name] = (word, place)
            name = ""
    return found


def read(path: str, text: str) -> Document:
    """Raises ``CannotLook`` where it is not a mapping of YAML or JSON that is read here."""
    try:
        document = yaml_subset.parse(text)
    except yaml_subset.YamlError as error:
        raise not_understood(path, str(error)) from error
    if document is not None and not isinstance(document, dict):
        raise not_understood(path, "it is not a mapping")
    return path, document or {}


def _fields(path: str, document: Mapping[str, Any]) -> Dict[str, Any]:
    try:
        values = {key: schema.of_document(key, document[key]) for key in FIELDS if key in document}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise not_understood(path, f"{error}") from error
    return {key: value for key, value in values.items() if value is not None}


def our_values(place: Place) -> Dict[str, Any]:
    """What our part says."""
    if place.ours is None:
        return {}
    document = read(place.path, place.ours)[1]
    if place.kind != ARGUMENTS:
        return _fields(place.path, document)
    flags = flags_of([(f"--{one}", place.path) for one in document.get(f"{ARGUMENT}+") or ()])
    return {key: schema.of_flag(key, flags[one.flag][0]) for key, one in FIELDS.items() if one.flag in flags}


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
        return with_ours(rest, values) if values else (None if place.text is None else rest)
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
    for line in text.splitlines(keepends=True):
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
    for line in rest.splitlines(keepends=True):
        key = re.match(r"""(["']?)(\w+)\1[ ]*:""", line)
        if key:
            off = key[2] in values
        elif not line[:1].isspace() and not line.startswith("-"):
            off = False
        made.append(f"{OFF}{line}" if off and line.strip() else line)
    # A text has a first line wherever it ends, and a document may begin with three hyphens.
    at = next((index + 1 for index, line in enumerate(made) if line.startswith("---")), 0)
    return "".join((*made[:at], BEGIN, _lines(values), END, *made[at:]))


def _lines(values: Mapping[str, Any]) -> str:
    made = ((key, schema.to_document(key, value)) for key, value in sorted(values.items()))
    return "".join(f"{key}: {json.dumps(value, sort_keys=True)}\n" for key, value in made)
