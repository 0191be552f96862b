# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``fs.nr_open`` and the limits of sessions: pam_limits refuses every session with a limit above it, root's too."""

from __future__ import annotations

import contextlib
import random
import re
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.filter.ordered_concerns import ordered_concerns
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import AnyConcern, Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._kinds import open_files
from ansible_collections.gpufleet.node.plugins.module_utils._kinds.open_files import (
    CONF,
    NR_OPEN_PATH,
    OWN_VALUE,
    RAISED_BY_SYSTEMD,
    NofileTooHigh,
    NrOpenTooLow,
)
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_tunables.concern import CONCERN as TUNABLES
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.resource_limits.concern import CONCERN as LIMITS
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_tunables import kernel_tunables_machine
from ansible_collections.gpufleet.node.tests.unit.concerns.resource_limits import limits_machine
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, HostVars

LOW, MIDDLE, HIGH = 524288, 1048576, 4194304
SITE_LIMIT, SITE_SYSCTL = "/etc/security/limits.d/10-site.conf", "/etc/sysctl.d/10-site.conf"
NOTHING_OF_FILES: Dict[str, Any] = {"sessions": {"memlock": "unlimited"}}


def machine(root: Path, nr_open: int = MIDDLE, limit: int = 0, *, at_boot: bool = False) -> FakeHost:
    """A machine with this value, of a file of the site or of the kernel, and a limit of the site."""
    files = {**limits_machine.FILES, CONF: "", NR_OPEN_PATH: f"{nr_open}\n"}
    if limit:
        files[SITE_LIMIT] = f"root - nofile {limit}\n"
    if at_boot:
        files[SITE_SYSCTL] = f"fs.nr_open = {nr_open}\n"
    host = kernel_tunables_machine.machine(root, files)
    limits_machine.Systemd(host)
    return host


def params(concern: AnyConcern, declaration: Mapping[str, Any]) -> Dict[str, Any]:
    validated = ArgumentSpecValidator({**SHARED_OPTIONS, **concern.options}).validate(dict(declaration))
    assert validated.error_messages == []
    found: Dict[str, Any] = validated.validated_parameters
    return found


def run(host: FakeHost, concern: AnyConcern, **declaration: Any) -> Outcome:
    outcome = converge(concern, params(concern, declaration), host, check_mode=False)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def nr_open(value: int) -> Dict[str, Any]:
    return {"sysctl": {"fs.nr_open": value}}


def nofile(value: int) -> Dict[str, Any]:
    return {"sessions": {"nofile": f"1024:{value}"}}


def found(host: FakeHost) -> Tuple[int, int, int]:
    """The highest hard limit of any line that decides, and the value now and after a boot."""
    limits: Dict[str, int] = {}
    for path in (SITE_LIMIT, "/etc/security/limits.d/99-gpufleet-resource_limits.conf"):
        for domain, value in re.findall(
            r"^(\S+) (?:hard|-) nofile (\d+)$", host.files.read_optional(path) or "", re.MULTILINE
        ):
            limits[domain] = int(value)
    now = int(host.files.read(NR_OPEN_PATH))
    boot = now if now >= RAISED_BY_SYSTEMD else OWN_VALUE
    for path in (SITE_SYSCTL, "/etc/sysctl.d/zz-gpufleet-kernel_tunables.conf"):
        for value in re.findall(r"^fs\.nr_open = (\d+)$", host.files.read_optional(path) or "", re.MULTILINE):
            boot = int(value)
    return max(limits.values(), default=0), now, boot


RUNS: Tuple[Tuple[AnyConcern, Dict[str, Any]], ...] = (
    *((TUNABLES, nr_open(value)) for value in (LOW, MIDDLE, HIGH)),
    (TUNABLES, {"sysctl": {"vm.swappiness": 10}}),
    (TUNABLES, {"state": "absent"}),
    *((LIMITS, nofile(value)) for value in (LOW, MIDDLE, HIGH)),
    (LIMITS, NOTHING_OF_FILES),
    (LIMITS, {"state": "absent"}),
)


@pytest.mark.once
@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_run_sessions_can_be_opened_now_and_after_a_boot(tmp_path: Path, seed: int) -> None:
    order = random.Random(seed)
    start, at_boot = order.choice([(MIDDLE, False), (RAISED_BY_SYSTEMD, False), (HIGH, True), (LOW, True)])
    limit = order.choice([value for value in (0, LOW, MIDDLE, HIGH) if value <= start])
    host = machine(tmp_path, start, limit, at_boot=at_boot)
    for _run in range(6):
        concern, declaration = order.choice(RUNS)
        scope = order.choice([{}, {}, {"immediate": False}, {"permanent": False}])
        with contextlib.suppress(GpuFleetError):
            run(host, concern, **declaration, **scope)
        highest, now, boot = found(host)
        assert highest <= min(now, boot), (concern.name, declaration, scope)


@pytest.mark.parametrize(("before", "after"), [(MIDDLE, HIGH), (MIDDLE, LOW), (HIGH, MIDDLE), (LOW, MIDDLE)])
def test_declared_together_they_converge_in_one_run(tmp_path: Path, before: int, after: int) -> None:
    host = machine(tmp_path)
    run(host, TUNABLES, **nr_open(before))
    run(host, LIMITS, **nofile(before))
    declared = {"kernel_tunables": nr_open(after), "resource_limits": nofile(after)}
    concerns: Dict[str, AnyConcern] = {"kernel_tunables": TUNABLES, "resource_limits": LIMITS}
    registry = [entry for entry in REGISTRY if entry.name in concerns]

    def look() -> Dict[str, Any]:
        return assess_node(declared, host, validate=params, full=False, registry=registry)

    answer = look()
    assert (answer["invalid"], len(answer["waiting"])) == ([], 1)
    for name in ordered_concerns("a", HostVars({"a": {"look": answer}}), "look"):
        # A role that fails does not stop the others (playbooks/tasks/one_concern.yml).
        with contextlib.suppress(GpuFleetError):
            run(host, concerns[name], **declared[name])
    assert look()["in_sync"] == ["kernel_tunables", "resource_limits"]


@pytest.mark.parametrize(
    "limits",
    [
        nofile(HIGH),
        {"services": {"nofile": str(HIGH)}},
        {"sessions": {"nofile": "1024"}, "units": [{"name": "slurmd.service", "nofile": f"1024:{HIGH}"}]},
    ],
)
def test_where_both_contradict_each_other_both_are_refused_with_both_values(
    tmp_path: Path, limits: Dict[str, Any]
) -> None:
    declared = {"kernel_tunables": nr_open(MIDDLE), "resource_limits": limits}
    answer = assess_node(declared, machine(tmp_path), validate=params, full=False)
    assert answer["invalid"] == ["kernel_tunables", "resource_limits"]
    for result in answer["concerns"].values():
        assert "fs.nr_open" in result["msg"]
        assert str(MIDDLE) in result["msg"]
        assert str(HIGH) in result["msg"]


def test_a_value_below_a_limit_of_the_site_is_refused_with_its_line(tmp_path: Path) -> None:
    host = machine(tmp_path, limit=MIDDLE)
    with pytest.raises(NofileTooHigh) as caught:
        run(host, TUNABLES, **nr_open(LOW))
    assert str(caught.value) == (
        f"Cannot set sysctl fs.nr_open: {SITE_LIMIT}:1 sets a hard nofile of {MIDDLE} for root, above the fs.nr_open"
        f" that would be in effect now, so pam_limits would refuse every session with that limit (wanted {LOW})."
        f" Lower that limit first, or set fs.nr_open to at least {MIDDLE}."
    )


@pytest.mark.parametrize(
    ("declared", "scope"),
    [
        (MIDDLE, {}),
        (MIDDLE + 1, {}),
        (2 * HIGH, {"permanent": False}),
        (2 * HIGH, {"immediate": False}),
        (2 * HIGH, {}),
    ],
)
def test_a_value_that_is_not_lowered_is_set_whatever_limit_the_site_has(
    tmp_path: Path, declared: int, scope: Dict[str, Any]
) -> None:
    host = machine(tmp_path, limit=HIGH)
    assert run(host, TUNABLES, **nr_open(declared), **scope).error is None


def test_a_limit_that_was_too_high_before_hides_none_that_was_not(tmp_path: Path) -> None:
    host = machine(tmp_path)
    host.files.replace(SITE_LIMIT, f"ftp hard nofile 9999999999\nroot - nofile {MIDDLE}\n")
    run(host, TUNABLES, **nr_open(HIGH))
    with pytest.raises(NofileTooHigh, match=rf":2 sets a hard nofile of {MIDDLE} for root"):
        run(host, TUNABLES, **nr_open(LOW))


def test_a_limit_above_what_the_next_boot_brings_is_refused(tmp_path: Path) -> None:
    host = machine(tmp_path, HIGH)
    with pytest.raises(NrOpenTooLow, match=rf"fs.nr_open, which is {OWN_VALUE} after the next boot \(the kernel's own"):
        run(host, LIMITS, **nofile(HIGH))
    host.files.replace(SITE_SYSCTL, f"fs.nr_open = {MIDDLE}\n")
    with pytest.raises(NrOpenTooLow, match=rf"which is {MIDDLE} after the next boot \({SITE_SYSCTL}:1\)"):
        run(host, LIMITS, **nofile(HIGH))


def test_a_service_is_given_at_boot_what_there_is_then(tmp_path: Path) -> None:
    """No session is refused for it: systemd lowers the limit."""
    host = machine(tmp_path, HIGH)
    assert run(host, LIMITS, services={"nofile": str(HIGH)}).error is None
    with pytest.raises(NrOpenTooLow, match=f"it is above {NR_OPEN_PATH}, which is {HIGH}, so no service would get it"):
        run(host, LIMITS, services={"nofile": str(HIGH + 1)})


@pytest.mark.parametrize(
    ("text", "highest"),
    [
        ("* soft nofile 9000000\n", None),
        ("* hard nofile 9000000\n* hard nofile 1024\n", 1024),
        ("@gpu - nofile 4096\n", 4096),
        ("alice - \nalice hard nofile 9000000\n", None),
        ("* hard nofile unlimited\n", -1),
    ],
)
def test_the_line_that_decides_about_a_hard_limit_counts(tmp_path: Path, text: str, highest: Optional[int]) -> None:
    host = machine(tmp_path)
    host.files.replace(SITE_LIMIT, text)
    lines = open_files.hard_limits(host.files)
    assert (lines[0].value if lines else None) == highest
