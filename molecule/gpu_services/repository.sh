#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# repository.sh VERSION...: the packages of the driver, of the Fabric Manager and of DCGM in /srv/mirror, with the names, the places
# and the units of NVIDIA's, the first two in these versions. What they bring are the programs of the simulator.
set -eu
work=$(mktemp -d)
simulator=/opt/nvml_simulator
libraries=usr/lib/$(uname -m)-linux-gnu
units=usr/lib/systemd/system

# tree PACKAGE VERSION: what the functions below fill, in $tree.
begin() {
    tree=$work/$1-$2
    mkdir -p "$tree/DEBIAN" "$tree/usr/bin" "$tree/$units" "$tree/$libraries"
    printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: nobody <nobody@example.com>\nDescription: %s\n' \
        "$1" "$2" "$(dpkg --print-architecture)" "$1" > "$tree/DEBIAN/control"
}

end() {
    file=$(dpkg-deb --build -Znone "$tree" . | sed "s/.* in '\(.*\)'\./\1/")
    {
        dpkg-deb --field "$file"
        printf 'Filename: %s\nSize: %s\nSHA256: %s\n\n' "$file" "$(stat -c %s "$file")" "$(sha256sum "$file" | cut -c-64)"
    } >> Packages
}

# In its name the library has the version, and the driver that the next boot loads is this one.
driver() {
    begin "libnvidia-compute-${1%%.*}" "$1-1"
    cp "$simulator/libnvidia-ml.so.1" "$tree/$libraries/libnvidia-ml.so.$1"
    ln -s "libnvidia-ml.so.$1" "$tree/$libraries/libnvidia-ml.so.1"
    end
}

fabric_manager() {
    begin "nvidia-fabricmanager-${1%%.*}" "$1-1"
    printf '#!/bin/sh\nNV_FABRICMANAGER_VERSION=%s exec %s/nv-fabricmanager "$@"\n' "$1" "$simulator" > "$tree/usr/bin/nv-fabricmanager"
    chmod 755 "$tree/usr/bin/nv-fabricmanager"
    mkdir -p "$tree/usr/share/nvidia/nvswitch"
    configuration=/usr/share/nvidia/nvswitch/fabricmanager.cfg
    printf '%s\n' '# 4: informational' LOG_LEVEL=4 DAEMONIZE=0 FABRIC_MODE=0 ABORT_CUDA_JOBS_ON_FM_EXIT=1 > "$tree$configuration"
    echo "$configuration" > "$tree/DEBIAN/conffiles"
    cat > "$tree/$units/nvidia-fabricmanager.service" <<UNIT
[Unit]
Description=NVIDIA fabric manager service
[Service]
Type=notify
ExecStart=/usr/bin/nv-fabricmanager -c $configuration
[Install]
WantedBy=multi-user.target
UNIT
    end
}

dcgm() {
    begin datacenter-gpu-manager-4-core 1:4.5.3-1
    : > "$tree/$libraries/libdcgm.so.4.5.3"
    ln -s libdcgm.so.4.5.3 "$tree/$libraries/libdcgm.so.4"
    ln -s "$simulator/nv-hostengine" "$simulator/dcgmi" "$tree/usr/bin/"
    cat > "$tree/$units/nvidia-dcgm.service" <<UNIT
[Unit]
Description=NVIDIA DCGM service
[Service]
User=root
ExecStart=/usr/bin/nv-hostengine -n --service-account nvidia-dcgm
Restart=on-abort
[Install]
Alias=dcgm.service
WantedBy=multi-user.target
UNIT
    end
    begin datacenter-gpu-manager-exporter 4.8.2-1
    mkdir -p "$tree/etc/dcgm-exporter"
    echo 'DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).' > "$tree/etc/dcgm-exporter/default-counters.csv"
    ln -s "$simulator/dcgm-exporter" "$tree/usr/bin/"
    cat > "$tree/$units/nvidia-dcgm-exporter.service" <<UNIT
[Unit]
Description=NVIDIA DCGM-exporter service
Wants=nvidia-dcgm.service
After=nvidia-dcgm.service
[Service]
User=root
ExecStart=/usr/bin/dcgm-exporter -f /etc/dcgm-exporter/default-counters.csv
Restart=on-abort
[Install]
WantedBy=multi-user.target
UNIT
    end
}

mkdir -p /srv/mirror
cd /srv/mirror
for version in "$@"; do
    driver "$version"
    fabric_manager "$version"
done
test -e datacenter-gpu-manager-exporter_*.deb || dcgm
rm -rf "$work"
# The mirrors of the distribution are out of reach.
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d
echo "deb [trusted=yes] file:/srv/mirror ./" > /etc/apt/sources.list
apt-get --quiet --quiet update
