# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs note in /run for later looks: versions of programs, to ask them once, and what a daemon started with.

All of it may be lost: a look then asks again, and takes a file that is newer than its daemon for one it has not read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Mapping, Optional, Tuple

from ..._core.record import read_note, texts_of
from ..._core.value import field, frozen

if TYPE_CHECKING:
    from ..._core.protocols import Files

PATH = "/run/gpufleet/fabric_manager.json"


@frozen
class Started:
    """The texts of its files by path, as the process of this identity read them; None where nobody knows."""

    process: str
    texts: Mapping[str, Optional[str]]


@frozen
class Notes:
    """``versions`` are those that programs said, by path, each with the file's version; ``packages`` the same of rpm.

    ``bridges`` says of ConnectX devices whether they manage switches. ``started`` is by unit.
    """

    versions: Mapping[str, Tuple[str, str]] = field(default_factory=dict)
    packages: Mapping[str, Tuple[str, str]] = field(default_factory=dict)
    bridges: Mapping[str, bool] = field(default_factory=dict)
    started: Mapping[str, Started] = field(default_factory=dict)


def read(files: Files) -> Notes:
    try:
        return read_note(files, PATH, _notes) or Notes()
    except OSError:
        # For root alone, who loses nothing but time.
        return Notes()


def text_of(notes: Notes) -> str:
    document = {
        "versions": notes.versions,
        "packages": notes.packages,
        "bridges": notes.bridges,
        "started": {unit: {"process": one.process, "texts": one.texts} for unit, one in notes.started.items()},
    }
    return json.dumps(document, sort_keys=True) + "\n"


def _notes(document: Any) -> Notes:
    return Notes(
        versions=_pairs(document["versions"]),
        packages=_pairs(document["packages"]),
        bridges={str(name): bool(manages) for name, manages in document["bridges"].items()},
        started={
            str(unit): Started(str(one["process"]), texts_of(one["texts"])) for unit, one in document["started"].items()
        },
    )


def _pairs(document: Any) -> Mapping[str, Tuple[str, str]]:
    return {str(path): (str(version), str(said)) for path, (version, said) in document.items()}
