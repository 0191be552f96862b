#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# machine.sh VERSION: eight A100 behind six NVSwitches, whose driver has this version, as the kernel and the simulator show them.
set -eu
mkdir -p /var/lib/nvml_simulator /root/pci /root/modules/nvidia
ln -s /opt/nvml_simulator/nvml-sim /opt/nvml_simulator/nvidia-smi /opt/nvml_simulator/nvidia-cuda-mps-control \
    /opt/nvml_simulator/mps-client /usr/bin/
nvml-sim create --driver "$1" hgx-a100-80gb-8
nvml-sim set 1 persistence=1 compute_mode=3
chmod -R a+rwX /var/lib/nvml_simulator

# The bus of the host has none of them.
add() {
    mkdir "/root/pci/$1"
    echo 0x10de > "/root/pci/$1/vendor"
    echo "$2" > "/root/pci/$1/device"
    echo "$3" > "/root/pci/$1/class"
}
for bus in 07 0f 47 4e 87 90 b7 bd; do add "0000:$bus:00.0" 0x20b2 0x030200; done
for bus in c4 c5 c6 c7 c8 c9; do add "0000:$bus:00.0" 0x1af1 0x068000; done
mount --bind /root/pci /sys/bus/pci/devices
echo "$1" > /root/modules/nvidia/version
mount --bind /root/modules /sys/module

# By these who holds a GPU is found. A client opens them, and reads nothing.
mknod /dev/nvidiactl c 1 3
for minor in 0 1 2 3 4 5 6 7; do mknod "/dev/nvidia$minor" c 1 3; done
chmod a+rw /dev/nvidia*
useradd --uid 4001 alice
useradd --uid 4002 bob
