# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Units by their files, and the guard before systemd reads them again."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Dict, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd, systemd_apply, unit_command
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

UNIT = "nvidia-persistenced.service"
ETC, RUN, LIB = "/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"
PLAIN = "[Unit]\nDescription=x\n[Service]\nExecStart=/bin/a\n"
INSTALLABLE = f"{PLAIN}[Install]\nWantedBy=multi-user.target\n"


def exec_start(host: FakeHost) -> Tuple[str, ...]:
    return systemd.unit_lines(host.files, UNIT).get("Service.ExecStart", ())


# Files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[Service]\nExecStart=/bin/a --b=c\n", [("Service.ExecStart", "/bin/a --b=c")]),
        ("[Service]\n  Type = oneshot  \n", [("Service.Type", "oneshot")]),
        ("# x=1\n; y=2\n\n[Unit]\nAfter=\n", [("Unit.After", "")]),
        ("[Unit]\nAfter=a \\\n  b \\\n# not this\n  c\nBefore=d\n", [("Unit.After", "a b c"), ("Unit.Before", "d")]),
        ("[Unit]\nno assignment\nAfter=a", [("Unit.After", "a")]),
        ("[Unit]\nAfter=a \\\n  b \\\n", [("Unit.After", "a b")]),
        ("After=a\n", [(".After", "a")]),
    ],
)
def test_a_unit_file_is_read_as_systemd_reads_it(text: str, expected: Sequence[Tuple[str, str]]) -> None:
    assert list(systemd.assignments(text)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({f"{LIB}/{UNIT}": PLAIN}, ("/bin/a",)),
        ({f"{LIB}/{UNIT}": PLAIN, f"{ETC}/{UNIT}": "[Service]\nExecStart=/bin/etc\n"}, ("/bin/etc",)),
        ({f"{LIB}/{UNIT}": PLAIN, f"{RUN}/{UNIT}": "[Service]\nExecStart=/bin/run\n"}, ("/bin/run",)),
        ({f"{LIB}/{UNIT}": PLAIN, f"{ETC}/{UNIT}.d/a.conf": "[Service]\nExecStart=/bin/b\n"}, ("/bin/a", "/bin/b")),
        ({f"{LIB}/{UNIT}": PLAIN, f"{ETC}/{UNIT}.d/a.conf": "[Service]\nExecStart=\nExecStart=/bin/b\n"}, ("/bin/b",)),
        # By name across all folders, whatever the folder.
        (
            {
                f"{LIB}/{UNIT}": PLAIN,
                f"{ETC}/{UNIT}.d/10-a.conf": "[Service]\nExecStart=\nExecStart=/bin/ten\n",
                f"{LIB}/{UNIT}.d/20-b.conf": "[Service]\nExecStart=\nExecStart=/bin/twenty\n",
            },
            ("/bin/twenty",),
        ),
        # Of equal names the strongest folder counts.
        (
            {
                f"{LIB}/{UNIT}": PLAIN,
                f"{LIB}/{UNIT}.d/a.conf": "[Service]\nExecStart=\nExecStart=/bin/lib\n",
                f"{RUN}/{UNIT}.d/a.conf": "[Service]\nExecStart=\nExecStart=/bin/run\n",
            },
            ("/bin/run",),
        ),
        ({f"{LIB}/{UNIT}": PLAIN, f"{LIB}/nvidia-.service.d/a.conf": "[Service]\nExecStart=\n"}, ()),
        ({f"{LIB}/{UNIT}": PLAIN, f"{LIB}/service.d/a.conf": "[Service]\nExecStart=\n"}, ()),
        ({f"{LIB}/{UNIT}": PLAIN, f"{ETC}/{UNIT}.d/a.conf.rpmsave": "[Service]\nExecStart=\n"}, ("/bin/a",)),
        ({f"{ETC}/{UNIT}.d/a.conf": "[Service]\nExecStart=/bin/b\n"}, ()),
        ({}, ()),
    ],
)
def test_the_effective_unit_is_merged_from_all_folders(
    tmp_path: Path, files: Dict[str, str], expected: Tuple[str, ...]
) -> None:
    assert exec_start(build(tmp_path, files)) == expected


def test_a_mask_leaves_nothing_of_a_unit_and_a_masked_drop_in_does_not_count(tmp_path: Path) -> None:
    text = "[Service]\nExecStart=/bin/b\n"
    host = build(
        tmp_path,
        {f"{LIB}/{UNIT}": PLAIN, f"{LIB}/{UNIT}.d/a.conf": text},
        {f"{ETC}/{UNIT}.d/a.conf": "/dev/null"},
    )
    assert exec_start(host) == ("/bin/a",)
    build(tmp_path, {}, {f"{ETC}/{UNIT}": "/dev/null"})
    assert systemd.unit_lines(host.files, UNIT) == {}


@pytest.mark.parametrize(
    ("files", "links", "expected"),
    [
        ({}, {}, systemd.NOT_FOUND),
        ({f"{LIB}/{UNIT}": PLAIN}, {}, systemd.STATIC),
        ({f"{LIB}/{UNIT}": INSTALLABLE}, {}, systemd.DISABLED),
        ({f"{LIB}/{UNIT}": INSTALLABLE}, {f"{ETC}/multi-user.target.wants/{UNIT}": f"{LIB}/{UNIT}"}, systemd.ENABLED),
        ({f"{LIB}/{UNIT}": PLAIN}, {f"{LIB}/multi-user.target.wants/{UNIT}": f"../{UNIT}"}, systemd.ENABLED),
        ({f"{LIB}/{UNIT}": INSTALLABLE}, {f"{ETC}/docker.service.requires/{UNIT}": f"{LIB}/{UNIT}"}, systemd.ENABLED),
        # What is in /run is gone at the next boot.
        ({f"{LIB}/{UNIT}": INSTALLABLE}, {f"{RUN}/multi-user.target.wants/{UNIT}": f"{LIB}/{UNIT}"}, systemd.DISABLED),
        ({f"{LIB}/{UNIT}": INSTALLABLE}, {f"{ETC}/{UNIT}": "/dev/null"}, systemd.MASKED),
        ({f"{LIB}/{UNIT}": INSTALLABLE, f"{ETC}/{UNIT}": ""}, {}, systemd.MASKED),
        ({f"{LIB}/{UNIT}": PLAIN, f"{ETC}/{UNIT}.d/a.conf": "[Install]\nWantedBy=x.target\n"}, {}, systemd.DISABLED),
    ],
)
def test_what_the_next_boot_makes_of_a_unit_is_told_by_files(
    tmp_path: Path, files: Dict[str, str], links: Dict[str, str], expected: str
) -> None:
    host = build(tmp_path, files, links)
    assert systemd.enabled(host.files, UNIT) == expected
    assert host.commands.calls == []


@pytest.mark.skipif(shutil.which("systemctl") is None, reason="no systemctl on this machine")
@pytest.mark.parametrize(
    ("text", "links", "expected"),
    [
        (PLAIN, {}, systemd.STATIC),
        (INSTALLABLE, {}, systemd.DISABLED),
        (INSTALLABLE, {f"{ETC}/multi-user.target.wants/{UNIT}": f"{LIB}/{UNIT}"}, systemd.ENABLED),
        (
            INSTALLABLE,
            {f"{ETC}/multi-user.target.wants/{UNIT}": f"{LIB}/{UNIT}", f"{ETC}/{UNIT}": "/dev/null"},
            systemd.MASKED,
        ),
    ],
)
def test_systemctl_says_the_same(tmp_path: Path, text: str, links: Dict[str, str], expected: str) -> None:
    host = build(tmp_path, {f"{LIB}/{UNIT}": text}, links)
    said = subprocess.run(
        ["systemctl", f"--root={tmp_path}", "is-enabled", UNIT], stdout=subprocess.PIPE, text=True, check=False
    )
    assert systemd.UnitFiles(host.files).status(UNIT) == expected == said.stdout.strip()


def test_a_mask_in_run_is_gone_at_the_next_boot(tmp_path: Path) -> None:
    host = build(tmp_path, {f"{LIB}/{UNIT}": PLAIN}, {f"{RUN}/{UNIT}": "/dev/null"})
    assert systemd.enabled(host.files, UNIT) == systemd.STATIC


def test_what_is_under_a_mask_an_instance_and_another_name_are_told(tmp_path: Path) -> None:
    host = build(
        tmp_path,
        {f"{LIB}/{UNIT}": INSTALLABLE, f"{LIB}/a@.service": INSTALLABLE},
        {f"{ETC}/{UNIT}": "/dev/null", f"{LIB}/other.service": UNIT},
    )
    files = systemd.UnitFiles(host.files)
    assert (files.status(UNIT), files.status(UNIT, unmasked=True)) == (systemd.MASKED, systemd.DISABLED)
    assert (files.status("a@b.service"), files.real_name("a@b.service")) == (systemd.DISABLED, "a@b.service")
    assert files.real_name("other.service") == UNIT


def test_a_drop_in_that_leads_nowhere_says_nothing(tmp_path: Path) -> None:
    host = build(tmp_path, {"/etc/systemd/system/a.service": "[Unit]\nAfter=b.service\n"})
    folder = tmp_path / "etc/systemd/system/a.service.d"
    folder.mkdir()
    (folder / "x.conf").symlink_to("/nowhere")
    assert systemd.unit_lines(host.files, "a.service") == {"Unit.After": ("b.service",)}


def test_what_pulls_a_unit_in_is_listed(tmp_path: Path) -> None:
    places = (f"{ETC}/multi-user.target.wants", f"{ETC}/docker.service.requires", f"{LIB}/graphical.target.wants")
    host = build(tmp_path, {}, {f"{place}/{UNIT}": f"{LIB}/{UNIT}" for place in places})
    assert systemd.links(host.files, UNIT, [ETC]) == ("docker.service.requires", "multi-user.target.wants")
    assert len(systemd.links(host.files, UNIT)) == 3


# The reload


def scope_of(pid: int, scope: str, *, opened: Sequence[str] = ()) -> Tuple[Dict[str, str], Dict[str, str]]:
    """A process in a scope, with files that it has open."""
    files = {
        f"/proc/{pid}/cgroup": f"0::/system.slice/{scope}\n",
        f"/proc/{pid}/fdinfo/0": "",
        f"/proc/{pid}/fd/.keep": "",
    }
    return files, {f"/proc/{pid}/fd/{number}": path for number, path in enumerate(opened)}


class Systemd:
    """systemctl as far as it is asked here.

    ``scopes`` have their properties, ``due`` is what NeedDaemonReload says, ``drop_ins`` are the paths that it knows.
    """

    def __init__(self, host: FakeHost, scopes: Optional[Mapping[str, str]] = None) -> None:
        self.scopes = scopes or {}
        self.due = True
        self.drop_ins = ""
        self.reloads = 0
        self.broken = False
        self.root = host.files.root
        host.commands.programs["systemctl"] = self

    def __call__(self, argv: Sequence[str]) -> Completed:
        if self.broken:
            return Completed(1, "", "Failed to connect to bus: Connection refused\n")
        if argv[1] == "daemon-reload":
            self.reloads += 1
            self.due = False
            folders = Path(f"{self.root}{systemd.ETC}").glob("*.d/*.conf")
            self.drop_ins = " ".join(f"/{path.relative_to(self.root)}" for path in folders if path.exists())
            return Completed(0, "", "")
        assert argv[1] == "show"
        if argv[2] == "--property=NeedDaemonReload,DropInPaths":
            due = "yes" if self.due else "no"
            return Completed(0, f"NeedDaemonReload={due}\nDropInPaths={self.drop_ins}\n", "")
        blocks = [f"Id={unit}\n{self.scopes.get(unit, 'DevicePolicy=auto')}\n" for unit in argv[4:]]
        return Completed(0, "\n".join(blocks), "")


STRICT = "DevicePolicy=strict"
LEGACY = f"{STRICT}\nDeviceAllow=/dev/char/1:3 rwm\nDeviceAllow=char-pts rwm"
NODE = "/dev/char/195:0"


def machine(root: Path, *processes: Tuple[Dict[str, str], Dict[str, str]]) -> FakeHost:
    host = build(root, {"/run/systemd/system/.keep": "", "/dev/nvidia0": "", NODE: ""})
    for files, links in processes:
        build(root, files, links)
    return host


def test_a_reload_is_only_due_for_what_we_announced_and_systemd_has_not_read(tmp_path: Path) -> None:
    host = machine(tmp_path)
    daemon = Systemd(host)
    assert not systemd.reload_due(host, UNIT)
    assert host.commands.calls == []
    systemd.announce(host, UNIT)
    assert systemd.reload_due(host, UNIT)
    assert not systemd.reload_due(host, "other.service")
    daemon.due = False
    assert not systemd.reload_due(host, UNIT)


LOADED = "LoadState=loaded\nActiveState=active\n"
SHOWN = f"Id=a.service\n{LOADED}MainPID=1\n\nId=b.service\n{LOADED}MainPID=0\n"


@pytest.mark.parametrize(
    "text", [*(SHOWN[:end] for end in range(0, len(SHOWN) - len("MainPID=0\n"), 7)), "Version=257\n"]
)
def test_an_answer_of_systemctl_that_lacks_something_says_nothing(tmp_path: Path, text: str) -> None:
    host = machine(tmp_path)
    host.commands.programs["systemctl"] = lambda argv: Completed(0, text, "")
    with pytest.raises(CannotLook, match=r"systemctl show: its answer is incomplete: .* is missing"):
        list(systemd.show(host, ("Id", "LoadState", "ActiveState", "MainPID"), ("a.service", "b.service")))


def test_a_unit_that_is_no_service_has_no_process_to_show(tmp_path: Path) -> None:
    host = machine(tmp_path)
    host.commands.programs["systemctl"] = lambda argv: Completed(0, "Id=a.timer\nActiveState=active\n", "")
    (block,) = systemd.show(host, ("Id", "ActiveState", "MainPID"), ("a.timer",))
    assert block == {"Id": ["a.timer"], "ActiveState": ["active"]}


def test_several_units_are_announced_once_each_and_read_together(tmp_path: Path) -> None:
    host = machine(tmp_path)
    daemon = Systemd(host)
    for unit in (UNIT, "a.service", UNIT):
        systemd.announce(host, unit)
    assert host.files.read(systemd.MARKER) == f"{UNIT}\na.service\n"
    assert systemd_apply.reload_announced(host) is None
    assert daemon.reloads == 1
    assert not host.files.exists(systemd.MARKER)


def test_nothing_is_reloaded_when_systemd_has_read_it_all(tmp_path: Path) -> None:
    host = machine(tmp_path)
    daemon = Systemd(host)
    daemon.due = False
    systemd.announce(host, UNIT)
    assert systemd_apply.reload_announced(host) is None
    assert daemon.reloads == 0
    assert not host.files.exists(systemd.MARKER)


def test_a_drop_in_of_a_service_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    """systemd loads none for it, whatever is reloaded."""
    host = machine(tmp_path)
    daemon = Systemd(host)
    known = daemon.__call__

    def of_gone(argv: Sequence[str]) -> Completed:
        answer = known(argv)
        daemon.drop_ins = ""
        return answer

    host.commands.programs["systemctl"] = of_gone
    build(tmp_path, {f"{systemd.ETC}/slurmd.service.d/zz-gpufleet.conf": "[Service]\n"})
    systemd.announce(host, "slurmd.service")
    assert systemd_apply.reload_announced(host) is None
    assert not host.files.exists(systemd.MARKER)


def test_the_first_drop_in_of_a_unit_is_read_though_systemd_says_that_nothing_is_new(tmp_path: Path) -> None:
    host = machine(tmp_path)
    daemon = Systemd(host)
    daemon.due = False
    path = f"{systemd.ETC}/{UNIT}.d/zz-gpufleet.conf"
    build(tmp_path, {path: "[Unit]\n", f"{path}.dpkg-old": ""}, {f"{systemd.ETC}/{UNIT}.d/gone.conf": "/nowhere"})
    systemd.announce(host, UNIT)
    assert systemd.reload_due(host, UNIT)
    assert systemd_apply.reload_announced(host) is None
    assert daemon.reloads == 1
    daemon.drop_ins = f"/run/systemd/system/{UNIT}.d/other.conf {path}"
    systemd.announce(host, UNIT)
    assert not systemd.reload_due(host, UNIT)


def test_where_systemd_does_not_run_nothing_is_announced_or_reloaded(tmp_path: Path) -> None:
    host = build(tmp_path, {"/etc/os-release": ""})
    systemd.announce(host, UNIT)
    assert systemd_apply.reload_announced(host) is None
    assert (host.commands.calls, host.files.log) == ([], [("remove", systemd.MARKER, "")])


@pytest.mark.parametrize(
    ("properties", "keeps"),
    [
        (LEGACY, False),
        (f"{STRICT}\nDeviceAllow=", False),
        (f"{LEGACY}\nDeviceAllow={NODE} rwm", True),
        # A link in /dev/char that is not there cannot be allowed again.
        (f"{LEGACY}\nDeviceAllow=/dev/char/195:7 rwm", False),
        (f"{LEGACY}\nDeviceAllow=/dev/nvidia0 rw", True),
        (f"{LEGACY}\nDeviceAllow=char-nvidia-frontend rw", True),
        (f"{STRICT}\nDeviceAllow=char-* rwm\nDeviceAllow=block-* rwm", True),
        ("DevicePolicy=auto\nDeviceAllow=", True),
        ("DevicePolicy=auto\nDeviceAllow=/dev/char/1:3 rwm", False),
    ],
)
def test_a_reload_waits_for_containers_whose_gpus_systemd_does_not_know(
    tmp_path: Path, properties: str, keeps: bool
) -> None:
    scope = "docker-4f1c.scope"
    host = machine(tmp_path, scope_of(71, scope, opened=["/dev/null", "/dev/nvidia0"]))
    daemon = Systemd(host, {scope: properties})
    systemd.announce(host, UNIT)
    reason = systemd_apply.reload_announced(host)
    assert reason == (None if keeps else f"{scope} would lose its GPUs, which were not assigned by systemd")
    assert systemd.reload_blocker(host) == (reason or "")
    assert daemon.reloads == int(keeps)
    # What must wait is found again, and done once the container is gone.
    assert systemd.reload_due(host, UNIT) is not keeps
    daemon.scopes = {}
    assert systemd_apply.reload_announced(host) is None
    assert daemon.reloads == 1


@pytest.mark.parametrize(
    ("processes", "reason"),
    [
        ([scope_of(71, "docker-a.scope", opened=["/dev/null"])], ""),
        ([({"/proc/71/cgroup": "0::/docker/4f1c\n"}, {"/proc/71/fd/3": "/dev/nvidia0"})], ""),
        ([({"/proc/71/cgroup": "0::/system.slice/x.service\n"}, {"/proc/71/fd/3": "/dev/nvidia0"})], ""),
        # Idle, but with the device in its own /dev.
        (
            [({"/proc/71/cgroup": "0::/system.slice/docker-a.scope\n", "/proc/71/root/dev/nvidiactl": ""}, {})],
            "docker-a.scope would lose",
        ),
        # The first version of control groups.
        (
            [
                (
                    {"/proc/71/cgroup": "4:cpu:/x\n1:name=systemd:/k.slice/cri-b.scope\n"},
                    {"/proc/71/fd/3": "/dev/nvidia1"},
                )
            ],
            "cri-b.scope would lose",
        ),
        (
            [scope_of(number, f"docker-{number}.scope", opened=["/dev/nvidiactl"]) for number in range(71, 76)],
            "docker-71.scope, docker-72.scope, docker-73.scope and 2 more would lose",
        ),
        # Gone while we looked.
        ([({"/proc/71/environ": ""}, {})], ""),
    ],
)
def test_the_containers_with_gpus_are_found_by_their_processes(
    tmp_path: Path, processes: Sequence[Tuple[Dict[str, str], Dict[str, str]]], reason: str
) -> None:
    host = machine(tmp_path, *processes)
    names = [*(f"docker-{name}.scope" for name in ("a", *range(71, 76))), "cri-b.scope"]
    Systemd(host, dict.fromkeys(names, LEGACY))
    found = systemd.reload_blocker(host)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_a_systemd_that_does_not_answer_is_told_as_such(tmp_path: Path) -> None:
    host = machine(tmp_path)
    Systemd(host).broken = True
    systemd.announce(host, UNIT)
    with pytest.raises(CannotLook, match=r"Cannot query systemd on systemctl show: exit status 1: Failed"):
        systemd.reload_due(host, UNIT)
    with pytest.raises(Refused, match=rf"Cannot restart {UNIT} with systemctl restart {UNIT}: exit status 1: Failed"):
        systemd_apply.restart(host, UNIT)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=--x --y\n", "--x --y"),
        ('A="--x --y"\r\n', "--x --y"),
        ("A='--x \"a b\"' # no comment\n", '--x "a b"# no comment'),
        ('A="--x\n  --y"\nB=1\n', "--x\n  --y"),
        ('A="--x \\\n--y"\n', "--x --y"),
        ("A=--x \\\n--y\n", "--x --y"),
        ('A="--x\n--y\n', "--x\n--y\n"),
        ('A=--x="a b"\n', '--x="a b"'),
        ('A = "\\"a\\" \\$b \\c" \'d\'\n', '"a" $b \\cd'),
        ("# A=1 \\\nA=2\n;A=3\nnothing\nA=--x\n", "--x"),
        ("export A=1\nA=\n", ""),
    ],
)
def test_a_file_of_variables_is_read_as_systemd_does(tmp_path: Path, text: str, value: str) -> None:
    host = build(tmp_path, {"/env": ""})
    (tmp_path / "env").write_bytes(text.encode())
    environment = unit_command.environment_of(host.files, "a.service", {"Service.EnvironmentFile": ("-/env",)})
    assert environment["A"] == (value, "/env")
