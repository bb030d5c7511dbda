"""The application and the relay, over real sockets: what goes up, what comes back, byte for byte."""

import asyncio
import gzip
import json
import re
import socket
import threading
import time
from http.client import HTTPConnection

import httpx
import pytest
import zstandard
from openai import OpenAI
from scripted import (
    CHUNKED,
    SSE,
    Upstream,
    ask,
    body,
    completion,
    config_for,
    echo,
    events,
    http,
    lantern_headers,
    respond,
    serving,
    stream,
    unused_port,
    wait_for,
)

from lantern_proxy.config import UpstreamConfig

CHAT, CONTINUE = "/v1/chat/completions", b"HTTP/1.1 100 Continue\r\n\r\n"
PLAIN = {"content-type": "application/json", "authorization": "Bearer sk-one"}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with Upstream() as upstream, serving(config_for(upstream, tmp_path_factory.mktemp("app"))) as url:
        yield upstream, url


def raw(url: str, request: bytes, *, until_closed: bool = False) -> bytes:
    """What comes back for `request` on a socket of its own: one answer with its length, or all until it is closed."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        sock.sendall(request)
        answer = b""
        while piece := sock.recv(65_536):
            answer += piece
            head, ended, data = answer.removeprefix(CONTINUE).partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            if not until_closed and ended and len(data) >= int(length[1] if length else 0):
                break
        return answer


def head_of(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: x", *headers, "", ""]).encode()


# what goes up

BODIES = {
    "plain": b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}',
    "white space": b' \n{ "messages" :\t[ {"content":"hi" , "role":"user"} ]\r\n, "model":"m"} \n',
    "duplicate keys": b'{"messages": [], "messages": [{"role": "user", "content": "a", "content": "b"}], "model": "m"}',
    "numbers": b'{"temperature": 1.0, "seed": 1E+2, "top_p": -0.0, "n": 12345678901234567890123, "messages": []}',
    "escapes": b'{"messages": [{"role": "user", "content": "\\u00e9 \\/ \\ud83d\\ude00 \xc3\xa9"}]}',
    "lone surrogate": b'{"messages": [{"role": "user", "content": "\\ud800 x"}], "model": "m"}',
    "invalid UTF-8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "byte order mark": b'\xef\xbb\xbf{"messages": []}',
    "UTF-16": '{"messages": []}'.encode("utf-16"),
    "not JSON": b"messages=[]&model=m",
    "half JSON": b'{"messages": [{"role": "user", "con',
    "nothing": b"",
    "no messages": b'{"model": "m"}',
    "null messages": b'{"model": "m", "messages": null}',
    "messages as text": b'{"model": "m", "messages": "hi"}',
    "odd messages": b'{"messages": [null, 1, "x", [], {}]}',
    "odd contents": b'{"messages": [{"role": "user"}, {"role": null, "content": {}}, {"role": 5, "content": [1]}]}',
    "a list": b'[{"messages": []}]',
    "a number": b"17",
    "deep": b'{"messages": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "deep content": b'{"messages": [{"role": "user", "content": ' + b'{"a":' * 3_000 + b"1" + b"}" * 3_000 + b"}]}",
    "unknown fields": b'{"x": {"y": [1]}, "messages": [{"role": "robot", "content": "hi", "z": null}]}',
    "large": b'{"model": "m", "messages": [{"role": "user", "content": "' + b"0123456789" * 1_000_000 + b'"}]}',
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_reaches_the_upstream_byte_for_byte(url, upstream, name):
    upstream.answer = respond(200, b'{"odd": true}', ("content-type", "application/json"))
    response = http.post(url + CHAT, content=BODIES[name], headers=PLAIN, timeout=60)
    assert upstream.got[-1].body == BODIES[name]
    assert response.content == b'{"odd": true}'
    assert {"request", "session", "event", "restored", "chars", "ms"} <= lantern_headers(response).keys()


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_a_wrong_content_type_changes_nothing(url, upstream, content_type):
    sent = json.dumps(body(f"typed {content_type}")).encode()
    response = http.post(url + CHAT, content=sent, headers={"content-type": content_type})
    assert upstream.got[-1].body == sent
    assert upstream.got[-1].header("content-type") == content_type
    assert response.status_code == 200


def zipped(data: bytes, encoding: str) -> bytes:
    return gzip.compress(data) if encoding == "gzip" else zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_compressed_body_passes_as_it_is_and_is_understood(url, upstream, encoding):
    sent = zipped(json.dumps(body(f"packed with {encoding}")).encode(), encoding)
    upstream.answer = respond(200, completion("fine"), ("content-type", "application/json"))
    response = http.post(url + CHAT, content=sent, headers=PLAIN | {"content-encoding": encoding})
    assert upstream.got[-1].body == sent
    assert upstream.got[-1].header("content-encoding") == encoding
    assert lantern_headers(response)["event"] == "new"


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br", "nonsense"])
def test_a_body_that_cannot_be_unpacked_passes_as_it_came(url, upstream, encoding):
    upstream.answer = respond(400, b"what is this?")
    response = http.post(url + CHAT, content=b"not packed at all", headers=PLAIN | {"content-encoding": encoding})
    assert upstream.got[-1].body == b"not packed at all"
    assert (response.status_code, response.content) == (400, b"what is this?")
    assert (lantern_headers(response)["event"], lantern_headers(response)["degraded"]) == (
        "passthrough",
        "request:encoding",
    )


def test_a_body_that_would_fill_the_memory_once_unpacked_passes_unread_and_that_is_told(url, upstream):
    sent = zipped(json.dumps(body("a" * 100_000_000)).encode(), "zstd")
    upstream.answer = respond(200, completion("fine"))
    response = http.post(url + CHAT, content=sent, headers=PLAIN | {"content-encoding": "zstd"})
    assert (response.status_code, upstream.got[-1].body == sent) == (200, True)
    assert (lantern_headers(response)["event"], lantern_headers(response)["degraded"]) == (
        "passthrough",
        "request:too_large",
    )


def test_a_chunked_body_arrives_whole(url, upstream):
    sent = json.dumps(body("in pieces")).encode()
    response = http.post(url + CHAT, content=(sent[at : at + 7] for at in range(0, len(sent), 7)), headers=PLAIN)
    assert upstream.got[-1].body == sent
    assert lantern_headers(response)["event"] == "new"


@pytest.mark.parametrize(
    ("asked", "target"),
    [
        ("/v1/models", "/v1/models"),
        ("/models?limit=5", "/v1/models?limit=5"),
        ("/v1/files/a%2Fb%20c?x=%7B%22a%22%7D&x=2&x=&y", "/v1/files/a%2Fb%20c?x=%7B%22a%22%7D&x=2&x=&y"),
        ("/v1/messages/count_tokens?beta=true", "/v1/messages/count_tokens?beta=true"),
        ("/v1/responses/resp_1?include[]=a&include[]=b", "/v1/responses/resp_1?include[]=a&include[]=b"),
        ("/v1/a/../b/./c//d", "/v1/a/../b/./c//d"),
        ("/v1/x%0Ay%00", "/v1/x%0Ay%00"),
        ("/v1/q?say=\"hi\"|'there'", "/v1/q?say=\"hi\"|'there'"),
        ("/", "/"),
        (
            "/openai/deployments/d/chat/completions?api-version=1",
            "/openai/deployments/d/chat/completions?api-version=1",
        ),
        ("/v1beta/models", "/v1beta/models"),
        ("/lanterns", "/lanterns"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_path_and_query_are_kept_to_the_letter(url, upstream, method, asked, target):
    upstream.answer = respond(200, b"{}")
    raw(url, f"{method} {asked} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n".encode())
    assert upstream.got[-1].target == target


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT", "PATCH", "OPTIONS", "POST", "PROPFIND"])
def test_every_method_passes_with_its_body_and_answer(url, upstream, method):
    upstream.answer = respond(207, b"partial", ("x-is", "a"), ("x-is", "b"), ("content-type", "text/odd"))
    sent = b"" if method in ("GET", "HEAD") else b"some \x00 bytes"
    response = http.request(method, f"{url}/v1/unknown/thing?beta=true", content=sent)
    assert (upstream.got[-1].method, upstream.got[-1].body) == (method, sent)
    assert response.status_code == 207
    assert response.content == (b"" if method == "HEAD" else b"partial")
    assert response.headers.get_list("x-is") == ["a", "b"]
    assert response.headers["content-length"] == "7"
    assert not lantern_headers(response)


@pytest.mark.parametrize(("prefix", "target"), [("/api/v1", "/api/v1"), ("/deep/er", "/deep/er")])
def test_a_base_path_of_the_upstream_is_kept(tmp_path, prefix, target):
    with Upstream(answer=respond(200, b"{}")) as upstream:
        config = config_for(upstream, tmp_path, upstream=UpstreamConfig(openai=upstream.url + prefix))
        with serving(config) as url:
            http.get(f"{url}/v1/models")
            http.get(f"{url}/models")
            http.post(f"{url}/v1/chat/completions", json=body("x"))
        assert [got.target for got in upstream.got] == [f"{target}/models"] * 2 + [f"{target}/chat/completions"]


def test_headers_go_up_but_for_ours_and_those_of_the_connection(url, upstream):
    upstream.answer = respond(200, b"{}")
    sent = [
        ("host", "api.of-the-client.example"),
        ("authorization", "Bearer sk-1"),
        ("anthropic-beta", "a"),
        ("anthropic-beta", "b"),
        ("x-lantern-session", "s"),
        ("x-lantern-project", "p"),
        ("x-lantern-restore", "off"),
        ("x-lantern-other", "o"),
        ("connection", "keep-alive, x-hop"),
        ("x-hop", "1"),
        ("te", "trailers"),
        ("proxy-authorization", "Basic x"),
        ("keep-alive", "5"),
        ("idempotency-key", "k"),
        ("x-codex-turn-state", "t"),
        ("user-agent", "some/1"),
        ("expect", "100-continue"),
        ("x-empty", ""),
        ("openai-organization", "org"),
    ]
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent)
    for path in ("/v1/embeddings", CHAT):
        answer = raw(url, f"POST {path} HTTP/1.1\r\n{lines}content-length: 2\r\n\r\n{{}}".encode())
        assert answer.startswith(CONTINUE)
        got = upstream.got[-1].headers
        kept = (
            "authorization",
            "anthropic-beta",
            "idempotency-key",
            "x-codex-turn-state",
            "user-agent",
            "x-empty",
            "openai-organization",
        )
        assert [pair for pair in got if pair[0] in kept] == [pair for pair in sent if pair[0] in kept]
        assert {name.lower() for name, _ in got} <= {*kept, "host", "content-length", "accept-encoding", "connection"}
        assert upstream.got[-1].header("host") == upstream.url.removeprefix("http://")


def test_nothing_that_the_client_did_not_say_is_said_for_it(url, upstream):
    upstream.answer = respond(200, b"{}")
    raw(url, b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
    assert {name.lower() for name, _ in upstream.got[-1].headers} <= {"host", "connection"}


def test_a_large_upload_where_memory_is_off_goes_up_while_it_still_comes(url, upstream):
    arriving, piece = threading.Event(), b"x" * 1_000_000

    async def take(got, wire):
        arriving.set()
        await respond(200, b"{}")(got, wire)

    upstream.answer = take
    half = []

    async def serve_slowly(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        half.append((head, len(await reader.readexactly(len(piece)))))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await reader.readexactly(len(piece))

    seen = threading.Event()

    def pieces():
        yield piece
        assert seen.wait(10), "the first half did not go up before the second came"
        yield piece

    with raw_upstream(serve_slowly, half, seen) as other, serving(config_for(other, other.folder)) as own:
        headers = {"content-length": str(2 * len(piece))}
        response = http.post(f"{own}/v1/files", content=pieces(), headers=headers, timeout=30)
    assert response.content == b"{}"
    assert b"content-length: 2000000" in half[0][0].lower()


class raw_upstream:
    """A socket server by one coroutine; sets `seen` when `log` has something in it."""

    def __init__(self, serve, log, seen):
        import tempfile
        from pathlib import Path

        self._tmp, self._serve, self._log, self._seen = tempfile.TemporaryDirectory(), serve, log, seen
        self.folder = Path(self._tmp.name)

    def __enter__(self):
        self._upstream = Upstream()
        self._upstream._serve = self._serve
        self._upstream.__enter__()
        self.url = self._upstream.url
        threading.Thread(target=lambda: wait_for(lambda: self._log) and self._seen.set(), daemon=True).start()
        return self

    def __exit__(self, *error):
        self._upstream.__exit__()
        self._tmp.cleanup()


# what comes back

ANSWERS = {
    "429": (429, b'{"error": {"message": "slow down"}}', [("retry-after", "7"), ("retry-after-ms", "7000")]),
    "500": (500, b"oops", [("content-type", "text/plain"), ("x-should-retry", "true")]),
    "503": (503, b"", [("retry-after", "1")]),
    "529": (529, b'{"type":"error","error":{"type":"overloaded_error"}}', [("request-id", "req_1")]),
    "400": (400, b'{"error": {"code": "context_length_exceeded", "message": "too long"}}', [("x-request-id", "r")]),
    "401": (401, b"{}", [("www-authenticate", "Bearer")]),
    "200": (200, completion("ok"), [("x-ratelimit-remaining-requests", "99"), ("openai-processing-ms", "3")]),
    "cookies": (200, b"{}", [("set-cookie", "a=1; Path=/"), ("set-cookie", "b=2")]),
    "redirect": (307, b"", [("location", "https://elsewhere.example/v1")]),
    "204": (204, b"", []),
    "odd": (200, b"\xff\x00not json", [("content-type", "application/json")]),
}


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
@pytest.mark.parametrize("name", ANSWERS)
def test_status_headers_and_body_come_back_as_they_are(url, upstream, name, path):
    status, content, headers = ANSWERS[name]
    upstream.answer = respond(
        status, content, *headers, ("x-lantern-event", "forged"), ("x-lantern-odd", "x"), length=status != 204
    )
    response = http.post(url + path, json=body(f"{name} by {path}"), headers=PLAIN)
    assert (response.status_code, response.content) == (status, content)
    assert [
        (k, v) for k, v in response.headers.multi_items() if not k.startswith("x-lantern-") and k != "content-length"
    ] == headers
    assert bool(lantern_headers(response)) == (path == CHAT)
    assert lantern_headers(response).get("event") != "forged"
    assert "odd" not in lantern_headers(response)


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_has_no_body_but_tells_a_length_ends(url, upstream, status):
    upstream.answer = respond(status, b"", ("content-length", "1234"), ("etag", "x"), length=False)
    response = http.get(f"{url}/v1/files/f", timeout=30)
    assert (response.status_code, response.headers["etag"]) == (status, "x")


def test_cookies_of_one_answer_are_not_sent_with_the_next_request(url, upstream):
    upstream.answer = respond(200, b"{}", ("set-cookie", "secret=1; Path=/"))
    http.get(f"{url}/v1/models")
    http.get(f"{url}/v1/models")
    assert upstream.got[-1].header("cookie") is None


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_compressed_answer_comes_back_compressed_and_is_archived(running, upstream, encoding, streamed):
    url, text = running[1], f"the answer came packed with {encoding} {streamed}"
    plain = b"".join(events(text)) if streamed else completion(text)
    packed = zipped(plain, encoding)
    kind = SSE if streamed else ("content-type", "application/json")
    upstream.answer = respond(200, packed, kind, ("content-encoding", encoding))
    sent = json.dumps(body(f"pack it, {encoding} {streamed}", stream=streamed)).encode()
    head = head_of(
        "POST", CHAT, "connection: close", f"accept-encoding: br;q=1, {encoding}", f"content-length: {len(sent)}"
    )
    answer = raw(url, head + sent, until_closed=True)
    assert answer.endswith(b"\r\n\r\n" + packed)
    assert upstream.got[-1].header("accept-encoding") == encoding
    assert found(url, f"packed {encoding} {streamed}")


def found(url: str, words: str) -> list[dict]:
    """What the archive finds for `words`."""
    return http.get(f"{url}/lantern/api/search", params={"q": words}).json()


CHUNKS = {
    "comments and pings": [b": OPENROUTER PROCESSING\n\n", b"event: ping\ndata: {}\n\n", *events("fine")],
    "CRLF": [event.replace(b"\n", b"\r\n") for event in events("fine")],
    "split characters": [bytes([byte]) for byte in "".join(e.decode() for e in events("é😀漢字")).encode()],
    "one chunk": [b"".join(events("fine"))],
    "no [DONE]": events("fine")[:-1],
    "error mid-stream": [*events("fine")[:2], b'event: error\ndata: {"error": {"message": "overloaded"}}\n\n'],
    "[DONE] as text": events("say data: [DONE] and\n\ndata: [DONE]\n\n"),
    "usage at the end": [
        *events("x")[:-1],
        b'data: {"choices": [], "usage": {"total_tokens": 3}}\n\n',
        b"data: [DONE]\n\n",
    ],
    "more after the end": [*events("x"), b": bye\n\n", b"data: {}\n\n"],
    "nothing": [],
    "not events": [b"<html>", b"oops"],
}


@pytest.mark.parametrize("name", CHUNKS)
def test_a_stream_comes_back_byte_for_byte(url, upstream, name):
    upstream.answer = stream(*CHUNKS[name])
    response = ask(url, body(f"stream {name}", stream=True))
    assert response.content == b"".join(CHUNKS[name])
    assert response.headers["content-type"] == SSE[1]


@pytest.mark.parametrize("kind", ["", "text/plain", "application/json"])
def test_a_stream_that_is_not_called_one_is_archived_as_one(url, upstream, kind):
    said = f"Gate 77, whatever this is called: {kind}."

    async def answer(got, wire):
        await wire.head(200, CHUNKED, *([("content-type", kind)] if kind else []))
        for event in [b"\xef\xbb\xbf: soon\r\n\r\n", *events(said)]:
            await wire.chunk(event)
        await wire.send(b"0\r\n\r\n")

    upstream.answer = answer
    session = lantern_headers(ask(url, body(f"Which gate, {kind}?", stream=True)))["session"]
    path = f"{url}/lantern/api/sessions/{session}"
    assert wait_for(lambda: [m["text"] for m in http.get(path).json().get("messages", [])][1:] == [said])


def test_ten_thousand_chunks_come_back_and_are_one_answer(url, upstream):
    upstream.answer = stream(*events("x" * 10_000, pieces=10_000))
    response = ask(url, body("ten thousand pieces please", stream=True))
    assert response.content == b"".join(events("x" * 10_000, pieces=10_000))
    session = http.get(f"{url}/lantern/api/sessions/{lantern_headers(response)['session']}").json()
    assert [len(m["text"]) for m in session["messages"]][-1] == 10_000


def test_the_head_and_each_event_reach_the_client_before_the_upstream_says_more(url, upstream):
    read, pieces = threading.Semaphore(0), events("one two three four five six", pieces=20)

    async def answer(got, wire):
        import asyncio

        async def client_has_read():
            assert await asyncio.to_thread(read.acquire, True, 10), "the client has not got what was sent"

        await wire.head(200, SSE, CHUNKED)
        await client_has_read()
        for piece in pieces:
            await wire.chunk(piece)
            if piece is not pieces[-1]:
                await client_has_read()
        await wire.send(b"0\r\n\r\n")

    upstream.answer = answer
    with http.stream("POST", url + CHAT, json=body("step by step", stream=True), timeout=20) as response:
        read.release()
        came = iter(response.iter_raw())
        for piece in pieces[:-1]:
            assert next(came) == piece
            read.release()
        assert b"".join(came) == pieces[-1]


def test_the_openai_sdk_sees_what_the_upstream_said(url, upstream):
    client = OpenAI(base_url=f"{url}/v1", api_key="sk-one", max_retries=0)
    messages = [{"role": "user", "content": "hello from the SDK"}]
    answer = client.chat.completions.create(model="m", messages=messages)
    assert answer.choices[0].message.content == "I heard: hello from the SDK"
    messages += [
        {"role": "assistant", "content": answer.choices[0].message.content},
        {"role": "user", "content": "go on"},
    ]
    pieces = client.chat.completions.create(model="m", messages=messages, stream=True)
    assert "".join(p.choices[0].delta.content or "" for p in pieces) == "I heard: go on"
    raw_answer = client.chat.completions.with_raw_response.create(model="m", messages=messages)
    assert raw_answer.headers["x-lantern-event"] == "retry"


# ends


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
def test_a_client_that_leaves_before_the_head_ends_the_upstreams_work(url, upstream, path):
    ended = threading.Event()

    async def answer(got, wire):
        await wire.closed()
        ended.set()

    upstream.answer = answer
    sock = send(url, path, body(f"I leave early {path}"))
    assert wait_for(lambda: upstream.got)
    assert not ended.wait(0.05)
    sock.close()
    assert ended.wait(5)


def send(url: str, path: str, request: dict, version: bytes = b"HTTP/1.1", *, cut: int = 0) -> socket.socket:
    """A socket on which a request was sent, but for its last bytes."""
    host, port = url.removeprefix("http://").split(":")
    sock = socket.create_connection((host, int(port)), timeout=60)
    data = json.dumps(request).encode()
    head = head_of("POST", path, f"content-length: {len(data)}").replace(b"HTTP/1.1", version, 1)
    sock.sendall(head + data[: len(data) - cut])
    return sock


@pytest.mark.parametrize("kind", ["length", "chunks", "events"])
def test_a_client_of_http_1_0_gets_a_body_without_chunks_and_a_closed_connection(url, upstream, kind):
    whole = events("an old client") if kind == "events" else [completion("an old client")]
    upstream.answer = respond(200, whole[0]) if kind == "length" else stream(*whole)
    data = json.dumps(body(f"from long ago: {kind}", stream=kind == "events")).encode()
    request = head_of("POST", CHAT, "connection: keep-alive", f"content-length: {len(data)}") + data
    answer = raw(url, request.replace(b"HTTP/1.1", b"HTTP/1.0", 1), until_closed=True)
    head, _, got = answer.partition(b"\r\n\r\n")
    assert got == b"".join(whole)
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head.lower()


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
@pytest.mark.parametrize("wait_s", [0, 0.3])
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
def test_a_client_that_sends_no_more_still_gets_its_answer(url, upstream, path, wait_s, version):
    async def slowly(got, wire):
        await asyncio.sleep(wait_s)
        await respond(200, completion("still said"))(got, wire)

    upstream.answer = slowly
    sock = send(url, path, body(f"that was all {wait_s}"), version)
    sock.shutdown(socket.SHUT_WR)
    with sock, sock.makefile("rb") as answer:
        got = answer.read()
    while got.startswith(CONTINUE) and version == b"HTTP/1.1":
        got = got.removeprefix(CONTINUE)
    assert got.startswith(b"HTTP/1.1 200 ")
    assert got.count(b"HTTP/1.1") == 1
    assert got.endswith(completion("still said"))


def test_of_requests_in_a_row_all_are_answered_when_no_more_come(url, upstream):
    texts = ("one", "two", "three")
    requests = [json.dumps(body(f"in a row: {text}")).encode() for text in texts]
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as sock, sock.makefile("rb") as answers:
        sock.sendall(b"".join(head_of("POST", CHAT, f"content-length: {len(r)}") + r for r in requests))
        sock.shutdown(socket.SHUT_WR)
        got = answers.read()
    places = [got.find(f"I heard: in a row: {text}".encode()) for text in texts]
    assert -1 not in places
    assert places == sorted(places)


def test_half_a_request_is_not_waited_for_when_no_more_comes(url, upstream):
    with send(url, CHAT, body("only the beginning"), cut=5) as sock:
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b""
    assert not upstream.got


def test_a_client_that_leaves_mid_stream_ends_the_upstreams_work_and_the_part_is_archived(url, upstream):
    ended, pieces = threading.Event(), events("the beginning of the tale and its end", pieces=2)

    async def answer(got, wire):
        await wire.head(200, SSE, CHUNKED)
        await wire.chunk(pieces[0] + pieces[1])
        await wire.closed()
        ended.set()

    upstream.answer = answer
    sock = send(url, CHAT, body("tell me a tale and I leave", stream=True))
    data = b""
    while b"beginning" not in data:
        data += sock.recv(65_536)
    sock.close()
    assert ended.wait(5)
    session = data.split(b"x-lantern-session: ")[1].split(b"\r\n")[0].decode()
    path = f"{url}/lantern/api/sessions/{session}"
    shown = wait_for(lambda: (s := http.get(path).json()).get("messages") and len(s["messages"]) == 2 and s)
    assert shown["messages"][1]["text"] == "the beginning of the t"[: len(shown["messages"][1]["text"])]
    assert shown["messages"][1]["text"]
    assert shown["requests"][0]["error"] == "the client hung up"


def test_an_upstream_that_is_down_is_told_as_502(tmp_path):
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
    with serving(config) as url:
        for path in (CHAT, "/v1/models"):
            response = http.post(url + path, json=body("anyone there?"), headers=PLAIN)
            assert response.status_code == 502
            assert "cannot be reached" in response.json()["error"]["message"]
        assert lantern_headers(ask(url, body("anyone?")))["event"] == "new"


async def half(got, wire):
    await wire.head(200, ("content-length", "9"))
    await wire.send(b"half")
    wire.writer.close()


def test_an_upstream_that_fails_is_logged_with_the_request_and_without_its_query(tmp_path, caplog):
    with Upstream(answer=respond(503, b"{}")) as upstream, serving(config_for(upstream, tmp_path)) as url:
        refused = lantern_headers(http.post(f"{url}{CHAT}?key=hidden", json=body("is it up?"), headers=PLAIN))[
            "request"
        ]
        upstream.answer = respond(401, b"{}")
        ask(url, body("and who am I?"))
        upstream.answer = half
        with http.stream("POST", url + CHAT, json=body("all of it?")) as response:
            half_told = lantern_headers(response)["request"]
            with pytest.raises(httpx.RemoteProtocolError):
                response.read()
    with unused_port() as port, serving(config_for(Upstream(port=port), tmp_path)) as url:
        gone = lantern_headers(ask(url, body("and now?")))["request"]
    lines = [record.getMessage() for record in caplog.records if record.name == "lantern.proxy"]
    assert lines == [
        f"upstream answered 503 to POST {CHAT} ({refused})",
        "upstream broke off its answer: peer closed connection without sending complete message body; "
        f"the client of POST {CHAT} ({half_told}) is broken off, too",
        f"upstream 127.0.0.1:{port} cannot be reached: connection refused; POST {CHAT} ({gone}) gets 502",
    ]


def not_there(folder):
    return str(folder / "none.pem")


def no_certificate(folder):
    (folder / "diary.pem").write_text("Dear diary")
    return str(folder / "diary.pem")


@pytest.mark.parametrize("http2", [False, True], ids=["ours", "httpx"])
@pytest.mark.parametrize(
    ("variable", "value"),
    [("SSL_CERT_FILE", not_there), ("SSL_CERT_FILE", no_certificate), ("SSL_CERT_DIR", not_there)],
)
def test_certificates_that_cannot_be_used_are_a_502_that_names_the_variable(
    tmp_path, monkeypatch, variable, value, http2
):
    named = value(tmp_path)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv(variable, named)
    with Upstream() as upstream:
        config = config_for(
            upstream, tmp_path, upstream=UpstreamConfig(openai=f"https://127.0.0.1:{upstream.port}/v1", http2=http2)
        )
        with serving(config) as url:
            for path in (CHAT, "/v1/models"):
                response = http.post(url + path, json=body("anyone there?"), headers=PLAIN)
                assert response.status_code == 502
                assert f"{variable} is {named}, which cannot be used" in response.json()["error"]["message"]
                assert "unset" in response.json()["error"]["message"]


@pytest.mark.parametrize("form", ["http://{who}@127.0.0.1:{port}", "127.0.0.1:{port}"])
def test_a_proxy_of_the_environment_that_is_down_is_named_and_its_password_is_not(tmp_path, monkeypatch, form):
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with unused_port() as port, Upstream() as upstream:
        monkeypatch.setenv("HTTP_PROXY", form.format(port=port, who="user:secret"))
        with serving(config_for(upstream, tmp_path)) as url:
            response = http.post(f"{url}/v1/models", json=body("anyone there?"), headers=PLAIN)
            assert response.status_code == 502
            assert f"(by the proxy 127.0.0.1:{port} of the environment)" in response.json()["error"]["message"]
            assert "secret" not in response.text
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        with serving(config_for(upstream, tmp_path)) as url:
            assert ask(url, body("and straight?")).status_code == 200


@pytest.mark.parametrize("proxy", ["ftp://proxy.example", "http://proxy.example:port", "http://[::1"])
def test_a_proxy_of_the_environment_that_cannot_be_used_is_a_502_that_says_so(tmp_path, monkeypatch, proxy):
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        response = http.post(f"{url}/v1/models", json=body("anyone there?"), headers=PLAIN)
        assert response.status_code == 502
        assert "proxy that the environment names cannot be used" in response.json()["error"]["message"]


def test_an_upstream_that_is_silent_is_told_as_504(tmp_path):
    async def silent(got, wire):
        await wire.closed()

    with Upstream(answer=silent) as upstream:
        settings = UpstreamConfig(openai=f"{upstream.url}/v1", read_timeout_s=1)
        with serving(config_for(upstream, tmp_path, upstream=settings)) as url:
            response = ask(url, body("hello?"))
    assert (response.status_code, response.json()["error"]["type"]) == (504, "upstream_error")
    assert response.json()["type"] == "error"  # what Anthropic's clients go by
    assert "upstream.read_timeout_s is 1" in response.json()["error"]["message"]
    assert lantern_headers(response)["event"] == "new"


@pytest.mark.parametrize("when", ["before the head", "in the head"])
def test_an_upstream_that_breaks_off_before_its_answer_is_told_as_502(url, upstream, when):
    async def answer(got, wire):
        if when == "in the head":
            await wire.send(b"HTTP/1.1 200 OK\r\ncontent-")
        wire.reset()

    upstream.answer = answer
    assert ask(url, body(f"break {when}")).status_code == 502


@pytest.mark.parametrize("kind", ["stream", "length", "no length"])
def test_an_upstream_that_breaks_off_mid_answer_is_never_a_clean_end(url, upstream, kind):
    async def answer(got, wire):
        if kind == "length":
            await wire.head(200, ("content-length", "1000"))
            await wire.send(b"some")
        else:
            await wire.head(200, SSE if kind == "stream" else ("x", "y"), CHUNKED)
            await wire.chunk(events("half an answer")[1])
        wire.reset()

    upstream.answer = answer
    with pytest.raises(httpx.RemoteProtocolError):
        ask(url, body(f"break in {kind}", stream=True))


def test_after_a_broken_answer_the_next_one_comes(url, upstream):
    async def broken(got, wire):
        await wire.head(200, SSE, CHUNKED)
        wire.reset()

    upstream.answer = broken
    with pytest.raises(httpx.RemoteProtocolError):
        ask(url, body("first", stream=True))
    upstream.answer = echo
    assert "I heard: second" in ask(url, body("second")).text


def test_a_slow_reader_holds_the_upstream_back_and_loses_nothing(url, upstream):
    sent, piece = [], b": " + b"x" * 65_000 + b"\n\n"

    async def answer(got, wire):
        await wire.head(200, SSE, CHUNKED)
        for _ in range(1_000):
            await wire.chunk(piece)
            sent.append(len(piece))
        await wire.send(b"0\r\n\r\n")

    upstream.answer = answer
    with http.stream("POST", f"{url}/v1/embeddings", json={}, timeout=60) as response:
        came = response.iter_raw()
        first = next(came)
        time.sleep(0.5)
        assert len(sent) < 1_000, "the proxy swallowed 65 MB that nobody read"
        assert len(first) + sum(map(len, came)) == 1_000 * len(piece)


# what is not proxied, and what is refused


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/realtime", "/anything"])
def test_a_websocket_upgrade_is_answered_426(url, upstream, path):
    upgrade = ("connection: Upgrade", "upgrade: WebSocket", "sec-websocket-version: 13", "sec-websocket-key: x")
    assert raw(url, head_of("GET", path, *upgrade)).startswith(b"HTTP/1.1 426 ")
    assert not upstream.got


def test_a_request_that_would_rather_speak_http_2_is_answered_as_any_other(url, upstream):
    """As Java sends it with each first request."""
    data = json.dumps(body("from Java")).encode()
    upgrade = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABk")
    answer = raw(url, head_of("POST", CHAT, *upgrade, f"content-length: {len(data)}") + data)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"I heard: from Java" in answer
    assert upstream.got[0].header("upgrade") is None


def test_two_requests_on_one_connection_are_both_answered(url, upstream):
    connection = HTTPConnection(url.removeprefix("http://"))
    for text in ("one", "two"):
        connection.request("POST", CHAT, json.dumps(body(text)), PLAIN)
        assert f"I heard: {text}" in connection.getresponse().read().decode()
    connection.close()


@pytest.mark.parametrize("path", ["/lantern/nothing", "/lantern/api/nothing"])
def test_what_is_under_lantern_never_goes_upstream(url, upstream, path):
    assert http.get(url + path).status_code == 404
    assert not upstream.got
