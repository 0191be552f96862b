#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# Makes of a bare node one that others had before us, and remembers how it was.
set -eu
cd /root
# What Ansible sends is compiled once here, and not for every module. Not in the image: what is measured there pays for it.
mkdir /var/cache/kept-bytecode
mv kept_bytecode.py /usr/lib/python3/dist-packages/
echo 'import kept_bytecode' >/usr/lib/python3/dist-packages/kept_bytecode.pth
case $(cat /etc/hostname) in
bookworm)
  # A daemon that keeps nothing, by a drop-in that somebody left.
  mkdir /etc/systemd/system/nvidia-persistenced.service.d
  cat >/etc/systemd/system/nvidia-persistenced.service.d/fleet.conf <<'UNIT'
[Service]
ExecStart=
ExecStart=/usr/bin/nvidia-persistenced --user nvpd --no-persistence-mode
UNIT
  systemctl daemon-reload
  systemctl enable --now nvidia-persistenced
  ;;
trixie)
  # On the other node the interrupts stay where they are, so that it can be told whether they come back.
  systemctl enable --now irqbalance
  ;;
esac
# What a vendor left, under a name that sorts behind the usual ones.
echo 'vm.swappiness = 30' >/etc/sysctl.d/99-zz-vendor.conf
echo 30 >/proc/sys/vm/swappiness
# Swap as an installer makes it, in use and in fstab.
fallocate --length 64M /swap.img
chmod 0600 /swap.img
mkswap /swap.img
echo '/swap.img none swap sw,pri=7 0 0' >>/etc/fstab
# A timer that runs and is enabled, of a package: the image has those of Debian masked.
mkdir -p /usr/local/lib/systemd/system
printf '[Service]\nType=oneshot\nExecStart=/bin/true\n' >/usr/local/lib/systemd/system/demo-index.service
printf '[Timer]\nOnCalendar=yearly\n[Install]\nWantedBy=timers.target\n' >/usr/local/lib/systemd/system/demo-index.timer
systemctl daemon-reload
systemctl enable --now demo-index.timer
swapon --priority 7 /swap.img
sh stand_ins.sh
python3 said.py >before.said
python3 interrupts.py before >before.interrupts
find /etc /boot -xdev -type f ! -name resolv.conf ! -path '/etc/.*' -exec sha256sum {} + >before.sums
