# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two concerns that declare the same knob."""

from __future__ import annotations

from ansible_collections.gpufleet.node.plugins.module_utils._core.knobs import contested
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY

OWNED = {"hugepages": ("sysctl vm.nr_hugepages*", "kernel argument hugepages"), "sysctls": (), "more_sysctls": ()}


def test_what_another_concern_owns_is_refused_with_its_name() -> None:
    found = contested(OWNED, {"sysctls": ("sysctl vm.swappiness", "sysctl vm.nr_hugepages_mempolicy")})
    assert {name: str(error) for name, error in found.items()} == {
        "sysctls": (
            "Cannot declare sysctl vm.nr_hugepages_mempolicy: hugepages is declared too, and sets it. "
            "Leave it to hugepages, or remove the declaration of hugepages."
        )
    }


def test_of_two_that_own_nothing_the_first_keeps_it() -> None:
    found = contested(OWNED, {"sysctls": ("sysctl vm.swappiness",), "more_sysctls": ("sysctl vm.swappiness",)})
    assert list(found) == ["more_sysctls"]
    assert "sysctls is declared too" in str(found["more_sysctls"])


def test_what_nobody_else_declares_and_what_is_ones_own_is_allowed() -> None:
    assert contested(OWNED, {"sysctls": ("sysctl vm.swappiness", "kernel argument hugepagesize")}) == {}
    assert contested({"hugepages": OWNED["hugepages"]}, {"hugepages": ("kernel argument hugepages",)}) == {}


def test_every_owner_names_knobs_by_their_kind() -> None:
    kinds = ("sysctl ", "kernel argument ", "unit ")
    assert [knob for entry in REGISTRY for knob in entry.registration.owns if not knob.startswith(kinds)] == []


def test_a_pattern_has_no_sign_but_the_star() -> None:
    owned = [knob for entry in REGISTRY for knob in entry.registration.owns]
    assert [knob for knob in owned if "*" in knob]
    assert [knob for knob in owned if set(knob) & set("?[]")] == []


def test_a_star_in_the_middle_covers_what_begins_and_ends_as_the_pattern() -> None:
    owned = {"mps": ("unit gpufleet-mps*.service",), "units": ()}
    assert list(contested(owned, {"units": ("unit gpufleet-mps@0.service",)})) == ["units"]
    assert contested(owned, {"units": ("unit gpufleet-mps@0.socket",)}) == {}
