# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first half of the way every module takes: read the machine and plan, without a change."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Tuple

from . import baseline, declared
from .change import Plan
from .contract import Concern, Desired, Params, State
from .errors import CannotLook
from .shared_options import SHARED_OPTIONS

if TYPE_CHECKING:
    from .protocols import Host


def assess(concern: Concern[State, Desired], params: Params, host: Host) -> Tuple[State, Plan]:
    """The first three steps: read the machine and plan, without a change."""
    try:
        state = concern.observe(host, params)
        if params["state"] == "absent":
            plan = concern.plan(state, concern.restore(params, baseline.load(host.files, concern.name), state))
            if not params["permanent"]:
                return state, plan
            declaration, step = declared.plan_absent(host.files, concern.name)
            return state, plan.with_setting(declaration, (*plan.steps, *step))
        plan = concern.plan(state, concern.normalise(params, state))
        # What cannot even begin is not declared either.
        if not params["permanent"] or (plan.blocker is not None and plan.blocker.fatal and not plan.steps):
            return state, plan
        declaration, step = declared.plan_present(host.files, concern, params, SHARED_OPTIONS)
        # With the rest of the next boot: a room that writes that last leaves no declaration of what the kernel refused.
        boot, running = plan.split()
        return state, plan.with_setting(declaration, (*boot, *step, *running))
    except OSError as error:
        raise CannotLook(
            f"look at {concern.name}",
            object=error.filename or "",
            cause=error.strerror or str(error),
            hint="run as root, or with become: true" if error.errno in (errno.EACCES, errno.EPERM) else "",
        ) from error
