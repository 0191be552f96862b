# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Refusals because of other owners, with all of their lines at once, and of what is not kept at boot."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import Plan
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import not_in_effect
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import OwnedByAnother, refuse_all
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import Setting


def test_a_refusal_for_lines_of_others_names_all_of_them_each_once() -> None:
    def refusal(setting: str, object: str, cause: str) -> OwnedByAnother:
        return OwnedByAnother(f"set {setting}", object=object, cause=cause, found=1, wanted=2, hint="remove that line")

    refuse_all([])
    of_all = [
        refusal("a", "gpu0", "x:1 sets it"),
        refusal("a", "gpu1", "x:1 sets it"),
        refusal("b", "gpu0", "x:2 sets it"),
        refusal("b", "gpu1", "x:2 sets it"),
        refusal("c", "gpu1", "y:9 sets it"),
    ]
    with pytest.raises(OwnedByAnother) as caught:
        refuse_all(of_all, ("conflict",))
    assert str(caught.value) == (
        "Cannot set a on gpu0: x:1 sets it (found 1, wanted 2). Remove that line. Also cannot set b on gpu0: "
        "x:2 sets it (found 1, wanted 2); set c on gpu1: y:9 sets it (found 1, wanted 2)."
    )
    assert (caught.value.object, caught.value.conflicts) == ("gpu0", ("conflict",))
    with pytest.raises(OwnedByAnother, match=r"Remove that line\.$"):
        refuse_all([refusal("a", "gpu0", "x:1 sets it")])
    with pytest.raises(OwnedByAnother) as caught:
        refuse_all(of_all[:2] * 2, by_object=True)
    assert str(caught.value).endswith("Also cannot set a on gpu1: x:1 sets it (found 1, wanted 2).")


@pytest.mark.parametrize(
    ("effective", "matters", "cause"),
    [
        ("always", True, "it is in effect now, but would not survive a reboot"),
        ("never", False, "the machine reports another value than the one written"),
    ],
)
def test_what_is_in_effect_and_would_not_be_after_a_boot_is_said_so(effective: str, matters: bool, cause: str) -> None:
    setting = Setting("thp", "enabled", "always", effective, "madvise", "thp", effective_matters=matters)
    error = not_in_effect(Plan((setting,)))
    assert str(error).startswith(f"Cannot apply enabled at boot on thp: {cause} (found madvise, wanted always).")
