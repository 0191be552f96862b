# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input: what was given, the exact message that comes back, and that nothing changed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_scheduler.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.nvme_scheduler.nvme_machine import (
    RULES,
    Drive,
    machine,
    params,
    run,
    tunables_written,
    value,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, snapshot

MD = {
    "/sys/block/md0/queue/scheduler": "none\n",
    "/sys/block/md0/queue/read_ahead_kb": "128\n",
    "/sys/block/md0/queue/max_sectors_kb": "128\n",
}
LATER = "/etc/udev/rules.d/99-zz-site.rules"
THEIRS = 'ACTION=="add|change", KERNEL=="nvme*", ATTR{queue/scheduler}="none"\n'

TUNED = {
    "/etc/tuned/active_profile": "site\n",
    "/etc/systemd/system/multi-user.target.wants/tuned.service": "",
    "/etc/tuned/profiles/site/tuned.conf": "[main]\ninclude=base\n",
    "/usr/lib/tuned/base/tuned.conf": "[disk]\nelevator=none\nreadahead=>8192\n",
}


def not_root(host: FakeHost) -> None:
    host.may_change = False


def read_only_sys(host: FakeHost) -> None:
    host.files.read_only.append("/sys")


def read_only_etc(host: FakeHost) -> None:
    host.files.read_only.append("/etc")


def unpatched(host: FakeHost) -> None:
    pass


def case(
    name: str,
    message: str,
    *queues: Dict[str, Any],
    drives: Optional[List[Drive]] = None,
    more: Optional[Mapping[str, str]] = None,
    prepare: Callable[[FakeHost], None] = unpatched,
    **shared: Any,
) -> Any:
    return pytest.param(list(queues), message, drives or [Drive(0), Drive(1)], more, prepare, shared, id=name)


@pytest.mark.parametrize(
    ("queues", "message", "drives", "more", "prepare", "shared"),
    [
        case(
            "a scheduler that the kernel lacks",
            "Cannot set scheduler on nvme0n1: this kernel offers none, mq-deadline, kyber, bfq (found none, wanted "
            "cfq).",
            {"scheduler": "cfq"},
        ),
        case(
            "a scheduler whose module is not installed",
            "Cannot set scheduler on nvme0n1: this kernel offers none, mq-deadline (found none, wanted kyber).",
            {"scheduler": "kyber"},
            more={"/lib/modules/6.12.0-1-amd64/modules.dep": "kernel/fs/ext4/ext4.ko:\n"},
        ),
        case(
            "a scheduler that is no name",
            "Cannot set scheduler on queues[0]: 'none; reboot' is not the name of a scheduler.",
            {"scheduler": "none; reboot"},
        ),
        case(
            "a scheduler that a zoned disk cannot have",
            "Cannot set scheduler on nvme0n1: it is a host-managed zoned device, for which the kernel offers none and "
            "mq-deadline only (found mq-deadline, wanted kyber).",
            {"scheduler": "kyber"},
            drives=[Drive(0, zoned="host-managed", scheduler="none [mq-deadline]")],
        ),
        case(
            "more requests than the hardware queue has",
            "Cannot set nr_requests on nvme0n1: with scheduler none it goes up to 1023, the depth of the hardware "
            "queue (found 1023, wanted 2048).",
            {"nr_requests": 2048},
        ),
        case(
            "more requests than the hardware queue has, once the scheduler is gone",
            "Cannot set nr_requests on nvme0n1: with scheduler none it goes up to 127, the depth of the hardware queue "
            "(found 254, wanted 512).",
            {"scheduler": "none", "nr_requests": 512},
            drives=[Drive(0, scheduler="none [mq-deadline]", nr_requests=254, tags=127)],
        ),
        case(
            "more requests than a scheduler may have",
            "Cannot set nr_requests on nvme0n1: with scheduler mq-deadline it goes up to 2048, the most the kernel "
            "keeps (found 1023, wanted 4096).",
            {"scheduler": "mq-deadline", "nr_requests": 4096},
        ),
        case(
            "fewer requests than the kernel keeps",
            "Cannot set nr_requests on queues[0]: it must be from 4 to 10240 (wanted 2).",
            {"nr_requests": 2},
        ),
        case(
            "more sectors than the hardware takes",
            "Cannot set max_sectors_kb on nvme0n1: the hardware takes at most 2048 (max_hw_sectors_kb) (found 256, "
            "wanted 4096).",
            {"max_sectors_kb": 4096},
        ),
        case(
            "more sectors than the hardware below a multipath disk takes",
            "Cannot set max_sectors_kb on nvme0n1: the hardware takes at most 2048 (max_hw_sectors_kb) (found 128, "
            "wanted 4096).",
            {"max_sectors_kb": 4096},
            drives=[Drive(0, paths=2)],
        ),
        case(
            "a negative latency",
            "Cannot set wbt_lat_usec on queues[0]: it must be from 0 to 10000000 (wanted -1).",
            {"wbt_lat_usec": -1},
        ),
        case(
            "a read-ahead of half a page",
            "Cannot set read_ahead_kb on queues[0]: it must be a multiple of 4: the kernel keeps whole pages of at "
            "least 4 KiB (wanted 130). Take 128.",
            {"read_ahead_kb": 130},
        ),
        case(
            "a timeout between two ticks",
            "Cannot set io_timeout_ms on queues[0]: it must be a multiple of 20: the kernel keeps whole ticks (wanted "
            "30001). Take 30000.",
            {"io_timeout_ms": 30001},
        ),
        case(
            "no timeout",
            "Cannot set io_timeout_ms on queues[0]: it must be from 20 to 2147483640 (wanted 0).",
            {"io_timeout_ms": 0},
        ),
        case(
            "an entry that wins no device",
            "Cannot apply queues[0] (serial: XX*): it matches no device; there is nvme0n1, nvme1n1. "
            "Correct the match, or set optional: true.",
            {"match": {"serial": "XX*"}, "nomerges": 1},
        ),
        case(
            "an entry whose devices were taken",
            "Cannot apply queues[1] (name: nvme1n1): nvme1n1 matched earlier queues[0] (which matches "
            "everything). Put the entry before them, or set optional: true.",
            {"nomerges": 1},
            {"match": {"name": "nvme1n1"}, "nomerges": 2},
        ),
        case(
            "a typo in a key",
            "Cannot use queues[0]: there is no key serail. Did you mean serial?",
            {"match": {"serail": "S0000"}, "nomerges": 1},
        ),
        case(
            "a text that udev cannot match",
            "Cannot use queues[0]: model 'A\"B' holds '\"', which a udev rule cannot express. Put a ? in its place.",
            {"match": {"model": 'A"B'}, "nomerges": 1},
        ),
        case(
            "a set that is negated in another way",
            "Cannot use queues[0]: serial 'S[^1]' holds '[^', which a udev rule cannot express. Write [! "
            "instead of [^.",
            {"match": {"serial": "S[^1]"}, "nomerges": 1},
        ),
        case(
            "a queue setting for an md device, strictly",
            "Cannot set scheduler on md0: it has no request queue of its own; declare it for the disks below it. Leave "
            "it out, or set strict: false.",
            {"match": {"name": "md0"}, "scheduler": "none", "rq_affinity": 2},
            more=MD,
            strict=True,
        ),
        case(
            "a queue setting for a multipath disk without paths, strictly",
            "Cannot set nr_requests on nvme0n1: it has no request queue of its own; none of its paths is present. "
            "Leave it out, or set strict: false.",
            {"nr_requests": 32},
            drives=[Drive(0, paths=1)],
            prepare=lambda host: Path(host.files.root, "sys/block/nvme0c0n1").unlink(),
            strict=True,
        ),
        case(
            "a tunable that this kernel does not have, strictly",
            "Cannot set wbt_lat_usec on nvme0n1: this kernel has no queue/wbt_lat_usec for it. Leave it out, or set "
            "strict: false.",
            {"wbt_lat_usec": 0},
            drives=[Drive(0, wbt=None)],
            strict=True,
        ),
        case(
            "not root",
            "Cannot change nvme_scheduler: not running as root. Run the task with become: true.",
            {"nomerges": 1},
            prepare=not_root,
        ),
        case(
            "a read-only /sys, as in a container",
            "Cannot set nomerges on nvme0n1: /sys is read-only here. Run on the host itself, not in a "
            "container without the right to change it.",
            {"nomerges": 1},
            prepare=read_only_sys,
        ),
        case(
            "a folder of udev that cannot be written",
            f"Cannot write {RULES}: /etc/udev/rules.d is on a read-only file system, or is immutable (see lsattr -d)."
            " Make it writable, or set permanent: false.",
            {"nomerges": 1},
            prepare=read_only_etc,
        ),
        case(
            "a rule of another that would have the last word",
            f"Cannot keep scheduler on nvme0n1: udev reads {LATER} line 1 after our rules, and it sets another value "
            "(found none, wanted mq-deadline). Remove that line, declare its value, or set permanent: false.",
            {"scheduler": "mq-deadline"},
            more={LATER: THEIRS},
        ),
        case(
            "a profile of tuned that reads ahead more",
            "Cannot keep read_ahead_kb on nvme0n1: tuned starts after our rules, and "
            "/usr/lib/tuned/base/tuned.conf line 3 sets another value (found >8192, wanted 512). Remove that line, "
            "declare its value, or set permanent: false.",
            {"read_ahead_kb": 512},
            more=TUNED,
        ),
        case(
            "a profile of tuned with another scheduler",
            "Cannot keep scheduler on nvme0n1: tuned starts after our rules, and /usr/lib/tuned/base/tuned.conf line "
            "2 sets another value (found none, wanted mq-deadline). Remove that line, declare its value, or set "
            "permanent: false.",
            {"scheduler": "mq-deadline", "read_ahead_kb": 8192},
            more=TUNED,
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_changes(
    tmp_path: Path,
    queues: List[Dict[str, Any]],
    message: str,
    drives: List[Drive],
    more: Optional[Mapping[str, str]],
    prepare: Callable[[FakeHost], None],
    shared: Dict[str, Any],
) -> None:
    host = machine(tmp_path, drives, more)
    prepare(host)
    before = snapshot(tmp_path)
    with pytest.raises(GpuFleetError) as caught:
        converge(CONCERN, params(*queues, **shared), host, check_mode=False)
    assert str(caught.value) == message
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("queue", "message"),
    [
        (
            {"schedular": "none"},
            "queues.schedular. Supported parameters include: io_timeout_ms, match, max_sectors_kb,",
        ),
        ({"rq_affinity": 3}, "value of rq_affinity must be one of: 0, 1, 2, got: 3 found in queues"),
        ({"nomerges": 7}, "value of nomerges must be one of: 0, 1, 2, got: 7 found in queues"),
        ({"nr_requests": "many"}, "we were unable to convert to int"),
    ],
)
def test_an_option_that_is_no_option_is_refused_by_the_specification(queue: Dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        params(queue)
    assert message in str(caught.value)


def refuse(files: Any, path: Any, text: str) -> None:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path.group())


HINT = (
    "Every other disk has its values, and the files for the next boot are as before; give this disk an entry of its "
    "own, or declare what it takes."
)


def test_a_refused_value_puts_back_what_was_written_to_that_disk_and_the_others_get_theirs(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0), Drive(1, scheduler="[none] mq-deadline kyber", nr_requests=700), Drive(2)])
    host.files.rules.insert(0, (r".*/nvme1n1/queue/rq_affinity", refuse))
    with pytest.raises(Refused) as caught:
        run(host, {"scheduler": "mq-deadline", "nr_requests": 64, "rq_affinity": 2, "nomerges": 2})
    assert str(caught.value) == (
        "Cannot set rq_affinity on nvme1n1: the kernel returned Invalid argument; its other values are as before "
        f"(found 1, wanted 2). {HINT}"
    )
    assert (value(host, "nvme1n1", "scheduler"), value(host, "nvme1n1", "nr_requests")) == ("none", "700")
    for device in ("nvme0n1", "nvme2n1"):
        assert (value(host, device, "scheduler"), value(host, device, "nr_requests")) == ("mq-deadline", "64")
        assert (value(host, device, "rq_affinity"), value(host, device, "nomerges")) == ("2", "2")


def test_one_error_names_every_disk_that_refused(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(number) for number in range(4)])
    host.files.rules.insert(0, (r".*/nvme0n1/queue/rq_affinity", refuse))
    host.files.rules.insert(0, (r".*/nvme2n1/queue/nomerges", refuse))
    with pytest.raises(Refused) as caught:
        run(host, {"rq_affinity": 2, "nomerges": 2})
    assert str(caught.value) == (
        "Cannot set rq_affinity on nvme0n1: the kernel returned Invalid argument; its other values are as before; "
        "nvme2n1, nomerges 2: the kernel returned Invalid argument; its other values are as before "
        f"(found 1, wanted 2). {HINT}"
    )
    assert [value(host, f"nvme{number}n1", "rq_affinity") for number in range(4)] == ["1", "2", "1", "2"]


@pytest.mark.parametrize("known", [False, True], ids=["no file yet", "a file of an earlier run"])
def test_a_value_that_one_disk_refused_is_left_for_no_boot(tmp_path: Path, known: bool) -> None:
    host = machine(tmp_path, [Drive(0), Drive(1)], {"/run/udev/control": ""})
    host.commands.programs["udevadm"] = lambda argv: Completed(0, "", "")
    if known:
        run(host, {"nomerges": 1})
    before = host.files.read_optional(RULES)
    host.files.rules.insert(0, (r".*/nvme1n1/queue/nomerges", refuse))
    with pytest.raises(Refused):
        run(host, {"nomerges": 2})
    assert host.files.read_optional(RULES) == before
    assert value(host, "nvme0n1", "nomerges") == "2"


def test_the_result_of_a_refused_run_tells_what_was_done(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0), Drive(1), Drive(2)])
    host.files.rules.insert(0, (r".*/nvme1n1/queue/nomerges", refuse))
    result = converge(CONCERN, params({"nomerges": 2}), host, check_mode=False).as_dict()
    assert (result["failed"], result["changed"], result["failure"]["object"]) == (True, True, "nvme1n1")
    assert [(change["object"], change["after"]) for change in result["changes"]] == [("nvme0n1", 2), ("nvme2n1", 2)]


def test_a_disk_that_goes_between_the_look_and_the_write_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path, [Drive(0), Drive(1)])

    def gone(files: Any, path: Any, text: str) -> None:
        (tmp_path / "sys/block/nvme1n1").unlink()
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), path.group())

    host.files.rules.insert(0, (r".*/nvme1n1/queue/nomerges", gone))
    with pytest.raises(Refused) as caught:
        run(host, {"nomerges": 2})
    assert str(caught.value) == (
        "Cannot set nomerges on nvme1n1: the device is gone. Run again without it; the files for the next "
        "boot are as before."
    )
    assert run(host, {"nomerges": 2}).remaining.status == "in_sync"


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        pytest.param(Completed(0, "", ""), False, id="udev accepts the rules"),
        pytest.param(Completed(1, "", "Unknown command verb verify.\n"), False, id="udev is older than its verify"),
        pytest.param(Completed(1, "", "x.rules:3 Invalid key\n"), True, id="udev does not accept the rules"),
    ],
)
def test_rules_that_udev_does_not_accept_cost_no_change(tmp_path: Path, answer: Completed, refused: bool) -> None:
    host = machine(tmp_path, [Drive(0)], {"/run/udev/control": ""})
    host.commands.programs["udevadm"] = lambda argv: answer if argv[1] == "verify" else Completed(0, "", "")
    if refused:
        with pytest.raises(Refused, match=r"udevadm verify reports: x\.rules:3 Invalid key"):
            run(host, {"nomerges": 2})
        assert tunables_written(host) == []
        assert not host.files.exists(RULES)
    else:
        run(host, {"nomerges": 2})
        assert host.files.exists(RULES)
        assert host.commands.calls[-1][1:] == ("control", "--reload")
    assert not host.files.exists("/run/gpufleet/nvme_scheduler.rules")
