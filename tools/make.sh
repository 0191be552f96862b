#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# Finds the Python that runs tools/make.py, or installs Debian's.
set -eu
python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null; then
  line='apt-get install --no-install-recommends --yes python3 python3-venv'
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing python3 ($python missing)"
    apt-get update && DEBIAN_FRONTEND=noninteractive $line
    python=python3
  else
    echo "Cannot go on without $python. On Debian or Ubuntu, as root: apt-get update && $line" >&2
    exit 1
  fi
fi
# Bytecode of the tools themselves belongs into the cache as well.
PYTHONPYCACHEPREFIX="$(dirname "$0")/../.cache/pycache" exec "$python" "$(dirname "$0")/make.py" "$@"
