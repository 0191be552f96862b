# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Declarations are converted and refused as Ansible does it."""

from __future__ import annotations

import json
import random
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.arguments import TYPES, validated
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.plugin_utils.role_defaults import ROLE_DEFAULTS

SPECIFICATIONS: Mapping[str, Mapping[str, Any]] = {
    entry.name: {**SHARED_OPTIONS, **entry.concern.options} for entry in REGISTRY
}
# What the argument specifications of ours may have, and `description` and the like, which is documentation.
USED = {"type", "default", "choices", "elements", "options", "required"}
DECLARATIONS = 3900
# In the place of messages, where Ansible itself breaks down.
BROKEN = ["broken"]

# What people write in the place of something else, and what others would.
ODD: Tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        2,
        -1,
        64.0,
        0.5,
        1e3,
        "",
        " ",
        "64",
        " 64 ",
        "6_4",
        "-3",
        "+3",
        "1e3",
        "1.0",
        "1.5",
        "0x40",
    ),
    *(
        "nan",
        "Infinity",
        "true",
        "False",
        "YES",
        "no ",
        "off",
        "t",
        "perhaps",
        "a,b",
        "a, b",
        "a",
        "~",
        "$HOME",
        "\u0663",
    ),
    *("a=b", "a=b c=d", "a='b c', d=e", "a=b, c", "a\\=b=c", "=", '{"a": 1}', "{'a': 1}", "{", "{1}", "[]", "{}"),
    *([], [1], ["1", 2.5], [None], [[]], [{}], {}, {"a": 1}, {"size": "2M"}),
)


def options_in(options: Mapping[str, Any]) -> Iterator[Tuple[str, Mapping[str, Any]]]:
    for name, option in options.items():
        yield name, option
        yield from options_in(option.get("options") or {})


def test_our_specifications_have_nothing_that_is_not_read() -> None:
    for options in SPECIFICATIONS.values():
        for name, option in options_in(options):
            assert set(option) <= USED, name
            assert {option.get("type", "str"), option.get("elements", "str")} <= set(TYPES), name


class Writer:
    """Writes declarations, most of which somebody could have meant."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def declaration(self, options: Mapping[str, Any]) -> Dict[str, Any]:
        chosen = self._random
        found: Dict[str, Any] = {}
        for name, option in options.items():
            if option.get("required") or chosen.random() < 0.5:
                found[name] = self._value(option)
        if chosen.random() < 0.03:
            found.pop(next(iter(found), ""), None)
        if chosen.random() < 0.03:
            found[chosen.choice(["stat", "zzz", "size", "Match"])] = chosen.choice(ODD)
        return found

    def _value(self, option: Mapping[str, Any]) -> Any:
        chosen = self._random
        if chosen.random() < 0.08:
            return chosen.choice(ODD)
        kind = option.get("type", "str")
        if "options" in option:
            many = [self.declaration(option["options"]) for _number in range(chosen.randrange(3))]
            one = self.declaration(option["options"])
            right = many if kind == "list" else one
            return chosen.choice([right, right, right, one, json.dumps(one)])
        if "choices" in option:
            choice = chosen.choice(option["choices"])
            return choice if kind != "list" else [choice]
        return chosen.choice(
            {
                "str": ["a", "gpu*", 7, 2.5, True, False],
                "path": ["/srv", "~/x", "$HOME/x", "~nobody/x"],
                "bool": [True, False, "yes", "off", 1, 0, "1"],
                "int": [0, 64, "64", 64.0, "1e3"],
                "list": [[], ["a"], "a,b", [1, "b"], 3],
                "dict": [{}, {"a": 1}, "a=b", '{"a": [1]}'],
                "raw": ODD,
            }[kind]
        )


def theirs(options: Mapping[str, Any], declaration: Mapping[str, Any]) -> Tuple[Any, List[str]]:
    # It changes what it is given.
    try:
        result = ArgumentSpecValidator(dict(options)).validate(json.loads(json.dumps(declaration)))
    except (TypeError, OverflowError):
        return None, BROKEN
    return result.validated_parameters, result.error_messages


def ours(options: Mapping[str, Any], declaration: Mapping[str, Any]) -> Tuple[Any, List[str]]:
    try:
        return validated(options, declaration), []
    except DeclarationError as error:
        return None, error.cause.split("; ")


def comparable(message: str) -> str:
    """Without the lists that are in another order in each process, or of any one of several places."""
    for end in (" Valid booleans include", ". Supported parameters include"):
        message = message.partition(end)[0]
    return message.replace("unsupported option ", "").rstrip(".")


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_what_ansible_accepts_has_the_same_values_and_what_it_refuses_is_refused_for_its_reasons(name: str) -> None:
    options = SPECIFICATIONS[name]
    accepted = refused = 0
    for seed in range(DECLARATIONS // len(SPECIFICATIONS)):
        declaration = Writer(seed).declaration(options)
        before = json.dumps(declaration)
        wanted, messages = theirs(options, declaration)
        found, causes = ours(options, declaration)
        assert json.dumps(declaration) == before
        if causes:
            refused += 1
            told = {comparable(message) for message in messages}
            assert messages == BROKEN or {comparable(cause) for cause in causes} <= told, declaration
        else:
            accepted += 1
            assert messages == [], declaration
            assert json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True), declaration
    assert accepted >= 20
    assert refused >= 20


@pytest.mark.parametrize(
    ("name", "declaration", "cause"),
    [
        (
            "hugepages",
            {"transparent": {"enabled": None}},
            "value of enabled must be one of: always, madvise, never, got: None found in transparent",
        ),
        ("hugepages", {"transparent": None}, ""),
    ],
)
def test_null_is_no_choice_and_may_stand_for_what_has_none(name: str, declaration: Any, cause: str) -> None:
    wanted, messages = theirs(SPECIFICATIONS[name], declaration)
    found, causes = ours(SPECIFICATIONS[name], declaration)
    assert messages == causes == [cause] * bool(cause)
    assert cause or found == wanted


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_what_a_role_declares_by_its_defaults_is_accepted(name: str) -> None:
    declared = {variable[len(name) + 1 :]: value for variable, value in ROLE_DEFAULTS[name].items()}
    required = {option: "0" for option, spec in SPECIFICATIONS[name].items() if spec.get("required")}
    wanted, messages = theirs(SPECIFICATIONS[name], {**declared, **required})
    assert messages == []
    assert ours(SPECIFICATIONS[name], {**declared, **required}) == (wanted, [])


@pytest.mark.parametrize("start", ['{"a":', "{'a':", "{["])
def test_what_is_nested_too_deep_is_refused_by_itself(start: str) -> None:
    cause = (
        "argument 'one' is of type str and we were unable to convert to dict: unable to evaluate string as dictionary"
    )
    assert ours({"one": {"type": "dict"}}, {"one": start * 100_000}) == (None, [cause])


OPTIONS: Mapping[str, Any] = {
    "names": {"type": "list", "elements": "str", "default": []},
    "file": {"type": "path"},
    "parts": {
        "type": "list",
        "elements": "dict",
        "options": {"size": {"type": "int", "required": True}, "on": {"type": "bool", "default": True}},
    },
}


def test_defaults_are_filled_at_every_depth_and_are_never_shared() -> None:
    first = validated(OPTIONS, {"parts": [{"size": "2"}]})
    assert first == {"names": [], "file": None, "parts": [{"size": 2, "on": True}]}
    first["names"].append("x")
    assert validated(OPTIONS, {})["names"] == []


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        (
            {"naems": 1},
            "Cannot read it: unsupported option naems. Supported parameters include: file, names, parts. Did you mean "
            "names?",
        ),
        (
            {"parts": [{"size": 1, "no": 1}], "zzz": 1},
            "Cannot read it: unsupported option parts.no, zzz. Supported parameters include: file, names, parts.",
        ),
        ({"parts": [{}]}, "Cannot read it: missing required arguments: size found in parts."),
        ([], "Cannot read it: it must be a dictionary of options, not []."),
        (
            {"parts": 1, "names": {}},
            "Cannot read it: argument 'names' is of type dict and we were unable to convert to list: <class 'dict'> "
            "cannot be converted to a list; Elements value for option 'parts' is of type str and we were unable to "
            "convert to dict: dictionary requested, could not parse JSON or key=value.",
        ),
    ],
)
def test_all_that_is_wrong_is_said_at_once(declaration: Any, message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        validated(OPTIONS, declaration, goal="read it")
    assert str(caught.value) == message


def test_the_path_of_a_stored_declaration_is_the_one_that_was_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/root")
    monkeypatch.setenv("DISK", "/srv")
    given = {"file": "~/$DISK"}
    assert validated(OPTIONS, given)["file"] == "/root//srv"
    assert validated(OPTIONS, given, stored=True)["file"] == "~/$DISK"


def test_a_number_that_would_take_minutes_to_write_down_is_refused() -> None:
    for number in ("1e999999999", "9" * 5000, "Infinity", "nan"):
        with pytest.raises(DeclarationError):
            validated(OPTIONS, {"parts": [{"size": number}]})
