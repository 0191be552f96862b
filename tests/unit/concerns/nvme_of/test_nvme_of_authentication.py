# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DH-HMAC-CHAP: whose secrets are refused, where they never stand, and what a connection was made with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, Refused
from ansible_collections.gpufleet.node.tests.unit.concerns.nvme_of.nvme_of_machine import DATA, UNIT, Machine, entry

HOST_KEY, TARGET_KEY = "/etc/nvme/host.key", "/etc/nvme/target.key"
SECRET = "DHHC-1:00:PLBcOunQvLE8raWNJ28f6XsJziMBWjUDiclVeGaH98oUB/7A:"
OTHER = "DHHC-1:00:UcSqBq6p0QBWFbJoHhkRY0+EVg1bFsELfp+7XlVzSii09Faa:"
PLAIN: Mapping[str, Any] = {"nqn": DATA, "paths": [{"address": "10.10.0.5"}]}
ONE: Mapping[str, Any] = {**PLAIN, "dhchap_key_file": HOST_KEY}
BOTH: Mapping[str, Any] = {**ONE, "dhchap_ctrl_key_file": TARGET_KEY}
NAME = f"{DATA} over tcp 10.10.0.5:4420"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the files of secrets are those of root")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path, {HOST_KEY: f"{SECRET}\n", TARGET_KEY: f"{OTHER}\n"}, program=True)
    for path in (HOST_KEY, TARGET_KEY):
        (machine.root / path[1:]).chmod(0o600)
    machine.keys = {"10.10.0.5": SECRET}
    return machine


def refusal(machine: Machine, declared: Mapping[str, Any]) -> str:
    machine.host.files.log.clear()
    with pytest.raises(DeclarationError) as caught:
        machine.run(declared)
    assert machine.host.files.log == []
    return str(caught.value)


def texts(machine: Machine) -> str:
    """All that a run left in files, but the secrets themselves."""
    found = []
    for folder in ("etc", "var", "run"):
        for path in (machine.root / folder).rglob("*"):
            if path.is_file() and path.suffix != ".key":
                found.append(path.read_text())
    return "\n".join(found)


def test_a_connection_is_made_with_the_secrets_and_they_stand_nowhere_else(machine: Machine) -> None:
    outcome = machine.run(BOTH)
    assert machine.connected == ["10.10.0.5"]
    assert (machine.root / "sys/class/nvme/nvme1/dhchap_ctrl_secret").read_text() == f"{OTHER}\n"
    assert ("authentication", "of both sides") in [(change.setting, change.after) for change in outcome.changes]
    assert not machine.run(BOTH).changes
    told = [*machine.host.commands.calls, outcome.as_dict(), machine.host.journal_lines, texts(machine)]
    assert SECRET not in repr(told)
    assert OTHER not in repr(told)
    unit = machine.host.files.read(UNIT)
    at_boot = f",dhchap_secret=$$(cat {HOST_KEY}),dhchap_ctrl_secret=$$(cat {TARGET_KEY})\" >/dev/nvme-fabrics'\n"
    assert at_boot in unit
    machine.run(state="absent")
    assert machine.connected == []


def test_a_target_that_gets_none_refuses(machine: Machine) -> None:
    with pytest.raises(Refused, match="the kernel returned Connection refused"):
        machine.run(PLAIN)


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (lambda path: path.unlink(), "the file with the secret is not there"),
        (lambda path: path.chmod(0o640), "others than root may read or replace the secret in it"),
        (lambda path: os.chown(path, 1, 0), "others than root may read or replace the secret in it"),
        (lambda path: path.write_text(f"{SECRET},hostid=1\n"), "it does not hold a secret of the form DHHC-1:"),
        (lambda path: path.write_text(""), "it does not hold a secret of the form DHHC-1:"),
    ],
    ids=["missing", "readable", "owner", "more", "empty"],
)
def test_a_file_that_holds_no_secret_or_shows_it_to_others_is_refused(machine: Machine, spoil: Any, cause: str) -> None:
    spoil(machine.root / HOST_KEY[1:])
    said = refusal(machine, ONE)
    assert f"Cannot authenticate by {HOST_KEY}: {cause}" in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("declared", "cause"),
    [
        ({**ONE, "dhchap_key_file": "host.key"}, "it is not a plain absolute path"),
        ({**ONE, "dhchap_key_file": "/etc/$(reboot)"}, "it is not a plain absolute path"),
        ({**PLAIN, "dhchap_ctrl_key_file": TARGET_KEY}, "the target proves who it is only to a host that does so too"),
    ],
)
def test_what_no_machine_could_have_is_refused(machine: Machine, declared: Mapping[str, Any], cause: str) -> None:
    assert cause in refusal(machine, declared)


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        ("# CONFIG_NVME_AUTH is not set\n", True),
        ("CONFIG_NVME_AUTH=y\n", False),
        ("CONFIG_NVME_AUTH=y\n# CONFIG_NVME_HOST_AUTH is not set\nCONFIG_NVME_TARGET_AUTH=y\n", True),
        ("CONFIG_NVME_AUTH=y\nCONFIG_NVME_HOST_AUTH=y\n", False),
        ("", False),
    ],
    ids=["6.1", "6.6", "6.12-target", "6.12", "unknown"],
)
def test_a_kernel_that_would_connect_without_is_refused(machine: Machine, config: str, refused: bool) -> None:
    (machine.root / "boot").mkdir()
    (machine.root / "boot/config-6.12.0").write_text(config)
    if refused:
        assert "this kernel does not authenticate connections of NVMe over Fabrics" in refusal(machine, ONE)
        assert machine.connected == []
    else:
        machine.run(ONE)
        assert machine.connected == ["10.10.0.5"]


def test_a_connection_tells_that_its_kernel_does_without(machine: Machine) -> None:
    machine.authenticates = False
    machine.connect({"nqn": DATA, "transport": "tcp", "traddr": "10.12.0.5", "trsvcid": "4420"})
    assert "this kernel does not authenticate" in refusal(machine, ONE)


def test_one_that_was_made_with_other_secrets_or_none_is_pending(machine: Machine) -> None:
    machine.connect({"nqn": DATA, "transport": "tcp", "traddr": "10.10.0.5", "trsvcid": "4420"})
    for found in ("none", "with another secret"):
        outcome = machine.run(ONE)
        assert (outcome.status, outcome.remaining.needs) == (
            "drifted" if found == "none" else "pending",
            ("reconnect",),
        )
        reason = f"{NAME} authentication is {found}, wanted of this host: it keeps the secrets"
        assert outcome.as_dict()["pending_reasons"][0].startswith(reason)
        (machine.root / "sys/class/nvme/nvme1/dhchap_secret").write_text(f"{OTHER}\n")
    # What others have made with more is theirs.
    machine.host.files.store("/sys/class/nvme/nvme1/dhchap_secret", SECRET)
    assert machine.run(ONE).remaining.status == "in_sync"


def test_what_is_discovered_is_authenticated_as_its_discovery_controller(machine: Machine) -> None:
    machine.keys["10.10.0.9"] = SECRET
    machine.tells = {"10.10.0.9": [entry(nqn=DATA)]}
    declared = [{"address": "10.10.0.9", "dhchap_key_file": HOST_KEY}]
    machine.run(discovery=declared)
    assert machine.connected == ["10.10.0.5", "10.10.0.9"]
    assert not machine.run(discovery=declared).changes
