# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a pod on containerd as the kubelet does: ``cri.py [--runtime NAME] [--device CDI] [--keep] NAME COMMAND...``.

Prints what the container said. With --keep it prints the container's id, and leaves the pod there.
The messages of the container runtime interface (kubernetes/cri-api, runtime/v1/api.proto) are encoded by hand: the few
fields that are needed take less than a generated client.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from typing import Any, Iterator, Tuple

import grpc

SOCKET = "unix:///run/containerd/containerd.sock"
SERVICE = "/runtime.v1.RuntimeService/"
IMAGE = "docker.io/library/tiny:latest"
LOGS = "/var/log/pods"
# The parent of those of pods.
CONTROL_GROUP = "/root/control-group"
EXITED = 2
NODE = 2
SECONDS = 60


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(*fields: Tuple[int, Any]) -> bytes:
    """Fields by number: a number, or a text, or a message that is encoded already."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def fields(data: bytes) -> Iterator[Tuple[int, Any]]:
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        else:
            length = number()
            yield key >> 3, data[at : at + length]
            at += length


def call(channel: Any, method: str, request: bytes) -> dict[int, Any]:
    return dict(fields(channel.unary_unary(SERVICE + method)(request, timeout=SECONDS)))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runtime", default="")
    parser.add_argument("--device", default="")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("name")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    channel = grpc.insecure_channel(SOCKET)
    folder = f"{LOGS}/{given.name}"
    # A log of an earlier pod of the name would be continued.
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    # The network of the machine: then no plugin for networks is needed.
    security = message((1, message((1, NODE))))
    with open(CONTROL_GROUP, encoding="utf-8") as file:
        linux = message((1, file.read().strip()), (2, security))
    pod = message((1, message((1, given.name), (2, given.name), (3, "default"))), (3, folder), (8, linux))
    try:
        pod_id = call(channel, "RunPodSandbox", message((1, pod), (2, given.runtime)))[1]
        container = message(
            (1, message((1, given.name))),
            (2, message((1, IMAGE))),
            *((3, word) for word in given.command),
            (11, "log"),
            (15, message((2, message((3, message((1, NODE))))))),
            *(((17, message((1, given.device))),) if given.device else ()),
        )
        container_id = call(channel, "CreateContainer", message((1, pod_id), (2, container), (3, pod)))[1]
        call(channel, "StartContainer", message((1, container_id)))
        if given.keep:
            print(container_id.decode())
            return 0
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            status = dict(fields(call(channel, "ContainerStatus", message((1, container_id)))[1]))
            if status.get(3) == EXITED:
                break
            time.sleep(0.1)
        with open(f"{folder}/log", encoding="utf-8") as log:
            # TIME STREAM TAG TEXT
            print("".join(line.split(" ", 3)[3] for line in log), end="")
        call(channel, "StopPodSandbox", message((1, pod_id)))
        call(channel, "RemovePodSandbox", message((1, pod_id)))
        return int(status.get(7, 0))
    except grpc.RpcError as error:
        print(error.details(), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
