# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of the environment of jobs, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

from ..._core.errors import DeclarationError
from ..._core.value import field, frozen
from ..._kinds.own_files import Key
from ..._kinds.service_values import DEFAULT
from ..._linux.systemd import is_service, is_template

NAME = "job_environment"
SESSIONS, SERVICES, SLURM, CONTAINERS, NCCL = "sessions", DEFAULT, "slurm", "containers", "nccl"
UNITS = "units"
# Of a line of /etc/environment and of nccl.conf, in bytes: older releases of Linux-PAM read 1024 at once.
LONGEST = 1000

# What is given to each process by whoever starts it, and breaks it where all processes have the same.
OTHERS: Mapping[str, str] = {
    **dict.fromkeys(
        ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "IFS", "TERM", "LANG", "TZ"),
        "every session and service has one of its own",
    ),
    **dict.fromkeys(
        ("LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "ENV"),
        "it would be loaded into every program, including root's, and a missing file would break all of them",
    ),
    **dict.fromkeys(
        ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        "the scheduler or the launcher of a job sets it, and this would give all jobs the same GPUs",
    ),
    **dict.fromkeys(
        ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NCCL_COMM_ID"),
        "it belongs to one job, whose launcher sets it",
    ),
}
# Parts of a name, and names that end so.
SECRETS = frozenset(("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY"))
SECRET_ENDS = ("API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "ACCESS_KEY_ID", "AUTH_KEY")


@frozen
class JobDeclaration:
    """The values by place and name; those of services as ``ServiceValues`` has them, by unit or ``DEFAULT`` and name.

    ``optional`` are units that a machine may lack.
    """

    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    services: Mapping[Key, Optional[str]] = field(default_factory=dict)
    optional: FrozenSet[str] = frozenset()


def parse(params: Mapping[str, Any]) -> JobDeclaration:
    """Raises ``DeclarationError`` on what no shell or no file could carry."""
    variables = _variables("variables", params["variables"])
    places = tuple(dict.fromkeys(params["places"] or ()))
    if variables and not places:
        hint = f"set places: [{SESSIONS}], or leave variables out"
        raise DeclarationError("use variables", cause="places is empty, so nothing would get them", hint=hint)
    for place in places:
        _refuse_uncarried("variables", variables, place)
    nccl = _variables(NCCL, params[NCCL])
    _refuse_uncarried(NCCL, nccl, NCCL)
    for name in nccl.keys() & variables.keys():
        if nccl[name] != variables[name]:
            raise _wrong(
                NCCL,
                name,
                f"variables sets it to another value, and the environment takes precedence over {NCCL}.conf",
                hint="leave one of the two out",
            )
    values: Dict[str, Mapping[str, str]] = {NCCL: nccl} if nccl else {}
    values.update({place: variables for place in places if place != SERVICES and variables})
    if CONTAINERS in places and nccl:
        values.setdefault(CONTAINERS, {})
    services: Dict[Key, Optional[str]] = {}
    if SERVICES in places:
        services.update({(DEFAULT, name): value for name, value in variables.items()})
    optional = set()
    for index, entry in enumerate(params[UNITS] or ()):
        where, unit = f"{UNITS}[{index}]", entry["name"]
        if not is_service(unit) or is_template(unit):
            cause = f"{unit!r} is not the name of a service"
            raise DeclarationError("use {}", object=where, cause=cause, hint="write it as slurmd.service")
        of_unit = _variables(f"{where}.variables", entry["variables"])
        if not of_unit:
            raise DeclarationError("use {}", object=where, cause=f"no variable of {unit} is set", hint="set one")
        _refuse_uncarried(f"{where}.variables", of_unit, SERVICES)
        for name, value in of_unit.items():
            if (unit, name) in services:
                raise DeclarationError("use {}", object=where, cause=f"{name} of {unit} is set twice")
            services[(unit, name)] = value
        if entry["optional"]:
            optional.add(unit)
    if not values and not services:
        raise DeclarationError(
            "read the declaration",
            cause="no variable is declared in variables, nccl or units",
            hint="set at least one, such as nccl: {NCCL_DEBUG: WARN}, or state: absent",
        )
    return JobDeclaration(values, services, frozenset(optional))


def all_values(declaration: JobDeclaration) -> Iterable[Tuple[str, str, str]]:
    """Every place or unit with the names and values that it gets."""
    for place, values in declaration.values.items():
        yield from ((place, name, value) for name, value in values.items())
    yield from ((unit, name, value or "") for (unit, name), value in declaration.services.items())


def _variables(where: str, declared: Optional[Mapping[Any, Any]]) -> Dict[str, str]:
    """The variables as text, sorted by name. Raises ``DeclarationError`` on what nobody could have."""
    values = {str(name): _value(where, str(name), value) for name, value in (declared or {}).items()}
    for name in values:
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            raise DeclarationError(
                "use {}",
                object=where,
                cause=f"{name!r} is not the name of a variable",
                hint="use letters, digits and underscores, and do not begin with a digit",
            )
        if name in OTHERS or name.startswith("SLURM_"):
            cause = OTHERS.get(name, "Slurm sets it for each job")
            raise _wrong(where, name, cause, hint="leave it out")
        if SECRETS & set(name.upper().split("_")) or name.upper().endswith(SECRET_ENDS):
            raise _wrong(
                where,
                name,
                "its name suggests a secret, and every user of the node could read it",
                hint="give it to the jobs that need it through their scheduler or a file of their own",
            )
    return {name: values[name] for name in sorted(values)}


def _value(where: str, name: str, value: Any) -> str:
    if isinstance(value, bool):
        spelled = "true or 1" if value else "false or 0"
        hint = f'write exactly what the program expects, in quotes, such as "{spelled.split()[-1]}"'
        raise _wrong(where, name, f"the value is a boolean, and programs differ in whether they expect {spelled}", hint)
    if not isinstance(value, (str, int)):
        raise _wrong(where, name, "the value is not a string", "write it in quotes")
    text = str(value)
    if not text:
        raise _wrong(where, name, "the value is empty", "leave the variable out")
    # The value is not shown: it would break the line of the message too.
    if re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", text):
        # Some readers end a line at U+0085, U+2028 and U+2029 too, such as those of YAML.
        kinds = (("[\n\r]", "a newline"), ("[\x85\u2028\u2029]", "a Unicode line separator"), ("\0", "a NUL"))
        what = next((name for pattern, name in kinds if re.search(pattern, text)), "a control character")
        raise _wrong(where, name, f"the value has {what}, and a variable is one line in every file", "remove it")
    return text


# What a place reads in another way than it is written, as a class of characters, and what it makes of them.
UNCARRIED: Mapping[str, Tuple[str, str]] = {
    SESSIONS: (
        r"""["'#\\$]""",
        "pam_env ends the value at a #, removes quotes and joins lines at a backslash, and systemd's user manager "
        "reads the file too and expands $",
    ),
    SERVICES: ("%", "systemd expands a % and what follows it, and its releases differ in where"),
    NCCL: (r"""["'#\s]""", "NCCL removes nothing, so blanks, quotes and comments would be part of the value"),
}


def _refuse_uncarried(where: str, values: Mapping[str, str], place: str) -> None:
    pattern, reason = UNCARRIED.get(place, ("", ""))
    hint = "write it without them" if place == NCCL else f"write it without them, or leave {place} out of places"
    for name, value in values.items():
        found: List[str] = sorted(set(re.findall(pattern, value))) if pattern else []
        if found:
            raise _wrong(where, name, f"the value has {' '.join(map(repr, found))}: {reason}", hint)
        if value != value.strip():
            cause = "the value begins or ends with a blank, which is kept in some places and removed in others"
            raise _wrong(where, name, cause, "remove it")
        if len(f"{name}={value}".encode("utf-8", "surrogateescape")) > LONGEST and place in (SESSIONS, NCCL):
            cause = f"with its name it is longer than {LONGEST} bytes, and {place} would cut it off"
            raise _wrong(where, name, cause, "write a shorter one")


def _wrong(where: str, name: str, cause: str, hint: str) -> DeclarationError:
    return DeclarationError("set {}", object=f"{where}.{name}", cause=cause, hint=hint)
