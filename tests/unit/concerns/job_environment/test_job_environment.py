# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables for all jobs: where they are put, who is stronger, what a process still lacks, and what is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    OwnedByAnother,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._linux import pam_env
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.job_environment import slurm
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.job_environment.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.job_environment.places import BLOCK
from ansible_collections.gpufleet.node.tests.unit.concerns.job_environment.job_machine import (
    CDI,
    ENVIRONMENT,
    ETC,
    FILES,
    NCCL,
    OURS,
    PROLOG,
    Systemd,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build, snapshot

SYSTEM = f"/etc/systemd/system.conf.d/{OURS}"
SLURMD = f"{ETC}/slurmd.service.d/{OURS}"


def machine(root: Path, files: Optional[Mapping[str, str]] = None) -> FakeHost:
    host = build(root, {**FILES, "/var/lib/dpkg/status": "", **(files or {})})
    Systemd(host)
    return host


def systemd_of(host: FakeHost) -> Systemd:
    found = host.commands.programs["systemctl"]
    assert isinstance(found, Systemd)
    return found


def run(host: FakeHost, *, check: bool = False, **declared: Any) -> Outcome:
    validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate(declared)
    assert validated.error_messages == []
    outcome = converge(CONCERN, validated.validated_parameters, host, check_mode=check)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def session(host: FakeHost) -> Dict[str, str]:
    """What pam_env would give to a session."""
    return {name: value for _number, name, value in pam_env.parse(host.files.read(ENVIRONMENT))}


# --- where they are put -----------------------------------------------------------------------------------------------


def test_a_link_that_led_nowhere_stays_and_leads_nowhere_again(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/etc/site/.keep": ""})
    (tmp_path / ENVIRONMENT.lstrip("/")).unlink()
    (tmp_path / ENVIRONMENT.lstrip("/")).symlink_to("site/environment")
    before = snapshot(tmp_path)
    run(host, variables={"A": "1"}, places=["sessions"])
    assert (tmp_path / "etc/site/environment").read_text().endswith("A=1\n# End of gpufleet.node.job_environment.\n")
    run(host, state="absent")
    assert snapshot(tmp_path) == before


def test_a_session_gets_them_after_what_others_have_there(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host, variables={"OMP_NUM_THREADS": 8, "DATA": "/data sets"})
    assert session(host) == {"PATH": "/usr/local/bin:/usr/bin:/bin", "OMP_NUM_THREADS": "8", "DATA": "/data sets"}
    assert outcome.effective["sessions"] == {"OMP_NUM_THREADS": "8", "DATA": "/data sets"}
    [conflict] = outcome.as_dict()["conflicts"]
    assert (conflict["path"], conflict["line"], conflict["value"], conflict["wins"]) == (ENVIRONMENT, 2, "4", "us")
    again = run(host, variables={"OMP_NUM_THREADS": 8, "DATA": "/data sets"})
    assert (again.status, again.changes) == ("in_sync", ())


def test_what_is_no_longer_declared_is_again_what_others_have(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, variables={"OMP_NUM_THREADS": 8, "DATA": "/data"}, nccl={"NCCL_DEBUG": "WARN"})
    outcome = run(host, variables={"DATA": "/data"})
    assert session(host)["OMP_NUM_THREADS"] == "4"
    assert not host.files.exists(NCCL)
    changed = {(change.object, change.setting): change.after for change in outcome.changes}
    assert changed[("sessions", "OMP_NUM_THREADS")] == "4"
    assert changed[("nccl", "NCCL_DEBUG")] is None


def test_a_later_line_of_another_is_refused_with_its_number(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, variables={"OMP_NUM_THREADS": 8})
    text = host.files.read(ENVIRONMENT)
    build(tmp_path, {ENVIRONMENT: f"{text}OMP_NUM_THREADS=1\n"})
    number = text.count("\n") + 1
    with pytest.raises(
        OwnedByAnother, match=rf"line {number} of /etc/environment takes precedence .*found 1, wanted 8"
    ):
        run(host, variables={"OMP_NUM_THREADS": 8})


@pytest.mark.parametrize(
    ("path", "lost", "line"), [(NCCL, BLOCK.end, 1), (ENVIRONMENT, BLOCK.end, 3), (ENVIRONMENT, BLOCK.begin, 4)]
)
def test_our_lines_are_not_written_twice_where_one_of_their_comments_is_gone(
    tmp_path: Path, path: str, lost: str, line: int
) -> None:
    host = machine(tmp_path)
    run(host, variables={"DATA": "/data"}, nccl={"NCCL_DEBUG": "WARN"})
    kept = [one for one in host.files.read(path).splitlines(keepends=True) if not one.startswith(lost)]
    build(tmp_path, {path: "".join(kept)})
    before = snapshot(tmp_path)
    for declared in ({"variables": {"DATA": "/other"}, "nccl": {"NCCL_DEBUG": "INFO"}}, {"state": "absent"}):
        with pytest.raises(CannotLook, match=rf"Cannot parse {re.escape(path)}: line {line} (begins|ends) the lines"):
            run(host, **declared)
        assert snapshot(tmp_path) == before
    at = len(kept) if lost == BLOCK.end else line - 2
    build(tmp_path, {path: "".join((*kept[:at], f"{lost}\n", *kept[at:]))})
    run(host, state="absent")
    assert "gpufleet" not in (host.files.read_optional(path) or "")


def test_nccl_takes_our_line_before_those_of_the_image(tmp_path: Path) -> None:
    theirs = "NCCL_DEBUG=INFO\nNCCL_DEBUG=TRACE\nNCCL_IB_TIMEOUT=22\n"
    host = machine(tmp_path, {NCCL: theirs})
    outcome = run(host, nccl={"NCCL_DEBUG": "WARN"})
    text = host.files.read(NCCL)
    assert text.endswith(theirs)
    assert text.splitlines()[1] == "NCCL_DEBUG=WARN"
    assert outcome.effective["nccl"] == {"NCCL_DEBUG": "WARN"}
    assert [(one["line"], one["wins"]) for one in outcome.as_dict()["conflicts"]] == [(4, "us"), (5, "us")]
    build(tmp_path, {NCCL: f"NCCL_DEBUG=INFO\n{text}"})
    with pytest.raises(OwnedByAnother, match=r"line 1 of /etc/nccl\.conf takes precedence"):
        run(host, nccl={"NCCL_DEBUG": "WARN"})


def test_a_line_that_nccl_reads_as_another_name_is_nobody_s_rival(tmp_path: Path) -> None:
    host = machine(tmp_path, {NCCL: "NCCL_DEBUG = INFO\n #NCCL_DEBUG=INFO\n"})
    assert run(host, nccl={"NCCL_DEBUG": "WARN"}).as_dict()["conflicts"] == []


@pytest.mark.parametrize(
    ("files", "declared", "expected"),
    [
        (
            {"/root/.nccl.conf": "NCCL_DEBUG=INFO\nNCCL_DEBUG=WARN\n"},
            {},
            ("nccl", "/root/.nccl.conf", 1, "NCCL_DEBUG", "INFO"),
        ),
        # The first line counts there, and is ours.
        ({"/root/.nccl.conf": "NCCL_DEBUG=WARN\nNCCL_DEBUG=INFO\n"}, {}, None),
        # The home of a person is not looked into.
        ({"/home/ann/.nccl.conf": "NCCL_DEBUG=INFO\n"}, {}, None),
        (
            {ENVIRONMENT: "NCCL_DEBUG=INFO\n"},
            {},
            ("environment", ENVIRONMENT, 1, "NCCL_DEBUG", "INFO"),
        ),
        (
            {ENVIRONMENT: "NCCL_CONF_FILE=/opt/nccl.conf\n", "/opt/nccl.conf": "NCCL_DEBUG=INFO\n"},
            {},
            ("nccl", "/opt/nccl.conf", 1, "NCCL_DEBUG", "INFO"),
        ),
        (
            {"/opt/nccl.conf": "NCCL_DEBUG=INFO\n"},
            {"variables": {"NCCL_CONF_FILE": "/opt/nccl.conf"}, "places": ["services"]},
            ("nccl", "/opt/nccl.conf", 1, "NCCL_DEBUG", "INFO"),
        ),
        (
            {"/etc/profile.d/site.sh": "# A=1\nexport A='1 2'\n"},
            {"variables": {"A": "2"}},
            ("profile", "/etc/profile.d/site.sh", 2, "A", "1 2"),
        ),
        ({"/etc/profile.d/site.sh": "export A=2; export BA=3\n"}, {"variables": {"A": "2"}}, None),
    ],
)
def test_what_is_stronger_is_named(
    tmp_path: Path, files: Mapping[str, str], declared: Mapping[str, Any], expected: Any
) -> None:
    host = machine(tmp_path, files)
    found = run(host, nccl={"NCCL_DEBUG": "WARN"}, **declared).as_dict()["conflicts"]
    named = [(one["owner"], one["path"], one["line"], one["setting"], one["value"]) for one in found]
    assert named == ([expected] if expected else [])
    assert all(one["wins"] == "them" for one in found)


def test_no_session_gets_what_pam_env_does_not_read(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/etc/pam.d/sshd": "session required pam_env.so readenv=0\n"})
    outcome = run(host, variables={"A": "1"}, nccl={"NCCL_DEBUG": "WARN"})
    assert host.files.read(ENVIRONMENT) == FILES[ENVIRONMENT]
    [entry] = outcome.as_dict()["unmanaged"]
    assert "pam_env.so" in entry["reason"]
    with pytest.raises(DeclarationError, match=r"pam_env\.so read /etc/environment"):
        run(host, variables={"A": "1"}, strict=True)


# --- Slurm ------------------------------------------------------------------------------------------------------------


def test_a_task_of_slurm_keeps_what_its_job_has_set(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, variables={"A": "it's; $(date)", "B": "2"}, places=["slurm"])
    script = tmp_path / PROLOG.lstrip("/")
    assert os.access(script, os.X_OK)
    printed = subprocess.run([str(script)], env={"B": ""}, capture_output=True, text=True, check=True).stdout
    assert printed == "export A=it's; $(date)\n"
    assert [(name, value) for _number, name, value in slurm.parse(script.read_text())] == [
        ("A", "it's; $(date)"),
        ("B", "2"),
    ]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"/etc/slurm/slurm.conf": "ClusterName=a\n"}, "/etc/slurm/slurm.conf names no TaskProlog"),
        ({"/etc/slurm/slurm.conf": "TaskProlog=/opt/prolog\n"}, "has TaskProlog=/opt/prolog: let that script run"),
        ({"/etc/slurm/slurm.conf": f"#TaskProlog={PROLOG}\n"}, "names no TaskProlog"),
        ({"/etc/slurm/slurm.conf": "TaskProlog=/opt/prolog\n", "/opt/prolog": f"#!/bin/sh\n{PROLOG}\n"}, ""),
        ({"/etc/slurm/slurm.conf": "include more.conf\n", "/etc/slurm/more.conf": f"taskprolog = {PROLOG}\n"}, ""),
    ],
)
def test_a_script_that_slurm_does_not_start_is_there_and_told(
    tmp_path: Path, files: Mapping[str, str], reason: str
) -> None:
    host = machine(tmp_path, files)
    outcome = run(host, variables={"A": "1"}, places=["slurm"])
    assert host.files.exists(PROLOG)
    assert [reason in entry["reason"] for entry in outcome.as_dict()["unmanaged"]] == ([True] if reason else [])
    assert outcome.effective["slurm"] == ({} if reason else {"A": "1"})
    assert run(host, variables={"A": "1"}, places=["slurm"]).status == "in_sync"
    changed = run(host, variables={"A": "2"}, places=["slurm"])
    assert changed.changes
    assert "export A=2" in host.files.read(PROLOG)


def test_without_slurm_nothing_is_written_for_it(tmp_path: Path) -> None:
    host = machine(tmp_path)
    host.files.remove("/etc/slurm/slurm.conf")
    outcome = run(host, variables={"A": "1"}, places=["slurm", "sessions"])
    assert not host.files.exists(PROLOG)
    assert [entry["object"] for entry in outcome.as_dict()["unmanaged"]] == ["slurm"]


# --- containers -------------------------------------------------------------------------------------------------------


def test_a_container_that_asks_gets_the_variables_and_the_file_of_nccl(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, variables={"A": 'x "y"', "B": "1"}, places=["containers"], nccl={"NCCL_DEBUG": "WARN"})
    specification = json.loads(host.files.read(CDI))
    [device] = specification["devices"]
    assert (specification["kind"], device["name"]) == ("gpufleet.node/environment", "job")
    assert device["containerEdits"]["env"] == ['A=x "y"', "B=1"]
    assert [mount["containerPath"] for mount in device["containerEdits"]["mounts"]] == [NCCL]
    run(host, nccl={"NCCL_DEBUG": "WARN"}, places=["containers"])
    assert "env" not in json.loads(host.files.read(CDI))["devices"][0]["containerEdits"]
    run(host, nccl={"NCCL_DEBUG": "WARN"})
    assert not host.files.exists(CDI)


# --- services ---------------------------------------------------------------------------------------------------------


def test_systemd_is_executed_anew_for_all_services_and_reloaded_for_one(tmp_path: Path) -> None:
    host = machine(tmp_path)
    units = [{"name": "slurmd.service", "variables": {"B": 'x "\\y" $Z'}}]
    outcome = run(host, variables={"A": "1 2"}, places=["services"], units=units)
    assert host.files.read(SYSTEM).splitlines()[1:] == ["[Manager]", 'DefaultEnvironment="A=1 2"']
    assert host.files.read(SLURMD).splitlines()[1:] == ["[Service]", r'Environment="B=x \"\\y\" $Z"']
    assert outcome.remaining.status == "in_sync"
    assert outcome.effective["services"] == {"services": {"A": "1 2"}, "slurmd.service": {"B": 'x "\\y" $Z'}}
    systemd = systemd_of(host)
    assert (systemd.calls["daemon-reload"], systemd.calls["daemon-reexec"]) == (0, 1)
    systemd.calls["show"] = 0
    again = run(host, variables={"A": "1 2"}, places=["services"], units=units)
    assert (again.status, again.changes, systemd.calls["show"]) == ("in_sync", (), 2)


def test_a_daemon_that_runs_with_the_old_environment_waits_for_its_restart(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/proc/71/environ": "LANG=C\0A=0\0SECRET=x\0", "/proc/72/environ": "A=1\0"})
    systemd_of(host).pids.update({"containerd.service": 71, "slurmd.service": 72, "sshd.service": 72})
    outcome = run(host, variables={"A": "1"}, places=["services"])
    assert outcome.remaining.status == "pending"
    assert outcome.as_dict()["needs"] == ["restart of containerd.service"]
    [waiting] = outcome.remaining.pending
    assert (waiting.object, waiting.setting, waiting.effective, waiting.boot) == ("containerd.service", "A", "0", "1")
    assert all("restart" not in call for call in host.commands.calls)
    assert "SECRET" not in json.dumps(outcome.as_dict())
    build(tmp_path, {"/proc/71/environ": "A=1\0"})
    assert run(host, variables={"A": "1"}, places=["services"]).status == "in_sync"


def test_of_a_daemon_that_overwrote_its_environment_nothing_is_claimed(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/proc/73/environ": "\0\0 0 of 10-100 startups\0\0"})
    systemd_of(host).pids.update({"sshd.service": 73, "slurmd.service": 73})
    units = [{"name": "slurmd.service", "variables": {"B": "1"}}]
    outcome = run(host, variables={"A": "1"}, places=["services"], units=units)
    assert outcome.remaining.status == "in_sync"
    assert outcome.effective["services"] == {"services": {"A": "1"}, "slurmd.service": {"B": "1"}}


def test_a_unit_that_sets_it_itself_is_an_owner_and_waits_for_nothing(tmp_path: Path) -> None:
    own = f"{ETC}/containerd.service.d/site.conf"
    host = machine(tmp_path, {own: "[Service]\nEnvironment=A=0\n", "/proc/71/environ": "A=0\0"})
    systemd_of(host).pids["containerd.service"] = 71
    outcome = run(host, variables={"A": "1"}, places=["services"])
    assert outcome.remaining.status == "in_sync"
    [conflict] = outcome.as_dict()["conflicts"]
    assert (conflict["object"], conflict["setting"], conflict["value"]) == ("containerd.service", "A", "0")
    assert conflict["wins"] == "them"


def test_a_service_that_runs_keeps_its_environment_until_it_is_restarted(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/proc/72/environ": "B=1\0"})
    systemd_of(host).pids["slurmd.service"] = 72
    units = [{"name": "slurmd.service", "variables": {"A": "1", "B": "1"}}]
    outcome = run(host, units=units)
    assert [(row.setting, row.effective) for row in outcome.remaining.pending] == [("A", None)]
    assert outcome.as_dict()["needs"] == ["restart of slurmd.service"]


@pytest.mark.parametrize(
    ("files", "overrules"),
    [
        ({f"{ETC}/slurmd.service.d/99-site.conf": "[Service]\nEnvironment=X=1 A=2\n"}, "99-site.conf"),
        (
            {
                f"{ETC}/slurmd.service.d/10-site.conf": "[Service]\nEnvironmentFile=-/etc/default/slurmd\n",
                "/etc/default/slurmd": "# defaults\nA='2'\n",
            },
            "/etc/default/slurmd",
        ),
    ],
)
def test_a_later_file_of_another_and_a_file_of_variables_are_refused(
    tmp_path: Path, files: Mapping[str, str], overrules: str
) -> None:
    host = machine(tmp_path, files)
    before = snapshot(tmp_path)
    with pytest.raises(OwnedByAnother, match=rf"Cannot set A on slurmd\.service: .*{overrules} overrules"):
        run(host, units=[{"name": "slurmd.service", "variables": {"A": "1"}}])
    assert snapshot(tmp_path) == before


def test_an_earlier_file_of_another_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path, {f"{ETC}/slurmd.service.d/10-site.conf": '[Service]\nEnvironment="A=2 3"\n'})
    outcome = run(host, units=[{"name": "slurmd.service", "variables": {"A": "1"}}])
    assert [(one["value"], one["wins"]) for one in outcome.as_dict()["conflicts"]] == [("2 3", "us")]


def test_a_line_before_ours_that_goes_on_in_the_next_is_refused(tmp_path: Path) -> None:
    host = machine(tmp_path, {ENVIRONMENT: "FOO=bar\\\n"})
    with pytest.raises(OwnedByAnother, match="a line of /etc/environment before those of this module ends in a back"):
        run(host, variables={"A": "1"})
    assert host.files.read(ENVIRONMENT) == "FOO=bar\\\n"


# --- names and values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nccl", "reason"),
    [
        ({"NCCL_DEBUGG": "WARN"}, r"no release of NCCL up to 2\.\d+ reads it \(did you mean NCCL_DEBUG\)"),
        ({"NCCL_COLLECTIVE_ENABLE": "1"}, "NCCL_COLLNET_ENABLE"),
        ({"NCCL_PORT_RANGE": "1-2"}, "ip_local_port_range"),
        ({"NCCL_ASYNC_ERROR_HANDLING": "1"}, "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
        ({"OMP_NUM_THREAD": "1"}, "did you mean OMP_NUM_THREADS"),
        ({"UCX_TLSS": "rc"}, r"no known program reads it \(did you mean UCX_TLS\)"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}, "PYTORCH_ALLOC_CONF"),
        ({"PYTORCH_ALLOC_CONF": "expandable_segment:True"}, "did you mean expandable_segments"),
        ({"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"}, "no RDMA device of this machine matches"),
    ],
)
def test_a_name_that_nobody_reads_is_set_and_told(tmp_path: Path, nccl: Mapping[str, str], reason: str) -> None:
    host = machine(tmp_path)
    outcome = run(host, nccl=nccl)
    [(name, value)] = nccl.items()
    assert f"{name}={value}\n" in host.files.read(NCCL)
    [entry] = outcome.as_dict()["unmanaged"]
    assert entry["setting"] == name
    assert re.search(reason, entry["reason"])
    with pytest.raises(DeclarationError):
        run(host, nccl=nccl, strict=True)


def test_what_somebody_reads_or_is_nobody_s_is_not_told(tmp_path: Path) -> None:
    variables = {
        "PYTORCH_ALLOC_CONF": "expandable_segments:True,roundup_power2_divisions:[256:1,512:2,>:4]",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,roundup_power2_divisions:[256:1,512:2,>:4]",
        "DATA_ROOT": "/data",
        "TOKENIZERS_PARALLELISM": "false",
        "NCCL_FASTRAK_NUM_FLOWS": "2",
    }
    nccl = {"NCCL_IB_TIMEOUT": 22, "NCCL_IB_HCA": "mlx5", "NCCL_SOCKET_IFNAME": "^docker,lo", "UCX_TLS": "rc,cuda"}
    host = machine(tmp_path, {"/sys/class/infiniband/mlx5_0/node_type": "1: CA\n"})
    assert run(host, variables=variables, nccl=nccl).as_dict()["unmanaged"] == []


def test_a_name_that_the_library_of_the_machine_does_not_know_yet_is_told(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5": ""})
    (tmp_path / "usr/lib/x86_64-linux-gnu/libnccl.so.2").symlink_to("libnccl.so.2.21.5")
    nccl = {"NCCL_IB_TIMEOUT": 20, "NCCL_OOB_NET_ENABLE": 1}
    [entry] = run(host, nccl=nccl, strict=True).as_dict()["unmanaged"]
    assert entry["setting"] == "NCCL_OOB_NET_ENABLE"
    assert "from 2.23 on, and this machine has" in entry["reason"]


WITH_SPACE = "begins or ends with a blank"


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({}, "no variable is declared in variables, nccl or units"),
        ({"variables": {"A": "1"}, "places": []}, "places is empty"),
        ({"variables": {"A": "a\nb"}}, "Cannot set variables.A: the value has a newline"),
        ({"nccl": {"A": "a\0b"}}, "Cannot set nccl.A: the value has a NUL"),
        ({"variables": {"A": "a\x1bb"}}, "a control character"),
        ({"variables": {"A": "a\x90b"}}, "a control character"),
        ({"variables": {"A": "a\ud800b"}}, "a control character"),
        ({"variables": {"A": "a\x85b"}}, "Cannot set variables.A: the value has a Unicode line separator"),
        ({"nccl": {"A": "a\u2028b"}}, "Cannot set nccl.A: the value has a Unicode line separator"),
        ({"variables": {"A": "a\u2029b"}}, "Cannot set variables.A: the value has a Unicode line separator"),
        ({"variables": {"A-B": "1"}}, "'A-B' is not the name of a variable"),
        ({"variables": {"1A": "1"}}, "'1A' is not the name of a variable"),
        ({"nccl": {"NCCL_DEBUG ": "1"}}, "is not the name of a variable"),
        ({"variables": {"A": ""}}, "the value is empty"),
        ({"variables": {"A": True}}, "the value is a boolean"),
        ({"variables": {"A": ["1"]}}, "the value is not a string"),
        ({"variables": {"PATH": "/bin"}}, "every session and service has one of its own"),
        ({"variables": {"LD_PRELOAD": "/usr/lib/libtcmalloc.so"}}, "it would be loaded into every program"),
        ({"nccl": {"CUDA_VISIBLE_DEVICES": "0"}}, "would give all jobs the same GPUs"),
        ({"variables": {"SLURM_CONF": "/x"}}, "Slurm sets it"),
        ({"variables": {"A": 'say "x"'}}, "pam_env ends the value at a #"),
        ({"variables": {"A": "a#b"}}, "pam_env ends the value at a #"),
        ({"variables": {"A": "$HOME/x"}}, "expands $"),
        ({"variables": {"A": "a\\"}}, "joins lines at a backslash"),
        ({"variables": {"A": " a"}}, WITH_SPACE),
        ({"variables": {"A": "a "}, "places": ["slurm"]}, WITH_SPACE),
        ({"variables": {"A": "x" * 1000}}, "longer than 1000 bytes"),
        ({"variables": {"A": "50%"}, "places": ["services"]}, "systemd expands a %"),
        ({"units": [{"name": "a.service", "variables": {"A": "%h"}}]}, "systemd expands a %"),
        ({"units": [{"name": "a", "variables": {"A": "1"}}]}, "'a' is not the name of a service"),
        ({"units": [{"name": "a.service", "variables": {}}]}, "no variable of a.service is set"),
        ({"units": [{"name": "a.service", "variables": {"A": "1"}}] * 2}, "A of a.service is set twice"),
        ({"units": [{"name": "no.service", "variables": {"A": "1"}}]}, "this machine has no such unit"),
        ({"nccl": {"NCCL_DEBUG": "WARN # less"}}, "NCCL removes nothing"),
        ({"nccl": {"NCCL_DEBUG": '"WARN"'}}, "NCCL removes nothing"),
        ({"nccl": {"NCCL_SOCKET_IFNAME": "bond0, eth0"}}, "NCCL removes nothing"),
        ({"nccl": {"NCCL_IB_TIMEOUT": "long"}}, "NCCL expects a number, and would read this as 0"),
        ({"nccl": {"NCCL_NTHREADS": "9" * 900}}, "NCCL expects a number"),
        ({"nccl": {"NCCL_NTHREADS": "0256"}}, "begins with 0, and NCCL would read its digits as octal"),
        ({"nccl": {"NCCL_NTHREADS": 8}}, "the number of CUDA threads of a block"),
        ({"nccl": {"NCCL_SOCKET_IFNAME": "eth"}}, "no network interface of this machine matches"),
        ({"nccl": {"NCCL_SOCKET_IFNAME": "=bond"}}, "found bond0, lo, wanted =bond"),
        ({"nccl": {"NCCL_DEBUG": "INFO"}, "variables": {"NCCL_DEBUG": "WARN"}}, "takes precedence over nccl.conf"),
        ({"variables": {"PYTORCH_ALLOC_CONF": "expandable_segments"}}, "is not option:value"),
        ({"variables": {"PYTORCH_ALLOC_CONF": "expandable_segments:true"}}, "write expandable_segments:True"),
        ({"variables": {"PYTORCH_ALLOC_CONF": "max_split_size_mb:8"}}, "Set at least 20"),
        ({"variables": {"PYTORCH_ALLOC_CONF": "max_split_size_mb:²"}}, "Set at least 20"),
        (
            {
                "variables": {
                    "PYTORCH_ALLOC_CONF": "backend:native",
                    "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync",
                }
            },
            "Give both the same value",
        ),
    ],
)
def test_what_no_job_could_have_is_refused_and_nothing_changes(
    tmp_path: Path, declared: Mapping[str, Any], message: str
) -> None:
    host = machine(tmp_path)
    before = snapshot(tmp_path)
    with pytest.raises(DeclarationError) as raised:
        run(host, **declared)
    assert message.lower() in str(raised.value).lower()
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "WANDB_API_KEY", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"]
)
def test_a_secret_is_refused_and_not_shown(tmp_path: Path, name: str) -> None:
    with pytest.raises(DeclarationError, match="its name suggests a secret") as raised:
        run(machine(tmp_path), variables={name: "s3cr3t"})
    assert "s3cr3t" not in json.dumps([str(raised.value), raised.value.failure()])


def test_everything_is_given_back_but_what_others_wrote_since(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, variables={"A": "1"}, places=["sessions", "slurm", "containers", "services"], nccl={"NCCL_DEBUG": "WARN"})
    build(tmp_path, {NCCL: f"{host.files.read(NCCL)}NCCL_IB_TIMEOUT=22\n"})
    run(host, state="absent")
    assert host.files.read(NCCL) == "NCCL_IB_TIMEOUT=22\n"
    assert host.files.read(ENVIRONMENT) == FILES[ENVIRONMENT]
    assert BLOCK.begin not in "".join(str(text) for text in snapshot(tmp_path).values())
    assert not any(host.files.exists(path) for path in (PROLOG, CDI, SYSTEM))
