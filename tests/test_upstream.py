"""Who gets a request, and what becomes of a call that fails."""

import asyncio
import contextlib
import time

import httpx
import pytest
from scripted import CHUNKED, Upstream, respond

from lantern_proxy.access import swap
from lantern_proxy.access_keys import ProxyKey
from lantern_proxy.config import UpstreamConfig
from lantern_proxy.upstream import Upstream as Client
from lantern_proxy.upstream import UpstreamError, _BaseUrl
from lantern_proxy.wire.http import Arrival

DEFAULT = UpstreamConfig()
DEEP = UpstreamConfig(openai="https://router.example/api/v1", anthropic="https://claude.example/proxy")
LOCAL = UpstreamConfig(openai="http://127.0.0.1:11434")
ANTHROPIC = ((b"anthropic-version", b"2023-06-01"),)


def where(config: UpstreamConfig, path: str, query: bytes = b"", headers=()) -> str:
    async def ask() -> str:
        async with Client(config) as client:
            base, target = client.target(path, query, headers)
            return f"{base.origin.scheme}://{base.host.decode()}{target.decode()}"

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("config", "path", "url"),
    [
        (DEFAULT, "/v1/chat/completions", "https://api.openai.com/v1/chat/completions"),
        (DEFAULT, "/chat/completions", "https://api.openai.com/v1/chat/completions"),
        (DEFAULT, "/v1/models", "https://api.openai.com/v1/models"),
        (DEFAULT, "/v1/messages", "https://api.anthropic.com/v1/messages"),
        (DEFAULT, "/messages", "https://api.anthropic.com/v1/messages"),
        (DEFAULT, "/v1/messages/batches/b_1", "https://api.anthropic.com/v1/messages/batches/b_1"),
        (DEFAULT, "/v1/threads/t/messages", "https://api.openai.com/v1/threads/t/messages"),
        (DEFAULT, "/", "https://api.openai.com/"),
        (DEFAULT, "/v1", "https://api.openai.com/v1"),
        (DEFAULT, "/dashboard/billing", "https://api.openai.com/dashboard/billing"),
        (DEFAULT, "/v1/something/new", "https://api.openai.com/v1/something/new"),
        (DEEP, "/v1/chat/completions", "https://router.example/api/v1/chat/completions"),
        (DEEP, "/responses", "https://router.example/api/v1/responses"),
        (DEEP, "/v1/messages", "https://claude.example/proxy/v1/messages"),
        (DEEP, "/credits", "https://router.example/api/credits"),
        (LOCAL, "/v1/chat/completions", "http://127.0.0.1:11434/chat/completions"),
        (LOCAL, "/api/tags", "http://127.0.0.1:11434/api/tags"),
    ],
)
def test_a_path_goes_to_its_upstream(config, path, url):
    assert where(config, path) == url
    assert where(config, path, b"a=%2F&a=1") == f"{url}?a=%2F&a=1"


@pytest.mark.parametrize(
    "url",
    ["https://API.openai.com/v1", "http://127.0.0.1:11434", "http://[::1]:8080/a%2Fb",
     "https://user:pw@host:443/x y/v1", "https://bücher.example/ä", "http://host:80", "https://host:8443/openai?api-version=1"],
)  # fmt: skip
def test_a_url_is_taken_apart_as_httpx_does(url):
    theirs, ours = httpx.URL(url), _BaseUrl.of(url)
    assert (ours.origin.scheme, ours.origin.host) == (theirs.scheme, theirs.raw_host.decode())
    assert (ours.host, ours.prefix) == (theirs.netloc, theirs.raw_path.decode().rstrip("/"))
    assert ours.is_plain is not bool(theirs.userinfo)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/files", "/v1/messages", "/v1/skills"])
def test_whatever_an_anthropic_sdk_sends_goes_to_anthropic(path):
    assert where(DEFAULT, path, headers=ANTHROPIC) == f"https://api.anthropic.com{path}"


@pytest.mark.parametrize(
    "path", ["/v1/messages", "/v1messages", "//messages", "/v1//messages", "/v1", "/v1/chat/messages"]
)
@pytest.mark.parametrize("headers", [(), ANTHROPIC, ((b"anthropic-version", b""),)])
def test_a_provider_never_gets_the_others_key(path, headers, monkeypatch):
    monkeypatch.setenv("OPENAIS", "sk-openai")
    monkeypatch.setenv("ANTHROPICS", "sk-ant")
    key = ProxyKey(name="a", sha256="", tenant="a", upstream={"openai": "env:OPENAIS", "anthropic": "env:ANTHROPICS"})
    arrival = Arrival(method="POST", path=path, query=b"", headers=((b"x-api-key", b"lk_a"), *headers), body=b"")
    swap(arrival, key, "lk_a")
    goes_to = where(DEFAULT, path, headers=arrival.headers)
    assert {v for _, v in arrival.headers if b"sk-" in v} == (
        {b"sk-ant"} if "anthropic" in goes_to else {b"Bearer sk-openai"}
    )


async def chunks(answer) -> list[bytes]:
    found = []
    while chunk := await answer.chunk():
        found.append(chunk)
    return found


def call(upstream: Upstream, **settings) -> bytes:
    """The answer to a small request."""

    async def through() -> bytes:
        async with Client(UpstreamConfig(openai=f"{upstream.url}/v1", **settings)) as client:
            answer = await client.send("POST", "/v1/chat/completions", b"", [], b"{}")
            try:
                return b"".join(await chunks(answer))
            finally:
                await answer.close()

    return asyncio.run(through())


@pytest.mark.parametrize(
    ("no_proxy", "straight"),
    [("", False), ("127.0.0.1", True), ("example, 127.0.0.1", True), ("*", True), ("example", False)],
)
def test_an_upstream_that_no_proxy_names_is_asked_straight_and_by_our_own_transport(monkeypatch, no_proxy, straight):
    async def send(url):
        async with Client(UpstreamConfig(openai=f"{url}/v1")) as client:
            answer = await client.send("GET", "/v1/models", b"", [], b"")
            return await answer.read(), answer.sent is not None

    with Upstream() as proxy, Upstream(answer=respond(200, b"straight")) as upstream:
        proxy.answer = respond(200, b"by the proxy")
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("no_proxy", no_proxy)
        got = asyncio.run(send(upstream.url))
    assert got == ((b"straight", True) if straight else (b"by the proxy", False))


@pytest.mark.parametrize(
    ("scheme", "asked"),
    [("http", "GET http://model.example/v1/models/a%2Fb?c={d}"), ("https", "CONNECT model.example:443")],
)
def test_a_proxy_of_the_environment_is_asked_as_proxies_are(monkeypatch, scheme, asked):
    async def send():
        async with Client(UpstreamConfig(openai=f"{scheme}://model.example/v1")) as client:
            with contextlib.suppress(UpstreamError):  # a tunnel that is refused
                await (await client.send("GET", "/v1/models/a%2Fb", b"c={d}", [], b"")).read()

    with Upstream(answer=respond(502, b"")) as proxy:
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("no_proxy", "")
        asyncio.run(send())
    assert [f"{got.method} {got.target}" for got in proxy.got] == [asked]


@pytest.mark.parametrize("http2", [False, True], ids=["ours", "httpx"])
def test_of_a_length_and_chunks_the_client_hears_the_chunks(http2):
    async def mixed(got, wire):
        await wire.head(200, ("Content-Length", "200"), CHUNKED)
        await wire.chunk(b"{}")
        await wire.send(b"0\r\n\r\n")

    async def send(url):
        async with Client(UpstreamConfig(openai=f"{url}/v1", http2=http2)) as client:
            answer = await client.send("GET", "/v1/models", b"", [], b"")
            return answer.header(b"content-length"), await answer.read()

    with Upstream(answer=mixed) as upstream:
        assert asyncio.run(send(upstream.url)) == ("", b"{}")


ELSEWHERE = "https://other.example/v1/models/"


@pytest.mark.parametrize("http2", [False, True], ids=["ours", "httpx"])
@pytest.mark.parametrize(
    ("prefix", "asked", "location", "heard"),
    [
        ("/v1", "/v1/models/", "{url}/v1/models?a=%2F", "/v1/models?a=%2F"),
        ("/v1", "/v1/models/", "/v1/models", "/v1/models"),
        ("/v1", "/models/", "{url}/v1/models", "/models"),
        ("/v1", "/v1/models/", "../models", "/v1/models"),
        ("/api/v1", "/v1/models/", "{url}/api/v1/models", "/v1/models"),
        ("/api/v1", "/v1/models/", "/api/v1/models", "/v1/models"),
        ("/api/v1", "/v1/models/", "/api/status", "/api/status"),
        ("/api/v1", "/v1/models/", "{url}/login", "{url}/login"),
        ("", "/v1/models/", "{url}/models", "/v1/models"),
        ("/v1", "/v1/models/", ELSEWHERE, ELSEWHERE),
        ("/v1", "/v1/models/", "http://[", "http://["),
    ],
)
def test_a_redirect_below_the_upstreams_url_leads_through_us(prefix, asked, location, heard, http2):
    async def moved(got, wire):
        await wire.head(307, ("Content-Length", "0"), ("Location", location.format(url=upstream.url)), ("x-last", "1"))

    async def send():
        async with Client(UpstreamConfig(openai=f"{upstream.url}{prefix}", http2=http2)) as client:
            answer = await client.send("POST", asked, b"", [], b"{}")
            await answer.read()
            return answer.header(b"location"), [name.lower() for name, _ in answer.headers][-2:]

    with Upstream(answer=moved) as upstream:
        assert asyncio.run(send()) == (heard.format(url=upstream.url), [b"location", b"x-last"])


async def nothing(got, wire):
    await wire.closed()


async def half(got, wire):
    await wire.head(200, CHUNKED)
    await wire.chunk(b"half")
    await wire.closed()


async def cut(got, wire):
    await wire.head(200, ("content-length", "10"))
    await wire.send(b"half")
    wire.reset()


async def babble(got, wire):
    await wire.send(b"220 mail.example ESMTP\r\n\r\n")
    wire.reset()


@pytest.mark.parametrize("http2", [False, True], ids=["ours", "httpx"])
def test_a_body_goes_out_whole_in_however_many_pieces_it_came(http2):
    async def send(url):
        async with Client(UpstreamConfig(openai=f"{url}/v1", http2=http2)) as client:
            for body in (b"{}", [b"{", b"}"], [b"{}"]):
                await (await client.send("POST", "/v1/embeddings", b"", [], body)).read()

    with Upstream(answer=respond(200, b"{}")) as upstream:
        asyncio.run(send(upstream.url))
    assert [got.body for got in upstream.got] == [b"{}"] * 3


@pytest.mark.parametrize(("answer", "status"), [(nothing, 504), (half, 504), (cut, 502), (babble, 502)])
def test_a_failure_is_told_with_its_status(answer, status):
    with Upstream(answer=answer) as upstream, pytest.raises(UpstreamError) as failure:
        call(upstream, read_timeout_s=1)
    assert failure.value.status == status
    assert str(failure.value).startswith("upstream ")


def test_an_answer_may_be_silent_for_longer_than_providers_have_their_clients_wait():
    flex_processing_s = 15 * 60
    assert UpstreamConfig().read_timeout_s > flex_processing_s


def test_nobody_there_is_a_502_and_comes_before_the_timeout():
    with Upstream() as upstream:
        pass
    started = time.monotonic()
    with pytest.raises(
        UpstreamError, match=r"upstream 127\.0\.0\.1:\d+ cannot be reached: connection refused"
    ) as failure:
        call(upstream, connect_timeout_s=30)
    assert failure.value.status == 502
    assert time.monotonic() - started < 30


def test_a_name_that_does_not_exist_is_a_502():
    async def through():
        async with Client(UpstreamConfig(openai="http://no-such-host.invalid/v1")) as client:
            await client.send("GET", "/v1/models", b"", [], b"")

    with pytest.raises(UpstreamError) as failure:
        asyncio.run(through())
    assert failure.value.status in (502, 504)


def test_connections_are_used_again_and_a_dead_one_is_replaced():
    async def through(upstream: Upstream) -> int:
        async with Client(UpstreamConfig(openai=f"{upstream.url}/v1")) as client:
            for n in range(6):
                answer = await client.send("GET", f"/v1/models/{n}", b"", [], b"")
                assert await chunks(answer) == [b"{}"]
                await answer.close()
                await asyncio.sleep(0.05)
        return upstream.connections

    with Upstream(answer=respond(200, b"{}")) as upstream:
        assert asyncio.run(through(upstream)) == 1

    async def once(got, wire):
        await respond(200, b"{}")(got, wire)
        wire.writer.close()

    with Upstream(answer=once) as upstream:
        assert asyncio.run(through(upstream)) == 6


@pytest.mark.parametrize("http2", [False, True], ids=["ours", "httpx"])
def test_a_request_on_a_connection_that_its_server_has_just_closed_is_sent_once_more(http2):
    used = set()

    async def once(got, wire):
        if wire.writer in used or got.target.endswith("/refused"):
            wire.reset()
        else:
            used.add(wire.writer)
            await respond(200, got.body)(got, wire)

    async def through(upstream: Upstream) -> None:
        async with Client(UpstreamConfig(openai=f"{upstream.url}/v1", http2=http2)) as client:
            for body in (b"one", b"two", b"three"):
                answer = await client.send("POST", "/v1/embeddings", b"", [], body)
                assert await answer.read() == body
            with pytest.raises(UpstreamError):  # by a new connection, too
                await client.send("POST", "/v1/refused", b"", [], b"four")

    with Upstream(answer=once) as upstream:
        asyncio.run(through(upstream))
    assert [got.body for got in upstream.got] == [b"one", b"two", b"two", b"three", b"three", b"four", b"four"]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("enough", "begun"), [(b"b", b"ab"), (b"never", b"abcd")])
def test_the_beginning_of_an_answer_can_be_read_ahead_and_comes_again(whole, enough, begun):
    async def pieces(got, wire):
        await wire.head(200, CHUNKED)
        for piece in (b"a", b"b", b"c", b"d"):
            await wire.chunk(piece)
            await asyncio.sleep(0.05)
        if whole:
            await wire.send(b"0\r\n\r\n")
        else:
            wire.reset()

    async def through(upstream: Upstream) -> None:
        async with Client(UpstreamConfig(openai=f"{upstream.url}/v1")) as client:
            answer = await client.send("GET", "/v1/models", b"", [], b"")
            assert await answer.begin(lambda come: enough in come, within_s=5) == begun
            come = b""
            with contextlib.nullcontext() if whole else pytest.raises(UpstreamError):
                while chunk := await answer.chunk():
                    come += chunk
            assert come == b"abcd"
            await answer.close()

    with Upstream(answer=pieces) as upstream:
        asyncio.run(through(upstream))


@pytest.mark.parametrize("whole", [True, False])
def test_an_answer_that_was_read_ahead_gives_its_connection_back(whole):
    async def through(upstream: Upstream) -> int:
        async with Client(UpstreamConfig(openai=f"{upstream.url}/v1", max_connections=1)) as client:
            for _ in range(2):
                answer = await client.send("GET", "/v1/models", b"", [], b"")
                with contextlib.nullcontext() if whole else pytest.raises(UpstreamError):
                    await answer.read()
        return len(upstream.got)

    async def breaks_off(got, wire):
        await wire.head(400, ("content-length", "9"))
        await wire.send(b"too")
        wire.writer.close()

    with Upstream(answer=respond(400, b"too long") if whole else breaks_off) as upstream:
        assert asyncio.run(asyncio.wait_for(through(upstream), 30)) == 2


def test_an_answer_that_was_read_ahead_can_be_read_again_while_its_connection_serves_another():
    async def through(upstream: Upstream) -> tuple[bytes, list[bytes], list[bytes]]:
        async with Client(UpstreamConfig(openai=f"{upstream.url}/v1")) as client:
            answer = await client.send("GET", "/v1/models", b"", [], b"")
            ahead = await answer.read()
            other = await client.send("GET", "/v1/models", b"", [], b"")
            found = await chunks(answer), await chunks(other)
            await other.close()
            await answer.close()
            return ahead, *found

    with Upstream(answer=respond(400, b"too long")) as upstream:
        assert asyncio.run(through(upstream)) == (b"too long", [b"too long"], [b"too long"])
        assert upstream.connections == 1
