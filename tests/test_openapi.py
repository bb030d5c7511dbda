"""The admin API's document: it is made of the routes, and no request that it describes is our fault."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from scripted import Upstream, ask, body, config_for, http, serving
from starlette.routing import Route

from lantern_proxy.admin.api import api_routes
from lantern_proxy.config import Config


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

        no_fault_of_ours()
        tried += 1
    assert tried > 10


def test_every_route_of_the_api_is_in_the_document(url):
    found = http.get(f"{url}/lantern/api/openapi.json").json()
    assert found["openapi"].startswith("3.")
    made = [route.path for route in api_routes(Config()) if isinstance(route, Route)]
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
