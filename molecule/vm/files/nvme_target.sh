#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# A target of NVMe over TCP on this node: a file, at two addresses, for the host that prepare.sh names and nobody else.
# There is a second one, of which the discovery controller at the second address tells from `nvme_target.sh tell` on.
set -eu
file=/var/lib/nvme-target.img
nqn=nqn.2024-01.com.example:data
told=nqn.2024-01.com.example:told
target=/sys/kernel/config/nvmet
tell() {
  ln -s "$target/subsystems/$told" "$target/ports/2/subsystems/"
}
if [ "${1:-}" = tell ]; then
  touch /var/lib/nvme-told
  tell
  exit
fi
host=$(cat /etc/nvme/hostnqn)
modprobe nvmet-tcp
mkdir "$target/hosts/$host" "$target/subsystems/$nqn" "$target/subsystems/$nqn/namespaces/1"
cd "$target/subsystems/$nqn"
ln -s "$target/hosts/$host" allowed_hosts/
printf GPUFLEET-far >attr_serial
printf %s "$file" >namespaces/1/device_path
printf 6f1d2c3b-4a59-4687-b2c1-d0e9f8a7b6c5 >namespaces/1/device_uuid
printf 1 >namespaces/1/enable
mkdir "$target/subsystems/$told" "$target/subsystems/$told/namespaces/1"
cd "$target/subsystems/$told"
ln -s "$target/hosts/$host" allowed_hosts/
printf GPUFLEET-far >attr_serial
printf %s "$file" >namespaces/1/device_path
printf 7a2e3d4c-5b6a-4798-83d2-e1fab9c8d7e6 >namespaces/1/device_uuid
printf 1 >namespaces/1/enable
for number in 1 2; do
  mkdir "$target/ports/$number"
  cd "$target/ports/$number"
  printf tcp >addr_trtype
  printf ipv4 >addr_adrfam
  printf '127.0.0.%s' "$number" >addr_traddr
  printf 4420 >addr_trsvcid
  ln -s "$target/subsystems/$nqn" subsystems/
done
[ ! -e /var/lib/nvme-told ] || tell
