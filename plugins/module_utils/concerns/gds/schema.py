# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The keys of ``cufile.json`` as data: what each takes, and with which release of cuFile that came.

Every line was tried on libcufile 1.11, 1.13 to 1.20 (NVIDIA's packages on PyPI), which say what they refuse before they
look for a GPU. Releases are the second number of 1.N; what is said of ``FIRST`` holds for all releases before it too.
A key that a release does not know it ignores, without a word. What it refuses ends every program that uses cuFile.
"""

from __future__ import annotations

import json
import math
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from ..._core.regex import regex
from ..._core.value import field, frozen

FIRST, NEWEST = 11, 20
RELEASES = tuple(range(FIRST, NEWEST + 1))
WORD = 2**32 - 1
# In bytes it just fits 64 bits. Beyond either JsonCpp throws what nothing catches.
LARGE = 2**54 - 4
PAGE_KB = 4

BOOLEAN, NUMBER, TEXT, HEX, LIST, NUMBERS, TABLE = "boolean", "number", "text", "hex", "list", "numbers", "table"
EXPECTED: Mapping[str, Tuple[str, str]] = {
    BOOLEAN: ("true or false", "write true or false without quotes"),
    NUMBER: ("a whole number", "write it without quotes"),
    TEXT: ("a string", "write it in quotes"),
    HEX: ("a string with a hexadecimal number of at most 32 bits", 'write it in quotes, such as "0xffeeddcc"'),
    LIST: ("a list of strings", "write a list, also of one entry"),
    NUMBERS: ("a list of whole numbers", "write a list, also of one entry"),
    TABLE: (
        "a mapping of mount points to rdma_dev_addr_list",
        "write it as {/mnt/data: {rdma_dev_addr_list: [10.0.0.1]}}",
    ),
}
_HEX = regex(r"(?:0[xX])?[0-9a-fA-F]{1,8}")
_SURROGATE = regex("[\ud800-\udfff]")
_ADDRESS = regex(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9a-fA-F:]*:[0-9a-fA-F:.]*")


@frozen
class Key:
    """``since`` is the release that came with it, ``until`` the last that knows it.

    A number is from ``low`` to ``high`` and a multiple of ``step``, or one of ``also``; ``later`` are other such ends,
    by the release from which they count. ``words`` are what a text, or an entry of a list, may be. ``exists`` says what
    of this machine it names: a ``folder``, a ``device`` or a ``path``.
    """

    kind: str
    since: int = FIRST
    until: int = NEWEST
    low: int = 0
    high: int = WORD
    step: int = 1
    also: Tuple[int, ...] = ()
    later: Mapping[int, Tuple[int, int]] = field(default_factory=dict)
    words: Tuple[str, ...] = ()
    exists: str = ""

    def ends(self, release: int) -> Tuple[int, int]:
        found = self.low, self.high
        for first, changed in self.later.items():
            if release >= first:
                found = changed
        return found


FOLDER, DEVICE, PATH = "folder", "device", "path"
MAX_IO, PER_BUFFER = "properties.max_direct_io_size_kb", "properties.per_buffer_cache_size_kb"
POOL_SIZES, POOL_COUNTS = "properties.posix_pool_slab_size_kb", "properties.posix_pool_slab_count"
GPU_SIZES = "properties.gpu_bounce_buffer_slab_config.slab_size_kb"
GPU_COUNTS = "properties.gpu_bounce_buffer_slab_config.slab_count"
ALLOW_COMPAT, FORCE_COMPAT = "properties.allow_compat_mode", "properties.force_compat_mode"
P2PDMA = "properties.use_pci_p2pdma"
ADDRESSES = "rdma_dev_addr_list"

# With the release from which on they are known.
_BOOLEANS = {
    11: (
        "execution.parallel_io",
        "fs.generic.posix_unaligned_writes",
        "fs.gpfs.gds_write_support",
        "fs.weka.rdma_write_support",
        "miscellaneous.api_check_aggressive",
        "miscellaneous.skip_topology_detection",
        "miscellaneous.stream_memops_bypass",
        ALLOW_COMPAT,
        "properties.allow_system_memory",
        FORCE_COMPAT,
        "properties.force_odirect_mode",
        "properties.gds_rdma_write_support",
        "properties.prefer_iouring",
        "properties.rdma_dynamic_routing",
        "properties.use_poll_mode",
    ),
    13: ("fs.gpfs.gds_async_support", P2PDMA),
    16: tuple(
        f"{name}.use_pci_p2pdma"
        for name in (
            *("block.nvme", "block.nvmeof", "block.raid"),
            *("fs.beegfs", "fs.gpfs", "fs.lustre", "fs.nfs", "fs.scatefs", "fs.virtiofs"),
        )
    ),
    17: ("miscellaneous.enable_static_routing",),
    18: (
        "properties.rdma_async_event_monitoring",
        "properties.rdma_failback_enabled",
        "properties.rdma_multipath_enabled",
    ),
    19: (
        "block.raid1.use_pci_p2pdma",
        "block.raid10.use_pci_p2pdma",
        "fs.panfs.use_pci_p2pdma",
        "properties.allow_rdma_token_reset",
        "properties.compat_odirect_unaligned_read_split",
        "properties.gds_fallback_io",
        "properties.vanilla_posix_io_mode",
        "sparse.p2p_compat_enable",
    ),
    20: ("miscellaneous.enable_static_config",),
}
_FILE_SYSTEMS = {"beegfs": 11, "gpfs": 11, "lustre": 11, "nfs": 11, "weka": 11, "scatefs": 14, "panfs": 19}
_SIZE = Key(NUMBER, low=64, high=16384, step=64)

KEYS: Mapping[str, Key] = {
    **{name: Key(BOOLEAN, since) for since, names in _BOOLEANS.items() for name in names},
    **{f"fs.{name}.mount_table": Key(TABLE, since, exists=FOLDER) for name, since in _FILE_SYSTEMS.items()},
    **{f"fs.{name}.{ADDRESSES}": Key(LIST, since) for name, since in _FILE_SYSTEMS.items()},
    **{
        f"properties.rdma_{name}": Key(NUMBER, 18)
        for name in (
            *("failback_delay_ms", "health_check_interval_ms", "io_retry_count", "io_retry_delay_ms"),
            *("max_backup_devices", "unhealthy_threshold"),
        )
    },
    "denylist.devices": Key(LIST, exists=DEVICE),
    "denylist.drivers": Key(LIST),
    "denylist.filesystems": Key(LIST),
    "denylist.fsids": Key(LIST),
    "denylist.mounts": Key(LIST, exists=PATH),
    "execution.max_io_queue_depth": Key(NUMBER, low=1, high=256),
    "execution.max_io_threads": Key(NUMBER, high=32, later={16: (0, 128)}),
    "execution.max_request_parallelism": Key(NUMBER, high=8),
    "execution.min_io_threshold_size_kb": Key(NUMBER, low=4),
    "fs.beegfs.posix_gds_min_kb": Key(NUMBER, high=1024),
    "fs.lustre.posix_gds_min_kb": Key(NUMBER, high=1024),
    "fs.scatefs.posix_gds_min_kb": Key(NUMBER, 14, high=1024),
    "logging.dir": Key(TEXT, exists=FOLDER),
    # Another word it takes, and logs errors alone.
    "logging.level": Key(TEXT, words=("ERROR", "WARN", "NOTICE", "INFO", "DEBUG", "TRACE")),
    "logging.max_file_size_mb": Key(NUMBER, 18, low=1, high=4096, also=(-1,)),
    "miscellaneous.rcu_library_used": Key(TEXT),
    "miscellaneous.rdma_token_reset_timeout_secs": Key(NUMBER, 19, low=1, high=2**31 - 1),
    "miscellaneous.static_config_filepath": Key(TEXT, 20, exists=PATH),
    "miscellaneous.static_routing_filepath": Key(TEXT, 17, exists=PATH),
    # More it takes too, and does no more than at 3.
    "profile.cufile_stats": Key(NUMBER, high=3),
    "profile.nvtx": Key(BOOLEAN, until=15),
    "properties.compat_odirect_unaligned_read_split_min_size_kb": Key(
        NUMBER, 19, low=PAGE_KB, high=LARGE, step=PAGE_KB, also=(0,)
    ),
    "properties.io_batchsize": Key(NUMBER, low=1, high=256),
    "properties.io_priority": Key(TEXT, words=("default", "low", "med", "high")),
    "properties.max_batch_io_timeout_msecs": Key(NUMBER, low=1, high=1000),
    "properties.max_device_cache_size_kb": Key(NUMBER, high=LARGE, step=PAGE_KB),
    "properties.max_device_pinned_mem_size_kb": Key(NUMBER, low=64, high=LARGE, step=PAGE_KB, also=(0,)),
    MAX_IO: _SIZE,
    PER_BUFFER: _SIZE,
    "properties.poll_mode_max_size_kb": Key(NUMBER, low=PAGE_KB, high=LARGE, step=PAGE_KB),
    POOL_SIZES: Key(NUMBERS, low=PAGE_KB, step=PAGE_KB),
    POOL_COUNTS: Key(NUMBERS, low=1),
    GPU_SIZES: Key(NUMBERS, 17, low=PAGE_KB, high=16384, step=PAGE_KB),
    GPU_COUNTS: Key(NUMBERS, 17, low=1),
    "properties.rdma_access_mask": Key(HEX),
    "properties.rdma_dc_key": Key(HEX),
    f"properties.{ADDRESSES}": Key(LIST),
    "properties.rdma_dynamic_routing_order": Key(LIST, words=("GPU_MEM_NVLINKS", "GPU_MEM", "SYS_MEM", "P2P")),
    "properties.rdma_load_balancing_policy": Key(
        TEXT, words=("FirstFit", "MaxMin", "RoundRobin", "RoundRobinMaxMin", "Randomized")
    ),
    "properties.rdma_peer_type": Key(TEXT, words=("nvidia_peermem", "dmabuf")),
    "properties.rdma_service_level": Key(NUMBER, high=15),
    "properties.rdma_topN_ranks": Key(NUMBER, low=-(2**31), high=2**31 - 1),
    "properties.rdma_transport_type": Key(TEXT, 19, words=("DC_V1", "EXT_RC_V1")),
    "sparse.min_p2pdma_threshold_kb": Key(NUMBER, 19),
}
# What is an object in the file: another value in its place is an exception that nothing catches.
OBJECTS = frozenset(name.rpartition(".")[0] for name in KEYS) | {name.partition(".")[0] for name in KEYS}


def nearest_known(release: int) -> int:
    """The release of the table by which this one is judged."""
    return min(max(release, FIRST), NEWEST)


def shown(value: Any) -> Optional[str]:
    """A value as the text of a setting."""
    return value if value is None or isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def same(name: str, one: Any, other: Any) -> bool:
    """Whether two values mean the same to cuFile: 4.0 and 4 do, 1 and true do not."""
    if name in KEYS and KEYS[name].kind == HEX:
        one, other = (int(v, 16) if isinstance(v, str) and _HEX.fullmatch(v) else v for v in (one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def part(key: str) -> str:
    """A key as a part of a name: in quotes where it has dots itself, or is empty, so that it is no other key."""
    return key if key and "." not in key else json.dumps(key, ensure_ascii=False)


def flat(table: Mapping[str, Any], above: str = "") -> Dict[str, Any]:
    """The values by their keys with dots; what is no known object is a value."""
    found: Dict[str, Any] = {}
    for key, value in table.items():
        name = f"{above}{part(key)}"
        if isinstance(value, dict) and name not in KEYS:
            found.update(flat(value, f"{name}."))
        else:
            found[name] = value
    return found


def nested(values: Mapping[str, Any]) -> Dict[str, Any]:
    made: Dict[str, Any] = {}
    for name, value in values.items():
        table = made
        *outer, key = name.split(".")
        for part in outer:
            table = table.setdefault(part, {})
        table[key] = value
    return made


def knows(name: str, release: int) -> bool:
    key = KEYS.get(name)
    return key is not None and key.since <= release <= key.until


def refusal(name: str, value: Any, release: int) -> Tuple[str, str]:
    """Why cuFile 1.``release`` would not take a value, and what to do; empty where it takes or ignores it."""
    # null is what is not there.
    if name in OBJECTS and value is not None:
        return "it is not a mapping, and every program with cuFile is aborted", "write it as a mapping"
    key = KEYS.get(name)
    if key is None or value is None or not knows(name, release):
        return "", ""
    if not _is_of_kind(key.kind, value):
        expected, hint = EXPECTED[key.kind]
        return f"it is not {expected}", hint
    if key.kind == NUMBER:
        return _out_of_range(key, value, release), ""
    if key.kind == NUMBERS:
        return next((cause for cause in (_out_of_range(key, one, release) for one in value) if cause), ""), ""
    entries = value if key.kind == LIST else [value] if key.kind == TEXT else []
    unknown = [one for one in entries if key.words and one not in key.words]
    if unknown:
        return f"{unknown[0]!r} is not one of {', '.join(key.words)}", ""
    addresses = entries if name.endswith(ADDRESSES) else []
    if key.kind == TABLE:
        addresses = [one for mount in value.values() for one in mount.get(ADDRESSES, ())]
    wrong = [one for one in addresses if not _ADDRESS.fullmatch(one)]
    return (f"{wrong[0]!r} is not the address of a network card", "") if wrong else ("", "")


def _is_of_kind(kind: str, value: Any) -> bool:
    if kind == BOOLEAN:
        return isinstance(value, bool)
    if kind == NUMBER:
        return _is_number(value)
    if kind == NUMBERS:
        return isinstance(value, list) and all(map(_is_number, value))
    if kind == LIST:
        return _is_list(value)
    if kind == TABLE:
        return isinstance(value, dict) and all(
            isinstance(mount, dict) and _is_list(mount.get(ADDRESSES, [])) for mount in value.values()
        )
    return isinstance(value, str) and (kind == TEXT or bool(_HEX.fullmatch(value)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value % 1 == 0


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _out_of_range(key: Key, value: Any, release: int) -> str:
    low, high = key.ends(release)
    number = int(value)
    if number in key.also:
        return ""
    if not low <= number <= high:
        return f"cuFile 1.{release} takes {low} to {high}"
    return f"cuFile takes multiples of {key.step}" if number % key.step else ""


def contradiction(values: Mapping[str, Any], release: int) -> Tuple[str, str]:
    """A key that cuFile would refuse beside the others, and why; of all values of a file, which are good alone."""
    for sizes, counts in ((POOL_SIZES, POOL_COUNTS), (GPU_SIZES, GPU_COUNTS)):
        count = values.get(counts)
        size = values.get(sizes)
        # Without sizes there are three pools.
        length = len(size) if size is not None else 3 if sizes == POOL_SIZES else 0
        if count is not None and release >= KEYS[counts].since and len(count) != length:
            return counts, f"it has {len(count)} entries, and {sizes} has {length}"
        if sizes == GPU_SIZES and size is not None and size != sorted(set(size)):
            return sizes, "its sizes do not grow"
    if release >= 13:
        most = values.get(MAX_IO) or (1024 if release < 19 else 16384)
        buffer = values.get(PER_BUFFER) or 1024
        if buffer > most:
            cause = f"{PER_BUFFER} is {buffer}, and {MAX_IO} is {most}: the first must not be larger"
            return (MAX_IO if MAX_IO in values and PER_BUFFER not in values else PER_BUFFER), cause
    return "", ""


def unwritable(value: Any) -> str:
    """Why JSON, or JsonCpp, cannot have a value, or one in it; empty where it can."""
    if isinstance(value, dict):
        inner = [one for pair in value.items() for one in pair]
        return "its keys must be strings" if not all(isinstance(key, str) for key in value) else _first(inner)
    if isinstance(value, list):
        return _first(value)
    if isinstance(value, str):
        return "" if value.isascii() or not _SURROGATE.search(value) else "it has a character that UTF-8 cannot hold"
    if isinstance(value, float):
        return "" if math.isfinite(value) else "JSON has no infinity and no NaN"
    if isinstance(value, int):
        is_large = not isinstance(value, bool) and not -(2**63) <= value < 2**64
        return "it does not fit in 64 bits, and cuFile would abort every program that uses it" if is_large else ""
    return "" if value is None else "JSON cannot hold a value of this type"


def _first(values: Iterable[Any]) -> str:
    return next(filter(None, map(unwritable, values)), "")


def named(name: str, value: Any) -> List[Tuple[str, str]]:
    """What of the machine a value names, and as what: cuFile refuses the file where it is not there."""
    key = KEYS.get(name)
    if key is None or not key.exists or not _is_of_kind(key.kind, value):
        return []
    entries = list(value) if key.kind in (LIST, TABLE) else [value]
    return [(one, key.exists) for one in entries]
