# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was meant by a name that nobody knows."""

from __future__ import annotations

from typing import Iterable

# How a hint begins that is a question.
QUESTION = "did you mean"


def nearest(name: object, names: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The one that is most like ``name``, empty where none is like it; ``cutoff`` is 1 for the same."""
    # Only what is wrong has a use for difflib, and importing it costs every look up to a millisecond.
    from difflib import get_close_matches

    return next(iter(get_close_matches(str(name), list(names), n=1, cutoff=cutoff)), "")


def did_you_mean(name: object, names: Iterable[str], *, otherwise: str = "", cutoff: float = 0.6) -> str:
    """The hint for an error: the nearest name, and ``otherwise`` where none is near."""
    near = nearest(name, names, cutoff=cutoff)
    return f"{QUESTION} {near}" if near else otherwise
