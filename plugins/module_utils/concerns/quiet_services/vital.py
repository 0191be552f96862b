# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units that a GPU node stands on, which are never quieted, whatever the machine."""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

SYSTEM = "systemd itself works by it"
LOGIN = "people and Ansible log in by it"
NETWORK = "the network of the node needs it"
STORAGE = "the storage of the node may need it"
CLOCK = "it sets the clock, which authentication needs"
SCHEDULER = "the node's scheduler needs it"
ENGINE = "it runs the node's containers"
GPUS = "the GPUs need it"
OURS = "it applies what is declared at boot"

# Of the names of systemd those that nothing waits for.
HARMLESS = ("systemd-homed*", "systemd-oomd", "systemd-tmpfiles-clean")
VITAL: Sequence[Tuple[str, Tuple[str, ...]]] = (
    (SYSTEM, ("systemd-*", "dbus", "dbus-broker", "dbus-org.*", "init", "kmod", "udev", "emergency", "rescue")),
    (
        LOGIN,
        (
            *("ssh", "ssh@*", "sshd", "sshd@*", "sshd-*", "getty@*", "serial-getty@*", "console-getty", "autovt@*"),
            *("nscd", "nslcd", "oddjobd", "polkit", "sssd", "sssd-*", "winbind"),
        ),
    ),
    (
        NETWORK,
        (
            *("NetworkManager", "NetworkManager-*", "dhcpcd", "dhcpcd@*", "dhclient*", "ifup@*", "ifupdown*"),
            *("netplan*", "network", "networking", "nm-*", "openibd", "opensm*", "rdma*", "srp_daemon*", "teamd@*"),
            *("wicked", "wickedd*", "wpa_supplicant*"),
        ),
    ),
    (
        STORAGE,
        (
            *("autofs", "beegfs*", "blk-availability", "dm-event", "iscsi*", "lnet", "lustre*", "lvm2-*", "mdadm*"),
            *("mdmonitor*", "multipathd", "nfs-*", "nvmefc*", "nvmf-*", "open-iscsi", "rpc-*", "rpcbind", "wekafs*"),
            *("zfs-*",),
        ),
    ),
    (CLOCK, ("chrony", "chronyd", "chrony-*", "ntp", "ntpd", "ntpsec", "openntpd", "ptp4l*", "phc2sys*")),
    (
        SCHEDULER,
        (
            *("flux", "k0s*", "k3s*", "kubelet", "lsfd", "munge", "nomad", "pbs", "rke2-*", "sgeexecd*", "slurmctld"),
            *("slurmd", "slurmdbd"),
        ),
    ),
    (ENGINE, ("containerd", "cri-docker", "crio", "docker", "podman", "podman-*")),
    (
        GPUS,
        ("nv-fabricmanager", "nvidia-cdi-*", "nvidia-fabricmanager", "nvidia-imex", "nvidia-persistenced", "nvsm*"),
    ),
    (OURS, ("gpufleet-*",)),
)


def why_vital(unit: str) -> Optional[str]:
    """Why a GPU node needs the unit; None for one that it can do without."""
    stem = unit.rpartition(".")[0]
    if _is_one_of(stem, HARMLESS):
        return None
    return next((reason for reason, patterns in VITAL if _is_one_of(stem, patterns)), None)


def _is_one_of(stem: str, patterns: Tuple[str, ...]) -> bool:
    # By fnmatch every look would compile a hundred expressions, for stars that are all at the end.
    return any(stem.startswith(pattern[:-1]) if pattern.endswith("*") else stem == pattern for pattern in patterns)
