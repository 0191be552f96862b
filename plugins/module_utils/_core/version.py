# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The release this code belongs to; a test keeps it equal to ``galaxy.yml``."""

from __future__ import annotations

VERSION = "0.1.0"
