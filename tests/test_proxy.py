"""One request's story, through the real app: headers, blocks, the ledger, tenants, many at once."""

import asyncio
import gzip
import hashlib
import json
import re
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import httpx
import pytest
from scripted import (
    CHUNKED,
    SSE,
    ReceivedRequest,
    Upstream,
    Wire,
    ask,
    body,
    completion,
    config_for,
    echo,
    http,
    lantern_headers,
    respond,
    serving,
    stream,
    wait_for,
)

from lantern_proxy import Lantern
from lantern_proxy.archive import Archive
from lantern_proxy.config import ArchiveConfig, Config, RestoreConfig, TenantConfig, UpstreamConfig
from lantern_proxy.follow import follow, reply
from lantern_proxy.history.record import chains, place_key
from lantern_proxy.proxy.ledger import Anchor, Ledgers, block_at, replay
from lantern_proxy.proxy.open_archive import Opened
from lantern_proxy.proxy.tenants import Tenants
from lantern_proxy.turn import Answer, Identity, Request, Restored
from lantern_proxy.wire import chat

BLOCK = re.compile(r"(?:\n\n)?<restored_context.*?</restored_context>", re.S)
CHAT = "/v1/chat/completions"
CONTRACT = {"request", "session", "event", "restored", "chars", "ms"}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    archive = ArchiveConfig(path=tmp_path_factory.mktemp("proxy") / "lantern.db", synchronous="normal", hold_ms=10_000)
    with Upstream() as upstream, serving(config_for(upstream, archive.path.parent, archive=archive)) as url:
        yield upstream, url


def fact(name: str, n: int) -> str:
    return (
        f"The {name} relay number {n} listens on port {20_000 + 37 * n} and its keeper is Agent-{name}-{n * 7919:05d}."
    )


def talk(
    url: str, name: str, turns: int = 8, *, key: str = "sk-one", tools: list | None = None, **headers: str
) -> list[dict]:
    """A conversation of `turns` turns, each with a fact of its own; the messages as its client has them then."""
    messages: list[dict] = []
    for n in range(turns):
        messages.append({"role": "user", "content": fact(name, n)})
        answer = ask(url, body(*messages, **({"tools": tools} if tools else {})), key, **headers)
        assert answer.status_code == 200, answer.text
        messages.append(answer.json()["choices"][0]["message"])
    return messages


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]


def cut(messages: list[dict], question: str, keep: int = 4) -> list[dict]:
    """What a client sends that silently drops the oldest messages."""
    return [*messages[-keep:], {"role": "user", "content": question}]


def without_blocks(value):
    """A parsed request without our blocks, and without the parts that held nothing else."""
    if isinstance(value, str):
        return BLOCK.sub("", value)
    if isinstance(value, list):
        kept = [without_blocks(each) for each in value]
        return [new for old, new in zip(value, kept, strict=True) if not _was_only_a_block(old)]
    return {key: without_blocks(each) for key, each in value.items()} if isinstance(value, dict) else value


def _was_only_a_block(value) -> bool:
    kinds = ("text", "input_text")
    return isinstance(value, dict) and value.get("type") in kinds and not BLOCK.sub("", value.get("text", "x")).strip()


# headers


def test_every_answer_of_a_memory_path_carries_our_headers(url, upstream):
    for n, (status, content) in enumerate(
        [(200, completion("ok")), (429, b"{}"), (500, b"no"), (400, b"bad"), (200, b"?")]
    ):
        upstream.answer = respond(status, content)
        found = lantern_headers(ask(url, body(f"headers {n}")))
        assert found.keys() == CONTRACT
        assert re.fullmatch(r"req_[0-9a-f]{16}", found["request"])
        assert (found["event"], found["restored"], found["chars"]) == ("new", "0", "0")
        assert float(found["ms"]) >= 0
    upstream.answer = stream(b"data: [DONE]\n\n")
    assert lantern_headers(ask(url, body("streamed", stream=True))).keys() == CONTRACT
    malformed = lantern_headers(http.post(f"{url}/chat/completions", content=b"{"))
    assert malformed.keys() == CONTRACT
    assert (malformed["event"], malformed["session"]) == ("passthrough", "-")


def test_events_follow_the_conversation(url, upstream):
    messages = talk(url, "events", 2)
    first = lantern_headers(ask(url, body(*messages, "one more thing")))
    again = lantern_headers(ask(url, body(*messages, "one more thing")))
    other = lantern_headers(ask(url, body(*messages[:2], "something else instead")))
    assert [first["event"], again["event"], other["event"]] == ["turn", "retry", "branch"]
    assert len({found["session"] for found in (first, again, other)}) == 1
    assert len({found["request"] for found in (first, again, other)}) == 3


def test_resends_do_not_double_the_archive(url, upstream):
    messages = talk(url, "resend", 2)
    sent = body(*messages, "the same again")
    upstream.answer = respond(200, completion("always the same answer"))
    session = [lantern_headers(ask(url, sent))["session"] for _ in range(4)][-1]
    texts = [m["text"] for m in http.get(f"{url}/lantern/api/sessions/{session}").json()["messages"]]
    assert len(texts) == len(set(texts)) == 6


def test_a_client_may_name_a_session_by_the_id_that_it_was_told(url, upstream):
    first = lantern_headers(ask(url, body("we met at the pier of Lisbon")))
    again = lantern_headers(ask(url, body("something quite different"), x_lantern_session=first["session"]))
    stranger = lantern_headers(
        ask(url, body("something quite different"), "sk-other", x_lantern_session=first["session"])
    )
    assert again["session"] == first["session"] != stranger["session"]


def test_an_explicit_session_holds_what_its_content_does_not_show(url, upstream):
    one = lantern_headers(ask(url, body("alpha"), x_lantern_session="mine"))
    two = lantern_headers(ask(url, body("an entirely different text"), x_lantern_session="mine"))
    three = lantern_headers(ask(url, body("alpha"), x_lantern_session="another"))
    assert one["session"] == two["session"] != three["session"]
    assert upstream.got[-1].header("x-lantern-session") is None


# blocks


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions", "/deep/er/chat/completions?beta=1"])
def test_what_was_lost_is_back_and_the_request_is_the_clients_but_for_the_block(url, upstream, path):
    name = f"block{len(path)}"
    messages = talk(url, name, tools=TOOLS)
    sent = {
        "model": "m",
        "temperature": 1.0,
        "n": 2,
        "unknown": {"x": [1e3, None]},
        "tools": TOOLS,
        "messages": cut(messages, f"Who keeps the {name} relay number 1?"),
    }
    response = http.post(url + path, json=sent, headers={"authorization": "Bearer sk-one"})
    found, got = lantern_headers(response), upstream.got[-1]
    assert found["event"] == "window"
    assert int(found["restored"]) > 0
    assert fact(name, 1).split("keeper is ")[1] in got.texts
    assert without_blocks(got.data) == sent
    blocks = BLOCK.findall(json.dumps(got.data, ensure_ascii=False).replace("\\n", "\n"))
    assert blocks
    assert sum(len(m["content"]) for m in got.data["messages"]) - sum(
        len(m["content"]) for m in sent["messages"]
    ) == int(found["chars"]) + 2 * len(blocks)


def response(text: str) -> bytes:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return json.dumps({"id": "resp_1", "object": "response", "output": [said]}).encode()


@pytest.mark.parametrize("answered", [completion, response])
def test_a_body_of_responses_at_the_path_of_chat_is_archived_and_restored_into_as_any_other(url, upstream, answered):
    name = f"swapped{answered.__name__}"

    def item(role: str, text: str) -> dict:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"role": role, "content": [{"type": kind, "text": text}]}

    def post(items: list[dict]) -> tuple[dict, httpx.Response]:
        sent = {"model": "m", "input": [item("system", f"You help with {name}."), *items], "unknown": [1e3, None]}
        return sent, http.post(url + "/v1/chat/completions", json=sent, headers={"authorization": "Bearer sk-one"})

    history, seen = [], []
    for n in range(12):
        history.append(item("user", f"Question {n} about the {name} relays, please."))
        upstream.answer = respond(200, answered(fact(name, n)), ("content-type", "application/json"))
        seen.append(lantern_headers(post(history)[1])["event"])
        history.append(item("assistant", fact(name, n)))
    assert seen == ["new", *["turn"] * 11]
    sent, last = post([*history[-4:], item("user", f"Who keeps the {name} relay number 1?")])
    assert lantern_headers(last)["event"] == "window"
    assert fact(name, 1).split("keeper is ")[1] in upstream.got[-1].body.decode()
    assert without_blocks(upstream.got[-1].data) == sent


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_is_fetched_later_is_archived_and_passes_unchanged(tmp_path, streamed):
    """Responses with `background: true`. Nothing is archived of what is fetched of others, or is not awaited."""

    def told(status: str, text: str = "", id_: str = "resp_bg") -> bytes:
        said = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": text}],
        }
        whole = {"id": id_, "object": "response", "status": status, "output": [said] if text else []}
        kind = {"type": f"response.{status}", "response": whole}
        return (
            f"event: response.{status}\ndata: {json.dumps(kind)}\n\n".encode()
            if streamed
            else json.dumps(whole).encode()
        )

    kind = ("content-type", "text/event-stream" if streamed else "application/json")
    fetched: list[bytes] = []

    def fetch(url: str, content: bytes, id_: str = "resp_bg", key: str = "sk-one", **headers: str) -> None:
        upstream.answer = respond(200, content, kind)
        got = http.get(f"{url}/v1/responses/{id_}", headers={"authorization": f"Bearer {key}", **headers})
        assert got.content == content
        assert not [name for name in got.headers if name.startswith("x-lantern")]
        fetched.append(got.content)

    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            asked = {"model": "m", "input": "Where is the spare key?", "background": True, "stream": streamed}
            upstream.answer = respond(200, told("queued"), kind)
            http.post(f"{url}/v1/responses", json=asked, headers={"authorization": "Bearer sk-one"})
            fetch(url, told("in_progress", "Half of it."))
            fetch(url, told("completed", "Stranger.", "resp_other"), "resp_other")
            fetch(url, told("completed", "Thief."), key="sk-two")
            fetch(url, told("completed", "Unkept."), **{"x-lantern-archive": "off"})
            for _ in range(2):
                fetch(url, told("completed", "Under the GATE-4711 stone."))
            more = {"model": "m", "input": "Thanks.", "previous_response_id": "resp_bg"}
            upstream.answer = respond(200, response("Welcome."), ("content-type", "application/json"))
            last = http.post(f"{url}/v1/responses", json=more, headers={"authorization": "Bearer sk-one"})
            assert lantern_headers(last)["event"] == "turn"
    with Archive(config.archive.path) as archive:
        (tenant,) = archive.tenants()
        mine = archive.of(tenant.id)
        (session,) = mine.sessions()
        texts = [filed.message.text for filed in mine.messages(session.id)]
        assert texts == ["Where is the spare key?", "Under the GATE-4711 stone.", "Thanks.", "Welcome."]
        assert mine.search("GATE-4711")


@pytest.mark.parametrize("is_told_before", [True, False])
def test_a_last_event_that_comes_in_pieces_is_archived_whole(tmp_path, is_told_before):
    def event(kind: str, **more) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()

    text = f"The relay is in hall {['B', 'A'][is_told_before]}."
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    last = event("response.completed", response={"id": "resp_9", "output": [said], "instructions": "x" * 9_000})
    before = event("response.output_item.done", item=said) if is_told_before else b""

    async def answer(got: ReceivedRequest, wire: Wire) -> None:
        await wire.head(200, ("content-type", "text/event-stream"), ("transfer-encoding", "chunked"))
        await wire.chunk(event("response.created", response={"id": "resp_9", "output": []}) + before)
        for piece in (last[:40], last[40:5_000], last[5_000:]):
            await wire.chunk(piece)
            await asyncio.sleep(0.05)
        await wire.send(b"0\r\n\r\n")

    with Upstream(answer) as upstream, serving(config := config_for(upstream, tmp_path)) as url:
        got = http.post(f"{url}/v1/responses", json={"model": "m", "input": "Where is it?", "stream": True})
        assert got.content.endswith(last)
    with Archive(config.archive.path) as archive:
        [tenant] = [t.id for t in archive.tenants()]
        kept = archive.of(tenant).messages(lantern_headers(got)["session"])
    assert [(f.message.text, f.partial) for f in kept[1:]] == [(text, False)]


def test_a_body_whose_digest_is_told_is_not_changed(url, upstream):
    messages = talk(url, "digest")
    sent = json.dumps(body(*cut(messages, "Which port has the digest relay number 1?"))).encode()
    headers = {"authorization": "Bearer sk-one", "content-type": "application/json", "content-md5": "Zm9v"}
    answer = http.post(f"{url}/v1/chat/completions", content=sent, headers=headers)
    assert upstream.got[-1].body == sent
    assert (lantern_headers(answer)["event"], lantern_headers(answer)["degraded"]) == ("window", "restore:digest")


SHAPES = {
    "text": lambda text: text,
    "parts": lambda text: [{"type": "text", "text": text}],
    "cache_control": lambda text: [
        {"type": "text", "text": "look"},
        {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}},
    ],
    "image first": lambda text: [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "text", "text": text},
    ],
    "odd white space": lambda text: f"\n  {text}\t\u00a0\n",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_block_finds_its_place_in_every_shape_of_content(url, upstream, shape):
    name = "shape" + re.sub(r"\W", "", shape)
    messages = talk(url, name)
    for each in messages[-4:]:
        if each["role"] == "user":
            each["content"] = SHAPES[shape](each["content"])
            each["name"] = "ann"
    sent = cut(messages, "")
    sent[-1]["content"] = SHAPES[shape](f"Who keeps the {name} relay number 2?")
    sent.insert(-1, {"role": "user", "content": "two in a row"})
    found = lantern_headers(ask(url, body(*sent)))
    got = upstream.got[-1]
    assert int(found["restored"]) > 0
    assert without_blocks(got.data)["messages"] == sent
    assert fact(name, 2).split("keeper is ")[1] in got.texts
    for was, now in zip(sent, got.data["messages"], strict=True):
        if isinstance(was["content"], list):  # parts that were there keep their order, cache_control its last place
            assert [part for part in now["content"] if part in was["content"]] == was["content"]


def test_all_bytes_outside_the_block_are_the_clients(url, upstream):
    messages = cut(talk(url, "bytes"), "Who keeps the bytes relay number 3?")
    sent = json.dumps({"temperature": 0.10, "messages": messages, "model": "m"}, indent=3).replace("0.1", "1.0E-1")
    sent = sent.replace('"relay', '"\\u0072elay').encode()
    response = http.post(f"{url}/v1/chat/completions", content=sent, headers={"authorization": "Bearer sk-one"})
    assert int(lantern_headers(response)["restored"]) > 0
    assert re.sub(rb"(?:\\n\\n)?<restored_context.*?</restored_context>", b"", upstream.got[-1].body) == sent


@pytest.mark.parametrize("no", ["off", "false", "0"])
def test_restore_off_adds_nothing_to_this_request_only(url, upstream, no):
    messages = talk(url, f"unmoved{no}")
    sent = body(*cut(messages, f"Who keeps the unmoved{no} relay number 1?"))
    off = lantern_headers(ask(url, sent, x_lantern_restore=no))
    assert (off["restored"], off["chars"], upstream.got[-1].data) == ("0", "0", sent)
    assert off["event"] == "window"
    again = lantern_headers(
        ask(url, body(*sent["messages"], "hm", f"And who keeps the unmoved{no} relay number 1 then?"))
    )
    assert int(again["restored"]) > 0


def test_the_same_question_without_and_then_with_restores_gets_what_was_lost(url, upstream):
    """As somebody asks who wants to see what Lantern does."""
    sent = body(*cut(talk(url, "compared"), "Who keeps the compared relay number 1?"))
    off = [lantern_headers(ask(url, sent, x_lantern_restore="off")) for _ in range(2)]
    assert [(each["event"], each["restored"]) for each in off] == [("window", "0"), ("retry", "0")]
    found = lantern_headers(ask(url, sent))
    with_it = upstream.got[-1].body
    assert found["event"] == "retry"
    assert int(found["restored"]) > 0
    assert fact("compared", 1).split("keeper is ")[1] in upstream.got[-1].texts
    ask(url, sent, x_lantern_restore="off")
    ask(url, sent)
    assert upstream.got[-1].body == with_it, "a block is chosen once"


def test_what_was_lost_while_restores_were_off_comes_with_the_next_question(url, upstream):
    messages = cut(talk(url, "later"), "Thanks, go on please.")
    ask(url, body(*messages), x_lantern_restore="off")
    ask(url, body(*messages, {"role": "assistant", "content": "hm"}, {"role": "user", "content": "And now?"}))
    assert fact("later", 1).split("keeper is ")[1] in upstream.got[-1].texts, "the loss block, not one for a question"


@pytest.mark.parametrize("text", ["Please generate a short title for this conversation, 3-7 words.", ""])
def test_a_side_call_is_never_restored_into(url, upstream, text):
    messages = talk(url, "side" + str(len(text)))
    system = "Generate a concise title for the conversation. Respond with the title only, in plain text, nothing else."
    first = messages[0]["content"]
    found = lantern_headers(
        ask(
            url,
            {
                "model": "m",
                "messages": [{"role": "system", "content": system}, {"role": "user", "content": f"{first} {text}"}],
            },
        )
    )
    assert (found["restored"], found["chars"]) == ("0", "0")


def shared(a: bytes, b: bytes) -> int:
    """Length of the common beginning."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def prefix_kept(sent: list[bytes], got: list[bytes]) -> float:
    """Least share of what two following requests have in common that is still common in what went up."""
    pairs = zip(pairwise(sent), pairwise(got), strict=True)
    return min((shared(*went) + 1) / (shared(*came) + 1) for came, went in pairs)


def dump(messages: list[dict]) -> bytes:
    return json.dumps(messages, ensure_ascii=False).encode()


def test_blocks_are_replayed_byte_for_byte_for_twenty_turns_and_after_a_restart(tmp_path):
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        sent, got, blocks = [], [], []

        def go_on(url: str, messages: list[dict], turns: range) -> None:
            for n in turns:
                messages.append(
                    {"role": "user", "content": f"Thanks. Next, line {n}: who keeps the cache relay number {n % 4}?"}
                )
                answer = ask(url, body(*messages))
                sent.append(dump(messages))
                got.append(dump(upstream.got[-1].data["messages"]))
                blocks.append(BLOCK.findall(got[-1].decode().replace("\\n", "\n")))
                assert lantern_headers(answer)["restored"] != "0"
                messages.append(answer.json()["choices"][0]["message"])

        with serving(config) as url:
            messages = talk(url, "cache")[-4:]
            go_on(url, messages, range(10))
        with serving(config) as url:
            go_on(url, messages, range(10, 21))
            health = http.get(f"{url}/lantern/health").json()
    for before, after in pairwise(blocks):
        assert after[: len(before)] == before
    assert prefix_kept(sent, got) >= 0.99
    assert health["events"] == {"turn": 11}


def test_a_result_that_was_cleared_before_a_restart_brings_no_second_block_after_it(tmp_path):
    listing = "\n".join(f"{n:03} the relay of line {n} listens on port {4000 + n}" for n in range(40))
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    with Upstream() as upstream:
        config, blocks = config_for(upstream, tmp_path), []

        def go_on(url: str, *said: str) -> list[str]:
            events = []
            for text in said:
                messages.append({"role": "user", "content": text})
                answer = ask(url, body(*messages))
                events.append(lantern_headers(answer)["event"])
                blocks.append(BLOCK.findall(dump(upstream.got[-1].data["messages"]).decode().replace("\\n", "\n")))
                messages.append(answer.json()["choices"][0]["message"])
            return events

        with serving(config) as url:
            messages = talk(url, "relay", 2)
            messages += [{"role": "user", "content": "read the list"}, {"role": "assistant", "tool_calls": [call]},
                         {"role": "tool", "tool_call_id": "call_1", "content": listing}]  # fmt: skip
            go_on(url, "what does it say?", "and what is it for?")
            at = next(n for n, m in enumerate(messages) if m["role"] == "tool")
            messages[at] = messages[at] | {"content": "[cleared]"}
            assert go_on(url, "go on", "and on") == ["cleared", "turn"]
        with serving(config) as url:
            assert go_on(url, "still there?", "fine") == ["turn", "turn"]
    assert blocks[-3]
    assert blocks[-1] == blocks[-2] == blocks[-3]


@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_client_took_back_is_not_put_back_after_a_restart_either(tmp_path, restarted):
    def respond(url: str, text: str) -> None:
        messages.append({"role": "user", "content": text})
        messages.append(ask(url, body(*messages)).json()["choices"][0]["message"])

    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            messages = talk(url, "relay", 2)
            respond(url, "The spare valve Kuborsel is delivered on the 17th to gate Brimhalt.")
            messages = messages[:-2]
            respond(url, "The spare valve Kuborsel is delivered on the 21st to gate Ostermoor.")
            for n in range(4):
                respond(url, fact("cache", n))
            if not restarted:
                ask(url, body(*cut(messages, "To which gate is the spare valve Kuborsel delivered?")))
        if restarted:
            with serving(config) as url:
                ask(url, body(*cut(messages, "To which gate is the spare valve Kuborsel delivered?")))
    sent = dump(upstream.got[-1].data["messages"]).decode()
    assert "Ostermoor" in sent
    assert "Brimhalt" not in sent


REFUSALS = [
    (400, "This model's maximum context length is 8192 tokens, context_length_exceeded"),
    (400, "prompt is too long: 210000 tokens > 200000 maximum"),
    (413, "request_too_large: Request exceeds the maximum size"),
    (413, "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 6294, please reduce"),
    (429, "Request too large for m on tokens per min (TPM): Limit 30000, Requested 30342."),
    (400, "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it"),
    (500, "Jinja Exception: After the optional system message, conversation roles must alternate"),
    (403, "m requires moderation and your input was flagged"),
]


@pytest.mark.parametrize(("status", "message"), REFUSALS)
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_refused_for_a_block_is_asked_again_without_it(url, upstream, status, message, packed):
    name = f"length{status}{len(message)}{packed}"
    messages = talk(url, name)
    upstream.got.clear()

    async def answer(got, wire):
        if "restored_context" not in got.texts:
            await echo(got, wire)
        else:
            content = json.dumps({"error": {"message": message}}).encode()
            content = gzip.compress(content) if packed else content
            await respond(status, content, *([("content-encoding", "gzip")] if packed else []))(got, wire)

    upstream.answer = answer
    sent = body(*cut(messages, f"Who keeps the {name} relay number 1?"))
    response = ask(url, sent)
    assert response.status_code == 200
    assert [got.data == sent for got in upstream.got] == [False, True]
    assert (
        lantern_headers(response)["degraded"],
        lantern_headers(response)["restored"],
        lantern_headers(response)["chars"],
    ) == (
        "restore:refused",
        "0",
        "0",
    )


def test_a_conversation_that_was_refused_for_its_length_is_sent_once_until_it_is_shorter(url, upstream):
    messages = talk(url, "refused")

    async def answer(got, wire):
        if "restored_context" in got.texts and len(got.body) > most_bytes:
            await respond(400, b'{"error": {"message": "prompt is too long"}}')(got, wire)
        else:
            await echo(got, wire)

    upstream.answer = answer
    left = cut(messages, "Who keeps the refused relay number 1?")
    most_bytes, asked = 0, []
    for n in range(3):
        upstream.got.clear()
        response = ask(url, body(*left))
        asked.append((len(upstream.got), lantern_headers(response)["degraded"]))
        left += [response.json()["choices"][0]["message"]["content"], f"Who keeps the refused relay number {n + 2}?"]
    assert asked == [(2, "restore:refused"), (1, "restore:refused"), (1, "restore:refused")]
    most_bytes, short = 100_000, cut(messages, "Who keeps relay 1?")[-1:]
    session = lantern_headers(response)["session"]
    response = ask(url, body(*short), x_lantern_session=session)
    assert int(lantern_headers(response)["restored"]) > 0
    longer = ask(url, body(*left, "and now, " + "with many words, " * 99), x_lantern_session=session)
    assert "degraded" not in lantern_headers(longer)  # since that was taken


def test_a_refusal_of_the_clients_own_making_passes(url, upstream):
    refusal = b'{"error": {"code": "context_length_exceeded", "message": "maximum context length"}}'
    messages = talk(url, "own")
    upstream.got.clear()
    upstream.answer = respond(400, refusal)
    response = ask(url, body(*messages, "too much"))
    assert (response.status_code, response.content, len(upstream.got)) == (400, refusal, 1)
    question, later = "Who keeps the own relay number 1?", [{"role": "assistant", "content": "I see."}, fact("own", 9)]
    for status, other in [(400, b'{"error": "tools[0].name is not valid"}'), (429, b'{"error": "rate limit"}')]:
        upstream.got.clear()
        upstream.answer = respond(status, other)
        response = ask(url, body(*cut(messages, question)))
        assert (response.status_code, response.content) == (status, other)
        sent = ["restored_context" in got.texts for got in upstream.got]
        assert sent == ([True, False] if status == 400 else [True])
        assert "degraded" not in lantern_headers(response)
    upstream.answer = echo
    assert int(lantern_headers(ask(url, body(*cut(messages, question), *later)))["restored"]) > 0


def test_a_refusal_for_length_within_a_stream_lets_the_next_request_go_without_the_block(url, upstream):
    messages = talk(url, "within")
    failed = {"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": "m"}}}
    upstream.answer = stream(b"event: response.failed\ndata: " + json.dumps(failed).encode() + b"\n\n")
    upstream.got.clear()
    asked = body(*cut(messages, "Who keeps the within relay number 1?"), stream=True)
    response = ask(url, asked)
    assert (int(lantern_headers(response)["restored"]) > 0, "degraded" in lantern_headers(response)) == (True, False)
    upstream.answer = echo
    response = ask(url, asked)
    assert (lantern_headers(response)["restored"], lantern_headers(response)["degraded"]) == ("0", "restore:refused")
    assert upstream.got[-1].data == asked


def test_a_refusal_is_passed_on_if_the_upstream_is_gone_when_it_is_asked_again(url, upstream):
    messages = talk(url, "gone")

    async def answer(got, wire):
        if "restored_context" in got.texts:
            await respond(400, b'{"error": "no"}')(got, wire)
        else:
            wire.reset()

    upstream.answer = answer
    response = ask(url, body(*cut(messages, "Who keeps the gone relay number 1?")))
    assert (response.status_code, response.content) == (400, b'{"error": "no"}')


RESPONSE = {"id": "resp_1", "output": []}


def response_events(*kinds: str, **response) -> list[bytes]:
    """Events of a streamed response of OpenAI's, one a chunk."""
    found = [(kind, {"type": kind, "response": {**RESPONSE, **response}}) for kind in kinds]
    return [f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode() for kind, data in found]


FULL = {"error": {"code": "context_length_exceeded", "message": "Your input exceeds the context window"}}
STARTED = response_events("response.created", "response.in_progress")
ANSWERED = [*STARTED, *response_events("response.completed")]


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize("is_ours", [True, False])
def test_a_refusal_within_a_stream_of_responses_is_asked_again_without_the_block(url, upstream, step, is_ours):
    name, refusal = f"within{step}{is_ours}", b"".join([*STARTED, *response_events("response.failed", **FULL)])
    pieces = [refusal[at : at + step] for at in range(0, len(refusal), step)]

    async def answer(got, wire):
        refused = "restored_context" in got.body.decode() or not is_ours
        await stream(*(pieces if refused else ANSWERED))(got, wire)

    messages = talk_by_responses(url, upstream, name)
    upstream.got.clear()
    upstream.answer = answer
    response = post_response(url, cut(messages, f"Who keeps the {name} relay number 1?"), name)
    assert ["restored_context" in got.body.decode() for got in upstream.got] == [True, False]
    assert response.content == (b"".join(ANSWERED) if is_ours else refusal)
    assert lantern_headers(response).get("degraded") == ("restore:refused" if is_ours else None)


def test_a_refusal_within_a_stream_that_does_not_end_is_let_go_of(tmp_path):
    async def answer(got, wire):
        if "restored_context" not in got.body.decode():
            await stream(*ANSWERED)(got, wire)
            return
        await wire.head(200, SSE, CHUNKED)
        for event in (*STARTED, *response_events("response.failed", **FULL)):
            await wire.chunk(event)
        await wire.closed()

    with Upstream() as upstream:
        only_one = UpstreamConfig(openai=f"{upstream.url}/v1", max_connections=1)
        with serving(config_for(upstream, tmp_path, upstream=only_one)) as url:
            messages = talk_by_responses(url, upstream, "only")
            upstream.answer = answer
            response = post_response(url, cut(messages, "Who keeps the only relay number 1?"), "only")
    assert response.content == b"".join(ANSWERED)
    assert lantern_headers(response)["degraded"] == "restore:refused"


def talk_by_responses(url: str, upstream: Upstream, name: str) -> list[dict]:
    upstream.answer, messages = stream(*ANSWERED), []
    for n in range(8):
        messages.append({"role": "user", "content": fact(name, n)})
        post_response(url, messages, name)
        messages.append({"role": "assistant", "content": f"I note {n}."})
    return messages


def post_response(url: str, said: list[dict], session: str) -> httpx.Response:
    headers = {"authorization": "Bearer sk-one", "x-lantern-session": session}
    return http.post(f"{url}/v1/responses", json={"model": "m", "input": said, "stream": True}, headers=headers)


def test_an_answer_that_begins_slowly_is_held_back_for_a_moment_only(url, upstream):
    messages = talk_by_responses(url, upstream, "slow")

    async def answer(got, wire):
        await wire.head(200, SSE, CHUNKED)
        for event in (*STARTED, *response_events("response.completed")):
            await wire.chunk(event)
            await asyncio.sleep(3)
        await wire.send(b"0\r\n\r\n")

    upstream.answer = answer
    asked = {"model": "m", "input": cut(messages, "Who keeps the slow relay number 1?")}
    headers, started = {"authorization": "Bearer sk-one", "x-lantern-session": "slow"}, time.monotonic()
    with http.stream("POST", f"{url}/v1/responses", json=asked | {"stream": True}, headers=headers) as response:
        assert int(lantern_headers(response)["restored"]) > 0
        assert time.monotonic() - started < 3
        assert b"".join(response.iter_raw()) == b"".join(ANSWERED)


# whose it is


CUT_WITHIN_A_SIGN = "The launch code is 7431-KB and all is fine \ud83d"
"""As JavaScript's slice() leaves it."""


@pytest.mark.parametrize("session", [{}, {"x_lantern_session": "half"}])
def test_an_answer_that_its_client_cuts_within_a_character_costs_nothing(url, upstream, session):
    upstream.answer = respond(
        200, completion("The launch code is 7431-KB and all is fine \U0001f600 with all the rest of it.")
    )
    messages = [{"role": "user", "content": f"what is the launch code? {session}"}]
    first = lantern_headers(ask(url, body(*messages), **session))["session"]
    messages += [{"role": "assistant", "content": CUT_WITHIN_A_SIGN}, {"role": "user", "content": "and now?"}]
    for n in range(2):
        later = http.post(
            f"{url}{CHAT}", content=json.dumps(body(*messages)),
            headers={"authorization": "Bearer sk-one", "content-type": "application/json"}
            | {name.replace("_", "-"): value for name, value in session.items()},
        )  # fmt: skip
        assert (lantern_headers(later)["event"], lantern_headers(later)["session"]) == ("turn", first)
        assert "degraded" not in lantern_headers(later)
        messages += [{"role": "assistant", "content": f"fine {n}"}, {"role": "user", "content": f"more {n}"}]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
def test_an_answer_with_half_a_character_is_archived(tmp_path, path):
    text = "The port is 7461 \ud83d"
    output = [
        {"type": "message", "id": "msg_9", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    ]
    whole = json.dumps({"id": "msg_1", "role": "assistant", "content": [{"type": "text", "text": text}]})
    last = json.dumps({"type": "response.completed", "response": {"id": "resp_1", "output": output}})
    answers = {
        "/v1/messages": respond(200, whole.encode()),
        "/v1/responses": stream(f"event: response.completed\ndata: {last}\n\n".encode()),
    }
    asked = body("which port?", stream=path == "/v1/responses", input="which port?")
    with Upstream(answer=answers[path]) as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            session = lantern_headers(http.post(url + path, json=asked, headers={"authorization": "Bearer k"}))[
                "session"
            ]
        with Archive(config.archive.path) as archive:
            kept = archive.of(archive.tenants()[0].id).messages(session)
    assert [each.message.text for each in kept[1:]] == [text]


def said_in(**data) -> bytes:
    """One event of a stream."""
    return b"data: %s\n\n" % json.dumps(data).encode()


SAID = "The vault number is 7431-KB"
_PIECE = said_in(type="response.output_text.delta", item_id="msg_1", delta=SAID)
_WHOLE = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": SAID}]}
_OTHER = {"type": "reasoning", "id": "rs_1", "summary": []}
BROKEN = {
    "failed": ("/v1/responses", _PIECE + said_in(type="response.failed", response={"id": "resp_1", "output": []})),
    "failed, and told": (
        "/v1/responses", _PIECE + said_in(type="response.failed", response={"id": "resp_1", "output": [_WHOLE]})
    ),
    "failed within a later item": (
        "/v1/responses",
        said_in(type="response.output_item.done", item=_OTHER) + _PIECE
        + said_in(type="response.failed", response={"id": "resp_1", "output": [_OTHER]}),
    ),
    "error": ("/v1/responses", _PIECE + said_in(type="error", code="server_error", message="down")),
    "chat": (
        "/v1/chat/completions",
        said_in(choices=[{"index": 0, "delta": {"content": SAID}}]) + said_in(error={"message": "down"}),
    ),
    "messages": (
        "/v1/messages",
        said_in(type="content_block_start", index=0, content_block={"type": "text", "text": ""})
        + said_in(type="content_block_delta", index=0, delta={"type": "text_delta", "text": SAID})
        + said_in(type="error", error={"type": "overloaded_error", "message": "down"}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", BROKEN)
def test_what_a_client_saw_of_a_stream_that_ends_in_an_error_is_archived(tmp_path, how):
    path, sent = BROKEN[how]
    with Upstream(answer=stream(sent)) as upstream, serving(config := config_for(upstream, tmp_path)) as url:
        asked = body("which vault?", stream=True, input="which vault?")
        session = lantern_headers(http.post(url + path, json=asked, headers={"authorization": "Bearer k"}))["session"]
    with Archive(config.archive.path) as archive:
        kept = archive.of(archive.tenants()[0].id).messages(session)
    assert [(f.message.text, f.partial) for f in kept[1:] if f.message.text] == [(SAID, True)]


@pytest.mark.parametrize("ends", ["answered", "asked"])
def test_an_import_that_went_on_is_known_after_a_restart(tmp_path, ends):
    """All of it was archived at one time."""
    said = []
    for n in range(10):
        said += [{"role": "user", "content": f"please tell me of office {n} in the street of {n * 37 + 11}"}]
        said += [{"role": "assistant", "content": f"Office {n} has the vault {7_000 + n * 37}-KB behind a green door."}]
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            ask(url, body("warm up"))
        with Lantern(config, user="sk-one") as lantern:
            lantern.archive("chat1", [*said, {"role": "user", "content": "and?"}] if ends == "asked" else said)
        with serving(config) as url:
            assert lantern_headers(ask(url, body(*said, {"role": "user", "content": "and?"})))["session"] == "chat1"
        with serving(config) as url:
            later = lantern_headers(
                ask(url, body(*said[12:], {"role": "user", "content": "a question without the last one?"}))
            )
    assert (later["event"], later["session"]) == ("window", "chat1")
    assert int(later["restored"]) > 0


def test_projects_whose_names_begin_alike_for_long_are_apart(url, upstream):
    upstream.answer = echo
    messages = talk(url, "alike", x_lantern_project="p" * 300 + "one")
    question = cut(messages, "Who keeps the alike relay number 1?")
    there = lantern_headers(ask(url, body(*question), x_lantern_project="p" * 300 + "two"))
    assert (there["event"], there["restored"]) == ("new", "0")


def test_projects_are_apart(url, upstream):
    messages = talk(url, "project", x_lantern_project="one")
    question = cut(messages, "Who keeps the project relay number 1?")
    there = lantern_headers(ask(url, body(*question), x_lantern_project="two"))
    here = lantern_headers(ask(url, body(*question), x_lantern_project="one"))
    assert (there["event"], there["restored"]) == ("new", "0")
    assert here["event"] == "window"
    assert int(here["restored"]) > 0


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_project_has_the_name_that_its_client_gave_it(url, encoding):
    """Programs send UTF-8, and a header is read as Latin-1."""
    name = f"Büro {encoding}"
    ask(url, body("hello"), x_lantern_project=name.encode(encoding))
    found = wait_for(lambda: http.get(f"{url}/lantern/api/sessions", params={"project": name}).json())
    assert [each["project"] for each in found] == [name]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_session_has_the_name_that_its_client_gave_it(url, encoding):
    name = f"Gespräch {encoding}"
    ask(url, body("hello"), x_lantern_session=name.encode(encoding))
    found = wait_for(lambda: http.get(f"{url}/lantern/api/sessions").json())
    assert name in [each["family"] for each in found]


def test_nothing_of_one_tenant_ever_reaches_another(url, upstream):
    """Two credentials take turns with the same texts but for their secrets, then both lose and ask."""
    keys = {"sk-red": "CANARY-RED-4711", "sk-blue": "CANARY-BLUE-0815"}
    talks: dict[str, list] = {key: [] for key in keys}
    sessions: dict[str, set[str]] = {key: set() for key in keys}
    upstream.got.clear()
    for n in range(6):
        for key, secret in keys.items():
            text = f"Our vault number {n} opens with {secret}-{n}, ask the night porter."
            answer = ask(url, body(*talks[key], {"role": "user", "content": text}), key)
            talks[key] += [{"role": "user", "content": text}, answer.json()["choices"][0]["message"]]
            sessions[key].add(lantern_headers(answer)["session"])
    for key in keys:
        answer = ask(url, body(*cut(talks[key], "What does vault number 1 open with?", keep=2)), key)
        sessions[key].add(lantern_headers(answer)["session"])
        assert int(lantern_headers(answer)["restored"]) > 0
        thief = ask(
            url,
            body("What does vault number 1 open with? Tell me CANARY-RED or CANARY-BLUE."),
            key,
            x_lantern_session="shared",
        )
        assert lantern_headers(thief)["restored"] == "0"
    assert len(sessions["sk-red"]) == len(sessions["sk-blue"]) == 1
    assert sessions["sk-red"] != sessions["sk-blue"]
    for got in upstream.got:
        other = {"Bearer sk-red": "CANARY-BLUE-", "Bearer sk-blue": "CANARY-RED-"}[got.header("authorization")]
        assert other not in got.body.decode()
    for key, secret in keys.items():
        mine = [t["id"] for t in http.get(f"{url}/lantern/api/tenants").json()]
        hits = {
            t: json.dumps(http.get(f"{url}/lantern/api/search", params={"q": secret, "tenant": t}).json()) for t in mine
        }
        assert sum(f"{secret}-1" in text for text in hits.values()) == 1, key


def test_credentials_of_one_configured_tenant_share_and_others_do_not(tmp_path):
    digests = [hashlib.sha256(key.encode()).hexdigest() for key in ("sk-a", "sk-b")]
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path, tenants={"team": TenantConfig(keys_sha256=digests)})
        with serving(config) as url:
            messages = talk(url, "team", 2, key="sk-a")
            events = [lantern_headers(ask(url, body(*messages, "and now?"), key))["event"] for key in ("sk-b", "sk-c")]
            tenants = {t["id"] for t in http.get(f"{url}/lantern/api/tenants").json()}
    assert events == ["turn", "new"]
    assert "team" in tenants
    assert len(tenants) == 2


@pytest.mark.parametrize("beside", [{}, {"authorization": "Bearer dummy"}, {"authorization": "Bearer"}])
@pytest.mark.parametrize("header", ["x-api-key", "api-key", "x-goog-api-key", "ocp-apim-subscription-key"])
def test_the_key_counts_wherever_it_stands_also_beside_a_dummy(url, upstream, beside, header):
    first, said = f"hello by {header} {beside}!", f"I heard: hello by {header} {beside}!"
    steps = [("k1", body(first)), ("k1", body(first, said, "go on")), ("k2", body(first, said, "go on"))]
    sent = [http.post(f"{url}/v1/chat/completions", json=each, headers={header: key} | beside) for key, each in steps]
    assert [lantern_headers(answer)["event"] for answer in sent] == ["new", "turn", "new"]
    assert upstream.got[-1].header(header) == "k2"


def test_one_of_two_keys_may_name_a_configured_tenant(tmp_path):
    digest = hashlib.sha256(b"sk-b").hexdigest()
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path, tenants={"team": TenantConfig(keys_sha256=[digest])})
        with serving(config) as url:
            ask(url, body("hello"), "dummy", api_key="sk-b")
            assert [t["id"] for t in http.get(f"{url}/lantern/api/tenants").json()] == ["team"]


def test_no_credential_is_stored_or_logged(tmp_path, caplog):
    caplog.set_level("DEBUG")
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        talk(url, "secret", 2, key="sk-very-secret-key-123")
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"relay number 1" in stored
    assert b"sk-very-secret" not in stored
    assert "sk-very-secret" not in caplog.text


# many at once


def test_many_conversations_at_once_are_neither_mixed_nor_lost(running):
    upstream, url = running
    upstream.answer = echo
    conversations, turns = 64, 10

    async def converse(client: httpx.AsyncClient, name: str) -> tuple[set[str], list[dict]]:
        messages, sessions = [], set()
        for n in range(turns):
            messages.append({"role": "user", "content": f"{name} says line {n} of its own"})
            async with client.stream(
                "POST", f"{url}/v1/chat/completions", json=body(*messages, stream=True)
            ) as response:
                came = (await response.aread()).decode()
            parts = [json.loads(line[6:]) for line in came.split("\n\n") if line.startswith("data: {")]
            text = "".join(part["choices"][0]["delta"].get("content", "") for part in parts)
            assert text == f"I heard: {name} says line {n} of its own"
            assert lantern_headers(response)["event"] == ("turn" if n else "new")
            sessions.add(lantern_headers(response)["session"])
            messages.append({"role": "assistant", "content": text})
        return sessions, messages

    async def one(name: str) -> tuple[set[str], list[dict]]:
        headers = {"authorization": "Bearer sk-crowd"}
        async with httpx.AsyncClient(headers=headers, timeout=120, verify=False) as client:
            return await converse(client, name)

    async def everyone():
        return await asyncio.gather(*(one(f"speaker {n:03d}") for n in range(conversations)))

    results = asyncio.run(everyone())
    assert all(len(sessions) == 1 for sessions, _ in results)
    assert len(set.union(*(sessions for sessions, _ in results))) == conversations
    for (session,), messages in results:
        kept = http.get(f"{url}/lantern/api/sessions/{session}").json()["messages"]
        assert [(m["role"], m["text"]) for m in kept] == [(m["role"], m["content"]) for m in messages]


def test_parallel_requests_of_one_session_share_its_ledger(url, upstream):
    messages = talk(url, "parallel")
    sent = body(*cut(messages, "Who keeps the parallel relay number 1?"))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ask(url, sent), range(8)))
    assert len({lantern_headers(a)["session"] for a in answers}) == 1
    assert sorted(lantern_headers(a)["event"] for a in answers) == ["retry"] * 7 + ["window"]
    assert len({got.body for got in upstream.got[-8:]}) == 1


def test_a_block_stays_where_it_is_when_the_text_that_it_rides_in_is_said_again():
    """The history before it was compacted meanwhile, so that only the text itself tells the place."""
    asked = {"role": "user", "content": "Which port was it?"}
    before = chat.read(json.dumps(body("Hello.", "Hi.", asked)).encode())
    restored = Restored(kind="question", text="", placed=(), considered=0, ms=0.0)
    block = block_at(Anchor(before, 2, None), "inside", restored, session="s", by="r", now=0.0)
    short = [
        {"role": "user", "content": "In short: a port was asked for."},
        asked,
        {"role": "assistant", "content": "9443"},
    ]
    for later in (short, [*short, asked]):
        request = chat.read(json.dumps({"model": "m", "messages": later}).encode())
        assert [insert.at for _, insert in replay([block], request)] == [1]


def test_a_block_goes_with_its_message_though_others_say_the_same():
    def read(*messages: str) -> Request:
        return chat.read(json.dumps(body(*messages)).encode())

    restored = Restored(kind="loss", text="", placed=(), considered=0, ms=0.0)
    block = block_at(
        Anchor(read("Begin.", "Begun.", "Go on."), 2, "first"), "inside", restored, session="s", by="r", now=0.0
    )
    later = read("Go on.", "Gone on.", "Go on.", "Gone on.", "Go on.")
    for kept, places in (
        (("first", "a", "second", "b", None), [0]),
        (("a", "b", "first", "c", None), [2]),
        (("second", "a", "third", "b", None), []),
        ((None,) * 5, [0]),  # a history in other words, or after what was known is forgotten
    ):
        assert [insert.at for _, insert in replay([block], later, kept)] == places


def test_a_block_stays_with_its_message_where_that_comes_back_behind_all_that_was_said():
    """The session knows the message by its place there, and has not shown it of late."""
    short, whole = (
        chat.read(json.dumps(body(*said, "Go on.", "Gone on.", "And now?")).encode())
        for said in (("In short: it has begun.", "Yes."), ("Begin.", "Begun.", "On.", "Gone on."))
    )
    restored, name = (
        Restored(kind="loss", text="", placed=(), considered=0, ms=0.0),
        place_key(chains(whole.messages)[4]),
    )
    block = block_at(Anchor(short, 2, name), "inside", restored, session="s", by="r", now=0.0)
    assert [insert.at for _, insert in replay([block], whole, ("a", "b", "c", *(None,) * 4))] == [4]


def test_a_block_goes_with_the_summary_in_its_message():
    """Clients that keep the first message put a new summary behind it with every compaction."""
    asked, restored = "Sort the harbour's papers.", Restored(kind="loss", text="", placed=(), considered=0, ms=0.0)
    before, after = (chat.read(json.dumps(body(f"{asked}\n\nSo far: {n} papers.")).encode()) for n in (40, 90))
    old = block_at(Anchor(before, 0, "first"), "inside", restored, session="s", by="r", now=0.0)
    new = block_at(Anchor(after, 0, "first"), "inside", restored, session="s", by="r", now=0.0)
    assert replay([old, new], before, ["first"])[0][0] == old
    assert [block for block, _ in replay([old, new], after, ["first"])] == [new]


def test_a_block_stays_in_an_older_message_that_its_client_puts_a_note_around():
    asked, restored = "Sort the harbour's papers.", Restored(kind="loss", text="", placed=(), considered=0, ms=0.0)
    said = f"So far: 40 papers.\n\n{asked}"
    before, after = (chat.read(json.dumps(body(each)).encode()) for each in (said, f"<cwd>/quay</cwd>\n\n{said}"))
    old = block_at(Anchor(before, 0, "first"), "inside", restored, session="s", by="r", now=0.0)
    ((moved, insert),) = replay([old], after, ["first"], {0: old.anchor})
    assert (insert.at, moved.restored) == (0, restored)
    assert [block for block, _ in replay([old, moved], after, ["first"])] == [moved]
    assert [block for block, _ in replay([old, moved], before, ["first"])] == [old]
    assert [block for block, _ in replay([old, moved], after, ["first"], {0: old.anchor})] == [moved]
    assert replay([old], after, ["first"], {0: after.messages[0].print.hex()}) == []
    assert [block for block, _ in replay([old, moved], before, ["first"])] == [old]
    noted_again = replay([old, moved], after, ["first"], {0: old.anchor})
    assert [block for block, _ in noted_again] == [moved]


def test_a_block_stays_when_its_client_takes_back_what_it_wrote_beside_the_question(url, upstream):
    """Clients put a time or their open files behind the text that waits for its answer, and leave them out later."""
    messages, question = talk(url, "dress"), "Who keeps the dress relay number 1?"
    asked = ask(url, body(*cut(messages, f"{question}\n\n<environment_details>\ntime: 10:05\n</environment_details>")))
    assert int(lantern_headers(asked)["restored"]) > 0
    answer = asked.json()["choices"][0]["message"]["content"]
    later = lantern_headers(ask(url, body(*cut(messages, question), answer, "Thank you.")))
    assert later["event"] == "turn"
    assert (later["restored"], later["chars"]) == (lantern_headers(asked)["restored"], lantern_headers(asked)["chars"])
    assert "Agent-dress-1" in upstream.got[-1].texts


def test_ledgers_and_their_queues_do_not_grow_without_end():
    async def through() -> tuple[int, int]:
        ledgers = Ledgers(lambda key: [], kept=10)

        async def one(n: int) -> None:
            async with ledgers.of(("t", f"s{n % 300}")):
                await asyncio.sleep(0)

        await asyncio.gather(*(one(n) for n in range(900)))
        return len(ledgers), len(ledgers._queues)

    assert asyncio.run(through()) == (10, 0)


def test_an_empty_ledger_that_is_looked_at_stays_in_memory():
    """Most requests only ask whether there is anything in it."""
    ledgers = Ledgers(lambda key: [], kept=10)
    for n in range(30):
        ledgers.is_empty(("t", f"s{n}"), new=True)
        assert ledgers.is_empty(("t", "s0"))


def test_tenants_seen_longest_ago_make_room(tmp_path):
    async def through() -> tuple[bool, bool, int]:
        tenants = Tenants(Config(), sessions=50)
        for n in range(200):
            request = chat.read(json.dumps(body(f"text {n}")).encode())
            index, _ = await tenants.locate((f"t{n}", ""), request, Identity(), float(n))
            step = follow(index, request, Identity(), now=float(n), new_id=lambda n=n: f"s{n}")
            reply(index, step.session, Answer(messages=()), now=float(n))
        return tenants.index_of(("t0", "")) is None, tenants.index_of(("t199", "")) is not None, len(tenants._mine)

    gone, kept, held = asyncio.run(through())
    assert gone
    assert kept
    assert held <= 52


def test_after_a_restart_a_conversation_goes_on_in_its_session(tmp_path):
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        messages = talk(url, "again", 3)
        before = lantern_headers(ask(url, body(*messages, "now?")))
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        after = lantern_headers(ask(url, body(*messages, "now?", "I heard: now?", "then?")))
    assert after["session"] == before["session"]
    assert after["event"] == "turn"


def test_after_a_restart_a_text_that_two_conversations_share_takes_none_of_them_for_the_other(tmp_path):
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        first, second = talk(url, "first", 3), talk(url, "second", 3)
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        one = lantern_headers(ask(url, body(*first, "Please write down where we are.")))
        other = lantern_headers(ask(url, body(*second, "Please write down where we are.")))
    assert one["event"] == other["event"] == "turn"
    assert one["session"] != other["session"]


def test_after_a_restart_who_names_a_session_is_compared_with_no_other_before_the_archive_is_asked(tmp_path):
    """Agents come back with long histories that are alike: to compare each with all takes seconds of the event loop."""

    class Asked(defaultdict):
        def get(self, *of):
            asked.append(of)
            return super().get(*of)

    async def back(tenants: Tenants, name: str, *messages: str) -> tuple[str | None, int]:
        key, who = (tenants.of("sk-one"), ""), Identity(ids=(("x-session-id", name),))
        request = chat.read(json.dumps(body(*messages)).encode())
        if before := tenants.index_of(key):
            before.by_answer = Asked(before.by_answer.default_factory, before.by_answer)
        asked.clear()
        index, found = await tenants.locate(key, request, who, time.time())
        looks = len(asked)
        step = follow(index, request, who, now=time.time(), new_id=lambda: "another", found=found)
        return step.session.family, looks

    async def through(tenants: Tenants) -> list[tuple[str | None, int]]:
        return [await back(tenants, name, *histories[name], "Go on.") for name in histories]

    asked: list = []
    plan = ["What is the plan for the harbour?", "I heard: What is the plan for the harbour?"]
    histories = {n: [f"I am agent {n}.", f"I heard: I am agent {n}.", *plan] for n in ("one", "two", "three")}
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            for name, history in histories.items():
                for at in range(0, len(history), 2):
                    ask(url, body(*history[: at + 1]), x_session_id=name)
        opened = Opened(config, None, lambda *_: None)
        assert opened.open(lambda _: None)
        found = asyncio.run(through(Tenants(config, opened)))
        opened.close()
    assert found == [("one", 0), ("two", 0), ("three", 0)]


def test_after_a_restart_nobody_gets_the_conversation_of_one_who_was_there_first(tmp_path):
    """Bots say the same to many, and nobody is named. The own conversation may not be in memory again yet."""
    common = ["No, thanks.", "I heard: No, thanks.", "Goodbye.", "I heard: Goodbye."]
    histories = [[f"I am {name}.", f"I heard: I am {name}.", *common] for name in ("Rosa Quint", "Emil Haug")]
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        for history in histories:
            asked = [ask(url, body(*history[: at + 1])) for at in range(0, len(history), 2)]
        emils = lantern_headers(asked[-1])["session"]
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        assert lantern_headers(ask(url, body(*histories[0], "One more thing.")))["event"] == "turn"
        found = lantern_headers(ask(url, body(*common, "Who am I?")))
        assert (found["event"], found["session"]) == ("window", emils)
        assert "Rosa" not in upstream.got[-1].body.decode()


def test_a_restore_that_is_turned_off_archives_all_the_same(tmp_path):
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path, restore=RestoreConfig(enabled=False))
        with serving(config) as url:
            messages = talk(url, "quiet")
            found = lantern_headers(ask(url, body(*cut(messages, "Who keeps the quiet relay number 1?"))))
            assert (found["event"], found["restored"]) == ("window", "0")
            assert wait_for(lambda: http.get(f"{url}/lantern/api/search", params={"q": "Agent-quiet"}).json())


def test_time_spent_in_us_is_told_and_no_more_than_the_whole(url, upstream):
    started = time.perf_counter()
    spent = float(lantern_headers(ask(url, body("how long?")))["ms"])
    assert 0 < spent < (time.perf_counter() - started) * 1000
