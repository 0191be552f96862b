# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the files of a report go, and what the playbooks do to have one also where nodes fail."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import json
import os
import re
import ssl
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, GpuFleetError
from ansible_collections.gpufleet.node.plugins.plugin_utils import deliver as delivery
from ansible_collections.gpufleet.node.plugins.plugin_utils.destination import check
from ansible_collections.gpufleet.node.tests.nodes import nodetree, recorded_bed
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import (
    ansible_playbook,
    failed_hosts,
    said_by_ansible,
    statistics,
)

ROOT = Path(__file__).resolve().parents[3]
GOAL = "write the report"
JSON_FILE, HTML_FILE, METRICS_FILE = "gpufleet-report.json", "gpufleet-report.html", "gpufleet.prom"


def deliver(dest: str, name: str, text: str, headers: Optional[Dict[str, str]] = None, **options: int) -> str:
    return delivery.deliver(dest, name, text, headers or {}, goal=GOAL, **options)


class Store(http.server.BaseHTTPRequestHandler):
    """Takes what is put below /reports/. Below a folder whose name is a number, that is what it answers."""

    protocol_version = "HTTP/1.0"

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        received: List[Tuple[str, Dict[str, str], bytes]] = self.server.received  # type: ignore[attr-defined]
        received.append((self.path, dict(self.headers), content))
        refused = re.match(r"/(\d+)/", self.path)
        self.send_response(int(refused.group(1)) if refused else 201)
        self.end_headers()

    def log_message(self, *_arguments: Any) -> None:
        pass


@contextlib.contextmanager
def serving(tls: Optional[ssl.SSLContext] = None) -> Iterator[Any]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Store)
    server.received = []  # type: ignore[attr-defined]
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def store() -> Iterator[Any]:
    with serving() as server:
        yield server


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """The certificate of localhost with its key, signed by itself."""
    x509 = pytest.importorskip("cryptography.x509", reason="certificates are made by what the controller has")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - datetime.timedelta(1))
    builder = builder.not_valid_after(now + datetime.timedelta(1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    signed = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    path = tmp_path / "certificate.pem"
    path.write_bytes(private + signed)
    return path


def test_a_file_is_replaced_as_a_whole_and_readable_for_all(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    path = Path(deliver(str(folder), "gpufleet.prom", "old\n"))
    first = path.stat()
    assert deliver(str(folder), "gpufleet.prom", "new\n") == str(path)
    assert path.read_text() == "new\n"
    assert path.stat().st_ino != first.st_ino
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(folder) == ["gpufleet.prom"]


def test_text_that_is_no_text_does_not_cost_the_report(tmp_path: Path) -> None:
    path = Path(deliver(str(tmp_path), "gpufleet-report.json", "a\udcff"))
    assert path.read_bytes() == b"a?"


def test_what_cannot_be_written_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        GpuFleetError, match=r"Cannot write the report to .*/file/x\.json: (file exists|not a directory)"
    ):
        deliver(str(tmp_path / "file"), "x.json", "")
    (tmp_path / "y.json").mkdir()
    with pytest.raises(GpuFleetError, match=r"y\.json: is a directory"):
        deliver(str(tmp_path), "y.json", "")
    assert sorted(os.listdir(tmp_path)) == ["file", "y.json"]


def test_a_file_is_put_below_an_address_with_the_headers(store: Any) -> None:
    dest = f"http://127.0.0.1:{store.server_port}/reports/gpu/"
    assert deliver(dest, HTML_FILE, "<p>\u2260</p>", {"Authorization": "Bearer x"}) == f"{dest}gpufleet-report.html"
    ((path, headers, content),) = store.received
    assert (path, content) == ("/reports/gpu/gpufleet-report.html", "<p>\u2260</p>".encode())
    assert headers["Authorization"] == "Bearer x"
    assert headers["Content-Type"] == "text/html; charset=utf-8"


def message_of(dest: str, headers: Optional[Dict[str, str]] = None) -> str:
    """What is said of a place that does not take a file."""
    with pytest.raises(GpuFleetError) as caught:
        deliver(dest, METRICS_FILE, "", headers)
    return f"{caught.value} {json.dumps(caught.value.failure())}"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (403, "the server returned 403 Forbidden. Check that the credentials in the headers may write there."),
        (405, "the server returned 405 Method Not Allowed. The address must be a folder that takes PUT."),
        (500, "the server returned 500 Internal Server Error. See its log."),
    ],
)
def test_a_server_that_refuses_is_named_without_its_password(store: Any, code: int, message: str) -> None:
    said = message_of(
        f"http://someone:secret@127.0.0.1:{store.server_port}/{code}/", {"Authorization": "Bearer secret"}
    )
    place = f"http://127.0.0.1:{store.server_port}/{code}/gpufleet.prom"
    assert said.startswith(f"Cannot write the report to {place}: {message}")
    assert "secret" not in said


@pytest.mark.parametrize("value", ["Bearer secret\n", "Bearer secret\r\nX: y", "Bearer secret \u2260", "secret\0"])
def test_a_header_that_cannot_be_sent_is_named_without_its_value(store: Any, value: str) -> None:
    said = message_of(f"http://127.0.0.1:{store.server_port}/reports/", {"Authorization": value})
    assert "the header Authorization has a line break, or another character that is not allowed" in said
    assert "secret" not in said
    assert store.received == []


def test_a_server_that_is_not_there_is_named() -> None:
    assert "the server did not respond: Connection refused" in message_of("http://127.0.0.1:1/reports/")


def test_a_server_is_trusted_only_with_a_certificate_that_the_controller_knows(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serving(context) as server:
        dest = f"https://localhost:{server.server_port}/reports/"
        assert "the certificate of the server is not trusted: self-signed certificate" in message_of(dest)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        deliver(dest, METRICS_FILE, "text")
        assert [content for _path, _headers, content in server.received] == [b"text"]


def test_a_server_without_tls_is_told_apart(store: Any) -> None:
    said = message_of(f"https://127.0.0.1:{store.server_port}/reports/")
    assert "the TLS handshake failed" in said
    assert "The address may be an http one, or have the wrong port." in said


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
        check(dest, goal=GOAL)


@pytest.mark.parametrize("dest", ["reports", "/srv/reports", "~/reports", "https://files.example.com/", "HTTP://h/a/"])
def test_folders_and_addresses_are_taken(dest: str) -> None:
    check(dest, goal=GOAL)


# --- what playbooks call ----------------------------------------------------------------------------------------------

# One run for all of them: to start Ansible costs more than what any of them does.
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.ping:
      when: inventory_hostname == 'n4'
    - gpufleet.node.fleet_report: {look: look, info: info, dest: reports, formats: [json, prometheus], title: T}
      register: report
    - gpufleet.node.fleet_report: {look: look, dest: 'https://files.example.com/reports'}
      register: nowhere
      failed_when: false
    - gpufleet.node.fleet_facts: {info: info, dest: facts}
      check_mode: true
      register: facts
    - gpufleet.node.validate_run: {playbook: collect}
      register: variables
      failed_when: false
    - ansible.builtin.set_stats:
        data:
          report: '{{ report }}'
          nowhere: '{{ nowhere.msg }}'
          facts: '{{ facts }}'
          variables: '{{ variables.msg }}'
      run_once: true
    - ansible.builtin.import_tasks: TASKS/report.yml
    - ansible.builtin.fail: {msg: '{{ gpufleet_report.msg }}'}
"""


def ssh_that_fails(folder: Path) -> str:
    path = folder / "ssh"
    path.write_text("#!/bin/sh\nexit 255\n")
    path.chmod(0o755)
    return str(path)


@dataclass(frozen=True)
class Run:
    """``kept`` are the statistics of ``PLAY`` on four hosts, of which only the last is contacted, in vain."""

    folder: Path
    output: str
    kept: Dict[str, Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    concern = {"status": "in_sync", "settings": [], "settings_in_sync": 2, "needs": [], "conflicts": []}
    concern.update(unmanaged=[], unmanaged_total=0, changes=[], reboot_reasons=[])
    look = {"concerns": {"hugepages": concern}, "orphaned": []}
    away = {"unreachable": True, "msg": "Connection timed out"}
    hosts = {"n1": {"look": look}, "n2": {"look": look, "info": {"msg": "no"}}, "n3": {"info": {"node": {"gpus": []}}}}
    hosts["n4"] = {"look": look, "ansible_connection": "ssh", "ansible_ssh_executable": ssh_that_fails(folder)}
    inventory = {"children": {"training": {"hosts": hosts, "vars": {"gpufleet_look": away}}}}
    (folder / "play.yml").write_text(PLAY.replace("TASKS", str(ROOT / "playbooks" / "tasks")))
    with serving() as server:
        dest = f"gpufleet_report_dest=http://127.0.0.1:{server.server_port}/500/"
        output = ansible_playbook(folder, inventory, str(folder / "play.yml"), "-e", dest)
    return Run(folder, output, statistics(output))


def test_a_playbook_gets_the_files_and_the_summary(run: Run) -> None:
    found = run.kept["report"]
    assert found["files"] == [str(run.folder / "reports" / name) for name in (JSON_FILE, METRICS_FILE)]
    assert sorted(os.listdir(run.folder / "reports")) == sorted((JSON_FILE, METRICS_FILE))
    assert found["changed"] is False
    nodes = found["summary"]["nodes"]
    none: Dict[str, List[str]] = {
        status: [] for status in ("pending", "not_installed", "drifted", "unknown", "invalid")
    }
    assert nodes == {"in_sync": ["n1", "n2"], **none, "unreachable": ["n3", "n4"]}
    document = json.loads((run.folder / "reports" / JSON_FILE).read_text())
    assert document["summary"] == found["summary"]
    assert [node["groups"] for node in document["nodes"]] == [["training"]] * 4
    assert [node["facts_missing"] for node in document["nodes"][:2]] == ["gpu_node_info was not asked", "no"]


def test_a_node_that_is_out_of_reach_since_it_was_looked_at_is_not_called_what_it_was_then(run: Run) -> None:
    document = json.loads((run.folder / "reports" / JSON_FILE).read_text())
    assert [node["message"] for node in document["nodes"]] == [
        None,
        None,
        "it did not respond",
        "it stopped responding after the last look at it",
    ]


def test_a_playbook_that_names_no_place_fails_with_the_reason(run: Run) -> None:
    said = "Cannot write the report to https://files.example.com/reports: the address must end in /"
    assert run.kept["nowhere"].startswith(said)


def test_check_mode_says_what_would_be_collected_and_writes_nothing(run: Run) -> None:
    said = f"Would write the facts of 1 of 4 nodes to {run.folder}/facts/gpufleet-facts.json."
    assert f"\n{said}\n" in run.output
    assert run.kept["facts"]["missing"] == {**dict.fromkeys(("n1", "n4"), "gpu_node_info was not asked"), "n2": "no"}
    assert not (run.folder / "facts").exists()


def test_a_variable_that_a_playbook_cannot_do_without_is_named(run: Run) -> None:
    assert run.kept["variables"] == (
        "The variable collect_dest is required: it must be a folder on the controller, or an http or https "
        "address that ends in / and has no query."
    )


def test_a_run_whose_report_nobody_takes_fails_with_the_reason_and_keeps_the_summary(run: Run) -> None:
    assert re.search(
        r"Cannot write the report to http://\S+/500/gpufleet-report.json: the server returned 500", run.output
    )
    assert run.kept["gpufleet_report"]["nodes"]["unreachable"] == ["n1", "n2", "n3", "n4"]
    assert re.search(r"n1 +: .* failed=1", run.output)


# --- the playbooks ----------------------------------------------------------------------------------------------------


def test_an_audit_reports_a_fleet_of_which_no_node_can_be_looked_at_and_keeps_what_it_found(
    tmp_path: Path, store: Any
) -> None:
    away = {"ansible_connection": "ssh", "ansible_ssh_executable": ssh_that_fails(tmp_path)}
    broken = {"ansible_connection": "local", "ansible_python_interpreter": "/nonexistent/python3"}
    dest = f"http://127.0.0.1:{store.server_port}/reports/"
    output = ansible_playbook(
        tmp_path,
        {"hosts": {"away": away, "broken": broken}},
        "gpufleet.node.audit",
        *("-e", json.dumps({"gpufleet_report_dest": dest, "gpufleet_report_title": "What is left"})),
    )
    received = {path.rpartition("/")[2]: content for path, _headers, content in store.received}
    assert sorted(received) == [HTML_FILE, JSON_FILE, "gpufleet-report.junit.xml", METRICS_FILE]
    document = json.loads(received[JSON_FILE])
    assert document["summary"]["title"] == "What is left"
    assert [(node["name"], node["status"]) for node in document["nodes"]] == [
        ("away", "unreachable"),
        ("broken", "unreachable"),
    ]
    assert "/nonexistent/python3" in document["nodes"][1]["message"]
    assert statistics(output)["gpufleet_report"]["nodes"]["unreachable"] == ["away", "broken"]
    assert re.search(r"broken +: .* failed=1", output)
    assert "away did not respond: " in said_by_ansible(output)["away"]
    assert failed_hosts(output) == {"away": 1, "broken": 1}
    assert output.endswith("ends with 2")


def test_the_facts_of_a_fleet_are_one_document_in_which_a_node_without_has_the_reason(tmp_path: Path) -> None:
    root = nodetree.expand(nodetree.load("vm-without-numa"), tmp_path / "root")
    python = recorded_bed.interpreter(tmp_path / "bed", root=root)
    hosts = {name: {"ansible_connection": "local"} for name in ("there", "broken")}
    hosts["there"]["ansible_python_interpreter"] = str(python)
    hosts["broken"]["ansible_python_interpreter"] = "/nonexistent/python3"
    inventory = {"children": {"inference": {"hosts": hosts}}}
    folder, wanted = tmp_path / "facts", {"collect_parts": "memory, block", "collect_dest": str(tmp_path / "facts")}
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.collect", "-e", json.dumps(wanted))
    assert f"Wrote the facts of 1 of 2 nodes to {folder}/gpufleet-facts.json." in output
    assert failed_hosts(output) == {"broken": 1}
    assert output.endswith("ends with 2")
    assert stat.S_IMODE((folder / "gpufleet-facts.json").stat().st_mode) == 0o640
    document = json.loads((folder / "gpufleet-facts.json").read_text())
    there, broken = document["nodes"]
    assert (there["name"], there["groups"], there["facts_missing"]) == ("there", ["inference"], None)
    expected = json.loads((nodetree.FOLDER / "expected" / "vm-without-numa.json").read_text())
    assert there["facts"]["block"] == expected["block"]
    assert sorted(there["facts"]) == ["block", "memory", "system", "unavailable"]
    assert (broken["facts"], document["missing"]) == (None, ["broken"])
    assert "/nonexistent/python3" in broken["facts_missing"]
