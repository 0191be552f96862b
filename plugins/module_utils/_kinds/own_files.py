# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kind *own files*: files that are ours alone, such as drop-ins, among files of others that may overrule them.

``OwnFile`` is one such file, for a concern that knows by itself what the file does. ``OwnFilesConcern`` is a whole
concern: values that stand in a file of ours, of which the last line that is about them decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from .._core.change import THEM, US, Change, Conflict, Plan, Step, Unmanaged
from .._core.declared import WANTED
from .._core.errors import OwnedByAnother, refuse_all
from .._core.planning import boot_change, effective_change, file_action
from .._core.registration import Registration
from .._core.setting import IN_SYNC, Scalar, Setting
from .._core.value import field, frozen

if TYPE_CHECKING:
    from .._core.baseline import Baseline
    from .._core.contract import Scope
    from .._core.protocols import Files, Host

OTHERS = "others"


def header_of(concern: str) -> str:
    """The first line of a file that is read as text with comments."""
    return f"# Written by the module gpufleet.node.{concern}; changes are lost.\n"


@frozen
class OwnFile:
    """A file of ours as it was found; ``text`` is None where it is not there. ``setting`` says what it holds."""

    path: str
    setting: str
    text: Optional[str]

    def described(self, wanted: Optional[str], *, others: str = OTHERS) -> Tuple[Optional[str], Optional[str]]:
        """The wanted and the found content in words, None for no file. The text of a file to remove does not count."""
        found = None if self.text is None else WANTED if wanted in (None, self.text) else others
        return None if wanted is None else WANTED, found

    def rows(self, wanted: Optional[str], *, others: str = OTHERS) -> List[Setting]:
        """The file as a setting of the next boot, where it is there or wanted."""
        goal, found = self.described(wanted, others=others)
        if goal is None and found is None:
            return []
        return [Setting(self.path, self.setting, goal, found, found, self.path, effective_matters=False)]

    def step(self, wanted: Optional[str], changes: Iterable[Change]) -> Step:
        """Give it this text, or remove it, by which these changes are made."""
        return Step(file_action(self.path, wanted), tuple(changes), probes=(self.path,))


Key = Tuple[str, str]
"""An object and a setting of it."""


@frozen
class Line:
    """What one line of a file says of a setting."""

    path: str
    number: int
    object: str
    setting: str
    value: str

    @property
    def key(self) -> Key:
        return self.object, self.setting


@frozen
class FilesDeclaration:
    """The values that are declared, or for ``state: absent`` the keys that are looked at, with None."""

    values: Mapping[Key, Optional[str]]


@frozen
class FilesState:
    """What was seen of ``keys``, those that are declared and those that our file has.

    ``texts`` are the files by path, in the order in which they are read, ours too. ``facts`` is what the machine says
    besides, in the words of the concern.
    """

    keys: Tuple[Key, ...]
    texts: Mapping[str, str]
    file: OwnFile
    facts: Mapping[str, Scalar] = field(default_factory=dict)


@frozen
class FilesDesired:
    """The values that are wanted, and the text of our file; None for no such file."""

    values: Mapping[Key, Optional[str]]
    text: Optional[str]
    unmanaged: Tuple[Unmanaged, ...] = ()


class OwnFilesConcern:
    """``convergence.Concern`` for values that stand in one file of ours, at ``path``.

    Whoever reads the files does so each time anew: what they say counts at once, and after the next boot. A concern of
    this kind says what it can declare, which files there are and in which order, and how a line reads.
    """

    name: str
    options: Mapping[str, Any]
    apply_at_boot = False
    registration = Registration()
    path: str
    setting: str
    """What the file holds, such as ``limits``: the setting that is the file, and the key in the report."""
    owner: str
    """The files of others, such as ``limits.d``."""

    # --- what a concern says ---

    def parse(self, params: Mapping[str, Any]) -> FilesDeclaration:
        raise NotImplementedError

    def read(self, files: Files) -> Mapping[str, str]:
        """The texts of all files that count, by path, in the order in which they are read."""
        raise NotImplementedError

    def place(self, path: str) -> Any:
        """The place of a file in that order, as something that can be sorted."""
        raise NotImplementedError

    def lines(self, path: str, text: str) -> Iterator[Line]:
        """What a file says, a line for each setting."""
        raise NotImplementedError

    def render(self, values: Mapping[Key, Optional[str]]) -> str:
        """Our file."""
        raise NotImplementedError

    def exceptions(self, lines: Sequence[Line], values: Mapping[Key, Optional[str]]) -> Iterator[Line]:
        """The lines that give a part of an object, such as a group of the users, another value than the declared."""
        return iter(())

    def winners(self, lines: Sequence[Line]) -> Mapping[Key, Line]:
        """The line that decides about each setting: the last, unless the program that reads them sees it otherwise."""
        return {line.key: line for line in lines}

    # --- what the kind does ---

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> FilesDeclaration:
        # The record has the files too, ours and the declaration.
        return FilesDeclaration({key: None for key in baseline.values if not key[0].startswith("/")})

    def observe(self, host: Host, declaration: FilesDeclaration, scope: Scope) -> FilesState:
        texts = self.read(host.files)
        # Where it says nothing it is not among them, and may be there all the same.
        file = OwnFile(self.path, self.setting, texts.get(self.path) or host.files.read_optional(self.path))
        # What an earlier declaration set is given up by this one.
        before = (line.key for line in self.lines(self.path, file.text or ""))
        return FilesState(tuple(dict.fromkeys((*declaration.values, *before))), texts, file)

    def resolve(self, declaration: FilesDeclaration, state: FilesState) -> FilesDesired:
        return FilesDesired(declaration.values, self.render(declaration.values) if declaration.values else None)

    def restore(self, baseline: Baseline, state: FilesState) -> FilesDesired:
        """Without our file the others say again what they said."""
        return FilesDesired({}, None)

    def plan(self, state: FilesState, desired: FilesDesired, scope: Scope) -> Plan:
        if not (scope.immediate or scope.permanent):
            return Plan()
        found_lines = self._lines_of(state.texts)
        now = self.winners(found_lines)
        # On a converged node nothing is parsed twice.
        same = desired.text == state.texts.get(self.path)
        lines = found_lines if same else self._lines_of(self._after(state, desired))
        after = self.winners(lines)
        rows = []
        for key in state.keys:
            found = now[key].value if key in now else None
            wanted = desired.values.get(key, after[key].value if key in after else None)
            rows.append(Setting(*key, wanted, found, found, key[0]))
        of_file = state.file.rows(desired.text)
        conflicts = () if scope.restoring else self._conflicts(lines, after, desired.values)
        if all(row.status == IN_SYNC for row in (*rows, *of_file)):
            return Plan((*rows, *of_file), (), desired.unmanaged, conflicts)
        differing = [row for row in rows if row.status != IN_SYNC]
        changes = [*map(effective_change, differing), *map(boot_change, (*differing, *of_file))]
        step = state.file.step(desired.text, changes)
        return Plan((*rows, *of_file), (step,), desired.unmanaged, conflicts)

    def perform(self, step: Step, host: Host) -> None:
        from .._core import steps

        steps.perform(step, host)

    def report(self, state: FilesState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        winners = self.winners(self._lines_of(state.texts))
        found: Dict[str, Dict[str, Optional[str]]] = {}
        for key in state.keys:
            found.setdefault(key[0], {})[key[1]] = winners[key].value if key in winners else None
        return {self.setting: found}, {self.setting: found}

    def deciding_after(self, state: FilesState, desired: FilesDesired) -> Iterable[Line]:
        """The lines that decide when the plan is done."""
        return self.winners(self._lines_of(self._after(state, desired))).values()

    def _after(self, state: FilesState, desired: FilesDesired) -> Mapping[str, str]:
        """The texts as the plan leaves them."""
        texts = {path: text for path, text in state.texts.items() if path != self.path}
        if desired.text is not None:
            texts[self.path] = desired.text
        return {path: texts[path] for path in sorted(texts, key=self.place)}

    def _lines_of(self, texts: Mapping[str, str]) -> List[Line]:
        return [line for path, text in texts.items() for line in self.lines(path, text)]

    def _conflicts(
        self, lines: Sequence[Line], after: Mapping[Key, Line], values: Mapping[Key, Optional[str]]
    ) -> Tuple[Conflict, ...]:
        """Other owners of these settings. Raises ``OwnedByAnother`` where the declared value would not stay."""
        refuse_all(
            [
                OwnedByAnother(
                    f"set {last.setting}",
                    object=last.object,
                    cause=f"{last.path} line {last.number} overrules {self.path}",
                    found=last.value,
                    wanted=wanted,
                    hint="remove that line, declare the same value, or leave the setting out of the declaration",
                )
                for last, wanted in ((after[key], wanted) for key, wanted in values.items())
                if last.value != wanted
            ]
        )
        # What is left of others stands before our line.
        others = [(line, US) for line in lines if line.key in values and line.value != values[line.key]]
        others += [(line, THEM) for line in self.exceptions(lines, values)]
        return tuple(
            Conflict(self.owner, line.path, line.number, line.object, line.setting, line.value, wins)
            for line, wins in others
        )
