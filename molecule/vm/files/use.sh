#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# Uses GPUs: a job on the largest instance of GPU 2, a monitor that has GPU 0 open, an exporter that knows the MIG devices.
set -eu
instance=$(nvml-sim describe --json | python3 -c '
import json, sys
print(*(one["id"] for one in json.load(sys.stdin)["gpus"][2]["instances"] if one["profile"] == "3g.40gb"))')
systemd-run --unit=job /usr/local/bin/nvml-sim hold 2 --gi "$instance" --ci 0
systemctl start monitor dcgm-exporter
# What no list of processes shows: on Ampere the driver alone does not get its new mode into effect, and nvidia-smi has to.
nvml-sim set 0 mig_busy=1
# Each says so when it has its GPU.
for unit in job monitor; do
  timeout 60 sh -c "until journalctl --unit=$unit --output=cat | grep -qx '[0-9][0-9]*'; do sleep 0.5; done"
done
