# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for the fabric manager of machines with NVSwitches: ``nv-fabricmanager``, in the foreground until a signal.

While it runs, GPUs behind switches are reset alone, and it is found by the name of its process as the real one is. It
says its version and ends as NVIDIA documents it: where there is no switch, and where its version, which is the driver's
unless NV_FABRICMANAGER_VERSION says otherwise, is not that of the driver (Fabric Manager user guide; issue 544 of
gpu-operator).
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import nvml_sim

NAME = "nv-fabricmanager"
NO_SWITCH = "request to query NVSwitch device information failed: WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]"
MISMATCH = (
    "fabric manager NVIDIA GPU driver interface version {} don't match with driver version {}. Please update with "
    "matching NVIDIA driver package."
)


def main() -> int:
    simulator = nvml_sim.Simulator()
    driver = simulator.describe()["system"]["driver_version"]
    version = os.environ.get("NV_FABRICMANAGER_VERSION", driver)
    if sys.argv[1:] in (["--version"], ["-v"]):
        print(f"Fabric Manager version is : {version}")
        return 0
    ends = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    # By its name, not Python's, it is known to who looks for it.
    Path("/proc/self/comm").write_text(NAME, encoding="ascii")
    try:
        if not any(gpu["nvlink_remote"] == nvml_sim.SWITCH for gpu in simulator.describe()["gpus"]):
            raise nvml_sim.SimulatorError(NO_SWITCH)
        if version != driver:
            raise nvml_sim.SimulatorError(MISMATCH.format(version, driver))
        simulator.control("fabric-manager", os.getpid())
    except nvml_sim.SimulatorError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    _say_ready()
    signal.sigwait(ends)
    simulator.control("fabric-manager", 0)
    return 0


def _say_ready() -> None:
    """To systemd, where it is a unit of Type=notify, and to whoever reads the output."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
            notify.sendall(b"READY=1")
    print(f"{NAME} runs", flush=True)


if __name__ == "__main__":
    sys.exit(main())
