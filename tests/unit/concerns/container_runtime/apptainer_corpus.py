# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configurations that Apptainer is found with."""

from __future__ import annotations

# Of the file of version 1.3, the parts that matter.
SHIPPED = """\
# APPTAINER.CONF
# This is the global configuration file for Apptainer.

# ALLOW SETUID: [BOOL]
# DEFAULT: yes
allow setuid = yes

# BIND PATH: [STRING]
# DEFAULT: Undefined
#bind path = /etc/apptainer/default-nsswitch.conf:/etc/nsswitch.conf
#bind path = /opt
bind path = /etc/localtime
bind path = /etc/hosts

# ALWAYS USE NV ${TYPE}: [BOOL]
# DEFAULT: no
always use nv = no

# USE NVIDIA-NVIDIA-CONTAINER-CLI ${TYPE}: [BOOL]
# DEFAULT: no
use nvidia-container-cli = no

# MAX LOOP DEVICES: [INT]
max loop devices = 256
"""
CORPUS = [
    ("as it comes", SHIPPED),
    ("Windows line ends", SHIPPED.replace("\n", "\r\n")),
    ("no line end at the end", SHIPPED.rstrip("\n")),
    ("a switch on the last line", "allow setuid = yes\nalways use nv = no"),
    ("a bind path on the last line", "always use nv = no\nbind path = /opt"),
    ("nothing", ""),
    ("only comments", "# always use nv = yes\n#bind path = /data\n"),
    ("other blanks", "\talways use nv=no  \n  use nvidia-container-cli  =\tno\n bind path=/opt, /srv\n"),
    ("twice, of which the first counts", "always use nv = no\nalways use nv = yes\n"),
    ("an empty one before", "always use nv =\nalways use nv = no\n"),
    ("bytes that are no UTF-8", "# caf\udce9\n" + SHIPPED),
    ("a list", "bind path = /opt,/srv\nbind path = /home\n"),
]
