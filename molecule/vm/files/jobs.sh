#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# A job of Slurm and a container of Docker, both real, in system.slice as either has them by default.
#   install    brings Slurm and Docker; the stand-ins go
#   start      begins both
#   variables  tells which variables the process of each has of ours, and what NCCL would make of the file that it sees
#   cpus       tells where each runs, which CPUs its process may use, and those of its control group
set -eu
case $1 in
install)
  cd /etc/systemd/system
  rm kubelet.service slurmd.service multi-user.target.wants/kubelet.service multi-user.target.wants/slurmd.service
  systemctl daemon-reload
  # No network comes with it, for there is nobody to talk to.
  printf '{"bridge": "none", "iptables": false, "ip6tables": false, "features": {"cdi": true}}\n' >/etc/docker/daemon.json
  systemctl start docker.service &
  sh /root/slurm/install.sh cgroup
  echo 'TaskProlog=/etc/slurm/gpufleet-task_prolog.sh' >>/etc/slurm/slurm.conf
  wait
  # Of somebody before us.
  printf '# NCCL_DEBUG=TRACE\nNCCL_DEBUG=INFO\nNCCL_ALGO=Ring # all\n' >/etc/nccl.conf
  ;;
start)
  scontrol reconfigure
  sbatch --quiet --ntasks=1 --output=/dev/null --wrap='echo $$ >/run/job.pid; exec sleep 3600'
  tar --directory /bin --dereference --create busybox | docker import - idle
  docker run --quiet --detach --network none --cpuset-cpus 1,3 --name idle \
    --device gpufleet.node/environment=job idle /busybox sleep 3600
  docker inspect --format '{{.State.Pid}}' idle >/run/container.pid
  timeout 60 sh -c 'until [ -s /run/job.pid ]; do sleep 0.5; done'
  ;;
variables)
  for name in job container; do
    pid=$(cat "/run/$name.pid")
    tr '\0' '\n' <"/proc/$pid/environ" | sed -n "s/^GPUFLEET_JOB=/$name /p"
    # As its setEnvFile reads it: nothing is trimmed, a comment begins the line, and the first line with a name counts.
    awk -v name="$name" '!/^#/ && (at = index($0, "=")) > 1 && !seen[substr($0, 1, at - 1)]++ { print name, $0 }' \
      "/proc/$pid/root/etc/nccl.conf"
  done
  ;;
cpus)
  for name in job container; do
    pid=$(cat "/run/$name.pid")
    group=$(cut -d: -f3 "/proc/$pid/cgroup")
    printf '%s %s %s %s\n' "$name" "$group" "$(sed -n 's/^Cpus_allowed_list:\t//p' "/proc/$pid/status")" \
      "$(cat "/sys/fs/cgroup$group/cpuset.cpus.effective")"
  done
  ;;
esac
