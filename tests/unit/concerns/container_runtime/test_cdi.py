# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CDI: specifications as they are written, what an engine finds in them, and when they have to be made anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._text.yaml_subset import YamlError, parse
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.cdi import cdi
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.cdi.cdi import (
    CURRENT,
    DUPLICATES,
    HOOKS,
    KIND,
    MISSING,
    UNIT,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import (
    NOTHING,
    Document,
    Kind,
    Settings,
    WantedEngine,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build
from hypothesis import given
from hypothesis import strategies as st

yaml = pytest.importorskip("yaml")

OLD, NEW = "/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"
HOOK = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"

# As nvidia-ctk of version 1.13 to 1.17 writes it: keys in the order of the alphabet, items right below their key.
GENERATED = """\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidia-uvm
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args:
    - nvidia-cdi-hook
    - create-symlinks
    - --link
    - libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.570.86.15
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.570.86.15
    options:
    - ro
    - nosuid
    - bind
  - containerPath: /usr/bin/nvidia-smi
    hostPath: /usr/bin/nvidia-smi
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
    - path: /dev/nvidia-caps/nvidia-cap12
    - path: /dev/nvidia-caps/nvidia-cap13
  name: "1:0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/nvidia1
  name: all
kind: nvidia.com/gpu
"""
# As the library of CDI writes it from version 1.1 on: keys in their own order, items indented.
ORDERED = """\
---
cdiVersion: 0.7.0
kind: nvidia.com/gpu
devices:
    - name: "0"
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
              hostPath: /dev/nvidia0
    - name: GPU-5c0b1f0e-0000-0000-0000-000000000000
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
containerEdits:
    env:
        - NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu
    mounts:
        - hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.86.15
          containerPath: /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.86.15
"""
BY_HAND = """\
# one GPU under another name
cdiVersion: "0.6.0"   # the format
kind: 'example.com/gpu'

devices:
  -
    name: first      # plain
    containerEdits: {"deviceNodes": [{"path": "/dev/nvidia7"}]}
  - name: 'it''s'
    annotations:
    containerEdits:
      env: ["A=b"]
...
"""


def specification(path: str, text: str) -> cdi.Specification:
    return cdi.read_specification(Document(path, text))


def tree(**gpus: Mapping[int, Tuple[int, int]]) -> Dict[str, str]:
    """A driver with GPUs of these minors; each has MIG instances by their number, with the minors of their nodes."""
    caps = "/proc/driver/nvidia/capabilities"
    files = {
        "/sys/module/nvidia/version": "570.86.15\n",
        f"{caps}/mig/config": "DeviceFileMinor: 1\nDeviceFileMode: 256\n",
        f"{caps}/mig/monitor": "DeviceFileMinor: 2\nDeviceFileMode: 292\n",
    }
    for name, instances in gpus.items():
        minor = int(name[3:])
        files[f"/proc/driver/nvidia/gpus/0000:{minor + 16:x}:00.0/information"] = f"Device Minor: \t {minor}\n"
        for instance, (gpu_part, compute_part) in instances.items():
            below = f"{caps}/{name}/mig/gi{instance}"
            files[f"{below}/access"] = f"DeviceFileMinor: {gpu_part}\nDeviceFileMode: 292\n"
            files[f"{below}/ci0/access"] = f"DeviceFileMinor: {compute_part}\nDeviceFileMode: 292\n"
    return files


# What is read


@pytest.mark.parametrize(
    ("text", "kind", "devices"),
    [
        (GENERATED, "nvidia.com/gpu", ["0", "1:0", "all"]),
        (ORDERED, "nvidia.com/gpu", ["0", "GPU-5c0b1f0e-0000-0000-0000-000000000000"]),
        (BY_HAND, "example.com/gpu", ["first", "it's"]),
        (GENERATED.replace("\n", "\r\n"), "nvidia.com/gpu", ["0", "1:0", "all"]),
        ("\ufeff" + ORDERED, "nvidia.com/gpu", ["0", "GPU-5c0b1f0e-0000-0000-0000-000000000000"]),
        (json.dumps(yaml.safe_load(GENERATED)), "nvidia.com/gpu", ["0", "1:0", "all"]),
        ("kind: a.b/c\ndevices: []\n", "a.b/c", []),
    ],
)
def test_the_devices_of_a_specification_have_full_names(text: str, kind: str, devices: List[str]) -> None:
    read = specification(NEW, text)
    assert (read.error, read.kind) == ("", kind)
    assert read.devices == tuple(f"{kind}={name}" for name in devices)


@pytest.mark.parametrize("text", [GENERATED, ORDERED, BY_HAND])
def test_the_reader_reads_what_a_library_reads(text: str) -> None:
    assert parse(text) == yaml.load(text, Loader=yaml.BaseLoader) or parse(text) == yaml.safe_load(text)


def mappings(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Dict[str, Any]]:
    keys = texts.filter(bool)
    values: st.SearchStrategy[Any] = st.recursive(
        texts,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3), st.dictionaries(keys, inner, min_size=1, max_size=3)
        ),
        max_leaves=8,
    )
    return st.dictionaries(keys, values, min_size=1, max_size=3)


ORDINARY = st.text("abzA09/._-=:,+@ ", min_size=1, max_size=30).map(lambda text: f"a{text}z")
ANY = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)


@given(value=mappings(ORDINARY), indent=st.sampled_from([2, 4]))
def test_what_a_library_writes_of_ordinary_texts_is_read_as_it_was(value: Any, indent: int) -> None:
    text = yaml.safe_dump(value, default_flow_style=False, indent=indent, width=1000)
    assert parse(text) == value


@given(value=mappings(ANY), width=st.sampled_from([20, 80, 1000]))
def test_what_a_library_writes_of_any_text_is_never_read_as_something_else(value: Any, width: int) -> None:
    text = yaml.safe_dump(value, default_flow_style=False, width=width)
    try:
        read = parse(text)
    except YamlError:
        # Such as a text in quotes that goes on in the next line.
        return
    assert read == yaml.load(text, Loader=yaml.BaseLoader)


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        (NEW, "", "it is not a specification: a value in it has the wrong type"),
        (NEW, "- a\n", "it is not a specification: a value in it has the wrong type"),
        (NEW, "kind: a.b/c\n", "it is not a specification: devices is missing"),
        (NEW, "kind: a.b/c\ndevices:\n", "it is not a specification: a value in it has the wrong type"),
        (NEW, "kind: &a x\n", "line 1: '&a x' is YAML that is not supported here"),
        (NEW, "kind: x\nenv: |\n  a\n", "line 2: '|' is YAML that is not supported here"),
        (NEW, "kind: x\n---\nkind: y\n", "line 2: this begins a second document"),
        (NEW, "--- kind\n", "line 1: a document begins on a line of its own"),
        (NEW, "kind: x\n\tdevices: y\n", "line 2: a tab cannot indent"),
        (NEW, "kind: x\n  devices: y\n", "line 2: 'devices: y' does not go on from the lines before it"),
        (NEW, "kind: x\nkind: y\n", "line 2: kind is already defined"),
        (NEW, "kind: x\nsomething\n", "line 2: 'something' is not a key with a colon after it"),
        (NEW, "kind: 'x\n", 'line 1: "\'x" does not end on its line'),
        (NEW, "kind: {a: b}\n", "line 1: '{a: b}' is a flow collection that is not JSON"),
        (NEW, 'kind: "\\x41"\n', 'line 1: "\\x41" has an escape that is not supported here'),
        (NEW, '{"kind": }', "line 1: Expecting value"),
        ("/etc/cdi/x.json", '{\n"kind": }', "line 2, column 9: Expecting value"),
        ("/etc/cdi/x.json", GENERATED, "line 1, column 1: Expecting value"),
    ],
)
def test_what_cannot_be_read_says_why_and_has_no_device(path: str, text: str, message: str) -> None:
    read = specification(path, text)
    assert read.error.startswith(message)
    assert read.devices == ()


def test_a_specification_of_many_instances_is_read_in_a_moment() -> None:
    import time

    head, _devices, _kind = GENERATED.partition("devices:\n")
    item = (
        '- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia{0}\n    - path: /dev/nvidiactl\n  name: "{0}"\n'
    )
    text = head + "devices:\n" + "".join(item.format(index) for index in range(600)) + "kind: nvidia.com/gpu\n"
    start = time.process_time()
    read = specification(NEW, text)
    assert len(read.devices) == 600
    # 3,000 lines; about 15 ms, with room for a slow machine.
    assert time.process_time() - start < 0.3


# What an engine finds


def seen(root: Path, files: Mapping[str, str]) -> Tuple[FakeHost, cdi.Specifications]:
    host = build(root, files)
    return host, cdi.read_specifications(host.files)


def made(kind: str, *names: str) -> str:
    return json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": [{"name": name} for name in names]})


def test_only_files_of_the_format_in_the_two_folders_count(tmp_path: Path) -> None:
    files = {
        "/etc/cdi/a.json": made("a.com/x", "1"),
        "/etc/cdi/b.yaml": made("b.com/x", "1"),
        "/etc/cdi/c.yml": made("c.com/x", "1"),
        "/etc/cdi/d.yaml.old": made("d.com/x", "1"),
        "/etc/cdi/sub/e.yaml": made("e.com/x", "1"),
        NEW: GENERATED,
    }
    assert seen(tmp_path, files)[1].devices == (
        *("a.com/x=1", "b.com/x=1", "nvidia.com/gpu=0", "nvidia.com/gpu=1:0", "nvidia.com/gpu=all"),
    )


def test_of_two_folders_the_later_one_counts_and_in_one_folder_neither(tmp_path: Path) -> None:
    files = {
        "/etc/cdi/a.yaml": made("nvidia.com/gpu", "0", "1"),
        "/etc/cdi/b.yaml": made("nvidia.com/gpu", "1"),
        NEW: made("nvidia.com/gpu", "0", "2"),
    }
    found = seen(tmp_path, files)[1]
    assert found.devices == ("nvidia.com/gpu=0", "nvidia.com/gpu=2")
    assert found.unresolvable == ("nvidia.com/gpu=1",)
    assert [one.path for one in found.duplicates] == ["/etc/cdi/a.yaml"]


@pytest.mark.parametrize(
    ("files", "stale"),
    [
        ({OLD: GENERATED}, []),
        ({NEW: GENERATED}, []),
        ({OLD: GENERATED, NEW: ORDERED}, [OLD]),
        ({OLD: made("nvidia.com/gpu", "9"), NEW: GENERATED}, []),
        ({OLD: made("example.com/gpu", "0"), NEW: made("example.com/gpu", "0")}, []),
        ({OLD: "kind: &x y\n", NEW: GENERATED}, []),
    ],
)
def test_a_file_in_etc_is_a_duplicate_where_a_generated_one_has_its_devices(
    tmp_path: Path, files: Dict[str, str], stale: List[str]
) -> None:
    assert [one.path for one in seen(tmp_path, files)[1].duplicates] == stale


# What goes when it is declared


@pytest.mark.parametrize(
    ("options", "wanted", "gone"),
    [
        ({}, {}, []),
        ({"refresh": True}, {}, []),
        ({"remove_duplicates": True}, {DUPLICATES: "none"}, [OLD]),
        ({"remove_oci_hooks": True}, {HOOKS: "none"}, [HOOK]),
        ({"remove_duplicates": False, "remove_oci_hooks": True}, {HOOKS: "none"}, [HOOK]),
        (
            {"remove_duplicates": True, "remove_oci_hooks": True},
            {DUPLICATES: "none", HOOKS: "none"},
            [OLD, HOOK],
        ),
    ],
)
def test_only_what_is_declared_goes(
    tmp_path: Path, options: Dict[str, bool], wanted: Settings, gone: Sequence[str]
) -> None:
    kind: Kind = KIND
    host = build(tmp_path, {OLD: GENERATED, NEW: GENERATED, HOOK: "{}"})
    installation = kind.find(host)
    assert installation is not None
    configuration = kind.read(host.files, installation)
    assert configuration.settings == {DUPLICATES: OLD, HOOKS: HOOK}
    want = WantedEngine("cdi", True, "", "", options=options)
    assert kind.wanted(want, configuration) == wanted
    edits = kind.edit(configuration, want)
    assert [(edit.path, edit.after) for edit in edits] == [(path, None) for path in gone]
    for edit in edits:
        host.files.remove(edit.path)
    again = kind.read(host.files, installation)
    assert {name: again.settings[name] for name in wanted} == wanted
    assert kind.edit(again, want) == ()
    assert kind.required_action({}, wanted).action == NOTHING
    assert kind.running(host, again) is None


# When it has to be made anew

TWO_GPUS: Dict[str, Mapping[int, Tuple[int, int]]] = {"gpu0": {}, "gpu1": {1: (12, 13)}}


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({}, ""),
        ({NEW: GENERATED}, ""),
        (tree(), MISSING),
        ({**tree(), OLD: made("example.com/gpu", "0")}, MISSING),
        ({**tree(), NEW: "kind: &x y\n"}, ""),
        ({**tree(**TWO_GPUS), NEW: GENERATED}, CURRENT),
        ({**tree(**TWO_GPUS), OLD: GENERATED}, CURRENT),
        ({**tree(**TWO_GPUS, gpu2={}), NEW: GENERATED}, CURRENT),
        (
            {**tree(**TWO_GPUS), NEW: GENERATED, "/sys/module/nvidia/version": "575.51.03\n"},
            "it is of driver 570.86.15, and 575.51.03 is loaded",
        ),
        ({**tree(gpu0={}), NEW: GENERATED}, "it names /dev/nvidia1, which does not exist"),
        (
            {**tree(gpu0={}, gpu1={}), NEW: GENERATED},
            "it names the MIG instance of /dev/nvidia-caps/nvidia-cap12, which does not exist",
        ),
        (
            {**tree(gpu0={}, gpu1={1: (12, 13), 2: (21, 22)}), NEW: GENERATED},
            "it does not name the MIG instance of /dev/nvidia-caps/nvidia-cap21",
        ),
        (
            {**tree(gpu0={3: (30, 31)}, gpu1={}), OLD: GENERATED, NEW: ORDERED},
            "it does not name the MIG instance of /dev/nvidia-caps/nvidia-cap30",
        ),
    ],
)
def test_it_is_made_anew_where_it_certainly_is_not_of_this_driver_and_layout(
    tmp_path: Path, files: Dict[str, str], state: str
) -> None:
    host, found = seen(tmp_path, files)
    assert cdi.state_of(host.files, found) == state


# As Linux lists them with driver 570.86.15: those of UVM and of the capabilities are given out at each boot.
DEVICES = """\
Character devices:
  1 mem
195 nvidia
195 nvidiactl
235 nvidia-caps
511 nvidia-uvm

Block devices:
511 mdp
"""


@pytest.mark.parametrize(
    ("numbers", "devices", "state"),
    [
        ("    major: 511\n    minor: 0\n", DEVICES, CURRENT),
        ("    major: 510\n", DEVICES, "it gives /dev/nvidia-uvm the major number 510, but since this boot that is 511"),
        ("    major: 510\n", None, CURRENT),
        ("  - path: /dev/nvidia-fs0\n    major: 505\n", DEVICES, CURRENT),
        ("    major: 510\n", DEVICES.replace("511 nvidia-uvm\n", ""), CURRENT),
    ],
)
def test_device_numbers_of_another_boot_are_not_current(
    tmp_path: Path, numbers: str, devices: Optional[str], state: str
) -> None:
    files = tree(**TWO_GPUS)
    files[NEW] = GENERATED.replace("  - path: /dev/nvidia-uvm\n", f"  - path: /dev/nvidia-uvm\n{numbers}")
    host, found = seen(tmp_path, {**files, **({} if devices is None else {"/proc/devices": devices})})
    assert cdi.state_of(host.files, found) == state


def test_a_gpu_instance_without_a_compute_instance_is_no_device_yet(tmp_path: Path) -> None:
    files = tree(**TWO_GPUS)
    files["/proc/driver/nvidia/capabilities/gpu1/mig/gi5/access"] = "DeviceFileMinor: 50\n"
    host, found = seen(tmp_path, {**files, NEW: GENERATED})
    assert cdi.state_of(host.files, found) == CURRENT


@pytest.mark.parametrize(
    ("unit", "program", "files", "command"),
    [
        (True, True, {}, ("systemctl", "restart", UNIT)),
        (True, False, {OLD: GENERATED}, ("systemctl", "restart", UNIT)),
        (False, True, {}, ("/usr/bin/nvidia-ctk", "cdi", "generate", f"--output={OLD}")),
        (False, True, {OLD: GENERATED}, ("/usr/bin/nvidia-ctk", "cdi", "generate", f"--output={OLD}")),
        (
            False,
            True,
            {OLD: GENERATED, NEW: GENERATED},
            ("/usr/bin/nvidia-ctk", "cdi", "generate", f"--output={NEW}"),
        ),
        (False, False, {OLD: GENERATED}, ()),
    ],
)
def test_the_service_of_the_toolkit_makes_it_and_else_its_program(
    tmp_path: Path, unit: bool, program: bool, files: Dict[str, str], command: Tuple[str, ...]
) -> None:
    text = (
        "[Service]\nType=oneshot\nExecStart=/usr/bin/nvidia-ctk cdi generate\n[Install]\nWantedBy=multi-user.target\n"
    )
    host, found = seen(tmp_path, {**files, **({f"/usr/lib/systemd/system/{UNIT}": text} if unit else {})})
    if program:
        host.commands.programs["nvidia-ctk"] = lambda argv: Completed(0, "", "")
    assert cdi.refresh_command(host, found) == command


def test_a_masked_service_is_left_alone(tmp_path: Path) -> None:
    host = build(tmp_path, {}, {f"/etc/systemd/system/{UNIT}": "/dev/null"})
    assert cdi.refresh_command(host, cdi.read_specifications(host.files)) == ()
