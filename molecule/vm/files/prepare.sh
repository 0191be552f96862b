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
# What a vendor left, under a name that sorts behind the usual ones.
echo 'vm.swappiness = 30' >/etc/sysctl.d/99-zz-vendor.conf
echo 30 >/proc/sys/vm/swappiness
# A swap file, as cloud-init and an installer make it.
fallocate --length 64M /swap.img
chmod 0600 /swap.img
mkswap /swap.img
# On a server with this table of ACPI the kernel loads it by itself; by the emulated CPU it does not know.
echo acpi-cpufreq >/etc/modules-load.d/cpufreq.conf
modprobe acpi-cpufreq
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
  # Swap of cloud-init, and what is left when it has set up an instance.
  mkdir -p /etc/cloud/cloud.cfg.d /var/lib/cloud/instances/iid-datasource-none/sem
  printf '#cloud-config\nswap:\n  filename: /swap.img\n  size: 64M\n' >/etc/cloud/cloud.cfg.d/90-swap.cfg
  ln -s /var/lib/cloud/instances/iid-datasource-none /var/lib/cloud/instance
  touch /var/lib/cloud/instance/sem/config_mounts
  printf '/swap.img\tnone\tswap\tsw,comment=cloudconfig\t0\t0\n' >>/etc/fstab
  swapon --all
  # At boot tuned comes last of all. This profile of its package sets keys that are declared.
  echo latency-performance >/etc/tuned/active_profile
  echo manual >/etc/tuned/profile_mode
  systemctl enable --now tuned
  timeout 120 sh -c 'until grep -q "static tuning .* applied" /var/log/tuned/tuned.log; do sleep 0.5; done'
  # A disk of another machine, which here is this one. It has no UUID of which a name of the host could be made.
  mkdir /etc/nvme
  echo nqn.2014-08.org.nvmexpress:uuid:2b7e1516-28ae-42a6-abf7-158809cf4f3c >/etc/nvme/hostnqn
  echo 2b7e1516-28ae-42a6-abf7-158809cf4f3c >/etc/nvme/hostid
  head --bytes=8M /dev/urandom >/var/lib/nvme-target.img
  cat >/etc/systemd/system/nvme-target.service <<'UNIT'
[Unit]
Before=network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /root/nvme_target.sh

[Install]
WantedBy=multi-user.target
UNIT
  systemctl daemon-reload
  systemctl enable --now nvme-target
  ;;
trixie)
  # On the other node the interrupts stay where they are, so that it can be told whether they come back.
  systemctl enable --now irqbalance
  # Who may launch beside root, and who may not.
  groupadd gpu-users
  useradd --groups gpu-users member
  useradd stranger
  # A GPU that can be lent to a virtual machine, from before anybody asks what is on the bus.
  cat >/etc/systemd/system/lent.service <<'UNIT'
[Unit]
DefaultDependencies=no
Before=gpufleet-passthrough.service systemd-udev-trigger.service systemd-modules-load.service sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /root/lent.sh look

[Install]
WantedBy=sysinit.target
UNIT
  systemctl daemon-reload
  systemctl enable --now lent
  # Swap of an installer.
  echo '/swap.img none swap sw,pri=7 0 0' >>/etc/fstab
  swapon --all
  ;;
esac
# A timer that runs and is enabled, of a package: the image has those of Debian masked.
mkdir -p /usr/local/lib/systemd/system
printf '[Service]\nType=oneshot\nExecStart=/bin/true\n' >/usr/local/lib/systemd/system/demo-index.service
printf '[Timer]\nOnCalendar=yearly\n[Install]\nWantedBy=timers.target\n' >/usr/local/lib/systemd/system/demo-index.timer
systemctl daemon-reload
systemctl enable --now demo-index.timer
sh stand_ins.sh
python3 said.py >before.said
python3 interrupts.py before >before.interrupts
# An initramfs has the time of its making in it.
find /etc /boot -xdev -type f ! -name resolv.conf ! -name 'initrd.img-*' ! -path '/etc/.*' -exec sha256sum {} + >before.sums
