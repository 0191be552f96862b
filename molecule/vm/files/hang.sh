#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# Lets the driver hang, and changes what has nothing to do with it. What is in /root/bed makes a Python impatient with the driver.
set -eu
mkdir --mode=700 /root/bed
cp /root/recorded_bed.py /root/bed
cat >/root/bed/sitecustomize.py <<'PYTHON'
import recorded_bed
recorded_bed.hand_in(deadline=5.0)
PYTHON
nvml-sim hang nvmlDeviceGetCount_v2
echo never >/sys/kernel/mm/transparent_hugepage/enabled
