# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A concern among the others: what it needs, what it may upset, and what of the machine it owns."""

from __future__ import annotations

from typing import Tuple

from .value import frozen

# The deadline of whoever asks the driver: one that hangs is given up by then, and the look can say so.
DRIVER_DEADLINE = 75.0
ALL: Tuple[str, ...] = ("*",)


@frozen
class Registration:
    """What the registry knows of a concern before anything of it is imported.

    ``after`` are the concerns that must be in sync before this one starts, ``disturbs`` those that a change of this one
    may put out of sync again. ``serves`` are those that cannot do without it, ``ALL`` for all others: where one of them
    is declared, it is too, by its defaults. ``cures`` are codes of failures to look at others that its work ends.
    ``tells`` are what is needed and its role sees to. ``deadline`` is how many seconds its look may take.
    ``interrupted`` is the file that is there while a change of this one was interrupted: then it is looked at, and
    finished at boot, also where nobody declares it. ``owns`` are the knobs that no other concern may set beside it, as
    patterns (``_core.knobs``).
    """

    after: Tuple[str, ...] = ()
    disturbs: Tuple[str, ...] = ()
    serves: Tuple[str, ...] = ()
    cures: Tuple[str, ...] = ()
    tells: Tuple[str, ...] = ()
    deadline: float = 10.0
    interrupted: str = ""
    owns: Tuple[str, ...] = ()
