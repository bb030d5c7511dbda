"""HTTP/1.1 to an upstream at the lowest cost: a pool of our own connections.

    transport = Http1(connect_s=10, silence_s=600, connections=1_000)
    answer = await transport.ask(Origin.of("https://api.openai.com"), b"POST", b"/v1/x", headers, body)
    async for chunk in answer: ...
    answer.close()

It fails as httpx does (upstream/errors.py). What it lacks is left to httpx: proxies, HTTP/2, credentials in a URL. If
an idle connection was closed by its server, that is noticed, or the request fails before any byte of an answer; then a
request whose body is complete is sent once more, on a new connection, unless the server had time to process it and it
may not be repeated (RFC 9110, section 9.2.2).
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from urllib.parse import urlsplit

from msgspec import Struct

from lantern_proxy.upstream.connection import Connection, Stale
from lantern_proxy.upstream.dial import connect, tls_context
from lantern_proxy.upstream.errors import LocalProtocolError, TimeoutException

Headers = Iterable[tuple[bytes, bytes]]
Pieces = list[bytes]
"""A complete body, in the pieces in which it arrived."""
Body = bytes | Pieces | AsyncIterable[bytes]

_IDLE_S, _MOST_IDLE = 60.0, 256
_PORTS = {"https": 443, "socks5": 1080, "socks5h": 1080}
"""Port of a URL without one, by its scheme; 80 for other schemes."""
_REPEATABLE = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"})
STALE_S = 1.0
"""A server that closes an idle connection so soon after a request had closed it before it saw that."""


class Origin(Struct, frozen=True):
    """Scheme, host and port of a server."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> "Origin":
        parts = urlsplit(url)
        return cls(parts.scheme, _ascii(parts.hostname or ""), parts.port or _PORTS.get(parts.scheme, 80))


def is_repeatable(method: bytes) -> bool:
    """May a request be sent again though its server may have processed it?"""
    return method in _REPEATABLE


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    import idna

    return idna.encode(host).decode("ascii")


class Answer:
    """An answer whose head has arrived. Iterate it once; always close it."""

    def __init__(self, connection: Connection, pool: "Http1", origin: Origin) -> None:
        self._connection, self._pool, self._origin = connection, pool, origin
        self._open = True
        self.status, self.headers, self.read = connection.status, connection.headers, connection.read

    @property
    def is_here(self) -> bool:
        """Has the whole answer arrived? Then the next piece, or the one just returned, is the last."""
        return self._connection.complete

    @property
    def is_sending(self) -> bool:
        """Is the request's body still arriving?"""
        return self._connection.is_sending

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while chunk := await self.read():
            yield chunk

    def close(self) -> None:
        """Return the connection to the pool, or close it if the body was not read to its end."""
        if self._open:
            self._open = False
            self._pool.take_back(self._origin, self._connection)


class Http1:
    """Connections to any number of origins. Must be closed.

    connect_s:   timeout of a connection, in seconds, name resolution and TLS handshake included
    silence_s:   most seconds in which a running request may transfer no byte
    connections: most requests at once; further ones wait
    stale_s:     as STALE_S; 0 for a server that never closes idle connections
    """

    def __init__(
        self, *, connect_s: float, silence_s: float, connections: int = 1_000, stale_s: float = STALE_S
    ) -> None:  # fmt: skip
        self._connect_s, self._silence_s, self._room, self._stale_s = connect_s, silence_s, connections, stale_s
        self._idle: dict[Origin, list[Connection]] = {}
        self._queue: deque[asyncio.Future[None]] = deque()
        self._tls: ssl.SSLContext | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def ask(
        self, origin: Origin, method: bytes, target: bytes, headers: Headers, body: Body, *, host: bytes = b""
    ) -> Answer:
        """The answer to a request, as soon as its head has arrived. Raises a TransportError.

        headers: without any that frame the body, except the content-length of a body that is still arriving
        host:    the Host header; the origin's by default, unless `headers` have one
        """
        if isinstance(body, bytes):
            body = [body]
        head = _head(origin, method, target, headers, body, host)
        if self._room > 0:
            self._room -= 1
        else:
            await self._wait_for_slot()
        try:
            connection = await self._answered_connection(origin, method, head, body)
        except BaseException:
            self._release_slot()
            raise
        return Answer(connection, self, origin)

    async def _answered_connection(
        self, origin: Origin, method: bytes, head: bytes, body: Pieces | AsyncIterable[bytes]
    ) -> Connection:
        """A connection on which the head of an answer has arrived.

        A body that is still arriving gets a new connection: it cannot be sent again if an idle one turns out closed.
        """
        while True:
            used = self._idle_connection(origin) if isinstance(body, list) else None
            connection = used or await self._dial(origin)
            begun = time.monotonic()
            try:
                if isinstance(body, list):
                    connection.start(method, head, body)
                else:
                    await connection.upload(method, head, body, chunked=b"\r\ntransfer-encoding: chunked\r\n" in head)
                await connection.head()
                return connection
            except Stale as stale:
                connection.close()
                soon = time.monotonic() - begun < self._stale_s
                timed_out = isinstance(stale.error, TimeoutException)
                again = connection.uses > 1 and not timed_out and isinstance(body, list)
                if not (again and (soon or is_repeatable(method))):
                    raise stale.error from None
            except BaseException:
                connection.close()
                raise

    # --- connections ---

    def _idle_connection(self, origin: Origin) -> Connection | None:
        """The connection that was used last, if one is idle and still open. Not one that was idle for long: after the
        machine slept, it may be dead without a sign."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            is_open = not connection.is_closed and not connection.transport.is_closing()
            if is_open and time.time() - connection.idle_since < _IDLE_S:
                return connection
            connection.close()
        return None

    async def _dial(self, origin: Origin) -> Connection:
        if origin.scheme == "https" and self._tls is None:
            self._tls = tls_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        tls = self._tls if origin.scheme == "https" else None
        return await connect(lambda: Connection(self._silence_s), origin.host, origin.port, tls, self._connect_s)

    def take_back(self, origin: Origin, connection: Connection) -> None:
        """End a request: its connection is kept if it can be reused, else closed."""
        self._release_slot()
        idle = self._idle.setdefault(origin, [])
        usable = connection.complete and connection.reusable and not connection.is_closed
        if not usable or self._closed or len(idle) >= _MOST_IDLE:
            connection.close()
            return
        connection.idle_since = time.time()  # time.monotonic() stands still while the machine sleeps
        idle.append(connection)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_IDLE_S, self._sweep)

    def _sweep(self) -> None:
        """Close connections that have been idle for long."""
        self._sweeping, now, left = None, time.time(), 0
        for origin, idle in self._idle.items():
            for connection in idle:
                if now - connection.idle_since >= _IDLE_S:
                    connection.close()
            self._idle[origin] = [c for c in idle if not c.is_closed]
            left += len(self._idle[origin])
        if left:
            self._sweeping = asyncio.get_running_loop().call_later(_IDLE_S / 2, self._sweep)

    async def _wait_for_slot(self) -> None:
        """Wait for another request to end."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release_slot()  # the slot was already ours
            raise

    def _release_slot(self) -> None:
        """Give a request's slot to the one that has waited longest."""
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


def _head(
    origin: Origin, method: bytes, target: bytes, headers: Headers, body: Pieces | AsyncIterable[bytes], host: bytes
) -> bytes:
    """The head of a request. LocalProtocolError if a line of it contains a line break."""
    lines = [b"%b %b HTTP/1.1" % (method, target)]
    names = {name for name, _ in headers}
    if b"host" not in names and b"Host" not in names:
        lines.append(b"host: " + (host or host_of(origin)))
    lines += [b"%b: %b" % pair for pair in headers]
    if not isinstance(body, list):
        if b"content-length" not in names:
            lines.append(b"transfer-encoding: chunked")
    elif (size := sum(map(len, body))) or method in (b"POST", b"PUT", b"PATCH"):
        lines.append(b"content-length: %d" % size)
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1 or b"\0" in head or b" " in target:
        raise LocalProtocolError("a header or the path of the request holds a line break or a NUL")
    return head + b"\r\n\r\n"


def host_of(origin: Origin) -> bytes:
    """The Host header for an origin, without a default port."""
    name = f"[{origin.host}]" if ":" in origin.host else origin.host
    usual = {"http": 80, "https": 443}.get(origin.scheme) == origin.port
    return (name if usual else f"{name}:{origin.port}").encode("ascii")
