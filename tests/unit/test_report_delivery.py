# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the files of a report go, and the action that writes them as a playbook calls it."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, GpuFleetError
from ansible_collections.gpufleet.node.plugins.plugin_utils.report.deliver import NAMES, check, deliver

ROOT = Path(__file__).resolve().parents[2]


class Store(http.server.BaseHTTPRequestHandler):
    """Takes what is put below /reports/, from whoever has the token."""

    protocol_version = "HTTP/1.0"

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        received: List[Tuple[str, Dict[str, str], bytes]] = self.server.received  # type: ignore[attr-defined]
        received.append((self.path, dict(self.headers), content))
        self.send_response(201 if self.path.startswith("/reports/") else 403, "No" if self.path == "/x" else "")
        self.end_headers()

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture
def store() -> Iterator[http.server.HTTPServer]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Store)
    server.received = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_file_is_replaced_as_a_whole_and_readable_for_all(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    path = Path(deliver(str(folder), "gpufleet.prom", "old\n", {}))
    first = path.stat()
    assert deliver(str(folder), "gpufleet.prom", "new\n", {}) == str(path)
    assert path.read_text() == "new\n"
    assert path.stat().st_ino != first.st_ino
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(folder) == ["gpufleet.prom"]


def test_text_that_is_no_text_does_not_cost_the_report(tmp_path: Path) -> None:
    path = Path(deliver(str(tmp_path), "gpufleet-report.json", "a\udcff", {}))
    assert path.read_bytes() == b"a?"


def test_what_cannot_be_written_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        GpuFleetError, match=r"Cannot write the report on .*/file/x\.json: (file exists|not a directory)"
    ):
        deliver(str(tmp_path / "file"), "x.json", "", {})
    (tmp_path / "y.json").mkdir()
    with pytest.raises(GpuFleetError, match=r"y\.json: is a directory"):
        deliver(str(tmp_path), "y.json", "", {})
    assert sorted(os.listdir(tmp_path)) == ["file", "y.json"]


def test_a_file_is_put_below_an_address_with_the_headers(store: Any) -> None:
    dest = f"http://127.0.0.1:{store.server_port}/reports/gpu/"
    assert deliver(dest, NAMES["html"], "<p>\u2260</p>", {"Authorization": "Bearer x"}) == f"{dest}gpufleet-report.html"
    ((path, headers, content),) = store.received
    assert (path, content) == ("/reports/gpu/gpufleet-report.html", "<p>\u2260</p>".encode())
    assert headers["Authorization"] == "Bearer x"
    assert headers["Content-Type"] == "text/html; charset=utf-8"


def test_a_server_that_refuses_is_named_without_its_password(store: Any) -> None:
    dest = f"http://someone:secret@127.0.0.1:{store.server_port}/elsewhere/"
    with pytest.raises(GpuFleetError) as caught:
        deliver(dest, "gpufleet.prom", "", {})
    message = str(caught.value)
    assert message.startswith(
        f"Cannot write the report on http://127.0.0.1:{store.server_port}/elsewhere/gpufleet.prom: "
        "the server did not take it: HTTP Error 403"
    )
    assert "secret" not in message + json.dumps(caught.value.failure())


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(GpuFleetError, match=r"the server did not take it: .*refused"):
        deliver("http://127.0.0.1:1/reports/", "gpufleet.prom", "", {})


@pytest.mark.parametrize(
    ("dest", "message"),
    [
        (" ", "dest is empty"),
        ("https://files.example.com/reports", "must end in /"),
        ("https://files.example.com", "must end in /"),
        ("https://files.example.com/reports/?key=1", "must end in /, and have no query"),
        ("https:///reports/", "must end in /"),
        ("s3://bucket/", "only http and https are known"),
    ],
)
def test_a_place_that_nothing_can_be_written_to_is_refused(dest: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        check(dest)


@pytest.mark.parametrize("dest", ["reports", "/srv/reports", "~/reports", "https://files.example.com/", "HTTP://h/a/"])
def test_folders_and_addresses_are_taken(dest: str) -> None:
    check(dest)


# --- the action -------------------------------------------------------------------------------------------------------

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - gpufleet.node.fleet_report: {{look: look, info: info, dest: {dest}, formats: [json, prometheus], title: T}}
      register: report
    - ansible.builtin.copy: {{dest: {result}, content: "{{{{ report }}}}"}}
      delegate_to: localhost
      run_once: true
"""


def run_play(tmp_path: Path, dest: str, *arguments: str) -> Dict[str, Any]:
    """What the action answers to a play on three hosts, none of which is contacted."""
    pytest.importorskip("ansible.plugins.action", reason="an action needs Ansible's controller, Python 3.11")
    concern = {"status": "right", "settings": [], "settings_right": 2, "needs": [], "conflicts": []}
    concern.update(unmanaged=[], unmanaged_total=0, changes=[], reboot_reasons=[])
    look = {"concerns": {"hugepages": concern}, "undeclared": []}
    hosts = {"n1": {"look": look}, "n2": {"look": look, "info": {"msg": "no"}}, "n3": {}}
    inventory = {"all": {"children": {"training": {"hosts": hosts}}}}
    (tmp_path / "hosts.yml").write_text(json.dumps(inventory))
    result = tmp_path / "result.json"
    (tmp_path / "play.yml").write_text(PLAY.format(dest=dest, result=result))
    collections = next(path for path in sys.path if (Path(path) / "ansible_collections" / "gpufleet" / "node").exists())
    environment = {"ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_LOCALHOST_WARNING": "false"}
    command = [
        sys.executable,
        "-m",
        "ansible",
        "playbook",
        "-i",
        str(tmp_path / "hosts.yml"),
        str(tmp_path / "play.yml"),
    ]
    done = subprocess.run(
        [*command, *arguments],
        env={**os.environ, **environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.exists():
        found: Dict[str, Any] = json.loads(result.read_text())
        return found
    return {"failed": True, "output": done.stdout + done.stderr}


def test_a_playbook_gets_the_files_and_the_summary(tmp_path: Path) -> None:
    found = run_play(tmp_path, str(tmp_path / "out"))
    assert found["files"] == [str(tmp_path / "out" / NAMES[name]) for name in ("json", "prometheus")]
    assert sorted(os.listdir(tmp_path / "out")) == sorted(NAMES[name] for name in ("json", "prometheus"))
    assert found["changed"] is False
    nodes = found["summary"]["nodes"]
    assert nodes == {"right": ["n1", "n2"], "pending": [], "differs": [], "unknown": [], "unreachable": ["n3"]}
    document = json.loads((tmp_path / "out" / NAMES["json"]).read_text())
    assert document["summary"] == found["summary"]
    assert [node["groups"] for node in document["nodes"]] == [["training"]] * 3
    assert [node["facts_missing"] for node in document["nodes"][:2]] == ["gpu_node_info was not asked", "no"]


def test_a_playbook_that_names_no_place_fails_with_the_reason(tmp_path: Path) -> None:
    output = run_play(tmp_path, "https://files.example.com/reports")["output"]
    assert "Cannot write the report on https://files.example.com/reports: the address must end in /" in output
