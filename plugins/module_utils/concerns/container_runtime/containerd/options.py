# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong in the declared keys of a runtime of containerd."""

from __future__ import annotations

import re
from typing import Any, Mapping

from ..entries import OF_CONTAINERD, PRIVILEGED, refuse_relative, wrong

# Those of runc are uint32.
LARGEST = {"cni_max_conf_num": 2**31 - 1, "io_uid": 2**32 - 1, "io_gid": 2**32 - 1}
REQUIRED, ALLOWED = PRIVILEGED


def check(where: str, options: Mapping[str, Any]) -> None:
    """Raises ``DeclarationError`` on what no machine could have.

    Nothing (an empty text or list, zero, false) is a key that is not there.
    """
    for option, value in options.items():
        kind = OF_CONTAINERD[option]["type"]
        if kind == "path" and value:
            refuse_relative(where, option, value)
        if kind in ("path", "str") and re.search(r"[\x00-\x1f\x7f]", value):
            raise wrong(where, f"{option} is {value!r}, and must have no control character")
        if kind == "int" and not 0 <= value <= LARGEST[option]:
            raise wrong(where, f"{option} is {value}, and must be a number from 0 to {LARGEST[option]}")
        if kind == "list":
            for item in value:
                if not item or re.search(r"[\s\x00-\x1f\x7f]", item):
                    raise wrong(where, f"in {option} {item!r} is not the key of an annotation", "write one per item")
    if options.get(ALLOWED) and options.get(REQUIRED) is False:
        raise wrong(where, f"{ALLOWED} is true and {REQUIRED} is false", "containerd would not start with that")
