#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# Makes a node one that runs containers, as somebody set it up who did not think of GPUs: both engines with files of his own,
# an image whose program wants GPUs, and beside them what the packages of the NVIDIA Container Toolkit bring.
set -eu
here=$(dirname "$(readlink -f "$0")")
simulator=$(dirname "$here")

cat >/usr/bin/nvidia-ctk <<SCRIPT
#!/bin/sh
exec python3 $simulator/container_toolkit.py "\$@"
SCRIPT
cat >/usr/bin/nvidia-container-runtime <<SCRIPT
#!/bin/sh
set -e
case " \$* " in
*' create '*) python3 $simulator/container_toolkit.py inject "\$@" ;;
esac
exec runc "\$@"
SCRIPT
chmod 755 /usr/bin/nvidia-ctk /usr/bin/nvidia-container-runtime
{
  echo '#!/usr/bin/python3'
  cat "$here/cri.py"
} >/usr/local/bin/cri
chmod 755 /usr/local/bin/cri
# Where the kubelet has the control groups of its pods.
echo /kubepods >/root/control-group

cat >/usr/lib/systemd/system/nvidia-cdi-refresh.service <<'UNIT'
[Unit]
Description=Refresh the CDI specification of the simulated GPUs

[Service]
Type=oneshot
ExecStart=/usr/bin/nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml

[Install]
WantedBy=multi-user.target
UNIT

cat >/etc/docker/daemon.json <<'JSON'
{
   "bridge": "none", "iptables": false,   "ip6tables": false,
   "log-opts": {"max-size": "10m"}
}
JSON
# No registry can be reached: pods get the image that is here in the place of the one that holds their sandbox.
cat >/etc/containerd/config.toml <<'TOML'
version = 2   # as Debian has it

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "docker.io/library/tiny:latest"
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
TOML
systemctl --quiet enable --now nvidia-cdi-refresh.service containerd.service docker.service

# What the program needs of the distribution, and nothing of NVIDIA's. CUDA's images ask for the GPUs in the same way.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/bin" "$tree/lib64" "$tree/usr/lib/x86_64-linux-gnu"
cp /bin/busybox "$here/list-gpus" "$tree/bin"
for name in sh sleep; do ln -s busybox "$tree/bin/$name"; done
cp -L /lib64/ld-linux-x86-64.so.2 "$tree/lib64"
cp -L /lib/x86_64-linux-gnu/libc.so.6 "$tree/usr/lib/x86_64-linux-gnu"
tar --directory "$tree" --create . | docker import --change 'ENV PATH=/bin NVIDIA_VISIBLE_DEVICES=all' \
  --change 'CMD ["sleep", "infinity"]' - tiny >/dev/null
docker save tiny | ctr --namespace k8s.io images import --base-name docker.io/library/tiny - >/dev/null
