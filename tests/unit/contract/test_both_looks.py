# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program on a node and the module that the controller sends answer the same request alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Mapping

import pytest
from ansible_collections.gpufleet.node.node import look as program
from ansible_collections.gpufleet.node.plugins.module_utils._node import module as module_host
from ansible_collections.gpufleet.node.plugins.module_utils._node.look_frame import ANSWERED, unframed
from ansible_collections.gpufleet.node.plugins.modules import node_state
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost

testing = pytest.importorskip("ansible.module_utils.testing", reason="ansible is not importable here")

GOOD: Mapping[str, Any] = {
    "hugepages": {"pools": [{"size": "2M", "pages": 64}], "transparent": {"enabled": "never"}},
    "nvme_scheduler": {"queues": [{"scheduler": "none", "read_ahead_kb": 4096}]},
    "kernel_modules": {"block": ["nouveau"]},
    "resource_limits": {"sessions": {"nofile": "500:1000"}},
    "job_environment": {"nccl": {"NCCL_DEBUG": "WARN"}, "variables": {"OMP_NUM_THREADS": "8"}},
    "kernel_tunables": {"sysctl": {"vm.swappiness": 10, "net.ipv4.tcp_rmem": "4096 87380 16777216"}},
    "nvidia_persistence": {},
    "numa_irq_affinity": {},
}
DECLARED: Mapping[str, Mapping[str, Any]] = {
    "nothing": {},
    "good": GOOD,
    "strings for numbers and booleans": {
        "hugepages": {"pools": [{"size": "2M", "pages": "64"}], "immediate": "yes", "permanent": "0"},
        "nvme_scheduler": {"queues": [{"read_ahead_kb": "4096", "optional": "true"}], "strict": "off"},
    },
    "numbers and booleans for strings": {
        "hugepages": {"pools": [{"size": 2048, "pages": 64}], "transparent": {"enabled": False}},
        "kernel_modules": {"block": [1, 2.5, True]},
        "resource_limits": {"sessions": {"nofile": 500}},
        "kernel_tunables": {"sysctl": {"vm.swappiness": "10", "kernel.numa_balancing": False, 1: 2.5}},
    },
    "wrong types": {
        "hugepages": {"pools": "none", "transparent": []},
        "nvme_scheduler": {"queues": [7], "strict": "perhaps"},
        "kernel_modules": {"block": {"nouveau": True}},
        "kernel_tunables": {"sysctl": ["vm.swappiness"]},
        "node_tools": {"boot_timeout": "1.5"},
    },
    "no such value": {"hugepages": {"state": "gone"}, "nvidia_persistence": {"state": 1}},
    "no such option": {"hugepages": {"pool": []}, "nvme_scheduler": {"queues": [{"schedular": "none"}]}},
    "what is required is missing": {"hugepages": {"pools": [{}]}, "node_tools": {}},
    "null": {"hugepages": None, "nvme_scheduler": {"queues": None, "strict": None}},
    "no dictionary": {"hugepages": [], "nvme_scheduler": "none", "kernel_modules": 1},
    "other letters": {"kernel_modules": {"block": ["ä\u2028\ud83d\ude00", '"\\\n'], "load": ["gpufleet-look:2:{}"]}},
    "no such concern": {"hugepage": {}},
}
REQUESTS: Mapping[str, Dict[str, Any]] = {
    **{name: {"declared": declared} for name, declared in DECLARED.items()},
    "all that is valid": {"declared": GOOD, "expect": "valid"},
    "valid in check mode": {"declared": GOOD, "expect": "valid", "check_mode": True},
    "invalid": {"declared": DECLARED["wrong types"], "expect": "valid"},
    "in sync": {"declared": GOOD, "expect": "in_sync"},
    "in sync in check mode with a difference": {
        "declared": GOOD,
        "expect": "in_sync",
        "check_mode": True,
        "diff": True,
    },
    "full": {"declared": GOOD, "detail": "full"},
    "devices": {"declared": GOOD, "detail": "devices", "diff": True},
    "without some": {"declared": GOOD, "excluded": ["hugepages", "nvme_scheduler"]},
}


def by_program(request: Mapping[str, Any], capsys: pytest.CaptureFixture[str]) -> Any:
    assert program.respond(json.dumps(request).encode()) == ANSWERED
    return json.loads(unframed(capsys.readouterr().out) or "")


def by_module(request: Mapping[str, Any], capsys: pytest.CaptureFixture[str]) -> Any:
    arguments = {name: value for name, value in request.items() if name not in ("check_mode", "diff")}
    arguments["_ansible_check_mode"] = request.get("check_mode", False)
    arguments["_ansible_diff"] = request.get("diff", False)
    with testing.patch_module_args(arguments), pytest.raises(SystemExit):
        node_state.main()
    answer = json.loads(capsys.readouterr().out)
    # What Ansible adds to the answer of every module.
    answer.pop("invocation", None)
    return answer


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(nodetree.expand(nodetree.load("hgx-2socket"), tmp_path_factory.mktemp("node") / "tree"))


@pytest.mark.parametrize("name", REQUESTS)
def test_both_answer_alike(
    name: str, tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "this_host", lambda: RecordedHost(str(tree)))
    monkeypatch.setattr(module_host, "host_of", lambda _module: RecordedHost(str(tree)))
    answers = [by_program(REQUESTS[name], capsys), by_module(REQUESTS[name], capsys)]
    mine, theirs = (json.dumps(answer, sort_keys=True) for answer in answers)
    assert mine == theirs
    assert "Traceback" not in mine
