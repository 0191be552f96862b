#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# lent.sh look: let the device that the bed has to lend look like an H100 on the bus. Its driver, its IOMMU group and all that the kernel
# does with it are its own. lent.sh where: its PCI address. lent.sh hold: be who has it open, as the QEMU of a virtual machine is.
set -eu
cd /sys/bus/pci/devices
for device in *; do
  # The kernel has its name in lower case, whatever lies over the files.
  case $(cat "$device/modalias") in pci:v00001B36d00000011*) address=$device ;; esac
done
case $1 in
look)
  mkdir -p /run/lent
  for name in vendor:0x10de device:0x2330 class:0x030200; do
    echo "${name#*:}" >"/run/lent/${name%:*}"
    mount --bind "/run/lent/${name%:*}" "$(readlink -f "$address")/${name%:*}"
  done
  ;;
where)
  echo "$address"
  ;;
hold)
  group=$(basename "$(readlink "$address/iommu_group")")
  systemd-run --unit=virtual-machine sh -c "exec 3<>/dev/vfio/$group; exec sleep 600"
  until [ -e "/proc/$(systemctl show -P MainPID virtual-machine)/fd/3" ]; do sleep 0.2; done
  ;;
esac
