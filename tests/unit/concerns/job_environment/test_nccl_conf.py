# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""/etc/nccl.conf and /etc/environment by the rules of those who read them."""

from __future__ import annotations

from typing import Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux import pam_env
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.job_environment import nccl_conf


# Each as ``setEnvFile`` of NCCL 2.30.7 splits it.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("NCCL_DEBUG=WARN\n", [("NCCL_DEBUG", "WARN")], id="a line"),
        pytest.param("NCCL_DEBUG=WARN", [("NCCL_DEBUG", "WARN")], id="one that does not end"),
        pytest.param("#NCCL_DEBUG=WARN\n", [], id="a comment"),
        pytest.param(" #NCCL_DEBUG=WARN\n", [(" #NCCL_DEBUG", "WARN")], id="no comment behind a blank"),
        pytest.param("NCCL_DEBUG = WARN\n", [("NCCL_DEBUG ", " WARN")], id="blanks around the equals sign"),
        pytest.param(" NCCL_DEBUG=WARN\n", [(" NCCL_DEBUG", "WARN")], id="a blank in front"),
        pytest.param("NCCL_DEBUG=WARN \n", [("NCCL_DEBUG", "WARN ")], id="a blank behind"),
        pytest.param("NCCL_DEBUG=WARN # note\n", [("NCCL_DEBUG", "WARN # note")], id="a note"),
        pytest.param('NCCL_DEBUG="WARN"\n', [("NCCL_DEBUG", '"WARN"')], id="quotes"),
        pytest.param("NCCL_DEBUG=WARN\r\n", [("NCCL_DEBUG", "WARN\r")], id="a carriage return"),
        pytest.param("NCCL_SOCKET_IFNAME==eth0\n", [("NCCL_SOCKET_IFNAME", "=eth0")], id="a second equals sign"),
        pytest.param("NCCL_DEBUG\n\n", [], id="no equals sign"),
        pytest.param("NCCL_DEBUG=\n", [("NCCL_DEBUG", "")], id="no value"),
        pytest.param("=WARN\n", [], id="no name"),
        pytest.param("export NCCL_DEBUG=WARN\n", [("export NCCL_DEBUG", "WARN")], id="as a shell has it"),
        pytest.param("UCX_TLS=rc\n", [("UCX_TLS", "rc")], id="any name"),
        pytest.param("A=1\0B=2\n", [("A", "1")], id="a NUL ends the line"),
        pytest.param(f"A={'x' * 2000}\n", [("A", "x" * 1023)], id="a long value"),
        pytest.param(f"{'A' * 2000}=1\n", [("A" * 1023, "1")], id="a long name"),
        pytest.param(
            f"A={'ä' * 1000}\n", [("A", ("ä" * 512).encode()[:1023].decode("utf-8", "surrogateescape"))], id="bytes"
        ),
        pytest.param("A=1\nA=2\n", [("A", "1"), ("A", "2")], id="twice"),
    ],
)
def test_nccl_takes_a_line_as_it_is(text: str, expected: List[Tuple[str, str]]) -> None:
    assert [(name, value) for _number, name, value in nccl_conf.parse(text)] == expected


# What su(1) gave to a session with this /etc/environment is tried in molecule/default, by the same lines.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\n", {"A": "1"}),
        ("export A=1\n", {"A": "1"}),
        ("  A=1\n", {"A": "1"}),
        ("A=1 2\n", {"A": "1 2"}),
        ("A=1 # note\n", {"A": "1"}),
        ("A=a#b\n", {"A": "a"}),
        ('A="a b"\n', {"A": "a b"}),
        ("A='a#b'\n", {"A": "a"}),
        ('A=a"b"\n', {"A": 'a"b"'}),
        ("A=1\\\n2\n", {"A": "12"}),
        ("A-B=1\n", {}),
        ("#A=1\n", {}),
        ("A=1\nA=2\n", {"A": "2"}),
        ("A=$HOME\n", {"A": "$HOME"}),
        ("A=1", {"A": "1"}),
    ],
)
def test_pam_env_ends_a_value_at_a_hash_and_takes_the_last_line(text: str, expected: Dict[str, str]) -> None:
    assert {name: value for _number, name, value in pam_env.parse(text)} == expected


def test_pam_env_conf_has_a_grammar_of_its_own() -> None:
    text = (
        'A DEFAULT=1 OVERRIDE=2\nB\tDEFAULT="x y" OVERRIDE=${PAM_X}\n# C DEFAULT=3\nD DEFAULT= OVERRIDE=\nE DEFAULT=5\n'
    )
    assert [(name, value) for _number, name, value in pam_env.parse_conf(text)] == [
        ("A", "2"),
        ("B", "${PAM_X}"),
        ("E", "5"),
    ]
