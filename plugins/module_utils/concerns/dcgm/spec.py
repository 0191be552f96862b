# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of DCGM and its exporter, and what is wrong whatever the machine."""

from __future__ import annotations

from typing import Any, FrozenSet, List, Mapping, Optional, Tuple

from ..._core.errors import DeclarationError
from ..._core.value import frozen
from .metrics import TYPES, Metric

NAME = "dcgm"
ALL = "all"
# By the word of the option: the flag of dcgmi health --set, and what dcgmi health --fetch calls it.
WATCHES: Mapping[str, Tuple[str, Tuple[str, ...]]] = {
    "inforom": ("i", ("InfoROM",)),
    "memory": ("m", ("Memory",)),
    "nvlink": ("n", ("NVLINK",)),
    "pcie": ("p", ("PCIe",)),
    "thermal": ("t", ("Thermal", "Power")),
}
WATCH_NAMES = (ALL, *WATCHES)


@frozen
class DcgmDeclaration:
    """``engine`` and ``exporter`` say whether these services run; None leaves one alone.

    ``writes`` says whether the exporter has a file of counters of ours. ``watches`` are words of ``WATCHES``, all of
    them for ``all``; none are left alone. ``packages`` are those that the role installs, so that what a machine lacks
    is not wrong of it.
    """

    engine: Optional[bool] = None
    exporter: Optional[bool] = None
    writes: bool = False
    shipped: bool = True
    for_alerts: bool = True
    metrics: Tuple[Metric, ...] = ()
    exclude: Tuple[str, ...] = ()
    watches: FrozenSet[str] = frozenset()
    optional: bool = False
    packages: Tuple[str, ...] = ()


def parse(params: Mapping[str, Any]) -> DcgmDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    engine, exporter = params["host_engine"], params["exporter"]
    metrics = _metrics(params["metrics"])
    watches = _watches(params["health_watches"])
    if engine is None and exporter is None and not metrics and not watches:
        raise _wrong("nothing is declared", "set host_engine: true, exporter: true, or both")
    if watches and not engine:
        raise _wrong("health_watches belong to the host engine, which is not declared", "set host_engine: true")
    if metrics and not exporter:
        raise _wrong("metrics belong to the exporter, which is not declared", "set exporter: true")
    if not params["permanent"] and (exporter or watches):
        cause = "the exporter and the health watches are set through files, which count at the next boot too"
        raise _wrong(f"{cause}, and permanent: false forbids that", "set permanent: true")
    shipped, for_alerts, exclude = params["shipped_metrics"], params["alert_metrics"], params["exclude_metrics"]
    if exporter and not (shipped or for_alerts or metrics):
        raise _wrong("the exporter would have no metric", "list some in metrics, or set shipped_metrics: true")
    return DcgmDeclaration(
        engine=engine,
        exporter=exporter,
        writes=bool(exporter) and bool(for_alerts or metrics or exclude or not shipped),
        shipped=shipped,
        for_alerts=for_alerts,
        metrics=metrics,
        exclude=_exclude(exclude, metrics),
        watches=watches,
        optional=params["optional"],
        packages=tuple(params["packages"]),
    )


def _metrics(entries: Any) -> Tuple[Metric, ...]:
    found: List[Metric] = []
    for entry in entries:
        metric = Metric(entry["name"], entry["type"], (entry["help"] or entry["name"]).strip(), declared=True)
        if any(metric.name == other.name for other in found):
            raise _refused(metric, "it is declared twice", "remove one of the two from metrics")
        if metric.type not in TYPES:
            raise _refused(metric, f"its type is {metric.type}", f"use one of {', '.join(TYPES)}")
        if not metric.help.isprintable():
            raise _refused(metric, "its help is not a single line of text", "write it as one line")
        _refuse_unknown(metric)
        found.append(metric)
    return tuple(found)


def _refuse_unknown(metric: Metric) -> None:
    # Imported for those alone that the inventory names: all of the names are some 30 KiB.
    from . import names

    if not names.generations(metric.name):
        from ..._core.nearest import did_you_mean

        otherwise = "see dcgmi dmon --list for all fields"
        cause = "no generation of DCGM has this field, and the exporter would exit because of it"
        # As people say them, without what all of them begin with.
        whole = [f"{prefix}{metric.name}" for prefix in (names.PREFIX, f"{names.PREFIX}DEV_")]
        meant = next((name for name in whole if names.generations(name)), metric.name)
        raise _refused(metric, cause, did_you_mean(meant, names.all_names(), otherwise=otherwise))


def _exclude(patterns: Any, metrics: Tuple[Metric, ...]) -> Tuple[str, ...]:
    from fnmatch import fnmatchcase

    for metric in metrics:
        for pattern in patterns:
            if fnmatchcase(metric.name, pattern):
                raise _refused(metric, f"{pattern} in exclude_metrics excludes it", "remove one of the two")
    return tuple(patterns)


def _watches(names: Any) -> FrozenSet[str]:
    for name in names:
        if name not in WATCH_NAMES:
            hint = f"the watches are {', '.join(WATCH_NAMES)}"
            raise DeclarationError("watch {}", object=name, cause="there is no such watch", hint=hint)
    return frozenset(WATCHES) if ALL in names else frozenset(names)


def _refused(metric: Metric, cause: str, hint: str) -> DeclarationError:
    return DeclarationError("export {}", object=metric.name, cause=cause, hint=hint)


def _wrong(cause: str, hint: str) -> DeclarationError:
    return DeclarationError("read the declaration", cause=cause, hint=hint)
