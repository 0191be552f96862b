# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boot service: what rooms see of it, its unit as systemd judges it, and what it does at boot."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.node import boot as boot_module
from ansible_collections.gpufleet.node.node.boot import boot, limit_of
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux.boot_service import UNIT, why_not_persisted
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import ARCHIVE, EXEC_START, PROGRAM
from ansible_collections.gpufleet.node.plugins.module_utils._node.order import RegisteredConcern
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.node_tools import spec
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.node_tools.options import OPTIONS
from ansible_collections.gpufleet.node.tests.unit.node.boot_concern import Tunable, declaration, verify
from ansible_collections.gpufleet.node.tests.unit.support import AT_ONCE_SECONDS, FakeHost, build

ETC = "/etc/systemd/system"
DEFAULTS: Dict[str, Any] = {name: option.get("default") for name, option in OPTIONS.items()}


# What rooms see


INSTALLED = {ARCHIVE: "", PROGRAM: "", f"{ETC}/{UNIT}": spec.unit_text(DEFAULTS)}
LINK = {f"{ETC}/multi-user.target.wants/{UNIT}": f"{ETC}/{UNIT}"}


@pytest.mark.parametrize(
    ("files", "links", "reason"),
    [
        (INSTALLED, LINK, ""),
        (INSTALLED, {}, "the boot service is not enabled; run the role node_tools"),
        ({}, {}, "the boot service is not installed; run the role node_tools"),
        ({ARCHIVE: "", PROGRAM: ""}, {}, "the boot service is not installed; run the role node_tools"),
        (
            {f"{ETC}/{UNIT}": INSTALLED[f"{ETC}/{UNIT}"]},
            LINK,
            "the boot service is not installed; run the role node_tools",
        ),
        (
            {ARCHIVE: "", PROGRAM: ""},
            {f"{ETC}/{UNIT}": "/dev/null"},
            f"the boot service is masked; run systemctl unmask {UNIT}",
        ),
    ],
)
def test_a_room_learns_from_files_whether_the_boot_service_carries_its_settings(
    tmp_path: Path, files: Dict[str, str], links: Dict[str, str], reason: str
) -> None:
    host = build(tmp_path, files, links)
    assert why_not_persisted(host.files) == reason
    assert host.commands.calls == []


# The unit


def lines_of(**options: Any) -> List[str]:
    return spec.unit_text({**DEFAULTS, **options}).splitlines()


def test_the_service_starts_after_the_driver_and_before_what_hands_gpus_out() -> None:
    lines = lines_of(boot_before=["docker.service", "slurmd.service", "docker.service"])
    assert "Before=docker.service slurmd.service" in lines
    after = next(line for line in lines if line.startswith("After=")).partition("=")[2].split()
    assert {"systemd-modules-load.service", "nvidia-persistenced.service", "nvidia-fabricmanager.service"} <= set(after)
    assert not [line for line in lines if line.startswith("RequiredBy=")]


def test_services_are_held_back_only_when_they_shall_be() -> None:
    lines = lines_of(boot_failure="hold", boot_before=["docker.service"])
    assert lines[-2:] == ["WantedBy=multi-user.target", "RequiredBy=docker.service"]
    assert lines_of(boot_failure="hold", boot_before=[])[-1] == "WantedBy=multi-user.target"


def test_systemd_waits_longer_than_the_deadline_of_the_program_and_not_long_for_its_end() -> None:
    lines = lines_of(boot_timeout=77)
    assert f"ExecStart={EXEC_START} boot --timeout 77" in lines
    assert "TimeoutStartSec=107" in lines
    assert "TimeoutStopSec=5" in lines


ONESHOT = "[Service]\nType=oneshot\nExecStart=/bin/true\n"
CONSUMERS = {
    "docker.socket": "[Socket]\nListenStream=/run/docker.sock\n",
    "docker.service": f"[Unit]\nAfter=docker.socket containerd.service\nRequires=docker.socket\n{ONESHOT}",
    "containerd.service": f"[Unit]\nAfter=network.target local-fs.target\n{ONESHOT}",
    "nvidia-cdi-refresh.service": f"[Unit]\nAfter=multi-user.target\n{ONESHOT}",
    "nvidia-persistenced.service": f"[Unit]\nWants=syslog.target\n{ONESHOT}",
}


@pytest.mark.parametrize("failure", ["continue", "hold"])
def test_systemd_has_nothing_to_say_against_the_unit_with_and_without_its_consumers(
    tmp_path: Path, failure: str
) -> None:
    text = spec.unit_text({**DEFAULTS, "boot_failure": failure})
    assert verify(tmp_path, {UNIT: text}) == []
    (tmp_path / "full").mkdir()
    assert verify(tmp_path / "full", {UNIT: text, **CONSUMERS}) == []


def test_a_socket_that_waits_would_be_a_ring_as_the_refusal_says(tmp_path: Path) -> None:
    text = spec.unit_text({**DEFAULTS, "boot_before": ["docker.socket"]})
    assert any("ordering cycle" in line for line in verify(tmp_path, {UNIT: text, **CONSUMERS}))
    with pytest.raises(DeclarationError, match=r"start before basic\.target"):
        spec.parse({**DEFAULTS, "archive_sha256": "0" * 64, "boot_before": ["docker.socket"]})


# What it does


def refuse() -> None:
    raise CannotLook("do it", cause="x")


def machine(root: Path, declarations: Mapping[str, str]) -> FakeHost:
    files = {f"/sys/{name}": "0\n" for name in ("one", "two", "three")}
    return build(
        root, {**files, **{f"/etc/gpufleet/declared.d/{name}.json": text for name, text in declarations.items()}}
    )


def values(host: FakeHost) -> List[str]:
    return [host.files.read(f"/sys/{name}").strip() for name in ("one", "two", "three")]


def entries(*tunables: Tunable) -> Tuple[RegisteredConcern, ...]:
    return tuple(RegisteredConcern.of(tunable) for tunable in tunables)


def test_what_is_named_is_applied_also_where_another_unit_does_so_at_boot(tmp_path: Path) -> None:
    host = machine(tmp_path, {"one": declaration("one", at_boot=False, value="1")})
    assert boot(host, registry=entries(Tunable("one"))) == 0
    assert values(host)[0] == "0"
    assert boot(host, concerns=["one"], registry=entries(Tunable("one"))) == 0
    assert values(host)[0] == "1"


@pytest.mark.parametrize("later", [declaration("one", value="2"), None], ids=["another", "none"])
def test_what_another_run_declared_while_it_was_waited_for_is_what_counts(
    tmp_path: Path, later: Optional[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    host = machine(tmp_path, {"one": declaration("one", value="1")})
    path = "/etc/gpufleet/declared.d/one.json"

    def other_run() -> None:
        host.files.before_lock = lambda: None
        if later is None:
            host.files.remove(path)
        else:
            host.files.store(path, later)

    host.files.before_lock = other_run
    assert boot(host, registry=entries(Tunable("one"))) == 0
    assert values(host)[0] == ("0" if later is None else "2")


def test_only_declarations_that_ask_for_it_are_applied_in_the_order_of_the_concerns(tmp_path: Path) -> None:
    host = machine(
        tmp_path,
        {
            "one": declaration("one", value="1"),
            "two": declaration("two", at_boot=False, value="2"),
            "three": declaration("three"),
        },
    )
    assert (
        boot(
            host,
            registry=(
                RegisteredConcern.of(Tunable("one"), after=("three",)),
                *entries(Tunable("two"), Tunable("three")),
            ),
        )
        == 0
    )
    assert values(host) == ["1", "0", "7"]
    assert [path for kind, path, _text in host.files.log if kind == "set"] == ["/sys/three", "/sys/one"]


def test_the_running_system_is_all_that_is_changed(tmp_path: Path) -> None:
    # Declared for the next boot only, which is the one we are in.
    host = machine(tmp_path, {"one": declaration("one", immediate=False, value="1")})
    text = host.files.read("/etc/gpufleet/declared.d/one.json")
    assert boot(host, registry=entries(Tunable("one"))) == 0
    assert values(host)[0] == "1"
    assert host.files.names("/etc") == ("gpufleet",)
    assert host.files.read("/etc/gpufleet/declared.d/one.json") == text


def test_a_concern_that_is_right_is_left_as_it_is(tmp_path: Path) -> None:
    host = machine(tmp_path, {"one": declaration("one", value="0")})
    assert boot(host, registry=entries(Tunable("one"))) == 0
    assert host.files.log == []


@pytest.mark.parametrize(
    ("tunable", "message"),
    [
        (Tunable("one", trouble=CannotLook("look", cause="it is dark")), "Cannot look: it is dark."),
        (Tunable("one", trouble=DeclarationError("do it", cause="no such GPU")), "Cannot do it: no such GPU."),
        (Tunable("one", step=refuse), "Cannot do it: x."),
        (Tunable("one", trouble=lambda: 1 // 0), "ZeroDivisionError: "),
    ],
)
def test_a_failure_of_one_concern_does_not_stop_the_others(
    tmp_path: Path, tunable: Tunable, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    host = machine(tmp_path, {"one": declaration("one"), "two": declaration("two")})
    assert boot(host, registry=entries(tunable, Tunable("two"))) == 1
    assert values(host)[1] == "7"
    assert f"boot: one: failed: {message}" in capsys.readouterr().out


def test_a_concern_that_hangs_has_its_own_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_module, "STEPS_SECONDS", 0.02)
    host = machine(tmp_path, {"one": declaration("one"), "two": declaration("two")})
    slow = RegisteredConcern.of(Tunable("one", step=lambda: time.sleep(30)), deadline=0.01)
    assert limit_of(slow) == pytest.approx(0.06)
    started = time.monotonic()
    assert boot(host, registry=(slow, RegisteredConcern.of(Tunable("two")))) == 1
    assert time.monotonic() - started < AT_ONCE_SECONDS
    assert values(host) == ["0", "7", "0"]
    # What waited for the first one does not find its lock taken.
    assert any("one: failed: it took longer than 0.06 s" in line for line in host.journal_lines)


def test_all_concerns_together_have_a_deadline(tmp_path: Path) -> None:
    host = machine(tmp_path, {"one": declaration("one"), "two": declaration("two")})
    started = time.monotonic()
    assert (
        boot(host, timeout=0.05, registry=entries(Tunable("one", trouble=lambda: time.sleep(30)), Tunable("two"))) == 1
    )
    assert time.monotonic() - started < AT_ONCE_SECONDS
    assert values(host) == ["0", "0", "0"]
    assert host.journal_lines[-1] == "boot: two: failed: the time of the boot service was used up"


def test_every_result_is_one_line_in_the_journal_with_its_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = machine(tmp_path, {"one": declaration("one"), "two": "{", "three": declaration("three", value="0")})
    told: List[Tuple[str, Mapping[str, str]]] = []
    monkeypatch.setattr(host, "journal", lambda message, fields: told.append((message, fields)))
    assert boot(host, registry=entries(Tunable("one"), Tunable("two"), Tunable("three"))) == 1
    results = [(message, fields) for message, fields in told if "GPUFLEET_BOOT" in fields]
    assert [message for message, _fields in results][1:] == [
        "boot: one: drifted before, 1 changed",
        "boot: three: in_sync before, 0 changed",
    ]
    assert [(fields["GPUFLEET_CONCERN"], fields["GPUFLEET_BOOT"], fields["PRIORITY"]) for _m, fields in results] == [
        ("two", "failed", "3"),
        ("one", "ok", "5"),
        ("three", "ok", "5"),
    ]


def test_only_the_named_concerns_are_applied_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = machine(tmp_path, {"one": declaration("one"), "two": declaration("two"), "three": "{"})
    registry = entries(Tunable("one"), Tunable("two"), Tunable("three"))
    assert boot(host, concerns=["two"], registry=registry) == 0
    assert values(host) == ["0", "7", "0"]
    assert capsys.readouterr().out == "boot: two: drifted before, 1 changed\n"
    assert boot(host, concerns=["two", "three"], registry=registry) == 1
    assert "boot: three: failed: Cannot read the declaration" in capsys.readouterr().out
    assert values(host)[0] == "0"


def test_a_named_concern_must_be_declared(tmp_path: Path) -> None:
    host = machine(tmp_path, {"one": declaration("one")})
    with pytest.raises(DeclarationError) as caught:
        boot(host, concerns=["one", "on"], registry=entries(Tunable("one")))
    cause = "nothing of this name is declared on this node"
    assert str(caught.value) == f"Cannot apply on on: {cause}. Did you mean one?"
    assert values(host)[0] == "0"


class Restless(Tunable):
    """A concern whose tunable falls back ``times`` times after it was set, as when another device comes meanwhile."""

    def __init__(self, name: str, host: FakeHost, times: int) -> None:
        super().__init__(name)
        self.host = host
        self.times = times

    def fall_back(self, seconds: float) -> None:
        if self.times:
            self.times -= 1
            self.host.files.store(f"/sys/{self.name}", "0")


@pytest.mark.parametrize(("times", "changed"), [(0, [1, 0]), (1, [1, 1, 0]), (3, [1, 1, 1, 1, 0])])
def test_it_looks_again_until_nothing_was_left_to_do(
    tmp_path: Path, times: int, changed: List[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = machine(tmp_path, {"one": declaration("one")})
    restless = Restless("one", host, times)
    monkeypatch.setattr(boot_module.time, "sleep", restless.fall_back)
    assert boot(host, again=5, registry=entries(restless)) == 0
    told = [line for line in host.journal_lines if line.startswith("boot: ")]
    assert [int(line.split(", ")[1].split()[0]) for line in told] == changed
    assert values(host)[0] == "7"


def test_a_tunable_that_never_rests_ends_with_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = machine(tmp_path, {"one": declaration("one")})
    restless = Restless("one", host, times=1000)
    clock = iter(range(1000))
    monkeypatch.setattr(boot_module.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(boot_module.time, "sleep", restless.fall_back)
    assert boot(host, again=5, timeout=30, registry=entries(restless)) == 0
    assert restless.times > 990


def test_what_failed_at_first_and_not_in_the_end_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = machine(tmp_path, {"one": declaration("one")})
    tunable = Tunable("one", trouble=CannotLook("look", cause="it is not there yet"))

    def appear(seconds: float) -> None:
        tunable.trouble = None

    monkeypatch.setattr(boot_module.time, "sleep", appear)
    assert boot(host, again=5, registry=entries(tunable)) == 0
    assert values(host)[0] == "7"


def test_it_waits_until_udev_has_made_the_devices(tmp_path: Path) -> None:
    host = machine(tmp_path, {"one": declaration("one")})
    seen: List[Sequence[str]] = []

    def udevadm(argv: Sequence[str]) -> Any:
        assert values(host)[0] == "0"
        seen.append(argv)
        return Completed(0, "", "")

    host.commands.programs["udevadm"] = udevadm
    assert boot(host, registry=entries(Tunable("one"))) == 0
    assert seen == [["udevadm", "settle", "--timeout=30"]]
    assert values(host)[0] == "7"
    host.commands.calls.clear()
    assert boot(machine(tmp_path / "none", {}), registry=entries(Tunable("one"))) == 0
    assert host.commands.calls == []
