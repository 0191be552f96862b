# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What awx/ brings into AWX: through the modules of awx.awx, ansible-builder and ansible-runner, as AWX has them."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
import yaml
from ansible_collections.gpufleet.node.tests.awx.awx_server import TOKEN, Awx, Refused, job_variables, serve
from ansible_collections.gpufleet.node.tests.nodes import nodetree, recorded_bed

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent
VERSION = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
PLAYBOOKS = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))
# They change nothing, so that a slice of the inventory is as good as all of it.
READING = {"audit", "collect", "verify"}

# How AWX finds the playbooks of a project (awx/main/utils/ansible.py).
PLAYBOOK_LINE = re.compile(r"^\s*?-?\s*?(?:hosts|(ansible\.builtin\.)?include|(ansible\.builtin\.)?import_playbook):")

HOST = {"ansible_connection": "local", "hugepages_pools": [{"size": "2M", "pages": 16}]}


def run(*command: str, folder: Path, **variables: str) -> str:
    """The output of a command that must succeed, with nothing of the caller's environment but the way to programs."""
    kept = {name: os.environ[name] for name in ("HOME", "ANSIBLE_HOME", "TMPDIR") if name in os.environ}
    environment = {**kept, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", **variables}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a checkout after ``make build``, with what an installation of the tarball gives beside it."""
    folder = tmp_path_factory.mktemp("awx")
    run("ansible-galaxy", "collection", "build", "--output-path", str(folder / "build"), str(ROOT), folder=folder)
    shutil.copytree(ROOT / "awx", folder / "awx")
    tarball = str(folder / "build" / f"gpufleet-node-{VERSION}.tar.gz")
    options = ["--offline", "--no-deps", "-p", str(folder / "installed")]
    run("ansible-galaxy", "collection", "install", *options, tarball, folder=folder)
    return folder


class Bed:
    """A server, and the controller from which an operator applies awx/."""

    def __init__(self, place: Path) -> None:
        self.awx = Awx(credentials=["GPU nodes", "Report", "Registry"])
        self._place = place
        self._server = serve(self.awx)

    def apply(self, **settings: Any) -> str:
        return run(
            *("ansible-playbook", "awx/apply.yml", "--extra-vars", json.dumps(settings)),
            folder=self._place,
            ANSIBLE_COLLECTIONS_PATH=f"{self._place / 'installed'}:{os.environ['ANSIBLE_COLLECTIONS_PATH']}",
            ANSIBLE_LOCALHOST_WARNING="false",
            ANSIBLE_INVENTORY_UNPARSED_WARNING="false",
            ANSIBLE_PIPELINING="true",
            CONTROLLER_HOST=f"http://127.0.0.1:{self._server.server_address[1]}",
            CONTROLLER_OAUTH_TOKEN=TOKEN,
        )

    def template(self, playbook: str) -> Dict[str, Any]:
        return self.awx.named("job_templates", f"GPU fleet: {playbook}")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


SETTINGS: Dict[str, Any] = {
    "awx_slices": 8,
    "awx_credentials": ["GPU nodes", "Report"],
    "awx_registry_credential": "Registry",
}


@pytest.fixture(scope="session")
def bed(place: Path) -> Iterator[Bed]:
    made = Bed(place)
    made.apply(**SETTINGS)
    yield made
    made.close()


# --- what is applied --------------------------------------------------------------------------------------------------


def test_every_playbook_has_a_template_that_awx_finds_in_the_project(bed: Bed) -> None:
    templates = bed.awx.objects["job_templates"].values()
    assert sorted(template["playbook"] for template in templates) == [f"awx/project/{name}.yml" for name in PLAYBOOKS]
    for name in PLAYBOOKS:
        lines = (ROOT / "awx" / "project" / f"{name}.yml").read_text(encoding="utf-8").splitlines()
        assert [line.split()[-1] for line in lines if PLAYBOOK_LINE.match(line)] == [f"gpufleet.node.{name}"]


def test_only_what_changes_nothing_is_sliced(bed: Bed) -> None:
    slices = {name: bed.template(name)["job_slice_count"] for name in PLAYBOOKS}
    assert slices == {name: 8 if name in READING else 1 for name in PLAYBOOKS}
    assert {bed.template(name)["ask_job_slice_count_on_launch"] for name in PLAYBOOKS} == {False}


def test_templates_take_what_their_surveys_ask_for_and_nothing_else(bed: Bed) -> None:
    for name in PLAYBOOKS:
        template = bed.template(name)
        assert (template["survey_enabled"], template["ask_variables_on_launch"]) == (True, False)
        assert template["survey_spec"]["spec"]


def test_credentials_are_referenced_and_no_secret_is_sent(bed: Bed) -> None:
    numbers = {entry["name"]: entry["id"] for entry in bed.awx.objects["credentials"].values()}
    assert set(numbers) == {"GPU nodes", "Report", "Registry"}
    for name in PLAYBOOKS:
        linked = bed.awx.linked("job_templates", bed.template(name)["id"], "credentials")
        assert sorted(linked) == sorted([numbers["GPU nodes"], numbers["Report"]])
    assert bed.awx.named("execution_environments", "GPU fleet")["credential"] == numbers["Registry"]
    kind = bed.awx.named("credential_types", "GPU fleet: report")
    headers = {"Authorization": "Bearer {{ token }}"}
    assert kind["injectors"] == {"extra_vars": {"gpufleet_report_headers": headers, "collect_headers": headers}}


def test_the_rollout_goes_from_the_audit_to_the_canary_to_the_rest_and_waits_twice_for_somebody(bed: Bed) -> None:
    nodes = bed.awx.objects["workflow_job_template_nodes"]
    names = {
        entry["id"]: entry["name"] for kind in bed.awx.objects.values() for entry in kind.values() if "name" in entry
    }
    order = {}
    for (collection, number, after), others in bed.awx.links.items():
        if collection == "workflow_job_template_nodes" and others:
            order[nodes[number]["identifier"]] = (after, [nodes[other]["identifier"] for other in others])
    assert order == {
        "audit": ("always_nodes", ["approve-canary"]),
        "approve-canary": ("success_nodes", ["canary"]),
        "canary": ("success_nodes", ["approve-rest"]),
        "approve-rest": ("success_nodes", ["rest"]),
    }
    assert {
        node["identifier"]: (names[node["unified_job_template"]], node.get("limit", "")) for node in nodes.values()
    } == {
        "audit": ("GPU fleet: audit", ""),
        "approve-canary": ("Canary", ""),
        "canary": ("GPU fleet: site", "canary"),
        "approve-rest": ("The rest of the fleet", ""),
        "rest": ("GPU fleet: site", ""),
    }


def test_the_audit_of_every_night_has_answers_that_its_survey_takes(bed: Bed) -> None:
    nightly = bed.awx.named("schedules", "GPU fleet: nightly audit")
    audit = bed.template("audit")
    assert (nightly["unified_job_template"], nightly["enabled"]) == (audit["id"], True)
    assert "FREQ=DAILY" in nightly["rrule"]
    assert job_variables(audit["survey_spec"], nightly["extra_data"])["audit_fail_on_drift"] == "true"


def test_applied_again_it_makes_nothing_anew_and_takes_back_what_somebody_changed(bed: Bed) -> None:
    applied = copy.deepcopy((bed.awx.objects, bed.awx.links))
    bed.template("site")["job_slice_count"] = 4
    bed.awx.changes.clear()
    bed.apply(**SETTINGS)
    assert (bed.awx.objects, bed.awx.links) == applied
    # The approvals are sent again by awx.awx, as they are.
    assert {change.split("/")[0] for change in bed.awx.changes} == {
        "PATCH job_templates",
        "PATCH workflow_approval_templates",
    }


# --- the image --------------------------------------------------------------------------------------------------------


def test_the_image_is_built_with_the_tarball_of_this_version_and_what_it_needs(place: Path) -> None:
    definition = yaml.safe_load((place / "awx" / "execution-environment.yml").read_text(encoding="utf-8"))
    said = run("ansible-builder", "create", "-f", "awx/execution-environment.yml", "-c", "context", folder=place)
    assert "No matches" not in said
    wanted = yaml.safe_load((place / "context" / "_build" / "requirements.yml").read_text(encoding="utf-8"))
    assert wanted == definition["dependencies"]["galaxy"]
    ours = place / "context" / "_build" / wanted["collections"][0]["name"]
    assert ours.read_bytes() == (place / "build" / f"gpufleet-node-{VERSION}.tar.gz").read_bytes()
    needed = yaml.safe_load(run("ansible-builder", "introspect", "installed", folder=place))
    assert [line.split(" #")[0].strip() for line in needed["python"]] == [
        line
        for line in (ROOT / "tests" / "requirements-nvml.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    assert any("openssh-clients [platform:rpm]" in line for line in needed["system"])


# --- jobs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    status: str
    output: str
    artifacts: Dict[str, Any]


class Unsafe(str):
    """A text that AWX had from a survey: Ansible must not take it for a template."""


class Dumper(yaml.SafeDumper):
    """As AWX writes extra variables (awx/main/utils/safe_yaml.py)."""


Dumper.add_representer(Unsafe, lambda dumper, value: dumper.represent_scalar("!unsafe", str(value)))


def unsafe(value: Any) -> Any:
    if isinstance(value, dict):
        return {unsafe(name): unsafe(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [unsafe(entry) for entry in value]
    return Unsafe(value) if isinstance(value, str) else value


class Runner:
    """Runs jobs as AWX does, each in a private folder, on a node that is a recorded tree."""

    def __init__(self, bed: Bed, place: Path, folder: Path) -> None:
        self._bed = bed
        self._place = place
        self._folder = folder
        self.tree = nodetree.expand("single-socket", folder / "tree")
        self._host = {
            **HOST,
            "ansible_python_interpreter": str(recorded_bed.interpreter(folder / "python", root=self.tree)),
        }

    def variables(self, playbook: str, **answers: Any) -> Dict[str, Any]:
        return job_variables(self._bed.template(playbook)["survey_spec"], answers)

    def job(self, playbook: str, variables: Dict[str, Any], *options: str) -> Job:
        template = self._bed.template(playbook)
        private = self._folder / f"job-{len(list(self._folder.glob('job-*')))}"
        shutil.copytree(self._place / "awx", private / "project" / "awx")
        self._write(private / "inventory" / "hosts.yml", json.dumps({"all": {"hosts": {"gpu-01": self._host}}}))
        self._write(private / "env" / "extravars", yaml.dump(unsafe(variables), Dumper=Dumper))
        self._write(private / "env" / "cmdline", " ".join(["--forks", str(template["forks"]), *options]))
        environment = {"ANSIBLE_COLLECTIONS_PATH": str(self._place / "installed")}
        self._write(private / "env" / "envvars", json.dumps(environment))
        done = subprocess.run(
            [str(PROGRAMS / "ansible-runner"), "run", str(private), "-p", template["playbook"], "-i", "job"],
            env={"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(self._folder), "LC_ALL": "C.UTF-8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        artifacts = private / "artifacts" / "job"
        assert (artifacts / "status").exists(), done.stdout
        stats = self._events(artifacts, "playbook_on_stats")
        return Job(
            status=(artifacts / "status").read_text(encoding="utf-8"),
            output=" ".join((artifacts / "stdout").read_text(encoding="utf-8").split()),
            artifacts=stats[0].get("artifact_data", {}) if stats else {},
        )

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    @staticmethod
    def _events(artifacts: Path, kind: str) -> List[Dict[str, Any]]:
        events = [json.loads(path.read_text(encoding="utf-8")) for path in (artifacts / "job_events").glob("*.json")]
        return [event["event_data"] for event in events if event["event"] == kind]


@pytest.fixture
def runner(bed: Bed, place: Path, tmp_path: Path) -> Runner:
    return Runner(bed, place, tmp_path)


def test_a_fleet_is_audited_collected_and_converged_with_the_answers_of_the_surveys(runner: Runner) -> None:
    only = {"gpufleet_concerns": "- hugepages"}
    reports = runner.tree.parent / "reports"
    audit = runner.job("audit", runner.variables("audit", gpufleet_report_dest=str(reports), **only))
    assert audit.status == "successful", audit.output
    assert "gpu-01 node0 hugepages_2M 16 0 0 drifted" in audit.output
    assert audit.artifacts["gpufleet_report"]["nodes"]["not_installed"] == ["gpu-01"]
    assert {path.name for path in reports.iterdir()} >= {"gpufleet-report.json", "gpufleet-report.html"}

    collected = runner.job("collect", runner.variables("collect", collect_dest=str(reports), collect_parts=["memory"]))
    assert collected.status == "successful", collected.output
    assert (reports / "gpufleet-facts.json").exists()

    pool = runner.tree / "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    site = runner.variables("site", gpufleet_batches="- 1\n- 10%\n", **only)
    predicted = runner.job("site", site, "--check")
    assert predicted.status == "successful", predicted.output
    assert pool.read_text(encoding="utf-8") == "0\n"
    done = runner.job("site", site)
    assert done.status == "successful", done.output
    assert pool.read_text(encoding="utf-8") == "16\n"


def test_an_answer_out_of_range_is_refused_by_awx_and_by_the_playbook(runner: Runner) -> None:
    with pytest.raises(Refused, match="gpufleet_detail"):
        runner.variables("site", gpufleet_detail="breif")
    wrong = {**runner.variables("site", gpufleet_batches="[0, 10%]"), "gpufleet_detail": "breif"}
    job = runner.job("site", wrong)
    assert job.status == "failed"
    assert "Cannot use the variable gpufleet_batches" in job.output
    assert "must be one of brief, devices, full" in job.output
