# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The templates of k3s and RKE2: TOML with actions of Go's text/template, of which ``config.toml`` is made at a start.

The action ``template "base"`` stands for what they would write without a template. That has the NVIDIA runtimes that
they find themselves (``findNvidiaContainerRuntimes`` of their pkg/agent/containerd), and the tables in which the
default runtime and CDI are; TOML lets nobody open these tables a second time.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Dict, List, Sequence, Tuple

from .._core.errors import CannotLook
from . import containerd
from . import containerd_places as places
from .containerd import CGROUP, DEFAULT, RUNC, Parsed
from .model import CDI, RUNTIME, Configuration, Document, Installation

if TYPE_CHECKING:
    from .._core.errors import Scalar
    from .._host.protocols import Files

BASE = '{{ template "base" . }}\n'
ACTION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
IS_BASE = re.compile(r'\{\{-?\s*template\s+"base"')
STAND_IN = "gpufleet-action-{}-"
# The runtimes that they look for, and where: what the GPU Operator installs comes first.
DETECTED = {
    "nvidia": "nvidia-container-runtime",
    "nvidia-cdi": "nvidia-container-runtime.cdi",
    "nvidia-legacy": "nvidia-container-runtime.legacy",
    "nvidia-experimental": "nvidia-container-runtime-experimental",
}
FOLDERS = ("/usr/local/nvidia/toolkit", "/usr/bin")


def read(files: Files, installation: Installation) -> Configuration:
    """What the next start makes of the template, as far as text and files tell it."""
    path = files.resolve(installation.main)
    document = Document(path, files.read_optional(path))
    text = BASE if document.text is None else document.text
    masked, _actions = mask(text)
    try:
        source = containerd.make_source(installation.main, Document(path, masked), silent=version_of(installation))
    except CannotLook as error:
        raise CannotLook(
            "understand the template",
            object=path,
            cause=str(error.__cause__ or error),
            hint="its text between the actions has to be TOML; nothing was written",
        ) from error
    base = _base(files, installation) if IS_BASE.search(text) else {}
    own = containerd.settings_of(source.cri, 0 if base else source.version)
    parsed = Parsed((source,), merges=True, drop_in=document, base=base)
    return Configuration(installation, (document,), {**base, **own}, parsed)


def version_of(installation: Installation) -> int:
    """The version of what becomes of the template, which goes by its name: its text may leave that to the base."""
    return 3 if os.path.basename(installation.main) == f"config-v3.toml{places.TEMPLATE}" else 2


def mask(text: str) -> Tuple[str, List[Tuple[str, str]]]:
    """The template as TOML, with a stand-in for every action, and the actions, each with its stand-in.

    One at the start of a line becomes a comment, one that is a value a text, and one in a text or comment a part of it.
    """
    actions: List[Tuple[str, str]] = []
    made = ""
    end = 0
    for match in ACTION.finditer(text):
        made += text[end : match.start()]
        line = made.rpartition("\n")[2]
        stand_in = STAND_IN.format(len(actions))
        if not line.strip():
            stand_in = f"#{stand_in}"
        elif re.search(r"=\s*$", line):
            stand_in = f'"{stand_in}"'
        actions.append((stand_in, match[0]))
        made += stand_in
        end = match.end()
    return made + text[end:], actions


def unmask(text: str, actions: Sequence[Tuple[str, str]]) -> str:
    """The template back from what ``mask`` made of it, and what was then changed around its actions."""
    for stand_in, action in actions:
        text = text.replace(stand_in, action)
    return text


def _base(files: Files, installation: Installation) -> Dict[str, Scalar]:
    """What the base brings. What is not to be seen in files it brings as it did at the last start."""
    path = places.generated(installation)
    text = files.read_optional(path)
    brought: Dict[str, Scalar] = {}
    if text is not None:
        source = containerd.make_source(path, Document(path, text))
        brought = containerd.settings_of(source.cri, source.version)
    base = {name: brought[name] for name in (DEFAULT, CDI, f"{RUNTIME}{RUNC}", f"{CGROUP}{RUNC}") if name in brought}
    for name, program in DETECTED.items():
        found = next((f"{folder}/{program}" for folder in FOLDERS if files.exists(f"{folder}/{program}")), "")
        if found:
            base[f"{RUNTIME}{name}"] = found
            base[f"{CGROUP}{name}"] = bool(brought.get(f"{CGROUP}{name}", brought.get(f"{CGROUP}{RUNC}", False)))
    return base
