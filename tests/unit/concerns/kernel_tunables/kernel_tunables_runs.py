# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs of ``kernel_tunables`` with validated parameters."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_tunables.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost


def validated(sysctl: Optional[Mapping[str, Any]], **more: Any) -> Dict[str, Any]:
    validator = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options})
    result = validator.validate({"sysctl": sysctl, **more})
    assert result.error_messages == []
    found: Dict[str, Any] = result.validated_parameters
    return found


def run(host: FakeHost, sysctl: Optional[Mapping[str, Any]] = None, *, check: bool = False, **more: Any) -> Outcome:
    outcome = converge(CONCERN, validated(sysctl, **more), host, check_mode=check)
    if outcome.error is not None:
        raise outcome.error
    return outcome
