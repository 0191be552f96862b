# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ansible-test runs in place of the get-pip.py that it would download: the pip that comes with the interpreter."""

from __future__ import annotations

import os
import runpy
import sys
import sysconfig

# Debian's ensurepip has its packages beside it, which is not below /usr where tools/debian_tree.py unpacked it.
wheels = os.path.join(sys.base_prefix, "share", "python-wheels")
if os.path.isdir(wheels):
    sysconfig.get_config_vars()["WHEEL_PKG_DIR"] = wheels

import ensurepip  # noqa: E402

# It sets pip's configuration aside, for good: the mirror, and the certificates without which the next pip fails.
environment = dict(os.environ)
ensurepip.bootstrap()
os.environ.clear()
os.environ.update(environment)
wanted = [argument for argument in sys.argv[1:] if argument not in ("--no-setuptools", "--no-wheel")]
sys.argv[1:] = ["install", *wanted]
runpy.run_module("pip", run_name="__main__")
