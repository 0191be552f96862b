# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What looks at a node, the program that is on it or the module, and why."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import DAMAGED, OTHER_PYTHON
from ansible_collections.gpufleet.node.plugins.module_utils._node.compressed import decompress
from ansible_collections.gpufleet.node.plugins.module_utils._node.look_frame import ANSWERED, framed
from ansible_collections.gpufleet.node.plugins.module_utils._node.sent_binding import LACKS
from ansible_collections.gpufleet.node.plugins.plugin_utils import program_look
from ansible_collections.gpufleet.node.plugins.plugin_utils.binding import binding_of, packed
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import ansible_playbook

pytest.importorskip("ansible.plugins.action", reason="an action needs Ansible's controller, Python 3.11")

from ansible.config.manager import ConfigManager
from ansible.errors import AnsibleAuthenticationFailure, AnsibleConnectionFailure
from ansible_collections.gpufleet.node.plugins.action import assess_node
from ansible_collections.gpufleet.node.plugins.plugin_utils import asking_action

BY_PROGRAM = {"changed": False, "said": "by the program"}
BY_MODULE = {"changed": False, "said": "by the module"}
ARGUMENTS = {"declared": {"hugepages": {}}, "excluded": [], "expect": "nothing", "detail": "brief"}


class Asking(asking_action.AskingAction):
    """One that does nothing else."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> Dict[str, Any]:
        return {}


class Action:
    """The action on a host where both answer; ``sent`` is what the program was asked, ``modules`` what was sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        action: Any = Asking.__new__(Asking)
        self.action = action
        self.done: Dict[str, Any] = {"rc": ANSWERED, "stdout": framed(json.dumps(BY_PROGRAM))}
        self.sent: List[Dict[str, Any]] = []
        self.modules: List[str] = []
        self.given: List[Dict[str, Any]] = []
        self.lacks: Optional[List[str]] = None
        self.pipelining = True
        action._connection = SimpleNamespace(
            _shell=SimpleNamespace(SHELL_FAMILY="sh"), is_pipelining_enabled=lambda wrap_async: self.pipelining
        )
        action._task = SimpleNamespace(check_mode=True, diff=False, environment=[], delegate_to=None)
        action._templar = SimpleNamespace(template=lambda value: value.replace("{{ one }}", "module"))
        action._display = SimpleNamespace(vvv=lambda *_arguments, **_more: None)
        monkeypatch.setattr(action, "_low_level_execute_command", self._execute)
        monkeypatch.setattr(action, "_execute_module", self._module)

    def _execute(self, command: str, *, in_data: bytes) -> Dict[str, Any]:
        assert command == program_look.command_line(asking_action.ARCHIVE_SHA256)
        request = json.loads(in_data)
        self.sent.append(request)
        if self.done["rc"] == ANSWERED and self.lacks is not None and "binding" not in request:
            return {"rc": ANSWERED, "stdout": framed(json.dumps({**BY_PROGRAM, LACKS: self.lacks}))}
        return self.done

    def _module(self, name: str, module_args: Dict[str, Any], **_more: Any) -> Dict[str, Any]:
        self.modules.append(name)
        self.given.append(module_args)
        return BY_MODULE if self.lacks is None or "binding" in module_args else {**BY_MODULE, LACKS: self.lacks}

    def asked_for(self, **variables: Any) -> Dict[str, Any]:
        answer: Dict[str, Any] = self.action.ask("gpufleet.node.node_state", ARGUMENTS, variables)
        return answer


@pytest.fixture
def action(monkeypatch: pytest.MonkeyPatch) -> Action:
    return Action(monkeypatch)


def test_the_program_on_the_node_is_asked_once_and_no_module_is_sent(action: Action) -> None:
    assert action.asked_for() == {**BY_PROGRAM, "looked_by": "program"}
    assert action.sent == [{**ARGUMENTS, "check_mode": True, "diff": False, "interpreter": ""}]
    assert action.modules == []


@pytest.mark.parametrize(
    ("interpreter", "asked"),
    [
        ("auto", ""),
        ("auto_silent", ""),
        ("auto_legacy_silent", ""),
        ("/opt/python/bin/python3", "/opt/python/bin/python3"),
        ("{{ one }}", "module"),
    ],
)
def test_the_interpreter_that_a_module_would_have_is_named(action: Action, interpreter: str, asked: str) -> None:
    action.asked_for(ansible_python_interpreter=interpreter)
    assert action.sent[0]["interpreter"] == asked


def test_the_interpreter_of_the_environment_and_of_ansible_cfg_is_named(
    action: Action, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = tmp_path / "ansible.cfg"
    settings.write_text("[defaults]\ninterpreter_python = /opt/cfg/python3\n")
    monkeypatch.delenv("ANSIBLE_PYTHON_INTERPRETER", raising=False)
    monkeypatch.setattr(asking_action.C, "config", ConfigManager(str(settings)))
    action.asked_for()
    monkeypatch.setenv("ANSIBLE_PYTHON_INTERPRETER", "/opt/environment/python3")
    action.asked_for()
    action.asked_for(ansible_python_interpreter=None)
    action.asked_for(ansible_python_interpreter="/opt/inventory/python3")
    asked = [request["interpreter"] for request in action.sent]
    assert asked == [f"/opt/{place}/python3" for place in ("cfg", "environment", "environment", "inventory")]


def test_the_settings_are_not_read_for_a_host_that_names_its_interpreter(
    action: Action, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking_action.C, "config", None)
    action.asked_for(ansible_python_interpreter="auto")
    assert action.sent[0]["interpreter"] == ""


def without_posix_shell(action: Action, _monkeypatch: pytest.MonkeyPatch) -> None:
    action.action._connection._shell.SHELL_FAMILY = "powershell"


def without_pipelining(action: Action, _monkeypatch: pytest.MonkeyPatch) -> None:
    action.pipelining = False


def with_kept_files(_action: Action, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking_action.C, "DEFAULT_KEEP_REMOTE_FILES", True)


def with_environment(action: Action, _monkeypatch: pytest.MonkeyPatch) -> None:
    action.action._task.environment = [None, {"HTTPS_PROXY": "proxy:3128"}]


def delegated(action: Action, _monkeypatch: pytest.MonkeyPatch) -> None:
    action.action._task.delegate_to = "jump"


@pytest.mark.parametrize(
    ("circumstance", "why"),
    [
        (without_posix_shell, "the node has no POSIX shell"),
        (without_pipelining, "pipelining is off, or this connection or become method does not support it"),
        (with_kept_files, "ANSIBLE_KEEP_REMOTE_FILES is set"),
        (with_environment, "the task has an environment"),
        (delegated, "the task is delegated"),
    ],
)
def test_where_the_program_may_see_something_else_it_is_not_asked(
    action: Action,
    monkeypatch: pytest.MonkeyPatch,
    circumstance: Callable[[Action, pytest.MonkeyPatch], None],
    why: str,
) -> None:
    circumstance(action, monkeypatch)
    assert action.asked_for() == {**BY_MODULE, "looked_by": "module", "not_by_program": why}
    assert (action.sent, action.modules) == ([], ["gpufleet.node.node_state"])


@pytest.mark.parametrize("value", ["module", "{{ one }}"])
def test_who_wants_the_module_has_it(action: Action, value: str) -> None:
    answer = action.asked_for(gpufleet_look_by=value)
    assert answer == {**BY_MODULE, "looked_by": "module", "not_by_program": "gpufleet_look_by is module"}
    assert action.sent == []


def test_an_empty_environment_is_none(action: Action) -> None:
    action.action._task.environment = [None, {}]
    assert action.asked_for()["looked_by"] == "program"


@pytest.mark.parametrize(
    ("done", "why"),
    [
        ({"rc": OTHER_PYTHON, "stdout": ""}, "the program was compiled for another Python than the one this task uses"),
        ({"rc": DAMAGED, "stdout": ""}, "the program on the node is damaged"),
        ({"rc": 124, "stdout": ""}, f"the program did not respond within {program_look.SECONDS} s"),
        ({"rc": 1, "stdout": "motd\n", "stderr": "E\n"}, "the program failed with exit status 1: E"),
        ({"rc": ANSWERED, "stdout": framed("{}")[:-3]}, program_look.NOT_WHOLE),
    ],
)
def test_where_the_program_has_no_answer_the_module_looks_and_it_is_said_why(
    action: Action, done: Dict[str, Any], why: str
) -> None:
    action.done = done
    assert action.asked_for() == {**BY_MODULE, "looked_by": "module", "not_by_program": why}
    assert len(action.sent) == 1


@pytest.mark.parametrize(
    "error", [AnsibleConnectionFailure("no route to host"), AnsibleAuthenticationFailure("Incorrect sudo password")]
)
def test_a_host_out_of_reach_is_not_asked_again(
    action: Action, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_arguments: Any, **_more: Any) -> None:
        raise error

    monkeypatch.setattr(action.action, "_low_level_execute_command", fails)
    with pytest.raises(type(error)):
        action.asked_for()
    assert action.modules == []


def assessed(answer: Dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Dict[str, Any]:
    """The result of the action where ``node_state`` answers so."""
    action: Any = assess_node.ActionModule.__new__(assess_node.ActionModule)
    action._templar = SimpleNamespace(template=lambda value: value)
    action._task = SimpleNamespace(args={})
    monkeypatch.setattr(asking_action.AskingAction, "run", lambda *_arguments: {})
    monkeypatch.setattr(action, "ask", lambda *_arguments: answer)
    variables = {"ansible_run_tags": ["all"], "ansible_skip_tags": [], "gpufleet_expect": "nothing"}
    result: Dict[str, Any] = action.run(task_vars={**variables, "ansible_play_hosts_all": ["a"]})
    return result


@pytest.mark.parametrize(
    "answer",
    [
        {"failed": True, "msg": "MODULE FAILURE"},
        {"failed": True, "msg": "\n"},
        {"failed": True, "msg": ["odd"], "module_stderr": 5},
        {"unreachable": True},
        {"concerns": 1},
    ],
)
@pytest.mark.parametrize("looked", [{"looked_by": "program"}, {"looked_by": "module", "not_by_program": "it is gone"}])
def test_what_looked_is_said_of_a_look_that_failed_too(
    answer: Dict[str, Any], looked: Dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = assessed({**answer, **looked}, monkeypatch)
    assert {name: result[name] for name in result if name in ("looked_by", "not_by_program")} == looked
    assert result["msg"].strip()


@pytest.mark.parametrize("said", [{}, {"msg": None}, {"msg": ["odd", {"a": 1}]}, {"msg": "no"}])
def test_an_answer_that_says_little_still_has_what_playbooks_ask_for(
    said: Dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"concerns": {"hugepages": {"status": "drifted"}}, "orphaned": [], "failed": True, **said}
    result = assessed(answer, monkeypatch)
    assert isinstance(result["refused"], str)
    assert result["refused"]
    assert [result[name] for name in ("drifted", "unknown", "invalid", "waiting", "managed", "to_converge")] == [[]] * 6


# --- the binding ------------------------------------------------------------------------------------------------------


def own_file(folder: Path) -> str:
    """A binding on the controller that is not that of its Python."""
    file = folder / "pynvml.py"
    file.write_bytes(binding_of("").content + b"# the site's\n")
    return str(file)


@pytest.mark.parametrize("lacks", [["mig_layout", "gpu_settings"], []])
def test_a_node_that_lacks_the_binding_is_asked_again_with_that_of_the_controller(
    action: Action, lacks: List[str]
) -> None:
    action.lacks = lacks
    assert action.asked_for() == {**BY_PROGRAM, "looked_by": "program", "read_with_binding": lacks}
    first, second = action.sent
    assert second == {**first, "binding": packed("")}
    assert decompress(second["binding"]).encode("utf-8", "surrogateescape") == binding_of("").content
    assert action.modules == []


def test_the_module_is_asked_again_and_not_the_program_that_is_not_there(action: Action) -> None:
    action.lacks = ["mig_layout"]
    action.done = {"rc": program_look.NO_PROGRAM, "stdout": "", "stderr": ""}
    answer = action.asked_for()
    assert (answer["looked_by"], answer["read_with_binding"]) == ("module", ["mig_layout"])
    assert LACKS not in answer
    assert len(action.sent) == 1
    assert action.given == [ARGUMENTS, {**ARGUMENTS, "binding": packed("")}]


def test_the_binding_that_is_sent_is_the_one_that_the_site_declares(action: Action, tmp_path: Path) -> None:
    action.lacks = []
    file = own_file(tmp_path)
    action.asked_for(nvml_file=file)
    assert decompress(action.sent[1]["binding"]).endswith("# the site's\n")


@pytest.mark.parametrize(
    "variables",
    [
        {"nvml_source": "package"},
        {"nvml_source": "folder", "nvml_folder": "/opt/nvml"},
        {"nvml_state": "absent"},
        {"nvml_file": "/no/pynvml.py"},
        {"gpufleet_profile": "no such profile"},
    ],
    ids=" ".join,
)
def test_where_the_controller_would_not_install_it_none_is_sent(action: Action, variables: Dict[str, Any]) -> None:
    action.lacks = ["mig_layout"]
    assert action.asked_for(**variables) == {**BY_PROGRAM, "looked_by": "program"}
    assert len(action.sent) == 1


def test_a_machine_without_the_program_is_looked_at_by_the_module(tmp_path: Path) -> None:
    """By Ansible itself, on this machine, which only reads."""
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars": {
            "gpufleet_expect": "nothing",
            "gpufleet_concerns": ["kernel_modules"],
            "kernel_modules_block": ["nouveau"],
        },
        "tasks": [
            {"gpufleet.node.assess_node": {}, "register": "look"},
            {"gpufleet.node.gpu_node_info": {"gather": "memory", "compress": "no"}, "register": "info"},
            {"ansible.builtin.debug": {"msg": "{{ [look.looked_by, look.not_by_program, look.concerns | list] }}"}},
            {"ansible.builtin.debug": {"msg": "{{ [info.looked_by, info.not_by_program, 'memory' in info.node] }}"}},
        ],
    }
    (tmp_path / "look.yml").write_text(json.dumps([play]))
    here = {"ansible_connection": "local", "ansible_pipelining": True, "ansible_python_interpreter": sys.executable}
    output = ansible_playbook(tmp_path, {"hosts": {"here": here}}, str(tmp_path / "look.yml"))
    assert output.endswith("ends with 0")
    texts = " ".join(output.split())
    why = program_look.WHY_NOT[program_look.NO_PROGRAM]
    assert f'[ "module", "{why}", [ "kernel_modules" ] ]' in texts
    assert f'[ "module", "{why}", true ]' in texts
