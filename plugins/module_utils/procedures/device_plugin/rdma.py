# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ConfigMap of the RDMA shared device plugin in a cluster, and what has to be asked of the API server for it.

Entries of others in its file stay. Which are ours, and what was there before us, is noted on the ConfigMap. The plugin
reads its file only when it starts, so an annotation of its pods has a digest of the file: with another one the
DaemonSet replaces them, as charts of Helm have it.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, AbstractSet, Any, Dict, List, Mapping, Optional, Tuple

from ..._core.change import Change
from ..._core.errors import DeclarationError, NotPermitted, OwnedByAnother
from ..._core.record import MALFORMED, listed, optional_text, parse
from ..._core.setting import EFFECTIVE
from ..._core.value import frozen
from .cluster import ANNOTATION, MANAGED_BY, US, ConfigMap, damaged, not_understood
from .declaration import RDMA_GOAL
from .order import Order, Place
from .rdma_configuration import (
    DEFAULT_INTERVAL,
    ENTRIES,
    INTERVAL,
    KEY,
    NAME,
    Resource,
    entries_of,
    meaning,
    parse_document,
    text_of,
)

if TYPE_CHECKING:
    from .cluster import ApiServer

DIGEST = "gpufleet.node/rdma-config"
PLUGIN = "the RDMA shared device plugin"


@frozen
class Reader:
    """A DaemonSet whose pods have the ConfigMap. ``digest`` is that of the file with which they started, as noted."""

    name: str
    digest: Optional[str]


@frozen
class Rdma:
    """``readers`` are only known where the ConfigMap is, or is to be, of interest to us."""

    config_map: Optional[ConfigMap]
    readers: Tuple[Reader, ...]

    def note(self, place: Place) -> Note:
        return _parse_note(self.config_map.note, place) if self.config_map is not None else Note({}, None, None)

    def left(self, place: Place) -> str:
        """Why the ConfigMap is still there when no node uses it; empty where it is not, or is none of ours."""
        if self.config_map is None or not self.config_map.ours:
            return ""
        document = parse_document(self.config_map.data.get(KEY, "{}"), f"{KEY} of {place}")
        ours = self.note(place).entries
        others = [entry[NAME] for entry in entries_of(document) if entry[NAME] not in ours]
        if others:
            return f"the ConfigMap {place} has resources of others: {', '.join(others)}"
        return f"the ConfigMap {place} is read by {', '.join(one.name for one in self.readers)}"


@frozen
class Note:
    """``entries`` are ours by their names, as we wrote them. ``interval``: what was there before, and what we wrote.

    ``found`` is the file from before us; None where there was none.
    """

    entries: Mapping[str, Mapping[str, Any]]
    interval: Optional[Tuple[Optional[int], int]]
    found: Optional[str]

    def text(self) -> Optional[str]:
        """As the annotation has it; None where nothing is ours."""
        if not self.entries and self.interval is None:
            return None
        content = {"entries": self.entries, "interval": self.interval, "found": self.found}
        return json.dumps(content, sort_keys=True)


def look(server: ApiServer, place: Place, *, needed: bool) -> Rdma:
    """``needed``: a node of this run declares or has noted something. Otherwise a missing right is no failure."""
    try:
        config_map = server.config_map(place)
        if not needed and (config_map is None or config_map.note is None):
            return Rdma(config_map, ())
        goal = f"find {PLUGIN} in the namespace {place.namespace}"
        items = server.items(goal, place.daemonsets, {}, "list daemonsets")
        return Rdma(config_map, tuple(one for one in (parse_reader(item, place) for item in items) if one is not None))
    except NotPermitted:
        if needed:
            raise
        return Rdma(None, ())


def parse_reader(answer: Mapping[str, Any], place: Place) -> Optional[Reader]:
    """A DaemonSet of apps/v1, where its pods have the ConfigMap."""
    try:
        template = answer["spec"]["template"]
        volumes = template["spec"].get("volumes") or ()
        if all((one.get("configMap") or {}).get("name") != place.config_map for one in volumes):
            return None
        annotations = (template.get("metadata") or {}).get("annotations") or {}
        return Reader(answer["metadata"]["name"], annotations.get(DIGEST))
    except (AttributeError, KeyError, TypeError):
        raise not_understood("a DaemonSet", answer) from None


def _parse_note(text: Optional[str], place: Place) -> Note:
    if text is None:
        return Note({}, None, None)
    try:
        noted = parse(text)
        interval = noted["interval"]
        if interval is not None:
            before, ours = listed(interval)
            interval = before, int(ours)
        entries = {name: dict(entry) for name, entry in noted["entries"].items()}
        return Note(entries, interval, optional_text(noted["found"]))
    except MALFORMED:
        raise damaged(f"the ConfigMap {place}", text) from None


@frozen
class Asked:
    """What this run asks for. ``resources`` are by their names, and ``used`` has the names of all that stay.

    ``nodes`` are the names of the nodes that ask, for messages. ``interval`` is in seconds, None for no opinion.
    """

    resources: Mapping[str, Resource]
    interval: Optional[int]
    used: AbstractSet[str]
    nodes: str


def orders(rdma: Rdma, place: Place, asked: Asked, *, restart: bool) -> List[Order]:
    """Entries that are declared are there after it, and those of ours that no node uses any more are not."""
    files, note = rdma.config_map, rdma.note(place)
    nothing_ours = note.text() is None or bool(files is not None and files.controller)
    if not asked.resources and nothing_ours:
        return []
    found = files.data.get(KEY) if files is not None else None
    before = parse_document(found, f"{KEY} of {place}") if found is not None else {}
    if asked.resources and not rdma.readers:
        cause = f"no DaemonSet in the namespace {place.namespace} reads the ConfigMap {place.config_map}"
        hint = f"install {PLUGIN}, or set rdma_namespace and rdma_config_map to those that it has"
        raise DeclarationError(RDMA_GOAL, object=asked.nodes, cause=cause, hint=hint)
    after, noted = _settled(before, note, asked, found, place)
    text = found if after == before else text_of(after)
    if noted.text() is None and files is not None:
        if files.ours and not entries_of(after):
            # Without a resource the plugin does not start, and without the ConfigMap its pods do not.
            if rdma.readers:
                return []
            if set(files.data) <= {KEY}:
                return [_deletion(place)]
        text = _restored(after, text, note)
    order = _order(files, text, noted, _changes(before, after, place), place)
    if order is not None and files is not None and files.controller:
        cause = f"the ConfigMap {place} is made from the {files.controller}, which would undo it"
        hint = f"declare them there, or set rdma_config_map to that of another DaemonSet of {PLUGIN}"
        raise OwnedByAnother(RDMA_GOAL, object=asked.nodes, cause=cause, hint=hint)
    restarts = _restarts(rdma, place, None if noted.text() is None else text) if restart else []
    return [*([order] if order is not None else []), *restarts]


def _settled(
    before: Mapping[str, Any], note: Note, asked: Asked, found: Optional[str], place: Place
) -> Tuple[Dict[str, Any], Note]:
    """The file as it is to be, and what is ours in it then. ``found`` is the text of ``before``."""
    entries: List[Mapping[str, Any]] = []
    ours: Dict[str, Mapping[str, Any]] = {}
    for entry in entries_of(before):
        name = entry[NAME]
        resource, made = asked.resources.get(name), note.entries.get(name)
        kept = entry
        if resource is not None and meaning(entry) != meaning(resource.entry()):
            if made is None:
                raise _of_others(entry, resource, asked.nodes, place)
            kept = resource.entry()
        elif made is not None and name not in asked.used and meaning(entry) == meaning(made):
            continue
        entries.append(kept)
        # What somebody has changed since, and no node uses, is theirs now.
        if made is not None and name in asked.used:
            ours[name] = kept if resource is not None else made
    there = {entry[NAME] for entry in entries}
    for name, resource in sorted(asked.resources.items()):
        if name not in there:
            ours[name] = resource.entry()
            entries.append(ours[name])
    after = {**before, ENTRIES: entries} if entries != entries_of(before) else dict(before)
    interval = _set_interval(after, note, asked, bool(ours))
    return after, Note(ours, interval, found if note.text() is None else note.found)


def _of_others(entry: Mapping[str, Any], resource: Resource, nodes: str, place: Place) -> OwnedByAnother:
    return OwnedByAnother(
        RDMA_GOAL,
        object=nodes,
        cause=f"the resource {resource.name} is in {place} already, as someone else has declared it",
        found=json.dumps(entry),
        wanted=json.dumps(resource.entry()),
        hint="declare it as it is there, choose another name, or remove it there",
    )


def _set_interval(
    document: Dict[str, Any], note: Note, asked: Asked, ours: bool
) -> Optional[Tuple[Optional[int], int]]:
    """Set it in the file, and return what is to be noted of it. It stays until the last resource of ours goes."""
    current, noted = document.get(INTERVAL), note.interval
    if asked.resources and asked.interval is not None:
        if (DEFAULT_INTERVAL if current is None else current) == asked.interval:
            return noted
        document[INTERVAL] = asked.interval
        return (noted[0] if noted is not None else current, asked.interval)
    if noted is None or asked.resources or ours:
        return noted
    if current == noted[1]:
        document.pop(INTERVAL)
        if noted[0] is not None:
            document[INTERVAL] = noted[0]
    return None


def _restored(after: Mapping[str, Any], text: Optional[str], note: Note) -> Optional[str]:
    """The file when nothing in it is ours any more: that from before us, where it says the same."""
    if note.found is None:
        return text if entries_of(after) or INTERVAL in after else None
    try:
        before = {ENTRIES: [], **parse(note.found)}
    except MALFORMED:
        return text
    return note.found if before == {ENTRIES: [], **after} else text


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], place: Place) -> List[Change]:
    was = {entry[NAME]: json.dumps(entry) for entry in entries_of(before)}
    now = {entry[NAME]: json.dumps(entry) for entry in entries_of(after)}
    changes = [
        Change(str(place), f"resource {name}", was.get(name), now.get(name), EFFECTIVE)
        for name in sorted({*was, *now})
        if was.get(name) != now.get(name)
    ]
    if before.get(INTERVAL) != after.get(INTERVAL):
        changes.append(Change(str(place), INTERVAL, before.get(INTERVAL), after.get(INTERVAL), EFFECTIVE))
    return changes


def _order(
    files: Optional[ConfigMap], text: Optional[str], note: Note, changes: List[Change], place: Place
) -> Optional[Order]:
    if files is None:
        made = Change(str(place), "ConfigMap", "absent", "present", EFFECTIVE)
        metadata = {
            "name": place.config_map,
            "namespace": place.namespace,
            "labels": {MANAGED_BY: US},
            "annotations": {ANNOTATION: note.text()},
        }
        body: Dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}}
        return Order("POST", place.all_of_them, body, (made, *changes), "create configmaps")
    found = files.data.get(KEY)
    if text == found and note.text() == files.note:
        return None
    # Its entries are of many, so it must still be the one that was read.
    body = {"metadata": {"resourceVersion": files.version, "annotations": {ANNOTATION: note.text()}}}
    if text != found:
        body["data"] = {KEY: text}
    if not changes:
        states = ["present" if one is not None else "absent" for one in (files.note, note.text())]
        changes = [Change(str(place), f"annotation {ANNOTATION}", states[0], states[1], EFFECTIVE)]
    return Order("PATCH", place.path, body, tuple(changes), "patch configmaps")


def _deletion(place: Place) -> Order:
    change = Change(str(place), "ConfigMap", "present", "absent", EFFECTIVE)
    return Order("DELETE", place.path, None, (change,), "delete configmaps")


def _restarts(rdma: Rdma, place: Place, text: Optional[str]) -> List[Order]:
    """``text`` is the file with something of ours; None without."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:10] if text is not None else None
    return [
        Order(
            "PATCH",
            f"{place.daemonsets}/{reader.name}",
            {"spec": {"template": {"metadata": {"annotations": {DIGEST: digest}}}}},
            (
                Change(
                    f"DaemonSet {place.namespace}/{reader.name}",
                    f"annotation {DIGEST}",
                    reader.digest,
                    digest,
                    EFFECTIVE,
                ),
            ),
            "patch daemonsets",
        )
        for reader in rdma.readers
        if reader.digest != digest
    ]
