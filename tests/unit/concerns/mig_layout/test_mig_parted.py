# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configurations of mig-parted files, NVIDIA's own among them: the same instances, or a refusal where it has none."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest
import yaml

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.node.plugins.filter.from_mig_parted import from_mig_parted
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia import gpus
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Identity
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.model import Geometry, Layout
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.resolve import resolve
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.solver import solve
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.spec import parse
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_layout_machine import devices, ready, run
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_tables import TABLE, geometries
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import MakeMachine

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

SHIPPED = Path(__file__).parent / "mig_parted" / "config-default.yaml"
FILE: Dict[str, Any] = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
CONFIGS: Dict[str, List[Dict[str, Any]]] = FILE["mig-configs"]
MODELS: Dict[str, Dict[str, Any]] = json.loads((TABLE.parent / "gpus.json").read_text(encoding="utf-8"))


def file_of(*entries: Any, **configs: Any) -> str:
    return json.dumps({"version": "v1", "mig-configs": configs or {"mine": list(entries)}})


def entry(devices_of: Optional[Mapping[str, int]] = None, **more: Any) -> Dict[str, Any]:
    return {"devices": "all", "mig-enabled": True, "mig-devices": devices_of or {}, **more}


# --- NVIDIA's own file ------------------------------------------------------------------------------------------------


def expected(name: str, model: Mapping[str, Any], names: Mapping[str, str]) -> Optional[Counter[str]]:
    """The devices that mig-parted makes of a configuration on one GPU, by the driver's names; None where MIG is off.

    The last entry for it counts. Raises ``KeyError`` where it has none, or names a profile that the GPU does not have.
    """
    chosen: Optional[Mapping[str, Any]] = None
    for one in CONFIGS[name]:
        filters = one.get("device-filter", [model["pci_device_id"]])
        ids = [filters] if isinstance(filters, str) else filters
        if int(model["pci_device_id"], 16) in [int(text, 16) for text in ids]:
            chosen = one
    if chosen is None:
        raise KeyError(name)
    if not chosen["mig-enabled"]:
        return None
    return Counter({names[profile]: count for profile, count in chosen["mig-devices"].items()})


def layout_on(model: Mapping[str, Any], entries: List[Dict[str, Any]], geometry: Geometry) -> Optional[Layout]:
    """The layout of the entry that wins a GPU of this model, None where MIG is off there."""
    device = int(model["pci_device_id"], 16) >> 16
    identity = Identity(0, "GPU-0", "0000:17:00.0", model["name"], pci_ids=(f"10de:{device:04x}",))
    parsed = parse(entries)
    winner = gpus.select([one.entry for one in parsed], [identity])[0]
    assert winner is not None
    if not parsed[winner].mig:
        return None
    wanted = resolve(parsed[winner], geometry, model=model["name"], device_id=device, gpu="gpu0")
    assert wanted is not None
    return solve(geometry, (), wanted)


@pytest.mark.parametrize("key", [key for key, model in MODELS.items() if model["mig"]])
def test_every_configuration_that_nvidia_ships_gives_the_instances_that_mig_parted_makes(key: str) -> None:
    model, geometry = MODELS[key], geometries()[MODELS[key]["mig"]]
    others = next(gpu for gpu in json.loads(TABLE.read_text())["gpus"] if gpu["key"] == model["mig"])
    names = {one.name: one.name for one in geometry.profiles}
    for own, elsewhere in others.get("names_other_drivers", {}).items():
        names.update({f"{name}{more}": f"{own}{more}" for name in elsewhere for more in ("", "+me")})
    taken = []
    for name in CONFIGS:
        entries = from_mig_parted(FILE, name)
        try:
            wanted = expected(name, model, names)
        except KeyError:
            with pytest.raises(DeclarationError, match=r"has no (profile|layout)"):
                layout_on(model, entries, geometry)
            continue
        layout = layout_on(model, entries, geometry)
        numbers = {one.number: one for one in geometry.profiles}
        if layout is None:
            assert wanted is None
        else:
            assert Counter(numbers[one.profile].name for one in layout) == wanted, name
            assert all([part.slices for part in one.compute] == [numbers[one.profile].slices] for one in layout)
        taken.append(name)
    # All that are for every GPU, the balanced one, and those of this product.
    assert {"all-disabled", "all-enabled", "all-balanced"} <= set(taken)
    assert len(taken) >= 6, taken


def test_the_file_divides_gpus_of_several_products_by_their_pci_ids(gpu_machine: MakeMachine, tmp_path: Path) -> None:
    models = ("a30-24gb", "h100-sxm5-80gb", "h200-sxm5-141gb", "l40s-48gb")
    gpus_of = [{"model": model, "pci": f"0000:{index + 1:02x}:00.0"} for index, model in enumerate(models)]
    (tmp_path / "several.json").write_text(json.dumps({"driver": "580.65.06", "gpus": gpus_of}))
    machine = ready(gpu_machine, str(tmp_path / "several.json"))
    entries = from_mig_parted(SHIPPED.read_text(encoding="utf-8"), "all-balanced")
    outcome = run(machine, {"match": {"model": "*L40S*"}, "mig": "disabled"}, *entries)
    assert outcome.error is None, outcome.error
    assert devices(machine) == [
        ["1g.6gb", "1g.6gb", "2g.12gb"],
        ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"],
        ["1g.18gb", "1g.18gb", "2g.35gb", "3g.71gb"],
        [],
    ]


def test_a_gpu_that_the_configuration_does_not_know_is_refused_by_name(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "hgx-h200-141gb-8")
    with pytest.raises(DeclarationError) as caught:
        run(machine, *from_mig_parted(FILE, "all-1g.10gb"))
    assert "this NVIDIA H200 has no layout all-1g.10gb (mig-parted)" in str(caught.value)
    assert machine.log() == []


# --- the rules of mig-parted ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        pytest.param(
            [entry({"1g.5gb": 2, "3g.20gb": 1, "2g.10gb": 0})],
            [
                {
                    "match": {},
                    "instances": [{"profile": "3g.20gb", "count": 1}, {"profile": "1g.5gb", "count": 2}],
                    "optional": False,
                }
            ],
            id="counts, and a count of none",
        ),
        pytest.param(
            [{"devices": "all", "mig-enabled": False}],
            [{"match": {}, "mig": "disabled", "optional": False}],
            id="no MIG",
        ),
        pytest.param(
            [entry({"7g.40gb": 1}), entry({}, devices=[2, 3])],
            [
                {"match": {"index": [2, 3]}, "instances": [], "optional": True},
                {"match": {}, "instances": [{"profile": "7g.40gb", "count": 1}], "optional": True},
            ],
            id="the last one for a GPU counts",
        ),
        pytest.param(
            [entry({"7g.40gb": 1}, devices=[0]), entry({})],
            [{"match": {}, "instances": [], "optional": False}],
            id="what is overruled everywhere is left out",
        ),
        pytest.param(
            [entry({}, **{"device-filter": ["0x20B210DE", "0x233010de:0x16C110DE"], "devices": [1]})],
            [
                {"match": {"pci_id": ["10de:20b2", "10de:2330:10de:16c1"], "index": [1]}, "instances": []},
                {"match": {}, "layout": "mine (mig-parted)"},
            ],
            id="products and boards",
        ),
        pytest.param(
            [entry({}, **{"device-filter": 0x20B210DE})],
            [{"match": {"pci_id": ["10de:20b2"]}, "instances": []}, {"match": {}, "layout": "mine (mig-parted)"}],
            id="a product that YAML has made a number of",
        ),
    ],
)
def test_entries_are_those_of_mig_parted(entries: List[Any], found: List[Dict[str, Any]]) -> None:
    assert from_mig_parted(file_of(*entries), "mine") == [{"optional": True, **one} for one in found]


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({"1c.3g.40gb": 3}, [["1c", "1c", "1c"]]),
        ({"1c.3g.40gb": 2}, [["1c", "1c"]]),
        ({"1c.3g.40gb": 4}, [["1c", "1c", "1c"], ["1c"]]),
        ({"1c.3g.40gb": 1, "2c.3g.40gb": 1}, [["2c", "1c"]]),
        ({"2c.3g.40gb": 2}, [["2c"], ["2c"]]),
    ],
)
def test_compute_instances_share_a_gpu_instance_while_it_has_room(
    given: Dict[str, int], parts: List[List[str]]
) -> None:
    found = from_mig_parted(file_of(entry(given)), "mine")[0]["instances"]
    assert found == [{"profile": "3g.40gb", "compute_instances": one} for one in parts]


def test_compute_instances_of_a_file_are_made_on_the_gpu(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    text = file_of(entry({"1c.3g.40gb": 3, "1g.10gb": 2}, devices=[0]), {"devices": [1], "mig-enabled": False})
    others = {"match": {"index": list(range(2, 8))}, "mig": "disabled"}
    assert run(machine, others, *from_mig_parted(text, "mine")).error is None
    assert devices(machine)[0] == ["1c.3g.40gb"] * 3 + ["1g.10gb"] * 2


WRONG: List[Tuple[Any, str]] = [
    ("a: [", "it is not YAML: "),
    ("/etc/mig-parted.yaml", "it has no mig-configs. Give the content of the file, not its path."),
    ({"version": "v2", "mig-configs": {}}, "its version is 'v2', and must be v1."),
    (file_of(all_1g=[entry()], mined=[entry()]), "it has no configuration mine. Did you mean mined?"),
    (file_of(all_1g=[entry()]), "it has no configuration mine. It has all_1g."),
    (file_of(mine=[]), "mine is wrong: it is not a list of entries."),
    (file_of("all"), "mine[0] is wrong: it is not a mapping."),
    (file_of({"device": "all"}), "mine[0] is wrong: there is no field device. Did you mean devices?"),
    (file_of({"devices": "all"}), "mine[0] is wrong: it has no mig-enabled."),
    (file_of(entry(**{"mig-enabled": "yes"})), "mine[0] is wrong: mig-enabled is 'yes', and must be true or false."),
    (file_of(entry(devices="some")), "mine[0] is wrong: devices is 'some', and must be all or a list of the numbers"),
    (file_of(entry(devices=["0"])), "mine[0] is wrong: devices is ['0'], and must be all or a list of the numbers"),
    (
        file_of(entry(**{"device-filter": "0x20B2"})),
        "mine[0] is wrong: device-filter has '0x20B2'. Write it as 0x233010DE, the device before the vendor.",
    ),
    (
        file_of(entry({"1g.5gb": 1}, **{"mig-enabled": False})),
        "mine[0] is wrong: it has mig-devices, and mig-enabled is false.",
    ),
    (
        file_of({"devices": "all", "mig-enabled": True}),
        "mine[0] is wrong: it has no mig-devices. Write mig-devices: {} for none.",
    ),
    (
        file_of(entry({"1g.5gb": 0})),
        "mine[0] is wrong: all counts of mig-devices are 0. Write mig-devices: {} for none.",
    ),
    (
        file_of(entry({"small": 1})),
        "mine[0] is wrong: 'small' is not a MIG profile. Write it as 3g.40gb, 1g.10gb+me or 1c.3g.40gb.",
    ),
    (file_of(entry({"1g.5gb": -1})), "mine[0] is wrong: the count of 1g.5gb is -1, and must be a whole number."),
    (file_of(entry({"4c.3g.40gb": 1})), "mine[0] is wrong: a 3g.40gb has 3 compute slices, and 4c.3g.40gb takes 4."),
]


@pytest.mark.parametrize(("file", "said"), WRONG)
def test_what_is_wrong_with_a_file_is_said_before_the_run(file: Any, said: str) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        from_mig_parted(file, "mine")
    assert str(caught.value).startswith(f"Cannot take mine from a mig-parted file: {said}")


# --- the same written by hand -----------------------------------------------------------------------------------------


def parts_of(raw: Any) -> List[int]:
    """How many compute instances each GPU instance has that this element declares on an H100."""
    parsed = parse([{"match": {}, "instances": [raw]}])[0]
    wanted = resolve(parsed, geometries()["h100-80"], model="H100", device_id=0x2330, gpu="gpu0")
    assert wanted is not None
    return [len(one.compute) for one in wanted]


def test_more_compute_instances_by_name_than_there_can_be_gpu_instances_share_them() -> None:
    assert parts_of({"profile": "1c.3g.40gb", "count": 3}) == [3]
    assert parts_of({"profile": "1c.3g.40gb", "count": 5}) == [3, 2]
    assert parts_of("1c.3g.40gb") == [1]
    assert parts_of({"profile": "2c.3g.40gb", "count": 2}) == [1, 1]
    assert parts_of({"profile": "3g.40gb", "count": 2, "compute_instances": ["1c"]}) == [1, 1]


def test_what_could_mean_either_says_how_to_write_both() -> None:
    with pytest.raises(DeclarationError) as caught:
        parts_of({"profile": "1c.3g.40gb", "count": 2})
    assert str(caught.value) == (
        "Cannot create gpus[0].instances[0] on gpu0: 2 x 1c.3g.40gb can be 2 GPU instances with one 1c each, or compute"
        " instances that share a 3g.40gb, as in mig-parted. List 1c.3g.40gb once for each of the former, or"
        " {profile: 3g.40gb, compute_instances: [1c, 1c]}."
    )
