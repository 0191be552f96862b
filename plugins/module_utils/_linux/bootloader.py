# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel command line of the next boot, through the boot loader that is there.

What the loader really reads is what counts here: the generated grub.cfg, the loader entries. What generates those
(/etc/default/grub) is only where we put arguments.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .._core.value import field, frozen, replace

if TYPE_CHECKING:
    from .._core.protocols import Files, Host

DEFAULTS = "/etc/default/grub"
DROP_INS = "/etc/default/grub.d"
KERNEL_COMMAND_LINE = "/etc/kernel/cmdline"
ENTRY_FOLDERS = ("/boot/loader/entries", "/efi/loader/entries", "/boot/efi/loader/entries")
IMAGE_FOLDERS = ("/boot/EFI/Linux", "/efi/EFI/Linux", "/boot/efi/EFI/Linux")
MARK = "# gpufleet.node."
GRUB = "GRUB"
GRUBBY = "GRUB with loader entries"
OSTREE = "rpm-ostree"
SYSTEMD = "systemd-boot"
NONE = "none"
# What GRUB's generator gives every entry, and what it gives after that to all but those for recovery.
EVERY_ENTRY = "GRUB_CMDLINE_LINUX"
NORMAL_ENTRIES = "GRUB_CMDLINE_LINUX_DEFAULT"
TUNED = "/etc/tuned/bootcmdline"
Arguments = Tuple[str, ...]


@frozen
class BootLoader:
    """A boot loader, read once. ``command_line`` is what the next boot brings, as far as it can be known.

    ``texts`` are files that were read to know that, by path: ``source``, where our arguments go, with GRUB; all
    entries, the one that boots by default last, with systemd-boot. ``carried`` are the arguments that ``source`` brings
    for this concern, ``recorded`` those that were noted before they were set, newest first, and ``ours`` are those of
    them that ``command_line`` has. ``reason`` says why arguments cannot be set, ``command`` generates ``config``.
    ``variable`` is the one of GRUB's defaults that takes them.
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
    variable: str = EVERY_ENTRY

    @property
    def marked(self) -> bool:
        """Whether a file of this concern says that it set arguments."""
        return bool(self.carried or self.recorded)

    def will_lose(self, arguments: Arguments) -> bool:
        """Whether only a menu that was generated has them, and the next one will not: a run that removes was killed."""
        return self.name == GRUB and bool(arguments) and self.carried != arguments


def detect(host: Host, concern: str, running: str, *, variable: str = EVERY_ENTRY) -> BootLoader:
    """The boot loader of this machine, with the files of ``concern``. ``running`` is /proc/cmdline.

    ``variable`` says which entries get the arguments, where GRUB generates its menu.
    """
    loader = _detect(host, concern, running, variable)
    recorded = tuple((host.files.read_optional(record_of(concern)) or "").splitlines())
    loader = replace(loader, concern=concern, recorded=recorded)
    if not loader.marked:
        return loader
    return replace(loader, ours=find_ours(host.files, loader))


def _detect(host: Host, concern: str, running: str, variable: str) -> BootLoader:
    files = host.files
    entries: Optional[Entries] = None
    if any(files.exists(folder) for folder in ENTRY_FOLDERS):
        entries = read_entries(files)
    if entries and files.exists("/run/ostree-booted"):
        return entries.rpm_ostree()
    for folder in ("/boot/grub", "/boot/grub2"):
        config = f"{folder}/grub.cfg"
        text = files.read_optional(config)
        if entries and (folder == "/boot/grub2" and files.exists(folder) if text is None else "blscfg" in text):
            return entries.grub(text or "", read_environment(files, config))
        if text is not None:
            return read_grub(host, concern, config, text, variable)
    if files.exists("/etc/zipl.conf"):
        return BootLoader(NONE, running, reason="zipl is not supported")
    if entries:
        return entries.systemd_boot(files)
    if any(name.endswith(".efi") for folder in IMAGE_FOLDERS for name in files.names(folder)):
        return BootLoader(NONE, running, reason="unified kernel images carry their command line inside")
    return BootLoader(NONE, running, reason="no boot loader was found")


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


@frozen
class Entries:
    """The Linux entries, path to text, and the loader that each kind of machine makes of them."""

    texts: Mapping[str, str]

    def rpm_ostree(self) -> BootLoader:
        return BootLoader(OSTREE, self._default_options({}, ""))

    def grub(self, config: str, variables: Mapping[str, str]) -> BootLoader:
        """GRUB whose ``config`` has no menu of its own; ``variables`` are those of grubenv."""
        set_here = dict(re.findall(r'^\s*set (\w+)="?([^"\n]*)"?$', config, re.MULTILINE))
        chosen = variables.get("saved_entry", "")
        return BootLoader(GRUBBY, self._default_options({**set_here, **variables}, chosen))

    def systemd_boot(self, files: Files) -> BootLoader:
        chosen = _default_path(self.texts, _loader_default(files))
        ordered = sorted(self.texts.items(), key=lambda entry: entry[0] == chosen)
        kernel = files.read_optional(KERNEL_COMMAND_LINE)
        future = () if kernel is None else ((KERNEL_COMMAND_LINE, kernel),)
        return BootLoader(SYSTEMD, _options(self.texts[chosen], {}), texts=dict((*future, *ordered)))

    def _default_options(self, variables: Mapping[str, str], default: str) -> str:
        return _options(self.texts[_default_path(self.texts, default)], variables)


def read_entries(files: Files) -> Optional[Entries]:
    """The entries of the first folder that has some for Linux."""
    for folder in ENTRY_FOLDERS:
        paths = [f"{folder}/{name}" for name in files.names(folder) if name.endswith(".conf") and name[0] != "."]
        texts = ((path, files.read_optional(path) or "") for path in paths)
        entries = {path: text for path, text in texts if re.search(r"^linux\s", text, re.MULTILINE)}
        if entries:
            return Entries(entries)
    return None


def _loader_default(files: Files) -> str:
    for folder in ENTRY_FOLDERS:
        text = files.read_optional(f"{folder[: -len('/entries')]}/loader.conf")
        found = re.search(r"^default\s+(\S+)", text or "", re.MULTILINE)
        if found:
            return found[1]
    return ""


def _default_path(entries: Mapping[str, str], default: str) -> str:
    """The entry that boots: the one whose name the default names, else the newest version."""

    def newest(path: str) -> List[Tuple[int, int, str]]:
        version = re.search(r"^version\s+(\S+)", entries[path], re.MULTILINE)
        parts = re.findall(r"\d+|[^\d]+", version[1] if version else path.rpartition("/")[2])
        return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]

    ordered = sorted(entries, key=newest, reverse=True)
    pattern = default[: -len(".conf")] if default.endswith(".conf") else default
    named = [path for path in ordered if fnmatch.fnmatch(path.rpartition("/")[2][: -len(".conf")], pattern)]
    return (named or ordered)[0]


def _options(text: str, variables: Mapping[str, str]) -> str:
    line = " ".join(re.findall(r"^options[ \t]+(.*)$", text, re.MULTILINE))
    return re.sub(r"\$\{?(\w+)\}?", lambda match: variables.get(match[1], ""), line).strip()


def read_grub(host: Host, concern: str, config: str, menu: str, variable: str) -> BootLoader:
    """The loader whose generated ``menu`` is in the file ``config``, with the file of ``concern``."""
    generators: List[Tuple[str, ...]] = [("update-grub",)]
    generators += [(name, "-o", config) for name in ("grub-mkconfig", "grub2-mkconfig")]
    command = next((argv for argv in generators if host.commands.find(argv[0])), generators[0])
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
    return BootLoader(
        GRUB,
        _menu_arguments(menu, read_environment(host.files, config)),
        concern,
        carried,
        texts={source: text},
        source=source,
        config=config,
        command=command,
        variable=variable,
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
    for text in (" ".join(loader.carried), *loader.recorded):
        arguments = tuple(text.split())
        if not arguments or without(loader.command_line, arguments) == loader.command_line:
            continue
        # Without a file of ours GRUB's menu has what is left of ours, or the same arguments from somebody else.
        known = loader.name == GRUB and not loader.carried
        if not known or not any(text in line for _path, _number, line in foreign_lines(files, loader.texts)):
            return arguments
    return ()


def find_sources(files: Files, loader: BootLoader, names: Sequence[str]) -> Dict[str, Tuple[str, int]]:
    """File and line of arguments, by their names; nothing for one that the usual files lack."""
    found: Dict[str, Tuple[str, int]] = {}
    patterns = {name: re.sub("[-_]", "[-_]", re.escape(name).replace("\\-", "-")) for name in names}
    for path, number, line in foreign_lines(files, loader.texts):
        for name, pattern in patterns.items():
            if re.search(rf"(?<![\w.-]){pattern}(?![\w.-])", line):
                found[name] = (path, number)
    return found


def foreign_lines(files: Files, known: Mapping[str, Optional[str]]) -> Iterator[Tuple[str, int, str]]:
    """Path, number and text of the lines from which menus and entries get their arguments, without those managed by us.

    ``known`` are the texts that were read before, by path.
    """
    names = (name for name in files.names(DROP_INS) if name.endswith(".cfg") and name[0] != ".")
    for path in (DEFAULTS, *(f"{DROP_INS}/{name}" for name in names), KERNEL_COMMAND_LINE, TUNED):
        text = known[path] if path in known else files.read_optional(path)
        for number, line in enumerate((text or "").splitlines(), 1):
            if not line.lstrip().startswith("#") and MARK not in line:
                yield path, number, line
