# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine whose modules are loaded by the rules of libkmod, systemd-modules-load, udev and an initramfs."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_modules.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

RELEASE = "6.8.0-45-generic"
LOAD_FILE = "/etc/modules-load.d/gpufleet-kernel_modules.conf"
BLOCK_FILE = "/etc/modprobe.d/gpufleet-kernel_modules.conf"
OPTIONS_FILE = "/etc/modprobe.d/zz-gpufleet-kernel_modules.conf"
OUTDATED = "/var/lib/gpufleet/kernel_modules.initramfs"
INITRAMFS = f"/boot/initrd.img-{RELEASE}"
DEPENDS = """\
kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst: kernel/drivers/gpu/drm/drm_exec.ko.zst kernel/drivers/gpu/ttm.ko.zst
kernel/drivers/gpu/drm/drm_exec.ko.zst:
kernel/drivers/gpu/ttm.ko.zst:
kernel/drivers/infiniband/core/ib_core.ko.zst:
kernel/drivers/net/dummy.ko.zst:
kernel/drivers/nvme/host/nvme.ko.zst: kernel/drivers/nvme/host/nvme-core.ko.zst
kernel/drivers/nvme/host/nvme-core.ko.zst:
updates/dkms/nvidia.ko.zst:
updates/dkms/nvidia-uvm.ko.zst: updates/dkms/nvidia.ko.zst
updates/dkms/nvidia-peermem.ko.zst: kernel/drivers/infiniband/core/ib_core.ko.zst updates/dkms/nvidia.ko.zst
"""
BUILT_IN = "kernel/fs/ext4/ext4.ko\nkernel/drivers/net/loopback.ko\n"
NVME_LOADED = "nvme 57344 2 - Live 0x0\nnvme_core 180224 3 nvme, Live 0x0\n"
# What modules have, with the type by modinfo (drivers/nvme/host/pci.c: none for the first three) and the default.
PARAMETERS: Mapping[str, Mapping[str, Tuple[str, str]]] = {
    "nvme": {
        "poll_queues": ("Number of queues to use for polled IO.", "0"),
        "write_queues": (
            "Number of queues to use for writes. If not set, reads and writes will share a queue set.",
            "0",
        ),
        "io_queue_depth": ("set io queue depth, should >= 2 and < 4096", "1024"),
        "use_threaded_interrupts": ("int", "0"),
        "noacpi": ("disable acpi bios quirks (bool)", "N"),
    },
    "nvme_core": {"multipath": ("turn on native support for multiple controllers per subsystem (bool)", "Y")},
    "nvidia": {
        "NVreg_DeviceFileGID": ("int", "0"),
        "NVreg_DeviceFileMode": ("int", "438"),
        "NVreg_RegistryDwords": ("charp", ""),
        "NVreg_RestrictProfilingToAdminUsers": ("int", "1"),
        "NVreg_UsePageAttributeTable": ("int", "4294967295"),
    },
    "dummy": {"numdummies": ("Number of dummy pseudo devices (int)", "1"), "secret": ("array of ushort", "")},
}
# Without a file in /sys: its parameter has no permissions.
HIDDEN = ("secret",)
NOUVEAU_LOADED = "drm_exec 16384 1 nouveau, Live 0x0\nnouveau 16384 0 - Live 0x0\nttm 16384 1 nouveau, Live 0x0\n"


class Kernel:
    """What /proc/modules says, and the programs that change it. ``hardware`` are the modules that udev asks for."""

    def __init__(self, host: FakeHost, hardware: Sequence[str]) -> None:
        self.host = host
        self.hardware = hardware
        host.files.rules.append((r"/proc/modules", self._store))
        host.commands.programs["modprobe"] = lambda argv: self.modprobe(argv[1])
        host.commands.programs["rmmod"] = lambda argv: self.rmmod(argv[1])
        host.commands.programs["modinfo"] = lambda argv: self.modinfo(argv[1])
        for name in self.loaded():
            self.take(name, self.config())

    @staticmethod
    def _store(files: Any, match: re.Match[str], text: str) -> None:
        Path(files.locate(match.group())).write_text(text)

    def loaded(self) -> Dict[str, List[str]]:
        """Name to size, references, users, state and address."""
        return {line.split()[0]: line.split()[1:] for line in self.host.files.read("/proc/modules").splitlines()}

    def _write(self, modules: Mapping[str, Sequence[str]]) -> None:
        text = "".join(f"{name} {' '.join(fields)}\n" for name, fields in sorted(modules.items()))
        self.host.files.write_attribute("/proc/modules", text)

    def modprobe(self, name: str, config: Optional[str] = None) -> Completed:
        """``config`` is what stands in modprobe.d; that of the machine where it is not given."""
        config = self.config() if config is None else config
        name = name.replace("-", "_")
        if name in self.loaded():
            return Completed(0, "", "")
        line = self._line(name)
        if line is None:
            return Completed(1, "", f"modprobe: FATAL: Module {name} not found in directory /lib/modules/{RELEASE}\n")
        needs = [
            re.sub(r"\.ko.*", "", path.rpartition("/")[2]).replace("-", "_") for path in line.split(":")[1].split()
        ]
        for module in (*reversed(needs), name):
            command = re.search(rf"^install {module.replace('_', '[-_]')} (.*)$", config, re.MULTILINE)
            if module in self.loaded():
                continue
            if command and command[1].startswith("/bin/false"):
                said = f"Error running install command '{command[1]}' for module {module}: retcode 1"
                return Completed(1, "", f"modprobe: ERROR: libkmod: {said}\n")
            if re.search(rf"\bmodule_blacklist=\S*\b{module}\b", self.host.files.read("/proc/cmdline")):
                return Completed(1, "", f"modprobe: ERROR: could not insert '{module}': Operation not permitted\n")
            modules = self.loaded()
            modules[module] = ["16384", "0", "-", "Live", "0x0"]
            self._use(modules, module, needs if module == name else [])
            self._write(modules)
            self.take(module, config)
        return Completed(0, "", "")

    def modinfo(self, name: str) -> Completed:
        if self._line(name) is None:
            return Completed(1, "", f"modinfo: ERROR: Module {name} not found.\n")
        known = PARAMETERS.get(name.replace("-", "_"), {})
        lines = [f"parm:           {parameter}:{kind}\n" for parameter, (kind, _value) in known.items()]
        return Completed(0, "".join([f"filename:       {name}.ko.zst\n", "license:        GPL\n", *lines]), "")

    def take(self, module: str, config: str) -> None:
        """A module that is loaded takes its parameters, and shows them."""
        known = PARAMETERS.get(module)
        if known is None:
            return
        values = {parameter: value for parameter, (_kind, value) in known.items()}
        given = [line.split(None, 2)[1:] for line in config.splitlines() if line.startswith("options ")]
        arguments = [word.split(".", 1) for word in self.host.files.read("/proc/cmdline").split() if "." in word]
        for name, text in (*given, *(argument for argument in arguments if "=" in argument[1])):
            for word in shlex.split(text) if name.replace("-", "_") == module else ():
                parameter, _equals, value = word.partition("=")
                values[parameter] = _as_shown(value, known[parameter][0])
        if module == "nvidia":
            shown = {name.replace("NVreg_", ""): value for name, value in values.items()}
            shown["RmProfilingAdminOnly"] = shown.pop("RestrictProfilingToAdminUsers")
            shown["RegistryDwords"] = f'"{shown["RegistryDwords"]}"'
            self._show("/proc/driver/nvidia/params", "".join(f"{name}: {value}\n" for name, value in shown.items()))
            return
        for parameter in values.keys() - set(HIDDEN):
            self._show(f"/sys/module/{module}/parameters/{parameter}", f"{values[parameter]}\n")

    def _show(self, path: str, text: str) -> None:
        target = Path(self.host.files.locate(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def rmmod(self, name: str) -> Completed:
        modules = self.loaded()
        if name not in modules:
            return Completed(1, "", f"rmmod: ERROR: Module {name} is not currently loaded\n")
        if modules[name][1] != "0":
            return Completed(1, "", f"rmmod: ERROR: Module {name} is in use\n")
        del modules[name]
        for fields in modules.values():
            users = [user for user in fields[2].strip("-").split(",") if user]
            if name in users:
                users.remove(name)
                fields[1], fields[2] = str(int(fields[1]) - 1), "".join(f"{user}," for user in users) or "-"
        self._write(modules)
        for folder in (f"/sys/module/{name}", f"/proc/driver/{name}"):
            shutil.rmtree(self.host.files.locate(folder), ignore_errors=True)
        return Completed(0, "", "")

    @staticmethod
    def _use(modules: Mapping[str, List[str]], user: str, needs: Sequence[str]) -> None:
        for name in needs:
            fields = modules[name]
            fields[1], fields[2] = str(int(fields[1]) + 1), f"{fields[2].strip('-')}{user},"

    def _line(self, name: str) -> Optional[str]:
        text = self.host.files.read_optional(f"/lib/modules/{RELEASE}/modules.dep") or ""
        found = re.search(rf"^\S*/{name.replace('_', '[-_]')}\.ko.*$", text, re.MULTILINE)
        return found.group() if found else None

    def config(self) -> str:
        files = self.host.files
        paths = {n: f"{d}/{n}" for d in ("/usr/lib/modprobe.d", "/etc/modprobe.d") for n in files.names(d)}
        return "".join(files.read(paths[name]) for name in sorted(paths) if name.endswith(".conf"))

    def rebuild(self, argv: Sequence[str]) -> Completed:
        self.host.files.replace(INITRAMFS, self.config())
        return Completed(0, "", "")

    def list_image(self, _argv: Sequence[str]) -> Completed:
        """The list of lsinitramfs: the copied files, and the modules."""
        copied = self.host.files.read(INITRAMFS)
        paths = [path for path in (BLOCK_FILE, OPTIONS_FILE) if set(self._lines(path)).issubset(copied.splitlines())]
        modules = [f"usr/lib/modules/{RELEASE}/{line.partition(':')[0]}" for line in DEPENDS.splitlines()]
        return Completed(0, "".join(f"{path.lstrip('/')}\n" for path in ("init", *paths, *modules)), "")

    def _lines(self, path: str) -> Sequence[str]:
        return (self.host.files.read_optional(path) or "nothing").splitlines()

    def boot(self) -> None:
        """Into the same kernel: the initramfs asks for the hardware first, then udev does, and modules-load.d."""
        files = self.host.files
        for folder in (*(f"/sys/module/{name}" for name in self.loaded()), "/proc/driver/nvidia"):
            shutil.rmtree(files.locate(folder), ignore_errors=True)
        self._write({})
        for config in (files.read_optional(INITRAMFS), self.config()):
            for name in self.hardware if config is not None else ():
                if not re.search(rf"^blacklist {name}$", config or "", re.MULTILINE):
                    self.modprobe(name, config)
        for folder in ("/etc/modules-load.d", "/usr/lib/modules-load.d"):
            for entry in files.names(folder):
                for name in files.read(f"{folder}/{entry}").split("\n"):
                    if name and name[0] != "#" and not re.search(rf"^blacklist {name}$", self.config(), re.MULTILINE):
                        self.modprobe(name)


def _as_shown(value: str, kind: str) -> str:
    """A value as a module that took it shows it."""
    if kind.endswith("(bool)"):
        return "Y" if value[0] in "1yY" else "N"
    if re.fullmatch(r"0[0-7]+", value):
        return str(int(value, 8))
    return str(int(value, 0) % 2**32) if re.fullmatch(r"-?(0x)?[0-9a-f]+", value) else value


def machine(
    root: Path,
    more: Optional[Mapping[str, str]] = None,
    *,
    loaded: str = "",
    hardware: Sequence[str] = (),
    initramfs: bool = False,
) -> Tuple[FakeHost, Kernel]:
    """A host, and its kernel; with ``initramfs`` one that update-initramfs builds."""
    files = {
        "/proc/sys/kernel/osrelease": f"{RELEASE}\n",
        "/proc/cmdline": "root=/dev/sda1 ro\n",
        "/proc/modules": loaded,
        f"/lib/modules/{RELEASE}/modules.dep": DEPENDS,
        f"/lib/modules/{RELEASE}/modules.builtin": BUILT_IN,
        "/sys/devices/system/cpu/possible": "0-7\n",
        "/sys/module/printk/parameters/time": "Y\n",
        "/proc/driver/README": "",
        "/etc/modules-load.d/README": "modules of the administrator\n",
        "/usr/lib/modprobe.d/aliases.conf": "# aliases\nalias char-major-10-144 nvram\n",
        "/var/lib/dbus/machine-id": "0123456789abcdef0123456789abcdef\n",
        **(more or {}),
    }
    host = build(root, files)
    kernel = Kernel(host, hardware)
    (root / "etc/modprobe.d").mkdir(parents=True, exist_ok=True)
    if initramfs:
        host.commands.programs["update-initramfs"] = kernel.rebuild
        kernel.rebuild(())
        host.files.log.clear()
    return host, kernel


def params(load: Sequence[str] = (), block: Sequence[str] = (), **shared: Any) -> Dict[str, Any]:
    """Parameters as Ansible would hand them over, defaults filled in. Raises ``ValueError`` with its message."""
    validator = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options})
    result = validator.validate({"load": list(load), "block": list(block), **shared})
    if result.error_messages:
        raise ValueError("; ".join(result.error_messages))
    validated: Dict[str, Any] = result.validated_parameters
    return validated


def run(
    host: FakeHost, load: Sequence[str] = (), block: Sequence[str] = (), *, check_mode: bool = False, **shared: Any
) -> Outcome:
    outcome = converge(CONCERN, params(load, block, **shared), host, check_mode=check_mode)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def text_of(host: FakeHost, path: str) -> List[str]:
    """The lines of a file without comments."""
    return [line for line in host.files.read(path).splitlines() if not line.startswith("#")]


def programs_run(host: FakeHost) -> List[str]:
    return [" ".join(argv) for argv in host.commands.calls]
