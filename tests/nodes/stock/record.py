# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Record what an installed system starts and sets at boot, as a tree (the format of ``nodetree.py``).

It holds each unit that a ``.wants`` or ``.requires`` folder names and the units that it starts, the scripts and files
in their commands, rc.local and SysV scripts, and what cron, sysctl, tmpfiles, modprobe, udev, ufw and tuned read.
"""

import argparse
import os
import re
import sys
from typing import Iterable, List

sys.path[:0] = [os.path.dirname(os.path.dirname(os.path.realpath(__file__)))]
import nodetree  # noqa: E402

TOPS = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
NO_CONFIGURATION = ("/dev/", "/proc/", "/sys/", "/var/", "/home/", "/root/")
UNITS = tuple(f"{top}/systemd/system" for top in TOPS)
FILES = (
    *("/etc/os-release", "/etc/rc.local", "/etc/rc.d/rc.local", "/etc/crontab", "/etc/cron.d/*", "/etc/sysctl.conf"),
    *("/etc/rc[2-5S].d/S*", "/etc/rc.d/rc[2-5].d/S*", "/etc/sysfs.conf", "/etc/sysfs.d/*.conf", "/etc/default/ufw"),
    *("/etc/ufw/*.init", "/etc/ufw/sysctl.conf", "/etc/tuned/active_profile", "/etc/network/if-*up.d/*"),
    *(f"{top}/{name}.d/*.conf" for top in TOPS for name in ("sysctl", "tmpfiles", "modules-load", "modprobe")),
    *(f"{top}/{name}" for top in TOPS for name in ("udev/rules.d/*.rules", "NetworkManager/dispatcher.d/*")),
)
# Of udev's rules, and of scripts of more than LONG lines, only the commands that a reader could take for a setting; of
# the other files no comments, unless they mention one.
LONG = 60
RULE = re.compile(r'\b(ATTR|SYSCTL)\{[^}]*\}\s*=\s*"|\b(RUN|PROGRAM)(\{\w+\})?\s*\+?:?=(?!=)')
SETTING = re.compile(
    r"^#!|/sys\b|/proc\b|smp_affinity|\bip link\b|\becho\b.*>"
    r"|\b(sysctl|swapon|swapoff|mkswap|cpupower|cpufreq\w*|nvidia-smi|ethtool|modprobe|tee)\b"
)
CONTENT = re.compile(rf"^\s*[^\s#;]|{SETTING.pattern}")
STARTS = re.compile(r"^(?:Unit|Service|Wants|Requires|BindsTo|Upholds|OnFailure|OnSuccess)=(.*)$", re.MULTILINE)
RUNS = re.compile(r"^(?:Exec\w+|EnvironmentFile)=[-@:+!|]*(.*)$", re.MULTILINE)


class Recorder:
    """One recording of a root: the tree so far, and the files of which only some lines are in it."""

    def __init__(self, root: str) -> None:
        self._source = nodetree.Source(root)
        self.tree: nodetree.Tree = {}
        self.cut: List[str] = []

    def record(self) -> None:
        for path in self._all(f"{folder}/*.{kind}/*" for folder in UNITS for kind in ("wants", "requires")):
            self._links(path)
            self._unit(os.path.basename(path))
        for path in self._all(FILES):
            self._keep(path)
        profile = self._text("/etc/tuned/active_profile").strip() or "none"
        for path in (f"{top}/tuned{below}/{profile}/tuned.conf" for top in TOPS for below in ("", "/profiles")):
            self._keep(path)

    def _all(self, patterns: Iterable[str]) -> List[str]:
        return [path for pattern in patterns for path in self._source.glob(pattern)]

    def _unit(self, name: str) -> None:
        for path in (
            f"{folder}/{one}" for folder in UNITS for one in dict.fromkeys((name, re.sub(r"@.+\.", "@.", name)))
        ):
            for found in self._all([path, f"{path}.d/*.conf"]):
                if self._source.resolve(found) not in self.tree:
                    self._keep(found)
                    self._follow(name, re.sub(r"\\\n", " ", self._text(found)))

    def _follow(self, name: str, text: str) -> None:
        """The units that a unit starts, and the files that its commands name."""
        base, kind = os.path.splitext(name)
        implied = [f"{base}.service", f"{base}@.service"] if kind in (".timer", ".socket", ".path") else []
        for unit in (*implied, *(word for line in STARTS.findall(text) for word in line.split())):
            self._unit(re.sub("%[iI]", base.partition("@")[2], unit))
        for command in RUNS.findall(text):
            # systemd looks for a command without a folder in its own path.
            words = command if command.startswith("/") else f"/usr/sbin/{command} /usr/bin/{command}"
            for path in re.findall(r"(?<![\w%])/[\w./@:+-]*\w", words):
                self._keep(path)

    def _keep(self, path: str) -> None:
        """A file with the links that lead to it; of a program that is no text only how it begins."""
        self._links(path)
        real, status, text = self._source.resolve(path), self._source.status(path), self._text(path)
        if real in self.tree or not text or status is None or real.startswith(NO_CONFIGURATION):
            return
        long = text.startswith("#!") and text.count("\n") > LONG
        kept = RULE if real.endswith(".rules") else SETTING if long else CONTENT
        lines = re.findall(r"(?:.*\\\n)*.*\n?", text)
        text = text[:4] if "\0" in text else "".join(line for line in lines if kept.search(line))
        if text:
            self.tree[real] = nodetree.Entry(nodetree.FILE, text, status.st_mode & 0o777)
            self.cut += [real] if long else []

    def _links(self, path: str) -> None:
        for match in re.finditer(r"/[^/]+", path):
            folder, name = os.path.split(path[: match.end()])
            place = os.path.join(self._source.resolve(folder), name)
            target = self._source.link(place)
            if target is not None and place not in self.tree:
                self.tree[place] = nodetree.Entry(nodetree.LINK, target)
                self._links(os.path.normpath(os.path.join(os.path.dirname(place), target)))

    def _text(self, path: str) -> str:
        return self._source.read(path) if self._source.is_file(path) else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", help="the root folder of an installed system")
    parser.add_argument("about", help="what system it is and how it was installed; the first lines of the tree")
    options = parser.parse_args()
    recorder = Recorder(options.root)
    recorder.record()
    cut = [f"only the lines that could set something: {path}" for path in sorted(recorder.cut)]
    sys.stdout.write(nodetree.render(recorder.tree, [*options.about.split("\n"), *cut]))
