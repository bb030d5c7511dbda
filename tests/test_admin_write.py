"""The admin API beyond looking: sums, timelines, verdicts, pruning, forgetting, tried restores, live events."""

import json
import threading

import httpx
import pytest
from scripted import (
    ReceivedRequest,
    Upstream,
    Wire,
    ask,
    body,
    compacted_chat,
    completion,
    config_for,
    http,
    lantern_headers,
    respond,
    serving,
    wait_for,
)

from lantern_proxy import Lantern
from lantern_proxy.config import RestoreConfig

FACTS = [f"Fact {n}: service s{n} listens on port {4000 + n}, owner team-{n}, ticket OPS-{900 + n}." for n in range(12)]
QUESTION = "On which port does service s3 listen?"
WRITES = ("feedback", "pin", "edit", "prune", "forget", "why")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with Upstream() as upstream, serving(config_for(upstream, tmp_path_factory.mktemp("admin"))) as served:
        yield served


def converse(url: str, session: str, key: str = "sk-one") -> dict[str, str]:
    """A conversation that is compacted; what was told of the request after it."""
    last = compacted_chat(url, session, FACTS, QUESTION, key)
    wait_for(lambda: is_settled(get(url, f"sessions/{last['session']}/timeline"), 2 * len(FACTS) + 3))
    return last


def is_settled(timeline: dict, passages: int) -> bool:
    """Is all that was said cut, and is it known what of the blocks was used?"""
    return timeline["passages"] >= passages and all(b["used"] is not None for b in timeline["bridges"])


def get(url: str, path: str, status: int = 200):
    response = http.get(f"{url}/lantern/api/{path}")
    assert response.status_code == status, response.text
    return response.json()


def post(url: str, path: str, content: dict, status: int = 200, **headers: str):
    response = http.post(f"{url}/lantern/api/{path}", json=content, headers=headers)
    assert response.status_code == status, response.text
    return response.json()


def passage_with(url: str, request: str, word: str) -> dict:
    why = get(url, f"requests/{request}")
    placed = [p["passage"] for block in why["blocks"] for p in block["restored"]["placed"]]
    return next(p for p in placed if word in p["text"])


def test_a_passage_marked_wrong_on_the_page_is_not_restored_again(url):
    first = converse(url, "wrong-1")
    assert first["event"] == "compacted", first
    judged = passage_with(url, first["request"], "4003")
    changed = post(url, "feedback", {"passage": judged["id"], "verdict": "wrong", "request": first["request"]})
    assert changed["verdict"] == "wrong"
    marks = {m["passage"]: m["verdict"] for m in get(url, f"requests/{first['request']}")["marks"]}
    assert marks[judged["id"]] == "wrong"
    again = converse(url, "wrong-2")
    blocks = get(url, f"requests/{again['request']}")["blocks"]
    placed = [p["passage"]["text"] for b in blocks for p in b["restored"]["placed"]]
    assert placed
    assert judged["text"] not in placed


def test_a_correction_and_a_pin_are_told_with_their_history(url):
    said = passage_with(url, converse(url, "edit-1", key="sk-edit")["request"], "OPS-905")
    edited = post(url, "edit", {"passage": said["id"], "text": "Ticket OPS-905 was closed as OPS-777."})
    assert edited["text"] == "Ticket OPS-905 was closed as OPS-777."
    assert post(url, "pin", {"passage": said["id"], "pinned": True})["pinned"]
    shown = get(url, f"passages/{said['id']}")
    assert (shown["pinned"], [e["before"] for e in shown["history"]]) == (True, [said["text"]])
    marked = {m["passage"]["id"]: m for m in get(url, "marks")}
    assert (marked[said["id"]]["edits"], marked[said["id"]]["passage"]["pinned"]) == (1, True)
    assert any(hit["passage"]["id"] == said["id"] for hit in get(url, "search?q=OPS-777"))


def test_a_timeline_shows_the_cliff_and_the_bridges(url):
    last = converse(url, "timeline-1", key="sk-timeline")
    shown = get(url, f"sessions/{last['session']}/timeline")
    steps = shown["steps"]
    assert [step["event"] for step in steps] == ["new"] + ["turn"] * 11 + ["compacted"]
    assert steps[-1]["size"] < steps[-2]["size"] / 2
    assert steps[-1]["lost"] > 1_000
    assert steps[-1]["gone"] >= 20
    bridges = [bridge for bridge in shown["bridges"] if bridge["request"] == last["request"]]
    assert len(bridges) == int(last["restored"])
    assert all(bridge["said_at"] < steps[-1]["at"] for bridge in bridges)
    assert shown["losses"] == 1
    [row] = [row for row in get(url, "sessions") if row["id"] == last["session"]]
    assert (row["requests"], row["losses"], row["blocks"] > 0) == (13, 1, True)
    page = get(url, f"sessions/{last['session']}/messages?from=4&limit=3&chars=10")
    assert [(m["position"], m["text"], m["length"]) for m in page][:1] == [(4, FACTS[2][:10], len(FACTS[2]))]


def test_an_overview_sums_up_what_happened(url):
    last = converse(url, "sum-1", key="sk-sum")
    tenant = get(url, f"sessions/{last['session']}/timeline")["tenant"]
    [sums] = get(url, f"overview?since=0&tenant={tenant}")
    assert (sums["sessions"], sums["requests"], sums["losses"], sums["restores"]) == (1, 13, 1, 1)
    assert sums["chars"] == int(last["chars"])
    assert sums["events"] == {"new": 1, "turn": 11, "compacted": 1}
    assert sum(bucket["requests"] for bucket in sums["buckets"]) == 13
    assert 0 < sums["ms_p50"] <= sums["ms_p95"]
    lost = get(url, f"sessions/{last['session']}/timeline")["steps"][-1]["lost"]
    assert sums["unsent_bytes"] == max(0, lost - sums["chars"])


def test_searches_are_narrowed_and_paged(url):
    converse(url, "search-1", key="sk-search")
    tenant = next(r["tenant"] for r in get(url, "sessions") if r["id"] == "search-1" or r["title"].startswith("Fact 0"))
    everything = get(url, f"search?q=listens&limit=100&tenant={tenant}")
    users = get(url, f"search?q=listens&limit=100&tenant={tenant}&speaker=user")
    assert {hit["passage"]["speaker"] for hit in users} == {"user"}
    assert 0 < len(users) < len(everything)
    pages = [get(url, f"search?q=listens&tenant={tenant}&limit=5&offset={at}") for at in range(0, len(everything), 5)]
    assert sorted(h["passage"]["id"] for p in pages for h in p) == sorted(h["passage"]["id"] for h in everything)
    assert get(url, f"search?q=listens&tenant={tenant}&until=1000") == []


def test_a_tried_restore_tells_what_would_come_back_and_changes_nothing(url):
    last = converse(url, "try-1", key="sk-try")
    tenant = get(url, f"sessions/{last['session']}/timeline")["tenant"]
    before = get(url, f"sessions/{last['session']}/timeline")
    request = body("Summary of the conversation so far: services.", "Good.", "Who owns service s7?")
    found = post(url, "why", {"request": request, "session": last["session"], "tenant": tenant})
    assert found["session"] == last["session"]
    assert "team-7" in json.dumps(found["blocks"])
    assert get(url, f"sessions/{last['session']}/timeline") == before
    judged = passage_with(url, last["request"], "team-7")
    post(url, "feedback", {"passage": judged["id"], "verdict": "outdated"})
    again = post(url, "why", {"request": request, "session": last["session"], "tenant": tenant})
    assert judged["id"] not in [p["passage"]["id"] for b in again["blocks"] for p in b["placed"]]
    assert [(one["passage"], one["why"]) for one in again["refused"]] == [(judged["id"], "marked outdated")]


def test_pruning_shows_first_and_removes_when_told(url):
    last = converse(url, "prune-1", key="sk-prune")
    rule = {"session": last["session"]}
    preview = post(url, "prune", rule)
    assert preview["passages"] > 10
    assert get(url, f"sessions/{last['session']}/timeline")
    assert post(url, "prune", {**rule, "dry_run": False}) == preview
    get(url, f"sessions/{last['session']}/timeline", 404)


def test_forgetting_needs_the_id_typed(url):
    last = converse(url, "forget-1", key="sk-forget")
    preview = post(url, "forget", {"session": last["session"]})
    assert preview["removed"]["messages"] > 10
    assert (
        "not the session's id"
        in post(url, "forget", {"session": last["session"], "confirm": "yes"}, 400)["error"]["message"]
    )
    assert get(url, f"sessions/{last['session']}/timeline")
    receipt = post(url, "forget", {"session": last["session"], "confirm": last["session"]})
    assert receipt["removed"]["messages"] == preview["removed"]["messages"]
    get(url, f"sessions/{last['session']}/timeline", 404)


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example"},
    ],
)
def test_a_page_of_another_origin_changes_nothing(url, path, headers):
    post(url, path, {"passage": 1, "verdict": "wrong"}, 403, **headers)


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_form_changes_nothing(url, path, kind):
    headers = {"content-type": kind} if kind else {}
    assert http.post(f"{url}/lantern/api/{path}", content=b'{"passage": 1}', headers=headers).status_code in (400, 415)


def test_a_session_that_two_tenants_have_goes_for_the_one_that_is_named(tmp_path):
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        with (
            Lantern(config_for(upstream, tmp_path), user="anna") as anna,
            Lantern(config_for(upstream, tmp_path), user="ben") as ben,
        ):
            for lantern in (anna, ben):
                lantern.archive("main", [{"role": "user", "content": "hi"}])
        for path, more in (("forget", {"confirm": "main"}), ("prune", {"dry_run": False})):
            told = post(url, path, {"session": "main", **more}, 400)["error"]["message"]
            assert told.startswith("2 tenants have a session main; name one as tenant")
        post(url, "forget", {"session": "main", "confirm": "main", "tenant": ben.tenant})
        assert [s["tenant"] for s in get(url, "sessions")] == [anna.tenant]


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("feedback", {"verdict": "wrong"}, "passage is missing"),
        (
            "prune",
            {"older_than_s": 0, "sesion": "ses_1", "dry_run": False},
            '"sesion" is not known here; use older_than_s',
        ),
        ("feedback", {"passage": "7", "verdict": "wrong"}, 'passage is "7"; use a whole number'),
        ("feedback", {"passage": True, "verdict": "wrong"}, "passage is true; use a whole number"),
        ("feedback", {"passage": 10**9, "verdict": "wrong"}, "there is no passage 1000000000"),
        ("pin", {"passage": 10**9, "pinned": True}, "there is no passage 1000000000"),
        ("prune", {}, "prune rule is empty"),
        ("prune", {"older_than_s": -1}, "older_than_s is -1; use a number from 0 on"),
        ("prune", {"older_than_s": "x"}, 'older_than_s is "x"'),
        ("prune", {"older_than_s": 1, "dry_run": "no"}, 'dry_run is "no"; use true or false'),
        ("forget", {"session": "ses_none"}, "there is no session ses_none"),
        ("why", {"request": [], "tenant": "t_x"}, "request is []; use an object"),
    ],
)
def test_a_body_that_says_nothing_useful_is_told_so(url, path, content, message):
    ask(url, body("hello"))
    assert message in post(url, path, content, 400)["error"]["message"]


async def noting(got: ReceivedRequest, wire: Wire) -> None:
    """Answers what the last line of a history in one text says."""
    asked = got.data["messages"][-1]["content"].split("<restored_context")[0].rpartition("Human: ")[2]
    text = f"I have noted that of {asked.partition(',')[0]} for later."
    await respond(200, completion(text), ("content-type", "application/json"))(got, wire)


def test_a_turn_on_a_branch_that_was_left_is_previewed_as_what_it_is(url):
    def said(*texts: str) -> list:
        messages: list = []
        for text in texts:
            messages.append({"role": "user", "content": text})
            messages.append(ask(url, body(*messages), "sk-of-branches").json()["choices"][0]["message"])
        return messages

    begun = said("Plan the trip to the quarry, please.", "Which cart is to come along on that trip?")
    ask(url, body(*begun[:2], {"role": "user", "content": "Which mule is to come along instead?"}), "sk-of-branches")
    back = body(*begun, {"role": "user", "content": "And who is to drive that cart?"})
    (tenant,) = {each["tenant"] for each in get(url, "sessions") if each["title"].startswith("Plan the trip")}
    seen = post(url, "why", {"request": back, "tenant": tenant})
    assert seen["event"] == lantern_headers(ask(url, back, "sk-of-branches"))["event"] == "branch"


@pytest.mark.parametrize("window_tokens", [0, 4_000])
def test_a_history_in_one_text_is_previewed_as_it_is_read(tmp_path, window_tokens):
    lines: list[str] = []

    def request(said: str) -> dict:
        return body("\n".join(["A talk of a human and an AI.", *lines[-6:], f"Human: {said}", "AI:"]))

    settings = RestoreConfig(deadline_ms=20_000, window_tokens=window_tokens)
    with Upstream(noting) as upstream, serving(config_for(upstream, tmp_path, restore=settings)) as url:
        for fact in FACTS:
            answer = ask(url, request(fact), x_lantern_session="lines-1")
            lines += [f"Human: {fact}", f"AI: {answer.json()['choices'][0]['message']['content']}"]
        named = lantern_headers(answer)["session"]
        wait_for(lambda: is_settled(get(url, f"sessions/{named}/timeline"), 2 * len(FACTS)))
        seen = post(url, "why", {"request": request(QUESTION), "session": named})
        sent = lantern_headers(ask(url, request(QUESTION), x_lantern_session="lines-1"))
        blocks = get(url, f"requests/{sent['request']}")["blocks"]
    assert "window" == seen["event"] == sent["event"]
    assert int(sent["restored"]) > 0
    assert [block["text"] for block in seen["blocks"]] == [block["restored"]["text"] for block in blocks]


def test_events_come_as_they_happen(url):
    heard: list[tuple[str, dict]] = []
    ready = threading.Event()

    def listen() -> None:
        with httpx.stream("GET", f"{url}/lantern/api/events", timeout=30) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            kind = ""
            for line in stream.iter_lines():
                ready.set()
                if line.startswith("event: "):
                    kind = line[7:]
                if line.startswith("data: "):
                    heard.append((kind, json.loads(line[6:])))
                if ("change", {"what": "pin"}) in heard:
                    return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert ready.wait(10)
    last = converse(url, "live-1", key="sk-live")
    assert wait_for(lambda: any(kind == "restore" for kind, _ in heard))
    id_ = passage_with(url, last["request"], "OPS-901")["id"]
    post(url, "pin", {"passage": id_, "pinned": True})
    thread.join(10)
    assert not thread.is_alive()
    kinds = [kind for kind, _ in heard]
    assert kinds.count("request") == 13
    assert kinds.count("compaction") == kinds.count("restore") == 1
    assert next(seen for kind, seen in heard if kind == "restore")["id"] == last["request"]


def test_a_reader_that_does_not_keep_up_is_let_go():
    import asyncio

    from lantern_proxy.admin.events import MAX_QUEUED, Events

    async def scene() -> tuple[int, list[bytes]]:
        live = Events()
        slow = live.stream()
        await anext(slow)
        for n in range(MAX_QUEUED + 1):
            live.send("request", {"n": n})
        return len(live), [frame async for frame in slow]

    assert asyncio.run(scene()) == (0, [])


def test_a_stop_ends_the_streams():
    import asyncio

    from lantern_proxy.admin.events import Events

    async def scene() -> list[bytes]:
        live = Events()
        stream = live.stream()
        first = [await anext(stream)]
        live.stop()
        return first + [frame async for frame in stream]

    assert len(asyncio.run(scene())) == 1
