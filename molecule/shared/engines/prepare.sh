#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# What every scenario of an engine has: a runtime that leaves a trace, a CDI specification, and a root file system to run.
set -eu

# A collection holds no interpreter lines but those of modules.
program() {
    { echo '#!/usr/bin/python3'; cat "$1"; } > "$2"
    chmod 0755 "$2"
}

cd /opt/engines
mkdir -p /etc/cdi /root/tiny/bin
cp cdi.json /etc/cdi/test.json
install -m 0755 nvidia-container-runtime.sh /usr/bin/nvidia-container-runtime
program cri.py /usr/local/bin/cri
cp /bin/busybox /root/tiny/bin
for name in sh sleep echo env cat; do ln -sf busybox "/root/tiny/bin/$name"; done
tar -C /root/tiny -cf /root/tiny.tar .

# Control groups of version 2 may have no controllers here.
controllers=/sys/fs/cgroup/cgroup.controllers
if [ -e $controllers ] && ! grep -q memory $controllers; then
    program runc.py /usr/local/sbin/runc
fi

# The control groups are those of the host. Containers get theirs below that of this machine, to end with it.
sed -n 's#/init.scope$##; s#^0::\(.*\)#\1/inside#p' /proc/1/cgroup > /root/control-group
