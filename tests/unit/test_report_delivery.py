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
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, GpuFleetError
from ansible_collections.gpufleet.node.plugins.plugin_utils import deliver as delivery

ROOT = Path(__file__).resolve().parents[2]
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
        GpuFleetError, match=r"Cannot write the report on .*/file/x\.json: (file exists|not a directory)"
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
        (403, "the server answered 403 Forbidden. The headers must be those of somebody who may write there."),
        (405, "the server answered 405 Method Not Allowed. The address must be a folder that takes PUT."),
        (500, "the server answered 500 Internal Server Error. Its log says what is wrong with it."),
    ],
)
def test_a_server_that_refuses_is_named_without_its_password(store: Any, code: int, message: str) -> None:
    said = message_of(
        f"http://someone:secret@127.0.0.1:{store.server_port}/{code}/", {"Authorization": "Bearer secret"}
    )
    place = f"http://127.0.0.1:{store.server_port}/{code}/gpufleet.prom"
    assert said.startswith(f"Cannot write the report on {place}: {message}")
    assert "secret" not in said


def test_a_server_that_is_not_there_is_named() -> None:
    assert "the server gave no answer: Connection refused" in message_of("http://127.0.0.1:1/reports/")


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
    assert "the server does not speak TLS as it must" in said
    assert "The address may be one of http, or have the wrong port." in said


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
        delivery.check(dest, goal=GOAL)


@pytest.mark.parametrize("dest", ["reports", "/srv/reports", "~/reports", "https://files.example.com/", "HTTP://h/a/"])
def test_folders_and_addresses_are_taken(dest: str) -> None:
    delivery.check(dest, goal=GOAL)


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


def ansible_playbook(tmp_path: Path, inventory: Any, *arguments: str) -> str:
    """What a playbook prints."""
    pytest.importorskip("ansible.plugins.action", reason="an action needs Ansible's controller, Python 3.11")
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": inventory}))
    collections = next(path for path in sys.path if (Path(path) / "ansible_collections" / "gpufleet" / "node").exists())
    environment = {"ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_LOCALHOST_WARNING": "false"}
    environment.update(ANSIBLE_SHOW_CUSTOM_STATS="true", HOME=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", str(tmp_path / "hosts.yml"), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{done.stdout}{done.stderr}\nends with {done.returncode}"


def run_play(tmp_path: Path, dest: str) -> Dict[str, Any]:
    """What the action answers to a play on three hosts, none of which is contacted."""
    concern = {"status": "right", "settings": [], "settings_right": 2, "needs": [], "conflicts": []}
    concern.update(unmanaged=[], unmanaged_total=0, changes=[], reboot_reasons=[])
    look = {"concerns": {"hugepages": concern}, "undeclared": []}
    hosts = {"n1": {"look": look}, "n2": {"look": look, "info": {"msg": "no"}}, "n3": {}}
    result = tmp_path / "result.json"
    (tmp_path / "play.yml").write_text(PLAY.format(dest=dest, result=result))
    output = ansible_playbook(tmp_path, {"children": {"training": {"hosts": hosts}}}, str(tmp_path / "play.yml"))
    if result.exists():
        found: Dict[str, Any] = json.loads(result.read_text())
        return found
    return {"failed": True, "output": output}


def test_a_playbook_gets_the_files_and_the_summary(tmp_path: Path) -> None:
    found = run_play(tmp_path, str(tmp_path / "out"))
    assert found["files"] == [str(tmp_path / "out" / name) for name in (JSON_FILE, METRICS_FILE)]
    assert sorted(os.listdir(tmp_path / "out")) == sorted((JSON_FILE, METRICS_FILE))
    assert found["changed"] is False
    nodes = found["summary"]["nodes"]
    assert nodes == {"right": ["n1", "n2"], "pending": [], "differs": [], "unknown": [], "unreachable": ["n3"]}
    document = json.loads((tmp_path / "out" / JSON_FILE).read_text())
    assert document["summary"] == found["summary"]
    assert [node["groups"] for node in document["nodes"]] == [["training"]] * 3
    assert [node["facts_missing"] for node in document["nodes"][:2]] == ["gpu_node_info was not asked", "no"]


def test_a_playbook_that_names_no_place_fails_with_the_reason(tmp_path: Path) -> None:
    output = run_play(tmp_path, "https://files.example.com/reports")["output"]
    assert "Cannot write the report on https://files.example.com/reports: the address must end in /" in output


# --- the playbooks ----------------------------------------------------------------------------------------------------


def test_an_audit_reports_a_fleet_of_which_no_node_can_be_looked_at_and_keeps_what_it_found(
    tmp_path: Path, store: Any
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexit 255\n")
    ssh.chmod(0o755)
    away = {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh), "ansible_ssh_retries": 0}
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
    assert '"unreachable": ["away", "broken"]' in re.sub(r"\s+", " ", output).replace("[ ", "[").replace(" ]", "]")
    assert re.search(r"broken +: .* failed=1", output)
    assert "2 nodes are unreachable: away, broken" in output
    assert output.endswith("ends with 2")


def test_a_run_whose_report_nobody_takes_fails_with_the_reason_and_keeps_the_summary(
    tmp_path: Path, store: Any
) -> None:
    dest = f"http://127.0.0.1:{store.server_port}/500/"
    tasks = ROOT / "playbooks" / "tasks" / "report.yml"
    (tmp_path / "play.yml").write_text(f"[{{hosts: all, gather_facts: false, tasks: [import_tasks: {tasks}]}}]")
    hosts = {"away": {"gpufleet_look": {"unreachable": True, "msg": "Connection timed out"}}}
    output = ansible_playbook(
        tmp_path, {"hosts": hosts}, str(tmp_path / "play.yml"), "-e", f"gpufleet_report_dest={dest}"
    )
    assert f"Cannot write the report on {dest}gpufleet-report.json: the server answered 500" in output
    assert "CUSTOM STATS" in output
    assert '"nodes_total": 1' in output
    assert output.endswith("ends with 2")
