# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with cuFile, and the file that NVIDIA's package installs, in the parts that matter here."""

from __future__ import annotations

from typing import Dict

PATH = "/etc/cufile.json"
LIBRARY = "/usr/local/cuda-12.8/targets/x86_64-linux/lib/libcufile.so.1.13.1"
# Its indentation, its blanks before colons and its comments; the last keys are a site's.
SHIPPED = """{
    // NOTE : Application can override custom configuration via export CUFILE_ENV_PATH_JSON=<filepath>
    // e.g : export CUFILE_ENV_PATH_JSON="/home/<xxx>/cufile.json"

            "logging": {
                            // log directory, if not enabled will create log file under current working directory
                            //"dir": "/home/<xxxx>",

                            // NOTICE|ERROR|WARN|INFO|DEBUG|TRACE (in decreasing order of severity)
                            "level": "ERROR"
            },

            "execution" : {
                    // max number of workitems in the queue;
                    "max_io_queue_depth": 128,
                    // max number of host threads per gpu to spawn for parallel IO
                    "max_io_threads" : 4,
                    /* enable support for parallel IO */
                    "parallel_io" : true
            },

            "properties": {
                            // allow compat mode, this will enable use of cufile posix read/writes
                            "allow_compat_mode": true,
                            // client-side rdma addr list for user-space file-systems(e.g ["10.0.1.0", "10.0.2.0"])
                            "rdma_dev_addr_list": [ ]
            },

            "denylist": {
                // specify list of devices
                "devices": [ ]
            },
            "site": { "note" : "keep // this" }
}
"""
DRIVER = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder@U16)\n"
    "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n"
)
P2PDMA = {
    "/proc/sys/kernel/osrelease": "6.8.0-52-generic\n",
    "/boot/config-6.8.0-52-generic": "#\nCONFIG_PCI=y\nCONFIG_PCI_P2PDMA=y\n",
    "/proc/driver/nvidia/version": DRIVER,
    "/proc/driver/nvidia/params": 'RegistryDwords: "RMForceStaticBar1=1;RmForceDisableIomapWC=1;"\n',
    "/sys/module/nvme_core/parameters/multipath": "N\n",
}
NVIDIA_FS = {"/proc/driver/nvidia-fs/devcount": "1\n", "/sys/module/nvidia_fs/version": "2.24.3\n"}
FILES: Dict[str, str] = {
    PATH: SHIPPED,
    LIBRARY: "",
    **NVIDIA_FS,
    "/proc/sys/kernel/osrelease": "6.1.0-31-amd64\n",
    "/boot/config-6.1.0-31-amd64": "#\nCONFIG_PCI=y\n# CONFIG_PCI_P2PDMA is not set\n",
    "/proc/driver/nvidia/version": DRIVER,
    # After everything else: the file is older than this boot.
    "/proc/stat": "cpu 1 2 3\nbtime 4000000000\n",
    "/proc/self/mountinfo": "28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n",
}
