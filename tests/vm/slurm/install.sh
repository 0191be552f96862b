#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# Makes a node a Slurm cluster of its own: nodes of a bed do not reach each other. The packages are in the image.
#   $1  linuxproc, where jobs are children of slurmd, or cgroup, where each has a control group of its own and its CPUs alone
set -eu
name=$(hostname)
tracked=${1:-linuxproc}
task=none
if [ "$tracked" = cgroup ]; then
  task=cgroup
  printf 'CgroupPlugin=cgroup/v2\nConstrainCores=yes\n' >/etc/slurm/cgroup.conf
fi
grep -q " $name\$" /etc/hosts || echo "10.0.2.15 $name" >>/etc/hosts
cat >/etc/slurm/slurm.conf <<CONF
ClusterName=demo
SlurmctldHost=$name
SlurmUser=slurm
AuthType=auth/munge
ProctrackType=proctrack/$tracked
TaskPlugin=task/$task
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ReturnToService=1
MpiDefault=none
MessageTimeout=60
SlurmdParameters=config_overrides
NodeName=$name CPUs=2 State=UNKNOWN
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
mkdir -p /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm
chown -R slurm: /var/lib/slurm /var/log/slurm
systemctl --quiet enable munge.service slurmctld.service slurmd.service
systemctl restart munge.service slurmctld.service slurmd.service
if ! timeout 120 sh -c "until sinfo --noheader --format=%T | grep -qx idle; do sleep 1; done"; then
  echo "$name is not idle in Slurm after two minutes: $(sinfo --noheader --format='%T %E')" >&2
  exit 1
fi
