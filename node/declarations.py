# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The declarations on the node, and why one of them cannot be used."""

from __future__ import annotations

import errno
from typing import Any, Dict, Mapping, Sequence, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core import declared
from ansible_collections.gpufleet.node.plugins.module_utils._core.arguments import validated
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import AnyConcern
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._core.exposure import BELIEVED, exposed
from ansible_collections.gpufleet.node.plugins.module_utils._core.nearest import did_you_mean
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Files
from ansible_collections.gpufleet.node.plugins.module_utils._core.record import Damaged, parse
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import frozen
from ansible_collections.gpufleet.node.plugins.module_utils._core.version import VERSION
from ansible_collections.gpufleet.node.plugins.module_utils._node.order import RegisteredConcern

UPDATE = "run the role node_tools, which installs the matching program"
PROTECT = "run the role node_tools, which corrects owner and mode, and check what the declaration says"
WRITE_AGAIN = "run the role of the concern, which writes it again"


@frozen
class StoredDeclaration:
    """What one concern left: its options that are no default, and the release that wrote them."""

    concern: str
    version: str
    apply_at_boot: bool
    options: Mapping[str, Any]


@frozen
class Declarations:
    """All of a node, by concern; those that cannot be used with the error that says why."""

    usable: Mapping[str, StoredDeclaration]
    broken: Mapping[str, CannotLook]

    @property
    def names(self) -> Tuple[str, ...]:
        return (*self.usable, *self.broken)

    def other_releases(self) -> Dict[str, Tuple[str, ...]]:
        """The concerns that another release than this program declared, by that release."""
        found: Dict[str, Tuple[str, ...]] = {}
        for name, declaration in self.usable.items():
            if declaration.version != VERSION:
                found[declaration.version] = (*found.get(declaration.version, ()), name)
        return found


def load(files: Files, registry: Sequence[RegisteredConcern]) -> Declarations:
    """Read them. One that is damaged, or unknown to this release, does not keep the others from being read."""
    known = [entry.name for entry in registry]
    usable: Dict[str, StoredDeclaration] = {}
    broken: Dict[str, CannotLook] = {}
    for name in declared.names(files):
        try:
            usable[name] = _load_one(files, name, known)
        except CannotLook as error:
            broken[name] = error
    return Declarations(usable, broken)


def require(declarations: Declarations, concerns: Sequence[str], *, goal: str) -> None:
    """Raises ``DeclarationError`` for a name of which nothing is declared; ``goal`` completes "Cannot ..."."""
    names = declarations.names
    for concern in concerns:
        if concern not in names:
            hint = did_you_mean(concern, names, otherwise=f"declared are {', '.join(sorted(names)) or 'none'}")
            cause = "nothing of this name is declared on this node"
            raise DeclarationError(goal, object=concern, cause=cause, hint=hint)


def complete_params(concern: AnyConcern, options: Mapping[str, Any]) -> Dict[str, Any]:
    """The parameters that the module of the concern would have. Raises ``DeclarationError``."""
    return validated({**SHARED_OPTIONS, **concern.options}, options, stored=True)


def _load_one(files: Files, name: str, known: Sequence[str]) -> StoredDeclaration:
    path = declared.path_of(name)
    try:
        fault = exposed(files, path, matter=BELIEVED)
        if fault:
            raise _broken(path, fault, PROTECT)
        document = parse(files.read(path))
    except OSError as error:
        denied = error.errno in (errno.EACCES, errno.EPERM)
        raise _broken(path, error.strerror or str(error), "run as root" if denied else WRITE_AGAIN) from error
    except Damaged as error:
        raise _broken(path, f"the file is damaged: {error}") from error
    if not isinstance(document, dict):
        raise _broken(path, "the file is damaged: it does not hold a mapping")
    if document.get("schema") != declared.SCHEMA:
        raise _broken(path, f"it has schema {document.get('schema')!r}, and this release {declared.SCHEMA}", UPDATE)
    if document.get("concern") != name:
        raise _broken(path, f"it is about {document.get('concern')!r}")
    if name not in known:
        raise _broken(path, f"release {VERSION} has no concern of this name", UPDATE)
    options, at_boot = document.get("declaration"), document.get("apply_at_boot")
    if not isinstance(options, dict) or not isinstance(at_boot, bool):
        raise _broken(path, "the file is damaged: declaration or apply_at_boot is missing")
    return StoredDeclaration(name, str(document.get("collection_version")), at_boot, options)


def _broken(path: str, cause: str, hint: str = WRITE_AGAIN) -> CannotLook:
    return CannotLook("read the declaration", object=path, cause=cause, hint=hint)
