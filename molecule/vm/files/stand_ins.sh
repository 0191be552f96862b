#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# Installs what uses GPUs, as far as it matters here.
set -eu
cd /etc/systemd/system

# Those that start at boot keep what they find then.
for name in kubelet slurmd; do
  cat >"$name.service" <<UNIT
[Unit]
Description=Stand-in that lists the MIG devices when it starts

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/nvidia-smi -L
StandardOutput=truncate:/run/seen-by-$name

[Install]
WantedBy=multi-user.target
UNIT
done

# One that knows the MIG devices, as the name of its process tells.
cp /usr/bin/sleep /usr/local/bin/dcgm-exporter
cat >dcgm-exporter.service <<'UNIT'
[Unit]
Description=Stand-in for the exporter of DCGM

[Service]
ExecStart=/usr/local/bin/dcgm-exporter infinity
UNIT

cat >monitor.service <<'UNIT'
[Unit]
Description=Has a GPU open only to watch it

[Service]
ExecStart=/usr/local/bin/nvml-sim hold 0 --kind monitor --name monitor
UNIT

# The simulated GPUs keep their faults, also when the power is cut; here they end with a boot.
mkdir bed-gpus.service.d
cat >bed-gpus.service.d/heal.conf <<'UNIT'
[Service]
ExecStartPost=/usr/local/bin/nvml-sim heal
UNIT

systemctl daemon-reload
systemctl enable kubelet.service slurmd.service
