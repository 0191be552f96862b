# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPUs: wrong input with its message, what another owner would undo, and that nothing was changed by either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    OwnedByAnother,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.knobs import contested
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.cpu_power.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.cpu_power.cpu_machine import (
    CPU,
    CpuMachine,
    acpi,
    amd_active,
    grace,
    intel_active,
    intel_passive,
    params,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

Files = Callable[[], Mapping[str, str]]
PERFORMING = {
    **{f"{CPU}/cpu{cpu}/cpufreq/scaling_governor": "performance\n" for cpu in range(4)},
    **{f"{CPU}/cpu{cpu}/cpufreq/energy_performance_preference": "performance\n" for cpu in range(4)},
}
WRONG: Dict[str, Any] = {
    "nothing": (
        intel_active,
        {},
        "Cannot read the declaration: nothing is declared. Set one of the options, such as governor: performance, or"
        " state: absent.",
    ),
    "a governor that the driver lacks": (
        intel_active,
        {"governor": "schedutil"},
        "Cannot set governor on CPUs: the driver intel_pstate has performance, powersave (found powersave, wanted"
        " schedutil). Declare one of them.",
    ),
    "a governor that AMD's driver lacks": (
        amd_active,
        {"governor": "ondemand"},
        "Cannot set governor on CPUs: the driver amd-pstate-epp has performance, powersave (found powersave, wanted"
        " ondemand). Declare one of them.",
    ),
    "a governor that no module has": (
        lambda: {
            **acpi(),
            **{f"{CPU}/cpu{n}/cpufreq/scaling_available_governors": "performance schedutil\n" for n in range(4)},
        },
        {"governor": "conservative"},
        "Cannot set governor on CPUs: the driver acpi-cpufreq has performance, schedutil (found ondemand, wanted"
        " conservative). Declare one of them.",
    ),
    "a governor of two words": (
        acpi,
        {"governor": "on demand"},
        "Cannot set governor on CPUs: it is not the name of a governor (wanted on demand). Set such as performance or"
        " schedutil.",
    ),
    "a preference with hyphens": (
        intel_active,
        {"energy_performance_preference": "balance-performance"},
        "Cannot set energy_performance_preference on CPUs: it is neither a preference nor a number from 0 to 255"
        " (wanted balance-performance). Did you mean balance_performance?",
    ),
    "a preference above all": (
        intel_active,
        {"energy_performance_preference": "256"},
        "Cannot set energy_performance_preference on CPUs: it is neither a preference nor a number from 0 to 255"
        " (wanted 256). Use one of performance, balance_performance, balance_power, power.",
    ),
    "a preference that the driver lacks": (
        lambda: {
            **intel_active(),
            **{
                f"{CPU}/cpu{cpu}/cpufreq/energy_performance_available_preferences": "default performance power\n"
                for cpu in range(4)
            },
        },
        {"energy_performance_preference": "balance_power"},
        "Cannot set energy_performance_preference on CPUs: the driver intel_pstate has default, performance, power"
        " (found balance_performance, wanted balance_power). Declare one of them.",
    ),
    "a preference under performance": (
        intel_active,
        {"governor": "performance", "energy_performance_preference": "power"},
        "Cannot set energy_performance_preference on CPUs: under the governor performance the driver intel_pstate takes"
        " no other than performance (found balance_performance, wanted power). Declare governor: powersave too, or"
        " leave the preference out.",
    ),
    "a preference under performance as it is": (
        lambda: {**amd_active(), **PERFORMING},
        {"energy_performance_preference": "balance_power"},
        "Cannot set energy_performance_preference on CPUs: under the governor performance the driver amd-pstate-epp"
        " takes no other than performance (found performance, wanted balance_power). Declare governor: powersave too,"
        " or leave the preference out.",
    ),
    "a bias with underscores": (
        intel_active,
        {"energy_performance_bias": "balance_power"},
        "Cannot set energy_performance_bias on CPUs: it is neither a bias nor a number from 0 to 15 (wanted"
        " balance_power). Did you mean balance-power?",
    ),
    "a frequency without a unit": (
        intel_active,
        {"min_frequency": "2400"},
        "Cannot set min_frequency on CPUs: it is neither a number with its unit nor lowest nor highest (wanted 2400)."
        " Write 2400MHz.",
    ),
    "a part of a kHz": (
        intel_active,
        {"min_frequency": "0.8001kHz"},
        "Cannot set min_frequency on CPUs: the kernel counts in whole kHz (wanted 0.8001kHz).",
    ),
    "a frequency above all": (
        intel_active,
        {"max_frequency": "5GHz"},
        "Cannot set max_frequency on CPUs: CPUs 0-3 run from 800000 to 3800000 kHz (found 3800000, wanted 5000000)."
        " Declare a frequency in this range, or lowest or highest.",
    ),
    "a frequency below all": (
        grace,
        {"min_frequency": "80MHz"},
        "Cannot set min_frequency on CPUs: CPUs 0-3 run from 81000 to 3501000 kHz (found 81000, wanted 80000). Declare"
        " a frequency in this range, or lowest or highest.",
    ),
    "turbo without turbo": (
        intel_active,
        {"turbo": False, "max_frequency": "3GHz"},
        "Cannot set max_frequency on CPUs: CPUs 0-3 run from 800000 to 2000000 kHz with turbo off (found 3800000,"
        " wanted 3000000). Declare a frequency in this range, or lowest or highest.",
    ),
    "a frequency between those of a table": (
        acpi,
        {"max_frequency": "2.2GHz"},
        "Cannot set max_frequency on CPUs: the driver acpi-cpufreq has 1500000, 2000000, 2450000 kHz, and would take"
        " the nearest (found 2450000, wanted 2200000). Declare one of them.",
    ),
    "the lowest above the highest": (
        intel_active,
        {"min_frequency": "3GHz", "max_frequency": "2GHz"},
        "Cannot set min_frequency on CPUs: it is above max_frequency, which is 2000000 kHz (wanted 3000000 kHz).",
    ),
    "the words the wrong way round": (
        intel_active,
        {"min_frequency": "highest", "max_frequency": "lowest"},
        "Cannot set min_frequency on CPUs: it is above max_frequency (wanted highest).",
    ),
    "the lowest above what the highest is": (
        lambda: {**intel_active(), **{f"{CPU}/cpu{n}/cpufreq/scaling_max_freq": "1000000\n" for n in range(4)}},
        {"min_frequency": "2GHz"},
        "Cannot set min_frequency on CPUs: min_frequency would be above max_frequency, 2000000 and 1000000 kHz on CPU 0"
        " (wanted 2000000). Declare max_frequency too.",
    ),
    "a negative latency": (
        intel_active,
        {"max_idle_latency_us": -1},
        "Cannot set max_idle_latency_us on CPUs: a latency is not negative (wanted -1).",
    ),
    "no idle state": (
        intel_active,
        {"max_idle_latency_us": 0},
        "Cannot set max_idle_latency_us on CPUs: C1, the shallowest idle state, takes 1 us to leave, so that CPUs could"
        " only poll (wanted 0). Declare at least 1.",
    ),
    "threads that are off for good": (
        lambda: {**intel_active(), f"{CPU}/smt/control": "forceoff\n"},
        {"smt": True},
        "Cannot enable SMT on CPUs: the kernel command line has it off until the next boot (nosmt=force). Remove"
        " nosmt=force and reboot, or declare smt: false.",
    ),
}


@pytest.mark.parametrize("given", WRONG)
def test_what_cannot_be_is_refused_with_its_reason_before_anything_changes(tmp_path: Path, given: str) -> None:
    files, declaration, message = WRONG[given]
    machine = CpuMachine(tmp_path, files())
    before = snapshot(tmp_path, leave_out=())
    with pytest.raises(DeclarationError) as caught:
        run(machine, **declaration)
    assert str(caught.value) == message
    assert snapshot(tmp_path, leave_out=()) == before


def test_forced_off_is_off(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, {**intel_active(), f"{CPU}/smt/control": "forceoff\n"})
    run(machine, smt=False, governor="performance")
    assert not any(path == "smt/control" for path, _value in machine.writes())


def test_strict_makes_an_error_of_what_is_not_there(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, acpi())
    with pytest.raises(DeclarationError) as caught:
        run(machine, energy_performance_preference="power", strict=True)
    assert str(caught.value) == (
        "Cannot set energy_performance_preference on CPUs: the driver acpi-cpufreq has none. Leave it out, or set"
        " strict: false."
    )


# Other owners

UNITS = "/usr/lib/systemd/system"
WANTS = "/etc/systemd/system/multi-user.target.wants"
INSTALL = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
TUNED = "/usr/lib/tuned/server/tuned.conf"


def with_unit(root: Path, unit: str, files: Mapping[str, str], driver: Files = intel_active) -> CpuMachine:
    """A machine with this unit enabled."""
    texts = {f"{UNITS}/{unit}": INSTALL, **files}
    return CpuMachine(root, driver(), texts, {f"{WANTS}/{unit}": f"{UNITS}/{unit}"})


def with_tuned(root: Path, text: str, driver: Files = intel_active) -> CpuMachine:
    return with_unit(root, "tuned.service", {"/etc/tuned/active_profile": "server\n", TUNED: text}, driver)


@pytest.mark.parametrize(
    ("profile", "declaration", "cause"),
    [
        ("[cpu]\ngovernor=powersave\n", {"governor": "performance"}, "governor"),
        ("[cpu]\nenergy_perf_bias=powersave\n", {"energy_performance_bias": "performance"}, "energy_performance_bias"),
        ("[cpu]\nno_turbo=1\n", {"turbo": True}, "turbo"),
        (
            "[cpu]\nenergy_performance_preference=power\n",
            {"energy_performance_preference": "balance_power"},
            "energy_performance_preference",
        ),
        (f"[sysfs]\n{CPU}/cpu*/cpufreq/scaling_max_freq=2000000\n", {"max_frequency": "3GHz"}, "max_frequency"),
        (f"[sysfs]\n{CPU}/smt/control=off\n", {"smt": True}, "smt"),
    ],
)
def test_a_profile_of_tuned_that_would_undo_it_is_named_with_its_line(
    tmp_path: Path, profile: str, declaration: Dict[str, Any], cause: str
) -> None:
    machine = with_tuned(tmp_path, profile)
    with pytest.raises(OwnedByAnother) as caught:
        run(machine, **declaration)
    message = str(caught.value)
    assert message.startswith(f"Cannot set {cause} on CPUs: tuned sets it whenever it starts, at {TUNED}:2 (found ")
    assert message.endswith("Disable tuned, or let it set the same, or set permanent: false.")
    assert machine.writes() == []
    outcome = run(machine, **declaration, permanent=False)
    (conflict,) = outcome.remaining.conflicts
    assert (conflict.owner, conflict.path, conflict.line, conflict.setting, conflict.wins) == (
        "tuned",
        TUNED,
        2,
        cause,
        "them",
    )


@pytest.mark.parametrize(
    ("profile", "declaration", "driver"),
    [
        ("[cpu]\ngovernor=schedutil|performance\nmin_perf_pct=100\n", {"governor": "performance"}, intel_active),
        ("[cpu]\nenergy_perf_bias=performance\n", {"energy_performance_bias": "performance"}, intel_active),
        ("[cpu]\nboost=1\n", {"turbo": True}, acpi),
        ("[cpu]\ngovernor=schedutil|performance\n", {"governor": "schedutil"}, intel_passive),
        ("[cpu]\ngovernor=powersave\n", {"turbo": True}, intel_active),
    ],
)
def test_a_profile_of_tuned_that_sets_the_same_is_no_matter(
    tmp_path: Path, profile: str, declaration: Dict[str, Any], driver: Files
) -> None:
    machine = with_tuned(tmp_path, profile, driver)
    assert run(machine, **declaration).remaining.conflicts == ()


@pytest.mark.parametrize(
    ("unit", "files", "owner", "where", "found"),
    [
        (
            "power-profiles-daemon.service",
            {},
            "power-profiles-daemon",
            f"as it sees fit, at {UNITS}/power-profiles-daemon.service",
            None,
        ),
        ("auto-cpufreq.service", {}, "auto-cpufreq", f"as it sees fit, at {UNITS}/auto-cpufreq.service", None),
        ("ondemand.service", {}, "ondemand", f"as it sees fit, at {UNITS}/ondemand.service", None),
        (
            "tlp.service",
            {"/etc/tlp.conf": "TLP_ENABLE=1\n#CPU_BOOST_ON_AC=0\nCPU_SCALING_GOVERNOR_ON_AC=powersave\n"},
            "tlp",
            "whenever it starts, at /etc/tlp.conf:3",
            "powersave",
        ),
    ],
)
def test_a_daemon_that_would_undo_it_is_named(
    tmp_path: Path, unit: str, files: Mapping[str, str], owner: str, where: str, found: Any
) -> None:
    machine = with_unit(tmp_path, unit, files)
    with pytest.raises(OwnedByAnother) as caught:
        run(machine, governor="performance")
    assert str(caught.value).startswith(f"Cannot set governor on CPUs: {owner} sets it {where} (")
    assert caught.value.found == found
    assert machine.writes() == []
    # One that is not enabled does nothing.
    (tmp_path / f"{WANTS.lstrip('/')}/{unit}").unlink()
    assert run(machine, governor="performance").remaining.conflicts == ()


@pytest.mark.parametrize(
    ("unit", "files", "expected"),
    [
        (
            "cpupower.service",
            {"/etc/sysconfig/cpupower": '# opts\nCPUPOWER_START_OPTS="frequency-set -g ondemand"\n'},
            ("cpupower", "/etc/sysconfig/cpupower", 2, "governor", "ondemand", "us"),
        ),
        (
            "cpupower.service",
            {"/etc/cpupower-service.conf": "#GOVERNOR='x'\nGOVERNOR='powersave'\n"},
            ("cpupower", "/etc/cpupower-service.conf", 2, "governor", "powersave", "us"),
        ),
        (
            "some.service",
            {"/etc/init.d/cpufrequtils": ""},
            ("cpufrequtils", "/etc/init.d/cpufrequtils", None, "governor", "ondemand", "us"),
        ),
        (
            "some.service",
            {"/etc/init.d/cpufrequtils": "", "/etc/default/cpufrequtils": 'ENABLE="true"\nGOVERNOR="powersave"\n'},
            ("cpufrequtils", "/etc/default/cpufrequtils", 2, "governor", "powersave", "us"),
        ),
    ],
)
def test_a_boot_script_that_comes_before_the_boot_service_is_listed(
    tmp_path: Path, unit: str, files: Mapping[str, str], expected: Any
) -> None:
    machine = with_unit(tmp_path, unit, files)
    (one,) = run(machine, governor="performance").remaining.conflicts
    assert (one.owner, one.path, one.line, one.setting, one.value, one.wins) == expected
    assert (one.object, one.accepted) == ("CPUs", "")


@pytest.mark.parametrize(
    "files",
    [
        {"/etc/init.d/cpufrequtils": "", "/etc/default/cpufrequtils": "GOVERNOR=performance\n"},
        {"/etc/init.d/cpufrequtils": "", "/etc/default/cpufrequtils": 'ENABLE="false"\n'},
    ],
)
def test_a_boot_script_that_sets_the_same_or_is_off_is_no_matter(tmp_path: Path, files: Mapping[str, str]) -> None:
    machine = with_unit(tmp_path, "some.service", files)
    assert run(machine, governor="performance").remaining.conflicts == ()


def test_who_keeps_the_machine_cool_is_named_and_nothing_is_refused(tmp_path: Path) -> None:
    machine = with_unit(tmp_path, "thermald.service", {})
    outcome = run(machine, turbo=True, max_frequency="highest")
    assert {(one.owner, one.setting, one.wins) for one in outcome.remaining.conflicts} == {
        ("thermald", "turbo", "them"),
        ("thermald", "max_frequency", "them"),
    }


def test_the_argument_that_boots_without_second_threads_has_one_owner_with_smt_and_no_other_setting() -> None:
    argument = {"kernel_cmdline": ["kernel argument nosmt"]}
    smt = CONCERN.knobs(CONCERN.parse(params(smt=False)))
    (refused,) = list(contested({}, {"cpu_power": smt, **argument}).values())
    assert str(refused).startswith("Cannot declare kernel argument nosmt: cpu_power is declared too, and sets it.")
    governor = CONCERN.knobs(CONCERN.parse(params(governor="performance")))
    assert contested({}, {"cpu_power": governor, **argument}) == {}


# The record


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("governor", "performance on x"),
        ("governor", "../x"),
        ("governor", "on 3-1"),
        ("turbo", "maybe"),
        ("max_frequency", "-1"),
        ("idle state C6", "2"),
        ("smt", "forceoff"),
        ("another", "1"),
    ],
)
def test_a_value_that_no_cpu_had_is_damage(tmp_path: Path, setting: str, value: str) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    run(machine, governor="performance")
    path = "/var/lib/gpufleet/baseline/cpu_power.json"
    document = json.loads(machine.host.files.read(path))
    entry = next(entry for entry in document["values"] if entry["setting"] == "governor")
    entry.update(setting=setting, effective=value)
    machine.host.files.replace(path, json.dumps(document))
    before = snapshot(tmp_path)
    with pytest.raises(CannotLook) as caught:
        run(machine, state="absent")
    assert f"in {path}: the file is damaged" in str(caught.value)
    assert snapshot(tmp_path) == before
