# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Record what ``nvidia-ctk runtime configure`` makes of each configuration beside this script, in expected.json.

``record.py PROGRAM`` runs the program on copies in a temporary folder, once as it is and once with the runtime as the
default and CDI on, and keeps what counts for the runtime ``nvidia`` in what it wrote. README.md says where a program
comes from. Needs Python 3.11 or newer, for ``tomllib``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import tomllib

HERE = Path(__file__).parent
PLUGINS = {1: "cri", 2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
# A machine on which the file is not there.
NONE = "none"
MAINS = {"containerd": "config.toml", "crio": "crio.conf", "docker": "daemon.json"}
DROP_INS = {"containerd": "conf.d/99-nvidia.toml", "crio": "crio.conf.d/99-nvidia.toml"}
EVERYTHING = {
    "containerd": ["--nvidia-set-as-default", "--cdi.enabled"],
    "crio": ["--nvidia-set-as-default"],
    "docker": ["--nvidia-set-as-default", "--cdi.enabled"],
}


def main() -> None:
    program = sys.argv[1]
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    release = re.search(r"version (\S+)", said)
    if release is None:
        raise SystemExit(f"{program} does not say its version: {said}")
    cases: Dict[str, Any] = {}
    for engine in MAINS:
        for path in [None, *inputs(engine)]:
            name = f"{engine}/{path.stem if path else NONE}"
            text = path.read_text(encoding="utf-8") if path else None
            cases[name] = {
                "plain": configured(program, engine, text, []),
                "everything": configured(program, engine, text, EVERYTHING[engine]),
            }
    document = {"release": release[1], "cases": cases}
    (HERE / "expected.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def inputs(engine: str) -> List[Path]:
    """The configurations of an engine; of containerd also what ``containerd config default`` prints."""
    printed = (HERE.parent / engine).glob("config-default-*.toml")
    return sorted([*(HERE / engine).iterdir(), *printed], key=lambda path: path.name)


def configured(program: str, engine: str, text: Optional[str], options: List[str]) -> Dict[str, Any]:
    """What the program leaves of a configuration, or what it says where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        main_file = Path(folder) / MAINS[engine]
        if text is not None:
            main_file.write_text(text, encoding="utf-8")
        argv = [program, "runtime", "configure", f"--runtime={engine}", f"--config={main_file}", *options]
        drop_in = Path(folder) / DROP_INS[engine] if engine in DROP_INS else None
        if drop_in:
            argv.append(f"--drop-in-config={drop_in}")
        completed = subprocess.run(argv, capture_output=True, text=True, check=False)
        if completed.returncode:
            return {"fails": completed.stderr.strip().splitlines()[-1].replace(folder, "FOLDER")}
        if engine == "docker":
            return of_docker(json.loads(main_file.read_text(encoding="utf-8")))
        assert drop_in is not None
        written = tomllib.loads(drop_in.read_text(encoding="utf-8"))
        if engine == "crio":
            return of_crio(written)
        top = tomllib.loads(main_file.read_text(encoding="utf-8")) if main_file.exists() else {}
        return {**of_containerd(written), "read": any(folder in item for item in top.get("imports", []))}


def of_containerd(data: Mapping[str, Any]) -> Dict[str, Any]:
    """``read`` is whether the main file imports what was written."""
    cri = data["plugins"][PLUGINS[data["version"]]]
    containerd = cri["containerd"]
    return {
        "version": data["version"],
        "runtime": containerd["runtimes"]["nvidia"],
        "default": containerd.get("default_runtime_name"),
        "cdi": cri.get("enable_cdi"),
    }


def of_crio(data: Mapping[str, Any]) -> Dict[str, Any]:
    runtime = data["crio"]["runtime"]
    return {"runtime": runtime["runtimes"]["nvidia"], "default": runtime.get("default_runtime")}


def of_docker(data: Mapping[str, Any]) -> Dict[str, Any]:
    """``features`` are all of them: the program drops those of others."""
    return {
        "runtime": data["runtimes"]["nvidia"],
        "default": data.get("default-runtime"),
        "features": data.get("features"),
    }


if __name__ == "__main__":
    main()
