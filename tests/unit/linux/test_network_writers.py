# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of those that bring network interfaces up, as the commands that they amount to.

The forms are those of the manual pages systemd.link(5) and systemd.network(5) of systemd 252, nm-settings-nmcli(5) of
NetworkManager 1.42, interfaces(5) of ifupdown 0.8.41 with /etc/network/if-up.d/ethtool of ethtool 6.1 in Debian 12,
doc/sysconfig.txt and network-functions of initscripts, ifcfg(5) and compat-suse.c of wicked, and plugin_net.py of
tuned 2.20. The scripts of packages are, in part, those of Debian 12: network-manager 1.42.4, bridge-utils 1.7.1,
ifenslave 2.13, vlan 2.0.5 and ethtool 6.1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux import boot_writers
from ansible_collections.gpufleet.node.tests.unit.support import KernelFiles, build

NET = "/sys/class/net"
LINK = "/etc/systemd/network/10-nic.link"
NETWORK = "/etc/systemd/network/10-nic.network"
PROFILE = "/etc/NetworkManager/system-connections/gpu.nmconnection"
ACTIVE = "/run/NetworkManager/devices/2"
IFCFG = "/etc/sysconfig/network-scripts/ifcfg-eth0"
SUSE = "/etc/sysconfig/network/ifcfg-eth0"
INTERFACES = "/etc/network/interfaces"
TUNED = "/etc/tuned/gpu/tuned.conf"
WANTS = "/etc/systemd/system/multi-user.target.wants"
UNITS = "/usr/lib/systemd/system"
DEVICES = "/sys/devices/pci0000:15/0000:17:00.0/net/eth0", "/sys/devices/virtual/net/bond0"
HOOKS, DISPATCHED = "/etc/network/if-up.d", "/etc/NetworkManager/dispatcher.d"
WICKED = {"/run/wicked/leaseinfo.eth0.dhcp.ipv4": ""}
Command = Tuple[str, str, Optional[int], str, str, bool]


def enabled(unit: str) -> Dict[str, str]:
    return {f"{UNITS}/{unit}": "[Install]\n", f"{WANTS}/{unit}": "[Install]\n"}


def machine(root: Path, files: Mapping[str, str]) -> KernelFiles:
    there = {f"{place}/ifindex": f"{number}\n" for number, place in enumerate(DEVICES, 2)}
    return build(root, {**there, **files}, {f"{NET}/{place.rpartition('/')[2]}": place for place in DEVICES}).files


def commands(files: KernelFiles) -> List[Command]:
    found = (one for program in ("ethtool", "ip") for one in boot_writers.commands(files, program))
    return [(one.owner, one.path, one.line, one.target, " ".join(one.arguments), one.in_doubt) for one in found]


TAKEN = {"/run/udev/data/n2": f"I:1\nE:ID_NET_DRIVER=mlx5_core\nE:ID_NET_LINK_FILE={LINK}\n"}
CONNECTED = {ACTIVE: "[device]\nmanaged=1\nconnection-uuid=6f1d-aa\n"}
UP = {"/run/network/ifstate": "lo=lo\neth0=eth0\n"}
SOURCES: Dict[str, Tuple[Mapping[str, str], List[Command]]] = {
    "a .link file": (
        {
            **TAKEN,
            LINK: "[Match]\nDriver=mlx5_core\n[Link]\nRxBufferSize=8192\nCombinedChannels=max\nRxCoalesceSec=8us\n"
            "UseAdaptiveRxCoalesce=no\nRxFlowControl=yes\nGenericReceiveOffload=false\nMTUBytes=9K\nName=nic0\n",
            f"{LINK}.d/50-more.conf": "[Link]\nTxBufferSize=512\n",
        },
        [
            ("systemd.link", LINK, 4, "ethtool", "-G eth0 rx 8192", False),
            ("systemd.link", LINK, 5, "ethtool", "-L eth0 combined max", False),
            ("systemd.link", LINK, 6, "ethtool", "-C eth0 rx-usecs 8", False),
            ("systemd.link", LINK, 7, "ethtool", "-C eth0 adaptive-rx off", False),
            ("systemd.link", LINK, 8, "ethtool", "-A eth0 rx on", False),
            ("systemd.link", LINK, 9, "ethtool", "-K eth0 gro off", False),
            ("systemd.link", f"{LINK}.d/50-more.conf", 2, "ethtool", "-G eth0 tx 512", False),
            ("systemd.link", LINK, 10, "ip", "link set dev eth0 mtu 9216", False),
        ],
    ),
    "a .link file that udev took for no interface": ({LINK: "[Match]\nName=eth9\n[Link]\nRxBufferSize=8192\n"}, []),
    "a .link file that only names": ({**TAKEN, LINK: "[Match]\nDriver=mlx5_core\n[Link]\nName=nic0\n"}, []),
    "a .network file": (
        {
            "/run/systemd/netif/links/2": f"ADMIN_STATE=configured\nNETWORK_FILE={NETWORK}\n",
            NETWORK: "[Match]\nName=eth*\n[Link]\nMTUBytes=9000\n",
        },
        [("systemd-networkd", NETWORK, 4, "ip", "link set dev eth0 mtu 9000", False)],
    ),
    "a .network file of another interface": (
        {
            "/run/systemd/netif/links/2": f"ADMIN_STATE=unmanaged\nNETWORK_FILE={NETWORK}\n",
            NETWORK: "[Link]\nMTUBytes=9000\n",
        },
        [],
    ),
    "a profile of NetworkManager": (
        {
            **CONNECTED,
            PROFILE: "[connection]\nuuid=6f1d-aa\n[ethernet]\nmtu=9000\n[ethtool]\nring-rx=4096\n"
            "channels-combined=16\ncoalesce-adaptive-rx=0\ncoalesce-rx-usecs=8\nfeature-gro=false\npause-rx=true\n",
        },
        [
            ("NetworkManager", PROFILE, 6, "ethtool", "-G eth0 rx 4096", False),
            ("NetworkManager", PROFILE, 7, "ethtool", "-L eth0 combined 16", False),
            ("NetworkManager", PROFILE, 8, "ethtool", "-C eth0 adaptive-rx off", False),
            ("NetworkManager", PROFILE, 9, "ethtool", "-C eth0 rx-usecs 8", False),
            ("NetworkManager", PROFILE, 10, "ethtool", "-K eth0 gro off", False),
            ("NetworkManager", PROFILE, 11, "ethtool", "-A eth0 rx on", False),
            ("NetworkManager", PROFILE, 4, "ip", "link set dev eth0 mtu 9000", False),
        ],
    ),
    "a profile that is not in effect": (
        {**CONNECTED, PROFILE: "[connection]\nuuid=1\ninterface-name=eth0\n[ethtool]\nring-rx=4096\n"},
        [("NetworkManager", PROFILE, 5, "ethtool", "-G eth0 rx 4096", True)],
    ),
    "a profile that waits for a command": (
        {
            **CONNECTED,
            PROFILE: "[connection]\nuuid=1\ninterface-name=eth0\nautoconnect=false\n[ethtool]\nring-rx=4096\n",
        },
        [],
    ),
    "a profile without NetworkManager": (
        {PROFILE: "[connection]\nuuid=1\ninterface-name=eth0\n[ethtool]\nring-rx=4096\n"},
        [],
    ),
    "NetworkManager that is enabled": (
        {**enabled("NetworkManager.service"), PROFILE: "[connection]\ninterface-name=eth0\n[ethtool]\nring-rx=4096\n"},
        [("NetworkManager", PROFILE, 4, "ethtool", "-G eth0 rx 4096", True)],
    ),
    "a script of NetworkManager": (
        {
            **CONNECTED,
            "/etc/NetworkManager/dispatcher.d/50-ring": "#!/bin/sh\n[ $2 = up ] || exit 0\nethtool -G $1 rx 4096\n",
        },
        [("NetworkManager", "/etc/NetworkManager/dispatcher.d/50-ring", 3, "ethtool", "-G * rx 4096", True)],
    ),
    "scripts of NetworkManager before an interface is up, and beside others": (
        {
            **CONNECTED,
            f"{DISPATCHED}/pre-up.d/50-ring": "#!/bin/sh\nethtool -G $1 rx 1\n",
            f"{DISPATCHED}/no-wait.d/50-ring": "#!/bin/sh\nethtool -G $1 rx 2\n",
            f"{DISPATCHED}/pre-down.d/50-ring": "#!/bin/sh\nethtool -G $1 rx 3\n",
        },
        [
            ("NetworkManager", f"{DISPATCHED}/pre-up.d/50-ring", 2, "ethtool", "-G * rx 1", True),
            ("NetworkManager", f"{DISPATCHED}/no-wait.d/50-ring", 2, "ethtool", "-G * rx 2", True),
        ],
    ),
    "scripts of ifupdown that NetworkManager runs": (
        {
            **CONNECTED,
            f"{DISPATCHED}/01-ifupdown": '#!/bin/sh -e\nexport IFACE="$1"\nrun-parts /etc/network/if-up.d\n',
            f"{HOOKS}/mtu": "#!/bin/sh\nip link set dev $IFACE mtu 9000\n",
            "/etc/network/if-pre-up.d/mtu": "#!/bin/sh\nip link set dev $IFACE mtu 1\n",
        },
        [("NetworkManager", f"{HOOKS}/mtu", 2, "ip", "link set dev eth0 mtu 9000", True)],
    ),
    "ifcfg, by NetworkManager": (
        {
            **CONNECTED,
            IFCFG: 'DEVICE=eth0\nUUID=6f1d-aa\nMTU=9000\nETHTOOL_OPTS="-G ${DEVICE} rx 256; -L eth0 rx 1; wol d"\n',
        },
        [
            ("NetworkManager", IFCFG, 4, "ethtool", "-G eth0 rx 256", False),
            ("NetworkManager", IFCFG, 3, "ip", "link set dev eth0 mtu 9000", False),
        ],
    ),
    "ifcfg, by the scripts of RHEL": (
        {
            "/etc/rc.d/rc3.d/S10network": "",
            IFCFG: 'ETHTOOL_OPTS="-K ${DEVICE} tso on; -G ${DEVICE} rx 256 tx 256"\n',
            f"{IFCFG}.bak": 'ETHTOOL_OPTS="-G eth0 rx 1"\n',
        },
        [
            ("network-scripts", IFCFG, 1, "ethtool", "-K eth0 tso on", False),
            ("network-scripts", IFCFG, 1, "ethtool", "-G eth0 rx 256 tx 256", False),
        ],
    ),
    "ifcfg that nothing reads": ({IFCFG: 'ETHTOOL_OPTS="-G eth0 rx 256"\n'}, []),
    "ifcfg without wicked": ({SUSE: "STARTMODE=auto\nMTU='9000'\nETHTOOL_OPTIONS='-G iface rx 1'\n"}, []),
    "wicked that is enabled": (
        {**enabled("wickedd.service"), SUSE: "MTU=9000\n"},
        [("wicked", SUSE, 1, "ip", "link set dev eth0 mtu 9000", False)],
    ),
    "wicked": (
        {
            **WICKED,
            SUSE: "STARTMODE=auto\nMTU='9000'\nETHTOOL_OPTIONS='autoneg off'\nETHTOOL_OPTIONS_gro='-K iface gro off'\n",
        },
        [
            ("wicked", SUSE, 4, "ethtool", "-K eth0 gro off", False),
            ("wicked", SUSE, 2, "ip", "link set dev eth0 mtu 9000", False),
        ],
    ),
    "commands of ifupdown": (
        {
            **UP,
            INTERFACES: "auto eth0\niface eth0 inet static\n  up ethtool -G $IFACE rx 4096 || true\n"
            "  post-up ip link set dev ${IFACE} mtu 9000\n  down ethtool -G eth0 rx 1\n  mtu 1500\n"
            "iface eth9 inet static\n  up ethtool -G eth9 rx 2\n",
        },
        [
            ("ifupdown", INTERFACES, 3, "ethtool", "-G eth0 rx 4096", False),
            ("ifupdown", INTERFACES, 4, "ip", "link set dev eth0 mtu 9000", False),
            ("ifupdown", INTERFACES, 6, "ip", "link set dev eth0 mtu 1500", False),
        ],
    ),
    "options of the package ethtool": (
        {
            **UP,
            "/etc/network/if-up.d/ethtool": '#!/bin/sh\n$ETHTOOL --pause "$IFACE" $SETTINGS\n',
            INTERFACES: "iface eth0 inet static\n  hardware-dma-ring-rx 4096\n  hardware-irq-coalesce-rx-usecs 8\n"
            "  ethernet-pause-tx off\n  offload-gro off\n",
        },
        [
            ("ifupdown", INTERFACES, 2, "ethtool", "-G eth0 rx 4096", False),
            ("ifupdown", INTERFACES, 3, "ethtool", "-C eth0 rx-usecs 8", False),
            ("ifupdown", INTERFACES, 4, "ethtool", "-A eth0 tx off", False),
            ("ifupdown", INTERFACES, 5, "ethtool", "-K eth0 gro off", False),
        ],
    ),
    "options without the package": ({**UP, INTERFACES: "iface eth0 inet static\n  hardware-dma-ring-rx 4096\n"}, []),
    "an interface that ifupdown brings up at the next boot": (
        {**enabled("networking.service"), INTERFACES: "auto eth0\niface eth0 inet static\n  mtu 9000\n"},
        [("ifupdown", INTERFACES, 3, "ip", "link set dev eth0 mtu 9000", True)],
    ),
    "scripts of ifupdown": (
        {
            **UP,
            "/etc/network/if-pre-up.d/ring": "#!/bin/sh\nethtool -G eth0 rx 512\n",
            f"{HOOKS}/mtu": '#!/bin/sh\ncase "$IFACE" in\neth*)\n  ip link set dev "$IFACE" mtu 9000\n  ;;\nesac\n',
        },
        [
            ("ifupdown", "/etc/network/if-pre-up.d/ring", 2, "ethtool", "-G eth0 rx 512", True),
            ("ifupdown", f"{HOOKS}/mtu", 4, "ip", "link set dev eth0 mtu 9000", True),
        ],
    ),
    "scripts of ifupdown for interfaces that it leaves alone": (
        {**enabled("networking.service"), f"{HOOKS}/mtu": "#!/bin/sh\nip link set dev $IFACE mtu 9000\n"},
        [],
    ),
    "scripts of Debian's packages": (
        {
            **UP,
            "/etc/network/if-pre-up.d/bridge": '#!/bin/sh\nfor port in $i\ndo\n  if [ "$IF_MTU" ]\n  then\n'
            '    ip link set dev $port mtu "$IF_MTU"\n  fi\ndone\n',
            "/etc/network/if-pre-up.d/vlan": '#!/bin/sh\nif [ -n "$IF_MTU" -a -n "$IF_VLAN_RAW_DEVICE" ]; then\n'
            "    ip link set dev $IF_VLAN_RAW_DEVICE mtu $IF_MTU\nfi\n",
            "/etc/network/if-pre-up.d/ifenslave": '#!/bin/sh\nip link set "$slave" down 2>/dev/null\n',
            "/etc/network/if-pre-up.d/ethtool": '#!/bin/sh\n[ -z "$S" ] || /sbin/ethtool --change "$IFACE" $S\n',
            f"{HOOKS}/ifenslave": '#!/bin/sh\nip link show "$IFACE" | grep -sq "state UP"\n',
            f"{HOOKS}/ethtool": '#!/bin/sh\n[ -z "$SETTINGS" ] || /sbin/ethtool --offload "$IFACE" $SETTINGS\n',
            f"{HOOKS}/ip": '#!/bin/sh\n[ -n "$IF_MTU" ] && ip link set "$IFACE" mtu "$IF_MTU"\n',
        },
        [],
    ),
    "tuned": (
        {
            "/etc/tuned/active_profile": "gpu\n",
            f"{WANTS}/tuned.service": "",
            TUNED: "[net]\ncoalesce=rx-usecs 3, tx-usecs 16\nring=rx: 1024\nmtu=9000\nwake_on_lan=g\n",
        },
        [
            ("tuned", TUNED, 2, "ethtool", "-C eth0 rx-usecs 3 tx-usecs 16", False),
            ("tuned", TUNED, 3, "ethtool", "-G eth0 rx 1024", False),
            ("tuned", TUNED, 4, "ip", "link set dev eth0 mtu 9000", False),
        ],
    ),
    "tuned for other interfaces": (
        {
            "/etc/tuned/active_profile": "gpu\n",
            f"{WANTS}/tuned.service": "",
            TUNED: "[net]\ndevices=!eth*\nring=rx 1024\n",
        },
        [],
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_the_commands_that_a_file_amounts_to(name: str, tmp_path: Path) -> None:
    files, expected = SOURCES[name]
    assert commands(machine(tmp_path, files)) == expected


def test_what_changed_is_read_again_and_nothing_else(tmp_path: Path) -> None:
    files = machine(tmp_path, {**CONNECTED, PROFILE: "[connection]\nuuid=6f1d-aa\n[ethtool]\nring-rx=4096\n"})
    assert [one[4] for one in commands(files)] == ["-G eth0 rx 4096"]
    files.reads.clear()
    assert [one[4] for one in commands(files)] == ["-G eth0 rx 4096"]
    assert files.reads == []
    (tmp_path / PROFILE.lstrip("/")).write_text("[connection]\nuuid=6f1d-aa\n[ethtool]\nring-rx=512\n")
    assert [one[4] for one in commands(files)] == ["-G eth0 rx 512"]
    # A folder that was not there.
    (tmp_path / "run/wicked").mkdir()
    (tmp_path / SUSE.lstrip("/")).parent.mkdir(parents=True)
    (tmp_path / SUSE.lstrip("/")).write_text("MTU=9000\n")
    assert [one[4] for one in commands(files)] == ["-G eth0 rx 512", "link set dev eth0 mtu 9000"]


FOLDERS = (
    *(f"{DISPATCHED}/{below}" for below in ("no-wait.d", "pre-down.d", "pre-up.d", "pre-up.d/old")),
    "/usr/lib/NetworkManager/dispatcher.d/pre-up.d",
    "/etc/NetworkManager/conf.d/old.conf",
    "/etc/NetworkManager/system-connections/old.nmconnection",
    "/etc/network/interfaces.d/old",
    "/etc/network/if-pre-up.d/old",
    f"{HOOKS}/old",
    "/etc/sysconfig/network-scripts/ifcfg-old",
    "/etc/sysconfig/network/ifcfg-old",
    "/etc/systemd/network/10-old.network",
    f"{LINK}.d/old.conf",
)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_among_the_files_says_nothing(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder.lstrip("/")).mkdir(parents=True)
    there = {**CONNECTED, **UP, **WICKED, INTERFACES: "iface eth0 inet dhcp\n  mtu 9000\n"}
    expected = [("ifupdown", INTERFACES, 2, "ip", "link set dev eth0 mtu 9000", False)]
    assert commands(machine(tmp_path, there)) == expected


def test_a_system_with_the_package_network_manager(tmp_path: Path) -> None:
    """The folders of network-manager 1.42.4 in Debian 12."""
    for top in ("/etc", "/usr/lib"):
        for below in ("no-wait.d", "pre-down.d", "pre-up.d"):
            (tmp_path / f"{top}/NetworkManager/dispatcher.d/{below}".lstrip("/")).mkdir(parents=True)
    for below in ("conf.d", "system-connections"):
        (tmp_path / "etc/NetworkManager" / below).mkdir()
    there = {
        **enabled("NetworkManager.service"),
        "/etc/NetworkManager/NetworkManager.conf": "[main]\nplugins=ifupdown,keyfile\n\n[ifupdown]\nmanaged=false\n",
        f"{DISPATCHED}/01-ifupdown": '#!/bin/sh -e\nexport IFACE="$1"\nrun-parts /etc/network/if-up.d\n',
    }
    assert commands(machine(tmp_path, {**CONNECTED, **there})) == []


def test_a_script_that_need_not_be_waited_for_is_read_once(tmp_path: Path) -> None:
    """NetworkManager-dispatcher(8): it has a link that leads into no-wait.d."""
    files = machine(tmp_path, {**CONNECTED, f"{DISPATCHED}/no-wait.d/50-ring": "#!/bin/sh\nethtool -G $1 rx 2\n"})
    (tmp_path / DISPATCHED.lstrip("/") / "50-ring").symlink_to("no-wait.d/50-ring")
    assert [one[1] for one in commands(files)] == [f"{DISPATCHED}/50-ring"]


def test_a_number_of_any_length_is_read(tmp_path: Path) -> None:
    """From 3.11 on Python makes no number of more than 4300 digits."""
    digits = "9" * 5000
    there = {LINK: f"[Link]\nRxCoalesceSec={digits}us\nMTUBytes={digits}\nRxBufferSize={digits}\n"}
    there[PROFILE] = f"[connection]\nuuid=6f1d-aa\n[ethernet]\nmtu={digits}\n"
    assert [one[4] for one in commands(machine(tmp_path, {**TAKEN, **CONNECTED, **there}))] == [
        "-C eth0 rx-usecs *",
        f"-G eth0 rx {digits}",
    ]


def test_who_does_not_ask_for_interfaces_reads_nothing_of_them(tmp_path: Path) -> None:
    files = machine(tmp_path, {**TAKEN, LINK: "[Link]\nRxBufferSize=512\n", SUSE: "MTU=9000\n"})
    assert boot_writers.read(files) == ()
    assert boot_writers.commands(files, "nvidia-smi") == ()
    assert not {LINK, SUSE} & set(files.reads)
