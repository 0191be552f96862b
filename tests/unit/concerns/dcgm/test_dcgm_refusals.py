# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused before anything changes: the exact message, and a machine as it was."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, NotInEffect
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import DRIFTED, IN_SYNC
from ansible_collections.gpufleet.node.plugins.module_utils._linux.packages import DPKG
from ansible_collections.gpufleet.node.tests.unit.concerns.dcgm.dcgm_machine import (
    ALL,
    COUNTERS,
    ENGINE,
    ETC,
    EXPORTER,
    LIB,
    SHIPPED,
    dcgm_of,
    files_of,
    machine,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, FakeHost, build, snapshot

BOTH = {"host_engine": True, "exporter": True}
UNKNOWN = "no generation of DCGM has this field, and the exporter would exit because of it"
CONTAINER = "0::/kubepods.slice/cri-containerd-" + "ab12" * 16 + ".scope\n"


def metric(name: str, **more: Any) -> Dict[str, Any]:
    return {**BOTH, "metrics": [{"name": name, **more}]}


# By name: the declaration, and the message.
DECLARED: Dict[str, Tuple[Mapping[str, Any], str]] = {
    "nothing": (
        {"alert_metrics": True},
        "Cannot read the declaration: nothing is declared. Set host_engine: true, exporter: true, or both.",
    ),
    "a typo": (
        metric("DCGM_FI_DEV_GPU_TEMPS"),
        f"Cannot export DCGM_FI_DEV_GPU_TEMPS: {UNKNOWN}. Did you mean DCGM_FI_DEV_GPU_TEMP?",
    ),
    "a name without its prefix": (
        metric("GPU_TEMP"),
        f"Cannot export GPU_TEMP: {UNKNOWN}. Did you mean DCGM_FI_DEV_GPU_TEMP?",
    ),
    "a name that is like none": (
        metric("temperature"),
        f"Cannot export temperature: {UNKNOWN}. See dcgmi dmon --list for all fields.",
    ),
    "two of a name": (
        {**BOTH, "metrics": [{"name": "DCGM_FI_DEV_PSTATE"}, {"name": "DCGM_FI_DEV_PSTATE"}]},
        "Cannot export DCGM_FI_DEV_PSTATE: it is declared twice. Remove one of the two from metrics.",
    ),
    "a help of two lines": (
        metric("DCGM_FI_DEV_PSTATE", help="a\nDCGM_FI_DEV_NAME, label, b"),
        "Cannot export DCGM_FI_DEV_PSTATE: its help is not a single line of text. Write it as one line.",
    ),
    "a metric that is excluded": (
        {**metric("DCGM_FI_DEV_PSTATE"), "exclude_metrics": ["*_PSTATE"]},
        "Cannot export DCGM_FI_DEV_PSTATE: *_PSTATE in exclude_metrics excludes it. Remove one of the two.",
    ),
    "metrics without the exporter": (
        {"host_engine": True, "metrics": [{"name": "DCGM_FI_DEV_PSTATE"}]},
        "Cannot read the declaration: metrics belong to the exporter, which is not declared. Set exporter: true.",
    ),
    "watches without the engine": (
        {"exporter": True, "health_watches": ["all"]},
        "Cannot read the declaration: health_watches belong to the host engine, which is not declared. Set"
        " host_engine: true.",
    ),
    "an unknown watch": (
        {**BOTH, "health_watches": ["ecc"]},
        "Cannot watch ecc: there is no such watch. The watches are all, inforom, memory, nvlink, pcie, thermal.",
    ),
    "no metric": (
        {**BOTH, "shipped_metrics": False, "alert_metrics": False},
        "Cannot read the declaration: the exporter would have no metric. List some in metrics, or set"
        " shipped_metrics: true.",
    ),
    "no metric that is left": (
        {**BOTH, "exclude_metrics": ["DCGM_*"]},
        "Cannot export metrics on nvidia-dcgm-exporter.service: no metric is left. List some in metrics, or exclude"
        " fewer in exclude_metrics.",
    ),
    "files that may not last": (
        {**BOTH, "permanent": False},
        "Cannot read the declaration: the exporter and the health watches are set through files, which count at the"
        " next boot too, and permanent: false forbids that. Set permanent: true.",
    ),
    "a field of another release": (
        metric("DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
        "Cannot export DCGM_FI_DEV_GPU_TEMP_CELSIUS: DCGM 4.5 on this machine does not have this field"
        " (it is new in release 4.6). Did you mean DCGM_FI_DEV_GPU_TEMP_LIMIT?",
    ),
    "a field of generation 3": (
        metric("DCGM_FI_DEV_NVSWITCH_LINK_DEVICE_UUID"),
        "Cannot export DCGM_FI_DEV_NVSWITCH_LINK_DEVICE_UUID: DCGM 4.5 on this machine does not have "
        "this field (only generation 3 has it). Did you mean DCGM_FI_DEV_NVSWITCH_DEVICE_UUID?",
    ),
}


def refused(host: FakeHost, declared: Mapping[str, Any]) -> str:
    """The message, after which the machine is as it was."""
    root = Path(host.files.root)
    before = snapshot(root, leave_out=())
    memory = dcgm_of(host).state()
    with pytest.raises(GpuFleetError) as caught:
        run(host, declared)
    after = {path: entry for path, entry in snapshot(root, leave_out=()).items() if not path.startswith("run/gpufleet")}
    assert after == before
    assert dcgm_of(host).state() == memory
    return str(caught.value)


@pytest.mark.parametrize("name", DECLARED)
def test_a_wrong_declaration_changes_nothing(tmp_path: Path, name: str) -> None:
    declared, message = DECLARED[name]
    assert refused(machine(tmp_path), declared) == message


def test_the_installed_generation_decides_about_a_field(tmp_path: Path) -> None:
    host = machine(tmp_path, 3)
    assert refused(host, metric("DCGM_FI_DEV_CLOCKS_EVENT_REASONS")) == (
        "Cannot export DCGM_FI_DEV_CLOCKS_EVENT_REASONS: DCGM 3.3 on this machine does not have this field"
        " (only generation 4 has it). Did you mean DCGM_FI_DEV_CLOCK_THROTTLE_REASONS?"
    )


LACKING: Dict[str, Tuple[Mapping[str, Optional[str]], str]] = {
    "the engine": (
        {f"{LIB}/{ENGINE}": None},
        "Cannot run nvidia-dcgm.service: this machine has no host engine of DCGM. Install"
        " datacenter-gpu-manager-4-core (datacenter-gpu-manager for generation 3), or set optional: true.",
    ),
    "the exporter": (
        {f"{LIB}/{EXPORTER}": None, "/usr/bin/dcgm-exporter": None},
        "Cannot run nvidia-dcgm-exporter.service: this machine has no dcgm-exporter. Install"
        " datacenter-gpu-manager-exporter, or set optional: true.",
    ),
    "a unit that starts it by another program": (
        {f"{LIB}/{EXPORTER}": "[Service]\nExecStart=/usr/bin/docker run dcgm-exporter\n[Install]\nWantedBy=a.target\n"},
        "Cannot choose the metrics of nvidia-dcgm-exporter.service: it does not start dcgm-exporter itself, so its"
        " options cannot be set in a drop-in (found /usr/bin/docker run dcgm-exporter). Set alert_metrics: false and no"
        " other metrics, or install the unit of NVIDIA's package.",
    ),
    "a variable with the file of metrics": (
        {
            f"{LIB}/{EXPORTER}": "[Service]\nEnvironment=OPTS=--collectors=/etc/a.csv\n"
            "ExecStart=/usr/bin/dcgm-exporter $OPTS\n[Install]\nWantedBy=a.target\n"
        },
        "Cannot choose the metrics of nvidia-dcgm-exporter.service: a variable in its command line has --collectors,"
        " and the exporter ends where it gets -f too (found /usr/bin/dcgm-exporter $OPTS). Take it out of the variable,"
        " or set alert_metrics: false and no other metrics.",
    ),
    "a drop-in after ours": (
        {f"{ETC}/{EXPORTER}.d/zz.conf": "[Service]\nExecStart=\nExecStart=/usr/bin/dcgm-exporter -f /etc/a.csv\n"},
        f"Cannot choose the metrics of nvidia-dcgm-exporter.service: {ETC}/{EXPORTER}.d/zz.conf is read after"
        f" {ETC}/{EXPORTER}.d/99-gpufleet-dcgm.conf, and sets ExecStart= too. Remove ExecStart= from it, or leave the"
        " exporter out of the declaration.",
    ),
    "a masked engine": (
        {f"{ETC}/{ENGINE}": ""},
        "Cannot run nvidia-dcgm.service: it is masked. Run systemctl unmask nvidia-dcgm.service, or leave it out of"
        " the declaration.",
    ),
    "an exporter in a container": (
        {
            "/run/proc/77/comm": "dcgm-exporter\n",
            "/run/proc/77/cgroup": CONTAINER,
            "/run/proc/77/status": STATUS_OF_ROOT,
        },
        "Cannot start nvidia-dcgm-exporter.service: dcgm-exporter (pid 77, container ab12ab12ab12) already runs. Stop"
        " it, or leave exporter out for nodes of the GPU Operator.",
    ),
    "an engine that somebody started": (
        {
            "/run/proc/77/comm": "nv-hostengine\n",
            "/run/proc/77/status": STATUS_OF_ROOT,
            "/run/proc/77/cgroup": "0::/user.slice/user-0.slice/session-3.scope\n",
        },
        "Cannot start nvidia-dcgm.service: nv-hostengine (pid 77, session-3.scope) already runs. Stop it, or"
        " leave host_engine out for nodes of the GPU Operator.",
    ),
}


@pytest.mark.parametrize("name", LACKING)
def test_what_the_machine_does_not_allow_changes_nothing(tmp_path: Path, name: str) -> None:
    extra, message = LACKING[name]
    assert refused(machine(tmp_path, extra=extra), BOTH) == message


def listening(address: str, environment: str = "") -> Dict[str, str]:
    """An exporter that listens at this address, and another program at its usual one."""
    line = "   0: 00000000:24B8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100\n"
    command = f"/usr/bin/dcgm-exporter{address} -f {SHIPPED}"
    return {
        f"{LIB}/{EXPORTER}": f"[Service]\n{environment}ExecStart={command}\n[Install]\nWantedBy=a.target\n",
        "/run/proc/net/tcp": f"  sl  local_address\n{line}",
        "/run/proc/77/comm": "python3\n",
        "/run/proc/77/cgroup": "0::/system.slice/other.service\n",
    }


@pytest.mark.parametrize("address", ["", " -a :9400", " -a :${PORT}"])
def test_who_listens_at_the_port_of_the_exporter_is_named(tmp_path: Path, address: str) -> None:
    host = machine(tmp_path, extra=listening(address, "Environment=PORT=9400\n"))
    (tmp_path / "run/proc/77/fd").mkdir()
    (tmp_path / "run/proc/77/fd/3").symlink_to("socket:[4711]")
    assert refused(host, ALL) == (
        "Cannot start nvidia-dcgm-exporter.service: python3 (pid 77, other.service) listens on its port 9400. Stop"
        " it, or leave exporter out for nodes of the GPU Operator."
    )


@pytest.mark.parametrize("address", [" -a :9401", " -a :${PORT}", " -a :dcgm", ""])
def test_who_listens_at_another_port_is_not_in_the_way(tmp_path: Path, address: str) -> None:
    extra = listening(address, "Environment=PORT=9401 DCGM_EXPORTER_LISTEN=:9401\n")
    run(machine(tmp_path, extra=extra), ALL, check=True)


def test_what_is_optional_may_be_missing(tmp_path: Path) -> None:
    lacking = {f"{LIB}/{ENGINE}": None, f"{LIB}/{EXPORTER}": None, "/usr/bin/dcgm-exporter": None}
    host = machine(tmp_path, extra=lacking)
    outcome = run(host, ALL, optional=True, strict=True)
    assert [entry.object for entry in outcome.remaining.unmanaged] == [ENGINE, EXPORTER]
    assert not host.files.exists(COUNTERS)
    assert run(host, ALL, optional=True, strict=True).changes == ()


def deb(name: str, version: str, more: str = "") -> str:
    """The entry of an installed package in the status of dpkg."""
    return f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n{more}\n"


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ("datacenter-gpu-manager-4-cuda12", ("datacenter-gpu-manager-4-cuda12", "installed", "not installed")),
        ("dcgm-core=1:4.6.*", ("dcgm-core", "1:4.6.*", "1:4.5.3-1")),
        ("dcgm-core:arm64", ("dcgm-core:arm64", "installed", "not installed")),
    ],
)
def test_a_package_that_is_declared_and_not_there_is_drift(
    tmp_path: Path, declared: str, found: Tuple[str, str, str]
) -> None:
    host = machine(tmp_path)
    run(host, ALL)
    build(tmp_path, {DPKG: deb("dcgm-core", "1:4.5.3-1")})
    look = run(host, {**ALL, "packages": [declared]}, check=True)
    wrong = [row for row in look.remaining.settings if row.setting == "package" and row.status == DRIFTED]
    assert [(row.object, row.wanted, row.effective) for row in wrong] == [found]
    with pytest.raises(NotInEffect, match=f"{re.escape(found[0])} is {found[2]}, wanted is {re.escape(found[1])}"):
        run(host, {**ALL, "packages": [declared]})
    sound = ["dcgm-core=1:4.5.*", "dcgm-core", "dcgm-core:amd64", "./a.deb", "https://a.example/b.deb", "dcgm-*"]
    run(host, {**ALL, "packages": sound})
    assert run(host, {**ALL, "packages": sound}).status == IN_SYNC


def test_what_the_packages_of_the_role_will_bring_is_drift_and_not_a_wrong_declaration(tmp_path: Path) -> None:
    lacking = {f"{LIB}/{ENGINE}": None, f"{LIB}/{EXPORTER}": None, "/usr/bin/dcgm-exporter": None}
    host = machine(tmp_path, extra=lacking)
    declared = {**ALL, "optional": True, "packages": ["datacenter-gpu-manager-4-core"]}
    outcome = run(host, declared, check=True)
    found = {row.object: row.effective for row in outcome.remaining.settings if row.setting == "program"}
    assert (outcome.status, found) == (DRIFTED, {ENGINE: "not installed", EXPORTER: "not installed"})
    with pytest.raises(NotInEffect, match=r"no host engine of DCGM and this machine has no dcgm-exporter\."):
        run(host, declared)
    assert not host.files.exists(COUNTERS)
    assert dcgm_of(host).starts == []
    build(tmp_path, {path: text for path, text in files_of().items() if path in lacking})
    build(tmp_path, {DPKG: deb("datacenter-gpu-manager-4-core", "1:4.5.3-1")})
    run(host, declared)
    assert run(host, declared).status == IN_SYNC
