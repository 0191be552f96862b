# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A kubelet by a stand-in (kubelet_machine): where it is written, what is refused, and the order of a change."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.filter.is_disruptive import HARMLESS_TO_PODS, is_disruptive
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    GpuFleetError,
    InUse,
    OwnedByAnother,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import DRIFTED, IN_SYNC, PENDING
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kubelet_config import places, schema
from ansible_collections.gpufleet.node.tests.unit.concerns.kubelet_config.kubelet_machine import (
    CONFIG,
    CPU_STATE,
    FOLDER,
    GI,
    KUBEADM,
    LIB,
    LINKS,
    MEMORY_STATE,
    NODES,
    UNIT,
    Kubelet,
    files_of,
    machine,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build, snapshot

POD = "/run/cgroup/kubepods.slice/kubepods-pod0b7a1c2d_0000_1111_2222_333344445555.slice/cgroup.procs"
OURS = f"{FOLDER}/99-gpufleet.conf"
STATIC: Dict[str, Any] = {"cpu_manager_policy": "static", "reserved_system_cpus": "0-1", "start_timeout": 1}
MEMORY: Dict[str, Any] = {
    "memory_manager_policy": "static",
    "system_reserved": {"memory": "2Gi"},
    "kube_reserved": {"memory": "1Gi"},
    "eviction_hard": {"memory.available": "1Gi"},
    "reserved_memory": [
        {"numa_node": 0, "limits": {"memory": "3Gi"}},
        {"numa_node": 1, "limits": {"memory": "1024Mi"}},
    ],
    "start_timeout": 1,
}


def write(host: FakeHost, path: str, text: str) -> None:
    place = Path(f"{host.files.root}{path}")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def effective(outcome: Any) -> List[str]:
    return [change.setting for change in outcome.changes if change.scope == "effective"]


# --- where it is written ---


def test_a_policy_goes_into_the_file_of_kubeadm_and_the_kubelet_has_it(tmp_path: Path) -> None:
    host, kubelet = machine(tmp_path)
    before = snapshot(tmp_path)
    outcome = run(host, {**STATIC, "shutdown_grace_period": "2m"})
    assert kubelet.config is not None
    assert (kubelet.config["cpuManagerPolicy"], kubelet.config["shutdownGracePeriod"]) == ("static", "2m")
    assert kubelet.order == ["stop", "start"]
    text = host.files.read(CONFIG)
    assert "\n#gpufleet.node# shutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\n" in text
    assert places.split(text)[0] == KUBEADM
    assert outcome.effective["asked"] is True
    assert run(host, {**STATIC, "shutdown_grace_period": "120s"}).status == DRIFTED
    assert kubelet.order == ["stop", "start"], "what means the same is written, and takes no restart"
    assert run(host, {**STATIC, "shutdown_grace_period": "120s"}).changes == ()
    run(host, {}, state="absent")
    assert snapshot(tmp_path) == before
    assert kubelet.config["cpuManagerPolicy"] == "none"


def test_a_kubelet_with_drop_ins_gets_one_of_ours_and_its_file_stays(tmp_path: Path) -> None:
    host, kubelet = machine(tmp_path, drop_ins=True)
    before = snapshot(tmp_path)
    run(host, {"system_reserved": {"memory": "1Gi"}})
    assert host.files.read(CONFIG) == KUBEADM
    assert "kind: KubeletConfiguration\n" in host.files.read(OURS)
    assert kubelet.config is not None
    # A map of ours leaves what others have in theirs.
    assert kubelet.config["systemReserved"] == {"pid": "1000", "memory": "1Gi"}
    assert run(host, {"system_reserved": {"memory": "1024Mi"}}, check=True).status == DRIFTED
    assert run(host, {"system_reserved": {"memory": "1Gi"}}).changes == ()
    run(host, {}, state="absent")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("text", "values", "made"),
    [
        ("evictionHard:\n  nodefs.available: 1%\n  # theirs\nport: 10250", {"evictionHard": {}}, None),
        ("---\nfailSwapOn: true\n", {"failSwapOn": False}, "---\n{block}#gpufleet.node# failSwapOn: true\n"),
        ("reservedMemory:\n- numaNode: 0\n  limits: {}\nport: 1\n", {"reservedMemory": []}, None),
        ("'failSwapOn': true", {"failSwapOn": False}, None),
        ("kubeReserved :\n  cpu: '1'\n# theirs\n\n  memory: 1Gi\nport: 1\n", {"kubeReserved": {}}, None),
    ],
)
def test_what_ours_takes_the_place_of_comes_back_byte_for_byte(text: str, values: Any, made: Any) -> None:
    whole = places.with_ours(text, values)
    assert places.split(whole)[0] == text
    key = next(iter(values))
    assert [line for line in whole.splitlines() if line.strip("'").startswith(key)] == [
        f"{key}: {json.dumps(values[key])}"
    ]
    if made is not None:
        assert whole == made.format(block=f"{places.BEGIN}failSwapOn: false\n{places.END}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("".join(f"  {line}" for line in KUBEADM.splitlines(keepends=True)), "its keys do not begin their lines"),
        (f"\ufeff{KUBEADM}", "a byte order mark stands before the first of them"),
        (f"{KUBEADM}{places.BEGIN}failSwapOn: false\n", "one is missing or is there twice"),
        (f"{KUBEADM}failSwapOn: false\n{places.END}", "one is missing or is there twice"),
        (f"{KUBEADM}systemReserved:\n  cpu: lots\n", "'lots' is not a quantity"),
        (f"{KUBEADM}reservedMemory:\n- numaNode: 0\n", "limits"),
    ],
)
def test_a_file_that_would_be_spoilt_is_refused(tmp_path: Path, text: str, said: str) -> None:
    host, kubelet = machine(tmp_path, control_plane=False)
    write(host, CONFIG, text)
    with pytest.raises(CannotLook) as caught:
        run(host, STATIC)
    assert str(caught.value).startswith(f"Cannot parse {CONFIG}: ")
    assert said in str(caught.value)
    assert (host.files.read(CONFIG), kubelet.order) == (text, [])


def test_a_drop_in_of_ours_that_is_damaged_is_drift(tmp_path: Path) -> None:
    host, _kubelet = machine(tmp_path, drop_ins=True)
    run(host, {"system_reserved": {"memory": "1Gi"}})
    text = host.files.read(OURS)
    for damaged in ("systemReserved: lots\n", "a: &b\n", ""):
        write(host, OURS, damaged)
        assert run(host, {"system_reserved": {"memory": "1Gi"}}).status == DRIFTED
        assert host.files.read(OURS) == text


def test_of_flags_that_come_more_than_once_a_map_has_all(tmp_path: Path) -> None:
    words = ["--system-reserved=cpu=1", "--v", "2", "--system-reserved", "pid=9", "--v=4", "--fail-swap-on"]
    words += ["--reserved-memory=0:memory=1Gi", "--reserved-memory=1:memory=2Gi"]
    flags = places.flags_of([(word, "here") for word in words])
    assert {name: text for name, (text, _place) in flags.items()} == {
        "system-reserved": "cpu=1,pid=9",
        "v": "4",
        "fail-swap-on": "",
        "reserved-memory": "0:memory=1Gi;1:memory=2Gi",
    }
    host, _kubelet = machine(tmp_path)
    write(host, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--reserved-memory=x:memory=1Gi\n")
    with pytest.raises(CannotLook, match="'x' is not the number of a NUMA node"):
        run(host, STATIC)


def test_a_kubelet_that_says_how_it_is_at_another_address_is_asked_there(tmp_path: Path) -> None:
    def told(said: str) -> str:
        text = KUBEADM.replace("healthzBindAddress: 127.0.0.1", f"healthzBindAddress: {said}")
        return places.of_kubelet(host.files, UNIT, ()).healthz if not write(host, CONFIG, text) else ""

    host, _kubelet = machine(tmp_path)
    assert [told(said) for said in ("10.0.0.5", "0.0.0.0", "'::1'")] == [
        "10.0.0.5:10248",
        "127.0.0.1:10248",
        "[::1]:10248",
    ]


def test_a_file_that_kubeadm_wrote_anew_is_drift(tmp_path: Path) -> None:
    host, kubelet = machine(tmp_path)
    run(host, STATIC)
    write(host, CONFIG, KUBEADM)
    outcome = run(host, STATIC)
    assert outcome.status == DRIFTED
    assert kubelet.starts == [UNIT], "it still runs with what is declared"
    assert run(host, STATIC).changes == ()


def test_a_flag_that_counts_more_is_refused_with_its_place(tmp_path: Path) -> None:
    extra = {"/etc/default/kubelet": 'KUBELET_EXTRA_ARGS="--topology-manager-policy=best-effort"\n'}
    host, kubelet = machine(tmp_path, extra)
    before = snapshot(tmp_path)
    with pytest.raises(OwnedByAnother) as caught:
        run(host, {"topology_manager_policy": "restricted"})
    assert "the flag --topology-manager-policy in /etc/default/kubelet counts more than" in str(caught.value)
    assert (snapshot(tmp_path), kubelet.order) == (before, [])
    # One that says the same is in nobody's way.
    assert run(host, {"topology_manager_policy": "best-effort"}).error is None


def test_a_later_drop_in_of_others_is_refused(tmp_path: Path) -> None:
    later = f"{FOLDER}/99-site.conf"
    host, _kubelet = machine(tmp_path, {later: "kind: KubeletConfiguration\nfailSwapOn: false\n"}, drop_ins=True)
    with pytest.raises(OwnedByAnother, match=later):
        run(host, {"fail_swap_on": True})


K3S_UNIT = "[Service]\nExecStart=/usr/local/bin/k3s agent\n[Install]\nWantedBy=multi-user.target\n"
NO_KUBELET = {f"{LIB}/{UNIT}": None, f"{LIB}/{UNIT}.d/10-kubeadm.conf": None, f"{LIB}/k3s-agent.service": K3S_UNIT}


def k3s(tmp_path: Path, more: Mapping[str, str]) -> FakeHost:
    """An agent of k3s that does not run now; systemd does not either, so that only its next start is looked at."""
    files = {**files_of(), **NO_KUBELET, "/run/systemd/system/.keep": None, **more}
    links = {path: LINKS[path] for path in ("/proc", "/sys/fs/cgroup")}
    host = build(tmp_path, {path: text for path, text in files.items() if text is not None}, links)
    Kubelet(host)
    return host


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        ({"99-zz.conf": "5"}, "5"),
        ({"99-zz.conf": "1min 59s"}, "1min 59s"),
        ({"99-zz.conf": "2min"}, None),
        ({"99-zz.conf": "infinity"}, None),
        # Its own drop-in comes after this one.
        ({"50-site.conf": "5"}, None),
        ({"99-zz.conf": "5", "99-zzz.conf": "1h"}, None),
        ({"99-zz.conf": "5 parsecs"}, None),
    ],
)
def test_a_grace_period_that_logind_cuts_short_is_refused(
    tmp_path: Path, files: Mapping[str, str], found: Optional[str]
) -> None:
    folder = "/etc/systemd/logind.conf.d"
    texts = {f"{folder}/{name}": f"[Login]\nInhibitDelayMaxSec={value}\n" for name, value in files.items()}
    host, _kubelet = machine(tmp_path, texts)
    if found is None:
        run(host, {"shutdown_grace_period": "2m"})
        assert run(host, {"shutdown_grace_period": "2m"}).changes == ()
        return
    with pytest.raises(OwnedByAnother) as caught:
        run(host, {"shutdown_grace_period": "2m"})
    assert str(caught.value) == (
        f"Cannot set shutdownGracePeriod on kubelet: {folder}/99-zz.conf sets a shorter InhibitDelayMaxSec, and logind "
        f"reads it after the kubelet's own drop-in (found {found}, wanted 2m). Remove it there, or set it to the grace "
        "period at least."
    )


def test_a_drop_in_of_logind_that_comes_later_is_seen_on_a_node_that_was_in_sync(tmp_path: Path) -> None:
    host, _kubelet = machine(tmp_path)
    run(host, {"shutdown_grace_period": "2m"})
    write(host, "/etc/systemd/logind.conf.d/zz.conf", "[Login]\nInhibitDelayMaxSec=5\n")
    with pytest.raises(OwnedByAnother, match=r"zz\.conf sets a shorter InhibitDelayMaxSec"):
        run(host, {"shutdown_grace_period": "2m"})
    assert run(host, {}, state="absent").error is None


def test_k3s_before_1_32_gets_arguments(tmp_path: Path) -> None:
    theirs = "kubelet-arg:\n- max-pods=200\n- system-reserved=pid=1000\n"
    host = k3s(tmp_path, {"/etc/rancher/k3s/config.yaml": theirs})
    before = snapshot(tmp_path)
    run(host, {**STATIC, "system_reserved": {"memory": "1Gi"}})
    ours = host.files.read("/etc/rancher/k3s/config.yaml.d/99-gpufleet-kubelet.yaml")
    assert ours.splitlines()[1:] == [
        "kubelet-arg+:",
        '- "cpu-manager-policy=static"',
        '- "reserved-cpus=0-1"',
        '- "system-reserved=memory=1Gi,pid=1000"',
    ]
    assert run(host, {**STATIC, "system_reserved": {"memory": "1Gi"}}).changes == ()
    with pytest.raises(DeclarationError, match="takes flags alone, and it has none"):
        run(host, {"shutdown_grace_period": "1m"})
    run(host, {}, state="absent")
    assert snapshot(tmp_path) == before


def test_arguments_on_the_command_line_of_k3s_are_all_that_counts(tmp_path: Path) -> None:
    unit = f"{LIB}/k3s-agent.service"
    command = "ExecStart=/usr/local/bin/k3s \\\n    agent \\\n\t'--kubelet-arg=cpu-manager-policy=none' \\\n"
    host = k3s(tmp_path, {unit: f"[Service]\n{command}"})
    with pytest.raises(OwnedByAnother, match=r"--kubelet-arg on the command line of k3s-agent\.service counts"):
        run(host, STATIC)
    # From 1.32 on there are files for the kubelet, and only its flags count more than these.
    folder = "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"
    write(host, f"{folder}/00-k3s-defaults.conf", "kind: KubeletConfiguration\n")
    with pytest.raises(OwnedByAnother, match=r"the flag --cpu-manager-policy in k3s-agent\.service counts"):
        run(host, STATIC)
    assert run(host, {"topology_manager_policy": "restricted"}).error is None


def test_k3s_from_1_32_on_gets_a_drop_in(tmp_path: Path) -> None:
    folder = "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    host = k3s(tmp_path, {f"{folder}/00-k3s-defaults.conf": f"{head}failSwapOn: false\n"})
    run(host, {"shutdown_grace_period": "1m"})
    assert host.files.read(f"{folder}/99-gpufleet.conf").endswith('\nshutdownGracePeriod: "1m"\n')
    assert run(host, {"shutdown_grace_period": "1m"}).changes == ()


def test_what_k3s_writes_at_its_own_start_is_no_reason_for_another(tmp_path: Path) -> None:
    folder = "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"
    theirs, declared = f"{folder}/00-k3s-defaults.conf", {"shutdown_grace_period": "1m"}
    host = k3s(tmp_path, {theirs: "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"})
    run(host, declared)
    began = 100_000 * 100 + 200
    write(host, "/run/systemd/system/.keep", "")
    write(host, "/run/cgroup/system.slice/k3s-agent.service/cgroup.procs", "950\n")
    write(host, "/run/proc/950/comm", "k3s-agent\n")
    write(host, "/run/proc/950/cmdline", "/usr/local/bin/k3s\0agent\0")
    write(host, "/run/proc/950/stat", f"950 (k3s-agent) S 1 {' '.join(['0'] * 17)} {began} 0 0\n")
    host.http_get = lambda socket, target, identity=None: "ok"  # type: ignore[method-assign]
    later = time.time() + 60
    os.utime(f"{host.files.root}{theirs}", (later, later))
    outcome = run(host, declared)
    assert (outcome.changes, outcome.effective["service"], outcome.effective["asked"]) == ((), "healthy", False)
    os.utime(f"{host.files.root}{folder}/99-gpufleet.conf", (later, later))
    assert effective(run(host, declared, check=True)) == ["shutdownGracePeriod"]


# --- the order of a change, and the way back ---


def test_a_static_memory_manager_takes_the_state_file_away_and_comes_up(tmp_path: Path) -> None:
    host, kubelet = machine(tmp_path)
    run(host, MEMORY)
    assert kubelet.config is not None
    assert kubelet.config["memoryManagerPolicy"] == "Static"
    # What the inventory does not name keeps the default that a map would set to 0.
    assert kubelet.config["evictionHard"]["nodefs.available"] == "10%"
    assert json.loads(host.files.read(MEMORY_STATE))["policyName"] == "Static"
    assert run(host, MEMORY).status == IN_SYNC


def test_a_percentage_is_what_the_kubelet_makes_of_it(tmp_path: Path) -> None:
    """5 % of 32 GiB are 1717986918 bytes, and a kubelet, which counts with 32 bits, has some more."""
    host, kubelet = machine(tmp_path)
    wrong = {**MEMORY, "eviction_hard": {"memory.available": "5%"}}
    with pytest.raises(DeclarationError, match=f"eviction_hard to {3 * GI + 1717986944}: "):
        run(host, wrong)
    assert kubelet.order == []


def test_a_harmless_field_takes_a_restart_and_no_state_file(tmp_path: Path) -> None:
    host, kubelet = machine(tmp_path)
    state = host.files.version(CPU_STATE)
    write(host, POD, "7\n")
    run(host, {"shutdown_grace_period": "2m"})
    assert kubelet.order == ["restart"]
    assert host.files.version(CPU_STATE) == state


def test_a_kubelet_that_does_not_come_up_gets_its_former_files(tmp_path: Path) -> None:
    host, kubelet = machine(tmp_path)
    before = snapshot(tmp_path)
    validate = kubelet._validate

    def refuses(config: Mapping[str, Any]) -> None:
        validate(config)
        if config["topologyManagerPolicy"] == "restricted":
            raise ValueError("failed to initialize the topology manager")

    kubelet._validate = refuses  # type: ignore[method-assign]
    with pytest.raises(Refused) as caught:
        run(host, {**STATIC, "topology_manager_policy": "restricted"})
    said = str(caught.value)
    assert "it was not healthy within 1 s; its log: E1125" in said
    assert "failed to initialize the topology manager" in said
    assert "its former files are back, and with them it is healthy" in said
    assert kubelet.order == ["stop", "start", "stop", "start"]
    assert kubelet.runs
    after = snapshot(tmp_path)
    assert {path: after.get(path) for path in before} == before
    assert not [path for path in after if path not in before and path.startswith("var/lib/gpufleet")]


def test_pods_of_the_class_guaranteed_are_in_the_way(tmp_path: Path) -> None:
    host, kubelet = machine(tmp_path)
    write(host, POD, "7\n")
    before = snapshot(tmp_path)
    with pytest.raises(InUse, match="pods that may have CPUs of their own run: 0b7a1c2d-0000-1111-2222-333344445555"):
        run(host, STATIC)
    run(host, {**STATIC, "when_busy": "skip"})
    outcome = run(host, {**STATIC, "when_busy": "skip"}, check=True)
    assert (outcome.status, outcome.remaining.needs) == (PENDING, ("idle_node",))
    assert (snapshot(tmp_path, ("run", "etc"))[CONFIG[1:]], kubelet.order) == (before[CONFIG[1:]], [])
    run(host, {**STATIC, "when_busy": "ignore"})
    assert kubelet.order == ["stop", "start"]


def test_the_next_start_alone_is_refused_where_it_would_not_come_up(tmp_path: Path) -> None:
    host, kubelet = machine(tmp_path)
    with pytest.raises(
        DeclarationError, match="cpu_manager_state: it is of the policy none, and the configuration has static"
    ):
        run(host, {**STATIC, "immediate": False})
    run(host, {"shutdown_grace_period": "2m", "immediate": False})
    assert kubelet.order == []
    kubelet.reboot()
    assert effective(run(host, {"shutdown_grace_period": "2m"})) == []
    assert kubelet.order == []


# --- a kubelet that does not start any more ---


def test_the_crash_loop_after_a_plain_reboot_is_found_said_and_ended(tmp_path: Path) -> None:
    host, kubelet = machine(tmp_path)
    run(host, MEMORY)
    # The firmware leaves some pages less.
    write(host, f"{NODES}/node1/meminfo", f"Node 1 MemTotal: {16 * GI // 1024 - 8} kB\n")
    kubelet.reboot()
    assert "the expected machine state is different from the real one" in kubelet.log
    (change,) = [one for one in run(host, MEMORY, check=True).changes if one.object == MEMORY_STATE]
    assert change.before == (f"it has {16 * GI} bytes of memory on node 1, and {16 * GI - 8192} bytes are there")
    run(host, MEMORY)
    assert kubelet.runs
    assert run(host, MEMORY).status == IN_SYNC


def test_a_state_file_of_other_cpus_is_found(tmp_path: Path) -> None:
    host, kubelet = machine(tmp_path)
    run(host, STATIC)
    write(host, "/sys/devices/system/cpu/online", "0-6\n")
    kubelet.reboot()
    assert not kubelet.runs
    found = {one.object: one.before for one in run(host, STATIC, check=True).changes}
    assert found[CPU_STATE] == "it knows the CPUs 0-7, and 0-6 are there"
    run(host, STATIC)
    assert kubelet.runs


def test_a_state_file_in_the_form_of_a_later_release_is_left_to_its_kubelet(tmp_path: Path) -> None:
    host, _kubelet = machine(tmp_path)
    run(host, STATIC)
    state = {"data": {"policyName": "static"}, "checksum": 1}
    write(host, CPU_STATE, json.dumps(state))
    assert run(host, STATIC).status == IN_SYNC


# --- what is in effect ---


def test_what_configz_says_counts_and_not_the_file(tmp_path: Path) -> None:
    host, kubelet = machine(tmp_path)
    run(host, {"topology_manager_policy": "restricted"})
    assert kubelet.config is not None
    kubelet.config["topologyManagerPolicy"] = "none"
    outcome = run(host, {"topology_manager_policy": "restricted"}, check=True)
    assert effective(outcome) == ["topologyManagerPolicy"]


def test_a_field_that_the_kubelet_drops_is_a_failure(tmp_path: Path) -> None:
    """A release that is not known by its program, and does not know the field."""
    host, kubelet = machine(tmp_path)
    kubelet.release = "Kubernetes"
    kubelet.forgets = ("topologyManagerPolicy",)
    with pytest.raises(GpuFleetError) as caught:
        run(host, {"topology_manager_policy": "restricted"})
    assert "Cannot apply topologyManagerPolicy on kubelet" in str(caught.value)


def test_on_a_worker_nobody_may_ask_and_the_start_counts(tmp_path: Path) -> None:
    host, _kubelet = machine(tmp_path, control_plane=False)
    outcome = run(host, {"topology_manager_policy": "restricted"})
    assert [entry.setting for entry in outcome.remaining.unmanaged] == ["/configz"]
    assert effective(run(host, {"topology_manager_policy": "restricted"}, strict=True)) == []
    assert run(host, {"topology_manager_policy": "restricted"}).error is None
    later = Path(f"{host.files.root}{CONFIG}")
    os.utime(later, (time.time() + 60, time.time() + 60))
    outcome = run(host, {"topology_manager_policy": "restricted"}, check=True)
    assert [change.before for change in outcome.changes] == ["not known"]


def test_a_certificate_that_the_inventory_names_is_used(tmp_path: Path) -> None:
    extra = {"/etc/pki/audit.crt": "certificate", "/etc/pki/audit.key": "key"}
    host, kubelet = machine(tmp_path, extra, control_plane=False)
    kubelet.knows = ("/etc/pki/audit.crt",)
    declared = {"topology_manager_policy": "restricted", "client_certificate": "/etc/pki/audit.crt"}
    with pytest.raises(DeclarationError, match="belong together"):
        run(host, declared)
    outcome = run(host, {**declared, "client_key": "/etc/pki/audit.key"})
    assert (outcome.effective["asked"], outcome.remaining.unmanaged) == (True, ())
    with pytest.raises(DeclarationError, match=r"audit\.kye is not there"):
        run(host, {**declared, "client_key": "/etc/pki/audit.kye"}, strict=True)


def test_huge_pages_that_came_after_its_start_wait_for_an_idle_node(tmp_path: Path) -> None:
    host, kubelet = machine(tmp_path)
    run(host, {"topology_manager_policy": "restricted"})
    kubelet.order.clear()
    write(host, POD, "7\n")
    write(host, f"{NODES}/node0/hugepages/hugepages-1048576kB/nr_hugepages", "4\n")
    outcome = run(host, {"topology_manager_policy": "restricted"})
    assert (outcome.status, outcome.remaining.needs, kubelet.order) == (PENDING, ("idle_node",), [])
    (row,) = outcome.remaining.pending
    assert (row.object, row.wanted, row.effective) == ("hugepages-1Gi", 4 * GI, 0)
    host.files.remove(POD)
    host.files.remove_folder(os.path.dirname(POD))
    assert effective(run(host, {"topology_manager_policy": "restricted"})) == ["capacity"]
    assert kubelet.order == ["restart"]
    assert run(host, {"topology_manager_policy": "restricted"}).status == IN_SYNC


# --- what is refused, before anything changes ---

BAD: Dict[str, Any] = {
    "static without reserved CPUs": (
        {"cpu_manager_policy": "static"},
        "Cannot set cpuManagerPolicy: with the policy static and no reserved CPU the kubelet exits at its start."
        " Declare reserved_system_cpus, or cpu in system_reserved or kube_reserved.",
    ),
    "memory that does not add up": (
        {**MEMORY, "eviction_hard": {}},
        f"Cannot reserve memory with reservedMemory: its nodes add up to {4 * GI} bytes, and kube_reserved,"
        f" system_reserved and eviction_hard to {3 * GI + 100 * 1024**2}: the kubelet exits where they are not equal.",
    ),
    "an unknown option": (
        {**STATIC, "cpu_manager_policy_options": {"full-pcpu-only": True}},
        "Cannot set cpuManagerPolicyOptions full-pcpu-only: no kubelet knows it. Did you mean full-pcpus-only?",
    ),
    "an option of a later release": (
        {**STATIC, "cpu_manager_policy_options": {"strict-cpu-reservation": True}},
        "Cannot set cpuManagerPolicyOptions strict-cpu-reservation: this kubelet is v1.31, and it is new in v1.32.",
    ),
    "an alpha option": (
        {**STATIC, "cpu_manager_policy_options": {"distribute-cpus-across-numa": True}},
        "it is an alpha option in v1.31, and the feature gate CPUManagerPolicyAlphaOptions is off",
    ),
    "an unknown resource": (
        {"system_reserved": {"mem": "1Gi"}},
        "Cannot set systemReserved mem: no kubelet knows it. ",
    ),
    "an unknown signal": (
        {"eviction_hard": {"memory.availble": "1Gi"}},
        "Cannot set evictionHard memory.availble: no kubelet knows it. Did you mean memory.available?",
    ),
    "no quantity": ({"system_reserved": {"memory": "1GB"}}, "'1GB' is not a quantity"),
    "no duration": ({"shutdown_grace_period": "2 minutes"}, "'2 minutes' is not a duration"),
    "a node twice": (
        {"reserved_memory": [{"numa_node": 0, "limits": {"memory": "1Gi"}}] * 2},
        "reserved_memory has node 0 twice",
    ),
    "nothing of a node": (
        {"reserved_memory": [{"numa_node": 0, "limits": {"memory": "0"}}]},
        "memory of node 0 is 0, which the kubelet refuses",
    ),
    "a node that is not there": (
        {**MEMORY, "reserved_memory": [{"numa_node": 4, "limits": {"memory": "4Gi"}}]},
        "this machine has no NUMA node 4",
    ),
    "CPUs that are not there": ({"reserved_system_cpus": "0,9"}, "Cannot set reservedSystemCPUs: not online: 9"),
    "options without a policy": (
        {"cpu_manager_policy_options": {"full-pcpus-only": True}},
        "the policy none takes no options",
    ),
    "a soft threshold without its time": (
        {"eviction_soft": {"memory.available": "2Gi"}, "eviction_soft_grace_period": {"nodefs.available": "1m"}},
        "eviction_soft_grace_period lacks memory.available",
    ),
    "more for critical pods than for all": (
        {"shutdown_grace_period": "10s", "shutdown_grace_period_critical_pods": "20s"},
        "it is longer than shutdownGracePeriod",
    ),
    "a soft threshold that has its time nowhere": (
        {"eviction_soft": {"memory.available": "2Gi"}},
        "the kubelet exits where memory.available has no time in evictionSoftGracePeriod",
    ),
    "a threshold of nothing": (
        {"eviction_hard": {"memory.available": 0}},
        "Cannot use eviction_hard: a threshold of '0' is refused by the kubelet: write 0% for none.",
    ),
    "a threshold of more than all": ({"eviction_soft": {"nodefs.available": "150%"}}, "'150%' is more than 100%"),
    "a reclaim of nothing": ({"eviction_minimum_reclaim": {"nodefs.available": "0%"}}, "'0%' frees nothing"),
    "an option that is no word": (
        {**STATIC, "cpu_manager_policy_options": {"full-pcpus-only": "yes"}},
        "Cannot use cpu_manager_policy_options: full-pcpus-only is true or false, not 'yes'.",
    ),
    "an option that is no number": (
        {"topology_manager_policy_options": {"max-allowable-numa-nodes": 4}},
        "max-allowable-numa-nodes is a number of at least 8, not '4'",
    ),
    "more than Go can count": ({"shutdown_grace_period": "9999999999h"}, "longer than the 292 years"),
    "CPUs that are no list": ({"reserved_system_cpus": "0-"}, "'0-' is not a number or a range such as 0-3"),
    "more than there is": ({"kube_reserved": {"memory": "64Gi"}}, "so that no pod fits"),
    "this run alone": ({**STATIC, "permanent": False}, "permanent: false forbids that"),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_bad_input_is_refused_before_anything_changes(tmp_path: Path, name: str) -> None:
    declared, message = BAD[name]
    host, kubelet = machine(tmp_path)
    before = snapshot(tmp_path)
    with pytest.raises(DeclarationError) as caught:
        run(host, declared)
    assert message in str(caught.value)
    assert (snapshot(tmp_path), kubelet.order) == (before, [])


def test_swap_that_is_on_is_refused_before_the_kubelet_ends_at_it(tmp_path: Path) -> None:
    host, _kubelet = machine(tmp_path, {"/run/proc/swaps": "Filename\n/swap.img file 1024 0 -2\n"})
    with pytest.raises(DeclarationError, match=r"swap is on \(/swap.img\), and the kubelet exits then"):
        run(host, {"topology_manager_policy": "restricted"})
    run(host, {"fail_swap_on": False, "swap_behavior": "LimitedSwap"})


def test_more_numa_nodes_than_it_takes_are_refused(tmp_path: Path) -> None:
    extra = {f"{NODES}/node{node}/meminfo": f"Node {node} MemTotal: 1024 kB\n" for node in range(2, 9)}
    host, _kubelet = machine(tmp_path, extra)
    with pytest.raises(DeclarationError, match="this machine has 9 NUMA nodes"):
        run(host, {"topology_manager_policy": "restricted"})
    run(
        host,
        {
            "topology_manager_policy": "restricted",
            "topology_manager_policy_options": {"max-allowable-numa-nodes": 9},
        },
    )


@pytest.mark.parametrize(
    ("concern", "declaration", "message"),
    [
        (
            "cpu_isolation",
            {"housekeeping_cpus": "0-2"},
            "2 is in housekeeping_cpus of cpu_isolation, and the kubelet would",
        ),
        (
            "kernel_cmdline",
            {"arguments": {"isolcpus": "1-7"}},
            "1 is in kernel argument isolcpus of kernel_cmdline too",
        ),
    ],
)
def test_cpus_of_other_concerns_are_held_against_those_reserved(
    tmp_path: Path, concern: str, declaration: Mapping[str, Any], message: str
) -> None:
    document = {"schema": 1, "declaration": declaration}
    host, kubelet = machine(tmp_path, {f"/etc/gpufleet/declared.d/{concern}.json": json.dumps(document)})
    with pytest.raises(DeclarationError, match=message):
        run(host, STATIC)
    assert kubelet.order == []


@pytest.mark.parametrize("missing", [UNIT, CONFIG])
def test_a_machine_without_a_kubelet_is_an_error_unless_it_may_be(tmp_path: Path, missing: str) -> None:
    host, kubelet = machine(tmp_path)
    kubelet._end()
    for path in (f"{LIB}/{UNIT}", f"{LIB}/{UNIT}.d/10-kubeadm.conf") if missing == UNIT else (CONFIG,):
        host.files.remove(path)
    with pytest.raises(DeclarationError, match="Set optional: true"):
        run(host, STATIC)
    outcome = run(host, {**STATIC, "optional": True})
    assert [entry.object for entry in outcome.remaining.unmanaged] == ["kubelet"]


# --- what the fields mean ---


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("systemReserved", {"cpu": "1"}, {"cpu": "1000m"}),
        ("systemReserved", {"memory": "1.5Gi"}, {"memory": "1536Mi"}),
        ("kubeReserved", {"memory": "1e9"}, {"memory": "1G"}),
        ("evictionHard", {"memory.available": "5%"}, {"memory.available": "5.0%"}),
        ("shutdownGracePeriod", "90s", "1m30s"),
        ("shutdownGracePeriod", ".5s", "500000us"),
        ("kubeReserved", {"cpu": "+.5"}, {"cpu": "5e-1"}),
        ("reservedSystemCPUs", "0,1,2", "0-2"),
    ],
)
def test_values_are_compared_by_what_they_mean(key: str, one: Any, other: Any) -> None:
    assert schema.meaning(key, one) == schema.meaning(key, other)


@pytest.mark.parametrize("key", sorted(schema.FIELDS))
def test_a_flag_says_what_a_field_does(key: str) -> None:
    examples = {
        schema.TEXT: "static",
        schema.CPUS: "0-1",
        schema.BOOL: True,
        schema.DURATION: "30s",
        schema.SWAP: "NoSwap",
        schema.OPTIONS_MAP: {"full-pcpus-only": "true"},
        schema.QUANTITIES: {"cpu": "1", "memory": "1Gi"},
        schema.THRESHOLDS: {"memory.available": "5%"},
        schema.DURATIONS: {"memory.available": "1m"},
        schema.RESERVED: [{"numaNode": 1, "limits": {"memory": "1Gi", "hugepages-1Gi": "2Gi"}}],
    }
    value = examples[schema.FIELDS[key].kind]
    assert schema.of_flag(key, schema.shown(key, value)) == value
    assert schema.of_document(key, schema.to_document(key, value)) == value


def test_the_filter_knows_the_fields_that_harm_no_pod() -> None:
    harmless = {key for key, field in schema.FIELDS.items() if not field.drains}
    assert harmless <= HARMLESS_TO_PODS
    assert not {key for key, field in schema.FIELDS.items() if field.drains} & HARMLESS_TO_PODS


def test_a_policy_takes_a_drained_node_and_a_grace_period_does_not(tmp_path: Path) -> None:
    host, _kubelet = machine(tmp_path)
    for declared, ends in ((STATIC, True), ({"shutdown_grace_period": "2m"}, False)):
        changes = [change.as_dict() for change in run(host, declared, check=True).changes]
        assert is_disruptive({"concerns": {"kubelet_config": {"changes": changes}}}) is ends


def test_a_look_at_what_is_as_declared_runs_no_program(tmp_path: Path) -> None:
    host, _kubelet = machine(tmp_path)
    run(host, STATIC)
    host.commands.calls.clear()
    run(host, STATIC, check=True)
    assert host.commands.calls == []
