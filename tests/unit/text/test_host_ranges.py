# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of hosts as ranges: what ClusterShell's nodeset would write, and nothing but what was given."""

from __future__ import annotations

import itertools
import random
import re
from typing import Iterator, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._text.host_ranges import expand, fold, folded


def expanded(term: str) -> Iterator[str]:
    """The hosts of a term, as ``nodeset -e`` has them."""
    parts = re.split(r"\[([^\]]*)\]", term)
    choices = [[part] if number % 2 == 0 else list(numbers(part)) for number, part in enumerate(parts)]
    return ("".join(chosen) for chosen in itertools.product(*choices))


def numbers(ranges: str) -> Iterator[str]:
    for span in ranges.split(","):
        first, _dash, last = span.partition("-")
        fill = len(first) if first.startswith("0") else 0
        yield from (str(value).zfill(fill) for value in range(int(first), int(last or first) + 1))


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([], ""),
        (["login"], "login"),
        (["h1"], "h1"),
        ([f"h{number:03}" for number in range(1, 21)], "h[001-020]"),
        (["gpu07-ib", "gpu01-ib", "gpu03-ib", "gpu02-ib"], "gpu[01-03,07]-ib"),
        ([f"h{number}" for number in range(8, 13)], "h[8-12]"),
        ([f"h{number:02}" for number in range(98, 103)], "h[98-102]"),
        ([f"h{number:02}" for number in (8, 9, 10, 99, 100)], "h[08-10,99-100]"),
        (["h1", "h01"], "h1,h01"),
        (["h1", "h01", "h2", "h02", "h002"], "h[1-2],h[01-02],h002"),
        (["h0", "h1", "h00"], "h[0-1],h00"),
        ([f"r{rack}n{node:02}" for rack in (1, 2, 3) for node in range(1, 37)], "r[1-3]n[01-36]"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        ([f"10.0.0.{number}" for number in (1, 2, 3)], "10.0.0.[1-3]"),
        (["h3.dc2.example", "h4.dc2.example", "h4.dc1.example"], "h3.dc2.example,h4.dc[1-2].example"),
        (["login", "h2", "h1", "h1", "admin"], "admin,h[1-2],login"),
        (["1", "2", "03"], "[1-2],03"),
    ],
)
def test_hosts_fold_as_nodeset_folds_them(hosts: List[str], text: str) -> None:
    assert folded(hosts) == text


def test_the_terms_do_not_depend_on_the_order_of_the_hosts() -> None:
    hosts = [f"r{rack}n{node:02}" for rack in (1, 2, 10) for node in (1, 2, 7)] + ["h1", "h01", "login"]
    for seed in range(20):
        shuffled = random.Random(seed).sample(hosts, len(hosts))
        assert fold(shuffled) == fold(hosts)


@pytest.mark.parametrize("seed", range(200))
def test_the_terms_name_each_host_once_and_no_other(seed: int) -> None:
    chance = random.Random(seed)
    hosts = {
        "".join(
            chance.choice(["h", "n", "", "-"]) + str(chance.randrange(13)).zfill(chance.choice([0, 0, 2, 3]))
            for _part in range(chance.choice([1, 2, 2, 3]))
        )
        for _host in range(chance.choice([3, 30, 200]))
    }
    named = [host for term in fold(hosts) for host in expanded(term)]
    assert sorted(named) == sorted(hosts)


def test_many_hosts_that_do_not_fold_are_cut_and_counted() -> None:
    hosts = [f"{name}{number}" for number in range(0, 200, 2) for name in ("login", "h")]
    text = folded(hosts, widest=40)
    shown, _and, more = text.partition(" and ")
    assert len(shown) <= 40
    assert len(list(expanded(shown))) + int(more.split()[0]) == len(hosts)
    assert more.endswith(" more")


def test_hosts_that_fit_are_not_cut() -> None:
    assert folded([f"h{number:03}" for number in range(1, 201)], widest=20) == "h[001-200]"
    assert folded(["a-name-that-is-longer-than-that"], widest=10) == "a-name-that-is-longer-than-that"


@pytest.mark.parametrize(
    ("names", "hosts"),
    [
        ("h1", ["h1"]),
        ("h[9-11],login1", ["h9", "h10", "h11", "login1"]),
        ("h[001-003,7]", ["h001", "h002", "h003", "h7"]),
        ("r[1-2]n[01-02]-ib", ["r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib"]),
    ],
)
def test_a_list_has_the_hosts_that_slurm_reads_from_it(names: str, hosts: List[str]) -> None:
    assert list(expand(names)) == hosts


@pytest.mark.parametrize(
    ("names", "cause"),
    [
        ("", "a name is missing"),
        ("h1,", "a name is missing"),
        ("h1,,h2", "a name is missing"),
        ("h[1-", "a bracket in it does not end"),
        ("h1]", "a name has letters"),
        ("h 1", "a name has letters"),
        ("h1\nh2", "a name has letters"),
        ("h[]", r"\[\] is not a range"),
        ("h[a-c]", r"\[a-c\] is not a range"),
        ("h[7-3]", "counts down"),
        ("h[0-99999999999]", "more than 65536 names"),
        ("a[1-999]b[1-999]", "more than 65536 names"),
    ],
)
def test_what_is_no_list_of_hosts_is_refused_with_the_reason(names: str, cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        expand(names)
