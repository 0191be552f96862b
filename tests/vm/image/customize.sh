#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# Turns a fresh Debian tree into the root file system of a node. Runs inside the tree (chroot), once per image.
#   $1  UUID that the root file system is going to have
#
# Everything that differs between nodes (host name, keys, machine id) is not here: it is written to the node's disk before
# its first boot, so that an image holds no secret.
set -eu
uuid=$1
version=$(ls /lib/modules)

# --- base -----------------------------------------------------------------------------------------------------------------

echo 'LABEL=root / ext4 errors=remount-ro 0 1' >/etc/fstab

# One NIC carries the management network, and its address is the one that QEMU's user-mode network reserves for the guest: no
# DHCP round trip. The data NICs match nothing here and stay as the kernel left them.
cat >/etc/systemd/network/10-management.network <<'NETWORK'
[Match]
MACAddress=52:54:00:6d:67:01

[Network]
Address=10.0.2.15/24
Gateway=10.0.2.2
LinkLocalAddressing=no
IPv6AcceptRA=no
NETWORK
systemctl enable systemd-networkd.service

# Without KVM a boot is bound by what the CPU executes. Left out: background jobs that would disturb a measurement, consoles
# nobody types on, helpers for hardware that is not there. Kept: everything that applies a setting (udev, tmpfiles, sysctl,
# modules-load) and what a reboot goes through (logind).
systemctl set-default multi-user.target
systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
  fstrim.timer man-db.timer systemd-tmpfiles-clean.timer \
  getty.target getty-static.service systemd-networkd-wait-online.service systemd-network-generator.service \
  grub-common.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount \
  modprobe@drm.service modprobe@efi_pstore.service modprobe@fuse.service sys-fs-fuse-connections.mount \
  systemd-pstore.service systemd-udev-load-credentials.service
mkdir -p /etc/systemd/system-generators
for generator in debug getty gpt-auto hibernate-resume run ssh system-update tpm2; do
  ln -s /dev/null "/etc/systemd/system-generators/systemd-$generator-generator"
done
# These caches are fresh: the first boot need not rebuild them.
touch /etc/.updated /var/.updated

# There for who wants them, as they were before they were ever enabled.
for unit in irqbalance.service docker.service docker.socket containerd.service slurmctld.service slurmd.service munge.service; do
  if [ -e "/usr/lib/systemd/system/$unit" ]; then systemctl disable "$unit"; fi
done

rm -f /etc/ssh/ssh_host_*
cat >/etc/ssh/sshd_config.d/10-bed.conf <<'SSHD'
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
SSHD

# --- GPUs -----------------------------------------------------------------------------------------------------------------

# The distribution's own unit of nvidia-persistenced and its user. The daemon itself comes with the GPUs of a node, as does the
# driver's library; without GPUs the unit stays disabled.
(
  cd /tmp
  apt-get download nvidia-persistenced
  dpkg-deb --fsys-tarfile nvidia-persistenced_*.deb | tar --extract --to-stdout --wildcards \
    './*lib/systemd/system/nvidia-persistenced.service' >/usr/lib/systemd/system/nvidia-persistenced.service
  rm nvidia-persistenced_*.deb
)
grep -q '^ExecStart=/usr/bin/nvidia-persistenced --user nvpd' /usr/lib/systemd/system/nvidia-persistenced.service
useradd --system --user-group --home-dir /var/run/nvpd --no-create-home --shell /usr/sbin/nologin nvpd

# What a driver does when it is loaded: the GPUs are there before anything that uses them, and have forgotten what they forget.
cat >/usr/lib/systemd/system/bed-gpus.service <<'UNIT'
[Unit]
Description=Simulated GPUs
DefaultDependencies=no
ConditionPathExists=/opt/gpus.tar
RequiresMountsFor=/opt /var
After=systemd-remount-fs.service
Before=sysinit.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /usr/lib/bed-gpus

[Install]
WantedBy=sysinit.target
UNIT
cat >/usr/lib/bed-gpus <<'SCRIPT'
set -eu
if [ -d /opt/nvml_simulator ]; then
  nvml-sim reboot
else
  tar --extract --directory /opt --file /opt/gpus.tar
  ln -s /opt/nvml_simulator/libnvidia-ml.so.1 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1
  ln -s /opt/nvml_simulator/nvml-sim /usr/local/bin/nvml-sim
  ln -s /opt/nvml_simulator/nvidia-persistenced /opt/nvml_simulator/nvidia-smi /usr/bin/
  ldconfig
  mkdir -p /var/lib/nvml_simulator
  nvml-sim create /opt/nvml_simulator/node/*.json
  # NVSwitches come with their daemon.
  if nvml-sim describe --json | grep '"nvlink_remote": 2' >/dev/null; then
    ln -s /opt/nvml_simulator/nv-fabricmanager /usr/bin/nv-fabricmanager
  fi
fi
# Who has one open is found by its name; behind each is what is behind /dev/null.
while read -r device; do
  mknod --mode=666 "/dev/$device" c 1 3
done </opt/nvml_simulator/node/devices
SCRIPT
cat >/usr/lib/systemd/system/nvidia-fabricmanager.service <<'UNIT'
[Unit]
Description=Stand-in for the fabric manager
ConditionFileIsExecutable=/usr/bin/nv-fabricmanager

[Service]
Type=notify
ExecStart=/usr/bin/nv-fabricmanager

[Install]
WantedBy=multi-user.target
UNIT
systemctl enable bed-gpus.service nvidia-fabricmanager.service

# --- boot -----------------------------------------------------------------------------------------------------------------

# The root disk is virtio, ext4 is in the kernel: an initramfs of these two drivers is small, and reading and unpacking it is a
# good part of a boot without KVM. The hardware database (names for keyboards and the like) would be half of it.
mkdir -p /etc/initramfs-tools/conf.d
printf 'MODULES=list\nCOMPRESS=lz4\n' >/etc/initramfs-tools/conf.d/bed
printf 'virtio_pci\nvirtio_blk\n' >>/etc/initramfs-tools/modules
rm -f /usr/lib/udev/hwdb.bin /etc/udev/hwdb.bin
# No part of the root is on an array, a mapped device or XFS. On an emulated CPU the first of these takes 15 s of the minute that
# update-initramfs takes.
for hook in mdadm dmsetup xfs keymap; do
  if [ -e "/usr/share/initramfs-tools/hooks/$hook" ]; then chmod a-x "/usr/share/initramfs-tools/hooks/$hook"; fi
done
update-initramfs -u -k "$version"

# The settings that the package grub-pc would have asked for. An operator changes GRUB_CMDLINE_LINUX, so it starts empty.
# panic=1: the emulated CPU now and then loses a patch of the running kernel (int3 in sched_clock_cpu); a reset helps.
# tsc=reliable: the kernel distrusts the emulated TSC and would pay a device access for every look at the clock.
cat >/etc/default/grub <<'GRUB'
GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_DISTRIBUTOR=Debian
GRUB_CMDLINE_LINUX_DEFAULT="console=ttyS0,115200n8 quiet tsc=reliable panic=1"
GRUB_CMDLINE_LINUX=""
GRUB_TERMINAL="serial"
GRUB_SERIAL_COMMAND="serial --unit=0 --speed=115200"
GRUB_DISABLE_OS_PROBER=true
GRUB
mkdir -p /etc/default/grub.d /boot/grub/i386-pc
cp /usr/lib/grub/i386-pc/*.mod /usr/lib/grub/i386-pc/*.lst /boot/grub/i386-pc/

# What grub-install would have written to the first sectors: GRUB with just enough to find the root file system and to hand
# over to its grub.cfg. lnxboot.img lets a virtual machine monitor load it the way it loads a kernel. From here on the node's
# own /boot decides what is booted. Core and modules must come from the same GRUB, hence here and not on the build host.
cat >/tmp/core.cfg <<'CORE'
serial --unit=0 --speed=115200
terminal_output serial
search --no-floppy --label --set=root root
set prefix=($root)/boot/grub
configfile $prefix/grub.cfg
CORE
grub-mkimage -O i386-pc -p /boot/grub -c /tmp/core.cfg -o /tmp/core.img \
  biosdisk ext2 normal linux search search_label search_fs_uuid configfile part_msdos serial terminal echo test ls gzio
cat /usr/lib/grub/i386-pc/lnxboot.img /tmp/core.img >/boot/grub/lnxcore.img
rm /tmp/core.cfg /tmp/core.img

# The first grub.cfg comes from the same update-grub that the node runs later. There is no disk to probe yet, so a stand-in
# gives the answers that grub-probe will give on the node: one disk, no partitions, ext4.
mv /usr/sbin/grub-probe /usr/sbin/grub-probe.real
cat >/usr/sbin/grub-probe <<PROBE
#!/bin/sh
for word in "\$@"; do
  case \$word in
  device | --target=device) echo /dev/vda ;;
  fs_uuid | --target=fs_uuid) echo $uuid ;;
  fs | --target=fs) echo ext2 ;;
  drive | --target=drive) echo '(hd0)' ;;
  esac
done
PROBE
chmod 755 /usr/sbin/grub-probe
mkdir -p /dev/disk/by-uuid
touch "/dev/disk/by-uuid/$uuid"
update-grub
rm -r /dev/disk
mv /usr/sbin/grub-probe.real /usr/sbin/grub-probe
grep -q "root=UUID=$uuid " /boot/grub/grub.cfg
