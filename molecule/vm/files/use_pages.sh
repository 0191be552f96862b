#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# A job that uses twenty of the 64 huge pages. MAP_HUGETLB is 0x40000; a touched page is a page in use.
set -eu
systemd-run --unit=job /usr/bin/python3 -c '
import mmap, time
pages = mmap.mmap(-1, 40 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)
for place in range(0, 40 << 20, 2 << 20):
    pages[place] = 1
time.sleep(600)'
cd /sys/devices/system/node
for _ in $(seq 120); do
  if awk '{free += $1} END {exit free != 44}' node?/hugepages/hugepages-2048kB/free_hugepages; then exit 0; fi
  sleep 0.5
done
exit 1
