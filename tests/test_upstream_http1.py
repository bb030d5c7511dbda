"""Our own transport against servers that misbehave: what httpx's transport makes of them, it makes of them, too."""

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import threading

import httpx
import pytest
import uvloop
from scripted import CHUNKED, Upstream, respond

from lantern_proxy.upstream import dial, errors
from lantern_proxy.upstream.connection import _HIGH_BYTES
from lantern_proxy.upstream.errors import TransportError
from lantern_proxy.upstream.http1 import Answer, Http1, Origin

BIG = bytes(range(256)) * 8_192


def ours(**settings) -> Http1:
    return Http1(**{"connect_s": 5, "silence_s": 5, **settings})


class AsHttpx(httpx.AsyncBaseTransport):
    """Our own transport where httpx has its."""

    def __init__(self) -> None:
        self.http1 = ours()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        headers = [pair for pair in request.headers.raw if pair[0].lower() != b"content-length"]
        url, body = request.url, await request.aread()
        with as_httpx():
            answer = await self.http1.ask(Origin.of(str(url)), request.method.encode(), url.raw_path, headers, body)
        return httpx.Response(answer.status, headers=answer.headers, stream=Body(answer))

    async def aclose(self) -> None:
        await self.http1.aclose()


class Body(httpx.AsyncByteStream):
    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    async def __aiter__(self):
        with as_httpx():
            async for chunk in self.answer:
                yield chunk

    async def aclose(self) -> None:
        self.answer.close()


@contextlib.contextmanager
def as_httpx():
    """Our errors have httpx's names."""
    try:
        yield
    except TransportError as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error


def raw(*pieces: bytes, reset: bool = False, pause_s: float = 0.01):
    """A server that sends exactly these bytes, then closes (or resets) the connection."""

    async def answer(got, wire):
        for piece in pieces:
            await wire.send(piece)
            await asyncio.sleep(pause_s)
        if reset:
            wire.reset()
        else:
            wire.writer.close()

    return answer


OK = b"HTTP/1.1 200 OK\r\n"
MISBEHAVIOURS = {
    "content-length": (raw(OK + b"content-length: 2\r\n\r\nhi"), "GET"),
    "body in pieces": (raw(OK + b"content-length: 6\r\n\r\n", b"ab", b"cd", b"ef"), "GET"),
    "head in pieces": (raw(b"HTTP/1.", b"1 200 O", b"K\r\ncontent-le", b"ngth: 2\r\n", b"\r\nhi"), "GET"),
    "chunked": (raw(OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n"), "GET"),
    "chunked with trailers": (raw(OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-t: 1\r\n\r\n"), "GET"),
    "chunk extensions": (raw(OK + b"transfer-encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n"), "GET"),
    "until the end": (raw(OK + b"content-type: text/plain\r\n\r\n", b"all of", b" it"), "GET"),
    "HTTP/1.0": (raw(b"HTTP/1.0 200 OK\r\n\r\n", b"old"), "GET"),
    "no reason": (raw(b"HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n"), "GET"),
    "connection: close": (raw(OK + b"connection: close\r\ncontent-length: 2\r\n\r\nhi"), "GET"),
    "100 first": (raw(b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: 2\r\n\r\nhi"), "GET"),
    "103 first": (raw(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", OK + b"content-length: 2\r\n\r\nhi"), "GET"),
    "HEAD with a length": (raw(OK + b"content-length: 2000\r\n\r\n"), "HEAD"),
    "HEAD, chunked": (raw(OK + b"transfer-encoding: chunked\r\n\r\n"), "HEAD"),
    "204": (raw(b"HTTP/1.1 204 No Content\r\n\r\n"), "GET"),
    "304 with a length": (raw(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n"), "GET"),
    "nothing": (raw(), "POST"),
    "reset at once": (raw(reset=True), "POST"),
    "half a head": (raw(OK + b"content-le"), "GET"),
    "less than its length": (raw(OK + b"content-length: 9\r\n\r\nhalf"), "GET"),
    "reset within the body": (raw(OK + b"content-length: 9\r\n\r\nhalf", reset=True), "GET"),
    "half a chunk": (raw(OK + b"transfer-encoding: chunked\r\n\r\n9\r\nhalf"), "GET"),
    "chunks without an end": (raw(OK + b"transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"), "GET"),
    "a chunk of no size": (raw(OK + b"transfer-encoding: chunked\r\n\r\nzz\r\nhalf\r\n"), "GET"),
    "no HTTP": (raw(b"220 mail.example ESMTP\r\n\r\n"), "GET"),
    "a header without a colon": (raw(OK + b"what is this\r\ncontent-length: 0\r\n\r\n"), "GET"),
    "two lengths": (raw(OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nhi!"), "GET"),
    "a length that is none": (raw(OK + b"content-length: two\r\n\r\nhi"), "GET"),
    "101": (raw(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"), "GET"),
    "line feeds alone": (raw(b"HTTP/1.1 200 OK\nx-a: b\ncontent-length: 2\n\nhi"), "GET"),
    "a folded header": (raw(OK + b"x-a: b\r\n c\r\ncontent-length: 2\r\n\r\nhi"), "GET"),
    "a padded chunk size": (raw(OK + b"transfer-encoding: chunked\r\n\r\n3  \r\nabc\r\n0\r\n\r\n"), "GET"),
    "binary": (raw(OK + b"content-length: 2097152\r\n\r\n" + BIG), "GET"),
}


async def outcome(transport: httpx.AsyncBaseTransport, url: str, method: str) -> object:
    """Status, body and headers, or what kind of error."""
    async with httpx.AsyncClient(transport=transport, timeout=30) as client:
        try:
            async with client.stream(method, f"{url}/v1/x", content=b"{}" if method == "POST" else None) as answer:
                body = b"".join([chunk async for chunk in answer.aiter_raw()])
                return answer.status_code, sorted((k.lower(), v) for k, v in answer.headers.raw), body
        except httpx.TransportError as error:
            return type(error)


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_a_server_is_understood_as_httpx_understands_it(name):
    answer, method = MISBEHAVIOURS[name]
    with Upstream(answer=answer) as upstream:
        theirs = asyncio.run(outcome(httpx.AsyncHTTPTransport(), upstream.url, method))
        mine = asyncio.run(outcome(AsHttpx(), upstream.url, method))
    if name == "101":  # httpx hands the connection over, which a proxy has no use for
        assert mine is httpx.RemoteProtocolError
        return
    assert mine == theirs


@pytest.mark.parametrize("body", [b"", b"{}", BIG])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_request_reaches_its_server_as_httpx_sends_it(method, body):
    async def send(transport, url):
        request = httpx.Request(method, f"{url}/v1/a%2Fb?q=%20&q=1", headers=[("X-One", "1"), ("x-one", "2")],
                                content=body or None)  # fmt: skip
        answer = await transport.handle_async_request(request)
        await answer.aread()
        await transport.aclose()

    with Upstream(answer=respond(200, b"{}")) as upstream:
        asyncio.run(send(httpx.AsyncHTTPTransport(), upstream.url))
        asyncio.run(send(AsHttpx(), upstream.url))
    theirs, mine = upstream.got
    assert (mine.method, mine.target, mine.body) == (theirs.method, theirs.target, theirs.body)
    assert sorted((k.lower(), v) for k, v in mine.headers) == sorted((k.lower(), v) for k, v in theirs.headers)


def run(upstream: Upstream, work, **settings):
    """`work(ask)` with a transport of ours; ask(method, body) -> status, body."""

    async def through():
        transport, origin = ours(**settings), Origin.of(upstream.url)

        async def ask(method=b"POST", body=b"{}", headers=()):
            answer = await transport.ask(origin, method, b"/v1/x", headers, body)
            try:
                return answer.status, b"".join([chunk async for chunk in answer])
            finally:
                answer.close()

        try:
            return await work(ask, transport, origin)
        finally:
            await transport.aclose()

    return asyncio.run(through())


@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_a_connection_that_its_server_closed_is_replaced_without_an_error(method):
    """The server closes as it gets the second request, so that the client cannot know before."""
    seen = []

    async def once(got, wire):
        seen.append(got.body)
        if len(seen) == 2:
            wire.writer.close()
        else:
            await respond(200, b"%d" % len(seen))(got, wire)

    async def work(ask, *_):
        return [await ask(method, b"{}" if method == b"POST" else b"") for _ in range(2)]

    with Upstream(answer=once) as upstream:
        assert run(upstream, work) == [(200, b"1"), (200, b"3")]
    assert upstream.connections == 2


def test_a_connection_that_was_idle_while_the_machine_slept_is_not_used_again():
    async def work(ask, transport, origin):
        await ask()
        await ask()
        [connection] = transport._idle[origin]
        connection.idle_since -= 3_600  # what the clock makes of an hour of sleep, in which no timer ran
        return await ask()

    with Upstream(answer=respond(200, b"{}")) as upstream:
        assert run(upstream, work) == (200, b"{}")
    assert upstream.connections == 2


@pytest.mark.parametrize("pieces", [[b"{", b"}"], [BIG, b"", b"end"]], ids=["small", "large"])
def test_a_body_that_came_in_pieces_goes_out_whole_and_once_more_on_a_new_connection(pieces):
    """The server closes as it gets the second request, so that the client cannot know before."""
    seen = []

    async def once(got, wire):
        seen.append((got.header("content-length"), got.body))
        if len(seen) == 2:
            wire.writer.close()
        else:
            await respond(200, b"ok")(got, wire)

    async def work(ask, *_):
        return [await ask(b"POST", pieces) for _ in range(2)]

    with Upstream(answer=once) as upstream:
        assert run(upstream, work) == [(200, b"ok")] * 2
    body = b"".join(pieces)
    assert seen == [(str(len(body)), body)] * 3


def test_what_a_new_connection_refuses_is_not_sent_again():
    with Upstream(answer=raw()) as upstream:

        async def work(ask, *_):
            await ask()

        with pytest.raises(errors.RemoteProtocolError):
            run(upstream, work)
    assert len(upstream.got) == 1


@pytest.mark.parametrize(
    ("worked_s", "settings"), [(1.2, {}), (0.0, {"stale_s": 0.0})],
    ids=["that may have worked on it", "that closes no idle connection"],
)  # fmt: skip
def test_a_post_to_a_server_that_closes_is_not_sent_again(worked_s, settings):
    count = []

    async def dies(got, wire):
        count.append(got)
        if len(count) == 2:
            await asyncio.sleep(worked_s)
            wire.writer.close()
        else:
            await respond(200, b"{}")(got, wire)

    async def work(ask, *_):
        await ask()
        await ask()

    with Upstream(answer=dies) as upstream, pytest.raises(errors.RemoteProtocolError):
        run(upstream, work, **settings)
    assert len(count) == 2


@pytest.mark.parametrize(
    "answer",
    [
        raw(OK + b"content-length: 2\r\n\r\nhi" + OK + b"content-length: 2\r\n\r\nno"),
        raw(OK + b"content-length: 2\r\nconnection: close\r\n\r\nhi"),
        raw(OK + b"content-length: 2\r\n\r\nhi and more"),
    ],
    ids=["two answers", "connection: close", "more than its length"],
)
def test_what_follows_an_answer_never_becomes_the_answer_to_something_else(answer):
    async def work(ask, *_):
        return [await ask() for _ in range(3)]

    with Upstream(answer=answer) as upstream:
        assert run(upstream, work) == [(200, b"hi")] * 3
        assert upstream.connections == 3


def test_a_cancelled_request_ends_its_connection():
    ended = []

    async def silent(got, wire):
        await wire.closed()
        ended.append(got)

    async def work(ask, *_):
        task = asyncio.create_task(ask())
        await asyncio.sleep(0.1)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        for _ in range(100):
            if ended:
                return True
            await asyncio.sleep(0.01)
        return False

    with Upstream(answer=silent) as upstream:
        assert run(upstream, work)


LENGTH_AND_CHUNKS = OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


def test_of_a_length_and_chunks_the_chunks_count_and_nothing_else_is_asked_on_that_connection():
    async def answer(got, wire):
        await wire.send(LENGTH_AND_CHUNKS)

    async def work(ask, *_):
        return [await ask() for _ in range(2)]

    with Upstream(answer=answer) as upstream:
        assert run(upstream, work) == [(200, b"abc")] * 2
        assert upstream.connections == 2
        _, headers, body = asyncio.run(outcome(AsHttpx(), upstream.url, "GET"))
    assert (headers, body) == ([(b"transfer-encoding", b"chunked")], b"abc")


def test_a_coding_that_is_not_chunked_tells_no_end_so_that_the_connections_end_is_one():
    async def work(ask, *_):
        return await ask()

    with Upstream(answer=raw(OK + b"transfer-encoding: identity\r\n\r\n", b"all of", b" it")) as upstream:
        assert run(upstream, work) == (200, b"all of it")


def test_a_control_character_in_a_header_becomes_a_space():
    with Upstream(answer=raw(OK + b"x-a: b\x01c\r\ncontent-length: 2\r\n\r\nhi")) as upstream:
        _, headers, body = asyncio.run(outcome(AsHttpx(), upstream.url, "GET"))
    assert (dict(headers)[b"x-a"], body) == (b"b c", b"hi")


def test_an_answer_that_is_not_read_to_its_end_ends_its_connection():
    async def endless(got, wire):
        await wire.head(200, CHUNKED)
        with contextlib.suppress(ConnectionError):
            while True:
                await wire.chunk(b"x" * 1_000)
                await asyncio.sleep(0.001)

    async def work(ask, transport, origin):
        answer = await transport.ask(origin, b"GET", b"/", [], b"")
        async for _ in answer:
            break
        answer.close()
        assert not transport._idle[origin]
        return True

    with Upstream(answer=endless) as upstream:
        assert run(upstream, work)


def test_a_slow_reader_holds_the_upstream_up_instead_of_filling_the_memory():
    sent = 0

    async def flood(got, wire):
        nonlocal sent
        await wire.head(200, ("content-length", str(200 * len(BIG))))
        for _ in range(200):
            await wire.send(BIG)
            sent += len(BIG)

    async def work(ask, transport, origin):
        answer = await transport.ask(origin, b"GET", b"/", [], b"")
        await asyncio.sleep(1.0)
        held, waiting = sent, answer._connection._waiting_bytes
        total = 0
        async for chunk in answer:
            total += len(chunk)
        answer.close()
        return held, waiting, total

    with Upstream(answer=flood) as upstream:
        held, waiting, total = run(upstream, work, silence_s=30)
    assert total == 200 * len(BIG)
    assert held < 100 * len(BIG)
    assert waiting < 8 * _HIGH_BYTES


def test_after_an_answer_that_its_reader_left_unread_the_next_one_on_that_connection_comes():
    async def work(ask, transport, origin):
        left = await transport.ask(origin, b"GET", b"/", [], b"")
        while not left.is_here:  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0.01)
        left.close()
        assert len(transport._idle[origin]) == 1
        return await ask()

    long = b"x" * (_HIGH_BYTES + 1)  # reading pauses, and no more comes
    with Upstream(answer=respond(200, long)) as upstream:
        assert run(upstream, work) == (200, long)
        assert upstream.connections == 1


def test_silence_is_a_read_timeout_and_a_slow_stream_is_none():
    async def slow(got, wire):
        await wire.head(200, CHUNKED)
        for _ in range(8):
            await wire.chunk(b"x")
            await asyncio.sleep(0.2)
        await wire.send(b"0\r\n\r\n")

    async def work(ask, *_):
        return await ask()

    with Upstream(answer=slow) as upstream:
        assert run(upstream, work, silence_s=0.8) == (200, b"x" * 8)

    async def silent(got, wire):
        await wire.head(200, CHUNKED)
        await wire.closed()

    with Upstream(answer=silent) as upstream, pytest.raises(errors.ReadTimeout):
        run(upstream, work, silence_s=0.3)


def test_a_server_that_takes_nothing_is_a_write_timeout():
    async def work(ask, *_):
        await ask(body=BIG * 20)

    async def main():
        async def deaf(reader, writer):
            writer.transport.pause_reading()
            await asyncio.sleep(5)

        server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1_024)
        transport = ours(silence_s=0.5)
        origin = Origin("http", "127.0.0.1", server.sockets[0].getsockname()[1])
        try:
            with pytest.raises(errors.WriteTimeout):
                await transport.ask(origin, b"POST", b"/", [], BIG * 20)
        finally:
            await transport.aclose()
            server.close()

    asyncio.run(main())


def test_an_answer_that_comes_before_the_body_is_sent_is_the_answer():
    async def pieces():
        yield b"first"
        await asyncio.sleep(0.3)
        for _ in range(50):
            yield b"more"
            await asyncio.sleep(0.01)

    async def main():
        async def refuse(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
            await writer.drain()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        transport = ours()
        origin = Origin("http", "127.0.0.1", server.sockets[0].getsockname()[1])
        answer = await transport.ask(origin, b"POST", b"/", [], pieces())
        assert (answer.status, [c async for c in answer]) == (413, [b"big"])
        answer.close()
        assert not transport._idle[origin], "half of a request is still owed on this connection"
        await transport.aclose()
        server.close()

    asyncio.run(main())


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_a_refusal_before_the_connection_is_reset_is_the_answer(loop):
    """Its server closes with half of the body unread. The client cannot read before that, and writes first."""
    heard, held, closed = threading.Event(), threading.Event(), threading.Event()

    def refuse(listener):
        wire, _ = listener.accept()
        with wire:
            got = b""
            while not got.endswith(b"\r\n\r\n"):
                got += wire.recv(1)
            wire.recv(1, socket.MSG_PEEK)
            heard.set()
            assert held.wait(30)
            wire.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        closed.set()

    async def body():
        yield b"first"
        await asyncio.to_thread(heard.wait, 30)
        held.set()
        assert closed.wait(30)
        for _ in range(20):
            yield b"x" * 10_000

    async def main(port):
        transport = ours()
        answer = await transport.ask(Origin("http", "127.0.0.1", port), b"POST", b"/", [], body())
        got = b"".join([chunk async for chunk in answer])
        answer.close()
        await transport.aclose()
        return answer.status, got

    with socket.create_server(("127.0.0.1", 0)) as listener, asyncio.Runner(loop_factory=loop) as runner:
        server = threading.Thread(target=refuse, args=(listener,), daemon=True)
        server.start()
        assert runner.run(main(listener.getsockname()[1])) == (413, b"big")
        server.join(30)


@pytest.mark.parametrize("answers", [True, False])
def test_an_upstream_that_answers_or_goes_is_noticed_while_the_client_sends_nothing(answers):
    async def stalled():
        yield b"first"
        await asyncio.Event().wait()

    async def main():
        async def hang_up(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            if answers:
                writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
                await writer.drain()
            else:
                writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        transport = ours()
        origin = Origin("http", "127.0.0.1", server.sockets[0].getsockname()[1])
        asking = transport.ask(origin, b"POST", b"/", [], stalled())
        if answers:
            answer = await asyncio.wait_for(asking, 30)
            assert (answer.status, [c async for c in answer]) == (413, [b"big"])
            answer.close()
        else:
            with pytest.raises(TransportError):
                await asyncio.wait_for(asking, 30)
        assert len(asyncio.all_tasks()) <= 2, "nobody waits for the client's next piece any more"
        await transport.aclose()
        server.close()

    asyncio.run(main())


def test_what_the_body_of_a_request_raises_reaches_who_asked():
    async def broken():
        yield b"first"
        raise ValueError("the client left")

    async def work(ask, *_):
        with pytest.raises(ValueError, match="the client left"):
            await ask(body=broken())

    with Upstream(answer=respond(200, b"{}")) as upstream:
        run(upstream, work)


async def answers_at_once(reader, writer):
    """A server that says what it got of a body, in an answer that began before the body came."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(OK + b"transfer-encoding: chunked\r\n\r\n")
    await writer.drain()
    got = 0
    while (line := await reader.readline()) and (size := int(line, 16)):
        got += len(await reader.readexactly(size))
        await reader.readline()
    told = b"%d" % got
    writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(told), told))
    await writer.drain()


def early(body, work):
    """What `work(answer)` returns of an answer that began before its request's body."""

    async def main():
        server = await asyncio.start_server(answers_at_once, "127.0.0.1", 0)
        transport = ours()
        origin = Origin("http", "127.0.0.1", server.sockets[0].getsockname()[1])
        answer = await transport.ask(origin, b"POST", b"/", [], body)
        try:
            return await asyncio.wait_for(work(answer), 30)
        finally:
            answer.close()
            await transport.aclose()
            server.close()

    return asyncio.run(main())


def test_an_upload_goes_on_beside_an_answer_that_began_before():
    async def slowly():
        for _ in range(20):
            yield bytes(100_000)
            await asyncio.sleep(0.01)

    async def work(answer):
        assert (answer.status, answer.is_sending) == (200, True)
        said = b"".join([chunk async for chunk in answer])
        assert not answer.is_sending
        return said

    assert early(slowly(), work) == b"2000000"


def test_what_a_body_raises_beside_an_answer_that_began_before_reaches_who_reads():
    async def broken():
        yield b"first"
        await asyncio.sleep(0.1)
        raise ValueError("the client left")

    async def work(answer):
        with pytest.raises(ValueError, match="the client left"):
            async for _ in answer:
                pass

    early(broken(), work)


def test_an_answer_that_is_not_wanted_any_more_ends_the_upload_beside_it():
    ended = []

    async def endless():
        try:
            while True:
                yield bytes(100)
                await asyncio.sleep(0.01)
        finally:
            ended.append(True)

    async def work(answer):
        answer.close()
        await asyncio.sleep(0.1)

    early(endless(), work)
    assert ended == [True]


def test_of_two_addresses_that_connect_at_once_one_socket_is_closed(monkeypatch):
    opened = []

    async def main():
        together = asyncio.Event()

        async def open_together(_):
            opened.append(socket.socket())
            own = opened[-1]
            await together.wait()
            return own

        monkeypatch.setattr(dial, "_open", open_together)
        monkeypatch.setattr(dial, "_AFTER_S", 0.001)
        asyncio.get_running_loop().call_later(0.1, together.set)
        kept = await dial._connect_first([None, None])
        await asyncio.sleep(0.01)
        assert [sock.fileno() >= 0 for sock in opened].count(True) == 1
        assert kept.fileno() >= 0
        kept.close()

    asyncio.run(main())


def test_a_body_may_come_slowly_and_its_connection_is_one_that_no_server_has_closed_meanwhile():
    async def slowly():
        for _ in range(10):
            yield b"piece"
            await asyncio.sleep(0.1)

    async def work(ask, *_):
        await ask()
        return await ask(body=slowly())

    with Upstream(answer=respond(200, b"{}")) as upstream:
        assert run(upstream, work, silence_s=0.5) == (200, b"{}")
    assert upstream.connections == 2


def test_more_requests_than_connections_wait_their_turn_and_all_are_answered():
    at_once = most = 0

    async def busy(got, wire):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.02)
        at_once -= 1
        await respond(200, b"{}")(got, wire)

    async def work(ask, *_):
        tasks = [asyncio.create_task(ask()) for _ in range(30)]
        await asyncio.sleep(0.03)
        tasks[-1].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        return sum(each == (200, b"{}") for each in found)

    with Upstream(answer=busy) as upstream:
        assert run(upstream, work, connections=3) == 29
    assert most <= 3


@pytest.mark.parametrize("bad", [(b"x-a", b"1\r\nx-b: 2"), (b"x-a\nx-b", b"1"), (b"x-a", b"1\0")])
def test_a_header_cannot_end_its_line(bad):
    async def work(ask, *_):
        await ask(headers=[bad])

    with Upstream() as upstream, pytest.raises(errors.LocalProtocolError):
        run(upstream, work)
    assert upstream.got == []


def test_a_connection_is_kept_alive_while_its_server_thinks():
    """Routers forget connections that are silent for minutes."""

    async def main(origin):
        transport = ours()
        answer = await transport.ask(origin, b"GET", b"/", [], b"")
        used = answer._connection.transport.get_extra_info("socket")
        found = used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        answer.close()
        await transport.aclose()
        return found

    with Upstream() as upstream:
        assert asyncio.run(main(Origin.of(upstream.url)))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
@pytest.mark.parametrize("trusted", [True, False])
def test_tls_is_spoken_and_a_certificate_that_nobody_vouches_for_is_refused(tmp_path, monkeypatch, trusted):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]  # fmt: skip
    subprocess.run(make, check=True, capture_output=True)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))

    async def main():
        async def hello(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK + b"content-length: 2\r\n\r\nhi")
            await writer.drain()

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(cert, key)
        server = await asyncio.start_server(hello, "localhost", 0, ssl=context, family=2)
        transport = ours()
        origin = Origin("https", "localhost", server.sockets[0].getsockname()[1])
        try:
            answer = await transport.ask(origin, b"GET", b"/", [], b"")
            found = [c async for c in answer]
            answer.close()
            return found
        finally:
            await transport.aclose()
            server.close()

    if trusted:
        assert asyncio.run(main()) == [b"hi"]
    else:
        with pytest.raises(errors.ConnectError, match=r"(?i)certificate"):
            asyncio.run(main())


async def pieces():
    yield b"one"


@pytest.mark.parametrize("body", [b"", b"x" * 100_000, pieces], ids=["small", "large", "upload"])
@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_a_server_that_takes_a_connection_and_ends_is_told_as_httpx_does(loop, body):
    async def work() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", 0)
        origin = Origin("http", "127.0.0.1", server.sockets[0].getsockname()[1])
        transport = Http1(connect_s=30, silence_s=30, connections=1)
        dial = transport._dial

        async def late(where: Origin):
            """The server is gone before the request is written."""
            connection, ended = await dial(where), asyncio.Event()
            told = connection.connection_lost

            def lost(why: Exception | None) -> None:
                told(why)
                ended.set()

            connection.connection_lost = lost
            if not connection.is_closed:
                await ended.wait()
            return connection

        transport._dial = late
        for _ in range(3):  # each gives its place back
            with pytest.raises(errors.ReadError):
                await transport.ask(origin, b"POST", b"/", [], body() if callable(body) else body)
        server.close()
        await transport.aclose()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work())


@pytest.mark.parametrize(
    ("url", "port"),
    [("http://a", 80), ("https://a", 443), ("socks5://a", 1080), ("socks5h://a", 1080), ("http://a:3", 3)],
)
def test_a_url_without_a_port_means_that_of_its_scheme(url, port):
    assert Origin.of(url).port == port
