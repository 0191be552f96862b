# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other owners of which it is not known what they do at boot, and those that are accepted."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import accepted
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import Change, Conflict, Plan, Step
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import RemoveFile as Remove
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import Setting
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace

TODAY = "2026-11-29"
ROW = Setting("sysctl", "vm.swappiness", "0", "0", "0", "vm.swappiness")
OTHER = Setting("sysctl", "vm.max_map_count", "1", "1", "1", "vm.max_map_count")
MAY = Conflict("tune.service", "/opt/tune", 3, "sysctl", "vm.swappiness", "60", "unknown")
WINS = replace(MAY, wins="them")
SAID = "tune.service may set it to 60 at boot, see /opt/tune:3"


def judged(conflict: Conflict, *entries: Dict[str, Any], row: Setting = ROW, permanent: bool = True) -> Plan:
    plan = Plan((row, OTHER), conflicts=(conflict,))
    found = accepted.parse([{"reason": "known", "owner": "*", **entry} for entry in entries])
    return accepted.judge(plan, found, permanent=permanent, today=TODAY)


def statuses(plan: Plan) -> List[str]:
    return [plan.status, *(row.status for row in plan.settings)]


def test_what_another_may_set_is_unknown_and_says_who() -> None:
    plan = judged(MAY)
    assert statuses(plan) == ["unknown", "unknown", "in_sync"]
    assert plan.settings[0].row() == {
        "object": "sysctl",
        "setting": "vm.swappiness",
        "wanted": "0",
        "effective": "0",
        "boot": "unknown",
        "status": "unknown",
        "note": SAID,
    }
    assert plan.doubts == (f"sysctl vm.swappiness: {SAID}",)
    assert plan.conflicts == (MAY,)


@pytest.mark.parametrize("wins", ["them", "us"])
def test_what_is_known_to_win_or_to_lose_leaves_nothing_unknown(wins: str) -> None:
    assert statuses(judged(replace(MAY, wins=wins))) == ["in_sync", "in_sync", "in_sync"]


def test_every_row_of_a_setting_stays_and_has_the_doubt() -> None:
    plan = Plan((replace(ROW, effective="9"), ROW, OTHER), conflicts=(MAY,))
    assert statuses(accepted.judge(plan, (), permanent=True)) == ["drifted", "drifted", "unknown", "in_sync"]


def test_without_the_next_boot_nothing_is_unknown() -> None:
    assert statuses(judged(MAY, permanent=False)) == ["in_sync", "in_sync", "in_sync"]


def test_what_differs_stays_drifted() -> None:
    assert statuses(judged(MAY, row=replace(ROW, boot="60")))[:2] == ["drifted", "drifted"]


def test_a_plan_with_steps_is_drifted() -> None:
    step = Step(Remove("/x"), (Change("sysctl", "vm.swappiness", "60", "0", "effective"),))
    assert accepted.judge(Plan((ROW,), (step,), conflicts=(MAY,)), (), permanent=True).status == "drifted"


def test_what_waits_is_unknown_as_long_as_the_next_boot_is() -> None:
    assert statuses(judged(MAY, row=replace(ROW, effective="1", pending="later")))[:2] == ["unknown", "unknown"]


@pytest.mark.parametrize("conflict", [MAY, WINS], ids=["may", "wins"])
def test_an_entry_accepts_what_it_matches_and_it_is_counted_apart(conflict: Conflict) -> None:
    plan = judged(conflict, {"owner": "tune.*", "setting": "vm.swap*", "until": "2026-11-29"})
    assert statuses(plan) == ["in_sync", "accepted", "in_sync"]
    (entry,) = plan.conflicts
    assert entry.accepted == "until 2026-11-29: known"
    said = SAID if conflict is MAY else "tune.service may set it, see /opt/tune:3"
    assert plan.settings[0].row()["note"] == f"{said}; accepted until 2026-11-29: known"


@pytest.mark.parametrize(
    "entry", [{"owner": "other"}, {"setting": "vm.dirty*"}, {"object": "cpu"}], ids=["owner", "setting", "object"]
)
def test_an_entry_about_something_else_accepts_nothing(entry: Dict[str, Any]) -> None:
    assert statuses(judged(MAY, entry))[0] == "unknown"


def test_an_entry_that_has_expired_accepts_nothing_and_is_named() -> None:
    plan = judged(MAY, {"until": "2026-11-28"})
    assert statuses(plan)[0] == "unknown"
    assert plan.settings[0].doubt == f"{SAID}; the acceptance expired on 2026-11-28 (known)"


def test_a_later_entry_counts_where_one_before_it_has_expired() -> None:
    assert statuses(judged(MAY, {"until": "2026-11-28"}, {"reason": "extended"}))[:2] == ["in_sync", "accepted"]


def test_of_two_owners_both_must_be_accepted() -> None:
    other = replace(MAY, owner="other.service")
    plan = Plan((ROW,), conflicts=(MAY, other))
    (entry,) = accepted.parse([{"owner": "tune.service", "reason": "known"}])
    found = accepted.judge(plan, (entry,), permanent=True, today=TODAY)
    assert (found.status, found.settings[0].doubt) == ("unknown", SAID.replace("tune.service", "other.service"))


@pytest.mark.parametrize(("conflict", "status"), [(MAY, "unknown"), (WINS, "in_sync")], ids=["may", "wins"])
def test_a_conflict_about_no_setting_of_the_plan_is_not_lost(conflict: Conflict, status: str) -> None:
    plan = Plan((OTHER,), conflicts=(conflict,))
    assert accepted.judge(plan, (), permanent=True, today=TODAY).status == status
    (entry,) = accepted.parse([{"owner": "tune.service", "reason": "known"}])
    found = accepted.judge(plan, (entry,), permanent=True, today=TODAY)
    assert statuses(found) == ["in_sync", "in_sync", "accepted"]
    assert found.settings[1].row()["note"].endswith("accepted: known")


def test_a_setting_that_differs_is_shown_with_its_values_although_it_is_accepted() -> None:
    plan = judged(MAY, {}, row=replace(ROW, boot="60"))
    assert (plan.settings[0].status, "note" in plan.settings[0].row()) == ("drifted", False)


@pytest.mark.parametrize(
    ("entry", "cause"),
    [
        ({"until": "tomorrow"}, "until is tomorrow"),
        ({"until": "2026-02-30"}, "until is 2026-02-30"),
        ({"until": "2026-2-3"}, "until is 2026-2-3"),
        ({"reason": " "}, "reason is empty"),
    ],
)
def test_a_wrong_entry_is_refused(entry: Dict[str, Any], cause: str) -> None:
    with pytest.raises(DeclarationError, match=cause) as caught:
        judged(MAY, {}, entry)
    assert caught.value.object == "accepted[1]"
