# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""As much of AWX as awx/apply.yml and a job need: its objects behind its API, and what it makes of a survey.

The paths, the fields of answers and the rules of surveys are those of AWX 24.6 (``awx/api/views``,
``awx/main/models/mixins.py``).
"""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Dict, List, Optional, Tuple, Type
from urllib.parse import parse_qsl, urlsplit

Object = Dict[str, Any]

PREFIX = "/api/v2/"
TOKEN = "t0ken"

# What can be a node of a workflow or have a schedule: the type of an object, by its collection.
UNIFIED = {
    "job_templates": "job_template",
    "projects": "project",
    "inventory_sources": "inventory_source",
    "workflow_job_templates": "workflow_job_template",
    "workflow_approval_templates": "workflow_approval",
}
# AWX passes over what is no field of an object, which awx.awx sends it of approvals.
FIELDS = {"workflow_approval_templates": ("name", "description", "timeout")}

ANSWERS: Dict[str, Any] = {
    "text": str,
    "textarea": str,
    "password": str,
    "multiplechoice": str,
    "multiselect": str,
    "integer": int,
    "float": (int, float),
}


class Refused(Exception):
    """AWX answers 400 with this."""


class Awx:
    """The objects by collection and number, and what was asked of it."""

    def __init__(self, credentials: List[str]) -> None:
        self.objects: Dict[str, Dict[int, Object]] = {}
        self.links: Dict[Tuple[str, int, str], List[int]] = {}
        self.changes: List[str] = []
        self._last = 0
        self.create("organizations", {"name": "Default"})
        for name in credentials:
            self.create("credentials", {"name": name})

    def named(self, collection: str, name: str) -> Object:
        return next(entry for entry in self.objects[collection].values() if entry.get("name") == name)

    def create(self, collection: str, fields: Object) -> Object:
        self._last += 1
        url = f"{PREFIX}{collection}/{self._last}/"
        made = {
            "id": self._last,
            "url": url,
            "type": UNIFIED.get(collection, collection[:-1]),
            "related": {"survey_spec": f"{url}survey_spec/"},
            "summary_fields": {},
            "scm_revision": "",
            "kind": "",
            "survey_spec": {},
            **known(collection, fields),
        }
        self.objects.setdefault(collection, {})[self._last] = made
        return made

    def found(self, collection: str, wanted: Dict[str, str]) -> List[Object]:
        if collection == "unified_job_templates":
            every = [entry for kind in UNIFIED for entry in self.objects.get(kind, {}).values()]
        else:
            every = list(self.objects.get(collection, {}).values())
        return [entry for entry in every if all(str(entry.get(name)) == value for name, value in wanted.items())]

    def linked(self, collection: str, number: int, what: str) -> List[int]:
        return self.links.setdefault((collection, number, what), [])


def known(collection: str, fields: Object) -> Object:
    return {name: value for name, value in fields.items() if name in FIELDS.get(collection, fields)}


def refuse_survey(survey: Object) -> None:
    """What AWX refuses in a survey that it is given. Raises ``Refused``."""
    seen = set()
    if not (isinstance(survey["name"], str) and isinstance(survey["description"], str) and survey["spec"]):
        raise Refused("a survey needs a name, a description and questions")
    for asked in survey["spec"]:
        types = [(name, str) for name in ("type", "question_name", "variable")] + [("required", bool)]
        if any(not isinstance(asked.get(name), kind) for name, kind in types):
            raise Refused(f"{asked} lacks what a question needs")
        if asked["variable"] in seen:
            raise Refused(f"{asked['variable']} is asked for twice")
        seen.add(asked["variable"])
        if not isinstance(asked.get("default", ""), ANSWERS[asked["type"]]) and asked.get("default", "") != "":
            raise Refused(f"the default of {asked['variable']} has another type")
        if any(not isinstance(asked.get(limit, 0), int) for limit in ("min", "max")):
            raise Refused(f"a limit of {asked['variable']} is no whole number")
        chosen = asked.get("default", "").splitlines() if asked["type"].startswith("multi") else []
        if any(line not in asked["choices"] for line in chosen):
            raise Refused(f"the default of {asked['variable']} is no choice")


def wrong_answer(asked: Object, answer: Any) -> Optional[str]:
    """Why AWX does not take an answer to a question."""
    kind = asked["type"]
    if kind == "multiselect":
        taken = isinstance(answer, list) and all(entry in asked["choices"] for entry in answer)
    elif kind == "multiplechoice":
        taken = answer in asked["choices"]
    else:
        taken = isinstance(answer, ANSWERS[kind]) and not isinstance(answer, bool)
        size = len(answer) if isinstance(answer, str) else answer
        taken = taken and asked.get("min", size) <= size <= asked.get("max", size)
    return None if taken else f"{answer!r} is no answer to {asked['variable']}"


def job_variables(survey: Object, answers: Dict[str, Any]) -> Dict[str, Any]:
    """The extra variables of a job: the defaults of the survey, where they are answers, and the answers.

    Raises ``Refused`` where AWX does not start the job.
    """
    questions = {asked["variable"]: asked for asked in survey["spec"]}
    wrong = [wrong_answer(questions[name], value) if name in questions else name for name, value in answers.items()]
    if any(wrong):
        raise Refused("; ".join(filter(None, wrong)))
    defaults = {name: asked["default"] for name, asked in questions.items() if "default" in asked}
    kept = {name: value for name, value in defaults.items() if not wrong_answer(questions[name], value)}
    return {**kept, **answers}


def handler(awx: Awx) -> Type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts, query = self._place()
            if len(parts) == 3:
                collection, number, what = parts[0], int(parts[1]), parts[2]
                if what == "survey_spec":
                    self._answer(200, awx.objects[collection][number]["survey_spec"])
                else:
                    self._list([{"id": other} for other in awx.linked(collection, number, what)])
            elif len(parts) == 2:
                self._answer(200, awx.objects[parts[0]][int(parts[1])])
            else:
                self._list(awx.found(parts[0], query))

        def do_POST(self) -> None:
            parts, _query = self._place()
            body = self._body()
            awx.changes.append(f"POST {'/'.join(parts)}")
            if len(parts) == 1:
                self._answer(201, awx.create(parts[0], body))
                return
            collection, number, what = parts[0], int(parts[1]), parts[2]
            if what == "survey_spec":
                self._survey(awx.objects[collection][number], body)
            elif what == "create_approval_template":
                made = awx.create("workflow_approval_templates", body)
                node = awx.objects[collection][number]
                node["unified_job_template"] = made["id"]
                node["related"]["unified_job_template"] = made["url"]
                self._answer(201, made)
            else:
                linked = awx.linked(collection, number, what)
                (linked.remove if body.get("disassociate") else linked.append)(body["id"])
                self._answer(204, None)

        def do_PATCH(self) -> None:
            parts, _query = self._place()
            awx.changes.append(f"PATCH {'/'.join(parts)}")
            found = awx.objects[parts[0]][int(parts[1])]
            found.update(known(parts[0], self._body()))
            self._answer(200, found)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the output is that of the test."""

        def _survey(self, template: Object, survey: Object) -> None:
            try:
                refuse_survey(survey)
            except Refused as refused:
                self._answer(400, {"error": str(refused)})
            else:
                template["survey_spec"] = survey
                self._answer(200, {})

        def _place(self) -> Tuple[List[str], Dict[str, str]]:
            assert self.headers["Authorization"] == f"Bearer {TOKEN}"
            url = urlsplit(self.path)
            assert re.match(PREFIX, url.path)
            return url.path[len(PREFIX) :].strip("/").split("/"), dict(parse_qsl(url.query))

        def _body(self) -> Object:
            body: Object = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            return body

        def _list(self, entries: List[Object]) -> None:
            self._answer(200, {"count": len(entries), "next": None, "results": entries})

        def _answer(self, status: int, value: Any) -> None:
            body = b"" if value is None else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def serve(awx: Awx) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(awx))
    Thread(target=server.serve_forever, daemon=True).start()
    return server
