#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# fast0 is NetworkManager's, old0 that of ifupdown. Their peers answer from a network namespace, and take large packets. The firewall of
# Debian 12 is ufw here, and that of Debian 13 firewalld, with a rule that nobody has made permanent.
set -eu

# Where it may write to /sys, NetworkManager waits for udev, which containers do not have.
mount -o remount,rw /sys
mount -o remount,rw /proc/sys
mkdir -p /etc/systemd/system/NetworkManager.service.d
printf '[Service]\nReadOnlyPaths=/sys\n' > /etc/systemd/system/NetworkManager.service.d/without-udev.conf
systemctl daemon-reload
ip netns add far
for name in fast old; do
    ip link add "${name}0" type veth peer name "${name}1" netns far
    ip -n far link set "${name}1" mtu 9000 up
done
ip -n far address add 10.1.0.2/24 dev fast1
ip -n far address add 10.2.0.2/24 dev old1

# With no profile it would make one for each.
cat > /etc/NetworkManager/conf.d/here.conf << END
[main]
no-auto-default=*
[device-fast0]
match-device=interface-name:fast0
managed=1
[keyfile]
unmanaged-devices=interface-name:old0
END
systemctl restart NetworkManager.service
nmcli connection add type ethernet con-name storage ifname fast0 ipv4.method manual ipv4.addresses 10.1.0.1/24 \
    ipv6.method disabled
nmcli --wait 20 connection up storage

cat > /etc/network/interfaces.d/old0 << END
auto old0
iface old0 inet static
    address 10.2.0.1/24
END
ifup old0

. /etc/os-release
if [ "$VERSION_CODENAME" = bookworm ]; then
    ufw --force enable
    ufw deny proto tcp from 10.1.0.0/24 to any port 40000
else
    systemctl enable --now firewalld.service
    firewall-cmd --add-port=7000/tcp
fi

# What jobs, and others, listen on.
systemd-run --quiet --unit=listening.service python3 -c '
import socket, time
kept = [socket.create_server(("", port)) for port in (5000, 7000, 25000, 29500, 40000)]
while kept:
    time.sleep(60)
'
