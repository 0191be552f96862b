# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of the parameters of modules, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import Any, Container, Dict, Mapping, Optional, Tuple

from ..._core.errors import DeclarationError
from ..._linux.kernel_modules import normal
from ..._linux.module_options import number_of
from .spec import refuse_misnamed

FILE_MODE = "NVreg_DeviceFileMode"
HIGHEST_MODE = 0o777
PERMANENT = "set permanent: true, or leave the parameters out"


def parse_parameters(params: Mapping[str, Any], blocked: Container[str]) -> Dict[Tuple[str, str], Optional[str]]:
    """The values by module and parameter, as the kernel writes those, sorted: a node keeps its declaration sorted."""
    if not params["permanent"]:
        cause = "a module takes them from a file when it is loaded, and permanent is false"
        raise DeclarationError("set parameters of modules", cause=cause, hint=PERMANENT)
    found: Dict[Tuple[str, str], Optional[str]] = {}
    for name, parameters in params["parameters"].items():
        refuse_misnamed(name, "parameters")
        module = normal(name)
        if not isinstance(parameters, dict):
            cause = f"{parameters!r} is not a mapping of parameters to values"
            raise DeclarationError("use {}", object=f"parameters.{name}", cause=cause)
        if module in blocked:
            raise DeclarationError(
                "set parameters of {}", object=module, cause="it is in block", hint="remove one of the two"
            )
        for parameter, value in parameters.items():
            if not isinstance(parameter, str) or not re.fullmatch(r"\w[\w-]*", parameter, re.ASCII):
                cause = f"{parameter!r} is not the name of a parameter"
                raise DeclarationError("use {}", object=f"parameters.{name}", cause=cause)
            key = module, normal(parameter)
            if key in found:
                raise _wrong(*key, "it is there twice, with - and with _", hint="remove one of the two")
            found[key] = _value(*key, value)
    return dict(sorted(found.items()))


def _value(module: str, parameter: str, value: object) -> str:
    if isinstance(value, bool):
        # What takes Y takes 1 as well, and a number takes 1 alone.
        return str(int(value))
    if not isinstance(value, (int, str)):
        hint = "write a list as one string, such as '1,2'" if isinstance(value, list) else ""
        raise _wrong(module, parameter, f"{value!r} is not a string, a number or a boolean", hint=hint)
    text = str(value)
    if re.search(r'["\\\x00-\x1f\x7f]', text):
        raise _wrong(module, parameter, f"{text!r} has a quote, a backslash or a control character")
    number = number_of(text)
    if parameter == FILE_MODE and number is not None and number > HIGHEST_MODE:
        cause = f"{text} is {number:#o} in octal, which is not the mode of a file"
        raise _wrong(module, parameter, cause, hint="write it as a string with a leading 0, such as '0660'")
    return text


def _wrong(module: str, parameter: str, cause: str, *, hint: str = "") -> DeclarationError:
    return DeclarationError(f"set {parameter}", object=module, cause=cause, hint=hint)
