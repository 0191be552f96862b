# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ansible-test runs in place of the get-pip.py that it would download: the pip that comes with the interpreter."""

from __future__ import annotations

import runpy
import subprocess
import sys

subprocess.run([sys.executable, "-m", "ensurepip"], check=True)
wanted = [argument for argument in sys.argv[1:] if argument not in ("--no-setuptools", "--no-wheel")]
sys.argv[1:] = ["install", *wanted]
runpy.run_module("pip", run_name="__main__")
