# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask libcufile which values it takes, for data/libcufile.json. It reads its file before it looks for a GPU.

    python3 record_libcufile.py FOLDER >data/libcufile.json

FOLDER has a folder for each release, such as ``1.14.1.1``, with what ``pip install --target`` made of the package
nvidia-cufile-cu12 (to 1.14) or nvidia-cufile (from 1.15). From 1.16 on the library waits forever for a driver that is
not there, once it has read its file: its log then has a line.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gds import schema

SECONDS = 5.0


class Answer(ctypes.Structure):
    _fields_ = (("error", ctypes.c_int), ("cuda", ctypes.c_int))


def cases(key: schema.Key) -> Iterator[Any]:
    """Values around the ends of what a key takes, and of other types."""
    yield from (True, "x", ["x"], {"/": {"rdma_dev_addr_list": ["10.0.0.1"]}}, 1)
    if key.kind == schema.NUMBER:
        ends = {key.low, key.high, *(end for ends in key.later.values() for end in ends)}
        yield from sorted({end + step for end in ends for step in (-1, 0, 1)} | {key.step * 9, *key.also})
    if key.kind == schema.NUMBERS:
        yield from ([4], [5], [4, 8, 12], ["4"])
    if key.kind == schema.HEX:
        yield from ("0x1f", "0x1ffffffff")
    yield from ([word] if key.kind == schema.LIST else word for word in key.words)


def takes(library: ctypes.CDLL, folder: str, text: str) -> bool:
    configuration, log = Path(folder, "cufile.json"), Path(folder, "log")
    configuration.write_text(text)
    log.unlink(missing_ok=True)
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.environ.update(CUFILE_ENV_PATH_JSON=str(configuration), CUFILE_LOGFILE_PATH=str(log))
        library.cuFileDriverOpen()
        os._exit(0)
    os.close(writing)
    ended, until = False, time.monotonic() + SECONDS
    while not ended and time.monotonic() < until and not (log.exists() and log.stat().st_size):
        ended = bool(os.waitpid(pid, os.WNOHANG)[0])
        time.sleep(0.001)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with os.fdopen(reading, errors="replace") as output:
        said = output.read()
    return "failed to load user config" not in said and "terminate called" not in said


def record(folder: Path) -> Dict[str, Any]:
    names = sorted(os.listdir(folder), key=lambda name: [int(part) for part in name.split(".")])
    answers: Dict[str, List[Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for name in names:
            library = ctypes.CDLL(str(next((folder / name).rglob("libcufile.so.0"))))
            library.cuFileDriverOpen.restype = Answer
            for key, meaning in schema.KEYS.items():
                for index, value in enumerate(cases(meaning)):
                    rows = answers.setdefault(key, [])
                    if index == len(rows):
                        rows.append([value, []])
                    if takes(library, scratch, json.dumps(schema.nested({key: value}))):
                        rows[index][1].append(int(name.split(".")[1]))
    return {"releases": [int(name.split(".")[1]) for name in names], "taken": answers}


if __name__ == "__main__":
    found = record(Path(sys.argv[1]).resolve())
    rows = ",\n".join(f" {json.dumps(key)}: {json.dumps(taken)}" for key, taken in found["taken"].items())
    print(f'{{"releases": {json.dumps(found["releases"])},\n"taken": {{\n{rows}\n}}}}')
