# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a declaration of MIG says, and what it means on one GPU: the result, or the exact message that comes back."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import arguments
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.model import (
    Geometry,
    Profile,
    WantedCompute,
    WantedInstance,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.options import OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.resolve import resolve
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.spec import (
    InstanceItem,
    ItemCompute,
    MigEntry,
    check,
    parse,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_tables import document, geometries

MODELS = {
    "h100-80": "NVIDIA H100 80GB HBM3",
    "a100-40": "NVIDIA A100-SXM4-40GB",
    "a100-80": "NVIDIA A100-SXM4-80GB",
    "a30": "NVIDIA A30",
    "gb200": "NVIDIA GB200",
    "rtx-pro-6000": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "rtx-pro-5000": "NVIDIA RTX PRO 5000 Blackwell",
}
WHERE = "gpus[0].instances[0]"


def entry_of(**given: Any) -> MigEntry:
    """The one entry of a declaration, completed and checked as on the node."""
    params = arguments.validated(OPTIONS, {"gpus": [given]})
    check(params)
    return parse(params["gpus"])[0]


def item_of(raw: Any) -> InstanceItem:
    entry = entry_of(instances=[raw])
    assert entry.instances
    return entry.instances[0]


def geometry_with(key: str, names: Optional[Dict[str, str]] = None) -> Geometry:
    """The profiles of a board, under the names of another driver where ``names`` has one."""
    return Geometry(
        tuple(
            Profile(**{**vars(profile), "name": (names or {}).get(profile.name, profile.name)})
            for profile in geometries()[key].profiles
        )
    )


def resolved(key: str, *, names: Optional[Dict[str, str]] = None, **given: Any) -> Optional[Tuple[WantedInstance, ...]]:
    devices = next(gpu["pci_device_ids"] for gpu in document()["gpus"] if gpu["key"] == key)
    return resolve(
        entry_of(**given),
        geometry_with(key, names),
        model=MODELS[key],
        device_id=int(devices[0], 16) if devices else 0x1234,
        gpu="gpu3",
    )


# --- what an entry says -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "mig", "layout", "instances"),
    [
        pytest.param({}, True, "", None, id="the mode alone"),
        pytest.param({"mig": "disabled"}, False, "", None, id="no MIG"),
        pytest.param({"layout": " All-1g "}, True, "all-1g", None, id="a named layout"),
        pytest.param({"instances": []}, True, "", (), id="no instances"),
    ],
)
def test_an_entry_declares_mode_layout_or_instances(
    given: Dict[str, Any], mig: bool, layout: str, instances: Optional[Tuple[InstanceItem, ...]]
) -> None:
    entry = entry_of(match={"index": 3}, optional=True, **given)
    assert (entry.mig, entry.layout, entry.instances) == (mig, layout, instances)
    assert (entry.entry.where, dict(entry.entry.match), entry.entry.optional) == ("gpus[0]", {"index": ("3",)}, True)


ONE_SLICE = (ItemCompute(WHERE, 1, None, None),)
INSIDE = f"{WHERE}.compute_instances[0]"


@pytest.mark.parametrize(
    ("raw", "item"),
    [
        ("3g.40gb", InstanceItem(WHERE, "3g.40gb", 1, None, None)),
        (" MIG 1G.10GB+ME ", InstanceItem(WHERE, "1g.10gb+me", 1, None, None)),
        (19, InstanceItem(WHERE, 19, 1, None, None)),
        (0, InstanceItem(WHERE, 0, 1, None, None)),
        ("19", InstanceItem(WHERE, 19, 1, None, None)),
        ("1c.3g.40gb", InstanceItem(WHERE, "3g.40gb", 1, None, ONE_SLICE)),
        ("MIG 1c.9", InstanceItem(WHERE, 9, 1, None, ONE_SLICE)),
        ({"profile": "1g", "count": 2}, InstanceItem(WHERE, "1g", 2, None, None)),
        ({"profile": 9, "count": "2", "placement": None}, InstanceItem(WHERE, 9, 2, None, None)),
        ({"profile": "3g", "placement": 4}, InstanceItem(WHERE, "3g", 1, 4, None)),
        ({"profile": "3g", "placement": "0"}, InstanceItem(WHERE, "3g", 1, 0, None)),
        ({"profile": "3g", "compute_instances": []}, InstanceItem(WHERE, "3g", 1, None, ())),
        (
            {"profile": "3g", "compute_instances": ["2C.3g"]},
            InstanceItem(WHERE, "3g", 1, None, (ItemCompute(INSIDE, 2, "3g", None),)),
        ),
        (
            {"profile": "3g", "compute_instances": [{"profile": "1c", "placement": 2}]},
            InstanceItem(WHERE, "3g", 1, None, (ItemCompute(INSIDE, 1, None, 2),)),
        ),
    ],
)
def test_an_instance_is_a_name_a_number_or_a_dict(raw: Any, item: InstanceItem) -> None:
    assert item_of(raw) == item


NO_PROFILE = "is neither the name of a profile, such as 3g.40gb, nor its number."


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"layout": "all-1g", "instances": []},
            "Cannot use gpus[0] (which matches everything): layout and instances are mutually exclusive. Remove one of "
            "them.",
        ),
        (
            {"mig": "disabled", "instances": ["1g"]},
            "Cannot use gpus[0] (which matches everything): it declares instances, and with mig: disabled "
            "there are none. Remove that, or set mig: enabled.",
        ),
        (
            {"mig": "disabled", "instances": []},
            "Cannot use gpus[0] (which matches everything): it declares instances, and with mig: disabled "
            "there are none. Remove that, or set mig: enabled.",
        ),
        (
            {"match": {"index": 2}, "mig": "disabled", "layout": "whole"},
            "Cannot use gpus[0] (index: 2): it declares layout, and with mig: disabled there are none. "
            "Remove that, or set mig: enabled.",
        ),
        (
            {"layout": " "},
            "Cannot use gpus[0] (which matches everything): layout is empty. Name one, such as all-1g, or "
            "leave it out.",
        ),
        (
            {"match": {"modell": "NVIDIA*"}},
            "Cannot use gpus[0]: there is no key modell. Did you mean model?",
        ),
        (
            {"mig": "on"},
            "Cannot read the declaration: value of mig must be one of: enabled, disabled, got: on found in gpus.",
        ),
    ],
)
def test_an_entry_that_no_machine_could_have_is_refused(given: Dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        entry_of(**given)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("", f"'' {NO_PROFILE}"),
        ("  ", f"'  ' {NO_PROFILE}"),
        (None, f"None {NO_PROFILE}"),
        (True, f"True {NO_PROFILE}"),
        (19.0, f"19.0 {NO_PROFILE}"),
        (-1, f"-1 {NO_PROFILE}"),
        (["1g", "2g"], f"['1g', '2g'] {NO_PROFILE}"),
        ({"profile": ["1g"]}, f"['1g'] {NO_PROFILE}"),
        ({"profile": False}, f"False {NO_PROFILE}"),
        ("1c", "'1c' does not name its GPU instance. Write it as 1c.3g.40gb."),
        (
            "3g.40gb@4",
            "a name has no placement, and this is '3g.40gb@4'. Write a dict, such as {profile: 3g.40gb, placement: 4}.",
        ),
        ({}, "it has no profile."),
        ({"count": 2}, "it has no profile."),
        ({"profil": "1g"}, "there is no key profil. Did you mean profile?"),
        ({"profile": "1g", "placment": 0}, "there is no key placment. Did you mean placement?"),
        (
            {"1g.5gb": 2},
            "there is no key 1g.5gb. The keys are profile, count, placement, compute_instances.",
        ),
        ({7: 2}, "there is no key 7. The keys are profile, count, placement, compute_instances."),
        ({"profile": "1g", "count": 0}, "count is 0, and must be a whole number from 1 to 64."),
        ({"profile": "1g", "count": -1}, "count is -1, and must be a whole number from 1 to 64."),
        ({"profile": "1g", "count": 1.5}, "count is 1.5, and must be a whole number from 1 to 64."),
        ({"profile": "1g", "count": 2.0}, "count is 2.0, and must be a whole number from 1 to 64."),
        ({"profile": "1g", "count": True}, "count is True, and must be a whole number from 1 to 64."),
        ({"profile": "1g", "count": "two"}, "count is 'two', and must be a whole number from 1 to 64."),
        ({"profile": "1g", "count": [2]}, "count is [2], and must be a whole number from 1 to 64."),
        ({"profile": "1g", "count": 10**9}, "count is 1000000000, and must be a whole number from 1 to 64."),
        ({"profile": "1g", "placement": -1}, "placement is -1, and must be a whole number from 0 to 64."),
        ({"profile": "1g", "placement": "x"}, "placement is 'x', and must be a whole number from 0 to 64."),
        ({"profile": "1g", "placement": False}, "placement is False, and must be a whole number from 0 to 64."),
        (
            {"profile": "1g", "count": 2, "placement": 0},
            "2 instances cannot begin at one placement. Write an element for each placement.",
        ),
        (
            {"profile": "1c.3g.40gb", "compute_instances": ["1c"]},
            "its profile names a compute instance, and compute_instances others. Remove one.",
        ),
        (
            {"profile": "1c.3g.40gb", "compute_instances": []},
            "its profile names a compute instance, and compute_instances others. Remove one.",
        ),
        ({"profile": "3g", "compute_instances": "1c"}, "compute_instances is '1c', and must be a list."),
    ],
)
def test_an_instance_that_no_gpu_could_have_is_refused(raw: Any, message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        item_of(raw)
    assert str(caught.value) == f"Cannot use {WHERE}: {message}"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("3g.40gb", "'3g.40gb' is not a compute instance. Write it as 1c or 1c.3g.40gb."),
        (1, "1 is not a compute instance. Write it as 1c or 1c.3g.40gb."),
        ("", f"'' {NO_PROFILE}"),
        (["1c"], f"['1c'] {NO_PROFILE}"),
        ({"placement": 0}, "it has no profile."),
        ({"profile": "1c", "count": 2}, "there is no key count. The keys are profile, placement."),
        ({"profile": "1c", "placement": 1.0}, "placement is 1.0, and must be a whole number from 0 to 64."),
    ],
)
def test_a_compute_instance_that_no_gpu_could_have_is_refused(raw: Any, message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        item_of({"profile": "3g.40gb", "compute_instances": [raw]})
    assert str(caught.value) == f"Cannot use {INSIDE}: {message}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"busy_timeout": -1}, "Cannot use busy_timeout: it is below zero (wanted -1)."),
        (
            {"stop_services": ["nvidia-dcgm"]},
            "Cannot use stop_services: 'nvidia-dcgm' is not the name of a service. Write it as systemctl "
            "shows it, such as nvidia-dcgm.service.",
        ),
        (
            {"stop_services": ["nvidia-dcgm.service", "dcgm@.service"]},
            "Cannot use stop_services: 'dcgm@.service' is not the name of a service. Write it as systemctl "
            "shows it, such as nvidia-dcgm.service.",
        ),
        (
            {"stop_services": ["nvidia-*.service"]},
            "Cannot use stop_services: 'nvidia-*.service' is not the name of a service. Write it as systemctl "
            "shows it, such as nvidia-dcgm.service.",
        ),
        (
            {"when_busy": "kill"},
            "Cannot read the declaration: value of when_busy must be one of: fail, wait, skip, got: kill.",
        ),
    ],
)
def test_other_options_are_checked(options: Dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        check(arguments.validated(OPTIONS, options))
    assert str(caught.value) == message


def test_the_defaults_and_names_of_services_are_right() -> None:
    check(arguments.validated(OPTIONS, {}))
    check(arguments.validated(OPTIONS, {"busy_timeout": 0, "stop_services": ["nvidia-dcgm.service", "app@1.service"]}))


# --- what it means on a GPU -------------------------------------------------------------------------------------------


def whole(profile: int, slices: int, start: Optional[int] = None) -> WantedInstance:
    return WantedInstance(profile, start, (WantedCompute(slices),))


@pytest.mark.parametrize(
    ("key", "raw", "profile"),
    [
        ("h100-80", "1g.10gb", 19),
        ("h100-80", "1G.10GB+ME", 20),
        ("h100-80", 9, 9),
        ("h100-80", "0", 0),
        ("h100-80", "1g", 19),
        ("h100-80", "1g+me", 20),
        ("h100-80", "1g.20gb", 15),
        ("h100-80", "2g", 14),
        ("h100-80", "7g", 0),
        # What another board calls 1g is here the one with twice the memory.
        ("a100-40", "1g.10gb", 15),
        ("a100-40", "1g", 19),
        ("a30", "1g", 14),
        ("a30", "2g+me", 6),
        ("a30", "4g", 0),
        ("rtx-pro-6000", "1g", 14),
        ("rtx-pro-6000", "1g-me", 67),
        ("rtx-pro-6000", "2g+me.all", 64),
        ("rtx-pro-6000", "4g+gfx", 32),
        ("rtx-pro-6000", "1g.24gb+me.all", 65),
        ("rtx-pro-6000", "2g.48gb-me", 66),
        # What older drivers call it.
        ("a100-80", "3g.39gb", 9),
        ("gb200", "7g.189gb", 0),
        ("gb200", "1g.24gb+me", 20),
    ],
)
def test_a_name_is_the_profile_that_this_gpu_has(key: str, raw: Any, profile: int) -> None:
    found = geometries()[key].profile(profile)
    assert found
    assert resolved(key, instances=[raw]) == (whole(profile, found.slices),)


@pytest.mark.parametrize("name", ["3g.39gb", "3g.40gb", "3g"])
def test_a_name_of_today_is_known_where_an_old_driver_has_another(name: str) -> None:
    assert resolved("a100-80", names={"3g.40gb": "3g.39gb"}, instances=[name]) == (whole(9, 3),)


def test_what_a_driver_calls_a_profile_comes_before_what_another_calls_one() -> None:
    swapped = {"3g.40gb": "3g.39gb", "4g.40gb": "3g.40gb"}
    assert resolved("a100-80", names=swapped, instances=["3g.40gb"]) == (whole(5, 4),)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param({}, None, id="the mode alone"),
        pytest.param({"mig": "disabled"}, None, id="no MIG"),
        pytest.param({"instances": []}, (), id="no instances"),
        pytest.param(
            {"instances": ["3g", {"profile": "1g", "count": 2}, {"profile": "2g", "placement": 2}]},
            (whole(9, 3), whole(19, 1), whole(19, 1), whole(14, 2, 2)),
            id="counts and placements",
        ),
        pytest.param(
            {"instances": ["1c.3g.40gb"]}, (WantedInstance(9, None, (WantedCompute(1),)),), id="one compute instance"
        ),
        pytest.param(
            {"instances": [{"profile": "3g", "count": 2, "compute_instances": ["2c.3g.40gb", "1c.9"]}]},
            (WantedInstance(9, None, (WantedCompute(2), WantedCompute(1))),) * 2,
            id="compute instances in each of several",
        ),
        pytest.param(
            {"instances": [{"profile": "7g", "compute_instances": [{"profile": "3c", "placement": 4}, "4c.7g"]}]},
            (WantedInstance(0, None, (WantedCompute(3, 4), WantedCompute(4))),),
            id="a compute instance with a place",
        ),
        pytest.param(
            {"instances": [{"profile": "3g", "placement": 4, "compute_instances": []}]},
            (WantedInstance(9, 4, ()),),
            id="none at all",
        ),
        pytest.param({"layout": "all-3g"}, (whole(9, 3),) * 2, id="a named layout"),
    ],
)
def test_a_declaration_becomes_what_is_wanted_of_an_h100(
    given: Dict[str, Any], wanted: Optional[Tuple[WantedInstance, ...]]
) -> None:
    assert resolved("h100-80", **given) == wanted


H100_HAS = "1g.10gb (19), 1g.10gb+me (20), 1g.20gb (15), 2g.20gb (14), 3g.40gb (9), 4g.40gb (5), 7g.80gb (0)"
A30_HAS = "1g.6gb (14), 1g.6gb+me (21), 2g.12gb (5), 2g.12gb+me (6), 4g.24gb (0)"
PRO_5000_HAS = (
    "1g.12gb (14), 1g.12gb+me (21), 1g.12gb+gfx (47), 1g.12gb-me (67), 2g.24gb-me (66), 4g.48gb (0), 4g.48gb+gfx (32)"
)


@pytest.mark.parametrize(
    ("key", "raw", "message"),
    [
        (
            "h100-80",
            "1g.5gb",
            f"this NVIDIA H100 80GB HBM3 has no profile 1g.5gb; it has {H100_HAS}. Did you mean 1g.10gb?",
        ),
        (
            "h100-80",
            "3g.39gb",
            f"this NVIDIA H100 80GB HBM3 has no profile 3g.39gb; it has {H100_HAS}. Did you mean 3g.40gb?",
        ),
        ("h100-80", 21, f"this NVIDIA H100 80GB HBM3 has no profile 21; it has {H100_HAS}."),
        ("h100-80", "3x", f"this NVIDIA H100 80GB HBM3 has no profile 3x; it has {H100_HAS}."),
        (
            "h100-80",
            "1g-me",
            f"this NVIDIA H100 80GB HBM3 has no profile 1g-me; it has {H100_HAS}. Did you mean 1g.10gb+me?",
        ),
        ("a30", "3g", f"this NVIDIA A30 has no profile 3g; it has {A30_HAS}."),
        ("a30", "3g.40gb", f"this NVIDIA A30 has no profile 3g.40gb; it has {A30_HAS}."),
        ("a30", 19, f"this NVIDIA A30 has no profile 19; it has {A30_HAS}."),
        (
            "rtx-pro-5000",
            "2g",
            f"this NVIDIA RTX PRO 5000 Blackwell has no profile 2g; it has {PRO_5000_HAS}. Did you mean 2g.24gb-me?",
        ),
        (
            "h100-80",
            {"profile": "2g", "placement": 6},
            "a 2g.20gb of this NVIDIA H100 80GB HBM3 begins at memory slice 0, 2 or 4 (wanted 6).",
        ),
        (
            "h100-80",
            {"profile": "1g", "placement": 7},
            "a 1g.10gb of this NVIDIA H100 80GB HBM3 begins at memory slice 0, 1, 2, 3, 4, 5 or 6 (wanted 7).",
        ),
        (
            "a30",
            {"profile": "4g", "placement": 1},
            "a 4g.24gb of this NVIDIA A30 begins at memory slice 0 (wanted 1).",
        ),
        (
            "h100-80",
            {"profile": "2g", "compute_instances": ["1c"] * 3},
            "a 2g.20gb has 2 compute slices, and its compute instances take 3.",
        ),
        ("h100-80", "4c.3g.40gb", "a 3g.40gb has 3 compute slices (wanted 4)."),
        ("h100-80", "2c.1g", "a 1g.10gb has 1 compute slice (wanted 2)."),
        ("h100-80", "3c.4g.40gb", "a compute instance in a 4g.40gb takes 1, 2 or 4 slices (wanted 3)."),
        ("h100-80", "0c.7g", "a compute instance in a 7g.80gb takes 1, 2, 3, 4 or 7 slices (wanted 0)."),
    ],
)
def test_what_this_gpu_does_not_have_is_refused(key: str, raw: Any, message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        resolved(key, instances=[raw])
    assert str(caught.value) == f"Cannot create {WHERE} on gpu3: {message}"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("1c.2g.20gb", "1c.2g.20gb cannot be in a 3g.40gb."),
        ("1c.3g.20gb", "1c.3g.20gb cannot be in a 3g.40gb."),
        (
            {"profile": "2c", "placement": 1},
            "a compute instance of 2 compute slices in a 3g.40gb begins at 0 (wanted 1).",
        ),
        (
            {"profile": "1c", "placement": 3},
            "a compute instance of 1 compute slice in a 3g.40gb begins at 0, 1 or 2 (wanted 3).",
        ),
    ],
)
def test_a_compute_instance_that_the_instance_cannot_have_is_refused(raw: Any, message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        resolved("h100-80", instances=[{"profile": "3g.40gb", "compute_instances": [raw]}])
    assert str(caught.value) == f"Cannot create {INSIDE} on gpu3: {message}"


@pytest.mark.parametrize(
    ("key", "name", "message"),
    [
        ("a30", "all-3g", "this NVIDIA A30 has no layout all-3g, but all-1g, all-2g, all-4g, whole, balanced."),
        (
            "h100-80",
            "balnced",
            "this NVIDIA H100 80GB HBM3 has no layout balnced, but all-1g, all-2g, all-3g, all-4g, all-7g, whole, "
            "balanced. Did you mean balanced?",
        ),
    ],
)
def test_a_layout_that_this_gpu_does_not_have_is_refused(key: str, name: str, message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        resolved(key, layout=name)
    assert str(caught.value) == f"Cannot create gpus[0] on gpu3: {message}"


def test_one_line_serves_a_mixed_fleet() -> None:
    assert [len(resolved(key, layout="all-1g") or ()) for key in ("h100-80", "a30")] == [7, 4]
    assert [len(resolved(key, layout="balanced") or ()) for key in ("h100-80", "a30")] == [4, 3]
    assert [resolved(key, layout="whole") for key in ("h100-80", "a30")] == [(whole(0, 7),), (whole(0, 4),)]
