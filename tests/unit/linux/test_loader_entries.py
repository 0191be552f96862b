# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which loader entry boots by default, as systemd-boot and GRUB order and choose them."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Mapping, Optional, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux.loader_entries import Entries, read_entries
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

FOLDER = "/efi/loader/entries"
VARIABLE = "/sys/firmware/efi/efivars/{}-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"


def read(root: Path, entries: Mapping[str, Mapping[str, str]], files: Optional[Mapping[str, str]] = None) -> FakeHost:
    texts: Dict[str, str] = {}
    for name, fields in entries.items():
        lines = {"linux": "/vmlinuz", **fields}
        texts[f"{FOLDER}/{name}.conf"] = "".join(f"{key} {value}\n" for key, value in lines.items())
    return build(root, {**texts, **(files or {})})


def entries_of(host: FakeHost) -> Entries:
    found = read_entries(host.files)
    assert found is not None
    return found


def chosen(path: str) -> str:
    return path[len(FOLDER) + 1 : -len(".conf")]


@pytest.mark.parametrize(
    ("entries", "first"),
    [
        # Without a sort key the name of the file decides, and no version.
        ({"a-6.9": {"version": "1"}, "a-6.10": {}}, "a-6.10"),
        ({"a-6.10": {}, "a-6.10-rc1": {}}, "a-6.10"),
        ({"a-6.10": {}, "a-6.10~rc1": {}}, "a-6.10"),
        ({"arch": {}, "arch-old": {}}, "arch"),
        # One that has a sort key comes before one that has none.
        ({"z-9": {}, "a-1": {"sort-key": "x"}}, "a-1"),
        ({"z": {"sort-key": "b", "version": "9"}, "a": {"sort-key": "a", "version": "1"}}, "a"),
        ({"z": {"sort-key": "a", "version": "6.9"}, "a": {"sort-key": "a", "version": "6.10"}}, "a"),
        (
            {
                "z": {"sort-key": "a", "machine-id": "2", "version": "9"},
                "a": {"sort-key": "a", "machine-id": "1", "version": "1"},
            },
            "a",
        ),
        # More digits than Python converts.
        ({"z": {"sort-key": "a", "version": "8" * 5000}, "a": {"sort-key": "a", "version": "09" + "8" * 4999}}, "a"),
        # What has used up its tries comes last.
        ({"a-9+0-3": {}, "a-8+2-1": {}, "a-7": {}}, "a-8+2-1"),
    ],
)
def test_systemd_boot_puts_the_newest_first(
    tmp_path: Path, entries: Mapping[str, Mapping[str, str]], first: str
) -> None:
    host = read(tmp_path, entries)
    assert chosen(entries_of(host).systemd_default(host.files)) == first


@pytest.mark.parametrize(
    ("variables", "conf", "first"),
    [
        ({}, "", "c-3"),
        ({}, "default b-*\n", "b-2"),
        ({}, "default A-1.CONF\n", "a-1"),
        ({}, "default gone\n", "c-3"),
        ({}, "default a-1\ndefault b-2.conf\n", "b-2"),
        ({"LoaderEntryDefault": "a-1.conf"}, "default b-*\n", "a-1"),
        ({"LoaderEntryDefault": "gone.conf"}, "default b-*\n", "b-2"),
        ({"LoaderEntryDefault": "a-1.conf", "LoaderEntryPreferred": "b-2.conf"}, "", "b-2"),
        ({}, "default a-1\npreferred b-2\n", "b-2"),
        ({"LoaderEntryLastBooted": "a-1.conf"}, "default @saved\n", "a-1"),
        ({}, "default @saved\n", "c-3"),
        # What is chosen for a single boot is over after it.
        ({"LoaderEntryOneShot": "a-1.conf"}, "", "c-3"),
    ],
)
def test_systemd_boot_takes_what_is_chosen(tmp_path: Path, variables: Mapping[str, str], conf: str, first: str) -> None:
    host = read(tmp_path, {"a-1": {}, "b-2": {}, "c-3": {}}, {"/efi/loader/loader.conf": f"timeout 3\n{conf}"})
    for name, value in variables.items():
        path = tmp_path / VARIABLE.format(name)[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x07\0\0\0" + f"{value}\0".encode("utf-16-le"))
    assert chosen(entries_of(host).systemd_default(host.files)) == first


@pytest.mark.parametrize(
    ("names", "saved", "first"),
    [
        (("m-5.14.0-9", "m-5.14.0-10"), "", "m-5.14.0-10"),
        (("m-5.14.0-70.el9.x86_64", "m-5.14.0-70.13.1.el9_0.x86_64"), "", "m-5.14.0-70.13.1.el9_0.x86_64"),
        (("m-5.14.0-9", "m-5.14.0.1-1"), "", "m-5.14.0.1-1"),
        (("m-0-rescue", "m-5.14.0-9"), "", "m-5.14.0-9"),
        (("system-o-6.17.8-1-default-9", "snapper-o-6.17.8-1-default-10"), "", "system-o-6.17.8-1-default-9"),
        (("m-1-1", "m-2-1", "m-3-1"), "1", "m-2-1"),
        (("m-1-1", "m-2-1"), "9", "m-2-1"),
        (("m-1-1", "m-2-1"), "9" * 5000, "m-2-1"),
        (("m-1-1", "m-2-1"), "m-1-1", "m-1-1"),
        (("m-1-1", "m-2-1"), "m-1-1.conf", "m-1-1"),
        (("m-1-1", "m-2-1"), "Title of m-1-1", "m-1-1"),
        # It is a name, and no pattern.
        (("m-1-1", "m-2-1"), "m-1*", "m-2-1"),
    ],
)
def test_grub_reads_names_as_those_of_packages(tmp_path: Path, names: Sequence[str], saved: str, first: str) -> None:
    host = read(tmp_path, {name: {"title": f"Title of {name}", "version": "1"} for name in names})
    assert chosen(entries_of(host).grub_default(saved)) == first
