# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a containerd is, and which files of it are for others to write.

A Kubernetes distribution brings a containerd of its own, often beside the one of the operating system, which then
serves Docker alone: the one that runs pods is meant. k3s and RKE2 write their ``config.toml`` anew at every start, from
a template, or with an import of a folder of drop-ins where they are new enough; k0s merges the files of such a folder
itself; MicroK8s fills a template that is TOML but for the variables in its texts. A data folder other than the usual
one is not looked for, nor is the containerd that dockerd starts as its child.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Optional, Tuple

from ...._linux import systemd, unit_command
from ..model import CONTAINERD, Installation

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host

K3S, RKE2, K0S, MICROK8S = "k3s", "rke2", "k0s", "microk8s"
MAIN = "/etc/containerd/config.toml"
UNIT = "containerd.service"
SOCKET = "/run/containerd/containerd.sock"
PROGRAMS = ("/usr/bin/containerd", "/usr/local/bin/containerd")
DROP_IN = "99-gpufleet.toml"

K0S_MAIN = "/etc/k0s/containerd.toml"
K0S_FOLDER = "/etc/k0s/containerd.d"
K0S_MARK = "# k0s_managed=true"
MICROK8S_MAIN = "/var/snap/microk8s/current/args/containerd-template.toml"
TEMPLATE = ".tmpl"


# Those of Rancher, with the units that start them.
RANCHERS = {
    K3S: ("k3s.service", "k3s-agent.service"),
    RKE2: ("rke2-server.service", "rke2-agent.service"),
}


def find(host: Host) -> Optional[Installation]:
    """The containerd that runs pods; None where there is none."""
    files = host.files
    for flavour in RANCHERS:
        if files.exists(_folder(flavour)):
            return _rancher(files, flavour)
    if files.exists(K0S_MAIN):
        return Installation(
            CONTAINERD,
            main=K0S_MAIN,
            drop_in=f"{K0S_FOLDER}/{DROP_IN}",
            flavour=K0S,
            socket="/run/k0s/containerd.sock",
            unit=_unit(files, ("k0scontroller.service", "k0sworker.service")),
        )
    if files.exists(MICROK8S_MAIN):
        return Installation(
            CONTAINERD,
            main=MICROK8S_MAIN,
            flavour=MICROK8S,
            socket="/var/snap/microk8s/common/run/containerd.sock",
            unit="snap.microk8s.daemon-containerd.service",
        )
    return _distribution(files)


def generated(installation: Installation) -> str:
    """The file that k3s or RKE2 makes of the template that is ``main``."""
    return f"{os.path.dirname(installation.main)}/config.toml"


def is_template(installation: Installation) -> bool:
    return installation.main.endswith(TEMPLATE)


def is_theirs(installation: Installation, text: Optional[str]) -> bool:
    """Whether the main file, with this text, is written by the product alone, anew at every start."""
    if installation.flavour == K0S:
        return (text or "").startswith(K0S_MARK)
    return installation.flavour in (K3S, RKE2) and not is_template(installation)


def tasks(installation: Installation) -> str:
    """The folder that has a folder for every namespace, with one for every container that runs."""
    state = os.path.dirname(installation.socket)
    if installation.flavour in (K0S, MICROK8S):
        state = f"{state}/containerd"
    return f"{state}/io.containerd.runtime.v2.task"


def _folder(flavour: str) -> str:
    return f"/var/lib/rancher/{flavour}/agent/etc/containerd"


def _rancher(files: Files, flavour: str) -> Installation:
    place = _folder(flavour)
    main, drop_in, program = f"{place}/config.toml", "", f"/var/lib/rancher/{flavour}/data/current/bin/containerd"
    text = files.read_optional(main) or ""
    folder = re.search(r'^imports *= *\[.*["\'](/[^"\'*]*config-v3\.toml\.d)/\*\.toml["\']', text, re.MULTILINE)
    if folder:
        drop_in = f"{folder[1]}/{DROP_IN}"
    else:
        # They prefer the template of the newer version, and fall back to the older one where only that is there.
        newer = files.exists(f"{place}/config-v3.toml{TEMPLATE}") or re.search(r"^version *= *3", text, re.MULTILINE)
        main = f"{place}/config{'-v3' if newer else ''}.toml{TEMPLATE}"
    return Installation(
        CONTAINERD,
        main=main,
        drop_in=drop_in,
        flavour=flavour,
        program=program if drop_in and files.exists(program) else "",
        socket="/run/k3s/containerd/containerd.sock",
        unit=_unit(files, RANCHERS[flavour]),
    )


def _distribution(files: Files) -> Optional[Installation]:
    words = tuple(word for word, _place in unit_command.read(files, UNIT))
    program = words[0] if words else next((path for path in PROGRAMS if files.exists(path)), "")
    if not program:
        return None
    main = _option(words, ("-c", "--config")) or MAIN
    return Installation(
        CONTAINERD,
        main=main,
        drop_in=f"{os.path.dirname(main)}/conf.d/{DROP_IN}",
        program=program,
        socket=_option(words, ("-a", "--address")) or SOCKET,
        unit=UNIT if words else "",
    )


def _option(words: Tuple[str, ...], names: Tuple[str, ...]) -> str:
    """The value of an option of containerd's command line, empty where it is not there; the last one counts."""
    found = ""
    for word, following in zip(words, (*words[1:], "")):
        name, equals, value = word.partition("=")
        if name in names or (name.startswith("-") and f"-{name}" in names):
            found = value if equals else following
    return found


def _unit(files: Files, units: Tuple[str, ...]) -> str:
    return next((unit for unit in units if systemd.enabled(files, unit) != systemd.NOT_FOUND), "")
