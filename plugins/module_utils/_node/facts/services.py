# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is installed and what runs: units of systemd, container engines and orchestrators, by their files alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Mapping, Optional, Tuple

from ..._linux import packages
from ..._linux.systemd import FOLDERS
from .fields import Facts, Fields, read

if TYPE_CHECKING:
    from ..._core.protocols import Files

# Where the unified hierarchy of control groups has services, and the older one.
CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd")
SLICES = ("system.slice", "runtime.slice", "podruntime.slice")
PROGRAM_FOLDERS = (
    *("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"),
    *("/snap/bin", "/opt/bin", "/var/lib/rancher/rke2/bin"),
)

# The program of each engine, the packages that bring it, and the units of its daemon, none where it has no daemon.
ENGINES: Mapping[str, Tuple[str, Tuple[str, ...], Tuple[str, ...]]] = {
    "docker": ("dockerd", ("docker-ce", "docker.io", "moby-engine"), ("docker",)),
    "containerd": ("containerd", ("containerd.io", "containerd", "moby-containerd"), ("containerd",)),
    "crio": ("crio", ("cri-o",), ("crio",)),
    "podman": ("podman", ("podman",), ()),
    "apptainer": ("apptainer", ("apptainer",), ()),
    "k3s": ("k3s", (), ("k3s", "k3s-agent")),
    "rke2": ("rke2", (), ("rke2-server", "rke2-agent")),
    "nvidia-container-toolkit": ("nvidia-ctk", ("nvidia-container-toolkit",), ()),
}
# What schedules the work of a node, with the units of systemd and the configuration by which it is known.
ORCHESTRATORS: Mapping[str, Tuple[Tuple[str, ...], Tuple[str, ...]]] = {
    "kubelet": (("kubelet",), ("/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet.conf")),
    "k3s": (("k3s", "k3s-agent"), ("/etc/rancher/k3s/config.yaml", "/etc/rancher/k3s/k3s.yaml")),
    "rke2": (("rke2-server", "rke2-agent"), ("/etc/rancher/rke2/config.yaml",)),
    "slurmd": (("slurmd",), ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")),
    "nomad": (("nomad",), ("/etc/nomad.d/nomad.hcl",)),
}


def find_program(files: Files, name: str) -> Optional[str]:
    """Where a program lies, of the folders that a login shell looks into."""
    return next((f"{folder}/{name}" for folder in PROGRAM_FOLDERS if files.exists(f"{folder}/{name}")), None)


def find_unit(files: Files, *names: str) -> Optional[str]:
    """The file of the first of these services that is installed, and not masked."""
    for name in names:
        found = (f"{folder}/{name}.service" for folder in FOLDERS)
        path = next((path for path in found if files.exists(path)), None)
        if path is not None and files.resolve(path) != "/dev/null":
            return path
    return None


def runs(files: Files, *names: str) -> Tuple[Optional[bool], str]:
    """Whether one of these services has processes: systemd keeps a control group only for those."""
    tops = [f"{top}/{part}" for top in CGROUPS for part in SLICES]
    if not any(files.exists(top) for top in tops):
        return None, "the control groups of the system are not visible from here"
    return any(files.exists(f"{top}/{name}.service") for top in tops for name in names), ""


def service(files: Files, *names: str) -> Facts:
    """One service, which distributions may call differently."""
    fields = Fields()
    fields.add("unit", find_unit(files, *names), "it is not installed")
    fields.add("running", *runs(files, *names))
    return fields.facts


def engines(files: Files) -> List[Facts]:
    """The container engines that are installed."""
    found = []
    binaries = {name: find_program(files, program) for name, (program, *_others) in ENGINES.items()}
    status, reason = read(files, packages.DPKG) if any(binaries.values()) else (None, "")
    names = [name for _program, those, _units in ENGINES.values() for name in those]
    versions = {one.name: one.version for one in packages.of_dpkg(status or "", names)}
    for name, binary in binaries.items():
        if binary is not None:
            _program, those, units = ENGINES[name]
            fields = Fields(name=name, binary=binary)
            version = next((versions[package] for package in those if package in versions), None)
            fields.add("version", version, reason or "no dpkg package owns it")
            if units:
                fields.add("running", *runs(files, *units))
            else:
                fields.lack("it has no daemon", "running")
            found.append(fields.facts)
    return found


def orchestrators(files: Files) -> List[Facts]:
    """What schedules work here: known by its unit or by its configuration."""
    found = []
    for name, (units, configurations) in ORCHESTRATORS.items():
        unit = find_unit(files, *units)
        configuration = next((path for path in configurations if files.exists(path)), None)
        if unit is not None or configuration is not None:
            fields = Fields(name=name)
            fields.add("unit", unit, "it is not installed as a service")
            fields.add("configuration", configuration, f"there is none of {', '.join(configurations)}")
            fields.add("running", *runs(files, *units))
            found.append(fields.facts)
    return found


def package_version(files: Files, name: str) -> Optional[str]:
    """The version of one package that dpkg has installed."""
    return next((one.version for one in packages.of_dpkg(read(files, packages.DPKG)[0] or "", [name])), None)
