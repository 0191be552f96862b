# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which boot loader is there, what the next boot brings, and how arguments get into it and out again."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Dict, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import steps
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import RunCommand
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, NotInEffect, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux import bootloader
from ansible_collections.gpufleet.node.plugins.module_utils._linux.bootloader import find_sources
from ansible_collections.gpufleet.node.plugins.module_utils._linux.bootloader_plan import (
    Regenerate,
    plan_arguments,
    regenerate,
)
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.concerns.hugepages.hugepages_machine import grub_files, update_grub
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, Killed, build, snapshot

ARGUMENTS = ("hugepagesz=1G", "hugepages=0:1,1:1")
RUNNING = "ro running"
MEMORY = "/var/lib/gpufleet/hugepages.arguments"
APART = ("run", "var")
MENU = (Path(__file__).parent / "data" / "grub.cfg").read_text()
ENTRY = "title Linux\nversion {version}\nlinux /vmlinuz-{version}\noptions {options}\n"
FEDORA = {
    "/boot/grub2/grub.cfg": 'blscfg\nset tuned_params="skew_tick=1"\n',
    "/boot/loader/entries/m-5.14.0-9.conf": ENTRY.format(version="5.14.0-9", options="root=a old $tuned_params"),
    "/boot/loader/entries/m-5.14.0-10.conf": ENTRY.format(
        version="5.14.0-10", options="root=a ${kernelopts} $tuned_params"
    ),
    "/boot/loader/entries/m-0-rescue.conf": ENTRY.format(version="0-rescue", options="root=a rescue"),
}
SYSTEMD = {
    "/efi/loader/loader.conf": "timeout 3\n",
    "/efi/loader/entries/arch.conf": ENTRY.format(version="6.9.1", options="root=b rw  quiet"),
    "/efi/loader/entries/arch-old.conf": ENTRY.format(version="6.6.9", options="root=b rw"),
    "/efi/loader/entries/windows.conf": "title Windows\nefi /EFI/Microsoft/Boot/bootmgfw.efi\n",
    "/etc/kernel/cmdline": "root=b rw quiet\n",
}


def host_of(tmp_path: Path, files: Dict[str, str]) -> FakeHost:
    return build(tmp_path, {"/etc/os-release": "ID=x\n", **files})


def with_program(host: FakeHost, *names: str) -> FakeHost:
    for name in names:
        host.commands.programs[name] = lambda argv: Completed(0, "", "")
    return host


def detect(host: FakeHost) -> bootloader.BootLoader:
    return bootloader.detect(host, "hugepages", RUNNING)


@pytest.mark.parametrize(
    ("default", "saved", "last"),
    [
        ("0", None, "first"),
        ("gnulinux-simple-1", None, "first"),
        ("Debian", None, "first"),
        ("1>0", None, "second"),
        ("1>1", None, "third"),
        ("gnulinux-advanced-1>gnulinux-6.1.0-1", None, "third"),
        ("Advanced options>Debian, 6.1.0-1", None, "third"),
        ("2", None, "fourth"),
        ("1", None, "second"),
        ("${saved_entry}", "gnulinux-advanced-1>gnulinux-6.1.0-1", "third"),
        ("${saved_entry}", None, "first"),
        ("gone", None, "first"),
    ],
)
def test_the_default_entry_of_a_menu_is_what_boots(
    tmp_path: Path, default: str, saved: Optional[str], last: str
) -> None:
    files = {"/boot/grub/grub.cfg": MENU % default}
    if saved:
        files["/boot/grub/grubenv"] = f"# GRUB Environment Block\nsaved_entry={saved}\n####"
    loader = detect(host_of(tmp_path, files))
    assert loader.name == "GRUB"
    assert loader.command_line.split()[-1] == last


@pytest.mark.parametrize(
    ("files", "name", "command_line"),
    [
        (FEDORA, "GRUB with loader entries", "root=a  skew_tick=1"),
        (
            {**FEDORA, "/boot/grub2/grubenv": "kernelopts=ro quiet\nsaved_entry=m-5.14.0-9\n"},
            "GRUB with loader entries",
            "root=a old skew_tick=1",
        ),
        (
            {**FEDORA, "/boot/grub2/grubenv": "kernelopts=ro quiet\n"},
            "GRUB with loader entries",
            "root=a ro quiet skew_tick=1",
        ),
        (
            {**FEDORA, "/run/ostree-booted": "", "/boot/grub2/grub.cfg": ""},
            "rpm-ostree",
            "root=a",
        ),
        (SYSTEMD, "systemd-boot", "root=b rw  quiet"),
        ({**SYSTEMD, "/efi/loader/loader.conf": "default arch-old.conf\n"}, "systemd-boot", "root=b rw"),
        ({**SYSTEMD, "/efi/loader/loader.conf": "default *-old\n"}, "systemd-boot", "root=b rw"),
        ({"/efi/EFI/Linux/linux.efi": ""}, "none", RUNNING),
        ({"/etc/zipl.conf": ""}, "none", RUNNING),
        ({}, "none", RUNNING),
    ],
)
def test_what_boots_next_is_read_where_the_loader_reads_it(
    tmp_path: Path, files: Dict[str, str], name: str, command_line: str
) -> None:
    loader = detect(host_of(tmp_path, files))
    assert (loader.name, loader.command_line) == (name, command_line)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"/efi/EFI/Linux/linux.efi": ""}, "unified kernel images carry their command line inside"),
        ({"/etc/zipl.conf": ""}, "zipl is not supported"),
        ({}, "no boot loader was found"),
    ],
)
def test_what_we_cannot_edit_is_said(tmp_path: Path, files: Dict[str, str], reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):
        plan_arguments(detect(host_of(tmp_path, files)), ARGUMENTS, ())


@pytest.mark.parametrize(
    ("files", "cause", "hint"),
    [
        (FEDORA, "grubby is not installed", "Install grubby"),
        ({**FEDORA, "/run/ostree-booted": ""}, "rpm-ostree is not installed", "Install rpm-ostree"),
        (
            {"/boot/grub/grub.cfg": MENU % "0"},
            "none of update-grub, grub-mkconfig, grub2-mkconfig is installed",
            "Install the program that generates this menu",
        ),
    ],
)
@pytest.mark.parametrize("wanted", [ARGUMENTS, ()])
def test_what_has_no_program_for_it_is_said_before_anything_changes(
    tmp_path: Path, files: Dict[str, str], cause: str, hint: str, wanted: Tuple[str, ...]
) -> None:
    loader = detect(host_of(tmp_path, files))
    assert loader.command_line
    with pytest.raises(DeclarationError) as caught:
        plan_arguments(loader, wanted, ("hugepages=4",))
    verb, more = ("set", f" (wanted {' '.join(ARGUMENTS)})") if wanted else ("remove", "")
    message = f"Cannot {verb} kernel arguments for the next boot: {cause}{more}. {hint}, or set permanent: false."
    assert str(caught.value) == message


def take(host: FakeHost, wanted: Sequence[str], ours: Sequence[str]) -> None:
    for step in plan_arguments(detect(host), tuple(wanted), tuple(ours)):
        if isinstance(step.action, Regenerate):
            regenerate(step.action, host)
        else:
            steps.perform(step, host)


@pytest.mark.parametrize("reads_drop_ins", [True, False])
@pytest.mark.parametrize("ending", ["\n", ""])
def test_arguments_go_into_grub_and_out_again(tmp_path: Path, reads_drop_ins: bool, ending: str) -> None:
    files = grub_files()
    files["/etc/default/grub"] = files["/etc/default/grub"].rstrip("\n") + ending
    if not reads_drop_ins:
        files["/usr/sbin/grub-mkconfig"] = ". ${sysconfdir}/default/grub\n"
    host = host_of(tmp_path, {**files, "/etc/default/grub.d/other.cfg": 'X=""\n'})
    host.commands.programs["update-grub"] = update_grub(host)
    update_grub(host)([])
    before = snapshot(tmp_path, APART)
    take(host, ARGUMENTS, ())
    assert detect(host).carried == ARGUMENTS
    assert " ".join(ARGUMENTS) in detect(host).command_line
    assert host.files.exists(bootloader.drop_in_of("hugepages")) is reads_drop_ins
    take(host, ("hugepagesz=1G", "hugepages=3"), ARGUMENTS)
    assert "hugepages=3" in detect(host).command_line
    assert "0:1" not in detect(host).command_line
    take(host, (), ("hugepagesz=1G", "hugepages=3"))
    assert snapshot(tmp_path, APART) == before
    assert not host.files.exists(MEMORY)


def test_only_the_menu_is_generated_when_the_drop_in_is_there(tmp_path: Path) -> None:
    host = host_of(tmp_path, grub_files())
    host.commands.programs["update-grub"] = update_grub(host)
    update_grub(host)([])
    first = plan_arguments(detect(host), ARGUMENTS, ())
    for step in first[:2]:
        steps.perform(step, host)
    second = plan_arguments(detect(host), ARGUMENTS, ())
    assert [type(step.action).__name__ for step in second] == ["Regenerate"]


@pytest.mark.parametrize(
    ("program", "config", "argv"),
    [
        ("update-grub", "/boot/grub/grub.cfg", ("update-grub",)),
        ("grub-mkconfig", "/boot/grub/grub.cfg", ("grub-mkconfig", "-o", "/boot/grub/grub.cfg")),
        ("grub2-mkconfig", "/boot/grub2/grub.cfg", ("grub2-mkconfig", "-o", "/boot/grub2/grub.cfg")),
    ],
)
def test_the_generator_that_is_installed_runs(tmp_path: Path, program: str, config: str, argv: Tuple[str, ...]) -> None:
    host = host_of(tmp_path, {config: MENU % "0", "/etc/default/grub": 'GRUB_CMDLINE_LINUX=""\n'})
    host.commands.programs[program] = lambda argv: Completed(0, "", "")
    action = plan_arguments(detect(host), ARGUMENTS, ())[-1].action
    assert isinstance(action, Regenerate)
    assert (action.command, action.configs) == (argv, (config,))


@pytest.mark.parametrize(
    ("answer", "error"),
    [(Completed(1, "", "disk full"), Refused), (Completed(0, "", ""), NotInEffect)],
    ids=["fails", "has no effect"],
)
@pytest.mark.parametrize("old", [None, "old"])
def test_what_did_not_work_is_taken_back(tmp_path: Path, answer: Completed, error: type, old: Optional[str]) -> None:
    host = host_of(tmp_path, grub_files())
    update_grub(host)([])
    if old is not None:
        host.files.replace(bootloader.drop_in_of("hugepages"), old)
    host.commands.programs["update-grub"] = lambda argv: answer
    before = snapshot(tmp_path, APART)
    with pytest.raises(error, match="is again as it was before this step"):
        take(host, ARGUMENTS, ())
    after = snapshot(tmp_path, APART)
    assert {path: entry for path, entry in after.items() if entry[0] != "folder"} == {
        path: entry for path, entry in before.items() if entry[0] != "folder"
    }


def test_grubby_edits_all_kernels_and_takes_the_old_arguments_out_first(tmp_path: Path) -> None:
    host = with_program(host_of(tmp_path, FEDORA), "grubby")
    _noted, step, _tidied = plan_arguments(detect(host), ARGUMENTS, ("hugepagesz=1G", "hugepages=4"))
    assert isinstance(step.action, RunCommand)
    assert step.action.argv == (
        "grubby",
        "--update-kernel=ALL",
        "--remove-args=hugepagesz=1G hugepages=4",
        "--args=hugepagesz=1G hugepages=0:1,1:1",
    )


def test_grubby_cannot_have_a_name_twice(tmp_path: Path) -> None:
    entry = ENTRY.format(version="5", options="ro hugepagesz=2M hugepages=64")
    files = {"/boot/grub2/grub.cfg": "blscfg\n", "/boot/loader/entries/a.conf": entry}
    host = with_program(host_of(tmp_path, files), "grubby")
    with pytest.raises(DeclarationError) as caught:
        plan_arguments(detect(host), ARGUMENTS, ())
    assert str(caught.value) == (
        "Cannot set kernel arguments with grubby: it keeps each name once, "
        "and hugepages, hugepagesz would occur twice. Declare one page size at boot on this machine."
    )


def test_the_deployments_of_ostree_get_their_arguments_in_order(tmp_path: Path) -> None:
    host = with_program(host_of(tmp_path, {**FEDORA, "/run/ostree-booted": ""}), "rpm-ostree")
    _noted, step, _tidied = plan_arguments(detect(host), ARGUMENTS, ("hugepages=4",))
    assert isinstance(step.action, RunCommand)
    assert step.action.argv == (
        *("rpm-ostree", "kargs", "--delete-if-present=hugepages=4"),
        *("--append=hugepagesz=1G", "--append=hugepages=0:1,1:1"),
    )


def test_entries_of_systemd_boot_are_edited_and_restored(tmp_path: Path) -> None:
    host = host_of(tmp_path, SYSTEMD)
    before = snapshot(tmp_path, APART)
    take(host, ARGUMENTS, ())
    for path in ("/efi/loader/entries/arch.conf", "/efi/loader/entries/arch-old.conf", "/etc/kernel/cmdline"):
        assert "hugepagesz=1G hugepages=0:1,1:1\n" in host.files.read(path)
    assert [path for kind, path, _text in host.files.log if kind == "replace"][-1] == "/efi/loader/entries/arch.conf"
    assert detect(host).ours == ARGUMENTS
    take(host, (), ARGUMENTS)
    assert snapshot(tmp_path, APART) == before
    assert not host.files.exists(MEMORY)


@pytest.mark.parametrize(
    ("options", "boots"),
    [
        # What no line had so far, what several have, and what other editors write.
        ("", "{}"),
        ("options \n", "{}"),
        ("options root=b\noptions quiet\n", "root=b quiet {}"),
        ("options root=b\r\n", "root=b {}"),
        ("\toptions\troot=b\n", "root=b {}"),
        ("options root=b", "root=b {}"),
    ],
)
def test_any_form_of_options_gets_ours_once_and_is_restored(tmp_path: Path, options: str, boots: str) -> None:
    entry = f"title Linux\n  linux /vmlinuz\n{options}"
    files = {"/efi/loader/entries/a.conf": entry, "/etc/kernel/cmdline": "root=b\r\n"}
    host = host_of(tmp_path, files)
    take(host, ARGUMENTS, ())
    loader = detect(host)
    assert loader.command_line == boots.format(" ".join(ARGUMENTS)).strip()
    assert loader.ours == ARGUMENTS
    assert host.files.read("/etc/kernel/cmdline") == f"root=b {' '.join(ARGUMENTS)}\r\n"
    # As systemd-boot reads it, for which a carriage return ends a line.
    lines = [line.strip() for line in host.files.read("/efi/loader/entries/a.conf").replace("\r", "\n").split("\n")]
    assert [line.startswith("options") for line in lines if "hugepages=" in line] == [True]
    take(host, (), ARGUMENTS)
    assert {path: host.files.read(path) for path in files} == files


def test_an_entry_that_ends_without_a_line_feed_is_restored_without_one(tmp_path: Path) -> None:
    path = "/efi/loader/entries/a.conf"
    host = host_of(tmp_path, {path: "title Linux\nlinux /vmlinuz"})
    take(host, ARGUMENTS, ())
    assert detect(host).ours == ARGUMENTS
    take(host, (), ARGUMENTS)
    assert host.files.read(path) == "title Linux\nlinux /vmlinuz"


def test_a_run_that_is_killed_between_two_entries_puts_no_argument_in_twice(tmp_path: Path) -> None:
    after = ("hugepagesz=1G", "hugepages=3")
    for point in range(1, 12):
        (tmp_path / str(point)).mkdir()
        host = host_of(tmp_path / str(point), SYSTEMD)
        take(host, ARGUMENTS, ())
        host.files.log.clear()
        host.files.kill_at = point
        with contextlib.suppress(Killed):
            take(host, after, detect(host).ours)
        host.files.kill_at = None
        ours = detect(host).ours
        assert ours in (ARGUMENTS, after)
        if ours != after:
            take(host, after, ours)
        assert detect(host).ours == after
        for path in ("/efi/loader/entries/arch.conf", "/efi/loader/entries/arch-old.conf", "/etc/kernel/cmdline"):
            assert host.files.read(path).count("hugepagesz=") == 1, point
            assert "hugepagesz=1G hugepages=3\n" in host.files.read(path)


def test_arguments_are_ours_word_for_word_or_not_at_all(tmp_path: Path) -> None:
    entry = ENTRY.format(version="5", options="ro hugepagesz=1G hugepages=4 quiet")
    files = {"/boot/grub2/grub.cfg": "blscfg\n", "/boot/loader/entries/a.conf": entry}
    for number, (noted, ours) in enumerate(
        [
            ("", ()),
            ("hugepagesz=1G hugepages=8\n", ()),
            ("hugepagesz=1G hugepages=4\n", ("hugepagesz=1G", "hugepages=4")),
            # A run was killed before grubby ran.
            ("hugepagesz=1G hugepages=8\nhugepagesz=1G hugepages=4\n", ("hugepagesz=1G", "hugepages=4")),
        ]
    ):
        assert detect(host_of(tmp_path / str(number), {**files, MEMORY: noted})).ours == ours


def test_arguments_that_an_admin_moved_from_our_file_to_his_are_his(tmp_path: Path) -> None:
    host = host_of(tmp_path, grub_files())
    host.commands.programs["update-grub"] = update_grub(host)
    update_grub(host)([])
    take(host, ARGUMENTS, ())
    host.files.remove(bootloader.drop_in_of("hugepages"))
    host.files.replace(
        "/etc/default/grub", grub_files()["/etc/default/grub"].replace('=""', f'="{" ".join(ARGUMENTS)}"')
    )
    update_grub(host)([])
    assert " ".join(ARGUMENTS) in detect(host).command_line
    assert detect(host).ours == ()


def test_left_over_temporary_files_and_dangling_links_are_no_entries(tmp_path: Path) -> None:
    other = ENTRY.format(version="9.9", options="ro temporary")
    files = {
        **SYSTEMD,
        "/efi/loader/entries/.arch.conf": other,
        "/etc/default/grub.d/.x.cfg": 'GRUB_CMDLINE_LINUX="hugepages=1"\n',
    }
    host = build(tmp_path, {"/etc/os-release": "ID=x\n", **files}, {"/efi/loader/entries/gone.conf": "../nowhere.conf"})
    assert detect(host).command_line == "root=b rw  quiet"
    assert find_sources(host.files, detect(host), ["hugepages"]) == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [(("a=1", "b=2"), ("a=1",)), (("a=1",), ("a=1", "b=2")), (("a=1", "b=2"), ("b=2",)), (("b=2",), ("a=1", "b=2"))],
)
def test_what_begins_or_ends_what_was_there_takes_its_place(
    tmp_path: Path, before: Tuple[str, ...], after: Tuple[str, ...]
) -> None:
    for point in range(1, 12):
        (tmp_path / str(point)).mkdir()
        host = host_of(tmp_path / str(point), SYSTEMD)
        take(host, before, ())
        host.files.log.clear()
        host.files.kill_at = point
        with contextlib.suppress(Killed):
            take(host, after, detect(host).ours)
        host.files.kill_at = None
        take(host, after, detect(host).ours)
        for path in ("/efi/loader/entries/arch.conf", "/efi/loader/entries/arch-old.conf", "/etc/kernel/cmdline"):
            assert [word for word in host.files.read(path).split() if word in before + after] == list(after), point


@pytest.mark.parametrize("name", nodetree.names())
def test_no_plan_on_a_recorded_machine_runs_a_program_that_it_lacks(tmp_path: Path, name: str) -> None:
    host = RecordedHost(str(nodetree.expand(name, tmp_path / name)))
    loader = bootloader.detect(host, "hugepages", host.files.read("/proc/cmdline").strip())
    for wanted, ours in ((ARGUMENTS, ()), ((), ARGUMENTS)):
        try:
            actions = [step.action for step in plan_arguments(loader, wanted, ours)]
        except DeclarationError:
            continue
        argvs = [getattr(action, "argv", ()) or getattr(action, "command", ()) for action in actions]
        assert all(host.commands.find(argv[0]) for argv in argvs if argv)


@pytest.mark.parametrize("name", nodetree.names())
def test_recorded_machines_boot_what_they_booted(tmp_path: Path, name: str) -> None:
    host = RecordedHost(str(nodetree.expand(name, tmp_path / name)))
    running = host.files.read("/proc/cmdline").strip()
    loader = bootloader.detect(host, "hugepages", running)
    words = [word for word in running.split() if not word.startswith(("BOOT_IMAGE=", "initrd="))]
    assert loader.command_line.split() == words or loader.name == "none"
