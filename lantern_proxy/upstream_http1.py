"""HTTP/1.1 to an upstream at the least cost: asyncio.Protocol and httptools, behind the seam that httpx has for it.

    transport = Http1(connect_s=10, silence_s=600, connections=1_000)
    response = await transport.handle_async_request(request)          # as any httpx transport
    answer = await transport.ask(origin, b"POST", b"/v1/x", headers, body)      # the same without httpx's objects
    async for chunk in answer: ...
    answer.close()

It fails with the errors that httpx fails with. What it does not do is left to httpx's own transport: proxies, HTTP/2,
credentials in a URL. An idle connection that its server has closed meanwhile is noticed, or fails before any byte of an
answer; then a request whose body is at hand goes out once more, on a new connection, unless it had a second to be
worked on and is not one that may be repeated (RFC 9110, section 9.2.2).
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from dataclasses import dataclass
from typing import cast

import httptools
import httpx

from lantern_proxy.upstream_dial import connect

Headers = Iterable[tuple[bytes, bytes]]

_HIGH_BYTES, _LOW_BYTES = 256 * 1024, 64 * 1024
"""Bytes of an answer that wait for a slow reader: beyond the first the upstream is not read from, below the second
it is again."""
_IDLE_S, _MOST_IDLE = 60.0, 256
_ONE_WRITE_BYTES = 65_536
"""A body up to this size goes out together with its head."""
_STALE_S = 1.0
"""A server that closes so soon after a request had closed before it saw it."""
_REPEATABLE = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"})


@dataclass(frozen=True, slots=True)
class Origin:
    """Whom a connection goes to."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: httpx.URL) -> "Origin":
        return cls(url.scheme, url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80))


class _Stale(Exception):
    """The connection was closed before any byte of an answer. error: what to raise when it is not tried again."""

    def __init__(self, error: httpx.TransportError) -> None:
        super().__init__(str(error))
        self.error = error


class Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, silence_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._silence_s = silence_s
        self.is_closed, self.idle_since, self.uses = False, 0.0, 0
        self._method = b""
        self._error: httpx.TransportError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._full = False
        """The transport takes no more for now."""
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._chunks: deque[bytes] = deque()
        self._begin(b"")
        self.complete = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    # --- a request ---

    def _begin(self, method: bytes) -> None:
        self._method = method
        self._parser = httptools.HttpResponseParser(self)
        self.status, self.headers, self.reason = 0, cast("list[tuple[bytes, bytes]]", []), b""
        self.head_done = self.complete = self.reusable = False
        self._seen = self._to_the_end = self._paused = False
        self._waiting_bytes, self._sent_all = 0, False
        self._chunks.clear()

    def start(self, method: bytes, head: bytes, body: bytes) -> None:
        """Send a request whose body is at hand. Raises _Stale."""
        self._begin_use(method)
        self._touch()
        self._sent_all = True
        if len(body) <= _ONE_WRITE_BYTES:
            self._write(head + body)
        else:
            self._write(head)
            self._write(body)

    async def upload(self, method: bytes, head: bytes, body: AsyncIterable[bytes], *, chunked: bool) -> None:
        """Send a request whose body is still coming; done when it is sent, or an answer came before. Raises _Stale."""
        self._begin_use(method)
        self._write(head)
        async for piece in body:
            if self._error is not None or self.head_done:
                break
            if piece:
                self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            while self._full and self._error is None and not self.head_done:
                self._touch()
                await self._wait()
        else:
            self._sent_all = True
            if chunked:
                self._write(b"0\r\n\r\n")
        self._touch()

    def _begin_use(self, method: bytes) -> None:
        if self.is_closed:  # by a server that took the connection and ended
            raise _Stale(httpx.ReadError("the server closed the connection at once"))
        self._begin(method)
        self.uses += 1

    def _write(self, data: bytes) -> None:
        """What comes after the connection's end is for nobody; connection_lost has told why."""
        if not self.is_closed:
            self.transport.write(data)

    async def head(self) -> None:
        """Wait for status and headers. Raises _Stale, or what httpx raises."""
        while not self.head_done:
            if self._error is not None:
                raise _Stale(self._error) if not self._seen else self._error
            await self._wait()

    async def read(self) -> bytes:
        """What came of the body and was not read yet, as soon as there is some; empty at its end."""
        while not self._chunks:
            if self.complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        data = self._chunks.popleft() if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._waiting_bytes = 0
        if self._paused:
            self._paused = False
            self._touch()
            if not self.is_closed:
                self.transport.resume_reading()
        return data

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """End the connection, whatever it is doing."""
        if not self.is_closed:
            self.is_closed = True
            self.transport.abort()
        self._fail(httpx.ReadError("connection closed"))

    def _fail(self, error: httpx.TransportError) -> None:
        if self._error is None and not self.complete:
            self._error = error
        self._wake()

    # --- time ---

    def _touch(self) -> None:
        """Something happened: silence counts from now. One timer serves many of these."""
        self._deadline = self._loop.time() + self._silence_s
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self.complete or self.is_closed or self._paused:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._on_time)
            return
        if self._full:
            self._fail(httpx.WriteTimeout("the upstream does not take what is sent"))
        else:
            self._fail(httpx.ReadTimeout("the upstream sends nothing"))
        self.close()

    # --- the transport's calls ---

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._deadline = self._loop.time() + self._silence_s
        self._wake()

    def data_received(self, data: bytes) -> None:
        if self.complete:  # nobody asked: what comes now belongs to no request
            self.close()
            return
        self._seen = True
        self._deadline = self._loop.time() + self._silence_s
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(httpx.RemoteProtocolError("the upstream switched protocols, which nobody asked for"))
            self.close()
        except httptools.HttpParserError as error:
            if self.complete:  # an answer, and then something else: the answer counts
                self.reusable = False
            else:
                self._fail(httpx.RemoteProtocolError(str(error) or type(error).__name__))
            self.close()
        self._wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed, self.reusable = True, False
        if self._timer is not None:
            self._timer.cancel()
        if self._to_the_end and exc is None and self._error is None:
            self.complete = True
        elif exc is not None and not isinstance(exc, ConnectionResetError) and self._full:
            self._fail(httpx.WriteError(str(exc)))
        elif exc is not None:
            self._fail(httpx.ReadError(str(exc)))
        elif not self._seen:
            self._fail(httpx.RemoteProtocolError("Server disconnected without sending a response."))
        else:
            self._fail(httpx.RemoteProtocolError("peer closed connection without sending complete message body"))
        self._wake()

    # --- the parser's calls ---

    def on_status(self, reason: bytes) -> None:
        if not self.complete:
            self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_done:  # else it is a trailer, which no client of ours sees
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.complete:  # a second answer, to a question that nobody asked
            self.reusable = False
            return
        self.status = self._parser.get_status_code()
        if 100 <= self.status < 200:
            return
        self.head_done = True
        names = {name.lower() for name, _ in self.headers}
        bare = self._method == b"HEAD" or self.status in (204, 304)
        self._to_the_end = not (bare or b"content-length" in names or b"transfer-encoding" in names)
        if self._method == b"HEAD":  # the parser does not know that no body follows
            self._end()

    def on_body(self, body: bytes) -> None:
        if self.complete:
            self.reusable = False
            return
        self._chunks.append(body)
        self._waiting_bytes += len(body)
        if self._waiting_bytes > _HIGH_BYTES and not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        if self.complete:
            return
        if 100 <= self.status < 200:
            self.status, self.headers, self.reason = 0, [], b""
        else:
            self._end()

    def _end(self) -> None:
        self.complete = True
        keep = self._method == b"HEAD" or self._parser.should_keep_alive()
        closing = any(n.lower() == b"connection" and b"close" in v.lower() for n, v in self.headers)
        self.reusable = bool(keep) and not closing and self._sent_all and not self._to_the_end and not self._full


class Answer:
    """An answer whose head is here. Iterate it once; close it always."""

    def __init__(self, connection: Connection, pool: "Http1", origin: Origin) -> None:
        self._connection, self._pool, self._origin = connection, pool, origin
        self._open = True
        self.status, self.headers, self.reason = connection.status, connection.headers, connection.reason

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = self._connection.read
        while chunk := await read():
            yield chunk

    def close(self) -> None:
        """Give the connection back, or end it when the body has not been read to its end."""
        if self._open:
            self._open = False
            self._pool.take_back(self._origin, self._connection)


class _Stream(httpx.AsyncByteStream):
    """An Answer as httpx reads it."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._answer:
            yield chunk

    async def aclose(self) -> None:
        self._answer.close()


class Http1(httpx.AsyncBaseTransport):
    """Connections to any number of origins. Close it.

    connect_s:   most seconds for one connection, name and handshake included
    silence_s:   most seconds in which a request that is under way moves no byte
    connections: most requests at once; more wait their turn
    """

    def __init__(self, *, connect_s: float, silence_s: float, connections: int = 1_000) -> None:
        self._connect_s, self._silence_s, self._room = connect_s, silence_s, connections
        self._idle: dict[Origin, list[Connection]] = {}
        self._queue: deque[asyncio.Future[None]] = deque()
        self._tls: ssl.SSLContext | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        target = request.extensions.get("target", request.url.raw_path)
        headers = [(name, value) for name, value in request.headers.raw if name.lower() not in _FRAMING]
        body = request.stream if isinstance(request.stream, httpx.AsyncByteStream) else b""
        if isinstance(request.stream, httpx.ByteStream):
            body = b"".join([piece async for piece in request.stream])
        length = request.headers.get("content-length")
        if length is not None and not isinstance(body, bytes):
            headers.append((b"content-length", length.encode()))
        answer = await self.ask(Origin.of(request.url), request.method.encode(), target, headers, body)
        return httpx.Response(answer.status, headers=answer.headers, stream=_Stream(answer),
                              extensions={"reason_phrase": answer.reason, "http_version": b"HTTP/1.1"})  # fmt: skip

    async def ask(
        self, origin: Origin, method: bytes, target: bytes, headers: Headers, body: bytes | AsyncIterable[bytes],
        *, host: bytes = b"",
    ) -> Answer:  # fmt: skip
        """The answer to a request, as soon as its head is here. Raises what httpx raises.

        headers: without any that frame the body, but for the content-length of one that is still coming
        host:    the Host header; the origin's by default, unless `headers` have one
        """
        head = _head(origin, method, target, headers, body, host)
        if self._room > 0:
            self._room -= 1
        else:
            await self._turn()
        try:
            connection = await self._answered(origin, method, head, body)
        except BaseException:
            self._leave()
            raise
        return Answer(connection, self, origin)

    async def _answered(
        self, origin: Origin, method: bytes, head: bytes, body: bytes | AsyncIterable[bytes]
    ) -> Connection:
        """A connection on which the head of an answer has come."""
        while True:
            connection = self._used(origin) or await self._dial(origin)
            begun = time.monotonic()
            try:
                if isinstance(body, bytes):
                    connection.start(method, head, body)
                else:
                    await connection.upload(method, head, body, chunked=b"\r\ntransfer-encoding: chunked\r\n" in head)
                await connection.head()
                return connection
            except _Stale as stale:
                connection.close()
                soon = time.monotonic() - begun < _STALE_S
                timed_out = isinstance(stale.error, httpx.TimeoutException)
                again = connection.uses > 1 and not timed_out and isinstance(body, bytes)
                if not (again and (soon or method in _REPEATABLE)):
                    raise stale.error from None
            except BaseException:
                connection.close()
                raise

    # --- connections ---

    def _used(self, origin: Origin) -> Connection | None:
        """The connection that was used last, if one is idle and still open."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if not connection.is_closed and not connection.transport.is_closing():
                return connection
        return None

    async def _dial(self, origin: Origin) -> Connection:
        if origin.scheme == "https" and self._tls is None:
            self._tls = httpx.create_ssl_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        tls = self._tls if origin.scheme == "https" else None
        return await connect(lambda: Connection(self._silence_s), origin.host, origin.port, tls, self._connect_s)

    def take_back(self, origin: Origin, connection: Connection) -> None:
        self._leave()
        idle = self._idle.setdefault(origin, [])
        usable = connection.complete and connection.reusable and not connection.is_closed
        if not usable or self._closed or len(idle) >= _MOST_IDLE:
            connection.close()
            return
        connection.idle_since = time.monotonic()
        idle.append(connection)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_IDLE_S, self._sweep)

    def _sweep(self) -> None:
        """Close what has been idle for long."""
        self._sweeping, now, left = None, time.monotonic(), 0
        for origin, idle in self._idle.items():
            for connection in idle:
                if now - connection.idle_since >= _IDLE_S:
                    connection.close()
            self._idle[origin] = [c for c in idle if not c.is_closed]
            left += len(self._idle[origin])
        if left:
            self._sweeping = asyncio.get_running_loop().call_later(_IDLE_S / 2, self._sweep)

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # it was ours already
            raise

    def _leave(self) -> None:
        """Hand the place of a request over to the one that waits longest."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._room += 1

    async def aclose(self) -> None:
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()


_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


def _head(
    origin: Origin, method: bytes, target: bytes, headers: Headers, body: bytes | AsyncIterable[bytes], host: bytes
) -> bytes:
    """The head of a request. httpx.LocalProtocolError when a line of it would end early."""
    lines = [b"%b %b HTTP/1.1" % (method, target)]
    named = {name for name, _ in headers}
    if b"host" not in named and b"Host" not in named:
        lines.append(b"host: " + (host or host_of(origin)))
    lines += [b"%b: %b" % pair for pair in headers]
    if not isinstance(body, bytes):
        if b"content-length" not in named:
            lines.append(b"transfer-encoding: chunked")
    elif body or method in (b"POST", b"PUT", b"PATCH"):
        lines.append(b"content-length: %d" % len(body))
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1 or b"\0" in head or b" " in target:
        raise httpx.LocalProtocolError("a header or the path of the request holds a line break or a NUL")
    return head + b"\r\n\r\n"


def host_of(origin: Origin) -> bytes:
    """The Host header for an origin: without a port that goes without saying."""
    name = f"[{origin.host}]" if ":" in origin.host else origin.host
    usual = {"http": 80, "https": 443}.get(origin.scheme) == origin.port
    return (name if usual else f"{name}:{origin.port}").encode("ascii")
