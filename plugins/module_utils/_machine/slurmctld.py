# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""slurmctld, asked by ``scontrol`` and ``squeue``.

One node is a small question. Jobs are not: slurmctld sends all that it has, and squeue picks those of a node.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Mapping, Sequence, Tuple

from .._core.errors import CannotLook, DeclarationError, GpuFleetError, NotPermitted
from .._core.regex import regex
from .slurm_answers import (
    FORMAT,
    Job,
    SlurmNode,
    parse_configuration,
    parse_jobs,
    parse_marked,
    parse_names,
    parse_node,
)

if TYPE_CHECKING:
    from .._core.protocols import Commands, Completed

# slurmctld that is busy lets its clients wait, and these try its backups.
TIMEOUT_SECONDS = 60.0
# Filters of whoever runs squeue, which would hide jobs from us.
FILTERS = ("SQUEUE_USERS", "SQUEUE_PARTITION", "SQUEUE_QOS", "SQUEUE_LICENSES", "SQUEUE_STATES", "SQUEUE_FORMAT2")
LINES_SHOWN = 3
LOAD_ERROR = "slurm_load_topo error"

UNKNOWN_NODE = regex(r"^Node \S+ not found$|invalid node name", re.IGNORECASE | re.MULTILINE)
NOT_ALLOWED = ("permission denied", "invalid user id", "access denied")
HINTS = (
    (("munge", "authentication", "credential"), "check munge: munge -n | unmunge, and systemctl status munge"),
    (("unable to contact", "connect", "connection"), "check slurmctld: scontrol ping"),
    (("configuration", "slurm.conf"), "run it on a host where scontrol works"),
)


class Controller:
    """What one cluster's slurmctld knows and does. Every method but ``find`` raises ``GpuFleetError``."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        for program in ("scontrol", "squeue"):
            if commands.find(program) is None:
                raise CannotLook(
                    "ask slurmctld",
                    object=program,
                    cause="it is not on the path",
                    hint="run it on a host where scontrol works, or set PATH with environment",
                )

    def node(self, name: str) -> SlurmNode:
        """One node, by the name that slurm.conf has for it."""
        goal = "ask slurmctld for {}"
        return parse_node(self._run(["scontrol", "--oneliner", "show", "node", name], goal, name), name)

    def names(self) -> Tuple[str, ...]:
        """All nodes that it has, those that registered by themselves too."""
        return parse_names(self._nodes())

    def marked(self) -> Tuple[SlurmNode, ...]:
        """The nodes of the cluster that are drained with our mark, those of hidden partitions included."""
        return parse_marked(self._nodes())

    def configuration(self) -> Mapping[str, str]:
        """What it runs with, by the names of slurm.conf."""
        return parse_configuration(self._run(["scontrol", "show", "config"], "ask slurmctld for its configuration", ""))

    def topology(self) -> str:
        """Its switches or blocks, a line each."""
        # Its variable cuts the lines.
        ask = ["env", "-u", "SLURM_TOPO_LEN", "scontrol", "show", "topology"]
        return self._run(ask, "ask slurmctld for its topology", "", may_fail_with_0=True)

    def topologies(self) -> str:
        """What it has of topology.yaml, as YAML (25.05 and newer)."""
        goal = "ask slurmctld for its topologies"
        shown = self._run(["scontrol", "show", "topoconf"], goal, "", may_fail_with_0=True)
        if not shown.strip():
            # One that is not reached has no words either (26.05). With no topology at all it has a document.
            raise CannotLook(goal, cause="scontrol show topoconf printed nothing", hint=HINTS[1][1])
        return shown

    def jobs(self, name: str) -> Tuple[Job, ...]:
        """What runs, ends or is suspended on a node."""
        unset = [word for name_of_filter in FILTERS for word in ("-u", name_of_filter)]
        ask = ["squeue", "--all", "--local", "--noheader", f"--nodelist={name}", f"--format={FORMAT}"]
        return parse_jobs(self._run(["env", *unset, *ask], "ask slurmctld for the jobs of {}", name))

    def drain(self, name: str, reason: str) -> None:
        """Let it get no new jobs."""
        self._run(["scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}"], "drain {}", name)

    def resume(self, name: str) -> None:
        """Return it to service, whatever its state and reason."""
        self._run(["scontrol", "update", f"NodeName={name}", "State=RESUME"], "resume {}", name)

    def clear_reason(self, name: str, instead: str) -> None:
        """Give a node that is not drained another reason: none at all is not to be had."""
        self._run(["scontrol", "update", f"NodeName={name}", f"Reason={instead}"], "change the reason of {}", name)

    def _nodes(self) -> str:
        return self._run(["scontrol", "--all", "--oneliner", "show", "nodes"], "ask slurmctld for its nodes", "")

    def _run(self, argv: Sequence[str], goal: str, name: str, *, may_fail_with_0: bool = False) -> str:
        done = self._commands.run(argv, timeout=TIMEOUT_SECONDS)
        # Of topologies scontrol ends with 0 where slurmctld does not answer (22.05 to 26.05).
        if done.status != 0 or (may_fail_with_0 and LOAD_ERROR in done.errors):
            raise _error(done, goal, name)
        return done.output


def _error(done: Completed, goal: str, name: str) -> GpuFleetError:
    lines = [line.strip() for line in (done.errors + "\n" + done.output).splitlines() if line.strip()]
    said = "; ".join(lines[-LINES_SHOWN:]) or f"exit status {done.status}, without output"
    lowered = " ".join(lines).lower()
    if done.timed_out:
        return CannotLook(
            goal, object=name, cause=f"no response within {TIMEOUT_SECONDS:.0f} seconds", hint=HINTS[1][1]
        )
    if UNKNOWN_NODE.search("\n".join(lines)):
        return DeclarationError(
            goal, object=name, cause="Slurm has no node of this name", hint="list them with scontrol show nodes"
        )
    if any(sign in lowered for sign in NOT_ALLOWED):
        return NotPermitted(
            goal, object=name, cause=said, hint="run it as root, as the user of slurmctld, or as an operator of Slurm"
        )
    hint = next((text for signs, text in HINTS if any(sign in lowered for sign in signs)), "")
    return CannotLook(goal, object=name, cause=said, hint=hint)
