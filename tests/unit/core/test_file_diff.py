# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a plan would change foreign files: the hunks, without anything that is secret in them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import RemoveFile, ReplaceFile, Step
from ansible_collections.gpufleet.node.plugins.module_utils._core.file_diff import file_diffs, masked
from ansible_collections.gpufleet.node.plugins.module_utils._core.tokens import MASKED
from ansible_collections.gpufleet.node.tests.unit.support import build
from hypothesis import given
from hypothesis import strategies as st

SECRET = "S3cr3tS3cr3t"
DAEMON = "/etc/docker/daemon.json"
# Files of other software that hold secrets, in the forms in which their programs take them.
PLANTED = {
    "docker": json.dumps({"auths": {"r.example": {"auth": SECRET}}, "runtimes": {}}, indent=2),
    "one line": json.dumps({"auths": {"r.example": {"auth": SECRET}}, "runtimes": {}}),
    "proxy": f'{{"proxies": {{"http-proxy": "http://user:{SECRET}@proxy:3128"}}}}',
    "proxy with an at sign": f"proxy=http://user:a@{SECRET}@proxy:3128",
    "list": json.dumps({"tokens": [SECRET, [SECRET]], "x": 1}, indent=4),
    "toml": f"[plugins.registry.auth]\nusername = 'a'\npassword = '{SECRET}'\n",
    "toml text": f'token = """\n{SECRET}\n{SECRET}"""\nx = 1\n',
    "yaml block": f"x: 1\nclientSecret: |\n  {SECRET}\n\n  {SECRET}\ny: 2\n".replace("\n\n", "\n"),
    "yaml list": f"bearerTokens:\n- {SECRET}\n- {SECRET}\nx: 1\n",
    "yaml mapping": f"credentials:\n  user: {SECRET}\n  rest:\n    - {SECRET}\nx: 1\n",
    "fstab": f"//server/share /mnt cifs username=a,password={SECRET},uid=0 0 0",
    "ceph": f"[client.admin]\n\tkey = {SECRET}==\n",
    "slurm": f"StoragePass={SECRET}\nAccountingStoragePass={SECRET}\n",
    "shell": f"export AWS_SECRET_ACCESS_KEY='{SECRET}\n{SECRET}'\nx=1\n",
    "continued": f"--token={SECRET} \\\n{SECRET}\nx\n",
    "header": f"Authorization: Bearer {SECRET}",
    "netrc": f"machine h login u password {SECRET}",
    "address": f'url = "https://h/x?sig={SECRET}"',
    "nvme": f"nvme connect --dhchap-secret={SECRET} --dhchap-ctrl-secret {SECRET}",
    "pem": f"a\n-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n{SECRET}\n-----END RSA PRIVATE KEY-----\nb\n",
    "commented": f"# password = {SECRET}",
    "upper case": f"API_KEY={SECRET}",
    "long": "x" * 5000 + SECRET,
    "names that end in pass": f"DB_PASS={SECRET}\nMYSQL_PWD={SECRET}\n//s/x /m cifs user=u,pass={SECRET},uid=0\n",
    "names that end in key": f"OPENAI_KEY={SECRET}\nwep-key0={SECRET}\nclient-key-data: {SECRET}\nAccountKey={SECRET}",
    "other names": f"psk={SECRET}\nAWS_CREDS={SECRET}\nX_JWT={SECRET}\nWEBHOOK_URL=https://h/{SECRET}\nX_PAT={SECRET}",
    "xml": f"<password>{SECRET}</password>",
    "subscript": f"c['password'] = '{SECRET}'\nc['db']['password'] => '{SECRET}'\nset_password('{SECRET}')",
    "appended": f"PASSWORD+={SECRET}\nPASSWORD?={SECRET}\n${{PASSWORD:-{SECRET}}}",
    "escaped json": json.dumps({"config": json.dumps({"password": SECRET})}),
    "arguments": json.dumps(["--token", SECRET]),
    "arguments over lines": json.dumps(["--token", SECRET], indent=1),
    "value on the next line": f'{{\n"password":\n"{SECRET}"\n}}',
    "sign on the next line": f'{{\n"password"\n:\n"{SECRET}"\n}}',
    "yaml question": f"? password\n: {SECRET}\n",
    "netrc over lines": f"machine x\nlogin y\npassword\n{SECRET}\n",
    "environment of a container": json.dumps([{"name": "PASSWORD", "value": SECRET}], indent=1),
    "yaml block with a blank line": f"clientSecret: |\n  {SECRET}\n\n  {SECRET}\ny: 2\n",
    "yaml list with a blank line": f"tokens:\n- a\n\n- {SECRET}\ny: 2",
    "ini with a comment": f"password = a\n; x\n\t{SECRET}\n\n\t{SECRET}\n",
    "section": f"[secrets]\nfoo = {SECRET}\n\nbar = {SECRET}\n[x]\n",
    "tables": f'[[plugins.registry.auths]]\nname="x"\nvalue="{SECRET}"\n',
    "bracket in a text": f'token = ["a]",\n"{SECRET}"\n]\n',
    "brackets behind a text with a name": f'["a/key/x", {{"token": [\n"{SECRET}"\n]\n',
    "escaped quote": f'PASSWORD="abc\\"def\n{SECRET}"\n',
    "doubled quote": f"password: 'it''s\n{SECRET}'\n",
    "one value ends and another begins": f'"tokens": ["a"\n], "token": [\n"{SECRET}"\n]\n',
    "continued with a carriage return": f"--token=a \\\r\n{SECRET}\r\nx\r\n",
    "proxy with a slash": f"http_proxy=http://user:p/{SECRET}@proxy:3128\nx=http://user:p'{SECRET}@proxy",
    "proxy without a scheme": f"https_proxy=user:{SECRET}@proxy:3128\nnetroot=iscsi:user:{SECRET}@h::::iqn.x",
    "basic": f"X-Header: Basic {SECRET}",
    "nvme, short": f"-t tcp -S DHHC-1:00:{SECRET}:\n-t tcp --tls_k NVMeTLSkey-1:01:{SECRET}:",
    "pem behind another": f"-----BEGIN X-----\n-----END X----------BEGIN Y-----\n{SECRET}\n-----END Y-----\n",
    "pem of ssh.com": f"---- BEGIN SSH2 X ----\n{SECRET}\n---- END SSH2 X ----",
    "pem in base64": f"data: LS0tLS1CRUdJTiBSU0Eg{SECRET}",
}
# A file of a megabyte each, at which a careless pattern takes minutes.
SLOW = {
    "names": ("auth" * 499 + "!\n") * 500,
    "schemes": ("a://" * 499 + "@\n") * 500,
    "quotes": ("auth=" + '"\\' * 990 + "\n") * 500,
    "open texts": 'password="\n' * 100000,
    "open brackets": "token=[\n" * 130000,
    "keys": "-----BEGIN \n" * 90000,
    "signs": "password\n" + ":\n" * 500000,
    "blank lines": ("token: |\n" + "\n" * 9) * 60000,
    "beginnings of tokens": ("ghp_eyJ.xoxb-" * 150 + "\n") * 500,
    "nearly random texts": ("aB-/_" * 399 + "\n") * 500,
    "digits": ("0" * 31 + "/") * 30000,
    "texts of two cases": (" " + "aB1/" * 8) * 30000,
}


@pytest.mark.parametrize("text", PLANTED.values(), ids=PLANTED.keys())
def test_no_secret_is_shown_and_the_lines_keep_their_number(text: str) -> None:
    found = masked(text)
    assert SECRET not in "\n".join(found)
    assert len(found) == len(text.split("\n"))
    assert MASKED in "\n".join(found)


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW.keys())
def test_no_text_takes_long(text: str) -> None:
    begun = time.process_time()
    masked(text)
    assert time.process_time() - begun < 3


@given(st.lists(st.sampled_from(["a = 1", "[x]", '{"y": 2}', "# z", "", "  deeper: 3", "runtimes = ["])))
def test_what_is_no_secret_is_shown_as_it_is(lines: List[str]) -> None:
    assert masked("\n".join(lines)) == ("\n".join(lines)).split("\n")


@given(st.text())
def test_any_text_has_as_many_lines_and_none_that_a_terminal_obeys(text: str) -> None:
    found = masked(text)
    assert len(found) == len(text.split("\n"))
    assert not re.search("[\x1b\u2028\u202e\udc00-\udfff]", "".join(found))


def test_a_name_in_a_text_hides_no_other_line() -> None:
    after = "[crio.network]\nplugin_dirs = []"
    assert "\n".join(masked(f'decryption_keys_path = "/etc/crio/keys/"\n{after}')).endswith(f"\n{after}")


def test_what_turns_the_direction_of_a_line_or_is_no_character_is_not_shown() -> None:
    assert masked("a\u202eb\u2028c\udcff\x1b") == ["a?b?c??"]


def differences(tmp_path: Path, files: Dict[str, str], *steps: Step, no_diff: List[str]) -> Dict[str, str]:
    host = build(tmp_path, files)
    return {one["path"]: one["diff"] for one in file_diffs(steps, host.files, no_diff)}


def test_a_foreign_file_has_hunks_around_what_changes(tmp_path: Path) -> None:
    keys = {f"key-of-{number}x": number for number in range(30)}
    before = json.dumps({**keys, "auths": {"r": {"auth": SECRET}}}, indent=1)
    after = json.dumps({**keys, "runtimes": {}, "auths": {"r": {"auth": SECRET}}}, indent=1)
    steps = (Step(ReplaceFile(DAEMON, after)), Step(ReplaceFile("/etc/udev/rules.d/99-gpufleet-x.rules", "a")))
    found = differences(tmp_path, {DAEMON: before}, *steps, no_diff=[])
    # Our own files follow from the declaration.
    assert list(found) == [DAEMON]
    lines = found[DAEMON].splitlines()
    assert lines[:2] == [f"--- {DAEMON}", f"+++ {DAEMON}"]
    assert [line for line in lines[2:] if line.startswith(("+", "-"))] == ['+ "runtimes": {},']
    assert len(lines) == 10
    assert SECRET not in found[DAEMON]


def test_a_file_that_comes_or_goes_and_one_that_is_not_to_be_shown(tmp_path: Path) -> None:
    steps = (Step(ReplaceFile("/etc/a", "1\n")), Step(RemoveFile("/etc/b")), Step(ReplaceFile("/etc/c/d", "1\n")))
    found = differences(tmp_path, {"/etc/b": "1\n", "/etc/c/d": "0\n"}, *steps, no_diff=["/etc/c/*"])
    assert "+1\n" in found["/etc/a"]
    assert "-1\n" in found["/etc/b"]
    assert found["/etc/c/d"] == ""


def test_a_file_that_stays_as_it_is_has_none_and_one_whose_secret_changes_says_so(tmp_path: Path) -> None:
    steps = (Step(ReplaceFile("/etc/a", "1\n")), Step(ReplaceFile("/etc/b", "token=2\n")))
    found = differences(tmp_path, {"/etc/a": "1\n", "/etc/b": "token=1\n"}, *steps, no_diff=[])
    assert found == {"/etc/b": f"--- /etc/b\n+++ /etc/b\n {MASKED}\n"}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    host = build(tmp_path, {"/etc/a": "0\n"})
    host.files.unreadable = ["/etc/a"]
    assert file_diffs([Step(ReplaceFile("/etc/a", "1\n"))], host.files) == [{"path": "/etc/a", "diff": ""}]
