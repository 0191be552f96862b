# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input: what was given, the exact message that comes back, and that nothing changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

import nodetree
import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.road import converge, look
from ansible_collections.gpufleet.node.plugins.module_utils._host.recorded import RecordedHost
from ansible_collections.gpufleet.node.plugins.module_utils._kernel.look import CONCERN
from kernel_modules_machine import BLOCK_FILE, LOAD_FILE, NOUVEAU_LOADED, RELEASE, machine, params, run
from support import FakeHost, snapshot

BEFORE_OURS = "/usr/lib/modprobe.d/a.conf"


def not_root(host: FakeHost) -> None:
    host.may_change = False


def read_only_etc(host: FakeHost) -> None:
    host.files.read_only.append("/etc")


def unpatched(host: FakeHost) -> None:
    pass


def case(
    name: str,
    message: str,
    *,
    load: Any = (),
    block: Any = (),
    more: Optional[Mapping[str, str]] = None,
    loaded: str = "",
    prepare: Callable[[FakeHost], None] = unpatched,
    **shared: Any,
) -> Any:
    return pytest.param(list(load), list(block), message, more, loaded, prepare, shared, id=name)


@pytest.mark.parametrize(
    ("load", "block", "message", "more", "loaded", "prepare", "shared"),
    [
        case(
            "a file name",
            "Cannot read a name on load[1]: 'nvidia.ko' is no name of a kernel module.",
            load=["nvidia", "nvidia.ko"],
        ),
        case(
            "an option of modprobe",
            "Cannot read a name on block[0]: '-r' is no name of a kernel module.",
            block=["-r"],
        ),
        case(
            "a second line for the file",
            "Cannot read a name on block[0]: 'nouveau\\ninstall x' is no name of a kernel module.",
            block=["nouveau\ninstall x"],
        ),
        case(
            "a list in the list",
            "Cannot read a name on load[0]: \"['nvidia']\" is no name of a kernel module.",
            load=[["nvidia"]],
        ),
        case("an empty name", "Cannot read a name on load[0]: '' is no name of a kernel module.", load=[""]),
        case(
            "a module in both lists",
            "Cannot load nvidia_uvm: it is in load and in block. Leave it in one of the two.",
            load=["nvidia-uvm"],
            block=["nouveau", "nvidia_uvm"],
        ),
        case(
            "a module that needs a blocked one",
            "Cannot load nvidia_peermem: it needs ib_core, which is in block. Leave one of the two out.",
            load=["nvidia_peermem"],
            block=["ib_core"],
        ),
        case(
            "a block of what is built in",
            f"Cannot block ext4: it is built into this kernel ({RELEASE}), and no module. Leave it out, or boot a "
            "kernel that has it as a module.",
            block=["ext4"],
        ),
        case(
            "a driver that is not installed, strictly",
            f"Cannot load nvidia: the NVIDIA driver is not installed for this kernel ({RELEASE}). Install it, leave it "
            "out, or say strict: false.",
            load=["dummy", "nvidia"],
            more={f"/lib/modules/{RELEASE}/modules.dep": "kernel/drivers/net/dummy.ko:\n"},
            strict=True,
        ),
        case(
            "a load that another file stops",
            "Cannot load nvidia: /etc/modprobe.d/site.conf line 2 says install nvidia /bin/true (found blocked, wanted "
            "loaded). Remove that line, or say permanent: false.",
            load=["nvidia"],
            more={"/etc/modprobe.d/site.conf": "# no GPUs here\ninstall nvidia /bin/true\n"},
        ),
        case(
            "a load that another file stops, now",
            "Cannot load nvidia: /etc/modprobe.d/site.conf line 1 says install nvidia /bin/false (found not loaded, "
            "wanted loaded). Remove it there.",
            load=["nvidia"],
            more={"/etc/modprobe.d/site.conf": "install nvidia /bin/false\n"},
            permanent=False,
        ),
        case(
            "a load that another file keeps from systemd",
            "Cannot load nvidia_uvm: /usr/lib/modprobe.d/site.conf line 1 says blacklist nvidia-uvm (found "
            "blacklisted, wanted loaded). Remove that line, or say permanent: false.",
            load=["nvidia_uvm"],
            more={"/usr/lib/modprobe.d/site.conf": "blacklist nvidia-uvm\n"},
        ),
        case(
            "a load whose dependency another file stops",
            "Cannot load nvidia_peermem: /etc/modprobe.d/cis.conf line 1 says install ib_core /bin/false (found on "
            "demand, wanted loaded). Remove that line, or say permanent: false.",
            load=["nvidia_peermem"],
            more={"/etc/modprobe.d/cis.conf": "install ib_core /bin/false\n"},
        ),
        case(
            "a load that the command line of the next boot stops",
            "Cannot load nvidia: /etc/default/grub line 1 says module_blacklist=nvidia (found blocked, wanted loaded). "
            "Remove that line, or say permanent: false.",
            load=["nvidia"],
            more={
                "/boot/grub/grub.cfg": "menuentry 'Linux' {\n\tlinux /vmlinuz module_blacklist=nouveau,nvidia\n}\n",
                "/etc/default/grub": 'GRUB_CMDLINE_LINUX="module_blacklist=nouveau,nvidia"\n',
            },
        ),
        case(
            "a block before which another file loads",
            f"Cannot block nouveau: {BEFORE_OURS} line 1 comes before our line and says install nouveau "
            "/sbin/modprobe -i nouveau (found blacklisted, wanted blocked). Remove that line, or say permanent: false.",
            block=["nouveau"],
            more={BEFORE_OURS: "install nouveau /sbin/modprobe -i nouveau\n"},
        ),
        case(
            "a block that a soft dependency makes void",
            "Cannot block nouveau: /etc/modprobe.d/vfio.conf line 1 says softdep nouveau pre: vfio-pci, and modprobe "
            "runs no install command then (found blacklisted, wanted blocked). Remove that line, or say permanent: "
            "false.",
            block=["nouveau"],
            more={"/etc/modprobe.d/vfio.conf": "softdep nouveau pre: vfio-pci\n"},
        ),
        case(
            "a block of a module in use, for now only",
            "Cannot unload ttm: in use by nouveau (found loaded, wanted not loaded). Stop what uses it, or say "
            "permanent: true and reboot.",
            block=["ttm"],
            loaded=NOUVEAU_LOADED,
            permanent=False,
        ),
        case(
            "not root",
            "Cannot change kernel_modules: not running as root. Run the task with become: true.",
            load=["nvidia"],
            prepare=not_root,
        ),
        case(
            "a file system that cannot be written",
            f"Cannot write on {BLOCK_FILE}: the file system is read-only. Make it writable, or say permanent: false.",
            block=["nouveau"],
            prepare=read_only_etc,
        ),
        case(
            "a file system that cannot be written, for the load list",
            f"Cannot write on {LOAD_FILE}: the file system is read-only. Make it writable, or say permanent: false.",
            load=["nvidia"],
            prepare=read_only_etc,
        ),
        case(
            "a damaged record, for absent",
            "Cannot read the values from before the first change on /var/lib/gpufleet/before/kernel_modules.json: the "
            "file is damaged: JSONDecodeError('Expecting value: line 1 column 1 (char 0)'). Restore it from a backup, "
            "or remove it to give up going back.",
            more={"/var/lib/gpufleet/before/kernel_modules.json": "x"},
            state="absent",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_changes(
    tmp_path: Path,
    load: List[str],
    block: List[str],
    message: str,
    more: Optional[Mapping[str, str]],
    loaded: str,
    prepare: Callable[[FakeHost], None],
    shared: Dict[str, Any],
) -> None:
    host, _kernel = machine(tmp_path, more, loaded=loaded, initramfs=True)
    prepare(host)
    before = snapshot(tmp_path)
    with pytest.raises(GpuFleetError) as caught:
        converge(CONCERN, params(load, block, **shared), host, check_mode=False)
    assert str(caught.value) == message
    assert snapshot(tmp_path) == before
    assert host.commands.calls == []


def test_a_refusal_names_the_module_for_programs(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, {"/etc/modprobe.d/site.conf": "blacklist nvidia\n"})
    with pytest.raises(GpuFleetError) as caught:
        run(host, ["nvidia"])
    assert caught.value.failure() == {
        "code": "conflict",
        "object": "nvidia",
        "found": "blacklisted",
        "wanted": "loaded",
        "hint": "remove that line, or say permanent: false",
    }


def test_an_option_that_is_no_option_is_refused_by_the_specification() -> None:
    with pytest.raises(ValueError, match=r"loads\. Supported parameters include: block, immediate, load"):
        params(loads=["nvidia"])


@pytest.mark.parametrize("name", nodetree.names())
def test_every_recorded_machine_can_be_looked_at(tmp_path: Path, name: str) -> None:
    host = RecordedHost(str(nodetree.expand(name, tmp_path / name)))
    _state, plan = look(CONCERN, params(["nvidia", "nvidia_uvm"], ["nouveau"]), host)
    assert {row.boot for row in plan.settings if row.object == "nouveau"} == {"on demand"}
