# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules of udev as they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux import udev_rules
from ansible_collections.gpufleet.node.tests.unit.support import build

ETC, RUN, LOCAL, LIB = "/etc/udev/rules.d", "/run/udev/rules.d", "/usr/local/lib/udev/rules.d", "/usr/lib/udev/rules.d"
# UDEV_LINE_SIZE of systemd; UTIL_LINE_SIZE before 240 counts the end of the line and a NUL too.
LINE_BYTES = 16384


def rules_of(text: str) -> List[Tuple[int, List[Tuple[str, str, str, str]]]]:
    return [
        (rule.number, [(token.key, token.attribute, token.operator, token.value) for token in rule.tokens])
        for rule in udev_rules.parse("a.rules", text).rules
    ]


# Rules


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('KERNEL=="nvme*"', [("KERNEL", "", "==", "nvme*")]),
        (
            '  ACTION!="remove", ATTR{queue/scheduler} = "none" , GOTO="end",',
            [("ACTION", "", "!=", "remove"), ("ATTR", "queue/scheduler", "=", "none"), ("GOTO", "", "=", "end")],
        ),
        # The commas are for the reader alone.
        ('KERNEL=="a" SUBSYSTEM=="b"', [("KERNEL", "", "==", "a"), ("SUBSYSTEM", "", "==", "b")]),
        ('KERNEL=="a",,SUBSYSTEM=="b"', [("KERNEL", "", "==", "a"), ("SUBSYSTEM", "", "==", "b")]),
        (
            'ENV{A}+="1", TAG-="x", OWNER:="root"',
            [("ENV", "A", "+=", "1"), ("TAG", "", "-=", "x"), ("OWNER", "", ":=", "root")],
        ),
        ('RUN{program}+="/bin/a \'b, c\' \\"d\\""', [("RUN", "program", "+=", "/bin/a 'b, c' \"d\"")]),
        # A plain text keeps its other backslashes, an escaped one has none.
        (r'ENV{A}="a\tb\c"', [("ENV", "A", "=", r"a\tb\c")]),
        (r'ENV{A}=e"a\tb\x41\\"', [("ENV", "A", "=", "a\tbA\\")]),
        ('KERNEL==""', [("KERNEL", "", "==", "")]),
    ],
)
def test_a_rule_is_a_list_of_keys_operators_and_values(text: str, expected: Any) -> None:
    assert rules_of(text) == [(1, expected)]


@pytest.mark.parametrize(("prefix", "ignored"), [("", False), ("e", False), ("i", True), ("ei", True), ("ie", True)])
def test_a_value_says_before_its_quote_how_it_is_compared(prefix: str, ignored: bool) -> None:
    (rule,) = udev_rules.parse("a.rules", f'KERNEL=={prefix}"a"').rules
    assert [(token.value, token.ignore_case, token.is_condition) for token in rule.tokens] == [("a", ignored, True)]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ('KERNEL=="a", ATTR{b}=c', 1),
        ('KERNEL=="a" # why', 1),
        ('KERNEL=="a", ATTR{b="c"', 1),
        ('KERNEL=="a", ATTR{b}="c', 1),
        (r'KERNEL=="a", ATTR{b}="c\"', 1),
        (r'KERNEL=="a", ATTR{b}=e"\q"', 1),
        ("KERNEL=='a', ATTR{b}=\"c\"", 0),
        ('kernel=="a"', 0),
        ('KERNEL=="a", ATTR{b}=ee"c"', 1),
        ("rubbish", 0),
    ],
)
def test_what_udev_cannot_read_ends_a_rule_and_is_told(text: str, tokens: int) -> None:
    (rule,) = udev_rules.parse("a.rules", text).rules
    assert (len(rule.tokens), rule.malformed) == (tokens, True)


def test_a_value_that_never_ends_takes_no_time() -> None:
    (rule,) = udev_rules.parse("a.rules", 'RUN="' + '\\"a\\b' * 3000).rules
    assert (rule.tokens, rule.malformed) == ((), True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('# A="1"\n\n  # B="1"\nC="1"\n', [(4, "C")], id="comments"),
        pytest.param('A="1", \\\n  B="2"\nC="3"\n', [(1, "AB"), (3, "C")], id="a line that goes on"),
        pytest.param('A="1", \\\n# B="2"\nC="3"\n', [(1, "AC")], id="a comment within"),
        pytest.param('# A="1", \\\nB="2"\n', [(2, "B")], id="a comment does not go on"),
        pytest.param('A="1", \\ \nB="2"\n', [(1, "A"), (2, "B")], id="the backslash is the last sign"),
        pytest.param('A="1"\nB="2", \\\n', [(1, "A")], id="one that goes on behind the end is not there"),
        pytest.param('A="1"\r\nB="2"\x0c\u2028', [(1, "A"), (2, "B")], id="other ends of lines are none"),
    ],
)
def test_lines_become_rules(text: str, expected: List[Tuple[int, str]]) -> None:
    assert [(number, "".join(token[0] for token in tokens)) for number, tokens in rules_of(text)] == expected


def test_blanks_before_a_line_that_goes_on_are_no_part_of_a_value() -> None:
    assert rules_of('RUN="a \\\n   b"\n') == [(1, [("RUN", "", "=", "a b")])]


def test_a_line_that_is_too_long_is_left_out_and_told() -> None:
    rule = 'KERNEL=="{}"'
    fitting = rule.format("x" * (LINE_BYTES - 3 - len(rule) + 2))
    found = udev_rules.parse("a.rules", f'{fitting}\nA="1"\n')
    assert (len(fitting), len(found.rules), found.overlong) == (LINE_BYTES - 3, 2, False)
    found = udev_rules.parse("a.rules", f'A="1"\n{fitting}x\nB="1"\n')
    assert ([one.number for one in found.rules], found.overlong) == ([1, 3], True)
    # In bytes, not in characters.
    found = udev_rules.parse("a.rules", rule.format("é" * (LINE_BYTES // 2)))
    assert (found.rules, found.overlong) == ((), True)


def test_lines_that_are_too_long_only_together_are_left_out_and_the_file_is_read() -> None:
    half = "x" * (LINE_BYTES // 2)
    found = udev_rules.parse("a.rules", f'KERNEL=="{half}\\\n{half}"\nA="1"\n')
    assert ([one.number for one in found.rules], found.overlong) == ([3], False)


# Files


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            {f"{ETC}/60-a.rules": "a", f"{LIB}/50-b.rules": "b"},
            {f"{LIB}/50-b.rules": "b", f"{ETC}/60-a.rules": "a"},
            id="by name, whatever the folder",
        ),
        pytest.param(
            {f"{place}/60-a.rules": place for place in (LIB, LOCAL, RUN)},
            {f"{RUN}/60-a.rules": RUN},
            id="of equal names the stronger folder",
        ),
        pytest.param({f"{ETC}/60-a.rules": "", f"{LIB}/60-a.rules": "a"}, {}, id="an empty file masks"),
        pytest.param({f"{ETC}/60-a.conf": "a", f"{ETC}/.60-a.rules": "a"}, {}, id="other names are no rules"),
    ],
)
def test_files_are_read_as_udev_does(tmp_path: Path, files: Dict[str, str], expected: Dict[str, str]) -> None:
    host = build(tmp_path, files)
    assert list(udev_rules.read_texts(host.files).items()) == list(expected.items())


def test_a_link_to_dev_null_masks_a_file(tmp_path: Path) -> None:
    files = {f"{LIB}/60-a.rules": "a", f"{LIB}/61-b.rules": "b"}
    host = build(tmp_path, files, {f"{ETC}/60-a.rules": "/dev/null"})
    assert list(udev_rules.walk(host.files)) == [f"{LIB}/61-b.rules"]
