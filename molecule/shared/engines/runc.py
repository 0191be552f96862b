# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""runc where control groups have no controllers: the limits that engines always set are left out."""

from __future__ import annotations

import json
import os
import sys

RUNC = "/usr/sbin/runc"
CONTROLLERS = ("cpu", "memory", "pids")


def main() -> None:
    words = sys.argv[1:]
    if "--bundle" in words:
        path = os.path.join(words[words.index("--bundle") + 1], "config.json")
        with open(path, encoding="utf-8") as file:
            bundle = json.load(file)
        resources = bundle.get("linux", {}).get("resources", {})
        for controller in CONTROLLERS:
            resources.pop(controller, None)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(bundle, file)
    os.execv(RUNC, [RUNC, *words])


if __name__ == "__main__":
    main()
