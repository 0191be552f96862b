# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel command line of the next boot, through the boot loader that is there.

What the loader really reads is what counts here: the generated grub.cfg, the loader entries. What generates those
(/etc/default/grub) is only where we put arguments.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .._core.value import field, frozen, replace
from .loader_entries import FILE_SYSTEMS, Entries, read_entries, read_variable

if TYPE_CHECKING:
    from .._core.protocols import Files, Host
    from .grub_defaults import Overwrite

DEFAULTS = "/etc/default/grub"
DROP_INS = "/etc/default/grub.d"
KERNEL_COMMAND_LINE = "/etc/kernel/cmdline"
# As create_boot_options() of sdbootutil reads them, behind that file.
KERNEL_DROP_INS = ("/usr/kernel/cmdline.d", "/etc/kernel/cmdline.d")
IMAGE_FOLDERS = ("/boot/EFI/Linux", "/efi/EFI/Linux", "/boot/efi/EFI/Linux")
# What sedrootflags() of sdbootutil changes in an entry.
_MADE_BY_SDBOOTUTIL = ("root=", "rootflags=", "systemd.machine_id=")
MARK = "# gpufleet.node."
GRUB = "GRUB"
GRUBBY = "GRUB with loader entries"
OSTREE = "rpm-ostree"
SYSTEMD = "systemd-boot"
SDBOOTUTIL = "sdbootutil"
NONE = "none"
# What GRUB's generator gives every entry, and what it gives after that to all but those for recovery.
EVERY_ENTRY = "GRUB_CMDLINE_LINUX"
NORMAL_ENTRIES = "GRUB_CMDLINE_LINUX_DEFAULT"
TUNED = "/etc/tuned/bootcmdline"
Arguments = Tuple[str, ...]


@frozen
class BootLoader:
    """A boot loader, read once. ``command_line`` is what the next boot brings, as far as it can be known.

    ``texts`` are files that were read to know that, by path: ``source``, where our arguments go, and with loader
    entries that we or sdbootutil edit also those, the one that boots by default last. ``carried`` are the arguments
    that ``source`` brings for this concern, ``recorded`` those that were noted before they were set, newest first, and
    ``ours`` are those of them that ``command_line`` has. ``reason`` says why arguments cannot be set, and ``hint`` what
    helps. ``command`` generates ``config``. ``variable`` is the one of GRUB's defaults that takes them, ``overwrite``
    the line behind ours by which it loses them.
    """

    name: str
    command_line: str
    concern: str = ""
    carried: Arguments = ()
    recorded: Tuple[str, ...] = ()
    ours: Arguments = ()
    texts: Mapping[str, Optional[str]] = field(default_factory=dict)
    source: str = ""
    config: str = ""
    command: Tuple[str, ...] = ()
    reason: str = ""
    hint: str = "set them where this machine gets its command line from (network boot, image)"
    variable: str = EVERY_ENTRY
    overwrite: Optional[Overwrite] = None

    @property
    def marked(self) -> bool:
        """Whether a file of this concern says that it set arguments."""
        return bool(self.carried or self.recorded)

    def will_lose(self, arguments: Arguments) -> bool:
        """Whether only what was generated has them, and the next one will not: a run that removes was killed, or a line
        behind ours sets the variable again.
        """
        is_overwritten = self.overwrite is not None and not self.overwrite.in_doubt
        is_generated = self.name in (GRUB, SDBOOTUTIL)
        return is_generated and bool(arguments) and (is_overwritten or self.carried != arguments)


def detect(host: Host, concern: str, running: str, *, variable: str = EVERY_ENTRY) -> BootLoader:
    """The boot loader of this machine, with the files of ``concern``. ``running`` is /proc/cmdline.

    ``variable`` says which entries get the arguments, where GRUB generates its menu.
    """
    loader = _detect(host, concern, running, variable)
    recorded = tuple((host.files.read_optional(record_of(concern)) or "").splitlines())
    loader = replace(loader, concern=concern, recorded=recorded)
    if not loader.marked:
        return _without_losses(host.files, loader)
    if loader.source == KERNEL_COMMAND_LINE:
        # The file is not ours, so that only what was noted says which of its arguments are.
        text = loader.texts[KERNEL_COMMAND_LINE] or ""
        noted = sorted((tuple(line.split()) for line in recorded), key=len, reverse=True)
        carried = next((words for words in noted if change_line(text, (), words) != text), ())
        loader = replace(loader, carried=carried)
    return _without_losses(host.files, replace(loader, ours=find_ours(host.files, loader)))


def _detect(host: Host, concern: str, running: str, variable: str) -> BootLoader:
    files = host.files
    entries = read_entries(files)
    if entries and files.exists("/run/ostree-booted"):
        path = entries.grub_default("")
        return _with_program(host, "rpm-ostree", BootLoader(OSTREE, entries.options(path, {}), config=path))
    kind = kind_of_sdbootutil(host)
    if kind:
        return _sdbootutil(host, kind, entries, running)
    for folder in ("/boot/grub", "/boot/grub2"):
        config = f"{folder}/grub.cfg"
        text = files.read_optional(config)
        if entries and (folder == "/boot/grub2" and files.exists(folder) if text is None else "blscfg" in text):
            return _grub_with_entries(host, entries, config, text or "")
        if text is not None:
            return read_grub(host, concern, config, text, variable)
    if files.exists("/etc/zipl.conf"):
        return BootLoader(NONE, running, reason="zipl is not supported")
    if entries:
        return _systemd_boot(files, entries)
    if any(name.endswith(".efi") for folder in IMAGE_FOLDERS for name in files.names(folder)):
        return BootLoader(NONE, running, reason="unified kernel images carry their command line inside")
    return BootLoader(NONE, running, reason="no boot loader was found")


def _with_program(host: Host, program: str, loader: BootLoader) -> BootLoader:
    """The loader, which cannot be changed where the program for it is not installed."""
    if host.commands.find(program):
        return loader
    return replace(loader, reason=f"{program} is not installed", hint=f"install {program}")


def _grub_with_entries(host: Host, entries: Entries, config: str, text: str) -> BootLoader:
    """GRUB whose file ``config`` has this text and no menu of its own, as Red Hat's."""
    set_here = dict(re.findall(r'^\s*set (\w+)="?([^"\n]*)"?$', text, re.MULTILINE))
    variables = read_environment(host.files, config)
    path = entries.grub_default(variables.get("saved_entry", ""))
    loader = BootLoader(GRUBBY, entries.options(path, {**set_here, **variables}), config=path)
    return _with_program(host, "grubby", loader)


def _systemd_boot(files: Files, entries: Entries) -> BootLoader:
    chosen = entries.systemd_default(files)
    ordered = sorted(entries.texts.items(), key=lambda entry: entry[0] == chosen)
    kernel = files.read_optional(KERNEL_COMMAND_LINE)
    future = () if kernel is None else ((KERNEL_COMMAND_LINE, kernel),)
    source = "" if kernel is None else KERNEL_COMMAND_LINE
    texts = dict((*future, *ordered))
    return BootLoader(SYSTEMD, entries.options(chosen, {}), texts=texts, source=source, config=chosen)


def kind_of_sdbootutil(host: Host) -> str:
    """The boot loader of SUSE's sdbootutil, or an empty text: bootloader_type() and is_installed() of that script."""
    files = host.files
    text = files.read_optional("/etc/sysconfig/bootloader") or ""
    found = re.findall(r"""^LOADER_TYPE=["']?([\w-]+)""", text, re.MULTILINE)
    if found:
        return found[-1] if found[-1] in ("grub2-bls", SYSTEMD) else ""
    # The system partition may have the mark of another system.
    for root in FILE_SYSTEMS if host.commands.find(SDBOOTUTIL) else ():
        for name in files.names(f"{root}/EFI"):
            if files.exists(f"{root}/EFI/{name}/installed_by_sdbootutil"):
                return SYSTEMD if name == "systemd" else "grub2-bls"
    return ""


def _sdbootutil(host: Host, kind: str, entries: Optional[Entries], running: str) -> BootLoader:
    """Loader entries whose command line sdbootutil makes of ``KERNEL_COMMAND_LINE``: those of the running snapshot."""
    files = host.files
    if entries is None:
        folders = " or ".join(f"{root}/loader/entries" for root in FILE_SYSTEMS)
        reason = f"{kind} has no entries in {folders}"
        return BootLoader(NONE, running, reason=reason, hint="mount the EFI system partition")
    chosen = entries.systemd_default(files) if kind == SYSTEMD else entries.grub_default(_grub_default(files))
    options = {path: entries.options(path, {}) for path in entries.texts}
    subvolume = _snapshot(files)
    root = re.search(r"(?<!\S)root=\S+", options[chosen])
    same = (
        rf"rootflags=subvol=/?{re.escape(subvolume)}(?![\w/])"
        if subvolume
        else rf"{re.escape(root[0])}(?!\S)"
        if root
        else ""
    )
    own = sorted((path for path in options if re.search(same, options[path])), key=lambda path: path == chosen)
    texts: Dict[str, Optional[str]] = {KERNEL_COMMAND_LINE: files.read_optional(KERNEL_COMMAND_LINE)}
    texts.update((path, entries.texts[path]) for path in own)
    loader = BootLoader(
        SDBOOTUTIL,
        options[chosen],
        texts=texts,
        source=KERNEL_COMMAND_LINE,
        config=chosen,
        command=(SDBOOTUTIL, "update-all-entries"),
    )
    if chosen not in own:
        reason = f"{SDBOOTUTIL} updates only the entries of the running snapshot, and {chosen} boots by default"
        return replace(loader, reason=reason, hint="boot the default entry first")
    if texts[KERNEL_COMMAND_LINE] is None:
        reason = f"{SDBOOTUTIL} makes entries from {KERNEL_COMMAND_LINE}, which does not exist"
        return replace(loader, reason=reason, hint=f"write the command line of {chosen} to it")
    read = f"/{subvolume.partition('/')[2]}{KERNEL_COMMAND_LINE}"
    if subvolume and not _is_same(files, read, KERNEL_COMMAND_LINE):
        reason = f"{SDBOOTUTIL} reads {read}, which is a different file from {KERNEL_COMMAND_LINE}"
        return replace(loader, reason=reason, hint="set them with transactional-update")
    return _with_program(host, SDBOOTUTIL, loader)


def _without_losses(files: Files, loader: BootLoader) -> BootLoader:
    """The loader, which cannot be changed where sdbootutil would take other arguments out of the entry too."""
    if loader.name != SDBOOTUTIL or loader.reason:
        return loader
    lines = foreign_lines(files, loader.name, loader.texts)
    known = {word for _path, _number, line in lines for word in line.split()}
    others = without(loader.command_line, loader.ours).split()
    lost = [word for word in others if word not in known and not word.startswith(_MADE_BY_SDBOOTUTIL)]
    if not lost:
        return loader
    reason = (
        f"{loader.config} has {' '.join(lost)}, which {KERNEL_COMMAND_LINE} lacks, and {SDBOOTUTIL} would remove it"
    )
    return replace(loader, reason=reason, hint=f"add it to {KERNEL_COMMAND_LINE}, or remove it from the entry")


def _grub_default(files: Files) -> str:
    """The entry that is set for GRUB: get_default_grub2_bls() of sdbootutil."""
    chosen = read_variable(files, "LoaderEntryDefault")
    for root in FILE_SYSTEMS:
        for name in files.names(f"{root}/EFI"):
            chosen = chosen or read_environment(files, f"{root}/EFI/{name}/grub.cfg").get("default", "")
    return chosen


def _snapshot(files: Files) -> str:
    """The subvolume of the snapshot that is the root, such as @/.snapshots/1/snapshot; empty without snapshots."""
    from . import mounts

    root = mounts.at(mounts.read(files), "/")
    return root.root.lstrip("/") if root and root.fstype == "btrfs" and "/.snapshots/" in root.root else ""


def _is_same(files: Files, path: str, other: str) -> bool:
    """Whether both are one file, or the first is not there."""
    one, two = files.status(path), files.status(other)
    return one is None or (two is not None and (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino))


def without(command_line: str, arguments: Sequence[str]) -> str:
    """The command line without one occurrence of these arguments, which stand next to each other in it."""
    return exchange(command_line, (), tuple(arguments))


def drop_in_of(concern: str) -> str:
    return f"{DROP_INS}/gpufleet-{concern}.cfg"


def record_of(concern: str) -> str:
    """Where the exact arguments that a concern sets are noted: nothing else on a command line says whose they are."""
    return f"/var/lib/gpufleet/{concern}.arguments"


def mark_of(concern: str) -> str:
    """The comment at the end of a line of ours."""
    return f"{MARK}{concern}: written by this module, changes are lost"


def change_line(text: str, wanted: Arguments, ours: Arguments) -> str:
    """The text of a file with a command line, after ``change`` in it. Of several lines it is the one that has what is
    ours, else the last; comments are none.
    """
    lines = text.splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if line.strip() and not line.startswith("#")]
    if not places:
        return f"{text}{' '.join(wanted)}\n" if wanted else text
    having = [place for place in places if _present(lines[place].rstrip("\r\n"), wanted, ours)]
    place = (having or places)[-1]
    body = lines[place].rstrip("\r\n")
    lines[place] = change(body, wanted, ours) + lines[place][len(body) :]
    return "".join(lines)


def change(line: str, wanted: Arguments, ours: Arguments) -> str:
    """``exchange``, also where a run that was killed has left ``wanted`` in the line already."""
    return exchange(line, wanted, _present(line, wanted, ours))


def _present(line: str, *alternatives: Arguments) -> Arguments:
    """The one of these that the line has. The longest comes first, as it may begin with another."""
    longest = sorted(alternatives, key=len, reverse=True)
    return next((arguments for arguments in longest if without(line, arguments) != line), ())


def exchange(line: str, wanted: Arguments, ours: Arguments) -> str:
    """A command line with one occurrence of the arguments that are ours taken out, and others added to its end."""
    old = " ".join(ours)
    if old:
        line = re.sub(rf"(^| ){re.escape(old)}(?= |$)", "", line, count=1)
    return f"{line} {' '.join(wanted)}" if wanted else line


def read_environment(files: Files, config: str) -> Dict[str, str]:
    """The variables of the grubenv file beside a grub.cfg."""
    text = files.read_optional(f"{config[: -len('.cfg')]}env") or ""
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, equals, value in pairs if equals}


def read_grub(host: Host, concern: str, config: str, menu: str, variable: str) -> BootLoader:
    """The loader whose generated ``menu`` is in the file ``config``, with the file of ``concern``."""
    generators: List[Tuple[str, ...]] = [("update-grub",)]
    generators += [(name, "-o", config) for name in ("grub-mkconfig", "grub2-mkconfig")]
    command = next((argv for argv in generators if host.commands.find(argv[0])), ())
    reason = "" if command else f"none of {', '.join(argv[0] for argv in generators)} is installed"
    script = ""
    for path in ("/usr/sbin/grub-mkconfig", "/usr/sbin/grub2-mkconfig", "/usr/bin/grub-mkconfig"):
        script = script or host.files.read_optional(path) or ""
    # Debian's generator reads drop-ins, and so do those derived from it; the original one knows only its defaults.
    reads_drop_ins = "default/grub.d" in script if script else host.files.exists(DROP_INS)
    source = drop_in_of(concern) if reads_drop_ins else DEFAULTS
    text = host.files.read_optional(source)
    line = rf'^{variable}="\${variable} (.*)"  {re.escape(mark_of(concern))}$'
    found = re.search(line, text or "", re.MULTILINE)
    carried = tuple(found[1].replace('\\"', '"').split()) if found else ()
    behind = [path for path in _drop_ins(host.files) if path > source] if reads_drop_ins else []
    overwrite = None
    if behind:
        from .grub_defaults import find_overwrite

        overwrite = find_overwrite(host.files, variable, behind)
    return BootLoader(
        GRUB,
        _menu_arguments(menu, read_environment(host.files, config)),
        concern,
        carried,
        texts={source: text},
        source=source,
        config=config,
        command=command,
        reason=reason,
        hint="install the program that generates this menu",
        variable=variable,
        overwrite=overwrite,
    )


def menu_command_line(files: Files, config: str) -> str:
    """The arguments that a grub.cfg gives the kernel it boots by default."""
    return _menu_arguments(files.read(config), read_environment(files, config))


def _menu_arguments(text: str, variables: Mapping[str, str]) -> str:
    """The arguments of the entry that a generated grub.cfg boots by default; of the first where that is not to be seen.

    An entry goes by its position (``1>0`` inside a submenu), its title or its id.
    """
    lines: List[Tuple[List[List[str]], str]] = []
    names: List[List[str]] = []
    counts = [0]
    for line in text.splitlines():
        stripped = line.strip()
        title = re.match(r"(?:menuentry|submenu)\s+(?:'([^']*)'|\"([^\"]*)\")", stripped)
        if title:
            identifier = re.search(r"\$menuentry_id_option\s+['\"]?([^'\"\s{]+)", stripped)
            names.append([str(counts[-1]), title[1] or title[2] or "", identifier[1] if identifier else ""])
            counts[-1] += 1
            counts.append(0)
        elif stripped.endswith("{") and not stripped.startswith("#"):
            names.append([])
            counts.append(0)
        elif stripped == "}" and names:
            names.pop()
            counts.pop()
        else:
            kernel = re.match(r"linux(?:16|efi)?\s+\S+\s*(.*)", stripped)
            if kernel and names:
                lines.append(([entry for entry in names if entry], kernel[1]))
    defaults = re.findall(r'^\s*set default="?([^"\n]*)"?$', text, re.MULTILINE)
    default = next((value for value in reversed(defaults) if "next_entry" not in value), "0")
    if "saved_entry" in default:
        default = variables.get("saved_entry", "0")
    wanted = default.split(">")
    for entry, arguments in lines:
        if len(entry) >= len(wanted) and all(part in names for part, names in zip(wanted, entry)):
            return _expand(arguments, text)
    return _expand(lines[0][1], text) if lines else ""


def _expand(arguments: str, text: str) -> str:
    """The arguments with those of tuned, which a menu has in a variable; no other variable brings some that matter."""
    if "$tuned_params" in arguments:
        tuned = re.search(r'^\s*set tuned_params="?([^"\n]*)"?$', text, re.MULTILINE)
        arguments = arguments.replace("$tuned_params", tuned[1] if tuned else "")
    return " ".join(word for word in arguments.split() if not word.startswith("$"))


def find_ours(files: Files, loader: BootLoader) -> Arguments:
    """The arguments on the command line that are this concern's, word for word; none that only look like them.

    They are those of the file of ours where the loader has one. Where the menu lacks those (a run ended before it was
    generated), and with loaders that read no file of ours, they are those that were noted before they were set.
    """
    # The longest comes first, as it may begin with another.
    for text in sorted((" ".join(loader.carried), *loader.recorded), key=len, reverse=True):
        arguments = tuple(text.split())
        if not arguments or without(loader.command_line, arguments) == loader.command_line:
            continue
        # Without a file of ours GRUB's menu has what is left of ours, or the same arguments from somebody else.
        known = loader.name == GRUB and not loader.carried
        if not known or not any(
            text in line for _path, _number, line in foreign_lines(files, loader.name, loader.texts)
        ):
            return arguments
    return ()


def find_sources(files: Files, loader: BootLoader, names: Sequence[str]) -> Dict[str, Tuple[str, int]]:
    """File and line of arguments, by their names; nothing for one that the usual files lack."""
    found: Dict[str, Tuple[str, int]] = {}
    patterns = {name: re.sub("[-_]", "[-_]", re.escape(name).replace("\\-", "-")) for name in names}
    for path, number, line in foreign_lines(files, loader.name, loader.texts):
        for name, pattern in patterns.items():
            if re.search(rf"(?<![\w.-]){pattern}(?![\w.-])", line):
                found[name] = (path, number)
    return found


def foreign_lines(files: Files, name: str, known: Mapping[str, Optional[str]]) -> Iterator[Tuple[str, int, str]]:
    """Path, number and text of the lines from which the menus and entries of this loader get their arguments, without
    those managed by us.

    ``known`` are the texts that were read before, by path.
    """
    defaults = () if name == SDBOOTUTIL else (DEFAULTS, *_drop_ins(files))
    added = (
        [f"{folder}/{file}" for folder in KERNEL_DROP_INS for file in files.names(folder)] if name == SDBOOTUTIL else ()
    )
    for path in (*defaults, KERNEL_COMMAND_LINE, *added, TUNED):
        text = known[path] if path in known else files.read_optional(path)
        for number, line in enumerate((text or "").splitlines(), 1):
            if not line.lstrip().startswith("#") and MARK not in line:
                yield path, number, line


def _drop_ins(files: Files) -> List[str]:
    """Those of GRUB's defaults, in the order in which its generator sources them."""
    return [f"{DROP_INS}/{name}" for name in files.names(DROP_INS) if name.endswith(".cfg") and name[0] != "."]
