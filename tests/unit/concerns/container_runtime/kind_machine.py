# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with one kind of container engine, whose files are read, edited and judged, without the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping, Optional, Sequence, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    Configuration,
    Edit,
    Installation,
    Kind,
    WantedEngine,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build


class KindMachine:
    """A host with these files and the program of an engine, which finds everything right."""

    def __init__(
        self, kind: Kind, root: Path, files: Mapping[str, str], links: Optional[Mapping[str, str]] = None
    ) -> None:
        self.kind = kind
        self.root = root
        self.host: FakeHost = build(root, files, links)
        self.host.commands.programs[kind.engine] = lambda argv: Completed(0, "", "")

    @property
    def installation(self) -> Installation:
        found = self.kind.find(self.host)
        assert found is not None
        return found

    def read(self) -> Configuration:
        return self.kind.read(self.host.files, self.installation)

    def edit(self, want: WantedEngine) -> Tuple[Edit, ...]:
        return self.kind.edit(self.read(), want)

    def write(self, edits: Sequence[Edit]) -> None:
        for edit in edits:
            assert edit.before == self.host.files.read_optional(edit.path)
            if edit.after is None:
                self.host.files.remove(edit.path)
            else:
                self.host.files.replace(edit.path, edit.after)

    def converge(self, want: WantedEngine) -> Tuple[Edit, ...]:
        edits = self.edit(want)
        self.write(edits)
        return edits

    def check(self, edits: Tuple[Edit, ...]) -> None:
        self.kind.check(self.host, self.installation, edits)
