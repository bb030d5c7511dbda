"""Health, metrics and the read-only API, served by the real app."""

import asyncio
import re
import time

import httpx
import pytest
from scripted import Upstream, ask, body, config_for, http, lantern_headers, serving, wait_for
from starlette.requests import Request

from lantern_proxy.access import is_loopback
from lantern_proxy.access_admin import AdminAccess
from lantern_proxy.admin.api import _sessions
from lantern_proxy.admin.routes import router
from lantern_proxy.archive import Archive, Record, SessionRow
from lantern_proxy.config import Config


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with Upstream() as upstream, serving(config_for(upstream, tmp_path_factory.mktemp("admin"))) as served:
        yield served


@pytest.fixture(scope="module")
def talk(url):
    """What was told of two turns of one conversation, and of a question of somebody else."""
    first = ask(url, body("The admin password hint is BLUEBERRY-7."))
    second = ask(
        url, body("The admin password hint is BLUEBERRY-7.", "I heard: The admin password hint is BLUEBERRY-7.", "ok")
    )
    other = ask(url, body("somebody else's CRANBERRY-8"), key="sk-two")
    http.post(f"{url}/v1/chat/completions", content=b"not JSON")
    return [lantern_headers(each) for each in (first, second, other)]


def get(url: str, path: str, status: int = 200, **headers: str):
    response = http.get(f"{url}/lantern{path}", headers=headers)
    assert response.status_code == status, response.text
    return response.json()


def test_health_tells_what_serves(url, talk):
    found = get(url, "/health")
    assert found["status"] == "ok"
    assert found["archive"]["ok"]
    assert found["archive"]["path"].endswith("lantern.db")
    assert found["embedder"] == {"state": "off", "detail": "not installed or turned off"}
    assert found["bm25"]["kernel"] in ("avx512", "avx2", "neon", "scalar", "numpy")
    assert found["degraded"] == {}
    assert found["events"] == {"new": 2, "turn": 1, "passthrough": 1}
    assert found["uptime_s"] >= 0
    assert found["version"]


def test_metrics_are_prometheus_text(url, talk):
    response = http.get(f"{url}/lantern/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    lines = response.text.splitlines()
    for line in (
        'lantern_requests_total{event="new"} 2.0',
        'lantern_requests_total{event="turn"} 1.0',
        "lantern_archive_up 1.0",
        "lantern_queue_depth 0.0",
        "lantern_restored_chars_total 0.0",
        "lantern_prepare_seconds_count 4.0",
        'lantern_prepare_seconds_bucket{le="+Inf"} 4.0',
    ):
        assert line in lines
    sizes = [float(line.split()[1]) for line in lines if line.startswith("lantern_archive_bytes ")]
    assert sizes[0] > 4096
    buckets = [float(line.split()[1]) for line in lines if line.startswith("lantern_prepare_seconds_bucket")]
    assert buckets == sorted(buckets)


def test_sessions_messages_and_requests_can_be_looked_at(url, talk):
    rows = get(url, "/api/sessions")
    assert {row["id"] for row in rows} == {talk[0]["session"], talk[2]["session"]}
    shown = get(url, f"/api/sessions/{talk[0]['session']}")
    assert [(m["role"], m["text"]) for m in shown["messages"]] == [
        ("user", "The admin password hint is BLUEBERRY-7."),
        ("assistant", "I heard: The admin password hint is BLUEBERRY-7."),
        ("user", "ok"),
        ("assistant", "I heard: ok"),
    ]
    assert {r["id"] for r in shown["requests"]} == {talk[0]["request"], talk[1]["request"]}
    assert get(url, f"/api/requests/{talk[1]['request']}")["request"]["event"] == "turn"
    assert len(get(url, "/api/sessions?limit=1")) <= 2


def test_a_long_list_of_sessions_costs_as_much_each_as_a_short_one(tmp_path):
    with Archive(tmp_path / "many.db") as archive:
        rows = [SessionRow(id=f"s{n}", api="chat", created_at=n, last_seen_at=n) for n in range(320)]
        archive.write([Record(tenant="t", project="", session=row, request=None) for row in rows])

        def seconds(limit: int) -> float:
            begun = time.thread_time()
            asked = Request({"type": "http", "query_string": f"limit={limit}".encode(), "headers": []})
            assert len(_sessions(archive, asked)) == limit
            return time.thread_time() - begun

        few, many = (min(seconds(limit) for _ in range(3)) for limit in (20, 320))
    assert many < 64 * few, "sixteen times as many; the square of that is 256"


def test_a_search_can_be_kept_to_one_tenant(url, talk):
    tenants = [row["id"] for row in get(url, "/api/tenants")]
    assert len(tenants) == 2
    wait_for(lambda: get(url, "/api/search?q=BLUEBERRY-7"))  # passages are cut after the answer
    hits = {tenant: get(url, f"/api/search?q=BLUEBERRY-7&tenant={tenant}") for tenant in tenants}
    assert sorted(bool(found) for found in hits.values()) == [False, True]
    everyone = get(url, "/api/search?q=BLUEBERRY-7")
    assert {hit["tenant"] for hit in everyone} == {tenant for tenant, found in hits.items() if found}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/sessions/ses_none", 404),
        ("/api/requests/req_none", 404),
        ("/api/nothing", 404),
        ("/nothing", 404),
        ("/api/sessions?limit=many", 400),
        ("/api/search?until=soon&q=", 400),
        ("/api/search?since=-1&q=x", 400),
        ("/api/sessions?limit=0", 400),
        ("/api/requests?limit=-3", 400),
        ("/api/marks?limit=inf", 400),
        ("/api/search?q=", 200),
        ('/api/search?q="unclosed AND (', 200),
    ],
)
def test_what_is_not_there_or_not_meant_is_told(url, talk, path, status):
    answer = http.get(f"{url}/lantern{path}")
    assert answer.status_code == status
    if status == 400:  # the value, and the way out
        name, value = re.findall(r"[?&](\w+)=([^&]+)", path)[0]
        least = 1 if name == "limit" else 0
        assert answer.json()["error"]["message"] == f"{name} is {value}; use a number from {least} on"


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("sessions?tenent=t_x", "tenent is not known here; use tenant, limit, offset, project, q"),
        ("tenants?limit=1", "limit is not known here; use none"),
        ("sessions/ses_none/timeline?from=1", "from is not known here; use tenant"),
        ("search?q=port&kind=semantics", "kind is semantics; use episodic, semantic, procedural"),
    ],
)
def test_a_parameter_that_is_not_known_is_told_and_not_passed_over(url, talk, path, told):
    answer = http.get(f"{url}/lantern/api/{path}")
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, told)


@pytest.mark.parametrize("named", ["seven", "-1", "%C2%B2"])
def test_a_passage_that_is_no_number_is_told(url, named):
    answer = http.get(f"{url}/lantern/api/passages/{named}")
    assert answer.status_code == 400
    assert "use its number" in answer.json()["error"]["message"]


def test_a_wrong_number_is_told_where_nothing_is_archived_yet(tmp_path):
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        assert http.get(f"{url}/lantern/api/search?q=x&until=soon").status_code == 400


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8484", "localhost.evil.example"])
@pytest.mark.parametrize("path", ["/health", "/metrics", "/api/sessions", "/api/search?q=x"])
def test_a_page_that_rebinds_its_name_to_this_machine_learns_nothing(url, talk, host, path):
    response = http.get(f"{url}/lantern{path}", headers={"host": host})
    assert response.status_code == 403
    assert "BLUEBERRY" not in response.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1234", "[::1]:8484", "192.168.1.5"])
def test_this_machine_may_ask_by_any_of_its_addresses(url, host):
    assert http.get(f"{url}/lantern/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_what_reads_does_not_change(url, talk, method):
    assert http.request(method, f"{url}/lantern/api/sessions").status_code == 405
    assert get(url, "/api/sessions")


@pytest.mark.parametrize(
    ("method", "path", "takes"),
    [
        ("GET", "/api/feedback", "POST"),
        ("OPTIONS", "/api/why", "POST"),
        ("DELETE", "/api/sessions/ses_1", "GET, HEAD"),
        ("POST", "/health", "GET, HEAD"),
        ("PUT", "/metrics", "GET, HEAD"),
        ("POST", "/ui", "GET, HEAD"),
        ("POST", "", "GET, HEAD"),
    ],
)
def test_a_path_that_takes_another_method_says_which(url, method, path, takes):
    answer = http.request(method, f"{url}/lantern{path}")
    assert (answer.status_code, answer.headers["allow"]) == (405, takes)
    assert answer.json()["error"]["message"].startswith(f"/lantern{path} takes {takes}, not {method}")


@pytest.mark.parametrize("path", ["/api/tenants/", "/api/nothing"])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_a_path_that_is_not_there_is_told_whatever_the_method(url, method, path):
    answer = http.request(method, f"{url}/lantern{path}")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"].startswith(f"lantern has nothing at /lantern{path}; see ")


@pytest.mark.parametrize(
    ("address", "own"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("192.168.1.5", False),
     ("::ffff:10.0.0.1", False), ("2001:db8::1", False), ("", False), ("localhost", False)],
)  # fmt: skip
def test_only_callers_on_this_machine_see_conversations(address, own):
    assert is_loopback(address) is own


def test_a_caller_from_elsewhere_is_refused():
    async def ask_from(address: str) -> int:
        door = httpx.ASGITransport(AdminAccess(Config(), router()), client=(address, 4_000))
        async with httpx.AsyncClient(transport=door, base_url="http://127.0.0.1:8484") as elsewhere:
            return (await elsewhere.get("/api/sessions")).status_code

    assert asyncio.run(ask_from("10.0.0.9")) == 403
