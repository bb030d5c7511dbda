"""The admin API's document: it is made of the routes, and no request that it describes is our fault."""

from typing import Any

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from scripted import Upstream, ask, body, config_for, http, lantern_headers, serving, wait_for
from starlette.routing import Route

from lantern_proxy.admin.api import api_routes
from lantern_proxy.admin.openapi import BODY
from lantern_proxy.admin.schemas import ANSWERS

LOST = "Gauge G-7919 in hall H1 stands at 5.25 bar since the 3rd of March"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with Upstream() as upstream, serving(config_for(upstream, tmp_path_factory.mktemp("openapi"))) as served:
        ask(served, body("hello", "I heard: hello", "more"))
        yield served


def test_no_request_that_the_document_describes_makes_the_api_fail(url):
    schema = schemathesis.openapi.from_url(f"{url}/lantern/api/openapi.json").exclude(path_regex="events")
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
        @given(case=operation.as_strategy())
        def no_fault_of_ours(case):
            answer = case.call()
            assert answer.status_code < 500, f"{case.method} {case.formatted_path}: {answer.status_code}"
            case.validate_response(answer, checks=[schemathesis.checks.response_schema_conformance])

        no_fault_of_ours()
        tried += 1
    assert tried > 10


@pytest.mark.parametrize("path", ["/nothing%0Ahere", "/api/sessions/a%0Ab", "/%0A", "/api/sessions/a%0Ab/messages"])
def test_a_line_break_in_a_path_leads_to_no_model(url, path):
    answer = http.get(f"{url}/lantern{path}")
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_every_route_of_the_api_is_in_the_document(url):
    found = http.get(f"{url}/lantern/api/openapi.json").json()
    assert found["openapi"].startswith("3.")
    made = [route.path for route in api_routes() if isinstance(route, Route)]
    assert {f"/lantern{path}" for path in made if ":" not in path} <= set(found["paths"])
    assert len(found["paths"]) == len(set(made))
    for path, verbs in found["paths"].items():
        for verb in verbs.values():
            named = {each["name"] for each in verb["parameters"] if each["in"] == "path"}
            assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def test_every_verb_that_writes_says_what_it_takes_and_takes_that(url):
    """The schemas are the verbs' own: what lacks a required field, or has one of another type, is refused."""
    paths = http.get(f"{url}/lantern/api/openapi.json").json()["paths"]
    verbs = {path: found["post"] for path, found in paths.items() if "post" in found}
    assert {path.rsplit("/", 1)[-1] for path in verbs} == {"feedback", "pin", "edit", "prune", "forget", "why"}
    for path, verb in verbs.items():
        schema = verb["requestBody"]["content"]["application/json"]["schema"]
        for field in schema["required"]:
            given = {name: [] for name in schema["properties"] if name != "tenant"}
            lacking = {name: value for name, value in given.items() if name != field}
            for sent in (given, lacking):
                assert http.post(f"{url}{path}", json=sent).status_code == 400, (path, sent)


def test_queries_that_the_document_names_are_taken_and_wrong_ones_refused(url):
    paths = http.get(f"{url}/lantern/api/openapi.json").json()["paths"]
    for path, named in (("sessions", "offset"), ("overview", "since"), ("marks", "limit")):
        asked = {each["name"] for each in paths[f"/lantern/api/{path}"]["get"]["parameters"]}
        assert named in asked
        assert http.get(f"{url}/lantern/api/{path}?{named}=1").status_code == 200
        assert http.get(f"{url}/lantern/api/{path}?{named}=soon").status_code == 400


def test_what_is_answered_is_what_the_document_says(tmp_path):
    """Every path, on a session that lost something and got it back, so that no list of the answers is empty."""
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        messages = [{"role": "user", "content": LOST}]
        for said in ("Noted.", "And how is the pump in hall H2?", "It runs.", "Good, thank you for looking at it."):
            ask(url, {"model": "m", "messages": messages}, x_lantern_session="s")
            messages.append({"role": "assistant" if len(messages) % 2 else "user", "content": said})
        assert wait_for(lambda: http.get(f"{url}/lantern/api/search?q=gauge").json())
        lost = [*messages[-2:], {"role": "user", "content": "At how many bar does gauge G-7919 stand?"}]
        answer = ask(url, {"model": "m", "messages": lost}, x_lantern_session="s")
        assert int(lantern_headers(answer)["restored"])
        session = lantern_headers(answer)["session"]
        request = wait_for(lambda: next((r for r in api(url, "requests") if r["restored"]), None))["id"]

        def told_of() -> int:
            hits = [hit["passage"] for hit in api(url, "search?q=gauge")]
            return next(passage["id"] for passage in hits if passage["text"].startswith(LOST))

        passage = told_of()
        document = api(url, "openapi.json")
        tried: set[str] = set()

        def check(path: str, found: object) -> None:
            verb = "post" if path in BODY else "get"
            [schema] = document["paths"][f"/lantern{path}"][verb]["responses"]["200"]["content"].values()
            whole = schema["schema"] | {"components": document["components"]}
            jsonschema.Draft202012Validator(whole).validate(found)
            assert found
            tried.add(path)

        def post(path: str, sent: dict) -> None:
            response = http.post(f"{url}/lantern{path}", json=sent)
            assert response.status_code == 200, response.text
            check(path, response.json())

        post("/api/feedback", {"passage": passage, "verdict": "useful", "request": request})
        post("/api/edit", {"passage": passage, "text": f"{LOST} indeed."})
        edited = told_of()
        post("/api/pin", {"passage": edited, "pinned": True})
        post("/api/prune", {"older_than_s": 0})
        post("/api/forget", {"session": session})
        post("/api/why", {"request": {"model": "m", "messages": lost}, "session": session})
        for path in ANSWERS.keys() - BODY.keys():
            asked = path.format(session=session, request=request, passage=edited).removeprefix("/api/")
            check(path, api(url, f"{asked}?q=gauge" if path == "/api/search" else asked))
        assert tried == set(ANSWERS)


def api(url: str, path: str) -> Any:
    response = http.get(f"{url}/lantern/api/{path}")
    assert response.status_code == 200, response.text
    return response.json()
