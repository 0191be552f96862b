# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Scope
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    DeclarationError,
    InUse,
    NotInEffect,
    OwnedByAnother,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import BOOT, EFFECTIVE
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_modules.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_modules.state import KernelModulesState
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_modules.kernel_modules_machine import (
    BLOCK_FILE,
    BUILT_IN,
    DEPENDS,
    INITRAMFS,
    LOAD_FILE,
    NOUVEAU_LOADED,
    OUTDATED,
    RELEASE,
    machine,
    params,
    programs_run,
    run,
    text_of,
)
from ansible_collections.gpufleet.node.tests.unit.support import PATIENCE, FakeHost, Killed, quickest, snapshot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

DRIVER = ("nvidia", "nvidia-uvm")


def observe(host: FakeHost, name: str) -> KernelModulesState:
    return CONCERN.observe(host, CONCERN.parse(params([name])), Scope())


def test_modules_are_loaded_now_and_at_every_boot_with_those_that_they_need(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path)
    outcome = run(host, ["nvidia-uvm", "nvidia_peermem"])
    assert sorted(kernel.loaded()) == ["ib_core", "nvidia", "nvidia_peermem", "nvidia_uvm"]
    assert text_of(host, LOAD_FILE) == ["nvidia_uvm", "nvidia_peermem"]
    assert [change.object for change in outcome.changes if change.scope == EFFECTIVE] == [
        "nvidia",
        "nvidia_uvm",
        "ib_core",
        "nvidia_peermem",
    ]
    kernel.boot()
    assert sorted(kernel.loaded()) == ["ib_core", "nvidia", "nvidia_peermem", "nvidia_uvm"]


def test_a_blocked_driver_is_unloaded_and_stays_away_from_the_next_boot(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path, loaded=NOUVEAU_LOADED, hardware=["nouveau"], initramfs=True)
    outcome = run(host, block=["nouveau"])
    assert sorted(kernel.loaded()) == ["drm_exec", "ttm"]
    assert text_of(host, BLOCK_FILE) == ["blacklist nouveau", "install nouveau /bin/false", "options nouveau modeset=0"]
    assert outcome.boot == {"modules": {"nouveau": "blocked"}}
    kernel.boot()
    assert kernel.loaded() == {}
    assert run(host, block=["nouveau"]).status == "in_sync"


def test_only_a_driver_of_a_screen_gets_the_parameter_modeset(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path)
    run(host, block=["dummy"])
    assert text_of(host, BLOCK_FILE) == ["blacklist dummy", "install dummy /bin/false"]


def test_the_block_list_comes_first_and_the_load_list_after_the_modules_were_loaded(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, loaded=NOUVEAU_LOADED, initramfs=True)
    run(host, ["nvidia"], ["nouveau"])
    written = [path for kind, path, _text in host.files.log if kind == "replace"]
    paths = (OUTDATED, BLOCK_FILE, LOAD_FILE, INITRAMFS)
    assert [path for path in written if path in paths] == list(paths)
    assert programs_run(host) == ["rmmod nouveau", "modprobe nvidia", "update-initramfs -u -k all"]
    modules = [position for position, entry in enumerate(host.files.log) if entry[1] == "/proc/modules"]
    assert max(modules) < host.files.log.index(("replace", LOAD_FILE, host.files.read(LOAD_FILE)))


def test_a_module_that_is_built_in_is_loaded_and_needs_no_file(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path)
    outcome = run(host, ["ext4"])
    assert (outcome.effective, outcome.boot) == ({"modules": {"ext4": "loaded"}}, {"modules": {"ext4": "loaded"}})
    assert not host.files.exists(LOAD_FILE)
    assert programs_run(host) == []


@pytest.mark.parametrize(
    ("name", "depends", "reason"),
    [
        ("nvidia_uvm", "kernel/fs/xfs/xfs.ko:\n", f"the NVIDIA driver is not installed for this kernel ({RELEASE})"),
        ("nvidia_peermem", "updates/nvidia.ko.xz:\n", f"this kernel ({RELEASE}) has no such module"),
        ("gdrdrv", DEPENDS, f"this kernel ({RELEASE}) has no such module"),
        ("gdrdrv", "", f"there is no /lib/modules/{RELEASE}/modules.dep"),
    ],
)
def test_a_module_that_this_kernel_lacks_is_named_and_left_out_of_the_file(
    tmp_path: Path, name: str, depends: str, reason: str
) -> None:
    host, kernel = machine(tmp_path, {f"/lib/modules/{RELEASE}/modules.dep": depends})
    outcome = run(host, [name])
    assert [entry.as_dict() for entry in outcome.remaining.unmanaged] == [
        {"object": name, "setting": "state", "reason": reason}
    ]
    assert not host.files.exists(LOAD_FILE)
    assert kernel.loaded() == {}


def test_a_driver_that_debian_loads_by_another_name_is_there(tmp_path: Path) -> None:
    config = "install nvidia modprobe -i nvidia-current $CMDLINE_OPTS\n"
    depends = {f"/lib/modules/{RELEASE}/modules.dep": "updates/dkms/nvidia-current.ko.xz:\n"}
    host, kernel = machine(tmp_path, {"/etc/modprobe.d/nvidia.conf": config, **depends})

    def modprobe(argv: Any) -> Completed:
        kernel.host.files.write_attribute("/proc/modules", "nvidia 16384 0 - Live 0x0\n")
        return Completed(0, "", "")

    host.commands.programs["modprobe"] = modprobe
    outcome = run(host, ["nvidia"], strict=True)
    assert outcome.effective == {"modules": {"nvidia": "loaded"}}
    assert text_of(host, LOAD_FILE) == ["nvidia"]


def test_a_module_that_this_kernel_lacks_can_be_blocked_and_costs_no_initramfs(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, initramfs=True)
    outcome = run(host, block=["nova_core"], strict=True)
    assert (outcome.remaining.status, outcome.boot["modules"]) == ("in_sync", {"nova_core": "blocked"})
    assert programs_run(host) == []


@pytest.mark.parametrize(
    ("loaded", "reason"),
    [
        ("nouveau 2506752 1 drm_client, Live 0x0\n", "in use by drm_client"),
        (
            "nouveau 2506752 4 drm_client, Live 0x0\ndrm_client 1 2 - Live 0x0\n",
            "in use by drm_client",
        ),
        ("nouveau 2506752 3 - Live 0x0\n", "an open device, a console or a mount uses it"),
        ("nouveau 2506752 - - Live 0x0\n", "it cannot be unloaded"),
        ("nouveau 2506752 1 [permanent], Live 0x0\n", "it cannot be unloaded"),
    ],
)
def test_a_blocked_module_in_use_waits_for_a_reboot_that_says_who_uses_it(
    tmp_path: Path, loaded: str, reason: str
) -> None:
    host, kernel = machine(tmp_path, loaded=loaded)
    outcome = run(host, block=["nouveau"])
    expected = f"nouveau state is loaded, wanted not loaded: {reason}"
    for result in (outcome.as_dict(), run(host, block=["nouveau"]).as_dict()):
        assert (result["needs"], result["reboot_reasons"]) == (["reboot"], [expected])
    assert run(host, block=["nouveau"]).status == "pending"
    assert host.files.read("/run/gpufleet/reboot-required.d/kernel_modules") == f"{expected}\n"
    assert [c.takes_effect for c in outcome.changes if c.object == "nouveau"] == ["reboot"]
    assert programs_run(host) == []
    kernel.boot()
    assert run(host, block=["nouveau"]).remaining.needs == ()


def test_the_driver_waits_for_the_reboot_that_takes_the_gpus_from_nouveau(tmp_path: Path) -> None:
    loaded = "nouveau 16384 2 - Live 0x0\n"
    host, kernel = machine(tmp_path, loaded=loaded, hardware=["nouveau"], initramfs=True)
    outcome = run(host, ["nvidia", "nvidia_uvm", "dummy"], ["nouveau"])
    reason = "an open device, a console or a mount uses it"
    assert outcome.remaining.reboot_reasons == (
        f"nvidia state is not loaded, wanted loaded: nouveau has the GPUs until then, {reason}",
        f"nvidia_uvm state is not loaded, wanted loaded: nouveau has the GPUs until then, {reason}",
        f"nouveau state is loaded, wanted not loaded: {reason}",
    )
    assert sorted(kernel.loaded()) == ["dummy", "nouveau"]
    kernel.boot()
    assert sorted(kernel.loaded()) == ["dummy", "nvidia", "nvidia_uvm"]
    assert run(host, ["nvidia", "nvidia_uvm", "dummy"], ["nouveau"]).status == "in_sync"


def test_a_driver_that_has_gpus_already_does_not_wait_for_nouveau(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path, loaded="nouveau 16384 2 - Live 0x0\nnvidia 16384 0 - Live 0x0\n")
    run(host, ["nvidia", "nvidia_uvm"], ["nouveau"])
    assert sorted(kernel.loaded()) == ["nouveau", "nvidia", "nvidia_uvm"]


def test_modules_that_use_each_other_are_unloaded_in_that_order(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path)
    kernel.modprobe("nvidia_peermem")
    kernel.modprobe("nvidia_uvm")
    run(host, block=["ib_core", "nvidia", "nvidia_uvm", "nvidia_peermem"])
    assert kernel.loaded() == {}
    assert programs_run(host) == ["rmmod nvidia_uvm", "rmmod nvidia_peermem", "rmmod ib_core", "rmmod nvidia"]


@pytest.mark.parametrize(
    ("more", "boot"),
    [
        ({}, "on demand"),
        ({"/etc/modules-load.d/a.conf": "# x\n; y\n\n  nvidia-uvm  \n"}, "loaded"),
        ({"/usr/lib/modules-load.d/a.conf": "nvidia_uvm\n", "/etc/modules-load.d/a.conf": ""}, "on demand"),
        ({"/run/modules-load.d/a.conf": "nvidia_uvm\n", "/etc/modules-load.d/a.txt": "nvidia_uvm\n"}, "loaded"),
        (
            {"/etc/modules-load.d/a.conf": "nvidia_uvm\n", "/lib/modprobe.d/b.conf": "blacklist nvidia-uvm\n"},
            "blacklisted",
        ),
        ({"/etc/modules-load.d/a.conf": "nvidia_uvm\n", "/etc/modprobe.d/b.conf": "blacklist nvidia\n"}, "loaded"),
        (
            {"/etc/modules-load.d/a.conf": "nvidia_uvm\n", "/etc/modprobe.d/b.conf": "install nvidia /bin/true\n"},
            "on demand",
        ),
        ({"/etc/modprobe.d/b.conf": "install nvidia_* \\\n  /usr/bin/false\n"}, "blocked"),
        ({"/etc/modprobe.d/b.conf": "# install nvidia_uvm /bin/false\nblacklist nvidia_uvm2\n"}, "on demand"),
        (
            {
                "/etc/modprobe.d/a.conf": "install nvidia_uvm /sbin/modprobe -i nvidia_uvm\n",
                "/etc/modprobe.d/b.conf": "install nvidia_uvm /bin/false\n",
            },
            "on demand",
        ),
        ({"/etc/modprobe.d/b.conf": "install nvidia-uvm /bin/false\nsoftdep nvidia* post: x\n"}, "on demand"),
        ({"/proc/cmdline": "ro modules-load=x,nvidia-uvm"}, "loaded"),
        ({"/proc/cmdline": "ro rd.modules_load=nvidia_uvm"}, "loaded"),
        ({"/proc/cmdline": "ro modprobe.blacklist=nouveau,nvidia_uvm"}, "blacklisted"),
        ({"/proc/cmdline": "ro modprobe.blacklist=nvidia-uvm"}, "on demand"),
        ({"/proc/cmdline": "ro module_blacklist=nvidia_uvm"}, "blocked"),
        ({"/proc/cmdline": "ro module_blacklist=nvidia_uvm module_blacklist=nouveau"}, "on demand"),
        ({"/proc/cmdline": "ro rd.driver.blacklist=nvidia_uvm modules_load=nvidia_uvm"}, "loaded"),
        (
            {
                "/proc/cmdline": "ro module_blacklist=nvidia_uvm",
                "/boot/grub/grub.cfg": "menuentry 'Linux' {\n\tlinux /vmlinuz ro modules_load=nvidia_uvm\n}\n",
            },
            "loaded",
        ),
    ],
)
def test_the_next_boot_is_told_from_all_sources(tmp_path: Path, more: Mapping[str, str], boot: str) -> None:
    host, _kernel = machine(tmp_path, more)
    state = observe(host, "nvidia_uvm")
    assert CONCERN.report(state)[1] == {"modules": {"nvidia_uvm": boot}}


def test_debians_list_of_modules_counts_through_its_link(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, {"/etc/modules": "# kernel modules\nnvidia\n"})
    (tmp_path / "etc/modules-load.d/modules.conf").symlink_to("../modules")
    assert CONCERN.report(observe(host, "nvidia"))[1] == {"modules": {"nvidia": "loaded"}}


def test_a_link_that_leads_nowhere_says_nothing(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path)
    (tmp_path / "etc/modules-load.d/modules.conf").symlink_to("../modules")
    (tmp_path / "etc/modprobe.d/site.conf").symlink_to("/nowhere")
    assert CONCERN.report(observe(host, "nvidia"))[1] == {"modules": {"nvidia": "on demand"}}


@pytest.mark.parametrize(
    ("load", "block", "more", "conflict"),
    [
        (
            [],
            ["nouveau"],
            {"/etc/modules-load.d/site.conf": "# ours\nnouveau\n"},
            ("modules-load.d", "/etc/modules-load.d/site.conf", 2, "nouveau", "state", "nouveau", "us"),
        ),
        (
            [],
            ["nouveau"],
            {"/etc/modprobe.d/z.conf": "install nouveau /sbin/modprobe -i nouveau\n"},
            (
                "modprobe.d",
                "/etc/modprobe.d/z.conf",
                1,
                "nouveau",
                "state",
                "install nouveau /sbin/modprobe -i nouveau",
                "us",
            ),
        ),
        (
            [],
            ["nouveau"],
            {
                "/proc/cmdline": "ro modules_load=nouveau",
                "/boot/grub/grub.cfg": "menuentry 'Linux' {\n\tlinux /vmlinuz ro modules_load=nouveau\n}\n",
                "/etc/default/grub": '# x\nGRUB_CMDLINE_LINUX="ro modules_load=nouveau"\n',
            },
            ("kernel command line", "/etc/default/grub", 2, "nouveau", "state", "modules_load=nouveau", "us"),
        ),
        (
            ["nvidia"],
            [],
            {
                "/etc/modprobe.d/a.conf": "install nvidia /sbin/modprobe -i nvidia\n",
                "/etc/modprobe.d/b.conf": "install nvidia /bin/false\n",
            },
            ("modprobe.d", "/etc/modprobe.d/b.conf", 1, "nvidia", "state", "install nvidia /bin/false", "us"),
        ),
    ],
)
def test_lines_of_others_that_want_the_contrary_are_named(
    tmp_path: Path, load: List[str], block: List[str], more: Mapping[str, str], conflict: Any
) -> None:
    host, _kernel = machine(tmp_path, more)
    outcome = run(host, load, block)
    assert [tuple(entry.as_dict().values())[:-1] for entry in outcome.remaining.conflicts] == [conflict]
    assert outcome.remaining.status == "in_sync"


def test_a_blacklist_of_another_does_not_keep_a_module_from_being_loaded_now(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path, {"/etc/modprobe.d/site.conf": "blacklist nvidia\n"})
    outcome = run(host, ["nvidia"], permanent=False)
    assert "nvidia" in kernel.loaded()
    assert [(entry.path, entry.line, entry.wins) for entry in outcome.remaining.conflicts] == [
        ("/etc/modprobe.d/site.conf", 1, "them")
    ]


def test_a_module_that_only_this_boot_refuses_waits_for_the_next(tmp_path: Path) -> None:
    menu = "menuentry 'Linux' {\n\tlinux /vmlinuz ro\n}\n"
    cmdline = "ro module_blacklist=nvidia"
    host, kernel = machine(tmp_path, {"/boot/grub/grub.cfg": menu, "/proc/cmdline": cmdline})
    outcome = run(host, ["nvidia"])
    assert outcome.remaining.reboot_reasons == (
        "nvidia state is not loaded, wanted loaded: the running kernel was booted with module_blacklist=nvidia",
    )
    (tmp_path / "proc/cmdline").write_text("ro\n")
    kernel.boot()
    assert run(host, ["nvidia"]).status == "in_sync"


def test_dracut_builds_the_initramfs_where_it_is_the_one(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path)
    host.commands.programs["dracut"] = lambda argv: Completed(0, "", "")
    outcome = run(host, block=["nouveau"])
    assert programs_run(host) == ["dracut --force --regenerate-all"]
    assert [(change.object, change.scope) for change in outcome.changes][-2:] == [
        ("initramfs", BOOT),
        ("/etc/gpufleet/declared.d/kernel_modules.json", BOOT),
    ]


def test_an_image_of_ostree_is_not_built_anew(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, {"/run/ostree-booted": ""})
    host.commands.programs["dracut"] = lambda argv: Completed(0, "", "")
    assert run(host, block=["nouveau"]).remaining.status == "in_sync"
    assert programs_run(host) == []


def test_an_initramfs_that_could_not_be_built_is_tried_again(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path, initramfs=True)
    host.commands.programs["update-initramfs"] = lambda argv: Completed(1, "", "E: /boot is full\n")
    with pytest.raises(Refused) as caught:
        run(host, block=["nouveau"])
    assert str(caught.value) == (
        "Cannot build the initramfs with update-initramfs -u -k all: exit status 1: E: /boot is full."
    )
    host.commands.programs["update-initramfs"] = kernel.rebuild
    outcome = run(host, block=["nouveau"])
    assert [change.object for change in outcome.changes] == [
        "initramfs",
        "/etc/gpufleet/declared.d/kernel_modules.json",
    ]
    assert host.files.read(INITRAMFS) == kernel.config()
    assert not host.files.exists(OUTDATED)


def test_the_initramfs_is_not_built_anew_for_the_load_list(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, initramfs=True)
    run(host, ["nvidia"], ["nouveau"])
    host.commands.calls.clear()
    run(host, ["nvidia", "nvidia_uvm"], ["nouveau"])
    assert programs_run(host) == ["modprobe nvidia_uvm"]


def test_a_module_can_go_from_one_list_to_the_other(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path, initramfs=True)
    run(host, block=["dummy"])
    run(host, ["dummy"])
    assert "dummy" in kernel.loaded()
    assert not host.files.exists(BLOCK_FILE)
    outcome = run(host, block=["dummy"])
    assert kernel.loaded() == {}
    assert not host.files.exists(LOAD_FILE)
    at_boot = [(c.before, c.after) for c in outcome.changes if c.object == "dummy" and c.scope == BOOT]
    assert at_boot == [("loaded", "blocked")]


def test_a_module_that_is_declared_no_longer_stays_loaded_and_is_not_loaded_at_boot(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path)
    run(host, ["dummy", "nvidia"])
    outcome = run(host, ["nvidia"])
    assert "dummy" in kernel.loaded()
    assert [(c.object, c.before, c.after) for c in outcome.changes if c.setting == "state"] == [
        ("dummy", "loaded", "on demand")
    ]


def test_a_module_that_the_hardware_does_not_take_is_left_for_no_boot(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path)
    said = "modprobe: ERROR: could not insert 'nvidia': No such device\n"
    host.commands.programs["modprobe"] = lambda argv: Completed(1, "", said)
    with pytest.raises(Refused) as caught:
        run(host, ["nvidia"])
    assert str(caught.value) == (
        "Cannot load nvidia with modprobe nvidia: exit status 1: modprobe: ERROR: could not insert 'nvidia': No such "
        "device."
    )
    assert not host.files.exists(LOAD_FILE)


@pytest.mark.parametrize(("load", "block", "program"), [(["dummy"], [], "modprobe"), ([], ["nouveau"], "rmmod")])
def test_a_program_that_says_it_is_done_is_not_believed(
    tmp_path: Path, load: List[str], block: List[str], program: str
) -> None:
    host, _kernel = machine(tmp_path, loaded=NOUVEAU_LOADED)
    host.commands.programs[program] = lambda argv: Completed(0, "", "")
    with pytest.raises(NotInEffect) as caught:
        run(host, load, block)
    assert caught.value.object == (load or block)[0]


def test_without_permanent_no_file_is_written_and_without_immediate_nothing_is_loaded(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path, loaded=NOUVEAU_LOADED, initramfs=True)
    run(host, ["dummy"], ["nouveau"], permanent=False)
    assert sorted(kernel.loaded()) == ["drm_exec", "dummy", "ttm"]
    assert not any(host.files.exists(path) for path in (LOAD_FILE, BLOCK_FILE, OUTDATED))
    run(host, ["nvidia"], ["ib_core"], immediate=False)
    assert sorted(kernel.loaded()) == ["drm_exec", "dummy", "ttm"]
    assert (text_of(host, LOAD_FILE), text_of(host, BLOCK_FILE)[0]) == (["nvidia"], "blacklist ib_core")


def test_absent_takes_away_what_came_along_and_loads_again_what_was_there(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path, loaded=NOUVEAU_LOADED, initramfs=True)
    before = snapshot(tmp_path)
    run(host, ["nvidia_peermem", "nvidia_uvm"], ["nouveau"])
    assert "nouveau" not in kernel.loaded()
    run(host, state="absent")
    assert snapshot(tmp_path) == before


def test_absent_leaves_a_module_that_is_in_use_and_names_it_once(tmp_path: Path) -> None:
    host, kernel = machine(tmp_path)
    run(host, ["nvidia_uvm"])
    modules = host.files.read("/proc/modules").replace("nvidia_uvm 16384 0 -", "nvidia_uvm 16384 2 -")
    (tmp_path / "proc/modules").write_text(modules)
    outcome = run(host, state="absent")
    assert [(entry.object, entry.reason) for entry in outcome.remaining.unmanaged] == [
        ("nvidia", "it stays loaded: in use by nvidia_uvm"),
        ("nvidia_uvm", "it stays loaded: an open device, a console or a mount uses it"),
    ]
    assert sorted(kernel.loaded()) == ["nvidia", "nvidia_uvm"]
    assert not host.files.exists(LOAD_FILE)
    assert run(host, state="absent").remaining.unmanaged == ()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            {"/etc/modprobe.d/site.conf": "install nouveau /bin/false\n"},
            "it is not loaded again: /etc/modprobe.d/site.conf line 1 says install nouveau /bin/false",
        ),
        (
            {f"/lib/modules/{RELEASE}/modules.dep": "kernel/x.ko:\n"},
            f"it is not loaded again: this kernel ({RELEASE}) has no such module",
        ),
    ],
)
def test_absent_names_a_module_that_cannot_be_loaded_again(
    tmp_path: Path, more: Mapping[str, str], reason: str
) -> None:
    host, kernel = machine(tmp_path, loaded=NOUVEAU_LOADED)
    run(host, block=["nouveau"])
    for path, text in more.items():
        (tmp_path / path.lstrip("/")).write_text(text)
    outcome = run(host, state="absent")
    assert [(entry.object, entry.reason) for entry in outcome.remaining.unmanaged] == [("nouveau", reason)]
    assert "nouveau" not in kernel.loaded()


def test_absent_names_a_module_that_a_new_kernel_has_built_in(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path)
    run(host, ["dummy"])
    (tmp_path / f"lib/modules/{RELEASE}/modules.builtin").write_text(f"{BUILT_IN}kernel/drivers/net/dummy.ko\n")
    (tmp_path / "proc/modules").write_text("")
    outcome = run(host, state="absent")
    assert [(entry.object, entry.reason) for entry in outcome.remaining.unmanaged] == [
        ("dummy", "it stays loaded: it is built into this kernel")
    ]


def test_absent_without_permanent_says_that_our_own_file_still_blocks(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, loaded=NOUVEAU_LOADED)
    run(host, block=["nouveau"])
    outcome = run(host, state="absent", permanent=False)
    assert [entry.reason for entry in outcome.remaining.unmanaged] == [
        f"it is not loaded again: {BLOCK_FILE} line 3 says install nouveau /bin/false"
    ]
    run(host, state="absent")
    assert "nouveau" in host.files.read("/proc/modules")


NAMES = ["nvidia", "nvidia-uvm", "nvidia_peermem", "ib_core", "dummy", "nouveau", "ttm"]
LISTS = st.lists(st.sampled_from(NAMES), unique=True, max_size=4)
RUNS = st.lists(st.tuples(LISTS, LISTS, st.booleans(), st.booleans()), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(runs=RUNS)
def test_absent_after_present_gives_the_machine_back_byte_for_byte(runs: List[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        host, _kernel = machine(root, loaded=NOUVEAU_LOADED, initramfs=True)
        before = snapshot(root)
        for load, block, immediate, permanent in runs:
            with contextlib.suppress(DeclarationError, OwnedByAnother, InUse):
                run(host, load, block, immediate=immediate, permanent=permanent)
        run(host, state="absent")
        assert snapshot(root) == before
        assert run(host, state="absent").changes == ()


@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_run_that_is_killed_anywhere_leaves_whole_files_and_the_next_one_converges(
    tmp_path: Path, state: str
) -> None:
    first: Dict[str, Any] = {"load": ["dummy"], "block": ["ib_core"]}
    second: Dict[str, Any] = {"load": ["nvidia_uvm"], "block": ["nouveau"]}
    reference, _kernel = machine(tmp_path / "reference", loaded=NOUVEAU_LOADED, initramfs=True)
    texts = set()
    for declaration in (first, second):
        run(reference, **declaration)
        texts.add(reference.files.read(BLOCK_FILE))
    ends = 0
    for point in range(1, 80):
        root = tmp_path / f"killed{point}"
        host, kernel = machine(root, loaded=NOUVEAU_LOADED, initramfs=True)
        original = snapshot(root)
        run(host, **first)
        host.files.log.clear()
        host.files.kill_at = point
        try:
            run(host, **second, state=state)
        except Killed:
            ends += 1
        else:
            shutil.rmtree(root)
            break
        host.files.kill_at = None
        text = host.files.read_optional(BLOCK_FILE)
        assert text in texts or (text is None and state == "absent")
        run(host, **second, state=state)
        assert host.files.read(INITRAMFS) == kernel.config()
        assert not host.files.exists(OUTDATED)
        if state == "present":
            assert run(host, **second).changes == ()
            run(host, state="absent")
        assert snapshot(root) == original
        shutil.rmtree(root)
    assert ends >= 10


def test_a_look_at_a_machine_with_many_modules_is_quick(tmp_path: Path) -> None:
    filler = "".join(f"kernel/drivers/x{n}/driver_{n}.ko.zst: kernel/lib/lib_{n % 50}.ko.zst\n" for n in range(7000))
    lists = {f"/usr/lib/modprobe.d/{n}.conf": "blacklist evbug\n" * 50 for n in range(10)}
    host, _kernel = machine(tmp_path, {f"/lib/modules/{RELEASE}/modules.dep": filler + DEPENDS, **lists})
    run(host, DRIVER, ["nouveau"])
    wanted = params(DRIVER, ["nouveau"])
    _state, plan = assess(CONCERN, wanted, host)
    assert plan.steps == ()
    assert quickest(lambda: assess(CONCERN, wanted, host)) < 0.03 * PATIENCE
