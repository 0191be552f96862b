# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""cufile.json by meaning: what comes into it, what of others stays, what is refused, and who has another file."""

from __future__ import annotations

import datetime
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Mapping, Optional

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._text.json_comments import parse_commented
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gds import schema
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gds.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gds.spec import parse
from ansible_collections.gpufleet.node.tests.unit.concerns.gds.gds_machine import (
    FILES,
    LIBRARY,
    NVIDIA_FS,
    P2PDMA,
    PATH,
    SHIPPED,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build
from hypothesis import given, settings
from hypothesis import strategies as st

RECORDED = json.loads((Path(__file__).parent / "data" / "libcufile.json").read_text(encoding="utf-8"))


def machine(root: Path, changed: Optional[Mapping[str, Optional[str]]] = None) -> FakeHost:
    """The usual machine with other files; None takes one away."""
    files = {path: text for path, text in {**FILES, **(changed or {})}.items() if text is not None}
    return build(root, files)


def run(host: FakeHost, cufile: Any = None, **declared: Any) -> Outcome:
    params = {**({"cufile": cufile} if cufile is not None else {}), **declared}
    validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate(params)
    assert validated.error_messages == []
    outcome = converge(CONCERN, validated.validated_parameters, host, check_mode=False)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def table(host: FakeHost) -> Any:
    return parse_commented(host.files.read(PATH), PATH)


# --- what comes into the file -----------------------------------------------------------------------------------------


def test_declared_keys_are_set_and_all_else_stays_in_its_place(tmp_path: Path) -> None:
    host = machine(tmp_path)
    outcome = run(host, {"execution": {"max_io_threads": 8, "max_io_queue_depth": 128}, "profile": {"cufile_stats": 1}})
    text = host.files.read(PATH)
    kept = text.replace('"max_io_threads" : 8 /* gpufleet.node.gds: "max_io_threads" was 4 */', '"max_io_threads" : 4')
    assert kept != text
    added = kept.partition('"site": { "note" : "keep // this" }')
    assert added[0] + added[1] + "\n}\n" == SHIPPED
    assert table(host) == {
        **parse_commented(SHIPPED, PATH),
        "execution": {"max_io_queue_depth": 128, "max_io_threads": 8, "parallel_io": True},
        "profile": {"cufile_stats": 1},
    }
    # What was as declared is nobody's change.
    assert {change.setting for change in outcome.changes if change.object == PATH} == {
        "execution.max_io_threads",
        "profile.cufile_stats",
    }
    assert outcome.effective["cufile"]["execution.max_io_threads"] == "8"
    assert outcome.effective["releases"] == [LIBRARY]


def test_what_is_no_longer_declared_is_again_what_others_had(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {"execution": {"max_io_threads": 8, "max_request_parallelism": 2}})
    run(host, {"logging": {"level": "WARN"}})
    assert table(host)["execution"] == {"max_io_queue_depth": 128, "max_io_threads": 4, "parallel_io": True}
    assert table(host)["logging"] == {"level": "WARN"}


def test_absent_restores_every_byte_also_after_others_wrote_to_it(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {"execution": {"max_io_threads": 8, "max_request_parallelism": 2}, "denylist": {"drivers": ["sd"]}})
    path = tmp_path / PATH[1:]
    path.write_text(path.read_text().replace('"site":', '"other": 1,\n            "site":'))
    run(host, state="absent")
    assert path.read_text() == SHIPPED.replace('"site":', '"other": 1,\n            "site":')


def test_a_file_that_was_not_there_goes_again_unless_others_wrote_to_it(tmp_path: Path) -> None:
    host = machine(tmp_path, {PATH: None})
    run(host, {"properties": {"allow_compat_mode": False}})
    assert table(host) == {"properties": {"allow_compat_mode": False}}
    run(host, state="absent")
    assert not host.files.exists(PATH)
    run(host, {"properties": {"allow_compat_mode": False}})
    path = tmp_path / PATH[1:]
    path.write_text(path.read_text().replace("\n}\n", ',\n    "site": 1\n}\n'))
    run(host, state="absent")
    assert table(host) == {"site": 1}


def test_a_value_that_somebody_changed_is_set_again_and_the_way_back_stays(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {"execution": {"max_io_threads": 8}})
    path = tmp_path / PATH[1:]
    path.write_text(path.read_text().replace('"max_io_threads" : 8', '"max_io_threads" : 16'))
    assert [change.before for change in run(host, {"execution": {"max_io_threads": 8}}).changes] == ["16", "16"]
    path.write_text(path.read_text().replace('"max_io_threads" : 8', '"max_io_threads" : 4'))
    run(host, state="absent")
    assert path.read_text() == SHIPPED


def test_null_leaves_a_key_to_others(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {"execution": {"max_io_threads": None, "max_io_queue_depth": 64}, "logging": None})
    assert table(host)["execution"]["max_io_threads"] == 4


# --- what is refused --------------------------------------------------------------------------------------------------

WRONG = {
    "nothing": ({}, "no key of cufile.json is declared"),
    "a misspelt key": ({"execution": {"max_io_thread": 8}}, "Did you mean execution.max_io_threads"),
    "a key of another section": ({"properties": {"max_io_threads": 8}}, "Did you mean execution.max_io_threads"),
    "a name of before": ({"blacklist": {"drivers": ["sd"]}}, "Did you mean denylist.drivers?"),
    "a misspelt section": ({"excution": {"max_io_threads": 8}}, "Did you mean execution.max_io_threads"),
    "a section that is none": ({"execution": 1}, "it is not a mapping"),
    "a number in quotes": ({"execution": {"max_io_threads": "8"}}, "it is not a whole number"),
    "a boolean as a number": ({"execution": {"max_io_threads": True}}, "it is not a whole number"),
    "a fraction": ({"execution": {"max_io_threads": 4.5}}, "it is not a whole number"),
    "a word as a boolean": ({"properties": {"allow_compat_mode": "yes"}}, "it is not true or false"),
    "a string as a list": ({"denylist": {"drivers": "sd"}}, "it is not a list of strings"),
    "more than any release takes": ({"execution": {"max_io_threads": 129}}, "cuFile 1.20 takes 0 to 128"),
    "no multiple": ({"properties": {"max_direct_io_size_kb": 100}}, "cuFile takes multiples of 64"),
    "an unknown word": ({"logging": {"level": "VERBOSE"}}, "'VERBOSE' is not one of ERROR, WARN"),
    "no address": ({"properties": {"rdma_dev_addr_list": ["mlx5_0"]}}, "'mlx5_0' is not the address of a network card"),
    "no address of a mount": (
        {"fs": {"lustre": {"mount_table": {"/": {"rdma_dev_addr_list": ["ib0"]}}}}},
        "'ib0' is not the address",
    ),
    "a buffer larger than an input": (
        {"properties": {"per_buffer_cache_size_kb": 2048, "max_direct_io_size_kb": 1024}},
        "properties.per_buffer_cache_size_kb is 2048, and properties.max_direct_io_size_kb is 1024",
    ),
    "lists of different length": (
        {"properties": {"posix_pool_slab_size_kb": [4, 1024], "posix_pool_slab_count": [1]}},
        "it has 1 entries, and properties.posix_pool_slab_size_kb has 2",
    ),
    # Of this machine.
    "more than its release takes": ({"execution": {"max_io_threads": 64}}, f"cuFile 1.13 takes 0 to 32, and {LIBRARY}"),
    "a mount that is not there": ({"denylist": {"mounts": ["/scratch"]}}, "this machine has no path /scratch"),
    "a folder that is not there": (
        {"logging": {"dir": "/var/log/cufile"}},
        "this machine has no folder /var/log/cufile",
    ),
    "a device that is not there": ({"denylist": {"devices": ["/dev/nvme9n1"]}}, "this machine has no device"),
    "against what the file has": ({"properties": {"per_buffer_cache_size_kb": 2048}}, "the first must not be larger"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_would_break_every_program_is_refused_before_anything_changes(tmp_path: Path, name: str) -> None:
    declared, cause = WRONG[name]
    host = machine(tmp_path)
    with pytest.raises(DeclarationError) as refused:
        run(host, declared)
    assert cause in str(refused.value)
    assert host.files.read(PATH) == SHIPPED


BROKEN = {
    '{"a": 1,}': "line 1, column",
    '# a comment\n{"a": 1}\n': "line 1, column 1",
    '{\n "a" /* b */: 1}': "line 2, column 6: a comment stands between a key and its colon",
    '{"a": [ /* b */ ]}': "a comment stands in a list without entries",
    '{"a": 1} /* b': "the comment does not end",
    "\ufeff{}": "byte-order mark",
    "\n": "it is empty",
    '{"a": 1, "a": 2}': 'the key "a" occurs twice',
    '{"execution": {"max_io_threads": 1}': "line 1, column",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_file_that_cufile_cannot_parse_is_left_to_whoever_broke_it(tmp_path: Path, text: str) -> None:
    host = machine(tmp_path, {PATH: text})
    with pytest.raises(CannotLook) as refused:
        run(host, {"execution": {"max_io_threads": 8}})
    assert BROKEN[text] in str(refused.value)
    assert host.files.read(PATH) == text
    # Where nothing is ours nothing is asked of it.
    assert run(host, state="absent").status == "in_sync"


def test_values_are_compared_by_what_they_mean_to_cufile(tmp_path: Path) -> None:
    same = '{"execution": {"max_io_threads": 8.0}, "properties": {"rdma_dc_key": "0xFFEE", "use_poll_mode": 1}}'
    host = machine(tmp_path, {PATH: same})
    declared = {"execution": {"max_io_threads": 8}, "properties": {"rdma_dc_key": "ffee", "use_poll_mode": True}}
    changed = {change.setting for change in run(host, declared).changes if change.object == PATH}
    # Of these cuFile refuses the last, and fails in every program.
    assert changed == {"properties.use_poll_mode"}
    assert run(host, declared).status == "in_sync"
    assert host.files.read(PATH).startswith(same.partition('"use_poll_mode"')[0])


def test_a_section_of_others_that_is_none_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path, {PATH: '{"logging": [], "execution": {"max_io_threads": 400}}'})
    outcome = run(host, {"properties": {"allow_compat_mode": True}})
    reasons = {entry.setting: entry.reason for entry in outcome.remaining.unmanaged}
    assert "not a mapping" in reasons["logging"]
    assert "cuFile 1.13 takes 0 to 32" in reasons["execution.max_io_threads"]
    with pytest.raises(DeclarationError, match="others set it to 400"):
        run(
            machine(tmp_path / "strict", {PATH: '{"execution": {"max_io_threads": 400}}'}),
            {"logging": {"level": "INFO"}},
            strict=True,
        )


# --- what this machine can do -----------------------------------------------------------------------------------------


def test_without_the_compatible_mode_there_must_be_a_way_to_the_gpu(tmp_path: Path) -> None:
    declared = {"properties": {"allow_compat_mode": False}}
    without = dict.fromkeys(NVIDIA_FS)
    with pytest.raises(DeclarationError) as refused:
        run(machine(tmp_path / "none", without), declared)
    assert "nvidia_fs is not loaded" in str(refused.value)
    assert "the kernel 6.1.0-31-amd64 is older than 6.2" in str(refused.value)
    assert "was built without CONFIG_PCI_P2PDMA" in str(refused.value)
    with pytest.raises(DeclarationError, match="P2PDMA is not declared"):
        run(machine(tmp_path / "unused", {**without, **P2PDMA}), declared)
    both = {"properties": {"allow_compat_mode": False, "use_pci_p2pdma": True}}
    assert run(machine(tmp_path / "p2pdma", {**without, **P2PDMA}), both).remaining.unmanaged == ()


LACKS = {
    "multipath": ("/sys/module/nvme_core/parameters/multipath", "Y\n", "nvme_core has multipath on"),
    "driver": ("/proc/driver/nvidia/version", None, "the NVIDIA driver is not loaded"),
    "closed": (
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu\n",
        "does not have the open kernel modules",
    ),
    "old": (
        "/proc/driver/nvidia/version",
        P2PDMA["/proc/driver/nvidia/version"].replace("570.86", "550.54"),
        "is of release 550, and 570 is needed",
    ),
    "bar": ("/proc/driver/nvidia/params", 'RegistryDwords: ""\n', "RMForceStaticBar1=1"),
    "config": ("/boot/config-6.8.0-52-generic", None, "nothing tells whether it has CONFIG_PCI_P2PDMA"),
}


@pytest.mark.parametrize("name", LACKS)
def test_what_p2pdma_lacks_is_named(tmp_path: Path, name: str) -> None:
    path, text, reason = LACKS[name]
    host = machine(tmp_path, {**P2PDMA, path: text})
    [entry] = run(host, {"properties": {"use_pci_p2pdma": True}}).remaining.unmanaged
    assert (entry.setting, entry.reason.count(";")) == ("properties.use_pci_p2pdma", 0)
    assert reason in entry.reason


def test_a_key_that_the_library_does_not_read_is_set_and_named(tmp_path: Path) -> None:
    host = machine(tmp_path)
    [entry] = run(host, {"block": {"nvme": {"use_pci_p2pdma": False}}}, strict=True).remaining.unmanaged
    assert entry.reason == "cuFile has it from 1.16 on, and this machine has 1.13"
    assert table(host)["block"] == {"nvme": {"use_pci_p2pdma": False}}


def test_a_key_that_only_a_newer_release_could_have_is_set_and_named(tmp_path: Path) -> None:
    host = machine(tmp_path)
    declared = {"properties": {"warp_drive": True}, "telemetry": {"endpoint": "10.0.0.1"}}
    entries = run(host, declared).remaining.unmanaged
    assert [entry.setting for entry in entries] == ["properties.warp_drive", "telemetry.endpoint"]
    assert table(host)["telemetry"] == {"endpoint": "10.0.0.1"}
    with pytest.raises(DeclarationError, match="no release of cuFile up to"):
        run(host, declared, strict=True)


def test_without_a_library_what_some_releases_refuse_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path, {LIBRARY: None})
    [entry] = run(host, {"execution": {"max_io_threads": 64}}).remaining.unmanaged
    assert "cuFile 1.11 takes 0 to 32" in entry.reason
    assert table(host)["execution"]["max_io_threads"] == 64


# --- who has other values ---------------------------------------------------------------------------------------------


def test_variables_that_count_more_than_the_file_are_named(tmp_path: Path) -> None:
    files = {
        "/etc/environment": "A=1\nCUFILE_ENV_PATH_JSON=/opt/site/cufile.json\nCUFILE_STATS_LEVEL=3\n",
        # The same as is declared.
        "/etc/profile.d/again.sh": "export CUFILE_FORCE_COMPAT_MODE=FALSE CUFILE_MAX_DEVICE_CACHE_SIZE=1024\n",
        "/etc/profile.d/gds.sh": "# site\nexport CUFILE_FORCE_COMPAT_MODE=true\n",
        "/etc/systemd/system.conf.d/10-gds.conf": '[Manager]\nDefaultEnvironment="CUFILE_LOGGING_LEVEL=DEBUG" B=2\n',
    }
    host = machine(tmp_path, files)
    declared = {
        "properties": {"force_compat_mode": False, "max_device_cache_size_kb": 1024},
        "logging": {"level": "ERROR"},
    }
    found = [(one.path, one.line, one.value, one.wins) for one in run(host, declared).remaining.conflicts]
    assert found == [
        ("/etc/environment", 2, "/opt/site/cufile.json", "them"),
        ("/etc/profile.d/gds.sh", 2, "true", "them"),
        ("/etc/systemd/system.conf.d/10-gds.conf", None, "DEBUG", "them"),
    ]


def test_programs_that_read_the_file_before_the_change_are_named(tmp_path: Path) -> None:
    stat = "{} (train (a)) S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 9 0 {} 1 1 18446744073709551615 0\n"
    maps = "7f0000000000-7f0000100000 r-xp 00000000 103:02 42 /usr/lib/libcufile.so.1.13.1\n"
    files = {"/proc/stat": "cpu 1\nbtime 1000000000\n"}
    for pid, start, mapped in ((71, 100, maps), (72, 100, ""), (73, 99_999_999_999, maps)):
        files[f"/proc/{pid}/stat"] = stat.format(pid, start)
        files[f"/proc/{pid}/comm"] = "train\n"
        files[f"/proc/{pid}/maps"] = mapped
        files[f"/proc/{pid}/environ"] = "A=1\0CUFILE_ENV_PATH_JSON=/opt/cufile.json\0"
    host = machine(tmp_path, files)
    outcome = run(host, {"execution": {"max_io_threads": 8}})
    assert outcome.effective["programs"] == [{"pid": 71, "name": "train", "file": "/opt/cufile.json"}]
    assert [entry.object for entry in outcome.remaining.unmanaged] == ["train (71)"]
    # Since this boot nobody can have read an older one.
    os.utime(tmp_path / PATH[1:], (900_000_000, 900_000_000))
    assert run(host, {"execution": {"max_io_threads": 8}}).effective["programs"] == []


# --- the library itself -----------------------------------------------------------------------------------------------

# What the library takes, and means nothing: it has another value then, falls back, or ignores the entry.
MEANINGLESS = {
    "denylist.fsids",
    "logging.level",
    "profile.cufile_stats",
    "properties.io_priority",
    "properties.rdma_load_balancing_policy",
    schema.GPU_SIZES,
    schema.GPU_COUNTS,
}


@pytest.mark.once
def test_the_table_has_every_limit_of_every_release_of_the_library() -> None:
    refused_by_library = 0
    for name, rows in RECORDED["taken"].items():
        for value, taken in rows:
            for release in RECORDED["releases"]:
                cause = schema.refusal(name, value, release)[0]
                alone = {name: value} if schema.knows(name, release) and not cause else {}
                cause = cause or schema.contradiction(alone, release)[1]
                absent = [path for path, _kind in schema.named(name, value) if path != "/"]
                if release not in taken:
                    refused_by_library += 1
                    assert cause or (absent and schema.knows(name, release)), (name, value, release)
                elif cause and name not in MEANINGLESS and value not in (True, ["x"]):
                    raise AssertionError((name, value, release, cause))
    assert set(RECORDED["taken"]) == set(schema.KEYS)
    assert refused_by_library > 1000


# --- what is written is read back, and goes again ---------------------------------------------------------------------

ODD_KEYS = st.sampled_from(["a", "b", "*/", "/*", 'q"', "\\", "ä", "execution", "site", "note"])
ODD_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "*/", "\\", "\u2028", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(ODD_KEYS, inner, min_size=1, max_size=2),
    max_leaves=4,
)


@pytest.mark.once
@settings(max_examples=40)
@given(declared=st.dictionaries(ODD_KEYS, ODD_VALUES, min_size=1, max_size=3))
def test_what_is_declared_is_read_back_and_absent_restores_the_file(declared: Mapping[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as root:
        host = machine(Path(root))
        try:
            run(host, declared)
        except DeclarationError:
            assert host.files.read(PATH) == SHIPPED
            return
        values = schema.flat(table(host))
        assert {name: values.get(name) for name in parse({"cufile": declared}).values} == parse(
            {"cufile": declared}
        ).values
        assert run(host, declared).changes == ()
        run(host, state="absent")
        assert host.files.read(PATH) == SHIPPED


@pytest.mark.parametrize(
    ("declared", "cause"),
    [
        ({"site": {"x": float("inf")}}, "JSON has no infinity and no NaN"),
        ({"site": {"x": [1, {"y": float("nan")}]}}, "JSON has no infinity and no NaN"),
        ({"fs": {"nfs": {"mount_table": {"/a": {"weight": -float("inf")}}}}}, "JSON has no infinity and no NaN"),
        ({"properties": {"io_batchsize": float("inf")}}, "JSON has no infinity and no NaN"),
        ({"site": {"x": 2**64}}, "it does not fit in 64 bits, and cuFile would abort every program that uses it"),
        (
            {"site": {"x": -(2**63) - 1}},
            "it does not fit in 64 bits, and cuFile would abort every program that uses it",
        ),
        ({"site": {"x": 0x10**5000}}, "it does not fit in 64 bits, and cuFile would abort every program that uses it"),
        ({"site": {"x": datetime.date(2026, 1, 2)}}, "JSON cannot hold a value of this type"),
        ({"site": {"x": "a\ud800"}}, "it has a character that UTF-8 cannot hold"),
        ({"site": {"x": {1, 2}}}, "JSON cannot hold a value of this type"),
        ({"": 1}, "a part of its name is empty"),
        ({"site": {"": {"x": 1}}}, "a part of its name is empty"),
        ({"site.": 1}, "a part of its name is empty"),
        ({"site": {"a\ud800": 1}}, "it has a character that UTF-8 cannot hold"),
    ],
)
def test_what_the_file_could_not_hold_is_refused(tmp_path: Path, declared: Any, cause: str) -> None:
    host = machine(tmp_path)
    with pytest.raises(DeclarationError) as error:
        run(host, declared)
    assert error.value.cause == cause
    assert host.files.read(PATH) == SHIPPED


def test_a_key_that_is_written_with_a_dot_is_another_one(tmp_path: Path) -> None:
    host = machine(tmp_path, {PATH: '{"execution.max_io_threads": 8, "": {"": 1}}'})
    run(host, {"execution": {"max_io_threads": 8}})
    assert table(host)["execution"] == {"max_io_threads": 8}
    run(host, state="absent")
    assert host.files.read(PATH) == '{"execution.max_io_threads": 8, "": {"": 1}}'


def test_a_number_that_is_too_large_in_the_file_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path, {PATH: '{"properties": {"io_batchsize": 1e400}}'})
    (unmanaged,) = run(host, {"execution": {"max_io_threads": 8}}).remaining.unmanaged
    assert (unmanaged.setting, "it is not a whole number" in unmanaged.reason) == ("properties.io_batchsize", True)
