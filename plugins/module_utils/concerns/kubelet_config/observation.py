# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kubelet of a node, asked where that is possible, and its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, FrozenSet, Iterator, List, Mapping, Optional, Tuple

from ..._core.declared import of_another
from ..._core.errors import CannotLook
from ..._core.record import MALFORMED, damage_of, parse
from ..._core.value import replace
from ..._kinds import workload
from ..._linux import cpu_claims, numa, swaps, systemd
from ..._linux.cpus import FOLDER as CPUS
from ..._linux.cpus import read_online
from ..._machine import processes
from ..._machine.numbers import read_number
from . import places, schema
from .checkpoints import NAMES, Node, value
from .places import K3S, RKE2, UNITS, Place
from .schema import FIELDS, meaning
from .state import HEALTHY, NOTE, STOPPED, UNHEALTHY, Delay, KubeletState, Machine

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from ..._machine.processes import Process
    from .spec import KubeletDeclaration

# The credentials by which the API server asks a kubelet, where it runs on this node.
_OF_RANCHER = "/var/lib/rancher/{}/server/tls/client-kube-apiserver"
_PREFIXES = {
    "": "/etc/kubernetes/pki/apiserver-kubelet-client",
    **{product: _OF_RANCHER.format(product) for product in (K3S, RKE2)},
}
# By product.
IDENTITIES = {product: (f"{prefix}.crt", f"{prefix}.key") for product, prefix in _PREFIXES.items()}
NO_IDENTITY = (
    "no client certificate that a kubelet takes lies on this node (client_certificate), so it counts that it was"
    " started after its files were written"
)
COMMANDS = ("kubelet", "k3s", "k3s-server", "k3s-agent", "rke2")
VERSION_SECONDS = 20.0
PODS = ("kubepods.slice", "kubepods")
ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/hugetlb")
LIMITS = ("hugetlb.{}.max", "hugetlb.{}.limit_in_bytes")
CONTROLLERS = "/sys/fs/cgroup/cgroup.controllers"
# Fields of others that reserved CPUs cannot stand beside, with their flags.
CGROUPS = {"systemReservedCgroup": "system-reserved-cgroup", "kubeReservedCgroup": "kube-reserved-cgroup"}
KB = 1024


def observe(host: Host, declaration: KubeletDeclaration, scope: Scope) -> KubeletState:
    files = host.files
    unit_files = systemd.unit_files(files)
    there = {unit: status for unit in UNITS for status in (unit_files.status(unit),) if status != systemd.NOT_FOUND}
    if not there:
        return KubeletState(declaration=declaration)
    running = {unit: processes.main_of_service(files, unit, COMMANDS) for unit in there}
    unit = next((unit for unit, process in running.items() if process is not None), next(iter(there)))
    process = running[unit]
    product = UNITS[unit]
    words = processes.text_of(files, str(process.pid), "cmdline").split("\0") if process is not None else []
    place = places.of_rancher(files, unit, product) if product else places.of_kubelet(files, unit, words)
    if place.asks_for_defaults:
        release = _release(host, product)
        place = replace(place, adds_defaults=not release or release >= schema.MERGES_SINCE)
    state = KubeletState(
        declaration=declaration,
        unit=unit,
        place=place,
        service=_service(host, place, process) if systemd.running(files) else None,
        starts=there[unit] == systemd.ENABLED,
        interrupted=files.exists(NOTE),
        checkpoints=_checkpoints(files, place),
        delay=_delay(files) if schema.GRACE in declaration.values else Delay(),
    )
    if not place.there:
        return state
    if process is not None:
        state = _with_values(host, state, process, declaration.identity)
        state = replace(state, hugepages=dict(_known_hugepages(files)))
    state = replace(state, machine=_machine(files), pods=tuple(workload.pods(files)))
    if not scope.restoring and (_differs(state, declaration.values) or state.service == UNHEALTHY):
        # What is refused is what would be changed: a converged node pays for none of this.
        last = max(state.machine.online, default=0)
        isolated = cpu_claims.isolated(of_another(files, cpu_claims.ISOLATED), last)
        state = replace(
            state,
            release=_release(host, product),
            machine=replace(state.machine, sockets=_sockets(files, state.machine.online)),
            gates=_gates(place),
            cgroups=tuple(name for name, flag in CGROUPS.items() if _document(place, name, flag)),
            by_priority=_document(place, schema.BY_PRIORITY),
            system=cpu_claims.housekeeping(of_another(files, cpu_claims.HOUSEKEEPING), last),
            isolated=isolated or cpu_claims.isolated_now(files),
        )
    return state


def _delay(files: Files) -> Delay:
    from .logind import delay_after_kubelet

    return delay_after_kubelet(files)


def is_healthy(host: Host, address: str) -> bool:
    """What it says itself; without an address for that nobody knows, and that it runs is enough."""
    if not address:
        return True
    try:
        return host.http_get(address, "/healthz").strip() == "ok"
    except OSError:
        return False


def _service(host: Host, place: Place, process: Optional[Process]) -> str:
    if process is None:
        return STOPPED
    return HEALTHY if is_healthy(host, place.healthz) else UNHEALTHY


def _with_values(host: Host, state: KubeletState, process: Process, identity: Tuple[str, str]) -> KubeletState:
    files, place = host.files, state.place
    pair = identity if identity[0] else IDENTITIES[UNITS[state.unit]]
    reason = NO_IDENTITY if not identity[0] else f"{identity[0]} or {identity[1]} is not there"
    if all(map(files.exists, pair)):
        port = place.port("port")
        try:
            text = host.http_get(f"127.0.0.1:{port}", "/configz", identity=pair)
            return replace(state, values=_of_configz(text))
        except OSError as error:
            reason = f"it did not respond to /configz on port {port}: {error.strerror or error}"
    # k3s and RKE2 write their own after they were started, and before the kubelet is.
    paths = (place.path,) if UNITS[state.unit] else place.sources
    has_read = all(processes.began_after(files, process, path) for path in paths)
    return replace(state, values=state.found if has_read else None, computed=reason)


def _of_configz(text: str) -> Dict[str, Any]:
    try:
        document = parse(text)["kubeletconfig"]
        values = {key: schema.of_document(key, document.get(key)) for key in FIELDS}
    except MALFORMED as error:
        raise CannotLook("read what the kubelet says", object="/configz", cause=damage_of(error)) from error
    return {key: value for key, value in values.items() if value is not None}


def _checkpoints(files: Files, place: Place) -> Dict[str, Tuple[str, str]]:
    """Path and text of the state files that are there, by kind."""
    paths = {kind: f"{place.root}/{name}" for kind, name in NAMES.items()}
    texts = {kind: files.read_optional(path) for kind, path in paths.items()}
    return {kind: (paths[kind], text) for kind, text in texts.items() if text is not None}


def _known_hugepages(files: Files) -> Iterator[Tuple[str, int]]:
    """The limits that it gave to all pods when it started: all pages that it knew of, without those it reserved."""
    sizes = tuple(_sizes(files))
    for root in ROOTS:
        for pods in PODS:
            for size, name in sizes:
                for limit in LIMITS:
                    text = (files.read_optional(f"{root}/{pods}/{limit.format(_cgroup_size(size))}") or "").strip()
                    if text.isdecimal():
                        yield name, int(text)


def _sizes(files: Files, folder: str = "/sys/kernel/mm/hugepages") -> Iterator[Tuple[int, str]]:
    """The sizes of huge pages in bytes, each with the name of its resource."""
    for name in files.names(folder):
        number = name.replace("hugepages-", "").replace("kB", "")
        if number.isdecimal():
            size = int(number) * KB
            yield size, f"hugepages-{_binary(size, ('Ki', 'Mi', 'Gi'))}"


def _cgroup_size(size: int) -> str:
    return _binary(size, ("KB", "MB", "GB"))


def _binary(size: int, units: Tuple[str, str, str]) -> str:
    number, index = size // KB, 0
    while number >= KB and number % KB == 0 and index < len(units) - 1:
        number, index = number // KB, index + 1
    return f"{number}{units[index]}"


def _machine(files: Files) -> Machine:
    sizes = dict(_sizes(files))
    nodes: List[Node] = []
    for number in numa.node_numbers(files):
        folder = f"{numa.FOLDER}/node{number}"
        memory = numa.parse_meminfo(files.read_optional(f"{folder}/meminfo") or "").get("MemTotal", 0) * KB
        pages = {
            name: size * (read_number(files, f"{folder}/hugepages/hugepages-{size // KB}kB/nr_hugepages") or 0)
            for size, name in sizes.items()
        }
        nodes.append(Node(number, memory, pages))
    online = read_online(files)
    return Machine(
        online=online,
        nodes=tuple(nodes),
        memory=numa.parse_meminfo(files.read(swaps.MEMINFO)).get("MemTotal", 0) * KB,
        swaps=tuple(area.path for area in swaps.read_areas(files)),
        cgroup2=files.exists(CONTROLLERS),
    )


def _sockets(files: Files, online: FrozenSet[int]) -> int:
    return len({files.read_optional(f"{CPUS}/cpu{cpu}/topology/physical_package_id") for cpu in online})


def _differs(state: KubeletState, wanted: Mapping[str, Any]) -> bool:
    ours = places.our_values(state.place)
    if {key: meaning(key, value) for key, value in ours.items()} != {
        key: meaning(key, value) for key, value in places.complete(state.place, wanted).items()
    }:
        return True
    return state.values is None or any(
        meaning(key, value(state.values, key)) != meaning(key, value(state.found, key))
        for key in state.found
        if key in wanted
    )


def _release(host: Host, product: str) -> int:
    """The minor number of its version: ``Kubernetes v1.31.2``, ``k3s version v1.31.4+k3s1 (a562d090)``."""
    program = host.commands.find(product or "kubelet")
    if program is None and product and product != K3S:
        program = next(
            (path for path in (f"/var/lib/rancher/{product}/bin/{product}",) if host.files.exists(path)), None
        )
    if program is None:
        return 0
    try:
        said = host.commands.run([program, "--version"], timeout=VERSION_SECONDS).output
    except OSError as error:
        raise CannotLook("find the version of {}", object=program, cause=error.strerror or str(error)) from error
    parts = said.partition("v1.")[2].split(".")
    return int(parts[0]) if parts[0].isdecimal() else 0


def _gates(place: Place) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for _path, document in (*place.documents, *place.later):
        gates = document.get("featureGates")
        gates = gates if isinstance(gates, dict) else {}
        found.update({name: "true" if schema.is_true(value) else "false" for name, value in gates.items()})
    for part in place.flags.get("feature-gates", ("", ""))[0].split(","):
        name, _equals, value = part.partition("=")
        found[name] = value
    return found


def _document(place: Place, name: str, flag: str = "") -> bool:
    documents = (*place.documents, *place.later)
    return place.flags.get(flag, ("", ""))[0] != "" or any(schema.says(one.get(name)) for _path, one in documents)
