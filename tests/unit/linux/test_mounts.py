# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's table of mounts."""

from __future__ import annotations

from ansible_collections.gpufleet.node.plugins.module_utils._linux import mounts

# Lines of a real kernel (6.18): no optional field, two of them, and names with a blank and a backslash.
TABLE = """\
25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
63 25 0:39 / /tmp/a\\040b rw,nosuid,noatime - tmpfs none rw,size=65536k
70 25 0:48 /sub /data rw,relatime shared:30 master:2 - nfs4 nfs1:/a\\134b rw,vers=4.2,rsize=524288,hard
71 25 0:49 / /data rw,relatime - tmpfs none rw
72 71 0:50 / /data/set rw,relatime - tmpfs none rw
"""


def test_an_entry_has_its_flags_apart_from_the_options_of_its_file_system() -> None:
    found = mounts.parse(TABLE)
    assert [mount.path for mount in found] == ["/", "/tmp/a b", "/data", "/data", "/data/set"]
    assert (found[1].flags, found[1].values) == (("rw", "nosuid", "noatime"), {"rw": "", "size": "65536k"})
    assert (found[2].number, found[2].root, found[2].source) == ("0:48", "/sub", "nfs1:/a\\b")
    assert found[2].values["rsize"] == "524288"


def test_the_last_mount_at_a_path_hides_those_before_it() -> None:
    found = mounts.parse(TABLE)
    mount = mounts.at(found, "/data")
    assert mount is not None
    assert mount.fstype == "tmpfs"
    assert mounts.at(found, "/dat") is None


def test_what_lies_in_what_is_told_by_whole_names() -> None:
    found = mounts.parse(TABLE)
    around = [mounts.around(found, path) for path in ("/data/set/x", "/data/setting", "/database", "/data")]
    assert [mount.path for mount in around if mount is not None] == ["/data/set", "/data", "/", "/"]
    assert mounts.below(found, "/data") == ("/data/set",)
    assert mounts.parse("") == ()
