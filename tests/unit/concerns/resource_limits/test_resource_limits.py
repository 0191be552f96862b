# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limits of sessions: which line counts for whom, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping, Optional

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, OwnedByAnother
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.resource_limits.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

CONF = "/etc/security/limits.conf"
OURS = "/etc/security/limits.d/99-gpufleet-resource_limits.conf"


def machine(root: Path, files: Optional[Mapping[str, str]] = None) -> FakeHost:
    return build(root, {CONF: "", "/proc/sys/fs/nr_open": "1048576\n", "/var/lib/dpkg/status": "", **(files or {})})


def run(host: FakeHost, sessions: Optional[Dict[str, str]] = None, *, check: bool = False, **more: Any) -> Outcome:
    validator = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options})
    validated = validator.validate({"sessions": sessions, **more})
    assert validated.error_messages == []
    return converge(CONCERN, validated.validated_parameters, host, check_mode=check)


def limits(host: FakeHost, *items: str) -> Dict[str, Optional[str]]:
    """What a session of a user that no line names gets."""
    found = run(host, {item: "1K" if item == "memlock" else "1" for item in items}, check=True).effective["limits"]
    return dict(found["*"])


def test_a_limit_is_set_for_all_users_and_for_root_whom_the_asterisk_does_not_mean(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host, {"memlock": "8G:unlimited", "nproc": "4096"})
    assert outcome.error is None
    assert host.files.read(OURS).splitlines()[1:] == [
        "* soft memlock 8388608",
        "* hard memlock unlimited",
        "root soft memlock 8388608",
        "root hard memlock unlimited",
        "* soft nproc 4096",
        "* hard nproc 4096",
        "root soft nproc 4096",
        "root hard nproc 4096",
    ]
    again = run(host, {"memlock": "8G:unlimited", "nproc": "4096"})
    assert (again.status, again.changes) == ("in_sync", ())


# What su(1) of Debian 12 gave to a session with these files, Linux-PAM 1.5.2.
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({CONF: "* - nofile 700\n"}, {"soft nofile": "700", "hard nofile": "700"}, id="both"),
        pytest.param(
            {"50-a.conf": "* - nofile 700\n", "60-b.conf": "* HARD NOFILE 650 # less\n"},
            # The soft one is cut to that when it is set.
            {"soft nofile": "700", "hard nofile": "650"},
            id="the last file",
        ),
        pytest.param(
            {"0.conf": "* - nofile 512\n", CONF: "* - nofile 700\n"},
            {"soft nofile": "512", "hard nofile": "512"},
            id="limits.conf first",
        ),
        pytest.param({"10.conf": "* - nofile 077\n"}, {"soft nofile": "77", "hard nofile": "77"}, id="decimal"),
        pytest.param({"10.conf": "* - nofile 900K\n"}, {"soft nofile": "900", "hard nofile": "900"}, id="a unit"),
        pytest.param(
            {"10.conf": "* - nofile 700 more\n"}, {"soft nofile": "700", "hard nofile": "700"}, id="more words"
        ),
        pytest.param({"10.conf": "* - nofile 7\n* -\n"}, {"soft nofile": "7", "hard nofile": "7"}, id="all exempt"),
        pytest.param({"a.list": "* - nofile 7\n", "20.conf": "* - nofile\n"}, {}, id="no lines"),
    ],
)
def test_the_lines_of_files_count_as_for_pam_limits(
    tmp_path: Path, files: Mapping[str, str], expected: Mapping[str, Optional[str]]
) -> None:
    placed = {name if name[0] == "/" else f"/etc/security/limits.d/{name}": text for name, text in files.items()}
    assert limits(machine(tmp_path, placed), "nofile") == {"soft nofile": None, "hard nofile": None, **expected}


def test_who_is_exempt_is_so_whatever_comes_later_and_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path, {CONF: "root -\n"})
    with pytest.raises(OwnedByAnother, match=r"Cannot set soft nofile on root: .*limits\.conf line 1 overrules"):
        run(host, {"nofile": "700"})
    host = machine(tmp_path / "other", {CONF: "operator -\n"})
    conflicts = run(host, {"nofile": "700"}).as_dict()["conflicts"]
    assert {(entry["object"], entry["setting"], entry["value"], entry["wins"]) for entry in conflicts} == {
        ("operator", "soft nofile", "exempt", "them"),
        ("operator", "hard nofile", "exempt", "them"),
    }


def test_a_value_that_is_no_number_does_not_count(tmp_path: Path) -> None:
    assert limits(machine(tmp_path, {CONF: "* - nofile many\n"}), "nofile") == {
        "soft nofile": None,
        "hard nofile": None,
    }


def test_infinity_is_unlimited_by_any_of_its_names(tmp_path: Path) -> None:
    host = machine(tmp_path, {CONF: "* soft memlock -1\n* hard memlock infinity\n"})
    assert limits(host, "memlock") == {"soft memlock": "unlimited", "hard memlock": "unlimited"}


def test_a_later_file_of_another_is_refused_with_its_line(tmp_path: Path) -> None:
    later = "/etc/security/limits.d/99-slurm.conf"
    host = machine(tmp_path, {later: "# Slurm\nroot hard memlock 65536\n"})
    with pytest.raises(OwnedByAnother, match=r"99-slurm\.conf line 2 overrules"):
        run(host, {"memlock": "unlimited"})
    assert not host.files.exists(OURS)


def test_an_earlier_line_loses_and_one_for_a_group_wins_and_both_are_named(tmp_path: Path) -> None:
    host = machine(tmp_path, {CONF: "* hard memlock 64\n@gpu hard memlock 128\n@rdma - memlock unlimited\n"})
    conflicts = run(host, {"memlock": "unlimited"}).as_dict()["conflicts"]
    assert [(entry["object"], entry["setting"], entry["line"], entry["wins"]) for entry in conflicts] == [
        ("*", "hard memlock", 1, "us"),
        ("@gpu", "hard memlock", 2, "them"),
    ]


def test_absent_gives_back_what_the_others_say(tmp_path: Path) -> None:
    host = machine(tmp_path, {CONF: "* - nofile 700\n"})
    run(host, {"nofile": "4096"})
    outcome = run(host, state="absent")
    changed = {
        (change.object, change.setting, change.after) for change in outcome.changes if change.scope == "effective"
    }
    assert ("*", "hard nofile", "700") in changed
    assert ("root", "hard nofile", None) in changed
    assert not host.files.exists(OURS)


def test_without_pam_limits_nothing_is_written_and_strict_says_so(tmp_path: Path) -> None:
    host = build(tmp_path, {"/var/lib/dpkg/status": ""})
    outcome = run(host, {"memlock": "unlimited"})
    assert "pam_limits is not installed" in outcome.as_dict()["unmanaged"][0]["reason"]
    assert not host.files.exists(OURS)
    with pytest.raises(DeclarationError, match="pam_limits is not installed"):
        run(host, {"memlock": "unlimited"}, strict=True)


@pytest.mark.parametrize(
    ("sessions", "cause"),
    [
        ({"nofile": "2000000"}, "pam_limits would refuse every new session"),
        ({"nofile": "unlimited"}, "the limit is not a number, such as 1048576"),
        ({"memlock": "1024"}, "the limit is not a size with a unit"),
        ({"memlock": "unlimited:8G"}, "the soft limit is above the hard one"),
        ({"rtprio": "100"}, "the highest priority is 99"),
        ({"nproc": "-1"}, "the limit is not a number, or unlimited"),
        ({"nproc": "1:2:3"}, "the limit is not a number, or unlimited"),
        ({}, "no limit is set in sessions, services or units"),
    ],
)
def test_a_limit_that_no_session_could_have_is_refused(tmp_path: Path, sessions: Dict[str, str], cause: str) -> None:
    host = machine(tmp_path)
    with pytest.raises(DeclarationError, match=cause):
        run(host, sessions)
    assert not host.files.exists(OURS)


def test_sessions_that_pam_does_not_limit_are_named(tmp_path: Path) -> None:
    host = machine(
        tmp_path,
        {"/etc/pam.d/sshd": "session required pam_unix.so\n", "/etc/pam.d/su": "session required pam_limits.so\n"},
    )
    outcome = run(host, {"memlock": "unlimited"})
    why = "/etc/pam.d/sshd does not run pam_limits.so for sessions"
    assert [(one.object, one.reason) for one in outcome.remaining.unmanaged] == [("sessions of sshd", why)]
    # Where no limit of sessions is declared, they are not named.
    assert run(host, state="absent").remaining.unmanaged == ()
