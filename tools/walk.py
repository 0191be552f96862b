# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The test sequence of one scenario, from its beginning or from the step at which an earlier run failed.

python tools/walk.py default progress.json

Runs in an environment that has molecule, which knows no way to begin in the middle of a sequence, nor to run a single
`side_effect FILE` or `verify FOLDER`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from molecule.command.base import execute_subcommand, get_configs
from molecule.exceptions import MoleculeError
from progress import Progress, steps_of

from molecule import logger, util


def walk(scenario: str, progress: Progress) -> None:
    """Run the steps that are left. Raises ``MoleculeError`` where one fails."""
    definition = f"molecule/{scenario}/molecule.yml"
    (config,) = get_configs({}, {"subcommand": "test", "command_borders": False}, (), definition)
    steps = steps_of(config.scenario.sequence)
    for number, step in enumerate(steps):
        if number < len(progress.done):
            continue
        progress.begin(step, number=number + 1, of=len(steps))
        execute_subcommand(config, step)
        progress.end(step)


def main() -> None:
    scenario, file = sys.argv[1:]
    logger.configure()
    try:
        walk(scenario, Progress.read(Path(file), runs=Path(os.environ["GPUFLEET_RUNS"])))
    except MoleculeError as error:
        util.sysexit_from_exception(error)


if __name__ == "__main__":
    main()
