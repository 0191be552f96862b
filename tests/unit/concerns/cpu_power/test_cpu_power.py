# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPUs: what each driver takes, in which order, what is given back, and CPUs that come and go."""

from __future__ import annotations

import errno
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Mapping

import pytest
from ansible_collections.gpufleet.node.node.boot import boot
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    InUse,
    OwnedByAnother,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._node.order import in_order
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.cpu_power import later
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.cpu_power.concern import NO_DRIVER, NO_IDLE
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.cpu_power.state import by_cpu, described
from ansible_collections.gpufleet.node.tests.unit.concerns.cpu_power.cpu_machine import (
    CPU,
    DRIVERS,
    MODULES,
    CpuMachine,
    acpi,
    amd_active,
    amd_passive,
    changes_of,
    grace,
    intel_active,
    intel_passive,
    run,
    virtual,
)
from ansible_collections.gpufleet.node.tests.unit.node.boot_concern import verify
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, snapshot

GOVERNOR = "cpufreq/scaling_governor"
PREFERENCE = "cpufreq/energy_performance_preference"
LOW, HIGH = "cpufreq/scaling_min_freq", "cpufreq/scaling_max_freq"
DECLARED = "/etc/gpufleet/declared.d/cpu_power.json"
JOB = {"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_41/cgroup.procs": ""}


def untouched(machine: CpuMachine) -> Mapping[str, Any]:
    """The machine but for what the next boot clears."""
    return snapshot(machine.root)


# Each driver


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_driver_runs_all_cpus_at_the_highest_frequency_and_gives_back_what_they_had(
    tmp_path: Path, driver: str
) -> None:
    machine = CpuMachine(tmp_path, DRIVERS[driver]())
    before = untouched(machine)
    outcome = run(machine, governor="performance", max_idle_latency_us=10)
    assert machine.each(GOVERNOR) == ["performance"] * 4
    assert outcome.effective["driver"] == driver.split()[0]
    again = run(machine, governor="performance", max_idle_latency_us=10)
    assert (again.status, again.changes) == ("in_sync", ())
    run(machine, state="absent")
    assert untouched(machine) == before


def test_a_virtual_machine_has_nothing_to_set_and_says_why(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, virtual())
    outcome = run(
        machine,
        governor="performance",
        energy_performance_preference="performance",
        min_frequency="lowest",
        turbo=True,
        max_idle_latency_us=10,
        smt=False,
    )
    assert (outcome.status, machine.writes()) == ("drifted", [])
    assert [(one.object, one.setting, one.reason) for one in outcome.remaining.unmanaged] == [
        ("CPUs", "turbo", NO_DRIVER),
        ("CPUs", "governor", NO_DRIVER),
        ("CPUs", "energy_performance_preference", NO_DRIVER),
        ("CPUs", "min_frequency", NO_DRIVER),
        ("CPUs", "max_idle_latency_us", NO_IDLE),
    ]
    # Nothing comes later either, so nothing waits for it.
    assert not machine.host.files.exists(f"/etc/systemd/system/{later.UNIT}")


def test_what_a_driver_lacks_is_unmanaged_and_the_rest_is_set(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, grace())
    outcome = run(
        machine,
        governor="performance",
        energy_performance_preference="performance",
        energy_performance_bias="performance",
        turbo=False,
        smt=True,
    )
    assert machine.each(GOVERNOR) == ["performance"] * 4
    assert {one.setting: one.reason for one in outcome.remaining.unmanaged} == {
        "smt": "the cores of this machine have one thread each, or its firmware has the others off",
        "turbo": "the driver cppc_cpufreq has none",
        "energy_performance_preference": "the driver cppc_cpufreq has none",
        "energy_performance_bias": "these CPUs have none, or this kernel does not show it",
    }


def test_a_governor_that_is_a_module_is_loaded_by_the_kernel(tmp_path: Path) -> None:
    more = {MODULES: "kernel/drivers/cpufreq/cpufreq_ondemand.ko.xz:\n"}
    more.update({f"{CPU}/cpu{cpu}/cpufreq/scaling_available_governors": "performance schedutil\n" for cpu in range(4)})
    machine = CpuMachine(tmp_path, amd_passive(), more)
    run(machine, governor="ondemand")
    assert machine.each(GOVERNOR) == ["ondemand"] * 4


# Order


def test_the_governor_performance_brings_its_preference_which_is_given_back_after_the_governor(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    for cpu in range(4):
        machine.put(f"{CPU}/cpu{cpu}/{PREFERENCE}", "balance_power")
    outcome = run(machine, governor="performance")
    assert changes_of(outcome) == {
        "governor": ("powersave", "performance"),
        "energy_performance_preference": ("balance_power", "performance"),
    }
    machine.writes()
    run(machine, state="absent")
    assert machine.each(PREFERENCE) == ["balance_power"] * 4
    assert machine.writes() == [(f"cpu{cpu}/{GOVERNOR}", "powersave") for cpu in range(4)] + [
        (f"cpu{cpu}/{PREFERENCE}", "balance_power") for cpu in range(4)
    ]


def test_the_governor_goes_before_a_preference_that_it_would_refuse(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    for cpu in range(4):
        machine.put(f"{CPU}/cpu{cpu}/{GOVERNOR}", "performance")
        machine.put(f"{CPU}/cpu{cpu}/{PREFERENCE}", "performance")
    run(machine, governor="powersave", energy_performance_preference="power")
    assert (machine.each(GOVERNOR), machine.each(PREFERENCE)) == (["powersave"] * 4, ["power"] * 4)


def test_in_passive_mode_governor_and_preference_are_each_for_itself(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_passive())
    run(machine, governor="performance", energy_performance_preference="power")
    assert (machine.each(GOVERNOR), machine.each(PREFERENCE)) == (["performance"] * 4, ["power"] * 4)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [(("800000", "1200000"), ("2GHz", "3GHz")), (("2500000", "3000000"), ("900MHz", "1.5GHz"))],
    ids=["up", "down"],
)
def test_of_the_two_frequencies_the_one_that_makes_room_is_written_first(
    tmp_path: Path, found: Any, wanted: Any
) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    for cpu in range(4):
        machine.put(f"{CPU}/cpu{cpu}/{LOW}", found[0])
        machine.put(f"{CPU}/cpu{cpu}/{HIGH}", found[1])
    before = untouched(machine)
    run(machine, min_frequency=wanted[0], max_frequency=wanted[1])
    khz = {"2GHz": "2000000", "3GHz": "3000000", "900MHz": "900000", "1.5GHz": "1500000"}
    assert (machine.each(LOW), machine.each(HIGH)) == ([khz[wanted[0]]] * 4, [khz[wanted[1]]] * 4)
    run(machine, state="absent")
    assert untouched(machine) == before


def test_the_highest_frequency_is_that_of_each_cpu(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active(), {f"{CPU}/cpu1/cpufreq/cpuinfo_max_freq": "4000000\n"})
    outcome = run(machine, min_frequency="highest", max_frequency="highest")
    assert machine.each(LOW) == machine.each(HIGH) == ["3800000", "4000000", "3800000", "3800000"]
    assert changes_of(outcome)["min_frequency"] == ("800000", "3800000 on 0,2-3; 4000000 on 1")


@pytest.mark.parametrize("files", [intel_active, amd_passive], ids=["no_turbo", "boost"])
def test_what_turbo_takes_along_comes_back_with_it(tmp_path: Path, files: Any) -> None:
    machine = CpuMachine(tmp_path, files())
    for cpu in range(4):
        machine.put(f"{CPU}/cpu{cpu}/{HIGH}", "3500000")
    if files is intel_active:
        machine.put(f"{CPU}/intel_pstate/min_perf_pct", "100")
    before = untouched(machine)
    outcome = run(machine, turbo=False)
    assert changes_of(outcome)["turbo"] == ("on", "off")
    assert changes_of(outcome)["max_frequency"][0] == "3500000"
    assert set(machine.each(HIGH)) != {"3500000"}
    assert run(machine, turbo=False).changes == ()
    run(machine, state="absent")
    assert untouched(machine) == before


def test_turbo_is_on_only_where_each_policy_has_it_too(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, amd_passive())
    for cpu in (2, 3):
        machine.put(f"{CPU}/cpu{cpu}/cpufreq/boost", "0")
    before = untouched(machine)
    outcome = run(machine, turbo=True)
    assert changes_of(outcome) == {"boost": ("1 on 0-1; 0 on 2-3", "1")}
    assert machine.each("cpufreq/boost") == ["1"] * 4
    assert run(machine, turbo=True).changes == ()
    run(machine, state="absent")
    assert untouched(machine) == before
    # The switch of the machine moves those of the policies.
    run(machine, turbo=False)
    assert machine.each("cpufreq/boost") == ["0"] * 4
    run(machine, state="absent")
    assert untouched(machine) == before


def test_a_policy_that_has_no_turbo_is_left_alone(tmp_path: Path) -> None:
    perf = {f"{CPU}/cpu{cpu}/acpi_cppc/nominal_perf": "120\n" for cpu in range(4)}
    perf.update((f"{CPU}/cpu{cpu}/acpi_cppc/highest_perf", "120\n" if cpu == 3 else "166\n") for cpu in range(4))
    machine = CpuMachine(tmp_path, amd_passive(), perf)
    machine.put(f"{CPU}/cpu3/cpufreq/boost", "0")
    machine.refuses[f"{CPU}/cpu3/cpufreq/boost"] = errno.EINVAL
    assert "boost" not in changes_of(run(machine, turbo=True))
    assert run(machine, turbo=True).changes == ()


def test_the_highest_frequency_is_not_limited_for_the_whole_machine(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    machine.put(f"{CPU}/intel_pstate/max_perf_pct", "60")
    before = untouched(machine)
    assert changes_of(run(machine, max_frequency="highest")) == {"max_perf_pct": ("60", "100")}
    assert run(machine, max_frequency="highest").changes == ()
    run(machine, state="absent")
    assert untouched(machine) == before


def test_without_turbo_the_highest_frequency_is_the_nominal_one(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    run(machine, turbo=False, min_frequency="highest", max_frequency="highest")
    assert machine.each(LOW) == machine.each(HIGH) == ["2000000"] * 4


# Idle states


def test_idle_states_go_by_their_latency_and_polling_is_left_alone(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    run(machine, max_idle_latency_us=2)
    states = [machine.each(f"cpuidle/state{number}/disable") for number in range(4)]
    assert states == [["0"] * 4, ["0"] * 4, ["0"] * 4, ["1"] * 4]
    run(machine, max_idle_latency_us=1)
    assert machine.each("cpuidle/state2/disable") == ["1"] * 4
    # With more time it comes on again.
    run(machine, max_idle_latency_us=290)
    assert machine.each("cpuidle/state2/disable") == machine.each("cpuidle/state3/disable") == ["0"] * 4


def test_a_state_that_the_driver_has_off_stays_off(tmp_path: Path) -> None:
    off = {f"{CPU}/cpu{cpu}/cpuidle/state2/default_status": "disabled\n" for cpu in range(4)}
    off.update({f"{CPU}/cpu{cpu}/cpuidle/state2/disable": "1\n" for cpu in range(4)})
    machine = CpuMachine(tmp_path, intel_active(), off)
    run(machine, max_idle_latency_us=100)
    assert machine.each("cpuidle/state2/disable") == ["1"] * 4
    assert machine.each("cpuidle/state3/disable") == ["1"] * 4


def test_cpus_of_two_kinds_have_states_of_their_own(tmp_path: Path) -> None:
    slow = {f"{CPU}/cpu3/cpuidle/state2/latency": "30\n", "/sys/devices/cpu_atom/type": "10\n"}
    machine = CpuMachine(tmp_path, intel_active(), slow)
    run(machine, max_idle_latency_us=10)
    assert machine.each("cpuidle/state2/disable") == ["0", "0", "0", "1"]


# Threads


def test_second_threads_go_and_come_back_and_have_the_values_of_the_others(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    before = untouched(machine)
    run(machine, smt=False, governor="performance")
    assert machine.online == [0, 1]
    outcome = run(machine, smt=True, governor="performance")
    assert machine.each(GOVERNOR) == ["performance"] * 4
    assert changes_of(outcome) == {"smt": ("off", "on")}
    run(machine, state="absent")
    assert untouched(machine) == before


@pytest.mark.parametrize(
    ("files", "links", "who"),
    [
        (JOB, {}, "the job 41 of Slurm"),
        ({"/sys/fs/cgroup/cpuset/slurm/uid_1000/job_7/tasks": ""}, {}, "the job 7 of Slurm"),
        (
            {"/sys/fs/cgroup/kubepods.slice/kubepods-pod8c2f1f1a_0000_4000_8000_000000000001.slice/cgroup.procs": ""},
            {},
            "the pod 8c2f1f1a-0000-4000-8000-000000000001",
        ),
        ({"/sys/fs/cgroup/machine.slice/machine-qemu.scope/cgroup.procs": ""}, {}, "the virtual machine qemu"),
        ({"/proc/99/comm": "train\n"}, {"/proc/99/fd/3": "/dev/nvidia0"}, "train (pid 99)"),
    ],
    ids=["a job", "a job of cgroup v1", "a pod", "a virtual machine", "a process with a GPU"],
)
def test_threads_are_not_taken_from_who_has_them(tmp_path: Path, files: Any, links: Any, who: str) -> None:
    machine = CpuMachine(tmp_path, intel_active(), files, links)
    before = untouched(machine)
    with pytest.raises(InUse) as caught:
        run(machine, smt=False, governor="performance")
    assert str(caught.value) == (
        f"Cannot disable SMT on CPUs: {who} would lose every second CPU. Nothing was changed; drain the node or wait"
        " for them, or set when_busy: wait or skip."
    )
    assert untouched(machine) == before
    # It takes nothing away to have them.
    machine.host.files.store(f"{CPU}/smt/control", "off")
    machine.take_offline(2, 3)
    run(machine, smt=True)
    assert machine.online == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("files", "links"),
    [
        ({"/proc/99/comm": "nv-hostengine\n", "/proc/99/status": STATUS_OF_ROOT}, {"/proc/99/fd/3": "/dev/nvidia0"}),
        ({"/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/cgroup.procs": ""}, {}),
        ({"/sys/fs/cgroup/system.slice/slurmstepd.scope/system/cgroup.procs": ""}, {}),
    ],
    ids=["a monitor", "pods without CPUs of their own", "Slurm without a job"],
)
def test_who_has_no_cpus_of_its_own_is_not_in_the_way(tmp_path: Path, files: Any, links: Any) -> None:
    machine = CpuMachine(tmp_path, intel_active(), files, links)
    run(machine, smt=False)
    assert machine.online == [0, 1]


def test_threads_are_left_for_later_and_the_rest_is_set(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active(), JOB)
    skip = {"smt": False, "governor": "performance", "when_busy": "skip"}
    outcome = run(machine, **skip)
    assert (machine.online, set(machine.each(GOVERNOR))) == ([0, 1, 2, 3], {"performance"})
    assert outcome.remaining.needs == ("idle_node",)
    assert run(machine, **skip).status == "pending"
    shutil.rmtree(tmp_path / "sys/fs/cgroup")
    assert run(machine, **skip).remaining.needs == ()
    assert machine.online == [0, 1]


def test_threads_wait_for_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = CpuMachine(tmp_path, intel_active(), JOB)
    monkeypatch.setattr("time.sleep", lambda _seconds: shutil.rmtree(tmp_path / "sys/fs/cgroup"))
    run(machine, smt=False, when_busy="wait")
    assert machine.online == [0, 1]


def test_threads_come_when_the_unit_that_they_start_finds_the_new_declaration_or_is_gone(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    run(machine, smt=False, governor="performance")
    machine.host.files.log.clear()
    run(machine, smt=True, governor="performance")
    written = [path for kind, path, _value in machine.host.files.log if kind in ("set", "replace", "remove")]
    assert written.index(DECLARED) < written.index(f"{CPU}/smt/control")
    run(machine, smt=False, governor="performance")
    machine.host.files.log.clear()
    run(machine, state="absent")
    written = [path for kind, path, _value in machine.host.files.log if kind in ("set", "replace", "remove")]
    assert written.index(later.RULES) < written.index(f"{CPU}/smt/control")


@pytest.mark.parametrize("declaration", [{"smt": True}, {"state": "absent"}])
def test_threads_do_not_come_for_now_where_they_are_declared_off(tmp_path: Path, declaration: Dict[str, Any]) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    run(machine, smt=False, governor="performance")
    with pytest.raises(OwnedByAnother) as caught:
        run(machine, **declaration, permanent=False)
    assert str(caught.value) == (
        f"Cannot enable SMT on CPUs: {DECLARED} has it off, and gpufleet-cpus.service applies that to CPUs that come"
        " online. Set permanent: true."
    )
    assert machine.online == [0, 1]


def test_a_kernel_without_second_threads_has_them_off(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active(), {f"{CPU}/smt/control": "notsupported\n"})
    outcome = run(machine, smt=False)
    assert outcome.remaining.unmanaged == ()


# What the kernel does


def test_cpus_that_refuse_are_named_and_the_others_are_set(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    for cpu in (1, 2):
        machine.refuses[f"{CPU}/cpu{cpu}/{GOVERNOR}"] = errno.EIO
    with pytest.raises(Refused) as caught:
        run(machine, governor="performance")
    assert str(caught.value) == (
        f"Cannot set governor on CPUs 1-2: the kernel refused the value at {CPU}/cpu1/{GOVERNOR}: Input/output error"
        " (found powersave, wanted performance)."
    )
    assert machine.each(GOVERNOR) == ["performance", "powersave", "powersave", "performance"]
    assert not machine.host.files.exists(DECLARED)


def test_turbo_that_the_firmware_has_off_is_said(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active(), {f"{CPU}/intel_pstate/no_turbo": "1\n"})
    machine.refuses[f"{CPU}/intel_pstate/no_turbo"] = errno.EPERM
    with pytest.raises(Refused) as caught:
        run(machine, turbo=True)
    assert str(caught.value) == (
        "Cannot enable turbo on CPUs: the firmware has turbo off. Enable it there, or leave turbo out."
    )


@pytest.mark.parametrize("number", range(256))
def test_a_number_that_is_declared_is_compared_as_the_kernel_shows_it(tmp_path: Path, number: int) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    for cpu in range(4):
        machine.put(f"{CPU}/cpu{cpu}/{PREFERENCE}", "7" if number != 7 else "8")
    if number in (128, 192):
        with pytest.raises(Refused, match=rf"the kernel shows {number} as (balance_\w+) on CPU 0. Declare .*: \1\."):
            run(machine, energy_performance_preference=str(number))
        return
    assert run(machine, energy_performance_preference=f"{number:03}").changes
    assert machine.each(PREFERENCE) == [{0: "performance", 255: "power"}.get(number, str(number))] * 4
    assert not run(machine, energy_performance_preference=f"{number:03}").changes


def test_a_driver_that_takes_only_names_is_given_the_name_of_a_number(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, amd_active())
    machine.takes_numbers = False
    run(machine, energy_performance_preference="255")
    assert machine.each(PREFERENCE) == ["power"] * 4


def test_a_cpu_that_goes_offline_meanwhile_is_no_failure(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    machine.refuses[f"{CPU}/cpu3/{GOVERNOR}"] = errno.EBUSY
    gone: List[int] = []

    def go() -> None:
        if not gone and any("cpu0" in path for _kind, path, _value in machine.host.files.log):
            gone.append(3)
            machine.take_offline(3)

    machine.host.files.before_effect = go
    run(machine, governor="performance")
    assert (gone, machine.each(GOVERNOR)) == ([3], ["performance"] * 3)


# Later, and at boot


def test_a_cpu_that_comes_online_later_is_seen_and_the_boot_service_sets_it(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    machine.take_offline(3)
    run(machine, governor="performance", max_idle_latency_us=2)
    machine.bring_online(3)
    outcome = run(machine, check_mode=True, governor="performance", max_idle_latency_us=2)
    assert changes_of(outcome)["governor"] == ("performance on 0-2; powersave on 3", "performance")
    assert boot(machine.host, concerns=["cpu_power"]) == 0
    assert machine.each(GOVERNOR) == ["performance"] * 4
    assert machine.each("cpuidle/state3/disable") == ["1"] * 4


def test_the_boot_service_sets_all_cpus_and_the_declaration_stays_in_sync(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    declaration: Dict[str, Any] = {"governor": "performance", "turbo": False, "smt": False}
    run(machine, **declaration)
    machine.put(f"{CPU}/smt/control", "on")
    machine.bring_online(2, 3)
    machine.put(f"{CPU}/intel_pstate/no_turbo", "0")
    for cpu in range(4):
        machine.put(f"{CPU}/cpu{cpu}/{GOVERNOR}", "powersave")
    assert boot(machine.host) == 0
    outcome = run(machine, **declaration)
    assert (outcome.status, outcome.changes) == ("in_sync", ())


def test_without_the_boot_service_nothing_is_kept_and_that_is_said_before_anything_changes(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    (tmp_path / "etc/systemd/system/multi-user.target.wants/gpufleet-boot.service").unlink()
    with pytest.raises(Refused, match="the boot service is not enabled"):
        run(machine, governor="performance")
    assert machine.writes() == []
    run(machine, governor="performance", permanent=False)
    assert machine.each(GOVERNOR) == ["performance"] * 4


def test_the_unit_and_the_rule_come_and_go_with_the_declaration(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    run(machine, governor="performance")
    assert machine.host.files.read(later.RULES) == later.RULES_TEXT
    assert "boot --concern cpu_power --again 2" in machine.host.files.read(f"/etc/systemd/system/{later.UNIT}")
    run(machine, state="absent")
    assert not machine.host.files.exists(f"/etc/systemd/system/{later.UNIT}")
    assert not machine.host.files.exists(later.RULES)


def test_systemd_and_udev_accept_the_unit_and_the_rule(tmp_path: Path) -> None:
    assert verify(tmp_path, {later.UNIT: later.unit_text()}, checked=later.UNIT) == []
    udevadm = shutil.which("udevadm")
    if udevadm is None:
        pytest.skip("there is no udevadm here")
    (tmp_path / "99.rules").write_text(later.RULES_TEXT)
    done = subprocess.run([udevadm, "verify", str(tmp_path / "99.rules")], capture_output=True, text=True, check=False)
    if "nknown command" in done.stderr:
        pytest.skip("udevadm verify came with systemd 254")
    assert (done.returncode, done.stderr) == (0, "")


def test_interrupts_are_placed_after_the_cpus_and_again_when_they_change() -> None:
    names = [entry.name for entry in in_order(REGISTRY)]
    assert names.index("node_tools") < names.index("cpu_power") < names.index("numa_irq_affinity")
    (entry,) = (entry for entry in REGISTRY if entry.name == "cpu_power")
    assert entry.registration.disturbs == ("numa_irq_affinity",)


# Given back


def test_cpus_that_differed_get_each_their_own_back(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, acpi())
    for cpu, governor in enumerate(("ondemand", "schedutil", "ondemand", "powersave")):
        machine.put(f"{CPU}/cpu{cpu}/{GOVERNOR}", governor)
    before = untouched(machine)
    outcome = run(machine, governor="performance")
    assert changes_of(outcome) == {
        "governor": ("ondemand on 0,2; schedutil on 1; powersave on 3", "performance"),
    }
    run(machine, state="absent")
    assert untouched(machine) == before


def test_what_another_driver_does_not_have_cannot_be_given_back(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    run(machine, energy_performance_preference="power")
    for cpu in range(4):
        (tmp_path / f"{CPU.lstrip('/')}/cpu{cpu}/{PREFERENCE}").unlink()
    outcome = run(machine, state="absent")
    assert [(one.setting, one.reason) for one in outcome.remaining.unmanaged] == [
        ("energy_performance_preference", "the driver that has the CPUs now does not have it")
    ]


def test_a_look_at_many_cpus_reads_what_is_declared_and_no_more(tmp_path: Path) -> None:
    machine = CpuMachine(tmp_path, intel_active())
    run(machine, governor="performance")
    machine.host.files.reads.clear()
    run(machine, governor="performance")
    per_cpu = {path.rpartition("/")[2] for path in machine.host.files.reads if f"{CPU}/cpu3/" in path}
    assert per_cpu == {"scaling_governor", "energy_performance_preference"}


@pytest.mark.parametrize(
    "values",
    [{0: "a", 1: "a"}, {0: "800000", 1: "900000", 2: "800000"}, {5: "on"}],
)
def test_what_is_said_of_cpus_is_read_again(values: Dict[int, str]) -> None:
    text = described(values)
    assert text is not None
    assert by_cpu(text) in (None, values)
