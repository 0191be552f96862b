# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Scripts that are sourced behind ours and set the variable with our arguments again, with the shell itself beside."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, OwnedByAnother
from ansible_collections.gpufleet.node.plugins.module_utils._linux import bootloader
from ansible_collections.gpufleet.node.plugins.module_utils._linux.grub_defaults import find_overwrite
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.hugepages.concern import CONCERN as HUGEPAGES
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_cmdline.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.hugepages import hugepages_machine
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_cmdline.cmdline_machine import (
    DROP_IN,
    machine,
    params,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.support import build, snapshot

V = "GRUB_CMDLINE_LINUX_DEFAULT"
LATER = "/etc/default/grub.d/zz-site.cfg"
# What grub-mkconfig of grub-common 2.06-13+deb12u2 does before it runs the scripts of /etc/grub.d.
GENERATOR = """set -e
sysconfdir="$1"
if test -f ${sysconfdir}/default/grub ; then
  . ${sysconfdir}/default/grub
fi
for x in ${sysconfdir}/default/grub.d/*.cfg ; do
  if [ -e "${x}" ]; then
    . "${x}"
  fi
done
echo "$GRUB_CMDLINE_LINUX_DEFAULT"
"""
Verdict = Optional[Tuple[int, str]]
CERTAIN: Dict[str, Tuple[str, Verdict]] = {
    "nothing": ("", None),
    "a comment": (f'# {V}=""\n', None),
    "set": (f'#\n{V}="quiet"\n', (2, "quiet")),
    "empty": (f"{V}=\n", (1, "")),
    "added to": (f'{V}="${V} foo"\n', None),
    "added to in front": (f'{V}="foo ${{{V}}}"\n', None),
    "exported": (f'export {V}="quiet"\n', (1, "quiet")),
    "exported and added to": (f'export {V}="${V} foo"\n', None),
    "declared without a value": (f"export {V}\n", None),
    "set and added to": (f'{V}=quiet\n{V}="${V} foo"\n', (1, "quiet")),
    "added to and set": (f'{V}="${V} foo"\n{V}=quiet\n', (2, "quiet")),
    "another variable": ('GRUB_CMDLINE_LINUX="quiet"\nGRUB_CMDLINE_LINUX_DEFAULT_XEN=""\n', None),
    "in single quotes": (f"{V}='${V} foo'\n", (1, f"${V} foo")),
    "added by another variable": (f'old="${V}"\n{V}="$old foo"\n', None),
    "another variable with another text": (f'old="${V}"\nold=x\n{V}="$old foo"\n', (3, "${old} foo")),
    "a variable from before ours": (f'{V}="$EARLIER foo"\n', (1, "${EARLIER} foo")),
    "behind a semicolon": (f"x=1; {V}=quiet\n", (1, "quiet")),
    "over two lines": (f'{V}="quiet \\\nfoo"\n', (1, "quiet foo")),
    "unset": (f"unset {V}\n", (1, "")),
    "text of a message": (f'echo "{V}=quiet" >/dev/null\n', None),
    "behind a return": (f"return\n{V}=quiet\n", None),
    "behind the end of a block": (f"if true; then x=1; fi\n{V}=quiet\n", (2, "quiet")),
    "behind the end of a case": (f"case a in a) x=1;; *) x=2;; esac\n{V}=quiet\n", (2, "quiet")),
    "in a here-document": (f"cat >/dev/null <<END\n{V}=quiet\nEND\n", None),
}
DOUBTFUL: Dict[str, Tuple[str, int]] = {
    "a condition": (f'if [ -e /x ]; then\n  {V}="quiet"\nfi\n', 2),
    "an else": (f"if true; then :; else {V}=quiet; fi\n", 1),
    "a branch": (f"case $x in\n  a) {V}=quiet;;\nesac\n", 2),
    "a loop": (f"for x in 1 2; do {V}=$x; done\n", 1),
    "and": (f"[ -e /x ] && {V}=quiet\n", 1),
    "a function": (f"f() {{\n  {V}=quiet\n}}\n", 2),
    "the output of a program": (f'{V}="$(cat /proc/cmdline)"\n', 1),
    "a substitution": (f'{V}="${{{V}#quiet}}"\n', 1),
    "eval": (f'eval "{V}=quiet"\n', 1),
    "read": (f"read {V} < /x\n", 1),
    "a file that only the script knows": ('. "$dir/more"\n', 1),
    "behind a return in a condition": (f"if [ -e /x ]; then return; fi\n{V}=quiet\n", 2),
}


def overwrite(root: Path, files: Mapping[str, str]) -> Any:
    host = build(root, {"/etc/os-release": "", **files})
    return find_overwrite(host.files, V, [path for path in files if path.startswith("/etc/default/grub.d/")])


@pytest.mark.parametrize(("text", "verdict"), CERTAIN.values(), ids=CERTAIN)
def test_a_value_is_lost_where_the_shell_loses_it(tmp_path: Path, text: str, verdict: Verdict) -> None:
    found = overwrite(tmp_path, {LATER: text})
    expected = verdict and (LATER, *verdict, False)
    assert (found and (found.path, found.line, found.value, found.in_doubt)) == expected
    (tmp_path / "etc/default/grub").write_text(f'EARLIER="${V}"\n')
    (tmp_path / "etc/default/grub.d/gpufleet-x.cfg").write_text(f'{V}="${V} ours"\n')
    argv = ["/bin/sh", "-c", GENERATOR, "sh", str(tmp_path / "etc")]
    shell = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert ("ours" in shell.stdout.split()) is (verdict is None)


@pytest.mark.parametrize(("text", "line"), DOUBTFUL.values(), ids=DOUBTFUL)
def test_what_only_the_running_script_knows_is_in_doubt(tmp_path: Path, text: str, line: int) -> None:
    found = overwrite(tmp_path, {LATER: text})
    assert (found.path, found.line, found.in_doubt) == (LATER, line, True)


def test_a_script_that_is_sourced_is_read(tmp_path: Path) -> None:
    files = {LATER: ". /etc/site.sh\n", "/etc/site.sh": f"x=1\n{V}=quiet\n"}
    found = overwrite(tmp_path, files)
    assert (found.path, found.line, found.in_doubt) == ("/etc/site.sh", 2, False)


def test_scripts_that_source_each_other_come_to_an_end(tmp_path: Path) -> None:
    assert overwrite(tmp_path, {LATER: ". /etc/a\n", "/etc/a": ". /etc/b\n", "/etc/b": ". /etc/a\n"}) is None


def test_a_loss_that_is_certain_comes_before_one_in_doubt(tmp_path: Path) -> None:
    doubt = {"/etc/default/grub.d/x.cfg": f"[ -e /x ] && {V}=a\n"}
    assert overwrite(tmp_path, {**doubt, LATER: f"{V}=b\n"}).path == LATER


@pytest.mark.parametrize("check", [True, False])
def test_a_later_file_that_sets_the_variable_again_is_named_before_anything_changes(
    tmp_path: Path, check: bool
) -> None:
    host = machine(tmp_path, extra={LATER: f'\n{V}="quiet"\n'})
    before = snapshot(tmp_path)
    with pytest.raises(OwnedByAnother) as caught:
        converge(CONCERN, params(arguments={"iommu": "pt"}), host, check_mode=check)
    assert str(caught.value) == (
        f"Cannot add kernel arguments to {V} in {DROP_IN}: {LATER} line 2 comes after it and sets the variable again"
        f' (found quiet, wanted iommu=pt). Write {V}="${V} ..." there.'
    )
    assert snapshot(tmp_path) == before


def test_one_that_comes_later_is_named_while_the_menu_still_has_ours(tmp_path: Path) -> None:
    host = machine(tmp_path)
    assert run(host, {"iommu": "pt"}).error is None
    host.files.replace(LATER, f"{V}=quiet\n")
    with pytest.raises(OwnedByAnother, match=LATER):
        run(host, {"iommu": "pt"})
    # To take them out again is no question of who comes later.
    assert run(host, state="absent").error is None


@pytest.mark.parametrize(
    "files",
    [
        {LATER: f'{V}="${V} foo"\n'},
        {"/etc/default/grub.d/50-cloudimg-settings.cfg": f'{V}="console=tty1 console=ttyS0"\n'},
        {"/etc/default/grub.d/zz-site.cfg.dpkg-old": f"{V}=quiet\n"},
        {"/etc/default/grub.d/.zz-site.cfg": f"{V}=quiet\n"},
        {LATER: 'GRUB_CMDLINE_LINUX="quiet"\n'},
    ],
)
def test_files_that_take_nothing_away_are_no_obstacle(tmp_path: Path, files: Dict[str, str]) -> None:
    assert run(machine(tmp_path, extra=files), {"iommu": "pt"}).error is None


def test_one_in_doubt_is_a_conflict_until_the_menu_has_them(tmp_path: Path) -> None:
    # As the stand-in for the generator reads only what begins a line, the condition is not met.
    host = machine(tmp_path, extra={LATER: f'if [ -e /x ]; then\n  {V}="quiet"\nfi\n'})
    foreseen = converge(CONCERN, params(arguments={"iommu": "pt"}), host, check_mode=True)
    assert [(one.path, one.line, one.setting, one.wins) for one in foreseen.remaining.conflicts] == [
        (LATER, 2, "iommu", "unknown")
    ]
    assert run(host, {"iommu": "pt"}).error is None
    assert run(host, {"iommu": "pt"}).status == "pending"


def test_hugepages_names_it_too(tmp_path: Path) -> None:
    host = hugepages_machine.machine(tmp_path, extra={LATER: 'GRUB_CMDLINE_LINUX="quiet"\n'})
    pools = [{"size": "1G", "per_node": {"0": 1, "1": 2}}]
    with pytest.raises(GpuFleetError, match=f"{LATER} line 1 comes after"):
        converge(HUGEPAGES, hugepages_machine.params(pools=pools), host, check_mode=True)


def test_for_hugepages_one_in_doubt_is_a_conflict_until_the_menu_has_them_too(tmp_path: Path) -> None:
    extra = {LATER: 'if [ -e /x ]; then\n  GRUB_CMDLINE_LINUX="quiet"\nfi\n'}
    host = hugepages_machine.machine(tmp_path, extra=extra)
    # Only gigantic pages need an argument, and of the others none is in doubt.
    pools = [{"size": "1G", "per_node": {"0": 1, "1": 2}}, {"size": "2M", "per_node": {"0": 4}}]
    declared = hugepages_machine.params(pools=pools)
    foreseen = converge(HUGEPAGES, declared, host, check_mode=True)
    assert [
        (one.path, one.line, one.object, one.setting, one.value, one.wins) for one in foreseen.remaining.conflicts
    ] == [
        (LATER, 2, "node0", "hugepages_1G", "quiet", "unknown"),
        (LATER, 2, "node1", "hugepages_1G", "quiet", "unknown"),
    ]
    doubted = [row.object for row in foreseen.remaining.settings if "may set it to quiet at boot" in row.doubt]
    assert doubted == ["node0", "node1"]
    assert converge(HUGEPAGES, declared, host, check_mode=False).error is None
    after = converge(HUGEPAGES, declared, host, check_mode=True)
    assert (after.status, after.remaining.conflicts) == ("pending", ())


def test_a_line_behind_ours_in_the_same_file_is_overcome(tmp_path: Path) -> None:
    generator = {"/usr/sbin/grub-mkconfig": ". ${sysconfdir}/default/grub\n"}
    host = machine(tmp_path, extra=generator)
    assert run(host, {"iommu": "pt"}).error is None
    host.files.replace("/etc/default/grub", host.files.read("/etc/default/grub") + f"{V}=quiet\n")
    host.commands.programs["update-grub"](["update-grub"])
    assert run(host, {"iommu": "pt"}).error is None
    assert bootloader.detect(host, "kernel_cmdline", "", variable=V).ours == ("iommu=pt",)
